//! Dynamic capacity of logical devices: what each has, and commands to add and release it.
//!
//! Requests 5600h to 5608h to LD `FFFFh` of the device, in a tunnel, as [`LdDevice`] sends them.
//!
//! Units: bytes.
//! Source: CXL 3.1 section 7.6.7.6; docs/spec/wire-formats.md §4.3b.

use std::collections::BTreeSet;

use serde::{Deserialize, Serialize};
use weft_parsers::cci::dcd::{
    AddPolicy, Extent, ExtentList, GetExtents, InitiateAdd, InitiateRelease, ReleaseFlags,
    ReleasePolicy,
};
use weft_parsers::cci::gfd::GetTags;
use weft_parsers::cci::host_dc::{DcdInfo, HostRange, HostRegions, HostTags, SetRegion};
use weft_parsers::cci::{List, Opcode, Request, ReturnCode, Uuid};
use weft_parsers::fabric::Dpa;

use super::cci::CallError;
use super::graph::PortRef;
use super::lds::LdDevice;

/// The region that capacity is of.
const REGION: u8 = 0;
/// Most extents that are asked of one logical device.
const EXTENTS_MAX: u32 = 4_096;
/// As many in one answer.
const PAGE: u32 = 64;
/// Most tags that a device is asked for.
const TAGS_MAX: u32 = 4_096;
const NO_TAG: Uuid = [0; 16];

/// Dynamic capacity of a device.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct DynamicCapacity {
    /// First byte of the region, for every logical device.
    pub base: u64,
    /// Bytes in all.
    pub size: u64,
    /// It is dealt out in multiples of so many bytes.
    pub block: u64,
    /// What each logical device has, by number; several may have the same.
    pub extents: Vec<Vec<Extent>>,
    /// Tags of what keeps its content when nobody has it.
    pub kept: Vec<Uuid>,
}

impl DynamicCapacity {
    /// Bytes that no logical device has, with what is kept for one.
    #[must_use]
    pub fn free(&self) -> u64 {
        let used = self.extents.iter().flatten().map(|extent| (extent.start.0, extent.len));
        let used: BTreeSet<(u64, u64)> = used.collect();
        used.into_iter().map(|(_, len)| len).fold(self.size, u64::saturating_sub)
    }

    /// Whether some logical device has it.
    fn has(&self, wanted: &CapacityWanted) -> bool {
        self.extents.iter().flatten().any(|extent| wanted.is(extent))
    }
}

/// A piece that a logical device is to have, as it was added by command.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct CapacityWanted {
    /// The port of its device.
    pub at: PortRef,
    /// Its number.
    pub ld: u8,
    /// First byte.
    pub start: u64,
    /// Bytes.
    pub len: u64,
    /// What it is called; all zeros is nothing.
    pub tag: Uuid,
}

impl CapacityWanted {
    /// Whether it is `extent`, of the same logical device.
    fn is(&self, extent: &Extent) -> bool {
        (self.start, self.len, self.tag) == (extent.start.0, extent.len, extent.tag)
    }
}

/// Blocks that a device is to deal its dynamic capacity out in, as a command gave them.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct BlockWanted {
    /// The port of the device.
    pub at: PortRef,
    /// Bytes.
    pub block: u64,
}

/// What is to be added to a logical device.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Addition {
    /// Bytes.
    pub size: u64,
    /// What it is called; all zeros is nothing.
    pub tag: Uuid,
    /// Where exactly.
    pub at: Option<u64>,
    /// All of it beside each other.
    pub contiguous: bool,
}

/// What is to be released of a logical device.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Removal {
    /// Bytes; `None` for all that has the tag.
    pub size: Option<u64>,
    /// What it is called; all zeros is what has no name.
    pub tag: Uuid,
    /// Where exactly.
    pub at: Option<u64>,
    /// Whether its host uses it or not.
    pub force: bool,
}

