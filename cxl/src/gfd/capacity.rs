//! Dynamic capacity: which blocks belong to which groups, under which tags.
//!
//! [`Capacity`] has partitions, regions and pieces (start, length, tag, groups). Each change is worked out as a list of
//! pieces first and then applied whole, and every applied range is entered in the MGT.
//!
//! Decided here, where the pages say nothing:
//! - Free and contiguous choose the lowest addresses that are free.
//! - A tag other than zero names one allocation. Adding under a tag in use is Invalid Input, unless the capacity
//!   belongs to the same group alone and to no reference.
//! - Enable shared access gives all of a tag's pieces to one more group; their partition must be sharable. It also
//!   gives a group capacity that only the FM's reference still holds, sharable or not.
//! - Release by tag takes the last pieces first; length 0 means all of the tag.
//! - Pieces that the FM refers to stay when their last group releases them, without a group, until the reference is
//!   removed. Pieces in sharable memory under a tag are numbered from 1, in the order of adding.
//! - A group's generation counts up with each change of its list; that of the tags with each change of theirs.
//!
//! Source: docs/spec/wire-formats.md §4.7 (4902 to 490B); CXL 3.1 sections 7.7.2.3 and 7.7.13.

use std::collections::{BTreeMap, BTreeSet};

use weft_parsers::fabric::Dpa;

use super::code::ReturnCode;
use super::dmp::{self, Dmp, REGIONS, Region, overlap, within};
use super::protect::{DMPS, GROUPS, GrpId, Mgt};

/// Most pieces of a device.
pub const EXTENTS_MAX: usize = 4_096;
/// Most tags of a device.
pub const TAGS_MAX: usize = 1_024;

/// Name of an allocation; all zeros: no name.
pub type Tag = [u8; 16];
pub const NO_TAG: Tag = [0; 16];

/// A range of dynamic capacity that belongs to a group.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Extent {
    pub start: Dpa,
    pub len: u64,
    /// Name of the allocation.
    pub tag: Tag,
    /// Number among the extents of a sharable tag, from 1; 0 for all other extents.
    pub sequence: u16,
}

/// How Add Capacity chooses the blocks to add.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Choice<'a> {
    /// Any free blocks of a region, for `len` bytes.
    Free { region: u8, len: u64 },
    /// Free blocks that lie side by side.
    Contiguous { region: u8, len: u64 },
    /// Exactly these; only start and length count.
    Prescriptive { region: u8, extents: &'a [Extent] },
    /// The capacity that the tag already names.
    EnableShared,
}

/// The capacity that a release gives back.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Part<'a> {
    /// The last `len` bytes of a tag; 0: all of it.
    Tag { tag: Tag, len: u64 },
    /// Exactly these; only start and length count.
    Prescriptive(&'a [Extent]),
}

/// An allocated range of memory.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
struct Piece {
    len: u64,
    tag: Tag,
    groups: u64, // empty: only the FM's reference holds it
    sequence: u16,
    wipe: bool, // a group asked for zeros when it is freed
}

/// Ranges to be zeroed, as start and length.
pub type Wipes = Vec<(u64, u64)>;

/// The dynamic capacity of a device: partitions, regions, extents and tags.
#[derive(Clone, Debug)]
pub struct Capacity {
    dmps: [Option<Dmp>; DMPS],
    regions: [Option<Region>; REGIONS],
    pieces: BTreeMap<u64, Piece>,
    held: BTreeSet<Tag>,
    generations: [u32; GROUPS as usize],
    tags_generation: u32,
    mgt: Mgt,
    size: u64,
}

impl Capacity {
    /// Nothing configured, for a device of `size` bytes.
    #[must_use]
    pub fn new(size: u64) -> Self {
        Self {
            dmps: [None; DMPS],
            regions: [None; REGIONS],
            pieces: BTreeMap::new(),
            held: BTreeSet::new(),
            generations: [0; GROUPS as usize],
            tags_generation: 0,
            mgt: Mgt::default(),
            size,
        }
    }

    #[must_use]
    pub const fn dmps(&self) -> &[Option<Dmp>; DMPS] {
        &self.dmps
    }

