//! Pools of fronts: keep only the part of a frame that is ever read, and take memory as frames come.
//!
//! See [`Pool::fronts`] and [`Bufs::alloc_front`]. When all chunks are taken, the pool is replaced by one of twice as
//! many chunks with the same contents. Descriptors stay valid, as they name chunks by number.
//!
//! Source: docs/spec/model.md §1.

use std::sync::Arc;

use weft_base::free::FreeList;
use weft_base::sync::{AtomicU32, Ordering};
use weft_parsers::vlan::TAG_LEN;

use super::memory::Memory;
use super::{Bufs, FRONT_LEN, HEADROOM, LINE, Pool, PoolError};
use crate::desc::Desc;

/// Chunks that a pool begins with: 20 KiB, which stay allocated for other users of the pool when it grows.
const FIRST: usize = 64;

impl Pool {
    /// Like [`Self::in_memory`], but frames of up to `frame_len_max` bytes keep only their first [`FRONT_LEN`]: for
    /// virtual time, where nothing behind them is read.
    ///
    /// The pool is for one [`Bufs`]: of two, neither would see the frames of the other once it has grown.
    ///
    /// # Errors
    /// As [`Self::in_memory`].
    pub fn fronts(count: usize, frame_len_max: usize) -> Result<Arc<Self>, PoolError> {
        Self::chunk_size_for(count, frame_len_max)?;
        Ok(Arc::new(Self::of_fronts(FIRST.min(count), count)))
    }

    /// Whether the pool takes memory as frames come.
    pub(crate) const fn grows(&self) -> bool {
        self.kept == FRONT_LEN
    }

    fn of_fronts(count: usize, most: usize) -> Self {
        // In virtual time no driver chooses where a frame starts; only a tag may be put in front of it.
        let chunk_size = ((HEADROOM + FRONT_LEN + TAG_LEN).div_ceil(LINE) | 1) * LINE;
        let memory = Memory::owned(count * chunk_size);
        Self {
            base: memory.base(),
            memory,
            chunk_size,
            kept: FRONT_LEN,
            most,
            shares: (0..count).map(|_| AtomicU32::new(0)).collect(),
            free: Arc::new(FreeList::of_one(0, count)),
        }
    }

    /// A pool of twice as many chunks with the same contents; `None` if it may not grow.
    fn twice(&self) -> Option<Self> {
        let had = self.shares.len();
        let count = (2 * had).min(self.most);
        if count <= had {
            return None;
        }
        let mut more = Self::of_fronts(count, self.most);
        for (to, from) in more.shares.iter().zip(&self.shares) {
            to.store(from.load(Ordering::Relaxed), Ordering::Relaxed); // Relaxed: one thread has both
        }
        more.memory.copy_front_of(&self.memory);
        Some(more)
    }
}

impl Bufs {
    /// Replaces the pool by one of twice as many chunks, if it may grow; takes the first of the new chunks.
    #[cold]
    pub(super) fn grow(&mut self) -> Option<u32> {
        let more = self.pool.twice()?;
        self.cache.extend(more.shares.len() - self.pool.shares.len());
        self.pool = Arc::new(more);
        self.cache.take()
    }

    /// Copies the front of a frame of `len` bytes into a free chunk; `None` if the pool is empty or keeps more than
    /// `front`.
    #[inline]
    pub fn alloc_front(&mut self, front: &[u8], len: usize) -> Option<Desc> {
        if front.len() < self.pool.kept_of(len) {
            return None;
        }
        let mut desc = self.alloc_from(front)?;
        desc.set_len(u16::try_from(len).ok()?);
        Some(desc)
    }
}
