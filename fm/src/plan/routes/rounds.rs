//! Rounds: in which order routes to PIDs may change without a deadlock, and which PIDs must be withdrawn.
//!
//! [`plan`] takes the waits of packets to unchanged PIDs and returns [`UpdateRounds`].
//!
//! All PIDs of a round change together; between two rounds packets on old routes leave the fabric. So while a round
//! runs, packets to its PIDs wait by old and new routes, and all others by their present ones: without a cycle among
//! these waits, nothing deadlocks.
//!
//! It is enough to look for rounds of one class of PIDs each: the waits while several classes change together include
//! those while they change one after the other. So PIDs are withdrawn only where no sequence of single classes exists.
//! All sequences are tried, then all with one PID less, and so on. Only where a fabric has too many classes to try all
//! ([`WORK_MAX`]) is the first solution taken.
//!
//! Source: own construction; Dally and Seitz, IEEE Trans. Computers C-36(5), 1987 (channel dependency graph).

use std::collections::{BTreeMap, BTreeSet};

use weft_parsers::fabric::Pid;

use crate::model::graph::{Graph, PortMask, PortRef};
use crate::plan::proof::walk::{UpPorts, Walk};
use crate::plan::tables::Tables;

/// Budget of a search: switches visited in all its checks, each once for every class.
const WORK_MAX: usize = 1_000_000;
/// Number of checks granted whatever the budget.
const CHECKS_MIN: usize = 64;
/// Number of classes up to which all subsets are tried for withdrawal: 1,024 of them.
const SETS_OF_MAX: usize = 10;
/// Number of checks of the greedy search.
const TRIES_MAX: usize = 256;

/// PIDs with the same routes between switches, before and after.
type PidClass = Vec<Pid>;

/// Rounds in which routes change, and PIDs without routes meanwhile.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(super) struct UpdateRounds {
    /// PIDs that change together, round by round.
    pub rounds: Vec<Vec<Pid>>,
    /// PIDs of `rounds` whose changing entries are missing until their round.
    pub withdrawn: Vec<Pid>,
}

/// State of the routes to the PIDs of a class.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum RouteState {
    Old,
    Moving,
    New,
    Withdrawn,
}

/// Old and new tables, and the ports that lead up.
#[derive(Clone, Copy)]
pub(super) struct TableChange<'a> {
    pub graph: &'a Graph,
    pub ups: &'a UpPorts,
    pub old: &'a Tables,
    pub new: &'a Tables,
    /// The entries that are the same in both.
    pub kept: &'a Tables,
}

impl TableChange<'_> {
    /// Groups PIDs that cause the same waits. Classes in which packets never go up after down come first: they fit
    /// together if the old order is also the new one.
    fn kinds(&self, changed: &[Pid], scratch: &mut Walk<'_>) -> Vec<PidClass> {
        let mut kinds: BTreeMap<(bool, Vec<PortMask>), PidClass> = BTreeMap::new();
        for &to in changed {
            let of = |tables: &Tables, at| -> PortMask {
                let ports = tables.get(at).and_then(|tables| tables.ports(to)).unwrap_or_default();
                let is_link = |port: &u8| self.graph.far(PortRef::new(at, *port)).is_some();
                ports.iter().filter(is_link).collect()
            };
            let ways = self.graph.switches().flat_map(|at| [of(self.old, at), of(self.new, at)]);
            let ways = ways.collect();
            let is_legal = scratch.mix(self.old, self.new, self.ups, to);
            kinds.entry((!is_legal, ways)).or_default().push(to);
        }
        kinds.into_values().collect()
    }
}

/// Plans the changes of routes to `changed`; `rest` has the waits of packets to all other PIDs.
pub(super) fn plan<'a>(change: TableChange<'a>, rest: &Walk<'a>, changed: &[Pid]) -> UpdateRounds {
    let mut all = rest.clone();
    for &to in changed {
        all.mix(change.old, change.new, change.ups, to);
    }
    if all.order().is_ok() {
        // Even all changes at once make no cycle: one round.
        let rounds = if changed.is_empty() { Vec::new() } else { vec![changed.to_vec()] };
        return UpdateRounds { rounds, withdrawn: Vec::new() };
    }
    let kinds = change.kinds(changed, &mut all);
    let work = kinds.len() * change.graph.switch_count();
    let left = (WORK_MAX / work.max(1)).max(CHECKS_MIN);
    Search { change, rest, kinds: &kinds, left }.plan()
}

