//! Memory of hosts and devices for others (GIM): who may name whom, and where `VendPrefixL0` is.
//!
//! Shape: [`Grant`]s -> bits of VTV and of prefixes at edges; what changes between two [`Gim`]s is sent and read back.
//! Units: octets.
//! Source: seed 000 sections 7.7.3.1, 7.7.3.3; wire-formats.md 3.6, 4.6 (5901h to 5904h).
//!
//! A requester's edge lets requests go to whom VTV has; the edge of whose memory it is puts the requester's PID in front
//! of them (egress prefix), and lets the completion go back to whom VTV has there: so each grant has a bit at both. To
//! allow, the way back comes first; to revoke, the way there goes first, and the way back when nothing is on it any more.
//! The segment table (FAST) is the host's own, and not touched.

use std::collections::BTreeSet;
use std::fmt;

use serde::{Deserialize, Serialize};
use weft_parsers::cci::gae::{AccessOp, ConfigureAccess, PrefixFlags, SetPrefix};
use weft_parsers::cci::pbr::PathCost;
use weft_parsers::cci::tables::{PidOp, VcsVectorRange, Vector, VectorRange};
use weft_parsers::cci::{Opcode, Request};
use weft_parsers::fabric::Pid;

use super::cci::{CallError, Fabric, Way};
use super::graph::SwitchId;
use super::inventory::{Inventory, Switch};
use super::memory::{Host as Edge, Memory};

/// Octets of GMV in the vectors of a VCS; VTV stands behind it.
const VTV_AT: u32 = 512;
/// Tries of putting back what was there.
const UNDO_TRIES: u32 = 4;

/// Memory of a host or device that others may reach.
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

/// Why memory is not shown, or not hidden.
#[derive(Debug, thiserror::Error)]
pub enum GimError {
    /// It does not hold together.
    #[error("{0}")]
    Misfit(String),
    /// The name is in use, or not.
    #[error("there is no such memory, or one already")]
    Name,
    /// A step failed; all before it were undone.
    #[error("{failed}; undone")]
    Undone {
        /// The step.
        failed: String,
        /// What happened.
        source: Box<CallError>,
    },
    /// A step failed, and some before it could not be undone.
    #[error("{failed}; left: {}", .left.join("; "))]
    Left {
        /// The step.
        failed: String,
        /// What was not undone.
        left: Vec<String>,
        /// What happened.
        source: Box<CallError>,
    },
}

/// Something that is set at an edge.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
enum Bit {
    /// A PID in VTV.
    Vtv(SwitchId, u8, Pid),
    /// Requests that leave and completions that enter have a prefix.
    Out(SwitchId, u8),
    /// Requests that enter may have one.
    Into(SwitchId, u8),
}

impl fmt::Display for Bit {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Vtv(at, vcs, pid) => write!(f, "{pid} in VTV of VCS {vcs} of {at}"),
            Self::Out(at, vcs) => write!(f, "prefixes of requests out of VCS {vcs} of {at}"),
            Self::Into(at, vcs) => write!(f, "prefixes of requests into VCS {vcs} of {at}"),
        }
    }
}

/// Bits by what they are for: requests on their way in, and the way out at the target with the completions' way back.
struct Bits {
    there: BTreeSet<Bit>,
    back: BTreeSet<Bit>,
}

/// What is asked and told beside: the fabric, who is in it, what ways cost, and how to wait until they are empty.
pub struct Means<'a> {
    /// The way to all components.
    pub fabric: &'a mut Fabric,
    /// What there is.
    pub inventory: &'a Inventory,
    /// What the way from a switch to a target adds.
    pub cost: &'a dyn Fn(SwitchId, Pid) -> PathCost,
    /// Waits until requests under way have been answered.
    pub drain: fn(),
}

/// All that is shown.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Gim {
    /// Each by its name.
    pub grants: Vec<Grant>,
}

