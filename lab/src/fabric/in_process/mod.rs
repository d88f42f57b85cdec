//! A whole fabric in one process: switches with their agents, hosts, devices and GFDs, joined by pipes.
//!
//! [`InProcessFabric::new`] makes it from a layout; [`InProcessFabric::step`] polls each part once.
//! [`InProcessFabric::call`] sends a request to a switch and [`InProcessFabric::ask`] a command to an endpoint; both
//! step until the answer is there. Time is the caller's: the machine's clock, or any other.
//!
//! Source: docs/spec/cxl-fabric.md.

mod endpoint;
mod idle;
mod switch;
mod wires;

use std::sync::Arc;

use weft_base::eventfd::EventFd;
use weft_cxl::cci::Session;
use weft_dataplane::pipeline::{BuildError, Ledger};
use weft_dataplane::pool::{Bufs, Pool, PoolError};
use weft_dataplane::port::PortOpenError;
use weft_dataplane::port::pipe::LinkHandle;
use weft_dataplane::time::{Instant, LinkRate, Span};
use weft_fm::cci::TransportError;
use weft_parsers::cci::Header;
use weft_pbr_switch::{Agent, ConfigError, StaticInit};
use weft_rpc::Refused;

use self::endpoint::{RunningEndpoint, endpoint_of};
use self::idle::IdleState;
use self::switch::{RunningSwitch, agent};
use self::wires::Wires;
use super::layout::{Layout, Part};
use super::topology::Topology;
use crate::endpoint::spec::SpecError;
use crate::endpoint::{Answer, Command, Runner, RunnerError, RunnerHandle};

/// Longest frame of each link in bytes.
const FRAME_LEN_MAX: usize = 1_518;
/// `Max_Payload_Size` of each link in bytes.
const PAYLOAD_MAX: u16 = 512;
/// Rate of each link.
const RATE: LinkRate = LinkRate::gbps(100);
/// Chunks of a switch's buffer.
const CELLS: u32 = 4_096;
/// Chunks for each pipe, runner and agent.
const CHUNKS_EACH: usize = 512;

