//! Scenarios: closed forms, runs of another simulator, faults, and equal results on any number of threads.
//!
//! A [`Bench`] makes a [`Scenario`] of a topology and workloads; [`run`] gives its [`Results`]. Sizes are bytes of
//! payload.
//!
//! Source: docs/spec/model.md §2, §3, §4.

#![expect(clippy::unwrap_used, reason = "a test fails that way")]

mod checks;
mod closed_forms;
mod endpoint_checkers;
mod faults;
mod lite;
mod parts;
mod reference;
mod same;
mod tcp;
mod type2;
mod windows;

use weft_base::sync::AtomicBool;
use weft_dataplane::config::SwitchConfig;
use weft_dataplane::time::{Instant, LinkRate, Span};
use weft_hosts::frames::Kind;
use weft_hosts::rclink::endpoint::EndpointSpec;
use weft_sim::engine::Latency;
use weft_sim::results::Results;
use weft_sim::run::{RunError, RunOptions};
use weft_sim::scenario::flow::Flow;
use weft_sim::scenario::workload::{Pattern, Workload};
use weft_sim::scenario::{Endpoints, Options, Scenario, Site, SwitchPlan};
use weft_sim::setup::Setup;
use weft_sim::switch::SwitchTiming;
use weft_sim::topology::{LinkSpec, NodeKind, Topology};

/// Common base of all scenarios here.
pub struct Bench {
    pub setup: Setup,
    pub around: SwitchTiming,
    pub kind: Kind,
    pub delay: Span,
    pub switch: fn(&mut SwitchConfig),
    pub endpoint: fn(&mut EndpointSpec),
}

impl Bench {
    /// Switches of 300 ns, cables of 50 ns, endpoints without delay.
    pub fn new(gbps: u64, kind: Kind) -> Self {
        let rate = LinkRate::gbps(gbps);
        let setup = Setup { rate, buffer_bytes: 16 << 20, ..Setup::new(1, 4) };
        let around = SwitchTiming::default();
        Self { setup, around, kind, delay: Span::ZERO, switch: |_| (), endpoint: |_| () }
    }

    pub fn scenario(self, mut topology: Topology, workloads: Vec<Workload>) -> Scenario {
        let Self { setup, around, kind, delay, switch, endpoint } = self;
        topology.specify_others(LinkSpec { rate: setup.rate, propagation: around.propagation });
        let (overhead, frame_len_max) = (around.overhead, setup.frame_len_max);
        Scenario {
            name: "test".to_owned(),
            seed: 7,
            until: Instant::from_ns(50_000_000),
            topology,
            switches: Box::new(move |site: &Site<'_>| {
                let rates = site.links.iter().map(|link| link.rate).enumerate().collect();
                let setup = Setup { ports: site.links.len(), rates, ..setup.clone() };
                let mut config = setup.config();
                switch(&mut config);
                Ok(SwitchPlan { config, around: around.clone() })
            }),
            endpoints: Endpoints {
                kind,
                delay: Latency::both_ways(delay),
                lite: kind == Kind::Lite,
                overhead,
                frame_len_max,
                template: Box::new(move |_: &Site<'_>, spec: &mut EndpointSpec| {
                    endpoint(spec);
                    Ok(())
                }),
            },
            workloads,
            faults: Vec::new(),
            expects: Vec::new(),
            options: Options::default(),
        }
    }
}

/// A workload that begins at once.
pub fn workload(kind: Pattern) -> Workload {
    Workload { name: "all".to_owned(), kind, start: Instant::ZERO, vc: None }
}

/// Flows given one by one.
pub fn flows(flows: Vec<Flow>) -> Vec<Workload> {
    vec![workload(Pattern::Flows(flows))]
}

/// Runs a scenario on `threads` threads.
pub fn try_run(scenario: &Scenario, threads: usize) -> Result<Results, RunError> {
    let stop = AtomicBool::new(false);
    let mut progress = |_: &_| ();
    let options = RunOptions { threads, stop: &stop, progress: &mut progress };
    weft_sim::run::run(scenario, options)
}

/// Runs a scenario, and checks that its ledgers balance.
pub fn run(scenario: &Scenario) -> Results {
    let results = try_run(scenario, 1).unwrap();
    for switch in &results.switches {
        assert_eq!(switch.ledger.imbalance_frames, 0, "{}", switch.name);
    }
    results
}

/// Two hosts with `switches` switches in a row between them.
pub fn chain(switches: usize) -> Topology {
    let mut net = Topology::default();
    let mut last = net.add("h0", NodeKind::Host).unwrap();
    for index in 0..switches {
        let switch = net.add(&format!("sw{index}"), NodeKind::Switch).unwrap();
        net.link(last, switch).unwrap();
        last = switch;
    }
    let host = net.add("h1", NodeKind::Host).unwrap();
    net.link(last, host).unwrap();
    net
}

/// Has a switch read AFH_Lite on all ports.
pub fn lite_switch(switch: &mut SwitchConfig) {
    for port in &mut switch.ports {
        port.parse.afh = weft_parsers::AfhMode::Lite;
    }
}

/// Has an endpoint read AFH_Lite, like [`lite_switch`].
pub fn lite_endpoint(endpoint: &mut EndpointSpec) {
    endpoint.parse.afh = weft_parsers::AfhMode::Lite;
}
