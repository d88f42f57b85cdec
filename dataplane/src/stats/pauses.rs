//! Edges of pauses: when a pause began or ended, asked for by a port or obeyed by it.
//!
//! [`PauseLog`] is a ring of the last [`EDGES`] edges, written by one worker; readers copy the
//! edges that are new to them. Nothing is recorded until a reader asks for it.
//!
//! Units: [`Instant`]s.
//! Source: docs/spec/pipeline.md §9; the sequence counts of H.-J. Boehm, "Can Seqlocks Get Along
//! With Programming Language Memory Models?", MSPC 2012.

use core::sync::atomic::{AtomicU64, Ordering, fence};
use std::sync::OnceLock;

use crate::time::Instant;
use crate::types::{PortId, Pri, PriSet};

/// Edges that are kept; must be a power of two.
pub const EDGES: usize = 4_096;

/// The side of a link that asked for a pause.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum PauseSide {
    /// The switch, as input: a group was above XOFF.
    Asked,
    /// The peer, and the output obeyed.
    Obeyed,
}

/// The begin or the end of a pause.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct PauseEdge {
    /// Time of the step in which the worker saw it.
    pub at: Instant,
    /// Port that paused its peer, or was paused.
    pub port: PortId,
    /// Priority that is paused, of the eight inside the switch.
    pub pri: Pri,
    /// The side that asked for the pause.
    pub side: PauseSide,
    /// True if the pause begins, false if it ends.
    pub begins: bool,
}

#[derive(Debug, Default)]
struct Slot {
    at: AtomicU64,
    what: AtomicU64,
}

/// The last edges of one worker's ports.
#[derive(Debug, Default)]
pub struct PauseLog {
    slots: OnceLock<Box<[Slot]>>,
    /// Number of edges recorded so far.
    next: AtomicU64,
}

const SIDE: u64 = 1 << 16;
const BEGINS: u64 = 1 << 17;

impl PauseEdge {
    const fn pack(self) -> u64 {
        let side = if matches!(self.side, PauseSide::Obeyed) { SIDE } else { 0 };
        let begins = if self.begins { BEGINS } else { 0 };
        self.port.get() as u64 | (self.pri.get() as u64) << 8 | side | begins
    }

    fn unpack(at: u64, what: u64) -> Option<Self> {
        let [port, pri, ..] = what.to_le_bytes();
        Some(Self {
            at: Instant::from_ps(at),
            port: PortId::new(port.into())?,
            pri: Pri::new(pri)?,
            side: if what & SIDE == 0 { PauseSide::Asked } else { PauseSide::Obeyed },
            begins: what & BEGINS != 0,
        })
    }
}

impl PauseLog {
    /// Starts recording; may be called by any thread, and more than once.
    pub fn begin(&self) {
        self.slots.get_or_init(|| (0..EDGES).map(|_| Slot::default()).collect());
    }

    /// Records that the paused priorities of `port` were `before` and are `after` from `now` on.
    /// Only the owner may call this.
    #[inline]
    pub fn note(&self, now: Instant, port: PortId, side: PauseSide, before: PriSet, after: PriSet) {
        if before != after {
            self.record(now, port, side, before, after);
        }
    }

    #[cold]
    fn record(&self, at: Instant, port: PortId, side: PauseSide, before: PriSet, after: PriSet) {
        let Some(slots) = self.slots.get() else { return };
        for (pris, begins) in [(before.without(after), false), (after.without(before), true)] {
            for pri in pris.iter() {
                let next = self.next.load(Ordering::Relaxed);
                let place = usize::try_from(next).unwrap_or(0) % EDGES;
                let Some(slot) = slots.get(place) else { return };
                let edge = PauseEdge { at, port, pri, side, begins };
                // Pairs with the Acquire fence in `since`: a reader who has copied any word stored below
                // then reads `next` as at least the value above, and discards the copy.
                fence(Ordering::Release);
                slot.at.store(at.as_ps(), Ordering::Relaxed);
                slot.what.store(edge.pack(), Ordering::Relaxed);
                // Pairs with the first load in `since`: both words of the edge are there.
                self.next.store(next + 1, Ordering::Release);
            }
        }
    }

