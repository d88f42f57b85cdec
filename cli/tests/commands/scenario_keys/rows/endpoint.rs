//! Keys of endpoints.
//!
//! Source: docs/spec/model.md §4; docs/spec/model-reference.md §1, §10.

use super::*;

/// Two endpoints at one cable with credits: GEN1, c = 11, a loop of 247.88 ns, 4 frames a loop.
const CREDITS: &str = "
[net]
generate = 'direct'
[endpoint]
pkt_format = 'gen1'
flow_control_mode = 'cbfc'
credit_limit = 44
[[workload]]
kind = 'point-to-point'
from = 'h0'
to = 'h1'
bytes = 134400
";

/// Two endpoints at one cable with frames of TYPE2: a frame of 1,366 bytes, 170 ns there, an ACK and 170 ns back.
const TYPE2: &str = "
[net]
generate = 'direct'
[endpoint]
pkt_format = 'gen1'
pkt_type = 'type2'
[[workload]]
kind = 'point-to-point'
from = 'h0'
to = 'h1'
bytes = 134400
";

/// Frames are lost on the way, and a receiver is slow where nothing stops its sender.
const SLOW: &str = "
[net]
generate = 'single'
hosts = 2
[pfc]
pfc_enabled = false
[[workload]]
kind = 'point-to-point'
from = 'h0'
to = 'h1'
bytes = 1344000
[[fault]]
kind = 'slow-receiver'
host = 'h1'
drain_gbps = 100
";

/// The last frame is lost: nothing comes after it that would tell.
const LOST: &str = "
[net]
generate = 'single'
hosts = 2
[[workload]]
kind = 'point-to-point'
from = 'h0'
to = 'h1'
bytes = 13440
[[fault]]
kind = 'link-down'
link = ['h1', 'sw']
from = '900ns'
until = '2us'
";

/// Four to one with rates that CNPs cut.
const DCQCN: &str = "
until = '5ms'
[net]
generate = 'single'
hosts = 5
[buffer]
queue_capacity_bytes = 100000
[ecn]
ecn_threshold_low = 10
ecn_threshold_high = 20
[endpoint]
controller = 'dcqcn'
length_thr = 204800
cnp_merge_us = 4
dcqcn_timer = '4us'
dcqcn_gain = 64
dcqcn_additive_bytes = 4096
dcqcn_hyper_bytes = 10240
dcqcn_least_bytes = 2048
[[workload]]
kind = 'incast'
to = 'h0'
bytes = 1344000
";

/// One host with messages to three others.
const FAN: &str = "
[net]
generate = 'single'
hosts = 4
[endpoint]
banks = 2
[[workload]]
name = 'odd'
kind = 'point-to-point'
from = 'h0'
to = 'h1'
bytes = 134400
[[workload]]
name = 'even'
kind = 'point-to-point'
from = 'h0'
to = 'h2'
bytes = 134400
[[workload]]
name = 'also-odd'
kind = 'point-to-point'
from = 'h0'
to = 'h3'
bytes = 134400
";

pub fn rows() -> Vec<Row> {
    [frames(), channels(), credits(), times(), rates()].into_iter().flatten().collect()
}

/// Ten frames over one switch: 11 S + 720 ns.
#[rustfmt::skip] // columns: key, value, scenario, what is looked at, what it becomes
fn frames() -> Vec<Row> {
    vec![
        row("endpoint.pkt_format", "'gen1'", PAIR, LAST, Is("1026680")),
        row("endpoint.pkt_format", "'lite'", PAIR, LAST, Is("1023600")),
        row("endpoint.pkt_type", "'type3'", PAIR, Hosts("acks_tx"), Is("0")),
        row("endpoint.outstanding", "1", TYPE2, LAST, Is("36776320")), // 99 x 369.48 + 197.8 ns
        row("endpoint.local_credits", "32", TYPE2, LAST, Is("18330120")), // 2 of 11: 49 x 369.48 + 27.8 + 197.8 ns
        row("endpoint.payload_bytes", "672", PAIR, LAST, Is("1035000")), // 21 x 15 + 720
        row("endpoint.lite_mode", "true", PAIR, Hosts("acks_tx"), Is("0")),
        row("endpoint.lite_mode", "true\npkt_format = 'standard'", PAIR, Hosts("acks_tx"), Is("0")),
        row("endpoint.lite_mode", "true\npkt_format = 'standard'", INCAST, Hosts("acks_tx"), Is("0")),
        row("endpoint.vlan_enabled", "true", PAIR, LAST, Is("1033720")),
        row("endpoint.ecn_capable", "false", INCAST, MARKED, Is("0")),
        row("endpoint.icrc", "false", PAIR, LAST, Is("1031960")),
        row("endpoint.slots", "2", PAIR, LAST, More),
    ]
}

