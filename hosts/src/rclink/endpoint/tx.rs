//! The sending half of an endpoint.
//!
//! Shape: PFC first, then CNPs and ACKs, then frames by their slots' grants; no more than the port has room for.
//! Units: bytes.
//! Source: docs/spec/model.md §4.

use weft_dataplane::batch::BURST;
use weft_dataplane::desc::Desc;
use weft_dataplane::pool::Bufs;
use weft_dataplane::port::Port;
use weft_dataplane::time::{Instant, LinkRate};
use weft_dataplane::types::{Pri, PriSet};
use weft_parsers::rh::syndrome;
use weft_parsers::{
    Dscp, Ecn, HEAD_LEN, Pcp, RhOpcode, Tci, TrafficClass, ethernet, mac_control, parse_head,
};

use super::peers::Answer;
use super::place::FramePlace;
use super::{Endpoint, EndpointSpec, Transport};
use crate::frames::{FrameError, FrameSpec};
use crate::rclink::slots::{Granted, Mask, Request};
use crate::sizes::Sizes;
use crate::stamp::{self, Stamp};

/// Most bursts that one poll sends, so that receiving is not starved.
const TX_BURSTS: usize = 4;

/// Why no frame was made.
enum Nothing {
    /// None is to be sent.
    ToSend,
    /// The pool has no room.
    Room,
}

fn is_open(paused: PriSet, pris: [Pri; 8], vc: u8) -> bool {
    !pris.get(usize::from(vc)).is_some_and(|&pri| paused.contains(pri))
}

/// A data frame; receiver and the RC Link header's PSN are still to be filled in.
pub(super) fn request_frame(spec: &EndpointSpec) -> FrameSpec {
    frame_of(spec, spec.request_vc, TrafficClass::FLOW_TYPE1_REQ)
}

/// An ACK or CNP, as [`request_frame`].
pub(super) fn answer_frame(spec: &EndpointSpec) -> FrameSpec {
    let mut frame = frame_of(spec, spec.ack_vc, TrafficClass::FLOW_TYPE1_ACK);
    frame.ecn = Ecn::NotEct; // there is nothing to slow down
    frame.stamped = false;
    frame.icrc = false;
    frame.sizes = Sizes::Fixed(frame.header_len().max(ethernet::MIN_FRAME_LEN));
    frame
}

fn frame_of(spec: &EndpointSpec, vc: u8, flow: u8) -> FrameSpec {
    let mut frame = spec.frame.clone();
    frame.tc = TrafficClass::new(vc, flow);
    put_on(&mut frame, vc);
    frame.rh.dest_qp = spec.number;
    frame
}

/// Puts a frame on another virtual channel; its flow stays.
pub(super) fn put_on(frame: &mut FrameSpec, vc: u8) {
    let tc = TrafficClass::new(vc, frame.tc.flow());
    frame.tc = tc;
    frame.dscp = Dscp::from_tos(tc.index() << 2);
    frame.vlan = frame.vlan.map(|tci| Tci::new(Pcp::from_low_bits(vc), tci.dei(), tci.vid()));
}

impl Endpoint {
    /// The priority of a frame, as the switch has it.
    pub(super) fn pri_of(&self, spec: &FrameSpec) -> Result<Pri, FrameError> {
        let stamp = Stamp { stream: self.spec.number, seq: 0, sent: Instant::ZERO };
        let frame = spec.to_vec(&stamp, 0)?;
        let mut head = [0; HEAD_LEN];
        for (to, from) in head.iter_mut().zip(&frame) {
            *to = *from;
        }
        let head = parse_head(&head, frame.len(), &self.spec.parse).unwrap_or_default();
        Ok(self.spec.classes.pri(&head))
    }

    /// Puts frames of messages into slots while there are some, messages to one endpoint after the other, endpoints in turn.
    fn fill_slots(&mut self) {
        while self.slots.has_room()
            && let Some(to) = self.writing.pop_front()
        {
            let Some(backlog) = self.backlog.get_mut(&to) else { continue };
            let Some(&message) = backlog.messages.front() else { continue };
            let (written, index) = backlog.written;
            let len = (message.bytes - written).min(self.spec.payload_max as u64);
            let is_last = written + len == message.bytes;
            let request = Request {
                qp: to,
                vc: self.spec.vc_to(to),
                len: u16::try_from(len).unwrap_or(u16::MAX),
                tag: FramePlace { message: message.id, index, is_last }.seq(),
            };
            if self.slots.write(request).is_err() {
                self.backlog.remove(&to); // the queue pair has failed
                continue;
            }
            if let Some(open) = self.open.get_mut(&message.id) {
                open.frames += 1;
                open.is_whole = is_last;
            }
            if is_last {
                backlog.messages.pop_front();
                backlog.written = (0, 0);
            } else {
                backlog.written = (written + len, index + 1);
            }
            if backlog.messages.is_empty() {
                self.backlog.remove(&to);
            } else {
                self.writing.push_back(to);
            }
        }
    }

