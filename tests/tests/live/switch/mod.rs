//! `weft run` between kernel hosts with their default offloads: ping, TCP, and the books at the end.
//!
//! Two hosts in namespaces; the switch on `af_xdp`, on `af_packet` and on a tap.
//!
//! Units: frames, bit/s.
#![expect(clippy::unwrap_used, clippy::indexing_slicing, reason = "a test fails that way")]

mod held;
mod privileges;

use serde_json::Value;
use weft_base::wait::{LONG, try_until};
use weft_tests::netns::{Net, Switch, weft};
use weft_tests::talk::{answers, checksum_errors, host as talk_host, tcp};

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
    assert_eq!(answers(net, "h1", "10.78.0.2", PINGS), PINGS);
    for (from, to, address) in [("h1", "h2", "10.78.0.2"), ("h2", "h1", "10.78.0.1")] {
        let rate = tcp(net, from, to, address, TCP_S);
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
    let switch = Switch::start(&net, &["p0=af_xdp:sw1", "p1=af_xdp:sw2"], "");
    assert_eq!(kinds(&switch), ["af_xdp", "af_xdp"]);
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

/// `weft traffic` says when its port is open; told to stop, it takes what has come to its port before it ends.
#[test]
fn a_host_says_when_it_hears_and_loses_nothing_at_its_end() {
    const FRAMES: u64 = 1_000;
    let test = "a_host_says_when_it_hears_and_loses_nothing_at_its_end";
    let Some(mut net) = Net::new(test) else { return };
    net.add_joined("h1", "sw1", "10.78.0.1/24");
    let ready = std::env::temp_dir().join(net.name("ready"));
    let options = format!("--station 2 --ready {}", ready.display());
    let receiver = talk_host(&net, "h1", &options);
    let pid = std::fs::read_to_string(&ready).unwrap();
    assert_eq!(pid.trim(), receiver.id().to_string());
    let weft = weft().to_str().unwrap();
    let again = net.run("h1", weft, &format!("traffic eth0 {options}"));
    drop(std::fs::remove_file(&ready));
    assert_eq!(again.status.code(), Some(2), "a file of an earlier run says nothing");

    // It is stopped while all frames come, and told to end before it goes on.
    let kill = |signal: &str| {
        let done = net.run("h1", "kill", &format!("-{signal} {}", receiver.id()));
        assert!(done.status.success(), "kill -{signal}");
    };
    kill("STOP");
    let plan = format!("traffic sw1 --station 1 --to 2 --count {FRAMES} --rate 100kfps --linger 0");
    let sent = net.run("sw", weft, &plan);
    assert!(sent.status.success(), "{}", String::from_utf8_lossy(&sent.stderr));
    kill("TERM");
    kill("CONT");
    let done = receiver.wait_with_output().unwrap();
    let report: Value = serde_json::from_slice(&done.stdout).unwrap();
    assert_eq!(report["rx_streams"][0]["unique"], FRAMES, "{report}");
}

/// A link that goes and comes, and an interface that is gone, are told.
#[test]
fn links_that_go_and_come_are_events() {
    let Some(mut net) = Net::new("links_that_go_and_come_are_events") else { return };
    net.add_joined("h1", "sw1", "10.78.0.1/24");
    net.add_joined("h2", "sw2", "10.78.0.2/24");
    let switch = Switch::start(&net, &["p1=af_packet:sw1", "p2=af_packet:sw2"], "");
    let wait_for = |kind: &str, port: &str, count: usize| {
        let mut events = Value::Null;
        let told = try_until(LONG, || {
            events = switch.show("events")["events"].take();
            let is_it = |event: &&Value| event["kind"] == kind && event["subject"] == port;
            (events.as_array().unwrap().iter().filter(is_it).count() >= count).then_some(())
        });
        assert!(told.is_some(), "no {kind} of {port}: {events}");
    };
    wait_for("link_up", "p2", 1);
    net.ip("h2", "link set eth0 down");
    wait_for("link_down", "p2", 1);
    net.ip("h2", "link set eth0 up");
    wait_for("link_up", "p2", 2);
    net.ip("sw", "link del sw1");
    wait_for("link_down", "p1", 1);
    drop(switch.stop());
}
