//! Dynamic capacity of the logical devices of an MLD: one region, of which each LD has the extents added to it.
//!
//! [`Dynamic`] is a [`Capacity`] whose groups are the LDs.
//!
//! The region lies behind the memory that 5402h allocates, at the same place in the BAR of each LD, so an extent has
//! one address in the device and in the LD. A host has it at once, because an LD has no mailbox to offer it by. So
//! capacity of an LD whose memory is enabled is taken only by force. Capacity with a tag may belong to several LDs
//! (Enable Shared Access) and to the manager (a reference): it is erased once the last holder has released it.
//!
//! Source: CXL 3.1 section 7.6.7.6; docs/spec/wire-formats.md §4.3b.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::{Arc, Mutex};

use weft_parsers::cci::dcd::{
    self, AddPolicy, GetExtents, InitiateAdd, InitiateRelease, ReleasePolicy,
};
use weft_parsers::cci::gfd::{DcRegion, DcTotals};
use weft_parsers::cci::host_dc::{DcdInfo, HostRange, HostTag, SetRegion};
use weft_parsers::cci::{ReturnCode, Uuid};
use weft_parsers::fabric::Dpa;

use crate::cdat::{Range, flags};
use crate::gfd::capacity::Capacity;
use crate::gfd::commands::{Page, Totals};
use crate::gfd::dmp::{BLOCK_SIZES, Dmp, Media, Region, UNIT};
use crate::gfd::extent_lists::{
    choice, code, from_wire, index, is_their_sum, part, region_to_wire, to_wire, totals_to_wire,
};
use crate::gfd::memory::Memory;
use crate::gfd::protect::{BLOCKS_MAX, GrpId};

/// Number of the one region.
const REGION: u8 = 0;
/// Least block size at start-up; larger if the region would have too many blocks.
const BLOCK: u64 = 2 << 20;
const ADD: u16 = 1 << AddPolicy::Free as u8
    | 1 << AddPolicy::Contiguous as u8
    | 1 << AddPolicy::Prescriptive as u8
    | 1 << AddPolicy::EnableShared as u8;
const RELEASE: u16 = 1 << ReleasePolicy::Tag as u8 | 1 << ReleasePolicy::Prescriptive as u8;

/// Blocks of dynamic capacity, and the logical devices that have them.
pub(super) struct Dynamic {
    capacity: Capacity,
    /// The bytes, at the same addresses for all LDs.
    content: Arc<Mutex<Memory>>,
    lds: u8,
    base: u64,
    len: u64,
}

impl Dynamic {
    /// `len` bytes from `base` on, all unallocated; `None` if no block size divides them.
    pub fn new(lds: u8, base: u64, len: u64) -> Option<Self> {
        let end = base.checked_add(len)?;
        let content = Arc::new(Mutex::new(Memory::anonymous(end)));
        let mut dynamic = Self { capacity: Capacity::new(end), content, lds, base, len };
        if len > 0 {
            // The smallest block that keeps the table within `BLOCKS_MAX` entries.
            let block = (0..64)
                .map(|bit| 1 << bit)
                .find(|block| *block >= BLOCK && dynamic.block_sizes() & *block != 0)?;
            dynamic.shape(block, false).ok()?;
        }
        Some(dynamic)
    }

    /// The whole region, allocated or not.
    pub const fn range(&self) -> Range {
        Range { base: self.base, len: self.len, flags: flags::DYNAMIC }
    }

    /// Size of the region in bytes.
    pub const fn bytes(&self) -> u64 {
        self.len
    }

    /// Block sizes that the region may have, bit n for 2^n bytes.
    fn block_sizes(&self) -> u64 {
        let fits = |block: &u64| {
            BLOCK_SIZES & block != 0
                && self.len.is_multiple_of(*block)
                && self.len / block <= BLOCKS_MAX
        };
        if self.len == 0 { 0 } else { (0..64).map(|bit| 1 << bit).filter(fits).sum() }
    }

    /// Sets partition and region to blocks of `block` bytes.
    fn shape(&mut self, block: u64, sanitize: bool) -> Result<(), ReturnCode> {
        let (base, len) = (Dpa(self.base), self.len);
        // Sharable, as any tag may be given to further LDs.
        let (decode_len, media) = (len, Media { sharable: true, ..Media::default() });
        let dmp = Dmp { index: 0, base, decode_len, len, block, media };
        self.capacity.set_dmps(&[dmp]).map_err(code)?;
        let region = Region { id: REGION, block, sanitize, base, decode_len, len };
        self.capacity.set_region(region).map_err(code)
    }

