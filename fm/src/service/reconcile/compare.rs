//! Comparison of the believed state of a fabric with the state that it shows.
//!
//! [`compare`] takes a believed [`State`], and [`Bindings`] and [`Memory`] as read from the fabric, and returns
//! [`Reconciled`].
//!
//! Source: docs/spec/cxl-fabric.md "State".

use weft_parsers::cci::Uuid;
use weft_parsers::fabric::Pid;

use super::is_there;
use crate::components::bind::{Bindings, Bridge};
use crate::components::gim::Gim;
use crate::components::memory::{Memory, Part, Share};
use crate::model::inventory::Inventory;
use crate::model::text::name_of;
use crate::state::names::Binding;
use crate::state::store::State;

/// State of bindings and memory after the comparison, and the differences found.
#[derive(Debug, Default)]
pub struct Reconciled {
    pub bindings: Bindings,
    pub memory: Memory,
    pub gim: Gim,
    /// Differences, a line each.
    pub said: Vec<String>,
    /// Parts of shares that GFDs have lost, by tag; the shares still have them.
    pub forgotten: Vec<(Uuid, Pid)>,
    /// Bindings that switches, though they answer, no longer show.
    pub unbound: Vec<Binding>,
}

/// Compares the believed state with the state shown. The belief stands where a component cannot be asked. It also
/// stands for `wanted` memory of which some GFDs show nothing while all else is unchanged: those GFDs were restarted.
#[must_use]
pub(super) fn compare(
    believed: &State,
    shown: (Bindings, Memory),
    wanted: &dyn Fn(&Uuid, &[Pid]) -> bool,
) -> Reconciled {
    let (bindings, memory) = shown;
    let mut now = Reconciled { bindings, memory, ..Reconciled::default() };
    now.compare_bindings(believed);
    for share in &believed.grants.memory.shares {
        now.compare_share(&believed.inventory, share, wanted);
    }
    now.bindings.local.sort_by_key(|local| local.bridge);
    now.bindings.remote.sort_by_key(|link| link.host.bridge);
    now.memory.shares.sort_by_key(|share| share.tag);
    now
}

impl Reconciled {
    /// Compares bindings: one that is not shown is gone if its switches answer, and believed if one does not.
    fn compare_bindings(&mut self, believed: &State) {
        let answers = |bridge: Bridge| {
            believed.inventory.switch(bridge.switch).is_some_and(|switch| switch.whole)
        };
        let bindings = &mut self.bindings;
        bindings.cut.clone_from(&believed.bindings.cut);
        bindings.lost.clone_from(&believed.bindings.lost);
        bindings.lds.clone_from(&believed.bindings.lds);
        bindings.capacity.clone_from(&believed.bindings.capacity);
        bindings.blocks.clone_from(&believed.bindings.blocks);
        for local in &believed.bindings.local {
            let mut shown = bindings.local.iter();
            if shown.any(|one| one.bridge == local.bridge && one.port == local.port) {
                continue;
            }
            if answers(local.bridge) {
                self.unbound.push(Binding::Local(*local));
            } else {
                bindings.local.push(*local);
            }
        }
        for link in &believed.bindings.remote {
            if bindings.remote.contains(link) {
                continue;
            }
            // Both ends must answer: a link shown at one end only may be whole behind a silent switch.
            if answers(link.host.bridge) && answers(link.below.bridge) {
                self.unbound.push(Binding::Remote(*link));
            } else {
                bindings.remote.push(*link);
            }
        }
    }

    /// Compares one share: it is unchanged, lost by some GFDs, different, or gone.
    fn compare_share(
        &mut self,
        inventory: &Inventory,
        share: &Share,
        wanted: &dyn Fn(&Uuid, &[Pid]) -> bool,
    ) {
        let name = name_of(&share.tag);
        let now = self.memory.find(&share.tag);
        let is_hidden = is_hidden(inventory, share);
        let lost = lost(now, share);
        // Before any difference is told: lost parts of wanted memory are set up again, not reported as gone.
        if !is_hidden && !lost.is_empty() && wanted(&share.tag, &lost) {
            self.forgotten.extend(lost.iter().map(|gfd| (share.tag, *gfd)));
            self.keep(share);
            return;
        }
        match now {
            _ if is_hidden => self.keep(share),
            // Without hosts there is no decoder, so the interleaving is known from the belief only.
            Some(_) if share.hosts.is_empty() => self.keep(share),
            None => self.said.push(format!("memory {name:?} is not there any more")),
            Some(now) if !same(now, share) => {
                self.said.push(format!("memory {name:?} is not as it was"));
            }
            Some(_) => self.keep_notify(share),
        }
    }

    /// Keeps the belief whether a share asks for notifications: a GFD only shows that some share of a host does.
    fn keep_notify(&mut self, share: &Share) {
        if let Some(known) = self.memory.shares.iter_mut().find(|one| one.tag == share.tag) {
            known.notify = share.notify;
        }
    }

    /// Keeps the belief about a share, whatever is shown of it.
    fn keep(&mut self, share: &Share) {
        match self.memory.shares.iter_mut().find(|one| one.tag == share.tag) {
            Some(one) => *one = share.clone(),
            None => self.memory.shares.push(share.clone()),
        }
    }
}

/// Whether a GFD or a host's edge of a share cannot be asked now.
fn is_hidden(inventory: &Inventory, share: &Share) -> bool {
    let gone = |part: &Part| {
        let gfd = inventory.gfds.iter().find(|gfd| gfd.pid == part.gfd);
        !gfd.is_some_and(|gfd| is_there(inventory, gfd.at))
    };
    share.parts.iter().any(gone)
        || share
            .hosts
            .iter()
            .any(|host| !inventory.switch(host.switch).is_some_and(|switch| switch.whole))
}

/// GFDs that show nothing of their part of a share while the others show theirs unchanged; empty otherwise.
fn lost(now: Option<&Share>, before: &Share) -> Vec<Pid> {
    let (hpa, parts) = now.map_or((before.hpa, &[][..]), |now| (now.hpa, &now.parts[..]));
    let has = |part: &&Part| parts.iter().any(|other| other.gfd == part.gfd);
    let (kept, lost): (Vec<&Part>, Vec<&Part>) = before.parts.iter().partition(has);
    let as_before = kept.into_iter().eq(parts)
        && (parts.is_empty() || before.hosts.is_empty() || hpa == before.hpa)
        && now.is_none_or(|now| parts.is_empty() || now.hosts == before.hosts);
    if as_before { lost.into_iter().map(|part| part.gfd).collect() } else { Vec::new() }
}

/// Whether two shares are the same.
fn same(now: &Share, before: &Share) -> bool {
    let hosts = |share: &Share| {
        let mut pids: Vec<Pid> = share.hosts.iter().map(|host| host.pid).collect();
        pids.sort_unstable();
        pids
    };
    (now.len, now.hpa, &now.parts) == (before.len, before.hpa, &before.parts)
        && hosts(now) == hosts(before)
        // A Notify bit may be there for another share of the host; a missing one is a difference.
        && (now.notify || !before.notify || before.hosts.is_empty())
}
