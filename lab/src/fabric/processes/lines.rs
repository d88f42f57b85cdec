//! Lines of text from a pipe, waited for no longer than one likes, and to one.
//!
//! [`Lines::next`] -> a line, nothing yet, or the end; a value -> [`write_line`].
//!
//! Source: poll(2).

use std::io::{self, Read, Write};
use std::os::fd::AsFd;
use std::time::Duration;

use rustix::event::{PollFd, PollFlags, Timespec, poll};
use serde::Serialize;

/// Longest line: a topology file, or an answer with a megabyte of memory, as text.
const LONGEST: usize = 16 << 20;

/// A pipe, and what was read of a line that is not whole.
pub(super) struct Lines<R> {
    from: R,
    held: Vec<u8>,
    /// Bytes of `held` that have no line end.
    looked: usize,
}

/// What there is.
#[derive(Debug, PartialEq, Eq)]
pub(super) enum Next {
    /// A line, without its end.
    Line(Vec<u8>),
    /// Not yet.
    Nothing,
    /// The other end is closed.
    Closed,
}

impl<R: Read + AsFd> Lines<R> {
    pub const fn new(from: R) -> Self {
        Self { from, held: Vec::new(), looked: 0 }
    }

    /// The next line that is there within `timeout`.
    ///
    /// # Errors
    /// The pipe cannot be read, or a line is longer than any that is expected.
    pub fn next(&mut self, timeout: Duration) -> io::Result<Next> {
        loop {
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

/// Writes `value` as a line of JSON, as one piece.
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
