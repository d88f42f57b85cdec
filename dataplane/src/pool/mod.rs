//! Packet pool: one mapping of fixed-size chunks in which frames stay from receive to transmit.
//!
//! A chunk has 64 bytes of notes, headroom up to [`HEADROOM`], the frame and a tail. [`Bufs`] is one worker's handle:
//! it turns free chunks into [`Desc`]s and reads and writes the bytes behind them.
//!
//! A chunk is an odd number of cache lines, so that the fronts of frames spread over all sets of the caches (with a
//! power of two they meet in a few, measured at a third of the speed).
//!
//! Source: ARCHITECTURE.md "The path of a frame"; docs/spec/pipeline.md §4 (reserve for control frames).

mod fronts;
mod memory;
mod notes;

use core::ptr::NonNull;
use std::sync::Arc;

use weft_base::free::{FreeCache, FreeList};
use weft_base::sync::{AtomicU32, Ordering};
use weft_parsers::HEAD_LEN;
pub use weft_parsers::partial::PartialCsum;
use weft_parsers::vlan::TAG_LEN;

use self::memory::{Memory, Place};
use crate::batch::Batch;
use crate::desc::{Desc, Flag};

/// Offset of a received frame in its chunk: leaves room for a tag and a driver's header in front.
pub const HEADROOM: usize = 128;
/// Bytes at the start of a chunk that hold notes about the frame.
const NOTES: usize = 64;
/// Bytes of a cache line.
const LINE: usize = 64;
/// Smallest chunk in bytes: the largest start that a descriptor can hold, and a head behind it.
const MIN_LEN: usize = 510 + HEAD_LEN;
/// Bytes of a frame's front that a pool of fronts keeps: all headers of any format, and a test frame's mark.
pub const FRONT_LEN: usize = 96;
/// Longest frame in bytes that a pool can be made for: the limit of most devices, and more than the 9,518 bytes of
/// tagged frames at an MTU of 9,500.
pub const FRAME_LEN_MAX: usize = 9_728;
/// Offset at which the kernel puts a received frame into a chunk of a UMEM (`XDP_PACKET_HEADROOM`).
pub const UMEM_LEAD: usize = 256;
/// Bytes behind a frame that some kernels keep for themselves (`skb_shared_info`).
const UMEM_TAIL: usize = 320;
/// Cache lines of a UMEM chunk, both odd: the kernel accepts 2,048 to 4,096 bytes.
const UMEM_LINES_MIN: usize = 33;
const UMEM_LINES_MAX: usize = 63;
/// Longest frame in bytes that a chunk of a UMEM can hold.
pub const UMEM_FRAME_LEN_MAX: usize = UMEM_LINES_MAX * LINE - UMEM_LEAD - TAG_LEN;

/// Prefetches the cache line where `at` begins, without waiting for it.
#[inline]
pub fn prefetch<T>(at: &T) {
    prefetch_at(core::ptr::from_ref(at).cast());
}

/// Like [`prefetch`], for any address.
#[inline]
pub fn prefetch_at(at: *const u8) {
    #[cfg(all(target_arch = "x86_64", not(miri)))]
    {
        use core::arch::x86_64::{_MM_HINT_T0, _mm_prefetch};
        // SAFETY: a prefetch changes nothing but caches, whatever the address.
        unsafe { _mm_prefetch::<_MM_HINT_T0>(at.cast()) };
    }
    #[cfg(not(all(target_arch = "x86_64", not(miri))))]
    let _ = at;
}

/// Why a pool could not be made.
#[derive(Debug, thiserror::Error)]
pub enum PoolError {
    /// A size is outside the range of the layout.
    #[error("pool: {what} is {had}, must be {want}")]
    Size {
        /// Name of the size.
        what: &'static str,
        /// The requested value.
        had: usize,
        /// The range that is possible.
        want: &'static str,
    },
    /// The kernel refused the memory.
    #[error("pool: mmap of {bytes} bytes")]
    Map {
        /// Requested length in bytes.
        bytes: usize,
        /// The kernel's answer to mmap.
        source: std::io::Error,
    },
}

