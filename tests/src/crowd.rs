//! A crowd of real switches that answer CCI, without their pipelines.
//!
//! Each switch of a graph is a `weft_pbr_switch::Switch`. Links carry tunnelled messages from one
//! to the next; [`fabric`] is the way of a manager to the first switch.
//!
//! Source: docs/spec/cxl-fabric.md "The fabric manager"; CXL 3.1 section 7.7.12;
//! docs/spec/wire-formats.md §4.5 (Fabric Crawl Out).
#![expect(clippy::unwrap_used, reason = "a test fails that way")]

use std::collections::BTreeMap;
use std::sync::{Arc, Mutex};

use weft_cxl::cci::{Component, Served, Session, serve};
use weft_cxl::pci::express::Link;
use weft_dataplane::pbr::Dispatch;
use weft_dataplane::time::{Instant, Span};
use weft_dataplane::types::PortId;
use weft_fm::cci::{CciSession, InProcess, RetryPolicy, TransportError};
use weft_fm::model::graph::{Graph, PortUse};
use weft_fm::model::inventory::Manager;
use weft_parsers::cci::component::Owners;
use weft_parsers::cci::pbr::{LinkPartner, PidAndKind};
use weft_parsers::cci::{ReturnCode, Uuid};
use weft_parsers::fabric::Pid;
use weft_pbr_switch::config::{PortConfig, Role, SwitchConfig, VcsConfig};
use weft_pbr_switch::port::Partner;
use weft_pbr_switch::switch::{FarRequest, Switch};

/// UUID of the manager.
pub const FM: Uuid = [0xF1; 16];
/// Port of a switch's device, if it has one.
pub const DEVICE: u8 = 40;

/// The manager: its PID is the last one.
#[must_use]
pub fn manager() -> Manager {
    Manager { uuid: FM, pid: Pid::from_low_bits(0xFFE) }
}

/// UUID of a switch of the graph.
#[must_use]
pub fn uuid(switch: usize) -> Uuid {
    let mut uuid = [0x5A; 16];
    uuid[8..].copy_from_slice(&(switch as u64).to_be_bytes());
    uuid
}

/// The number of a switch in the graph, from its UUID.
///
/// # Panics
/// The UUID is none that [`uuid`] makes.
#[must_use]
pub fn number(uuid: &Uuid) -> usize {
    usize::try_from(u64::from_be_bytes(uuid[8..].try_into().unwrap())).unwrap()
}

/// Switches, and the links between their ports.
#[derive(Debug)]
pub struct World {
    /// Switches, by their numbers in the graph.
    pub switches: Vec<Switch>,
    far: BTreeMap<(usize, u8), (usize, u8)>,
    now: Instant,
    /// Number of messages that were tunnelled.
    pub tunnelled: usize,
    /// Owners and PID that each switch last told its partners.
    told: Vec<Option<(Owners, Pid)>>,
}

impl World {
    /// A switch for each of `graph`, with its hosts at upstream ports.
    #[must_use]
    pub fn of(graph: &Graph) -> Self {
        Self::with(graph, &[], &[])
    }

    /// As [`World::of`], with a device at port [`DEVICE`] of each of `devices`, and for each of `below` a virtual
    /// switch that a host elsewhere can be bound to.
    ///
    /// # Panics
    /// The graph has more ports than a switch.
    #[must_use]
    pub fn with(graph: &Graph, devices: &[usize], below: &[usize]) -> Self {
        Self::build(graph, devices, below, &[])
    }

    /// As [`World::of`], with wrong roles for some ports, given by switch and port.
    #[must_use]
    pub fn miswired(graph: &Graph, roles: &[((usize, u8), Role)]) -> Self {
        Self::build(graph, &[], &[], roles)
    }

    fn build(
        graph: &Graph,
        devices: &[usize],
        below: &[usize],
        wrong: &[((usize, u8), Role)],
    ) -> Self {
        let mut far = BTreeMap::new();
        let mut switches = Vec::new();
        for at in graph.switches() {
            let mut config = SwitchConfig::new(uuid(usize::from(at.0)), u64::from(at.0) + 1);
            for (port, what) in graph.ports(at) {
                let id = PortId::new(usize::from(port)).unwrap();
                let role = match what {
                    PortUse::Isl { far: other, .. } => {
                        far.insert(
                            (usize::from(at.0), port),
                            (usize::from(other.switch.0), other.port),
                        );
                        Role::Fabric
                    }
                    PortUse::Edge => {
                        config.vcses.push(VcsConfig { usp: Some(id), vppbs: 4, gae: true });
                        Role::Usp
                    }
                    _ => continue,
                };
                let is_it = |(place, _): &&((usize, u8), Role)| *place == (usize::from(at.0), port);
                let role = wrong.iter().find(is_it).map_or(role, |(_, role)| *role);
                config.ports.push(PortConfig { port: id, role, pids: 1 });
            }
            let device = PortId::new(DEVICE.into()).unwrap();
            let has_device = devices.contains(&usize::from(at.0));
            if has_device {
                config.ports.push(PortConfig { port: device, role: Role::Dsp, pids: 1 });
            }
            if below.contains(&usize::from(at.0)) {
                config.vcses.push(VcsConfig { usp: None, vppbs: 2, gae: true });
            }
            let mut switch = Switch::new(config).unwrap();
            // after `new`, which starts with all links down
            if has_device {
                switch.set_link(device, Some(Link::default()));
                switch.set_partner(device, Partner::Device { lds: 0 });
            }
            for (port, what) in graph.ports(at) {
                let id = PortId::new(usize::from(port)).unwrap();
                if !matches!(what, PortUse::Free) {
                    switch.set_link(id, Some(Link::default()));
                }
                if matches!(what, PortUse::Edge) {
                    switch.set_partner(id, Partner::Host);
                }
            }
            switches.push(switch);
        }
        let told = vec![None; switches.len()];
        let mut world = Self { switches, far, now: Instant::ZERO, tunnelled: 0, told };
        (0..world.switches.len()).for_each(|at| world.tell(at));
        world
    }

