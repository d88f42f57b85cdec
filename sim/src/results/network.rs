//! What a network's hosts, switches and links did.
//!
//! [`HostResult`], [`SwitchResult`] with ports and queues, [`LinkResult`] with both ways, [`MatrixCell`].
//!
//! Units: as the names of fields end: frames, bytes, cells, picoseconds, bits a second.
//! Source: docs/results.md.

use std::collections::BTreeMap;

use serde::{Deserialize, Serialize};
use weft_dataplane::pipeline::{Ledger, PortLedger, QueueLedger};
use weft_dataplane::stats::{DROP_REASONS, DropReason};
use weft_dataplane::time::{Instant, Span};
use weft_hosts::rclink::endpoint::EndpointStats;
use weft_hosts::stream::rx::Latency;
use weft_hosts::tcp::TcpStats;

use super::decimal::Decimal;
use super::flow::FlowResult;

/// Latencies of frames: exact at both ends and in the mean, percentiles to 1 %.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Percentiles {
    /// Frames.
    pub frames: u64,
    /// The least.
    pub min_ps: u64,
    /// The mean, rounded down.
    pub mean_ps: u64,
    /// Half took no longer.
    pub p50_ps: u64,
    /// 90 % took no longer.
    pub p90_ps: u64,
    /// 99 % took no longer.
    pub p99_ps: u64,
    /// 99.9 % took no longer.
    pub p999_ps: u64,
    /// The most.
    pub max_ps: u64,
}

impl From<&Latency> for Percentiles {
    fn from(latency: &Latency) -> Self {
        let at = |quantile| latency.quantile(quantile).max(latency.min()).as_ps();
        Self {
            frames: latency.count(),
            min_ps: latency.min().as_ps(),
            mean_ps: latency.mean().as_ps(),
            p50_ps: at(0.5),
            p90_ps: at(0.9),
            p99_ps: at(0.99),
            p999_ps: at(0.999),
            max_ps: latency.max().as_ps(),
        }
    }
}

/// Credits of a virtual channel at who sends, over all its peers.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct CreditResult {
    /// Virtual channel.
    pub vc: u8,
    /// Credits used since the start.
    pub used: u64,
    /// Of these, given back.
    pub returned: u64,
}

/// What the latencies of frames that were sent once are made of: sums over them, which add up to `total_ps`.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct LatencyParts {
    /// Frames.
    pub frames: u64,
    /// In endpoints: what they take for a frame.
    pub endpoint_ps: u64,
    /// Sending, bit by bit, on each link.
    pub serialisation_ps: u64,
    /// On cables, and the fixed latency of switches.
    pub wire_ps: u64,
    /// In queues between input and crossbar, while not paused.
    pub voq_ps: u64,
    /// In queues between crossbar and output, while not paused.
    pub egress_ps: u64,
    /// In queues that were paused, and at a sender that was.
    pub paused_ps: u64,
    /// Waiting for credit.
    pub credit_ps: u64,
    /// Waiting for the rate limit.
    pub rate_mask_ps: u64,
    /// From a frame's turn at its sender until it was taken.
    pub total_ps: u64,
}

impl LatencyParts {
    /// Names and sums of the parts, in the order of a frame's way.
    #[must_use]
    pub const fn parts(&self) -> [(&'static str, u64); 8] {
        [
            ("endpoint", self.endpoint_ps),
            ("rate mask", self.rate_mask_ps),
            ("credit", self.credit_ps),
            ("serialisation", self.serialisation_ps),
            ("wire", self.wire_ps),
            ("VOQ", self.voq_ps),
            ("egress", self.egress_ps),
            ("paused", self.paused_ps),
        ]
    }

    /// What no part explains; 0, always.
    #[must_use]
    pub fn imbalance_ps(&self) -> i128 {
        let sum: i128 = self.parts().iter().map(|&(_, ps)| i128::from(ps)).sum();
        i128::from(self.total_ps) - sum
    }

    /// Adds those of others.
    pub fn add(&mut self, other: &Self) {
        let add = u64::saturating_add;
        *self = Self {
            frames: add(self.frames, other.frames),
            endpoint_ps: add(self.endpoint_ps, other.endpoint_ps),
            serialisation_ps: add(self.serialisation_ps, other.serialisation_ps),
            wire_ps: add(self.wire_ps, other.wire_ps),
            voq_ps: add(self.voq_ps, other.voq_ps),
            egress_ps: add(self.egress_ps, other.egress_ps),
            paused_ps: add(self.paused_ps, other.paused_ps),
            credit_ps: add(self.credit_ps, other.credit_ps),
            rate_mask_ps: add(self.rate_mask_ps, other.rate_mask_ps),
            total_ps: add(self.total_ps, other.total_ps),
        };
    }
}

/// A host and its endpoint.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct HostResult {
    /// Its name; its number is its place.
    pub name: String,
    /// What its endpoint counts, by name: frames unless the name says otherwise.
    pub counters: BTreeMap<String, u64>,
    /// Time for which its requests were paused.
    pub paused_ps: u64,
    /// Most bytes in its receive buffer.
    pub receive_buffer_max_bytes: u64,
    /// Of frames that it took.
    pub latency: Percentiles,
    /// What they are made of; `None` where that was not taken apart.
    pub parts: Option<LatencyParts>,
    /// By virtual channel, where it has credits.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub credits: Vec<CreditResult>,
}

