//! Reasons why a topology cannot be built.
//!
//! Each rule has a variant, with the names of the parts concerned.
//!
//! Source: docs/fabric.md; CXL 3.1 sections 7.7.3, 7.7.5, 7.7.6.1, 7.7.12.1.

use std::fmt;

use weft_fm::components::memory::map::Conflict;
use weft_fm::model::rules::Forbidden;

/// Reasons why a topology cannot be built.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum LayoutError {
    /// Two parts have one name.
    #[error("{0:?} is defined twice")]
    Twice(String),
    /// A name that cannot be a directory, or is the manager's.
    #[error(
        "{what} {name:?}: expected a name of 1 to 32 letters, digits, '-', '_' and '.' that begins with neither '.' nor '-' and is not \"fm\", as its files are in a directory of that name"
    )]
    FileName {
        /// Kind of part.
        what: &'static str,
        name: String,
    },
    /// A name of memory that is not a word.
    #[error("{what} {name:?}: expected a name of letters, digits, '-', '_' and '.'")]
    MemoryName {
        /// Kind of memory.
        what: &'static str,
        name: String,
    },
    /// A name that `weft fm` would read as something else.
    #[error(
        "{what} {name:?}: `weft fm` would take that for a PID, a UUID or a place (s0, entry): choose another name"
    )]
    ManagerName {
        /// Kind of part.
        what: &'static str,
        name: String,
    },
    /// An HBR switch is below itself.
    #[error("hbr {0}: it is below itself: give it the switch or host that it is at")]
    Circle(String),
    /// No link leads to a host.
    #[error(
        "host {0}: nothing is connected to it: give it the switch that it is at (at), or a device or HBR switch that is at it"
    )]
    Alone(String),
    /// A key that needs a virtual switch, of a host without one.
    #[error(
        "host {host}: {key} has no effect without a switch: give the host a switch (at), or leave {key} out"
    )]
    NoEdge { host: String, key: &'static str },
    /// Transfers of fabric memory, of a host or device that reaches no such memory.
    #[error(
        "{kind} {name}: enable_use_fabric_mem has no effect, as it has no [[memory]], [[gim]] or [[p2p]]: give it one, or leave the key out"
    )]
    NoTransfers {
        /// `host` or `device`.
        kind: &'static str,
        name: String,
    },
    /// No part has this name.
    #[error("{by}: there is no {what} {name:?}")]
    NoSuch {
        /// The entry that uses the name.
        by: String,
        /// Expected kind of part.
        what: &'static str,
        name: String,
    },
    /// A connection that a rule forbids.
    #[error("{a} to {b}: {source}")]
    Forbidden { a: String, b: String, source: Forbidden },
    /// A number out of range.
    #[error("{name}: {what}: expected {want}, found {had}")]
    Count {
        /// The part or entry that has it.
        name: String,
        /// The key or quantity.
        what: &'static str,
        /// Allowed range.
        want: &'static str,
        /// Found value.
        had: u64,
    },
    /// GIM that breaks a rule.
    #[error("gim {name}: {who}: {source}")]
    Gim {
        /// Name of the GIM range.
        name: String,
        /// The part that breaks the rule.
        who: String,
        source: GimRule,
    },
    /// Direct access to a memory device that breaks a rule.
    #[error("p2p {name}: {who}: {source}")]
    P2p {
        /// Name of the P2P range.
        name: String,
        /// The part that breaks the rule.
        who: String,
        source: P2pRule,
    },
    /// A share of memory that cannot be laid out.
    #[error("memory {name}: {why}")]
    Misfit {
        /// Name of the share.
        name: String,
        why: String,
    },
    /// Media partitions that a GFD cannot have.
    #[error("{name}: partitions: {why}")]
    Partitions {
        /// Name of the GFD.
        name: String,
        why: String,
    },
    /// A share at addresses that a requester uses for something else.
    #[error("memory {name}: {who}: {source}")]
    Taken {
        /// Name of the share.
        name: String,
        /// The host or device whose addresses conflict.
        who: String,
        /// The rule, and the other user of the addresses.
        source: Conflict,
    },
    /// UIO needs flit mode, and Lightweight Notification needs non-flit mode.
    #[error(
        "{name}: its links are in non-flit mode for Lightweight Notification, which has no UIO: it can have no part in {what}"
    )]
    NonFlit {
        name: String,
        /// The memory that it would reach by UIO.
        what: String,
    },
    /// G-FAM, GIM, P2P or logical devices in a fabric without a manager.
    #[error("{0:?}: a static fabric has no G-FAM, no GIM, no P2P and no logical devices")]
    Static(String),
    /// Two hosts bind one device.
    #[error("{device}: {first} and {second} both bind it")]
    BoundTwice { device: String, first: String, second: String },
    /// A device would access memory, but no host can set the tables of its port.
    #[error("{by}: {device} is not bound to a host")]
    NoTables {
        /// The share of memory.
        by: String,
        device: String,
    },
    /// A device with logical devices that break a rule.
    #[error("{device}: {why}")]
    Lds { device: String, why: String },
    /// A host binds a part that is not directly at a PBR switch.
    #[error("{host}: {device} cannot be bound: it is at {at}, which is no PBR switch")]
    Unbindable {
        /// Name of the host.
        host: String,
        /// Name in its `bind`.
        device: String,
        /// Name of the part above.
        at: String,
    },
}

