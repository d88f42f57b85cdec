//! Reads and writes the tables and PIDs of switches over CCI.
//!
//! [`Change`]s of a switch are sent as runs of consecutive entries, with as few Set DRT and Set RGT as possible.
//!
//! Source: docs/spec/wire-formats.md §4.5 (5703h, 5704h, 5708h to 570Bh).

use std::collections::BTreeMap;

use weft_parsers::cci::pbr::{AssignOp, AssignPids, PidAssignment};
use weft_parsers::cci::tables::{Drt, Rgt, RoutingRange, SetDrt};
use weft_parsers::cci::{List, Opcode, Request};
use weft_parsers::fabric::{DrtEntry, Pid, RgtEntry};

use crate::cci::switch_state::targets;
use crate::cci::{CallError, CciSession, Way};
use crate::model::graph::SwitchId;
use crate::model::inventory::{Inventory, OWN_PORT};
use crate::plan::Assignment;
use crate::plan::tables::{Change, SwitchTables, Tables};

/// DRT entries in one request.
const ROUTES_AT_ONCE: u16 = 2_048;
/// Assignments in one request.
const PIDS_AT_ONCE: usize = 256;

/// Reads DRT 0 and RGT 0 of a switch; a group of all zeros is unused.
///
/// # Errors
/// The switch does not answer.
pub fn read_switch(fabric: &mut CciSession, way: Way, rgts: u8) -> Result<SwitchTables, CallError> {
    let mut tables = SwitchTables::default();
    let mut start = 0;
    while usize::from(start) < Pid::COUNT {
        let range = RoutingRange { table: 0, count: ROUTES_AT_ONCE, start };
        let answer = fabric.call(way, &Request::GetDrt(range))?;
        let part = answer.read::<Drt<'_>>()?;
        for (pid, entry) in (part.start..).zip(part.entries.iter()) {
            tables.set_drt(Pid::from_low_bits(pid), entry);
        }
        start += ROUTES_AT_ONCE;
    }
    if rgts > 0 {
        let range = RoutingRange { table: 0, count: 256, start: 0 };
        let answer = fabric.call(way, &Request::GetRgt(range))?;
        let part = answer.read::<Rgt<'_>>()?;
        for (index, entry) in (0..=u8::MAX).zip(part.entries.iter()) {
            tables.set_rgt(index, Some(entry).filter(|entry| entry.emit() != [0; 12]));
        }
    }
    Ok(tables)
}

/// Reads the tables of all switches that discovery could read. Those that do not answer now get empty ones, and are
/// listed.
pub fn read_all(
    fabric: &mut CciSession,
    inventory: &Inventory,
) -> (Tables, Vec<(SwitchId, CallError)>) {
    let mut all = Tables::new(inventory.switches.len());
    let mut silent = Vec::new();
    for (id, switch) in inventory.by_id().filter(|(_, switch)| switch.whole) {
        match read_switch(fabric, switch.way(), switch.rgts) {
            Ok(tables) => *all.get_mut(id) = tables,
            Err(error) => silent.push((id, error)),
        }
    }
    (all, silent)
}

/// Splits entries into runs of consecutive numbers, of `most` entries at most.
fn runs<T: Copy>(entries: &BTreeMap<u16, T>, most: u16) -> Vec<(u16, Vec<T>)> {
    let mut runs: Vec<(u16, Vec<T>)> = Vec::new();
    for (&number, &entry) in entries {
        match runs.last_mut() {
            Some((start, run))
                if usize::from(*start) + run.len() == usize::from(number)
                    && run.len() < usize::from(most) =>
            {
                run.push(entry);
            }
            _ => runs.push((number, vec![entry])),
        }
    }
    runs
}

/// Sends changes, all of one switch.
///
/// Routes of a switch to itself are skipped, as it knows them without an entry, and so are groups that nothing uses any
/// more.
///
/// # Errors
/// The switch refused or did not answer. It is not known then which changes it made.
pub fn write(fabric: &mut CciSession, way: Way, changes: &[Change]) -> Result<(), CallError> {
    let mut routes: BTreeMap<u16, DrtEntry> = BTreeMap::new();
    let mut groups: BTreeMap<u16, RgtEntry> = BTreeMap::new();
    for change in changes {
        match *change {
            Change::Route { entry: DrtEntry::Port(OWN_PORT), .. } => {}
            Change::Route { to, entry, .. } => drop(routes.insert(to.bits(), entry)),
            Change::Group { index, entry: Some(entry), .. } => {
                groups.insert(u16::from(index), entry);
            }
            Change::Group { entry: None, .. } => {}
        }
    }
    // Groups before routes: a route must not name a group that is not there yet.
    for (start, entries) in runs(&groups, 256) {
        let set = Rgt { table: 0, start, entries: List::of(&entries) };
        fabric.call(way, &Request::SetRgt(set))?;
    }
    for (start, entries) in runs(&routes, ROUTES_AT_ONCE) {
        let set = SetDrt { table: 0, start, entries: List::of(&entries) };
        fabric.call(way, &Request::SetDrt(set))?;
    }
    Ok(())
}

/// Assigns PIDs to targets of one switch, and reads them back.
///
/// # Errors
/// The switch refused, did not answer, or reports other PIDs afterwards.
pub fn assign(fabric: &mut CciSession, way: Way, list: &[Assignment]) -> Result<(), CallError> {
    let of = |a: &Assignment, pid| PidAssignment { pid, target: a.target, instance: a.instance };
    let clear: Vec<_> = list.iter().filter_map(|a| Some(of(a, a.instead_of?))).collect();
    let give: Vec<_> = list.iter().map(|a| of(a, a.pid)).collect();
    // All are cleared before any is given: a switch refuses a PID that another target has (5704h).
    for (op, all) in [(AssignOp::Clear, &clear), (AssignOp::Assign, &give)] {
        for part in all.chunks(PIDS_AT_ONCE) {
            let request = Request::AssignPids(AssignPids { op, assignments: List::of(part) });
            match fabric.call(way, &request) {
                Err(error) if error.is_refusal() => return Err(error),
                // An answer that was lost: what the switch tells below decides.
                Ok(_) | Err(_) => {}
            }
        }
    }
    let now = targets(fabric, way)?;
    for wanted in list {
        let has = |t: &&crate::model::inventory::Target| {
            (t.id, t.instance) == (wanted.target, wanted.instance)
        };
        if now.iter().find(has).is_none_or(|target| target.pid != wanted.pid) {
            let what = "a target does not have the PID that was assigned to it";
            return Err(CallError::Unexpected { way, opcode: Opcode::ASSIGN_PIDS, what });
        }
    }
    Ok(())
}
