//! The tests of RFC 2544 with frames of one size.
//!
//! [`Measure::run`] carries out the tests of a [`Plan`] on a [`Rig`], each by a function of its own, and returns a
//! [`SizeResult`].
//!
//! Source: RFC 2544 §26.1 to §26.4.

use indicatif::ProgressBar;
use weft_base::wait;
use weft_dataplane::time::Span;
use weft_hosts::frames::FrameSpec;

use super::burst;
use super::machine::Link;
use super::plan::{Plan, Test, bytes_of_twelve};
use super::result::{
    BurstResult, LatencyResult, PREAMBLE_AND_GAP, SizeResult, TaggedResult, Throughput, Totals,
};
use super::search::{Found, Limit, Offered, Search, share};
use super::trial::{Ask, Extent, Outcome, Rig, TrialError};

/// Frames and rate (frames/s) of the first trial, which checks whether any frame arrives at all.
const LOOK_FRAMES: u64 = 20;
const LOOK_FPS: u64 = 1_000;
/// Step by which the loss test lowers the offered load (RFC 2544 §26.3).
const LOSS_STEP_PPM: u64 = 100_000;
/// Additional pairs of searches for each size, in place of pairs that contradict themselves.
const PAIRS_MORE_MAX: usize = 2;
/// From this share of the link's rate on, the link counts as full.
const LINK_FULL_PPM: u64 = 990_000;

/// Why a size has no result.
#[derive(Debug, thiserror::Error)]
pub enum SizeError {
    /// A trial could not be run.
    #[error(transparent)]
    Trial(#[from] TrialError),
    /// No frame arrived: frames sent, sending device, receiving device.
    #[error(
        "{0} frames were sent by {1} and none arrived at {2}: check the path between them and its MTU"
    )]
    NoWay(u64, String, String),
}

/// The tests of one frame size, with their running totals.
pub struct Measure<'a> {
    pub rig: &'a mut Rig,
    pub plan: &'a Plan,
    /// Template of the frames, with their size.
    pub frame: FrameSpec,
    /// Name of the size in results: bytes with FCS, or `imix`.
    pub size: String,
    /// Sending and receiving port.
    pub links: [&'a Link; 2],
    /// Advanced by one with each trial.
    pub progress: &'a ProgressBar,
    /// Frames counted so far, over all trials.
    pub totals: Totals,
    /// Highest rate that was offered, in frames a second.
    pub most_fps: u64,
}

