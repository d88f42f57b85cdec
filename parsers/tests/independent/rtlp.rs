//! TLPs held against rtlp-lib, which shares no code with this crate.
//! Seeded random bytes behind every first byte; both readers must agree on type and fields.
//!
//! Units: bytes.
//! Source: rtlp-lib 0.5.1. It differs from docs/spec/wire-formats.md §3, and the test steps around it, in these:
//! messages may have 3 DW; a flit-mode message has a base header of 3 DW; OHC-E counts as one DW for each of its two
//! bits; digest and trailer have no length; an address keeps its last two bits; 13 flit-mode types are known.

#![expect(clippy::unwrap_used, reason = "a test may panic; helpers outside test functions too")]

use rtlp_lib::{
    FlitDW0, FlitOhcA, FlitTlpType, TlpFmt, TlpMode, TlpPacket, TlpType, new_cmpl_req,
    new_conf_req, new_mem_req, new_msg_req,
};
use weft_parsers::Field;
use weft_parsers::ParseError;
use weft_parsers::fabric::{Bdf, Hpa};
use weft_parsers::tlp::{Kind, Mode, Route, Tlp};

/// Seeded random numbers (xorshift64).
struct Rng(u64);

impl Rng {
    fn u64(&mut self) -> u64 {
        self.0 ^= self.0 << 13;
        self.0 ^= self.0 >> 7;
        self.0 ^= self.0 << 17;
        self.0
    }

    /// 160 random bytes of which the second half of DW0 asks for little.
    fn bytes(&mut self, first: u8) -> [u8; 160] {
        let mut bytes = std::array::from_fn(|_| self.u64().to_be_bytes()[3]);
        bytes[0] = first;
        bytes[2] &= 0xFC;
        bytes[3] %= 16;
        bytes
    }
}

/// Our kind in the other's words.
const fn type_of(kind: Kind) -> Option<TlpType> {
    Some(match kind {
        Kind::MemRead => TlpType::MemReadReq,
        Kind::MemReadLocked => TlpType::MemReadLockReq,
        Kind::MemWrite => TlpType::MemWriteReq,
        Kind::DeferrableMemWrite => TlpType::DeferrableMemWriteReq,
        Kind::IoRead => TlpType::IOReadReq,
        Kind::IoWrite => TlpType::IOWriteReq,
        Kind::CfgRead { type1: false } => TlpType::ConfType0ReadReq,
        Kind::CfgRead { type1: true } => TlpType::ConfType1ReadReq,
        Kind::CfgWrite { type1: false } => TlpType::ConfType0WriteReq,
        Kind::CfgWrite { type1: true } => TlpType::ConfType1WriteReq,
        Kind::Completion { locked: false, data: false } => TlpType::Cpl,
        Kind::Completion { locked: false, data: true } => TlpType::CplData,
        Kind::Completion { locked: true, data: false } => TlpType::CplLocked,
        Kind::Completion { locked: true, data: true } => TlpType::CplDataLocked,
        Kind::Message { data: false, .. } => TlpType::MsgReq,
        Kind::Message { data: true, .. } => TlpType::MsgReqData,
        Kind::FetchAdd => TlpType::FetchAddAtomicOpReq,
        Kind::Swap => TlpType::SwapAtomicOpReq,
        Kind::Cas => TlpType::CompareSwapAtomicOpReq,
        _ => return None,
    })
}

#[test]
fn first_bytes_mean_the_same_without_flits() {
    for first in 0..=0xFF {
        let ours = Kind::decode(Mode::NonFlit, first).map(|(kind, _)| kind);
        let packet = TlpPacket::new(vec![first, 0, 0, 1], TlpMode::NonFlit).unwrap();
        let theirs = packet.tlp_type().ok().filter(|_| {
            let message_of_3_dw = matches!(first, 0x10..=0x15 | 0x50..=0x55);
            !message_of_3_dw && packet.tlp_format() != Ok(TlpFmt::TlpPrefix)
        });
        assert_eq!(ours.and_then(type_of), theirs, "{first:02x}");
        if let (Some(ours), Some(theirs)) = (ours, theirs) {
            let non_posted = ours.wants_completion();
            assert_eq!(non_posted, theirs.is_non_posted(), "{first:02x}");
        }
    }
}

