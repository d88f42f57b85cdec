//! Malformed TLPs, rule by rule, and TLPs that are cut short at each length.

use super::*;

#[test]
fn every_rule_refuses_what_breaks_it() {
    use Field::{ByteEnables, Ohc, TlpAddress, TlpLength, TlpPrefixOrder, TlpType, Trailer};
    #[rustfmt::skip] // columns: name, mode, bytes, field, value
    let cases = [
        ("reserved type",             NonFlit, "1F 00 00 01 00 00 00 0F 00 00 00 00", TlpType, 0x1F),
        ("reserved Fmt",              NonFlit, "A0 00 00 01 00 00 00 0F 00 00 00 00", TlpType, 0xA0),
        ("reserved routing 6",        NonFlit, "36 00 00 00 00 00 00 00 00 00 00 00", TlpType, 0x36),
        ("IO with 64 bits",           NonFlit, "22 00 00 01 00 00 00 0F 00 00 00 00", TlpType, 0x22),
        ("UIO without flits",         NonFlit, "61 00 00 01 00 00 00 0F 00 00 00 00", TlpType, 0x61),
        ("reserved type of flits",    Flit,    "06 00 00 01 00 00 00 00 00 00 00 00", TlpType, 0x06),
        ("PASID prefix in flits",     Flit,    "91 00 00 00 03 00 00 01 00 00 00 00", TlpType, 0x91),
        ("reserved local prefix",     NonFlit, "81 00 00 00 00 00 00 01 00 00 00 0F", TlpType, 0x81),
        ("local behind end-end",      NonFlit, "91 00 00 00 8E 00 00 00 00 00 00 01", TlpPrefixOrder, 0x8E),
        ("two PASIDs",                NonFlit, "91 00 00 00 91 00 00 00 00 00 00 01", TlpPrefixOrder, 0x91),
        ("config of two DWs",         NonFlit, "04 00 00 02 00 00 00 0F 00 00 00 00", TlpLength, 2),
        ("config of 1024 DWs",        NonFlit, "04 00 00 00 00 00 00 0F 00 00 00 00", TlpLength, 1_024),
        ("IO of two DWs",             NonFlit, "02 00 00 02 00 00 00 FF 00 00 00 00", TlpLength, 2),
        ("IO of two DWs in flits",    Flit,    "02 01 00 02 00 00 00 00 00 00 00 00 00 00 00 FF", TlpLength, 2),
        ("FetchAdd of three DWs",     NonFlit, "4C 00 00 03 00 00 00 00 00 00 00 00", TlpLength, 3),
        ("CAS of one DW",             NonFlit, "4E 00 00 01 00 00 00 00 00 00 00 00", TlpLength, 1),
        ("IO without OHC-A2",         Flit,    "02 00 00 01 00 00 00 00 00 00 00 00", Ohc, 0),
        ("config without OHC-A3",     Flit,    "04 04 00 01 00 00 00 00 00 00 00 00 00 00 00 00", Ohc, 4),
        ("reserved TS",               Flit,    "03 00 40 01 00 00 00 00 00 00 00 00", Trailer, 2),
        ("one DW with last BE",       NonFlit, "00 00 00 01 00 00 00 1F 00 00 00 00", ByteEnables, 0x1F),
        ("config with last BE",       NonFlit, "04 00 00 01 00 00 00 1F 00 00 00 00", ByteEnables, 0x1F),
        ("two DWs without first BE",  NonFlit, "00 00 00 02 00 00 00 F0 00 00 00 00", ByteEnables, 0xF0),
        ("two DWs without last BE",   NonFlit, "00 00 00 02 00 00 00 0F 00 00 00 00", ByteEnables, 0x0F),
        ("gap in three DWs",          NonFlit, "00 00 00 03 00 00 00 F5 00 00 00 00", ByteEnables, 0xF5),
        ("gap in an odd quadword",    NonFlit, "00 00 00 02 00 00 00 5F 00 00 00 04", ByteEnables, 0x5F),
        ("gap in OHC-A1",             Flit,    "03 01 00 03 00 00 00 00 00 00 00 00 00 00 00 F5", ByteEnables, 0xF5),
        ("across 4 KiB",              NonFlit, "00 00 00 02 00 00 00 FF 00 00 0F FC", TlpAddress, 0x0FFC),
        ("UIO across 4 KiB",          Flit,    "22 00 00 10 00 00 00 00 00 00 00 00 00 00 0F C4", TlpAddress, 0x0FC4),
        ("Swap not aligned",          NonFlit, "4D 00 00 02 00 00 00 00 00 00 00 04", TlpAddress, 4),
        ("CAS not aligned",           NonFlit, "4E 00 00 04 00 00 00 00 00 00 00 04", TlpAddress, 4),
    ];
    for (name, mode, text, field, value) in cases {
        let error = Tlp::parse(mode, &hex_and_zeros(text, 32)).unwrap_err();
        let layer = error.layer();
        assert_eq!(error, ParseError::Value { layer, field, value }, "{name}");
        assert!(matches!(layer, Layer::Tlp | Layer::TlpPrefix), "{name}");
    }
}

