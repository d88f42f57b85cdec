//! DCQCN in integers: CNPs cut the rate of a queue pair, periods without one raise it again.
//!
//! Rates are bytes in a rate window, alpha is in 1024ths.
//!
//! Source: docs/spec/model.md §4 "Rate"; Zhu et al., Congestion Control for Large-Scale RDMA Deployments, SIGCOMM 2015.

use weft_dataplane::time::{Instant, Span};

/// Alpha of 1, and the denominator of its gain.
const ONE: u32 = 1 << 10;

/// Why a controller cannot be made as specified.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
pub enum DcqcnError {
    /// A gain out of range.
    #[error("dcqcn gain {0}: expected 1 to 1023 (of 1024)")]
    Gain(u32),
    /// A shift of the cut out of range.
    #[error("dcqcn shift {0}: expected 0 to 6")]
    Shift(u32),
    /// A period out of range.
    #[error("dcqcn timer {ns} ns: expected 1 to 256 us", ns = .0.as_ns())]
    Timer(Span),
    /// A least rate out of range.
    #[error("dcqcn least {least} bytes a window: expected 1 to the rate, {most}")]
    Least {
        /// The least rate that was asked for.
        least: u32,
        /// Highest value allowed: the full rate.
        most: u32,
    },
}

/// Parameters of a controller.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct DcqcnSpec {
    /// Gain of alpha, 1 to 1023 of 1024: how fast alpha follows.
    pub gain: u32,
    /// A CNP cuts the rate by alpha / 2^shift of it; 0 to 6.
    pub shift: u32,
    /// Period without a CNP after which the rate is raised; 1 to 256 us.
    pub timer: Span,
    /// Periods of fast recovery, each of which halves the distance to the rate before the cut.
    pub fast_rounds: u32,
    /// Bytes a window by which the target rises in each period after fast recovery.
    pub additive: u32,
    /// The same once as many periods again have passed.
    pub hyper: u32,
    /// Bytes a window below which the rate is not cut.
    pub least: u32,
}

impl DcqcnSpec {
    /// Gain 1/256, a cut by half of alpha, 55 us, five periods; steps of 40 and 400 Mb/s and a least rate of 100 Mb/s
    /// in windows of 4.096 us.
    pub const DEFAULT: Self = Self {
        gain: 4,
        shift: 1,
        timer: Span::from_us(55),
        fast_rounds: 5,
        additive: 20,
        hyper: 204,
        least: 51,
    };
}

/// Controller of one queue pair's rate.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Dcqcn {
    spec: DcqcnSpec,
    most: u32,
    rate: u32,
    target: u32,
    alpha: u32,
    /// Periods since the last CNP.
    rounds: u32,
    /// When the current period began; `None` before the first CNP.
    since: Option<Instant>,
}

impl Dcqcn {
    /// A controller at the full rate `most`; alpha is 1, so that the first CNP halves the rate with the default shift.
    ///
    /// # Errors
    /// A parameter out of range.
    pub fn new(spec: DcqcnSpec, most: u32) -> Result<Self, DcqcnError> {
        if !(1..ONE).contains(&spec.gain) {
            return Err(DcqcnError::Gain(spec.gain));
        }
        if spec.shift > 6 {
            return Err(DcqcnError::Shift(spec.shift));
        }
        if spec.timer < Span::from_us(1) || spec.timer > Span::from_us(256) {
            return Err(DcqcnError::Timer(spec.timer));
        }
        if !(1..=most).contains(&spec.least) {
            return Err(DcqcnError::Least { least: spec.least, most });
        }
        let (rate, target, since) = (most, most, None);
        Ok(Self { spec, most, rate, target, alpha: ONE, rounds: 0, since })
    }

    /// Rate now, in bytes a window.
    #[must_use]
    pub const fn rate(&self) -> u32 {
        self.rate
    }

    /// Alpha now, in 1024ths.
    #[must_use]
    pub const fn alpha(&self) -> u32 {
        self.alpha
    }

    /// Cuts the rate after a CNP, and restarts the period.
    pub fn congested(&mut self, now: Instant) {
        // Periods that ended before this CNP have to raise the rate first.
        self.tick(now);
        let cut = (u64::from(self.rate) * u64::from(self.alpha)) >> (10 + self.spec.shift);
        self.target = self.rate;
        self.rate = self.rate.saturating_sub(low(cut)).max(self.spec.least);
        self.alpha = ((ONE - self.spec.gain) * self.alpha + self.spec.gain * ONE) >> 10;
        self.rounds = 0;
        self.since = Some(now);
    }

    /// Ends the periods that are over by `now`, each of which raises the rate.
    pub fn tick(&mut self, now: Instant) {
        let Some(since) = self.since else { return };
        let periods = now.since(since).as_ps() / self.spec.timer.as_ps();
        self.since = Some(since + Span::from_ps(periods * self.spec.timer.as_ps()));
        for _ in 0..periods {
            let before = (self.alpha, self.rate, self.target);
            self.alpha = ((ONE - self.spec.gain) * self.alpha) >> 10;
            self.raise();
            let is_settled = self.rounds > 2 * self.spec.fast_rounds;
            if is_settled && before == (self.alpha, self.rate, self.target) {
                return; // nor does it change later
            }
        }
    }

