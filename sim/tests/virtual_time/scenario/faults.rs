//! Faults act at their instants: scenarios with a fault are compared with the same without.
//!
//! Source: docs/spec/model.md §3.

use weft_dataplane::time::LinkRate;
use weft_dataplane::types::PriSet;
use weft_sim::results::Ending;
use weft_sim::scenario::fault::Fault;
use weft_sim::scenario::flow::Flow;
use weft_sim::topology::Topology;

use super::*;

const fn us(us: u64) -> Instant {
    Instant::from_ns(1_000 * us)
}

fn pair(bytes: u64, faults: Vec<Fault>) -> Results {
    let mut scenario =
        Bench::new(100, Kind::Standard).scenario(chain(1), flows(vec![Flow::new(0, 1, bytes)]));
    scenario.faults = faults;
    run(&scenario)
}

#[test]
fn damaged_frames_are_dropped_and_sent_again() {
    let one_in = 100;
    let results = pair(1_344 * 10_000, vec![Fault::FrameError { link: 0, one_in }]);
    assert_eq!(results.ending, Ending::Done);
    let dropped = results.switches[0].ports[0].drops["fcs"];
    // Frames sent again are damaged, too: about one in 100 of all that were sent.
    let sent = results.hosts[0].counters["tx_frames"];
    assert!((sent / 130..=sent / 75).contains(&dropped), "{dropped} of {sent}");
    assert!(results.summary.resent_frames >= dropped);
    let of_flows = results.flows.iter().map(|flow| flow.resent_frames.unwrap()).sum::<u64>();
    assert_eq!(of_flows, results.summary.resent_frames, "each is of a flow");
    let of_acks = results.hosts[0].counters["drops_fcs"];
    assert!(of_acks > 0, "the way back is damaged, too");
    let bits = pair(1_344 * 10_000, vec![Fault::BitError { link: 1, one_in_bits: 1_000_000 }]);
    let damaged = bits.hosts[1].counters["drops_fcs"];
    let sent = bits.hosts[0].counters["tx_frames"];
    // 1,394 bytes with FCS are 11,184 bits: one frame in 89.
    assert!((sent / 115..=sent / 68).contains(&damaged), "{damaged} of {sent}");
    assert_eq!(pair(1_344 * 100, Vec::new()).summary.resent_frames, 0);
}

#[test]
fn a_link_is_down_for_as_long_as_it_is_said() {
    let bytes = 1_344 * 2_000; // 228 us
    let down = |until| vec![Fault::LinkDown { link: 1, from: us(100), until }];
    let without = pair(bytes, Vec::new()).flows[0].fct_ps.unwrap();
    let results = pair(bytes, down(Some(us(150))));
    assert_eq!(results.ending, Ending::Done);
    let with = results.flows[0].fct_ps.unwrap();
    assert!(with > without + 50_000_000, "{with}, not 50 us more than {without}");
    assert!(results.summary.resent_frames > 0);
    let never = pair(bytes, down(None));
    let Ending::Stalled { waiting } = never.ending else { panic!("{:?}", never.ending) };
    assert!(
        waiting.iter().any(|it| it.who == "flow 0 from h0" && it.on.contains("h1")),
        "{waiting:?}"
    );
    assert_eq!(never.flows[0].delivered_ps, None);
    assert_eq!(never.switches[0].ledger.imbalance_frames, 0);
}

#[test]
fn a_slow_receiver_slows_its_sender() {
    let bytes = 1_344 * 4_000;
    let drain = LinkRate::gbps(50);
    let results = pair(bytes, vec![Fault::SlowReceiver { host: 1, drain }]);
    let without = pair(bytes, Vec::new()).flows[0].fct_ps.unwrap();
    let with = results.flows[0].fct_ps.unwrap();
    assert!(with > without * 17 / 10, "{with} ps against {without}");
    assert!(results.hosts[1].counters["pfc_tx"] > 0);
    assert_eq!((results.summary.dropped_frames, results.summary.resent_frames), (0, 0));
}

#[test]
fn a_pause_storm_holds_everything_up_until_it_ends() {
    let bytes = 1_344 * 1_000;
    let classes = PriSet::from_bits(0xFF);
    let storm = Fault::PauseStorm { host: 1, classes, from: us(20), until: us(400) };
    let mut bench = Bench::new(100, Kind::Standard);
    bench.switch = |switch| switch.pfc.watchdog_detect = Span::ZERO;
    let mut scenario = bench.scenario(chain(1), flows(vec![Flow::new(0, 1, bytes)]));
    scenario.faults = vec![storm];
    let results = run(&scenario);
    let without = pair(bytes, Vec::new()).flows[0].fct_ps.unwrap();
    let with = results.flows[0].fct_ps.unwrap();
    assert!(
        with.abs_diff(without + 380_000_000) < 1_000_000,
        "{with}, not 380 us more than {without}"
    );
    assert!(results.hosts[1].counters["storm_pfc_tx"] >= 2);
    let paused: u64 =
        results.switches[0].ports[1].queues.iter().map(|it| it.paused_ps).max().unwrap();
    assert!(paused.abs_diff(380_000_000) < 1_000_000, "{paused}");
}

#[test]
fn faults_at_what_is_not_there_are_refused() {
    let mut scenario =
        Bench::new(100, Kind::Standard).scenario(chain(1), flows(vec![Flow::new(0, 1, 1)]));
    scenario.faults = vec![Fault::LinkDown { link: 2, from: us(0), until: None }];
    let error = try_run(&scenario, 1).unwrap_err().to_string();
    assert_eq!(error, "fault 0 is at link 2: expected 0 to 1");
}

/// A ring with PFC is refused. If it is allowed and buffers are short, it stalls, and the results say so.
#[test]
fn a_circle_of_pfc_is_refused_or_told() {
    let to = |from: u16| (from + 2) % 5;
    let all = (0..5).map(|from| Flow::new(from, to(from), 1_344 * 3_000)).collect();
    let mut bench = Bench::new(100, Kind::Standard);
    bench.setup.buffer_bytes = 300 << 10;
    bench.switch = |switch| switch.pfc.watchdog_detect = Span::ZERO;
    let mut scenario = bench.scenario(Topology::ring(5, 5).unwrap(), flows(all));
    let error = try_run(&scenario, 1).unwrap_err().to_string();
    assert!(error.starts_with("PFC may wait for itself in a circle: sw"), "{error}");
    scenario.options.pfc_circles = true;
    let results = run(&scenario);
    let Ending::Stalled { waiting } = results.ending else { panic!("{:?}", results.ending) };
    let circle: Vec<_> = waiting.iter().filter(|it| it.on.contains("in a circle of 5")).collect();
    assert_eq!(circle.len(), 5, "{waiting:?}");
}
