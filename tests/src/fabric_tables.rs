//! Every table of a fabric in this process, entry by entry, so that two moments can be compared.
//!
//! [`tables`] gives a row for each valid entry: switch and table, index, content.
//!
//! Source: docs/spec/cxl-fabric.md "Tables of an edge and who may write them", "Inside: DRT", "GFD (endpoint)".

use std::collections::{BTreeMap, BTreeSet};

use weft_cxl::cci::Component;
use weft_dataplane::pbr::segments::Segments;
use weft_lab::endpoint::Answer;
use weft_lab::endpoint::command::Command;
use weft_lab::fabric::layout::Part;
use weft_lab::fabric::managed::ManagedFabric;
use weft_parsers::fabric::{DrtEntry, Pid};
use weft_pbr_switch::Switch;

/// Rows by switch, table and index.
pub type Rows = BTreeMap<String, String>;

/// All tables: of switches DRT, RGT, PIDs, bindings, GMV, VTV, LAV, costs, prefixes, FAST and LDST
/// with their interleave tables, owners; of GFDs decoders, rights and extents; the manager's state.
///
/// # Panics
/// A part does not answer.
#[must_use]
pub fn tables(fabric: &mut ManagedFabric) -> Rows {
    let mut rows = Rows::new();
    {
        let parts = fabric.parts();
        for (at, switch) in parts.layout().switches.iter().enumerate() {
            let agent = parts.agent(at).expect("as many as switches");
            of_switch(&switch.name, agent.switch(), &mut rows);
        }
    }
    let gfds = fabric.parts().layout().gfds.len();
    for at in 0..gfds {
        let asked = fabric.ask(Part::Gfd(at), &Command::Status {});
        let Ok(Answer::Status(status)) = asked else { panic!("GFD {at}: {asked:?}") };
        rows.insert(format!("gfd {at}"), status.detail.to_string());
    }
    let state = fabric.fm().state().expect("it is up");
    rows.insert("manager memory".to_owned(), format!("{:?}", state.grants.memory));
    rows.insert("manager bindings".to_owned(), format!("{:?}", state.bindings));
    rows.insert("manager GIM".to_owned(), format!("{:?}", (state.grants.gim, state.grants.access)));
    let links = (&state.inventory.links, &state.inventory.down);
    rows.insert("manager links".to_owned(), format!("{links:?}"));
    rows
}

fn of_switch(name: &str, switch: &Switch, rows: &mut Rows) {
    let mut row = |what: String, is: String| drop(rows.insert(format!("{name} {what}"), is));
    let ownership = &switch.common().ownership;
    row("owners".to_owned(), format!("{:?} {}", ownership.owners(), ownership.pid()));
    let routes = switch.tables().routes();
    let mut groups = BTreeSet::new();
    // every assignable PID: a route that is left over shows up, too
    for to in (0..0xFFF).map(Pid::from_low_bits) {
        let entry = routes.drt(to);
        if let DrtEntry::Group(group) = entry {
            groups.insert(group);
        }
        if entry != DrtEntry::Invalid {
            row(format!("DRT {to}"), format!("{entry:?}"));
        }
    }
    // only groups that a route uses have a meaning
    for group in groups {
        row(format!("RGT {group}"), format!("{:?}", routes.rgt(group.into())));
    }
    for port in &switch.config().ports {
        let pids = switch.port(port.port).map(|port| port.pids.clone());
        row(format!("PIDs of port {}", port.port.get()), format!("{pids:?}"));
    }
    for vcs in (0..=u8::MAX).take(switch.config().vcses.len()) {
        let state = switch.vcs(vcs).expect("as many as configured");
        let vectors = [&state.access.gmv, &state.access.vtv, &state.access.lav];
        for (what, vector) in ["GMV", "VTV", "LAV"].iter().zip(vectors) {
            row(format!("{what} {vcs}"), format!("{:?}", vector.iter().collect::<Vec<_>>()));
        }
        row(format!("prefixes {vcs}"), format!("{:?}", state.prefixes));
        row(format!("costs {vcs}"), format!("{:?}", state.costs));
        for (at, vppb) in state.vppbs.iter().enumerate() {
            row(format!("vPPB {vcs}/{at}"), format!("{:?} {:?}", vppb.bound, vppb.prefixes));
            row(format!("FAST {vcs}/{at}"), segments(vppb.tables.fast().segments()));
            row(format!("LDST {vcs}/{at}"), segments(vppb.tables.ldst().segments()));
        }
    }
}

fn segments(table: &Segments) -> String {
    let entries = (0..table.len()).filter_map(|at| Some((at, table.get(at)?)));
    let idt = (0..table.idt_len()).filter_map(|at| table.idt(at)).filter(|pid| !pid.is_none());
    format!("{:?} {:?} {:?}", table.config(), entries.collect::<Vec<_>>(), idt.collect::<Vec<_>>())
}

/// Rows that differ, with their content before and after.
#[must_use]
pub fn differences(before: &Rows, after: &Rows) -> Vec<String> {
    let keys: BTreeSet<&String> = before.keys().chain(after.keys()).collect();
    let differs = |key: &&&String| before.get(**key) != after.get(**key);
    let shown = |key: &String| format!("{key}: {:?} became {:?}", before.get(key), after.get(key));
    keys.iter().filter(differs).map(|key| shown(key)).collect()
}
