//! Classification rule by rule, in the order of docs/spec/wire-formats.md §1.8, and malformed frames.
//! Tables, name first; frames are built from hexadecimal text.
//!
//! Units: bytes.
//! Source: docs/spec/wire-formats.md §1.3 to §1.8, docs/spec/pipeline.md §1.

use super::*;
use crate::afh::TrafficClass;
use crate::rh::RhOpcode;
use crate::source::PriSource;
use crate::testing::Rng;
use crate::types::{Dscp, Ecn, IpVersion, Tci};

const OWN: MacAddr = MacAddr([2, 0, 0, 0, 0, 0xAA]);
const CFG: ParseConfig = ParseConfig { port_mac: OWN, ..ParseConfig::DEFAULT };
const LITE: ParseConfig = ParseConfig { afh: AfhMode::Lite, ..CFG };

const MACS: &str = "02 00 00 00 00 02  02 00 00 00 00 01 ";
const RH: &str = "21 12 34 5A 90 15 61 23 ";

/// A frame under test: room for 128 bytes, of which `len` count.
#[derive(Clone, Copy)]
struct Frame {
    bytes: [u8; 128],
    len: usize,
}

/// Joins pieces of hexadecimal text; blanks do not matter.
fn frame(pieces: &[&str]) -> Frame {
    let mut out = Frame { bytes: [0; 128], len: 0 };
    let mut high = None;
    for digit in pieces.iter().flat_map(|piece| piece.chars()).filter(|c| !c.is_whitespace()) {
        let value = u8::try_from(digit.to_digit(16).expect("hexadecimal")).unwrap();
        if let Some(first) = high.take() {
            out.bytes[out.len] = first << 4 | value;
            out.len += 1;
        } else {
            high = Some(value);
        }
    }
    assert_eq!(high, None, "whole bytes");
    out
}

impl Frame {
    fn padded(mut self, len: usize) -> Self {
        self.len = self.len.max(len);
        self
    }

    fn cut(self, len: usize) -> Self {
        let mut bytes = [0; 128];
        bytes[..len].copy_from_slice(&self.bytes[..len]);
        Self { bytes, len }
    }

    fn parse(&self, cfg: &ParseConfig) -> Result<Head, ParseError> {
        parse_head(self.bytes.first_chunk().unwrap(), self.len, cfg)
    }
}

fn mode(afh: AfhMode) -> ParseConfig {
    ParseConfig { afh, ..CFG }
}

fn documented(afh: AfhMode) -> ParseConfig {
    ParseConfig { gen2_order: Gen2Order::AsDocumented, ..mode(afh) }
}

/// An IPv4 header of protocol `proto` and TOS 0x21; its checksum is not looked at.
const IPV4: &str = "45 21 00 68 00 01 40 00 40 11 26 61 0A 00 00 01 0A 00 00 02 ";
const UDP: &str = "C0 00 12 B7 00 54 FF FF ";

fn standard() -> Frame {
    frame(&[MACS, "08 00", IPV4, UDP, RH])
}

fn gen1() -> Frame {
    frame(&["02 00 00 00 00 02  20 00 00 00 00 01  88 B5", RH])
}

fn gen2_slap() -> Frame {
    frame(&["82 A1 A2 A3 00 02  20 B1 B2 B3 00 01  88 B5", RH])
}

fn gen2_documented() -> Frame {
    frame(&["20 A1 A2 A3 00 02  82 B1 B2 B3 00 01  88 B5", RH])
}

#[test]
fn head_is_small() {
    assert_eq!(size_of::<Head>(), 32);
    assert_eq!(size_of::<Result<Head, ParseError>>(), 32, "the error hides in unused values");
    assert!(size_of::<ParseConfig>() <= 24);
}

#[test]
fn rule_1_any_length_from_14() {
    let whole = frame(&[MACS, "12 34"]);
    for len in 0..14 {
        let want = Err(ParseError::short(Layer::Ethernet, 14, len));
        assert_eq!(whole.cut(len).parse(&CFG), want);
        assert_eq!(whole.cut(len).parse(&LITE), want);
    }
    for len in [14, 15, 59, 60, 64, 65, 1500, 65_226, usize::MAX] {
        let head = parse_head(whole.bytes.first_chunk().unwrap(), len, &CFG).unwrap();
        assert_eq!(head.format(), Format::Other, "{len}");
    }
}

