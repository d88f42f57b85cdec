//! Binding and unbinding: 5201h, 5202h, 5706h, which go on in the background.
//!
//! The command is checked and [`Work`] noted; when its time is over it is checked once more and done.
//!
//! Units: time as `Instant`.
//! Source: docs/spec/wire-formats.md §4.3, §4.5; docs/spec/cxl-fabric.md "Binding"; CXL 3.1 sections 7.7.6.4, 7.7.12.3.
//!
//! A host sees a bind as a hot-add at the vPPB, an unbind as a hot-remove.

use weft_cxl::cci::{Done, Outcome};
use weft_cxl::pci::Link;
use weft_dataplane::time::{Instant, Span};
use weft_parsers::cci::pbr::{BindOp, BindPid, PathCost};
use weft_parsers::cci::vcs::{BindVppb, UnbindOption, UnbindVppb};
use weft_parsers::cci::{Opcode, ReturnCode};
use weft_parsers::fabric::Pid;

use super::NONE_SUCH;
use crate::config::Role;
use crate::switch::{Event, Switch};
use crate::vcs::{Bound, PidBound};
use crate::work::Work;

/// LD of Bind vPPB for a whole device.
const WHOLE: u16 = 0xFFFF;
/// How long an unbind waits for a link to go down.
const LINK_DOWN: Span = Span::from_ms(10_000);

impl Switch {
    pub(super) fn bind_vppb(&mut self, now: Instant, request: BindVppb) -> Done {
        let port = self.port_of(request.port)?.id;
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
        if let Work::Unbind { vcs, vppb, option: UnbindOption::WaitLinkDown } = work
            && self.is_link_up(vcs, vppb)
        {
            time = LINK_DOWN;
        }
        self.common.background.start(opcode, now, now + time)?;
        self.work = Some(work);
        Ok(Outcome::Background)
    }

    /// Whether what a vPPB is bound to has a link.
    fn is_link_up(&self, vcs: u8, vppb: u8) -> bool {
        let port = self.vppb_of(vcs, vppb).ok().and_then(|vppb| vppb.bound.port());
        port.and_then(|port| self.port(port)).is_some_and(|port| port.link.is_some())
    }

    /// Whether it can be done.
    fn check(&self, work: &Work) -> Result<(), ReturnCode> {
        let (vcs, vppb) = work.at();
        let owner = self.vcs_of(vcs)?;
        let bound = self.vppb_of(vcs, vppb)?.bound;
        let is_usp = vppb == 0 && owner.usp.is_some();
        let fits = match *work {
            _ if is_usp => false, // the host's port is the host's
            Work::Bind { port, ld, .. } => {
                let state = self.port(port).ok_or(NONE_SUCH)?;
                let used = self.bound_to(port);
                let same = |&(vcs, at): &(u8, u8)| {
                    let other = self.vppb_of(vcs, at).map(|it| it.bound);
                    ld.is_none() || !matches!(other, Ok(Bound::Ld(_, other)) if Some(other) != ld)
                };
                // A device with LDs has no host of its own, and one without has no LD.
                let there = ld.map_or(state.lds() == 0, |ld| ld < state.lds().into());
                vppb > 0
                    && bound == Bound::No
                    && state.role == Role::Dsp
                    && !state.is_gfd()
                    && there
                    && !used.iter().any(same)
            }
            Work::Unbind { .. } => bound.port().is_some(),
            Work::BindPid { far, own, .. } => {
                let ends = match bound {
                    Bound::No => own.is_none_or(|own| self.own_pids(vcs, far).any(|it| it == own)),
                    Bound::Pid(old) => old.far == far && (own.is_none() || own == old.own),
                    _ => false,
                };
                !far.is_none() && self.is_elsewhere(far) && ends
            }
            Work::UnbindPid { .. } => matches!(bound, Bound::Pid(_)),
        };
        if fits { Ok(()) } else { Err(ReturnCode::InvalidInput) }
    }

    /// Whether a PID is none of this switch's.
    fn is_elsewhere(&self, pid: Pid) -> bool {
        !self.tables.assigned().any(|(own, _)| own == pid)
    }

    /// Does what is due.
    pub(crate) fn finish_work(&mut self, now: Instant) {
        let Some(work) = self.work else { return };
        let (vcs, vppb) = work.at();
        let waits = matches!(work, Work::Unbind { option: UnbindOption::WaitLinkDown, .. });
        let up = waits && self.is_link_up(vcs, vppb);
        let due = self.common.background.due(now).is_some();
        if !due && (up || !waits) {
            return;
        }
        self.work = None;
        let code = match self.check(&work) {
            Err(code) => code,
            Ok(()) if up => ReturnCode::Aborted,
            Ok(()) => {
                self.carry_out(&work);
                ReturnCode::Success
            }
        };
        self.common.background.finish(code);
    }

