//! A host behind its link: its root port, requests of others that it serves, and requests of its software.
//!
//! [`Core`] is everything except the end of the link; with its [`Exports`] it is a [`TransactionLayer`].
//!
//! Source: PCIe 6.0 chapters 2 and 6; CXL 3.1 section 7.7.3.3; docs/spec/cxl-fabric.md "Routes".

use weft_dataplane::time::Instant;
use weft_parsers::cxl_cache::CacheMessage;
use weft_parsers::cxl_mem::MemMessage;
use weft_parsers::fabric::{Bdf, Hpa, Pid};
use weft_parsers::tlp::{Kind, LinkReset, Mode, ResetWord, Routing, Status, Tlp, TlpRepr};

use super::admission::admit;
use super::code;
use super::events::{Event, Events, HostCounts};
use super::home::{Home, Parked};
use super::ln;
use super::mem::HostMem;
use super::memory::{Exports, HostMemory};
use super::relay::Relay;
use super::software::{Advance, Software};
use crate::cache::home::{Admitted, Local};
use crate::completer::{CompleterSpec, Served, Target, enabled_range};
use crate::ln::Lnc;
use crate::mem::MemId;
use crate::pci::bridge::BusRoute;
use crate::pci::intx::{self, Wires};
use crate::pci::{Bridge, BridgeEffects, ErrorMessage, Link};
use crate::requester::uio::UioSide;
use crate::requester::{Done, Failure, OpId, Requester};
use crate::tlp_end::Outbox;
use crate::transaction_layer::{ReceivedMessage, TlpCounts, TransactionLayer};
use crate::vdm::link_reset::ResetOrders;
use crate::vdm::reset::Reset;

/// Length of the address range of interrupts, in bytes.
const MSI_LEN: u64 = 1 << 20;

/// A host without the end of its link.
pub(super) struct Core {
    pub mode: Mode,
    pub me: Bdf,
    pub root: Bridge,
    /// Resets ordered on the link.
    pub resets: ResetOrders,
    /// INTx levels asserted below the root port.
    pub wires: Wires,
    pub memory: HostMemory,
    pub requester: Requester,
    pub mem: HostMem,
    pub completer: CompleterSpec,
    pub home: Home,
    pub gim: bool,
    pub lnc: Option<Lnc>,
    pub uio: UioSide,
    /// Requests of other hosts for memory of devices below.
    pub relay: Relay,
    /// Number of the last enumeration that the owner's exports follow ([`super::CxlHost::know_devices`]).
    pub known: u64,
    pub software: Software,
    pub events: Events,
    pub counts: HostCounts,
}

impl Core {
    pub(super) fn link(&mut self, now: Instant, up: bool) {
        self.events.push(Event::Link(up));
        if up {
            self.resets.link_up(now);
            let first = self.root.set_present(true);
            self.react(&first);
            if self.resets.is_open() {
                self.show_link(true);
            }
            return;
        }
        self.resets.link_down();
        self.lose_wires();
        self.requester.give_up();
        self.mem.give_up();
        // Requests of caches end, but not their copies: leases decide how long these count.
        self.home.agent.link_down();
        if let Some(lnc) = &mut self.lnc {
            lnc.port_down(ln::PORT);
        }
        // The loss first, so that Surprise Down is reported before the slot is empty.
        let lost = self.root.lose_link();
        let gone = self.root.set_present(false);
        self.react(&lost);
        self.react(&gone);
    }

    /// Shows software the link below the root port as up, or as down by its own order.
    fn show_link(&mut self, up: bool) {
        let effects = self.root.set_link(up.then(Link::default));
        self.react(&effects);
    }

    /// Software begins or ends a reset of the bus below the root port.
    fn hold(&mut self, now: Instant, on: bool) {
        self.resets.hold(now, on.then_some(Reset::Hot));
        if on {
            self.lose_wires();
            self.show_link(false);
        }
    }

    /// Clears INTx of functions that are gone or reset.
    fn lose_wires(&mut self) {
        self.wires.clear(0);
        self.tell_wires();
    }

    fn tell_wires(&mut self) {
        for message in self.wires.changes() {
            self.events.push(Event::Intx(message));
        }
    }

    /// Handles effects of root port registers: its interrupts and errors cross no link.
    fn react(&mut self, effects: &BridgeEffects) {
        if let Some(message) = effects.message {
            self.error(self.me, message);
        }
        if let Some(on) = effects.reset {
            self.events.push(Event::Reset(on));
        }
        if let Some(msi) = self.root.msi().filter(|_| effects.interrupt) {
            self.interrupt(Hpa(msi.address), msi.data.into(), self.me);
        }
    }

