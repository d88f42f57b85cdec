//! The judge that knows nothing of how routes are made or proved.
//!
//! Graph and tables -> who arrives, in how many hops; which channel waits for which; whether they wait in a circle.
//!
//! Units: hops.
//! Source: the definition: Dally and Seitz, IEEE Trans. Computers C-36(5), 1987. Names instead of numbers, sets instead
//! of masks, Tarjan's components instead of an order: slow and plain.

use std::collections::{BTreeMap, BTreeSet, VecDeque};

use weft_fm::model::graph::{Endpoint, Graph, PortRef, PortUse, SwitchId};
use weft_fm::plan::proof::Traffic;
use weft_fm::plan::tables::Tables;
use weft_parsers::fabric::{DrtEntry, Pid};

/// One direction of a cable: into the fabric, between switches, or out of it; by the port that sends or takes.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum Wire {
    Into(PortRef),
    From(PortRef),
    OutOf(PortRef),
}

/// A wire in a priority.
pub type Lane = (Wire, u8);

/// All that packets were seen to wait for.
pub struct Dependencies {
    pub waits: BTreeMap<Wire, BTreeSet<Wire>>,
    far: BTreeMap<PortRef, PortRef>,
    edge: BTreeSet<PortRef>,
}

impl Dependencies {
    pub fn new(graph: &Graph) -> Self {
        let mut far = BTreeMap::new();
        for (_, link) in graph.links() {
            let [a, b] = link.ends;
            if link.up && graph.is_up(a.switch) && graph.is_up(b.switch) {
                far.insert(a, b);
                far.insert(b, a);
            }
        }
        let up = |end: &weft_fm::model::graph::Endpoint| graph.is_up(end.at.switch);
        let edge = graph.endpoints().filter(up).map(|end| end.at).collect();
        Self { waits: BTreeMap::new(), far, edge }
    }

    /// Wires by which packets to `to` leave `at`, by any of the tables.
    fn ways(&self, tables: &[&Tables], at: SwitchId, to: Pid) -> Result<BTreeSet<Wire>, String> {
        let mut ways = BTreeSet::new();
        for tables in tables {
            for port in ports(tables, at, to)? {
                let port = PortRef::new(at, port);
                if self.far.contains_key(&port) {
                    ways.insert(Wire::From(port));
                } else if self.edge.contains(&port) {
                    ways.insert(Wire::OutOf(port));
                }
                // Else a lost link, or nobody: nothing waits for it.
            }
        }
        Ok(ways)
    }

    /// Follows packets to `to` from everybody, by any port of any of `tables`: an error when one can come back.
    fn follow(&mut self, tables: &[&Tables], to: Pid) -> Result<(), String> {
        let starts: BTreeSet<SwitchId> = self.edge.iter().map(|at| at.switch).collect();
        let mut open: VecDeque<SwitchId> = starts.iter().copied().collect();
        let mut ways = BTreeMap::new();
        while let Some(at) = open.pop_front() {
            if ways.contains_key(&at) {
                continue;
            }
            let here = self.ways(tables, at, to)?;
            open.extend(here.iter().filter_map(|wire| self.end(*wire)));
            ways.insert(at, here);
        }
        let mut entering = BTreeMap::<SwitchId, usize>::new();
        for wire in ways.values().flatten() {
            if let Some(next) = self.end(*wire) {
                *entering.entry(next).or_default() += 1;
                self.waits.entry(*wire).or_default().extend(&ways[&next]);
            }
        }
        for at in &self.edge {
            self.waits.entry(Wire::Into(*at)).or_default().extend(&ways[&at.switch]);
        }
        // Taking away what nobody enters takes all away, unless there is a loop.
        let mut free: Vec<SwitchId> =
            ways.keys().copied().filter(|at| !entering.contains_key(at)).collect();
        let mut gone = 0;
        while let Some(at) = free.pop() {
            gone += 1;
            for next in ways[&at].iter().filter_map(|wire| self.end(*wire)) {
                let left = entering.get_mut(&next).unwrap();
                *left -= 1;
                if *left == 0 {
                    free.push(next);
                }
            }
        }
        if gone == ways.len() { Ok(()) } else { Err(format!("packets to {to} can come back")) }
    }

