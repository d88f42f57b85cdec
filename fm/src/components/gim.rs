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
use super::memory::map::{Beside, Kind, Range};
use super::memory::{Host as Edge, Memory};
use super::rights::{self, Rights};
use super::window::{self, Policy, Window, WindowError};
use crate::cci::{CallError, CciSession};
use crate::model::inventory::{DiscoveredSwitch, Inventory};

/// How requesters of GIM name its owner.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(transparent)]
pub struct Addressing {
    /// They name the target themselves (`VendPrefixL0` of requests), instead of by FAST.
    pub by_prefix: bool,
}

/// A grant of GIM: memory of one host or device that others may access.
pub type Grant = Window<Addressing>;

impl Policy for Addressing {
    const WHAT: &'static str = "GIM";
    const STORED: [&'static str; 2] = ["of", "by_prefix"];

    fn kind(&self) -> Kind {
        if self.by_prefix { Kind::GimByPrefix } else { Kind::Gim }
    }

    fn rights(grant: &Grant) -> Rights {
        let (mut bits, of) = (Rights::default(), grant.owner);
        for one in &grant.members {
            bits.there.insert(AccessBit::Vtv(one.switch, one.vcs, of.pid));
            if grant.policy.by_prefix {
                bits.there.insert(AccessBit::Into(one.switch, one.vcs));
            }
            bits.back.insert(AccessBit::Vtv(of.switch, of.vcs, one.pid));
            // The egress prefix tells the owner who asks, and its completion the way back.
            bits.back.insert(AccessBit::Out(of.switch, of.vcs));
        }
        bits
    }
}

/// Error: a requester is in the domain that owns the memory.
#[must_use]
pub fn own_domain(pid: Pid) -> WindowError {
    WindowError::Misfit(format!(
        "gim-other-domain: PID {pid} is in the domain that owns the memory, and needs no GIM"
    ))
}

/// All grants of GIM in a fabric.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Gim {
    pub grants: Vec<Grant>,
}

impl Gim {
    #[must_use]
    pub fn find(&self, name: &str) -> Option<&Grant> {
        window::find(&self.grants, name)
    }

    /// Ranges that a requester has by GIM.
    #[must_use]
    pub fn ranges(&self, from: Edge) -> Vec<Range<Pid>> {
        let own = self.grants.iter().filter(|grant| grant.members.contains(&from));
        own.map(Grant::range).collect()
    }

    /// A grant that needs `pid` in VTV of the virtual switch of `edge`, or has an edge of this PID.
    #[must_use]
    pub fn user(&self, pid: Pid, edge: Option<Edge>) -> Option<&Grant> {
        self.grants.iter().find(|grant| grant.uses(pid, edge))
    }

    /// Why the virtual switch of `edge` still passes requests to `of`: another edge in it has access to that, or shows
    /// it memory, as VTV is the same for requests and for completions. `None` if it does not.
    #[must_use]
    pub fn still_allows(&self, of: Pid, edge: Edge) -> Option<String> {
        let same = |one: &&Edge| (one.switch, one.vcs) == (edge.switch, edge.vcs);
        let own = self.grants.iter().filter(|grant| grant.owner.pid == of);
        if let Some(one) = own.flat_map(|grant| &grant.members).find(same) {
            return Some(format!("PID {} of the same virtual switch has access", one.pid));
        }
        let to_it = |grant: &&Grant| grant.members.iter().any(|one| one.pid == of);
        let shows = self.grants.iter().filter(to_it).map(|grant| &grant.owner).find(same);
        shows.map(|one| format!("PID {} of the same virtual switch shows it memory", one.pid))
    }

    /// Makes a grant: the edges of requesters and owner get their rights, or nothing is changed. `beside` has the other
    /// ranges of each requester, in their order.
    ///
    /// # Errors
    /// See [`WindowError`].
    pub fn show(
        &mut self,
        means: &mut EdgeContext<'_>,
        memory: &Memory,
        beside: &[Beside],
        grant: Grant,
    ) -> Result<(), WindowError> {
        self.check(memory, beside, &grant)?;
        let mut after = self.clone();
        after.grants.push(grant);
        self.become_(after, means)
    }

    /// Revokes a grant from one requester; others keep it.
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
        let grant = after.grants.iter_mut().find(|grant| grant.name == name);
        grant.ok_or(WindowError::name::<Addressing>())?.remove_member(from)?;
        self.become_(after, means)
    }

    /// Revokes a grant from all requesters.
    ///
    /// # Errors
    /// There is none, or a step failed: see [`WindowError`].
    pub fn release(&mut self, means: &mut EdgeContext<'_>, name: &str) -> Result<(), WindowError> {
        let mut after = self.clone();
        after.grants.retain(|grant| grant.name != name);
        if after.grants.len() == self.grants.len() {
            return Err(WindowError::name::<Addressing>());
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

    fn check(&self, memory: &Memory, beside: &[Beside], new: &Grant) -> Result<(), WindowError> {
        if self.find(&new.name).is_some() {
            return Err(WindowError::name::<Addressing>());
        }
        let domain = |one: &Edge| (one.switch, one.vcs);
        // Within a domain the bridges of the virtual switch lead to the memory; VTV would add nothing.
        if let Some(own) = new.members.iter().find(|one| domain(one) == domain(&new.owner)) {
            return Err(own_domain(own.pid));
        }
        new.check_members()?;
        new.check_size()?;
        new.check_room(beside, |one, others| {
            [&memory.ranges(one)[..], &self.ranges(one), others].concat()
        })
    }

    /// All access bits that the grants need.
    #[must_use]
    pub fn access_bits(&self) -> BTreeSet<AccessBit> {
        self.rights().all()
    }

    fn rights(&self) -> Rights {
        window::rights(&self.grants)
    }

    /// Changes the rights to those of `after`, or restores the present ones.
    fn become_(&mut self, after: Self, means: &mut EdgeContext<'_>) -> Result<(), WindowError> {
        rights::change(means, &self.rights(), &after.rights())?;
        *self = after;
        Ok(())
    }
}
