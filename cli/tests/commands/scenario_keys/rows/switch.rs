//! Keys of switches, their buffers, crossbars, ECN and PFC.
//!
//! Source: docs/spec/model.md §2; docs/spec/pipeline.md §4, §6, §8, §9.

use super::*;

/// A host that stops its switch for 1.5 ms, with a short one after it.
const STORM: &str = "
until = '8ms'
[net]
generate = 'single'
hosts = 3
[pfc]
watchdog_detect_ms = 1
watchdog_restore_ms = 1
[endpoint]
ack_timeout = 4
[[workload]]
kind = 'point-to-point'
from = 'h0'
to = 'h1'
bytes = 134400
[[fault]]
kind = 'pause-storm'
host = 'h1'
from = '0s'
until = '2500us'
[[fault]]
kind = 'pause-storm'
host = 'h1'
from = '4ms'
until = '6ms'
";

pub fn rows() -> Vec<Row> {
    [general(), buffer(), crossbar(), ecn(), pfc()].into_iter().flatten().collect()
}

#[rustfmt::skip] // columns: key, value, scenario, what is looked at, what it becomes
fn general() -> Vec<Row> {
    vec![
        row("switch.num_priorities", "8", PAIR, Pris(1), Is("[3]")), // VC 3 is priority 1 of 4
        row("switch.forwarding_mode", "'cut-through'", PAIR, LAST, Is("1005840")), // S less, 1.44 ns for the header
        row("switch.fixed_latency_ns", "300", PAIR, LAST, Is("832840")),
        row("switch.t_ingress_ns", "50", PAIR, LAST, Is("592840")).beside(&["switch.t_ingress_ns=200", "switch.t_crossbar_ns=10"]),
        row("switch.t_crossbar_ns", "50", PAIR, LAST, Is("782840")).beside(&["switch.t_ingress_ns=200", "switch.t_crossbar_ns=10"]),
        row("switch.wire_overhead", "false", PAIR, LAST, Is("1028440")), // 28.04 for 28.44 ns
        row("switch.max_frame", "1000", PAIR, LAST, Refused("switch.max_frame: expected at least 1398")),
        row("switch.seed", "9", INCAST, MARKED, Other).beside(&["ecn.ecn_threshold_low=0", "ecn.ecn_threshold_high=100"]),
    ]
}

#[rustfmt::skip] // columns: key, value, scenario, what is looked at, what it becomes
fn buffer() -> Vec<Row> {
    const VOQ: &[&str] = &["endpoint.request_vc=0"];
    vec![
        row("buffer.buffer_size_mb", "16", INCAST, PFC_TX, Is("0")),
        row("buffer.shared_cells", "65536", INCAST, PFC_TX, Refused("needs with headroom and reserves; leave out one of both")),
        row("buffer.shared_cells", "2000", UNSIZED, PFC_TX, Other),
        row("buffer.cell_bytes", "128", INCAST, PFC_TX, Less), // frames of headroom take less room
        row("buffer.buffer_sharing", "'static'", LOSSY, DROPPED, More),
        row("buffer.dt_alpha", "0.125", INCAST, PAUSED, More),
        row("buffer.voq_reserve_bytes", "1024", LOSSY, DROPPED, Other).beside(VOQ),
        row("buffer.pg_reserve_bytes", "16384", INCAST, PFC_TX, Other),
        row("buffer.headroom_bytes", "2048", INCAST, DROPPED, More).beside(&["buffer.dt_alpha=0.125", "workload.bytes=1344000"]),
        row("buffer.peer_response_us", "0.6", INCAST, PFC_TX, More),
        row("buffer.cable_m", "30", INCAST, PFC_TX, More),
        row("buffer.xon_offset_bytes", "30000", INCAST, PAUSED, More),
        row("buffer.queue_capacity_bytes", "800000", INCAST, MARKED, Less),
    ]
}

#[rustfmt::skip] // columns: key, value, scenario, what is looked at, what it becomes
fn crossbar() -> Vec<Row> {
    const TWO: &str = "
[net]
generate = 'single'
hosts = 8
[[workload]]
kind = 'uniform'
bytes = 13440
load_gbps = 300
duration = '10us'
";
    const MEAN: Look = At("/latency/mean_ps");
    const SLOW: &[&str] = &["crossbar.speedup=1"];
    vec![
        row("crossbar.iterations", "1", TWO, MEAN, Other).beside(SLOW),
        row("crossbar.discipline", "'weighted'", TWO, ACKNOWLEDGED, Other).beside(SLOW),
        row("crossbar.weights", "[1, 1, 8, 1]", TWO, ACKNOWLEDGED, Other).beside(&["crossbar.speedup=1", "crossbar.discipline='weighted'"]),
        row("crossbar.speedup", "1", TWO, MEAN, More),
        row("crossbar.egress_queue_frames", "1", TWO, MEAN, Other),
    ]
}

#[rustfmt::skip] // columns: key, value, scenario, what is looked at, what it becomes
fn ecn() -> Vec<Row> {
    vec![
        row("ecn.ecn_enabled", "false", INCAST, MARKED, Is("0")),
        row("ecn.ecn_threshold_low", "1", INCAST, MARKED, More),
        row("ecn.ecn_threshold_high", "51", INCAST, MARKED, More),
        row("ecn.max_percent", "0", INCAST, MARKED, Less),
        // All that hosts send is UDP to a Standard port, of which both mark the same.
        row("ecn.mark", "'standard'", INCAST, Work(mark, "cli/tests/commands/config_keys/mod.rs::every_key_acts_or_is_refused"), Is("Standard")),
    ]
}

#[rustfmt::skip] // columns: key, value, scenario, what is looked at, what it becomes
fn pfc() -> Vec<Row> {
    const BY_QUEUE: &[&str] = &["pfc.mode='egress-queue'"];
    const STORMS: Look = At("/switches/0/ports/1/queues/2/storms");
    vec![
        row("pfc.pfc_enabled", "false", INCAST, PFC_TX, Is("0")),
        row("pfc.pfc_priorities", "[1]", INCAST, PFC_TX, Is("0")),
        row("pfc.pri_to_pfc", "[[0, 2], [1], [7], [5, 6]]", INCAST, PAUSED, Is("0")), // requests are of class 3
        row("pfc.mode", "'egress-queue'", INCAST, PFC_TX, Other),
        row("pfc.pfc_threshold", "95", INCAST, PAUSED, Less).beside(BY_QUEUE),
        row("pfc.pfc_release", "20", INCAST, PFC_TX, Less).beside(BY_QUEUE),
        row("pfc.watchdog_detect_ms", "0", STORM, STORMS, Is("0")),
        row("pfc.watchdog_restore_ms", "3", STORM, STORMS, Is("1")), // both are one
        row("pfc.watchdog_action", "'forward'", STORM, DROPPED, Is("0")),
    ]
}

/// Which frames the first switch marks.
fn mark(scenario: &weft_sim::scenario::Scenario) -> String {
    let network = weft_sim::run::build(scenario).unwrap();
    let snapshot = network.switches().next().unwrap().core().snapshot.load();
    format!("{:?}", snapshot.config.ecn.mark)
}
