//! The `CacheID`s of a virtual switch: its own committed routes, the updates that a vUSP sends to the host's edge, and
//! at a host's edge the ports behind virtual links that downstream edges reported.
//!
//! An `RTUpdate` from an edge that a vPPB is bound to is accepted whole or refused, and forgotten when the link goes.
//! At most one [`Update`] is in flight and one waits behind it.
//!
//! Source: CXL 3.1 section 7.7.12.5; docs/spec/wire-formats.md §3.8; docs/spec/cxl-fabric.md "CacheID".

use weft_cxl::pci::component::CacheIdDecoder;
use weft_cxl::vdm::Vdm;
use weft_cxl::vdm::rtupdate::{self, Answer, RtSender};
use weft_dataplane::pbr;
use weft_dataplane::time::Instant;
use weft_parsers::fabric::Pid;
use weft_parsers::tlp::vdm::RtPair;

/// A `CacheID`, and the port it is behind.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Route {
    /// The vPPB bound to that port.
    pub vppb: u8,
    /// PID of the port, and the `CacheID`.
    pub pair: RtPair,
}

/// A route table on its way to the host's edge.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Update {
    /// The whole table: an update replaces the previous one.
    pub routes: Vec<Route>,
    /// The host's commit that it answers; `None` if the switch itself withdraws routes.
    pub commit: Option<u64>,
}

/// The `CacheID`s of a virtual switch. A vUSP also sends its own to the host's edge; at the host's own edge `sent` and
/// `next` stay empty.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct CacheIds {
    /// Ports behind virtual links, as their downstream edges reported them.
    reported: rtupdate::CacheIds,
    /// Routes of the last commit; below a virtual link, those that the host's edge has acknowledged.
    in_force: Vec<Route>,
    /// The host's edge must get `in_force` again: routes were withdrawn, or it has lost the table.
    is_stale: bool,
    /// The update in flight.
    sent: Option<(RtSender, Update)>,
    /// The update to send after it.
    next: Option<Update>,
}

impl CacheIds {
    /// `CacheID`s behind virtual links: `CacheID`, port, and the downstream edge that reported them.
    pub fn iter(&self) -> impl Iterator<Item = (u8, Pid, Pid)> {
        self.reported.iter()
    }

    /// Own routes in force.
    pub(crate) fn in_force(&self) -> &[Route] {
        &self.in_force
    }

    /// The update in flight.
    #[cfg(test)]
    pub(crate) fn sent(&self) -> Option<&Update> {
        self.sent.as_ref().map(|(_, update)| update)
    }

    /// The `CacheID`s that the device below a downstream vPPB may use.
    pub(crate) fn decoding(&self, vppb: u8, decoder: &CacheIdDecoder) -> pbr::CacheDecoding {
        let decoding = decoder.in_force();
        // Assign alone gives the device one CacheID; Forward lets it use those of the table that lead to this vPPB.
        let here = self.in_force.iter().filter(|it| decoding.forwards && it.vppb == vppb);
        pbr::CacheDecoding::new(decoding.assigns, here.map(|route| route.pair.cache_id))
    }

    /// Accepts an `RTUpdate` of a downstream edge, or none of it. `is_bound`: a vPPB is bound to that edge by the PIDs
    /// of the message. Returns the answer for the edge.
    pub(crate) fn receive(&mut self, vdm: &Vdm, is_bound: bool) -> Option<Vdm> {
        let is_own = |id: u8| self.in_force.iter().any(|route| route.pair.cache_id == id);
        // A CacheID of this edge's own table cannot also be behind a virtual link: the whole update is refused.
        let is_free = !RtPair::all(&vdm.payload).any(|pair| is_own(pair.cache_id));
        self.reported.receive(vdm, is_bound && is_free)
    }

    /// Drops the routes that the edge below a virtual link reported.
    pub(crate) fn forget(&mut self, edge: Pid) {
        self.reported.forget(edge);
    }

