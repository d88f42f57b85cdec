//! Merges the stored state of a fabric with a new inventory, under the switch numbers of the stored state.
//!
//! Source: docs/spec/cxl-fabric.md "State".

use std::collections::BTreeMap;

use crate::model::graph::{Key, PortRef, SwitchId};
use crate::model::inventory::{DiscoveredSwitch, Gfd, Inventory, Partner, ReachedFrom};
use crate::state::store::State;

/// Carries the stored state over to a new inventory. Components that were not found stay known, and are down. Those
/// that were found keep their numbers, so that bindings, memory and requests keep their meaning.
#[must_use]
pub fn merge(kept: &State, now: Inventory) -> State {
    let ids = kept.inventory.by_id().map(|(old, _)| (old, moved(&kept.inventory, &now, old)));
    let ids: BTreeMap<SwitchId, SwitchId> = ids.collect();
    let id = |old: SwitchId| ids.get(&old).copied().unwrap_or(old);
    let at = |old: PortRef| PortRef::new(id(old.switch), old.port);
    let mut places = unanswered(&kept.inventory, id);
    let numbers = numbers(&kept.inventory, &now, id);
    let mut gfds: Vec<Gfd> = kept.inventory.gfds.clone();
    for gfd in &mut gfds {
        gfd.at = at(gfd.at);
    }
    let found = renumbered(now, &numbers, &mut gfds);
    for (number, switch) in numbers.values().zip(found.switches) {
        places.insert(*number, switch);
    }
    let switches = places.into_values().collect();
    let mut inventory = Inventory { switches, gfds, ..found };
    for ends in &kept.inventory.links {
        let mut ends = ends.map(at);
        ends.sort_unstable();
        // Links that were not found are kept as down, unless one of their ports has another link now.
        if ends.iter().all(|end| inventory.link_at(*end).is_none()) {
            inventory.links.insert(ends);
            inventory.down.insert(ends);
        }
    }
    carried_over(kept, inventory, id)
}

/// The known switches under their present numbers, as if none of them answered.
fn unanswered(
    kept: &Inventory,
    id: impl Fn(SwitchId) -> SwitchId,
) -> BTreeMap<SwitchId, DiscoveredSwitch> {
    let at = |old: PortRef| PortRef::new(id(old.switch), old.port);
    let lost = kept.by_id().map(|(old, switch)| {
        let mut lost = switch.clone();
        lost.whole = false;
        // `came` must not be `None`: a switch without it counts as the entry switch.
        let from = lost.came.map_or(PortRef::new(SwitchId(0), 0), |came| at(came.from));
        lost.came = Some(ReachedFrom { from, at: lost.came.map_or(0, |came| came.at) });
        for port in &mut lost.ports {
            if let Partner::Switch(far) = &mut port.partner {
                *far = at(*far);
            }
        }
        (id(old), lost)
    });
    lost.collect()
}

/// Numbers for the switches found: the earlier ones for known switches, free ones for others.
fn numbers(
    kept: &Inventory,
    now: &Inventory,
    id: impl Fn(SwitchId) -> SwitchId,
) -> BTreeMap<SwitchId, SwitchId> {
    let taken: Vec<SwitchId> = kept.by_id().map(|(old, _)| id(old)).collect();
    let mut free = (0..).map(SwitchId::at).filter(|id| !taken.contains(id) && id.0 > 0);
    let mut numbers = BTreeMap::new();
    for (new, switch) in now.by_id() {
        let known = || kept.find(&switch.uuid?).map(&id);
        // The entry switch has number 0 by definition, whichever one it is.
        let number = if new == SwitchId(0) { Some(new) } else { known() };
        if let Some(number) = number.or_else(|| free.next()) {
            numbers.insert(new, number);
        }
    }
    numbers
}

