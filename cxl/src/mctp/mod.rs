//! A component as an MCTP endpoint over a stream of packets of 68 bytes: bytes in, bytes out, no socket.
//!
//! [`Connection::receive`] takes what came, carries out each whole message and appends the packets of its response.
//!
//! Units: bytes; time as `Instant`.
//! Source: DMTF DSP0236 section 8; docs/mctp.md; docs/spec/wire-formats.md §4.1 (types 07h and 08h).
//!
//! Each connection is a bus of its own: with its own EID, and its own messages that are not whole. Who may command is not
//! said by EIDs, which are what the sender calls itself, but by the [`Session`] that the connection was made with.

pub mod assembly;
pub mod control;
pub mod datagrams;
#[cfg(test)]
mod tests;

use std::collections::BTreeSet;

use serde::{Deserialize, Serialize};
use weft_dataplane::time::Instant;
use weft_parsers::cci::mctp::MessageType;
use weft_parsers::cci::{Header, Uuid, header};
use weft_parsers::mctp::{EID_NULL, Packet, Transport, UNIT, packets};

use self::assembly::Assembler;
use self::control::{CONTROL, Control, cci_type};
use crate::cci::{Answer, Component, Requests, Right, Session, Ticket};

/// What became of packets and messages.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct MctpCounts {
    /// Packets that came.
    pub packets: u64,
    /// Messages with CCI requests that were carried out or refused.
    pub requests: u64,
    /// Control messages that were answered.
    pub control: u64,
    /// Packets of another version.
    pub version: u64,
    /// Packets to another EID than the endpoint was given.
    pub other_eid: u64,
    /// Packets without a message that they belong to.
    pub orphans: u64,
    /// Messages with a packet lost, twice or in another place.
    pub out_of_order: u64,
    /// Messages that were given up for another one with the same tag.
    pub restarted: u64,
    /// Messages that are too long.
    pub too_long: u64,
    /// Messages whose end did not come in time.
    pub timed_out: u64,
    /// Messages beyond those that are put together at once.
    pub no_room: u64,
    /// Messages of types that nobody here knows.
    pub unknown_type: u64,
    /// Messages that are no requests.
    pub no_request: u64,
    /// Responses that could not be sent.
    #[serde(default)]
    pub unsent: u64,
}

impl MctpCounts {
    /// Adds those of another connection.
    pub const fn add(&mut self, other: &Self) {
        self.packets += other.packets;
        self.requests += other.requests;
        self.control += other.control;
        self.version += other.version;
        self.other_eid += other.other_eid;
        self.orphans += other.orphans;
        self.out_of_order += other.out_of_order;
        self.restarted += other.restarted;
        self.too_long += other.too_long;
        self.timed_out += other.timed_out;
        self.no_room += other.no_room;
        self.unknown_type += other.unknown_type;
        self.no_request += other.no_request;
        self.unsent += other.unsent;
    }

    /// Packets and messages that were dropped as they came.
    #[must_use]
    pub const fn dropped(&self) -> u64 {
        self.version
            + self.other_eid
            + self.orphans
            + self.out_of_order
            + self.restarted
            + self.too_long
            + self.timed_out
            + self.no_room
            + self.unknown_type
            + self.no_request
    }
}

/// Where a response goes.
#[derive(Clone, Copy, Debug)]
struct Return {
    kind: MessageType,
    head: Transport,
}

/// Serves MCTP messages that come over one stream.
#[derive(Clone, Debug)]
pub struct Connection {
    requests: Requests<Return>,
    control: Control,
    assembler: Assembler,
    /// What has come of packets that were not carried out.
    bytes: Vec<u8>,
    counts: MctpCounts,
    /// Something has been dropped since the last whole message.
    is_behind: bool,
}

impl Connection {
    /// A connection of `session` by which nothing has come yet; `uuid` is the component's.
    #[must_use]
    pub fn new(session: Session, right: Right, uuid: Uuid) -> Self {
        Self {
            requests: Requests::new(session, right),
            control: Control::new(uuid),
            assembler: Assembler::default(),
            bytes: Vec::new(),
            counts: MctpCounts::default(),
            is_behind: false,
        }
    }

