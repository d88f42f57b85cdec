//! Results of `weft bench ports`: plain data, from which JSON, text and HTML are made.
//!
//! [`PortsResult`] has a [`SizeResult`] for each frame size. Sizes and `_bps` count the FCS, `_wire_bps` also preamble
//! and gap.
//!
//! Source: RFC 2544 §26 (reporting formats); docs/bench.md.

use serde::Serialize;
use weft_hosts::stream::rx::Latency;

use super::machine::{Link, Machine};
use super::plan::Plan;
use super::search::{Found, Limit, Offered};

/// The whole result; serialised for `--json`.
#[derive(Clone, Debug, Serialize)]
pub struct PortsResult {
    /// Kind of the benchmark: always `ports`.
    pub bench: &'static str,
    pub machine: Machine,
    pub tx: Link,
    pub rx: Link,
    pub plan: Plan,
    pub sizes: Vec<SizeResult>,
    /// Sizes that were skipped or not finished.
    pub left_out: Vec<LeftOut>,
    /// Whether a signal ended the run.
    pub interrupted: bool,
}

/// A size that was skipped or not finished.
#[derive(Clone, Debug, Serialize)]
pub struct LeftOut {
    /// Bytes with FCS, or `imix`.
    pub size: String,
    /// The reason, as text.
    pub why: String,
    /// Whether this fails the run: the size was an argument, or its trials failed.
    pub failed: bool,
}

/// Results of one frame size; `None` for tests that were not requested or gave no figure.
#[derive(Clone, Debug, Serialize)]
pub struct SizeResult {
    /// Bytes with FCS, or `imix`.
    pub size: String,
    /// Bytes with FCS of twelve frames, one after the other.
    pub twelve_bytes: u64,
    /// Maximum frames/s of the sending port's link, where its rate is known.
    pub link_fps: Option<u64>,
    /// Highest rate that the generator offered in any trial.
    pub generator_fps: u64,
    /// Highest rate with at most the accepted loss (NDR).
    pub throughput: Option<Throughput>,
    /// Highest rate with at most the partial loss (PDR).
    pub partial: Option<Throughput>,
    /// Latencies at a share of the throughput.
    pub latency: Option<LatencyResult>,
    /// Latencies at the throughput, of one tagged frame a trial (RFC 2544 §26.2).
    pub latency_tagged: Option<TaggedResult>,
    /// Loss over load, from the generator's maximum down (§26.3).
    pub loss: Vec<Offered>,
    /// Longest bursts without loss (§26.4).
    pub burst: Option<BurstResult>,
    /// Frames counted over all trials of the size.
    pub totals: Totals,
}

/// A throughput: the median of several searches.
#[derive(Clone, Debug, Serialize)]
pub struct Throughput {
    /// Highest loss with which a trial passes.
    pub accepted_ppm: u64,
    /// Median of the searches' rates; 0 if no rate passed.
    pub median_fps: u64,
    /// The median in bits a second, FCS counted.
    pub median_bps: u64,
    /// Bits a second including preamble and gap.
    pub median_wire_bps: u64,
    /// Lowest rate that a search found.
    pub least_fps: u64,
    /// Highest rate that a search found.
    pub most_fps: u64,
    /// Why the median is not higher.
    pub limit: Limit,
    /// Whether as many searches as requested were free of contradictions. Otherwise losses have another cause than the
    /// rate, such as a machine that is busy elsewhere.
    pub steady: bool,
    /// The searches of which the median is taken, with their trials.
    pub searches: Vec<Found>,
    /// Searches left out because their trials contradict each other; empty if all searches do.
    pub unused_searches: Vec<Found>,
}

