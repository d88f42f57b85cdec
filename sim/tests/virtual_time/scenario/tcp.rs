//! TCP and its closed forms: one flow fills a link, a window fills a round trip, flows share, losses limit.
//!
//! All scenarios have one switch; sizes are bytes of payload.
//!
//! Source: docs/spec/model.md §7; docs/spec/model-reference.md §14.

use weft_hosts::tcp::{Congestion, ConnectionSpec};
use weft_sim::network::Network;
use weft_sim::run::build;
use weft_sim::scenario::fault::Fault;
use weft_sim::scenario::workload::TcpLoad;

use super::*;

/// FCS, preamble and gap, Ethernet, IPv4 and TCP headers.
const OVERHEAD: u64 = 24 + 54;

fn tcp(from: Vec<u16>, load: TcpLoad, connection: ConnectionSpec) -> Workload {
    workload(Pattern::Tcp { from, to: 0, load, connections: 1, connection })
}

/// `hosts` hosts at a switch, with cables of `cable_ns` nanoseconds, for a second of virtual time.
fn star(gbps: u64, hosts: usize, cable_ns: u64, workloads: Vec<Workload>) -> Scenario {
    let mut bench = Bench::new(gbps, Kind::Standard);
    bench.setup.frame_len_max = 9_216;
    bench.around.propagation = Span::from_ns(cable_ns);
    let mut scenario = bench.scenario(Topology::single(hosts).unwrap(), workloads);
    scenario.until = Instant::from_ns(1_000_000_000);
    scenario
}

/// Bytes that host 0 took between two instants.
fn taken(network: &mut Network, from: Instant, until: Instant) -> u64 {
    let bytes = |network: &Network| network.hosts().next().unwrap().taken_bytes();
    network.run(from, 1).unwrap();
    let before = bytes(network);
    network.run(until, 1).unwrap();
    bytes(network) - before
}

/// Ethernet, IPv4 and TCP leave payload / (payload + 78) of a link, and one flow gets that to the byte.
#[test]
fn one_flow_fills_a_link() {
    #[rustfmt::skip] // columns: Gbit/s, MSS, congestion
    let cases = [
        (10, 1_460, Congestion::Reno), (100, 1_460, Congestion::Cubic), (400, 8_960, Congestion::Cubic), (100, 536, Congestion::Reno),
    ];
    for (gbps, mss, congestion) in cases {
        let connection = ConnectionSpec { congestion, mss, ..ConnectionSpec::DEFAULT };
        let lasts = TcpLoad::Lasts(Span::from_ms(50));
        let scenario = star(gbps, 2, 50, vec![tcp(vec![1], lasts, connection)]);
        let mut network = build(&scenario).unwrap();
        let each = (mss as u64 + OVERHEAD) * 8 * 1_000 / gbps;
        let begin = Instant::from_ns(2_000_000);
        let end = begin + Span::from_ps(10_000 * each);
        let had = taken(&mut network, begin, end);
        assert_eq!(had, 10_000 * mss as u64, "{gbps} Gbit/s, {mss} bytes");
    }
}

/// If a round trip is longer than it takes to send the window, as many whole segments as fit into the window go in
/// each.
#[test]
fn one_flow_fills_its_window() {
    let (gbps, cable_ns) = (100, 50_000);
    let connection = ConnectionSpec { congestion: Congestion::Reno, ..ConnectionSpec::DEFAULT };
    let lasts = TcpLoad::Lasts(Span::from_ms(50));
    let mut network =
        build(&star(gbps, 2, cable_ns, vec![tcp(vec![1], lasts, connection)])).unwrap();
    // Two cables and the switch each way; a segment and its acknowledgement are sent twice each.
    let (segment, answer) = ((1_460 + OVERHEAD) * 80, 84 * 80);
    let trip = 4 * cable_ns * 1_000 + 2 * 300_000 + 2 * segment + 2 * answer;
    let window = (1 << 20) / 1_460;
    let begin = Instant::from_ns(20_000_000);
    let had = taken(&mut network, begin, begin + Span::from_ps(100 * trip));
    assert_eq!(had, 100 * window * 1_460);
}

