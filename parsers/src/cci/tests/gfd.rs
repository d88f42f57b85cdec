//! 49xxh.

use super::basics::{UUID, UUID_2, pid};
use super::switch::{EXTENT, EXTENT_2};
use super::{Requests, Responses};
use crate::cci::wire::List;
use crate::cci::{Request, Response, dcd, gfd, gfd_access};
use crate::fabric::{Dpa, Hpa, Interleave};

const RANGE: gfd::GfdRange = gfd::GfdRange { count: 3, start: 4 };

const REGION: gfd::DcRegion = gfd::DcRegion {
    base: Dpa(0x0807_0605_0403_0201),
    decode_len: 0x1817_1615_1413_1211,
    len: 0x2827_2625_2423_2221,
    block: 0x3837_3635_3433_3231,
    flags: 0x41,
    sanitize: true,
};

const DMP: gfd::DmpEntry = gfd::DmpEntry {
    base: Dpa(0x0807_0605_0403_0201),
    decode_len: 0x1817_1615_1413_1211,
    len: 0x2827_2625_2423_2221,
    block: 0x3837_3635_3433_3231,
    flags: gfd::DmpEntry::SHARABLE | gfd::DmpEntry::DC_MANAGED,
    index: 2,
    sanitize: true,
};

const GDT: gfd_access::GdtEntry = gfd_access::GdtEntry {
    index: 5,
    decoder: Some(gfd_access::GdtDecoder {
        coherent: true,
        hpa: Hpa(0x0807_0605_0403_0201),
        dpa: Dpa(0x1817_1615_1413_1211),
        dpa_len: 0x2827_2625_2423_2221,
        interleave: Interleave::from_codes(2, 4).unwrap(),
        way: 3,
    }),
};
const NO_GDT: gfd_access::GdtEntry = gfd_access::GdtEntry { index: 6, decoder: None };

const QOS: gfd_access::QosControl = gfd_access::QosControl {
    control: 1,
    moderate_percent: 2,
    severe_percent: 3,
    interval: 4,
    compare_basis: 0x0506,
    completion_interval: 7,
};

const LIMITS: gfd_access::Limits =
    gfd_access::Limits { start: pid(0x123), fractions: List::of(&[0xA1, 0xA2, 0xA3]) };

const EXTENTS: dcd::ExtentList = dcd::ExtentList {
    owner: 0x0102,
    start: 0x0605_0403,
    total: 0x0A09_0807,
    generation: 0x0E0D_0C0B,
    extents: List::of(&[EXTENT, EXTENT_2]),
};
const EXTENTS_HEX: &str = "0201 0000 03040506 02000000 0708090A 0B0C0D0E 00000000 |
    0102030405060708 1112131415161718 101112131415161718191A1B1C1D1E1F 2221 000000000000 |
    3100000000000000 3200000000000000 202122232425262728292A2B2C2D2E2F 3300 000000000000";

#[rustfmt::skip] // bytes by offset, then what they say
pub const REQUESTS: Requests = &[
    ("0000 03 04", Request::GetDcRegions(RANGE)),
    ("05 000000 | 3132333435363738 | 01 000000 | 0102030405060708 | 1112131415161718 | 2122232425262728",
        Request::SetDcRegion(gfd::SetDcRegion {
            region: 5, block: 0x3837_3635_3433_3231, sanitize: true, base: Dpa(0x0807_0605_0403_0201),
            decode_len: 0x1817_1615_1413_1211, len: 0x2827_2625_2423_2221 })),
    ("0201 0000 03040506 0708090A",
        Request::GetGfdExtents(dcd::GetExtents { owner: 0x0102, count: 0x0605_0403, start: 0x0A09_0807 })),
    ("0000 03 04", Request::GetDmps(RANGE)),
    ("0000 01 02 | 0102030405060708 1112131415161718 2122232425262728 3132333435363738 28 02 0000 01 000000",
        Request::SetDmps(gfd::SetDmps { start: 2, entries: List::of(&[DMP]) })),
    ("0201 03 04 | 4142434445464748 | 202122232425262728292A2B2C2D2E2F | 01000000 | 51525354 |
      0102030405060708 1112131415161718 101112131415161718191A1B1C1D1E1F 2221 000000000000",
        Request::DcAdd(gfd::DcAdd {
            group: 0x0102, policy: dcd::AddPolicy::EnableShared, region: 4, len: 0x4847_4645_4443_4241,
            tag: UUID_2, response_max: 0x5453_5251, extents: List::of(&[EXTENT]) })),
    ("0201 21 00 | 4142434445464748 | 202122232425262728292A2B2C2D2E2F | 01000000 | 51525354 |
      0102030405060708 1112131415161718 101112131415161718191A1B1C1D1E1F 2221 000000000000",
        Request::DcRelease(gfd::DcRelease {
            group: 0x0102,
            flags: dcd::ReleaseFlags { policy: dcd::ReleasePolicy::Prescriptive, forced: false, sanitize: true },
            len: 0x4847_4645_4443_4241, tag: UUID_2, response_max: 0x5453_5251, extents: List::of(&[EXTENT]) })),
    ("101112131415161718191A1B1C1D1E1F", Request::DcAddReference(UUID)),
    ("101112131415161718191A1B1C1D1E1F", Request::DcRemoveReference(UUID)),
    ("01020304 05060708", Request::DcListTags(gfd::GetTags { start: 0x0403_0201, max: 0x0807_0605 })),
    ("0000 0403 2301", Request::GetSat(gfd_access::SatRange { count: 0x0304, start: pid(0x123) })),
    ("0200 | 2301 01000080 | 5604 02030405", Request::SetSat(gfd_access::SetSat { updates: List::of(&[
        gfd_access::SatUpdate { rpid: pid(0x123), vector: gfd_access::SAT_NOTIFY | 1 },
        gfd_access::SatUpdate { rpid: pid(0x456), vector: 0x0504_0302 }]) })),
    ("01 02 03 04 0605 07", Request::SetQosControl(QOS)),
    ("0403 2301", Request::GetQosLimit(gfd_access::LimitRange { count: 0x0304, start: pid(0x123) })),
    ("0300 2301 | A1A2A3", Request::SetQosLimit(LIMITS)),
    ("2301 0000 03 04", Request::GetGdt(gfd_access::GdtRange { rpid: pid(0x123), count: 3, start: 4 })),
    ("2301 0000 02 05 | 05 01 01 00 0102030405060708 1112131415161718 2122232425262728 02 04 03 00 |
      06 00 00 00 0000000000000000 0000000000000000 0000000000000000 00 00 00 00",
        Request::SetGdt(gfd_access::SetGdt { rpid: pid(0x123), start: 5, entries: List::of(&[GDT, NO_GDT]) })),
];

