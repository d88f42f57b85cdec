//! Lines of text over pipes: reads with a time limit, and writes.
//!
//! [`Lines::next`] returns a line, nothing yet, or the end; [`write_line`] writes a value.
//!
//! Source: poll(2).

use std::io::{self, Read, Write};
use std::os::fd::AsFd;
use std::time::Duration;

use rustix::event::{PollFd, PollFlags, Timespec, poll};
use serde::Serialize;

/// Longest line: it may hold a topology file, or an answer with a megabyte of memory as text.
const LONGEST: usize = 16 << 20;

/// A pipe, and the start of a line that is not complete.
pub(super) struct Lines<R> {
    from: R,
    held: Vec<u8>,
    /// Bytes of `held` that were searched for a line end.
    looked: usize,
}

/// Result of a read.
#[derive(Debug, PartialEq, Eq)]
pub(super) enum Next {
    /// A complete line, without its end.
    Line(Vec<u8>),
    /// No line within the time limit.
    Nothing,
    /// The other end has closed the pipe.
    Closed,
}

impl<R: Read + AsFd> Lines<R> {
    pub const fn new(from: R) -> Self {
        Self { from, held: Vec::new(), looked: 0 }
    }

    /// Returns the next line, if it is complete within `timeout`.
    ///
    /// # Errors
    /// The pipe cannot be read, or a line is too long.
    pub fn next(&mut self, timeout: Duration) -> io::Result<Next> {
        loop {
            // Only the new bytes are searched: a line of megabytes arrives in many pieces.
            let fresh = self.held.get(self.looked..).unwrap_or_default();
            if let Some(at) = fresh.iter().position(|byte| *byte == b'\n') {
                let rest = self.held.split_off(self.looked + at + 1);
                let mut line = std::mem::replace(&mut self.held, rest);
                line.pop();
                self.looked = 0;
                return Ok(Next::Line(line));
            }
            self.looked = self.held.len();
            if self.held.len() > LONGEST {
                return Err(io::Error::new(io::ErrorKind::InvalidData, "a line is too long"));
            }
            // Poll first, as a read of the pipe would block without a limit.
            let mut fds = [PollFd::new(&self.from, PollFlags::IN)];
            let timeout = Timespec::try_from(timeout).ok();
            match poll(&mut fds, timeout.as_ref()) {
                Ok(0) => return Ok(Next::Nothing),
                Ok(_) => {}
                Err(rustix::io::Errno::INTR) => continue,
                Err(error) => return Err(error.into()),
            }
            let mut chunk = [0; 8_192];
            match self.from.read(&mut chunk) {
                Ok(0) => return Ok(Next::Closed),
                Ok(len) => self.held.extend_from_slice(chunk.get(..len).unwrap_or_default()),
                Err(error) if error.kind() == io::ErrorKind::Interrupted => {}
                Err(error) => return Err(error),
            }
        }
    }
}

/// Writes `value` as a line of JSON in one piece, so that lines of two threads do not mix.
///
/// # Errors
/// The pipe cannot be written.
pub(super) fn write_line(to: &mut impl Write, value: &impl Serialize) -> io::Result<()> {
    let mut line = serde_json::to_vec(value)?;
    line.push(b'\n');
    to.write_all(&line)?;
    to.flush()
}

#[cfg(test)]
mod tests {
    use std::os::unix::net::UnixStream;

    use super::*;

    #[test]
    fn lines_come_whole_whatever_pieces_they_are_read_in() {
        let (mut to, from) = UnixStream::pair().unwrap();
        let mut lines = Lines::new(from);
        let mut next = || lines.next(Duration::ZERO).unwrap();
        assert_eq!(next(), Next::Nothing);
        to.write_all(b"on").unwrap();
        assert_eq!(next(), Next::Nothing);
        to.write_all(b"e\n\ntwo\nthr").unwrap();
        assert_eq!(next(), Next::Line(b"one".to_vec()));
        assert_eq!(next(), Next::Line(Vec::new()));
        assert_eq!(next(), Next::Line(b"two".to_vec()));
        assert_eq!(next(), Next::Nothing);
        drop(to);
        assert_eq!(next(), Next::Closed, "half a line is none");
    }

    #[test]
    fn a_line_without_end_is_refused() {
        let (mut to, from) = UnixStream::pair().unwrap();
        let sender = std::thread::spawn(move || {
            let chunk = vec![b'x'; 1 << 20];
            while to.write_all(&chunk).is_ok() {}
        });
        let mut lines = Lines::new(from);
        let error = lines.next(Duration::from_mins(1)).unwrap_err();
        assert_eq!(error.kind(), io::ErrorKind::InvalidData);
        drop(lines);
        sender.join().unwrap();
    }
}
