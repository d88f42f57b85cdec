//! A scenario has the same results on any number of threads and with any numbering of components.
//!
//! Results are compared as JSON, byte by byte.
//!
//! Source: docs/spec/model.md §1.

use weft_dataplane::types::PriSet;
use weft_hosts::tcp::{Congestion, ConnectionSpec};
use weft_sim::scenario::fault::Fault;
use weft_sim::scenario::workload::TcpLoad;
use weft_sim::topology::Topology;

use super::*;

/// All kinds of faults and workloads on a fat tree with short buffers, RC Link and TCP at the same hosts.
fn scenario(topology: Topology) -> Scenario {
    let mut bench = Bench::new(100, Kind::Standard);
    bench.setup.buffer_bytes = 1 << 20;
    bench.delay = Span::from_ns(60);
    let (hosts, bytes) = (Vec::new, 13_440 * 4);
    let (load, duration) = (LinkRate::gbps(20), Span::from_us(30));
    let tcp = |from: &[u16], to, load, congestion| Pattern::Tcp {
        from: from.to_vec(),
        to,
        load,
        connections: 2,
        connection: ConnectionSpec {
            congestion,
            rto_min: Span::from_us(200),
            ..ConnectionSpec::DEFAULT
        },
    };
    let kinds = [
        Pattern::Permutation { hosts: hosts(), bytes },
        Pattern::Incast { from: vec![1, 5, 9, 13], to: 0, bytes },
        Pattern::Uniform { hosts: hosts(), bytes: 3_000, load, duration },
        Pattern::RingAllReduce { hosts: vec![3, 14, 7, 8], bytes },
        tcp(&[2, 5, 11], 14, TcpLoad::Bytes(200_001), Congestion::Reno),
        tcp(&[14, 6], 1, TcpLoad::Lasts(Span::from_us(40)), Congestion::Cubic),
    ];
    let mut scenario = bench.scenario(topology, kinds.map(workload).to_vec());
    let us = |us: u64| Instant::from_ns(1_000 * us);
    scenario.faults = vec![
        Fault::FrameError { link: 3, one_in: 50 },
        Fault::LinkDown { link: 20, from: us(5), until: Some(us(9)) },
        Fault::SlowReceiver { host: 2, drain: LinkRate::gbps(40) },
        Fault::PauseStorm { host: 4, classes: PriSet::from_bits(6), from: us(2), until: us(30) },
    ];
    scenario
}

/// All output of a run: its results, from which all files are made, and flows as they end.
fn json(scenario: &Scenario, threads: usize) -> String {
    let stop = AtomicBool::new(false);
    let mut flows = Vec::new();
    let mut progress =
        |progress: &weft_sim::run::Progress| flows.extend(progress.ended.iter().cloned());
    let options = RunOptions { threads, stop: &stop, progress: &mut progress };
    let results = weft_sim::run::run(scenario, options).unwrap();
    for switch in &results.switches {
        assert_eq!(switch.ledger.imbalance_frames, 0, "{} on {threads} threads", switch.name);
    }
    assert_eq!(flows.len() as u64, results.summary.flows_delivered);
    serde_json::to_string(&results).unwrap() + &serde_json::to_string(&flows).unwrap()
}

#[test]
fn threads_decide_nothing() {
    let scenario = scenario(Topology::fat_tree(16).unwrap());
    let want = json(&scenario, 1);
    assert!(want.contains("\"why\":\"done\""), "{}", &want[..300]);
    assert_same("twice", &json(&scenario, 1), &want);
    for threads in [2, 4] {
        assert_same(&format!("{threads} threads"), &json(&scenario, threads), &want);
    }
}

fn assert_same(name: &str, had: &str, want: &str) {
    let at = had.bytes().zip(want.bytes()).position(|(had, want)| had != want).unwrap_or_default();
    let around =
        |text: &str| text.get(at.saturating_sub(200)..(at + 40).min(text.len())).map(str::to_owned);
    assert!(had == want, "{name}: {:?}, not {:?}", around(had), around(want));
}

