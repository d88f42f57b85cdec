//! TLPs: bytes behind the addresses of a frame, through every parser of TLPs.
//!
//! A TLP that parses is emitted, translated and answered, and the bytes that come out parse to the
//! same fields.
//!
//! Source: docs/spec/wire-formats.md §3.

use weft_base::rng::Rng;
use weft_parsers::cxl_cache::{self, CacheHead, CacheMessage, CacheOp};
use weft_parsers::cxl_mem::{self, MemHead, MemMessage, MemOp};
use weft_parsers::fabric::{Bdf, Hpa, Pid};
use weft_parsers::tlp::ln::{self, LineSize, LnMessage, LnrCapability};
use weft_parsers::tlp::vdm::{PartnerInfo, RtPair};
use weft_parsers::tlp::{
    Attr, Body, Completion, ConvertError, Kind, LinkReset, Mode, Oui, Pasid, PbrTlp, PbrVdm,
    Protocol, Pth, ResetWord, Routing, Status, Tlp, TlpLink, TlpRepr, VdmOp, VendPrefixL0, convert,
    link, pth, to_flit, to_non_flit, type1_to_type0,
};

/// Longest TLP: prefixes, base header, OHC, 4 KiB and trailer.
const TLP_MAX: usize = 4_224;

/// Reads `bytes` as the part of a frame behind its addresses, and again as bare TLPs of each kind
/// of link.
///
/// # Panics
/// The parsers contradict themselves.
pub fn run(bytes: &[u8]) {
    let _ = parse(bytes);
    // again without the link header, so that a fuzzer need not find its OUI first
    let bare = bytes.get(link::LEN..).unwrap_or_default();
    any_bytes(bytes);
    for protocol in [Protocol::Pbr, Protocol::HbrFlit, Protocol::HbrNonFlit] {
        behind_link(protocol, bare);
    }
}

/// Reads a frame from its EtherType on; true for a well-formed TLP of its kind of link.
///
/// # Panics
/// The parsers contradict themselves.
#[must_use]
pub fn parse(bytes: &[u8]) -> bool {
    match TlpLink::parse(bytes, Oui::DEFAULT) {
        Ok((link, rest)) => behind_link(link.protocol, rest),
        Err(_) => false,
    }
}

fn behind_link(protocol: Protocol, bare: &[u8]) -> bool {
    match protocol {
        Protocol::Pbr => pbr(bare),
        Protocol::HbrFlit => tlp(Mode::Flit, bare),
        Protocol::HbrNonFlit => tlp(Mode::NonFlit, bare),
        Protocol::Control => link_reset(bare),
        Protocol::PbrMem => Pth::parse(bare).is_ok_and(|(_, rest)| mem(rest)),
        Protocol::HbrMem => mem(bare),
        Protocol::PbrCache => Pth::parse(bare).is_ok_and(|(_, rest)| cache(rest)),
        Protocol::HbrCache => cache(bare),
    }
}

/// A message about the reset of a link is emitted as it was read, except reserved bits.
fn link_reset(bytes: &[u8]) -> bool {
    let Ok(found) = LinkReset::parse(bytes) else { return false };
    // byte 3 is reserved: emitted as 0
    assert_eq!(found.emit()[..3], bytes[..3], "{found:?}");
    true
}

/// A CXL.mem message is emitted as it was read, with 0 for fields that its class does not have.
fn mem(bytes: &[u8]) -> bool {
    let Ok(found) = MemMessage::parse(bytes) else {
        return false;
    };
    let mut out = [0; cxl_mem::LEN_MAX];
    let len = found.emit(&mut out).expect("it was read");
    assert_eq!((len, len <= bytes.len()), (found.len(), true));
    let again = MemMessage::parse(&out[..len]).expect("it was emitted");
    assert_eq!((again.head, again.data, again.enables), (found.head, found.data, found.enables));
    assert!(MemMessage::parse(&bytes[..len - 1]).is_err(), "the last byte is needed");
    true
}

fn cache(bytes: &[u8]) -> bool {
    let Ok(found) = CacheMessage::parse(bytes) else {
        return false;
    };
    let mut out = [0; cxl_cache::LEN_MAX];
    let len = found.emit(&mut out).expect("it was read");
    assert_eq!((len, len <= bytes.len()), (found.len(), true));
    let again = CacheMessage::parse(&out[..len]).expect("it was emitted");
    assert_eq!((again.head, again.data, again.enables), (found.head, found.data, found.enables));
    assert!(CacheMessage::parse(&bytes[..len - 1]).is_err(), "the last byte is needed");
    true
}

