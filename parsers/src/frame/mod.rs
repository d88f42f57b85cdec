//! Whole frames of the four AI scale-up formats, from plain fields.
//!
//! [`FrameRepr`] (header by format, tag, RH, payload, ICRC or not) is written into one slice,
//! without FCS and without the zeros that transmit pads up to 60 bytes.
//!
//! Source: docs/spec/wire-formats.md §1.1 to §1.5.
//!
//! For generators, endpoints and tests; the switch itself never builds a data frame.

use core::fmt;
use core::net::Ipv4Addr;

use crate::addr::MacAddr;
use crate::afh::{self, Gen1Repr, Gen2Repr, LiteRepr};
use crate::bytes::put;
use crate::crc::{self, Transport, icrc_afh, icrc_ip};
use crate::ipv4::{self, DONT_FRAGMENT, Ipv4Repr};
use crate::rh::{self, RhRepr};
use crate::types::{Format, Tci, ether_type, ip_proto};
use crate::udp::{self, STANDARD_CHECKSUM, UdpRepr};
use crate::vlan::TAG_LEN;

/// Most payload bytes of TYPE1 and TYPE2 frames.
pub const MAX_PAYLOAD_LEN: usize = 1344;

/// Fields of a Standard frame in front of the RH.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct StandardRepr {
    /// Destination MAC address.
    pub dst: MacAddr,
    /// Source MAC address.
    pub src: MacAddr,
    /// DSCP in bits 7:2, ECN in bits 1:0.
    pub tos: u8,
    /// IPv4 identification; a static register of the endpoint.
    pub id: u16,
    /// IPv4 time to live.
    pub ttl: u8,
    /// IPv4 source address.
    pub ip_src: Ipv4Addr,
    /// IPv4 destination address.
    pub ip_dst: Ipv4Addr,
    /// UDP source port; one for each queue pair.
    pub sport: u16,
    /// UDP destination port: 4791 for TYPE1.
    pub dport: u16,
}

/// Header of a frame, by format.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum HeaderRepr {
    /// Standard: IPv4 and UDP behind the addresses.
    Standard(StandardRepr),
    /// `AFH_GEN1` and the EtherType behind it.
    Gen1(Gen1Repr, u16),
    /// `AFH_GEN2_16b` and the EtherType behind it.
    Gen2(Gen2Repr, u16),
    /// Lite: no EtherType, no tag, no RH, no ICRC.
    Lite(LiteRepr),
}

/// A whole frame as plain fields.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct FrameRepr<'a> {
    /// Header of the format.
    pub header: HeaderRepr,
    /// TPID and tag; not for Lite, where it is left out.
    pub tag: Option<(u16, Tci)>,
    /// RC Link header; not for Lite, where it is left out.
    pub rh: RhRepr,
    /// Payload, a multiple of four bytes by the endpoint's padding.
    pub payload: &'a [u8],
    /// Append an ICRC; not for Lite, where it is left out.
    pub icrc: bool,
}

/// A frame could not be written.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum EmitError {
    /// The slice is too small.
    Short {
        /// Bytes of the frame.
        need: usize,
        /// Bytes of the slice.
        had: usize,
    },
    /// The payload does not fit the 16-bit lengths of IPv4.
    TooLong {
        /// Bytes of the payload.
        payload: usize,
    },
}

impl fmt::Display for EmitError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match *self {
            Self::Short { need, had } => write!(f, "frame needs {need} bytes, room for {had}"),
            Self::TooLong { payload } => {
                write!(f, "payload of {payload} bytes does not fit a 16-bit length")
            }
        }
    }
}

impl core::error::Error for EmitError {}

