//! Physical switch commands 5100h to 5107h, and Get PBR Link Partner Info (5702h).
//!
//! A domain validation secret is set once; from then on it can only be read. Codes are those of CXL 3.1 tables 7-17 to
//! 7-25.
//!
//! Source: docs/spec/wire-formats.md §4.3; CXL 3.1 section 7.6.7.1.

use weft_cxl::cci::{Done, NO_UUID, Reply};
use weft_cxl::pci::{ByteEnables, Reg};
use weft_parsers::cci::pbr::{LinkPartner, LinkPartners, PidAndKind, Vppb};
use weft_parsers::cci::switch::{
    PortControl, PortList, PortOp, PortState, PortStates, PortTraffic, PortsTraffic, PpbConfig,
    SwitchIdentity,
};
use weft_parsers::cci::{List, Response, ReturnCode, Uuid};
use weft_parsers::fabric::Pid;

use super::{DONE, NONE_SUCH};
use crate::config::Role;
use crate::port::Partner;
use crate::switch::{Event, Switch};
use crate::vcs::Bound;
use crate::work::Work;

/// HDM decoders of an upstream port: none, as FAST and LDST decode addresses at a PBR edge.
const DECODERS: u8 = 0;

impl Switch {
    pub(super) fn identify_switch(&self, reply: &mut Reply) -> Done {
        let active = self.ports.iter().map(|port| port.id.get());
        let vppbs = self.vcses.iter().flat_map(|vcs| &vcs.vppbs);
        let bound = vppbs.clone().filter(|vppb| vppb.bound != Bound::No).count();
        let count = |number: usize| u8::try_from(number).unwrap_or(u8::MAX);
        // Port numbers start at 0 and may have gaps, so the count is the highest number plus one.
        let ports = self.ports.last().map_or(0, |port| port.id.index() + 1);
        reply.send(&Response::IdentifySwitch(SwitchIdentity {
            ingress_port: 0,
            ports: count(ports),
            vcss: count(self.vcses.len()),
            active_ports: mask(active),
            active_vcss: mask((0..=u8::MAX).take(self.vcses.len())),
            vppbs: u16::try_from(vppbs.count()).unwrap_or(u16::MAX),
            active_vppbs: u16::try_from(bound).unwrap_or(u16::MAX),
            decoders: DECODERS,
        }))
    }

    pub(super) fn port_states(&self, list: &PortList<'_>, reply: &mut Reply) -> Done {
        let one = |number| {
            let port = self.port_of(number)?;
            // A bind shows at the port before the vPPB has it; an unbind shows as long as the vPPB still has the port.
            let binding = match &self.work {
                Some(Work::Bind { port: bound, .. }) if *bound == port.id => Some(true),
                Some(Work::Unbind { vcs, vppb, .. })
                    if self.bound_to(port.id).contains(&Vppb { vcs: *vcs, vppb: *vppb }) =>
                {
                    Some(false)
                }
                _ => None,
            };
            Ok(port.state(binding))
        };
        let ports: Vec<PortState> =
            list.ports.iter().map(one).collect::<Result<_, ReturnCode>>()?;
        reply.send(&Response::GetPortState(PortStates { ports: List::of(&ports) }))
    }

    pub(super) fn port_traffic(&self, list: &PortList<'_>, reply: &mut Reply) -> Done {
        let one = |number| self.port_of(number).map(|port| port.traffic);
        let ports: Vec<PortTraffic> =
            list.ports.iter().map(one).collect::<Result<_, ReturnCode>>()?;
        let (at_ns, ports) = (self.traffic_at.as_ps() / 1_000, List::of(&ports));
        reply.send(&Response::GetPortTraffic(PortsTraffic { at_ns, ports }))
    }

    pub(super) fn link_partners(&self, list: &PortList<'_>, reply: &mut Reply) -> Done {
        let one = |number| {
            let port = self.port_of(number)?;
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
    pub(super) fn port_control(&mut self, control: PortControl) -> Done {
        let PortControl { port, op } = control;
        let state = self.port_of(port)?;
        let needs_link = op == PortOp::ResetPpb;
        if state.role != Role::Dsp || (needs_link && state.link.is_none()) {
            return Err(ReturnCode::InvalidInput);
        }
        let port = state.id;
        // Only an event: the reset is a message on the link, which the agent sends.
        self.events.push_back(Event::PortControl { port, op });
        DONE
    }

    pub(super) fn ppb_config(&mut self, config: &PpbConfig, reply: &mut Reply) -> Done {
        let id = self.port_of(config.port)?.id;
        // Registers count double words: 400h is the end of the 4 KiB configuration space.
        if config.access.register >= 0x400 {
            return Err(ReturnCode::InvalidInput);
        }
        let reg = Reg::new(config.access.register);
        let Some(state) = self.ports.iter_mut().find(|port| port.id == id) else {
            return Err(NONE_SUCH);
        };
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

    /// Whether a secret is set: that of the host of `vcs`, or the switch's own.
    pub(super) fn sv_state(&self, vcs: Option<u8>, reply: &mut Reply) -> Done {
        match vcs {
            None => reply.send(&Response::GetSvState(self.secret.is_some().into())),
            Some(vcs) => {
                let state = self.vcs_of(vcs)?.secret.is_some().into();
                reply.send(&Response::GetVcsSvState(state))
            }
        }
    }

    pub(super) fn set_sv(&mut self, vcs: Option<u8>, secret: Uuid) -> Done {
        let place = match vcs {
            None => &mut self.secret,
            Some(vcs) => &mut self.vcs_of_mut(vcs)?.secret,
        };
        // Write once: a host's secret stays until the host is gone (`reset_vcs`).
        if place.is_some() {
            return Err(ReturnCode::InvalidInput);
        }
        *place = Some(secret);
        DONE
    }

    pub(super) fn sv(&self, vcs: u8, reply: &mut Reply) -> Done {
        reply.send(&Response::GetSv(self.vcs_of(vcs)?.secret.unwrap_or(NO_UUID)))
    }
}

/// Bit mask of 256 bits with a bit for each of `numbers`; number 0 is bit 0 of byte 0.
pub(super) fn mask(numbers: impl Iterator<Item = u8>) -> [u8; 32] {
    let mut mask = [0; 32];
    for number in numbers {
        if let Some(byte) = mask.get_mut(usize::from(number / 8)) {
            *byte |= 1 << (number % 8);
        }
    }
    mask
}