    #[must_use]
    pub const fn regions(&self) -> &[Option<Region>; REGIONS] {
        &self.regions
    }

    /// The group tables, which follow from the pieces.
    #[must_use]
    pub const fn mgt(&self) -> &Mgt {
        &self.mgt
    }

    /// Size of the device in bytes.
    #[must_use]
    pub const fn size(&self) -> u64 {
        self.size
    }

    /// Number of pieces, those without a group included.
    #[must_use]
    pub fn extent_count(&self) -> usize {
        self.pieces.len()
    }

    /// Changes partitions. Removes regions that do not fit into them any more.
    ///
    /// # Errors
    /// Invalid Input: any capacity is allocated, or [`dmp::changed`] refuses. Nothing changed.
    pub fn set_dmps(&mut self, changes: &[Dmp]) -> Result<(), ReturnCode> {
        // Also pieces that only a reference holds: their media and block size must not change under them.
        if !self.pieces.is_empty() {
            return Err(ReturnCode::InvalidInput);
        }
        self.dmps = dmp::changed(&self.dmps, changes, self.size)?;
        for (index, dmp) in self.dmps.iter().enumerate() {
            let (base, len, shift, read_only) = dmp.map_or((Dpa(0), 0, 12, false), |dmp| {
                (dmp.base, dmp.len, dmp.shift(), dmp.media.read_only)
            });
            self.mgt.place(index, base, len, shift, read_only);
        }
        let dmps = &self.dmps;
        for region in &mut self.regions {
            *region = region.filter(|region| region.home(dmps).is_some());
        }
        Ok(())
    }

    /// Changes a region; length 0 removes it.
    ///
    /// # Errors
    /// Invalid Input: capacity of it is allocated, or [`Region::check`] refuses. Nothing changed.
    pub fn set_region(&mut self, region: Region) -> Result<(), ReturnCode> {
        region.check(&self.dmps, &self.regions)?;
        let place = self.regions.get_mut(usize::from(region.id)).ok_or(ReturnCode::InvalidInput)?;
        if let Some(old) = place
            && self.pieces.iter().any(|(start, p)| overlap(*start, p.len, old.base.0, old.len))
        {
            return Err(ReturnCode::InvalidInput);
        }
        *place = (region.len > 0).then_some(region);
        Ok(())
    }

    /// The extents of a group, in the order of their addresses, and its generation.
    pub fn extents(&self, group: GrpId) -> (impl Iterator<Item = Extent>, u32) {
        let list = self.pieces.iter().filter(move |(_, piece)| piece.groups & group.bit() != 0);
        let generation = self.generations.get(group.index()).copied().unwrap_or(0);
        (list.map(|(start, piece)| extent(*start, piece)), generation)
    }

    /// Tags in use in order, each with whether the FM refers to it; and their generation.
    #[must_use]
    pub fn tags(&self) -> (Vec<(Tag, bool)>, u32) {
        let named = self.pieces.values().map(|piece| piece.tag).filter(|tag| *tag != NO_TAG);
        let all: BTreeSet<Tag> = named.collect();
        let list = all.into_iter().map(|tag| (tag, self.held.contains(&tag)));
        (list.collect(), self.tags_generation)
    }

