//! A host: one root port on a link of TLPs, memory behind it, and the software that uses both.
//!
//! [`CxlHost::poll`] moves TLPs; the owner submits transactions and fetches [`Event`]s by [`CxlHost::next_event`].
//! Addresses are those of the bus.
//!
//! The root port is device 0 on the host's first bus, and its secondary bus is the link. Posted requests and
//! completions are taken without condition (docs/spec/cxl-fabric.md "Routes").
//!
//! Source: PCIe 6.0 chapters 2 and 6; PCIe 6.0 section 2.2.4; CXL 3.1 sections 7.7.3.3, 7.7.6.1;
//! docs/spec/cxl-fabric.md.

mod admission;
mod bus_reset;
pub mod code;
mod events;
mod home;
mod link;
mod ln;
pub mod mailbox;
mod mem;
pub mod memory;
mod relay;
mod scan;
mod software;

use weft_dataplane::pool::Bufs;
use weft_dataplane::port::{Port, PortError};
use weft_dataplane::time::{Instant, Span};
use weft_parsers::fabric::{Bdf, Hpa, Pid};
use weft_parsers::tlp::{Body, Kind, Mode, Routing, TlpRepr};

use crate::cache::home::{HomeCounts, HomeSpec};
use crate::coherence::cache::CacheCounts;
use crate::completer::CompleterSpec;
use crate::ln::{Lnc, LncSpec};
use crate::mem::{MemCounts, MemOperation, MemSpec};
use crate::pci::bridge::BridgeError;
use crate::pci::intx::{Pin, Wires};
use crate::pci::{Bridge, BridgeSpec, HostSpec, Tree};
use crate::requester::uio::{Uio, UioSide};
use crate::requester::{OpId, Operation, Requester, RequesterCounts, RequesterSpec, Transaction};
use crate::tlp_end::{Carries, EndConfig, EndCounts, Progress, TlpEnd};
use crate::transaction_layer::poll;
use crate::vdm::link_reset::ResetOrders;
use events::Events;
pub use events::{Event, HostCounts};
use home::Home;
pub use home::{CoherentMemory, CpuAccess, CpuError, CpuStep, HomeNews};
use link::{Core, Exporting};
use mem::HostMem;
pub use memory::{Export, Exports, HostMemory};
use relay::Relay;
use software::Software;

/// Configuration of a host.
#[derive(Clone, Debug)]
pub struct HostConfig {
    /// Its end of the link, which carries TLPs of one mode without PTH.
    pub end: EndConfig,
    /// Buses, addresses and settings that its software assigns.
    pub spec: HostSpec,
    /// Configuration of its root port.
    pub root: BridgeSpec,
    /// Most bytes of a read request of its own.
    pub read_max: usize,
    /// Boundary in bytes that no UIO request of its own crosses.
    pub uio_max: usize,
    /// Most requests of its own under way.
    pub in_flight_max: usize,
    /// Time limit for an answer.
    pub timeout: Span,
    /// Lines of its write-back cache for CXL.mem; 0 for none.
    pub cache_lines: usize,
    /// Whether its completions of UIO reads leave the last chunk first.
    pub uio_last_first: bool,
    /// Its home agent, which keeps caches of devices coherent with its memory.
    pub home: HomeSpec,
    /// Whether it serves UIO requests of other hosts, which a prefix marks.
    pub gim: bool,
    /// Lightweight Notification; without effect in flit mode.
    pub lnc: Option<LncSpec>,
    /// Whether its software enumerates again behind a slot that interrupts.
    pub hot_plug: bool,
}

