//! Links and switches that go under load, one after the other: which flows notice, for how long, and what becomes of each request.
//!
//! A ring, a mesh, a torus, a fat tree and an irregular fabric in virtual time, with flows by UIO and by CXL.mem → a link,
//! or all links of a switch, are pulled and put back → a row of a table. No flow that has its way elsewhere loses a request.
//! Of those that cross what is pulled, only what was on a wire that broke or inside of the switch may be without an answer.
//!
//! Units: frames, requests, flows; virtual time.
//! Source: docs/spec/cxl-fabric.md "Dynamic change"; CXL 3.1 section 7.7.12.6.

use std::collections::BTreeSet;
use std::fmt::Write;

use weft_dataplane::pipeline::Ledger;
use weft_dataplane::time::Span;
use weft_lab::endpoint::command::{Access, Command, LoadReport, Via};
use weft_lab::fabric::layout::{End, Part};
use weft_lab::fabric::managed::ManagedFabric;
use weft_tests::fabric_here::{books, pass, range, up_text};

use super::load;

/// Milliseconds until the manager looks: before, routes lead nowhere.
const UNTIL_LOOK_MS: u64 = 2;

/// A fabric with two hosts and a G-FAM device at each switch of `edges`: both hosts use the device of the next edge, one
/// of them by UIO, the other by CXL.mem.
struct Shape {
    name: &'static str,
    switches: usize,
    edges: &'static [usize],
    links: Vec<[usize; 2]>,
}

fn ring() -> Shape {
    let links = (0..6).map(|at| [at, (at + 1) % 6]).collect();
    Shape { name: "ring", switches: 6, edges: &[0, 2, 3], links }
}

fn cells() -> impl Iterator<Item = (usize, usize)> {
    (0..9).map(|at| (at / 3, at % 3))
}

fn mesh() -> Shape {
    let right = cells().filter(|(_, x)| *x < 2).map(|(y, x)| [3 * y + x, 3 * y + x + 1]);
    let below = cells().filter(|(y, _)| *y < 2).map(|(y, x)| [3 * y + x, 3 * y + x + 3]);
    Shape { name: "mesh", switches: 9, edges: &[0, 2, 6, 8], links: right.chain(below).collect() }
}

fn torus() -> Shape {
    let links = cells()
        .flat_map(|(y, x)| [[3 * y + x, 3 * y + (x + 1) % 3], [3 * y + x, (3 * y + x + 3) % 9]]);
    Shape { name: "torus", switches: 9, edges: &[0, 4, 8], links: links.collect() }
}

fn fat_tree() -> Shape {
    let links = (0..4).flat_map(|leaf| [[leaf, 4], [leaf, 5]]).collect();
    Shape { name: "fat tree", switches: 6, edges: &[0, 1, 2, 3], links }
}

fn irregular() -> Shape {
    // One pair has two links, and no two ways are alike.
    let links =
        vec![[0, 1], [0, 2], [1, 2], [1, 3], [2, 4], [2, 4], [3, 4], [3, 5], [4, 6], [5, 6]];
    Shape { name: "irregular", switches: 7, edges: &[0, 3, 6], links }
}

/// The topology file.
fn topology(shape: &Shape) -> String {
    let mut text = String::from("switch = [");
    let mut add = |part: std::fmt::Arguments<'_>| text.write_fmt(part).unwrap();
    for at in 0..shape.switches {
        add(format_args!("{{ name = \"sw{at}\" }},"));
    }
    add(format_args!("]\nlink = ["));
    for [one, other] in &shape.links {
        add(format_args!("{{ ends = [\"sw{one}\", \"sw{other}\"] }},"));
    }
    add(format_args!("]\nhost = ["));
    for (n, at) in shape.edges.iter().enumerate() {
        for host in [2 * n, 2 * n + 1] {
            add(format_args!("{{ name = \"h{host}\", at = \"sw{at}\" }},"));
        }
    }
    add(format_args!("]\ngfd = ["));
    for (n, at) in shape.edges.iter().enumerate() {
        add(format_args!("{{ name = \"g{n}\", at = \"sw{at}\", capacity_mib = 256 }},"));
    }
    add(format_args!("]\n"));
    for n in 0..shape.edges.len() {
        let (hosts, far) = ([2 * n, 2 * n + 1], (n + 1) % shape.edges.len());
        add(format_args!(
            "[[memory]]\nname = \"m{n}\"\nhosts = [\"h{}\", \"h{}\"]\ngfds = [\"g{far}\"]\n\
             len = 0x10000000\nhpa = 0x10000000000\n",
            hosts[0], hosts[1],
        ));
    }
    text
}

