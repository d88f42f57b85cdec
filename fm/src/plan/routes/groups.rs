//! Turns the alternative ports of a switch into routing groups, as many as the switch can hold.
//!
//! A [`Plan`] collects for each PID a set of ports and the first of them, and becomes [`SwitchTables`]. A group has at
//! most 8 ports, a switch at most 256 groups.
//!
//! Source: docs/spec/wire-formats.md §4.5 (RGT, mix), §5.3 (static messages use entry 0).

use std::collections::{BTreeMap, BTreeSet};

use weft_parsers::fabric::{DrtEntry, Pid, RgtEntry};

use super::{Options, PORTS_MAX};
use crate::model::graph::PortMask;
use crate::plan::tables::{GROUPS_MAX, SwitchTables, pid_at};

/// Ports by which a switch may send to a PID: those that lead nearer, and detours.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord)]
pub struct PortSets {
    pub near: PortMask,
    pub detours: PortMask,
}

/// Handling of packets to one PID in a switch.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord)]
pub enum Choice {
    #[default]
    Nowhere,
    /// They end at this switch, at this port.
    Here(u8),
    /// They leave by a set of the [`Plan`]; `first` is the port of static messages.
    PortSets { set: u16, first: u8 },
}

/// The routing table of one switch under construction.
#[derive(Clone, Debug)]
pub struct Plan {
    index: BTreeMap<PortSets, u16>,
    sets: Vec<PortSets>,
    choices: Vec<Choice>,
}

impl Default for Plan {
    fn default() -> Self {
        Self {
            index: BTreeMap::new(),
            sets: Vec::new(),
            choices: vec![Choice::Nowhere; Pid::COUNT],
        }
    }
}

/// Economy made when a switch has too few groups; each includes those before it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Fallback {
    Nothing,
    /// Groups lose their detours.
    Detours,
    /// Groups of one set are all alike: static messages of its PIDs take the same first port.
    Firsts,
    /// The sets with the fewest PIDs get no group, but one port.
    Sets,
}

impl Plan {
    /// Number of a set of ports, the same for equal sets.
    pub fn set(&mut self, ways: PortSets) -> u16 {
        let next = u16::try_from(self.sets.len()).expect("one set a destination switch at most");
        *self.index.entry(ways).or_insert_with(|| {
            self.sets.push(ways);
            next
        })
    }

    /// Sets the handling of packets to `to`.
    pub fn choose(&mut self, to: Pid, choice: Choice) {
        if let Some(place) = self.choices.get_mut(to.index()) {
            *place = choice;
        }
    }

    /// Ports of a set.
    pub fn ways(&self, set: u16) -> PortSets {
        self.sets.get(usize::from(set)).copied().unwrap_or_default()
    }

    /// The tables, and the number of PIDs that have fewer ports in them than there are.
    ///
    /// A group keeps its place in `before`, where the first tables take precedence over the second, and no place is
    /// reused while either of them uses it. So each entry can be sent on its own, and old routes keep their meaning
    /// meanwhile.
    pub fn tables(
        &self,
        before: [Option<&SwitchTables>; 2],
        options: &Options,
    ) -> (SwitchTables, usize) {
        let (mut taken, mut used) = (BTreeMap::new(), BTreeSet::new());
        for (at, group) in before.iter().flatten().flat_map(|tables| in_use(tables)) {
            if used.insert(at) {
                taken.entry(group.emit()).or_insert(at);
            }
        }
        let room = options.groups.min(GROUPS_MAX);
        let mut free = (0..=u8::MAX).take(room).filter(|at| !used.contains(at));
        let (distinct, numbers) = self.distinct();
        let (economy, groups) = self.groups(&distinct, &taken, free.clone().count(), options);
        let mut tables = SwitchTables::default();
        let mut places = BTreeMap::new();
        for (bytes, group) in groups {
            let kept = taken.get(&bytes).copied();
            // Without a place the PIDs of this group fall back to one port, below.
            let Some(at) = kept.or_else(|| free.next()) else { continue };
            tables.set_rgt(at, Some(group));
            places.insert(bytes, at);
        }
        let entries: Vec<(DrtEntry, bool)> = distinct
            .iter()
            .map(|&(choice, ..)| match choice {
                Choice::Nowhere => (DrtEntry::Invalid, false),
                Choice::Here(port) => (DrtEntry::Port(port), false),
                Choice::PortSets { set, first } => {
                    let all = group_of(self.ways(set), first, Fallback::Nothing, options);
                    let group = group_of(self.ways(set), first, economy, options);
                    let place = group.and_then(|group| places.get(&group.emit()).copied());
                    let got = group.filter(|_| place.is_some()).map_or(0, |group| group.highest);
                    let entry = place.map_or(DrtEntry::Port(first), DrtEntry::Group);
                    // Short only by an economy or for lack of a place; a set of more than 8 ports is cut in any case.
                    (entry, got < all.map_or(0, |all| all.highest))
                }
            })
            .collect();
        let mut short = 0;
        for (at, number) in numbers.into_iter().enumerate() {
            let Some(&(entry, is_short)) = entries.get(number) else { continue };
            tables.set_drt(pid_at(at), entry);
            short += usize::from(is_short);
        }
        (tables, short)
    }

