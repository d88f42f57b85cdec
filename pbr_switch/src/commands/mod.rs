//! Command table of a switch: opcode, permitted senders, and the function that carries each command out.
//!
//! [`Switch::COMMANDS`] has one row for each command. A function returns a payload or a return code; if it returns an
//! error code, nothing has changed.
//!
//! Source: docs/spec/wire-formats.md §4.3 to §4.6.

mod access;
mod bind;
mod edge;
mod events;
mod forward;
mod physical;
mod pids;
mod routing;
mod static_init;
mod virtual_switch;

use weft_dataplane::pbr::TableError;
use weft_dataplane::time::Instant;
use weft_dataplane::types::PortId;
use weft_parsers::cci::pbr::Vppb;
use weft_parsers::cci::{Request, ReturnCode};

pub(super) use static_init::STATIC_COMMANDS;
use weft_cxl::cci::{Done, Outcome, Reply, Session, who};

use super::switch::Switch;
use super::vcs::{VcsState, VppbState};

const FM: u8 = who::PRIMARY;
const HOST: u8 = who::HOST;
const BOTH: u8 = FM | HOST;

/// A table refused a change: Invalid Input.
fn invalid<T>(result: Result<T, TableError>) -> Result<T, ReturnCode> {
    result.map_err(|_| ReturnCode::InvalidInput)
}

/// The virtual switch whose host sent the command.
fn host(session: Session) -> Result<u8, ReturnCode> {
    session.vcs().ok_or(ReturnCode::Unsupported)
}

/// Return code for an object that does not exist.
const NONE_SUCH: ReturnCode = ReturnCode::InvalidInput;

/// The part of a list with `len` entries that a Get command answers: from `start` on, as many as there are.
///
/// # Errors
/// Invalid Input: `start` is beyond the end.
fn listed(start: usize, count: usize, len: usize) -> Result<core::ops::Range<usize>, ReturnCode> {
    if start > len {
        return Err(NONE_SUCH);
    }
    Ok(start..start.saturating_add(count).min(len))
}

/// The part of a table with `len` entries that a Get command answers: exactly the requested range.
///
/// # Errors
/// Invalid Input: the range goes beyond the end.
fn whole(start: usize, count: usize, len: usize) -> Result<core::ops::Range<usize>, ReturnCode> {
    match start.checked_add(count) {
        Some(end) if end <= len => Ok(start..end),
        _ => Err(NONE_SUCH),
    }
}

impl Switch {
    /// Carries out a command that `session` is permitted to send; the caller has checked that.
    pub(super) fn command(
        &mut self,
        now: Instant,
        session: Session,
        request: &Request<'_>,
        reply: &mut Reply,
    ) -> Done {
        // Rows for hosts are never carried out for a manager, nor rows for managers for a host.
        let asked_by = if session.vcs().is_some() { HOST } else { !HOST };
        self.dispatch(request, now, session, reply, asked_by)
    }

