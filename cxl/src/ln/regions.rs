//! The address ranges in which a host accepts LN registrations: whole pages of 4 KiB.
//!
//! [`Regions`] is a set of disjoint ranges.
//!
//! Source: PCIe 5.0 section 6.21; docs/spec/wire-formats.md §3.3.

use std::collections::BTreeMap;

use weft_parsers::fabric::Hpa;

use super::Line;

/// Size of a page in bytes: regions are aligned to it, and multiples of it.
pub const GRANULE: u64 = 4_096;

/// Reason why a range cannot be a region.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
pub enum RegionError {
    /// Base or length is no multiple of 4 KiB.
    #[error("region at {base} with {len:#x} bytes: base and length must be multiples of 4 KiB")]
    Unaligned {
        /// First address of the region.
        base: Hpa,
        /// Length in bytes.
        len: u64,
    },
    /// The length is zero, or the end lies beyond 64 bits.
    #[error("region at {base} with {len:#x} bytes is empty or ends beyond 64 bits")]
    Extent {
        /// First address of the region.
        base: Hpa,
        /// Length in bytes.
        len: u64,
    },
    /// The range overlaps a region.
    #[error("region at {base} overlaps the one at {other}")]
    Overlap {
        /// First address of the new region.
        base: Hpa,
        /// First address of the existing one.
        other: Hpa,
    },
}

/// Address ranges in which registrations are accepted.
#[derive(Clone, Debug, Default)]
pub struct Regions(BTreeMap<u64, u64>);

impl Regions {
    /// No registrations are accepted anywhere.
    #[must_use]
    pub const fn new() -> Self {
        Self(BTreeMap::new())
    }

    /// Adds the region of `len` bytes from `base` on.
    ///
    /// # Errors
    /// See [`RegionError`]; nothing is added then.
    pub fn add(&mut self, base: Hpa, len: u64) -> Result<(), RegionError> {
        if !base.0.is_multiple_of(GRANULE) || !len.is_multiple_of(GRANULE) {
            return Err(RegionError::Unaligned { base, len });
        }
        let Some(last) = len.checked_sub(1).and_then(|span| base.0.checked_add(span)) else {
            return Err(RegionError::Extent { base, len });
        };
        // Regions are disjoint, so only the last one that begins at or before `last` can overlap.
        if let Some((&other, _)) =
            self.0.range(..=last).next_back().filter(|(_, end)| **end >= base.0)
        {
            return Err(RegionError::Overlap { base, other: Hpa(other) });
        }
        self.0.insert(base.0, last);
        Ok(())
    }

    /// Whether registrations of `line` are accepted.
    #[must_use]
    pub fn contains(&self, line: Line) -> bool {
        let addr = line.addr().0;
        self.0.range(..=addr).next_back().is_some_and(|(_, last)| *last >= addr)
    }
}
