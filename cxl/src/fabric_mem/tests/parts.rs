//! Parts by themselves: pieces of a train, covers, windows.
//! Tables and naive oracles.
//!
//! Units: bytes.
//! Source: docs/spec/wire-formats.md §3.6, §5.5.

use weft_base::rng::Rng;
use weft_parsers::fabric::Hpa;

use super::super::testing::*;
use super::super::train::{Span, Train};
use super::super::*;
use crate::cover::Cover;

#[test]
fn pieces_end_at_boundaries_of_the_fabric_address() {
    #[rustfmt::skip] // columns: name, fabric address, len, longest request, lengths
    let cases: [(&str, u64, u64, u64, &[u64]); 6] = [
        ("whole pages",     0x1000, 8192, 4096, &[4096, 4096]),
        ("one byte",       0x1FFF, 1,    4096, &[1]),
        ("across",          0x1FFF, 2,    4096, &[1, 1]),
        ("head and tail",   0x1F00, 4608, 4096, &[256, 4096, 256]),
        ("short requests",  0x1010, 128,  64,   &[48, 64, 16]),
        ("up to the end",   u64::MAX - 4096, 4096, 4096, &[1, 4095]),
    ];
    for (name, fabric, len, longest, want) in cases {
        let spans = vec![Span { local: 5, fabric: Hpa(fabric), len, staged: false }];
        let mut train = Train::new(spans, longest);
        let (mut lens, mut at) = (Vec::new(), 0);
        while let Some(piece) = train.peek() {
            assert_eq!((piece.local, piece.fabric), (5 + at, Hpa(fabric + at)), "{name}");
            lens.push(piece.len);
            at += piece.len;
            train.advance();
        }
        assert_eq!(lens, want, "{name}");
    }
}

/// Against a flag per byte.
#[test]
fn covers_take_each_byte_once() {
    let mut rng = Rng::new(3);
    let mut wholes = 0;
    for _ in 0..2_000 {
        let whole = 1 + rng.below(24);
        let (mut cover, mut flags) = (Cover::default(), vec![false; 64]);
        for _ in 0..40 {
            let (offset, len) = (rng.below(whole + 2), rng.below(6));
            let range = usize::try_from(offset).unwrap()..usize::try_from(offset + len).unwrap();
            let free = !flags[range.clone()].contains(&true);
            let want = len > 0 && offset + len <= whole && free;
            assert_eq!(cover.add(offset, len, whole), want, "{offset} {len} of {whole}");
            if want {
                flags[range].fill(true);
            }
            let all = flags[..usize::try_from(whole).unwrap()].iter().all(|flag| *flag);
            assert_eq!(cover.is_whole(whole), all);
            wholes += usize::from(all);
        }
        assert!(!cover.add(u64::MAX, 2, whole) && !cover.add(0, u64::MAX, whole));
    }
    assert!(wholes > 1_000, "{wholes}");
}

#[test]
fn the_window_shows_what_is_registered_and_no_more() {
    let ram = &Fabric::new(1, Faults::default()).rams[0];
    let mut engines = [engine(0, |_| ()), engine(1, |_| ())];
    let [one, two] = &mut engines;
    let mem = MemDesc { addr: HOST + 0x1010, len: 0x2000 };
    let handle = one.register(mem, MemKind::Host, ram).unwrap();
    one.register(MemDesc { addr: HOST + 0x8000, len: 1 }, MemKind::Host, ram).unwrap();
    let shares = one.shares().unwrap();
    let offset = shares[0].place.offset;
    assert_eq!(offset % 4_096, 0x010, "placed in its page as in memory");
    assert_eq!(shares[1].place.offset, 0x10_3000, "behind the pages of the first");
    assert_eq!(one.serve(pid(1), offset, 1), None, "nobody is connected");
    connect(one, two);
    #[rustfmt::skip] // columns: name, offset, len, own address
    let cases = [
        ("first byte",  offset,          1,      Some(mem.addr)),
        ("all",          offset,          0x2000, Some(mem.addr)),
        ("one too many", offset,          0x2001, None),
        ("before",       offset - 1,      1,      None),
        ("behind",       offset + 0x2000, 1,      None),
        ("overflow",     offset + 1,      u64::MAX, None),
    ];
    for (name, offset, len, want) in cases {
        assert_eq!(one.serve(pid(1), offset, len), want, "{name}");
    }
    assert_eq!(one.serve(pid(0), offset, 1), None, "who is not connected");
    one.deregister(handle).unwrap();
    assert_eq!(one.serve(pid(1), offset, 1), None, "not registered any more");
    let again = one.register(mem, MemKind::Host, ram).unwrap();
    assert_eq!(one.shares().unwrap()[0].place.offset, offset, "the room is used again");
    assert_ne!(again, handle);
    // No other memory is shown where the peer still expects the old one, until the peer is gone.
    one.deregister(again).unwrap();
    let other = MemDesc { addr: HOST + 0x4010, len: 0x2000 };
    let other = one.register(other, MemKind::Host, ram).unwrap();
    assert_eq!(one.serve(pid(1), offset, 1), None, "what was there is registered no more");
    assert_eq!(one.shares().unwrap()[0].place.offset, 0x10_4010, "behind all others");
    one.deregister(other).unwrap();
    one.disconnect(PEER).unwrap();
    one.register(MemDesc { addr: HOST + 0x4010, len: 1 }, MemKind::Host, ram).unwrap();
    assert_eq!(one.shares().unwrap()[0].place.offset, offset, "nobody knows the place any more");
    assert_eq!(one.serve(pid(1), offset, 1), None, "disconnected");
}

/// A window of two pages: ranges that fit, and one that does not.
#[test]
fn a_full_window_refuses() {
    let ram = &Fabric::new(1, Faults::default()).rams[0];
    let options = Options { enabled: true, ..Options::default() };
    let window = Window { place: Place { pid: pid(0), offset: 0x1000 }, len: 0x2000 };
    let mut one = Engine::new(EngineSpec { options, window, segments: segments() }).unwrap();
    let first = one.register(MemDesc { addr: HOST, len: 0x1000 }, MemKind::Host, ram).unwrap();
    let two_pages = MemDesc { addr: HOST + 0x1FFF, len: 2 };
    let full = Err(Error::WindowFull { len: 2 });
    assert_eq!(one.register(two_pages, MemKind::Host, ram), full);
    one.register(MemDesc { addr: HOST + 0x2000, len: 0x1000 }, MemKind::Host, ram).unwrap();
    assert!(one.register(two_pages, MemKind::Host, ram).is_err());
    one.deregister(first).unwrap();
    one.register(MemDesc { addr: HOST + 0x8000, len: 1 }, MemKind::Host, ram).unwrap();
    assert_eq!(one.shares().unwrap()[1].place.offset, 0x1000, "the hole is filled");
}
