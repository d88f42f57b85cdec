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
use super::memory::map::{Beside, Kind, Range};
use super::rights::{self, Rights};
use super::window::{self, Policy, Window, WindowError};

/// The part of a memory device that is accessed.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(transparent)]
pub struct DevicePart {
    /// Logical device; `None` for the whole device.
    pub ld: Option<u16>,
}

/// A grant of P2P: a memory device that other devices access directly. The device itself sees its memory at the same
/// address as they do.
pub type Grant = Window<DevicePart>;

impl Policy for DevicePart {
    const WHAT: &'static str = "P2P";
    const STORED: [&'static str; 2] = ["to", "ld"];

    fn kind(&self) -> Kind {
        Kind::P2p
    }

    fn rights(grant: &Grant) -> Rights {
        let to = grant.owner;
        let there = |one: &Edge| AccessBit::Lav(one.switch, one.vcs, to.pid);
        let back = |one: &Edge| AccessBit::Lav(to.switch, to.vcs, one.pid);
        Rights {
            there: grant.members.iter().map(there).collect(),
            back: grant.members.iter().map(back).collect(),
        }
    }
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
        window::find(&self.grants, name)
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
        all.flat_map(|grant| grant.members.iter_mut().chain([&mut grant.owner]))
    }

    /// Ranges that a requester has by P2P.
    #[must_use]
    pub fn ranges(&self, from: Edge) -> Vec<Range<Pid>> {
        self.all().filter(|grant| grant.members.contains(&from)).map(Grant::range).collect()
    }

    /// A grant that needs `pid` in LAV of the virtual switch of `edge`, or has an edge of this PID.
    #[must_use]
    pub fn user(&self, pid: Pid, edge: Option<Edge>) -> Option<&Grant> {
        self.grants.iter().find(|grant| grant.uses(pid, edge))
    }

    /// Another edge in the virtual switch of `edge` that accesses `to`.
    #[must_use]
    pub fn sharer(&self, to: Pid, edge: Edge) -> Option<Pid> {
        let own = self.grants.iter().filter(|grant| grant.owner.pid == to);
        let same = |one: &&Edge| (one.switch, one.vcs) == (edge.switch, edge.vcs) && **one != edge;
        own.flat_map(|grant| &grant.members).find(same).map(|one| one.pid)
    }

    /// All access bits that the grants need.
    #[must_use]
    pub fn access_bits(&self) -> BTreeSet<AccessBit> {
        self.rights().all()
    }

    fn rights(&self) -> Rights {
        window::rights(&self.grants)
    }

    /// Checks whether a grant may be made; `beside` has the other ranges of each requester, in their order.
    ///
    /// # Errors
    /// The name is in use, or the rule against the grant.
    pub fn check(&self, beside: &[Beside], new: &Grant) -> Result<(), WindowError> {
        let misfit = |text: String| Err(WindowError::Misfit(text));
        if self.known(&new.name).is_some() {
            return Err(WindowError::name::<DevicePart>());
        }
        new.check_members()?;
        if new.members.contains(&new.owner) {
            return misfit("p2p-peer: a device needs no way to its own memory".to_owned());
        }
        new.check_size()?;
        let memory = |grant: &Grant| (grant.owner, grant.policy.ld);
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
        let beside_it =
            |other: &&Grant| other.owner.pid == new.owner.pid && other.policy != new.policy;
        for other in self.all().filter(beside_it) {
            if let Some(one) = new.members.iter().find(|one| other.members.contains(one)) {
                let text = format!(
                    "p2p-one-ld: PID {} accesses another logical device of it as P2P {:?}: its requests name none",
                    one.pid, other.name
                );
                return misfit(text);
            }
        }
        new.check_room(beside, |one, others| [others, &self.ranges(one)].concat())
    }