    /// What packets wait for while `tables` stand: those that start now, and those in the wires of `flying`, wherever they
    /// were sent by tables of before. Then `flying` has all wires that they can be in.
    ///
    /// An error when a packet can come back while these tables stand.
    pub fn stand(
        &mut self,
        graph: &Graph,
        tables: &Tables,
        flying: &mut BTreeMap<Pid, BTreeSet<Wire>>,
    ) -> Result<(), String> {
        for end in graph.endpoints() {
            self.follow(&[tables], end.pid)?;
            let wires = flying.entry(end.pid).or_default();
            wires.extend(self.edge.iter().map(|at| Wire::Into(*at)));
            let mut open: Vec<Wire> = wires.iter().copied().collect();
            while let Some(wire) = open.pop() {
                let Some(at) = self.end(wire) else { continue };
                let ways = self.ways(&[tables], at, end.pid)?;
                open.extend(ways.iter().copied().filter(|way| wires.insert(*way)));
                self.waits.entry(wire).or_default().extend(ways);
            }
        }
        Ok(())
    }

    fn end(&self, wire: Wire) -> Option<SwitchId> {
        match wire {
            Wire::From(port) => Some(self.far[&port].switch),
            Wire::Into(port) => Some(port.switch),
            Wire::OutOf(_) => None,
        }
    }

    /// The waits of one priority whose packets endpoints always take.
    pub fn alone(&self) -> BTreeMap<Lane, BTreeSet<Lane>> {
        let lanes = |to: &BTreeSet<Wire>| to.iter().map(|&wire| (wire, 0)).collect();
        self.waits.iter().map(|(&from, to)| ((from, 0), lanes(to))).collect()
    }

    /// The waits of all priorities, and of requests at endpoints for a place for their answers.
    pub fn endpoints(&self, graph: &Graph, traffic: &Traffic) -> BTreeMap<Lane, BTreeSet<Lane>> {
        let mut waits: BTreeMap<Lane, BTreeSet<Lane>> = BTreeMap::new();
        for class in &traffic.classes {
            for (&from, to) in &self.waits {
                let lanes = to.iter().map(|&wire| (wire, class.pri));
                waits.entry((from, class.pri)).or_default().extend(lanes);
            }
            for end in graph.endpoints() {
                if let Some(answer) = class.answered_in {
                    let lane = (Wire::OutOf(end.at), class.pri);
                    waits.entry(lane).or_default().insert((Wire::Into(end.at), answer));
                }
            }
        }
        waits
    }
}

/// Ports of an entry.
fn ports(tables: &Tables, at: SwitchId, to: Pid) -> Result<Vec<u8>, String> {
    let Some(tables) = tables.get(at) else { return Ok(Vec::new()) };
    Ok(match tables.drt(to) {
        DrtEntry::Invalid => Vec::new(),
        DrtEntry::Port(port) => vec![port],
        DrtEntry::Group(index) => {
            let group = tables.rgt(index).ok_or_else(|| format!("{at}: no group {index}"))?;
            group.ports().to_vec()
        }
    })
}

/// A circle of waiting, if there is one: members of a component of more than one lane.
pub fn circle(waits: &BTreeMap<Lane, BTreeSet<Lane>>) -> Option<Vec<Lane>> {
    let mut search = Tarjan { waits, number: BTreeMap::new(), open: Vec::new(), found: None };
    for &lane in waits.keys() {
        if !search.number.contains_key(&lane) {
            search.visit(lane);
        }
    }
    search.found
}

