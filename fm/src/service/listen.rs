//! What components tell of themselves: notifications, and the records of their event logs.
//!
//! [`Fm::subscribe`] asks to be notified; [`Fm::take_in`] says whether somebody has; [`Fm::read_logs`] takes the
//! records of refused accesses, which become events of the manager, by who, where and rule.
//!
//! Units: records.
//! Source: docs/spec/wire-formats.md §4.2 ("Events"); docs/spec/cxl-fabric.md "Dynamic change"; CXL 3.1 section 8.2.9.2.
//!
//! That a notification came leads to a look at the fabric, whatever it says and whoever sent it; records are shown to people.
//! Neither decides anything.

use std::collections::BTreeSet;
use std::ops::ControlFlow;
use std::os::fd::OwnedFd;

use weft_parsers::cci::events::{INFO, REFUSAL_EVENT, RefusalEvent, WARNING};
use weft_parsers::cci::generic::{ClearEvents, EventRecords};
use weft_parsers::cci::{List, Request, Wire};
use weft_parsers::fabric::Pid;

use super::Fm;
use super::board::Cause;
use super::display_names::DisplayNames;
use super::news::{KINDS_MAX, News};
use crate::cci::{CallError, Fabric, Way};
use crate::change::Running;
use crate::graph::{PortRef, SwitchId};
use crate::inventory::Switch;

/// Logs whose records are notified of. Refused accesses are not among them: any host can cause them.
const POLICY: u16 = 1 << WARNING;

/// Accesses that one switch has refused.
#[derive(Debug, Default)]
pub(super) struct Refusals {
    /// By port and rule.
    news: News<(u8, String)>,
    /// There are more kinds, and that was told.
    is_full: bool,
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
        while let Some(message) = self.fabric.event() {
            // What a device has refused is no change: any host can cause it.
            any |= !self.gfd_notices.take(&message);
        }
        any
    }

    /// Whether there is a reason to look at the fabric now: somebody has notified of something, or the connection to the entry
    /// switch has ended. Otherwise what is readable once there may be one.
    pub(crate) fn look_out(&mut self) -> ControlFlow<(), Option<OwnedFd>> {
        let was_open = self.fabric.readable().is_some();
        let is_notified = self.take_in();
        let readable = self.fabric.readable();
        if is_notified || was_open && readable.is_none() {
            return ControlFlow::Break(());
        }
        ControlFlow::Continue(readable)
    }

    /// Reads the event logs of all switches that answer, and tells what they have refused; who did not answer.
    pub(super) fn read_logs(&mut self) -> BTreeSet<SwitchId> {
        let (mut lines, mut silent) = (Vec::new(), BTreeSet::new());
        let Some(running) = &self.running else { return silent };
        let inventory = running.inventory.clone();
        for (id, switch) in inventory.by_id().filter(|(_, switch)| switch.whole) {
            let way = switch.way();
            // Records of links are only taken away: their state has been looked at.
            for log in [WARNING, INFO] {
                let refusals = match read_log(&mut self.fabric, way, log) {
                    Ok(refusals) => refusals,
                    Err(error) => {
                        silent.extend(error.is_silence().then_some(id));
                        break;
                    }
                };
                for refusal in refusals {
                    let rule: String = refusal.rule().collect();
                    let cause = Cause::Port(PortRef::new(id, refusal.port));
                    let kind = (refusal.port, rule.clone());
                    let known = self.refusals.entry(id).or_default();
                    if !known.news.has_room_for(&kind) {
                        if !std::mem::replace(&mut known.is_full, true) {
                            lines.push((
                                cause,
                                format!("{id}: more than {KINDS_MAX} kinds of refused accesses: others are not told"),
                            ));
                        }
                    } else if known.news.is_news(kind, refusal.count) {
                        lines.push((cause, self.refusal_line(id, &refusal, &rule)));
                    }
                }
            }
        }
        for (cause, line) in lines {
            self.board.record_caused(cause, &line);
        }
        silent
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
