//! Virtual lane: a switch in virtual time, which one lane drives from event to event.
//!
//! It has a [`Lane`] with all ports of the switch and with the crossbar, whose stages it runs, and
//! the state that only exact time needs: when each port is due, until when frames in transfer hold
//! their ports, and frames that wait for other frames of their instant or for their own last bit.
//! As the lane has all ports, each port's place is its number.
//!
//! Source: docs/spec/model.md.

mod cross;
mod cut_through;
mod holds;
mod parked;
mod receive;
mod step;
mod transit;
mod transits;
mod wakes;

use std::sync::Arc;

use self::holds::Holds;
use self::parked::ParkedFrames;
use self::transits::Transits;
use self::wakes::Wakes;
use super::build::{BuildError, build_for};
use super::lane::Lane;
use super::switch_core::Core;
use super::timing::Timing;
use crate::config::{PfcMode, SwitchConfig};
use crate::pool::{Bufs, Pool};
use crate::port::TimedPort;
use crate::time::Instant;
use crate::trace::Tracer;
use crate::types::{PORTS_MAX, PortId, PortSet};

/// A switch in virtual time: one lane with all ports, driven from event to event.
pub struct VirtualTimeLane {
    lane: Lane,
    holds: Holds,
    /// When each port is due.
    wakes: Wakes,
    /// Admitted frames that came in at this instant.
    transits: Transits,
    /// Frames whose last bits are not in yet.
    parked: ParkedFrames,
    /// Ports whose links may go down by themselves; determined at the first step.
    unsteady: Option<PortSet>,
    /// Ports that hand over several frames at once, which those of virtual time never do;
    /// determined at the first step.
    in_bursts: PortSet,
}

impl VirtualTimeLane {
    /// The value of `changed` in [`Self::step_at`] when anything may have changed, the configuration
    /// included.
    pub const ANY: PortSet = PortSet::first(PORTS_MAX);

    /// Builds a switch of `config` over `pool`. Its ports are passed to each step, in order.
    ///
    /// # Errors
    /// See [`BuildError`].
    pub fn new(config: SwitchConfig, pool: &Arc<Pool>) -> Result<Self, BuildError> {
        let all: Vec<PortId> = (0..config.ports.len()).filter_map(PortId::new).collect();
        let ports = all.len();
        let built = build_for(Timing::Virtual, config, pool, &[all])?;
        let had = built.lanes.len();
        let lane = built.lanes.into_iter().next().ok_or(BuildError::Workers { had, ports })?;
        Ok(Self {
            holds: Holds::new(&lane.ctx.snapshot),
            lane,
            wakes: Wakes::new(ports),
            transits: Transits::default(),
            parked: ParkedFrames::new(ports),
            unsteady: None,
            in_bursts: PortSet::EMPTY,
        })
    }

    /// The state that control reads: counters, buffer, FDB, configuration.
    #[must_use]
    pub const fn core(&self) -> &Arc<Core> {
        self.lane.core()
    }

    /// The switch's handle of the pool.
    pub const fn bufs(&mut self) -> &mut Bufs {
        self.lane.bufs()
    }

    /// Brings the times for which outputs were paused up to `now`. Steps count them, and the last
    /// step may be earlier.
    pub fn count_pauses(&mut self, now: Instant) {
        self.lane.count_pauses(now);
    }

    /// Ends all frames that are still in the switch and takes back the chunks that ports hold, when
    /// no step is made any more.
    pub fn stop<T: Tracer>(
        &mut self,
        now: Instant,
        ports: &mut [Box<dyn TimedPort>],
        tracer: &mut T,
    ) {
        self.end_parked(now, tracer);
        self.lane.end_queued(now, tracer);
        for (index, port) in ports.iter_mut().enumerate() {
            self.lane.close_port(index, port.as_mut());
        }
        self.lane.settle();
    }

    /// Whether frames may bypass the queues: not with a trace, which shows each stage, and not in
    /// `egress-queue` mode, in which each stage may pause.
    #[inline]
    fn may_transit<T: Tracer>(&self) -> bool {
        !T::ON
            && self.lane.ctx.snapshot.config.pfc.mode == PfcMode::IngressPg
            && self.lane.crossbar.as_ref().is_some_and(|crossbar| crossbar.islip.is_strict())
    }
}
