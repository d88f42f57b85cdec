//! Bell: wakes a thread that waits in `poll`.
//!
//! Shape: an eventfd; rings that nobody heard yet are one.
//! Units: none.
//! Source: eventfd(2).

use std::io;
use std::os::fd::{AsFd, AsRawFd, BorrowedFd, FromRawFd, OwnedFd};

/// A bell that any thread may ring.
#[derive(Debug)]
pub struct Bell(OwnedFd);

impl Bell {
    /// A new bell, quiet.
    ///
    /// # Errors
    /// The kernel gives no eventfd.
    pub fn new() -> io::Result<Self> {
        // SAFETY: plain call; the result is checked.
        let fd = unsafe { libc::eventfd(0, libc::EFD_NONBLOCK | libc::EFD_CLOEXEC) };
        if fd < 0 {
            return Err(io::Error::last_os_error());
        }
        // SAFETY: a descriptor that was just made and that nobody else owns.
        Ok(Self(unsafe { OwnedFd::from_raw_fd(fd) }))
    }

    /// Makes it readable.
    pub fn ring(&self) {
        let one = 1u64.to_ne_bytes();
        // SAFETY: `one` holds the 8 bytes that an eventfd takes. A full counter rings anyway.
        unsafe { libc::write(self.0.as_raw_fd(), one.as_ptr().cast(), one.len()) };
    }

    /// Makes it quiet again.
    pub fn quieten(&self) {
        let mut count = [0u8; 8];
        // SAFETY: `count` has room for the 8 bytes that an eventfd gives; it never blocks.
        unsafe { libc::read(self.0.as_raw_fd(), count.as_mut_ptr().cast(), count.len()) };
    }
}

impl AsFd for Bell {
    fn as_fd(&self) -> BorrowedFd<'_> {
        self.0.as_fd()
    }
}
