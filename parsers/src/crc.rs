//! CRC-32 of Ethernet, and the two checks made of it, FCS and ICRC; CRC-32C of SCTP.
//!
//! [`Crc32`] collects slices, eight bytes a step; results are four bytes in wire order, least
//! significant first.
//!
//! Source: IEEE 802.3-2022 3.2.9; IBTA 1.7 annex A17 (ICRC of RoCEv2); RFC 9260 appendix A (SCTP);
//! docs/spec/wire-formats.md §1.5, §2.2.

use crate::bytes::{cut, put};
use crate::error::{Field, Layer, ParseError};
use crate::{bth, ipv4, ipv6, rh, udp};

/// Bytes of an FCS or ICRC.
pub const LEN: usize = 4;

/// Polynomial 0x04C11DB7 of Ethernet, bits reflected.
const POLYNOMIAL: u32 = 0xEDB8_8320;

/// Reflected polynomial 0x1EDC6F41, of CRC-32C (RFC 9260, appendix A).
const CASTAGNOLI: u32 = 0x82F6_3B78;

type Tables = [[u32; 256]; 8];

/// CRC of one byte followed by 0 to 7 bytes of zero.
static TABLES: Tables = tables(POLYNOMIAL);
/// As above, of CRC-32C.
static TABLES_C: Tables = tables(CASTAGNOLI);

const fn tables(polynomial: u32) -> Tables {
    let mut tables = [[0; 256]; 8];
    let (mut index, mut seed) = (0, 0);
    while index < 256 {
        // a table's entry is the entry of the table before it after one more byte of zeros, so
        // `crc` runs on through all eight
        let mut crc: u32 = seed;
        let mut rest: &mut [[u32; 256]] = &mut tables;
        while let Some((table, tail)) = rest.split_first_mut() {
            let mut bit = 0;
            while bit < 8 {
                crc = crc >> 1 ^ if crc & 1 != 0 { polynomial } else { 0 };
                bit += 1;
            }
            if let Some((entry, _)) = table.split_at_mut(index).1.split_first_mut() {
                *entry = crc;
            }
            rest = tail;
        }
        index += 1;
        seed += 1;
    }
    tables
}

/// Entry of a table of 256 by an index of 8 bits, which is always there.
#[inline]
#[expect(clippy::indexing_slicing, reason = "256 entries, an index of 8 bits")]
const fn entry(table: &[u32; 256], index: u8) -> u32 {
    table[index as usize]
}

/// `crc` after `bytes`, neither inverted.
fn advance([t0, t1, t2, t3, t4, t5, t6, t7]: &Tables, mut crc: u32, bytes: &[u8]) -> u32 {
    let (words, rest) = bytes.as_chunks::<8>();
    // slicing by 8: a byte that seven others follow in this step is looked up in table 7
    for &[a, b, c, d, e, f, g, h] in words {
        let [p, q, r, s] = (crc ^ u32::from_le_bytes([a, b, c, d])).to_le_bytes();
        crc = entry(t7, p) ^ entry(t6, q) ^ entry(t5, r) ^ entry(t4, s);
        crc ^= entry(t3, e) ^ entry(t2, f) ^ entry(t1, g) ^ entry(t0, h);
    }
    for byte in rest {
        crc = crc >> 8 ^ entry(t0, crc.to_le_bytes()[0] ^ byte);
    }
    crc
}

/// CRC-32C of SCTP packets, `parts` one after the other, as it goes on the wire.
#[must_use]
pub fn crc32c(parts: &[&[u8]]) -> [u8; LEN] {
    (!parts.iter().fold(!0, |crc, part| advance(&TABLES_C, crc, part))).to_le_bytes()
}

/// Running CRC-32 with the conventions of zlib: starts at all ones, inverted at the end.
#[derive(Clone, Copy, Debug)]
pub struct Crc32(u32);

impl Crc32 {
    /// The CRC of no bytes.
    pub const START: Self = Self(!0);

    /// Adds `bytes` behind those added so far.
    #[must_use]
    pub fn with(self, bytes: &[u8]) -> Self {
        Self(advance(&TABLES, self.0, bytes))
    }

