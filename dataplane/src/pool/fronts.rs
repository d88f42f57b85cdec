//! Pools of fronts: of frames only what anybody reads is kept, and memory is taken as frames come.
//!
//! [`Pool::fronts`], [`Bufs::alloc_front`]. When all chunks are taken, a pool of twice as many takes its place, with
//! all that is in them; descriptors stay as they are, as they name chunks by number.
//!
//! Units: bytes.
//! Source: docs/spec/model.md §1.

use std::sync::Arc;

use weft_base::free::FreeList;
use weft_base::sync::{AtomicU32, Ordering};
use weft_parsers::vlan::TAG_LEN;

use super::memory::Memory;
use super::{Bufs, FRONT_LEN, HEADROOM, LINE, Pool, PoolError};
use crate::desc::Desc;

/// Chunks that a pool begins with: 20 KiB, which stay with what else refers to the pool when it grows.
const FIRST: usize = 64;

impl Pool {
    /// As [`Self::in_memory`], of which frames of up to `frame_len_max` bytes keep their first [`FRONT_LEN`] only: in virtual
    /// time, where nothing behind them is read.
    ///
    /// One [`Bufs`] is for it: where there are two, neither sees the frames of the other once it has grown.
    ///
    /// # Errors
    /// As [`Self::in_memory`].
    pub fn fronts(count: usize, frame_len_max: usize) -> Result<Arc<Self>, PoolError> {
        Self::chunk_size_for(count, frame_len_max)?;
        Ok(Arc::new(Self::of_fronts(FIRST.min(count), count)))
    }

    /// Whether memory is taken as frames come.
    pub(crate) const fn grows(&self) -> bool {
        self.kept == FRONT_LEN
    }

    fn of_fronts(count: usize, most: usize) -> Self {
        // No driver moves a frame about in its chunk: only a tag comes before it.
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

    /// A pool of twice as many chunks with all that is in this one, if it may grow.
    fn twice(&self) -> Option<Self> {
        let had = self.shares.len();
        let count = (2 * had).min(self.most);
        if count <= had {
            return None;
        }
        let mut more = Self::of_fronts(count, self.most);
        for (to, from) in more.shares.iter().zip(&self.shares) {
            to.store(from.load(Ordering::Relaxed), Ordering::Relaxed); // one thread has both
        }
        more.memory.copy_front_of(&self.memory);
        Some(more)
    }
}

impl Bufs {
    /// Goes on in a pool of twice as many chunks, where the pool may grow; takes the first of the new ones.
    #[cold]
    pub(super) fn grow(&mut self) -> Option<u32> {
        let more = self.pool.twice()?;
        self.cache.extend(more.shares.len() - self.pool.shares.len());
        self.pool = Arc::new(more);
        self.cache.take()
    }

    /// Copies the front of a frame of `len` bytes, all that is kept of it, into a free chunk; `None` when the pool is empty or
    /// keeps more.
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