    fn error(&mut self, from: Bdf, message: ErrorMessage) {
        self.root.receive_error(from, message);
        self.events.push(Event::Error { from, message });
    }

    fn interrupt(&mut self, addr: Hpa, data: u32, from: Bdf) {
        self.counts.interrupts += 1;
        self.events.push(Event::Msi { addr, data, from });
        self.software.interrupt(addr, from);
    }

    /// Does work that no received TLP triggers: answers, software steps, messages, and sending.
    fn work(&mut self, now: Instant, full: bool, out: &mut Outbox) {
        // Before loads and stores are handed to the cache by `flush`: lines whose leases have ended serve none of them.
        self.mem.set_now(now);
        loop {
            self.finish();
            self.answer_passed(out);
            let Self { software, requester, root, events, .. } = self;
            match software.advance(now, requester, root, events) {
                Advance::Idle => break,
                Advance::Again => {}
                Advance::Wrote(effects) => {
                    self.react(&effects);
                    if let Some(on) = effects.reset {
                        self.hold(now, on);
                    }
                }
            }
        }
        // Before messages of the new device come: the agent must not take them for the earlier device's.
        while let Some(cache_id) = self.software.take_moved_cache_id() {
            self.home.agent.reassign(cache_id);
        }
        while let Some(order) = self.resets.poll(now) {
            out.control_partner(order);
        }
        // The other end knows no resets: after the last try the link counts as up.
        if self.resets.take_given_up() && self.root.is_present() {
            self.show_link(true);
        }
        if let Some(looked_at) = self.software.take_renewed()
            && let Some(lnc) = &mut self.lnc
        {
            admit(lnc, &self.software, looked_at);
        }
        while self.software.exchange(now, &mut self.requester, &mut self.events) {}
        if full {
            return;
        }
        let Self { requester, mem, counts, .. } = self;
        requester.flush(now, &mut |tlp| {
            let sent = out.send(None, tlp).is_ok();
            counts.tlps.unsent += u64::from(!sent);
            sent
        });
        mem.flush(now, &mut |message| {
            counts.tlps.unsent += u64::from(out.send_mem(None, message).is_err());
        });
        self.finish();
        while let Some((_, message)) = self.lnc.as_mut().and_then(|it| it.next_message(now)) {
            let (me, counts) = (self.me, &mut self.counts);
            ln::send(&message, me, &mut |tlp| {
                counts.tlps.unsent += u64::from(out.send(None, tlp).is_err());
            });
        }
    }

    /// Answers requests of other hosts that devices below have answered.
    fn answer_passed(&mut self, out: &mut Outbox) {
        let Self { relay, counts, completer, me, .. } = self;
        let tlps = &mut counts.tlps;
        while let Some(served) = relay.answer(*completer, *me, &mut |answer| {
            tlps.unsent += u64::from(out.send(None, answer).is_err());
        }) {
            tlps.count(served);
        }
    }

    /// Hands the ends of transactions to their submitters.
    fn finish(&mut self) {
        while let Some(done) = self.requester.next_done() {
            // Each submitter recognises its own transactions and hands on all others; the rest is the owner's.
            let others = self.software.take(done).and_then(|done| self.uio.take(done));
            let others = others.and_then(|done| self.relay.ended(done));
            if let Some(done) = others {
                self.events.push(Event::Done(done));
            }
        }
        while let Some(done) = self.mem.next_done() {
            let op = op_of(done.id);
            let result = done.result.map_err(Failure::from);
            self.events.push(Event::Done(Done { op, result, ln: false }));
        }
        while let Some(news) = self.home.agent.next_news() {
            self.events.push(Event::Cache(news));
        }
        while let Some(line) = self.mem.next_lost() {
            self.events.push(Event::LineLost(Hpa(line)));
        }
    }

    /// Range of the host's own memory that a TLP accesses, and whether it writes.
    fn touched(&self, tlp: &Tlp<'_>, exports: &dyn Exports) -> Option<(u64, u64, bool)> {
        if tlp.kind().is_io() {
            return None;
        }
        let (addr, len) = (tlp.addr()?, tlp.access_len());
        let at = match tlp.vend_prefix() {
            None => addr.0,
            Some(prefix) => local_of(tlp, prefix.pid(), exports).filter(|_| self.gim)?,
        };
        self.memory.holds(at, len).then_some((at, len, tlp.kind().has_data()))
    }

