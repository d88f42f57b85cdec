//! The receiving half of an endpoint.
//!
//! Shape: frames off the port; data into events, ACKs into slots, CNPs and PFC into their state.
//! Units: bytes.
//! Source: docs/spec/model.md §4.

use weft_dataplane::pool::Bufs;
use weft_dataplane::port::Port;
use weft_dataplane::time::{Instant, LinkRate};
use weft_dataplane::types::Pri;
use weft_parsers::mac_control::opcode;
use weft_parsers::rh::{Rh, syndrome};
use weft_parsers::{Ecn, Format, HEAD_LEN, Head, Pfc, RhOpcode, ethernet, udp, vlan};

use super::peers::{Answer, Incoming};
use super::place::FramePlace;
use super::{Endpoint, Event, Transport};
use crate::frames::{Received, receive_front};
use crate::rclink::queue_pair::RxVerdict;
use crate::rclink::rnr;
use crate::rclink::slots::{Mask, Reason, WentBack};
use crate::stamp::{Mark, Reading, Seq};

/// Most bursts that one poll takes in, so that sending is not starved.
const RX_BURSTS: usize = 16;

impl Endpoint {
    /// Takes in what the port has; returns how many frames, and whether there may be more.
    pub(super) fn take_in(
        &mut self,
        now: Instant,
        port: &mut dyn Port,
        bufs: &mut Bufs,
    ) -> (usize, bool) {
        let rate = port.caps().rate;
        let mut received = 0;
        let mut batch = self.batch.take().unwrap_or_default();
        let mut more = false;
        for burst in 0..RX_BURSTS {
            let had = port.rx(now, bufs, &mut batch);
            for desc in batch.drain(..) {
                let (head, frame) = (bufs.head(&desc), bufs.bytes(&desc));
                match receive_front(head, desc.len(), frame, &self.spec.parse) {
                    Ok(received) if received.head.format() == Format::MacControl => {
                        self.take_control(now, rate, &received.head, frame);
                    }
                    Ok(received) => self.take(now, head, desc.len(), &received),
                    Err(_) => self.stats.foreign += 1,
                }
                bufs.free(desc);
            }
            received += had;
            if had == 0 {
                break;
            }
            more = burst + 1 == RX_BURSTS;
        }
        self.batch = Some(batch);
        (received, more)
    }

    fn take(&mut self, now: Instant, head: &[u8; HEAD_LEN], len: usize, received: &Received) {
        let kind = received.head.format();
        let taken = match self.spec.transport {
            Transport::Lite if kind == Format::AfhLite => self.take_lite(now, len, received),
            Transport::Reliable { .. } => self.take_reliable(now, head, len, received),
            Transport::Lite => None,
        };
        if taken.is_none() {
            self.stats.foreign += 1;
        }
    }

    /// A frame with an RC Link header; `None` for one that is not taken.
    fn take_reliable(
        &mut self,
        now: Instant,
        first: &[u8; HEAD_LEN],
        frame_len: usize,
        received: &Received,
    ) -> Option<()> {
        let head = &received.head;
        let (rh, _) = Rh::parse(first.get(rh_offset(head)?..)?).ok()?;
        let from = rh.dest_qp();
        // Whose it is is decided by where it comes from, not by what it says.
        if !self.peers.is_source(from, head.src()) {
            return None;
        }
        let count = Some(rh.timestamp()).filter(|_| rh.timestamp_en());
        if rh.opcode() != RhOpcode::Send
            && let Some(credits) = &mut self.credits
        {
            credits.receive(now, (from, self.spec.ack_vc), count, frame_len, false);
        }
        match rh.opcode() {
            RhOpcode::Send => {
                let Reading::Mark(mark) = received.reading else { return None };
                if received.flaw.is_some() || mark.stream != from {
                    return None;
                }
                if !self.take_credits(now, from, (Some(rh.psn()), count), frame_len) {
                    self.stats.overruns += 1;
                    return Some(());
                }
                if head.ecn() == Some(Ecn::Ce) {
                    self.stats.marked += 1;
                    if !self.cnps.iter().any(|&(to, _)| to == from) {
                        self.cnps.push_back((from, now + self.spec.cnp_delay));
                    }
                }
                self.take_request(now, from, (rh.psn(), rh.fack()), &mark, frame_len);
            }
            RhOpcode::Ack if rh.len_or_syndrome() == syndrome::NAK_SEQUENCE => {
                self.stats.naks_rx += 1;
                self.take_nak(now, from, rh.psn(), Reason::Missing);
            }
            RhOpcode::Ack if rh.len_or_syndrome() & !rnr::CODE_MAX == syndrome::RNR_NAK => {
                self.stats.rnrs_rx += 1;
                if self.take_nak(now, from, rh.psn(), Reason::NotReady) {
                    self.slots.mask(from, Mask::NotReady, true);
                    self.waiting.retain(|&(_, other)| other != from);
                    self.waiting.push((now + rnr::wait(rh.len_or_syndrome()), from));
                }
            }
            RhOpcode::Ack => {
                self.stats.acks_rx += 1;
                let mut done = core::mem::take(&mut self.done);
                self.slots.ack(from, rh.psn(), |request| done.push(request.tag));
                self.complete(now, done.drain(..));
                self.done = done;
            }
            RhOpcode::Cnp => {
                self.stats.cnps_rx += 1;
                if self.merge.receive(from, now) {
                    self.cut_rate(now, from);
                    self.events.push(Event::Congested { to: from, at: now });
                }
            }
            RhOpcode::Reserved => return None,
        }
        Some(())
    }