/// Counters of an endpoint, by name.
#[must_use]
pub fn endpoint_counters(stats: &EndpointStats) -> BTreeMap<String, u64> {
    let EndpointStats {
        tx_frames,
        tx_payload,
        resent,
        acks_tx,
        naks_tx,
        cnps_tx,
        rx_frames,
        rx_payload,
        duplicates,
        out_of_order,
        lost,
        overruns,
        marked,
        acks_rx,
        naks_rx,
        cnps_rx,
        cnps_merged,
        timeouts,
        foreign,
        pfc_tx,
        pfc_rx,
        rnrs_tx,
        rnrs_rx,
    } = *stats;
    let counters = [
        ("tx_frames", tx_frames),
        ("tx_payload_bytes", tx_payload),
        ("resent", resent),
        ("acks_tx", acks_tx),
        ("naks_tx", naks_tx),
        ("cnps_tx", cnps_tx),
        ("rx_frames", rx_frames),
        ("rx_payload_bytes", rx_payload),
        ("duplicates", duplicates),
        ("out_of_order", out_of_order),
        ("lost", lost),
        ("overruns", overruns),
        ("ecn_marked", marked),
        ("acks_rx", acks_rx),
        ("naks_rx", naks_rx),
        ("cnps_rx", cnps_rx),
        ("cnps_merged", cnps_merged),
        ("timeouts", timeouts),
        ("foreign", foreign),
        ("pfc_tx", pfc_tx),
        ("pfc_rx", pfc_rx),
        ("rnrs_tx", rnrs_tx),
        ("rnrs_rx", rnrs_rx),
    ];
    counters.into_iter().map(|(name, count)| (name.to_owned(), count)).collect()
}

/// Counters of a host's TCP connections, by name.
#[must_use]
pub fn tcp_counters(stats: &TcpStats) -> BTreeMap<String, u64> {
    let TcpStats {
        tx_segments,
        rx_segments,
        tx_bytes,
        rx_bytes,
        resent,
        resent_bytes,
        duplicate_acks,
        established,
        failed,
        data_errors,
        refused,
        answers_dropped,
        arp_requests: _, // there are none: all addresses are known
        pfc_rx: _,       // the endpoint counts them
    } = *stats;
    let counters = [
        ("tcp_tx_segments", tx_segments),
        ("tcp_rx_segments", rx_segments),
        ("tcp_tx_payload_bytes", tx_bytes),
        ("tcp_rx_payload_bytes", rx_bytes),
        ("tcp_resent", resent),
        ("tcp_resent_bytes", resent_bytes),
        ("tcp_duplicate_acks", duplicate_acks),
        ("tcp_established", established),
        ("tcp_failed", failed),
        ("tcp_data_errors", data_errors),
        ("tcp_refused", refused),
        ("tcp_answers_dropped", answers_dropped),
    ];
    counters.into_iter().map(|(name, count)| (name.to_owned(), count)).collect()
}

/// Where all frames of a switch are.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct LedgerResult {
    /// Received.
    pub rx_frames: u64,
    /// Copies of replicated frames beyond the first.
    pub copies: u64,
    /// Sent.
    pub tx_frames: u64,
    /// Dropped.
    pub dropped_frames: u64,
    /// For the switch itself: PFC.
    pub consumed_frames: u64,
    /// Still queued.
    pub queued_frames: u64,
    /// What is not accounted for: 0, always.
    pub imbalance_frames: i64,
}

impl From<&Ledger> for LedgerResult {
    fn from(ledger: &Ledger) -> Self {
        Self {
            rx_frames: ledger.rx,
            copies: ledger.copies,
            tx_frames: ledger.tx,
            dropped_frames: ledger.dropped,
            consumed_frames: ledger.consumed,
            queued_frames: ledger.queued,
            imbalance_frames: ledger.imbalance(),
        }
    }
}

