//! `weft bench` on veth: through a running switch, over a cable, and where nothing comes through.
//!
//! Short trials; counts and structure are judged, never speed.
//!
//! Units: frames, bytes with FCS.
#![expect(clippy::unwrap_used, clippy::indexing_slicing, reason = "a test fails that way")]

use std::process::{Command, Stdio};

use serde_json::Value;
use weft_base::wait::{LONG, try_until, until};
use weft_tests::netns::{Net, Switch, weft};

/// Trials that are as short as can be and still send many frames.
const SHORT: &str = "--trial-ms 100 --settle-ms 50 --drain-ms 100 --repetitions 1 \
    --resolution-percent 10 --latency-repetitions 2 --burst-repetitions 1 --burst-ms-max 20 --json";

/// Two pairs of veths: the outer ends are the bench's, the inner ones the switch's.
fn wired(net: &Net) {
    for (outer, inner) in [("a0", "s0"), ("a1", "s1")] {
        net.ip("sw", &format!("link add {outer} type veth peer name {inner}"));
        for end in [outer, inner] {
            net.ip("sw", &format!("link set {end} up"));
        }
    }
}

/// Runs `weft bench ports` with `arguments`; its exit code, result and what it said.
fn bench(net: &Net, arguments: &str) -> (i32, Value, String) {
    let program = weft().to_str().unwrap();
    let done = net.run("sw", program, &format!("bench ports {SHORT} {arguments}"));
    let said = String::from_utf8_lossy(&done.stderr).into_owned();
    let result = serde_json::from_slice(&done.stdout).unwrap_or(Value::Null);
    (done.status.code().unwrap(), result, said)
}

/// Whether what a size says of itself holds together.
fn check(size: &Value) {
    let number = |of: &Value| of.as_u64().unwrap_or_else(|| panic!("no number: {of}: {size}"));
    let totals = &size["totals"];
    let (sent, received) = (number(&totals["sent"]), number(&totals["received"]));
    assert!(sent > 20 && received > 0 && received <= sent, "{totals}");
    for count in ["duplicates", "corrupt"] {
        assert_eq!(number(&totals[count]), 0, "{count}: {totals}");
    }
    for rate in ["throughput", "partial"] {
        let found = &size[rate];
        let accepted = number(&found["accepted_ppm"]);
        for search in found["searches"].as_array().unwrap() {
            let best = &search["best"];
            if search["limit"] == "none_passed" {
                assert!(best.is_null(), "{search}");
                continue;
            }
            let (sent, came) = (number(&best["sent_frames"]), number(&best["received_frames"]));
            assert!((sent - came) * 1_000_000 <= accepted * sent, "{rate}: {best}");
            assert!(number(&best["offered_fps"]) > 0, "{rate}: {best}");
        }
        let [least, median, most] =
            ["least_fps", "median_fps", "most_fps"].map(|f| number(&found[f]));
        assert!(least <= median && median <= most, "{rate}: {found}");
    }
    // However busy the machine is: what passes without loss passes with some, and is offered.
    let median = |rate: &str| number(&size[rate]["median_fps"]);
    let rates = [median("throughput"), median("partial"), number(&size["generator_fps"])];
    assert!(rates.is_sorted(), "NDR, PDR and the most that was offered: {rates:?}: {size}");
    let loads = size["loss"].as_array().unwrap();
    assert!((2..=10).contains(&loads.len()), "{loads:?}");
    let burst = &size["burst"];
    assert!(number(&burst["mean_frames"]) <= number(&burst["most_tried_frames"]), "{burst}");
    if number(&size["throughput"]["median_fps"]) == 0 {
        return; // on a machine so busy that every trial loses something there is no load to name
    }
    let latency = &size["latency"];
    let order = ["min_ns", "p50_ns", "p99_ns", "p999_ns", "max_ns"].map(|f| number(&latency[f]));
    assert!(order.is_sorted() && order[0] > 0, "{latency}");
    assert!(number(&latency["frames"]) <= number(&latency["trial"]["sent_frames"]), "{latency}");
    assert!(number(&size["latency_tagged"]["trials"]) >= 2, "{size}");
}