/// Users of a pool's chunks besides the workers.
#[derive(Clone, Copy, Debug, Default)]
pub struct Sharing {
    /// The kernel: chunks are laid out for the UMEM of `AF_XDP` sockets, if frames are at most [`UMEM_FRAME_LEN_MAX`]
    /// long.
    pub umem: bool,
    /// Devices that use the process's addresses on the bus: the pool is placed below 2^38 if there is room, as an IOMMU
    /// may accept only addresses of 39 bits.
    pub dma: bool,
}

/// The packet pool: chunks in which frames stay from receive to transmit; shared by the workers.
pub struct Pool {
    /// Start of the memory.
    base: NonNull<u8>,
    memory: Memory,
    chunk_size: usize,
    /// Bytes kept of a frame; more only in a pool of whole frames.
    kept: usize,
    /// Maximum number of chunks; a pool of fronts starts with fewer and grows.
    most: usize,
    /// Per chunk: number of handles in the low 16 bits, copies still charged to the buffer in the high 16. Used only
    /// while the chunk is shared.
    shares: Box<[AtomicU32]>,
    free: Arc<FreeList>,
}

// SAFETY: the bytes of a chunk are reached only through a `Desc` of that chunk, of which there is
// one unless the chunk is shared, and then they are only read (see `Bufs::bytes_mut`).
unsafe impl Send for Pool {}
// SAFETY: as above.
unsafe impl Sync for Pool {}

impl Pool {
    /// Maps `count` chunks for frames of up to `frame_len_max` bytes, in huge pages if the kernel has enough free ones.
    ///
    /// # Errors
    /// A size out of range, or no memory.
    pub fn map(count: usize, frame_len_max: usize) -> Result<Arc<Self>, PoolError> {
        Self::map_shared(count, frame_len_max, Sharing::default())
    }

    /// Like [`Self::map`], with chunks for the UMEM of `AF_XDP` sockets.
    ///
    /// # Errors
    /// As for [`Self::map`].
    pub fn map_umem(count: usize, frame_len_max: usize) -> Result<Arc<Self>, PoolError> {
        Self::map_shared(count, frame_len_max, Sharing { umem: true, dma: false })
    }

    /// Like [`Self::map`], laid out and placed for the users in `sharing`.
    ///
    /// # Errors
    /// As for [`Self::map`].
    pub fn map_shared(
        count: usize,
        frame_len_max: usize,
        sharing: Sharing,
    ) -> Result<Arc<Self>, PoolError> {
        let mut chunk_size = Self::chunk_size_for(count, frame_len_max)?;
        if sharing.umem && frame_len_max <= UMEM_FRAME_LEN_MAX {
            let lines = (UMEM_LEAD + frame_len_max + TAG_LEN + UMEM_TAIL).div_ceil(LINE);
            chunk_size = (lines | 1).clamp(UMEM_LINES_MIN, UMEM_LINES_MAX) * LINE;
        }
        let place = if sharing.dma { Place::Low } else { Place::Anywhere };
        Ok(Self::over(Memory::map(count * chunk_size, place)?, count, chunk_size))
    }

    /// A pool in ordinary memory: for tests, Miri and small simulations.
    ///
    /// # Errors
    /// A size out of range.
    pub fn in_memory(count: usize, frame_len_max: usize) -> Result<Arc<Self>, PoolError> {
        let chunk_size = Self::chunk_size_for(count, frame_len_max)?;
        Ok(Self::over(Memory::owned(count * chunk_size), count, chunk_size))
    }

    fn chunk_size_for(count: usize, frame_len_max: usize) -> Result<usize, PoolError> {
        if !(HEAD_LEN..=FRAME_LEN_MAX).contains(&frame_len_max) {
            return Err(PoolError::Size {
                what: "frame_len_max",
                had: frame_len_max,
                want: "64..=9728 bytes",
            });
        }
        if !(1..=1 << 24).contains(&count) {
            return Err(PoolError::Size {
                what: "count",
                had: count,
                want: "1..=16,777,216 chunks",
            });
        }
        let lines = (HEADROOM + frame_len_max + TAG_LEN).max(MIN_LEN).div_ceil(LINE);
        Ok((lines | 1) * LINE)
    }

