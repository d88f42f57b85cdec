//! The memory that an engine of a host works on: the host's own, and the addresses of its fabric window.
//!
//! Shape: [`Memories`] is the engine's `Memory` over a [`HostMemory`]; [`Counting`] counts what goes through a port.
//! Units: bytes.
//! Source: docs/spec/cxl-fabric.md "Fabric memory transfers".

use weft_cxl::completer::Target;
use weft_cxl::cxl_host::HostMemory;
use weft_cxl::fabric_mem::{Completion, MemKind, Memory, NotTaken, Place, Request, UioPort};
use weft_dataplane::time::Instant;
use weft_parsers::fabric::Pid;

/// All places that an engine of a host knows are fabric addresses, of nobody in particular.
pub const NOBODY: Pid = Pid::NONE;

/// A host's memory as its engine sees it.
pub struct Memories<'a> {
    /// Its own.
    pub own: &'a mut HostMemory,
    /// First address and bytes of the fabric window.
    pub fabric: (u64, u64),
    /// From here on, memory is the engine's own, and not to be registered.
    pub hidden: u64,
}

impl Memory for Memories<'_> {
    fn kind(&self, addr: u64, len: u64) -> Option<MemKind> {
        let end = addr.checked_add(len)?;
        let (base, size) = self.fabric;
        if addr >= base && end <= base.saturating_add(size) {
            return Some(MemKind::Device);
        }
        (end <= self.hidden && self.own.holds(addr, len)).then_some(MemKind::Host)
    }

    fn place(&self, addr: u64, _: u64) -> Option<Place> {
        Some(Place { pid: NOBODY, offset: addr })
    }

    fn read(&self, addr: u64, into: &mut [u8]) -> bool {
        Target::read(self.own, addr, into)
    }

    fn write(&mut self, addr: u64, data: &[u8]) -> bool {
        Target::write(self.own, addr, data)
    }
}

/// A port that counts the requests that it takes.
pub struct Counting<P> {
    /// The port.
    pub port: P,
    /// Requests that it took.
    pub sent: usize,
}

impl<P: UioPort> UioPort for Counting<P> {
    fn submit(
        &mut self,
        now: Instant,
        request: Request,
        fill: &mut dyn FnMut(&mut [u8]) -> bool,
    ) -> Result<(), NotTaken> {
        self.port.submit(now, request, fill)?;
        self.sent += 1;
        Ok(())
    }

    fn poll(&mut self, now: Instant, each: &mut dyn FnMut(Completion<'_>)) {
        self.port.poll(now, each);
    }
}
