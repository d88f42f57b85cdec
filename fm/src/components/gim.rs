//! GIM: memory of hosts and devices for others.
//!
//! [`Grant`]s become bits of VTV and prefixes at edges; [`Gim`] has all of them, and sends the difference when they
//! change.
//!
//! A requester's edge passes requests to the PIDs in its VTV. The edge of the memory's owner adds the requester's PID
//! (egress prefix), and passes completions to the PIDs in its own VTV. So each grant has a bit at both edges. To allow,
//! the rights of completions come first; to revoke, those of requests go first, and those of completions once none is
//! under way. The segment table (FAST) belongs to the host and is not touched.
//!
//! Source: CXL 3.1 sections 7.7.3.1, 7.7.3.3; docs/spec/wire-formats.md §3.6, §4.6 (5901h to 5904h).

use std::collections::BTreeSet;

use serde::{Deserialize, Serialize};
use weft_parsers::fabric::Pid;

use super::edge::{AccessBit, EdgeContext, is_set};
use super::memory::map::{Beside, Kind, Range, fits};
use super::memory::{Host as Edge, Memory};
use super::rights::{self, Rights, RightsError};
use crate::cci::{CallError, CciSession};
use crate::model::inventory::{DiscoveredSwitch, Inventory};

/// A grant of GIM: memory of one host or device that others may access.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Grant {
    pub name: String,
    pub of: Edge,
    pub from: Vec<Edge>,
    /// Requesters name the target themselves (`VendPrefixL0` of requests), instead of by FAST.
    pub by_prefix: bool,
    /// Address at which all requesters see it.
    pub hpa: u64,
    pub len: u64,
}

impl GimError {
    /// Error: a requester is in the domain that owns the memory.
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
    /// The grant contradicts itself or others.
    #[error("{0}")]
    Misfit(String),
    /// The name is in use, or unknown.
    #[error("no GIM has this name, or another one has it already")]
    Name,
    #[error(transparent)]
    Rights(#[from] RightsError),
}

impl Grant {
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

/// All grants of GIM in a fabric.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Gim {
    pub grants: Vec<Grant>,
}

impl Gim {
    #[must_use]
    pub fn find(&self, name: &str) -> Option<&Grant> {
        self.grants.iter().find(|grant| grant.name == name)
    }

    /// Ranges that a requester has by GIM.
    #[must_use]
    pub fn ranges(&self, from: Edge) -> Vec<Range<Pid>> {
        let own = self.grants.iter().filter(|grant| grant.from.contains(&from));
        own.map(Grant::range).collect()
    }

    /// A grant that needs `pid` in VTV of the virtual switch of `edge`, or has an edge of this PID.
    #[must_use]
    pub fn user(&self, pid: Pid, edge: Option<Edge>) -> Option<&Grant> {
        let at = |one: &Edge| edge.is_none_or(|e| (e.switch, e.vcs) == (one.switch, one.vcs));
        self.grants.iter().find(|grant| {
            let back = at(&grant.of) && grant.from.iter().any(|one| one.pid == pid);
            let there = grant.of.pid == pid && grant.from.iter().any(at);
            back || there
        })
    }

    /// Why the virtual switch of `edge` still passes requests to `of`: another edge in it has access to that, or shows
    /// it memory, as VTV is the same for requests and for completions. `None` if it does not.
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

    /// Makes a grant: the edges of requesters and owner get their rights, or nothing is changed. `beside` has the other
    /// ranges of each requester, in their order.
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

    /// Revokes a grant from one requester; others keep it.
    ///
    /// # Errors
    /// The requester does not have it, or a step failed: see [`GimError`].
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

    /// Revokes a grant from all requesters.
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

    /// Finds grants whose rights are not in force: their names, and a missing right of each. Rights at switches that
    /// cannot be asked are taken to be set, and so are those at a switch of `fresh`, where they are restored in any
    /// case.
    ///
    /// # Errors
    /// A switch that was reachable does not answer.
    pub fn lacks(
        &self,
        fabric: &mut CciSession,
        inventory: &Inventory,
        fresh: &BTreeSet<Pid>,
    ) -> Result<Vec<(String, String)>, CallError> {
        let mut lacks = Vec::new();
        for grant in &self.grants {
            let alone = Self { grants: vec![grant.clone()] };
            for bit in &alone.access_bits() {
                let (at, _) = bit.place();
                let asked =
                    |switch: &DiscoveredSwitch| switch.whole && !fresh.contains(&switch.pid);
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
        // Within a domain the bridges of the virtual switch lead to the memory; VTV would add nothing.
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

    /// All access bits that the grants need.
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
                // The egress prefix tells the owner who asks, and its completion the way back.
                bits.back.insert(AccessBit::Out(of.switch, of.vcs));
            }
        }
        bits
    }

    /// Changes the rights to those of `after`, or restores the present ones.
    fn become_(&mut self, after: Self, means: &mut EdgeContext<'_>) -> Result<(), GimError> {
        rights::change(means, &self.rights(), &after.rights())?;
        *self = after;
        Ok(())
    }
}
