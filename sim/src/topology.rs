//! Topologies: hosts and switches, and the links between them.
//!
//! A [`Topology`] is made by a generator, or node by node and link by link; the ports of a node are numbered in the
//! order of its links. [`Topology::routes`] has the ports of all shortest paths, by switch and host.
//!
//! Source: docs/spec/model.md §3; the fat tree after Al-Fares et al., SIGCOMM 2008: k pods, k^3 / 4 hosts.

#![expect(
    clippy::indexing_slicing,
    reason = "numbers of nodes and links are this topology's own; another one is a panic"
)]

use std::collections::VecDeque;

use weft_dataplane::time::{LinkRate, Span};
use weft_dataplane::types::{PortId, PortSet};

/// Most ports of a switch, and so most links.
pub const PORTS_MAX: usize = 64;
/// Most nodes of a topology.
pub const NODES_MAX: usize = 1 << 20;

/// Number of a node; hosts and switches are numbered together.
pub type NodeId = usize;

/// Kind of a node.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum NodeKind {
    /// A host at the edge, with one port.
    Host,
    /// A switch, with up to [`PORTS_MAX`] ports.
    Switch,
}

/// A host or a switch.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Node {
    /// Name of the node, unique in its topology.
    pub name: String,
    /// Whether it is a host or a switch.
    pub kind: NodeKind,
    /// By port, the number of the link that ends there.
    pub ports: Vec<usize>,
}

/// Rate and length of a link.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct LinkSpec {
    /// Rate, the same each way.
    pub rate: LinkRate,
    /// Time that a bit takes along the cable: 5 ns a metre.
    pub propagation: Span,
}

impl LinkSpec {
    /// Stands for the link of a port that has none.
    pub const UNUSED: Self = Self { rate: LinkRate::gbps(1), propagation: Span::ZERO };
}

/// A link between two nodes.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Link {
    /// Node and port at each end.
    pub ends: [(NodeId, PortId); 2],
    /// Rate and length; `None`: those that all other links have.
    pub spec: Option<LinkSpec>,
}

impl Link {
    /// The end that is not at `node`.
    #[must_use]
    pub fn far(&self, node: NodeId) -> (NodeId, PortId) {
        let [a, b] = self.ends;
        if a.0 == node { b } else { a }
    }
}

/// Why a topology cannot be.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum TopologyError {
    /// A node with this name exists already.
    #[error("node {0:?} is there already")]
    Name(String),
    /// A node has no port left for a link.
    #[error("node {name:?} has {most} links already: expected no more")]
    Ports {
        /// Name of the node.
        name: String,
        /// Most links that it takes.
        most: usize,
    },
    /// A link from a node to itself.
    #[error("node {0:?} is linked to itself")]
    Loop(String),
    /// A number out of range.
    #[error("{what} {had}: expected {least} to {most}")]
    Count {
        /// The quantity that is out of range.
        what: &'static str,
        /// Value that was asked for.
        had: usize,
        /// Least value that is allowed.
        least: usize,
        /// Largest value that is allowed.
        most: usize,
    },
    /// No path connects two hosts.
    #[error("no path from host {from:?} to host {to:?}")]
    Path {
        /// Name of the one host.
        from: String,
        /// Name of the other host.
        to: String,
    },
}

/// Hosts, switches and the links between them.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Topology {
    nodes: Vec<Node>,
    links: Vec<Link>,
    names: std::collections::BTreeMap<String, NodeId>,
}

/// By switch, then by host (in the order of [`Topology::hosts`]): ports of all shortest paths to that host.
pub type Routes = Vec<Vec<PortSet>>;

impl Topology {
    /// Adds a node; returns its number.
    ///
    /// # Errors
    /// A name that exists already, or too many nodes.
    pub fn add(&mut self, name: &str, kind: NodeKind) -> Result<NodeId, TopologyError> {
        let id = self.nodes.len();
        if id >= NODES_MAX {
            return Err(TopologyError::Count {
                what: "nodes",
                had: id + 1,
                least: 1,
                most: NODES_MAX,
            });
        }
        if self.names.contains_key(name) {
            return Err(TopologyError::Name(name.to_owned()));
        }
        self.names.insert(name.to_owned(), id);
        self.nodes.push(Node { name: name.to_owned(), kind, ports: Vec::new() });
        Ok(id)
    }

