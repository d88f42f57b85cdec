//! Static description of a switch: ports and their roles, virtual switches and their bridges, sizes of tables.
//!
//! A [`super::Switch`] is made from a [`SwitchConfig`], which does not change while the switch runs.
//!
//! Source: docs/spec/cxl-fabric.md "Port roles"; CXL 3.1 sections 7.7.2.6, 7.7.5, 7.7.6.5.

use weft_cxl::pci::bridge::BridgeError;
use weft_cxl::pci::function::FunctionError;
use weft_cxl::pci::mailbox::MailboxError;
use weft_dataplane::pbr::TableError;
use weft_dataplane::time::Span;
use weft_dataplane::types::PortId;
use weft_parsers::cci::Uuid;
use weft_parsers::cci::generic::Identity;

use super::static_init::{StaticInit, StaticInitError};

/// The kind of link partner that a port is meant for.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Role {
    /// Edge, upstream: leads to a host's root port.
    Usp,
    /// Edge, downstream: leads to a device, an HBR switch or a GFD.
    Dsp,
    /// Inter-switch link: leads to another PBR switch.
    Fabric,
}

/// Configuration of a port.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct PortConfig {
    pub port: PortId,
    pub role: Role,
    /// How many PIDs the manager may assign to it, at least 1.
    pub pids: u8,
}

/// Configuration of a virtual switch.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct VcsConfig {
    /// The host's port. Without one the upstream vPPB is a vUSP, which the manager binds to a host edge by PID.
    pub usp: Option<PortId>,
    /// Downstream vPPBs, 0..=254.
    pub vppbs: u8,
    /// Whether it has a Global Access Endpoint.
    pub gae: bool,
}

/// Number of entries in the tables of each vPPB.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Sizes {
    /// Segments of the FAST, a power of two.
    pub fast: usize,
    /// Entries of the interleave table (IDT) of the FAST, at most 4,096.
    pub fast_idt: usize,
    /// Segments of the LDST, a power of two.
    pub ldst: usize,
    /// Entries of the interleave table (IDT) of the LDST, at most 4,096.
    pub ldst_idt: usize,
}

impl Default for Sizes {
    fn default() -> Self {
        Self { fast: 4_096, fast_idt: 1_024, ldst: 4_096, ldst_idt: 1_024 }
    }
}

/// Configuration of a PBR switch.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct SwitchConfig {
    /// Response of Identify (0001h).
    pub identity: Identity,
    /// Name that it announces to its link partners.
    pub uuid: Uuid,
    pub ports: Vec<PortConfig>,
    /// Virtual switches; commands name them by index in this list.
    pub vcses: Vec<VcsConfig>,
    /// Routing groups, 0..=256.
    pub groups: u16,
    /// Sizes of the tables of every vPPB.
    pub sizes: Sizes,
    /// Duration of a bind or unbind.
    pub bind_time: Span,
    /// GFD commands that one GAE forwards at the same time.
    pub threads: u16,
    /// PIDs, routes and bindings set up at start when no fabric manager does it.
    pub static_init: Option<StaticInit>,
}

impl SwitchConfig {
    /// A switch under the CXL consortium's vendor ID, without ports and virtual switches.
    #[must_use]
    pub const fn new(uuid: Uuid, serial: u64) -> Self {
        let identity = Identity {
            // 1E98h is the vendor ID of the CXL consortium; device IDs of weft are "WF" and up in ASCII.
            vendor: 0x1E98,
            device: 0x5746,
            subsystem_vendor: 0x1E98,
            subsystem: 0,
            serial,
            message_max_log2: 16,
            component: 0,
        };
        let sizes = Sizes { fast: 4_096, fast_idt: 1_024, ldst: 4_096, ldst_idt: 1_024 };
        Self {
            identity,
            uuid,
            ports: Vec::new(),
            vcses: Vec::new(),
            groups: 256,
            sizes,
            bind_time: Span::from_ms(1),
            threads: 2,
            static_init: None,
        }
    }
}

/// Why a switch cannot be built from its configuration.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
pub enum ConfigError {
    /// A port is listed twice, or has room for no PID.
    #[error("port {0} is listed twice, or cannot have a PID")]
    Port(u8),
    /// The host's port of a virtual switch is not an upstream port, or already belongs to another virtual switch.
    #[error("port {port} cannot be the upstream port of virtual switch {vcs}")]
    Usp {
        /// Index of the virtual switch.
        vcs: usize,
        /// Number of the port.
        port: u8,
    },
    /// More virtual switches, or more bridges in one, than a command can name.
    #[error("{0} virtual switches, or the vPPBs of one, are more than can be named")]
    Count(usize),
    /// The dataplane rejects a table of the configured size.
    #[error(transparent)]
    Table(#[from] TableError),
    /// The static set-up does not fit the switch.
    #[error(transparent)]
    StaticInit(#[from] StaticInitError),
    /// A vPPB or a port's bridge cannot be built.
    #[error(transparent)]
    Bridge(#[from] BridgeError),
    /// The function of a GAE cannot be built.
    #[error(transparent)]
    Gae(#[from] FunctionError),
    /// The mailbox of a GAE cannot be built.
    #[error(transparent)]
    Mailbox(#[from] MailboxError),
}