#[test]
fn rule_2_mac_control() {
    let pause = "01 80 C2 00 00 01  02 00 00 00 00 01 ";
    let own = "02 00 00 00 00 AA  02 00 00 00 00 01 ";
    let zero = "00 00 00 00 00 00  02 00 00 00 00 01 ";
    let no_mac = ParseConfig { port_mac: MacAddr::ZERO, ..CFG };
    #[rustfmt::skip] // columns: name, frame, settings, format, opcode, acts as PFC
    let cases = [
        ("pfc",                      frame(&[pause, "88 08 01 01"]), CFG,  Format::MacControl, Some(0x0101), true),
        ("pause",                    frame(&[pause, "88 08 00 01"]), CFG,  Format::MacControl, Some(0x0001), true),
        ("cc_update",                frame(&[pause, "88 08 FF FE"]), CFG,  Format::MacControl, Some(0xFFFE), true),
        ("to the port",              frame(&[own, "88 08 01 01"]),   CFG,  Format::MacControl, Some(0x0101), true),
        ("to another station",       frame(&[MACS, "88 08 01 01"]),  CFG,  Format::MacControl, Some(0x0101), false),
        ("port has no address",      frame(&[zero, "88 08 01 01"]),  no_mac, Format::MacControl, Some(0x0101), false),
        ("afh off changes nothing",  frame(&[MACS, "88 08 01 01"]),  mode(AfhMode::None), Format::MacControl, Some(0x0101), false),
        ("lite, pfc",                frame(&[pause, "88 08 01 01"]), LITE, Format::MacControl, Some(0x0101), true),
        ("lite, to the port",        frame(&[own, "88 08 01 01"]),   LITE, Format::AfhLite,    None,         false),
        ("lite, to another",         frame(&[MACS, "88 08 01 01"]),  LITE, Format::AfhLite,    None,         false),
        ("lite, payload says 8808",  frame(&["82 00 00 00 00 02 40 00 2A 00 00 01 88 08 01 01"]), LITE, Format::AfhLite, None, false),
        ("tagged",                   frame(&[pause, "81 00 60 64 88 08 01 01"]), CFG, Format::Other, None,   false),
    ];
    for (name, frame, cfg, format, opcode, pfc_da) in cases {
        let head = frame.padded(60).parse(&cfg).expect(name);
        assert_eq!(head.format(), format, "{name}");
        assert_eq!(head.mac_control_opcode(), opcode, "{name}");
        assert_eq!(head.pfc_da(), pfc_da, "{name}");
    }
    for len in 14..16 {
        let short = frame(&[pause, "88 08 01 01"]).cut(len);
        let want = Err(ParseError::short(Layer::MacControl, 16, len));
        assert_eq!(short.parse(&CFG), want);
        assert_eq!(short.parse(&LITE), want);
    }
}

#[test]
fn rule_3_lite_ports_take_payload_for_payload() {
    for like in ["88 08", "81 00", "08 00", "86 DD", "88 B5", "88 B6", "00 00"] {
        let lite = frame(&["82 00 00 00 00 02  40 00 2A 00 00 01 ", like, "45 00"]);
        for len in [14, 15, 18, 76] {
            let head = lite.cut(len).parse(&LITE).expect(like);
            assert_eq!(head.format(), Format::AfhLite, "{like}");
            assert_eq!((head.dst(), head.src()), (AddrKey::id16(2), AddrKey::id16(1)), "{like}");
            assert_eq!(head.tc(), Some(TrafficClass(0x40)), "{like}");
            assert!(!head.tagged() && !head.has_ip() && !head.group(), "{like}");
            assert_eq!(head.rh_opcode(), None, "{like}");
        }
    }
    let swapped = frame(&["48 00 00 00 80 05  83 00 2A 00 00 01  00 00"]);
    let head = swapped.parse(&documented(AfhMode::Lite)).unwrap();
    assert_eq!((head.tc(), head.group()), (Some(TrafficClass(0x48)), true));
    let head = swapped.parse(&LITE).unwrap();
    assert_eq!((head.tc(), head.group()), (Some(TrafficClass(0x83)), false));
    let lldp = frame(&["01 80 C2 00 00 0E  02 00 00 00 00 01  88 CC"]);
    assert!(lldp.parse(&LITE).unwrap().reserved_group(), "never forwarded, on Lite ports too");
}

