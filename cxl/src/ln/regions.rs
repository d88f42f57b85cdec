//! Where a host takes registrations: whole pages of 4 KiB.
//! [`Regions`] is a set of disjoint ranges, each aligned and at least 4 KiB.
//!
//! Units: bytes.
//! Source: PCIe 5.0 section 6.21; docs/spec/wire-formats.md §3.3.

use std::collections::BTreeMap;

use weft_parsers::fabric::Hpa;

use super::Line;

/// Regions are multiples of this, and aligned to it.
pub const GRANULE: u64 = 4_096;

/// Why a range can be no region.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
pub enum RegionError {
    /// Base or length is no multiple of 4 KiB.
    #[error("region at {base} with {len:#x} bytes: base and length must be multiples of 4 KiB")]
    Unaligned {
        /// First address.
        base: Hpa,
        /// Bytes.
        len: u64,
    },
    /// The length is zero, or the end lies beyond 64 bits.
    #[error("region at {base} with {len:#x} bytes is empty or ends beyond 64 bits")]
    Extent {
        /// First address.
        base: Hpa,
        /// Bytes.
        len: u64,
    },
    /// It overlaps another one.
    #[error("region at {base} overlaps the one at {other}")]
    Overlap {
        /// First address.
        base: Hpa,
        /// First address of the other.
        other: Hpa,
    },
}

/// Address ranges that take registrations.
#[derive(Clone, Debug, Default)]
pub struct Regions(BTreeMap<u64, u64>);

impl Regions {
    /// No address takes registrations.
    #[must_use]
    pub const fn new() -> Self {
        Self(BTreeMap::new())
    }

    /// Adds `len` bytes from `base` on.
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
        if let Some((&other, _)) =
            self.0.range(..=last).next_back().filter(|(_, end)| **end >= base.0)
        {
            return Err(RegionError::Overlap { base, other: Hpa(other) });
        }
        self.0.insert(base.0, last);
        Ok(())
    }

    /// Whether `line` can be registered.
    #[must_use]
    pub fn contains(&self, line: Line) -> bool {
        let addr = line.addr().0;
        self.0.range(..=addr).next_back().is_some_and(|(_, last)| *last >= addr)
    }
}
