//! Event descriptor: wakes a thread that waits in `poll`.
//!
//! Notifications that have not been drained count as one.
//!
//! Source: eventfd(2).

use std::io;
use std::os::fd::{AsFd, AsRawFd, BorrowedFd, FromRawFd, OwnedFd};

/// An eventfd that any thread may notify, and that one thread polls and drains.
#[derive(Debug)]
pub struct EventFd(OwnedFd);

impl EventFd {
    /// A new eventfd, not readable until it is notified.
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

    /// Makes it readable: whoever polls it wakes up.
    pub fn notify(&self) {
        let one = 1u64.to_ne_bytes();
        // SAFETY: `one` holds the 8 bytes that an eventfd takes. A full counter is readable anyway.
        unsafe { libc::write(self.0.as_raw_fd(), one.as_ptr().cast(), one.len()) };
    }

    /// Makes it unreadable until the next notification.
    pub fn drain(&self) {
        let mut count = [0u8; 8];
        // SAFETY: `count` has room for the 8 bytes that an eventfd gives; it never blocks.
        unsafe { libc::read(self.0.as_raw_fd(), count.as_mut_ptr().cast(), count.len()) };
    }
}

impl AsFd for EventFd {
    fn as_fd(&self) -> BorrowedFd<'_> {
        self.0.as_fd()
    }
}
