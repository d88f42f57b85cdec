//! The bytes of a capture, with the place that messages name.
//!
//! A reader → as many bytes as are asked for, or what is missing of them.
//!
//! Units: bytes, of what is unpacked.

use std::io::{ErrorKind, Read};
use std::path::PathBuf;

use super::{CaptureError, Place};

/// What a capture is read from.
pub(super) struct Source {
    pub path: PathBuf,
    pub input: Box<dyn Read + Send>,
    /// The record that is being read, from 1, and where its header starts.
    pub record: u64,
    pub offset: u64,
    next_offset: u64,
    /// The input ended before all that was asked of it was there.
    pub ended: bool,
    /// What was packed ended too early.
    pub is_packed_cut: bool,
}

impl Source {
    pub fn new(path: PathBuf, input: Box<dyn Read + Send>) -> Self {
        let (record, offset, next_offset) = (0, 0, 0);
        Self { path, input, record, offset, next_offset, ended: false, is_packed_cut: false }
    }

    /// A header begins here.
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

    /// `N` bytes, or `None` when the file ends right here.
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

    /// Replaces `into` by the next `len` bytes; memory grows only as far as the file goes.
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

    /// Passes over the `len` bytes of a block that is not for us, without holding it.
    pub fn skip(&mut self, len: u32) -> Result<(), CaptureError> {
        let need = u64::from(len);
        let (mut had, mut part) = (0, [0; 4_096]);
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