    fn over(memory: Memory, count: usize, chunk_size: usize) -> Arc<Self> {
        Arc::new(Self {
            base: memory.base(),
            memory,
            chunk_size,
            kept: usize::MAX,
            most: count,
            shares: (0..count).map(|_| AtomicU32::new(0)).collect(),
            free: Arc::new(FreeList::new(0, count)),
        })
    }

    /// Size of a chunk in bytes.
    #[must_use]
    pub const fn chunk_size(&self) -> usize {
        self.chunk_size
    }

    /// Maximum number of chunks; a pool that grows may have fewer now.
    #[must_use]
    pub const fn count(&self) -> usize {
        self.most
    }

    /// Number of bytes kept of a frame of `len` bytes.
    #[inline]
    fn kept_of(&self, len: usize) -> usize {
        len.min(self.kept)
    }

    /// Address of bytes `at..at + len` of `chunk`.
    #[inline]
    fn area(&self, chunk: u32, at: usize, len: usize) -> *mut u8 {
        let chunk = chunk as usize;
        assert!(chunk < self.shares.len() && at + len <= self.chunk_size, "inside the pool");
        self.base.as_ptr().wrapping_add(chunk * self.chunk_size + at)
    }

    #[inline]
    fn read(&self, desc: &Desc, at: usize, len: usize) -> &[u8] {
        let p = self.area(desc.chunk, at, len);
        // SAFETY: `area` checked the bounds, and while `desc` is borrowed nobody writes the chunk:
        // only the holder of its one handle may (`sole`), and that one borrows it mutably.
        unsafe { core::slice::from_raw_parts(p, len) }
    }

    #[inline]
    fn write<'a>(&'a self, desc: &'a mut Desc, at: usize, len: usize) -> &'a mut [u8] {
        let p = self.area(desc.chunk, at, len);
        // SAFETY: `area` checked the bounds; every caller made sure that `desc` is the only handle,
        // and it is borrowed mutably.
        unsafe { core::slice::from_raw_parts_mut(p, len) }
    }

    fn share_word(&self, chunk: u32) -> &AtomicU32 {
        self.shares.get(chunk as usize).expect("descriptors name chunks of this pool")
    }

    /// Removes one handle of a shared chunk from the count; true if it was the last.
    fn is_last(&self, desc: &Desc) -> bool {
        // AcqRel: our reads are done before the last holder may write, and we see theirs.
        self.share_word(desc.chunk).fetch_sub(1, Ordering::AcqRel) & 0xFFFF == 1
    }

    /// Whether `desc` is the only handle of its chunk.
    #[inline]
    fn sole(&self, desc: &Desc) -> bool {
        // Acquire pairs with the Release of the last other holder's `free`.
        !desc.has(Flag::Shared) || self.share_word(desc.chunk).load(Ordering::Acquire) & 0xFFFF == 1
    }
}

/// One worker's handle of the pool: allocates and frees chunks, and accesses frames.
pub struct Bufs {
    pool: Arc<Pool>,
    cache: FreeCache,
    /// Chunks reserved for frames that the switch makes itself (PAUSE, probes).
    reserve: Vec<u32>,
    reserve_len: usize,
    /// Chunks allocated less chunks freed, wrapping.
    taken: u64,
    used: Arc<crate::stats::Counter>,
}

impl Bufs {
    /// A handle that caches about `keep` free chunks and reserves `reserve` for control frames.
    #[must_use]
    pub fn new(pool: Arc<Pool>, keep: usize, reserve: usize) -> Self {
        let cache = FreeCache::new(pool.free.clone(), keep);
        let (own, used) = (Vec::with_capacity(reserve), Arc::default());
        let mut bufs = Self { pool, cache, reserve: own, reserve_len: 0, taken: 0, used };
        while bufs.reserve.len() < reserve
            && let Some(chunk) = bufs.take()
        {
            bufs.reserve.push(chunk);
        }
        bufs.reserve_len = bufs.reserve.len();
        bufs
    }

