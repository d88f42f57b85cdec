//! Series over time in a fixed number of points.
//!
//! A [`Level`] records a quantity that exists at each instant (a queue's depth), an [`Amount`] one that is added up in
//! an interval (bytes, time paused). When all points are used, pairs of them are merged and the interval doubles: means
//! and sums stay exact, and so does the maximum of a level.
//!
//! Source: docs/results.md "Series".

use weft_dataplane::time::{Instant, Span};

/// Interval of the points, and their largest number.
#[derive(Clone, Debug, PartialEq, Eq)]
struct Grid {
    interval: u64,
    points: usize,
}

impl Grid {
    /// A grid of `points` points, made even and at least 2, with an interval of at least 1 ps.
    fn new(interval: Span, points: usize) -> Self {
        Self { interval: interval.as_ps().max(1), points: points.max(2).next_multiple_of(2) }
    }

    /// Index of the point of an instant. The interval is doubled until there is one; `merge` is called each time.
    fn point(&mut self, at: u64, mut merge: impl FnMut()) -> usize {
        loop {
            let point = at / self.interval;
            match usize::try_from(point) {
                Ok(point) if point < self.points => return point,
                _ => {
                    self.interval = self.interval.saturating_mul(2);
                    merge();
                }
            }
        }
    }
}

/// Merges pairs of neighbouring values.
fn halve<T: Copy + Default>(values: &mut Vec<T>, both: impl Fn(T, T) -> T) {
    let half = values.len().div_ceil(2);
    for at in 0..half {
        let first = values.get(at * 2).copied().unwrap_or_default();
        let second = values.get(at * 2 + 1).copied().unwrap_or_default();
        if let Some(value) = values.get_mut(at) {
            *value = both(first, second);
        }
    }
    values.truncate(half);
}

/// The value at `point`, which is added if it is missing.
fn at_point<T: Copy + Default>(values: &mut Vec<T>, point: usize) -> Option<&mut T> {
    if values.len() <= point {
        values.resize(point + 1, T::default());
    }
    values.get_mut(point)
}

/// A quantity that exists at each instant: mean and maximum of each interval.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Level {
    grid: Grid,
    /// Value times picoseconds, by point.
    sums: Vec<u128>,
    most: Vec<u64>,
    since: u64,
    value: u64,
}

impl Level {
    /// A level of 0 from the beginning, in at most `points` points of `interval` each, which grows.
    #[must_use]
    pub fn new(interval: Span, points: usize) -> Self {
        let grid = Grid::new(interval, points);
        Self { grid, sums: Vec::new(), most: Vec::new(), since: 0, value: 0 }
    }

    /// Sets the level from `now` on. An instant before the last one counts as the last one.
    pub fn set(&mut self, now: Instant, value: u64) {
        self.advance(now.as_ps());
        self.value = value;
        // A level counts for the maximum even if it lasts no time.
        let point = self.point(self.since);
        if let Some(most) = at_point(&mut self.most, point) {
            *most = (*most).max(value);
        }
    }

    fn point(&mut self, at: u64) -> usize {
        let Self { grid, sums, most, .. } = self;
        grid.point(at, || {
            halve(sums, u128::saturating_add);
            halve(most, u64::max);
        })
    }

    fn advance(&mut self, now: u64) {
        if now <= self.since {
            return;
        }
        let last = self.point(now - 1); // doubles the interval first, if it must
        // Empty queues are common, and 0 adds nothing to any point.
        if self.value == 0 {
            self.since = now;
            return;
        }
        let interval = self.grid.interval;
        while self.since < now {
            let point = self.point(self.since).min(last);
            let end = (self.since / interval).saturating_add(1).saturating_mul(interval).min(now);
            let sum = u128::from(self.value) * u128::from(end - self.since);
            if let Some(to) = at_point(&mut self.sums, point) {
                *to = to.saturating_add(sum);
            }
            if let Some(most) = at_point(&mut self.most, point) {
                *most = (*most).max(self.value);
            }
            self.since = end;
        }
    }

    /// The series until `end`, whose last point may stand for less than an interval; `None` if it was 0 throughout.
    #[must_use]
    pub fn finish(mut self, end: Instant) -> Option<Points> {
        self.advance(end.as_ps());
        if self.most.iter().all(|&most| most == 0) {
            return None;
        }
        let spans = spans(self.since, self.grid.interval);
        fit(&mut self.sums, spans.len(), u128::saturating_add);
        fit(&mut self.most, spans.len(), u64::max);
        let mean = self.sums.iter().zip(&spans).map(|(&sum, &span)| quotient(sum, span));
        Some(Points { interval_ps: self.grid.interval, mean: mean.collect(), max: self.most })
    }
}

