//! Rows of the switch as a whole, its threads, formats, classes, forwarding, buffer, crossbar, marks and PFC.
//!
//! Source: docs/spec/pipeline.md §1 to §9, §12.

use weft_hosts::frames::Kind;

use super::super::run::Flow;
use super::{OTHER, Row, TIGHT, count, first_ns, formats, live, pauses, pri, refused, sent};

const RUNNING: &str = "cli/tests/running.rs::a_running_switch_shows_and_changes_its_state";
const PLACED: &str = "cli/tests/running/placement.rs::workers_are_bound_and_have_a_priority";
const CALLS: &str = "tests/tests/live/calls.rs::af_packet_takes_one_call_for_sixteen_frames";
const SAI: &str = "cli/tests/running.rs::a_running_switch_is_held_and_read_by_sai";
const PRIORITY_GROUPS: &str = "control/src/sai/tests.rs::counters_are_what_the_switch_counts";
const MARKED: &str = "/ports/1/priorities/0/ecn_marked";
const MARKS: &[&str] = &["buffer.queue_capacity_bytes=100000"];
const EARLY: &str = "/drops/wred";
/// Marks are off: all frames are those that ECN does not mark.
const LOSSY: &[&str] = &["buffer.queue_capacity_bytes=100000", "ecn.ecn_enabled=false"];
const WRED: &[&str] =
    &["buffer.queue_capacity_bytes=100000", "ecn.ecn_enabled=false", "wred.wred_enabled=true"];
const SHARED: &str = "/buffer/shared_total_cells";

/// All of these.
pub fn rows() -> Vec<Row> {
    general().into_iter().chain(queueing()).collect()
}

