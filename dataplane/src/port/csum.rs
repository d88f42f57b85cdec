//! Checksums of frames: completes those that were left partial.
//!
//! The field of a partial checksum holds the folded sum of the pseudo-header. Completing it takes the sum from `start`
//! to the frame's end, complements it, and writes 0 as 0xFFFF. A CRC-32C of SCTP is partial when it is 0.
//!
//! Source: RFC 1071, RFC 768 (0xFFFF), RFC 9260 6.8; Linux `skb_checksum_help`, `skb_crc32c_csum_help`;
//! docs/spec/pipeline.md §11.

use weft_parsers::checksum::{self, Sum};
use weft_parsers::crc::{self, crc32c};
use weft_parsers::partial::SCTP_FIELD;

use crate::desc::Desc;
use crate::pool::{Bufs, PartialCsum};

/// Ones' complement sum of `bytes` added to `before`, folded, not complemented.
#[must_use]
pub fn sum(bytes: &[u8], before: u16) -> u16 {
    Sum::ZERO.with16(before).with(bytes).fold()
}

/// Completes the checksum of a whole frame in place. Returns false, and changes nothing, if the checksum's bounds are
/// outside the frame. Like Linux, writes 0 as 0xFFFF for every protocol.
pub fn complete_frame(frame: &mut [u8], partial: PartialCsum) -> bool {
    let Some(covered) = frame.get_mut(usize::from(partial.start)..) else { return false };
    if is_crc(partial) {
        return complete_crc(covered);
    }
    checksum::complete(covered, usize::from(partial.offset), true)
}

/// Whether the checksum is a CRC of SCTP; only its place in the packet distinguishes it from an Internet checksum.
fn is_crc(partial: PartialCsum) -> bool {
    usize::from(partial.offset) == SCTP_FIELD
}

/// Writes the CRC of an SCTP packet; false if the packet is too short for it.
fn complete_crc(packet: &mut [u8]) -> bool {
    let Some((before, rest)) = packet.split_at_mut_checked(SCTP_FIELD) else { return false };
    let Some((field, rest)) = rest.split_first_chunk_mut() else { return false };
    *field = crc32c(&[before, &[0; crc::LEN], rest]);
    true
}

/// Notes the partial checksum of a received frame. A CRC is completed at once: neither a virtio-net header nor the
/// metadata of `AF_XDP` can ask for one, and a device asked for an Internet checksum would write that in its place.
pub(super) fn received(bufs: &mut Bufs, desc: &mut Desc, partial: Option<PartialCsum>) {
    let left = partial.filter(|partial| !is_crc(*partial));
    if left != partial
        && let Some((partial, frame)) = partial.zip(bufs.bytes_mut(desc))
    {
        complete_frame(frame, partial);
    }
    bufs.set_partial_csum(desc, left);
}

/// Completes the checksum of a frame whose descriptor says that it is partial; other frames come back unchanged. A
/// shared frame is copied first.
///
/// # Errors
/// The unchanged frame, if a copy is needed and the pool is empty.
pub fn complete(bufs: &mut Bufs, desc: Desc) -> Result<Desc, Desc> {
    let Some(partial) = bufs.partial_csum(&desc) else { return Ok(desc) };
    let mut desc = bufs.make_sole(desc)?;
    if let Some(frame) = bufs.bytes_mut(&mut desc) {
        // With bounds outside the frame there is nothing to complete; the receiver will refuse the frame.
        complete_frame(frame, partial);
    }
    bufs.set_partial_csum(&mut desc, None);
    Ok(desc)
}

/// Bytes to write for a frame: padded, with a complete checksum. A completed copy goes to `spare`, as other outputs may
/// share the chunk.
pub(super) fn outgoing<'a>(bufs: &'a Bufs, desc: &'a Desc, spare: &'a mut [u8]) -> &'a [u8] {
    let len = desc.len();
    if let Some(partial) = bufs.partial_csum(desc)
        && let Some(copy) = spare.get_mut(..len.max(super::TX_LEN_MIN))
        && let Some((frame, padding)) = copy.split_at_mut_checked(len)
    {
        frame.copy_from_slice(bufs.bytes(desc));
        complete_frame(frame, partial);
        padding.fill(0);
        return copy;
    }
    // The pool keeps zeros behind a short frame up to 64 bytes, so these bytes are its padding.
    match bufs.head(desc).get(..super::TX_LEN_MIN) {
        Some(padded) if len < super::TX_LEN_MIN => padded,
        _ => bufs.bytes(desc),
    }
}

