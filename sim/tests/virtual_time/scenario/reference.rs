//! Runs of csg-htsim (RoCE, commit 841d9e7), redone.
//!
//! Each test has the times that htsim printed, their closed form, and the same run with frames of RC Link.
//!
//! htsim's frames have 4,064 octets and its ACKs 64, with no FCS, least size, preamble or gap; switches take no time
//! and links 1 us. RC Link's frames are shorter. A frame of 1,397 bytes with FCS at 34.375 Gb/s takes exactly as long
//! as 4,064 octets at 100 Gb/s, 325.12 ns, so that all times but those of ACKs are the same to the picosecond. An ACK
//! of 54 bytes takes 12.567 ns here and 5.12 ns there; where ACKs share the line with data, the closed form has the
//! time that they take here.
//!
//! Source: docs/spec/model.md §2.

use weft_hosts::rclink::endpoint::{EndpointSpec, Transport};
use weft_sim::scenario::flow::Flow;
use weft_sim::scenario::workload::Pattern;
use weft_sim::topology::Topology;

use super::*;

/// 4,064 octets at 100 Gb/s.
const FRAME_PS: u64 = 325_120;
const LINK_PS: u64 = 1_000_000;
/// An ACK of htsim, at 100 Gb/s.
const HTSIM_ACK_PS: u64 = 5_120;
/// Payload of a frame of 1,397 bytes with its FCS.
const PAYLOAD: u64 = 1_339;

fn endpoint(spec: &mut EndpointSpec) {
    spec.frame.icrc = true;
    spec.payload_max = usize::try_from(PAYLOAD).unwrap();
    spec.transport = Transport::Reliable { timeout: Span::from_ns(4_096 << 15) };
}

/// Switches without delay, links of 1 us, no overhead, and a rate of `times` 34.375 Gb/s.
fn bench(times: u64) -> Bench {
    let mut bench = Bench::new(1, Kind::Standard);
    bench.setup.rate = LinkRate::bps(34_375_000_000 * times).unwrap();
    bench.setup.cable_m = 200;
    bench.setup.buffer_bytes = 64 << 20;
    bench.setup.ecn = false;
    bench.around.latency = Span::ZERO;
    bench.around.propagation = Span::from_ps(LINK_PS);
    bench.around.overhead = false;
    bench.endpoint = endpoint;
    bench
}

/// Wire time of an ACK here.
fn ack_ps(times: u64) -> u64 {
    LinkRate::bps(34_375_000_000 * times).unwrap().wire_time(50, false).as_ps() // headers alone
}

/// Whether `ps` is the time that htsim printed, in microseconds, to its last digit.
fn near(ps: u64, printed: &str) -> bool {
    let digits = printed.split_once('.').map_or(0, |(_, part)| part.len());
    let step = 10_u64.pow(6 - u32::try_from(digits).unwrap());
    let value: u64 = printed.replace('.', "").parse().unwrap();
    (ps + step / 2) / step == value
}

/// H1 and H1b: 500 frames over six links at 100, 200 and 400 Gb/s.
#[test]
fn one_flow_takes_what_htsim_prints() {
    for (times, printed) in [(1, "176.216"), (2, "94.1082"), (4, "53.0541")] {
        let scenario = bench(times).scenario(chain(5), flows(vec![Flow::new(0, 1, 500 * PAYLOAD)]));
        let flow = &run(&scenario).flows[0];
        let there = 505 * FRAME_PS / times + 6 * LINK_PS;
        assert_eq!(flow.fct_ps, Some(there));
        let back = 6 * LINK_PS + 6 * ack_ps(times);
        assert_eq!(flow.fct_sender_ps, Some(there + back));
        let htsim = there + 6 * LINK_PS + 6 * HTSIM_ACK_PS / times;
        assert!(near(htsim, printed), "{htsim} ps, not {printed} us");
    }
}

/// H1c: 1,495 frames of 1,402 octets at 400 Gb/s, which RC Link has without a tag.
#[test]
fn one_flow_of_short_frames_takes_what_htsim_prints() {
    let mut bench = bench(1);
    bench.setup.rate = LinkRate::gbps(400);
    bench.endpoint = |spec| {
        endpoint(spec);
        spec.payload_max = 1_344;
    };
    let scenario = bench.scenario(chain(5), flows(vec![Flow::new(0, 1, 1_495 * 1_344)]));
    let flow = &run(&scenario).flows[0];
    let there = 1_500 * 28_040 + 6 * LINK_PS;
    assert_eq!(flow.fct_ps, Some(there));
    assert!(near(there + 6 * LINK_PS + 6 * 1_280, "54.0677"));
}

