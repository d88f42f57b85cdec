//! A device: one or more functions on a link of TLPs, with registers, memory, DMA and UIO.
//!
//! [`CxlDevice::poll`] moves TLPs; its owner submits transactions of its functions and fetches [`Event`]s. A loss of
//! the link resets the device, as a reset by the upper end of the link does; memory keeps its bytes.
//!
//! Source: PCIe 6.0 chapters 2, 6 and 7; PCIe 5.0 section 6.21; CXL 3.1 sections 7.7.3.3, 7.7.9;
//! docs/spec/cxl-fabric.md.

mod cache;
mod events;
mod function;
mod hdm;
mod link;
mod mem;

use std::collections::VecDeque;

use weft_dataplane::pool::Bufs;
use weft_dataplane::port::{Port, PortError};
use weft_dataplane::time::{Instant, Span};
use weft_parsers::fabric::Bdf;

use crate::cache::agent::AgentCounts;
use crate::cdat::Range;
use crate::completer::{CompleterSpec, Target};
use crate::gfd::memory::Memory;
use crate::ln::{Lnr, LnrRequest, Refused};
use crate::mem::MemOperation;
use crate::pci::function::{FunctionError, NoIntx};
use crate::pci::intx::Wires;
use crate::pci::{ByteEnables, Component, Function, Link, Reg};
use crate::requester::uio::Uio;
use crate::requester::{OpId, Operation, RequesterCounts, RequesterSpec, Transaction};
use crate::tlp_end::{Carries, EndConfig, EndCounts, Progress, TlpEnd};
use crate::transaction_layer::poll;
use cache::FunctionCache;
pub use events::{DeviceCounts, Event};
use function::{Asked, State};
pub use function::{FunctionConfig, MailboxPlace};
pub use hdm::{HdmConfig, HdmError, HdmMemory};
use link::Core;

/// Most functions of a device.
pub const FUNCTIONS_MAX: usize = 8;

/// Configuration of a device.
#[derive(Debug)]
pub struct DeviceConfig {
    /// Its end of the link, which carries TLPs of one mode without PTH.
    pub end: EndConfig,
    /// Its functions, by number.
    pub functions: Vec<FunctionConfig>,
    /// Boundary in bytes that no UIO request of its own crosses.
    pub uio_max: usize,
    /// Most requests under way, for each function.
    pub in_flight_max: usize,
    /// Time limit for an answer.
    pub timeout: Span,
    /// Whether completions of UIO reads leave the last chunk first.
    pub uio_last_first: bool,
    /// Whether it serves UIO requests of other domains, which a prefix marks.
    pub gim: bool,
    /// Number of configuration requests that are first answered with retry status.
    pub busy: u32,
}

