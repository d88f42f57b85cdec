//! Load of links: averages of the byte counts of switch ports between two looks.
//!
//! [`Traffic::read`] reads the counts of all switches (C510h), [`Traffic::load_links`] puts averages into rows of links.
//! Bytes are without FCS; averages are over a number of ms of the switch's own clock.
//!
//! Source: docs/spec/wire-formats.md §4.3 (C510h); docs/fm.md "The page of a fabric".

use std::collections::{BTreeMap, BTreeSet, VecDeque};

use weft_parsers::cci::switch::{PortList, PortTraffic, PortsTraffic};
use weft_parsers::cci::{List, Request, ReturnCode};

use crate::cci::switch_state::PORTS_AT_ONCE;
use crate::cci::{CallError, CciSession, Way};
use crate::model::graph::{PortRef, SwitchId};
use crate::model::inventory::{DiscoveredSwitch, Inventory};
use crate::show::overview::{LinkLoad, LinkRow};

/// Shortest averaging interval, ns.
const SHORTEST_NS: u64 = 200_000_000;
/// Counts kept of a port: with counts every 100 ms enough for the shortest interval.
const KEPT: usize = 8;

/// Looks without a new count after which the known counts are too old.
const STALE: u32 = 32;

/// Bytes counted at a port up to a time of its switch.
#[derive(Clone, Copy, Debug)]
struct Count {
    at_ns: u64,
    by_then: PortTraffic,
}

/// Counts of one port.
#[derive(Clone, Debug, Default)]
struct Counts {
    /// Counts, the oldest first.
    known: VecDeque<Count>,
    /// Looks since the last count came.
    looks: u32,
}

/// Counts of all ports.
#[derive(Clone, Debug, Default)]
pub(super) struct Traffic {
    counts: BTreeMap<PortRef, Counts>,
    /// Switches without the command.
    unable: BTreeSet<SwitchId>,
}

impl Traffic {
    pub(super) fn clear(&mut self) {
        *self = Self::default();
    }

    /// Records a count. An equal time is no news; an earlier one, or lower counts, mean that the switch was restarted.
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
        // The oldest count goes once the next one alone spans the interval.
        while known.len() > KEPT || known.get(1).is_some_and(is_enough) {
            known.pop_front();
        }
    }

    /// Average over the known counts of a port; `None` unless they span the shortest interval.
    fn rate(&self, at: PortRef, bytes: fn(PortTraffic) -> u64) -> Option<LinkLoad> {
        let Counts { known, .. } = self.counts.get(&at)?;
        let (first, last) = (known.front()?, known.back()?);
        let ns = last.at_ns.checked_sub(first.at_ns).filter(|ns| *ns >= SHORTEST_NS)?;
        // In 128 bits: bits times 1,000,000,000 does not fit 64.
        let bits = u128::from(bytes(last.by_then).checked_sub(bytes(first.by_then))?) * 8;
        let bps = u64::try_from(bits * 1_000_000_000 / u128::from(ns)).unwrap_or(u64::MAX);
        Some(LinkLoad { bps, over_ms: ns / 1_000_000 })
    }

    /// Load of a link in one direction: the larger of the bytes sent at one end and received at the other. Padding is
    /// added after the sender counts, and frames can be lost before the receiver does.
    fn load(&self, from: PortRef, to: PortRef) -> Option<LinkLoad> {
        let both = [self.rate(from, |port| port.tx), self.rate(to, |port| port.rx)];
        both.into_iter().flatten().max_by_key(|load| load.bps)
    }

    /// Reads the counts of all switches but those in `silent`, which have just not answered.
    pub(super) fn read(
        &mut self,
        cci: &mut CciSession,
        inventory: &Inventory,
        silent: &BTreeSet<SwitchId>,
    ) {
        self.counts.values_mut().for_each(|counts| counts.looks += 1);
        self.counts.retain(|_, counts| counts.looks < STALE);
        // Only ports of links: edge ports are not shown, and a large switch has many.
        let mut by_switch: BTreeMap<SwitchId, Vec<u8>> = BTreeMap::new();
        for end in inventory.links.iter().flatten() {
            by_switch.entry(end.switch).or_default().push(end.port);
        }
        for (id, ports) in by_switch {
            let switch = inventory.switch(id).filter(|switch| switch.whole);
            let asked = !self.unable.contains(&id) && !silent.contains(&id);
            let Some(way) = switch.map(DiscoveredSwitch::way).filter(|_| asked) else { continue };
            let failed = ask(cci, way, &ports, |at_ns, port| {
                if ports.contains(&port.port) {
                    // Only ports that were asked for become keys of the map.
                    self.note(PortRef::new(id, port.port), Count { at_ns, by_then: port });
                }
            });
            if let Err(CallError::Refused { code: ReturnCode::Unsupported, .. }) = failed {
                self.unable.insert(id);
            }
            if failed.is_err() {
                // After a gap an average would cover a time in which nothing was read.
                self.counts.retain(|at, _| at.switch != id);
            }
        }
    }

    /// Adds the load to each row of a link that is up, as far as it was counted.
    pub(super) fn load_links(&self, links: &mut [LinkRow]) {
        for link in links.iter_mut().filter(|link| !link.down) {
            let [one, other] = link.ends;
            link.load = [self.load(one, other), self.load(other, one)];
        }
    }
}

/// Reads counts of ports, and hands each to `note` with its time.
fn ask(
    fabric: &mut CciSession,
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
