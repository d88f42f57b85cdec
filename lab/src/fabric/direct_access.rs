//! Software of a host for direct access to memory devices (P2P): its domain, LDST and re-routers.
//!
//! It sends commands to the mailboxes of the host's virtual switches, from the manager's grants and the host's tree.
//!
//! Source: CXL 3.1 section 7.7.9; docs/fabric.md; docs/spec/wire-formats.md §4.3 (5104h, 5105h), §4.5.

use std::collections::BTreeMap;

use serde_json::Value;
use weft_fm::model::text::tag;
use weft_parsers::cci::tables::{EdgeRange, Entries, LdstCaps};
use weft_parsers::cci::{Opcode, Payload as _, Request};
use weft_parsers::fabric::{Bdf, Hpa, ReRouterEntry};
use weft_rpc::Refused;

use super::granted::{Granted, Plan, Target};
use super::host_bringup::{BringupError, Host, MemoryGrants};
use super::host_tree::{device, id, mailbox};
use super::layout::Part;
use super::layout::p2p::Place;
use super::ldst_tables::{self, Direct};
use super::topology::{DeviceKind, Topology};
use crate::endpoint::number::{Id, Num};
use crate::endpoint::{Answer, Command};

/// Id of a host's own requests: that of its root complex.
const HOST: Id = Id(Bdf::from_bits(0));

/// Whether requesters of a memory device must name their PCIe segment, because two of them may have the same id. True
/// if another hierarchy may access it now or later, so that a later grant changes nothing for the others.
fn across(Plan { topology, layout }: Plan<'_>, granted: &Granted, to: Target) -> bool {
    let Some(own) = layout.place_of(to.0, to.1).map(|place| place.host) else { return false };
    let is_far = |part: Part| layout.place(part).is_some_and(|place| place.host != own);
    let mut from = granted.p2p.iter().filter(|one| one.to == to).flat_map(|one| &one.from);
    let in_domain = topology.hosts.get(own).is_some_and(|host| host.domain.is_some());
    in_domain || from.any(|(part, _)| is_far(*part))
}

