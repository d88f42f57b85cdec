//! What a fabric shows of bindings and memory, whoever made them, and what the FM remembers of them.
//!
//! Shape: switches and GFDs are read -> [`Bindings`], [`Memory`]; what was kept is carried over to the new inventory and
//! held against that.
//! Units: bytes.
//! Source: docs/spec/cxl-fabric.md "State".
//!
//! The fabric is what counts: where it differs from what was kept, the difference is told. Only of what does not answer
//! now the FM goes on believing what it knew.

use std::collections::{BTreeMap, BTreeSet};

use weft_parsers::cci::dcd::{ExtentList, GetExtents};
use weft_parsers::cci::gfd_access::{Gdt, GdtDecoder, GdtRange, SatEntries, SatRange};
use weft_parsers::cci::{Request, Uuid};
use weft_parsers::fabric::Pid;

use super::names::{Binding, hosts, requesters};
use crate::bind::{self, Bindings, Bridge, BridgeState, LinkEnd, Local, Remote};
use crate::cci::{CallError, Fabric, Way};
use crate::gim::Gim;
use crate::graph::{Key, PortRef, SwitchId};
use crate::inventory::{Gfd, Inventory, Partner, ReachedFrom, Switch, TargetKind};
use crate::memory::{DECODERS, GROUPS_MAX, Host, Memory, Part, Share, group_bit};
use crate::store::State;
use crate::text::name_of;

/// Extents of a group that are read.
const EXTENTS_MAX: u32 = 64;

/// Reads what is bound; what only one end shows is in the list of oddities.
///
/// # Errors
/// A switch does not answer.
pub fn bindings(
    fabric: &mut Fabric,
    inventory: &Inventory,
) -> Result<(Bindings, Vec<String>), CallError> {
    let (mut found, mut odd) = (Bindings::default(), Vec::new());
    let mut ends: BTreeMap<Bridge, Pid> = BTreeMap::new();
    for (id, switch) in inventory.by_id().filter(|(_, switch)| switch.whole) {
        for vcs in &switch.vcss {
            for (vppb, state) in (0..=u8::MAX).zip(&vcs.vppbs) {
                let bridge = Bridge { switch: id, vcs: vcs.id, vppb };
                if state.status == 0 || (vppb == 0 && state.status == 2) {
                    continue; // nothing, or a host's own port
                }
                match bind::read_bridge(fabric, switch.way(), bridge)? {
                    BridgeState::Nothing => {}
                    BridgeState::Port(port, ld) => {
                        found.local.push(Local { bridge, port, ld: ld.map(u16::from) });
                    }
                    BridgeState::Pid(pid) => drop(ends.insert(bridge, pid)),
                    BridgeState::InBetween => {
                        odd.push(format!("{bridge} is neither bound nor unbound"));
                    }
                }
            }
        }
    }
    let edges = hosts(inventory);
    let fabric_pid = |at: SwitchId, pid: Pid| {
        let targets = inventory.switch(at).map(|switch| switch.targets.as_slice());
        let mut targets = targets.unwrap_or_default().iter();
        targets.any(|t| t.kind == TargetKind::Fabric && t.pid == pid)
    };
    for edge in &edges {
        let own = |bridge: &Bridge| (bridge.switch, bridge.vcs) == (edge.switch, edge.vcs);
        let near: Vec<Bridge> = ends.keys().filter(|bridge| own(bridge)).copied().collect();
        for bridge in near {
            let Some(&to) = ends.get(&bridge) else { continue };
            let mut far = ends.iter().filter(|(far, pid)| {
                **pid == edge.pid && far.switch != bridge.switch && fabric_pid(far.switch, to)
            });
            let Some((&below, &host)) = far.next() else { continue };
            let (host, below) = (LinkEnd { bridge, pid: host }, LinkEnd { bridge: below, pid: to });
            ends.remove(&host.bridge);
            ends.remove(&below.bridge);
            found.remote.push(Remote { host, below });
        }
    }
    odd.extend(ends.iter().map(|(bridge, pid)| {
        format!("{bridge} is bound to PID {pid}, but nothing is bound to it from there")
    }));
    Ok((found, odd))
}

/// What one GFD gives to one tag.
struct Piece {
    part: Part,
    len: u64,
    /// Hosts with a decoder for it and the right to it.
    hosts: Vec<(Host, u8, GdtDecoder)>,
}

