//! What can be asked of the fabric manager, and what it answers.
//!
//! [`Request`] -> [`Response`], both JSON.
//!
//! Units: bytes; PIDs as numbers of 12 bits in answers, as hexadecimal text in requests.
//! Source: docs/spec/cxl-fabric.md "The fabric manager".

use serde::{Deserialize, Serialize};

pub use super::ld_request::{CapacityChange, CapacityExtent, CapacityRow, LdChange, LdRow};
pub use super::status::{EventRecord, Status};
use crate::inventory::Inventory;
use crate::media::{Dmp, Media};
use crate::overview::{AddressMap, BindingUse, GfdLoad, LinkRow, NameRow};
use crate::port_reset::PortReset;
use crate::trace::{Trace, Via};

/// The format that a topology is asked for in.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum TopologyFormat {
    /// A tree in text.
    #[default]
    Text,
    /// A graph for Graphviz.
    Dot,
    /// A picture.
    Svg,
    /// Not at all: all that is known.
    Data,
}

/// A vector of PIDs at a host's edge.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "clap", derive(clap::ValueEnum))]
#[serde(rename_all = "snake_case")]
pub enum Vector {
    /// GFDs that may be mapped.
    Gmv,
    /// Hosts whose memory may be mapped.
    Vtv,
    /// Ports of LD-FAM that may be mapped.
    Lav,
}

/// A request to the fabric manager. Switches, GFDs and hosts are named as the wanted state names them, by UUID, by PID,
/// or by place (`s0`, `s0.3`).
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(tag = "cmd", rename_all = "snake_case", deny_unknown_fields)]
pub enum Request {
    /// How far the FM is.
    Status,
    /// Finds all components again, and brings about what is wanted.
    Discover,
    /// A second FM becomes the primary one.
    TakeOver,
    /// What there is.
    Topology {
        /// How it is drawn.
        #[serde(default)]
        drawn: TopologyFormat,
    },
    /// What there is, who has what of it, and which way it goes: all that a picture of the fabric shows.
    Overview,
    /// Who sees what.
    Bindings,
    /// Shows a device, or a virtual switch elsewhere, at a bridge.
    Bind {
        /// SWITCH/VCS/VPPB.
        bridge: String,
        /// `port:N`, `port:N.LD` or SWITCH/VCS/VPPB.
        to: String,
    },
    /// Takes it away.
    Unbind {
        /// SWITCH/VCS/VPPB.
        bridge: String,
    },
    /// Resets what is at a port.
    ControlPort {
        /// A device's or GFD's name, `s0.3`, or SWITCH/port:N.
        port: String,
        /// How.
        reset: PortReset,
    },
    /// Has a bridge report an error to its host.
    GenerateAer {
        /// SWITCH/VCS/VPPB.
        bridge: String,
        /// The error's name, such as `poisoned-tlp`.
        error: String,
        /// Header of the TLP that is at fault, in hexadecimal digits; zeros otherwise.
        #[serde(default)]
        tlp: Option<String>,
    },
    /// Tables of the switches.
    Routes {
        /// Checks the proof again, and shows it.
        #[serde(default)]
        prove: bool,
        /// Only those of one switch.
        #[serde(default)]
        switch: Option<String>,
    },
    /// Who has which memory.
    Memory,
    /// Gives memory to hosts, and to devices that are bound.
    Share {
        /// Its name.
        name: String,
        /// Who has it.
        hosts: Vec<String>,
        /// GFDs in the order of the ways.
        #[serde(default)]
        gfds: Vec<String>,
        /// How many, where none are named.
        #[serde(default)]
        ways: Option<u16>,
        /// In all.
        size: u64,
        /// Bytes of an interleave granule.
        granularity: u32,
        /// Where all hosts see it.
        hpa: u64,
        /// Of which kind of memory; of the first partitions that have room, where nothing is said.
        #[serde(default)]
        media: Option<Media>,
        /// Its GFDs notify hosts that have it.
        #[serde(default)]
        notify: bool,
    },
    /// Media partitions of GFDs.
    Partitions,
    /// Logical devices: what each has, and who sees it.
    Lds,
    /// Changes what a logical device has.
    SetLd {
        /// Its device: the name, `s0.3` or SWITCH/port:N.
        device: String,
        /// Its number.
        ld: u8,
        /// What it is to have.
        change: LdChange,
    },
    /// Dynamic capacity of logical devices: what there is, and who has it.
    LdCapacity,
    /// Adds dynamic capacity to a logical device, or releases it.
    SetLdCapacity {
        /// Its device: the name, `s0.3` or SWITCH/port:N.
        device: String,
        /// Its number.
        ld: u8,
        /// What is to be done.
        change: CapacityChange,
    },
    /// Who shows whom which memory (GIM).
    Gim,
    /// Shows memory of a host or device to others.
    ShowGim {
        /// Its name.
        name: String,
        /// Whose.
        of: String,
        /// Hosts and devices that reach it.
        from: Vec<String>,
        /// They name the target themselves.
        #[serde(default)]
        prefix: bool,
        /// Bytes.
        size: u64,
        /// Where all of them see it.
        hpa: u64,
    },
    /// Which memory devices are accessed directly, and by whom (direct P2P to HDM).
    P2p,
    /// Has devices access a memory device directly.
    AddP2p {
        /// Its name.
        name: String,
        /// Devices that access it.
        from: Vec<String>,
        /// The memory device.
        to: String,
        /// Bytes.
        size: u64,
        /// Where all of them, and the memory device itself, see it.
        hpa: u64,
    },
    /// Takes memory from all hosts, and its capacity from the GFDs; or hides GIM, or ends P2P.
    Release {
        /// Its name.
        name: String,
    },
    /// Takes memory from one host, or GIM or P2P from one host or device.
    Revoke {
        /// Its name.
        name: String,
        /// From whom.
        host: String,
    },
    /// Gives memory that is there to one host more.
    Grant {
        /// Its name.
        name: String,
        /// To whom.
        host: String,
    },
    /// What a host's edge lets through.
    Access {
        /// Whose.
        host: String,
    },
    /// Changes that.
    SetAccess {
        /// Whose.
        host: String,
        /// Which vector.
        vector: Vector,
        /// Whom it may reach.
        pid: String,
        /// Or no more.
        on: bool,
    },
    /// Who has which PID.
    Pids,
    /// Gives a target a PID.
    Assign {
        /// Whose.
        switch: String,
        /// Which.
        target: u16,
        /// Which of its PIDs.
        #[serde(default)]
        instance: u8,
        /// The PID; a free one otherwise.
        #[serde(default)]
        pid: Option<String>,
    },
    /// What paths cost.
    Cdat {
        /// The CDAT of a component, by PID.
        #[serde(default)]
        read: Option<String>,
    },
    /// Every lookup for one address.
    Trace {
        /// Whose.
        host: String,
        /// The address.
        hpa: u64,
        /// Kind of the requests.
        #[serde(default)]
        via: Via,
    },
    /// What happened.
    Events {
        /// Only later ones.
        #[serde(default)]
        after: u64,
    },
    /// Bytes for a component.
    Cci {
        /// `entry`, `port:N`, `pid:P` or `pid:P/port:N`.
        to: String,
        /// The message, in hexadecimal digits.
        message: String,
    },
}

