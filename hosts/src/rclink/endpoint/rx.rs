//! The receiving half of an endpoint: data becomes events, ACKs end slots, CNPs and PFC change their state.
//!
//! Source: docs/spec/model.md §4.

use weft_dataplane::time::{Instant, LinkRate, Span};
use weft_parsers::mac_control::opcode;
use weft_parsers::rh::{Rh, syndrome};
use weft_parsers::{Ecn, Format, HEAD_LEN, Head, Pfc, RhOpcode, ethernet, parse_head, udp, vlan};

use super::backlog::NONE;
use super::peers::{Answer, Incoming};
use super::place::FramePlace;
use super::{Endpoint, Event, Transport};
use crate::frames::{Usual, receive_mark};
use crate::rclink::queue_pair::RxVerdict;
use crate::rclink::rnr;
use crate::rclink::slots::{Mask, Reason, WentBack};
use crate::stamp::{Mark, Reading, Seq};

impl Endpoint {
    /// Takes a frame of `len` bytes, of which `frame` has all or the front.
    #[inline]
    pub(super) fn take_frame(&mut self, now: Instant, rate: LinkRate, frame: &[u8], len: usize) {
        if !self.take_usual(now, frame, len) {
            self.take_any(now, rate, frame, len);
        }
    }

    /// Takes a frame of the most common kind; false, without any effect, if it is of another.
    #[inline]
    fn take_usual(&mut self, now: Instant, frame: &[u8], len: usize) -> bool {
        if !self.is_standard || self.credits.is_some() {
            return false;
        }
        let Some(usual) = Usual::read(frame, &self.spec.parse) else { return false };
        let from = usual.rh.dest_qp();
        // The source address decides which peer it is from; the queue pair in the frame is only a claim.
        if self.peers.station(from).is_none_or(|station| station.mac.to_bits() != usual.src) {
            return false;
        }
        match usual.rh.opcode() {
            RhOpcode::Send => {
                let Some(mark) = usual.mark(frame, len).filter(|mark| mark.stream == from) else {
                    return false;
                };
                self.take_send(now, from, usual.rh, usual.ecn == Ecn::Ce, &mark, len);
            }
            RhOpcode::Ack => self.take_answer(now, from, usual.rh),
            RhOpcode::Cnp | RhOpcode::Reserved => return false,
        }
        true
    }

    /// Takes a frame of any kind, with the full classifier.
    #[inline(never)]
    fn take_any(&mut self, now: Instant, rate: LinkRate, frame: &[u8], len: usize) {
        let parse = &self.spec.parse;
        let parsed = if let Some(head) = frame.first_chunk::<HEAD_LEN>() {
            parse_head(head, len, parse)
        } else {
            let mut head = [0; HEAD_LEN];
            for (to, from) in head.iter_mut().zip(frame) {
                *to = *from;
            }
            parse_head(&head, len, parse)
        };
        let Ok(head) = parsed else {
            self.stats.foreign += 1;
            return;
        };
        let kind = head.format();
        let taken = match self.spec.transport {
            _ if kind == Format::MacControl => {
                self.take_control(now, rate, &head, frame);
                return;
            }
            Transport::Lite if kind == Format::AfhLite => self.take_bare(now, &head, frame, len),
            Transport::Raw if kind == Format::Other => self.take_bare(now, &head, frame, len),
            Transport::Raw => None,
            Transport::Reliable { .. } | Transport::Unreliable { .. } | Transport::Lite => {
                self.take_numbered(now, &head, frame, len)
            }
        };
        if taken.is_none() {
            self.stats.foreign += 1;
        }
    }

