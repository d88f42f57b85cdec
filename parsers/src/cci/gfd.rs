//! Commands of a GFD, 4900h to 490Bh: identity, regions, media partitions, dynamic capacity.
//!
//! [`GfdIdentity`] 148 bytes, [`DcRegion`] and [`DmpEntry`] 40 bytes, extents of [`super::dcd`].
//!
//! Units: bytes; capacities in multiples of 256 MB where the field says so.
//! Source: docs/spec/wire-formats.md §4.7; CXL 3.1 section 8.2.9.9.10.

use super::dcd::{AddPolicy, Extent, ReleaseFlags};
use super::layout::{message, record};
use super::wire::{List, Payload, Uuid, Wire, get, room, set, split_list};
use crate::ParseError;
use crate::fabric::Dpa;

record! {
    /// Response of Identify GFD (4900h).
    struct GfdIdentity: 148 {
        /// Media partitions, 1..=4.
        0 => partitions: u8,
        /// Regions, 1..=8.
        1 => regions: u8,
        /// Groups.
        2 => groups: u16,
        /// Bit per [`AddPolicy`].
        4 => add_policies: u16,
        /// What of quality of service it has.
        6 => qos: u8,
        /// Bit per [`super::dcd::ReleasePolicy`].
        8 => release_policies: u16,
        /// Bit per region whose content can be overwritten on release.
        10 => sanitize: u8,
        /// Capacity, 256 MB.
        12 => capacity: u64,
        /// Block sizes of each region: bit n for 2^n bytes.
        20 => region_blocks: [u64; 8],
        /// Block sizes of each partition.
        84 => partition_blocks: [u64; 4],
        /// Capacity that can only be volatile, 256 MB.
        116 => volatile_only: u64,
        /// Capacity that can only be persistent, 256 MB.
        140 => persistent_only: u64,
    }
}

record! {
    /// Response of Get GFD Status (4901h); the codes of the link are those of a [`super::switch::PortState`].
    struct GfdStatus: 11 {
        /// Flags.
        0 => flags: u8,
        /// Mode of the link.
        1 => link_mode: u8,
        /// Lanes at most.
        2 => width_max: u8,
        /// Lanes in use.
        3 => width: u8,
        /// Bit per speed.
        4 => speeds: u8,
        /// Fastest speed.
        5 => speed_max: u8,
        /// Speed in use.
        6 => speed: u8,
        /// State of the link's training.
        7 => ltssm: u8,
        /// First lane in use.
        8 => first_lane: u8,
        /// Flags of the link.
        9 => link_state: u16,
    }
}

record! {
    /// Request of Get DC Region Configuration (4902h) and Get DMP Configuration (4905h).
    struct GfdRange: 4 {
        /// Regions or partitions.
        2 => count: u8,
        /// First one.
        3 => start: u8,
    }
}

record! {
    /// A region of dynamic capacity.
    struct DcRegion: 40 {
        /// First byte.
        0 => base: Dpa,
        /// Length of the decoded range, 256 MB.
        8 => decode_len: u64,
        /// Length.
        16 => len: u64,
        /// Bytes of a block.
        24 => block: u64,
        /// Flags as in a CDAT.
        32 => flags: u8,
        /// Its content is overwritten on release.
        36 => sanitize: bool,
    }
}

record! {
    /// What the regions can hold in all.
    struct DcTotals: 16 {
        /// Extents.
        0 => extents: u32,
        /// Extents that are left.
        4 => extents_free: u32,
        /// Tags.
        8 => tags: u32,
        /// Tags that are left.
        12 => tags_free: u32,
    }
}

message! {
    /// Response of Get DC Region Configuration (4902h).
    struct DcRegions: 4 {
        /// Regions there are.
        2 => available: u8,
    }
    /// Those that were asked for.
    3 as u8 => regions: [DcRegion]
    then
    /// What they can hold.
    totals: DcTotals
}

