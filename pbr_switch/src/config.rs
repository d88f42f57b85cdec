//! What a switch is made of: ports and their roles, virtual switches and their bridges, sizes of tables.
//!
//! [`SwitchConfig`] in, a [`super::Switch`] out; none of it changes while the switch runs.
//!
//! Units: entries; time as `Span`.
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

/// What the link of a port is for.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Role {
    /// Edge, upstream: a host's root port.
    Usp,
    /// Edge, downstream: a device, an HBR switch or a GFD.
    Dsp,
    /// Another PBR switch.
    Fabric,
}

/// A port of a switch, as it is configured.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct PortConfig {
    /// Which.
    pub port: PortId,
    /// What for.
    pub role: Role,
    /// PIDs that it can have, at least 1.
    pub pids: u8,
}

/// A virtual switch, as it is configured.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct VcsConfig {
    /// The host's port; without one its upstream vPPB is a vUSP, to be bound to a host edge by PID.
    pub usp: Option<PortId>,
    /// Downstream vPPBs, 0..=254.
    pub vppbs: u8,
    /// It has a GAE.
    pub gae: bool,
}

/// Entries of the tables of each vPPB.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Sizes {
    /// FAST, a power of two.
    pub fast: usize,
    /// IDT of the FAST, at most 4,096.
    pub fast_idt: usize,
    /// LDST, a power of two.
    pub ldst: usize,
    /// IDT of the LDST, at most 4,096.
    pub ldst_idt: usize,
}

impl Default for Sizes {
    fn default() -> Self {
        Self { fast: 4_096, fast_idt: 1_024, ldst: 4_096, ldst_idt: 1_024 }
    }
}

/// A PBR switch, as it is configured.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct SwitchConfig {
    /// Response of Identify (0001h).
    pub identity: Identity,
    /// What it is called by its link partners.
    pub uuid: Uuid,
    /// Its ports.
    pub ports: Vec<PortConfig>,
    /// Its virtual switches, by index.
    pub vcses: Vec<VcsConfig>,
    /// Routing groups, 0..=256.
    pub groups: u16,
    /// Tables of vPPBs.
    pub sizes: Sizes,
    /// How long a bind or unbind takes.
    pub bind_time: Span,
    /// GFD commands that a GAE forwards at a time.
    pub threads: u16,
    /// What it is set up with where no fabric manager does that.
    pub static_init: Option<StaticInit>,
}

impl SwitchConfig {
    /// The configuration of a switch of CXL's, without ports and virtual switches.
    #[must_use]
    pub const fn new(uuid: Uuid, serial: u64) -> Self {
        let identity = Identity {
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

/// Why a switch cannot be made of its configuration.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
pub enum ConfigError {
    /// A port twice, or one without a PID.
    #[error("port {0} is listed twice, or cannot have a PID")]
    Port(u8),
    /// The host's port of a virtual switch is no upstream port, or another's.
    #[error("port {port} cannot be the upstream port of virtual switch {vcs}")]
    Usp {
        /// The virtual switch.
        vcs: usize,
        /// The port.
        port: u8,
    },
    /// More virtual switches, or more bridges in one, than commands can name.
    #[error("{0} virtual switches, or the vPPBs of one, are more than can be named")]
    Count(usize),
    /// Tables of that size cannot be made.
    #[error(transparent)]
    Table(#[from] TableError),
    /// It cannot be set up so.
    #[error(transparent)]
    StaticInit(#[from] StaticInitError),
    /// A vPPB cannot be made.
    #[error(transparent)]
    Bridge(#[from] BridgeError),
    /// A GAE cannot be made.
    #[error(transparent)]
    Gae(#[from] FunctionError),
    /// The mailbox of a GAE cannot be made.
    #[error(transparent)]
    Mailbox(#[from] MailboxError),
}
