//! Steps that give and take memory, each with the step that undoes it.
//!
//! [`run`] turns a [`Step`] into commands and checks them by reading back. [`UndoLog`] undoes steps from the last to
//! the first.
//!
//! Source: docs/spec/wire-formats.md §4.6 (5902h), §4.7 (4904h, 4907h, 4908h, 490Ch, 490Dh, 4913h, 4914h).

use std::fmt;

use weft_parsers::cci::dcd::{
    AddPolicy, Extent, ExtentList, GetExtents, ReleaseFlags, ReleasePolicy,
};
use weft_parsers::cci::gae::{AccessOp, ConfigureAccess};
use weft_parsers::cci::gfd::{DcAdd, DcRelease};
use weft_parsers::cci::gfd_access::{
    Gdt, GdtDecoder, GdtEntry, GdtRange, SAT_NOTIFY, SatEntries, SatRange, SatUpdate, SetGdt,
    SetSat,
};
use weft_parsers::cci::pbr::PathCost;
use weft_parsers::cci::tables::{PidOp, VcsVectorRange, Vector, VectorRange};
use weft_parsers::cci::{List, Opcode, Request, Uuid};
use weft_parsers::fabric::{Dpa, Hpa, Interleave, Pid};

use super::{GROUPS_MAX, Host, MemoryError};
use crate::cci::{CallError, CciSession, Way};
use crate::components::media::{self, Media, Region};
use crate::model::inventory::{DiscoveredSwitch, Inventory};

/// Extents read from a list: a contiguous add makes one.
const EXTENTS_MAX: u32 = 64;
/// Attempts to undo a step.
const UNDO_TRIES: u32 = 4;

/// Bit of a group in an access vector.
pub(crate) const fn group_bit(group: u16) -> u32 {
    if group < GROUPS_MAX { 1 << group } else { 0 }
}

/// Group number that stands for the Notify bit in steps that set a right.
pub(super) const NOTIFY: u16 = 31;

/// Bit of a group, or of [`NOTIFY`], in an access vector.
const fn right_bit(group: u16) -> u32 {
    if group == NOTIFY { SAT_NOTIFY } else { group_bit(group) }
}

const _: () = assert!(group_bit(30) != SAT_NOTIFY && group_bit(31) == 0);

/// Where in a GFD capacity is to be.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Place {
    /// In the first region with room, of that kind of memory if one is named.
    Free(Option<Media>),
    /// At the same address as before, or else in the same region.
    Again(u64),
}

/// A change at a GFD or an edge.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Step {
    Capacity {
        gfd: Pid,
        group: u16,
        len: u64,
        tag: Uuid,
        place: Place,
    },
    /// With `sanitize`, the content is erased.
    NoCapacity {
        gfd: Pid,
        group: u16,
        tag: Uuid,
        sanitize: bool,
    },
    Decoder {
        gfd: Pid,
        rpid: Pid,
        index: u8,
        hpa: Hpa,
        dpa: u64,
        len: u64,
        interleave: Interleave,
        way: u8,
    },
    NoDecoder {
        gfd: Pid,
        rpid: Pid,
        index: u8,
    },
    Edge {
        host: Host,
        gfd: Pid,
    },
    NoEdge {
        host: Host,
        gfd: Pid,
    },
    Right {
        gfd: Pid,
        rpid: Pid,
        group: u16,
    },
    NoRight {
        gfd: Pid,
        rpid: Pid,
        group: u16,
    },
    /// Restores an earlier value of a decoder.
    Restore {
        gfd: Pid,
        rpid: Pid,
        entry: GdtEntry,
    },
}

impl fmt::Display for Step {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Capacity { gfd, group, .. } => write!(f, "capacity of {gfd} to group {group}"),
            Self::NoCapacity { gfd, group, .. } => {
                write!(f, "capacity of {gfd} from group {group}")
            }
            Self::Decoder { gfd, rpid, index, .. } => {
                write!(f, "decoder {index} of {rpid} at {gfd} set")
            }
            Self::NoDecoder { gfd, rpid, index } => {
                write!(f, "decoder {index} of {rpid} at {gfd} cleared")
            }
            Self::Restore { gfd, rpid, entry } => {
                write!(f, "decoder {} of {rpid} at {gfd} restored", entry.index)
            }
            Self::Edge { host, gfd } => {
                write!(f, "access to {gfd} enabled at the edge of {}", host.pid)
            }
            Self::NoEdge { host, gfd } => {
                write!(f, "access to {gfd} disabled at the edge of {}", host.pid)
            }
            Self::Right { gfd, rpid, group: NOTIFY } => {
                write!(f, "notifications of {gfd} to {rpid}")
            }
            Self::NoRight { gfd, rpid, group: NOTIFY } => {
                write!(f, "no notifications of {gfd} to {rpid}")
            }
            Self::Right { gfd, rpid, group } => {
                write!(f, "access of {rpid} to group {group} of {gfd}")
            }
            Self::NoRight { gfd, rpid, group } => {
                write!(f, "no access of {rpid} to group {group} of {gfd}")
            }
        }
    }
}

