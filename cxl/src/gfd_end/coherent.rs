//! Requests to a coherent device (HDM-DB): each waits until no host's copy is in its way. Hosts are snooped; one that
//! does not answer in time is given up on.
//!
//! [`GfdEndCore::take_coherent`] hands a CXL.mem request to the filter of [`Coherence`]; [`GfdEndCore::coherent_work`] carries out
//! the requests that the filter lets go.
//!
//! Source: docs/spec/cxl-fabric.md "Back-invalidate"; docs/spec/wire-formats.md §3.9; CXL 3.1 sections 3.3.5 to 3.3.10.

use weft_dataplane::time::Instant;
use weft_parsers::cxl_mem::{LINE, Lease, MemHead, MemMessage, MemOp, MetaField};
use weft_parsers::fabric::{Dpa, Hpa, Pid};
use weft_parsers::tlp::{Mode, Pth, Status, Tlp};

use super::due::JobStep;
use super::line_jobs::LineJob;
use super::serve::GfdEndCore;
use super::snoops::{Coherence, MemAsk, Parked};
use crate::coherence::filter::{Asker, Effect, Want};
use crate::coherence::waited::Waited;
use crate::coherence::{Hold, answered};
use crate::gfd::Refusal;
use crate::gfd::device::Request;
use crate::tlp_end::TlpEnd;

const SNP_DATA: u8 = 1;
const SNP_INV: u8 = 3;
const META_INVALID: u8 = 0b00;
const META_ANY: u8 = 0b10;
const META_SHARED: u8 = 0b11;

/// Access to its line that a read or `MemInv` needs (docs/spec/cxl-fabric.md "Back-invalidate", the table of requests).
const fn wants(head: &MemHead) -> Want {
    let has_state = matches!(head.meta, MetaField::State);
    match (head.op, has_state, head.meta_value, head.snoop) {
        (MemOp::MemRdData, true, ..) => Want::Shared,
        (_, true, META_ANY, SNP_INV) => Want::Exclusive,
        (MemOp::MemRd, true, _, SNP_DATA) => Want::Shared,
        (_, true, META_INVALID, SNP_INV) => Want::NoCopy,
        _ => Want::Current,
    }
}

/// Whether it is a write-back: a write by the line's owner, which takes the line from no other host.
pub(super) const fn is_write_back(head: &MemHead) -> bool {
    let writes = matches!(head.op, MemOp::MemWr | MemOp::MemWrPtl);
    writes && matches!(head.meta, MetaField::State) && !matches!(head.snoop, SNP_DATA..=SNP_INV)
}

const fn kept(meta_value: u8) -> Option<Hold> {
    match meta_value {
        META_ANY => Some(Hold::Owned),
        META_SHARED => Some(Hold::Shared),
        _ => None,
    }
}

impl GfdEndCore {
    /// Takes in a request for a line; refuses one that the tables do not allow.
    pub(super) fn take_coherent(
        &mut self,
        now: Instant,
        pth: Pth,
        message: &MemMessage<'_>,
    ) -> Result<(), Refusal> {
        let head = message.head;
        let opcode = Some(head.op as u8 & 0xF);
        let request = Request { rpid: pth.spid, hpa: head.addr, opcode };
        // Exclusive ownership lets the host store without another request, so it takes the right to write.
        let changes =
            matches!(head.op, MemOp::MemWr | MemOp::MemWrPtl) || wants(&head) == Want::Exclusive;
        let dpa = self.device.gfd.line_of(now, request, changes)?;
        let line = dpa.0 / LINE as u64;
        // These free the line for others and wait for nothing, so they cannot be in a cycle of waits.
        if head.op == MemOp::MemClnEvct || is_write_back(&head) {
            return self.leave(now, pth, message, line);
        }
        // A write draws on its requester's bandwidth limit when it is carried out, and only its answer waits. A read
        // draws before it enters the filter: requests behind it in the filter then wait for hosts alone, not for this
        // requester's limit.
        let writes = matches!(head.op, MemOp::MemWr | MemOp::MemWrPtl);
        let gfd = &mut self.device.gfd;
        let (due, load) = if writes {
            (now, gfd.load())
        } else {
            gfd.admit(now, request, LINE).map(|done| (done.due, done.load))?
        };
        let data = message.data.copied().unwrap_or([0; LINE]);
        let ask = MemAsk { pth, head, data, enables: message.enables, line, load };
        let Some(coherence) = &mut self.coherence else { return Ok(()) };
        if due <= now {
            self.ask(ask);
        } else if coherence.arrivals.has_room(pth.spid) {
            coherence.arrivals.push(now, due, ask);
        } else {
            self.counts.overrun += 1;
        }
        Ok(())
    }