/// Reads who has which memory.
///
/// # Errors
/// A GFD does not answer.
pub fn memory(
    fabric: &mut Fabric,
    inventory: &Inventory,
    bindings: &Bindings,
) -> Result<(Memory, Vec<String>), CallError> {
    let mut by_tag: BTreeMap<Uuid, Vec<Piece>> = BTreeMap::new();
    let edges: Vec<Host> =
        requesters(inventory, bindings).iter().map(|requester| requester.edge).collect();
    for gfd in inventory.gfds.iter().filter(|gfd| is_there(inventory, gfd.at)) {
        let way = Way::Pid(gfd.pid);
        let mut rights = Vec::new();
        for edge in &edges {
            let range = GdtRange { rpid: edge.pid, count: DECODERS, start: 0 };
            let answer = fabric.call(way, &Request::GetGdt(range))?;
            let gdt = answer.read::<Gdt<'_>>()?.entries;
            let decoders: Vec<_> = gdt.iter().filter_map(|e| Some((e.index, e.decoder?))).collect();
            if decoders.is_empty() {
                continue;
            }
            let range = SatRange { count: 1, start: edge.pid };
            let answer = fabric.call(way, &Request::GetSat(range))?;
            let vector = answer.read::<SatEntries<'_>>()?.vectors.get(0).unwrap_or(0);
            rights.push((*edge, decoders, vector));
        }
        for group in 0..gfd.groups.min(GROUPS_MAX) {
            let range = GetExtents { owner: group, count: EXTENTS_MAX, start: 0 };
            let answer = fabric.call(way, &Request::GetGfdExtents(range))?;
            for extent in answer.read::<ExtentList<'_>>()?.extents.iter() {
                let fits = |(_, decoder): &&(u8, GdtDecoder)| {
                    decoder.dpa == extent.start && decoder.dpa_len == extent.len
                };
                let of = |(host, decoders, vector): &(Host, Vec<(u8, GdtDecoder)>, u32)| {
                    let (index, decoder) = decoders.iter().find(fits)?;
                    let may = vector & group_bit(group) != 0;
                    may.then_some((*host, *index, *decoder))
                };
                let hosts: Vec<_> = rights.iter().filter_map(of).collect();
                let decoder = hosts.first().map_or(0, |(_, index, _)| *index);
                let part = Part { gfd: gfd.pid, group, decoder, dpa: extent.start.0 };
                by_tag.entry(extent.tag).or_default().push(Piece { part, len: extent.len, hosts });
            }
        }
    }
    let (mut memory, mut odd) = (Memory::default(), Vec::new());
    for (tag, pieces) in by_tag {
        let (share, strange) = share(tag, pieces);
        memory.shares.push(share);
        odd.extend(strange);
    }
    Ok((memory, odd))
}

fn share(tag: Uuid, mut pieces: Vec<Piece>) -> (Share, Option<String>) {
    let way = |piece: &Piece| piece.hosts.first().map_or(0, |(_, _, decoder)| decoder.way);
    pieces.sort_by_key(way);
    let has = |host: &Host| pieces.iter().all(|piece| piece.hosts.iter().any(|(h, ..)| h == host));
    let first = pieces.first().map(|piece| piece.hosts.as_slice()).unwrap_or_default();
    let hosts: Vec<Host> = first.iter().map(|(host, ..)| *host).filter(has).collect();
    let partly =
        pieces.iter().flat_map(|piece| &piece.hosts).find(|(host, ..)| !hosts.contains(host));
    let odd = partly.map(|(host, ..)| {
        format!("host {} has only parts of memory {:?}", host.pid, name_of(&tag))
    });
    let hpa = first.first().map_or(0, |(_, _, decoder)| decoder.hpa.0);
    let granularity = first.first().map_or(0, |(_, _, decoder)| decoder.interleave.granularity());
    let len = pieces.iter().map(|piece| piece.len).sum();
    let parts = pieces.iter().map(|piece| piece.part).collect();
    (Share { tag, hosts, parts, len, hpa, granularity }, odd)
}

/// What hosts and devices show each other, as it was known and still stands; the rest is told.
///
/// # Errors
/// A switch does not answer.
pub fn gim(
    fabric: &mut Fabric,
    inventory: &Inventory,
    believed: Gim,
    fresh: &BTreeSet<Pid>,
) -> Result<(Gim, Vec<String>), CallError> {
    let mut gim = believed;
    let mut said = Vec::new();
    for (name, what) in gim.lacks(fabric, inventory, fresh)? {
        said.push(format!("GIM {name:?} is not as it was: it lacks {what}"));
        gim.grants.retain(|grant| grant.name != name);
    }
    Ok((gim, said))
}

/// Whether a GFD at a port can be asked now.
#[must_use]
pub fn is_there(inventory: &Inventory, at: PortRef) -> bool {
    let switch = inventory.switch(at.switch).filter(|switch| switch.whole);
    let port = switch.and_then(|switch| switch.port(at.port));
    port.is_some_and(|port| port.up && matches!(port.partner, Partner::Gfd(_)))
}

