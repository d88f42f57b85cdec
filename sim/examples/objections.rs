//! Runs small scenes with all checkers on and prints their objections.
//!
//! `objections [SCENE]...` runs the scenes named, or all. Each objection is a line on standard output with tabs between
//! scene, `switch` or `endpoint`, checker, and what it saw; the exit code is 1 if there is one.
//!
//! Source: docs/spec/model.md §4.
//!
//! `tools/mutants.py` builds it from mutated source, of which some checker must object in some scene.

#![expect(clippy::indexing_slicing, reason = "there are as many stations as streams are made for")]

use std::error::Error;
use std::process::ExitCode;

use weft_base::sync::AtomicBool;
use weft_dataplane::time::{Instant, LinkRate, Span};
use weft_dataplane::trace::Event;
use weft_dataplane::types::{Alpha, PerPri, Pri, PriSet};
use weft_hosts::frames::Kind;
use weft_hosts::pfc::SlowSpec;
use weft_hosts::rclink::credits::CreditSpec;
use weft_hosts::rclink::endpoint::EndpointSpec;
use weft_parsers::{AfhMode, Format, Vid};
use weft_sim::chaos;
use weft_sim::checkers::Watch;
use weft_sim::engine::Latency;
use weft_sim::frames::{FrameSpec, stations_known};
use weft_sim::run::{RunOptions, run};
use weft_sim::scenario::fault::Fault;
use weft_sim::scenario::flow::Flow;
use weft_sim::scenario::workload::{Pattern, Workload};
use weft_sim::scenario::{Checks, Endpoints, Options, Scenario, Site, SwitchPlan};
use weft_sim::setup::Setup;
use weft_sim::station::Stream;
use weft_sim::switch::SwitchTiming;
use weft_sim::topology::{LinkSpec, NodeKind, Topology};
use weft_sim::world::World;