/// A wire between two switches: its number, and each end's switch and port.
type Wire = (usize, [(usize, usize); 2]);

fn is_at(wire: &Wire, switch: usize) -> bool {
    let (_, ends) = wire;
    ends.iter().any(|(at, _)| *at == switch)
}

/// What the loads of some hosts have come to, by host.
type Loads = Vec<(usize, LoadReport)>;

/// A fabric under test.
struct Rig {
    shape: Shape,
    fabric: ManagedFabric,
    wires: Vec<Wire>,
    pulls: usize,
}

/// One row of the table.
#[derive(Default)]
struct Row {
    name: String,
    /// Flows that cross what is pulled, their longest outage, and requests that they have lost.
    crossing: usize,
    outage_ns: u64,
    lost: u64,
    /// The same of those that have lost one: it has to time out first.
    timeout_ns: u64,
    /// Frames that were on a wire that broke, or inside of the switch.
    frames: u64,
    /// The other flows.
    others: usize,
    others_gap_ns: u64,
    others_lost: u64,
    /// Requests that any flow lost as all was put back.
    back_lost: u64,
}

impl Rig {
    fn new(shape: Shape) -> Self {
        let fabric = up_text(shape.name, &topology(&shape));
        let parts = fabric.parts();
        let end = |end: End| match end.part {
            Part::Switch(at) => Some((at, usize::from(end.port))),
            _ => None,
        };
        let all = parts.layout().wires.iter().enumerate();
        let between =
            |(wire, [one, other]): (usize, &[End; 2])| Some((wire, [end(*one)?, end(*other)?]));
        let wires = all.filter_map(between).collect();
        drop(parts);
        Self { shape, fabric, wires, pulls: 0 }
    }

    /// Flows that do not begin or end at `switch`: those have no other way.
    fn flows(&self, switch: Option<usize>) -> Vec<usize> {
        let edges = self.shape.edges;
        let is_through = |flow: &usize| {
            let ends = [edges[flow / 2], edges[(flow / 2 + 1) % edges.len()]];
            switch.is_none_or(|switch| !ends.contains(&switch))
        };
        (0..2 * edges.len()).filter(is_through).collect()
    }

    fn start(&self, flow: usize, rounds: u64, pause_ms: u64) {
        let via = if flow.is_multiple_of(2) { Via::Uio } else { Via::CxlMem };
        let addr = 0x100_0000_0000 + (flow as u64 % 2) * 0x10_0000;
        let access = Access { via, ..range(addr, 1 << 13, flow as u64) };
        let start = Command::LoadStart { access, rounds, pause_ms };
        self.fabric.ask(Part::Host(flow), &start).unwrap();
    }

    /// Ends loads as soon as no request is under way.
    fn stop(&self, flows: &[usize]) -> Loads {
        for flow in flows {
            self.fabric.ask(Part::Host(*flow), &Command::LoadStop {}).unwrap();
        }
        self.wait(flows)
    }

    /// Waits until loads are over; what they have come to.
    fn wait(&self, flows: &[usize]) -> Loads {
        let ended = self.fabric.parts().until(Span::from_ms(20_000), |parts| {
            flows.iter().all(|flow| {
                let status = parts.runner(Part::Host(*flow)).unwrap().status();
                status.detail["load"]["running"] == false
            })
        });
        assert!(ended, "{}: a load does not end", self.shape.name);
        let loads: Loads = flows.iter().map(|flow| (*flow, load(&self.fabric, *flow))).collect();
        for (flow, load) in &loads {
            let name = format!("{}: flow {flow}: {load:?}", self.shape.name);
            assert_eq!((load.running, load.under_way, load.unanswered), (false, 0, 0), "{name}");
            assert_eq!((load.wrong, load.mismatched), (0, 0), "{name}");
        }
        loads
    }

