//! The worked byte strings.

use super::*;

const READ: &str = "20 02 00 10 01 00 21 FF 00 00 00 01 23 45 67 80";
const UIO_READ: &str = "22 00 00 10 01 00 00 05 00 00 01 23 45 67 BA 40";

#[test]
fn every_worked_tlp_both_ways() {
    #[rustfmt::skip] // columns: name, mode, bytes, zeros behind them
    let cases = [
        ("LN read",            NonFlit, READ, 0),
        ("LN probe",           NonFlit, "20 02 00 01 01 00 22 00 00 00 00 01 23 45 67 80", 0),
        ("LN deregister",      NonFlit, "60 02 00 01 01 00 00 00 00 00 00 01 23 45 67 80", 4),
        ("LN CplD",            NonFlit, "4A 02 00 10 00 00 00 40 01 00 21 00", 64),
        ("directed message",   NonFlit, "72 00 00 02 00 00 00 7F 01 00 00 01 00 00 00 01 00 00 00 01 23 45 67 80", 0),
        ("broadcast message",  NonFlit, "73 00 00 02 00 00 00 7F 00 00 00 01 00 00 00 00 00 00 00 01 23 45 67 80", 0),
        ("CfgRd1",             NonFlit, "05 00 00 01 00 00 01 0F 02 00 00 00", 0),
        ("CfgRd0",             NonFlit, "04 00 00 01 00 00 01 0F 02 00 00 00", 0),
        ("UR completion",      NonFlit, "0A 00 00 00 00 00 20 40 01 00 21 00", 0),
        ("LD 3 in front",      NonFlit, "8E 00 03 00 05 00 00 01 00 00 01 0F 02 00 00 00", 0),
        ("FMLD in front",      Flit,    "8E FF FF 00 03 00 00 01 00 00 00 00 00 00 00 00", 0),
        ("PID 0A1 in front",   Flit,    "8E 0A 10 00 22 00 00 02 00 00 00 00 00 00 00 00 00 00 00 00", 0),
        ("MRd32 with PASID",   Flit,    "03 01 00 01 00 00 00 00 00 00 00 00 41 23 45 0F", 0),
        ("UIOMRd 2 DW",        Flit,    "22 00 00 02", 12),
        ("UIOMWr 2 DW",        Flit,    "61 00 00 02", 20),
        ("UIOMRd 64 B",        Flit,    UIO_READ, 0),
        ("CfgRd0 flit",        Flit,    "04 01 00 01 00 00 00 01 02 00 00 00 00 00 00 0F", 0),
        ("UIORdCplD",          Flit,    "48 00 00 10 00 00 00 05 01 00 00 00", 64),
        ("NOP",                Flit,    "00 00 00 00", 0),
    ];
    for (name, mode, text, zeros) in cases {
        both_ways(name, mode, &hex_and_zeros(text, zeros));
    }
}

/// Byte 0 of each TLP of the two tables, as docs/spec/wire-formats.md §3.1 and §3.5 list them.
#[test]
fn first_bytes_are_those_of_the_tables() {
    let msg = |routing, data| Kind::Message { routing, data };
    let cpl = |locked, data| Kind::Completion { locked, data };
    #[rustfmt::skip] // columns: kind, non-flit 32 and 64 bits, flit 32 and 64 bits
    let cases = [
        (Kind::MemRead,            Some((0x00, 0x20)), (0x03, 0x20)),
        (Kind::MemReadLocked,      Some((0x01, 0x21)), (0x01, 0x21)),
        (Kind::MemWrite,           Some((0x40, 0x60)), (0x40, 0x60)),
        (Kind::DeferrableMemWrite, Some((0x5B, 0x7B)), (0x5B, 0x7B)),
        (Kind::FetchAdd,           Some((0x4C, 0x6C)), (0x4C, 0x6C)),
        (Kind::Swap,               Some((0x4D, 0x6D)), (0x4D, 0x6D)),
        (Kind::Cas,                Some((0x4E, 0x6E)), (0x4E, 0x6E)),
        (Kind::IoRead,             Some((0x02, 0x02)), (0x02, 0x02)),
        (Kind::IoWrite,            Some((0x42, 0x42)), (0x42, 0x42)),
        (Kind::CfgRead  { type1: false }, Some((0x04, 0x04)), (0x04, 0x04)),
        (Kind::CfgRead  { type1: true },  Some((0x05, 0x05)), (0x05, 0x05)),
        (Kind::CfgWrite { type1: false }, Some((0x44, 0x44)), (0x44, 0x44)),
        (Kind::CfgWrite { type1: true },  Some((0x45, 0x45)), (0x45, 0x45)),
        (cpl(false, false),        Some((0x0A, 0x0A)), (0x0A, 0x0A)),
        (cpl(true, false),         Some((0x0B, 0x0B)), (0x0B, 0x0B)),
        (cpl(false, true),         Some((0x4A, 0x4A)), (0x4A, 0x4A)),
        (cpl(true, true),          Some((0x4B, 0x4B)), (0x4B, 0x4B)),
        (msg(Routing::ToRoot, false),   Some((0x30, 0x30)), (0x30, 0x30)),
        (msg(Routing::Address, false),  Some((0x31, 0x31)), (0x31, 0x31)),
        (msg(Routing::Id, true),        Some((0x72, 0x72)), (0x72, 0x72)),
        (msg(Routing::Broadcast, true), Some((0x73, 0x73)), (0x73, 0x73)),
        (msg(Routing::Local, false),    Some((0x34, 0x34)), (0x34, 0x34)),
        (msg(Routing::Gather, true),    Some((0x75, 0x75)), (0x75, 0x75)),
        (Kind::Nop,                None, (0x00, 0x00)),
        (Kind::UioRead,            None, (0x22, 0x22)),
        (Kind::UioWrite,           None, (0x61, 0x61)),
        (Kind::UioReadCompletion { data: false }, None, (0x0D, 0x0D)),
        (Kind::UioReadCompletion { data: true },  None, (0x48, 0x48)),
        (Kind::UioWriteCompletion, None, (0x0C, 0x0C)),
    ];
    for (kind, non_flit, (narrow, wide)) in cases {
        let of = |mode| kind.byte(mode, false).zip(kind.byte(mode, true));
        assert_eq!(of(NonFlit), non_flit, "{kind:?}");
        assert_eq!(of(Flit), Some((narrow, wide)), "{kind:?}");
        assert_eq!(Kind::decode(Flit, wide).map(|(kind, _)| kind), Some(kind));
        if let Some((narrow, _)) = non_flit {
            assert_eq!(Kind::decode(NonFlit, narrow).map(|(kind, _)| kind), Some(kind));
        }
    }
}

