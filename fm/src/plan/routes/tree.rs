//! All shortest up*/down* ways to one switch.
//!
//! For a [`Net`], an [`Order`] and a destination a [`Tree`] has for each switch the hops, whether it goes down or up,
//! and its ports.
//!
//! Source: own construction, proved below; up*/down* after Schroeder et al., IEEE JSAC 9(8), 1991.
//!
//! # Why it cannot loop, lose packets or deadlock
//! Towards a destination each switch *goes down* or *goes up*. A switch that goes down uses links that lead down to
//! switches that go down as well. A switch that goes up uses links that lead up. A switch that goes down, but into
//! which no link leads down for this destination, may use links that lead up, too. So a packet goes up some links, then
//! down some: once it came down a link, every switch on its way goes down and does not use links that lead up. Ranks
//! fall on the way up and rise on the way down, so there is no loop. No packet goes up after it went down, so in the
//! channel order "up, by falling rank of their end; then down, by rising rank of their start" every wait goes forwards,
//! and there is no cycle of waits. It does not matter which of its ports a switch picks, or where a packet came from.
//!
//! Every switch gets a way. The switches of one shortest way down from the root are forced to go down. Every other
//! switch has a neighbour above it, and so, by induction over ranks, a way up to a switch that has a way.
//!
//! Distances are settled in rising order (breadth first from the destination). Among equals going down is preferred,
//! because it lets other switches come down.

use crate::model::graph::{Per, SwitchId};
use crate::plan::order::{Arc, Net, Order};

/// Hops of a switch that was not reached.
const FAR: u32 = u32::MAX;

/// The shortest up*/down* ways from all switches to one destination; reused from one destination to the next.
#[derive(Clone, Debug)]
pub struct Tree {
    hops: Per<SwitchId, u32>,
    /// Whether the switch goes down.
    down: Per<SwitchId, bool>,
    /// Whether a link leads down into it, for this destination.
    entered: Per<SwitchId, bool>,
    /// Whether it must go down, being on the chosen way down from the root.
    forced: Per<SwitchId, bool>,
    /// Hops by links that lead down only; for switches above the destination.
    down_hops: Per<SwitchId, u32>,
    settled: Vec<SwitchId>,
    above: Vec<SwitchId>,
}

impl Tree {
    /// Room for the ways of `count` switches.
    #[must_use]
    pub fn new(count: usize) -> Self {
        Self {
            hops: Per::new(count, FAR),
            down: Per::new(count, false),
            entered: Per::new(count, false),
            forced: Per::new(count, false),
            down_hops: Per::new(count, FAR),
            settled: Vec::with_capacity(count),
            above: Vec::with_capacity(count),
        }
    }

    /// Finds the shortest ways of all switches to `to`.
    pub fn grow(&mut self, net: &Net, order: &Order, to: SwitchId) {
        self.hops.fill(FAR);
        self.down.fill(false);
        self.entered.fill(false);
        self.forced.fill(false);
        self.settled.clear();
        self.force(net, order, to);
        self.settle(to, 0, true);
        let (mut from, mut hops) = (0, 0);
        while from < self.settled.len() {
            let level = from..self.settled.len();
            (from, hops) = (level.end, hops + 1);
            // Down before up within each level: going down is preferred among equals, see the head of the file.
            for at in level.clone() {
                let Some(&near) = self.settled.get(at) else { break };
                if !self.down[near] {
                    continue;
                }
                for arc in net.arcs(near) {
                    if self.hops[arc.far] == FAR && order.leads_up(near, arc.far) {
                        self.settle(arc.far, hops, true);
                    }
                }
            }
            for at in level {
                let Some(&near) = self.settled.get(at) else { break };
                for arc in net.arcs(near) {
                    // A forced switch must go down, and is settled on the level at which its way down ends.
                    let open = self.hops[arc.far] == FAR && !self.forced[arc.far];
                    if open && order.leads_up(arc.far, near) {
                        self.settle(arc.far, hops, false);
                    }
                }
            }
        }
        self.enter(net, order);
    }

    fn settle(&mut self, switch: SwitchId, hops: u32, down: bool) {
        self.hops[switch] = hops;
        self.down[switch] = down;
        self.settled.push(switch);
    }

    /// Marks a shortest way down from the root.
    fn force(&mut self, net: &Net, order: &Order, to: SwitchId) {
        self.down_hops.fill(FAR);
        self.down_hops[to] = 0;
        self.above.clear();
        self.above.push(to);
        let mut at = 0;
        // Breadth first upwards, so that each switch above `to` gets its fewest hops.
        while let Some(&below) = self.above.get(at) {
            at += 1;
            for arc in net.arcs(below) {
                if order.leads_up(below, arc.far) && self.down_hops[arc.far] == FAR {
                    self.down_hops[arc.far] = self.down_hops[below] + 1;
                    self.above.push(arc.far);
                }
            }
        }
        let mut switch = order.root(to);
        while switch != to {
            self.forced[switch] = true;
            let nearer = |arc: &&Arc| {
                !order.leads_up(switch, arc.far) && self.down_hops[arc.far] < self.down_hops[switch]
            };
            let Some(arc) = net.arcs(switch).iter().find(nearer) else { break };
            switch = arc.far;
        }
    }

    /// Marks the switches that a link leads down into.
    fn enter(&mut self, net: &Net, order: &Order) {
        for &from in &self.settled {
            if self.down[from] {
                for arc in net.arcs(from) {
                    if !order.leads_up(from, arc.far)
                        && self.is_nearer(from, arc.far)
                        && self.down[arc.far]
                    {
                        self.entered[arc.far] = true;
                    }
                }
            }
        }
    }

    fn is_nearer(&self, from: SwitchId, to: SwitchId) -> bool {
        self.hops[to] != FAR && self.hops[to] + 1 == self.hops[from]
    }

    /// Hops from `from`; `u32::MAX` if there is no way.
    #[inline]
    #[must_use]
    pub fn hops(&self, from: SwitchId) -> u32 {
        self.hops[from]
    }

    /// Switches that have a way, nearest first, beginning with the destination.
    #[must_use]
    pub fn settled(&self) -> &[SwitchId] {
        &self.settled
    }

    /// Whether a switch may use links that lead up.
    fn may_go_up(&self, from: SwitchId) -> bool {
        !self.down[from] || !self.entered[from]
    }

    /// Ports of `from` that lead nearer, in ascending order, with their arc numbers; none at the destination.
    pub fn primaries(
        &self,
        net: &Net,
        order: &Order,
        from: SwitchId,
    ) -> impl Iterator<Item = (usize, Arc)> {
        let (up, down) = (self.may_go_up(from), self.down[from]);
        (net.first_arc(from)..).zip(net.arcs(from).iter().copied()).filter(move |(_, arc)| {
            let open = if order.leads_up(from, arc.far) { up } else { down && self.down[arc.far] };
            open && self.is_nearer(from, arc.far)
        })
    }

    /// Ports of `from` that lead up to a switch just as far, in ascending order.
    ///
    /// A packet takes at most as many of them as it can fall ranks.
    pub fn detours(&self, net: &Net, order: &Order, from: SwitchId) -> impl Iterator<Item = Arc> {
        let open = self.may_go_up(from) && self.hops[from] != FAR && self.hops[from] > 0;
        net.arcs(from).iter().copied().filter(move |arc| {
            open && order.leads_up(from, arc.far) && self.hops[arc.far] == self.hops[from]
        })
    }
}
