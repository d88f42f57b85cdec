use weft_base::rng::Rng;
use weft_parsers::fabric::Hpa;

use super::*;

const ALL: ByteEnables = ByteEnables::ALL;

fn spec(kind: PortKind) -> BridgeSpec {
    let completes = SlotSpec { number: 5, completes: true, power: true, surprise: false };
    BridgeSpec {
        identity: Identity { vendor: 0x1E98, device: 0x5000, ..Identity::default() },
        kind,
        port: 2,
        link: Link::default(),
        slot: kind.is_above_link().then_some(completes),
        serial: None,
        multi_function: false,
        ln: LnSystem::None,
    }
}

fn bridge(kind: PortKind) -> Bridge {
    Bridge::new(&spec(kind)).unwrap()
}

/// Offset of a register of the PCI Express capability, the first one.
const fn express_at(register: u16) -> u16 {
    0x40 + register
}

fn write16(bridge: &mut Bridge, offset: u16, value: u16) -> BridgeEffects {
    let shifted = u32::from(value) << (8 * (offset & 2));
    bridge.write(Reg::at(offset), shifted, ByteEnables::of(offset, 2))
}

#[test]
fn a_bridge_is_a_port_with_a_type_1_header() {
    for kind in [PortKind::Root, PortKind::Upstream, PortKind::Downstream] {
        let bridge = bridge(kind);
        assert_eq!(bridge.read(Reg::at(0x08)), 0x0604_0000, "{kind:?}");
        assert_eq!(bridge.read(Reg::at(0x0C)), 0x0001_0000, "{kind:?}");
        assert_eq!(bridge.buses(), Buses::default(), "{kind:?}");
        assert_eq!(bridge.windows(), Windows::default(), "{kind:?}");
    }
    let endpoint = BridgeSpec { kind: PortKind::Endpoint, ..spec(PortKind::Root) };
    let slot_above = BridgeSpec { kind: PortKind::Upstream, ..spec(PortKind::Root) };
    for wrong in [endpoint, slot_above] {
        assert_eq!(Bridge::new(&wrong), Err(BridgeError::Kind));
    }
}

//= PCIe 6.0 section 2.2.4.1: downstream what base and limit include
#[test]
fn windows_are_what_software_writes() {
    #[rustfmt::skip] // columns: name, writes, I/O, memory, prefetchable
    let cases = [
        ("as at power-on: from 0",  vec![],
            Some((0, 0xFFF)), Some((0, 0xF_FFFF)), Some((0, 0xF_FFFF))),
        ("closed",                  vec![(0x1C, 0x00F0), (0x20, 0x0000_FFF0), (0x24, 0x0000_FFF0)],
            None, None, None),
        ("one step each",           vec![(0x1C, 0x2020), (0x20, 0x9000_9000), (0x24, 0xA010_A010)],
            Some((0x2000, 0x2FFF)), Some((0x9000_0000, 0x900F_FFFF)), Some((0xA010_0000, 0xA01F_FFFF))),
        ("upper halves",            vec![(0x1C, 0x2010), (0x30, 0x0002_0001), (0x24, 0x0000_8000), (0x28, 0x10), (0x2C, 0x12)],
            Some((0x1_1000, 0x2_2FFF)), Some((0, 0xF_FFFF)), Some((0x10_8000_0000, 0x12_000F_FFFF))),
        ("limit's upper is lower",  vec![(0x28, 2), (0x2C, 1)],
            Some((0, 0xFFF)), Some((0, 0xF_FFFF)), None),
        ("low bits are not kept",   vec![(0x1C, 0xFFFF_3F3F), (0x20, 0x900F_900F)],
            Some((0x3000, 0x3FFF)), Some((0x9000_0000, 0x900F_FFFF)), Some((0, 0xF_FFFF))),
    ];
    for (name, writes, io, mem, pref) in cases {
        let mut bridge = bridge(PortKind::Downstream);
        for (offset, value) in writes {
            assert!(bridge.write(Reg::at(offset), value, ALL).windows, "{name}: {offset:#x}");
        }
        assert_eq!(bridge.windows(), Windows::default(), "{name}: not enabled");
        assert!(bridge.write(Reg::at(regs::COMMAND), 3, ALL).windows, "{name}");
        let [io, mem, pref] =
            [io, mem, pref].map(|window| window.map(|(base, limit)| Window { base, limit }));
        assert_eq!(bridge.windows(), Windows { io, mem, pref }, "{name}");
    }
}

