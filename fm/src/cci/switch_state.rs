//! Reads the state of a switch's ports, its PID targets, virtual switches and link partners.
//!
//! Source: docs/spec/wire-formats.md §4.3, §4.5; CXL 3.1 sections 7.6.7.1, 7.6.7.2, 7.7.13.

use weft_parsers::cci::pbr::{GetPidTargets, LinkPartner, LinkPartners, PidTargets};
use weft_parsers::cci::switch::{LINK_STATE_PERST, PortList, PortStates};
use weft_parsers::cci::vcs::{GetVcsInfo, VcsInfos};
use weft_parsers::cci::{List, Request};

use crate::cci::{CallError, CciSession, Way};
use crate::model::inventory::{Target, Vcs, Vppb};

/// Ports in one request; their 36h-byte partner blocks fit one message through two tunnels.
pub(crate) const PORTS_AT_ONCE: usize = 128;
/// Targets in one request, 8 bytes each.
const TARGETS_AT_ONCE: u16 = 1_024;
/// Bridges of a virtual switch in one request.
const VPPBS_AT_ONCE: u8 = 255;

/// Whether the link is up: L0, L0s, L1 or L2 of table 7-19.
pub(crate) const fn is_up(ltssm: u8) -> bool {
    ltssm >= 4 && ltssm <= 7
}

/// Reads all PID targets of a switch, page by page.
///
/// # Errors
/// The switch does not answer, or not to the end.
pub fn targets(fabric: &mut CciSession, way: Way) -> Result<Vec<Target>, CallError> {
    let mut list = Vec::new();
    loop {
        let start = u16::try_from(list.len()).unwrap_or(u16::MAX);
        let request = Request::GetPidTargets(GetPidTargets { start, count: TARGETS_AT_ONCE });
        let answer = fabric.call(way, &request)?;
        let page = answer.read::<PidTargets<'_>>()?;
        list.extend(page.targets.iter().map(Target::from));
        // An empty page ends the list also where `total` claims more, so that a faulty switch cannot keep the manager
        // here.
        if page.targets.is_empty() || list.len() >= usize::from(page.total) {
            return Ok(list);
        }
    }
}

/// Returns those of these ports whose link is up.
///
/// # Errors
/// The switch does not answer.
pub fn ports_up(fabric: &mut CciSession, way: Way, asked: &[u8]) -> Result<Vec<u8>, CallError> {
    let seen = ports_seen(fabric, way, asked)?;
    Ok(seen.iter().filter(|seen| seen.up).map(|seen| seen.port).collect())
}

/// State of a port: its link and its partner.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Seen {
    pub port: u8,
    pub up: bool,
    /// Type of the partner (5101h byte 4); 0 for a host, or one that has not announced itself.
    pub partner: u8,
    /// Lanes in use, and the code of their speed (5101h).
    pub lanes: (u8, u8),
    /// PERST# is asserted: the partner is held in reset.
    pub perst: bool,
    /// Logical devices that the partner has told the switch of; 0 before it has, and without a link.
    pub lds: u8,
}

pub(crate) const fn is_perst(link_state: u16) -> bool {
    link_state & LINK_STATE_PERST != 0
}

/// Reads the state of these ports of a switch.
///
/// # Errors
/// The switch does not answer.
pub fn ports_seen(fabric: &mut CciSession, way: Way, asked: &[u8]) -> Result<Vec<Seen>, CallError> {
    let mut seen = Vec::new();
    for list in asked.chunks(PORTS_AT_ONCE) {
        let request = Request::GetPortState(PortList { ports: List::of(list) });
        let answer = fabric.call(way, &request)?;
        let states = answer.read::<PortStates<'_>>()?.ports;
        seen.extend(states.iter().map(|state| {
            let (port, up) = (state.port, is_up(state.ltssm));
            // What an earlier partner said is of no use while the link is down.
            let (partner, lds) = if up { (state.partner_type, state.lds) } else { (0, 0) };
            let (lanes, perst) = ((state.width, state.speed), is_perst(state.link_state));
            Seen { port, up, partner, lanes, perst, lds }
        }));
    }
    Ok(seen)
}

/// Reads which PBR components are at the other ends of ports; partners without a UUID are left out.
///
/// # Errors
/// The switch does not answer.
pub fn partners(
    fabric: &mut CciSession,
    way: Way,
    asked: &[u8],
) -> Result<Vec<LinkPartner>, CallError> {
    let mut told = Vec::new();
    for list in asked.chunks(PORTS_AT_ONCE) {
        let request = Request::GetLinkPartners(PortList { ports: List::of(list) });
        let answer = fabric.call(way, &request)?;
        let partners = answer.read::<LinkPartners<'_>>()?.partners;
        // The answer must be about a port that was asked for: it becomes a key of the inventory.
        told.extend(partners.iter().filter(|p| p.uuid != [0; 16] && list.contains(&p.port)));
    }
    Ok(told)
}

/// Reads the virtual switches of a switch; inactive ones are left out.
///
/// # Errors
/// The switch does not answer.
pub fn virtual_switches(
    fabric: &mut CciSession,
    way: Way,
    ids: &[u8],
) -> Result<Vec<Vcs>, CallError> {
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