#[test]
fn rule_4_one_tag() {
    let tagged = frame(&[MACS, "81 00 60 64 08 00", IPV4, UDP, RH]);
    let head = tagged.parse(&CFG).unwrap();
    assert_eq!((head.format(), head.tci()), (Format::Standard, Some(Tci(0x6064))));
    assert_eq!((head.ip_offset(), head.l4_offset()), (Some(18), Some(38)));
    assert_eq!(head.rh_opcode(), Some(RhOpcode::Send));

    let stag = ParseConfig { tpids: Tpids::new(&[ether_type::STAG]).unwrap(), ..CFG };
    let both =
        ParseConfig { tpids: Tpids::new(&[ether_type::STAG, ether_type::CTAG]).unwrap(), ..CFG };
    #[rustfmt::skip] // columns: name, frame, settings, format, tag
    let cases = [
        ("untagged",           standard(),                                             CFG,  Format::Standard, None),
        ("tagged gen1",        frame(&["02 00 00 00 00 02 20 00 00 00 00 01 81 00 60 64 88 B5", RH]), CFG, Format::AfhGen1, Some(0x6064)),
        ("tagged gen2",        frame(&["82 00 00 00 00 02 20 00 00 00 00 01 81 00 60 64 88 B5", RH]), CFG, Format::AfhGen2, Some(0x6064)),
        ("two c-tags",         frame(&[MACS, "81 00 60 64 81 00 00 01 08 00", IPV4, UDP, RH]), CFG, Format::Other, Some(0x6064)),
        ("c-tag over s-tag",   frame(&[MACS, "81 00 60 64 88 A8 00 01 08 00", IPV4, UDP, RH]), CFG, Format::Other, Some(0x6064)),
        ("s-tag, c-tag port",  frame(&[MACS, "88 A8 60 64 08 00", IPV4, UDP, RH]),     CFG,  Format::Other,    None),
        ("s-tag, s-tag port",  frame(&[MACS, "88 A8 60 64 08 00", IPV4, UDP, RH]),     stag, Format::Standard, Some(0x6064)),
        ("c-tag, s-tag port",  tagged,                                                 stag, Format::Other,    None),
        ("s-tag, both",        frame(&[MACS, "88 A8 60 64 08 00", IPV4, UDP, RH]),     both, Format::Standard, Some(0x6064)),
        ("c-tag, both",        tagged,                                                 both, Format::Standard, Some(0x6064)),
        ("c under s, both",    frame(&[MACS, "88 A8 60 64 81 00 00 01 08 00", IPV4, UDP, RH]), both, Format::Other, Some(0x6064)),
        ("another, both",      frame(&[MACS, "91 00 60 64 08 00", IPV4, UDP, RH]),     both, Format::Other,    None),
        ("priority tag",       frame(&[MACS, "81 00 E0 00 08 06"]),                    CFG,  Format::Other,    Some(0xE000)),
    ];
    for (name, frame, cfg, format, tci) in cases {
        let head = frame.parse(&cfg).expect(name);
        assert_eq!(
            (head.format(), head.tci(), head.tagged()),
            (format, tci.map(Tci), tci.is_some()),
            "{name}"
        );
        if format == Format::Other {
            assert!(!head.has_ip(), "{name}: raw L2");
        }
    }
    for len in 14..18 {
        let want = Err(ParseError::short(Layer::VlanTag, 18, len));
        assert_eq!(tagged.cut(len).parse(&CFG), want);
    }
}

#[test]
fn rule_5_standard_or_ip_with_dscp() {
    let type2 = ParseConfig { udp_type2: 5000, ..CFG };
    let none = ParseConfig { udp_type1: 0, udp_type2: 0, ..CFG };
    let port_5000 = "C0 00 13 88 00 54 FF FF ";
    let port_0 = "C0 00 00 00 00 54 FF FF ";
    #[rustfmt::skip] // columns: name, IPv4 header, what follows, settings, format, markable, offset of L4
    let cases = [
        ("type 1",           IPV4,                                                            UDP,       CFG,   Format::Standard, Some(34)),
        ("type 2 not set",   IPV4,                                                            port_5000, CFG,   Format::Other,    Some(34)),
        ("type 2 set",       IPV4,                                                            port_5000, type2, Format::Standard, Some(34)),
        ("type 1 beside it", IPV4,                                                            UDP,       type2, Format::Standard, Some(34)),
        ("0 is not a port",  IPV4,                                                            port_0,    none,  Format::Other,    Some(34)),
        ("tcp",              "45 21 00 68 00 01 40 00 40 06 00 00 0A 00 00 01 0A 00 00 02 ", UDP,       CFG,   Format::Other,    Some(34)),
        ("more fragments",   "45 21 00 68 00 01 20 00 40 11 00 00 0A 00 00 01 0A 00 00 02 ", UDP,       CFG,   Format::Other,    None),
        ("later fragment",   "45 21 00 68 00 01 00 01 40 11 00 00 0A 00 00 01 0A 00 00 02 ", UDP,       CFG,   Format::Other,    None),
        ("top offset bit",   "45 21 00 68 00 01 10 00 40 11 00 00 0A 00 00 01 0A 00 00 02 ", UDP,       CFG,   Format::Other,    None),
        ("may be fragmented", "45 21 00 68 00 01 00 00 40 11 00 00 0A 00 00 01 0A 00 00 02 ", UDP,      CFG,   Format::Standard, Some(34)),
        ("reserved flag",    "45 21 00 68 00 01 80 00 40 11 00 00 0A 00 00 01 0A 00 00 02 ", UDP,       CFG,   Format::Standard, Some(34)),
        ("options",          "46 21 00 68 00 01 40 00 40 11 00 00 0A 00 00 01 0A 00 00 02 01 01 01 00 ", UDP, CFG, Format::Other,  Some(38)),
        ("ihl below 5",      "44 21 00 68 00 01 40 00 40 11 00 00 0A 00 00 01 0A 00 00 02 ", UDP,       CFG,   Format::Other,    None),
        ("udp only padding", "45 21 00 14 00 01 40 00 40 11 00 00 0A 00 00 01 0A 00 00 02 ", UDP,       CFG,   Format::Other,    None),
        ("total length 19",  "45 21 00 13 00 01 40 00 40 11 00 00 0A 00 00 01 0A 00 00 02 ", UDP,       CFG,   Format::Other,    None),
    ];
    for (name, ip, udp, cfg, format, l4) in cases {
        let head = frame(&[MACS, "08 00", ip, udp, RH]).padded(60).parse(&cfg).expect(name);
        assert_eq!(head.format(), format, "{name}");
        assert_eq!(head.to_standard_port(), format == Format::Standard, "{name}");
        assert_eq!(head.ip_valid(), !matches!(name, "ihl below 5" | "total length 19"), "{name}");
        assert_eq!(head.l4_offset(), l4, "{name}");
        assert_eq!(head.ip_version(), Some(IpVersion::V4), "{name}");
        assert_eq!(head.ip_offset(), Some(14), "{name}");
        assert_eq!((head.dscp().unwrap().get(), head.ecn()), (8, Some(Ecn::Ect1)), "{name}");
    }
    let strange = frame(&[MACS, "08 00", "65", &IPV4[2..], UDP, RH]).parse(&CFG).unwrap();
    assert_eq!((strange.format(), strange.has_ip()), (Format::Other, false), "version 6 as IPv4");
    assert_eq!((strange.dscp(), strange.ecn(), strange.ip_offset()), (None, None, None));
}