    /// Sends what is due; returns how many frames the port took, and whether there is more and no room.
    pub(super) fn send_out(
        &mut self,
        now: Instant,
        port: &mut dyn Port,
        bufs: &mut Bufs,
    ) -> (usize, bool) {
        let rate = port.caps().rate;
        let mut sent = 0;
        for _ in 0..TX_BURSTS {
            let room = port.tx_room(now).min(BURST);
            if room == 0 {
                return (sent, self.has_work(now));
            }
            let mut batch = self.batch.take().unwrap_or_default();
            let mut starved = false;
            while batch.len() < room {
                let next = match self.pending.pop_front() {
                    Some(desc) => Ok(desc),
                    None => self.next_frame(now, rate, bufs),
                };
                match next {
                    Ok(desc) => batch.push(desc),
                    Err(nothing) => {
                        starved = matches!(nothing, Nothing::Room);
                        break;
                    }
                }
            }
            let built = batch.len();
            if built > 0 {
                port.tx(now, bufs, &mut batch);
            }
            sent += built - batch.len();
            let refused = !batch.is_empty();
            self.pending.extend(batch.drain(..));
            self.batch = Some(batch);
            if refused || starved {
                return (sent, true);
            }
            if built < room {
                return (sent, false);
            }
        }
        (sent, self.has_work(now))
    }

    /// Whether a frame is to be sent now.
    fn has_work(&mut self, now: Instant) -> bool {
        if !self.pending.is_empty() {
            return true;
        }
        self.fill_slots();
        let paused = self.pauses.paused();
        self.slow.as_ref().is_some_and(|slow| slow.to_send(now).is_some())
            || !paused.contains(self.ack_pri)
                && (self.cnp_place(now).is_some() || self.ack_place(now).is_some())
            || self.slots.is_ready(|vc| self.is_open(vc))
    }

    /// The place in turn of the first CNP that is due.
    fn cnp_place(&self, now: Instant) -> Option<usize> {
        self.cnps.iter().position(|&(to, at)| at <= now && self.may_answer(to))
    }

    /// The place in turn of the first ACK that is due.
    fn ack_place(&self, now: Instant) -> Option<usize> {
        self.acks.iter().position(|&to| {
            let due = self.peers.get(to).and_then(|peer| peer.ack_due);
            due.is_some_and(|at| at <= now) && self.may_answer(to)
        })
    }

    /// Makes the frame that goes next.
    fn next_frame(
        &mut self,
        now: Instant,
        rate: LinkRate,
        bufs: &mut Bufs,
    ) -> Result<Desc, Nothing> {
        if let Some(pfc) = self.slow.as_ref().and_then(|slow| slow.to_send(now)) {
            let mut frame = [0; mac_control::FRAME_LEN];
            pfc.emit(self.spec.frame.src.mac, &mut frame);
            let desc = bufs.alloc_from(&frame).ok_or(Nothing::Room)?;
            if let Some(slow) = &mut self.slow {
                slow.sent(now, rate);
            }
            self.stats.pfc_tx += 1;
            return Ok(desc);
        }
        let paused = self.pauses.paused();
        if !paused.contains(self.ack_pri) {
            if let Some(place) = self.cnp_place(now)
                && let Some(&(to, _)) = self.cnps.get(place)
            {
                let desc = self.make_answer(now, to, RhOpcode::Cnp, bufs).ok_or(Nothing::Room)?;
                self.cnps.remove(place);
                self.stats.cnps_tx += 1;
                return Ok(desc);
            }
            if let Some(place) = self.ack_place(now)
                && let Some(&to) = self.acks.get(place)
            {
                let desc = self.make_answer(now, to, RhOpcode::Ack, bufs).ok_or(Nothing::Room)?;
                self.acks.remove(place);
                if let Some(peer) = self.peers.get_mut(to) {
                    self.stats.acks_tx += 1;
                    self.stats.naks_tx += u64::from(peer.answer == Answer::Nak);
                    self.stats.rnrs_tx += u64::from(peer.answer == Answer::NotReady);
                    (peer.answer, peer.ack_due) = (Answer::Ack, None);
                }
                return Ok(desc);
            }
        }
        self.fill_slots();
        if !self.slots.is_ready(|vc| self.is_open(vc)) {
            return Err(Nothing::ToSend);
        }
        let desc = bufs.alloc().ok_or(Nothing::Room)?;
        let (paused, pris) = (self.pauses.paused(), self.request_pri);
        let granted = self.slots.grant(now, |vc| is_open(paused, pris, vc));
        let Some(granted) = granted else {
            bufs.free(desc);
            return Err(Nothing::ToSend);
        };
        Ok(self.make_request(now, granted, desc, bufs))
    }

