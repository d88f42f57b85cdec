//! A host: one root port on a link of TLPs, memory behind it, and the software that uses both.
//!
//! [`CxlHost::poll`] moves TLPs; transactions go in by methods, [`Event`]s come out by [`CxlHost::next_event`].
//!
//! Units: bytes, addresses of the bus.
//! Source: PCIe 6.0 chapters 2 and 6; PCIe 6.0 section 2.2.4; CXL 3.1 sections 7.7.3.3, 7.7.6.1;
//! docs/spec/cxl-fabric.md.
//!
//! The root port is device 0 on the host's first bus; what it has below hangs on the link. Posted requests and
//! completions are taken without condition (docs/spec/cxl-fabric.md "Routes").

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

/// What a host is built from.
#[derive(Clone, Debug)]
pub struct HostConfig {
    /// Its end of the link, which carries TLPs of one mode without PTH.
    pub end: EndConfig,
    /// What its software gives away.
    pub spec: HostSpec,
    /// Its root port.
    pub root: BridgeSpec,
    /// Most bytes of a read that it sends.
    pub read_max: usize,
    /// What no UIO request that it sends crosses a multiple of.
    pub uio_max: usize,
    /// Its requests under way.
    pub in_flight_max: usize,
    /// How long an answer may take.
    pub timeout: Span,
    /// Lines of its write-back cache for CXL.mem; 0 for none.
    pub cache_lines: usize,
    /// Its completions of UIO reads leave the last chunk first.
    pub uio_last_first: bool,
    /// Its home agent, which keeps caches of devices coherent with its memory.
    pub home: HomeSpec,
    /// It takes UIO requests of other hosts, and knows them by their prefix.
    pub gim: bool,
    /// Lightweight Notification; without effect in flit mode.
    pub lnc: Option<LncSpec>,
    /// Enumerates anew what is behind a slot that interrupts.
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

    /// In this PCIe segment, in flit mode: its configuration requests tell those below.
    #[must_use]
    pub fn in_segment(mut self, segment: u8) -> Self {
        let flit = self.core.mode == Mode::Flit;
        self.core.requester.set_segment(flit.then_some(segment));
        self
    }

    /// What its memory holds. Devices may have newer lines in their caches: [`Self::load`] asks them.
    #[must_use]
    pub const fn memory(&self) -> &HostMemory {
        &self.core.memory
    }

    /// A CPU writes memory that no device has in its cache: who watches a line of it is told. False when there is no such
    /// memory, or a device has it: [`Self::store_some`].
    pub fn store(&mut self, addr: Hpa, data: &[u8]) -> bool {
        matches!(self.store_some(addr, data), Ok(CpuStep::Done(done)) if done == data.len())
    }

    /// A processor loads from the host's own memory, as many bytes from the front as no cache of a device is in the way of;
    /// or else those of the first line wait.
    ///
    /// # Errors
    /// See [`CpuError`].
    pub fn load(&mut self, addr: Hpa, into: &mut [u8]) -> Result<CpuStep, CpuError> {
        self.core.home.load(&self.core.memory, addr, into)
    }

    /// A processor stores to the host's own memory; as [`Self::load`]. Who watches a line of it is told.
    ///
    /// # Errors
    /// See [`CpuError`].
    pub fn store_some(&mut self, addr: Hpa, data: &[u8]) -> Result<CpuStep, CpuError> {
        let Core { memory, home, lnc, .. } = &mut self.core;
        home.store(memory, lnc, addr, data)
    }

    /// The end of an access that waited, once: what was loaded. `None` while it waits.
    pub fn cpu_ended(&mut self, access: CpuAccess) -> Option<Result<Vec<u8>, CpuError>> {
        self.core.home.take_ended(access)
    }

    /// Counts of its home agent, which keeps caches of devices coherent.
    #[must_use]
    pub fn home_counts(&self) -> HomeCounts {
        self.core.home.agent.counts()
    }

    /// Its completer of Lightweight Notification, where it has one.
    pub const fn lnc(&mut self) -> Option<&mut Lnc> {
        self.core.lnc.as_mut()
    }

    /// The same, for what it knows.
    #[must_use]
    pub const fn ln_state(&self) -> Option<&Lnc> {
        self.core.lnc.as_ref()
    }

    /// The LN requesters that the last enumeration found, with the limit that it gave to each, an exponent; `None` where
    /// one stays off, as it does not have the lines of the system.
    #[must_use]
    pub fn ln_requesters(&self) -> Vec<(Bdf, Option<u8>)> {
        match (self.tree(), self.core.software.ln()) {
            (Some(tree), Some(settings)) => admission::requesters(tree, settings).collect(),
            _ => Vec::new(),
        }
    }

    /// Submits a transaction; an [`Event::Done`] tells of its end.
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

    /// Loads or stores by CXL.mem; an [`Event::Done`] tells of its end.
    pub fn mem(&mut self, what: MemOperation) -> OpId {
        link::op_of(self.core.mem.submit(what))
    }

    /// Counts of loads and stores by CXL.mem.
    #[must_use]
    pub fn mem_counts(&self) -> MemCounts {
        self.core.mem.counts()
    }