    /// The CRC as a number.
    #[inline]
    #[must_use]
    pub const fn finish(self) -> u32 {
        !self.0
    }

    /// The CRC as it goes on the wire.
    #[inline]
    #[must_use]
    pub const fn to_wire(self) -> [u8; LEN] {
        self.finish().to_le_bytes()
    }
}

/// FCS of `frame`, which ends where the FCS starts.
#[must_use]
pub fn fcs(frame: &[u8]) -> [u8; LEN] {
    Crc32::START.with(frame).to_wire()
}

/// Transport header behind UDP in a packet that an ICRC protects.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Transport {
    /// RC Link header, nothing masked.
    RcLink,
    /// IBTA base transport header, whose byte 4 is masked.
    Roce,
}

/// Starts an ICRC with eight bytes of ones, which stand for the local route header (LRH).
fn start() -> Crc32 {
    Crc32::START.with(&[0xFF; 8])
}

/// ICRC of an IP packet. `packet` runs from the IP header to the byte before the ICRC; lengths in
/// it already count the ICRC. TOS, TTL and checksums, which switches may change, count as ones.
///
/// # Errors
/// [`ParseError::Short`] when a header does not fit; [`ParseError::Value`] when the version is
/// neither 4 nor 6, or there are IPv4 options.
pub fn icrc_ip(packet: &[u8], transport: Transport) -> Result<[u8; LEN], ParseError> {
    let (crc, rest) = match packet.first().map_or(4, |first| first >> 4) {
        4 => {
            let (head, rest) = cut::<{ ipv4::LEN }>(packet, Layer::Ipv4)?;
            let mut masked = *head;
            if masked[0] != 0x45 {
                let (layer, field) = (Layer::Ipv4, Field::Ihl);
                return Err(ParseError::Value { layer, field, value: u16::from(masked[0] & 0xF) });
            }
            // TOS, TTL and header checksum (docs/spec/wire-formats.md §2.2)
            put::<1, 1, _>(&mut masked, [0xFF]);
            put::<8, 1, _>(&mut masked, [0xFF]);
            put::<10, 2, _>(&mut masked, [0xFF; 2]);
            (start().with(&masked), rest)
        }
        6 => {
            let (head, rest) = cut::<{ ipv6::LEN }>(packet, Layer::Ipv6)?;
            let mut masked = *head;
            // traffic class and flow label, with the version as it is; then the hop limit
            put::<0, 4, _>(&mut masked, [0x6F, 0xFF, 0xFF, 0xFF]);
            put::<7, 1, _>(&mut masked, [0xFF]);
            (start().with(&masked), rest)
        }
        version => {
            let (layer, field) = (Layer::Ipv4, Field::Version);
            return Err(ParseError::Value { layer, field, value: u16::from(version) });
        }
    };
    let (head, rest) = cut::<{ udp::LEN }>(rest, Layer::Udp)?;
    let mut masked = *head;
    // the UDP checksum
    put::<6, 2, _>(&mut masked, [0xFF; 2]);
    let crc = crc.with(&masked);
    Ok(match transport {
        Transport::RcLink => {
            // none of its bits is masked; the cut only refuses a packet without a whole RH
            cut::<{ rh::LEN }>(rest, Layer::Rh)?;
            crc.with(rest)
        }
        Transport::Roce => {
            let (head, rest) = cut::<{ bth::LEN }>(rest, Layer::Bth)?;
            let mut masked = *head;
            // FECN, BECN and reserved bits: a switch sets FECN where it meets congestion
            put::<4, 1, _>(&mut masked, [0xFF]);
            crc.with(&masked).with(rest)
        }
    }
    .to_wire())
}

