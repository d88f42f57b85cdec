//! Conversions between CCI messages of dynamic capacity and the device's own types: regions, lists of extents, and the
//! choice of capacity to add or release.
//!
//! Fields of 4907h and 4908h, or of 5604h and 5605h, become a [`Choice`] or a [`Part`]; extents are converted both
//! ways, and regions and totals for the answers of 4902h, 4904h, 5601h and 5603h.
//!
//! Source: docs/spec/wire-formats.md §4.3, §4.7; CXL 3.1 sections 7.6.7.6 and 7.7.13.

use weft_parsers::cci::dcd::{self, AddPolicy, ExtentList, ReleasePolicy};
use weft_parsers::cci::gfd::{DcRegion, DcTotals};
use weft_parsers::cci::{self, List};

use super::capacity::{Choice, Extent, Part, Tag};
use super::code::ReturnCode;
use super::commands::{Page, Totals, count32};
use super::dmp::{Region, UNIT};

/// Converts a return code to its number in messages.
#[must_use]
pub const fn code(code: ReturnCode) -> cci::ReturnCode {
    cci::ReturnCode::from_bits(code.number())
}

/// Converts a count or index of a message.
#[must_use]
pub fn index(number: u32) -> usize {
    usize::try_from(number).unwrap_or(usize::MAX)
}

/// Converts the extents of a request.
#[must_use]
pub fn from_wire(list: List<'_, dcd::Extent>) -> Vec<Extent> {
    let one = |dcd::Extent { start, len, tag, shared_seq }| Extent {
        start,
        len,
        tag,
        sequence: shared_seq,
    };
    list.iter().map(one).collect()
}

/// Converts an extent for a response.
#[must_use]
pub const fn to_wire(extent: &Extent) -> dcd::Extent {
    let Extent { start, len, tag, sequence } = *extent;
    dcd::Extent { start, len, tag, shared_seq: sequence }
}

/// Converts a region for a response: `decode_len` in units of 256 MiB.
#[must_use]
pub const fn region_to_wire(region: &Region) -> DcRegion {
    let Region { id: _, block, sanitize, base, decode_len, len } = *region;
    DcRegion { base, decode_len: decode_len / UNIT, len, block, flags: 0, sanitize }
}

/// Converts totals for a response.
#[must_use]
pub const fn totals_to_wire(totals: &Totals) -> DcTotals {
    let Totals { extents, extents_left, tags, tags_left } = *totals;
    DcTotals { extents, extents_free: extents_left, tags, tags_free: tags_left }
}

/// Extent list of a response, for a page of a longer list.
#[must_use]
pub fn extent_list<'a, T>(
    owner: u16,
    page: &Page<T>,
    extents: &'a [dcd::Extent],
) -> ExtentList<'a> {
    let (start, total) = (count32(page.start), count32(page.total));
    ExtentList { owner, start, total, generation: page.generation, extents: List::of(extents) }
}

/// How a request chooses the capacity to add.
///
/// # Errors
/// Invalid Input: it names extents, and a length that is neither 0 nor their sum.
pub fn choice(
    policy: AddPolicy,
    region: u8,
    len: u64,
    extents: &[Extent],
) -> Result<Choice<'_>, ReturnCode> {
    Ok(match policy {
        AddPolicy::Free => Choice::Free { region, len },
        AddPolicy::Contiguous => Choice::Contiguous { region, len },
        AddPolicy::Prescriptive => {
            is_their_sum(len, extents)?;
            Choice::Prescriptive { region, extents }
        }
        AddPolicy::EnableShared => Choice::EnableShared,
    })
}

/// The capacity that a request releases.
///
/// # Errors
/// As [`choice`].
pub fn part(
    policy: ReleasePolicy,
    tag: Tag,
    len: u64,
    extents: &[Extent],
) -> Result<Part<'_>, ReturnCode> {
    Ok(match policy {
        ReleasePolicy::Tag => Part::Tag { tag, len },
        ReleasePolicy::Prescriptive => {
            is_their_sum(len, extents)?;
            Part::Prescriptive(extents)
        }
    })
}

/// Checks the length of a request that names its extents: 0, or their sum.
///
/// # Errors
/// Invalid Input: any other length.
pub fn is_their_sum(len: u64, extents: &[Extent]) -> Result<(), ReturnCode> {
    let sum = extents.iter().try_fold(0_u64, |sum, extent| sum.checked_add(extent.len));
    if len == 0 || sum == Some(len) { Ok(()) } else { Err(ReturnCode::InvalidInput) }
}
