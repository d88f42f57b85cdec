//! One switch in virtual time: a lane over wires, with the far ends of its cables for its peers.
//!
//! [`Switch::new`] takes a [`SwitchConfig`] and [`SwitchTiming`], and also returns one [`WireEnd`] a port. The caller steps
//! the switch when the switch asks for it, and when it has sent the switch a frame.
//!
//! Source: docs/spec/pipeline.md §13; docs/spec/model.md.

use std::sync::Arc;

use weft_dataplane::config::SwitchConfig;
use weft_dataplane::desc::Desc;
use weft_dataplane::pipeline::{BuildError, Core, Step, VirtualTimeLane, chunks_beside_buffer};
use weft_dataplane::pool::Pool;
use weft_dataplane::port::TimedPort;
use weft_dataplane::port::wire::{Wire, WireConfig, WireEnd, cable};
use weft_dataplane::time::{Instant, LinkRate, Span};
use weft_dataplane::trace::Tracer;
use weft_dataplane::types::PortSet;

use crate::engine::{CableSpec, Latency};

/// Conditions around the switching core: latency, cables, memory.
#[derive(Clone, Debug)]
#[expect(clippy::struct_excessive_bools, reason = "settings that do not hang together")]
pub struct SwitchTiming {
    /// Fixed latency of a frame: parse, look-up and crossbar.
    pub latency: Span,
    /// Propagation delay of every cable, unless `propagations` has another.
    pub propagation: Span,
    /// Propagation delays of single ports' cables: (index, delay).
    pub propagations: Vec<(usize, Span)>,
    /// Whether frames take their true wire time: least size, preamble and gap count.
    pub overhead: bool,
    /// Whether a frame goes on as soon as its header is in, if its output can start (cut-through).
    pub cut_through: bool,
    /// Whether ports drop frames below the least Ethernet size.
    pub drop_runts: bool,
    /// Frames that a cable can hold in flight, each way.
    pub cable_frames: usize,
    /// Whether only the front of each frame is kept ([`weft_dataplane::pool::FRONT_LEN`]).
    pub fronts: bool,
    /// Chunks of the packet pool; `None`: one for each cell of the buffer and those beside it, so that the pool never
    /// runs out.
    pub chunks: Option<usize>,
}

impl SwitchTiming {
    /// Latency of the switch, as the engine needs it.
    #[must_use]
    pub const fn of_switch(&self) -> Latency {
        Latency { receive: self.latency, send: Span::ZERO, early: self.cut_through }
    }

    /// Propagation delay of the cable of port `index`.
    #[must_use]
    pub fn propagation_of(&self, index: usize) -> Span {
        let single = self.propagations.iter().find(|(port, _)| *port == index);
        single.map_or(self.propagation, |&(_, propagation)| propagation)
    }

    /// A cable of a link of `rate`, with the common propagation delay.
    #[must_use]
    pub const fn cable(&self, rate: LinkRate) -> CableSpec {
        CableSpec { rate, propagation: self.propagation, overhead: self.overhead }
    }
}

impl Default for SwitchTiming {
    fn default() -> Self {
        Self {
            latency: Span::from_ns(300),
            propagation: Span::from_ns(50),
            propagations: Vec::new(),
            overhead: true,
            cut_through: false,
            drop_runts: true,
            cable_frames: 1_024,
            fronts: false,
            chunks: None,
        }
    }
}

/// Steps at one instant after which the switch is taken to be in an endless loop.
const STEPS_AT_ONCE_MAX: u32 = 10_000;

/// A switch with its ports, and the time of its last step.
pub struct Switch {
    lane: VirtualTimeLane,
    ports: Vec<Box<dyn TimedPort>>,
    latency: Span,
    next: Option<Instant>,
    now: Instant,
    steps: u64,
    at_once: u32,
    /// Chunks that [`Self::starve`] took away.
    taken: Vec<Desc>,
}

impl Switch {
    /// Builds a switch; returns it with the ends of its ports' peers, in the order of the ports.
    ///
    /// # Errors
    /// Those of [`VirtualTimeLane::new`].
    pub fn new(
        config: SwitchConfig,
        around: &SwitchTiming,
    ) -> Result<(Self, Vec<WireEnd>), BuildError> {
        let cables = config.ports.iter().map(|_| cable(around.cable_frames));
        let (near, far): (Vec<_>, Vec<_>) = cables.unzip();
        Ok((Self::on(config, around, near)?, far))
    }

