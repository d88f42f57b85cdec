//! Pauses that an input asks its peer for.
//!
//! From the priorities that are asserted and `now` it makes PFC frames, one for all classes at a
//! time. Every PAUSE is for 0xFFFF quanta and is refreshed after half of them.
//!
//! Source: IEEE 802.1Q clause 36.1.3; docs/spec/pipeline.md §9.

use super::{CLASSES, PfcFrame, classes};
use crate::time::{Instant, LinkRate};
use crate::types::{PerPri, Pri, PriSet};

/// Sent PFC: the classes that one input has asked its peer to pause, and those that it should
/// pause.
///
/// Every class that was paused is resumed exactly once when its last priority is released.
#[derive(Clone, Debug, Default)]
pub struct PauseTx {
    asserted: PriSet,
    /// `asserted` has changed since the last frame.
    changed: bool,
    /// Classes paused at the peer.
    sent: u8,
    /// Of these, the classes that only the pause guard has paused, not this worker.
    guarded: u8,
    refresh_at: PerPri<Instant>,
}

impl PauseTx {
    /// State of a link that has just come up: the peer has been asked for nothing.
    #[must_use]
    pub fn new() -> Self {
        Self::default()
    }

    /// Asks for `pri` to be paused or resumed; the next [`PauseTx::poll`] makes the frame.
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

    /// Classes that the peer was last asked to pause.
    #[cfg(test)]
    #[must_use]
    pub const fn classes_paused(&self) -> u8 {
        self.sent
    }

    /// Takes over `classes` that the pause guard has paused at the peer: the next frame keeps or
    /// resumes each of them.
    pub fn note_paused(&mut self, classes: u8) {
        // `sent` names all classes paused at the peer, whoever sent the PAUSE: `poll` resumes those
        // that the worker does not want, which the peer would otherwise hold until its timers run
        // out.
        self.guarded |= classes & !self.sent;
        self.sent |= classes;
        self.changed = true;
    }

    /// Classes that only the pause guard had paused before the last frame. Resuming them is not
    /// counted as a release by the worker.
    pub const fn take_guarded(&mut self) -> u8 {
        core::mem::replace(&mut self.guarded, 0)
    }

    /// The frame to send at `now`, if one is due; it counts as sent.
    ///
    /// It names the classes that change and those whose refresh is due. `pri_to_pfc` has passed
    /// [`super::check_classes`]. After `pri_to_pfc` was changed, call [`PauseTx::remap`] first.
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
        // Classes that stay paused and are not due yet are in neither set: their enable bits stay
        // clear, and the peer's timers run on.
        let resume = self.sent & !want;
        self.sent = want;
        // Refreshed at half time, a PAUSE may be late by as much again before the peer sends.
        let half = rate.bit_time(0xFFFF * 512 / 2);
        let mut frame = PfcFrame { enable: due.bits() | resume, quanta: [0; CLASSES] };
        for (class, quanta) in Pri::ALL.into_iter().zip(&mut frame.quanta) {
            if due.contains(class) {
                *quanta = 0xFFFF;
                self.refresh_at[class] = now + half;
            }
        }
        // Nothing to tell is possible: a priority that was set and released again between two
        // polls.
        (frame.enable != 0).then_some(frame)
    }

    /// Whether the peer holds nothing back and no change is to be sent.
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

    /// Notes that `pri_to_pfc` was changed: the next poll pauses the new classes and resumes the
    /// old ones.
    pub fn remap(&mut self) {
        self.changed = self.changed || self.sent != 0 || !self.asserted.is_empty();
    }

    /// Forgets which frames were sent: the link went down, and the peer's timers with it.
    /// Priorities that are still asserted are paused anew when it is back.
    pub fn link_down(&mut self) {
        (self.sent, self.guarded) = (0, 0);
        self.changed = !self.asserted.is_empty();
    }
}
