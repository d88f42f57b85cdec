//! The fabric manager against real components: switches as they answer CCI, joined by links that carry their tunnels.
//!
//! Shape: a graph → a `component::Switch` each → discovery, PIDs and routes by `weft::fm` over the entry switch alone →
//! what the switches' own tables do with every PID.
//! Units: hops.
//! Source: fabric.md "FM module"; seed 000 section 7.7.12; wire-formats.md 4.5 (Fabric Crawl Out).

#![expect(clippy::unwrap_used, clippy::indexing_slicing, reason = "a test fails that way")]

use std::collections::{BTreeMap, BTreeSet};
use std::sync::{Arc, Mutex};

use weft::fm::bind::{Bindings, Bridge, LinkEnd, Local, Remote};
use weft::fm::cci::{Fabric, InProcess, Pace, TransportError};
use weft::fm::discover::{Discovered, Finding, Options, discover};
use weft::fm::graph::{Graph, PortRef, PortUse, SwitchId, generate};
use weft::fm::inventory::{Inventory, Manager, OWN_PORT, TargetKind};
use weft::fm::plan::{self, send::send, wires::read_all};
use weft_dataplane::pbr::{Binding, Dispatch};
use weft_dataplane::rng::Rng;
use weft_dataplane::time::{Instant, Span};
use weft_dataplane::types::PortId;
use weft_endpoints::cci::{Component, Served, Session, serve};
use weft_endpoints::component::config::{PortConfig, Role, SwitchConfig, VcsConfig};
use weft_endpoints::component::port::Partner;
use weft_endpoints::component::switch::{Far, Switch};
use weft_endpoints::pci::express::Link;
use weft_parsers::cci::pbr::{LinkPartner, PathCost, PidAndKind};
use weft_parsers::cci::vcs::UnbindOption;
use weft_parsers::cci::{ReturnCode, Uuid};
use weft_parsers::fabric::Pid;

