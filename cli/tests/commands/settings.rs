//! The three networks that are shipped for comparison, each with one change.
//!
//! Checks latency, a receiver at half of the rate, PFC with and without rate control, and, over many seeds, that
//! lossless frames are never lost.
//!
//! Source: docs/spec/model.md §5; docs/spec/model-reference.md §4, §6, §10.

use std::collections::BTreeSet;
use std::path::Path;

use serde_json::Value;
use weft_dataplane::buffer::Headroom;
use weft_dataplane::time::{LinkRate, Span};

use crate::scenario_keys::{Runs, with};

const A: &str = "setting-a-direct.toml";
const B: &str = "setting-b-lite-pfc.toml";
const C: &str = "setting-c-standard-pfc-ecn.toml";
const C_RATE: &str = "setting-c-rate-control.toml";

fn shipped(name: &str) -> String {
    let dir = Path::new(env!("CARGO_MANIFEST_DIR")).join("../scenarios");
    std::fs::read_to_string(dir.join(name)).unwrap()
}

/// The results of `text`, whose books are even.
fn run(runs: &mut Runs, text: &str) -> Value {
    let value = runs.run(text).unwrap();
    for switch in value["switches"].as_array().unwrap() {
        assert_eq!(switch["ledger"]["imbalance_frames"], 0, "{}", switch["name"]);
    }
    assert_eq!(value["ending"]["why"], "done", "{}", value["ending"]);
    value
}

fn figure(value: &Value, pointer: &str) -> u64 {
    value.pointer(pointer).and_then(Value::as_u64).unwrap_or_else(|| panic!("nothing at {pointer}"))
}

/// A counter of all hosts.
fn counted(value: &Value, counter: &str) -> u64 {
    let hosts = value["hosts"].as_array().unwrap().iter();
    hosts.filter_map(|host| host["counters"][counter].as_u64()).sum()
}

/// Nothing is dropped, lost or sent again.
fn assert_whole(value: &Value, name: &str) {
    assert_eq!(figure(value, "/summary/dropped_frames"), 0, "{name}");
    for counter in ["lost", "overruns", "resent", "out_of_order", "duplicates", "foreign"] {
        assert_eq!(counted(value, counter), 0, "{name}: {counter}");
    }
}

/// The first flow alone, with so many frames in it.
fn alone(text: &str, frames: u64) -> String {
    let (first, _) = text.split_at(text.find("[[expect]]").unwrap());
    let second = first.match_indices("[[workload]]").nth(1);
    let first = second.map_or(first, |(at, _)| first.split_at(at).0);
    with(first, "workload.bytes", &(1_344 * frames).to_string())
}

#[test]
fn a_largest_frame_takes_its_time_over_each() {
    let mut runs = Runs::new();
    let cut = "'cut-through'";
    #[rustfmt::skip] // columns: setting, store-and-forward, cut-through
    let cases = [(A, 197_880, None), (B, 952_800, Some(900_480)), (C, 955_320, Some(901_320))];
    for (name, whole, through) in cases {
        let text = alone(&shipped(name), 1);
        assert_eq!(figure(&run(&mut runs, &text), "/flows/0/fct_ps"), whole, "{name}");
        if let Some(want) = through {
            let text = with(&text, "switch_defaults.forwarding_mode", cut);
            assert_eq!(figure(&run(&mut runs, &text), "/flows/0/fct_ps"), want, "{name}");
        }
    }
}

/// A receiver that drains half of the line holds its sender to that: by credits to a frame, by PFC within 1 %, with no
/// overflow.
#[test]
fn a_receiver_at_half_of_the_rate_holds_its_sender() {
    const FRAMES: u64 = 2_000;
    let slow = "[[fault]]\nkind = 'slow-receiver'\nhost = 'b1'\ndrain_gbps = 200\n";
    let mut runs = Runs::new();
    #[rustfmt::skip] // columns: setting, ps of a frame at the line's rate, bytes of a frame without FCS
    let cases = [(A, 27_880, 1_370), (B, 27_600, 1_356), (C, 28_440, 1_398)];
    for (name, frame, len) in cases {
        let mut results = |frames| {
            let text = alone(&shipped(name), frames);
            let text = match name {
                A => with(&text, "endpoint.drain_gbps", "200"),
                _ => text + slow,
            };
            run(&mut runs, &text)
        };
        let (short, long) = (results(FRAMES), results(2 * FRAMES));
        let took = figure(&long, "/flows/0/fct_ps") - figure(&short, "/flows/0/fct_ps");
        let want = 2 * frame * FRAMES;
        let off = if name == A { 2 * frame } else { want / 100 };
        assert!(took.abs_diff(want) <= off, "{name}: {took} ps, not {want}");
        assert_whole(&long, name);
        if name != A {
            // 32 frames + a round trip stop the sender; there is room for another round trip.
            let rate = LinkRate::gbps(400);
            let response = Span::from_ns(1_120);
            let trip = Headroom {
                rate,
                frame_len_max: len,
                overhead: true,
                latency: Span::ZERO,
                propagation: Headroom::propagation(11),
                response,
            };
            let trip = trip.bytes();
            let most = figure(&long, "/hosts/5/receive_buffer_max_bytes");
            let stop = 32 * len as u64 + trip;
            assert!((stop..=stop + trip).contains(&most), "{name}: {most}, stopped at {stop}");
            assert!(counted(&long, "pfc_tx") > 0, "{name}");
        }
    }
}

