//! How much goes over links: what switches count at their ports, between two looks.
//!
//! [`Fm::read_traffic`] asks all switches (C510h); [`Fm::load_links`] puts averages into rows of links.
//!
//! Units: bytes without FCS; bits a second, an average over so many ms of the switch's own clock.
//! Source: docs/spec/wire-formats.md §4.3 (C510h); docs/fm.md "The page of a fabric".

use std::collections::{BTreeMap, BTreeSet, VecDeque};

use weft_parsers::cci::switch::{PortList, PortTraffic, PortsTraffic};
use weft_parsers::cci::{List, Request, ReturnCode};

use super::Fm;
use crate::cci::{CallError, Fabric, Way};
use crate::discover::PORTS_AT_ONCE;
use crate::graph::{PortRef, SwitchId};
use crate::inventory::Switch;
use crate::overview::{LinkLoad, LinkRow};

/// Shortest time that an average is of, ns.
const SHORTEST_NS: u64 = 200_000_000;
/// Counts of a port that are kept: more than a switch that counts every 100 ms needs for the shortest average.
const KEPT: usize = 8;

/// Looks without a later count after which what is known is too old to tell.
const STALE: u32 = 32;

/// What had gone through a port at a time of the switch.
#[derive(Clone, Copy, Debug)]
struct Count {
    at_ns: u64,
    by_then: PortTraffic,
}

/// What is known of one port.
#[derive(Clone, Debug, Default)]
struct Counts {
    /// Oldest first.
    known: VecDeque<Count>,
    /// Looks since the last one came.
    looks: u32,
}

/// What is known of the traffic of ports.
#[derive(Clone, Debug, Default)]
pub(super) struct Traffic {
    counts: BTreeMap<PortRef, Counts>,
    /// Switches that do not know the command.
    unable: BTreeSet<SwitchId>,
}

impl Traffic {
    /// Forgets all of it.
    pub(super) fn clear(&mut self) {
        *self = Self::default();
    }

    /// Notes a count. One that is not later than the last one is no news, or the switch has been started again.
    fn note(&mut self, at: PortRef, count: Count) {
        let Counts { known, looks } = self.counts.entry(at).or_default();
        if let Some(last) = known.back() {
            if count.at_ns == last.at_ns {
                return;
            }
            let (now, before) = (count.by_then, last.by_then);
            if count.at_ns < last.at_ns || now.rx < before.rx || now.tx < before.tx {
                known.clear();
            }
        }
        *looks = 0;
        known.push_back(count);
        let is_enough = |from: &Count| count.at_ns - from.at_ns >= SHORTEST_NS;
        while known.len() > KEPT || known.get(1).is_some_and(is_enough) {
            known.pop_front();
        }
    }

    /// What has come in or gone out by a port since the last count that is long enough ago; none where there is no such count.
    fn rate(&self, at: PortRef, bytes: fn(PortTraffic) -> u64) -> Option<LinkLoad> {
        let Counts { known, .. } = self.counts.get(&at)?;
        let (first, last) = (known.front()?, known.back()?);
        let ns = last.at_ns.checked_sub(first.at_ns).filter(|ns| *ns >= SHORTEST_NS)?;
        let bits = u128::from(bytes(last.by_then).checked_sub(bytes(first.by_then))?) * 8;
        let bps = u64::try_from(bits * 1_000_000_000 / u128::from(ns)).unwrap_or(u64::MAX);
        Some(LinkLoad { bps, over_ms: ns / 1_000_000 })
    }

    /// What goes over a link from one end to the other: the larger of what the one has sent and the other has received, as
    /// frames are padded behind where they are counted, and can be lost before.
    fn load(&self, from: PortRef, to: PortRef) -> Option<LinkLoad> {
        let both = [self.rate(from, |port| port.tx), self.rate(to, |port| port.rx)];
        both.into_iter().flatten().max_by_key(|load| load.bps)
    }
}

/// Asks a switch for counts of ports; hands each to `note` with its time.
fn ask(
    fabric: &mut Fabric,
    way: Way,
    ports: &[u8],
    mut note: impl FnMut(u64, PortTraffic),
) -> Result<(), CallError> {
    for some in ports.chunks(PORTS_AT_ONCE) {
        let request = Request::GetPortTraffic(PortList { ports: List::of(some) });
        let answer = fabric.call(way, &request)?;
        let told = answer.read::<PortsTraffic<'_>>()?;
        told.ports.iter().for_each(|port| note(told.at_ns, port));
    }
    Ok(())
}

impl Fm {
    /// Asks all switches what has gone over their links, but those in `silent`, which have just not answered.
    pub(super) fn read_traffic(&mut self, silent: &BTreeSet<SwitchId>) {
        let Self { running: Some(running), fabric, traffic, .. } = self else { return };
        traffic.counts.values_mut().for_each(|counts| counts.looks += 1);
        traffic.counts.retain(|_, counts| counts.looks < STALE);
        let inventory = &running.inventory;
        let mut by_switch: BTreeMap<SwitchId, Vec<u8>> = BTreeMap::new();
        for end in inventory.links.iter().flatten() {
            by_switch.entry(end.switch).or_default().push(end.port);
        }
        for (id, ports) in by_switch {
            let switch = inventory.switch(id).filter(|switch| switch.whole);
            let asked = !traffic.unable.contains(&id) && !silent.contains(&id);
            let Some(way) = switch.map(Switch::way).filter(|_| asked) else { continue };
            let failed = ask(fabric, way, &ports, |at_ns, port| {
                if ports.contains(&port.port) {
                    traffic.note(PortRef::new(id, port.port), Count { at_ns, by_then: port });
                }
            });
            if let Err(CallError::Refused { code: ReturnCode::Unsupported, .. }) = failed {
                traffic.unable.insert(id);
            }
            if failed.is_err() {
                traffic.counts.retain(|at, _| at.switch != id);
            }
        }
    }

    /// Says of each link that is up what goes over it, as far as it has been counted.
    pub(super) fn load_links(&self, links: &mut [LinkRow]) {
        for link in links.iter_mut().filter(|link| !link.down) {
            let [one, other] = link.ends;
            link.load = [self.traffic.load(one, other), self.traffic.load(other, one)];
        }
    }
}
