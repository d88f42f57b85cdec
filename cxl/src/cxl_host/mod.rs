//! A host: one root port on a link of TLPs, memory behind it, and the software that uses both.
//!
//! Shape: [`CxlHost::poll`] moves TLPs; asks go in by methods, [`Event`]s come out by [`CxlHost::next_event`].
//! Units: bytes, addresses of the bus.
//! Source: PCIe 6.0 chapters 2 and 6; PCIe 6.0 section 2.2.4; CXL 3.1 sections 7.7.3.3, 7.7.6.1;
//! docs/spec/cxl-fabric.md.
//!
//! The root port is device 0 on the host's first bus; what it has below hangs on the link. Posted requests and
//! completions are taken without condition (docs/spec/cxl-fabric.md "Routes").

mod ln;
pub mod mailbox;
pub mod memory;
mod scan;

use std::collections::VecDeque;

use weft_dataplane::pool::Bufs;
use weft_dataplane::port::{Port, PortError};
use weft_dataplane::time::{Instant, Span};
use weft_parsers::fabric::{Bdf, Hpa, Pid};
use weft_parsers::tlp::{Body, Kind, Mode, Routing, Status, Tlp, TlpRepr};

use crate::completer::{CompleterSpec, Served, Target};
use crate::ln::{Lnc, LncSpec};
use crate::pci::bridge::BridgeError;
use crate::pci::enumerate::{EnumerateError, Request};
use crate::pci::{
    Bridge, BridgeEffects, BridgeSpec, Enumerator, ErrorMessage, HostSpec, Link, Tree,
};
use crate::requester::uio::{Uio, UioSide};
use crate::requester::{
    Done, OpId, Operation, Requester, RequesterCounts, RequesterSpec, Transaction,
};
use crate::tlp_end::{Carries, EndConfig, EndCounts, Frame, Outbox, Progress, Received, TlpEnd};
use mailbox::{Exchange, MailboxFailure, Response, Step};
pub use memory::{Export, Exports, HostMemory};
use scan::{Scan, ScanStep};

/// Message codes that a host knows (PCIe 6.0 section 2.2.8).
pub mod code {
    /// `PME_Turn_Off`, broadcast.
    pub const PME_TURN_OFF: u8 = 0x19;
    /// `PME_TO_Ack`, gathered.
    pub const PME_TO_ACK: u8 = 0x1B;
}

/// Bytes of addresses that interrupts are written to.
const MSI_LEN: u64 = 1 << 20;
/// Events that wait for whoever owns the host; beyond, the oldest is dropped.
const EVENTS_MAX: usize = 65_536;
/// Bridges whose interrupts are kept while it enumerates: one for each bus.
const HEARD_MAX: usize = 256;

/// What a host is like.
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
    /// Its completions of UIO reads leave the last chunk first.
    pub uio_last_first: bool,
    /// It takes UIO requests of other hosts, and knows them by their prefix.
    pub gim: bool,
    /// Lightweight Notification; without effect in flit mode.
    pub lnc: Option<LncSpec>,
    /// Enumerates anew what is behind a slot that interrupts.
    pub hot_plug: bool,
}

/// Why there is no host.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
pub enum HostError {
    /// The link carries TLPs with PTH, or several kinds.
    #[error("a host's link carries TLPs of one mode without PTH")]
    Link,
    /// The root port cannot be made.
    #[error(transparent)]
    Bridge(#[from] BridgeError),
}

/// What happened.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Event {
    /// An ask came to its end.
    Done(Done),
    /// Enumeration is finished; [`CxlHost::tree`] has what it found.
    Enumerated(Result<(), EnumerateError>),
    /// An interrupt.
    Msi {
        /// Where it was written.
        addr: Hpa,
        /// What.
        data: u32,
        /// By whom.
        from: Bdf,
    },
    /// A function reports an error.
    Error {
        /// Who.
        from: Bdf,
        /// How bad.
        message: ErrorMessage,
    },
    /// All below are ready to lose power.
    TurnedOff,
    /// Another message.
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
    /// A mailbox answered a command, or did not.
    Response {
        /// The number that [`CxlHost::command`] gave it.
        number: u64,
        /// What it said.
        result: Result<Response, MailboxFailure>,
    },
    /// The link came up, or went down.
    Link(bool),
    /// Software resets what is below the root port, or ends that: its owner's to carry out.
    Reset(bool),
}

