//! Networks of switches with RC Link endpoints: times by closed forms, nothing lost, and the same on several threads.
//!
//! Topologies and messages run to their end, and the results of the messages are compared.
//!
//! Source: docs/spec/model.md §2 (store-and-forward: (N + 1)(S + P) + N·F), §4.

#![expect(clippy::unwrap_used, reason = "a test fails that way")]

use weft_dataplane::time::{Instant, LinkRate, Span};
use weft_hosts::frames::Kind;
use weft_sim::network::{Network, NetworkSpec};
use weft_sim::scenario::flow::Flow;
use weft_sim::setup::Setup;
use weft_sim::switch::SwitchTiming;
use weft_sim::topology::{NodeKind, Topology};

pub fn spec(topology: Topology, gbps: u64, kind: Kind) -> NetworkSpec {
    let setup = Setup { rate: LinkRate::gbps(gbps), ..Setup::new(1, 4) };
    let around = SwitchTiming::default(); // 300 ns a switch, 50 ns a cable
    NetworkSpec { topology, setup, around, kind, endpoint_delay: Span::ZERO }
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

/// The largest Standard frame over n switches, to the picosecond.
#[test]
fn a_frame_takes_as_long_as_the_closed_form_says() {
    #[rustfmt::skip] // columns: switches, ns at 100, 200, 400 and 800 Gb/s
    let table: [(usize, [u64; 4]); 6] = [
        (0, [  163_760,   106_880,    78_440,    64_220]),
        (1, [  627_520,   513_760,   456_880,   428_440]),
        (2, [1_091_280,   920_640,   835_320,   792_660]),
        (3, [1_555_040, 1_327_520, 1_213_760, 1_156_880]),
        (4, [2_018_800, 1_734_400, 1_592_200, 1_521_100]),
        (5, [2_482_560, 2_141_280, 1_970_640, 1_885_320]),
    ];
    for (switches, want) in table {
        for (gbps, want) in [100, 200, 400, 800].into_iter().zip(want) {
            let spec = spec(chain(switches), gbps, Kind::Standard);
            let flows = vec![Flow::new(0, 1, 1_344)];
            let mut network =
                Network::new(&spec, flows, |_| (), |endpoint| endpoint.frame.icrc = true).unwrap();
            network.run(Instant::from_ns(20_000), 1).unwrap();
            let there: Vec<u64> = network
                .hosts()
                .nth(1)
                .unwrap()
                .delivered()
                .iter()
                .map(|it| it.at.as_ps())
                .collect();
            assert_eq!(there, [want], "{switches} switches at {gbps}G");
            assert!(network.is_idle());
        }
    }
}

/// Eight senders and one receiver, with buffers that PFC has to guard: no frame is lost or sent again, and the last bit
/// arrives when the receiver's link has carried all frames.
#[test]
fn an_incast_loses_nothing() {
    const FRAMES: u64 = 2_000;
    for kind in [Kind::Standard, Kind::Lite] {
        let spec = NetworkSpec {
            setup: Setup { buffer_bytes: 1 << 20, ..Setup::new(1, 4) },
            ..spec(Topology::single(9).unwrap(), 100, kind)
        };
        let flows = (0..8).map(|from| Flow::new(from, 8, 1_344 * FRAMES)).collect();
        let mut network = Network::new(
            &spec,
            flows,
            |switch| {
                if kind == Kind::Lite {
                    for port in &mut switch.ports {
                        port.parse.afh = weft_parsers::AfhMode::Lite;
                    }
                }
            },
            |endpoint| {
                if kind == Kind::Lite {
                    endpoint.parse.afh = weft_parsers::AfhMode::Lite;
                }
            },
        )
        .unwrap();
        network.run(Instant::from_ns(5_000_000), 1).unwrap();
        assert!(network.is_idle(), "{kind:?}");
        let ledgers = network.ledgers();
        assert_eq!((ledgers[0].imbalance(), ledgers[0].dropped, ledgers[0].queued), (0, 0, 0));
        let hosts: Vec<_> = network.hosts().collect();
        let stats = hosts[8].endpoint().stats();
        assert_eq!((stats.rx_frames, stats.lost), (8 * FRAMES, 0), "{kind:?}");
        let paused = hosts[..8].iter().filter(|host| host.endpoint().stats().pfc_rx > 0).count();
        assert!(paused > 0, "{kind:?}: PFC was never needed");
        assert!(hosts.iter().all(|host| host.endpoint().stats().resent == 0), "{kind:?}");
        let last = hosts[8].delivered().last().unwrap().at.as_ps();
        let frame =
            spec.setup.rate.frame_time(if kind == Kind::Lite { 1_356 } else { 1_394 }).as_ps();
        let least = 8 * FRAMES * frame;
        assert!((least..least + least / 50).contains(&last), "{kind:?}: {last} ps, not {least}");
    }
}

/// All to all on a fat tree: on one thread, two and five each message has the same result, to the picosecond.
#[test]
fn threads_decide_nothing() {
    let seen = |threads, cut_through| {
        let mut spec = spec(Topology::fat_tree(16).unwrap(), 400, Kind::Standard);
        spec.around.cut_through = cut_through;
        let pairs = (0..16).flat_map(|from| (0..16).map(move |to| (from, to)));
        let flows = pairs.filter(|(from, to)| from != to);
        let flows = flows.map(|(from, to)| Flow::new(from, to, 13_440)).collect();
        let mut network = Network::new(&spec, flows, |_| (), |_| ()).unwrap();
        network.run(Instant::from_ns(200_000), threads).unwrap();
        for ledger in network.ledgers() {
            assert_eq!((ledger.imbalance(), ledger.dropped, ledger.queued), (0, 0, 0));
        }
        assert!(network.is_idle());
        let events: Vec<_> =
            network.hosts().map(|host| (host.sent().to_vec(), host.delivered().to_vec())).collect();
        let steps: Vec<_> = network.switches().map(weft_sim::switch::Switch::steps).collect();
        (events, steps, network.hosts().map(|host| host.endpoint().stats()).collect::<Vec<_>>())
    };
    for cut_through in [false, true] {
        let want = seen(1, cut_through);
        assert_eq!(want.2.iter().map(|stats| stats.rx_frames).sum::<u64>(), 16 * 15 * 10);
        for threads in [2, 5] {
            assert!(seen(threads, cut_through) == want, "{threads} threads, {cut_through}");
        }
    }
}