    /// Peer `to` is answered at `due`, before others if `at_once`.
    fn answer_at(&mut self, to: u16, due: Instant, at_once: bool) {
        let Some(peer) = self.peers.get_mut(to) else { return };
        match peer.ack_due {
            None if at_once => self.acks.push_front(to),
            None => self.acks.push_back(to),
            Some(_) => {}
        }
        peer.ack_due = Instant::earlier(peer.ack_due, Some(due));
    }

    /// The priority of requests to this endpoint: that of its bank.
    fn own_pri(&self) -> Pri {
        let vc = self.spec.vc_to(self.spec.number);
        self.request_pri.get(usize::from(vc)).copied().unwrap_or_default()
    }

    /// A NAK has come; true if frames are sent again.
    fn take_nak(&mut self, now: Instant, from: u16, psn: u16, reason: Reason) -> bool {
        let mut done = core::mem::take(&mut self.done);
        let went = self.slots.nak(from, psn, reason, |request| done.push(request.tag));
        self.complete(now, done.drain(..));
        self.done = done;
        if let Some(went) = went {
            self.went_back(now, from, went);
        }
        matches!(went, Some(WentBack::Frames(_)))
    }

    /// A request has come: it takes room until it is drained, if it is going to be taken. False if there is no room.
    fn take_credits(
        &mut self,
        now: Instant,
        from: u16,
        (psn, count): (Option<u16>, Option<u16>),
        len: usize,
    ) -> bool {
        let Some(credits) = &mut self.credits else { return true };
        let vc = self.spec.vc_to(self.spec.number); // as who sends to this one has it
        let expected = self.peers.get(from).map_or(0, |peer| peer.rx.expected());
        let is_kept = psn.is_none_or(|psn| psn == expected);
        credits.receive(now, (from, vc), count, len, is_kept)
    }

    fn take_request(
        &mut self,
        now: Instant,
        from: u16,
        (psn, fack): (u16, bool),
        mark: &Mark,
        frame_len: usize,
    ) {
        let own_pri = self.own_pri();
        let Some(peer) = self.peers.meet(from) else { return };
        if psn == peer.rx.expected()
            && let Some(slow) = &mut self.slow
            && !slow.push(now, own_pri, frame_len)
        {
            self.stats.overruns += 1;
            if self.spec.rnr.is_some() {
                peer.rx.refuse();
                peer.answer = Answer::NotReady;
                self.answer_at(from, now, true);
            }
            return; // as if it had been lost: it is sent again
        }
        let verdict = peer.rx.receive(psn);
        match verdict {
            RxVerdict::Accept => {}
            RxVerdict::Duplicate => self.stats.duplicates += 1,
            RxVerdict::Gap { nak } => {
                self.stats.out_of_order += 1;
                if !nak {
                    return;
                }
                peer.answer = Answer::Nak;
            }
        }
        let at_once = fack || peer.answer != Answer::Ack;
        self.answer_at(from, if at_once { now } else { now + self.spec.ack_delay }, at_once);
        if verdict == RxVerdict::Accept {
            self.deliver(now, from, mark);
        }
    }

