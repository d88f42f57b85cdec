//! Headers of the segments of one super-frame: from one segment to the next, only a few fields change.
//!
//! [`SegmentHeaders`] holds the headers of the next segment as bytes. Splitting copies them, and joining compares a
//! frame with them, instead of computing or parsing each header again. It holds for segments of one size that
//! are neither the first, which may have a CWR of its own, nor the last, which has FIN and PSH.
//!
//! Source: RFC 1624; Linux `net/ipv4/tcp_offload.c`.

use weft_parsers::checksum::update16;

use super::field::{be16, be32, put};

/// Longest headers in bytes: a VXLAN between two Ethernet and IPv6 headers, and a TCP header with time stamps. Segments
/// with longer ones are handled one by one.
const LEN_MAX: usize = 192;
/// Most IPv4 headers of a frame.
const IPV4_MAX: usize = 2;

/// Headers of the next segment of a stream.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct SegmentHeaders {
    bytes: [u8; LEN_MAX],
    len: usize,
    /// Offsets of IPv4 headers.
    ipv4: [Option<usize>; IPV4_MAX],
    /// Offset of the TCP header.
    l4: usize,
    /// Payload bytes of each segment.
    size: u32,
}

impl SegmentHeaders {
    /// The headers of the segment behind the one with these `headers`; `None` if there are too many or too long ones.
    ///
    /// Checksums must be right, and those that cover the segment must not change from one to the next: the sum over a
    /// TCP segment that is complete is always the same, as is that over an IPv4 header.
    pub(super) fn behind(
        headers: &[u8],
        ipv4: impl IntoIterator<Item = usize>,
        l4: usize,
        size: usize,
    ) -> Option<Self> {
        let mut bytes = [0; LEN_MAX];
        bytes.get_mut(..headers.len())?.copy_from_slice(headers);
        let mut offsets = ipv4.into_iter();
        let ipv4 = [(); IPV4_MAX].map(|()| offsets.next());
        if offsets.next().is_some() {
            return None;
        }
        let (len, size) = (headers.len(), u32::try_from(size).ok()?);
        let mut own = Self { bytes, len, ipv4, l4, size };
        own.advance();
        Some(own)
    }

    #[inline]
    pub(super) fn bytes(&self) -> &[u8] {
        self.bytes.get(..self.len).unwrap_or_default()
    }

    /// Goes on to the next segment.
    #[inline]
    pub(super) fn advance(&mut self) {
        let seq = be32(&self.bytes, self.l4 + 4).unwrap_or_default();
        put(&mut self.bytes, self.l4 + 4, seq.wrapping_add(self.size).to_be_bytes());
        for at in self.ipv4.into_iter().flatten() {
            let field = |at| be16(&self.bytes, at).unwrap_or_default();
            let (id, check) = (field(at + 4), field(at + 10));
            let next = id.wrapping_add(1);
            put(&mut self.bytes, at + 4, next.to_be_bytes());
            put(&mut self.bytes, at + 10, update16(check, id, next).to_be_bytes());
        }
    }
}
