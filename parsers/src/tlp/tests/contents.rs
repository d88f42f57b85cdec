//! Vendor-defined messages, Lightweight Notification.

use super::*;
use crate::testing::Rng;
use ln::{LineSize, LnMessage, LnRequest, LnrCapability, Reason};
use vdm::{PartnerInfo, RtPair};

#[test]
fn worked_vdms_both_ways() {
    let op = |op, seq_len, cmd_seq| PbrVdm { seq_len, cmd_seq, ..PbrVdm::new(op, &[]) };
    let request = PbrVdm { cmd_seq: 1, ..PbrVdm::new(VdmOp::DcReq, &[0; 128]) };
    #[rustfmt::skip] // columns: bytes, zeros behind them, message
    let cases = [
        ("34 00 00 00 00 00 00 7E 00 00 1E 98 40 10 00 A0", 0, op(VdmOp::DpCmd, 64, 1)),
        ("34 00 00 00 00 00 00 7E 00 00 1E 98 40 10 01 A1", 0, op(VdmOp::UcPull, 64, 1)),
        ("74 00 00 20 00 00 00 7E 00 00 1E 98 00 10 02 A0", 128, request),
        ("34 00 00 00 00 00 00 7E 00 00 1E 98 00 00 01 80", 0, op(VdmOp::AssertReset, 0, 0)),
    ];
    for (text, zeros, want) in cases {
        let bytes = hex_and_zeros(text, zeros);
        let tlp = Tlp::parse(Flit, &bytes).unwrap();
        assert_eq!(PbrVdm::parse(&tlp), Ok(want));
        let mut out = [0; 256];
        let len = want.repr().emit(&mut out).unwrap();
        assert_eq!(out[..len], *bytes, "{want:?}");
    }
    let reset = hex("C6 01 00 20 34 00 00 00 00 00 00 7E 00 00 1E 98 00 00 01 80");
    let found = PbrTlp::parse(&reset).unwrap().unwrap();
    let pth = found.pth();
    assert_eq!(
        (pth.hie, pth.dsar, pth.pif, pth.spid.bits(), pth.dpid.bits()),
        (true, true, false, 0x010, 0x020)
    );
    assert_eq!(PbrVdm::parse(found.tlp()).unwrap().op, VdmOp::AssertReset);
    let mut out = [0; 20];
    let len = pth::emit_pbr(pth, &PbrVdm::new(VdmOp::AssertReset, &[]).repr(), &mut out).unwrap();
    assert_eq!((len, &out[..]), (20, &*reset));
}

#[test]
fn every_vdm_has_its_codes_and_its_payload() {
    let payload = [0x5A; 4 * 40];
    for op in VdmOp::ALL {
        let (code, opcode) = op.codes();
        assert_eq!(VdmOp::decode(code, opcode), Some(op));
        let (least, most) = op.payload_dws();
        for dws in 0..=40 {
            let vdm = PbrVdm::new(op, &payload[..dws * 4]);
            let mut out = [0; 256];
            let len = vdm.repr().emit(&mut out).unwrap();
            let tlp = Tlp::parse(Flit, &out[..len]).unwrap();
            let want = if (least..=most).contains(&dws) {
                Ok(vdm)
            } else {
                let value = dws.try_into().unwrap();
                Err(ParseError::Value { layer: Layer::Vdm, field: Field::TlpLength, value })
            };
            assert_eq!(PbrVdm::parse(&tlp), want, "{op:?} of {dws} DW");
        }
    }
}

#[test]
fn other_messages_are_no_vdms() {
    #[rustfmt::skip] // columns: name, bytes, field
    let cases = [
        ("no message",     "22 00 00 02 00 00 00 00 00 00 00 00 00 00 00 00", Field::TlpType),
        ("other vendor",   "34 00 00 00 00 00 00 7E 00 00 1E 99 00 00 01 80", Field::VendorId),
        ("no VDM",         "34 00 00 00 00 00 00 7D 00 00 1E 98 00 00 01 80", Field::VendorId),
        ("unknown opcode", "34 00 00 00 00 00 00 7E 00 00 1E 98 00 00 02 80", Field::VdmCode),
        ("type 1",         "34 00 00 00 00 00 00 7F 00 00 1E 98 00 00 01 80", Field::TlpType),
        ("to the root",    "30 00 00 00 00 00 00 7E 00 00 1E 98 00 00 01 80", Field::TlpType),
    ];
    for (name, text, want) in cases {
        let bytes = hex(text);
        match PbrVdm::parse(&Tlp::parse(Flit, &bytes).unwrap()) {
            Err(ParseError::Value { layer: Layer::Vdm, field, .. }) => {
                assert_eq!(field, want, "{name}");
            }
            other => panic!("{name}: {other:?}"),
        }
    }
}

