//! Display names: names of the wanted state in texts for people.
//!
//! Texts have `s3` for a switch and `PID 003` for a component; [`DisplayNames`] puts in the switch's name, and the name
//! of the PID's owner. The service treats the rows of its answers in the same way.
//!
//! Errors, events and plans call switches by number, as they have no wanted state at hand. Texts for people get the
//! names, wherever a switch has one; quoted text comes from elsewhere and stays.
//!
//! Source: docs/fm.md, "Commands".

use std::collections::BTreeMap;

use crate::components::bind::Bindings;
use crate::model::graph::{PortRef, SwitchId};
use crate::model::inventory::{Inventory, Partner};
use crate::show::overview::NameRow;
use crate::show::trace::{End, Trace};
use crate::state::desired::DesiredState;

/// Names of switches, of GFDs by PID, and of hosts and devices by port.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct DisplayNames {
    switches: BTreeMap<SwitchId, String>,
    gfds: BTreeMap<u16, String>,
    /// Names of hosts, devices and GFDs, by PID.
    pids: BTreeMap<u16, String>,
    ends: BTreeMap<(SwitchId, u8), String>,
}

impl From<&[NameRow]> for DisplayNames {
    fn from(rows: &[NameRow]) -> Self {
        let mut called = Self::default();
        for NameRow { switch, port, name } in rows {
            match port {
                Some(port) => called.ends.insert((*switch, *port), name.clone()),
                None => called.switches.insert(*switch, name.clone()),
            };
        }
        called
    }
}

impl DisplayNames {
    /// Names that a wanted state has for the components of a fabric.
    #[must_use]
    pub fn new(desired: &DesiredState, inventory: &Inventory) -> Self {
        let first = desired.fm.entry_in(inventory);
        let name = |(id, switch): (SwitchId, &crate::model::inventory::DiscoveredSwitch)| {
            let entry = desired.fm.entry.clone().filter(|_| Some(id) == first);
            let mut named = desired.switches.iter();
            let own = switch.uuid.and_then(|uuid| named.find(|named| named.uuid == uuid));
            let own = own.map(|named| named.name.clone());
            Some((id, own.or(entry)?))
        };
        let switches: BTreeMap<SwitchId, String> = inventory.by_id().filter_map(name).collect();
        let gfd = |gfd: &crate::model::inventory::Gfd| {
            let named = desired.gfds.iter().find(|named| named.uuid == gfd.uuid)?;
            Some((gfd.pid.bits(), named.name.clone()))
        };
        let gfds = inventory.gfds.iter().filter_map(gfd).collect();
        let names =
            crate::state::names::Names { desired, inventory, bindings: &Bindings::default() };
        let end = |(name, switch, port): (&String, &String, u8)| {
            Some(((names.switch(switch).ok()?, port), name.clone()))
        };
        let ends = names.places().filter_map(end).collect();
        let mut called = Self { switches, gfds, pids: BTreeMap::new(), ends };
        called.pids = (inventory.pids())
            .filter_map(|(pid, at)| Some((pid.bits(), called.at_port(inventory, at)?.to_owned())))
            .collect();
        called
    }

    /// The names as rows, those of GFDs at their ports.
    #[must_use]
    pub fn rows(&self, inventory: &Inventory) -> Vec<NameRow> {
        let row = |switch, port, name: &String| NameRow { switch, port, name: name.clone() };
        let switches = self.switches.iter().map(|(id, name)| row(*id, None, name));
        let ends = self.ends.iter().map(|((id, port), name)| row(*id, Some(*port), name));
        let gfds = inventory.gfds.iter().filter_map(|gfd| {
            let name = self.gfds.get(&gfd.pid.bits())?;
            Some(row(gfd.at.switch, Some(gfd.at.port), name))
        });
        switches.chain(ends).chain(gfds).collect()
    }

