//! The search for a throughput: the highest offered rate with at most the accepted loss.
//!
//! Bisects the rate by trials, each of which returns an [`Offered`]. In the end the best rate and the lowest one above
//! it that failed are tried again. If one of them comes out differently, something else than the rate decides about
//! losses, and the search is unsteady. Rates are in frames a second and direction.
//!
//! Source: RFC 2544 §26.1; §24 and §20 (a rate counts as offered, not as requested); ETSI GS NFV-TST 009, "binary
//! search with loss verification" (a loss may be the test system's own, so it is looked at twice).

use serde::Serialize;

/// Parts per million in the whole.
const MILLION: u128 = 1_000_000;
/// A generator that offers less than this share of the requested rate is at its limit.
const REACHED_PPM: u64 = 990_000;
/// Most trials of one search; bisecting a range of 64 bits takes fewer.
const TRIALS_MAX: usize = 70;
/// A generator that offers less than this share of its earlier rate is not steady.
const SAME_PPM: u64 = 950_000;

/// Frames offered and received in a trial.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize)]
#[expect(clippy::struct_field_names, reason = "keys of the JSON result")]
pub struct Offered {
    /// Requested rate in frames a second and direction; `None` for the generator's maximum.
    pub asked_fps: Option<u64>,
    /// Rate that was really sent, in frames a second and direction.
    pub offered_fps: u64,
    /// Frames sent, over all directions.
    pub sent_frames: u64,
    /// Frames of these that arrived undamaged, each counted once.
    pub received_frames: u64,
}

impl Offered {
    /// Frames that did not arrive.
    #[must_use]
    pub const fn lost(&self) -> u64 {
        self.sent_frames.saturating_sub(self.received_frames)
    }

    /// Loss in parts per million of the frames sent, rounded up; a million if no frame was sent.
    #[must_use]
    pub fn lost_ppm(&self) -> u64 {
        if self.sent_frames == 0 {
            return 1_000_000;
        }
        // Rounded up, so that with an accepted loss of 0 a single lost frame fails the trial.
        let ppm = (u128::from(self.lost()) * MILLION).div_ceil(u128::from(self.sent_frames));
        u64::try_from(ppm).unwrap_or(u64::MAX)
    }

    /// Whether at most `accepted_ppm` was lost.
    #[must_use]
    pub fn passes(&self, accepted_ppm: u64) -> bool {
        self.lost_ppm() <= accepted_ppm
    }

    /// Whether the generator reached the requested rate; false for a trial at its maximum.
    #[must_use]
    pub fn is_reached(&self) -> bool {
        let reached = |asked| share(asked, REACHED_PPM) <= self.offered_fps;
        self.asked_fps.is_some_and(reached)
    }
}

/// `ppm` millionths of `whole`, rounded down.
#[must_use]
pub fn share(whole: u64, ppm: u64) -> u64 {
    u64::try_from(u128::from(whole) * u128::from(ppm) / MILLION).unwrap_or(u64::MAX)
}

/// The reason why a throughput is not higher.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize)]
#[serde(rename_all = "snake_case")]
pub enum Limit {
    /// The device between the ports: above this rate it loses frames.
    Device,
    /// The sending port's link: no more frames fit on it.
    Link,
    /// The generator: it offers no more, and all that it offers passes.
    Generator,
    /// No rate passed, down to the resolution.
    NonePassed,
}

/// Result of a search.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub struct Found {
    /// The passed trial with the highest offered rate; `None` if no trial passed.
    pub best: Option<Offered>,
    /// Why the rate is not higher.
    pub limit: Limit,
    /// Whether no two trials contradict each other: a rate failed below one that passed, or came out differently when
    /// repeated.
    pub steady: bool,
    /// Trials of this search, in order; the last ones repeat the result.
    pub trials: Vec<Offered>,
}

/// Parameters of a search.
#[derive(Clone, Copy, Debug)]
pub struct Search {
    /// Highest loss with which a trial passes.
    pub accepted_ppm: u64,
    /// Distance at which the search ends, between rates that pass and fail, as a share of the generator's maximum.
    pub resolution_ppm: u64,
}

