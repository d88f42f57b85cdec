//! MCTP packets of fixed length, as they come over TCP, and the transport header of all packets.
//!
//! Version 8, destination EID 8, source EID 8, SOM 1, EOM 1, sequence 2, TO 1, tag 3 bits; then 64 bytes of
//! payload, filled up with zeros. The first byte of a message is its type.
//!
//! Source: DMTF DSP0236 section 8 (transport header, baseline transmission unit); docs/mctp.md "On
//! the wire".

use crate::bytes::{cut, put, window};
use crate::{Field, Layer, ParseError};

/// Version of the transport header.
pub const VERSION: u8 = 1;
/// Bytes of the transport header.
pub const HEAD_LEN: usize = 4;
/// Baseline transmission unit: bytes of a message in each packet but the last.
pub const UNIT: usize = 64;
/// Bytes of a packet over TCP.
pub const PACKET_LEN: usize = HEAD_LEN + UNIT;
/// EID of the endpoint at the other end of the link, whatever its own EID is.
pub const EID_NULL: u8 = 0;
/// EID of every endpoint.
pub const EID_BROADCAST: u8 = 0xFF;

const SOM: u8 = 1 << 7;
const EOM: u8 = 1 << 6;
const OWNER: u8 = 1 << 3;

/// Transport header of a packet: where from and to, and which part of which message.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Transport {
    /// Endpoint it goes to.
    pub dest: u8,
    /// Endpoint it comes from.
    pub source: u8,
    /// SOM: the first of its message.
    pub first: bool,
    /// EOM: the last of its message.
    pub last: bool,
    /// Sequence number, 2 bits.
    pub seq: u8,
    /// TO: the tag is the sender's, as in a request.
    pub owner: bool,
    /// Message tag, 3 bits.
    pub tag: u8,
}

impl Transport {
    /// Reads the 4 bytes.
    ///
    /// # Errors
    /// A [`Field::Version`] other than [`VERSION`].
    pub const fn parse(bytes: [u8; HEAD_LEN]) -> Result<Self, ParseError> {
        let [version, dest, source, flags] = bytes;
        // bits 7:4 of the byte are reserved (DSP0236, section 8)
        if version & 0xF != VERSION {
            let value = (version & 0xF) as u16;
            return Err(ParseError::Value { layer: Layer::Mctp, field: Field::Version, value });
        }
        Ok(Self {
            dest,
            source,
            first: flags & SOM != 0,
            last: flags & EOM != 0,
            seq: flags >> 4 & 3,
            owner: flags & OWNER != 0,
            tag: flags & 7,
        })
    }

    /// The header's 4 bytes, as [`Self::parse`] reads them.
    #[must_use]
    pub const fn emit(self) -> [u8; HEAD_LEN] {
        let Self { dest, source, first, last, seq, owner, tag } = self;
        let flags = (first as u8) << 7
            | (last as u8) << 6
            | (seq & 3) << 4
            | (owner as u8) << 3
            | (tag & 7);
        [VERSION, dest, source, flags]
    }
}

/// A packet of the stream.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Packet<'a> {
    /// Transport header of the packet.
    pub head: Transport,
    /// Part of the message, and zeros behind its end.
    pub payload: &'a [u8; UNIT],
}

impl<'a> Packet<'a> {
    /// Reads a packet.
    ///
    /// # Errors
    /// A [`Field::Version`] other than [`VERSION`]; the next packet still begins behind this one.
    pub fn parse(bytes: &'a [u8; PACKET_LEN]) -> Result<Self, ParseError> {
        let head = Transport::parse(*window::<0, HEAD_LEN, _>(bytes))?;
        Ok(Self { head, payload: window::<HEAD_LEN, UNIT, _>(bytes) })
    }

    /// Cuts the packet off the front of a stream; `None` when it is not all there.
    #[must_use]
    pub fn cut(stream: &'a [u8]) -> Option<(&'a [u8; PACKET_LEN], &'a [u8])> {
        cut::<PACKET_LEN>(stream, Layer::Mctp).ok()
    }
}

