//! Plain values that go into and come out of the FDB: configuration, results of calls, events, counters.
//!
//! Source: docs/spec/pipeline.md §3 and §10.

use super::entry::FdbKey;
#[cfg(doc)]
use super::{Fdb, MOVES_MAX};
use crate::time::Span;
use crate::types::{PortId, PortSet};

/// Default capacity in entries.
pub const CAPACITY: usize = 65_536;
/// Default lifetime of a learned entry after its station's last frame.
pub const AGEING: Span = Span::from_ms(300_000);

/// Default time for which a port of a loop is blocked.
pub const LOOP_BLOCK: Span = Span::from_ms(10_000);
/// Default time for which a station that moved too often is held at its former port.
pub const STICKY: Span = Span::from_ms(10_000);

/// Sizes, hash seed and ageing time that a forwarding database is built with.
#[derive(Clone, Copy, Debug)]
pub struct FdbConfig {
    /// Maximum number of entries, static ones included.
    pub capacity: usize,
    /// Seed of the hash, from the configuration; runs with the same seed place entries alike.
    pub seed: u64,
    /// Lifetime of a learned entry after its station's last frame; zero for no limit.
    pub ageing: Span,
    /// Learn events that can wait for control; further ones are lost and counted.
    pub events: usize,
}

impl Default for FdbConfig {
    fn default() -> Self {
        Self { capacity: CAPACITY, seed: 0, ageing: AGEING, events: 1_024 }
    }
}

/// The port that an address was found behind.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Hit {
    /// The port that the address is behind.
    pub port: PortId,
    /// Whether it is a static entry.
    pub is_static: bool,
}

/// State of a frame's source in the FDB.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum SourceState {
    /// Learned on this port; its age has been refreshed.
    Known,
    /// A static entry, on this or another port; nothing to learn.
    Static,
    /// No entry: to be learned.
    Unknown,
    /// Learned on this other port: to be learned again.
    OnOtherPort(PortId),
}

/// A source to be learned, and the frame that it was seen in.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Source {
    /// VLAN, address space and address.
    pub key: FdbKey,
    /// Digest of the frame, which tells it from others.
    pub frame: u64,
}

/// Result of a request to learn an address.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Learned {
    /// A new entry was made.
    New,
    /// The entry was on another port before.
    Moved {
        /// The port that it left.
        from: PortId,
    },
    /// The address moves too often: more than [`MOVES_MAX`] times within a second.
    Looping {
        /// The port where it was before it began to move.
        home: PortId,
        /// The other port, to which it moves from `home` or from which it returns.
        other: PortId,
    },
    /// Moved too often, and is held at its port for a while.
    Held,
    /// The entry existed; it was refreshed.
    Known,
    /// Refused: the port has reached its `max_learned`.
    PortLimit,
    /// Refused: the table has no room.
    Full,
    /// Refused: the address has a static entry.
    Static,
    /// Another thread is writing; the source's next frame will be learned.
    Busy,
}

/// A static entry: an address that configuration puts behind a port.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct StaticEntry {
    /// VLAN, address space and address.
    pub key: FdbKey,
    /// Port of the station; the lowest of `spread`.
    pub port: PortId,
    /// Ports over which its flows are spread; empty if it is behind `port` alone.
    pub spread: PortSet,
}

impl StaticEntry {
    /// A station behind one port.
    #[must_use]
    pub const fn new(key: FdbKey, port: PortId) -> Self {
        Self { key, port, spread: PortSet::EMPTY }
    }

    /// A station behind all of `ports`; `None` if there are none.
    #[must_use]
    pub fn over(key: FdbKey, ports: PortSet) -> Option<Self> {
        let spread = if ports.sole().is_some() { PortSet::EMPTY } else { ports };
        Some(Self { key, port: ports.lowest()?, spread })
    }
}

/// Why static entries were refused; the table is unchanged.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
pub enum StaticError {
    /// An address is listed twice, with different ports.
    #[error("{0} is given two static entries")]
    Twice(FdbKey),
    /// More static entries than the table's capacity.
    #[error("{given} static entries, but the FDB has room for {capacity}")]
    TooMany {
        /// Static entries in the list.
        given: usize,
        /// Maximum number of entries in the table.
        capacity: usize,
    },
    /// All places that the entry could take hold other static entries.
    #[error("no place for the static entry of {0}: too many share its hash")]
    NoPlace(FdbKey),
}

/// An entry of the forwarding database, as `weft show fdb` prints it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct FdbEntry {
    /// VLAN, address space and address.
    pub key: FdbKey,
    /// Port of the station.
    pub port: PortId,
    /// Whether it is a static entry.
    pub is_static: bool,
    /// Time since the station's last frame, in steps of 0.55 s; zero for static entries.
    pub age: Span,
}

/// Change of a learned entry.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum LearnKind {
    /// A new entry was made.
    New,
    /// The entry was on another port before.
    Moved {
        /// The port that it left.
        from: PortId,
    },
    /// Its station was silent for too long.
    Aged,
}

/// A change of a learned entry, for the control thread.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct LearnEvent {
    /// VLAN, address space and address.
    pub key: FdbKey,
    /// Port of the station, or its last one if it aged out.
    pub port: PortId,
    /// The change.
    pub kind: LearnKind,
}

/// Counters of the forwarding database since the switch was started.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct FdbCounters {
    /// New entries made by learning.
    pub learned: u64,
    /// Entries that moved to another port.
    pub moved: u64,
    /// Moves refused because the address had moved too often.
    pub held: u64,
    /// Entries removed because of their age.
    pub aged: u64,
    /// Requests refused because the port had reached its `max_learned`.
    pub port_limit: u64,
    /// Requests refused because the table had no room.
    pub full: u64,
    /// Requests refused because another thread was writing.
    pub busy: u64,
    /// Events lost because control was too slow.
    pub events_lost: u64,
    /// Times that an address exceeded [`MOVES_MAX`] moves per second.
    pub loop_alarms: u64,
}