    /// Takes a request, which waits for the caches of devices in its way.
    fn admit(&mut self, tlp: &Tlp<'_>, exports: &dyn Exports, out: &mut Outbox) {
        // Most hosts have no devices with caches: no look at the address.
        let touched = if self.home.agent.is_idle() { None } else { self.touched(tlp, exports) };
        let admitted = match touched {
            None => Admitted::Now(()),
            Some((at, len, writes)) => self.home.admit_tlp(at, len, writes, tlp.bytes()),
        };
        self.admitted(tlp, admitted, exports, out);
    }

    fn admitted(
        &mut self,
        tlp: &Tlp<'_>,
        admitted: Admitted<()>,
        exports: &dyn Exports,
        out: &mut Outbox,
    ) {
        match admitted {
            Admitted::Now(()) => self.request(tlp, exports, out),
            Admitted::Waits => {}
            Admitted::Refused((), _) => {
                let Self { completer, me, counts, .. } = self;
                completer.refuse(tlp, Status::CompleterAbort, *me, &mut |answer| {
                    counts.tlps.unsent += u64::from(out.send(None, answer).is_err());
                });
                counts.tlps.count(Served::Aborted);
            }
        }
    }

    /// Carries out accesses that caches of devices let go, before any later message is answered.
    fn settle(&mut self, now: Instant, exports: &dyn Exports, out: &mut Outbox) {
        while let Some((local, bytes)) = self.next_tlp(now) {
            let Ok(tlp) = Tlp::parse(self.mode, &bytes) else { continue }; // cannot happen: it was parsed when it came
            let admitted = self.home.admit_again(local);
            self.admitted(&tlp, admitted, exports, out);
        }
    }

    fn next_tlp(&mut self, now: Instant) -> Option<(Local<Parked>, Box<[u8]>)> {
        let Self { home, memory, lnc, .. } = self;
        home.next_tlp(now, memory, lnc)
    }

    fn request(&mut self, tlp: &Tlp<'_>, exports: &dyn Exports, out: &mut Outbox) {
        let Hpa(addr) = tlp.addr().unwrap_or_default();
        let is_interrupt = |base: u64| addr.wrapping_sub(base) < MSI_LEN;
        if tlp.kind() == Kind::MemWrite
            && self.software.msi().is_some_and(is_interrupt)
            && let Some(data) = tlp.payload().first_chunk()
            && tlp.length_dw() == 1
        {
            self.counts.tlps.count(Served::Done);
            self.interrupt(Hpa(addr), u32::from_le_bytes(*data), tlp.requester());
            return;
        }
        // An LN request whose requester ID is not below the root port would register lines for a function that does not
        // exist here.
        let forged = tlp.ln()
            && self.software.ln().is_some()
            && self.root.bus_route(tlp.requester().bus()) == BusRoute::Elsewhere;
        let Self {
            lnc, completer, me, memory, counts, gim, relay, requester, software, known, ..
        } = self;
        let send = &mut |answer: &TlpRepr<'_>| {
            counts.tlps.unsent += u64::from(out.send(None, answer).is_err());
        };
        let served = match (tlp.kind(), tlp.vend_prefix(), lnc) {
            _ if forged => {
                completer.refuse(tlp, Status::UnsupportedRequest, *me, send);
                Served::Unsupported
            }
            (kind, None, Some(lnc)) if !kind.is_io() => {
                ln::serve(lnc, *completer, *me, memory, tlp, send)
            }
            (_, None, _) if !tlp.kind().is_io() => completer.serve(tlp, *me, memory, send),
            (kind, Some(prefix), _) if kind.is_uio() => {
                let len = tlp.access_len();
                let local = local_of(tlp, prefix.pid(), exports).filter(|_| *gim);
                let refused = match local {
                    Some(local) if memory.holds(local, len) => {
                        let served = completer.serve_at(tlp, local, *me, memory, send);
                        return self.counts.tlps.count(served);
                    }
                    // The address may belong to another device once the enumeration is done: the requester tries again.
                    Some(_) if software.is_enumerating() || *known != software.renewals() => {
                        Err(Status::RequestRetry)
                    }
                    Some(local) => relay.take(prefix.pid(), tlp, local, requester),
                    None => Err(Status::UnsupportedRequest),
                };
                let Err(status) = refused else { return }; // counted when it is answered
                completer.refuse(tlp, status, *me, send);
                if status == Status::UnsupportedRequest {
                    Served::Unsupported
                } else {
                    Served::Aborted
                }
            }
            _ => {
                completer.refuse(tlp, Status::UnsupportedRequest, *me, send);
                Served::Unsupported
            }
        };
        self.counts.tlps.count(served);
    }

    fn message(&mut self, tlp: &Tlp<'_>, routing: Routing) {
        let (from, code) = (tlp.requester(), tlp.message_code().unwrap_or_default());
        let error = [ErrorMessage::Correctable, ErrorMessage::NonFatal, ErrorMessage::Fatal]
            .into_iter()
            .find(|message| message.code() == code);
        if let Some(message) = intx::Message::of(tlp) {
            self.wires.receive(0, 0, message); // the component at the other end of a link is device 0
            return self.tell_wires();
        }
        match (routing, error) {
            (Routing::ToRoot, Some(message)) => self.error(from, message),
            (Routing::Gather, _) if code == code::PME_TO_ACK => self.events.push(Event::TurnedOff),
            _ => self.events.push(Event::Message(ReceivedMessage::new(tlp, routing))),
        }
    }
}

