//! A whole fabric in one process: switches with their agents, hosts, devices and GFDs, joined by pipes.
//!
//! Shape: [`InProcessFabric::new`] of a layout; [`InProcessFabric::step`] polls each of them once; requests to a switch by
//! [`InProcessFabric::call`], commands to a runner by [`InProcessFabric::ask`], both of which step until the answer is there.
//! Units: time is the caller's: the machine's clock, or any other.
//! Source: docs/spec/cxl-fabric.md.

use std::collections::BTreeMap;
use std::sync::Arc;

use weft_cxl::cci::Session;
use weft_cxl::pci::Link;
use weft_dataplane::config::{LiveSizes, PortRole as Role, SwitchConfig, TlpConfig, TlpLink};
use weft_dataplane::pbr::Tables;
use weft_dataplane::pipeline::{BuildError, Built, Core, Lane, Ledger, Timing, build};
use weft_dataplane::pool::{Bufs, Pool, PoolError};
use weft_dataplane::port::pipe::{Inbox, LinkHandle, Pipe, PipeConfig, pipe};
use weft_dataplane::port::{Port, PortError, PortOpenError};
use weft_dataplane::time::{Instant, LinkRate, Span};
use weft_dataplane::trace::NoTrace;
use weft_dataplane::types::PortId;
use weft_fm::cci::TransportError;
use weft_hosts::classes::PriMap;
use weft_parsers::MacAddr;
use weft_parsers::cci::Header;
use weft_parsers::tlp::Mode;
use weft_pbr_switch::{
    self as pbr_switch, Agent, AgentConfig, ConfigError, PortConfig, StaticInit, VcsConfig,
};
use weft_rpc::Refused;

use super::endpoint_spec::endpoint_spec;
use super::layout::{End, Layout, Part, PortRole, uuid};
use super::topology::Topology;
use crate::endpoint::spec::SpecError;
use crate::endpoint::{Answer, Command, Endpoint, Runner, RunnerError, RunnerHandle};

/// Longest frame of all links.
const FRAME_LEN_MAX: usize = 1_518;
/// Longest payload.
const PAYLOAD_MAX: u16 = 512;
/// Rate of all links.
const RATE: LinkRate = LinkRate::gbps(100);
/// Chunks of a switch's buffer, and headroom of each of its lossless groups.
const CELLS: u32 = 4_096;
const HEADROOM_CELLS: u32 = 4;
/// Chunks beside the buffers: on pipes, and with a runner or agent.
const CHUNKS_EACH: usize = 512;
/// Frames on their way in one direction of a link.
const DEPTH: usize = 128;
/// How long a bind or unbind takes.
const BIND_TIME: Span = Span::from_us(100);
/// How long a part that has nothing to do is not looked at: as long as a runner in a process of its own may sleep.
const REST_MAX: Span = Span::from_ms(5);
/// GFD commands that a GAE forwards at a time.
const THREADS: u16 = 4;

