//! Times of runs, compared with closed forms to the picosecond.
//!
//! Source: docs/spec/model.md §2: (N + 1)(S + P) + N·F for the first frame, S for each one after it.

use weft_dataplane::time::LinkRate;
use weft_hosts::frames::Kind;
use weft_hosts::rclink::credits::CreditSpec;
use weft_hosts::rclink::endpoint::{EndpointSpec, Transport};
use weft_parsers::{Pcp, Tci, Vid};
use weft_sim::results::Ending;
use weft_sim::scenario::flow::Flow;
use weft_sim::scenario::workload::Pattern;
use weft_sim::topology::{LinkSpec, Topology};

use super::*;

const SWITCH_PS: u64 = 300_000;
const CABLE_PS: u64 = 50_000;

fn tagged(spec: &mut EndpointSpec) {
    spec.frame.icrc = true;
    spec.frame.vlan = Some(Tci::new(Pcp::default(), false, Vid::from_low_bits(1)));
}

fn bare(spec: &mut EndpointSpec) {
    spec.frame.icrc = true;
}

/// Payload over wire time of every format, at 400 Gb/s over one switch: 200 frames take 199 wire times longer than one,
/// and that gives the goodput of the table, in hundredths of Gb/s.
#[test]
fn goodput_is_payload_over_wire_time() {
    #[rustfmt::skip] // columns: kind, VLAN, payload, goodput in Gb/s x 100 at 400G
    let table = [
        (Kind::Standard, false, 1_344, 37_806), (Kind::Standard, true, 1_344, 37_700),
        (Kind::Gen1,     false, 1_344, 38_565), (Kind::Gen1,     true, 1_344, 38_455),
        (Kind::Gen2,     false, 1_344, 38_565), (Kind::Lite,    false, 1_344, 38_957),
        (Kind::Standard, false,   256, 30_660), (Kind::Standard, true,   256, 30_296),
        (Kind::Gen1,     false,   256, 33_464), (Kind::Gen1,     true,   256, 33_032),
        (Kind::Lite,     false,   256, 35_068),
        (Kind::Standard, false,    64, 18_028), (Kind::Gen1,    false,    64, 22_456),
        (Kind::Lite,     false,    64, 25_600), (Kind::Gen2,     true, 1_344, 38_455),
        (Kind::Standard, true,     64, 17_534), (Kind::Gen1,     true,    64, 21_695),
        (Kind::Gen2,     false,   256, 33_464), (Kind::Gen2,    false,    64, 22_456),
        (Kind::Gen2,     true,    256, 33_032), (Kind::Gen2,     true,    64, 21_695),
    ];
    for (kind, vlan, payload, goodput) in table {
        let time = |frames: u64| {
            let mut bench = Bench::new(400, kind);
            bench.endpoint = match (kind, vlan) {
                (Kind::Lite, _) => lite_endpoint,
                (_, true) => tagged,
                (_, false) => bare,
            };
            if kind == Kind::Lite {
                bench.switch = lite_switch;
            }
            let mut scenario =
                bench.scenario(chain(1), flows(vec![Flow::new(0, 1, payload * frames)]));
            let template = scenario.endpoints.template;
            scenario.endpoints.template = Box::new(move |site, spec| {
                template(site, spec)?;
                spec.payload_max = usize::try_from(payload).unwrap();
                Ok(())
            });
            let results = run(&scenario);
            assert_eq!(results.flows[0].fct_ps, Some(results.flows[0].ideal_fct_ps), "{kind:?}");
            results.flows[0].fct_ps.unwrap()
        };
        let header = match kind {
            Kind::Standard => 54, // each with its ICRC
            Kind::Lite => 12,
            _ => 26,
        };
        let len = usize::try_from(header + payload).unwrap() + if vlan { 4 } else { 0 };
        let each = LinkRate::gbps(400).frame_time(len).as_ps();
        assert_eq!(time(200) - time(1), 199 * each, "{kind:?} {vlan} {payload}");
        let had = (payload * 8 * 100_000 + each / 2) / each;
        assert!(had.abs_diff(goodput) <= 1, "{kind:?} {vlan} {payload}: {had}, not {goodput}");
    }
}

