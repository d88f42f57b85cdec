//! Memory that DPDK's drivers and weft's pool share: each chunk of the pool has a permanent mbuf.
//!
//! [`Mbufs`] is a mempool whose objects are the mbufs of a pool's chunks. Mbuf i points at chunk i, so a received mbuf
//! and a descriptor's chunk convert into each other by arithmetic. The mempool allocates from and frees to the [`Bufs`]
//! that a worker lends for the time of a call ([`Mbufs::lend`], `port/loan.rs`).
//!
//! Source: DPDK 22.11 `rte_mempool.h`, `rte_mbuf.h`; ARCHITECTURE.md "The path of a frame".

use core::ffi::{CStr, c_int, c_uint, c_void};
use core::mem::MaybeUninit;
use core::ops::Range;
use core::ptr::{NonNull, null_mut};
use std::alloc::Layout;
use std::io;
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use std::sync::{Arc, Mutex, PoisonError, Weak};

use sys::{rte_mbuf, rte_mempool};
use weft_dpdk_sys as sys;

use super::calls;
use super::plain::{ANY_NODE, fresh_name};
use crate::desc::{Desc, Flag};
use crate::pool::{Bufs, HEADROOM, Pool};
use crate::port::loan;

/// Name under which DPDK knows weft's mempool functions.
const OPS: &CStr = c"weft";
/// Bytes that DPDK puts in front of each object of a mempool.
const OBJECT_HEAD: usize =
    size_of::<sys::rte_mempool_objhdr>().next_multiple_of(sys::RTE_CACHE_LINE_SIZE as usize);
/// Bytes from one mbuf to the next.
const STRIDE: usize = OBJECT_HEAD + size_of::<rte_mbuf>();
/// Bus address of the objects: `RTE_BAD_IOVA`, as they are not in DPDK's own memory.
const NO_IOVA: sys::rte_iova_t = sys::rte_iova_t::MAX;
const HUGE: usize = 2 << 20;

const _: () = assert!(
    sys::RTE_PKTMBUF_HEADROOM as usize == HEADROOM,
    "drivers put frames where weft's own ports do"
);

/// A chunk that was freed while no `Bufs` was lent.
struct Stray {
    chunk: u32,
    shared: bool,
}

/// The mbufs of a pool's chunks.
pub struct Mbufs {
    pool: Arc<Pool>,
    mempool: *mut rte_mempool,
    /// The mbuf of chunk 0.
    first: NonNull<u8>,
    /// Start of the memory of all mbufs, object heads included.
    start: NonNull<u8>,
    layout: Layout,
    /// True while the mempool is built. DPDK then "frees" each new object once, which must not free its chunk.
    filling: AtomicBool,
    strays: Mutex<Vec<Stray>>,
    stray_count: AtomicUsize,
}

// SAFETY: only the holder of a chunk's descriptor, or the code that got the mbuf from a driver, touches an mbuf, one at
// a time; the mempool itself is not changed after it was filled.
unsafe impl Send for Mbufs {}
// SAFETY: as above.
unsafe impl Sync for Mbufs {}

/// All `Mbufs` of the process, one for each pool with DPDK ports.
static KNOWN: Mutex<Vec<Weak<Mbufs>>> = Mutex::new(Vec::new());

/// Registers weft's mempool functions with DPDK.
pub(super) fn register() -> io::Result<()> {
    let mut ops = sys::rte_mempool_ops {
        alloc: Some(ops_alloc),
        free: Some(ops_free),
        enqueue: Some(enqueue),
        dequeue: Some(dequeue),
        get_count: Some(count),
        ..Default::default()
    };
    for (to, &from) in ops.name.iter_mut().zip(OPS.to_bytes()) {
        *to = from.cast_signed();
    }
    // SAFETY: DPDK copies the description.
    calls::call(|| unsafe { sys::rte_mempool_register_ops(&raw const ops) }).map(drop)
}