    /// Name of a switch, or its number.
    #[must_use]
    pub fn switch(&self, id: SwitchId) -> String {
        self.switches.get(&id).cloned().unwrap_or_else(|| id.to_string())
    }

    /// Name of the component at a port, followed by a blank; empty if it has none.
    #[must_use]
    pub fn at(&self, inventory: &Inventory, id: SwitchId, port: u8) -> String {
        self.at_port(inventory, PortRef::new(id, port))
            .map_or_else(String::new, |name| format!("{name} "))
    }

    fn at_port(&self, inventory: &Inventory, at: PortRef) -> Option<&str> {
        let port = inventory.switch(at.switch).and_then(|switch| switch.port(at.port));
        let partner = port.map(|port| port.partner);
        let gfd = match partner {
            Some(Partner::Gfd(place)) => inventory.gfds.get(place),
            _ => None,
        };
        let here = || self.ends.get(&(at.switch, at.port));
        // A GFD's name goes with the device, wherever it is plugged in; others are named by port.
        let name = match gfd {
            Some(gfd) => self.gfds.get(&gfd.pid.bits()).or_else(here),
            None => here(),
        };
        name.map(String::as_str)
    }

    /// `text` with names in place of `s0`, `s1.3` or `s2/0/1`.
    #[must_use]
    pub fn with_names(&self, text: &str) -> String {
        let mut out = String::with_capacity(text.len());
        let (mut rest, mut before) = (text, ' ');
        while let Some(first) = rest.chars().next() {
            let begins = !before.is_alphanumeric() && !matches!(before, '"' | '-' | '_' | '.');
            if first == 's'
                && begins
                && let Some((len, id)) = number(rest)
                && let Some(name) = self.switches.get(&id)
            {
                out.push_str(name);
                // Behind a name a digit stands for "within a word", so that nothing that follows is replaced as its
                // start.
                (rest, before) = (rest.get(len..).unwrap_or_default(), '0');
                continue;
            }
            out.push(first);
            (rest, before) = (rest.get(first.len_utf8()..).unwrap_or_default(), first);
        }
        out
    }

    /// `text` with names of switches, and with names of hosts, devices and GFDs in front of their PIDs: `PID 003` and
    /// `GFD 003` become `g0 (PID 003)`.
    #[must_use]
    pub fn told(&self, text: &str) -> String {
        let text = self.with_names(text);
        let mut out = String::with_capacity(text.len());
        let mut rest = text.as_str();
        while let Some((begin, word)) = first_pid_word(rest) {
            let (before, found) = rest.split_at(begin);
            let (word, behind) = found.split_at(word);
            let name = pid_at(behind).and_then(|pid| self.pids.get(&pid));
            out.push_str(before);
            rest = behind;
            match (name, behind.split_at_checked(3)) {
                (Some(name), Some((pid, behind))) if begins(&out) => {
                    out.extend([name, " (PID ", pid, ")"]);
                    rest = behind;
                }
                _ => out.push_str(word),
            }
        }
        out.push_str(rest);
        out
    }

    pub(crate) fn trace(&self, trace: &mut Trace) {
        let put = |text: &mut String| *text = self.with_names(text);
        for step in &mut trace.steps {
            put(&mut step.at);
            put(&mut step.found);
        }
        trace.hops.iter_mut().chain(&mut trace.others).for_each(put);
        if let End::Refused(why) | End::Unknown(why) = &mut trace.end {
            put(why);
        }
    }
}

/// Position and length of the first `PID ` or `GFD `.
fn first_pid_word(text: &str) -> Option<(usize, usize)> {
    let words = ["PID ", "GFD "];
    words.iter().filter_map(|word| Some((text.find(word)?, word.len()))).min()
}