/// Tarjan's search for strongly connected components, with a stack of its own.
struct Tarjan<'a> {
    waits: &'a BTreeMap<Lane, BTreeSet<Lane>>,
    /// Number, lowest number reached, whether still open.
    number: BTreeMap<Lane, (usize, usize, bool)>,
    open: Vec<Lane>,
    found: Option<Vec<Lane>>,
}

impl<'a> Tarjan<'a> {
    fn enter(&mut self, lane: Lane) -> (Lane, std::collections::btree_set::Iter<'a, Lane>) {
        static NOTHING: BTreeSet<Lane> = BTreeSet::new();
        let number = self.number.len();
        self.number.insert(lane, (number, number, true));
        self.open.push(lane);
        (lane, self.waits.get(&lane).unwrap_or(&NOTHING).iter())
    }

    fn visit(&mut self, start: Lane) {
        let mut path = vec![self.enter(start)];
        while let Some((lane, rest)) = path.last_mut() {
            let lane = *lane;
            if let Some(&next) = rest.next() {
                if next == lane {
                    self.found = Some(vec![lane]);
                }
                match self.number.get(&next) {
                    None => path.push(self.enter(next)),
                    Some(&(number, _, true)) => self.lower(lane, number),
                    Some(_) => {}
                }
                continue;
            }
            path.pop();
            let (number, low, _) = self.number[&lane];
            if let Some((parent, _)) = path.last() {
                self.lower(*parent, low);
            }
            if number == low {
                let from = self.open.iter().rposition(|&open| open == lane).unwrap();
                let members = self.open.split_off(from);
                for member in &members {
                    self.number.get_mut(member).unwrap().2 = false;
                }
                if members.len() > 1 {
                    self.found = Some(members);
                }
            }
        }
    }

    fn lower(&mut self, lane: Lane, to: usize) {
        let entry = self.number.get_mut(&lane).unwrap();
        entry.1 = entry.1.min(to);
    }
}

/// Hops from a switch to all others over links that work.
pub fn hops_from(graph: &Graph, from: SwitchId) -> Vec<Option<u32>> {
    let mut hops = vec![None; graph.switch_count()];
    if !graph.is_up(from) {
        return hops;
    }
    hops[usize::from(from.0)] = Some(0);
    let mut open = VecDeque::from([from]);
    while let Some(at) = open.pop_front() {
        for (_, what) in graph.ports(at) {
            let PortUse::Isl { link, far } = what else { continue };
            if graph.works(link) && hops[usize::from(far.switch.0)].is_none() {
                hops[usize::from(far.switch.0)] = hops[usize::from(at.0)].map(|hops| hops + 1);
                open.push_back(far.switch);
            }
        }
    }
    hops
}

/// Hops of a static message, entry by entry.
pub fn walk_static(graph: &Graph, tables: &Tables, from: SwitchId, to: Pid) -> Result<u32, String> {
    let end = graph.endpoint(to).ok_or("nobody")?.at;
    let (mut at, mut hops) = (from, 0);
    loop {
        let ports = ports(tables, at, to)?;
        let &port = ports.first().ok_or_else(|| format!("{at} has no entry for {to}"))?;
        let port = PortRef::new(at, port);
        if port == end {
            return Ok(hops);
        }
        at = graph.far(port).ok_or_else(|| format!("{port} leads nowhere"))?.switch;
        hops += 1;
        if hops > 4_096 {
            return Err(format!("a static message from {from} to {to} goes round"));
        }
    }
}

/// Switches and PIDs of `pids` that packets reach from there whichever port of a group they take. Tables without loops.
pub fn with_way(graph: &Graph, tables: &Tables, pids: &BTreeSet<Pid>) -> BTreeSet<(SwitchId, Pid)> {
    let mut all = BTreeSet::new();
    let ends = pids.iter().filter_map(|pid| graph.endpoint(*pid));
    for end in ends.filter(|end| graph.is_up(end.at.switch)) {
        let mut known = vec![None; graph.switch_count()];
        let there = graph.switches().filter(|&at| graph.is_up(at));
        let arrive = there.filter(|&at| arrives(graph, tables, at, end, &mut known));
        all.extend(arrive.map(|at| (at, end.pid)));
    }
    all
}