    /// Links the next free ports of two nodes; returns the number of the link.
    ///
    /// # Errors
    /// A node without a free port, or the same node twice.
    ///
    /// # Panics
    /// If a node does not exist.
    pub fn link(&mut self, a: NodeId, b: NodeId) -> Result<usize, TopologyError> {
        if a == b {
            return Err(TopologyError::Loop(self.nodes[a].name.clone()));
        }
        let ends = [(a, self.free_port(a)?), (b, self.free_port(b)?)];
        let id = self.links.len();
        self.links.push(Link { ends, spec: None });
        for (node, _) in ends {
            self.nodes[node].ports.push(id);
        }
        Ok(id)
    }

    /// Sets rate and length of link `id`.
    ///
    /// # Panics
    /// If the link does not exist.
    pub fn specify(&mut self, id: usize, spec: LinkSpec) {
        self.links[id].spec = Some(spec);
    }

    /// Sets rate and length of all links that have none yet.
    pub fn specify_others(&mut self, spec: LinkSpec) {
        for link in &mut self.links {
            link.spec.get_or_insert(spec);
        }
    }

    fn free_port(&self, node: NodeId) -> Result<PortId, TopologyError> {
        let Node { name, kind, ports } = &self.nodes[node];
        let most = if *kind == NodeKind::Host { 1 } else { PORTS_MAX };
        let port = PortId::new(ports.len()).filter(|_| ports.len() < most);
        port.ok_or_else(|| TopologyError::Ports { name: name.clone(), most })
    }

    /// All nodes, by number.
    #[must_use]
    pub fn nodes(&self) -> &[Node] {
        &self.nodes
    }

    /// All links, by number.
    #[must_use]
    pub fn links(&self) -> &[Link] {
        &self.links
    }

    /// The node with this name.
    #[must_use]
    pub fn find(&self, name: &str) -> Option<NodeId> {
        self.names.get(name).copied()
    }