/// Steps made, each with the step that undoes it, if there is one.
#[derive(Debug, Default)]
pub(super) struct UndoLog(Vec<(Step, Option<Step>)>);

impl UndoLog {
    /// Makes a step; if it fails, undoes it and all before it.
    ///
    /// Returns the address of capacity that was added, else 0.
    pub fn take(
        &mut self,
        fabric: &mut CciSession,
        inventory: &Inventory,
        step: Step,
    ) -> Result<u64, MemoryError> {
        match undoes(fabric, step).and_then(|undo| {
            // From here on the step may be in force, whatever the answer says.
            self.0.push((step, undo));
            run(fabric, inventory, step)
        }) {
            Ok(value) => Ok(value),
            Err(source) => Err(self.undo(fabric, inventory, step, source)),
        }
    }

    fn undo(
        &mut self,
        fabric: &mut CciSession,
        inventory: &Inventory,
        failed: Step,
        source: CallError,
    ) -> MemoryError {
        let (mut undone, mut left) = (Vec::new(), Vec::new());
        while let Some((step, undo)) = self.0.pop() {
            let Some(undo) = undo else {
                left.push(format!("{step} cannot be undone"));
                continue;
            };
            let mut result = Ok(0);
            for _ in 0..UNDO_TRIES {
                result = run(fabric, inventory, undo);
                if result.is_ok() {
                    break;
                }
            }
            match result {
                Ok(_) => undone.push(step.to_string()),
                Err(error) => left.push(format!("{step} ({})", error.with_causes())),
            }
        }
        let (failed, source) = (failed.to_string(), Box::new(source));
        if left.is_empty() {
            MemoryError::Undone { failed, undone, source }
        } else {
            MemoryError::Left { failed, undone, left, source }
        }
    }
}

/// The step that undoes another, built before that one is made.
fn undoes(fabric: &mut CciSession, step: Step) -> Result<Option<Step>, CallError> {
    Ok(match step {
        // Capacity given again keeps its bytes if the step is undone: the next try needs them.
        Step::Capacity { gfd, group, tag, place, .. } => {
            let sanitize = matches!(place, Place::Free(_));
            Some(Step::NoCapacity { gfd, group, tag, sanitize })
        }
        // The content is erased, so nothing can bring it back.
        Step::NoCapacity { .. } => None,
        Step::Decoder { gfd, rpid, index, .. } => Some(Step::NoDecoder { gfd, rpid, index }),
        Step::NoDecoder { gfd, rpid, index } => {
            let entry = decoder(fabric, gfd, rpid, index)?;
            Some(Step::Restore { gfd, rpid, entry })
        }
        Step::Restore { .. } => None,
        Step::Edge { host, gfd } => Some(Step::NoEdge { host, gfd }),
        Step::NoEdge { host, gfd } => Some(Step::Edge { host, gfd }),
        Step::Right { gfd, rpid, group } => Some(Step::NoRight { gfd, rpid, group }),
        Step::NoRight { gfd, rpid, group } => Some(Step::Right { gfd, rpid, group }),
    })
}

pub(super) fn run(
    fabric: &mut CciSession,
    inventory: &Inventory,
    step: Step,
) -> Result<u64, CallError> {
    match step {
        Step::Capacity { gfd, group, len, tag, place } => {
            return add(fabric, gfd, group, tag, len, place);
        }
        Step::NoCapacity { gfd, group, tag, sanitize } => {
            release(fabric, gfd, group, tag, sanitize)?;
        }
        Step::Decoder { gfd, rpid, index, hpa, dpa, len, interleave, way } => {
            let dpa = Dpa(dpa);
            let new = GdtDecoder { coherent: false, hpa, dpa, dpa_len: len, interleave, way };
            set_decoder(fabric, gfd, rpid, GdtEntry { index, decoder: Some(new) })?;
        }
        Step::NoDecoder { gfd, rpid, index } => {
            set_decoder(fabric, gfd, rpid, GdtEntry { index, decoder: None })?;
        }
        Step::Restore { gfd, rpid, entry } => set_decoder(fabric, gfd, rpid, entry)?,
        Step::Edge { host, gfd } => edge(fabric, inventory, host, gfd, true)?,
        Step::NoEdge { host, gfd } => edge(fabric, inventory, host, gfd, false)?,
        Step::Right { gfd, rpid, group } => right(fabric, gfd, rpid, group, true)?,
        Step::NoRight { gfd, rpid, group } => right(fabric, gfd, rpid, group, false)?,
    }
    Ok(0)
}

