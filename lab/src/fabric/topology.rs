//! What a topology file says.
//!
//! TOML -> [`Topology`]; [`super::layout::Layout`] says whether it can be built.
//!
//! Units: MiB where a name ends so, bytes elsewhere.
//! Source: docs/fabric.md.

use serde::de::Error;
use serde::{Deserialize, Deserializer};
use weft_fm::media::{Media, Partition};
use weft_fm::service::status::StartMode;

use crate::endpoint::number::Num;

/// The topology of a fabric, as its file says it.
#[derive(Clone, Debug, PartialEq, Eq, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Topology {
    /// What it shows, in a line.
    #[serde(default)]
    pub about: String,
    /// In which order hosts and fabric come up.
    #[serde(default)]
    pub start: StartMode,
    /// PBR switches; the first one is where the fabric manager enters.
    #[serde(default, rename = "switch")]
    pub switches: Vec<Switch>,
    /// Links between switches.
    #[serde(default, rename = "link")]
    pub links: Vec<Link>,
    /// Hosts.
    #[serde(default, rename = "host")]
    pub hosts: Vec<Host>,
    /// Devices that are no GFDs.
    #[serde(default, rename = "device")]
    pub devices: Vec<Device>,
    /// HBR switches.
    #[serde(default, rename = "hbr")]
    pub hbrs: Vec<Hbr>,
    /// G-FAM devices.
    #[serde(default, rename = "gfd")]
    pub gfds: Vec<Gfd>,
    /// Memory of GFDs that hosts share.
    #[serde(default, rename = "memory")]
    pub memory: Vec<Memory>,
    /// Memory of hosts and devices that others reach.
    #[serde(default)]
    pub gim: Vec<Gim>,
    /// Memory devices that accelerators access directly.
    #[serde(default)]
    pub p2p: Vec<P2p>,
}

/// A PBR switch of a topology file.
#[derive(Clone, Debug, PartialEq, Eq, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Switch {
    /// What it is called.
    pub name: String,
}

/// Links between two switches.
#[derive(Clone, Debug, PartialEq, Eq, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Link {
    /// Both ends.
    #[serde(deserialize_with = "two")]
    pub ends: [String; 2],
    /// How many.
    #[serde(default = "one")]
    pub count: u8,
}

/// A host of a topology file.
#[derive(Clone, Debug, PartialEq, Eq, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Host {
    /// What it is called.
    pub name: String,
    /// The switch that its root port is at; none where a device or HBR switch is at the host.
    #[serde(default)]
    pub at: String,
    /// Its memory.
    #[serde(default = "memory_mib")]
    pub memory_mib: u32,
    /// Lines of its cache for CXL.mem; 0 for none.
    #[serde(default)]
    pub cache_lines: u32,
    /// How long a device with a cache may take to answer a snoop of the host, milliseconds.
    #[serde(default)]
    pub snoop_ms: Option<u32>,
    /// Devices and HBR switches of its hierarchy, in the order of their vPPBs.
    #[serde(default)]
    pub bind: Vec<String>,
    /// Each of these that is at another switch has a virtual link of its own, not one for all at that switch.
    #[serde(default)]
    pub link_per_device: bool,
    /// vPPBs of its virtual switch that stay free for later.
    #[serde(default)]
    pub spare_vppbs: u8,
    /// All other hosts, and their accelerators and NICs, reach its memory (GIM), by FAST.
    #[serde(default)]
    pub gim: bool,
    /// Lines of its memory that Lightweight Notification watches; its links are in non-flit mode.
    #[serde(default)]
    pub ln_lines: Option<usize>,
    /// Watchers of one line that are told by directed messages, not by a broadcast.
    #[serde(default)]
    pub ln_watchers: Option<usize>,
    /// It has transfers of fabric memory; what others reach of its memory is what it registers for them.
    #[serde(default)]
    pub enable_use_fabric_mem: bool,
    /// Its PCIe segment.
    #[serde(default)]
    pub segment: u8,
    /// What it tells its switch as its domain, 1 to 16 bytes that hosts of one domain share: their devices may access each
    /// other's memory devices.
    #[serde(default)]
    pub domain: Option<String>,
}

