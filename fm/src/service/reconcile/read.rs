//! Reads bindings, memory and GIM from the fabric.
//!
//! Bindings are read from the bridges of switches, memory from decoders, rights and extents of GFDs, GIM from bits at
//! edges. Nothing is changed; each result comes with a list of oddities.
//!
//! Source: docs/spec/cxl-fabric.md "State"; docs/spec/wire-formats.md §4.3, §4.7.

use std::collections::{BTreeMap, BTreeSet};

use weft_parsers::cci::dcd::{ExtentList, GetExtents};
use weft_parsers::cci::gfd_access::{Gdt, GdtDecoder, GdtRange, SAT_NOTIFY, SatEntries, SatRange};
use weft_parsers::cci::{Request, Uuid};
use weft_parsers::fabric::Pid;

use super::is_there;
use crate::cci::{CallError, CciSession, Way};
use crate::components::bind::{self, Bindings, Bridge, BridgeState, LinkEnd, Local, Remote};
use crate::components::gim::Gim;
use crate::components::memory::{DECODERS, GROUPS_MAX, Host, Memory, Part, Share, group_bit};
use crate::model::graph::SwitchId;
use crate::model::inventory::{Gfd, Inventory, TargetKind};
use crate::model::text::name_of;
use crate::state::names::{hosts, requesters};

/// Extents read from a group's list.
const EXTENTS_MAX: u32 = 64;

/// Reads all bindings; links that only one end shows are oddities.
///
/// # Errors
/// A switch does not answer.
pub fn bindings(
    fabric: &mut CciSession,
    inventory: &Inventory,
    believed: &Bindings,
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
    found.remote = links(inventory, believed, &mut ends);
    odd.extend(ends.iter().map(|(bridge, pid)| {
        format!("{bridge} is bound to PID {pid}, but nothing, or more than one bridge, is bound to it from there")
    }));
    Ok((found, odd))
}

/// Virtual links between bridges bound to each other's PID; their ends are removed from `ends`. Where bridges can be
/// paired in several ways, the believed pairing is taken; without one they stay in `ends`.
fn links(
    inventory: &Inventory,
    believed: &Bindings,
    ends: &mut BTreeMap<Bridge, Pid>,
) -> Vec<Remote> {
    let shown = |link: &&Remote, ends: &BTreeMap<Bridge, Pid>| {
        ends.get(&link.host.bridge) == Some(&link.below.pid)
            && ends.get(&link.below.bridge) == Some(&link.host.pid)
    };
    let mut links = Vec::new();
    // Believed links first, as a switch shows a PID only, not which bridge of that PID it is bound to.
    for link in believed.links() {
        if shown(&link, ends) {
            ends.remove(&link.host.bridge);
            ends.remove(&link.below.bridge);
            links.push(*link);
        }
    }
    let pairs = pairs(inventory, ends);
    // Of the rest, only pairs that share no end with another pair are certain.
    for link in &pairs {
        let shares = |other: &&Remote| {
            other.host.bridge == link.host.bridge || other.below.bridge == link.below.bridge
        };
        if pairs.iter().filter(shares).count() == 1 {
            ends.remove(&link.host.bridge);
            ends.remove(&link.below.bridge);
            links.push(*link);
        }
    }
    links
}

/// All pairs of bridges that may be the ends of a link.
fn pairs(inventory: &Inventory, ends: &BTreeMap<Bridge, Pid>) -> Vec<Remote> {
    let fabric_pid = |at: SwitchId, pid: Pid| {
        inventory.targets(at).iter().any(|t| t.kind == TargetKind::Fabric && t.pid == pid)
    };
    let mut pairs = Vec::new();
    for edge in hosts(inventory) {
        let own = |bridge: &Bridge| (bridge.switch, bridge.vcs) == (edge.switch, edge.vcs);
        for (&bridge, &to) in ends.iter().filter(|(bridge, _)| own(bridge)) {
            let far = ends.iter().filter(|(far, pid)| {
                **pid == edge.pid && far.switch != bridge.switch && fabric_pid(far.switch, to)
            });
            pairs.extend(far.map(|(&below, &pid)| Remote {
                host: LinkEnd { bridge, pid },
                below: LinkEnd { bridge: below, pid: to },
            }));
        }
    }
    pairs
}

/// Capacity that one GFD has under one tag.
struct Piece {
    part: Part,
    len: u64,
    /// Hosts with a decoder and the right to it, with the decoder's number.
    hosts: Vec<(Host, u8, GdtDecoder)>,
    /// Whether the GFD notifies all these hosts.
    notify: bool,
}

/// A requester with decoders at a GFD: its decoders by number, and its rights, a bit for each group.
struct Rights {
    host: Host,
    decoders: Vec<(u8, GdtDecoder)>,
    groups: u32,
}

