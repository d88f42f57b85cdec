//! A device: one function or several on a link of TLPs, with registers, memory, DMA and UIO.
//!
//! Shape: [`CxlDevice::poll`] moves TLPs; asks of its functions go in by methods, [`Event`]s come out.
//! Units: bytes.
//! Source: PCIe 6.0 chapters 2, 6 and 7; PCIe 5.0 section 6.21; CXL 3.1 sections 7.7.3.3, 7.7.9;
//! docs/spec/cxl-fabric.md.
//!
//! A link that goes down resets it, as a hot reset does; memory keeps its bytes.

mod function;

use std::collections::VecDeque;

use weft_dataplane::pool::Bufs;
use weft_dataplane::port::{Port, PortError};
use weft_dataplane::time::{Instant, Span};
use weft_parsers::fabric::{Bdf, Hpa};
use weft_parsers::tlp::view::{CODE_VDM_TYPE0, CODE_VDM_TYPE1};
use weft_parsers::tlp::{Body, Completion, Kind, Mode, Routing, Status, Tlp, TlpRepr, ln as wire};

use crate::completer::{CompleterSpec, Served};
use crate::cxl_host::code;
use crate::gfd::memory::Memory;
use crate::ln::{LnMessage, Lnr, LnrRequest, Outcome, Refused, Route, Ticket};
use crate::pci::function::FunctionError;
use crate::pci::mailbox::Command;
use crate::pci::{ByteEnables, Function, Link, Reg, Uncorrectable};
use crate::requester::uio::Uio;
use crate::requester::{Done, OpId, Operation, RequesterCounts, RequesterSpec, Transaction};
use crate::tlp_end::{Carries, EndConfig, EndCounts, Frame, Outbox, Progress, Received, TlpEnd};
use function::State;
pub use function::{FunctionConfig, MailboxPlace};

/// Functions that a device may have.
pub const FUNCTIONS_MAX: usize = 8;

/// What a device is like.
#[derive(Debug)]
pub struct DeviceConfig {
    /// Its end of the link, which carries TLPs of one mode without PTH.
    pub end: EndConfig,
    /// Its functions, by number.
    pub functions: Vec<FunctionConfig>,
    /// What no UIO request that it sends crosses a multiple of.
    pub uio_max: usize,
    /// Requests under way, of each function.
    pub in_flight_max: usize,
    /// How long an answer may take.
    pub timeout: Span,
    /// Completions of UIO reads leave the last chunk first.
    pub uio_last_first: bool,
    /// It takes UIO requests of other domains, and knows them by their prefix.
    pub gim: bool,
    /// Configuration requests that are answered with retry status first.
    pub busy: u32,
}

/// Why there is no device.
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
}

/// What happened; `function` is its number.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Event {
    /// An ask came to its end.
    Done {
        /// Whose.
        function: u8,
        /// How.
        done: Done,
    },
    /// An LN read or probe came to its end.
    Ln {
        /// Whose.
        function: u8,
        /// Which.
        ticket: Ticket,
        /// How.
        outcome: Outcome,
    },
    /// A command for the mailbox, which [`CxlDevice::complete`] ends.
    Command {
        /// Whose.
        function: u8,
        /// What.
        command: Command,
    },
    /// It was reset: one function by FLR, or all by the link.
    Reset(Option<u8>),
    /// A message that it has no use for.
    Message {
        /// By whom.
        from: Bdf,
        /// Code.
        code: u8,
        /// How it was routed.
        routing: Routing,
        /// Its two double words behind the code.
        dws: (u32, u32),
        /// Payload.
        payload: Vec<u8>,
    },
}

/// Counts of a device.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, serde::Serialize)]
pub struct DeviceCounts {
    /// Requests; their sum with the next three is what the end counts as received.
    pub requests: u64,
    /// Completions.
    pub completions: u64,
    /// Messages.
    pub messages: u64,
    /// NOPs, link control and TLPs with a PTH.
    pub other: u64,
    /// Requests that were served.
    pub served: u64,
    /// Requests refused as unsupported.
    pub unsupported: u64,
    /// Requests refused as completer aborts.
    pub aborted: u64,
    /// Writes with data that are marked as bad.
    pub poisoned: u64,
    /// Configuration requests answered with retry status.
    pub retried: u64,
    /// Completions for nothing.
    pub unexpected: u64,
    /// LN messages that took copies.
    pub notified: u64,
    /// TLPs of its own that have no form on the link.
    pub unsent: u64,
}

struct Core {
    mode: Mode,
    functions: Vec<State>,
    completer: CompleterSpec,
    gim: bool,
    busy: u32,
    events: VecDeque<Event>,
    counts: DeviceCounts,
}