/// Counts of a host.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, serde::Serialize)]
pub struct HostCounts {
    /// TLPs of each kind that were taken: their sum is what the end counts as received.
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
    /// Interrupts.
    pub interrupts: u64,
    /// TLPs of its own that have no form on the link.
    pub unsent: u64,
    /// Events that nobody took.
    pub events_lost: u64,
}

struct Core {
    mode: Mode,
    me: Bdf,
    spec: HostSpec,
    root: Bridge,
    memory: HostMemory,
    requester: Requester,
    completer: CompleterSpec,
    gim: bool,
    lnc: Option<Lnc>,
    hot_plug: bool,
    uio: UioSide,
    scan: Option<Scan>,
    tree: Option<Tree>,
    /// Slots that interrupted, in order.
    slots: VecDeque<Bdf>,
    /// Bridges that interrupted while it enumerates.
    heard: Vec<Bdf>,
    /// Commands for mailboxes, in order; the first one is under way.
    commands: VecDeque<(u64, Exchange)>,
    command_next: u64,
    /// What that one waits for.
    command_op: Option<OpId>,
    command_until: Option<Instant>,
    events: VecDeque<Event>,
    counts: HostCounts,
}

/// A host. Whoever drives it has the port and a handle of the pool.
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
        let core = Core {
            mode,
            me,
            spec: config.spec,
            root: Bridge::new(&config.root)?,
            memory,
            requester: Requester::new(spec, me),
            completer,
            gim: config.gim,
            lnc: config.lnc.filter(|_| mode == Mode::NonFlit).map(Lnc::new),
            hot_plug: config.hot_plug,
            uio: UioSide::default(),
            scan: None,
            tree: None,
            slots: VecDeque::new(),
            heard: Vec::new(),
            commands: VecDeque::new(),
            command_next: 0,
            command_op: None,
            command_until: None,
            events: VecDeque::new(),
            counts: HostCounts::default(),
        };
        Ok(Self { end: TlpEnd::new(config.end), core, up: false })
    }

    /// Its memory, as a CPU reads it.
    #[must_use]
    pub const fn memory(&self) -> &HostMemory {
        &self.core.memory
    }

    /// A CPU writes memory: who watches a line of it is told. False when there is no such memory.
    pub fn store(&mut self, addr: Hpa, data: &[u8]) -> bool {
        let done = Target::write(&mut self.core.memory, addr.0, data);
        if let Some(lnc) = self.core.lnc.as_mut().filter(|_| done) {
            lnc.on_update(addr, data.len() as u64);
        }
        done
    }

    /// Its completer of Lightweight Notification, where it has one.
    pub const fn lnc(&mut self) -> Option<&mut Lnc> {
        self.core.lnc.as_mut()
    }

    /// Asks for something; an [`Event::Done`] tells of its end.
    pub fn submit(&mut self, ask: impl Into<Transaction>) -> OpId {
        self.core.requester.submit(ask.into())
    }

    /// Reads memory of a device.
    pub fn read(&mut self, addr: Hpa, len: usize) -> OpId {
        self.submit(Operation::Read { addr, len })
    }

    /// Writes memory of a device; it is posted.
    pub fn write(&mut self, addr: Hpa, data: &[u8]) -> OpId {
        self.submit(Operation::Write { addr, data: data.to_vec() })
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
    pub const fn uio(&mut self, pending_max: usize) -> (Uio<'_>, &mut HostMemory) {
        let Core { requester, uio: side, memory, .. } = &mut self.core;
        (Uio { requester, side, pending_max }, memory)
    }

    /// Enumerates all that is below.
    pub fn enumerate(&mut self) {
        self.core.slots.clear();
        self.core.scan = Some(Scan::new(Enumerator::all(self.core.spec)));
    }

    /// Enumerates anew what is behind the slot at `bdf`, once nothing else is enumerated.
    pub fn rescan(&mut self, bdf: Bdf) {
        self.core.slots.push_back(bdf);
    }

    /// Whether it enumerates.
    #[must_use]
    pub const fn is_enumerating(&self) -> bool {
        self.core.scan.is_some()
    }

    /// What the last enumeration found.
    #[must_use]
    pub const fn tree(&self) -> Option<&Tree> {
        self.core.tree.as_ref()
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
        let Self { core, end, .. } = self;
        core.send(end.outbox(), &TlpRepr::new(core.mode, kind, core.me, 0, body));
    }

    /// Gives the mailbox of the block of registers at `block` a command, once those before are answered;
    /// an [`Event::Response`] with the number tells of its end.
    pub fn command(&mut self, block: Hpa, opcode: u16, input: &[u8]) -> u64 {
        let number = self.core.command_next;
        self.core.command_next += 1;
        self.core.commands.push_back((number, Exchange::new(block, opcode, input)));
        number
    }

    /// What happened next.
    pub fn next_event(&mut self) -> Option<Event> {
        self.core.events.pop_front()
    }

    /// Counts so far.
    #[must_use]
    pub const fn counts(&self) -> (HostCounts, RequesterCounts, EndCounts) {
        (self.core.counts, self.core.requester.counts(), self.end.counts())
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
            self.core.link(self.up);
        }
        let Self { end, core, .. } = self;
        core.work(now, end.is_full(), end.outbox());
        let mut progress = end.poll(now, port, bufs, &mut |frame, out| {
            core.take(&frame, exports, out);
        })?;
        core.work(now, end.is_full(), end.outbox());
        progress.next = Instant::earlier(progress.next, core.next_due());
        progress.blocked |= end.waiting() > 0;
        Ok(progress)
    }

    /// Gives back all chunks that wait.
    pub fn release(&mut self, bufs: &mut Bufs) {
        self.end.release(bufs);
    }
}

