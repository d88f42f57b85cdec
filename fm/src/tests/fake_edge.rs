//! The edge of a fake switch: virtual switches, bindings and access vectors.
//!
//! [`on_edge`] carries a request out on the state of a switch and answers it.
//!
//! Source: docs/spec/wire-formats.md §4.3, §4.5, §4.6.

use weft_parsers::cci::gae::AccessOp;
use weft_parsers::cci::generic::{BackgroundStatus, Progress};
use weft_parsers::cci::pbr::{self, BindOp, PathCost};
use weft_parsers::cci::tables::{self, LdstAccess};
use weft_parsers::cci::vcs::{self, VcsInfo, VppbState};
use weft_parsers::cci::{List, Request, Response, ReturnCode};
use weft_parsers::fabric::Pid;

use super::fake::{BACKGROUND, Reply, SwitchState, reply};

#[expect(clippy::too_many_lines, reason = "one arm a command")]
pub fn on_edge(state: &mut SwitchState, request: &Request<'_>) -> Reply {
    let invalid = ReturnCode::InvalidInput;
    match request {
        Request::GetVcsInfo(asked) => {
            let id = asked.vcss.get(0).ok_or(invalid)?;
            let Some(vcs) = state.vcss.get(usize::from(id)) else {
                let none = VcsInfo { vcs: id, state: 255, usp: 0, vppbs: List::of(&[]) };
                return reply(&Response::GetVcsInfo(vcs::VcsInfos::of(&[none])));
            };
            let vppbs: Vec<_> = vcs
                .vppbs
                .iter()
                .map(|&(status, port, ld, ..)| VppbState { status, port, ld })
                .collect();
            let info = VcsInfo { vcs: id, state: 1, usp: vcs.usp, vppbs: List::of(&vppbs) };
            reply(&Response::GetVcsInfo(vcs::VcsInfos::of(&[info])))
        }
        Request::BackgroundStatus => {
            let (opcode, left, code) = state.background.unwrap_or((0, 0, ReturnCode::Success));
            let running = left > 0;
            state.background = Some((opcode, left.saturating_sub(1), code));
            let return_code = if running { 0 } else { code.bits() };
            let progress = Progress { running, percent: if running { 50 } else { 100 } };
            let status = BackgroundStatus { progress, opcode, return_code, vendor_status: 0 };
            reply(&Response::BackgroundStatus(status))
        }
        Request::GetPidBinding(at) => {
            let vcs = state.vcss.get(usize::from(at.vcs)).ok_or(invalid)?;
            let &(_, _, _, pid, cost) = vcs.vppbs.get(usize::from(at.vppb)).ok_or(invalid)?;
            let zero = PathCost { latency_base: 0, latency: 0, bandwidth_base: 0, bandwidth: 0 };
            let cost = cost.unwrap_or(zero);
            reply(&Response::GetPidBinding(pbr::PidBinding { pid, host_edge: Pid::NONE, cost }))
        }
        Request::BindPid(bind) => {
            let fails = std::mem::take(&mut state.fail_background);
            let vcs = state.vcss.get_mut(usize::from(bind.vcs)).ok_or(invalid)?;
            let vppb = vcs.vppbs.get_mut(usize::from(bind.vppb)).ok_or(invalid)?;
            let free = vppb.0 == 0;
            match bind.op {
                BindOp::Bind if !free => return Err(invalid),
                BindOp::Unbind if vppb.0 != 4 => return Err(invalid),
                _ if fails => {}
                BindOp::Bind => *vppb = (4, 255, 255, bind.pid, Some(bind.cost)),
                BindOp::Unbind => *vppb = (0, 255, 255, Pid::NONE, None),
            }
            Ok(in_background(state, request, fails))
        }
        Request::BindVppb(bind) => {
            let fails = std::mem::take(&mut state.fail_background);
            let is_dsp = state.ports.get(&bind.port).is_some_and(|port| port.config == 3);
            let taken =
                state.vcss.iter().flat_map(|vcs| &vcs.vppbs).any(|v| v.0 == 2 && v.1 == bind.port);
            let vcs = state.vcss.get_mut(usize::from(bind.vcs)).ok_or(invalid)?;
            let vppb = vcs.vppbs.get_mut(usize::from(bind.vppb)).ok_or(invalid)?;
            if vppb.0 != 0 || !is_dsp || taken {
                return Err(invalid);
            }
            if !fails {
                *vppb = (2, bind.port, 255, Pid::NONE, None);
            }
            Ok(in_background(state, request, fails))
        }
        Request::UnbindVppb(unbind) => {
            let vcs = state.vcss.get_mut(usize::from(unbind.vcs)).ok_or(invalid)?;
            let vppb = vcs.vppbs.get_mut(usize::from(unbind.vppb)).ok_or(invalid)?;
            if !matches!(vppb.0, 2 | 3) {
                return Err(invalid);
            }
            *vppb = (0, 255, 255, Pid::NONE, None);
            Ok(in_background(state, request, false))
        }
        Request::ConfigureAccess(set) => {
            let vcs = state.vcss.get_mut(usize::from(set.vcs)).ok_or(invalid)?;
            let pid = set.access.pid;
            match set.access.op {
                AccessOp::EnableGmv => drop(vcs.gmv.insert(pid)),
                AccessOp::DisableGmv => drop(vcs.gmv.remove(&pid)),
                AccessOp::EnableVtv => drop(vcs.vtv.insert(pid)),
                AccessOp::DisableVtv => drop(vcs.vtv.remove(&pid)),
                AccessOp::UpdateCost => {}
            }
            Ok(Vec::new())
        }
        Request::ConfigureLdstAccess(set) => {
            let vcs = state.vcss.get_mut(usize::from(set.vcs)).ok_or(invalid)?;
            match set.access.op {
                LdstAccess::Enable => drop(vcs.lav.insert(set.access.pid)),
                LdstAccess::Disable => drop(vcs.lav.remove(&set.access.pid)),
            }
            Ok(Vec::new())
        }
        Request::GetVcsLav(get) => {
            let vcs = state.vcss.get(usize::from(get.vcs)).ok_or(invalid)?;
            let mut all = vec![0_u8; 512];
            vcs.lav.iter().for_each(|pid| all[pid.index() / 8] |= 1 << (pid.index() % 8));
            let (start, len) = (get.range.start as usize, get.range.len as usize);
            let data = all.get(start..start + len).ok_or(invalid)?;
            reply(&Response::GetVcsLav(tables::Vector { data: List::of(data) }))
        }
        Request::GetVcsAccess(get) => {
            let vcs = state.vcss.get(usize::from(get.vcs)).ok_or(invalid)?;
            let mut all = vec![0_u8; 1_024];
            for (vector, first) in [(&vcs.gmv, 0), (&vcs.vtv, 512)] {
                for pid in vector {
                    all[first + pid.index() / 8] |= 1 << (pid.index() % 8);
                }
            }
            let (start, len) = (get.range.start as usize, get.range.len as usize);
            let data = all.get(start..start + len).ok_or(invalid)?;
            reply(&Response::GetVcsAccess(tables::Vector { data: List::of(data) }))
        }
        Request::GetVcsSvState(vcs) => {
            let vcs = &state.vcss[usize::from(*vcs)];
            vcs.secret_refusal.map_or(Ok(()), Err)?;
            reply(&Response::GetVcsSvState(vcs.secret.is_some().into()))
        }
        Request::GetSv(vcs) => {
            reply(&Response::GetSv(state.vcss[usize::from(*vcs)].secret.unwrap_or_default()))
        }
        Request::GetPrefix(vcs) => {
            let vcs = state.vcss.get(usize::from(*vcs)).ok_or(invalid)?;
            reply(&Response::GetPrefix(vcs.prefix))
        }
        Request::SetPrefix(set) => {
            let vcs = state.vcss.get_mut(usize::from(set.vcs)).ok_or(invalid)?;
            vcs.prefix = set.prefix;
            Ok(Vec::new())
        }
        _ => Err(ReturnCode::Unsupported),
    }
}

fn in_background(state: &mut SwitchState, request: &Request<'_>, fails: bool) -> Vec<u8> {
    let code = if fails { ReturnCode::InternalError } else { ReturnCode::Success };
    state.background = Some((request.opcode().0, 2, code));
    BACKGROUND.to_vec()
}