/// A device. Whoever drives it has the port and a handle of the pool.
pub struct CxlDevice {
    end: TlpEnd,
    core: Core,
    up: bool,
}

/// There is no such function, or it is not one for this.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
pub enum Refusal {
    /// No function has the number.
    #[error("no function has the number {0}")]
    NoFunction(u8),
    /// Software has not given it the right to send requests.
    #[error("function {0} may not send requests")]
    NotMaster(u8),
    /// It has no LN requester, or it is off.
    #[error("function {0} has no LN requester that is on")]
    NoLn(u8),
    /// The LN requester refuses.
    #[error(transparent)]
    Ln(#[from] Refused),
}

impl CxlDevice {
    /// A device as it is after power-on.
    ///
    /// # Errors
    /// See [`DeviceError`].
    pub fn new(config: DeviceConfig) -> Result<Self, DeviceError> {
        let Carries::Hbr(mode) = config.end.carries else { return Err(DeviceError::Link) };
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
            busy: config.busy,
            events: VecDeque::new(),
            counts: DeviceCounts::default(),
        };
        Ok(Self { end: TlpEnd::new(config.end), core, up: false })
    }

    fn state(&self, function: u8) -> Result<&State, Refusal> {
        let found = self.core.functions.get(usize::from(function));
        found.ok_or(Refusal::NoFunction(function))
    }

    fn state_mut(&mut self, function: u8) -> Result<&mut State, Refusal> {
        let found = self.core.functions.get_mut(usize::from(function));
        found.ok_or(Refusal::NoFunction(function))
    }

    /// A function's id, as it was last written to.
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

    /// Asks for something; an [`Event::Done`] tells of its end.
    ///
    /// # Errors
    /// There is no such function, or it may not send requests.
    pub fn submit(&mut self, function: u8, ask: impl Into<Transaction>) -> Result<OpId, Refusal> {
        let state = self.state_mut(function)?;
        if !state.function.is_master() {
            return Err(Refusal::NotMaster(function));
        }
        let ask = ask.into();
        if let (Operation::Write { addr, data }, Some(lnr)) = (&ask.operation, &mut state.lnr) {
            lnr.on_own_write(*addr, data.len() as u64); // what it has a copy of is no longer so
        }
        Ok(state.requester.submit(ask))
    }

    /// The port of a fabric memory engine.
    ///
    /// # Errors
    /// There is no such function.
    pub fn uio(&mut self, function: u8, pending_max: usize) -> Result<Uio<'_>, Refusal> {
        let State { requester, uio: side, .. } = self.state_mut(function)?;
        Ok(Uio { requester, side, pending_max })
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

    /// Memory that the host manages.
    pub fn hdm(&mut self, function: u8) -> Option<&mut Memory> {
        self.state_mut(function).ok()?.hdm()
    }

    /// Sends a function's interrupt; false while it may not.
    ///
    /// # Errors
    /// There is no such function.
    pub fn interrupt(&mut self, function: u8) -> Result<bool, Refusal> {
        Ok(self.state_mut(function)?.send_interrupt())
    }

    /// Ends the command that a function's mailbox runs.
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

    /// A function's LN requester, for what it knows.
    ///
    /// # Errors
    /// There is none, or it is off.
    pub fn lnr(&self, function: u8) -> Result<&Lnr, Refusal> {
        self.state(function)?.lnr.as_ref().ok_or(Refusal::NoLn(function))
    }

    /// Has a function's LN requester ask for something, and sends it.
    ///
    /// # Errors
    /// There is none, it is off, or it refuses.
    pub fn ask_ln<T>(
        &mut self,
        function: u8,
        ask: impl FnOnce(&mut Lnr, &mut Vec<LnrRequest>) -> Result<T, Refused>,
    ) -> Result<T, Refusal> {
        let state = self.state_mut(function)?;
        let mut requests = Vec::new();
        let lnr = state.lnr.as_mut().ok_or(Refusal::NoLn(function))?;
        let asked = ask(lnr, &mut requests)?;
        state.send_ln(requests);
        Ok(asked)
    }

    /// Hot reset.
    pub fn hot_reset(&mut self) {
        self.core.reset();
    }

    /// What happened next.
    pub fn next_event(&mut self) -> Option<Event> {
        self.core.events.pop_front()
    }

    /// Counts so far: its own, its first function's requests, its link's.
    #[must_use]
    pub fn counts(&self) -> (DeviceCounts, RequesterCounts, EndCounts) {
        let first = self.core.functions.first();
        let requester = first.map(|state| state.requester.counts()).unwrap_or_default();
        (self.core.counts, requester, self.end.counts())
    }

