//! In which order routes to PIDs may change, and to whom none may.
//!
//! [`PidClass`]s of PIDs that change, what packets to all others wait for -> [`UpdateRounds`].
//!
//! Units: checks, each of all channels.
//! Source: own construction; Dally and Seitz, IEEE Trans. Computers C-36(5), 1987 (channel dependency graph).
//!
//! All PIDs of a round change together; between two rounds packets that came by ways of before leave the fabric. So while
//! a round runs, packets wait by the ways of now to all others, and by both ways to those of the round: without a circle
//! among these, nothing locks up.
//!
//! Rounds of one kind of PID each are enough to look for: what waits while several change together has all that waits
//! while they change one after the other. So PIDs are withdrawn where there is no sequence of single kinds, which is
//! looked for in full: all sequences are tried, then all with one PID less, and so on. Only where a fabric has too many
//! kinds to try all ([`WORK_MAX`]) is what was found first taken.

use std::collections::{BTreeMap, BTreeSet};

use weft_parsers::fabric::Pid;

use super::tables::Tables;
use crate::graph::{Graph, PortMask, PortRef};
use crate::proof::walk::{UpPorts, Walk};

/// Switches that are looked at in all checks of a search, each once for every kind.
const WORK_MAX: usize = 1_000_000;
/// Checks that are made at least.
const CHECKS_MIN: usize = 64;
/// Kinds of which all sets are tried for whom to withdraw.
const SETS_OF_MAX: usize = 10;
/// Checks by which rounds are found where not all can be tried.
const TRIES_MAX: usize = 256;

/// PIDs that have the same ways between switches, before and after.
type PidClass = Vec<Pid>;

/// In which rounds routes to PIDs change, and which PIDs have none meanwhile.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(super) struct UpdateRounds {
    /// PIDs that change together, one round after the other.
    pub rounds: Vec<Vec<Pid>>,
    /// Those of them of which entries that change are missing until then.
    pub withdrawn: Vec<Pid>,
}

/// Which routes to PIDs of a kind the switches have.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum RouteState {
    Old,
    Moving,
    New,
    Withdrawn,
}

/// Tables of before and after, and what leads up in them.
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
    /// Puts PIDs together that make the same waits; first those that never go up after down, which fit together if the
    /// order of before is that of after.
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

/// Plans the changes of routes to `changed`; `rest` has the waits of packets to all others.
pub(super) fn plan<'a>(change: TableChange<'a>, rest: &Walk<'a>, changed: &[Pid]) -> UpdateRounds {
    let mut all = rest.clone();
    for &to in changed {
        all.mix(change.old, change.new, change.ups, to);
    }
    if all.order().is_ok() {
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
    /// Checks that may be made still.
    left: usize,
}

impl<'a> Search<'a, '_> {
    fn plan(mut self) -> UpdateRounds {
        let whole = self.left;
        self.left = whole / 2;
        let start = vec![RouteState::Old; self.kinds.len()];
        if let Some(path) = self.path(start.clone()) {
            let rounds = self.together(start, &path);
            return self.named(&rounds, &[]);
        }
        self.left += whole / 2;
        self.withdrawing().unwrap_or_else(|| self.greedy())
    }

    /// What packets wait for while all is as `now` says.
    fn waits(&self, now: &[RouteState]) -> Walk<'a> {
        let TableChange { ups, old, new, kept, .. } = self.change;
        let mut walk = self.rest.clone();
        for (kind, now) in self.kinds.iter().zip(now) {
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

    /// Those of `waits` and of kinds that move, whose old ways are in them; none if there is a circle. What moves waits for
    /// all that it waited for before, so that nothing has to be looked at again.
    fn moving(&self, waits: &Walk<'a>, kinds: &[usize]) -> Option<Walk<'a>> {
        let TableChange { ups, old, new, .. } = self.change;
        let mut walk = waits.clone();
        for &to in kinds.iter().filter_map(|&kind| self.kinds.get(kind)?.first()) {
            walk.mix(old, new, ups, to);
        }
        walk.order().is_ok().then_some(walk)
    }

    /// An order in which all kinds with old routes can change, one at a time; none where all were tried, or too many.
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
                continue;
            }
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

    /// The fewest PIDs without which all others can change; none where there are too many to try.
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
            // They have new routes with the first ones who change, or when all others have.
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

    /// Rounds of as many kinds as fit, of an order of single ones.
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
            set(&mut now, rounds.last().map(Vec::as_slice).unwrap_or_default(), RouteState::New);
            set(&mut now, &[kind], RouteState::Moving);
            waits = self.waits(&now);
            rounds.push(vec![kind]);
        }
        rounds
    }

    /// Rounds of as many kinds as fit, until none does; the rest is withdrawn.
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

    /// Whether those that are withdrawn may have their new routes while all others change.
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

/// Puts those that are withdrawn into the first round or behind the last one.
fn place(rounds: &mut Vec<Vec<usize>>, gone: &[usize], meanwhile: RouteState) {
    match rounds.first_mut().filter(|_| meanwhile == RouteState::New) {
        Some(first) => first.extend(gone),
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
