//! The packet pool as the kernel's UMEM, shared by all `AF_XDP` ports of a switch.
//!
//! Each copy mode has one registration. The first socket makes it, and later ones share it through any socket that is
//! bound. A socket that closes does not affect the others.
//!
//! Source: ARCHITECTURE.md "The path of a frame"; Linux `net/xdp/xsk.c` (`xsk_bind`, 5.10 and later).

use std::io;
use std::os::fd::{AsRawFd, BorrowedFd, RawFd};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use super::sys;
use crate::pool::{Pool, UMEM_LEAD};

/// Bytes in front of a frame for transmit metadata: `struct xsk_tx_metadata`.
pub(super) const TX_METADATA_LEN: usize = 24;
/// Chunk sizes in bytes that the kernel accepts.
const CHUNK_SIZES: core::ops::RangeInclusive<usize> = 2_048..=4_096;
/// Size of a huge page, within which memory is physically contiguous.
const HUGE_PAGE: usize = 2 << 20;

/// Whether the kernel copies frames between a device's memory and the pool.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum CopyMode {
    Zero,
    Copy,
}

/// A socket that is bound, and through which others may share.
struct Bound {
    id: u64,
    fd: RawFd,
    mode: CopyMode,
    tx_metadata: bool,
}

#[derive(Default)]
struct Members {
    bound: Vec<Bound>,
    next_id: u64,
}

/// The packet pool, for all `AF_XDP` ports of a switch.
pub struct Umem {
    pool: Arc<Pool>,
    members: Mutex<Members>,
}

/// Keeps a bound socket in the list of those through which others may share. Drop it before the socket.
pub(super) struct Member {
    umem: Arc<Umem>,
    id: u64,
    pub mode: CopyMode,
    /// Whether the registration has room for transmit metadata in front of a frame.
    pub tx_metadata: bool,
}

impl Drop for Member {
    fn drop(&mut self) {
        self.umem.lock().bound.retain(|bound| bound.id != self.id);
    }
}

impl Umem {
    /// The UMEM over `pool`, which should come from [`Pool::map_umem`].
    #[must_use]
    pub fn new(pool: Arc<Pool>) -> Arc<Self> {
        Arc::new(Self { pool, members: Mutex::default() })
    }

    /// The pool that is registered.
    #[must_use]
    pub const fn pool(&self) -> &Arc<Pool> {
        &self.pool
    }

    /// Longest frame in bytes that a chunk can receive; `None` if the kernel does not take chunks of this size.
    #[must_use]
    pub fn frame_len_max(&self) -> Option<usize> {
        let size = self.pool.chunk_size();
        self.pool.mapping()?;
        CHUNK_SIZES.contains(&size).then(|| size - UMEM_LEAD)
    }

    fn lock(&self) -> MutexGuard<'_, Members> {
        self.members.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Whether `chunk` may not be physically contiguous; in zero-copy mode a device cannot use such a chunk.
    pub(super) fn is_torn(&self, chunk: u32) -> bool {
        let size = self.pool.chunk_size();
        let first = chunk as usize * size;
        !self.pool.has_huge_pages() || first / HUGE_PAGE != (first + size - 1) / HUGE_PAGE
    }

    /// Binds `fd`, which has its rings, to a queue of an interface, sharing a registration of this mode or making one.
    ///
    /// The socket must stay open until the returned [`Member`] is dropped.
    pub(super) fn bind(
        self: &Arc<Self>,
        fd: BorrowedFd<'_>,
        ifindex: u32,
        queue: u32,
        mode: CopyMode,
    ) -> io::Result<Member> {
        let mut members = self.lock(); // nobody closes a socket through which we share
        // Through any member, since the socket that registered the pool may be closed by now.
        let mut shared = None;
        for other in members.bound.iter().filter(|other| other.mode == mode) {
            // SAFETY: open, as its `Member` leaves the list before it is closed.
            let through = unsafe { BorrowedFd::borrow_raw(other.fd) };
            match sys::bind(fd, ifindex, queue, libc::XDP_SHARED_UMEM, Some(through)) {
                Ok(()) => {
                    shared = Some(other.tx_metadata);
                    break;
                }
                // The kernel answers EBADF if the other socket is no longer bound because its interface has just been
                // deleted.
                Err(e) if e.raw_os_error() == Some(libc::EBADF) => {}
                Err(e) => return Err(e),
            }
        }
        let tx_metadata = match shared {
            Some(tx_metadata) => tx_metadata,
            None => self.register_and_bind(fd, ifindex, queue, mode)?,
        };
        let id = members.next_id;
        members.next_id += 1;
        members.bound.push(Bound { id, fd: fd.as_raw_fd(), mode, tx_metadata });
        Ok(Member { umem: self.clone(), id, mode, tx_metadata })
    }

    /// Registers the pool for `fd`; returns whether there is room for transmit metadata.
    fn register_and_bind(
        &self,
        fd: BorrowedFd<'_>,
        ifindex: u32,
        queue: u32,
        mode: CopyMode,
    ) -> io::Result<bool> {
        let base = self.pool.mapping().ok_or(io::ErrorKind::Unsupported)?;
        let size = self.pool.chunk_size();
        let len = self.pool.count() * size;
        let size = u32::try_from(size).unwrap_or(u32::MAX);
        let register = |metadata_len| {
            // SAFETY: ports keep the pool for longer than their sockets, and lend chunks: no
            // descriptor names a chunk while the kernel has it for receiving.
            unsafe { sys::register(fd, base, len, size, metadata_len) }
        };
        let tx_metadata = match register(u32::try_from(TX_METADATA_LEN).unwrap_or(0)) {
            Ok(()) => true,
            // An older kernel refuses the flag that it does not know.
            Err(e) if e.raw_os_error() == Some(libc::EINVAL) => {
                register(0)?;
                false
            }
            Err(e) => return Err(e),
        };
        let copy = if mode == CopyMode::Zero { libc::XDP_ZEROCOPY } else { libc::XDP_COPY };
        sys::bind(fd, ifindex, queue, copy | libc::XDP_USE_NEED_WAKEUP, None)?;
        Ok(tx_metadata)
    }
}