    /// Allocates capacity to `group` under `tag`; returns the new extents.
    ///
    /// # Errors
    /// Invalid Input: no such region, a length that is 0 or no multiple of the block, a tag that may
    /// not be used (see above). Invalid Extent List, Invalid Physical Address: see
    /// [`Choice::Prescriptive`]. Resources Exhausted: not enough is free, or a limit. Nothing changed.
    pub fn add(
        &mut self,
        group: GrpId,
        tag: Tag,
        choice: Choice,
    ) -> Result<Vec<Extent>, ReturnCode> {
        let (ranges, region) = match choice {
            Choice::Free { region, len } => {
                let region = self.region(region)?;
                (self.free(region, len, false)?, region)
            }
            Choice::Contiguous { region, len } => {
                let region = self.region(region)?;
                (self.free(region, len, true)?, region)
            }
            Choice::Prescriptive { region, extents } => {
                let region = self.region(region)?;
                (self.prescribed(region, extents)?, region)
            }
            Choice::EnableShared => return self.share(group, tag),
        };
        let (mut first, before) = (0_u16, self.tags().0);
        if tag != NO_TAG {
            let mut used = self.pieces.values().filter(|piece| piece.tag == tag).peekable();
            let known = used.peek().is_some();
            first = used.clone().map(|piece| piece.sequence).max().unwrap_or(0);
            // A tag names one allocation: its other groups, or the FM's reference, hold the pieces that it had when
            // they got it.
            if self.held.contains(&tag) || used.any(|piece| piece.groups != group.bit()) {
                return Err(ReturnCode::InvalidInput);
            }
            if !known && before.len() >= TAGS_MAX {
                return Err(ReturnCode::ResourcesExhausted);
            }
        }
        if self.pieces.len() + ranges.len() > EXTENTS_MAX {
            return Err(ReturnCode::ResourcesExhausted);
        }
        let numbered = tag != NO_TAG && region.home(&self.dmps).is_some_and(|d| d.media.sharable);
        let mut added = Vec::with_capacity(ranges.len());
        for (start, len) in ranges {
            first = if numbered { first.saturating_add(1) } else { 0 };
            let sequence = first;
            let piece = Piece { len, tag, groups: group.bit(), sequence, wipe: false };
            added.push(extent(start, &piece));
            self.put(start, piece);
        }
        self.changed(group.bit());
        self.tags_changed(&before);
        Ok(added)
    }

    /// Takes capacity from `group`; returns the extents that it lost, and the ranges to be zeroed.
    ///
    /// Pieces that other groups or a reference still hold stay allocated. `sanitize` requests zeros when the memory is
    /// freed; its partition or region may do so, too.
    ///
    /// # Errors
    /// Invalid Input: the group has nothing under the tag, or less than `len`, or `len` is no multiple
    /// of a block. Invalid Extent List: a range is empty, misaligned, overlaps another, or is not the
    /// group's. Resources Exhausted: splitting pieces would make too many. Nothing changed.
    pub fn release(
        &mut self,
        group: GrpId,
        part: Part,
        sanitize: bool,
    ) -> Result<(Vec<Extent>, Wipes), ReturnCode> {
        let ranges = match part {
            Part::Tag { tag, len } => self.last_of_tag(group, tag, len)?,
            Part::Prescriptive(extents) => self.owned(group, extents)?,
        };
        // Each range splits a piece into three at most; the exact number is counted only where that bound is near the
        // limit.
        if self.pieces.len() + 2 * ranges.len() > EXTENTS_MAX && self.splits(&ranges) > EXTENTS_MAX
        {
            return Err(ReturnCode::ResourcesExhausted);
        }
        let (before, was) = (self.tags().0, self.pieces.clone());
        let (mut lost, mut wipes) = (Vec::with_capacity(ranges.len()), Wipes::new());
        for (start, len) in ranges {
            let Some(mut piece) = self.cut(start, len) else { continue };
            lost.push(extent(start, &piece));
            piece.groups &= !group.bit();
            piece.wipe |= sanitize;
            // `wipe` stays with a piece that others hold: a group that asked for zeros gets them when the last holder
            // lets go.
            if piece.groups == 0 && !self.held.contains(&piece.tag) {
                self.drop_piece(start, &piece, &mut wipes);
            } else {
                self.put(start, piece);
            }
        }
        self.renumber(&was);
        self.tags_changed(&before);
        Ok((lost, wipes))
    }

    /// Adds the FM's reference to `tag`: its capacity stays when the last group releases it. A second reference changes
    /// nothing.
    ///
    /// # Errors
    /// Invalid Input: no capacity has that tag.
    pub fn add_reference(&mut self, tag: Tag) -> Result<(), ReturnCode> {
        let before = self.tags().0;
        if tag == NO_TAG || before.iter().all(|(known, _)| *known != tag) {
            return Err(ReturnCode::InvalidInput);
        }
        self.held.insert(tag);
        self.tags_changed(&before);
        Ok(())
    }