    /// Resets to power-on state without an update: the host's edge clears its own copy.
    pub(crate) fn reset(&mut self) {
        *self = Self::default();
    }

    /// Puts the routes of a commit in force, at a host's own edge: no switch is above to be asked. False if one of the
    /// `CacheID`s is behind a virtual link already.
    pub(crate) fn commit_here(&mut self, routes: Vec<Route>) -> bool {
        let is_reported = |route: &Route| self.reported.port(route.pair.cache_id).is_some();
        if routes.iter().any(is_reported) {
            return false;
        }
        self.in_force = routes;
        true
    }

    /// Queues the routes of a commit for the host's edge. The old ones stay in force until it acknowledges.
    pub(crate) fn commit_above(&mut self, routes: Vec<Route>, commit: u64) {
        self.next = Some(Update { routes, commit: Some(commit) });
    }

    /// Drops the routes for which `holds` is false. Returns the commit that fails because its waiting update contained
    /// one of them.
    pub(crate) fn keep(&mut self, holds: impl Fn(&Route) -> bool) -> Option<u64> {
        // The one in flight as well: its acknowledgement would put a dropped route in force again.
        let sent = self.sent.as_mut().map(|(_, update)| &mut update.routes);
        for routes in [Some(&mut self.in_force), sent].into_iter().flatten() {
            let had = routes.len();
            routes.retain(&holds);
            self.is_stale |= routes.len() < had;
        }
        // A waiting commit is refused whole: a part of a table is not what its host asked for.
        let breaks = |update: &mut Update| !update.routes.iter().all(&holds);
        self.next.take_if(breaks).and_then(|update| update.commit)
    }

    /// Repeats the table to a host's edge that lost the virtual link, and its copy with it, while this end did not.
    pub(crate) fn repeat(&mut self) {
        self.is_stale |= !self.in_force.is_empty();
    }

    /// Takes the next update to send; `None` while one is in flight.
    pub(crate) fn start(&mut self) -> Option<Update> {
        if self.sent.is_some() {
            return None;
        }
        // A commit brings the whole table, so it also repairs a stale one.
        let stale = core::mem::replace(&mut self.is_stale, false);
        let rest = stale.then(|| Update { routes: self.in_force.clone(), commit: None });
        self.next.take().or(rest)
    }

    /// Sends an update of [`Self::start`] from `own` to the host's edge `far`; false if it cannot be sent.
    pub(crate) fn send(&mut self, now: Instant, own: Pid, far: Pid, update: Update) -> bool {
        let pairs: Vec<RtPair> = update.routes.iter().map(|route| route.pair).collect();
        let mut sender = RtSender::new(own, far);
        let is_sent = sender.commit(now, &pairs);
        if is_sent {
            self.sent = Some((sender, update));
        }
        is_sent
    }

    /// Takes the next message of the update in flight that is due, or the answer that ends it: no reply in time.
    pub(crate) fn poll(&mut self, now: Instant) -> Option<Result<Vdm, Answer>> {
        self.sent.as_mut()?.0.poll(now)
    }

    /// Time of the next message or time limit.
    pub(crate) fn next_due(&self) -> Option<Instant> {
        self.sent.as_ref()?.0.next_due()
    }

    /// Reads the answer to the update in flight; `None` if the message is none.
    pub(crate) fn answer_of(&mut self, vdm: &Vdm) -> Option<Answer> {
        self.sent.as_mut()?.0.receive(vdm)
    }

    /// Ends the update in flight.
    pub(crate) fn end_update(&mut self, answer: Answer) -> Option<Update> {
        let (_, update) = self.sent.take()?;
        // A withdrawal counts even if it is refused: an edge that refuses it has no such link any more.
        if answer == Answer::Ack || update.commit.is_none() {
            self.in_force.clone_from(&update.routes);
        }
        Some(update)
    }
}