impl Measure<'_> {
    /// Carries out all tests of the plan.
    ///
    /// # Errors
    /// A trial cannot be run, or no frame arrives.
    pub fn run(mut self) -> Result<SizeResult, SizeError> {
        // A path that loses every frame would cost a whole search before it shows.
        let look = Ask { fps: Some(LOOK_FPS), extent: Extent::Frames(LOOK_FRAMES), latency: false };
        let (look, _) = self.trial("first look", &look)?;
        if look.received_frames == 0 {
            let [tx, rx] = self.links.map(|link| link.device.clone());
            return Err(SizeError::NoWay(look.sent_frames, tx, rx));
        }
        let whole = self.load("all that can be offered", None)?;
        let twelve_bytes = bytes_of_twelve(&self.frame);
        let mut result = SizeResult {
            size: self.size.clone(),
            twelve_bytes,
            link_fps: self.links[0].bps.map(|bps| link_fps(bps, twelve_bytes)),
            generator_fps: whole.offered_fps,
            throughput: None,
            partial: None,
            latency: None,
            latency_tagged: None,
            loss: Vec::new(),
            burst: None,
            totals: Totals::default(),
        };
        let does = |test| self.plan.tests.contains(&test);
        let (latency, loss, burst) = (does(Test::Latency), does(Test::Loss), does(Test::Burst));
        // Latency is measured at a share of the throughput, so it needs the search even if only latency was requested.
        if does(Test::Throughput) || latency {
            self.throughput(whole, &mut result)?;
        }
        if latency {
            self.latency(&mut result)?;
        }
        if loss {
            result.loss = self.loss(whole)?;
        }
        if burst {
            result.burst = Some(self.burst(whole.offered_fps)?);
        }
        result.totals = self.totals;
        // Later trials may have offered more than the first one.
        result.generator_fps = self.most_fps;
        Ok(result)
    }

    /// Runs one trial and adds its counts to the totals.
    fn trial(&mut self, what: &str, ask: &Ask) -> Result<(Offered, Outcome), TrialError> {
        let rate = ask.fps.map_or("as fast as can be".to_owned(), |fps| format!("{fps} frames/s"));
        self.progress.set_message(format!("{} bytes, {what}, {rate}", self.size));
        self.progress.inc(1);
        // Lets the device recover between trials (RFC 2544 §23).
        if self.plan.rest_ms > 0 {
            wait::pause(std::time::Duration::from_millis(self.plan.rest_ms));
        }
        let outcome = self.rig.run(&self.frame, ask)?;
        self.totals.trials += 1;
        for way in &outcome.ways {
            self.totals.sent += way.sent;
            self.totals.received += way.unique;
            self.totals.duplicates += way.duplicates;
            self.totals.reordered += way.reordered;
            self.totals.corrupt += way.corrupt;
            self.totals.late += way.late;
        }
        Ok((outcome.offered(), outcome))
    }

    /// Runs a trial of the plan's length at `fps`, or at the generator's maximum.
    fn load(&mut self, what: &str, fps: Option<u64>) -> Result<Offered, TrialError> {
        let extent = Extent::Time(Span::from_ms(self.plan.trial_ms));
        let offered = self.trial(what, &Ask { fps, extent, latency: false })?.0;
        self.most_fps = self.most_fps.max(offered.offered_fps);
        Ok(offered)
    }

    /// Searches for NDR and PDR (§26.1) as often as planned, each time from the start. A pair of searches that
    /// contradicts itself is repeated, up to [`PAIRS_MORE_MAX`] times.
    fn throughput(&mut self, whole: Offered, result: &mut SizeResult) -> Result<(), TrialError> {
        let planned = usize::from(self.plan.repetitions);
        let (mut steady, mut unsteady) = (Vec::new(), Vec::new());
        let mut whole = Some(whole);
        while steady.len() < planned && steady.len() + unsteady.len() < planned + PAIRS_MORE_MAX {
            // The first pair reuses the trial at full load that `run` has made.
            let first = match whole.take() {
                Some(whole) => whole,
                None => self.load("all that can be offered", None)?,
            };
            let pair = self.pair(first, result.link_fps)?;
            if pair.iter().all(|found| found.steady) { &mut steady } else { &mut unsteady }
                .push(pair);
        }
        let is_steady = steady.len() == planned;
        // Pairs are used or dropped whole. In each pair the PDR is at least the NDR, so their medians are, too.
        let (used, unused) =
            if steady.is_empty() { (unsteady, steady) } else { (steady, unsteady) };
        let of = |ppm, at: usize| {
            let one = |pairs: &[[Found; 2]]| -> Vec<Found> {
                pairs.iter().filter_map(|pair| pair.get(at).cloned()).collect()
            };
            let figures = Throughput::of(ppm, result.twelve_bytes, one(&used))?;
            Some(Throughput { steady: is_steady, unused_searches: one(&unused), ..figures })
        };
        let (strict, partial) =
            (of(self.plan.accepted_loss_ppm, 0), of(self.plan.partial_loss_ppm, 1));
        (result.throughput, result.partial) = (strict, partial);
        Ok(())
    }

    /// Searches for the NDR, then for the PDR, which reuses the trials of the first search.
    fn pair(&mut self, whole: Offered, link_fps: Option<u64>) -> Result<[Found; 2], TrialError> {
        let mut known = vec![whole];
        let ndr = self.search("throughput", self.plan.accepted_loss_ppm, &known)?;
        known.extend(&ndr.trials);
        let pdr = self.search("partial drop rate", self.plan.partial_loss_ppm, &known)?;
        Ok([ndr, pdr].map(|found| Found { limit: at_link(&found, link_fps), ..found }))
    }

    fn search(
        &mut self,
        what: &str,
        accepted_ppm: u64,
        known: &[Offered],
    ) -> Result<Found, TrialError> {
        let search = Search { accepted_ppm, resolution_ppm: self.plan.resolution_ppm };
        search.run(known, |fps| self.load(what, fps))
    }

    /// Measures latency at a share of the throughput, and of single tagged frames at the full throughput (§26.2).
    fn latency(&mut self, result: &mut SizeResult) -> Result<(), TrialError> {
        let throughput = result.throughput.as_ref().map_or(0, |found| found.median_fps);
        if throughput == 0 {
            return Ok(()); // without a rate that passes there is no load to name
        }
        let extent = Extent::Time(Span::from_ms(self.plan.latency_trial_ms));
        let fps = share(throughput, self.plan.latency_load_ppm).max(1);
        let (offered, outcome) =
            self.trial("latency", &Ask { fps: Some(fps), extent, latency: true })?;
        let mut latency = weft_hosts::stream::rx::Latency::default();
        for way in &outcome.ways {
            latency.merge(&way.latency);
        }
        result.latency = LatencyResult::of(offered, &latency);
        let (mut tagged_ns, mut expected, mut least_fps) = (Vec::new(), 0, throughput);
        // §26.2 wants one tagged frame a trial, in the middle of the stream, and the mean over the trials.
        for _ in 0..self.plan.latency_repetitions {
            let ask = Ask { fps: Some(throughput), extent, latency: true };
            let (offered, outcome) = self.trial("latency of a tagged frame", &ask)?;
            least_fps = least_fps.min(offered.offered_fps);
            expected += outcome.ways.len() as u64;
            tagged_ns.extend(outcome.ways.iter().filter_map(|way| Some(way.tagged?.as_ns())));
        }
        result.latency_tagged = TaggedResult::of(least_fps, expected, &tagged_ns);
        Ok(())
    }

    /// Measures loss at the generator's maximum and at steps of a tenth below, until two successive loads lose nothing
    /// (§26.3).
    fn loss(&mut self, whole: Offered) -> Result<Vec<Offered>, TrialError> {
        let mut points = vec![whole];
        let mut ppm = 1_000_000;
        while ppm > LOSS_STEP_PPM {
            let last_two = points.iter().rev().take(2);
            if points.len() >= 2 && last_two.clone().all(|point| point.lost() == 0) {
                break;
            }
            ppm -= LOSS_STEP_PPM;
            let fps = share(whole.offered_fps, ppm).max(1);
            points.push(self.load("loss", Some(fps))?);
        }
        Ok(points)
    }

    /// Searches for the longest burst without loss (§26.4).
    fn burst(&mut self, most_fps: u64) -> Result<BurstResult, TrialError> {
        let most = share(most_fps, self.plan.burst_ms_max * 1_000).max(1);
        let resolution = share(most, self.plan.resolution_ppm);
        let mut frames = Vec::new();
        for _ in 0..self.plan.burst_repetitions {
            let longest = burst::longest(most, resolution, |count| {
                let ask = Ask { fps: None, extent: Extent::Frames(count), latency: false };
                Ok::<_, TrialError>(self.trial("burst", &ask)?.0.lost() == 0)
            })?;
            frames.push(longest);
        }
        let mean_frames = frames.iter().sum::<u64>().checked_div(frames.len() as u64);
        Ok(BurstResult { most_tried_frames: most, mean_frames: mean_frames.unwrap_or(0), frames })
    }
}

