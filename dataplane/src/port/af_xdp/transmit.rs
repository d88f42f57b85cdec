//! The sending half of [`AfXdp`]: puts frames into the transmit ring and takes their chunks back.
//!
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

/// Transmit state of a port.
pub(super) struct Transmit {
    /// Chunks in the transmit ring or on their way to the wire.
    pub sent: InFlightChunks,
    /// Those of `sent` that other copies of the frame share.
    shared: InFlightChunks,
    /// Scratch memory for a frame that is copied to another chunk.
    spare: Box<[u8]>,
}

impl Transmit {
    /// State of a port that has sent nothing, on a pool of `chunks` chunks of `chunk_size` bytes.
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
        // The kernel returns only the chunk's number; whether copies share it is known from our bits alone.
        desc.set(Flag::Shared, self.transmit.shared.take(chunk));
        bufs.free(desc);
    }

    /// Frees the chunks that the kernel has sent.
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
            // The completion has the address as it was sent: with the frame's offset in the upper bits.
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

    /// Makes the frame at `at` ready to be handed over: completes its checksum unless the kernel does, and moves it to
    /// a chunk that the device can read. False if that takes a chunk and the pool is empty.
    pub(super) fn prepare(&mut self, bufs: &mut Bufs, batch: &mut Batch, at: usize) -> bool {
        let Some(device) = &self.device else { return false };
        let Some(desc) = batch.get(at) else { return false };
        // Transmit metadata is written in front of the frame, into a chunk that other ports may be sending at the same
        // time. So a shared frame's checksum is completed, in a copy.
        let complete = desc.has(Flag::PartialCsum)
            && (desc.has(Flag::Shared) || !device.completes_checksums());
        let torn = device.is_zero_copy() && self.umem.is_torn(desc.chunk());
        if !complete && !torn {
            return true;
        }
        // Rare, so the batch may be shifted: most frames have returned above.
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

    /// Copies a frame to a chunk that is physically contiguous, if the pool has one.
    pub(super) fn moved(&mut self, bufs: &mut Bufs, desc: Desc) -> (Desc, bool) {
        let Some(spare) = self.transmit.spare.get_mut(..desc.len()) else { return (desc, false) };
        spare.copy_from_slice(bufs.bytes(&desc));
        // Torn chunks are freed only afterwards: the pool would hand the same one out again.
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

    /// Puts a frame into the transmit ring; false if it must wait.
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
        // The kernel refuses a frame whose checksum would lie beyond its end, so such bounds are not passed on.
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

    /// Has the kernel send the frames in the transmit ring.
    pub(super) fn kick(&mut self) {
        let mut fault = None;
        let Some(device) = &mut self.device else { return };
        let copies = !device.is_zero_copy();
        let queue = device.sender();
        let Some(ring) = &queue.tx else { return };
        let mut waiting = ring.waiting();
        // Repeated, because one call sends a limited number of frames. It ends: each turn takes frames from the ring or
        // breaks.
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
                // In copy mode EBUSY means that the device took a frame and threw it away. The kernel moves its index
                // of the ring with the next frame that is sent, not with this one (xsk_generic_xmit).
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

/// Asks the kernel to complete a checksum: fills in the front of `struct xsk_tx_metadata`.
pub(super) fn put_tx_metadata(metadata: &mut [u8], PartialCsum { start, offset }: PartialCsum) {
    // Zero first: the bytes may be an old frame's, and other flags would ask for time stamps.
    metadata.fill(0);
    if let Some((flags, rest)) = metadata.split_first_chunk_mut::<8>()
        && let Some(request) = rest.first_chunk_mut::<4>()
    {
        *flags = TX_CHECKSUM.to_ne_bytes();
        let ([s0, s1], [o0, o1]) = (start.to_ne_bytes(), offset.to_ne_bytes());
        *request = [s0, s1, o0, o1];
    }
}
