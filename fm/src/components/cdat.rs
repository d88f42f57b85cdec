//! Latency and bandwidth of paths through the fabric.
//!
//! [`cost`] and [`link_cost`] follow the tables of static messages and return a [`PathCost`] as 5902h and 5706h carry
//! it. Latencies are picoseconds, bandwidths MB/s.
//!
//! Source: CXL 3.1 section 7.7.12.4; PCIe 6.0 rates by lane, after encoding.

use weft_parsers::cci::pbr::PathCost;
use weft_parsers::fabric::Pid;

use crate::model::graph::SwitchId;
use crate::model::inventory::{Inventory, Port};
use crate::plan::Plan;
use crate::plan::way;

/// Latencies of a switch and of a link. Components do not tell them; the wanted state has them.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Figures {
    /// From one port of a switch to another.
    pub switch_ps: u64,
    /// From one end of a link to the other.
    pub link_ps: u64,
}

/// Unit of the latencies told, ps: a nanosecond.
const LATENCY_BASE: u64 = 1_000;
/// Unit of the bandwidths told, MB/s.
const BANDWIDTH_BASE: u64 = 100;

/// Bandwidth of a lane by the code of its speed (5101h), MB/s: 2.5, 5, 8, 16, 32, 64 GT/s.
const fn lane_mbps(speed: u8) -> u64 {
    match speed {
        1 => 250,
        2 => 500,
        3 => 985,
        4 => 1_969,
        5 => 3_938,
        6 => 7_563,
        _ => 0,
    }
}

/// Bandwidth of a port's lanes, MB/s; 0 where the speed code is unknown.
pub(crate) const fn rate_mbps(port: &Port) -> u64 {
    port.width as u64 * lane_mbps(port.speed)
}

/// Latency and bandwidth of the path of static messages from a switch to a PID; `None` when there is no path.
///
/// The latency is rounded up. The bandwidth is that of the slowest link, rounded down; on a path within one switch it
/// is 0, "no link bounds it".
#[must_use]
pub fn cost(
    inventory: &Inventory,
    plan: &Plan,
    from: SwitchId,
    to: Pid,
    figures: Figures,
) -> Option<PathCost> {
    // A path of n links crosses n + 1 switches.
    path_cost(inventory, plan, from, to, figures, |links| links + 1)
}

/// Like [`cost`] for a virtual link (5706h), without the two switches at its ends: hosts read those by DOE, and would
/// count them twice.
#[must_use]
pub fn link_cost(
    inventory: &Inventory,
    plan: &Plan,
    from: SwitchId,
    to: Pid,
    figures: Figures,
) -> Option<PathCost> {
    // Of the n + 1 switches the two edges are left out.
    path_cost(inventory, plan, from, to, figures, |links| links.saturating_sub(1))
}

/// Cost of a path; `switches` says how many switches count for a number of links.
fn path_cost(
    inventory: &Inventory,
    plan: &Plan,
    from: SwitchId,
    to: Pid,
    figures: Figures,
    switches: fn(u64) -> u64,
) -> Option<PathCost> {
    let ends = way(&plan.graph, &plan.routed.tables, from, to)?;
    // `way` lists both ends of each link.
    let links = u64::try_from(ends.len() / 2).ok()?;
    let latency_ps = figures
        .switch_ps
        .saturating_mul(switches(links))
        .saturating_add(figures.link_ps.saturating_mul(links));
    let rate = |at: &crate::model::graph::PortRef| {
        let port = inventory.switch(at.switch).and_then(|switch| switch.port(at.port));
        port.map_or(0, rate_mbps)
    };
    // Both ends count: a port that trained to fewer lanes slows the link in both directions.
    let slowest = ends.iter().map(rate).min().unwrap_or(0);
    // The wire has 16 bits: a larger value is told as the largest.
    let short = |value: u64| u16::try_from(value).unwrap_or(u16::MAX);
    Some(PathCost {
        latency_base: LATENCY_BASE,
        latency: short(latency_ps.div_ceil(LATENCY_BASE)),
        bandwidth_base: BANDWIDTH_BASE,
        bandwidth: short(slowest / BANDWIDTH_BASE),
    })
}
