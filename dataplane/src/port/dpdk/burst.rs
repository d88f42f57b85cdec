//! Bursts: converts a driver's mbufs to descriptors and back.
//!
//! [`Frames::rx`] and [`Frames::tx`] make one pass over a burst; rare cases are functions of their own, out of the hot
//! loop.
//!
//! Source: DPDK 22.11 `rte_mbuf.h` (a free mbuf has one reference, one segment, no next).

use std::sync::Arc;

use sys::rte_mbuf;
use weft_dpdk_sys as sys;

use super::super::csum;
use super::memory::Mbufs;
use super::plain::Plain;
use super::{PortCounters, TX_LEN_MIN};
use crate::batch::{BURST, Batch};
use crate::desc::{Desc, Flag};
use crate::pool::{Bufs, prefetch_at};
use crate::stats::DropReason;

/// Largest start that a descriptor can hold.
const START_MAX: u16 = 510;
/// Bytes that the parser reads of every frame.
const HEAD_LEN: usize = weft_parsers::HEAD_LEN;

/// A queue of a device.
#[derive(Clone, Copy)]
pub struct Queue {
    /// DPDK's number of the device's port.
    pub port: u16,
    /// Number of the queue on that port.
    pub index: u16,
}

/// Mbufs on their way between driver and batch; valid only within a call.
pub struct Burst(Box<[*mut rte_mbuf; BURST]>);

// SAFETY: nothing in it is used after the call that put it there.
unsafe impl Send for Burst {}

impl Burst {
    pub fn new() -> Self {
        Self(Box::new([core::ptr::null_mut(); BURST]))
    }
}

/// Memory of frames while the driver has them.
pub enum Frames {
    /// The pool's chunks; shared frames are sent by carriers.
    Own { mbufs: Arc<Mbufs>, carriers: Plain },
    /// DPDK's own memory: frames are copied in and out; checksums are completed in `spare`.
    Copied { buffers: Plain, spare: Box<[u8]> },
}

impl Frames {
    /// Appends received frames of `queue` to `batch` and counts those that cannot be; returns the number of mbufs
    /// received.
    #[inline]
    pub fn rx(
        &mut self,
        queue: Queue,
        burst: &mut Burst,
        bufs: &mut Bufs,
        batch: &mut Batch,
        counters: &mut PortCounters,
    ) -> usize {
        let want = u16::try_from(batch.remaining_capacity()).unwrap_or(0);
        match self {
            Self::Own { mbufs, .. } => {
                let got = mbufs.lend(bufs, || receive(queue, burst, want));
                for &mbuf in got {
                    match plain(mbufs, bufs, mbuf) {
                        Some(desc) => batch.push(desc),
                        None => odd(Some(mbufs), bufs, mbuf, batch, counters),
                    }
                }
                got.len()
            }
            Self::Copied { .. } => {
                let got = receive(queue, burst, want);
                for &mbuf in got {
                    odd(None, bufs, mbuf, batch, counters);
                }
                got.len()
            }
        }
    }

    /// Hands frames from the front of `batch` to `queue`; those not taken stay.
    #[inline]
    pub fn tx(
        &mut self,
        queue: Queue,
        burst: &mut Burst,
        bufs: &mut Bufs,
        batch: &mut Batch,
    ) -> usize {
        match self {
            Self::Own { mbufs, carriers } => {
                let mut count = 0;
                for (desc, slot) in batch.iter_mut().zip(&mut *burst.0) {
                    let mbuf = if desc.has(Flag::Shared) || desc.has(Flag::PartialCsum) {
                        let Some(mbuf) = special(mbufs, carriers, bufs, desc) else { break };
                        mbuf
                    } else {
                        mbufs.of_chunk(desc.chunk())
                    };
                    fill(mbuf, desc);
                    *slot = mbuf;
                    count += 1;
                }
                let sent = mbufs.lend(bufs, || transmit(queue, burst, count));
                if sent < count {
                    for &mbuf in burst.0.get(sent..count).unwrap_or_default() {
                        // The frame stays in `batch` and gets a new carrier next time, so this one must give back its
                        // handle. An mbuf of the chunk itself needs nothing: `fill` sets it again.
                        if mbufs.chunk_of(mbuf).is_none() {
                            // SAFETY: a carrier that `special` made and the driver did not take.
                            unsafe { sys::weft_dpdk_uncarry(mbuf) };
                        }
                    }
                }
                drop(batch.drain(..sent)); // the driver has the chunks now
                sent
            }
            Self::Copied { buffers, spare } => copy_out(queue, burst, bufs, batch, buffers, spare),
        }
    }
}

