//! What a switch reports about itself: one structure behind `weft show`, metrics and final counters.
//!
//! [`StatsSnapshot`] is gathered at one moment; tables, JSON and metrics are views of it.
//!
//! Units: in each field's name; frames and counts have none.
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

/// All of a switch at one moment.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct StatsSnapshot {
    /// Name of the switch.
    pub switch: String,
    /// Version of weft.
    pub version: String,
    /// Time since the start.
    pub uptime_ns: u64,
    /// How often the configuration was changed since.
    pub epoch: u64,
    /// Ports.
    pub ports: Vec<PortReport>,
    /// (port, priority), as input and output.
    pub queues: Vec<QueueReport>,
    /// (port, priority), flow control.
    pub pfc: Vec<PfcReport>,
    /// Drops.
    pub drops: DropsReport,
    /// Buffer and pool.
    pub buffer: BufferReport,
    /// Forwarding database.
    pub fdb: FdbSummary,
    /// Whether every frame is accounted for.
    pub conservation: ConservationReport,
    /// Worker threads.
    pub workers: Vec<WorkerReport>,
    /// Events by kind, those that were held back included.
    #[serde(default)]
    pub events: Named,
    /// The fabric, where ports carry TLPs.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub fabric: Option<Box<fabric::FabricReport>>,
}

/// One port.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct PortReport {
    /// Its number.
    pub port: u8,
    /// Its name.
    pub name: String,
    /// Kind of device.
    pub kind: String,
    /// The device.
    pub device: String,
    /// Whether its link is up.
    pub link_up: bool,
    /// Rate of its link.
    pub rate_bps: u64,
    /// Its own address.
    pub mac: String,
    /// AFH mode.
    pub afh: String,
    /// The LAG that it is in, if any.
    #[serde(default)]
    pub lag: Option<String>,
    /// What is special about it, if anything.
    pub note: Option<String>,
    /// The last error of its device, until its link is up and the device works again.
    #[serde(default)]
    pub last_error: Option<String>,
    /// Why it is blocked, while it is.
    #[serde(default)]
    pub blocked: Option<String>,
    /// Whether its queues are held by command (`weft port PORT tx off`).
    #[serde(default)]
    pub tx_off: bool,
    /// Times that it was blocked for a loop.
    #[serde(default)]
    pub loop_blocks: u64,
    /// Loop probes made here.
    #[serde(default)]
    pub loop_probes: u64,
    /// Of those consumed, loop probes in the name of a port of this switch whose number is not, or no longer, right.
    #[serde(default)]
    pub loop_probes_bad: u64,
    /// Why no frame passes the pipeline by in the kernel, where that is wanted.
    #[serde(default)]
    pub no_express: Option<String>,
    /// That its MTU lets hosts send longer frames than it takes, if it does.
    #[serde(default)]
    pub mtu_warning: Option<String>,
    /// Received frames that passed the pipeline by; part of `rx_frames`.
    #[serde(default)]
    pub express: u64,
    /// Received, dropped ones included.
    pub rx_frames: u64,
    /// Bytes of them, without FCS.
    pub rx_bytes: u64,
    /// Sent.
    pub tx_frames: u64,
    /// Bytes of them, without FCS.
    pub tx_bytes: u64,
    /// Received, by format; those that occurred.
    pub rx_formats: Named,
    /// Sent, by format; those that occurred.
    pub tx_formats: Named,
    /// Of those received, with a group as destination; MAC control and what cannot be parsed apart.
    #[serde(default)]
    pub rx_group_frames: u64,
    /// Of those sent, with a group as destination.
    #[serde(default)]
    pub tx_group_frames: u64,
    /// Received, by size with FCS: `64`, `127`, ..., `more`.
    pub rx_sizes: Named,
    /// Copies of replicated frames beyond the first.
    pub copies: u64,
    /// Frames for the switch itself that ended here: MAC control and loop probes.
    pub consumed: u64,
    /// Of those, plain 802.3x PAUSE.
    pub pause_rx: u64,
    /// Of those, UEC CBFC.
    pub cbfc_rx: u64,
    /// Of those, malformed or for somebody else.
    pub mac_control_bad: u64,
    /// Of those, with an unknown opcode.
    pub mac_control_unknown: u64,
    /// Of those, PFC that was acted upon.
    pub pfc_rx: u64,
    /// PFC frames made here.
    pub pfc_tx: u64,
    /// PFC frames that were late for lack of room.
    pub pfc_tx_late: u64,
    /// PFC frames that were sent for the worker while it was away.
    #[serde(default)]
    pub pfc_guard: u64,
    /// Drops of frames that came in here (or were to leave, where the output is the reason).
    pub dropped: u64,
    /// Lost before us by kernel or device.
    pub kernel_rx: u64,
    /// Addresses learned here now.
    pub learned: u64,
    /// Addresses that moved here.
    pub fdb_moves: u64,
}

