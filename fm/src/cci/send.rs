//! Sends a plan to the switches while traffic runs, through the very fabric that changes.
//!
//! First come PIDs and the manager's own routes, then the stages of a [`Transit`]; the tables are read back at the end.
//!
//! The manager's own messages use the tables that change. So the routes between the entry switch and every other switch
//! are set first, nearest switch first: each is set at all switches on the way, which are nearer and therefore done,
//! and at the switch itself by a crawl from its neighbour, which needs no route. There is one such message at a time,
//! so these routes cannot deadlock while they change; they are those of the new plan, so they do not change again.
//!
//! Source: docs/spec/cxl-fabric.md "Routes"; CXL 3.1 section 7.7.12.3.

use std::collections::{BTreeMap, BTreeSet};

use weft_parsers::fabric::{DrtEntry, Pid};

use super::wires;
use crate::cci::{CallError, CciSession, Way};
use crate::model::graph::{PortRef, SwitchId};
use crate::model::inventory::{Inventory, OWN_PORT};
use crate::plan::order::Order;
use crate::plan::proof::Fault;
use crate::plan::routes::transit::Steps;
use crate::plan::routes::{Known, Transit};
use crate::plan::tables::{Change, Tables};
use crate::plan::{Assignment, Plan};

/// Why the switches do not have all tables of a plan.
#[derive(Debug, thiserror::Error)]
pub enum SendError {
    /// No sequence of changes from the present tables to the new ones is known to be safe; nothing was sent.
    #[error("no order of changes from the present tables to the new ones is free of deadlock")]
    Transit(#[from] Fault),
    /// A switch refused or did not answer. Changes before it are in force; sending again continues from there.
    #[error("at {at}, after {done} changes of {of}")]
    Stopped {
        at: SwitchId,
        /// Changes made before the failure.
        done: usize,
        /// Changes planned in all.
        of: usize,
        source: CallError,
    },
    /// A switch holds other entries than were sent.
    #[error("{at} differs from what was sent in {differences} entries")]
    ReadBack {
        at: SwitchId,
        /// Number of entries that differ.
        differences: usize,
    },
}

/// Statistics of a sending: changes made, and routes lost meanwhile.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Sent {
    /// Number of PIDs assigned.
    pub pids: usize,
    /// Number of table entries changed.
    pub entries: usize,
    /// PIDs whose routes were missing for a moment.
    pub withdrawn: Vec<Pid>,
    /// Switches that no route leads to; they keep their tables.
    pub cut_off: Vec<SwitchId>,
}

/// Sends PIDs and tables, and reads them back. `standing` follows the switches.
///
/// `drain` waits until packets to withdrawn PIDs, or on old routes, have left the fabric. Withdrawn PIDs are also
/// recorded in `fabric`, so that they are reported even if the sending stops half-way.
///
/// # Errors
/// See [`SendError`]. After any of them the tables can be read anew and sent again.
pub fn send(
    fabric: &mut CciSession,
    inventory: &Inventory,
    assignments: &[Assignment],
    plan: &Plan,
    standing: &mut Tables,
    drain: fn(),
) -> Result<Sent, SendError> {
    let mut work = Work { fabric, inventory, plan, standing, sent: Sent::default(), of: 0 };
    work.know_themselves();
    work.connect()?;
    // Assigned over the new management routes, before any entry leads traffic to these PIDs.
    work.assign(assignments)?;
    let orders: Vec<&Order> = plan.before.iter().collect();
    let (options, apart) = (&plan.home.options, &plan.management);
    let known = Known { options, apart, orders: &orders };
    let transit = Transit::plan(&plan.graph, work.standing, &plan.routed, &known)?;
    // Routes to switches and the manager were set by `connect`; withdrawing them would cut off the sender.
    let is_managed = |change: &Change| match change {
        Change::Route { to, .. } => plan.management.contains(to),
        Change::Group { .. } => false,
    };
    let withdraw: Vec<Change> =
        transit.withdraw.iter().filter(|change| !is_managed(change)).copied().collect();
    let of = |leg: &Steps| {
        leg.park.len() + leg.come.len() + leg.rounds.iter().flatten().map(Vec::len).sum::<usize>()
    };
    work.of += withdraw.len() + transit.legs.iter().map(of).sum::<usize>();
    let lose = withdraw.iter().filter_map(|change| match change {
        Change::Route { to, .. } => Some(*to),
        Change::Group { .. } => None,
    });
    work.sent.withdrawn = lose.collect::<BTreeSet<Pid>>().into_iter().collect();
    work.fabric.withdrew(&work.sent.withdrawn);
    // Reported before the first withdrawal: `stage` may fail after some of it.
    work.stage(&withdraw)?;
    let mut under_way = !withdraw.is_empty();
    for Steps { park, come, rounds } in &transit.legs {
        work.stage(park)?;
        work.stage(come)?;
        for round in rounds {
            if std::mem::replace(&mut under_way, true) {
                // After a withdrawal or an earlier round; before the first change only old routes are in force.
                drain();
            }
            for layer in round {
                work.stage(layer)?;
            }
        }
    }
    work.read_back()?;
    Ok(work.sent)
}

struct Work<'a> {
    fabric: &'a mut CciSession,
    inventory: &'a Inventory,
    plan: &'a Plan,
    standing: &'a mut Tables,
    sent: Sent,
    of: usize,
}