impl Core {
    fn note(&mut self, event: Event) {
        if self.events.len() >= EVENTS_MAX {
            self.events.pop_front();
            self.counts.events_lost += 1;
        }
        self.events.push_back(event);
    }

    fn send(&mut self, out: &mut Outbox, tlp: &TlpRepr<'_>) {
        if out.send(None, tlp).is_err() {
            self.counts.unsent += 1;
        }
    }

    fn next_due(&self) -> Option<Instant> {
        let scan = self.scan.as_ref().and_then(Scan::until);
        let ln = self.lnc.as_ref().and_then(Lnc::next_due);
        let own = Instant::earlier(self.requester.next_due(), self.command_until);
        Instant::earlier(Instant::earlier(own, scan), ln)
    }

    fn link(&mut self, up: bool) {
        self.note(Event::Link(up));
        if up {
            let first = self.root.set_present(true);
            let second = self.root.set_link(Some(Link::default()));
            self.react(&first);
            self.react(&second);
            return;
        }
        self.requester.give_up();
        if let Some(lnc) = &mut self.lnc {
            lnc.port_down(ln::PORT);
        }
        let lost = self.root.lose_link();
        let gone = self.root.set_present(false);
        self.react(&lost);
        self.react(&gone);
    }

    /// The root port is in the host: its interrupts and errors cross no link.
    fn react(&mut self, effects: &BridgeEffects) {
        if let Some(message) = effects.message {
            self.error(self.me, message);
        }
        if let Some(on) = effects.reset {
            self.note(Event::Reset(on));
        }
        if let Some(msi) = self.root.msi().filter(|_| effects.interrupt) {
            self.interrupt(Hpa(msi.address), msi.data.into(), self.me);
        }
    }

    fn error(&mut self, from: Bdf, message: ErrorMessage) {
        self.root.receive_error(from, message);
        self.note(Event::Error { from, message });
    }

