//! Requests to the fabric manager, and its answers.
//!
//! Both are JSON. PIDs are numbers of 12 bits in answers, and hexadecimal text in requests. Sizes are bytes.
//!
//! Source: docs/spec/cxl-fabric.md "The fabric manager".

use serde::{Deserialize, Serialize};
use weft_parsers::fabric::Pid;

pub use super::ld_request::{CapacityChange, CapacityExtent, CapacityRow, LdChange, LdRow};
pub use super::status::{EventRecord, Status};
use crate::components::edge::AccessBit;
use crate::components::media::{Dmp, Media};
use crate::components::memory::Host;
use crate::components::port_reset::PortReset;
use crate::model::inventory::Inventory;
use crate::show::overview::{AddressMap, BindingUse, GfdLoad, LinkRow, NameRow};
use crate::show::trace::{Trace, Via};
use crate::state::desired::{DesiredGim, DesiredMemory, DesiredP2p};
use crate::state::names::Names;

/// Format of a topology.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum TopologyFormat {
    /// A tree in text.
    #[default]
    Text,
    /// A graph for Graphviz.
    Dot,
    /// A picture as SVG.
    Svg,
    /// Data for programs: the whole inventory.
    Data,
}

/// A vector of PIDs at a host's edge.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "clap", derive(clap::ValueEnum))]
#[serde(rename_all = "snake_case")]
pub enum Vector {
    /// GFDs that the host may map.
    Gmv,
    /// Hosts whose memory (GIM) the host may map.
    Vtv,
    /// Ports with LD-FAM that the host may map.
    Lav,
}

impl Vector {
    /// The bit of a PID in this vector of a host's virtual switch.
    pub(super) const fn bit(self, host: Host, pid: Pid) -> AccessBit {
        match self {
            Self::Gmv => AccessBit::Gmv(host.switch, host.vcs, pid),
            Self::Vtv => AccessBit::Vtv(host.switch, host.vcs, pid),
            Self::Lav => AccessBit::Lav(host.switch, host.vcs, pid),
        }
    }
}

/// A request to the fabric manager. Switches, GFDs and hosts are named as in the wanted state, by UUID, by PID, or by
/// place (`s0`, `s0.3`).
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(tag = "cmd", rename_all = "snake_case", deny_unknown_fields)]
pub enum Request {
    /// State of the manager and its fabric.
    Status,
    /// Discovers all components again, and applies the wanted state.
    Discover,
    /// Makes a secondary manager the primary one.
    TakeOver,
    /// The inventory, in one of several formats.
    Topology {
        #[serde(default)]
        drawn: TopologyFormat,
    },
    /// All data for a picture of the fabric: inventory, names, bindings, memory and routes.
    Overview,
    Bindings,
    /// Binds a device, or a virtual switch elsewhere, to a bridge.
    Bind {
        /// The bridge as `SWITCH/VCS/VPPB`, or the name of a host.
        bridge: String,
        /// `port:N`, `port:N.LD` or `SWITCH/VCS/VPPB`; with a host, the name of a device.
        to: String,
    },
    /// Removes the binding of a bridge.
    Unbind {
        /// The bridge as `SWITCH/VCS/VPPB`.
        bridge: String,
    },
    /// Resets the component at a port.
    ControlPort {
        /// Name of a device or GFD, `s0.3`, or SWITCH/port:N.
        port: String,
        reset: PortReset,
    },
    /// Has a bridge report an error to its host.
    GenerateAer {
        /// The bridge as `SWITCH/VCS/VPPB`.
        bridge: String,
        /// Name of the error, such as `poisoned-tlp`.
        error: String,
        /// Header of the TLP at fault in hexadecimal digits; zeros if missing.
        #[serde(default)]
        tlp: Option<String>,
    },
    /// Routing tables of the switches.
    Routes {
        /// Check the proof again, and show it instead of the tables.
        #[serde(default)]
        prove: bool,
        /// Only the tables of this switch.
        #[serde(default)]
        switch: Option<String>,
    },
    /// All shares of memory.
    Memory,
    /// Gives memory to hosts and bound devices.
    Share(DesiredMemory),
    /// Media partitions of all GFDs.
    Partitions,
    /// All logical devices, with resources and bindings.
    Lds,
    /// Changes a setting of a logical device.
    SetLd {
        /// Device: a name, `s0.3` or SWITCH/port:N.
        device: String,
        /// Number of the logical device.
        ld: u8,
        change: LdChange,
    },
    /// Dynamic capacity of all devices, and who has it.
    LdCapacity,
    /// Changes dynamic capacity of a device.
    SetLdCapacity {
        /// Device: a name, `s0.3` or SWITCH/port:N.
        device: String,
        /// Number of the logical device.
        ld: u8,
        change: CapacityChange,
    },
    /// All GIM: memory that hosts and devices show each other.
    Gim,
    /// Shows memory of a host or device to others.
    ShowGim(DesiredGim),
    /// All P2P: memory devices that other devices access directly (direct P2P to HDM).
    P2p,
    /// Gives devices direct access to a memory device.
    AddP2p(DesiredP2p),
    /// Revokes memory, GIM or P2P from all, and releases it.
    Release {
        name: String,
    },
    /// Revokes memory from one host, or GIM or P2P from one host or device.
    Revoke {
        name: String,
        /// Host or device that loses it.
        host: String,
    },
    /// Gives existing memory or P2P to one more host or device.
    Grant {
        name: String,
        /// Host or device that gets it.
        host: String,
    },
    /// Access vectors of a host's edge.
    Access {
        host: String,
    },
    /// Changes an access vector of a host's edge.
    SetAccess {
        host: String,
        vector: Vector,
        /// PID that the host may reach or not.
        pid: String,
        /// True to allow, false to forbid.
        on: bool,
    },
    /// All PIDs and their owners.
    Pids,
    /// Assigns a PID to a target.
    Assign {
        switch: String,
        /// Id of the target (5703h).
        target: u16,
        /// Which of the target's PIDs.
        #[serde(default)]
        instance: u8,
        /// The PID; if missing, a free one.
        #[serde(default)]
        pid: Option<String>,
    },
    /// Latency and bandwidth of paths, or a CDAT.
    Cdat {
        /// PID of the component whose CDAT is read.
        #[serde(default)]
        read: Option<String>,
    },
    /// Every lookup for one address.
    Trace {
        /// Host or device that makes the request.
        host: String,
        hpa: u64,
        /// Kind of the request.
        #[serde(default)]
        via: Via,
    },
    /// Events of the fabric and the manager.
    Events {
        /// Number after which events are wanted.
        #[serde(default)]
        after: u64,
    },
    /// Raw bytes for a component.
    Cci {
        /// Way to it: `entry`, `port:N`, `pid:P` or `pid:P/port:N`.
        to: String,
        /// The CCI message in hexadecimal digits.
        message: String,
    },
}

