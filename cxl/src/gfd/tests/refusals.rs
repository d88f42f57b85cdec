//! Each refusal on its own: nothing is written or read, and the right notification goes out.
//! A table of accesses against one device whose memory is compared before and after.
//!
//! Units: bytes.
//! Source: docs/spec/wire-formats.md §4.6 (notification type 2), §5.2.

use super::*;
use crate::gfd::access::{Enables, Refusal};
use crate::gfd::decode::Miss;
use crate::gfd::events::Kind;
use crate::gfd::protect::{Denied, GrpId};

/// Windows: 3 MiB on group 1, group 2 and no group; read-only memory of group 1; two that overlap; and one of two ways
/// of 256 bytes.
fn set_up() -> Gfd {
    let mut gfd = device(Media { read_only: true, ..Media::default() });
    give(&mut gfd, 1, 1);
    give(&mut gfd, 2, 1);
    gfd.add_capacity(NOW, 1, NO_TAG, Choice::Free { region: 1, len: MIB }, 1).unwrap();
    let two = Interleave::from_codes(1, 0).unwrap();
    let decoders = [
        Some(plain(HPA, 0, 3 * MIB)),
        Some(plain(HPA + 16 * MIB, GIB, MIB)),
        Some(plain(HPA + 32 * MIB, 0, MIB)),
        Some(plain(HPA + 33 * MIB - 256, 0, MIB)),
        Some(Decoder { interleave: two, way: 1, ..plain(HPA + 64 * MIB, 0, MIB) }),
        Some(plain(HPA + 128 * MIB, 4 * GIB, MIB)),
    ];
    assert_eq!(gfd.set_decoders(pid(7), 0, &decoders), Err(ReturnCode::InvalidInput), "two meet");
    gfd.gdt.force(pid(7), 0, &decoders);
    gfd.set_sat(&[(pid(7), 1 << 1 | 1 << 31)]).unwrap();
    while gfd.events().pop_fm().is_some() {}
    gfd
}

fn image(gfd: &Gfd) -> Vec<u8> {
    let mut image = vec![0; 3 << 20];
    gfd.memory.read(0, &mut image).unwrap();
    let mut other = vec![0; 1 << 20];
    gfd.memory.read(GIB, &mut other).unwrap();
    [image, other].concat()
}

#[test]
fn each_refusal_writes_nothing_and_says_why() {
    let none = Refusal::Miss(Miss::None);
    let group = Refusal::Denied(Denied::Group(GrpId::new(2).unwrap()));
    let nobody = Refusal::Denied(Denied::NoGroup);
    let read_only = Refusal::Denied(Denied::ReadOnly);
    let several = Refusal::Miss(Miss::Several);
    #[rustfmt::skip] // columns: name, rpid, offset in the window, bytes, refusal, trigger, dpa of it
    let cases = [
        ("other requester",      8, 0,                  64,   none,    1, None),
        ("before the window",    7, u64::MAX,           64,   none,    1, None),
        ("behind the window",    7, 3 * MIB,            64,   none,    1, None),
        ("over its end",         7, 3 * MIB - 32,       64,   nobody,  4, Some(3 * MIB - 32)),
        ("over a decoder's end", 7, 17 * MIB - 32,      64,   read_only, 0, Some(GIB + MIB - 32)),
        ("two decoders",         7, 33 * MIB - 64,      64,   several, 1, None),
        ("into two decoders",    7, 33 * MIB - 256 - 32, 64,  several, 1, None),
        ("SAT denied",           7, MIB,                64,   group,   8, Some(MIB)),
        ("into SAT denied",      7, MIB - 1,            2,    group,   8, Some(MIB)),
        ("undefined group",      7, 2 * MIB,            64,   nobody,  4, Some(2 * MIB)),
        ("over all three",       7, 0,                  3 << 20, group, 8, Some(MIB)),
        ("no partition",         7, 128 * MIB,          64,   nobody,  4, Some(4 * GIB)),
        ("read only",            7, 16 * MIB,           4096, read_only, 0, Some(GIB)),
        ("other way",            7, 64 * MIB + 511 - 8, 64,   Refusal::OtherWay, 1, None),
        ("byte of other way",   7, 64 * MIB + 511,     2,    Refusal::OtherWay, 1, None),
    ];
    for (name, rpid, off, len, want, trigger, dpa) in cases {
        let mut gfd = set_up();
        let before = image(&gfd);
        let request = at(rpid, HPA.wrapping_add(off));
        let data = vec![0xA5; len];
        assert_eq!(gfd.write(NOW, request, &data, Enables::All), Err(want), "{name}");
        assert!(image(&gfd) == before, "{name}: nothing is written");
        let notice = gfd.events().pop_fm().unwrap().event;
        let kind = if trigger == 0 { Kind::UnrecognisedRequest } else { Kind::AccessError };
        assert_eq!((notice.kind, notice.trigger), (kind, trigger), "{name}");
        assert_eq!((notice.rpid, notice.dpa.map(|dpa| dpa.0)), (pid(rpid), dpa), "{name}");
        assert_eq!(notice.opcode, Some(3), "{name}");
        let told = gfd.events().pop_host().is_some();
        assert_eq!(told, rpid == 7, "{name}: the host is told by its Notify bit");
        let mut out = data.clone();
        let read = gfd.read(NOW, request, &mut out);
        if trigger != 0 {
            assert_eq!((read, out), (Err(want), data), "{name}: nothing is read");
        } else if len == 4096 {
            assert_eq!((read.is_ok(), out), (true, vec![0; 4096]), "{name}: but readable");
        }
    }
}