#[test]
fn addresses_are_claimed_to_the_last_byte() {
    let mut bridge = bridge(PortKind::Upstream);
    for (offset, value) in
        [(0x1C, 0x2020), (0x20, 0x9000_9000), (0x24, 0x0010_0010), (0x28, 1), (0x2C, 1), (4, 3)]
    {
        bridge.write(Reg::at(offset), value, ALL);
    }
    let windows = bridge.windows();
    #[rustfmt::skip] // columns: address, memory, I/O
    let cases = [
        (0x1FFF, false, false), (0x2000, false, true), (0x2FFF, false, true), (0x3000, false, false),
        (0x8FFF_FFFF, false, false), (0x9000_0000, true, false),
        (0x900F_FFFF, true, false), (0x9010_0000, false, false),
        (0x1_000F_FFFF, false, false), (0x1_0010_0000, true, false), (0x1_001F_FFFF, true, false),
    ];
    for (address, memory, io) in cases {
        assert_eq!(windows.claim_memory(Hpa(address)), memory, "{address:#x}");
        assert_eq!(
            u32::try_from(address).is_ok_and(|port| windows.claim_io(port)),
            io,
            "{address:#x}"
        );
    }
}

//= PCIe 6.0 section 2.2.4.2: the secondary bus by type 0, buses up to the subordinate unchanged
#[test]
fn buses_lie_below_or_elsewhere() {
    let mut bridge = bridge(PortKind::Downstream);
    assert_eq!(bridge.bus_route(0), BusRoute::Elsewhere, "no bus numbers yet");
    let effects = bridge.write(Reg::at(regs::BUSES), 0xFF05_0301, ALL);
    assert!(effects.buses && !effects.windows);
    assert!(!bridge.write(Reg::at(regs::BUSES), 0x0005_0301, ALL).buses, "the same again");
    assert_eq!(bridge.read(Reg::at(regs::BUSES)), 0x0005_0301, "no latency timer");
    for (bus, want) in [
        (0, BusRoute::Elsewhere),
        (1, BusRoute::Elsewhere),
        (2, BusRoute::Elsewhere),
        (3, BusRoute::Secondary),
        (4, BusRoute::Below),
        (5, BusRoute::Below),
        (6, BusRoute::Elsewhere),
        (255, BusRoute::Elsewhere),
    ] {
        assert_eq!(bridge.bus_route(bus), want, "{bus}");
    }
}

#[test]
fn writes_say_what_they_did() {
    let none = BridgeEffects::default();
    let link_control = express_at(express_regs::LINK_CTL);
    let slot_control = express_at(express_regs::SLOT_CTL);
    #[rustfmt::skip] // columns: name, offset, value, effects; one after the other
    let cases = [
        ("bus master",       regs::COMMAND,        0x0004, BridgeEffects { master: true, ..none }),
        ("and memory",       regs::COMMAND,        0x0006, BridgeEffects { windows: true, ..none }),
        ("nothing new",      regs::COMMAND,        0x0006, none),
        ("reset",            regs::BRIDGE_CONTROL, 0x0040, BridgeEffects { reset: Some(true), ..none }),
        ("SERR beside",      regs::BRIDGE_CONTROL, 0x0042, none),
        ("reset ends",       regs::BRIDGE_CONTROL, 0x0002, BridgeEffects { reset: Some(false), ..none }),
        ("link off",         link_control,         0x0010, BridgeEffects { link_disabled: Some(true), ..none }),
        ("link on",          link_control,         0x0000, BridgeEffects { link_disabled: Some(false), ..none }),
        ("retrain is done",  link_control,         0x0020, none),
        ("power off",        slot_control,         0x0400, BridgeEffects { power: Some(false), ..none }),
        ("power on",         slot_control,         0x0000, BridgeEffects { power: Some(true), ..none }),
        ("hot plug",         slot_control,         0x0020, BridgeEffects { hot_plug: Some(true), ..none }),
        ("and completions",  slot_control,         0x0030, BridgeEffects { interrupt: true, ..none }),
        ("one message only", slot_control,         0x0030, none),
        ("a window",         regs::MEM_WINDOW,     0x1000, BridgeEffects { windows: true, ..none }),
        ("secondary status", regs::SECONDARY_STATUS, 0xFFFF, none),
    ];
    let mut bridge = bridge(PortKind::Downstream);
    for (name, offset, value, want) in cases {
        assert_eq!(write16(&mut bridge, offset, value), want, "{name}");
    }
}

/// State of link and slot, and events, as slot and link status show them.
fn shown(bridge: &Bridge) -> (bool, u16) {
    let active = bridge.space().get16(express_at(express_regs::LINK_STA)) & 0x2000 != 0;
    (active, bridge.space().get16(express_at(express_regs::SLOT_STA)))
}

#[test]
fn hot_plug_is_seen_and_interrupts_once() {
    let mut bridge = bridge(PortKind::Downstream);
    write16(&mut bridge, express_at(express_regs::SLOT_CTL), 0x1028);
    write16(&mut bridge, express_at(express_regs::SLOT_STA), 0x0010);
    assert_eq!(shown(&bridge), (false, 0));
    assert!(bridge.set_present(true).interrupt);
    assert_eq!(shown(&bridge), (false, 0x0048));
    assert!(!bridge.set_link(Some(Link::default())).interrupt, "one is on its way");
    assert_eq!(shown(&bridge), (true, 0x0148));
    write16(&mut bridge, express_at(express_regs::SLOT_STA), 0x0008);
    assert_eq!(shown(&bridge), (true, 0x0140), "the other event is left");
    write16(&mut bridge, express_at(express_regs::SLOT_STA), 0x0100);
    assert_eq!(shown(&bridge), (true, 0x0040));
    assert!(!bridge.set_present(true).interrupt, "nothing changed");
    let slower = Link { speed: 4, width: 4 };
    assert_eq!(bridge.set_link(Some(slower)), BridgeEffects::default(), "it stays up");
    assert!(bridge.set_link(None).interrupt);
    assert!(!bridge.set_present(false).interrupt);
    assert_eq!((shown(&bridge), bridge.errors()), ((false, 0x0108), 0));
    bridge.reset();
    assert_eq!(shown(&bridge), (false, 0));
}

