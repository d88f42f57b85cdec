//! Command table of a switch: opcode, permitted senders, and the function that carries each command out.
//!
//! [`Switch::COMMANDS`] has one row for each command. A function returns a payload or a return code; if it returns an
//! error code, nothing has changed.
//!
//! Source: docs/spec/wire-formats.md §4.3 to §4.6.

use weft_dataplane::time::Instant;
use weft_parsers::cci::pbr::Vppb;
use weft_parsers::cci::{Request, ReturnCode};

use weft_cxl::cci::{Done, Reply, Session, who};

use super::Switch;

const FM: u8 = who::PRIMARY;
const HOST: u8 = who::HOST;
const BOTH: u8 = FM | HOST;

/// The virtual switch whose host sent the command.
fn host(session: Session) -> Result<u8, ReturnCode> {
    session.vcs().ok_or(ReturnCode::Unsupported)
}

/// The vPPB that the host's command names.
fn at(session: Session, vppb: u8) -> Result<Vppb, ReturnCode> {
    Ok(Vppb { vcs: host(session)?, vppb })
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
        FM get GET_EVENTS GetEvents(log) => self.logs.get(log, reply);
        FM log CLEAR_EVENTS ClearEvents(it) => self.logs.clear(&it);
        FM get GET_MCTP_EVENTS GetMctpEvents => self.logs.policy(reply);
        FM policy SET_MCTP_EVENTS SetMctpEvents(policy) => self.logs.set_policy(policy, reply);
        HOST get GET_GAM_BUFFER GetGamBuffer => self.vcses.named(host(session)?)?.gam_buffer(reply);
        HOST set SET_GAM_BUFFER SetGamBuffer(it) => self.vcses.named_mut(host(session)?)?.set_gam_buffer(&it);
        BOTH get READ_CDAT ReadCdat(it) => self.read_cdat(session.vcs(), &it, reply);
        FM get IDENTIFY_SWITCH IdentifySwitch => self.identify_switch(reply);
        FM get GET_PORT_STATE GetPortState(it) => self.port_states(&it, reply);
        FM set PORT_CONTROL PortControl(it) => self.port_control(it);
        FM set PPB_CONFIG PpbConfig(it) => self.ports.ppb_config(&it, reply);
        BOTH get GET_SV_STATE GetSvState => self.sv_state(session.vcs(), reply);
        BOTH set SET_SV SetSv(secret) => self.set_sv(session.vcs(), secret);
        FM get GET_VCS_SV_STATE GetVcsSvState(vcs) => self.sv_state(Some(vcs), reply);
        FM get GET_SV GetSv(vcs) => self.vcses.named(vcs)?.sv(reply);
        FM get GET_VCS_INFO GetVcsInfo(it) => self.vcses.info(&it, self.work.map(|work| work.at()), reply);
        FM background BIND_VPPB BindVppb(it) => self.bind_vppb(now, it);
        FM background UNBIND_VPPB UnbindVppb(it) => self.unbind_vppb(now, it);
        FM set GENERATE_AER GenerateAer(it) => self.vcses.generate_aer(&it);
        FM set TUNNEL Tunnel(it) => self.tunnel(now, session, &it);
        FM set LD_CONFIG LdConfig(it) => self.ld_config(now, session, &it);
        FM set LD_MEM LdMem(it) => self.ld_mem(now, session, &it);
        FM get IDENTIFY_PBR_SWITCH IdentifyPbrSwitch => self.identify_pbr(reply);
        FM set CRAWL_OUT CrawlOut(it) => self.crawl_out(now, session, &it);
        FM get GET_LINK_PARTNERS GetLinkPartners(it) => self.ports.link_partners(&it, reply);
        FM get GET_PID_TARGETS GetPidTargets(it) => self.pid_targets(it, reply);
        FM set ASSIGN_PIDS AssignPids(it) => self.assign_pids(&it);
        FM get GET_PID_BINDING GetPidBinding(it) => self.vcses.pid_binding(it, self.common.ownership.pid(), reply);
        FM background BIND_PID BindPid(it) => self.bind_pid(now, &it);
        FM get GET_TABLES GetTables(it) => self.routing.descriptors(it, &self.ports, reply);
        FM get GET_DRT GetDrt(it) => self.routing.get_drt(it, reply);
        FM set SET_DRT SetDrt(it) => self.routing.set_drt(&it);
        FM get GET_RGT GetRgt(it) => self.routing.get_rgt(it, reply);
        FM set SET_RGT SetRgt(it) => self.routing.set_rgt(&it);
        HOST get GET_LDST_CAPS GetLdstCaps(vppb) => self.vcses.vppb(at(session, vppb)?)?.ldst_caps(vppb, &self.ports, reply);
        HOST set SET_LDST SetLdst(it) => self.vcses.set_ldst(host(session)?, &it);
        HOST get GET_LDST_SEGMENTS GetLdstSegments(it) => self.vcses.vppb(at(session, it.vppb)?)?.ldst_segments(it, reply);
        HOST set SET_LDST_SEGMENTS SetLdstSegments(it) => self.vcses.set_ldst_segments(host(session)?, &it);
        HOST get GET_LDST_IDT GetLdstIdt(it) => self.vcses.vppb(at(session, it.vppb)?)?.ldst_idt(it, reply);
        HOST set SET_LDST_IDT SetLdstIdt(it) => self.vcses.set_ldst_idt(host(session)?, &it);
        HOST get GET_RE_ROUTER GetReRouter(it) => self.vcses.vppb(at(session, it.vppb)?)?.re_router(it, reply);
        HOST set SET_RE_ROUTER SetReRouter(it) => self.vcses.set_re_router(host(session)?, &it);
        HOST get GET_LAV GetLav(it) => self.vcses.named(host(session)?)?.host_lav(it, reply);
        FM get GET_VCS_LAV GetVcsLav(it) => self.vcses.named(it.vcs)?.vcs_lav(it.range, reply);
        FM set CONFIGURE_LDST_ACCESS ConfigureLdstAccess(it) => self.vcses.configure_lav(it);
        HOST get IDENTIFY_GAE IdentifyGae(it) => self.vcses.with_gae(host(session)?)?.identify_gae(it, reply);
        HOST set GET_PID_INTERRUPTS GetPidInterrupts(it) => self.vcses.named_mut(host(session)?)?.pid_interrupts(&it, reply);
        HOST get GET_PID_ACCESS GetPidAccess(it) => self.vcses.named(host(session)?)?.host_access(it, reply);
        HOST get GET_FAST_CAPS GetFastCaps(it) => self.vcses.fast_caps(at(session, it.vppb)?, &self.ports, reply);
        HOST set SET_FAST SetFast(it) => self.vcses.set_fast(host(session)?, &it);
        HOST get GET_FAST_SEGMENTS GetFastSegments(it) => self.vcses.vppb(at(session, it.vppb)?)?.fast_segments(it, reply);
        HOST set SET_FAST_SEGMENTS SetFastSegments(it) => self.vcses.set_fast_segments(host(session)?, &it);
        HOST get GET_IDT GetIdt(it) => self.vcses.vppb(at(session, it.vppb)?)?.fast_idt(it, reply);
        HOST set SET_IDT SetIdt(it) => self.vcses.set_fast_idt(host(session)?, &it);
        HOST set PROXY Proxy(it) => self.vcses.proxy(host(session)?, &it, reply);
        HOST get GET_PROXY_STATUS GetProxyStatus(it) => self.vcses.named(host(session)?)?.proxy_status(it, reply);
        HOST set CANCEL_PROXY CancelProxy(it) => self.vcses.cancel_proxy(host(session)?, it, reply);
        FM get IDENTIFY_VCS_GAE IdentifyVcsGae(it) => self.vcses.with_gae(it.vcs)?.identify_gae(it.range, reply);
        FM get GET_VCS_ACCESS GetVcsAccess(it) => self.vcses.with_gae(it.vcs)?.vcs_access(it.range, reply);
        FM set CONFIGURE_ACCESS ConfigureAccess(it) => self.vcses.configure_access(&it);
        FM get GET_PREFIX GetPrefix(vcs) => self.vcses.with_gae(vcs)?.get_prefix(reply);
        FM set SET_PREFIX SetPrefix(it) => self.vcses.set_prefix(it);
        FM get GET_PORT_TRAFFIC GetPortTraffic(it) => self.ports.traffic(&it, reply);
    }
}
