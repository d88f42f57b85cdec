//! One function of a device: its registers, the memory behind its BARs, its memory for hosts, and its requests.
//!
//! [`Reach`] is a [`Target`] by address; effects of configuration writes reach all parts of the function.
//!
//! Source: PCIe 6.0 sections 6.6.2 (FLR), 7.5.1.2; PCIe 5.0 section 6.21; CXL 3.1 section 7.7.9 (HDM).

use std::collections::{BTreeMap, VecDeque};

use weft_dataplane::time::Instant;
use weft_parsers::cxl_mem::LINE;
use weft_parsers::fabric::{Bdf, Hpa};
use weft_parsers::tlp::{Mode, TlpRepr};

use super::DeviceError;
use super::cache::FunctionCache;
use super::hdm::{Hdm, HdmConfig};
use crate::cache::agent::CacheSpec;
use crate::cdat::Range;
use crate::completer::Target;
use crate::gfd::memory::Memory;
use crate::ln::registers::Supported;
use crate::ln::{CplData, LineSize, Lnr, LnrRegisters, LnrRequest, Outcome, Ticket};
use crate::pci::component::{self, Component};
use crate::pci::cxl::CxlSpec;
use crate::pci::function::{BAR_COUNT, FunctionEffects};
use crate::pci::intx::Pin;
use crate::pci::mailbox::Command;
use crate::pci::{ByteEnables, CxlKind, Function, FunctionSpec, Mailbox, Reg};
use crate::requester::uio::UioSide;
use crate::requester::{Done, Failure, Operation, Requester, RequesterSpec, Transaction};

/// A mailbox and the BAR that it is in.
#[derive(Clone, Debug)]
pub struct MailboxPlace {
    pub bar: u8,
    /// Offset of the mailbox's register block in the BAR.
    pub offset: u64,
    pub mailbox: Mailbox,
}

/// Configuration of a function.
#[derive(Debug, Default)]
pub struct FunctionConfig {
    pub spec: FunctionSpec,
    /// A mailbox in one of its BARs.
    pub mailbox: Option<MailboxPlace>,
    /// Host-managed memory: CXL.mem and UIO requests reach it by committed decoders.
    pub hdm: Option<HdmConfig>,
    /// A cache for its host's memory (CXL.cache).
    pub cache: Option<CacheSpec>,
    /// Memory for other domains (GIM): first address, and length in bytes. UIO requests that name their sender reach
    /// it.
    pub gim: Option<(Hpa, u64)>,
}

/// State of a function.
pub(crate) struct State {
    pub function: Function,
    spec: FunctionSpec,
    bars: BTreeMap<u8, Memory>,
    pub mailbox: Option<MailboxPlace>,
    hdm: Option<Hdm>,
    gim: Option<(Hpa, Memory)>,
    pub cache: Option<FunctionCache>,
    pub requester: Requester,
    pub uio: UioSide,
    pub lnr: Option<Lnr>,
    tickets: BTreeMap<crate::requester::OpId, Ticket>,
    /// Results of LN reads and probes.
    pub outcomes: VecDeque<(Ticket, Outcome, Result<Vec<u8>, Failure>)>,
    pub commands: VecDeque<Command>,
    /// The mailbox has requested an interrupt.
    interrupt: bool,
    /// The owner asserts INTx.
    intx: bool,
    me: Bdf,
    mode: Mode,
    payload_max: usize,
}

impl State {
    pub(super) fn new(
        mut config: FunctionConfig,
        requester: RequesterSpec,
    ) -> Result<Self, DeviceError> {
        let specs = (0u8..).zip(config.spec.bars);
        let bars = specs.filter_map(|(bar, spec)| Some((bar, Memory::anonymous(spec?.size))));
        let bars = bars.take(BAR_COUNT).collect();
        // After the BARs' memory was made: the BAR that this adds has registers behind it, and no memory.
        let hdm = config.hdm.map(|hdm| Hdm::new(hdm, &mut config.spec)).transpose()?;
        if config.cache.is_some() {
            let memory = config.spec.cxl.map_or((0, 0), |cxl| (cxl.memory, cxl.base));
            // Cache and memory: Type 2; a cache alone: Type 1 (CXL 3.1, 2.1 and 2.2).
            let kind = if hdm.is_some() { CxlKind::Type2 } else { CxlKind::Type1 };
            config.spec.cxl = Some(CxlSpec { kind, memory: memory.0, base: memory.1 });
        }
        let mut function = Function::new(&config.spec)?;
        if let Some(hdm) = &hdm {
            function.set_cdat(hdm.cdat());
        }
        Ok(Self {
            function,
            bars,
            spec: config.spec,
            mailbox: config.mailbox,
            hdm,
            gim: config.gim.map(|(base, len)| (base, Memory::anonymous(len))),
            cache: config.cache.map(FunctionCache::new),
            requester: Requester::new(requester, Bdf::default()),
            uio: UioSide::default(),
            lnr: None,
            tickets: BTreeMap::new(),
            outcomes: VecDeque::new(),
            commands: VecDeque::new(),
            interrupt: false,
            intx: false,
            me: Bdf::default(),
            mode: requester.mode,
            payload_max: requester.payload_max,
        })
    }