impl Request {
    /// Whether it changes nothing.
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

/// A binding, as it is shown.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct BindingRow {
    /// The bridge at the host.
    pub bridge: String,
    /// What it shows.
    pub to: String,
    /// `local` or `link`.
    pub kind: String,
}

/// An entry of a switch's DRT, as it is shown.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct RouteRow {
    /// The switch.
    pub switch: String,
    /// Where to.
    pub pid: u16,
    /// Ports; the first takes static messages.
    pub ports: Vec<u8>,
    /// The group, where it is one.
    pub group: Option<u8>,
}

/// The answer to a request for routes: tables, or the proof that they hold.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Routes {
    /// Entries, where they were not asked to be proved.
    pub rows: Vec<RouteRow>,
    /// Most hops of any packet.
    pub hops_max: u32,
    /// The proof, where it was asked for: checked again.
    pub proof: Option<String>,
    /// Who does not reach whom.
    pub partition: Option<String>,
}

/// The part of a share in one GFD, as it is shown.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct PartRow {
    /// The GFD.
    pub gfd: u16,
    /// The group.
    pub group: u16,
    /// The decoder.
    pub decoder: u8,
    /// Where in the GFD.
    pub dpa: u64,
    /// Kind of memory of the partition that it is in; none where the GFD does not tell.
    #[serde(default)]
    pub media: Option<Media>,
}

/// A media partition of a GFD, as it is shown.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct DmpRow {
    /// The GFD.
    pub gfd: u16,
    /// The partition.
    #[serde(flatten)]
    pub dmp: Dmp,
    /// Bytes of it that belong to memory.
    pub used: u64,
}

/// A share of memory of GFDs, as it is shown.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct ShareRow {
    /// Its name.
    pub name: String,
    /// Where hosts see it.
    pub hpa: u64,
    /// In all.
    pub size: u64,
    /// Bytes of an interleave granule; 0: not known.
    #[serde(default)]
    pub granularity: u32,
    /// PIDs of the hosts and devices.
    pub hosts: Vec<u16>,
    /// Its GFDs notify them.
    #[serde(default)]
    pub notify: bool,
    /// By way.
    pub parts: Vec<PartRow>,
}