    /// Each choice once, with the first PID that it is made for and their number; and for each PID the number of its
    /// choice.
    fn distinct(&self) -> (Vec<(Choice, usize, usize)>, Vec<usize>) {
        let mut distinct: Vec<(Choice, usize, usize)> = Vec::new();
        // A set has few firsts: looking through them is faster than any map.
        let mut of_set: Vec<Vec<usize>> = vec![Vec::new(); self.sets.len() + 1];
        let mut numbers = Vec::with_capacity(self.choices.len());
        for (at, &choice) in self.choices.iter().enumerate() {
            let place = match choice {
                Choice::PortSets { set, .. } => usize::from(set),
                Choice::Nowhere | Choice::Here(_) => self.sets.len(),
            };
            let Some(known) = of_set.get_mut(place) else { continue };
            let is_it = |&&number: &&usize| distinct.get(number).is_some_and(|d| d.0 == choice);
            let number = known.iter().find(is_it).copied().unwrap_or(distinct.len());
            if let Some((.., count)) = distinct.get_mut(number) {
                *count += 1;
            } else {
                known.push(number);
                distinct.push((choice, at, 1));
            }
            numbers.push(number);
        }
        (distinct, numbers)
    }

    /// The groups that fit: those with a place in `taken`, and `free` more, in the order of their first PIDs.
    fn groups(
        &self,
        distinct: &[(Choice, usize, usize)],
        taken: &BTreeMap<[u8; 12], u8>,
        free: usize,
        options: &Options,
    ) -> (Fallback, Vec<([u8; 12], RgtEntry)>) {
        // The mildest economy that fits is taken; the last one always does.
        let economies = [Fallback::Nothing, Fallback::Detours, Fallback::Firsts, Fallback::Sets];
        for economy in economies {
            // By content: the first PID and the number of PIDs.
            let mut wanted: BTreeMap<[u8; 12], (usize, usize, RgtEntry)> = BTreeMap::new();
            for &(choice, at, count) in distinct {
                let Choice::PortSets { set, first } = choice else { continue };
                let Some(group) = group_of(self.ways(set), first, economy, options) else {
                    continue;
                };
                let place = wanted.entry(group.emit()).or_insert((at, 0, group));
                *place = (place.0.min(at), place.1 + count, group);
            }
            let new = wanted.keys().filter(|bytes| !taken.contains_key(*bytes)).count();
            let mut list: Vec<_> = wanted.into_iter().collect();
            if new > free {
                if economy != Fallback::Sets {
                    continue;
                }
                list.sort_by_key(|(bytes, (at, count, _))| {
                    // Groups with a place first, as they cost nothing new; then those of the most PIDs.
                    (!taken.contains_key(bytes), usize::MAX - count, *at)
                });
                list.truncate(list.len() - new + free);
            }
            list.sort_by_key(|(_, (at, ..))| *at);
            return (
                economy,
                list.into_iter().map(|(bytes, (.., group))| (bytes, group)).collect(),
            );
        }
        (Fallback::Sets, Vec::new())
    }
}

/// Groups that an entry names; a switch may hold others that nothing uses any more.
fn in_use(tables: &SwitchTables) -> impl Iterator<Item = (u8, &RgtEntry)> {
    let entries = (0..Pid::COUNT).map(|at| tables.drt(pid_at(at)));
    let used: BTreeSet<u8> = entries
        .filter_map(|entry| match entry {
            DrtEntry::Group(index) => Some(index),
            DrtEntry::Invalid | DrtEntry::Port(_) => None,
        })
        .collect();
    tables.groups().filter(move |(at, _)| used.contains(at))
}

/// The group of these ports with `first` in front; `None` if only one port remains.
fn group_of(ways: PortSets, first: u8, economy: Fallback, options: &Options) -> Option<RgtEntry> {
    let near: Vec<u8> = ways.near.iter().collect();
    let start = match economy {
        Fallback::Nothing | Fallback::Detours => near.iter().position(|&port| port == first)?,
        Fallback::Firsts | Fallback::Sets => 0,
    };
    let near_count = near.len().min(PORTS_MAX);
    // Rotated rather than sorted: groups of a set with different first ports stay distinct, and spread static messages.
    let around = near.iter().cycle().skip(start).take(near_count).copied();
    let detours = ways.detours.iter().filter(|_| economy == Fallback::Nothing && options.detours);
    let list: Vec<u8> = around.chain(detours).take(PORTS_MAX).collect();
    if list.len() < 2 {
        return None;
    }
    let mut ports = [0; PORTS_MAX];
    ports.iter_mut().zip(&list).for_each(|(place, &port)| *place = port);
    let last = |count: usize| u8::try_from(count - 1).expect("eight at most");
    let primary = last(near_count);
    let highest = last(list.len());
    // Without secondary ports the mix says nothing; 0 keeps such groups equal.
    let mix = if highest > primary { options.mix } else { 0 };
    Some(RgtEntry { ports, highest, primary, mode: options.mode, mix })
}