    /// A frame without an RC Link header; `None` for one that is not taken.
    fn take_lite(&mut self, now: Instant, frame_len: usize, received: &Received) -> Option<()> {
        let Reading::Mark(mark) = received.reading else { return None };
        let from = mark.stream;
        let is_source = self.peers.is_source(from, received.head.src());
        if !is_source || received.flaw.is_some() || !matches!(mark.seq, Seq::Whole(_)) {
            return None;
        }
        let has_credit = self.take_credits(now, from, (None, None), frame_len);
        let own_pri = self.own_pri();
        let slow = self.slow.as_mut();
        if !has_credit || slow.is_some_and(|slow| !slow.push(now, own_pri, frame_len)) {
            self.stats.overruns += 1;
            return Some(()); // it is missing when the next one comes
        }
        self.deliver(now, from, &mark);
        Some(())
    }

    /// Takes a frame. Frames of one message come in order, and messages of one peer one after the other: those in between
    /// are lost.
    fn deliver(&mut self, now: Instant, from: u16, mark: &Mark) {
        let (Seq::Whole(seq), bytes) = (mark.seq, mark.len as u64) else { return };
        let now = self.arrival_clock.map_or(now, |clock| clock());
        let FramePlace { message: id, index, is_last } = FramePlace::of_seq(seq);
        let Some(peer) = self.peers.meet(from) else { return };
        self.stats.rx_frames += 1;
        self.stats.rx_payload += bytes;
        self.last_taken = Some(now);
        if let Some(sent) = mark.sent {
            self.latency.record(now.since(sent));
        }
        let is_other = peer.incoming.id != id || index < peer.incoming.next;
        if is_other {
            // what ended the last one is lost, at least one frame
            self.stats.lost += u64::from(peer.incoming.next > 0);
        }
        if is_other || peer.incoming.next == 0 {
            peer.incoming = Incoming { id, next: 0, bytes: 0, first: mark.sent };
        }
        let missing = index.saturating_sub(peer.incoming.next);
        self.stats.lost += u64::from(missing);
        if missing > 0 {
            peer.incoming.first = None;
        }
        peer.incoming.next = index.saturating_add(1);
        peer.incoming.bytes += bytes;
        if is_last {
            let Incoming { bytes, first, .. } = core::mem::take(&mut peer.incoming);
            if let Some(first) = first {
                self.events.push(Event::Delivered { from, id, bytes, first, at: now });
            }
        }
        if self.spec.frame_events {
            let (bytes, sent) = (mark.len, mark.sent);
            self.events.push(Event::Received { from, id, index, bytes, sent, at: now });
        }
    }

    /// Frames of messages are acknowledged, by their tags.
    pub(super) fn complete(&mut self, now: Instant, tags: impl IntoIterator<Item = u64>) {
        for tag in tags {
            let id = FramePlace::of_seq(tag).message;
            let Some(open) = self.open.get_mut(&id) else { continue };
            open.frames -= 1;
            if open.frames == 0 && open.is_whole {
                let resent = open.resent;
                self.open.remove(&id);
                self.events.push(Event::Sent { id, resent, at: now });
            }
        }
    }

    /// Frames to `to` are sent again, or are given up.
    pub(super) fn went_back(&mut self, now: Instant, to: u16, went: WentBack) {
        let WentBack::Fatal(frames) = went else { return };
        self.events.push(Event::Failed { to, frames, at: now });
        self.backlog.remove(&to);
        self.writing.retain(|&other| other != to);
        self.masked.retain(|&(_, other)| other != to);
        self.cut.retain(|&(_, other)| other != to);
        self.waiting.retain(|&(_, other)| other != to);
        if let Some(credits) = &mut self.credits {
            credits.forget(to);
        }
        self.open.retain(|_, open| open.to != to);
    }

    fn take_control(&mut self, now: Instant, rate: LinkRate, head: &Head, frame: &[u8]) {
        match head.mac_control_opcode() {
            Some(opcode::PFC) if head.pfc_da() && self.credits.is_none() => match Pfc::parse(frame)
            {
                Ok(pfc) => {
                    self.stats.pfc_rx += 1;
                    self.pauses.receive(now, &pfc, rate);
                }
                Err(_) => self.stats.foreign += 1,
            },
            _ => self.stats.foreign += 1,
        }
    }
}

/// Where the RC Link header is; `None` in a frame that has none.
fn rh_offset(head: &Head) -> Option<usize> {
    let front = ethernet::LEN + if head.tagged() { vlan::TAG_LEN } else { 0 };
    match head.format() {
        Format::Standard => Some(usize::from(head.l4_offset()?) + udp::LEN),
        Format::AfhGen1 | Format::AfhGen2 => Some(front),
        _ => None,
    }
}
