//! Cables from a switch to itself: the loop is cut at any rate of the hosts, its ports are named, and the hosts are heard.
//!
//! Hosts in namespaces that know each other's address; a veth pair of which both ends are ports; `weft run` on
//! `af_packet` and `af_xdp`.
//!
//! Units: frames.
//! Source: docs/spec/pipeline.md §3 "Loops".
#![expect(clippy::unwrap_used, clippy::indexing_slicing, reason = "a test fails that way")]

use std::path::PathBuf;
use std::process::Command;

use serde_json::Value;
use weft_base::wait::{LONG, until};
use weft_tests::netns::{Net, Switch, weft};
use weft_tests::talk::answers;

/// Longer than the test: a loop that is open again is another one.
const CONFIG: &str = "[fdb]\nloop_block_s = 3600\n";

/// A file or folder that goes away after a failure, too.
struct Scratch(PathBuf);

impl Drop for Scratch {
    fn drop(&mut self) {
        drop(std::fs::remove_file(&self.0));
        drop(std::fs::remove_dir_all(&self.0));
    }
}

/// A pair of interfaces at the switch, both up, by which the kernel says nothing itself.
fn cable(net: &Net, [one, other]: [&str; 2]) {
    let quiet = "/proc/sys/net/ipv6/conf/default/disable_ipv6";
    net.within("sw", || drop(std::fs::write(quiet, "1"))); // where there is no IPv6, there is nothing to turn off
    net.ip("sw", &format!("link add {one} type veth peer name {other}"));
    for end in [one, other] {
        net.ip("sw", &format!("link set {end} up"));
    }
}

/// Has each of two hosts know where the other is, so that they never ask.
fn introduce(net: &Net) {
    for (host, other, address) in [("h1", "h2", "10.78.0.2"), ("h2", "h1", "10.78.0.1")] {
        let mac = net.mac(other);
        net.ip(host, &format!("neigh replace {address} lladdr {mac} dev eth0 nud permanent"));
    }
}

/// One ping of h1 to h2; whether it is answered.
fn is_heard(net: &Net) -> bool {
    net.run("h1", "ping", "-q -c 1 -W 1 10.78.0.2").status.success()
}

/// Names of the ports that are blocked, and why.
fn blocked(switch: &Switch) -> Vec<(String, String)> {
    let ports = switch.show("ports");
    let of = |port: &Value| {
        Some((port["name"].as_str()?.to_owned(), port["blocked"].as_str()?.to_owned()))
    };
    ports.as_array().unwrap().iter().filter_map(of).collect()
}

/// Waits until no frame comes in by `ends` any more.
fn at_rest(switch: &Switch, ends: [usize; 2]) {
    let received = || {
        let ports = switch.show("ports");
        ends.map(|port| ports[port]["rx_frames"].as_u64().unwrap())
    };
    until(LONG, "nothing goes round", || {
        let before = received();
        (before == received()).then_some(())
    });
}

/// Subjects and messages of the events of `kind`.
fn events(switch: &Switch, kind: &str) -> Vec<(String, String)> {
    let events = switch.show("events")["events"].take();
    let text = |event: &Value, key: &str| event[key].as_str().unwrap_or_default().to_owned();
    let of_kind = events.as_array().unwrap().iter().filter(|event| event["kind"] == kind);
    of_kind.map(|event| (text(event, "subject"), text(event, "message"))).collect()
}

/// Every frame of the final counters is accounted for.
fn assert_balanced(ledger: &Value) {
    let sum = |keys: &[&str]| keys.iter().map(|key| ledger[*key].as_u64().unwrap()).sum::<u64>();
    assert_eq!(sum(&["rx", "copies"]), sum(&["tx", "dropped", "consumed", "queued"]), "{ledger}");
}

/// The switch that `kind` opens between two hosts, with a cable between its ports a and b, once it has cut the loop.
fn cut(net: &mut Net, kind: &str, more: &[&str]) -> Switch {
    for n in 1..=2 {
        net.add_joined(&format!("h{n}"), &format!("sw{n}"), &format!("10.78.0.{n}/24"));
    }
    introduce(net);
    cable(net, ["la", "lb"]);
    let ports =
        ["p0=:sw1", "p1=:sw2", "a=:la", "b=:lb"].map(|port| port.replace(':', &format!("{kind}:")));
    let switch = Switch::start_with(net, &ports.each_ref().map(String::as_str), CONFIG, more);
    until(LONG, "a port is blocked", || {
        let _ = is_heard(net);
        (!blocked(&switch).is_empty()).then_some(())
    });
    switch
}

