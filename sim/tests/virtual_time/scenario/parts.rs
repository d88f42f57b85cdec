//! Latencies by their parts: each part equals its closed form, and together they add up.
//!
//! Source: docs/spec/model.md §2, §4, §6.

use weft_dataplane::types::PriSet;
use weft_hosts::rclink::credits::CreditSpec;
use weft_sim::results::network::LatencyParts;
use weft_sim::scenario::fault::Fault;

use super::*;

/// Wire time of the largest Standard frame with ICRC at 400 Gb/s.
const FRAME: u64 = 28_440;
const CABLE: u64 = 50_000;
const SWITCH: u64 = 300_000;
const END: u64 = 60_000;

fn bench(kind: Kind) -> Bench {
    let mut bench = Bench::new(400, kind);
    bench.delay = Span::from_ps(END);
    if kind == Kind::Standard {
        bench.endpoint = |spec| spec.frame.icrc = true;
    }
    bench
}

/// The parts of all frames, which must add up.
fn parts(mut scenario: Scenario) -> LatencyParts {
    scenario.options.latency_parts = true;
    let results = run(&scenario);
    let of_all = results.parts.unwrap();
    for parts in results.hosts.iter().filter_map(|host| host.parts) {
        assert_eq!(parts.imbalance_ps(), 0);
    }
    assert_eq!(of_all.imbalance_ps(), 0);
    if results.summary.resent_frames == 0 {
        assert_eq!(of_all.frames, results.latency.frames);
        let held = of_all.total_ps - of_all.credit_ps - of_all.rate_mask_ps;
        let sum = results.latency.mean_ps * results.latency.frames;
        assert!(
            results.hosts.iter().any(|host| host.paused_ps > 0)
                || held.abs_diff(sum) <= results.latency.frames
        );
    }
    of_all
}

#[test]
fn a_frame_alone_is_sent_and_carried() {
    for cut_through in [false, true] {
        for switches in [0, 1, 3] {
            let mut bench = bench(Kind::Standard);
            bench.around.cut_through = cut_through;
            let had = parts(bench.scenario(chain(switches), flows(vec![Flow::new(0, 1, 1_344)])));
            let count = switches as u64;
            // The header takes 72 bytes.
            let sent = if cut_through { FRAME + count * 1_440 } else { (count + 1) * FRAME };
            let want = LatencyParts {
                frames: 1,
                endpoint_ps: 2 * END,
                serialisation_ps: sent,
                wire_ps: (count + 1) * CABLE + count * SWITCH,
                total_ps: 2 * END + sent + (count + 1) * CABLE + count * SWITCH,
                ..LatencyParts::default()
            };
            assert_eq!(had, want, "{switches} switches, {cut_through}");
        }
    }
}

/// Of frames that arrive together, each waits for those before it.
#[test]
fn frames_wait_for_each_other() {
    let senders = 5_u16;
    let all = (0..senders).map(|from| Flow::new(from, senders, 1_344)).collect();
    let had = parts(bench(Kind::Standard).scenario(Topology::single(6).unwrap(), flows(all)));
    assert_eq!(had.voq_ps + had.egress_ps, FRAME * (1 + 2 + 3 + 4), "{had:?}");
    assert!(had.egress_ps > 0 && had.voq_ps > 0, "{had:?}");
    assert_eq!((had.paused_ps, had.credit_ps, had.rate_mask_ps), (0, 0, 0));
    assert_eq!(had.serialisation_ps, 5 * 2 * FRAME);
}

/// A frame that arrives while its output is paused waits for the end of the pause, and for nothing else.
#[test]
fn a_paused_output_is_told_from_a_busy_one() {
    let mut scenario =
        bench(Kind::Standard).scenario(chain(1), flows(vec![Flow::new(0, 1, 1_344)]));
    let (classes, until) = (PriSet::from_bits(0xFF), Instant::from_ns(50_000));
    scenario.faults = vec![Fault::PauseStorm { host: 1, classes, from: Instant::ZERO, until }];
    let had = parts(scenario);
    assert_eq!((had.voq_ps, had.egress_ps), (0, 0), "{had:?}");
    let other = 2 * END + 2 * FRAME + 2 * CABLE + SWITCH;
    assert_eq!(had.paused_ps, had.total_ps - other);
    assert!((49_000_000..51_000_000).contains(&had.paused_ps), "{had:?}");
}

/// With few credits one frame passes a loop, with a low rate one a window: the rest is waiting.
#[test]
fn credits_and_rates_hold_frames_at_their_sender() {
    const FRAMES: u64 = 20;
    let one_way = || flows(vec![Flow::new(0, 1, 1_344 * FRAMES)]);
    let mut scenario = bench(Kind::Gen1).scenario(chain(0), one_way());
    scenario.endpoints.template = Box::new(|_, spec| {
        spec.frame.icrc = true;
        spec.credits = Some(CreditSpec::new(11));
        Ok(())
    });
    let had = parts(scenario);
    assert_eq!(had.credit_ps, (FRAMES - 1) * (27_880 + 220_000), "{had:?}");
    assert_eq!((had.rate_mask_ps, had.paused_ps), (0, 0));
    let mut bench = bench(Kind::Standard);
    bench.endpoint = |spec| spec.rate = Some((Span::from_ns(4_096), 1_000));
    let had = parts(bench.scenario(chain(0), one_way()));
    assert!(had.rate_mask_ps > (FRAMES - 1) * 4_000_000, "{had:?}");
    assert_eq!((had.credit_ps, had.paused_ps), (0, 0));
}

/// Where inputs are paused the parts of an incast still add up, and frames wait mostly for PFC and in queues.
#[test]
fn an_incast_is_taken_apart() {
    let mut bench = bench(Kind::Standard);
    bench.setup.buffer_bytes = 4 << 20;
    let all = (0..8).map(|from| Flow::new(from, 8, 1_344 * 300)).collect();
    let had = parts(bench.scenario(Topology::single(9).unwrap(), flows(all)));
    assert_eq!(had.frames, 2_400);
    assert!(had.paused_ps > 0 && had.voq_ps > 0 && had.egress_ps > 0, "{had:?}");
    assert_eq!(had.serialisation_ps, 2_400 * 2 * FRAME);
    assert_eq!(had.wire_ps, 2_400 * (2 * CABLE + SWITCH));
}