#[rustfmt::skip] // columns: key, value, scenario, what is looked at, what it becomes
fn channels() -> Vec<Row> {
    const EVEN: Look = At("/flows/1/fct_ps");
    vec![
        row("endpoint.num_vc", "4", PAIR, LAST, Refused("endpoint.ack_vc: expected 0..=3 (num_vc is 4), found 5")),
        row("endpoint.request_vc", "1", PAIR, Pris(1), Is("[1]")), // VC 3 is priority 2
        row("endpoint.ack_vc", "4", PAIR, Pris(0), Is("[2]")), // VC 5 is priority 3
        row("endpoint.banks", "2", PAIR, Pris(1), Is("[0]")), // host 1 is of bank 1, which is on VC 2: priority 0
        row("endpoint.bank_turns", "true", FAN, EVEN, Less), // half of the line, not a third
    ]
}

/// A hundred frames, n a loop: 170 + 27.88 + ((99 div n) 247.88 + (99 mod n) 27.88) ns.
#[rustfmt::skip] // columns: key, value, scenario, what is looked at, what it becomes
fn credits() -> Vec<Row> {
    vec![
        row("endpoint.flow_control_mode", "'cbfc'\ncredit_limit = 11", PAIR, LAST, Is("13168800")).beside(&["pfc.pfc_enabled=false"]), // 776.88 + 9 (776.88 + 600) ns
        row("endpoint.flow_control_mode", "'none'", PAIR, LAST, Refused("pfc.pfc_enabled = false")),
        row("endpoint.credit_limit", "22", CREDITS, LAST, Is("12371880")), // 2 a loop
        row("endpoint.credit_size", "2048", CREDITS, LAST, Is("2958000")), // one each: the line
        row("endpoint.credit_overhead_bytes", "128", CREDITS, LAST, Is("8377920")), // 12 each: 3 a loop
        row("endpoint.uf_limit", "2", CREDITS, LAST, Is("8377920")),
        row("endpoint.dyn_uf", "true", CREDITS, LAST, Less).beside(&["endpoint.uf_limit=2"]),
        row("endpoint.drain_gbps", "50", CREDITS, LAST, More),
    ]
}

#[rustfmt::skip] // columns: key, value, scenario, what is looked at, what it becomes
fn times() -> Vec<Row> {
    vec![
        row("endpoint.delay", "'160ns'", PAIR, LAST, Is("1232840")),
        row("endpoint.delay", "'160ns'", PAIR, LAST, Refused("t_paxi_tx, t_paxi_rx")).beside(&["endpoint.t_paxi_tx='60ns'", "endpoint.t_paxi_rx='60ns'"]),
        row("endpoint.t_paxi_tx", "'30ns'", PAIR, LAST, Is("1002840")), // for 60
        row("endpoint.t_rclink_tx", "'40ns'", PAIR, LAST, Is("1042840")).beside(&["endpoint.t_paxi_tx='30ns'"]),
        row("endpoint.t_cesoc_tx", "'50ns'", PAIR, LAST, Is("1022840")),
        row("endpoint.t_paxi_rx", "'30ns'", PAIR, LAST, Is("1002840")),
        row("endpoint.t_rclink_rx", "'40ns'", PAIR, LAST, Is("1042840")).beside(&["endpoint.t_cesoc_rx='30ns'"]),
        row("endpoint.t_cesoc_rx", "'50ns'", PAIR, LAST, Is("1022840")),
        row("endpoint.ack_delay", "'1us'", PAIR, ACKNOWLEDGED, More),
        row("endpoint.cnp_delay", "'5us'", INCAST, Hosts("cnps_tx"), Less),
        row("endpoint.cnp_merge_us", "0", INCAST, Hosts("cnps_merged"), Less),
        row("endpoint.ack_timeout", "4", LOST, LAST, Less),
        row("endpoint.rnr_timer", "1", SLOW, Hosts("rnrs_tx"), More),
    ]
}

#[rustfmt::skip] // columns: key, value, scenario, what is looked at, what it becomes
fn rates() -> Vec<Row> {
    vec![
        row("endpoint.length_thr", "2804", PAIR, LAST, More), // two frames a window of 4.096 us
        row("endpoint.rate_window", "1", PAIR, LAST, More).beside(&["endpoint.length_thr=2804"]),
        row("endpoint.cc_window_ns", "5000", PAIR, LAST, More).beside(&["endpoint.length_thr=2804"]),
        row("endpoint.controller", "'dcqcn'\ndcqcn_least_bytes = 2048", INCAST, PAUSED, Less).beside(&["endpoint.length_thr=204800", "endpoint.cnp_merge_us=1"]),
        row("endpoint.dcqcn_gain", "4", DCQCN, LAST, More),
        row("endpoint.dcqcn_shift", "3", DCQCN, LAST, Less),
        row("endpoint.dcqcn_timer", "'40us'", DCQCN, LAST, More),
        row("endpoint.dcqcn_fast_rounds", "0", DCQCN, LAST, Less),
        row("endpoint.dcqcn_additive_bytes", "0", DCQCN, LAST, Other),
        row("endpoint.dcqcn_hyper_bytes", "0", DCQCN, LAST, More).beside(&["endpoint.dcqcn_fast_rounds=1"]),
        row("endpoint.dcqcn_least_bytes", "102400", DCQCN, LAST, Less),
    ]
}
