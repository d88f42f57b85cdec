//! Messages to send by a packet socket, several per call: super-frames whose bytes lie in pieces.
//!
//! A message is a lead (virtio-net header, perhaps headers) and parts that stay in their chunks. Raw libc, because nix's
//! sendmmsg allocates.
//!
//! Source: packet(7), sendmmsg(2).

use std::io;
use std::os::fd::{AsRawFd, BorrowedFd};

use super::super::sys::check;
use crate::batch::BURST;

fn messages(count: usize) -> Vec<libc::mmsghdr> {
    // SAFETY: all bytes zero is a valid, empty message.
    (0..count).map(|_| unsafe { core::mem::zeroed() }).collect()
}

/// One message to send: the lead (virtio-net header, perhaps headers), then the parts of the payload.
#[derive(Clone, Copy)]
pub(super) struct Outgoing<'a> {
    pub lead: &'a [u8],
    pub parts: &'a [&'a [u8]],
}

/// The arrays that sendmmsg reads.
pub(super) struct TxMessages {
    messages: Vec<libc::mmsghdr>,
    iovs: Vec<libc::iovec>,
}

// SAFETY: the pointers in it are set and used within one call of `transmit`.
unsafe impl Send for TxMessages {}

impl TxMessages {
    /// Buffers of all messages of one call.
    const IOVS: usize = 2 * BURST;

    pub(super) fn new() -> Self {
        Self { messages: messages(BURST), iovs: Vec::with_capacity(Self::IOVS) }
    }

    /// Sends messages in order; returns how many the kernel took. A message that would need more than 128 buffers in
    /// all, and those after it, are not sent.
    pub(super) fn transmit(
        &mut self,
        fd: BorrowedFd<'_>,
        outgoing: &[Outgoing<'_>],
    ) -> io::Result<usize> {
        self.iovs.clear();
        let buffers = outgoing.iter().flat_map(|out| core::iter::once(&out.lead).chain(out.parts));
        // `take` bounds the array: one that grew past its capacity would move, and messages hold pointers into it.
        self.iovs.extend(buffers.take(Self::IOVS).map(|part| libc::iovec {
            // The kernel only reads these; iovec has no const pointer.
            iov_base: part.as_ptr().cast_mut().cast(),
            iov_len: part.len(),
        }));
        let (mut rest, mut count) = (self.iovs.as_mut_slice(), 0);
        for (message, out) in self.messages.iter_mut().zip(outgoing) {
            let Some((own, after)) = rest.split_at_mut_checked(1 + out.parts.len()) else { break };
            message.msg_hdr.msg_iov = own.as_mut_ptr();
            message.msg_hdr.msg_iovlen = own.len() as _; // of another type in each C library, as flags are
            rest = after;
            count += 1;
        }
        let at = self.messages.as_mut_ptr();
        // SAFETY: `count` messages were just set to buffers that are borrowed until the end of this
        // function.
        let sent = unsafe { libc::sendmmsg(fd.as_raw_fd(), at, count, libc::MSG_DONTWAIT as _) };
        check(sent).map(|n| usize::try_from(n).unwrap_or(0))
    }
}
