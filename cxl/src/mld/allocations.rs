//! Allocation of memory to the logical devices of an MLD, in granules of 256 MiB. [`Allocations::set`] changes a run of
//! LDs, all or none; each LD's memory is behind its BAR 0.
//!
//! An LD whose memory is enabled (its host uses it) loses nothing: [`ReturnCode::Busy`]. Memory taken from an LD is
//! erased, so that the next LD does not find its contents.
//!
//! Source: CXL 3.1 sections 7.6.7.4.1 to 7.6.7.4.3; docs/spec/wire-formats.md §4.3a.

use weft_parsers::cci::ReturnCode;
use weft_parsers::cci::ld::{Granularity, LdAllocation};

use crate::cxl_device::CxlDevice;
use crate::pci::regs;

/// Bytes of a granule.
pub const GRANULE: u64 = Granularity::Mib256.bytes();
/// BAR of a logical device that its memory is behind.
pub const MEMORY_BAR: u8 = 0;

/// Number of granules of each logical device.
pub(super) struct Allocations {
    capacity: u64,
    granules: Vec<u64>,
}

impl Allocations {
    /// The same number for each; the remainder is unallocated.
    pub fn even(lds: usize, capacity: u64) -> Option<Self> {
        if !capacity.is_multiple_of(GRANULE) || capacity > 1 << 47 {
            return None;
        }
        let each = (capacity / GRANULE).checked_div(u64::try_from(lds).ok()?)?;
        Some(Self { capacity, granules: vec![each; lds] })
    }

    /// Bytes that can be allocated in all.
    pub const fn capacity(&self) -> u64 {
        self.capacity
    }

    /// Number of logical devices.
    pub fn lds(&self) -> u8 {
        u8::try_from(self.granules.len()).unwrap_or(u8::MAX)
    }

    /// Bytes allocated to a logical device.
    pub fn bytes(&self, ld: usize) -> u64 {
        self.granules.get(ld).map_or(0, |granules| granules * GRANULE)
    }

    /// The allocations of at most `limit` logical devices from `start` on.
    ///
    /// # Errors
    /// There is no LD `start`.
    pub fn list(&self, start: u8, limit: u8) -> Result<Vec<LdAllocation>, ReturnCode> {
        let rest = self.granules.get(usize::from(start)..).filter(|rest| !rest.is_empty());
        let rest = rest.ok_or(ReturnCode::InvalidInput)?;
        let list = rest.iter().take(usize::from(limit));
        Ok(list.map(|&range1| LdAllocation { range1, range2: 0 }).collect())
    }

    /// Sets the allocations from `start` on, all or none. The caller then applies them to the memory of `lds`.
    ///
    /// # Errors
    /// Invalid Input: an LD that does not exist, a second range, or more memory than there is. Busy: an LD that would
    /// lose memory has it enabled.
    pub fn set<L: AsMut<CxlDevice>>(
        &mut self,
        start: u8,
        list: impl Iterator<Item = LdAllocation>,
        lds: &mut [L],
    ) -> Result<(), ReturnCode> {
        let mut new = self.granules.clone();
        for (at, allocation) in list.enumerate() {
            let place = new.get_mut(usize::from(start) + at).ok_or(ReturnCode::InvalidInput)?;
            // LDs of weft have one range of memory.
            if allocation.range2 != 0 {
                return Err(ReturnCode::InvalidInput);
            }
            *place = allocation.range1;
        }
        let sum = new.iter().try_fold(0_u64, |sum, granules| sum.checked_add(*granules));
        if sum.is_none_or(|sum| sum > self.capacity / GRANULE) {
            return Err(ReturnCode::InvalidInput);
        }
        // Only a loss is refused: an LD in use may get more, at the end of its range.
        let loses = self.granules.iter().zip(&new).map(|(old, new)| old > new);
        if loses.zip(&mut *lds).any(|(loses, ld)| loses && is_on(ld.as_mut())) {
            return Err(ReturnCode::Busy);
        }
        self.granules = new;
        Ok(())
    }
}

/// Whether the host of a logical device has set Memory Space Enable.
pub(super) fn is_on(ld: &CxlDevice) -> bool {
    ld.function(0)
        .is_ok_and(|function| function.space().get16(regs::COMMAND) & regs::command::MEM != 0)
}
