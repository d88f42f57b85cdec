//! Coherent Device Attribute Tables: of the switch itself, of a virtual switch, and of memory in a host's window.
//!
//! Built from ports, vPPBs or FAST segments with [`weft_cxl::cdat`]. Latencies are in ps and bandwidths in MB/s, each
//! an entry times its base.
//!
//! Source: CDAT 1.03 (DSMAS, DSLBIS, SSLBIS); CXL 3.1 section 7.7.12.4; docs/spec/cxl-fabric.md "CDAT".

use weft_cxl::cdat::{DataType, Figures, Range, Table, dslbis, dsmas, switch};
use weft_dataplane::pbr::segments::{Segment, Segments};
use weft_parsers::cci::pbr::PathCost;
use weft_parsers::fabric::{Pid, Target};

use super::port::Port;
use crate::config::Role;

/// CDAT of a switch: a latency and bandwidth for each port that leads downwards, from any upstream port.
#[must_use]
pub fn of_switch(ports: &[Port]) -> Vec<u8> {
    let below = ports.iter().filter(|port| port.role != Role::Usp);
    let ways: Vec<_> = below.map(|port| (port.id.get(), Figures::SWITCH)).collect();
    Table::new(switch(&ways)).bytes()
}

/// CDAT structures of a virtual switch with `vppbs` downstream vPPBs, each reached from the upstream one. For a vUSP
/// they include the cost of the path through the fabric, which the fabric manager sent with the binding.
#[must_use]
pub fn of_vcs(vppbs: u8, path: Option<PathCost>) -> Vec<Vec<u8>> {
    let through = path.map_or(Figures::SWITCH, |cost| Figures::SWITCH.and_path(figures(cost)));
    let ways: Vec<_> = (1..=vppbs).map(|number| (number, through)).collect();
    switch(&ways)
}

/// Converts a path cost of the fabric manager.
fn figures(cost: PathCost) -> Figures {
    Figures {
        latency_ps: cost.latency_base.saturating_mul(cost.latency.into()),
        bandwidth_mbps: cost.bandwidth_base.saturating_mul(cost.bandwidth.into()),
    }
}

/// CDAT of a component that a host reaches by its FAST: a DSMAS for each range of its window that leads there, and two
/// DSLBIS with the latency and bandwidth that the fabric manager reported.
#[must_use]
pub fn of_target(fast: &Segments, target: Pid, cost: PathCost) -> Vec<u8> {
    let mut all = Vec::new();
    // A DSMAS handle has 8 bits: ranges beyond the 256th are left out.
    for (handle, (base, len)) in (0..=u8::MAX).zip(ranges(fast, target)) {
        all.push(dsmas(handle, Range::plain(base, len)));
        for (what, unit, value) in [
            (DataType::AccessLatency, cost.latency_base, cost.latency),
            (DataType::AccessBandwidth, cost.bandwidth_base, cost.bandwidth),
        ] {
            all.push(dslbis(handle, what, unit, value));
        }
    }
    Table::new(all).bytes()
}

/// Ranges of a window that lead to a target, alone or as one of several ways: first address and length in bytes.
fn ranges(fast: &Segments, target: Pid) -> Vec<(u64, u64)> {
    let mut all: Vec<(u64, u64)> = Vec::new();
    let (_, base, limit) = fast.config();
    let size = 1 << fast.shift();
    let leads = |segment: Segment| match segment.target {
        Target::Direct(pid) => pid == target,
        Target::Interleaved(first) => {
            let first = usize::from(first);
            let ways = first..first + usize::from(segment.interleave.ways());
            ways.into_iter().any(|at| fast.idt(at) == Some(target))
        }
    };
    for index in 0..fast.len() {
        let first = base.0.saturating_add(index as u64 * size);
        // Base 0 is the window that no host has configured yet; FabricLimit is the last address that uses the table.
        if base.0 == 0 || first >= limit.0 {
            break;
        }
        if !fast.get(index).is_some_and(leads) {
            continue;
        }
        // Neighbouring segments to one target are one range, as software would see one piece of memory.
        match all.last_mut() {
            Some((at, len)) if *at + *len == first => *len += size,
            _ => all.push((first, size)),
        }
    }
    all
}