/// A flow over links of three rates and lengths takes the time of the slowest link, and of its way.
#[test]
fn links_have_their_own_rates_and_lengths() {
    const FRAMES: u64 = 100;
    let specs = [(400, 10_000), (100, 2_000_000), (200, 70_000)];
    let mut net = chain(2);
    for (link, (gbps, propagation)) in specs.into_iter().enumerate() {
        let (rate, propagation) = (LinkRate::gbps(gbps), Span::from_ps(propagation));
        net.specify(link, LinkSpec { rate, propagation });
    }
    let mut bench = Bench::new(50, Kind::Standard);
    bench.endpoint = bare;
    let results = run(&bench.scenario(net, flows(vec![Flow::new(0, 1, 1_344 * FRAMES)])));
    let times = specs.map(|(gbps, _)| LinkRate::gbps(gbps).frame_time(1_398).as_ps());
    let way: u64 = times.iter().sum::<u64>() + specs.iter().map(|&(_, p)| p).sum::<u64>();
    let want = way + 2 * SWITCH_PS + (FRAMES - 1) * times[1];
    assert_eq!(results.flows[0].fct_ps, Some(want));
    assert_eq!(results.flows[0].ideal_fct_ps, want);
    assert_eq!(results.links[1].a_to_b.frames, FRAMES);
    assert_eq!(results.links[1].a_to_b.busy_ps, FRAMES * times[1]);
}

/// N senders and one receiver: the last byte arrives when the receiver's link has carried all frames, one frame and the
/// way later.
#[test]
fn an_incast_takes_what_the_receiver_s_link_needs() {
    for senders in [2, 8, 15] {
        const FRAMES: u64 = 300;
        let mut bench = Bench::new(100, Kind::Lite);
        (bench.switch, bench.endpoint) = (lite_switch, lite_endpoint);
        let to = u16::try_from(senders).unwrap();
        let pattern = Pattern::Incast { from: Vec::new(), to, bytes: 1_344 * FRAMES };
        let results =
            run(&bench.scenario(Topology::single(senders + 1).unwrap(), vec![workload(pattern)]));
        let frame = LinkRate::gbps(100).frame_time(1_356).as_ps();
        let frames = FRAMES * u64::from(to);
        let want = frames * frame + frame + 2 * CABLE_PS + SWITCH_PS;
        let last = results.summary.fct_ps.unwrap().max;
        assert_eq!(last, want, "{senders} senders");
        assert_eq!(results.summary.dropped_frames, 0);
    }
}

/// A ring of 8: 14 steps, each of which takes the time of its frames and the way of the last one.
#[test]
fn a_ring_takes_its_steps_one_after_the_other() {
    const FRAMES: u64 = 20;
    let hosts = 8;
    let mut bench = Bench::new(400, Kind::Lite);
    (bench.switch, bench.endpoint) = (lite_switch, lite_endpoint);
    bench.delay = Span::from_ns(60);
    let bytes = 1_344 * FRAMES * hosts as u64;
    let pattern = Pattern::RingAllReduce { hosts: Vec::new(), bytes };
    let results = run(&bench.scenario(Topology::single(hosts).unwrap(), vec![workload(pattern)]));
    assert_eq!(results.ending, Ending::Done);
    let frame = LinkRate::gbps(400).frame_time(1_356).as_ps();
    let step = FRAMES * frame + frame + 2 * CABLE_PS + SWITCH_PS + 2 * 60_000;
    assert_eq!(results.summary.makespan_ps, 14 * step);
    assert_eq!(results.summary.flows_delivered, 14 * 8);
}

/// Time of a flow of one full frame alone over one cable without delay at its ends: until it is delivered, and until
/// its sender knows.
fn alone(kind: Kind, gbps: u64, endpoint: fn(&mut EndpointSpec), overhead: bool) -> (u64, u64) {
    let bytes = 1_344;
    let mut bench = Bench::new(gbps, kind);
    bench.endpoint = endpoint;
    bench.around.overhead = overhead;
    let results = run(&bench.scenario(chain(0), flows(vec![Flow::new(0, 1, bytes)])));
    let flow = results.flows.first().unwrap();
    (flow.fct_ps.unwrap(), flow.fct_sender_ps.unwrap())
}