    /// A host writes a line back or evicts it. Takes effect at once, even while other requests wait for the line.
    fn leave(
        &mut self,
        now: Instant,
        pth: Pth,
        message: &MemMessage<'_>,
        line: u64,
    ) -> Result<(), Refusal> {
        let head = message.head;
        let Some(coherence) = &mut self.coherence else { return Ok(()) };
        let mut left = None;
        if is_write_back(&head) {
            if coherence.filter.hold_of(pth.spid, line) != Some(Hold::Owned) {
                // The device has given up on this host, and the line may hold another's newer value. Poison in Cmp
                // tells the host that its stores are lost.
                coherence.counts.stale_writes += 1;
                let lost = MemHead { poison: true, ..MemHead::new(MemOp::Cmp, head.tag) };
                self.reply(now, pth, lost);
                return Ok(());
            }
            let request = Request { rpid: pth.spid, hpa: head.addr, opcode: None };
            self.store(now, request, message)?;
            left = kept(head.meta_value);
        }
        if let Some(coherence) = &mut self.coherence {
            coherence.filter.leave(pth.spid, line, left);
        }
        self.reply(now, pth, MemHead::new(MemOp::Cmp, head.tag));
        Ok(())
    }

    /// Answers at once, with the device's load and the host's lease.
    fn reply(&mut self, now: Instant, to: Pth, head: MemHead) {
        let (load, lease) = (self.device.gfd.load().wire(), self.lease(to.spid));
        let head = MemHead { load, lease, ..head };
        self.lines.push(now, now, LineJob { pth: self.back(to), head, line: None });
    }

    fn lease(&mut self, who: Pid) -> Lease {
        self.coherence.as_mut().map_or(Lease::NONE, |coherence| coherence.lease(who))
    }

    fn ask(&mut self, ask: MemAsk) {
        let Some(coherence) = &mut self.coherence else { return };
        let want = match ask.head.op {
            MemOp::MemWr | MemOp::MemWrPtl => Want::NoCopy,
            _ => wants(&ask.head),
        };
        let (who, what) = (Asker::Cache(ask.pth.spid), Parked::Mem(Box::new(ask)));
        let line = ask.line;
        self.counts.overrun += u64::from(coherence.filter.ask(line, who, want, what).is_err());
    }

    /// Takes a host's answer to a snoop, or its `BIConflict`; false for any other message.
    pub(super) fn take_back_invalidate(&mut self, now: Instant, pth: Pth, head: &MemHead) -> bool {
        let Some(coherence) = &mut self.coherence else { return false };
        if let Some(left) = answered(head.op) {
            return coherence.answer(pth.spid, head, left);
        }
        if head.op != MemOp::BiConflict {
            return false;
        }
        coherence.counts.conflicts += 1;
        // Behind the Cmp of a read that was carried out already: NDRs to one host stay in order, and by that order the
        // host knows which was first.
        self.reply(now, pth, MemHead::new(MemOp::BiConflictAck, head.tag));
        true
    }

    /// Whether a TLP has to wait for hosts; if so, it is parked in the filter.
    pub(super) fn must_wait(
        &mut self,
        now: Instant,
        pth: Pth,
        tlp: &Tlp<'_>,
        waited: Waited,
    ) -> bool {
        if self.coherence.is_none() {
            return false;
        }
        let writes = tlp.kind().has_data();
        let want = if writes { Want::NoCopy } else { Want::Current };
        let at = tlp.addr().unwrap_or_default().0;
        // At most 1,024 doublewords, so the loop has at most 65 rounds.
        let len = (u64::from(tlp.length_dw()) * 4).min(4_096);
        let mut line_at = at & !(LINE as u64 - 1);
        while line_at < at.saturating_add(len) {
            let hpa = Hpa(line_at);
            // Not allowed: `memory` refuses the TLP as a whole, and raises the notification.
            let Ok(part) = self.device.gfd.guard().part(pth.spid, hpa, false) else { return false };
            let line = part.dpa.0 / LINE as u64;
            let Some(coherence) = &mut self.coherence else { return false };
            let is_clear = waited.is_clear(line_at, writes);
            if !is_clear && coherence.filter.is_in_the_way(line, want) {
                let Some(waited) = waited.for_line(line_at) else {
                    // Others have taken its lines back too often. A bound, as the TLP could otherwise wait for ever.
                    self.answer_refused(now, pth, tlp, Status::CompleterAbort);
                    return true;
                };
                let what = Parked::Tlp { pth, bytes: tlp.bytes().into(), waited };
                // Plain: even a copy of the same host is in the way, as its cache does not see its TLPs.
                let asked = coherence.filter.ask(line, Asker::Plain(pth.spid), want, what);
                self.counts.overrun += u64::from(asked.is_err());
                return true;
            }
            line_at += LINE as u64;
        }
        false
    }

    /// Sends snoops, gives up on late hosts, and carries out requests that no copy is in the way of any more.
    pub(super) fn coherent_work(&mut self, now: Instant, end: &mut TlpEnd) -> Option<Instant> {
        let mut coherence = self.coherence.take()?;
        coherence.expire(now);
        // Collected first: `ask` needs all of `self`, of which `arrivals` is a part.
        let mut arrived = Vec::new();
        let next = coherence.arrivals.run(now, end, |ask, _| {
            arrived.push(*ask);
            JobStep::Done
        });
        self.coherence = Some(coherence);
        for ask in arrived {
            self.ask(ask);
        }
        self.settle_coherence(now);
        Instant::earlier(next, self.coherence.as_ref().and_then(Coherence::next_due))
    }

