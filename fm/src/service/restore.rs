//! Restores settings that components have lost, and reports changes.
//!
//! The wanted settings of each component are derived from the manager's state, compared with the component, and set
//! where they are missing. They are PIDs of targets ([`Inventory`]), DRT and RGT ([`crate::plan::Plan`]), bindings
//! ([`Bindings`](crate::components::bind::Bindings)), access at edges ([`Grants`](crate::components::grants::Grants)), extents, decoders and rights
//! ([`Memory`](crate::components::memory::Memory)), and the secondary manager. Start-up and every later discovery compare all
//! components.
//!
//! A component that was claimed anew has nothing and gets all of it, whichever command or file asked for it. At others,
//! differences that no file asks to correct are reported and left.
//!
//! Source: docs/spec/cxl-fabric.md "State"; "Dynamic change".

use std::collections::{BTreeMap, BTreeSet};

use weft_parsers::cci::Uuid;
use weft_parsers::fabric::Pid;

use super::bindings::BindingRequests;
use super::board::StatusBoard;
use super::costs::at_edges;
use super::lds::LdRequests;
use super::reconcile::is_there;
use super::with_causes;
use crate::cci::CciSession;
use crate::components::bind::Bridge;
use crate::components::edge;
use crate::components::grants::Grants;
use crate::discover::Finding;
use crate::discover::change::{Event, Running};
use crate::model::graph::{PortRef, SwitchId};
use crate::model::inventory::{DiscoveredSwitch, Inventory, Role};
use crate::model::text::{UuidText, name_of, tag};
use crate::state::desired::DesiredState;
use crate::state::names::{Binding, Names};

/// Whether memory lost by these GFDs is given again: it is in the wanted state, or all of them were restarted.
pub(super) fn wanted_parts(
    desired: &DesiredState,
    fresh: &BTreeSet<Pid>,
) -> impl Fn(&Uuid, &[Pid]) -> bool + use<> {
    let wanted: Vec<_> = desired.memory.iter().filter_map(|w| tag(&w.name).ok()).collect();
    let fresh = fresh.clone();
    move |tag, gfds| wanted.contains(tag) || gfds.iter().all(|gfd| fresh.contains(gfd))
}

/// Restoration of what components of a fabric that is up have lost.
pub(super) struct Restoration<'a> {
    pub cci: &'a mut CciSession,
    pub desired: &'a DesiredState,
    pub running: &'a mut Running,
    pub grants: &'a mut Grants,
    /// Components claimed anew, which have lost all that they were told.
    pub fresh: &'a BTreeSet<Pid>,
    pub board: &'a StatusBoard,
}

