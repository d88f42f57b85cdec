//! Results of flows: each by itself as a [`FlowResult`], and all together as [`Summary`] and [`SizeBin`].
//!
//! Times are picoseconds, sizes are bytes of payload, a slowdown is a ratio.
//!
//! Source: docs/results.md "Flows".

use serde::{Deserialize, Serialize};
use weft_dataplane::time::Instant;

use super::decimal::Decimal;

/// Most bins of [`SizeBin::of`].
const BINS: usize = 10;

/// Result of one flow, a message or a TCP connection from one host to another.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct FlowResult {
    /// Number of the flow.
    pub id: u32,
    /// Index of its workload.
    pub workload: u16,
    /// Number of the sending host.
    pub from: u32,
    /// Number of the receiving host.
    pub to: u32,
    /// Bytes of its payload.
    pub bytes: u64,
    /// When it was given to its endpoint; `None` if it never was.
    pub start_ps: Option<u64>,
    /// When its first frame began to be sent.
    pub first_sent_ps: Option<u64>,
    /// When its last byte was taken by the receiver.
    pub delivered_ps: Option<u64>,
    /// When all of it was acknowledged at the sender; without acknowledgements, sent.
    pub acknowledged_ps: Option<u64>,
    /// Completion time at the receiver: `delivered_ps` - `start_ps`.
    pub fct_ps: Option<u64>,
    /// Completion time at the sender: `acknowledged_ps` - `start_ps`.
    pub fct_sender_ps: Option<u64>,
    /// Least value that `fct_ps` can have, alone in the network.
    pub ideal_fct_ps: u64,
    /// `fct_ps` / `ideal_fct_ps`, to 6 places.
    pub slowdown: Option<Decimal>,
    /// Frames of it that were sent again; `None` until it is acknowledged.
    pub resent_frames: Option<u64>,
}

impl FlowResult {
    /// Notes that it was given to its endpoint at `at`.
    pub fn start(&mut self, at: Instant) {
        self.start_ps = Some(at.as_ps());
    }

    /// Notes that a frame of it began to be sent at `at`; only the first counts.
    pub fn sent(&mut self, at: Instant) {
        self.first_sent_ps.get_or_insert(at.as_ps());
    }

    /// Notes that its last byte was taken at `at`.
    pub fn delivered(&mut self, at: Instant) {
        self.delivered_ps = Some(at.as_ps());
        self.fct_ps = self.since_start(at);
        self.slowdown = self.fct_ps.and_then(|fct| Decimal::ratio(fct, self.ideal_fct_ps));
    }

    /// Notes that all of it was acknowledged at `at`, after `resent` of its frames were sent again.
    pub fn acknowledged(&mut self, at: Instant, resent: u64) {
        (self.acknowledged_ps, self.resent_frames) = (Some(at.as_ps()), Some(resent));
        self.fct_sender_ps = self.since_start(at);
    }

    fn since_start(&self, at: Instant) -> Option<u64> {
        self.start_ps.map(|start| at.as_ps().saturating_sub(start))
    }
}

/// Minimum, maximum and percentiles of flows, by nearest rank: each is the value of one flow.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Ranks<T> {
    /// Smallest value of all.
    pub min: T,
    /// Median: half of the flows do not exceed it.
    pub p50: T,
    /// 90 % of the flows do not exceed it.
    pub p90: T,
    /// 95 % of the flows do not exceed it.
    pub p95: T,
    /// 99 % of the flows do not exceed it.
    pub p99: T,
    /// 99.9 % of the flows do not exceed it.
    pub p999: T,
    /// Largest value of all.
    pub max: T,
}

impl<T: Copy + Ord> Ranks<T> {
    /// The ranks of `values`; `None` if there are none.
    #[must_use]
    pub fn of(mut values: Vec<T>) -> Option<Self> {
        values.sort_unstable();
        Self::of_sorted(&values)
    }

