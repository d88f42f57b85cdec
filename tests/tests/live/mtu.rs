//! Hosts whose MTU is larger than usual, as containerlab makes their interfaces.
//!
//! Two hosts with an MTU of 9,500; a switch that takes their frames, and one that does not and says so.
//!
//! Units: bytes.
//! Source: docs/spec/pipeline.md §11; docs/lab.md "containerlab".
#![expect(clippy::indexing_slicing, reason = "a test fails that way")]

use weft_tests::netns::{Net, Switch};
use weft_tests::talk::{goes_both_ways, ping};

const LEN: usize = 8 << 20;
const PORTS: [&str; 2] = ["p0=sw1", "p1=sw2"];

/// Two hosts with that MTU at both ends of their cables.
fn hosts(test: &str, mtu: usize) -> Option<Net> {
    let mut net = Net::new(test)?;
    for (host, port, address) in [("h1", "sw1", "10.83.0.1/24"), ("h2", "sw2", "10.83.0.2/24")] {
        net.add_joined(host, port, address);
        net.ip("sw", &format!("link set {port} mtu {mtu}"));
        net.ip(host, &format!("link set eth0 mtu {mtu}"));
    }
    Some(net)
}

/// A ping whose packet is as long as the MTU, in one piece.
fn longest_passes(net: &Net, mtu: usize) -> bool {
    let payload = mtu - 28;
    let said = net.run("h1", "ping", &format!("-q -c 3 -i 0.01 -W 2 -M do -s {payload} 10.83.0.2"));
    said.status.success()
}

fn warning(switch: &Switch, port: usize) -> String {
    switch.show("ports")[port]["mtu_warning"].as_str().unwrap_or_default().to_owned()
}

#[test]
fn tcp_passes_with_the_mtu_of_containerlab() {
    let Some(net) = hosts("tcp_passes_with_the_mtu_of_containerlab", 9_500) else { return };
    let switch = Switch::start(&net, &PORTS, "[switch]\nmax_frame = 9518\n");
    assert_eq!([0, 1].map(|port| warning(&switch, port)), ["", ""]);
    assert!(ping(&net, "h1", "10.83.0.2", 3) > 0);
    assert!(longest_passes(&net, 9_500), "9,514 bytes");
    let address = [10, 83, 0, 2].into();
    assert!(goes_both_ways(&net, "h1", "h2", address, LEN), "the same bytes");
    let drops = switch.show("drops");
    assert!(drops["total"].get("too_long").is_none_or(|n| n.as_u64() == Some(0)), "{drops}");
    drop(switch.stop());
}

#[test]
fn the_longest_frame_of_all_passes() {
    let Some(net) = hosts("the_longest_frame_of_all_passes", 9_714) else { return };
    let switch = Switch::start(&net, &PORTS, "[switch]\nmax_frame = 9728\n");
    assert!(warning(&switch, 0).contains("9732 bytes with a tag"), "not with a tag");
    assert!(ping(&net, "h1", "10.83.0.2", 3) > 0);
    assert!(longest_passes(&net, 9_714), "9,728 bytes");
    drop(switch.stop());
}

/// The warning follows the interface: an MTU that is set later, or no more.
#[test]
fn an_mtu_that_is_too_large_is_a_warning_for_as_long_as_it_is() {
    let test = "an_mtu_that_is_too_large_is_a_warning_for_as_long_as_it_is";
    let Some(net) = hosts(test, 9_500) else { return };
    let switch = Switch::start(&net, &PORTS, "");
    for port in [0, 1] {
        let said = warning(&switch, port);
        for words in
            ["MTU of 9500", "9514 bytes (9518 with a tag)", "max_frame is 1522", "too_long"]
        {
            assert!(said.contains(words), "{said}");
        }
    }
    let table = switch.ask("show ports").unwrap_or_default();
    assert!(table.contains("p1: by its MTU of 9500 "), "{table}");
    assert!(!longest_passes(&net, 9_500), "what the warning says");
    net.ip("sw", "link set sw1 mtu 1500");
    assert_eq!(warning(&switch, 0), "");
    assert!(warning(&switch, 1).contains("MTU of 9500"));
    drop(switch.stop());
}
