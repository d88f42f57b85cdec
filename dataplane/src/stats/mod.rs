//! Counters: everything that is always counted, and the one reason of every drop.
//!
//! Each worker has one [`WorkerStats`], which it alone writes, with plain stores; readers add them
//! up.
//!
//! Units: frames, bytes, picoseconds, as named.
//! Source: docs/spec/pipeline.md §10; ARCHITECTURE.md "Time, errors, unsafe".

mod pauses;
mod reasons;

use core::sync::atomic::{AtomicU64, Ordering};

pub use pauses::{EDGES, PauseEdge, PauseLog, PauseSide};
pub use reasons::{DropPlace, DropReason, DropWhere, OUTPUT_REASONS};

use zerocopy::FromZeros;

use crate::types::{PerPort, PerPri};

/// A counter with one writer: adding is a load and a store, not a locked instruction.
#[derive(Debug, Default, FromZeros)]
pub struct Counter(AtomicU64);

impl Counter {
    /// Adds `n`; only the owner may call this.
    #[inline]
    pub fn add(&self, n: u64) {
        self.0.store(self.0.load(Ordering::Relaxed).wrapping_add(n), Ordering::Relaxed);
    }

    /// Subtracts `n`; only the owner may call this.
    #[inline]
    pub fn sub(&self, n: u64) {
        self.0.store(self.0.load(Ordering::Relaxed).wrapping_sub(n), Ordering::Relaxed);
    }

    /// Raises the counter to `n` if it is below; only the owner may call this.
    #[inline]
    pub fn raise(&self, n: u64) {
        // A watermark rarely rises: without the store, its cache line stays shared with readers.
        if self.0.load(Ordering::Relaxed) < n {
            self.0.store(n, Ordering::Relaxed);
        }
    }

    /// Sets the counter; only the owner may call this.
    #[inline]
    pub fn set(&self, n: u64) {
        self.0.store(n, Ordering::Relaxed);
    }

    /// The value now; may be called by any thread, and is not ordered with other counters.
    #[inline]
    #[must_use]
    pub fn get(&self) -> u64 {
        self.0.load(Ordering::Relaxed)
    }
}

/// Number of drop reasons, and so of counters for each port and priority.
pub const DROP_REASONS: usize = DropReason::ALL.len();
/// Formats that are counted, indexed by `Format as usize`.
pub const FORMATS: usize = 7;
/// Counters for refused TLPs, at least as many as [`crate::pbr::Refusal`] has reasons.
pub const REFUSALS_MAX: usize = 40;
/// Upper bounds of the size bins, in bytes with FCS (RFC 2819 `etherStatsPkts`); the last bin holds
/// all longer frames.
pub const SIZE_BINS: [usize; 7] = [64, 127, 255, 511, 1_023, 1_518, usize::MAX];

/// Names of [`SIZE_BINS`]: the sizes, with FCS, that each bin counts.
pub const SIZE_BIN_NAMES: [&str; SIZE_BINS.len()] =
    ["0-64", "65-127", "128-255", "256-511", "512-1023", "1024-1518", "1519-"];

/// TLPs refused, by [`crate::pbr::Refusal`].
#[derive(Debug, FromZeros)]
pub struct Refused([Counter; REFUSALS_MAX]);

impl Default for Refused {
    fn default() -> Self {
        Self(core::array::from_fn(|_| Counter::default()))
    }
}

impl Refused {
    /// All counters, by the refusal's number.
    #[inline]
    #[must_use]
    pub const fn all(&self) -> &[Counter] {
        &self.0
    }
}

