//! Why a topology cannot be built.
//!
//! A variant for each thing that cannot be, with the names of who has to do with it.
//!
//! Source: docs/fabric.md; CXL 3.1 sections 7.7.3, 7.7.5, 7.7.6.1, 7.7.12.1.

use std::fmt;

use weft_fm::memory::map::Conflict;
use weft_fm::rules::Forbidden;

/// Why a topology cannot be built.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum LayoutError {
    /// A name is there twice.
    #[error("{0:?} is defined twice")]
    Twice(String),
    /// A name of no folder, or of the manager's.
    #[error(
        "{what} {name:?}: expected a name of 1 to 32 letters, digits, '-', '_' and '.' that begins with neither '.' nor '-' and is not \"fm\", as its files are in a directory of that name"
    )]
    FileName {
        /// What is called so.
        what: &'static str,
        /// The name.
        name: String,
    },
    /// A name of memory that is no word.
    #[error("{what} {name:?}: expected a name of letters, digits, '-', '_' and '.'")]
    MemoryName {
        /// What is called so.
        what: &'static str,
        /// The name.
        name: String,
    },
    /// A name that the manager takes for something else.
    #[error(
        "{what} {name:?}: `weft fm` would take that for a PID, a UUID or a place (s0, entry): choose another name"
    )]
    ManagerName {
        /// What is called so.
        what: &'static str,
        /// The name.
        name: String,
    },
    /// An HBR switch is below itself.
    #[error("hbr {0}: it is below itself: give it the switch or host that it is at")]
    Circle(String),
    /// A host has no link.
    #[error(
        "host {0}: nothing is connected to it: give it the switch that it is at (at), or a device or HBR switch that is at it"
    )]
    Alone(String),
    /// A key of a virtual switch, of a host without one.
    #[error(
        "host {host}: {key} has no effect without a switch: give the host a switch (at), or leave {key} out"
    )]
    NoEdge {
        /// The host.
        host: String,
        /// The key.
        key: &'static str,
    },
    /// Transfers of fabric memory, of a host or device that reaches none.
    #[error(
        "{kind} {name}: enable_use_fabric_mem has no effect, as it has no [[memory]], [[gim]] or [[p2p]]: give it one, or leave the key out"
    )]
    NoTransfers {
        /// `host` or `device`.
        kind: &'static str,
        /// Which.
        name: String,
    },
    /// Nothing is called so.
    #[error("{by}: there is no {what} {name:?}")]
    NoSuch {
        /// Who names it.
        by: String,
        /// What it would have to be.
        what: &'static str,
        /// The name.
        name: String,
    },
    /// A connection that no rule allows.
    #[error("{a} to {b}: {source}")]
    Forbidden {
        /// One end.
        a: String,
        /// The other.
        b: String,
        /// The rule.
        source: Forbidden,
    },
    /// A count that cannot be.
    #[error("{name}: {what}: expected {want}, found {had}")]
    Count {
        /// Whose.
        name: String,
        /// Of what.
        what: &'static str,
        /// What is allowed.
        want: &'static str,
        /// What the file says.
        had: u64,
    },
    /// Memory of hosts and devices for others (GIM) that no rule allows.
    #[error("gim {name}: {who}: {source}")]
    Gim {
        /// What it is called.
        name: String,
        /// Whose part in it cannot be.
        who: String,
        /// The rule.
        source: GimRule,
    },
    /// Direct access to a memory device that no rule allows.
    #[error("p2p {name}: {who}: {source}")]
    P2p {
        /// What it is called.
        name: String,
        /// Whose part in it cannot be.
        who: String,
        /// The rule.
        source: P2pRule,
    },
    /// Memory that cannot be dealt out so.
    #[error("memory {name}: {why}")]
    Misfit {
        /// What it is called.
        name: String,
        /// Why not.
        why: String,
    },
    /// Media partitions that a GFD cannot have.
    #[error("{name}: partitions: {why}")]
    Partitions {
        /// The GFD.
        name: String,
        /// Why not.
        why: String,
    },
    /// Memory where a requester has something else.
    #[error("memory {name}: {who}: {source}")]
    Taken {
        /// What it is called.
        name: String,
        /// Whose addresses they are.
        who: String,
        /// The rule, and what is there.
        source: Conflict,
    },
    /// UIO is of flit mode, and Lightweight Notification of non-flit mode.
    #[error(
        "{name}: its links are in non-flit mode for Lightweight Notification, which has no UIO: it can have no part in {what}"
    )]
    NonFlit {
        /// Who.
        name: String,
        /// What it was to have.
        what: String,
    },
    /// What a fabric without a manager cannot have.
    #[error("{0:?}: a static fabric has no G-FAM, no GIM, no P2P and no logical devices")]
    Static(String),
    /// A device has two hosts.
    #[error("{device}: {first} and {second} both bind it")]
    BoundTwice {
        /// The device.
        device: String,
        /// One host.
        first: String,
        /// The other.
        second: String,
    },
    /// A device is to reach memory, but no host can set the tables of its port.
    #[error("{by}: {device} is not bound to a host")]
    NoTables {
        /// Which memory.
        by: String,
        /// The device.
        device: String,
    },
    /// A device with logical devices cannot be so.
    #[error("{device}: {why}")]
    Lds {
        /// The device.
        device: String,
        /// Why not.
        why: String,
    },
    /// What a host binds hangs on no PBR switch directly.
    #[error("{host}: {device} cannot be bound: it is at {at}, which is no PBR switch")]
    Unbindable {
        /// Who binds.
        host: String,
        /// What.
        device: String,
        /// Where it is.
        at: String,
    },
}