/// The same nodes with other numbers; hosts among themselves and switches among themselves keep their order.
#[test]
fn numbers_of_components_decide_nothing() {
    let net = Topology::fat_tree(16).unwrap();
    let (hosts, switches): (Vec<_>, Vec<_>) =
        net.nodes().iter().partition(|node| node.kind == NodeKind::Host);
    let mut shuffled = Topology::default();
    let orders = [switches.clone(), hosts.clone()];
    let mixed = hosts.iter().zip(&switches).flat_map(|(host, switch)| [*host, *switch]);
    let mixed = mixed.chain(switches.iter().skip(hosts.len()).copied());
    for node in mixed {
        shuffled.add(&node.name, node.kind).unwrap();
    }
    assert!(orders[0].len() > orders[1].len(), "a fat tree of 16 has 20 switches");
    for link in net.links() {
        let [a, b] = link.ends.map(|(node, _)| shuffled.find(&net.nodes()[node].name).unwrap());
        shuffled.link(a, b).unwrap();
    }
    assert_ne!(shuffled, net);
    assert!(json(&scenario(shuffled), 2) == json(&scenario(net), 1));
}

/// Whole frames, whose payloads are checked, give the same results as their fronts alone.
#[test]
fn what_is_behind_the_front_of_a_frame_decides_nothing() {
    let mut scenario = scenario(Topology::fat_tree(16).unwrap());
    let fronts = json(&scenario, 1);
    scenario.options.full_frames = true;
    assert_same("whole", &json(&scenario, 2), &fronts);
}

/// Endpoints behave the same when every frame is checked, and no checker objects.
#[test]
fn checkers_decide_nothing() {
    let mut scenario = scenario(Topology::fat_tree(16).unwrap());
    let without = json(&scenario, 1);
    scenario.options.checks = weft_sim::scenario::Checks::On;
    let results = try_run(&scenario, 2).unwrap();
    assert_eq!(results.objections, []);
    assert_same("checked", &json(&scenario, 2), &without);
}

/// Latencies are the same when they are recorded by parts, and the parts do not depend on threads.
#[test]
fn parts_of_latencies_decide_nothing() {
    let mut scenario = scenario(Topology::fat_tree(16).unwrap());
    let without = json(&scenario, 1);
    scenario.options.latency_parts = true;
    assert_same("on two threads", &json(&scenario, 2), &json(&scenario, 1));
    let mut results = try_run(&scenario, 2).unwrap();
    assert!(
        results.parts.take().is_some_and(|parts| parts.frames > 0 && parts.imbalance_ps() == 0)
    );
    for host in &mut results.hosts {
        host.parts = None;
    }
    let apart = serde_json::to_string(&results).unwrap();
    assert_same("apart", &apart, &without[..apart.len()]);
}

#[test]
fn seeds_decide() {
    let mut scenario = scenario(Topology::fat_tree(16).unwrap());
    let one = json(&scenario, 1);
    scenario.seed += 1;
    assert_ne!(json(&scenario, 1), one);
}

/// A run that is stopped has results until then.
#[test]
fn a_run_that_is_stopped_has_results() {
    let scenario = scenario(Topology::fat_tree(16).unwrap());
    let stop = AtomicBool::new(false);
    let mut looks = 0;
    let mut progress = |progress: &weft_sim::run::Progress| {
        looks += 1;
        assert!(progress.delivered <= progress.flows);
        if looks == 10 {
            stop.store(true, weft_base::sync::Ordering::Relaxed);
        }
    };
    let options = RunOptions { threads: 1, stop: &stop, progress: &mut progress };
    let results = weft_sim::run::run(&scenario, options).unwrap();
    assert_eq!(results.ending, weft_sim::results::Ending::Interrupted);
    assert_eq!(results.end_ps, 11_000_000);
    let whole = run(&scenario);
    let open = results.summary.flows - results.summary.flows_delivered;
    assert!(open > 0 && results.summary.flows_delivered > 0);
    for (part, whole) in results.flows.iter().zip(&whole.flows) {
        if part.delivered_ps.is_some() {
            assert_eq!(part.delivered_ps, whole.delivered_ps);
        }
    }
}
