//! `CacheID` commits: judges the bridge registers that a host has written, and puts them in force. At the host's own
//! edge that ends at once; below a virtual link the host's edge must acknowledge an `RTUpdate` first.
//!
//! [`Switch::commit_cache_ids`] judges a commit, [`Switch::poll_cache_ids`] sends `RTUpdate`s, and
//! [`Switch::answered_cache_ids`] sets the status of the route table. The dataplane's tables then follow the routes in
//! force.
//!
//! Source: CXL 3.1 sections 7.7.12.5, 8.2.4.28, 8.2.4.29; docs/spec/cxl-fabric.md "CacheID".

use weft_cxl::pci::Component;
use weft_cxl::pci::component::cache_id::commit_decoders;
use weft_cxl::vdm::Vdm;
use weft_cxl::vdm::rtupdate::{Answer, RtSender};
use weft_dataplane::time::Instant;
use weft_parsers::cci::pbr::Vppb;
use weft_parsers::fabric::Pid;
use weft_parsers::tlp::vdm::RtPair;

use crate::cache_updates::{Route, Update};
use crate::switch::Switch;
use crate::vcs::{Bound, PidBound, VcsState};

/// Both PIDs of the virtual link above a virtual switch while it is up: its own, and that of the host's edge.
fn link_above(state: &VcsState) -> Option<(Pid, Pid)> {
    match state.vppbs.first()?.bound {
        Bound::Pid(PidBound { far, own: Some(own), up: true, .. }) => Some((own, far)),
        _ => None,
    }
}

impl Switch {
    /// PID of the port that a downstream vPPB is bound to as a whole.
    fn port_pid(&self, at: Vppb) -> Option<Pid> {
        match self.bound_at(at) {
            Bound::Port(port) if at.vppb > 0 => self.port(port).map(super::Port::pid),
            _ => None,
        }
        .filter(|pid| !pid.is_none())
    }

    /// Judges the commits that a host has requested in a virtual switch.
    pub(super) fn commit_cache_ids(&mut self, vcs: u8) {
        // Decoders first: a table that is committed by the same write may rely on them.
        self.commit_decoders(vcs);
        let table = self.vppb_mut(Vppb { vcs, vppb: 0 }).and_then(|vppb| vppb.component.as_mut());
        let Some(table) = table.and_then(|it| it.cache_id_table_mut()) else { return };
        let Some(number) = table.commit.take() else { return };
        let wanted: Vec<(u8, u8)> = table.wanted().collect();
        // One bad target refuses the whole table: the `collect` below ends at the first.
        let routes = wanted.into_iter().map(|(cache_id, port)| self.route(vcs, cache_id, port));
        let routes = routes.collect::<Option<Vec<_>>>();
        let Some(state) = self.vcses.get_mut(usize::from(vcs)) else { return };
        // With a host port this is the host's own edge: no switch is above to be asked, and the commit ends at once.
        if state.usp.is_some() {
            let told = |route: &Route| state.cache_ids.port(route.pair.cache_id).is_some();
            let routes = routes.filter(|routes| !routes.iter().any(told));
            let is_done = routes.is_some();
            if let Some(routes) = routes {
                state.cache_routes.in_force = routes;
            }
            self.end_commit(vcs, Some(number), is_done);
            return self.publish_cache_ids(vcs);
        }
        // Below a virtual link the old routes stay in force until the host's edge acknowledges.
        match routes.filter(|_| link_above(state).is_some()) {
            Some(routes) => {
                state.cache_routes.next = Some(Update { routes, commit: Some(number) });
            }
            None => self.end_commit(vcs, Some(number), false),
        }
    }

    fn commit_decoders(&mut self, vcs: u8) {
        let Some(state) = self.vcses.get_mut(usize::from(vcs)) else { return };
        let components = state.vppbs.iter_mut().filter_map(|vppb| vppb.component.as_mut());
        let mut decoders: Vec<_> = components.filter_map(Component::cache_id_decoder_mut).collect();
        if commit_decoders(&mut decoders) {
            self.publish_cache_ids(vcs);
        }
    }

    /// Makes the dataplane route by the routes in force now.
    pub(super) fn publish_cache_ids(&mut self, vcs: u8) {
        self.touch(vcs);
        self.refresh();
    }

    //= docs/spec/cxl-fabric.md "CacheID": which targets may be committed
    /// Looks up the target of a route table entry; `None` if it is not valid. Entries name a vPPB by its number, as if
    /// that were the port.
    fn route(&self, vcs: u8, cache_id: u8, vppb: u8) -> Option<Route> {
        let pid = self.port_pid(Vppb { vcs, vppb })?;
        let component = self.vcs(vcs)?.vppbs.get(usize::from(vppb))?.component.as_ref()?;
        let has = component.cache_id_decoder()?.in_force().has(cache_id);
        has.then_some(Route { vppb, pair: RtPair { pid, cache_id } })
    }

    fn end_commit(&mut self, vcs: u8, commit: Option<u64>, is_done: bool) {
        let table = self.vppb_mut(Vppb { vcs, vppb: 0 }).and_then(|vppb| vppb.component.as_mut());
        if let (Some(table), Some(number)) = (table.and_then(|it| it.cache_id_table_mut()), commit)
        {
            table.commit.end(number, is_done);
        }
    }

    /// Withdraws all routes from the host's edge, after a reset of the downstream bridges' registers.
    pub(super) fn withdraw_cache_ids(&mut self, vcs: u8) {
        self.keep_cache_ids(vcs, |_| false);
    }

