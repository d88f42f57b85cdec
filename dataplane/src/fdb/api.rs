//! What goes into and comes out of the FDB: plain values.
//!
//! Configuration, answers to each call, events, counts.
//!
//! Units: capacity in entries; ages as [`Span`].
//! Source: docs/spec/pipeline.md §3 and §10.

use super::entry::FdbKey;
#[cfg(doc)]
use super::{Fdb, MOVES_MAX};
use crate::time::Span;
use crate::types::{PortId, PortSet};

/// Default room, in entries.
pub const CAPACITY: usize = 65_536;
/// Default life of a learned entry after its station's last frame.
pub const AGEING: Span = Span::from_ms(300_000);

/// Default time that a port of a loop is blocked for.
pub const LOOP_BLOCK: Span = Span::from_ms(10_000);
/// Default time that a station which moved too often stays where it was before.
pub const STICKY: Span = Span::from_ms(10_000);

/// Sizes, hash seed and ageing time that a forwarding database is built with.
#[derive(Clone, Copy, Debug)]
pub struct FdbConfig {
    /// Most entries, static ones included.
    pub capacity: usize,
    /// Seed of the hash.
    pub seed: u64,
    /// Life of a learned entry after its station's last frame; zero is for ever.
    pub ageing: Span,
    /// Learn events that can wait for control.
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
    /// The port it is behind.
    pub port: PortId,
    /// Whether configuration says so.
    pub is_static: bool,
}

/// What the FDB knows about the source of a frame.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum SourceState {
    /// Learnt on this port; its age has been refreshed.
    Known,
    /// Set by configuration, on this or another port; nothing to learn.
    Static,
    /// Not there: to be learnt.
    Unknown,
    /// Learnt on that other port: to be learnt anew.
    OnOtherPort(PortId),
}

/// A source that is to be learnt, and the frame that it was seen in.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Source {
    /// VLAN, space and address.
    pub key: FdbKey,
    /// A number that tells the frame from others.
    pub frame: u64,
}

/// Result of a request to learn an address.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Learned {
    /// Put in.
    New,
    /// Was on that port before.
    Moved {
        /// The port it left.
        from: PortId,
    },
    /// Moves too often: more than [`MOVES_MAX`] times within a second.
    Looping {
        /// Where it was before it began to move.
        home: PortId,
        /// The port that it moves to from there, or comes back from.
        other: PortId,
    },
    /// Moved too often, and stays where it is for a while.
    Held,
    /// Was there already; refreshed.
    Known,
    /// Refused: the port has its `max_learned`.
    PortLimit,
    /// Refused: no room.
    Full,
    /// Refused: configuration has set this address.
    Static,
    /// Another thread is writing; the source's next frame will do.
    Busy,
}

/// A static entry: an address that configuration puts behind a port.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct StaticEntry {
    /// VLAN and address.
    pub key: FdbKey,
    /// Where it is; the lowest one of `spread`.
    pub port: PortId,
    /// Ports that its flows are spread over; none when it is behind `port` alone.
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

/// Why static entries were refused; the table is as it was.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
pub enum StaticError {
    /// The same address twice.
    #[error("{0} is given two static entries")]
    Twice(FdbKey),
    /// More than the table's capacity.
    #[error("{given} static entries, but the FDB has room for {capacity}")]
    TooMany {
        /// Entries given.
        given: usize,
        /// Entries that fit.
        capacity: usize,
    },
    /// All places where it could be are taken by other static entries.
    #[error("no place for the static entry of {0}: too many share its hash")]
    NoPlace(FdbKey),
}

/// An entry of the forwarding database, as `show fdb` has it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct FdbEntry {
    /// VLAN, space and address.
    pub key: FdbKey,
    /// Where it is.
    pub port: PortId,
    /// Whether configuration says so.
    pub is_static: bool,
    /// Time since the station's last frame, in steps of 0.55 s; zero for static entries.
    pub age: Span,
}

/// What happened to a learned entry: it came, moved or aged out.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum LearnKind {
    /// Put in.
    New,
    /// Was on that port before.
    Moved {
        /// The port it left.
        from: PortId,
    },
    /// Its station was silent for too long.
    Aged,
}

/// An address that was learnt, moved or aged out, for the control thread.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct LearnEvent {
    /// VLAN, space and address.
    pub key: FdbKey,
    /// Where it is, or was when it aged.
    pub port: PortId,
    /// What happened.
    pub kind: LearnKind,
}

/// Counters of the forwarding database since the switch was started.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct FdbCounters {
    /// Entries learnt.
    pub learned: u64,
    /// Entries that went to another port.
    pub moved: u64,
    /// Moves refused as the address had moved too often.
    pub held: u64,
    /// Entries removed for their age.
    pub aged: u64,
    /// Requests refused for a port's `max_learned`.
    pub port_limit: u64,
    /// Requests refused for want of room.
    pub full: u64,
    /// Requests refused because another thread was writing.
    pub busy: u64,
    /// Events that control was too slow for.
    pub events_lost: u64,
    /// Times that an address went above [`MOVES_MAX`] moves a second.
    pub loop_alarms: u64,
}
