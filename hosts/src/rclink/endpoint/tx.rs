//! The sending half of an endpoint.
//!
//! PFC goes first, then CNPs, ACKs, and requests as their slots are granted; never more than the port has room for.
//!
//! Source: docs/spec/model.md §4.

use weft_dataplane::time::{Instant, LinkRate};
use weft_dataplane::types::{Pri, PriSet};
use weft_parsers::rh::syndrome;
use weft_parsers::{
    Dscp, Ecn, HEAD_LEN, Pcp, RhOpcode, Tci, TrafficClass, mac_control, parse_head,
};

use super::backlog::NONE;
use super::peers::Answer;
use super::place::FramePlace;
use super::rx::sent;
use super::{Endpoint, EndpointSpec, Transport};
use crate::frames::{FrameError, FrameSpec, Own};
use crate::link::Link;
use crate::rclink::slots::{Granted, Mask, Request};
use crate::sizes::Sizes;
use crate::stamp::{self, Stamp};

/// Most bursts sent by one poll, so that receiving is not starved.
const TX_BURSTS: usize = 4;

/// Why no frame was sent.
enum Nothing {
    /// No frame is due.
    ToSend,
    /// The pool has no chunk.
    Room,
}

/// Virtual channels whose priority is not paused, as bits.
fn open_vcs(paused: PriSet, pris: [Pri; 8]) -> u8 {
    if paused.is_empty() {
        return u8::MAX;
    }
    let open = (0_u8..).zip(pris).filter(|&(_, pri)| !paused.contains(pri));
    open.fold(0, |vcs, (vc, _)| vcs | 1 << vc)
}

/// Template of data frames; receiver and PSN are filled in for each.
pub(super) fn request_frame(spec: &EndpointSpec) -> FrameSpec {
    let flow = match spec.transport {
        Transport::Unreliable { .. } => TrafficClass::FLOW_TYPE2,
        Transport::Raw => TrafficClass::FLOW_TYPE3,
        Transport::Reliable { .. } | Transport::Lite => TrafficClass::FLOW_TYPE1_REQ,
    };
    frame_of(spec, spec.request_vc, flow)
}

/// Template of ACKs and CNPs, like [`request_frame`].
pub(super) fn answer_frame(spec: &EndpointSpec) -> FrameSpec {
    let mut frame = frame_of(spec, spec.ack_vc, TrafficClass::FLOW_TYPE1_ACK);
    frame.ecn = Ecn::NotEct; // there is nothing to slow down
    frame.stamped = false;
    frame.icrc = false;
    frame.sizes = Sizes::Fixed(spec.padded_len(frame.header_len()));
    frame
}

fn frame_of(spec: &EndpointSpec, vc: u8, flow: u8) -> FrameSpec {
    let mut frame = spec.frame.clone();
    frame.tc = TrafficClass::new(vc, flow);
    put_on(&mut frame, vc);
    // Endpoint n's frames are for queue pair n, wherever they go (docs/spec/model.md §4).
    frame.rh.dest_qp = spec.number;
    frame
}

/// Puts a frame on another virtual channel; its flow stays.
pub(super) fn put_on(frame: &mut FrameSpec, vc: u8) {
    // Traffic Class, DSCP and PCP all carry the channel: a switch sees it in whichever field it trusts.
    let tc = TrafficClass::new(vc, frame.tc.flow());
    frame.tc = tc;
    frame.dscp = Dscp::from_tos(tc.index() << 2);
    frame.vlan = frame.vlan.map(|tci| Tci::new(Pcp::from_low_bits(vc), tci.dei(), tci.vid()));
}

/// Priority of a frame, as a switch classifies it.
pub(super) fn pri_of(spec: &EndpointSpec, frame: &FrameSpec) -> Result<Pri, FrameError> {
    let stamp = Stamp { stream: spec.number, seq: 0, sent: Instant::ZERO };
    let frame = frame.to_vec(&stamp, 0)?;
    let mut head = [0; HEAD_LEN];
    for (to, from) in head.iter_mut().zip(&frame) {
        *to = *from;
    }
    let head = parse_head(&head, frame.len(), &spec.parse).unwrap_or_default();
    Ok(spec.classes.pri(&head))
}

