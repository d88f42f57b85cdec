//! Bodies of the fuzz targets, called by `fuzz/` with the fuzzer's bytes and by tests with kept
//! ones.
//!
//! A body takes bytes; a panic is a finding. [`TARGETS`] lists them by name, as `fuzz/` does.

pub mod capture;
pub mod cci;
pub mod config;
pub mod frames;
pub mod management;
pub mod parser;
pub mod pipeline;
pub mod record;
pub mod rig;
pub mod scenario;
pub mod tlp;
pub mod tlp_switch;

pub type Target = fn(&[u8]);

/// Every target by name; `fuzz/fuzz_targets/NAME.rs` and `fuzz/regress/NAME/` have the same names.
pub const TARGETS: [(&str, Target); 9] = [
    ("capture", capture::run),
    ("cci", cci::run),
    ("config", config::run),
    ("management", management::run),
    ("parser", parser::run),
    ("pipeline", pipeline::run),
    ("record", record::run),
    ("scenario", scenario::run),
    ("tlp", tlp::run),
];

/// Bytes that are taken from the front, and zeros when they are used up.
#[derive(Clone, Debug)]
pub struct Input<'a>(&'a [u8]);

impl<'a> Input<'a> {
    #[must_use]
    pub const fn new(bytes: &'a [u8]) -> Self {
        Self(bytes)
    }

    /// Whether all is taken.
    #[must_use]
    pub const fn is_empty(&self) -> bool {
        self.0.is_empty()
    }

    /// Up to `count` bytes.
    pub fn take(&mut self, count: usize) -> &'a [u8] {
        let (taken, rest) = self.0.split_at(count.min(self.0.len()));
        self.0 = rest;
        taken
    }

    pub fn byte(&mut self) -> u8 {
        self.take(1).first().copied().unwrap_or(0)
    }

    /// Two bytes, big-endian.
    pub fn word(&mut self) -> u16 {
        u16::from_be_bytes([self.byte(), self.byte()])
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn input_ends_in_zeros() {
        let mut input = Input::new(&[1, 2, 3, 4]);
        assert_eq!((input.byte(), input.word(), input.is_empty()), (1, 0x0203, false));
        assert_eq!((input.take(9), input.byte(), input.is_empty()), (&[4][..], 0, true));
    }
}