    pub(super) const fn me(&self) -> Bdf {
        self.me
    }

    pub(super) const fn mode(&self) -> Mode {
        self.mode
    }

    //= PCIe 6.0 section 2.2.6.2: the id is that of the latest configuration write of type 0
    pub(super) const fn capture(&mut self, me: Bdf) {
        self.me = me;
        self.requester.set_id(me);
    }

    pub(super) fn configure(
        &mut self,
        reg: Reg,
        value: u32,
        enables: ByteEnables,
    ) -> FunctionEffects {
        let effects = self.function.write(reg, value, enables);
        // FLR: keeps the ID and HDM decoders (CXL 3.1, 9.5), unlike a conventional reset.
        if effects.reset {
            self.forget();
        } else if effects.lnr {
            self.control_lnr();
        }
        if let Some(cache) = &mut self.cache {
            cache.set_on(self.function.cache_enabled());
        }
        effects
    }

    /// Conventional reset: also of the ID, which the next configuration write sets.
    pub(super) fn reset(&mut self) {
        self.function.reset();
        if let Some(hdm) = &mut self.hdm {
            // Decoders are lost, and with them the host's way to the memory; its bytes stay.
            hdm.registers_mut().reset();
        }
        self.forget();
        // The ID is that of the last configuration write, of which there is none since the reset.
        self.capture(Bdf::default());
    }

    /// Ends everything that a reset ends; memory keeps its bytes.
    fn forget(&mut self) {
        self.requester.give_up();
        if let Some(cache) = &mut self.cache {
            cache.clear();
        }
        self.intx = false;
        self.lnr = None;
        self.tickets.clear();
        self.commands.clear();
        if let Some(place) = &mut self.mailbox {
            place.mailbox.reset();
        }
    }

    fn control_lnr(&mut self) {
        let (Some(spec), Some(control)) = (self.spec.lnr, self.function.lnr_control()) else {
            return;
        };
        let cls = if control.line == 128 { 2 } else { 0 };
        let [limit, ..] = control.limit.trailing_zeros().to_le_bytes();
        let value = u16::from(control.enabled) | cls | u16::from(limit) << 8;
        if control.enabled {
            let supported = match (spec.cls64, spec.cls128) {
                (true, true) => Supported::Both,
                (_, true) => Supported::Only(LineSize::B128),
                _ => Supported::Only(LineSize::B64),
            };
            let registers = LnrRegisters::new(supported, spec.registrations);
            // LN does not exist in flit mode; the requester then ignores the bit.
            let flit = self.mode == Mode::Flit;
            self.lnr = Some(Lnr::new(self.me, registers, flit));
        }
        if let Some(lnr) = &mut self.lnr {
            lnr.write_control(value);
        }
    }

    /// Sends requests of the LN requester.
    pub(super) fn send_ln(&mut self, requests: Vec<LnrRequest>) {
        let line = self.lnr.as_ref().map_or(0, |lnr| lnr.registers().line().bytes());
        for request in requests {
            let (what, ticket) = match request {
                LnrRequest::Read { ticket, line: at } => {
                    (Operation::Read { addr: at.addr(), len: line }, Some(ticket))
                }
                LnrRequest::Probe { ticket, line: at } => {
                    (Operation::Read { addr: at.addr(), len: 0 }, Some(ticket))
                }
                LnrRequest::Write { addr, data } => (Operation::Write { addr, data }, None),
                LnrRequest::Deregister { line: at } => {
                    (Operation::Write { addr: at.addr(), data: Vec::new() }, None)
                }
            };
            let op = self.requester.submit(Transaction { ln: true, ..what.into() });
            if let Some(ticket) = ticket {
                self.tickets.insert(op, ticket);
            }
        }
    }

    /// Hands over the ends of transactions; `each` gets those of the owner.
    pub(super) fn finish(&mut self, each: &mut dyn FnMut(Done)) {
        while let Some(done) = self.cache.as_mut().and_then(FunctionCache::next_done) {
            each(done);
        }
        while let Some(done) = self.requester.next_done() {
            // LN reads first, then the fabric memory engine's transactions; the rest is the owner's.
            let Some(ticket) = self.tickets.remove(&done.op) else {
                if let Some(done) = self.uio.take(done) {
                    each(done);
                }
                continue;
            };
            let data = match &done.result {
                Ok(bytes) => CplData::Good(bytes),
                Err(Failure::Poisoned) => CplData::Poisoned,
                Err(Failure::Timeout) => CplData::Lost,
                Err(_) => CplData::Failed,
            };
            if let Some(lnr) = &mut self.lnr {
                let outcome = lnr.on_completion(ticket, done.ln, data);
                self.outcomes.push_back((ticket, outcome, done.result));
            }
        }
    }

