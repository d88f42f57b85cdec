//! Generated fabrics for tests and benches: lines, rings, grids, trees and random ones.
//!
//! Each takes a few numbers, and a seed where chance decides. PIDs are 0, 1, ... in order of switches, at edge ports.
//!
//! Source: docs/spec/cxl-fabric.md "Routes"; the fat tree after Al-Fares et al., SIGCOMM 2008: k pods, k^3 / 4 hosts.

use weft_base::rng::Rng;
use weft_parsers::fabric::Pid;

use super::{Graph, GraphError, Key, LinkId, PortRef, SwitchId};

/// `count` switches without links.
///
/// # Errors
/// More than a graph takes.
pub fn switches(count: usize) -> Result<Graph, GraphError> {
    let mut graph = Graph::default();
    for _ in 0..count {
        graph.add_switch()?;
    }
    Ok(graph)
}

/// Links two switches by their lowest free ports.
///
/// # Errors
/// A switch is unknown or full.
pub fn join(graph: &mut Graph, a: SwitchId, b: SwitchId) -> Result<LinkId, GraphError> {
    let from = graph.free_port(a)?;
    let mut to = graph.free_port(b)?;
    if from == to {
        // A loop at one switch needs two ports.
        let free = |port: &u8| graph.port(PortRef::new(b, *port)) == Ok(super::PortUse::Free);
        let port = (to.port..=u8::MAX).skip(1).find(free).ok_or(GraphError::NoPort(b))?;
        to = PortRef::new(b, port);
    }
    graph.link(from, to)
}

/// The lowest PID that is not assigned.
fn free_pid(graph: &Graph) -> Result<Pid, GraphError> {
    let next = graph.endpoints().last().map_or(0, |last| last.pid.bits() + 1);
    Pid::assignable(next).ok_or(GraphError::Reserved)
}

/// Puts a host to the lowest free port of `at`, under the PID behind the last.
///
/// # Errors
/// No port or no PID is left.
pub fn host(graph: &mut Graph, at: SwitchId) -> Result<Pid, GraphError> {
    let pid = free_pid(graph)?;
    graph.attach(pid, graph.free_port(at)?)?;
    Ok(pid)
}

/// Gives every switch a PID of its own, at its lowest free port number.
///
/// # Errors
/// No port or no PID is left.
pub fn own_pids(mut graph: Graph) -> Result<Graph, GraphError> {
    for switch in graph.switches() {
        let pid = free_pid(&graph)?;
        graph.attach_own(pid, graph.free_port(switch)?)?;
    }
    Ok(graph)
}

/// Gives every switch `hosts` hosts.
fn hosts(mut graph: Graph, hosts: usize) -> Result<Graph, GraphError> {
    for switch in graph.switches() {
        for _ in 0..hosts {
            host(&mut graph, switch)?;
        }
    }
    Ok(graph)
}

/// `count` switches, each linked to the next.
///
/// # Errors
/// More than a graph takes.
pub fn line(count: usize, hosts_each: usize) -> Result<Graph, GraphError> {
    let mut graph = switches(count)?;
    for at in 1..count {
        join(&mut graph, SwitchId::at(at - 1), SwitchId::at(at))?;
    }
    hosts(graph, hosts_each)
}

/// A line whose ends are linked; two switches have two links.
///
/// # Errors
/// More than a graph takes.
pub fn ring(count: usize, hosts_each: usize) -> Result<Graph, GraphError> {
    let mut graph = switches(count)?;
    for at in 0..count {
        join(&mut graph, SwitchId::at(at), SwitchId::at((at + 1) % count))?;
    }
    hosts(graph, hosts_each)
}

/// Every switch linked to every other.
///
/// # Errors
/// More than a graph takes.
pub fn mesh(count: usize, hosts_each: usize) -> Result<Graph, GraphError> {
    let mut graph = switches(count)?;
    for b in 0..count {
        for a in 0..b {
            join(&mut graph, SwitchId::at(a), SwitchId::at(b))?;
        }
    }
    hosts(graph, hosts_each)
}

/// A torus of these sizes, of any number of dimensions; a size of 2 gives one link, not two.
///
/// # Errors
/// More than a graph takes.
pub fn torus(sizes: &[usize], hosts_each: usize) -> Result<Graph, GraphError> {
    grid(sizes, true, hosts_each)
}

/// A grid of these sizes; with `wrap` a torus.
///
/// # Errors
/// More than a graph takes.
pub fn grid(sizes: &[usize], wrap: bool, hosts_each: usize) -> Result<Graph, GraphError> {
    let count = sizes.iter().product();
    let mut graph = switches(count)?;
    let mut stride = 1;
    for &size in sizes {
        for at in 0..count {
            let place = at / stride % size;
            if place + 1 < size {
                join(&mut graph, SwitchId::at(at), SwitchId::at(at + stride))?;
            } else if wrap && size > 2 {
                // With a size of 2 this would be a second link between the same two switches.
                join(&mut graph, SwitchId::at(at), SwitchId::at(at - place * stride))?;
            }
        }
        stride *= size;
    }
    hosts(graph, hosts_each)
}

