//! Bindings of vPPBs: whether a bind or unbind is possible, and what it does.
//!
//! A host sees a bind as a hot-add at the vPPB and an unbind as a hot-remove. One end of a virtual link that has no PID
//! of its own yet stays down until the manager assigns one.
//!
//! Source: docs/spec/wire-formats.md §4.3, §4.5; docs/spec/cxl-fabric.md "Binding"; CXL 3.1 sections 7.7.6.4, 7.7.12.3.

use weft_cxl::cci::{Done, Reply};
use weft_cxl::pci::Link;
use weft_parsers::cci::pbr::{PathCost, PidBinding, Vppb};
use weft_parsers::cci::vcs::UnbindOption;
use weft_parsers::cci::{Response, ReturnCode};
use weft_parsers::fabric::Pid;

use super::VirtualSwitches;
use crate::cci::NONE_SUCH;
use crate::config::Role;
use crate::event::Event;
use crate::port::Port;
use crate::ports::Ports;
use crate::vcs::{Bound, PidBound};
use crate::work::Work;

impl VirtualSwitches {
    /// Checks that a bind or unbind is possible now. `is_here`: whether a part of this switch has a PID.
    pub fn check(
        &self,
        work: &Work,
        ports: &Ports,
        is_here: impl Fn(Pid) -> bool,
    ) -> Result<(), ReturnCode> {
        let at = work.at();
        let owner = self.named(at.vcs)?;
        let bound = self.vppb(at)?.bound;
        let is_usp = at.vppb == 0 && owner.usp.is_some();
        let fits = match *work {
            _ if is_usp => false, // the host's port is the host's
            // A vPPB 0 that gets here is a vUSP, which is bound by PID only: hence `vppb > 0`.
            Work::Bind { port, ld, .. } => {
                let state = ports.get(port).ok_or(NONE_SUCH)?;
                let used = self.bound_to(port);
                // A port is bound once, or once for each of its LDs; a whole binding beside an LD conflicts with it.
                let same = |other: &Vppb| {
                    let other = self.vppb(*other).map(|it| it.bound);
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
                        own.is_none_or(|own| self.own_pids(ports, at.vcs, far).any(|it| it == own))
                    }
                    // A repeated bind to the same end only updates the cost of the path.
                    Bound::Pid(old) => old.far == far && (own.is_none() || own == old.own),
                    _ => false,
                };
                !far.is_none() && !is_here(far) && ends
            }
            Work::UnbindPid { .. } => matches!(bound, Bound::Pid(_)),
        };
        if fits { Ok(()) } else { Err(ReturnCode::InvalidInput) }
    }

    pub fn carry_out(&mut self, work: &Work, ports: &Ports) {
        let at = work.at();
        let Vppb { vcs, vppb } = at;
        self.touch(vcs); // the port that it leaves
        match *work {
            Work::Bind { port, ld, .. } => {
                let bound = ld.map_or(Bound::Port(port), |ld| Bound::Ld(port, ld));
                let link =
                    ports.get(port).filter(|port| !port.resetting).and_then(|port| port.link);
                // As when a card is plugged in: presence first, then the link. An unbind goes the other way round.
                self.bind(at, bound);
                self.show_present(at, true);
                self.show_link(at, link, false);
            }
            Work::Unbind { option, .. } => {
                // The mode tells the host's software whether the loss is an error.
                self.show_link(at, None, option == UnbindOption::Surprise);
                self.show_present(at, false);
                match self.vppb(at).map(|it| it.bound) {
                    // Reset before another host gets it, so that nothing of this host's state is left.
                    Ok(Bound::Ld(port, ld)) => self.events.push_back(Event::LdReset { port, ld }),
                    Ok(Bound::Port(port)) => self.events.push_back(Event::PortReset { port }),
                    _ => {}
                }
                self.bind(at, Bound::No);
            }
            Work::BindPid { far, own, cost, .. } => {
                let own = own.or_else(|| self.own_pid(ports, vcs, far));
                self.bind_far(at, far, own, cost);
            }
            Work::UnbindPid { .. } => {
                // Note the ends before the binding goes: the agent tears down the virtual link by them.
                let bound = self.vppb(at).map(|it| it.bound);
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
        let old = self.vppb(at).map(|it| it.bound);
        if let Ok(Bound::Pid(old)) = old {
            // The same path at another cost: nothing below is bound anew.
            self.set_bound(at, Bound::Pid(PidBound { cost, ..old }));
            return;
        }
        // Without a PID first: `name_end` brings the link up, now or when the manager assigns one.
        self.bind(at, Bound::Pid(PidBound { far, own: None, cost, up: true }));
        self.show_present(at, true);
        if let Some(own) = own {
            self.name_end(at, own);
        }
    }

    /// Gives a virtual link its own PID, which brings the link up.
    fn name_end(&mut self, at: Vppb, own: Pid) {
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
        if let Some(state) = self.get_mut(at.vcs) {
            state.lose_cache_ids(at.vppb);
        }
    }

    fn set_bound(&mut self, at: Vppb, bound: Bound) {
        if let Some(state) = self.vppb_mut(at) {
            state.bound = bound;
        }
        if let Some(state) = self.get_mut(at.vcs) {
            state.renew_cdat();
        }
    }

    fn show_present(&mut self, at: Vppb, is_present: bool) {
        if let Some(state) = self.vppb_mut(at) {
            let effects = state.bridge.set_present(is_present);
            self.note(at, effects);
        }
    }

    /// See [`VcsState::forget_host`](crate::vcs::VcsState::forget_host).
    fn forget_host(&mut self, vcs: u8) {
        let sizes = self.sizes;
        if let Some(state) = self.get_mut(vcs) {
            state.forget_host(sizes);
            self.touch(vcs);
        }
    }

    /// Reports that the path of a virtual link is down or whole again. A loss is shown to the host as a surprise link
    /// down at the vPPB of its edge.
    pub fn set_path(&mut self, at: Vppb, is_up: bool) {
        let Some(state) = self.vppb_mut(at) else { return };
        let Bound::Pid(bound) = &mut state.bound else { return };
        if bound.up == is_up {
            return;
        }
        bound.up = is_up;
        // An end without a PID cannot send, so its link stays down even with a path.
        let (link, far) = ((is_up && bound.own.is_some()).then(Link::default), bound.far);
        if !is_up {
            self.forget_cache_ids(at.vcs, far);
        }
        self.show_link(at, link, true);
        self.touch_only(at.vcs);
    }

    /// Reports that the host resets the far end of a virtual link: the path is down until the far end reports Link Up.
    pub fn reset_path(&mut self, at: Vppb) {
        let Some(state) = self.vppb_mut(at) else { return };
        let Bound::Pid(bound) = &mut state.bound else { return };
        bound.up = false;
        let far = bound.far;
        // The reset clears the CacheID registers of the edge below, which sends no update for that.
        self.forget_cache_ids(at.vcs, far);
        self.show_link(at, None, false);
        self.touch_only(at.vcs);
    }

    /// Whether a binding uses this PID as its own end.
    pub fn is_bound_by(&self, pid: Pid) -> bool {
        self.pid_bounds().any(|bound| bound.own == Some(pid))
    }

    /// All virtual links that end at this switch.
    fn pid_bounds(&self) -> impl Iterator<Item = PidBound> {
        self.list.iter().flat_map(|vcs| &vcs.vppbs).filter_map(|vppb| match vppb.bound {
            Bound::Pid(bound) => Some(bound),
            _ => None,
        })
    }

    /// The PID of this end of a virtual link from a vPPB of `vcs` to `far`: one of the host's port at a host's edge,
    /// one of a fabric port at a vUSP. Takes the first PID without a link to `far`, since two links must differ in at
    /// least one end.
    fn own_pid(&self, ports: &Ports, vcs: u8, far: Pid) -> Option<Pid> {
        self.own_pids(ports, vcs, far).next()
    }

    /// All PIDs that this end of such a link may use.
    fn own_pids<'a>(
        &'a self,
        ports: &'a Ports,
        vcs: u8,
        far: Pid,
    ) -> impl Iterator<Item = Pid> + 'a {
        let owner = self.get(vcs);
        let mine = move |port: &&Port| match owner.map(|owner| owner.usp) {
            Some(Some(usp)) => port.id == usp,
            Some(None) => port.role == Role::Fabric,
            None => false,
        };
        let all = ports.all().iter().filter(mine).flat_map(|port| port.pids.iter().copied());
        let taken = move |own| self.pid_bounds().any(|it| it.own == Some(own) && it.far == far);
        all.filter(move |&own| !own.is_none() && !taken(own))
    }

    /// Names the virtual links that had no own PID, if one is free now.
    pub fn find_own_pids(&mut self, ports: &Ports) {
        let waiting: Vec<(Vppb, Pid)> = self
            .iter()
            .flat_map(|(vcs, state)| {
                (0..=u8::MAX).zip(&state.vppbs).filter_map(move |(vppb, state)| match state.bound {
                    Bound::Pid(PidBound { own: None, far, .. }) => Some((Vppb { vcs, vppb }, far)),
                    _ => None,
                })
            })
            .collect();
        for (at, far) in waiting {
            if let Some(own) = self.own_pid(ports, at.vcs, far) {
                self.name_end(at, own);
            }
        }
    }

    /// Get PID Binding (5705h); `own` is the PID of this switch.
    pub fn pid_binding(&self, at: Vppb, own: Pid, reply: &mut Reply) -> Done {
        let vcs = self.named(at.vcs)?;
        let free = PathCost { latency_base: 0, latency: 0, bandwidth_base: 0, bandwidth: 0 };
        let (pid, cost) = match self.vppb(at)?.bound {
            Bound::Pid(bound) => (bound.far, bound.cost),
            _ => (Pid::NONE, free),
        };
        // At the host's own edge the managing PID is this switch. Below a link no command says which switch that is.
        let host_edge = if vcs.usp.is_some() { own } else { Pid::NONE };
        reply.send(&Response::GetPidBinding(PidBinding { pid, host_edge, cost }))
    }
}