/// An objection: `switch` or `endpoint`, the checker, and what it saw.
type Objections = Vec<(&'static str, String, String)>;
type Scene = fn() -> Result<Objections, Box<dyn Error>>;

/// All scenes, by name.
const SCENES: [(&str, Scene); 10] = [
    ("chaos", || Ok(in_chaos())),
    ("lossless", lossless),
    ("headroom", headroom),
    ("full", full),
    ("incast", incast),
    ("losses", losses),
    ("paused", paused),
    ("not_ready", not_ready),
    ("credits", credits),
    ("lite", lite),
];

/// Payload of a full frame.
const FRAME: u64 = 1_344;
/// Episodes of chaos, and the frames of each: many short ones, as each has its own configuration.
const EPISODES: u64 = 16;
const EPISODE_FRAMES: u64 = 20_000;

fn main() -> Result<ExitCode, Box<dyn Error>> {
    let named: Vec<String> = std::env::args().skip(1).collect();
    if let Some(name) = named.iter().find(|name| SCENES.iter().all(|(known, _)| known != name)) {
        let known = SCENES.map(|(name, _)| name).join(", ");
        return Err(format!("no scene {name}: expected one of {known}").into());
    }
    let mut count = 0;
    for (name, scene) in SCENES {
        if !named.is_empty() && !named.iter().any(|other| other == name) {
            continue;
        }
        for (who, checker, saw) in scene()? {
            println!("{name}\t{who}\t{checker}\t{saw}");
            count += 1;
        }
    }
    Ok(ExitCode::from(u8::from(count > 0)))
}

/// Random switches, traffic and faults.
fn in_chaos() -> Objections {
    let episodes: Vec<(u64, u64)> = (1..=EPISODES).map(|seed| (seed, EPISODE_FRAMES)).collect();
    let reports = chaos::run(&episodes, 1, |_| ());
    let all = reports.into_iter().flat_map(|report| report.violations);
    all.map(|(_, found)| ("switch", found.checker.to_owned(), found.saw)).collect()
}

/// If all stations obey PAUSE, no lossless frame may be lost.
fn lossless() -> Result<Objections, Box<dyn Error>> {
    crowd(&Setup { buffer_bytes: 1 << 20, ..Setup::new(4, 4) }, true, None)
}

/// A station that does not obey PAUSE fills the headroom, and frames without room are lost.
fn headroom() -> Result<Objections, Box<dyn Error>> {
    crowd(&Setup { buffer_bytes: 1 << 20, ..Setup::new(4, 4) }, false, None)
}

/// A small buffer of which a queue may take eight times the free part: short queues find less than a frame free.
fn full() -> Result<Objections, Box<dyn Error>> {
    let setup = Setup { buffer_bytes: 1 << 16, cell_bytes: 128, pfc: false, ..Setup::new(4, 4) };
    crowd(&setup, true, Some(Alpha::shift(3)))
}

/// Three senders to an output of a tenth of their rate, with priorities that are lossy, lossless where there is PFC,
/// and strict.
fn crowd(setup: &Setup, obeys: bool, alpha: Option<Alpha>) -> Result<Objections, Box<dyn Error>> {
    let setup = Setup { rates: vec![(0, LinkRate::gbps(10))], ..setup.clone() };
    let vid = Vid::new(1).ok_or("a VLAN")?;
    let mut world = World::new(&setup, &SwitchTiming::default(), |config| {
        stations_known(config, vid);
        (config.ecn.low_bytes, config.ecn.high_bytes) = (10_000, 60_000);
        if let Some(alpha) = alpha {
            config.buffer.alpha = PerPri([alpha; 8]);
        }
    })?;
    let mut watch = Watch::new(&world.switch.core().snapshot.load(), |_, _: &Event| ());
    watch.checkers.lossless_absolute = obeys;
    for src in 1..4_u16 {
        world.stations[usize::from(src)].obeys = obeys;
        for of in [0, 2, 3] {
            let pri = Pri::from_low_bits(of);
            let template =
                FrameSpec::new(Format::Standard, usize::from(src), 0, 1_000, pri, 4).to_vec();
            let id = src * 4 + u16::from(of);
            let (gap, start) = (Span::ZERO, Instant::ZERO);
            let stream = Stream { id, pri, template, len_min: 100, gap, start, count: 2_000 };
            world.stations[usize::from(src)].add(stream);
        }
    }
    world.drain(Instant::from_ns(1_000_000_000), &mut watch);
    watch.checkers.finish(world.now(), world.switch.core());
    let all = watch.checkers.violations().iter();
    Ok(all.map(|found| ("switch", found.checker.to_owned(), found.saw.clone())).collect())
}

/// Eight hosts send to one over one switch with a small buffer: it marks and pauses, and no frame is lost.
fn incast() -> Result<Objections, Box<dyn Error>> {
    let all = (0..8).map(|from| Flow::new(from, 8, FRAME * 300)).collect();
    let mut net = Net::new(Kind::Standard, Topology::single(9)?, all);
    net.buffer_bytes = 4 << 20;
    net.marks = (30_000, 200_000);
    net.run()
}

/// Two hosts send short messages, one after the other, to a slow one, and a link damages frames both ways. Marks, NAKs
/// and timeouts follow, and duplicates where the last ACK is lost.
fn losses() -> Result<Objections, Box<dyn Error>> {
    let mut all: Vec<Flow> = (0..6).map(|n| Flow::new(n % 2, 2, FRAME * 200)).collect();
    let short = |n: u64| Flow { start: Instant::from_ns(1_500_000 * n), ..Flow::new(0, 2, FRAME) };
    all.extend((1..=100).map(short));
    let mut net = Net::new(Kind::Standard, Topology::single(3)?, all);
    (net.rate, net.buffer_bytes, net.marks) = (LinkRate::gbps(100), 500 << 10, (3_000, 20_000));
    net.faults = vec![
        Fault::FrameError { link: 0, one_in: 20 },
        Fault::SlowReceiver { host: 2, drain: LinkRate::gbps(60) },
    ];
    net.run()
}

/// Two hosts on one cable send to each other, and one of them pauses the other in all classes again and again.
fn paused() -> Result<Objections, Box<dyn Error>> {
    let both = vec![Flow::new(0, 1, FRAME * 2_000), Flow::new(1, 0, FRAME * 2_000)];
    let mut net = Net::new(Kind::Standard, cable(0)?, both);
    let (classes, from, until) =
        (PriSet::from_bits(0xFF), Instant::from_ns(5_000), Instant::from_ns(100_000));
    net.faults = vec![Fault::PauseStorm { host: 1, classes, from, until }];
    net.run()
}

/// A slow receiver sends no PFC: frames without room are sent again after an RNR NAK.
fn not_ready() -> Result<Objections, Box<dyn Error>> {
    let mut net = Net::new(Kind::Standard, cable(0)?, vec![Flow::new(0, 1, FRAME * 1_000)]);
    net.endpoint = |spec| {
        spec.rnr = Some(1);
        spec.slow = Some(SlowSpec {
            drain: LinkRate::gbps(200),
            xoff_bytes: 20_000,
            xon_bytes: 10_000,
            capacity_bytes: 30_000,
            lossless: PriSet::EMPTY,
            quanta: u16::MAX,
        });
    };
    net.run()
}

/// Two hosts on one cable send to each other, with credits for four frames.
fn credits() -> Result<Objections, Box<dyn Error>> {
    let both = vec![Flow::new(0, 1, FRAME * 100), Flow::new(1, 0, FRAME * 100)];
    let mut net = Net::new(Kind::Gen1, cable(0)?, both);
    net.endpoint = |spec| spec.credits = Some(CreditSpec::new(44));
    net.run()
}

/// Frames that are sent only once, over a switch.
fn lite() -> Result<Objections, Box<dyn Error>> {
    let both = vec![Flow::new(0, 1, FRAME * 100), Flow::new(0, 1, FRAME * 3)];
    let mut net = Net::new(Kind::Lite, cable(1)?, both);
    net.afh = Some(AfhMode::Lite);
    net.run()
}

/// Two hosts with `switches` switches between them.
fn cable(switches: usize) -> Result<Topology, Box<dyn Error>> {
    let mut net = Topology::default();
    let mut last = net.add("h0", NodeKind::Host)?;
    for index in 0..switches {
        let switch = net.add(&format!("sw{index}"), NodeKind::Switch)?;
        net.link(last, switch)?;
        last = switch;
    }
    let host = net.add("h1", NodeKind::Host)?;
    net.link(last, host)?;
    Ok(net)
}

/// A network, with the settings that differ between scenes.
struct Net {
    kind: Kind,
    topology: Topology,
    flows: Vec<Flow>,
    rate: LinkRate,
    buffer_bytes: u64,
    /// Depths at which marking begins, and at which all frames are marked.
    marks: (u64, u64),
    faults: Vec<Fault>,
    endpoint: fn(&mut EndpointSpec),
    /// AFH mode in which frames without a known EtherType are read.
    afh: Option<AfhMode>,
}

impl Net {
    fn new(kind: Kind, topology: Topology, flows: Vec<Flow>) -> Self {
        Self {
            kind,
            topology,
            flows,
            rate: LinkRate::gbps(400),
            buffer_bytes: 16 << 20,
            marks: (100_000, 1_000_000),
            faults: Vec::new(),
            endpoint: |_| (),
            afh: None,
        }
    }

    /// Objections of all checkers of its hosts and switches.
    fn run(self) -> Result<Objections, Box<dyn Error>> {
        let scenario = self.scenario();
        let mut progress = |_: &_| ();
        let options =
            RunOptions { threads: 1, stop: &AtomicBool::new(false), progress: &mut progress };
        let objections = run(&scenario, options)?.objections;
        let is_host = |name: &str| {
            let mut hosts =
                scenario.topology.nodes().iter().filter(|node| node.kind == NodeKind::Host);
            hosts.any(|node| node.name == name)
        };
        let who = |name: &str| if is_host(name) { "endpoint" } else { "switch" };
        Ok(objections.into_iter().map(|it| (who(&it.node), it.checker, it.saw)).collect())
    }

    fn scenario(self) -> Scenario {
        let Self { kind, mut topology, flows, rate, buffer_bytes, marks, faults, endpoint, afh } =
            self;
        let (setup, around) =
            (Setup { rate, buffer_bytes, ..Setup::new(1, 4) }, SwitchTiming::default());
        topology.specify_others(LinkSpec { rate, propagation: around.propagation });
        let overhead = around.overhead;
        let frame_len_max = setup.frame_len_max;
        let switches = move |site: &Site<'_>| {
            let rates = site.links.iter().map(|link| link.rate).enumerate().collect();
            let mut config = Setup { ports: site.links.len(), rates, ..setup.clone() }.config();
            (config.ecn.low_bytes, config.ecn.high_bytes) = marks;
            for port in &mut config.ports {
                port.parse.afh = afh.unwrap_or(port.parse.afh);
            }
            Ok(SwitchPlan { config, around: around.clone() })
        };
        let template = move |_: &Site<'_>, spec: &mut EndpointSpec| {
            spec.parse.afh = afh.unwrap_or(spec.parse.afh);
            endpoint(spec);
            Ok(())
        };
        let endpoints = Endpoints {
            kind,
            delay: Latency::both_ways(Span::from_ns(60)),
            lite: kind == Kind::Lite,
            overhead,
            frame_len_max,
            template: Box::new(template),
        };
        let pattern = Pattern::Flows(flows);
        Scenario {
            name: "objections".to_owned(),
            seed: 7,
            until: Instant::from_ns(200_000_000),
            topology,
            switches: Box::new(switches),
            endpoints,
            workloads: vec![Workload {
                name: "all".to_owned(),
                kind: pattern,
                start: Instant::ZERO,
                vc: None,
            }],
            faults,
            expects: Vec::new(),
            options: Options { checks: Checks::On, ..Options::default() },
        }
    }
}