#[test]
fn a_running_switch_is_measured() {
    let Some(net) = Net::new("a_running_switch_is_measured") else { return };
    wired(&net);
    let switch = Switch::start(&net, &["p0=s0", "p1=s1"], "");
    let page = Switch::folder(&net).join("bench.html");
    let html = page.to_str().unwrap();
    let (code, result, said) =
        bench(&net, &format!("--tx a0 --rx a1 --format standard --size 64,128 --html {html}"));
    assert_eq!(code, 0, "{said}");
    let sizes = result["sizes"].as_array().unwrap();
    assert_eq!(sizes.len(), 2, "{result}");
    sizes.iter().for_each(check);
    assert_eq!(sizes[0]["twelve_bytes"], 12 * 64, "sizes count the FCS");
    let text = std::fs::read_to_string(&page).unwrap();
    assert!(text.contains("<svg") && !text.contains("http"), "{} bytes", text.len());
    let (code, result, said) = bench(&net, "--tx a0 --rx a1 --size imix --bidirectional");
    assert_eq!(code, 0, "{said}");
    check(&result["sizes"][0]);
    assert_eq!(result["sizes"][0]["twelve_bytes"], 7 * 64 + 4 * 570 + 1_518);
    let sum = |ledger: &Value, keys: &[&str]| {
        keys.iter().map(|key| ledger[*key].as_u64().unwrap()).sum::<u64>()
    };
    let ledger = switch.stop();
    assert_eq!(
        sum(&ledger, &["rx", "copies"]),
        sum(&ledger, &["tx", "dropped", "consumed", "queued"]),
        "{ledger}"
    );
}

/// A cable is a device, too: what goes out of one end of a veth comes in at the other.
#[test]
fn a_cable_is_measured_and_its_formats_with_it() {
    let Some(net) = Net::new("a_cable_is_measured_and_its_formats_with_it") else { return };
    wired(&net);
    for format in ["standard", "roce6", "gen1", "gen2", "lite", "ethernet"] {
        let (code, result, said) = bench(
            &net,
            &format!("--tx a0 --rx s0 --format {format} --size 128 --test throughput,latency"),
        );
        assert_eq!(code, 0, "{format}: {said}");
        let totals = &result["sizes"][0]["totals"];
        assert!(totals["received"].as_u64().unwrap() > 20, "{format}: {totals}");
        assert_eq!(totals["corrupt"], 0, "{format}: {totals}");
    }
}

/// Where nothing comes through there is no figure, and the exit code says it.
#[test]
fn no_way_is_no_result() {
    let Some(net) = Net::new("no_way_is_no_result") else { return };
    wired(&net);
    #[rustfmt::skip] // columns: arguments, exit code, part of standard error
    let cases = [
        ("--tx a0 --rx a1 --size 64",      3, "none arrived at a1"),
        ("--tx a0 --rx nosuch --size 64",  3, "open the ports: port rx: nosuch"),
        ("--tx a0 --rx s0 --size 9000",    3, "9000 bytes: ethernet frames of these ports have"),
    ];
    for (arguments, code, want) in cases {
        let (had, _, said) = bench(&net, arguments);
        assert_eq!(had, code, "{arguments}: {said}");
        assert!(said.contains(want), "{arguments}: {said}");
    }
}

/// SIGINT ends a long run at once, with what was measured until then.
#[test]
fn an_interrupt_ends_the_run_with_what_there_is() {
    let Some(net) = Net::new("an_interrupt_ends_the_run_with_what_there_is") else { return };
    wired(&net);
    let program = weft().to_str().unwrap();
    let mut child = net
        .at("sw", program, "bench ports --tx a0 --rx s0 --size 64 --trial-ms 60000 --json")
        .stdout(Stdio::piped())
        .stderr(Stdio::piped())
        .spawn()
        .unwrap();
    until(LONG, "frames of a trial", || {
        let said = net.run("sw", "ip", "-s -j link show s0");
        let shown: Value = serde_json::from_slice(&said.stdout).unwrap();
        (shown[0]["stats64"]["rx"]["packets"].as_u64() > Some(1_000)).then_some(())
    });
    let pid = child.id().to_string();
    assert!(Command::new("kill").args(["-INT", &pid]).status().unwrap().success());
    let _ended = try_until(LONG, || child.try_wait().unwrap()); // half of a trial at most
    drop(child.kill()); // if it did not hear
    let done = child.wait_with_output().unwrap();
    assert_eq!(done.status.code(), Some(1), "{}", String::from_utf8_lossy(&done.stderr));
    let result: Value = serde_json::from_slice(&done.stdout).unwrap();
    assert_eq!(result["interrupted"], true);
}
