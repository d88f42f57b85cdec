//! Output lane: state that one worker keeps for a port as output.
//!
//! It has the consuming ends of its egress queues, a scheduler, pause timers and a watchdog.
//!
//! Units: bytes.
//! Source: docs/spec/pipeline.md §7 to §9.

mod dequeue;
mod egress;
mod gate;
mod pause;
mod probe;
mod rewrite;

use weft_base::ring::Rx;

use crate::batch::Batch;
use crate::desc::Desc;
use crate::egress::EgressSched;
use crate::loops::ProbeSchedule;
use crate::pfc::{PauseRx, Watchdog};
use crate::snapshot::Snapshot;
use crate::time::Instant;
use crate::types::{PerPri, PortId, PriSet};

pub(super) use dequeue::leave_one;
pub(super) use egress::{count_alike, count_sent};

/// State that one worker keeps for a port as output.
#[expect(clippy::struct_excessive_bools, reason = "facts that do not hang together")]
pub(super) struct OutputLane {
    pub port: PortId,
    pub(super) queues: PerPri<Option<Rx<Desc>>>,
    pub(super) sched: EgressSched,
    pub(super) pause: PauseRx,
    pub(super) watchdog: Watchdog,
    /// Frames picked but not yet taken by the port. The first `pending_control` of them are control
    /// frames made by the switch.
    pub(super) pending: Batch,
    pub(super) pending_control: usize,
    pub up: bool,
    /// Its queues are held by command: only PFC frames are sent.
    pub(super) tx_off: bool,
    /// The last housekeeping of its port failed, and control can read why.
    pub(super) in_trouble: bool,
    /// There is no pause and no storm, and the shared words say so.
    pub(super) calm: bool,
    /// Frames were left in queues or pending at the last look.
    pub(super) backlog: bool,
    /// Queues left with frames at the last look. A driver that notes here which queues it feeds need
    /// not look at the others.
    pub(super) queued: PriSet,
    /// Rate limits hold all waiting frames back until then.
    pub(super) closed_until: Option<Instant>,
    /// The port had no room for all frames that were ready.
    pub(super) full: bool,
    /// Priorities whose frames may bypass the pipeline.
    pub gate: PriSet,
    /// Times at which loop probes are sent.
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
            // Until the first step has published that no priority is paused.
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
        // Else `next` would ask for a step at `closed_until` for ever: no `send` sets it anew while the
        // port is down.
        (self.closed_until, self.full) = (None, false);
    }

    pub fn next(&mut self, now: Instant) -> Option<Instant> {
        if self.calm && self.pause.is_idle() {
            return self.closed_until; // no pause runs and no storm lasts
        }
        let next = Instant::earlier(self.pause.tick(now), self.watchdog.tick(now));
        Instant::earlier(next, self.closed_until)
    }

    /// Whether frames wait for room at the port.
    pub fn is_blocked(&self) -> bool {
        // Data frames that were picked before the queues were held stay pending on purpose.
        let waiting = if self.tx_off { self.pending_control } else { self.pending.len() };
        self.full || waiting > 0
    }

    /// Data frames that were taken off the queues but not by the port.
    pub fn unsent(&self) -> usize {
        self.pending.len() - self.pending_control
    }

    /// Takes the first frame of the first queue of `pris` that has one.
    pub fn pop_any(&mut self, pris: PriSet) -> Option<Desc> {
        pris.iter().find_map(|pri| self.queues[pri].as_mut().and_then(Rx::pop))
    }

    /// The queues of `pris` that hold a frame, and the lengths of their first frames.
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

/// Bytes of a frame as schedulers count them: without FCS.
#[inline]
pub(super) fn wire_len(desc: &Desc) -> u32 {
    u32::try_from(desc.len()).unwrap_or(u32::MAX)
}
