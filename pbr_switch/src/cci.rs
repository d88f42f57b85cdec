//! Return codes and ranges that commands of all parts of a switch have in common.

use weft_cxl::cci::{Done, Outcome};
use weft_dataplane::pbr::TableError;
use weft_parsers::cci::ReturnCode;

pub const DONE: Done = Ok(Outcome::Done);

/// Return code for an object that does not exist.
pub const NONE_SUCH: ReturnCode = ReturnCode::InvalidInput;

/// A table refused a change: Invalid Input.
pub fn invalid<T>(result: Result<T, TableError>) -> Result<T, ReturnCode> {
    result.map_err(|_| ReturnCode::InvalidInput)
}

/// The part of a list with `len` entries that a Get command answers: from `start` on, as many as there are.
///
/// # Errors
/// Invalid Input: `start` is beyond the end.
pub fn listed(
    start: usize,
    count: usize,
    len: usize,
) -> Result<core::ops::Range<usize>, ReturnCode> {
    if start > len {
        return Err(NONE_SUCH);
    }
    Ok(start..start.saturating_add(count).min(len))
}

/// The part of a table with `len` entries that a Get command answers: exactly the requested range.
///
/// # Errors
/// Invalid Input: the range goes beyond the end.
pub fn whole(
    start: usize,
    count: usize,
    len: usize,
) -> Result<core::ops::Range<usize>, ReturnCode> {
    match start.checked_add(count) {
        Some(end) if end <= len => Ok(start..end),
        _ => Err(NONE_SUCH),
    }
}

/// Bit mask of 256 bits with a bit for each of `numbers`; number 0 is bit 0 of byte 0.
pub fn mask(numbers: impl Iterator<Item = u8>) -> [u8; 32] {
    let mut mask = [0; 32];
    for number in numbers {
        if let Some(byte) = mask.get_mut(usize::from(number / 8)) {
            *byte |= 1 << (number % 8);
        }
    }
    mask
}
