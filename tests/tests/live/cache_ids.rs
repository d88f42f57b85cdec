//! `CacheID`s by a host's command, as processes on veth pairs in a namespace.
//!
//! `weft fabric up --processes` → `weft endpoint ctl H cache-id` → `weft show fabric` at the host's switch; a link is pulled.
//!
//! Source: docs/endpoint.md; docs/spec/cxl-fabric.md.

use serde_json::Value;
use weft_tests::fabric_up::Up;

const TOPOLOGY: &str = r#"
switch = [{ name = "sw0" }, { name = "sw1" }]
link = [{ ends = ["sw0", "sw1"] }]
host = [{ name = "h0", at = "sw0", bind = ["a", "b"] }]
device = [{ name = "a", at = "sw1" }, { name = "b", at = "sw1" }]
"#;

/// Ids of devices in the order of the tree.
fn devices(node: &Value, found: &mut Vec<String>) {
    let id = node.get("device").and_then(Value::as_u64).unwrap_or_default();
    if let Some(bdf) = node.get("bdf").and_then(Value::as_str)
        && (0x0D00..0x0E00).contains(&id)
    {
        found.push(bdf.to_owned());
    }
    let nodes = node.pointer("/below/nodes").or_else(|| node.get("nodes"));
    nodes.and_then(Value::as_array).into_iter().flatten().for_each(|it| devices(it, found));
}

/// `CacheID`s that a switch shows, of all its virtual switches.
fn shown(up: &Up) -> Vec<u64> {
    fn collect(value: &Value, found: &mut Vec<u64>) {
        match value {
            Value::Array(all) => all.iter().for_each(|one| collect(one, found)),
            Value::Object(all) => {
                found.extend(all.get("cache_id").and_then(Value::as_u64));
                all.values().for_each(|one| collect(one, found));
            }
            _ => {}
        }
    }
    let mut found = Vec::new();
    collect(&up.show("sw0", "fabric"), &mut found);
    found
}

/// The host's switch shows what the host has given, until the way there is lost; then it is given again.
#[test]
fn a_hosts_switch_shows_what_it_has_given_over_veth() {
    let Some(up) = Up::start_text("a_hosts_switch_shows_what_it_has_given", TOPOLOGY, &[]) else {
        return;
    };
    let functions = up.functions("h0");
    let find = |up: &Up| {
        let (tree, mut all) = (up.well("h0", "tree"), Vec::new());
        devices(&tree["tree"]["tree"], &mut all);
        assert_eq!(all.len(), 2, "{tree}");
        all
    };
    let [a, b] = &find(&up)[..] else { panic!() };
    up.well("h0", &format!("cache-id set {a} 4"));
    up.well("h0", &format!("cache-id set {b} 5"));
    assert_eq!(shown(&up), [4, 5]);
    assert_ne!(up.ask("h0", &format!("cache-id set {b} 4")).0, 0, "the other's");
    up.well("h0", &format!("cache-id clear {a}"));
    assert_eq!(shown(&up), [5]);
    let ends = up.links("sw0", "sw1");
    for end in &ends {
        up.link(end, false);
    }
    up.until("the switch has forgotten", |up| shown(up).is_empty().then_some(()));
    for end in &ends {
        up.link(end, true);
    }
    up.sees("h0", &functions);
    let [_, b] = &find(&up)[..] else { panic!() };
    up.until("it is given again", |up| {
        (up.ask("h0", &format!("cache-id set {b} 5")).0 == 0).then_some(())
    });
    assert_eq!(shown(&up), [5]);
    up.stop();
}
