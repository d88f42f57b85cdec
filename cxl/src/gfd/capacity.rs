//! Dynamic capacity: which blocks belong to which groups, under which tags.
//! [`Capacity`] of partitions, regions and pieces (start -> length, tag, groups); each change is
//! worked out as a list of pieces first, then applied whole, and every applied range goes to the MGT.
//!
//! Units: bytes.
//! Source: docs/spec/wire-formats.md §4.7 (4902 to 490B); CXL 3.1 sections 7.7.2.3 and 7.7.13.
//!
//! Decided here, where the pages say nothing:
//! - Free and contiguous take the lowest addresses that do.
//! - A tag other than zero names one allocation. Adding under a tag in use is Invalid Input, unless
//!   the capacity belongs to the same group alone and to no reference.
//! - Enable shared access gives all of a tag's pieces to one more group; their partition must be
//!   sharable. It also brings back what only the FM's reference still holds, sharable or not.
//! - Release by tag gives back the last pieces first; length 0 means all of the tag.
//! - Pieces that the FM refers to stay when their last group goes, without a group, until the reference
//!   is removed. Pieces in sharable memory under a tag are numbered from 1, in the order of adding.
//! - A group's generation counts up with each change of its list; that of the tags with each change
//!   of theirs.

use std::collections::{BTreeMap, BTreeSet};

use weft_parsers::fabric::Dpa;

use super::code::ReturnCode;
use super::dmp::{self, Dmp, REGIONS, Region, overlap, within};
use super::protect::{DMPS, GROUPS, GrpId, Mgt};

/// Most pieces of a device.
pub const EXTENTS_MAX: usize = 4_096;
/// Most tags of a device.
pub const TAGS_MAX: usize = 1_024;

/// Name of an allocation; all zeros is none.
pub type Tag = [u8; 16];
/// No name.
pub const NO_TAG: Tag = [0; 16];

/// A range of dynamic capacity that belongs to a group.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Extent {
    /// First address.
    pub start: Dpa,
    /// Bytes.
    pub len: u64,
    /// Name of the allocation.
    pub tag: Tag,
    /// Place among the extents of a sharable tag, from 1; 0 elsewhere.
    pub sequence: u16,
}

/// How Add Capacity chooses what to add.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Choice<'a> {
    /// Any free blocks of a region, for `len` bytes.
    Free {
        /// Region.
        region: u8,
        /// Bytes.
        len: u64,
    },
    /// Free blocks beside each other.
    Contiguous {
        /// Region.
        region: u8,
        /// Bytes.
        len: u64,
    },
    /// Exactly these; only start and length count.
    Prescriptive {
        /// Region.
        region: u8,
        /// Ranges.
        extents: &'a [Extent],
    },
    /// What is there already under the tag.
    EnableShared,
}

/// What Release Capacity gives back.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Part<'a> {
    /// So many bytes of a tag; 0: all.
    Tag {
        /// The tag.
        tag: Tag,
        /// Bytes.
        len: u64,
    },
    /// Exactly these; only start and length count.
    Prescriptive(&'a [Extent]),
}

/// A range of memory in use.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
struct Piece {
    len: u64,
    tag: Tag,
    groups: u64, // empty: only the FM's reference holds it
    sequence: u16,
    wipe: bool, // a group asked for zeros when it is freed
}