/// Why dynamic capacity was not changed.
#[derive(Debug, thiserror::Error)]
pub enum CapacityError {
    /// The device refused, or did not answer.
    #[error(transparent)]
    Call(#[from] CallError),
    /// There is none.
    #[error("the device has no dynamic capacity: start it with dynamic, a part of its capacity")]
    Nothing,
    /// It is dealt out in blocks.
    #[error("dynamic capacity is dealt out in multiples of {0} KiB, and begins at one")]
    Block(u64),
    /// It is not dealt out in blocks of that size.
    #[error("blocks of {} KiB: the device has {sizes}", block >> 10)]
    BlockSize {
        /// What there are.
        sizes: String,
        /// What was asked for.
        block: u64,
    },
    /// Some of it is somebody's, or kept.
    #[error(
        "dynamic capacity is in use: release all of it first, of every logical device, and forget what is kept"
    )]
    BlocksUsed,
    /// There is not so much.
    #[error(
        "logical device {ld} cannot have {} MiB more: {} MiB of {} MiB are nobody's{beside}",
        want >> 20, free >> 20, all >> 20
    )]
    TooMuch {
        /// The LD.
        ld: u8,
        /// What was asked for.
        want: u64,
        /// What no LD has.
        free: u64,
        /// All.
        all: u64,
        /// What else was asked of them.
        beside: &'static str,
    },
    /// What was named is somebody's.
    #[error("{at:#x} to {end:#x} is in use: see weft fm ld capacity list")]
    Taken {
        /// First byte.
        at: u64,
        /// The byte behind it.
        end: u64,
    },
    /// What was named is not in the region.
    #[error("dynamic capacity is at {base:#x} to {end:#x}")]
    Outside {
        /// First byte.
        base: u64,
        /// The byte behind it.
        end: u64,
    },
    /// Another LD has capacity of that name.
    #[error("the tag is another logical device's: share it, or take another name")]
    Tag,
    /// Nobody has anything of that name, or the LD itself has it.
    #[error(
        "nothing that logical device {0} has not already has that tag: see weft fm ld capacity list"
    )]
    NoTag(u8),
    /// It is not kept.
    #[error("nothing of that name is kept: see weft fm ld capacity list")]
    NotKept,
    /// It has nothing of that kind.
    #[error("logical device {0} has no such capacity: see weft fm ld capacity list")]
    NotThere(u8),
    /// The host of the LD uses its memory.
    #[error("the host of logical device {0} uses its memory: unbind it first, or give --force")]
    InUse(u8),
    /// An extent is named by its place and length.
    #[error("what is released at a place needs a size")]
    Size,
}

/// Sizes of blocks, of a bit for each power of two.
fn sizes_in_words(mask: u64) -> String {
    let sizes = (0..64).map(|bit| mask & 1 << bit).filter(|size| *size != 0);
    let sizes: Vec<String> = sizes.map(|size| format!("{} KiB", size >> 10)).collect();
    match sizes.as_slice() {
        [] => "none".to_owned(),
        all => all.join(", "),
    }
}

