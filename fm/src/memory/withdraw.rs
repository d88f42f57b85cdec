//! Taking back memory of which nobody knows how much was given.
//!
//! The tag of a share, hosts -> what GFDs have of it is read; [`rights`] and decoders go first, [`capacity`] last.
//!
//! Source: docs/spec/wire-formats.md §4.6, §4.7; docs/fm.md "Several managers".
//!
//! Nothing is taken from what is known of the share: a manager that ended half-way has not told. Each step finds what the one
//! before has left, so that taking back can end half-way, too.

use weft_parsers::cci::dcd::{ExtentList, GetExtents};
use weft_parsers::cci::gfd_access::{Gdt, GdtRange};
use weft_parsers::cci::{Request, Uuid};
use weft_parsers::fabric::Pid;

use super::steps::{Step, run, vector};
use super::{DECODERS, GROUPS_MAX, Host, group_bit};
use crate::cci::{CallError, Fabric, Way};
use crate::inventory::{Gfd, Inventory};

/// Extents of a group that are read.
const EXTENTS_MAX: u32 = 64;

/// An extent of a GFD's group that has the tag: where, and how long.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Extent {
    /// The group.
    pub group: u16,
    start: u64,
    len: u64,
}

/// What a GFD has of a tag.
///
/// # Errors
/// It does not answer.
pub fn extents(fabric: &mut Fabric, gfd: &Gfd, tag: &Uuid) -> Result<Vec<Extent>, CallError> {
    let mut found = Vec::new();
    for group in 0..gfd.groups.min(GROUPS_MAX) {
        let range = GetExtents { owner: group, count: EXTENTS_MAX, start: 0 };
        let answer = fabric.call(Way::Pid(gfd.pid), &Request::GetGfdExtents(range))?;
        let extents = answer.read::<ExtentList<'_>>()?.extents;
        let own = extents.iter().filter(|extent| extent.tag == *tag);
        found.extend(own.map(|one| Extent { group, start: one.start.0, len: one.len }));
    }
    Ok(found)
}

/// Takes from hosts the rights to extents and the decoders for them.
///
/// # Errors
/// The GFD does not answer, or did not.
pub fn rights(
    fabric: &mut Fabric,
    inventory: &Inventory,
    gfd: Pid,
    extents: &[Extent],
    hosts: &[Host],
) -> Result<(), CallError> {
    for extent in extents {
        for rpid in hosts.iter().map(|host| host.pid) {
            if vector(fabric, gfd, rpid)? & group_bit(extent.group) != 0 {
                run(fabric, inventory, Step::NoRight { gfd, rpid, group: extent.group })?;
            }
            let range = GdtRange { rpid, count: DECODERS, start: 0 };
            let answer = fabric.call(Way::Pid(gfd), &Request::GetGdt(range))?;
            let entries = answer.read::<Gdt<'_>>()?.entries;
            let own = entries.iter().filter(|entry| {
                entry.decoder.is_some_and(|d| (d.dpa.0, d.dpa_len) == (extent.start, extent.len))
            });
            for index in own.map(|entry| entry.index).collect::<Vec<_>>() {
                run(fabric, inventory, Step::NoDecoder { gfd, rpid, index })?;
            }
        }
    }
    Ok(())
}

/// Gives the capacity of extents back.
///
/// # Errors
/// The GFD does not answer, or did not.
pub fn capacity(
    fabric: &mut Fabric,
    inventory: &Inventory,
    gfd: Pid,
    extents: &[Extent],
    tag: Uuid,
) -> Result<(), CallError> {
    for extent in extents {
        run(fabric, inventory, Step::NoCapacity { gfd, group: extent.group, tag, sanitize: true })?;
    }
    Ok(())
}
