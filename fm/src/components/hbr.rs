//! A plain CXL switch (HBR): one that is not PBR and knows only the commands of CXL 2.0 for ports and virtual switches.
//!
//! [`HbrSwitch`] reads an [`HbrView`] by 5100h, 5101h and 5200h, binds by 5201h, unbinds by 5202h, and has a bridge
//! report an error by 5203h. Codes are those of CXL 3.1 tables 7-17 to 7-30.
//!
//! No other command is sent: not for its command list, its owner, or the status of a background operation; the state of
//! the vPPB tells when that has ended.
//!
//! Source: docs/spec/wire-formats.md §4.3; CXL 3.1 sections 7.6.7.1, 7.6.7.2.

use serde::Serialize;
use weft_parsers::cci::pbr::Vppb;
use weft_parsers::cci::switch::{PortList, PortState, PortStates, SwitchIdentity};
use weft_parsers::cci::vcs::{BindVppb, GetVcsInfo, UnbindOption, UnbindVppb, VcsInfos, VppbState};
use weft_parsers::cci::{List, Request};

use crate::cci::{CallError, Client, RetryPolicy, Transport, Way};
use crate::components::aer::AerError;

/// Ports or virtual switches in one request: their states fit any message.
const AT_A_TIME: usize = 8;
/// LD number of Bind vPPB for a whole device.
const WHOLE: u16 = 0xFFFF;
/// State of a vPPB: unbound.
const UNBOUND: u8 = 0;
/// State of a vPPB: bind or unbind in progress.
const IN_PROGRESS: u8 = 1;

#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub struct HbrPort {
    pub port: u8,
    /// `disabled`, `binding`, `unbinding`, `downstream`, `upstream`, `fabric`, or a number.
    pub state: String,
    /// Lanes in use, 0 without a link.
    pub width: u8,
    /// Largest number of lanes.
    pub width_max: u8,
    /// Negotiated speed, as the code of 5101h.
    pub speed: u8,
    /// Type of the partner, as the code of 5101h.
    pub device: u8,
    /// CXL version of the partner, as the code of 5101h.
    pub version: u8,
    /// Number of logical devices behind it.
    pub lds: u8,
}

#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub struct HbrVppb {
    pub vppb: u8,
    /// `unbound`, `in progress`, `port`, `ld`, `pid`, or a number.
    pub state: String,
    /// Set in state `port` or `ld`.
    pub port: Option<u8>,
    /// Set in state `ld`.
    pub ld: Option<u8>,
}

#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub struct HbrVcs {
    pub vcs: u8,
    /// Whether it is enabled.
    pub is_enabled: bool,
    /// Port of its host.
    pub usp: u8,
    pub vppbs: Vec<HbrVppb>,
}

/// State of a plain switch.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub struct HbrView {
    /// Port that the requests came in by.
    pub ingress_port: u8,
    /// Number of physical ports.
    pub port_count: u8,
    /// Number of virtual switches.
    pub vcs_count: u8,
    /// Number of bridges of all virtual switches.
    pub vppbs: u16,
    /// Number of bridges that are bound.
    pub vppbs_bound: u16,
    pub ports: Vec<HbrPort>,
    pub vcses: Vec<HbrVcs>,
}

/// A plain switch behind a transport.
pub struct HbrSwitch {
    transport: Box<dyn Transport + Send>,
    pace: RetryPolicy,
    tag: u8,
}

impl HbrSwitch {
    #[must_use]
    pub fn new(transport: Box<dyn Transport + Send>, pace: RetryPolicy) -> Self {
        Self { transport, pace, tag: 0 }
    }

    fn client(&mut self) -> Client<'_> {
        Client::new(&mut self.transport, Way::Entry, self.pace, &mut self.tag)
    }

    /// Reads the whole state of the switch.
    ///
    /// # Errors
    /// The switch refuses a command, or does not answer.
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

    /// Reads one virtual switch: with all its bridges an answer for several may be too long.
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
    /// The switch refuses, or does not bind it in time.
    pub fn bind(&mut self, bridge: Vppb, port: u8, ld: Option<u16>) -> Result<(), CallError> {
        let Vppb { vcs, vppb } = bridge;
        let request = Request::BindVppb(BindVppb { vcs, vppb, port, ld: ld.unwrap_or(WHOLE) });
        self.carry_out(&request, bridge, |bridge| bridge.port == Some(port))
    }

    /// Unbinds a bridge by a managed hot-removal; returns when it is unbound.
    ///
    /// # Errors
    /// The switch refuses, or does not unbind it in time.
    pub fn unbind(&mut self, bridge: Vppb) -> Result<(), CallError> {
        let (Vppb { vcs, vppb }, option) = (bridge, UnbindOption::Managed);
        let request = Request::UnbindVppb(UnbindVppb { vcs, vppb, option });
        self.carry_out(&request, bridge, |bridge| bridge.port.is_none())
    }

    /// Has a bridge report an error, with the header of the TLP at fault.
    ///
    /// # Errors
    /// The switch has no such bridge, or does not support the error.
    pub fn generate_aer(
        &mut self,
        bridge: Vppb,
        error: AerError,
        tlp: [u8; 32],
    ) -> Result<(), CallError> {
        self.client().call(&error.request(bridge, tlp)).map(drop)
    }

    /// Sends a request; if it runs in the background, waits until `is_done` holds for the bridge.
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
        // Not by 0002h (background status), which a plain switch may not have.
        for _ in 0..pace.polls {
            let now = self.vcs(bridge.vcs)?;
            let shown = now.as_ref().and_then(|vcs| vcs.vppbs.get(usize::from(bridge.vppb)));
            // A bridge in progress shows no port, just as an unbound one: the state is checked, too.
            if shown.is_some_and(|shown| shown.state != name_of(IN_PROGRESS) && is_done(shown)) {
                return Ok(());
            }
            (pace.wait)();
        }
        // An operation that failed leaves the old state: only the end of the polls tells it.
        Err(CallError::Unfinished { way, opcode, polls: pace.polls })
    }
}

/// The numbers whose bits are set; bit 0 of byte 0 stands for 0.
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

/// Name of a bridge's state.
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
        // In other states the bytes are reserved.
        port: matches!(state.status, 2 | 3).then_some(state.port),
        ld: (state.status == 3).then_some(state.ld),
    }
}
