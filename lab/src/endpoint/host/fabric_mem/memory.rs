//! The memory that a host's engine works on: the host's own, that of devices below it, and its fabric window.
//!
//! [`Memories`] is the engine's `Memory` over a [`Target`]; [`Counting`] counts the requests through a port.
//!
//! Source: docs/spec/cxl-fabric.md "Fabric memory transfers".

use weft_cxl::completer::Target;
use weft_cxl::fabric_mem::{Completion, MemKind, Memory, NotTaken, Place, Request, UioPort};
use weft_dataplane::time::Instant;
use weft_parsers::fabric::Pid;

/// Port id in places of the engine: these are fabric addresses, which name no port.
pub const NOBODY: Pid = Pid::NONE;

/// Memory of a host or device, as its engine sees it.
pub struct Memories<'a> {
    /// The host's or device's own memory.
    pub own: &'a mut dyn Target,
    /// First address and length of the fabric window.
    pub fabric: (u64, u64),
    /// First address and length of memory that belongs to one device below the host.
    pub device: Option<(u64, u64)>,
    /// Memory from this address on is the engine's own, and cannot be registered.
    pub hidden: u64,
}

impl Memory for Memories<'_> {
    fn kind(&self, addr: u64, len: u64) -> Option<MemKind> {
        let end = addr.checked_add(len)?;
        let is_within = |(base, size): (u64, u64)| addr >= base && end <= base.saturating_add(size);
        // HDM of a device may be placed within the fabric window, so it is looked up first.
        if self.device.is_some_and(is_within) {
            return Some(MemKind::Device);
        }
        if is_within(self.fabric) {
            return Some(MemKind::Fabric);
        }
        (end <= self.hidden && self.own.holds(addr, len)).then_some(MemKind::Host)
    }

    fn place(&self, addr: u64, len: u64) -> Option<Place> {
        let is_fabric = self.kind(addr, len) == Some(MemKind::Fabric);
        is_fabric.then_some(Place { pid: NOBODY, offset: addr })
    }

    fn by_requests(&self, addr: u64) -> bool {
        matches!(self.kind(addr, 1), Some(MemKind::Fabric | MemKind::Device))
    }
}

impl Target for Memories<'_> {
    fn holds(&self, addr: u64, len: u64) -> bool {
        self.own.holds(addr, len)
    }

    fn read(&self, addr: u64, into: &mut [u8]) -> bool {
        self.own.read(addr, into)
    }

    fn write(&mut self, addr: u64, data: &[u8]) -> bool {
        self.own.write(addr, data)
    }

    fn ready(&mut self, addr: u64, len: u64) -> bool {
        self.own.ready(addr, len)
    }
}

/// A port that counts accepted requests, and accepts none for held addresses.
pub struct Counting<P> {
    /// The port that carries the requests.
    pub port: P,
    /// Requests accepted so far.
    pub sent: usize,
    /// First address and length of each range that is held for now.
    pub held: Vec<(u64, u64)>,
}

impl<P: UioPort> UioPort for Counting<P> {
    fn submit(
        &mut self,
        now: Instant,
        request: Request,
        fill: &mut dyn FnMut(&mut [u8]) -> bool,
    ) -> Result<(), NotTaken> {
        // Full makes the engine try again later, after the enumeration.
        if self.held.iter().any(|(base, len)| request.addr.0.wrapping_sub(*base) < *len) {
            return Err(NotTaken::Full);
        }
        self.port.submit(now, request, fill)?;
        self.sent += 1;
        Ok(())
    }

    fn poll(&mut self, now: Instant, each: &mut dyn FnMut(Completion<'_>)) {
        self.port.poll(now, each);
    }
}
