//! Media partitions (DMPs) of GFDs, with one region of dynamic capacity in each.
//!
//! [`Partition`]s are read from `KIND:SIZE[:BLOCK]`; [`set`] sends them (4906h and 4903h) and reads them back;
//! [`regions`] and [`dmps`] report the present ones.
//!
//! Partitions lie one behind the other from DPA 0 in the order in which they are wanted, and region n is all of
//! partition n. A GFD that has them already is sent nothing, and one whose memory is in use keeps its partitions.
//!
//! Source: CXL 3.1 section 7.7.2.3; docs/spec/wire-formats.md §4.7 (4900h, 4902h, 4903h, 4905h, 4906h).

use std::fmt;
use std::str::FromStr;

use serde::{Deserialize, Deserializer, Serialize};
use weft_parsers::cci::gfd::{
    DcRegions, DmpEntry, Dmps, GfdIdentity, GfdRange, SetDcRegion, SetDmps,
};
use weft_parsers::cci::{List, Opcode, Request};
use weft_parsers::fabric::{Dpa, Pid};

use crate::cci::{CallError, CciSession, Way};
use crate::model::text::parse_size;

/// Unit of bases and sizes of partitions and of capacities of GFDs: 256 MiB.
pub const UNIT: u64 = 256 << 20;
/// Largest number of partitions in a GFD.
pub const PARTITIONS_MAX: u8 = 4;
/// Largest number of regions in a GFD.
const REGIONS_MAX: u8 = 8;
/// Default block size, unless that makes too many blocks.
const BLOCK: u64 = 16 << 20;
/// Blocks of a partition at most: the memory group table has an entry for each.
const BLOCKS_MAX: u64 = 1 << 16;
/// Flags of a partition that are set and compared.
const FLAGS: u8 = DmpEntry::NON_VOLATILE | DmpEntry::DC_MANAGED | DmpEntry::READ_ONLY;

/// Kind of memory.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum Media {
    Dram,
    Pm,
}

impl Media {
    /// Kind of memory by the flags of a partition.
    #[must_use]
    pub const fn of(flags: u8) -> Self {
        if flags & DmpEntry::NON_VOLATILE == 0 { Self::Dram } else { Self::Pm }
    }

    const fn flags(self) -> u8 {
        match self {
            Self::Dram => DmpEntry::DC_MANAGED,
            Self::Pm => DmpEntry::DC_MANAGED | DmpEntry::NON_VOLATILE,
        }
    }
}

impl fmt::Display for Media {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::Dram => "dram",
            Self::Pm => "pm",
        })
    }
}

impl FromStr for Media {
    type Err = String;

    fn from_str(text: &str) -> Result<Self, String> {
        match text {
            "dram" => Ok(Self::Dram),
            "pm" => Ok(Self::Pm),
            _ => Err(format!("expected dram or pm, found {text:?}")),
        }
    }
}

/// A partition that is wanted: `KIND:SIZE[:BLOCK]`, such as `pm:256MiB` or `dram:1GiB:64MiB`.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Partition {
    pub media: Media,
    /// Bytes, a multiple of [`UNIT`].
    pub len: u64,
    /// Block size in bytes.
    pub block: u64,
}

impl FromStr for Partition {
    type Err = String;

    fn from_str(text: &str) -> Result<Self, String> {
        let bad = |why: String| format!("partition {text:?}: {why}");
        let mut parts = text.split(':');
        let kind = parts.next().unwrap_or_default().parse().map_err(bad)?;
        let shape = || bad("expected KIND:SIZE or KIND:SIZE:BLOCK".to_owned());
        let len = parse_size(parts.next().ok_or_else(shape)?).map_err(bad)?;
        let block = parts.next().map(parse_size).transpose().map_err(bad)?;
        if parts.next().is_some() {
            return Err(shape());
        }
        Self::new(kind, len, block).map_err(bad)
    }
}