    /// Whether the priority of a request's virtual channel is not stopped.
    fn is_open(&self, vc: u8) -> bool {
        is_open(self.pauses.paused(), self.request_pri, vc)
    }

    fn make_answer(
        &mut self,
        now: Instant,
        to: u16,
        opcode: RhOpcode,
        bufs: &mut Bufs,
    ) -> Option<Desc> {
        let peer = self.peers.get(to)?;
        let spec = &mut self.answer;
        spec.dst = self.peers.station(to)?;
        spec.rh.opcode = opcode;
        if opcode == RhOpcode::Ack {
            let (psn, code) = match peer.answer {
                Answer::Ack => (peer.rx.acknowledged(), syndrome::ACK),
                Answer::Nak => (peer.rx.expected(), syndrome::NAK_SEQUENCE),
                Answer::NotReady => {
                    let code = self.spec.rnr.unwrap_or_default();
                    (peer.rx.expected(), syndrome::RNR_NAK | code)
                }
            };
            (spec.rh.psn, spec.rh.syndrome) = (Some(psn), code);
        } else {
            (spec.rh.psn, spec.rh.syndrome) = (Some(0), 0);
        }
        let stamp = Stamp { stream: self.spec.number, seq: 0, sent: Instant::ZERO };
        let len = spec.header_len().max(ethernet::MIN_FRAME_LEN);
        let mut desc = bufs.alloc()?;
        if let Some(credits) = &mut self.credits {
            let vc = self.spec.ack_vc;
            spec.rh.timestamp = Some(credits.send(now, to, vc, len));
            if !credits.may_send(to, vc, false) {
                credits.starve(now, to, vc);
            }
        }
        bufs.set_len(&mut desc, len);
        let made = bufs.bytes_mut(&mut desc).map(|out| spec.emit_front(&stamp, len, out));
        debug_assert!(matches!(made, Some(Ok(()))), "it was checked when the endpoint was made");
        Some(desc)
    }

    fn make_request(
        &mut self,
        now: Instant,
        granted: Granted,
        mut desc: Desc,
        bufs: &mut Bufs,
    ) -> Desc {
        let Granted { request, psn, resent, first } = granted;
        let spec = &mut self.request;
        if let Some(station) = self.peers.station(request.qp) {
            spec.dst = station;
        }
        if spec.tc.vc() != request.vc {
            put_on(spec, request.vc);
        }
        spec.rh.psn = Some(psn);
        // A payload holds its mark at least.
        let payload = usize::from(request.len).max(stamp::LEN);
        let len = (spec.header_len() + payload + spec.trailer_len()).max(ethernet::MIN_FRAME_LEN);
        if let Some(credits) = &mut self.credits {
            let to = request.qp;
            spec.rh.timestamp = Some(credits.send(now, to, request.vc, len));
            if !credits.may_send(to, request.vc, true) {
                credits.starve(now, to, request.vc);
                self.slots.mask(to, Mask::Credit, true);
            }
        }
        let stamp = Stamp { stream: self.spec.number, seq: request.tag, sent: first };
        bufs.set_len(&mut desc, len);
        let made = bufs.bytes_mut(&mut desc).map(|out| spec.emit_front(&stamp, len, out));
        debug_assert!(
            matches!(made, Some(Ok(()))),
            "the frame was checked when the endpoint was made"
        );
        self.first_sent = self.first_sent.or(Some(now));
        self.stats.tx_frames += 1;
        self.stats.tx_payload += u64::from(request.len);
        if resent {
            self.stats.resent += 1;
            let message = FramePlace::of_seq(request.tag).message;
            if let Some(open) = self.open.get_mut(&message) {
                open.resent += 1;
            }
        }
        if self.spec.transport == Transport::Lite {
            self.complete(now, [request.tag]);
        }
        if let Some(rate) = self.peers.get_mut(request.qp).and_then(|peer| peer.rate.as_mut()) {
            rate.window.granted(now, len);
            let free = rate.window.free_at(now);
            if free > now {
                self.slots.mask(request.qp, Mask::Rate, true);
                self.masked.push((free, request.qp));
            }
        }
        desc
    }
}
