//! Internet checksum: whole, incremental, and over pseudo-headers.
//!
//! [`Sum`] collects 16-bit words; [`update16`] changes one word of a finished checksum.
//!
//! Source: RFC 1071 (sum), RFC 1624 section 3 equation 3 (update), RFC 9293 3.1 and RFC 8200 8.1
//! (pseudo-headers).

/// Running one's complement sum of big-endian 16-bit words.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Sum(u64);

impl Sum {
    /// The sum of no words.
    pub const ZERO: Self = Self(0);

    /// Adds `bytes`; an odd last byte counts as the high half of a word, so that only the last
    /// slice added may have an odd length.
    #[must_use]
    pub fn with(self, bytes: &[u8]) -> Self {
        // Words of the machine's own order give the sum in that order (RFC 1071, 2 (B)); 32-bit ones
        // in a 64-bit sum: no overflow below 2^34 bytes.
        let (words, rest) = bytes.as_chunks::<4>();
        let sum = words.iter().fold(0_u64, |sum, word| sum + u64::from(u32::from_ne_bytes(*word)));
        let last = match *rest {
            [] => [0; 4],
            [a] => [a, 0, 0, 0],
            [a, b] => [a, b, 0, 0],
            [a, b, c, ..] => [a, b, c, 0],
        };
        let own = Self(sum + u64::from(u32::from_ne_bytes(last))).fold();
        self.with16(u16::from_be_bytes(own.to_ne_bytes()))
    }

    /// Adds one 16-bit word.
    #[inline]
    #[must_use]
    pub const fn with16(self, word: u16) -> Self {
        Self(self.0 + word as u64)
    }

    /// Adds four 16-bit words, held in one integer.
    #[inline]
    #[must_use]
    pub const fn with64(self, words: u64) -> Self {
        // 2^16 is 1 in this arithmetic, so that words may be added two at a time.
        Self(self.0 + (words >> 32) + (words & 0xFFFF_FFFF))
    }

    /// The sum folded into 16 bits, not inverted: the content of a partial checksum field.
    #[inline]
    #[must_use]
    #[expect(clippy::cast_possible_truncation, reason = "folded below 2^16 by the lines above it")]
    pub const fn fold(self) -> u16 {
        let mut sum = (self.0 >> 32) + (self.0 & 0xFFFF_FFFF); // at most 33 bits
        sum = (sum >> 32) + (sum & 0xFFFF_FFFF);
        sum = (sum >> 16) + (sum & 0xFFFF); // at most 17 bits
        sum = (sum >> 16) + (sum & 0xFFFF);
        sum as u16
    }

    /// The checksum: the folded sum, inverted.
    #[inline]
    #[must_use]
    pub const fn finish(self) -> u16 {
        !self.fold()
    }
}

/// Checksum of `bytes`; 0 over data that contains its own correct checksum.
#[must_use]
pub fn checksum(bytes: &[u8]) -> u16 {
    Sum::ZERO.with(bytes).finish()
}

/// Sum over the pseudo-header of TCP or UDP on IPv4; `len` is that of the transport packet.
#[must_use]
pub fn pseudo_v4(src: [u8; 4], dst: [u8; 4], proto: u8, len: u16) -> Sum {
    Sum::ZERO.with(&src).with(&dst).with16(u16::from(proto)).with16(len)
}

/// Sum over the pseudo-header of TCP or UDP on IPv6; `len` is that of the transport packet.
#[must_use]
pub fn pseudo_v6(src: [u8; 16], dst: [u8; 16], proto: u8, len: u32) -> Sum {
    Sum::ZERO.with(&src).with(&dst).with(&len.to_be_bytes()).with16(u16::from(proto))
}

/// A finished checksum after one 16-bit word it covers changed from `old` to `new`.
#[inline]
#[must_use]
pub const fn update16(checksum: u16, old: u16, new: u16) -> u16 {
    //= RFC 1624 section 3: HC' = ~(~HC + ~m + m')
    Sum::ZERO.with16(!checksum).with16(!old).with16(new).finish()
}

