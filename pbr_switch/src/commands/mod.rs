//! The commands of a switch: which there are, for whom, and where each is carried out.
//!
//! Shape: [`COMMANDS`]; a request in, a payload or a return code out. Nothing has changed where a code comes out.
//! Units: none.
//! Source: docs/spec/wire-formats.md §4.3 to §4.6.

mod access;
mod edge;
mod forward;
mod physical;
mod pids;
mod routing;
mod virtual_switch;
mod work;

use weft_dataplane::pbr::TableError;
use weft_dataplane::time::Instant;
use weft_dataplane::types::PortId;
use weft_parsers::cci::{Opcode, Request, ReturnCode};

pub(super) use work::Work;

use weft_cxl::cci::{Command, Done, Outcome, Reply, Session, who};

use super::switch::Switch;
use super::vcs::{VcsState, VppbState};

const FM: u8 = who::PRIMARY;
const HOST: u8 = who::HOST;

/// Commands that a switch has besides those of every component.
pub(super) const COMMANDS: &[Command] = &[
    Command::get(Opcode::GET_GAM_BUFFER, HOST),
    Command::set(Opcode::SET_GAM_BUFFER, HOST),
    Command::get(Opcode::READ_CDAT, FM),
    Command::get(Opcode::IDENTIFY_SWITCH, FM),
    Command::get(Opcode::GET_PORT_STATE, FM),
    Command::set(Opcode::PPB_CONFIG, FM),
    Command::get(Opcode::GET_SV_STATE, FM | HOST),
    Command::set(Opcode::SET_SV, FM | HOST),
    Command::get(Opcode::GET_VCS_SV_STATE, FM),
    Command::get(Opcode::GET_SV, FM),
    Command::get(Opcode::GET_VCS_INFO, FM),
    Command::background(Opcode::BIND_VPPB, FM),
    Command::background(Opcode::UNBIND_VPPB, FM),
    Command::set(Opcode::GENERATE_AER, FM),
    Command::set(Opcode::TUNNEL, FM),
    Command::set(Opcode::LD_CONFIG, FM),
    Command::set(Opcode::LD_MEM, FM),
    Command::get(Opcode::IDENTIFY_PBR_SWITCH, FM),
    Command::set(Opcode::CRAWL_OUT, FM),
    Command::get(Opcode::GET_LINK_PARTNERS, FM),
    Command::get(Opcode::GET_PID_TARGETS, FM),
    Command::set(Opcode::ASSIGN_PIDS, FM),
    Command::get(Opcode::GET_PID_BINDING, FM),
    Command::background(Opcode::BIND_PID, FM),
    Command::get(Opcode::GET_TABLES, FM),
    Command::get(Opcode::GET_DRT, FM),
    Command::set(Opcode::SET_DRT, FM),
    Command::get(Opcode::GET_RGT, FM),
    Command::set(Opcode::SET_RGT, FM),
    Command::get(Opcode::GET_LDST_CAPS, HOST),
    Command::set(Opcode::SET_LDST, HOST),
    Command::get(Opcode::GET_LDST_SEGMENTS, HOST),
    Command::set(Opcode::SET_LDST_SEGMENTS, HOST),
    Command::get(Opcode::GET_LDST_IDT, HOST),
    Command::set(Opcode::SET_LDST_IDT, HOST),
    Command::get(Opcode::GET_RE_ROUTER, HOST),
    Command::set(Opcode::SET_RE_ROUTER, HOST),
    Command::get(Opcode::GET_LAV, HOST),
    Command::get(Opcode::GET_VCS_LAV, FM),
    Command::set(Opcode::CONFIGURE_LDST_ACCESS, FM),
    Command::get(Opcode::IDENTIFY_GAE, HOST),
    Command::set(Opcode::GET_PID_INTERRUPTS, HOST),
    Command::get(Opcode::GET_PID_ACCESS, HOST),
    Command::get(Opcode::GET_FAST_CAPS, HOST),
    Command::set(Opcode::SET_FAST, HOST),
    Command::get(Opcode::GET_FAST_SEGMENTS, HOST),
    Command::set(Opcode::SET_FAST_SEGMENTS, HOST),
    Command::get(Opcode::GET_IDT, HOST),
    Command::set(Opcode::SET_IDT, HOST),
    Command::set(Opcode::PROXY, HOST),
    Command::get(Opcode::GET_PROXY_STATUS, HOST),
    Command::set(Opcode::CANCEL_PROXY, HOST),
    Command::get(Opcode::IDENTIFY_VCS_GAE, FM),
    Command::get(Opcode::GET_VCS_ACCESS, FM),
    Command::set(Opcode::CONFIGURE_ACCESS, FM),
    Command::get(Opcode::GET_PREFIX, FM),
    Command::set(Opcode::SET_PREFIX, FM),
];