#[rustfmt::skip] // columns: key, value, flow, what is looked at, what it is then
fn general() -> Vec<Row> {
    let lossy = Flow::Incast(0, 4_791);
    let lossless = Flow::Incast(8, 4_791);
    vec![
        live("switch.name", "\"other\"", |c| c.run.socket.ends_with("other/mgmt.sock").to_string(), "true", RUNNING),
        sent("switch.name", "\"other\"", lossless, |run| pauses(run)[0].1.clone(), OTHER).beside(TIGHT),
        sent("switch.num_priorities", "8", Flow::Ten(56), pri, "7"),
        sent("switch.forwarding_mode", "\"cut-through\"", Flow::Ten(0), first_ns, OTHER),
        refused("switch.forwarding_mode", "\"cut-through\"", "allow_store_and_forward = true"),
        refused("switch.allow_store_and_forward", "false", "allow_store_and_forward = true").beside(&["switch.forwarding_mode=\"cut-through\"", "switch.allow_store_and_forward=true"]),
        sent("switch.fixed_latency_ns", "1500", Flow::Ten(0), first_ns, OTHER),
        sent("switch.t_ingress_ns", "50", Flow::Ten(0), first_ns, OTHER).beside(&["switch.t_ingress_ns=200", "switch.t_crossbar_ns=10"]),
        sent("switch.t_crossbar_ns", "50", Flow::Ten(0), first_ns, OTHER).beside(&["switch.t_ingress_ns=200", "switch.t_crossbar_ns=10"]),
        sent("switch.wire_overhead", "false", Flow::Ten(0), first_ns, OTHER),
        count("switch.max_frame", "200", Flow::Ten(0), "/drops/too_long", "10"),
        live("switch.tx_ring_frames", "8", |c| c.switch.buffer.headroom_cells[0].to_string(), OTHER, "dataplane/tests/live_kernel/ports.rs::a_frame_that_the_far_end_never_takes_does_not_block_the_port"),
        count("switch.seed", "2", lossy, "/trace_hash", OTHER).beside(MARKS),

        live("run.workers", "2", |c| c.run.workers.to_string(), "2", "dataplane/tests/pipeline/workers.rs::frames_that_cross_between_workers_stay_in_order_and_in_the_books"),
        live("run.cores", "[0]", |c| format!("{:?}", c.run.cores), "[0]", PLACED),
        live("run.priority", "-5", |c| format!("{:?}", c.run.priority), "Some(Nice(-5))", PLACED),
        live("run.pause_guard", "false", |c| c.run.pause_guard.to_string(), "false", "tests/tests/live/away.rs::a_lossless_class_survives_a_worker_that_is_away"),
        live("run.poll", "\"busy\"", |c| format!("{:?}", c.run.poll), "Busy", CALLS),
        live("run.socket", "\"/tmp/s\"", |c| c.run.socket.display().to_string(), "/tmp/s", RUNNING),
        live("run.metrics", "\"9460\"", |c| format!("{:?}", c.run.metrics), "Some(127.0.0.1:9460)", RUNNING),
        live("sai.listen", "\"9092\"", |c| format!("{:?} {}", c.run.sai, c.switch.lossy_watermarks), "Some(127.0.0.1:9092) true", SAI),
        live("run.log", "\"error\"", |c| format!("{:?}", c.run.log), "Error", "cli/tests/running.rs::a_log_of_errors_does_not_tell_what_goes_well"),
        live("run.log_format", "\"json\"", |c| format!("{:?}", c.run.log_format), OTHER, "cli/tests/running/supervision.rs::events_are_shown_and_logged_in_one_form"),
        live("run.sandbox", "false", |c| c.run.sandbox.to_string(), "false", "tests/tests/live/switch/privileges.rs::a_switch_keeps_only_what_opens_its_devices_again"),
        live("run.user", "\"nobody\"", |c| format!("{:?}", c.run.user), OTHER, "tests/tests/live/switch/privileges.rs::a_switch_goes_on_as_another_user"),
        live("express.enabled", "false", |c| c.run.express.to_string(), "false", "tests/tests/live_quiet/express.rs::checksums_hold_on_every_way"),
        live("dpdk.eal_args", "[\"--no-huge\"]", |c| format!("{:?}", c.run.eal_args), "[\"--no-huge\"]", "tests/tests/live_dpdk.rs::what_dpdk_refuses_is_said_and_nothing_else"),

        sent("formats.gen2_order", "\"as_documented\"", Flow::Of(Kind::Gen2), formats, "{\"other\":10}").beside(&["port_defaults.afh=\"gen2\""]),
        sent("formats.tpid", "0x88a8", Flow::Tagged(7, 5), formats, "{\"other\":10}"),
        sent("formats.mac_type1", "0x88c0", Flow::Of(Kind::Gen1), formats, "{\"other\":10}"),
        sent("formats.mac_type2", "0x88b5", Flow::Of(Kind::Gen1), formats, "{\"gen1\":10}").beside(&["formats.mac_type1=0x88c0"]),
        sent("formats.udp_type1_port", "4000", Flow::Ten(0), formats, "{\"other\":10}"),
        sent("formats.udp_type2_port", "5000", Flow::Udp, formats, "{\"standard\":10}"),
        sent("classify.pcp_to_pri", "[3, 1, 0, 2, 2, 3, 3, 3]", Flow::Tagged(0, 1), pri, "3"),
        sent("classify.dscp_to_pri", "[2,2,2,2,2,2,2,2,2,2,2,2,2,2,2,2,2,2,2,2,2,2,2,2,2,2,2,2,2,2,2,2,2,2,2,2,2,2,2,2,2,2,2,2,2,2,2,2,2,2,2,2,2,2,2,2,2,2,2,2,2,2,2,2]", Flow::Ten(0), pri, "2"),
        sent("classify.tc_to_pri", "[3,3,3,3,3,3,3,3,3,3,3,3,3,3,3,3,3,3,3,3,3,3,3,3,3,3,3,3,3,3,3,3,3,3,3,3,3,3,3,3,3,3,3,3,3,3,3,3,3,3,3,3,3,3,3,3,3,3,3,3,3,3,3,3]", Flow::Of(Kind::Gen1), pri, "3"),
        sent("classify.exp_to_pri", "[0,0,0,0,0,1,0,0]", Flow::Mpls(5), pri, "1").beside(&["port.trust=[\"exp\"]"]),
        live("classify.pri_to_pg", "[0,1,2,0]", |c| format!("{:?}", c.switch.maps.pri_to_pg), OTHER, PRIORITY_GROUPS),
        refused("classify.pri_to_pg", "[1,1,2,3]", "expected a group of its own for lossless priority 1, found 1 for 1 and 0"),
        count("fdb.capacity", "64", Flow::Many, "/ports/1/tx_frames", OTHER),
        count("fdb.ageing_s", "1", Flow::Learn(10_000), "/ports/1/tx_frames", "6"),
        count("fdb.unknown_unicast", "\"drop\"", Flow::Unknown, "/drops/unknown_unicast", "10"),
        count("fdb.reserved_groups", "[\"lldp\"]", Flow::Reserved, "/ports/1/tx_frames", "10"),
        refused("fdb.reserved_groups", "[\"01:80:c2:00:00:01\"]", "but 01"),
        refused("fdb.reserved_groups", "[\"stp\", \"01:80:C2:00:00:00\"]", "expected each group once, found \\\"01:80:C2:00:00:00\\\" again"),
        refused("group.addr", "\"01:80:c2:00:00:0e\"", "is reserved: add it to fdb.reserved_groups"),
        count("fdb.loop_action", "\"alarm\"", Flow::Loop, "/ports/2/loop_blocks", "0"),
        live("fdb.loop_probe", "false", |c| c.switch.forward.loop_probes.to_string(), "false", "dataplane/tests/pipeline/loops.rs::no_port_is_blocked_by_what_a_neighbour_says_in_the_name_of_others"),
        count("fdb.loop_block_s", "1", Flow::Loop, "/drops/loop_blocked", OTHER),
        refused("fdb.loop_block_s", "1", "expected fdb.loop_action = \\\"block\\\"").beside(&["fdb.loop_action=\"alarm\""]),
        count("fdb.sticky_s", "0", Flow::Loop, "/ports/2/fdb_moves", OTHER).beside(&["fdb.loop_action=\"alarm\""]),
    ]
}