impl Work<'_> {
    /// Enters routes of switches to themselves: switches know them, but tables read from them do not show them.
    fn know_themselves(&mut self) {
        for at in self.plan.graph.switches() {
            for to in (0..).map_while(Pid::assignable) {
                let own = DrtEntry::Port(OWN_PORT);
                if self.plan.routed.tables.get(at).is_some_and(|tables| tables.drt(to) == own) {
                    self.standing.get_mut(at).set_drt(to, own);
                }
            }
        }
    }

    fn stopped(&self, at: SwitchId) -> impl FnOnce(CallError) -> SendError + use<> {
        let (done, of) = (self.sent.entries + self.sent.pids, self.of);
        move |source| SendError::Stopped { at, done, of, source }
    }

    fn way(&self, at: SwitchId) -> Way {
        self.inventory.switch(at).map_or(Way::Entry, crate::model::inventory::DiscoveredSwitch::way)
    }

    /// Ports from the entry switch to a PID by the new tables; `None` when they do not lead there.
    fn path(&self, to: Pid) -> Option<Vec<PortRef>> {
        let mut path = Vec::new();
        let mut at = SwitchId(0);
        // Bounded, so that tables with a loop end as "no path".
        for _ in 0..=self.plan.graph.switch_count() {
            let port = self.plan.routed.tables.get(at)?.static_port(to)?;
            if port == OWN_PORT {
                return Some(path);
            }
            path.push(PortRef::new(at, port));
            at = self.plan.graph.far(PortRef::new(at, port))?.switch;
        }
        None
    }

    /// Sets the routes of the manager's own messages, nearest switch first.
    fn connect(&mut self) -> Result<(), SendError> {
        let mut switches = Vec::new();
        for (id, switch) in self.inventory.by_id().skip(1) {
            // A silent switch is skipped: a command to it would stop the sending for all others.
            match self.path(switch.pid) {
                Some(path) if switch.whole => switches.push((path.len(), id, switch.pid, path)),
                _ => self.sent.cut_off.push(id),
            }
        }
        switches.sort_by_key(|(hops, id, ..)| (*hops, *id));
        let entry = self.inventory.switches.first().map(|switch| switch.pid);
        let home: Vec<Pid> = entry.into_iter().chain([self.inventory.manager.pid]).collect();
        for (_, id, pid, path) in switches {
            let Some(last) = path.last() else { continue };
            // By port, as the switch may have no route back yet; the crawl is answered over the same tunnel.
            let behind = self.way(last.switch).behind(last.port);
            let changes: Vec<Change> = home.iter().filter_map(|&to| self.lacks(id, to)).collect();
            self.write(id, behind.unwrap_or(Way::Pid(pid)), &changes)?;
            // From the far end back, so that no switch sends to one without an entry.
            for hop in path.iter().rev() {
                let changes: Vec<Change> = self.lacks(hop.switch, pid).into_iter().collect();
                self.write(hop.switch, self.way(hop.switch), &changes)?;
            }
        }
        Ok(())
    }

    /// The change that a switch needs for one PID, if it needs one.
    fn lacks(&self, at: SwitchId, to: Pid) -> Option<Change> {
        let entry = self.plan.routed.tables.get(at)?.drt(to);
        let now = self.standing.get(at)?.drt(to);
        // An invalid entry in the plan is left for the stages: taking a route away is never needed to connect.
        (entry != now && entry != DrtEntry::Invalid).then_some(Change::Route { at, to, entry })
    }

    fn write(&mut self, at: SwitchId, way: Way, changes: &[Change]) -> Result<(), SendError> {
        if changes.is_empty() {
            return Ok(());
        }
        wires::write(self.fabric, way, changes).map_err(self.stopped(at))?;
        self.sent.entries += changes.len();
        for &change in changes {
            self.standing.apply(change);
        }
        Ok(())
    }

    fn assign(&mut self, assignments: &[Assignment]) -> Result<(), SendError> {
        let mut by_switch: BTreeMap<SwitchId, Vec<Assignment>> = BTreeMap::new();
        for &assignment in assignments {
            by_switch.entry(assignment.at).or_default().push(assignment);
        }
        // A switch that cannot be reached gets its PIDs when it is back.
        by_switch.retain(|at, _| !self.sent.cut_off.contains(at));
        self.of = by_switch.values().map(Vec::len).sum();
        for (at, list) in by_switch {
            wires::assign(self.fabric, self.way(at), &list).map_err(self.stopped(at))?;
            self.sent.pids += list.len();
        }
        Ok(())
    }

    /// Makes changes in any order; all are answered before this returns.
    fn stage(&mut self, changes: &[Change]) -> Result<(), SendError> {
        let mut by_switch: BTreeMap<SwitchId, Vec<Change>> = BTreeMap::new();
        for &change in changes {
            let (Change::Route { at, .. } | Change::Group { at, .. }) = change;
            by_switch.entry(at).or_default().push(change);
        }
        by_switch.retain(|at, _| !self.sent.cut_off.contains(at));
        for (at, list) in by_switch {
            self.write(at, self.way(at), &list)?;
        }
        Ok(())
    }

    /// Checks that all switches hold the tables planned for them.
    fn read_back(&mut self) -> Result<(), SendError> {
        for (at, switch) in self.inventory.by_id() {
            if self.sent.cut_off.contains(&at) {
                continue;
            }
            let stopped = self.stopped(at);
            let now =
                wires::read_switch(self.fabric, switch.way(), switch.rgts).map_err(stopped)?;
            let Some(wanted) = self.plan.routed.tables.get(at) else { continue };
            // Entries of a switch to itself are not in its DRT; see `know_themselves`.
            let own = DrtEntry::Port(OWN_PORT);
            let routes = (0..)
                .map_while(Pid::assignable)
                .filter(|&to| wanted.drt(to) != own && wanted.drt(to) != now.drt(to))
                .count();
            // Only groups of the plan: others may remain in the switch unused.
            let groups = wanted.groups().filter(|(index, group)| now.rgt(*index) != Some(group));
            let differences = routes + groups.count();
            if differences > 0 {
                return Err(SendError::ReadBack { at, differences });
            }
        }
        Ok(())
    }
}
