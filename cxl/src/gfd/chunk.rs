//! A piece of the memory behind a device.
//! [`Chunk::fresh`]: zeros, read and written by place.
//!
//! Units: bytes.

use weft_parsers::cxl_mem;

/// Bytes of a piece.
pub const CHUNK: usize = 2 << 20;

/// A piece of memory. A line of it is one of the processor's cache, which the system's allocator alone does not see to.
#[derive(Debug)]
pub struct Chunk {
    room: Box<[u8]>,
    /// Where in `room` it begins.
    from: usize,
}

impl Chunk {
    /// Zeros: fresh pages of the system, which take room only when written.
    pub fn fresh() -> Self {
        let room = vec![0; CHUNK + cxl_mem::LINE - 1].into_boxed_slice();
        let from = room.as_ptr().align_offset(cxl_mem::LINE).min(cxl_mem::LINE - 1);
        Self { room, from }
    }

    /// A part of it.
    #[inline]
    pub fn get(&self, at: usize, len: usize) -> Option<&[u8]> {
        self.room.get(self.from + at..self.from + at + len)
    }

    /// A part of it, to write.
    #[inline]
    pub fn get_mut(&mut self, at: usize, len: usize) -> Option<&mut [u8]> {
        self.room.get_mut(self.from + at..self.from + at + len)
    }
}