impl Partition {
    /// A partition of `len` bytes; without `block` with a suitable block size.
    ///
    /// # Errors
    /// The size is 0 or no multiple of 256 MiB; the block is no power of two from 4 KiB to 1 TiB, does not divide the
    /// size, or makes more than 65,536 blocks.
    pub fn new(media: Media, len: u64, block: Option<u64>) -> Result<Self, String> {
        if len == 0 || !len.is_multiple_of(UNIT) {
            return Err(format!("expected a multiple of 256MiB, found {len:#x} bytes"));
        }
        // The smallest block that makes no more than `BLOCKS_MAX` of them.
        let least = (len / BLOCKS_MAX).checked_next_power_of_two().unwrap_or(1 << 63);
        let block = block.unwrap_or_else(|| BLOCK.max(least));
        if !block.is_power_of_two() || !(1 << 12..=1 << 40).contains(&block) {
            let why = "expected a block of a power of two from 4KiB to 1TiB";
            return Err(format!("{why}, found {block:#x} bytes"));
        }
        if !len.is_multiple_of(block) {
            return Err(format!("its size is no multiple of its block of {block:#x} bytes"));
        }
        if len / block > BLOCKS_MAX {
            return Err(format!("{} blocks are more than {BLOCKS_MAX}", len / block));
        }
        Ok(Self { media, len, block })
    }
}

impl<'de> Deserialize<'de> for Partition {
    fn deserialize<D: Deserializer<'de>>(from: D) -> Result<Self, D::Error> {
        String::deserialize(from)?.parse().map_err(serde::de::Error::custom)
    }
}

impl fmt::Display for Partition {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self { media, len, block } = self;
        write!(f, "{media}:{}:{}", short(*len), short(*block))
    }
}

/// A size in the largest unit that it is a multiple of.
#[must_use]
pub fn short(bytes: u64) -> String {
    let units = [("GiB", 30), ("MiB", 20), ("KiB", 10)];
    let unit = units.into_iter().find(|(_, shift)| bytes.is_multiple_of(1 << shift));
    unit.map_or_else(|| bytes.to_string(), |(unit, shift)| format!("{}{unit}", bytes >> shift))
}

pub(crate) fn list(all: &[Partition]) -> String {
    if all.is_empty() {
        return "none".to_owned();
    }
    all.iter().map(Partition::to_string).collect::<Vec<_>>().join(", ")
}

/// Sum of the bytes of all partitions of a GFD.
///
/// # Errors
/// There is none, or more than 4, or their sum does not fit 64 bits.
pub fn total(wanted: &[Partition]) -> Result<u64, String> {
    if wanted.is_empty() || wanted.len() > usize::from(PARTITIONS_MAX) {
        let had = wanted.len();
        return Err(format!("expected 1 to {PARTITIONS_MAX} partitions, found {had}"));
    }
    let sum = wanted.iter().try_fold(0_u64, |sum, one| sum.checked_add(one.len));
    sum.ok_or_else(|| "the partitions have more bytes than 64 bits count".to_owned())
}

/// Why no wanted partition has room for `len` bytes of a kind of memory; `None` if one has.
#[must_use]
pub fn lacks(wanted: &[Partition], len: u64, media: Option<Media>) -> Option<String> {
    let of_kind = |one: &&Partition| media.is_none_or(|media| one.media == media);
    if wanted.iter().filter(of_kind).any(|one| one.len >= len) {
        return None;
    }
    let kind = media.map_or_else(String::new, |media| format!(" of {media}"));
    Some(format!("no partition{kind} with {len:#x} bytes"))
}

/// Why partitions of a GFD were not set.
#[derive(Debug, thiserror::Error)]
pub enum MediaError {
    #[error("its partitions are not set")]
    Call(#[from] CallError),
    /// The GFD cannot have these partitions.
    #[error("its partitions are not set: {0}")]
    Misfit(String),
    /// Memory of the GFD is in use.
    #[error(
        "it has partitions {has}, not {wanted}, and they stay while memory of it is in use: release it first"
    )]
    InUse { has: String, wanted: String },
}

/// A partition of a GFD.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Dmp {
    pub index: u8,
    pub media: Media,
    /// DPA of the first byte.
    pub dpa: u64,
    pub size: u64,
    /// Block size in bytes.
    pub block: u64,
}

