//! Content of a topology file, as TOML has it.
//!
//! [`super::layout::Layout`] decides whether it can be built. Numbers are MiB where a name ends so, and bytes
//! elsewhere.
//!
//! Source: docs/fabric.md.

use serde::de::Error;
use serde::{Deserialize, Deserializer};
use weft_fm::components::media::{Media, Partition};
use weft_fm::service::status::StartMode;
use weft_toml::ConfigError;

use crate::endpoint::number::Num;

/// The topology of a fabric.
#[derive(Clone, Debug, PartialEq, Eq, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Topology {
    /// One line about the purpose of the fabric.
    #[serde(default)]
    pub about: String,
    /// Whether hosts wait for the manager, start with it, or there is no manager.
    #[serde(default)]
    pub start: StartMode,
    /// PBR switches; the fabric manager connects to the first one.
    #[serde(default, rename = "switch")]
    pub switches: Vec<TopologySwitch>,
    /// Links between PBR switches.
    #[serde(default, rename = "link")]
    pub links: Vec<TopologyLink>,
    #[serde(default, rename = "host")]
    pub hosts: Vec<Host>,
    /// Devices other than GFDs.
    #[serde(default, rename = "device")]
    pub devices: Vec<Device>,
    #[serde(default, rename = "hbr")]
    pub hbrs: Vec<Hbr>,
    #[serde(default, rename = "gfd")]
    pub gfds: Vec<Gfd>,
    /// Shares of GFD memory.
    #[serde(default, rename = "memory")]
    pub memory: Vec<Memory>,
    /// Memory of hosts and devices that others access (GIM).
    #[serde(default)]
    pub gim: Vec<Gim>,
    /// Memory devices that accelerators access directly.
    #[serde(default)]
    pub p2p: Vec<P2p>,
}

/// A PBR switch of a topology file.
#[derive(Clone, Debug, PartialEq, Eq, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct TopologySwitch {
    pub name: String,
}

/// One or more links between two switches.
#[derive(Clone, Debug, PartialEq, Eq, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct TopologyLink {
    /// Names of both switches.
    #[serde(deserialize_with = "two")]
    pub ends: [String; 2],
    /// Number of parallel links.
    #[serde(default = "one")]
    pub count: u8,
}

/// A host of a topology file.
#[derive(Clone, Debug, PartialEq, Eq, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Host {
    pub name: String,
    /// The switch at its root port; empty if a device or HBR switch is there, which then names the host.
    #[serde(default)]
    pub at: String,
    /// Size of its own memory.
    #[serde(default = "memory_mib")]
    pub memory_mib: u32,
    /// Lines of its cache for CXL.mem; 0 for none.
    #[serde(default)]
    pub cache_lines: u32,
    /// Time limit for a device's cache to answer a snoop of the host, in milliseconds.
    #[serde(default)]
    pub snoop_ms: Option<u32>,
    /// Devices and HBR switches of its hierarchy, in the order of their vPPBs.
    #[serde(default)]
    pub bind: Vec<String>,
    /// Gives each of these at another switch a virtual link of its own, instead of one for all at that switch.
    #[serde(default)]
    pub link_per_device: bool,
    /// vPPBs of its virtual switch that stay free for later bindings.
    #[serde(default)]
    pub spare_vppbs: u8,
    /// All other hosts, and their accelerators and NICs, may access its memory (GIM), by FAST.
    #[serde(default)]
    pub gim: bool,
    /// Lines of its memory watched by Lightweight Notification, which puts its links in non-flit mode.
    #[serde(default)]
    pub ln_lines: Option<usize>,
    /// Watchers of one line that get directed messages; a broadcast beyond.
    #[serde(default)]
    pub ln_watchers: Option<usize>,
    /// It has transfers of fabric memory; others access the memory that it registers for them.
    #[serde(default)]
    pub enable_use_fabric_mem: bool,
    /// PCIe segment of its hierarchy.
    #[serde(default)]
    pub segment: u8,
    /// Domain secret that it sets at its switch, 1 to 16 bytes. Devices of hosts with the same secret may access each
    /// other's memory devices.
    #[serde(default)]
    pub domain: Option<String>,
}

