//! Routing tables of switches, and the differences that have to be sent.
//!
//! [`Tables`] have 4,096 DRT entries and 256 RGT entries for each switch. A [`Change`] sets one entry of one switch.
//!
//! Source: docs/spec/wire-formats.md §4.5, §5.3; CXL 3.1 section 7.7.13.

use weft_parsers::fabric::{DrtEntry, Pid, RgtEntry};

use crate::model::graph::{Key, Per, PortMask, SwitchId};

pub const GROUPS_MAX: usize = 256;

/// The routing tables of one switch: DRT (by PID) and RGT (routing groups).
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct SwitchTables {
    drt: Vec<DrtEntry>,
    rgt: Vec<Option<RgtEntry>>,
    /// Ports of each routing group as a set, as they are looked up for every PID.
    masks: Vec<PortMask>,
}

impl Default for SwitchTables {
    fn default() -> Self {
        let (drt, rgt) = (vec![DrtEntry::Invalid; Pid::COUNT], vec![None; GROUPS_MAX]);
        Self { drt, rgt, masks: vec![PortMask::EMPTY; GROUPS_MAX] }
    }
}

impl SwitchTables {
    #[inline]
    #[must_use]
    pub fn drt(&self, to: Pid) -> DrtEntry {
        self.drt.get(to.index()).copied().unwrap_or_default()
    }

    pub fn set_drt(&mut self, to: Pid, entry: DrtEntry) {
        if let Some(place) = self.drt.get_mut(to.index()) {
            *place = entry;
        }
    }

    /// A routing group; `None` if it is unused.
    #[inline]
    #[must_use]
    pub fn rgt(&self, index: u8) -> Option<&RgtEntry> {
        self.rgt.get(usize::from(index)).and_then(Option::as_ref)
    }

    pub fn set_rgt(&mut self, index: u8, entry: Option<RgtEntry>) {
        let at = usize::from(index);
        if let (Some(place), Some(mask)) = (self.rgt.get_mut(at), self.masks.get_mut(at)) {
            let ports = entry.as_ref().map(|group| group.ports().iter().copied().collect());
            *mask = ports.unwrap_or_default();
            *place = entry;
        }
    }

    pub fn groups(&self) -> impl Iterator<Item = (u8, &RgtEntry)> {
        (0..=u8::MAX).zip(&self.rgt).filter_map(|(at, group)| group.as_ref().map(|g| (at, g)))
    }

    /// Ports by which packets to `to` may leave: none at all without an entry, `None` if it names a group that is not
    /// there.
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
            // Static messages take the first port of a group (docs/spec/wire-formats.md §5.3).
            DrtEntry::Group(index) => self.rgt(index)?.ports().first().copied(),
        }
    }
}

#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Tables {
    switches: Per<SwitchId, SwitchTables>,
}

impl Tables {
    #[must_use]
    pub fn new(count: usize) -> Self {
        Self { switches: Per::new(count, SwitchTables::default()) }
    }

    /// Tables of a switch; `None` if they were not made for it.
    #[inline]
    #[must_use]
    pub fn get(&self, switch: SwitchId) -> Option<&SwitchTables> {
        self.switches.find(switch)
    }

    /// Tables of a switch, for changes.
    ///
    /// # Panics
    /// The tables were not made for this switch.
    pub fn get_mut(&mut self, switch: SwitchId) -> &mut SwitchTables {
        &mut self.switches[switch]
    }

    pub(super) fn all(&self) -> impl Iterator<Item = &SwitchTables> {
        self.switches.values()
    }

    #[must_use]
    pub const fn switch_count(&self) -> usize {
        self.switches.len()
    }

    /// Adds the tables of the next switch.
    pub(super) fn push(&mut self, tables: SwitchTables) {
        self.switches.push(tables);
    }

    /// Makes one change, as [`diff`](Self::diff) finds them.
    ///
    /// # Panics
    /// The tables were not made for its switch.
    pub fn apply(&mut self, change: Change) {
        match change {
            Change::Group { at, index, entry } => self.get_mut(at).set_rgt(index, entry),
            Change::Route { at, to, entry } => self.get_mut(at).set_drt(to, entry),
        }
    }

    /// Finds the entries that differ in `wanted`: new groups, routes, and unused groups; each by switch, then by
    /// number.
    ///
    /// A switch that `self` has no tables for starts empty; for a switch that `wanted` lacks nothing is sent.
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

pub(super) fn pid_at(index: usize) -> Pid {
    // A PID has 12 bits; the switch number's 16 are only the checked conversion.
    Pid::from_low_bits(SwitchId::at(index).0)
}

/// A new value for one entry of a routing table.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Change {
    Group {
        at: SwitchId,
        index: u8,
        /// The new group; `None` if nothing names it any more.
        entry: Option<RgtEntry>,
    },
    Route {
        at: SwitchId,
        to: Pid,
        entry: DrtEntry,
    },
}

/// The entries in which two routing tables of a fabric differ.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Diff {
    /// Groups to be set first.
    pub come: Vec<Change>,
    pub routes: Vec<Change>,
    /// Groups that nothing names any more: last.
    pub go: Vec<Change>,
}

impl Diff {
    #[must_use]
    pub const fn len(&self) -> usize {
        self.come.len() + self.routes.len() + self.go.len()
    }

    #[must_use]
    pub const fn is_empty(&self) -> bool {
        self.len() == 0
    }
}
