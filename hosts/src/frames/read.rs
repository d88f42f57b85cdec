//! What a receiver makes of a frame: its head, the stamp, and whether all bytes are as sent.
//!
//! The frame and its first 64 bytes in, [`Received`] out; at most one [`Flaw`] a frame.
//!
//! Units: bytes without FCS.
//! Source: docs/spec/wire-formats.md §1.2 to §1.5 (where payloads start), §2.2 (ICRC), §2.4 (checksum).

use weft_parsers::afh::Gen2;
use weft_parsers::crc::{self, Transport, icrc_afh, icrc_ip};
use weft_parsers::ipv4::Ipv4;
use weft_parsers::udp::Udp;
use weft_parsers::{
    Format, HEAD_LEN, Head, IpVersion, ParseConfig, ParseError, bth, ethernet, ip_proto,
    parse_head, rh, udp, vlan,
};

use crate::stamp::{self, Mark, Reading};

/// Longest frame that a port may have padded: 60 bytes, and a tag put in afterwards.
const PADDED_LEN_MAX: usize = ethernet::MIN_FRAME_LEN + vlan::TAG_LEN;

/// Why a received test frame counts as damaged.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Flaw {
    /// It ends before its payload does.
    Short,
    /// Bytes other than padding stand behind it.
    Grown,
    /// Its payload is not what was sent.
    Payload,
    /// Its ICRC is wrong.
    Icrc,
    /// The payload bits of its GEN2 header are not what was sent.
    HeaderBits,
    /// Its IPv4 header checksum is wrong.
    IpChecksum,
}

/// What a receiver reads in a frame: its classification, its stamp and the first thing wrong with it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Received {
    /// Its classification.
    pub head: Head,
    /// Its mark.
    pub reading: Reading,
    /// The first flaw found; only of a frame with a mark.
    pub flaw: Option<Flaw>,
}

/// Where the payload is, and how long a header says that it is, ICRC included.
struct Payload {
    at: usize,
    told: Option<usize>,
}

/// Reads `frame`, whose first 64 bytes (then zeros) are `head`.
///
/// # Errors
/// The frame ends inside a header that it claims to have.
pub fn receive(
    head: &[u8; HEAD_LEN],
    frame: &[u8],
    config: &ParseConfig,
) -> Result<Received, ParseError> {
    receive_front(head, frame.len(), frame, config)
}

/// As [`receive`], a frame of `len` bytes of which `frame` has all, or the front, as
/// [`FrameSpec::emit_front`](super::FrameSpec::emit_front) makes it: what is behind that is not looked at.
///
/// # Errors
/// As [`receive`].
pub fn receive_front(
    head: &[u8; HEAD_LEN],
    len: usize,
    frame: &[u8],
    config: &ParseConfig,
) -> Result<Received, ParseError> {
    let head = parse_head(head, len, config)?;
    let (reading, flaw) = receive_mark(&head, len, frame, config);
    Ok(Received { head, reading, flaw })
}

/// As [`receive_front`], what is behind the headers of a frame whose classification is known.
#[must_use]
pub fn receive_mark(
    head: &Head,
    len: usize,
    frame: &[u8],
    config: &ParseConfig,
) -> (Reading, Option<Flaw>) {
    if head.format() == Format::MacControl {
        return (Reading::Foreign, None);
    }
    let payload = find_payload(head, frame);
    let Some(bytes) = frame.get(payload.at..) else { return (Reading::Foreign, None) };
    let reading = stamp::read(bytes, payload.told);
    let Reading::Mark(mark) = reading else { return (reading, None) };
    (reading, find_flaw(head, len, frame, payload.at, &mark, config).err())
}

fn find_payload(head: &Head, frame: &[u8]) -> Payload {
    let front = ethernet::LEN + if head.tagged() { vlan::TAG_LEN } else { 0 };
    let untold = |at| Payload { at, told: None };
    match head.format() {
        Format::AfhLite => untold(weft_parsers::afh::LEN),
        Format::AfhGen1 | Format::AfhGen2 => untold(front + rh::LEN),
        _ => {
            let Some(l4) = head.l4_offset().filter(|_| head.ip_proto() == ip_proto::UDP) else {
                return untold(front);
            };
            let l4 = usize::from(l4);
            let transport = match head.ip_version() {
                Some(IpVersion::V6) => bth::LEN,
                _ => rh::LEN,
            };
            let claimed = frame.get(l4..).and_then(|bytes| Udp::parse(bytes).ok());
            let told = claimed.map_or(0, |(udp, _)| usize::from(udp.len()));
            let headers = udp::LEN + transport;
            Payload { at: l4 + headers, told: Some(told.saturating_sub(headers)) }
        }
    }
}

fn find_flaw(
    head: &Head,
    len: usize,
    frame: &[u8],
    at: usize,
    mark: &Mark,
    config: &ParseConfig,
) -> Result<(), Flaw> {
    let payload_end = at + mark.len;
    let end = payload_end + if mark.extras.icrc { crc::LEN } else { 0 };
    if len < end {
        return Err(Flaw::Short);
    }
    let padding = frame.get(end..).unwrap_or_default();
    if len > end && len > PADDED_LEN_MAX || padding.iter().any(|o| *o != 0) {
        return Err(Flaw::Grown);
    }
    if frame.len() == len {
        let payload = frame.get(at..payload_end).ok_or(Flaw::Short)?;
        if !stamp::is_intact(payload, mark) {
            return Err(Flaw::Payload);
        }
        if mark.extras.icrc && !is_icrc_ok(head, frame.get(..end).ok_or(Flaw::Short)?, at) {
            return Err(Flaw::Icrc);
        }
    }
    if mark.extras.bits && head.format() == Format::AfhGen2 {
        let (gen2, _) = Gen2::parse(frame, config.gen2_order).map_err(|_| Flaw::Short)?;
        let seq = mark.seq.near(0); // of such frames the mark is whole
        if (gen2.payload_hi(), gen2.payload_lo()) != stamp::header_bits(mark.stream, seq) {
            return Err(Flaw::HeaderBits);
        }
    }
    if head.ip_version() == Some(IpVersion::V4) && !is_ip_checksum_ok(head, frame) {
        return Err(Flaw::IpChecksum);
    }
    Ok(())
}

/// `frame` ends with the ICRC.
fn is_icrc_ok(head: &Head, frame: &[u8], payload_at: usize) -> bool {
    let Some((front, had)) = frame.split_last_chunk::<{ crc::LEN }>() else { return false };
    let from = |offset: usize| front.get(offset..).unwrap_or_default();
    let want = match (head.ip_offset(), head.ip_version()) {
        (Some(ip), Some(IpVersion::V4)) => icrc_ip(from(usize::from(ip)), Transport::RcLink),
        (Some(ip), _) => icrc_ip(from(usize::from(ip)), Transport::Roce),
        _ => Ok(icrc_afh(from(payload_at.saturating_sub(rh::LEN)))),
    };
    want == Ok(*had)
}

fn is_ip_checksum_ok(head: &Head, frame: &[u8]) -> bool {
    let packet = head.ip_offset().and_then(|offset| frame.get(usize::from(offset)..));
    packet.and_then(|bytes| Ipv4::parse(bytes).ok()).is_some_and(|(ip, _)| ip.is_checksum_ok())
}
