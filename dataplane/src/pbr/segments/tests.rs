//! Tests of [`Segments`]: the worked address, each rule of a window, and a naive model.

use weft_base::rng::Rng;

use super::*;
use std::collections::BTreeMap;

const TIB: u64 = 1 << 40;
const GIB_64: u64 = 1 << 36;

fn pid(bits: u16) -> Pid {
    Pid::from_low_bits(bits)
}

fn direct(bits: u16) -> Segment {
    Segment { flag: false, interleave: Interleave::NONE, target: Target::Direct(pid(bits)) }
}

fn interleaved(ways: u8, granularity: u8, index: u16) -> Segment {
    let interleave = Interleave::from_codes(ways, granularity).unwrap();
    Segment { flag: false, interleave, target: Target::Interleaved(index) }
}

/// docs/spec/wire-formats.md §5.1: base 1 TiB, 64-GiB segments, command index 2 is hardware index 18, way 3.
#[test]
fn worked_address_hits_command_index_2_way_3() {
    let mut table = Segments::new(4_096, 256).unwrap();
    table.configure(0, Hpa(TIB), Hpa(2 * TIB)).unwrap();
    table.set(2, &[Some(interleaved(2, 4, 0x040))]).unwrap();
    table.set_idt(0x040, &[pid(0x200), pid(0x201), pid(0x202), pid(0x203)]).unwrap();
    assert_eq!(table.hardware_index(2), 18);
    let hpa = Hpa(0x0123_4567_BA40);
    assert_eq!(table.lookup(hpa), Found::Hit { flag: false, dpid: pid(0x203) });
    assert_eq!(table.get(2), Some(interleaved(2, 4, 0x040)));
    assert_eq!(table.get(18), None, "command indices count from the base");
}

/// docs/spec/wire-formats.md §5.1: with base 1 PiB and 512-GiB segments the first entry is 2,048 of 4,096.
#[test]
fn low_bits_of_the_address_index_and_wrap() {
    let mut table = Segments::new(4_096, 0).unwrap();
    let base = 1 << 50;
    table.configure(3, Hpa(base), Hpa(base + 4_096 * 8 * GIB_64)).unwrap();
    assert_eq!(table.hardware_index(0), 2_048);
    let entries: Vec<_> = (0..4_096).map(|n| Some(direct(n % 0xFFF))).collect();
    table.set(0, &entries).unwrap();
    for n in [0_u16, 1, 2_047, 2_048, 4_095] {
        let at = base + u64::from(n) * 8 * GIB_64 + 77;
        let dpid = pid(n % 0xFFF);
        assert_eq!(table.lookup(Hpa(at)), Found::Hit { flag: false, dpid }, "{n}");
    }
    // The limit itself is inside, but its entry is that of the base.
    assert_eq!(table.lookup(Hpa(base + 4_096 * 8 * GIB_64)), Found::Invalid);
    assert_eq!(table.lookup(Hpa(base + 4_096 * 8 * GIB_64 + 1)), Found::Miss);
}

#[test]
fn window_is_inclusive_of_base_and_limit() {
    let mut table = Segments::new(64, 0).unwrap();
    table.configure(0, Hpa(TIB), Hpa(TIB + 4 * GIB_64)).unwrap();
    table.set(0, &[Some(direct(1)); 5]).unwrap();
    let hit = Found::Hit { flag: false, dpid: pid(1) };
    #[rustfmt::skip] // columns: address, want
    let cases = [
        (0, Found::Miss), (TIB - 1, Found::Miss), (TIB, hit), (TIB + 4 * GIB_64 - 1, hit),
        (TIB + 4 * GIB_64, hit), (TIB + 4 * GIB_64 + 1, Found::Miss), (u64::MAX, Found::Miss),
    ];
    for (address, want) in cases {
        assert_eq!(table.lookup(Hpa(address)), want, "{address:#x}");
    }
}

