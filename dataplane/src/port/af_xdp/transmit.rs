//! Transmit: frames into the ring of the queue that sends, and their chunks back from it.
//!
//! The sending half of [`AfXdp`].
//!
//! Units: bytes, frames.
//! Source: Linux `Documentation/networking/af_xdp.rst`, `xsk-tx-metadata.rst`.

use std::os::fd::AsFd;

use super::in_flight::InFlightChunks;
use super::umem::TX_METADATA_LEN;
use super::{ADDRESS_BITS, AfXdp, sys};
use crate::batch::{BURST, Batch};
use crate::desc::{Desc, Flag};
use crate::pool::{Bufs, PartialCsum, UMEM_LEAD};
use crate::port::{TX_LEN_MIN, csum};

/// `XDP_TXMD_FLAGS_CHECKSUM` of a frame's transmit metadata.
const TX_CHECKSUM: u64 = libc::XDP_TXMD_FLAGS_CHECKSUM as u64;

/// What transmitting keeps between calls.
pub(super) struct Transmit {
    /// Chunks in the transmit ring or on their way.
    pub sent: InFlightChunks,
    /// Those of them that other frames share.
    shared: InFlightChunks,
    /// Where a frame is put together that has to move to another chunk.
    spare: Box<[u8]>,
}

impl Transmit {
    /// Nothing sent yet of a pool of `chunks` chunks of `chunk_size` bytes.
    pub(super) fn new(chunks: usize, chunk_size: usize) -> Self {
        Self {
            sent: InFlightChunks::new(chunks),
            shared: InFlightChunks::new(chunks),
            spare: vec![0; chunk_size].into(),
        }
    }
}

impl AfXdp {
    /// Frees a frame that the kernel is done with.
    #[inline]
    pub(super) fn end_sent(&mut self, bufs: &mut Bufs, chunk: u32) {
        let mut desc = Desc::new(chunk, UMEM_LEAD);
        desc.set(Flag::Shared, self.transmit.shared.take(chunk));
        bufs.free(desc);
    }

    /// Frees what was sent.
    pub(super) fn reap(&mut self, bufs: &mut Bufs) {
        let chunk_size = self.umem.pool().chunk_size() as u64;
        let Some(ring) = self.device.as_mut().map(|device| &mut device.sender().completed) else {
            return;
        };
        if ring.ready() == 0 {
            return;
        }
        let mut done = arrayvec::ArrayVec::<u32, { 2 * BURST }>::new();
        while !done.is_full()
            && let Some(address) = ring.pop()
        {
            let base = address & ((1 << ADDRESS_BITS) - 1);
            done.push(u32::try_from(base / chunk_size).unwrap_or(u32::MAX));
        }
        ring.release();
        for chunk in done {
            let lent = self.transmit.sent.take(chunk);
            debug_assert!(lent, "the kernel completed chunk {chunk}, which it did not have");
            if lent {
                self.end_sent(bufs, chunk);
            }
        }
    }

    /// Makes the frame at `at` one that can be handed over as it is: its checksum complete if it cannot
    /// be left to the kernel, in a chunk that the device can read; false when that takes a chunk and
    /// there is none.
    pub(super) fn prepare(&mut self, bufs: &mut Bufs, batch: &mut Batch, at: usize) -> bool {
        let Some(device) = &self.device else { return false };
        let Some(desc) = batch.get(at) else { return false };
        let complete = desc.has(Flag::PartialCsum)
            && (desc.has(Flag::Shared) || !device.completes_checksums());
        let torn = device.is_zero_copy() && self.umem.is_torn(desc.chunk());
        if !complete && !torn {
            return true;
        }
        let mut desc = batch.remove(at);
        let mut ready = true;
        if complete {
            match csum::complete(bufs, desc) {
                Ok(done) => desc = done,
                Err(same) => (desc, ready) = (same, false),
            }
        }
        if ready && torn {
            (desc, ready) = self.moved(bufs, desc);
        }
        batch.insert(at, desc);
        ready
    }

