//! 51xxh, 52xxh, 53xxh, 56xxh.

use super::basics::{UUID, UUID_2};
use super::{Requests, Responses};
use crate::cci::wire::List;
use crate::cci::{Request, Response, dcd, mld, switch, vcs};
use crate::fabric::Dpa;

pub const EXTENT: dcd::Extent = dcd::Extent {
    start: Dpa(0x0807_0605_0403_0201),
    len: 0x1817_1615_1413_1211,
    tag: UUID,
    shared_seq: 0x2122,
};
pub const EXTENT_2: dcd::Extent =
    dcd::Extent { start: Dpa(0x31), len: 0x32, tag: UUID_2, shared_seq: 0x33 };

const ACCESS: switch::ConfigAccess =
    switch::ConfigAccess { register: 0xA34, first_be: 0x5, write: true };

#[rustfmt::skip] // bytes by offset, then what they say
pub const REQUESTS: Requests = &[
    ("03 | 05 06 09", Request::GetPortState(switch::PortList { ports: List::of(&[5, 6, 9]) })),
    ("02 | 05 FF", Request::GetPortTraffic(switch::PortList { ports: List::of(&[5, 255]) })),
    ("05 01", Request::PortControl(switch::PortControl { port: 5, op: switch::PortOp::DeassertPerst })),
    ("05 345A80 | 01020304",
        Request::PpbConfig(switch::PpbConfig { port: 5, access: ACCESS, data: 0x0403_0201 })),
    ("101112131415161718191A1B1C1D1E1F", Request::SetSv(UUID)),
    ("04", Request::GetVcsSvState(4)),
    ("06", Request::GetSv(6)),
    ("01 08 02 | 03 04",
        Request::GetVcsInfo(vcs::GetVcsInfo { start: 1, limit: 8, vcss: List::of(&[3, 4]) })),
    ("01 02 03 00 0504", Request::BindVppb(vcs::BindVppb { vcs: 1, vppb: 2, port: 3, ld: 0x0405 })),
    ("01 02 02", Request::UnbindVppb(vcs::UnbindVppb { vcs: 1, vppb: 2, option: vcs::UnbindOption::Surprise })),
    ("01 02 0000 03040506 | A1000000000000000000000000000000000000000000000000000000000000A2",
        Request::GenerateAer(vcs::GenerateAer { vcs: 1, vppb: 2, error: 0x0605_0403, tlp: mask(0xA1, 0xA2) })),
    ("05 01 0300 | A1A2A3", Request::Tunnel(mld::TunnelRequest {
        id: 5, target: mld::TunnelTarget::LdPool, message: List::of(&[0xA1, 0xA2, 0xA3]) })),
    ("05 345A80 0607 0000 | 01020304",
        Request::LdConfig(mld::LdConfig { port: 5, access: ACCESS, ld: 0x0706, data: 0x0403_0201 })),
    ("05 005083 0607 0300 | 1112131415161718 | A1A2A3",
        Request::LdMem(mld::LdMemRequest {
            port: 5, access: mld::MemAccess { first_be: 5, last_be: 3, write: true }, ld: 0x0706, len: 3,
            offset: 0x1817_1615_1413_1211, data: &[0xA1, 0xA2, 0xA3] })),
    ("05 00500C 0607 0010 | 1112131415161718",
        Request::LdMem(mld::LdMemRequest {
            port: 5, access: mld::MemAccess { first_be: 5, last_be: 12, write: false }, ld: 0x0706, len: 4_096,
            offset: 0x1817_1615_1413_1211, data: &[] })),
    ("0201 0000 03040506 0708090A",
        Request::GetExtents(dcd::GetExtents { owner: 0x0102, count: 0x0605_0403, start: 0x0A09_0807 })),
    ("0201 02 03 | 4142434445464748 | 202122232425262728292A2B2C2D2E2F | 02000000 |
      0102030405060708 1112131415161718 101112131415161718191A1B1C1D1E1F 2221 000000000000 |
      3100000000000000 3200000000000000 202122232425262728292A2B2C2D2E2F 3300 000000000000",
        Request::InitiateAdd(dcd::InitiateAdd {
            host: 0x0102, policy: dcd::AddPolicy::Prescriptive, region: 3, len: 0x4847_4645_4443_4241,
            tag: UUID_2, extents: List::of(&[EXTENT, EXTENT_2]) })),
    ("0201 31 00 | 4142434445464748 | 202122232425262728292A2B2C2D2E2F | 01000000 |
      0102030405060708 1112131415161718 101112131415161718191A1B1C1D1E1F 2221 000000000000",
        Request::InitiateRelease(dcd::InitiateRelease {
            host: 0x0102,
            flags: dcd::ReleaseFlags { policy: dcd::ReleasePolicy::Prescriptive, forced: true, sanitize: true },
            len: 0x4847_4645_4443_4241, tag: UUID_2, extents: List::of(&[EXTENT]) })),
    ("101112131415161718191A1B1C1D1E1F", Request::AddReference(UUID)),
    ("101112131415161718191A1B1C1D1E1F", Request::RemoveReference(UUID)),
];