    fn interrupt(&mut self, addr: Hpa, data: u32, from: Bdf) {
        self.counts.interrupts += 1;
        self.note(Event::Msi { addr, data, from });
        if !self.hot_plug || self.spec.msi != Some(addr.0) {
            return;
        }
        if self.scan.is_some() {
            // Who has a slot is known when this enumeration is done; it may have looked there already.
            if !self.heard.contains(&from) && self.heard.len() < HEARD_MAX {
                self.heard.push(from);
            }
        } else if self.has_slot(from) {
            self.slots.push_back(from);
        }
    }

    /// Whether a bridge that the last enumeration found has a slot.
    fn has_slot(&self, bdf: Bdf) -> bool {
        let node = self.tree.as_ref().and_then(|tree| tree.get(bdf));
        node.and_then(|node| node.below.as_ref()).is_some_and(|below| below.slot.is_some())
    }

    /// What needs no TLP to come: answers, timeouts, software, messages, and what can be sent.
    fn work(&mut self, now: Instant, full: bool, out: &mut Outbox) {
        self.requester.expire(now);
        loop {
            self.finish();
            if !self.enumerate(now) {
                break;
            }
        }
        while self.exchange(now) {}
        if full {
            return;
        }
        let Self { requester, counts, .. } = self;
        requester.flush(now, &mut |tlp| {
            let sent = out.send(None, tlp).is_ok();
            counts.unsent += u64::from(!sent);
            sent
        });
        self.finish();
        while let Some((_, message)) = self.lnc.as_mut().and_then(|it| it.next_message(now)) {
            let (me, counts) = (self.me, &mut self.counts);
            ln::send(&message, me, &mut |tlp| {
                counts.unsent += u64::from(out.send(None, tlp).is_err());
            });
        }
    }

    /// Hands the ends of asks to who asked.
    fn finish(&mut self) {
        while let Some(done) = self.requester.next_done() {
            let retries = self.spec.retries;
            let own = |scan: &mut Scan| scan.take(done.op, &done.result, retries);
            if self.scan.as_mut().is_some_and(own) {
                continue;
            }
            if self.command_op == Some(done.op) {
                self.command_op = None;
                if let Some((_, exchange)) = self.commands.front_mut() {
                    exchange.answer(done.result);
                }
                continue;
            }
            if let Some(done) = self.uio.take(done) {
                self.note(Event::Done(done));
            }
        }
    }

    /// One step of the first command; whether there may be another at once.
    fn exchange(&mut self, now: Instant) -> bool {
        if self.command_op.is_some() || self.command_until.is_some_and(|until| now < until) {
            return false;
        }
        let Some((number, exchange)) = self.commands.front_mut() else { return false };
        if self.command_until.take().is_some() {
            exchange.answer(Ok(Vec::new()));
        }
        let what = match exchange.step() {
            Step::Read(addr, len) => Operation::Read { addr, len },
            Step::Write(addr, data) => Operation::Write { addr, data },
            Step::Wait { ns } => {
                self.command_until = Some(now + Span::from_ns(ns));
                return false;
            }
            Step::Done(result) => {
                let number = *number;
                self.commands.pop_front();
                self.note(Event::Response { number, result });
                return true;
            }
        };
        self.command_op = Some(self.requester.submit(what.into()));
        false
    }

    /// One step of the enumerator; whether there may be another at once.
    fn enumerate(&mut self, now: Instant) -> bool {
        if self.scan.is_none()
            && let Some(bdf) = self.slots.pop_front()
            && let Some(tree) = self.tree.clone()
        {
            self.scan = Some(Scan::new(Enumerator::service(self.spec, tree, bdf)));
        }
        let Some(scan) = &mut self.scan else { return false };
        match scan.step(now, self.spec.bus_first, &self.root) {
            ScanStep::Nothing => false,
            ScanStep::Send(request, ask) => {
                let op = self.requester.submit(ask);
                scan.sent(op, request);
                false
            }
            ScanStep::Own(Request::Read { reg, .. }) => {
                scan.own(Some(self.root.read(reg)));
                true
            }
            ScanStep::Own(Request::Write { reg, value, enables, .. }) => {
                scan.own(None);
                let effects = self.root.write(reg, value, enables);
                self.react(&effects);
                true
            }
            ScanStep::Own(Request::Wait { .. }) => false,
            ScanStep::Finished => {
                match scan.enumerator().result().cloned() {
                    Some(Ok(tree)) => {
                        self.tree = Some(tree);
                        self.note(Event::Enumerated(Ok(())));
                    }
                    Some(Err(why)) => self.note(Event::Enumerated(Err(why))),
                    None => {}
                }
                self.scan = None;
                for from in core::mem::take(&mut self.heard) {
                    if self.has_slot(from) {
                        self.slots.push_back(from);
                    }
                }
                true
            }
        }
    }