/// Reads all shares of memory.
///
/// # Errors
/// A GFD does not answer.
pub fn memory(
    fabric: &mut CciSession,
    inventory: &Inventory,
    bindings: &Bindings,
) -> Result<(Memory, Vec<String>), CallError> {
    let mut by_tag: BTreeMap<Uuid, Vec<Piece>> = BTreeMap::new();
    let edges: Vec<Host> =
        requesters(inventory, bindings).iter().map(|requester| requester.edge).collect();
    for gfd in inventory.gfds.iter().filter(|gfd| is_there(inventory, gfd.at)) {
        let rights = rights(fabric, gfd.pid, &edges)?;
        for (tag, piece) in pieces(fabric, gfd, &rights)? {
            by_tag.entry(tag).or_default().push(piece);
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

/// Reads decoders and rights of `edges` at a GFD.
fn rights(fabric: &mut CciSession, gfd: Pid, edges: &[Host]) -> Result<Vec<Rights>, CallError> {
    let (way, mut rights) = (Way::Pid(gfd), Vec::new());
    for &host in edges {
        let range = GdtRange { rpid: host.pid, count: DECODERS, start: 0 };
        let answer = fabric.call(way, &Request::GetGdt(range))?;
        let gdt = answer.read::<Gdt<'_>>()?.entries;
        let decoders: Vec<_> = gdt.iter().filter_map(|e| Some((e.index, e.decoder?))).collect();
        if decoders.is_empty() {
            // Without a decoder there is nothing to reach, whatever SAT says; this saves a request for most pairs.
            continue;
        }
        let range = SatRange { count: 1, start: host.pid };
        let answer = fabric.call(way, &Request::GetSat(range))?;
        let groups = answer.read::<SatEntries<'_>>()?.vectors.get(0).unwrap_or(0);
        rights.push(Rights { host, decoders, groups });
    }
    Ok(rights)
}

/// Reads the extents of a GFD, and which hosts have them.
fn pieces(
    fabric: &mut CciSession,
    gfd: &Gfd,
    rights: &[Rights],
) -> Result<Vec<(Uuid, Piece)>, CallError> {
    let mut pieces = Vec::new();
    for group in 0..gfd.groups.min(GROUPS_MAX) {
        let range = GetExtents { owner: group, count: EXTENTS_MAX, start: 0 };
        let answer = fabric.call(Way::Pid(gfd.pid), &Request::GetGfdExtents(range))?;
        for extent in answer.read::<ExtentList<'_>>()?.extents.iter() {
            // An extent and a decoder belong together by place and length: a decoder has no tag.
            let fits = |(_, decoder): &&(u8, GdtDecoder)| {
                decoder.dpa == extent.start && decoder.dpa_len == extent.len
            };
            let of = |one: &Rights| {
                let (index, decoder) = one.decoders.iter().find(fits)?;
                let may = one.groups & group_bit(group) != 0;
                may.then_some((one.host, *index, *decoder))
            };
            let hosts: Vec<_> = rights.iter().filter_map(of).collect();
            let is_told = |(host, ..): &(Host, u8, GdtDecoder)| {
                rights.iter().any(|one| one.host == *host && one.groups & SAT_NOTIFY != 0)
            };
            let notify = !hosts.is_empty() && hosts.iter().all(is_told);
            let decoder = hosts.first().map_or(0, |(_, index, _)| *index);
            let part = Part { gfd: gfd.pid, group, decoder, dpa: extent.start.0 };
            pieces.push((extent.tag, Piece { part, len: extent.len, hosts, notify }));
        }
    }
    Ok(pieces)
}

/// Puts the parts of a tag together to a share; hosts that have only some parts are an oddity.
fn share(tag: Uuid, mut pieces: Vec<Piece>) -> (Share, Option<String>) {
    let way = |piece: &Piece| piece.hosts.first().map_or(0, |(_, _, decoder)| decoder.way);
    // The order of the parts is that of the ways, which only the decoders tell.
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
    let notify = pieces.iter().all(|piece| piece.notify);
    (Share { tag, hosts, parts, len, hpa, granularity, notify }, odd)
}

/// The believed GIM, without grants whose rights are missing; those are reported.
///
/// # Errors
/// A switch does not answer.
pub fn gim(
    fabric: &mut CciSession,
    inventory: &Inventory,
    believed: Gim,
    fresh: &BTreeSet<Pid>,
) -> Result<(Gim, Vec<String>), CallError> {
    // VTV bits do not tell which grant they are for, so GIM can be checked but not read.
    let mut gim = believed;
    let mut said = Vec::new();
    for (name, what) in gim.lacks(fabric, inventory, fresh)? {
        said.push(format!("GIM {name:?} is not as it was: it lacks {what}"));
        gim.grants.retain(|grant| grant.name != name);
    }
    Ok((gim, said))
}