impl Search {
    /// Searches by means of `trial`, which runs at the given rate, or at the generator's maximum for `None`. `known`
    /// are earlier trials with the same frames, of which the first must be one at the maximum. Without them the search
    /// begins with such a trial.
    ///
    /// # Errors
    /// The first trial that could not be run.
    pub fn run<E>(
        &self,
        known: &[Offered],
        mut trial: impl FnMut(Option<u64>) -> Result<Offered, E>,
    ) -> Result<Found, E> {
        let mut trials = Vec::new();
        let whole = if let Some(known) = known.first() {
            *known
        } else {
            let first = trial(None)?;
            trials.push(first);
            first
        };
        let mut ends = Ends::of_whole(whole, self.accepted_ppm);
        ends.learn(known, self.accepted_ppm);
        let gap = share(whole.offered_fps, self.resolution_ppm).max(1);
        while ends.high.saturating_sub(ends.low) > gap && trials.len() < TRIALS_MAX {
            let asked = ends.low.midpoint(ends.high);
            let offered = trial(Some(asked))?;
            trials.push(offered);
            ends.narrow(asked, &offered, self.accepted_ppm);
        }
        // A single trial may lose frames to a busy machine, or pass by luck: both ends are tried again.
        let mut is_confirmed = true;
        for had in ends.best.into_iter().chain(ends.above) {
            let asked_so = |other: &&Offered| other.asked_fps == had.asked_fps;
            if known.iter().filter(asked_so).count() > 1 {
                continue; // the search before has repeated it already
            }
            let again = trial(had.asked_fps)?;
            trials.push(again);
            is_confirmed &= self.is_the_same(&had, &again);
        }
        let steady = is_confirmed && self.is_steady(known.iter().chain(&trials));
        let limit = if ends.best.is_some() { ends.limit } else { Limit::NonePassed };
        Ok(Found { best: ends.best, limit, steady, trials })
    }

    /// Whether a repeated trial passed or failed as before and, if it passed, offered the same rate.
    fn is_the_same(&self, had: &Offered, again: &Offered) -> bool {
        let close = |a: &Offered, b: &Offered| a.offered_fps >= share(b.offered_fps, SAME_PPM);
        let (passed, passes) = (had.passes(self.accepted_ppm), again.passes(self.accepted_ppm));
        // A failed trial may have offered anything: its requested rate is what failed.
        passed == passes && (!passed || close(had, again) && close(again, had))
    }

    /// Whether no trial failed at a rate below one that passed, to within the resolution.
    fn is_steady<'a>(&self, trials: impl Iterator<Item = &'a Offered>) -> bool {
        let (mut passed, mut failed, mut most) = (0, u64::MAX, 0);
        for trial in trials {
            most = most.max(trial.offered_fps);
            if trial.passes(self.accepted_ppm) {
                passed = passed.max(trial.offered_fps);
            } else {
                failed = failed.min(trial.offered_fps);
            }
        }
        passed <= failed.saturating_add(share(most, self.resolution_ppm).max(1))
    }
}

/// Bounds of the throughput, with the trials that set them.
struct Ends {
    /// The trial with the highest rate that passed.
    best: Option<Offered>,
    /// The trial with the lowest rate that failed or could not be offered.
    above: Option<Offered>,
    /// Highest requested rate that passed, or 0.
    low: u64,
    /// Lowest requested rate that failed or could not be offered.
    high: u64,
    /// Why `high` is where it is.
    limit: Limit,
}

impl Ends {
    /// Bounds after the trial at the generator's maximum.
    fn of_whole(whole: Offered, accepted_ppm: u64) -> Self {
        let high = whole.offered_fps;
        // No search is needed: `low` equals `high`, and the generator is the limit.
        if whole.passes(accepted_ppm) {
            let limit = Limit::Generator;
            return Self { best: Some(whole), above: None, low: high, high, limit };
        }
        Self { best: None, above: Some(whole), low: 0, high, limit: Limit::Device }
    }

    /// Takes over the trials of an earlier search. Rates that passed there pass here too, so the throughput with some
    /// loss accepted is never below the one without. The lowest rate above them that fails is the upper bound.
    fn learn(&mut self, known: &[Offered], accepted_ppm: u64) {
        for trial in known.iter().filter(|trial| trial.passes(accepted_ppm)) {
            if trial.offered_fps > self.low {
                (self.low, self.best) = (trial.offered_fps, Some(*trial));
            }
        }
        for trial in known.iter().filter(|trial| !trial.passes(accepted_ppm)) {
            if trial.offered_fps > self.low && trial.offered_fps < self.high {
                (self.high, self.above) = (trial.offered_fps, Some(*trial));
            }
        }
    }

