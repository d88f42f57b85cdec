//! The receiving half of [`AfXdp`]: takes frames out of all queues' rings and posts free chunks.
//!
//! Source: Linux `Documentation/networking/af_xdp.rst`; docs/spec/pipeline.md §11.

use std::os::fd::AsFd;

use weft_parsers::partial;

use super::in_flight::InFlightChunks;
use super::marks::Marks;
use super::steering::{NOTE_LEN, NUMBER_LEN, Note, Number, Sees};
use super::umem::CopyMode;
use super::{ADDRESS_BITS, AfXdp, sys};
use crate::batch::BURST;
use crate::desc::Desc;
use crate::pool::{Bufs, PartialCsum, UMEM_LEAD};
use crate::port::csum;
use crate::port::tag::put_tag;
use crate::stats::DropReason;

/// Largest offset in a chunk at which a frame may start; a descriptor holds half of it in a byte.
const START_MAX: usize = 510;

/// Receive state of a port.
pub(super) struct Receive {
    /// Chunks in fill and receive rings.
    pub posted: InFlightChunks,
    /// Index of the queue that the next call receives from first.
    pub turn: usize,
    /// What the attached program notes before each frame; `None` if it writes no note.
    pub sees: Option<Sees>,
    /// The attached program numbers frames.
    pub numbered: bool,
    /// Numbers seen; `None` if a program of this kind never numbers frames.
    pub marks: Option<Marks>,
    /// The program drops frames until the queues are empty.
    pub draining: bool,
}

impl Receive {
    /// State of a port that has received nothing, on a pool of `chunks` chunks.
    pub(super) fn new(chunks: usize, marks: Option<Marks>) -> Self {
        Self {
            posted: InFlightChunks::new(chunks),
            turn: 0,
            sees: None,
            numbered: false,
            marks,
            draining: false,
        }
    }
}

impl AfXdp {
    /// The frame of a receive ring's entry; `None` when it was dropped.
    #[inline]
    pub(super) fn received(
        &mut self,
        bufs: &mut Bufs,
        queue: usize,
        entry: libc::xdp_desc,
    ) -> Option<Desc> {
        let chunk_size = self.umem.pool().chunk_size() as u64;
        let base = entry.addr & ((1 << ADDRESS_BITS) - 1);
        let chunk = u32::try_from(base / chunk_size).unwrap_or(u32::MAX);
        // The entry is in memory shared with the kernel. A chunk that was not lent might belong to a frame in a queue.
        if !self.receive.posted.take(chunk) {
            debug_assert!(false, "the kernel gave chunk {chunk}, which it did not have");
            return None;
        }
        let start = usize::try_from(base % chunk_size + (entry.addr >> ADDRESS_BITS));
        let (start, len) = (start.unwrap_or(usize::MAX), entry.len as usize);
        let mut desc = Desc::new(chunk, UMEM_LEAD);
        let fits = start <= START_MAX
            && start.is_multiple_of(2)
            && start >= UMEM_LEAD
            && start + len <= self.umem.pool().chunk_size();
        // Below 14 bytes there are no two addresses and EtherType, which the parser expects.
        if !fits || len < 14 {
            return self.dropped(bufs, desc, DropReason::Malformed);
        }
        desc.set_start(start);
        bufs.set_len(&mut desc, len);
        if self.receive.numbered
            && let Some(marks) = &mut self.receive.marks
            && let Some((chunk, start)) = bufs.chunk_mut(&mut desc)
            // The program writes number and note in the metadata right before the frame, in this order.
            && let Some(number) = start.checked_sub(NUMBER_LEN + NOTE_LEN)
            && let Some(bytes) = chunk.get(number..).and_then(<[u8]>::first_chunk)
            && let Some(number) = Number::parse(*bytes)
        {
            let missed = marks.note(queue, number);
            if missed > 0 {
                self.counts.missed += missed;
                self.counts.frames.rx_drops(DropReason::XskRing, missed);
            }
        }
        let note = self.receive.sees.and_then(|_| {
            let (chunk, start) = bufs.chunk_mut(&mut desc)?;
            chunk.get(start.checked_sub(NOTE_LEN)?..)?.first_chunk().copied().map(Note::parse)
        });
        let Note { tag, left } = note.unwrap_or_default();
        let added: u16 = if tag.is_some() { 4 } else { 0 };
        let whole = len + usize::from(added);
        if whole > self.caps.frame_len_max {
            return self.dropped(bufs, desc, DropReason::TooLong);
        }
        if let Some(tag) = tag
            && let Some((chunk, start)) = bufs.chunk_mut(&mut desc)
        {
            let start = put_tag(chunk, start, tag);
            bufs.set_bounds(&mut desc, start, whole);
        }
        // Without the kernel's word a partial checksum is recognised by its value, the pseudo-header's sum.
        let look = || partial::find(bufs.bytes(&desc), &self.config.fixed_udp_ports);
        let moved =
            |left: PartialCsum| PartialCsum { start: left.start.saturating_add(added), ..left };
        let partial = left.map_or_else(look, |left| left.map(moved));
        csum::received(bufs, &mut desc, partial);
        Some(desc)
    }

    #[cold]
    fn dropped(&mut self, bufs: &mut Bufs, desc: Desc, reason: DropReason) -> Option<Desc> {
        self.counts.frames.rx_drop(reason);
        bufs.free(desc);
        None
    }

    /// Posts chunks to receive into, up to `posted_max` per queue or as many as the pool gives.
    pub(super) fn refill(&mut self, bufs: &mut Bufs) {
        let Some(device) = &mut self.device else { return };
        let chunk_size = self.umem.pool().chunk_size() as u64;
        let mut torn = arrayvec::ArrayVec::<Desc, BURST>::new();
        for queue in &mut device.queues {
            let room = (queue.posted_max - queue.posted).min(queue.fill.free());
            let mut count = 0;
            while count < room {
                let Some(desc) = bufs.alloc() else { break };
                if queue.member.mode == CopyMode::Zero && self.umem.is_torn(desc.chunk()) {
                    // Torn chunks are kept out of the pool until the end, or `alloc` would return the same ones again.
                    if let Err(full) = torn.try_push(desc) {
                        bufs.free(full.element());
                        break;
                    }
                    continue;
                }
                let chunk = desc.chunk();
                let new = self.receive.posted.insert(chunk);
                debug_assert!(new, "a free chunk is not lent");
                queue.fill.push(u64::from(chunk) * chunk_size);
                count += 1;
            }
            if count > 0 {
                queue.posted += count;
                queue.fill.publish();
                if queue.fill.needs_wakeup() {
                    self.counts.system_calls += 1;
                    drop(sys::kick_rx(queue.socket.as_fd())); // the driver looks again by itself
                }
            }
        }
        for desc in torn {
            bufs.free(desc);
        }
    }

    /// With busy polling, has the kernel drive the queues, which it does only when called.
    pub(super) fn poll_busily(&mut self) {
        if self.config.busy_poll_us == 0 {
            return;
        }
        let Some(device) = &self.device else { return };
        for queue in &device.queues {
            self.counts.system_calls += 1;
            drop(sys::kick_rx(queue.socket.as_fd())); // what is wrong shows at the next check
        }
    }
}
