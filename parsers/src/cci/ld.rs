//! MLD component commands 5400h to 5409h, 5500h and 5501h: logical devices and heads.
//!
//! Lists start at the LD that the request names. Memory is in units of a granularity, bandwidth in 256ths.
//!
//! Source: docs/spec/wire-formats.md §4.3a; CXL 3.1 section 7.6.7.4.

use super::layout::{codes, message, record};

record! {
    /// Response of Get LD Info (5400h).
    struct LdInfo: 11 {
        /// Memory of the whole device in bytes, without dynamic capacity.
        0 => memory: u64,
        /// Number of logical devices, 1..=16.
        8 => lds: u16,
        /// Telemetry of load that the device has: bit 0 egress port congestion, bit 1 temporary
        /// throughput reduction.
        10 => qos: u8,
    }
}

record! {
    /// Request of Get LD Allocations (5401h), Get Multi-Headed Info (5500h) and Get Head Info (5501h).
    struct LdPage: 2 {
        /// First LD, or first head.
        0 => start: u8,
        /// Entries to return at most.
        1 => limit: u8,
    }
}

record! {
    /// Request of `Get QoS Allocated BW` (5406h) and `Get QoS BW Limit` (5408h).
    struct LdRange: 2 {
        /// LDs to report at most.
        0 => count: u8,
        /// First LD to report.
        1 => start: u8,
    }
}

codes! {
    /// Unit of allocated memory.
    enum Granularity: Kind, 0xFF {
        /// Units of 256 MiB.
        0 => Mib256,
        /// Units of 512 MiB.
        1 => Mib512,
        /// Units of 1 GiB.
        2 => Gib1,
    }
}

impl Granularity {
    /// Length of one unit in bytes.
    #[must_use]
    pub const fn bytes(self) -> u64 {
        match self {
            Self::Mib256 => 256 << 20,
            Self::Mib512 => 512 << 20,
            Self::Gib1 => 1 << 30,
        }
    }
}

record! {
    /// Memory that one LD has.
    struct LdAllocation: 16 {
        /// Range 1 (volatile), in units of the granularity.
        0 => range1: u64,
        /// Range 2 (persistent), in units of the granularity.
        8 => range2: u64,
    }
}

message! {
    /// Response of Get LD Allocations (5401h).
    struct LdAllocations: 4 {
        /// Number of logical devices.
        0 => lds: u8,
        /// Unit of the allocations.
        1 => granularity: Granularity,
        /// First LD of the list.
        2 => start: u8,
    }
    /// Allocations, one an LD from `start` on.
    3 as u8 => allocations: [LdAllocation]
}

message! {
    /// Request and response of Set LD Allocations (5402h).
    struct SetLdAllocations: 4 {
        /// First LD of the list.
        1 => start: u8,
    }
    /// Allocations, one an LD from `start` on.
    0 as u8 => allocations: [LdAllocation]
}

message! {
    /// Responses of 5406h and 5408h, requests and responses of 5407h and 5409h.
    struct LdFractions: 2 {
        /// First LD of the list.
        1 => start: u8,
    }
    /// 256ths of the bandwidth, one an LD.
    0 as u8 => fractions: [u8]
}

message! {
    /// Response of Get Multi-Headed Info (5500h).
    struct MultiHeadedInfo: 8 {
        /// Number of logical devices.
        0 => lds: u8,
        /// Number of heads.
        1 => heads: u8,
        /// First LD of the list.
        4 => start: u8,
    }
    /// Number of the head that each LD is behind, from LD `start` on.
    5 as u8 => map: [u8]
}

record! {
    /// The link of a head.
    struct HeadInfo: 9 {
        /// Physical port number of the head.
        0 => port: u8,
        /// Lanes of the widest supported link.
        1 => width_max: u8,
        /// Lanes in use.
        2 => width: u8,
        /// Supported link speeds, one bit each.
        3 => speeds: u8,
        /// Code of the fastest supported speed.
        4 => speed_max: u8,
        /// Code of the speed in use.
        5 => speed: u8,
        /// LTSSM state of the link.
        6 => ltssm: u8,
        /// Number of the lowest lane in use.
        7 => first_lane: u8,
        /// Link flags, the low byte of those of 5101h.
        8 => link_state: u8,
    }
}

message! {
    /// Response of Get Head Info (5501h).
    struct HeadInfos: 4 {}
    /// One a head, from the requested head on.
    0 as u8 => heads: [HeadInfo]
}