/// Counters of one worker for one port.
#[derive(Debug, Default, FromZeros)]
pub struct PortStats {
    /// Frames received, dropped ones included.
    pub rx_frames: Counter,
    /// Bytes received, without FCS.
    pub rx_bytes: Counter,
    /// Frames that the port took, less those that it failed to send.
    pub tx_frames: Counter,
    /// Bytes in these frames, without FCS, as sent.
    pub tx_bytes: Counter,
    /// Frames received for a group. MAC control and frames that cannot be parsed are not among
    /// them.
    pub rx_group_frames: Counter,
    /// Frames sent for a group.
    pub tx_group_frames: Counter,
    /// Frames received, by format.
    pub rx_format: [Counter; FORMATS],
    /// Frames sent, by format.
    pub tx_format: [Counter; FORMATS],
    /// Frames received, by [`SIZE_BINS`].
    pub rx_size: [Counter; SIZE_BINS.len()],
    /// Copies of replicated frames beyond the first.
    pub copies: Counter,
    /// Frames for the switch itself, which end here: MAC control (PFC, PAUSE, CBFC and unknown
    /// opcodes) and loop probes.
    pub consumed: Counter,
    /// Consumed PFC frames that were obeyed.
    pub pfc_rx: Counter,
    /// Consumed frames of plain 802.3x PAUSE, which is not obeyed.
    pub pause_rx: Counter,
    /// Consumed CBFC messages of UEC.
    pub cbfc_rx: Counter,
    /// Consumed PFC frames that are malformed or have a foreign destination.
    pub mac_control_bad: Counter,
    /// Consumed loop probes that claim to come from a port of this switch, but whose number is
    /// wrong or too old.
    pub loop_probes_bad: Counter,
    /// Consumed MAC control frames with an unknown opcode.
    pub mac_control_unknown: Counter,
    /// Frames lost in the kernel or device before weft received them; not part of the ledger.
    pub kernel_rx: Counter,
    /// Frames dropped after they were taken off their egress queue, or decided about anew because
    /// the link went down.
    pub late_drops: Counter,
    /// PFC frames made and sent here.
    pub pfc_tx: Counter,
    /// PFC frames that were due but could not be sent for lack of a chunk or of room at the port.
    pub pfc_tx_late: Counter,
    /// PFC frames that the pause guard sent while the worker was away.
    pub pfc_guard: Counter,
    /// Stations that moved to this port.
    pub fdb_moves: Counter,
    /// Loop probes made and sent here.
    pub loop_probes: Counter,
    /// Times that the port was blocked because of a loop.
    pub loop_blocks: Counter,
    /// Drops by reason, over all priorities.
    pub drops: [Counter; DROP_REASONS],
    /// TLPs refused, by reason; each was dropped, or answered by a completion.
    pub refused: Refused,
    /// Refused requests that became a completion.
    pub answered: Counter,
    /// Frames that were passed to the switch's own functions by the CPU port.
    pub to_agent: Counter,
    /// Counters for each priority of the port.
    pub pri: PerPri<PriStats>,
}

/// Counters of one worker for one (port, priority).
#[derive(Debug, Default, FromZeros)]
pub struct PriStats {
    /// As input: frames put into VOQs, copies included.
    pub enqueued: Counter,
    /// As input: copies of replicated frames beyond the first, dropped ones included.
    pub copies: Counter,
    /// As output: frames taken off the egress queue.
    pub dequeued: Counter,
    /// As output: frames taken off VOQs or egress queues to be dropped.
    pub purged: Counter,
    /// As output: bytes sent, without FCS.
    pub tx_bytes: Counter,
    /// As input: drops by reason of frames whose priority was known.
    pub drops: [Counter; DROP_REASONS],
    /// As output: drops of frames that were to leave here, by [`OUTPUT_REASONS`].
    pub output_drops: [Counter; OUTPUT_REASONS.len()],
    /// As output: ECN marks set here.
    pub ecn_marked: Counter,
    /// As output: PAUSE of a class received (quanta above 0).
    pub pause_rx: Counter,
    /// As output: resume of a class received (quanta 0).
    pub resume_rx: Counter,
    /// As input: PAUSE of this priority sent, refreshes included.
    pub pause_tx: Counter,
    /// As input: resume of this priority sent.
    pub resume_tx: Counter,
    /// As input: times that XOFF was crossed.
    pub xoff: Counter,
    /// As input: times that XON was reached.
    pub xon: Counter,
    /// As output: time paused, in picoseconds.
    pub paused_ps: Counter,
    /// As output: PAUSE storms found.
    pub storms: Counter,
    /// As output: maximum of cells queued.
    pub depth_watermark: Counter,
    /// As input: maximum of cells of the group in shared buffer and reserve, without headroom.
    pub pg_watermark: Counter,
    /// As input: maximum of cells of the group in headroom.
    pub headroom_watermark: Counter,
    /// As input, by priority group: maximum of cells of its lossy frames, if [`lossy_watermarks`] are kept.
    ///
    /// [`lossy_watermarks`]: crate::config::SwitchConfig::lossy_watermarks
    pub lossy_watermark: Counter,
}

