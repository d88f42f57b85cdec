//! All that requesters have been granted: memory of GFDs, GIM, P2P, and access bits set by command.
//!
//! The kinds of memory share names, the addresses of a requester, and bits at edges. A bit is wanted as long as one
//! grant needs it, whatever its kind, so the bits of all are derived from [`Grants`] each time and never stored.
//!
//! Source: docs/spec/cxl-fabric.md "Memory"; "Tables of an edge and who may write them".

use std::collections::BTreeSet;

use serde::{Deserialize, Serialize};
use weft_parsers::cci::Uuid;
use weft_parsers::fabric::Pid;

use super::edge::AccessBit;
use super::gim::Gim;
use super::memory::{Host, Memory, Share};
use super::p2p::{self, P2p};
use crate::model::text::{name_of, tag};

/// Grants of all kinds in a fabric.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Grants {
    pub memory: Memory,
    pub gim: Gim,
    pub p2p: P2p,
    /// Access bits set by command, beyond those that memory, GIM and P2P need.
    pub access: BTreeSet<AccessBit>,
}

impl Grants {
    /// Every access bit that is wanted: for G-FAM of its hosts, for GIM and P2P at both edges, and those set by command.
    #[must_use]
    pub fn access_bits(&self) -> BTreeSet<AccessBit> {
        let mut all = self.memory.access_bits();
        all.extend(self.gim.access_bits());
        all.extend(self.p2p.access_bits());
        all.extend(&self.access);
        all
    }

    /// Whether some memory, GIM or P2P has a name.
    #[must_use]
    pub fn has_name(&self, name: &str) -> bool {
        let share = tag(name).ok().and_then(|tag| self.memory.find(&tag));
        share.is_some() || self.gim.find(name).is_some() || self.p2p.known(name).is_some()
    }

    /// The tag of existing memory of GFDs.
    #[must_use]
    pub fn tag_of(&self, name: &str) -> Option<Uuid> {
        // By the name's own tag first; tags that are no text are shown as UUIDs, and found by that.
        let by_name = tag(name).ok().filter(|tag| self.memory.find(tag).is_some());
        let shown = || self.memory.shares.iter().find(|share| name_of(&share.tag) == name);
        by_name.or_else(|| shown().map(|share| share.tag))
    }

    /// The grant that needs a bit at a host's edge, as text: it would be set again if it were cleared by command.
    #[must_use]
    pub fn user_of_bit(&self, host: Host, bit: AccessBit) -> Option<String> {
        match bit {
            AccessBit::Gmv(.., pid) => {
                let uses = |share: &&Share| {
                    share.hosts.contains(&host) && share.parts.iter().any(|part| part.gfd == pid)
                };
                let share = self.memory.shares.iter().find(uses)?;
                Some(format!("memory {:?}", name_of(&share.tag)))
            }
            AccessBit::Vtv(.., pid) => {
                self.gim.user(pid, Some(host)).map(|grant| format!("GIM {:?}", grant.name))
            }
            AccessBit::Lav(.., pid) => {
                self.p2p.user(pid, Some(host)).map(|grant| format!("P2P {:?}", grant.name))
            }
            // No command sets these: they come and go with GIM alone.
            AccessBit::Out(..) | AccessBit::Into(..) => None,
        }
    }

    /// A grant with an edge of this PID, as text.
    #[must_use]
    pub fn user_of_pid(&self, pid: Pid) -> Option<String> {
        if let Some(grant) = self.gim.user(pid, None) {
            return Some(format!("GIM {:?}", grant.name));
        }
        let is_end = |grant: &&p2p::Grant| {
            grant.owner.pid == pid || grant.members.iter().any(|one| one.pid == pid)
        };
        if let Some(grant) = self.p2p.all().find(is_end) {
            return Some(format!("P2P {:?}", grant.name));
        }
        let has = |share: &&Share| share.hosts.iter().any(|host| host.pid == pid);
        let share = self.memory.shares.iter().find(has)?;
        Some(format!("memory {:?}", name_of(&share.tag)))
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::components::gim;
    use crate::components::memory::Part;
    use crate::model::graph::SwitchId;

    fn host(switch: u16, pid: u16) -> Host {
        Host { switch: SwitchId(switch), vcs: 0, pid: Pid::from_low_bits(pid) }
    }

    /// A share, a GIM and a P2P, of which each has its own requester.
    fn all() -> Grants {
        let part = Part { gfd: Pid::from_low_bits(9), group: 0, decoder: 0, dpa: 0 };
        let (hosts, parts) = (vec![host(0, 1)], vec![part]);
        let (len, hpa, granularity, notify) = (64, 0, 256, false);
        let tag = tag("pool").unwrap();
        let share = Share { tag, hosts, parts, len, hpa, granularity, notify };
        let (name, owner, members) = ("win".to_owned(), host(1, 2), vec![host(0, 3)]);
        let policy = gim::Addressing::default();
        let gim = gim::Grant { name, owner, members, hpa: 64, len, policy };
        let (name, owner, members) = ("direct".to_owned(), host(1, 4), vec![host(0, 5)]);
        let policy = p2p::DevicePart::default();
        let p2p = p2p::Grant { name, owner, members, hpa: 128, len, policy };
        Grants {
            memory: Memory { shares: vec![share] },
            gim: Gim { grants: vec![gim] },
            p2p: P2p { grants: vec![p2p], waiting: Vec::new() },
            access: [AccessBit::Lav(SwitchId(0), 0, Pid::from_low_bits(7))].into(),
        }
    }

    #[test]
    fn a_grant_is_found_by_name_pid_and_bit() {
        let grants = all();
        let (at, pid) = (SwitchId(0), Pid::from_low_bits);
        for (name, known) in [("pool", true), ("win", true), ("direct", true), ("other", false)] {
            assert_eq!(grants.has_name(name), known, "{name}");
        }
        assert_eq!(grants.tag_of("pool"), tag("pool").ok());
        assert_eq!(grants.tag_of("win"), None, "GIM has no tag");
        for (number, user) in [
            (1, Some("memory \"pool\"")),
            (2, Some("GIM \"win\"")),
            (3, Some("GIM \"win\"")),
            (4, Some("P2P \"direct\"")),
            (5, Some("P2P \"direct\"")),
            (7, None),
        ] {
            assert_eq!(grants.user_of_pid(pid(number)).as_deref(), user, "{number}");
        }
        for (name, from, bit, user) in [
            ("its GFD", 1, AccessBit::Gmv(at, 0, pid(9)), Some("memory \"pool\"")),
            ("another host", 3, AccessBit::Gmv(at, 0, pid(9)), None),
            ("another GFD", 1, AccessBit::Gmv(at, 0, pid(8)), None),
            ("its owner", 3, AccessBit::Vtv(at, 0, pid(2)), Some("GIM \"win\"")),
            ("its device", 5, AccessBit::Lav(at, 0, pid(4)), Some("P2P \"direct\"")),
            ("by command alone", 5, AccessBit::Lav(at, 0, pid(7)), None),
        ] {
            assert_eq!(grants.user_of_bit(host(0, from), bit).as_deref(), user, "{name}");
        }
        let bits = grants.access_bits();
        assert_eq!(
            bits.len(),
            7,
            "GMV, two of VTV, a prefix, two of LAV, one by command: {bits:?}"
        );
    }
}
