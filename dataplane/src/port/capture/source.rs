//! The bytes of a capture, with the position that messages name.
//!
//! Offsets count bytes after unpacking.

use std::io::{ErrorKind, Read};
use std::path::PathBuf;

use super::{CaptureError, Place};

/// Input that a capture is read from.
pub(super) struct Source {
    pub path: PathBuf,
    pub input: Box<dyn Read + Send>,
    /// The record being read, from 1, and the offset of its header in bytes.
    pub record: u64,
    pub offset: u64,
    next_offset: u64,
    /// The input ended before all requested bytes were there.
    pub ended: bool,
    /// The packed data ended too early.
    pub is_packed_cut: bool,
}

impl Source {
    pub fn new(path: PathBuf, input: Box<dyn Read + Send>) -> Self {
        let (record, offset, next_offset) = (0, 0, 0);
        Self { path, input, record, offset, next_offset, ended: false, is_packed_cut: false }
    }

    /// Marks the start of a header, which errors name.
    pub const fn begin(&mut self) {
        self.offset = self.next_offset;
    }

    pub fn at(&self) -> Place {
        Place { path: self.path.clone(), record: self.record, offset: self.offset }
    }

    /// Reads up to `buf`'s length; less only at the end of the file.
    fn fill(&mut self, buf: &mut [u8]) -> Result<usize, CaptureError> {
        let mut had = 0;
        while let Some(rest) = buf.get_mut(had..).filter(|rest| !rest.is_empty()) {
            match self.input.read(rest) {
                Ok(0) => {
                    self.ended = true;
                    break;
                }
                Ok(n) => had += n,
                Err(e) if e.kind() == ErrorKind::Interrupted => {}
                // The unpackers say this for packed data that is cut off; `fill` itself sees the end as 0 bytes.
                Err(e) if e.kind() == ErrorKind::UnexpectedEof => {
                    (self.ended, self.is_packed_cut) = (true, true);
                    break;
                }
                Err(source) => return Err(CaptureError::Read { at: self.at(), source }),
            }
        }
        self.next_offset += had as u64;
        Ok(had)
    }

    pub fn need<const N: usize>(&mut self, what: &'static str) -> Result<[u8; N], CaptureError> {
        self.try_need(what)?.ok_or_else(|| CaptureError::Short {
            at: self.at(),
            what,
            need: N as u64,
            had: 0,
        })
    }

    /// Reads `N` bytes; `None` if the file ends exactly here.
    pub fn try_need<const N: usize>(
        &mut self,
        what: &'static str,
    ) -> Result<Option<[u8; N]>, CaptureError> {
        let mut bytes = [0; N];
        match self.fill(&mut bytes)? {
            0 => Ok(None),
            had if had == N => Ok(Some(bytes)),
            had => {
                let (need, had) = (N as u64, had as u64);
                Err(CaptureError::Short { at: self.at(), what, need, had })
            }
        }
    }

    /// Replaces `into` with the next `len` bytes. Memory grows with the bytes that are there, not with the claimed
    /// `len`.
    pub fn read_bytes(
        &mut self,
        into: &mut Vec<u8>,
        len: u32,
        what: &'static str,
    ) -> Result<(), CaptureError> {
        into.clear();
        let need = u64::from(len);
        match (&mut self.input).take(need).read_to_end(into) {
            Err(source) if source.kind() != ErrorKind::UnexpectedEof => {
                return Err(CaptureError::Read { at: self.at(), source });
            }
            Ok(_) | Err(_) => {} // what was read before the end is there
        }
        let had = into.len() as u64;
        self.next_offset += had;
        if had < need {
            self.ended = true;
            return Err(CaptureError::Short { at: self.at(), what, need, had });
        }
        Ok(())
    }

    /// Skips `len` bytes of a block without keeping them.
    pub fn skip(&mut self, len: u32) -> Result<(), CaptureError> {
        let need = u64::from(len);
        let (mut had, mut part) = (0, [0; 4_096]);
        // Read, not seek: the input may be a pipe or an unpacker.
        while had < need {
            let want = usize::try_from(need - had).map_or(part.len(), |left| left.min(part.len()));
            let read = self.fill(part.get_mut(..want).unwrap_or_default())?;
            had += read as u64;
            if read < want {
                return Err(CaptureError::Short { at: self.at(), what: "a block", need, had });
            }
        }
        Ok(())
    }
}
