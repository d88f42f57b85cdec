//! `CacheID` commits: judges the bridge registers that a host has written, and puts them in force. At the host's own
//! edge that ends at once; below a virtual link the host's edge must acknowledge an `RTUpdate` first.
//!
//! [`VcsState::commit_cache_ids`] judges a commit, [`VcsState::poll_cache_ids`] sends `RTUpdate`s, and
//! [`VcsState::answered_cache_ids`] sets the status of the route table. Methods that may change the routes in force
//! return whether they did: the dataplane's tables must follow.
//!
//! Source: CXL 3.1 sections 7.7.12.5, 8.2.4.28, 8.2.4.29; docs/spec/cxl-fabric.md "CacheID".

use weft_cxl::pci::Component;
use weft_cxl::pci::component::cache_id::commit_decoders;
use weft_cxl::vdm::Vdm;
use weft_cxl::vdm::rtupdate::Answer;
use weft_dataplane::pbr::{CacheDecoding, CacheRoutes};
use weft_dataplane::time::Instant;
use weft_parsers::fabric::Pid;
use weft_parsers::tlp::vdm::RtPair;

use super::{Bound, PidBound, VcsState};
use crate::cache_ids::Route;
use crate::port::Port;
use crate::ports::Ports;

impl VcsState {
    /// Committed routes of its own table at a host's edge: `CacheID`, PID of the port, number of the vPPB.
    pub fn own_cache_ids(&self) -> impl Iterator<Item = (u8, Pid, u8)> {
        let routes = self.cache_ids.in_force().iter().filter(|_| self.usp.is_some());
        routes.map(|route| (route.pair.cache_id, route.pair.pid, route.vppb))
    }

    /// `CacheID` to port, for the caches of its host. Empty below a virtual link, where the host's edge has the table.
    pub(super) fn cache_ports(&self) -> CacheRoutes {
        let mut routes = CacheRoutes::default();
        let reported = self.cache_ids.iter().map(|(cache_id, port, _)| (cache_id, port));
        let own = self.own_cache_ids().map(|(cache_id, port, _)| (cache_id, port));
        for (cache_id, port) in reported.chain(own) {
            routes.set(cache_id, port);
        }
        routes
    }

    /// The `CacheID`s that the device below a downstream vPPB may use.
    pub(crate) fn cache_decoding(&self, vppb: u8) -> CacheDecoding {
        let component = self.vppbs.get(usize::from(vppb)).and_then(|it| it.component.as_ref());
        let decoder = component.and_then(Component::cache_id_decoder);
        decoder.map_or_else(CacheDecoding::default, |it| self.cache_ids.decoding(vppb, it))
    }

    /// Both PIDs of the virtual link above while it is up: its own, and that of the host's edge.
    pub(crate) fn link_above(&self) -> Option<(Pid, Pid)> {
        match self.vppbs.first()?.bound {
            Bound::Pid(PidBound { far, own: Some(own), up: true, .. }) => Some((own, far)),
            _ => None,
        }
    }

    /// Whether a downstream vPPB is bound to `far` by its own PID `own`, and that link is up. A message that arrives by
    /// a link that is down was sent before the loss, and is stale.
    fn is_virtual_link(&self, own: Pid, far: Pid) -> bool {
        let mut links = self.vppbs.iter().skip(1).filter_map(|vppb| match vppb.bound {
            Bound::Pid(link) if link.up => Some((link.own, link.far)),
            _ => None,
        });
        links.any(|ends| ends == (Some(own), far))
    }

    /// PID of the port that a downstream vPPB is bound to as a whole.
    pub(crate) fn port_pid(&self, ports: &Ports, vppb: u8) -> Option<Pid> {
        match self.vppbs.get(usize::from(vppb))?.bound {
            Bound::Port(port) if vppb > 0 => ports.get(port).map(Port::pid),
            _ => None,
        }
        .filter(|pid| !pid.is_none())
    }

    //= docs/spec/cxl-fabric.md "CacheID": whose update is taken
    /// Accepts an `RTUpdate` of a downstream edge, or none of it; returns the answer for that edge.
    pub(crate) fn receive_cache_ids(&mut self, vdm: &Vdm) -> Option<Vdm> {
        let is_bound = self.is_virtual_link(vdm.pth.dpid, vdm.pth.spid);
        self.cache_ids.receive(vdm, is_bound)
    }

    /// Judges the commits that a host has requested.
    pub(crate) fn commit_cache_ids(&mut self, ports: &Ports) -> bool {
        // Decoders first: a table that is committed by the same write may rely on them.
        let mut changed = self.commit_decoders();
        let upstream = self.vppbs.first_mut().and_then(|vppb| vppb.component.as_mut());
        let Some(table) = upstream.and_then(Component::cache_id_table_mut) else { return changed };
        let Some(number) = table.commit.take() else { return changed };
        let wanted: Vec<(u8, u8)> = table.wanted().collect();
        // One bad target refuses the whole table: the `collect` below ends at the first.
        let routes = wanted.into_iter().map(|(cache_id, port)| self.route(ports, cache_id, port));
        let routes = routes.collect::<Option<Vec<_>>>();
        // With a host port this is the host's own edge: no switch is above to be asked, and the commit ends at once.
        if self.usp.is_some() {
            let is_done = routes.is_some_and(|routes| self.cache_ids.commit_here(routes));
            self.end_commit(Some(number), is_done);
            changed = true;
        } else if let Some(routes) = routes.filter(|_| self.link_above().is_some()) {
            self.cache_ids.commit_above(routes, number);
        } else {
            self.end_commit(Some(number), false);
        }
        changed
    }