    /// Takes in what the port has, and sends what is to be sent.
    ///
    /// # Errors
    /// The port's own.
    pub fn poll(
        &mut self,
        now: Instant,
        port: &mut dyn Port,
        bufs: &mut Bufs,
    ) -> Result<Progress, PortError> {
        if port.link_up() != self.up {
            self.up = port.link_up();
            self.core.reset();
            for state in &mut self.core.functions {
                state.function.set_link(self.up.then(Link::default));
            }
        }
        let Self { end, core, .. } = self;
        core.work(now, end.is_full(), end.outbox());
        let mut progress = end.poll(now, port, bufs, &mut |frame, out| core.take(&frame, out))?;
        core.work(now, end.is_full(), end.outbox());
        let due = core.functions.iter().filter_map(|state| state.requester.next_due()).min();
        progress.next = Instant::earlier(progress.next, due);
        progress.blocked |= end.waiting() > 0;
        Ok(progress)
    }

    /// Gives back all chunks that wait.
    pub fn release(&mut self, bufs: &mut Bufs) {
        self.end.release(bufs);
    }
}

impl Core {
    fn reset(&mut self) {
        for state in &mut self.functions {
            state.reset();
        }
        self.events.push_back(Event::Reset(None));
    }

    fn send(&mut self, out: &mut Outbox, tlp: &TlpRepr<'_>) {
        if out.send(None, tlp).is_err() {
            self.counts.unsent += 1;
        }
    }

    fn work(&mut self, now: Instant, full: bool, out: &mut Outbox) {
        let Self { functions, counts, events, .. } = self;
        for (function, state) in (0..).zip(functions) {
            if state.requester.expire(now) > 0 {
                report(state, Uncorrectable::CompletionTimeout, false, out, counts);
            }
            if !full {
                state.flush(now, &mut |tlp| {
                    let sent = out.send(None, tlp).is_ok();
                    counts.unsent += u64::from(!sent);
                    sent
                });
            }
            state.finish(&mut |done| events.push_back(Event::Done { function, done }));
            events.extend(state.outcomes.drain(..).map(|(ticket, outcome)| Event::Ln {
                function,
                ticket,
                outcome,
            }));
            events.extend(
                state.commands.drain(..).map(|command| Event::Command { function, command }),
            );
        }
    }

    fn take(&mut self, frame: &Frame<'_>, out: &mut Outbox) {
        let Received::Tlp(None, tlp) = frame.content else {
            self.counts.other += 1;
            return;
        };
        match tlp.kind() {
            _ if tlp.is_completion() => self.completion(&tlp, out),
            Kind::Nop => self.counts.other += 1,
            Kind::Message { routing, .. } => self.message(&tlp, routing, out),
            kind if kind.is_config() => {
                self.counts.requests += 1;
                self.config(&tlp, out);
            }
            _ => {
                self.counts.requests += 1;
                self.request(&tlp, out);
            }
        }
    }

    fn completion(&mut self, tlp: &Tlp<'_>, out: &mut Outbox) {
        self.counts.completions += 1;
        let number = usize::from(tlp.requester().function());
        let taken = self.functions.get_mut(number).is_some_and(|state| state.requester.take(tlp));
        if !taken {
            self.counts.unexpected += 1;
            if let Some(state) = self.functions.first_mut() {
                let error = Uncorrectable::UnexpectedCompletion;
                report(state, error, false, out, &mut self.counts);
            }
        }
    }

    fn config(&mut self, tlp: &Tlp<'_>, out: &mut Outbox) {
        let Body::Config { dest, register, first_be } = tlp.repr().body else { return };
        let number = usize::from(dest.function());
        let type0 =
            matches!(tlp.kind(), Kind::CfgRead { type1: false } | Kind::CfgWrite { type1: false });
        if type0 && self.busy > 0 {
            self.busy -= 1;
            self.counts.retried += 1;
            if let Some(answer) = Completion::of(tlp, Status::RequestRetry, dest) {
                self.send(out, &answer);
            }
            return;
        }
        let Some(state) = self.functions.get_mut(number).filter(|_| type0) else {
            self.counts.unsupported += 1;
            if let Some(answer) = Completion::of(tlp, Status::UnsupportedRequest, dest) {
                self.send(out, &answer);
            }
            return;
        };
        let reg = Reg::at(register);
        if let Some(&value) = tlp.payload().first_chunk() {
            state.capture(dest);
            let effects = state.configure(
                reg,
                u32::from_le_bytes(value),
                ByteEnables::from_low_bits(first_be),
            );
            if effects.reset {
                self.events.push_back(Event::Reset(Some(dest.function())));
            }
            for (other, state) in (0u8..).zip(&mut self.functions) {
                state.capture(Bdf::new(dest.bus(), dest.device(), other));
            }
            self.counts.served += 1;
            if let Some(answer) = Completion::of(tlp, Status::Success, dest) {
                self.send(out, &answer);
            }
            return;
        }
        let value = state.function.read(reg).to_le_bytes();
        self.counts.served += 1;
        if let Some(answer) = Completion::with_data(tlp, dest, 0, &value) {
            self.send(out, &answer);
        }
    }

