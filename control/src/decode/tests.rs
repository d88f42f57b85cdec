//! The worked frames of docs/spec/wire-formats.md §1 as lines and fields.

use super::*;

fn bytes(hex: &str, payload: usize) -> Vec<u8> {
    let digits: Vec<u8> = hex.bytes().filter(u8::is_ascii_hexdigit).collect();
    let pairs = digits.chunks(2).map(|pair| std::str::from_utf8(pair).unwrap());
    let mut frame: Vec<u8> = pairs.map(|pair| u8::from_str_radix(pair, 16).unwrap()).collect();
    frame.extend((0..payload).map(|i| u8::try_from(i % 256).unwrap()));
    frame
}

const STANDARD: &str = "02 00 00 00 00 02 02 00 00 00 00 01 08 00  45 21 00 68 00 01 40 00 40 11 26 61 0A 00 00 01 0A 00 00 02 C0 00 12 B7 00 54 FF FF  21 12 34 5A 90 15 61 23";
const GEN1: &str = "02 00 00 00 00 02  20  00 00 00 00 01  88 B5  21 12 34 5A 90 15 61 23";
const GEN2: &str = "82 A1 A2 A3 00 02  20 B1 B2 B3 00 01  88 B5  21 12 34 5A 90 15 61 23";
const GEN2_DOC: &str = "20 A1 A2 A3 00 02  82 B1 B2 B3 00 01  88 B5  21 12 34 5A 90 15 61 23";
const ACK: &str = "82 00 00 00 00 01  24 00 00 00 00 02  88 B5  41 12 34 5A 3E 15 60 45";
const LITE: &str = "82 00 00 00 00 02 40 00 2A 00 00 01";
const UIO: &str = "02 00 00 00 00 02 02 00 00 00 00 01 88 B7 02 57 46 00 01 10 C1 0A 11 23 22 00 00 10 01 00 00 05 00 00 01 23 45 67 BA 40";
const UR: &str = "02 00 00 00 00 02 02 00 00 00 00 01 88 B7 02 57 46 00 03 10 0A 00 00 00 00 00 20 40 01 00 21 00";
const LN: &str = "02 00 00 00 00 02 02 00 00 00 00 01 88 B7 02 57 46 00 03 10 20 02 00 10 01 00 21 FF 00 00 00 01 23 45 67 80";
const CFG: &str = "02 00 00 00 00 02 02 00 00 00 00 01 88 B7 02 57 46 00 02 10 04 01 00 01 00 00 00 01 02 00 00 00 00 00 00 0F";
const VDM: &str = "02 00 00 00 00 02 02 00 00 00 00 01 88 B7 02 57 46 00 01 10 C6 01 00 20 34 00 00 00 00 00 00 7E 00 00 1E 98 00 00 01 80";
const CUT: &str = "02 00 00 00 00 02 02 00 00 00 00 01 88 B7 02 57 46 00 02 10 04 01 00 01";
const PFC: &str = "01 80 C2 00 00 01 02 00 00 00 00 01 88 08 01 01 00 0A 00 00 FF FF 00 00 00 00 00 00 00 00 00 00 00 00";