impl Request {
    /// Whether the request changes nothing. `Cci` may change anything.
    #[must_use]
    pub const fn is_read_only(&self) -> bool {
        matches!(
            self,
            Self::Status
                | Self::Topology { .. }
                | Self::Overview
                | Self::Bindings
                | Self::Routes { .. }
                | Self::Memory
                | Self::Partitions
                | Self::Gim
                | Self::P2p
                | Self::Lds
                | Self::LdCapacity
                | Self::Pids
                | Self::Events { .. }
                | Self::Access { .. }
                | Self::Cdat { .. }
                | Self::Trace { .. }
        )
    }
}

/// Row about a binding.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct BindingRow {
    /// Bridge at the host.
    pub bridge: String,
    /// Port, LD or bridge that it shows.
    pub to: String,
    /// `local` or `link`.
    pub kind: String,
}

/// Row about a DRT entry.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct RouteRow {
    pub switch: String,
    /// Destination PID of the entry.
    pub pid: u16,
    /// Ports; the first one takes static messages.
    pub ports: Vec<u8>,
    /// Routing group, if the entry names one.
    pub group: Option<u8>,
}

/// Answer to a request for routes: tables, or their proof.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Routes {
    /// Entries, unless the proof was requested.
    pub rows: Vec<RouteRow>,
    /// Most hops of any packet.
    pub hops_max: u32,
    /// The proof, checked again, if requested.
    pub proof: Option<String>,
    /// Set if not every PID reaches every other.
    pub partition: Option<String>,
}

/// Row about the part of a share in one GFD.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct PartRow {
    pub gfd: u16,
    pub group: u16,
    pub decoder: u8,
    /// Start in the GFD.
    pub dpa: u64,
    /// Kind of memory of its partition; `None` if the GFD does not tell.
    #[serde(default)]
    pub media: Option<Media>,
}

/// Row about a media partition of a GFD.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct DmpRow {
    pub gfd: u16,
    #[serde(flatten)]
    pub dmp: Dmp,
    /// Bytes of it in use by shares.
    pub used: u64,
}

