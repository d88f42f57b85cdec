//! A worker that does not run for 300 ms while lossless frames come: its peer is paused meanwhile, and nothing is lost.
//!
//! Shape: `weft traffic` between two namespaces; the hook of a build with `debug_assertions` takes the worker away.
//! Units: frames, ns.
//! Source: docs/spec/pipeline.md §9; docs/running.md "A worker that is away" and "Test hook".

use std::process::Child;

use serde_json::Value;
use weft_base::wait::{LONG, until};
use weft_tests::netns::{Net, Switch};
use weft_tests::talk::host;

/// How often the worker is away, for 300 ms each time.
const TIMES: usize = 3;

fn number(value: &Value, path: &str) -> u64 {
    value.pointer(path).and_then(Value::as_u64).unwrap_or_else(|| panic!("{path} of {value}"))
}

/// Some 18,000 frames a second: without PAUSE 5,000 of them would come to a ring of 1,024 while the worker is away.
#[test]
fn a_lossless_class_survives_a_worker_that_is_away() {
    let Some(mut net) = Net::new("a_lossless_class_survives_a_worker_that_is_away") else { return };
    net.add_joined("h1", "sw1", "10.78.0.1/24");
    net.add_joined("h2", "sw2", "10.78.0.2/24");
    let hook = Switch::folder(&net).join("hook");
    let wrapper = format!("env WEFT_TEST_HOOK={}", hook.display());
    let config = "[express]\nenabled = false\n[port_defaults]\nrx_ring_frames = 1024\n";
    let ports = ["p1=af_packet:sw1", "p2=af_packet:sw2"];
    let more = ["--set", "run.pause_guard=true"];
    let switch = Switch::start_by(&net, &wrapper, &ports, config, &more);
    let receiver = host(&net, "h2", "--station 2");
    let sender =
        host(&net, "h1", "--station 1 --to 2 --pri 2 --size 1392 --rate 200Mbps --linger 2");
    let mut away = 0;
    for _ in 0..TIMES {
        let before = switch.show("all");
        let came = number(&before, "/ports/0/rx_frames");
        let guarded = number(&before, "/ports/0/pfc_guard");
        until(LONG, "frames come", || {
            (number(&switch.show("all"), "/ports/0/rx_frames") > came + 100).then_some(())
        });
        std::fs::write(hook.with_extension("new"), "away weft-worker0").unwrap();
        std::fs::rename(hook.with_extension("new"), &hook).unwrap();
        until(LONG, "the worker was away", || {
            let shown = switch.show("all");
            away = number(&shown, "/workers/0/away_max_ns");
            let paused = number(&shown, "/ports/0/pfc_guard");
            (!hook.exists() && away >= 290_000_000 && paused > guarded + 5).then_some(())
        });
    }
    let end = |host: Child| -> Value {
        assert!(net.run("h1", "kill", &format!("-TERM {}", host.id())).status.success());
        serde_json::from_slice(&host.wait_with_output().unwrap().stdout).unwrap()
    };
    let sent = end(sender);
    let shown = switch.show("all");
    println!("away for {} ms, {} guard frames", away / 1_000_000, shown["ports"][0]["pfc_guard"]);
    assert_eq!(number(&shown, "/ports/0/kernel_rx"), 0, "{shown}");
    assert!(number(&sent, "/control/pfc_rx") > 0, "{sent}");
    let data = number(&sent, "/tx_streams/0/frames") - number(&sent, "/other/pending");
    assert!(data > 1_000, "{sent}");
    until(LONG, "all frames were forwarded", || {
        (number(&switch.show("all"), "/ports/1/tx_frames") >= data).then_some(())
    });
    end(receiver);
    let shown = switch.show("all");
    assert_eq!(number(&shown, "/conservation/dropped"), 0, "{}", shown["drops"]);
}
