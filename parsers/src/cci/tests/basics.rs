//! 0001h to 0005h, 01xxh, 04xxh, 07xxh.

use super::{Requests, Responses};
use crate::cci::wire::{Bits, List};
use crate::cci::{Request, Response, Uuid, component, generic, notify};
use crate::fabric::{Dpa, Hpa, Pid};

/// 10h to 1Fh.
pub const UUID: Uuid = [16, 17, 18, 19, 20, 21, 22, 23, 24, 25, 26, 27, 28, 29, 30, 31];
/// 20h to 2Fh.
pub const UUID_2: Uuid = [32, 33, 34, 35, 36, 37, 38, 39, 40, 41, 42, 43, 44, 45, 46, 47];
/// 30h to 3Fh.
pub const UUID_3: Uuid = [48, 49, 50, 51, 52, 53, 54, 55, 56, 57, 58, 59, 60, 61, 62, 63];

pub const fn pid(bits: u16) -> Pid {
    Pid::from_low_bits(bits)
}

const EVENT: generic::EventRecord = generic::EventRecord {
    kind: UUID,
    len: 0x80,
    flags: [1, 2, 3],
    handle: 0x0504,
    related: 0x0706,
    timestamp_ns: 0x0F0E_0D0C_0B0A_0908,
    maintenance: 0x41,
    maintenance_sub: 0x42,
    data: {
        let mut data = [0x55; 80];
        data[0] = 0xA1;
        data[79] = 0xA2;
        data
    },
};

#[rustfmt::skip] // bytes by offset, then what they say
pub const REQUESTS: Requests = &[
    ("0E", Request::SetResponseLimit(0x0E)),
    ("03", Request::GetEvents(3)),
    ("02 00 02 000000 | 0201 0403",
        Request::ClearEvents(generic::ClearEvents { log: 2, all: false, handles: List::of(&[0x0102, 0x0304]) })),
    ("02 01 00 000000",
        Request::ClearEvents(generic::ClearEvents { log: 2, all: true, handles: List::of(&[]) })),
    ("01 02 03 04 05", Request::SetEventInterrupts(INTERRUPTS)),
    ("0180", Request::SetMctpEvents(0x8001)),
    ("0280", Request::Event(0x8002)),
    ("2301 1180 02 08 5604 | 0102030405060708 | 1112131415161718 | 2221 09 00 2E00 3231 | 4142434445464748",
        Request::FmNotification(notify::FmNotification {
            pid: pid(0x123), events: 0x8011, kind: notify::kind::ACCESS_ERROR, trigger: notify::trigger::SAT_DENIED,
            rpid: pid(0x456), dpa: Dpa(0x0807_0605_0403_0201), hpa: Hpa(0x1817_1615_1413_1211), group: 0x2122,
            opcode: Bits::from_low_bits(9), flags: 0x2E, event: 0x3132, timestamp_ns: 0x4847_4645_4443_4241,
        })),
    ("2301 0A 09 2E00 5604 | 0102030405060708 | 1112131415161718 | 4142434445464748",
        Request::HostNotification(notify::HostNotification {
            pid: pid(0x123), kind: notify::kind::EXTENTS_CHANGED, opcode: Bits::from_low_bits(9), flags: 0x2E,
            rpid: pid(0x456), dpa: Dpa(0x0807_0605_0403_0201), hpa: Hpa(0x1817_1615_1413_1211),
            timestamp_ns: 0x4847_4645_4443_4241,
        })),
    ("2200341200000011", Request::SetGamBuffer(notify::GamBuffer {
        valid: false, overflow: true, address: Hpa(0x1234_0020), index: 0x11 })),
    ("101112131415161718191A1B1C1D1E1F | 01020304 | 05060708",
        Request::GetLog(generic::GetLog { log: UUID, offset: 0x0403_0201, len: 0x0807_0605 })),
    // The example of docs/spec/wire-formats.md §4.4.
    ("00 0100 101112131415161718191A1B1C1D1E1F 1000",
        Request::ClaimOwnership(component::ClaimOwnership {
            op: component::ClaimOp::RegisterPrimary, fm: pid(1), fm_uuid: UUID, pid: pid(0x10) })),
    ("03 3402 101112131415161718191A1B1C1D1E1F 5604",
        Request::ClaimOwnership(component::ClaimOwnership {
            op: component::ClaimOp::PromoteSecondary, fm: pid(0x234), fm_uuid: UUID, pid: pid(0x456) })),
    ("2301 0000 | 0102030405060708 | 1112131415161718",
        Request::ReadCdat(component::ReadCdat {
            target: pid(0x123), start: 0x0807_0605_0403_0201, len: 0x1817_1615_1413_1211 })),
];

