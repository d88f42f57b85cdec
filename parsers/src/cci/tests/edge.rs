//! 58xxh, 59xxh.

use super::basics::pid;
use super::pbr::COST;
use super::{Requests, Responses};
use crate::cci::wire::{Bits, List};
use crate::cci::{Request, Response, gae, tables};
use crate::fabric::{FastEntry, Hpa, Interleave, Target};

const BASE: Hpa = Hpa(0x0807_0605_0403_0201);
const LIMIT: Hpa = Hpa(0x1817_1615_1413_1211);
const PART: tables::VectorRange = tables::VectorRange { start: 0x0403_0201, len: 0x0807_0605 };
const EDGE: tables::EdgeRange = tables::EdgeRange { vppb: 1, count: 0x0203, start: 0x0405 };

/// The two entries of docs/spec/wire-formats.md §4.6.
const FOUR_WAYS: Option<FastEntry> = Some(FastEntry {
    gim: false,
    interleave: Interleave::from_codes(2, 4).unwrap(),
    target: Target::Interleaved(0x040),
});
const GIM: Option<FastEntry> =
    Some(FastEntry { gim: true, interleave: Interleave::NONE, target: Target::Direct(pid(0x123)) });

const THREAD: gae::ProxyThread = tables::PidOp { pid: pid(0x123), op: Bits::from_low_bits(5) };

#[rustfmt::skip] // bytes by offset, then what they say
pub const REQUESTS: Requests = &[
    ("01 02", Request::IdentifyGae(gae::GaeRange { start: 1, count: 2 })),
    ("01020304 05060708 01", Request::GetPidInterrupts(gae::GetInterrupts { range: PART, clear: true })),
    ("01020304 05060708", Request::GetPidAccess(PART)),
    ("07 000000", Request::GetFastCaps(gae::GetFastCaps { vppb: 7 })),
    ("01 02 03 00 | 0102030405060708 | 1112131415161718", Request::SetFast(gae::SetFast {
        vppb: 1, segment_size: 2, prefix: gae::PrefixFlags { out: true, into: true }, base: BASE, limit: LIMIT })),
    ("01 00 0302 0504", Request::GetFastSegments(EDGE)),
    ("00 00 0100 0200 | 0102040040000000", Request::SetFastSegments(tables::SetEntries {
        vppb: 0, start: 2, entries: List::of(&[FOUR_WAYS]) })),
    ("01 00 0300 0504 | 0102040040000000 | 0300000023010000 | 0000000000000000",
        Request::SetFastSegments(tables::SetEntries {
            vppb: 1, start: 0x0405, entries: List::of(&[FOUR_WAYS, GIM, None]) })),
    ("01 00 0302 0504", Request::GetIdt(EDGE)),
    ("01 00 0200 0504 0000 | 2301 5604", Request::SetIdt(tables::SetIdt {
        vppb: 1, start: 0x0405, entries: List::of(&[pid(0x123), pid(0x456)]) })),
    ("2301 | 0102030405060708 | 0A09 | 1112131415161718 | 1A19", Request::Proxy(gae::ProxyCommand {
        pid: pid(0x123), request: BASE, len: 0x090A, response: LIMIT, response_max: 0x191A })),
    ("2351", Request::GetProxyStatus(THREAD)),
    ("2351", Request::CancelProxy(THREAD)),
    ("01 02 03", Request::IdentifyVcsGae(gae::VcsGaeRange {
        vcs: 1, range: gae::GaeRange { start: 2, count: 3 } })),
    ("09 000000 01020304 05060708", Request::GetVcsAccess(tables::VcsVectorRange { vcs: 9, range: PART })),
    ("01 00 2331 | 0102030405060708 090A 1112131415161718 191A", Request::ConfigureAccess(gae::ConfigureAccess {
        vcs: 1, access: tables::PidOp { pid: pid(0x123), op: gae::AccessOp::DisableVtv }, cost: COST })),
    ("08", Request::GetPrefix(8)),
    ("01 00 02", Request::SetPrefix(gae::SetPrefix {
        vcs: 1, prefix: gae::PrefixFlags { out: false, into: true } })),
];

const IDENTITY: gae::GaeIdentity = gae::GaeIdentity {
    caps: gae::GaeCaps { pids_max: 0x123, prefix_out: true, prefix_in: false, gim: true },
    threads: 0x0304,
    free: 0x0506,
    start: 7,
    vppbs: List::of(&[gae::VppbFast { segments: 0x0809 }, gae::VppbFast { segments: 0x0A0B }]),
};

#[rustfmt::skip] // bytes by offset, then what they say
pub const RESPONSES: Responses = &[
    ("2351 0403 0605 07 02 | 0908 0000 | 0B0A 0000", Response::IdentifyGae(IDENTITY)),
    ("02000000 | A1A2", Response::GetPidInterrupts(tables::Vector { data: List::of(&[0xA1, 0xA2]) })),
    ("03000000 | A1A2A3", Response::GetPidAccess(tables::Vector { data: List::of(&[0xA1, 0xA2, 0xA3]) })),
    ("01 0302 04 0605 02 01 0000 | 0102030405060708 | 1112131415161718 | 2301 5604",
        Response::GetFastCaps(gae::FastCaps {
            vppb: 1, segments: 0x0203, segment_size: 4, idt: 0x0506,
            prefix: gae::PrefixFlags { out: true, into: false }, base: BASE, limit: LIMIT,
            pids: List::of(&[pid(0x123), pid(0x456)]) })),
    ("0200 0504 | 0102040040000000 | 0300000023010000", Response::GetFastSegments(tables::Entries {
        start: 0x0405, entries: List::of(&[FOUR_WAYS, GIM]) })),
    ("0100 0504 | 2301", Response::GetIdt(tables::Entries { start: 0x0405, entries: List::of(&[pid(0x123)]) })),
    ("05 0706", Response::Proxy(gae::ProxyStarted { seq: Bits::from_low_bits(5), free: 0x0607 })),
    ("01 00 0706", Response::GetProxyStatus(gae::ProxyStatus { running: true, free: 0x0607 })),
    ("0706", Response::CancelProxy(0x0607)),
    ("2351 0403 0605 07 02 | 0908 0000 | 0B0A 0000", Response::IdentifyVcsGae(IDENTITY)),
    ("03000000 | A1A2A3", Response::GetVcsAccess(tables::Vector { data: List::of(&[0xA1, 0xA2, 0xA3]) })),
    ("01", Response::GetPrefix(gae::PrefixFlags { out: true, into: false })),
];
