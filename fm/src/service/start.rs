//! Start-up, and rediscovery of a running fabric.
//!
//! The stored and the wanted state and the fabric itself go through discovery, PIDs, routes, reconciliation and the
//! wanted state.
//!
//! The manager cannot hold hosts, as no command resets one. `status` says whether they must wait, for whoever starts
//! them. In mode `simultaneous` they need not wait once they have routes; each later binding is a hot-add for them.
//!
//! Source: docs/spec/cxl-fabric.md "Start-up"; CXL 3.1 section 7.7.12.1.

use std::collections::BTreeSet;
use std::sync::Arc;

use weft_parsers::cci::Uuid;
use weft_parsers::fabric::Pid;

use super::listen::subscribe;
use super::memory::MemoryRequests;
use super::reconcile::{self, Reconciled, reconcile};
use super::restore::{ForeignOwners, Restoration, wanted_parts};
use super::status::{Phase, StartMode};
use super::unfinished::Settlement;
use super::{Fm, with_causes};
use crate::cci::send::{SendError, Sent, send};
use crate::cci::wires::read_all;
use crate::cci::{CallError, Way};
use crate::components::grants::Grants;
use crate::discover::change::Running;
use crate::discover::{self, Discovered, Finding, discover, identify};
use crate::model::graph::{Key, PortRef, SwitchId};
use crate::model::inventory::{DiscoveredSwitch, Inventory};
use crate::model::text::name_of;
use crate::plan::{self, Assignment, Baseline, PlanError, PreviousRoutes};
use crate::state::desired::DesiredState;
use crate::state::names::{Binding, hosts};
use crate::state::store::{State, StoreError};