#[test]
fn getters_read_what_the_examples_say() {
    let bytes = hex(READ);
    let tlp = Tlp::parse(NonFlit, &bytes).unwrap();
    let addr = Hpa(0x1_2345_6780);
    let route = Route::Address { space: AddressSpace::Memory, addr, wide: true };
    assert_eq!((tlp.kind(), tlp.ln(), tlp.route()), (Kind::MemRead, true, route));
    assert_eq!((tlp.requester(), tlp.tag(), tlp.length_dw()), (Bdf::new(1, 0, 0), 0x21, 16));
    assert_eq!((tlp.first_be(), tlp.last_be(), tlp.data_len()), (0xF, 0xF, 0));
    assert!(tlp.is_non_posted() && tlp.wants_completion() && !tlp.is_posted() && !tlp.is_uio());

    let bytes = hex("03 01 00 01 00 00 00 00 00 00 00 00 41 23 45 0F");
    let tlp = Tlp::parse(Flit, &bytes).unwrap();
    assert_eq!(tlp.pasid(), Some(Pasid { pasid: 0x1_2345, ..Pasid::default() }));

    let bytes = hex("04 01 00 01 00 00 00 01 02 00 00 00 00 00 00 0F");
    let tlp = Tlp::parse(Flit, &bytes).unwrap();
    assert_eq!((tlp.route(), tlp.register()), (Route::Id(Bdf::new(2, 0, 0)), Some(0)));
    assert_eq!((tlp.tag(), tlp.first_be()), (1, 0xF));

    let bytes = hex_and_zeros("48 00 00 10 00 00 00 05 01 00 00 00", 64);
    let tlp = Tlp::parse(Flit, &bytes).unwrap();
    assert_eq!(tlp.uio_completion(), Some((DevLoad::Light, 0)));
    assert_eq!((tlp.requester(), tlp.status()), (Bdf::new(1, 0, 0), Some(Status::Success)));
    assert!(tlp.is_uio() && tlp.is_completion() && tlp.payload().len() == 64);
}

#[test]
fn prefixes_have_two_readings() {
    #[rustfmt::skip] // columns: bytes, LD-ID, PID
    let cases = [
        ([0x8E, 0x00, 0x03, 0x00], 3, 0x000),
        ([0x8E, 0xFF, 0xFF, 0x00], VendPrefixL0::LD_FM_OWNED, 0xFFF),
        ([0x8E, 0x0A, 0x10, 0x00], 0x0A10, 0x0A1),
    ];
    for (bytes, ld_id, pid) in cases {
        let prefix = VendPrefixL0::from_bytes([bytes[1], bytes[2], bytes[3]]);
        assert_eq!((prefix.ld_id(), prefix.pid()), (ld_id, Pid::from_low_bits(pid)));
        assert_eq!((prefix.emit(), VendPrefixL0::from_ld_id(ld_id)), (bytes, prefix));
    }
    let pid = Pid::from_low_bits(0x0A1);
    assert_eq!(VendPrefixL0::from_pid(pid).emit(), [0x8E, 0x0A, 0x10, 0x00]);
}