/// Each rule of Set FAST/IDT Config, with the nearest value that is allowed.
#[test]
fn windows_against_the_rules_are_refused_and_change_nothing() {
    let mut table = Segments::new(16, 0).unwrap();
    table.configure(0, Hpa(TIB), Hpa(TIB + GIB_64)).unwrap();
    table.set(0, &[Some(direct(5))]).unwrap();
    let before = table.clone();
    let size = 1 << 43;
    #[rustfmt::skip] // columns: code, base, limit, want
    let cases = [
        (8, TIB, 2 * TIB,                 TableError::SegmentSize(8)),
        (0, TIB + 1, 2 * TIB,             TableError::Alignment { what: "base", address: TIB + 1 }),
        (0, TIB, 2 * TIB - 1,             TableError::Alignment { what: "limit", address: 2 * TIB - 1 }),
        (7, TIB, 2 * size,                TableError::Alignment { what: "base", address: TIB }),
        (0, TIB, TIB,                     TableError::Order { base: TIB, limit: TIB }),
        (0, 2 * TIB, TIB,                 TableError::Order { base: 2 * TIB, limit: TIB }),
        (0, TIB, TIB + 17 * GIB_64,       TableError::Window { segments: 17, entries: 16 }),
        (0, GIB_64, 0u64.wrapping_sub(GIB_64), TableError::Window { segments: (1 << 28) - 2, entries: 16 }),
    ];
    for (code, base, limit, want) in cases {
        assert_eq!(table.configure(code, Hpa(base), Hpa(limit)), Err(want), "{base:#x}");
        assert_eq!(table, before, "{want}");
    }
    assert_eq!(table.configure(0, Hpa(TIB), Hpa(TIB + 16 * GIB_64)), Ok(()));
    assert_eq!(table.configure(7, Hpa(size), Hpa(17 * size)), Ok(()));
    assert_eq!(table.config(), (7, Hpa(size), Hpa(17 * size)));
}

#[test]
fn base_or_limit_0_switches_off() {
    for (base, limit) in [(0, TIB), (TIB, 0), (0, 0)] {
        let mut table = Segments::new(16, 0).unwrap();
        table.configure(0, Hpa(base), Hpa(limit)).unwrap();
        table.set(0, &[Some(direct(1)); 16]).unwrap();
        for address in [0, 1, GIB_64, TIB, u64::MAX] {
            assert_eq!(
                table.lookup(Hpa(address)),
                Found::Miss,
                "{base:#x} {limit:#x} {address:#x}"
            );
        }
    }
}

#[test]
fn another_base_or_size_empties_and_another_limit_does_not() {
    let mut table = Segments::new(16, 0).unwrap();
    table.configure(0, Hpa(TIB), Hpa(TIB + GIB_64)).unwrap();
    table.set(0, &[Some(direct(5))]).unwrap();
    table.configure(0, Hpa(TIB), Hpa(TIB + 2 * GIB_64)).unwrap();
    assert_eq!(table.get(0), Some(direct(5)));
    table.configure(1, Hpa(TIB), Hpa(TIB + 2 * GIB_64)).unwrap();
    assert!(table.is_empty());
    table.set(0, &[Some(direct(5))]).unwrap();
    table.configure(1, Hpa(2 * TIB), Hpa(3 * TIB)).unwrap();
    assert!(table.is_empty());
}

#[test]
fn entries_that_cannot_stand_are_refused_as_a_whole() {
    let mut table = Segments::new(16, 8).unwrap();
    table.configure(0, Hpa(TIB), Hpa(2 * TIB)).unwrap();
    table.set_idt(7, &[pid(9)]).unwrap();
    let before = table.clone();
    let one_with_index = Segment { target: Target::Interleaved(0), ..direct(1) };
    let two_with_pid = Segment { target: Target::Direct(pid(1)), ..interleaved(1, 0, 0) };
    #[rustfmt::skip] // columns: start, the entry behind a good one, want
    let cases = [
        (0, direct(0xFFF),        TableError::NoPid),
        (0, one_with_index,       TableError::Target(1)),
        (0, two_with_pid,         TableError::Target(2)),
        (0, interleaved(2, 0, 5), TableError::Idt { index: 5, ways: 4, len: 8 }),
        (0, interleaved(8, 0, 0), TableError::Idt { index: 0, ways: 256, len: 8 }),
        (15, direct(1),           TableError::Range { start: 15, count: 2, len: 16 }),
        (usize::MAX, direct(1),   TableError::Range { start: usize::MAX, count: 2, len: 16 }),
    ];
    for (start, segment, want) in cases {
        assert_eq!(table.set(start, &[Some(direct(3)), Some(segment)]), Err(want), "{segment:?}");
        assert_eq!(table, before, "{want}");
    }
    assert!(table.set_idt(7, &[pid(1); 2]).is_err());
    assert_eq!(table, before);
    assert_eq!(table.set(14, &[Some(interleaved(2, 0, 4)), Some(interleaved(3, 6, 0))]), Ok(()));
}