/// Own address of the doublewords of another host's request, if it may reach all bytes that it enables. Exported memory
/// may end within a doubleword.
fn local_of(tlp: &Tlp<'_>, from: Pid, exports: &dyn Exports) -> Option<u64> {
    let (skip, len) = enabled_range(tlp);
    let first = Hpa(tlp.addr()?.0.checked_add(skip)?);
    exports.local(from, first, len)?.checked_sub(skip)
}

/// Number of a load or store among all transactions: bit 63 is set, which numbers of TLP transactions never reach.
pub(super) const fn op_of(MemId(id): MemId) -> OpId {
    OpId(1 << 63 | id)
}

/// A host with its exports to other hosts.
pub(super) struct Exporting<'a> {
    pub core: &'a mut Core,
    pub exports: &'a dyn Exports,
}

impl TransactionLayer for Exporting<'_> {
    fn mem(&mut self, message: &MemMessage<'_>, _out: &mut Outbox) {
        self.core.mem.take(message);
    }

    fn counts(&mut self) -> &mut TlpCounts {
        &mut self.core.counts.tlps
    }

    fn control(&mut self, now: Instant, message: LinkReset) {
        let core = &mut *self.core;
        core.counts.tlps.other += 1;
        let known = message.word == ResetWord::Done;
        // The host is the upper end of its link, so an order from below is dropped.
        core.counts.foreign_resets += u64::from(!known);
        if known && core.resets.receive(now, message) && core.root.is_present() {
            core.show_link(true);
        }
    }

    fn expire(&mut self, now: Instant, out: &mut Outbox) {
        self.core.requester.expire(now);
        self.core.mem.expire(now);
        self.core.home.agent.expire(now);
        self.core.settle(now, self.exports, out);
    }

    fn work(&mut self, now: Instant, full: bool, out: &mut Outbox) {
        self.core.settle(now, self.exports, out);
        // Even if `full`: snoops and answers of the agent let others' requests go on.
        while let Some(message) = self.core.home.agent.next_message() {
            let sent = out.send_cache(&message.message()).is_ok();
            self.core.counts.tlps.unsent += u64::from(!sent);
        }
        self.core.work(now, full, out);
    }

    fn cache(&mut self, now: Instant, message: &CacheMessage<'_>, out: &mut Outbox) {
        self.core.home.agent.take(message, &mut self.core.memory);
        self.core.settle(now, self.exports, out);
    }

    fn completion(&mut self, tlp: &Tlp<'_>, _: &mut Outbox) {
        self.core.requester.take(tlp);
    }

    fn message(&mut self, tlp: &Tlp<'_>, routing: Routing, _: &mut Outbox) {
        self.core.message(tlp, routing);
    }

    fn request(&mut self, tlp: &Tlp<'_>, out: &mut Outbox) {
        self.core.admit(tlp, self.exports, out);
    }

    fn next_due(&self) -> Option<Instant> {
        let core = &self.core;
        let ln = core.lnc.as_ref().and_then(Lnc::next_due);
        let ln = Instant::earlier(ln, core.mem.next_due());
        let ln = Instant::earlier(ln, core.home.next_due());
        let ln = Instant::earlier(ln, core.resets.next_due());
        let own = Instant::earlier(core.requester.next_due(), core.software.next_due());
        Instant::earlier(own, ln)
    }
}