    #[rustfmt::skip] // columns: permitted sender, action, opcode, request, method
    weft_cxl::command_table! {
        /// Commands of a switch beside those that every component has.
        pub(super) const COMMANDS;
        /// Carries out `request`; Unsupported if no row for this sender has the command.
        fn dispatch(&mut self, request, now: Instant, session: Session, reply: &mut Reply) asked by u8;
        FM get GET_EVENTS GetEvents(log) => self.event_records(log, reply);
        FM log CLEAR_EVENTS ClearEvents(it) => self.clear_events(&it);
        FM get GET_MCTP_EVENTS GetMctpEvents => self.event_policy(reply);
        FM policy SET_MCTP_EVENTS SetMctpEvents(policy) => self.set_event_policy(policy, reply);
        HOST get GET_GAM_BUFFER GetGamBuffer => self.gam_buffer(host(session)?, reply);
        HOST set SET_GAM_BUFFER SetGamBuffer(it) => self.set_gam_buffer(host(session)?, &it);
        BOTH get READ_CDAT ReadCdat(it) => self.read_cdat(session.vcs(), &it, reply);
        FM get IDENTIFY_SWITCH IdentifySwitch => self.identify_switch(reply);
        FM get GET_PORT_STATE GetPortState(it) => self.port_states(&it, reply);
        FM set PORT_CONTROL PortControl(it) => self.port_control(it);
        FM set PPB_CONFIG PpbConfig(it) => self.ppb_config(&it, reply);
        BOTH get GET_SV_STATE GetSvState => self.sv_state(session.vcs(), reply);
        BOTH set SET_SV SetSv(secret) => self.set_sv(session.vcs(), secret);
        FM get GET_VCS_SV_STATE GetVcsSvState(vcs) => self.sv_state(Some(vcs), reply);
        FM get GET_SV GetSv(vcs) => self.sv(vcs, reply);
        FM get GET_VCS_INFO GetVcsInfo(it) => self.vcs_info(&it, reply);
        FM background BIND_VPPB BindVppb(it) => self.bind_vppb(now, it);
        FM background UNBIND_VPPB UnbindVppb(it) => self.unbind_vppb(now, it);
        FM set GENERATE_AER GenerateAer(it) => self.generate_aer(&it);
        FM set TUNNEL Tunnel(it) => self.tunnel(now, session, &it);
        FM set LD_CONFIG LdConfig(it) => self.ld_config(now, session, &it);
        FM set LD_MEM LdMem(it) => self.ld_mem(now, session, &it);
        FM get IDENTIFY_PBR_SWITCH IdentifyPbrSwitch => self.identify_pbr(reply);
        FM set CRAWL_OUT CrawlOut(it) => self.crawl_out(now, session, &it);
        FM get GET_LINK_PARTNERS GetLinkPartners(it) => self.link_partners(&it, reply);
        FM get GET_PID_TARGETS GetPidTargets(it) => self.pid_targets(it, reply);
        FM set ASSIGN_PIDS AssignPids(it) => self.assign_pids(&it);
        FM get GET_PID_BINDING GetPidBinding(it) => self.pid_binding(it, reply);
        FM background BIND_PID BindPid(it) => self.bind_pid(now, &it);
        FM get GET_TABLES GetTables(it) => self.table_descriptors(it, reply);
        FM get GET_DRT GetDrt(it) => self.get_drt(it, reply);
        FM set SET_DRT SetDrt(it) => self.set_drt(&it);
        FM get GET_RGT GetRgt(it) => self.get_rgt(it, reply);
        FM set SET_RGT SetRgt(it) => self.set_rgt(&it);
        HOST get GET_LDST_CAPS GetLdstCaps(vppb) => self.ldst_caps(Vppb { vcs: host(session)?, vppb }, reply);
        HOST set SET_LDST SetLdst(it) => self.set_ldst(host(session)?, &it);
        HOST get GET_LDST_SEGMENTS GetLdstSegments(it) => self.ldst_segments(host(session)?, it, reply);
        HOST set SET_LDST_SEGMENTS SetLdstSegments(it) => self.set_ldst_segments(host(session)?, &it);
        HOST get GET_LDST_IDT GetLdstIdt(it) => self.ldst_idt(host(session)?, it, reply);
        HOST set SET_LDST_IDT SetLdstIdt(it) => self.set_ldst_idt(host(session)?, &it);
        HOST get GET_RE_ROUTER GetReRouter(it) => self.re_router(host(session)?, it, reply);
        HOST set SET_RE_ROUTER SetReRouter(it) => self.set_re_router(host(session)?, &it);
        HOST get GET_LAV GetLav(it) => self.host_lav(host(session)?, it, reply);
        FM get GET_VCS_LAV GetVcsLav(it) => self.vcs_lav(&it, reply);
        FM set CONFIGURE_LDST_ACCESS ConfigureLdstAccess(it) => self.configure_lav(it);
        HOST get IDENTIFY_GAE IdentifyGae(it) => self.identify_gae(host(session)?, it, reply);
        HOST set GET_PID_INTERRUPTS GetPidInterrupts(it) => self.pid_interrupts(host(session)?, &it, reply);
        HOST get GET_PID_ACCESS GetPidAccess(it) => self.host_access(host(session)?, it, reply);
        HOST get GET_FAST_CAPS GetFastCaps(it) => self.fast_caps(Vppb { vcs: host(session)?, vppb: it.vppb }, reply);
        HOST set SET_FAST SetFast(it) => self.set_fast(host(session)?, &it);
        HOST get GET_FAST_SEGMENTS GetFastSegments(it) => self.fast_segments(host(session)?, it, reply);
        HOST set SET_FAST_SEGMENTS SetFastSegments(it) => self.set_fast_segments(host(session)?, &it);
        HOST get GET_IDT GetIdt(it) => self.fast_idt(host(session)?, it, reply);
        HOST set SET_IDT SetIdt(it) => self.set_fast_idt(host(session)?, &it);
        HOST set PROXY Proxy(it) => self.proxy(host(session)?, &it, reply);
        HOST get GET_PROXY_STATUS GetProxyStatus(it) => self.proxy_status(host(session)?, it, reply);
        HOST set CANCEL_PROXY CancelProxy(it) => self.cancel_proxy(host(session)?, it, reply);
        FM get IDENTIFY_VCS_GAE IdentifyVcsGae(it) => self.identify_gae(it.vcs, it.range, reply);
        FM get GET_VCS_ACCESS GetVcsAccess(it) => self.vcs_access(&it, reply);
        FM set CONFIGURE_ACCESS ConfigureAccess(it) => self.configure_access(&it);
        FM get GET_PREFIX GetPrefix(vcs) => self.get_prefix(vcs, reply);
        FM set SET_PREFIX SetPrefix(it) => self.set_prefix(it);
        FM get GET_PORT_TRAFFIC GetPortTraffic(it) => self.port_traffic(&it, reply);
    }

    fn vcs_of(&self, vcs: u8) -> Result<&VcsState, ReturnCode> {
        self.vcses.get(usize::from(vcs)).ok_or(NONE_SUCH)
    }

    fn vcs_of_mut(&mut self, vcs: u8) -> Result<&mut VcsState, ReturnCode> {
        self.vcses.get_mut(usize::from(vcs)).ok_or(NONE_SUCH)
    }

    fn vppb_of(&self, at: Vppb) -> Result<&VppbState, ReturnCode> {
        self.vcs_of(at.vcs)?.vppbs.get(usize::from(at.vppb)).ok_or(NONE_SUCH)
    }

    /// Looks a port up by its number in a command.
    fn port_of(&self, number: u8) -> Result<&super::Port, ReturnCode> {
        let id = PortId::new(number.into()).ok_or(NONE_SUCH)?;
        self.port(id).ok_or(NONE_SUCH)
    }
}

const DONE: Done = Ok(Outcome::Done);