    /// Removes the FM's reference to `tag`, and frees pieces without a group. Returns the ranges to be zeroed.
    ///
    /// # Errors
    /// Invalid Input: there is no such reference.
    pub fn remove_reference(&mut self, tag: Tag) -> Result<Wipes, ReturnCode> {
        let (before, was) = (self.tags().0, self.pieces.clone());
        if !self.held.remove(&tag) {
            return Err(ReturnCode::InvalidInput);
        }
        let mut wipes = Wipes::new();
        let orphans = self.pieces.iter().filter(|(_, piece)| piece.tag == tag && piece.groups == 0);
        // Collected first, as freeing changes `pieces`.
        for (start, piece) in orphans.map(|(start, piece)| (*start, *piece)).collect::<Vec<_>>() {
            self.pieces.remove(&start);
            self.drop_piece(start, &piece, &mut wipes);
        }
        self.renumber(&was);
        self.tags_changed(&before);
        Ok(wipes)
    }

    fn region(&self, id: u8) -> Result<Region, ReturnCode> {
        self.regions.get(usize::from(id)).copied().flatten().ok_or(ReturnCode::InvalidInput)
    }

    /// `len` free bytes of `region`, from its lowest address on; contiguous if `whole`.
    fn free(&self, region: Region, len: u64, whole: bool) -> Result<Vec<(u64, u64)>, ReturnCode> {
        if len == 0 || !len.is_multiple_of(region.block) {
            return Err(ReturnCode::InvalidInput);
        }
        let end = region.base.0 + region.len; // both lie in the device
        let (mut at, mut left, mut found) = (region.base.0, len, Vec::new());
        // Pieces lie in one region each, so none begins in front of `at` and reaches into it.
        let used = self.pieces.range(at..end).map(|(start, piece)| (*start, piece.len));
        // The end of the region closes the last gap.
        for (start, used_len) in used.chain([(end, 0)]) {
            let gap = start - at;
            let take = if whole && gap < len { 0 } else { gap.min(left) };
            if take > 0 {
                found.push((at, take));
                left -= take;
            }
            if left == 0 {
                return Ok(found);
            }
            at = start + used_len;
        }
        Err(ReturnCode::ResourcesExhausted)
    }

    /// The ranges of `extents`, all of which must be free blocks of `region`.
    fn prescribed(
        &self,
        region: Region,
        extents: &[Extent],
    ) -> Result<Vec<(u64, u64)>, ReturnCode> {
        if extents.iter().any(|e| !within(e.start.0, e.len, region.base.0, region.len)) {
            return Err(ReturnCode::InvalidPhysicalAddress);
        }
        // Behind the check above, which makes sure that no start lies below the base.
        let ranges = ranges(extents, |start| (start - region.base.0, region.block))?;
        if ranges.iter().any(|(start, len)| self.used(*start, *len)) {
            return Err(ReturnCode::ResourcesExhausted);
        }
        Ok(ranges)
    }

    fn used(&self, start: u64, len: u64) -> bool {
        let before = self.pieces.range(..start.saturating_add(len)).next_back();
        before.is_some_and(|(at, piece)| overlap(*at, piece.len, start, len))
    }

    /// Gives all pieces of `tag` to one more group.
    fn share(&mut self, group: GrpId, tag: Tag) -> Result<Vec<Extent>, ReturnCode> {
        let named = self.pieces.iter().filter(|(_, piece)| piece.tag == tag);
        let mut shared: Vec<(u64, Piece)> = named.map(|(start, piece)| (*start, *piece)).collect();
        let may = |(start, piece): &(u64, Piece)| {
            piece.groups & group.bit() == 0 && (piece.groups == 0 || self.is_sharable(*start))
        };
        if tag == NO_TAG || shared.is_empty() || !shared.iter().all(may) {
            return Err(ReturnCode::InvalidInput);
        }
        // In the order of adding, as the shared sequence numbers have it.
        shared.sort_by_key(|(start, piece)| (piece.sequence, *start));
        for (start, piece) in &mut shared {
            piece.groups |= group.bit();
            self.put(*start, *piece);
        }
        self.changed(group.bit());
        Ok(shared.iter().map(|(start, piece)| extent(*start, piece)).collect())
    }