impl Restoration<'_> {
    /// Sets again what components have lost; returns errors.
    pub fn restore(
        &mut self,
        mut forgotten: Vec<(Uuid, Pid)>,
        unbound: Vec<Binding>,
    ) -> Vec<String> {
        let mut errors = Vec::new();
        self.sever();
        for binding in unbound.into_iter().chain(self.lost_bindings()) {
            errors.extend(self.rebind(binding));
        }
        // In the order of addresses, so that each part finds its old place.
        let at = |(tag, gfd): &(Uuid, Pid)| {
            let parts = self.grants.memory.find(tag).map(|share| share.parts.as_slice());
            let part = parts.unwrap_or_default().iter().find(|part| part.gfd == *gfd);
            part.map(|part| part.dpa)
        };
        forgotten.sort_by_key(at);
        for (tag, gfd) in forgotten {
            errors.extend(self.repair(&tag, gfd));
        }
        errors.extend(self.reopen());
        let (cci, desired, board) = (&mut *self.cci, self.desired, self.board);
        let mut lds = LdRequests { cci, desired, running: self.running, board };
        errors.extend(lds.restore());
        errors.extend(lds.restore_capacity());
        errors
    }

    /// Unbinds virtual links without a path, where that is possible.
    fn sever(&mut self) {
        let (severed, left) = self.running.sever(self.cci);
        for link in severed {
            self.board.record_event(format!("the virtual link at {} is cut", link.host.bridge));
        }
        for end in left {
            self.board.record_event(format!("{end} cannot be reached, and may be bound still"));
        }
    }

    /// Bindings that are to be made again.
    fn lost_bindings(&self) -> Vec<Binding> {
        let bindings = &self.running.bindings;
        let local = bindings.lost.iter().copied().map(Binding::Local);
        local.chain(bindings.cut.iter().copied().map(Binding::Remote)).collect()
    }

    /// Makes a binding that a switch no longer shows, if it is wanted; returns an error otherwise.
    fn rebind(&mut self, binding: Binding) -> Option<String> {
        let bridges = match binding {
            Binding::Local(local) => vec![local.bridge],
            Binding::Remote(link) => vec![link.host.bridge, link.below.bridge],
        };
        let running = &*self.running;
        let whole = |at: SwitchId| running.inventory.switch(at).filter(|switch| switch.whole);
        if bridges.iter().any(|bridge| whole(bridge.switch).is_none()) {
            return None; // it comes back with the switch
        }
        let known = match &binding {
            Binding::Local(local) => running.bindings.lost.contains(local),
            Binding::Remote(link) => running.bindings.cut.contains(link),
        };
        let is_fresh = |bridge: &Bridge| {
            whole(bridge.switch).is_some_and(|switch| self.fresh.contains(&switch.pid))
        };
        let names = Names::new(self.desired, running);
        let mut binds = self.desired.binds.iter();
        let wanted = binds.any(|bind| names.binding(&bind.bridge, &bind.to) == Ok(binding));
        let text = shown(&binding);
        if !(known || wanted || bridges.iter().any(is_fresh)) {
            // Known to be lost, wanted by the file, or lost by a restart; otherwise it was removed on purpose.
            return Some(format!("{text} is not bound any more"));
        }
        let (cci, desired) = (&mut *self.cci, self.desired);
        let mut requests = BindingRequests { cci, desired, running: self.running };
        let done = requests.bind_again(binding);
        requests.refresh(&bridges);
        match done {
            Ok(()) => {
                self.board
                    .record_event(format!("{text} was not bound any more: it is bound again"));
                None
            }
            Err(error) => Some(format!("{text} is not bound any more: {}", with_causes(&error))),
        }
    }

    /// Restores the part of a share that a GFD has lost; returns an error.
    fn repair(&mut self, tag: &Uuid, gfd: Pid) -> Option<String> {
        let text = format!("GFD {gfd} had lost its part of memory {:?}", name_of(tag));
        let inventory = &self.running.inventory;
        match self.grants.memory.repair(self.cci, inventory, tag, gfd) {
            Ok(()) => {
                self.board.record_event(format!(
                    "{text}: its part is set up again, with what it has kept"
                ));
                None
            }
            Err(error) => Some(format!("{text}: {}", with_causes(&error))),
        }
    }

    /// Sets access bits that edges lack; returns errors.
    fn reopen(&mut self) -> Vec<String> {
        let running = &*self.running;
        let inventory = &running.inventory;
        let wanted = self.grants.access_bits();
        let lacks = match edge::lacks(self.cci, inventory, &wanted) {
            Ok(lacks) => lacks,
            Err(error) => {
                return vec![format!("edges cannot be read: {}", error.with_causes())];
            }
        };
        at_edges(self.cci, running, self.desired.figures(), |means| {
            let mut errors = Vec::new();
            for bit in lacks {
                match edge::set(means, bit, true) {
                    Ok(()) => {
                        self.board.record_event(format!("{bit} was not set: it is set again"));
                    }
                    Err(error) => {
                        errors.push(format!("{bit} is not set: {}", error.with_causes()));
                    }
                }
            }
            errors
        })
    }
}

/// Switches that belonged to another manager in the last discovery, with that manager.
#[derive(Debug, Default)]
pub(super) struct ForeignOwners(BTreeMap<Uuid, Uuid>);

impl ForeignOwners {
    /// The owners that a discovery has found.
    pub fn of(findings: &[Finding]) -> Self {
        let owned = findings.iter().filter_map(|finding| match finding {
            Finding::Owned { uuid, owner, .. } => Some(((*uuid)?, *owner)),
            _ => None,
        });
        Self(owned.collect())
    }

