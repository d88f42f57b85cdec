//! Reports of a switch about itself: one structure behind `weft show`, metrics and final counters.
//!
//! A [`StatsSnapshot`] is gathered at one moment; tables, JSON and metrics are views of it. Fields without a unit in
//! their name are counts.
//!
//! Source: docs/spec/pipeline.md §10.

pub mod fabric;
pub mod gather;
pub mod pauses;
pub mod process;
pub mod prometheus;
pub mod tables;
mod topic;
pub mod watermarks;

use std::collections::BTreeMap;

use serde::{Deserialize, Serialize};

pub use topic::{ShowResponse, ShowTopic};

/// Counts by name: of a drop reason, a format, a size bin.
pub type Named = BTreeMap<String, u64>;

/// State of a switch at one moment.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct StatsSnapshot {
    pub switch: String,
    pub version: String,
    /// Time since the start.
    pub uptime_ns: u64,
    /// Changes of the configuration since the start.
    pub epoch: u64,
    pub ports: Vec<PortReport>,
    /// One for each (port, priority): its numbers as input and as output.
    pub queues: Vec<QueueReport>,
    /// One for each (port, priority).
    pub pfc: Vec<PfcReport>,
    pub drops: DropsReport,
    pub buffer: BufferReport,
    pub fdb: FdbSummary,
    /// Whether every frame is accounted for.
    pub conservation: ConservationReport,
    pub workers: Vec<WorkerReport>,
    /// Events by kind, including those that were held back.
    #[serde(default)]
    pub events: Named,
    /// The fabric; `None` where no port carries TLPs.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub fabric: Option<Box<fabric::FabricReport>>,
}

/// Report of one port.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct PortReport {
    pub port: u8,
    pub name: String,
    /// Kind that was opened; never `auto`.
    pub kind: String,
    pub device: String,
    pub link_up: bool,
    pub rate_bps: u64,
    /// MAC address of the port.
    pub mac: String,
    pub afh: String,
    /// LAG that the port is in.
    #[serde(default)]
    pub lag: Option<String>,
    /// Why it is not as usual.
    pub note: Option<String>,
    /// Last error of its device; `None` once the link is up and the device works again.
    #[serde(default)]
    pub last_error: Option<String>,
    /// Reason while it is blocked because of a loop.
    #[serde(default)]
    pub blocked: Option<String>,
    /// Whether its queues are held by command (`weft port PORT tx off`).
    #[serde(default)]
    pub tx_off: bool,
    /// Times that it was blocked because of a loop.
    #[serde(default)]
    pub loop_blocks: u64,
    /// Loop probes that the port sent.
    #[serde(default)]
    pub loop_probes: u64,
    /// Consumed frames that pretend to be a loop probe of this switch but have a wrong or outdated number.
    #[serde(default)]
    pub loop_probes_bad: u64,
    /// Why the kernel forwards none of its frames, where the configuration asks for that.
    #[serde(default)]
    pub no_express: Option<String>,
    /// Warning about an MTU that lets hosts send longer frames than the port takes.
    #[serde(default)]
    pub mtu_warning: Option<String>,
    /// Received frames that the kernel forwarded; part of `rx_frames`.
    #[serde(default)]
    pub express: u64,
    /// Received frames, including dropped ones.
    pub rx_frames: u64,
    /// Bytes received, without FCS.
    pub rx_bytes: u64,
    pub tx_frames: u64,
    /// Bytes sent, without FCS.
    pub tx_bytes: u64,
    /// Received frames by format; only formats that occurred.
    pub rx_formats: Named,
    /// Sent frames by format; only formats that occurred.
    pub tx_formats: Named,
    /// Received frames to a group address, without MAC control and frames that cannot be parsed.
    #[serde(default)]
    pub rx_group_frames: u64,
    /// Sent frames to a group address.
    #[serde(default)]
    pub tx_group_frames: u64,
    /// Received frames by size with FCS: `64`, `127`, ..., `more`.
    pub rx_sizes: Named,
    /// Copies of replicated frames beyond the first.
    pub copies: u64,
    /// Frames for the switch itself: MAC control and loop probes.
    pub consumed: u64,
    /// Plain 802.3x PAUSE frames among them.
    pub pause_rx: u64,
    /// UEC CBFC frames among them.
    pub cbfc_rx: u64,
    /// MAC control frames among them that are malformed, or for another station.
    pub mac_control_bad: u64,
    /// MAC control frames among them with an unknown opcode.
    pub mac_control_unknown: u64,
    /// PFC frames among them that were acted upon.
    pub pfc_rx: u64,
    /// PFC frames that the port sent.
    pub pfc_tx: u64,
    /// PFC frames that were late for lack of room.
    pub pfc_tx_late: u64,
    /// PFC frames that the pause guard sent while the worker was away.
    #[serde(default)]
    pub pfc_guard: u64,
    /// Drops of frames that came in at this port; also of frames for it, where the output is the reason.
    pub dropped: u64,
    /// Frames lost before the switch, by kernel or device.
    pub kernel_rx: u64,
    /// Addresses that are learned at the port now.
    pub learned: u64,
    /// Addresses that moved to the port.
    pub fdb_moves: u64,
}