impl LdDevice<'_> {
    /// Dynamic capacity, and who has it; `None` where the device has none.
    ///
    /// # Errors
    /// The device refuses, or does not answer.
    pub fn capacity(&mut self) -> Result<Option<DynamicCapacity>, CallError> {
        let info: DcdInfo = match self.ask(&Request::GetDcdInfo) {
            Ok(payload) => self.read(Opcode::GET_DCD_INFO, &payload)?,
            Err(CallError::Refused { code: ReturnCode::Unsupported, .. }) => return Ok(None),
            Err(error) => return Err(error),
        };
        if info.regions == 0 {
            return Ok(None);
        }
        let range = HostRange { host: 0, count: 1, start: REGION };
        let payload = self.ask(&Request::GetHostDcRegions(range))?;
        let regions: HostRegions<'_> = self.read(Opcode::GET_HOST_DC_REGIONS, &payload)?;
        let Some(region) = regions.regions.iter().next() else { return Ok(None) };
        let hosts = 0..u16::from(info.hosts);
        let extents = hosts.map(|host| self.extents(host)).collect::<Result<_, _>>()?;
        let (base, size, block) = (region.base.0, region.len, region.block.max(1));
        let kept = self.kept()?;
        Ok(Some(DynamicCapacity { base, size, block, extents, kept }))
    }

    /// Tags that the manager refers to.
    fn kept(&mut self) -> Result<Vec<Uuid>, CallError> {
        let mut kept = Vec::new();
        for start in (0..TAGS_MAX).step_by(PAGE as usize) {
            let payload = self.ask(&Request::ListTags(GetTags { start, max: PAGE }))?;
            let list: HostTags<'_> = self.read(Opcode::LIST_TAGS, &payload)?;
            kept.extend(list.tags.iter().filter(|tag| tag.fm_reference).map(|tag| tag.tag));
            if list.tags.is_empty() || start + PAGE >= list.total {
                break;
            }
        }
        Ok(kept)
    }

    fn extents(&mut self, host: u16) -> Result<Vec<Extent>, CallError> {
        let mut all = Vec::new();
        for start in (0..EXTENTS_MAX).step_by(PAGE as usize) {
            let get = GetExtents { owner: host, count: PAGE, start };
            let payload = self.ask(&Request::GetExtents(get))?;
            let list: ExtentList<'_> = self.read(Opcode::GET_EXTENTS, &payload)?;
            all.extend(list.extents.iter());
            if list.extents.is_empty() || start + PAGE >= list.total {
                break;
            }
        }
        Ok(all)
    }

    fn known(&mut self) -> Result<DynamicCapacity, CapacityError> {
        self.capacity()?.ok_or(CapacityError::Nothing)
    }

    /// Adds capacity to a logical device.
    ///
    /// # Errors
    /// See [`CapacityError`]; nothing has changed then.
    pub fn add_capacity(&mut self, ld: u8, add: &Addition) -> Result<(), CapacityError> {
        let has = self.known()?;
        let Addition { size, tag, at, contiguous } = *add;
        if size == 0 || !size.is_multiple_of(has.block) {
            return Err(CapacityError::Block(has.block >> 10));
        }
        let policy = match (at, contiguous) {
            (Some(_), _) => AddPolicy::Prescriptive,
            (None, true) => AddPolicy::Contiguous,
            (None, false) => AddPolicy::Free,
        };
        let named = at.map(|at| Extent { start: Dpa(at), len: size, tag, shared_seq: 0 });
        let extents = List::of(named.as_slice());
        let (host, region) = (ld.into(), REGION);
        let add = InitiateAdd { host, policy, region, len: size, tag, extents };
        let end = |at: u64| at.saturating_add(size);
        let Err(error) = self.ask(&Request::InitiateAdd(add)) else { return Ok(()) };
        let CallError::Refused { code, .. } = error else { return Err(error.into()) };
        Err(match (code, at) {
            (ReturnCode::ResourcesExhausted, Some(at)) => CapacityError::Taken { at, end: end(at) },
            (ReturnCode::ResourcesExhausted, None) => {
                let beside = if contiguous { ", not all beside each other" } else { "" };
                let (free, all) = (has.free(), has.size);
                CapacityError::TooMuch { ld, want: size, free, all, beside }
            }
            (ReturnCode::InvalidPhysicalAddress, _) => {
                CapacityError::Outside { base: has.base, end: has.base.saturating_add(has.size) }
            }
            (ReturnCode::InvalidExtentList, _) => CapacityError::Block(has.block >> 10),
            (ReturnCode::InvalidInput, _) if tag != NO_TAG => CapacityError::Tag,
            _ => error.into(),
        })
    }

    /// Adds again what logical devices are to have and have not; says how many pieces that were.
    ///
    /// # Errors
    /// See [`CapacityError`]: the first one; what comes before it is done.
    pub fn restore_capacity(&mut self, wanted: &[CapacityWanted]) -> Result<usize, CapacityError> {
        let mut has = self.known()?;
        let mut restored = 0;
        for piece in wanted {
            let list = has.extents.get(usize::from(piece.ld)).map(Vec::as_slice);
            if list.unwrap_or_default().iter().any(|extent| piece.is(extent)) {
                continue;
            }
            let gained: Vec<Extent> = if piece.tag != NO_TAG && has.has(piece) {
                self.share_capacity(piece.ld, piece.tag)?;
                let all = has.extents.iter().flatten();
                all.filter(|extent| extent.tag == piece.tag).copied().collect()
            } else {
                let CapacityWanted { start, len, tag, .. } = *piece;
                let add = Addition { size: len, tag, at: Some(start), contiguous: false };
                self.add_capacity(piece.ld, &add)?;
                vec![Extent { start: Dpa(start), len, tag, shared_seq: 0 }]
            };
            if let Some(list) = has.extents.get_mut(usize::from(piece.ld)) {
                list.extend(gained);
            }
            restored += 1;
        }
        Ok(restored)
    }

    /// Has the device deal its dynamic capacity out in other blocks, while nobody has any of it.
    ///
    /// # Errors
    /// See [`CapacityError`]; nothing has changed then.
    pub fn set_block(&mut self, block: u64) -> Result<(), CapacityError> {
        if self.known()?.block == block {
            return Ok(());
        }
        let payload = self.ask(&Request::GetDcdInfo)?;
        let info: DcdInfo = self.read(Opcode::GET_DCD_INFO, &payload)?;
        let sizes = info.blocks.get(usize::from(REGION)).copied().unwrap_or_default();
        if !block.is_power_of_two() || sizes & block == 0 {
            return Err(CapacityError::BlockSize { sizes: sizes_in_words(sizes), block });
        }
        // What is released is zeros for whoever has it next, with this or without.
        let set = SetRegion { region: REGION, block, sanitize: true };
        match self.ask(&Request::SetHostDcRegion(set)) {
            Ok(_) => Ok(()),
            Err(CallError::Refused { code: ReturnCode::Busy, .. }) => {
                Err(CapacityError::BlocksUsed)
            }
            Err(error) => Err(error.into()),
        }
    }

    /// Gives a logical device what has a tag and is another one's, or nobody's and kept.
    ///
    /// # Errors
    /// See [`CapacityError`]; nothing has changed then.
    pub fn share_capacity(&mut self, ld: u8, tag: Uuid) -> Result<(), CapacityError> {
        let (host, policy, extents) = (ld.into(), AddPolicy::EnableShared, List::of(&[]));
        let add = InitiateAdd { host, policy, region: REGION, len: 0, tag, extents };
        let done = self.ask(&Request::InitiateAdd(add));
        done.map(drop).map_err(|error| self.why(error, CapacityError::NoTag(ld)))
    }

    /// Why a request was not carried out: what `invalid` says of its input, if there is dynamic capacity at all.
    fn why(&mut self, error: CallError, invalid: CapacityError) -> CapacityError {
        let CallError::Refused { code, .. } = &error else { return error.into() };
        let is_invalid = *code == ReturnCode::InvalidInput;
        match self.known() {
            Err(error) => error,
            Ok(_) if is_invalid => invalid,
            Ok(_) => error.into(),
        }
    }

    /// Has what a logical device has under a tag keep its content when nobody has it any more.
    ///
    /// # Errors
    /// See [`CapacityError`]; nothing has changed then.
    pub fn keep_capacity(&mut self, ld: u8, tag: Uuid) -> Result<(), CapacityError> {
        let has = self.known()?;
        let own = has.extents.get(usize::from(ld)).into_iter().flatten();
        if tag == NO_TAG || own.into_iter().all(|extent| extent.tag != tag) {
            return Err(CapacityError::NotThere(ld));
        }
        self.ask(&Request::AddReference(tag))?;
        Ok(())
    }

    /// Ends that: what nobody has is lost.
    ///
    /// # Errors
    /// See [`CapacityError`]; nothing has changed then.
    pub fn forget_capacity(&mut self, tag: Uuid) -> Result<(), CapacityError> {
        let done = self.ask(&Request::RemoveReference(tag));
        done.map(drop).map_err(|error| self.why(error, CapacityError::NotKept))
    }

    /// Releases capacity of a logical device.
    ///
    /// # Errors
    /// See [`CapacityError`]; nothing has changed then.
    pub fn release_capacity(&mut self, ld: u8, remove: &Removal) -> Result<(), CapacityError> {
        let has = self.known()?;
        let Removal { size, tag, at, force } = *remove;
        if at.is_some() && size.is_none() {
            return Err(CapacityError::Size);
        }
        let len = size.unwrap_or(0);
        if size == Some(0) || !len.is_multiple_of(has.block) {
            return Err(CapacityError::Block(has.block >> 10));
        }
        let policy = at.map_or(ReleasePolicy::Tag, |_| ReleasePolicy::Prescriptive);
        let flags = ReleaseFlags { policy, forced: force, sanitize: true };
        let named = at.map(|at| Extent { start: Dpa(at), len, tag, shared_seq: 0 });
        let extents = List::of(named.as_slice());
        let release = InitiateRelease { host: ld.into(), flags, len, tag, extents };
        match self.ask(&Request::InitiateRelease(release)) {
            Ok(_) => Ok(()),
            Err(CallError::Refused { code: ReturnCode::Busy, .. }) => Err(CapacityError::InUse(ld)),
            Err(CallError::Refused {
                code: ReturnCode::InvalidInput | ReturnCode::InvalidExtentList,
                ..
            }) => Err(CapacityError::NotThere(ld)),
            Err(error) => Err(error.into()),
        }
    }
}