#[test]
fn every_allowed_neighbour_is_let_through() {
    let mut gfd = set_up();
    #[rustfmt::skip] // columns: offset in the window, bytes, dpa
    let cases = [
        (0, 1_usize << 20, 0), (MIB - 64, 64, MIB - 64), (32 * MIB, 64, 0),
        (33 * MIB, 64, 256), (64 * MIB + 256, 256, 0), (64 * MIB + 512 + 256, 200, 256),
    ];
    for (off, len, dpa) in cases {
        let data = vec![0xA5; len];
        assert!(gfd.write(NOW, at(7, HPA + off), &data, Enables::All).is_ok(), "{off:#x}");
        let mut out = vec![0; len];
        gfd.memory.read(dpa, &mut out).unwrap();
        assert_eq!(out, data);
        gfd.memory.clear(0, MIB).unwrap();
    }
    assert!(gfd.events().pop_fm().is_none());
    assert!(gfd.write(NOW, at(7, HPA), &[], Enables::All).is_ok(), "none is an access, too");
    assert!(gfd.write(NOW, at(7, HPA + MIB), &[], Enables::All).is_err());
    assert!(gfd.read(NOW, at(7, u64::MAX), &mut [0; 64]).is_err());
}

#[test]
fn byte_enables_pick_bytes() {
    let ends = |first, last| Enables::Ends { first, last };
    #[rustfmt::skip] // columns: name, bytes, enables, want of the 12 bytes or a refusal
    let cases: [(&str, usize, Enables, Option<u16>); 15] = [
        ("all",                  12, Enables::All,             Some(0xFFF)),
        ("all by ends",          12, ends(15, 15),             Some(0xFFF)),
        ("first and last",       12, ends(0b1000, 0b0001),     Some(0b0001_1111_1000)),
        ("holes",                12, ends(0b1010, 0b0101),     Some(0b0101_1111_1010)),
        ("no first",             8,  ends(0, 0b0011),          Some(0b0000_0011_0000)),
        ("one doubleword",       4,  ends(0b0110, 0),          Some(0b0110)),
        ("one whole",            4,  ends(15, 0),              Some(0b1111)),
        ("nothing",              4,  ends(0, 0),               Some(0)),
        ("mask",                 12, Enables::Mask(0xA5A),     Some(0xA5A)),
        ("no mask",              12, Enables::Mask(0),         Some(0)),
        ("one doubleword, two",  4,  ends(15, 15),             None),
        ("half a doubleword",    6,  ends(15, 15),             None),
        ("no byte",             0,  ends(15, 0),              None),
        ("five bits",            8,  ends(16, 15),             None),
        ("mask beyond the data", 11, Enables::Mask(1 << 11),   None),
    ];
    for (name, len, enables, want) in cases {
        let mut gfd = set_up();
        let got = gfd.write(NOW, at(7, HPA + 4), &[0xA5; 12][..len], enables);
        assert_eq!(got.is_ok(), want.is_some(), "{name}");
        assert!(want.is_some() || got == Err(Refusal::Enables), "{name}");
        let mut out = [0; 20];
        gfd.memory.read(0, &mut out).unwrap();
        for (k, byte) in out.into_iter().enumerate() {
            let is_in = k >= 4
                && want.unwrap_or(0).checked_shr(u32::try_from(k).unwrap() - 4).unwrap_or(0) & 1
                    == 1;
            assert_eq!(byte, if is_in { 0xA5 } else { 0 }, "{name}: byte {k}");
        }
    }
    let mut gfd = set_up();
    let odd = gfd.write(NOW, at(7, HPA + 2), &[1; 8], ends(15, 15));
    assert_eq!(odd, Err(Refusal::Enables), "from a doubleword's address on");
    assert_eq!(gfd.events().pop_fm().map(|n| n.event.kind), Some(Kind::InvalidInput));
}

#[test]
fn a_revoked_requester_is_refused_at_once_and_nobody_else() {
    let mut gfd = set_up();
    gfd.set_decoders(pid(9), 0, &[Some(plain(0, 0, MIB))]).unwrap();
    gfd.set_sat(&[(pid(9), 1 << 1)]).unwrap();
    assert!(gfd.read(NOW, at(7, HPA), &mut [0; 64]).is_ok());
    gfd.set_sat(&[(pid(7), 0)]).unwrap();
    assert!(gfd.read(NOW, at(7, HPA), &mut [0; 64]).is_err());
    assert!(gfd.read(NOW, at(9, 0), &mut [0; 64]).is_ok());
}

/// Two requesters reach the same bytes under addresses of their own.
#[test]
fn shared_ranges_have_two_addresses_and_one_memory() {
    let mut gfd = set_up();
    gfd.set_decoders(pid(9), 3, &[Some(plain(0x55_0000_0000, 0, MIB))]).unwrap();
    gfd.set_sat(&[(pid(9), 1 << 1)]).unwrap();
    let data: Vec<u8> = (0..=255).collect();
    gfd.write(NOW, at(7, HPA + 0x1000), &data, Enables::All).unwrap();
    let mut out = vec![0; 256];
    gfd.read(NOW, at(9, 0x55_0000_1000), &mut out).unwrap();
    assert_eq!(out, data);
    gfd.write(NOW, at(9, 0x55_0000_1000), &[9], Enables::All).unwrap();
    gfd.read(NOW, at(7, HPA + 0x1000), &mut out).unwrap();
    assert_eq!((out[0], out[1]), (9, 1));
    assert_eq!(gfd.snoop_hpa(NOW, pid(9), Dpa(0x1000)), Ok(Hpa(0x55_0000_1000)));
    let lost = gfd.snoop_hpa(NOW, pid(9), Dpa(MIB));
    assert_eq!(lost, Err(Refusal::NoWayBack(Miss::None)));
    let notice = gfd.events().pop_fm().unwrap().event;
    assert_eq!((notice.kind, notice.trigger, notice.by_request), (Kind::AccessError, 2, false));
}
