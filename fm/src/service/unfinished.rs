//! Unfinished changes: begun by a manager that ended before it was done.
//!
//! A [`Request`] is stored before its first step ([`Journal`](super::journal::Journal)). The next start finds it, reads
//! the components, and undoes a change that gives something or finishes one that takes something away
//! ([`Settlement::settle`]).
//!
//! No client was told that such a change is done, so either is right, but not half of it. The stored state from before
//! the change tells which: a request that was about to be refused has changed nothing, and the things it names are left
//! alone.
//!
//! Source: docs/fm.md "Several managers".

use weft_parsers::cci::Uuid;

use super::board::StatusBoard;
use super::costs::NO_COST;
use super::p2p::grant as p2p_grant;
use super::reconcile::is_there;
use super::request::Request;
use crate::cci::CciSession;
use crate::components::bind::{self, Bridge};
use crate::components::edge::{self, AccessBit, EdgeContext};
use crate::components::gim::{Addressing, Gim, Grant};
use crate::components::memory::{Host, withdraw};
use crate::components::p2p::{self, P2p};
use crate::model::inventory::Gfd;
use crate::model::text::{parse_pid, tag};
use crate::state::desired::{DesiredGim, DesiredMemory, DesiredState};
use crate::state::names::{Binding, Names, requesters};
use crate::state::store::State;

/// How a change was settled, and errors.
type Settled = (&'static str, Vec<String>);

const UNDONE: &str = "undone";
const DONE: &str = "finished";

/// Memory to be taken back.
struct Taken<'a> {
    tag: Uuid,
    hosts: &'a [Host],
    capacity: bool,
}

/// Settles a change that an earlier manager began, over the routes of a fabric that is not up yet.
pub(super) struct Settlement<'a> {
    pub cci: &'a mut CciSession,
    pub desired: &'a DesiredState,
    /// Waits until packets under way have left the fabric.
    pub drain: fn(),
    pub board: &'a StatusBoard,
}

