//! Every worked byte string of docs/spec/wire-formats.md §3, both ways; malformed TLPs; random TLPs of every kind.

use super::*;
use crate::error::{Field, Layer, ParseError};
use crate::fabric::{Bdf, Hpa, Pid};
use Mode::{Flit, NonFlit};

mod contents;
mod malformed;
mod random;
mod worked;

/// Bytes of a text of hexadecimal digits and blanks, zeros behind them.
pub(super) struct Bytes {
    bytes: [u8; 4_200],
    pub len: usize,
}

impl core::ops::Deref for Bytes {
    type Target = [u8];

    fn deref(&self) -> &[u8] {
        &self.bytes[..self.len]
    }
}

pub(super) fn hex(text: &str) -> Bytes {
    let mut all = Bytes { bytes: [0; 4_200], len: 0 };
    for part in text.split_whitespace() {
        all.bytes[all.len] = u8::from_str_radix(part, 16).unwrap();
        all.len += 1;
    }
    all
}

pub(super) fn hex_and_zeros(text: &str, zeros: usize) -> Bytes {
    let mut all = hex(text);
    all.len += zeros;
    all
}

/// Parses, and checks that emitting the fields gives the bytes back.
pub(super) fn both_ways(name: &str, mode: Mode, bytes: &[u8]) {
    let tlp = Tlp::parse(mode, bytes).unwrap_or_else(|error| panic!("{name}: {error}"));
    assert_eq!(tlp.len(), bytes.len(), "{name}");
    let repr = tlp.repr();
    let mut out = [0xEE; 4_200];
    let len = repr.emit(&mut out).unwrap_or_else(|error| panic!("{name}: {error}: {repr:?}"));
    assert_eq!(&out[..len], bytes, "{name}");
    assert_eq!(repr.emit_len(), Ok(len), "{name}");
}
