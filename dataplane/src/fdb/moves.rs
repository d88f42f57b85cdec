//! Loop detection: finds addresses that move between ports too often.
//!
//! A [`MoveLog`] counts the moves of up to [`MOVERS`] addresses within a sliding [`WINDOW`], and holds addresses at
//! their port for a while. [`Origins`] finds frames that came in by two ports.
//!
//! Source: docs/spec/pipeline.md §3 (there is no STP).

use super::entry::FdbKey;
use crate::time::{Instant, Span};
use crate::types::{PortId, PortSet};

/// Moves within a second that do not count as a loop.
pub const MOVES_MAX: usize = 10;
/// Length of the sliding window in which moves are counted.
pub const WINDOW: Span = Span::from_ms(1_000);
/// How long the alarm stays in force after the last move that was one too many.
pub const HOLD: Span = Span::from_ms(10_000);
/// Addresses watched at a time. An address is given up only after a second without a move, so that
/// in a loop of many more stations the first ones are still watched until they give the alarm.
pub const MOVERS: usize = 64;

/// Alarm of a forwarding loop: addresses move between ports too often.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct LoopAlarm {
    /// Ports between which addresses moved while the alarm was in force.
    pub ports: PortSet,
    /// Address of the last move that was one too many.
    pub key: FdbKey,
    /// Port that it left.
    pub from: PortId,
    /// Port that it moved to.
    pub to: PortId,
    /// Time of that move.
    pub at: Instant,
}

/// Verdict on a move.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Noted {
    /// The move is one too many.
    pub excess: bool,
    /// It is the first one too many.
    pub crossed: bool,
    /// Port where the address was before its recent moves.
    pub home: PortId,
}

/// Recent moves of one address.
#[derive(Debug)]
struct Mover {
    /// The address; its last moves are in `moves`, a ring.
    key: FdbKey,
    home: PortId,
    /// Ports where it was.
    ports: PortSet,
    moves: [Instant; MOVES_MAX],
    /// Moves noted; the next one goes to index `count % MOVES_MAX`.
    count: usize,
    last: Instant,
    alarmed: bool,
    /// Until then it is held at its port.
    held_until: Option<Instant>,
}

impl Mover {
    fn new(key: FdbKey, home: PortId) -> Self {
        let (zero, held_until) = (Instant::ZERO, None);
        Self {
            key,
            home,
            ports: PortSet::only(home),
            moves: [zero; MOVES_MAX],
            count: 0,
            last: zero,
            alarmed: false,
            held_until,
        }
    }

    fn is_held(&self, now: Instant) -> bool {
        self.held_until.is_some_and(|until| now < until)
    }

    /// Notes a move; returns whether the ten before it were all less than [`WINDOW`] ago.
    fn note(&mut self, now: Instant) -> bool {
        let Some(slot) = self.moves.get_mut(self.count % MOVES_MAX) else { return false };
        // The overwritten slot is the tenth move back: if that is recent, the nine in between are, too.
        let tenth = core::mem::replace(slot, now);
        self.last = now;
        self.count += 1;
        self.count > MOVES_MAX && now.since(tenth) < WINDOW
    }
}

/// Frames remembered that stations were learned from.
const ORIGINS: usize = 64;

/// The last frames that stations were learned from, each with the port by which it came in.
#[derive(Debug)]
pub(super) struct Origins {
    frames: Vec<(FdbKey, u64, PortId)>,
    /// Count of frames noted; the next one goes to index `at % ORIGINS`.
    at: usize,
}

impl Origins {
    pub fn new() -> Self {
        Self { frames: Vec::with_capacity(ORIGINS), at: 0 }
    }

    /// Notes that `key` is to be learned from the frame with digest `frame`, at `port`; returns another port by which
    /// that frame came in, too.
    pub fn note(&mut self, key: FdbKey, frame: u64, port: PortId) -> Option<PortId> {
        let is_copy = |&&(of, digest, at): &&(FdbKey, u64, PortId)| {
            of == key && digest == frame && at != port
        };
        let other = self.frames.iter().find(is_copy).map(|&(_, _, at)| at);
        if self.frames.len() < ORIGINS {
            self.frames.push((key, frame, port)); // within the capacity: allocates nothing
        } else if let Some(slot) = self.frames.get_mut(self.at % ORIGINS) {
            *slot = (key, frame, port);
        }
        self.at += 1;
        other
    }
}

/// Addresses that moved recently, and the loop alarm.
#[derive(Debug)]
pub(super) struct MoveLog {
    movers: Vec<Mover>,
    alarm: Option<LoopAlarm>,
    last: Option<LoopAlarm>,
}

impl MoveLog {
    pub fn new() -> Self {
        Self { movers: Vec::with_capacity(MOVERS), alarm: None, last: None }
    }

    /// Notes that `key` moves.
    pub fn note(&mut self, key: FdbKey, from: PortId, to: PortId, now: Instant) -> Noted {
        let unwatched = Noted { excess: false, crossed: false, home: from };
        let at = match self.movers.iter().position(|mover| mover.key == key) {
            Some(at) => at,
            None if self.movers.len() < MOVERS => {
                self.movers.push(Mover::new(key, from)); // within the capacity: allocates nothing
                self.movers.len() - 1
            }
            // Replaces only an address without a move in the window. A flood of others must not push out one that is
            // about to alarm.
            None => match self.movers.iter().position(|m| now.since(m.last) >= WINDOW) {
                Some(at) => at,
                None => return unwatched,
            },
        };
        let Some(mover) = self.movers.get_mut(at) else { return unwatched };
        if mover.key != key {
            *mover = Mover::new(key, from);
        }
        mover.ports.insert(to);
        let excess = mover.note(now);
        let crossed = excess && !mover.alarmed;
        mover.alarmed = excess;
        let home = mover.home;
        if excess {
            let mut ports = self.state(now).map_or(PortSet::EMPTY, |alarm| alarm.ports);
            ports.insert(from);
            ports.insert(to);
            let alarm = LoopAlarm { ports, key, from, to, at: now };
            (self.alarm, self.last) = (Some(alarm), Some(alarm));
        }
        Noted { excess, crossed, home }
    }

    /// Ports between which stations have moved recently.
    pub fn ports(&self) -> PortSet {
        self.movers.iter().fold(PortSet::EMPTY, |ports, mover| ports.or(mover.ports))
    }

    /// Holds `key`, which has just moved too often, at its port.
    pub fn hold(&mut self, key: FdbKey, until: Instant) {
        if let Some(mover) = self.movers.iter_mut().find(|mover| mover.key == key) {
            mover.held_until = Some(until);
        }
    }

    /// Whether `key` is held; one whose hold has ended starts with no moves.
    pub fn is_held(&mut self, key: FdbKey, now: Instant) -> bool {
        let at =
            self.movers.iter().position(|mover| mover.key == key && mover.held_until.is_some());
        let Some(at) = at else { return false };
        let is_held = self.movers.get(at).is_some_and(|mover| mover.is_held(now));
        if !is_held {
            self.movers.swap_remove(at);
        }
        is_held
    }

    /// The last alarm, even if it is over.
    pub const fn last(&self) -> Option<LoopAlarm> {
        self.last
    }

    /// The alarm while it is in force; also drops moves that are too old.
    pub fn state(&mut self, now: Instant) -> Option<LoopAlarm> {
        self.movers.retain(|mover| now.since(mover.last) < WINDOW || mover.is_held(now));
        self.alarm = self.alarm.filter(|alarm| now.since(alarm.at) < HOLD);
        self.alarm
    }
}
