//! Memory of a packet pool's chunks: a mapping, or a box; freed on drop.
//!
//! Source: mmap(2), madvise(2).

use core::ptr::NonNull;

use weft_base::memory::{self, map_zeros};

use super::{Pool, PoolError};

/// Size and alignment of a huge page.
const HUGE: usize = 2 << 20;
/// Low memory begins above the reach of 32-bit pointers: a program that is not position-independent lies there.
const LOW_START: usize = 1 << 32;
/// ...and ends well below 2^39. IOMMUs of client chipsets, and qemu's by default, accept bus addresses of 39 bits.
const LOW_END: usize = 1 << 38;
/// Distance between the addresses that are tried; a multiple of every size of huge pages.
const LOW_STEP: usize = 1 << 30;

/// Where a mapping is placed in the address space.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Place {
    /// Where the kernel chooses: on x86-64 just below 2^47.
    Anywhere,
    /// Below [`LOW_END`] if there is room, for devices that use the same addresses on the bus.
    Low,
}

impl Place {
    /// Addresses to try for `bytes` bytes before the kernel may choose. From the top down, because DPDK reserves its
    /// own memory from `LOW_START` upwards, and later than the pool.
    fn addresses(self, bytes: usize) -> impl Iterator<Item = usize> {
        let room = if self == Self::Low { (LOW_END - LOW_START).checked_sub(bytes) } else { None };
        let places = room.map_or(0, |room| room / LOW_STEP + 1);
        let highest = LOW_START + room.unwrap_or(0) / LOW_STEP * LOW_STEP;
        (0..places).map(move |place| highest - place * LOW_STEP)
    }
}

/// The memory of a pool.
pub(super) enum Memory {
    Mapped { base: NonNull<u8>, bytes: usize, huge_pages: bool },
    Owned { base: NonNull<u8>, bytes: usize },
}

impl Memory {
    /// Maps at least `bytes` bytes, in huge pages if the kernel has enough free ones.
    pub(super) fn map(bytes: usize, place: Place) -> Result<Self, PoolError> {
        let bytes = bytes.next_multiple_of(HUGE);
        if let Ok(base) = map_pages(bytes, place, libc::MAP_HUGETLB) {
            return Ok(Self::Mapped { base, bytes, huge_pages: true });
        }
        let base = map_pages(bytes, place, 0).map_err(|source| PoolError::Map { bytes, source })?;
        // SAFETY: advice on the mapping just made; a refusal changes nothing.
        unsafe { libc::madvise(base.as_ptr().cast(), bytes, libc::MADV_HUGEPAGE) };
        Ok(Self::Mapped { base, bytes, huge_pages: false })
    }

    /// Allocates `bytes` bytes of ordinary memory.
    pub(super) fn owned(bytes: usize) -> Self {
        let whole = Box::into_raw(vec![0_u8; bytes].into_boxed_slice());
        let Some(base) = NonNull::new(whole.cast::<u8>()) else {
            unreachable!("a box is never null");
        };
        Self::Owned { base, bytes }
    }

    /// Copies all bytes of `other`, which is not longer, to the front of this memory.
    pub(super) fn copy_front_of(&mut self, other: &Self) {
        let (Self::Mapped { base: from, bytes: len, .. } | Self::Owned { base: from, bytes: len }) =
            *other;
        let (Self::Mapped { base: to, bytes, .. } | Self::Owned { base: to, bytes }) = *self;
        assert!(len <= bytes, "no more than there is room for");
        // SAFETY: two different allocations of these lengths, which only `self` and `other` reach.
        unsafe { to.copy_from_nonoverlapping(from, len) };
    }

    pub(super) const fn base(&self) -> NonNull<u8> {
        match *self {
            Self::Mapped { base, .. } | Self::Owned { base, .. } => base,
        }
    }
}

impl Drop for Memory {
    fn drop(&mut self) {
        match *self {
            Self::Mapped { base, bytes, .. } => unmap(base, bytes),
            Self::Owned { base, bytes } => {
                let whole = core::ptr::slice_from_raw_parts_mut(base.as_ptr(), bytes);
                // SAFETY: this is the box that `owned` took apart, and no `Bufs` outlives us.
                drop(unsafe { Box::from_raw(whole) });
            }
        }
    }
}

/// Maps `bytes` bytes at the first free address of `place`, else anywhere.
fn map_pages(bytes: usize, place: Place, flags: libc::c_int) -> std::io::Result<NonNull<u8>> {
    for address in place.addresses(bytes) {
        match map_zeros(address, bytes, flags | libc::MAP_FIXED_NOREPLACE) {
            Ok(base) if base.as_ptr() as usize == address => return Ok(base),
            // Kernels before 4.17 do not know the flag and treat the address as a hint.
            Ok(base) => unmap(base, bytes),
            Err(error) if error.raw_os_error() == Some(libc::EEXIST) => {}
            // No memory, no huge pages: no other address helps.
            Err(_) => break,
        }
    }
    map_zeros(0, bytes, flags)
}

/// Unmaps a mapping.
fn unmap(base: NonNull<u8>, bytes: usize) {
    // SAFETY: `base` and `bytes` are what mmap gave, and no `Bufs` outlives the `Pool`.
    unsafe { memory::unmap(base, bytes) };
}