/// ICRC of GEN1 and GEN2: `packet` runs from the RH to the byte before the ICRC, pad included.
#[must_use]
pub fn icrc_afh(packet: &[u8]) -> [u8; LEN] {
    start().with(packet).to_wire()
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::testing::Rng;

    #[test]
    fn check_value_of_the_polynomial() {
        assert_eq!(Crc32::START.with(b"123456789").finish(), 0xCBF4_3926);
        assert_eq!(Crc32::START.finish(), 0);
        assert_eq!(
            Crc32::START.with(b"1234").with(b"").with(b"56789").to_wire(),
            [0x26, 0x39, 0xF4, 0xCB]
        );
    }

    #[test]
    fn agrees_with_long_division() {
        let mut rng = Rng::new(10);
        for _ in 0..200 {
            let bytes: [u8; 70] = rng.bytes();
            let divided = |polynomial: u32| {
                let mut crc = !0u32;
                for bit in bytes.iter().flat_map(|byte| (0..8).map(move |bit| byte >> bit & 1)) {
                    let feedback = crc & 1 ^ u32::from(bit);
                    crc = (crc >> 1) ^ (feedback * polynomial);
                }
                !crc
            };
            let (front, rest) = bytes.split_at(usize::try_from(rng.below(71)).unwrap());
            assert_eq!(Crc32::START.with(front).with(rest).finish(), divided(POLYNOMIAL));
            assert_eq!(u32::from_le_bytes(crc32c(&[front, rest])), divided(CASTAGNOLI));
        }
    }

    #[test]
    fn check_value_of_castagnoli() {
        assert_eq!(u32::from_le_bytes(crc32c(&[b"123456789"])), 0xE306_9283, "RFC 3720 and others");
    }

    #[test]
    fn a_frame_with_its_fcs_leaves_the_residue() {
        let bytes: [u8; 60] = Rng::new(11).bytes();
        assert_eq!(Crc32::START.with(&bytes).with(&fcs(&bytes)).finish(), 0x2144_DF1C);
    }

    #[test]
    fn what_a_switch_may_change_does_not_change_the_icrc() {
        let mut rng = Rng::new(12);
        #[rustfmt::skip] // columns: name, first byte, transport, bytes that may change, one that may not
        let cases: [(&str, u8, Transport, &[usize], usize); 3] = [
            ("ipv4 rc link", 0x45, Transport::RcLink, &[1, 8, 10, 11, 26, 27], 28),
            ("ipv4 roce",    0x45, Transport::Roce,   &[1, 8, 10, 11, 26, 27, 32], 31),
            ("ipv6 roce",    0x60, Transport::Roce,   &[1, 2, 3, 7, 46, 47, 52], 53),
        ];
        for (name, first, transport, free, fixed) in cases {
            let mut packet: [u8; 80] = rng.bytes();
            packet[0] = first;
            let want = icrc_ip(&packet, transport).unwrap();
            for &at in free {
                packet[at] ^= 0x5A;
                assert_eq!(icrc_ip(&packet, transport).unwrap(), want, "{name}: byte {at}");
            }
            packet[fixed] ^= 1;
            assert_ne!(icrc_ip(&packet, transport).unwrap(), want, "{name}: byte {fixed}");
        }
    }

    #[test]
    fn short_and_strange_packets_are_refused() {
        let v4 = {
            let mut packet = [0; 40];
            packet[0] = 0x45;
            packet
        };
        let v6 = {
            let mut packet = [0; 60];
            packet[0] = 0x60;
            packet
        };
        for had in 0..36 {
            assert!(icrc_ip(&v4[..had], Transport::RcLink).is_err(), "{had}");
        }
        for had in 0..40 {
            assert!(icrc_ip(&v4[..had], Transport::Roce).is_err(), "{had}");
        }
        for had in 0..60 {
            assert!(icrc_ip(&v6[..had], Transport::Roce).is_err(), "{had}");
        }
        assert!(icrc_ip(&v4[..36], Transport::RcLink).is_ok());
        assert!(icrc_ip(&v4, Transport::Roce).is_ok());
        assert!(icrc_ip(&v6, Transport::Roce).is_ok());
        for first in [0x46, 0x44, 0x50] {
            assert!(icrc_ip(&[first; 60], Transport::RcLink).is_err(), "{first:#04x}");
        }
    }
}