/// Start and length of the extent of a tag in a group; `None` if there is none.
fn extent(
    fabric: &mut CciSession,
    gfd: Pid,
    group: u16,
    tag: Uuid,
) -> Result<Option<(u64, u64)>, CallError> {
    let range = GetExtents { owner: group, count: EXTENTS_MAX, start: 0 };
    let answer = fabric.call(Way::Pid(gfd), &Request::GetGfdExtents(range))?;
    let list = answer.read::<ExtentList<'_>>()?;
    let own = list.extents.iter().find(|extent| extent.tag == tag);
    Ok(own.map(|extent| (extent.start.0, extent.len)))
}

/// Adds capacity to a group, from the first region that gives it.
fn add(
    fabric: &mut CciSession,
    gfd: Pid,
    group: u16,
    tag: Uuid,
    len: u64,
    place: Place,
) -> Result<u64, CallError> {
    let way = Way::Pid(gfd);
    let what = "no partition of that kind has so many whole blocks";
    let mut refused = CallError::Unexpected { way, opcode: Opcode::GET_DC_REGIONS, what };
    // The GFD knows its free blocks: regions are tried until one does not refuse.
    for (region, at) in choices(&media::regions(fabric, gfd)?, len, place) {
        let start = Dpa(at.unwrap_or(0));
        let there = [Extent { start, len, tag, shared_seq: 0 }];
        let (policy, extents) = match at {
            Some(_) => (AddPolicy::Prescriptive, &there[..]),
            None => (AddPolicy::Contiguous, &[][..]),
        };
        let (response_max, extents) = (EXTENTS_MAX, List::of(extents));
        let add = DcAdd { group, policy, region, len, tag, response_max, extents };
        match fabric.call(way, &Request::DcAdd(add)) {
            Err(error) if error.is_refusal() => {
                refused = error;
                continue;
            }
            Ok(_) | Err(_) => {}
        }
        // Where an answer was lost, the list tells whether capacity was added.
        return match extent(fabric, gfd, group, tag)? {
            Some((start, got)) if got == len => Ok(start),
            _ => {
                let what = "the capacity that was added is not in the extent list";
                Err(CallError::Unexpected { way, opcode: Opcode::DC_ADD, what })
            }
        };
    }
    Err(refused)
}

/// Regions to ask for `len` bytes, in order, with the address if it must be a certain one.
fn choices(regions: &[Region], len: u64, place: Place) -> Vec<(u8, Option<u64>)> {
    let suits = |one: &&Region| len <= one.len && len.is_multiple_of(one.block);
    let suiting = regions.iter().filter(suits);
    match place {
        Place::Free(media) => {
            let of_kind = suiting.filter(|one| media.is_none_or(|media| one.media == media));
            of_kind.map(|one| (one.id, None)).collect()
        }
        Place::Again(dpa) => {
            let own = regions.iter().find(|one| dpa.wrapping_sub(one.base) < one.len);
            // Without that region the old content is gone, and any region will do.
            own.map_or_else(
                || suiting.map(|one| (one.id, None)).collect(),
                // First with its old bytes, at the old address; if others have that by now, anywhere in the same
                // region.
                |own| vec![(own.id, Some(dpa)), (own.id, None)],
            )
        }
    }
}

/// Bytes of the smallest block of a kind of memory that a GFD with these regions gives.
///
/// # Errors
/// Its regions cannot give `len` bytes of that kind.
pub(super) fn block(
    gfd: Pid,
    regions: &[Region],
    len: u64,
    wanted: Option<Media>,
) -> Result<u64, String> {
    let of_kind = || regions.iter().filter(|one| wanted.is_none_or(|media| one.media == media));
    let kind = wanted.map_or_else(String::new, |media| format!(" of {media}"));
    let most = of_kind().map(|one| one.len).max();
    let (Some(most), Some(block)) = (most, of_kind().map(|one| one.block).min()) else {
        return Err(format!("GFD {gfd} has no partition{kind}"));
    };
    if len > most {
        return Err(format!(
            "GFD {gfd} is to give {len:#x} bytes, and its largest partition{kind} has {most:#x}"
        ));
    }
    Ok(block)
}