#[rustfmt::skip] // bytes by offset, then what they say
pub const RESPONSES: Responses = &[
    ("01 02 0403 0605 07 00 0908 0A 00 | 0B00000000000000 |
      1000000000000000 1100000000000000 1200000000000000 1300000000000000
      1400000000000000 1500000000000000 1600000000000000 1700000000000000 |
      2000000000000000 2100000000000000 2200000000000000 2300000000000000 |
      3000000000000000 00000000000000000000000000000000 4000000000000000",
        Response::IdentifyGfd(gfd::GfdIdentity {
            partitions: 1, regions: 2, groups: 0x0304, add_policies: 0x0506, qos: 7, release_policies: 0x0809,
            sanitize: 10, capacity: 11, region_blocks: [0x10, 0x11, 0x12, 0x13, 0x14, 0x15, 0x16, 0x17],
            partition_blocks: [0x20, 0x21, 0x22, 0x23], volatile_only: 0x30, persistent_only: 0x40 })),
    ("01 02 03 04 05 06 07 08 09 0B0A", Response::GetGfdStatus(gfd::GfdStatus {
        flags: 1, link_mode: 2, width_max: 3, width: 4, speeds: 5, speed_max: 6, speed: 7, ltssm: 8,
        first_lane: 9, link_state: 0x0A0B })),
    ("0000 05 01 | 0102030405060708 1112131415161718 2122232425262728 3132333435363738 41 000000 01 000000 |
      01000000 02000000 03000000 04000000",
        Response::GetDcRegions(gfd::DcRegions {
            available: 5, regions: List::of(&[REGION]),
            totals: gfd::DcTotals { extents: 1, extents_free: 2, tags: 3, tags_free: 4 } })),
    (EXTENTS_HEX, Response::GetGfdExtents(EXTENTS)),
    ("0000 04 01 | 0102030405060708 1112131415161718 2122232425262728 3132333435363738 28 02 0000 01 000000",
        Response::GetDmps(gfd::Dmps { available: 4, entries: List::of(&[DMP]) })),
    (EXTENTS_HEX, Response::DcAdd(EXTENTS)),
    (EXTENTS_HEX, Response::DcRelease(EXTENTS)),
    ("01020304 05060708 00000000 | 101112131415161718191A1B1C1D1E1F 01 000000 |
      202122232425262728292A2B2C2D2E2F 00 000000",
        Response::DcListTags(gfd::Tags { generation: 0x0403_0201, total: 0x0807_0605, tags: List::of(&[
            gfd::TagEntry { tag: UUID, fm_reference: true },
            gfd::TagEntry { tag: UUID_2, fm_reference: false }]) })),
    ("0000 0200 2301 | 01000080 | 02030405", Response::GetSat(gfd_access::SatEntries {
        start: pid(0x123), vectors: List::of(&[0x8000_0001, 0x0504_0302]) })),
    ("01 02 03 04 0605 07", Response::GetQosControl(QOS)),
    ("01 02 03 04 0605 07", Response::SetQosControl(QOS)),
    ("63", Response::GetQosStatus(99)),
    ("0300 2301 | A1A2A3", Response::GetQosLimit(LIMITS)),
    ("0300 2301 | A1A2A3", Response::SetQosLimit(LIMITS)),
    ("2301 0000 05 01 08 00 | 05 01 01 00 0102030405060708 1112131415161718 2122232425262728 02 04 03 00",
        Response::GetGdt(gfd_access::Gdt { rpid: pid(0x123), start: 5, total: 8, entries: List::of(&[GDT]) })),
];

/// A decoder that is not valid counts for nothing, whatever stands in it.
#[test]
fn reserved_codes_of_an_invalid_decoder_do_not_count() {
    let bytes = super::hex(
        "2301 0000 01 05 | 06 00 FF FF FFFFFFFFFFFFFFFF FFFFFFFFFFFFFFFF FFFFFFFFFFFFFFFF FF FF FF FF",
    );
    let request = Request::parse(crate::cci::Opcode::SET_GDT, &bytes);
    let want = gfd_access::SetGdt { rpid: pid(0x123), start: 5, entries: List::of(&[NO_GDT]) };
    assert_eq!(request, Ok(Request::SetGdt(want)));
}