    /// Chunks that this worker allocated and has not freed, as of the last [`Self::settle`]; the sum over all workers
    /// is in use. Wraps below 0 for a worker that frees chunks of another. Calling this also settles.
    #[must_use]
    pub fn used(&self) -> Arc<crate::stats::Counter> {
        self.settle();
        self.used.clone()
    }

    /// Publishes the number of chunks in use to other threads; once per step.
    #[inline]
    pub fn settle(&self) {
        self.used.set(self.taken);
    }

    /// The pool that this is a handle of.
    #[must_use]
    pub const fn pool(&self) -> &Arc<Pool> {
        &self.pool
    }

    /// Number of a free chunk.
    #[inline]
    fn take(&mut self) -> Option<u32> {
        self.cache.take().or_else(|| self.grow())
    }

    /// Allocates a chunk for an empty frame; `None` if the pool is empty.
    #[inline]
    pub fn alloc(&mut self) -> Option<Desc> {
        let chunk = self.take()?;
        self.taken = self.taken.wrapping_add(1);
        Some(Desc::new(chunk, HEADROOM))
    }

    /// Allocates a chunk for a frame of the switch's own, from the reserve if data has taken all others.
    pub fn alloc_control(&mut self) -> Option<Desc> {
        let mut desc = if let Some(desc) = self.alloc() {
            desc
        } else {
            let chunk = self.reserve.pop()?;
            self.taken = self.taken.wrapping_add(1);
            Desc::new(chunk, HEADROOM)
        };
        self.set_damaged(&mut desc, false); // what was in the chunk before may have been
        Some(desc)
    }

    /// Chunks that the reserve for control frames lacks now.
    #[must_use]
    pub fn reserve_short(&self) -> usize {
        self.reserve_len - self.reserve.len()
    }

    /// Frees a handle; true if it was the chunk's last.
    #[inline]
    #[expect(clippy::needless_pass_by_value, reason = "the handle ends here")]
    pub fn free(&mut self, desc: Desc) -> bool {
        if desc.has(Flag::Shared) && !self.pool.is_last(&desc) {
            return false;
        }
        self.taken = self.taken.wrapping_sub(1);
        // The reserve is refilled first: the next PAUSE must find a chunk, however much data waits.
        if self.reserve.len() < self.reserve_len {
            self.reserve.push(desc.chunk);
        } else {
            self.cache.give(desc.chunk);
        }
        true
    }

    /// Frees the only handle of `chunk`, like [`Self::free`], if that is a mere entry in the cache; otherwise returns
    /// false.
    #[inline]
    pub fn free_warm(&mut self, chunk: u32) -> bool {
        let done = self.reserve.len() == self.reserve_len && self.cache.give_warm(chunk);
        self.taken = self.taken.wrapping_sub(u64::from(done));
        done
    }

    /// Frees handles, like [`Self::free`].
    #[inline]
    pub fn free_all(&mut self, descs: impl ExactSizeIterator<Item = Desc>) {
        let mut descs = descs;
        while self.reserve.len() < self.reserve_len {
            let Some(desc) = descs.next() else { return };
            self.free(desc);
        }
        // Once the reserve is full, chunks go to the cache in one run, without its bound checked per frame.
        let Self { pool, cache, taken, .. } = self;
        let given = cache.give_all(descs.len(), |slots| {
            let mut slots = slots.iter_mut();
            let mut given = 0;
            for desc in descs {
                if desc.has(Flag::Shared) && !pool.is_last(&desc) {
                    continue;
                }
                if let Some(slot) = slots.next() {
                    *slot = desc.chunk;
                    given += 1;
                }
            }
            given
        });
        *taken = taken.wrapping_sub(given as u64);
    }

    /// Longest frame in bytes that a chunk of this pool can hold.
    #[inline]
    #[must_use]
    pub fn room(&self) -> usize {
        if self.pool.kept < FRAME_LEN_MAX { FRAME_LEN_MAX } else { self.pool.chunk_size - HEADROOM }
    }