/// A fat tree of `k` pods: k^2 / 4 cores first, then by pod k / 2 aggregation and k / 2 edge switches; k^3 / 4 hosts.
///
/// # Errors
/// More than a graph takes.
pub fn fat_tree(k: usize) -> Result<Graph, GraphError> {
    let half = k / 2;
    let cores = half * half;
    let mut graph = switches(cores + k * k)?;
    let mut edges = Vec::new();
    for pod in 0..k {
        let first = cores + pod * k;
        for a in 0..half {
            for c in 0..half {
                join(&mut graph, SwitchId::at(a * half + c), SwitchId::at(first + a))?;
            }
            for e in 0..half {
                join(&mut graph, SwitchId::at(first + a), SwitchId::at(first + half + e))?;
            }
        }
        edges.extend((0..half).map(|e| SwitchId::at(first + half + e)));
    }
    for edge in edges {
        for _ in 0..half {
            host(&mut graph, edge)?;
        }
    }
    Ok(graph)
}

/// Leaves, each linked to every spine; the spines have the lowest numbers and no hosts.
///
/// # Errors
/// More than a graph takes.
pub fn leaf_spine(leaves: usize, spines: usize, hosts_each: usize) -> Result<Graph, GraphError> {
    let mut graph = switches(spines + leaves)?;
    for leaf in 0..leaves {
        for spine in 0..spines {
            join(&mut graph, SwitchId::at(spine), SwitchId::at(spines + leaf))?;
        }
        for _ in 0..hosts_each {
            host(&mut graph, SwitchId::at(spines + leaf))?;
        }
    }
    Ok(graph)
}

/// A random tree with `extra` more random links, parallel links and loops at one switch among them.
///
/// # Errors
/// More than a graph takes.
pub fn random(
    rng: &mut Rng,
    count: usize,
    extra: usize,
    hosts_each: usize,
) -> Result<Graph, GraphError> {
    let mut graph = switches(count)?;
    for at in 1..count {
        join(&mut graph, draw(rng, at), SwitchId::at(at))?;
    }
    for _ in 0..extra {
        let (a, b) = (draw(rng, count), draw(rng, count));
        join(&mut graph, a, b)?;
    }
    hosts(graph, hosts_each)
}

/// An irregular fabric with all 4,095 PIDs: each switch has one of its own, the rest are hosts at random switches.
///
/// # Errors
/// More than a graph takes: too few switches for so many hosts, or too many links.
pub fn irregular(seed: u64, count: usize, extra: usize) -> Result<Graph, GraphError> {
    let mut rng = Rng::new(seed);
    let graph = own_pids(random(&mut rng, count, extra, 0)?)?;
    scatter(rng, graph, Pid::COUNT - 1)
}

/// An irregular fabric with `hosts` hosts at random switches, which have no PIDs of their own.
///
/// # Errors
/// More than a graph takes: too few switches for so many hosts, or too many links.
pub fn irregular_edges(
    seed: u64,
    count: usize,
    extra: usize,
    hosts: usize,
) -> Result<Graph, GraphError> {
    let mut rng = Rng::new(seed);
    let graph = random(&mut rng, count, extra, 0)?;
    scatter(rng, graph, hosts)
}

/// Puts hosts at random switches until there are `ends` PIDs.
fn scatter(mut rng: Rng, mut graph: Graph, ends: usize) -> Result<Graph, GraphError> {
    let count = graph.switch_count();
    while graph.endpoint_count() < ends {
        let first = draw(&mut rng, count).index();
        let mut wanted = (first..first + count).map(|at| SwitchId::at(at % count));
        let Some(at) = wanted.find(|&at| graph.free_port(at).is_ok()) else {
            return Err(GraphError::NoPort(SwitchId::at(first)));
        };
        host(&mut graph, at)?;
    }
    Ok(graph)
}

fn draw(rng: &mut Rng, count: usize) -> SwitchId {
    let bound = u64::try_from(count).expect("a count fits");
    SwitchId::at(usize::try_from(rng.below(bound)).expect("below a count"))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn fabrics_have_the_sizes_that_their_names_say() {
        #[rustfmt::skip] // columns: name, graph, switches, links, PIDs
        let cases = [
            ("ring of 5",    ring(5, 2),                        5,    5,     10),
            ("ring of 1",    ring(1, 2),                        1,    1,      2),
            ("line of 5",    line(5, 1),                        5,    4,      5),
            ("mesh of 4",    mesh(4, 1),                        4,    6,      4),
            ("torus 4x4",    torus(&[4, 4], 1),                16,   32,     16),
            ("torus 2x3x4",  torus(&[2, 3, 4], 0),             24,   60,      0),
            ("grid 3x3",     grid(&[3, 3], false, 1),           9,   12,      9),
            ("fat tree 4",   fat_tree(4),                      20,   32,     16),
            ("fat tree 16",  fat_tree(16),                    320, 2048,   1024),
            ("leaf-spine",   leaf_spine(8, 4, 3),              12,   32,     24),
            ("random",       random(&mut Rng::new(1), 50, 70, 2), 50, 119,  100),
            ("irregular",    irregular(1, 256, 1000),         256, 1255,   4095),
        ];
        for (name, graph, switches, links, pids) in cases {
            let graph = graph.unwrap_or_else(|error| panic!("{name}: {error}"));
            let got = (graph.switch_count(), graph.links().count(), graph.endpoint_count());
            assert_eq!(got, (switches, links, pids), "{name}");
        }
    }
}