/// All counters of one worker.
#[derive(Debug)]
pub struct WorkerStats {
    /// Counters by port. A worker also counts for ports of other workers, for example drops at the
    /// crossbar.
    pub port: PerPort<PortStats>,
    /// Attempts to learn that collided with another worker's and were left to the station's next
    /// frame.
    pub learn_busy: Counter,
    /// Calls of a port's `service` that failed.
    pub service_errors: Counter,
    /// Maximum of cells of the shared part of the buffer in use, by all workers together.
    pub shared_watermark: Counter,
    /// Maximum of cells of headroom in use, by all groups together.
    pub headroom_watermark: Counter,
    /// Passes of the worker's loop since the start.
    pub loops: Counter,
    /// When the last pass began, in nanoseconds of the switch's clock: the heartbeat.
    pub beat_ns: Counter,
    /// Latest end of the worker's current or last sleep, by the same clock.
    pub wake_ns: Counter,
    /// Longest absence since the start, in nanoseconds: time in which the worker did not run
    /// although it had to.
    pub away_ns: Counter,
    /// Longest absence in the last 10 to 20 s.
    pub away_lately_ns: Counter,
    /// Passes in which something was done.
    pub busy_loops: Counter,
    /// Frames received by the worker's ports.
    pub frames: Counter,
    /// Frames that are parked (cut-through, in virtual time) or held for want of a route now.
    pub parked: Counter,
    /// Bursts in which these frames were received.
    pub bursts: Counter,
    /// Duration of passes in which something was done, in nanoseconds.
    pub busy_ns: Counter,
    /// Ticks of the processor's time-stamp counter in these passes; 0 where there is none.
    pub busy_cycles: Counter,
    /// Begin and end of pauses that its ports obeyed or asked for, once a reader wants them.
    pub pauses: PauseLog,
}

impl Default for WorkerStats {
    fn default() -> Self {
        Self::of(PerPort::default())
    }
}

impl WorkerStats {
    /// Like `default`, but memory for a port is taken when it first counts: in virtual time there
    /// may be many switches, and a page fault delays no frame.
    #[must_use]
    pub fn growing() -> Self {
        Self::of(PerPort::zeroed())
    }

    fn of(port: PerPort<PortStats>) -> Self {
        Self {
            port,
            learn_busy: Counter::default(),
            service_errors: Counter::default(),
            shared_watermark: Counter::default(),
            headroom_watermark: Counter::default(),
            loops: Counter::default(),
            beat_ns: Counter::default(),
            wake_ns: Counter::default(),
            away_ns: Counter::default(),
            away_lately_ns: Counter::default(),
            busy_loops: Counter::default(),
            frames: Counter::default(),
            parked: Counter::default(),
            bursts: Counter::default(),
            busy_ns: Counter::default(),
            busy_cycles: Counter::default(),
            pauses: PauseLog::default(),
        }
    }

    /// Counts a pass of the loop in which something was done: its time, by both clocks.
    #[inline]
    pub fn count_busy(&self, span: crate::time::Span, cycles: u64) {
        self.busy_ns.add(span.as_ns());
        self.busy_cycles.add(cycles);
    }

    /// Counts a drop, once, with the port that the frame came in by (or was to leave by).
    #[inline]
    pub fn count_drop(&self, port: crate::types::PortId, reason: DropReason) {
        self.count_drops(port, reason, 1);
    }

    /// Counts `count` drops for one reason.
    #[inline]
    pub fn count_drops(&self, port: crate::types::PortId, reason: DropReason, count: u64) {
        if let Some(counter) = self.port[port].drops.get(reason as usize) {
            counter.add(count);
        }
    }

    /// Counts a drop of a frame whose priority is known.
    #[inline]
    pub fn count_drop_pri(
        &self,
        port: crate::types::PortId,
        pri: crate::types::Pri,
        reason: DropReason,
    ) {
        self.count_drop(port, reason);
        if let Some(counter) = self.port[port].pri[pri].drops.get(reason as usize) {
            counter.add(1);
        }
    }

    /// Counts at the output a frame that is dropped for `reason`; the drop itself is counted
    /// separately, at its input.
    #[inline]
    pub fn count_output_drop(
        &self,
        output: crate::types::PortId,
        pri: crate::types::Pri,
        reason: DropReason,
    ) {
        // A scan of eight: drops are rare beside frames, and a table by reason would be mostly
        // empty.
        let place = OUTPUT_REASONS.iter().position(|&known| known == reason);
        debug_assert!(place.is_some(), "a reason of OUTPUT_REASONS");
        let counters = &self.port[output].pri[pri].output_drops;
        if let Some(counter) = place.and_then(|place| counters.get(place)) {
            counter.add(1);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn bins_are_named_by_their_sizes() {
        let mut from = 0;
        for (most, name) in SIZE_BINS.into_iter().zip(SIZE_BIN_NAMES) {
            let to = if most == usize::MAX { String::new() } else { most.to_string() };
            assert_eq!(name, format!("{from}-{to}"));
            from = most.wrapping_add(1);
        }
    }

    #[test]
    fn a_counter_adds_and_keeps_its_highest() {
        let counter = Counter::default();
        counter.add(5);
        counter.sub(2);
        counter.raise(2);
        assert_eq!(counter.get(), 3);
        counter.raise(9);
        assert_eq!(counter.get(), 9);
    }
}