/// A region of dynamic capacity of a GFD, and the kind of memory of the partition that it lies in.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Region {
    pub id: u8,
    pub media: Media,
    /// DPA of the first byte.
    pub base: u64,
    pub len: u64,
    /// Block size in bytes.
    pub block: u64,
}

/// Partitions and regions as a GFD reports them.
struct Found {
    /// Largest number of partitions that it supports.
    available: u8,
    dmps: Vec<DmpEntry>,
    regions: Vec<Region>,
    /// Whether some capacity belongs to a group.
    in_use: bool,
}

impl Found {
    fn read(fabric: &mut CciSession, gfd: Pid) -> Result<Self, CallError> {
        let (available, dmps) = entries(fabric, gfd)?;
        let request = Request::GetDcRegions(GfdRange { count: REGIONS_MAX, start: 0 });
        let answer = fabric.call(Way::Pid(gfd), &request)?;
        let told = answer.read::<DcRegions<'_>>()?;
        // The list has all regions that there may be, unused ones included, so the place of one is its number.
        let region = |(id, one): (u8, weft_parsers::cci::gfd::DcRegion)| {
            // A base below the partition wraps to a large number, so one comparison checks both bounds.
            let home = dmps.iter().find(|dmp| one.base.0.wrapping_sub(dmp.base.0) < dmp.len);
            let (base, len, block) = (one.base.0, one.len, one.block);
            let media = home.map_or(Media::Dram, |dmp| Media::of(dmp.flags));
            (len > 0 && block > 0).then_some(Region { id, media, base, len, block })
        };
        let regions = (0..).zip(told.regions.iter()).filter_map(region).collect();
        let in_use = told.totals.extents_free < told.totals.extents;
        Ok(Self { available, dmps, regions, in_use })
    }

    /// Whether partitions and regions are as wanted.
    fn is(&self, wanted: &[Partition]) -> bool {
        let (dmps, regions) = (&self.dmps, &self.regions);
        let fits = |(number, base, one): (u8, u64, &Partition)| {
            let is_dmp = |dmp: &&DmpEntry| {
                (dmp.index, dmp.base.0, dmp.len, dmp.block) == (number, base, one.len, one.block)
                    && dmp.flags & FLAGS == one.media.flags()
            };
            let is_region = |region: &&Region| {
                (region.id, region.base, region.len, region.block)
                    == (number, base, one.len, one.block)
            };
            dmps.iter().any(|dmp| is_dmp(&dmp)) && regions.iter().any(|one| is_region(&one))
        };
        let count = wanted.len();
        (dmps.len(), regions.len()) == (count, count) && placed(wanted).all(fits)
    }

    fn text(&self) -> String {
        let partition = |dmp: &DmpEntry| Partition {
            media: Media::of(dmp.flags),
            len: dmp.len,
            block: dmp.block,
        };
        list(&self.dmps.iter().map(partition).collect::<Vec<_>>())
    }
}

/// Partitions with their numbers and first addresses.
fn placed(wanted: &[Partition]) -> impl Iterator<Item = (u8, u64, &Partition)> {
    let mut next = 0_u64;
    (0..).zip(wanted).map(move |(number, one)| {
        let base = next;
        next = next.saturating_add(one.len);
        (number, base, one)
    })
}

/// Largest number of partitions of a GFD, and its present ones.
fn entries(fabric: &mut CciSession, gfd: Pid) -> Result<(u8, Vec<DmpEntry>), CallError> {
    let request = Request::GetDmps(GfdRange { count: PARTITIONS_MAX, start: 0 });
    let answer = fabric.call(Way::Pid(gfd), &request)?;
    let told = answer.read::<Dmps<'_>>()?;
    Ok((told.available, told.entries.iter().filter(|dmp| dmp.len > 0).collect()))
}

