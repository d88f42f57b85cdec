//! Rows of a switch that routes TLPs.
//!
//! A list of [`Row`].
//!
//! Source: docs/spec/cxl-fabric.md "Port roles", "Tables of an edge".

use weft_config::Config;
use weft_config::resolve::FabricConfig;

use super::super::Seen;
use super::{OTHER, Row, refused};

/// A host, a device, two links to switches, and the settings of such a switch.
const FABRIC: &str = "\
[fabric]
uuid = \"5ed8a1c0-0000-4000-8000-000000000001\"
pid = 1
[[port]]
name = \"h\"
role = \"usp\"
[[port]]
name = \"d\"
role = \"dsp\"
[[port]]
name = \"f\"
role = \"fport\"
[[port]]
name = \"g\"
role = \"fport\"
[[vcs]]
usp = \"h\"
[[pid]]
port = \"h\"
pid = 2
[[routing_group]]
number = 3
ports = [\"f\", \"g\"]
mode = \"congestion-avoiding\"
[[route]]
pid = 4
routing_group = 3
[[route]]
pid = 5
port = \"f\"
[[bind]]
vcs = 0
vppb = 1
own = 2
far = 5
";
const FIXED: &str =
    "pbr_switch/src/tests/static_init.rs::what_a_manager_has_set_up_is_there_from_the_start";
const IDENTIFY: &str =
    "pbr_switch/src/tests/fm.rs::identify_switch_and_identify_pbr_switch_say_what_there_is";
const ROLES: &str =
    "config/src/resolve/tests.rs::ports_with_roles_make_a_switch_of_tlps_with_an_agent";
const COMMANDED: &str = "tests/tests/live/fabric.rs::managers_command_a_running_switch";
const FOREIGN: &str = "control/src/live/cci/mctp/tests.rs::who_comes_first_owns_by_all_connections_until_a_manager_claims";
const TLPS: &str = "dataplane/tests/pipeline/tlp_stage/mod.rs::a_uio_read_of_gfam_goes_to_the_gfd_and_its_data_come_back";

fn fabric(config: &Config) -> &FabricConfig {
    config.fabric.as_ref().unwrap()
}

fn fixed(config: &Config) -> String {
    format!("{:?}", fabric(config).switch.static_init)
}

fn live(
    key: &'static str,
    value: &'static str,
    of: fn(&Config) -> String,
    want: &'static str,
    by: &'static str,
) -> Row {
    Row { key, value, beside: &[], seen: Seen::Live(FABRIC, of, by), want }
}

fn set_up(key: &'static str, value: &'static str) -> Row {
    live(key, value, fixed, OTHER, FIXED)
}

fn wrong(key: &'static str, value: &'static str, want: &'static str) -> Row {
    Row { key, value, beside: &[], seen: Seen::Refused(FABRIC), want }
}

#[rustfmt::skip] // columns: key, value, what is looked at, what it is then
pub fn rows() -> Vec<Row> {
    vec![
        refused("port.role", "\"usp\"", "expected a UUID"),
        refused("port.tlp", "\"non-flit\"", "expected a role but l2"),
        refused("port.max_payload", "256", "expected a role but l2"),
        refused("port.pids", "2", "expected a role but l2"),
        wrong("port.tlp", "\"non-flit\"", "expected flit where the role is fport"),
        live("port.max_payload", "256", |c| format!("{:?}", c.switch.ports[1].role.link().map(|link| link.payload_max)), "Some(256)", ROLES),
        live("port.pids", "4", |c| fabric(c).switch.ports[1].pids.to_string(), "4", ROLES),
        live("fabric.uuid", "\"6ed8a1c0-0000-4000-8000-000000000001\"", |c| fabric(c).switch.uuid[0].to_string(), "110", ROLES),
        live("fabric.serial", "77", |c| fabric(c).switch.identity.serial.to_string(), "77", IDENTIFY),
        live("fabric.cci", "\"/run/t/cci.sock\"", |c| fabric(c).cci.is_some().to_string(), "true", COMMANDED),
        // Their effect where there is a place is tested by `managers_connect_in_one_of_three_ways`
        // (config/src/resolve/tests.rs).
        wrong("fabric.cci_ca", "\"ca.pem\"", "expected a place where cci_insecure"),
        wrong("fabric.cci_cert", "\"switch.pem\"", "expected a place where cci_insecure"),
        wrong("fabric.cci_key", "\"switch.key\"", "expected a place where cci_insecure"),
        wrong("fabric.cci_insecure", "true", "expected a place where cci_insecure"),
        live("fabric.cci_mctp", "\"127.0.0.1:2508\"", |c| fabric(c).mctp.is_some().to_string(), "true", FOREIGN),
        // Their effect where there is an address is tested by `managers_of_others_connect_at_loopback`
        // (config/src/resolve/tests.rs).
        wrong("fabric.cci_mctp", "\"0.0.0.0:2508\"", "expected an address of loopback"),
        wrong("fabric.cci_mctp_insecure", "true", "expected an address other than loopback"),
        wrong("fabric.cci_owner", "\"first\"", "expected an address in cci_mctp beside it"),
        set_up("fabric.pid", "9"),
        live("fabric.oui", "\"02:57:47\"", |c| format!("{:?}", c.switch.tlp.oui), OTHER, "dataplane/tests/pipeline/tlp_stage/mod.rs::frames_of_another_kind_do_not_pass"),
        live("fabric.tc_to_pri", "[2, 1, 1, 1, 1, 1, 1, 1]", |c| c.switch.tlp.tc_to_pri[0].get().to_string(), "2", TLPS),
        live("fabric.uio_req_pri", "3", |c| c.switch.tlp.uio_req_pri.get().to_string(), "3", TLPS),
        wrong("fabric.uio_cpl_pri", "1", "expected another priority than uio_req_pri"),
        live("fabric.groups", "64", |c| fabric(c).switch.groups.to_string(), "64", IDENTIFY),
        live("fabric.fast", "64", |c| fabric(c).switch.sizes.fast.to_string(), "64", ROLES),
        live("fabric.fast_idt", "64", |c| fabric(c).switch.sizes.fast_idt.to_string(), "64", ROLES),
        live("fabric.ldst", "64", |c| fabric(c).switch.sizes.ldst.to_string(), "64", ROLES),
        live("fabric.ldst_idt", "64", |c| fabric(c).switch.sizes.ldst_idt.to_string(), "64", ROLES),
        live("fabric.bind_time_ms", "7", |c| fabric(c).switch.bind_time.as_ns().to_string(), "7000000", ROLES),
        live("fabric.threads", "3", |c| fabric(c).switch.threads.to_string(), "3", "pbr_switch/src/tests/edge.rs::gfd_commands_are_forwarded_by_as_many_threads_as_there_are"),
        wrong("vcs.usp", "\"d\"", "expected a port of role usp"),
        live("vcs.vppbs", "2", |c| fabric(c).switch.vcses[0].vppbs.to_string(), "2", ROLES),
        live("vcs.gae", "false", |c| fabric(c).switch.vcses[0].gae.to_string(), "false", ROLES),
        wrong("pid.port", "\"d\"", "cannot"),
        wrong("pid.instance", "1", "port 0 cannot have PID 002 as its number 1"),
        wrong("pid.pid", "3", "cannot be bound to that"),
        set_up("routing_group.number", "4"),
        set_up("routing_group.ports", "[\"g\", \"f\"]"),
        set_up("routing_group.mode", "\"random\""),
        set_up("routing_group.primary", "1"),
        set_up("routing_group.mix", "3"),
        set_up("route.pid", "6"),
        wrong("route.port", "\"f\"", "expected either a port or a routing_group"),
        set_up("route.routing_group", "4"),
        wrong("bind.vcs", "1", "vPPB 1 cannot be bound to that"),
        set_up("bind.vppb", "2"),
        wrong("bind.port", "\"d\"", "expected either a port, or own and far"),
        wrong("bind.own", "6", "vPPB 1 cannot be bound to that"),
        set_up("bind.far", "4"),
        set_up("bind.latency_base", "1000"),
        set_up("bind.latency", "3"),
        set_up("bind.bandwidth_base", "16"),
        set_up("bind.bandwidth", "9"),
    ]
}
