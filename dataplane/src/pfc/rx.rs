//! Pauses that an output has received: which priorities must not send, and until when.
//!
//! Exact to the picosecond: a class is paused until just before quanta × 512 bit times have passed.
//!
//! Source: IEEE 802.1Q clause 36.1.3; IEEE 802.3 Annex 31B.3.3; docs/spec/pipeline.md §9.

use super::{CLASSES, PfcFrame, classes};
use crate::time::{Instant, LinkRate, Span};
use crate::types::{PerPri, Pri, PriSet};

/// Received PFC: the pause timers of the eight classes at one output, and the priorities that they
/// stop.
///
/// A priority is paused while any of its classes is. A class belongs to the priority that it had in
/// the map when its PAUSE came, so that a reload of the map leaves no priority paused for ever.
#[derive(Clone, Debug, Default)]
pub struct PauseRx {
    /// Classes whose timer runs, or ran out since the last [`PauseRx::tick`].
    running: u8,
    end: PerPri<Instant>,
    pri: PerPri<Pri>,
    /// Priorities that were paused at the last frame or [`PauseRx::tick`].
    paused: PriSet,
    /// Priorities that have been paused since the start. A pause that begins and ends between two
    /// steps of the worker leaves no other trace.
    ever_paused: PriSet,
    since: PerPri<Instant>,
    total: PerPri<Span>,
}

impl PauseRx {
    /// Timers of a link that has just come up: no class is paused.
    #[must_use]
    pub fn new() -> Self {
        Self::default()
    }

    /// Takes in a PFC frame that was received at `now` on a port of `rate`.
    pub fn on_pfc(
        &mut self,
        frame: &PfcFrame,
        now: Instant,
        rate: LinkRate,
        pcp_to_pri: &[Pri; CLASSES],
    ) {
        // Pauses that are over end at their own time, before this frame changes their timers.
        self.tick(now);
        for (class, (&quanta, &pri)) in
            Pri::ALL.into_iter().zip(frame.quanta.iter().zip(pcp_to_pri))
        {
            let bit = 1 << class.get();
            // A class whose enable bit is clear keeps its timer (IEEE 802.1Q clause 36.1.3).
            if frame.enable & bit == 0 {
                continue;
            }
            // A new value replaces the timer, also by a shorter pause; 0 ends it.
            self.running &= !bit;
            if quanta != 0 {
                self.running |= bit;
                self.end[class] = now + rate.quanta(quanta);
                self.pri[class] = pri;
            }
        }
        self.account(now);
    }

    /// Whether no class's timer runs.
    #[inline]
    #[must_use]
    pub const fn is_idle(&self) -> bool {
        self.running == 0
    }

    /// Priorities that must not send at `now`, exact also when [`PauseRx::tick`] was not called
    /// since.
    #[inline]
    #[must_use]
    pub fn paused(&self, now: Instant) -> PriSet {
        if self.running == 0 {
            return PriSet::EMPTY;
        }
        classes(self.running).filter(|&c| now < self.end[c]).map(|c| self.pri[c]).collect()
    }

    /// Ends the pauses that are over at `now`; returns when the next timer runs out.
    pub fn tick(&mut self, now: Instant) -> Option<Instant> {
        if self.running == 0 {
            return None;
        }
        // Before `running` is cleared below: `end_of` reads the timers of these very classes.
        for pri in self.paused.iter() {
            let end = self.end_of(pri);
            if end.is_some_and(|end| end <= now) {
                // At the end of the timer, not at `now`: live, steps come later than timers run
                // out, and the time paused that is counted must not depend on when.
                self.close(pri, end.unwrap_or(now));
            }
        }
        let over: PriSet = classes(self.running).filter(|&c| self.end[c] <= now).collect();
        self.running &= !over.bits();
        classes(self.running).map(|c| self.end[c]).min()
    }

    /// Resumes everything: the link went down, and the peer that asked for the pauses with it.
    pub fn clear(&mut self, now: Instant) {
        self.tick(now);
        self.running = 0;
        self.account(now);
    }

    /// Priorities that have been paused since the start, including those that have resumed.
    #[must_use]
    pub const fn ever_paused(&self) -> PriSet {
        self.ever_paused
    }

    /// How long `pri` has been paused since the start, a running pause included.
    #[must_use]
    pub fn time_paused(&self, pri: Pri, now: Instant) -> Span {
        let running = match self.end_of(pri) {
            Some(end) => (if end < now { end } else { now }).since(self.since[pri]),
            None => Span::ZERO,
        };
        self.total[pri] + running
    }

    /// The end of the last running pause of `pri`.
    fn end_of(&self, pri: Pri) -> Option<Instant> {
        classes(self.running).filter(|&c| self.pri[c] == pri).map(|c| self.end[c]).max()
    }

    /// Brings `paused` in line with the timers after they were changed at `now`.
    fn account(&mut self, now: Instant) {
        let paused = self.paused(now);
        // Resumed by a frame, so at `now`: pauses that merely ran out were closed by `tick`.
        for pri in self.paused.without(paused).iter() {
            self.close(pri, now);
        }
        for pri in paused.without(self.paused).iter() {
            self.since[pri] = now;
            self.ever_paused.insert(pri);
        }
        self.paused = paused;
    }

    fn close(&mut self, pri: Pri, at: Instant) {
        let length = at.since(self.since[pri]);
        self.total[pri] = self.total[pri] + length;
        self.paused.remove(pri);
    }
}