    /// Withdraws the routes of a downstream vPPB whose binding changed, and resets its decoder.
    pub(super) fn lose_cache_ids(&mut self, at: Vppb) {
        if let Some(component) = self.vppb_mut(at).and_then(|it| it.component.as_mut())
            && at.vppb > 0
        {
            component.reset();
            self.keep_cache_ids(at.vcs, |route| route.vppb != at.vppb);
        }
    }

    /// Repeats the table to a host's edge that lost the virtual link, and its copy with it, while this end did not.
    pub(super) fn tell_cache_ids_again(&mut self, vcs: u8) {
        if let Some(state) = self.vcses.get_mut(usize::from(vcs)) {
            state.cache_routes.is_stale |= !state.cache_routes.in_force.is_empty();
        }
    }

    fn keep_cache_ids(&mut self, vcs: u8, holds: impl Fn(&Route) -> bool) {
        let state = self.vcses.get_mut(usize::from(vcs));
        let ended = state.and_then(|state| state.cache_routes.keep(holds));
        self.end_commit(vcs, ended, false);
    }

    /// Takes the messages to hosts' edges that are due.
    pub(super) fn poll_cache_ids(&mut self, now: Instant) -> Vec<Vdm> {
        let mut due = Vec::new();
        for vcs in (0..=u8::MAX).take(self.vcses.len()) {
            self.start_update(now, vcs);
            let Some(state) = self.vcses.get_mut(usize::from(vcs)) else { continue };
            let mut answer = None;
            // `poll` yields every message that is due; an answer (no reply in time) ends the update, so it ends the
            // loop.
            while let Some((sender, _)) = &mut state.cache_routes.sent
                && answer.is_none()
                && let Some(next) = sender.poll(now)
            {
                match next {
                    Ok(vdm) => due.push(vdm),
                    Err(none) => answer = Some(none),
                }
            }
            if let Some(answer) = answer {
                self.update_over(vcs, answer);
                // Start the waiting update in the same poll: its first message is due now.
                self.start_update(now, vcs);
            }
        }
        due
    }

    /// Withdraws routes to a port whose PID has changed since the commit.
    pub(super) fn drop_stale_cache_ids(&mut self, vcs: u8) {
        let Some(state) = self.vcs(vcs) else { return };
        let vppbs = state.cache_routes.in_force.iter().map(|route| route.vppb);
        let pids: Vec<(u8, Option<Pid>)> =
            vppbs.map(|vppb| (vppb, self.port_pid(Vppb { vcs, vppb }))).collect();
        let holds = |route: &Route| {
            let now = pids.iter().find(|(vppb, _)| *vppb == route.vppb);
            now.is_none_or(|(_, pid)| *pid == Some(route.pair.pid))
        };
        if !state.cache_routes.in_force.iter().all(holds) {
            self.keep_cache_ids(vcs, holds);
            self.publish_cache_ids(vcs);
        }
    }

    /// Starts the next update of a virtual switch, if one waits.
    fn start_update(&mut self, now: Instant, vcs: u8) {
        // A PID may have been reassigned since the commit was judged.
        self.drop_stale_cache_ids(vcs);
        let Some(state) = self.vcses.get_mut(usize::from(vcs)) else { return };
        let Some(update) = state.cache_routes.start() else { return };
        let pairs: Vec<RtPair> = update.routes.iter().map(|route| route.pair).collect();
        // Without a link above, the host's edge cannot be told, and the commit fails.
        let sender = link_above(state).and_then(|(own, far)| {
            let mut sender = RtSender::new(own, far);
            sender.commit(now, &pairs).then_some(sender)
        });
        match sender {
            Some(sender) => state.cache_routes.sent = Some((sender, update)),
            None => self.end_commit(vcs, update.commit, false),
        }
    }

    /// When the next message or time limit is due.
    pub(super) fn cache_ids_due(&self) -> Option<Instant> {
        let sent = self.vcses.iter().filter_map(|state| state.cache_routes.sent.as_ref());
        sent.filter_map(|(sender, _)| sender.next_due()).min()
    }

    /// Accepts an answer to an update, identified by its virtual link; false if no update waits for it.
    pub(super) fn answered_cache_ids(&mut self, vdm: &Vdm) -> bool {
        // The answer comes from the far end, so source and destination are swapped.
        let ends = Some((vdm.pth.dpid, vdm.pth.spid));
        let mut all = (0..=u8::MAX).zip(&mut self.vcses);
        let found = all.find(|(_, state)| link_above(state) == ends);
        let Some((vcs, state)) = found else { return false };
        let sender = state.cache_routes.sent.as_mut().map(|(sender, _)| sender);
        let Some(answer) = sender.and_then(|sender| sender.receive(vdm)) else { return false };
        self.update_over(vcs, answer);
        true
    }

    fn update_over(&mut self, vcs: u8, answer: Answer) {
        let Some(state) = self.vcses.get_mut(usize::from(vcs)) else { return };
        let Some((_, update)) = state.cache_routes.sent.take() else { return };
        // A withdrawal counts even if it is refused: an edge that refuses it has no such link any more.
        if answer == Answer::Ack || update.commit.is_none() {
            state.cache_routes.in_force = update.routes;
        }
        self.end_commit(vcs, update.commit, answer == Answer::Ack);
        self.publish_cache_ids(vcs);
    }
}

#[cfg(test)]
mod tests;