/// Reasons why the parts of a fabric cannot be made.
#[derive(Debug, thiserror::Error)]
pub enum InProcessError {
    /// There is not enough memory.
    #[error("make room for frames")]
    Pool(#[from] PoolError),
    /// The dataplane rejects a switch's configuration.
    #[error("switch {name}")]
    Switch { name: String, source: Box<BuildError> },
    /// The control plane rejects a switch's configuration.
    #[error("switch {name}")]
    Component { name: String, source: Box<ConfigError> },
    /// A host, device, HBR switch or GFD rejects its specification.
    #[error("{name}")]
    Spec { name: String, source: Box<SpecError> },
    /// A runner cannot be made.
    #[error("{name}")]
    Runner { name: String, source: Box<RunnerError> },
    /// The kernel refuses the descriptor that wakes the manager.
    #[error("make a descriptor that wakes the manager")]
    Bell(#[source] std::io::Error),
    /// A pipe cannot be made.
    #[error("join the parts")]
    Pipe(#[from] Box<PortOpenError>),
}

/// A whole fabric in this process: switches, endpoints and the links between them.
pub struct InProcessFabric {
    topology: Topology,
    layout: Layout,
    fixed: Vec<StaticInit>,
    switches: Vec<RunningSwitch>,
    endpoints: Vec<RunningEndpoint>,
    links: Vec<LinkHandle>,
    bufs: Bufs,
    clock: Box<dyn FnMut(bool) -> Instant + Send>,
    failed: u64,
    /// Readable while notifications wait for the manager; `rung` tells whether it is.
    bell: Arc<EventFd>,
    rung: bool,
}

impl InProcessFabric {
    /// Makes all parts of a topology, as after power-on. `fixed` has the static set-up of switches by number. `clock`
    /// is called before each step, and told whether the step before moved anything.
    ///
    /// # Errors
    /// See [`InProcessError`].
    pub fn new(
        topology: &Topology,
        layout: Layout,
        fixed: &[StaticInit],
        clock: Box<dyn FnMut(bool) -> Instant + Send>,
    ) -> Result<Self, InProcessError> {
        let parts = layout.hosts.len() + layout.devices.len() + layout.hbrs.len();
        let others = parts + layout.gfds.len() + layout.wires.len() + 2 * layout.switches.len();
        let cells = usize::try_from(CELLS).unwrap_or(usize::MAX) + 2_048;
        let chunks = layout.switches.len() * cells + others * CHUNKS_EACH;
        let pool = Pool::map(chunks, FRAME_LEN_MAX)?;
        let mut bufs = Bufs::new(pool.clone(), 64, 0);
        let mut wires = Wires::new(&layout, &mut bufs)?;
        let mut switches = Vec::new();
        for at in 0..layout.switches.len() {
            switches.extend(RunningSwitch::new(
                &layout,
                at,
                fixed.get(at),
                &mut wires,
                &pool,
                &mut bufs,
            )?);
        }
        let mut endpoints = Vec::new();
        for part in layout.endpoints() {
            let name = || layout.name(part).to_owned();
            let made = endpoint_of(topology, &layout, part).map_err(|source| {
                InProcessError::Spec { name: name(), source: Box::new(source) }
            })?;
            let Some(made) = made else { continue };
            let links = u8::try_from(made.link_count()).unwrap_or(u8::MAX);
            let (ports, inboxes) = (0..links).filter_map(|port| wires.take(part, port)).unzip();
            let own = Bufs::new(pool.clone(), 64, 0);
            let runner = Runner::new(made, ports, own).map_err(|source| {
                InProcessError::Runner { name: name(), source: Box::new(source) }
            })?;
            endpoints.push(RunningEndpoint {
                part,
                runner,
                idle: IdleState::new(inboxes),
                off: false,
            });
        }
        let links = wires.links;
        let (topology, fixed) = (topology.clone(), fixed.to_vec());
        let (failed, rung) = (0, false);
        let bell = Arc::new(EventFd::new().map_err(InProcessError::Bell)?);
        Ok(Self {
            topology,
            layout,
            fixed,
            switches,
            endpoints,
            links,
            bufs,
            clock,
            failed,
            bell,
            rung,
        })
    }

    /// The layout that it was made from.
    #[must_use]
    pub const fn layout(&self) -> &Layout {
        &self.layout
    }

    /// The agent of a switch.
    #[must_use]
    pub fn agent(&self, switch: usize) -> Option<&Agent> {
        self.switches.get(switch).map(|switch_node| &switch_node.agent)
    }

    /// Counters of a switch.
    #[must_use]
    pub fn ledger(&self, switch: usize) -> Option<Ledger> {
        self.switches.get(switch).map(|switch_node| Ledger::read(&switch_node.core))
    }

    /// The runner of an endpoint.
    pub fn runner(&mut self, part: Part) -> Option<&mut Runner> {
        let endpoint = self.endpoints.iter_mut().find(|endpoint| endpoint.part == part)?;
        // The caller may change it in a way that its inboxes do not show.
        endpoint.idle.wake();
        Some(&mut endpoint.runner)
    }

    /// Handles by name, for commands to endpoints from other threads.
    #[must_use]
    pub fn handles(&self) -> Vec<(String, RunnerHandle)> {
        let named = |endpoint: &RunningEndpoint| {
            (self.layout.name(endpoint.part).to_owned(), endpoint.runner.handle())
        };
        self.endpoints.iter().map(named).collect()
    }

    /// Refuses commands of all endpoints from now on, before the fabric ends ([`Runner::end_commands`]).
    pub fn end_commands(&mut self) {
        for endpoint in &mut self.endpoints {
            endpoint.runner.end_commands();
        }
    }

    /// The wires that end at a part.
    #[must_use]
    pub fn wires_of(&self, part: Part) -> Vec<usize> {
        let wires = self.layout.wires.iter().enumerate();
        let own = wires.filter(|(_, ends)| ends.iter().any(|end| end.part == part));
        own.map(|(at, _)| at).collect()
    }

    /// Takes the power from a part: its links go down, and its state is lost.
    ///
    /// # Errors
    /// The part cannot be made again.
    pub fn stop(&mut self, part: Part) -> Result<(), InProcessError> {
        for wire in self.wires_of(part) {
            self.set_wire(wire, false);
        }
        let name = self.layout.name(part).to_owned();
        if let Part::Switch(at) = part {
            let made = agent(&self.layout, at, self.fixed.get(at));
            let made = made.map_err(|e| InProcessError::Component { name, source: Box::new(e) })?;
            if let Some(switch_node) = self.switches.get_mut(at) {
                switch_node.power_off(made);
            }
            return Ok(());
        }
        let made = endpoint_of(&self.topology, &self.layout, part);
        let made =
            made.map_err(|source| InProcessError::Spec { name, source: Box::new(source) })?;
        let endpoint = self.endpoints.iter_mut().find(|endpoint| endpoint.part == part);
        if let (Some(endpoint), Some(made)) = (endpoint, made) {
            endpoint.runner.replace(made);
            endpoint.off = true;
        }
        Ok(())
    }

    /// Gives a part its power back, and connects its wires.
    pub fn run(&mut self, part: Part) {
        match part {
            Part::Switch(at) => {
                if let Some(switch_node) = self.switches.get_mut(at) {
                    switch_node.off = false;
                    switch_node.idle.wake();
                }
            }
            _ => {
                if let Some(endpoint) =
                    self.endpoints.iter_mut().find(|endpoint| endpoint.part == part)
                {
                    endpoint.off = false;
                    endpoint.idle.wake();
                }
            }
        }
        for wire in self.wires_of(part) {
            self.set_wire(wire, true);
        }
    }

    /// Connects or disconnects a wire.
    pub fn set_wire(&mut self, wire: usize, up: bool) {
        if let Some(link) = self.links.get(wire) {
            link.set_link(up);
        }
    }

    /// Polls each part that has something to do once; true if anything moved.
    pub fn step(&mut self, moved: bool) -> bool {
        let now = (self.clock)(moved);
        let mut any = false;
        for switch_node in &mut self.switches {
            match switch_node.step(now, &mut self.bufs) {
                Ok(moved) => any |= moved,
                Err(_) => self.failed += 1,
            }
        }
        for endpoint in &mut self.endpoints {
            match endpoint.step(now) {
                Ok(moved) => any |= moved,
                Err(_) => self.failed += 1,
            }
        }
        self.ring();
        any
    }

    /// Steps until `done` returns true or `span` has passed; returns whether it is done.
    pub fn until(&mut self, span: Span, mut done: impl FnMut(&mut Self) -> bool) -> bool {
        let start = (self.clock)(true);
        let mut moved = true;
        while !done(self) {
            moved = self.step(moved);
            // The clock may advance by itself, so `done` gets a last chance after the time is over.
            if (self.clock)(true).since(start) > span {
                return done(self);
            }
        }
        true
    }

    /// The descriptor that is readable while notifications wait for the manager.
    #[must_use]
    pub fn bell(&self) -> Arc<EventFd> {
        self.bell.clone()
    }

    /// Takes a switch's next notification for its manager, and silences the bell.
    pub fn take_notice(&mut self, switch: usize) -> Option<Vec<u8>> {
        // Drained before the notices are read: one that arrives later rings again.
        if core::mem::take(&mut self.rung) {
            self.bell.drain();
        }
        self.switches.get_mut(switch)?.next_notice()
    }

    /// Wakes the manager for notifications that it has not been woken for.
    fn ring(&mut self) {
        if !self.rung && self.switches.iter().any(RunningSwitch::has_notices) {
            self.rung = true;
            self.bell.notify();
        }
    }

    /// Sends a CCI request to a switch and waits for the answer.
    ///
    /// # Errors
    /// No answer came in time.
    pub fn call(
        &mut self,
        switch: usize,
        session: Session,
        message: &[u8],
        span: Span,
    ) -> Result<Vec<u8>, TransportError> {
        let now = (self.clock)(true);
        let gone = || TransportError::Gone("there is no such switch".to_owned());
        let switch_node = self.switches.get_mut(switch).ok_or_else(gone)?;
        switch_node.idle.wake();
        // Answers to a request that was given up would be taken for this one's.
        switch_node.answers.retain(|(whose, _)| *whose != session);
        switch_node.agent.cci(now, session, message);
        let tag = |message: &[u8]| Header::cut(message).map(|(header, ..)| header.tag).ok();
        let mut answer = None;
        // The tag tells this answer from one to an earlier request of the session.
        self.until(span, |parts| {
            let switch_node = parts.switches.get_mut(switch);
            let mut came =
                switch_node.into_iter().flat_map(|switch_node| switch_node.answers.drain(..));
            answer = came.find(|(whose, it)| *whose == session && tag(it) == tag(message));
            answer.is_some()
        });
        let answer = answer.map(|(_, answer)| answer);
        answer.ok_or(TransportError::Timeout(u128::from(span.as_ns() / 1_000_000)))
    }

    /// Sends a command to an endpoint and waits for the answer.
    ///
    /// # Errors
    /// The endpoint refuses, does not exist, or does not answer in time.
    pub fn ask(&mut self, part: Part, command: &Command) -> Result<Answer, Refused> {
        let now = (self.clock)(true);
        let gone = || Refused::unavailable("there is no such endpoint");
        let runner = self.runner(part).ok_or_else(gone)?;
        let number = runner.begin(now, command);
        let mut answer = None;
        // One second more than the command's own limit, whose error says more.
        let span = Span::from_ms(command.timeout_ms().saturating_add(1_000));
        self.until(span, |parts| {
            answer = parts.runner(part).and_then(|runner| runner.answer(number));
            answer.is_some()
        });
        answer.unwrap_or_else(|| Err(Refused::unavailable("it does not answer")))
    }
}

/// Makes a virtual clock: 0.1 us for a step in which something moved, 0.1 ms otherwise.
#[must_use]
pub fn virtual_clock() -> Box<dyn FnMut(bool) -> Instant + Send> {
    let mut now = Instant::ZERO;
    Box::new(move |moved| {
        now += if moved { Span::from_ns(100) } else { Span::from_us(100) };
        now
    })
}