    /// Carries out the filter's decisions. Runs before any later message is answered, so that no host is snooped after
    /// the device has confirmed that it gave up the line.
    pub(super) fn settle_coherence(&mut self, now: Instant) {
        loop {
            // In each round: the effect before may be a snoop, and an answer may have freed a tag for one that waits.
            self.send_snoops(now);
            match self.coherence.as_mut().and_then(|it| it.filter.next_effect()) {
                None => break,
                Some(effect) => self.react(now, effect),
            }
        }
    }

    fn react(&mut self, now: Instant, effect: Effect<Parked>) {
        match effect {
            Effect::Snoop { to, line, how } => {
                if let Some(coherence) = &mut self.coherence {
                    // Through `later`, whether or not a tag is free, so that snoops keep their order.
                    coherence.later.push_back((to, line, how));
                }
            }
            Effect::Go { what: Parked::Mem(ask), grant } => self.carry_out(now, &ask, grant),
            Effect::Go { what: Parked::Tlp { pth, bytes, waited }, .. } => {
                // Checked again for its other lines, and for rights that went while it waited.
                if let Ok(tlp) = Tlp::parse(Mode::Flit, &bytes) {
                    self.memory_again(now, pth, &tlp, waited);
                }
            }
            Effect::Lost { line, who } => {
                self.device.gfd.lose_line(now, who, Dpa(line * LINE as u64));
            }
        }
    }

    fn send_snoops(&mut self, now: Instant) {
        let own = self.device.gfd.pid();
        while let Some(coherence) = &mut self.coherence
            && let Some((to, line, how)) = coherence.next_snoop()
        {
            let Ok(hpa) = self.device.gfd.snoop_hpa(now, to, Dpa(line * LINE as u64)) else {
                coherence.cannot_ask(now, to, line); // it has no decoder for the line any more
                continue;
            };
            let Some(tag) = coherence.track(now, to, line, hpa) else { return };
            let head = MemHead { addr: hpa, ..MemHead::new(how.op(), tag) };
            self.lines.push(now, now, LineJob { pth: Pth::new(own, to), head, line: None });
        }
    }

    /// Carries out a request, and answers it.
    fn carry_out(&mut self, now: Instant, ask: &MemAsk, grant: Option<Hold>) {
        let MemAsk { pth, head, .. } = *ask;
        let request = Request { rpid: pth.spid, hpa: head.addr, opcode: Some(head.op as u8 & 0xF) };
        let due = if matches!(head.op, MemOp::MemWr | MemOp::MemWrPtl) {
            let message = MemMessage { head, data: Some(&ask.data), enables: ask.enables };
            self.store(now, request, &message).map(|done| done.due)
        } else {
            self.device.gfd.line_of(now, request, false).map(|_| now)
        };
        let Ok(due) = due else {
            // The requester lost its right while the request waited, and must not keep the copy that the filter has
            // recorded for it.
            if let Some(coherence) = &mut self.coherence {
                coherence.revoke(pth.spid, ask.line);
            }
            return self.answer_mem_refused(now, pth, &head);
        };
        // A read of the value alone leaves the requester's copy as it is, and its answer names no state.
        let grant = grant.filter(|_| matches!(wants(&head), Want::Shared | Want::Exclusive));
        let reads = matches!(head.op, MemOp::MemRd | MemOp::MemRdData);
        let has_state = head.meta == MetaField::State;
        let lease = if has_state { self.lease(pth.spid) } else { Lease::NONE };
        // Without metadata a read has MemData alone (docs/spec/cxl-fabric.md "Back-invalidate").
        if !reads || has_state {
            let op = match grant {
                None => MemOp::Cmp,
                Some(Hold::Shared) => MemOp::CmpS,
                Some(Hold::Owned) => MemOp::CmpE,
            };
            let head = MemHead { load: ask.load.wire(), lease, ..MemHead::new(op, head.tag) };
            self.lines.push(now, due, LineJob { pth: self.back(pth), head, line: None });
        }
        if reads {
            self.counts.reads += 1;
            self.counts.bytes_read += LINE as u64;
            let meta_value = match grant {
                None => META_INVALID,
                Some(Hold::Shared) => META_SHARED,
                Some(Hold::Owned) => META_ANY,
            };
            let plain = MemHead::new(MemOp::MemData, head.tag);
            let plain = MemHead { load: ask.load.wire(), lease, ..plain };
            let head = if has_state {
                MemHead { meta: MetaField::State, meta_value, ..plain }
            } else {
                plain
            };
            self.lines.push(
                now,
                due,
                LineJob { pth: self.back(pth), head, line: Some(request.hpa) },
            );
        }
    }
}