    /// Reports differences that a discovery found.
    pub fn record_inventory_diff(
        &self,
        before: Option<&Inventory>,
        now: &Inventory,
        board: &StatusBoard,
    ) {
        let Some(before) = before else { return };
        let ids = |inventory: &Inventory| inventory.switches.first().map(|entry| entry.serial);
        if ids(before) != ids(now) {
            return; // numbers mean others now
        }
        for event in differences(before, now) {
            let taken = match event {
                Event::SwitchGone(id) => now.switch(id).and_then(|switch| self.taken(id, switch)),
                _ => None,
            };
            board.record_event(taken.unwrap_or_else(|| event.told(now)));
        }
        let was_there = |uuid| before.gfds.iter().find(|gfd| gfd.uuid == uuid);
        for gfd in &now.gfds {
            let then = was_there(gfd.uuid).is_some_and(|gfd| is_there(before, gfd.at));
            match (then, is_there(now, gfd.at)) {
                (true, false) => {
                    let is_asked = now.switch(gfd.at.switch).is_some_and(|switch| switch.whole);
                    let how = if is_asked {
                        "does not answer"
                    } else {
                        "is out of reach, as is its switch"
                    };
                    board.record_event(format!("GFD {} at {} {how}", gfd.pid, gfd.at));
                }
                (false, true) if was_there(gfd.uuid).is_some() => {
                    board.record_event(format!("GFD {} at {} is there again", gfd.pid, gfd.at));
                }
                _ => {}
            }
        }
        for (id, switch) in now.by_id().filter(|(_, switch)| switch.whole) {
            if before.switch(id).is_some_and(|before| !before.whole) {
                board.record_event(format!("{id}, PID {}, is there again", switch.pid));
            }
        }
    }

    /// Text that says whose a switch is, if another manager owns it.
    fn taken(&self, id: SwitchId, switch: &DiscoveredSwitch) -> Option<String> {
        let owner = UuidText(*self.0.get(&switch.uuid?)?);
        Some(format!("{id}, PID {}, is owned by the fabric manager {owner}", switch.pid))
    }

    /// Present problems of the fabric; each line ends when its cause does.
    pub fn ongoing_problems(&self, running: &Running) -> Vec<String> {
        let inventory = &running.inventory;
        let mut errors: Vec<String> = Vec::new();
        for (id, switch) in inventory.by_id().filter(|(_, switch)| !switch.whole) {
            let gone = || format!("{id}, PID {}, is not there any more", switch.pid);
            errors.push(self.taken(id, switch).unwrap_or_else(gone));
        }
        for gfd in inventory.gfds.iter().filter(|gfd| !is_there(inventory, gfd.at)) {
            errors.push(format!("GFD {} is not there any more", gfd.pid));
        }
        for (id, switch) in inventory.by_id() {
            let held = switch.ports.iter().filter(|port| port.perst);
            errors.extend(held.map(|port| {
                let at = PortRef::new(id, port.number);
                format!(
                    "{at} is held in reset: PERST# is asserted, until `weft fm port {at} deassert-perst`"
                )
            }));
        }
        errors.extend(running.plan.routed.partition.as_ref().map(ToString::to_string));
        errors
    }
}

fn shown(binding: &Binding) -> String {
    match binding {
        Binding::Local(local) => format!("port {} at {}", local.port, local.bridge),
        Binding::Remote(link) => format!("{} at {}", link.below.bridge, link.host.bridge),
    }
}

/// Events that turn one inventory into another, for switches with the same numbers.
fn differences(before: &Inventory, now: &Inventory) -> Vec<Event> {
    let first = |[first, _]: &[PortRef; 2]| *first;
    let mut events: Vec<Event> = Vec::new();
    let lost = now.down.iter().filter(|link| before.links.contains(*link));
    events.extend(lost.filter(|link| !before.down.contains(*link)).map(first).map(Event::LinkDown));
    let back = before.down.iter().filter(|link| now.links.contains(*link));
    events.extend(back.filter(|link| !now.down.contains(*link)).map(first).map(Event::LinkUp));
    for (id, switch) in now.by_id() {
        let Some(then) = before.switch(id) else { continue };
        if then.whole && !switch.whole {
            events.push(Event::SwitchGone(id));
        }
        if !switch.whole {
            continue;
        }
        for port in switch.ports.iter().filter(|port| matches!(port.role, Role::Usp | Role::Dsp)) {
            if !port.up && then.port(port.number).is_some_and(|then| then.up) {
                let at = PortRef::new(id, port.number);
                events.push(Event::EdgeDown(at));
            }
        }
    }
    events
}