impl Endpoint {
    /// Puts frames into slots while any is free: messages to one peer one after the other, peers in turn.
    #[inline]
    pub(super) fn fill_slots(&mut self) {
        if self.slots.has_room() && !self.writing.is_empty() {
            self.fill();
        }
    }

    #[inline(never)]
    fn fill(&mut self) {
        while self.slots.has_room()
            && let Some(&to) = self.writing.front()
        {
            let is_taken = self.fill_one(to);
            // Peers take turns; a single one stays in front.
            if !is_taken {
                self.writing.pop_front();
            } else if self.writing.len() > 1 {
                self.writing.rotate_left(1);
            }
        }
    }

    /// Puts the next frame for the peer at `to` into a slot; false if that was the last one.
    #[inline]
    fn fill_one(&mut self, to: u16) -> bool {
        let Some(peer) = self.peers.at_mut(to) else { return false };
        let message = peer.first;
        let Some(part) = self.backlog.next(message, self.spec.payload_max) else { return false };
        let place = FramePlace { message, index: part.index, is_last: part.is_last };
        let request = Request {
            qp: to,
            vc: self.spec.vc_to(peer.number),
            len: u16::try_from(part.len).unwrap_or(u16::MAX),
            tag: place.seq(),
        };
        if self.slots.write(request).is_err() {
            (peer.first, peer.last) = (NONE, NONE); // the queue pair has failed
            return false;
        }
        self.backlog.written(message, part);
        if part.is_last {
            peer.first = self.backlog.after(message);
        }
        peer.first != NONE
    }

    /// Sends frames that are due; returns how many the port took, and whether more are due and have no room.
    #[inline]
    pub(super) fn send_out(&mut self, now: Instant, link: &mut impl Link) -> (usize, bool) {
        let mut sent = 0;
        for _ in 0..TX_BURSTS {
            let room = link.room(now);
            if room == 0 {
                // Filling waits until frames can be sent; `send` makes up for it before it takes a message.
                self.is_to_fill = true;
                return (sent, self.has_work(now, link));
            }
            let mut built = link.again(room);
            let mut starved = false;
            while built < room {
                match self.next_frame(now, link) {
                    Ok(()) => built += 1,
                    Err(nothing) => {
                        starved = matches!(nothing, Nothing::Room);
                        break;
                    }
                }
            }
            let (taken, is_refused) = link.flush(now);
            sent += taken;
            if is_refused || starved {
                return (sent, true);
            }
            if built < room {
                return (sent, false);
            }
        }
        self.is_to_fill = true;
        (sent, self.has_work(now, link))
    }

    /// Whether a frame is due now.
    #[inline]
    fn has_work(&mut self, now: Instant, link: &impl Link) -> bool {
        link.has_pending() || self.slots.is_ready(self.open_vcs()) || self.has_other_work(now)
    }

    #[inline(never)]
    fn has_other_work(&mut self, now: Instant) -> bool {
        self.fill_slots();
        self.slots.is_ready(self.open_vcs())
            || self.slow.as_ref().is_some_and(|slow| slow.to_send(now).is_some())
            || !self.pauses.paused().contains(self.ack_pri)
                && (self.cnp_place(now).is_some() || self.ack_place(now).is_some())
    }

    /// Index in `cnps` of the first that is due and has credit.
    #[inline]
    fn cnp_place(&self, now: Instant) -> Option<usize> {
        self.cnps.iter().position(|&(to, at)| at <= now && self.may_answer(to))
    }

    /// Index in `acks` of the first that is due and has credit.
    #[inline]
    fn ack_place(&self, now: Instant) -> Option<usize> {
        let is_due = |&(to, at): &(u16, Instant)| at <= now && self.may_answer(to);
        if self.acks.front().is_some_and(is_due) {
            return Some(0);
        }
        self.acks.iter().position(is_due)
    }