/// Report of one (port, priority) as a queue.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct QueueReport {
    pub port: String,
    pub pri: u8,
    /// As input: frames put into VOQs, copies included.
    pub enqueued: u64,
    /// As output: frames taken off the egress queue.
    pub dequeued: u64,
    /// As output: frames discarded while queued.
    pub purged: u64,
    /// As output: bytes sent, without FCS.
    pub tx_bytes: u64,
    /// As input: frames dropped.
    pub dropped: u64,
    /// As output: drops of frames for this output. Their inputs count them, too.
    #[serde(default)]
    pub output_dropped: u64,
    /// `output_dropped` by reason.
    #[serde(default)]
    pub output_drops: Named,
    /// As output: ECN marks set.
    pub ecn_marked: u64,
    /// As output: cells queued now, VOQs included.
    pub depth_cells: u64,
    /// Highest `depth_cells` since `weft show` last restarted it.
    pub depth_watermark_cells: u64,
    /// Limit now of each VOQ of lossy frames: it falls as the buffer fills.
    #[serde(default)]
    pub voq_limit_cells: u64,
    /// As output: by input, the frames that are queued now.
    #[serde(default)]
    pub waiting: Vec<WaitingReport>,
}

/// Frames that one input has queued for one (output, priority): in its VOQ and in the egress queue.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct WaitingReport {
    pub input: String,
    /// Cells of its lossy frames.
    pub lossy_cells: u64,
    /// Lossless frames. Their cells are counted by priority group, not by output.
    pub lossless_frames: u64,
}

/// Report of one (port, priority): its flow control.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[expect(clippy::struct_excessive_bools, reason = "four levels that are independent of each other")]
pub struct PfcReport {
    pub port: String,
    pub pri: u8,
    /// Priority group that counts it as input.
    #[serde(default)]
    pub pg: u8,
    /// Whether it must not lose frames.
    pub lossless: bool,
    /// Classes that the switch's PAUSE names.
    pub classes: Vec<u8>,
    /// As input: whether the peer is asked to pause now.
    pub xoff_now: bool,
    /// As output: whether the peer has paused it now.
    pub paused_now: bool,
    /// As output: whether its pause is a storm.
    pub storm_now: bool,
    /// As input: times that XOFF was crossed.
    pub xoff: u64,
    /// As input: times that XON was reached.
    pub xon: u64,
    /// As input: PAUSE of this priority sent, refreshes included.
    pub pause_tx: u64,
    /// As input: resume sent.
    pub resume_tx: u64,
    /// As output: PAUSE received.
    pub pause_rx: u64,
    /// As output: resume received.
    pub resume_rx: u64,
    /// As output: time paused.
    pub paused_ns: u64,
    /// As output: storms found.
    pub storms: u64,
    /// As input: cells of the group now, without headroom.
    pub group_cells: u64,
    /// Highest `group_cells` since `weft show` last restarted it.
    pub group_watermark_cells: u64,
    /// Cells above which the peer is asked to pause, now; 0 unless lossless. Falls as the buffer fills.
    #[serde(default)]
    pub xoff_cells: u64,
    /// Cells, including headroom, at which the peer may go on; 0 unless lossless.
    #[serde(default)]
    pub xon_cells: u64,
    /// As input: cells of headroom in use.
    pub headroom_cells: u64,
    /// Highest `headroom_cells` since `weft show` last restarted it.
    pub headroom_watermark_cells: u64,
    /// Cells of headroom of the group.
    pub headroom_size_cells: u64,
}