impl Gim {
    /// A grant.
    #[must_use]
    pub fn find(&self, name: &str) -> Option<&Grant> {
        self.grants.iter().find(|grant| grant.name == name)
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

    /// Somebody else in the virtual switch of `edge` who reaches memory of `of`.
    #[must_use]
    pub fn sharer(&self, of: Pid, edge: Edge) -> Option<Pid> {
        let own = self.grants.iter().filter(|grant| grant.of.pid == of);
        let mut all = own.flat_map(|grant| &grant.from);
        let same = |one: &&Edge| (one.switch, one.vcs) == (edge.switch, edge.vcs);
        all.find(same).map(|one| one.pid)
    }

    /// Shows memory, or nothing of it.
    ///
    /// # Errors
    /// See [`GimError`].
    pub fn show(
        &mut self,
        means: &mut Means<'_>,
        memory: &Memory,
        grant: Grant,
    ) -> Result<(), GimError> {
        self.check(memory, &grant)?;
        let mut after = self.clone();
        after.grants.push(grant);
        self.become_(after, means)
    }

    /// Takes memory from one requester; others keep it.
    ///
    /// # Errors
    /// It does not have it, or a step failed: see [`GimError`].
    pub fn revoke(
        &mut self,
        means: &mut Means<'_>,
        name: &str,
        from: Edge,
    ) -> Result<(), GimError> {
        let mut after = self.clone();
        let grant = after.grants.iter_mut().find(|grant| grant.name == name);
        let grant = grant.ok_or(GimError::Name)?;
        let had = grant.from.len();
        grant.from.retain(|one| *one != from);
        if grant.from.len() == had {
            return Err(GimError::Misfit(format!("PID {} does not reach it", from.pid)));
        }
        self.become_(after, means)
    }

    /// Hides memory from all.
    ///
    /// # Errors
    /// There is none, or a step failed: see [`GimError`].
    pub fn release(&mut self, means: &mut Means<'_>, name: &str) -> Result<(), GimError> {
        let mut after = self.clone();
        after.grants.retain(|grant| grant.name != name);
        if after.grants.len() == self.grants.len() {
            return Err(GimError::Name);
        }
        self.become_(after, means)
    }

    /// What does not stand in the fabric as it is known here: names of grants, and what they lack. What cannot be asked
    /// stays believed.
    ///
    /// # Errors
    /// A switch does not answer that should.
    pub fn lacks(
        &self,
        fabric: &mut Fabric,
        inventory: &Inventory,
    ) -> Result<Vec<(String, String)>, CallError> {
        let mut lacks = Vec::new();
        for grant in &self.grants {
            let alone = Self { grants: vec![grant.clone()] }.bits();
            for bit in alone.there.union(&alone.back) {
                let (at, _) = place(*bit);
                if inventory.switch(at).is_some_and(|switch| switch.whole)
                    && !is_set(fabric, inventory, *bit)?
                {
                    lacks.push((grant.name.clone(), bit.to_string()));
                    break;
                }
            }
        }
        Ok(lacks)
    }

    fn check(&self, memory: &Memory, new: &Grant) -> Result<(), GimError> {
        let misfit = |text: String| Err(GimError::Misfit(text));
        if self.find(&new.name).is_some() {
            return Err(GimError::Name);
        }
        let domain = |one: &Edge| (one.switch, one.vcs);
        if let Some(own) = new.from.iter().find(|one| domain(one) == domain(&new.of)) {
            return misfit(format!(
                "gim-other-domain: PID {} is of the domain whose memory it is, and needs no GIM",
                own.pid
            ));
        }
        let different: BTreeSet<&Edge> = new.from.iter().collect();
        if different.len() != new.from.len() || new.from.is_empty() {
            return misfit("expected requesters, each once".to_owned());
        }
        let Some(end) = new.hpa.checked_add(new.len).filter(|_| new.len > 0) else {
            return misfit(
                "the addresses end before the memory does, or there are none".to_owned(),
            );
        };
        let meets = |hpa: u64, len: u64| hpa < end && new.hpa < hpa.saturating_add(len);
        let other = self.grants.iter().find(|one| {
            one.of != new.of
                && meets(one.hpa, one.len)
                && one.from.iter().any(|who| new.from.contains(who))
        });
        if let Some(other) = other {
            return misfit(format!("{:?} has addresses of it for the same requester", other.name));
        }
        let share = memory.shares.iter().find(|share| {
            meets(share.hpa, share.len) && share.hosts.iter().any(|host| new.from.contains(host))
        });
        match share {
            Some(share) => misfit(format!(
                "memory {:?} has addresses of it for the same host",
                super::service::want::name_of(&share.tag)
            )),
            None => Ok(()),
        }
    }

    fn bits(&self) -> Bits {
        let mut bits = Bits { there: BTreeSet::new(), back: BTreeSet::new() };
        for grant in &self.grants {
            let of = grant.of;
            for one in &grant.from {
                bits.there.insert(Bit::Vtv(one.switch, one.vcs, of.pid));
                if grant.by_prefix {
                    bits.there.insert(Bit::Into(one.switch, one.vcs));
                }
                bits.back.insert(Bit::Vtv(of.switch, of.vcs, one.pid));
                bits.back.insert(Bit::Out(of.switch, of.vcs));
            }
        }
        bits
    }

    /// Brings about `after`, or puts back what was.
    fn become_(&mut self, after: Self, means: &mut Means<'_>) -> Result<(), GimError> {
        let (old, new) = (self.bits(), after.bits());
        let had: BTreeSet<Bit> = old.there.union(&old.back).copied().collect();
        let has: BTreeSet<Bit> = new.there.union(&new.back).copied().collect();
        let on = |set: &BTreeSet<Bit>| -> Vec<(Bit, bool)> {
            set.difference(&had).map(|bit| (*bit, true)).collect()
        };
        let off = |set: &BTreeSet<Bit>| -> Vec<(Bit, bool)> {
            set.difference(&has).map(|bit| (*bit, false)).collect()
        };
        let stages = [on(&new.back), on(&new.there), off(&old.there), off(&old.back)];
        let mut done: Vec<(Bit, bool)> = Vec::new();
        for (number, stage) in stages.into_iter().enumerate() {
            if number == 3 && !stage.is_empty() {
                (means.drain)();
            }
            for (bit, value) in stage {
                // From here on it may have come about, whatever is answered.
                done.push((bit, value));
                if let Err(source) = set(means, bit, value) {
                    return Err(undo(means, done, source));
                }
            }
        }
        *self = after;
        Ok(())
    }
}

fn undo(means: &mut Means<'_>, mut done: Vec<(Bit, bool)>, source: CallError) -> GimError {
    let said =
        |(bit, value): (Bit, bool)| format!("{bit} {}", if value { "set" } else { "cleared" });
    let failed = done.last().copied().map(said).unwrap_or_default();
    let (mut left, source) = (Vec::new(), Box::new(source));
    while let Some((bit, value)) = done.pop() {
        let mut tries = (0..UNDO_TRIES).map(|_| set(means, bit, !value));
        if !tries.any(|tried| tried.is_ok()) {
            left.push(said((bit, value)));
        }
    }
    if left.is_empty() {
        GimError::Undone { failed, source }
    } else {
        GimError::Left { failed, left, source }
    }
}

const fn place(bit: Bit) -> (SwitchId, u8) {
    match bit {
        Bit::Vtv(at, vcs, _) | Bit::Out(at, vcs) | Bit::Into(at, vcs) => (at, vcs),
    }
}

fn way(inventory: &Inventory, at: SwitchId) -> Way {
    inventory.switch(at).map_or(Way::Entry, Switch::way)
}

/// Whether VTV of a virtual switch has a PID.
///
/// # Errors
/// It does not answer.
pub fn has_vtv(
    fabric: &mut Fabric,
    inventory: &Inventory,
    (at, vcs): (SwitchId, u8),
    pid: Pid,
) -> Result<bool, CallError> {
    let start = VTV_AT + u32::from(pid.bits() / 8);
    let range = VcsVectorRange { vcs, range: VectorRange { start, len: 1 } };
    let answer = fabric.call(way(inventory, at), &Request::GetVcsAccess(range))?;
    let octet = answer.read::<Vector<'_>>()?.data.get(0);
    Ok(octet.is_some_and(|octet| octet & (1 << (pid.bits() % 8)) != 0))
}

/// Where `VendPrefixL0` is allowed at a virtual switch.
///
/// # Errors
/// It does not answer.
pub fn prefixes(
    fabric: &mut Fabric,
    inventory: &Inventory,
    (at, vcs): (SwitchId, u8),
) -> Result<PrefixFlags, CallError> {
    fabric.call(way(inventory, at), &Request::GetPrefix(vcs))?.read::<PrefixFlags>()
}

fn is_set(fabric: &mut Fabric, inventory: &Inventory, bit: Bit) -> Result<bool, CallError> {
    let at = place(bit);
    Ok(match bit {
        Bit::Vtv(_, _, pid) => has_vtv(fabric, inventory, at, pid)?,
        Bit::Out(..) => prefixes(fabric, inventory, at)?.out,
        Bit::Into(..) => prefixes(fabric, inventory, at)?.into,
    })
}

fn set(means: &mut Means<'_>, bit: Bit, on: bool) -> Result<(), CallError> {
    let ((at, vcs), inventory) = (place(bit), means.inventory);
    let way = way(inventory, at);
    let (request, opcode) = match bit {
        Bit::Vtv(_, _, pid) => {
            let op = if on { AccessOp::EnableVtv } else { AccessOp::DisableVtv };
            let cost = (means.cost)(at, pid);
            let set = ConfigureAccess { vcs, access: PidOp { pid, op }, cost };
            (Request::ConfigureAccess(set), Opcode::CONFIGURE_ACCESS)
        }
        Bit::Out(..) | Bit::Into(..) => {
            let mut prefix = prefixes(means.fabric, inventory, (at, vcs))?;
            match bit {
                Bit::Out(..) => prefix.out = on,
                _ => prefix.into = on,
            }
            (Request::SetPrefix(SetPrefix { vcs, prefix }), Opcode::SET_PREFIX)
        }
    };
    means.fabric.call(way, &request)?;
    if is_set(means.fabric, inventory, bit)? == on {
        return Ok(());
    }
    let what = "what was set at the edge is not so";
    Err(CallError::Unexpected { way, opcode, what })
}