    fn ledgers(&self) -> Vec<Ledger> {
        let parts = self.fabric.parts();
        (0..self.shape.switches).map(|at| parts.ledger(at).unwrap()).collect()
    }

    /// Wires that a flow takes, any of them: found by its frames alone.
    fn wires_of(&self, flow: usize) -> BTreeSet<usize> {
        let before = self.ledgers();
        self.start(flow, 12, 0);
        self.wait(&[flow]);
        let now = self.ledgers();
        let is_used = |(_, ends): &&Wire| {
            let sent = |(at, port): (usize, usize)| {
                now[at].port[port].tx_frames > before[at].port[port].tx_frames
            };
            ends.iter().any(|end| sent(*end))
        };
        self.wires.iter().filter(is_used).map(|(wire, _)| *wire).collect()
    }

    fn set(&self, wires: &[Wire], up: bool) {
        for (wire, _) in wires {
            self.fabric.parts().set_wire(*wire, up);
        }
    }

    /// Waits until each of these flows goes, and requests of one are under way; then some steps more, each time other ones.
    fn until_under_way(&mut self, flows: &[usize]) {
        let mut parts = self.fabric.parts();
        let is_there = parts.until(Span::from_ms(100), |parts| {
            let loads = flows.iter().map(|flow| {
                let status = parts.runner(Part::Host(*flow)).unwrap().status();
                let count = |key: &str| status.detail["load"][key].as_u64().unwrap();
                (count("done"), count("under_way"))
            });
            let loads = loads.collect::<Vec<_>>();
            loads.iter().all(|(done, _)| *done > 2) && loads.iter().any(|(_, open)| *open > 0)
        });
        assert!(is_there, "{}", self.shape.name);
        self.pulls += 1;
        for _ in 0..self.pulls % 8 {
            parts.step(true);
        }
    }

    /// Pulls wires under load and puts them back: those of `switch`, if that goes.
    fn pull(&mut self, name: String, wires: &[Wire], switch: Option<usize>) -> Row {
        let flows = self.flows(switch);
        let crosses = |flow: &usize| {
            let used = self.wires_of(*flow);
            wires.iter().any(|(wire, _)| used.contains(wire))
        };
        let crossing: Vec<usize> = flows.iter().copied().filter(crosses).collect();
        let before = self.ledgers(); // nothing is on a wire
        for flow in &flows {
            self.start(*flow, 0, 1);
        }
        let crossing_or_any = if crossing.is_empty() { &flows } else { &crossing };
        self.until_under_way(crossing_or_any);
        self.set(wires, false);
        pass(&self.fabric, UNTIL_LOOK_MS);
        self.fabric.fm().watch();
        pass(&self.fabric, 1);
        let loads = self.stop(&flows);
        pass(&self.fabric, 1_000); // nothing is held any more
        let now = self.ledgers();
        let drops = |at: usize| now[at].dropped - before[at].dropped;
        let mut row = Row { name, frames: on_wires(wires, [&before, &now]), ..Row::default() };
        row.frames += switch.map_or(0, drops);
        for (flow, load) in &loads {
            assert!(load.done > 0, "{} {}: {load:?}", self.shape.name, row.name);
            let lost = load.failures.values().sum::<u64>();
            let name = format!("{} {}: flow {flow}: {load:?}", self.shape.name, row.name);
            assert!(load.failures.keys().all(|how| how == "timeout"), "{name}");
            if crossing.contains(flow) {
                (row.crossing, row.lost) = (row.crossing + 1, row.lost + lost);
                if lost == 0 {
                    row.outage_ns = row.outage_ns.max(load.longest_gap_ns);
                } else {
                    row.timeout_ns = row.timeout_ns.max(load.longest_gap_ns);
                }
            } else {
                (row.others, row.others_lost) = (row.others + 1, row.others_lost + lost);
                row.others_gap_ns = row.others_gap_ns.max(load.longest_gap_ns);
            }
        }
        // Beside a switch that is gone, messages to it have no way.
        let dropped = (0..self.shape.switches).map(drops).collect::<Vec<_>>();
        assert!(switch.is_some() || dropped.iter().all(|n| *n == 0), "{}: {dropped:?}", row.name);
        row.back_lost = self.put_back(wires, &flows);
        row
    }

