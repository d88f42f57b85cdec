//! Commands that only store and return values: identity, SAT, limits, GDT, lists in pages. Set, get, compare; refused
//! lists leave everything as it was.
//!
//! Units: bytes.
//! Source: docs/spec/wire-formats.md §4.7, conflicts C8, C9.

use super::*;
use crate::gfd::ReturnCode;
use crate::gfd::access::Enables;
use crate::gfd::device::LinkStatus;
use crate::gfd::dmp::BLOCK_SIZES;

const REFUSED: Result<(), ReturnCode> = Err(ReturnCode::InvalidInput);

#[test]
fn identity_says_what_is_there() {
    let mut gfd = device(Media { non_volatile: true, ..Media::default() });
    let id = gfd.identify();
    assert_eq!((id.dmps, id.regions, id.groups, id.sanitize), (4, 8, 64, 0xFF));
    assert_eq!((id.capacity, id.volatile, id.persistent), (8, 4, 4), "in units of 256 MiB");
    assert_eq!((id.region_blocks, id.dmp_blocks), ([BLOCK_SIZES; 8], [BLOCK_SIZES; 4]));
    let link = LinkStatus { width: 16, link_flags: 0x102, ..LinkStatus::default() };
    gfd.set_status(link);
    assert_eq!(gfd.status(), link);
    let small =
        Config { groups: 0, dmps: 1, regions: 2, ..Config::full(pid(1), LinkRate::gbps(1)) };
    let mut gfd = Gfd::new(small, Memory::anonymous(2 * GIB));
    let id = gfd.identify();
    assert_eq!((id.groups, id.sanitize, id.dmp_blocks[1], id.region_blocks[2]), (1, 3, 0, 0));
    assert_eq!(gfd.set_dmps(&[dmp(1, 0, Media::default())]), REFUSED);
    gfd.set_dmps(&[dmp(0, 0, Media::default())]).unwrap();
    assert_eq!(gfd.set_region(region(2, 0)), REFUSED);
    assert_eq!(gfd.set_group_access(&[(pid(1), 2)]), REFUSED);
    assert_eq!(gfd.set_group_access(&[(pid(1), 1)]), Ok(()));
}

#[test]
fn partitions_and_regions_come_in_pages() {
    let mut gfd = device(Media::default());
    let page = gfd.dmps(1, 9).unwrap();
    assert_eq!((page.start, page.total, page.list), (1, 2, vec![dmp(1, GIB, Media::default())]));
    assert_eq!(gfd.dmps(2, 9).unwrap().list, []);
    assert_eq!(gfd.dmps(3, 9), Err(ReturnCode::InvalidInput));
    let (page, totals) = gfd.regions(0, 1).unwrap();
    assert_eq!((page.total, page.list), (2, vec![region(0, 0)]));
    assert_eq!((totals.extents, totals.extents_left, totals.tags_left), (4_096, 4_096, 1_024));
    give(&mut gfd, 1, 1);
    assert_eq!(gfd.regions(0, 1).unwrap().1.extents_left, 4_095);
    let mut gfd = device(Media::default());
    gfd.set_dmps(&[Dmp { len: 0, ..dmp(1, GIB, Media::default()) }]).unwrap();
    assert_eq!(gfd.regions(0, 9).unwrap().0.list, [region(0, 0)], "a region without home is gone");
    let bad = Dmp { block: 3, ..dmp(0, 0, Media::default()) };
    assert_eq!(gfd.set_dmps(&[dmp(2, GIB, Media::default()), bad]), REFUSED);
    assert_eq!(gfd.dmps(0, 9).unwrap().total, 1, "whole or not at all");
}

#[test]
fn the_sat_is_set_whole_or_not_at_all() {
    let mut gfd = device(Media::default());
    gfd.set_group_access(&[(pid(2), 1 << 63 | 1 << 31 | 1), (pid(3), 2)]).unwrap();
    assert_eq!(gfd.sat(2, 2).unwrap().list, [1, 2], "bit 31 is Notify, not group 31");
    gfd.set_sat(&[(pid(2), 1 << 31 | 0b110)]).unwrap();
    assert_eq!(gfd.sat(0, 4).unwrap().list, [0, 0, 1 << 31 | 0b110, 2]);
    assert_eq!(gfd.group_access(pid(2)), 1 << 63 | 1 << 31 | 0b110, "high groups stay");
    assert_eq!(gfd.set_sat(&[(pid(2), 0), (Pid::NONE, 1)]), REFUSED);
    assert_eq!(gfd.set_group_access(&[(pid(2), 0), (Pid::NONE, 1)]), REFUSED);
    assert_eq!(gfd.group_access(pid(2)), 1 << 63 | 1 << 31 | 0b110);
    assert!(gfd.sat(4_095, 1).unwrap().list.is_empty(), "PID FFF has no entry");
    assert_eq!(gfd.sat(4_096, 1), Err(ReturnCode::InvalidInput));
}

#[test]
fn decoders_are_set_whole_or_not_at_all() {
    let mut gfd = device(Media::default());
    let (good, bad) = (plain(HPA, 0, MIB), plain(HPA, 0, 0));
    let other = plain(HPA + MIB, 0, MIB);
    gfd.set_decoders(pid(2), 1, &[Some(good), None, Some(other)]).unwrap();
    assert_eq!(gfd.set_decoders(pid(2), 2, &[Some(good)]), REFUSED, "its addresses are taken");
    assert_eq!(gfd.set_decoders(pid(2), 0, &[None, None, Some(bad)]), REFUSED);
    let page = gfd.decoders(pid(2), 1, 3).unwrap();
    assert_eq!((page.total, page.list), (8, vec![Some(good), None, Some(other)]));
    assert_eq!(gfd.decoders(pid(2), 9, 1), Err(ReturnCode::InvalidInput));
    assert_eq!(gfd.decoders(Pid::NONE, 0, 1), Err(ReturnCode::InvalidInput));
}

#[test]
fn limits_hold_answers_back() {
    let mut gfd = device(Media::default());
    give(&mut gfd, 1, 1);
    gfd.set_decoders(pid(2), 0, &[Some(plain(HPA, 0, MIB))]).unwrap();
    gfd.set_sat(&[(pid(2), 0b10)]).unwrap();
    gfd.set_bandwidth_limits(1, &[9, 128]).unwrap();
    assert_eq!(gfd.bandwidth_limits(0, 4).unwrap().list, [0, 9, 128, 0]);
    assert_eq!(gfd.set_bandwidth_limits(4_094, &[1, 1]), REFUSED);
    assert_eq!(gfd.set_bandwidth_limits(usize::MAX, &[1]), REFUSED);
    assert_eq!(gfd.bandwidth_limits(4_094, 1).unwrap().list, [0]);
    let data = [0; 16 << 10];
    let first = gfd.write(NOW, at(2, HPA), &data, Enables::All).unwrap();
    let second = gfd.write(NOW, at(2, HPA), &data, Enables::All).unwrap();
    // 16 KiB at half of 400 Gbit/s.
    let wait = weft_dataplane::time::Span::from_ps(655_360);
    assert_eq!((first.due, second.due), (NOW, NOW + wait));
    gfd.sample_backlog(100, 100);
    assert_eq!(gfd.qos_status(), 12, "an eighth of the way");
    let control = gfd.qos_control();
    gfd.set_qos_control(crate::gfd::qos::Control { req_cmp_basis: 0x1234, ..control }).unwrap();
    assert_eq!(gfd.qos_control().req_cmp_basis, 0x1234);
}
