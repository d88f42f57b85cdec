//! Messages of a packet socket, several a call: frames that are longer than a slot, and super-frames
//! to send, which lie in pieces.
//!
//! Virtio-net header and frame, in scratch memory when received; a lead and parts when sent.
//! Raw libc, as nix's recvmmsg allocates.
//!
//! Units: bytes.
//! Source: packet(7), recvmmsg(2), sendmmsg(2).

use std::io;
use std::ops::Range;
use std::os::fd::{AsRawFd, BorrowedFd};

use super::super::sys::{VNET_LEN, check};
use super::super::tag::{self, Tag};
use crate::batch::BURST;

/// Messages that are received by one call.
pub(super) const MESSAGES: usize = 16;
/// Longest super-frame that is taken: 64 KiB of IP and all headers before it.
const SUPER_LEN_MAX: usize = 66 << 10;
/// Room before a frame in scratch memory: virtio-net header and a tag, rounded.
const LEAD_LEN: usize = 16;
/// One message's scratch memory.
const SCRATCH_LEN: usize = LEAD_LEN + SUPER_LEN_MAX;

const NO_IOV: libc::iovec = libc::iovec { iov_base: core::ptr::null_mut(), iov_len: 0 };

fn messages(count: usize) -> Vec<libc::mmsghdr> {
    // SAFETY: all bytes zero is a valid, empty message.
    (0..count).map(|_| unsafe { core::mem::zeroed() }).collect()
}

/// A frame in scratch memory.
#[derive(Clone, Copy, Debug)]
pub(super) struct Scratch {
    slot: usize,
    start: usize,
    /// Its bytes.
    pub len: usize,
}

/// Messages that were received, and scratch memory for one frame more.
pub(super) struct RxMessages {
    messages: Vec<libc::mmsghdr>,
    iovs: Vec<libc::iovec>,
    scratch: Vec<u8>,
    /// Those that are still to be taken.
    left: Range<usize>,
}

// SAFETY: the pointers in it are set and used within one call of `receive`.
unsafe impl Send for RxMessages {}

impl RxMessages {
    pub(super) fn new() -> Self {
        Self {
            messages: messages(MESSAGES),
            iovs: vec![NO_IOV; MESSAGES],
            scratch: vec![0; (MESSAGES + 1) * SCRATCH_LEN], // pages come as they are touched
            left: 0..0,
        }
    }

    /// Whether all messages that were received have been taken.
    pub(super) fn is_empty(&self) -> bool {
        self.left.is_empty()
    }

    /// Receives up to `count` messages in the place of those that were taken.
    pub(super) fn receive(&mut self, fd: BorrowedFd<'_>, count: usize) -> io::Result<()> {
        let count = count.min(MESSAGES);
        let scratch = self.scratch.chunks_exact_mut(SCRATCH_LEN);
        let arrays = self.messages.iter_mut().zip(&mut self.iovs).zip(scratch);
        for ((message, iov), scratch) in arrays.take(count) {
            let into = scratch.get_mut(LEAD_LEN - VNET_LEN..).unwrap_or_default();
            *iov = libc::iovec { iov_base: into.as_mut_ptr().cast(), iov_len: into.len() };
            message.msg_hdr.msg_iov = iov;
            message.msg_hdr.msg_iovlen = 1;
        }
        let (at, vlen) = (self.messages.as_mut_ptr(), u32::try_from(count).unwrap_or(0));
        // SAFETY: `vlen` messages were just set to scratch memory of their own, which is ours.
        let got = unsafe {
            libc::recvmmsg(fd.as_raw_fd(), at, vlen, libc::MSG_DONTWAIT as _, core::ptr::null_mut())
        };
        self.left = 0..usize::try_from(check(got)?).unwrap_or(0);
        Ok(())
    }

    /// The next message: virtio-net header and frame; `None` for the frame if it was cut, or has not
    /// even a header.
    pub(super) fn take(&mut self) -> Option<([u8; VNET_LEN], Option<Scratch>)> {
        let slot = self.left.next()?;
        let message = self.messages.get(slot)?;
        let len = (message.msg_len as usize).checked_sub(VNET_LEN);
        let whole = message.msg_hdr.msg_flags & libc::MSG_TRUNC == 0;
        let scratch = self.scratch.get(slot * SCRATCH_LEN + LEAD_LEN - VNET_LEN..)?;
        let frame = len.filter(|_| whole).map(|len| Scratch { slot, start: LEAD_LEN, len });
        Some((*scratch.first_chunk()?, frame))
    }

    /// Keeps a frame that is no message, until the next one.
    pub(super) fn keep(&mut self, frame: &[u8]) -> Option<Scratch> {
        let kept = Scratch { slot: MESSAGES, start: LEAD_LEN, len: frame.len() };
        self.bytes_mut(kept)?.get_mut(LEAD_LEN..)?.get_mut(..frame.len())?.copy_from_slice(frame);
        Some(kept)
    }

    /// The memory of a frame, whose start is in it.
    fn bytes_mut(&mut self, frame: Scratch) -> Option<&mut [u8]> {
        self.scratch.chunks_exact_mut(SCRATCH_LEN).nth(frame.slot)
    }

    /// Puts back a tag that was taken out of a frame's data.
    pub(super) fn put_tag(&mut self, frame: Scratch, tag: Tag) -> Scratch {
        let Some(bytes) = self.bytes_mut(frame) else { return frame };
        let start = tag::put_tag(bytes, frame.start, tag);
        Scratch { start, len: frame.len + 4, ..frame }
    }

    /// A frame that no later call has replaced.
    pub(super) fn frame(&self, Scratch { slot, start, len }: Scratch) -> &[u8] {
        let at = slot * SCRATCH_LEN + start;
        self.scratch.get(at..at + len).unwrap_or_default()
    }

    /// Forgets what is still to be taken.
    pub(super) fn clear(&mut self) {
        self.left = 0..0;
    }
}

/// One message to send: what comes first (virtio-net header, perhaps headers), then what follows.
#[derive(Clone, Copy)]
pub(super) struct Outgoing<'a> {
    pub lead: &'a [u8],
    pub parts: &'a [&'a [u8]],
}

/// Arrays of sendmmsg.
pub(super) struct TxMessages {
    messages: Vec<libc::mmsghdr>,
    iovs: Vec<libc::iovec>,
}

// SAFETY: the pointers in it are set and used within one call of `transmit`.
unsafe impl Send for TxMessages {}

impl TxMessages {
    /// Buffers of all messages of a call.
    const IOVS: usize = 2 * BURST;

    pub(super) fn new() -> Self {
        Self { messages: messages(BURST), iovs: Vec::with_capacity(Self::IOVS) }
    }

    /// Sends messages; returns how many of the first were taken. What has more than 128 buffers in
    /// all, or comes after that, is left.
    pub(super) fn transmit(
        &mut self,
        fd: BorrowedFd<'_>,
        outgoing: &[Outgoing<'_>],
    ) -> io::Result<usize> {
        self.iovs.clear();
        let buffers = outgoing.iter().flat_map(|out| core::iter::once(&out.lead).chain(out.parts));
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