/// Asks the driver for at most `want` mbufs.
#[inline]
fn receive(queue: Queue, burst: &mut Burst, want: u16) -> &[*mut rte_mbuf] {
    // SAFETY: the device is started and the queue is one of its; `want` is at most what `burst` holds.
    let got = unsafe { sys::weft_dpdk_rx(queue.port, queue.index, burst.0.as_mut_ptr(), want) };
    burst.0.get(..usize::from(got)).unwrap_or_default()
}

/// Hands the first `count` mbufs to the driver; returns how many it took.
#[inline]
fn transmit(queue: Queue, burst: &mut Burst, count: usize) -> usize {
    let count = u16::try_from(count).unwrap_or(0);
    // SAFETY: the device is started; the mbufs were filled by `fill` and nobody else uses them.
    let sent = unsafe { sys::weft_dpdk_tx(queue.port, queue.index, burst.0.as_mut_ptr(), count) };
    usize::from(sent)
}

/// The descriptor of an mbuf that holds a whole frame in one of the pool's chunks; `None` for the rare others.
#[inline]
fn plain(mbufs: &Mbufs, bufs: &Bufs, mbuf: *mut rte_mbuf) -> Option<Desc> {
    let chunk = mbufs.chunk_of(mbuf)?;
    // SAFETY: the driver has just given the mbuf to us.
    let facts = unsafe { &*mbuf };
    let (start, len) = (facts.data_off, facts.pkt_len as usize);
    // The parser reads HEAD_LEN bytes of every frame, so these must lie in the chunk even if the frame is shorter.
    let fits = usize::from(start) + len.max(HEAD_LEN) <= bufs.pool().chunk_size();
    let rare = facts.nb_segs != 1 || facts.ol_flags & sys::WEFT_DPDK_NOT_DIRECT != 0;
    if rare || !fits || start > START_MAX || !start.is_multiple_of(2) {
        return None;
    }
    let head = mbufs.bytes_of(chunk).wrapping_add(start.into());
    prefetch_at(head);
    // Zeros behind a short frame are the pool's promise: they are its padding when it is sent.
    if let Some(short @ 1..) = HEAD_LEN.checked_sub(len) {
        // SAFETY: the head fits the chunk, as was checked above, and nobody else has the frame.
        unsafe { core::ptr::write_bytes(head.wrapping_add(len), 0, short) };
    }
    // Not `Bufs::set_len`, which would store the descriptor in memory and load it again for the batch: that load waits
    // for the stores, 14 cycles a frame.
    let mut desc = Desc::new(chunk, usize::from(start));
    desc.set_len(u16::try_from(len).ok()?);
    Some(desc)
}

/// Copies a frame out of mbufs that are not simply a chunk: of another mempool, in several segments, or at a start that
/// no descriptor can hold.
#[cold]
fn odd(
    mbufs: Option<&Mbufs>,
    bufs: &mut Bufs,
    mbuf: *mut rte_mbuf,
    batch: &mut Batch,
    counters: &mut PortCounters,
) {
    // SAFETY: the driver has just given the mbuf to us.
    let len = unsafe { (*mbuf).pkt_len } as usize;
    if len > bufs.room() {
        counters.rx_drop(DropReason::TooLong);
    } else if let Some(mut desc) = bufs.alloc() {
        let mut at = 0;
        let mut next = mbuf;
        // SAFETY: segments are linked until null.
        while let Some(segment) = unsafe { next.as_ref() } {
            let start = segment.buf_addr.cast::<u8>().wrapping_add(segment.data_off.into());
            // SAFETY: a segment holds `data_len` bytes there, which nobody writes now.
            let bytes = unsafe { core::slice::from_raw_parts(start, segment.data_len.into()) };
            let space = bufs.space_mut(&mut desc).and_then(|s| s.get_mut(at..at + bytes.len()));
            if let Some(space) = space {
                space.copy_from_slice(bytes);
            }
            at += bytes.len();
            next = segment.next;
        }
        bufs.set_len(&mut desc, len);
        batch.push(desc);
    } else {
        counters.rx_drop(DropReason::Pool);
    }
    // SAFETY: the mbuf is ours and read to its end.
    let free = || unsafe { sys::weft_dpdk_free(mbuf) };
    match mbufs {
        Some(mbufs) => mbufs.lend(bufs, free),
        None => free(),
    }
}