#[test]
fn worked_frames_are_read_as_the_design_says() {
    let any = ParseConfig::DEFAULT;
    let lite = ParseConfig { afh: AfhMode::Lite, ..any };
    let rh = "rh send psn 171 qp 291 fack payload 64";
    #[rustfmt::skip] // columns: name, bytes, payload, config, want
    let cases = [
        ("standard", STANDARD, 68, any,
         "standard 02:00:00:00:00:01 > 02:00:00:00:00:02 len 118 10.0.0.1:49152 > 10.0.0.2:4791 dscp 8 ecn ect1 rh send psn 171 qp 291 fack payload 68".to_owned()),
        ("gen1", GEN1, 64, any, format!("gen1 gen1:0000000001 > gen1:0000000002 len 86 tc 0x20 vc 1 flow 0 {rh}")),
        ("gen2", GEN2, 64, any, format!("gen2 id:0001 > id:0002 len 86 tc 0x20 vc 1 flow 0 key_words 0x82 {rh}")),
        ("gen2 as documented", GEN2_DOC, 64, any, format!("gen2 id:0001 > id:0002 len 86 tc 0x20 vc 1 flow 0 key_words 0x82 {rh}")),
        ("ack", ACK, 38, any, "gen2 id:0002 > id:0001 len 60 tc 0x24 vc 1 flow 1 key_words 0x82 rh ack psn 171 qp 69 syndrome 0x1f payload 38".to_owned()),
        ("lite", LITE, 64, lite, "lite id:0001 > id:0002 len 76 tc 0x40 vc 2 flow 0 key_words 0x82 xpu 0x2a payload 64".to_owned()),
        ("pfc", PFC, 26, any, "mac_control 02:00:00:00:00:01 > 01:80:c2:00:00:01 len 60 pfc class 1: 65535 class 3: 0 payload 44".to_owned()),
        ("uio", UIO, 20, any, "pbr 02:00:00:00:00:01 > 02:00:00:00:00:02 len 60 pbr 0a1 > 123 pif UIOMRd tc 0 01:00.0 tag 5 to 0x1234567ba40 16 DW payload 0".to_owned()),
        ("ur", UR, 0, any, "pbr 02:00:00:00:00:01 > 02:00:00:00:00:02 len 32 hbr non-flit Cpl tc 0 by 00:00.0 for 01:00.0 tag 33 UR payload 0".to_owned()),
        ("ln", LN, 0, any, "pbr 02:00:00:00:00:01 > 02:00:00:00:00:02 len 36 hbr non-flit MRd tc 0 01:00.0 tag 33 to 0x123456780 16 DW ln payload 0".to_owned()),
        ("config", CFG, 0, any, "pbr 02:00:00:00:00:01 > 02:00:00:00:00:02 len 36 hbr flit CfgRd0 tc 0 00:00.0 tag 1 to 02:00.0 register 0x000 1 DW payload 0".to_owned()),
        ("reset", VDM, 0, any, "pbr 02:00:00:00:00:01 > 02:00:00:00:00:02 len 40 pbr 010 > 020 hie dsar Msg tc 0 AssertReset 00:00.0 to here payload 0".to_owned()),
        ("cut off", CUT, 0, any, "pbr 02:00:00:00:00:01 > 02:00:00:00:00:02 len 24 hbr flit payload 10 ERROR tlp: needs 12 bytes, has 4".to_owned()),
        ("mpls", "02 00 00 00 00 02 02 00 00 00 00 01 88 47 00 01 0B 40", 42, any, "other 02:00:00:00:00:01 > 02:00:00:00:00:02 len 60 mpls 16 exp 5 ttl 64 bottom type 0x8847 payload 46".to_owned()),
        ("mpls behind a tag", "02 00 00 00 00 02 02 00 00 00 00 01 81 00 60 64 88 48 00 01 06 01", 38, any, "other 02:00:00:00:00:01 > 02:00:00:00:00:02 len 60 vlan 100 pcp 3 mpls 16 exp 3 ttl 1 type 0x8848 payload 42".to_owned()),
        ("mpls cut short", "02 00 00 00 00 02 02 00 00 00 00 01 88 47 00 01 0B", 0, any, "other 02:00:00:00:00:01 > 02:00:00:00:00:02 len 17 type 0x8847 payload 3".to_owned()),
        ("other", "FFFFFFFFFFFF 020000000001 0806", 46, any, "other 02:00:00:00:00:01 > ff:ff:ff:ff:ff:ff len 60 type 0x0806 payload 46".to_owned()),
        ("ipv4 cut short", "FFFFFFFFFFFF 020000000001 0800 45 00 00", 0, any, "other 02:00:00:00:00:01 > ff:ff:ff:ff:ff:ff len 17 type 0x0800 payload 3 ERROR ipv4: needs 20 bytes, has 3".to_owned()),
        ("options cut short", "FFFFFFFFFFFF 020000000001 0800 46 00 00 18", 16, any, "other 02:00:00:00:00:01 > ff:ff:ff:ff:ff:ff len 34 type 0x0800 payload 20 ERROR ipv4: needs 24 bytes, has 20".to_owned()),
        ("ipv6 cut short", "FFFFFFFFFFFF 020000000001 81 00 00 05 86DD 60 00", 37, any, "other 02:00:00:00:00:01 > ff:ff:ff:ff:ff:ff len 57 vlan 5 pcp 0 type 0x86dd payload 39 ERROR ipv6: needs 40 bytes, has 39".to_owned()),
        ("udp cut short", "FFFFFFFFFFFF 020000000001 0800 45 00 00 20 00 00 00 00 40 11", 17, any, "other 02:00:00:00:00:01 > ff:ff:ff:ff:ff:ff len 41 2.3.4.5 > 6.7.8.9 proto 17 dscp 0 ecn not-ect BAD IP CHECKSUM payload 7 ERROR ip: claims 32 bytes, has 27".to_owned()),
        ("another version", "FFFFFFFFFFFF 020000000001 0800 60", 45, any, "other 02:00:00:00:00:01 > ff:ff:ff:ff:ff:ff len 60 type 0x0800 payload 46".to_owned()),
        ("short", "FFFFFFFFFFFF 020000000001 08", 0, any, "malformed len 13 ERROR ethernet: needs 14 bytes, has 13".to_owned()),
    ];
    for (name, hex, payload, config, want) in cases {
        let decoded = decode(&bytes(hex, payload), &config);
        assert_eq!(decoded.to_string(), want, "{name}");
    }
}

