//! Atomics and cells: the real ones, or loom's under `cfg(loom)`.
//!
//! Shape: re-exports, and an [`UnsafeCell`] with loom's `with` and `with_mut`.
//! Units: none.
//! Source: loom's documentation, "Handling loom's `UnsafeCell` API"; style.md C4.

#[cfg(loom)]
pub use loom::cell::UnsafeCell;
#[cfg(loom)]
pub use loom::sync::Arc;
#[cfg(loom)]
pub use loom::sync::atomic::{
    AtomicBool, AtomicU8, AtomicU32, AtomicU64, AtomicUsize, Ordering, fence,
};

#[cfg(not(loom))]
pub use cell::UnsafeCell;
#[cfg(not(loom))]
pub use core::sync::atomic::{
    AtomicBool, AtomicU8, AtomicU32, AtomicU64, AtomicUsize, Ordering, fence,
};
#[cfg(not(loom))]
pub use std::sync::Arc;

#[cfg(not(loom))]
mod cell {
    /// `core::cell::UnsafeCell` with the access methods that loom checks.
    #[derive(Debug)]
    #[repr(transparent)]
    pub struct UnsafeCell<T>(core::cell::UnsafeCell<T>);

    impl<T> UnsafeCell<T> {
        /// A cell that holds `value`.
        pub const fn new(value: T) -> Self {
            Self(core::cell::UnsafeCell::new(value))
        }

        /// Hands a pointer for reading to `f`.
        #[inline]
        pub fn with<R>(&self, f: impl FnOnce(*const T) -> R) -> R {
            f(self.0.get())
        }

        /// Hands a pointer for writing to `f`.
        #[inline]
        pub fn with_mut<R>(&self, f: impl FnOnce(*mut T) -> R) -> R {
            f(self.0.get())
        }
    }
}
