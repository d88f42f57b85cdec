//! A live switch between kernel hosts, recorded, comes to the same again: pings, TCP with its offloads,
//! PAUSE, a link that goes, a reload, an entry more.
//!
//! Three hosts in namespaces; `weft run --record`, then `weft replay --record`.
//!
//! Units: frames.
//! Source: docs/spec/pipeline.md §13.
#![expect(clippy::unwrap_used, reason = "a test fails that way")]

use std::path::Path;
use std::process::Command;

use serde_json::Value;
use weft_base::wait::{LONG, until};
use weft_tests::netns::{Net, Switch, weft};
use weft_tests::talk;

/// A buffer that a slow host fills soon.
const CONFIG: &str = "[switch]\nseed = 3\n[buffer]\nbuffer_size_mb = 12\n\
    peer_response_us = 1000\n[pfc]\nwatchdog_detect_ms = 50\n[fdb]\nageing_s = 2\n";

/// Carries its file away after a failure, too.
struct Scratch(std::path::PathBuf);

impl Drop for Scratch {
    fn drop(&mut self) {
        drop(std::fs::remove_dir_all(&self.0));
    }
}

/// Pings h2 so often, and again until it has answered: its link may have come up a moment ago.
fn ping(net: &Net, count: u32) {
    let arguments = format!("-q -c {count} -i 0.002 -W 2 10.78.0.2");
    until(LONG, "h2 answers", || net.run("h1", "ping", &arguments).status.success().then_some(()));
}

/// 8 MB of TCP from h1 to h2: super-frames, partial checksums.
fn tcp(net: &Net) {
    let said = talk::iperf3(net, "h1", "h2", "10.78.0.2", "-n 8M");
    assert!(said.get("error").is_none(), "{said}");
}

/// A stream of a lossless class to a host that drains it slowly, until that has sent PFC: both run for so long, if they begin
/// together.
fn pause(net: &Net, switch: &Switch) {
    let weft = weft().to_str().unwrap();
    let slow = "--station 3 --slow 20Mbps --duration 3";
    let fast =
        "traffic eth0 --station 1 --to 3 --pri 2 --size 1000 --rate 200Mbps --duration 2 --json";
    until(LONG, "PFC has come from h3", || {
        let mut slow = talk::host(net, "h3", slow);
        let sent = net.run("h1", weft, fast);
        assert!(sent.status.success(), "{}", String::from_utf8_lossy(&sent.stderr));
        assert!(slow.wait().unwrap().success());
        (switch.show("ports").pointer("/2/pfc_rx")?.as_u64()? > 0).then_some(())
    });
}

fn replay(record: &Path, more: &[&str]) -> (Option<i32>, Value, String) {
    let mut command = Command::new(weft());
    let done = command.args(["replay", "--json", "--record"]).arg(record).args(more).output();
    let done = done.unwrap();
    let said = String::from_utf8_lossy(&done.stderr).into_owned();
    (done.status.code(), serde_json::from_slice(&done.stdout).unwrap_or_default(), said)
}

#[test]
fn a_recorded_live_run_comes_to_the_same_again() {
    let Some(mut net) = Net::new("a_recorded_live_run_comes_to_the_same_again") else { return };
    for n in 1..=3 {
        net.add_joined(&format!("h{n}"), &format!("sw{n}"), &format!("10.78.0.{n}/24"));
    }
    let scratch = Scratch(std::env::temp_dir().join(net.name("record")));
    std::fs::create_dir_all(&scratch.0).unwrap();
    let record = scratch.0.join("run.rec");
    let ports = ["p1=af_packet:sw1", "p2=af_xdp:sw2", "p3=af_xdp:sw3"]; // super-frames at the first
    let switch = Switch::start_with(&net, &ports, CONFIG, &["--record", record.to_str().unwrap()]);
    ping(&net, 200);
    assert!(switch.ask("fdb add 02:00:00:00:00:77 p3").is_some());
    tcp(&net);
    switch.configure(&CONFIG.replace("seed = 3", "seed = 3\n[ecn]\necn_threshold_low = 10"));
    assert!(switch.ask("reload").is_some());
    pause(&net, &switch);
    for state in ["down", "up"] {
        net.ip("h2", &format!("link set eth0 {state}"));
        until(LONG, format_args!("the link is {state}"), || {
            (switch.show("ports")[1]["link_up"] == (state == "up")).then_some(())
        });
    }
    ping(&net, 20);
    // Ageing is in the record, too.
    until(LONG, "all but the static entry are gone", || {
        (switch.show("all")["fdb"]["used"] == 1).then_some(())
    });
    let live = switch.stop();

    let (code, again, said) = replay(&record, &[]);
    assert!(code == Some(0) && said.contains("hashes and counters equal"), "{code:?} {said}");
    println!("{}", live["record"]);
    for name in ["trace_hash", "sent_hash", "events", "steps"] {
        assert_eq!(again[name], live["record"][name], "{name}");
    }
    for name in ["rx", "tx", "dropped", "consumed"] {
        assert_eq!(again["conservation"][name], live[name], "{name}");
    }
    // All that was meant to happen is in the record.
    let sum = |key: &str| {
        let ports = again["ports"].as_array().unwrap().iter();
        ports.map(|port| port[key].as_u64().unwrap()).sum::<u64>()
    };
    assert!(sum("pfc_rx") > 0 && sum("rx_frames") > 6_000, "{again}");
    let trace = scratch.0.join("trace.json");
    let (code, ..) = replay(&record, &["--trace", trace.to_str().unwrap()]);
    assert_eq!(code, Some(0));
    let events = std::fs::read_to_string(&trace).unwrap();
    for wanted in ["\"ev\":\"reload\"", "\"ev\":\"pause_rx\"", "\"up\":false"] {
        assert!(events.contains(wanted), "{wanted}");
    }

    // One byte of a received frame is another run.
    let mut bytes = std::fs::read(&record).unwrap();
    let arp = bytes.windows(4).position(|window| window == [8, 6, 0, 1]);
    bytes[arp.expect("a host asked for an address")] ^= 1;
    let changed = scratch.0.join("changed.rec");
    std::fs::write(&changed, bytes).unwrap();
    let (code, _, said) = replay(&changed, &[]);
    assert!(code == Some(1) && said.contains("differs from the record: step "), "{code:?} {said}");
}