/// Why a host cannot be built.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
pub enum HostError {
    /// The link carries TLPs with PTH, or several kinds.
    #[error("a host's link carries TLPs of one mode without PTH")]
    Link,
    /// The root port cannot be made.
    #[error(transparent)]
    Bridge(#[from] BridgeError),
}

/// A host: root port, memory and software. Its driver owns the port and a handle of the pool.
pub struct CxlHost {
    end: TlpEnd,
    core: Core,
    up: bool,
}

impl CxlHost {
    /// A host whose link is down, with `memory`.
    ///
    /// # Errors
    /// See [`HostError`].
    pub fn new(config: HostConfig, memory: HostMemory) -> Result<Self, HostError> {
        let Carries::Hbr(mode) = config.end.carries else { return Err(HostError::Link) };
        let me = Bdf::new(config.spec.bus_first, 0, 0);
        let spec = RequesterSpec {
            mode,
            payload_max: config.end.payload_max,
            read_max: config.read_max,
            uio_max: config.uio_max,
            in_flight_max: config.in_flight_max,
            timeout: config.timeout,
        };
        let completer = CompleterSpec {
            payload_max: config.end.payload_max,
            uio_last_first: config.uio_last_first,
        };
        // The software places nothing at addresses of the host's own memory.
        let software = Software::new(config.spec, memory.windows(), config.hot_plug);
        let core = Core {
            mode,
            me,
            root: Bridge::new(&config.root)?,
            resets: ResetOrders::default(),
            wires: Wires::default(),
            memory,
            requester: Requester::new(spec, me),
            mem: HostMem::new(
                MemSpec { in_flight_max: config.in_flight_max, timeout: config.timeout },
                config.cache_lines,
            ),
            completer,
            home: Home::new(config.home),
            gim: config.gim,
            // LN does not exist in flit mode.
            lnc: config.lnc.filter(|_| mode == Mode::NonFlit).map(Lnc::new),
            uio: UioSide::default(),
            relay: Relay::default(),
            known: 0,
            software,
            events: Events::default(),
            counts: HostCounts::default(),
        };
        Ok(Self { end: TlpEnd::new(config.end), core, up: false })
    }

    /// Sets its PCIe segment, in flit mode: its configuration requests name it to functions below.
    #[must_use]
    pub fn in_segment(mut self, segment: u8) -> Self {
        let flit = self.core.mode == Mode::Flit;
        self.core.requester.set_segment(flit.then_some(segment));
        self
    }

    /// Contents of its memory. Devices may have newer lines in their caches; [`Self::load`] snoops them.
    #[must_use]
    pub const fn memory(&self) -> &HostMemory {
        &self.core.memory
    }

    /// A processor stores to memory that no device has in its cache; watchers of its lines are notified. False if there
    /// is no such memory, or a device has a line of it: then use [`Self::store_some`].
    pub fn store(&mut self, addr: Hpa, data: &[u8]) -> bool {
        matches!(self.store_some(addr, data), Ok(CpuStep::Done(done)) if done == data.len())
    }

    /// A processor loads from the host's own memory: all bytes up to the first line that a device's cache holds, or, if
    /// that is the first one, its bytes wait.
    ///
    /// # Errors
    /// See [`CpuError`].
    pub fn load(&mut self, addr: Hpa, into: &mut [u8]) -> Result<CpuStep, CpuError> {
        self.core.home.load(&self.core.memory, addr, into)
    }

    /// A processor stores to the host's own memory, like [`Self::load`]. Watchers of its lines are notified.
    ///
    /// # Errors
    /// See [`CpuError`].
    pub fn store_some(&mut self, addr: Hpa, data: &[u8]) -> Result<CpuStep, CpuError> {
        let Core { memory, home, lnc, .. } = &mut self.core;
        home.store(memory, lnc, addr, data)
    }

    /// Result of an access that waited, returned once: the loaded bytes. `None` while it waits.
    pub fn cpu_ended(&mut self, access: CpuAccess) -> Option<Result<Vec<u8>, CpuError>> {
        self.core.home.take_ended(access)
    }

    /// Counts of its home agent, which keeps caches of devices coherent.
    #[must_use]
    pub fn home_counts(&self) -> HomeCounts {
        self.core.home.agent.counts()
    }

