//! What every switch is to hold, and what has to be sent for it.
//!
//! [`Tables`]: for each switch 4,096 DRT entries and 256 RGT entries; [`Change`]: one entry of one switch.
//!
//! Source: docs/spec/wire-formats.md §4.5, §5.3; CXL 3.1 section 7.7.13.

use weft_parsers::fabric::{DrtEntry, Pid, RgtEntry};

use crate::graph::{Key, Per, PortMask, SwitchId};

/// Entries of a routing group table.
pub const GROUPS_MAX: usize = 256;

/// The routing tables of one switch: DRT (by PID) and RGT (routing groups).
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct SwitchTables {
    drt: Vec<DrtEntry>,
    rgt: Vec<Option<RgtEntry>>,
    /// Ports of each routing group, as they are looked up for every PID.
    masks: Vec<PortMask>,
}

impl Default for SwitchTables {
    fn default() -> Self {
        let (drt, rgt) = (vec![DrtEntry::Invalid; Pid::COUNT], vec![None; GROUPS_MAX]);
        Self { drt, rgt, masks: vec![PortMask::EMPTY; GROUPS_MAX] }
    }
}

impl SwitchTables {
    /// The DRT entry of a destination.
    #[inline]
    #[must_use]
    pub fn drt(&self, to: Pid) -> DrtEntry {
        self.drt.get(to.index()).copied().unwrap_or_default()
    }

    /// Sets the DRT entry of a destination.
    pub fn set_drt(&mut self, to: Pid, entry: DrtEntry) {
        if let Some(place) = self.drt.get_mut(to.index()) {
            *place = entry;
        }
    }

    /// A routing group; none that is not in use.
    #[inline]
    #[must_use]
    pub fn rgt(&self, index: u8) -> Option<&RgtEntry> {
        self.rgt.get(usize::from(index)).and_then(Option::as_ref)
    }

    /// Sets a routing group.
    pub fn set_rgt(&mut self, index: u8, entry: Option<RgtEntry>) {
        let at = usize::from(index);
        if let (Some(place), Some(mask)) = (self.rgt.get_mut(at), self.masks.get_mut(at)) {
            let ports = entry.as_ref().map(|group| group.ports().iter().copied().collect());
            *mask = ports.unwrap_or_default();
            *place = entry;
        }
    }

    /// Routing groups in use.
    pub fn groups(&self) -> impl Iterator<Item = (u8, &RgtEntry)> {
        (0..=u8::MAX).zip(&self.rgt).filter_map(|(at, group)| group.as_ref().map(|g| (at, g)))
    }

    /// Ports by which packets to `to` may leave; empty without an entry, none when it names a group that is not there.
    #[inline]
    #[must_use]
    pub fn ports(&self, to: Pid) -> Option<PortMask> {
        match self.drt(to) {
            DrtEntry::Invalid => Some(PortMask::EMPTY),
            DrtEntry::Port(port) => Some(PortMask::one(port)),
            DrtEntry::Group(index) => {
                self.rgt(index).and_then(|_| self.masks.get(usize::from(index)).copied())
            }
        }
    }

    /// The port of static messages to `to`.
    #[inline]
    #[must_use]
    pub fn static_port(&self, to: Pid) -> Option<u8> {
        match self.drt(to) {
            DrtEntry::Invalid => None,
            DrtEntry::Port(port) => Some(port),
            DrtEntry::Group(index) => self.rgt(index)?.ports().first().copied(),
        }
    }
}

/// The routing tables of all switches.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Tables {
    switches: Per<SwitchId, SwitchTables>,
}

impl Tables {
    /// Empty tables for `count` switches.
    #[must_use]
    pub fn new(count: usize) -> Self {
        Self { switches: Per::new(count, SwitchTables::default()) }
    }

    /// Tables of a switch; none for one that they were not made for.
    #[inline]
    #[must_use]
    pub fn get(&self, switch: SwitchId) -> Option<&SwitchTables> {
        self.switches.find(switch)
    }

    /// Tables of a switch, to be changed.
    ///
    /// # Panics
    /// When the switch is not among them.
    pub fn get_mut(&mut self, switch: SwitchId) -> &mut SwitchTables {
        &mut self.switches[switch]
    }

    /// Tables of all switches, in order.
    pub(super) fn all(&self) -> impl Iterator<Item = &SwitchTables> {
        self.switches.values()
    }

    /// Number of switches.
    #[must_use]
    pub const fn switch_count(&self) -> usize {
        self.switches.len()
    }

    /// Puts the tables of the next switch behind the others.
    pub(super) fn push(&mut self, tables: SwitchTables) {
        self.switches.push(tables);
    }

    /// Makes the changes that [`diff`](Self::diff) found, one by one.
    ///
    /// # Panics
    /// When a switch is not among them.
    pub fn apply(&mut self, change: Change) {
        match change {
            Change::Group { at, index, entry } => self.get_mut(at).set_rgt(index, entry),
            Change::Route { at, to, entry } => self.get_mut(at).set_drt(to, entry),
        }
    }

    /// Finds the entries that differ in `wanted`: groups that come, routes, groups that go; within each by switch, then
    /// by number.
    ///
    /// Switches that `self` has no tables for start empty; for those that `wanted` lacks there is nothing to send.
    #[must_use]
    pub fn diff(&self, wanted: &Self) -> Diff {
        let empty = SwitchTables::default();
        let mut diff = Diff::default();
        for (at, new) in wanted.switches.iter() {
            let old = self.get(at).unwrap_or(&empty);
            for index in 0..=u8::MAX {
                let entry = new.rgt(index).copied();
                if old.rgt(index) != new.rgt(index) {
                    let list = if entry.is_some() { &mut diff.come } else { &mut diff.go };
                    list.push(Change::Group { at, index, entry });
                }
            }
            for to in (0..Pid::COUNT).map(pid_at) {
                if old.drt(to) != new.drt(to) {
                    diff.routes.push(Change::Route { at, to, entry: new.drt(to) });
                }
            }
        }
        diff
    }
}

/// The PID of a place in a DRT.
pub(super) fn pid_at(index: usize) -> Pid {
    Pid::from_low_bits(SwitchId::at(index).0)
}

/// One entry of a routing table that is to be set.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Change {
    /// Set RGT.
    Group {
        /// Where.
        at: SwitchId,
        /// Which.
        index: u8,
        /// What it becomes; none: nothing points at it any more.
        entry: Option<RgtEntry>,
    },
    /// Set DRT.
    Route {
        /// Where.
        at: SwitchId,
        /// Which.
        to: Pid,
        /// What it becomes.
        entry: DrtEntry,
    },
}

/// The entries in which two routing tables of a fabric differ.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Diff {
    /// Groups that are set: first.
    pub come: Vec<Change>,
    /// Routes.
    pub routes: Vec<Change>,
    /// Groups that nothing points at any more: last.
    pub go: Vec<Change>,
}

impl Diff {
    /// Number of entries.
    #[must_use]
    pub const fn len(&self) -> usize {
        self.come.len() + self.routes.len() + self.go.len()
    }

    /// Whether nothing differs.
    #[must_use]
    pub const fn is_empty(&self) -> bool {
        self.len() == 0
    }
}