/// Bindings, memory, GIM, P2P and access bits of the stored state, under the present switch numbers.
fn carried_over(
    kept: &State,
    inventory: Inventory,
    id: impl Fn(SwitchId) -> SwitchId + Copy,
) -> State {
    let mut bindings = kept.bindings.clone();
    let links = bindings.remote.iter_mut().chain(&mut bindings.cut);
    let bridges = links.flat_map(|link| [&mut link.host.bridge, &mut link.below.bridge]);
    let local = bindings.local.iter_mut().chain(&mut bindings.lost);
    for bridge in bridges.chain(local.map(|local| &mut local.bridge)) {
        bridge.switch = id(bridge.switch);
    }
    for wanted in &mut bindings.lds {
        wanted.at.switch = id(wanted.at.switch);
    }
    for wanted in &mut bindings.capacity {
        wanted.at.switch = id(wanted.at.switch);
    }
    for wanted in &mut bindings.blocks {
        wanted.at.switch = id(wanted.at.switch);
    }
    let mut grants = kept.grants.clone();
    for host in grants.memory.shares.iter_mut().flat_map(|share| &mut share.hosts) {
        host.switch = id(host.switch);
    }
    for grant in &mut grants.gim.grants {
        for edge in grant.members.iter_mut().chain([&mut grant.owner]) {
            edge.switch = id(edge.switch);
        }
    }
    grants.p2p.edges_mut().for_each(|edge| edge.switch = id(edge.switch));
    grants.access = kept.grants.access.iter().map(|bit| bit.moved(id)).collect();
    State { inventory, bindings, grants }
}

/// Present number of an earlier switch: unchanged, unless another switch is the entry now, which has number 0.
fn moved(kept: &Inventory, now: &Inventory, old: SwitchId) -> SwitchId {
    let first = kept.switches.first();
    if first.is_none_or(|first| may_be_entry(first, now)) {
        return old;
    }
    let entry = now.switches.first().and_then(|entry| kept.find(&entry.uuid?));
    match entry {
        // The old entry switch and the new one exchange their numbers.
        Some(entry) if old == entry => SwitchId(0),
        Some(entry) if old == SwitchId(0) => entry,
        Some(_) => old,
        None => SwitchId::at(old.index() + 1),
    }
}

/// The new inventory under other numbers; its GFDs are merged into the known ones.
fn renumbered(
    mut now: Inventory,
    numbers: &BTreeMap<SwitchId, SwitchId>,
    gfds: &mut Vec<Gfd>,
) -> Inventory {
    let id = |new: SwitchId| numbers.get(&new).copied().unwrap_or(new);
    let at = |new: PortRef| PortRef::new(id(new.switch), new.port);
    let mut places = Vec::new();
    for gfd in &now.gfds {
        let gfd = Gfd { at: at(gfd.at), ..*gfd };
        let place = gfds.iter().position(|known| known.uuid == gfd.uuid);
        match place.and_then(|place| gfds.get_mut(place)) {
            Some(known) => *known = gfd,
            None => gfds.push(gfd),
        }
        places.push(place.unwrap_or(gfds.len() - 1));
    }
    for switch in &mut now.switches {
        switch.came = switch.came.map(|came| ReachedFrom { from: at(came.from), ..came });
        for port in &mut switch.ports {
            match &mut port.partner {
                Partner::Switch(far) => *far = at(*far),
                Partner::Gfd(place) => *place = places.get(*place).copied().unwrap_or(*place),
                Partner::Nobody | Partner::Host | Partner::Device(_) | Partner::Foreign => {}
            }
        }
    }
    let sorted = |ends: &[PortRef; 2]| {
        let mut ends = ends.map(at);
        ends.sort_unstable();
        ends
    };
    now.links = now.links.iter().map(sorted).collect();
    now.down = now.down.iter().map(sorted).collect();
    now
}

/// Whether the entry switch is the same as before, so that switches have the same numbers.
#[must_use]
pub fn same_entry(kept: &State, now: &State) -> bool {
    let first = kept.inventory.switches.first();
    first.is_none_or(|first| may_be_entry(first, &now.inventory))
}

fn may_be_entry(old: &DiscoveredSwitch, now: &Inventory) -> bool {
    let Some(entry) = now.switches.first() else { return false };
    match (old.uuid, entry.uuid) {
        (Some(old), Some(new)) => old == new,
        // The UUID of an entry switch without neighbours is unknown; its serial number is not.
        _ => old.serial == entry.serial,
    }
}