    fn of_sorted(values: &[T]) -> Option<Self> {
        // Nearest rank (docs/results.md): always the value of a flow, never one between two.
        let rank = |thousandths: usize| {
            let rank = (values.len() * thousandths).div_ceil(1_000).max(1);
            values.get(rank - 1).copied()
        };
        Some(Self {
            min: rank(0)?,
            p50: rank(500)?,
            p90: rank(900)?,
            p95: rank(950)?,
            p99: rank(990)?,
            p999: rank(999)?,
            max: rank(1_000)?,
        })
    }
}

/// Figures of all flows together, and totals of switches and hosts.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Summary {
    /// Number of all flows.
    pub flows: u64,
    /// Number of flows that were delivered.
    pub flows_delivered: u64,
    /// Bytes of payload of these flows.
    pub delivered_bytes: u64,
    /// Time from the first start to the last delivery.
    pub makespan_ps: u64,
    /// `delivered_bytes` over `makespan_ps`, in bits a second.
    pub goodput_bps: u64,
    /// Ranks of `fct_ps`; `None` if no flow was delivered.
    pub fct_ps: Option<Ranks<u64>>,
    /// Ranks of `fct_sender_ps`; `None` if no flow was acknowledged.
    pub fct_sender_ps: Option<Ranks<u64>>,
    /// Ranks of `slowdown`; `None` if no flow was delivered.
    pub slowdown: Option<Ranks<Decimal>>,
    /// Data frames and TCP segments that hosts sent again.
    pub resent_frames: u64,
    /// Frames that switches dropped, for any reason.
    pub dropped_frames: u64,
    /// Frames that switches marked with CE.
    pub ecn_marked_frames: u64,
    /// PFC frames that switches sent.
    pub pfc_tx_frames: u64,
    /// Time for which queues of switches were paused, summed over all of them.
    pub switch_paused_ps: u64,
    /// Time for which requests of hosts were paused, summed over all of them.
    pub host_paused_ps: u64,
    /// Most bytes of buffer that any queue took.
    pub queue_depth_max_bytes: u64,
}

impl Summary {
    /// The summary as far as it follows from flows alone.
    #[must_use]
    pub fn of(flows: &[FlowResult]) -> Self {
        let delivered = || flows.iter().filter(|flow| flow.delivered_ps.is_some());
        let first = flows.iter().filter_map(|flow| flow.start_ps).min().unwrap_or_default();
        let last = flows.iter().filter_map(|flow| flow.delivered_ps).max().unwrap_or_default();
        let delivered_bytes = delivered().map(|flow| flow.bytes).fold(0, u64::saturating_add);
        let makespan_ps = last.saturating_sub(first);
        let bits = u128::from(delivered_bytes) * 8 * 1_000_000_000_000;
        let goodput = bits.checked_div(u128::from(makespan_ps)).unwrap_or_default();
        Self {
            flows: flows.len() as u64,
            flows_delivered: delivered().count() as u64,
            delivered_bytes,
            makespan_ps,
            goodput_bps: u64::try_from(goodput).unwrap_or(u64::MAX),
            fct_ps: Ranks::of(flows.iter().filter_map(|flow| flow.fct_ps).collect()),
            fct_sender_ps: Ranks::of(flows.iter().filter_map(|flow| flow.fct_sender_ps).collect()),
            slowdown: Ranks::of(flows.iter().filter_map(|flow| flow.slowdown).collect()),
            ..Self::default()
        }
    }
}

/// Slowdown of flows of similar size.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct SizeBin {
    /// Bytes of the smallest flow in the bin.
    pub least_bytes: u64,
    /// Bytes of the largest flow in the bin.
    pub most_bytes: u64,
    /// Number of flows in the bin.
    pub flows: u64,
    /// Ranks of their slowdowns.
    pub slowdown: Ranks<Decimal>,
}

