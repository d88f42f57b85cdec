//! `weft run` between kernel hosts with their default offloads: ping, TCP, and the books at the end.
//!
//! Shape: two hosts in namespaces; the switch on `af_xdp`, on `af_packet` and on a tap.
//! Units: frames, bit/s.
//! Source: issue 2, acceptance 2.
#![expect(clippy::unwrap_used, clippy::indexing_slicing, reason = "a test fails that way")]

use std::process::Stdio;
use std::thread::park_timeout;
use std::time::Duration;

use serde_json::Value;
use weft_tests::netns::{Net, Switch};

/// Pings of which every one must come back.
const PINGS: u64 = 1_000;
/// Seconds of a TCP stream.
const TCP_S: u64 = 3;

fn ping(net: &Net, from: &str, to: &str) -> u64 {
    let done = net.run(from, "ping", &format!("-q -c {PINGS} -i 0.002 -W 2 {to}"));
    let said = String::from_utf8_lossy(&done.stdout).into_owned();
    let received = said.split(" received").next().and_then(|text| text.rsplit(' ').next());
    received.and_then(|count| count.parse().ok()).unwrap_or_else(|| panic!("ping said: {said}"))
}

/// Bits a second of a TCP stream to the server at 10.78.0.2.
fn tcp(net: &Net, from: &str, to: &str, address: &str) -> f64 {
    let mut server = net.at(to, "iperf3", "-s -1").stdout(Stdio::null()).spawn().unwrap();
    park_timeout(Duration::from_millis(500));
    let done = net.run(from, "iperf3", &format!("-c {address} -t {TCP_S} -J"));
    drop(server.kill());
    drop(server.wait());
    let said: Value = serde_json::from_slice(&done.stdout).expect("iperf3 -J says JSON");
    let rate = said["end"]["sum_received"]["bits_per_second"].as_f64();
    rate.unwrap_or_else(|| panic!("iperf3 said: {said}"))
}

/// `TcpInCsumErrors` of a host.
fn checksum_errors(net: &Net, host: &str) -> u64 {
    let done = net.run(host, "cat", "/proc/net/snmp");
    let text = String::from_utf8_lossy(&done.stdout).into_owned();
    let mut tcp = text.lines().filter(|line| line.starts_with("Tcp:"));
    let (names, values) = (tcp.next().unwrap(), tcp.next().unwrap());
    let at = names.split(' ').position(|name| name == "InCsumErrors").unwrap();
    values.split(' ').nth(at).unwrap().parse().unwrap()
}

/// Kinds of the switch's ports.
fn kinds(switch: &Switch) -> Vec<String> {
    let shown: Value = serde_json::from_str(&switch.ask("show ports --json").unwrap()).unwrap();
    let kind = |port: &Value| port["kind"].as_str().unwrap().to_owned();
    shown["ports"].as_array().unwrap().iter().map(kind).collect()
}

fn talk(net: &Net, switch: Switch) {
    assert_eq!(ping(net, "h1", "10.78.0.2"), PINGS);
    for (from, to, address) in [("h1", "h2", "10.78.0.2"), ("h2", "h1", "10.78.0.1")] {
        let rate = tcp(net, from, to, address);
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