/// Decoders that take any bytes.
fn any_bytes(bytes: &[u8]) {
    if let Ok(info) = PartnerInfo::decode(bytes) {
        assert_eq!(PartnerInfo::decode(&info.emit()), Ok(info));
    }
    if let Some(capability) = bytes.first_chunk().and_then(|head| LnrCapability::decode(*head)) {
        assert_eq!(LnrCapability::decode(capability.emit()), Some(capability));
    }
    assert!(RtPair::all(bytes).all(|pair| RtPair::decode(pair.emit()) == pair));
}

fn pbr(bytes: &[u8]) -> bool {
    let Ok(Some(found)) = PbrTlp::parse(bytes) else {
        return false;
    };
    assert!(found.len() <= bytes.len());
    assert_eq!(found.tlp().vend_prefix(), None, "prefixes come before the PTH");
    let mut out = [0; TLP_MAX];
    let len = pth::emit_pbr(found.pth(), &found.tlp().repr(), &mut out).expect("it was read");
    let again = PbrTlp::parse(&out[..len]).expect("it was emitted").expect("a PTH is there");
    assert_eq!((again.pth(), again.tlp().repr()), (found.pth(), found.tlp().repr()));
    check(found.tlp());
    true
}

fn tlp(mode: Mode, bytes: &[u8]) -> bool {
    let Ok(found) = Tlp::parse(mode, bytes) else {
        return false;
    };
    let whole = &bytes[..found.len()];
    assert_eq!(Tlp::parse(mode, whole).map(|tlp| tlp.repr()), Ok(found.repr()), "padding counts");
    assert!(Tlp::parse(mode, &whole[..whole.len() - 1]).is_err(), "the last byte is needed");
    check(&found);
    in_place(mode, whole);
    true
}

/// Emits, translates and answers a parsed TLP.
fn check(found: &Tlp<'_>) {
    let mut out = [0; TLP_MAX];
    let repr = found.repr();
    let len = repr.emit(&mut out).unwrap_or_else(|error| panic!("{error}: {repr:?}"));
    let again = Tlp::parse(found.mode(), &out[..len]).expect("it was emitted");
    assert_eq!((again.repr(), again.route()), (repr, found.route()));
    assert_eq!(found.payload().len(), found.data_len());
    translate(found);
    answer(found);
    let message = matches!(found.kind(), Kind::Message { .. });
    if let Ok(vdm) = PbrVdm::parse(found) {
        assert!(message);
        // the header of power management and errors is PCIe's own, and is not kept
        if !vdm.op.has_pcie_header() {
            let len = vdm.repr().emit(&mut out).expect("it was read");
            let tlp = Tlp::parse(Mode::Flit, &out[..len]).expect("it was emitted");
            assert_eq!(PbrVdm::parse(&tlp), Ok(vdm));
        }
    }
    if let Ok(Some(notice)) = LnMessage::parse(found) {
        let payload = notice.payload();
        let len = notice.repr(found.requester(), &payload).emit(&mut out).expect("it was read");
        let tlp = Tlp::parse(Mode::NonFlit, &out[..len]).expect("it was emitted");
        assert_eq!(LnMessage::parse(&tlp), Ok(Some(notice)));
    }
    if let Ok(Some((_, Hpa(line)))) = ln::request(found, LineSize::L64) {
        assert!(found.ln() && line.is_multiple_of(64));
    }
}

/// A TLP that is translated there and back is the same again, except fields that the other mode has
/// no place for.
fn translate(found: &Tlp<'_>) {
    let (mut there, mut back) = ([0; TLP_MAX], [0; TLP_MAX]);
    match found.mode() {
        Mode::Flit => match to_non_flit(found, &mut there) {
            Ok(len) => {
                let other = Tlp::parse(Mode::NonFlit, &there[..len]).expect("it was emitted");
                let len = to_flit(&other, &mut back).expect("it came from there");
                let again = Tlp::parse(Mode::Flit, &back[..len]).expect("it was emitted");
                assert_eq!(again.repr(), found.repr());
            }
            Err(ConvertError::Mode | ConvertError::Emit(_)) => panic!("{:?}", found.repr()),
            Err(_) => {}
        },
        Mode::NonFlit => match to_flit(found, &mut there) {
            Ok(len) => {
                let other = Tlp::parse(Mode::Flit, &there[..len]).expect("it was emitted");
                assert_eq!((other.kind(), other.route()), (found.kind(), found.route()));
                assert_eq!((other.payload(), other.ln()), (found.payload(), false));
                // LN, hints and digest are lost on the way, so that only success is checked
                to_non_flit(&other, &mut back).expect("it came from there");
            }
            Err(ConvertError::Extension) => {}
            Err(other) => panic!("{other}: {:?}", found.repr()),
        },
    }
}