/// A device of a topology file.
#[derive(Clone, Debug, PartialEq, Eq, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Device {
    pub name: String,
    /// The PBR or HBR switch that it is at, or the host.
    pub at: String,
    #[serde(default)]
    pub kind: DeviceKind,
    /// All other hosts, and their accelerators and NICs, may access memory of it (GIM), by FAST.
    #[serde(default)]
    pub gim: bool,
    /// Log2 of the lines of its Lightweight Notification requester, which puts its links in non-flit mode.
    #[serde(default)]
    pub lnr: Option<u8>,
    /// Logical devices of a memory device, each for a host of its own: `bind = ["NAME.0"]`.
    #[serde(default)]
    pub lds: Option<u8>,
    /// Memory of all logical devices together; without logical devices its host-managed memory (HDM).
    #[serde(default)]
    pub capacity_mib: Option<u32>,
    /// Part of that memory that is dynamic capacity.
    #[serde(default)]
    pub dynamic_mib: Option<u32>,
    /// Memory of each logical device, by number; equal parts by default.
    #[serde(default)]
    pub ld_mib: Option<Vec<u32>>,
    /// Share of the bandwidth for each under contention, in 256ths, by number.
    #[serde(default)]
    pub ld_bandwidth: Option<Vec<u8>>,
    /// Upper limit of the bandwidth for each, in 256ths, by number; 0 for no limit.
    #[serde(default)]
    pub ld_limit: Option<Vec<u8>>,
    /// Rate of its link in Gbit/s, of which bandwidth shares are parts; 100 by default.
    #[serde(default)]
    pub gbps: Option<u64>,
    /// Whether an accelerator or NIC starts transfers of fabric memory itself.
    #[serde(default)]
    pub enable_use_fabric_mem: bool,
    /// Latency of a memory device in ns, for its CDAT.
    #[serde(default)]
    pub latency_ns: Option<u64>,
    /// Bandwidth of a memory device in MB/s, for its CDAT.
    #[serde(default)]
    pub bandwidth_mbps: Option<u64>,
    /// Memory behind BAR 0 of a device without logical devices; 1 by default.
    #[serde(default)]
    pub bar_mib: Option<u32>,
    /// Lines of its cache for the host's memory (CXL.cache); 0 for none.
    #[serde(default)]
    pub cache_lines: u32,
}

/// Memory of a host or device that others access.
#[derive(Clone, Debug, Default, PartialEq, Eq, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Gim {
    /// Name of the range; the owner's name by default.
    pub name: Option<String>,
    /// Owner: a host, an accelerator or a NIC.
    pub of: String,
    /// Hosts, accelerators and NICs that may access it; all others by default.
    pub from: Option<Vec<String>>,
    #[serde(default)]
    pub by: Flow,
    /// Length in bytes; by default all of a host's memory, or 16 MiB of a device.
    #[serde(default, deserialize_with = "some_number")]
    pub len: Option<u64>,
    /// Address at which all of them see it; chosen by default.
    #[serde(default, deserialize_with = "some_number")]
    pub hpa: Option<u64>,
}

/// A memory device that accelerators access directly, by UIO (CXL 3.1 section 7.7.9).
#[derive(Clone, Debug, Default, PartialEq, Eq, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct P2p {
    /// Name of the range; the memory device's name by default.
    pub name: Option<String>,
    /// Accelerators and NICs that access it.
    pub from: Vec<String>,
    pub to: String,
    /// Length in bytes; 256 MiB by default.
    #[serde(default, deserialize_with = "some_number")]
    pub len: Option<u64>,
    /// Address at which all of them, and the memory device itself, see it; chosen by default.
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
    /// By a `VendPrefixL0` that the requester adds (figure 7-41).
    Prefix,
}

/// Purpose of a device.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum DeviceKind {
    /// Memory behind a BAR, or managed by hosts.
    #[default]
    Memory,
    /// Sends UIO requests of its own.
    Accelerator,
    /// Moves data between a network and memory, by UIO.
    Nic,
}