    /// Hosts, in the order of their numbers.
    pub fn hosts(&self) -> impl Iterator<Item = NodeId> + '_ {
        self.of_kind(NodeKind::Host)
    }

    /// Switches, in the order of their numbers.
    pub fn switches(&self) -> impl Iterator<Item = NodeId> + '_ {
        self.of_kind(NodeKind::Switch)
    }

    fn of_kind(&self, kind: NodeKind) -> impl Iterator<Item = NodeId> + '_ {
        let nodes = self.nodes.iter().enumerate();
        nodes.filter(move |(_, node)| node.kind == kind).map(|(id, _)| id)
    }

    /// Ports of all shortest paths from each switch to each host.
    ///
    /// # Errors
    /// Two hosts that no path connects.
    pub fn routes(&self) -> Result<Routes, TopologyError> {
        let hosts: Vec<NodeId> = self.hosts().collect();
        let mut routes: Vec<Vec<PortSet>> = vec![Vec::new(); self.nodes.len()];
        let mut hops = vec![usize::MAX; self.nodes.len()];
        for &to in &hosts {
            self.hops_to(to, &mut hops);
            if let Some(&from) = hosts.iter().find(|&&from| hops[from] == usize::MAX) {
                let name = |node: NodeId| self.nodes[node].name.clone();
                return Err(TopologyError::Path { from: name(from), to: name(to) });
            }
            for switch in self.switches() {
                let mut ports = PortSet::EMPTY;
                for (&link, port) in
                    self.nodes[switch].ports.iter().zip((0..).map_while(PortId::new))
                {
                    let (far, _) = self.links[link].far(switch);
                    // A host forwards nothing, so a path may end at one but not lead through it.
                    if hops[far] < hops[switch]
                        && (far == to || self.nodes[far].kind == NodeKind::Switch)
                    {
                        ports.insert(port);
                    }
                }
                routes[switch].push(ports);
            }
        }
        Ok(self.switches().map(|switch| core::mem::take(&mut routes[switch])).collect())
    }

    /// Number of hops from every node to host `to`; no path leads through another host.
    fn hops_to(&self, to: NodeId, hops: &mut [usize]) {
        hops.fill(usize::MAX);
        hops[to] = 0;
        let mut next = VecDeque::from([to]);
        // Breadth first: the first path found to a node is a shortest one.
        while let Some(node) = next.pop_front() {
            if node != to && self.nodes[node].kind == NodeKind::Host {
                continue;
            }
            for &link in &self.nodes[node].ports {
                let (far, _) = self.links[link].far(node);
                if hops[far] == usize::MAX {
                    hops[far] = hops[node] + 1;
                    next.push_back(far);
                }
            }
        }
    }

    /// A network of `hosts` hosts at one switch.
    ///
    /// # Errors
    /// Fewer than two hosts, or more than a switch has ports.
    pub fn single(hosts: usize) -> Result<Self, TopologyError> {
        count("hosts", hosts, 2, PORTS_MAX)?;
        let mut net = Self::default();
        let switch = net.add("sw", NodeKind::Switch)?;
        net.add_hosts(&[switch], hosts)?;
        Ok(net)
    }

    /// A network of `hosts` hosts, spread evenly over `leaves` switches, each of which is linked to all `spines`
    /// others.
    ///
    /// # Errors
    /// More links than a switch has ports; no leaf, no spine or fewer than two hosts.
    pub fn leaf_spine(hosts: usize, leaves: usize, spines: usize) -> Result<Self, TopologyError> {
        count("leaves", leaves, 1, PORTS_MAX)?;
        count("spines", spines, 1, PORTS_MAX - 1)?;
        count("hosts", hosts, 2, leaves * (PORTS_MAX - spines))?;
        let mut net = Self::default();
        let of_leaf = net.add_switches("leaf", leaves)?;
        net.add_hosts(&of_leaf, hosts)?;
        let of_spine = net.add_switches("spine", spines)?;
        for &leaf in &of_leaf {
            for &spine in &of_spine {
                net.link(leaf, spine)?;
            }
        }
        Ok(net)
    }

    /// The smallest fat tree of three stages for `hosts` hosts: k pods of k / 2 edge and k / 2 aggregation switches,
    /// and k^2 / 4 core switches, of k ports each, with an even k. Edge switches are filled one after the other.
    ///
    /// # Errors
    /// Fewer than two hosts, or more than the tree of 64 ports holds (65,536).
    pub fn fat_tree(hosts: usize) -> Result<Self, TopologyError> {
        count("hosts", hosts, 2, PORTS_MAX.pow(3) / 4)?;
        let k = (2..=PORTS_MAX).step_by(2).find(|k| k.pow(3) / 4 >= hosts).unwrap_or(PORTS_MAX);
        let half = k / 2;
        let mut net = Self::default();
        let edges = net.add_switches("edge", k * half)?;
        for host in 0..hosts {
            let id = net.add(&format!("h{host}"), NodeKind::Host)?;
            net.link(edges[host / half], id)?;
        }
        let aggregations = net.add_switches("agg", k * half)?;
        let cores = net.add_switches("core", half * half)?;
        for pod in 0..k {
            for edge in 0..half {
                for aggregation in 0..half {
                    net.link(edges[pod * half + edge], aggregations[pod * half + aggregation])?;
                }
            }
            // Aggregation switch a of each pod reaches the core switches of group a.
            for aggregation in 0..half {
                for core in 0..half {
                    net.link(
                        aggregations[pod * half + aggregation],
                        cores[aggregation * half + core],
                    )?;
                }
            }
        }
        Ok(net)
    }

    /// A network of `hosts` hosts, spread evenly over `switches` switches, each linked to all others.
    ///
    /// # Errors
    /// Those of [`Self::leaf_spine`].
    pub fn mesh(hosts: usize, switches: usize) -> Result<Self, TopologyError> {
        let (mut net, all) = Self::with_hosts(hosts, switches, switches.saturating_sub(1))?;
        for (index, &a) in all.iter().enumerate() {
            for &b in all.iter().skip(index + 1) {
                net.link(a, b)?;
            }
        }
        Ok(net)
    }

    /// A network of `hosts` hosts, spread evenly over `switches` switches, linked in a ring.
    ///
    /// # Errors
    /// Those of [`Self::leaf_spine`]; fewer than three switches.
    pub fn ring(hosts: usize, switches: usize) -> Result<Self, TopologyError> {
        count("switches of a ring", switches, 3, PORTS_MAX * PORTS_MAX)?;
        Self::torus(hosts, &[switches])
    }

    /// A network of `hosts` hosts, spread evenly over a grid of switches of these `dimensions`, in each of which the
    /// last switch is linked to the first; along a dimension of two, by one link.
    ///
    /// # Errors
    /// Those of [`Self::leaf_spine`]; no dimension or more than four, or one of fewer than two.
    pub fn torus(hosts: usize, dimensions: &[usize]) -> Result<Self, TopologyError> {
        count("dimensions", dimensions.len(), 1, 4)?;
        let mut switches = 1_usize;
        for &dimension in dimensions {
            count("switches along a dimension", dimension, 2, PORTS_MAX * PORTS_MAX)?;
            switches = switches.saturating_mul(dimension);
        }
        // A dimension of two gives each switch one neighbour, a longer one two.
        let links = dimensions.iter().map(|&dimension| dimension.min(3) - 1).sum();
        let (mut net, all) = Self::with_hosts(hosts, switches, links)?;
        for (index, &switch) in all.iter().enumerate() {
            let mut step = 1;
            for &dimension in dimensions {
                let place = index / step % dimension;
                let next = if place + 1 < dimension { index + step } else { index - place * step };
                // The two switches of a short dimension are each other's next: one link is enough.
                if dimension > 2 || place == 0 {
                    net.link(switch, all[next])?;
                }
                step *= dimension;
            }
        }
        Ok(net)
    }

    /// `switches` switches that keep `links` ports free, with hosts at the others.
    fn with_hosts(
        hosts: usize,
        switches: usize,
        links: usize,
    ) -> Result<(Self, Vec<NodeId>), TopologyError> {
        count("switches", switches, 1, PORTS_MAX * PORTS_MAX)?;
        count("links of a switch", links, 0, PORTS_MAX - 1)?;
        count("hosts", hosts, 2, switches * (PORTS_MAX - links))?;
        let mut net = Self::default();
        let all = net.add_switches("sw", switches)?;
        net.add_hosts(&all, hosts)?;
        Ok((net, all))
    }

    fn add_switches(&mut self, name: &str, count: usize) -> Result<Vec<NodeId>, TopologyError> {
        (0..count).map(|index| self.add(&format!("{name}{index}"), NodeKind::Switch)).collect()
    }

    /// Adds hosts h0, h1, ..., as evenly as possible, with neighbouring numbers at one switch.
    fn add_hosts(&mut self, switches: &[NodeId], hosts: usize) -> Result<(), TopologyError> {
        for host in 0..hosts {
            let id = self.add(&format!("h{host}"), NodeKind::Host)?;
            self.link(switches[host * switches.len() / hosts], id)?;
        }
        Ok(())
    }
}