    fn take(&mut self, frame: &Frame<'_>, exports: &dyn Exports, out: &mut Outbox) {
        let Received::Tlp(None, tlp) = frame.content else {
            self.counts.other += 1;
            return;
        };
        match tlp.kind() {
            _ if tlp.is_completion() => {
                self.counts.completions += 1;
                self.requester.take(&tlp);
            }
            Kind::Nop => self.counts.other += 1,
            Kind::Message { routing, .. } => self.message(&tlp, routing),
            _ => {
                self.counts.requests += 1;
                self.request(&tlp, exports, out);
            }
        }
    }

    fn request(&mut self, tlp: &Tlp<'_>, exports: &dyn Exports, out: &mut Outbox) {
        let Hpa(addr) = tlp.addr().unwrap_or_default();
        let is_interrupt = |base: u64| addr.wrapping_sub(base) < MSI_LEN;
        if tlp.kind() == Kind::MemWrite
            && self.spec.msi.is_some_and(is_interrupt)
            && let Some(data) = tlp.payload().first_chunk()
            && tlp.length_dw() == 1
        {
            self.counts.served += 1;
            self.interrupt(Hpa(addr), u32::from_le_bytes(*data), tlp.requester());
            return;
        }
        let Self { lnc, completer, me, memory, counts, gim, .. } = self;
        let send = &mut |answer: &TlpRepr<'_>| {
            counts.unsent += u64::from(out.send(None, answer).is_err());
        };
        let served = match (tlp.kind(), tlp.vend_prefix(), lnc) {
            (kind, None, Some(lnc)) if !kind.is_io() => {
                ln::serve(lnc, *completer, *me, memory, tlp, send)
            }
            (_, None, _) if !tlp.kind().is_io() => completer.serve(tlp, *me, memory, send),
            (kind, Some(prefix), _) if kind.is_uio() => {
                let len = tlp.access_len();
                let local = exports.local(prefix.pid(), Hpa(addr), len).filter(|_| *gim);
                if let Some(local) = local {
                    completer.serve_at(tlp, local, *me, memory, send)
                } else {
                    completer.refuse(tlp, Status::UnsupportedRequest, *me, send);
                    Served::Unsupported
                }
            }
            _ => {
                completer.refuse(tlp, Status::UnsupportedRequest, *me, send);
                Served::Unsupported
            }
        };
        match served {
            Served::Done => self.counts.served += 1,
            Served::Unsupported => self.counts.unsupported += 1,
            Served::Aborted => self.counts.aborted += 1,
            Served::Poisoned => self.counts.poisoned += 1,
        }
    }

    fn message(&mut self, tlp: &Tlp<'_>, routing: Routing) {
        self.counts.messages += 1;
        let (from, code) = (tlp.requester(), tlp.message_code().unwrap_or_default());
        let error = [ErrorMessage::Correctable, ErrorMessage::NonFatal, ErrorMessage::Fatal]
            .into_iter()
            .find(|message| message.code() == code);
        match (routing, error) {
            (Routing::ToRoot, Some(message)) => self.error(from, message),
            (Routing::Gather, _) if code == code::PME_TO_ACK => self.note(Event::TurnedOff),
            _ => {
                let dws = tlp.message_dws().unwrap_or_default();
                let payload = tlp.payload().to_vec();
                self.note(Event::Message { from, code, routing, dws, payload });
            }
        }
    }
}
