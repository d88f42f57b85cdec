//! Reads a received frame: its headers, its stamp, and whether all bytes are as they were sent.
//!
//! [`Received`] has at most one [`Flaw`], the first one found. Lengths are without FCS.
//!
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

/// Longest frame that a port may have padded: 60 bytes, and a tag that a switch put in afterwards.
const PADDED_LEN_MAX: usize = ethernet::MIN_FRAME_LEN + vlan::TAG_LEN;

/// Why a received test frame counts as damaged.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Flaw {
    /// The frame ends before its payload does.
    Short,
    /// Bytes other than padding follow the frame's end.
    Grown,
    /// The payload differs from the bytes that its stamp stands for.
    Payload,
    /// The ICRC is wrong.
    Icrc,
    /// The payload bits of the GEN2 header differ from those sent.
    HeaderBits,
    /// The IPv4 header checksum is wrong.
    IpChecksum,
}

/// Contents of a received frame: its classification, its stamp and its first flaw.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Received {
    /// Classification of its headers, as a switch makes it.
    pub head: Head,
    /// The mark of the payload, if it has one.
    pub reading: Reading,
    /// The first flaw found; frames without a mark are not checked.
    pub flaw: Option<Flaw>,
}

/// Place of the payload, and its length as a header gives it, ICRC included.
struct Payload {
    at: usize,
    told: Option<usize>,
}

/// Reads `frame`, whose first 64 bytes (then zeros) are `head`.
///
/// # Errors
/// The frame ends inside a header that it announces.
pub fn receive(
    head: &[u8; HEAD_LEN],
    frame: &[u8],
    config: &ParseConfig,
) -> Result<Received, ParseError> {
    receive_front(head, frame.len(), frame, config)
}

/// Like [`receive`] for a frame of `len` bytes of which `frame` holds all, or only the front that
/// [`FrameSpec::emit_front`](super::FrameSpec::emit_front) makes; bytes after that front are not checked.
///
/// # Errors
/// Those of [`receive`].
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

/// Like [`receive_front`] for a frame whose headers are classified already.
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
            // The UDP length is the sender's; a switch leaves it alone when it pads a frame.
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
    // Zeros up to the least length are padding of a port; a longer frame has no reason to be padded.
    if len > end && len > PADDED_LEN_MAX || padding.iter().any(|o| *o != 0) {
        return Err(Flaw::Grown);
    }
    // Of a front only the mark is there, so payload and ICRC cannot be checked.
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
    // A switch that marks CE rewrites this checksum, and the ICRC masks it: only this check finds a wrong one.
    if head.ip_version() == Some(IpVersion::V4) && !is_ip_checksum_ok(head, frame) {
        return Err(Flaw::IpChecksum);
    }
    Ok(())
}

/// Whether the ICRC at the end of `frame` is right.
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
