//! The fabric manager against real components: switches as they answer CCI, joined by links that carry their tunnels.
//!
//! Shape: a graph → a `component::Switch` each → discovery, PIDs and routes by `weft::fm` over the entry switch alone →
//! what the switches' own tables do with every PID.
//! Units: hops.
//! Source: fabric.md "FM module"; seed 000 section 7.7.12; wire-formats.md 4.5 (Fabric Crawl Out).

#![expect(clippy::unwrap_used, clippy::indexing_slicing, reason = "a test fails that way")]

use std::collections::{BTreeMap, BTreeSet};
use std::sync::{Arc, Mutex};

use weft::fm::cci::{Fabric, InProcess, Pace, TransportError};
use weft::fm::discover::{Discovered, Options, discover};
use weft::fm::graph::{Graph, PortRef, PortUse, SwitchId, generate};
use weft::fm::inventory::{Inventory, Manager, OWN_PORT};
use weft::fm::plan::{self, send::send, wires::read_all};
use weft_dataplane::pbr::Dispatch;
use weft_dataplane::rng::Rng;
use weft_dataplane::time::{Instant, Span};
use weft_dataplane::types::PortId;
use weft_endpoints::cci::{Component, Served, Session, serve};
use weft_endpoints::component::config::{PortConfig, Role, SwitchConfig, VcsConfig};
use weft_endpoints::component::port::Partner;
use weft_endpoints::component::switch::{Far, Switch};
use weft_endpoints::pci::express::Link;
use weft_parsers::cci::pbr::{LinkPartner, PidAndKind};
use weft_parsers::cci::{ReturnCode, Uuid};
use weft_parsers::fabric::Pid;

const FM: Uuid = [0xF1; 16];

fn manager() -> Manager {
    Manager { uuid: FM, pid: Pid::from_low_bits(0xFFE) }
}

fn uuid(switch: usize) -> Uuid {
    let mut uuid = [0x5A; 16];
    uuid[8..].copy_from_slice(&(switch as u64).to_be_bytes());
    uuid
}

fn number(uuid: &Uuid) -> usize {
    usize::try_from(u64::from_be_bytes(uuid[8..].try_into().unwrap())).unwrap()
}

/// Switches, and which of their ports are joined.
struct World {
    switches: Vec<Switch>,
    far: BTreeMap<(usize, u8), (usize, u8)>,
    now: Instant,
    /// Tunnelled messages so far.
    tunnelled: usize,
}