/// A quantity that is added up in each interval.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Amount {
    grid: Grid,
    sums: Vec<u64>,
}

impl Amount {
    /// An amount of 0, in at most `points` points of `interval` each, which grows.
    #[must_use]
    pub fn new(interval: Span, points: usize) -> Self {
        Self { grid: Grid::new(interval, points), sums: Vec::new() }
    }

    /// Adds `amount` at `now`.
    pub fn add(&mut self, now: Instant, amount: u64) {
        if amount > 0 {
            self.add_at(now.as_ps(), amount);
        }
    }

    /// Adds `amount`, spread evenly from `from` until `to`; remainders go to later points.
    pub fn add_over(&mut self, from: Instant, to: Instant, amount: u64) {
        let (from, to) = (from.as_ps(), to.as_ps());
        if to <= from {
            return self.add(Instant::from_ps(to), amount);
        }
        if amount == 0 {
            return;
        }
        // Doubles the interval first if it must, so that it stays the same in the loop.
        self.point(to - 1);
        let interval = self.grid.interval;
        // Shares are differences of a running total, so that they add up to `amount`.
        let share = |at: u64| {
            let part = u128::from(amount) * u128::from(at - from) / u128::from(to - from);
            u64::try_from(part).unwrap_or(u64::MAX)
        };
        let mut at = from;
        while at < to {
            let end = (at / interval).saturating_add(1).saturating_mul(interval).min(to);
            self.add_at(at, share(end) - share(at));
            at = end;
        }
    }

    fn point(&mut self, at: u64) -> usize {
        let Self { grid, sums } = self;
        grid.point(at, || halve(sums, u64::saturating_add))
    }

    fn add_at(&mut self, at: u64, amount: u64) {
        let point = self.point(at);
        if let Some(sum) = at_point(&mut self.sums, point) {
            *sum = sum.saturating_add(amount);
        }
    }

    /// The amount added a second in each point until `end`, times `factor` (8 for bits of bytes); `None` if nothing was
    /// added.
    #[must_use]
    pub fn rate(mut self, end: Instant, factor: u64) -> Option<Points> {
        const PS_A_SECOND: u128 = 1_000_000_000_000;
        self.finish(end, |sum, span| {
            quotient(u128::from(sum) * u128::from(factor) * PS_A_SECOND, span)
        })
    }

    /// The amount added in each point until `end`; `None` if nothing was added.
    #[must_use]
    pub fn sums(mut self, end: Instant) -> Option<Points> {
        self.finish(end, |sum, _| sum)
    }

    fn finish(&mut self, end: Instant, value: impl Fn(u64, u64) -> u64) -> Option<Points> {
        if self.sums.iter().all(|&sum| sum == 0) {
            return None;
        }
        if end > Instant::ZERO {
            self.point(end.as_ps() - 1);
        }
        let spans = spans(end.as_ps(), self.grid.interval);
        fit(&mut self.sums, spans.len(), u64::saturating_add);
        let mean = self.sums.iter().zip(&spans).map(|(&sum, &span)| value(sum, span)).collect();
        Some(Points { interval_ps: self.grid.interval, mean, max: Vec::new() })
    }
}

/// Time that each point stands for in a run until `end`; there is at least one point.
fn spans(end: u64, interval: u64) -> Vec<u64> {
    let count = usize::try_from(end.div_ceil(interval)).unwrap_or(usize::MAX).max(1);
    let mut spans = vec![interval; count];
    if let Some(last) = spans.last_mut()
        && !end.is_multiple_of(interval)
    {
        *last = end % interval;
    }
    spans
}

/// Makes it `count` values; those beyond, from the very end of the run, go into the last one.
fn fit<T: Copy + Default>(values: &mut Vec<T>, count: usize, both: impl Fn(T, T) -> T) {
    let beyond = values.get(count..).unwrap_or_default().iter().copied();
    let beyond = beyond.fold(T::default(), &both);
    values.resize(count, T::default());
    if let Some(last) = values.last_mut() {
        *last = both(*last, beyond);
    }
}

/// `part` / `whole`, rounded to the nearest whole number.
fn quotient(part: u128, whole: u64) -> u64 {
    let whole = u128::from(whole.max(1));
    u64::try_from((part + whole / 2) / whole).unwrap_or(u64::MAX)
}

