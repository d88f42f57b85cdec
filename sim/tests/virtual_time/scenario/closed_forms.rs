//! What runs take, against closed forms.
//!
//! Shape: a scenario → picoseconds that a formula gives.
//! Units: picoseconds, bytes of payload.
//! Source: docs/spec/model.md §2: (N + 1)(S + P) + N·F for the first frame, S for each one after it.

use weft_dataplane::time::LinkRate;
use weft_hosts::frames::Kind;
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

/// Payload over wire time of every format, at 400 Gb/s over one switch: 200 frames take 199 wire times longer than one, and
/// that is the goodput of the table, in hundredths of Gb/s.
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
        (Kind::Lite,     false,    64, 25_600),
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
        let each = (time(200) - time(1)) / 199;
        let had = (payload * 8 * 100_000 + each / 2) / each;
        assert!(had.abs_diff(goodput) <= 1, "{kind:?} {vlan} {payload}: {had}, not {goodput}");
    }
}

/// A flow over links of three rates and lengths takes what the slowest link needs, and its way.
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

/// N senders and one receiver: the last byte is in when the receiver's link has carried all, one frame and the way later.
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

/// A ring of 8: 14 steps, each of which takes its frames and the way of the last one.
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

/// Both ways at once, an ACK for each frame takes its share of the line: 356.97 Gb/s of 400.
#[test]
fn acknowledgements_share_the_line() {
    const FRAMES: u64 = 4_000;
    let mut bench = Bench::new(400, Kind::Standard);
    bench.endpoint = |spec| {
        spec.frame.icrc = true;
        spec.transport = Transport::Reliable { timeout: Span::from_ns(4_096 << 14) };
    };
    let both = vec![Flow::new(0, 1, 1_344 * FRAMES), Flow::new(1, 0, 1_344 * FRAMES)];
    let results = run(&bench.scenario(chain(1), flows(both)));
    for flow in &results.flows {
        let goodput = flow.bytes * 8 * 100_000 / flow.fct_ps.unwrap();
        assert!(goodput.abs_diff(35_697) < 120, "{goodput}");
    }
}

/// Cut-through over n switches: S + (n + 1)P + n(F + H) for one frame, H the time of 72 bytes; frames one after the other
/// take no less than S more each.
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