    /// The frame's bytes; in a pool of fronts, those that it keeps.
    #[inline]
    #[must_use]
    pub fn bytes<'a>(&'a self, desc: &'a Desc) -> &'a [u8] {
        self.pool.read(desc, desc.start(), self.pool.kept_of(desc.len()))
    }

    /// The first 64 bytes, zero behind the frame's end.
    ///
    /// # Panics
    /// Never: a chunk holds that many after any start.
    #[inline]
    #[must_use]
    pub fn head<'a>(&'a self, desc: &'a Desc) -> &'a [u8; HEAD_LEN] {
        let head = self.pool.read(desc, desc.start(), HEAD_LEN);
        head.try_into().expect("HEAD_LEN bytes were read")
    }

    /// The frame's bytes for writing; `None` while other handles share them.
    #[inline]
    pub fn bytes_mut<'a>(&'a mut self, desc: &'a mut Desc) -> Option<&'a mut [u8]> {
        let (start, len) = (desc.start(), self.pool.kept_of(desc.len()));
        self.pool.sole(desc).then(|| self.pool.write(desc, start, len))
    }

    /// All bytes from the frame's start to the chunk's end, for a port to receive into; `None` while shared. Call
    /// [`Self::set_len`] afterwards.
    #[inline]
    pub fn space_mut<'a>(&'a mut self, desc: &'a mut Desc) -> Option<&'a mut [u8]> {
        let start = desc.start();
        let len = self.pool.chunk_size - start;
        self.pool.sole(desc).then(|| self.pool.write(desc, start, len))
    }

