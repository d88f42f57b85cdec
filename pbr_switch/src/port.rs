//! A physical port: what is at its other end, its link, and its PPB's registers.
//!
//! [`Port`]; [`Port::state`] is what Get Physical Port State (5101h) says of it.
//!
//! Units: PIDs of 12 bits; codes as in CXL 3.1 table 7-19.
//! Source: docs/spec/cxl-fabric.md "Port roles"; docs/spec/wire-formats.md §4.3, §4.5 (5702h), §4.8.

use weft_cxl::pci::{Bridge, BridgeSpec, Identity, Link, PortKind};
use weft_dataplane::types::PortId;
use weft_parsers::cci::pbr::{LinkPartner, PidAndKind};
use weft_parsers::cci::switch::{LINK_STATE_PERST, PortState, PortTraffic};
use weft_parsers::fabric::Pid;

use super::config::{ConfigError, PortConfig, Role};

/// Identity of the bridges of a switch.
pub(super) const BRIDGE: Identity =
    Identity { vendor: 0x1E98, device: 0x5747, revision: 1, class: 0x06_04_00, subsystem: (0, 0) };

/// What is at the other end of a link.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Partner {
    /// Nothing is known yet.
    #[default]
    Unknown,
    /// A host's root port.
    Host,
    /// A device or HBR switch, with as many logical devices; 0 where it is no MLD.
    Device {
        /// Logical devices.
        lds: u8,
    },
    /// A PBR switch or a GFD, and what it has told of itself.
    Pbr(LinkPartner),
}

/// A physical port of a PBR switch.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Port {
    /// Which.
    pub id: PortId,
    /// What for.
    pub role: Role,
    /// What is at the other end.
    pub partner: Partner,
    /// What has been announced there last in a name that is not this port's, and so was not taken.
    pub refused: Option<LinkPartner>,
    /// The link; `None` while it is down.
    pub link: Option<Link>,
    /// What is at the other end is being reset.
    pub resetting: bool,
    /// The manager has asserted PERST#, and not deasserted it.
    pub perst: bool,
    /// What has gone through it, when it was counted last.
    pub traffic: PortTraffic,
    /// Its PIDs, `FFF` where none is assigned.
    pub pids: Vec<Pid>,
    /// Registers of its bridge, for whoever manages it without a host.
    pub ppb: Bridge,
}

impl Port {
    /// A port whose link is down.
    ///
    /// # Errors
    /// It can have no PID, or its bridge cannot be made.
    pub fn new(config: &PortConfig) -> Result<Self, ConfigError> {
        if config.pids == 0 {
            return Err(ConfigError::Port(config.port.get()));
        }
        let kind = match config.role {
            Role::Usp => PortKind::Upstream,
            Role::Dsp | Role::Fabric => PortKind::Downstream,
        };
        let ppb = Bridge::new(&BridgeSpec {
            identity: BRIDGE,
            kind,
            port: config.port.get(),
            link: Link::default(),
            slot: None,
            serial: None,
            multi_function: false,
            ln: weft_cxl::pci::express::LnSystem::None,
        })?;
        Ok(Self {
            id: config.port,
            role: config.role,
            partner: Partner::Unknown,
            refused: None,
            link: None,
            resetting: false,
            perst: false,
            traffic: PortTraffic { port: config.port.get(), rx: 0, tx: 0 },
            pids: vec![Pid::NONE; config.pids.into()],
            ppb,
        })
    }

    /// Its first PID, `FFF` where it has none.
    #[must_use]
    pub fn pid(&self) -> Pid {
        self.pids.iter().copied().find(|pid| !pid.is_none()).unwrap_or(Pid::NONE)
    }

    /// Whether a GFD is at the other end.
    #[must_use]
    pub const fn is_gfd(&self) -> bool {
        matches!(self.partner, Partner::Pbr(told) if told.far.kind == PidAndKind::GFD)
            && matches!(self.role, Role::Dsp)
    }

    /// Whether the fabric manager gave it this PID; `FFF` is none.
    #[must_use]
    pub fn has_pid(&self, pid: Pid) -> bool {
        !pid.is_none() && self.pids.contains(&pid)
    }

    /// The PID that the GFD at the other end calls itself by, where the port has no such PID; `FFF` otherwise.
    #[must_use]
    pub fn announced(&self) -> Pid {
        match self.partner {
            Partner::Pbr(gfd) if self.is_gfd() && !self.has_pid(gfd.far.pid) => gfd.far.pid,
            _ => Pid::NONE,
        }
    }

    /// Whether a component that speaks CCI without a PID can be at the other end.
    #[must_use]
    pub const fn is_pbr(&self) -> bool {
        matches!(self.role, Role::Fabric) || self.is_gfd()
    }

    /// Logical devices at the other end.
    #[must_use]
    pub const fn lds(&self) -> u8 {
        match self.partner {
            Partner::Device { lds } => lds,
            _ => 0,
        }
    }

    /// State for Get Physical Port State (5101h); `binding` tells that a bind or unbind of it is under way.
    #[must_use]
    pub const fn state(&self, binding: Option<bool>) -> PortState {
        let config_state = match (binding, self.role) {
            (Some(true), _) => 1,
            (Some(false), _) => 2,
            (None, Role::Dsp) => 3,
            (None, Role::Usp) => 4,
            (None, Role::Fabric) => 5,
        };
        let (partner_type, partner_version) = match (self.link, self.partner) {
            (None, _) | (_, Partner::Unknown | Partner::Host) => (0, 0),
            (_, Partner::Device { lds: 0 }) => (4, 3),
            (_, Partner::Device { .. }) => (5, 3),
            (_, Partner::Pbr(_)) => (6, 4),
        };
        let (width, speed, ltssm) = match self.link {
            Some(link) => (link.width, link.speed, L0),
            None => (0, 0, DETECT),
        };
        PortState {
            port: self.id.get(),
            config_state,
            partner_version,
            partner_type,
            versions: 0x0F,
            width_max: 16,
            width,
            speeds: 0x3F,
            speed_max: 6,
            speed,
            ltssm,
            first_lane: 0,
            link_state: if self.perst { LINK_STATE_PERST } else { 0 },
            lds: self.lds(),
        }
    }
}

const DETECT: u8 = 0;
const L0: u8 = 4;
