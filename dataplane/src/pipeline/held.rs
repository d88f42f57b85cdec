//! Held: TLPs without a route at the moment, whose requesters cannot be told to send them again.
//!
//! [`Held`] keeps them in the order in which they came. As soon as tables or links have changed
//! they are decided about once more, before any TLP that comes in later; after [`HOLD_MAX`] as if
//! holding were not possible.
//!
//! Units: frames, [`Instant`].
//! Source: docs/spec/cxl-fabric.md "Dynamic change".

use std::collections::VecDeque;
use std::sync::Arc;

use crate::desc::Desc;
use crate::pbr::Tables;
use crate::time::{Instant, Span};
use crate::types::{PerPort, PortId, PortSet};

//= docs/spec/cxl-fabric.md "Dynamic change": held for at most 900 ms, and 512 by each worker
/// How long a TLP is held: a manager that looks for a fault waits 250 ms for each switch that
/// doesn't answer, and requesters give up after 1 s.
const HOLD_MAX: Span = Span::from_ms(900);
/// TLPs that one worker may hold, each of them in a chunk of the pool.
pub(super) const FRAMES_MAX: usize = 512;

/// A TLP that is held.
pub(super) struct HeldTlp {
    pub desc: Desc,
    pub input: PortId,
    /// The port that it was queued for when that link went down; `None` if it came in since.
    pub output: Option<PortId>,
    pub until: Instant,
}

/// How often the TLP that is decided about has been held.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(super) enum Turn {
    /// Not yet: it may be held if there is room.
    #[default]
    First,
    /// It is held and keeps its place.
    Again,
    /// It was held for [`HOLD_MAX`] and must not be held again.
    Last,
}

/// TLPs that a worker holds.
#[derive(Default)]
pub(super) struct Held {
    pub frames: VecDeque<HeldTlp>,
    /// Tables and links by which they were last decided about. As long as any TLP is held, new ones
    /// go by these, too: by newer tables they would overtake the held ones.
    pub by: Option<(Arc<Tables>, PortSet)>,
    pub turn: Turn,
    /// Number of places that are taken, in all and by input.
    taken: usize,
    taken_by: PerPort<u16>,
}

impl Held {
    /// Whether a TLP that came in at `input` may be held; it has its place from now on.
    ///
    /// An input may take as many places as are free beside its own, as with queues of the buffer
    /// (docs/spec/pipeline.md §4): a neighbour that floods a route that is down leaves room for
    /// others.
    pub fn take_place(&mut self, input: PortId) -> bool {
        match self.turn {
            Turn::First => {
                // With k places taken by others, `own` may grow until 2 x own + k reaches the
                // maximum: half of the places if this input floods alone.
                let own = &mut self.taken_by[input];
                let has_room = usize::from(*own) + self.taken < FRAMES_MAX;
                if has_room {
                    (*own, self.taken) = (*own + 1, self.taken + 1);
                }
                has_room
            }
            Turn::Again => true,
            Turn::Last => false,
        }
    }

    /// Returns the place of one TLP of `input`.
    pub fn give_place(&mut self, input: PortId) {
        (self.taken_by[input], self.taken) = (self.taken_by[input] - 1, self.taken - 1);
    }

    /// Whether any TLP of `input` is held.
    pub fn is_of(&self, input: PortId) -> bool {
        self.taken_by[input] > 0
    }

    /// When the oldest one has been held for [`HOLD_MAX`].
    pub fn next(&self) -> Option<Instant> {
        self.frames.front().map(|held| held.until)
    }

    #[inline]
    pub fn is_empty(&self) -> bool {
        self.frames.is_empty()
    }

    /// Holds one more TLP, which has its place, from now on.
    pub fn push(&mut self, now: Instant, desc: Desc, input: PortId, output: Option<PortId>) {
        // All are held for the same time, so the front is always the first whose time is over
        // (`next`).
        self.frames.push_back(HeldTlp { desc, input, output, until: now + HOLD_MAX });
    }
}