/// One (port, priority) as a queue.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct QueueReport {
    /// Name of the port.
    pub port: String,
    /// The priority.
    pub pri: u8,
    /// As input: frames put into VOQs, copies included.
    pub enqueued: u64,
    /// As output: frames taken off the egress queue.
    pub dequeued: u64,
    /// As output: frames discarded while queued.
    pub purged: u64,
    /// As output: bytes sent, without FCS.
    pub tx_bytes: u64,
    /// As input: drops.
    pub dropped: u64,
    /// As output: drops of frames that were to leave here; they are counted at their inputs, too.
    #[serde(default)]
    pub output_dropped: u64,
    /// The same by reason.
    #[serde(default)]
    pub output_drops: Named,
    /// As output: ECN marks set.
    pub ecn_marked: u64,
    /// As output: cells queued now, VOQs included.
    pub depth_cells: u64,
    /// The most there were since this was last read by `weft show`.
    pub depth_watermark_cells: u64,
    /// Limit of each VOQ of lossy frames now: it falls as the buffer fills.
    #[serde(default)]
    pub voq_limit_cells: u64,
    /// As output: whose frames are queued now.
    #[serde(default)]
    pub waiting: Vec<WaitingReport>,
}

/// What one input has queued for one (output, priority): a VOQ, with what has been moved on to the egress queue.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct WaitingReport {
    /// Name of the input.
    pub input: String,
    /// Cells of its lossy frames.
    pub lossy_cells: u64,
    /// Its lossless frames, which are counted in cells by their priority group, not by output.
    pub lossless_frames: u64,
}

/// One (port, priority) and its flow control.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[expect(clippy::struct_excessive_bools, reason = "four levels that are independent of each other")]
pub struct PfcReport {
    /// Name of the port.
    pub port: String,
    /// The priority.
    pub pri: u8,
    /// Number of the priority group that it is counted in as input.
    #[serde(default)]
    pub pg: u8,
    /// Whether it must not lose frames.
    pub lossless: bool,
    /// Classes that our PAUSE names.
    pub classes: Vec<u8>,
    /// As input: whether PAUSE is asked for now.
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
    /// The most there were since this was last read by `weft show`.
    pub group_watermark_cells: u64,
    /// Cells above which PAUSE is asked for now; 0 unless lossless. It falls as the buffer fills.
    #[serde(default)]
    pub xoff_cells: u64,
    /// Cells, headroom included, at which the peer may go on; 0 unless lossless.
    #[serde(default)]
    pub xon_cells: u64,
    /// As input: cells of headroom in use.
    pub headroom_cells: u64,
    /// The most there were since this was last read by `weft show`.
    pub headroom_watermark_cells: u64,
    /// Cells of headroom in all.
    pub headroom_size_cells: u64,
}

/// Drops by reason; only reasons that occurred.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct DropsReport {
    /// All ports together.
    pub total: Named,
    /// By port name.
    pub ports: BTreeMap<String, Named>,
    /// Lost before us, by port name; not part of the totals.
    pub kernel_rx: Named,
}