    /// Copies a frame into a chunk that is in one piece, if there is one.
    pub(super) fn moved(&mut self, bufs: &mut Bufs, desc: Desc) -> (Desc, bool) {
        let Some(spare) = self.transmit.spare.get_mut(..desc.len()) else { return (desc, false) };
        spare.copy_from_slice(bufs.bytes(&desc));
        let mut torn = arrayvec::ArrayVec::<Desc, 4>::new();
        let mut copy = None;
        while copy.is_none()
            && !torn.is_full()
            && let Some(made) = bufs.alloc_from(spare)
        {
            if self.umem.is_torn(made.chunk()) {
                torn.push(made);
            } else {
                copy = Some(made);
            }
        }
        for desc in torn {
            bufs.free(desc);
        }
        let Some(mut copy) = copy else { return (desc, false) };
        let partial = bufs.partial_csum(&desc);
        bufs.set_partial_csum(&mut copy, partial);
        bufs.free(desc);
        (copy, true)
    }

    /// Puts a frame into the transmit ring; false when it must wait.
    #[inline]
    pub(super) fn push(&mut self, bufs: &mut Bufs, desc: &mut Desc) -> bool {
        let (chunk, len) = (desc.chunk(), desc.len().max(TX_LEN_MIN));
        let Some(device) = &mut self.device else { return false };
        let Some(ring) = &mut device.sender().tx else { return false };
        if ring.free() == 0 {
            return false;
        }
        if !self.transmit.sent.insert(chunk) {
            return false; // another copy of it is on its way out of this port
        }
        if desc.has(Flag::Shared) {
            self.transmit.shared.insert(chunk);
        }
        let mut options = 0;
        if let Some(partial) = bufs.partial_csum(desc)
            && usize::from(partial.start) + usize::from(partial.offset) + 2 <= len
            && let Some((bytes, start)) = bufs.chunk_mut(desc)
            && let Some(metadata) = bytes.get_mut(start - TX_METADATA_LEN..start)
        {
            put_tx_metadata(metadata, partial);
            options = libc::XDP_TX_METADATA;
        }
        let base = u64::from(chunk) * self.umem.pool().chunk_size() as u64;
        let addr = base | (desc.start() as u64) << ADDRESS_BITS;
        let len = u32::try_from(len).unwrap_or(0);
        ring.push(libc::xdp_desc { addr, len, options })
    }

    /// Has the kernel send what is in the transmit ring.
    pub(super) fn kick(&mut self) {
        let mut fault = None;
        let Some(device) = &mut self.device else { return };
        let copies = !device.is_zero_copy();
        let queue = device.sender();
        let Some(ring) = &queue.tx else { return };
        let mut waiting = ring.waiting();
        while waiting > 0 && ring.needs_wakeup() {
            self.counts.system_calls += 1;
            let kicked = sys::kick_tx(queue.socket.as_fd());
            let left = ring.waiting();
            let went_on = left < waiting;
            waiting = left;
            if went_on {
                self.counts.unpublished = 0;
            }
            match kicked.map_err(|e| (e.raw_os_error(), e)) {
                // Where the kernel copies: the device took one from it and threw it away. The kernel's index of the ring goes
                // on with the next frame that is sent, not with this one (xsk_generic_xmit).
                Err((Some(libc::EBUSY), _)) if copies => {
                    self.counts.frames.tx_failed += 1;
                    if !went_on {
                        self.counts.unpublished += 1;
                        break; // at the next call: a link that is down throws all of them away
                    }
                }
                Ok(())
                | Err((Some(libc::EAGAIN | libc::EBUSY | libc::EINTR | libc::ENOBUFS), _)) => {
                    if !went_on {
                        break; // there is no room: at the next call
                    }
                }
                Err((_, e)) => {
                    fault = Some(e);
                    break;
                }
            }
        }
        if let Some(e) = fault {
            self.fail("send", &e);
        }
    }
}

/// Asks the kernel to complete a checksum: the front of `struct xsk_tx_metadata`.
pub(super) fn put_tx_metadata(metadata: &mut [u8], PartialCsum { start, offset }: PartialCsum) {
    metadata.fill(0);
    if let Some((flags, rest)) = metadata.split_first_chunk_mut::<8>()
        && let Some(request) = rest.first_chunk_mut::<4>()
    {
        *flags = TX_CHECKSUM.to_ne_bytes();
        let ([s0, s1], [o0, o1]) = (start.to_ne_bytes(), offset.to_ne_bytes());
        *request = [s0, s1, o0, o1];
    }
}
