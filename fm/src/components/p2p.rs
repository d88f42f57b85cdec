//! P2P: memory devices that accelerators access directly, by UIO from edge to edge (direct P2P to HDM).
//!
//! [`Grant`]s become bits of LAV at edges; [`P2p`] has all of them, and sends the difference when they change.
//!
//! A requester's edge passes requests to the PIDs in its LAV; the edge of the memory device passes completions straight
//! back to the PIDs in its own LAV. LDST and the re-router belong to the host and are not touched: they are checked
//! against LAV. A host may reach the memory device of another host only while both are of one domain, which the same
//! secret shows (domain validation). A grant that loses that waits, without rights, until it is so again.
//!
//! Source: CXL 3.1 section 7.7.9; docs/spec/cxl-fabric.md "Ingress at an edge"; docs/spec/wire-formats.md §4.3 (5106h,
//! 5107h), §4.5 (5714h to 5716h).

use std::collections::BTreeSet;

use serde::{Deserialize, Serialize};
use weft_parsers::fabric::Pid;

use super::edge::{AccessBit, EdgeContext};
use super::memory::Host as Edge;
use super::memory::map::{Beside, Kind, Range, fits};
use super::rights::{self, Rights, RightsError};

/// A grant of P2P: a memory device that other devices access directly.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Grant {
    pub name: String,
    /// Port of the memory device.
    pub to: Edge,
    /// Logical device of it; `None` for all of it.
    #[serde(default)]
    pub ld: Option<u16>,
    /// Devices that access it.
    pub from: Vec<Edge>,
    /// Address at which all of them, and the device itself, see it.
    pub hpa: u64,
    pub len: u64,
}

/// A grant without rights, and the reason.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Waiting {
    /// The grant as it is wanted.
    pub grant: Grant,
    pub why: Unproved,
}

/// Why two hosts are not known to be of one domain.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, thiserror::Error)]
#[serde(rename_all = "snake_case")]
pub enum Unproved {
    /// The host has set no secret yet.
    #[error(
        "p2p-same-domain: {0} has set no domain validation secret (5105h): the hosts of both devices need the same one"
    )]
    NoSecret(String),
    /// The hosts have set different secrets.
    #[error(
        "p2p-same-domain: {0} and {1} are of different domains: their domain validation secrets differ"
    )]
    Differ(String, String),
}

/// Why direct access is not given or taken back.
#[derive(Debug, thiserror::Error)]
pub enum P2pError {
    /// The grant contradicts itself or others.
    #[error("{0}")]
    Misfit(String),
    /// The name is in use, or unknown.
    #[error("no P2P has this name, or another one has it already")]
    Name,
    #[error(transparent)]
    Rights(#[from] RightsError),
}

impl Grant {
    fn range(&self) -> Range<Pid> {
        Range {
            name: format!("P2P {:?}", self.name),
            hpa: self.hpa,
            len: self.len,
            targets: vec![self.to.pid],
            granularity: 0,
            kind: Kind::P2p,
        }
    }

    fn rights(&self) -> Rights {
        let to = self.to;
        let there = |one: &Edge| AccessBit::Lav(one.switch, one.vcs, to.pid);
        let back = |one: &Edge| AccessBit::Lav(to.switch, to.vcs, one.pid);
        Rights {
            there: self.from.iter().map(there).collect(),
            back: self.from.iter().map(back).collect(),
        }
    }
}

/// All grants of P2P in a fabric.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct P2p {
    /// Grants whose rights are in force.
    pub grants: Vec<Grant>,
    /// Grants that wait until their hosts are of one domain.
    #[serde(default)]
    pub waiting: Vec<Waiting>,
}

impl P2p {
    /// The grant of a name, if it is in force.
    #[must_use]
    pub fn find(&self, name: &str) -> Option<&Grant> {
        self.grants.iter().find(|grant| grant.name == name)
    }

    /// The grant of a name, in force or waiting.
    #[must_use]
    pub fn known(&self, name: &str) -> Option<&Grant> {
        self.all().find(|grant| grant.name == name)
    }

    /// All grants, waiting ones last.
    pub fn all(&self) -> impl Iterator<Item = &Grant> {
        self.grants.iter().chain(self.waiting.iter().map(|one| &one.grant))
    }