/// A switch.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct SwitchResult {
    /// Its name; its number is its place.
    pub name: String,
    /// Bytes of a cell of its buffer.
    pub cell_bytes: u32,
    /// Cells of the shared part of its buffer.
    pub shared_cells: u64,
    /// Its books.
    pub ledger: LedgerResult,
    /// By number.
    pub ports: Vec<PortResult>,
}

impl SwitchResult {
    /// What the books of a switch say.
    #[must_use]
    pub fn new(name: &str, cell_bytes: u32, ledger: &Ledger) -> Self {
        Self {
            name: name.to_owned(),
            cell_bytes,
            shared_cells: ledger.shared_total,
            ledger: ledger.into(),
            ports: ledger.port.iter().map(PortResult::from).collect(),
        }
    }
}

/// A port of a switch.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct PortResult {
    /// Received.
    pub rx_frames: u64,
    /// Bytes of these, without FCS.
    pub rx_bytes: u64,
    /// Sent.
    pub tx_frames: u64,
    /// Bytes of these, without FCS.
    pub tx_bytes: u64,
    /// PFC frames that were acted upon.
    pub pfc_rx_frames: u64,
    /// PFC frames sent.
    pub pfc_tx_frames: u64,
    /// Frames dropped that came in here (or were to leave here: docs/drops.md), by reason.
    pub drops: BTreeMap<String, u64>,
    /// By priority.
    pub queues: Vec<QueueResult>,
}

impl From<&PortLedger> for PortResult {
    fn from(port: &PortLedger) -> Self {
        Self {
            rx_frames: port.rx_frames,
            rx_bytes: port.rx_bytes,
            tx_frames: port.tx_frames,
            tx_bytes: port.tx_bytes,
            pfc_rx_frames: port.pfc_rx,
            pfc_tx_frames: port.pfc_tx,
            drops: drops(&port.drops),
            queues: port.pri.iter().map(QueueResult::from).collect(),
        }
    }
}

/// A priority of a port: what came in with it, and what leaves with it.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct QueueResult {
    /// As input: put into queues.
    pub enqueued_frames: u64,
    /// As output: taken off the egress queue.
    pub dequeued_frames: u64,
    /// As output: sent.
    pub tx_bytes: u64,
    /// As input: dropped, by reason.
    pub drops: BTreeMap<String, u64>,
    /// As output: marked with CE.
    pub ecn_marked_frames: u64,
    /// As output: PAUSE that came.
    pub pause_rx_frames: u64,
    /// As input: PAUSE sent, refreshes included.
    pub pause_tx_frames: u64,
    /// As input: times that XOFF was crossed.
    pub xoff: u64,
    /// As input: times that XON was reached.
    pub xon: u64,
    /// As output: time paused.
    pub paused_ps: u64,
    /// As output: PAUSE storms found.
    pub storms: u64,
    /// As output: most cells queued.
    pub depth_max_cells: u64,
    /// As input: most cells in shared buffer and reserve.
    pub input_max_cells: u64,
    /// As input: most cells in headroom.
    pub headroom_max_cells: u64,
}

impl From<&QueueLedger> for QueueResult {
    fn from(queue: &QueueLedger) -> Self {
        Self {
            enqueued_frames: queue.enqueued,
            dequeued_frames: queue.dequeued,
            tx_bytes: queue.tx_bytes,
            drops: drops(&queue.drops),
            ecn_marked_frames: queue.ecn_marked,
            pause_rx_frames: queue.pause_rx,
            pause_tx_frames: queue.pause_tx,
            xoff: queue.xoff,
            xon: queue.xon,
            paused_ps: queue.paused_ps,
            storms: queue.storms,
            depth_max_cells: queue.depth_watermark,
            input_max_cells: queue.pg_watermark,
            headroom_max_cells: queue.headroom_watermark,
        }
    }
}

/// Drops that there were, by name of the reason.
fn drops(counts: &[u64; DROP_REASONS]) -> BTreeMap<String, u64> {
    let named = DropReason::ALL.iter().zip(counts).filter(|(_, count)| **count > 0);
    named.map(|(reason, &count)| (reason.name().to_owned(), count)).collect()
}

/// An end of a link.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct LinkEnd {
    /// Name of the host or switch.
    pub node: String,
    /// Its port.
    pub port: u8,
}