/// Every request that waits for a completion gets one that leads back to it, and no other TLP does.
fn answer(found: &Tlp<'_>) {
    let mut out = [0; TLP_MAX];
    let completer = Bdf::new(3, 0, 1);
    let Some(ur) = Completion::of(found, Status::UnsupportedRequest, completer) else {
        assert!(!found.wants_completion());
        return;
    };
    let data = [0x5A; 4];
    // data only where the request wants 4 bytes or more
    for answer in [Some(ur), Completion::with_data(found, completer, 0, &data)] {
        let Some(answer) = answer else { continue };
        let len = answer.emit(&mut out).unwrap_or_else(|error| panic!("{error}: {answer:?}"));
        let answer = Tlp::parse(found.mode(), &out[..len]).expect("it was emitted");
        assert!(answer.is_completion() && answer.is_uio() == found.is_uio());
        assert_eq!((answer.requester(), answer.tag()), (found.requester(), found.tag()));
        assert_eq!((answer.tc(), answer.completer()), (found.tc(), Some(completer)));
    }
}

/// Turns type 1 into type 0, and puts a prefix in front and takes it away.
fn in_place(mode: Mode, whole: &[u8]) {
    let kind = |bytes: &[u8]| Tlp::parse(mode, bytes).map(|tlp| tlp.kind());
    let mut copy = whole.to_vec();
    let was = kind(whole);
    match type1_to_type0(mode, &mut copy) {
        Ok(()) => assert!(was != kind(&copy) && kind(&copy).is_ok()),
        Err(_) => assert_eq!(copy, whole, "nothing is changed"),
    }
    let bare = Tlp::parse(mode, whole).map(|tlp| tlp.without_local_prefixes().to_vec());
    let mut copy = whole.to_vec();
    let len = convert::remove_local_prefixes(mode, &mut copy).expect("it was read");
    assert_eq!(Ok(&copy[..len]), bare.as_deref());
    copy.resize(len + 4, 0);
    let prefix = VendPrefixL0::from_pid(Pid::from_low_bits(0x0A1));
    let longer = convert::insert_prefix(&mut copy, len, prefix).expect("there is room");
    assert_eq!(Tlp::parse(mode, &copy[..longer]).map(|tlp| tlp.vend_prefix()), Ok(Some(prefix)));
}

/// Valid frames from the EtherType on: every kind, on every kind of link that has it.
///
/// # Panics
/// One of them cannot be emitted.
#[must_use]
pub fn valid() -> Vec<Vec<u8>> {
    let data = [0x5A; 256];
    let mut frames = Vec::new();
    for (number, kind) in (0_u8..).zip(kinds()) {
        for mode in [Mode::NonFlit, Mode::Flit] {
            for wide in [false, true] {
                let repr = example(mode, kind, wide, number, &data);
                let mut out = [0; 512];
                // not every kind has a form in each mode: those that fail are not valid
                if let Ok(len) = repr.emit(&mut out) {
                    let protocol = match mode {
                        Mode::NonFlit => Protocol::HbrNonFlit,
                        Mode::Flit => Protocol::HbrFlit,
                    };
                    frames.push(frame(protocol, &out[..len]));
                }
                let pth = Pth { pif: wide, ..Pth::new(Pid::from_low_bits(0x0A1), Pid::NONE) };
                if let Ok(len) = pth::emit_pbr(pth, &repr, &mut out) {
                    frames.push(frame(Protocol::Pbr, &out[..len]));
                }
            }
        }
    }
    for op in VdmOp::ALL {
        let vdm = PbrVdm::new(op, &data[..op.payload_dws().1 * 4]);
        let mut out = [0; 512];
        let pth = Pth { dsar: op.dsar(), ..Pth::new(Pid::NONE, Pid::NONE) };
        let len = pth::emit_pbr(pth, &vdm.repr(), &mut out).expect("each is well-formed");
        frames.push(frame(Protocol::Pbr, &out[..len]));
    }
    for word in [ResetWord::AssertHot, ResetWord::AssertPerst, ResetWord::Deassert, ResetWord::Done]
    {
        frames.push(frame(Protocol::Control, &LinkReset { word, number: 0xA5 }.emit()));
    }
    frames.extend(valid_mem());
    frames.extend(valid_cache());
    frames
}

