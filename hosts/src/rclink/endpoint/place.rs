//! Which frame of which message: the sequence number that a frame's stamp carries.
//!
//! Shape, 64 bits: message 32, last frame 1, index 31.
//!
//! Source: docs/spec/model.md §4 "Messages" *(ours)*.

/// Most frames of a message.
pub(super) const FRAMES_MAX: u64 = 1 << INDEX_BITS;
const INDEX_BITS: u32 = 31;
const LAST: u64 = 1 << INDEX_BITS;

/// A frame's place.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct FramePlace {
    /// The message.
    pub message: u32,
    /// Which of its frames, from 0.
    pub index: u32,
    /// Whether it is the last one.
    pub is_last: bool,
}

impl FramePlace {
    /// The place that a sequence number tells.
    #[inline]
    pub const fn of_seq(seq: u64) -> Self {
        let low = low32(seq);
        Self {
            message: low32(seq >> 32),
            index: low & (u32::MAX >> 1),
            is_last: low > u32::MAX >> 1,
        }
    }

    /// What stands where the message does.
    #[inline]
    pub const fn message_of(seq: u64) -> u32 {
        low32(seq >> 32)
    }

    /// The sequence number that tells it.
    #[inline]
    pub const fn seq(self) -> u64 {
        let last = if self.is_last { LAST } else { 0 };
        (self.message as u64) << 32 | last | self.index as u64 & (LAST - 1)
    }
}

const fn low32(value: u64) -> u32 {
    let [.., b3, b2, b1, b0] = value.to_be_bytes();
    u32::from_be_bytes([b3, b2, b1, b0])
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_place_is_told_by_a_number_and_back() {
        let place = |message, index, is_last| FramePlace { message, index, is_last };
        #[rustfmt::skip] // columns: place, number
        let cases = [
            (place(0, 0, false),                  0),
            (place(7, 3, true),                   0x0000_0007_8000_0003),
            (place(u32::MAX, 0x7FFF_FFFF, false), 0xFFFF_FFFF_7FFF_FFFF),
            (place(u32::MAX, 0x7FFF_FFFF, true),  u64::MAX),
        ];
        for (place, seq) in cases {
            assert_eq!((place.seq(), FramePlace::of_seq(seq)), (seq, place));
        }
    }
}