/// Row about a share of GFD memory.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct ShareRow {
    pub name: String,
    /// Address at which hosts see it.
    pub hpa: u64,
    /// Bytes of the whole share.
    pub size: u64,
    /// Bytes of an interleave granule; 0 if unknown.
    #[serde(default)]
    pub granularity: u32,
    /// PIDs of its hosts and devices.
    pub hosts: Vec<u16>,
    /// Whether its GFDs notify them of refused accesses.
    #[serde(default)]
    pub notify: bool,
    /// Its parts, by interleave way.
    pub parts: Vec<PartRow>,
}

/// A host or device, by name and PID.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct NamedPid {
    /// Name, or the digits of the PID if it has none.
    pub name: String,
    pub pid: u16,
}

impl NamedPid {
    pub(super) fn of(names: &Names<'_>, edge: Host) -> Self {
        Self { name: names.name_of(edge), pid: edge.pid.bits() }
    }
}

/// Row about a grant of GIM.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct GimRow {
    pub name: String,
    /// Owner of the memory.
    pub of: NamedPid,
    /// Requesters that may access it.
    pub from: Vec<NamedPid>,
    /// Whether requesters name the target themselves.
    pub prefix: bool,
    /// Address at which all of them see it.
    pub hpa: u64,
    pub size: u64,
}

/// State of a P2P.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum P2pState {
    Given,
    /// A host has not set its domain validation secret yet.
    Waits,
    /// The hosts are of different domains.
    Refused,
}

/// Row about a P2P.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct P2pRow {
    pub name: String,
    pub to: NamedPid,
    pub from: Vec<NamedPid>,
    /// Address at which all of them see it.
    pub hpa: u64,
    pub size: u64,
    pub state: P2pState,
    /// Why it is not in force.
    pub why: Option<String>,
}

/// Access vectors of a host's edge.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Access {
    pub host: u16,
    /// PIDs in GMV: GFDs.
    pub gmv: Vec<u16>,
    /// PIDs in VTV: owners and requesters of GIM.
    pub vtv: Vec<u16>,
    /// PIDs in LAV: ports of LD-FAM, and their requesters.
    pub lav: Vec<u16>,
}

/// Row about a PID and its owner.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct PidRow {
    /// `None` for a target without a PID.
    pub pid: Option<u16>,
    /// Switch and port of the owner.
    pub at: String,
    /// Kind of the owner, in words.
    pub what: String,
    /// Id of the target, and which of its PIDs it is.
    pub target: Option<(u16, u8)>,
}

/// Row about the cost of a path.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct CostRow {
    pub from: u16,
    pub to: u16,
    /// Use of the path, in words.
    pub what: String,
    /// Latency of the path, ns.
    pub latency_ns: u64,
    /// Bandwidth of the slowest link, MB/s; 0 if no link bounds it.
    pub bandwidth_mbps: u64,
}

/// All data for a picture of a fabric.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Overview {
    pub inventory: Inventory,
    pub names: Vec<NameRow>,
    pub links: Vec<LinkRow>,
    pub bindings: Vec<BindingUse>,
    pub memory: Vec<ShareRow>,
    pub gim: Vec<GimRow>,
    /// P2P, in force or waiting.
    pub p2p: Vec<P2pRow>,
    /// Address maps by requester, hosts first.
    pub maps: Vec<AddressMap>,
    pub gfds: Vec<GfdLoad>,
}

/// A component's response to raw bytes.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct CciAnswer {
    pub opcode: String,
    /// Number of the return code.
    pub code: u16,
    /// Name of the return code.
    pub name: String,
    /// Payload in hexadecimal digits.
    pub payload: String,
}

/// Answer of the fabric manager to a request.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Response {
    /// State of the manager.
    Status(Status),
    /// The inventory as text or a drawing.
    Topology(String),
    /// The inventory as data.
    Inventory(Box<Inventory>),
    /// All data for a picture of the fabric.
    Overview(Box<Overview>),
    Bindings(Vec<BindingRow>),
    /// The change is made; lines to show.
    Done(Vec<String>),
    Routes(Routes),
    Memory(Vec<ShareRow>),
    /// Media partitions of GFDs.
    Partitions(Vec<DmpRow>),
    Gim(Vec<GimRow>),
    /// P2P, in force or waiting.
    P2p(Vec<P2pRow>),
    Lds(Vec<LdRow>),
    /// Dynamic capacity of devices with logical devices.
    LdCapacity(Vec<CapacityRow>),
    /// Access vectors of a host's edge.
    Access(Access),
    Pids(Vec<PidRow>),
    Costs(Vec<CostRow>),
    /// Bytes in hexadecimal digits.
    Bytes(String),
    /// Every lookup for one address.
    Trace(Trace),
    Events(Vec<EventRecord>),
    Cci(CciAnswer),
}