#[test]
fn rule_5_ipv6_is_other_and_roce_is_told() {
    let addresses = "00 00 00 00 00 00 00 00 00 00 00 00 00 00 00 01 \
                     00 00 00 00 00 00 00 00 00 00 00 00 00 00 00 02 ";
    #[rustfmt::skip] // columns: name, first 8 bytes, what follows, markable, offset of L4
    let cases = [
        ("roce",               "66 21 23 45 00 40 11 40 ", UDP,                      true,  Some(54)),
        ("udp elsewhere",      "66 21 23 45 00 40 11 40 ", "C0 00 12 B8 00 54 FF FF", false, Some(54)),
        ("tcp",                "66 21 23 45 00 40 06 40 ", UDP,                      false, Some(54)),
        ("icmp",               "66 21 23 45 00 40 3A 40 ", UDP,                      false, Some(54)),
        ("hop by hop",         "66 21 23 45 00 40 00 40 ", UDP,                      false, None),
        ("fragment",           "66 21 23 45 00 40 2C 40 ", UDP,                      false, None),
        ("no next header",     "66 21 23 45 00 00 3B 40 ", UDP,                      false, None),
        ("udp only padding",   "66 21 23 45 00 07 11 40 ", UDP,                      false, None),
    ];
    for (name, first, udp, markable, l4) in cases {
        for (tag, shift) in [("", 0), ("81 00 60 64", 4)] {
            let frame = frame(&[MACS, tag, "86 DD", first, addresses, udp, RH]);
            let head = frame.parse(&CFG).expect(name);
            assert_eq!(
                (head.format(), head.to_standard_port()),
                (Format::Other, markable),
                "{name}"
            );
            assert_eq!(head.ip_version(), Some(IpVersion::V6), "{name}");
            assert_eq!(head.ip_offset(), Some(14 + shift), "{name}");
            assert_eq!(head.l4_offset(), l4.map(|l4| l4 + shift), "{name}");
            assert_eq!((head.dscp().unwrap().get(), head.ecn()), (0x18, Some(Ecn::Ect0)), "{name}");
            assert_eq!(head.rh_opcode(), None, "{name}");
        }
    }
    let strange = frame(&[MACS, "86 DD", IPV4, addresses, UDP]).parse(&CFG).unwrap();
    assert!(!strange.has_ip() && !strange.ip_valid(), "version 4 as IPv6");
}

