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

use weft_parsers::cci::Uuid;
use weft_parsers::fabric::Pid;

use super::access::at_edges;
use super::reconcile::is_there;
use super::{Fm, NO_COST, with_causes};
use crate::cci::send::Sent;
use crate::components::bind::{BindError, Bridge};
use crate::components::cdat;
use crate::components::edge;
use crate::discover::change::Event;
use crate::model::graph::{PortRef, SwitchId};
use crate::model::inventory::{DiscoveredSwitch, Inventory, Role};
use crate::model::text::{UuidText, name_of, tag};
use crate::state::names::{Binding, Names};

impl Fm {
    /// Whether memory lost by these GFDs is given again: it is in the wanted state, or all of them were restarted.
    pub(super) fn wanted_parts(&self) -> impl Fn(&Uuid, &[Pid]) -> bool + use<> {
        let wanted: Vec<_> = self.desired.memory.iter().filter_map(|w| tag(&w.name).ok()).collect();
        let fresh = self.fresh.clone();
        move |tag, gfds| wanted.contains(tag) || gfds.iter().all(|gfd| fresh.contains(gfd))
    }

    /// Sets again what components have lost; returns errors.
    pub(super) fn restore(
        &mut self,
        mut forgotten: Vec<(Uuid, Pid)>,
        unbound: Vec<Binding>,
    ) -> Vec<String> {
        let mut errors = Vec::new();
        self.step("what was forgotten");
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
        errors.extend(self.restore_lds());
        errors.extend(self.restore_ld_capacity());
        // Only now: until here a component that was claimed anew may still lack something.
        self.fresh.clear();
        errors
    }

    /// Unbinds virtual links without a path, where that is possible.
    fn sever(&mut self) {
        let Some(running) = &mut self.running else { return };
        let (severed, left) = running.sever(&mut self.fabric);
        for link in severed {
            self.board.record_event(format!("the virtual link at {} is cut", link.host.bridge));
        }
        for end in left {
            self.board.record_event(format!("{end} cannot be reached, and may be bound still"));
        }
    }

    /// Bindings that are to be made again.
    fn lost_bindings(&self) -> Vec<Binding> {
        let Some(running) = &self.running else { return Vec::new() };
        let local = running.bindings.lost.iter().copied().map(Binding::Local);
        local.chain(running.bindings.cut.iter().copied().map(Binding::Remote)).collect()
    }

    /// Makes a binding that a switch no longer shows, if it is wanted; returns an error otherwise.
    fn rebind(&mut self, binding: Binding) -> Option<String> {
        let bridges = match binding {
            Binding::Local(local) => vec![local.bridge],
            Binding::Remote(link) => vec![link.host.bridge, link.below.bridge],
        };
        let running = self.running.as_ref()?;
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
        let names = Names::new(&self.desired, running);
        let mut binds = self.desired.binds.iter();
        let wanted = binds.any(|bind| names.binding(&bind.bridge, &bind.to) == Ok(binding));
        let text = shown(&binding);
        if !(known || wanted || bridges.iter().any(is_fresh)) {
            // Known to be lost, wanted by the file, or lost by a restart; otherwise it was removed on purpose.
            return Some(format!("{text} is not bound any more"));
        }
        let done = self.bind_again(binding);
        self.refresh(&bridges);
        match done {
            Ok(()) => {
                self.board
                    .record_event(format!("{text} was not bound any more: it is bound again"));
                None
            }
            Err(error) => Some(format!("{text} is not bound any more: {}", with_causes(&error))),
        }
    }

    fn bind_again(&mut self, binding: Binding) -> Result<(), BindError> {
        let figures = self.desired.figures();
        let Some(running) = &mut self.running else { return Ok(()) };
        let (inventory, bindings) = (&running.inventory, &mut running.bindings);
        match binding {
            Binding::Local(local) => {
                let bound = bindings.bind_local(&mut self.fabric, inventory, local);
                // Kept, so that it is tried again at the next discovery.
                if bound.is_err() && !bindings.lost.contains(&local) {
                    bindings.lost.push(local);
                }
                bound
            }
            Binding::Remote(link) => {
                let (from, to) = (link.host.bridge.switch, link.below.pid);
                let cost = cdat::link_cost(inventory, &running.plan, from, to, figures);
                let cost = cost.unwrap_or(NO_COST);
                let bound = bindings.restore(&mut self.fabric, inventory, link, cost);
                if bound.is_err() && !bindings.cut.contains(&link) {
                    bindings.cut.push(link);
                }
                bound
            }
        }
    }

    /// Restores the part of a share that a GFD has lost; returns an error.
    fn repair(&mut self, tag: &Uuid, gfd: Pid) -> Option<String> {
        let text = format!("GFD {gfd} had lost its part of memory {:?}", name_of(tag));
        let inventory = &self.running.as_ref()?.inventory;
        match self.grants.memory.repair(&mut self.fabric, inventory, tag, gfd) {
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
        let Some(running) = &self.running else { return Vec::new() };
        let inventory = &running.inventory;
        let wanted = self.grants.access_bits();
        let lacks = match edge::lacks(&mut self.fabric, inventory, &wanted) {
            Ok(lacks) => lacks,
            Err(error) => {
                return vec![format!("edges cannot be read: {}", error.with_causes())];
            }
        };
        let (figures, drain) = (self.desired.figures(), self.drain);
        at_edges(&mut self.fabric, running, figures, drain, |means| {
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

    /// Reports differences that a discovery found.
    pub(super) fn record_inventory_diff(&self, before: Option<&Inventory>, now: &Inventory) {
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
            self.board.record_event(taken.unwrap_or_else(|| event.told(now)));
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
                    self.board.record_event(format!("GFD {} at {} {how}", gfd.pid, gfd.at));
                }
                (false, true) if was_there(gfd.uuid).is_some() => {
                    self.board
                        .record_event(format!("GFD {} at {} is there again", gfd.pid, gfd.at));
                }
                _ => {}
            }
        }
        for (id, switch) in now.by_id().filter(|(_, switch)| switch.whole) {
            if before.switch(id).is_some_and(|before| !before.whole) {
                self.board.record_event(format!("{id}, PID {}, is there again", switch.pid));
            }
        }
    }

    /// Text that says whose a switch is, if another manager owns it.
    fn taken(&self, id: SwitchId, switch: &DiscoveredSwitch) -> Option<String> {
        let owner = UuidText(*self.owned.get(&switch.uuid?)?);
        Some(format!("{id}, PID {}, is owned by the fabric manager {owner}", switch.pid))
    }

    /// Reports changed tables, where that is news.
    pub(super) fn record_sent(&self, is_news: bool, sent: &Sent) {
        if !is_news || (sent.entries, sent.pids) == (0, 0) {
            return;
        }
        let (entries, pids) = (sent.entries, sent.pids);
        self.board.record_event(format!("{entries} entries of tables and {pids} PIDs were sent"));
    }

    /// Reports PIDs whose routes were missing for a moment, even if the sending failed.
    pub(super) fn record_withdrawn(&mut self) {
        let pids = self.fabric.take_withdrawn();
        if pids.is_empty() {
            return;
        }
        let pids: Vec<String> = pids.iter().map(ToString::to_string).collect();
        self.board.record_event(format!(
            "no route for a moment to PID {}: no order of changes without deadlock was found",
            pids.join(", ")
        ));
    }

    /// Present problems of the fabric; each line ends when its cause does.
    pub(super) fn ongoing_problems(&self) -> Vec<String> {
        let Some(running) = &self.running else { return Vec::new() };
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
