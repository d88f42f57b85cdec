//! LITE mode in each format: frames are sent once, without ACK; with an RC Link header, marks are answered by CNPs.
//!
//! Source: docs/spec/model.md §4 "LITE".

use weft_hosts::rclink::dcqcn::DcqcnSpec;
use weft_hosts::rclink::endpoint::Transport;
use weft_sim::results::network::HostResult;
use weft_sim::scenario::Checks;
use weft_sim::scenario::fault::Fault;

use super::*;

fn standard(spec: &mut EndpointSpec) {
    spec.frame.icrc = true;
    spec.transport = Transport::Lite;
}

fn afh(spec: &mut EndpointSpec) {
    spec.transport = Transport::Lite;
}

/// A run that is checked frame by frame, without an objection.
fn checked(mut scenario: Scenario) -> Results {
    scenario.options.checks = Checks::On;
    let results = run(&scenario);
    assert_eq!(results.objections, []);
    results
}

fn counter(results: &Results, name: &str) -> u64 {
    let of = |host: &HostResult| *host.counters.get(name).unwrap_or_else(|| panic!("{name}"));
    results.hosts.iter().map(of).sum()
}

/// As fast as with ACKs, of which there are none here.
#[test]
fn each_format_is_sent_once() {
    const FRAMES: u64 = 200;
    type Change = fn(&mut EndpointSpec);
    let formats: [(Kind, Change); 4] = [
        (Kind::Standard, standard),
        (Kind::Gen1, afh),
        (Kind::Gen2, afh),
        (Kind::Lite, lite_endpoint),
    ];
    for (kind, endpoint) in formats {
        let mut bench = Bench::new(400, kind);
        bench.endpoint = endpoint;
        if kind == Kind::Lite {
            bench.switch = lite_switch;
        }
        let both = vec![Flow::new(0, 1, 1_344 * FRAMES), Flow::new(1, 0, 1_344 * FRAMES)];
        let results = checked(bench.scenario(chain(1), flows(both)));
        for flow in &results.flows {
            assert_eq!(flow.fct_ps, Some(flow.ideal_fct_ps), "{kind:?}");
        }
        let counts = ["tx_frames", "rx_frames", "acks_tx", "naks_tx", "cnps_tx", "lost"];
        let want = [2 * FRAMES, 2 * FRAMES, 0, 0, 0, 0];
        assert_eq!(counts.map(|name| counter(&results, name)), want, "{kind:?}");
    }
}

/// A damaged frame is lost, counted, and not sent again.
#[test]
fn what_is_lost_stays_lost() {
    let mut bench = Bench::new(100, Kind::Standard);
    bench.endpoint = standard;
    let mut scenario = bench.scenario(chain(1), flows(vec![Flow::new(0, 1, 1_344 * 2_000)]));
    scenario.faults = vec![Fault::FrameError { link: 0, one_in: 50 }];
    let results = run(&scenario); // what checks frames objects to any loss of LITE
    let (sent, came) = (counter(&results, "tx_frames"), counter(&results, "rx_frames"));
    assert_eq!((sent, counter(&results, "resent")), (2_000, 0));
    assert!(came < sent && counter(&results, "lost") > 0, "{came} of {sent}");
    assert_eq!(results.flows[0].fct_ps, None);
}

/// Four to one, Standard: marks cause CNPs though nothing is acknowledged, and CNPs cut rates, so that fewer frames are
/// marked.
#[test]
fn marks_are_answered_and_cut_rates() {
    let of = |endpoint: fn(&mut EndpointSpec)| {
        let mut bench = Bench::new(400, Kind::Standard);
        bench.endpoint = endpoint;
        bench.switch = |switch| (switch.ecn.low_bytes, switch.ecn.high_bytes) = (20_000, 60_000);
        let pattern = Pattern::Incast { from: Vec::new(), to: 0, bytes: 1_344 * 1_000 };
        checked(bench.scenario(Topology::single(5).unwrap(), vec![workload(pattern)]))
    };
    let fixed = of(standard);
    let cut = of(|spec| {
        standard(spec);
        spec.rate = Some((Span::from_ns(4_096), 204_800));
        spec.dcqcn = Some(DcqcnSpec { least: 20_480, ..DcqcnSpec::DEFAULT });
        spec.cnp_merge = Span::from_us(4);
    });
    for results in [&fixed, &cut] {
        let counts = ["acks_tx", "lost", "overruns"].map(|name| counter(results, name));
        assert_eq!((counts, results.summary.dropped_frames), ([0; 3], 0));
        assert!(counter(results, "ecn_marked") > 0 && counter(results, "cnps_rx") > 0);
        assert_eq!(counter(results, "cnps_tx"), counter(results, "cnps_rx"));
    }
    let marked = [&fixed, &cut].map(|results| counter(results, "ecn_marked"));
    assert!(marked[1] * 3 < marked[0] * 2, "{marked:?}");
}
