//! One chunk of the memory behind a device: zeros at first, read and written by offset.

use weft_parsers::cxl_mem;

/// Bytes of a chunk.
pub const CHUNK: usize = 2 << 20;

/// A chunk of memory whose lines coincide with cache lines of the processor, which the system's allocator does not
/// ensure.
#[derive(Debug)]
pub struct Chunk {
    room: Box<[u8]>,
    /// Offset in `room` at which the chunk begins.
    from: usize,
}

impl Chunk {
    /// A chunk of zeros: fresh pages of the system, which take memory only when written.
    pub fn fresh() -> Self {
        // `vec![0; _]` asks for zeroed memory (calloc), which at this size normally is a fresh mapping without pages.
        let room = vec![0; CHUNK + cxl_mem::LINE - 1].into_boxed_slice();
        let from = room.as_ptr().align_offset(cxl_mem::LINE).min(cxl_mem::LINE - 1);
        Self { room, from }
    }

    #[inline]
    pub fn get(&self, at: usize, len: usize) -> Option<&[u8]> {
        self.room.get(self.from + at..self.from + at + len)
    }

    #[inline]
    pub fn get_mut(&mut self, at: usize, len: usize) -> Option<&mut [u8]> {
        self.room.get_mut(self.from + at..self.from + at + len)
    }
}