/// A device of a topology file.
#[derive(Clone, Debug, PartialEq, Eq, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Device {
    /// What it is called.
    pub name: String,
    /// The switch, of either kind, that it is at.
    pub at: String,
    /// What it is for.
    #[serde(default)]
    pub kind: DeviceKind,
    /// All other hosts, and their accelerators and NICs, reach memory of it (GIM), by FAST.
    #[serde(default)]
    pub gim: bool,
    /// A requester of Lightweight Notification for 2 to the power of so many lines; its links are in non-flit mode.
    #[serde(default)]
    pub lnr: Option<u8>,
    /// Logical devices of a memory device, each for a host of its own: `bind = ["NAME.0"]`.
    #[serde(default)]
    pub lds: Option<u8>,
    /// Memory of all logical devices together; without logical devices what the host manages (HDM).
    #[serde(default)]
    pub capacity_mib: Option<u32>,
    /// Part of that memory that is dynamic capacity.
    #[serde(default)]
    pub dynamic_mib: Option<u32>,
    /// Memory of each logical device, by number; as much for each where nothing is said.
    #[serde(default)]
    pub ld_mib: Option<Vec<u32>>,
    /// Bandwidth of each when all want more, 256ths, by number.
    #[serde(default)]
    pub ld_bandwidth: Option<Vec<u8>>,
    /// Bandwidth of each at most, 256ths, by number; 0 for no limit.
    #[serde(default)]
    pub ld_limit: Option<Vec<u8>>,
    /// Rate of its link, Gbit/s, which shares of bandwidth are parts of; 100 where nothing is said.
    #[serde(default)]
    pub gbps: Option<u64>,
    /// An accelerator or NIC begins transfers of fabric memory itself.
    #[serde(default)]
    pub enable_use_fabric_mem: bool,
    /// Latency of the memory of a memory device, as its CDAT tells it.
    #[serde(default)]
    pub latency_ns: Option<u64>,
    /// Bandwidth of that memory, MB/s, as its CDAT tells it.
    #[serde(default)]
    pub bandwidth_mbps: Option<u64>,
    /// Memory behind BAR 0 of a device without logical devices; 1 where nothing is said.
    #[serde(default)]
    pub bar_mib: Option<u32>,
    /// Lines of its cache for the host's memory (CXL.cache); 0 for none.
    #[serde(default)]
    pub cache_lines: u32,
}

/// Memory of a host or device that others reach.
#[derive(Clone, Debug, Default, PartialEq, Eq, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Gim {
    /// What it is called; as whose memory it is where nothing is said.
    pub name: Option<String>,
    /// Whose it is: a host, an accelerator or a NIC.
    pub of: String,
    /// Who reaches it: hosts, accelerators, NICs; all others where nothing is said.
    pub from: Option<Vec<String>>,
    /// By which flow.
    #[serde(default)]
    pub by: Flow,
    /// How much, bytes: all of a host's, or 16 MiB of a device.
    #[serde(default, deserialize_with = "some_number")]
    pub len: Option<u64>,
    /// Where all of them see it.
    #[serde(default, deserialize_with = "some_number")]
    pub hpa: Option<u64>,
}

/// A memory device that accelerators access directly, by UIO (CXL 3.1 section 7.7.9).
#[derive(Clone, Debug, Default, PartialEq, Eq, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct P2p {
    /// What it is called; as the memory device where nothing is said.
    pub name: Option<String>,
    /// Who accesses it: accelerators and NICs.
    pub from: Vec<String>,
    /// The memory device.
    pub to: String,
    /// How much, bytes: 256 MiB where nothing is said.
    #[serde(default, deserialize_with = "some_number")]
    pub len: Option<u64>,
    /// Where all of them, and the memory device itself, see it.
    #[serde(default, deserialize_with = "some_number")]
    pub hpa: Option<u64>,
}

/// How requests find their target (CXL 3.1 section 7.7.3.3).
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum Flow {
    /// By the FAST of the requester's edge (figure 7-40).
    #[default]
    Fast,
    /// By the `VendPrefixL0` that the requester puts in front (figure 7-41).
    Prefix,
}

/// What a device is for.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum DeviceKind {
    /// Memory behind a BAR.
    #[default]
    Memory,
    /// Makes UIO requests of its own.
    Accelerator,
    /// Moves data between a network and memory, by UIO.
    Nic,
}