/// H2: both ways, ACKs share the line. htsim's take 480 x 5.12 ns of it.
#[test]
fn both_ways_ack_frames_take_their_part() {
    let both = vec![Flow::new(0, 1, 500 * PAYLOAD), Flow::new(1, 0, 500 * PAYLOAD)];
    let results = run(&bench(1).scenario(chain(5), flows(both)));
    let without = 505 * FRAME_PS + 12 * LINK_PS;
    assert!(near(without + 486 * HTSIM_ACK_PS, "178.674"), "htsim");
    let want = without + 486 * ack_ps(1);
    for flow in &results.flows {
        let had = flow.fct_sender_ps.unwrap();
        assert!(had.abs_diff(want) * 100 < want, "{had} ps, not {want}");
    }
}

/// H3: N to 1 at one switch, with PFC. The last flow is done when the receiver's link has carried all frames.
#[test]
fn incasts_end_when_htsim_s_do() {
    #[rustfmt::skip] // columns: senders, last one as printed
    let cases = [(1, "166.895"), (2, "329.455"), (4, "654.575"), (8, "1304.82"), (15, "2442.74")];
    for (senders, printed) in cases {
        let to = u16::try_from(senders).unwrap();
        let pattern = Pattern::Incast { from: Vec::new(), to, bytes: 500 * PAYLOAD };
        let topology = Topology::single(senders + 1).unwrap();
        let results = run(&bench(1).scenario(topology, vec![workload(pattern)]));
        let there = u64::from(to) * 500 * FRAME_PS + FRAME_PS + 2 * LINK_PS;
        let htsim = there + 2 * LINK_PS + 2 * HTSIM_ACK_PS;
        assert!(near(htsim, printed), "{htsim} ps, not {printed} us");
        let last = results.summary.fct_ps.unwrap().max;
        assert!(last.abs_diff(there) * 1_000 < there, "{senders}: {last} ps, not {there}");
        assert_eq!((results.summary.dropped_frames, results.summary.resent_frames), (0, 0));
    }
}

/// Each input is paused above `xoff` frames and released below `xon` by itself, as in htsim: a part of 1/256 of a
/// buffer that is so much larger. htsim counts the frame that is being sent, weft does not.
fn thresholds(config: &mut weft_dataplane::config::SwitchConfig, xon: u32, xoff: u32) {
    let (lossless, buffer) = (config.pfc.lossless, &mut config.buffer);
    for pri in lossless.iter() {
        buffer.alpha[pri] = weft_dataplane::types::Alpha::shift(-8);
    }
    (buffer.pg_reserve_cells, buffer.xon_offset_cells) = (0, xoff + 1 - xon);
    // Outputs send in the order of arrival, so that all frames wait there and none at an input.
    config.crossbar.speedup = 8;
    config.crossbar.egress_queue_frames = 4_096;
    let headroom: u32 = buffer.headroom_cells.iter().sum();
    buffer.total_cells = u32::try_from(lossless.len()).unwrap() * headroom + (xoff - 1) * 256 + 255;
}

/// A fat tree of `hosts` hosts with these thresholds, in frames of one cell each. `seed` draws the paths of flows.
fn tree(hosts: usize, seed: u64, change: fn(&mut weft_dataplane::config::SwitchConfig)) -> Results {
    let mut bench = bench(1);
    bench.setup.seed = seed;
    bench.setup.cell_bytes = 1_400;
    bench.setup.buffer_bytes = 64 << 20;
    bench.switch = change;
    let pattern = Pattern::Incast { from: Vec::new(), to: 0, bytes: 500 * PAYLOAD };
    let topology = Topology::fat_tree(hosts).unwrap();
    let mut scenario = bench.scenario(topology, vec![workload(pattern)]);
    scenario.until = Instant::from_ns(100_000_000);
    run(&scenario)
}

/// H5: 15 to 1 over three stages, with thresholds below and above the 7 frames that arrive in a loop of 2.3 us. Inputs
/// are stopped as often and hold as many frames as in htsim. Below, inputs run dry, for a time that depends on the
/// paths of flows ([`paths_decide_what_low_thresholds_cost`]). Above, the last flow ends at the same time, to the
/// digit.
#[test]
fn thresholds_below_the_loop_starve_the_output() {
    struct Case {
        change: fn(&mut weft_dataplane::config::SwitchConfig),
        /// How often inputs were stopped, and the most frames at one, according to htsim.
        stops: u64,
        peak: u64,
        /// Time of the last flow beyond the time that the receiver's link needs, in 1/1,000.
        more: core::ops::RangeInclusive<u64>,
    }
    let cases = [
        Case { change: |it| thresholds(it, 2, 4), stops: 2_752, peak: 11, more: 10..=103 },
        Case { change: |it| thresholds(it, 4, 8), stops: 2_007, peak: 15, more: 2..=20 },
        Case { change: |it| thresholds(it, 25, 30), stops: 1_482, peak: 37, more: 0..=0 },
        Case { change: |it| thresholds(it, 60, 100), stops: 307, peak: 106, more: 0..=0 },
    ];
    for Case { change, stops, peak, more } in cases {
        let results = tree(16, 1, change);
        let last = results.summary.fct_sender_ps.unwrap().max;
        let over = (last.saturating_sub(2_446_760_000)) * 1_000 / 2_446_760_000;
        let queues = results.switches.iter().flat_map(|it| &it.ports).flat_map(|it| &it.queues);
        let (mut had, mut most) = (0, 0);
        for queue in queues {
            had += queue.xoff;
            most = most.max(queue.input_max_cells + queue.headroom_max_cells);
        }
        assert!(more.contains(&over), "{last} ps, {over} of 1000 more than {more:?}");
        assert!(had.abs_diff(stops) * 8 <= stops, "{had} stops, not {stops}");
        assert!(most.abs_diff(peak) <= 1, "{most} frames at an input, not {peak}");
        assert_eq!((results.summary.dropped_frames, results.summary.resent_frames), (0, 0));
    }
}

