//! Tag operations on a frame's bytes, in the chunk where they are.
//!
//! A [`TagOp`] applied to a chunk and an [`Extent`] gives the new [`Extent`]; only the 12 bytes of
//! the addresses move.
//!
//! Units: bytes; the tag is TPID (2), TCI (2) at byte 12.
//! Source: IEEE 802.1Q clause 9.

use weft_parsers::Tci;
use weft_parsers::vlan::TAG_LEN;

const ADDRESSES: usize = 12;
const ETHER_TYPE: usize = 2;

/// Change of a frame's outer tag.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum TagOp {
    /// The frame is not changed.
    Keep,
    /// The tag is removed.
    Strip,
    /// A tag is added before the EtherType.
    Insert,
    /// Its TCI is replaced; its TPID stays.
    Rewrite,
}

/// Place of a frame in its chunk.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Extent {
    /// Bytes of the chunk before the frame.
    pub start: usize,
    /// Length of the frame, in bytes without FCS.
    pub len: usize,
}

impl TagOp {
    /// Length of a frame of `len` bytes after this change.
    #[must_use]
    pub const fn len_after(self, len: usize) -> usize {
        match self {
            Self::Keep | Self::Rewrite => len,
            Self::Insert => len + TAG_LEN,
            Self::Strip => len.saturating_sub(TAG_LEN),
        }
    }

    /// Makes the change to the frame at `at` in `chunk`. `None`, with nothing changed, when the
    /// frame is too short for it, does not lie in the chunk, or there are no 4 bytes before it to
    /// insert into.
    ///
    /// `Insert` writes `tpid` and `tci`, `Rewrite` writes `tci`; the others use neither. `Strip`
    /// and `Rewrite` assume that the frame is tagged, as classification found.
    #[must_use]
    pub fn apply(self, chunk: &mut [u8], at: Extent, tci: Tci, tpid: u16) -> Option<Extent> {
        let Extent { start, len } = at;
        let need = match self {
            Self::Keep => 0,
            Self::Insert => ADDRESSES + ETHER_TYPE,
            Self::Strip | Self::Rewrite => ADDRESSES + TAG_LEN + ETHER_TYPE,
        };
        if len < need {
            return None;
        }
        let end = start.checked_add(len)?;
        match self {
            Self::Keep => {
                chunk.get(start..end)?;
                Some(at)
            }
            Self::Strip => {
                let frame = chunk.get_mut(start..end)?;
                // The addresses move over the tag, not the payload to the front: 12 bytes instead
                // of up to 9,700.
                frame.copy_within(..ADDRESSES, TAG_LEN);
                Some(Extent { start: start + TAG_LEN, len: len - TAG_LEN })
            }
            Self::Insert => {
                // Into the headroom that the pool keeps before each frame.
                let start = start.checked_sub(TAG_LEN)?;
                let frame = chunk.get_mut(start..end)?;
                frame.copy_within(TAG_LEN..TAG_LEN + ADDRESSES, 0);
                write(frame, ADDRESSES, tpid)?;
                write(frame, ADDRESSES + 2, tci.0)?;
                Some(Extent { start, len: len + TAG_LEN })
            }
            Self::Rewrite => {
                write(chunk.get_mut(start..end)?, ADDRESSES + 2, tci.0)?;
                Some(at)
            }
        }
    }
}

fn write(frame: &mut [u8], offset: usize, value: u16) -> Option<()> {
    *frame.get_mut(offset..)?.first_chunk_mut()? = value.to_be_bytes();
    Some(())
}

#[cfg(test)]
mod tests {
    use super::*;

    const CTAG: u16 = 0x8100;
    const TCI: Tci = Tci(0xB00A);

    /// `head` bytes of headroom, addresses 1..=12, `rest`, and two bytes of tailroom.
    fn chunk(head: usize, rest: &[u8]) -> (Vec<u8>, Extent) {
        let mut chunk = vec![0xEE; head];
        chunk.extend(1..=12);
        chunk.extend(rest);
        let at = Extent { start: head, len: 12 + rest.len() };
        chunk.extend([0xDD; 2]);
        (chunk, at)
    }