/// Carries what was known over to what was found now. Components that are not there any more stay known, and are down;
/// those that are keep their numbers, so that whatever names one goes on meaning it.
#[must_use]
pub fn merge(kept: &State, now: Inventory) -> State {
    let ids = kept.inventory.by_id().map(|(old, _)| (old, moved(&kept.inventory, &now, old)));
    let ids: BTreeMap<SwitchId, SwitchId> = ids.collect();
    let id = |old: SwitchId| ids.get(&old).copied().unwrap_or(old);
    let at = |old: PortRef| PortRef::new(id(old.switch), old.port);
    let mut places: BTreeMap<SwitchId, Switch> = BTreeMap::new();
    for (old, switch) in kept.inventory.by_id() {
        let mut lost = switch.clone();
        lost.whole = false;
        let from = lost.came.map_or(PortRef::new(SwitchId(0), 0), |came| at(came.from));
        lost.came = Some(ReachedFrom { from, at: lost.came.map_or(0, |came| came.at) });
        for port in &mut lost.ports {
            if let Partner::Switch(far) = &mut port.partner {
                *far = at(*far);
            }
        }
        places.insert(id(old), lost);
    }
    let known = |uuid: Option<Uuid>| {
        let uuid = uuid?;
        kept.inventory.find(&uuid).map(id)
    };
    let mut free = (0..).map(SwitchId::at).filter(|id| !places.contains_key(id) && id.0 > 0);
    let mut numbers: BTreeMap<SwitchId, SwitchId> = BTreeMap::new();
    for (new, switch) in now.by_id() {
        let number = if new == SwitchId(0) { Some(new) } else { known(switch.uuid) };
        if let Some(number) = number.or_else(|| free.next()) {
            numbers.insert(new, number);
        }
    }
    drop(free);
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
        if ends.iter().all(|end| inventory.link_at(*end).is_none()) {
            inventory.links.insert(ends);
            inventory.down.insert(ends);
        }
    }
    let mut bindings = kept.bindings.clone();
    let links = bindings.remote.iter_mut().chain(&mut bindings.cut);
    let bridges = links.flat_map(|link| [&mut link.host.bridge, &mut link.below.bridge]);
    let local = bindings.local.iter_mut().chain(&mut bindings.lost);
    for bridge in bridges.chain(local.map(|local| &mut local.bridge)) {
        bridge.switch = id(bridge.switch);
    }
    let mut memory = kept.memory.clone();
    for host in memory.shares.iter_mut().flat_map(|share| &mut share.hosts) {
        host.switch = id(host.switch);
    }
    let mut gim = kept.gim.clone();
    for grant in &mut gim.grants {
        for edge in grant.from.iter_mut().chain([&mut grant.of]) {
            edge.switch = id(edge.switch);
        }
    }
    let granted = kept.granted.iter().map(|bit| bit.moved(id)).collect();
    State { inventory, bindings, memory, gim, granted }
}

/// The number that a switch of before has now: its own, unless another one is the entry switch now, which is number 0.
fn moved(kept: &Inventory, now: &Inventory, old: SwitchId) -> SwitchId {
    let first = kept.switches.first();
    if first.is_none_or(|first| may_be_entry(first, now)) {
        return old;
    }
    let entry = now.switches.first().and_then(|entry| kept.find(&entry.uuid?));
    match entry {
        Some(entry) if old == entry => SwitchId(0),
        Some(entry) if old == SwitchId(0) => entry,
        Some(_) => old,
        None => SwitchId::at(old.index() + 1),
    }
}

/// What was found, by other numbers; its GFDs go to those that are known.
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

/// Whether the entry switch is the one of before, so that switches have the numbers of before.
#[must_use]
pub fn same_entry(kept: &State, now: &State) -> bool {
    let first = kept.inventory.switches.first();
    first.is_none_or(|first| may_be_entry(first, &now.inventory))
}

fn may_be_entry(old: &Switch, now: &Inventory) -> bool {
    let Some(entry) = now.switches.first() else { return false };
    match (old.uuid, entry.uuid) {
        (Some(old), Some(new)) => old == new,
        _ => old.serial == entry.serial,
    }
}

/// What came of holding what was believed against what the fabric shows.
#[derive(Debug, Default)]
pub struct Reconciled {
    /// Who sees what.
    pub bindings: Bindings,
    /// Who has which memory.
    pub memory: Memory,
    /// What is not as it was.
    pub said: Vec<String>,
    /// What GFDs have forgotten, by tag: it is part of the memory still.
    pub forgotten: Vec<(Uuid, Pid)>,
    /// What switches that answer do not show any more.
    pub unbound: Vec<Binding>,
}