    fn group(&self, host: u16) -> Result<GrpId, ReturnCode> {
        let is_there = host < u16::from(self.lds);
        GrpId::new(host).filter(|_| is_there).ok_or(ReturnCode::InvalidInput)
    }

    /// Joins the memory of an LD with the region; the LD's ranges decide which parts it sees.
    pub fn show(&self, memory: &mut Memory) {
        if self.len > 0 {
            memory.join(self.base, &self.content);
        }
    }

    /// Zeroes ranges that were released.
    fn wipe(&self, ranges: &[(u64, u64)]) -> Result<(), ReturnCode> {
        let mut content = self.content.lock().map_err(|_| ReturnCode::InternalError)?;
        let mut wiped = ranges.iter().map(|&(start, len)| content.clear(start, len));
        wiped.try_for_each(|result| result.map_err(|_| ReturnCode::InternalError))
    }

    /// Extents of an LD: first byte and length of each.
    pub fn ranges(&self, ld: usize) -> impl Iterator<Item = (u64, u64)> {
        let group = u16::try_from(ld).ok().and_then(|ld| self.group(ld).ok());
        let of = group.into_iter().flat_map(|group| self.capacity.extents(group).0);
        of.map(|extent| (extent.start.0, extent.len))
    }

    /// Get DCD Info (5600h).
    pub fn info(&self) -> DcdInfo {
        let regions = u8::from(self.len > 0);
        let mut blocks = [0; 8];
        if let Some(first) = blocks.first_mut() {
            *first = self.block_sizes();
        }
        DcdInfo {
            hosts: self.lds,
            regions,
            add_policies: ADD,
            release_policies: RELEASE,
            sanitize: regions,
            capacity: self.len / UNIT,
            blocks,
        }
    }

    /// Get Host DC Region Configuration (5601h): number of regions, the requested ones, and totals.
    ///
    /// # Errors
    /// Invalid Input: the LD or the region does not exist.
    pub fn regions(&self, range: HostRange) -> Result<(u8, Vec<DcRegion>, DcTotals), ReturnCode> {
        self.group(range.host)?;
        let regions: Vec<&Region> = self.capacity.regions().iter().flatten().collect();
        let from = regions.get(usize::from(range.start)..).filter(|rest| !rest.is_empty());
        let from = from.ok_or(ReturnCode::InvalidInput)?;
        let list = from.iter().take(range.count.into()).map(|region| region_to_wire(region));
        let totals = totals_to_wire(&Totals::of(&self.capacity));
        Ok((count8(regions.len()), list.collect(), totals))
    }

    /// Set DC Region Configuration (5602h).
    ///
    /// # Errors
    /// Invalid Input: the region does not exist, or cannot have blocks of that size. Busy: capacity of it is allocated.
    pub fn set_region(&mut self, set: SetRegion) -> Result<(), ReturnCode> {
        if set.region != REGION
            || !set.block.is_power_of_two()
            || self.block_sizes() & set.block == 0
        {
            return Err(ReturnCode::InvalidInput);
        }
        if self.capacity.extent_count() > 0 {
            return Err(ReturnCode::Busy);
        }
        self.shape(set.block, set.sanitize)
    }

    /// Get DC Region Extent Lists (5603h), at most `most` extents.
    ///
    /// # Errors
    /// Invalid Input: the LD does not exist, or has fewer extents than `start`.
    pub fn extents(&self, get: GetExtents, most: u32) -> Result<Page<dcd::Extent>, ReturnCode> {
        let own = self.group(get.owner)?;
        let (extents, generation) = self.capacity.extents(own);
        let others = (0..self.lds).filter_map(|ld| GrpId::new(ld.into())).filter(|it| *it != own);
        let others = others.flat_map(|group| self.capacity.extents(group).0);
        let others: BTreeSet<Dpa> = others.map(|extent| extent.start).collect();
        let tags = self.capacity.tags().0;
        let kept: Vec<Uuid> =
            tags.into_iter().filter_map(|(tag, kept)| kept.then_some(tag)).collect();
        let extents = extents.map(|extent| {
            // Sequence numbers are for extents that others find as well: other LDs, or the manager by its reference.
            let shared = others.contains(&extent.start) || kept.contains(&extent.tag);
            let wire = to_wire(&extent);
            dcd::Extent { shared_seq: if shared { wire.shared_seq } else { 0 }, ..wire }
        });
        let count = index(get.count.min(most));
        Page::of(extents, generation, index(get.start), count).map_err(code)
    }