    /// Sends requests, while the function is bus master.
    pub(super) fn flush(&mut self, now: Instant, send: &mut dyn FnMut(&TlpRepr<'_>) -> bool) {
        // Set while a request was served, when nothing could be sent.
        if core::mem::take(&mut self.interrupt) {
            self.send_interrupt();
        }
        if !self.function.is_master() {
            return;
        }
        // The host may have changed Max_Payload_Size or Max_Read_Request_Size since the last flush.
        let (payload, read) = self.function.sizes_max();
        self.requester.set_sizes(payload.min(self.payload_max), read);
        self.requester.flush(now, send);
    }

    /// Sends its interrupt message; false while it may not.
    pub(super) fn send_interrupt(&mut self) -> bool {
        let Some(msi) = self.function.msi() else { return false };
        let data = u32::from(msi.data).to_le_bytes().to_vec();
        self.requester.submit(Operation::Write { addr: Hpa(msi.address), data }.into());
        true
    }

    /// Sets the level of its INTx.
    pub(super) fn set_intx(&mut self, on: bool) {
        self.intx = on;
        self.function.set_intx_status(on);
    }

    /// The pin that it asserts, if INTx is asserted and allowed.
    pub(super) fn intx(&self) -> Option<Pin> {
        if self.intx { self.function.intx().ok() } else { None }
    }

    /// Ends the command that its mailbox is running.
    pub(super) fn complete(&mut self, code: u16, vendor: u16, output: &[u8]) {
        if let Some(place) = &mut self.mailbox {
            self.interrupt |= place.mailbox.complete(code, vendor, output);
        }
    }

    pub(super) fn bar(&self, bar: u8) -> Option<&Memory> {
        self.bars.get(&bar)
    }

    pub(super) fn bar_mut(&mut self, bar: u8) -> Option<&mut Memory> {
        self.bars.get_mut(&bar)
    }

    /// Host-managed memory, wherever it is stored.
    pub(super) fn hdm(&mut self) -> Option<&mut Memory> {
        let Self { hdm, bars, .. } = self;
        match hdm.as_mut()?.memory_mut() {
            Ok(memory) => Some(memory),
            Err(bar) => bars.get_mut(&bar),
        }
    }

    /// Memory for other domains (GIM).
    pub(super) const fn gim(&mut self) -> Option<&mut Memory> {
        match &mut self.gim {
            Some((_, memory)) => Some(memory),
            None => None,
        }
    }

    /// Sets the ranges of host-managed memory that exist, which the CDAT lists.
    pub(super) fn set_ranges(&mut self, ranges: &[Range]) {
        if let Some(hdm) = &mut self.hdm {
            hdm.set_ranges(ranges);
            self.function.set_cdat(hdm.cdat());
        }
    }

    pub(super) fn component(&self) -> Option<&Component> {
        self.hdm.as_ref().map(Hdm::registers)
    }

    pub(super) fn component_mut(&mut self) -> Option<&mut Component> {
        self.hdm.as_mut().map(Hdm::registers_mut)
    }

    /// Host-managed memory, and the offset of `len` bytes from `hpa` on in it; `None` unless `Mem_Enable` is set and a
    /// committed decoder maps them.
    fn managed(&self, hpa: Hpa, len: u64, uio: bool) -> Option<(&Memory, u64)> {
        let hdm = self.hdm.as_ref().filter(|_| self.function.mem_enabled())?;
        let at = hdm.dpa(hpa, len, uio)?;
        let memory = match hdm.memory() {
            Ok(memory) => memory,
            Err(bar) => self.bars.get(&bar)?,
        };
        memory.holds(at, len).then_some((memory, at))
    }

    /// Offset of the line at `hpa` in host-managed memory, and that memory.
    pub(super) fn line(&mut self, hpa: Hpa) -> Option<(u64, &mut Memory)> {
        let (_, at) = self.managed(hpa, LINE as u64, false)?;
        Some((at, self.hdm()?))
    }

    /// The function as the target of requests of one kind.
    pub(super) fn reach(&mut self, asked: Asked) -> Reach<'_> {
        Reach { state: self, asked }
    }
}

/// Kind of a request.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Asked {
    /// A memory request (not UIO).
    Memory,
    /// An I/O request.
    Io,
    /// A UIO request of its own domain.
    Uio,
    /// A UIO request that names its sender.
    Gim,
    /// An access of the device itself, by the addresses that its host has given its memory; registers are excluded.
    Own,
}

