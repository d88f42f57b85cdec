//! Messages of a packet socket, several per call: received frames that are longer than a slot, and super-frames to
//! send, whose bytes lie in pieces.
//!
//! A received message (virtio-net header and frame) goes to scratch memory. A message to send is a lead (virtio-net
//! header, perhaps headers) and parts that stay in their chunks. Raw libc, because nix's recvmmsg allocates.
//!
//! Source: packet(7), recvmmsg(2), sendmmsg(2).

use std::io;
use std::ops::Range;
use std::os::fd::{AsRawFd, BorrowedFd};

use super::super::sys::{VNET_LEN, check};
use super::super::tag::{self, Tag};
use crate::batch::BURST;

/// Messages received per call at most.
pub(super) const MESSAGES: usize = 16;
/// Longest super-frame that is accepted: 64 KiB of IP and all headers in front.
const SUPER_LEN_MAX: usize = 66 << 10;
/// Room in front of a frame in scratch memory for the virtio-net header and a tag, rounded up.
const LEAD_LEN: usize = 16;
/// Scratch memory of one message.
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
    pub len: usize,
}

/// Received messages, and scratch memory for one frame more ([`RxMessages::keep`]).
pub(super) struct RxMessages {
    messages: Vec<libc::mmsghdr>,
    iovs: Vec<libc::iovec>,
    scratch: Vec<u8>,
    /// Messages that [`RxMessages::take`] has not returned yet.
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

    /// Whether all received messages have been taken.
    pub(super) fn is_empty(&self) -> bool {
        self.left.is_empty()
    }

    /// Receives up to `count` messages. Overwrites the scratch memory of earlier ones, so call it only when
    /// [`Self::is_empty`].
    pub(super) fn receive(&mut self, fd: BorrowedFd<'_>, count: usize) -> io::Result<()> {
        let count = count.min(MESSAGES);
        let scratch = self.scratch.chunks_exact_mut(SCRATCH_LEN);
        let arrays = self.messages.iter_mut().zip(&mut self.iovs).zip(scratch);
        for ((message, iov), scratch) in arrays.take(count) {
            // The virtio-net header ends where the frame starts, at LEAD_LEN, so `put_tag` has room in front of the
            // frame.
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
        // The kernel sets MSG_TRUNC when the scratch memory was too short; the rest of such a frame is lost.
        let whole = message.msg_hdr.msg_flags & libc::MSG_TRUNC == 0;
        let scratch = self.scratch.get(slot * SCRATCH_LEN + LEAD_LEN - VNET_LEN..)?;
        let frame = len.filter(|_| whole).map(|len| Scratch { slot, start: LEAD_LEN, len });
        Some((*scratch.first_chunk()?, frame))
    }

    /// Copies a frame that lies in a slot, so that the slot can go back to the kernel; it holds until the next `keep`.
    pub(super) fn keep(&mut self, frame: &[u8]) -> Option<Scratch> {
        let kept = Scratch { slot: MESSAGES, start: LEAD_LEN, len: frame.len() };
        self.bytes_mut(kept)?.get_mut(LEAD_LEN..)?.get_mut(..frame.len())?.copy_from_slice(frame);
        Some(kept)
    }

    /// Scratch memory of the message that `frame` lies in.
    fn bytes_mut(&mut self, frame: Scratch) -> Option<&mut [u8]> {
        self.scratch.chunks_exact_mut(SCRATCH_LEN).nth(frame.slot)
    }

    /// Puts back the VLAN tag that the kernel took out of a frame's data.
    pub(super) fn put_tag(&mut self, frame: Scratch, tag: Tag) -> Scratch {
        let Some(bytes) = self.bytes_mut(frame) else { return frame };
        let start = tag::put_tag(bytes, frame.start, tag);
        Scratch { start, len: frame.len + 4, ..frame }
    }

    /// Bytes of a frame; valid until the next `receive` (or `keep`) overwrites its memory.
    pub(super) fn frame(&self, Scratch { slot, start, len }: Scratch) -> &[u8] {
        let at = slot * SCRATCH_LEN + start;
        self.scratch.get(at..at + len).unwrap_or_default()
    }

    /// Forgets messages that were received but not taken.
    pub(super) fn clear(&mut self) {
        self.left = 0..0;
    }
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
