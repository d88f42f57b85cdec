//! MLD component commands against bytes laid out by hand from docs/spec/wire-formats.md §4.3a.

use super::{Requests, Responses};
use crate::cci::gfd_access::QosControl;
use crate::cci::ld::*;
use crate::cci::{List, Request, Response};

const ONE: LdAllocation = LdAllocation { range1: 0x0807_0605_0403_0201, range2: 0x10 };
const TWO: LdAllocation = LdAllocation { range1: 0x20, range2: 0 };
const PAGE: LdPage = LdPage { start: 3, limit: 4 };
const RANGE: LdRange = LdRange { count: 3, start: 4 };
const FRACTIONS: LdFractions<'static> =
    LdFractions { start: 1, fractions: List::of(&[0x80, 0x40]) };
const SET: SetLdAllocations<'static> =
    SetLdAllocations { start: 3, allocations: List::of(&[ONE, TWO]) };
const QOS: QosControl = QosControl {
    control: 1,
    moderate_percent: 10,
    severe_percent: 25,
    interval: 8,
    compare_basis: 0x0201,
    completion_interval: 64,
};
const HEAD: HeadInfo = HeadInfo {
    port: 1,
    width_max: 2,
    width: 3,
    speeds: 4,
    speed_max: 5,
    speed: 6,
    ltssm: 7,
    first_lane: 8,
    link_state: 9,
};

#[rustfmt::skip] // bytes by offset, then what they say
pub const REQUESTS: Requests = &[
    ("03 04", Request::GetLdAllocations(PAGE)),
    ("02 03 0000 | 0102030405060708 1000000000000000 | 2000000000000000 0000000000000000",
        Request::SetLdAllocations(SET)),
    ("01 0A 19 08 0102 40", Request::SetLdQosControl(QOS)),
    ("03 04", Request::GetLdBandwidth(RANGE)),
    ("02 01 | 80 40", Request::SetLdBandwidth(FRACTIONS)),
    ("03 04", Request::GetLdLimit(RANGE)),
    ("02 01 | 80 40", Request::SetLdLimit(FRACTIONS)),
    ("03 04", Request::GetMultiHeadedInfo(PAGE)),
    ("03 04", Request::GetHeadInfo(PAGE)),
];

#[rustfmt::skip] // bytes by offset, then what they say
pub const RESPONSES: Responses = &[
    ("0000004000000000 0400 01", Response::GetLdInfo(LdInfo { memory: 1 << 30, lds: 4, qos: 1 })),
    ("04 00 03 02 | 0102030405060708 1000000000000000 | 2000000000000000 0000000000000000",
        Response::GetLdAllocations(LdAllocations {
            lds: 4, granularity: Granularity::Mib256, start: 3, allocations: List::of(&[ONE, TWO]) })),
    ("02 03 0000 | 0102030405060708 1000000000000000 | 2000000000000000 0000000000000000",
        Response::SetLdAllocations(SET)),
    ("01 0A 19 08 0102 40", Response::GetLdQosControl(QOS)),
    ("01 0A 19 08 0102 40", Response::SetLdQosControl(QOS)),
    ("07", Response::GetLdQosStatus(7)),
    ("02 01 | 80 40", Response::GetLdBandwidth(FRACTIONS)),
    ("02 01 | 80 40", Response::SetLdBandwidth(FRACTIONS)),
    ("02 01 | 80 40", Response::GetLdLimit(FRACTIONS)),
    ("02 01 | 80 40", Response::SetLdLimit(FRACTIONS)),
    ("04 01 0000 03 02 0000 | 00 00",
        Response::GetMultiHeadedInfo(MultiHeadedInfo { lds: 4, heads: 1, start: 3, map: List::of(&[0, 0]) })),
    ("01 000000 | 01 02 03 04 05 06 07 08 09", Response::GetHeadInfo(HeadInfos { heads: List::of(&[HEAD]) })),
];
