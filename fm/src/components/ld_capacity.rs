//! Dynamic capacity of logical devices: reading it, adding and releasing it.
//!
//! Requests 5600h to 5608h go to LD `FFFFh` of the device, in a tunnel, as [`LdDevice`] sends them.
//!
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

use super::lds::LdDevice;
use crate::cci::CallError;
use crate::model::graph::PortRef;

/// The only region of capacity that is used.
const REGION: u8 = 0;
/// Extents read of one logical device, at most.
const EXTENTS_MAX: u32 = 4_096;
/// Extents or tags in one answer.
const PAGE: u32 = 64;
/// Tags read of a device, at most.
const TAGS_MAX: u32 = 4_096;
const NO_TAG: Uuid = [0; 16];

/// Dynamic capacity of a device.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct DynamicCapacity {
    /// DPA of the region's first byte, the same for all logical devices.
    pub base: u64,
    /// Bytes of the region.
    pub size: u64,
    /// Allocation unit in bytes.
    pub block: u64,
    /// Extents by number of the logical device; shared ones appear at each.
    pub extents: Vec<Vec<Extent>>,
    /// Tags whose content is kept when no logical device has it.
    pub kept: Vec<Uuid>,
}

impl DynamicCapacity {
    /// Bytes that no logical device has, including kept content.
    #[must_use]
    pub fn free(&self) -> u64 {
        let used = self.extents.iter().flatten().map(|extent| (extent.start.0, extent.len));
        // Extents that several logical devices share count once.
        let used: BTreeSet<(u64, u64)> = used.collect();
        used.into_iter().map(|(_, len)| len).fold(self.size, u64::saturating_sub)
    }

    /// Whether some logical device has the piece.
    fn has(&self, wanted: &CapacityWanted) -> bool {
        self.extents.iter().flatten().any(|extent| wanted.is(extent))
    }
}

/// A piece of capacity wanted for a logical device, as a command added it.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct CapacityWanted {
    pub at: PortRef,
    /// Number of the logical device.
    pub ld: u8,
    /// DPA of the first byte.
    pub start: u64,
    pub len: u64,
    /// Tag; all zeros for none.
    pub tag: Uuid,
}

impl CapacityWanted {
    /// Whether `extent`, of the same logical device, is this piece.
    fn is(&self, extent: &Extent) -> bool {
        (self.start, self.len, self.tag) == (extent.start.0, extent.len, extent.tag)
    }
}

/// Block size wanted for a device's dynamic capacity, as a command set it.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct BlockWanted {
    pub at: PortRef,
    pub block: u64,
}

/// A request to add capacity to a logical device.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Addition {
    pub size: u64,
    /// Tag; all zeros for none.
    pub tag: Uuid,
    /// DPA, if it must be a certain one.
    pub at: Option<u64>,
    /// Whether it must be one extent.
    pub contiguous: bool,
}

/// A request to release capacity of a logical device.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Removal {
    /// Bytes; `None` for all with the tag.
    pub size: Option<u64>,
    /// Tag; all zeros for capacity without one.
    pub tag: Uuid,
    /// DPA of the extent, if a certain one is meant.
    pub at: Option<u64>,
    /// Release it even while its host uses it.
    pub force: bool,
}

/// Why dynamic capacity was not changed.
#[derive(Debug, thiserror::Error)]
pub enum CapacityError {
    /// The device refused, or did not answer.
    #[error(transparent)]
    Call(#[from] CallError),
    /// The device has no dynamic capacity.
    #[error("the device has no dynamic capacity: start it with dynamic, a part of its capacity")]
    Nothing,
    /// Sizes and addresses must be multiples of the block, in KiB here.
    #[error("dynamic capacity is dealt out in multiples of {0} KiB, and begins at one")]
    Block(u64),
    /// The device does not support this block size.
    #[error("blocks of {} KiB: the device has {sizes}", block >> 10)]
    BlockSize {
        /// Supported sizes, in words.
        sizes: String,
        block: u64,
    },
    /// Some of it belongs to logical devices, or is kept.
    #[error(
        "dynamic capacity is in use: release all of it first, of every logical device, and forget what is kept"
    )]
    BlocksUsed,
    /// Too little is unallocated.
    #[error(
        "logical device {ld} cannot have {} MiB more: {} MiB of {} MiB are nobody's{beside}",
        want >> 20, free >> 20, all >> 20
    )]
    TooMuch {
        ld: u8,
        /// Bytes requested.
        want: u64,
        /// Bytes that no LD has.
        free: u64,
        /// Bytes of the region.
        all: u64,
        /// Addition to the message if contiguity was requested.
        beside: &'static str,
    },
    /// The range named is in use.
    #[error("{at:#x} to {end:#x} is in use: see weft fm ld capacity list")]
    Taken {
        at: u64,
        /// Address behind the last byte.
        end: u64,
    },
    /// The range named is outside the region.
    #[error("dynamic capacity is at {base:#x} to {end:#x}")]
    Outside {
        base: u64,
        /// Address behind the last byte.
        end: u64,
    },
    /// Another LD has capacity with this tag.
    #[error("the tag is another logical device's: share it, or take another name")]
    Tag,
    /// No capacity has this tag, or the LD itself has it.
    #[error(
        "nothing that logical device {0} has not already has that tag: see weft fm ld capacity list"
    )]
    NoTag(u8),
    /// No content with this tag is kept.
    #[error("nothing of that name is kept: see weft fm ld capacity list")]
    NotKept,
    /// The LD has no such capacity.
    #[error("logical device {0} has no such capacity: see weft fm ld capacity list")]
    NotThere(u8),
    /// The host of the LD uses its memory.
    #[error("the host of logical device {0} uses its memory: unbind it first, or give --force")]
    InUse(u8),
    /// A release by address needs a size, as an extent is named by both.
    #[error("what is released at a place needs a size")]
    Size,
}