    fn request(&mut self, tlp: &Tlp<'_>, out: &mut Outbox) {
        let Hpa(addr) = tlp.addr().unwrap_or_default();
        let len = tlp.access_len();
        let (io, uio) = (tlp.kind().is_io(), tlp.is_uio());
        let Self { functions, completer, counts, gim, .. } = self;
        let stranger = tlp.vend_prefix().is_some() && !(*gim && uio);
        let holder = functions.iter_mut().position(|state| {
            use crate::completer::Target;
            state.reach(io, uio).holds(addr, len)
        });
        let Some(state) = functions.get_mut(holder.unwrap_or(0)) else { return };
        let me = state.me();
        let send = &mut |answer: &TlpRepr<'_>| {
            counts.unsent += u64::from(out.send(None, answer).is_err());
        };
        let served = if stranger {
            completer.refuse(tlp, Status::UnsupportedRequest, me, send);
            Served::Unsupported
        } else {
            completer.serve(tlp, me, &mut state.reach(io, uio), send)
        };
        let error = match served {
            Served::Done => {
                counts.served += 1;
                return;
            }
            Served::Unsupported => {
                counts.unsupported += 1;
                Uncorrectable::UnsupportedRequest
            }
            Served::Aborted => {
                counts.aborted += 1;
                Uncorrectable::CompleterAbort
            }
            Served::Poisoned => {
                counts.poisoned += 1;
                Uncorrectable::Poisoned
            }
        };
        report(state, error, !tlp.wants_completion(), out, counts);
    }

    fn message(&mut self, tlp: &Tlp<'_>, routing: Routing, out: &mut Outbox) {
        self.counts.messages += 1;
        let (from, code) = (tlp.requester(), tlp.message_code().unwrap_or_default());
        if let Ok(Some(message)) = wire::LnMessage::parse(tlp) {
            let to = message.dest.map_or(Route::Broadcast, Route::Directed);
            let message = LnMessage { to, nr: message.reason as u8, addr: message.line };
            for lnr in self.functions.iter_mut().filter_map(|state| state.lnr.as_mut()) {
                if matches!(lnr.on_message(&message), crate::ln::lnr::Effect::Dropped(1..)) {
                    self.counts.notified += 1;
                }
            }
            return;
        }
        match (routing, code) {
            (Routing::Broadcast, code::PME_TURN_OFF) => {
                let me = self.functions.first().map(State::me).unwrap_or_default();
                let kind = Kind::Message { routing: Routing::Gather, data: false };
                let body = Body::Message { code: code::PME_TO_ACK, dw2: 0, dw3: 0 };
                self.send(out, &TlpRepr::new(self.mode, kind, me, 0, body));
            }
            //= PCIe 6.0 section 2.2.8.6: type 1 is dropped, type 0 is unsupported
            (_, CODE_VDM_TYPE1) => {}
            (_, CODE_VDM_TYPE0) => {
                self.counts.unsupported += 1;
                if let Some(state) = self.functions.first_mut() {
                    let error = Uncorrectable::UnsupportedRequest;
                    report(state, error, true, out, &mut self.counts);
                }
            }
            _ => {
                let dws = tlp.message_dws().unwrap_or_default();
                let payload = tlp.payload().to_vec();
                self.events.push_back(Event::Message { from, code, routing, dws, payload });
            }
        }
    }
}

/// Notes an error, and tells the root if software wants it told.
fn report(
    state: &mut State,
    error: Uncorrectable,
    posted: bool,
    out: &mut Outbox,
    counts: &mut DeviceCounts,
) {
    let Some(message) = state.function.report(error, posted, [0; 4]) else { return };
    let kind = Kind::Message { routing: Routing::ToRoot, data: false };
    let body = Body::Message { code: message.code(), dw2: 0, dw3: 0 };
    let mode = state.mode();
    if out.send(None, &TlpRepr::new(mode, kind, state.me(), 0, body)).is_err() {
        counts.unsent += 1;
    }
}
