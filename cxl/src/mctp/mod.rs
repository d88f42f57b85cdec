//! A component as an MCTP endpoint over a stream of 68-byte packets: bytes in, bytes out, no socket.
//!
//! [`Connection::receive`] takes received bytes, carries out each complete message and appends the packets of its
//! response.
//!
//! Units: bytes; time as `Instant`.
//! Source: DMTF DSP0236 section 8; docs/mctp.md; docs/spec/wire-formats.md §4.1 (types 07h and 08h).
//!
//! Each connection is a bus of its own, with its own EID and its own incomplete messages. Rights depend on the
//! [`Session`] that the connection was made with, and not on EIDs, which senders choose freely.

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

/// Counts of packets and messages of a connection.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct MctpCounts {
    /// Packets received, dropped ones included.
    pub packets: u64,
    /// Messages with CCI requests, carried out or refused.
    pub requests: u64,
    /// Control messages that were answered.
    pub control: u64,
    /// Packets with another header version.
    pub version: u64,
    /// Packets to an EID that is not the endpoint's.
    pub other_eid: u64,
    /// Packets that belong to no message under assembly.
    pub orphans: u64,
    /// Messages with a packet lost, repeated or out of order.
    pub out_of_order: u64,
    /// Messages that a new one with the same tag replaced.
    pub restarted: u64,
    /// Messages longer than the limit.
    pub too_long: u64,
    /// Messages that were incomplete when their time was over.
    pub timed_out: u64,
    /// Messages beyond the limit of those under assembly.
    pub no_room: u64,
    /// Messages of a type that the endpoint does not have.
    pub unknown_type: u64,
    /// Messages that are no requests.
    pub no_request: u64,
    /// Responses that could not be sent.
    #[serde(default)]
    pub unsent: u64,
}

impl MctpCounts {
    /// Adds the counts of another connection.
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

    /// Number of received packets and messages that were dropped.
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

/// Destination of a response.
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
    /// Bytes received and not processed: part of a packet, or packets left for the next call.
    bytes: Vec<u8>,
    counts: MctpCounts,
    /// A packet or message was dropped since the last complete one.
    is_behind: bool,
}

impl Connection {
    /// A connection of `session` without any input yet; `uuid` is the component's.
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

    /// Appends `bytes` to the input and carries out complete messages until `out`, to which their responses are
    /// appended, has at least `most` bytes. Returns whether complete packets may be left, for another call without
    /// bytes.
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
            // Checked before each packet: a client that does not read its responses must not make `out` grow.
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
            // A client that only sends garbage must not count as one that makes progress: see [`Self::is_half`].
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
        // The receiver of a response owns its tag, and this endpoint sends no requests.
        if !packet.head.owner {
            self.counts.no_request += 1;
            return;
        }
        // Before the message is carried out, as Set Endpoint ID changes the EID that its response comes from.
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
        // Without a response the request may be pending, or the message was no request; the count tells which.
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

    /// Header of the response to a message: the same tag, to its sender, from the EID that it was sent to.
    const fn back(&self, asked: Transport) -> Transport {
        // Until it has an EID, the endpoint answers from the one that the sender used.
        let source = match self.control.eid() {
            EID_NULL => asked.dest,
            eid => eid,
        };
        let (dest, tag) = (asked.source, asked.tag);
        Transport { dest, source, first: true, last: true, seq: 0, owner: false, tag }
    }

    /// Appends the packets of a response that was pending; returns whether it belongs to this connection.
    pub fn resolve(&mut self, answer: &Answer, out: &mut Vec<u8>) -> bool {
        let Some(from) = self.requests.resolve(answer) else { return false };
        send(from.head, from.kind as u8, &answer.message, out);
        true
    }

    /// Drops messages that are incomplete after their time.
    pub fn expire(&mut self, now: Instant) {
        let before = self.counts.timed_out;
        self.assembler.expire(now, &mut self.counts);
        self.is_behind |= self.counts.timed_out > before;
    }

    /// Time of the next call of [`Self::expire`].
    #[must_use]
    pub fn next_due(&self) -> Option<Instant> {
        self.assembler.next_due()
    }

    /// Whether the input ends within a message, or the last of it was dropped. The caller then closes the
    /// connection unless a complete message follows in time.
    #[must_use]
    pub fn is_half(&self) -> bool {
        !self.bytes.is_empty() || self.assembler.held() > 0 || self.is_behind
    }

    /// Whether a complete request has come since the counts were taken.
    #[must_use]
    pub const fn was_asked(&self) -> bool {
        self.counts.requests + self.counts.control > 0
    }

    /// Tickets of all requests that wait for their response.
    #[must_use]
    pub fn tickets(&self) -> BTreeSet<Ticket> {
        self.requests.tickets()
    }

    /// Returns the counts, and starts them from zero.
    pub fn take_counts(&mut self) -> MctpCounts {
        core::mem::take(&mut self.counts)
    }
}

/// A CCI message without the padding of its last packet, by the length in its header. If that does not fit the
/// number of packets, the whole body is returned, and `serve` refuses its length.
fn without_padding(body: &[u8]) -> &[u8] {
    let Ok((_, len, _)) = Header::cut(body) else { return body };
    let whole = header::LEN.saturating_add(len);
    match body.get(..whole) {
        // Padding is shorter than a packet.
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