    /// Sends the next frame in order of precedence.
    #[inline]
    fn next_frame(&mut self, now: Instant, link: &mut impl Link) -> Result<(), Nothing> {
        if self.slow.is_some()
            && let Some(is_sent) = self.send_pfc(now, link)
        {
            return is_sent;
        }
        let has_answers = !(self.acks.is_empty() && self.cnps.is_empty());
        if has_answers
            && !self.pauses.paused().contains(self.ack_pri)
            && let Some(is_sent) = self.send_answer(now, link)
        {
            return is_sent;
        }
        self.fill_slots();
        let vcs = self.open_vcs();
        if !self.slots.is_ready(vcs) {
            return Err(Nothing::ToSend);
        }
        // Before the grant, which cannot be taken back: a granted slot counts as sent.
        if !link.reserve() {
            return Err(Nothing::Room);
        }
        let Some(granted) = self.slots.grant(now, vcs) else {
            link.unreserve();
            return Err(Nothing::ToSend);
        };
        self.make_request(now, &granted, link);
        Ok(())
    }

    /// Sends a PFC frame, if one is due.
    fn send_pfc(&mut self, now: Instant, link: &mut impl Link) -> Option<Result<(), Nothing>> {
        let slow = self.slow.as_mut()?;
        let pfc = slow.to_send(now)?;
        if !link.reserve() {
            return Some(Err(Nothing::Room));
        }
        let rate: LinkRate = link.rate();
        link.send(now, mac_control::FRAME_LEN, |out| {
            if let Some(out) = out.first_chunk_mut() {
                pfc.emit(self.spec.frame.src.mac, out);
            }
        });
        slow.sent(now, rate);
        self.stats.pfc_tx += 1;
        Some(Ok(()))
    }

    /// Sends a CNP or an ACK, if one is due.
    #[inline]
    fn send_answer(&mut self, now: Instant, link: &mut impl Link) -> Option<Result<(), Nothing>> {
        if !self.cnps.is_empty()
            && let Some(place) = self.cnp_place(now)
            && let Some(&(to, _)) = self.cnps.get(place)
        {
            if !link.reserve() {
                return Some(Err(Nothing::Room));
            }
            self.cnps.remove(place);
            self.stats.cnps_tx += 1;
            self.make_answer(now, to, RhOpcode::Cnp, 0, 0, link);
            return Some(Ok(()));
        }
        let place = self.ack_place(now)?;
        if !link.reserve() {
            return Some(Err(Nothing::Room));
        }
        self.send_ack(now, place, link);
        Some(Ok(()))
    }

    /// Sends the ACK at index `place` of `acks`, for which memory is reserved.
    #[inline]
    pub(super) fn send_ack(&mut self, now: Instant, place: usize, link: &mut impl Link) {
        let taken = if place == 0 { self.acks.pop_front() } else { self.acks.remove(place) };
        let Some((to, _)) = taken else { return };
        let Some(peer) = self.peers.at_mut(to) else { return };
        self.stats.acks_tx += 1;
        // Decided now, so that one ACK covers every frame that came while it waited.
        let (psn, code) = match peer.answer.take() {
            None | Some(Answer::Ack) => (peer.rx.acknowledged(), syndrome::ACK),
            Some(Answer::Nak) => {
                self.stats.naks_tx += 1;
                (peer.rx.expected(), syndrome::NAK_SEQUENCE)
            }
            Some(Answer::NotReady) => {
                self.stats.rnrs_tx += 1;
                let code = self.spec.rnr.unwrap_or_default();
                (peer.rx.expected(), syndrome::RNR_NAK | code)
            }
        };
        self.make_answer(now, to, RhOpcode::Ack, psn, code, link);
    }

    /// Virtual channels of requests whose priority is not paused, as bits.
    #[inline]
    fn open_vcs(&self) -> u8 {
        open_vcs(self.pauses.paused(), self.request_pri)
    }