    /// Appends the edges after the first `known` ones to `edges`. Returns the number of edges
    /// recorded so far, and how many new ones were overwritten before they were read.
    pub fn since(&self, known: u64, edges: &mut Vec<PauseEdge>) -> (u64, u64) {
        let Some(slots) = self.slots.get() else { return (0, 0) };
        let next = self.next.load(Ordering::Acquire); // pairs with `record`
        let first = known.max(next.saturating_sub(EDGES as u64)).min(next);
        let mut copies = Vec::new();
        for number in first..next {
            let Some(slot) = slots.get(usize::try_from(number).unwrap_or(0) % EDGES) else { break };
            copies.push((slot.at.load(Ordering::Relaxed), slot.what.load(Ordering::Relaxed)));
        }
        // Pairs with the Release fence in `record`; `next` is read again after the copies.
        fence(Ordering::Acquire);
        // The edge that comes next may be half written over the oldest one: that one is gone, too.
        let oldest = (self.next.load(Ordering::Relaxed) + 1).saturating_sub(EDGES as u64);
        let gone = usize::try_from(oldest.saturating_sub(first)).unwrap_or(usize::MAX);
        let whole = copies.iter().skip(gone);
        edges.extend(whole.filter_map(|&(at, what)| PauseEdge::unpack(at, what)));
        (next, oldest.max(first).min(next) - known.min(next))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn set(bits: u8) -> PriSet {
        PriSet::from_bits(bits)
    }

    fn port(index: usize) -> PortId {
        PortId::new(index).unwrap()
    }

    #[test]
    fn edges_are_read_once_as_they_were_recorded() {
        let log = PauseLog::default();
        let mut edges = Vec::new();
        log.note(Instant::from_ps(5), port(3), PauseSide::Asked, set(0), set(1));
        assert_eq!((log.since(0, &mut edges), edges.len()), ((0, 0), 0), "nobody asked for them");
        log.begin();
        log.note(
            Instant::from_ps(7),
            port(63),
            PauseSide::Obeyed,
            set(0b1000_0001),
            set(0b0100_0001),
        );
        log.note(Instant::from_ps(8), port(0), PauseSide::Asked, set(1), set(1));
        assert_eq!(log.since(0, &mut edges), (2, 0));
        let edge = |pri, begins| PauseEdge {
            at: Instant::from_ps(7),
            port: port(63),
            pri: Pri::new(pri).unwrap(),
            side: PauseSide::Obeyed,
            begins,
        };
        assert_eq!(edges, [edge(7, false), edge(6, true)]);
        assert_eq!((log.since(2, &mut edges), edges.len()), ((2, 0), 2), "nothing is new");
    }

    #[test]
    fn what_was_overwritten_is_counted() {
        let log = PauseLog::default();
        log.begin();
        for at in 0..3 * EDGES as u64 {
            let (before, after) = if at % 2 == 0 { (set(0), set(4)) } else { (set(4), set(0)) };
            log.note(Instant::from_ps(at), port(1), PauseSide::Asked, before, after);
        }
        let mut edges = Vec::new();
        let (next, lost) = log.since(10, &mut edges);
        assert_eq!(next, 3 * EDGES as u64);
        assert_eq!(edges.len() as u64 + lost, next - 10, "each is read or counted");
        assert_eq!(edges.len(), EDGES - 1, "one may be half written");
        assert_eq!(edges.last().map(|edge| edge.at.as_ps()), Some(next - 1));
    }

    /// A reader beside a writer sees only whole edges, in order, each once.
    #[test]
    fn a_reader_beside_a_writer_sees_whole_edges() {
        const COUNT: u64 = 200_000;
        let log = PauseLog::default();
        log.begin();
        std::thread::scope(|scope| {
            scope.spawn(|| {
                for at in 0..COUNT {
                    // The port and the priority say the time again.
                    let (place, pri) = (port((at % 64) as usize), 1 << (at % 8));
                    log.note(Instant::from_ps(at), place, PauseSide::Asked, set(0), set(pri));
                }
            });
            let (mut known, mut seen, mut lost, mut edges) = (0, 0, 0, Vec::new());
            while known < COUNT {
                edges.clear();
                let (next, missed) = log.since(known, &mut edges);
                for edge in &edges {
                    let at = edge.at.as_ps();
                    assert_eq!(u64::from(edge.port.get()), at % 64);
                    assert_eq!(u64::from(edge.pri.get()), at % 8);
                }
                assert!(edges.is_sorted_by_key(|edge| edge.at.as_ps()));
                (known, seen, lost) = (next, seen + edges.len() as u64, lost + missed);
            }
            assert_eq!(seen + lost, COUNT);
        });
    }
}