/// Kind of frame and its options, octets, and wire times at four rates without and with the overhead of a frame.
type Row = (Kind, fn(&mut EndpointSpec), u64, [u64; 4], [u64; 4]);

/// The largest frame of each format takes its wire time, and so does its ACK, to the picosecond.
#[test]
fn frames_take_their_wire_time() {
    #[rustfmt::skip] // columns: kind, endpoint, octets with FCS, ps at 100, 200, 400 and 800 Gb/s; first without overhead
    let table: [Row; 7] = [
        (Kind::Standard, tagged,        1_406, [112_480, 56_240, 28_120, 14_060], [114_080, 57_040, 28_520, 14_260]),
        (Kind::Standard, bare,          1_402, [112_160, 56_080, 28_040, 14_020], [113_760, 56_880, 28_440, 14_220]),
        (Kind::Gen1,     tagged,        1_378, [110_240, 55_120, 27_560, 13_780], [111_840, 55_920, 27_960, 13_980]),
        (Kind::Gen1,     bare,          1_374, [109_920, 54_960, 27_480, 13_740], [111_520, 55_760, 27_880, 13_940]),
        (Kind::Gen2,     tagged,        1_378, [110_240, 55_120, 27_560, 13_780], [111_840, 55_920, 27_960, 13_980]),
        (Kind::Gen2,     bare,          1_374, [109_920, 54_960, 27_480, 13_740], [111_520, 55_760, 27_880, 13_940]),
        (Kind::Lite,     lite_endpoint, 1_360, [108_800, 54_400, 27_200, 13_600], [110_400, 55_200, 27_600, 13_800]),
    ];
    for (kind, endpoint, octets, bare, whole) in table {
        for (gbps, (bare, whole)) in
            [100, 200, 400, 800].into_iter().zip(bare.into_iter().zip(whole))
        {
            let (rate, octets) = (LinkRate::gbps(gbps), usize::try_from(octets).unwrap());
            assert_eq!(rate.wire_time(octets - 4, false).as_ps(), bare, "{kind:?} at {gbps}G");
            assert_eq!(rate.wire_time(octets - 4, true).as_ps(), whole, "{kind:?} at {gbps}G");
            // An ACK has its headers and the FCS, and 84 bytes on the wire, as any short frame has.
            let headers = octets as u64 - 1_344 - 4; // of data, with its ICRC and the FCS
            for (overhead, frame, ack) in [(false, bare, headers), (true, whole, 84)] {
                let (there, back) = alone(kind, gbps, endpoint, overhead);
                assert_eq!(there, frame + CABLE_PS, "{kind:?} at {gbps}G");
                let ack = there + ack * 8_000 / gbps + CABLE_PS;
                let want = if kind == Kind::Lite { 0 } else { ack };
                assert_eq!(back, want, "{kind:?} at {gbps}G");
            }
        }
    }
}

/// With traffic both ways, an ACK for each r frames takes its share of the line: 400 x 1344 / (1422 + 84 / r) Gb/s.
#[test]
fn acknowledgements_share_the_line() {
    const FRAMES: u64 = 2_000;
    #[rustfmt::skip] // columns: frames an ACK, ns that an ACK waits for more, goodput in Gb/s x 100
    let table = [(1, 0, 35_697), (2, 20, 36_721), (4, 75, 37_256), (8, 205, 37_529)];
    for (frames, delay, want) in table {
        let times = |bytes| {
            let mut bench = Bench::new(400, Kind::Standard);
            bench.endpoint = |spec| {
                spec.frame.icrc = true;
                spec.transport = Transport::Reliable { timeout: Span::from_ns(4_096 << 14) };
            };
            let both = vec![Flow::new(0, 1, bytes), Flow::new(1, 0, bytes)];
            let mut scenario = bench.scenario(chain(1), flows(both));
            let template = scenario.endpoints.template;
            scenario.endpoints.template = Box::new(move |site, spec| {
                spec.ack_delay = Span::from_ns(delay);
                template(site, spec)
            });
            let results = run(&scenario);
            [0, 1].map(|flow| results.flows[flow].fct_ps.unwrap())
        };
        let (short, long) = (times(1_344 * FRAMES), times(1_344 * 3 * FRAMES));
        for (short, long) in short.into_iter().zip(long) {
            let goodput = 1_344 * 2 * FRAMES * 8 * 100_000 / (long - short);
            assert!(goodput.abs_diff(want) <= 4, "r = {frames}: {goodput}, not {want}");
        }
    }
}