/// The mbuf for a frame that is shared or whose checksum must be completed; `None` if there is no memory for it now.
#[cold]
fn special(
    mbufs: &Mbufs,
    carriers: &Plain,
    bufs: &mut Bufs,
    desc: &mut Desc,
) -> Option<*mut rte_mbuf> {
    if desc.has(Flag::PartialCsum) {
        // In software: if the device is asked to complete checksums, drivers take a slower path for all frames.
        *desc = csum::complete(bufs, desc.twin()).ok()?;
    }
    if desc.has(Flag::Shared)
        && bufs.bytes_mut(desc).is_none()
        && let Some(carrier) = carriers.alloc()
    {
        mbufs.carry(carrier.as_ptr(), desc.chunk());
        return Some(carrier.as_ptr());
    }
    // Not shared any more: the chunk itself is sent. Or no carrier is free: a copy of the frame is sent.
    *desc = bufs.make_sole(desc.twin()).ok()?;
    Some(mbufs.of_chunk(desc.chunk()))
}

/// Sets place and length of the frame in its mbuf. A short frame is padded with the zeros behind it.
#[inline]
fn fill(mbuf: *mut rte_mbuf, desc: &Desc) {
    let len = desc.len().max(TX_LEN_MIN);
    // SAFETY: the mbuf is that of the frame's chunk or its carrier: ours until the driver has it.
    let mbuf = unsafe { &mut *mbuf };
    mbuf.data_off = u16::try_from(desc.start()).unwrap_or(0);
    mbuf.ol_flags &= sys::WEFT_DPDK_NOT_DIRECT; // keeps the flags of a carrier, clears those of the received frame
    mbuf.pkt_len = u32::try_from(len).unwrap_or(0);
    mbuf.data_len = u16::try_from(len).unwrap_or(0);
}

/// Sends copies of frames, in DPDK's memory.
fn copy_out(
    queue: Queue,
    burst: &mut Burst,
    bufs: &mut Bufs,
    batch: &mut Batch,
    buffers: &Plain,
    spare: &mut [u8],
) -> usize {
    let mut count = 0;
    for (desc, slot) in batch.iter().zip(&mut *burst.0) {
        let bytes = csum::outgoing(bufs, desc, spare);
        let Some(mbuf) = buffers.alloc().map(core::ptr::NonNull::as_ptr) else { break };
        // SAFETY: fresh and ours.
        let fresh = unsafe { &mut *mbuf };
        let space = fresh.buf_addr.cast::<u8>().wrapping_add(fresh.data_off.into());
        // SAFETY: a buffer holds the longest frame of the pool behind its headroom, and is ours.
        unsafe { core::ptr::copy_nonoverlapping(bytes.as_ptr(), space, bytes.len()) };
        fresh.pkt_len = u32::try_from(bytes.len()).unwrap_or(0);
        fresh.data_len = u16::try_from(bytes.len()).unwrap_or(0);
        *slot = mbuf;
        count += 1;
    }
    let sent = transmit(queue, burst, count);
    for &mbuf in burst.0.get(sent..count).unwrap_or_default() {
        // SAFETY: made above and not taken.
        unsafe { sys::weft_dpdk_free(mbuf) };
    }
    for desc in batch.drain(..sent) {
        bufs.free(desc);
    }
    sent
}
