//! Pauses that an input asks its peer for.
//!
//! Asserted priorities and `now` → the PFC frames to send, one for all classes at a time.
//!
//! Units: every PAUSE is for 0xFFFF quanta and is refreshed after half of them.
//! Source: IEEE 802.1Q clause 36.1.3; docs/spec/pipeline.md §9.

use super::{CLASSES, PfcFrame, classes};
use crate::time::{Instant, LinkRate};
use crate::types::{PerPri, Pri, PriSet};

/// Sent PFC: which classes one input has asked its neighbour to pause, and which it should.
///
/// Every class that was paused is resumed exactly once when its last priority is released.
#[derive(Clone, Debug, Default)]
pub struct PauseTx {
    asserted: PriSet,
    /// `asserted` has changed since the last frame.
    changed: bool,
    /// Classes paused at the peer.
    sent: u8,
    /// Of those, the ones that only the pause guard has paused.
    guarded: u8,
    refresh_at: PerPri<Instant>,
}

impl PauseTx {
    /// Nothing is paused.
    #[must_use]
    pub fn new() -> Self {
        Self::default()
    }

    /// Asks for `pri` to be paused or resumed; takes hold in the next [`PauseTx::poll`].
    #[inline]
    pub fn set(&mut self, pri: Pri, asserted: bool) {
        if self.asserted.contains(pri) == asserted {
            return;
        }
        if asserted {
            self.asserted.insert(pri);
        } else {
            self.asserted.remove(pri);
        }
        self.changed = true;
    }

    /// Priorities for which a pause is asked.
    #[inline]
    #[must_use]
    pub const fn asserted(&self) -> PriSet {
        self.asserted
    }

    /// Classes that the peer has been told to hold back.
    #[must_use]
    pub const fn classes_paused(&self) -> u8 {
        self.sent
    }

    /// Notes that the pause guard has told the peer to pause `classes`: the next frame says which of them it may send again.
    pub fn note_paused(&mut self, classes: u8) {
        self.guarded |= classes & !self.sent;
        self.sent |= classes;
        self.changed = true;
    }

    /// Classes that only the pause guard had paused, as of the frame before: to resume them is no release of the worker's.
    pub const fn take_guarded(&mut self) -> u8 {
        core::mem::replace(&mut self.guarded, 0)
    }

    /// The frame to send at `now`, if one is due; it counts as sent.
    ///
    /// It names the classes that change and those whose refresh is due. `pri_to_pfc` has passed
    /// [`super::check_classes`]; a class of two priorities is resumed when both are released. Call it
    /// also after `pri_to_pfc` was changed: see [`PauseTx::remap`].
    pub fn poll(
        &mut self,
        now: Instant,
        rate: LinkRate,
        pri_to_pfc: &PerPri<u8>,
    ) -> Option<PfcFrame> {
        if !self.changed && self.next(now).is_none_or(|at| now < at) {
            return None;
        }
        self.changed = false;
        let want = self.asserted.iter().fold(0, |set, pri| set | pri_to_pfc[pri]);
        let due: PriSet = classes(want)
            .filter(|&c| self.sent >> c.get() & 1 == 0 || self.refresh_at[c] <= now)
            .collect();
        let resume = self.sent & !want;
        self.sent = want;
        let half = rate.bit_time(0xFFFF * 512 / 2);
        let mut frame = PfcFrame { enable: due.bits() | resume, quanta: [0; CLASSES] };
        for (class, quanta) in Pri::ALL.into_iter().zip(&mut frame.quanta) {
            if due.contains(class) {
                *quanta = 0xFFFF;
                self.refresh_at[class] = now + half;
            }
        }
        (frame.enable != 0).then_some(frame)
    }

    /// Whether nothing is paused and nothing is to be told.
    #[inline]
    #[must_use]
    pub const fn is_idle(&self) -> bool {
        !self.changed && self.sent == 0
    }

    /// When [`PauseTx::poll`] will have something to send; `None` while nothing is paused.
    #[inline]
    #[must_use]
    pub fn next(&self, now: Instant) -> Option<Instant> {
        if self.changed {
            return Some(now);
        }
        classes(self.sent).map(|class| self.refresh_at[class]).min()
    }

    /// Tells that `pri_to_pfc` was changed, so that the next poll moves the pauses over.
    pub fn remap(&mut self) {
        self.changed = self.changed || self.sent != 0 || !self.asserted.is_empty();
    }

    /// Forgets what was sent: the link went down, and the peer's timers with it. What is still
    /// asserted is sent anew.
    pub fn link_down(&mut self) {
        (self.sent, self.guarded) = (0, 0);
        self.changed = !self.asserted.is_empty();
    }
}