/// What went over a link one way.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct LinkWay {
    /// Frames.
    pub frames: u64,
    /// Bytes of these, without FCS.
    pub bytes: u64,
    /// Time for which it was busy.
    pub busy_ps: u64,
    /// `busy_ps` over the time of the run.
    pub utilisation: Decimal,
}

impl LinkWay {
    /// So many frames and bytes, which took `busy` of a run until `end`.
    #[must_use]
    pub fn new(frames: u64, bytes: u64, busy: Span, end: Instant) -> Self {
        let utilisation = Decimal::ratio(busy.as_ps(), end.as_ps()).unwrap_or_default();
        Self { frames, bytes, busy_ps: busy.as_ps(), utilisation }
    }
}

/// A link.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct LinkResult {
    /// One end.
    pub a: LinkEnd,
    /// The other.
    pub b: LinkEnd,
    /// Bits a second, each way.
    pub rate_bps: u64,
    /// From a bit sent to that bit in.
    pub propagation_ps: u64,
    /// From `a` to `b`.
    pub a_to_b: LinkWay,
    /// From `b` to `a`.
    pub b_to_a: LinkWay,
}

/// What one host had for another.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct MatrixCell {
    /// Sender, by number of host.
    pub from: u32,
    /// Receiver.
    pub to: u32,
    /// Flows.
    pub flows: u64,
    /// Bytes of payload of them.
    pub bytes: u64,
    /// Of these, bytes of flows that were delivered.
    pub delivered_bytes: u64,
}

impl MatrixCell {
    /// Pairs of hosts that have flows, in the order of their numbers.
    #[must_use]
    pub fn of(flows: &[FlowResult]) -> Vec<Self> {
        let mut cells: BTreeMap<(u32, u32), Self> = BTreeMap::new();
        for flow in flows {
            let (from, to) = (flow.from, flow.to);
            let cell = cells.entry((from, to)).or_insert(Self { from, to, ..Self::default() });
            cell.flows += 1;
            cell.bytes = cell.bytes.saturating_add(flow.bytes);
            if flow.delivered_ps.is_some() {
                cell.delivered_bytes = cell.delivered_bytes.saturating_add(flow.bytes);
            }
        }
        cells.into_values().collect()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn percentiles_of_one_value_are_it() {
        let mut latency = Latency::default();
        latency.record(Span::from_ps(952_800));
        latency.record(Span::from_ps(952_800));
        let want = 952_800;
        let Percentiles { frames, min_ps, mean_ps, p50_ps, p90_ps, p99_ps, p999_ps, max_ps } =
            Percentiles::from(&latency);
        assert_eq!(frames, 2);
        assert_eq!([min_ps, mean_ps, p50_ps, p90_ps, p99_ps, p999_ps, max_ps], [want; 7]);
        assert_eq!(Percentiles::from(&Latency::default()), Percentiles::default());
    }

    #[test]
    fn parts_add_up_and_what_is_missing_is_told() {
        let one = LatencyParts {
            frames: 1,
            endpoint_ps: 1,
            serialisation_ps: 2,
            wire_ps: 3,
            voq_ps: 4,
            egress_ps: 5,
            paused_ps: 6,
            credit_ps: 7,
            rate_mask_ps: 8,
            total_ps: 36,
        };
        let mut sum = one;
        sum.add(&one);
        assert_eq!((sum.frames, sum.total_ps, sum.imbalance_ps()), (2, 72, 0));
        assert_eq!(LatencyParts { total_ps: 40, ..one }.imbalance_ps(), 4);
    }

    #[test]
    fn a_link_that_is_always_busy_is_used_wholly() {
        let way = LinkWay::new(3, 300, Span::from_ns(10), Instant::from_ns(40));
        assert_eq!((way.busy_ps, way.utilisation.to_string()), (10_000, "0.25".to_owned()));
        assert_eq!(LinkWay::new(0, 0, Span::ZERO, Instant::ZERO), LinkWay::default());
    }

    #[test]
    fn a_matrix_has_the_pairs_that_have_flows() {
        let flow = |from, to, bytes, delivered_ps| FlowResult {
            from,
            to,
            bytes,
            delivered_ps,
            ..FlowResult::default()
        };
        let cells =
            MatrixCell::of(&[flow(1, 0, 5, None), flow(0, 1, 7, Some(1)), flow(1, 0, 9, Some(2))]);
        let had: Vec<_> =
            cells.iter().map(|c| (c.from, c.to, c.flows, c.bytes, c.delivered_bytes)).collect();
        assert_eq!(had, [(0, 1, 1, 7, 7), (1, 0, 2, 14, 9)]);
    }
}
