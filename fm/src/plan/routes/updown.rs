//! Routes against an order: whether any goes up after down, and in which stages entries change so that none does.
//!
//! [`UpDown`] has the directions of links by an [`Order`]; [`Stages`] finds the stage of each switch whose entry
//! changes.
//!
//! Source: own construction, proved below; up*/down* after Schroeder et al., IEEE JSAC 9(8), 1991.
//!
//! # Why no packet goes up after it went down
//! Neither old nor new routes do that by themselves. A packet could only do it by coming down on an old entry to a
//! switch whose new entry leads up. Such a switch changes a stage after all switches above it that sent packets down to
//! it, and between two stages packets on old routes leave the fabric.
//!
//! Within a stage a switch gets its new entry when all switches that this entry leads to have theirs, in this stage or
//! before. So a packet follows old entries until it reaches a switch with a new one, and new entries from there on.
//!
//! If packets never go up after they went down, by one and the same order, every wait goes forwards in the channel
//! order ([`super::tree`]). So any number of PIDs may change together.

use std::collections::BTreeSet;

use weft_parsers::fabric::Pid;

use crate::model::graph::{Graph, Per, PortMask, PortRef, SwitchId};
use crate::plan::order::Order;
use crate::plan::proof::Fault;
use crate::plan::tables::{Tables, pid_at};

/// Stages of one PID, at most; more were never needed in tests of random fabrics.
const STAGES_MAX: usize = 16;

#[derive(Clone, Debug, Default)]
struct Links {
    up: PortMask,
    down: PortMask,
    /// Far ends, by port.
    far: Vec<Option<PortRef>>,
}

/// For each switch, which of its working links lead up.
#[derive(Clone, Debug)]
pub(super) struct UpDown(Per<SwitchId, Links>);

pub(super) fn ports(tables: &Tables, at: SwitchId, to: Pid) -> PortMask {
    tables.get(at).and_then(|tables| tables.ports(to)).unwrap_or_default()
}

impl UpDown {
    pub fn new(graph: &Graph, order: &Order) -> Self {
        let of = |at: SwitchId| {
            let mut links = Links::default();
            for (port, _) in graph.ports(at) {
                let Some(far) = graph.far(PortRef::new(at, port)) else { continue };
                let leads_up = order.leads_up(at, far.switch);
                if leads_up { &mut links.up } else { &mut links.down }.insert(port);
                links.far.resize(usize::from(port) + 1, None);
                if let Some(place) = links.far.last_mut() {
                    *place = Some(far);
                }
            }
            links
        };
        Self(graph.switches().map(of).collect())
    }

    fn far(&self, at: SwitchId, port: u8) -> Option<PortRef> {
        self.0[at].far.get(usize::from(port)).copied().flatten()
    }

    /// PIDs to which packets go up after they went down, without those of `but`.
    ///
    /// Goes switch by switch, as the tables of one switch and its neighbours fit into a cache.
    pub fn illegal(&self, tables: &Tables, but: &BTreeSet<Pid>) -> BTreeSet<Pid> {
        let mut found = BTreeSet::new();
        for (at, links) in self.0.iter() {
            let Some(here) = tables.get(at) else { continue };
            for to in (0..Pid::COUNT).map(pid_at) {
                let down = here.ports(to).unwrap_or_default().and(links.down);
                let mut below = down.iter().filter_map(|port| self.far(at, port));
                if below.any(|far| ports(tables, far.switch, to).meets(self.0[far.switch].up)) {
                    found.insert(to);
                }
            }
        }
        found.retain(|to| !but.contains(to));
        found
    }

    /// Switches above `at` that send packets to `to` down to it.
    fn above(&self, tables: &Tables, at: SwitchId, to: Pid) -> impl Iterator<Item = SwitchId> {
        let above = self.0[at].up.iter().filter_map(move |port| self.far(at, port));
        above
            .filter(move |far| ports(tables, far.switch, to).contains(far.port))
            .map(|far| far.switch)
    }
}

/// Assigns switches that change to stages, one PID after the other.
#[derive(Debug)]
pub(super) struct Stages<'a> {
    by: &'a UpDown,
    old: &'a Tables,
    new: &'a Tables,
    /// PIDs whose packets may take any way.
    apart: &'a BTreeSet<Pid>,
    /// For each switch: the PID that the entry is for, the most hops left, and the stage.
    places: Per<SwitchId, (Pid, u32, usize)>,
    stack: Vec<(SwitchId, PortMask)>,
    /// The changing switches, and those that new entries lead to from them; nearest to the PID first.
    found: Vec<SwitchId>,
}