impl Throughput {
    /// The median of `searches`, where twelve frames have `twelve_bytes`; `None` without a search.
    #[must_use]
    pub fn of(accepted_ppm: u64, twelve_bytes: u64, mut searches: Vec<Found>) -> Option<Self> {
        let rate = |found: &Found| found.best.map_or(0, |best| best.offered_fps);
        searches.sort_by_key(rate);
        let (least, most) = (searches.first()?, searches.last()?);
        let median = searches.get((searches.len() - 1) / 2)?;
        let median_fps = rate(median);
        Some(Self {
            accepted_ppm,
            median_fps,
            median_bps: bits(median_fps, twelve_bytes),
            median_wire_bps: bits(median_fps, twelve_bytes + 12 * PREAMBLE_AND_GAP),
            least_fps: rate(least),
            most_fps: rate(most),
            limit: median.limit,
            steady: searches.iter().all(|found| found.steady),
            searches,
            unused_searches: Vec::new(),
        })
    }
}

/// Bytes of preamble, start of frame delimiter and minimum gap (IEEE 802.3 4.4.2).
pub const PREAMBLE_AND_GAP: u64 = 20;

/// Bits a second of `fps` frames, where twelve frames have `twelve_bytes`.
fn bits(fps: u64, twelve_bytes: u64) -> u64 {
    let bits = u128::from(fps) * u128::from(twelve_bytes) * 8 / 12;
    u64::try_from(bits).unwrap_or(u64::MAX)
}

#[derive(Clone, Debug, Serialize)]
pub struct LatencyResult {
    /// The trial whose frames were timed.
    pub trial: Offered,
    /// Frames whose latency is known.
    pub frames: u64,
    pub min_ns: u64,
    pub mean_ns: u64,
    /// Latency that half of the frames do not exceed.
    pub p50_ns: u64,
    /// Latency that 99 of 100 frames do not exceed.
    pub p99_ns: u64,
    /// Latency that 999 of 1,000 frames do not exceed.
    pub p999_ns: u64,
    pub max_ns: u64,
    /// Pairs of quantile, in parts per million, and latency.
    pub curve_ns: Vec<(u64, u64)>,
}

/// Quantiles of the curve: parts per million, and the same as a fraction.
const CURVE: [(u64, f64); 12] = [
    (0, 0.0),
    (100_000, 0.1),
    (250_000, 0.25),
    (500_000, 0.5),
    (750_000, 0.75),
    (900_000, 0.9),
    (950_000, 0.95),
    (990_000, 0.99),
    (999_000, 0.999),
    (999_900, 0.9999),
    (999_990, 0.99999),
    (1_000_000, 1.0),
];

impl LatencyResult {
    /// Reads a histogram; `None` if it is empty.
    #[must_use]
    pub fn of(trial: Offered, latency: &Latency) -> Option<Self> {
        let at = |quantile| latency.quantile(quantile).as_ns();
        (latency.count() > 0).then(|| Self {
            trial,
            frames: latency.count(),
            min_ns: latency.min().as_ns(),
            mean_ns: latency.mean().as_ns(),
            p50_ns: at(0.5),
            p99_ns: at(0.99),
            p999_ns: at(0.999),
            max_ns: latency.max().as_ns(),
            curve_ns: CURVE.iter().map(|&(ppm, quantile)| (ppm, at(quantile))).collect(),
        })
    }
}

/// Latencies of tagged frames.
#[derive(Clone, Debug, Serialize)]
pub struct TaggedResult {
    /// Lowest rate offered by the streams that carried the tagged frames.
    pub fps: u64,
    /// Tagged frames sent, one a trial and direction.
    pub trials: u64,
    /// Tagged frames that did not arrive.
    pub missing: u64,
    /// Mean latency of those that arrived.
    pub mean_ns: u64,
    pub min_ns: u64,
    pub max_ns: u64,
}

impl TaggedResult {
    /// Result of `trials` tagged frames, of which those in `latencies_ns` arrived; `None` if none did.
    #[must_use]
    pub fn of(fps: u64, trials: u64, latencies_ns: &[u64]) -> Option<Self> {
        let came = latencies_ns.len() as u64;
        let sum: u128 = latencies_ns.iter().map(|ns| u128::from(*ns)).sum();
        Some(Self {
            fps,
            trials,
            missing: trials.saturating_sub(came),
            mean_ns: u64::try_from(sum.checked_div(u128::from(came))?).unwrap_or(u64::MAX),
            min_ns: *latencies_ns.iter().min()?,
            max_ns: *latencies_ns.iter().max()?,
        })
    }
}

