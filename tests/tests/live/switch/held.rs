//! Ports whose queues are held by command: nothing leaks after the answer, nothing is lost.
//!
//! Two hosts in namespaces, one that sends all the time, and a switch between them that holds the other's port.
//!
//! Units: frames.
//! Source: docs/spec/pipeline.md §7 "Transmission off".

use weft_base::wait::{LONG, until};
use weft_tests::netns::{Net, Switch};
use weft_tests::stations::{Load, Station, counters, frame};

/// Frames that the host at the held port has been sent.
fn reached(net: &Net) -> u64 {
    counters(net, "h2")["eth0"].rx
}

/// Frames that the switch has sent by the held port.
fn sent(switch: &Switch) -> u64 {
    switch.show("ports")[1]["tx_frames"].as_u64().unwrap()
}

/// Frames that were dropped for want of room in the queue for the held port, and cells in it.
fn queue(switch: &Switch) -> (u64, u64) {
    let queues = switch.show("queues");
    let mut rows = queues.as_array().unwrap().iter();
    let row = rows.find(|row| row["port"] == "p1" && row["pri"] == 0).unwrap();
    (row["output_drops"]["dt"].as_u64().unwrap_or(0), row["depth_cells"].as_u64().unwrap())
}

fn holds(test: &str, kind: &str, more: &[&str]) {
    let Some(mut net) = Net::new(test) else { return };
    net.add_joined("h1", "sw1", "10.78.0.1/24");
    net.add_joined("h2", "sw2", "10.78.0.2/24");
    // Its own stack would speak by the same interfaces.
    let quiet = net.run("sw", "sysctl", "-qw net.ipv6.conf.all.disable_ipv6=1");
    assert!(quiet.status.success());
    net.napi("h1", "eth0", true);
    net.napi("h2", "eth0", true);
    let ports = [format!("p0={kind}:sw1"), format!("p1={kind}:sw2")];
    let switch = Switch::start_with(&net, &[&ports[0], &ports[1]], "", more);
    let (one, two) = (net.mac("h1").0, net.mac("h2").0);
    let hello = Station::sender(&net, "h2", "eth0");
    assert_eq!(hello.send(&[frame(one, two, 60, 0)]), 1); // its address is learned
    let sender = Station::sender(&net, "h1", "eth0");
    let mut number = 0;
    let load = Load::start(vec![sender], move |_, burst, _| {
        burst.clear();
        for _ in 0..32 {
            number += 1;
            burst.push(frame(two, one, 60, number));
        }
    });
    let mut beside = None; // frames that the host had before weft had the interface
    for round in 0..3 {
        let before = reached(&net);
        until(LONG, "frames come through", || (reached(&net) > before + 100).then_some(()));
        assert!(switch.ask("port p1 tx off").is_some());
        let at_answer = sent(&switch);
        let fills = || {
            let (dropped, _) = queue(&switch);
            until(LONG, "its queue fills up", || (queue(&switch).0 > dropped + 100).then_some(()));
        };
        // What the port had sent is taken by the host in its own time; then nothing comes any more.
        let at_rest = until(LONG, "the host has what was sent before", || {
            let before = reached(&net);
            fills();
            Some(reached(&net)).filter(|now| *now == before)
        });
        assert_eq!(sent(&switch), at_answer, "round {round}: nothing is sent");
        let more = at_rest - at_answer;
        assert_eq!(
            more,
            *beside.get_or_insert(more),
            "round {round}: nothing comes that was not sent"
        );
        let row = &switch.show("ports")[1];
        assert_eq!((&row["tx_off"], &row["name"]), (&true.into(), &"p1".into()));
        assert!(switch.ask("port p1 tx on").is_some());
    }
    let before = reached(&net);
    until(LONG, "frames come through", || (reached(&net) > before).then_some(()));
    drop(load.stop());
    until(LONG, "its queue is empty", || (queue(&switch).1 == 0).then_some(()));
    let (dropped, _) = queue(&switch);
    let ledger = switch.stop();
    let count = |key: &str| ledger[key].as_u64().unwrap();
    assert_eq!(
        count("rx") + count("copies"),
        count("tx") + count("dropped") + count("consumed") + count("queued")
    );
    // What rings lost, before the switch had it, is not held against it: the other host says something now and then, too.
    let reasons = weft_dataplane::stats::DropReason::ALL.iter().map(|reason| reason.name());
    let of = |name: &str| -> u64 {
        let at = reasons.clone().position(|reason| reason == name).unwrap();
        let ports = ledger["port"].as_array().unwrap();
        ports.iter().map(|port| port["drops"][at].as_u64().unwrap()).sum()
    };
    assert_eq!(of("dt"), dropped, "{ledger}");
    assert_eq!(
        count("dropped"),
        of("dt") + of("xsk_ring"),
        "none but those without room: {ledger}"
    );
}

#[test]
fn a_held_port_leaks_nothing_by_af_packet() {
    holds("a_held_port_leaks_nothing_by_af_packet", "af_packet", &[]);
}

#[test]
fn a_held_port_leaks_nothing_by_af_xdp_and_the_kernel() {
    holds("a_held_port_leaks_nothing_by_af_xdp_and_the_kernel", "af_xdp", &[]);
}

#[test]
fn a_held_port_leaks_nothing_by_two_workers() {
    holds("a_held_port_leaks_nothing_by_two_workers", "af_xdp", &["--set", "run.workers=2"]);
}