/// Block sizes in words, from a mask with a bit for each power of two.
fn sizes_in_words(mask: u64) -> String {
    let sizes = (0..64).map(|bit| mask & 1 << bit).filter(|size| *size != 0);
    let sizes: Vec<String> = sizes.map(|size| format!("{} KiB", size >> 10)).collect();
    match sizes.as_slice() {
        [] => "none".to_owned(),
        all => all.join(", "),
    }
}

impl LdDevice<'_> {
    /// Reads the dynamic capacity and who has it; `None` if the device has none.
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
        // With a block of 0, no size but 0 would be a multiple of it.
        let (base, size, block) = (region.base.0, region.len, region.block.max(1));
        let kept = self.kept()?;
        Ok(Some(DynamicCapacity { base, size, block, extents, kept }))
    }

    /// Tags that the manager holds a reference to.
    fn kept(&mut self) -> Result<Vec<Uuid>, CallError> {
        let mut kept = Vec::new();
        // Bounded whatever `total` says.
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
        // The device decides; its return code is turned into words afterwards, with the figures read before.
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

    /// Adds wanted pieces that logical devices lack; returns their number.
    ///
    /// # Errors
    /// The first failure, see [`CapacityError`]. Pieces before it are added.
    pub fn restore_capacity(&mut self, wanted: &[CapacityWanted]) -> Result<usize, CapacityError> {
        let mut has = self.known()?;
        let mut restored = 0;
        for piece in wanted {
            let list = has.extents.get(usize::from(piece.ld)).map(Vec::as_slice);
            if list.unwrap_or_default().iter().any(|extent| piece.is(extent)) {
                continue;
            }
            // Another LD has it by now, as a shared piece: adding it anew would be refused for its tag.
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

    /// Sets the block size of dynamic capacity, which must all be free.
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
        // Content is erased on release whatever this says: releases ask for it.
        let set = SetRegion { region: REGION, block, sanitize: true };
        match self.ask(&Request::SetHostDcRegion(set)) {
            Ok(_) => Ok(()),
            Err(CallError::Refused { code: ReturnCode::Busy, .. }) => {
                Err(CapacityError::BlocksUsed)
            }
            Err(error) => Err(error.into()),
        }
    }

    /// Gives a logical device the capacity with a tag that another one has, or that is kept.
    ///
    /// # Errors
    /// See [`CapacityError`]; nothing has changed then.
    pub fn share_capacity(&mut self, ld: u8, tag: Uuid) -> Result<(), CapacityError> {
        let (host, policy, extents) = (ld.into(), AddPolicy::EnableShared, List::of(&[]));
        let add = InitiateAdd { host, policy, region: REGION, len: 0, tag, extents };
        let done = self.ask(&Request::InitiateAdd(add));
        done.map(drop).map_err(|error| self.why(error, CapacityError::NoTag(ld)))
    }

    /// Turns a failed request into an error: `invalid` for Invalid Input, unless the device has no dynamic capacity at
    /// all.
    fn why(&mut self, error: CallError, invalid: CapacityError) -> CapacityError {
        let CallError::Refused { code, .. } = &error else { return error.into() };
        let is_invalid = *code == ReturnCode::InvalidInput;
        match self.known() {
            Err(error) => error,
            Ok(_) if is_invalid => invalid,
            Ok(_) => error.into(),
        }
    }

    /// Keeps the content under a tag of a logical device when no logical device has it any more.
    ///
    /// # Errors
    /// See [`CapacityError`]; nothing has changed then.
    pub fn keep_capacity(&mut self, ld: u8, tag: Uuid) -> Result<(), CapacityError> {
        let has = self.known()?;
        let own = has.extents.get(usize::from(ld)).into_iter().flatten();
        if tag == NO_TAG || own.into_iter().all(|extent| extent.tag != tag) {
            return Err(CapacityError::NotThere(ld));
        }
        // AddReference (5606h) names the tag alone: the check above keeps it to capacity of this LD.
        self.ask(&Request::AddReference(tag))?;
        Ok(())
    }

    /// Stops keeping a tag's content. Data that no logical device holds is erased.
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
        // The next owner must not read the bytes of this one.
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