/// Why a device cannot be built.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
pub enum DeviceError {
    /// The link carries TLPs with PTH, or several kinds.
    #[error("a device's link carries TLPs of one mode without PTH")]
    Link,
    /// No function, or too many.
    #[error("a device has 1 to 8 functions")]
    Functions,
    /// A function cannot be made.
    #[error(transparent)]
    Function(#[from] FunctionError),
    /// A function cannot have memory that a host manages.
    #[error(transparent)]
    Hdm(#[from] HdmError),
}

/// A PCIe or CXL device with its functions. Its driver owns the port and a handle of the pool.
pub struct CxlDevice {
    end: TlpEnd,
    core: Core,
    up: bool,
}

/// Why a device refuses a call of its owner.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
pub enum Refusal {
    /// No function has the number.
    #[error("no function has the number {0}")]
    NoFunction(u8),
    /// The function is not bus master, so it may not send requests.
    #[error("function {0} may not send requests")]
    NotMaster(u8),
    /// It may not interrupt by INTx.
    #[error("function {0} {1}")]
    Intx(u8, NoIntx),
    /// The function has no LN requester that is on.
    #[error("function {0} has no LN requester that is on")]
    NoLn(u8),
    /// The function has no cache for its host's memory that software has switched on.
    #[error(
        "function {0} has no CXL.cache that is on: its host gives it a CacheID and sets Cache_Enable"
    )]
    NoCache(u8),
    /// The LN requester refuses.
    #[error(transparent)]
    Ln(#[from] Refused),
}

impl AsMut<Self> for CxlDevice {
    fn as_mut(&mut self) -> &mut Self {
        self
    }
}

impl CxlDevice {
    /// A device as it is after power-on.
    ///
    /// # Errors
    /// See [`DeviceError`].
    pub fn new(config: DeviceConfig) -> Result<Self, DeviceError> {
        let Carries::Hbr(mode) = config.end.carries else { return Err(DeviceError::Link) };
        // Function numbers have 3 bits.
        if !(1..=FUNCTIONS_MAX).contains(&config.functions.len()) {
            return Err(DeviceError::Functions);
        }
        let payload_max = config.end.payload_max;
        let (uio_max, in_flight_max, timeout) =
            (config.uio_max, config.in_flight_max, config.timeout);
        let spec = RequesterSpec {
            mode,
            payload_max,
            read_max: payload_max,
            uio_max,
            in_flight_max,
            timeout,
        };
        let functions = config.functions.into_iter().map(|function| State::new(function, spec));
        let core = Core {
            mode,
            functions: functions.collect::<Result<_, _>>()?,
            completer: CompleterSpec { payload_max, uio_last_first: config.uio_last_first },
            gim: config.gim,
            logical: false,
            busy: config.busy,
            wires: Wires::default(),
            events: VecDeque::new(),
            counts: DeviceCounts::default(),
        };
        Ok(Self { end: TlpEnd::new(config.end).lower(), core, up: false })
    }

    /// Makes it one logical device of several behind one link: a [`crate::mld::Mld`] polls it, and its own end of a
    /// link stays unused.
    #[must_use]
    pub const fn logical(mut self) -> Self {
        self.core.logical = true;
        self
    }

    /// The device without its end of the link.
    pub(crate) const fn core(&mut self) -> &mut Core {
        &mut self.core
    }

    /// The link of its [`crate::mld::Mld`] came up or went down.
    pub(crate) fn set_link(&mut self, is_up: bool) {
        self.up = is_up;
        self.core.reset();
        for state in &mut self.core.functions {
            state.function.set_link(is_up.then(Link::default));
        }
    }

    /// Reads a register of a function, after writing it if `write` is set. Access of its manager, not its host.
    ///
    /// # Errors
    /// There is no such function.
    pub fn manage_config(
        &mut self,
        function: u8,
        reg: Reg,
        write: Option<(u32, ByteEnables)>,
    ) -> Result<u32, Refusal> {
        let state = self.state_mut(function)?;
        if let Some((value, enables)) = write
            // The manager may set Initiate FLR as well, and the owner learns of a reset by an event.
            && state.configure(reg, value, enables).reset
        {
            self.core.events.push_back(Event::Reset(Some(function)));
        }
        Ok(self.state(function)?.function.read(reg))
    }

    fn state(&self, function: u8) -> Result<&State, Refusal> {
        let found = self.core.functions.get(usize::from(function));
        found.ok_or(Refusal::NoFunction(function))
    }

    fn state_mut(&mut self, function: u8) -> Result<&mut State, Refusal> {
        let found = self.core.functions.get_mut(usize::from(function));
        found.ok_or(Refusal::NoFunction(function))
    }

    /// A function's ID, from the last configuration write to it.
    ///
    /// # Errors
    /// There is no such function.
    pub fn id(&self, function: u8) -> Result<Bdf, Refusal> {
        Ok(self.state(function)?.me())
    }

    /// A function's registers.
    ///
    /// # Errors
    /// There is no such function.
    pub fn function(&self, function: u8) -> Result<&Function, Refusal> {
        Ok(&self.state(function)?.function)
    }