#[cfg(test)]
mod tests {
    use etherparse::PacketBuilder;

    use super::*;
    use crate::pool::Pool;

    #[test]
    fn sums_are_those_of_a_word_at_a_time() {
        let bytes: Vec<u8> = (0..200_u8).map(|i| i.wrapping_mul(151) ^ 0x5A).collect();
        for start in 0..9 {
            for end in start..bytes.len() {
                let part = &bytes[start..end];
                for before in [0, 1, 0xFFFF, 0x8001] {
                    let naive = part.chunks(2).fold(u32::from(before), |t, w| {
                        let word = u16::from_be_bytes([w[0], *w.get(1).unwrap_or(&0)]);
                        let t = t + u32::from(word);
                        (t & 0xFFFF) + (t >> 16)
                    });
                    assert_eq!(u32::from(sum(part, before)), naive, "{start}..{end} {before}");
                }
            }
        }
    }

    /// A frame with its right checksum, and where the checksum is.
    fn built(udp: bool, v6: bool, len: usize) -> (Vec<u8>, PartialCsum, u16) {
        let eth = PacketBuilder::ethernet2([2; 6], [4; 6]);
        let ip = if v6 {
            eth.ipv6([1; 16], [9; 16], 64)
        } else {
            eth.ipv4([10, 0, 0, 1], [10, 0, 0, 2], 64)
        };
        let payload: Vec<u8> = (0..len).map(|i| u8::try_from(i % 253).unwrap()).collect();
        let mut frame = Vec::new();
        let l4 = if v6 { 54 } else { 34 };
        if udp {
            ip.udp(1, 2).write(&mut frame, &payload).unwrap();
        } else {
            ip.tcp(1, 2, 3, 4).write(&mut frame, &payload).unwrap();
        }
        let offset = if udp { 6 } else { 16 };
        let at = usize::from(l4 + offset);
        let want = u16::from_be_bytes([frame[at], frame[at + 1]]);
        // Pseudo-header: addresses, length, protocol.
        let addresses = if v6 { &frame[22..54] } else { &frame[26..34] };
        let l4_len = u16::try_from(frame.len()).unwrap() - l4;
        let pseudo = sum(&[0, if udp { 17 } else { 6 }], sum(addresses, l4_len));
        frame[at..at + 2].copy_from_slice(&pseudo.to_be_bytes());
        (frame, PartialCsum { start: l4, offset }, want)
    }

    #[test]
    fn a_completed_checksum_is_the_one_that_an_independent_builder_makes() {
        for udp in [false, true] {
            for v6 in [false, true] {
                for len in [0, 1, 2, 3, 100, 1_459, 1_460] {
                    let (mut frame, partial, want) = built(udp, v6, len);
                    assert!(complete_frame(&mut frame, partial));
                    let at = usize::from(partial.start + partial.offset);
                    let got = u16::from_be_bytes([frame[at], frame[at + 1]]);
                    assert_eq!(got, want, "udp {udp} v6 {v6} len {len}");
                }
            }
        }
    }

    #[test]
    fn bounds_outside_the_frame_change_nothing() {
        #[rustfmt::skip] // columns: start, offset, whether it fits 60 bytes
        let cases = [(34, 16, true), (34, 24, true), (34, 25, false), (60, 0, false), (61, 0, false),
            (0xFFFF, 0xFFFF, false)];
        for (start, offset, fits) in cases {
            let mut frame = [7; 60];
            assert_eq!(complete_frame(&mut frame, PartialCsum { start, offset }), fits);
            assert_eq!(frame != [7; 60], fits, "{start} {offset}");
        }
    }

    #[test]
    fn a_shared_frame_is_copied_before_it_is_changed() {
        let mut bufs = Bufs::new(Pool::in_memory(4, 1_518).unwrap(), 4, 0);
        let (frame, partial, want) = built(false, false, 50);
        let mut desc = bufs.alloc_from(&frame).unwrap();
        bufs.set_partial_csum(&mut desc, Some(partial));
        let other = bufs.share(&mut desc);
        let done = complete(&mut bufs, desc).unwrap();
        assert_eq!(bufs.partial_csum(&done), None);
        assert_eq!(bufs.bytes(&done)[50..52], want.to_be_bytes());
        assert_eq!(bufs.bytes(&other), frame);
        assert_eq!(bufs.partial_csum(&other), Some(partial));
        let done = complete(&mut bufs, done).unwrap(); // again: as it is
        for desc in [done, other] {
            bufs.free(desc);
        }
    }
}
