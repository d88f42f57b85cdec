//! Memory of hosts and devices for others (GIM): who may name whom, and where `VendPrefixL0` is.
//!
//! [`Grant`]s -> bits of VTV and of prefixes at edges; what changes between two [`Gim`]s is sent and read back.
//!
//! Units: bytes.
//! Source: CXL 3.1 sections 7.7.3.1, 7.7.3.3; docs/spec/wire-formats.md §3.6, §4.6 (5901h to 5904h).
//!
//! A requester's edge lets requests go to whom VTV has; the edge of whose memory it is puts the requester's PID in front
//! of them (egress prefix), and lets the completion go back to whom VTV has there: so each grant has a bit at both. To
//! allow, the way back comes first; to revoke, the way there goes first, and the way back when nothing is on it any more.
//! The segment table (FAST) is the host's own, and not touched.

use std::collections::BTreeSet;

use serde::{Deserialize, Serialize};
use weft_parsers::fabric::Pid;

use super::cci::{CallError, Fabric};
use super::edge::{AccessBit, EdgeContext, is_set};
use super::inventory::{Inventory, Switch};
use super::memory::map::{Beside, Kind, Range, fits};
use super::memory::{Host as Edge, Memory};
use super::rights::{self, Rights, RightsError};

/// A grant of GIM: memory of one host or device that others may reach.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Grant {
    /// What it is called.
    pub name: String,
    /// Whose memory it is.
    pub of: Edge,
    /// Who reaches it.
    pub from: Vec<Edge>,
    /// They name the target themselves (`VendPrefixL0` of requests), instead of by their FAST.
    pub by_prefix: bool,
    /// Where all of them see it.
    pub hpa: u64,
    /// How much.
    pub len: u64,
}

impl GimError {
    /// A requester is in the domain that owns the memory.
    #[must_use]
    pub fn own_domain(pid: Pid) -> Self {
        Self::Misfit(format!(
            "gim-other-domain: PID {pid} is in the domain that owns the memory, and needs no GIM"
        ))
    }
}

/// Why a grant of GIM is not made or taken back.
#[derive(Debug, thiserror::Error)]
pub enum GimError {
    /// It does not hold together.
    #[error("{0}")]
    Misfit(String),
    /// The name is in use, or not.
    #[error("no GIM has this name, or another one has it already")]
    Name,
    /// Rights could not be changed.
    #[error(transparent)]
    Rights(#[from] RightsError),
}

impl Grant {
    /// Where requesters see it.
    fn range(&self) -> Range<Pid> {
        Range {
            name: format!("GIM {:?}", self.name),
            hpa: self.hpa,
            len: self.len,
            targets: vec![self.of.pid],
            granularity: 0,
            kind: if self.by_prefix { Kind::GimByPrefix } else { Kind::Gim },
        }
    }
}

/// All grants of GIM in a fabric: who reaches whose memory.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Gim {
    /// Each by its name.
    pub grants: Vec<Grant>,
}

impl Gim {
    /// The grant of a name.
    #[must_use]
    pub fn find(&self, name: &str) -> Option<&Grant> {
        self.grants.iter().find(|grant| grant.name == name)
    }

    /// All that a requester reaches by GIM, where it sees it.
    #[must_use]
    pub fn ranges(&self, from: Edge) -> Vec<Range<Pid>> {
        let own = self.grants.iter().filter(|grant| grant.from.contains(&from));
        own.map(Grant::range).collect()
    }

    /// The grant that needs `pid` in VTV of the virtual switch of `edge`, or has an edge of this PID.
    #[must_use]
    pub fn user(&self, pid: Pid, edge: Option<Edge>) -> Option<&Grant> {
        let at = |one: &Edge| edge.is_none_or(|e| (e.switch, e.vcs) == (one.switch, one.vcs));
        self.grants.iter().find(|grant| {
            let back = at(&grant.of) && grant.from.iter().any(|one| one.pid == pid);
            let there = grant.of.pid == pid && grant.from.iter().any(at);
            back || there
        })
    }

    /// Why the virtual switch of `edge` still lets requests to `of` through: somebody else in it reaches that, or shows it
    /// memory, as VTV is the same for requests and for completions.
    #[must_use]
    pub fn still_allows(&self, of: Pid, edge: Edge) -> Option<String> {
        let same = |one: &&Edge| (one.switch, one.vcs) == (edge.switch, edge.vcs);
        let own = self.grants.iter().filter(|grant| grant.of.pid == of);
        if let Some(one) = own.flat_map(|grant| &grant.from).find(same) {
            return Some(format!("PID {} of the same virtual switch has access", one.pid));
        }
        let to_it = |grant: &&Grant| grant.from.iter().any(|one| one.pid == of);
        let shows = self.grants.iter().filter(to_it).map(|grant| &grant.of).find(same);
        shows.map(|one| format!("PID {} of the same virtual switch shows it memory", one.pid))
    }

