//! What a path through the fabric adds to latency, and what bandwidth it has.
//!
//! Tables, [`Figures`] -> [`PathCost`] of the way of static messages, as 5706h and 5902h carry it.
//!
//! Units: picoseconds; MB/s.
//! Source: CXL 3.1 section 7.7.12.4; PCIe 6.0 rates by lane, after encoding.

use weft_parsers::cci::pbr::PathCost;
use weft_parsers::fabric::Pid;

use super::change::way;
use super::graph::SwitchId;
use super::inventory::{Inventory, Port};
use super::plan::Plan;

/// Latencies of switches and links, which components do not tell.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Figures {
    /// From a port of a switch to another one.
    pub switch_ps: u64,
    /// From one end of a link to the other.
    pub link_ps: u64,
}

/// Latencies are told in ns.
const LATENCY_BASE: u64 = 1_000;
/// Bandwidths are told in 100 MB/s.
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

/// Bandwidth of a port's lanes, MB/s; 0 where the code of the speed is not known.
pub(crate) const fn rate_mbps(port: &Port) -> u64 {
    port.width as u64 * lane_mbps(port.speed)
}

/// Latency and bandwidth that static messages from a switch to a PID find on their way; none when there is no way.
///
/// The latency is rounded up, the bandwidth, that of the slowest link, down; a way within one switch has no link, and
/// bandwidth 0 says that nothing bounds it.
#[must_use]
pub fn cost(
    inventory: &Inventory,
    plan: &Plan,
    from: SwitchId,
    to: Pid,
    figures: Figures,
) -> Option<PathCost> {
    path_cost(inventory, plan, from, to, figures, |links| links + 1)
}

/// The same of the path of a virtual link, as 5706h tells it: without the switches at its two ends, which hosts read of
/// themselves (DOE).
#[must_use]
pub fn link_cost(
    inventory: &Inventory,
    plan: &Plan,
    from: SwitchId,
    to: Pid,
    figures: Figures,
) -> Option<PathCost> {
    path_cost(inventory, plan, from, to, figures, |links| links.saturating_sub(1))
}

/// Cost of a path of which so many switches count.
fn path_cost(
    inventory: &Inventory,
    plan: &Plan,
    from: SwitchId,
    to: Pid,
    figures: Figures,
    switches: fn(u64) -> u64,
) -> Option<PathCost> {
    let ends = way(&plan.graph, &plan.routed.tables, from, to)?;
    let links = u64::try_from(ends.len() / 2).ok()?;
    let latency_ps = figures
        .switch_ps
        .saturating_mul(switches(links))
        .saturating_add(figures.link_ps.saturating_mul(links));
    let rate = |at: &super::graph::PortRef| {
        let port = inventory.switch(at.switch).and_then(|switch| switch.port(at.port));
        port.map_or(0, rate_mbps)
    };
    let slowest = ends.iter().map(rate).min().unwrap_or(0);
    let short = |value: u64| u16::try_from(value).unwrap_or(u16::MAX);
    Some(PathCost {
        latency_base: LATENCY_BASE,
        latency: short(latency_ps.div_ceil(LATENCY_BASE)),
        bandwidth_base: BANDWIDTH_BASE,
        bandwidth: short(slowest / BANDWIDTH_BASE),
    })
}
