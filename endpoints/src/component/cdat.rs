//! Coherent Device Attribute Tables: the switch's own, and a device's with what the path adds.
//!
//! Shape: header 16 octets, then structures with type and length; [`with_path`] rewrites latency and bandwidth.
//! Units: latency in ps, bandwidth in MB/s, each an entry times its base.
//! Source: CDAT 1.03 (header, DSLBIS type 1, SSLBIS type 5); seed 000 section 7.7.12.4; fabric.md "CDAT".
//!
//! A path adds to a latency, and a bandwidth is the smaller of the two.

use weft_parsers::cci::pbr::PathCost;

use super::port::Port;
use crate::component::config::Role;

const HEAD: usize = 16;
const REVISION: u8 = 1;
const CHECKSUM_AT: usize = 5;
const DSLBIS: u8 = 1;
const SSLBIS: u8 = 5;
/// Data types 0 to 2 are latencies, 3 to 5 bandwidths.
const BANDWIDTH_FROM: u8 = 3;
const ACCESS_LATENCY: u8 = 0;
const ACCESS_BANDWIDTH: u8 = 3;
/// Latency through the switch, in units of 1 ns: what its egress and crossbar take without load.
const THROUGH_NS: u16 = 100;
/// Bandwidth of a port of 64 GT/s and 16 lanes, in units of 1,000 MB/s.
const PORT_GB: u16 = 128;
/// Upstream port in an SSLBIS.
const UPSTREAM: u16 = 0x0100;
/// A value that means "not given".
const NOT_GIVEN: u16 = 0;
/// Largest value that is one.
const VALUE_MAX: u64 = 0xFFFE;

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

/// `own` as it is seen behind a path; structures that are not understood stay as they are.
#[must_use]
pub fn with_path(own: &[u8], path: &PathCost) -> Vec<u8> {
    let mut all = own.to_vec();
    let mut at = HEAD;
    while let Some(&[kind, _, low, high]) = all.get(at..).and_then(<[u8]>::first_chunk) {
        let len = usize::from(u16::from_le_bytes([low, high]));
        let Some(structure) = all.get_mut(at..at + len).filter(|it| it.len() >= 4) else { break };
        if kind == DSLBIS {
            add(structure, path);
        }
        at += len;
    }
    seal(&mut all);
    all
}

/// Adds the path to a DSLBIS: data type in octet 6, base in 8 to 15, three entries behind.
fn add(structure: &mut [u8], path: &PathCost) {
    let Some(rest) = structure.get_mut(6..24) else { return };
    let (head, entries) = rest.split_at_mut(10);
    let Some((&mut [data_type, _], base)) = head.split_first_chunk_mut::<2>() else { return };
    let Ok(old) = <[u8; 8]>::try_from(&*base) else { return };
    let old = u64::from_le_bytes(old);
    let values: Vec<u128> = entries
        .as_chunks::<2>()
        .0
        .iter()
        .take(3)
        .map(|&entry| match u16::from_le_bytes(entry) {
            NOT_GIVEN => 0,
            value => combined(data_type, u128::from(old) * u128::from(value), path),
        })
        .collect();
    // The base grows until the largest value fits in its entry.
    let largest = values.iter().copied().max().unwrap_or(0);
    let mut unit = u128::from(old.max(1));
    while largest.div_ceil(unit) > u128::from(VALUE_MAX) {
        unit *= 2;
    }
    base.copy_from_slice(&u64::try_from(unit).unwrap_or(u64::MAX).to_le_bytes());
    for (entry, value) in entries.as_chunks_mut::<2>().0.iter_mut().zip(values) {
        let scaled = if data_type < BANDWIDTH_FROM { value.div_ceil(unit) } else { value / unit };
        *entry = u16::try_from(scaled).unwrap_or(u16::MAX - 1).to_le_bytes();
    }
}

/// What a value becomes by the path.
fn combined(data_type: u8, value: u128, path: &PathCost) -> u128 {
    if data_type < BANDWIDTH_FROM {
        return value + u128::from(path.latency_base) * u128::from(path.latency);
    }
    match u128::from(path.bandwidth_base) * u128::from(path.bandwidth) {
        0 => value, // not given
        path => value.min(path),
    }
}

/// Writes length, revision and checksum into the header.
fn seal(cdat: &mut [u8]) {
    let len = u32::try_from(cdat.len()).unwrap_or(u32::MAX);
    if let Some(head) = cdat.first_chunk_mut::<6>() {
        let [l0, l1, l2, l3] = len.to_le_bytes();
        *head = [l0, l1, l2, l3, REVISION, 0];
    }
    let sum = cdat.iter().fold(0_u8, |sum, octet| sum.wrapping_add(*octet));
    if let Some(place) = cdat.get_mut(CHECKSUM_AT) {
        *place = sum.wrapping_neg();
    }
}
