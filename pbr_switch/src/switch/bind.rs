//! Bind and unbind: 5201h, 5202h and 5706h, all background operations.
//!
//! A command is checked and noted as [`Work`]. When its time is over it is checked again, as ports and PIDs may have
//! changed meanwhile, and carried out. A host sees a bind as a hot-add at the vPPB and an unbind as a hot-remove.
//!
//! Source: docs/spec/wire-formats.md §4.3, §4.5; docs/spec/cxl-fabric.md "Binding"; CXL 3.1 sections 7.7.6.4, 7.7.12.3.

use weft_cxl::cci::{Done, Outcome};
use weft_dataplane::time::{Instant, Span};
use weft_parsers::cci::pbr::{BindOp, BindPid, Vppb};
use weft_parsers::cci::vcs::{BindVppb, UnbindOption, UnbindVppb};
use weft_parsers::cci::{Opcode, ReturnCode};

use super::Switch;
use crate::work::Work;

/// LD-ID in Bind vPPB that selects the whole device.
const WHOLE: u16 = 0xFFFF;
/// Longest time that an unbind waits for the link to go down.
const LINK_DOWN: Span = Span::from_ms(10_000);

impl Switch {
    pub(super) fn bind_vppb(&mut self, now: Instant, request: BindVppb) -> Done {
        let port = self.ports.named(request.port)?.id;
        let ld = (request.ld != WHOLE).then_some(request.ld);
        let work = Work::Bind { vcs: request.vcs, vppb: request.vppb, port, ld };
        self.start(now, Opcode::BIND_VPPB, work)
    }

    pub(super) fn unbind_vppb(&mut self, now: Instant, request: UnbindVppb) -> Done {
        let UnbindVppb { vcs, vppb, option } = request;
        self.start(now, Opcode::UNBIND_VPPB, Work::Unbind { vcs, vppb, option })
    }

    pub(super) fn bind_pid(&mut self, now: Instant, request: &BindPid) -> Done {
        let BindPid { op, vcs, vppb, pid, own, cost } = *request;
        let work = match op {
            BindOp::Bind => Work::BindPid { vcs, vppb, far: pid, own: own.0, cost },
            BindOp::Unbind => Work::UnbindPid { vcs, vppb },
        };
        self.start(now, Opcode::BIND_PID, work)
    }

    fn start(&mut self, now: Instant, opcode: Opcode, work: Work) -> Done {
        self.check(&work)?;
        let mut time = self.config.bind_time;
        // This option waits for the host or device to take the link down, for which it gets more time than the unbind
        // itself.
        if let Work::Unbind { vcs, vppb, option: UnbindOption::WaitLinkDown } = work
            && self.is_link_up(Vppb { vcs, vppb })
        {
            time = LINK_DOWN;
        }
        self.common.background.start(opcode, now, now + time)?;
        self.work = Some(work);
        Ok(Outcome::Background)
    }

    /// Whether the port that a vPPB is bound to has a link.
    fn is_link_up(&self, at: Vppb) -> bool {
        let port = self.vcses.bound_at(at).port();
        port.and_then(|port| self.port(port)).is_some_and(|port| port.link.is_some())
    }

    fn check(&self, work: &Work) -> Result<(), ReturnCode> {
        self.vcses.check(work, &self.ports, |pid| self.routing.is_here(pid))
    }

    /// Finishes the bind or unbind if it is due.
    pub(super) fn finish_work(&mut self, now: Instant) {
        let Some(work) = self.work else { return };
        // With this option the unbind ends as soon as the link is down; at the deadline a link that is still up aborts
        // it.
        let waits = matches!(work, Work::Unbind { option: UnbindOption::WaitLinkDown, .. });
        let up = waits && self.is_link_up(work.at());
        let due = self.common.background.due(now).is_some();
        if !due && (up || !waits) {
            return;
        }
        self.work = None;
        let code = match self.check(&work) {
            Err(code) => code,
            Ok(()) if up => ReturnCode::Aborted,
            Ok(()) => {
                self.vcses.carry_out(&work, &self.ports);
                ReturnCode::Success
            }
        };
        self.common.background.finish(code);
    }

    /// Checks and carries out a bind at once; `None` if it is refused.
    pub(crate) fn do_now(&mut self, work: &Work) -> Option<()> {
        self.check(work).ok()?;
        self.vcses.carry_out(work, &self.ports);
        Some(())
    }
}
