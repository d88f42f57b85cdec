//! Windows: memory of one owner that others see at an address of theirs, by GIM or by P2P.
//!
//! A [`Window`] has an owner, members that access its memory, an address and a size. The manager places it in the address
//! maps of all members, and grants rights at their edges and at that of the owner. A [`Policy`] is what makes it GIM or
//! P2P: the bits that open it, and the table by which requests find it.
//!
//! Memory of GFDs ([`super::memory`]) is placed by the same rules, but is no window: it has an owner for each interleave
//! way, its rights stand in the GFDs along with capacity and decoders, which are given in an order that needs an undo
//! log, and it is found by a tag that the GFDs keep.
//!
//! Source: CXL 3.1 sections 7.7.3.1, 7.7.9; docs/spec/cxl-fabric.md "Memory".

use std::collections::BTreeSet;

use serde::ser::SerializeMap;
use serde::{Deserialize, Serialize, Serializer};
use weft_parsers::fabric::Pid;

use super::memory::Host as Edge;
use super::memory::map::{Beside, Kind, Range, fits};
use super::rights::{Rights, RightsError};

/// What distinguishes windows of one kind.
pub trait Policy: Sized {
    /// Word for it in messages.
    const WHAT: &'static str;
    /// Names of the owner and of the policy in the store.
    const STORED: [&'static str; 2];

    /// How requests of members find their target.
    fn kind(&self) -> Kind;

    /// Bits at edges by which members reach the owner, and completions come back.
    fn rights(window: &Window<Self>) -> Rights;
}

/// Memory of one owner that members access.
#[derive(Clone, Debug, PartialEq, Eq, Deserialize)]
pub struct Window<P> {
    pub name: String,
    /// Edge of the host or device whose memory it is.
    #[serde(alias = "of", alias = "to")]
    pub owner: Edge,
    /// Edges of hosts or devices that access it.
    #[serde(alias = "from")]
    pub members: Vec<Edge>,
    /// Address at which all members see it.
    pub hpa: u64,
    pub len: u64,
    #[serde(alias = "by_prefix", alias = "ld", default)]
    pub policy: P,
}

/// By hand, as the store calls owner and policy by words of the kind.
impl<P: Policy + Serialize> Serialize for Window<P> {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        let [owner, policy] = P::STORED;
        let mut map = serializer.serialize_map(Some(6))?;
        map.serialize_entry("name", &self.name)?;
        map.serialize_entry(owner, &self.owner)?;
        map.serialize_entry("from", &self.members)?;
        map.serialize_entry("hpa", &self.hpa)?;
        map.serialize_entry("len", &self.len)?;
        map.serialize_entry(policy, &self.policy)?;
        map.end()
    }
}