impl Mbufs {
    /// The mbufs of `pool`, made on the first call.
    ///
    /// # Errors
    /// No memory, or DPDK lays mbufs out otherwise than its headers say.
    pub fn of(pool: &Arc<Pool>) -> io::Result<Arc<Self>> {
        let mut known = KNOWN.lock().unwrap_or_else(PoisonError::into_inner);
        // Held until the new one is listed: two ports that open at once must not each make a set of mbufs.
        known.retain(|mbufs| mbufs.strong_count() > 0);
        let mut found = known.iter().filter_map(Weak::upgrade);
        if let Some(mbufs) = found.find(|mbufs| Arc::ptr_eq(&mbufs.pool, pool)) {
            return Ok(mbufs);
        }
        let mbufs = Self::make(pool)?;
        known.push(Arc::downgrade(&mbufs));
        Ok(mbufs)
    }

    fn make(pool: &Arc<Pool>) -> io::Result<Arc<Self>> {
        let bytes = (pool.count() * STRIDE).next_multiple_of(HUGE);
        let layout = Layout::from_size_align(bytes, HUGE).map_err(io::Error::other)?;
        // SAFETY: the layout is not empty.
        let start = NonNull::new(unsafe { std::alloc::alloc_zeroed(layout) });
        let start = start.ok_or(io::ErrorKind::OutOfMemory)?;
        // SAFETY: advice on memory of our own; a refusal changes nothing.
        unsafe { libc::madvise(start.as_ptr().cast(), bytes, libc::MADV_HUGEPAGE) };
        // SAFETY: there is a first object, and its head is before it.
        let first = unsafe { start.add(OBJECT_HEAD) };
        let (strays, stray_count) = (Mutex::default(), AtomicUsize::new(0));
        let mut mbufs = Arc::new(Self {
            pool: pool.clone(),
            mempool: null_mut(),
            first,
            start,
            layout,
            filling: AtomicBool::new(true),
            strays,
            stray_count,
        });
        // Before `fill`: the mempool keeps the address of the `Mbufs` for its callbacks, so it must not move any more.
        let this = Arc::get_mut(&mut mbufs).expect("nobody else has it yet");
        this.mempool = this.new_mempool()?;
        this.fill()?;
        *this.filling.get_mut() = false;
        Ok(mbufs)
    }

    fn new_mempool(&self) -> io::Result<*mut rte_mempool> {
        let name = fresh_name();
        let count = c_uint::try_from(self.pool.count()).unwrap_or(c_uint::MAX);
        let flags = sys::RTE_MEMPOOL_F_NO_SPREAD | sys::RTE_MEMPOOL_F_NO_IOVA_CONTIG;
        let [size, private] = [size_of::<rte_mbuf>(), size_of::<sys::rte_pktmbuf_pool_private>()]
            .map(|size| c_uint::try_from(size).unwrap_or(c_uint::MAX));
        let made = calls::make(|| {
            // SAFETY: the name is a C string; no cache, as chunks have caches of their own.
            unsafe {
                sys::rte_mempool_create_empty(
                    name.as_ptr(),
                    count,
                    size,
                    0,
                    private,
                    ANY_NODE,
                    flags,
                )
            }
        })?;
        Ok(made.as_ptr())
    }

    /// Adds an mbuf for each chunk.
    fn fill(&self) -> io::Result<()> {
        let chunk_size = u16::try_from(self.pool.chunk_size()).expect("less than 64 KiB");
        let mut private =
            sys::rte_pktmbuf_pool_private { mbuf_data_room_size: chunk_size, ..Default::default() };
        let this = core::ptr::from_ref(self).cast_mut().cast::<c_void>();
        // SAFETY: the mempool is fresh and has no objects; `this` outlives it, as `drop` frees it.
        calls::call(|| unsafe {
            sys::rte_mempool_set_ops_byname(self.mempool, OPS.as_ptr(), this)
        })?;
        // SAFETY: the private area was asked for with this size.
        unsafe { sys::rte_pktmbuf_pool_init(self.mempool, (&raw mut private).cast()) };
        let bytes = self.pool.count() * STRIDE;
        // SAFETY: the memory is ours, of that size, aligned, and outlives the mempool.
        let added = calls::call(|| unsafe {
            let at = self.start.as_ptr().cast();
            sys::rte_mempool_populate_iova(self.mempool, at, NO_IOVA, bytes, None, null_mut())
        })?;
        // `of_chunk` computes addresses from STRIDE, so DPDK must have placed every object there; `start` checks each.
        let mut misplaced = added.cast_unsigned() as usize != self.pool.count();
        // SAFETY: `start` is called for every object of the mempool with the address of `misplaced`.
        unsafe {
            sys::rte_mempool_obj_iter(self.mempool, Some(start), (&raw mut misplaced).cast());
        }
        if misplaced {
            return Err(io::Error::other(
                "mbufs are laid out in another way than DPDK's headers say",
            ));
        }
        Ok(())
    }