/// Why the parts of a fabric cannot be made.
#[derive(Debug, thiserror::Error)]
pub enum InProcessError {
    /// No memory.
    #[error("make room for frames")]
    Pool(#[from] PoolError),
    /// A switch's pipeline is refused.
    #[error("switch {name}")]
    Switch {
        /// Which.
        name: String,
        /// Why.
        source: Box<BuildError>,
    },
    /// A switch's virtual switches are refused.
    #[error("switch {name}")]
    Component {
        /// Which.
        name: String,
        /// Why.
        source: Box<ConfigError>,
    },
    /// A host, device, HBR switch or GFD is refused.
    #[error("{name}")]
    Spec {
        /// Which.
        name: String,
        /// Why.
        source: Box<SpecError>,
    },
    /// A runner cannot be made.
    #[error("{name}")]
    Runner {
        /// Which.
        name: String,
        /// Why.
        source: Box<RunnerError>,
    },
    /// A pipe cannot be made.
    #[error("join the parts")]
    Pipe(#[from] Box<PortOpenError>),
}

/// What a part waits for, so that one that has nothing to do is passed over.
struct IdleState {
    inboxes: Vec<(Inbox, bool)>,
    /// Nothing moved when it was last polled, and nothing waits for room.
    still: bool,
    until: Instant,
}

impl IdleState {
    fn new(inboxes: Vec<Inbox>) -> Self {
        let inboxes = inboxes.into_iter().map(|inbox| (inbox, false)).collect();
        Self { inboxes, still: false, until: Instant::ZERO }
    }

    /// Has it polled with the next step, whatever there is.
    const fn wake(&mut self) {
        self.still = false;
    }

    /// Whether there is nothing to be done at `now`.
    fn is_idle(&self, now: Instant) -> bool {
        let same = |(inbox, up): &(Inbox, bool)| !inbox.is_waiting() && inbox.link_up() == *up;
        self.still && now < self.until && self.inboxes.iter().all(same)
    }

    /// It was polled: whether anything moved or waits for room, and when something is due.
    fn polled(&mut self, now: Instant, busy: bool, next: Option<Instant>) {
        self.still = !busy;
        let latest = now + REST_MAX;
        self.until = next.map_or(latest, |next| next.min(latest));
        for (inbox, up) in &mut self.inboxes {
            *up = inbox.link_up();
        }
    }
}

/// A PBR switch.
struct RunningSwitch {
    lane: Lane,
    core: Arc<Core>,
    ports: Vec<Box<dyn Port>>,
    /// Which links of them the agent has been told of.
    up: Vec<bool>,
    agent: Agent,
    agent_port: Pipe,
    answers: Vec<(Session, Vec<u8>)>,
    rest: IdleState,
    /// It has no power.
    off: bool,
}

/// A part that is no PBR switch.
struct RunningEndpoint {
    part: Part,
    runner: Runner,
    rest: IdleState,
    /// It has no power.
    off: bool,
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
}

/// The pipes of a layout, by their ends.
struct Wires {
    ends: BTreeMap<End, Pipe>,
    links: Vec<LinkHandle>,
}

impl Wires {
    fn new(layout: &Layout, bufs: &mut Bufs) -> Result<Self, InProcessError> {
        let (mut ends, mut links) = (BTreeMap::new(), Vec::new());
        for &[one, two] in &layout.wires {
            let names = [layout.name(two.part), layout.name(one.part)].map(ToOwned::to_owned);
            let (near, far) = joined(names, bufs).map_err(Box::new)?;
            links.push(near.link_handle());
            ends.insert(one, near);
            ends.insert(two, far);
        }
        Ok(Self { ends, links })
    }

    fn take(&mut self, part: Part, port: u8) -> Option<(Box<dyn Port>, Inbox)> {
        let end = self.ends.remove(&End { part, port })?;
        let inbox = end.inbox();
        Some((Box::new(end), inbox))
    }
}

fn joined(names: [String; 2], bufs: &mut Bufs) -> Result<(Pipe, Pipe), PortOpenError> {
    let (rate, frame_len_max) = (RATE, FRAME_LEN_MAX);
    let config = PipeConfig { names, depth: DEPTH, rate, frame_len_max, wakes_reader: false };
    let (mut near, mut far) = pipe(config)?;
    near.start(bufs)?;
    far.start(bufs)?;
    Ok((near, far))
}

impl RunningSwitch {
    fn new(
        layout: &Layout,
        at: usize,
        fixed: Option<&StaticInit>,
        wires: &mut Wires,
        (pool, bufs): (&Arc<Pool>, &mut Bufs),
    ) -> Result<Option<Self>, InProcessError> {
        let Some(switch) = layout.switches.get(at) else { return Ok(None) };
        let name = || switch.name.clone();
        let own = switch.ports.iter().map(|port| port.name.clone());
        let names: Vec<String> = own.chain(["agent".to_owned()]).collect();
        let mut config = SwitchConfig::live(&LiveSizes {
            names,
            rate: RATE,
            pris: 8,
            cells: CELLS,
            cell_bytes: 2_048,
            headroom_cells: HEADROOM_CELLS,
            frame_len_max: FRAME_LEN_MAX,
        });
        let link = TlpLink { payload_max: PAYLOAD_MAX, ..TlpLink::default() };
        let roles = switch.ports.iter().map(|port| match port.role {
            PortRole::Usp => Role::Usp(link),
            PortRole::Dsp => Role::Dsp(link),
            PortRole::Fabric => Role::Fport(link),
        });
        let macs = (0..=u8::MAX).zip(roles.chain([Role::Cpu]));
        for (port, (number, role)) in config.ports.iter_mut().zip(macs) {
            port.role = role;
            let [.., low] = at.to_be_bytes();
            port.parse.port_mac = MacAddr([2, 0x57, 0x46, 0, low, number]);
        }
        let spread = vec![(0..config.ports.len()).filter_map(PortId::new).collect::<Vec<_>>()];
        let built = build(config, pool, &spread, Timing::Live);
        let Built { core, lanes } =
            built.map_err(|e| InProcessError::Switch { name: name(), source: Box::new(e) })?;
        let numbers = (0..=u8::MAX).take(switch.ports.len());
        let (mut ports, mut inboxes): (Vec<Box<dyn Port>>, Vec<Inbox>) =
            numbers.filter_map(|number| wires.take(Part::Switch(at), number)).unzip();
        let (near, agent_port) = joined(["agent".to_owned(), name()], bufs).map_err(Box::new)?;
        inboxes.extend([near.inbox(), agent_port.inbox()]);
        ports.push(Box::new(near));
        let agent = agent(layout, at, fixed)
            .map_err(|e| InProcessError::Component { name: name(), source: Box::new(e) })?;
        let Some(lane) = lanes.into_iter().next() else { return Ok(None) };
        let up = vec![false; switch.ports.len()];
        let (answers, rest) = (Vec::new(), IdleState::new(inboxes));
        Ok(Some(Self { lane, core, ports, up, agent, agent_port, answers, rest, off: false }))
    }

    /// Polls it once, if there is anything to do; whether anything moved.
    fn step(&mut self, now: Instant, bufs: &mut Bufs) -> Result<bool, PortError> {
        if self.off || self.rest.is_idle(now) {
            return Ok(false);
        }
        self.rest.wake();
        let step = self.lane.step(now, &mut self.ports, &mut NoTrace);
        for (at, up) in self.up.iter_mut().enumerate() {
            let is_up = self.ports.get(at).is_some_and(Port::link_up);
            if core::mem::replace(up, is_up) != is_up
                && let Some(id) = PortId::new(at)
            {
                self.agent.set_link(now, id, is_up.then(Link::default));
            }
        }
        let core = &self.core;
        let mut publish = |tables: Tables| core.tables.store(Arc::new(tables));
        let progress = self.agent.poll(now, &mut self.agent_port, bufs, &mut publish)?;
        while let Some(answer) = self.agent.next_answer() {
            self.answers.push(answer);
        }
        let moved = progress.frames > 0 || step.work > 0;
        let next = Instant::earlier(progress.next, step.next);
        self.rest.polled(now, moved || progress.blocked || step.blocked, next);
        Ok(moved)
    }
}

/// What a switch does itself.
fn agent(layout: &Layout, at: usize, fixed: Option<&StaticInit>) -> Result<Agent, ConfigError> {
    let switch = layout.switches.get(at);
    let serial = switch.map_or(0, |switch| switch.serial);
    let mut config = pbr_switch::SwitchConfig::new(uuid(serial), serial);
    (config.bind_time, config.threads) = (BIND_TIME, THREADS);
    config.static_init = fixed.cloned();
    let mut modes = BTreeMap::new();
    for (number, port) in switch.into_iter().flat_map(|switch| switch.ports.iter().enumerate()) {
        let Some(id) = PortId::new(number) else { continue };
        let (role, pids) = match port.role {
            PortRole::Usp => (pbr_switch::Role::Usp, 1),
            PortRole::Dsp => (pbr_switch::Role::Dsp, 1),
            // A fabric port lends its PIDs to the virtual links that end here.
            PortRole::Fabric => (pbr_switch::Role::Fabric, 1),
        };
        modes.insert(id, Mode::Flit);
        config.ports.push(PortConfig { port: id, role, pids });
    }
    for vcs in switch.into_iter().flat_map(|switch| &switch.vcses) {
        let vppbs = u8::try_from(vcs.vppbs.len()).unwrap_or(u8::MAX);
        let usp = vcs.usp.and_then(|usp| PortId::new(usize::from(usp)));
        config.vcses.push(VcsConfig { usp, vppbs, gae: vcs.usp.is_some() });
    }
    let config = pbr_switch::Switch::new(config)?;
    Ok(Agent::new(
        config,
        AgentConfig {
            modes,
            tlp: TlpConfig::for_pris(8),
            classes: PriMap::eight(),
            payload_max: PAYLOAD_MAX.into(),
        },
    ))
}

/// A part that is no PBR switch.
fn endpoint_of(
    topology: &Topology,
    layout: &Layout,
    part: Part,
) -> Result<Option<Box<dyn Endpoint>>, SpecError> {
    let spec = endpoint_spec(topology, layout, part, &|_| String::new());
    spec.map(|spec| spec.endpoint(&[])).transpose()
}

impl InProcessFabric {
    /// All parts of a topology, as after power-on; switches have what `fixed` says of them, by number. `clock` is asked before each step, and told whether the step before
    /// moved anything.
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
                (&pool, &mut bufs),
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
                rest: IdleState::new(inboxes),
                off: false,
            });
        }
        let links = wires.links;
        let (topology, fixed) = (topology.clone(), fixed.to_vec());
        Ok(Self { topology, layout, fixed, switches, endpoints, links, bufs, clock, failed: 0 })
    }

    /// The layout that it was made of.
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

    /// The runner of a part.
    pub fn runner(&mut self, part: Part) -> Option<&mut Runner> {
        let endpoint = self.endpoints.iter_mut().find(|endpoint| endpoint.part == part)?;
        endpoint.rest.wake();
        Some(&mut endpoint.runner)
    }

    /// Handles to give each endpoint commands by from other threads, by name.
    #[must_use]
    pub fn handles(&self) -> Vec<(String, RunnerHandle)> {
        let named = |endpoint: &RunningEndpoint| {
            (self.layout.name(endpoint.part).to_owned(), endpoint.runner.handle())
        };
        self.endpoints.iter().map(named).collect()
    }

    /// The wires of a part.
    #[must_use]
    pub fn wires_of(&self, part: Part) -> Vec<usize> {
        let wires = self.layout.wires.iter().enumerate();
        let own = wires.filter(|(_, ends)| ends.iter().any(|end| end.part == part));
        own.map(|(at, _)| at).collect()
    }

    /// Takes the power from a part: its links go down, and all that it was told is gone.
    ///
    /// # Errors
    /// It cannot be made anew.
    pub fn stop(&mut self, part: Part) -> Result<(), InProcessError> {
        for wire in self.wires_of(part) {
            self.set_wire(wire, false);
        }
        let name = self.layout.name(part).to_owned();
        if let Part::Switch(at) = part {
            let made = agent(&self.layout, at, self.fixed.get(at));
            let made = made.map_err(|e| InProcessError::Component { name, source: Box::new(e) })?;
            if let Some(switch_node) = self.switches.get_mut(at) {
                // The lane stays, for the frames that it holds; nothing of it is a table.
                switch_node.core.tables.store(Arc::new(made.switch().tables().clone()));
                (switch_node.agent, switch_node.off) = (made, true);
                switch_node.up.fill(false);
                switch_node.answers.clear();
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

    /// Gives a part its power back, and joins its wires.
    pub fn run(&mut self, part: Part) {
        match part {
            Part::Switch(at) => {
                if let Some(switch_node) = self.switches.get_mut(at) {
                    switch_node.off = false;
                    switch_node.rest.wake();
                }
            }
            _ => {
                if let Some(endpoint) =
                    self.endpoints.iter_mut().find(|endpoint| endpoint.part == part)
                {
                    endpoint.off = false;
                    endpoint.rest.wake();
                }
            }
        }
        for wire in self.wires_of(part) {
            self.set_wire(wire, true);
        }
    }

    /// Joins or parts a wire.
    pub fn set_wire(&mut self, wire: usize, up: bool) {
        if let Some(link) = self.links.get(wire) {
            link.set_link(up);
        }
    }

    /// Polls each part that has something to do once; whether anything moved.
    pub fn step(&mut self, moved: bool) -> bool {
        let now = (self.clock)(moved);
        let mut any = false;
        for switch_node in &mut self.switches {
            match switch_node.step(now, &mut self.bufs) {
                Ok(moved) => any |= moved,
                Err(_) => self.failed += 1,
            }
        }
        for RunningEndpoint { runner, rest, off, .. } in &mut self.endpoints {
            if *off || rest.is_idle(now) && !runner.is_called() {
                continue;
            }
            rest.wake();
            match runner.step(now) {
                Ok(progress) => {
                    any |= progress.frames > 0;
                    let busy = progress.frames > 0 || progress.blocked;
                    rest.polled(now, busy, progress.next);
                }
                Err(_) => self.failed += 1,
            }
        }
        any
    }

    /// Steps until `done` says so, `span` has passed, or `steps` were made; whether it is done.
    pub fn until(&mut self, span: Span, mut done: impl FnMut(&mut Self) -> bool) -> bool {
        let start = (self.clock)(true);
        let mut moved = true;
        while !done(self) {
            moved = self.step(moved);
            if (self.clock)(true).since(start) > span {
                return done(self);
            }
        }
        true
    }

    /// Sends a CCI request to a switch and waits for the answer.
    ///
    /// # Errors
    /// None came in time.
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
        switch_node.rest.wake();
        // What answers a request that was given up is nobody's.
        switch_node.answers.retain(|(whose, _)| *whose != session);
        switch_node.agent.cci(now, session, message);
        let tag = |message: &[u8]| Header::cut(message).map(|(header, ..)| header.tag).ok();
        let mut answer = None;
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

    /// Gives a runner a command and waits for the answer.
    ///
    /// # Errors
    /// It refuses, there is none, or it does not answer in time.
    pub fn ask(&mut self, part: Part, command: &Command) -> Result<Answer, Refused> {
        let now = (self.clock)(true);
        let gone = || Refused::unavailable("there is no such endpoint");
        let runner = self.runner(part).ok_or_else(gone)?;
        let number = runner.begin(now, command);
        let mut answer = None;
        let span = Span::from_ms(command.timeout_ms().saturating_add(1_000));
        self.until(span, |parts| {
            answer = parts.runner(part).and_then(|runner| runner.answer(number));
            answer.is_some()
        });
        answer.unwrap_or_else(|| Err(Refused::unavailable("it does not answer")))
    }
}

/// A clock of its own: a tenth of a microsecond a step, and a tenth of a millisecond where nothing moves.
#[must_use]
pub fn virtual_clock() -> Box<dyn FnMut(bool) -> Instant + Send> {
    let mut now = Instant::ZERO;
    Box::new(move |moved| {
        now += if moved { Span::from_ns(100) } else { Span::from_us(100) };
        now
    })
}