    /// Takes a frame with an RC Link header; `None` if it is foreign or damaged.
    fn take_numbered(
        &mut self,
        now: Instant,
        head: &Head,
        frame: &[u8],
        frame_len: usize,
    ) -> Option<()> {
        let (rh, _) = Rh::parse(frame.get(rh_offset(head)?..)?).ok()?;
        let from = rh.dest_qp();
        // The source address decides which peer it is from; the queue pair in the frame is only a claim.
        if !self.peers.is_source(from, head.src()) {
            return None;
        }
        let count = Some(rh.timestamp()).filter(|_| rh.timestamp_en());
        // Answers take no room in the buffer, so their credits go back at once.
        if rh.opcode() != RhOpcode::Send
            && let Some(credits) = &mut self.credits
        {
            credits.receive(now, from, self.spec.ack_vc, count, frame_len, false);
        }
        match rh.opcode() {
            RhOpcode::Send => {
                let (Reading::Mark(mark), None) =
                    receive_mark(head, frame_len, frame, &self.spec.parse)
                else {
                    return None;
                };
                if mark.stream != from {
                    return None;
                }
                // Frames that are never sent again are taken whatever their PSN.
                let psn = Some(rh.psn()).filter(|_| self.is_reliable());
                let is_marked = head.ecn() == Some(Ecn::Ce);
                if self.spec.transport == Transport::Lite {
                    let place = self.peers.meet(from)?;
                    self.note_mark(now, place, is_marked);
                    self.take_once(now, from, count, &mark, frame_len);
                    return Some(());
                }
                if !self.take_credits(now, from, psn, count, frame_len) {
                    self.stats.overruns += 1;
                    return Some(());
                }
                self.take_send(now, from, rh, is_marked, &mark, frame_len);
            }
            RhOpcode::Ack if self.spec.transport == Transport::Lite => return None,
            RhOpcode::Ack => self.take_answer(now, from, rh),
            RhOpcode::Cnp => {
                self.stats.cnps_rx += 1;
                if self.merge.receive(from, now) {
                    if let Some(place) = self.peers.find(from) {
                        self.cut_rate(now, place);
                    }
                    self.events.push(Event::Congested { to: from, at: now });
                }
            }
            RhOpcode::Reserved => return None,
        }
        Some(())
    }

    /// Whether lost frames are sent again.
    const fn is_reliable(&self) -> bool {
        matches!(self.spec.transport, Transport::Reliable { .. })
    }

    /// Takes a request of endpoint `from` that is undamaged and has its credits.
    #[inline]
    fn take_send(
        &mut self,
        now: Instant,
        from: u16,
        rh: Rh<'_>,
        is_marked: bool,
        mark: &Mark,
        len: usize,
    ) {
        let Some(place) = self.peers.meet(from) else { return };
        self.note_mark(now, place, is_marked);
        self.take_request(now, place, rh.psn(), rh.fack(), mark, len);
    }

    /// Notes whether a frame of the peer at `from` was marked CE; a marked one is answered by a CNP.
    #[inline]
    fn note_mark(&mut self, now: Instant, from: u16, is_marked: bool) {
        if !is_marked {
            return;
        }
        self.stats.marked += 1;
        // One CNP answers all marked frames until it is sent.
        if !self.cnps.iter().any(|&(to, _)| to == from) {
            self.cnps.push_back((from, now + self.spec.cnp_delay));
        }
    }

    /// Takes an ACK or a NAK of either kind.
    #[inline]
    fn take_answer(&mut self, now: Instant, from: u16, rh: Rh<'_>) {
        let place = self.peers.find(from);
        let code = rh.len_or_syndrome();
        if code == syndrome::NAK_SEQUENCE {
            self.stats.naks_rx += 1;
            // TYPE2 sends nothing again, so a NAK says nothing to it.
            let place = place.filter(|_| self.is_reliable());
            place.map(|place| self.take_nak(now, place, rh.psn(), Reason::Missing));
        } else if code & !rnr::CODE_MAX == syndrome::RNR_NAK {
            self.stats.rnrs_rx += 1;
            if self.is_reliable()
                && let Some(place) = place
                && self.take_nak(now, place, rh.psn(), Reason::NotReady)
            {
                self.slots.mask(place, Mask::NotReady, true);
                // The latest wait counts: the receiver has just named it.
                self.waiting.retain(|&(_, other)| other != place);
                self.waiting.push((now + rnr::wait(code), place));
                self.calm.disturb();
            }
        } else {
            self.stats.acks_rx += 1;
            let Some(place) = place else { return };
            let Self { slots, backlog, events, .. } = self;
            slots.ack(now, place, rh.psn(), |request| {
                events.extend(sent(backlog.complete(FramePlace::message_of(request.tag)), now));
            });
        }
    }

    /// Has the peer at `to` answered by `answer` at `due`, before others if `at_once`. An answer that waits already
    /// stays where it is, but may become due earlier.
    #[inline]
    fn answer_at(&mut self, to: u16, answer: Answer, due: Instant, at_once: bool) {
        let Some(peer) = self.peers.at_mut(to) else { return };
        // A NAK that waits to be sent is not replaced by an ACK: it also says how far frames have come.
        let had = peer.answer.replace(if answer == Answer::Ack {
            peer.answer.unwrap_or(answer)
        } else {
            answer
        });
        match had {
            None if at_once => self.acks.push_front((to, due)),
            None => self.acks.push_back((to, due)),
            Some(_) if self.spec.ack_delay == Span::ZERO => {} // it is due
            Some(_) => {
                if let Some((_, at)) = self.acks.iter_mut().find(|(other, _)| *other == to) {
                    *at = (*at).min(due);
                }
            }
        }
    }