impl Pool {
    /// Start of the chunks, which lie one after the other on whole pages; `None` for a pool in ordinary memory, which
    /// cannot be a UMEM.
    pub(crate) const fn mapping(&self) -> Option<NonNull<u8>> {
        match self.memory {
            Memory::Mapped { base, .. } => Some(base),
            Memory::Owned { .. } => None,
        }
    }

    /// Whether the pages are huge ones (2 MiB), so that most chunks are physically contiguous.
    pub(crate) const fn has_huge_pages(&self) -> bool {
        matches!(self.memory, Memory::Mapped { huge_pages: true, .. })
    }

    /// All chunks, one after the other, and the rest of the mapping: for a port whose device accesses them by itself,
    /// given a descriptor's chunk.
    #[must_use]
    pub const fn memory(&self) -> NonNull<[u8]> {
        let (Memory::Mapped { bytes, .. } | Memory::Owned { bytes, .. }) = self.memory;
        NonNull::slice_from_raw_parts(self.base, bytes)
    }
}

#[cfg(all(test, not(miri)))]
mod tests {
    use std::sync::{Mutex, PoisonError};

    use super::*;

    /// One test at a time: one fills all low places.
    static PLACING: Mutex<()> = Mutex::new(());

    fn start_of(memory: &Memory) -> usize {
        memory.base().as_ptr() as usize
    }

    #[test]
    fn places_are_low_aligned_and_not_too_many() {
        let room = LOW_END - LOW_START;
        #[rustfmt::skip] // columns: name, place, bytes, how many, first, last
        let cases = [
            ("anywhere",       Place::Anywhere, HUGE,            0,   None,                       None),
            ("a huge page",    Place::Low,      HUGE,            252, Some(LOW_END - LOW_STEP),   Some(LOW_START)),
            ("one step",       Place::Low,      LOW_STEP,        252, Some(LOW_END - LOW_STEP),   Some(LOW_START)),
            ("a little more",  Place::Low,      LOW_STEP + HUGE, 251, Some(LOW_END - 2 * LOW_STEP), Some(LOW_START)),
            ("all there is",   Place::Low,      room,            1,   Some(LOW_START),            Some(LOW_START)),
            ("more than that", Place::Low,      room + HUGE,     0,   None,                       None),
            ("far more",       Place::Low,      usize::MAX,      0,   None,                       None),
        ];
        for (name, place, bytes, count, first, last) in cases {
            let all: Vec<usize> = place.addresses(bytes).collect();
            assert_eq!((all.len(), all.first().copied()), (count, first), "{name}");
            assert_eq!(all.last().copied(), last, "{name}");
            assert!(
                all.iter().all(|at| at.is_multiple_of(LOW_STEP) && at + bytes <= LOW_END),
                "{name}"
            );
        }
    }

    #[test]
    fn low_mappings_lie_below_each_other_and_are_not_replaced() {
        let _turn = PLACING.lock().unwrap_or_else(PoisonError::into_inner);
        let bytes = 2 * HUGE;
        let first = Memory::map(bytes, Place::Low).unwrap();
        // SAFETY: the mapping has `bytes` bytes, and they are ours.
        unsafe { first.base().as_ptr().write_bytes(0xA5, bytes) };
        let second = Memory::map(bytes, Place::Low).unwrap();
        // SAFETY: as above.
        unsafe { second.base().as_ptr().write_bytes(0x5A, bytes) };
        for memory in [&first, &second] {
            let start = start_of(memory);
            assert!((LOW_START..=LOW_END - bytes).contains(&start), "{start:#x}");
        }
        assert!(start_of(&second) + bytes <= start_of(&first), "the first place is occupied");
        // SAFETY: as above; nobody writes now.
        let kept = unsafe { core::slice::from_raw_parts(first.base().as_ptr(), bytes) };
        assert!(kept.iter().all(|&byte| byte == 0xA5));
        let freed = start_of(&first);
        drop(first);
        let third = Memory::map(bytes, Place::Low).unwrap();
        assert_eq!(start_of(&third), freed, "and free again once it is given back");
    }

    /// Addresses of a process are random, and libraries may have taken any of them before us.
    #[test]
    fn a_mapping_lies_elsewhere_where_all_low_places_are_occupied() {
        let _turn = PLACING.lock().unwrap_or_else(PoisonError::into_inner);
        let flags = libc::MAP_FIXED_NOREPLACE | libc::MAP_NORESERVE;
        // An address that is refused is occupied already.
        let taken: Vec<NonNull<u8>> = Place::Low
            .addresses(HUGE)
            .filter_map(|address| map_zeros(address, HUGE, flags).ok())
            .collect();
        assert!(!taken.is_empty());
        let memory = Memory::map(HUGE, Place::Low).unwrap();
        assert!(!Place::Low.addresses(HUGE).any(|address| address == start_of(&memory)));
        for base in taken {
            unmap(base, HUGE);
        }
        let memory = Memory::map(HUGE, Place::Low).unwrap();
        assert!(start_of(&memory) + HUGE <= LOW_END);
    }

    #[test]
    fn more_than_there_is_is_refused_at_every_place() {
        for place in [Place::Anywhere, Place::Low] {
            let refused = Memory::map(1 << 47, place).err();
            assert!(matches!(refused, Some(PoolError::Map { .. })), "{place:?}");
        }
    }
}
