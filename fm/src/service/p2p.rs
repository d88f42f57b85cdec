//! P2P by request (direct P2P to HDM), and the domains of the hosts involved.
//!
//! Names are resolved to a [`Grant`] for [`crate::components::p2p::P2p`]; secrets of virtual switches decide whether it is
//! [`Unproved`].
//!
//! Source: CXL 3.1 section 7.7.9; docs/spec/wire-formats.md §4.3 (5106h, 5107h); docs/fm.md.

use std::collections::{BTreeMap, BTreeSet};

use weft_parsers::cci::Request as Command;
use weft_parsers::cci::Uuid;
use weft_rpc::Refused;

use super::costs::at_edges;
use super::lds::LdRequests;
use super::memory::MemoryRequests;
use super::request::{NamedPid, P2pRow, P2pState, Request};
use super::{refuse, with_causes};
use crate::cci::{CallError, Way};
use crate::components::edge::EdgeContext;
use crate::components::memory::Host;
use crate::components::memory::map::Beside;
use crate::components::p2p::{DevicePart, Grant, P2p, Unproved, Waiting};
use crate::components::window::WindowError;
use crate::model::graph::SwitchId;
use crate::model::inventory::DiscoveredSwitch;
use crate::state::desired::DesiredP2p;
use crate::state::names::Names;

/// A virtual switch, by switch and number.
type Place = (SwitchId, u8);

/// Resolves a wanted P2P in a fabric.
pub(super) fn grant(names: &Names<'_>, wanted: &DesiredP2p) -> Result<Grant, String> {
    let bound = |text: &String| -> Result<Host, String> {
        let edge = names.host(text)?;
        match names.virtual_hierarchy(edge) {
            Some(_) => Ok(edge),
            None => Err(format!(
                "p2p-bound: {text} is in no host's hierarchy: bind it, and the virtual switch that it is in"
            )),
        }
    };
    let members = wanted.from.iter().map(bound).collect::<Result<Vec<_>, _>>()?;
    let (owner, ld) = match names.logical_device(&wanted.to)? {
        Some((edge, ld)) => (edge, Some(ld)),
        None => (bound(&wanted.to)?, None),
    };
    // The size of a logical device is read from the device: the file has that of the whole.
    let memory = names.device_memory(owner).filter(|_| ld.is_none());
    if let Some(memory) = memory {
        has_room(&wanted.to, wanted.size, memory)?;
    }
    let (name, hpa, len) = (wanted.name.clone(), wanted.hpa, wanted.size);
    Ok(Grant { name, owner, members, hpa, len, policy: DevicePart { ld } })
}

/// Checks that a device has the memory to be accessed.
fn has_room(to: &str, size: u64, memory: u64) -> Result<(), String> {
    if memory == 0 {
        return Err(format!(
            "p2p-memory-device: {to} has no memory that its host manages (HDM): name a memory device"
        ));
    }
    if size > memory {
        return Err(format!(
            "p2p-within-device: {to} has {memory:#x} bytes: expected a size of at most as many, found {size:#x}"
        ));
    }
    Ok(())
}

/// Secrets of virtual switches, each read once.
#[derive(Default)]
struct Secrets(BTreeMap<Place, Option<Uuid>>);

/// Rows of all P2P, in force or waiting.
pub(super) fn rows(names: &Names<'_>, p2p: &P2p) -> Vec<P2pRow> {
    let who = |edge: &Host| NamedPid::of(names, *edge);
    let row = |grant: &Grant, why: Option<&Unproved>| P2pRow {
        name: grant.name.clone(),
        to: grant.policy.ld.map_or_else(
            || who(&grant.owner),
            |ld| {
                let pid = grant.owner.pid.bits();
                NamedPid { name: names.name_of_ld(grant.owner, ld), pid }
            },
        ),
        from: grant.members.iter().map(who).collect(),
        hpa: grant.hpa,
        size: grant.len,
        state: match why {
            None => P2pState::Given,
            Some(Unproved::NoSecret(_)) => P2pState::Waits,
            Some(Unproved::Differ(..)) => P2pState::Refused,
        },
        why: why.map(ToString::to_string),
    };
    let given = p2p.grants.iter().map(|grant| row(grant, None));
    let waiting = p2p.waiting.iter().map(|one| row(&one.grant, Some(&one.why)));
    given.chain(waiting).collect()
}

