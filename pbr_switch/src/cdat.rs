//! Coherent Device Attribute Table of the switch itself.
//!
//! Shape: header 16 bytes, then structures with type and length.
//! Units: latency in ps, bandwidth in MB/s, each an entry times its base.
//! Source: CDAT 1.03 (header, SSLBIS type 5); CXL 3.1 section 7.7.12.4; docs/spec/cxl-fabric.md "CDAT".

use super::port::Port;
use crate::config::Role;

const HEAD: usize = 16;
const REVISION: u8 = 1;
const CHECKSUM_AT: usize = 5;
const SSLBIS: u8 = 5;
const ACCESS_LATENCY: u8 = 0;
const ACCESS_BANDWIDTH: u8 = 3;
/// Latency through the switch, in units of 1 ns: what its egress and crossbar take without load.
const THROUGH_NS: u16 = 100;
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