record! {
    /// Request of Set DC Region Configuration (4903h).
    struct SetDcRegion: 40 {
        /// The region.
        0 => region: u8,
        /// Bytes of a block.
        4 => block: u64,
        /// Its content is overwritten on release.
        12 => sanitize: bool,
        /// First byte.
        16 => base: Dpa,
        /// Length of the decoded range, 256 MB.
        24 => decode_len: u64,
        /// Length.
        32 => len: u64,
    }
}

record! {
    /// A media partition.
    struct DmpEntry: 40 {
        /// First byte.
        0 => base: Dpa,
        /// Length of the decoded range.
        8 => decode_len: u64,
        /// Length.
        16 => len: u64,
        /// Bytes of a block.
        24 => block: u64,
        /// Bits as `DmpEntry::` constants.
        32 => flags: u8,
        /// Which partition.
        33 => index: u8,
        /// Its content is overwritten on release.
        36 => sanitize: bool,
    }
}

impl DmpEntry {
    /// Keeps its content without power.
    pub const NON_VOLATILE: u8 = 1 << 2;
    /// Several hosts may use a block.
    pub const SHARABLE: u8 = 1 << 3;
    /// The device keeps shared blocks coherent.
    pub const COHERENT: u8 = 1 << 4;
    /// Its capacity is dynamic.
    pub const DC_MANAGED: u8 = 1 << 5;
    /// Hosts can only read it.
    pub const READ_ONLY: u8 = 1 << 6;
}

message! {
    /// Response of Get DMP Configuration (4905h).
    struct Dmps: 4 {
        /// Partitions there are.
        2 => available: u8,
    }
    /// Those that were asked for.
    3 as u8 => entries: [DmpEntry]
}

message! {
    /// Request of Set DMP Configuration (4906h).
    struct SetDmps: 4 {
        /// First partition.
        3 => start: u8,
    }
    /// The partitions.
    2 as u8 => entries: [DmpEntry]
}

message! {
    /// Request of Dynamic Capacity Add (4907h); the response is a [`super::dcd::ExtentList`].
    struct DcAdd: 36 {
        /// The group.
        0 => group: u16,
        /// How it is chosen.
        2 => policy: AddPolicy,
        /// Of which region.
        3 => region: u8,
        /// Bytes, with [`AddPolicy::Free`] and [`AddPolicy::Contiguous`].
        4 => len: u64,
        /// What it is called.
        12 => tag: Uuid,
        /// Most extents of the response.
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
        /// The group.
        0 => group: u16,
        /// How it is chosen.
        2 => flags: ReleaseFlags,
        /// Bytes.
        4 => len: u64,
        /// What it is called.
        12 => tag: Uuid,
        /// Most extents of the response.
        32 => response_max: u32,
    }
    /// The extents, with [`super::dcd::ReleasePolicy::Prescriptive`].
    28 as u32 => extents: [Extent]
}

record! {
    /// Request of Dynamic Capacity List Tags (490Bh).
    struct GetTags: 8 {
        /// First tag.
        0 => start: u32,
        /// Most tags.
        4 => max: u32,
    }
}

record! {
    /// A tag.
    struct TagEntry: 20 {
        /// The tag.
        0 => tag: Uuid,
        /// The fabric manager holds a reference.
        16 => fm_reference: bool,
    }
}

/// Response of Dynamic Capacity List Tags (490Bh): the list goes on to the end, nothing counts it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Tags<'a> {
    /// Changes with the list.
    pub generation: u32,
    /// Tags there are in all.
    pub total: u32,
    /// The tags.
    pub tags: List<'a, TagEntry>,
}

impl Tags<'_> {
    const HEAD: usize = 12;
}

impl<'a> Payload<'a> for Tags<'a> {
    fn parse(payload: &'a [u8]) -> Result<Self, ParseError> {
        let (list, _) = split_list(payload, Self::HEAD, 0)?;
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