/// The present partitions of a GFD.
///
/// # Errors
/// The GFD does not answer.
pub fn dmps(fabric: &mut CciSession, gfd: Pid) -> Result<Vec<Dmp>, CallError> {
    let (_, entries) = entries(fabric, gfd)?;
    let dmp = |one: &DmpEntry| Dmp {
        index: one.index,
        media: Media::of(one.flags),
        dpa: one.base.0,
        size: one.len,
        block: one.block,
    };
    Ok(entries.iter().map(dmp).collect())
}

/// Regions of a GFD that capacity comes from, by number.
///
/// # Errors
/// The GFD does not answer.
pub fn regions(fabric: &mut CciSession, gfd: Pid) -> Result<Vec<Region>, CallError> {
    Ok(Found::read(fabric, gfd)?.regions)
}

/// Sets the wanted partitions of a GFD with a region in each; returns false if it has them already.
///
/// # Errors
/// The GFD cannot have them, its memory is in use, a command failed, or other values are read back. Setting again
/// continues from the state at hand.
pub fn set(fabric: &mut CciSession, gfd: Pid, wanted: &[Partition]) -> Result<bool, MediaError> {
    let answer = fabric.call(Way::Pid(gfd), &Request::IdentifyGfd)?;
    let identity = answer.read::<GfdIdentity>()?;
    let found = Found::read(fabric, gfd)?;
    check(&identity, found.available, wanted).map_err(MediaError::Misfit)?;
    if found.is(wanted) {
        return Ok(false);
    }
    if found.in_use {
        // Partitions must not change under capacity of a group (4906h refuses); hosts may be using it.
        return Err(MediaError::InUse { has: found.text(), wanted: list(wanted) });
    }
    set_dmps(fabric, gfd, wanted, &found)?;
    for (number, base, one) in placed(wanted) {
        let sanitize = identity.sanitize & 1 << number != 0;
        let Partition { media, len, block } = *one;
        set_region(fabric, gfd, Region { id: number, media, base, len, block }, sanitize)?;
    }
    let found = Found::read(fabric, gfd)?;
    if found.is(wanted) {
        return Ok(true);
    }
    let what = "partitions and regions do not have the values that were set";
    Err(CallError::Unexpected { way: Way::Pid(gfd), opcode: Opcode::SET_DMPS, what }.into())
}

/// Checks whether a GFD can have these partitions.
fn check(identity: &GfdIdentity, available: u8, wanted: &[Partition]) -> Result<(), String> {
    let sum = total(wanted)?;
    let most = available.min(identity.regions);
    if wanted.len() > usize::from(most) {
        return Err(format!("{} are wanted, and it can have {most}", wanted.len()));
    }
    let has = identity.capacity.saturating_mul(UNIT);
    if sum > has {
        return Err(format!("they have {}, and it has {}", short(sum), short(has)));
    }
    for (one, masks) in
        wanted.iter().zip(identity.partition_blocks.iter().zip(&identity.region_blocks))
    {
        if one.block & masks.0 & masks.1 == 0 {
            return Err(format!("it offers no blocks of {}", short(one.block)));
        }
    }
    Ok(())
}

/// Sends a command whose answer may be lost, as the result is read back in any case.
fn send(fabric: &mut CciSession, gfd: Pid, request: &Request<'_>) -> Result<(), CallError> {
    match fabric.call(Way::Pid(gfd), request) {
        Err(error) if error.is_refusal() => Err(error),
        Ok(_) | Err(_) => Ok(()),
    }
}

/// Clears regions first, because an old one may lie across two new partitions, then sets all partitions by one command.
fn set_dmps(
    fabric: &mut CciSession,
    gfd: Pid,
    wanted: &[Partition],
    found: &Found,
) -> Result<(), CallError> {
    for region in &found.regions {
        set_region(fabric, gfd, Region { len: 0, ..*region }, false)?;
    }
    let sanitize = false; // each release of capacity says it
    let dmp = |(index, base, one): (u8, u64, &Partition)| {
        let (len, block, flags) = (one.len, one.block, one.media.flags());
        DmpEntry { base: Dpa(base), decode_len: len, len, block, flags, index, sanitize }
    };
    let mut entries: Vec<DmpEntry> = placed(wanted).map(dmp).collect();
    let (base, flags) = (Dpa(0), DmpEntry::DC_MANAGED);
    let block = wanted.first().map_or(BLOCK, |one| one.block);
    // Partitions beyond the wanted ones are set to length 0, or they would stay.
    let last = found.dmps.iter().map(|dmp| dmp.index).max().unwrap_or(0);
    let gone = (0..=last).skip(wanted.len());
    entries.extend(gone.map(|index| {
        let (decode_len, len) = (0, 0);
        DmpEntry { base, decode_len, len, block, flags, index, sanitize }
    }));
    let set = SetDmps { start: 0, entries: List::of(&entries) };
    send(fabric, gfd, &Request::SetDmps(set))
}