#[test]
fn rule_6_afh_by_mode() {
    let key_00 = frame(&["02 A1 A2 A3 00 02  20 B1 B2 B3 00 01  88 B6", RH]);
    let other_type = frame(&["82 A1 A2 A3 00 02  20 B1 B2 B3 00 01  88 B7", RH]);
    let both = frame(&["82 A1 A2 A3 00 02  83 B1 B2 B3 00 01  88 B5", RH]);
    let version_1 = frame(&["C2 A1 A2 A3 00 02  20 B1 B2 B3 00 01  88 B5", RH]);
    let (off, gen1_port, gen2_port) = (AfhMode::None, AfhMode::Gen1, AfhMode::Gen2);
    let own_types = ParseConfig { mac_type1: 0x1234, mac_type2: 0x88B7, ..CFG };
    let id16 = |dst, src| (AddrKey::id16(dst), AddrKey::id16(src));
    let gen1_keys = |dst, src| (AddrKey::gen1(dst), AddrKey::gen1(src));
    let mac_keys = |dst, src| {
        (AddrKey::ethernet(MacAddr::from_bits(dst)), AddrKey::ethernet(MacAddr::from_bits(src)))
    };
    #[rustfmt::skip] // columns: name, frame, settings, format, keys, Traffic Class
    let cases = [
        ("gen1 on gen1",            gen1(),      mode(gen1_port), Format::AfhGen1, gen1_keys(2, 1), Some(0x20)),
        ("gen1 on auto",            gen1(),      CFG,             Format::AfhGen1, gen1_keys(2, 1), Some(0x20)),
        ("gen1 on auto documented", gen1(),      documented(AfhMode::Auto), Format::AfhGen1, gen1_keys(2, 1), Some(0x20)),
        ("gen1 on gen2: W is 0",    gen1(),      mode(gen2_port), Format::Other,   mac_keys(0x0200_0000_0002, 0x2000_0000_0001), None),
        ("gen1 where afh is off",   gen1(),      mode(off),       Format::Other,   mac_keys(0x0200_0000_0002, 0x2000_0000_0001), None),
        ("slap on gen2",            gen2_slap(), mode(gen2_port), Format::AfhGen2, id16(2, 1),      Some(0x20)),
        ("slap on auto",            gen2_slap(), CFG,             Format::AfhGen2, id16(2, 1),      Some(0x20)),
        ("slap on gen1: by mode",   gen2_slap(), mode(gen1_port), Format::AfhGen1, gen1_keys(0xA1_A2A3_0002, 0xB1_B2B3_0001), Some(0x20)),
        ("documented on gen2",      gen2_documented(), documented(gen2_port), Format::AfhGen2, id16(2, 1), Some(0x20)),
        ("documented on auto",      gen2_documented(), documented(AfhMode::Auto), Format::AfhGen2, id16(2, 1), Some(0x20)),
        ("documented on slap auto", gen2_documented(), CFG,       Format::AfhGen2, id16(2, 1),      Some(0x20)),
        ("slap on documented auto", gen2_slap(), documented(AfhMode::Auto), Format::AfhGen2, id16(2, 1), Some(0x20)),
        ("both look like it, slap", both,        CFG,             Format::AfhGen2, id16(2, 1),      Some(0x83)),
        ("both, documented",        both,        documented(AfhMode::Auto), Format::AfhGen2, id16(2, 1), Some(0x82)),
        ("documented on slap gen2: W is 0", gen2_documented(), mode(gen2_port), Format::Other, mac_keys(0x20A1_A2A3_0002, 0x82B1_B2B3_0001), None),
        ("32 bit on gen2",          key_00,      mode(gen2_port), Format::Other,   mac_keys(0x02A1_A2A3_0002, 0x20B1_B2B3_0001), None),
        ("32 bit on auto is gen1",  key_00,      CFG,             Format::AfhGen1, gen1_keys(0xA1_A2A3_0002, 0xB1_B2B3_0001), Some(0x20)),
        ("version 1 on gen2",       version_1,   mode(gen2_port), Format::AfhGen2, id16(2, 1),      Some(0x20)),
        ("version 1 on auto",       version_1,   CFG,             Format::AfhGen1, gen1_keys(0xA1_A2A3_0002, 0xB1_B2B3_0001), Some(0x20)),
        ("other EtherType",         other_type,  CFG,             Format::Other,   mac_keys(0x82A1_A2A3_0002, 0x20B1_B2B3_0001), None),
        ("EtherType by settings",   other_type,  own_types,       Format::AfhGen2, id16(2, 1),      Some(0x20)),
        ("default type not set",    gen2_slap(), own_types,       Format::Other,   mac_keys(0x82A1_A2A3_0002, 0x20B1_B2B3_0001), None),
    ];
    for (name, frame, cfg, format, keys, tc) in cases {
        let head = frame.parse(&cfg).expect(name);
        assert_eq!(head.format(), format, "{name}");
        assert_eq!((head.dst(), head.src()), keys, "{name}");
        assert_eq!(head.tc(), tc.map(TrafficClass), "{name}");
        let want = (format != Format::Other).then_some(RhOpcode::Send);
        assert_eq!(head.rh_opcode(), want, "{name}");
        assert!(!head.has_ip() && !head.ip_valid() && !head.to_standard_port(), "{name}");
    }
}

#[test]
fn rule_7_everything_else_is_other() {
    for kind in ["08 06", "88 CC", "00 2E", "89 15", "88 5B", "FF FF"] {
        let head = frame(&[MACS, kind, RH]).parse(&CFG).expect(kind);
        assert_eq!(head.format(), Format::Other, "{kind}");
        assert!(!head.has_ip(), "{kind}");
        assert_eq!((head.tc(), head.rh_opcode(), head.dscp()), (None, None, None), "{kind}");
    }
}