/// A rule for direct access to memory devices.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum P2pRule {
    /// The target is a memory device.
    #[error("p2p-memory-device: what is accessed directly is a device of kind memory")]
    MemoryDevice,
    /// The requester is an accelerator, a NIC or the target's own host.
    #[error(
        "p2p-requester: an accelerator or a NIC accesses it by UIO, and the host that binds it by CXL.mem, too"
    )]
    Requester,
    /// The port of a PBR switch leads to one target only.
    #[error(
        "p2p-one-below-hbr: another memory device below the same HBR switch has a p2p: the manager knows only the port that leads to both"
    )]
    OneBelowHbr,
    /// Hosts bind both ends at PBR switches.
    #[error(
        "p2p-bound: a host binds it at a port of a PBR switch: the tables of that port are the host's"
    )]
    Bound,
    /// Both hosts belong to one domain.
    #[error(
        "p2p-same-domain: the hosts of both devices are different ones, and have not the same domain"
    )]
    SameDomain,
    /// Segments tell the ids of different hosts' devices apart.
    #[error(
        "p2p-own-pcie-segment: hosts of one domain whose devices access each other's have different PCIe segments"
    )]
    OwnPcieSegment,
    /// A requester accesses one logical device of a device.
    #[error(
        "p2p-one-ld: it accesses another logical device of the same device: its requests name none, so the edge could not tell which"
    )]
    OneLd,
    /// No more is accessed than the device has.
    #[error("p2p-within-device: more is accessed than all memory of the device")]
    WithinDevice,
    /// A memory device has one address.
    #[error("p2p-one-address: a memory device is at one address for all who access it")]
    OneAddress,
    /// Its address is one of the fabric's.
    #[error(
        "p2p-fabric-addresses: memory that is accessed directly lies in the fabric's addresses, in whole multiples of 256 MiB"
    )]
    FabricAddresses,
    /// A requester has something else at the address.
    #[error(transparent)]
    Taken(Conflict),
}

/// A rule for GIM.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum GimRule {
    /// Requesters of GIM send UIO.
    UioOnly,
    /// The owner takes requests with a prefix, and answers with it.
    TakesPrefix,
    /// Prefixes are enabled at edge ports without PTH.
    EdgeOnly,
    /// A device's edge has the tables and rights of a GAE.
    ByGae,
    /// GIM is memory of another domain.
    OtherDomain,
    /// GIM has segments of its own in the fabric's addresses.
    OwnSegment,
    /// No more is shown than the owner has.
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