    /// A switch tells its link partners who it is, as partner information does after every change.
    fn tell(&mut self, at: usize) {
        let ownership = &self.switches[at].common().ownership;
        let (owners, pid) = (ownership.owners(), ownership.pid());
        // only a change is told: the next message would otherwise tell all neighbours again
        if self.told[at].replace((owners, pid)) == Some((owners, pid)) {
            return;
        }
        for (&(_, far_port), &(other, port)) in self.far.range((at, 0)..=(at, u8::MAX)) {
            let partner = LinkPartner {
                port,
                far_port,
                far: PidAndKind { pid, kind: PidAndKind::SWITCH },
                uuid: uuid(at),
                standard_vcs: 1,
                uio_vcs: 8,
                primary_uuid: owners.primary_uuid,
                secondary_uuid: owners.secondary_uuid,
            };
            let id = PortId::new(usize::from(port)).unwrap();
            self.switches[other].set_partner(id, Partner::Pbr(partner));
        }
    }

    /// Cuts a link at both its ends.
    ///
    /// # Panics
    /// There is no such switch.
    pub fn cut(&mut self, ends: [(usize, u8); 2]) {
        for (at, port) in ends {
            let id = PortId::new(usize::from(port)).unwrap();
            self.switches[at].set_link(id, None);
            self.switches[at].set_partner(id, Partner::Unknown);
            self.far.remove(&(at, port));
        }
    }

    /// A message of `session` to switch `at`; tunnels are followed to their ends.
    ///
    /// # Panics
    /// There is no such switch.
    pub fn message(&mut self, at: usize, session: Session, message: &[u8]) -> Option<Vec<u8>> {
        self.now += Span::from_us(100); // bindings take time
        let mut out = Vec::new();
        let served = serve(&mut self.switches[at], self.now, session, message, &mut out);
        self.tell(at);
        let ticket = match served {
            Served::Response => return Some(out),
            Served::Ignored => return None,
            Served::Pending(ticket) => ticket,
        };
        // a tunnel's answer is pending until the message inside has been answered
        let outgoing: Vec<_> = self.switches[at].outgoing().collect();
        let ours = outgoing.into_iter().find(|outgoing| outgoing.ticket == ticket)?;
        self.tunnelled += 1;
        let (to, inner) = match ours.to {
            FarRequest::Port(port, inner) => {
                (self.far.get(&(at, port.get())).map(|far| far.0), inner)
            }
            FarRequest::Pid(pid, inner) => (self.follow(at, pid), inner),
            _ => (None, Vec::new()),
        };
        let answer =
            to.and_then(|to| self.message(to, Session::InBand { port: 7, pid: ours.spid }, &inner));
        // a message that arrives nowhere is answered so by real switches, too, once they have
        // waited
        let answer = answer.as_deref().ok_or(ReturnCode::RetryRequired);
        let answer = self.switches[at].common_mut().complete(ticket, answer)?;
        Some(answer.message)
    }

    /// The switch at which a message to `pid` ends, by the tables of the switches on the way.
    ///
    /// # Panics
    /// There is no such switch.
    #[must_use]
    pub fn follow(&self, from: usize, pid: Pid) -> Option<usize> {
        let mut at = from;
        // bounded, as tables under test may route in a circle
        for _ in 0..64 {
            let routes = self.switches[at].tables().routes();
            let port = match routes.lookup(pid).ok()? {
                Dispatch::Here => return Some(at),
                Dispatch::Port(port) => port,
                Dispatch::Group(group) => {
                    let entry = routes.rgt(usize::from(group))?;
                    PortId::new(usize::from(entry.ports[0]))?
                }
            };
            match self.far.get(&(at, port.get())) {
                Some(&(next, _)) => at = next,
                None => return Some(at), // out at an edge
            }
        }
        None
    }
}

/// The way to switch 0 of a world that tests look at, too.
///
/// # Panics
/// Another user of `world` has panicked.
#[must_use]
pub fn fabric(world: &Arc<Mutex<World>>) -> CciSession {
    let world = world.clone();
    let entry = InProcess(move |request: &[u8]| {
        let answer = world.lock().unwrap().message(0, Session::Fm(1), request);
        answer.ok_or(TransportError::Timeout(0))
    });
    CciSession::new(Box::new(entry), RetryPolicy::quick())
}