    /// Counts of its cache for CXL.mem, if it has one, and the cache's lines: how many there are, of how many.
    #[must_use]
    pub fn cache(&self) -> Option<(CacheCounts, (usize, usize))> {
        self.core.mem.cache()
    }

    /// Reads by UIO; `to` names the port that it goes to, past the switch's decoders.
    pub fn uio_read(&mut self, addr: Hpa, len: usize, to: Option<Pid>) -> OpId {
        self.submit(Transaction { to, ..Operation::UioRead { addr, len }.into() })
    }

    /// Writes by UIO; see [`Self::uio_read`].
    pub fn uio_write(&mut self, addr: Hpa, data: &[u8], to: Option<Pid>) -> OpId {
        self.submit(Transaction { to, ..Operation::UioWrite { addr, data: data.to_vec() }.into() })
    }

    /// The port of a fabric memory engine, and the memory that it works on.
    pub const fn uio(&mut self, pending_max: usize) -> (Uio<'_>, CoherentMemory<'_>) {
        let Core { requester, uio: side, memory, home, lnc, .. } = &mut self.core;
        (Uio { requester, side, pending_max }, CoherentMemory { memory, home, lnc })
    }

    /// Enumerates all that is below.
    pub fn enumerate(&mut self) {
        let Core { lnc, software, .. } = &mut self.core;
        if let Some(lnc) = lnc {
            admission::suspend(lnc, software);
        }
        software.enumerate();
    }

    /// Enumerates anew what is behind the slot at `bdf`, once nothing else is enumerated.
    pub fn rescan(&mut self, bdf: Bdf) {
        self.core.software.rescan(bdf);
    }

    /// Resets the bus below the bridge at `bdf` (secondary bus reset), waits until the link is up again, and enumerates anew
    /// what is there: [`Event::BusReset`]. False while another reset is under way, and where there is no such bridge.
    pub fn reset_bus(&mut self, bdf: Bdf) -> bool {
        self.core.software.reset_bus(bdf)
    }

    /// Gives the device at `bdf` a `CacheID` of 0 to 15, in place of the one that it had, or none any more:
    /// [`Event::CacheId`]. False while it does so for another.
    pub fn set_cache_id(&mut self, bdf: Bdf, cache_id: Option<u8>) -> bool {
        self.core.software.set_cache_id(bdf, cache_id)
    }

    /// Reads the CDATs of functions that the last enumeration has found, by their DOE mailboxes: [`Event::Cdats`]. False while
    /// it does so already.
    pub fn read_cdats(&mut self, functions: Vec<Bdf>) -> bool {
        self.core.software.read_cdats(functions)
    }

    /// Whether it enumerates.
    #[must_use]
    pub const fn is_enumerating(&self) -> bool {
        self.core.software.is_enumerating()
    }

    /// What the last enumeration found.
    #[must_use]
    pub const fn tree(&self) -> Option<&Tree> {
        self.core.software.tree()
    }

    /// What the last enumeration found is known to who decides which memory of devices others reach ([`Exports`]): until
    /// then their requests for it are to be sent again.
    pub const fn know_devices(&mut self) {
        self.core.known = self.core.software.renewals();
    }

    /// Pins of INTx that are asserted by what is below.
    #[must_use]
    pub fn intx(&self) -> Vec<Pin> {
        self.core.wires.asserted()
    }

    /// Its root port.
    #[must_use]
    pub const fn root(&self) -> &Bridge {
        &self.core.root
    }

    /// Sends `PME_Turn_Off` to all; [`Event::TurnedOff`] tells that all agreed.
    pub fn turn_off(&mut self) {
        let kind = Kind::Message { routing: Routing::Broadcast, data: false };
        let body = Body::Message { code: code::PME_TURN_OFF, dw2: 0, dw3: 0 };
        let tlp = TlpRepr::new(self.core.mode, kind, self.core.me, 0, body);
        self.core.counts.tlps.unsent += u64::from(self.end.outbox().send(None, &tlp).is_err());
    }

    /// Gives the mailbox of the block of registers at `block` a command, once those before are answered;
    /// an [`Event::Response`] with the number tells of its end.
    pub fn command(&mut self, block: Hpa, opcode: u16, input: &[u8]) -> u64 {
        self.core.software.command(block, opcode, input)
    }

    /// What happened next.
    pub fn next_event(&mut self) -> Option<Event> {
        self.core.events.pop()
    }

    /// Counts so far.
    #[must_use]
    pub const fn counts(&self) -> (HostCounts, RequesterCounts, EndCounts) {
        let counts = HostCounts { events_lost: self.core.events.lost(), ..self.core.counts };
        (counts, self.core.requester.counts(), self.end.counts())
    }

    /// Takes in what the port has, and sends what is to be sent. Nobody else's UIO requests reach memory.
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

    /// As [`Self::poll`]; `exports` says which memory is there for other hosts.
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
        self.core.home.agent.mark_overdue(now);
        let mut layer = Exporting { core: &mut self.core, exports };
        poll(&mut self.end, &mut layer, now, port, bufs)
    }

    /// Gives back all chunks that wait.
    pub fn release(&mut self, bufs: &mut Bufs) {
        self.end.release(bufs);
    }
}
