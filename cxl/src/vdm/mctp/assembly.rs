//! Reassembly of MCTP messages from packets.
//!
//! [`Assembler::push`] returns the body of a message when its last packet has come. There is one message at a time
//! for each port, peer, tag owner and tag.
//!
//! Units: bytes; picoseconds.
//! Source: DMTF DSP0236 section 8.1.5 (what ends an assembly); number and time of assemblies are ours.

use std::collections::BTreeMap;

use weft_dataplane::time::{Instant, Span};
use weft_parsers::fabric::Pid;
use weft_parsers::tlp::MctpPacket;

/// Longest CCI message in bytes: the largest size in Fabric Crawl Out (5701).
pub const MESSAGE_MAX: usize = u16::MAX as usize;
/// Messages under assembly at the same time.
pub const ASSEMBLIES_MAX: usize = 32;
/// Longest time to the next packet of a message: as for a peer that does not answer at all.
pub const PACKET_GAP: Span = Span::from_ms(100);
/// Longest body in bytes: type, message, padding.
const BODY_MAX: usize = 1 + MESSAGE_MAX + 3;

/// The component at the other end of a tunnel.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum Peer {
    /// The link partner at a port, by DPID FFF.
    Port(u8),
    /// A component of the fabric, by its PID.
    Pid(Pid),
}

/// Counts of packets and messages that were dropped before the message was complete.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct AssemblyCounts {
    /// Packets that belong to no message under assembly.
    pub orphans: u64,
    /// Messages with a packet lost, repeated or out of order.
    pub out_of_order: u64,
    /// Messages with packets of unequal length, or an empty packet.
    pub unit: u64,
    /// Messages that a new one with the same tag replaced.
    pub restarted: u64,
    /// Messages longer than the limit.
    pub too_long: u64,
    /// Messages whose next packet did not come in time.
    pub timed_out: u64,
    /// Messages beyond [`ASSEMBLIES_MAX`].
    pub no_room: u64,
}

#[derive(Clone, Debug)]
struct Assembly {
    bytes: Vec<u8>,
    next: u8,
    unit: usize,
    until: Instant,
}

/// Assembles packets into messages.
#[derive(Clone, Debug, Default)]
pub struct Assembler {
    open: BTreeMap<(u8, Peer, bool, u8), Assembly>,
    counts: AssemblyCounts,
}

impl Assembler {
    #[must_use]
    pub const fn counts(&self) -> AssemblyCounts {
        self.counts
    }

    /// Receives a packet that came by a port; returns the body that it completes.
    pub fn push(
        &mut self,
        now: Instant,
        port: u8,
        peer: Peer,
        packet: &MctpPacket<'_>,
    ) -> Option<Vec<u8>> {
        self.expire(now);
        let key = (port, peer, packet.owner, packet.tag & 7);
        let (body, next) = (packet.body(), (packet.seq + 1) & 3);
        // Taken out first: every error below ends the assembly.
        let had = self.open.remove(&key);
        let mut part = if packet.first {
            self.counts.restarted += u64::from(had.is_some());
            Assembly { bytes: Vec::new(), next: packet.seq, unit: body.len(), until: now }
        } else if let Some(part) = had {
            part
        } else {
            self.counts.orphans += 1;
            return None;
        };
        // All packets but the last carry one transmission unit, whose size the first one sets.
        let fits = if packet.last { body.len() <= part.unit } else { body.len() == part.unit };
        if packet.seq != part.next {
            self.counts.out_of_order += 1;
        } else if !fits || body.is_empty() {
            self.counts.unit += 1;
        } else if part.bytes.len() + body.len() > BODY_MAX {
            self.counts.too_long += 1;
        } else {
            part.bytes.extend_from_slice(body);
            if packet.last {
                return Some(part.bytes);
            }
            // Checked here and not at the first packet: a message of one packet needs no place.
            if self.open.len() < ASSEMBLIES_MAX {
                (part.next, part.until) = (next, now + PACKET_GAP);
                self.open.insert(key, part);
            } else {
                self.counts.no_room += 1;
            }
        }
        None
    }

    /// Drops messages that have waited for too long.
    pub fn expire(&mut self, now: Instant) {
        let had = self.open.len();
        self.open.retain(|_, part| part.until > now);
        self.counts.timed_out += (had - self.open.len()) as u64;
    }

    /// Drops everything that came from `peer`.
    pub fn forget(&mut self, peer: Peer) {
        self.open.retain(|key, _| key.1 != peer);
    }

    /// Time at which the first message expires.
    #[must_use]
    pub fn next_due(&self) -> Option<Instant> {
        self.open.values().map(|part| part.until).min()
    }
}