/// Drops by reason; only reasons that occurred.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct DropsReport {
    /// All ports together.
    pub total: Named,
    /// By port name.
    pub ports: BTreeMap<String, Named>,
    /// Frames lost before the switch, by port name; not part of the totals.
    pub kernel_rx: Named,
}

#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct BufferReport {
    pub cell_bytes: u64,
    /// All cells (B in the model).
    pub total_cells: u64,
    /// Cells of all headroom (H in the model).
    pub headroom_cells: u64,
    pub reserve_cells: u64,
    /// Cells of the shared part.
    pub shared_cells: u64,
    pub shared_used_cells: u64,
    /// Highest `shared_used_cells` since `weft show` last restarted it.
    #[serde(default)]
    pub shared_watermark_cells: u64,
    /// Headroom in use, all groups together.
    #[serde(default)]
    pub headroom_used_cells: u64,
    /// Highest `headroom_used_cells` since `weft show` last restarted it.
    #[serde(default)]
    pub headroom_watermark_cells: u64,
    pub chunks: u64,
    pub chunks_used: u64,
    pub chunks_free: u64,
}

/// State of the FDB as a whole.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct FdbSummary {
    /// Entries that it has room for.
    pub capacity: u64,
    /// Entries in use.
    pub used: u64,
    /// Entries learned since the start.
    pub learned: u64,
    /// Entries that went to another port.
    pub moved: u64,
    /// Entries removed for their age.
    pub aged: u64,
    /// Frames whose source was not learned: the port has its `max_learned`.
    pub port_limit: u64,
    /// Frames whose source was not learned: no room.
    pub full: u64,
    /// Frames whose source was left to the next frame: another thread was writing.
    pub busy: u64,
    /// Learn events that were lost because control was too slow.
    pub events_lost: u64,
    /// Moves refused, of addresses that had moved too often.
    #[serde(default)]
    pub held: u64,
    /// Times that an address moved too often.
    pub loop_alarms: u64,
    /// Ports between which an address moves too often now.
    pub loop_ports: Vec<String>,
}

#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct FdbReport {
    pub summary: FdbSummary,
    pub entries: Vec<FdbRow>,
}

#[derive(Clone, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize)]
pub struct FdbRow {
    pub vid: u16,
    /// Address: `02:00:00:00:00:01`, `gen1:0000000002`, `id:0005`.
    pub addr: String,
    /// Name of the port or LAG; several where the station is spread.
    pub port: String,
    /// Whether the configuration or management added it.
    #[serde(rename = "static")]
    pub is_static: bool,
    /// Seconds since the station's last frame; 0 for static entries.
    pub age_s: u64,
}

/// Counters that prove rx + copies = tx + dropped + consumed + queued.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct ConservationReport {
    pub rx: u64,
    /// Copies of replicated frames beyond the first.
    pub copies: u64,
    pub tx: u64,
    pub dropped: u64,
    /// Frames for the switch itself.
    pub consumed: u64,
    pub queued: u64,
    /// Frames that are not accounted for; always 0.
    pub imbalance: i64,
    /// Whether `imbalance` is 0.
    pub holds: bool,
    /// Why the counters are not of one moment, so that the sum may not come out even: workers did not answer.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub inexact: Option<String>,
}

/// Report of one worker.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct WorkerReport {
    pub worker: usize,
    /// Frames that it received.
    pub frames: u64,
    /// Bursts that they came in.
    pub bursts: u64,
    /// Time of the passes in which something was done.
    pub busy_ns: u64,
    /// `busy_ns` in ticks of the processor's time-stamp counter; 0 where there is none.
    pub busy_cycles: u64,
    /// Time since the start; the rest of it was idle.
    pub uptime_ns: u64,
    /// Time since its last pass began. An idle worker makes ten passes a second at least.
    #[serde(default)]
    pub heartbeat_age_ns: u64,
    /// Longest absence in the last 10 to 20 s: the worker did not run although it had to.
    #[serde(default)]
    pub away_lately_ns: u64,
    /// Longest absence since the start.
    #[serde(default)]
    pub away_max_ns: u64,
    /// Whether it did not answer when this was read.
    #[serde(default)]
    pub stuck: bool,
    /// Passes of its loop.
    pub loops: u64,
    /// Passes in which something was done.
    pub busy_loops: u64,
    /// Calls of a device that failed.
    pub service_errors: u64,
    /// Attempts to learn while another worker was learning.
    pub learn_busy: u64,
}
