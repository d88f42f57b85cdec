//! A PBR switch of a fabric in one process: its pipeline in one lane, and its agent at the CPU port.
//!
//! [`RunningSwitch::new`] makes it from a layout; [`RunningSwitch::step`] polls both.
//!
//! Source: docs/spec/cxl-fabric.md "Port roles".

use std::collections::{BTreeMap, VecDeque};
use std::sync::Arc;

use weft_cxl::cci::Session;
use weft_cxl::pci::Link;
use weft_dataplane::config::{LiveSizes, PortRole as Role, SwitchConfig, TlpConfig, TlpLink};
use weft_dataplane::pbr::Tables;
use weft_dataplane::pipeline::{Built, Core, Lane, Ledger, build};
use weft_dataplane::pool::{Bufs, Pool};
use weft_dataplane::port::pipe::{Inbox, Pipe};
use weft_dataplane::port::{Port, PortError};
use weft_dataplane::time::{Instant, Span};
use weft_dataplane::trace::NoTrace;
use weft_dataplane::types::PortId;
use weft_hosts::classes::PriMap;
use weft_parsers::MacAddr;
use weft_parsers::tlp::Mode;
use weft_pbr_switch::{
    self as pbr_switch, Agent, AgentConfig, ConfigError, PortConfig, StaticInit, VcsConfig,
};

use super::idle::IdleState;
use super::wires::{Wires, joined};
use super::{CELLS, FRAME_LEN_MAX, InProcessError, PAYLOAD_MAX, RATE};
use crate::fabric::layout::{self, Layout, Part, PortRole, uuid};

/// Headroom of each lossless group in chunks.
const HEADROOM_CELLS: u32 = 4;
/// Duration of a bind or unbind.
const BIND_TIME: Span = Span::from_us(100);
/// Notifications that may wait for the manager; newer ones are lost.
const NOTICES_MAX: usize = 64;
/// Time between two counts of port traffic.
const COUNT: Span = Span::from_ms(100);
/// GFD commands that one GAE forwards at the same time.
const THREADS: u16 = 4;

/// A PBR switch that runs in this process.
pub(super) struct RunningSwitch {
    lane: Lane,
    pub core: Arc<Core>,
    ports: Vec<Box<dyn Port>>,
    /// Link states that the agent has been told, by port.
    up: Vec<bool>,
    pub agent: Agent,
    agent_port: Pipe,
    /// Answers to CCI requests that were not taken yet.
    pub answers: Vec<(Session, Vec<u8>)>,
    /// Notifications for the manager that were not taken yet.
    notices: VecDeque<Vec<u8>>,
    pub idle: IdleState,
    /// Time of the last count of port traffic.
    counted: Option<Instant>,
    /// Whether its power is off.
    pub off: bool,
}

impl RunningSwitch {
    /// Makes switch `at` of `layout` with the static set-up `fixed` and its ends of `wires`; `None` if there is no such
    /// switch.
    pub fn new(
        layout: &Layout,
        at: usize,
        fixed: Option<&StaticInit>,
        wires: &mut Wires,
        pool: &Arc<Pool>,
        bufs: &mut Bufs,
    ) -> Result<Option<Self>, InProcessError> {
        let Some(switch) = layout.switches.get(at) else { return Ok(None) };
        let name = || switch.name.clone();
        let own = switch.ports.iter().map(|port| port.name.clone());
        // The CPU port is the last one: ports keep the numbers of the layout.
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
        let roles = switch.ports.iter().map(|port| {
            let link = TlpLink { payload_max: PAYLOAD_MAX, mode: mode(layout, port) };
            match port.role {
                PortRole::Usp => Role::Usp(link),
                PortRole::Dsp => Role::Dsp(link),
                PortRole::Fabric => Role::Fport(link),
            }
        });
        let macs = (0..=u8::MAX).zip(roles.chain([Role::Cpu]));
        for (port, (number, role)) in config.ports.iter_mut().zip(macs) {
            port.role = role;
            let [.., low] = at.to_be_bytes();
            // A locally administered address: "WF", the switch's number and the port's.
            port.parse.port_mac = MacAddr([2, 0x57, 0x46, 0, low, number]);
        }
        // One lane has all ports: the fabric has a single thread.
        let spread = vec![(0..config.ports.len()).filter_map(PortId::new).collect::<Vec<_>>()];
        let built = build(config, pool, &spread);
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
        let (answers, notices) = (Vec::new(), VecDeque::new());
        let (idle, off) = (IdleState::new(inboxes), false);
        let parts = Self {
            lane,
            core,
            ports,
            up,
            agent,
            agent_port,
            answers,
            notices,
            idle,
            counted: None,
            off,
        };
        Ok(Some(parts))
    }