//= PCIe 6.0 section 2.2.7: atomics are naturally aligned to their operand, of which CAS has two in its payload
/// Every atomic of every operand size at every double word up to a boundary of 4 KiB and behind it:
/// emitter and parser agree, and refuse operands that are not aligned and nothing else.
#[test]
fn atomics_are_legal_wherever_their_operand_is_aligned() {
    let (swap, cas) = ([4_u64, 8].as_slice(), [4_u64, 8, 16].as_slice());
    for (kind, operands, per) in
        [(Kind::FetchAdd, swap, 1), (Kind::Swap, swap, 1), (Kind::Cas, cas, 2)]
    {
        for (operand, mode) in operands.iter().flat_map(|&size| [(size, NonFlit), (size, Flit)]) {
            for addr in (0xFC0..=0x1040_u64).step_by(4) {
                let payload = &[0xA5; 32][..usize::try_from(operand * per).unwrap()];
                let length_dw = u16::try_from(operand * per / 4).unwrap();
                let body = Body::Address {
                    addr: Hpa(addr),
                    wide: false,
                    at: At::Untranslated,
                    no_write: false,
                    length_dw,
                    first_be: 0xF,
                    last_be: if length_dw > 1 { 0xF } else { 0 },
                };
                let name = format_args!("{kind:?} of {operand} bytes at {addr:#x}, {mode:?}");
                let repr = TlpRepr::new(mode, kind, Bdf::new(1, 0, 0), 7, body);
                let mut out = [0; 64];
                let emitted = TlpRepr { payload, ..repr }.emit(&mut out);
                assert_eq!(emitted.is_ok(), addr.is_multiple_of(operand), "{name}: {emitted:?}");
                let head = repr.emit_head(payload.len(), &mut out).unwrap();
                out[head..head + payload.len()].copy_from_slice(payload);
                let parsed = Tlp::parse(mode, &out[..head + payload.len()]);
                assert_eq!(parsed.is_ok(), addr.is_multiple_of(operand), "{name}: {parsed:?}");
                if let Ok(tlp) = parsed {
                    assert_eq!(tlp.access_len(), operand, "{name}");
                }
            }
        }
    }
}

