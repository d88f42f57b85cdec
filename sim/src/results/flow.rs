//! Flows of a run, and what they say together.
//!
//! [`FlowResult`] a flow; [`Summary`] and [`SizeBin`] of all.
//!
//! Units: picoseconds, bytes of payload; a slowdown is a ratio.
//! Source: docs/results.md "Flows".

use serde::{Deserialize, Serialize};
use weft_dataplane::time::Instant;

use super::decimal::Decimal;

/// Most bins of [`SizeBin::of`].
const BINS: usize = 10;

/// One flow: a message from one host to another.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct FlowResult {
    /// Its number.
    pub id: u32,
    /// Which workload it is of, by place.
    pub workload: u16,
    /// Sender, by number of host.
    pub from: u32,
    /// Receiver, likewise.
    pub to: u32,
    /// Bytes of payload.
    pub bytes: u64,
    /// When it was given to its endpoint; `None` when it never was.
    pub start_ps: Option<u64>,
    /// When its first frame began to be sent.
    pub first_sent_ps: Option<u64>,
    /// When its last byte was taken at the receiver.
    pub delivered_ps: Option<u64>,
    /// When all of it was acknowledged at the sender; where nothing is acknowledged, sent.
    pub acknowledged_ps: Option<u64>,
    /// `delivered_ps` - `start_ps`.
    pub fct_ps: Option<u64>,
    /// `acknowledged_ps` - `start_ps`.
    pub fct_sender_ps: Option<u64>,
    /// Least that `fct_ps` can be, alone in the network.
    pub ideal_fct_ps: u64,
    /// `fct_ps` / `ideal_fct_ps`.
    pub slowdown: Option<Decimal>,
    /// Frames of it that were sent again; `None` while it is not acknowledged.
    pub resent_frames: Option<u64>,
}

impl FlowResult {
    /// It was given to its endpoint.
    pub fn start(&mut self, at: Instant) {
        self.start_ps = Some(at.as_ps());
    }

    /// A frame of it begins to be sent.
    pub fn sent(&mut self, at: Instant) {
        self.first_sent_ps.get_or_insert(at.as_ps());
    }

    /// Its last byte was taken.
    pub fn delivered(&mut self, at: Instant) {
        self.delivered_ps = Some(at.as_ps());
        self.fct_ps = self.since_start(at);
        self.slowdown = self.fct_ps.and_then(|fct| Decimal::ratio(fct, self.ideal_fct_ps));
    }

    /// All of it is acknowledged, after so many of its frames were sent again.
    pub fn acknowledged(&mut self, at: Instant, resent: u64) {
        (self.acknowledged_ps, self.resent_frames) = (Some(at.as_ps()), Some(resent));
        self.fct_sender_ps = self.since_start(at);
    }

    fn since_start(&self, at: Instant) -> Option<u64> {
        self.start_ps.map(|start| at.as_ps().saturating_sub(start))
    }
}

/// Values of flows in order: the least, the most, and those that so many percent do not exceed (nearest rank: one of them).
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Ranks<T> {
    /// The least.
    pub min: T,
    /// Half do not exceed it.
    pub p50: T,
    /// 90 % do not.
    pub p90: T,
    /// 95 % do not.
    pub p95: T,
    /// 99 % do not.
    pub p99: T,
    /// 99.9 % do not.
    pub p999: T,
    /// The most.
    pub max: T,
}

impl<T: Copy + Ord> Ranks<T> {
    /// Those of `values`; `None` of none.
    #[must_use]
    pub fn of(mut values: Vec<T>) -> Option<Self> {
        values.sort_unstable();
        Self::of_sorted(&values)
    }

    fn of_sorted(values: &[T]) -> Option<Self> {
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

/// All flows together.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Summary {
    /// Flows.
    pub flows: u64,
    /// Of these, delivered.
    pub flows_delivered: u64,
    /// Bytes of payload of all that were delivered.
    pub delivered_bytes: u64,
    /// Time from the first start to the last delivery.
    pub makespan_ps: u64,
    /// `delivered_bytes` over that, in bits a second.
    pub goodput_bps: u64,
    /// Of `fct_ps`.
    pub fct_ps: Option<Ranks<u64>>,
    /// Of `fct_sender_ps`.
    pub fct_sender_ps: Option<Ranks<u64>>,
    /// Of `slowdown`.
    pub slowdown: Option<Ranks<Decimal>>,
    /// Frames of payload that were sent again.
    pub resent_frames: u64,
    /// Frames that switches dropped, by reason.
    pub dropped_frames: u64,
    /// Frames that switches marked with CE.
    pub ecn_marked_frames: u64,
    /// PFC frames that switches sent.
    pub pfc_tx_frames: u64,
    /// Time for which queues of switches were paused, over all of them.
    pub switch_paused_ps: u64,
    /// Time for which requests were paused at hosts, over all of them.
    pub host_paused_ps: u64,
    /// Most bytes of buffer that a queue had.
    pub queue_depth_max_bytes: u64,
}

impl Summary {
    /// What flows say by themselves.
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

/// Slowdown of the flows of some sizes.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct SizeBin {
    /// Fewest bytes of a flow in it.
    pub least_bytes: u64,
    /// Most bytes.
    pub most_bytes: u64,
    /// Flows in it.
    pub flows: u64,
    /// Their slowdown.
    pub slowdown: Ranks<Decimal>,
}

impl SizeBin {
    /// Delivered flows in at most ten bins of about as many flows each; flows of one size are in one bin.
    #[must_use]
    pub fn of(flows: &[FlowResult]) -> Vec<Self> {
        let pairs = flows.iter().filter_map(|flow| Some((flow.bytes, flow.slowdown?)));
        let mut pairs: Vec<(u64, Decimal)> = pairs.collect();
        pairs.sort_unstable();
        let each = pairs.len().div_ceil(BINS).max(1);
        let mut bins = Vec::new();
        let mut rest = pairs.as_slice();
        while let Some(&(edge, _)) = rest.get(each.min(rest.len()).wrapping_sub(1)) {
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