    fn commit_decoders(&mut self) -> bool {
        let components = self.vppbs.iter_mut().filter_map(|vppb| vppb.component.as_mut());
        let mut decoders: Vec<_> = components.filter_map(Component::cache_id_decoder_mut).collect();
        commit_decoders(&mut decoders)
    }

    //= docs/spec/cxl-fabric.md "CacheID": which targets may be committed
    /// Looks up the target of a route table entry; `None` if it is not valid. Entries name a vPPB by its number, as if
    /// that were the port.
    pub(crate) fn route(&self, ports: &Ports, cache_id: u8, vppb: u8) -> Option<Route> {
        let pid = self.port_pid(ports, vppb)?;
        let component = self.vppbs.get(usize::from(vppb))?.component.as_ref()?;
        let has = component.cache_id_decoder()?.in_force().has(cache_id);
        has.then_some(Route { vppb, pair: RtPair { pid, cache_id } })
    }

    fn end_commit(&mut self, commit: Option<u64>, is_done: bool) {
        let upstream = self.vppbs.first_mut().and_then(|vppb| vppb.component.as_mut());
        let table = upstream.and_then(Component::cache_id_table_mut);
        if let (Some(table), Some(number)) = (table, commit) {
            table.commit.end(number, is_done);
        }
    }

    /// Withdraws all routes from the host's edge, after a reset of the downstream bridges' registers.
    pub(super) fn withdraw_cache_ids(&mut self) {
        self.keep_cache_ids(|_| false);
    }

    /// Withdraws the routes of a downstream vPPB whose binding changed, and resets its decoder.
    pub(crate) fn lose_cache_ids(&mut self, vppb: u8) {
        let state = self.vppbs.get_mut(usize::from(vppb)).filter(|_| vppb > 0);
        if let Some(component) = state.and_then(|it| it.component.as_mut()) {
            component.reset();
            self.keep_cache_ids(|route| route.vppb != vppb);
        }
    }

    fn keep_cache_ids(&mut self, holds: impl Fn(&Route) -> bool) {
        let ended = self.cache_ids.keep(holds);
        self.end_commit(ended, false);
    }

    /// Withdraws routes to a port whose PID has changed since the commit.
    pub(crate) fn drop_stale_cache_ids(&mut self, ports: &Ports) -> bool {
        let vppbs = self.cache_ids.in_force().iter().map(|route| route.vppb);
        let pids: Vec<(u8, Option<Pid>)> = vppbs.map(|at| (at, self.port_pid(ports, at))).collect();
        let holds = |route: &Route| {
            let now = pids.iter().find(|(vppb, _)| *vppb == route.vppb);
            now.is_none_or(|(_, pid)| *pid == Some(route.pair.pid))
        };
        let changed = !self.cache_ids.in_force().iter().all(holds);
        if changed {
            self.keep_cache_ids(holds);
        }
        changed
    }

    /// Adds the messages to the host's edge that are due.
    pub(crate) fn poll_cache_ids(
        &mut self,
        now: Instant,
        ports: &Ports,
        due: &mut Vec<Vdm>,
    ) -> bool {
        let mut changed = self.start_update(now, ports);
        // `poll` yields every message that is due; an answer (no reply in time) ends the update, so it ends the loop.
        while let Some(next) = self.cache_ids.poll(now) {
            match next {
                Ok(vdm) => due.push(vdm),
                Err(none) => {
                    changed |= self.update_over(none);
                    // Start the waiting update in the same poll: its first message is due now.
                    changed |= self.start_update(now, ports);
                    break;
                }
            }
        }
        changed
    }

    /// Starts the next update, if one waits.
    fn start_update(&mut self, now: Instant, ports: &Ports) -> bool {
        // A PID may have been reassigned since the commit was judged.
        let changed = self.drop_stale_cache_ids(ports);
        let Some(update) = self.cache_ids.start() else { return changed };
        let commit = update.commit;
        // Without a link above, the host's edge cannot be told, and the commit fails.
        let link = self.link_above();
        if !link.is_some_and(|(own, far)| self.cache_ids.send(now, own, far, update)) {
            self.end_commit(commit, false);
        }
        changed
    }

    /// Accepts an answer to an update, which came by the virtual link above; `None` if no update waits for it.
    pub(crate) fn answered_cache_ids(&mut self, vdm: &Vdm) -> Option<bool> {
        let answer = self.cache_ids.answer_of(vdm)?;
        Some(self.update_over(answer))
    }

    fn update_over(&mut self, answer: Answer) -> bool {
        let Some(update) = self.cache_ids.end_update(answer) else { return false };
        self.end_commit(update.commit, answer == Answer::Ack);
        true
    }
}