/// The PID at the start of a text, unless it is part of a longer word.
fn pid_at(text: &str) -> Option<u16> {
    let (digits, behind) = text.split_at_checked(3)?;
    let is_pid = digits.bytes().all(|byte| matches!(byte, b'0'..=b'9' | b'a'..=b'f'));
    let ends = behind
        .chars()
        .next()
        .is_none_or(|next| !next.is_alphanumeric() && !matches!(next, '-' | '_'));
    u16::from_str_radix(digits, 16).ok().filter(|_| is_pid && ends)
}

/// Whether a word that follows `before` stands alone: not a PID that has its name already, and not part of quoted text.
fn begins(before: &str) -> bool {
    let last = before.chars().next_back().unwrap_or(' ');
    !last.is_alphanumeric() && !matches!(last, '(' | '"' | '-' | '_' | '.')
}

/// Number of a switch after the `s` at the start of `text`, with the length of both, unless it is part of a longer
/// word.
fn number(text: &str) -> Option<(usize, SwitchId)> {
    let digits = text.get(1..)?;
    let len = digits.bytes().take_while(u8::is_ascii_digit).count();
    let behind = digits.get(len..)?.chars().next().unwrap_or(' ');
    let ends = !behind.is_alphanumeric() && !matches!(behind, '-' | '_' | '"');
    let id = digits.get(..len)?.parse().ok().filter(|_| ends)?;
    Some((1 + len, SwitchId(id)))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn numbers_of_switches_become_names_and_nothing_else_does() {
        let names = [(0, "leaf-0"), (2, "sw2"), (12, "spine.a")];
        let switches = names.map(|(id, name)| (SwitchId(id), name.to_owned()));
        let called = DisplayNames { switches: BTreeMap::from(switches), ..DisplayNames::default() };
        #[rustfmt::skip] // columns: text, text with names
        let cases = [
            ("s0", "leaf-0"),
            ("link at s2.3 is down", "link at sw2.3 is down"),
            ("s2/0/1 to s12/1/0, s1.4", "sw2/0/1 to spine.a/1/0, s1.4"),
            ("s12 does not answer; s120 does", "spine.a does not answer; s120 does"),
            ("PID 0f0 (s0): s2.", "PID 0f0 (leaf-0): sw2."),
            ("there is no switch \"s2\"; memory \"s0\"", "there is no switch \"s2\"; memory \"s0\""),
            ("hosts2 class0 s2x s2-a s2_1 xs2 -s2 a.s2 s", "hosts2 class0 s2x s2-a s2_1 xs2 -s2 a.s2 s"),
            ("größe s2 ß", "größe sw2 ß"),
            ("s99999999999", "s99999999999"),
            ("", ""),
        ];
        for (text, want) in cases {
            assert_eq!(called.with_names(text), want);
        }
    }

    #[test]
    fn who_has_a_pid_is_named_with_it() {
        let pids = [(3, "g0"), (0x0A1, "h0")].map(|(pid, name)| (pid, name.to_owned()));
        let switches = BTreeMap::from([(SwitchId(1), "leaf".to_owned())]);
        let called =
            DisplayNames { switches, pids: BTreeMap::from(pids), ..DisplayNames::default() };
        #[rustfmt::skip] // columns: text, text with names
        let cases = [
            ("GFD 003 at s1.4 is there again", "g0 (PID 003) at leaf.4 is there again"),
            ("s1: PID 0a1, not PID 004", "leaf: h0 (PID 0a1), not PID 004"),
            ("h0 (PID 0a1) and PID 003", "h0 (PID 0a1) and g0 (PID 003)"),
            ("PID 003", "g0 (PID 003)"),
            ("PID 0031, PID 00, PID 0A1, DPID 003, GFD g0, PID", "PID 0031, PID 00, PID 0A1, DPID 003, GFD g0, PID"),
            ("memory \"PID 003\" of GFD", "memory \"PID 003\" of GFD"),
            ("PID größe PID 003 ß", "PID größe g0 (PID 003) ß"),
        ];
        for (text, want) in cases {
            assert_eq!(called.told(text), want);
        }
    }
}