/// Fields behind DW0, by the other's views.
fn compare(tlp: &Tlp<'_>, packet: &TlpPacket) {
    let low = |tag: u16| tag.to_be_bytes()[1];
    let data = packet.data();
    match tlp.kind() {
        Kind::Message { .. } => {
            let theirs = new_msg_req(data).unwrap();
            assert_eq!(tlp.requester(), Bdf::from_bits(theirs.req_id()));
            assert_eq!(
                (low(tlp.tag()), tlp.message_code()),
                (theirs.tag(), Some(theirs.msg_code()))
            );
            assert_eq!(tlp.message_dws(), Some((theirs.dw3(), theirs.dw4())));
        }
        Kind::Completion { .. } => {
            let theirs = new_cmpl_req(data).unwrap();
            assert_eq!(tlp.requester(), Bdf::from_bits(theirs.req_id()));
            assert_eq!(tlp.completer(), Some(Bdf::from_bits(theirs.cmpl_id())));
            assert_eq!((low(tlp.tag()), tlp.lower_address()), (theirs.tag(), Some(theirs.laddr())));
            assert_eq!(tlp.byte_count().map(|count| count % 4_096), Some(theirs.byte_cnt()));
            let status = tlp.status().unwrap() as u8;
            assert!(status == theirs.cmpl_stat() || !matches!(theirs.cmpl_stat(), 0 | 1 | 2 | 4));
        }
        kind if kind.is_config() => {
            let theirs = new_conf_req(data).unwrap();
            let dest = Bdf::new(theirs.bus_nr(), theirs.dev_nr(), theirs.func_nr());
            assert_eq!(tlp.route(), Route::Id(dest));
            let register = u16::from(theirs.ext_reg_nr()) << 8 | u16::from(theirs.reg_nr()) << 2;
            assert_eq!(tlp.register(), Some(register));
            assert_eq!((tlp.requester().bits(), low(tlp.tag())), (theirs.req_id(), theirs.tag()));
        }
        kind => {
            let theirs = new_mem_req(data, &packet.tlp_format().unwrap()).unwrap();
            assert_eq!(tlp.addr(), Some(Hpa(theirs.address() & !3)));
            assert_eq!(tlp.requester(), Bdf::from_bits(theirs.req_id()));
            if !tlp.th() {
                assert_eq!(low(tlp.tag()), theirs.tag());
            }
            if !tlp.th() && !kind.is_atomic() {
                assert_eq!((tlp.first_be(), tlp.last_be()), (theirs.fdwbe(), theirs.ldwbe()));
            }
        }
    }
}

#[test]
fn fields_are_the_same_without_flits() {
    let mut rng = Rng(0x1234_5678_9ABC_DEF1);
    let (mut read, mut refused) = (0, 0);
    for round in 0..400_000 {
        let first = (round % 256).try_into().unwrap();
        let bytes = rng.bytes(first);
        let packet = TlpPacket::new(bytes.to_vec(), TlpMode::NonFlit).unwrap();
        match Tlp::parse(Mode::NonFlit, &bytes) {
            Ok(tlp) if tlp.prefix_len() == 0 => {
                assert_eq!(Some(packet.tlp_type().unwrap()), type_of(tlp.kind()));
                assert_eq!(u32::from(tlp.tc()), packet.header().get_tc());
                compare(&tlp, &packet);
                read += 1;
            }
            _ => refused += 1,
        }
    }
    assert!(read > 20_000 && refused > 20_000, "both are common: {read}, {refused}");
}

/// Their 13 types of flit mode, and their number of DWs in front of the payload.
#[test]
fn sizes_are_the_same_with_flits() {
    let mut rng = Rng(0x0FED_CBA9_8765_4321);
    let mut read = 0;
    for round in 0..400_000 {
        let first = (round % 256).try_into().unwrap();
        let mut bytes = rng.bytes(first);
        bytes[1] &= 0xE7; // no OHC-E
        bytes[2] &= 0x1F; // no trailer
        if first == 0 {
            bytes[1..4].fill(0);
        }
        let theirs = FlitDW0::from_dw0(&bytes);
        let ours = Tlp::parse(Mode::Flit, &bytes);
        let type_is_refused = matches!(ours, Err(ParseError::Value { field: Field::TlpType, .. }));
        let Ok(theirs) = theirs else { continue };
        assert!(!type_is_refused || first == 0x8D, "{first:02x}");
        if theirs.validate_mandatory_ohc().is_err() {
            assert!(ours.is_err(), "{first:02x}");
        }
        let Ok(ours) = ours else { continue };
        if matches!(theirs.tlp_type, FlitTlpType::LocalTlpPrefix) {
            continue;
        }
        let message = matches!(theirs.tlp_type, FlitTlpType::MsgToRc | FlitTlpType::MsgDToRc);
        assert_eq!(ours.len(), theirs.total_bytes() + usize::from(message) * 4, "{first:02x}");
        assert_eq!(
            (ours.tc(), ours.kind().has_data()),
            (theirs.tc, theirs.tlp_type.has_data_payload())
        );
        if !ours.is_uio() {
            assert_eq!(ours.attr().bits(), theirs.attr);
        }
        let base = usize::from(theirs.tlp_type.base_header_dw()) * 4;
        if theirs.ohc & 1 == 1 && ours.kind().is_memory() {
            let a = FlitOhcA::from_bytes(&bytes[base..]).unwrap();
            if let Some(pasid) = ours.pasid() {
                assert_eq!(pasid.pasid, a.pasid);
            }
            if !ours.kind().is_atomic() {
                assert_eq!((ours.first_be(), ours.last_be()), (a.fdwbe, a.ldwbe));
            }
        }
        read += 1;
    }
    assert!(read > 5_000, "{read} read");
}
