//! The data that TCP hosts send: each byte is a function of a seed and its offset, so that a receiver can check it.
//!
//! Source: ours: word n of 8 bytes, the least significant first, is `stamp::mix` (`SplitMix64`) of seed + n.

use crate::stamp::mix;

/// Bytes of a word.
const WORD: usize = 8;

/// Words of the data of `seed` from the one with byte `at` on, and how many bytes of that word are before `at`.
fn words(seed: u64, at: u64) -> (impl Iterator<Item = [u8; WORD]>, usize) {
    let first = at / WORD as u64;
    let words = (first..).map(move |number| mix(seed.wrapping_add(number)).to_le_bytes());
    (words, usize::try_from(at % WORD as u64).unwrap_or(0))
}

/// Writes to `out` the data of `seed` from byte `at` on.
pub fn fill(seed: u64, at: u64, out: &mut [u8]) {
    let (mut words, skip) = words(seed, at);
    // The data may begin within a word: its rest comes first, then whole words.
    let (front, rest) = out.split_at_mut(if skip == 0 { 0 } else { out.len().min(WORD - skip) });
    if !front.is_empty()
        && let Some(word) = words.next()
    {
        front.iter_mut().zip(word.iter().skip(skip)).for_each(|(to, from)| *to = *from);
    }
    for (chunk, word) in rest.chunks_mut(WORD).zip(words) {
        chunk.iter_mut().zip(word).for_each(|(to, from)| *to = from);
    }
}

/// Offset of the first byte of `bytes` that differs from the data of `seed`; `bytes` begin at byte `at` of it.
#[must_use]
pub fn differs(seed: u64, at: u64, bytes: &[u8]) -> Option<u64> {
    let mut place = at;
    // Whole pieces are compared at once; only a wrong one is searched byte by byte.
    let mut wanted = [0; 512];
    for piece in bytes.chunks(wanted.len()) {
        let wanted = wanted.get_mut(..piece.len())?;
        fill(seed, place, wanted);
        if piece != wanted {
            let same = piece.iter().zip(wanted.iter()).take_while(|(had, want)| had == want);
            return Some(place + same.count() as u64);
        }
        place += piece.len() as u64;
    }
    None
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_stream_is_the_same_in_any_pieces() {
        let mut whole = vec![0; 2_000];
        fill(9, 0, &mut whole);
        assert_eq!(whole[8..16], mix(10).to_le_bytes(), "word 1 is of seed + 1");
        for (at, len) in [(0, 1), (1, 3), (7, 1), (7, 2), (8, 8), (13, 1_500), (1_999, 1), (5, 0)] {
            let mut piece = vec![0; len];
            fill(9, at as u64, &mut piece);
            assert_eq!(piece, whole[at..at + len], "{at} {len}");
            assert_eq!(differs(9, at as u64, &piece), None);
        }
    }

    #[test]
    fn the_first_wrong_byte_is_found() {
        let mut bytes = vec![0; 1_500];
        fill(1, 100, &mut bytes);
        for wrong in [0, 7, 511, 512, 1_499] {
            let mut other = bytes.clone();
            other[wrong] ^= 1;
            assert_eq!(differs(1, 100, &other), Some(100 + wrong as u64));
        }
        assert_eq!(differs(2, 100, &bytes), Some(100), "another seed is another stream");
    }
}