fn arrives(
    graph: &Graph,
    tables: &Tables,
    at: SwitchId,
    end: Endpoint,
    known: &mut [Option<bool>],
) -> bool {
    if let Some(arrives) = known[usize::from(at.0)] {
        return arrives;
    }
    let ways = ports(tables, at, end.pid).unwrap();
    let found = !ways.is_empty()
        && ways.iter().all(|&port| {
            let port = PortRef::new(at, port);
            let far = graph.far(port);
            port == end.at || far.is_some_and(|far| arrives(graph, tables, far.switch, end, known))
        });
    known[usize::from(at.0)] = Some(found);
    found
}

/// Follows all packets from every PID to every PID that links reach, by every port of every group.
///
/// Returns the most hops of any; an error when one does not arrive, or can come back, or when an entry stands for what
/// cannot be reached.
pub fn arrivals(graph: &Graph, tables: &Tables, seen: &mut Dependencies) -> Result<u32, String> {
    let sources: BTreeSet<SwitchId> =
        graph.endpoints().map(|end| end.at.switch).filter(|&s| graph.is_up(s)).collect();
    let mut most = 0;
    let mut reach = BTreeMap::new();
    for end in graph.endpoints() {
        let hops = reach.entry(end.at.switch).or_insert_with(|| hops_from(graph, end.at.switch));
        seen.follow(&[tables], end.pid)?;
        let mut longest = BTreeMap::new();
        for &from in &sources {
            if hops[usize::from(from.0)].is_none() {
                if !ports(tables, from, end.pid)?.is_empty() {
                    return Err(format!("{from} has an entry for {}, out of reach", end.pid));
                }
                continue;
            }
            most = most.max(farthest(graph, tables, from, end.pid, end.at, &mut longest)?);
            walk_static(graph, tables, from, end.pid)?;
        }
    }
    Ok(most)
}

/// Most hops from `at`; there is no loop, or [`Dependencies::follow`] would have found it.
fn farthest(
    graph: &Graph,
    tables: &Tables,
    at: SwitchId,
    to: Pid,
    end: PortRef,
    known: &mut BTreeMap<SwitchId, u32>,
) -> Result<u32, String> {
    if let Some(&hops) = known.get(&at) {
        return Ok(hops);
    }
    let ways = ports(tables, at, to)?;
    if ways.is_empty() {
        return Err(format!("packets to {to} are dropped at {at}"));
    }
    let mut most = 0;
    for port in ways {
        let port = PortRef::new(at, port);
        if port == end {
            continue;
        }
        let next = graph.far(port).ok_or_else(|| format!("{port} leads nowhere for {to}"))?;
        most = most.max(1 + farthest(graph, tables, next.switch, to, end, known)?);
    }
    known.insert(at, most);
    Ok(most)
}

/// Shortest paths without any rule, towards lower port numbers: what a careless FM would set.
pub fn shortest(graph: &Graph) -> Tables {
    let mut tables = Tables::new(graph.switch_count());
    for end in graph.endpoints() {
        let hops = hops_from(graph, end.at.switch);
        for at in graph.switches() {
            if at == end.at.switch {
                tables.get_mut(at).set_drt(end.pid, DrtEntry::Port(end.at.port));
                continue;
            }
            let nearer = |port: &u8| {
                let far = graph.far(PortRef::new(at, *port));
                far.is_some_and(|far| hops[usize::from(far.switch.0)] < hops[usize::from(at.0)])
            };
            // Alternating sides, so that both directions of the ring are in use.
            let mut ports: Vec<u8> = graph.ports(at).map(|(port, _)| port).filter(nearer).collect();
            let turn = usize::from(at.0) % ports.len();
            ports.rotate_left(turn);
            tables.get_mut(at).set_drt(end.pid, DrtEntry::Port(ports[0]));
        }
    }
    tables
}
