//! The route table in force of a virtual switch, and what a vUSP tells the host's edge of it.
//!
//! [`Update`]s of [`Route`]s, one under way and one behind it.
//!
//! Units: PIDs of 12 bits, `CacheID`s of 4.
//! Source: CXL 3.1 section 7.7.12.5; docs/spec/cxl-fabric.md.

use weft_cxl::vdm::rtupdate::RtSender;
use weft_parsers::tlp::vdm::RtPair;

/// A `CacheID`, and the port that it is behind.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Route {
    /// The vPPB that the port is bound to.
    pub vppb: u8,
    /// PID of the port, and the `CacheID`.
    pub pair: RtPair,
}

/// What the host's edge is to be told.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Update {
    /// All that there are.
    pub routes: Vec<Route>,
    /// The host's commit that it is for; `None` where the switch itself takes routes back.
    pub commit: Option<u64>,
}

/// The route table in force of a virtual switch, and what a vUSP tells the host's edge of it. At a host's own edge there is nobody
/// to tell.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct CacheRoutes {
    /// What was committed last; below a virtual link, what the host's edge has been told.
    pub in_force: Vec<Route>,
    /// It is to be told anew: not all of that is so any more, or it has forgotten.
    pub is_stale: bool,
    /// What is under way to it.
    pub sent: Option<(RtSender, Update)>,
    /// What is sent next.
    pub next: Option<Update>,
}

impl CacheRoutes {
    /// All is as after power-on; the host's edge forgets by itself.
    pub fn reset(&mut self) {
        *self = Self::default();
    }

    /// Only routes that `holds` of are so any more; the commit that has come to nothing by that.
    pub fn keep(&mut self, holds: impl Fn(&Route) -> bool) -> Option<u64> {
        let sent = self.sent.as_mut().map(|(_, update)| &mut update.routes);
        for routes in [Some(&mut self.in_force), sent].into_iter().flatten() {
            let had = routes.len();
            routes.retain(&holds);
            self.is_stale |= routes.len() < had;
        }
        let breaks = |update: &mut Update| !update.routes.iter().all(&holds);
        self.next.take_if(breaks).and_then(|update| update.commit)
    }

    /// What is to be sent now, if nothing is under way.
    pub fn start(&mut self) -> Option<Update> {
        if self.sent.is_some() {
            return None;
        }
        let stale = core::mem::replace(&mut self.is_stale, false);
        let rest = stale.then(|| Update { routes: self.in_force.clone(), commit: None });
        self.next.take().or(rest)
    }
}
