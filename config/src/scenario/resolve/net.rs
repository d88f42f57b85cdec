//! The network: generated, imported, or named node by node and link by link.
//!
//! `[net]`, `[[host]]`, `[[switch]]` and `[[link]]` become a [`Topology`], in which every link has its rate and
//! delay.
//!
//! Source: docs/spec/model.md §3.

use weft_dataplane::time::{LinkRate, Span};
use weft_sim::topology::{LinkSpec, NodeKind, Topology, TopologyError};
use weft_toml::words::nearest;

use super::{Keys, ScenarioReader, Takes};
use crate::scenario::import;

const NONE: Takes = Takes { kind: "", must: &[], may: &[] };
/// Keys of `[net]` that each generator takes.
const GENERATORS: &[Takes] = &[
    Takes { kind: "direct", ..NONE },
    Takes { kind: "single", must: &["hosts"], ..NONE },
    Takes {
        kind: "leaf-spine",
        must: &["hosts", "leaves", "spines"],
        may: &["switch_rate_gbps", "switch_link_m"],
    },
    Takes { kind: "fat-tree", must: &["hosts"], may: &["switch_rate_gbps", "switch_link_m"] },
    Takes {
        kind: "mesh",
        must: &["hosts", "switches"],
        may: &["switch_rate_gbps", "switch_link_m"],
    },
    Takes {
        kind: "ring",
        must: &["hosts", "switches"],
        may: &["switch_rate_gbps", "switch_link_m"],
    },
    Takes {
        kind: "torus",
        must: &["hosts", "dimensions"],
        may: &["switch_rate_gbps", "switch_link_m"],
    },
];
/// Keys that only generators take.
const OF_GENERATORS: [&str; 7] =
    ["hosts", "leaves", "spines", "switches", "dimensions", "switch_rate_gbps", "switch_link_m"];

/// Most hosts: endpoints have numbers of 10 bits.
const HOSTS_MAX: usize = 1_024;