    /// Its completer of Lightweight Notification, if it has one.
    pub const fn lnc(&mut self) -> Option<&mut Lnc> {
        self.core.lnc.as_mut()
    }

    /// Its completer of Lightweight Notification, for its state.
    #[must_use]
    pub const fn ln_state(&self) -> Option<&Lnc> {
        self.core.lnc.as_ref()
    }

    /// The LN requesters that the last enumeration found, each with its limit (an exponent); `None` for one that stays
    /// off because it does not support the system's line size.
    #[must_use]
    pub fn ln_requesters(&self) -> Vec<(Bdf, Option<u8>)> {
        match (self.tree(), self.core.software.ln()) {
            (Some(tree), Some(settings)) => admission::requesters(tree, settings).collect(),
            _ => Vec::new(),
        }
    }

    /// Submits a transaction; [`Event::Done`] reports its end.
    pub fn submit(&mut self, transaction: impl Into<Transaction>) -> OpId {
        self.core.requester.submit(transaction.into())
    }

    /// Reads memory of a device.
    pub fn read(&mut self, addr: Hpa, len: usize) -> OpId {
        self.submit(Operation::Read { addr, len })
    }

    /// Writes memory of a device; it is posted.
    pub fn write(&mut self, addr: Hpa, data: &[u8]) -> OpId {
        self.submit(Operation::Write { addr, data: data.to_vec() })
    }

    /// Loads or stores by CXL.mem; [`Event::Done`] reports its end.
    pub fn mem(&mut self, what: MemOperation) -> OpId {
        link::op_of(self.core.mem.submit(what))
    }

    /// Counts of loads and stores by CXL.mem.
    #[must_use]
    pub fn mem_counts(&self) -> MemCounts {
        self.core.mem.counts()
    }

    /// Counts of its cache for CXL.mem, if it has one; lines in use, and the cache's capacity.
    #[must_use]
    pub fn cache(&self) -> Option<(CacheCounts, (usize, usize))> {
        self.core.mem.cache()
    }

    /// Reads by UIO; `to` names the target port and bypasses the switch's decoders.
    pub fn uio_read(&mut self, addr: Hpa, len: usize, to: Option<Pid>) -> OpId {
        self.submit(Transaction { to, ..Operation::UioRead { addr, len }.into() })
    }

    /// Writes by UIO; see [`Self::uio_read`].
    pub fn uio_write(&mut self, addr: Hpa, data: &[u8], to: Option<Pid>) -> OpId {
        self.submit(Transaction { to, ..Operation::UioWrite { addr, data: data.to_vec() }.into() })
    }

    /// Port of a fabric memory engine, and the memory that it works on.
    pub const fn uio(&mut self, pending_max: usize) -> (Uio<'_>, CoherentMemory<'_>) {
        let Core { requester, uio: side, memory, home, lnc, .. } = &mut self.core;
        (Uio { requester, side, pending_max }, CoherentMemory { memory, home, lnc })
    }

    /// Enumerates everything below the root port.
    pub fn enumerate(&mut self) {
        let Core { lnc, software, .. } = &mut self.core;
        if let Some(lnc) = lnc {
            // Function numbers may change, and LN Messages go by number.
            admission::suspend(lnc, software);
        }
        software.enumerate();
    }

    /// Enumerates again behind the slot at `bdf`, once no other enumeration is under way.
    pub fn rescan(&mut self, bdf: Bdf) {
        self.core.software.rescan(bdf);
    }

    /// Resets the bus below the bridge at `bdf` (secondary bus reset), waits until the link is up again, and enumerates
    /// the bus again; [`Event::BusReset`] reports the end. False while another reset is under way, or if there is no
    /// such bridge.
    pub fn reset_bus(&mut self, bdf: Bdf) -> bool {
        self.core.software.reset_bus(bdf)
    }

