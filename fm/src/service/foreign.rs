//! Foreign changes: owners, PIDs and tables of switches that another manager changed, found at each look.
//!
//! [`Foreign::check`] compares the values that the switches hold with those that the manager set, and returns lines for
//! events and errors that name switch, table and entry.
//!
//! Source: docs/spec/wire-formats.md §4.4, §4.5 (5703h, 5708h, 570Ah); docs/spec/cxl-fabric.md "The fabric manager".

use std::collections::BTreeMap;
use std::fmt;

use weft_parsers::cci::Uuid;
use weft_parsers::cci::component::PbrIdentity;
use weft_parsers::fabric::{DrtEntry, Pid, RgtEntry};

use crate::cci::switch_state::targets;
use crate::cci::wires::read_switch;
use crate::cci::{CallError, CciSession};
use crate::discover::change::Running;
use crate::discover::identify;
use crate::model::graph::SwitchId;
use crate::model::inventory::{DiscoveredSwitch, Inventory, OWN_PORT, Target};
use crate::model::text::UuidText;
use crate::plan::tables::SwitchTables;

/// Lines shown of one look.
const LINES_MAX: usize = 16;

/// A value that another manager can change.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
enum Place {
    Owner,
    Pid,
    Target(u16, u8),
    Route(Pid),
    Group(u8),
}

/// Present differences from the values that the manager set.
#[derive(Debug, Default)]
pub(super) struct Foreign {
    found: BTreeMap<(SwitchId, Place), String>,
}

impl Foreign {
    /// Reads all switches that answer; returns a line for each new difference.
    pub(super) fn check(
        &mut self,
        fabric: &mut CciSession,
        running: &Running,
        manager: Uuid,
    ) -> Vec<String> {
        let mut found = BTreeMap::new();
        for (id, switch) in running.inventory.by_id() {
            let is_asked = switch.whole && is_linked(&running.inventory, id);
            let asked = is_asked.then(|| of_switch(fabric, running, id, switch, manager));
            match asked {
                Some(Ok(places)) => {
                    found.extend(places.into_iter().map(|(p, text)| ((id, p), text)));
                }
                // A switch that does not answer keeps the differences found last.
                _ => found.extend(
                    self.found
                        .iter()
                        .filter(|((at, _), _)| *at == id)
                        .map(|(p, t)| (*p, t.clone())),
                ),
            }
        }
        let is_new =
            |(place, text): &(&(SwitchId, Place), &String)| self.found.get(place) != Some(*text);
        let new: Vec<String> = found.iter().filter(is_new).map(|(_, text)| text.clone()).collect();
        self.found = found;
        short(new)
    }

    /// Lines for all present differences.
    pub(super) fn errors(&self) -> Vec<String> {
        short(self.found.values().cloned().collect())
    }
}

/// The first lines, and the number of further ones.
fn short(mut lines: Vec<String>) -> Vec<String> {
    if lines.len() > LINES_MAX {
        let more = lines.len() - LINES_MAX;
        lines.truncate(LINES_MAX);
        lines.push(format!("somebody else changed {more} more entries"));
    }
    lines
}

/// Whether a link that is up leads to a switch, or it is the entry switch.
fn is_linked(inventory: &Inventory, id: SwitchId) -> bool {
    let mut links = inventory.links.iter().filter(|link| !inventory.down.contains(*link));
    id == SwitchId(0) || links.any(|link| link.iter().any(|end| end.switch == id))
}

/// Differences of one switch, by place.
fn of_switch(
    fabric: &mut CciSession,
    running: &Running,
    id: SwitchId,
    switch: &DiscoveredSwitch,
    manager: Uuid,
) -> Result<BTreeMap<Place, String>, CallError> {
    let way = switch.way();
    let now = identify(fabric, way)?;
    if now.primary_uuid != manager {
        // Its tables are the other manager's business.
        return Ok([(Place::Owner, other_owner(id, &now))].into());
    }
    let mut differences = Differences { id, found: BTreeMap::new() };
    if now.pid != switch.pid {
        let (want, has) = (switch.pid.to_string(), now.pid.to_string());
        differences.note(Place::Pid, format_args!("the PID"), &want, &has);
    }
    differences.compare_targets(switch, &targets(fabric, way)?);
    let empty = SwitchTables::default();
    // `standing`, not the plan: after a sending that stopped half-way the switch rightly holds older entries.
    let wanted = running.standing.get(id).unwrap_or(&empty);
    let held = read_switch(fabric, way, switch.rgts)?;
    differences.compare_routes(wanted, &held);
    differences.compare_groups(wanted, &held);
    Ok(differences.found)
}

/// Line about the new owner of a switch.
fn other_owner(id: SwitchId, now: &PbrIdentity) -> String {
    if now.primary.is_none() {
        return format!("{id} has no owner any more: it was restarted, or somebody released it");
    }
    let owner = UuidText(now.primary_uuid);
    format!("somebody else took {id} over: it is owned by the fabric manager {owner}")
}

/// Differences found at one switch.
struct Differences {
    id: SwitchId,
    found: BTreeMap<Place, String>,
}

impl Differences {
    fn note(&mut self, place: Place, what: fmt::Arguments<'_>, want: &str, has: &str) {
        let id = self.id;
        let text = format!("somebody else changed {what} of {id}: expected {want}, found {has}");
        self.found.insert(place, text);
    }

    fn compare_targets(&mut self, switch: &DiscoveredSwitch, all: &[Target]) {
        for target in &switch.targets {
            let (number, instance) = (target.id, target.instance);
            let has = all.iter().find(|it| (it.id, it.instance) == (number, instance));
            let pid = has.map_or(Pid::NONE, |it| it.pid);
            if pid != target.pid {
                let what = format_args!("the PID of target {number}, instance {instance}");
                let of = |pid: Pid| if pid.is_none() { "none".to_owned() } else { pid.to_string() };
                self.note(Place::Target(number, instance), what, &of(target.pid), &of(pid));
            }
        }
    }

    fn compare_routes(&mut self, wanted: &SwitchTables, held: &SwitchTables) {
        for to in (0..).map_while(Pid::assignable) {
            let (want, has) = (wanted.drt(to), held.drt(to));
            // The switch's own route is not in the table that it shows.
            if want != has && want != DrtEntry::Port(OWN_PORT) {
                let what = format_args!("DRT entry {to}");
                self.note(Place::Route(to), what, &entry(want), &entry(has));
            }
        }
    }

    fn compare_groups(&mut self, wanted: &SwitchTables, held: &SwitchTables) {
        for index in 0..=u8::MAX {
            // Groups that no route uses stay in both until their place is needed.
            let (want, has) = (wanted.rgt(index), held.rgt(index));
            if want != has {
                let ports = |group: Option<&RgtEntry>| {
                    group.map_or("nothing".to_owned(), |group| format!("ports {:?}", group.ports()))
                };
                let what = format_args!("RGT entry {index}");
                self.note(Place::Group(index), what, &ports(want), &ports(has));
            }
        }
    }
}

fn entry(entry: DrtEntry) -> String {
    match entry {
        DrtEntry::Invalid => "nothing".to_owned(),
        DrtEntry::Port(port) => format!("port {port}"),
        DrtEntry::Group(group) => format!("group {group}"),
    }
}