#[test]
fn the_worked_read_gets_the_worked_ur() {
    let bytes = hex(READ);
    let read = Tlp::parse(NonFlit, &bytes).unwrap();
    let ur = Completion::of(&read, Status::UnsupportedRequest, Bdf::default()).unwrap();
    let mut out = [0; 64];
    let len = ur.emit(&mut out).unwrap();
    assert_eq!(out[..len], *hex("0A 00 00 00 00 00 20 40 01 00 21 00"));

    let bytes = hex(UIO_READ);
    let read = Tlp::parse(Flit, &bytes).unwrap();
    let done = Completion::with_data(&read, Bdf::default(), 0, &[0; 64]).unwrap();
    let mut out = [0; 128];
    let len = done.emit(&mut out).unwrap();
    assert_eq!(out[..len], *hex_and_zeros("48 00 00 10 00 00 00 05 01 00 00 00", 64));
    let ur = Completion::of(&read, Status::UnsupportedRequest, Bdf::default()).unwrap();
    let len = ur.emit(&mut out).unwrap();
    assert_eq!(out[..len], *hex("0D 01 00 00 00 00 00 05 01 00 00 00 00 00 00 01"));
}

/// CXL 3.1 section 7.7.9: the answer goes to the segment that the request came from, and can be written.
#[test]
fn a_request_with_a_segment_gets_answers_to_it() {
    for bytes in ["03 00 00 10 01 00 00 07 10 00 00 00", UIO_READ] {
        let bytes = hex(bytes);
        let plain = Tlp::parse(Flit, &bytes).unwrap();
        let mut out = [0; 64];
        let asked = TlpRepr { requester_segment: Some(0x5A), ..plain.repr() };
        let len = asked.emit(&mut out).unwrap();
        let request = Tlp::parse(Flit, &out[..len]).unwrap();
        let ur = Completion::of(&request, Status::UnsupportedRequest, Bdf::default()).unwrap();
        let data = Completion::with_data(&request, Bdf::default(), 0, &[0; 8]).unwrap();
        for answer in [ur, data] {
            let mut out = [0; 64];
            let len = answer.emit(&mut out).unwrap();
            assert_eq!(Tlp::parse(Flit, &out[..len]).unwrap().dest_segment(), Some(0x5A));
        }
    }
}

#[test]
fn type1_becomes_type0_in_place() {
    let mut bytes = hex("05 00 00 01 00 00 01 0F 02 00 00 00");
    let len = bytes.len;
    type1_to_type0(NonFlit, &mut bytes.bytes[..len]).unwrap();
    assert_eq!(*bytes, *hex("04 00 00 01 00 00 01 0F 02 00 00 00"));
    let again = type1_to_type0(NonFlit, &mut bytes.bytes[..len]);
    let want = ParseError::Value { layer: Layer::Tlp, field: Field::TlpType, value: 4 };
    assert_eq!(again, Err(want), "type 0 does not cross a bridge");
}

#[test]
fn worked_pths_both_ways() {
    let (spid, dpid) = (Pid::from_low_bits(0x0A1), Pid::from_low_bits(0x123));
    let plain = Pth::new(spid, dpid);
    let cases = [
        ("C3 0A 11 23", Pth { pif: true, dsar: true, ..plain }),
        ("C4 0A 11 23", Pth { hie: true, ..plain }),
        ("C0 FF FF FF", Pth::new(Pid::NONE, Pid::NONE)),
    ];
    for (text, pth) in cases {
        assert_eq!(pth.emit(), *hex(text));
        assert_eq!(Pth::parse(&hex(text)).unwrap().0, pth);
    }
    let whole = hex("C1 0A 11 23 22 00 00 10 01 00 00 05 00 00 01 23 45 67 BA 40");
    let tlp = PbrTlp::parse(&whole).unwrap().unwrap();
    assert_eq!((tlp.pth(), tlp.len()), (Pth { pif: true, ..plain }, whole.len));
    let mut out = [0; 64];
    let len = pth::emit_pbr(tlp.pth(), &tlp.tlp().repr(), &mut out).unwrap();
    assert_eq!(out[..len], *whole);
}

/// §3.7a: from the EtherType on, padded to 60 bytes of frame.
#[test]
fn the_worked_frame_both_ways() {
    let head = hex("88 B7 02 57 46 00 01 10");
    let link = TlpLink { oui: Oui::DEFAULT, protocol: Protocol::Pbr, ln: false };
    let mut frame = [0; 48];
    assert_eq!(link.emit(&mut frame).unwrap().len(), 40);
    assert_eq!(frame[..8], *head);
    let tlp = hex("C1 0A 11 23 22 00 00 10 01 00 00 05 00 00 01 23 45 67 BA 40");
    frame[8..28].copy_from_slice(&tlp);
    let (found, rest) = TlpLink::parse(&frame, Oui::DEFAULT).unwrap();
    assert_eq!((found, rest.len()), (link, 40));
    assert_eq!(PbrTlp::parse(rest).unwrap().unwrap().len(), 20, "padding behind it is tolerated");
}
