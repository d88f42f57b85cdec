//! Messages of components about themselves: notifications, and records of their event logs.
//!
//! [`subscribe`] asks for notifications, [`Fm::take_in`](super::Fm::take_in) tells whether one has come, and
//! [`EventLogs::read`] turns records of refused accesses into events that name the requester, the place and the rule.
//!
//! Any notification makes the manager look at the fabric: neither its content nor its sender matters. Records of refusals
//! are shown to people. A record of a lost link leads to a discovery where the link is up again: nothing else tells that a device
//! was restarted between two looks.
//!
//! Source: docs/spec/wire-formats.md §4.2 ("Events"); docs/spec/cxl-fabric.md "Dynamic change"; CXL 3.1 section
//! 8.2.9.2.

use std::collections::{BTreeMap, BTreeSet};

use weft_parsers::cci::events::{
    INFO, PORT_EVENT, PortEvent, REFUSAL_EVENT, RefusalEvent, WARNING,
};
use weft_parsers::cci::generic::{ClearEvents, EventRecords};
use weft_parsers::cci::{List, Request, Wire};
use weft_parsers::fabric::Pid;

use super::board::{Cause, StatusBoard};
use super::news::{KINDS_MAX, News};
use crate::cci::switch_state::is_up;
use crate::cci::{CallError, CciSession, Way};
use crate::model::graph::{PortRef, SwitchId};
use crate::model::inventory::Inventory;
use crate::show::display_names::DisplayNames;
use crate::state::desired::DesiredState;

/// Logs whose records cause notifications. Refused accesses are not among them: any host could cause looks at will.
const POLICY: u16 = 1 << WARNING;

/// Refused accesses of one switch.
#[derive(Debug, Default)]
struct Refusals {
    /// Reported counts, by port and rule.
    news: News<(u8, String)>,
    /// Whether there are too many kinds, which was reported.
    is_full: bool,
}

/// Result of reading the event logs of all switches.
#[derive(Debug, Default)]
pub(super) struct LogsRead {
    /// Switches that did not answer.
    pub silent: BTreeSet<SwitchId>,
    /// Whether a device with logical devices has lost its link and has it again: it may have been restarted.
    pub relinked: bool,
}

/// What the records of a log tell.
struct Told {
    refusals: Vec<RefusalEvent>,
    /// Ports whose link was lost.
    link_lost: Vec<u8>,
}

/// Reads the records of a switch's log, and clears all that it returned.
fn read_log(fabric: &mut CciSession, way: Way, log: u8) -> Result<Told, CallError> {
    let answer = fabric.call(way, &Request::GetEvents(log))?;
    let records = answer.read::<EventRecords<'_>>()?.records;
    let handles: Vec<u16> = records.iter().map(|record| record.handle).collect();
    if !handles.is_empty() {
        let (all, handles) = (false, List::of(&handles));
        fabric.call(way, &Request::ClearEvents(ClearEvents { log, all, handles }))?;
    }
    let of_kind = |kind| records.iter().filter(move |record| record.kind == kind);
    let refusals = of_kind(REFUSAL_EVENT).filter_map(|it| RefusalEvent::read(&it.data).ok());
    let ports = of_kind(PORT_EVENT).filter_map(|it| PortEvent::read(&it.data).ok());
    let lost = ports.filter(|event| !is_up(event.ltssm));
    Ok(Told { refusals: refusals.collect(), link_lost: lost.map(|event| event.port).collect() })
}

/// Asks all switches for notifications of link changes. Switches without them are covered by regular polls.
pub(super) fn subscribe(cci: &mut CciSession, inventory: &Inventory) {
    for switch in inventory.switches.iter().filter(|switch| switch.whole) {
        // A refusal is no error: nothing depends on notifications.
        let _ = cci.call(switch.way(), &Request::SetMctpEvents(POLICY));
    }
}

/// Refused accesses that the event logs of switches have told of, by switch.
#[derive(Debug, Default)]
pub(super) struct EventLogs(BTreeMap<SwitchId, Refusals>);

impl EventLogs {
    /// Reads the event logs of all switches; reports refused accesses, and devices that may have lost what they were
    /// given.
    pub fn read(
        &mut self,
        cci: &mut CciSession,
        inventory: &Inventory,
        desired: &DesiredState,
        board: &StatusBoard,
    ) -> LogsRead {
        let (mut lines, mut read) = (Vec::new(), LogsRead::default());
        for (id, switch) in inventory.by_id().filter(|(_, switch)| switch.whole) {
            let way = switch.way();
            for log in [WARNING, INFO] {
                let Told { refusals, link_lost } = match read_log(cci, way, log) {
                    Ok(told) => told,
                    Err(error) => {
                        // Each further command would cost another time limit.
                        read.silent.extend(error.is_silence().then_some(id));
                        break;
                    }
                };
                // A loss that this look has seen by the port's state has left the port down in the inventory.
                let is_back =
                    |number: &u8| switch.port(*number).is_some_and(|port| port.up && port.lds > 0);
                for number in link_lost.into_iter().filter(is_back) {
                    let at = PortRef::new(id, number);
                    lines.push((
                        Cause::Port(at),
                        format!("{at} lost its link between two looks and has it again"),
                    ));
                    read.relinked = true;
                }
                for refusal in refusals {
                    let rule: String = refusal.rule().collect();
                    let cause = Cause::Port(PortRef::new(id, refusal.port));
                    let kind = (refusal.port, rule.clone());
                    let known = self.0.entry(id).or_default();
                    if !known.news.has_room_for(&kind) {
                        if !std::mem::replace(&mut known.is_full, true) {
                            lines.push((
                                cause,
                                format!("{id}: more than {KINDS_MAX} kinds of refused accesses: others are not told"),
                            ));
                        }
                    } else if known.news.is_news(kind, refusal.count) {
                        let names = DisplayNames::new(desired, inventory);
                        let name = names.at(inventory, id, refusal.port);
                        lines.push((cause, refusal_line(id, name.trim_end(), &refusal, &rule)));
                    }
                }
            }
        }
        for (cause, line) in lines {
            board.record_caused(cause, &line);
        }
        read
    }
}

/// A line about a refused access at a switch; `name` is that of the component at the port, if it has one.
fn refusal_line(id: SwitchId, name: &str, refusal: &RefusalEvent, rule: &str) -> String {
    let RefusalEvent { port, count, pid, .. } = *refusal;
    let pid = Pid::from_low_bits(pid);
    let who = match (name.is_empty(), pid.is_none()) {
        (true, true) => "another switch".to_owned(),
        (false, true) => name.to_owned(),
        (true, false) => format!("PID {pid}"),
        (false, false) => format!("{name} (PID {pid})"),
    };
    let times = if count == 1 { "time" } else { "times" };
    format!("{id}.{port} refused an access of {who}: {rule}, {count} {times}")
}
