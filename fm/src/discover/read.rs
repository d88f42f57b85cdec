//! What a switch tells of itself.
//!
//! [`Switch`] filled in; partners kept until all switches are read.
//!
//! Units: ports, targets.
//! Source: docs/spec/wire-formats.md §4.3, §4.5; CXL 3.1 sections 7.6.7.1, 7.6.7.2, 7.7.13.

use weft_parsers::cci::generic::Identity;
use weft_parsers::cci::pbr::{
    GetPidTargets, LinkPartner, LinkPartners, PbrSwitchIdentity, PidTargets,
};
use weft_parsers::cci::switch::{
    LINK_STATE_PERST, PortList, PortState, PortStates, SwitchIdentity,
};
use weft_parsers::cci::vcs::{GetVcsInfo, VcsInfos};
use weft_parsers::cci::{List, Request};

use super::Search;
use crate::cci::{CallError, Fabric, Way};
use crate::graph::{Key, PortRef, SwitchId};
use crate::inventory::{Partner, Port, Role, Target, Vcs, Vppb};

/// Ports that are asked for at once.
pub(crate) const PORTS_AT_ONCE: usize = 128;
/// Targets that are asked for at once.
const TARGETS_AT_ONCE: u16 = 1_024;
/// Bridges of a VCS that are asked for at once.
const VPPBS_AT_ONCE: u8 = 255;

/// What a port state says that a port is.
const fn role(config_state: u8) -> Role {
    match config_state {
        3 => Role::Dsp,
        4 => Role::Usp,
        5 => Role::Fabric,
        _ => Role::Off,
    }
}

/// Whether the link is up: L0, L0s, L1 or L2 of table 7-19.
const fn is_up(ltssm: u8) -> bool {
    ltssm >= 4 && ltssm <= 7
}

fn ports(mask: &[u8; 32]) -> Vec<u8> {
    let is_set = |port: &u8| {
        mask.get(usize::from(port / 8)).is_some_and(|byte| byte & (1 << (port % 8)) != 0)
    };
    (0..=u8::MAX).filter(is_set).collect()
}

/// Reads the PID targets of a switch.
///
/// # Errors
/// It does not answer, or not to the end.
pub fn targets(fabric: &mut Fabric, way: Way) -> Result<Vec<Target>, CallError> {
    let mut list = Vec::new();
    loop {
        let start = u16::try_from(list.len()).unwrap_or(u16::MAX);
        let request = Request::GetPidTargets(GetPidTargets { start, count: TARGETS_AT_ONCE });
        let answer = fabric.call(way, &request)?;
        let page = answer.read::<PidTargets<'_>>()?;
        list.extend(page.targets.iter().map(Target::from));
        if page.targets.is_empty() || list.len() >= usize::from(page.total) {
            return Ok(list);
        }
    }
}

/// Asks which of these ports of a switch have their link up.
///
/// # Errors
/// It does not answer.
pub fn ports_up(fabric: &mut Fabric, way: Way, asked: &[u8]) -> Result<Vec<u8>, CallError> {
    let seen = ports_seen(fabric, way, asked)?;
    Ok(seen.iter().filter(|seen| seen.up).map(|seen| seen.port).collect())
}

/// What a port says of its link and of who is at the other end.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Seen {
    /// Its number.
    pub port: u8,
    /// Whether its link is up.
    pub up: bool,
    /// Who is there (5101h byte 4); 0 is a host, or nobody has told yet.
    pub partner: u8,
    /// Lanes, and the code of their speed (5101h).
    pub lanes: (u8, u8),
    /// PERST# is asserted: what is there is held in reset.
    pub perst: bool,
}

const fn is_perst(link_state: u16) -> bool {
    link_state & LINK_STATE_PERST != 0
}

/// Asks what these ports of a switch have at their other ends.
///
/// # Errors
/// It does not answer.
pub fn ports_seen(fabric: &mut Fabric, way: Way, asked: &[u8]) -> Result<Vec<Seen>, CallError> {
    let mut seen = Vec::new();
    for list in asked.chunks(PORTS_AT_ONCE) {
        let request = Request::GetPortState(PortList { ports: List::of(list) });
        let answer = fabric.call(way, &request)?;
        let states = answer.read::<PortStates<'_>>()?.ports;
        seen.extend(states.iter().map(|state| {
            let (port, up) = (state.port, is_up(state.ltssm));
            let partner = if up { state.partner_type } else { 0 };
            let (lanes, perst) = ((state.width, state.speed), is_perst(state.link_state));
            Seen { port, up, partner, lanes, perst }
        }));
    }
    Ok(seen)
}

