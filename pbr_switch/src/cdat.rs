//! Coherent Device Attribute Tables: of the switch itself, and of memory in a host's window.
//!
//! Shape: header 16 bytes, then structures with type and length.
//! Units: latency in ps, bandwidth in MB/s, each an entry times its base.
//! Source: CDAT 1.03 (header, DSMAS type 0, DSLBIS type 1, SSLBIS type 5); CXL 3.1 section 7.7.12.4; docs/spec/cxl-fabric.md "CDAT".

use weft_dataplane::pbr::segments::{Segment, Segments};
use weft_parsers::cci::pbr::PathCost;
use weft_parsers::fabric::{Pid, Target};

use super::port::Port;
use crate::config::Role;

const HEAD: usize = 16;
const REVISION: u8 = 1;
const CHECKSUM_AT: usize = 5;
const DSMAS: u8 = 0;
const DSLBIS: u8 = 1;
const SSLBIS: u8 = 5;
const ACCESS_LATENCY: u8 = 0;
const ACCESS_BANDWIDTH: u8 = 3;
/// Latency through the switch, in units of 1 ns: what its egress and crossbar take without load.
pub const THROUGH_NS: u16 = 100;
/// Bandwidth of a port of 64 GT/s and 16 lanes, in units of 1,000 MB/s.
const PORT_GB: u16 = 128;
/// Upstream port in an SSLBIS.
const UPSTREAM: u16 = 0x0100;

/// CDAT of a switch: each port that leads downwards, from any upstream one.
#[must_use]
pub fn of_switch(ports: &[Port]) -> Vec<u8> {
    let mut all = vec![0; HEAD];
    for (kind, base, value) in
        [(ACCESS_LATENCY, 1_000, THROUGH_NS), (ACCESS_BANDWIDTH, 1_000, PORT_GB)]
    {
        let below: Vec<&Port> = ports.iter().filter(|port| port.role != Role::Usp).collect();
        let len = u16::try_from(16 + 8 * below.len()).unwrap_or(u16::MAX);
        all.extend([SSLBIS, 0]);
        all.extend(len.to_le_bytes());
        all.extend([kind, 0, 0, 0]);
        all.extend(u64::to_le_bytes(base));
        for port in below {
            for word in [UPSTREAM, port.id.get().into(), value, 0] {
                all.extend(word.to_le_bytes());
            }
        }
    }
    seal(&mut all);
    all
}

/// CDAT of a component that a host reaches by its FAST: a DSMAS for each range of its window that leads there, and latency and
/// bandwidth of that (two DSLBIS), as the fabric manager has told them.
#[must_use]
pub fn of_target(fast: &Segments, target: Pid, cost: PathCost) -> Vec<u8> {
    let mut all = vec![0; HEAD];
    for (handle, (base, len)) in (0..=u8::MAX).zip(ranges(fast, target)) {
        all.extend([DSMAS, 0, 24, 0, handle, 0, 0, 0]);
        all.extend(base.to_le_bytes());
        all.extend(len.to_le_bytes());
        for (kind, unit, value) in [
            (ACCESS_LATENCY, cost.latency_base, cost.latency),
            (ACCESS_BANDWIDTH, cost.bandwidth_base, cost.bandwidth),
        ] {
            all.extend([DSLBIS, 0, 24, 0, handle, 0, kind, 0]);
            all.extend(unit.to_le_bytes());
            for word in [value, 0, 0, 0] {
                all.extend(word.to_le_bytes());
            }
        }
    }
    seal(&mut all);
    all
}

/// Ranges of a window that lead to a target, alone or as one of the ways: first address and bytes.
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
        if base.0 == 0 || first >= limit.0 {
            break;
        }
        if !fast.get(index).is_some_and(leads) {
            continue;
        }
        match all.last_mut() {
            Some((at, len)) if *at + *len == first => *len += size,
            _ => all.push((first, size)),
        }
    }
    all
}

/// Writes length, revision and checksum into the header.
fn seal(cdat: &mut [u8]) {
    let len = u32::try_from(cdat.len()).unwrap_or(u32::MAX);
    if let Some(head) = cdat.first_chunk_mut::<6>() {
        let [l0, l1, l2, l3] = len.to_le_bytes();
        *head = [l0, l1, l2, l3, REVISION, 0];
    }
    let sum = cdat.iter().fold(0_u8, |sum, byte| sum.wrapping_add(*byte));
    if let Some(place) = cdat.get_mut(CHECKSUM_AT) {
        *place = sum.wrapping_neg();
    }
}