/// Neither slow switches and endpoints nor long cables lose a frame of a lossless priority: headroom counts the bytes
/// that each of them has in flight.
#[test]
fn lossless_priorities_stay_whole_however_slow_the_network_is() {
    let mut runs = Runs::new();
    let hops = shipped("pfc-hop-by-hop.toml");
    let hops = hops.split("[[expect]]").next().unwrap();
    let hops = hops.replace("buffer_size_mb = 1", "shared_cells = 2000");
    let hops = with(&hops, "workload.bytes", "21504000"); // 16,000 frames: many round trips
    let hops = with(&hops, "until", "'9ms'");
    #[rustfmt::skip] // columns: what is slow
    let cases: [&[(&str, &str)]; 6] = [
        &[("switch_defaults.fixed_latency_ns", "5000")],
        &[("switch_defaults.fixed_latency_ns", "50000")],
        &[("endpoint.delay", "'10us'")],
        &[("net.link_m", "2000")],
        &[("net.link_m", "2000"), ("switch_defaults.fixed_latency_ns", "5000"), ("net.rate_gbps", "800")],
        &[("switch_defaults.fixed_latency_ns", "20000"), ("switch_defaults.forwarding_mode", "'cut-through'")],
    ];
    for case in cases {
        let text = case.iter().fold(hops.clone(), |text, (key, value)| with(&text, key, value));
        let value = run(&mut runs, &text);
        assert!(figure(&value, "/summary/pfc_tx_frames") > 0, "{case:?}: PFC was needed");
        assert_whole(&value, &format!("{case:?}"));
    }
}

/// CNPs that cut rates leave PFC less to do: hosts are paused for 1/3.2 of the time.
#[test]
fn rate_control_shortens_pauses() {
    let mut runs = Runs::new();
    let paused = |value: &Value| figure(value, "/summary/host_paused_ps");
    let (without, with_rate) = (run(&mut runs, &shipped(C)), run(&mut runs, &shipped(C_RATE)));
    let marked = figure(&with_rate, "/summary/ecn_marked_frames");
    println!("{} ps without, {} ps with; {marked} marked", paused(&without), paused(&with_rate));
    assert!(marked > 0 && paused(&with_rate) > 0);
    assert!(10 * paused(&without) >= 32 * paused(&with_rate));
    assert_whole(&without, C);
    assert_whole(&with_rate, C_RATE);
}

/// Without PFC and without marks frames are dropped, and sent again until all are there.
#[test]
fn without_pfc_and_marks_frames_are_dropped() {
    let mut runs = Runs::new();
    let text = with(&shipped(C), "pfc.pfc_enabled", "false");
    let text = with(&text, "ecn.ecn_enabled", "false");
    let value = run(&mut runs, &text);
    let dropped = figure(&value, "/summary/dropped_frames");
    assert!(dropped > 0 && counted(&value, "resent") >= dropped, "{dropped}");
    assert_eq!(
        (figure(&value, "/summary/pfc_tx_frames"), figure(&value, "/summary/ecn_marked_frames")),
        (0, 0)
    );
}

/// Setting B with messages at random times between all its hosts, over seeds: nothing is ever lost.
fn lite_loses_nothing(seeds: core::ops::RangeInclusive<u64>) {
    let mut text = shipped(B);
    text.truncate(text.find("[[expect]]").unwrap());
    for (from, to) in [
        ("bytes = 1344000 # 1000 frames", "bytes = 134400"),
        ("bytes = 672000 # 500 frames each", "bytes = 336000"),
        ("start = \"100us\"", "start = \"2us\""),
    ] {
        assert!(text.contains(from), "{from}");
        text = text.replace(from, to);
    }
    text += "[[workload]]\nname = 'noise'\nkind = 'uniform'\nbytes = 6720\nload_gbps = 100\nduration = '6us'\n";
    let (mut runs, mut seen, mut paused) = (Runs::new(), BTreeSet::new(), 0);
    let count = seeds.end() - seeds.start() + 1;
    for seed in seeds {
        let value = run(&mut runs, &with(&text, "seed", &seed.to_string()));
        runs.forget();
        assert_whole(&value, &format!("seed {seed}"));
        let flows = figure(&value, "/summary/flows");
        assert_eq!(figure(&value, "/summary/flows_delivered"), flows, "seed {seed}");
        paused += u64::from(figure(&value, "/summary/pfc_tx_frames") > 0);
        seen.insert((
            flows,
            figure(&value, "/summary/fct_ps/p50"),
            figure(&value, "/latency/mean_ps"),
        ));
    }
    println!("{count} seeds, {} outcomes, PFC in {paused}", seen.len());
    assert_eq!(seen.len() as u64, count, "each seed has another outcome");
    assert!(paused * 10 >= count * 9, "PFC was needed in {paused} of {count}");
}

#[test]
fn lite_loses_nothing_over_200_seeds() {
    lite_loses_nothing(1..=200);
}

#[test]
#[ignore = "soak: run by `make soak`"]
fn soak_lite_loses_nothing_over_10_000_seeds() {
    lite_loses_nothing(1_001..=11_000);
}
