//! What components tell of themselves: notifications, and the records of their event logs.
//!
//! Shape: [`Fm::subscribe`] asks to be notified; [`Fm::take_in`] says whether somebody has; [`Fm::read_logs`] takes the
//! records of refused accesses, which become events of the manager, by who, where and rule.
//! Units: records.
//! Source: docs/spec/wire-formats.md §4.2 ("Events"); docs/spec/cxl-fabric.md "Dynamic change"; CXL 3.1 section 8.2.9.2.
//!
//! That a notification came leads to a look at the fabric, whatever it says and whoever sent it; records are shown to people.
//! Neither decides anything.

use std::collections::BTreeMap;

use weft_parsers::cci::events::{INFO, REFUSAL_EVENT, RefusalEvent, WARNING};
use weft_parsers::cci::generic::{ClearEvents, EventRecords};
use weft_parsers::cci::{List, Request, Wire};
use weft_parsers::fabric::Pid;

use super::Fm;
use super::display_names::DisplayNames;
use crate::cci::{CallError, Fabric, Way};
use crate::change::Running;
use crate::graph::SwitchId;
use crate::inventory::Switch;

/// Logs whose records are notified of. Refused accesses are not among them: any host can cause them.
const POLICY: u16 = 1 << WARNING;
/// Kinds of refusals that are kept apart.
const KINDS_MAX: usize = 1_024;

/// Where accesses were refused, and by which rule.
type Kind = (SwitchId, u8, String);

/// Refused accesses, as far as they were told.
#[derive(Debug, Default)]
pub(super) struct Refusals {
    told: BTreeMap<Kind, u64>,
    is_full: bool,
}

impl Refusals {
    /// Whether `count` refusals of a kind are to be told now: the first one, and then whenever they have doubled, so that
    /// nobody who goes on hides what others do. With fewer than before the switch was started again.
    fn is_news(&mut self, kind: Kind, count: u64) -> bool {
        if count == 0 || self.told.len() >= KINDS_MAX && !self.told.contains_key(&kind) {
            self.is_full |= count > 0;
            return false;
        }
        let told = self.told.entry(kind).or_default();
        if *told <= count && count < told.saturating_mul(2) {
            return false;
        }
        *told = count;
        true
    }
}

/// Takes the records of refused accesses from a switch, and has it forget all that it has shown.
fn read_log(fabric: &mut Fabric, way: Way, log: u8) -> Result<Vec<RefusalEvent>, CallError> {
    let answer = fabric.call(way, &Request::GetEvents(log))?;
    let records = answer.read::<EventRecords<'_>>()?.records;
    let handles: Vec<u16> = records.iter().map(|record| record.handle).collect();
    if !handles.is_empty() {
        let (all, handles) = (false, List::of(&handles));
        fabric.call(way, &Request::ClearEvents(ClearEvents { log, all, handles }))?;
    }
    let refusals = records.iter().filter(|record| record.kind == REFUSAL_EVENT);
    Ok(refusals.filter_map(|record| RefusalEvent::read(&record.data).ok()).collect())
}

impl Fm {
    /// Asks all switches to notify of changes of their links; those that cannot are looked at every now and then only.
    pub(super) fn subscribe(&mut self) {
        let Some(running) = &self.running else { return };
        let switches = running.inventory.switches.iter().filter(|switch| switch.whole);
        for way in switches.map(Switch::way).collect::<Vec<_>>() {
            // It does not have to: nothing is decided by a notification.
            let _ = self.fabric.call(way, &Request::SetMctpEvents(POLICY));
        }
    }

    /// Takes in what has come between two requests; whether anybody has notified of anything.
    pub fn take_in(&mut self) -> bool {
        self.fabric.take_in();
        let mut any = false;
        while self.fabric.event().is_some() {
            any = true;
        }
        any
    }

    /// What is readable once a notification has come.
    #[must_use]
    pub fn readable(&self) -> Option<std::os::fd::OwnedFd> {
        self.fabric.readable()
    }

    /// Reads the event logs of all switches that answer, and tells what they have refused.
    pub(super) fn read_logs(&mut self) {
        let Some(running) = &self.running else { return };
        let inventory = running.inventory.clone();
        let mut lines = Vec::new();
        for (id, switch) in inventory.by_id().filter(|(_, switch)| switch.whole) {
            let way = switch.way();
            // Records of links are only taken away: their state has been looked at.
            for log in [WARNING, INFO] {
                let Ok(refusals) = read_log(&mut self.fabric, way, log) else { break };
                for refusal in refusals {
                    let rule: String = refusal.rule().collect();
                    if self.refusals.is_news((id, refusal.port, rule.clone()), refusal.count) {
                        lines.push(self.refusal_line(id, &refusal, &rule));
                    }
                }
            }
        }
        if std::mem::take(&mut self.refusals.is_full) {
            lines.push(format!(
                "more than {KINDS_MAX} kinds of refused accesses: some are not told"
            ));
            self.refusals.told.clear();
        }
        for line in lines {
            self.board.record_event(line);
        }
    }

    fn refusal_line(&self, id: SwitchId, refusal: &RefusalEvent, rule: &str) -> String {
        let RefusalEvent { port, count, pid, .. } = *refusal;
        let running = self.running.as_ref();
        let name = running.map_or_else(String::new, |Running { inventory, .. }| {
            let name = DisplayNames::new(&self.desired, inventory).at(inventory, id, port);
            name.trim_end().to_owned()
        });
        let pid = Pid::from_low_bits(pid);
        let who = match (name.is_empty(), pid.is_none()) {
            (true, true) => "another switch".to_owned(),
            (false, true) => name,
            (true, false) => format!("PID {pid}"),
            (false, false) => format!("{name} (PID {pid})"),
        };
        let times = if count == 1 { "time" } else { "times" };
        format!("{id}.{port} refused an access of {who}: {rule}, {count} {times}")
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn refusals_are_told_when_they_begin_and_when_they_double() {
        let mut refusals = Refusals::default();
        let kind = |port| (SwitchId(0), port, "not-in-gmv".to_owned());
        #[rustfmt::skip] // columns: port, count, told
        let cases = [
            (1, 0, false), (1, 1, true), (1, 1, false), (1, 2, true), (1, 3, false), (2, 900, true), (1, 4, true),
            (2, 1_799, false), (2, 1_800, true), (2, 3, true), (2, 5, false),
        ];
        for (port, count, told) in cases {
            assert_eq!(refusals.is_news(kind(port), count), told, "{port} {count}");
        }
        let lines = (0..1_000_000_u64).filter(|count| refusals.is_news(kind(3), *count)).count();
        assert_eq!(lines, 20, "a line for each power of two");
    }

    #[test]
    fn kinds_of_refusals_are_bounded() {
        let mut refusals = Refusals::default();
        for rule in 0..2 * KINDS_MAX {
            let news = refusals.is_news((SwitchId(0), 1, rule.to_string()), 1);
            assert_eq!(news, rule < KINDS_MAX, "{rule}");
        }
        assert!(refusals.told.len() == KINDS_MAX && refusals.is_full);
    }
}
