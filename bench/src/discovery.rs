//! Time in which a manager brings up a fabric of real switches.
//!
//! [`fabrics`] -> [`measure`]: discovery, PIDs, routes with their proof, sending; then a link is
//! lost. Seconds of wall clock on one core, manager and switches together.
//!
//! Source: discovery, PIDs and proved routes in 10 s, reroute after a loss in 1 s.

use std::sync::{Arc, Mutex};

use weft_fm::cci::send::send;
use weft_fm::cci::wires::read_all;
use weft_fm::components::bind::Bindings;
use weft_fm::discover::change::Running;
use weft_fm::discover::{self, Finding, discover};
use weft_fm::model::graph::{Graph, GraphError, generate};
use weft_fm::plan::{self, make, number};
use weft_parsers::fabric::Pid;
use weft_tests::crowd::{World, fabric, manager};

use crate::routes::timed;

/// Seconds and counts of one fabric.
#[derive(Clone, Copy, Debug)]
pub struct Cost {
    /// Finding all switches and links.
    pub discover_s: f64,
    /// Numbering: a PID for each switch and edge.
    pub number_s: f64,
    /// Computing routes, and proving them.
    pub make_s: f64,
    /// Writing both into the switches, and reading them back.
    pub send_s: f64,
    /// From the news that a link is lost to new tables in all switches, read back.
    pub loss_s: f64,
    /// PIDs that were given, of switches and of edges.
    pub pids: usize,
    /// Entries that were sent after the loss.
    pub resent: usize,
}

/// Fabrics to measure, without PIDs for their switches: those get theirs when they are found.
///
/// # Errors
/// Never: the sizes are ones that a graph takes.
pub fn fabrics() -> Result<[(&'static str, Graph); 2], GraphError> {
    let tree = generate::fat_tree(16)?;
    // One PID each for the switches and for the manager, the rest for hosts.
    let irregular = generate::irregular_edges(1, 256, 768, Pid::COUNT - 1 - 256 - 1)?;
    Ok([
        ("fat tree, k 16: 320 switches, 1,024 hosts", tree),
        ("irregular: 256 switches, 1,023 links, 4,095 PIDs", irregular),
    ])
}

/// Brings a fabric up, then cuts the middle one of its links.
///
/// # Errors
/// A step failed, or discovery reported a finding.
pub fn measure(graph: &Graph) -> Result<Cost, String> {
    let world = Arc::new(Mutex::new(World::of(graph)));
    let mut way = fabric(&world);
    let (discover_s, found) = timed(|| discover(&mut way, &discover::Options::new(manager())));
    let found = found.map_err(|error| error.to_string())?;
    // Links of a switch to itself are reported as forbidden, and left out.
    let odd = |finding: &Finding| !matches!(finding, Finding::Forbidden { .. });
    if found.findings.iter().any(odd) {
        return Err(format!("{:?}", found.findings));
    }
    let options = plan::Options::default();
    let (number_s, numbered) = timed(|| number(&found.inventory, &options));
    let (inventory, assignments) = numbered.map_err(|error| error.to_string())?;
    let (make_s, made) = timed(|| make(&inventory, &options, None));
    let made = made.map_err(|error| error.to_string())?;
    let pids = inventory.pids().count();
    // sending writes only entries that differ from those read here
    let (mut standing, silent) = read_all(&mut way, &inventory);
    if let Some((at, error)) = silent.first() {
        return Err(format!("{at}: {error}"));
    }
    let (send_s, sent) =
        timed(|| send(&mut way, &inventory, &assignments, &made, &mut standing, || {}));
    sent.map_err(|error| error.to_string())?;
    let bindings = Bindings::default();
    let pid_mismatches = std::collections::BTreeSet::new();
    let drain = || {};
    let mut running =
        Running { inventory, plan: made, standing, bindings, options, drain, pid_mismatches };
    let mut rest = graph.links().skip(graph.links().count() / 2).map(|(_, link)| link);
    // a link of a switch to itself carries no route, so that its loss would change nothing
    let middle = rest.find(|link| link.ends[0].switch != link.ends[1].switch).ok_or("no link")?;
    world
        .lock()
        .map_err(|error| error.to_string())?
        .cut(middle.ends.map(|end| (usize::from(end.switch.0), end.port)));
    let (loss_s, reports) = timed(|| running.watch(&mut way));
    let reports = reports.map_err(|error| error.to_string())?;
    let [report] = reports.as_slice() else { return Err(format!("{reports:?}")) };
    Ok(Cost { discover_s, number_s, make_s, send_s, loss_s, pids, resent: report.sent.entries })
}
