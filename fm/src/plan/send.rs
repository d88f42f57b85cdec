//! Brings a plan into the switches, while traffic runs and through the fabric that changes.
//!
//! [`Plan`], tables that stand -> PIDs, ways of the FM itself, then the stages of [`Transit`] -> [`Sent`].
//!
//! Units: commands.
//! Source: docs/spec/cxl-fabric.md "Routes"; CXL 3.1 section 7.7.12.3.
//!
//! The FM's own messages go through the tables that change. So first the routes between the entry switch and every other
//! one are set, nearest first: those of a switch are set at all switches on the way to it, which are nearer and so done,
//! and at the switch itself by a crawl from its neighbour, which needs no route. There is one such message at a time, so
//! these routes cannot lock up while they change; they are of the new plan, so nothing of them changes again.

use std::collections::{BTreeMap, BTreeSet};

use weft_parsers::fabric::{DrtEntry, Pid};

use super::{Assignment, Plan, wires};
use crate::cci::{CallError, Fabric, Way};
use crate::graph::{PortRef, SwitchId};
use crate::inventory::{Inventory, OWN_PORT};
use crate::proof::Fault;
use crate::routes::transit::Steps;
use crate::routes::{Change, Known, Order, Tables, Transit};

/// Why the tables of a plan are not in all switches.
#[derive(Debug, thiserror::Error)]
pub enum SendError {
    /// The way from the tables that stand to the new ones cannot be planned; nothing was sent.
    #[error("no order of changes from the present tables to the new ones is free of deadlock")]
    Transit(#[from] Fault),
    /// A switch refused or did not answer. Others have what was sent before; sending again goes on from there.
    #[error("at {at}, after {done} changes of {of}")]
    Stopped {
        /// Which switch.
        at: SwitchId,
        /// Changes that were taken.
        done: usize,
        /// Changes that there were.
        of: usize,
        /// What happened.
        source: CallError,
    },
    /// What was read back is something else.
    #[error("{at} differs from what was sent in {differences} entries")]
    ReadBack {
        /// Which switch.
        at: SwitchId,
        /// Entries that differ.
        differences: usize,
    },
}

/// What was changed in the switches, and what they lost meanwhile.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Sent {
    /// PIDs that were assigned.
    pub pids: usize,
    /// Entries of tables.
    pub entries: usize,
    /// PIDs whose routes were taken away for a moment.
    pub withdrawn: Vec<Pid>,
    /// Switches that no route leads to; they keep what they have.
    pub cut_off: Vec<SwitchId>,
}

/// Sends PIDs and tables, and reads them back. `standing` is changed as the switches are.
///
/// `drain` waits until packets to withdrawn PIDs, or by ways of before, have left the fabric. Withdrawn PIDs are noted in
/// `fabric` too, so that they are told also when sending stops half-way.
///
/// # Errors
/// See [`SendError`]; whatever happened, it says so, and sending again with tables read anew ends it.
pub fn send(
    fabric: &mut Fabric,
    inventory: &Inventory,
    assignments: &[Assignment],
    plan: &Plan,
    standing: &mut Tables,
    drain: fn(),
) -> Result<Sent, SendError> {
    let mut work = Work { fabric, inventory, plan, standing, sent: Sent::default(), of: 0 };
    work.know_themselves();
    work.connect()?;
    work.assign(assignments)?;
    let orders: Vec<&Order> = plan.before.iter().collect();
    let (options, apart) = (&plan.home.options, &plan.management);
    let known = Known { options, apart, orders: &orders };
    let transit = Transit::plan(&plan.graph, work.standing, &plan.routed, &known)?;
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
    work.stage(&withdraw)?;
    let mut under_way = !withdraw.is_empty();
    for Steps { park, come, rounds } in &transit.legs {
        work.stage(park)?;
        work.stage(come)?;
        for round in rounds {
            if std::mem::replace(&mut under_way, true) {
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
    fabric: &'a mut Fabric,
    inventory: &'a Inventory,
    plan: &'a Plan,
    standing: &'a mut Tables,
    sent: Sent,
    of: usize,
}

impl Work<'_> {
    /// Switches know their own PIDs; tables that were read do not tell.
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
        self.inventory.switch(at).map_or(Way::Entry, crate::inventory::Switch::way)
    }

    /// Ports from the entry switch to another one by the new tables; none when they do not lead there.
    fn path(&self, to: Pid) -> Option<Vec<PortRef>> {
        let mut path = Vec::new();
        let mut at = SwitchId(0);
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

    /// Routes of the FM's own messages, nearest switch first.
    fn connect(&mut self) -> Result<(), SendError> {
        let mut switches = Vec::new();
        for (id, switch) in self.inventory.by_id().skip(1) {
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
            let behind = self.way(last.switch).behind(last.port);
            let changes: Vec<Change> = home.iter().filter_map(|&to| self.lacks(id, to)).collect();
            self.write(id, behind.unwrap_or(Way::Pid(pid)), &changes)?;
            for hop in path.iter().rev() {
                let changes: Vec<Change> = self.lacks(hop.switch, pid).into_iter().collect();
                self.write(hop.switch, self.way(hop.switch), &changes)?;
            }
        }
        Ok(())
    }

    /// The change that a switch needs for one PID.
    fn lacks(&self, at: SwitchId, to: Pid) -> Option<Change> {
        let entry = self.plan.routed.tables.get(at)?.drt(to);
        let now = self.standing.get(at)?.drt(to);
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
        by_switch.retain(|at, _| !self.sent.cut_off.contains(at));
        self.of = by_switch.values().map(Vec::len).sum();
        for (at, list) in by_switch {
            wires::assign(self.fabric, self.way(at), &list).map_err(self.stopped(at))?;
            self.sent.pids += list.len();
        }
        Ok(())
    }

    /// Changes in any order; all are answered before the next stage.
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

    /// All switches hold what was planned for them.
    fn read_back(&mut self) -> Result<(), SendError> {
        for (at, switch) in self.inventory.by_id() {
            if self.sent.cut_off.contains(&at) {
                continue;
            }
            let stopped = self.stopped(at);
            let now =
                wires::read_switch(self.fabric, switch.way(), switch.rgts).map_err(stopped)?;
            let Some(wanted) = self.plan.routed.tables.get(at) else { continue };
            let own = DrtEntry::Port(OWN_PORT);
            let routes = (0..)
                .map_while(Pid::assignable)
                .filter(|&to| wanted.drt(to) != own && wanted.drt(to) != now.drt(to))
                .count();
            let groups = wanted.groups().filter(|(index, group)| now.rgt(*index) != Some(group));
            let differences = routes + groups.count();
            if differences > 0 {
                return Err(SendError::ReadBack { at, differences });
            }
        }
        Ok(())
    }
}
