//! Output lane: what one worker keeps for a port as output.
//!
//! The consuming ends of its egress queues, a scheduler, pause timers, a watchdog.
//!
//! Units: bytes.
//! Source: docs/spec/pipeline.md §7 to §9.

use weft_base::ring::Rx;

use crate::batch::Batch;
use crate::desc::Desc;
use crate::egress::EgressSched;
use crate::loops::ProbeSchedule;
use crate::pfc::{PauseRx, Watchdog};
use crate::snapshot::Snapshot;
use crate::time::Instant;
use crate::types::{PerPri, PortId, PriSet};

/// What one worker keeps for a port as output.
#[expect(clippy::struct_excessive_bools, reason = "facts that do not hang together")]
pub(super) struct OutputLane {
    pub port: PortId,
    pub(super) queues: PerPri<Option<Rx<Desc>>>,
    pub(super) sched: EgressSched,
    pub(super) pause: PauseRx,
    pub(super) watchdog: Watchdog,
    /// Frames picked but not yet taken by the port; control frames of ours stand first.
    pub(super) pending: Batch,
    pub(super) pending_control: usize,
    pub up: bool,
    /// Its queues are held: nothing but PFC frames is sent.
    pub(super) tx_off: bool,
    /// The last housekeeping of its port failed; control is told why.
    pub(super) in_trouble: bool,
    /// No pause runs and no storm is on, and everybody knows.
    pub(super) calm: bool,
    /// Frames were left in queues or pending when this output was last looked after.
    pub(super) backlog: bool,
    /// In virtual time, queues that may hold a frame: all others hold none.
    pub(super) queued: PriSet,
    /// Rates hold all back until then.
    pub(super) closed_until: Option<Instant>,
    /// The port had no room for all that was ready.
    pub(super) full: bool,
    /// Priorities that may pass the pipeline by.
    pub gate: PriSet,
    /// When loop probes leave.
    pub(super) probes: ProbeSchedule,
}

impl OutputLane {
    pub fn new(port: PortId, queues: PerPri<Option<Rx<Desc>>>, snapshot: &Snapshot) -> Self {
        let pfc = &snapshot.config.pfc;
        let config = snapshot.config.ports.get(port.index()).expect("a port of this switch");
        Self {
            port,
            queues,
            sched: EgressSched::new(&config.egress),
            pause: PauseRx::new(),
            watchdog: Watchdog::new(pfc.watchdog_detect, pfc.watchdog_restore),
            pending: Batch::new(),
            pending_control: 0,
            up: false,
            tx_off: false,
            in_trouble: false,
            calm: false,
            backlog: false,
            queued: PriSet::EMPTY,
            closed_until: None,
            full: false,
            gate: PriSet::EMPTY,
            probes: ProbeSchedule::new(),
        }
    }

    pub fn reconfigure(&mut self, snapshot: &Snapshot) {
        let pfc = &snapshot.config.pfc;
        self.watchdog.set(pfc.watchdog_detect, pfc.watchdog_restore);
        self.tx_off = snapshot.config.tx_off.contains(self.port);
        if let Some(config) = snapshot.config.ports.get(self.port.index()) {
            self.sched.reconfigure(&config.egress);
        }
    }

    pub fn link_down(&mut self, now: Instant) {
        self.pause.clear(now);
        // Nothing waits for a port that is down.
        (self.closed_until, self.full) = (None, false);
    }

    pub fn next(&mut self, now: Instant) -> Option<Instant> {
        if self.calm && self.pause.is_idle() {
            return self.closed_until; // nothing is paused, and no storm is on
        }
        let next = Instant::earlier(self.pause.tick(now), self.watchdog.tick(now));
        Instant::earlier(next, self.closed_until)
    }

    /// Whether frames wait for room at the port.
    pub fn is_blocked(&self) -> bool {
        let waiting = if self.tx_off { self.pending_control } else { self.pending.len() };
        self.full || waiting > 0
    }

    /// Frames off the queues that the port has not taken.
    pub fn unsent(&self) -> usize {
        self.pending.len() - self.pending_control
    }

    /// Queues that hold a frame, and the lengths of their first ones.
    #[inline]
    pub(super) fn ready(&mut self, pris: PriSet) -> (PriSet, PerPri<u32>) {
        let mut ready = PriSet::EMPTY;
        let mut lens = PerPri::default();
        for pri in pris.iter() {
            if let Some(first) = self.queues[pri].as_mut().and_then(Rx::front) {
                ready.insert(pri);
                lens[pri] = wire_len(first);
            }
        }
        (ready, lens)
    }
}

/// Bytes of a frame, as schedulers count.
#[inline]
pub(super) fn wire_len(desc: &Desc) -> u32 {
    u32::try_from(desc.len()).unwrap_or(u32::MAX)
}
