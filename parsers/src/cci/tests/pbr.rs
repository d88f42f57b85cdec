//! 57xxh.

use super::basics::{UUID, UUID_2, UUID_3, pid};
use super::{Requests, Responses};
use crate::cci::wire::List;
use crate::cci::{Request, Response, mld, pbr, switch, tables};
use crate::fabric::{
    Bdf, DrtEntry, Hpa, Interleave, LdstEntry, Pid, ReRouterEntry, RgtEntry, RgtMode, Target,
};

pub const COST: pbr::PathCost = pbr::PathCost {
    latency_base: 0x0807_0605_0403_0201,
    latency: 0x0A09,
    bandwidth_base: 0x1817_1615_1413_1211,
    bandwidth: 0x1A19,
};

const LDST: Option<LdstEntry> = Some(LdstEntry {
    segment: true,
    interleave: Interleave::from_codes(2, 4).unwrap(),
    target: Target::Interleaved(0x456),
});

const RGT: RgtEntry = RgtEntry {
    ports: [1, 2, 3, 4, 5, 6, 7, 8],
    highest: 6,
    primary: 2,
    mode: RgtMode::AdvancedCongestionAvoiding,
    mix: 5,
};

const RE_ROUTER: [ReRouterEntry; 2] = [
    ReRouterEntry { dpid: pid(0x123), segment: Some(4), requester: Bdf::new(5, 6, 7) },
    ReRouterEntry { dpid: pid(0x456), segment: None, requester: Bdf::new(8, 9, 1) },
];

const PORTS: [u8; 32] = super::switch::mask(0xA1, 0xA2);
const RANGE: tables::RoutingRange = tables::RoutingRange { table: 1, count: 0x0203, start: 0x0405 };
const EDGE: tables::EdgeRange = tables::EdgeRange { vppb: 1, count: 0x0203, start: 0x0405 };

#[rustfmt::skip] // bytes by offset, then what they say
pub const REQUESTS: Requests = &[
    ("0500 00 00 0200 | A1A2", Request::CrawlOut(pbr::CrawlOut {
        target: pbr::CrawlTarget::Port(5), message: List::of(&[0xA1, 0xA2]) })),
    ("2301 01 00 0300 | A1A2A3", Request::CrawlOut(pbr::CrawlOut {
        target: pbr::CrawlTarget::Pid(pid(0x123)), message: List::of(&[0xA1, 0xA2, 0xA3]) })),
    ("02 | 05 06", Request::GetLinkPartners(switch::PortList { ports: List::of(&[5, 6]) })),
    ("0201 0403", Request::GetPidTargets(pbr::GetPidTargets { start: 0x0102, count: 0x0304 })),
    // The example of docs/spec/wire-formats.md §4.5.
    ("00 00 0100 10 00 01 00 00", Request::AssignPids(pbr::AssignPids {
        op: pbr::AssignOp::Assign,
        assignments: List::of(&[pbr::PidAssignment { pid: pid(0x10), target: 1, instance: 0 }]) })),
    ("01 00 0200 | 2301 0504 06 | 5604 0807 09", Request::AssignPids(pbr::AssignPids {
        op: pbr::AssignOp::Clear,
        assignments: List::of(&[
            pbr::PidAssignment { pid: pid(0x123), target: 0x0405, instance: 6 },
            pbr::PidAssignment { pid: pid(0x456), target: 0x0708, instance: 9 }]) })),
    ("01 02", Request::GetPidBinding(pbr::Vppb { vcs: 1, vppb: 2 })),
    ("01 02 03 00 2301 0000 | 0102030405060708 090A 1112131415161718 191A",
        Request::BindPid(pbr::BindPid { op: pbr::BindOp::Unbind, vcs: 2, vppb: 3, pid: pid(0x123), own: pbr::Chosen(None), cost: COST })),
    ("00 02 03 00 2301 5684 | 0102030405060708 090A 1112131415161718 191A",
        Request::BindPid(pbr::BindPid { op: pbr::BindOp::Bind, vcs: 2, vppb: 3, pid: pid(0x123), own: pbr::Chosen(Some(pid(0x456))), cost: COST })),
    ("0201 0403", Request::GetTables(pbr::GetTables { start: 0x0102, count: 0x0304 })),
    ("01 00 0302 0504", Request::GetDrt(RANGE)),
    // The example of docs/spec/wire-formats.md §4.5.
    ("00 00 0100 23 01 01 05", Request::SetDrt(tables::SetDrt {
        table: 0, start: 0x123, entries: List::of(&[DrtEntry::Port(5)]) })),
    ("01 00 0300 0504 | 0000 0106 0207", Request::SetDrt(tables::SetDrt {
        table: 1, start: 0x0405,
        entries: List::of(&[DrtEntry::Invalid, DrtEntry::Port(6), DrtEntry::Group(7)]) })),
    ("01 00 0302 0504", Request::GetRgt(RANGE)),
    ("01 00 0100 0504 | 0102030405060708 16 2A 0000", Request::SetRgt(tables::Rgt {
        table: 1, start: 0x0405, entries: List::of(&[RGT]) })),
    ("09", Request::GetLdstCaps(9)),
    ("01 02 | 0102030405060708 | 1112131415161718", Request::SetLdst(tables::SetLdst {
        vppb: 1, segment_size: 2, base: Hpa(0x0807_0605_0403_0201), limit: Hpa(0x1817_1615_1413_1211) })),
    ("01 00 0302 0504", Request::GetLdstSegments(EDGE)),
    ("01 00 0200 0504 | 03 02 04 00 5604 0000 | 0000000000000000", Request::SetLdstSegments(tables::SetEntries {
        vppb: 1, start: 0x0405, entries: List::of(&[LDST, None]) })),
    ("01 00 0302 0504", Request::GetLdstIdt(EDGE)),
    ("01 00 0200 0504 0000 | 2301 5604", Request::SetLdstIdt(tables::SetIdt {
        vppb: 1, start: 0x0405, entries: List::of(&[pid(0x123), pid(0x456)]) })),
    ("01 00 0302 0504", Request::GetReRouter(EDGE)),
    ("01 00 0200 0504 | 2311 04 05 37 | 5604 00 08 49", Request::SetReRouter(tables::SetEntries {
        vppb: 1, start: 0x0405, entries: List::of(&RE_ROUTER) })),
    ("01020304 05060708", Request::GetLav(tables::VectorRange { start: 0x0403_0201, len: 0x0807_0605 })),
    ("09 000000 01020304 05060708", Request::GetVcsLav(tables::VcsVectorRange {
        vcs: 9, range: tables::VectorRange { start: 0x0403_0201, len: 0x0807_0605 } })),
    ("01 00 2311", Request::ConfigureLdstAccess(tables::ConfigureLdstAccess {
        vcs: 1, access: tables::PidOp { pid: pid(0x123), op: tables::LdstAccess::Disable } })),
];