struct Search<'a, 'w> {
    change: TableChange<'a>,
    rest: &'w Walk<'a>,
    kinds: &'w [PidClass],
    /// Number of checks left.
    left: usize,
}

impl<'a> Search<'a, '_> {
    fn plan(mut self) -> UpdateRounds {
        let whole = self.left;
        // Half of the budget for a way without withdrawals, the rest for one with them.
        self.left = whole / 2;
        let start = vec![RouteState::Old; self.kinds.len()];
        if let Some(path) = self.path(start.clone()) {
            let rounds = self.together(start, &path);
            return self.named(&rounds, &[]);
        }
        self.left += whole / 2;
        self.withdrawing().unwrap_or_else(|| self.greedy())
    }

    /// The waits of packets while the classes are in the states `now`.
    fn waits(&self, now: &[RouteState]) -> Walk<'a> {
        let TableChange { ups, old, new, kept, .. } = self.change;
        let mut walk = self.rest.clone();
        for (kind, now) in self.kinds.iter().zip(now) {
            // All PIDs of a class have the same routes: one stands for all.
            let Some(&to) = kind.first() else { continue };
            match now {
                RouteState::Old => drop(walk.mix(old, old, ups, to)),
                RouteState::Moving => drop(walk.mix(old, new, ups, to)),
                RouteState::New => drop(walk.mix(new, new, ups, to)),
                RouteState::Withdrawn => drop(walk.mix(kept, kept, ups, to)),
            }
        }
        walk
    }

    /// `waits`, with those of moving classes added, whose old routes are in it; `None` if there is a cycle. A moving
    /// class keeps its old waits, so only new ones have to be added.
    fn moving(&self, waits: &Walk<'a>, kinds: &[usize]) -> Option<Walk<'a>> {
        let TableChange { ups, old, new, .. } = self.change;
        let mut walk = waits.clone();
        for &to in kinds.iter().filter_map(|&kind| self.kinds.get(kind)?.first()) {
            walk.mix(old, new, ups, to);
        }
        walk.order().is_ok().then_some(walk)
    }

    /// A sequence in which all classes with old routes can change one at a time; `None` if there is none, or the budget
    /// ran out.
    fn path(&mut self, mut now: Vec<RouteState>) -> Option<Vec<usize>> {
        let (mut path, mut tried, mut seen) = (Vec::new(), vec![0], BTreeSet::new());
        let mut waits = None; // while all is as `now` says
        while let Some(next) = tried.last_mut() {
            if !now.contains(&RouteState::Old) {
                return Some(path);
            }
            let found = (*next..now.len()).find(|&kind| now.get(kind) == Some(&RouteState::Old));
            let Some(kind) = found else {
                tried.pop();
                if let Some(kind) = path.pop() {
                    set(&mut now, &[kind], RouteState::Old);
                    waits = None;
                }
                continue;
            };
            *next = kind + 1;
            let done: Vec<bool> =
                (0..).zip(&now).map(|(at, now)| at == kind || *now != RouteState::Old).collect();
            if seen.contains(&done) {
                // The waits depend on which classes have changed, not in which order: such a set is not tried twice.
                continue;
            }
            // Out of checks: the search unwinds, and the caller sees `left` at 0.
            let Some(left) = self.left.checked_sub(1) else { continue };
            self.left = left;
            let waits_now = waits.get_or_insert_with(|| self.waits(&now));
            if self.moving(waits_now, &[kind]).is_some() {
                seen.insert(done);
                set(&mut now, &[kind], RouteState::New);
                waits = None;
                path.push(kind);
                tried.push(0);
            }
        }
        None
    }

    /// The smallest number of PIDs without which all others can change; `None` where there are too many to try.
    fn withdrawing(&mut self) -> Option<UpdateRounds> {
        let count = self.kinds.len();
        if count > SETS_OF_MAX {
            return None;
        }
        let members = |set: u32| (0..count).filter(move |kind| set & 1 << kind != 0);
        let pids = |set: u32| -> usize {
            members(set).filter_map(|kind| self.kinds.get(kind)).map(Vec::len).sum()
        };
        let mut sets: Vec<(usize, u32)> = (1..1 << count).map(|set| (pids(set), set)).collect();
        sets.sort_unstable();
        for (_, chosen) in sets {
            let gone: Vec<usize> = members(chosen).collect();
            // While withdrawn they can have their new routes with the first round already, or get them after the last.
            for meanwhile in [RouteState::New, RouteState::Withdrawn] {
                let mut start = vec![RouteState::Old; count];
                set(&mut start, &gone, meanwhile);
                let path = self.path(start.clone());
                if self.left == 0 {
                    return None;
                }
                if let Some(path) = path {
                    let mut rounds = self.together(start, &path);
                    place(&mut rounds, &gone, meanwhile);
                    return Some(self.named(&rounds, &gone));
                }
            }
        }
        None
    }

    /// Merges a sequence of single classes into rounds of as many as fit.
    fn together(&self, mut now: Vec<RouteState>, path: &[usize]) -> Vec<Vec<usize>> {
        let mut rounds: Vec<Vec<usize>> = Vec::new();
        let mut waits = self.waits(&now);
        for &kind in path {
            if let Some(round) = rounds.last_mut()
                && let Some(more) = self.moving(&waits, &[kind])
            {
                waits = more;
                round.push(kind);
                continue;
            }
            // The last round did not fit with this class: it counts as done, and a new round begins.
            set(&mut now, rounds.last().map(Vec::as_slice).unwrap_or_default(), RouteState::New);
            set(&mut now, &[kind], RouteState::Moving);
            waits = self.waits(&now);
            rounds.push(vec![kind]);
        }
        rounds
    }

    /// Rounds of as many classes as fit, until none does; the rest is withdrawn.
    fn greedy(&self) -> UpdateRounds {
        let count = self.kinds.len();
        let (mut now, mut rounds, mut tries) = (vec![RouteState::Old; count], Vec::new(), 0);
        loop {
            let open = (0..count).filter(|&kind| now.get(kind) == Some(&RouteState::Old)).collect();
            let (mut open, mut round): (Vec<Vec<usize>>, _) = (vec![open], Vec::new());
            let mut waits = self.waits(&now);
            while let Some(mut list) = open.pop() {
                tries += 1;
                if list.is_empty() || tries > TRIES_MAX {
                    continue;
                }
                if let Some(more) = self.moving(&waits, &list) {
                    waits = more;
                    round.append(&mut list);
                } else if list.len() > 1 {
                    // Halved to find which part of the list stands in the way.
                    let half = list.split_off(list.len() / 2);
                    open.extend([half, list]);
                }
            }
            if round.is_empty() {
                break;
            }
            set(&mut now, &round, RouteState::New);
            rounds.push(round);
        }
        let gone: Vec<usize> =
            (0..count).filter(|&kind| now.get(kind) == Some(&RouteState::Old)).collect();
        let meanwhile = if self.may_come_first(&rounds, &gone) {
            RouteState::New
        } else {
            RouteState::Withdrawn
        };
        place(&mut rounds, &gone, meanwhile);
        self.named(&rounds, &gone)
    }

    /// Whether withdrawn PIDs may have their new routes while all others change.
    fn may_come_first(&self, rounds: &[Vec<usize>], gone: &[usize]) -> bool {
        let mut now = vec![RouteState::Old; self.kinds.len()];
        set(&mut now, gone, RouteState::New);
        rounds.iter().all(|round| {
            set(&mut now, round, RouteState::Moving);
            let holds = self.waits(&now).order().is_ok();
            set(&mut now, round, RouteState::New);
            holds
        })
    }

    fn named(&self, rounds: &[Vec<usize>], gone: &[usize]) -> UpdateRounds {
        let pids = |list: &[usize]| -> Vec<Pid> {
            let mut pids: Vec<Pid> =
                list.iter().filter_map(|&kind| self.kinds.get(kind)).flatten().copied().collect();
            pids.sort_unstable();
            pids
        };
        UpdateRounds {
            rounds: rounds.iter().map(|round| pids(round)).collect(),
            withdrawn: pids(gone),
        }
    }
}

/// Puts withdrawn classes into the first round, or behind the last one.
fn place(rounds: &mut Vec<Vec<usize>>, gone: &[usize], meanwhile: RouteState) {
    match rounds.first_mut().filter(|_| meanwhile == RouteState::New) {
        Some(first) => first.extend(gone),
        // Nothing withdrawn: no empty round, which would cost a wait.
        None if gone.is_empty() => {}
        None => rounds.push(gone.to_vec()),
    }
}

fn set(now: &mut [RouteState], kinds: &[usize], to: RouteState) {
    for &kind in kinds {
        if let Some(place) = now.get_mut(kind) {
            *place = to;
        }
    }
}
