//! Physical switch commands that concern more than ports: 5100h to 5102h, and 5104h to 5107h; Identify PBR Switch
//! (5700h).
//!
//! A domain validation secret is set once; from then on it can only be read.
//!
//! Source: docs/spec/wire-formats.md §4.3; CXL 3.1 section 7.6.7.1.

use weft_cxl::cci::{Done, Reply};
use weft_parsers::cci::pbr::PbrSwitchIdentity;
use weft_parsers::cci::switch::{PortControl, PortList, SwitchIdentity};
use weft_parsers::cci::{Response, ReturnCode, Uuid};

use super::Switch;
use crate::cci::{DONE, mask};
use crate::event::Event;
use crate::port::Port;
use crate::vcs::Bound;
use crate::work::Work;

/// HDM decoders of an upstream port: none, as FAST and LDST decode addresses at a PBR edge.
const DECODERS: u8 = 0;

/// Random and congestion avoiding. Advanced congestion avoidance would need queue depths of other switches, which no
/// message carries.
const MODES: u8 = 0b11;

impl Switch {
    pub(super) fn identify_switch(&self, reply: &mut Reply) -> Done {
        let vppbs = || self.vcses.iter().flat_map(|(_, vcs)| &vcs.vppbs);
        let bound = vppbs().filter(|vppb| vppb.bound != Bound::No).count();
        let count = |number: usize| u8::try_from(number).unwrap_or(u8::MAX);
        // Port numbers start at 0 and may have gaps, so the count is the highest number plus one.
        let ports = self.ports.all().last().map_or(0, |port| port.id.index() + 1);
        reply.send(&Response::IdentifySwitch(SwitchIdentity {
            ingress_port: 0,
            ports: count(ports),
            vcss: count(self.vcses.iter().count()),
            active_ports: self.ports.mask(),
            active_vcss: mask(self.vcses.numbers()),
            vppbs: u16::try_from(vppbs().count()).unwrap_or(u16::MAX),
            active_vppbs: u16::try_from(bound).unwrap_or(u16::MAX),
            decoders: DECODERS,
        }))
    }

    /// Identify PBR Switch (5700h).
    pub(super) fn identify_pbr(&self, reply: &mut Reply) -> Done {
        // The support map of 5700h has 64 bits.
        let gaes = self.vcses.iter().take(64).filter(|(_, vcs)| vcs.gae.is_some());
        reply.send(&Response::IdentifyPbrSwitch(PbrSwitchIdentity {
            gae_map: gaes.fold(0, |map, (at, _)| map | 1_u64 << at),
            drts: 1,
            rgts: self.routing.rgts(),
            modes: MODES,
        }))
    }

    pub(super) fn port_states(&self, list: &PortList<'_>, reply: &mut Reply) -> Done {
        // A bind shows at the port before the vPPB has it; an unbind shows as long as the vPPB still has the port.
        let binding = |port: &Port| match self.work {
            Some(Work::Bind { port: bound, .. }) if bound == port.id => Some(true),
            Some(work @ Work::Unbind { .. })
                if self.vcses.bound_to(port.id).contains(&work.at()) =>
            {
                Some(false)
            }
            _ => None,
        };
        self.ports.states(list, binding, reply)
    }

    pub(super) fn port_control(&mut self, control: PortControl) -> Done {
        let port = self.ports.resettable(control)?;
        // Only an event: the reset is a message on the link, which the agent sends.
        self.vcses.push(Event::PortControl { port, op: control.op });
        DONE
    }

    /// Whether a secret is set: that of the host of `vcs`, or the switch's own.
    pub(super) fn sv_state(&self, vcs: Option<u8>, reply: &mut Reply) -> Done {
        match vcs {
            None => reply.send(&Response::GetSvState(self.secret.is_some().into())),
            Some(vcs) => self.vcses.named(vcs)?.sv_state(reply),
        }
    }

    pub(super) fn set_sv(&mut self, vcs: Option<u8>, secret: Uuid) -> Done {
        let place = match vcs {
            None => &mut self.secret,
            Some(vcs) => &mut self.vcses.named_mut(vcs)?.secret,
        };
        // Write once: a host's secret stays until the host is gone (`VcsState::reset`).
        if place.is_some() {
            return Err(ReturnCode::InvalidInput);
        }
        *place = Some(secret);
        DONE
    }
}
