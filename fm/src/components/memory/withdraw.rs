//! Withdrawal of a share that was given only in part: its state is read from the GFDs.
//!
//! [`extents`] finds the capacity of the share's tag; [`rights`] revokes rights and decoders first, [`capacity`]
//! releases it last.
//!
//! No record of the share is used, because a manager that ended half-way has left none. Each step reads what the
//! previous one has left, so that a withdrawal can end half-way, too.
//!
//! Source: docs/spec/wire-formats.md §4.6, §4.7; docs/fm.md "Several managers".

use weft_parsers::cci::dcd::{ExtentList, GetExtents};
use weft_parsers::cci::gfd_access::{Gdt, GdtRange};
use weft_parsers::cci::{Request, Uuid};
use weft_parsers::fabric::Pid;

use super::steps::{Step, run, vector};
use super::{DECODERS, GROUPS_MAX, Host, group_bit};
use crate::cci::{CallError, CciSession, Way};
use crate::model::inventory::{Gfd, Inventory};

/// Extents read from a group's list.
const EXTENTS_MAX: u32 = 64;

/// An extent with the tag, in one of a GFD's groups.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Extent {
    pub group: u16,
    start: u64,
    len: u64,
}

/// The extents with a tag in a GFD.
///
/// # Errors
/// The GFD does not answer.
pub fn extents(fabric: &mut CciSession, gfd: &Gfd, tag: &Uuid) -> Result<Vec<Extent>, CallError> {
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

/// Revokes the rights of hosts to extents, and the decoders that lead to them.
///
/// # Errors
/// The GFD refused, or does not answer.
pub fn rights(
    fabric: &mut CciSession,
    inventory: &Inventory,
    gfd: Pid,
    extents: &[Extent],
    hosts: &[Host],
) -> Result<(), CallError> {
    for extent in extents {
        for rpid in hosts.iter().map(|host| host.pid) {
            // Read first: a vector without the bit needs no command.
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

/// Releases the capacity of extents.
///
/// # Errors
/// The GFD refused, or does not answer.
pub fn capacity(
    fabric: &mut CciSession,
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