#[test]
fn what_looks_wrong_and_is_not() {
    #[rustfmt::skip] // columns: name, mode, bytes
    let cases = [
        ("gap in one DW",          NonFlit, "00 00 00 01 00 00 00 05 00 00 00 00"),
        ("gap in one quadword",    NonFlit, "00 00 00 02 00 00 00 5A 00 00 00 08"),
        ("nothing enabled",        NonFlit, "00 00 00 01 00 00 00 00 00 00 00 00"),
        ("up to 4 KiB",            NonFlit, "00 00 00 02 00 00 00 FF 00 00 0F F8"),
        ("translation request",    NonFlit, "00 00 04 02 00 00 00 FF 00 00 0F FC"),
        ("hints in place of BE",   NonFlit, "00 01 00 02 00 00 00 A5 00 00 00 01"),
        ("three prefixes",         NonFlit, "8F 00 00 00 8E 00 00 00 91 00 00 01 00 00 00 01 00 00 00 0F 00 00 00 00"),
        ("Cpl with a Length",      NonFlit, "0A 00 00 05 00 00 00 04 00 00 00 00"),
        ("CAS of two quadwords",   NonFlit, "4E 00 00 04 00 00 00 00 00 00 00 08 00 00 00 00 00 00 00 00 00 00 00 00 00 00 00 00"),
    ];
    for (name, mode, text) in cases {
        let bytes = hex(text);
        let tlp = Tlp::parse(mode, &bytes).unwrap_or_else(|error| panic!("{name}: {error}"));
        assert_eq!(tlp.len(), bytes.len, "{name}");
    }
}

#[test]
fn extensions_and_trailers_count() {
    #[rustfmt::skip] // columns: name, mode, bytes in front, bytes in all
    let cases = [
        ("digest",           NonFlit, "40 00 80 01 00 00 00 0F 00 00 00 00", 20),
        ("OHC-B",            Flit,    "03 02 00 01 00 00 00 00 00 00 00 00", 16),
        ("OHC-A, B, C, E4",  Flit,    "03 1F 00 01 00 00 00 00 00 00 00 00 00 00 00 0F", 40),
        ("OHC-E2 and data",  Flit,    "40 10 00 02 00 00 00 00 00 00 00 00", 28),
        ("ECRC",             Flit,    "03 00 20 01 00 00 00 00 00 00 00 00", 16),
        ("MAC",              Flit,    "03 00 A0 01 00 00 00 00 00 00 00 00", 24),
        ("MAC and PCRC",     Flit,    "03 00 C0 01 00 00 00 00 00 00 00 00", 28),
    ];
    for (name, mode, text, len) in cases {
        let bytes = hex_and_zeros(text, 64);
        assert_eq!(Tlp::parse(mode, &bytes).unwrap().len(), len, "{name}");
        short_is_refused(mode, &bytes[..len]);
    }
}

/// Each proper prefix is refused as too short, with its own length in the error.
pub(super) fn short_is_refused(mode: Mode, whole: &[u8]) {
    for len in 0..whole.len() {
        match Tlp::parse(mode, &whole[..len]) {
            Err(ParseError::Short { need, had, .. }) => {
                assert!(usize::from(had) == len && usize::from(need) > len);
                assert!(usize::from(need) <= whole.len());
            }
            other => panic!("{len} of {} bytes: {other:?}", whole.len()),
        }
    }
}

#[test]
fn what_may_stand_on_a_pbr_link() {
    const TLP: &str = "C1 0A 11 23 22 00 00 10 01 00 00 05 00 00 01 23 45 67 BA 40";
    let malformed =
        |value| Err(ParseError::Value { layer: Layer::Pth, field: Field::PbrGrammar, value });
    #[rustfmt::skip] // columns: name, bytes in front of the TLP, place of its PTH
    let cases = [
        ("nothing",                "", Ok(0)),
        ("NOP",                    "00 00 00 00", Ok(4)),
        ("NOP and reserved",       "00 00 00 00 7F 01 02 03 40 00 00 00", Ok(12)),
        ("local prefixes",         "8F 00 00 00 8E 0A 10 00 8D 00 00 00", Ok(12)),
        ("NOP with bits",          "01 00 00 00", malformed(0x01)),
        ("no local prefix 80",     "80 00 00 00", malformed(0x80)),
        ("no local prefix 8C",     "8C 00 00 00", malformed(0x8C)),
        ("no local prefix 90",     "90 00 00 00", malformed(0x90)),
        ("NOP behind PTH",         "C1 0A 11 23 00 00 00 00", malformed(0x00)),
        ("local prefix behind PTH", "C1 0A 11 23 8E 00 00 00", malformed(0x8E)),
    ];
    for (name, front, want) in cases {
        let (mut bytes, tlp) = (hex(front), hex(TLP));
        let (front, end) = (bytes.len, bytes.len + tlp.len);
        bytes.bytes[front..end].copy_from_slice(&tlp);
        bytes.len = end;
        let found = PbrTlp::parse(&bytes).map(|found| found.unwrap().pth_at());
        assert_eq!(found, want, "{name}");
        if want.is_ok() {
            assert_eq!(PbrTlp::parse(&bytes).unwrap().unwrap().len(), end, "{name}");
            for len in front + 1..end {
                let short = PbrTlp::parse(&bytes[..len]).unwrap_err();
                assert!(matches!(short, ParseError::Short { need, had, .. }
                    if usize::from(had) == len && usize::from(need) > len && usize::from(need) <= end));
            }
        }
    }
    let nop = TlpRepr::new(Flit, Kind::Nop, Bdf::default(), 0, Body::Nop);
    let pth = Pth::new(Pid::NONE, Pid::NONE);
    assert_eq!(pth::emit_pbr(pth, &nop, &mut [0; 16]), Err(EmitError::Kind), "no PTH before it");
    assert!(PbrTlp::parse(&hex_and_zeros("40 00 00 00", 42)).unwrap().is_none(), "only a NOP");
    assert!(PbrTlp::parse(&[]).is_err());
    assert!(PbrTlp::parse(&hex("8E 00 00 00")).is_err(), "a prefix of nothing");
}