    /// All edges of grants, so that their switches can be renumbered.
    pub fn edges_mut(&mut self) -> impl Iterator<Item = &mut Edge> {
        let waiting = self.waiting.iter_mut().map(|one| &mut one.grant);
        let all = self.grants.iter_mut().chain(waiting);
        all.flat_map(|grant| grant.from.iter_mut().chain([&mut grant.to]))
    }

    /// Ranges that a requester has by P2P.
    #[must_use]
    pub fn ranges(&self, from: Edge) -> Vec<Range<Pid>> {
        self.all().filter(|grant| grant.from.contains(&from)).map(Grant::range).collect()
    }

    /// A grant that needs `pid` in LAV of the virtual switch of `edge`, or has an edge of this PID.
    #[must_use]
    pub fn user(&self, pid: Pid, edge: Option<Edge>) -> Option<&Grant> {
        let at = |one: &Edge| edge.is_none_or(|e| (e.switch, e.vcs) == (one.switch, one.vcs));
        self.grants.iter().find(|grant| {
            let back = at(&grant.to) && grant.from.iter().any(|one| one.pid == pid);
            let there = grant.to.pid == pid && grant.from.iter().any(at);
            back || there
        })
    }

    /// Another edge in the virtual switch of `edge` that accesses `to`.
    #[must_use]
    pub fn sharer(&self, to: Pid, edge: Edge) -> Option<Pid> {
        let own = self.grants.iter().filter(|grant| grant.to.pid == to);
        let same = |one: &&Edge| (one.switch, one.vcs) == (edge.switch, edge.vcs) && **one != edge;
        own.flat_map(|grant| &grant.from).find(same).map(|one| one.pid)
    }

    /// All access bits that the grants need.
    #[must_use]
    pub fn access_bits(&self) -> BTreeSet<AccessBit> {
        self.rights().all()
    }

    fn rights(&self) -> Rights {
        let mut all = Rights::default();
        for Rights { there, back } in self.grants.iter().map(Grant::rights) {
            all.there.extend(there);
            all.back.extend(back);
        }
        all
    }

    /// Checks whether a grant may be made; `beside` has the other ranges of each requester, in their order.
    ///
    /// # Errors
    /// The name is in use, or the rule against the grant.
    pub fn check(&self, beside: &[Beside], new: &Grant) -> Result<(), P2pError> {
        let misfit = |text: String| Err(P2pError::Misfit(text));
        if self.known(&new.name).is_some() {
            return Err(P2pError::Name);
        }
        let different: BTreeSet<&Edge> = new.from.iter().collect();
        if different.len() != new.from.len() || new.from.is_empty() {
            return misfit("expected at least one requester, each of them once".to_owned());
        }
        if different.contains(&new.to) {
            return misfit("p2p-peer: a device needs no way to its own memory".to_owned());
        }
        if new.len == 0 || new.hpa.checked_add(new.len).is_none() {
            let text = "the size is 0, or the memory ends beyond 64 bits of address";
            return misfit(text.to_owned());
        }
        let memory = |grant: &Grant| (grant.to, grant.ld);
        let moved = |other: &&Grant| memory(other) == memory(new) && other.hpa != new.hpa;
        // The device's HDM decoders give its memory one address, which all requests carry.
        if let Some(other) = self.all().find(moved) {
            let text = format!(
                "p2p-one-address: the memory device is at {:#x} for P2P {:?}: it has one address for all",
                other.hpa, other.name
            );
            return misfit(text);
        }
        //= docs/spec/cxl-fabric.md Logical devices: a request names none, so a requester has one of a device
        let beside_it = |other: &&Grant| other.to.pid == new.to.pid && other.ld != new.ld;
        for other in self.all().filter(beside_it) {
            if let Some(one) = new.from.iter().find(|one| other.from.contains(one)) {
                let text = format!(
                    "p2p-one-ld: PID {} accesses another logical device of it as P2P {:?}: its requests name none",
                    one.pid, other.name
                );
                return misfit(text);
            }
        }
        for (one, Beside { others, own }) in new.from.iter().zip(beside) {
            let mut others = others.clone();
            others.extend(self.ranges(*one));
            if let Err(conflict) = fits(&new.range(), &others, own) {
                return misfit(format!("for PID {}: {conflict}", one.pid));
            }
        }
        Ok(())
    }

