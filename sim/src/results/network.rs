//! Results of a network's hosts, switches and links. Names of fields end with their units.
//!
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

/// Latencies of frames: minimum, maximum and mean exact, percentiles to 1 %.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Percentiles {
    /// Number of these frames.
    pub frames: u64,
    /// Shortest latency, exact.
    pub min_ps: u64,
    /// Mean latency, rounded down.
    pub mean_ps: u64,
    /// Median: half of the frames took no longer.
    pub p50_ps: u64,
    /// 90 % of the frames took no longer.
    pub p90_ps: u64,
    /// 99 % of the frames took no longer.
    pub p99_ps: u64,
    /// 99.9 % of the frames took no longer.
    pub p999_ps: u64,
    /// Longest latency, exact.
    pub max_ps: u64,
}

impl From<&Latency> for Percentiles {
    fn from(latency: &Latency) -> Self {
        // In the histogram latencies above 17 s count as 17 s, which may be below the shortest one.
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

/// Credits of a virtual channel at its sender, summed over all peers.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct CreditResult {
    /// Number of the virtual channel.
    pub vc: u8,
    /// Credits used since the start.
    pub used: u64,
    /// Credits returned of those.
    pub returned: u64,
}

/// Parts of the latencies of frames that were sent once: sums over these frames, which add up to `total_ps`.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct LatencyParts {
    /// Number of these frames.
    pub frames: u64,
    /// Fixed time in endpoints, at both ends.
    pub endpoint_ps: u64,
    /// Time of transmission, bit by bit, on all links.
    pub serialisation_ps: u64,
    /// Propagation on cables, and the fixed latency of switches.
    pub wire_ps: u64,
    /// Time in VOQs, before the crossbar, pauses excluded.
    pub voq_ps: u64,
    /// Time in egress queues, after the crossbar, pauses excluded.
    pub egress_ps: u64,
    /// Time paused by PFC, in queues of switches and at the sender.
    pub paused_ps: u64,
    /// Time without credit at the sender.
    pub credit_ps: u64,
    /// Time for which the rate was used up at the sender.
    pub rate_mask_ps: u64,
    /// From a frame's turn at its sender until it was taken.
    pub total_ps: u64,
}

impl LatencyParts {
    /// Names and sums of the parts, in the order in which a frame meets them.
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

    /// Time that no part explains; always 0.
    #[must_use]
    pub fn imbalance_ps(&self) -> i128 {
        let sum: i128 = self.parts().iter().map(|&(_, ps)| i128::from(ps)).sum();
        i128::from(self.total_ps) - sum
    }

    /// Adds the parts of other frames.
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

/// Result of a host and its endpoint.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct HostResult {
    /// Name of the host; its number is its index.
    pub name: String,
    /// Counters of its endpoint, by name: frames, unless the name says otherwise.
    pub counters: BTreeMap<String, u64>,
    /// Time for which its requests were paused.
    pub paused_ps: u64,
    /// Most bytes in its receive buffer at the same time.
    pub receive_buffer_max_bytes: u64,
    /// Latencies of the frames that it took.
    pub latency: Percentiles,
    /// Parts of these latencies; `None` if they were not recorded.
    pub parts: Option<LatencyParts>,
    /// Credits by virtual channel; empty without credits.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub credits: Vec<CreditResult>,
}

/// Counters of an endpoint by the names that results use.
#[must_use]
pub fn endpoint_counters(stats: &EndpointStats) -> BTreeMap<String, u64> {
    // Taken apart without `..`, so that a new counter cannot be forgotten here.
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

/// Counters of a host's TCP connections by the names that results use.
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

/// Ledger of a switch: where all of its frames have gone.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct LedgerResult {
    /// Frames received on all ports.
    pub rx_frames: u64,
    /// Copies of replicated frames beyond the first.
    pub copies: u64,
    /// Frames sent on all ports.
    pub tx_frames: u64,
    /// Frames dropped, for any reason.
    pub dropped_frames: u64,
    /// Frames for the switch itself, such as PFC.
    pub consumed_frames: u64,
    /// Frames still queued at the end.
    pub queued_frames: u64,
    /// Frames not accounted for; always 0.
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

/// Result of a switch.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct SwitchResult {
    /// Name of the switch; its number is its index.
    pub name: String,
    /// Bytes of a cell of its buffer.
    pub cell_bytes: u32,
    /// Cells of the shared part of its buffer.
    pub shared_cells: u64,
    /// Ledger of all its frames.
    pub ledger: LedgerResult,
    /// Ports, in the order of their numbers.
    pub ports: Vec<PortResult>,
}

