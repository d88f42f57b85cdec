//! Pauses of an endpoint as the PFC frames that came define them, and the clock of each priority's timers.
//!
//! [`Stops::receive`] takes PFC frames in order of time; [`Stops::is_stopped`] and [`Stops::running`] answer for any
//! time after the last one.
//!
//! Source: docs/spec/model.md §4 "Go-Back-N, TYPE1".

use weft_dataplane::time::{Instant, LinkRate, Span};
use weft_dataplane::types::{PerPri, Pri};
use weft_parsers::Pfc;

/// Pauses of an endpoint's priorities.
#[derive(Clone, Debug)]
pub(super) struct Stops {
    rate: LinkRate,
    /// Priority by PFC class.
    classes: [Pri; 8],
    /// End of the pause, by PFC class.
    until: [Option<Instant>; 8],
    /// Start of the pause that was running at the last PFC frame, by priority.
    since: PerPri<Option<Instant>>,
    /// Time for which the priority was paused before that.
    stood: PerPri<Span>,
}

impl Stops {
    /// No pauses, on a link of `rate`.
    pub fn new(classes: [Pri; 8], rate: LinkRate) -> Self {
        let (until, since, stood) = ([None; 8], PerPri::default(), PerPri::default());
        Self { rate, classes, until, since, stood }
    }

    /// Hears a PFC frame.
    pub fn receive(&mut self, now: Instant, pfc: &Pfc) {
        for pri in Pri::ALL {
            // Between two PFC frames a priority is released at most once, so that the times add up here.
            self.stood[pri] = self.stood(now, pri);
        }
        for (class, until) in (0..).zip(&mut self.until) {
            if let Some(quanta) = pfc.class(class) {
                *until = (quanta > 0).then(|| now + self.rate.quanta(quanta));
            }
        }
        for pri in Pri::ALL {
            self.since[pri] = self.is_stopped(now, pri).then_some(now);
        }
    }

    /// End of a priority's pause: the last of its classes'.
    fn end(&self, pri: Pri) -> Option<Instant> {
        let own = self.classes.iter().zip(self.until).filter(|(of, _)| **of == pri);
        own.filter_map(|(_, until)| until).max()
    }

    /// Whether a priority is paused at `now`.
    pub fn is_stopped(&self, now: Instant, pri: Pri) -> bool {
        self.end(pri).is_some_and(|end| end > now)
    }

    /// Time for which a priority has been paused until `now`.
    fn stood(&self, now: Instant, pri: Pri) -> Span {
        let last = self.since[pri].zip(self.end(pri));
        let last = last.map_or(Span::ZERO, |(since, end)| end.min(now).since(since));
        self.stood[pri] + last
    }

    /// Reading of a clock that stands still while the priority is paused.
    pub fn running(&self, now: Instant, pri: Pri) -> Instant {
        now - self.stood(now, pri)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Pauses that are prolonged, cut short, over by themselves, and of two classes of one priority.
    #[test]
    fn a_clock_stands_for_as_long_as_its_priority_is_stopped() {
        let rate = LinkRate::gbps(1); // a quantum is 512 ns
        let [low, high] = [0, 1].map(|pri| Pri::new(pri).unwrap());
        let mut classes = [low; 8];
        (classes[2], classes[3]) = (high, high);
        let mut stops = Stops::new(classes, rate);
        let none = Pfc { enable: 0, quanta: [0; 8] };
        #[rustfmt::skip] // columns: at ns, class, quanta, what the clock of `high` shows before
        let steps = [
            ( 1_000, 2, 10,  1_000), // until 6,120
            ( 4_000, 2, 10,  1_000), // until 9,120
            ( 5_000, 3, 10,  1_000), // until 10,120
            ( 6_000, 2,  0,  1_000), // class 3 stops it still
            (20_000, 2,  4, 10_880), // it was stopped for 9,120 ns; until 22,048
            (21_000, 2,  0, 10_880),
            (30_000, 0,  9, 19_880), // another priority
            (40_000, 2,  1, 29_880),
        ];
        for (ns, class, quanta, shows) in steps {
            let now = Instant::from_ns(ns);
            assert_eq!(stops.running(now, high), Instant::from_ns(shows), "{ns} ns");
            stops.receive(now, &none.with(class, quanta));
        }
        assert_eq!(stops.running(Instant::from_ns(60_000), high), Instant::from_ns(49_368));
        assert!(stops.is_stopped(Instant::from_ns(40_511), high));
        assert!(!stops.is_stopped(Instant::from_ns(40_512), high));
        assert_eq!(stops.running(Instant::from_ns(60_000), low), Instant::from_ns(55_392));
    }
}