impl Settlement<'_> {
    /// Settles the change that an earlier manager began, from the state of components and `kept`, the stored state
    /// before it. Returns the state afterwards, and errors.
    pub fn settle(&mut self, request: &Request, mut kept: State) -> (State, Vec<String>) {
        let (did, errors) = match self.settle_one(request, &mut kept) {
            Ok(settled) => settled,
            Err(why) => ("", vec![why]), // it names nothing that is there: it was about to be refused
        };
        let name = serde_json::to_value(request).ok();
        let name = name.as_ref().and_then(|json| json.get("cmd")?.as_str()).unwrap_or("change");
        if !did.is_empty() {
            self.board
                .record_event(format!("{name:?}, which the manager before had begun, is {did}"));
        }
        let left = |why| format!("{name:?}, which the manager before had begun: {why}");
        (kept, errors.into_iter().map(left).collect())
    }

    fn settle_one(&mut self, request: &Request, kept: &mut State) -> Result<Settled, String> {
        let known = kept.clone();
        let names =
            Names { desired: self.desired, inventory: &known.inventory, bindings: &known.bindings };
        Ok(match request {
            Request::Share(DesiredMemory { name, hosts, .. })
                if known.grants.memory.find(&tag(name)?).is_none() =>
            {
                let hosts: Vec<Host> = hosts.iter().filter_map(|h| names.host(h).ok()).collect();
                let taken = Taken { tag: tag(name)?, hosts: &hosts, capacity: true };
                (UNDONE, self.withdraw(&taken, kept))
            }
            Request::Grant { name, .. } if known.grants.p2p.known(name).is_some() => {
                return self.settle_p2p(request, kept, &names);
            }
            Request::Grant { name, host } => {
                let (tag, host) = (tag(name)?, names.host(host)?);
                let share = known.grants.memory.find(&tag).ok_or("there is no such memory")?;
                if share.hosts.contains(&host) {
                    // It had the memory before: the request was about to be refused.
                    return Ok(("", Vec::new()));
                }
                let taken = Taken { tag, hosts: &[host], capacity: false };
                (UNDONE, self.withdraw(&taken, kept))
            }
            Request::ShowGim(wanted) if known.grants.gim.find(&wanted.name).is_none() => {
                (UNDONE, self.hide(&grant(&names, wanted)?, kept))
            }
            Request::Release { name } | Request::Revoke { name, .. }
                if let Some(grant) = known.grants.gim.find(name) =>
            {
                let host = if let Request::Revoke { host, .. } = request {
                    Some(names.host(host)?)
                } else {
                    None
                };
                for own in kept.grants.gim.grants.iter_mut().filter(|own| own.name == *name) {
                    own.members.retain(|one| host.is_some_and(|host| *one != host));
                }
                kept.grants.gim.grants.retain(|own| host.is_some() || own.name != *name);
                (DONE, self.hide(grant, kept))
            }
            Request::AddP2p(_) => return self.settle_p2p(request, kept, &names),
            Request::Release { name } | Request::Revoke { name, .. }
                if known.grants.p2p.known(name).is_some() =>
            {
                return self.settle_p2p(request, kept, &names);
            }
            Request::Release { name } => {
                let tag = tag(name)?;
                let hosts =
                    known.grants.memory.find(&tag).ok_or("there is no such memory")?.hosts.clone();
                kept.grants.memory.shares.retain(|share| share.tag != tag);
                (DONE, self.withdraw(&Taken { tag, hosts: &hosts, capacity: true }, kept))
            }
            Request::Revoke { name, host } => {
                let (tag, host) = (tag(name)?, names.host(host)?);
                for share in kept.grants.memory.shares.iter_mut().filter(|share| share.tag == tag) {
                    share.hosts.retain(|one| *one != host);
                }
                (DONE, self.withdraw(&Taken { tag, hosts: &[host], capacity: false }, kept))
            }
            _ => return self.settle_edge(request, kept, &names),
        })
    }

    /// The same for P2P.
    fn settle_p2p(
        &mut self,
        request: &Request,
        kept: &mut State,
        names: &Names<'_>,
    ) -> Result<Settled, String> {
        let (done, gone) = match request {
            Request::AddP2p(wanted) if kept.grants.p2p.known(&wanted.name).is_some() => {
                // It existed before: the request was about to be refused.
                return Ok(("", Vec::new()));
            }
            Request::AddP2p(wanted) => (UNDONE, p2p_grant(names, wanted)?),
            Request::Grant { name, host } => {
                let edge = names.host(host)?;
                match kept.grants.p2p.known(name) {
                    Some(own) if !own.members.contains(&edge) => {
                        (UNDONE, p2p::Grant { members: vec![edge], ..own.clone() })
                    }
                    _ => return Ok(("", Vec::new())),
                }
            }
            Request::Release { name } | Request::Revoke { name, .. } => {
                let host = match request {
                    Request::Revoke { host, .. } => Some(names.host(host)?),
                    _ => None,
                };
                let known = kept.grants.p2p.known(name).cloned().ok_or("there is no such P2P")?;
                let (grants, waiting) = (&mut kept.grants.p2p.grants, &mut kept.grants.p2p.waiting);
                for own in grants.iter_mut().chain(waiting.iter_mut().map(|it| &mut it.grant)) {
                    own.members
                        .retain(|one| own.name != *name || host.is_some_and(|it| *one != it));
                }
                grants.retain(|own| host.is_some() || own.name != *name);
                waiting.retain(|own| host.is_some() || own.grant.name != *name);
                (DONE, known)
            }
            _ => return Ok(("", Vec::new())),
        };
        let alone = P2p { grants: vec![gone], waiting: Vec::new() };
        Ok((done, self.reset(kept, alone.access_bits())))
    }

    /// The same for access bits and bindings.
    fn settle_edge(
        &mut self,
        request: &Request,
        kept: &mut State,
        names: &Names<'_>,
    ) -> Result<Settled, String> {
        Ok(match request {
            Request::SetAccess { host, vector, pid, .. } => {
                let host = names.host(host)?;
                let pid = names.gfd(pid).or_else(|_| parse_pid(pid))?;
                (UNDONE, self.reset(kept, [vector.bit(host, pid)]))
            }
            Request::Bind { bridge, to } => {
                let ends = ends(&names.binding(bridge, to)?);
                if ends.iter().any(|end| shows(kept, *end)) {
                    // The bridge was bound before: the request was about to be refused.
                    return Ok(("", Vec::new()));
                }
                (UNDONE, self.free(kept, &ends))
            }
            Request::Unbind { bridge } => {
                let bridge = names.bridge(bridge)?;
                let link = names.bindings.remote.iter();
                let mut link = link.map(|link| [link.host.bridge, link.below.bridge]);
                let ends = link.find(|ends| ends.contains(&bridge)).map(Vec::from);
                let ends = ends.unwrap_or_else(|| vec![bridge]);
                kept.bindings.local.retain(|local| local.bridge != bridge);
                kept.bindings.remote.retain(|link| !ends.contains(&link.host.bridge));
                (DONE, self.free(kept, &ends))
            }
            _ => ("", Vec::new()),
        })
    }

    /// Takes memory back in the usual order: rights, decoders, edges, capacity.
    fn withdraw(&mut self, taken: &Taken<'_>, kept: &State) -> Vec<String> {
        let Taken { tag, hosts, capacity } = *taken;
        let inventory = &kept.inventory;
        // To release capacity, every requester's decoder must go, also that of one the store does not name.
        let all: Vec<Host> = if capacity {
            requesters(inventory, &kept.bindings).iter().map(|requester| requester.edge).collect()
        } else {
            hosts.to_vec()
        };
        let (mut errors, mut found) = (Vec::new(), Vec::new());
        let gfds: Vec<&Gfd> =
            inventory.gfds.iter().filter(|gfd| is_there(inventory, gfd.at)).collect();
        for gfd in gfds {
            let fabric = &mut *self.cci;
            let extents = withdraw::extents(fabric, gfd, &tag).and_then(|extents| {
                withdraw::rights(fabric, inventory, gfd.pid, &extents, &all).map(|()| extents)
            });
            match extents {
                Ok(extents) => found.push((gfd.pid, extents)),
                Err(error) => errors.push(format!("GFD {}: {}", gfd.pid, error.with_causes())),
            }
        }
        // GFDs without an extent of the tag need no edge to be closed.
        found.retain(|(_, extents)| !extents.is_empty());
        let gfds = || found.iter().map(|(gfd, _)| *gfd);
        let bits = hosts
            .iter()
            .flat_map(|host| gfds().map(move |gfd| AccessBit::Gmv(host.switch, host.vcs, gfd)));
        errors.extend(self.reset(kept, bits.collect::<Vec<_>>()));
        for (gfd, extents) in found.iter().filter(|_| capacity) {
            let done = withdraw::capacity(self.cci, inventory, *gfd, extents, tag);
            errors.extend(done.err().map(|error| format!("GFD {gfd}: {}", error.with_causes())));
        }
        errors
    }

    /// Revokes the rights that only this grant of GIM needs.
    fn hide(&mut self, grant: &Grant, kept: &State) -> Vec<String> {
        let alone = Gim { grants: vec![grant.clone()] };
        self.reset(kept, alone.access_bits())
    }

    /// Sets access bits to the values that the known state wants.
    fn reset(&mut self, kept: &State, bits: impl IntoIterator<Item = AccessBit>) -> Vec<String> {
        let wanted = kept.grants.access_bits();
        let (fabric, inventory, drain) = (&mut *self.cci, &kept.inventory, self.drain);
        let mut means = EdgeContext { fabric, inventory, cost: &|_, _| NO_COST, drain };
        let mut errors = Vec::new();
        for bit in bits {
            // A bit that another share or grant needs stays set.
            let on = wanted.contains(&bit);
            let set = edge::is_set(means.fabric, inventory, bit)
                .and_then(|is| if is == on { Ok(()) } else { edge::set(&mut means, bit, on) });
            errors.extend(set.err().map(|error| format!("{bit}: {}", error.with_causes())));
        }
        errors
    }

    fn free(&mut self, kept: &State, ends: &[Bridge]) -> Vec<String> {
        let mut errors = Vec::new();
        for end in ends {
            let freed = bind::free(self.cci, &kept.inventory, *end);
            errors.extend(freed.err().map(|error| format!("{end}: {}", error.with_causes())));
        }
        errors
    }
}

fn grant(names: &Names<'_>, wanted: &DesiredGim) -> Result<Grant, String> {
    let members = wanted.from.iter().map(|one| names.host(one)).collect::<Result<Vec<_>, _>>()?;
    let (name, owner) = (wanted.name.clone(), names.host(&wanted.of)?);
    let DesiredGim { prefix: by_prefix, hpa, size: len, .. } = *wanted;
    Ok(Grant { name, owner, members, hpa, len, policy: Addressing { by_prefix } })
}

/// Bridges of a binding, the host's first.
fn ends(binding: &Binding) -> Vec<Bridge> {
    match binding {
        Binding::Local(local) => vec![local.bridge],
        Binding::Remote(link) => vec![link.host.bridge, link.below.bridge],
    }
}

/// Whether a bridge is known to be bound, or to be bound again.
fn shows(kept: &State, bridge: Bridge) -> bool {
    let State { bindings, .. } = kept;
    let local = bindings.local.iter().chain(&bindings.lost).map(|local| local.bridge);
    let remote = bindings.links().flat_map(|link| [link.host.bridge, link.below.bridge]);
    local.chain(remote).any(|known| known == bridge)
}
