//! Place of a frame in its message, carried as the sequence number of its stamp.
//!
//! The 64 bits are 32 for the message, 1 for the last frame and 31 for the index.
//!
//! Source: docs/spec/model.md §4 "Messages" *(ours)*.

/// Largest number of frames in a message.
pub(super) const FRAMES_MAX: u64 = 1 << INDEX_BITS;
const INDEX_BITS: u32 = 31;
const LAST: u64 = 1 << INDEX_BITS;

/// Place of a frame: its message, and its index there.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct FramePlace {
    /// Id of the message; at its sender, index in the backlog.
    pub message: u32,
    /// Index of the frame in its message, from 0.
    pub index: u32,
    /// Whether it is the last frame of its message.
    pub is_last: bool,
}

impl FramePlace {
    /// The place that a sequence number stands for.
    #[inline]
    pub const fn of_seq(seq: u64) -> Self {
        let low = low32(seq);
        Self {
            message: low32(seq >> 32),
            index: low & (u32::MAX >> 1),
            is_last: low > u32::MAX >> 1,
        }
    }

    /// The message part of a sequence number.
    #[inline]
    pub const fn message_of(seq: u64) -> u32 {
        low32(seq >> 32)
    }

    /// The sequence number that stands for this place.
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