#[test]
fn groups_and_sources() {
    let (gen1_port, gen2_port) = (mode(AfhMode::Gen1), mode(AfhMode::Gen2));
    #[rustfmt::skip] // columns: name, DA and SA, EtherType, settings, group, broadcast, reserved, source valid
    let cases = [
        ("unicast",             "02 00 00 00 00 02 02 00 00 00 00 01", "08 06", CFG,       [false, false, false, true]),
        ("multicast",           "01 00 5E 00 00 01 02 00 00 00 00 01", "08 06", CFG,       [true,  false, false, true]),
        ("broadcast",           "FF FF FF FF FF FF 02 00 00 00 00 01", "08 06", CFG,       [true,  true,  false, true]),
        ("reserved, first",     "01 80 C2 00 00 00 02 00 00 00 00 01", "88 CC", CFG,       [true,  false, true,  true]),
        ("reserved, last",      "01 80 C2 00 00 0F 02 00 00 00 00 01", "88 CC", CFG,       [true,  false, true,  true]),
        ("behind reserved",     "01 80 C2 00 00 10 02 00 00 00 00 01", "88 CC", CFG,       [true,  false, false, true]),
        ("before reserved",     "01 80 C1 FF FF FF 02 00 00 00 00 01", "88 CC", CFG,       [true,  false, false, true]),
        ("source is a group",   "02 00 00 00 00 02 03 00 00 00 00 01", "08 06", CFG,       [false, false, false, false]),
        ("source is zero",      "02 00 00 00 00 02 00 00 00 00 00 00", "08 06", CFG,       [false, false, false, false]),
        ("gen1 group",          "03 00 00 00 00 02 20 00 00 00 00 01", "88 B5", gen1_port, [true,  false, false, true]),
        ("gen1 broadcast",      "FF FF FF FF FF FF 20 00 00 00 00 01", "88 B5", gen1_port, [true,  true,  false, true]),
        ("gen1 odd TC",         "02 00 00 00 00 02 21 00 00 00 00 01", "88 B5", gen1_port, [false, false, false, true]),
        ("gen1 source zero",    "02 00 00 00 00 02 20 00 00 00 00 00", "88 B5", gen1_port, [false, false, false, false]),
        ("gen2 group",          "83 A1 A2 A3 80 05 48 B1 B2 B3 00 01", "88 B6", gen2_port, [true,  false, false, true]),
        ("gen2 unicast, bit 15", "82 A1 A2 A3 80 05 48 B1 B2 B3 00 01", "88 B5", gen2_port, [false, false, false, true]),
        ("gen2 source zero",    "82 A1 A2 A3 00 02 20 B1 B2 B3 00 00", "88 B5", gen2_port, [false, false, false, false]),
        ("gen2 all ones",       "FF FF FF FF FF FF 20 B1 B2 B3 00 01", "88 B5", gen2_port, [true,  false, false, true]),
        ("lite group",          "83 00 00 00 80 05 48 00 2A 00 00 01", "00 00", LITE,      [true,  false, false, true]),
        ("lite source zero",    "82 00 00 00 00 02 48 00 2A 00 00 00", "00 00", LITE,      [false, false, false, false]),
    ];
    for (name, addresses, kind, cfg, want) in cases {
        let head = frame(&[addresses, kind, RH]).parse(&cfg).expect(name);
        let found = [head.group(), head.broadcast(), head.reserved_group(), head.source_valid()];
        assert_eq!(found, want, "{name}");
    }
}

/// One station is one key, whatever its frames carry.
#[test]
fn keys_leave_out_what_changes_from_frame_to_frame() {
    let mut gen1 = gen1();
    let mut gen2 = gen2_slap();
    let mut rng = Rng::new(19);
    for tc in (0..=0xFC).step_by(4) {
        gen1.bytes[6] = tc;
        let head = gen1.parse(&mode(AfhMode::Gen1)).unwrap();
        assert_eq!((head.src(), head.tc()), (AddrKey::gen1(1), Some(TrafficClass(tc))));
        gen2.bytes[6] = tc;
        gen2.bytes[1..4].copy_from_slice(&rng.bytes::<3>());
        gen2.bytes[7..10].copy_from_slice(&rng.bytes::<3>());
        let head = gen2.parse(&mode(AfhMode::Gen2)).unwrap();
        assert_eq!((head.dst(), head.src()), (AddrKey::id16(2), AddrKey::id16(1)));
    }
    let group = frame(&["0F 01 02 03 04 05 20 00 00 00 00 01 88 B6", RH]);
    let head = group.parse(&mode(AfhMode::Gen1)).unwrap();
    assert_eq!(head.dst(), AddrKey::new(AddrSpace::Gen1, 0x0F01_0203_0405), "all 48 bits");
}

/// Lengths at which a frame is malformed: from the first to below the second, which the layer needs.
type Malformed = &'static [(Layer, usize, usize)];

const ETHERNET: (Layer, usize, usize) = (Layer::Ethernet, 0, 14);
const TAG: (Layer, usize, usize) = (Layer::VlanTag, 14, 18);