/// Buffer and pool.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct BufferReport {
    /// Bytes of a cell.
    pub cell_bytes: u64,
    /// All cells: B.
    pub total_cells: u64,
    /// Headroom: H.
    pub headroom_cells: u64,
    /// Reserves.
    pub reserve_cells: u64,
    /// What is shared.
    pub shared_cells: u64,
    /// What of it is in use.
    pub shared_used_cells: u64,
    /// The most there was since this was last read by `weft show`.
    #[serde(default)]
    pub shared_watermark_cells: u64,
    /// Headroom in use, all groups together.
    #[serde(default)]
    pub headroom_used_cells: u64,
    /// The most there was since this was last read by `weft show`.
    #[serde(default)]
    pub headroom_watermark_cells: u64,
    /// Chunks of the pool.
    pub chunks: u64,
    /// Chunks in use.
    pub chunks_used: u64,
    /// Chunks that are free.
    pub chunks_free: u64,
}

/// The forwarding database as a whole.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct FdbSummary {
    /// Most entries.
    pub capacity: u64,
    /// Entries.
    pub used: u64,
    /// Entries learned since the start.
    pub learned: u64,
    /// Entries that went to another port.
    pub moved: u64,
    /// Entries removed for their age.
    pub aged: u64,
    /// Not learned: the port has its `max_learned`.
    pub port_limit: u64,
    /// Not learned: no room.
    pub full: u64,
    /// Left to the next frame: another thread was writing.
    pub busy: u64,
    /// Learn events that control was too slow for.
    pub events_lost: u64,
    /// Moves refused of addresses that had moved too often.
    #[serde(default)]
    pub held: u64,
    /// Times that an address moved too often.
    pub loop_alarms: u64,
    /// Ports between which one moves too often now.
    pub loop_ports: Vec<String>,
}

/// Forwarding database.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct FdbReport {
    /// As a whole.
    pub summary: FdbSummary,
    /// Entries.
    pub entries: Vec<FdbRow>,
}

/// An FDB entry.
#[derive(Clone, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize)]
pub struct FdbRow {
    /// VLAN.
    pub vid: u16,
    /// Address: `02:00:00:00:00:01`, `gen1:0000000002`, `id:0005`.
    pub addr: String,
    /// Name of the port.
    pub port: String,
    /// Whether configuration says so.
    #[serde(rename = "static")]
    pub is_static: bool,
    /// Seconds since the station's last frame; 0 for static entries.
    pub age_s: u64,
}

/// rx + copies = tx + dropped + consumed + queued.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct ConservationReport {
    /// Received.
    pub rx: u64,
    /// Copies of replicated frames beyond the first.
    pub copies: u64,
    /// Sent.
    pub tx: u64,
    /// Dropped.
    pub dropped: u64,
    /// Ended here: MAC control.
    pub consumed: u64,
    /// Still queued.
    pub queued: u64,
    /// What is not accounted for; 0.
    pub imbalance: i64,
    /// Whether it is 0.
    pub holds: bool,
    /// Why the numbers are not of one moment, and the sum need not come out even: workers that do not
    /// answer.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub inexact: Option<String>,
}

/// A worker thread.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct WorkerReport {
    /// Its number.
    pub worker: usize,
    /// Frames that it received.
    pub frames: u64,
    /// Bursts that they came in.
    pub bursts: u64,
    /// Time of passes in which something was done.
    pub busy_ns: u64,
    /// The same in ticks of the processor's time-stamp counter; 0 where there is none.
    pub busy_cycles: u64,
    /// Time since the start, of which the rest was idle.
    pub uptime_ns: u64,
    /// Time since its last pass began: its heartbeat. An idle worker makes ten a second at least.
    #[serde(default)]
    pub heartbeat_age_ns: u64,
    /// The longest that it was away in the last 10 to 20 s: it did not run although it had to.
    #[serde(default)]
    pub away_lately_ns: u64,
    /// The same since the start.
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
    /// Learn attempts that met another worker's.
    pub learn_busy: u64,
}