    /// The whole chunk behind the notes, and the frame's start in it: for tags and driver headers; `None` while shared.
    #[inline]
    pub fn chunk_mut<'a>(&'a mut self, desc: &'a mut Desc) -> Option<(&'a mut [u8], usize)> {
        let start = desc.start() - NOTES;
        let len = self.pool.chunk_size - NOTES;
        self.pool.sole(desc).then(|| (self.pool.write(desc, NOTES, len), start))
    }

    /// Sets the frame's bounds after a change through [`Self::chunk_mut`], as offsets in its slice.
    ///
    /// # Panics
    /// When the bounds do not fit the chunk.
    pub fn set_bounds(&mut self, desc: &mut Desc, start: usize, len: usize) {
        let start = start + NOTES;
        assert!(start.is_multiple_of(2) && start <= 510, "the start is even and near the front");
        desc.set_start(start);
        self.set_len(desc, len);
    }

    /// Sets the frame's length, and zeroes the bytes behind it up to [`HEAD_LEN`].
    ///
    /// # Panics
    /// When the chunk cannot hold `len` bytes.
    #[inline]
    pub fn set_len(&mut self, desc: &mut Desc, len: usize) {
        let kept = self.pool.kept_of(len).max(HEAD_LEN);
        assert!(desc.start() + kept <= self.pool.chunk_size, "fits the chunk");
        desc.set_len(u16::try_from(len).expect("a chunk is shorter than 64 KiB"));
        // The parser reads HEAD_LEN bytes of every frame, and ports send the first 60 as padding: neither may show an
        // old frame's bytes.
        if len < HEAD_LEN && self.pool.sole(desc) {
            let at = desc.start() + len;
            self.pool.write(desc, at, HEAD_LEN - len).fill(0);
        }
    }

    /// Copies `frame` into a free chunk; `None` if it is too long or the pool is empty.
    ///
    /// # Panics
    /// Never: a frame that fits is shorter than 64 KiB.
    #[inline]
    pub fn alloc_from(&mut self, frame: &[u8]) -> Option<Desc> {
        if frame.len() > self.room() {
            return None;
        }
        let len = frame.len();
        let frame = frame.get(..self.pool.kept_of(len))?;
        let mut desc = self.alloc()?;
        let out = self.pool.write(&mut desc, HEADROOM, frame.len().max(HEAD_LEN));
        let heads =
            frame.split_first_chunk::<HEAD_LEN>().zip(out.split_first_chunk_mut::<HEAD_LEN>());
        if let Some(((head, rest), (out, out_rest))) = heads {
            *out = *head; // constant size: a short frame takes no call
            let fronts =
                (out_rest.first_chunk_mut(), rest.first_chunk::<{ FRONT_LEN - HEAD_LEN }>());
            if let (Some(to), Some(from)) = fronts
                && rest.len() == FRONT_LEN - HEAD_LEN
            {
                *to = *from;
            } else if !rest.is_empty() {
                out_rest.copy_from_slice(rest);
            }
        } else {
            let (bytes, rest) = out.split_at_mut(frame.len());
            bytes.copy_from_slice(frame);
            rest.fill(0); // up to the end of the head
        }
        desc.set_len(u16::try_from(len).expect("a frame is shorter than 64 KiB"));
        Some(desc)
    }

    /// Copies short frames into free chunks and appends them to `batch`: at most `most`, while `batch` has room and the
    /// pool has cached chunks. Each frame comes with its length and has zeros behind its end. Stops at a frame that is
    /// longer than a head; returns how many were copied.
    #[inline]
    pub fn alloc_heads<'a>(
        &mut self,
        most: usize,
        mut frames: impl Iterator<Item = (&'a [u8; HEAD_LEN], u16)>,
        batch: &mut Batch,
    ) -> usize {
        let mut made = 0;
        // Last first: the cache is a stack, and the chunk freed last is most likely still in the processor's cache.
        for &chunk in self.cache.peek(most.min(batch.remaining_capacity())).iter().rev() {
            let Some((head, len)) = frames.next() else { break };
            if usize::from(len) > HEAD_LEN {
                break;
            }
            let mut desc = Desc::new(chunk, HEADROOM);
            if let Some(out) = self.pool.write(&mut desc, HEADROOM, HEAD_LEN).first_chunk_mut() {
                *out = *head; // constant size: no call
            }
            desc.set_len(len);
            batch.push(desc);
            made += 1;
        }
        self.cache.skip(made);
        self.taken = self.taken.wrapping_add(made as u64);
        made
    }

    /// Makes another handle of the same bytes.
    pub fn share(&mut self, desc: &mut Desc) -> Desc {
        let word = self.pool.share_word(desc.chunk);
        if desc.has(Flag::Shared) {
            word.fetch_add(0x1_0001, Ordering::Relaxed); // no ordering needed: made from a handle that exists
        } else {
            desc.set(Flag::Shared, true);
            word.store(0x2_0002, Ordering::Relaxed); // two handles, two charges; no other thread has one yet
        }
        desc.twin()
    }

    /// Notes that one copy is no longer charged to the buffer; true for the last one.
    #[inline]
    pub fn uncharge(&mut self, desc: &Desc) -> bool {
        !desc.has(Flag::Shared)
            || self.pool.share_word(desc.chunk).fetch_sub(0x1_0000, Ordering::AcqRel) >> 16 == 1
    }

    /// Returns a handle whose bytes may be written: `desc` itself, or a copy if others share them.
    ///
    /// # Errors
    /// The unchanged `desc`, if a copy is needed and the pool is empty.
    pub fn make_sole(&mut self, mut desc: Desc) -> Result<Desc, Desc> {
        if self.pool.sole(&desc) {
            desc.set(Flag::Shared, false);
            return Ok(desc);
        }
        let Some(copy) = self.alloc() else { return Err(desc) }; // lives on in `own`
        let (start, len) = (desc.start(), desc.len());
        let mut own = desc.twin();
        own.chunk = copy.chunk;
        own.set(Flag::Shared, false);
        let span = self.pool.kept_of(len).max(HEAD_LEN);
        let from = self.pool.read(&desc, start, span);
        self.pool.write(&mut own, start, span).copy_from_slice(from);
        // The notes belong to the frame: its partial checksum and trace number must survive the copy.
        let notes = self.pool.read(&desc, 0, NOTES);
        self.pool.write(&mut own, 0, NOTES).copy_from_slice(notes);
        self.free(desc);
        Ok(own)
    }
}

impl Drop for Bufs {
    fn drop(&mut self) {
        for chunk in self.reserve.drain(..) {
            self.cache.give(chunk);
        }
    }
}

#[cfg(test)]
mod tests;
