//! Logical devices in the manager's requests and answers.
//!
//! [`LdChange`] and [`CapacityChange`] change them, [`LdRow`] and [`CapacityRow`] show them. Bandwidths are 256ths of
//! the device's.
//!
//! Source: docs/fm.md.

use serde::{Deserialize, Serialize};

/// A new setting of a logical device.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum LdChange {
    /// Bytes of memory that it gets in all.
    Memory(u64),
    /// Share of the bandwidth when all want more, in 256ths.
    Bandwidth(u8),
    /// Limit on the bandwidth in 256ths; 0 for none.
    Limit(u8),
}

/// A change of a device's dynamic capacity.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum CapacityChange {
    /// The LD gets more.
    Add {
        size: u64,
        /// Tag; none if missing.
        #[serde(default)]
        tag: Option<String>,
        /// DPA; anywhere if missing.
        #[serde(default)]
        at: Option<u64>,
        /// Whether it must be one extent.
        #[serde(default)]
        contiguous: bool,
    },
    /// The LD gets less.
    Release {
        /// Bytes; all with the tag if missing.
        #[serde(default)]
        size: Option<u64>,
        /// Tag; capacity without a tag if missing.
        #[serde(default)]
        tag: Option<String>,
        /// DPA of the extent, if a certain one is meant.
        #[serde(default)]
        at: Option<u64>,
        /// Whether it is released even while the host uses it.
        #[serde(default)]
        force: bool,
    },
    /// The LD gets the capacity of another LD, with the same bytes.
    Share {
        /// Tag of that capacity.
        tag: String,
    },
    /// The content under a tag stays when no LD has it any more, until it is forgotten.
    Keep { tag: String },
    /// Content that no LD has is erased.
    Forget { tag: String },
    /// Capacity of the device is given in other blocks, to all LDs.
    Block {
        /// Block size in bytes.
        size: u64,
    },
}

/// Row about a device with dynamic capacity.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct CapacityRow {
    /// Name of the device, or its switch and port.
    pub device: String,
    /// DPA of the first byte, the same for all LDs.
    pub base: u64,
    /// Bytes of the region.
    pub size: u64,
    /// Bytes that no LD has.
    pub free: u64,
    /// Allocation unit in bytes.
    pub block: u64,
    /// Extents of all LDs.
    pub extents: Vec<CapacityExtent>,
    /// Tags whose content is kept when no LD has it.
    #[serde(default)]
    pub kept: Vec<String>,
}

/// An extent of a logical device.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct CapacityExtent {
    pub ld: u8,
    /// DPA of the first byte.
    pub start: u64,
    pub len: u64,
    pub tag: Option<String>,
}

/// Row about a logical device.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct LdRow {
    /// Name of the device, or its switch and port.
    pub device: String,
    /// Its number in the device.
    pub ld: u8,
    pub memory: u64,
    /// Share of the bandwidth when all want more, in 256ths.
    pub bandwidth: Option<u8>,
    /// Limit on the bandwidth in 256ths; 0 for none.
    pub limit: Option<u8>,
    /// Bridge that it is bound to.
    pub bridge: Option<String>,
}
