//! The order of switches that tells which links lead up.
//!
//! A [`Net`] has the links that work, by switch. An [`Order`] gives each switch a rank: a link leads up towards the
//! lower rank, and every switch but the first of its part of the fabric has a link that leads up.
//!
//! Source: Schroeder et al., "Autonet", IEEE JSAC 9(8), 1991 (up*/down*); docs/spec/cxl-fabric.md "Routes".

use crate::model::graph::{Graph, Per, PortUse, SwitchId};

/// One direction of a link, as it leaves a switch.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Arc {
    pub port: u8,
    pub far: SwitchId,
}

/// The links that work, at each of their ends, in order of ports; links from a switch to itself are left out.
///
/// Plain arrays instead of a graph library: all of it is walked once for each destination.
#[derive(Clone, Debug)]
pub struct Net {
    /// Index of a switch's first arc; they end where those of the next switch begin.
    first: Per<SwitchId, usize>,
    arcs: Vec<Arc>,
    /// Number of PIDs at each switch that works.
    pub pids: Per<SwitchId, u32>,
}

impl Net {
    #[must_use]
    pub fn new(graph: &Graph) -> Self {
        let (mut first, mut arcs) = (Per::default(), Vec::new());
        for switch in graph.switches() {
            first.push(arcs.len());
            for (port, what) in graph.ports(switch) {
                if let PortUse::Isl { link, far } = what
                    && graph.works(link)
                    // A link to the switch itself leads neither up nor down.
                    && far.switch != switch
                {
                    arcs.push(Arc { port, far: far.switch });
                }
            }
        }
        let mut pids = Per::new(graph.switch_count(), 0);
        for end in graph.endpoints().filter(|end| graph.is_up(end.at.switch)) {
            pids[end.at.switch] += 1;
        }
        Self { first, arcs, pids }
    }

    #[must_use]
    pub const fn switch_count(&self) -> usize {
        self.first.len()
    }

    /// Number of arcs, twice that of links.
    #[must_use]
    pub const fn arc_count(&self) -> usize {
        self.arcs.len()
    }

    /// Arcs that leave a switch.
    #[inline]
    #[must_use]
    pub fn arcs(&self, of: SwitchId) -> &[Arc] {
        let from = self.first[of];
        // The last switch has no successor.
        let to = self.first.find(SwitchId(of.0 + 1)).copied().unwrap_or(self.arcs.len());
        self.arcs.get(from..to).unwrap_or_default()
    }

    /// Index of a switch's first arc among all.
    #[inline]
    #[must_use]
    pub fn first_arc(&self, of: SwitchId) -> usize {
        self.first[of]
    }

    /// Hops from the nearest of `from` to each switch; `None` if it cannot be reached.
    #[must_use]
    pub fn hops(&self, from: &[SwitchId]) -> Per<SwitchId, Option<u32>> {
        let mut hops = Per::new(self.switch_count(), None);
        let mut found = from.to_vec();
        for &switch in from {
            hops[switch] = Some(0);
        }
        let mut at = 0;
        while let Some(&switch) = found.get(at) {
            at += 1;
            let next = hops[switch].map(|hops: u32| hops + 1);
            for arc in self.arcs(switch) {
                if hops[arc.far].is_none() {
                    hops[arc.far] = next;
                    found.push(arc.far);
                }
            }
        }
        hops
    }

    /// Sets of switches that working links join, the largest first, each in ascending order.
    #[must_use]
    pub fn parts(&self) -> Vec<Vec<SwitchId>> {
        let mut seen = Per::new(self.switch_count(), false);
        let mut parts = Vec::new();
        for start in self.first.keys() {
            if seen[start] {
                continue;
            }
            seen[start] = true;
            let mut part = vec![start];
            let mut at = 0;
            while let Some(&switch) = part.get(at) {
                at += 1;
                for arc in self.arcs(switch) {
                    if !seen[arc.far] {
                        seen[arc.far] = true;
                        part.push(arc.far);
                    }
                }
            }
            part.sort_unstable();
            parts.push(part);
        }
        parts.sort_by_key(|part| std::cmp::Reverse(part.len()));
        parts
    }
}

/// Ranks of switches, by which up*/down* routing decides which links lead up.
///
/// In each part of the fabric exactly one switch, the root, has no neighbour of a lower rank.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Order {
    pub(super) rank: Per<SwitchId, u32>,
    pub(super) root: Per<SwitchId, SwitchId>,
}

impl Order {
    /// Whether a link from `from` to `to` leads up.
    #[inline]
    #[must_use]
    pub fn leads_up(&self, from: SwitchId, to: SwitchId) -> bool {
        self.rank[to] < self.rank[from]
    }

    /// Root of the part that a switch is in.
    #[inline]
    #[must_use]
    pub fn root(&self, of: SwitchId) -> SwitchId {
        self.root[of]
    }

    pub(super) fn ranks(&self) -> impl Iterator<Item = (u32, u16)> {
        self.rank.values().zip(self.root.values()).map(|(rank, root)| (*rank, root.0))
    }

    /// An order from ranks and roots; `None` if a root is no switch.
    pub(super) fn of_ranks(ranks: &[(u32, u16)]) -> Option<Self> {
        // The numbers come from the store; a root out of range would be an index out of bounds later.
        let is_switch = |(_, root): &(u32, u16)| usize::from(*root) < ranks.len();
        ranks.iter().all(is_switch).then(|| Self {
            rank: ranks.iter().map(|(rank, _)| *rank).collect(),
            root: ranks.iter().map(|(_, root)| SwitchId(*root)).collect(),
        })
    }

    /// Whether these ranks still serve the links that work, so that routes by them can stay.
    #[must_use]
    pub fn serves(&self, graph: &Graph) -> bool {
        let net = Net::new(graph);
        self.kept(&net, &net.parts()).is_some()
    }

    /// Ranks the switches of a part in the order `ranked`, from `first` on.
    pub(super) fn set(&mut self, first: u32, ranked: &[SwitchId]) {
        for (rank, &switch) in (first..).zip(ranked) {
            self.rank[switch] = rank;
            self.root[switch] = ranked.first().copied().unwrap_or(switch);
        }
    }

    /// These ranks for another `net`, if still only one switch of each part has no link that leads up.
    pub(super) fn kept(&self, net: &Net, parts: &[Vec<SwitchId>]) -> Option<Self> {
        if self.rank.len() != net.switch_count() {
            return None;
        }
        let mut kept = self.clone();
        for part in parts {
            let is_top = |&&switch: &&SwitchId| {
                !net.arcs(switch).iter().any(|arc| self.leads_up(switch, arc.far))
            };
            let mut tops = part.iter().filter(is_top);
            let (Some(&root), None) = (tops.next(), tops.next()) else { return None };
            // Switches of parts that were apart may have equal ranks.
            let tied = |s: SwitchId| net.arcs(s).iter().any(|a| self.rank[a.far] == self.rank[s]);
            if part.iter().any(|&switch| tied(switch)) {
                return None;
            }
            for &switch in part {
                kept.root[switch] = root;
            }
        }
        Some(kept)
    }
}
