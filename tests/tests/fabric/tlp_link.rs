//! TLPs in the frames that an independent maker wrote from the page alone.
//!
//! `pcaps/tlp/link.pcap` frame by frame; the fields of frame i follow from i as in `tests/py/make_tlp.py`.
//!
//! Units: bytes.
//! Source: docs/spec/wire-formats.md §3.1, §3.5, §3.7, §3.7a.

use std::path::Path;

use weft_dataplane::port::capture::{CaptureReader, Record};
use weft_parsers::ethernet::Ethernet;
use weft_parsers::fabric::{Bdf, Hpa, Pid};
use weft_parsers::tlp::{Kind, Mode, Oui, PbrTlp, Protocol, Pth, Tlp, TlpLink, VendPrefixL0};
use weft_parsers::vlan::VlanTag;
use weft_parsers::{Vid, ether_type};

fn check(number: u16, tlp: &Tlp<'_>, link: Protocol) {
    let i = u64::from(number);
    let (write, extra) = (number / 3 % 2 == 1, number / 6 % 2 == 1);
    let kind = match (link, write) {
        (Protocol::Pbr, false) => Kind::UioRead,
        (Protocol::Pbr, true) => Kind::UioWrite,
        (_, false) => Kind::MemRead,
        (_, true) => Kind::MemWrite,
    };
    let attr = if tlp.is_uio() { 0 } else { number / 3 % 8 };
    assert_eq!(tlp.kind(), kind, "{number}");
    assert_eq!((u16::from(tlp.tc()), u16::from(tlp.attr().bits())), (number % 8, attr));
    assert_eq!(tlp.requester(), Bdf::from_bits(number.wrapping_mul(0x0101)), "{number}");
    assert_eq!((tlp.tag(), tlp.length_dw()), (number * 37 % 1_024, 2 + number % 14), "{number}");
    let addr = 0x1_0000_0000 + i * 4_096 + i % 5 * 4;
    assert_eq!(tlp.addr(), Some(Hpa(addr & !3)), "{number}");
    let data = if write { usize::from(tlp.length_dw()) * 4 } else { 0 };
    assert_eq!(tlp.payload(), vec![number.to_be_bytes()[1]; data], "{number}");
    let flit = tlp.mode() == Mode::Flit;
    assert_eq!(tlp.ln(), !flit && number % 2 == 1, "{number}");
    let pasid = (flit && extra).then(|| i * 10_007 % (1 << 20));
    assert_eq!(tlp.pasid().map(|pasid| u64::from(pasid.pasid)), pasid, "{number}");
    let enables = if flit && extra { (0xE, 0x7) } else { (0xF, 0xF) };
    assert_eq!((tlp.first_be(), tlp.last_be()), enables, "{number}");
    let prefix = (!flit && extra).then(|| VendPrefixL0::from_ld_id(number));
    assert_eq!(tlp.vend_prefix(), prefix, "{number}");
}

#[test]
fn every_frame_reads_as_it_was_meant() {
    let kept = Path::new(env!("CARGO_MANIFEST_DIR")).join("../pcaps/tlp/link.pcap");
    let mut reader = CaptureReader::open(kept).unwrap();
    let mut record = Record::default();
    let mut number = 0;
    while reader.read_into(&mut record).unwrap() {
        let frame = &record.data;
        let (ethernet, _) = Ethernet::parse(frame).unwrap();
        let tagged = ethernet.ether_type() == ether_type::CTAG;
        assert_eq!(tagged, number % 4 == 0);
        let at = if tagged { 16 } else { 12 };
        if tagged {
            let (tag, _) = VlanTag::parse(&frame[14..]).unwrap();
            assert_eq!(tag.tci().vid(), Vid::from_low_bits(100));
        }
        let (link, rest) = TlpLink::parse(&frame[at..], Oui::DEFAULT).unwrap();
        match (number % 3, link.protocol) {
            (0, Protocol::Pbr) => {
                let found = PbrTlp::parse(rest).unwrap().unwrap();
                let want = Pth {
                    pif: number & 1 == 1,
                    dsar: number >> 1 & 1 == 1,
                    hie: number >> 2 & 1 == 1,
                    spid: Pid::from_low_bits(number * 41 % 4_095),
                    dpid: Pid::from_low_bits(number * 89 % 4_095),
                };
                assert_eq!((found.pth(), found.pth_at()), (want, usize::from(number % 9 == 0) * 4));
                check(number, found.tlp(), link.protocol);
            }
            (1, Protocol::HbrFlit) => {
                check(number, &Tlp::parse(Mode::Flit, rest).unwrap(), link.protocol);
            }
            (2, Protocol::HbrNonFlit) => {
                check(number, &Tlp::parse(Mode::NonFlit, rest).unwrap(), link.protocol);
            }
            (_, other) => panic!("{number}: {other:?}"),
        }
        number += 1;
    }
    assert_eq!(number, 96);
}