#[test]
fn partner_info_and_pairs_both_ways() {
    let mut rng = Rng::new(7);
    for _ in 0..500 {
        let info = PartnerInfo {
            port: rng.u8(),
            far_port: rng.u8(),
            uuid: rng.bytes(),
            vcs: rng.u8(),
            uio_vcs: rng.u8(),
            primary_fm: rng.bytes(),
            secondary_fm: rng.bytes(),
            ..PartnerInfo::new(Pid::from_low_bits(rng.u16()), rng.u8() & 0xF)
        };
        let bytes = info.emit();
        assert_eq!(PartnerInfo::decode(&bytes), Ok(info));
        crate::testing::refuses_shorter_of(&bytes, Layer::TlpPayload, |part| {
            PartnerInfo::decode(part).err()
        });
        let pair = RtPair { pid: Pid::from_low_bits(rng.u16()), cache_id: rng.u8() & 0xF };
        assert_eq!(RtPair::decode(pair.emit()), pair);
    }
    let info =
        PartnerInfo { uio_vcs: 8, ..PartnerInfo::new(Pid::from_low_bits(0x0A1), PartnerInfo::GFD) };
    let bytes = info.emit();
    assert_eq!((bytes[2], bytes[3], bytes[21]), (0xA1, 0x10, 8));
    assert_eq!((info.pid.bits(), info.component_type), (0x0A1, 1));
    let mut pairs = RtPair::all(&[0xA1, 0x50, 0xFF, 0x0F]);
    assert_eq!(pairs.next(), Some(RtPair { pid: Pid::from_low_bits(0x0A1), cache_id: 5 }));
    assert_eq!(pairs.next(), None, "FFF means nothing");
}

#[test]
fn worked_notifications_are_built_and_read() {
    let (requester, addr) = (Bdf::new(1, 0, 0), Hpa(0x1_2345_6780));
    let directed = LnMessage { dest: Some(requester), reason: Reason::Evicted, line: addr };
    let broadcast = LnMessage { dest: None, reason: Reason::Updated, line: addr };
    let (one, all) = (directed.payload(), broadcast.payload());
    #[rustfmt::skip] // columns: bytes, fields
    let cases = [
        ("20 02 00 10 01 00 21 FF 00 00 00 01 23 45 67 80", ln::read(requester, 0x21, addr, 16)),
        ("20 02 00 01 01 00 22 00 00 00 00 01 23 45 67 80", ln::probe(requester, 0x22, addr)),
        ("60 02 00 01 01 00 00 00 00 00 00 01 23 45 67 80 00 00 00 00", ln::deregister(requester, addr)),
        ("72 00 00 02 00 00 00 7F 01 00 00 01 00 00 00 01 00 00 00 01 23 45 67 80", directed.repr(Bdf::default(), &one)),
        ("73 00 00 02 00 00 00 7F 00 00 00 01 00 00 00 00 00 00 00 01 23 45 67 80", broadcast.repr(Bdf::default(), &all)),
    ];
    for (text, repr) in cases {
        let mut out = [0; 64];
        let len = repr.emit(&mut out).unwrap();
        assert_eq!(out[..len], *hex(text));
        assert_eq!(Tlp::parse(NonFlit, &out[..len]).unwrap().repr(), repr);
    }
    let asks = |text: &str, size| {
        let bytes = hex(text);
        ln::request(&Tlp::parse(NonFlit, &bytes).unwrap(), size)
    };
    let line = |what| Ok(Some((what, addr)));
    assert_eq!(asks(cases[0].0, LineSize::L64), line(LnRequest::Read));
    assert_eq!(asks(cases[1].0, LineSize::L128), line(LnRequest::Probe));
    assert_eq!(asks(cases[2].0, LineSize::L64), line(LnRequest::Deregister));
    let crossing = "20 02 00 10 01 00 21 FF 00 00 00 01 23 45 67 84";
    assert!(asks(crossing, LineSize::L64).is_err() && asks(crossing, LineSize::L128).is_ok());
    let message = |text: &str| {
        let bytes = hex(text);
        LnMessage::parse(&Tlp::parse(NonFlit, &bytes).unwrap())
    };
    assert_eq!(message(cases[3].0), Ok(Some(directed)));
    assert_eq!(message(cases[4].0), Ok(Some(broadcast)));
    assert_eq!(message(cases[0].0), Ok(None));
    let reserved = "73 00 00 02 00 00 00 7F 00 00 00 01 00 00 00 03 00 00 00 01 23 45 67 80";
    assert!(message(reserved).is_err(), "NR 11");
}

#[test]
fn the_worked_capability_both_ways() {
    let bytes = [0x1C, 0x00, 0x01, 0x00, 0x01, 0x13, 0x01, 0x13];
    let want = LnrCapability {
        lines_64: true,
        registration_max: 19,
        is_enabled: true,
        registration_limit: 19,
        ..LnrCapability::default()
    };
    assert_eq!((LnrCapability::decode(bytes), want.emit()), (Some(want), bytes));
    assert_eq!(LnrCapability::decode([0x1D, 0, 1, 0, 0, 0, 0, 0]), None);
    let next = LnrCapability { next: 0x150, ..want };
    assert_eq!(LnrCapability::decode(next.emit()), Some(next));
}