impl MemoryRequests<'_> {
    /// Whether a request changes P2P.
    pub fn is_p2p(&self, request: &Request) -> bool {
        match request {
            Request::AddP2p(_) => true,
            Request::Release { name }
            | Request::Revoke { name, .. }
            | Request::Grant { name, .. } => self.grants.p2p.known(name).is_some(),
            _ => false,
        }
    }

    /// Carries out a P2P request; returns lines for the answer.
    pub fn p2p_request(&mut self, request: &Request) -> Result<Vec<String>, Refused> {
        match request {
            Request::AddP2p(wanted) => self.add_p2p(wanted),
            Request::Release { name } => self.release_p2p(name),
            Request::Revoke { name, host } => self.revoke_p2p(name, host),
            Request::Grant { name, host } => self.grant_p2p(name, host),
            _ => Err(Refused::bad_request("the request is not about direct access")),
        }
    }

    /// Makes a P2P; returns lines for the answer.
    fn add_p2p(&mut self, wanted: &DesiredP2p) -> Result<Vec<String>, Refused> {
        self.is_free(&wanted.name)?;
        let grant = self.names(|names| grant(&names, wanted))?;
        let (cci, desired, board) = (&mut *self.cci, self.desired, self.board);
        let mut lds = LdRequests { cci, desired, running: self.running, board };
        if let Some(memory) = lds.memory_of(&wanted.to, grant.policy.ld)? {
            has_room(&wanted.to, wanted.size, memory).map_err(Refused::because)?;
        }
        self.check_p2p(&grant).map_err(refuse)?;
        // By command there is no waiting: a client is told at once which host has set no secret.
        let proved = self.proved(&grant, &mut Secrets::default()).map_err(refuse)?;
        proved.map_err(refuse)?;
        let count = grant.members.len();
        self.change_p2p(|p2p, means| p2p.add(means, grant)).map_err(refuse)?;
        let who = if count == 1 { "1 device accesses" } else { &format!("{count} devices access") };
        Ok(vec![format!("{who} {} directly, as {:?}", wanted.to, wanted.name)])
    }

    /// Grants a P2P to one more requester.
    fn grant_p2p(&mut self, name: &str, from: &str) -> Result<Vec<String>, Refused> {
        let edge = self.names(|names| {
            let edge = names.host(from)?;
            names.virtual_hierarchy(edge).map(|_| edge).ok_or_else(|| {
                format!("p2p-bound: {from} is in no host's hierarchy: bind it first")
            })
        })?;
        let beside = self.beside_p2p(edge);
        let more = self.grants.p2p.check_one_more(beside, name, edge).map_err(refuse)?;
        let proved = self.proved(&more, &mut Secrets::default()).map_err(refuse)?;
        proved.map_err(refuse)?;
        let to = more.owner.pid;
        self.change_p2p(|p2p, means| p2p.extend(means, more)).map_err(refuse)?;
        Ok(vec![format!("{from} accesses PID {to} directly, as {name:?}")])
    }

    /// Revokes a P2P from all requesters, and forgets it.
    fn release_p2p(&mut self, name: &str) -> Result<Vec<String>, Refused> {
        self.change_p2p(|p2p, means| p2p.release(means, name)).map_err(refuse)?;
        self.clear_p2p_errors(name);
        Ok(vec![format!("P2P {name:?} is released")])
    }

    /// Revokes a P2P from one requester; further lines tell who still gets through.
    fn revoke_p2p(&mut self, name: &str, from: &str) -> Result<Vec<String>, Refused> {
        let edge = self.names(|names| names.host(from))?;
        self.change_p2p(|p2p, means| p2p.revoke(means, name, edge)).map_err(refuse)?;
        let mut said = vec![format!("P2P {name:?} is revoked from {from}")];
        if self.grants.p2p.known(name).is_some_and(|grant| grant.members.is_empty()) {
            said.push(format!(
                "nobody has it any more: weft fm grant {name} DEVICE gives it again, weft fm p2p remove {name} ends it"
            ));
        }
        // LAV belongs to a virtual switch, not to one of its ports.
        let to = self.grants.p2p.known(name).map(|grant| grant.owner.pid);
        if let Some(other) = to.and_then(|to| self.grants.p2p.sharer(to, edge)) {
            said.push(format!(
                "its edge still lets its requests through, as PID {other} of the same virtual switch has access, \
                 until the host clears its LDST"
            ));
        }
        Ok(said)
    }

    /// Makes a P2P of the wanted state, or records why it waits.
    pub fn apply_desired_p2p(&mut self, wanted: &DesiredP2p) -> Result<(), String> {
        let grant = grant(&Names::new(self.desired, self.running), wanted)?;
        if let Some(own) = self.grants.p2p.find(&wanted.name) {
            return own.check_wanted(&grant);
        }
        // Decided anew below; the waiting one would be in the way of the check.
        let waited = self.grants.p2p.forget_waiting(&wanted.name);
        // One that does not fit any more is gone: `watch_domains` looks at domains alone before it gives what waits.
        self.check_p2p(&grant).map_err(|error| with_causes(&error))?;
        let waited = waited.filter(|one| one.grant == grant);
        let done = self.prove_and_add(grant);
        // A switch that did not answer has proved nothing: what waited goes on waiting, and is looked at again.
        if let (Err(_), Some(Waiting { grant, why })) = (&done, waited)
            && self.grants.p2p.known(&wanted.name).is_none()
        {
            self.grants.p2p.wait(grant, why);
        }
        done
    }

    /// Gives a P2P that was checked, or lets it wait until its hosts are of one domain.
    fn prove_and_add(&mut self, grant: Grant) -> Result<(), String> {
        let name = grant.name.clone();
        let proved = self.proved(&grant, &mut Secrets::default());
        if let Err(why) = proved.map_err(|error| error.with_causes())? {
            let (text, waits) = (why.to_string(), matches!(why, Unproved::NoSecret(_)));
            self.grants.p2p.wait(grant, why);
            self.board.record_event(format!("P2P {name:?} waits: {text}"));
            return if waits { Ok(()) } else { Err(text) };
        }
        self.change_p2p(|p2p, means| p2p.add(means, grant)).map_err(|error| with_causes(&error))?;
        self.board.record_event(format!("P2P {name:?} given"));
        Ok(())
    }

    /// Compares the domains of all P2P between hierarchies: a grant whose hosts are no longer of one domain loses its
    /// rights, and a waiting one gets them once they are. Returns whether that has changed anything to be stored.
    pub fn watch_domains(&mut self) -> bool {
        let (mut secrets, before) = (Secrets::default(), self.grants.p2p.clone());
        // Over a copy, as suspending a grant changes the list.
        for grant in &before.grants {
            // Goes on where it is proved, or a switch is silent: rights are not taken for lack of an answer.
            let Ok(Err(why)) = self.proved(grant, &mut secrets) else { continue };
            let (name, text) = (grant.name.clone(), why.to_string());
            let done = self.change_p2p(|p2p, means| p2p.suspend(means, &name, why));
            let done = done.map_or_else(|error| with_causes(&error), |()| "it is withdrawn".into());
            self.board.record_event(format!("P2P {name:?}: {text}; {done}"));
            self.tell_unproved(&name);
        }
        for waiting in &before.waiting {
            let (grant, name) = (waiting.grant.clone(), waiting.grant.name.clone());
            let Ok(proved) = self.proved(&grant, &mut secrets) else { continue };
            let Err(why) = proved else {
                match self.change_p2p(|p2p, means| p2p.add(means, grant)) {
                    Ok(()) => {
                        self.board.record_event(format!("P2P {name:?} given"));
                        self.clear_p2p_errors(&name);
                    }
                    Err(error) => {
                        self.clear_p2p_errors(&name);
                        self.errors.push(format!("P2P {name:?}: {}", with_causes(&error)));
                    }
                }
                continue;
            };
            if why != waiting.why {
                self.grants.p2p.wait(grant, why);
                self.tell_unproved(&name);
            }
        }
        self.grants.p2p != before
    }

    /// Lists a grant between different domains as an error; a grant that only waits shows in the list.
    fn tell_unproved(&mut self, name: &str) {
        self.clear_p2p_errors(name);
        let waiting = self.grants.p2p.waiting.iter().find(|one| one.grant.name == name);
        if let Some(why @ Unproved::Differ(..)) = waiting.map(|one| &one.why) {
            self.errors.push(format!("P2P {name:?}: {why}"));
        }
    }

    fn clear_p2p_errors(&mut self, name: &str) {
        let head = format!("P2P {name:?}: ");
        self.errors.retain(|line| !line.starts_with(&head));
    }

    fn check_p2p(&self, grant: &Grant) -> Result<(), WindowError> {
        let beside: Vec<Beside> = grant.members.iter().map(|one| self.beside_p2p(*one)).collect();
        self.grants.p2p.check(&beside, grant)
    }

    /// Ranges of a requester beside P2P.
    fn beside_p2p(&self, one: Host) -> Beside {
        let mut others = self.grants.memory.ranges(one);
        others.extend(self.grants.gim.ranges(one));
        Beside { others, own: Names::new(self.desired, self.running).own(one) }
    }

    /// Changes P2P with the means to reach the edges.
    fn change_p2p(
        &mut self,
        f: impl FnOnce(&mut P2p, &mut EdgeContext<'_>) -> Result<(), WindowError>,
    ) -> Result<(), WindowError> {
        let p2p = &mut self.grants.p2p;
        at_edges(self.cci, self.running, self.desired.figures(), |means| f(p2p, means))
    }

    /// Whether the hosts of a grant's edges are of one domain; within one hierarchy there is nothing to prove.
    fn proved(
        &mut self,
        grant: &Grant,
        secrets: &mut Secrets,
    ) -> Result<Result<(), Unproved>, CallError> {
        let names = Names::new(self.desired, self.running);
        let edges = grant.members.iter().chain([&grant.owner]);
        let places: BTreeSet<Place> = edges.filter_map(|it| names.virtual_hierarchy(*it)).collect();
        if places.len() < 2 {
            return Ok(Ok(()));
        }
        let called: Vec<(Place, String)> =
            places.into_iter().map(|place| (place, names.host_at(place))).collect();
        let mut first: Option<(Uuid, String)> = None;
        for (place, name) in called {
            let Some(secret) = self.secret(place, secrets)? else {
                return Ok(Err(Unproved::NoSecret(name)));
            };
            match &first {
                Some((other, _)) if *other == secret => {}
                Some((_, before)) => return Ok(Err(Unproved::Differ(before.clone(), name))),
                None => first = Some((secret, name)),
            }
        }
        Ok(Ok(()))
    }

    /// Reads the domain validation secret of a virtual switch's host; `None` if it has set none.
    fn secret(&mut self, at: Place, secrets: &mut Secrets) -> Result<Option<Uuid>, CallError> {
        if let Some(known) = secrets.0.get(&at) {
            return Ok(*known);
        }
        let (switch, vcs) = at;
        let found = self.running.inventory.switch(switch);
        let way = found.map_or(Way::Entry, DiscoveredSwitch::way);
        let state = self.cci.call(way, &Command::GetVcsSvState(vcs))?.read::<u8>()?;
        let secret = match state {
            0 => None,
            _ => Some(self.cci.call(way, &Command::GetSv(vcs))?.read::<Uuid>()?),
        };
        secrets.0.insert(at, secret);
        Ok(secret)
    }
}
