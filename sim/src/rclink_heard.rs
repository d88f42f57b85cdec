//! Observations of an endpoint: the frames at its port, counts of credits, and the events it reports.
//!
//! A [`Reader`] turns the bytes of a frame into a [`Frame`]; a [`Heard`] is one observation. Lengths are bytes without
//! FCS.
//!
//! Source: docs/spec/wire-formats.md §1.5; docs/spec/model.md §4 "Messages".

use std::collections::BTreeMap;

use weft_dataplane::types::Pri;
use weft_hosts::frames::{FrameSpec, receive_front};
use weft_hosts::rclink::endpoint::{CreditUpdate, EndpointSpec, Event, Transport};
use weft_hosts::stamp::{Reading, Seq};
use weft_parsers::rh::{Rh, syndrome};
use weft_parsers::{AddrKey, Ecn, Format, HEAD_LEN, Head, Pfc, RhOpcode, ethernet, udp, vlan};

/// A frame at the port of an endpoint.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Frame {
    /// The endpoint at the other end; for PFC, the endpoint itself.
    pub peer: u16,
    /// Length in bytes, without FCS.
    pub len: usize,
    /// Priority by its headers.
    pub pri: Pri,
    /// Whether it carries ECN codepoint CE.
    pub ce: bool,
    /// Meaning of the frame.
    pub kind: FrameKind,
}

/// Meaning of a frame.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum FrameKind {
    /// A frame of a message.
    Data {
        /// Sequence number; `None` if frames are not sent again.
        psn: Option<u16>,
        /// Id of the message.
        message: u32,
        /// Index of the frame in its message, from 0.
        index: u32,
        /// Whether it is the last frame of its message.
        is_last: bool,
        /// Bytes of its payload.
        bytes: usize,
    },
    /// An ACK: all frames up to this PSN have come.
    Ack(u16),
    /// A sequence NAK: the frame with this PSN is missing.
    Nak(u16),
    /// An RNR NAK: the frame with this PSN found no room.
    NotReady(u16),
    /// A congestion notification (CNP).
    Cnp,
    /// A PFC frame, in either direction.
    Pfc(Pfc),
    /// Any other frame, damaged ones included.
    Other,
}

/// One observation of an endpoint.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Heard {
    /// The port took a frame from the endpoint.
    Sent(Frame),
    /// The port handed a frame to the endpoint.
    Came(Frame),
    /// A count of credits came from a peer, beside the data.
    Counted(u16, CreditUpdate),
    /// The endpoint reported this event.
    Said(Event),
    /// The endpoint has reported all events of a poll.
    Polled,
}

/// Reads the frames of one endpoint.
#[derive(Clone, Debug)]
pub struct Reader {
    spec: EndpointSpec,
    peers: BTreeMap<AddrKey, u16>,
}

impl Reader {
    /// A reader for the endpoint with this `spec`.
    #[must_use]
    pub fn new(spec: &EndpointSpec) -> Self {
        let key = |&station| FrameSpec { src: station, ..spec.frame.clone() }.source_key();
        let keys = spec.peers.iter().map(key);
        let peers = (0..).zip(keys).filter_map(|(peer, key)| Some((key?.0, peer)));
        Self { spec: spec.clone(), peers: peers.collect() }
    }

    /// Reads a frame of `len` bytes, of which `frame` has all or the front; `is_sent` if the endpoint sent it.
    #[must_use]
    pub fn read(&self, head: &[u8; HEAD_LEN], len: usize, frame: &[u8], is_sent: bool) -> Frame {
        let own = self.spec.number;
        let nothing =
            Frame { peer: own, len, pri: Pri::default(), ce: false, kind: FrameKind::Other };
        let Ok(received) = receive_front(head, len, frame, &self.spec.parse) else {
            return nothing;
        };
        let head = &received.head;
        if head.format() == Format::MacControl {
            let pfc = Pfc::parse(frame).ok().filter(|_| head.pfc_da());
            return Frame { kind: pfc.map_or(FrameKind::Other, FrameKind::Pfc), ..nothing };
        }
        // The other end is the receiver of a frame that the endpoint sends.
        let peer = self.peers.get(&if is_sent { head.dst() } else { head.src() });
        let (Some(&peer), None) = (peer, received.flaw) else { return nothing };
        let kind = kind(head, frame, &received.reading, self.spec.transport);
        let ce = head.ecn() == Some(Ecn::Ce);
        Frame {
            peer,
            len,
            pri: self.spec.classes.pri(head),
            ce,
            kind: kind.unwrap_or(FrameKind::Other),
        }
    }
}

fn kind(head: &Head, frame: &[u8], reading: &Reading, transport: Transport) -> Option<FrameKind> {
    let data = |psn| {
        let Reading::Mark(mark) = reading else { return None };
        let Seq::Whole(seq) = mark.seq else { return None };
        // The stamp's sequence number: message 32 bits, last frame 1, index 31. Written out here, apart from the
        // endpoint's own.
        let message = u32::try_from(seq >> 32).ok()?;
        let index = u32::try_from(seq & 0x7FFF_FFFF).ok()?;
        let is_last = seq >> 31 & 1 == 1;
        Some(FrameKind::Data { psn, message, index, is_last, bytes: mark.len })
    };
    let is_raw = transport == Transport::Raw && head.format() == Format::Other;
    if head.format() == Format::AfhLite || is_raw {
        return data(None);
    }
    // The PSN of a frame that is never sent again says nothing.
    let numbered = |psn| Some(psn).filter(|_| matches!(transport, Transport::Reliable { .. }));
    let front = ethernet::LEN + if head.tagged() { vlan::TAG_LEN } else { 0 };
    let at = match head.format() {
        Format::Standard => usize::from(head.l4_offset()?) + udp::LEN,
        Format::AfhGen1 | Format::AfhGen2 => front,
        _ => return None,
    };
    let (rh, _) = Rh::parse(frame.get(at..)?).ok()?;
    match (rh.opcode(), rh.len_or_syndrome()) {
        (RhOpcode::Send, _) => data(numbered(rh.psn())),
        (RhOpcode::Ack, syndrome::NAK_SEQUENCE) => Some(FrameKind::Nak(rh.psn())),
        (RhOpcode::Ack, code) if code & !0x1F == syndrome::RNR_NAK => {
            Some(FrameKind::NotReady(rh.psn()))
        }
        (RhOpcode::Ack, _) => Some(FrameKind::Ack(rh.psn())),
        (RhOpcode::Cnp, _) => Some(FrameKind::Cnp),
        (RhOpcode::Reserved, _) => None,
    }
}