    fn dmp_of(&self, dpa: u64) -> Option<&Dmp> {
        self.dmps.iter().flatten().find(|dmp| within(dpa, 1, dmp.base.0, dmp.len))
    }

    fn is_sharable(&self, dpa: u64) -> bool {
        self.dmp_of(dpa).is_some_and(|dmp| dmp.media.sharable)
    }

    /// The last `len` bytes that `group` has under `tag`.
    fn last_of_tag(&self, group: GrpId, tag: Tag, len: u64) -> Result<Vec<(u64, u64)>, ReturnCode> {
        let named = self.pieces.iter().filter(|(_, p)| p.tag == tag && p.groups & group.bit() != 0);
        let mut found: Vec<(u64, Piece)> = named.map(|(start, piece)| (*start, *piece)).collect();
        found.sort_by_key(|(start, piece)| (piece.sequence, *start));
        let all: u64 = found.iter().map(|(_, piece)| piece.len).sum();
        let mut left = if len == 0 { all } else { len };
        if found.is_empty() || left > all {
            return Err(ReturnCode::InvalidInput);
        }
        let mut ranges = Vec::new();
        for (start, piece) in found.iter().rev() {
            let take = left.min(piece.len);
            if !take.is_multiple_of(self.dmp_of(*start).map_or(1, |dmp| dmp.block)) {
                return Err(ReturnCode::InvalidInput);
            }
            if take > 0 {
                ranges.push((start + (piece.len - take), take));
            }
            left -= take;
        }
        Ok(ranges)
    }

    /// The ranges of `extents`, each of which must lie within one piece of `group`.
    fn owned(&self, group: GrpId, extents: &[Extent]) -> Result<Vec<(u64, u64)>, ReturnCode> {
        // Outside every partition: offset 1 in blocks of 2, which is refused as misaligned.
        let grid = |start| self.dmp_of(start).map_or((1, 2), |dmp| (start - dmp.base.0, dmp.block));
        let ranges = ranges(extents, grid)?;
        let is_owned = |(start, len): &(u64, u64)| {
            self.pieces.range(..=*start).next_back().is_some_and(|(at, piece)| {
                piece.groups & group.bit() != 0 && within(*start, *len, *at, piece.len)
            })
        };
        if ranges.iter().all(is_owned) { Ok(ranges) } else { Err(ReturnCode::InvalidExtentList) }
    }

    /// Most pieces that there can be once each of `ranges` is a piece of its own.
    fn splits(&self, ranges: &[(u64, u64)]) -> usize {
        let new = ranges.iter().map(|(start, len)| {
            let Some((at, piece)) = self.pieces.range(..=*start).next_back() else { return 0 };
            usize::from(at < start) + usize::from(start + len < at + piece.len)
        });
        self.pieces.len() + new.sum::<usize>()
    }

    /// Cuts `start..start + len` out of the piece that contains it, and returns it as a piece.
    fn cut(&mut self, start: u64, len: u64) -> Option<Piece> {
        let (&at, &piece) = self.pieces.range(..=start).next_back()?;
        self.pieces.remove(&at);
        let (front, back) = (start - at, (at + piece.len) - (start + len));
        if front > 0 {
            self.pieces.insert(at, Piece { len: front, ..piece });
        }
        if back > 0 {
            self.pieces.insert(start + len, Piece { len: back, ..piece });
        }
        Some(Piece { len, ..piece })
    }

    /// Inserts a piece, and enters its groups in the MGT.
    fn put(&mut self, start: u64, piece: Piece) {
        self.mgt.set(start, piece.len, piece.groups);
        self.pieces.insert(start, piece);
    }

    /// Frees a piece without holders; adds it to `wipes` if piece, partition or region requests zeros.
    fn drop_piece(&mut self, start: u64, piece: &Piece, wipes: &mut Wipes) {
        self.mgt.set(start, piece.len, 0);
        let by_dmp = self.dmp_of(start).is_some_and(|dmp| dmp.media.sanitize);
        let mut regions = self.regions.iter().flatten();
        let by_region = regions.any(|r| r.sanitize && within(start, 1, r.base.0, r.len));
        if piece.wipe || by_dmp || by_region {
            wipes.push((start, piece.len));
        }
    }