/// What was believed is held against what the fabric shows. The belief stays of what cannot be asked, and of memory that
/// is `wanted`, of the GFDs that show nothing of it, and of which all else is as it was: they have come back empty.
#[must_use]
pub fn compare(
    believed: &State,
    shown: (Bindings, Memory),
    wanted: &dyn Fn(&Uuid, &[Pid]) -> bool,
) -> Reconciled {
    let (mut bindings, mut memory) = shown;
    bindings.cut.clone_from(&believed.bindings.cut);
    bindings.lost.clone_from(&believed.bindings.lost);
    let (mut said, mut forgotten, mut unbound) = (Vec::new(), Vec::new(), Vec::new());
    let inventory = &believed.inventory;
    let answers =
        |bridge: Bridge| inventory.switch(bridge.switch).is_some_and(|switch| switch.whole);
    for local in &believed.bindings.local {
        if bindings.local.iter().any(|one| one.bridge == local.bridge && one.port == local.port) {
            continue;
        }
        if answers(local.bridge) {
            unbound.push(Binding::Local(*local));
        } else {
            bindings.local.push(*local);
        }
    }
    for link in &believed.bindings.remote {
        if bindings.remote.contains(link) {
            continue;
        }
        if answers(link.host.bridge) && answers(link.below.bridge) {
            unbound.push(Binding::Remote(*link));
        } else {
            bindings.remote.push(*link);
        }
    }
    for share in &believed.memory.shares {
        let gone = |part: &Part| {
            let gfd = inventory.gfds.iter().find(|gfd| gfd.pid == part.gfd);
            !gfd.is_some_and(|gfd| is_there(inventory, gfd.at))
        };
        let is_hidden = share.parts.iter().any(gone)
            || share
                .hosts
                .iter()
                .any(|host| !inventory.switch(host.switch).is_some_and(|switch| switch.whole));
        let name = name_of(&share.tag);
        let now = memory.shares.iter().position(|one| one.tag == share.tag);
        let lost = lost(now.and_then(|at| memory.shares.get(at)), share);
        if !is_hidden && !lost.is_empty() && wanted(&share.tag, &lost) {
            forgotten.extend(lost.iter().map(|gfd| (share.tag, *gfd)));
            match now.and_then(|at| memory.shares.get_mut(at)) {
                Some(one) => *one = share.clone(),
                None => memory.shares.push(share.clone()),
            }
            continue;
        }
        match memory.shares.iter().position(|one| one.tag == share.tag) {
            // Nobody has a decoder for it: how it was dealt out is known here only.
            Some(place) if is_hidden || share.hosts.is_empty() => {
                if let Some(one) = memory.shares.get_mut(place) {
                    *one = share.clone();
                }
            }
            None if is_hidden => memory.shares.push(share.clone()),
            None => said.push(format!("memory {name:?} is not there any more")),
            Some(place) => {
                if memory.shares.get(place).is_none_or(|one| !same(one, share)) {
                    said.push(format!("memory {name:?} is not as it was"));
                }
            }
        }
    }
    bindings.local.sort_by_key(|local| local.bridge);
    bindings.remote.sort_by_key(|link| link.host.bridge);
    memory.shares.sort_by_key(|share| share.tag);
    Reconciled { bindings, memory, said, forgotten, unbound }
}

/// The GFDs that show nothing of their part of a share, where what the others show is as it was; none otherwise.
fn lost(now: Option<&Share>, before: &Share) -> Vec<Pid> {
    let (hpa, parts) = now.map_or((before.hpa, &[][..]), |now| (now.hpa, &now.parts[..]));
    let has = |part: &&Part| parts.iter().any(|other| other.gfd == part.gfd);
    let (kept, lost): (Vec<&Part>, Vec<&Part>) = before.parts.iter().partition(has);
    let as_before = kept.into_iter().eq(parts)
        && (parts.is_empty() || before.hosts.is_empty() || hpa == before.hpa)
        && now.is_none_or(|now| parts.is_empty() || now.hosts == before.hosts);
    if as_before { lost.into_iter().map(|part| part.gfd).collect() } else { Vec::new() }
}

/// Whether two shares are the same.
fn same(now: &Share, before: &Share) -> bool {
    let hosts = |share: &Share| {
        let mut pids: Vec<Pid> = share.hosts.iter().map(|host| host.pid).collect();
        pids.sort_unstable();
        pids
    };
    (now.len, now.hpa, &now.parts) == (before.len, before.hpa, &before.parts)
        && hosts(now) == hosts(before)
}