/// Ranges whose memory has to become zero, as start and length.
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
    /// Nothing configured, in a device of `size` bytes.
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

    /// Partitions by index.
    #[must_use]
    pub const fn dmps(&self) -> &[Option<Dmp>; DMPS] {
        &self.dmps
    }

    /// Regions by id.
    #[must_use]
    pub const fn regions(&self) -> &[Option<Region>; REGIONS] {
        &self.regions
    }

    /// The group tables that follow from the pieces.
    #[must_use]
    pub const fn mgt(&self) -> &Mgt {
        &self.mgt
    }

    /// Bytes of the device.
    #[must_use]
    pub const fn size(&self) -> u64 {
        self.size
    }

    /// Pieces in use, also those without a group.
    #[must_use]
    pub fn extent_count(&self) -> usize {
        self.pieces.len()
    }

    /// Changes partitions. Regions that no longer fit are taken away.
    ///
    /// # Errors
    /// Invalid Input: any capacity is in use, or [`dmp::changed`] refuses. Nothing changed.
    pub fn set_dmps(&mut self, changes: &[Dmp]) -> Result<(), ReturnCode> {
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

    /// Changes a region; length 0 takes it away.
    ///
    /// # Errors
    /// Invalid Input: capacity of it is in use, or [`Region::check`] refuses. Nothing changed.
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

    /// Gives capacity to `group` under `tag`; returns what it got.
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

    /// Takes capacity from `group`; returns what it lost, and what is to be wiped.
    ///
    /// What other groups or a reference still hold stays in use for them. `sanitize` asks for zeros
    /// when the memory is freed, as partition and region may do too.
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

    /// Lets the FM refer to `tag`: its capacity stays when the last group goes. Twice is as once.
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

    /// Ends the FM's reference to `tag`; what nobody else holds is freed. Returns what is to be wiped.
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

    /// `len` bytes of `region` that nobody has, from its lowest address on.
    fn free(&self, region: Region, len: u64, whole: bool) -> Result<Vec<(u64, u64)>, ReturnCode> {
        if len == 0 || !len.is_multiple_of(region.block) {
            return Err(ReturnCode::InvalidInput);
        }
        let end = region.base.0 + region.len; // both lie in the device
        let (mut at, mut left, mut found) = (region.base.0, len, Vec::new());
        let used = self.pieces.range(at..end).map(|(start, piece)| (*start, piece.len));
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

    /// The ranges of `extents`, all of them free blocks of `region`.
    fn prescribed(
        &self,
        region: Region,
        extents: &[Extent],
    ) -> Result<Vec<(u64, u64)>, ReturnCode> {
        if extents.iter().any(|e| !within(e.start.0, e.len, region.base.0, region.len)) {
            return Err(ReturnCode::InvalidPhysicalAddress);
        }
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

    /// Gives all of `tag` to one more group.
    fn share(&mut self, group: GrpId, tag: Tag) -> Result<Vec<Extent>, ReturnCode> {
        let named = self.pieces.iter().filter(|(_, piece)| piece.tag == tag);
        let mut shared: Vec<(u64, Piece)> = named.map(|(start, piece)| (*start, *piece)).collect();
        let may = |(start, piece): &(u64, Piece)| {
            piece.groups & group.bit() == 0 && (piece.groups == 0 || self.is_sharable(*start))
        };
        if tag == NO_TAG || shared.is_empty() || !shared.iter().all(may) {
            return Err(ReturnCode::InvalidInput);
        }
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

    /// The ranges of `extents`, each within one piece of `group`.
    fn owned(&self, group: GrpId, extents: &[Extent]) -> Result<Vec<(u64, u64)>, ReturnCode> {
        let grid = |start| self.dmp_of(start).map_or((1, 2), |dmp| (start - dmp.base.0, dmp.block));
        let ranges = ranges(extents, grid)?;
        let is_owned = |(start, len): &(u64, u64)| {
            self.pieces.range(..=*start).next_back().is_some_and(|(at, piece)| {
                piece.groups & group.bit() != 0 && within(*start, *len, *at, piece.len)
            })
        };
        if ranges.iter().all(is_owned) { Ok(ranges) } else { Err(ReturnCode::InvalidExtentList) }
    }

    /// How many pieces there are at most when each of `ranges` is a piece of its own.
    fn splits(&self, ranges: &[(u64, u64)]) -> usize {
        let new = ranges.iter().map(|(start, len)| {
            let Some((at, piece)) = self.pieces.range(..=*start).next_back() else { return 0 };
            usize::from(at < start) + usize::from(start + len < at + piece.len)
        });
        self.pieces.len() + new.sum::<usize>()
    }

    /// Makes `start..start + len`, which lies in one piece, a piece of its own and takes it out.
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

    /// Puts a piece in, and its groups into the table.
    fn put(&mut self, start: u64, piece: Piece) {
        self.mgt.set(start, piece.len, piece.groups);
        self.pieces.insert(start, piece);
    }

    /// What goes with a piece that nobody holds any more.
    fn drop_piece(&mut self, start: u64, piece: &Piece, wipes: &mut Wipes) {
        self.mgt.set(start, piece.len, 0);
        let by_dmp = self.dmp_of(start).is_some_and(|dmp| dmp.media.sanitize);
        let mut regions = self.regions.iter().flatten();
        let by_region = regions.any(|r| r.sanitize && within(start, 1, r.base.0, r.len));
        if piece.wipe || by_dmp || by_region {
            wipes.push((start, piece.len));
        }
    }

    /// Notes that the lists of all who have something of `tag`, but `besides`, are not as they were.
    pub(crate) fn retell(&mut self, tag: Tag, besides: Option<GrpId>) {
        let pieces = self.pieces.values().filter(|piece| tag != NO_TAG && piece.tag == tag);
        let groups = pieces.fold(0, |groups, piece| groups | piece.groups);
        self.changed(groups & !besides.map_or(0, GrpId::bit));
    }

    /// Numbers the pieces of each tag from 1 again, in the order that they had, and notes whose lists are not as they `were`.
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

    /// Numbers of a tag's pieces in order of address.
    #[cfg(test)]
    pub(super) fn numbers(&self, tag: Tag) -> Vec<u16> {
        self.pieces.values().filter(|piece| piece.tag == tag).map(|piece| piece.sequence).collect()
    }

    /// Everything but the generations, for comparisons.
    #[cfg(test)]
    pub(super) fn image(&self) -> String {
        format!("{:?} {:?} {:?} {:?}", self.pieces, self.held, self.regions, self.mgt.blocks())
    }
}

/// The ranges of a list that is not empty, of whole blocks, none of which overlap; `grid` says for an
/// address how far it is from where its blocks are counted from, and their size.
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