    /// Makes a grant that [`Self::check`] allows: all edges get their rights, or nothing is changed.
    ///
    /// # Errors
    /// See [`P2pError`].
    pub fn add(&mut self, means: &mut EdgeContext<'_>, grant: Grant) -> Result<(), P2pError> {
        let mut after = self.clone();
        // A grant that waited is in force from now on.
        after.waiting.retain(|one| one.grant.name != grant.name);
        after.grants.push(grant);
        self.become_(means, after)
    }

    /// Suspends a grant: it loses its rights, and waits.
    ///
    /// # Errors
    /// There is none, or a step failed: see [`P2pError`].
    pub fn suspend(
        &mut self,
        means: &mut EdgeContext<'_>,
        name: &str,
        why: Unproved,
    ) -> Result<(), P2pError> {
        let mut after = self.clone();
        let at = after.grants.iter().position(|grant| grant.name == name).ok_or(P2pError::Name)?;
        let grant = after.grants.remove(at);
        after.waiting.push(Waiting { grant, why });
        self.become_(means, after)
    }

    /// Records that a grant waits, and the reason.
    pub fn wait(&mut self, grant: Grant, why: Unproved) {
        self.waiting.retain(|one| one.grant.name != grant.name);
        self.waiting.push(Waiting { grant, why });
    }

    /// The grant with one more requester, if [`Self::check`] allows that; `beside` has the requester's other ranges.
    ///
    /// # Errors
    /// The requester has access already, the grant waits, or the rule against it.
    pub fn check_one_more(
        &self,
        beside: Beside,
        name: &str,
        from: Edge,
    ) -> Result<Grant, P2pError> {
        let misfit = |text: &str| P2pError::Misfit(text.to_owned());
        let Some(own) = self.find(name) else {
            return Err(misfit("it waits until its hosts are of one domain: grant it then"));
        };
        if own.from.contains(&from) {
            return Err(P2pError::Misfit(format!("PID {} has access to it already", from.pid)));
        }
        // Checked as a grant of its own for this requester, beside all others but itself.
        let mut others = self.clone();
        others.grants.retain(|grant| grant.name != name);
        others.check(&[beside], &Grant { from: vec![from], ..own.clone() })?;
        let mut more = own.clone();
        more.from.push(from);
        Ok(more)
    }

    /// Replaces the grant of the same name, as [`Self::check_one_more`] returns it.
    ///
    /// # Errors
    /// A step failed: see [`P2pError`].
    pub fn extend(&mut self, means: &mut EdgeContext<'_>, grant: Grant) -> Result<(), P2pError> {
        let mut after = self.clone();
        let place = after.grants.iter_mut().find(|own| own.name == grant.name);
        *place.ok_or(P2pError::Name)? = grant;
        self.become_(means, after)
    }

    /// Revokes a grant from one requester; others keep it. It stays even without any requester.
    ///
    /// # Errors
    /// The requester does not have it, or a step failed: see [`P2pError`].
    pub fn revoke(
        &mut self,
        means: &mut EdgeContext<'_>,
        name: &str,
        from: Edge,
    ) -> Result<(), P2pError> {
        let mut after = self.clone();
        let waiting = after.waiting.iter_mut().map(|one| &mut one.grant);
        let grant = after.grants.iter_mut().chain(waiting).find(|grant| grant.name == name);
        let grant = grant.ok_or(P2pError::Name)?;
        let had = grant.from.len();
        grant.from.retain(|one| *one != from);
        if grant.from.len() == had {
            return Err(P2pError::Misfit(format!("PID {} has no access to it", from.pid)));
        }
        self.become_(means, after)
    }

    /// Revokes a grant from all requesters.
    ///
    /// # Errors
    /// There is none, or a step failed: see [`P2pError`].
    pub fn release(&mut self, means: &mut EdgeContext<'_>, name: &str) -> Result<(), P2pError> {
        let mut after = self.clone();
        after.grants.retain(|grant| grant.name != name);
        after.waiting.retain(|one| one.grant.name != name);
        if &after == self {
            return Err(P2pError::Name);
        }
        self.become_(means, after)
    }

    /// Changes the rights to those of `after`, or restores the present ones.
    fn become_(&mut self, means: &mut EdgeContext<'_>, after: Self) -> Result<(), P2pError> {
        rights::change(means, &self.rights(), &after.rights())?;
        *self = after;
        Ok(())
    }
}
