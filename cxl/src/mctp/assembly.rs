//! Packets of MCTP messages on their way to whole ones, of one connection.
//!
//! [`Assembler::push`] -> a whole message; one message at a time of each source EID, tag and tag owner.
//!
//! Units: bytes; picoseconds.
//! Source: DMTF DSP0236 section 8.1.5 (what ends an assembly); number, length and time of assemblies are ours:
//! docs/mctp.md "Limits".

use std::collections::BTreeMap;

use weft_dataplane::time::{Instant, Span};
use weft_parsers::mctp::{Packet, Transport, UNIT};

use super::MctpCounts;

/// Longest message, with its type and the padding of its last packet.
pub const MESSAGE_MAX: usize = 1 << 16;
/// Messages that are put together at once.
pub const ASSEMBLIES_MAX: usize = 32;
/// Bytes of them in all.
pub const BYTES_MAX: usize = 4 * MESSAGE_MAX;
/// How long a message may take from its first packet to its last.
pub const MESSAGE_TIME: Span = Span::from_ms(5_000);

/// What a packet belongs to: source EID, tag owner, tag.
type Terminus = (u8, bool, u8);

#[derive(Clone, Debug)]
struct Assembly {
    bytes: Vec<u8>,
    next: u8,
    until: Instant,
}

/// Puts packets together to messages.
#[derive(Clone, Debug, Default)]
pub struct Assembler {
    open: BTreeMap<Terminus, Assembly>,
    /// Bytes of all that is open.
    held: usize,
}

impl Assembler {
    /// Takes a packet in; returns the message that it completes, with its padding.
    pub fn push(
        &mut self,
        now: Instant,
        packet: &Packet<'_>,
        counts: &mut MctpCounts,
    ) -> Option<Vec<u8>> {
        let Transport { source, owner, tag, first, last, seq, .. } = packet.head;
        let key = (source, owner, tag);
        let had = self.open.remove(&key);
        self.held -= had.as_ref().map_or(0, |part| part.bytes.len());
        let mut part = if first {
            counts.restarted += u64::from(had.is_some());
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

    /// Gives up what is not whole in time.
    pub fn expire(&mut self, now: Instant, counts: &mut MctpCounts) {
        let had = self.open.len();
        self.open.retain(|_, part| part.until > now);
        self.held = self.open.values().map(|part| part.bytes.len()).sum();
        counts.timed_out += (had - self.open.len()) as u64;
    }

    /// When the first is given up; none where all are whole.
    #[must_use]
    pub fn next_due(&self) -> Option<Instant> {
        self.open.values().map(|part| part.until).min()
    }

    /// Bytes of messages that are not whole.
    #[must_use]
    pub const fn held(&self) -> usize {
        self.held
    }
}
