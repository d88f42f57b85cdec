//! The capability, line sizes and regions.
//!
//! Bytes and tables.
//!
//! Units: bytes; exponents of lines.
//! Source: PCIe 5.0 section 6.21; docs/spec/wire-formats.md §3.3.

use super::super::regions::{RegionError, Regions};
use super::super::registers::{ControlChange, LnrRegisters, Supported};
use super::*;

/// The worked example of docs/spec/wire-formats.md §3.3.
#[test]
fn the_capability_reads_as_the_worked_example() {
    let mut registers = LnrRegisters::new(Supported::Only(LineSize::B64), 0x13);
    assert_eq!(registers.write_control(0x1301), ControlChange::Enabled);
    assert_eq!(registers.bytes(0), [0x1C, 0x00, 0x01, 0x00, 0x01, 0x13, 0x01, 0x13]);
    assert_eq!(registers.bytes(0x140)[..4], [0x1C, 0x00, 0x01, 0x14], "next at bits 31:20");
    assert_eq!(LnrRegisters::new(Supported::Only(LineSize::B128), 3).capability(), 0x0302);
    assert_eq!(LnrRegisters::new(Supported::Both, 31).capability(), 0x1F03);
}

/// Limit n allows 2^n lines, at most the capability's maximum.
#[test]
fn the_limit_is_an_exponent_up_to_the_maximum() {
    for (limit, lines) in [(0, 1), (3, 8), (5, 32), (6, 32), (31, 32)] {
        let mut registers = LnrRegisters::new(Supported::Both, 5);
        registers.write_control(limit << 8 | 1);
        assert_eq!(registers.limit_lines(), lines, "n = {limit}");
    }
}

/// Size and limit may be written together with the enable bit, and are fixed while it is set.
#[test]
fn size_and_limit_are_fixed_while_enabled() {
    let mut registers = LnrRegisters::new(Supported::Both, 10);
    assert_eq!(registers.write_control(0x0503), ControlChange::Enabled);
    assert_eq!((registers.line(), registers.limit_lines()), (LineSize::B128, 32));
    #[rustfmt::skip] // columns: name, written, read back, refused writes
    let cases = [
        ("same again",              0x0503, 0x0503, 0),
        ("another size",            0x0501, 0x0503, 1),
        ("another limit",           0x0203, 0x0503, 2),
        ("off and another limit",   0x0202, 0x0502, 3),
        ("off: both change",        0x0200, 0x0200, 3),
        ("on again",                0x0201, 0x0201, 3),
    ];
    for (name, written, want, refused) in cases {
        registers.write_control(written);
        assert_eq!((registers.control(), registers.refused_writes()), (want, refused), "{name}");
    }
}

/// With one supported size the CLS bit is hardwired.
#[test]
fn a_single_size_is_hardwired() {
    for (size, written, want) in [(LineSize::B64, 2, 0x0400), (LineSize::B128, 0, 0x0402)] {
        let mut registers = LnrRegisters::new(Supported::Only(size), 4);
        registers.write_control(0x0400 | written);
        assert_eq!((registers.control(), registers.line()), (want, size));
    }
}

/// Regions are aligned to 4 KiB, and at least 4 KiB long.
#[test]
fn regions_are_whole_pages() {
    let mut regions = Regions::new();
    regions.add(Hpa(0x2000), 0x2000).unwrap();
    regions.add(Hpa(u64::MAX - 0xFFF), 0x1000).unwrap();
    #[rustfmt::skip] // columns: name, base, len, refused as unaligned, extent, overlap
    let cases = [
        ("base",          0x0800, 0x1000, (true,  false, false)),
        ("length",        0x6000, 0x0800, (true,  false, false)),
        ("empty",         0x6000, 0,      (false, true,  false)),
        ("overlaps head", 0x1000, 0x2000, (false, false, true)),
        ("overlaps tail", 0x3000, 0x1000, (false, false, true)),
        ("spans",         0x1000, 0x9000, (false, false, true)),
        ("before",        0x1000, 0x1000, (false, false, false)),
        ("behind",        0x4000, 0x1000, (false, false, false)),
    ];
    for (name, base, len, (unaligned, extent, overlap)) in cases {
        let error = regions.add(Hpa(base), len).err();
        assert_eq!(matches!(error, Some(RegionError::Unaligned { .. })), unaligned, "{name}");
        assert_eq!(matches!(error, Some(RegionError::Extent { .. })), extent, "{name}");
        assert_eq!(matches!(error, Some(RegionError::Overlap { .. })), overlap, "{name}");
    }
    assert!(regions.add(Hpa(u64::MAX - 0xFFF), 0x2000).is_err(), "ends beyond 64 bits");
    for (addr, want) in
        [(0xFC0, false), (0x1000, true), (0x4FC0, true), (0x5000, false), (u64::MAX, true)]
    {
        assert_eq!(regions.contains(LineSize::B64.line(Hpa(addr))), want, "{addr:#x}");
    }
}
