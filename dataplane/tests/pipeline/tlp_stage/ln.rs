//! Lightweight Notification through the stage: LN between the ends of a virtual link, and what may come from below.
//!
//! The switch of [`super`], whose virtual switch of the old kind has its host behind the fabric port.
//!
//! Units: bytes.
//! Source: docs/spec/wire-formats.md §3.3, §3.7a; PCIe 5.0 section 6.21; PCIe 6.0 section 6.12.1.1.

use super::*;

const NEAR: u16 = 0x0A3;
const FAR: u16 = 0x0D5;

/// The device of the old kind is bound to a host behind the fabric port.
fn rig() -> Rig {
    let rig = Rig::new();
    let core = rig.lane.core().clone();
    let mut tables = (**core.tables.load()).clone();
    let binding = Binding::Fabric { spid: pid(NEAR), dpid: pid(FAR) };
    let up = Vppb { binding, ..*old_vcs().upstream() };
    tables.set_vcs(1, Some(Vcs::new(up, None, old_vcs().below()).unwrap())).unwrap();
    tables.assign(pid(NEAR), Assigned::Port(id(OLD_DEVICE))).unwrap();
    tables.set_drt(usize::from(NEAR), &[DrtEntry::Port(7)]).unwrap();
    tables.set_drt(usize::from(FAR), &[DrtEntry::Port(3)]).unwrap();
    tables.set_drt(0x0E1, &[DrtEntry::Port(6)]).unwrap();
    core.tables.store(Arc::new(tables));
    rig
}

fn hie(spid: u16, dpid: u16, dsar: bool) -> [u8; 4] {
    Pth { hie: true, dsar, ..pth(spid, dpid) }.emit()
}

/// A read, a probe, a write and their completions keep LN in the flag, and only where it was set.
#[test]
fn a_virtual_link_carries_ln_as_a_flag() {
    #[rustfmt::skip] // columns: name, as the device sends it, in flit mode
    let requests = [
        ("LN Read",  "00 02 00 10 03 00 21 FF 10 00 00 00", "03 00 00 10 03 00 00 21 10 00 00 00"),
        ("read",     "00 00 00 10 03 00 21 FF 10 00 00 00", "03 00 00 10 03 00 00 21 10 00 00 00"),
        ("LN Write", "40 02 00 01 03 00 00 0F 10 00 00 00 01 02 03 04", "40 00 00 01 03 00 00 00 10 00 00 00 01 02 03 04"),
        ("write",    "40 00 00 01 03 00 00 0F 10 00 00 00 01 02 03 04", "40 00 00 01 03 00 00 00 10 00 00 00 01 02 03 04"),
    ];
    let mut rig = rig();
    for (name, sent, flit) in requests {
        let out = rig.frame(OLD_DEVICE, &from_partner(OLD_DEVICE, 3, &hex(sent)));
        let want = [&hie(NEAR, FAR, false)[..], &hex(flit)].concat();
        let mut want = wire(MacAddr::BROADCAST, mac(FABRIC), 1, &want);
        want[19] |= u8::from(name.starts_with("LN"));
        assert_eq!(out, [(FABRIC, want)], "{name}");
    }
    // Data of 4 bytes by 00:00.0 for tag 21h of 03:00.0.
    let flit = hex("4A 00 00 01 00 00 00 21 03 00 00 04 01 02 03 04");
    for (flags, want) in [(0_u8, 0_u8), (1, 2), (0xE, 0), (0xF, 2)] {
        let back = [&hie(FAR, NEAR, true)[..], &flit].concat();
        let mut frame = from_partner(FABRIC, 1, &back);
        frame[19] |= flags;
        let out = rig.frame(FABRIC, &frame);
        let (at, came) = out.first().unwrap();
        assert_eq!(
            (*at, came[18], came[20], came[21] & 2),
            (OLD_DEVICE, 3, 0x4A, want),
            "{flags:#x}"
        );
    }
    // From edge to edge there is no such thing, nor on a configuration request.
    let across = [&pth(FAR_HOST, 0x0E1).emit()[..], &flit].concat();
    let mut frame = from_partner(FABRIC, 1, &across);
    frame[19] |= 1;
    let out = rig.frame(FABRIC, &frame);
    assert_eq!((out[0].0, out[0].1[20], out[0].1[21] & 2), (OLD_HOST, 0x4A, 0));
    let config = hex("05 01 00 01 00 00 00 02 03 00 00 00 00 00 00 0F");
    let mut frame = from_partner(FABRIC, 1, &[&hie(FAR, NEAR, true)[..], &config].concat());
    frame[19] |= 1;
    let out = rig.frame(FABRIC, &frame);
    assert_eq!((out[0].0, out[0].1[20], out[0].1[21] & 2), (OLD_DEVICE, 4, 0));
}

/// An LN request in the name of a function that is not below the port is refused, and so is an LN Message from below;
/// without LN, and from above, they pass.
#[test]
fn nobody_registers_for_another_and_messages_come_from_above() {
    let mut rig = Rig::new();
    let read = |ln: u8, bus: u8| {
        let mut read = hex("00 00 00 10 03 00 21 FF 10 00 00 00");
        (read[1], read[4]) = (ln << 1, bus);
        from_partner(OLD_DEVICE, 3, &read)
    };
    for (ln, bus, refused) in [(1, 3, 0), (0, 9, 0), (1, 9, 1), (1, 2, 2), (1, 0, 3)] {
        let out = rig.frame(OLD_DEVICE, &read(ln, bus));
        let to = if refused == 0 { OLD_HOST } else { OLD_DEVICE };
        assert_eq!(out.iter().map(|(at, _)| *at).collect::<Vec<_>>(), [to], "{ln} {bus}");
        assert_eq!(rig.refused(OLD_DEVICE, Refusal::LnForeignId), refused, "{ln} {bus}");
    }
    let message = |byte: u8| {
        let head = format!("{byte:02X} 00 00 02 00 00 00 7F 03 00 00 01 00 00 00 00");
        [hex(&head), hex("00 00 00 00 10 00 00 00")].concat()
    };
    for (number, byte) in [(1, 0x72), (2, 0x73)] {
        let out = rig.frame(OLD_DEVICE, &from_partner(OLD_DEVICE, 3, &message(byte)));
        assert_eq!((out.len(), rig.refused(OLD_DEVICE, Refusal::MessageDirection)), (0, number));
    }
    let out = rig.frame(OLD_HOST, &from_partner(OLD_HOST, 3, &message(0x72)));
    let want = wire(MacAddr::BROADCAST, mac(OLD_DEVICE), 3, &message(0x72));
    assert_eq!(out.first().map(|(at, _)| *at), Some(OLD_DEVICE));
    assert_eq!(out[0].1[12..], want[12..]);
}