    /// Moves one bound to `asked`, which halves the distance.
    fn narrow(&mut self, asked: u64, offered: &Offered, accepted_ppm: u64) {
        if offered.passes(accepted_ppm) {
            if self.best.is_none_or(|best| offered.offered_fps > best.offered_fps) {
                self.best = Some(*offered);
            }
            if offered.is_reached() {
                self.low = asked;
                return;
            }
            // Passed, but the generator offered less than requested: nothing is known about the requested rate.
            self.limit = Limit::Generator;
        } else {
            self.limit = Limit::Device;
        }
        (self.high, self.above) = (asked, Some(*offered));
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// A device that forwards up to a rate, and a generator that offers up to another.
    struct Model {
        forwards_fps: u64,
        generates_fps: u64,
        /// Lost of every million, at any rate.
        floor_ppm: u64,
    }

    impl Model {
        fn trial(&self, asked_fps: Option<u64>) -> Offered {
            let offered_fps = asked_fps.unwrap_or(u64::MAX).min(self.generates_fps);
            let sent_frames = offered_fps * 10; // ten seconds
            let through = sent_frames.min(self.forwards_fps * 10);
            let received_frames = through - share(through, self.floor_ppm);
            Offered { asked_fps, offered_fps, sent_frames, received_frames }
        }

        fn search(&self, accepted_ppm: u64, resolution_ppm: u64, known: &[Offered]) -> Found {
            let search = Search { accepted_ppm, resolution_ppm };
            let found: Result<_, ()> = search.run(known, |asked| Ok(self.trial(asked)));
            found.unwrap()
        }
    }

    const RESOLUTION_PPM: u64 = 1_000;

    /// Throughput with and without accepted loss, to the resolution, for devices of known rate.
    #[test]
    fn throughput_is_found_within_the_resolution() {
        #[rustfmt::skip] // columns: name, device, generator, accepted ppm, wanted rate, limit
        let cases = [
            ("no loss",               1_234_567, 10_000_000, 0,     1_234_567, Limit::Device),
            ("half a percent",        1_000_000, 10_000_000, 5_000, 1_005_025, Limit::Device),
            ("just below all",        9_990_000, 10_000_000, 0,     9_990_000, Limit::Device),
            ("a thousandth of all",   30_000,    10_000_000, 0,     30_000,    Limit::Device),
            ("nothing is ever lost",  u64::MAX / 100, 5_000_000, 0, 5_000_000, Limit::Generator),
            ("all that is offered",   5_000_000, 5_000_000,  0,     5_000_000, Limit::Generator),
        ];
        for (name, forwards_fps, generates_fps, accepted_ppm, want, limit) in cases {
            let model = Model { forwards_fps, generates_fps, floor_ppm: 0 };
            let found = model.search(accepted_ppm, RESOLUTION_PPM, &[]);
            let best = found.best.unwrap();
            assert!(best.passes(accepted_ppm), "{name}");
            assert!(best.offered_fps <= want, "{name}: {} is above {want}", best.offered_fps);
            let short = want - best.offered_fps;
            assert!(short <= share(generates_fps, RESOLUTION_PPM), "{name}: short by {short}");
            assert_eq!((found.limit, found.steady), (limit, true), "{name}");
            assert!(found.trials.len() <= 14, "{name}: {} trials", found.trials.len());
        }
    }

    /// A busy machine loses frames at any rate, at some times: the search is marked. The device of this test forwards
    /// everything, so no figure below the full rate is right.
    #[test]
    fn a_search_among_losses_at_random_is_marked() {
        let model = Model { forwards_fps: 1 << 40, generates_fps: 10_000_000, floor_ppm: 0 };
        let search = Search { accepted_ppm: 0, resolution_ppm: RESOLUTION_PPM };
        let (mut steady, mut wrong) = (0, 0);
        for seed in 0..200 {
            let mut rng = weft_base::rng::Rng::new(seed);
            let found: Result<_, ()> = search.run(&[], |asked| {
                let mut offered = model.trial(asked);
                offered.received_frames -= u64::from(rng.chance(1, 4)); // one frame, in a quarter of the trials
                Ok(offered)
            });
            let found = found.unwrap();
            let is_right = found.best.is_some_and(|best| best.offered_fps >= 9_900_000);
            steady += u64::from(found.steady);
            wrong += u64::from(found.steady && !is_right);
        }
        assert!(steady > 50, "{steady} of 200: what was not disturbed is not marked");
        // Chance may lose frames twice in turn at the same rate, which counts as a loss of the device.
        assert!(wrong <= 10, "{wrong} of 200 have a rate too low and are not marked");
    }

    /// A generator that offers less the second time is not steady, though nothing is lost.
    #[test]
    fn a_generator_that_comes_and_goes_is_marked() {
        let search = Search { accepted_ppm: 0, resolution_ppm: RESOLUTION_PPM };
        for (second, steady) in
            [(1_000_000, true), (960_000, true), (900_000, false), (1_100_000, false)]
        {
            let mut rates = [1_000_000, second].into_iter();
            let found: Result<_, ()> = search.run(&[], |asked_fps| {
                let offered_fps = rates.next().expect("two trials");
                let (sent_frames, received_frames) = (offered_fps, offered_fps);
                Ok(Offered { asked_fps, offered_fps, sent_frames, received_frames })
            });
            assert_eq!(found.unwrap().steady, steady, "{second}");
        }
    }

    /// For any results of trials, a rate that passed without loss also passes with some loss accepted.
    #[test]
    fn no_partial_drop_rate_is_below_the_throughput() {
        for seed in 0..500 {
            let mut rng = weft_base::rng::Rng::new(seed);
            let mut any = |asked: Option<u64>| -> Result<Offered, ()> {
                let most = 500_000 + rng.below(1_000_000);
                let offered_fps = asked.unwrap_or(u64::MAX).min(most);
                let lost = rng.below(3) * rng.below(offered_fps / 50 + 1);
                let received_frames = offered_fps - lost;
                Ok(Offered {
                    asked_fps: asked,
                    offered_fps,
                    sent_frames: offered_fps,
                    received_frames,
                })
            };
            let mut known = vec![any(None).unwrap()];
            let search = |accepted_ppm| Search { accepted_ppm, resolution_ppm: RESOLUTION_PPM };
            let ndr = search(0).run(&known, &mut any).unwrap();
            known.extend(&ndr.trials);
            let pdr = search(5_000).run(&known, &mut any).unwrap();
            let rate = |found: &Found| found.best.map_or(0, |best| best.offered_fps);
            assert!(rate(&pdr) >= rate(&ndr), "seed {seed}: {pdr:?} {ndr:?}");
        }
    }

    #[test]
    fn a_device_that_loses_always_ends_the_search_without_a_rate() {
        for (name, forwards_fps, floor_ppm) in [("black hole", 0, 0), ("leak", 1 << 40, 1_000)] {
            let model = Model { forwards_fps, generates_fps: 10_000_000, floor_ppm };
            let found = model.search(0, RESOLUTION_PPM, &[]);
            assert_eq!((found.best, found.limit), (None, Limit::NonePassed), "{name}");
            assert!(found.trials.len() <= 14, "{name}: {} trials", found.trials.len());
        }
    }

    #[test]
    fn what_is_known_saves_trials_and_changes_nothing() {
        let model = Model { forwards_fps: 1_000_000, generates_fps: 10_000_000, floor_ppm: 0 };
        let ndr = model.search(0, RESOLUTION_PPM, &[]);
        let (alone, after) = (
            model.search(5_000, RESOLUTION_PPM, &[]),
            model.search(5_000, RESOLUTION_PPM, &ndr.trials),
        );
        assert!(after.trials.len() < alone.trials.len(), "{after:?}");
        let rate = |found: &Found| found.best.unwrap().offered_fps;
        assert!(rate(&after).abs_diff(rate(&alone)) <= 10_000, "{after:?} {alone:?}");
        assert!(rate(&after) >= rate(&ndr));
    }

    /// A generator that does not keep up below its best: what it did not offer is not reported.
    #[test]
    fn no_rate_is_reported_that_was_not_offered() {
        let model = Model { forwards_fps: 4_000_000, generates_fps: 3_000_000, floor_ppm: 0 };
        let mut first = true;
        let search = Search { accepted_ppm: 0, resolution_ppm: RESOLUTION_PPM };
        let found: Result<_, ()> = search.run(&[], |asked| {
            if core::mem::take(&mut first) {
                // a burst that is lost, faster than what is ever offered again
                let (offered_fps, sent_frames) = (8_000_000, 80_000_000);
                return Ok(Offered {
                    asked_fps: asked,
                    offered_fps,
                    sent_frames,
                    received_frames: 1,
                });
            }
            Ok(model.trial(asked))
        });
        let found = found.unwrap();
        assert_eq!(found.limit, Limit::Generator);
        assert_eq!(found.best.unwrap().offered_fps, 3_000_000);
    }

    #[test]
    fn a_trial_that_cannot_be_run_ends_the_search() {
        let search = Search { accepted_ppm: 0, resolution_ppm: 1 };
        assert_eq!(search.run(&[], |_| Err("unplugged")), Err("unplugged"));
    }

    #[test]
    fn shares_of_loss_are_rounded_against_the_device() {
        let lost = |sent_frames, received_frames| {
            let trial = Offered { asked_fps: None, offered_fps: 1, sent_frames, received_frames };
            trial.lost_ppm()
        };
        assert_eq!(lost(10_000_000, 9_999_999), 1, "one of ten million is a loss");
        assert_eq!(lost(10, 10), 0);
        assert_eq!(lost(0, 0), 1_000_000, "nothing sent passes no test");
        assert_eq!(lost(5, 9), 0, "copies make up for nothing, but are no loss");
    }
}
