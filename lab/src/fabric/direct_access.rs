//! What a host's software does for devices that access memory devices directly (P2P): its domain, LDST and re-routers.
//!
//! Shape: what the fabric manager has given, and the tree of the host -> commands for the mailboxes of its virtual switches.
//! Units: bytes.
//! Source: CXL 3.1 section 7.7.9; docs/fabric.md; docs/spec/wire-formats.md §4.3 (5104h, 5105h), §4.5.

use std::collections::BTreeMap;

use serde_json::Value;
use weft_fm::service::request::P2pState;
use weft_fm::text::tag;
use weft_parsers::cci::{Opcode, Request};
use weft_parsers::fabric::{Bdf, Pid, ReRouterEntry};
use weft_rpc::Refused;

use super::host_bringup::{BringupError, Host, MemoryGrants};
use super::host_tree::{device, id, mailbox};
use super::layout::p2p::{P2pRange, Place};
use super::layout::{Layout, Part};
use super::ldst_tables::{self, Direct};
use super::topology::Topology;
use crate::endpoint::number::{Id, Num};
use crate::endpoint::{Answer, Command};

/// What a bridge leads to: a part, or a logical device of it.
type Target = (Part, Option<u8>);

/// The id of a host's own requests: that of its root complex.
const HOST: Id = Id(Bdf::from_bits(0));

/// Whether a memory device is accessed from another hierarchy: then all its requesters name their PCIe segment, as two of
/// them may have the same id.
fn across(layout: &Layout, to: Target) -> bool {
    let host = |part: Target| layout.place_of(part).map(|place| place.host);
    let own = layout.p2p.iter().filter(|range| range.target() == to);
    own.flat_map(|range| &range.from).any(|from| host((*from, None)) != host(to))
}

/// The ids of all who access memory devices, as their hosts' trees have them, by name; `ask` gives a host a command. Who is
/// not found, as its link is down, is left out.
pub fn requester_ids(
    (topology, layout): (&Topology, &Layout),
    mut ask: impl FnMut(usize, &Command) -> Result<Answer, Refused>,
) -> BTreeMap<String, Id> {
    let mut trees: BTreeMap<usize, Option<Value>> = BTreeMap::new();
    let mut ids = BTreeMap::new();
    for part in layout.p2p.iter().flat_map(|range| &range.from) {
        let Some(place) = layout.place(*part) else { continue };
        if place.host >= topology.hosts.len() {
            continue;
        }
        if place.vppb == 0 {
            ids.insert(layout.name(*part).to_owned(), HOST);
            continue;
        }
        let tree =
            trees.entry(place.host).or_insert_with(|| match ask(place.host, &Command::Tree {}) {
                Ok(Answer::Tree { tree, .. }) => Some(tree),
                _ => None,
            });
        let found = tree.as_ref().and_then(|tree| device(tree, place)).and_then(id);
        ids.extend(found.map(|id| (layout.name(*part).to_owned(), id)));
    }
    ids
}

