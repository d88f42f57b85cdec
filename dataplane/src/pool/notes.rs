//! Notes about a frame, at the start of its chunk.
//!
//! Checksum start (16 bits), checksum offset (16), unused (32), trace number (64), damaged (8), in host byte order.

use weft_parsers::partial::PartialCsum;

use super::Bufs;
use crate::desc::{Desc, Flag};

/// Offset of the byte that says whether the frame is damaged.
const DAMAGED: usize = 16;

impl Bufs {
    /// Where the frame's partial checksum starts and goes; `None` if the checksum is complete ([`Flag::PartialCsum`]).
    #[must_use]
    pub fn partial_csum(&self, desc: &Desc) -> Option<PartialCsum> {
        let notes = self.pool.read(desc, 0, 4).first_chunk::<4>()?;
        desc.has(Flag::PartialCsum).then(|| PartialCsum {
            start: u16::from_ne_bytes([notes[0], notes[1]]),
            offset: u16::from_ne_bytes([notes[2], notes[3]]),
        })
    }

    /// Marks the frame's checksum as partial, or (`None`) as complete. The notes of a shared frame stay as they are.
    pub fn set_partial_csum(&mut self, desc: &mut Desc, partial: Option<PartialCsum>) {
        // The flag belongs to this descriptor. The notes are in the chunk, where other copies of the frame read them.
        desc.set(Flag::PartialCsum, partial.is_some());
        if let Some(partial) = partial
            && self.pool.sole(desc)
        {
            let notes = self.pool.write(desc, 0, 4);
            let (start, offset) = notes.split_at_mut(2);
            start.copy_from_slice(&partial.start.to_ne_bytes());
            offset.copy_from_slice(&partial.offset.to_ne_bytes());
        }
    }

    /// Whether the frame was damaged on its way in and is forwarded all the same (cut-through, in virtual time).
    #[must_use]
    pub fn is_damaged(&self, desc: &Desc) -> bool {
        self.pool.read(desc, DAMAGED, 1) == [1]
    }

    /// Notes whether the frame was damaged on its way in. The notes of a shared frame stay as they are.
    pub fn set_damaged(&mut self, desc: &mut Desc, damaged: bool) {
        if self.pool.sole(desc) {
            self.pool.write(desc, DAMAGED, 1).fill(damaged.into());
        }
    }

    /// The number that tracing gave this frame.
    ///
    /// # Panics
    /// Never: the notes hold it.
    #[must_use]
    pub fn trace_id(&self, desc: &Desc) -> u64 {
        let notes = self.pool.read(desc, 8, 8).first_chunk::<8>();
        u64::from_ne_bytes(*notes.expect("8 bytes were read"))
    }

    /// Sets the frame's trace number. The notes of a shared frame stay as they are.
    pub fn set_trace_id(&mut self, desc: &mut Desc, id: u64) {
        if self.pool.sole(desc) {
            self.pool.write(desc, 8, 8).copy_from_slice(&id.to_ne_bytes());
        }
    }
}