//= CXL 3.1 section 7.7.6.1: loss of any link under a virtual link is a surprise link down
#[test]
fn a_lost_link_is_an_error_unless_software_asked_for_it() {
    let reset = (regs::BRIDGE_CONTROL, 0x0040);
    let disable = (express_at(express_regs::LINK_CTL), 0x0010);
    let enable = (express_at(express_regs::DEV_CTL), 0x0004);
    let fatal = Some(ErrorMessage::Fatal);
    #[rustfmt::skip] // columns: name, surprise allowed, link up, write, error, message
    let cases = [
        ("plain",             false, true,  enable,  true,  fatal),
        ("not told",          false, true,  (0, 0),  true,  None),
        ("was down",          false, false, enable,  false, None),
        ("reset",             false, true,  reset,   false, None),
        ("disabled",          false, true,  disable, false, None),
        ("surprise is usual", true,  true,  enable,  false, None),
    ];
    for (name, surprise, up, (offset, value), error, message) in cases {
        let slot = Some(SlotSpec { surprise, ..SlotSpec::default() });
        let mut bridge = Bridge::new(&BridgeSpec { slot, ..spec(PortKind::Downstream) }).unwrap();
        bridge.set_present(true);
        bridge.set_link(up.then(Link::default));
        write16(&mut bridge, offset, value);
        assert_eq!(bridge.lose_link().message, message, "{name}");
        let want = if error { Uncorrectable::SurpriseDown.bit() } else { 0 };
        assert_eq!((bridge.errors(), bridge.link()), (want, None), "{name}");
    }
}

#[test]
fn a_root_port_notes_who_complained() {
    let mut bridge = bridge(PortKind::Root);
    let at = bridge.aer.at;
    bridge.write(Reg::at(at + aer_regs::ROOT_COMMAND), 0b100, ALL);
    #[rustfmt::skip] // columns: source, message, interrupt, status, sources; one after the other
    let cases = [
        (0x0100, ErrorMessage::Correctable, false, 0b000_0001, 0x0000_0100),
        (0x0200, ErrorMessage::Correctable, false, 0b000_0011, 0x0000_0100),
        (0x0300, ErrorMessage::Fatal,       true,  0b101_0111, 0x0300_0100),
        (0x0400, ErrorMessage::NonFatal,    false, 0b111_1111, 0x0300_0100),
    ];
    for (source, message, interrupt, status, sources) in cases {
        assert_eq!(bridge.receive_error(Bdf::from_bits(source), message), interrupt);
        assert_eq!(bridge.read(Reg::at(at + aer_regs::ROOT_STATUS)), status, "{message:?}");
        assert_eq!(bridge.read(Reg::at(at + aer_regs::SOURCE)), sources, "{message:?}");
    }
    assert!(!self::bridge(PortKind::Upstream).receive_error(Bdf::default(), ErrorMessage::Fatal));
}

/// No write, of any bytes, changes a read-only bit; and effects report exactly the changes.
#[test]
fn random_writes_leave_read_only_bits() {
    let mut rng = Rng::new(0xB1D6E);
    for kind in [PortKind::Root, PortKind::Upstream, PortKind::Downstream] {
        let mut bridge = bridge(kind);
        bridge.set_link(Some(Link::default()));
        let fresh = bridge.clone();
        for round in 0..50_000 {
            let mut draw = |bound: u64| u32::try_from(rng.below(bound)).unwrap();
            let bound = if round & 1 == 0 { 0x80 } else { 1024 };
            let reg = Reg::new(u16::try_from(draw(bound)).unwrap());
            let enables = ByteEnables::from_low_bits(draw(16).to_le_bytes()[0]);
            let before = bridge.clone();
            let effects = bridge.write(reg, draw(1 << 32), enables);
            let fixed = fresh.space().read_only(reg);
            assert_eq!(bridge.read(reg) & fixed, fresh.read(reg) & fixed, "{kind:?} {reg:?}");
            assert!(effects.buses || before.buses() == bridge.buses(), "{kind:?} {reg:?}");
            assert!(effects.windows || before.windows() == bridge.windows(), "{kind:?} {reg:?}");
            let toggled = before.is_resetting() != bridge.is_resetting();
            assert_eq!(effects.reset, toggled.then(|| bridge.is_resetting()), "{kind:?} {reg:?}");
        }
    }
}