    /// Puts wires back, under load; returns how many requests were lost meanwhile.
    fn put_back(&mut self, wires: &[Wire], flows: &[usize]) -> u64 {
        for flow in flows {
            self.start(*flow, 0, 1);
        }
        pass(&self.fabric, 5);
        self.set(wires, true);
        for _ in 0..3 {
            pass(&self.fabric, 120);
            self.fabric.fm().watch();
        }
        let loads = self.stop(flows);
        books(&self.fabric);
        loads.iter().map(|(_, load)| load.failures.values().sum::<u64>()).sum()
    }
}

/// Frames that were sent at one end of these wires since `before`, and did not come in at the other.
fn on_wires(wires: &[Wire], [before, now]: [&[Ledger]; 2]) -> u64 {
    let sent =
        |(at, port): (usize, usize)| now[at].port[port].tx_frames - before[at].port[port].tx_frames;
    let came =
        |(at, port): (usize, usize)| now[at].port[port].rx_frames - before[at].port[port].rx_frames;
    let ways = wires.iter().flat_map(|(_, [one, other])| [(*one, *other), (*other, *one)]);
    ways.map(|(from, to)| sent(from).saturating_sub(came(to))).sum()
}

const HEAD: &str = "\
| fabric | pulled | flows across | outage, ms | requests lost | of those flows: outage, ms | frames on it | others | \
gap, ms | requests lost | lost as it came back |
|---|---|---|---|---|---|---|---|---|---|---|";

/// Pulls one of so many links, and one of so many switches; all of them with 1.
fn pull_each(shape: Shape, step: usize) {
    let mut rig = Rig::new(shape);
    let mut rows = Vec::new();
    for one in rig.wires.clone().chunks(1).step_by(step) {
        let [(a, _), (b, _)] = one[0].1;
        rows.push(rig.pull(format!("link {a}-{b}"), one, None));
    }
    for switch in (0..rig.shape.switches).step_by(step) {
        let all: Vec<_> = rig.wires.iter().filter(|wire| is_at(wire, switch)).copied().collect();
        rows.push(rig.pull(format!("switch {switch}"), &all, Some(switch)));
    }
    let ms = |ns: u64| format!("{}.{:03}", ns / 1_000_000, ns / 1_000 % 1_000);
    for row in &rows {
        println!(
            "| {} | {} | {} | {} | {} | {} | {} | {} | {} | {} | {} |",
            rig.shape.name,
            row.name,
            row.crossing,
            ms(row.outage_ns),
            row.lost,
            ms(row.timeout_ns),
            row.frames,
            row.others,
            ms(row.others_gap_ns),
            row.others_lost,
            row.back_lost,
        );
    }
    assert!(rows.iter().any(|row| row.crossing > 0) && rows.iter().any(|row| row.others > 0));
    for row in &rows {
        let name = format!("{} {}", rig.shape.name, row.name);
        assert_eq!(
            (row.others_lost, row.back_lost),
            (0, 0),
            "{name}: who has another way, or all back"
        );
        assert!(row.lost <= row.frames, "{name}: {} of {} frames", row.lost, row.frames);
    }
}

/// One of eight links and switches of each fabric; [`soak_all_links_and_switches_pulled`] has them all.
#[test]
fn flows_elsewhere_lose_nothing_and_the_others_what_was_on_the_wire() {
    for shape in [ring(), mesh(), torus(), fat_tree(), irregular()] {
        pull_each(shape, 8);
    }
}

/// All links and switches, as a table: `cargo test -p weft-tests --test fabric soak_all_links -- --ignored --nocapture`.
#[test]
#[ignore = "soak: run by `make soak`"]
fn soak_all_links_and_switches_pulled() {
    println!("{HEAD}");
    std::thread::scope(|scope| {
        for shape in [ring(), mesh(), torus(), fat_tree(), irregular()] {
            scope.spawn(|| pull_each(shape, 1));
        }
    });
}