    /// The mempool, for receive queues.
    pub const fn mempool(&self) -> *mut rte_mempool {
        self.mempool
    }

    #[inline]
    pub fn of_chunk(&self, chunk: u32) -> *mut rte_mbuf {
        debug_assert!((chunk as usize) < self.pool.count(), "a chunk of this pool");
        self.first.as_ptr().wrapping_add(chunk as usize * STRIDE).cast()
    }

    /// The chunk of an mbuf; `None` for an mbuf of another mempool.
    #[inline]
    #[expect(clippy::cast_possible_truncation, reason = "a pool has at most 2^24 chunks")]
    pub fn chunk_of(&self, mbuf: *mut rte_mbuf) -> Option<u32> {
        // Wraps to a huge number for an address below the first, so that one comparison refuses both sides.
        let at = (mbuf as usize).wrapping_sub(self.first.as_ptr() as usize) / STRIDE;
        (at < self.pool.count()).then_some(at as u32)
    }

    /// Address of a chunk.
    #[inline]
    pub fn bytes_of(&self, chunk: u32) -> *mut u8 {
        let bytes = self.pool.memory().as_ptr().cast::<u8>();
        bytes.wrapping_add(chunk as usize * self.pool.chunk_size())
    }

    /// Runs `call`; the mempool allocates from and frees to `bufs` meanwhile, for calls that DPDK makes in this thread.
    ///
    /// # Panics
    /// When `bufs` is of another pool: its chunks have no mbufs here.
    #[inline]
    pub fn lend<R>(&self, bufs: &mut Bufs, call: impl FnOnce() -> R) -> R {
        assert!(Arc::ptr_eq(bufs.pool(), &self.pool), "one pool for a port's life");
        loan::lend(self, bufs, call)
    }

    /// Frees a handle of a chunk; any thread may call this.
    #[inline]
    fn give_back(&self, chunk: u32, shared: bool) {
        // Without a loan in this thread there is no `Bufs` that it may touch: each belongs to one worker.
        let taken = loan::borrow(self, |bufs| bufs.free(handle(chunk, shared)));
        if taken.is_none() {
            self.strand(chunk, shared);
        }
    }

    /// Keeps a chunk freed by a thread without a loan (DPDK's interrupt thread, for example) until a worker collects
    /// it.
    #[cold]
    fn strand(&self, chunk: u32, shared: bool) {
        if self.filling.load(Ordering::Relaxed) {
            return; // written before other threads could see this
        }
        let mut strays = self.strays.lock().unwrap_or_else(PoisonError::into_inner);
        strays.push(Stray { chunk, shared });
        self.stray_count.store(strays.len(), Ordering::Relaxed); // a hint; the lock orders the rest
    }

    /// Frees to `bufs` the chunks that threads without a loan gave back.
    #[inline]
    pub fn collect(&self, bufs: &mut Bufs) {
        // A hint, read without the lock: a chunk that is missed now is collected by the next call.
        if self.stray_count.load(Ordering::Relaxed) == 0 {
            return;
        }
        let mut strays = self.strays.lock().unwrap_or_else(PoisonError::into_inner);
        for stray in strays.drain(..) {
            bufs.free(handle(stray.chunk, stray.shared));
        }
        self.stray_count.store(0, Ordering::Relaxed); // as above
    }

    /// Makes `carrier` point at the chunk of a shared frame; the chunk's handle comes back when the driver frees the
    /// carrier.
    pub fn carry(&self, carrier: *mut rte_mbuf, chunk: u32) {
        let at = self.bytes_of(chunk);
        let size = u16::try_from(self.pool.chunk_size()).expect("less than 64 KiB");
        let this = core::ptr::from_ref(self).cast_mut().cast();
        // SAFETY: the carrier is fresh and has room for what the shim notes; the chunk stays until
        // its handle is given back; `self` outlives the port and with it the carrier.
        unsafe {
            sys::weft_dpdk_carry(carrier, at.cast(), at as u64, size, Some(uncarried), this);
        }
    }