/// A rule that direct access to a memory device has to keep in a topology file.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum P2pRule {
    /// What is accessed.
    #[error("p2p-memory-device: what is accessed directly is a device of kind memory")]
    MemoryDevice,
    /// Who accesses it.
    #[error(
        "p2p-requester: an accelerator or a NIC accesses it by UIO, and the host that binds it by CXL.mem, too"
    )]
    Requester,
    /// The port of a PBR switch leads to one of them.
    #[error(
        "p2p-one-below-hbr: another memory device below the same HBR switch has a p2p: the manager knows only the port that leads to both"
    )]
    OneBelowHbr,
    /// Both are in hierarchies.
    #[error(
        "p2p-bound: a host binds it at a port of a PBR switch: the tables of that port are the host's"
    )]
    Bound,
    /// Both hierarchies are of one domain.
    #[error(
        "p2p-same-domain: the hosts of both devices are different ones, and have not the same domain"
    )]
    SameDomain,
    /// Ids are told apart by segments.
    #[error(
        "p2p-own-pcie-segment: hosts of one domain whose devices access each other's have different PCIe segments"
    )]
    OwnPcieSegment,
    /// A requester has one logical device of a device.
    #[error(
        "p2p-one-ld: it accesses another logical device of the same device: its requests name none, so the edge could not tell which"
    )]
    OneLd,
    /// A device has no more than it has.
    #[error("p2p-within-device: more is accessed than all memory of the device")]
    WithinDevice,
    /// A memory device has one address.
    #[error("p2p-one-address: a memory device is at one address for all who access it")]
    OneAddress,
    /// It lies in the fabric's addresses.
    #[error(
        "p2p-fabric-addresses: memory that is accessed directly lies in the fabric's addresses, in whole multiples of 256 MiB"
    )]
    FabricAddresses,
    /// A requester has something else there.
    #[error(transparent)]
    Taken(Conflict),
}

/// A rule that GIM of a topology file has to keep.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum GimRule {
    /// GIM is reached by UIO only.
    UioOnly,
    /// Whose memory it is takes requests with a prefix, and answers with it.
    TakesPrefix,
    /// Prefixes are enabled at edge ports that carry no PTH.
    EdgeOnly,
    /// The tables and rights of an edge are those of a GAE.
    ByGae,
    /// GIM is memory of another domain.
    OtherDomain,
    /// GIM lies in the fabric's addresses, in segments of its own.
    OwnSegment,
    /// No more is shown than there is.
    WithinMemory,
}

impl fmt::Display for GimRule {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::UioOnly => {
                "gim-uio-only: GIM is reached by UIO only, which a memory device does not send"
            }
            Self::TakesPrefix => {
                "gim-takes-prefix: the owner of the memory answers with the VendPrefixL0 of the request: \
                 a host, an accelerator or a NIC"
            }
            Self::EdgeOnly => {
                "gim-edge-only: VendPrefixL0 is for hosts and devices at edge ports of their own \
                 that carry no PTH"
            }
            Self::ByGae => {
                "gim-by-gae: a device has the rights and tables of the GAE of a virtual switch, whose host \
                 binds it"
            }
            Self::OtherDomain => {
                "gim-other-domain: GIM is memory of another domain than the requester's"
            }
            Self::OwnSegment => {
                "gim-own-segment: memory begins in a segment of 64 GiB of the fabric's addresses, \
                 which has nothing else, and does not leave it"
            }
            Self::WithinMemory => "gim-within-memory: more is shown than there is",
        })
    }
}

impl core::error::Error for GimRule {}