/// A table does not take what it was told.
fn invalid<T>(result: Result<T, TableError>) -> Result<T, ReturnCode> {
    result.map_err(|_| ReturnCode::InvalidInput)
}

/// What there is not.
const NONE_SUCH: ReturnCode = ReturnCode::InvalidInput;

/// Which of `len` entries a Get of a list answers: those from `start` on that there are.
///
/// # Errors
/// Invalid Input: it begins behind the end.
fn listed(start: usize, count: usize, len: usize) -> Result<core::ops::Range<usize>, ReturnCode> {
    if start > len {
        return Err(NONE_SUCH);
    }
    Ok(start..start.saturating_add(count).min(len))
}

/// Which of `len` entries a Get of a table answers: all that it asks for.
///
/// # Errors
/// Invalid Input: it goes beyond the end.
fn whole(start: usize, count: usize, len: usize) -> Result<core::ops::Range<usize>, ReturnCode> {
    match start.checked_add(count) {
        Some(end) if end <= len => Ok(start..end),
        _ => Err(NONE_SUCH),
    }
}

impl Switch {
    /// Carries out a command that `session` may use.
    pub(super) fn command(
        &mut self,
        now: Instant,
        session: Session,
        request: &Request<'_>,
        reply: &mut Reply,
    ) -> Done {
        match session.vcs() {
            Some(vcs) => self.host_command(vcs, request, reply),
            None => self.fm_command(now, session, request, reply),
        }
    }

    fn fm_command(
        &mut self,
        now: Instant,
        session: Session,
        request: &Request<'_>,
        reply: &mut Reply,
    ) -> Done {
        match *request {
            Request::ReadCdat(it) => self.own_cdat(&it, reply),
            Request::IdentifySwitch => self.identify_switch(reply),
            Request::GetPortState(it) => self.port_states(&it, reply),
            Request::PpbConfig(it) => self.ppb_config(&it, reply),
            Request::GetSvState => self.sv_state(None, reply),
            Request::SetSv(secret) => self.set_sv(None, secret),
            Request::GetVcsSvState(vcs) => self.sv_state(Some(vcs), reply),
            Request::GetSv(vcs) => self.sv(vcs, reply),
            Request::GetVcsInfo(it) => self.vcs_info(&it, reply),
            Request::BindVppb(it) => self.bind_vppb(now, it),
            Request::UnbindVppb(it) => self.unbind_vppb(now, it),
            Request::GenerateAer(it) => self.generate_aer(&it),
            Request::Tunnel(it) => self.tunnel(now, session, &it),
            Request::LdConfig(it) => self.ld_config(now, session, &it),
            Request::LdMem(it) => self.ld_mem(now, session, &it),
            Request::IdentifyPbrSwitch => self.identify_pbr(reply),
            Request::CrawlOut(it) => self.crawl_out(now, session, &it),
            Request::GetLinkPartners(it) => self.link_partners(&it, reply),
            Request::GetPidTargets(it) => self.pid_targets(it, reply),
            Request::AssignPids(it) => self.assign_pids(&it),
            Request::GetPidBinding(it) => self.pid_binding(it, reply),
            Request::BindPid(it) => self.bind_pid(now, &it),
            Request::GetTables(it) => self.table_descriptors(it, reply),
            Request::GetDrt(it) => self.get_drt(it, reply),
            Request::SetDrt(it) => self.set_drt(&it),
            Request::GetRgt(it) => self.get_rgt(it, reply),
            Request::SetRgt(it) => self.set_rgt(&it),
            Request::GetVcsLav(it) => self.vcs_lav(&it, reply),
            Request::ConfigureLdstAccess(it) => self.configure_lav(it),
            Request::IdentifyVcsGae(it) => self.identify_gae(it.vcs, it.range, reply),
            Request::GetVcsAccess(it) => self.vcs_access(&it, reply),
            Request::ConfigureAccess(it) => self.configure_access(&it),
            Request::GetPrefix(vcs) => self.get_prefix(vcs, reply),
            Request::SetPrefix(it) => self.set_prefix(it),
            _ => Err(ReturnCode::Unsupported),
        }
    }