/// Maximum frames a second on a link of `bps`, where twelve frames have `twelve_bytes`.
fn link_fps(bps: u64, twelve_bytes: u64) -> u64 {
    // Over twelve frames, as the mean length of IMIX is no whole number of bytes.
    let bits = (twelve_bytes + 12 * PREAMBLE_AND_GAP) * 8;
    u64::try_from(u128::from(bps) * 12 / u128::from(bits)).unwrap_or(u64::MAX)
}

/// Refines the limit of a search, which knows nothing of links: a generator that fills its link is limited by it.
fn at_link(found: &Found, link_fps: Option<u64>) -> Limit {
    let full = link_fps
        .zip(found.best)
        .is_some_and(|(link_fps, best)| share(link_fps, LINK_FULL_PPM) <= best.offered_fps);
    if found.limit == Limit::Generator && full { Limit::Link } else { found.limit }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_full_link_is_told_from_a_slow_generator() {
        let gigabit = link_fps(1_000_000_000, 12 * 64);
        assert_eq!(gigabit, 1_488_095);
        #[rustfmt::skip] // columns: offered, limit of the search, rate of the link, limit
        let cases = [
            (1_488_000, Limit::Generator, Some(gigabit), Limit::Link),
            (1_400_000, Limit::Generator, Some(gigabit), Limit::Generator),
            (1_488_000, Limit::Generator, None,          Limit::Generator),
            (1_488_000, Limit::Device,    Some(gigabit), Limit::Device),
        ];
        for (offered_fps, limit, link, want) in cases {
            let best = Offered { asked_fps: None, offered_fps, sent_frames: 1, received_frames: 1 };
            let found = Found { best: Some(best), limit, steady: true, trials: vec![] };
            assert_eq!(at_link(&found, link), want, "{offered_fps} {limit:?} {link:?}");
        }
    }
}
