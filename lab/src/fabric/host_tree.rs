//! Where parts of a fabric are in the tree that a host has found.
//!
//! A tree as JSON (`weft endpoint ctl HOST tree`), and a place -> a node, its id, or the registers of a mailbox.
//!
//! Source: docs/endpoint.md "Control socket".

use serde_json::Value;

use super::layout::p2p::Place;
use crate::endpoint::number::{Id, Num};

/// The id of a function: bus, device and function in one number, as a tree writes them.
pub fn id(node: &Value) -> Option<Id> {
    node.get("bdf")?.as_str()?.parse().ok()
}

/// What is on the bus below a bridge.
fn nodes_below(node: &Value) -> impl Iterator<Item = &Value> {
    let below = node.get("below").and_then(|below| below.get("nodes"));
    below.and_then(Value::as_array).into_iter().flatten()
}

fn function(node: &Value) -> Option<u8> {
    let [_, low] = id(node)?.0.bits().to_be_bytes();
    Some(low)
}

/// The nodes on the bus of a host's own virtual switch, beside its upstream bridge; and what is below that.
fn own_switch(tree: &Value) -> Option<&Value> {
    let roots = tree.get("nodes").and_then(Value::as_array).into_iter().flatten();
    roots.into_iter().next()
}

/// The bridge of a virtual switch, by its number, where `above` leads to that switch.
fn bridge(above: &Value, vppb: u8) -> Option<&Value> {
    let upstream = nodes_below(above).find(|node| function(node) == Some(0))?;
    let below = vppb.checked_sub(1)?;
    let wanted = (below & 31) << 3 | below >> 5;
    nodes_below(upstream).find(|node| function(node) == Some(wanted))
}

/// What leads to the virtual switch that a device is in.
fn above(tree: &Value, below: Option<u8>) -> Option<&Value> {
    let root = own_switch(tree)?;
    below.map_or(Some(root), |vppb| bridge(root, vppb))
}

/// The device below a bridge.
pub fn device(tree: &Value, place: Place) -> Option<&Value> {
    nodes_below(bridge(above(tree, place.below)?, place.vppb)?).next()
}

/// The block of registers of the mailbox of a virtual switch: function 1 beside its upstream bridge.
pub fn mailbox(tree: &Value, below: Option<u8>) -> Option<Num> {
    let node = nodes_below(above(tree, below)?).find(|node| function(node) == Some(1))?;
    let bar = node.get("bars")?.as_array()?.first()?;
    bar.get("address")?.as_u64().map(Num)
}