#[rustfmt::skip] // columns: key, value, flow, what is looked at, what it is then
fn queueing() -> Vec<Row> {
    let lossy = Flow::Incast(0, 4_791);
    let lossless = Flow::Incast(8, 4_791);
    let capacity = &["buffer.buffer_size_mb=4"];
    vec![
        count("buffer.buffer_size_mb", "1", lossy, "/drops/dt", OTHER),
        count("buffer.shared_cells", "500", lossy, "/drops/dt", OTHER),
        refused("buffer.shared_cells", "500", "needs with headroom and reserves; leave out one of both").beside(&["buffer.buffer_size_mb=128"]),
        count("buffer.cell_bytes", "1024", lossy, "/ports/1/priorities/0/depth_watermark_cells", OTHER),
        count("buffer.buffer_sharing", "\"static\"", lossy, "/drops/dt", OTHER).beside(capacity),
        count("buffer.dt_alpha", "0.125", lossy, "/drops/dt", OTHER).beside(capacity),
        count("buffer.dt_alpha", "\"1/24\"", lossy, "/drops/dt", OTHER).beside(&["buffer.buffer_size_mb=4", "buffer.cell_bytes=256"]),
        count("buffer.voq_reserve_bytes", "1024", lossy, SHARED, OTHER).beside(capacity),
        count("buffer.pg_reserve_bytes", "8192", lossy, SHARED, OTHER).beside(capacity),
        count("buffer.headroom_bytes", "8192", lossy, SHARED, OTHER).beside(capacity),
        count("buffer.peer_response_us", "100", lossy, SHARED, OTHER).beside(capacity),
        count("buffer.cable_m", "10000", lossy, SHARED, OTHER).beside(capacity),
        sent("buffer.xon_offset_bytes", "100000", lossless, |run| format!("{:?}", pauses(run).last()), OTHER).beside(TIGHT),
        count("buffer.queue_capacity_bytes", "10000", lossy, MARKED, OTHER),
        live("crossbar.iterations", "1", |c| c.switch.crossbar.iterations.to_string(), "1", "dataplane/src/islip/tests.rs::matchings_are_valid_and_become_maximal"),
        count("crossbar.discipline", "\"weighted\"", Flow::Two(8), "/trace_hash", OTHER).beside(&["crossbar.speedup=1"]),
        refused("crossbar.weights", "[1, 1, 1, 1]", "expected crossbar.discipline = \\\"weighted\\\""),
        count("crossbar.weights", "[9, 1, 1, 1]", Flow::Two(8), "/trace_hash", OTHER).beside(&["crossbar.discipline=\"weighted\"", "crossbar.speedup=1"]),
        count("crossbar.speedup", "1", lossy, "/trace_hash", OTHER),
        live("crossbar.burst", "8", |c| c.switch.crossbar.burst.to_string(), "8", "dataplane/tests/pipeline/workers.rs::frames_that_cross_between_workers_stay_in_order_and_in_the_books"),
        count("crossbar.egress_queue_frames", "2", lossy, "/trace_hash", OTHER),

        count("ecn.ecn_enabled", "false", lossy, MARKED, "0").beside(MARKS),
        count("ecn.ecn_threshold_low", "0", lossy, MARKED, OTHER).beside(MARKS),
        count("ecn.ecn_threshold_high", "100", lossy, MARKED, OTHER).beside(MARKS),
        count("ecn.max_percent", "0", lossy, MARKED, OTHER).beside(MARKS),
        count("ecn.mark", "\"standard\"", Flow::Incast(0, 5_000), MARKED, "0").beside(MARKS),

        count("wred.wred_enabled", "true", lossy, EARLY, OTHER).beside(LOSSY),
        refused("wred.wred_priorities", "[0]", "expected wred.wred_enabled = true beside it"),
        count("wred.wred_priorities", "[3]", lossy, EARLY, "0").beside(WRED),
        refused("wred.wred_priorities", "[1]", "whose frames PFC keeps").beside(WRED),
        count("wred.wred_threshold_low", "5", lossy, EARLY, OTHER).beside(WRED),
        refused("wred.wred_threshold_low", "[10, 10, 10, 95]", "of priority 3, found 95").beside(WRED),
        count("wred.wred_threshold_high", "[100, 90, 90, 90]", lossy, EARLY, OTHER).beside(WRED),
        refused("wred.wred_threshold_high", "[0, 90, 90, 90]", "each of its frames would be dropped").beside(&["wred.wred_enabled=true", "wred.wred_threshold_low=0"]),
        count("wred.max_percent", "10", lossy, EARLY, OTHER).beside(WRED),

        count("pfc.pfc_enabled", "false", lossless, "/ports/0/pfc_tx", "0").beside(TIGHT),
        count("pfc.pfc_priorities", "[2]", lossless, "/ports/0/pfc_tx", "0").beside(TIGHT),
        sent("pfc.pri_to_pfc", "[[0], [5], [3], [7]]", lossless, |run| pauses(run)[0].2.to_string(), "32").beside(TIGHT),
        count("pfc.mode", "\"egress-queue\"", lossless, "/ports/0/pfc_tx", OTHER).beside(MARKS),
        refused("pfc.pfc_threshold", "90", "expected pfc.mode = \\\"egress-queue\\\""),
        sent("pfc.pfc_threshold", "100", lossless, |run| pauses(run)[0].0.to_string(), OTHER).beside(&["buffer.queue_capacity_bytes=100000", "pfc.mode=\"egress-queue\""]),
        refused("pfc.pfc_release", "60", "expected pfc.mode = \\\"egress-queue\\\""),
        sent("pfc.pfc_release", "10", lossless, |run| format!("{:?}", pauses(run).last()), OTHER).beside(&["buffer.queue_capacity_bytes=100000", "pfc.mode=\"egress-queue\""]),
        count("pfc.watchdog_detect_ms", "0", Flow::Storm, "/ports/1/priorities/0/storms", "0"),
        count("pfc.watchdog_restore_ms", "20", Flow::Storm, "/ports/1/priorities/0/storms", "2"),
        count("pfc.watchdog_action", "\"forward\"", Flow::Storm, "/drops/watchdog", "0"),
    ]
}
