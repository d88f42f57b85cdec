//! Pauses that an output has received.
//!
//! PFC frame and `now` → which priorities must not send, and until when.
//!
//! Units: exact to the picosecond: paused until just before quanta × 512 bit times have passed.
//! Source: IEEE 802.1Q clause 36.1.3; IEEE 802.3 Annex 31B.3.3; docs/spec/pipeline.md §9.

use super::{CLASSES, PfcFrame, classes};
use crate::time::{Instant, LinkRate, Span};
use crate::types::{PerPri, Pri, PriSet};

/// Received PFC: the pause timers of the eight classes at one output, and which priorities they stop.
///
/// A priority is paused while any class that stands for it is. A class stands for the priority that
/// it had in the map when its PAUSE came.
#[derive(Clone, Debug, Default)]
pub struct PauseRx {
    /// Classes whose timer runs.
    running: u8,
    end: PerPri<Instant>,
    pri: PerPri<Pri>,
    /// Priorities that are paused as far as [`PauseRx::tick`] has come.
    paused: PriSet,
    /// Priorities that have been paused since the start. Where a pause begins and ends between two looks, nothing else
    /// tells that there was one.
    ever_paused: PriSet,
    since: PerPri<Instant>,
    total: PerPri<Span>,
}

impl PauseRx {
    /// Nothing is paused.
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
        self.tick(now);
        for (class, (&quanta, &pri)) in
            Pri::ALL.into_iter().zip(frame.quanta.iter().zip(pcp_to_pri))
        {
            let bit = 1 << class.get();
            if frame.enable & bit == 0 {
                continue;
            }
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

    /// Priorities that must not send at `now`.
    #[inline]
    #[must_use]
    pub fn paused(&self, now: Instant) -> PriSet {
        if self.running == 0 {
            return PriSet::EMPTY;
        }
        classes(self.running).filter(|&c| now < self.end[c]).map(|c| self.pri[c]).collect()
    }

    /// Ends the pauses that are over at `now`; returns when the next class's one ends.
    pub fn tick(&mut self, now: Instant) -> Option<Instant> {
        if self.running == 0 {
            return None;
        }
        for pri in self.paused.iter() {
            let end = self.end_of(pri);
            if end.is_some_and(|end| end <= now) {
                self.close(pri, end.unwrap_or(now));
            }
        }
        let over: PriSet = classes(self.running).filter(|&c| self.end[c] <= now).collect();
        self.running &= !over.bits();
        classes(self.running).map(|c| self.end[c]).min()
    }

    /// Resumes everything: the link went down, and with it whoever asked.
    pub fn clear(&mut self, now: Instant) {
        self.tick(now);
        self.running = 0;
        self.account(now);
    }

    /// Priorities that have been paused since the start, over or not.
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

    /// Brings `paused` in line with the classes after a frame at `now`.
    fn account(&mut self, now: Instant) {
        let paused = self.paused(now);
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