/// Cut-through over n switches: S + (n + 1)P + n(F + H) for one frame, with H the time of 72 bytes; frames in a row
/// take at least S more each.
#[test]
fn cut_through_takes_headers_not_frames() {
    for (switches, frames) in [(1, 1), (3, 1), (1, 50), (3, 50)] {
        let mut bench = Bench::new(100, Kind::Standard);
        (bench.endpoint, bench.around.cut_through) = (bare, true);
        let all = flows(vec![Flow::new(0, 1, 1_344 * frames)]);
        let results = run(&bench.scenario(chain(switches), all));
        let count = switches as u64;
        let frame = LinkRate::gbps(100).frame_time(1_398).as_ps();
        let want = frames * frame + (count + 1) * CABLE_PS + count * (SWITCH_PS + 5_760);
        let had = results.flows[0].fct_ps.unwrap();
        assert_eq!(results.flows[0].ideal_fct_ps, want, "{switches} switches");
        let most = if frames == 1 { want } else { want + 2 * count * frame };
        assert!((want..=most).contains(&had), "{switches} switches: {had}, not {want}");
    }
}

/// Two hosts on one cable, with credits: in each loop as many frames pass as there is credit for, up to the line.
/// Counts take the cable's way back.
#[test]
fn credits_let_as_many_frames_fly_as_there_are() {
    const FRAME_PS: u64 = 27_880;
    #[rustfmt::skip] // columns: ns of a loop beside the frame, credits, bytes of one, frames in flight
    let table = [
        (  220,    11,   128,  1_u64), (220, 22, 128, 2), (220, 44, 128, 4), (220, 66, 128, 6),
        (  220,    88,   128,  8), (220, 99, 128, 9), (220, 407, 128, 37),
        // The line is full from 37 frames in 1 us and 73 frames in 2 us on.
        (1_000,   396,   128, 36), (1_000, 407, 128, 37), (1_000, 216, 256, 36), (1_000, 222, 256, 37),
        (2_000,   792,   128, 72), (2_000, 803, 128, 73),
    ];
    for (beside, limit, size, frames) in table {
        const FRAMES: u64 = 1_000;
        let mut bench = Bench::new(400, Kind::Gen1);
        (bench.endpoint, bench.delay) = (bare, Span::from_ns(60));
        bench.around.propagation = Span::from_ns((beside - 120) / 2);
        let all = flows(vec![Flow::new(0, 1, 1_344 * FRAMES)]);
        let mut scenario = bench.scenario(chain(0), all);
        let template = scenario.endpoints.template;
        scenario.endpoints.template = Box::new(move |site, spec| {
            spec.credits = Some(CreditSpec { size, ..CreditSpec::new(limit) });
            template(site, spec)
        });
        let results = run(&scenario);
        let had = results.flows[0].fct_ps.unwrap();
        let loop_ps = FRAME_PS + beside * 1_000;
        let first = FRAME_PS + 120_000 + (beside - 120) * 500;
        let is_full = frames * FRAME_PS >= loop_ps;
        let want = if is_full {
            first + (FRAMES - 1) * FRAME_PS
        } else {
            first + (FRAMES - 1) / frames * loop_ps + (FRAMES - 1) % frames * FRAME_PS
        };
        assert_eq!(had, want, "{limit} credits of {size} bytes, {beside} ns");
        assert_eq!(is_full, matches!(frames, 9 | 37 | 73), "{limit} credits");
        let credits = results.hosts[0].credits[0];
        assert_eq!((credits.vc, credits.used), (3, FRAMES * 1_374_u64.div_ceil(size.into())));
        assert!(credits.used - credits.returned <= limit.into(), "{credits:?}");
    }
}
