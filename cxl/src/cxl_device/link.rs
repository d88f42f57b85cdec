//! A device behind its link: requests that its functions send, and how they handle received TLPs and messages.
//!
//! [`Core`] is a [`TransactionLayer`] over the functions, with [`Event`]s for the device's owner.
//!
//! Source: PCIe 6.0 sections 2.2.6.2, 2.2.8, 2.3.1, 6.2; PCIe 5.0 section 6.21; CXL 3.1 section 7.7.3.3.

use std::collections::VecDeque;

use weft_dataplane::time::Instant;
use weft_parsers::cxl_cache::CacheMessage;
use weft_parsers::cxl_mem::{LINE, MemMessage, MemOp};
use weft_parsers::fabric::{Bdf, Hpa};
use weft_parsers::tlp::view::{CODE_VDM_TYPE0, CODE_VDM_TYPE1};
use weft_parsers::tlp::{Body, Completion, Kind, Mode, Routing, Status, Tlp, TlpRepr, ln as wire};

use super::cache::FunctionCache;
use super::events::{DeviceCounts, Event};
use super::function::{Asked, State};
use super::mem::{Answer, serve};
use crate::completer::{CompleterSpec, Served, Target};
use crate::cxl_host::code;
use crate::ln::lnr::Effect;
use crate::ln::{LnMessage, Route};
use crate::pci::intx::{Message, Wires};
use crate::pci::{ByteEnables, Reg, Uncorrectable};
use crate::tlp_end::Outbox;
use crate::transaction_layer::{ReceivedMessage, TlpCounts, TransactionLayer};
use crate::vdm::link_reset::Ordered;

/// A device without the end of its link.
pub(crate) struct Core {
    pub mode: Mode,
    pub functions: Vec<State>,
    pub completer: CompleterSpec,
    pub gim: bool,
    /// One logical device of several: the prefix of a TLP names the LD, not a requester.
    pub logical: bool,
    pub busy: u32,
    /// INTx levels of its functions.
    pub wires: Wires,
    pub events: VecDeque<Event>,
    pub counts: DeviceCounts,
}

impl Core {
    pub(crate) fn reset(&mut self) {
        for state in &mut self.functions {
            state.reset();
        }
        self.wires.reset();
        self.events.push_back(Event::Reset(None));
    }

    /// Sends the changes of the INTx levels of all functions together.
    fn say_wires(&mut self, out: &mut Outbox) {
        for (number, state) in self.functions.iter().enumerate() {
            // All levels again: whether a function may assert changes with its Command register, MSI and resets.
            self.wires.clear(number);
            if let Some(pin) = state.intx() {
                self.wires.receive(number, 0, Message { pin, on: true });
            }
        }
        let me = self.functions.first().map(State::me).unwrap_or_default();
        for message in self.wires.changes() {
            let tlp = TlpRepr::new(self.mode, Message::KIND, me, 0, message.body());
            self.send(out, &tlp);
        }
    }

    fn config(&mut self, tlp: &Tlp<'_>, out: &mut Outbox) {
        let Body::Config { dest, register, first_be } = tlp.repr().body else { return };
        let number = usize::from(dest.function());
        let type0 =
            matches!(tlp.kind(), Kind::CfgRead { type1: false } | Kind::CfgWrite { type1: false });
        // A device that is not ready after a reset answers with retry status (PCIe 6.0, 2.3.1).
        if type0 && self.busy > 0 {
            self.busy -= 1;
            self.counts.retried += 1;
            if let Some(answer) = Completion::of(tlp, Status::RequestRetry, dest) {
                self.send(out, &answer);
            }
            return;
        }
        let Some(state) = self.functions.get_mut(number).filter(|_| type0) else {
            self.counts.tlps.unsupported += 1;
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
            // Bus and device number are those of all functions of the device, whichever was written to.
            for (other, state) in (0u8..).zip(&mut self.functions) {
                state.capture(Bdf::new(dest.bus(), dest.device(), other));
            }
            self.counts.tlps.served += 1;
            if let Some(answer) = Completion::of(tlp, Status::Success, dest) {
                self.send(out, &answer);
            }
            return;
        }
        let value = state.function.read(reg).to_le_bytes();
        self.counts.tlps.served += 1;
        if let Some(answer) = Completion::with_data(tlp, dest, 0, &value) {
            self.send(out, &answer);
        }
    }
}

impl TransactionLayer for Core {
    fn mem(&mut self, message: &MemMessage<'_>, out: &mut Outbox) {
        // CXL.mem names no function: the first whose decoders have the line.
        let found = self.functions.iter_mut().find_map(|state| state.line(message.head.addr));
        let counts = &mut self.counts;
        let (head, line) = match serve(found, message) {
            Answer::None => return,
            Answer::Data(head, line) => {
                counts.loads += 1;
                (head, Some(line))
            }
            Answer::Done(head) => {
                counts.stores += u64::from(message.data.is_some());
                (head, None)
            }
            Answer::Refused(head) => {
                counts.mem_refused += 1;
                let data = head.op == MemOp::MemDataNxm;
                (head, data.then(|| Box::new([0xFF; LINE])))
            }
        };
        let answer = MemMessage { head, data: line.as_deref(), enables: None };
        counts.tlps.unsent += u64::from(out.send_mem(None, &answer).is_err());
    }

    fn cache(&mut self, now: Instant, message: &CacheMessage<'_>, _: &mut Outbox) {
        match self.functions.iter_mut().find_map(|state| state.cache.as_mut()) {
            Some(cache) => cache.take(now, message),
            None => self.counts.unexpected += 1,
        }
    }

