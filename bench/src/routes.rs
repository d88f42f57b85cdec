//! Cost of a fabric manager's routes.
//!
//! [`fabrics`] -> [`measure`]: routes and proof from nothing; the same after a lost link, with the
//! entries to send. Seconds of wall clock on one core.
//!
//! Source: routes and proof of a k = 16 fat tree and of 4,095 PIDs in 10 s, after a loss in 1 s, of
//! 1,024 switches in 6 s.

use std::collections::BTreeSet;

use weft_fm::model::graph::{Graph, GraphError, LinkId, generate};
use weft_fm::plan::proof::{Fault, Proof, Traffic};
use weft_fm::plan::routes::{Known, Options, Transit, route};

/// The most that routes and proof may take, seconds.
pub const WHOLE_S: f64 = 10.0;
/// The most that new routes after a lost link may take, seconds.
pub const LOSS_S: f64 = 1.0;
/// As [`LOSS_S`], of the largest fabric.
const LARGEST_LOSS_S: f64 = 6.0;

/// Seconds and counts of one fabric.
#[derive(Clone, Copy, Debug)]
pub struct Cost {
    /// Computing routes from nothing.
    pub route_s: f64,
    /// Finding the proof, and checking it again.
    pub proof_s: f64,
    /// Routes after a link was lost.
    pub loss_s: f64,
    /// Proof of those, found.
    pub loss_proof_s: f64,
    /// Planning the entries to send, and their order.
    pub transit_s: f64,
    /// Entries that differ after the loss.
    pub sent: usize,
    /// PIDs that have to be withdrawn for a moment.
    pub withdrawn: usize,
    /// Entries short of ports that dynamic messages could take, in all switches.
    pub short: usize,
    /// Most hops of any packet, and hops of static messages: the most, and the mean.
    pub hops: (u32, u32, f64),
}

/// Fabrics to measure: name, graph, the most that new routes after a lost link may take, seconds.
///
/// # Errors
/// Never: the sizes are ones that a graph takes.
pub fn fabrics() -> Result<[(&'static str, Graph, f64); 3], GraphError> {
    Ok([
        (
            "fat tree, k 16: 320 switches, 1,024 hosts",
            generate::own_pids(generate::fat_tree(16)?)?,
            LOSS_S,
        ),
        (
            "irregular: 256 switches, 1,023 links, 4,095 PIDs",
            generate::irregular(1, 256, 768)?,
            LOSS_S,
        ),
        (
            "irregular: 1,024 switches, 4,095 links, 4,095 PIDs",
            generate::irregular(1, 1_024, 3_072)?,
            LARGEST_LOSS_S,
        ),
    ])
}

/// Measures a fabric; the link that is lost is the middle one.
///
/// # Errors
/// The routes are wrong.
#[expect(clippy::float_arithmetic, clippy::cast_precision_loss, reason = "figures for people")]
pub fn measure(mut graph: Graph) -> Result<Cost, Fault> {
    let (traffic, options) = (Traffic::new(3, 4, 2), Options::default());
    let (route_s, routed) = timed(|| route(&graph, &options, None));
    let (proof_s, facts) = timed(|| prove(&graph, &routed.tables, &traffic));
    let counts = facts?.counts;
    let middle = LinkId(u32::try_from(graph.links().count() / 2).unwrap_or(0));
    let known = graph.set_link(middle, false);
    debug_assert!(known.is_ok(), "a graph has its middle link");
    let (loss_s, after) = timed(|| route(&graph, &options, Some(&routed)));
    let (loss_proof_s, proved) = timed(|| Proof::find(&graph, &after.tables, &traffic));
    proved?;
    // every PID's routes count, and one order proves the tables that stand
    let (apart, orders) = (BTreeSet::new(), [&routed.order]);
    let known = Known { options: &options, apart: &apart, orders: &orders };
    let (transit_s, transit) = timed(|| Transit::plan(&graph, &routed.tables, &after, &known));
    let transit = transit?;
    let mean = counts.static_hops as f64 / counts.routes as f64;
    Ok(Cost {
        route_s,
        proof_s,
        loss_s,
        loss_proof_s,
        transit_s,
        sent: routed.tables.diff(&after.tables).len(),
        withdrawn: transit.withdrawn.len(),
        short: routed.short,
        hops: (counts.hops_max, counts.static_hops_max, mean),
    })
}

fn prove(
    graph: &Graph,
    tables: &weft_fm::plan::tables::Tables,
    traffic: &Traffic,
) -> Result<weft_fm::plan::proof::ProofStats, Fault> {
    Proof::find(graph, tables, traffic)?.check(graph, tables)
}

#[expect(clippy::disallowed_methods, reason = "a benchmark reads the clock")]
pub(crate) fn timed<T>(work: impl FnOnce() -> T) -> (f64, T) {
    let start = std::time::Instant::now();
    let done = work();
    (start.elapsed().as_secs_f64(), done)
}