    /// Initiate Dynamic Capacity Add (5604h).
    ///
    /// # Errors
    /// Invalid Input: the LD does not exist; else as [`Capacity::add`].
    pub fn add(&mut self, add: &InitiateAdd<'_>) -> Result<(), ReturnCode> {
        let group = self.group(add.host)?;
        let extents = from_wire(add.extents);
        if add.policy != AddPolicy::EnableShared && !extents.is_empty() {
            is_their_sum(add.len, &extents).map_err(code)?;
        }
        let choice = choice(add.policy, add.region, add.len, &extents).map_err(code)?;
        self.capacity.add(group, add.tag, choice).map_err(code)?;
        self.capacity.retell(add.tag, Some(group)); // extents that one LD had alone get sequence numbers
        Ok(())
    }

    /// Initiate Dynamic Capacity Release (5605h); `in_use`: the LD's host has its memory enabled.
    ///
    /// # Errors
    /// Invalid Input: the LD does not exist; else as [`Capacity::release`]. Busy: the LD is in use and the release not
    /// forced.
    pub fn release(
        &mut self,
        release: &InitiateRelease<'_>,
        in_use: bool,
    ) -> Result<(), ReturnCode> {
        let group = self.group(release.host)?;
        let extents = from_wire(release.extents);
        let flags = release.flags;
        if !extents.is_empty() {
            is_their_sum(release.len, &extents).map_err(code)?;
        }
        // A tag beside named extents decides nothing, but must be one that the LD has.
        let is_named = release.tag != [0; 16] && flags.policy == ReleasePolicy::Prescriptive;
        if is_named && !self.capacity.extents(group).0.any(|extent| extent.tag == release.tag) {
            return Err(ReturnCode::InvalidInput);
        }
        let part = part(flags.policy, release.tag, release.len, &extents).map_err(code)?;
        if in_use && !flags.forced {
            self.capacity.clone().release(group, part, true).map_err(code)?; // an invalid request is no Busy
            return Err(ReturnCode::Busy);
        }
        // On a copy: if zeroing fails, the LD keeps its capacity. Always zeroed, as the next LD must not find the
        // contents.
        let mut next = self.capacity.clone();
        let (lost, wipes) = next.release(group, part, true).map_err(code)?;
        self.wipe(&wipes)?;
        for tag in lost.iter().map(|extent| extent.tag).collect::<BTreeSet<_>>() {
            next.retell(tag, Some(group)); // extents that one LD has alone lose their sequence numbers
        }
        self.capacity = next;
        Ok(())
    }

    /// Dynamic Capacity Add Reference (5606h).
    ///
    /// # Errors
    /// Invalid Input: no capacity has that tag.
    pub fn add_reference(&mut self, tag: Uuid) -> Result<(), ReturnCode> {
        self.capacity.add_reference(tag).map_err(code)?;
        self.capacity.retell(tag, None);
        Ok(())
    }

    /// Dynamic Capacity Remove Reference (5607h).
    ///
    /// # Errors
    /// Invalid Input: the reference does not exist.
    pub fn remove_reference(&mut self, tag: Uuid) -> Result<(), ReturnCode> {
        let mut next = self.capacity.clone();
        let wipes = next.remove_reference(tag).map_err(code)?;
        self.wipe(&wipes)?;
        next.retell(tag, None);
        self.capacity = next;
        Ok(())
    }

    /// Dynamic Capacity List Tags (5608h).
    ///
    /// # Errors
    /// Invalid Input: fewer tags than `start`.
    pub fn tags(&self, start: u32, count: u32) -> Result<Page<HostTag>, ReturnCode> {
        let mut holders: BTreeMap<Uuid, [u8; 32]> = BTreeMap::new();
        for group in (0..self.lds).filter_map(|ld| GrpId::new(ld.into())) {
            for extent in self.capacity.extents(group).0 {
                let hosts = holders.entry(extent.tag).or_default();
                if let Some(byte) = hosts.get_mut(group.index() / 8) {
                    *byte |= 1_u8 << (group.index() % 8);
                }
            }
        }
        let (tags, generation) = self.capacity.tags();
        let entry = |(tag, fm_reference)| HostTag {
            tag,
            fm_reference,
            holders: holders.get(&tag).copied().unwrap_or_default(),
            pending: [0; 32],
        };
        let tags = tags.into_iter().map(entry);
        Page::of(tags, generation, index(start), index(count)).map_err(code)
    }
}

fn count8(count: usize) -> u8 {
    u8::try_from(count).unwrap_or(u8::MAX)
}