/// Valid frames of CXL.mem from the EtherType on: every message with a PTH and without.
///
/// # Panics
/// One of them cannot be emitted.
#[must_use]
pub fn valid_mem() -> Vec<Vec<u8>> {
    let (data, mut frames) = ([0x5A; 64], Vec::new());
    for &op in MemOp::ALL {
        let head = MemHead { addr: Hpa(0x0123_4567_BA40), ..MemHead::new(op, 5) };
        let message = MemMessage { head, data: Some(&data), enables: Some(0xF0) };
        let mut out = [0; cxl_mem::LEN_MAX];
        let len = message.emit(&mut out).expect("there is room");
        frames.push(frame(Protocol::HbrMem, &out[..len]));
        let pth = Pth::new(Pid::from_low_bits(0x0A1), Pid::from_low_bits(0x123));
        frames.push(frame(Protocol::PbrMem, &[&pth.emit()[..], &out[..len]].concat()));
    }
    frames
}

/// Valid frames of CXL.cache from the EtherType on: every message with a PTH and without.
///
/// # Panics
/// One of them cannot be emitted.
#[must_use]
pub fn valid_cache() -> Vec<Vec<u8>> {
    let (data, mut frames) = ([0x5A; 64], Vec::new());
    for &op in CacheOp::ALL {
        let head = CacheHead { addr: Hpa(0x0123_4567_BA40), cache_id: 3, ..CacheHead::new(op, 5) };
        let message = CacheMessage { head, data: Some(&data), enables: Some(0xF0) };
        let mut out = [0; cxl_cache::LEN_MAX];
        let len = message.emit(&mut out).expect("there is room");
        frames.push(frame(Protocol::HbrCache, &out[..len]));
        let pth = Pth::new(Pid::from_low_bits(0x0A1), Pid::from_low_bits(0x123));
        frames.push(frame(Protocol::PbrCache, &[&pth.emit()[..], &out[..len]].concat()));
    }
    frames
}

fn frame(protocol: Protocol, tlp: &[u8]) -> Vec<u8> {
    let mut head = [0; link::LEN];
    let link = TlpLink { oui: Oui::DEFAULT, protocol, ln: false };
    link.emit(&mut head).expect("as long as the header");
    [&head[..], tlp].concat()
}

fn kinds() -> Vec<Kind> {
    let mut kinds = vec![
        Kind::Nop,
        Kind::MemRead,
        Kind::MemReadLocked,
        Kind::MemWrite,
        Kind::DeferrableMemWrite,
        Kind::IoRead,
        Kind::IoWrite,
        Kind::FetchAdd,
        Kind::Swap,
        Kind::Cas,
        Kind::UioRead,
        Kind::UioWrite,
        Kind::UioReadCompletion { data: false },
        Kind::UioReadCompletion { data: true },
        Kind::UioWriteCompletion,
    ];
    for one in [false, true] {
        kinds.extend([Kind::CfgRead { type1: one }, Kind::CfgWrite { type1: one }]);
        kinds.extend([false, true].map(|data| Kind::Completion { locked: one, data }));
        let routings =
            [Routing::ToRoot, Routing::Address, Routing::Id, Routing::Broadcast, Routing::Local];
        kinds.extend(routings.map(|routing| Kind::Message { routing, data: one }));
    }
    kinds
}

