//! Commands of a GFD, 4900h to 490Bh: identity, regions, media partitions, dynamic capacity.
//!
//! A GFD counts capacities in multiples of 256 MB where the field says so, else in bytes.
//!
//! Source: docs/spec/wire-formats.md §4.7; CXL 3.1 section 8.2.9.9.10.

use super::dcd::{AddPolicy, Extent, ReleaseFlags};
use super::layout::{message, record};
use super::wire::{List, Payload, Uuid, Wire, get, room, set, split_list};
use crate::ParseError;
use crate::fabric::Dpa;

record! {
    /// Response of Identify GFD (4900h).
    struct GfdIdentity: 148 {
        /// Media partitions (DMPs), 1..=4.
        0 => partitions: u8,
        /// Regions of dynamic capacity, 1..=8.
        1 => regions: u8,
        /// Groups (`GrpID` values) that the GFD supports.
        2 => groups: u16,
        /// Supported policies of 4907h: bit n for code n of [`AddPolicy`].
        4 => add_policies: u16,
        /// Quality of service telemetry: bits as in [`super::ld::LdInfo::qos`].
        6 => qos: u8,
        /// Supported policies of 4908h: bit n for code n of [`super::dcd::ReleasePolicy`].
        8 => release_policies: u16,
        /// Bit per region whose content can be overwritten on release.
        10 => sanitize: u8,
        /// Total capacity in multiples of 256 MB.
        12 => capacity: u64,
        /// Block sizes of each region: bit n for 2^n bytes.
        20 => region_blocks: [u64; 8],
        /// Block sizes of each partition: bit n for 2^n bytes.
        84 => partition_blocks: [u64; 4],
        /// Capacity that can be volatile only, in multiples of 256 MB.
        116 => volatile_only: u64,
        /// Capacity that can be persistent only, in multiples of 256 MB.
        140 => persistent_only: u64,
    }
}

record! {
    /// Response of Get GFD Status (4901h); the codes of the link are those of a [`super::switch::PortState`].
    struct GfdStatus: 11 {
        /// Status flags of the component.
        0 => flags: u8,
        /// Mode of the link, such as flit mode.
        1 => link_mode: u8,
        /// Lanes of the widest link that the port supports.
        2 => width_max: u8,
        /// Lanes in use.
        3 => width: u8,
        /// Supported link speeds, one bit each.
        4 => speeds: u8,
        /// Code of the fastest supported speed.
        5 => speed_max: u8,
        /// Code of the speed in use.
        6 => speed: u8,
        /// LTSSM state of the link.
        7 => ltssm: u8,
        /// Number of the lowest lane in use.
        8 => first_lane: u8,
        /// Link flags, as in 5101h.
        9 => link_state: u16,
    }
}

record! {
    /// Request of Get DC Region Configuration (4902h) and Get DMP Configuration (4905h).
    struct GfdRange: 4 {
        /// Regions (4902h) or partitions (4905h) to return at most.
        2 => count: u8,
        /// Index of the first one, from 0.
        3 => start: u8,
    }
}

record! {
    /// A region of dynamic capacity.
    struct DcRegion: 40 {
        /// DPA of the first byte.
        0 => base: Dpa,
        /// Length of the address range that is decoded for it, in multiples of 256 MB.
        8 => decode_len: u64,
        /// Length in bytes, at most the decoded range.
        16 => len: u64,
        /// Size of a block in bytes, a power of two.
        24 => block: u64,
        /// Flags as in the CDAT's DSMAS structure.
        32 => flags: u8,
        /// Bit 0: content is overwritten on release.
        36 => sanitize: bool,
    }
}

record! {
    /// Room for extents and tags that all regions share.
    struct DcTotals: 16 {
        /// Extents that the device can hold in all.
        0 => extents: u32,
        /// Extents that it can still take.
        4 => extents_free: u32,
        /// Tags that the device can hold in all.
        8 => tags: u32,
        /// Tags that it can still take.
        12 => tags_free: u32,
    }
}

message! {
    /// Response of Get DC Region Configuration (4902h).
    struct DcRegions: 4 {
        /// Number of configured regions.
        2 => available: u8,
    }
    /// Configurations of the requested regions.
    3 as u8 => regions: [DcRegion]
    then
    /// Room for extents and tags.
    totals: DcTotals
}

record! {
    /// Request of Set DC Region Configuration (4903h).
    struct SetDcRegion: 40 {
        /// Number of the region, 0..=7.
        0 => region: u8,
        /// Size of a block in bytes, a power of two.
        4 => block: u64,
        /// Bit 0: overwrite content on release.
        12 => sanitize: bool,
        /// DPA of the first byte.
        16 => base: Dpa,
        /// Length of the address range that is decoded for it, in multiples of 256 MB.
        24 => decode_len: u64,
        /// Length in bytes, at most the decoded range.
        32 => len: u64,
    }
}