/// Ids of all requesters of memory devices by name, from their hosts' trees; `ask` sends a command to a host. A
/// requester that is not found, because its link is down, is left out.
pub fn requester_ids(
    plan: Plan<'_>,
    given: &MemoryGrants,
    mut ask: impl FnMut(usize, &Command) -> Result<Answer, Refused>,
) -> BTreeMap<String, Id> {
    let Plan { topology, layout } = plan;
    let granted = Granted::new(plan, &given.gim, &given.p2p);
    let mut trees: BTreeMap<usize, Option<Value>> = BTreeMap::new();
    let mut ids = BTreeMap::new();
    for (part, _) in granted.p2p.iter().flat_map(|range| &range.from) {
        let Some(place) = layout.place(*part) else { continue };
        if place.host >= topology.hosts.len() {
            continue;
        }
        if place.vppb == 0 {
            ids.insert(layout.name(*part).to_owned(), HOST);
            continue;
        }
        let tree =
            // One tree for each host, as enumeration results do not change meanwhile.
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
    /// The tree of its last enumeration.
    pub(super) fn tree(&self, topology: &Topology) -> Result<Value, BringupError> {
        match (self.ask)(&Command::Tree {}).map_err(|refused| self.fail(topology, refused))? {
            Answer::Tree { tree, .. } => Ok(tree),
            other => {
                let text = format!("expected what it found, found {other:?}");
                Err(self.fail(topology, Refused::because(text)))
            }
        }
    }

    /// The mailbox of the virtual switch below a bridge; `None` for the host's own GAE, which is the default.
    fn mailbox(
        &self,
        topology: &Topology,
        tree: &Value,
        below: Option<u8>,
    ) -> Result<Option<Num>, BringupError> {
        let Some(vppb) = below else { return Ok(None) };
        mailbox(tree, below).map(Some).ok_or_else(|| {
            let text = format!("it finds no mailbox at the switch below vPPB {vppb}");
            self.fail(topology, Refused::because(text))
        })
    }

    /// Sets its domain secret at its virtual switch, once: it cannot be changed, and hosts cannot read it.
    pub(super) fn join_domain(&self, plan: Plan<'_>) -> Result<(), BringupError> {
        let Plan { topology, layout } = plan;
        let domain = topology.hosts.get(self.at).and_then(|host| host.domain.as_ref());
        let (Some(domain), true) = (domain, layout.has_edge(self.at)) else { return Ok(()) };
        let secret = tag(domain).map_err(|text| self.fail(topology, Refused::bad_request(text)))?;
        let state = self.gae(topology, Opcode::GET_SV_STATE, Vec::new(), None)?;
        if state.first() == Some(&0) {
            let request = Request::SetSv(secret);
            self.gae(topology, request.opcode(), secret.to_vec(), None)?;
        }
        Ok(())
    }

    /// Sets the re-routers of its memory devices, and then the LDST of its accelerators, to the manager's grants and
    /// nothing else.
    pub(super) fn map_direct(
        &self,
        plan: Plan<'_>,
        granted: &Granted,
        ids: &BTreeMap<String, Id>,
    ) -> Result<(), BringupError> {
        let Plan { topology, layout } = plan;
        let tree = self.tree(topology)?;
        let edges = layout.edges(self.at);
        let places = edges.iter().filter_map(|edge| {
            let place = Place { host: self.at, below: edge.below, vppb: edge.vppb };
            Some(((edge.part?, edge.ld), place))
        });
        let (targets, requesters): (Vec<_>, Vec<_>) =
            places.partition(|((part, _), _)| is_target(topology, *part));
        let is_there = |place: Place| place.vppb == 0 || device(&tree, place).is_some();
        // Re-routers first: a completion without a route back would be lost. Nothing is behind a link that is down.
        for (part, place) in targets.into_iter().filter(|(_, place)| is_there(*place)) {
            let block = self.mailbox(topology, &tree, place.below)?;
            let entries = back(plan, part, granted, ids);
            // Reading first saves four commands for each device without direct access, which most are.
            if entries.is_empty() && !self.has_re_routes(topology, place.vppb, block)? {
                continue;
            }
            for (opcode, input) in ldst_tables::re_router(place.vppb, &entries) {
                self.gae(topology, opcode, input, block)?;
            }
        }
        for ((part, _), place) in requesters.into_iter().filter(|(_, place)| is_there(*place)) {
            let block = self.mailbox(topology, &tree, place.below)?;
            let all = direct(plan, part, granted);
            if all.is_empty() && !self.has_ldst(topology, place.vppb, block)? {
                continue;
            }
            let commands = ldst_tables::ldst(place.vppb, &all);
            for (opcode, input) in commands.map_err(|source| self.no_map(topology, source))? {
                self.gae(topology, opcode, input, block)?;
            }
        }
        Ok(())
    }

    /// Whether the re-router of a bridge has entries; they are set from index 0 on.
    fn has_re_routes(
        &self,
        topology: &Topology,
        vppb: u8,
        block: Option<Num>,
    ) -> Result<bool, BringupError> {
        let request = Request::GetReRouter(EdgeRange { vppb, count: 1, start: 0 });
        let (opcode, input) = ldst_tables::command(&request);
        let output = self.gae(topology, opcode, input, block)?;
        let entries = Entries::<ReRouterEntry>::parse(&output);
        let entries = entries.map_err(|error| self.unread(topology, vppb, &error))?;
        Ok(entries.entries.iter().any(|entry| entry != ldst_tables::NO_ROUTE))
    }

    /// Whether the LDST of a bridge has a window.
    fn has_ldst(
        &self,
        topology: &Topology,
        vppb: u8,
        block: Option<Num>,
    ) -> Result<bool, BringupError> {
        let request = Request::GetLdstCaps(vppb);
        let (opcode, input) = ldst_tables::command(&request);
        let output = self.gae(topology, opcode, input, block)?;
        let caps = LdstCaps::parse(&output);
        let caps = caps.map_err(|error| self.unread(topology, vppb, &error))?;
        Ok(caps.limit != Hpa(0))
    }
}

/// Whether the part at a bridge is a target of direct access, and not a requester.
fn is_target(topology: &Topology, part: Part) -> bool {
    match part {
        Part::Device(at) => {
            topology.devices.get(at).is_some_and(|device| device.kind == DeviceKind::Memory)
        }
        Part::Hbr(_) => true,
        Part::Host(_) | Part::Switch(_) | Part::Gfd(_) => false,
    }
}

/// The memory devices that a part accesses.
fn direct(plan: Plan<'_>, part: Part, granted: &Granted) -> Vec<Direct> {
    let own = granted.p2p.iter().filter(|one| one.from.iter().any(|(from, _)| *from == part));
    let mut all: Vec<Direct> = Vec::new();
    for one in own {
        let (hpa, len, target, across) = (one.hpa, one.len, one.pid, across(plan, granted, one.to));
        // Memory of one device under several names is in the same segments.
        match all.iter_mut().find(|other| (other.target, other.hpa) == (target, hpa)) {
            Some(other) => other.len = other.len.max(len),
            None => all.push(Direct { hpa, len, target, across }),
        }
    }
    all
}

/// The requesters that get completions of a memory device.
fn back(
    plan: Plan<'_>,
    to: Target,
    granted: &Granted,
    ids: &BTreeMap<String, Id>,
) -> Vec<ReRouterEntry> {
    let Plan { topology, layout } = plan;
    let across = across(plan, granted, to);
    let mut all: Vec<ReRouterEntry> = Vec::new();
    let own = granted.p2p.iter().filter(|one| one.to == to);
    for (who, dpid) in own.flat_map(|one| &one.from) {
        let (Some(id), Some(place)) = (ids.get(layout.name(*who)), layout.place(*who)) else {
            continue;
        };
        let host = topology.hosts.get(place.host);
        let segment = across.then(|| host.map_or(0, |host| host.segment));
        let entry = ReRouterEntry { dpid: *dpid, segment, requester: id.0 };
        if !all.contains(&entry) {
            all.push(entry);
        }
    }
    all
}