impl World {
    /// A switch for each of `graph`, with its hosts at upstream ports.
    fn of(graph: &Graph) -> Self {
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
                        config.vcses.push(VcsConfig { usp: Some(id), vppbs: 2, gae: true });
                        Role::Usp
                    }
                    _ => continue,
                };
                config.ports.push(PortConfig { port: id, role, pids: 1 });
            }
            let mut switch = Switch::new(config).unwrap();
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
        let mut world = Self { switches, far, now: Instant::ZERO, tunnelled: 0 };
        world.tell();
        world
    }

    /// Link partners tell each other who they are, as partner information does after every change.
    fn tell(&mut self) {
        for (&(at, port), &(other, far_port)) in &self.far {
            let owners = self.switches[other].common().ownership.owners();
            let pid = self.switches[other].common().ownership.pid();
            let partner = LinkPartner {
                port,
                far_port,
                far: PidAndKind { pid, kind: PidAndKind::SWITCH },
                uuid: uuid(other),
                standard_vcs: 1,
                uio_vcs: 8,
                primary_uuid: owners.primary_uuid,
                secondary_uuid: owners.secondary_uuid,
            };
            let id = PortId::new(usize::from(port)).unwrap();
            self.switches[at].set_partner(id, Partner::Pbr(partner));
        }
    }

    /// A message of `session` to switch `at`; tunnels are followed to their ends.
    fn message(&mut self, at: usize, session: Session, message: &[u8]) -> Option<Vec<u8>> {
        self.now += Span::from_us(10);
        let mut out = Vec::new();
        let served = serve(&mut self.switches[at], self.now, session, message, &mut out);
        self.tell();
        let ticket = match served {
            Served::Response => return Some(out),
            Served::Ignored => return None,
            Served::Pending(ticket) => ticket,
        };
        let outgoing: Vec<_> = self.switches[at].outgoing().collect();
        let ours = outgoing.into_iter().find(|outgoing| outgoing.ticket == ticket)?;
        self.tunnelled += 1;
        let (to, inner) = match ours.to {
            Far::Port(port, inner) => (self.far.get(&(at, port.get())).map(|far| far.0), inner),
            Far::Pid(pid, inner) => (self.follow(at, pid), inner),
            _ => (None, Vec::new()),
        };
        let answer = to.and_then(|to| self.message(to, Session::InBand(ours.spid), &inner));
        let answer = answer.as_deref().ok_or(ReturnCode::RetryRequired);
        let answer = self.switches[at].common_mut().complete(ticket, answer)?;
        Some(answer.message)
    }

    /// The switch that a message to `pid` ends in, by the tables of those on the way.
    fn follow(&self, from: usize, pid: Pid) -> Option<usize> {
        let mut at = from;
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

/// The way to switch 0 of a world that others look at, too.
fn fabric(world: &Arc<Mutex<World>>) -> Fabric {
    let world = world.clone();
    let entry = InProcess(move |request: &[u8]| {
        let answer = world.lock().unwrap().message(0, Session::Fm(1), request);
        answer.ok_or(TransportError::Timeout(0))
    });
    Fabric::new(Box::new(entry), Pace::quick())
}

fn discovered(world: &Arc<Mutex<World>>) -> Discovered {
    discover(&mut fabric(world), &Options::new(manager())).unwrap()
}

/// Each switch once, each link once, by their numbers in `graph`.
fn check(name: &str, graph: &Graph, found: &Discovered) {
    assert!(found.findings.is_empty(), "{name}: {:?}", found.findings);
    let inventory = &found.inventory;
    let own = |id: SwitchId| inventory.switch(id).unwrap().uuid.map_or(0, |uuid| number(&uuid));
    let numbers: BTreeSet<usize> = inventory.by_id().map(|(id, _)| own(id)).collect();
    assert_eq!(numbers, (0..graph.switch_count()).collect(), "{name}");
    let sorted = |mut ends: [(usize, u8); 2]| {
        ends.sort_unstable();
        ends
    };
    let links: BTreeSet<_> = inventory
        .links
        .iter()
        .map(|ends| sorted(ends.map(|end: PortRef| (own(end.switch), end.port))))
        .collect();
    let want: BTreeSet<_> = graph
        .links()
        .map(|(_, link)| sorted(link.ends.map(|end| (usize::from(end.switch.0), end.port))))
        .collect();
    assert_eq!(links, want, "{name}");
}

/// Every PID of an edge is reached from every switch by the tables that the switches hold themselves.
fn all_reach_all(name: &str, world: &World, inventory: &Inventory) {
    let own = |id: SwitchId| inventory.switch(id).unwrap().uuid.map_or(0, |uuid| number(&uuid));
    let edges: Vec<_> = inventory.pids().filter(|(_, at)| at.port != OWN_PORT).collect();
    assert!(!edges.is_empty(), "{name}");
    for from in 0..world.switches.len() {
        for &(pid, at) in &edges {
            assert_eq!(world.follow(from, pid), Some(own(at.switch)), "{name}: {pid} from {from}");
        }
    }
}

#[test]
fn real_switches_are_found_numbered_and_routed() {
    let mut rng = Rng::new(11);
    let fabrics = [
        ("one", generate::line(1, 2)),
        ("line", generate::line(4, 1)),
        ("ring", generate::ring(6, 2)),
        ("mesh of figure 7-43", generate::mesh(4, 2)),
        ("fat tree", generate::fat_tree(4)),
        ("random", generate::random(&mut rng, 20, 12, 2)),
    ];
    for (name, graph) in fabrics {
        let graph = graph.unwrap();
        let world = Arc::new(Mutex::new(World::of(&graph)));
        let found = discovered(&world);
        check(name, &graph, &found);
        let options = plan::Options::default();
        let (numbered, assignments) = plan::number(&found.inventory, &options).unwrap();
        let plan = plan::make(&numbered, &options, None).unwrap();
        let mut through = fabric(&world);
        let (mut standing, silent) = read_all(&mut through, &found.inventory);
        assert!(silent.is_empty(), "{name}: {silent:?}");
        send(&mut through, &numbered, &assignments, &plan, &mut standing, || {}).unwrap();
        let world = world.lock().unwrap();
        all_reach_all(name, &world, &numbered);
        println!("{name}: {} commands, {} tunnels", through.calls(), world.tunnelled);
    }
}