    /// Maps the chunks for DMA of a device.
    ///
    /// # Errors
    /// The pool is not a mapping, or DPDK refused.
    pub fn map_for(&self, device: *mut sys::rte_device) -> io::Result<()> {
        const PAGE: usize = 4_096;
        let bytes = self.pool.memory();
        let (at, len) = (bytes.as_ptr().cast::<c_void>(), bytes.len());
        if !(at as usize).is_multiple_of(PAGE) || !len.is_multiple_of(PAGE) {
            return Err(io::Error::other("the pool does not lie on pages"));
        }
        let known = calls::call(|| {
            // SAFETY: the pool's memory stays until after `drop`; it may be known from another port.
            let answer = unsafe { sys::rte_extmem_register(at, len, null_mut(), 0, PAGE) };
            let code = calls::errno();
            // Another port has registered the same pool; only the mapping below is per device.
            if answer == 0 || code == libc::EEXIST { 0 } else { -code }
        });
        known?;
        // SAFETY: as above; the device is one that DPDK has.
        calls::call(|| unsafe { sys::rte_dev_dma_map(device, at, at as u64, len) }).map(drop)
    }

    /// Addresses of the chunks, in the process and on the bus.
    pub fn addresses(&self) -> Range<u64> {
        let bytes = self.pool.memory();
        let start = bytes.as_ptr().cast::<u8>() as u64;
        start..start + bytes.len() as u64
    }

    /// Undoes [`Self::map_for`] for this device.
    pub fn unmap_for(&self, device: *mut sys::rte_device) {
        let bytes = self.pool.memory();
        let at = bytes.as_ptr().cast::<c_void>();
        // SAFETY: mapped by `map_for`; the device is stopped.
        unsafe { sys::rte_dev_dma_unmap(device, at, at as u64, bytes.len()) };
    }
}

impl Drop for Mbufs {
    fn drop(&mut self) {
        if !self.mempool.is_null() {
            // SAFETY: ports hold us, so all are closed and no driver has any of the mbufs.
            unsafe { sys::rte_mempool_free(self.mempool) };
        }
        let bytes = self.pool.memory();
        // SAFETY: nothing is mapped for any device any more; unknown memory is refused.
        unsafe { sys::rte_extmem_unregister(bytes.as_ptr().cast(), bytes.len()) };
        // SAFETY: allocated with this layout.
        unsafe { std::alloc::dealloc(self.start.as_ptr(), self.layout) };
    }
}

/// Rebuilds a handle from a chunk's number.
const fn handle(chunk: u32, shared: bool) -> Desc {
    let mut desc = Desc::new(chunk, HEADROOM);
    desc.set(Flag::Shared, shared);
    desc
}

/// The `Mbufs` that a mempool belongs to.
///
/// # Safety
/// `mempool` is one of an [`Mbufs`] that lives.
#[inline]
unsafe fn owner<'a>(mempool: *const rte_mempool) -> &'a Mbufs {
    // SAFETY: by the caller.
    let config = unsafe { (*mempool).pool_config };
    // SAFETY: `fill` has DPDK keep the address there, and the mempool goes before the `Mbufs`.
    unsafe { &*config.cast::<Mbufs>() }
}

unsafe extern "C" fn ops_alloc(_mempool: *mut rte_mempool) -> c_int {
    0
}

unsafe extern "C" fn ops_free(_mempool: *mut rte_mempool) {}

unsafe extern "C" fn count(_mempool: *const rte_mempool) -> c_uint {
    0 // free chunks are not the mempool's
}

/// A driver frees mbufs. Most free them one by one, to a worker whose cache of recently used chunks has room.
unsafe extern "C" fn enqueue(
    mempool: *mut rte_mempool,
    objects: *const *mut c_void,
    count: c_uint,
) -> c_int {
    // SAFETY: DPDK calls us for mempools of ours only.
    let mbufs = unsafe { owner(mempool) };
    if count == 1 {
        // SAFETY: `objects` has one.
        let mbuf = unsafe { *objects };
        if let Some(chunk) = mbufs.chunk_of(mbuf.cast())
            && loan::borrow(mbufs, |bufs| bufs.free_warm(chunk)) == Some(true)
        {
            return 0;
        }
    }
    // SAFETY: the arguments are those of this call, passed on.
    unsafe { enqueue_all(mempool, objects, count) }
}