/// Asks who the PBR components at the other ends of ports are; the others have no UUID, and are left out.
///
/// # Errors
/// It does not answer.
pub fn partners(
    fabric: &mut Fabric,
    way: Way,
    asked: &[u8],
) -> Result<Vec<LinkPartner>, CallError> {
    let mut told = Vec::new();
    for list in asked.chunks(PORTS_AT_ONCE) {
        let request = Request::GetLinkPartners(PortList { ports: List::of(list) });
        let answer = fabric.call(way, &request)?;
        let partners = answer.read::<LinkPartners<'_>>()?.partners;
        told.extend(partners.iter().filter(|p| p.uuid != [0; 16] && list.contains(&p.port)));
    }
    Ok(told)
}

/// Reads the virtual switches of a switch; those that there are not are left out.
///
/// # Errors
/// It does not answer.
pub fn virtual_switches(fabric: &mut Fabric, way: Way, ids: &[u8]) -> Result<Vec<Vcs>, CallError> {
    let mut list = Vec::new();
    for id in ids {
        let vcss = List::of(std::slice::from_ref(id));
        let request = Request::GetVcsInfo(GetVcsInfo { start: 0, limit: VPPBS_AT_ONCE, vcss });
        let answer = fabric.call(way, &request)?;
        for info in answer.read::<VcsInfos<'_>>()?.iter().filter(|info| info.state == 1) {
            let vppb = |state: weft_parsers::cci::vcs::VppbState| Vppb {
                status: state.status,
                port: state.port,
                ld: state.ld,
            };
            let vppbs = info.vppbs.iter().map(vppb).collect();
            list.push(Vcs { id: info.vcs, usp: info.usp, vppbs });
        }
    }
    Ok(list)
}

impl Search<'_> {
    /// Reads all of a switch that was claimed.
    pub(super) fn read_switch(&mut self, id: SwitchId) -> Result<(), CallError> {
        let Some(way) = self.found.switch(id).map(super::Switch::way) else { return Ok(()) };
        let serial = self.fabric.call(way, &Request::Identify)?.read::<Identity>()?.serial;
        let physical = self.fabric.call(way, &Request::IdentifySwitch)?.read::<SwitchIdentity>()?;
        let pbr =
            self.fabric.call(way, &Request::IdentifyPbrSwitch)?.read::<PbrSwitchIdentity>()?;
        let mut states = Vec::new();
        for list in ports(&physical.active_ports).chunks(PORTS_AT_ONCE) {
            let request = Request::GetPortState(PortList { ports: List::of(list) });
            let answer = self.fabric.call(way, &request)?;
            states.extend(answer.read::<PortStates<'_>>()?.ports.iter());
        }
        let told = self.ask_partners(way, &states)?;
        let pid_targets = targets(self.fabric, way)?;
        let vcss = virtual_switches(self.fabric, way, &ports(&physical.active_vcss))?;
        for target in &pid_targets {
            self.taken.insert(target.pid);
        }
        let port = |state: &PortState| {
            let (role, up) = (role(state.config_state), is_up(state.ltssm));
            let partner = match role {
                Role::Usp if up => Partner::Host,
                Role::Dsp if up => Partner::Device(state.partner_type),
                _ => Partner::Nobody,
            };
            let (width, speed) = (state.width, state.speed);
            let lds = if matches!(partner, Partner::Device(_)) { state.lds } else { 0 };
            let perst = is_perst(state.link_state);
            Port { number: state.port, role, up, width, speed, partner, lds, perst }
        };
        if let Some(switch) = self.found.switches.get_mut(id.index()) {
            switch.serial = serial;
            (switch.modes, switch.rgts) = (pbr.modes, pbr.rgts);
            switch.ports = states.iter().map(port).collect();
            (switch.targets, switch.vcss, switch.whole) = (pid_targets, vcss, true);
        }
        for partner in told {
            self.told.insert(PortRef::new(id, partner.port), partner);
        }
        Ok(())
    }

    /// PBR components at the other ends of ports that are up; the others have no UUID.
    fn ask_partners(
        &mut self,
        way: Way,
        states: &[PortState],
    ) -> Result<Vec<LinkPartner>, CallError> {
        let up = |state: &&PortState| is_up(state.ltssm) && role(state.config_state) != Role::Off;
        let asked: Vec<u8> = states.iter().filter(up).map(|state| state.port).collect();
        partners(self.fabric, way, &asked)
    }
}