/// H5, below the loop: the cost depends on the paths of flows, which htsim draws from the clock. The time that it
/// printed lies between the shortest and the longest of some draws here.
#[test]
fn paths_decide_what_low_thresholds_cost() {
    type Change = fn(&mut weft_dataplane::config::SwitchConfig);
    let cases: [(Change, u64); 2] =
        [(|it| thresholds(it, 2, 4), 2_727_330_000), (|it| thresholds(it, 4, 8), 2_451_340_000)];
    for (change, printed) in cases {
        let last = |seed| tree(16, seed, change).summary.fct_sender_ps.unwrap().max;
        let mut all: Vec<u64> = (1..=20).map(last).collect();
        all.sort_unstable();
        println!("{all:?}");
        assert!((all[0]..=all[19]).contains(&printed), "{printed} ps, not among {all:?}");
    }
}

/// H6: 127 to 1 over three stages.
#[test]
fn an_incast_of_127_ends_when_htsim_s_does() {
    let results = tree(128, 1, |config| thresholds(config, 12, 15));
    let last = results.summary.fct_sender_ps.unwrap().max;
    assert!(last.abs_diff(20_653_500_000) * 1_000 <= 3 * 20_653_500_000, "{last} ps");
    assert_eq!((results.summary.dropped_frames, results.summary.resent_frames), (0, 0));
}

/// H10: all to all at one switch of 16, 100 frames each, one after the other and all at once.
#[test]
fn all_to_all_ends_when_htsim_s_does() {
    let run_of = |one_by_one| {
        let pattern = Pattern::AllToAll { hosts: Vec::new(), bytes: 100 * PAYLOAD, one_by_one };
        let topology = Topology::single(16).unwrap();
        run(&bench(1).scenario(topology, vec![workload(pattern)])).flows
    };
    let last = |flows: &[weft_sim::results::flow::FlowResult]| {
        flows.iter().map(|flow| flow.acknowledged_ps.unwrap()).max().unwrap()
    };
    let alone = 101 * FRAME_PS + 4 * LINK_PS;
    let of = |acks: u64, ack: u64| 15 * (alone + acks * ack);
    assert!(of(93, HTSIM_ACK_PS).abs_diff(559_699_000) < 500_000, "{}", of(93, HTSIM_ACK_PS));
    let (had, want) = (last(&run_of(true)), of(93, ack_ps(1)));
    assert!(had.abs_diff(want) * 200 < want, "one by one: {had} ps, not {want}");
    let of = |ack: u64| 1_501 * FRAME_PS + 4 * LINK_PS + 1_494 * ack;
    assert!(of(HTSIM_ACK_PS).abs_diff(499_649_000) < 100_000, "{}", of(HTSIM_ACK_PS));
    let (had, want) = (last(&run_of(false)), of(ack_ps(1)));
    assert!(had.abs_diff(want) * 200 < want, "at once: {had} ps, not {want}");
}

/// H11: 30 steps round a ring of 16, each of 100 frames, each begun when the one before is acknowledged.
#[test]
fn a_ring_ends_when_htsim_s_does() {
    let mut all = Vec::new();
    for step in 0..30_u32 {
        for host in 0..16_u16 {
            let own = |host: u16| (step - 1) * 16 + u32::from(host);
            let after = if step == 0 { Vec::new() } else { vec![own(host), own((host + 15) % 16)] };
            all.push(Flow { after, ..Flow::new(host, (host + 1) % 16, 100 * PAYLOAD) });
        }
    }
    let results = run(&bench(1).scenario(Topology::single(16).unwrap(), flows(all)));
    let of = |ack: u64| 30 * (101 * FRAME_PS + 4 * LINK_PS + 93 * ack);
    assert!(of(HTSIM_ACK_PS).abs_diff(1_119_400_000) < 1_000_000, "{}", of(HTSIM_ACK_PS));
    let had = results.flows.iter().map(|flow| flow.acknowledged_ps.unwrap()).max().unwrap();
    let want = of(ack_ps(1));
    assert!(had.abs_diff(want) * 200 < want, "{had} ps, not {want}");
}