    /// Each operation, byte for byte: the frame itself, and that nothing outside of it changes.
    #[test]
    fn operations_change_just_their_bytes() {
        const PLAIN: &[u8] = &[0x08, 0x00, 0x45, 0x46];
        const TAGGED: &[u8] = &[0x81, 0x00, 0x20, 0x07, 0x08, 0x00, 0x45, 0x46];
        const STAGGED: &[u8] = &[0x88, 0xA8, 0xB0, 0x0A, 0x81, 0x00, 0x20, 0x07, 0x08, 0x00];
        #[rustfmt::skip] // columns: name, op, headroom, bytes after the addresses, want, TPID
        let cases: [(_, _, _, _, &[u8], _); 9] = [
            ("keep",              TagOp::Keep,    0, PLAIN,       PLAIN,  CTAG),
            ("keep tagged",       TagOp::Keep,    4, TAGGED,      TAGGED, CTAG),
            ("strip",             TagOp::Strip,   0, TAGGED,      PLAIN,  CTAG),
            ("strip with room",   TagOp::Strip,   9, TAGGED,      PLAIN,  CTAG),
            ("strip outer",       TagOp::Strip,   0, STAGGED,     &STAGGED[4..], CTAG),
            ("insert",            TagOp::Insert,  4, PLAIN,       &[0x81, 0, 0xB0, 0x0A, 8, 0, 0x45, 0x46], CTAG),
            ("insert with room",  TagOp::Insert,  7, PLAIN,       &[0x81, 0, 0xB0, 0x0A, 8, 0, 0x45, 0x46], CTAG),
            ("insert outer",      TagOp::Insert,  4, &STAGGED[4..], STAGGED, 0x88A8),
            ("rewrite",           TagOp::Rewrite, 0, TAGGED,      &[0x81, 0, 0xB0, 0x0A, 8, 0, 0x45, 0x46], 0),
        ];
        for (name, op, head, rest, want, tpid) in cases {
            let (mut bytes, at) = chunk(head, rest);
            let end = at.start + at.len;
            let new = op.apply(&mut bytes, at, TCI, tpid).expect(name);
            let (_, plain) = chunk(0, want);
            assert_eq!((new.len, op.len_after(at.len)), (plain.len, plain.len), "{name}");
            assert_eq!(new.start + new.len, end, "{name}: the end stays");
            let frame = &bytes[new.start..][..new.len];
            assert_eq!(frame[..12], (1..=12).collect::<Vec<u8>>(), "{name}: addresses");
            assert_eq!(&frame[12..], want, "{name}");
            assert_eq!(bytes[end..], [0xDD; 2], "{name}: tailroom");
            let untouched = at.start.min(new.start);
            assert!(bytes[..untouched].iter().all(|&b| b == 0xEE), "{name}: headroom");
        }
    }

    #[test]
    fn what_does_not_fit_is_refused_and_left_alone() {
        #[rustfmt::skip] // columns: name, op, start, length, fits
        let cases = [
            ("no headroom",            TagOp::Insert,  3,          20,         false),
            ("just headroom",          TagOp::Insert,  4,          20,         true),
            ("no EtherType",           TagOp::Insert,  4,          13,         false),
            ("just an EtherType",      TagOp::Insert,  4,          14,         true),
            ("no tag to strip",        TagOp::Strip,   0,          17,         false),
            ("just a tag to strip",    TagOp::Strip,   0,          18,         true),
            ("no tag to rewrite",      TagOp::Rewrite, 0,          17,         false),
            ("just a tag to rewrite",  TagOp::Rewrite, 0,          18,         true),
            ("to the end",             TagOp::Strip,   2,          30,         true),
            ("past the end",           TagOp::Strip,   2,          31,         false),
            ("insert past the end",    TagOp::Insert,  5,          28,         false),
            ("rewrite past the end",   TagOp::Rewrite, 32,         18,         false),
            ("keep past the end",      TagOp::Keep,    32,         1,          false),
            ("keep nothing",           TagOp::Keep,    32,         0,          true),
            ("overflow",               TagOp::Strip,   usize::MAX, 18,         false),
            ("overflow of insert",     TagOp::Insert,  8,          usize::MAX, false),
        ];
        for (name, op, start, len, fits) in cases {
            let before: Vec<u8> = (0..32).collect();
            let mut chunk = before.clone();
            let done = op.apply(&mut chunk, Extent { start, len }, TCI, CTAG);
            assert_eq!(done.is_some(), fits, "{name}");
            assert!(fits || chunk == before, "{name}: left alone");
        }
    }

    #[test]
    fn strip_undoes_insert() {
        let (before, at) = chunk(4, &[0x88, 0xB5, 1, 2, 3]);
        let mut bytes = before.clone();
        let tagged = TagOp::Insert.apply(&mut bytes, at, TCI, CTAG).unwrap();
        assert_eq!(TagOp::Strip.apply(&mut bytes, tagged, TCI, CTAG), Some(at));
        assert_eq!(bytes[at.start..], before[at.start..]);
    }
}