/// A switch has to read its own formats and the tag; any other frame of 14 bytes and more is plain Ethernet.
#[test]
fn a_frame_that_is_cut_short_is_malformed_only_within_what_the_switch_has_to_read() {
    let six = "60 00 00 00 00 40 11 40 00 00 00 00 00 00 00 00 00 00 00 00 00 00 00 01 \
               00 00 00 00 00 00 00 00 00 00 00 00 00 00 00 02 ";
    let options = "4F 21 00 68 00 01 40 00 40 06 00 00 0A 00 00 01 0A 00 00 02 ";
    let elsewhere = "C0 00 12 B8 00 54 FF FF";
    let (never, none) = (usize::MAX, mode(AfhMode::None));
    #[rustfmt::skip] // columns: name, whole frame, settings, malformed, least length with an IP header, with L4
    let cases: [(&str, Frame, ParseConfig, Malformed, usize, usize); 11] = [
        ("standard",      standard(),                              CFG, &[ETHERNET, (Layer::Rh, 42, 50)],      34, 42),
        ("tagged",        frame(&[MACS, "81 00 60 64 08 00", IPV4, UDP, RH]), CFG, &[ETHERNET, TAG, (Layer::Rh, 46, 54)], 38, 46),
        ("udp elsewhere", frame(&[MACS, "08 00", IPV4, elsewhere, RH]), CFG, &[ETHERNET],                      34, 42),
        ("ipv4 options",  frame(&[MACS, "08 00", options]).padded(74), CFG, &[ETHERNET],                       74, 74),
        ("ipv6 udp",      frame(&[MACS, "86 DD", six, UDP]),       CFG, &[ETHERNET],                           54, 62),
        ("tagged ipv6",   frame(&[MACS, "81 00 60 64 86 DD", six, UDP]), CFG, &[ETHERNET, TAG],                58, 66),
        ("arp",           frame(&[MACS, "08 06", RH]),             CFG, &[ETHERNET],                           never, never),
        ("gen1",          gen1(),                                  CFG, &[ETHERNET, (Layer::Rh, 14, 22)],      never, never),
        ("gen2",          gen2_slap(),                             CFG, &[ETHERNET, (Layer::Rh, 14, 22)],      never, never),
        ("tagged gen1",   frame(&["02 00 00 00 00 02 20 00 00 00 00 01 81 00 60 64 88 B5", RH]), CFG, &[ETHERNET, TAG, (Layer::Rh, 18, 26)], never, never),
        ("gen1, afh off", gen1(),                                  none, &[ETHERNET],                          never, never),
    ];
    for (name, whole, cfg, malformed, ip_from, l4_from) in cases {
        for len in 0..=whole.len {
            let found = whole.cut(len).parse(&cfg);
            if let Some(&(layer, _, need)) =
                malformed.iter().find(|(_, from, below)| (*from..*below).contains(&len))
            {
                assert_eq!(found, Err(ParseError::short(layer, need, len)), "{name}");
                continue;
            }
            let head = found.expect(name);
            assert_eq!(head.has_ip(), len >= ip_from, "{name} cut to {len}");
            assert_eq!(head.dscp().is_some(), head.has_ip(), "{name} cut to {len}");
            assert_eq!(head.l4_offset().is_some(), len >= l4_from, "{name} cut to {len}");
            assert_eq!(head.tagged(), malformed.contains(&TAG), "{name} cut to {len}");
            let is_whole = head.format() == whole.parse(&cfg).unwrap().format();
            assert!(is_whole || head.format() == Format::Other, "{name} cut to {len}");
        }
    }
}

#[test]
fn a_datagram_that_claims_no_rh_is_standard_without() {
    let ip = "45 21 00 1C 00 01 40 00 40 11 00 00 0A 00 00 01 0A 00 00 02 ";
    #[rustfmt::skip] // columns: name, UDP header, length of the frame, RH or the error
    let cases = [
        ("empty datagram",        "C0 00 12 B7 00 08 00 00", 42, Ok(None)),
        ("empty, padded",         "C0 00 12 B7 00 08 00 00", 60, Ok(None)),
        ("7 bytes",              "C0 00 12 B7 00 0F 00 00", 49, Ok(None)),
        ("8 bytes, all there",   "C0 00 12 B7 00 10 00 00", 50, Ok(Some(RhOpcode::Send))),
        ("8 bytes, one missing", "C0 00 12 B7 00 10 00 00", 49, Err(ParseError::short(Layer::Rh, 50, 49))),
    ];
    for (name, udp, len, want) in cases {
        let found = frame(&[MACS, "08 00", ip, udp]).padded(len).cut(len).parse(&CFG);
        assert_eq!(found.map(|head| head.rh_opcode()), want, "{name}");
        if let Ok(head) = found {
            assert_eq!(
                (head.format(), head.to_standard_port()),
                (Format::Standard, true),
                "{name}"
            );
        }
    }
}

#[test]
fn rh_opcode_of_every_format() {
    let opcodes = [RhOpcode::Send, RhOpcode::Ack, RhOpcode::Cnp, RhOpcode::Reserved];
    for (bits, want) in (0u8..).zip(opcodes) {
        for (mut frame, at) in [(standard(), 42), (gen1(), 14), (gen2_slap(), 14)] {
            frame.bytes[at] = bits << 6 | 0x3F;
            assert_eq!(frame.parse(&CFG).unwrap().rh_opcode(), Some(want));
        }
    }
}