fn slow_hosts_are_heard(net: &mut Net, kind: &str) {
    let switch = cut(net, kind, &[]);
    let (ends, found) = (["a", "b"], blocked(&switch));
    let [(cut, why)] = found.as_slice() else { panic!("one end is enough: {found:?}") };
    let other = if cut == "a" { "b" } else { "a" };
    assert!(ends.contains(&cut.as_str()), "{found:?}: not a host's port");
    assert_eq!(*why, format!("loop: what leaves by {other} comes in here"));
    let told = (format!("{other}, {cut}"), format!("what leaves by {other} comes in by {cut}"));
    until(LONG, "the loop is told", || events(&switch, "loop").contains(&told).then_some(()));
    at_rest(&switch, [2, 3]);
    let ports = switch.show("ports");
    assert_eq!(
        [2, 3].map(|port: usize| ports[port]["learned"].as_u64().unwrap()),
        [0, 0],
        "{ports}"
    );
    // What was learned at the wrong ends would cost every answer until the host speaks.
    assert_eq!(answers(net, "h1", "10.78.0.2", 20), 20, "{}", switch.show("ports"));
    assert_eq!(blocked(&switch), found, "nothing else is blocked");
    assert_balanced(&switch.stop());
}

#[test]
fn a_cable_between_two_ports_costs_slow_hosts_nothing_af_packet() {
    let Some(mut net) = Net::new("a_cable_between_two_ports_costs_slow_hosts_nothing_af_packet")
    else {
        return;
    };
    slow_hosts_are_heard(&mut net, "af_packet");
}

#[test]
fn a_cable_between_two_ports_costs_slow_hosts_nothing_af_xdp() {
    let Some(mut net) = Net::new("a_cable_between_two_ports_costs_slow_hosts_nothing_af_xdp")
    else {
        return;
    };
    slow_hosts_are_heard(&mut net, "af_xdp");
}

/// Probes and what they prove are in a record: its replay makes and takes the same ones.
#[test]
fn a_loop_that_was_cut_comes_to_the_same_again() {
    let Some(mut net) = Net::new("a_loop_that_was_cut_comes_to_the_same_again") else { return };
    let record = Scratch(std::env::temp_dir().join(net.name("loop.rec")));
    let switch = cut(&mut net, "af_packet", &["--record", record.0.to_str().unwrap()]);
    at_rest(&switch, [2, 3]);
    let live = switch.stop();
    let replay =
        Command::new(weft()).args(["replay", "--json", "--record"]).arg(&record.0).output();
    let replay = replay.unwrap();
    let again: Value = serde_json::from_slice(&replay.stdout).unwrap_or_default();
    assert_eq!(replay.status.code(), Some(0), "{}", String::from_utf8_lossy(&replay.stderr));
    assert_eq!(again["trace_hash"], live["record"]["trace_hash"]);
    let blocks = |ports: &Value| -> u64 {
        ports.as_array().unwrap().iter().map(|port| port["loop_blocks"].as_u64().unwrap()).sum()
    };
    assert_eq!(blocks(&again["ports"]), 1, "{again}");
}

/// Both ends of one pair are the two ports: told at the start, and found as soon as anything is said by one of them.
#[test]
fn two_ports_that_are_one_cable_are_told_and_found() {
    let Some(net) = Net::new("two_ports_that_are_one_cable_are_told_and_found") else { return };
    cable(&net, ["va", "vb"]);
    net.ip("sw", "addr add 10.78.0.1/24 dev va");
    let folder = Scratch(std::env::temp_dir().join(net.name("said")));
    std::fs::create_dir_all(&folder.0).unwrap();
    let [script, said] = ["run.sh", "said"].map(|name| folder.0.join(name));
    std::fs::write(&script, format!("exec \"$@\" 2>{}\n", said.display())).unwrap();
    for kind in ["af_packet", "af_xdp"] {
        let ports = [format!("p0={kind}:va"), format!("p1={kind}:vb")];
        let by = format!("sh {}", script.display());
        let switch = Switch::start_by(&net, &by, &[&ports[0], &ports[1]], CONFIG, &[]);
        let want = "ports p0 and p1 are the two ends of one veth pair (va, vb)";
        until(LONG, "the pair is told", || {
            std::fs::read_to_string(&said).unwrap().contains(want).then_some(())
        });
        let found = until(LONG, "a port is blocked", || {
            let _ = net.run("sw", "ping", "-q -c 1 -W 1 10.78.0.2"); // asks by va who that is
            blocked(&switch).pop()
        });
        println!("{kind}: {found:?}");
        assert!(!events(&switch, "loop").is_empty() || !events(&switch, "loop_blocked").is_empty());
        at_rest(&switch, [0, 1]);
        assert_balanced(&switch.stop());
    }
}
