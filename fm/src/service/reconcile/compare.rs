//! What was believed of a fabric is held against what it shows.
//!
//! A believed [`State`], and [`Bindings`] and [`Memory`] as they were read -> [`Reconciled`].
//!
//! Source: docs/spec/cxl-fabric.md "State".

use weft_parsers::cci::Uuid;
use weft_parsers::fabric::Pid;

use super::is_there;
use crate::bind::{Bindings, Bridge};
use crate::gim::Gim;
use crate::inventory::Inventory;
use crate::memory::{Memory, Part, Share};
use crate::service::names::Binding;
use crate::store::State;
use crate::text::name_of;

/// What the FM knows of bindings and memory after a look at the fabric, and what is not as it believed.
#[derive(Debug, Default)]
pub struct Reconciled {
    /// Who sees what.
    pub bindings: Bindings,
    /// Who has which memory.
    pub memory: Memory,
    /// What hosts and devices show each other.
    pub gim: Gim,
    /// What is not as it was.
    pub said: Vec<String>,
    /// What GFDs have forgotten, by tag: it is part of the memory still.
    pub forgotten: Vec<(Uuid, Pid)>,
    /// What switches that answer do not show any more.
    pub unbound: Vec<Binding>,
}

/// What was believed is held against what the fabric shows. The belief stays of what cannot be asked, and of memory that
/// is `wanted`, of the GFDs that show nothing of it, and of which all else is as it was: they have come back empty.
#[must_use]
pub(super) fn compare(
    believed: &State,
    shown: (Bindings, Memory),
    wanted: &dyn Fn(&Uuid, &[Pid]) -> bool,
) -> Reconciled {
    let (bindings, memory) = shown;
    let mut now = Reconciled { bindings, memory, ..Reconciled::default() };
    now.compare_bindings(believed);
    for share in &believed.memory.shares {
        now.compare_share(&believed.inventory, share, wanted);
    }
    now.bindings.local.sort_by_key(|local| local.bridge);
    now.bindings.remote.sort_by_key(|link| link.host.bridge);
    now.memory.shares.sort_by_key(|share| share.tag);
    now
}

impl Reconciled {
    /// Bindings that are not shown: gone where their switches answer, believed where one does not.
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
            if answers(link.host.bridge) && answers(link.below.bridge) {
                self.unbound.push(Binding::Remote(*link));
            } else {
                bindings.remote.push(*link);
            }
        }
    }

    /// One share of memory: as it was, forgotten by some GFDs, different, or not there.
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
        if !is_hidden && !lost.is_empty() && wanted(&share.tag, &lost) {
            self.forgotten.extend(lost.iter().map(|gfd| (share.tag, *gfd)));
            self.keep(share);
            return;
        }
        match now {
            _ if is_hidden => self.keep(share),
            // Nobody has a decoder for it: how it was dealt out is known here only.
            Some(_) if share.hosts.is_empty() => self.keep(share),
            None => self.said.push(format!("memory {name:?} is not there any more")),
            Some(now) if !same(now, share) => {
                self.said.push(format!("memory {name:?} is not as it was"));
            }
            Some(_) => self.keep_notify(share),
        }
    }

    /// Goes on believing whether a share asks for notifications: a GFD shows only that one of a host's shares there does.
    fn keep_notify(&mut self, share: &Share) {
        if let Some(known) = self.memory.shares.iter_mut().find(|one| one.tag == share.tag) {
            known.notify = share.notify;
        }
    }

    /// Goes on believing a share, whatever is shown of it.
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

/// The GFDs that show nothing of their part of a share, where what the others show is as it was; none otherwise.
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
        && (now.notify || !before.notify || before.hosts.is_empty())
}