/// Why a fabric does not come up.
#[derive(Debug, thiserror::Error)]
pub enum StartError {
    /// The entry switch cannot be claimed.
    #[error("the entry switch cannot be claimed")]
    Entry(#[source] Finding),
    /// No tables could be made.
    #[error("no tables could be computed for the fabric")]
    Plan(#[from] PlanError),
    /// Some switches do not have the new tables.
    #[error("the tables could not be written to all switches")]
    Send(#[from] SendError),
    /// Bindings and memory cannot be read from the fabric.
    #[error("bindings and memory cannot be read from the fabric")]
    Read(#[from] CallError),
    /// The stored state cannot be read or written.
    #[error("the store")]
    Store(#[from] StoreError),
    /// A static fabric is not described by a store, or asks for changes.
    #[error("{0}")]
    Static(String),
}

impl Fm {
    /// Brings the fabric up, in the mode that was chosen.
    ///
    /// # Errors
    /// See [`StartError`]; the next call tries again.
    pub fn start(&mut self) -> Result<(), StartError> {
        let mode = self.mode;
        self.board.set(|status| {
            (status.phase, status.failed) = (Phase::Starting, None);
            status.hosts_held = mode == StartMode::FmFirst;
        });
        let result =
            if mode == StartMode::Static { self.start_static() } else { self.start_managed() };
        self.entry_silent = matches!(&result, Err(StartError::Entry(Finding::Silent { .. })));
        if let Err(error) = &result {
            let text = with_causes(error);
            self.board.set(|status| (status.phase, status.failed) = (Phase::Failed, Some(text)));
        }
        self.show();
        result
    }

    pub(super) fn step(&self, step: &str) {
        self.board.set(|status| step.clone_into(&mut status.step));
        self.show();
    }

    fn start_managed(&mut self) -> Result<(), StartError> {
        // Read before anything is claimed: a change that an earlier manager began is settled in `bring_up`.
        let kept = self.journal.load()?;
        match self.bring_up(kept.as_ref()) {
            Err(StartError::Entry(Finding::Owned { .. }))
                // Managers of a group never stand by here: their election decides who leads.
                if self.desired.fm.lineage.is_none() && self.is_secondary() =>
            {
                self.step("another fabric manager is the primary one");
                self.board.set(|status| status.phase = Phase::Standby);
                return Ok(());
            }
            other => other?,
        }
        if self.mode == StartMode::Simultaneous {
            // Routes are there; from here on each binding is a hot-add.
            self.board.set(|status| status.hosts_held = false);
        }
        self.keep_entry()?;
        self.apply_desired();
        self.save()?;
        self.step("the wanted state is applied");
        self.board.set(|status| (status.phase, status.hosts_held) = (Phase::Up, false));
        Ok(())
    }

    /// Stores which switch the wanted state calls its entry, as the next manager may enter by another one.
    fn keep_entry(&mut self) -> Result<(), StoreError> {
        let entry = self.running.as_ref().and_then(|running| running.inventory.switches.first());
        if let (Some(entry), Some(_), None) =
            (entry, self.desired.fm.lineage, self.desired.fm.entry_serial)
            && self.journal.save_entry(entry.serial)?
        {
            self.desired.fm.entry_serial = Some(entry.serial);
        }
        Ok(())
    }

    /// The later term in which another manager led the entry switch, if that is why the start failed.
    pub(crate) fn later_term(&self, error: &StartError) -> Option<u64> {
        let StartError::Entry(Finding::Owned { owner, .. }) = error else { return None };
        let lineage = self.desired.fm.lineage?;
        if *owner == lineage.now() {
            return Some(lineage.term);
        }
        lineage.later_term_of(*owner)
    }

    /// Checks, before a manager of a group claims the entry switch, that no other one has claimed it with the UUID of
    /// the same term: within a group no term occurs twice.
    fn has_no_double(&mut self) -> Result<(), StartError> {
        let Some(lineage) = self.desired.fm.lineage.filter(|_| !self.has_claimed) else {
            return Ok(());
        };
        match identify(&mut self.session.cci, Way::Entry) {
            Ok(now) if now.primary_uuid == lineage.now() => {
                let (at, owner) = (PortRef::new(SwitchId::at(0), 0), now.primary_uuid);
                Err(StartError::Entry(Finding::Owned { at, uuid: None, owner }))
            }
            _ => Ok(()), // discovery says it where there is no answer
        }
    }

    /// Whether the entry switch has ever belonged to this manager.
    pub(crate) const fn has_claimed(&self) -> bool {
        self.has_claimed
    }

    /// Whether this manager is the entry switch's secondary one.
    fn is_secondary(&mut self) -> bool {
        let owner = identify(&mut self.session.cci, Way::Entry);
        owner.is_ok_and(|now| now.secondary_uuid == self.desired.manager().uuid)
    }

    /// Starts without claiming or sending anything: the switches have their tables from files.
    fn start_static(&mut self) -> Result<(), StartError> {
        if !self.desired.memory.is_empty() {
            return Err(StartError::Static(
                "a static fabric has no G-FAM: [[memory]] is refused".into(),
            ));
        }
        if let Some(gfd) = self.desired.gfds.iter().find(|gfd| gfd.partitions.is_some()) {
            let text =
                format!("a static fabric has no G-FAM: partitions of {:?} are refused", gfd.name);
            return Err(StartError::Static(text));
        }
        if let Some(gim) = self.desired.gim.first() {
            let text = format!("a static fabric has no GIM: {:?} is refused", gim.name);
            return Err(StartError::Static(text));
        }
        if let Some(p2p) = self.desired.p2p.first() {
            let text = format!("a static fabric has no P2P: {:?} is refused", p2p.name);
            return Err(StartError::Static(text));
        }
        if let Some(ld) = self.desired.lds.first() {
            let text = format!("a static fabric has no MLD: [[ld]] of {:?} is refused", ld.device);
            return Err(StartError::Static(text));
        }
        if let Some(bind) = self.desired.binds.first() {
            let text =
                format!("a static fabric is bound by its switches: {:?} is refused", bind.bridge);
            return Err(StartError::Static(text));
        }
        let kept = self.journal.load_state()?;
        let Some(State { inventory, bindings, grants }) = kept else {
            return Err(StartError::Static(
                "a static start needs a store that was kept before".into(),
            ));
        };
        let Grants { memory, gim, p2p, .. } = grants;
        if !memory.shares.is_empty() || bindings.local.iter().any(|local| local.ld.is_some()) {
            let text = "a static fabric has no G-FAM and no MLD: the store has";
            return Err(StartError::Static(text.into()));
        }
        if let Some(grant) = gim.grants.first() {
            let text = format!("a static fabric has no GIM: the store has {:?}", grant.name);
            return Err(StartError::Static(text));
        }
        if let Some(grant) = p2p.all().next() {
            let text = format!("a static fabric has no P2P: the store has {:?}", grant.name);
            return Err(StartError::Static(text));
        }
        let plan = plan::make(&inventory, &self.options, None)?;
        let standing = plan.routed.tables.clone();
        self.set_running(Running {
            inventory,
            plan,
            standing,
            bindings,
            options: self.options.clone(),
            drain: self.session.drain,
            pid_mismatches: BTreeSet::new(),
        });
        self.step("a static fabric: the manager sends nothing to its switches");
        self.board.set(|status| (status.phase, status.hosts_held) = (Phase::Up, false));
        Ok(())
    }

    /// Discovers all components again, and applies the wanted state.
    ///
    /// # Errors
    /// See [`StartError`]; the manager's knowledge stays as it was then.
    pub fn rediscover(&mut self) -> Result<(), StartError> {
        let known = self.state();
        self.bring_up(known.as_ref())?;
        self.apply_desired();
        self.save()?;
        self.step("the wanted state is applied");
        Ok(())
    }

    /// Discovery, PIDs and routes, then reconciliation with the fabric and restoration of lost settings.
    fn bring_up(&mut self, kept: Option<&State>) -> Result<(), StartError> {
        self.step("discovery");
        self.monitor.traffic.clear(); // numbers of switches may change, and counts begin anew
        self.has_no_double()?;
        let Discovered { inventory, findings, fresh } = self.find(kept)?;
        self.has_claimed = true;
        self.fresh.extend(fresh);
        // Told apart from "gone": the switch is there, but another manager has it.
        self.owners = ForeignOwners::of(&findings);
        let mut errors: Vec<String> = findings.iter().map(ToString::to_string).collect();
        let believed = match kept {
            Some(kept) => reconcile::merge(kept, inventory),
            None => State::of(inventory),
        };
        self.step("PIDs and routes");
        let before = kept.map(|kept| &kept.inventory);
        let (inventory, assignments) = self.number(before, &believed.inventory)?;
        let believed = State { inventory, ..believed };
        // The tables that switches really hold are the start of the transit, whatever was sent last.
        let (mut standing, silent) = read_all(&mut self.session.cci, &believed.inventory);
        errors.extend(silent.iter().map(|(id, error)| format!("{id}: {}", error.with_causes())));
        let home = self.home(kept, &believed)?;
        let order = self.running.as_ref().map(|running| running.plan.routed.order.clone());
        let (shown, fresh) = (Some(standing.clone()), self.fresh.clone());
        let known = PreviousRoutes { home, standing: shown, order, fresh };
        let plan = plan::make_from(&believed.inventory, &self.options, &known)?;
        let (fabric, all, drain) = (&mut self.session.cci, &believed.inventory, self.session.drain);
        let sent = send(fabric, all, &assignments, &plan, &mut standing, drain);
        // Before the `?`: packets were lost even if the sending stopped half-way.
        self.record_withdrawn();
        let sent = sent?;
        self.owners.record_inventory_diff(before, &believed.inventory, &self.board);
        if kept.is_some() && (sent.entries, sent.pids) != (0, 0) {
            let Sent { entries, pids, .. } = sent;
            let text = format!("{entries} entries of tables and {pids} PIDs were sent");
            self.board.record_event(text);
        }
        // After the routes, over which components are asked how far the begun change came.
        let mut believed = believed;
        if let Some(request) = self.journal.take_begun() {
            let (cci, drain) = (&mut self.session.cci, self.session.drain);
            let (desired, board) = (&self.desired, &*self.board);
            let mut settlement = Settlement { cci, desired, drain, board };
            let (state, left) = settlement.settle(&request, believed);
            believed = state;
            errors.extend(left);
        }
        self.step("bindings and memory");
        let wanted = wanted_parts(&self.desired, &self.fresh);
        let shown = reconcile(&mut self.session.cci, &believed, &self.fresh, &wanted)?;
        let (options, inventory) = (self.options.clone(), believed.inventory);
        let Reconciled { bindings, memory, gim, said, forgotten, unbound } = shown;
        errors.extend(said);
        self.grants = Grants { memory, gim, ..believed.grants };
        self.set_running(Running {
            inventory,
            plan,
            standing,
            bindings,
            options,
            drain: self.session.drain,
            pid_mismatches: BTreeSet::new(),
        });
        errors.extend(self.restore(forgotten, unbound));
        self.errors = errors;
        self.board.record_change(format!("found {}", self.counted()));
        Ok(())
    }

    /// Gives components what they lack, now that routes lead to all of them; returns errors.
    fn restore(&mut self, forgotten: Vec<(Uuid, Pid)>, unbound: Vec<Binding>) -> Vec<String> {
        let Some(running) = &self.running else { return Vec::new() };
        let (cci, inventory) = (&mut self.session.cci, &running.inventory);
        // Before memory is restored: capacity goes into the partitions.
        let mut errors = self.partitions.set(cci, inventory, &self.desired, &self.board);
        self.step("what was forgotten");
        let Some(running) = &mut self.running else { return errors };
        let (cci, desired, board) = (&mut self.session.cci, &self.desired, &*self.board);
        let (grants, fresh) = (&mut self.grants, &self.fresh);
        let mut restoration = Restoration { cci, desired, running, grants, fresh, board };
        errors.extend(restoration.restore(forgotten, unbound));
        // Only now: until here a component that was claimed anew may still lack something.
        self.fresh.clear();
        let inventory = &running.inventory;
        if let Some(secondary) = desired.fm.secondary {
            errors.extend(self.session.register_secondary(secondary, inventory));
        }
        self.session.claim_on_connect(desired.manager(), inventory);
        subscribe(&mut self.session.cci, inventory);
        errors
    }

    /// Earlier tables for when all links work: those of the running fabric, or stored ones.
    fn home(&self, kept: Option<&State>, now: &State) -> Result<Option<Arc<Baseline>>, StartError> {
        if let Some(running) = &self.running {
            return Ok(Some(running.plan.home.clone()));
        }
        match kept {
            Some(kept) if reconcile::same_entry(kept, now) => {
                Ok(self.journal.home(&kept.inventory, &self.options)?)
            }
            _ => Ok(None), // none, or its switches have other numbers now
        }
    }

    fn find(&mut self, kept: Option<&State>) -> Result<Discovered, StartError> {
        let manager = self.desired.manager();
        let (promote, lineage) = (self.take_over, self.desired.fm.lineage);
        let mut options = discover::Options { promote, lineage, ..discover::Options::new(manager) };
        options.reserved.extend(self.desired.fm.secondary.map(|secondary| secondary.pid));
        if let Some(kept) = kept {
            options.known = kept.inventory.known();
            let first = kept.inventory.switches.first();
            options.entry = first.map(|switch| (switch.serial, switch.pid));
            let targets = kept.inventory.switches.iter().flat_map(|switch| &switch.targets);
            options.reserved.extend(targets.map(|target| target.pid).filter(|pid| !pid.is_none()));
        }
        discover(&mut self.session.cci, &options).map_err(StartError::Entry)
    }

    /// PIDs of targets: present ones, then earlier ones, and new ones for the rest.
    fn number(
        &self,
        before: Option<&Inventory>,
        inventory: &Inventory,
    ) -> Result<(Inventory, Vec<Assignment>), StartError> {
        let mut inventory = inventory.clone();
        let mut again = Vec::new();
        if let Some(before) = before {
            let taken = |all: &Inventory, pid: Pid| all.pids().any(|(other, _)| other == pid);
            for place in 0..inventory.switches.len() {
                let Some(switch) = inventory.switches.get(place) else { continue };
                let Some(old) = had(before, switch) else { continue };
                let lacks: Vec<_> = switch
                    .targets
                    .iter()
                    .enumerate()
                    .filter(|(_, target)| target.pid.is_none())
                    .filter_map(|(at, target)| {
                        let same = |t: &&crate::model::inventory::Target| {
                            (t.id, t.instance, t.kind) == (target.id, target.instance, target.kind)
                        };
                        let pid = old.targets.iter().find(same)?.pid;
                        (!pid.is_none()).then_some((at, target, pid))
                    })
                    .map(|(at, target, pid)| (at, (target.id, target.instance, target.port), pid))
                    .collect();
                for (at, (target, instance, port), pid) in lacks {
                    let here = PortRef::new(SwitchId::at(place), port);
                    if taken(&inventory, pid) && !inventory.is_gfds(here, pid) {
                        // Another component has got it meanwhile; the target gets a new one below.
                        continue;
                    }
                    let targets =
                        inventory.switches.get_mut(place).map(|switch| &mut switch.targets);
                    if let Some(one) = targets.and_then(|targets| targets.get_mut(at)) {
                        one.pid = pid;
                    }
                    let at = SwitchId::at(place);
                    again.push(Assignment { at, target, instance, pid, instead_of: None });
                }
            }
        }
        let (numbered, more) = plan::number(&inventory, &self.options)?;
        again.extend(more);
        Ok((numbered, again))
    }

    fn set_running(&mut self, running: Running) {
        self.running = Some(running);
        self.show();
    }

    /// Applies the wanted state. Failures become errors of the status, and the rest goes on.
    fn apply_desired(&mut self) {
        // Bindings first: devices are requesters of memory only once they are bound.
        self.step("bindings");
        for bind in self.desired.binds.clone() {
            if let Err(why) = self.apply_binding(&bind.bridge, &bind.to) {
                self.errors.push(format!("{} to {}: {why}", bind.bridge, bind.to));
            }
        }
        self.step("memory");
        self.apply_each(
            |desired| &desired.memory,
            |requests, wanted| {
                let done = requests.apply_desired_memory(wanted);
                done.map_err(|why| format!("memory {:?}: {why}", wanted.name))
            },
        );
        self.step("GIM");
        self.apply_each(
            |desired| &desired.gim,
            |requests, wanted| {
                let done = requests.apply_desired_gim(wanted);
                done.map_err(|why| format!("GIM {:?}: {why}", wanted.name))
            },
        );
        self.step("P2P");
        self.apply_each(
            |desired| &desired.p2p,
            |requests, wanted| {
                let done = requests.apply_desired_p2p(wanted);
                done.map_err(|why| format!("P2P {:?}: {why}", wanted.name))
            },
        );
        self.show();
    }

    /// Applies each of some entries of the wanted state; errors go to the status.
    fn apply_each<T>(
        &mut self,
        of: impl Fn(&DesiredState) -> &Vec<T>,
        apply: impl Fn(&mut MemoryRequests<'_>, &T) -> Result<(), String>,
    ) {
        let Ok(mut requests) = self.memory_requests() else { return };
        let desired = requests.desired;
        for wanted in of(desired) {
            if let Err(why) = apply(&mut requests, wanted) {
                requests.errors.push(why);
            }
        }
    }

    fn apply_binding(&mut self, bridge: &str, to: &str) -> Result<(), String> {
        let binding = self.binding(bridge, to).map_err(|refused| refused.message)?;
        let running = self.running.as_ref().ok_or("the fabric is not up")?;
        let is_there = match binding {
            Binding::Local(local) => running.bindings.local.contains(&local),
            Binding::Remote(link) => running.bindings.remote.contains(&link),
        };
        if is_there {
            return Ok(());
        }
        let mut requests = self.binding_requests().map_err(|refused| refused.message)?;
        requests.bind(binding).map_err(|error| with_causes(&error))?;
        self.board.record_event(format!("{bridge} bound to {to}"));
        Ok(())
    }

    /// Reports PIDs whose routes were missing for a moment, even if the sending failed.
    pub(super) fn record_withdrawn(&mut self) {
        let pids = self.session.cci.take_withdrawn();
        if pids.is_empty() {
            return;
        }
        let pids: Vec<String> = pids.iter().map(ToString::to_string).collect();
        self.board.record_event(format!(
            "no route for a moment to PID {}: no order of changes without deadlock was found",
            pids.join(", ")
        ));
    }

    pub(super) fn counted(&self) -> String {
        let Some(running) = &self.running else { return "nothing".to_owned() };
        let Inventory { switches, gfds, links, .. } = &running.inventory;
        let hosts = hosts(&running.inventory).len();
        format!(
            "{} switches, {} GFDs, {hosts} hosts, {} links, {} shares of memory ({})",
            switches.len(),
            gfds.len(),
            links.len(),
            self.grants.memory.shares.len(),
            self.grants
                .memory
                .shares
                .iter()
                .map(|share| name_of(&share.tag))
                .collect::<Vec<_>>()
                .join(", ")
        )
    }
}

/// The same switch in an earlier inventory.
fn had<'a>(before: &'a Inventory, switch: &DiscoveredSwitch) -> Option<&'a DiscoveredSwitch> {
    let same = |old: &&DiscoveredSwitch| match (old.uuid, switch.uuid) {
        (Some(old), Some(new)) => old == new,
        // Without a UUID only the entry switch can be meant.
        _ => old.serial == switch.serial && old.came.is_none() == switch.came.is_none(),
    };
    before.switches.iter().find(same)
}
