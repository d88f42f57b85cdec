//! Bind and unbind: 5201h, 5202h and 5706h, all background operations.
//!
//! A command is checked and noted as [`Work`]. When its time is over it is checked again, as ports and PIDs may have
//! changed meanwhile, and carried out. A host sees a bind as a hot-add at the vPPB and an unbind as a hot-remove.
//!
//! Source: docs/spec/wire-formats.md §4.3, §4.5; docs/spec/cxl-fabric.md "Binding"; CXL 3.1 sections 7.7.6.4, 7.7.12.3.

use weft_cxl::cci::{Done, Outcome};
use weft_cxl::pci::Link;
use weft_dataplane::time::{Instant, Span};
use weft_parsers::cci::pbr::{BindOp, BindPid, PathCost, Vppb};
use weft_parsers::cci::vcs::{BindVppb, UnbindOption, UnbindVppb};
use weft_parsers::cci::{Opcode, ReturnCode};
use weft_parsers::fabric::Pid;

use super::NONE_SUCH;
use crate::config::Role;
use crate::switch::{Event, Switch};
use crate::vcs::{Bound, PidBound};
use crate::work::Work;

/// LD-ID in Bind vPPB that selects the whole device.
const WHOLE: u16 = 0xFFFF;
/// Longest time that an unbind waits for the link to go down.
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
        let port = self.vppb_of(at).ok().and_then(|vppb| vppb.bound.port());
        port.and_then(|port| self.port(port)).is_some_and(|port| port.link.is_some())
    }

    /// Checks that a bind or unbind is possible now.
    fn check(&self, work: &Work) -> Result<(), ReturnCode> {
        let at = work.at();
        let owner = self.vcs_of(at.vcs)?;
        let bound = self.vppb_of(at)?.bound;
        let is_usp = at.vppb == 0 && owner.usp.is_some();
        let fits = match *work {
            _ if is_usp => false, // the host's port is the host's
            // A vPPB 0 that gets here is a vUSP, which is bound by PID only: hence `vppb > 0`.
            Work::Bind { port, ld, .. } => {
                let state = self.port(port).ok_or(NONE_SUCH)?;
                let used = self.bound_to(port);
                // A port is bound once, or once for each of its LDs; a whole binding beside an LD conflicts with it.
                let same = |other: &Vppb| {
                    let other = self.vppb_of(*other).map(|it| it.bound);
                    ld.is_none() || !matches!(other, Ok(Bound::Ld(_, other)) if Some(other) != ld)
                };
                // A device with LDs has no host of its own, and a device without LDs has none to bind.
                let there = ld.map_or(state.lds() == 0, |ld| ld < state.lds().into());
                at.vppb > 0
                    && bound == Bound::No
                    && state.role == Role::Dsp
                    && !state.is_gfd()
                    && there
                    && !used.iter().any(same)
            }
            Work::Unbind { .. } => bound.port().is_some(),
            Work::BindPid { far, own, .. } => {
                let ends = match bound {
                    Bound::No => {
                        own.is_none_or(|own| self.own_pids(at.vcs, far).any(|it| it == own))
                    }
                    // A repeated bind to the same end only updates the cost of the path.
                    Bound::Pid(old) => old.far == far && (own.is_none() || own == old.own),
                    _ => false,
                };
                !far.is_none() && self.is_elsewhere(far) && ends
            }
            Work::UnbindPid { .. } => matches!(bound, Bound::Pid(_)),
        };
        if fits { Ok(()) } else { Err(ReturnCode::InvalidInput) }
    }

    /// Whether no part of this switch has this PID.
    fn is_elsewhere(&self, pid: Pid) -> bool {
        !self.tables.assigned().any(|(own, _)| own == pid)
    }

    /// Finishes the bind or unbind if it is due.
    pub(crate) fn finish_work(&mut self, now: Instant) {
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
                self.carry_out(&work);
                ReturnCode::Success
            }
        };
        self.common.background.finish(code);
    }

    /// Checks and carries out a bind at once; `None` if it is refused.
    pub(crate) fn do_now(&mut self, work: &Work) -> Option<()> {
        self.check(work).ok()?;
        self.carry_out(work);
        Some(())
    }

    fn carry_out(&mut self, work: &Work) {
        let at = work.at();
        let Vppb { vcs, vppb } = at;
        self.touch(vcs); // the port that it leaves
        match *work {
            Work::Bind { port, ld, .. } => {
                let bound = ld.map_or(Bound::Port(port), |ld| Bound::Ld(port, ld));
                let link =
                    self.port(port).filter(|port| !port.resetting).and_then(|port| port.link);
                // As when a card is plugged in: presence first, then the link. An unbind goes the other way round.
                self.bind(at, bound);
                self.show_present(at, true);
                self.show_link(at, link, false);
            }
            Work::Unbind { option, .. } => {
                // The mode tells the host's software whether the loss is an error.
                self.show_link(at, None, option == UnbindOption::Surprise);
                self.show_present(at, false);
                match self.vppb_of(at).map(|it| it.bound) {
                    // Reset before another host gets it, so that nothing of this host's state is left.
                    Ok(Bound::Ld(port, ld)) => self.events.push_back(Event::LdReset { port, ld }),
                    Ok(Bound::Port(port)) => self.events.push_back(Event::PortReset { port }),
                    _ => {}
                }
                self.bind(at, Bound::No);
            }
            Work::BindPid { far, own, cost, .. } => self.bind_far(at, far, own, cost),
            Work::UnbindPid { .. } => {
                // Note the ends before the binding goes: the agent tears down the virtual link by them.
                let bound = self.vppb_of(at).map(|it| it.bound);
                if let Ok(Bound::Pid(PidBound { far, own, .. })) = bound {
                    let own = own.unwrap_or(Pid::NONE);
                    self.events.push_back(Event::PidBinding { vcs, vppb, bound: false, own, far });
                }
                self.show_link(at, None, false);
                self.show_present(at, false);
                self.bind(at, Bound::No);
                if vppb == 0 {
                    self.forget_host(vcs);
                }
            }
        }
        self.touch(vcs); // and the one that it comes to
    }

    fn bind_far(&mut self, at: Vppb, far: Pid, own: Option<Pid>, cost: PathCost) {
        let old = self.vppb_of(at).map(|it| it.bound);
        if let Ok(Bound::Pid(old)) = old {
            // The same path at another cost: nothing below is bound anew.
            self.set_bound(at, Bound::Pid(PidBound { cost, ..old }));
            return;
        }
        let own = own.or_else(|| self.own_pid(at.vcs, far));
        // Without a PID first: `name_end` brings the link up, now or when the manager assigns one.
        self.bind(at, Bound::Pid(PidBound { far, own: None, cost, up: true }));
        self.show_present(at, true);
        if let Some(own) = own {
            self.name_end(at, own);
        }
    }

    /// Gives a virtual link its own PID, which brings the link up.
    pub(super) fn name_end(&mut self, at: Vppb, own: Pid) {
        let Vppb { vcs, vppb } = at;
        let Some(state) = self.vppb_mut(at) else { return };
        let Bound::Pid(bound) = &mut state.bound else { return };
        bound.own = Some(own);
        let (far, up) = (bound.far, bound.up);
        self.show_link(at, up.then(Link::default), false);
        self.events.push_back(Event::PidBinding { vcs, vppb, bound: true, own, far });
        self.touch(vcs);
    }

    fn bind(&mut self, at: Vppb, bound: Bound) {
        self.set_bound(at, bound);
        // CacheIDs belong to the device that was bound here.
        self.lose_cache_ids(at);
    }

    fn set_bound(&mut self, at: Vppb, bound: Bound) {
        if let Some(state) = self.vppb_mut(at) {
            state.bound = bound;
        }
        if let Some(state) = self.vcses.get_mut(usize::from(at.vcs)) {
            state.renew_cdat();
        }
    }

    fn show_present(&mut self, at: Vppb, is_present: bool) {
        if let Some(state) = self.vppb_mut(at) {
            let effects = state.bridge.set_present(is_present);
            self.note(at, effects);
        }
    }
}
