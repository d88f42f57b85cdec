//! Port kind `auto`: `AF_XDP` where it can be had, a packet socket with the reason where not, and nothing
//! left attached whatever becomes of the switch.
//!
//! A host in a namespace; switches that start under different conditions.
#![expect(clippy::indexing_slicing, reason = "a test fails that way")]

use weft_base::wait::{LONG, until};
use weft_tests::netns::{Net, Switch};

/// Kind and note of the first port.
fn first(switch: &Switch) -> (String, String) {
    let port = &switch.show("ports")[0];
    let text = |key: &str| port[key].as_str().unwrap_or_default().to_owned();
    (text("kind"), text("note"))
}

/// Whether an XDP program is attached to `sw1`.
fn is_attached(net: &Net) -> bool {
    let shown = net.run("sw", "ip", "link show sw1");
    String::from_utf8_lossy(&shown.stdout).contains("prog/xdp")
}

fn pings(net: &Net) -> bool {
    net.run("h1", "ping", "-q -c 5 -i 0.01 -W 2 10.78.0.2").status.success()
}

/// Two hosts whose devices have NAPI, so that `auto` takes `AF_XDP` where it can.
fn two_hosts(test: &str) -> Option<Net> {
    let mut net = Net::new(test)?;
    for (host, port, address) in [("h1", "sw1", "10.78.0.1/24"), ("h2", "sw2", "10.78.0.2/24")] {
        net.add_joined(host, port, address);
        net.napi(host, "eth0", true);
    }
    Some(net)
}

const PORTS: [&str; 2] = ["p0=sw1", "p1=sw2"];

#[test]
fn a_killed_switch_leaves_no_program_and_another_one_takes_over() {
    let Some(net) = two_hosts("a_killed_switch_leaves_no_program") else { return };
    let switch = Switch::start(&net, &PORTS, "");
    assert_eq!(first(&switch), ("af_xdp".to_owned(), String::new()));
    assert!(is_attached(&net) && pings(&net));
    drop(switch); // SIGKILL
    until(LONG, "no program is left", || (!is_attached(&net)).then_some(()));
    let switch = Switch::start(&net, &PORTS, "");
    assert_eq!(first(&switch).0, "af_xdp");
    assert!(pings(&net));
    drop(switch.stop());
    assert!(!is_attached(&net));
}

#[test]
fn auto_says_why_it_takes_a_packet_socket() {
    let Some(net) = two_hosts("auto_says_why") else { return };
    #[rustfmt::skip] // columns: name, configuration, MTU of the hosts, words of the note
    let cases = [
        ("frames too long for a chunk", "[switch]\nmax_frame = 9000\n", 1_500, "switch.max_frame"),
        ("a host's frames too long for XDP", "", 9_000, "MTU"),
        ("tags that cannot be read", "[port_defaults]\nxdp_mode = 'generic'\n", 1_500, "VLAN tags"),
    ];
    for (name, config, mtu, want) in cases {
        net.ip("h1", &format!("link set eth0 mtu {mtu}"));
        let switch = Switch::start(&net, &PORTS, config);
        let (kind, note) = first(&switch);
        assert_eq!(kind, "af_packet", "{name}: {note}");
        assert!(note.starts_with("not AF_XDP: ") && note.contains(want), "{name}: {note}");
        net.ip("h1", "link set eth0 mtu 1500");
        assert!(pings(&net), "{name}");
        assert!(!is_attached(&net), "{name}");
        drop(switch.stop());
    }
}

#[test]
fn auto_takes_what_is_faster_on_veth() {
    let Some(net) = two_hosts("auto_takes_what_is_faster_on_veth") else { return };
    let napi = |host: &str, on| net.napi(host, "eth0", on);
    let off = "[express]\nenabled = false\n";
    #[rustfmt::skip] // columns: name, NAPI at the hosts, configuration, kind, words of the note
    let cases = [
        ("both far ends have NAPI", [true, true],   "",  "af_xdp",    ""),
        ("one has none",            [true, false],  "",  "af_packet", "the far end of sw2 has no NAPI"),
        ("none has",                [false, false], "",  "af_packet", "the far end of sw1 has no NAPI"),
        ("express is off",          [true, true],   off, "af_packet", "express.enabled is false"),
    ];
    for (name, [first_has, second_has], config, want_kind, want_note) in cases {
        napi("h1", first_has);
        napi("h2", second_has);
        let switch = Switch::start(&net, &PORTS, config);
        let (kind, note) = first(&switch);
        assert_eq!(kind, want_kind, "{name}: {note}");
        assert!(note.contains(want_note), "{name}: {note}");
        assert_eq!(note.starts_with("not AF_XDP: slower on veth"), kind == "af_packet", "{name}");
        assert_eq!(is_attached(&net), kind == "af_xdp", "{name}");
        assert!(pings(&net), "{name}");
        drop(switch.stop());
    }
    // What is no veth, and what is asked for by name, is not asked about.
    let switch = Switch::start(&net, &["p0=af_xdp:sw1", "p1=af_xdp:sw2"], off);
    assert_eq!(first(&switch), ("af_xdp".to_owned(), String::new()));
    drop(switch.stop());
}

#[test]
fn auto_works_without_the_right_to_load_programs() {
    let Some(net) = two_hosts("auto_works_without_the_right") else { return };
    let without = "setpriv --bounding-set=-bpf,-sys_admin --inh-caps=-bpf,-sys_admin";
    let switch = Switch::start_by(&net, without, &PORTS, "", &[]);
    let (kind, note) = first(&switch);
    assert_eq!(kind, "af_packet", "{note}");
    assert!(note.contains("CAP_BPF"), "{note}");
    assert!(pings(&net));
    drop(switch.stop());
}

#[test]
fn what_is_asked_for_by_name_is_taken_or_refused() {
    let Some(net) = two_hosts("what_is_asked_for_by_name") else { return };
    let generic = "[port_defaults]\nxdp_mode = 'generic'\n";
    let switch = Switch::start(&net, &["p0=af_xdp:sw1", "p1=sw2"], generic);
    let (kind, note) = first(&switch);
    assert_eq!(kind, "af_xdp");
    assert!(note.starts_with("generic, copy; VLAN tags"), "{note}");
    assert!(pings(&net));
    drop(switch.stop());
    let weft = weft_tests::netns::weft().to_str().unwrap();
    let run = "run --port p0=af_xdp:sw1 --port p1=sw2 --set switch.max_frame=9000";
    let refused = net.run("sw", weft, run);
    let said = String::from_utf8_lossy(&refused.stderr).into_owned();
    assert!(!refused.status.success() && said.contains("switch.max_frame"), "{said}");
}
