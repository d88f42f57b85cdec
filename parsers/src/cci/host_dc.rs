//! Dynamic capacity of hosts, 5600h to 5602h and 5608h: what there can be, regions, and who holds which tag.
//!
//! [`DcdInfo`] 84 bytes, regions of [`super::gfd`], [`HostTag`] 84 bytes.
//!
//! Units: bytes; multiples of 256 MiB where the field says so.
//! Source: docs/spec/wire-formats.md §4.3b; CXL 3.1 section 7.6.7.6.

use super::gfd::{DcRegion, DcTotals};
use super::layout::{message, record};
use super::wire::Uuid;

record! {
    /// Response of Get DCD Info (5600h).
    struct DcdInfo: 84 {
        /// Hosts.
        0 => hosts: u8,
        /// Regions that a host can have.
        1 => regions: u8,
        /// Bit per [`super::dcd::AddPolicy`].
        4 => add_policies: u16,
        /// Bit per [`super::dcd::ReleasePolicy`].
        8 => release_policies: u16,
        /// Bit per region whose content can be overwritten on release.
        10 => sanitize: u8,
        /// Dynamic capacity in all, 256 MiB.
        12 => capacity: u64,
        /// Block sizes of each region: bit n for 2^n bytes.
        20 => blocks: [u64; 8],
    }
}

record! {
    /// Request of Get Host DC Region Configuration (5601h).
    struct HostRange: 4 {
        /// The host.
        0 => host: u16,
        /// Most regions.
        2 => count: u8,
        /// First one.
        3 => start: u8,
    }
}

message! {
    /// Response of Get Host DC Region Configuration (5601h).
    struct HostRegions: 4 {
        /// The host.
        0 => host: u16,
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
    /// Request of Set DC Region Configuration (5602h): of all hosts.
    struct SetRegion: 16 {
        /// The region.
        0 => region: u8,
        /// Bytes of a block.
        4 => block: u64,
        /// Its content is overwritten on release.
        12 => sanitize: bool,
    }
}

record! {
    /// A tag, and who holds its capacity.
    struct HostTag: 84 {
        /// The tag.
        0 => tag: Uuid,
        /// The fabric manager holds a reference.
        16 => fm_reference: bool,
        /// Hosts that hold it, a bit each.
        20 => holders: [u8; 32],
        /// Hosts that were offered it and have not answered, a bit each.
        52 => pending: [u8; 32],
    }
}

message! {
    /// Response of Dynamic Capacity List Tags (5608h).
    struct HostTags: 16 {
        /// Changes with the list.
        0 => generation: u32,
        /// Tags there are in all.
        4 => total: u32,
        /// Bit 0 holders, bit 1 pending: which of the bitmaps count.
        12 => valid: u8,
    }
    /// The tags.
    8 as u32 => tags: [HostTag]
}
