//! The memory behind the chunks of a packet pool: a mapping, or a box.
//!
//! Shape: so many bytes → where they start; given back when dropped.
//! Units: bytes.
//! Source: mmap(2), madvise(2).

use core::ptr::NonNull;

use super::PoolError;

/// The memory behind the chunks.
pub(super) enum Memory {
    Mapped { base: NonNull<u8>, bytes: usize, huge_pages: bool },
    Owned { base: NonNull<u8>, bytes: usize },
}

impl Memory {
    /// Maps at least `bytes` bytes, in huge pages where the kernel has them free.
    pub(super) fn map(bytes: usize) -> Result<Self, PoolError> {
        let huge = 2 << 20;
        let bytes = bytes.next_multiple_of(huge);
        let attempt = |extra| {
            // SAFETY: a fresh anonymous mapping touches no memory of ours.
            let at = unsafe {
                libc::mmap(
                    core::ptr::null_mut(),
                    bytes,
                    libc::PROT_READ | libc::PROT_WRITE,
                    libc::MAP_PRIVATE | libc::MAP_ANONYMOUS | extra,
                    -1,
                    0,
                )
            };
            if at == libc::MAP_FAILED { None } else { NonNull::new(at.cast::<u8>()) }
        };
        let mut huge_pages = true;
        let base = if let Some(base) = attempt(libc::MAP_HUGETLB) {
            base
        } else {
            huge_pages = false;
            let Some(base) = attempt(0) else {
                return Err(PoolError::Map { bytes, source: std::io::Error::last_os_error() });
            };
            // SAFETY: advice on the mapping just made; a refusal changes nothing.
            unsafe { libc::madvise(base.as_ptr().cast(), bytes, libc::MADV_HUGEPAGE) };
            base
        };
        Ok(Self::Mapped { base, bytes, huge_pages })
    }

    /// `bytes` bytes of ordinary memory.
    pub(super) fn owned(bytes: usize) -> Self {
        let whole = Box::into_raw(vec![0_u8; bytes].into_boxed_slice());
        let Some(base) = NonNull::new(whole.cast::<u8>()) else {
            unreachable!("a box is never null");
        };
        Self::Owned { base, bytes }
    }

    /// The same bytes at the front as `other`, which is not longer.
    pub(super) fn copy_front_of(&mut self, other: &Self) {
        let (Self::Mapped { base: from, bytes: len, .. } | Self::Owned { base: from, bytes: len }) =
            *other;
        let (Self::Mapped { base: to, bytes, .. } | Self::Owned { base: to, bytes }) = *self;
        assert!(len <= bytes, "no more than there is room for");
        // SAFETY: both are ours alone, as long as they say, and two.
        unsafe { to.copy_from_nonoverlapping(from, len) };
    }

    /// Where it starts.
    pub(super) const fn base(&self) -> NonNull<u8> {
        match *self {
            Self::Mapped { base, .. } | Self::Owned { base, .. } => base,
        }
    }
}

impl Drop for Memory {
    fn drop(&mut self) {
        match *self {
            Self::Mapped { base, bytes, .. } => {
                // SAFETY: `base` and `bytes` are what mmap gave, and no `Bufs` outlives the `Pool`.
                unsafe { libc::munmap(base.as_ptr().cast(), bytes) };
            }
            Self::Owned { base, bytes } => {
                let whole = core::ptr::slice_from_raw_parts_mut(base.as_ptr(), bytes);
                // SAFETY: this is the box that `owned` took apart, and no `Bufs` outlives us.
                drop(unsafe { Box::from_raw(whole) });
            }
        }
    }
}