impl FrameRepr<'_> {
    /// Format of the frame.
    #[must_use]
    pub const fn format(&self) -> Format {
        match self.header {
            HeaderRepr::Standard(_) => Format::Standard,
            HeaderRepr::Gen1(..) => Format::AfhGen1,
            HeaderRepr::Gen2(..) => Format::AfhGen2,
            HeaderRepr::Lite(_) => Format::AfhLite,
        }
    }

    /// Bytes in front of the payload: 50, 22 or 12, and 4 more with a tag.
    #[must_use]
    pub const fn header_len(&self) -> usize {
        let tag_len = if self.tag.is_some() { TAG_LEN } else { 0 };
        match self.header {
            HeaderRepr::Standard(_) => afh::LEN + tag_len + 2 + ipv4::LEN + udp::LEN + rh::LEN,
            HeaderRepr::Gen1(..) | HeaderRepr::Gen2(..) => afh::LEN + tag_len + 2 + rh::LEN,
            HeaderRepr::Lite(_) => afh::LEN,
        }
    }

    /// Bytes behind the payload: the ICRC, if any.
    const fn icrc_len(&self) -> usize {
        if self.icrc && !matches!(self.header, HeaderRepr::Lite(_)) { crc::LEN } else { 0 }
    }

    /// Bytes of the whole frame.
    #[expect(clippy::len_without_is_empty, reason = "a frame is never empty")]
    #[must_use]
    pub const fn len(&self) -> usize {
        self.header_len() + self.payload.len() + self.icrc_len()
    }

    /// Writes the frame to the front of `out` and returns its length.
    ///
    /// # Errors
    /// `out` is too small, or the payload too long for IPv4; nothing useful was written then.
    pub fn emit(&self, out: &mut [u8]) -> Result<usize, EmitError> {
        // first of all, as a payload too long for IPv4 is refused before anything is written
        let ip_and_udp = match &self.header {
            HeaderRepr::Standard(header) => Some(self.ip_and_udp(header)?),
            _ => None,
        };
        let (need, had) = (self.len(), out.len());
        let short = EmitError::Short { need, had };
        let frame = out.get_mut(..need).ok_or(short)?;
        let mut rest = Rest(&mut *frame);
        // Lite has no EtherType: the payload stands behind its 12 bytes
        let Some(kind) = self.emit_addresses(rest.take().ok_or(short)?) else {
            rest.0.copy_from_slice(self.payload); // Lite
            return Ok(need);
        };
        if let Some((tpid, tci)) = self.tag {
            *rest.take().ok_or(short)? = tpid.to_be_bytes();
            *rest.take().ok_or(short)? = tci.0.to_be_bytes();
        }
        *rest.take().ok_or(short)? = kind.to_be_bytes();
        // an ICRC covers the packet from the IP header, of AFH from the RH, up to itself
        let protected_len = rest.0.len() - self.icrc_len();
        if let Some((ip, udp)) = ip_and_udp {
            ip.emit(rest.take().ok_or(short)?);
            udp.emit(rest.take().ok_or(short)?);
        }
        self.rh.emit(rest.take().ok_or(short)?);
        let (payload, _) = rest.0.split_at_mut_checked(self.payload.len()).ok_or(short)?;
        payload.copy_from_slice(self.payload);
        if self.icrc {
            let (front, icrc) = frame.split_last_chunk_mut().ok_or(short)?;
            let protected = front.get(need - crc::LEN - protected_len..).ok_or(short)?;
            *icrc = match ip_and_udp {
                Some(_) => icrc_ip(protected, Transport::RcLink).map_err(|_| short)?,
                None => icrc_afh(protected),
            };
        }
        Ok(need)
    }

    /// Writes the first twelve bytes; returns the EtherType behind them, of Lite `None`.
    fn emit_addresses(&self, out: &mut [u8; afh::LEN]) -> Option<u16> {
        match &self.header {
            HeaderRepr::Standard(StandardRepr { dst, src, .. }) => {
                put::<0, 6, _>(out, dst.0);
                put::<6, 6, _>(out, src.0);
                Some(ether_type::IPV4)
            }
            HeaderRepr::Gen1(header, kind) => {
                header.emit(out);
                Some(*kind)
            }
            HeaderRepr::Gen2(header, kind) => {
                header.emit(out);
                Some(*kind)
            }
            HeaderRepr::Lite(header) => {
                header.emit(out);
                None
            }
        }
    }

    /// The headers whose lengths depend on the payload.
    fn ip_and_udp(&self, header: &StandardRepr) -> Result<(Ipv4Repr, UdpRepr), EmitError> {
        let payload = self.payload.len();
        let udp_len = udp::LEN + rh::LEN + payload + self.icrc_len();
        let total_len =
            u16::try_from(ipv4::LEN + udp_len).map_err(|_| EmitError::TooLong { payload })?;
        let ip = Ipv4Repr {
            tos: header.tos,
            total_len,
            id: header.id,
            fragment: DONT_FRAGMENT,
            ttl: header.ttl,
            proto: ip_proto::UDP,
            src: header.ip_src,
            dst: header.ip_dst,
        };
        let udp = UdpRepr {
            sport: header.sport,
            dport: header.dport,
            len: u16::try_from(udp_len).map_err(|_| EmitError::TooLong { payload })?,
            checksum: STANDARD_CHECKSUM,
        };
        Ok((ip, udp))
    }
}

/// The part of the frame that is not written yet.
struct Rest<'a>(&'a mut [u8]);

impl<'a> Rest<'a> {
    /// Cuts off the first `N` bytes.
    fn take<const N: usize>(&mut self) -> Option<&'a mut [u8; N]> {
        let (part, tail) = core::mem::take(&mut self.0).split_first_chunk_mut()?;
        self.0 = tail;
        Some(part)
    }
}

#[cfg(test)]
mod tests;
