//! Interleaving of an address range over 1 to 256 targets.
//!
//! Ways code 0..=8 (2^code ways) and granularity code 0..=6 (256 bytes << code).
//!
//! Source: CXL 3.1 sections 7.7.2.4 and 8.2.9.9.10; docs/spec/wire-formats.md §5.1, §5.2.

/// How a range is dealt out: 2^i ways in granules of 256 << g bytes.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash)]
pub struct Interleave {
    ways: u8,
    granularity: u8,
}

impl Interleave {
    /// Largest code of ways: 256.
    pub const WAYS_MAX: u8 = 8;
    /// Largest code of granularity: 16 KiB.
    pub const GRANULARITY_MAX: u8 = 6;
    /// One way: the range is not dealt out.
    pub const NONE: Self = Self { ways: 0, granularity: 0 };

    /// From the two codes as they stand in table entries; `None` for a reserved one.
    #[must_use]
    pub const fn from_codes(ways: u8, granularity: u8) -> Option<Self> {
        if ways <= Self::WAYS_MAX && granularity <= Self::GRANULARITY_MAX {
            Some(Self { ways, granularity })
        } else {
            None
        }
    }

    /// Code of the number of ways, 0..=8.
    #[inline]
    #[must_use]
    pub const fn ways_code(self) -> u8 {
        self.ways
    }

    /// Code of the granularity, 0..=6.
    #[inline]
    #[must_use]
    pub const fn granularity_code(self) -> u8 {
        self.granularity
    }

    /// Number of ways, 1..=256.
    #[inline]
    #[must_use]
    pub const fn ways(self) -> u16 {
        1 << self.ways
    }

    /// Bytes of an interleave granule, 256..=16,384.
    #[inline]
    #[must_use]
    pub const fn granularity(self) -> u32 {
        256 << self.granularity
    }

    /// Lowest bit of the way in an address.
    #[inline]
    const fn shift(self) -> u32 {
        8 + self.granularity as u32
    }

    /// The way that `address` falls on, below [`Interleave::ways`].
    #[inline]
    #[must_use]
    #[expect(clippy::cast_possible_truncation, reason = "masked to 8 bits")]
    pub const fn way(self, address: u64) -> u8 {
        ((address >> self.shift()) & ((1 << self.ways) - 1)) as u8
    }

    /// Takes the bits of the way out of `offset`: where the byte lies on its target.
    #[inline]
    #[must_use]
    pub const fn compact(self, offset: u64) -> u64 {
        // the bits of the way go, and the bits above them close the gap
        let low = (1 << self.shift()) - 1;
        ((offset >> (self.shift() + self.ways as u32)) << self.shift()) | (offset & low)
    }

    /// Puts `way` back into a compacted offset; `None` when it would not fit in 64 bits.
    #[inline]
    #[must_use]
    pub const fn expand(self, compacted: u64, way: u8) -> Option<u64> {
        let low = (1 << self.shift()) - 1;
        let high = compacted >> self.shift();
        let up = self.shift() + self.ways as u32;
        // a device may hold any DPA in its tables, so that high bits may have no room
        if high > u64::MAX >> up {
            return None;
        }
        let way = (way as u64) & ((1 << self.ways) - 1);
        Some((high << up) | (way << self.shift()) | (compacted & low))
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::testing::Rng;

    /// The worked address of docs/spec/wire-formats.md §5.1 and §5.2.
    #[test]
    fn worked_address_falls_on_way_three_and_compacts() {
        let four = Interleave::from_codes(2, 4).expect("4 ways of 4 KiB");
        assert_eq!((four.ways(), four.granularity()), (4, 4_096));
        assert_eq!(four.way(0x0123_4567_BA40), 3);
        let off = 0x0123_4567_BA40 - 0x0120_0000_0000;
        assert_eq!(four.compact(off), 0xD159_EA40);
        assert_eq!(four.expand(0xD159_EA40, 3), Some(off));
    }

    #[test]
    fn reserved_codes_are_refused() {
        for (ways, granularity, want) in
            [(8, 6, true), (9, 0, false), (15, 0, false), (0, 7, false), (255, 255, false)]
        {
            assert_eq!(
                Interleave::from_codes(ways, granularity).is_some(),
                want,
                "{ways} {granularity}"
            );
        }
    }

    /// Every code against counting: bytes dealt out in granules.
    #[test]
    fn way_and_offset_are_those_of_dealing_out_in_turns() {
        let mut rng = Rng::new(7);
        for ways in 0..=Interleave::WAYS_MAX {
            for granularity in 0..=Interleave::GRANULARITY_MAX {
                let interleave = Interleave::from_codes(ways, granularity).expect("in range");
                let (n, granule) =
                    (u64::from(interleave.ways()), u64::from(interleave.granularity()));
                for _ in 0..200 {
                    let offset = rng.below(1 << 44);
                    let (round, within) = (offset / granule / n, offset % granule);
                    let way = interleave.way(offset);
                    assert_eq!(u64::from(way), offset / granule % n, "{interleave:?} {offset:#x}");
                    assert_eq!(interleave.compact(offset), round * granule + within);
                    assert_eq!(interleave.expand(round * granule + within, way), Some(offset));
                }
            }
        }
    }

    #[test]
    fn an_offset_that_would_leave_64_bits_does_not_expand() {
        let wide = Interleave::from_codes(8, 6).expect("256 ways");
        assert_eq!(wide.expand(1 << 56, 0), None);
        assert!(wide.expand((1 << 56) - 1, 255).is_some());
    }
}
