//! A plain CXL switch: one that is not PBR and knows no command but those of CXL 2.0 for ports and virtual switches.
//!
//! [`HbrSwitch`] over a [`Transport`]; 5100h, 5101h and 5200h -> [`HbrView`]; 5201h and 5202h bind and unbind, 5203h
//! has a bridge report an error.
//!
//! Units: codes as in CXL 3.1 tables 7-17 to 7-30.
//! Source: docs/spec/wire-formats.md §4.3; CXL 3.1 sections 7.6.7.1, 7.6.7.2.
//!
//! Nothing is asked of it but these commands: not whether it has them, not who owns it, and not how a background operation
//! goes, which the state of the vPPB tells.

use serde::Serialize;
use weft_parsers::cci::pbr::Vppb;
use weft_parsers::cci::switch::{PortList, PortState, PortStates, SwitchIdentity};
use weft_parsers::cci::vcs::{BindVppb, GetVcsInfo, UnbindOption, UnbindVppb, VcsInfos, VppbState};
use weft_parsers::cci::{List, Request};

use crate::aer::AerError;
use crate::cci::{CallError, Client, RetryPolicy, Transport, Way};

/// Ports, or virtual switches, that are asked for in one command: their states fit in any message.
const AT_A_TIME: usize = 8;
/// LD of Bind vPPB for a whole device.
const WHOLE: u16 = 0xFFFF;
/// State of a vPPB: unbound.
const UNBOUND: u8 = 0;
/// State of a vPPB: bind or unbind in progress.
const IN_PROGRESS: u8 = 1;

/// A port of a plain switch.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub struct HbrPort {
    /// Its number.
    pub port: u8,
    /// `disabled`, `binding`, `unbinding`, `downstream`, `upstream`, `fabric`, or a number.
    pub state: String,
    /// Lanes in use, 0 without a link.
    pub width: u8,
    /// Lanes at most.
    pub width_max: u8,
    /// Code of the speed in use.
    pub speed: u8,
    /// Code of what is connected.
    pub device: u8,
    /// Code of the CXL version that it speaks.
    pub version: u8,
    /// Logical devices behind it.
    pub lds: u8,
}

/// A bridge of a virtual switch.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub struct HbrVppb {
    /// Its number.
    pub vppb: u8,
    /// `unbound`, `in progress`, `port`, `ld`, `pid`, or a number.
    pub state: String,
    /// Port that it is bound to.
    pub port: Option<u8>,
    /// LD that it is bound to.
    pub ld: Option<u8>,
}

/// A virtual switch.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub struct HbrVcs {
    /// Its number.
    pub vcs: u8,
    /// Whether it is enabled.
    pub is_enabled: bool,
    /// Port of its host.
    pub usp: u8,
    /// Its bridges.
    pub vppbs: Vec<HbrVppb>,
}

/// What a plain switch says of itself.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub struct HbrView {
    /// Port that the requests came in by.
    pub ingress_port: u8,
    /// Physical ports.
    pub port_count: u8,
    /// Virtual switches.
    pub vcs_count: u8,
    /// Bridges in all.
    pub vppbs: u16,
    /// Bridges that are bound.
    pub vppbs_bound: u16,
    /// Its ports that are enabled.
    pub ports: Vec<HbrPort>,
    /// Its virtual switches that are enabled.
    pub vcses: Vec<HbrVcs>,
}

/// A plain switch behind a transport.
pub struct HbrSwitch {
    transport: Box<dyn Transport + Send>,
    pace: RetryPolicy,
    tag: u8,
}

impl HbrSwitch {
    /// The switch behind `transport`.
    #[must_use]
    pub fn new(transport: Box<dyn Transport + Send>, pace: RetryPolicy) -> Self {
        Self { transport, pace, tag: 0 }
    }