impl Host<'_> {
    /// What it found.
    pub(super) fn tree(&self, topology: &Topology) -> Result<Value, BringupError> {
        match (self.ask)(&Command::Tree {}).map_err(|refused| self.fail(topology, refused))? {
            Answer::Tree { tree, .. } => Ok(tree),
            other => {
                let text = format!("expected what it found, found {other:?}");
                Err(self.fail(topology, Refused::because(text)))
            }
        }
    }

    fn mailbox(
        &self,
        (topology, tree): (&Topology, &Value),
        below: Option<u8>,
    ) -> Result<Num, BringupError> {
        mailbox(tree, below).ok_or_else(|| {
            let at =
                below.map_or("its switch".to_owned(), |it| format!("the switch below vPPB {it}"));
            self.fail(topology, Refused::because(format!("it finds no mailbox at {at}")))
        })
    }

    /// Tells its virtual switch which domain it is of, once: the secret cannot be changed, and not be read by hosts.
    pub(super) fn join_domain(
        &self,
        (topology, layout): (&Topology, &Layout),
    ) -> Result<(), BringupError> {
        let domain = topology.hosts.get(self.at).and_then(|host| host.domain.as_ref());
        let (Some(domain), true) = (domain, layout.has_edge(self.at)) else { return Ok(()) };
        let secret = tag(domain).map_err(|text| self.fail(topology, Refused::bad_request(text)))?;
        let state = self.gae(topology, (Opcode::GET_SV_STATE, Vec::new()), None)?;
        if state.first() == Some(&0) {
            let request = Request::SetSv(secret);
            self.gae(topology, (request.opcode(), secret.to_vec()), None)?;
        }
        Ok(())
    }

    /// Sets the re-routers of its memory devices, and then LDST of its accelerators: what the manager has given, and nothing
    /// else.
    pub(super) fn map_direct(
        &self,
        (topology, layout): (&Topology, &Layout),
        given: &MemoryGrants,
    ) -> Result<(), BringupError> {
        let mine = |part: &Target| layout.place_of(*part).filter(|place| place.host == self.at);
        let targets = layout.p2p.iter().map(P2pRange::target);
        let requesters = layout.p2p.iter().flat_map(|range| range.from.iter().copied());
        let all: Vec<(bool, Target, Place)> = targets
            .map(|to| (true, to))
            .chain(requesters.map(|from| (false, (from, None))))
            .filter_map(|(is_target, part)| Some((is_target, part, mine(&part)?)))
            .collect();
        if all.is_empty() {
            return Ok(());
        }
        let tree = self.tree(topology)?;
        for (at, (is_target, part, place)) in all.iter().enumerate() {
            if all.iter().take(at).any(|(_, other, _)| other == part) {
                continue;
            }
            if place.vppb > 0 && device(&tree, *place).is_none() {
                continue; // its link is down: it has nothing to find, and nobody finds it
            }
            let commands = if *is_target {
                ldst_tables::re_router(place.vppb, &back((topology, layout), *part, given))
            } else {
                let found = ldst_tables::ldst(place.vppb, &direct(layout, part.0, given));
                found.map_err(|source| self.no_map(topology, source))?
            };
            let block = self.mailbox((topology, &tree), place.below)?;
            for command in commands {
                self.gae(topology, command, Some(block))?;
            }
        }
        Ok(())
    }
}

/// What of the file the manager has given: each with the PID of the memory device and those of who accesses it, by name.
fn shown<'a>(
    layout: &'a Layout,
    given: &'a MemoryGrants,
) -> impl Iterator<Item = (&'a P2pRange, Pid, BTreeMap<&'a str, Pid>)> {
    layout.p2p.iter().filter_map(|range| {
        let is_it = |row: &&weft_fm::service::request::P2pRow| {
            row.name == range.name && row.state == P2pState::Given
        };
        let row = given.p2p.iter().find(is_it)?;
        let pid = |bits| Pid::from_low_bits(bits);
        let from = row.from.iter().map(|who| (who.name.as_str(), pid(who.pid))).collect();
        Some((range, pid(row.to.pid), from))
    })
}

/// What a device accesses.
fn direct(layout: &Layout, part: Part, given: &MemoryGrants) -> Vec<Direct> {
    let own = shown(layout, given).filter(|(_, _, from)| from.contains_key(layout.name(part)));
    let mut all: Vec<Direct> = Vec::new();
    for (range, target, _) in own {
        let (hpa, len, across) = (range.hpa, range.len, across(layout, range.target()));
        // Memory of one device under several names is in the same segments.
        match all.iter_mut().find(|other| (other.target, other.hpa) == (target, hpa)) {
            Some(other) => other.len = other.len.max(len),
            None => all.push(Direct { hpa, len, target, across }),
        }
    }
    all
}

/// Who gets completions of a memory device.
fn back(
    (topology, layout): (&Topology, &Layout),
    part: Target,
    given: &MemoryGrants,
) -> Vec<ReRouterEntry> {
    let across = across(layout, part);
    let mut all: Vec<ReRouterEntry> = Vec::new();
    for (range, _, from) in shown(layout, given).filter(|(range, ..)| range.target() == part) {
        for who in &range.from {
            let name = layout.name(*who);
            let (Some(dpid), Some(id), Some(place)) =
                (from.get(name), given.ids.get(name), layout.place(*who))
            else {
                continue;
            };
            let host = topology.hosts.get(place.host);
            let segment = across.then(|| host.map_or(0, |host| host.segment));
            let entry = ReRouterEntry { dpid: *dpid, segment, requester: id.0 };
            if !all.contains(&entry) {
                all.push(entry);
            }
        }
    }
    all
}