/// A host or device, by name and PID.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct NamedPid {
    /// Its name; the PID's digits where it has none.
    pub name: String,
    /// Its PID.
    pub pid: u16,
}

/// A grant of GIM, as it is shown: memory of a host or device that others reach.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct GimRow {
    /// Its name.
    pub name: String,
    /// Whose.
    pub of: NamedPid,
    /// Who reaches it.
    pub from: Vec<NamedPid>,
    /// They name the target themselves.
    pub prefix: bool,
    /// Where all of them see it.
    pub hpa: u64,
    /// Bytes.
    pub size: u64,
}

/// How far direct access to a memory device is.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum P2pState {
    /// Its rights are set.
    Given,
    /// A host has not told yet of which domain it is.
    Waits,
    /// The hosts are of different domains.
    Refused,
}

/// Direct access to a memory device (P2P), as it is shown.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct P2pRow {
    /// Its name.
    pub name: String,
    /// The memory device.
    pub to: NamedPid,
    /// Who accesses it.
    pub from: Vec<NamedPid>,
    /// Where all of them see it.
    pub hpa: u64,
    /// Bytes.
    pub size: u64,
    /// How far it is.
    pub state: P2pState,
    /// Why it is not given.
    pub why: Option<String>,
}

/// The rights at a host's edge: whom it may reach.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Access {
    /// Its PID.
    pub host: u16,
    /// GFDs.
    pub gmv: Vec<u16>,
    /// Hosts.
    pub vtv: Vec<u16>,
    /// Ports of LD-FAM.
    pub lav: Vec<u16>,
}

/// A PID and what has it, as it is shown.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct PidRow {
    /// The PID; none where the target has none.
    pub pid: Option<u16>,
    /// Where.
    pub at: String,
    /// What has it.
    pub what: String,
    /// The target, and which of its PIDs.
    pub target: Option<(u16, u8)>,
}

/// The cost of a path, as it is shown.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct CostRow {
    /// From whom.
    pub from: u16,
    /// To whom.
    pub to: u16,
    /// For what.
    pub what: String,
    /// Latency of the path, ns.
    pub latency_ns: u64,
    /// Bandwidth of the slowest link, MB/s; 0: no link bounds it.
    pub bandwidth_mbps: u64,
}

/// All of a fabric that a picture of it shows.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Overview {
    /// What there is.
    pub inventory: Inventory,
    /// What it is called.
    pub names: Vec<NameRow>,
    /// Links.
    pub links: Vec<LinkRow>,
    /// Who sees what.
    pub bindings: Vec<BindingUse>,
    /// Who has which memory.
    pub memory: Vec<ShareRow>,
    /// Who shows whom which memory.
    pub gim: Vec<GimRow>,
    /// Who accesses which memory device directly, or waits for that.
    pub p2p: Vec<P2pRow>,
    /// Addresses by requester, hosts first.
    pub maps: Vec<AddressMap>,
    /// How loaded GFDs are.
    pub gfds: Vec<GfdLoad>,
}

/// A component's response to a command that was passed on.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct CciAnswer {
    /// The command.
    pub opcode: String,
    /// Number of the return code.
    pub code: u16,
    /// Its name.
    pub name: String,
    /// The payload, in hexadecimal digits.
    pub payload: String,
}

/// The fabric manager's answer to a request.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Response {
    /// How far the FM is.
    Status(Status),
    /// What there is, drawn.
    Topology(String),
    /// What there is.
    Inventory(Box<Inventory>),
    /// All that a picture of the fabric shows.
    Overview(Box<Overview>),
    /// Who sees what.
    Bindings(Vec<BindingRow>),
    /// It is done; a line for each thing to know.
    Done(Vec<String>),
    /// Tables.
    Routes(Routes),
    /// Who has which memory.
    Memory(Vec<ShareRow>),
    /// Media partitions of GFDs.
    Partitions(Vec<DmpRow>),
    /// Who shows whom which memory.
    Gim(Vec<GimRow>),
    /// Which memory devices are accessed directly.
    P2p(Vec<P2pRow>),
    /// Logical devices.
    Lds(Vec<LdRow>),
    /// Dynamic capacity of devices with logical devices.
    LdCapacity(Vec<CapacityRow>),
    /// What a host's edge lets through.
    Access(Access),
    /// Who has which PID.
    Pids(Vec<PidRow>),
    /// What paths cost.
    Costs(Vec<CostRow>),
    /// Bytes, in hexadecimal digits.
    Bytes(String),
    /// Every lookup for one address.
    Trace(Trace),
    /// What happened.
    Events(Vec<EventRecord>),
    /// What a component said.
    Cci(CciAnswer),
}