    /// Does at once what can be done; none where it cannot.
    pub(crate) fn do_now(&mut self, work: &Work) -> Option<()> {
        self.check(work).ok()?;
        self.carry_out(work);
        Some(())
    }

    fn carry_out(&mut self, work: &Work) {
        let (vcs, vppb) = work.at();
        self.touch(vcs); // the port that it leaves
        match *work {
            Work::Bind { port, ld, .. } => {
                let bound = ld.map_or(Bound::Port(port), |ld| Bound::Ld(port, ld));
                let link =
                    self.port(port).filter(|port| !port.resetting).and_then(|port| port.link);
                self.bind(vcs, vppb, bound);
                self.show_present(vcs, vppb, true);
                self.show_link(vcs, vppb, link, false);
            }
            Work::Unbind { option, .. } => {
                self.show_link(vcs, vppb, None, option == UnbindOption::Surprise);
                self.show_present(vcs, vppb, false);
                match self.vppb_of(vcs, vppb).map(|it| it.bound) {
                    // Before another host has it.
                    Ok(Bound::Ld(port, ld)) => self.events.push_back(Event::LdReset { port, ld }),
                    Ok(Bound::Port(port)) => self.events.push_back(Event::PortReset { port }),
                    _ => {}
                }
                self.bind(vcs, vppb, Bound::No);
            }
            Work::BindPid { far, own, cost, .. } => self.bind_far(vcs, vppb, far, own, cost),
            Work::UnbindPid { .. } => {
                let bound = self.vppb_of(vcs, vppb).map(|it| it.bound);
                if let Ok(Bound::Pid(PidBound { far, own, .. })) = bound {
                    let own = own.unwrap_or(Pid::NONE);
                    self.events.push_back(Event::PidBinding { vcs, vppb, bound: false, own, far });
                }
                self.show_link(vcs, vppb, None, false);
                self.show_present(vcs, vppb, false);
                self.bind(vcs, vppb, Bound::No);
                if vppb == 0 {
                    self.forget_host(vcs);
                }
            }
        }
        self.touch(vcs); // and the one that it comes to
    }

    fn bind_far(&mut self, vcs: u8, vppb: u8, far: Pid, own: Option<Pid>, cost: PathCost) {
        let old = self.vppb_of(vcs, vppb).map(|it| it.bound);
        if let Ok(Bound::Pid(old)) = old {
            // Another cost of the same path: nothing that is below is bound anew.
            self.set_bound(vcs, vppb, Bound::Pid(PidBound { cost, ..old }));
            return;
        }
        let own = own.or_else(|| self.own_pid(vcs, far));
        self.bind(vcs, vppb, Bound::Pid(PidBound { far, own: None, cost, up: true }));
        self.show_present(vcs, vppb, true);
        if let Some(own) = own {
            self.name_end(vcs, vppb, own);
        }
    }

    /// A virtual link has a PID of its own now: it is there.
    pub(super) fn name_end(&mut self, vcs: u8, vppb: u8, own: Pid) {
        let Some(state) = self.vppb_mut(vcs, vppb) else { return };
        let Bound::Pid(bound) = &mut state.bound else { return };
        bound.own = Some(own);
        let (far, up) = (bound.far, bound.up);
        self.show_link(vcs, vppb, up.then(Link::default), false);
        self.events.push_back(Event::PidBinding { vcs, vppb, bound: true, own, far });
        self.touch(vcs);
    }

    fn bind(&mut self, vcs: u8, vppb: u8, bound: Bound) {
        self.set_bound(vcs, vppb, bound);
        self.lose_cache_ids(vcs, vppb);
    }

    fn set_bound(&mut self, vcs: u8, vppb: u8, bound: Bound) {
        if let Some(state) = self.vppb_mut(vcs, vppb) {
            state.bound = bound;
        }
        if let Some(state) = self.vcses.get_mut(usize::from(vcs)) {
            state.renew_cdat();
        }
    }

    fn show_present(&mut self, vcs: u8, vppb: u8, is_present: bool) {
        if let Some(state) = self.vppb_mut(vcs, vppb) {
            let effects = state.bridge.set_present(is_present);
            self.note(vcs, vppb, effects);
        }
    }
}
