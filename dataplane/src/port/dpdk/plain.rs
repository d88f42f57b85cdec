//! Ordinary mempools of DPDK: carriers of shared chunks, and buffers for ports that copy.
//!
//! Source: DPDK 22.11 `rte_mbuf.h`.

use core::ffi::{c_int, c_uint};
use core::ptr::NonNull;
use std::ffi::CString;
use std::io;
use std::sync::atomic::{AtomicU32, Ordering};

use sys::{rte_mbuf, rte_mempool};
use weft_dpdk_sys as sys;

use super::calls;

/// No NUMA node is preferred (`SOCKET_ID_ANY`).
pub const ANY_NODE: c_int = -1;

/// A new name for a mempool; DPDK refuses names that exist.
pub fn fresh_name() -> CString {
    static COUNT: AtomicU32 = AtomicU32::new(0);
    let count = COUNT.fetch_add(1, Ordering::Relaxed); // only uniqueness matters
    CString::new(format!("weft-{count}")).unwrap_or_default()
}

/// An ordinary mempool of DPDK.
pub struct Plain(NonNull<rte_mempool>);

// SAFETY: DPDK's ring-based mempools may be used from any thread.
unsafe impl Send for Plain {}

impl Plain {
    /// Mbufs without memory of their own, which point at shared chunks.
    ///
    /// # Errors
    /// DPDK has no memory.
    pub fn carriers(count: usize) -> io::Result<Self> {
        Self::new(count, size_of::<sys::rte_mbuf_ext_shared_info>().next_multiple_of(8), 0)
    }

    /// Mbufs with `room` bytes each.
    ///
    /// # Errors
    /// DPDK has no memory.
    pub fn buffers(count: usize, room: usize) -> io::Result<Self> {
        Self::new(count, 0, room + sys::RTE_PKTMBUF_HEADROOM as usize)
    }

    fn new(count: usize, private: usize, room: usize) -> io::Result<Self> {
        let name = fresh_name();
        let count = c_uint::try_from(count).unwrap_or(c_uint::MAX);
        let [private, room] = [private, room].map(|size| u16::try_from(size).unwrap_or(u16::MAX));
        // SAFETY: the name is a C string.
        calls::make(|| unsafe {
            sys::rte_pktmbuf_pool_create(name.as_ptr(), count, 0, private, room, ANY_NODE)
        })
        .map(Self)
    }

    /// The mempool, for receive queues.
    pub const fn mempool(&self) -> *mut rte_mempool {
        self.0.as_ptr()
    }

    /// Allocates an mbuf; `None` while all are in use.
    pub fn alloc(&self) -> Option<NonNull<rte_mbuf>> {
        // SAFETY: the mempool lives.
        NonNull::new(unsafe { sys::weft_dpdk_alloc(self.0.as_ptr()) })
    }
}

impl Drop for Plain {
    fn drop(&mut self) {
        // SAFETY: the port that has us closed its device before, so that all mbufs are back.
        unsafe { sys::rte_mempool_free(self.0.as_ptr()) };
    }
}