/// Flows with the same round trip that lose frames at one full buffer get equal shares, to 5 %, and the link is busy.
#[test]
fn flows_share_a_link() {
    #[rustfmt::skip] // columns: congestion, flows, ms
    let cases = [(Congestion::Reno, 2, 150), (Congestion::Reno, 8, 150), (Congestion::Cubic, 4, 300)];
    for (congestion, flows, ms) in cases {
        let connection = ConnectionSpec { congestion, ..ConnectionSpec::DEFAULT };
        let lasts = TcpLoad::Lasts(Span::from_ms(ms));
        let mut bench = Bench::new(10, Kind::Standard);
        bench.setup.buffer_bytes = 1 << 20;
        bench.around.propagation = Span::from_us(5);
        let net = Topology::single(usize::from(flows) + 1).unwrap();
        let mut scenario = bench.scenario(net, vec![tcp((1..=flows).collect(), lasts, connection)]);
        scenario.until = Instant::from_ns(ms * 1_000_000);
        let results = run(&scenario);
        assert!(results.summary.dropped_frames > 100, "they lose what does not fit");
        let bytes: Vec<u64> = results.flows.iter().map(|flow| flow.bytes).collect();
        let (sum, count) = (bytes.iter().sum::<u64>(), u64::from(flows));
        for had in &bytes {
            let of_share = had * count * 100 / sum;
            assert!((95..105).contains(&of_share), "{congestion:?}, {flows} flows: {bytes:?}");
        }
        let all = 10_000_000_000 / 8 * ms / 1_000 * 1_460 / (1_460 + OVERHEAD);
        assert!(sum * 100 / all >= 88, "{congestion:?}, {flows} flows: {sum} bytes of {all}");
    }
}

/// Mathis, Semke, Mahdavi and Ott (CCR 27(3), 1997): a Reno window is sqrt(3/2) / sqrt(p) segments on average if frames
/// are lost with probability p and each segment is acknowledged.
///
/// That is for periodic losses. For random ones the factor is up to 1.31 (7 % more); timeouts, and the stack's growth
/// by whole bytes, take some off. With 300 losses and more the mean is known to 4 %. Hence 12 %, while p changes by a
/// factor of 7.
#[test]
fn losses_limit_reno_by_their_square_root() {
    let cable_ns = 50_000;
    for (one_in, ms) in [(300, 1_200), (1_000, 2_000), (2_000, 2_200)] {
        let connection = ConnectionSpec {
            congestion: Congestion::Reno,
            receive_buffer: 4 << 20,
            send_buffer: 8 << 20,
            ..ConnectionSpec::DEFAULT
        };
        let lasts = TcpLoad::Lasts(Span::from_ms(ms + 200));
        let mut scenario = star(100, 2, cable_ns, vec![tcp(vec![1], lasts, connection)]);
        scenario.faults = vec![Fault::FrameError { link: 1, one_in }];
        let mut network = build(&scenario).unwrap();
        let begin = Instant::from_ns(100_000_000); // slow start is over
        let had = taken(&mut network, begin, begin + Span::from_ms(ms));
        let trip_ns = 4 * cable_ns + 861;
        let window_squared = (had * trip_ns / (1_460 * ms * 1_000)).pow(2) / 1_000_000;
        let law = 3 * one_in / 2;
        // Twice the tolerance, as both are squares.
        let percent = window_squared * 100 / law;
        assert!((77..=125).contains(&percent), "1 in {one_in}: {percent} % of {law}");
    }
}

/// A TCP host with whole frames checks each byte that it receives, whichever frames are lost.
#[test]
fn data_arrives_as_it_was_sent() {
    let connection = ConnectionSpec { mss: 1_000, ..ConnectionSpec::DEFAULT };
    let mut scenario =
        star(100, 3, 50, vec![tcp(vec![1, 2], TcpLoad::Bytes(1_000_003), connection)]);
    scenario.options.full_frames = true;
    scenario.faults = vec![Fault::FrameError { link: 0, one_in: 100 }];
    let results = run(&scenario);
    assert_eq!(results.summary.flows_delivered, 2);
    assert!(results.summary.resent_frames > 10, "{}", results.summary.resent_frames);
    let counted = |name: &str| results.hosts.iter().map(|host| host.counters[name]).sum::<u64>();
    assert_eq!((counted("tcp_rx_payload_bytes"), counted("tcp_data_errors")), (2_000_006, 0));
}