/// Completes a partial checksum. `packet` runs from the transport header to the end of its payload,
/// and its two bytes at `field` hold the folded pseudo-header sum. With `udp`, a result of 0 is
/// sent as 0xFFFF (RFC 768). Returns false, and changes nothing, when `field` is not inside.
#[must_use]
pub fn complete(packet: &mut [u8], field: usize, udp: bool) -> bool {
    // the pseudo-header's sum stands in the packet, so that one sum over its bytes completes it
    let sum = checksum(packet);
    let Some(end) = field.checked_add(2) else { return false };
    let Some(place) = packet.get_mut(field..end).and_then(<[u8]>::first_chunk_mut) else {
        return false;
    };
    *place = if udp && sum == 0 { [0xFF; 2] } else { sum.to_be_bytes() };
    true
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::testing::Rng;

    /// RFC 1071 as its text says, one word at a time.
    fn oracle(bytes: &[u8]) -> u16 {
        let mut sum = 0u32;
        for pair in bytes.chunks(2) {
            sum += u32::from(pair[0]) << 8 | u32::from(*pair.get(1).unwrap_or(&0));
            if sum > 0xFFFF {
                sum = (sum & 0xFFFF) + 1;
            }
        }
        !u16::try_from(sum).unwrap()
    }

    #[test]
    fn known_sums() {
        #[rustfmt::skip] // columns: name, bytes, want
        let cases: [(&str, &[u8], u16); 6] = [
            ("nothing",            &[],                                  0xFFFF),
            ("rfc 1071 example",   &[0, 1, 0xF2, 3, 0xF4, 0xF5, 0xF6, 0xF7], !0xDDF2),
            ("one byte is high",  &[0x12],                              !0x1200),
            ("carry out",          &[0xFF, 0xFF, 0, 1],                  !1),
            ("worked, no checksum", &[0x45, 0x21, 0, 0x68, 0, 1, 0x40, 0, 0x40, 0x11, 0, 0, 10, 0, 0, 1, 10, 0, 0, 2], 0x2661),
            ("worked, whole",      &[0x45, 0x21, 0, 0x68, 0, 1, 0x40, 0, 0x40, 0x11, 0x26, 0x61, 10, 0, 0, 1, 10, 0, 0, 2], 0),
        ];
        for (name, bytes, want) in cases {
            assert_eq!(checksum(bytes), want, "{name}");
        }
    }

    #[test]
    fn agrees_with_the_word_by_word_oracle() {
        let mut rng = Rng::new(2);
        for _ in 0..2000 {
            let mut bytes: [u8; 97] = rng.bytes();
            if rng.bool() {
                bytes.fill(0xFF); // carries everywhere
            }
            let len = usize::try_from(rng.below(98)).unwrap();
            assert_eq!(checksum(&bytes[..len]), oracle(&bytes[..len]), "{:02x?}", &bytes[..len]);
        }
    }

    #[test]
    fn update_equals_a_new_sum() {
        //= RFC 1624 section 3
        assert_eq!(update16(0x2661, 0x4521, 0x4523), 0x265F, "docs/spec/wire-formats.md §1.2");
        assert_eq!(update16(0xDD2F, 0x5555, 0x3285), 0x0000, "RFC 1624 section 4");
        let mut rng = Rng::new(3);
        for _ in 0..20_000 {
            let mut words: [u8; 20] = rng.bytes();
            let before = checksum(&words);
            let old = u16::from_be_bytes([words[4], words[5]]);
            let new = rng.u16();
            words[4..6].copy_from_slice(&new.to_be_bytes());
            assert_eq!(update16(before, old, new), checksum(&words));
        }
    }

    #[test]
    fn complete_makes_a_packet_that_sums_to_zero() {
        let mut rng = Rng::new(4);
        for _ in 0..1000 {
            let mut packet: [u8; 31] = rng.bytes();
            let (src, dst) = (rng.bytes(), rng.bytes());
            let pseudo = pseudo_v4(src, dst, 17, 31);
            packet[6..8].copy_from_slice(&pseudo.fold().to_be_bytes());
            assert!(complete(&mut packet, 6, true));
            assert_eq!(pseudo.with(&packet).finish(), 0);
            let pseudo = pseudo_v6(rng.bytes(), rng.bytes(), 6, 31);
            packet[16..18].copy_from_slice(&pseudo.fold().to_be_bytes());
            assert!(complete(&mut packet, 16, false));
            assert_eq!(pseudo.with(&packet).finish(), 0);
        }
    }

    #[test]
    fn complete_edges() {
        let mut packet = [0xFF, 0xFF, 0, 0];
        assert!(complete(&mut packet, 2, true));
        assert_eq!(packet, [0xFF; 4], "a UDP checksum is never sent as 0");
        packet = [0xFF, 0xFF, 0, 0];
        assert!(complete(&mut packet, 2, false));
        assert_eq!(packet, [0xFF, 0xFF, 0, 0], "TCP sends 0 as 0");
        for field in [3, 4, usize::MAX] {
            assert!(!complete(&mut packet, field, true), "field at {field}");
        }
        assert_eq!(packet, [0xFF, 0xFF, 0, 0], "untouched");
    }
}
