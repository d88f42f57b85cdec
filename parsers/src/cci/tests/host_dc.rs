//! Dynamic capacity of hosts against bytes laid out by hand from docs/spec/wire-formats.md §4.3b.

use super::basics::{UUID, UUID_2};
use super::{Requests, Responses};
use crate::cci::gfd::{DcRegion, DcTotals, GetTags};
use crate::cci::host_dc::*;
use crate::cci::{List, Request, Response};
use crate::fabric::Dpa;

const BLOCKS: [u64; 8] = [1 << 21, 1 << 22, 3, 4, 5, 6, 7, 1 << 40];
const REGION: DcRegion = DcRegion {
    base: Dpa(0x0807_0605_0403_0201),
    decode_len: 0x10,
    len: 0x1_0000_0000,
    block: 0x20_0000,
    flags: 0x41,
    sanitize: true,
};
/// Hosts 0, 9 and 255.
const HOLDERS: [u8; 32] = {
    let mut hosts = [0; 32];
    (hosts[0], hosts[1], hosts[31]) = (0x01, 0x02, 0x80);
    hosts
};

#[rustfmt::skip] // bytes by offset, then what they say
pub const REQUESTS: Requests = &[
    ("0201 03 04", Request::GetHostDcRegions(HostRange { host: 0x0102, count: 3, start: 4 })),
    ("05 000000 | 0000200000000000 | 01 000000",
        Request::SetHostDcRegion(SetRegion { region: 5, block: 0x20_0000, sanitize: true })),
    ("01020304 05060708", Request::ListTags(GetTags { start: 0x0403_0201, max: 0x0807_0605 })),
];

#[rustfmt::skip] // bytes by offset, then what they say
pub const RESPONSES: Responses = &[
    ("10 08 0000 0700 0000 0300 FF 00 | 0201000000000000 |
      0000200000000000 0000400000000000 0300000000000000 0400000000000000
      0500000000000000 0600000000000000 0700000000000000 0000000000010000",
        Response::GetDcdInfo(DcdInfo {
            hosts: 16, regions: 8, add_policies: 7, release_policies: 3, sanitize: 0xFF, capacity: 0x102,
            blocks: BLOCKS })),
    ("0201 05 01 | 0102030405060708 1000000000000000 0000000001000000 0000200000000000 41 000000 01 000000 |
      01000000 02000000 03000000 04000000",
        Response::GetHostDcRegions(HostRegions {
            host: 0x0102, available: 5, regions: List::of(&[REGION]),
            totals: DcTotals { extents: 1, extents_free: 2, tags: 3, tags_free: 4 } })),
    ("01020304 05060708 02000000 03 000000 |
      101112131415161718191A1B1C1D1E1F 01 000000
      0102000000000000000000000000000000000000000000000000000000000080
      0000000000000000000000000000000000000000000000000000000000000000 |
      202122232425262728292A2B2C2D2E2F 00 000000
      0000000000000000000000000000000000000000000000000000000000000000
      0102000000000000000000000000000000000000000000000000000000000080",
        Response::ListTags(HostTags { generation: 0x0403_0201, total: 0x0807_0605, valid: 3, tags: List::of(&[
            HostTag { tag: UUID, fm_reference: true, holders: HOLDERS, pending: [0; 32] },
            HostTag { tag: UUID_2, fm_reference: false, holders: [0; 32], pending: HOLDERS }]) })),
];