fn set_region(
    fabric: &mut CciSession,
    gfd: Pid,
    region: Region,
    sanitize: bool,
) -> Result<(), CallError> {
    let Region { id, base, len, block, .. } = region;
    let (base, decode_len) = (Dpa(base), len.div_ceil(UNIT));
    let set = SetDcRegion { region: id, block, sanitize, base, decode_len, len };
    send(fabric, gfd, &Request::SetDcRegion(set))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_partition_is_read_and_shown() {
        #[rustfmt::skip] // columns: text, how it is shown
        let cases = [
            ("dram:512MiB",         "dram:512MiB:16MiB"),
            ("pm:256MiB:256MiB",    "pm:256MiB:256MiB"),
            ("pm:1GiB:4MiB",        "pm:1GiB:4MiB"),
            ("dram:268435456:4KiB", "dram:256MiB:4KiB"),
            ("dram:1TiB",           "dram:1024GiB:16MiB"),
            ("dram:1536GiB",        "dram:1536GiB:32MiB"),
        ];
        for (text, want) in cases {
            let read: Partition = text.parse().unwrap();
            assert_eq!(read.to_string(), want, "{text}");
            assert_eq!(want.parse(), Ok(read), "{text}");
        }
    }

    #[test]
    fn what_is_no_partition_says_why() {
        #[rustfmt::skip] // columns: text, part of the error
        let cases = [
            ("flash:256MiB",       "expected dram or pm, found \"flash\""),
            ("PM:256MiB",          "expected dram or pm"),
            ("",                   "expected dram or pm"),
            ("pm",                 "expected KIND:SIZE"),
            ("pm:256MiB:4KiB:1",   "expected KIND:SIZE"),
            ("pm:256mb",           "expected bytes"),
            ("pm:256MB",           "expected a multiple of 256MiB"),
            ("pm:-1",              "expected bytes"),
            ("pm:0",               "a multiple of 256MiB, found 0x0"),
            ("pm:100MiB",          "a multiple of 256MiB"),
            ("pm:256MiB:",         "expected bytes"),
            ("pm:256MiB:0",        "a power of two from 4KiB"),
            ("pm:256MiB:2KiB",     "a power of two from 4KiB"),
            ("pm:768MiB:3MiB",     "a power of two"),
            ("pm:256MiB:512MiB",   "no multiple of its block"),
            ("pm:768MiB:512MiB",   "no multiple of its block"),
            ("pm:512MiB:4KiB",     "131072 blocks are more than 65536"),
            ("pm:4096TiB:2TiB",    "a power of two from 4KiB"),
        ];
        for (text, part) in cases {
            let error = text.parse::<Partition>().unwrap_err();
            assert!(
                error.contains(part) && error.contains(&format!("{text:?}")),
                "{text}: {error}"
            );
        }
    }

    #[test]
    fn a_gfd_has_one_to_four_partitions_within_its_memory() {
        let all =
            |count: usize, len: u64| vec![Partition { media: Media::Pm, len, block: BLOCK }; count];
        assert_eq!(total(&all(4, UNIT)), Ok(4 * UNIT));
        assert!(total(&all(0, UNIT)).unwrap_err().contains("1 to 4 partitions, found 0"));
        assert!(total(&all(5, UNIT)).unwrap_err().contains("1 to 4 partitions, found 5"));
        assert!(total(&all(2, 1 << 63)).unwrap_err().contains("64 bits"));
    }
}
