//! A worker that does not run for 300 ms while lossless frames come: its peer is paused meanwhile, and nothing is lost.
//!
//! `weft traffic` between two namespaces; the hook of a build with `debug_assertions` takes the worker away.
//!
//! Units: frames, ns.
//! Source: docs/spec/pipeline.md §9; docs/running.md "A worker that is away" and "Test hook".

#![expect(clippy::unwrap_used, reason = "a test fails that way")]

use std::path::PathBuf;
use std::process::Child;

use serde_json::Value;
use weft_base::wait::{LONG, until};
use weft_tests::netns::{Net, Switch};
use weft_tests::talk::host;

/// How often the worker is away, for 300 ms each time.
const TIMES: usize = 3;

/// Some 18,000 frames a second: without PAUSE 5,400 of them would come to a ring of 4,096 while the worker is away.
///
/// Half of the ring is what guard and sender have to be run in: 114 ms here. A busy machine now and then takes 57.
const SENDER: &str = "--station 1 --to 2 --pri 2 --size 1392 --rate 200Mbps --linger 2";

const CONFIG: &str = "[express]\nenabled = false\n[port_defaults]\nrx_ring_frames = 4096\n";

/// A ring that surely overflows while the worker is away.
const NO_GUARD: [&str; 4] =
    ["--set", "run.pause_guard=false", "--set", "port_defaults.rx_ring_frames=1024"];

fn number(value: &Value, path: &str) -> u64 {
    value.pointer(path).and_then(Value::as_u64).unwrap_or_else(|| panic!("{path} of {value}"))
}

/// Hosts h1 and h2 at sw1 and sw2, and a switch whose worker can be taken away.
struct Rig {
    // Before the namespaces.
    switch: Switch,
    hook: PathBuf,
    net: Net,
}

impl Rig {
    fn new(test: &str, kind: &str, more: &[&str]) -> Option<Self> {
        let mut net = Net::new(test)?;
        net.add_joined("h1", "sw1", "10.78.0.1/24");
        net.add_joined("h2", "sw2", "10.78.0.2/24");
        let hook = Switch::folder(&net).join("hook");
        let wrapper = format!("env WEFT_TEST_HOOK={}", hook.display());
        let [p1, p2] = [1, 2].map(|n| format!("p{n}={kind}:sw{n}"));
        let switch = Switch::start_by(&net, &wrapper, &[&p1, &p2], CONFIG, more);
        Some(Self { switch, hook, net })
    }

    /// Waits until h1 sends.
    fn frames_come(&self) {
        let came = number(&self.switch.show("all"), "/ports/0/rx_frames");
        until(LONG, "frames come", || {
            (number(&self.switch.show("all"), "/ports/0/rx_frames") > came + 100).then_some(())
        });
    }

    /// Has the worker be away from now on, for 300 ms.
    fn take_away(&self) {
        std::fs::write(self.hook.with_extension("new"), "away weft-worker0").unwrap();
        std::fs::rename(self.hook.with_extension("new"), &self.hook).unwrap();
    }

    /// Waits until it is back, and `holds` of what is shown then; for how long it was away, at most, in ns.
    fn is_back(&self, holds: impl Fn(&Value) -> bool) -> u64 {
        until(LONG, "the worker is back", || {
            let shown = self.switch.show("all");
            let away = number(&shown, "/workers/0/away_max_ns");
            (!self.hook.exists() && away >= 290_000_000 && holds(&shown)).then_some(away)
        })
    }

    /// Takes the worker away while frames come, again where they came too slowly to fill its ring, until the guard has
    /// paused h1 meanwhile.
    fn is_paused(&self) {
        let guarded = || number(&self.switch.show("all"), "/ports/0/pfc_guard");
        let before = guarded();
        until(LONG, "the guard pauses", || {
            if !self.hook.exists() {
                self.frames_come();
                self.take_away();
            }
            (guarded() > before).then_some(())
        });
    }

    /// As [`Self::is_paused`], and the worker is back; for how long it was away, at most, in ns.
    fn is_away_once(&self) -> u64 {
        self.is_paused();
        self.is_back(|_| true)
    }

