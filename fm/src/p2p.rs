//! Memory devices that accelerators access directly, by UIO from edge to edge (direct P2P to HDM): who may name whom.
//!
//! [`Grant`]s -> bits of LAV at edges; what changes between two [`P2p`]s is sent and read back.
//!
//! Units: bytes.
//! Source: CXL 3.1 section 7.7.9; docs/spec/cxl-fabric.md "Ingress at an edge"; docs/spec/wire-formats.md §4.3 (5106h,
//! 5107h), §4.5 (5714h to 5716h).
//!
//! A requester's edge lets requests go to whom LAV has; the edge of the memory device lets its completions go straight back
//! to whom LAV has there. LDST and the re-router are the host's own, and not touched: whatever it writes there, LAV decides.
//! A host may reach a memory device of another one only as long as both are of one domain, which they show by the same
//! secret (domain validation): a grant that loses that waits, without rights, until it is so again.

use std::collections::BTreeSet;

use serde::{Deserialize, Serialize};
use weft_parsers::fabric::Pid;

use super::edge::{AccessBit, EdgeContext};
use super::memory::Host as Edge;
use super::memory::map::{Beside, Kind, Range, fits};
use super::rights::{self, Rights, RightsError};

/// A memory device that devices access directly.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Grant {
    /// What it is called.
    pub name: String,
    /// Whose memory it is: the port of the memory device.
    pub to: Edge,
    /// Which logical device of that; none where it is all of it.
    #[serde(default)]
    pub ld: Option<u16>,
    /// Who accesses it.
    pub from: Vec<Edge>,
    /// Where all of them, and the device itself, see it.
    pub hpa: u64,
    /// How much.
    pub len: u64,
}

/// A grant without rights, and why.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Waiting {
    /// What is to be.
    pub grant: Grant,
    /// What it waits for.
    pub why: Unproved,
}

/// Why hosts are not known to be of one domain.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, thiserror::Error)]
#[serde(rename_all = "snake_case")]
pub enum Unproved {
    /// A host has set no secret yet.
    #[error(
        "p2p-same-domain: {0} has set no domain validation secret (5105h): the hosts of both devices need the same one"
    )]
    NoSecret(String),
    /// They have set different ones.
    #[error(
        "p2p-same-domain: {0} and {1} are of different domains: their domain validation secrets differ"
    )]
    Differ(String, String),
}

/// Why direct access is not given or taken back.
#[derive(Debug, thiserror::Error)]
pub enum P2pError {
    /// It does not hold together.
    #[error("{0}")]
    Misfit(String),
    /// The name is in use, or not.
    #[error("no P2P has this name, or another one has it already")]
    Name,
    /// Rights could not be changed.
    #[error(transparent)]
    Rights(#[from] RightsError),
}

impl Grant {
    /// Where requesters see it.
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

    /// The bits at edges that it needs.
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

/// All direct access to memory devices in a fabric.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct P2p {
    /// Each by its name.
    pub grants: Vec<Grant>,
    /// Those that wait until their hosts are of one domain.
    #[serde(default)]
    pub waiting: Vec<Waiting>,
}

impl P2p {
    /// The grant of a name that has its rights.
    #[must_use]
    pub fn find(&self, name: &str) -> Option<&Grant> {
        self.grants.iter().find(|grant| grant.name == name)
    }

    /// The grant of a name, whether it has its rights or waits.
    #[must_use]
    pub fn known(&self, name: &str) -> Option<&Grant> {
        self.all().find(|grant| grant.name == name)
    }

    /// All grants, those that wait last.
    pub fn all(&self) -> impl Iterator<Item = &Grant> {
        self.grants.iter().chain(self.waiting.iter().map(|one| &one.grant))
    }

    /// All edges that grants name, to be given other numbers.
    pub fn edges_mut(&mut self) -> impl Iterator<Item = &mut Edge> {
        let waiting = self.waiting.iter_mut().map(|one| &mut one.grant);
        let all = self.grants.iter_mut().chain(waiting);
        all.flat_map(|grant| grant.from.iter_mut().chain([&mut grant.to]))
    }

    /// All that a requester accesses directly, where it sees it.
    #[must_use]
    pub fn ranges(&self, from: Edge) -> Vec<Range<Pid>> {
        self.all().filter(|grant| grant.from.contains(&from)).map(Grant::range).collect()
    }

    /// The grant that needs `pid` in LAV of the virtual switch of `edge`, or has an edge of this PID.
    #[must_use]
    pub fn user(&self, pid: Pid, edge: Option<Edge>) -> Option<&Grant> {
        let at = |one: &Edge| edge.is_none_or(|e| (e.switch, e.vcs) == (one.switch, one.vcs));
        self.grants.iter().find(|grant| {
            let back = at(&grant.to) && grant.from.iter().any(|one| one.pid == pid);
            let there = grant.to.pid == pid && grant.from.iter().any(at);
            back || there
        })
    }

    /// Somebody else in the virtual switch of `edge` who accesses `to`.
    #[must_use]
    pub fn sharer(&self, to: Pid, edge: Edge) -> Option<Pid> {
        let own = self.grants.iter().filter(|grant| grant.to.pid == to);
        let same = |one: &&Edge| (one.switch, one.vcs) == (edge.switch, edge.vcs) && **one != edge;
        own.flat_map(|grant| &grant.from).find(same).map(|one| one.pid)
    }

    /// All bits at edges that the grants need.
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

    /// Checks whether a grant may be made: `beside` is what each requester has besides, in their order.
    ///
    /// # Errors
    /// The name is taken, or the rule against it.
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
        after.waiting.retain(|one| one.grant.name != grant.name);
        after.grants.push(grant);
        self.become_(means, after)
    }

    /// Takes the rights of a grant, which waits from now on.
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

    /// Notes that a grant waits, and for what.
    pub fn wait(&mut self, grant: Grant, why: Unproved) {
        self.waiting.retain(|one| one.grant.name != grant.name);
        self.waiting.push(Waiting { grant, why });
    }

    /// What a grant would be for one requester more, if [`Self::check`] allows it; `beside` is what that one has besides.
    ///
    /// # Errors
    /// The requester has it, the grant waits, or the rule against it.
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
        let mut others = self.clone();
        others.grants.retain(|grant| grant.name != name);
        others.check(&[beside], &Grant { from: vec![from], ..own.clone() })?;
        let mut more = own.clone();
        more.from.push(from);
        Ok(more)
    }

    /// Puts a grant, as [`Self::check_one_more`] has it, in the place of that of its name.
    ///
    /// # Errors
    /// A step failed: see [`P2pError`].
    pub fn extend(&mut self, means: &mut EdgeContext<'_>, grant: Grant) -> Result<(), P2pError> {
        let mut after = self.clone();
        let place = after.grants.iter_mut().find(|own| own.name == grant.name);
        *place.ok_or(P2pError::Name)? = grant;
        self.become_(means, after)
    }

    /// Takes a grant from one requester; others keep it. It stays also when nobody has it any more.
    ///
    /// # Errors
    /// It does not have it, or a step failed: see [`P2pError`].
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

    /// Takes a grant from all requesters.
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

    /// Brings about `after`, or puts back what was.
    fn become_(&mut self, means: &mut EdgeContext<'_>, after: Self) -> Result<(), P2pError> {
        rights::change(means, &self.rights(), &after.rights())?;
        *self = after;
        Ok(())
    }
}
