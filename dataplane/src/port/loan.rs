//! Loans: callbacks that a driver makes during a call get access to buffers of that call's caller.
//!
//! [`lend`] runs a call, and [`borrow`] in the same thread with the same key gets the lent buffers meanwhile. Nothing
//! else can reach them, and the caller has them back when the call returns or panics.
//!
//! Source: the Rust reference, "Behavior considered undefined" (aliasing); DPDK calls a mempool's functions from within
//! its bursts.

use core::cell::Cell;
use core::ptr::NonNull;

use crate::pool::Bufs;

/// The owner whose callbacks have access, and the buffers that they may use.
type CallbackAccess = (*const (), NonNull<Bufs>);

thread_local! {
    /// Buffers lent to callbacks of this thread; `None` while a callback uses them.
    static ACCESS: Cell<Option<CallbackAccess>> = const { Cell::new(None) };
}

/// Restores the previous loan, also when a call panics. It is never handed out, so it cannot be leaked.
struct Restore(Option<CallbackAccess>);

impl Drop for Restore {
    #[inline]
    fn drop(&mut self) {
        ACCESS.set(self.0);
    }
}

/// Lends `bufs` to callbacks of `owner` that `call` makes in this thread.
#[inline]
pub(super) fn lend<O, R>(owner: &O, bufs: &mut Bufs, call: impl FnOnce() -> R) -> R {
    let key = core::ptr::from_ref(owner).cast::<()>();
    // The pointer comes from `bufs`, which stays where it is and is not used until `call` is over.
    let _restore = Restore(ACCESS.replace(Some((key, NonNull::from(bufs)))));
    call()
}

/// Gives the buffers lent to callbacks of `owner` to `take`; `None` if none are lent, or another callback is using
/// them.
#[inline]
pub(super) fn borrow<O, R>(owner: &O, take: impl FnOnce(&mut Bufs) -> R) -> Option<R> {
    let (key, mut bufs) = ACCESS.get().filter(|(of, _)| core::ptr::addr_eq(*of, owner))?;
    // Taken out while `take` runs: a callback within a callback finds nothing, instead of a second `&mut`.
    let _restore = Restore(ACCESS.replace(None).map(|_| (key, bufs)));
    // SAFETY: `lend` put the pointer here and is still in its call, as it removes the pointer before it returns, also
    // by a panic. It holds the only reference and does not use it meanwhile. No second one can be made from here, as
    // the pointer is not in `ACCESS` until `take` has returned.
    Some(take(unsafe { bufs.as_mut() }))
}

#[cfg(test)]
mod tests {
    use core::ffi::c_void;
    use std::panic::{AssertUnwindSafe, catch_unwind};
    use std::sync::Arc;

    use super::*;
    use crate::desc::Desc;
    use crate::pool::Pool;

    /// A device whose driver takes chunks from and gives them to a mempool by functions in C, as DPDK's do.
    struct Device {
        mempool: *const Mempool,
        held: Vec<u32>,
    }

    /// Argument of the functions: a mempool as a driver has it.
    struct Mempool {
        take: unsafe extern "C" fn(*const c_void, *mut u32) -> i32,
        give: unsafe extern "C" fn(*const c_void, u32) -> i32,
        nested: bool,
    }

    unsafe extern "C" fn take(mempool: *const c_void, chunk: *mut u32) -> i32 {
        // SAFETY: the device has the address of a mempool that lives.
        let mempool = unsafe { &*mempool.cast::<Mempool>() };
        let got = borrow(mempool, |bufs| {
            // A callback within a callback finds nothing, instead of a second reference.
            assert!(!mempool.nested || borrow(mempool, |_| ()).is_none());
            bufs.alloc()
        });
        let Some(Some(desc)) = got else { return -1 };
        // SAFETY: the device has room for it.
        unsafe { chunk.write(desc.chunk()) };
        0
    }

    unsafe extern "C" fn give(mempool: *const c_void, chunk: u32) -> i32 {
        // SAFETY: as above.
        let mempool = unsafe { &*mempool.cast::<Mempool>() };
        let done = borrow(mempool, |bufs| bufs.free(Desc::new(chunk, crate::pool::HEADROOM)));
        done.map_or(-1, |_| 0)
    }

    impl Device {
        /// Takes up to `count` chunks; how many it got.
        fn fill(&mut self, count: usize) -> usize {
            let mut got = 0;
            for _ in 0..count {
                let mut chunk = 0;
                // SAFETY: the mempool lives as long as the device.
                let function = unsafe { (*self.mempool).take };
                // SAFETY: as above, and there is room for a chunk.
                if unsafe { function(self.mempool.cast(), &raw mut chunk) } == 0 {
                    self.held.push(chunk);
                    got += 1;
                }
            }
            got
        }

        /// Gives everything back; how much was taken.
        fn empty(&mut self) -> usize {
            let mut done = 0;
            for chunk in core::mem::take(&mut self.held) {
                // SAFETY: the mempool lives as long as the device.
                let function = unsafe { (*self.mempool).give };
                // SAFETY: as above.
                done += usize::from(unsafe { function(self.mempool.cast(), chunk) } == 0);
            }
            done
        }
    }

    fn bufs() -> Bufs {
        Bufs::new(Pool::in_memory(16, 256).unwrap(), 4, 0)
    }

    const fn mempool(nested: bool) -> Mempool {
        Mempool { take, give, nested }
    }

    #[test]
    fn a_device_reaches_what_is_lent_for_the_call_only() {
        let (mempool, mut bufs) = (mempool(true), bufs());
        let mut device = Device { mempool: &raw const mempool, held: Vec::new() };
        assert_eq!(device.fill(1), 0, "nothing is lent");
        for _ in 0..3 {
            // The lender moves about between calls, as a worker's handle may.
            let mut own = bufs;
            assert_eq!(lend(&mempool, &mut own, || device.fill(5)), 5);
            let kept = own.alloc().unwrap();
            assert_eq!(lend(&mempool, &mut own, || device.empty()), 5);
            assert_eq!(device.fill(1), 0, "the call is over");
            own.free(kept);
            bufs = own;
        }
        let used = bufs.used();
        assert_eq!(used.get(), 0);
    }

    #[test]
    fn loans_nest_and_end_with_a_panic() {
        let (inner, outer) = (mempool(false), mempool(false));
        let (mut one, mut other) = (bufs(), bufs());
        let mut devices = [&inner, &outer]
            .map(|mempool| Device { mempool: core::ptr::from_ref(mempool), held: Vec::new() });
        lend(&outer, &mut other, || {
            assert_eq!(devices[1].fill(1), 1);
            lend(&inner, &mut one, || {
                assert_eq!((devices[0].fill(1), devices[1].fill(1)), (1, 0), "another's");
                assert_eq!(devices[0].empty(), 1);
            });
            assert_eq!((devices[0].fill(1), devices[1].empty()), (0, 1), "as before");
        });
        let ended = catch_unwind(AssertUnwindSafe(|| lend(&inner, &mut one, || panic!("a test"))));
        assert!(ended.is_err());
        assert_eq!(devices[0].fill(1), 0, "it is not lent any more");
        assert_eq!([one.used().get(), other.used().get()], [0, 0]);
        let shared = Arc::clone(one.pool());
        assert!(Arc::ptr_eq(one.pool(), &shared));
    }
}
