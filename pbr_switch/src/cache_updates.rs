//! The committed `CacheID` routes of a virtual switch, and the updates that a vUSP sends to the host's edge.
//!
//! At most one [`Update`] is in flight and one waits behind it.
//!
//! Source: CXL 3.1 section 7.7.12.5; docs/spec/cxl-fabric.md "CacheID".

use weft_cxl::vdm::rtupdate::RtSender;
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

/// The committed `CacheID` routes of a virtual switch. A vUSP also sends them to the host's edge; at the host's own
/// edge `sent` and `next` stay empty.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct CacheRoutes {
    /// Routes of the last commit; below a virtual link, those that the host's edge has acknowledged.
    pub in_force: Vec<Route>,
    /// The host's edge must get `in_force` again: routes were withdrawn, or it has lost the table.
    pub is_stale: bool,
    /// The update in flight.
    pub sent: Option<(RtSender, Update)>,
    /// The update to send after it.
    pub next: Option<Update>,
}

impl CacheRoutes {
    /// Resets to power-on state without an update: the host's edge clears its own copy.
    pub fn reset(&mut self) {
        *self = Self::default();
    }

    /// Drops the routes for which `holds` is false. Returns the commit that fails because its waiting update contained
    /// one of them.
    pub fn keep(&mut self, holds: impl Fn(&Route) -> bool) -> Option<u64> {
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

    /// Takes the next update to send; `None` while one is in flight.
    pub fn start(&mut self) -> Option<Update> {
        if self.sent.is_some() {
            return None;
        }
        // A commit brings the whole table, so it also repairs a stale one.
        let stale = core::mem::replace(&mut self.is_stale, false);
        let rest = stale.then(|| Update { routes: self.in_force.clone(), commit: None });
        self.next.take().or(rest)
    }
}
