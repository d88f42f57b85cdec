//! The physical ports of a switch, and the commands that concern ports alone: 5101h to 5103h, 5702h and C510h.
//!
//! Codes are those of CXL 3.1 tables 7-17 to 7-25.
//!
//! Source: docs/spec/wire-formats.md §4.3; CXL 3.1 section 7.6.7.1.

use weft_cxl::cci::{Done, NO_UUID, Reply};
use weft_cxl::pci::{ByteEnables, Reg};
use weft_dataplane::time::Instant;
use weft_dataplane::types::{PortId, PortSet};
use weft_parsers::cci::pbr::{LinkPartner, LinkPartners, PidAndKind};
use weft_parsers::cci::switch::{
    PortControl, PortList, PortOp, PortState, PortStates, PortTraffic, PortsTraffic, PpbConfig,
};
use weft_parsers::cci::{List, Response, ReturnCode};
use weft_parsers::fabric::Pid;

use super::cci::{NONE_SUCH, mask};
use super::config::{ConfigError, PortConfig, Role};
use super::port::{Partner, Port};

/// All ports of a switch.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Ports {
    /// In order of their numbers: PID targets are indices into this list.
    list: Vec<Port>,
    /// Time of the last count of traffic.
    traffic_at: Instant,
}

impl Ports {
    /// Makes the ports with all links down.
    ///
    /// # Errors
    /// A port is listed twice, or see [`Port::new`].
    pub fn new(configs: &[PortConfig]) -> Result<Self, ConfigError> {
        let mut list: Vec<Port> = Vec::new();
        for config in configs {
            if list.iter().any(|other| other.id == config.port) {
                return Err(ConfigError::Port(config.port.get()));
            }
            list.push(Port::new(config)?);
        }
        list.sort_by_key(|port| port.id);
        Ok(Self { list, traffic_at: Instant::ZERO })
    }

    pub fn all(&self) -> &[Port] {
        &self.list
    }

    pub fn get(&self, port: PortId) -> Option<&Port> {
        self.list.iter().find(|other| other.id == port)
    }

    pub fn get_mut(&mut self, port: PortId) -> Option<&mut Port> {
        self.list.iter_mut().find(|other| other.id == port)
    }

    /// Looks a port up by its number in a command.
    pub fn named(&self, number: u8) -> Result<&Port, ReturnCode> {
        let id = PortId::new(number.into()).ok_or(NONE_SUCH)?;
        self.get(id).ok_or(NONE_SUCH)
    }

    /// Looks a port up by its number as a PID target (5703h, 5704h).
    pub fn target_mut(&mut self, target: u16) -> Option<&mut Port> {
        self.list.get_mut(usize::from(target))
    }

    pub fn ids(&self) -> PortSet {
        self.list.iter().map(|port| port.id).collect()
    }

    /// Ports whose link is up.
    pub fn up(&self) -> PortSet {
        self.list.iter().filter(|port| port.link.is_some()).map(|port| port.id).collect()
    }

    /// Numbers of all ports, as a mask of 256 bits.
    pub fn mask(&self) -> [u8; 32] {
        mask(self.list.iter().map(|port| port.id.get()))
    }

    /// Whether the device at a port is being reset.
    pub fn is_resetting(&self, port: PortId) -> bool {
        self.get(port).is_some_and(|port| port.resetting)
    }

    /// Records the bytes received and sent by a port since the switch started.
    pub fn count_traffic(&mut self, now: Instant, port: PortId, rx: u64, tx: u64) {
        self.traffic_at = now;
        if let Some(port) = self.get_mut(port) {
            (port.traffic.rx, port.traffic.tx) = (rx, tx);
        }
    }

    /// Get Physical Port State (5101h); `binding` as in [`Port::state`].
    pub fn states(
        &self,
        list: &PortList<'_>,
        binding: impl Fn(&Port) -> Option<bool>,
        reply: &mut Reply,
    ) -> Done {
        let one = |number| self.named(number).map(|port| port.state(binding(port)));
        let ports: Vec<PortState> =
            list.ports.iter().map(one).collect::<Result<_, ReturnCode>>()?;
        reply.send(&Response::GetPortState(PortStates { ports: List::of(&ports) }))
    }

    pub fn traffic(&self, list: &PortList<'_>, reply: &mut Reply) -> Done {
        let one = |number| self.named(number).map(|port| port.traffic);
        let ports: Vec<PortTraffic> =
            list.ports.iter().map(one).collect::<Result<_, ReturnCode>>()?;
        let (at_ns, ports) = (self.traffic_at.as_ps() / 1_000, List::of(&ports));
        reply.send(&Response::GetPortTraffic(PortsTraffic { at_ns, ports }))
    }

    pub fn link_partners(&self, list: &PortList<'_>, reply: &mut Reply) -> Done {
        let one = |number| {
            let port = self.named(number)?;
            // A rejected announcement is shown, too: the manager must see that a component uses another's PID.
            Ok(match (port.refused, port.partner) {
                (Some(told), _) | (None, Partner::Pbr(told)) => {
                    LinkPartner { port: number, ..told }
                }
                _ => LinkPartner {
                    port: number,
                    far_port: 0,
                    far: PidAndKind { pid: Pid::NONE, kind: PidAndKind::SWITCH },
                    uuid: NO_UUID,
                    standard_vcs: 0,
                    uio_vcs: 0,
                    primary_uuid: NO_UUID,
                    secondary_uuid: NO_UUID,
                },
            })
        };
        let partners: Vec<LinkPartner> =
            list.ports.iter().map(one).collect::<Result<_, ReturnCode>>()?;
        reply.send(&Response::GetLinkPartners(LinkPartners { partners: List::of(&partners) }))
    }

    //= docs/spec/cxl-fabric.md "Resets": 5102h is for downstream ports, and a hot reset needs a link that is up
    /// The port that a Physical Port Control (5102h) may reset.
    pub fn resettable(&self, control: PortControl) -> Result<PortId, ReturnCode> {
        let port = self.named(control.port)?;
        let needs_link = control.op == PortOp::ResetPpb;
        if port.role != Role::Dsp || (needs_link && port.link.is_none()) {
            return Err(ReturnCode::InvalidInput);
        }
        Ok(port.id)
    }

    pub fn ppb_config(&mut self, config: &PpbConfig, reply: &mut Reply) -> Done {
        let id = self.named(config.port)?.id;
        // Registers count double words: 400h is the end of the 4 KiB configuration space.
        if config.access.register >= 0x400 {
            return Err(ReturnCode::InvalidInput);
        }
        let reg = Reg::new(config.access.register);
        let state = self.get_mut(id).ok_or(NONE_SUCH)?;
        let data = if config.access.write {
            let enables = ByteEnables::from_low_bits(config.access.first_be);
            state.ppb.write(reg, config.data, enables);
            // 5103h answers a write with zero.
            0
        } else {
            state.ppb.read(reg)
        };
        reply.send(&Response::PpbConfig(data))
    }
}
