//! Pools of fronts: of frames only what anybody reads is kept.
//!
//! Shape: [`Pool::fronts`], [`Bufs::alloc_front`].
//! Units: bytes.
//! Source: docs/spec/model.md §1.

use std::sync::Arc;

use weft_base::free::FreeList;
use weft_parsers::vlan::TAG_LEN;

use super::memory::Memory;
use super::{Bufs, FRONT_LEN, HEADROOM, LINE, Pool, PoolError};
use crate::desc::Desc;

impl Pool {
    /// As [`Self::in_memory`], of which frames of up to `frame_len_max` bytes keep their first [`FRONT_LEN`] only: in virtual
    /// time, where nothing behind them is read.
    ///
    /// One [`Bufs`] at a time is for it.
    ///
    /// # Errors
    /// As [`Self::in_memory`].
    pub fn fronts(count: usize, frame_len_max: usize) -> Result<Arc<Self>, PoolError> {
        Self::chunk_size_for(count, frame_len_max)?;
        // No driver moves a frame about in its chunk: only a tag comes before it.
        let chunk_size = ((HEADROOM + FRONT_LEN + TAG_LEN).div_ceil(LINE) | 1) * LINE;
        let memory = Memory::owned(count * chunk_size);
        let mut pool = Self::over(memory, count, chunk_size);
        if let Some(pool) = Arc::get_mut(&mut pool) {
            pool.kept = FRONT_LEN;
            pool.free = Arc::new(FreeList::of_one(0, count));
        }
        Ok(pool)
    }
}

impl Bufs {
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
