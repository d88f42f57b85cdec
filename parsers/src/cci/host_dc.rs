//! Dynamic capacity of hosts, 5600h to 5602h and 5608h: limits, regions, holders of tags.
//!
//! Capacities are in bytes, or in multiples of 256 MiB where the field says so.
//!
//! Source: docs/spec/wire-formats.md §4.3b; CXL 3.1 section 7.6.7.6.

use super::gfd::{DcRegion, DcTotals};
use super::layout::{message, record};
use super::wire::Uuid;

record! {
    /// Response of Get DCD Info (5600h).
    struct DcdInfo: 84 {
        /// Hosts that the device serves; of an MLD its LDs.
        0 => hosts: u8,
        /// Regions of a host at most, 1..=8.
        1 => regions: u8,
        /// Supported policies of 5604h: bit n for code n of [`super::dcd::AddPolicy`].
        4 => add_policies: u16,
        /// Supported policies of 5605h: bit n for code n of [`super::dcd::ReleasePolicy`].
        8 => release_policies: u16,
        /// Bit per region whose content can be overwritten on release.
        10 => sanitize: u8,
        /// Dynamic capacity of the device in multiples of 256 MiB.
        12 => capacity: u64,
        /// Block sizes of each region: bit n for 2^n bytes.
        20 => blocks: [u64; 8],
    }
}

record! {
    /// Request of Get Host DC Region Configuration (5601h).
    struct HostRange: 4 {
        /// Host whose regions are read; of an MLD the LD-ID.
        0 => host: u16,
        /// Regions to return at most.
        2 => count: u8,
        /// Index of the first region, from 0.
        3 => start: u8,
    }
}

message! {
    /// Response of Get Host DC Region Configuration (5601h).
    struct HostRegions: 4 {
        /// Host that the regions are of.
        0 => host: u16,
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
    /// Request of Set DC Region Configuration (5602h): of all hosts.
    struct SetRegion: 16 {
        /// Number of the region, 0..=7.
        0 => region: u8,
        /// Size of a block in bytes, a power of two.
        4 => block: u64,
        /// Bit 0: overwrite content on release.
        12 => sanitize: bool,
    }
}

record! {
    /// A tag and the hosts that hold its capacity.
    struct HostTag: 84 {
        /// Tag that extents bear.
        0 => tag: Uuid,
        /// Bit 0: the fabric manager holds a reference, so the extents stay when no host has them.
        16 => fm_reference: bool,
        /// Hosts that hold the capacity: host n is bit n % 8 of byte n / 8.
        20 => holders: [u8; 32],
        /// Hosts that were offered it and have not answered yet, as `holders`.
        52 => pending: [u8; 32],
    }
}

message! {
    /// Response of Dynamic Capacity List Tags (5608h).
    struct HostTags: 16 {
        /// Number that the device changes with each change of the list.
        0 => generation: u32,
        /// Number of tags that the device has.
        4 => total: u32,
        /// Valid bitmaps: bit 0 `holders`, bit 1 `pending`.
        12 => valid: u8,
    }
    /// Tags from the requested index on.
    8 as u32 => tags: [HostTag]
}
