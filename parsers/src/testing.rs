//! Helpers of the unit tests of several files: a seeded generator and two checks.
//!
//! Source: Vigna, "An experimental exploration of Marsaglia's xorshift generators", 2016.

use core::fmt::{Display, Write};

use crate::error::{Layer, ParseError};

/// Seeded generator of random numbers, xorshift64*.
pub struct Rng(u64);

impl Rng {
    /// The same `seed` gives the same numbers.
    pub fn new(seed: u64) -> Self {
        Self(seed.wrapping_mul(0x9E37_79B9_7F4A_7C15) | 1)
    }

    /// The next 64 random bits.
    pub fn u64(&mut self) -> u64 {
        self.0 ^= self.0 >> 12;
        self.0 ^= self.0 << 25;
        self.0 ^= self.0 >> 27;
        self.0.wrapping_mul(0x2545_F491_4F6C_DD1D)
    }

    /// A number below `bound`.
    pub fn below(&mut self, bound: u64) -> u64 {
        (self.u64() >> 16) % bound
    }

    /// The next 32 random bits.
    pub fn u32(&mut self) -> u32 {
        (self.u64() >> 32) as u32
    }

    /// The next 16 random bits.
    pub fn u16(&mut self) -> u16 {
        (self.u64() >> 48) as u16
    }

    /// The next 8 random bits.
    pub fn u8(&mut self) -> u8 {
        (self.u64() >> 56) as u8
    }

    /// True or false, each half of the time.
    pub fn bool(&mut self) -> bool {
        self.u64() >> 63 == 1
    }

    /// An array of `N` random bytes.
    pub fn bytes<const N: usize>(&mut self) -> [u8; N] {
        core::array::from_fn(|_| self.u8())
    }
}

/// Checks that `parse` refuses each length below `need` with exact numbers, and takes `need`.
pub fn refuses_every_shorter(
    layer: Layer,
    need: usize,
    parse: impl Fn(&[u8]) -> Option<ParseError>,
) {
    refuses_shorter_of(&[0; 64][..need], layer, parse);
}

/// Checks that `parse` refuses every proper prefix of `whole` as too short, and takes `whole`.
pub fn refuses_shorter_of(whole: &[u8], layer: Layer, parse: impl Fn(&[u8]) -> Option<ParseError>) {
    for had in 0..whole.len() {
        let want = ParseError::short(layer, whole.len(), had);
        assert_eq!(parse(&whole[..had]), Some(want), "{had} of {} bytes", whole.len());
    }
    assert_eq!(parse(whole), None, "all {} bytes", whole.len());
}

/// Formatted text without an allocator, at most 128 bytes.
pub struct Text {
    bytes: [u8; 128],
    len: usize,
}

impl Text {
    /// Formats `value` as [`Display`] does.
    pub fn of(value: &impl Display) -> Self {
        let mut text = Self { bytes: [0; 128], len: 0 };
        write!(text, "{value}").expect("128 bytes are enough");
        text
    }

    /// The text written so far.
    pub fn as_str(&self) -> &str {
        str::from_utf8(&self.bytes[..self.len]).expect("written as str")
    }
}

impl Write for Text {
    fn write_str(&mut self, part: &str) -> core::fmt::Result {
        let end = self.len + part.len();
        let place = self.bytes.get_mut(self.len..end).ok_or(core::fmt::Error)?;
        place.copy_from_slice(part.as_bytes());
        self.len = end;
        Ok(())
    }
}