    fn counts(&mut self) -> &mut TlpCounts {
        &mut self.counts.tlps
    }

    fn link_reset(&mut self, ordered: Ordered) {
        if ordered == Ordered::Begins {
            self.reset();
        }
    }

    fn expire(&mut self, now: Instant, out: &mut Outbox) {
        let Self { functions, counts, .. } = self;
        for state in functions {
            if let Some(cache) = &mut state.cache {
                cache.expire(now);
            }
            if state.requester.expire(now) > 0 {
                // Once for a batch of requests: the error bit is the same for all.
                report(state, Uncorrectable::CompletionTimeout, false, out, counts);
            }
        }
    }

    fn work(&mut self, now: Instant, full: bool, out: &mut Outbox) {
        self.say_wires(out);
        let Self { functions, counts, events, .. } = self;
        for (function, state) in (0..).zip(functions) {
            if let Some(cache) = &mut state.cache {
                // Even if `full`: answers to snoops are among these messages, and others wait for them.
                cache.flush(now, &mut |message| {
                    counts.tlps.unsent += u64::from(out.send_cache(&message.message()).is_err());
                });
                while let Some(line) = cache.next_lost() {
                    events.push_back(Event::LineLost { function, line });
                }
            }
            if !full {
                state.flush(now, &mut |tlp| {
                    let sent = out.send(None, tlp).is_ok();
                    counts.tlps.unsent += u64::from(!sent);
                    sent
                });
            }
            state.finish(&mut |done| events.push_back(Event::Done { function, done }));
            let outcomes = state.outcomes.drain(..);
            events.extend(outcomes.map(|(ticket, outcome, result)| Event::Ln {
                function,
                ticket,
                outcome,
                result,
            }));
            events.extend(
                state.commands.drain(..).map(|command| Event::Command { function, command }),
            );
        }
    }

    fn completion(&mut self, tlp: &Tlp<'_>, out: &mut Outbox) {
        // Functions number their tags independently, so the function in the requester ID decides.
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

    fn message(&mut self, tlp: &Tlp<'_>, routing: Routing, out: &mut Outbox) {
        let code = tlp.message_code().unwrap_or_default();
        if let Ok(Some(message)) = wire::LnMessage::parse(tlp) {
            let to = message.dest.map_or(Route::Broadcast, Route::Directed);
            let message = LnMessage { to, nr: message.reason as u8, addr: message.line };
            let me =
                self.functions.iter().map(State::me).find(|me| message.to == Route::Directed(*me));
            for (function, state) in (0..).zip(&mut self.functions) {
                if me.is_some_and(|me| me != state.me()) {
                    continue; // it is for another function of the device
                }
                let effect = state.lnr.as_mut().map(|lnr| lnr.on_message(&message));
                if let Some(Effect::Dropped(copies @ 1..)) = effect {
                    self.counts.notified += 1;
                    self.events.push_back(Event::Notified { function, message, copies });
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
                self.counts.tlps.unsupported += 1;
                if let Some(state) = self.functions.first_mut() {
                    let error = Uncorrectable::UnsupportedRequest;
                    report(state, error, true, out, &mut self.counts);
                }
            }
            _ => self.events.push_back(Event::Message(ReceivedMessage::new(tlp, routing))),
        }
    }

    fn request(&mut self, tlp: &Tlp<'_>, out: &mut Outbox) {
        if tlp.kind().is_config() {
            return self.config(tlp, out);
        }
        let Hpa(addr) = tlp.addr().unwrap_or_default();
        let len = tlp.access_len();
        let (io, uio) = (tlp.kind().is_io(), tlp.is_uio());
        let Self { functions, completer, counts, gim, logical, .. } = self;
        // UIO with a prefix comes from another domain, which only GIM may serve. At a logical device the prefix is its
        // LD-ID.
        let stranger = !*logical && tlp.vend_prefix().is_some() && !(*gim && uio);
        let asked = match (io, uio) {
            (true, _) => Asked::Io,
            (_, false) => Asked::Memory,
            _ if *gim && tlp.vend_prefix().is_some() => Asked::Gim,
            _ => Asked::Uio,
        };
        let holder = functions.iter_mut().position(|state| state.reach(asked).holds(addr, len));
        // Function 0 answers for addresses that no function has: a request must get one answer.
        let Some(state) = functions.get_mut(holder.unwrap_or(0)) else { return };
        let me = state.me();
        let send = &mut |answer: &TlpRepr<'_>| {
            counts.tlps.unsent += u64::from(out.send(None, answer).is_err());
        };
        let served = if stranger {
            completer.refuse(tlp, Status::UnsupportedRequest, me, send);
            Served::Unsupported
        } else {
            completer.serve(tlp, me, &mut state.reach(asked), send)
        };
        counts.tlps.count(served);
        let error = match served {
            Served::Done => return,
            Served::Unsupported => Uncorrectable::UnsupportedRequest,
            Served::Aborted => Uncorrectable::CompleterAbort,
            Served::Poisoned => Uncorrectable::Poisoned,
        };
        // Posted requests alone are reported in full: any other has a completion.
        report(state, error, !tlp.wants_completion(), out, counts);
    }

    fn next_due(&self) -> Option<Instant> {
        let due = |state: &State| {
            let cache = state.cache.as_ref().and_then(FunctionCache::next_due);
            Instant::earlier(state.requester.next_due(), cache)
        };
        self.functions.iter().filter_map(due).min()
    }
}

/// Records an error, and sends a message to the root if software has enabled that.
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
        counts.tlps.unsent += 1;
    }
}
