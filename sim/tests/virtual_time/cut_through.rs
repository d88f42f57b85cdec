//! Cut-through: times by the closed form, the fall back to store-and-forward, and damaged frames.
//!
//! Source: docs/spec/model.md §2 (S + (N + 1)P + N(F + H)).

#![expect(clippy::unwrap_used, reason = "a test fails that way")]

use weft_dataplane::stats::DropReason;
use weft_dataplane::time::{Instant, LinkRate, Span};
use weft_sim::engine::Latency;
use weft_sim::network::{Network, NetworkSpec, Plan};
use weft_sim::scenario::fault::Fault;
use weft_sim::scenario::flow::Flow;
use weft_sim::scenario::{Checks, SwitchPlan};
use weft_sim::topology::{LinkSpec, Topology};

use super::network::{chain, spec};
use weft_hosts::frames::Kind;

fn cut_through(topology: Topology, gbps: u64) -> NetworkSpec {
    let mut spec = spec(topology, gbps, Kind::Standard);
    spec.around.cut_through = true;
    spec
}

/// Delivery of each flow in picoseconds, by its number.
fn times(spec: &NetworkSpec, flows: Vec<Flow>) -> Vec<u64> {
    let mut network =
        Network::new(spec, flows, |_| (), |endpoint| endpoint.frame.icrc = true).unwrap();
    network.run(Instant::from_ns(20_000), 1).unwrap();
    assert!(network.is_idle());
    for ledger in network.ledgers() {
        assert_eq!((ledger.imbalance(), ledger.dropped, ledger.queued), (0, 0, 0));
    }
    let there = network.hosts().flat_map(|host| host.delivered().iter());
    let mut there: Vec<_> = there.map(|it| (it.id, it.at.as_ps())).collect();
    there.sort_unstable();
    there.into_iter().map(|(_, at)| at).collect()
}

/// The largest Standard frame over n switches, to the picosecond.
#[test]
fn a_frame_takes_as_long_as_the_closed_form_says() {
    #[rustfmt::skip] // columns: switches, ns at 100, 200, 400 and 800 Gb/s
    let table: [(usize, [u64; 4]); 6] = [
        (0, [  163_760,   106_880,    78_440,    64_220]),
        (1, [  519_520,   459_760,   429_880,   414_940]),
        (2, [  875_280,   812_640,   781_320,   765_660]),
        (3, [1_231_040, 1_165_520, 1_132_760, 1_116_380]),
        (4, [1_586_800, 1_518_400, 1_484_200, 1_467_100]),
        (5, [1_942_560, 1_871_280, 1_835_640, 1_817_820]),
    ];
    for (switches, want) in table {
        for (gbps, want) in [100, 200, 400, 800].into_iter().zip(want) {
            let seen = times(&cut_through(chain(switches), gbps), vec![Flow::new(0, 1, 1_344)]);
            assert_eq!(seen, [want], "{switches} switches at {gbps}G");
        }
    }
}

/// Frames are cut through only between ports of one rate: otherwise a frame would run dry, or leave no earlier.
#[test]
fn links_of_two_rates_store_and_forward() {
    for (first, second) in [(100, 400), (400, 100)] {
        let mut topology = chain(1);
        for (link, gbps) in [first, second].into_iter().enumerate() {
            let (rate, propagation) = (LinkRate::gbps(gbps), Span::from_ns(50));
            topology.specify(link, LinkSpec { rate, propagation });
        }
        // Wire times at 100 and at 400 Gb/s, two cables, the switch.
        let want = 113_760 + 28_440 + 100_000 + 300_000;
        assert_eq!(times(&cut_through(topology, 100), vec![Flow::new(0, 1, 1_344)]), [want]);
    }
}

/// A frame that comes while its output is busy or paused goes on when it is whole.
#[test]
fn a_busy_output_takes_whole_frames() {
    #[rustfmt::skip] // columns: name, start of the second frame, when it is there
    let cases = [
        ("its header comes while the first is sent",   10_000,  10_000 + 627_520),
        ("a picosecond before the first has left",    113_759, 113_759 + 627_520),
        ("as soon as the first has left",             113_760, 113_760 + 519_520),
    ];
    for (name, start, want) in cases {
        let second = Flow { start: Instant::from_ps(start), ..Flow::new(1, 2, 1_344) };
        let flows = vec![Flow::new(0, 2, 1_344), second];
        let seen = times(&cut_through(Topology::single(3).unwrap(), 100), flows);
        assert_eq!(seen, [519_520, want], "{name}");
    }
}

/// A frame that was damaged before a switch leaves it damaged, and is found where it is received whole; all damaged
/// frames are sent again, and arrive.
#[test]
fn damaged_frames_are_counted_at_the_endpoint() {
    for cut in [false, true] {
        let mut spec = cut_through(chain(1), 100);
        spec.around.cut_through = cut;
        spec.topology
            .specify_others(LinkSpec { rate: LinkRate::gbps(100), propagation: Span::from_ns(50) });
        let setup = &spec.setup;
        let switches = |site: &weft_sim::scenario::Site<'_>| {
            let setup = weft_sim::setup::Setup { ports: site.links.len(), ..setup.clone() };
            Ok(SwitchPlan { config: setup.config(), around: spec.around.clone() })
        };
        let mut network = Network::build(&Plan {
            topology: &spec.topology,
            switches: &switches,
            endpoints: &|_, _| Ok(()),
            kind: Kind::Standard,
            delay: Latency::default(),
            overhead: true,
            fronts: false,
            frame_len_max: setup.frame_len_max,
            flows: vec![Flow::new(0, 1, 1_344 * 2_000)].into(),
            connections: &[],
            faults: &[Fault::FrameError { link: 0, one_in: 50 }],
            seed: 3,
            checks: Checks::On,
            latency_parts: false,
        })
        .unwrap();
        network.run(Instant::from_ns(100_000_000), 1).unwrap();
        assert_eq!(network.delivered(), 1);
        assert_eq!(network.violations(), []);
        let ledger = &network.ledgers()[0];
        let at_switch: u64 =
            ledger.port.iter().map(|port| port.drops[DropReason::Fcs as usize]).sum();
        let dropped = network.hosts().nth(1).unwrap().port_counters().rx_dropped;
        let at_host: u64 = dropped
            .iter()
            .filter(|(reason, _)| *reason == Some(DropReason::Fcs))
            .map(|&(_, count)| count)
            .sum();
        assert_eq!(ledger.imbalance(), 0);
        if cut {
            assert!(at_host > 20 && at_switch < at_host, "{at_switch} {at_host}");
        } else {
            assert!(at_host == 0 && at_switch > 20, "{at_switch} {at_host}");
        }
    }
}