/// Hops of a switch that is still being visited.
const OPEN: u32 = u32::MAX;

impl<'a> Stages<'a> {
    /// For changes from `old` to `new`, which both never go up after down by `by`, except to PIDs of `apart`.
    pub fn new(by: &'a UpDown, old: &'a Tables, new: &'a Tables, apart: &'a BTreeSet<Pid>) -> Self {
        let places = Per::new(by.0.len(), (Pid::NONE, 0, 0));
        Self { by, old, new, apart, places, stack: Vec::new(), found: Vec::new() }
    }

    /// Stage and layer of each of `changed`, the switches whose entry to `to` changes; `None` if there are no such
    /// stages.
    ///
    /// # Errors
    /// The new entries lead packets in a loop.
    pub fn of(
        &mut self,
        to: Pid,
        changed: &[SwitchId],
    ) -> Result<Option<Vec<(usize, usize)>>, Fault> {
        self.found.clear();
        for &at in changed {
            self.walk(at, to)?;
        }
        let rises = |at: &SwitchId| ports(self.new, *at, to).meets(self.by.0[*at].up);
        let rising = changed.iter().copied().filter(|_| !self.apart.contains(&to)).filter(rises);
        let turned: Vec<(SwitchId, SwitchId)> = rising
            .flat_map(|at| self.by.above(self.old, at, to).map(move |above| (at, above)))
            .collect();
        // A switch above one that turns must change itself: by its old entry packets would go up after down.
        if turned.iter().any(|(_, above)| self.places[*above].0 != to) || !self.settle(to, &turned)
        {
            return Ok(None);
        }
        let place = |at: &SwitchId| {
            let (_, hops, stage) = self.places[*at];
            (stage, hops as usize)
        };
        Ok(Some(changed.iter().map(place).collect()))
    }

    /// Finds the hops from `start`, and all switches on the way.
    fn walk(&mut self, start: SwitchId, to: Pid) -> Result<(), Fault> {
        if self.places[start].0 == to {
            return Ok(());
        }
        self.enter(start, to);
        while let Some((at, rest)) = self.stack.last_mut() {
            let at = *at;
            let Some(port) = rest.first() else {
                let next = ports(self.new, at, to).iter().filter_map(|port| self.by.far(at, port));
                let hops = next.map(|far| self.places[far.switch].1 + 1).max().unwrap_or(0);
                self.places[at].1 = hops;
                self.found.push(at);
                self.stack.pop();
                continue;
            };
            rest.remove(port);
            if let Some(far) = self.by.far(at, port).map(|far| far.switch) {
                match self.places[far] {
                    // Still open, so it was reached from itself.
                    (pid, OPEN, _) if pid == to => return Err(Fault::Loop { to, at: far }),
                    (pid, ..) if pid == to => {}
                    _ => self.enter(far, to),
                }
            }
        }
        Ok(())
    }

    fn enter(&mut self, at: SwitchId, to: Pid) {
        self.places[at] = (to, OPEN, 0);
        self.stack.push((at, ports(self.new, at, to)));
    }

    /// Raises stages until all constraints hold; false if that does not end.
    fn settle(&mut self, to: Pid, turned: &[(SwitchId, SwitchId)]) -> bool {
        let Self { by, new, places, found, .. } = self;
        let mut is_settled = turned.is_empty();
        while !is_settled {
            is_settled = true;
            let mut raise = |places: &mut Per<SwitchId, (Pid, u32, usize)>, at, stage| {
                let place: &mut (Pid, u32, usize) = &mut places[at];
                is_settled &= place.2 >= stage;
                place.2 = place.2.max(stage);
            };
            for &(at, above) in turned {
                // A stage later than the switch above: its packets must have left before this one turns up.
                let stage = places[above].2 + 1;
                raise(places, at, stage);
            }
            for &at in found.iter() {
                let next = ports(new, at, to).iter().filter_map(|port| by.far(at, port));
                let stage = next.map(|far| places[far.switch].2).max().unwrap_or(0);
                // Never before a switch that its new entry leads to.
                raise(places, at, stage);
            }
            if found.iter().any(|at| places[*at].2 >= STAGES_MAX) {
                // Two switches that must each come after the other raise their stages for ever.
                return false;
            }
        }
        true
    }
}