fn example(mode: Mode, kind: Kind, wide: bool, number: u8, data: &[u8]) -> TlpRepr<'_> {
    let completer = Bdf::new(2, 0, 0);
    let flit = mode == Mode::Flit;
    let body = match kind {
        Kind::Nop => return TlpRepr::new(mode, kind, Bdf::default(), 0, Body::Nop),
        Kind::Message { .. } => Body::Message { code: 0x7F, dw2: 0x0100_0001, dw3: 1 },
        Kind::Completion { .. } => Body::Completion {
            completer,
            completer_segment: None,
            status: Status::from_low_bits(number),
            byte_count: 64,
            lower_address: number,
        },
        kind if kind.is_uio_completion() => Body::UioCompletion {
            completer,
            completer_segment: None,
            status: Status::from_low_bits(number),
            dev_load: weft_parsers::tlp::DevLoad::from_low_bits(number),
            offset_dw: u16::from(number),
        },
        kind if kind.is_config() => Body::Config { dest: completer, register: 0x104, first_be: 15 },
        _ => Body::Address {
            addr: Hpa(if wide { 0x1_2345_6780 } else { 0x4000 }),
            wide: wide || kind.is_uio_request(),
            at: weft_parsers::tlp::At::Untranslated,
            no_write: false,
            length_dw: length(kind),
            first_be: 0xF,
            last_be: if length(kind) == 1 { 0 } else { 0xF },
        },
    };
    let is_message = matches!(kind, Kind::Message { .. });
    let payload = if kind.has_data() { usize::from(length(kind)) * 4 } else { 0 };
    let pasid = Pasid { pasid: 0x1_2345, privileged: wide, execute: false };
    TlpRepr {
        vend_prefix: (wide && number.is_multiple_of(2)).then_some(VendPrefixL0::from_ld_id(3)),
        tc: number & 7,
        attr: Attr::from_low_bits(if kind.is_uio() { 0 } else { number }),
        ln: !flit && matches!(kind, Kind::MemRead | Kind::MemWrite),
        pasid: (wide && (kind.is_memory() || is_message)).then_some(pasid),
        payload: data.get(..payload).unwrap_or_default(),
        ..TlpRepr::new(mode, kind, Bdf::new(1, 0, 0), if is_message { 0 } else { 5 }, body)
    }
}

const fn length(kind: Kind) -> u16 {
    match kind {
        Kind::FetchAdd | Kind::Swap | Kind::Message { .. } => 2,
        Kind::Cas => 4,
        kind if kind.is_io() || kind.is_config() => 1,
        _ => 16,
    }
}

/// Seeded, damaged copies of [`valid`] frames.
#[derive(Debug)]
pub struct Frames {
    rng: Rng,
    valid: Vec<Vec<u8>>,
    frame: Vec<u8>,
}

impl Frames {
    /// The same `seed` gives the same frames.
    #[must_use]
    pub fn new(seed: u64) -> Self {
        Self { rng: Rng::new(seed), valid: valid(), frame: Vec::new() }
    }

    /// As [`Self::new`], with frames of CXL.mem only.
    #[must_use]
    pub fn of_mem(seed: u64) -> Self {
        Self { valid: valid_mem(), ..Self::new(seed) }
    }

    fn below(&mut self, bound: usize) -> usize {
        usize::try_from(self.rng.below(bound as u64)).expect("below a usize")
    }

    /// The next frame: up to three changes behind the header of the link, rarely in it.
    pub fn frame(&mut self) -> &[u8] {
        let pick = self.below(self.valid.len());
        self.frame.clear();
        self.frame.extend_from_slice(&self.valid[pick]);
        for _ in 0..self.below(4) {
            self.damage();
        }
        if self.frame.len() < 46 {
            self.frame.resize(46, 0);
        }
        &self.frame
    }

    fn damage(&mut self) {
        let from = if self.rng.chance(1, 32) { 0 } else { link::LEN };
        // the fields that decide stand in the header
        let end = self.frame.len().min(from + 36);
        if end <= from {
            return;
        }
        let at = from + self.below(end - from);
        match self.below(8) {
            0..=2 => self.frame[at] ^= 1 << self.below(8),
            3 => self.frame[at] = self.rng.next_u64().to_be_bytes()[0],
            4 => self.frame.truncate(at),
            5 => {
                // local prefix, end-end prefix, NOP, reserved DW
                let prefix = [[0x8E, 0, 3, 0], [0x91, 0, 0, 7], [0; 4], [0x40, 0, 0, 0]];
                let prefix = prefix[self.below(prefix.len())];
                self.frame.splice(from..from, prefix);
            }
            6 => self.frame.extend_from_slice(&[0; 12]),
            _ => {
                let other = self.below(self.valid.len());
                let tail = self.valid[other].get(at..).unwrap_or_default().to_vec();
                self.frame.truncate(at);
                self.frame.extend_from_slice(&tail);
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_example_is_well_formed() {
        let frames = valid();
        assert!(frames.len() > 100, "{}", frames.len());
        for frame in frames {
            run(&frame);
            assert!(parse(&frame), "{frame:02x?}");
        }
    }
}
