//! Finds parts of a fabric in the tree of a host's enumeration.
//!
//! A tree is JSON from `weft endpoint ctl HOST tree`. A place in it is a node, its id, or the registers of a mailbox.
//!
//! Source: docs/endpoint.md "Control socket".

use serde_json::Value;

use super::layout::p2p::Place;
use crate::endpoint::number::{Id, Num};

/// Id of a function, as a tree has it.
pub fn id(node: &Value) -> Option<Id> {
    node.get("bdf")?.as_str()?.parse().ok()
}

/// Nodes on the bus below a bridge.
fn nodes_below(node: &Value) -> impl Iterator<Item = &Value> {
    let below = node.get("below").and_then(|below| below.get("nodes"));
    below.and_then(Value::as_array).into_iter().flatten()
}

fn function(node: &Value) -> Option<u8> {
    let [_, low] = id(node)?.0.bits().to_be_bytes();
    Some(low)
}

/// The root port of the host, below which its own virtual switch is.
fn own_switch(tree: &Value) -> Option<&Value> {
    let roots = tree.get("nodes").and_then(Value::as_array).into_iter().flatten();
    roots.into_iter().next()
}

/// A bridge of a virtual switch by number; `above` is the port that leads to that switch.
fn bridge(above: &Value, vppb: u8) -> Option<&Value> {
    let upstream = nodes_below(above).find(|node| function(node) == Some(0))?;
    let below = vppb.checked_sub(1)?;
    // The order of bridges on their bus, as `weft_pbr_switch::vcs::function_of` numbers them.
    let wanted = (below & 31) << 3 | below >> 5;
    nodes_below(upstream).find(|node| function(node) == Some(wanted))
}

/// The port that leads to the virtual switch of a device: the root port, or the bridge `below`.
fn above(tree: &Value, below: Option<u8>) -> Option<&Value> {
    let root = own_switch(tree)?;
    below.map_or(Some(root), |vppb| bridge(root, vppb))
}

/// The device below the bridge of `place`.
pub fn device(tree: &Value, place: Place) -> Option<&Value> {
    nodes_below(bridge(above(tree, place.below)?, place.vppb)?).next()
}

/// Address of a virtual switch's mailbox registers: BAR 0 of function 1, beside its upstream bridge.
pub fn mailbox(tree: &Value, below: Option<u8>) -> Option<Num> {
    let node = nodes_below(above(tree, below)?).find(|node| function(node) == Some(1))?;
    let bar = node.get("bars")?.as_array()?.first()?;
    bar.get("address")?.as_u64().map(Num)
}
