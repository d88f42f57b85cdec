//! From the host's edge to the target: DRT and RGT of each switch on the way.
//!
//! Shape: DPID -> hops of links between switches, then the port it leaves by.
//! Units: hops.
//! Source: wire-formats.md 4.5 (5708h, 570Ah), 5.3.

use weft_parsers::cci::Request;
use weft_parsers::cci::tables::{Drt, Rgt, RoutingRange};
use weft_parsers::fabric::{DrtEntry, Pid};

use super::{Stop, Walk, refused};
use crate::fm::cci::Way;
use crate::fm::discover::ports_up;
use crate::fm::graph::{PortRef, SwitchId};
use crate::fm::inventory::Switch;

impl Walk<'_> {
    /// Follows the tables as static messages go; where a group has more ports, the step lists them.
    pub(super) fn path(&mut self, to: Pid) -> Result<(), Stop> {
        let mut at = self.host.switch;
        for _ in 0..=self.asked.inventory.switches.len() {
            let Some(port) = self.route(at, to)? else { return Ok(()) };
            let here = PortRef::new(at, port);
            let way = self.way_to(at);
            if ports_up(self.asked.fabric, way, &[port])? != [port] {
                self.say(here, "port", "its link is down");
                return refused(format!("lost at {here}: the link is down"));
            }
            let Some([a, b]) = self.asked.inventory.link_at(here) else {
                return self.leaves(here, to);
            };
            let far = if a == here { b } else { a };
            self.trace.hops.push(format!("{here} - {far}"));
            at = far.switch;
        }
        refused("the tables lead in a circle")
    }

    fn way_to(&self, at: SwitchId) -> Way {
        self.asked.inventory.switch(at).map_or(Way::Entry, Switch::way)
    }

    /// The port that a switch sends it to; none: it is the switch's own.
    fn route(&mut self, at: SwitchId, to: Pid) -> Result<Option<u8>, Stop> {
        if self.asked.inventory.switch(at).is_some_and(|switch| switch.pid == to) {
            self.note(at, "own PID", false, format!("{to} is the switch itself"));
            return Ok(None);
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
                Ok(Some(port))
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
                    "[{group}]: ports {}, {primary} of them primary, {:?}; followed: {port}",
                    ports.join(", "),
                    entry.mode
                );
                self.say(at, "RGT", text);
                Ok(Some(port))
            }
        }
    }

    /// It leaves the fabric: by the port that the PID is at.
    fn leaves(&mut self, here: PortRef, to: Pid) -> Result<(), Stop> {
        let is_there = self.asked.inventory.pids().any(|(pid, at)| pid == to && at == here);
        if !is_there {
            return refused(format!("{here} leads out of the fabric, but {to} is not there"));
        }
        self.trace.hops.push(format!("{here} - {to}"));
        Ok(())
    }
}