    /// Takes the power: its state is lost, and `made` is the agent that starts with the power.
    pub fn power_off(&mut self, made: Agent) {
        // The lane stays with the frames that it holds; tables are all in the core.
        self.core.tables.store(Arc::new(made.switch().tables().clone()));
        (self.agent, self.off) = (made, true);
        self.up.fill(false);
        self.answers.clear();
        self.notices.clear();
    }

    /// Takes the next notification for the manager.
    pub fn next_notice(&mut self) -> Option<Vec<u8>> {
        self.notices.pop_front()
    }

    /// Whether a notification waits for the manager.
    pub fn has_notices(&self) -> bool {
        !self.notices.is_empty()
    }

    /// Polls it once if there is anything to do; true if anything moved.
    pub fn step(&mut self, now: Instant, bufs: &mut Bufs) -> Result<bool, PortError> {
        if self.off || self.idle.is_idle(now) {
            return Ok(false);
        }
        self.idle.wake();
        let step = self.lane.step(now, &mut self.ports, &mut NoTrace);
        for (at, up) in self.up.iter_mut().enumerate() {
            let is_up = self.ports.get(at).is_some_and(Port::link_up);
            if core::mem::replace(up, is_up) != is_up
                && let Some(id) = PortId::new(at)
            {
                self.agent.set_link(now, id, is_up.then(Link::default));
            }
        }
        // Get Port Traffic promises counts of all ports of one time, at least 100 ms apart.
        if self.counted.is_none_or(|counted| now.since(counted) >= COUNT) {
            self.counted = Some(now);
            for (at, port) in Ledger::read(&self.core).port.iter().enumerate() {
                if let Some(id) = PortId::new(at) {
                    self.agent.count_traffic(now, id, port.rx_bytes, port.tx_bytes);
                }
            }
        }
        // `Agent::poll` publishes between receiving and sending, so no answer comes before its effect.
        let core = &self.core;
        let mut publish = |tables: Tables| core.tables.store(Arc::new(tables));
        let progress = self.agent.poll(now, &mut self.agent_port, bufs, &mut publish)?;
        while let Some(answer) = self.agent.next_answer() {
            self.answers.push(answer);
        }
        while let Some(notice) = self.agent.next_notice() {
            if self.notices.len() < NOTICES_MAX {
                self.notices.push_back(notice);
            }
        }
        let moved = progress.frames > 0 || step.work > 0;
        let next = Instant::earlier(progress.next, step.next);
        self.idle.polled(now, moved || progress.blocked || step.blocked, next);
        Ok(moved)
    }
}

/// Mode of the TLPs at a switch's port.
fn mode(layout: &Layout, port: &layout::Port) -> Mode {
    if layout.is_flit(port.far.part) { Mode::Flit } else { Mode::NonFlit }
}

/// Makes the agent of a switch of `layout`, as after power-on.
pub(super) fn agent(
    layout: &Layout,
    at: usize,
    fixed: Option<&StaticInit>,
) -> Result<Agent, ConfigError> {
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
            // Virtual links that end here use the PIDs of fabric ports.
            PortRole::Fabric => (pbr_switch::Role::Fabric, 1),
        };
        modes.insert(id, mode(layout, port));
        config.ports.push(PortConfig { port: id, role, pids });
    }
    for vcs in switch.into_iter().flat_map(|switch| &switch.vcses) {
        let vppbs = u8::try_from(vcs.vppbs.len()).unwrap_or(u8::MAX);
        let usp = vcs.usp.and_then(|usp| PortId::new(usize::from(usp)));
        config.vcses.push(VcsConfig { usp, vppbs, gae: true });
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