#[test]
fn bytes_beyond_the_frame_are_never_looked_at() {
    let mut rng = Rng::new(20);
    let kinds: [u16; 7] = [0x0800, 0x86DD, 0x8100, 0x8808, 0x88B5, 0x88B6, 0x0806];
    let modes = [AfhMode::None, AfhMode::Gen1, AfhMode::Gen2, AfhMode::Lite, AfhMode::Auto];
    for _ in 0..200_000 {
        let mut bytes: [u8; HEAD_LEN] = rng.bytes();
        let kind = |rng: &mut Rng| kinds[usize::try_from(rng.below(7)).unwrap()].to_be_bytes();
        bytes[12..14].copy_from_slice(&kind(&mut rng));
        bytes[16..18].copy_from_slice(&kind(&mut rng));
        for at in [14, 18] {
            bytes[at] = [0x45, 0x60, 0x46, bytes[at]][usize::try_from(rng.below(4)).unwrap()];
        }
        let len = usize::try_from(rng.below(80)).unwrap();
        let afh = modes[usize::try_from(rng.below(5)).unwrap()];
        let cfg = if rng.bool() { mode(afh) } else { documented(afh) };
        let mut zeroed = bytes;
        zeroed[len.min(HEAD_LEN)..].fill(0);
        let found = parse_head(&zeroed, len, &cfg);
        assert_eq!(parse_head(&bytes, len, &cfg), found, "{bytes:02x?} {len}");
        match found {
            Err(ParseError::Short { need, had, .. }) => {
                assert!(had < need && usize::from(had) == len, "{found:?}");
            }
            Err(ParseError::Value { .. }) => panic!("classification refuses by length only"),
            Ok(head) => {
                assert_ne!(head.format(), Format::Pbr);
                assert!(!head.broadcast() || head.group());
                assert_eq!(head.individual(), !head.group() && !head.reserved_group());
                assert_eq!(AddrKey::from_bits(head.dst().to_bits()), Some(head.dst()));
            }
        }
    }
}

#[test]
fn exp_of_the_top_label_is_found_behind_the_tag_that_the_port_reads() {
    const LABELS: &str = "00 01 0A 40  00 02 07 3F "; // EXP 5, then 3 at the bottom
    let exp = |pieces: &[&str], cfg: &ParseConfig| {
        let head = frame(pieces).padded(60).parse(cfg).unwrap();
        assert_eq!((head.format(), head.dscp(), head.ip_proto()), (Format::Other, None, 0));
        head.exp().map(Exp::get)
    };
    assert_eq!(exp(&[MACS, "88 47", LABELS], &CFG), Some(5));
    assert_eq!(exp(&[MACS, "88 48", LABELS], &CFG), Some(5));
    assert_eq!(exp(&[MACS, "81 00 60 64 88 47", LABELS], &CFG), Some(5));
    assert_eq!(exp(&[MACS, "88 A8 60 64 88 47", LABELS], &CFG), None, "another TPID");
    assert_eq!(exp(&[MACS, "81 00 60 64 81 00 00 05 88 47", LABELS], &CFG), None, "a second tag");
    assert_eq!(exp(&[MACS, "88 49", LABELS], &CFG), None, "another EtherType");
    let found = frame(&[MACS, "88 47", LABELS]).padded(60).parse(&LITE).unwrap();
    assert_eq!((found.format(), found.exp()), (Format::AfhLite, None), "Lite has no EtherType");
    let afh = ParseConfig { mac_type1: 0x8847, ..mode(AfhMode::Gen1) };
    let found = frame(&[MACS, "88 47", LABELS]).padded(60).parse(&afh).unwrap();
    assert_eq!((found.format(), found.exp()), (Format::AfhGen1, None), "the port's own EtherType");
}

#[test]
fn a_label_that_is_cut_short_is_not_carried_and_harms_nothing() {
    for (whole, offset) in [
        (frame(&[MACS, "88 47 FF FF FF FF"]), 14),
        (frame(&[MACS, "81 00 60 64 88 47 FF FF FF FF"]), 18),
    ] {
        for len in offset..=offset + 4 {
            let head = whole.cut(len).parse(&CFG).unwrap();
            let want = (len == offset + 4).then_some(7);
            assert_eq!(head.exp().map(Exp::get), want, "{len}");
            assert_eq!(head.carries() & PriSource::Exp.bit() != 0, want.is_some(), "{len}");
            assert_eq!(head.tagged(), offset == 18);
        }
    }
}

/// Classification reads the codes by which the views know them.
#[test]
fn codes_are_those_of_the_fields() {
    let mut rng = Rng::new(5);
    for _ in 0..20_000 {
        let mut bytes: [u8; HEAD_LEN] = rng.bytes();
        let kinds: [u16; 6] = [0x0800, 0x86DD, 0x88B5, 0x8847, 0x8848, 0x8100];
        let kind = |rng: &mut Rng| kinds[usize::from(rng.u16()) % kinds.len()].to_be_bytes();
        bytes[12..14].copy_from_slice(&kind(&mut rng));
        bytes[16..18].copy_from_slice(&kind(&mut rng));
        let Ok(head) = parse_head(&bytes, HEAD_LEN, &CFG) else { continue };
        let want = [
            head.tci().map(|tci| tci.pcp().get()),
            head.dscp().map(Dscp::get),
            head.tc().map(|tc| tc.0 >> 2),
            head.exp().map(Exp::get),
        ];
        for (source, want) in PriSource::ALL.into_iter().zip(want) {
            assert_eq!(head.carries() & source.bit() != 0, want.is_some(), "{source:?}");
            if let Some(want) = want {
                assert_eq!(head.code(source), usize::from(want), "{source:?}");
            }
            assert!(head.code(source) < PriSource::CODES_MAX);
        }
    }
}