    /// Makes a grant that [`Self::check`] allows: all edges get their rights, or nothing is changed.
    ///
    /// # Errors
    /// See [`WindowError`].
    pub fn add(&mut self, means: &mut EdgeContext<'_>, grant: Grant) -> Result<(), WindowError> {
        let mut after = self.clone();
        // A grant that waited is in force from now on.
        after.waiting.retain(|one| one.grant.name != grant.name);
        after.grants.push(grant);
        self.become_(means, after)
    }

    /// Suspends a grant: it loses its rights, and waits.
    ///
    /// # Errors
    /// There is none, or a step failed: see [`WindowError`].
    pub fn suspend(
        &mut self,
        means: &mut EdgeContext<'_>,
        name: &str,
        why: Unproved,
    ) -> Result<(), WindowError> {
        let mut after = self.clone();
        let at = after
            .grants
            .iter()
            .position(|grant| grant.name == name)
            .ok_or(WindowError::name::<DevicePart>())?;
        let grant = after.grants.remove(at);
        after.waiting.push(Waiting { grant, why });
        self.become_(means, after)
    }

    /// Forgets that a grant waits; returns it if it did.
    pub fn forget_waiting(&mut self, name: &str) -> Option<Waiting> {
        let at = self.waiting.iter().position(|one| one.grant.name == name)?;
        Some(self.waiting.remove(at))
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
    ) -> Result<Grant, WindowError> {
        let misfit = |text: &str| WindowError::Misfit(text.to_owned());
        let Some(own) = self.find(name) else {
            return Err(misfit("it waits until its hosts are of one domain: grant it then"));
        };
        if own.members.contains(&from) {
            return Err(WindowError::Misfit(format!("PID {} has access to it already", from.pid)));
        }
        // Checked as a grant of its own for this requester, beside all others but itself.
        let mut others = self.clone();
        others.grants.retain(|grant| grant.name != name);
        others.check(&[beside], &Grant { members: vec![from], ..own.clone() })?;
        let mut more = own.clone();
        more.members.push(from);
        Ok(more)
    }

    /// Replaces the grant of the same name, as [`Self::check_one_more`] returns it.
    ///
    /// # Errors
    /// A step failed: see [`WindowError`].
    pub fn extend(&mut self, means: &mut EdgeContext<'_>, grant: Grant) -> Result<(), WindowError> {
        let mut after = self.clone();
        let place = after.grants.iter_mut().find(|own| own.name == grant.name);
        *place.ok_or(WindowError::name::<DevicePart>())? = grant;
        self.become_(means, after)
    }

    /// Revokes a grant from one requester; others keep it. It stays even without any requester.
    ///
    /// # Errors
    /// The requester does not have it, or a step failed: see [`WindowError`].
    pub fn revoke(
        &mut self,
        means: &mut EdgeContext<'_>,
        name: &str,
        from: Edge,
    ) -> Result<(), WindowError> {
        let mut after = self.clone();
        let waiting = after.waiting.iter_mut().map(|one| &mut one.grant);
        let grant = after.grants.iter_mut().chain(waiting).find(|grant| grant.name == name);
        grant.ok_or(WindowError::name::<DevicePart>())?.remove_member(from)?;
        self.become_(means, after)
    }

    /// Revokes a grant from all requesters.
    ///
    /// # Errors
    /// There is none, or a step failed: see [`WindowError`].
    pub fn release(&mut self, means: &mut EdgeContext<'_>, name: &str) -> Result<(), WindowError> {
        let mut after = self.clone();
        after.grants.retain(|grant| grant.name != name);
        after.waiting.retain(|one| one.grant.name != name);
        if &after == self {
            return Err(WindowError::name::<DevicePart>());
        }
        self.become_(means, after)
    }

    /// Changes the rights to those of `after`, or restores the present ones.
    fn become_(&mut self, means: &mut EdgeContext<'_>, after: Self) -> Result<(), WindowError> {
        rights::change(means, &self.rights(), &after.rights())?;
        *self = after;
        Ok(())
    }
}