    fn host_command(&mut self, vcs: u8, request: &Request<'_>, reply: &mut Reply) -> Done {
        match *request {
            Request::GetGamBuffer => self.gam_buffer(vcs, reply),
            Request::SetGamBuffer(it) => self.set_gam_buffer(vcs, &it),
            Request::GetSvState => self.sv_state(Some(vcs), reply),
            Request::SetSv(secret) => self.set_sv(Some(vcs), secret),
            Request::GetLdstCaps(vppb) => self.ldst_caps(vcs, vppb, reply),
            Request::SetLdst(it) => self.set_ldst(vcs, &it),
            Request::GetLdstSegments(it) => self.ldst_segments(vcs, it, reply),
            Request::SetLdstSegments(it) => self.set_ldst_segments(vcs, &it),
            Request::GetLdstIdt(it) => self.ldst_idt(vcs, it, reply),
            Request::SetLdstIdt(it) => self.set_ldst_idt(vcs, &it),
            Request::GetReRouter(it) => self.re_router(vcs, it, reply),
            Request::SetReRouter(it) => self.set_re_router(vcs, &it),
            Request::GetLav(it) => self.host_lav(vcs, it, reply),
            Request::IdentifyGae(it) => self.identify_gae(vcs, it, reply),
            Request::GetPidInterrupts(it) => self.pid_interrupts(vcs, &it, reply),
            Request::GetPidAccess(it) => self.host_access(vcs, it, reply),
            Request::GetFastCaps(it) => self.fast_caps(vcs, it.vppb, reply),
            Request::SetFast(it) => self.set_fast(vcs, &it),
            Request::GetFastSegments(it) => self.fast_segments(vcs, it, reply),
            Request::SetFastSegments(it) => self.set_fast_segments(vcs, &it),
            Request::GetIdt(it) => self.fast_idt(vcs, it, reply),
            Request::SetIdt(it) => self.set_fast_idt(vcs, &it),
            Request::Proxy(it) => self.proxy(vcs, &it, reply),
            Request::GetProxyStatus(it) => self.proxy_status(vcs, it, reply),
            Request::CancelProxy(it) => self.cancel_proxy(vcs, it, reply),
            _ => Err(ReturnCode::Unsupported),
        }
    }

    fn vcs_of(&self, vcs: u8) -> Result<&VcsState, ReturnCode> {
        self.vcses.get(usize::from(vcs)).ok_or(NONE_SUCH)
    }

    fn vcs_of_mut(&mut self, vcs: u8) -> Result<&mut VcsState, ReturnCode> {
        self.vcses.get_mut(usize::from(vcs)).ok_or(NONE_SUCH)
    }

    fn vppb_of(&self, vcs: u8, vppb: u8) -> Result<&VppbState, ReturnCode> {
        self.vcs_of(vcs)?.vppbs.get(usize::from(vppb)).ok_or(NONE_SUCH)
    }

    /// The port of that number.
    fn port_of(&self, number: u8) -> Result<&super::Port, ReturnCode> {
        let id = PortId::new(number.into()).ok_or(NONE_SUCH)?;
        self.port(id).ok_or(NONE_SUCH)
    }
}

const DONE: Done = Ok(Outcome::Done);
