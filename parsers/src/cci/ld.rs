//! MLD component commands 5400h to 5409h: what logical devices there are, and what each has of memory and bandwidth.
//!
//! [`LdInfo`] 11 bytes; lists of [`LdAllocation`] (16 bytes) and of fractions, from an LD on.
//!
//! Units: bytes; multiples of a granularity; 256ths of the bandwidth.
//! Source: docs/spec/wire-formats.md §4.3a; CXL 3.1 section 7.6.7.4.

use super::layout::{codes, message, record};

record! {
    /// Response of Get LD Info (5400h).
    struct LdInfo: 11 {
        /// Bytes of memory in all.
        0 => memory: u64,
        /// Logical devices.
        8 => lds: u16,
        /// Bit 0 egress port congestion, bit 1 temporary throughput reduction: what can be told of load.
        10 => qos: u8,
    }
}

record! {
    /// Request of Get LD Allocations (5401h), Get Multi-Headed Info (5500h) and Get Head Info (5501h).
    struct LdPage: 2 {
        /// First LD, or head.
        0 => start: u8,
        /// Most entries of the answer.
        1 => limit: u8,
    }
}

record! {
    /// Request of 5406h and 5408h.
    struct LdRange: 2 {
        /// LDs.
        0 => count: u8,
        /// First LD.
        1 => start: u8,
    }
}

codes! {
    /// What allocations count in.
    enum Granularity: Kind, 0xFF {
        /// 256 MiB.
        0 => Mib256,
        /// 512 MiB.
        1 => Mib512,
        /// 1 GiB.
        2 => Gib1,
    }
}

impl Granularity {
    /// Bytes.
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
    /// What an LD has of the memory.
    struct LdAllocation: 16 {
        /// Range 1, in units of the granularity.
        0 => range1: u64,
        /// Range 2, in units of the granularity.
        8 => range2: u64,
    }
}

message! {
    /// Response of Get LD Allocations (5401h).
    struct LdAllocations: 4 {
        /// LDs there are.
        0 => lds: u8,
        /// What allocations count in.
        1 => granularity: Granularity,
        /// First LD of the list.
        2 => start: u8,
    }
    /// One an LD.
    3 as u8 => allocations: [LdAllocation]
}

message! {
    /// Request and response of Set LD Allocations (5402h).
    struct SetLdAllocations: 4 {
        /// First LD of the list.
        1 => start: u8,
    }
    /// One an LD.
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
        /// LDs there are.
        0 => lds: u8,
        /// Heads.
        1 => heads: u8,
        /// First LD of the list.
        4 => start: u8,
    }
    /// Head of each LD.
    5 as u8 => map: [u8]
}

record! {
    /// The link of a head.
    struct HeadInfo: 9 {
        /// Its port.
        0 => port: u8,
        /// Most lanes.
        1 => width_max: u8,
        /// Lanes in use.
        2 => width: u8,
        /// Speeds that it has, a bit each.
        3 => speeds: u8,
        /// Fastest.
        4 => speed_max: u8,
        /// In use.
        5 => speed: u8,
        /// State of the link.
        6 => ltssm: u8,
        /// First lane in use.
        7 => first_lane: u8,
        /// As in 5101h.
        8 => link_state: u8,
    }
}

message! {
    /// Response of Get Head Info (5501h).
    struct HeadInfos: 4 {}
    /// One a head.
    0 as u8 => heads: [HeadInfo]
}