/// An HBR switch of a topology file.
#[derive(Clone, Debug, PartialEq, Eq, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Hbr {
    pub name: String,
    /// The PBR or HBR switch at its upstream port, or the host.
    pub at: String,
}

/// One or more G-FAM devices of a topology file.
#[derive(Clone, Debug, PartialEq, Eq, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Gfd {
    /// Name; with a count, numbers from 0 on are appended to it.
    pub name: String,
    /// The switch; with a count, the devices go to these switches in turn.
    pub at: OneOrMany,
    /// Number of devices; `None` for one without a number in its name.
    #[serde(default)]
    pub count: Option<u16>,
    /// Memory of each; by default the sum of its partitions, or 256.
    #[serde(default)]
    pub capacity_mib: Option<u32>,
    /// Media partitions for the manager to set, in order, each `KIND:SIZE[:BLOCK]`.
    #[serde(default)]
    pub partitions: Option<Vec<Partition>>,
    /// Whether lines are kept coherent in hosts' caches, by back-invalidate.
    #[serde(default)]
    pub coherent: bool,
    /// Lines of each device that hosts can hold at once.
    #[serde(default)]
    pub filter_lines: Option<u32>,
    /// Time limit for a host to answer a snoop, in milliseconds.
    #[serde(default)]
    pub snoop_ms: Option<u32>,
    /// Rate of each link in Gbit/s; 100 by default.
    #[serde(default)]
    pub gbps: Option<u64>,
}

/// A name or a list of names.
#[derive(Clone, Debug, PartialEq, Eq, Deserialize)]
#[serde(untagged, expecting = "expected a name, or a list of names")]
pub enum OneOrMany {
    One(String),
    Many(Vec<String>),
}

impl OneOrMany {
    /// The names as a list.
    #[must_use]
    pub const fn all(&self) -> &[String] {
        match self {
            Self::One(name) => core::slice::from_ref(name),
            Self::Many(names) => names.as_slice(),
        }
    }
}

/// A share of GFD memory for hosts and devices.
#[derive(Clone, Debug, PartialEq, Eq, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Memory {
    pub name: String,
    /// Hosts that may access it.
    #[serde(default)]
    pub hosts: Vec<String>,
    /// Devices that may access it by requests of their own.
    #[serde(default)]
    pub devices: Vec<String>,
    /// GFDs in interleave order; the name of a GFD with a count stands for all of them.
    pub gfds: Vec<String>,
    /// Total length in bytes.
    #[serde(deserialize_with = "number")]
    pub len: u64,
    /// Bytes of an interleave granule, if there are several GFDs.
    #[serde(default = "granularity", deserialize_with = "small_number")]
    pub granularity: u32,
    /// Address at which all hosts see it.
    #[serde(deserialize_with = "number")]
    pub hpa: u64,
    /// Kind of memory; by default the first partitions with room.
    #[serde(default)]
    pub media: Option<Media>,
    /// Whether GFDs notify its hosts of refused accesses.
    #[serde(default)]
    pub notify: bool,
}

/// Reads a number of bytes or an address: a number, or text such as "32MiB" and "`0x10000000000`".
fn number<'de, D: Deserializer<'de>>(from: D) -> Result<u64, D::Error> {
    Num::deserialize(from).map(|it| it.0)
}

fn some_number<'de, D: Deserializer<'de>>(from: D) -> Result<Option<u64>, D::Error> {
    number(from).map(Some)
}

fn small_number<'de, D: Deserializer<'de>>(from: D) -> Result<u32, D::Error> {
    u32::try_from(number(from)?).map_err(|_| D::Error::custom("expected less than 4GiB"))
}

/// Reads both ends of a link. By hand, because serde reads a longer list into an array up to the second element.
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
    /// Reads the text of a topology file.
    ///
    /// # Errors
    /// All that is wrong with keys and values.
    pub fn parse(text: &str) -> Result<Self, ConfigError> {
        weft_toml::read("topology", text)
    }
}