/// Cuts a message of `kind`, with `body` behind its type, into packets. `first`, `last` and `seq`
/// of `head` are set for each; its other fields are the same in all.
///
/// ```
/// use weft_parsers::mctp::{Packet, Transport, packets};
/// let head =
///     Transport { dest: 8, source: 9, first: false, last: false, seq: 0, owner: true, tag: 5 };
/// let all: Vec<_> = packets(head, 7, &[1; 64]).collect();
/// assert_eq!(all.len(), 2, "a type and 64 bytes");
/// let last = Packet::parse(&all[1]).unwrap();
/// assert_eq!((last.head.first, last.head.last, last.head.seq), (false, true, 1));
/// assert_eq!((last.payload[0], last.payload[1]), (1, 0));
/// ```
pub fn packets(head: Transport, kind: u8, body: &[u8]) -> impl Iterator<Item = [u8; PACKET_LEN]> {
    let mut left = Some(body);
    let mut seq = 0;
    core::iter::from_fn(move || {
        let bytes = left.take()?;
        // `seq` is 0 again in every fourth packet, so that alone does not mark the first
        let first = seq == 0 && bytes.len() == body.len();
        // the message type takes the first byte of the first packet
        let room = if first { UNIT - 1 } else { UNIT };
        let (part, rest) = bytes.split_at_checked(room).unwrap_or((bytes, &[]));
        let mut payload = [0; UNIT];
        let place = if first { payload.get_mut(1..) } else { payload.get_mut(..) };
        if let Some(place) = place.and_then(|place| place.get_mut(..part.len())) {
            place.copy_from_slice(part);
        }
        if first {
            put::<0, 1, _>(&mut payload, [kind]);
        }
        let head = Transport { first, last: rest.is_empty(), seq, ..head };
        seq = (seq + 1) & 3;
        left = (!rest.is_empty()).then_some(rest);
        let mut packet = [0; PACKET_LEN];
        put::<0, HEAD_LEN, _>(&mut packet, head.emit());
        put::<HEAD_LEN, UNIT, _>(&mut packet, payload);
        Some(packet)
    })
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::testing::Rng;

    const HEAD: Transport = Transport {
        dest: 0x0A,
        source: 0x0B,
        first: true,
        last: true,
        seq: 0,
        owner: true,
        tag: 5,
    };

    /// The example of docs/mctp.md "On the wire".
    #[test]
    fn worked_packets_parse_and_emit() {
        let mut all = packets(HEAD, 0, &[0x81, 2]);
        let packet = all.next().expect("one packet");
        assert_eq!(packet[..8], [1, 0x0A, 0x0B, 0xCD, 0, 0x81, 2, 0]);
        assert!(packet[8..].iter().all(|&byte| byte == 0) && all.next().is_none());
        let parsed = Packet::parse(&packet).expect("version 1");
        assert_eq!((parsed.head, parsed.payload[1]), (HEAD, 0x81));
        assert_eq!(Packet::cut(&packet[..67]), None);
        let mut other = packet;
        other[0] = 0xF1;
        assert!(Packet::parse(&other).is_ok(), "reserved bits do not count");
        other[0] = 2;
        let refused = ParseError::Value { layer: Layer::Mctp, field: Field::Version, value: 2 };
        assert_eq!(Packet::parse(&other), Err(refused));
    }

    #[test]
    fn every_flag_has_its_bit() {
        for flags in 0..=u8::MAX {
            let head = Transport::parse([1, 2, 3, flags]).expect("version 1");
            assert_eq!(head.emit(), [1, 2, 3, flags]);
        }
        let head = Transport::parse([1, 0, 0, 0b0110_0010]).expect("version 1");
        assert_eq!(
            (head.first, head.last, head.seq, head.owner, head.tag),
            (false, true, 2, false, 2)
        );
    }

    #[test]
    fn messages_of_all_lengths_come_back() {
        let mut rng = Rng::new(7);
        let bytes = rng.bytes::<400>();
        for len in 0..=400 {
            let (mut got, mut next, mut count) = ([0; 512], 0, 0);
            for (at, packet) in packets(HEAD, 7, &bytes[..len]).enumerate() {
                let Packet { head, payload } = Packet::parse(&packet).expect("version 1");
                assert_eq!((head.first, head.seq), (at == 0, next), "{len}");
                assert_eq!(head.last, (at + 1) * UNIT > len, "{len}");
                got[at * UNIT..(at + 1) * UNIT].copy_from_slice(payload);
                (next, count) = ((next + 1) & 3, at + 1);
            }
            assert_eq!((count, got[0]), ((len + 1).div_ceil(UNIT), 7), "{len}");
            assert_eq!(got[1..=len], bytes[..len], "{len}");
            assert!(got[len + 1..count * UNIT].iter().all(|&byte| byte == 0), "{len}");
        }
    }
}
