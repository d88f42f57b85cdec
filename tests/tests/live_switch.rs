//! `weft run` between kernel hosts with their default offloads: ping, TCP, and the books at the end.
//!
//! Shape: two hosts in namespaces; the switch on `af_xdp`, on `af_packet` and on a tap.
//! Units: frames, bit/s.
//! Source: issue 2, acceptance 2.
#![expect(clippy::unwrap_used, clippy::indexing_slicing, reason = "a test fails that way")]

use serde_json::Value;
use weft_tests::netns::{Net, Switch};
use weft_tests::talk::{checksum_errors, ping, tcp};

/// Pings of which every one must come back.
const PINGS: u64 = 1_000;
/// Seconds of a TCP stream.
const TCP_S: u64 = 3;

/// Kinds of the switch's ports.
fn kinds(switch: &Switch) -> Vec<String> {
    let kind = |port: &Value| port["kind"].as_str().unwrap().to_owned();
    switch.show("ports").as_array().unwrap().iter().map(kind).collect()
}

fn talk(net: &Net, switch: Switch) {
    assert_eq!(ping(net, "h1", "10.78.0.2", PINGS), PINGS);
    for (from, to, address) in [("h1", "h2", "10.78.0.2"), ("h2", "h1", "10.78.0.1")] {
        let rate = tcp(net, from, (to, address), TCP_S);
        println!("TCP {from} to {to}: {rate:.0} bit/s");
        assert!(rate > 10e6, "{from} to {to}: {rate} bit/s");
    }
    assert_eq!((checksum_errors(net, "h1"), checksum_errors(net, "h2")), (0, 0));
    let ledger = switch.stop();
    let sum = |keys: &[&str]| keys.iter().map(|key| ledger[*key].as_u64().unwrap()).sum::<u64>();
    assert_eq!(sum(&["rx", "copies"]), sum(&["tx", "dropped", "consumed", "queued"]), "{ledger}");
    assert!(sum(&["rx"]) > 2 * PINGS);
}

#[test]
fn kernel_hosts_talk_through_af_packet() {
    let Some(mut net) = Net::new("kernel_hosts_talk_through_af_packet") else { return };
    net.add_joined("h1", "sw1", "10.78.0.1/24");
    net.add_joined("h2", "sw2", "10.78.0.2/24");
    let switch = Switch::start(&net, &["p0=af_packet:sw1", "p1=af_packet:sw2"], "");
    talk(&net, switch);
}

#[test]
fn kernel_hosts_talk_through_af_xdp() {
    let Some(mut net) = Net::new("kernel_hosts_talk_through_af_xdp") else { return };
    net.add_joined("h1", "sw1", "10.78.0.1/24");
    net.add_joined("h2", "sw2", "10.78.0.2/24");
    let switch = Switch::start(&net, &["p0=af_xdp:sw1", "p1=sw2"], "");
    assert_eq!(kinds(&switch), ["af_xdp", "af_xdp"], "auto takes it too");
    talk(&net, switch);
}

#[test]
fn kernel_hosts_talk_through_a_tap() {
    let Some(mut net) = Net::new("kernel_hosts_talk_through_a_tap") else { return };
    if !std::path::Path::new("/dev/net/tun").exists() {
        eprintln!("SKIPPED kernel_hosts_talk_through_a_tap: no /dev/net/tun");
        return;
    }
    net.add_joined("h1", "sw1", "10.78.0.1/24");
    net.add_host("h2");
    let switch = Switch::start(&net, &["p0=sw1", "p1=tap:tap0"], "");
    // The switch made the tap; its other end is a host's interface from now on.
    net.ip("sw", &format!("link set tap0 netns {} name eth0", net.name("h2")));
    net.address("h2", "10.78.0.2/24");
    talk(&net, switch);
}