/// A function as the target of requests of one kind.
pub(super) struct Reach<'a> {
    state: &'a mut State,
    asked: Asked,
}

enum Place<'a> {
    Bar(u8, u64),
    /// Component registers, from this offset on.
    Registers(u64),
    Hdm(&'a Memory, u64),
    Gim(&'a Memory, u64),
}

impl Reach<'_> {
    fn find(&self, addr: u64, len: u64) -> Option<Place<'_>> {
        let Self { state, asked } = self;
        // Before BARs: memory requests that are no UIO do not reach HDM by its HPA. The device's own accesses need no
        // UIO = 1 in the decoder.
        if matches!(asked, Asked::Uio | Asked::Gim | Asked::Own)
            && let Some((memory, at)) = state.managed(Hpa(addr), len, *asked != Asked::Own)
        {
            return Some(Place::Hdm(memory, at));
        }
        let reaches_gim = matches!(asked, Asked::Gim | Asked::Own);
        if let Some((base, memory)) = state.gim.as_ref().filter(|_| reaches_gim)
            && let Some(offset) = addr.checked_sub(base.0)
            && memory.holds(offset, len)
        {
            return Some(Place::Gim(memory, offset));
        }
        let (bar, offset) = if *asked == Asked::Io {
            state.function.io_bar_of(u32::try_from(addr).ok()?)?
        } else {
            state.function.bar_of(Hpa(addr))?
        };
        // Any overlap: a single byte in the block has side effects.
        let in_mailbox = |it: &MailboxPlace| {
            let end = it.offset + it.mailbox.len() as u64;
            it.bar == bar && offset < end && offset + len > it.offset
        };
        let is_own = *asked == Asked::Own;
        if is_own && state.mailbox.as_ref().is_some_and(in_mailbox) {
            return None;
        }
        if state.hdm.as_ref().is_some_and(|hdm| hdm.bar() == bar) {
            if is_own {
                return None;
            }
            return (len <= component::LEN - offset).then_some(Place::Registers(offset));
        }
        state.bars.get(&bar)?.holds(offset, len).then_some(Place::Bar(bar, offset))
    }

    /// Offset in the mailbox's block of an offset in a BAR.
    fn in_mailbox(place: &MailboxPlace, bar: u8, offset: u64) -> Option<u64> {
        let at = offset.checked_sub(place.offset).filter(|_| bar == place.bar)?;
        (at < place.mailbox.len() as u64).then_some(at)
    }
}

impl Target for Reach<'_> {
    fn holds(&self, addr: u64, len: u64) -> bool {
        self.find(addr, len).is_some()
    }

    fn read(&self, addr: u64, into: &mut [u8]) -> bool {
        match self.find(addr, into.len() as u64) {
            Some(Place::Hdm(memory, offset) | Place::Gim(memory, offset)) => {
                memory.read(offset, into).is_ok()
            }
            Some(Place::Registers(offset)) => {
                let registers = self.state.component();
                registers.map(|registers| registers.read(offset, into)).is_some()
            }
            Some(Place::Bar(bar, offset)) => {
                let mailbox = self.state.mailbox.as_ref();
                if let Some((place, at)) =
                    mailbox.and_then(|it| Some((it, Self::in_mailbox(it, bar, offset)?)))
                {
                    place.mailbox.read(at, into);
                    return true;
                }
                self.state.bars.get(&bar).is_some_and(|memory| memory.read(offset, into).is_ok())
            }
            None => false,
        }
    }

    fn write(&mut self, addr: u64, data: &[u8]) -> bool {
        match self.find(addr, data.len() as u64) {
            Some(Place::Hdm(_, offset)) => {
                let memory = self.state.hdm();
                memory.is_some_and(|memory| memory.write(offset, data).is_ok())
            }
            Some(Place::Gim(_, offset)) => {
                let memory = self.state.gim();
                memory.is_some_and(|memory| memory.write(offset, data).is_ok())
            }
            Some(Place::Registers(offset)) => {
                let registers = self.state.component_mut();
                registers.map(|registers| registers.write(offset, data)).is_some()
            }
            Some(Place::Bar(bar, offset)) => {
                if let Some(place) = &mut self.state.mailbox
                    && let Some(at) = Self::in_mailbox(place, bar, offset)
                {
                    let effects = place.mailbox.write(at, data);
                    self.state.interrupt |= effects.interrupt;
                    self.state.commands.extend(effects.command);
                    return true;
                }
                let memory = self.state.bars.get_mut(&bar);
                memory.is_some_and(|memory| memory.write(offset, data).is_ok())
            }
            None => false,
        }
    }
}