const FM: Uuid = [0xF1; 16];
/// Port of a switch's device.
const DEVICE: u8 = 40;
const COST: PathCost =
    PathCost { latency_base: 1_000, latency: 250, bandwidth_base: 1_000, bandwidth: 64 };

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
        Self::with(graph, &[], &[])
    }

    /// As [`World::of`], with a device at port [`DEVICE`] of each of `devices`, and for each of `below` a virtual
    /// switch that a host elsewhere can be bound to.
    fn with(graph: &Graph, devices: &[usize], below: &[usize]) -> Self {
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
        self.now += Span::from_us(100); // bindings take time
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

/// Each switch once, each link of two switches once, by their numbers in `graph`; both ends of a link of a switch to
/// itself are told to be against the rules.
fn check(name: &str, graph: &Graph, found: &Discovered) {
    let forbidden = |finding: &Finding| matches!(finding, Finding::Forbidden { .. });
    assert!(found.findings.iter().all(forbidden), "{name}: {:?}", found.findings);
    let itself = graph.links().filter(|(_, link)| link.ends[0].switch == link.ends[1].switch);
    assert_eq!(found.findings.len(), 2 * itself.count(), "{name}: {:?}", found.findings);
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
        .filter(|(_, link)| link.ends[0].switch != link.ends[1].switch)
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

/// Gives PIDs and routes to what was found; the inventory with its PIDs, and how many commands that took.
fn route(name: &str, world: &Arc<Mutex<World>>, inventory: &Inventory) -> (Inventory, u64) {
    let options = plan::Options::default();
    let (numbered, assignments) = plan::number(inventory, &options).unwrap();
    let plan = plan::make(&numbered, &options, None).unwrap();
    let mut through = fabric(world);
    let (mut standing, silent) = read_all(&mut through, inventory);
    assert!(silent.is_empty(), "{name}: {silent:?}");
    send(&mut through, &numbered, &assignments, &plan, &mut standing, || {}).unwrap();
    (numbered, through.calls())
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
        let (numbered, calls) = route(name, &world, &found.inventory);
        let world = world.lock().unwrap();
        all_reach_all(name, &world, &numbered);
        println!("{name}: {} commands, {} tunnels", calls, world.tunnelled);
    }
}

/// What the switches are called in the inventory: ids there go by the order of discovery.
struct Named {
    inventory: Inventory,
}

impl Named {
    fn id(&self, at: usize) -> SwitchId {
        let is = |uuid: Option<Uuid>| uuid.is_some_and(|uuid| number(&uuid) == at);
        self.inventory.by_id().find(|(_, switch)| is(switch.uuid)).unwrap().0
    }

    fn pid(&self, at: usize, kind: TargetKind) -> Pid {
        let targets = &self.inventory.switch(self.id(at)).unwrap().targets;
        targets.iter().find(|t| t.kind == kind && !t.pid.is_none()).unwrap().pid
    }

    fn bridge(&self, at: usize, vcs: u8, vppb: u8) -> Bridge {
        Bridge { switch: self.id(at), vcs, vppb }
    }

    /// vPPB `host.1` of the host at switch `host.0` to virtual switch `below.1` of switch `below.0`.
    fn link(&self, host: (usize, u8), below: (usize, u8)) -> Remote {
        Remote {
            host: LinkEnd {
                bridge: self.bridge(host.0, 0, host.1),
                pid: self.pid(host.0, TargetKind::Host),
            },
            below: LinkEnd {
                bridge: self.bridge(below.0, below.1, 0),
                pid: self.pid(below.0, TargetKind::Fabric),
            },
        }
    }

    /// vPPB 1 of virtual switch `vcs` to the switch's device.
    fn local(&self, at: usize, vcs: u8) -> Local {
        Local { bridge: self.bridge(at, vcs, 1), port: DEVICE, ld: None }
    }
}

/// The bindings of a switch's virtual switch: upstream, and those below.
type Bound = (Binding, Vec<Binding>);

/// What is bound in the tables, by switch and virtual switch.
fn bound(world: &Arc<Mutex<World>>) -> BTreeMap<(usize, u8), Bound> {
    let world = world.lock().unwrap();
    let of = |(at, id): (usize, u8)| {
        let vcs = world.switches[at].tables().vcs(id).unwrap().clone();
        let below = vcs.below().iter().map(|vppb| vppb.binding).collect();
        ((at, id), (vcs.upstream().binding, below))
    };
    [(0, 0), (1, 0), (2, 0), (3, 0), (3, 1)].map(of).into()
}

/// Four switches with a device each, hosts at the first and the last, PIDs and routes.
fn four_switches() -> (Arc<Mutex<World>>, Named) {
    let mut graph = generate::ring(4, 0).unwrap();
    for at in [0, 3] {
        generate::host(&mut graph, SwitchId(at)).unwrap();
    }
    let world = Arc::new(Mutex::new(World::with(&graph, &[0, 1, 2, 3], &[1, 2, 3])));
    let found = discovered(&world);
    assert!(found.findings.is_empty(), "{:?}", found.findings);
    let (inventory, _) = route("7-45", &world, &found.inventory);
    (world, Named { inventory })
}

/// Figure 7-45: host 0 at switch 0 sees EP0, and by virtual links switches 1 and 3, each with its device; host 1 at
/// switch 3 sees switch 2 with its own. What the switches' tables then say, and that unbinding leaves nothing.
#[test]
fn virtual_hierarchies_of_figure_7_45_are_bound_in_real_switches() {
    let (world, named) = four_switches();
    let before = bound(&world);
    let mut through = fabric(&world);
    let mut bindings = Bindings::default();
    let links = [
        named.link((0, 2), (1, 0)), // host 0: switch 1
        named.link((0, 3), (3, 1)), // host 0: the second virtual switch of switch 3
        named.link((3, 2), (2, 0)), // host 1: switch 2
    ];
    for wanted in links {
        bindings.bind_remote(&mut through, &named.inventory, wanted, COST).unwrap();
    }
    let locals = [(0, 0), (1, 0), (2, 0), (3, 1)].map(|(at, vcs)| named.local(at, vcs));
    for wanted in locals {
        bindings.bind_local(&mut through, &named.inventory, wanted).unwrap();
    }
    assert_eq!(bindings.compare(&mut through, &named.inventory).unwrap(), []);

    let device = Binding::Port(PortId::new(DEVICE.into()).unwrap());
    let [host0, host1] = [0, 3].map(|at| named.pid(at, TargetKind::Host));
    let [one, two, three] = [1, 2, 3].map(|at| named.pid(at, TargetKind::Fabric));
    let to = |spid, dpid| Binding::Fabric { spid, dpid };
    let now = bound(&world);
    assert_eq!(now[&(0, 0)].1, [device, to(host0, one), to(host0, three), Binding::Unbound]);
    assert_eq!(now[&(1, 0)], (to(one, host0), vec![device, Binding::Unbound]));
    assert_eq!(now[&(3, 1)], (to(three, host0), vec![device, Binding::Unbound]));
    assert_eq!(now[&(3, 0)].1[1], to(host1, two), "host 1 sees switch 2");
    assert_eq!(now[&(2, 0)], (to(two, host1), vec![device, Binding::Unbound]));

    for wanted in locals {
        let option = UnbindOption::Managed;
        bindings.unbind_local(&mut through, &named.inventory, wanted.bridge, option).unwrap();
    }
    for wanted in links {
        let host = wanted.host.bridge;
        bindings.unbind_remote(&mut through, &named.inventory, host, COST).unwrap();
    }
    assert_eq!(bound(&world), before, "nothing is left");
}
