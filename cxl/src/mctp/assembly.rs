//! Reassembly of MCTP messages of one connection from packets.
//!
//! [`Assembler::push`] returns a message when its last packet has come. There is one message at a time for each
//! source EID, tag and tag owner.
//!
//! Units: bytes; picoseconds.
//! Source: DMTF DSP0236 section 8.1.5 (what ends an assembly); number, length and time of assemblies are ours:
//! docs/mctp.md "Limits".

use std::collections::BTreeMap;

use weft_dataplane::time::{Instant, Span};
use weft_parsers::mctp::{Packet, Transport, UNIT};

use super::MctpCounts;

/// Longest message in bytes, with its type and the padding of its last packet.
pub const MESSAGE_MAX: usize = 1 << 16;
/// Messages under assembly at the same time.
pub const ASSEMBLIES_MAX: usize = 32;
/// Bytes of all messages under assembly.
pub const BYTES_MAX: usize = 4 * MESSAGE_MAX;
/// Longest time from the first packet of a message to its last.
pub const MESSAGE_TIME: Span = Span::from_ms(5_000);

/// Key of a message: source EID, tag owner, tag.
type Terminus = (u8, bool, u8);

#[derive(Clone, Debug)]
struct Assembly {
    bytes: Vec<u8>,
    next: u8,
    until: Instant,
}

/// Assembles packets into messages.
#[derive(Clone, Debug, Default)]
pub struct Assembler {
    open: BTreeMap<Terminus, Assembly>,
    /// Bytes of all messages in `open`.
    held: usize,
}

impl Assembler {
    /// Takes a packet; returns the message that it completes, with padding.
    pub fn push(
        &mut self,
        now: Instant,
        packet: &Packet<'_>,
        counts: &mut MctpCounts,
    ) -> Option<Vec<u8>> {
        let Transport { source, owner, tag, first, last, seq, .. } = packet.head;
        let key = (source, owner, tag);
        // Taken out first: every error below ends the assembly (DSP0236, 8.1.5).
        let had = self.open.remove(&key);
        self.held -= had.as_ref().map_or(0, |part| part.bytes.len());
        let mut part = if first {
            counts.restarted += u64::from(had.is_some());
            // One time limit for the whole message: a slow sender must not hold a place with a packet now and then.
            Assembly { bytes: Vec::new(), next: seq, until: now + MESSAGE_TIME }
        } else if let Some(part) = had {
            part
        } else {
            counts.orphans += 1;
            return None;
        };
        if seq != part.next {
            counts.out_of_order += 1;
            return None;
        }
        if part.bytes.len() + UNIT > MESSAGE_MAX {
            counts.too_long += 1;
            return None;
        }
        part.bytes.extend_from_slice(packet.payload);
        if last {
            return Some(part.bytes);
        }
        // The packet's own bytes are not in `held` yet.
        let is_full = self.open.len() >= ASSEMBLIES_MAX || self.held + part.bytes.len() > BYTES_MAX;
        if is_full {
            counts.no_room += 1;
            return None;
        }
        part.next = (seq + 1) & 3;
        self.held += part.bytes.len();
        self.open.insert(key, part);
        None
    }

    /// Drops messages that are incomplete after their time.
    pub fn expire(&mut self, now: Instant, counts: &mut MctpCounts) {
        let had = self.open.len();
        self.open.retain(|_, part| part.until > now);
        self.held = self.open.values().map(|part| part.bytes.len()).sum();
        counts.timed_out += (had - self.open.len()) as u64;
    }

    /// Time at which the first message expires; `None` without incomplete messages.
    #[must_use]
    pub fn next_due(&self) -> Option<Instant> {
        self.open.values().map(|part| part.until).min()
    }

    /// Bytes of all incomplete messages.
    #[must_use]
    pub const fn held(&self) -> usize {
        self.held
    }
}
