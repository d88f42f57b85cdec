//! What switches notify the manager of, as processes on veth pairs; the manager polls once an hour, so that whatever it finds
//! out it has been notified of.
//!
//! A fault at the entry switch or further out -> an event of the manager, new routes, and frames that go on.
//!
//! Units: frames.
//! Source: docs/spec/cxl-fabric.md "Dynamic change"; docs/fm.md "Monitoring the fabric".

use serde_json::{Value, json};
use weft_tests::fabric_up::Up;

use super::{alone, number};

/// An hour: the longest pause that there is.
const NO_POLLS: [&str; 2] = ["--pause", "3600000"];

/// Three switches in a row, each two joined by two links; a host at the first one with memory behind the last one.
const TOPOLOGY: &str = r#"
switch = [{ name = "sw0" }, { name = "sw1" }, { name = "sw2" }]
link = [{ ends = ["sw0", "sw1"], count = 2 }, { ends = ["sw1", "sw2"], count = 2 }]
host = [{ name = "h0", at = "sw0", bind = ["d0"] }, { name = "h1", at = "sw2" }]
device = [{ name = "d0", at = "sw2" }]
gfd = [{ name = "g", at = "sw2" }]

[[memory]]
name = "pool"
hosts = ["h0"]
gfds = ["g"]
len = 0x10000000
hpa = 0x10000000000
"#;

fn events(up: &Up) -> u64 {
    number(&up.fm("status")["events"])
}

/// Waits until the manager has noted an event behind `after` that has `part` in it.
fn noted(up: &Up, after: u64, part: &str) {
    up.until(&format!("{part:?} is noted"), |up| {
        let events = up.fm(&format!("events --after {after}"));
        let is_it = |event: &Value| event["what"].as_str().unwrap().contains(part);
        events.as_array().unwrap().iter().any(is_it).then_some(())
    });
}

/// How the load of a host goes: answered requests, and those that were lost.
fn load(up: &Up, name: &str) -> (u64, u64) {
    let load = up.well(name, "load status")["load"].take();
    assert_eq!(load["wrong"], json!(0), "{load}");
    let failures = load["failures"].as_object().unwrap().values().map(number).sum::<u64>();
    (number(&load["answered"]), failures + number(&load["unanswered"]))
}

/// A link near the manager and one further out are pulled and put back, an endpoint further out goes and comes: all of it is
/// dealt with at once, and a flow that has another path loses no more than what was under way.
#[test]
fn what_happens_anywhere_is_dealt_with_without_polls() {
    let _alone = alone();
    let name = "what_happens_anywhere_is_dealt_with_without_polls";
    let Some(mut up) = Up::start_text(name, TOPOLOGY, &NO_POLLS) else { return };
    let tree = up.functions("h0");
    up.well("h0", "load start 0x10000000000 16KiB --seed=1 --pause-ms 2 --timeout-ms 60000");
    for (one, other) in [("sw0", "sw1"), ("sw1", "sw2")] {
        let before = up.fm("routes");
        for device in up.links(one, other) {
            let after = events(&up);
            up.link(&device, false);
            noted(&up, after, "is down");
            let (answered, lost) = load(&up, "h0");
            up.until("the load goes on without a loss", |up| {
                let then = load(up, "h0");
                let on = up.until("it goes on", |up| {
                    let now = load(up, "h0");
                    (now.0 > then.0 + 16).then_some(now)
                });
                (on.1 == then.1).then_some(())
            });
            let now = load(&up, "h0");
            assert!(now.0 > answered && now.1 <= lost + UNDER_WAY, "{device}: {lost} {now:?}");
            let after = events(&up);
            up.link(&device, true);
            noted(&up, after, "is up again");
            up.until("the routes are as before", |up| (up.fm("routes") == before).then_some(()));
        }
    }
    let after = events(&up);
    up.kill("d0");
    noted(&up, after, "has lost its component");
    up.run("d0");
    up.sees("h0", &tree);
    up.stop();
}

/// Requests that a load has under way at a time.
const UNDER_WAY: u64 = 16;

/// A host that tries what it has no right to: the manager's events tell who, where, by which rule, and how often.
#[test]
fn a_refused_access_is_told_to_the_operator() {
    let _alone = alone();
    let name = "a_refused_access_is_told_to_the_operator";
    let Some(up) = Up::start_text(name, TOPOLOGY, &[]) else { return };
    let after = events(&up);
    up.fm("revoke pool h0");
    for _ in 0..8 {
        let (code, refused) = up.ask("h0", "read 0x10000000000 64");
        assert_eq!((code, &refused["transfer"]["failures"]), (1, &json!({ "UR": 1 })), "{refused}");
    }
    noted(&up, after, "refused an access of h0 (PID ");
    let told = up.fm(&format!("events --after {after}"));
    let of_h0 = |event: &&Value| event["what"].as_str().unwrap().contains("refused an access");
    let lines: Vec<&Value> = told.as_array().unwrap().iter().filter(of_h0).collect();
    let all = |what: &Value| {
        let what = what["what"].as_str().unwrap();
        what.starts_with("sw0.") && what.contains(": not-in-gmv, ")
    };
    assert!((1..=4).contains(&lines.len()) && lines.iter().all(|line| all(line)), "{lines:?}");
    up.stop();
}
