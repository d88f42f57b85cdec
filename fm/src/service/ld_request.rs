//! Logical devices in requests and answers of the FM: what each is to have, and what each has.
//!
//! [`LdChange`], [`CapacityChange`] -> [`LdRow`]s, [`CapacityRow`]s.
//!
//! Units: bytes; 256ths of the bandwidth.
//! Source: docs/fm.md.

use serde::{Deserialize, Serialize};

/// What a logical device is to have.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum LdChange {
    /// Bytes of memory.
    Memory(u64),
    /// Bandwidth when all want more, 256ths.
    Bandwidth(u8),
    /// Bandwidth at most, 256ths; 0 for no limit.
    Limit(u8),
}

/// What is to be done with dynamic capacity of a logical device.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum CapacityChange {
    /// It is to have more.
    Add {
        /// Bytes.
        size: u64,
        /// What it is called.
        #[serde(default)]
        tag: Option<String>,
        /// Where in the logical device; anywhere without it.
        #[serde(default)]
        at: Option<u64>,
        /// All of it beside each other.
        #[serde(default)]
        contiguous: bool,
    },
    /// It is to have less.
    Release {
        /// Bytes; all of the tag without it.
        #[serde(default)]
        size: Option<u64>,
        /// What it is called; what has no tag without it.
        #[serde(default)]
        tag: Option<String>,
        /// Where in the logical device.
        #[serde(default)]
        at: Option<u64>,
        /// Also while its host uses its memory.
        #[serde(default)]
        force: bool,
    },
    /// It is to have what another one has: the same bytes.
    Share {
        /// What that is called.
        tag: String,
    },
    /// What it has is to keep its content when nobody has it any more, until that is forgotten.
    Keep {
        /// What it is called.
        tag: String,
    },
    /// The content of what nobody has any more is lost.
    Forget {
        /// What it is called.
        tag: String,
    },
    /// The device is to deal it out in other blocks, to every logical device.
    Block {
        /// Bytes of a block.
        size: u64,
    },
}

/// Dynamic capacity of a device with logical devices, as it is shown.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct CapacityRow {
    /// The device: the name, else the switch and the port that it is at.
    pub device: String,
    /// Where it begins, in every logical device.
    pub base: u64,
    /// Bytes in all.
    pub size: u64,
    /// Bytes that no logical device has.
    pub free: u64,
    /// It is dealt out in multiples of so many bytes.
    pub block: u64,
    /// Who has what.
    pub extents: Vec<CapacityExtent>,
    /// Tags of what keeps its content when nobody has it.
    #[serde(default)]
    pub kept: Vec<String>,
}

/// A piece of dynamic capacity that a logical device has.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct CapacityExtent {
    /// Which logical device.
    pub ld: u8,
    /// Where it begins.
    pub start: u64,
    /// Bytes.
    pub len: u64,
    /// What it is called.
    pub tag: Option<String>,
}

/// A logical device, as it is shown.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct LdRow {
    /// Its device: the name, else the switch and the port that it is at.
    pub device: String,
    /// Its number.
    pub ld: u8,
    /// Bytes of memory.
    pub memory: u64,
    /// Bandwidth when all want more, 256ths.
    pub bandwidth: Option<u8>,
    /// Bandwidth at most, 256ths; 0 for no limit.
    pub limit: Option<u8>,
    /// The bridge that shows it.
    pub bridge: Option<String>,
}