    /// Builds a switch on the cable ends `ends`, one a port, in order.
    ///
    /// # Errors
    /// Those of [`VirtualTimeLane::new`].
    pub fn on(
        mut config: SwitchConfig,
        around: &SwitchTiming,
        ends: Vec<WireEnd>,
    ) -> Result<Self, BuildError> {
        // The crossbar holds input and output for a frame's wire time, which must be counted as on the wires.
        config.crossbar.wire_overhead = around.overhead;
        let count = config.ports.len();
        let frame_len_max = config.ports.iter().map(|p| p.frame_len_max).max().unwrap_or(0);
        let cells = config.buffer.total_cells as usize;
        let beside = chunks_beside_buffer(count, 1, config.tx_ring_frames);
        let make = if around.fronts { Pool::fronts } else { Pool::map };
        let pool = make(around.chunks.unwrap_or(cells + beside), frame_len_max.max(64))?;
        let wires: Vec<_> = config
            .ports
            .iter()
            .enumerate()
            .map(|(index, port)| WireConfig {
                name: port.name.clone(),
                rate: port.rate,
                propagation: around.propagation_of(index),
                latency: around.latency,
                overhead: around.overhead,
                drop_runts: around.drop_runts,
                cut_through: around.cut_through,
            })
            .zip(config.ports.iter().map(|port| port.frame_len_max))
            .collect();
        if ends.len() != count {
            return Err(BuildError::Ports { had: ends.len(), want: count });
        }
        let ports = wires.into_iter().zip(ends).map(|((wire, frame_len_max), end)| {
            Box::new(Wire::new(wire, frame_len_max, end)) as Box<dyn TimedPort>
        });
        Ok(Self {
            lane: VirtualTimeLane::new(config, &pool)?,
            ports: ports.collect(),
            latency: around.latency,
            next: Some(Instant::ZERO),
            now: Instant::ZERO,
            steps: 0,
            at_once: 0,
            taken: Vec::new(),
        })
    }

    /// State that workers share: counters, buffer, FDB, configuration.
    #[must_use]
    pub const fn core(&self) -> &Arc<Core> {
        self.lane.core()
    }

    /// When the switch wants its next step; frames sent to it since then may make it earlier.
    #[inline]
    #[must_use]
    pub const fn next(&self) -> Option<Instant> {
        self.next
    }

    /// Number of steps done.
    #[must_use]
    pub const fn steps(&self) -> u64 {
        self.steps
    }

    /// Notes that a frame was sent to the switch whose last bit arrives at `at`.
    #[inline]
    pub fn expect(&mut self, at: Instant) {
        self.next = Instant::earlier(self.next, Some(at + self.latency));
    }

    /// Does one step at `now`, in which every port is looked at.
    ///
    /// # Panics
    /// When time stands still: the switch keeps asking for a step at the same instant.
    pub fn step<T: Tracer>(&mut self, now: Instant, tracer: &mut T) -> Step {
        self.step_at(now, VirtualTimeLane::ANY, tracer)
    }

    /// Like [`Self::step`], but only looks at ports that are due and at those in `arrived`: ports with frames on their
    /// way that the switch was not told of, or that were changed from outside.
    ///
    /// # Panics
    /// Those of [`Self::step`].
    pub fn step_at<T: Tracer>(&mut self, now: Instant, arrived: PortSet, tracer: &mut T) -> Step {
        self.at_once = if now == self.now { self.at_once + 1 } else { 0 };
        assert!(self.at_once < STEPS_AT_ONCE_MAX, "time stands still at {} ps", now.as_ps());
        self.now = now;
        self.steps += 1;
        let step = self.lane.step_at(now, arrived, &mut self.ports, tracer);
        self.next = step.next;
        step
    }

    /// Brings the counters of time paused up to `now`, which is not before the last step.
    pub fn count_pauses(&mut self, now: Instant) {
        self.lane.count_pauses(now);
    }

    /// Takes all free chunks except `leave` out of the pool, as if other frames held them.
    pub fn starve(&mut self, leave: usize) {
        let bufs = self.lane.bufs();
        self.taken.extend(core::iter::from_fn(|| bufs.alloc()));
        for desc in self.taken.drain(self.taken.len().saturating_sub(leave)..) {
            bufs.free(desc);
        }
    }

    /// Gives back the chunks that [`Self::starve`] took.
    pub fn feed(&mut self) {
        for desc in self.taken.drain(..) {
            self.lane.bufs().free(desc);
        }
    }

    /// Drops everything that is queued, with drop reason `shutdown`.
    pub fn stop<T: Tracer>(&mut self, now: Instant, tracer: &mut T) {
        self.lane.stop(now, &mut self.ports, tracer);
    }
}