    /// Takes a NAK of the peer at `from`; true if frames are sent again.
    fn take_nak(&mut self, now: Instant, from: u16, psn: u16, reason: Reason) -> bool {
        let Self { slots, backlog, events, .. } = self;
        let went = slots.nak(now, from, psn, reason, |request| {
            events.extend(sent(backlog.complete(FramePlace::message_of(request.tag)), now));
        });
        if let Some(went) = went {
            self.went_back(now, from, went);
        }
        matches!(went, Some(WentBack::Frames(_)))
    }

    /// Takes the credits of a request, which occupies the buffer until it drains if it is going to be taken. False if
    /// there is no room.
    fn take_credits(
        &mut self,
        now: Instant,
        from: u16,
        psn: Option<u16>,
        count: Option<u16>,
        len: usize,
    ) -> bool {
        let Some(credits) = &mut self.credits else { return true };
        let vc = self.spec.vc_to(self.spec.number); // as who sends to this one has it
        // A frame that Go-Back-N is going to drop takes no room.
        let peer = self.peers.find(from).and_then(|place| self.peers.at(place));
        let expected = peer.map_or(0, |peer| peer.rx.expected());
        let is_kept = psn.is_none_or(|psn| psn == expected);
        credits.receive(now, from, vc, count, len, is_kept)
    }

    /// Takes a request of the peer at `from`: buffer, PSN, answer, data.
    #[inline]
    fn take_request(
        &mut self,
        now: Instant,
        from: u16,
        psn: u16,
        fack: bool,
        mark: &Mark,
        frame_len: usize,
    ) {
        let own_pri = self.own_pri;
        let Some(peer) = self.peers.at_mut(from) else { return };
        let is_any = matches!(self.spec.transport, Transport::Unreliable { .. });
        // A duplicate, or a frame behind a gap, is dropped and takes no room.
        if let Some(slow) = &mut self.slow
            && (is_any || psn == peer.rx.expected())
            && !slow.push(now, own_pri, frame_len)
        {
            self.stats.overruns += 1;
            if self.spec.rnr.is_some() {
                peer.rx.refuse();
                self.answer_at(from, Answer::NotReady, now, true);
            }
            return; // as if it had been lost: it is sent again
        }
        let verdict = if is_any {
            if peer.rx.skip_to(psn) { RxVerdict::Accept } else { RxVerdict::Duplicate }
        } else {
            peer.rx.receive(psn)
        };
        let mut answer = peer.answer.unwrap_or(Answer::Ack);
        match verdict {
            RxVerdict::Accept => {}
            RxVerdict::Duplicate => self.stats.duplicates += 1,
            RxVerdict::Gap { nak } => {
                self.stats.out_of_order += 1;
                // The NAK for this gap is sent, or waits to be.
                if !nak {
                    return;
                }
                answer = Answer::Nak;
            }
        }
        let at_once = fack || answer != Answer::Ack;
        let due = if at_once { now } else { now + self.spec.ack_delay };
        self.answer_at(from, answer, due, at_once);
        if verdict == RxVerdict::Accept {
            self.deliver(now, from, mark);
        }
    }

    /// Takes a frame without an RC Link header; `None` if it is foreign or damaged.
    fn take_bare(&mut self, now: Instant, head: &Head, frame: &[u8], len: usize) -> Option<()> {
        let (Reading::Mark(mark), None) = receive_mark(head, len, frame, &self.spec.parse) else {
            return None;
        };
        let from = mark.stream;
        // Only a whole mark tells message and index of a frame.
        if !self.peers.is_source(from, head.src()) || !matches!(mark.seq, Seq::Whole(_)) {
            return None;
        }
        self.take_once(now, from, None, &mark, len);
        Some(())
    }