    /// Counts up the generation of all groups that have a piece of `tag`, except `besides`.
    pub(crate) fn retell(&mut self, tag: Tag, besides: Option<GrpId>) {
        let pieces = self.pieces.values().filter(|piece| tag != NO_TAG && piece.tag == tag);
        let groups = pieces.fold(0, |groups, piece| groups | piece.groups);
        self.changed(groups & !besides.map_or(0, GrpId::bit));
    }

    /// Renumbers the pieces of each tag from 1 on, in their old order, and counts up the generation of each group whose
    /// list differs from the one in `were`.
    fn renumber(&mut self, were: &BTreeMap<u64, Piece>) {
        let numbered = self.pieces.iter_mut().filter(|(_, piece)| piece.sequence > 0);
        let mut numbered: Vec<(u64, &mut Piece)> = numbered.map(|(at, it)| (*at, it)).collect();
        numbered.sort_by_key(|(start, piece)| (piece.tag, piece.sequence, *start));
        let (mut last, mut of) = (0_u16, NO_TAG);
        for (_, piece) in numbered {
            last = if piece.tag == of { last.saturating_add(1) } else { 1 };
            (of, piece.sequence) = (piece.tag, last);
        }
        let differs = |one: &BTreeMap<u64, Piece>, other: &BTreeMap<u64, Piece>| {
            one.iter().fold(0, |groups, (start, piece)| match other.get(start) {
                Some(it)
                    if (it.len, it.sequence, it.tag) == (piece.len, piece.sequence, piece.tag) =>
                {
                    groups | (piece.groups ^ it.groups)
                }
                _ => groups | piece.groups,
            })
        };
        self.changed(differs(were, &self.pieces) | differs(&self.pieces, were));
    }

    fn changed(&mut self, groups: u64) {
        for (k, generation) in self.generations.iter_mut().enumerate() {
            *generation = generation.wrapping_add(u32::from(groups & (1 << k) != 0));
        }
    }

    fn tags_changed(&mut self, before: &[(Tag, bool)]) {
        let changed = self.tags().0 != before;
        self.tags_generation = self.tags_generation.wrapping_add(u32::from(changed));
    }

    /// Numbers of a tag's pieces, in order of address.
    #[cfg(test)]
    pub(super) fn numbers(&self, tag: Tag) -> Vec<u16> {
        self.pieces.values().filter(|piece| piece.tag == tag).map(|piece| piece.sequence).collect()
    }

    /// Everything except the generations, for comparisons.
    #[cfg(test)]
    pub(super) fn image(&self) -> String {
        format!("{:?} {:?} {:?} {:?}", self.pieces, self.held, self.regions, self.mgt.blocks())
    }
}

/// The ranges of a list, which must not be empty or overlap, and must consist of whole blocks. `grid` returns an
/// address's offset in its grid of blocks, and the block size.
fn ranges(
    extents: &[Extent],
    grid: impl Fn(u64) -> (u64, u64),
) -> Result<Vec<(u64, u64)>, ReturnCode> {
    let is_blocks = |extent: &Extent| {
        let (off, block) = grid(extent.start.0);
        extent.len > 0
            && off.is_multiple_of(block)
            && extent.len.is_multiple_of(block)
            && extent.start.0.checked_add(extent.len).is_some()
    };
    let mut seen = BTreeMap::new();
    for extent in extents {
        let (start, len) = (extent.start.0, extent.len);
        let before = seen.range(..start.saturating_add(len)).next_back();
        if !is_blocks(extent) || before.is_some_and(|(at, l)| overlap(*at, *l, start, len)) {
            return Err(ReturnCode::InvalidExtentList);
        }
        seen.insert(start, len);
    }
    if extents.is_empty() {
        return Err(ReturnCode::InvalidExtentList);
    }
    Ok(extents.iter().map(|extent| (extent.start.0, extent.len)).collect())
}

const fn extent(start: u64, piece: &Piece) -> Extent {
    Extent { start: Dpa(start), len: piece.len, tag: piece.tag, sequence: piece.sequence }
}