#[rustfmt::skip] // bytes by offset, then what they say
pub const RESPONSES: Responses = &[
    ("0102030405060708 | 09 0A 00 03", Response::IdentifyPbrSwitch(pbr::PbrSwitchIdentity {
        gae_map: 0x0807_0605_0403_0201, drts: 9, rgts: 10, modes: 3 })),
    ("0300 0000 | A1A2A3", Response::CrawlOut(mld::TunnelResponse { message: List::of(&[0xA1, 0xA2, 0xA3]) })),
    ("01 000000 | 05 06 2311 101112131415161718191A1B1C1D1E1F 07 08
      202122232425262728292A2B2C2D2E2F 303132333435363738393A3B3C3D3E3F",
        Response::GetLinkPartners(pbr::LinkPartners { partners: List::of(&[pbr::LinkPartner {
            port: 5, far_port: 6, far: pbr::PidAndKind { pid: pid(0x123), kind: pbr::PidAndKind::GFD },
            uuid: UUID, standard_vcs: 7, uio_vcs: 8, primary_uuid: UUID_2, secondary_uuid: UUID_3 }]) })),
    ("0201 0200 | 0403 01 05 06 07 2301 | 0908 02 0A 0B 0C FF0F",
        Response::GetPidTargets(pbr::PidTargets { total: 0x0102, targets: List::of(&[
            pbr::PidTarget { id: 0x0304, kind: pbr::PidTargetKind::HostEdge, instance: 5, vcs: 6, port: 7,
                pid: pid(0x123) },
            pbr::PidTarget { id: 0x0809, kind: pbr::PidTargetKind::DownstreamEdge, instance: 10, vcs: 11,
                port: 12, pid: Pid::NONE }]) })),
    ("2301 5604 | 0102030405060708 090A 1112131415161718 191A",
        Response::GetPidBinding(pbr::PidBinding { pid: pid(0x123), host_edge: pid(0x456), cost: COST })),
    ("0201 0100 | 01 05 00 A1000000000000000000000000000000000000000000000000000000000000A2 00000000",
        Response::GetTables(pbr::TableDescriptors { start: 0x0102, tables: List::of(&[pbr::TableDescriptor {
            kind: pbr::TableKind::Rgt, index: 5, ports: PORTS }]) })),
    ("01 00 0300 0504 09 00 | 0000 0106 0207", Response::GetDrt(tables::Drt {
        table: 1, start: 0x0405, rgt: 9,
        entries: List::of(&[DrtEntry::Invalid, DrtEntry::Port(6), DrtEntry::Group(7)]) })),
    ("01 00 0100 0504 | 0102030405060708 16 2A 0000", Response::GetRgt(tables::Rgt {
        table: 1, start: 0x0405, entries: List::of(&[RGT]) })),
    ("01 0302 04 0605 0807 2301 | 0102030405060708 | 1112131415161718",
        Response::GetLdstCaps(tables::LdstCaps {
            vppb: 1, segments: 0x0203, segment_size: 4, idt: 0x0506, re_routers: 0x0708, pid: pid(0x123),
            base: Hpa(0x0807_0605_0403_0201), limit: Hpa(0x1817_1615_1413_1211) })),
    ("0200 0504 | 03 02 04 00 5604 0000 | 0000000000000000", Response::GetLdstSegments(tables::Entries {
        start: 0x0405, entries: List::of(&[LDST, None]) })),
    ("0200 0504 | 2301 5604", Response::GetLdstIdt(tables::Entries {
        start: 0x0405, entries: List::of(&[pid(0x123), pid(0x456)]) })),
    ("0200 0504 | 2311 04 05 37 | 5604 00 08 49", Response::GetReRouter(tables::Entries {
        start: 0x0405, entries: List::of(&RE_ROUTER) })),
    ("03000000 | A1A2A3", Response::GetLav(tables::Vector { data: List::of(&[0xA1, 0xA2, 0xA3]) })),
    ("02000000 | A1A2", Response::GetVcsLav(tables::Vector { data: List::of(&[0xA1, 0xA2]) })),
];