fn release(
    fabric: &mut CciSession,
    gfd: Pid,
    group: u16,
    tag: Uuid,
    sanitize: bool,
) -> Result<(), CallError> {
    let way = Way::Pid(gfd);
    if extent(fabric, gfd, group, tag)?.is_none() {
        // Released already, as by an earlier try.
        return Ok(());
    }
    let flags = ReleaseFlags { policy: ReleasePolicy::Tag, forced: false, sanitize };
    let (len, response_max, extents) = (0, EXTENTS_MAX, List::of(&[]));
    let release = DcRelease { group, flags, len, tag, response_max, extents };
    let answer = fabric.call(way, &Request::DcRelease(release)).map(drop);
    if extent(fabric, gfd, group, tag)?.is_none() {
        return Ok(());
    }
    let what = "the capacity that was released is still in the extent list";
    answer.and(Err(CallError::Unexpected { way, opcode: Opcode::DC_RELEASE, what }))
}

fn decoder(fabric: &mut CciSession, gfd: Pid, rpid: Pid, index: u8) -> Result<GdtEntry, CallError> {
    let range = GdtRange { rpid, count: 1, start: index };
    let answer = fabric.call(Way::Pid(gfd), &Request::GetGdt(range))?;
    let entries = answer.read::<Gdt<'_>>()?.entries;
    Ok(entries.get(0).unwrap_or(GdtEntry { index, decoder: None }))
}

fn set_decoder(
    fabric: &mut CciSession,
    gfd: Pid,
    rpid: Pid,
    entry: GdtEntry,
) -> Result<(), CallError> {
    let way = Way::Pid(gfd);
    let entries = [entry];
    let set = SetGdt { rpid, start: entry.index, entries: List::of(&entries) };
    fabric.call(way, &Request::SetGdt(set))?;
    if decoder(fabric, gfd, rpid, entry.index)?.decoder == entry.decoder {
        return Ok(());
    }
    let what = "the decoder does not have the values that were set";
    Err(CallError::Unexpected { way, opcode: Opcode::SET_GDT, what })
}

/// Sets or clears one bit of an access vector; the others stay.
fn right(
    fabric: &mut CciSession,
    gfd: Pid,
    rpid: Pid,
    group: u16,
    on: bool,
) -> Result<(), CallError> {
    let way = Way::Pid(gfd);
    // 490Dh writes the whole vector of a requester, whose other bits belong to other shares.
    let now = vector(fabric, gfd, rpid)?;
    let bit = right_bit(group);
    let wanted = if on { now | bit } else { now & !bit };
    if wanted != now {
        let updates = [SatUpdate { rpid, vector: wanted }];
        fabric.call(way, &Request::SetSat(SetSat { updates: List::of(&updates) }))?;
    }
    if vector(fabric, gfd, rpid)? == wanted {
        return Ok(());
    }
    let what = "the access right does not have the value that was set";
    Err(CallError::Unexpected { way, opcode: Opcode::SET_SAT, what })
}

pub(super) fn vector(fabric: &mut CciSession, gfd: Pid, rpid: Pid) -> Result<u32, CallError> {
    let way = Way::Pid(gfd);
    let answer = fabric.call(way, &Request::GetSat(SatRange { count: 1, start: rpid }))?;
    let what = "it reports no access rights of the requester";
    let missing = CallError::Unexpected { way, opcode: Opcode::GET_SAT, what };
    answer.read::<SatEntries<'_>>()?.vectors.get(0).ok_or(missing)
}

/// Sets or clears a GFD's bit in GMV of a host's edge.
fn edge(
    fabric: &mut CciSession,
    inventory: &Inventory,
    host: Host,
    gfd: Pid,
    on: bool,
) -> Result<(), CallError> {
    let way = inventory.switch(host.switch).map_or(Way::Entry, DiscoveredSwitch::way);
    let op = if on { AccessOp::EnableGmv } else { AccessOp::DisableGmv };
    // Told afterwards by `UpdateCost` (5902h), once the share is complete.
    let cost = PathCost { latency_base: 0, latency: 0, bandwidth_base: 0, bandwidth: 0 };
    let set = ConfigureAccess { vcs: host.vcs, access: PidOp { pid: gfd, op }, cost };
    fabric.call(way, &Request::ConfigureAccess(set))?;
    let byte = u32::from(gfd.bits() / 8);
    let range = VcsVectorRange { vcs: host.vcs, range: VectorRange { start: byte, len: 1 } };
    let answer = fabric.call(way, &Request::GetVcsAccess(range))?;
    let bytes = answer.read::<Vector<'_>>()?.data;
    let is_set = bytes.get(0).is_some_and(|byte| byte & (1 << (gfd.bits() % 8)) != 0);
    if is_set == on {
        return Ok(());
    }
    let what = "the access vector does not have the value that was set";
    Err(CallError::Unexpected { way, opcode: Opcode::CONFIGURE_ACCESS, what })
}