const INTERRUPTS: generic::EventInterrupts =
    generic::EventInterrupts { info: 1, warning: 2, failure: 3, fatal: 4, dynamic_capacity: 5 };

#[rustfmt::skip] // bytes by offset, then what they say
pub const RESPONSES: Responses = &[
    ("0201 0403 0605 0807 | 1112131415161718 | 0E | 04",
        Response::Identify(generic::Identity {
            vendor: 0x0102, device: 0x0304, subsystem_vendor: 0x0506, subsystem: 0x0708,
            serial: 0x1817_1615_1413_1211, message_max_log2: 14, component: 4 })),
    ("C9 00 0657 0200 0807",
        Response::BackgroundStatus(generic::BackgroundStatus {
            progress: generic::Progress { running: true, percent: 100 },
            opcode: 0x5706, return_code: 2, vendor_status: 0x0708 })),
    ("0D", Response::GetResponseLimit(13)),
    ("0C", Response::SetResponseLimit(12)),
    ("03 00 0201 | 1112131415161718 | 2122232425262728 | 0100 00000000000000000000 |
      101112131415161718191A1B1C1D1E1F 80 010203 0405 0607 08090A0B0C0D0E0F 41 42 0000000000000000000000000000
      A15555555555555555555555555555555555555555555555555555555555555555555555555555555555
      55555555555555555555555555555555555555555555555555555555555555555555555555 A2",
        Response::GetEvents(generic::EventRecords {
            flags: 3, lost: 0x0102, first_lost_ns: 0x1817_1615_1413_1211, last_lost_ns: 0x2827_2625_2423_2221,
            records: List::of(&[EVENT]) })),
    ("01 02 03 04 05", Response::GetEventInterrupts(INTERRUPTS)),
    ("0180", Response::GetMctpEvents(0x8001)),
    ("0180", Response::SetMctpEvents(0x8001)),
    ("2100341200000011", Response::GetGamBuffer(notify::GamBuffer {
        valid: true, overflow: false, address: Hpa(0x1234_0020), index: 0x11 })),
    ("0200 000000000000 | 101112131415161718191A1B1C1D1E1F 01020304 | 202122232425262728292A2B2C2D2E2F 05060708",
        Response::GetSupportedLogs(generic::SupportedLogs { logs: List::of(&[
            generic::SupportedLog { log: UUID, len: 0x0403_0201 },
            generic::SupportedLog { log: UUID_2, len: 0x0807_0605 },
        ]) })),
    ("0102030405", Response::GetLog(generic::LogData { data: &[1, 2, 3, 4, 5] })),
    ("1000 0100 101112131415161718191A1B1C1D1E1F FF0F 202122232425262728292A2B2C2D2E2F",
        Response::IdentifyPbrComponent(component::PbrIdentity {
            pid: pid(0x10), primary: pid(1), primary_uuid: UUID, secondary: Pid::NONE, secondary_uuid: UUID_2 })),
    ("0100 101112131415161718191A1B1C1D1E1F 0200 202122232425262728292A2B2C2D2E2F",
        Response::ClaimOwnership(component::Owners {
            primary: pid(1), primary_uuid: UUID, secondary: pid(2), secondary_uuid: UUID_2 })),
    ("0102030405060708 | 0300000000000000 | AABBCC",
        Response::ReadCdat(component::Cdat { total: 0x0807_0605_0403_0201, data: List::of(&[0xAA, 0xBB, 0xCC]) })),
];