const fn count(
    what: &'static str,
    had: usize,
    least: usize,
    most: usize,
) -> Result<(), TopologyError> {
    if had < least || had > most {
        return Err(TopologyError::Count { what, had, least, most });
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;

    fn degrees(net: &Topology) -> Vec<usize> {
        let mut degrees: Vec<usize> =
            net.switches().map(|id| net.nodes()[id].ports.len()).collect();
        degrees.sort_unstable();
        degrees.dedup();
        degrees
    }

    #[test]
    fn generators_make_what_they_are_called() {
        #[rustfmt::skip] // columns: name, net, hosts, switches, links, ports of switches
        let cases = [
            ("single",         Topology::single(8),              8,    1,    8, vec![8]),
            ("leaf-spine",     Topology::leaf_spine(32, 4, 2),  32,    6,   40, vec![4, 10]),
            ("uneven",         Topology::leaf_spine(5, 2, 1),    5,    3,    7, vec![2, 3, 4]),
            ("fat tree",       Topology::fat_tree(128),        128,   80,  384, vec![8]),
            ("fat tree, k 16", Topology::fat_tree(1_024),    1_024,  320, 3_072, vec![16]),
            ("least tree",     Topology::fat_tree(2),            2,    5,    6, vec![2]),
            ("mesh",           Topology::mesh(10, 5),           10,    5,   20, vec![6]),
            ("ring",           Topology::ring(10, 5),           10,    5,   15, vec![4]),
            ("torus",          Topology::torus(9, &[3, 3]),      9,    9,   27, vec![5]),
            ("cube",           Topology::torus(8, &[2, 2, 2]),   8,    8,   20, vec![4]),
        ];
        for (name, net, hosts, switches, links, ports) in cases {
            let net = net.unwrap();
            assert_eq!(net.hosts().count(), hosts, "{name}");
            assert_eq!(net.switches().count(), switches, "{name}");
            assert_eq!(net.links().len(), links, "{name}");
            assert_eq!(degrees(&net), ports, "{name}");
            net.routes().unwrap();
        }
    }

    #[test]
    fn what_cannot_be_is_refused() {
        let of = |what, had, least, most| TopologyError::Count { what, had, least, most };
        #[rustfmt::skip] // columns: name, net, error
        let cases = [
            ("one host",      Topology::single(1),             of("hosts", 1, 2, 64)),
            ("too many",      Topology::single(65),            of("hosts", 65, 2, 64)),
            ("no spine",      Topology::leaf_spine(4, 2, 0),   of("spines", 0, 1, 63)),
            ("full leaves",   Topology::leaf_spine(9, 1, 60),  of("hosts", 9, 2, 4)),
            ("large tree",    Topology::fat_tree(65_537),      of("hosts", 65_537, 2, 65_536)),
            ("large mesh",    Topology::mesh(100, 65),         of("links of a switch", 64, 0, 63)),
            ("short ring",    Topology::ring(4, 2),            of("switches of a ring", 2, 3, 4_096)),
            ("no dimension",  Topology::torus(4, &[]),         of("dimensions", 0, 1, 4)),
            ("flat",          Topology::torus(4, &[4, 1]),     of("switches along a dimension", 1, 2, 4_096)),
        ];
        for (name, net, error) in cases {
            assert_eq!(net, Err(error), "{name}");
        }
        let mut net = Topology::default();
        let (a, b) = (net.add("a", NodeKind::Host).unwrap(), net.add("b", NodeKind::Host).unwrap());
        assert_eq!(net.add("a", NodeKind::Switch), Err(TopologyError::Name("a".to_owned())));
        assert_eq!(net.link(a, a), Err(TopologyError::Loop("a".to_owned())));
        let path = TopologyError::Path { from: "b".to_owned(), to: "a".to_owned() };
        assert_eq!(net.routes(), Err(path));
        net.link(a, b).unwrap();
        let more = TopologyError::Ports { name: "a".to_owned(), most: 1 };
        let switch = net.add("sw", NodeKind::Switch).unwrap();
        assert_eq!(net.link(a, switch), Err(more));
    }

    /// In a fat tree of k there are k^2 / 4 shortest paths between pods, k / 2 inside a pod and one at an edge.
    #[test]
    fn routes_are_all_shortest_paths() {
        let net = Topology::fat_tree(16).unwrap(); // k = 4
        let (routes, hosts) = (net.routes().unwrap(), net.hosts().collect::<Vec<_>>());
        let switches: Vec<NodeId> = net.switches().collect();
        let paths = |from: usize, to: usize| {
            let first = net.links()[net.nodes()[hosts[from]].ports[0]].far(hosts[from]).0;
            let mut at = vec![first];
            let mut hops = 0;
            loop {
                let mut next = Vec::new();
                for node in &at {
                    let of = switches.iter().position(|switch| switch == node).unwrap();
                    for port in routes[of][to].iter() {
                        next.push(net.links()[net.nodes()[*node].ports[port.index()]].far(*node).0);
                    }
                }
                hops += 1;
                if next.iter().all(|&node| node == hosts[to]) {
                    return (next.len(), hops);
                }
                at = next;
            }
        };
        assert_eq!(paths(0, 1), (1, 1), "at one edge");
        assert_eq!(paths(0, 2), (2, 3), "in one pod");
        assert_eq!(paths(0, 15), (4, 5), "between pods");
    }
}