    fn raise(&mut self) {
        self.rounds = self.rounds.saturating_add(1);
        let fast = self.spec.fast_rounds;
        if self.rounds > 2 * fast {
            self.target = self.target.saturating_add(self.spec.hyper).min(self.most);
        } else if self.rounds > fast {
            self.target = self.target.saturating_add(self.spec.additive).min(self.most);
        }
        let sum = u64::from(self.rate) + u64::from(self.target);
        self.rate = low(sum.div_ceil(2)); // rounded up, so that it gets there
    }

    /// When [`Self::tick`] raises the rate next; `None` at the full rate.
    #[must_use]
    pub fn next(&self) -> Option<Instant> {
        self.since.filter(|_| self.rate < self.most).map(|since| since + self.spec.timer)
    }
}

fn low(value: u64) -> u32 {
    u32::try_from(value).unwrap_or(u32::MAX)
}

#[cfg(test)]
mod tests {
    use super::*;

    const SPEC: DcqcnSpec =
        DcqcnSpec { gain: 64, additive: 100, hyper: 1_000, least: 10, ..DcqcnSpec::DEFAULT };

    fn at(us: u64) -> Instant {
        Instant::from_ps(us * 1_000_000)
    }

    /// By hand: a cut by half, five halves of the way back, ten steps up, then large ones to the full rate.
    #[test]
    fn a_rate_is_cut_and_comes_back() {
        let mut dcqcn = Dcqcn::new(SPEC, 20_000).unwrap();
        assert_eq!((dcqcn.rate(), dcqcn.next()), (20_000, None));
        dcqcn.congested(at(1_000));
        assert_eq!((dcqcn.rate(), dcqcn.next()), (10_000, Some(at(1_055))));
        dcqcn.congested(at(1_020));
        // 10,000 - 10,000 x 1,024 / 2,048
        assert_eq!((dcqcn.rate(), dcqcn.next()), (5_000, Some(at(1_075))));
        #[rustfmt::skip] // columns: at us, rate
        let table = [
            (1_074,  5_000), (1_075,  7_500), (1_130,  8_750), (1_185,  9_375), (1_240, 9_688), (1_295, 9_844),
            (1_350,  9_972), (1_405, 10_086), (1_460, 10_193), (1_515, 10_297), (1_570, 10_399),
            (1_625, 10_950), (1_680, 11_725), (1_735, 12_613),
        ];
        for (us, rate) in table {
            dcqcn.tick(at(us));
            assert_eq!(dcqcn.rate(), rate, "{us} us");
        }
        dcqcn.tick(at(10_000));
        assert_eq!((dcqcn.rate(), dcqcn.next()), (20_000, None));
    }

    /// Alpha begins to fall with the first notification, and rises with each.
    #[test]
    fn alpha_follows_the_notifications() {
        let mut dcqcn = Dcqcn::new(SPEC, 20_000).unwrap();
        dcqcn.congested(at(1_000));
        #[rustfmt::skip] // columns: at us, alpha
        let table = [(1_054, 1_024), (1_055, 960), (1_110, 900), (1_165, 843)];
        for (us, alpha) in table {
            dcqcn.tick(at(us));
            assert_eq!(dcqcn.alpha(), alpha, "{us} us");
        }
        dcqcn.congested(at(1_166));
        assert_eq!(dcqcn.alpha(), 854); // (960 x 843 + 64 x 1,024) / 1,024
        dcqcn.tick(at(1_000_000));
        assert_eq!((dcqcn.alpha(), dcqcn.rate()), (0, 20_000));
    }

    /// Without steps the rate stays where it was before the cut, and time costs nothing.
    #[test]
    fn without_steps_it_stays_below() {
        let mut dcqcn = Dcqcn::new(DcqcnSpec { additive: 0, hyper: 0, ..SPEC }, 20_000).unwrap();
        dcqcn.congested(at(0));
        dcqcn.congested(at(1));
        dcqcn.tick(at(1_000_000_000));
        assert_eq!(dcqcn.rate(), 10_000);
    }

    #[test]
    fn what_cannot_be_is_refused() {
        #[rustfmt::skip] // columns: controller, error
        let cases = [
            (DcqcnSpec { gain: 0, ..SPEC },                        DcqcnError::Gain(0)),
            (DcqcnSpec { gain: 1_024, ..SPEC },                    DcqcnError::Gain(1_024)),
            (DcqcnSpec { shift: 7, ..SPEC },                       DcqcnError::Shift(7)),
            (DcqcnSpec { timer: Span::from_ns(999), ..SPEC },      DcqcnError::Timer(Span::from_ns(999))),
            (DcqcnSpec { timer: Span::from_ns(256_001), ..SPEC },  DcqcnError::Timer(Span::from_ns(256_001))),
            (DcqcnSpec { least: 0, ..SPEC },                       DcqcnError::Least { least: 0, most: 100 }),
            (DcqcnSpec { least: 101, ..SPEC },                     DcqcnError::Least { least: 101, most: 100 }),
        ];
        for (spec, error) in cases {
            assert_eq!(Dcqcn::new(spec, 100), Err(error));
        }
    }
}