/// The general case of [`enqueue`]; a function of its own, so that the usual case saves no registers.
#[inline(never)]
unsafe extern "C" fn enqueue_all(
    mempool: *mut rte_mempool,
    objects: *const *mut c_void,
    count: c_uint,
) -> c_int {
    // SAFETY: DPDK calls us for mempools of ours only.
    let mbufs = unsafe { owner(mempool) };
    // SAFETY: `objects` has `count` of them.
    let objects = unsafe { core::slice::from_raw_parts(objects, count as usize) };
    for chunk in objects.iter().filter_map(|mbuf| mbufs.chunk_of(mbuf.cast())) {
        mbufs.give_back(chunk, false);
    }
    0
}

/// A driver allocates `count` mbufs, all or none.
unsafe extern "C" fn dequeue(
    mempool: *mut rte_mempool,
    objects: *mut *mut c_void,
    count: c_uint,
) -> c_int {
    // SAFETY: DPDK calls us for mempools of ours only.
    let mbufs = unsafe { owner(mempool) };
    // SAFETY: `objects` has room for `count` of them; they are only written.
    let objects = unsafe {
        core::slice::from_raw_parts_mut(objects.cast::<MaybeUninit<*mut c_void>>(), count as usize)
    };
    let all = loan::borrow(mbufs, |bufs| fill_with(mbufs, bufs, objects));
    if all == Some(true) { 0 } else { -libc::ENOBUFS }
}

/// Writes the mbuf of a free chunk to each of `objects`; frees all again if there are not enough.
#[inline]
fn fill_with(mbufs: &Mbufs, bufs: &mut Bufs, objects: &mut [MaybeUninit<*mut c_void>]) -> bool {
    for (done, object) in objects.iter_mut().enumerate() {
        let Some(desc) = bufs.alloc() else {
            for object in objects.iter().take(done) {
                // SAFETY: written just before.
                let mbuf: *mut c_void = unsafe { object.assume_init() };
                if let Some(chunk) = mbufs.chunk_of(mbuf.cast()) {
                    bufs.free(handle(chunk, false));
                }
            }
            return false;
        };
        object.write(mbufs.of_chunk(desc.chunk()).cast());
    }
    true
}

/// Initialises an object as the mbuf of its chunk; sets `misplaced` if it is not where it should be.
unsafe extern "C" fn start(
    mempool: *mut rte_mempool,
    misplaced: *mut c_void,
    object: *mut c_void,
    index: c_uint,
) {
    // SAFETY: DPDK calls us for mempools of ours only.
    let mbufs = unsafe { owner(mempool) };
    let mbuf = mbufs.of_chunk(index);
    if mbuf.cast() != object {
        // SAFETY: `fill` gave the address of a bool.
        unsafe { *misplaced.cast::<bool>() = true };
        return;
    }
    let bytes = mbufs.bytes_of(index);
    let fresh = rte_mbuf {
        buf_addr: bytes.cast(),
        buf_iova: bytes as u64,
        buf_len: u16::try_from(mbufs.pool.chunk_size()).unwrap_or(u16::MAX),
        data_off: u16::try_from(HEADROOM).unwrap_or(0),
        refcnt: 1,
        nb_segs: 1,
        port: u16::MAX, // of no device
        pool: mempool,
        ..Default::default()
    };
    // SAFETY: the object is an mbuf's size and ours.
    unsafe { mbuf.write(fresh) };
}

/// Called when the driver frees a carrier.
unsafe extern "C" fn uncarried(at: *mut c_void, mbufs: *mut c_void) {
    // SAFETY: `carry` gave the address of the `Mbufs`, which lives as long as the port.
    let mbufs = unsafe { &*mbufs.cast::<Mbufs>() };
    let base = mbufs.pool.memory().as_ptr().cast::<u8>() as usize;
    // The shim passes the address it was given by `carry`, the chunk's start.
    let chunk = (at as usize - base) / mbufs.pool.chunk_size();
    mbufs.give_back(u32::try_from(chunk).unwrap_or(u32::MAX), true);
}