/// An HBR switch of a topology file.
#[derive(Clone, Debug, PartialEq, Eq, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Hbr {
    /// What it is called.
    pub name: String,
    /// The switch, of either kind, that its upstream port is at.
    pub at: String,
}

/// G-FAM devices of a topology file.
#[derive(Clone, Debug, PartialEq, Eq, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Gfd {
    /// What it is called; with a count, names end in a number from 0 on.
    pub name: String,
    /// The switch that it is at; with a count, the next ones are at the next of these.
    pub at: OneOrMany,
    /// How many.
    #[serde(default)]
    pub count: Option<u16>,
    /// Its memory; as much as its partitions have, or 256 where nothing is said.
    #[serde(default)]
    pub capacity_mib: Option<u32>,
    /// Media partitions that the manager sets, in order, each `KIND:SIZE[:BLOCK]`.
    #[serde(default)]
    pub partitions: Option<Vec<Partition>>,
    /// They keep their lines coherent in hosts' caches, by back-invalidate.
    #[serde(default)]
    pub coherent: bool,
    /// Lines that hosts can hold at once of each.
    #[serde(default)]
    pub filter_lines: Option<u32>,
    /// How long a host may take to answer a snoop of each, in milliseconds.
    #[serde(default)]
    pub snoop_ms: Option<u32>,
    /// Rate of the link of each, Gbit/s; 100 where nothing is said.
    #[serde(default)]
    pub gbps: Option<u64>,
}

/// A name or a list of names, in a topology file.
#[derive(Clone, Debug, PartialEq, Eq, Deserialize)]
#[serde(untagged)]
pub enum OneOrMany {
    /// One.
    One(String),
    /// Several.
    Many(Vec<String>),
}

impl OneOrMany {
    /// All names.
    #[must_use]
    pub const fn all(&self) -> &[String] {
        match self {
            Self::One(name) => core::slice::from_ref(name),
            Self::Many(names) => names.as_slice(),
        }
    }
}

/// Memory of GFDs for hosts and devices.
#[derive(Clone, Debug, PartialEq, Eq, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Memory {
    /// What it is called.
    pub name: String,
    /// Who has it.
    #[serde(default)]
    pub hosts: Vec<String>,
    /// Devices that have it too, and reach it by requests of their own.
    #[serde(default)]
    pub devices: Vec<String>,
    /// Where it is, in the order of the ways; the name of several stands for all of them.
    pub gfds: Vec<String>,
    /// How much in all, bytes.
    #[serde(deserialize_with = "number")]
    pub len: u64,
    /// Bytes of an interleave granule, where there are several GFDs.
    #[serde(default = "granularity", deserialize_with = "small_number")]
    pub granularity: u32,
    /// Where all hosts see it.
    #[serde(deserialize_with = "number")]
    pub hpa: u64,
    /// Of which kind of memory; of the first partitions that have room, where nothing is said.
    #[serde(default)]
    pub media: Option<Media>,
    /// GFDs notify its hosts of what they refuse them there.
    #[serde(default)]
    pub notify: bool,
}

/// A number of bytes or an address: a number, or text such as "32MiB" and "`0x10000000000`".
fn number<'de, D: Deserializer<'de>>(from: D) -> Result<u64, D::Error> {
    Num::deserialize(from).map(|it| it.0)
}

fn some_number<'de, D: Deserializer<'de>>(from: D) -> Result<Option<u64>, D::Error> {
    number(from).map(Some)
}

fn small_number<'de, D: Deserializer<'de>>(from: D) -> Result<u32, D::Error> {
    u32::try_from(number(from)?).map_err(|_| D::Error::custom("expected less than 4GiB"))
}

/// Both ends of a link: a list of more would be read as far as the second one.
fn two<'de, D: Deserializer<'de>>(from: D) -> Result<[String; 2], D::Error> {
    let ends = Vec::<String>::deserialize(from)?;
    ends.try_into().map_err(|ends: Vec<_>| {
        D::Error::custom(format!("expected the names of two switches, found {}", ends.len()))
    })
}

const fn one() -> u8 {
    1
}

const fn memory_mib() -> u32 {
    16
}

const fn granularity() -> u32 {
    4_096
}

impl Topology {
    /// Reads a topology file.
    ///
    /// # Errors
    /// Place and reason, as TOML has them.
    pub fn parse(text: &str) -> Result<Self, toml::de::Error> {
        toml::from_str(text)
    }
}
