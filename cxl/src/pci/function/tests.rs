use weft_base::rng::Rng;

use super::*;
use crate::pci::cxl::{BlockId, CxlKind};

const ALL: ByteEnables = ByteEnables::ALL;

fn identity() -> Identity {
    Identity {
        vendor: 0x1E98,
        device: 0xD003,
        revision: 2,
        class: 0x05_02_10,
        subsystem: (0x1E98, 7),
    }
}

/// A memory device with every kind of BAR.
fn spec() -> FunctionSpec {
    FunctionSpec {
        identity: identity(),
        bars: [
            Some(BarSpec { kind: BarKind::Mem64 { prefetch: true }, size: 8 << 30 }),
            None,
            Some(BarSpec { kind: BarKind::Mem32 { prefetch: false }, size: 64 << 10 }),
            Some(BarSpec { kind: BarKind::Io, size: 32 }),
            Some(BarSpec { kind: BarKind::Mem64 { prefetch: false }, size: 4096 }),
            None,
        ],
        serial: Some(0x0123_4567_89AB_CDEF),
        lnr: Some(LnrSpec { cls64: true, cls128: true, registrations: 19 }),
        cxl: Some(CxlSpec { kind: CxlKind::Type3, memory: 4 << 30, base: 0 }),
        blocks: vec![RegisterBlock { bar: 2, id: BlockId::Device as u8, offset: 0 }],
        ..FunctionSpec::default()
    }
}

fn ext_cap(function: &Function, id: u16) -> u16 {
    let mut at = 0x100;
    while function.space().get16(at) != id {
        at = function.space().get16(at + 2) >> 4;
        assert_ne!(at, 0, "{id:#x} is in the list");
    }
    at
}

#[test]
fn the_header_says_who_made_it() {
    let function = Function::new(&spec()).unwrap();
    #[rustfmt::skip] // columns: name, register, value
    let cases = [
        ("vendor, device",   0x00, 0xD003_1E98),
        ("status: list",     0x04, 0x0010_0000),
        ("class, revision",  0x08, 0x0502_1002),
        ("header type",      0x0C, 0x0000_0000),
        ("BAR 0",            0x10, 0x0000_000C),
        ("BAR 2",            0x18, 0x0000_0000),
        ("BAR 3",            0x1C, 0x0000_0001),
        ("BAR 4",            0x20, 0x0000_0004),
        ("subsystem",        0x2C, 0x0007_1E98),
        ("no ROM",           0x30, 0x0000_0000),
        ("first capability", 0x34, 0x0000_0040),
    ];
    for (name, offset, want) in cases {
        assert_eq!(function.read(Reg::at(offset)), want, "{name}");
    }
}

#[test]
fn ones_written_to_a_bar_give_its_size() {
    let mut function = Function::new(&spec()).unwrap();
    #[rustfmt::skip] // columns: BAR, answer
    let cases = [
        (0, 0x0000_000C), (1, 0xFFFF_FFFE),
        (2, 0xFFFF_0000), (3, 0xFFFF_FFE1),
        (4, 0xFFFF_F004), (5, 0xFFFF_FFFF),
    ];
    for (bar, want) in cases {
        let reg = Reg::at(regs::BAR0 + 4 * bar);
        function.write(reg, u32::MAX, ALL);
        assert_eq!(function.read(reg), want, "BAR {bar}");
        function.write(reg, 0, ALL);
    }
    let bar = Reg::at(regs::BAR0 + 8);
    function.write(bar, 0x1234_5678, ByteEnables::from_low_bits(0b1000));
    assert_eq!(function.read(bar), 0x1200_0000, "one byte of it");
}