impl SizeBin {
    /// Delivered flows in at most ten bins with about as many flows each; flows of one size share a bin.
    #[must_use]
    pub fn of(flows: &[FlowResult]) -> Vec<Self> {
        let pairs = flows.iter().filter_map(|flow| Some((flow.bytes, flow.slowdown?)));
        let mut pairs: Vec<(u64, Decimal)> = pairs.collect();
        pairs.sort_unstable();
        let each = pairs.len().div_ceil(BINS).max(1);
        let mut bins = Vec::new();
        let mut rest = pairs.as_slice();
        while let Some(&(edge, _)) = rest.get(each.min(rest.len()).wrapping_sub(1)) {
            // The bin is extended to the last flow of its largest size.
            let count = rest.partition_point(|&(bytes, _)| bytes <= edge);
            let (bin, after) = rest.split_at(count);
            rest = after;
            let slowdown = Ranks::of(bin.iter().map(|&(_, slowdown)| slowdown).collect());
            let (Some(slowdown), Some(&(least_bytes, _))) = (slowdown, bin.first()) else { break };
            bins.push(Self { least_bytes, most_bytes: edge, flows: count as u64, slowdown });
        }
        bins
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn flow(bytes: u64, start: u64, fct: u64) -> FlowResult {
        let mut flow = FlowResult { bytes, ideal_fct_ps: 100, ..FlowResult::default() };
        flow.start(Instant::from_ps(start));
        flow.delivered(Instant::from_ps(start + fct));
        flow
    }

    #[test]
    fn a_flow_has_its_times_from_its_start() {
        let mut flow = flow(10, 1_000, 125);
        flow.sent(Instant::from_ps(1_010));
        flow.sent(Instant::from_ps(1_020));
        flow.acknowledged(Instant::from_ps(1_200), 0);
        assert_eq!((flow.first_sent_ps, flow.fct_ps), (Some(1_010), Some(125)));
        assert_eq!((flow.fct_sender_ps, flow.slowdown), (Some(200), "1.25".parse().ok()));
    }

    #[test]
    fn ranks_are_values_that_are_there() {
        let ranks = Ranks::of((1..=1_000u64).rev().collect()).unwrap();
        let Ranks { min, p50, p90, p95, p99, p999, max } = ranks;
        assert_eq!((min, p50, p90, p95, p99, p999, max), (1, 500, 900, 950, 990, 999, 1_000));
        assert_eq!(Ranks::of(vec![7u64]).unwrap().p50, 7);
        assert_eq!(Ranks::of(vec![3u64, 9]).unwrap().p50, 3);
        assert_eq!(Ranks::<u64>::of(vec![]), None);
    }

    #[test]
    fn a_summary_counts_what_was_delivered() {
        let lost = FlowResult { bytes: 5_000, start_ps: Some(50), ..FlowResult::default() };
        let summary = Summary::of(&[flow(1_000, 100, 100), flow(500, 150, 900), lost]);
        assert_eq!((summary.flows, summary.flows_delivered), (3, 2));
        assert_eq!((summary.delivered_bytes, summary.makespan_ps), (1_500, 1_000));
        assert_eq!(summary.goodput_bps, 12_000_000_000_000);
        assert_eq!(Summary::of(&[]), Summary::default());
    }

    #[test]
    fn bins_hold_each_flow_once_and_one_size_is_in_one() {
        let flows: Vec<_> = (0..95).map(|n| flow(n / 3, 0, 100 + n)).collect();
        let bins = SizeBin::of(&flows);
        assert!(bins.len() <= BINS && bins.len() > 5, "{bins:?}");
        assert_eq!(bins.iter().map(|bin| bin.flows).sum::<u64>(), 95);
        for pair in bins.windows(2) {
            assert!(pair[0].most_bytes < pair[1].least_bytes, "{pair:?}");
        }
        assert_eq!(SizeBin::of(&[flow(4, 0, 150)])[0].slowdown.max.to_string(), "1.5");
        assert_eq!(SizeBin::of(&[]), []);
    }
}