#[test]
fn tags_and_claims_are_told() {
    let mut frame = bytes(STANDARD, 68);
    frame.splice(12..12, [0x81, 0x00, 0x60, 0x64]);
    let decoded = decode(&frame, &ParseConfig::DEFAULT);
    assert_eq!(decoded.vlan, Some(VlanFields { pcp: 3, dei: false, vid: 100 }));
    assert_eq!(decoded.ether_type.as_deref(), Some("0x0800"));
    assert_eq!(decoded.ip.as_ref().unwrap().is_checksum_ok, Some(true));
    frame[18 + 8] ^= 1; // time to live
    assert_eq!(decode(&frame, &ParseConfig::DEFAULT).ip.unwrap().is_checksum_ok, Some(false));
    frame.truncate(100);
    let error = decode(&frame, &ParseConfig::DEFAULT).error.unwrap();
    assert_eq!(error, "ip: claims 104 bytes, has 82");
    frame.resize(200, 0);
    assert_eq!(decode(&frame, &ParseConfig::DEFAULT).padding_len, Some(200 - 18 - 104));
}

#[test]
fn every_byte_is_in_one_field() {
    let lite = ParseConfig { afh: AfhMode::Lite, ..ParseConfig::DEFAULT };
    for (hex, config) in [
        (STANDARD, ParseConfig::DEFAULT),
        (GEN1, ParseConfig::DEFAULT),
        (GEN2, ParseConfig::DEFAULT),
        (LITE, lite),
        (PFC, ParseConfig::DEFAULT),
    ] {
        let frame = bytes(hex, 100);
        for len in 0..=frame.len() {
            let fields = field_spans(&frame[..len], &config);
            let mut at = 0;
            for field in &fields {
                assert_eq!(field.start, at, "{hex} cut to {len}: {field:?}");
                assert!(field.end > field.start);
                at = field.end;
            }
            assert_eq!(at, len, "{hex} cut to {len}");
        }
    }
    let fields = field_spans(&bytes(STANDARD, 68), &ParseConfig::DEFAULT);
    let tos = fields.iter().find(|field| field.name == "ip.tos").unwrap();
    assert_eq!((tos.start, tos.end), (15, 16));
    let psn = fields.iter().find(|field| field.name.contains("rh.psn")).unwrap();
    assert_eq!((psn.start, psn.end), (46, 49));
}

/// 50,000 seeded frames of every kind of damage: none panics, each has one line.
#[test]
fn damaged_frames_are_read_without_panic() {
    let seed = 0xDEC0;
    let mut rng = weft_base::rng::Rng::new(seed);
    let modes = [AfhMode::Auto, AfhMode::None, AfhMode::Gen1, AfhMode::Gen2, AfhMode::Lite];
    let worked = [STANDARD, GEN1, GEN2, GEN2_DOC, LITE, PFC].map(|hex| bytes(hex, 70));
    let below =
        |rng: &mut weft_base::rng::Rng, n: usize| usize::try_from(rng.below(n as u64)).unwrap();
    for round in 0..50_000 {
        let mut frame = worked[below(&mut rng, worked.len())].clone();
        for _ in 0..below(&mut rng, 6) {
            let at = below(&mut rng, frame.len().min(64));
            frame[at] = u8::try_from(rng.below(256)).unwrap();
        }
        frame.truncate(below(&mut rng, frame.len() + 1));
        let config =
            ParseConfig { afh: modes[below(&mut rng, modes.len())], ..ParseConfig::DEFAULT };
        let text = decode(&frame, &config).to_string();
        assert!(!text.contains('\n'), "seed {seed:#x} round {round}: {text}");
        let covered: usize =
            field_spans(&frame, &config).iter().map(|field| field.end - field.start).sum();
        assert_eq!(covered, frame.len(), "seed {seed:#x} round {round}");
    }
}