#[test]
fn bars_take_their_addresses_while_they_are_enabled() {
    let mut function = Function::new(&spec()).unwrap();
    let writes = [(0x10, 0), (0x14, 0x10), (0x18, 0x9000_0000), (0x1C, 0x2000)];
    for (offset, value) in writes {
        assert!(function.write(Reg::at(offset), value, ALL).decode || value == 0);
    }
    assert_eq!(function.bar_of(Hpa(0x9000_0000)), None, "not enabled");
    assert_eq!(function.io_bar_of(0x2000), None, "not enabled");
    assert!(function.write(Reg::at(regs::COMMAND), 0x1, ALL).decode);
    assert!(function.write(Reg::at(regs::COMMAND), 0x3, ALL).decode);
    #[rustfmt::skip] // columns: address, memory, I/O
    let cases = [
        (0x8FFF_FFFF,    None,                   None),
        (0x9000_0000,    Some((2, 0)),           None),
        (0x9000_FFFF,    Some((2, 0xFFFF)),      None),
        (0x9001_0000,    None,                   None),
        (0xF_FFFF_FFFF,  None,                   None),
        (0x10_0000_0000, Some((0, 0)),           None),
        (0x11_FFFF_FFFF, Some((0, 0x1_FFFF_FFFF)), None),
        (0x12_0000_0000, None,                   None),
        (0x201F,         None,                   Some((3, 0x1F))),
        (0x2020,         None,                   None),
        (0x0,            None,                   None),
        (0xFFF,          None,                   None),
    ];
    for (address, memory, io) in cases {
        assert_eq!(function.bar_of(Hpa(address)), memory, "{address:#x}");
        if let Ok(port) = u32::try_from(address) {
            assert_eq!(function.io_bar_of(port), io, "{port:#x}");
        }
    }
    function.write(Reg::at(0x18), u32::MAX, ALL);
    assert_eq!(function.bar_of(Hpa(0xFFFF_0000)), None, "while it is sized");
}

//= PCIe 5.0 section 6.21: line size and limit are set while the LNR is off, or as it goes on
#[test]
fn lnr_line_and_limit_stand_while_it_is_on() {
    let mut function = Function::new(&spec()).unwrap();
    let at = ext_cap(&function, ext::LNR);
    assert_eq!(function.read(Reg::at(at)) & 0xF_FFFF, 0x1_001C);
    assert_eq!(
        function.read(Reg::at(at + 4)),
        0x1300_1303,
        "docs/spec/wire-formats.md §3.3, both sizes"
    );
    #[rustfmt::skip] // columns: name, control, bytes, on, line, limit, changed
    let cases = [
        ("limit alone",              0x0400, 0b1100, false, 64,  16,      true),
        ("on, with line and limit",  0x0503, 0b1100, true,  128, 32,      true),
        ("on: neither may change",   0x0801, 0b1100, true,  128, 32,      false),
        ("off: still not in one",    0x0800, 0b1100, false, 128, 32,      true),
        ("limit's byte only",       0x1F01, 0b1000, false, 128, 1 << 19, true),
        ("again the same",           0x1F02, 0b1100, false, 128, 1 << 19, false),
        ("on, by its byte",         0x0001, 0b0100, true,  64,  1 << 19, true),
    ];
    for (name, control, bytes, enabled, line, limit, changed) in cases {
        let enables = ByteEnables::from_low_bits(bytes);
        let effects = function.write(Reg::at(at + 4), control << 16, enables);
        assert_eq!(function.lnr_control(), Some(LnrControl { enabled, line, limit }), "{name}");
        assert_eq!(effects.lnr, changed, "{name}");
    }
    function.reset();
    let want = LnrControl { enabled: false, line: 64, limit: 1 << 19 };
    assert_eq!(function.lnr_control(), Some(want), "after a reset");
    function.write(Reg::at(at + 4), 0x0002_0000, ByteEnables::from_low_bits(0b0100));
    assert_eq!(function.lnr_control().unwrap().line, 128, "and it may be set again");

    let only = LnrSpec { cls64: false, cls128: true, registrations: 3 };
    let mut function = Function::new(&FunctionSpec { lnr: Some(only), ..spec() }).unwrap();
    function.write(Reg::at(at + 4), 0, ALL);
    let want = LnrControl { enabled: false, line: 128, limit: 1 };
    assert_eq!(function.lnr_control(), Some(want), "the only size stays");
}