    /// Makes a grant: the requesters' and the owner's edges get their rights, or nothing is changed. `beside` is
    /// what each requester has besides, in their order.
    ///
    /// # Errors
    /// See [`GimError`].
    pub fn show(
        &mut self,
        means: &mut EdgeContext<'_>,
        memory: &Memory,
        beside: &[Beside],
        grant: Grant,
    ) -> Result<(), GimError> {
        self.check(memory, beside, &grant)?;
        let mut after = self.clone();
        after.grants.push(grant);
        self.become_(after, means)
    }

    /// Takes a grant from one requester; others keep it.
    ///
    /// # Errors
    /// It does not have it, or a step failed: see [`GimError`].
    pub fn revoke(
        &mut self,
        means: &mut EdgeContext<'_>,
        name: &str,
        from: Edge,
    ) -> Result<(), GimError> {
        let mut after = self.clone();
        let grant = after.grants.iter_mut().find(|grant| grant.name == name);
        let grant = grant.ok_or(GimError::Name)?;
        let had = grant.from.len();
        grant.from.retain(|one| *one != from);
        if grant.from.len() == had {
            return Err(GimError::Misfit(format!("PID {} has no access to it", from.pid)));
        }
        self.become_(after, means)
    }

    /// Takes a grant from all requesters.
    ///
    /// # Errors
    /// There is none, or a step failed: see [`GimError`].
    pub fn release(&mut self, means: &mut EdgeContext<'_>, name: &str) -> Result<(), GimError> {
        let mut after = self.clone();
        after.grants.retain(|grant| grant.name != name);
        if after.grants.len() == self.grants.len() {
            return Err(GimError::Name);
        }
        self.become_(after, means)
    }

    /// Finds grants whose rights are not set in the fabric: their names, and what they lack. What cannot be asked
    /// stays believed, and so does what a switch of `fresh` has lost: that is set again.
    ///
    /// # Errors
    /// A switch does not answer that should.
    pub fn lacks(
        &self,
        fabric: &mut Fabric,
        inventory: &Inventory,
        fresh: &BTreeSet<Pid>,
    ) -> Result<Vec<(String, String)>, CallError> {
        let mut lacks = Vec::new();
        for grant in &self.grants {
            let alone = Self { grants: vec![grant.clone()] };
            for bit in &alone.access_bits() {
                let (at, _) = bit.place();
                let asked = |switch: &Switch| switch.whole && !fresh.contains(&switch.pid);
                if inventory.switch(at).is_some_and(asked) && !is_set(fabric, inventory, *bit)? {
                    lacks.push((grant.name.clone(), bit.to_string()));
                    break;
                }
            }
        }
        Ok(lacks)
    }

    fn check(&self, memory: &Memory, beside: &[Beside], new: &Grant) -> Result<(), GimError> {
        let misfit = |text: String| Err(GimError::Misfit(text));
        if self.find(&new.name).is_some() {
            return Err(GimError::Name);
        }
        let domain = |one: &Edge| (one.switch, one.vcs);
        if let Some(own) = new.from.iter().find(|one| domain(one) == domain(&new.of)) {
            return Err(GimError::own_domain(own.pid));
        }
        let different: BTreeSet<&Edge> = new.from.iter().collect();
        if different.len() != new.from.len() || new.from.is_empty() {
            return misfit("expected at least one requester, each of them once".to_owned());
        }
        if new.len == 0 || new.hpa.checked_add(new.len).is_none() {
            return misfit(
                "the size is 0, or the memory ends beyond 64 bits of address".to_owned(),
            );
        }
        for (one, Beside { others: more, own }) in new.from.iter().zip(beside) {
            let mut others = memory.ranges(*one);
            others.extend(self.ranges(*one));
            others.extend_from_slice(more);
            if let Err(conflict) = fits(&new.range(), &others, own) {
                return misfit(format!("for PID {}: {conflict}", one.pid));
            }
        }
        Ok(())
    }

    /// All bits at edges that the grants need.
    #[must_use]
    pub fn access_bits(&self) -> BTreeSet<AccessBit> {
        self.rights().all()
    }

    fn rights(&self) -> Rights {
        let mut bits = Rights::default();
        for grant in &self.grants {
            let of = grant.of;
            for one in &grant.from {
                bits.there.insert(AccessBit::Vtv(one.switch, one.vcs, of.pid));
                if grant.by_prefix {
                    bits.there.insert(AccessBit::Into(one.switch, one.vcs));
                }
                bits.back.insert(AccessBit::Vtv(of.switch, of.vcs, one.pid));
                bits.back.insert(AccessBit::Out(of.switch, of.vcs));
            }
        }
        bits
    }

    /// Brings about `after`, or puts back what was.
    fn become_(&mut self, after: Self, means: &mut EdgeContext<'_>) -> Result<(), GimError> {
        rights::change(means, &self.rights(), &after.rights())?;
        *self = after;
        Ok(())
    }
}
