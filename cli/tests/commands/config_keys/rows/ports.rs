//! Rows of ports, LAGs, static entries, groups, and of the hosts that weft plays.
//!
//! Source: docs/spec/pipeline.md §1 to §3, §7, §11; docs/spec/wire-formats.md §1.1.

use weft_config::Config;
use weft_hosts::frames::Kind;

use super::super::Seen;
use super::super::run::{Flow, THREE};
use super::{
    OTHER, Row, TIGHT, count, first_ns, formats, last_ns, live, order, pauses, pri, refused, sent,
};

const RUNNING: &str = "cli/tests/running.rs::a_running_switch_shows_and_changes_its_state";
const LOSS: &str =
    "tests/tests/live/rclink.rs::all_requests_are_delivered_over_a_switch_that_loses_some";
const GEN: &str = "cli/tests/commands/cli.rs::hosts_are_what_the_configuration_says";
const FLOODED: &str = "/ports/2/tx_frames";

/// A LAG of p1 and p2, and a station behind it.
const LAG: &str = "\
[[port]]
name = \"p0\"
[[port]]
name = \"p1\"
[[port]]
name = \"p2\"
[[port]]
name = \"p3\"
[[lag]]
name = \"both\"
ports = [\"p1\", \"p2\"]
[[static_entry]]
addr = \"02:00:00:00:00:02\"
port = \"both\"
";

/// Ports that some keys are for, and ports that they are not for.
const DPDK: &str = "[[port]]\nname = \"p0\"\nkind = \"dpdk\"\ndevice = \"net_null0\"\n";
const TAP: &str = "[[port]]\nname = \"p0\"\nkind = \"tap\"\n";
const QUEUES: &str =
    "tests/tests/live_dpdk.rs::two_workers_forward_at_rate_between_generator_and_sink";

fn first(config: &Config) -> &weft_config::resolve::RunPort {
    &config.run.ports[0]
}

/// All of these.
pub fn rows() -> Vec<Row> {
    ports().into_iter().chain(around()).collect()
}

#[rustfmt::skip] // columns: key, value, flow, what is looked at, what it is then
fn ports() -> Vec<Row> {
    let lossless = Flow::Incast(8, 4_791);
    vec![
        count("port.name", "\"left\"", Flow::Ten(0), "/ports/0/name", "\"left\""),
        live("port.kind", "\"null\"", |c| format!("{:?}", first(c).kind), "Null", RUNNING),
        live("port.device", "\"eth7\"", |c| first(c).device.clone(), "eth7", RUNNING),
        sent("port.mac", "\"02:aa:00:00:00:01\"", lossless, |run| pauses(run)[0].1.clone(), "02:aa:00:00:00:01").beside(TIGHT),
        sent("port.port_bandwidth_gbps", "10", Flow::Ten(0), first_ns, OTHER),
        sent("port.afh", "\"none\"", Flow::Of(Kind::Gen1), formats, "{\"other\":10}"),
        sent("port.trust", "[\"dscp\"]", Flow::Tagged(7, 1), pri, "0"),
        sent("port.trust", "[\"exp\"]", Flow::Mpls(6), pri, "3"),
        refused("port.trust", "[\"pcp\", \"exp\"]", "found \\\"exp\\\" on a lite port").beside(&["port.afh=\"lite\""]),
        sent("port.default_pri", "2", Flow::Of(Kind::Ethernet), pri, "2"),
        count("port.flow_control", "\"none\"", lossless, "/ports/0/pfc_tx", "0").beside(TIGHT),
        refused("port.flow_control", "\"cbfc\"", "take \\\"none\\\""),
        count("port.max_frame", "200", Flow::Ten(0), "/drops/too_long", "10"),
        count("port.vlan", "\"access\"", Flow::Tagged(0, 5), "/drops/vlan_filtered", "10"),
        count("port.pvid", "7", Flow::Ten(0), FLOODED, "10"),
        refused("port.pvid", "7", "the untagged VLAN of a trunk is native").beside(&["port.vlan=\"trunk\""]),
        refused("port.allowed", "[1]", "expected vlan = \\\"trunk\\\""),
        count("port.allowed", "[\"1-4\"]", Flow::Tagged(0, 5), "/drops/vlan_filtered", "10").beside(&["port.vlan=\"trunk\""]),
        refused("port.native", "1", "expected vlan = \\\"trunk\\\""),
        count("port.native", "1", Flow::Ten(0), "/drops/vlan_filtered", "0").beside(&["port.vlan=\"trunk\""]),
        count("port.max_learned", "1", Flow::Learn(10), "/ports/1/tx_frames", "5"),
        count("port.storm_broadcast", "0", Flow::Broadcast, "/drops/storm_broadcast", "10"),
        count("port.storm_unknown_unicast", "0", Flow::Unknown, "/drops/storm_unknown_unicast", "10"),
        count("port.storm_multicast", "0", Flow::Group, "/drops/storm_multicast", "10"),
        count("port.storm_broadcast_mbps", "0", Flow::Broadcast, "/drops/storm_broadcast", "10"),
        count("port.storm_unknown_unicast_mbps", "0", Flow::Unknown, "/drops/storm_unknown_unicast", "10"),
        count("port.storm_multicast_mbps", "0", Flow::Group, "/drops/storm_multicast", "10"),
        sent("port.strict", "[0, 3]", Flow::Two(8), order, OTHER),
        sent("port.scheduler", "\"dwrr\"", Flow::Two(8), order, OTHER).beside(&["port_defaults.weights=[1, 9, 50, 1]"]),
        sent("port.weights", "[50, 1, 50, 1]", Flow::Two(8), order, OTHER),
        sent("port.max_rate_gbps", "0.1", Flow::Two(0), last_ns, OTHER),
        sent("port.pri_max_rate_gbps", "[0.1, 0, 0, 0]", Flow::Two(0), last_ns, OTHER),
        refused("port.rate_burst_ms", "20", "expected max_rate_gbps or pri_max_rate_gbps"),
        sent("port.rate_burst_ms", "20", Flow::Two(0), last_ns, OTHER).beside(&["port_defaults.max_rate_gbps=0.1"]),
        live("port.rx_ring_frames", "512", |c| first(c).rx_ring_frames.to_string(), "512", "dataplane/tests/live_kernel/ports.rs::a_ring_that_runs_full_is_counted"),
        refused("port.loss_per_million", "10000", "expected express.enabled = false"),
        refused("port.loss_seed", "7", "expected loss_per_million beside it"),
        live("port.loss_per_million", "10000", |c| format!("{:?}", first(c).loss), "Some((10000, 1))", LOSS).beside(&["express.enabled=false"]),
        live("port.loss_seed", "7", |c| format!("{:?}", first(c).loss), "Some((10000, 7))", LOSS).beside(&["express.enabled=false", "port_defaults.loss_per_million=10000"]),
        refused("port.dpdk_queues", "2", "expected kind = \\\"dpdk\\\""),
        refused("port.dpdk_tx_descriptors", "128", "expected kind = \\\"dpdk\\\""),
        Row { key: "port.dpdk_queues", value: "2", beside: &[], seen: Seen::Live(DPDK, |c| first(c).dpdk_queues.to_string(), QUEUES), want: "2" },
        Row { key: "port.dpdk_tx_descriptors", value: "128", beside: &[], seen: Seen::Live(DPDK, |c| first(c).dpdk_tx_descriptors.to_string(), QUEUES), want: "128" },
        Row { key: "port.xdp_queues", value: "2", beside: &[], seen: Seen::Refused(TAP), want: "expected kind = \\\"auto\\\"" },
        Row { key: "port.xdp_mode", value: "\"any\"", beside: &[], seen: Seen::Refused(TAP), want: "expected kind = \\\"auto\\\"" },
        live("port.xdp_queues", "2", |c| format!("{:?}", first(c).xdp.queues), "Some(2)", "dataplane/tests/live_kernel/af_xdp.rs::several_queues_are_received_from"),
        live("port.xdp_mode", "\"any\"", |c| format!("{:?}", first(c).xdp.attach), "Any", "tests/tests/live/auto.rs::what_is_asked_for_by_name_is_taken_or_refused"),
        live("port.xdp_zero_copy", "false", |c| first(c).xdp.zero_copy.to_string(), "false", "dataplane/tests/live_kernel/af_xdp.rs::ports_hand_frames_on_without_a_copy_and_do_not_hang_on_each_other"),
        live("port.xdp_busy_poll_us", "50", |c| first(c).xdp.busy_poll_us.to_string(), "50", "dataplane/tests/live_kernel/af_xdp.rs::a_busily_polled_port_works_without_interrupts"),
    ]
}

/// LAGs, static entries, groups, hosts.
#[rustfmt::skip] // columns: key, value, flow, what is looked at, what it is then
fn around() -> Vec<Row> {
    vec![
        Row { key: "lag.name", value: "\"pair\"", beside: &[], seen: Seen::Refused(LAG), want: "found \\\"both\\\"" },
        Row { key: "lag.ports", value: "[\"p1\", \"p2\", \"p3\"]", beside: &[], seen: Seen::Live(LAG, |c| c.switch.lags[0].ports.bits().to_string(), "cli/tests/running.rs::a_lag_is_one_port"), want: "14" },
        count("static_entry.addr", "\"02:00:00:00:00:07\"", Flow::Ten(0), FLOODED, "10"),
        count("static_entry.port", "\"p2\"", Flow::Ten(0), FLOODED, "10"),
        Row { key: "static_entry.ports", value: "[\"p1\", \"p2\"]", beside: &[], seen: Seen::Refused(THREE), want: "static_entry" },
        count("static_entry.vid", "5", Flow::Ten(0), FLOODED, "10"),
        count("group.addr", "\"01:00:5e:00:00:08\"", Flow::Group, FLOODED, "10"),
        count("group.ports", "[\"p2\"]", Flow::Group, FLOODED, "10"),
        count("group.vid", "5", Flow::Group, FLOODED, "10"),

        live("traffic.pkt_format", "\"gen1\"", |c| c.traffic.format.name().to_owned(), "gen1", GEN),
        live("traffic.max_frame_size", "200", |c| c.traffic.frame_len_max.to_string(), "200", GEN),
        live("traffic.flow_control_mode", "\"none\"", |c| c.traffic.obeys_pfc.to_string(), "false", "cli/src/commands/traffic/host.rs::a_host_is_what_its_configuration_says"),
        refused("traffic.flow_control_mode", "\"cbfc\"", "take \\\"none\\\""),
        live("traffic.lite_mode", "true", |c| c.traffic.format.name().to_owned(), "lite", GEN),
        live("traffic.vlan_enabled", "true", |c| c.traffic.vlan.to_string(), "true", GEN),
        live("traffic.ecn_capable", "false", |c| c.traffic.ecn.to_string(), "false", GEN),
        live("traffic.num_vc", "2", |c| c.traffic.vcs.to_string(), "2", GEN),
        live("traffic.vc_pcp_mapping", "[7, 6, 5, 4, 3, 2, 1, 0]", |c| c.traffic.vc_pcp[0].to_string(), "7", GEN),
    ]
}