/// Points of a series. Point n stands for the time from n to n + 1 intervals; the last one ends with the run.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Points {
    /// Length of the interval that a point stands for.
    pub interval_ps: u64,
    /// Mean of each interval.
    pub mean: Vec<u64>,
    /// Maximum of each interval; empty for an amount, which has no level.
    pub max: Vec<u64>,
}

#[cfg(test)]
mod tests {
    use super::*;

    const fn ns(ns: u64) -> Instant {
        Instant::from_ns(ns)
    }

    #[test]
    fn a_level_has_its_mean_and_its_most_by_interval() {
        let mut level = Level::new(Span::from_ns(10), 8);
        level.set(ns(5), 100);
        level.set(ns(10), 40);
        level.set(ns(25), 7);
        level.set(ns(25), 900); // for no time: its most counts
        level.set(ns(25), 0);
        let points = level.finish(ns(34)).unwrap();
        assert_eq!(points.interval_ps, 10_000);
        assert_eq!(points.mean, [50, 40, 20, 0]);
        assert_eq!(points.max, [100, 40, 900, 0]);
    }

    /// Merging loses neither the most nor the sum, whenever it happens.
    #[test]
    fn two_points_become_one_when_all_are_used() {
        let mut level = Level::new(Span::from_ns(1), 4);
        for at in 0..32 {
            level.set(ns(at), if at == 13 { 500 } else { at });
        }
        let points = level.clone().finish(ns(32)).unwrap();
        assert_eq!(points.interval_ps, 8_000);
        assert_eq!(points.max, [7, 500, 23, 31]);
        let mean = |from: u64| (from..from + 8).sum::<u64>() + 4;
        assert_eq!(points.mean[0], mean(0) / 8);
        assert_eq!(points.mean[1], (mean(8) - 13 + 500) / 8);
        assert_eq!(points.mean[3], mean(24) / 8);
        level.set(ns(1_000_000), 0);
        let points = level.finish(ns(1_000_001)).unwrap();
        assert!(points.mean.len() <= 4, "{points:?}");
        assert_eq!(points.max.iter().max(), Some(&500));
    }

    #[test]
    fn an_instant_that_is_early_counts_as_the_last_one_and_the_end_as_before() {
        let mut level = Level::new(Span::from_ns(10), 4);
        level.set(ns(10), 6);
        level.set(ns(3), 8);
        level.set(ns(20), 1); // at the very end
        let points = level.finish(ns(20)).unwrap();
        assert_eq!((points.mean, points.max), (vec![0, 8], vec![0, 8]));
        assert_eq!(Level::new(Span::from_ns(10), 4).finish(ns(20)), None, "nothing was there");
    }

    #[test]
    fn amounts_are_spread_to_the_last_unit() {
        let mut amount = Amount::new(Span::from_ns(10), 4);
        amount.add(ns(9), 125);
        amount.add_over(ns(5), ns(35), 100);
        let sums = amount.clone().sums(ns(40)).unwrap();
        assert_eq!(sums.mean, [125 + 16, 34, 33, 17]);
        assert_eq!(sums.mean.iter().sum::<u64>(), 225);
        amount.add(ns(79), 5);
        let sums = amount.clone().sums(ns(75)).unwrap();
        assert_eq!((sums.interval_ps, sums.mean), (20_000, vec![175, 50, 0, 5]));
        // 225 bytes in the first 40 ns, in bits a second
        let rate = amount.rate(ns(75), 8).unwrap();
        assert_eq!(rate.mean, [70_000_000_000, 20_000_000_000, 0, 2_666_666_667]);
        assert_eq!(Amount::new(Span::ZERO, 0).sums(ns(9)), None);
    }

    /// Any order and any sizes: what goes in comes out.
    #[test]
    fn no_amount_is_lost() {
        let mut rng = weft_base::rng::Rng::new(7);
        let mut amount = Amount::new(Span::from_ps(3), 16);
        let (mut sum, mut end) = (0, 0);
        for _ in 0..1_000 {
            let (from, span, value) = (rng.below(100_000), rng.below(5_000), rng.below(9_999));
            amount.add_over(Instant::from_ps(from), Instant::from_ps(from + span), value);
            (sum, end) = (sum + value, end.max(from + span));
        }
        let points = amount.sums(Instant::from_ps(end)).unwrap();
        assert_eq!(points.mean.iter().sum::<u64>(), sum);
        assert!(points.mean.len() <= 16);
    }
}