    /// Submits a transaction; [`Event::Done`] reports its end.
    ///
    /// # Errors
    /// There is no such function, or it may not send requests.
    pub fn submit(
        &mut self,
        function: u8,
        transaction: impl Into<Transaction>,
    ) -> Result<OpId, Refusal> {
        let state = self.state_mut(function)?;
        if !state.function.is_master() {
            return Err(Refusal::NotMaster(function));
        }
        let transaction = transaction.into();
        if let (Operation::Write { addr, data }, Some(lnr)) =
            (&transaction.operation, &mut state.lnr)
        {
            lnr.on_own_write(*addr, data.len() as u64); // its own write makes its copy of the line stale
        }
        Ok(state.requester.submit(transaction))
    }

    /// Loads or stores host memory through the function's cache (CXL.cache); [`Event::Done`] reports its end.
    ///
    /// # Errors
    /// There is no such function, or no cache that is on.
    pub fn cached(&mut self, function: u8, what: MemOperation) -> Result<OpId, Refusal> {
        let cache = self.state_mut(function)?.cache.as_mut();
        cache.and_then(|cache| cache.submit(what)).ok_or(Refusal::NoCache(function))
    }

    /// Writes back and gives up all lines of the function's cache; [`Self::is_flushing`] until it is done.
    ///
    /// # Errors
    /// There is no such function, or no cache that is on.
    pub fn flush_cache(&mut self, function: u8) -> Result<(), Refusal> {
        let cache = self.state_mut(function)?.cache.as_mut();
        let is_on = cache.is_some_and(FunctionCache::flush_lines);
        is_on.then_some(()).ok_or(Refusal::NoCache(function))
    }

    /// Whether a flush of the function's cache is under way.
    #[must_use]
    pub fn is_flushing(&self, function: u8) -> bool {
        let cache = self.state(function).ok().and_then(|state| state.cache.as_ref());
        cache.is_some_and(FunctionCache::is_flushing)
    }

    /// Counts of the device's first cache; lines in use, and its capacity.
    #[must_use]
    pub fn cache_counts(&self) -> Option<(AgentCounts, (usize, usize))> {
        self.core.functions.iter().find_map(|state| state.cache.as_ref()).map(FunctionCache::counts)
    }

    /// The port of a fabric memory engine.
    ///
    /// # Errors
    /// There is no such function.
    pub fn uio(&mut self, function: u8, pending_max: usize) -> Result<Uio<'_>, Refusal> {
        let State { requester, uio: side, .. } = self.state_mut(function)?;
        Ok(Uio { requester, side, pending_max })
    }

    /// Memory of a function by the addresses that its host has given it: behind BARs, HDM, and memory for other
    /// domains.
    ///
    /// # Errors
    /// There is no such function.
    pub fn own_memory(&mut self, function: u8) -> Result<impl Target, Refusal> {
        Ok(self.state_mut(function)?.reach(Asked::Own))
    }

    /// Memory behind a BAR; `None` where there is none.
    #[must_use]
    pub fn bar(&self, function: u8, bar: u8) -> Option<&Memory> {
        self.state(function).ok()?.bar(bar)
    }

    /// Memory behind a BAR, for the device itself to write.
    pub fn bar_mut(&mut self, function: u8, bar: u8) -> Option<&mut Memory> {
        self.state_mut(function).ok()?.bar_mut(bar)
    }

    /// Memory that the host manages (HDM).
    pub fn hdm(&mut self, function: u8) -> Option<&mut Memory> {
        self.state_mut(function).ok()?.hdm()
    }

    /// Sets the ranges of HDM that exist, which the function's CDAT lists.
    pub fn set_hdm_ranges(&mut self, function: u8, ranges: &[Range]) {
        if let Ok(state) = self.state_mut(function) {
            state.set_ranges(ranges);
        }
    }