/// Edges must not send a `VendPrefixL0` to a PBR link. One that does is detected behind other local prefixes, too.
#[test]
fn other_local_prefixes_hide_no_vend_prefix() {
    const TLP: &str = "C1 0A 11 23 22 00 00 10 01 00 00 05 00 00 01 23 45 67 BA 40";
    #[rustfmt::skip] // columns: name, bytes in front of the TLP, its first VendPrefixL0
    let cases = [
        ("nothing",        "",                                     None),
        ("another",        "8F 00 00 00",                          None),
        ("alone",          "8E 0A 10 00",                          Some(0x0A10)),
        ("behind another", "8F 00 00 00 8E 0A 10 00",              Some(0x0A10)),
        ("before another", "8E 0A 10 00 8D 00 00 00",              Some(0x0A10)),
        ("the first of two", "8D 00 00 00 8E 0A 10 00 8E 0B 20 00", Some(0x0A10)),
    ];
    for (name, front, want) in cases {
        let bytes = [&*hex(front), &*hex(TLP)].concat();
        let tlp = PbrTlp::parse(&bytes).unwrap().unwrap();
        assert_eq!(tlp.vend_prefix().map(VendPrefixL0::ld_id), want, "{name}");
    }
}

#[test]
fn other_links_are_refused() {
    #[rustfmt::skip] // columns: bytes, field
    let cases = [
        ("88 B8 02 57 46 00 01 10", Field::EtherType),
        ("88 B7 02 57 47 00 01 10", Field::Oui),
        ("88 B7 02 57 46 00 00 10", Field::Protocol),
        ("88 B7 02 57 46 00 09 10", Field::Protocol),
        ("88 B7 02 57 46 00 01 20", Field::Version),
    ];
    for (text, want) in cases {
        match TlpLink::parse(&hex(text), Oui::DEFAULT) {
            Err(ParseError::Value { layer: Layer::TlpLink, field, .. }) => assert_eq!(field, want),
            other => panic!("{text}: {other:?}"),
        }
    }
    let other = Oui([0, 0x1B, 0x21]);
    let protocols = (0..=u16::MAX).filter_map(Protocol::decode);
    assert_eq!(protocols.clone().count(), 8);
    for protocol in protocols {
        let mut bytes = [0xEE; link::LEN];
        TlpLink { oui: other, protocol, ln: false }.emit(&mut bytes).unwrap();
        assert_eq!(TlpLink::parse(&bytes, other).unwrap().0.protocol, protocol);
        assert!(TlpLink::parse(&bytes, Oui::DEFAULT).is_err());
        crate::testing::refuses_shorter_of(&bytes, Layer::TlpLink, |part| {
            TlpLink::parse(part, other).err()
        });
    }
}