record! {
    /// A device media partition (DMP); its bases and lengths are multiples of 256 MB.
    struct DmpEntry: 40 {
        /// DPA of the first byte.
        0 => base: Dpa,
        /// Length in bytes of the address range that is decoded for it.
        8 => decode_len: u64,
        /// Length in bytes of its memory.
        16 => len: u64,
        /// Size of a block in bytes, a power of two.
        24 => block: u64,
        /// Properties: the constants of `DmpEntry`.
        32 => flags: u8,
        /// Number of the partition, 0..=3.
        33 => index: u8,
        /// Bit 0: content is overwritten on release.
        36 => sanitize: bool,
    }
}

impl DmpEntry {
    /// Bit 2: content survives a loss of power.
    pub const NON_VOLATILE: u8 = 1 << 2;
    /// Bit 3: several hosts may use a block.
    pub const SHARABLE: u8 = 1 << 3;
    /// Bit 4: the device keeps shared blocks coherent.
    pub const COHERENT: u8 = 1 << 4;
    /// Bit 5: capacity is dynamic.
    pub const DC_MANAGED: u8 = 1 << 5;
    /// Bit 6: hosts can only read it.
    pub const READ_ONLY: u8 = 1 << 6;
}

message! {
    /// Response of Get DMP Configuration (4905h).
    struct Dmps: 4 {
        /// Number of partitions of the device.
        2 => available: u8,
    }
    /// Configurations of the requested partitions.
    3 as u8 => entries: [DmpEntry]
}

message! {
    /// Request of Set DMP Configuration (4906h).
    struct SetDmps: 4 {
        /// Index of the first partition to set.
        3 => start: u8,
    }
    /// New configurations, from `start` on.
    2 as u8 => entries: [DmpEntry]
}

message! {
    /// Request of Dynamic Capacity Add (4907h); the response is a [`super::dcd::ExtentList`].
    struct DcAdd: 36 {
        /// Group (`GrpID`) that gets the capacity.
        0 => group: u16,
        /// How the device chooses the capacity.
        2 => policy: AddPolicy,
        /// Region that it is taken from, 0..=7.
        3 => region: u8,
        /// Bytes to add, with [`AddPolicy::Free`] and [`AddPolicy::Contiguous`].
        4 => len: u64,
        /// Tag that the extents bear; zeros for none.
        12 => tag: Uuid,
        /// Extents to return in the response at most.
        32 => response_max: u32,
    }
    /// The extents, with [`AddPolicy::Prescriptive`].
    28 as u32 => extents: [Extent]
}

message! {
    /// Request of Dynamic Capacity Release (4908h); the response is a [`super::dcd::ExtentList`].
    ///
    /// Byte 3 is taken as reserved, as in 5605h: the region follows from the extents or the tag.
    struct DcRelease: 36 {
        /// Group (`GrpID`) that loses the capacity.
        0 => group: u16,
        /// Selection of the capacity, and whether its content is overwritten.
        2 => flags: ReleaseFlags,
        /// Bytes to release, whole blocks.
        4 => len: u64,
        /// Tag of the extents, with [`super::dcd::ReleasePolicy::Tag`].
        12 => tag: Uuid,
        /// Extents to return in the response at most.
        32 => response_max: u32,
    }
    /// The extents, with [`super::dcd::ReleasePolicy::Prescriptive`].
    28 as u32 => extents: [Extent]
}

record! {
    /// Request of Dynamic Capacity List Tags (490Bh).
    struct GetTags: 8 {
        /// Index of the first tag to return, from 0.
        0 => start: u32,
        /// Tags to return at most.
        4 => max: u32,
    }
}

record! {
    /// One tag of the list, and whether the fabric manager keeps it.
    struct TagEntry: 20 {
        /// Tag that extents bear.
        0 => tag: Uuid,
        /// Bit 0: the fabric manager holds a reference, so the extents stay when no group has them.
        16 => fm_reference: bool,
    }
}

/// Response of Dynamic Capacity List Tags (490Bh). No field counts the list: it fills the payload.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Tags<'a> {
    /// Number that the device changes with each change of the list.
    pub generation: u32,
    /// Number of tags that the device has.
    pub total: u32,
    /// Tags from the requested index on.
    pub tags: List<'a, TagEntry>,
}

impl Tags<'_> {
    const HEAD: usize = 12;
}

impl<'a> Payload<'a> for Tags<'a> {
    fn parse(payload: &'a [u8]) -> Result<Self, ParseError> {
        let (list, _) = split_list(payload, Self::HEAD, 0)?;
        // rounded up, so that a piece of an entry at the end is refused instead of ignored
        let tags = List::parse(list, Self::HEAD, list.len().div_ceil(TagEntry::LEN))?;
        Ok(Self { generation: get(payload, 0)?, total: get(payload, 4)?, tags })
    }

    fn emit(&self, out: &mut [u8]) -> Option<usize> {
        let head = room(out, Self::HEAD)?;
        set(head, 0, &self.generation);
        set(head, 4, &self.total);
        self.tags.emit(out, Self::HEAD)
    }
}