pub const fn mask(first: u8, last: u8) -> [u8; 32] {
    let mut mask = [0; 32];
    mask[0] = first;
    mask[31] = last;
    mask
}

const PORT: switch::PortState = switch::PortState {
    port: 1,
    config_state: 2,
    partner_version: 3,
    partner_type: 5,
    versions: 6,
    width_max: 7,
    width: 8,
    speeds: 9,
    speed_max: 10,
    speed: 11,
    ltssm: 12,
    first_lane: 13,
    link_state: 0x0E0F,
    lds: 16,
};

#[rustfmt::skip] // bytes by offset, then what they say
pub const RESPONSES: Responses = &[
    ("01 00 02 03 | A1000000000000000000000000000000000000000000000000000000000000A2 |
      B1000000000000000000000000000000000000000000000000000000000000B2 | 0504 0706 08",
        Response::IdentifySwitch(switch::SwitchIdentity {
            ingress_port: 1, ports: 2, vcss: 3, active_ports: mask(0xA1, 0xA2), active_vcss: mask(0xB1, 0xB2),
            vppbs: 0x0405, active_vppbs: 0x0607, decoders: 8 })),
    ("02 000000 | 01 02 03 00 05 06 07 08 09 0A 0B 0C 0D 0F0E 10 | 02 02 03 00 05 06 07 08 09 0A 0B 0C 0D 0F0E 10",
        Response::GetPortState(switch::PortStates { ports: List::of(&[PORT, switch::PortState { port: 2, ..PORT }]) })),
    ("0102030405060708 02 00000000000000 | 05 00000000000000 1112131415161718 2122232425262728 |
      FF 00000000000000 0100000000000000 0000000000000080",
        Response::GetPortTraffic(switch::PortsTraffic { at_ns: 0x0807_0605_0403_0201, ports: List::of(&[
            switch::PortTraffic { port: 5, rx: 0x1817_1615_1413_1211, tx: 0x2827_2625_2423_2221 },
            switch::PortTraffic { port: 255, rx: 1, tx: 1 << 63 }]) })),
    ("01020304", Response::PpbConfig(0x0403_0201)),
    ("01", Response::GetSvState(1)),
    ("02", Response::GetVcsSvState(2)),
    ("101112131415161718191A1B1C1D1E1F", Response::GetSv(UUID)),
    ("02 000000 | 01 02 03 02 | 04 05 06 00 | 07 08 09 00 | 11 12 13 01 | 14 15 16 00",
        Response::GetVcsInfo(vcs::VcsInfos::of(&[
            vcs::VcsInfo { vcs: 1, state: 2, usp: 3, vppbs: List::of(&[
                vcs::VppbState { status: 4, port: 5, ld: 6 }, vcs::VppbState { status: 7, port: 8, ld: 9 }]) },
            vcs::VcsInfo { vcs: 0x11, state: 0x12, usp: 0x13, vppbs: List::of(&[
                vcs::VppbState { status: 0x14, port: 0x15, ld: 0x16 }]) },
        ]))),
    ("0300 0000 | A1A2A3", Response::Tunnel(mld::TunnelResponse { message: List::of(&[0xA1, 0xA2, 0xA3]) })),
    ("01020304", Response::LdConfig(0x0403_0201)),
    ("0300 0000 | A1A2A3", Response::LdMem(mld::LdMemResponse { data: List::of(&[0xA1, 0xA2, 0xA3]) })),
    ("0201 0000 03040506 01000000 0708090A 0B0C0D0E 00000000 |
      0102030405060708 1112131415161718 101112131415161718191A1B1C1D1E1F 2221 000000000000",
        Response::GetExtents(dcd::ExtentList {
            owner: 0x0102, start: 0x0605_0403, total: 0x0A09_0807, generation: 0x0E0D_0C0B,
            extents: List::of(&[EXTENT]) })),
];