    /// Memory for other domains (GIM).
    pub fn gim(&mut self, function: u8) -> Option<&mut Memory> {
        self.state_mut(function).ok()?.gim()
    }

    /// A function's component registers; it has them if it has HDM.
    #[must_use]
    pub fn component(&self, function: u8) -> Option<&Component> {
        self.state(function).ok()?.component()
    }

    /// A function's component registers, for the device's manager.
    pub fn component_mut(&mut self, function: u8) -> Option<&mut Component> {
        self.state_mut(function).ok()?.component_mut()
    }

    /// Sends a function's interrupt; false while it may not.
    ///
    /// # Errors
    /// There is no such function.
    pub fn interrupt(&mut self, function: u8) -> Result<bool, Refusal> {
        Ok(self.state_mut(function)?.send_interrupt())
    }

    /// Asserts a function's INTx, or deasserts it.
    ///
    /// # Errors
    /// There is no such function, or it may not assert that. It may always deassert it.
    pub fn set_intx(&mut self, function: u8, on: bool) -> Result<(), Refusal> {
        let state = self.state_mut(function)?;
        if on {
            state.function.intx().map_err(|why| Refusal::Intx(function, why))?;
        }
        state.set_intx(on);
        Ok(())
    }

    /// Ends the command that a function's mailbox is running.
    ///
    /// # Errors
    /// There is no such function.
    pub fn complete(
        &mut self,
        function: u8,
        code: u16,
        vendor: u16,
        output: &[u8],
    ) -> Result<(), Refusal> {
        self.state_mut(function)?.complete(code, vendor, output);
        Ok(())
    }

    /// A function's LN requester, for its state.
    ///
    /// # Errors
    /// There is none, or it is off.
    pub fn lnr(&self, function: u8) -> Result<&Lnr, Refusal> {
        self.state(function)?.lnr.as_ref().ok_or(Refusal::NoLn(function))
    }

    /// Lets `ask` make requests at a function's LN requester, and sends them.
    ///
    /// # Errors
    /// There is none, it is off, or it refuses.
    pub fn ask_ln<T>(
        &mut self,
        function: u8,
        ask: impl FnOnce(&mut Lnr, &mut Vec<LnrRequest>) -> Result<T, Refused>,
    ) -> Result<T, Refusal> {
        let state = self.state_mut(function)?;
        if !state.function.is_master() {
            return Err(Refusal::NotMaster(function));
        }
        let mut requests = Vec::new();
        let lnr = state.lnr.as_mut().ok_or(Refusal::NoLn(function))?;
        let asked = ask(lnr, &mut requests)?;
        state.send_ln(requests);
        Ok(asked)
    }

    /// Resets the device, like a hot reset of its link.
    pub fn hot_reset(&mut self) {
        self.core.reset();
    }

    /// Takes the oldest event.
    pub fn next_event(&mut self) -> Option<Event> {
        self.core.events.pop_front()
    }

    /// Counts of the device, of its first function's requests, and of its link.
    #[must_use]
    pub fn counts(&self) -> (DeviceCounts, RequesterCounts, EndCounts) {
        let first = self.core.functions.first();
        let requester = first.map(|state| state.requester.counts()).unwrap_or_default();
        (self.core.counts, requester, self.end.counts())
    }

    /// Receives frames from the port, and sends frames that are due.
    ///
    /// # Errors
    /// The port's own.
    pub fn poll(
        &mut self,
        now: Instant,
        port: &mut dyn Port,
        bufs: &mut Bufs,
    ) -> Result<Progress, PortError> {
        // Before frames: a device that comes up again has lost its configuration (docs/spec/cxl-fabric.md "Resets").
        if port.link_up() != self.up {
            self.set_link(port.link_up());
        }
        poll(&mut self.end, &mut self.core, now, port, bufs)
    }

    pub fn release(&mut self, bufs: &mut Bufs) {
        self.end.release(bufs);
    }
}