impl ScenarioReader<'_> {
    /// The network; `None` if it is refused.
    pub(super) fn net(&mut self) -> Option<Topology> {
        let net = Keys::table(self.settings, "net");
        // One item is enough to tell that the network is named node by node.
        let named = ["host", "link", "switch"].map(|name| Keys::items(self.settings, name).next());
        let named = named.into_iter().flatten().next();
        let topology = match (net.text("generate"), net.text("import"), named) {
            (Some(kind), None, None) => self.generated(&net, &kind),
            (None, Some(file), None) => self.imported(&net, &file),
            (None, None, Some(_)) => self.graph(&net),
            (None, None, None) => {
                self.refuse(&net, "generate", "expected a network: net.generate, net.import, or [[switch]], [[host]] and [[link]]; found none");
                None
            }
            (generate, import, named) => {
                let (place, name) = match (&named, generate.is_some() && import.is_some()) {
                    (Some(named), false) => {
                        (named.here(), named.name("").trim_end_matches('.').to_owned())
                    }
                    _ => (net.place("import"), net.name("import")),
                };
                self.refuse_at(place, name, "expected one network: net.generate, net.import, or [[switch]], [[host]] and [[link]]; found two");
                None
            }
        }?;
        self.check_size(&net, &topology).then_some(topology)
    }

    fn check_size(&mut self, net: &Keys<'_>, topology: &Topology) -> bool {
        let hosts = topology.hosts().count();
        let is_right = (2..=HOSTS_MAX).contains(&hosts);
        if !is_right {
            let message = format!("expected 2 to {HOSTS_MAX} hosts, found {hosts}");
            self.refuse_at(net.here(), "net", message);
        }
        // A node without links could neither send nor receive, and is most likely a forgotten [[link]].
        let alone = topology.nodes().iter().find(|node| node.ports.is_empty());
        if let Some(node) = alone {
            let message = format!("expected a link at {:?}, found none", node.name);
            self.refuse_at(net.here(), "link.ends", message);
        }
        is_right && alone.is_none()
    }

    fn generated(&mut self, net: &Keys<'_>, kind: &str) -> Option<Topology> {
        if !self.check_takes(net, GENERATORS, "generate", kind) {
            return None;
        }
        let count = |key| net.count(key).unwrap_or(0);
        let hosts = count("hosts");
        let dimensions: Vec<usize> = match net.get("dimensions") {
            Some(list) => {
                let all = list.members().iter().filter_map(crate::value::Value::as_int);
                all.filter_map(|int| usize::try_from(int).ok()).collect()
            }
            None => Vec::new(),
        };
        let made = match kind {
            "direct" => direct(),
            "single" => Topology::single(hosts),
            "leaf-spine" => Topology::leaf_spine(hosts, count("leaves"), count("spines")),
            "fat-tree" => Topology::fat_tree(hosts),
            "mesh" => Topology::mesh(hosts, count("switches")),
            "ring" => Topology::ring(hosts, count("switches")),
            _ => Topology::torus(hosts, &dimensions),
        };
        let mut topology = match made {
            Ok(topology) => topology,
            Err(error) => {
                self.refuse(net, "generate", error.to_string());
                return None;
            }
        };
        let at_host = of_all(net, "rate_gbps", "link_m")?;
        // Links between switches are like those of hosts, unless the keys for them are set.
        let between = LinkSpec {
            rate: net.rate("switch_rate_gbps").unwrap_or(at_host.rate),
            propagation: net.flight("switch_link_m").unwrap_or(at_host.propagation),
        };
        for link in 0..topology.links().len() {
            let ends = topology.links().get(link).map(|link| link.ends).into_iter().flatten();
            let is_switch = |node: usize| {
                topology.nodes().get(node).is_some_and(|node| node.kind == NodeKind::Switch)
            };
            let is_between = ends.into_iter().all(|(node, _)| is_switch(node));
            topology.specify(link, if is_between { between } else { at_host });
        }
        Some(topology)
    }

    fn refuse_generators(&mut self, net: &Keys<'_>) -> bool {
        let mut is_free = true;
        for key in OF_GENERATORS {
            if net.set(key).is_some() {
                self.refuse(net, key, "expected net.generate beside it; or leave it out");
                is_free = false;
            }
        }
        is_free
    }

    fn imported(&mut self, net: &Keys<'_>, file: &str) -> Option<Topology> {
        // Checked before the file is read, but refused with it: both problems show in one run.
        let is_free = self.refuse_generators(net);
        let read = match self.source.file(file) {
            Ok(text) => import::topology(file, &text).map_err(|problem| vec![problem]),
            Err(message) => {
                self.refuse(net, "import", message);
                return None;
            }
        };
        match read {
            Ok(read) => {
                let import::Network { topology, switch_latency_ns } = self.imported_with(read);
                self.latencies = switch_latency_ns;
                Some(topology).filter(|_| is_free)
            }
            Err(problems) => {
                self.problems.extend(problems);
                None
            }
        }
    }

    fn graph(&mut self, net: &Keys<'_>) -> Option<Topology> {
        let before = self.problems.len();
        self.refuse_generators(net);
        let mut topology = Topology::default();
        for (section, kind) in [("switch", NodeKind::Switch), ("host", NodeKind::Host)] {
            for item in Keys::items(self.settings, section) {
                if !self.requires(&item, &["name"]) {
                    continue;
                }
                if let Err(error) = topology.add(&item.text("name").unwrap_or_default(), kind) {
                    self.refuse(&item, "name", error.to_string());
                }
            }
        }
        let all = of_all(net, "rate_gbps", "link_m")?;
        for item in Keys::items(self.settings, "link") {
            self.link(&mut topology, &item, all);
        }
        (before == self.problems.len()).then_some(topology)
    }

    fn link(&mut self, topology: &mut Topology, item: &Keys<'_>, all: LinkSpec) {
        if !self.requires(item, &["ends"]) {
            return;
        }
        if item.set("link_m").is_some() && item.set("delay").is_some() {
            self.refuse(item, "delay", "expected this or link_m, found both");
        }
        if item.time("delay") == Some(Span::ZERO) {
            self.refuse(
                item,
                "delay",
                "expected 1 ps or above: who meets over a link sees the other later; found 0",
            );
        }
        let spec = LinkSpec {
            rate: item.rate("rate_gbps").unwrap_or(all.rate),
            propagation: item.time("delay").or(item.flight("link_m")).unwrap_or(all.propagation),
        };
        let ends = item.texts("ends");
        let nodes: Vec<usize> =
            ends.iter().filter_map(|name| self.node(topology, item, name)).collect();
        // An unknown end has been refused by `node`.
        let [a, b] = nodes[..] else { return };
        match topology.link(a, b) {
            Ok(link) => topology.specify(link, spec),
            Err(error) => self.refuse(item, "ends", error.to_string()),
        }
    }

    /// The node called `name`; refuses the ends of the link, or the `link` of a fault, if there is none.
    pub(super) fn node(
        &mut self,
        topology: &Topology,
        keys: &Keys<'_>,
        name: &str,
    ) -> Option<usize> {
        let found = topology.find(name);
        if found.is_none() {
            let names = topology.nodes().iter().map(|node| node.name.as_str());
            let near = nearest(name, names).map(|near| format!(", did you mean {near:?}?"));
            let message = format!(
                "expected the name of a host or switch, found {name:?}{}",
                near.unwrap_or_default()
            );
            // Items of [[link]] and of [[fault]] name nodes by different keys.
            let key = if keys.has("ends") { "ends" } else { "link" };
            self.refuse(keys, key, message);
        }
        found
    }
}

fn of_all(net: &Keys<'_>, rate: &'static str, length: &'static str) -> Option<LinkSpec> {
    let rate: LinkRate = net.rate(rate)?;
    Some(LinkSpec { rate, propagation: net.flight(length)? })
}

/// Two hosts that one link joins, without a switch.
fn direct() -> Result<Topology, TopologyError> {
    let mut net = Topology::default();
    let (a, b) = (net.add("h0", NodeKind::Host)?, net.add("h1", NodeKind::Host)?);
    net.link(a, b)?;
    Ok(net)
}
