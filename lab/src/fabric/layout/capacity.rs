//! Memory of a GFD in MiB, from its `[[gfd]]` entry.
//!
//! Source: docs/fabric.md.

use weft_fm::components::media;

use super::super::topology::Gfd;
use super::LayoutError;

/// Default capacity of a GFD.
const CAPACITY_MIB: u32 = 256;

/// Capacity of a GFD: the given one, or else the sum of its partitions.
pub(super) fn capacity_mib(gfd: &Gfd) -> Result<u32, LayoutError> {
    let Some(partitions) = &gfd.partitions else {
        return Ok(gfd.capacity_mib.unwrap_or(CAPACITY_MIB));
    };
    let bad = |why| LayoutError::Partitions { name: gfd.name.clone(), why };
    let total = media::total(partitions).map_err(bad)?;
    let mib = u32::try_from(total >> 20).map_err(|_| bad("they have 4 PiB or more".to_owned()))?;
    match gfd.capacity_mib {
        Some(had) if had < mib => {
            let why = format!("they have {mib} MiB, and capacity_mib is {had}");
            Err(bad(why))
        }
        had => Ok(had.unwrap_or(mib)),
    }
}
