//! Reset of a link: the upper end orders it, the lower end carries it out and answers.
//!
//! Kind 8 (1), order or answer 8, number 8, reserved 8 bits; bytes behind it are padding.
//!
//! Source: docs/spec/wire-formats.md §3.7b (this project's own: links of Ethernet have no training
//! and no PERST#).

use crate::bytes::{byte, cut};
use crate::error::{Field, Layer, ParseError};
use crate::tlp::view::refused;

/// Bytes of a message.
pub const LEN: usize = 4;
/// Kind of a message of a link that is about its reset; there is no other.
pub const KIND: u8 = 1;

/// Order or answer of a reset message.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
#[repr(u8)]
pub enum ResetWord {
    /// From above: hot reset, which holds until it ends.
    AssertHot = 1,
    /// From above: PERST#, which holds until it ends.
    AssertPerst = 2,
    /// From above: no reset holds any more.
    Deassert = 3,
    /// From below: the order with this number has been carried out.
    Done = 0x80,
}

impl ResetWord {
    /// The word with this code; `None` for any other.
    #[must_use]
    pub const fn decode(bits: u8) -> Option<Self> {
        Some(match bits {
            1 => Self::AssertHot,
            2 => Self::AssertPerst,
            3 => Self::Deassert,
            0x80 => Self::Done,
            _ => return None,
        })
    }
}

/// A message about the reset of a link (protocol 4).
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct LinkReset {
    /// Order, or its answer.
    pub word: ResetWord,
    /// Number of the order, counted by the upper end and repeated in the answer.
    pub number: u8,
}

impl LinkReset {
    /// Reads a message; bytes behind it are padding.
    ///
    /// # Errors
    /// Fewer than [`LEN`] bytes, another kind, or an unknown word.
    pub const fn parse(bytes: &[u8]) -> Result<Self, ParseError> {
        let (head, _) = match cut::<LEN>(bytes, Layer::TlpLink) {
            Ok(parts) => parts,
            Err(error) => return Err(error),
        };
        if byte::<0, _>(head) != KIND {
            return Err(refused(Layer::TlpLink, Field::Kind, byte::<0, _>(head) as u16));
        }
        match ResetWord::decode(byte::<1, _>(head)) {
            Some(word) => Ok(Self { word, number: byte::<2, _>(head) }),
            None => Err(refused(Layer::TlpLink, Field::Operation, byte::<1, _>(head) as u16)),
        }
    }

    /// The bytes of it.
    #[must_use]
    pub const fn emit(self) -> [u8; LEN] {
        [KIND, self.word as u8, self.number, 0]
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn messages_stand_on_the_wire_as_the_page_has_them() {
        #[rustfmt::skip] // columns: word, number, bytes
        let cases = [
            (ResetWord::AssertHot,   5,   [1, 1, 5, 0]),
            (ResetWord::AssertPerst, 0,   [1, 2, 0, 0]),
            (ResetWord::Deassert,    6,   [1, 3, 6, 0]),
            (ResetWord::Done,        255, [1, 0x80, 255, 0]),
        ];
        for (word, number, bytes) in cases {
            let message = LinkReset { word, number };
            assert_eq!(message.emit(), bytes, "{word:?}");
            let mut padded = [0; 46];
            padded[..LEN].copy_from_slice(&bytes);
            assert_eq!(LinkReset::parse(&padded), Ok(message), "{word:?}, with padding");
            for len in 0..LEN {
                assert!(LinkReset::parse(&bytes[..len]).is_err(), "{word:?}: {len} bytes");
            }
        }
    }

    #[test]
    fn what_means_nothing_is_refused() {
        for kind in (0..=u8::MAX).filter(|&kind| kind != KIND) {
            assert!(LinkReset::parse(&[kind, 1, 0, 0]).is_err(), "kind {kind}");
        }
        for word in (0..=u8::MAX).filter(|word| ![1, 2, 3, 0x80].contains(word)) {
            assert!(LinkReset::parse(&[KIND, word, 0, 0]).is_err(), "word {word}");
        }
        assert!(LinkReset::parse(&[KIND, 3, 9, 0xFF]).is_ok(), "reserved bits are ignored");
    }
}