    fn client(&mut self) -> Client<'_> {
        Client::new(&mut self.transport, Way::Entry, self.pace, &mut self.tag)
    }

    /// Asks for all that it is.
    ///
    /// # Errors
    /// What it refuses, or does not answer.
    pub fn view(&mut self) -> Result<HbrView, CallError> {
        let identity = self.client().call(&Request::IdentifySwitch)?.read::<SwitchIdentity>()?;
        let mut ports = Vec::new();
        for some in numbers(&identity.active_ports).chunks(AT_A_TIME) {
            let list = PortList { ports: List::of(some) };
            let answer = self.client().call(&Request::GetPortState(list))?;
            ports.extend(answer.read::<PortStates<'_>>()?.ports.iter().map(port));
        }
        let mut vcses = Vec::new();
        for vcs in numbers(&identity.active_vcss) {
            vcses.extend(self.vcs(vcs)?);
        }
        let SwitchIdentity { ingress_port, ports: port_count, vcss, vppbs, active_vppbs, .. } =
            identity;
        Ok(HbrView {
            ingress_port,
            port_count,
            vcs_count: vcss,
            vppbs,
            vppbs_bound: active_vppbs,
            ports,
            vcses,
        })
    }

    /// A virtual switch by itself: with all its bridges the answer may be long.
    fn vcs(&mut self, vcs: u8) -> Result<Option<HbrVcs>, CallError> {
        let list = [vcs];
        let vcss = List::of(&list);
        let request = Request::GetVcsInfo(GetVcsInfo { start: 0, limit: u8::MAX, vcss });
        let answer = self.client().call(&request)?;
        let infos = answer.read::<VcsInfos<'_>>()?;
        Ok(infos.iter().find(|info| info.vcs == vcs).map(|info| HbrVcs {
            vcs,
            is_enabled: info.state == 1,
            usp: info.usp,
            vppbs: (0..=u8::MAX).zip(info.vppbs.iter()).map(|(n, state)| vppb(n, state)).collect(),
        }))
    }

    /// Binds a whole device, or an LD, to a bridge; returns when it is bound.
    ///
    /// # Errors
    /// It is refused, or not bound in time.
    pub fn bind(&mut self, bridge: Vppb, port: u8, ld: Option<u16>) -> Result<(), CallError> {
        let Vppb { vcs, vppb } = bridge;
        let request = Request::BindVppb(BindVppb { vcs, vppb, port, ld: ld.unwrap_or(WHOLE) });
        self.carry_out(&request, bridge, |bridge| bridge.port == Some(port))
    }

    /// Unbinds what is bound to a bridge, as a managed hot-removal; returns when it is unbound.
    ///
    /// # Errors
    /// It is refused, or not unbound in time.
    pub fn unbind(&mut self, bridge: Vppb) -> Result<(), CallError> {
        let (Vppb { vcs, vppb }, option) = (bridge, UnbindOption::Managed);
        let request = Request::UnbindVppb(UnbindVppb { vcs, vppb, option });
        self.carry_out(&request, bridge, |bridge| bridge.port.is_none())
    }

    /// Has a bridge report an error, with the header of the TLP that is at fault.
    ///
    /// # Errors
    /// It is refused: the switch has no such bridge, or does not know the error.
    pub fn generate_aer(
        &mut self,
        bridge: Vppb,
        error: AerError,
        tlp: [u8; 32],
    ) -> Result<(), CallError> {
        self.client().call(&error.request(bridge, tlp)).map(drop)
    }

    /// Sends a request, and waits until `is_done` holds for the bridge if it goes on in the background.
    fn carry_out(
        &mut self,
        request: &Request<'_>,
        bridge: Vppb,
        is_done: impl Fn(&HbrVppb) -> bool,
    ) -> Result<(), CallError> {
        let (way, opcode, pace) = (Way::Entry, request.opcode(), self.pace);
        if !self.client().begin(request)? {
            return Ok(());
        }
        for _ in 0..pace.polls {
            let now = self.vcs(bridge.vcs)?;
            let shown = now.as_ref().and_then(|vcs| vcs.vppbs.get(usize::from(bridge.vppb)));
            if shown.is_some_and(|shown| shown.state != name_of(IN_PROGRESS) && is_done(shown)) {
                return Ok(());
            }
            (pace.wait)();
        }
        Err(CallError::Unfinished { way, opcode, polls: pace.polls })
    }
}

/// The numbers whose bits are set; bit 0 of byte 0 is 0.
fn numbers(mask: &[u8; 32]) -> Vec<u8> {
    let is_set = |number: &u8| {
        mask.get(usize::from(number / 8)).is_some_and(|byte| byte >> (number % 8) & 1 == 1)
    };
    (0..=u8::MAX).filter(is_set).collect()
}

fn port(state: PortState) -> HbrPort {
    let name = match state.config_state {
        0 => "disabled",
        1 => "binding",
        2 => "unbinding",
        3 => "downstream",
        4 => "upstream",
        5 => "fabric",
        _ => "",
    };
    let other = || format!("state {}", state.config_state);
    HbrPort {
        port: state.port,
        state: if name.is_empty() { other() } else { name.to_owned() },
        width: state.width,
        width_max: state.width_max,
        speed: state.speed,
        device: state.partner_type,
        version: state.partner_version,
        lds: state.lds,
    }
}

/// What the state of a bridge is called.
fn name_of(status: u8) -> String {
    match status {
        UNBOUND => "unbound".to_owned(),
        IN_PROGRESS => "in progress".to_owned(),
        2 => "port".to_owned(),
        3 => "ld".to_owned(),
        4 => "pid".to_owned(),
        other => format!("state {other}"),
    }
}

fn vppb(number: u8, state: VppbState) -> HbrVppb {
    HbrVppb {
        vppb: number,
        state: name_of(state.status),
        port: matches!(state.status, 2 | 3).then_some(state.port),
        ld: (state.status == 3).then_some(state.ld),
    }
}