#[test]
fn flr_forgets_all_but_the_link() {
    let mut function = Function::new(&spec()).unwrap();
    let fresh = function.clone();
    assert!(function.write(Reg::at(regs::COMMAND), 0x6, ALL).master);
    function.write(Reg::at(0x18), 0x9000_0000, ALL);
    assert!(function.is_master() && function != fresh);
    let effects = function.write(Reg::at(0x40 + 8), 0x8000, ByteEnables::from_low_bits(0b0010));
    assert!(effects.reset && effects.decode && effects.lnr);
    assert_eq!(function, fresh);
    let quiet = function.write(Reg::at(0x40 + 8), 0x8000, ByteEnables::from_low_bits(0b0001));
    assert_eq!(quiet, FunctionEffects::default(), "the byte with FLR was not enabled");
}

#[test]
fn what_cannot_be_is_refused() {
    let bar = |kind, size| Some(BarSpec { kind, size });
    let (mem64, io) = (BarKind::Mem64 { prefetch: true }, BarKind::Io);
    let mem32 = BarKind::Mem32 { prefetch: false };
    #[rustfmt::skip] // columns: name, BARs, error
    let cases = [
        ("upper half taken", [bar(mem64, 64), bar(io, 4), None, None, None, None], FunctionError::BarUpper { bar: 0 }),
        ("no upper half",    [None, None, None, None, None, bar(mem64, 64)],       FunctionError::BarUpper { bar: 5 }),
        ("not a power",      [bar(mem32, 48), None, None, None, None, None],       FunctionError::BarSize { bar: 0, size: 48 }),
        ("nothing",          [bar(mem32, 0), None, None, None, None, None],        FunctionError::BarSize { bar: 0, size: 0 }),
        ("too much",         [bar(mem32, 4 << 30), None, None, None, None, None],  FunctionError::BarSize { bar: 0, size: 4 << 30 }),
        ("too many ports",   [None, bar(io, 512), None, None, None, None],         FunctionError::BarSize { bar: 1, size: 512 }),
    ];
    for (name, bars, want) in cases {
        assert_eq!(Function::new(&FunctionSpec { bars, ..spec() }), Err(want), "{name}");
    }
    for (cls64, registrations) in [(false, 3), (true, 32)] {
        let lnr = Some(LnrSpec { cls64, cls128: false, registrations });
        assert_eq!(Function::new(&FunctionSpec { lnr, ..spec() }), Err(FunctionError::Lnr));
    }
    let blocks = vec![RegisterBlock { bar: 0, id: 1, offset: 0 }; 500];
    let full = Function::new(&FunctionSpec { blocks, ..spec() });
    assert!(matches!(full, Err(FunctionError::Space(SpaceError::Full { id: 0x23, .. }))));
}

/// Against a copy taken at power-on: no write, of any bytes, changes a read-only bit.
#[test]
fn random_writes_leave_read_only_bits() {
    let mut rng = Rng::new(0xF0_0C);
    let mut function = Function::new(&spec()).unwrap();
    let fresh = function.clone();
    for round in 0..100_000 {
        let mut draw = |bound: u64| u32::try_from(rng.below(bound)).unwrap();
        let reg = Reg::new(u16::try_from(draw(if round & 1 == 0 { 0x80 } else { 1024 })).unwrap());
        let enables = ByteEnables::from_low_bits(draw(16).to_le_bytes()[0]);
        function.write(reg, draw(1 << 32), enables);
        let fixed = fresh.space().read_only(reg);
        assert_eq!(function.read(reg) & fixed, fresh.read(reg) & fixed, "{reg:?}");
    }
}