/// Longest bursts of back-to-back frames, by search.
#[derive(Clone, Debug, Serialize)]
pub struct BurstResult {
    /// Longest burst that was tried. A result of this length is only a lower bound.
    pub most_tried_frames: u64,
    /// Mean over the searches.
    pub mean_frames: u64,
    /// Longest burst without loss of each search.
    pub frames: Vec<u64>,
}

/// Counts over all trials of a size.
#[derive(Clone, Copy, Debug, Default, Serialize)]
pub struct Totals {
    /// Trials of all tests.
    pub trials: u64,
    pub sent: u64,
    /// Frames that arrived, each counted once.
    pub received: u64,
    /// Copies of frames that had arrived already.
    pub duplicates: u64,
    /// Frames that arrived behind later ones.
    pub reordered: u64,
    /// Frames that arrived with wrong bytes.
    pub corrupt: u64,
    /// Frames of earlier trials.
    pub late: u64,
}

/// A phrase for the limit of a throughput, with a warning if it is unsteady.
#[must_use]
pub fn limit_words(found: &Throughput) -> String {
    let limit = match found.limit {
        Limit::Device => "above it frames are lost",
        Limit::Link => "the link carries no more",
        Limit::Generator => "the generator offers no more",
        Limit::NonePassed => "no rate passed",
    };
    if found.steady {
        return limit.to_owned();
    }
    let all = found.searches.iter().chain(&found.unused_searches);
    let (all, marked) = (all.clone().count(), all.filter(|found| !found.steady).count());
    format!("{limit}; UNSTEADY: trials of {marked} of {all} searches contradict each other")
}

#[cfg(test)]
mod tests {
    use super::*;
    use weft_dataplane::time::Span;

    #[test]
    fn the_median_of_searches_counts_in_every_unit() {
        let found = |fps| {
            let best =
                Offered { asked_fps: None, offered_fps: fps, sent_frames: 1, received_frames: 1 };
            Found { best: Some(best), limit: Limit::Device, steady: true, trials: vec![best] }
        };
        let none = Found { best: None, limit: Limit::NonePassed, steady: true, trials: vec![] };
        let of = |searches| Throughput::of(0, 12 * 64, searches).unwrap();
        let three = of(vec![found(1_488_095), found(3_000_000), none.clone()]);
        assert_eq!((three.median_fps, three.least_fps, three.most_fps), (1_488_095, 0, 3_000_000));
        assert_eq!(three.median_bps, 761_904_640);
        assert_eq!(three.median_wire_bps, 999_999_840, "64 bytes on a gigabit");
        assert_eq!(of(vec![found(9), none]).limit, Limit::NonePassed, "of two, the lower");
        assert!(Throughput::of(0, 768, vec![]).is_none());
    }

    #[test]
    fn latencies_are_told_only_where_there_are_some() {
        let trial = Offered { asked_fps: None, offered_fps: 1, sent_frames: 1, received_frames: 1 };
        let mut latency = Latency::default();
        assert!(LatencyResult::of(trial, &latency).is_none());
        for us in 1..=1_000 {
            latency.record(Span::from_us(us));
        }
        let told = LatencyResult::of(trial, &latency).unwrap();
        assert_eq!((told.frames, told.min_ns, told.max_ns), (1_000, 1_000, 1_000_000));
        for (had, want) in [(told.p50_ns, 500_000), (told.p99_ns, 990_000), (told.p999_ns, 999_000)]
        {
            assert!(had.abs_diff(want) <= want / 50, "{had} is not {want}");
        }
        assert!(told.curve_ns.is_sorted_by_key(|(_, ns)| *ns), "{:?}", told.curve_ns);
        assert!(TaggedResult::of(5, 3, &[]).is_none());
        let tagged = TaggedResult::of(5, 3, &[10, 20]).unwrap();
        assert_eq!((tagged.mean_ns, tagged.missing, tagged.max_ns), (15, 1, 20));
    }
}