    /// Takes a frame that is sent only once, if there is room; `count` is the count of credits that it carries.
    fn take_once(&mut self, now: Instant, from: u16, count: Option<u16>, mark: &Mark, len: usize) {
        let has_credit = self.take_credits(now, from, None, count, len);
        let own_pri = self.own_pri;
        let slow = self.slow.as_mut();
        if !has_credit || slow.is_some_and(|slow| !slow.push(now, own_pri, len)) {
            self.stats.overruns += 1;
            return; // it is missing when the next one comes
        }
        if let Some(place) = self.peers.meet(from) {
            self.deliver(now, place, mark);
        }
    }

    /// Takes a frame's data. Frames of a message come in order, and a peer sends messages one after the other: frames
    /// skipped are lost.
    #[inline]
    fn deliver(&mut self, now: Instant, from: u16, mark: &Mark) {
        let (Seq::Whole(seq), bytes) = (mark.seq, mark.len as u64) else { return };
        let now = self.arrival_clock.map_or(now, |clock| clock());
        let FramePlace { message: id, index, is_last } = FramePlace::of_seq(seq);
        let Some(peer) = self.peers.at_mut(from) else { return };
        self.stats.rx_frames += 1;
        self.stats.rx_payload += bytes;
        self.last_taken = Some(now);
        if let Some(sent) = mark.sent {
            self.latency.record(now.since(sent));
        }
        let next = peer.incoming.next;
        let is_other = peer.incoming.id != id || index < next;
        if is_other {
            // The end of the message before is lost: at least one frame.
            self.stats.lost += u64::from(next > 0);
        }
        if is_other || next == 0 {
            let first = mark.sent.unwrap_or_default();
            peer.incoming = Incoming { bytes: 0, first, id, next: 0 };
            peer.has_first = mark.sent.is_some();
        }
        let missing = index.saturating_sub(peer.incoming.next);
        if missing > 0 {
            self.stats.lost += u64::from(missing);
            // A message that lacks a frame is not reported as delivered.
            peer.has_first = false;
        }
        peer.incoming.next = index.saturating_add(1);
        peer.incoming.bytes += bytes;
        let number = peer.number;
        if is_last {
            let Incoming { bytes, first, .. } = core::mem::take(&mut peer.incoming);
            if core::mem::take(&mut peer.has_first) {
                self.events.push(Event::Delivered { from: number, id, bytes, first, at: now });
            }
        }
        if self.spec.frame_events {
            let (bytes, sent) = (mark.len, mark.sent);
            self.events.push(Event::Received { from: number, id, index, bytes, sent, at: now });
        }
    }

    /// Handles frames to the peer at `to` that are sent again, or given up.
    pub(super) fn went_back(&mut self, now: Instant, to: u16, went: WentBack) {
        let WentBack::Fatal(frames) = went else { return };
        let number = self.peers.number(to);
        self.events.push(Event::Failed { to: number, frames, at: now });
        if let Some(peer) = self.peers.at_mut(to) {
            (peer.first, peer.last) = (NONE, NONE);
        }
        // No list may name the peer any more: a wait that ends would have it go on.
        self.writing.retain(|&other| other != to);
        self.masked.retain(|&(_, other)| other != to);
        self.cut.retain(|&(_, other)| other != to);
        self.waiting.retain(|&(_, other)| other != to);
        if let Some(credits) = &mut self.credits {
            credits.forget(number);
        }
        self.backlog.give_up(to);
    }

    fn take_control(&mut self, now: Instant, rate: LinkRate, head: &Head, frame: &[u8]) {
        match head.mac_control_opcode() {
            Some(opcode::PFC) if head.pfc_da() && self.credits.is_none() => match Pfc::parse(frame)
            {
                Ok(pfc) => {
                    self.stats.pfc_rx += 1;
                    self.pauses.receive(now, &pfc, rate);
                    self.stop_timers(now);
                    self.calm.disturb();
                }
                Err(_) => self.stats.foreign += 1,
            },
            _ => self.stats.foreign += 1,
        }
    }
}

/// The event of a message that is done, if one is.
#[inline]
pub(super) fn sent(done: Option<(u32, u64)>, at: Instant) -> Option<Event> {
    done.map(|(id, resent)| Event::Sent { id, resent, at })
}

/// Offset of the RC Link header; `None` if the frame has none.
fn rh_offset(head: &Head) -> Option<usize> {
    let front = ethernet::LEN + if head.tagged() { vlan::TAG_LEN } else { 0 };
    match head.format() {
        Format::Standard => Some(usize::from(head.l4_offset()?) + udp::LEN),
        Format::AfhGen1 | Format::AfhGen2 => Some(front),
        _ => None,
    }
}