    fn end(&self, host: Child) -> Value {
        let pid = host.id();
        assert!(self.net.run("h1", "kill", &format!("-TERM {pid}")).status.success());
        serde_json::from_slice(&host.wait_with_output().unwrap().stdout).unwrap()
    }
}

/// Nothing of `kind`'s rings is lost.
fn survives(test: &str, kind: &str) {
    let Some(rig) = Rig::new(test, kind, &[]) else { return };
    let receiver = host(&rig.net, "h2", "--station 2");
    let sender = host(&rig.net, "h1", SENDER);
    rig.frames_come();
    let lost = || number(&rig.switch.show("all"), "/ports/0/kernel_rx");
    let before = lost(); // of what the interface got before its port was open
    let away = (0..TIMES).map(|_| rig.is_away_once()).max().unwrap();
    let sent = rig.end(sender);
    let shown = rig.switch.show("all");
    let guarded = number(&shown, "/ports/0/pfc_guard");
    println!("away for {} ms, {guarded} guard frames", away / 1_000_000);
    assert_eq!(lost(), before, "{shown}");
    assert!(number(&sent, "/control/pfc_rx") > 0, "{sent}");
    let data = number(&sent, "/tx_streams/0/frames") - number(&sent, "/other/pending");
    assert!(data > 1_000, "{sent}");
    until(LONG, "all frames were forwarded", || {
        (number(&rig.switch.show("all"), "/ports/1/tx_frames") >= data).then_some(())
    });
    rig.end(receiver);
    let shown = rig.switch.show("all");
    assert_eq!(number(&shown, "/conservation/dropped"), 0, "{shown}");
}

#[test]
fn a_lossless_class_survives_a_worker_that_is_away() {
    survives("a_lossless_class_survives_a_worker_that_is_away", "af_packet");
}

#[test]
fn a_lossless_class_survives_a_worker_that_is_away_by_af_xdp() {
    survives("a_lossless_class_survives_a_worker_that_is_away_by_af_xdp", "af_xdp");
}

/// Without the guard frames are lost, and an event names them and the worker's absence.
#[test]
fn frames_of_a_lossless_class_that_a_ring_lost_are_an_event() {
    let test = "frames_of_a_lossless_class_that_a_ring_lost_are_an_event";
    let Some(rig) = Rig::new(test, "af_packet", &NO_GUARD) else { return };
    let sender = host(&rig.net, "h1", SENDER);
    rig.frames_come();
    rig.take_away();
    rig.is_back(|shown| number(shown, "/ports/0/kernel_rx") > 100);
    let event = until(LONG, "the event", || {
        let events = rig.switch.show("events");
        let mut all = events["events"].as_array().unwrap().iter();
        all.find(|event| event["kind"] == "kernel_lost").cloned()
    });
    let message = event["message"].as_str().unwrap();
    let frames = message.split(' ').next().and_then(|word| word.parse::<u64>().ok());
    assert!(frames.is_some_and(|frames| frames > 0), "{event}");
    assert!(
        message.contains("worker 0 was away for up to ") && event["subject"] == "p1",
        "{event}"
    );
    assert_eq!(number(&rig.switch.show("all"), "/ports/0/pfc_guard"), 0);
    rig.end(sender);
}

/// An interface that goes while the guard pauses its peer is guarded again when it is back.
#[test]
fn an_interface_that_goes_under_the_guard_is_guarded_when_it_is_back() {
    let test = "an_interface_that_goes_under_the_guard_is_guarded_when_it_is_back";
    let Some(rig) = Rig::new(test, "af_packet", &[]) else { return };
    let sender = host(&rig.net, "h1", SENDER);
    rig.is_paused();
    rig.net.ip("sw", "link del sw1");
    rig.is_back(|shown| shown["ports"][0]["link_up"] == false);
    drop(rig.end(sender));
    let there = rig.net.name("h1");
    rig.net.ip("sw", &format!("link add sw1 type veth peer name eth0 netns {there}"));
    rig.net.ip("sw", "link set sw1 up");
    rig.net.address("h1", "10.78.0.1/24");
    until(LONG, "the port is up", || {
        (rig.switch.show("all")["ports"][0]["link_up"] == true).then_some(())
    });
    let sender = host(&rig.net, "h1", SENDER);
    rig.is_away_once();
    rig.end(sender);
}