    /// Sets or removes the `CacheID` (0 to 15) of the device at `bdf`; [`Event::CacheId`] reports the end. False while
    /// it does so for another device.
    pub fn set_cache_id(&mut self, bdf: Bdf, cache_id: Option<u8>) -> bool {
        self.core.software.set_cache_id(bdf, cache_id)
    }

    /// Reads the CDATs of functions that the last enumeration found, by their DOE mailboxes; [`Event::Cdats`] reports
    /// the end. False while it does so already.
    pub fn read_cdats(&mut self, functions: Vec<Bdf>) -> bool {
        self.core.software.read_cdats(functions)
    }

    /// Whether an enumeration is under way.
    #[must_use]
    pub const fn is_enumerating(&self) -> bool {
        self.core.software.is_enumerating()
    }

    /// Result of the last enumeration.
    #[must_use]
    pub const fn tree(&self) -> Option<&Tree> {
        self.core.software.tree()
    }

    /// The owner's [`Exports`] now follow the result of the last enumeration. Until this call, other hosts' requests
    /// for memory of devices are answered with retry status.
    pub const fn know_devices(&mut self) {
        self.core.known = self.core.software.renewals();
    }

    /// Pins of INTx that functions below assert.
    #[must_use]
    pub fn intx(&self) -> Vec<Pin> {
        self.core.wires.asserted()
    }

    #[must_use]
    pub const fn root(&self) -> &Bridge {
        &self.core.root
    }

    /// Broadcasts `PME_Turn_Off`; [`Event::TurnedOff`] reports that all have answered.
    pub fn turn_off(&mut self) {
        let kind = Kind::Message { routing: Routing::Broadcast, data: false };
        let body = Body::Message { code: code::PME_TURN_OFF, dw2: 0, dw3: 0 };
        let tlp = TlpRepr::new(self.core.mode, kind, self.core.me, 0, body);
        self.core.counts.tlps.unsent += u64::from(self.end.outbox().send(None, &tlp).is_err());
    }

    /// Queues a command for the mailbox of the register block at `block`; returns its number. [`Event::Response`] with
    /// this number reports the end.
    pub fn command(&mut self, block: Hpa, opcode: u16, input: &[u8]) -> u64 {
        self.core.software.command(block, opcode, input)
    }

    /// Takes the oldest event.
    pub fn next_event(&mut self) -> Option<Event> {
        self.core.events.pop()
    }

    #[must_use]
    pub const fn counts(&self) -> (HostCounts, RequesterCounts, EndCounts) {
        let counts = HostCounts { events_lost: self.core.events.lost(), ..self.core.counts };
        (counts, self.core.requester.counts(), self.end.counts())
    }

    /// Receives frames from the port, and sends frames that are due. UIO requests of other hosts reach no memory.
    ///
    /// # Errors
    /// The port's own.
    pub fn poll(
        &mut self,
        now: Instant,
        port: &mut dyn Port,
        bufs: &mut Bufs,
    ) -> Result<Progress, PortError> {
        self.poll_with(now, port, bufs, &())
    }

    /// Like [`Self::poll`]; `exports` decides which memory other hosts reach.
    ///
    /// # Errors
    /// The port's own.
    pub fn poll_with(
        &mut self,
        now: Instant,
        port: &mut dyn Port,
        bufs: &mut Bufs,
        exports: &dyn Exports,
    ) -> Result<Progress, PortError> {
        if port.link_up() != self.up {
            self.up = port.link_up();
            self.core.link(now, self.up);
        }
        // Before frames: a request that is taken in after this gets no lease if a snoop to its cache is overdue.
        self.core.home.agent.mark_overdue(now);
        let mut layer = Exporting { core: &mut self.core, exports };
        poll(&mut self.end, &mut layer, now, port, bufs)
    }

    pub fn release(&mut self, bufs: &mut Bufs) {
        self.end.release(bufs);
    }
}
