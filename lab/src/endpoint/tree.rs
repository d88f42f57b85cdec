//! The tree of an enumeration, as JSON with the field names of [`Tree`].
//!
//! Source: docs/endpoint.md.

use serde_json::{Value, json};
use weft_cxl::pci::function::BarKind;
use weft_cxl::pci::tree::{Bar, CacheIdTarget, Decoded, LeadsTo};
use weft_cxl::pci::{Node, Tree};

fn bar(bar: &Bar) -> Value {
    let (kind, prefetch) = match bar.kind {
        BarKind::Io => ("io", false),
        BarKind::Mem32 { prefetch } => ("mem32", prefetch),
        BarKind::Mem64 { prefetch } => ("mem64", prefetch),
    };
    json!({
        "index": bar.index,
        "kind": kind,
        "prefetch": prefetch,
        "size": bar.size,
        "address": bar.address,
    })
}

fn decoder(it: &Decoded) -> Value {
    let (dpa, port) = match it.to {
        LeadsTo::Memory { dpa } => (Some(dpa), None),
        LeadsTo::Port { number } => (None, Some(number)),
    };
    json!({
        "base": it.hpa.base,
        "size": it.hpa.limit - it.hpa.base + 1,
        "dpa": dpa,
        "port": port,
        "committed": it.committed,
        "reached": it.reached,
    })
}

fn cache_id(it: CacheIdTarget) -> Value {
    json!({ "cache_id": it.cache_id, "port": it.port })
}

fn node(it: &Node) -> Value {
    let below = it.below.as_ref().map(|below| {
        json!({
            "secondary": below.buses.secondary,
            "subordinate": below.buses.subordinate,
            "slot": below.slot,
            "nodes": below.nodes.iter().map(node).collect::<Vec<_>>(),
        })
    });
    json!({
        "bdf": it.bdf.to_string(),
        "vendor": it.vendor,
        "device": it.device,
        "class": it.class,
        "kind": it.kind().map(|kind| format!("{kind:?}").to_lowercase()),
        "serial": it.serial,
        "cxl": it.cxl.map(|kind| format!("{kind:?}")),
        "lnr": it.lnr.is_some(),
        "bars": it.bars.iter().map(bar).collect::<Vec<_>>(),
        "hdm": it.decoders.iter().map(decoder).collect::<Vec<_>>(),
        "cache_ids": it.cache_ids.iter().copied().map(cache_id).collect::<Vec<_>>(),
        "below": below,
    })
}

/// The functions that enumeration found, as nested JSON.
#[must_use]
pub fn tree_json(tree: &Tree) -> Value {
    json!({
        "bus": tree.bus,
        "nodes": tree.nodes.iter().map(node).collect::<Vec<_>>(),
        "problems": tree.problems.iter().map(ToString::to_string).collect::<Vec<_>>(),
    })
}