/// Why a window is not made, changed or released.
#[derive(Debug, thiserror::Error)]
pub enum WindowError {
    /// It contradicts itself or others.
    #[error("{0}")]
    Misfit(String),
    /// The name is in use, or unknown.
    #[error("no {0} has this name, or another one has it already")]
    Name(&'static str),
    #[error(transparent)]
    Rights(#[from] RightsError),
}

impl WindowError {
    /// The name is that of no window of this kind, or of another one.
    #[must_use]
    pub const fn name<P: Policy>() -> Self {
        Self::Name(P::WHAT)
    }
}

impl<P: Policy> Window<P> {
    /// The range that it takes in the address map of each member.
    #[must_use]
    pub fn range(&self) -> Range<Pid> {
        Range {
            name: format!("{} {:?}", P::WHAT, self.name),
            hpa: self.hpa,
            len: self.len,
            targets: vec![self.owner.pid],
            granularity: 0,
            kind: self.policy.kind(),
        }
    }

    /// Checks that there is a member, and none twice.
    ///
    /// # Errors
    /// [`WindowError::Misfit`].
    pub fn check_members(&self) -> Result<(), WindowError> {
        let different: BTreeSet<&Edge> = self.members.iter().collect();
        if different.len() != self.members.len() || self.members.is_empty() {
            let text = "expected at least one requester, each of them once";
            return Err(WindowError::Misfit(text.to_owned()));
        }
        Ok(())
    }

    /// Checks that there is memory, and that it ends within 64 bits of address.
    ///
    /// # Errors
    /// [`WindowError::Misfit`].
    pub fn check_size(&self) -> Result<(), WindowError> {
        if self.len == 0 || self.hpa.checked_add(self.len).is_none() {
            let text = "the size is 0, or the memory ends beyond 64 bits of address";
            return Err(WindowError::Misfit(text.to_owned()));
        }
        Ok(())
    }

    /// Checks that it fits the address map of each member. `beside` has its other ranges, in the order of the members,
    /// to which `all` adds those that the caller knows.
    ///
    /// # Errors
    /// [`WindowError::Misfit`], with the rule.
    pub fn check_room(
        &self,
        beside: &[Beside],
        all: impl Fn(Edge, &[Range<Pid>]) -> Vec<Range<Pid>>,
    ) -> Result<(), WindowError> {
        for (one, Beside { others, own }) in self.members.iter().zip(beside) {
            if let Err(conflict) = fits(&self.range(), &all(*one, others), own) {
                return Err(WindowError::Misfit(format!("for PID {}: {conflict}", one.pid)));
            }
        }
        Ok(())
    }

    /// Takes it from one member; others keep it.
    ///
    /// # Errors
    /// The member does not have it.
    pub fn remove_member(&mut self, member: Edge) -> Result<(), WindowError> {
        let had = self.members.len();
        self.members.retain(|one| *one != member);
        if self.members.len() == had {
            return Err(WindowError::Misfit(format!("PID {} has no access to it", member.pid)));
        }
        Ok(())
    }

    /// Whether it needs a bit of `pid` at the virtual switch of `edge`, or has an edge of this PID.
    #[must_use]
    pub fn uses(&self, pid: Pid, edge: Option<Edge>) -> bool {
        let at = |one: &Edge| edge.is_none_or(|e| (e.switch, e.vcs) == (one.switch, one.vcs));
        let back = at(&self.owner) && self.members.iter().any(|one| one.pid == pid);
        back || self.owner.pid == pid && self.members.iter().any(at)
    }
}

impl<P: Policy + Clone + PartialEq> Window<P> {
    /// Checks that it is as the wanted state has it. One in use is never changed to fit the file, as its members would
    /// lose memory in use.
    ///
    /// # Errors
    /// What has to be done first, in words.
    pub fn check_wanted(&self, wanted: &Self) -> Result<(), String> {
        if let Some(lacks) = wanted.members.iter().find(|edge| !self.members.contains(edge)) {
            return Err(format!("PID {} has no access to it: release it first", lacks.pid));
        }
        let same = Self { members: wanted.members.clone(), ..self.clone() } == *wanted;
        if self.members.len() != wanted.members.len() || !same {
            return Err("it exists, but differs from the wanted state: release it first".to_owned());
        }
        Ok(())
    }
}

/// The window of a name.
#[must_use]
pub fn find<'a, P>(windows: &'a [Window<P>], name: &str) -> Option<&'a Window<P>> {
    windows.iter().find(|window| window.name == name)
}