#[test]
fn an_empty_place_of_the_idt_is_no_target() {
    let mut table = Segments::new(16, 8).unwrap();
    table.configure(0, Hpa(TIB), Hpa(2 * TIB)).unwrap();
    table.set(0, &[Some(interleaved(1, 0, 2))]).unwrap();
    table.set_idt(2, &[pid(9), Pid::NONE]).unwrap();
    assert_eq!(table.lookup(Hpa(TIB)), Found::Hit { flag: false, dpid: pid(9) });
    assert_eq!(table.lookup(Hpa(TIB + 256)), Found::Invalid);
    assert_eq!((table.idt(2), table.idt(3), table.idt(8)), (Some(pid(9)), Some(Pid::NONE), None));
}

#[test]
fn sizes_that_cannot_be_indexed_are_refused() {
    #[rustfmt::skip] // columns: entries, IDT, fits
    let cases = [(1, 0, true), (32_768, 4_096, true), (0, 0, false), (3, 0, false), (65_536, 0, false), (4, 4_097, false)];
    for (entries, idt, fits) in cases {
        assert_eq!(Segments::new(entries, idt).is_ok(), fits, "{entries} {idt}");
    }
}

#[test]
fn a_change_of_a_clone_leaves_the_other() {
    let mut old = Segments::new(16, 8).unwrap();
    old.configure(0, Hpa(TIB), Hpa(2 * TIB)).unwrap();
    let mut new = old.clone();
    new.set(0, &[Some(direct(1))]).unwrap();
    new.set_idt(0, &[pid(1)]).unwrap();
    assert_eq!((old.lookup(Hpa(TIB)), old.idt(0)), (Found::Invalid, Some(Pid::NONE)));
}

/// The table against entries kept by the number of their segment, and ways dealt out by counting.
#[test]
fn random_tables_match_a_naive_model() {
    let mut rng = Rng::new(0x5E6);
    let draw = |rng: &mut Rng, bound: u64| u16::try_from(rng.below(bound)).unwrap();
    for round in 0..40 {
        let entries = 1 << rng.below(8);
        let size = u8::try_from(rng.below(8)).unwrap();
        let unit = GIB_64 << size;
        let base = (1 + rng.below(300)) * unit;
        let span = 1 + rng.below(entries);
        let mut table = Segments::new(usize::try_from(entries).unwrap(), 512).unwrap();
        table.configure(size, Hpa(base), Hpa(base + span * unit)).unwrap();
        let mut model: BTreeMap<u64, Segment> = BTreeMap::new();
        let mut idt = vec![Pid::NONE; 512];
        for _ in 0..600 {
            let index = rng.below(entries);
            match rng.below(4) {
                0 => {
                    let ways = u8::try_from(rng.below(9)).unwrap();
                    let granularity = u8::try_from(rng.below(7)).unwrap();
                    let entry = match ways {
                        0 => direct(draw(&mut rng, 0xFFF)),
                        _ => interleaved(ways, granularity, draw(&mut rng, 513 - (1 << ways))),
                    };
                    let entry = Segment { flag: rng.chance(1, 2), ..entry };
                    table.set(usize::try_from(index).unwrap(), &[Some(entry)]).unwrap();
                    model.insert(index, entry);
                }
                1 => {
                    table.set(usize::try_from(index).unwrap(), &[None]).unwrap();
                    model.remove(&index);
                }
                _ => {
                    let (place, pid) =
                        (usize::from(draw(&mut rng, 512)), pid(draw(&mut rng, 0x1000)));
                    table.set_idt(place, &[pid]).unwrap();
                    idt[place] = pid;
                }
            }
            assert_eq!(table.get(usize::try_from(index).unwrap()), model.get(&index).copied());
            let hpa = base - unit + rng.below((span + 2) * unit);
            let want = if hpa < base || hpa > base + span * unit {
                Found::Miss
            } else {
                // The byte at the limit of a full table has no number in the model.
                match model.get(&((hpa - base) / unit)) {
                    None => Found::Invalid,
                    Some(entry) => {
                        let granule = u64::from(entry.interleave.granularity());
                        let way = hpa / granule % u64::from(entry.interleave.ways());
                        let dpid = match entry.target {
                            Target::Direct(pid) => pid,
                            Target::Interleaved(at) => {
                                idt[usize::from(at) + usize::try_from(way).unwrap()]
                            }
                        };
                        let flag = entry.flag;
                        if dpid.is_none() { Found::Invalid } else { Found::Hit { flag, dpid } }
                    }
                }
            };
            assert_eq!(table.lookup(Hpa(hpa)), want, "round {round}, {hpa:#x}");
        }
    }
}
