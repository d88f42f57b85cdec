//! A physical port: its link partner, its link, and the registers of its PPB.
//!
//! [`Port::state`] is the response to Get Physical Port State (5101h), with codes as in CXL 3.1 table 7-19.
//!
//! Source: docs/spec/cxl-fabric.md "Port roles"; docs/spec/wire-formats.md §4.3, §4.5 (5702h), §4.8.

use weft_cxl::pci::{Bridge, BridgeSpec, Identity, Link, PortKind};
use weft_dataplane::types::PortId;
use weft_parsers::cci::pbr::{LinkPartner, PidAndKind};
use weft_parsers::cci::switch::{LINK_STATE_PERST, PortState, PortTraffic};
use weft_parsers::fabric::Pid;

use super::config::{ConfigError, PortConfig, Role};

/// PCI identity of every bridge of a switch: PPBs and vPPBs alike.
pub(super) const BRIDGE: Identity =
    Identity { vendor: 0x1E98, device: 0x5747, revision: 1, class: 0x06_04_00, subsystem: (0, 0) };

/// The component at the other end of a link.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Partner {
    /// Not known yet, or the link is down.
    #[default]
    Unknown,
    /// A host's root port.
    Host,
    /// A device or HBR switch.
    Device {
        /// Number of logical devices; 0 for a device that is not an MLD.
        lds: u8,
    },
    /// A PBR switch or a GFD, with its last announcement.
    Pbr(LinkPartner),
}

/// A physical port of a PBR switch.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Port {
    pub id: PortId,
    pub role: Role,
    /// The component at the other end.
    pub partner: Partner,
    /// Last announcement that was rejected because it used a PID that is not this port's.
    pub refused: Option<LinkPartner>,
    /// `None` while the link is down.
    pub link: Option<Link>,
    /// The device at the other end is being reset.
    pub resetting: bool,
    /// The manager has asserted PERST# and not deasserted it yet.
    pub perst: bool,
    /// Byte counts at the last poll.
    pub traffic: PortTraffic,
    /// One entry for each PID that it may have, `FFF` where none is assigned.
    pub pids: Vec<Pid>,
    /// Registers of its bridge, for a manager that reaches it without a host (5103h).
    pub ppb: Bridge,
}

impl Port {
    /// Makes a port whose link is down.
    ///
    /// # Errors
    /// The configuration gives it no PID, or its bridge is rejected.
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

    /// First assigned PID, `FFF` if there is none.
    #[must_use]
    pub fn pid(&self) -> Pid {
        self.pids.iter().copied().find(|pid| !pid.is_none()).unwrap_or(Pid::NONE)
    }

    /// Whether its link partner is a GFD.
    #[must_use]
    pub const fn is_gfd(&self) -> bool {
        // A GFD is allowed at a downstream edge only; elsewhere an announcement as GFD gives no rights.
        matches!(self.partner, Partner::Pbr(told) if told.far.kind == PidAndKind::GFD)
            && matches!(self.role, Role::Dsp)
    }

    /// Whether the fabric manager assigned this PID to it; never true for `FFF`.
    #[must_use]
    pub fn has_pid(&self, pid: Pid) -> bool {
        !pid.is_none() && self.pids.contains(&pid)
    }

    /// PID that the GFD at the other end announces and the port does not have; `FFF` otherwise.
    #[must_use]
    pub fn announced(&self) -> Pid {
        match self.partner {
            Partner::Pbr(gfd) if self.is_gfd() && !self.has_pid(gfd.far.pid) => gfd.far.pid,
            _ => Pid::NONE,
        }
    }

    /// Whether the link partner can be a component that answers CCI without a PID.
    #[must_use]
    pub const fn is_pbr(&self) -> bool {
        matches!(self.role, Role::Fabric) || self.is_gfd()
    }

    /// Number of logical devices behind the port.
    #[must_use]
    pub const fn lds(&self) -> u8 {
        match self.partner {
            Partner::Device { lds } => lds,
            _ => 0,
        }
    }

    /// Response to Get Physical Port State (5101h). `binding` is true while a bind of the port is under way, false
    /// during an unbind.
    #[must_use]
    pub const fn state(&self, binding: Option<bool>) -> PortState {
        // Codes of CXL 3.1 table 7-19, here and below; the two binding states hide the role while they last.
        let config_state = match (binding, self.role) {
            (Some(true), _) => 1,
            (Some(false), _) => 2,
            (None, Role::Dsp) => 3,
            (None, Role::Usp) => 4,
            (None, Role::Fabric) => 5,
        };
        // Device types: 4 is an SLD, 5 an MLD, 6 a PBR component. A host is no device and reads as none.
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
            // Every CXL version and every speed up to 64 GT/s: the links are emulated and limit neither.
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

/// LTSSM states of 5101h: a port is either up (L0) or looking for a partner (Detect).
const DETECT: u8 = 0;
const L0: u8 = 4;
