//! Resets by a host and by the manager, as processes on veth pairs in a namespace.
//!
//! `weft fabric up --processes` → `weft endpoint ctl H reset` and `weft fm port` → counts of who was reset, and what the host
//! sees and reads then.
//!
//! Units: bytes.
//! Source: docs/spec/cxl-fabric.md "Resets"; docs/endpoint.md "Control socket"; docs/fm.md "Commands".

use serde_json::Value;
use weft_tests::fabric_up::Up;

const TOPOLOGY: &str = r#"
switch = [{ name = "sw0" }, { name = "sw1" }]
link = [{ ends = ["sw0", "sw1"] }]
host = [{ name = "h0", at = "sw0", bind = ["far", "hbr0"] }]
device = [{ name = "far", at = "sw1" }, { name = "below", at = "hbr0" }]
hbr = [{ name = "hbr0", at = "sw0" }]
gfd = [{ name = "g", at = "sw1" }]

[[memory]]
name = "pool"
hosts = ["h0"]
gfds = ["g"]
len = 0x10000000
hpa = 0x10000000000
"#;

/// How often what is at a part's first link, or only one, has been reset by it.
fn resets(up: &Up, name: &str) -> u64 {
    let status = up.well(name, "status");
    let at = ["/status/counts/link/resets", "/status/counts/links/0/resets"];
    let found = at.iter().find_map(|at| status.pointer(at).and_then(Value::as_u64));
    found.unwrap_or_else(|| panic!("{name}: {status}"))
}

/// The address of BAR 0 of a device by its Device ID, and the bridges above it, the nearest first.
fn place(node: &Value, device: u64) -> Option<(u64, Vec<String>)> {
    if node.get("device").and_then(Value::as_u64) == Some(device) {
        return Some((node.pointer("/bars/0/address")?.as_u64()?, Vec::new()));
    }
    let nodes = node.pointer("/below/nodes").or_else(|| node.get("nodes"))?.as_array()?;
    let (bar, mut above) = nodes.iter().find_map(|one| place(one, device))?;
    above.extend(node.get("bdf").and_then(Value::as_str).map(str::to_owned));
    Some((bar, above))
}

/// Each reaches what is below it and nothing else; the host sees its devices again, with the memory that they had.
#[test]
fn devices_are_reset_over_veth() {
    let Some(up) = Up::start_text("devices_are_reset_over_veth", TOPOLOGY, &[]) else {
        return;
    };
    let functions = up.functions("h0");
    let tree = up.well("h0", "tree");
    let find =
        |device: u64| place(&tree["tree"]["tree"], device).unwrap_or_else(|| panic!("{tree}"));
    let [(far, above_far), (below, above_below)] = [find(0x0D00), find(0x0D01)];
    up.well("h0", &format!("write {far} 4KiB --seed=1 --check"));
    up.well("h0", &format!("write {below} 4KiB --seed=2 --check"));
    let all = |up: &Up| ["far", "hbr0", "below"].map(|name| resets(up, name));
    assert_eq!(all(&up), [0, 0, 0]);
    let [near_far, .., link] = &above_far[..above_far.len() - 2] else { panic!("{above_far:?}") };
    let [port, _, vppb, ..] = &above_below[..] else { panic!("{above_below:?}") };
    for (bridge, then) in
        [(near_far, [1, 0, 0]), (link, [2, 0, 0]), (port, [2, 0, 1]), (vppb, [2, 1, 2])]
    {
        up.well("h0", &format!("reset {bridge}"));
        assert_eq!((all(&up), up.functions("h0")), (then, functions.clone()), "{bridge}");
        up.well("h0", &format!("read {far} 4KiB --seed=1"));
        up.well("h0", &format!("read {below} 4KiB --seed=2"));
    }
    // The manager, at a port.
    up.fm("port far reset");
    up.until("the device has been reset", |up| (resets(up, "far") == 3).then_some(()));
    up.sees("h0", &functions);
    up.fm("port far assert-perst");
    up.until("the host has lost it", |up| (up.functions("h0") != functions).then_some(()));
    assert_ne!(up.ask("h0", &format!("read {far} 64")).0, 0);
    up.fm("port far deassert-perst");
    up.sees("h0", &functions);
    up.well("h0", &format!("read {far} 4KiB --seed=1"));
    // A GFD gets its part again.
    up.well("h0", "write 0x10000000000 4KiB --seed=3 --check");
    up.fm("port g reset");
    up.until("the GFD has been reset, and the host has its memory", |up| {
        let is_reset = resets(up, "g") == 1;
        (is_reset && up.ask("h0", "write 0x10000000000 4KiB --seed=4 --check").0 == 0).then_some(())
    });
    assert_eq!(up.ask_fm("port h0 reset").0, 4, "a host is nobody's to reset");
    up.stop();
}