impl SwitchResult {
    /// The result of a switch from its ledger.
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

/// Result of a port of a switch.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct PortResult {
    /// Frames received on this port.
    pub rx_frames: u64,
    /// Bytes received, without FCS.
    pub rx_bytes: u64,
    /// Frames sent on this port.
    pub tx_frames: u64,
    /// Bytes sent, without FCS.
    pub tx_bytes: u64,
    /// PFC frames received and obeyed.
    pub pfc_rx_frames: u64,
    /// PFC frames sent, refreshes included.
    pub pfc_tx_frames: u64,
    /// Frames that came in here and were dropped, by reason, with those dropped at this port as output (docs/drops.md).
    pub drops: BTreeMap<String, u64>,
    /// Queues, one for each priority.
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

/// Result of a priority of a port, as input and as output.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct QueueResult {
    /// Frames put into queues, as input.
    pub enqueued_frames: u64,
    /// Frames taken off the egress queue, as output.
    pub dequeued_frames: u64,
    /// Bytes sent, as output.
    pub tx_bytes: u64,
    /// Frames dropped by reason, as input.
    pub drops: BTreeMap<String, u64>,
    /// Frames marked with CE, as output.
    pub ecn_marked_frames: u64,
    /// PFC frames received that pause it, as output.
    pub pause_rx_frames: u64,
    /// PFC frames sent that pause it, refreshes included, as input.
    pub pause_tx_frames: u64,
    /// Times that XOFF was crossed, as input.
    pub xoff: u64,
    /// Times that XON was reached, as input.
    pub xon: u64,
    /// Time paused, as output.
    pub paused_ps: u64,
    /// PAUSE storms that the watchdog found, as output.
    pub storms: u64,
    /// Most cells queued at the same time, as output.
    pub depth_max_cells: u64,
    /// Most cells in shared buffer and reserve, as input.
    pub input_max_cells: u64,
    /// Most cells in headroom, as input.
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

/// Drops by name of the reason; reasons without drops are left out.
fn drops(counts: &[u64; DROP_REASONS]) -> BTreeMap<String, u64> {
    let named = DropReason::ALL.iter().zip(counts).filter(|(_, count)| **count > 0);
    named.map(|(reason, &count)| (reason.name().to_owned(), count)).collect()
}

/// An end of a link.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct LinkEnd {
    /// Name of the host or switch.
    pub node: String,
    /// Number of its port.
    pub port: u8,
}

/// Traffic over a link, one way.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct LinkWay {
    /// Frames sent this way.
    pub frames: u64,
    /// Their bytes, without FCS.
    pub bytes: u64,
    /// Time for which frames were on the link.
    pub busy_ps: u64,
    /// `busy_ps` over the time of the run.
    pub utilisation: Decimal,
}

impl LinkWay {
    /// Traffic of `frames` and `bytes` that took `busy` of a run until `end`.
    #[must_use]
    pub fn new(frames: u64, bytes: u64, busy: Span, end: Instant) -> Self {
        let utilisation = Decimal::ratio(busy.as_ps(), end.as_ps()).unwrap_or_default();
        Self { frames, bytes, busy_ps: busy.as_ps(), utilisation }
    }
}

/// Result of a link.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct LinkResult {
    /// End that comes first in the topology.
    pub a: LinkEnd,
    /// End that comes second.
    pub b: LinkEnd,
    /// Rate in bits a second, the same each way.
    pub rate_bps: u64,
    /// Time that a bit takes along the cable.
    pub propagation_ps: u64,
    /// Traffic from `a` to `b`.
    pub a_to_b: LinkWay,
    /// Traffic from `b` to `a`.
    pub b_to_a: LinkWay,
}

/// Flows from one host to another.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct MatrixCell {
    /// Number of the sending host.
    pub from: u32,
    /// Number of the receiving host.
    pub to: u32,
    /// Number of flows between them, this way.
    pub flows: u64,
    /// Bytes of payload of these flows.
    pub bytes: u64,
    /// Bytes of those that were delivered.
    pub delivered_bytes: u64,
}

impl MatrixCell {
    /// All pairs of hosts that have flows, in the order of their numbers.
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