    /// Ends pauses that are over, and lets the timers that they stopped run.
    pub(super) fn end_pauses(&mut self, now: Instant) {
        let was = self.pauses.paused();
        self.pauses.tick(now);
        if self.pauses.paused() != was {
            self.stop_timers(now);
        }
    }

    /// Stops the timers of requests whose priority is paused, and lets the others run. Frames sent before the pause
    /// wait in the switch that asked for it, for as long as that takes, and could not be sent again anyway.
    pub(super) fn stop_timers(&mut self, now: Instant) {
        self.slots.stop_timers(now, !self.open_vcs());
    }

    /// Sends an ACK or a CNP to the peer at `to`, for which memory is reserved.
    #[inline]
    fn make_answer(
        &mut self,
        now: Instant,
        to: u16,
        opcode: RhOpcode,
        psn: u16,
        syndrome: u8,
        link: &mut impl Link,
    ) {
        let number = self.peers.number(to);
        let Some(dst) = self.peers.station(number) else { return };
        let len = self.answer_len;
        let mut timestamp = None;
        if let Some(credits) = &mut self.credits {
            let vc = self.spec.ack_vc;
            timestamp = Some(credits.send(now, number, vc, len));
            // Asked after the frame has used its credits: the next one to this peer may have to wait.
            if !credits.may_send(number, vc, false) {
                credits.starve(now, number, vc);
            }
        }
        let own = Own { dst, opcode, psn, syndrome, timestamp };
        let stamp = Stamp { stream: self.spec.number, seq: 0, sent: Instant::ZERO };
        link.send(now, len, |out| {
            let made = self.answer.write(&own, &stamp, len, out);
            debug_assert_eq!(made, Ok(()), "it was checked when the endpoint was made");
        });
    }

    #[inline]
    pub(super) fn make_request(&mut self, now: Instant, granted: &Granted, link: &mut impl Link) {
        let &Granted { request, psn, resent, first } = granted;
        let number = self.peers.number(request.qp);
        let Some(dst) = self.peers.station(number) else { return };
        if self.written_vc != request.vc {
            self.written_vc = request.vc;
            self.request.change(|spec| put_on(spec, request.vc));
        }
        // A payload holds its mark at least.
        let payload = usize::from(request.len).max(stamp::LEN);
        let len = self.spec.padded_len(self.request_ends + payload);
        let mut timestamp = None;
        if let Some(credits) = &mut self.credits {
            timestamp = Some(credits.send(now, number, request.vc, len));
            if !credits.may_send(number, request.vc, true) {
                credits.starve(now, number, request.vc);
                self.slots.mask(request.qp, Mask::Credit, true);
            }
        }
        let place = FramePlace::of_seq(request.tag);
        // Slots know a message by its index in the backlog, the receiver by its id.
        let seq = FramePlace { message: self.backlog.id(place.message), ..place }.seq();
        let stamp = Stamp { stream: self.spec.number, seq, sent: first };
        let own = Own { dst, opcode: RhOpcode::Send, psn, syndrome: 0, timestamp };
        link.send(now, len, |out| {
            let made = self.request.write(&own, &stamp, len, out);
            debug_assert_eq!(made, Ok(()), "it was checked when the endpoint was made");
        });
        self.first_sent = self.first_sent.or(Some(now));
        self.stats.tx_frames += 1;
        self.stats.tx_payload += u64::from(request.len);
        if resent {
            self.stats.resent += 1;
            self.backlog.resent(place.message);
        }
        // Without ACKs a frame is done when it is sent.
        if self.spec.transport.timeout().is_none() {
            self.events.extend(sent(self.backlog.complete(place.message), now));
        }
        if let Some(rate) = self.peers.rate(request.qp) {
            rate.window.granted(now, len);
            let free = rate.window.free_at(now);
            if free > now {
                self.slots.mask(request.qp, Mask::Rate, true);
                self.masked.push((free, request.qp));
            }
        }
    }
}