    /// Takes in `bytes` and carries out what is whole, until `most` bytes or more stand in `out`, to which the packets of
    /// responses are appended; whether whole packets may be left, for a next call without bytes.
    pub fn receive(
        &mut self,
        component: &mut dyn Component,
        now: Instant,
        bytes: &[u8],
        most: usize,
        out: &mut Vec<u8>,
    ) -> bool {
        self.expire(now);
        self.bytes.extend_from_slice(bytes);
        let all = core::mem::take(&mut self.bytes);
        let mut rest = all.as_slice();
        let mut is_left = false;
        while let Some((packet, behind)) = Packet::cut(rest) {
            if out.len() >= most {
                is_left = true;
                break;
            }
            rest = behind;
            self.counts.packets += 1;
            let before = self.counts.dropped();
            match Packet::parse(packet) {
                Ok(packet) => self.packet(component, now, &packet, out),
                Err(_) => self.counts.version += 1,
            }
            self.is_behind |= self.counts.dropped() > before;
        }
        self.bytes = rest.to_vec();
        is_left
    }

    fn packet(
        &mut self,
        component: &mut dyn Component,
        now: Instant,
        packet: &Packet<'_>,
        out: &mut Vec<u8>,
    ) {
        if !self.control.is_called(packet.head.dest) {
            self.counts.other_eid += 1;
            return;
        }
        let Some(message) = self.assembler.push(now, packet, &mut self.counts) else { return };
        let Some((&kind, body)) = message.split_first() else { return };
        // A response has a tag that its receiver owns, and nothing was asked from here.
        if !packet.head.owner {
            self.counts.no_request += 1;
            return;
        }
        // What is said of the EID now, which the message may change.
        let head = self.back(packet.head);
        if kind == CONTROL {
            let Some(answer) = self.control.answer(body) else {
                self.counts.no_request += 1;
                return;
            };
            self.counts.control += 1;
            self.is_behind = false;
            return send(head, kind, &answer, out);
        }
        let Some(kind) = cci_type(kind) else {
            self.counts.unknown_type += 1;
            return;
        };
        let from = Return { kind, head };
        let ignored = self.requests.ignored();
        let response = self.requests.carry_out(component, now, from, without_padding(body));
        if self.requests.ignored() > ignored {
            self.counts.no_request += 1;
            return;
        }
        self.counts.requests += 1;
        self.is_behind = false;
        if let Some(response) = response {
            send(from.head, kind as u8, &response, out);
        }
    }

    /// The header of what answers a message: its tag, to who asked, from the EID that was asked.
    const fn back(&self, asked: Transport) -> Transport {
        let source = match self.control.eid() {
            EID_NULL => asked.dest,
            eid => eid,
        };
        let (dest, tag) = (asked.source, asked.tag);
        Transport { dest, source, first: true, last: true, seq: 0, owner: false, tag }
    }

    /// Appends the packets of a response that was awaited; returns whether it is one of this connection's.
    pub fn resolve(&mut self, answer: &Answer, out: &mut Vec<u8>) -> bool {
        let Some(from) = self.requests.resolve(answer) else { return false };
        send(from.head, from.kind as u8, &answer.message, out);
        true
    }

    /// Gives up messages whose end has not come in time.
    pub fn expire(&mut self, now: Instant) {
        let before = self.counts.timed_out;
        self.assembler.expire(now, &mut self.counts);
        self.is_behind |= self.counts.timed_out > before;
    }

    /// When [`Self::expire`] has something to do next.
    #[must_use]
    pub fn next_due(&self) -> Option<Instant> {
        self.assembler.next_due()
    }

    /// Whether what has come is not a number of whole messages that somebody here has a use for.
    #[must_use]
    pub fn is_half(&self) -> bool {
        !self.bytes.is_empty() || self.assembler.held() > 0 || self.is_behind
    }

    /// Whether a whole message has come that somebody here has a use for, since the counts were taken last.
    #[must_use]
    pub const fn was_asked(&self) -> bool {
        self.counts.requests + self.counts.control > 0
    }

    /// The requests whose answers are awaited.
    #[must_use]
    pub fn tickets(&self) -> BTreeSet<Ticket> {
        self.requests.tickets()
    }

    /// What has been counted since the last time.
    pub fn take_counts(&mut self) -> MctpCounts {
        core::mem::take(&mut self.counts)
    }
}

/// A CCI message without the padding of its last packet: its header tells its length. Where that and the number of packets
/// do not agree, all is left, and the length is refused.
fn without_padding(body: &[u8]) -> &[u8] {
    let Ok((_, len, _)) = Header::cut(body) else { return body };
    let whole = header::LEN.saturating_add(len);
    match body.get(..whole) {
        Some(message) if body.len() - whole < UNIT => message,
        _ => body,
    }
}

/// Appends the packets of a message.
fn send(head: Transport, kind: u8, body: &[u8], out: &mut Vec<u8>) {
    for packet in packets(head, kind, body) {
        out.extend(packet);
    }
}