/// The bits that some windows need together.
#[must_use]
pub fn rights<P: Policy>(windows: &[Window<P>]) -> Rights {
    let mut all = Rights::default();
    for Rights { there, back } in windows.iter().map(P::rights) {
        all.there.extend(there);
        all.back.extend(back);
    }
    all
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::components::{gim, p2p};
    use crate::model::graph::SwitchId;

    fn edge(switch: u16, pid: u16) -> Edge {
        Edge { switch: SwitchId(switch), vcs: 0, pid: Pid::from_low_bits(pid) }
    }

    fn window<P>(policy: P) -> Window<P> {
        let (name, owner, members) = ("win".to_owned(), edge(1, 2), vec![edge(0, 3)]);
        Window { name, owner, members, hpa: 64, len: 32, policy }
    }

    /// A store of an earlier manager is read, and one of an earlier manager could read this.
    #[test]
    fn each_kind_is_stored_under_its_own_words() {
        let (gim, p2p) = (gim::Addressing { by_prefix: true }, p2p::DevicePart { ld: Some(4) });
        let ends = |owner| {
            format!(
                r#""{owner}":{{"switch":1,"vcs":0,"pid":2}},"from":[{{"switch":0,"vcs":0,"pid":3}}]"#
            )
        };
        let text = format!(r#"{{"name":"win",{},"hpa":64,"len":32,"by_prefix":true}}"#, ends("of"));
        assert_eq!(serde_json::to_string(&window(gim)).unwrap(), text);
        assert_eq!(serde_json::from_str::<gim::Grant>(&text).unwrap(), window(gim));
        let text = format!(r#"{{"name":"win",{},"hpa":64,"len":32,"ld":4}}"#, ends("to"));
        assert_eq!(serde_json::to_string(&window(p2p)).unwrap(), text);
        assert_eq!(serde_json::from_str::<p2p::Grant>(&text).unwrap(), window(p2p));
        let whole = text.replace(r#","ld":4"#, "");
        assert_eq!(serde_json::from_str::<p2p::Grant>(&whole).unwrap().policy.ld, None);
    }

    #[test]
    fn window_needs_members_and_memory() {
        let good = window(p2p::DevicePart::default());
        let with = |members: Vec<Edge>| Window { members, ..good.clone() }.check_members().is_ok();
        for (name, members, is_ok) in [
            ("one", vec![edge(0, 3)], true),
            ("two", vec![edge(0, 3), edge(0, 4)], true),
            ("none", vec![], false),
            ("one twice", vec![edge(0, 3), edge(0, 3)], false),
        ] {
            assert_eq!(with(members), is_ok, "{name}");
        }
        for (name, hpa, len, is_ok) in [
            ("a byte", 0, 1, true),
            ("up to the last address", u64::MAX - 1, 1, true),
            ("nothing", 64, 0, false),
            ("beyond", u64::MAX, 1, false),
        ] {
            let window = Window { hpa, len, ..good.clone() };
            assert_eq!(window.check_size().is_ok(), is_ok, "{name}");
        }
        let mut less = good.clone();
        assert!(less.remove_member(edge(0, 9)).is_err() && less.remove_member(edge(0, 3)).is_ok());
        assert_eq!(less.members, []);
        assert!(good.check_wanted(&good).is_ok());
        let want = |wanted: &Window<_>| good.check_wanted(wanted).unwrap_err();
        assert!(want(&less).contains("differs"), "it has one more");
        assert!(want(&Window { hpa: 0, ..good.clone() }).contains("differs"));
        less.members = vec![edge(0, 3), edge(0, 9)];
        assert!(want(&less).contains("PID 009 has no access"), "{}", want(&less));
    }

    #[test]
    fn window_uses_bits_at_both_ends() {
        let window = window(gim::Addressing::default());
        let [owner, member, other] = [edge(1, 7), edge(0, 8), edge(2, 9)].map(Some);
        for (name, pid, edge, is_used) in [
            ("its owner, wherever", 2, None, true),
            ("its member, wherever", 3, None, true),
            ("its owner, at a member's switch", 2, member, true),
            ("its owner, at its own", 2, owner, false),
            ("its member, at the owner's switch", 3, owner, true),
            ("its owner, elsewhere", 2, other, false),
            ("another", 4, None, false),
        ] {
            assert_eq!(window.uses(Pid::from_low_bits(pid), edge), is_used, "{name}");
        }
    }
}
