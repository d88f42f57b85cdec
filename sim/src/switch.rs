//! One switch in virtual time: a lane over wires, with the far ends of its cables.
//!
//! [`SwitchConfig`] and [`Around`] → [`Switch`] and one [`WireEnd`] a port; the caller steps it
//! when it says so or when it has sent something.
//!
//! Units: picoseconds.
//! Source: docs/spec/pipeline.md §13; docs/spec/model.md.

use std::sync::Arc;

use weft_dataplane::config::SwitchConfig;
use weft_dataplane::desc::Desc;
use weft_dataplane::pipeline::{
    BuildError, Core, Lane, Step, SwitchBuilder, Timing, chunks_beside_buffer,
};
use weft_dataplane::pool::Pool;
use weft_dataplane::port::Port;
use weft_dataplane::port::wire::{Wire, WireConfig, WireEnd, cable};
use weft_dataplane::time::{Instant, LinkRate, Span};
use weft_dataplane::trace::Tracer;
use weft_dataplane::types::PortSet;

use crate::engine::{CableSpec, Latency};

/// What is around the switching core.
#[derive(Clone, Debug)]
#[expect(clippy::struct_excessive_bools, reason = "settings that do not hang together")]
pub struct Around {
    /// Fixed latency of a frame: parse, look-up, crossbar.
    pub latency: Span,
    /// Delay of every cable, unless `propagations` says otherwise.
    pub propagation: Span,
    /// Delays of single ports' cables: (index, delay).
    pub propagations: Vec<(usize, Span)>,
    /// Whether frames take their true wire time.
    pub overhead: bool,
    /// Whether frames go on when their header is in, where their output can start.
    pub cut_through: bool,
    /// Whether runts are dropped.
    pub drop_runts: bool,
    /// Frames in flight on a cable, each way.
    pub cable_frames: usize,
    /// Whether only the front of a frame is kept, and nothing behind it ([`weft_dataplane::pool::FRONT_LEN`]).
    pub fronts: bool,
    /// Chunks of the packet pool; `None` for as many as the buffer has cells, so that it never
    /// runs out.
    pub chunks: Option<usize>,
}

impl Around {
    /// What a switch takes for each frame.
    #[must_use]
    pub const fn of_switch(&self) -> Latency {
        Latency { receive: self.latency, send: Span::ZERO, early: self.cut_through }
    }

    /// Delay of the cable of port `index`.
    #[must_use]
    pub fn propagation_of(&self, index: usize) -> Span {
        let single = self.propagations.iter().find(|(port, _)| *port == index);
        single.map_or(self.propagation, |&(_, propagation)| propagation)
    }

    /// A cable of a link of `rate`.
    #[must_use]
    pub const fn cable(&self, rate: LinkRate) -> CableSpec {
        CableSpec { rate, propagation: self.propagation, overhead: self.overhead }
    }
}

impl Default for Around {
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

/// Steps at one instant after which time is said to stand still.
const STEPS_AT_ONCE_MAX: u32 = 10_000;

/// A switch with its ports.
pub struct Switch {
    lane: Lane,
    ports: Vec<Box<dyn Port>>,
    latency: Span,
    next: Option<Instant>,
    now: Instant,
    steps: u64,
    at_once: u32,
    /// Chunks taken away from the switch.
    taken: Vec<Desc>,
}

impl Switch {
    /// Builds a switch; the ends are those of its ports' peers, in the order of the ports.
    ///
    /// # Errors
    /// As [`SwitchBuilder::build`].
    ///
    /// # Panics
    /// Never: a switch has the one lane that it is built with.
    pub fn new(config: SwitchConfig, around: &Around) -> Result<(Self, Vec<WireEnd>), BuildError> {
        let cables = config.ports.iter().map(|_| cable(around.cable_frames));
        let (near, far): (Vec<_>, Vec<_>) = cables.unzip();
        Ok((Self::on(config, around, near)?, far))
    }

    /// Builds a switch on `ends` of cables, one a port, in their order.
    ///
    /// # Errors
    /// As [`SwitchBuilder::build`].
    ///
    /// # Panics
    /// As [`Switch::new`].
    pub fn on(
        mut config: SwitchConfig,
        around: &Around,
        ends: Vec<WireEnd>,
    ) -> Result<Self, BuildError> {
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
        let ports = wires.into_iter().zip(ends).map(|((wire, frame_len_max), end)| {
            Box::new(Wire::new(wire, frame_len_max, end)) as Box<dyn Port>
        });
        let builder = SwitchBuilder::new(ports.collect()).config(config).pool(pool);
        let built = builder.timing(Timing::Virtual).build()?;
        let (lane, ports) = built.lanes.into_iter().next().expect("one worker was asked for");
        Ok(Self {
            lane,
            ports,
            latency: around.latency,
            next: Some(Instant::ZERO),
            now: Instant::ZERO,
            steps: 0,
            at_once: 0,
            taken: Vec::new(),
        })
    }

    /// What workers share: counters, buffer, FDB, configuration.
    #[must_use]
    pub const fn core(&self) -> &Arc<Core> {
        self.lane.core()
    }

    /// When the switch wants its next step, as far as it knows.
    #[inline]
    #[must_use]
    pub const fn next(&self) -> Option<Instant> {
        self.next
    }

    /// Steps done.
    #[must_use]
    pub const fn steps(&self) -> u64 {
        self.steps
    }

    /// Tells that a frame was sent to the switch whose last bit is in at `at`.
    #[inline]
    pub fn expect(&mut self, at: Instant) {
        self.next = Instant::earlier(self.next, Some(at + self.latency));
    }

    /// One step at `now`.
    ///
    /// # Panics
    /// When time stands still: the switch keeps asking for a step at the same instant.
    pub fn step<T: Tracer>(&mut self, now: Instant, tracer: &mut T) -> Step {
        self.step_at(now, Lane::ANY, tracer)
    }

    /// As [`Self::step`], where no frame is on its way to ports beside `arrived` of which the switch was not told before, and
    /// nothing else of them was changed from outside.
    ///
    /// # Panics
    /// As [`Self::step`].
    pub fn step_at<T: Tracer>(&mut self, now: Instant, arrived: PortSet, tracer: &mut T) -> Step {
        self.at_once = if now == self.now { self.at_once + 1 } else { 0 };
        assert!(self.at_once < STEPS_AT_ONCE_MAX, "time stands still at {} ps", now.as_ps());
        self.now = now;
        self.steps += 1;
        let step = self.lane.step_at(now, arrived, &mut self.ports, tracer);
        self.next = step.next;
        step
    }

    /// Brings the times for which outputs were paused up to `now`, which is not before the last step.
    pub fn count_pauses(&mut self, now: Instant) {
        self.lane.count_pauses(now);
    }

    /// Takes all free chunks of the pool away but `leave`.
    pub fn starve(&mut self, leave: usize) {
        let bufs = self.lane.bufs();
        self.taken.extend(core::iter::from_fn(|| bufs.alloc()));
        for desc in self.taken.drain(self.taken.len().saturating_sub(leave)..) {
            bufs.free(desc);
        }
    }

    /// Gives back what [`Self::starve`] took.
    pub fn feed(&mut self) {
        for desc in self.taken.drain(..) {
            self.lane.bufs().free(desc);
        }
    }

    /// Ends all that is queued: drop reason `shutdown`.
    pub fn stop<T: Tracer>(&mut self, now: Instant, tracer: &mut T) {
        self.lane.stop(now, &mut self.ports, tracer);
    }
}
