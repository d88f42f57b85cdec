//! Trace through the fabric: DRT and RGT of each switch between the edge and the target.
//!
//! Source: docs/spec/wire-formats.md §4.5 (5708h, 570Ah), §5.3.

use std::collections::BTreeSet;

use weft_parsers::cci::Request;
use weft_parsers::cci::tables::{Drt, Rgt, RoutingRange};
use weft_parsers::fabric::{DrtEntry, Pid};

use super::{Stop, TraceWalk, refused};
use crate::cci::Way;
use crate::cci::switch_state::ports_up;
use crate::model::graph::{PortRef, SwitchId};
use crate::model::inventory::DiscoveredSwitch;
use crate::model::text::mode_name;

impl TraceWalk<'_> {
    /// Follows the tables as static messages do, then all other links that groups may choose for dynamic ones.
    pub(super) fn path(&mut self, to: Pid) -> Result<(), Stop> {
        let mut seen = BTreeSet::new();
        let mut branches = Vec::new();
        let mut at = Some(self.host.switch);
        while let Some(here) = at {
            if !seen.insert(here) {
                // Proved tables have no loop, but another manager may have changed these.
                return refused("the tables form a loop");
            }
            let ports = self.route(here, to)?;
            let Some(&first) = ports.first() else { break };
            let place = PortRef::new(here, first);
            if ports_up(self.asked.fabric, self.way_to(here), &[first])? != [first] {
                self.say(place, "port", "its link is down");
                return refused(format!("lost at {place}: the link is down"));
            }
            let (hop, next) = self.hop(place, to)?;
            self.trace.hops.push(hop);
            branches.push((here, ports));
            at = next;
        }
        // The other ports of each group, from every switch that one of them leads to.
        while let Some((here, ports)) = branches.pop() {
            for port in ports_up(self.asked.fabric, self.way_to(here), &ports)? {
                let Ok((hop, next)) = self.hop(PortRef::new(here, port), to) else {
                    continue; // its step says why
                };
                if !self.trace.hops.contains(&hop) && !self.trace.others.contains(&hop) {
                    self.trace.others.push(hop);
                }
                if let Some(next) = next
                    && seen.insert(next)
                {
                    match self.route(next, to) {
                        Ok(ports) => branches.push((next, ports)),
                        // A branch that ends is no end of the trace: its step says why, and static messages take
                        // another way.
                        Err(Stop::End(_)) => {}
                        Err(silent) => return Err(silent),
                    }
                }
            }
        }
        Ok(())
    }

    /// The link at a port as its two ends, and the switch behind it; `None` if it leaves the fabric.
    fn hop(&mut self, here: PortRef, to: Pid) -> Result<(String, Option<SwitchId>), Stop> {
        let Some([a, b]) = self.asked.inventory.link_at(here) else {
            let is_there = self.asked.inventory.pids().any(|(pid, at)| pid == to && at == here);
            if !is_there {
                self.note(
                    here,
                    "port",
                    false,
                    format!("it leads out of the fabric, but {to} is not there"),
                );
                return refused(format!("{here} leads out of the fabric, but {to} is not there"));
            }
            return Ok((format!("{here} - {to}"), None));
        };
        let far = if a == here { b } else { a };
        Ok((format!("{here} - {far}"), Some(far.switch)))
    }

    fn way_to(&self, at: SwitchId) -> Way {
        self.asked.inventory.switch(at).map_or(Way::Entry, DiscoveredSwitch::way)
    }

    /// Ports that a switch may use for a PID, that of static messages first; empty if the PID is the switch's own.
    fn route(&mut self, at: SwitchId, to: Pid) -> Result<Vec<u8>, Stop> {
        if self.asked.inventory.switch(at).is_some_and(|switch| switch.pid == to) {
            // Tables that are read do not have the switch's own PID.
            self.note(at, "own PID", false, format!("{to} is the switch itself"));
            return Ok(Vec::new());
        }
        let way = self.way_to(at);
        let range = RoutingRange { table: 0, count: 1, start: to.bits() };
        let answer = self.asked.fabric.call(way, &Request::GetDrt(range))?;
        match answer.read::<Drt<'_>>()?.entries.get(0).unwrap_or_default() {
            DrtEntry::Invalid => {
                self.say(at, "DRT", format!("[{to}]: not valid"));
                refused(format!("dropped at {at}: no route to {to}, UR"))
            }
            DrtEntry::Port(port) => {
                self.say(at, "DRT", format!("[{to}]: port {port}"));
                Ok(vec![port])
            }
            DrtEntry::Group(group) => {
                self.say(at, "DRT", format!("[{to}]: group {group}"));
                let range = RoutingRange { table: 0, count: 1, start: group.into() };
                let answer = self.asked.fabric.call(way, &Request::GetRgt(range))?;
                let entry = answer.read::<Rgt<'_>>()?.entries.get(0);
                let Some((entry, port)) = entry.and_then(|e| Some((e, *e.ports().first()?))) else {
                    return refused(format!("dropped at {at}: group {group} has no port"));
                };
                let ports: Vec<String> = entry.ports().iter().map(u8::to_string).collect();
                let primary = usize::from(entry.primary) + 1;
                let text = format!(
                    "[{group}]: ports {}, {primary} of them primary, {}; static messages: {port}",
                    ports.join(", "),
                    mode_name(entry.mode)
                );
                let ports = entry.ports().to_vec();
                self.say(at, "RGT", text);
                Ok(ports)
            }
        }
    }
}
