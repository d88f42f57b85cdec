//! A network in virtual time: switches joined to each other, and an RC Link endpoint at each host.
//!
//! Shape: [`NetworkSpec`] → [`Network`]; messages in, what came of them out, by host.
//! Units: picoseconds, bytes of payload.
//! Source: docs/spec/model.md §1, §3, §4.

use std::sync::Arc;

use weft_dataplane::config::SwitchConfig;
use weft_dataplane::fdb::{FdbKey, StaticEntry};
use weft_dataplane::pipeline::{BuildError, Ledger};
use weft_dataplane::pool::{Bufs, Pool, PoolError};
use weft_dataplane::port::PortError;
use weft_dataplane::port::wire::{Wire, WireConfig, WireEnd, cable};
use weft_dataplane::time::{Instant, Span};
use weft_dataplane::types::PortSet;
use weft_hosts::frames::{FrameSpec, Kind, Station};
use weft_hosts::rclink::endpoint::{Endpoint, EndpointError, EndpointSpec, Event, Message};
use weft_parsers::Vid;

use crate::engine::{CableError, Cables, Latency, Place, Schedule};
use crate::nodes::{Edge, Node, Nodes};
use crate::setup::Setup;
use crate::switch::{Around, Switch};
use crate::topology::{NodeKind, Topology, TopologyError};

/// Chunks of a host's pool: what it has taken off its wire, and a frame that it sends.
const CHUNKS: usize = 32;
/// VLAN of a port by default.
const PVID: Vid = Vid::from_low_bits(1);

/// A network to be built.
#[derive(Clone, Debug)]
pub struct NetworkSpec {
    /// Hosts, switches and cables.
    pub topology: Topology,
    /// What every switch is like; it has as many ports as links, and `buffer_bytes` in all.
    pub setup: Setup,
    /// What is around a switch.
    pub around: Around,
    /// What frames hosts send.
    pub kind: Kind,
    /// What an endpoint takes for each frame, each way.
    pub endpoint_delay: Span,
}

/// A network cannot be built.
#[derive(Debug, thiserror::Error)]
pub enum NetworkError {
    /// Its hosts, switches and links.
    #[error(transparent)]
    Topology(#[from] TopologyError),
    /// A switch.
    #[error("switch {name:?}")]
    Switch {
        /// Which.
        name: String,
        /// Why.
        source: BuildError,
    },
    /// An endpoint.
    #[error("host {name:?}")]
    Host {
        /// Which.
        name: String,
        /// Why.
        source: EndpointError,
    },
    /// A host's memory.
    #[error(transparent)]
    Pool(#[from] PoolError),
    /// A cable.
    #[error(transparent)]
    Cable(#[from] CableError),
}

/// An endpoint at its port.
pub struct Host {
    endpoint: Endpoint,
    port: Wire,
    bufs: Bufs,
    events: Vec<Event>,
}

impl Host {
    /// The endpoint.
    #[must_use]
    pub const fn endpoint(&self) -> &Endpoint {
        &self.endpoint
    }

    /// All that came of messages, in order.
    #[must_use]
    pub fn events(&self) -> &[Event] {
        &self.events
    }
}

impl Edge for Host {
    fn step(&mut self, now: Instant) -> Result<Option<Instant>, PortError> {
        let progress = self.endpoint.poll(now, &mut self.port, &mut self.bufs)?;
        self.events.append(&mut self.endpoint.events());
        Ok(Instant::earlier(progress.next, self.port.next_arrival()))
    }
}

/// A network at work.
pub struct Network {
    nodes: Nodes<Host>,
    /// By host: its component.
    hosts: Vec<usize>,
}

impl Network {
    /// Builds a network; nothing has moved yet. Switches and endpoints are changed by `change`.
    ///
    /// # Errors
    /// See [`NetworkError`].
    pub fn new(
        spec: &NetworkSpec,
        change_switch: impl Fn(&mut SwitchConfig),
        change_endpoint: impl Fn(&mut EndpointSpec),
    ) -> Result<Self, NetworkError> {
        let topology = &spec.topology;
        let routes = topology.routes()?;
        let hosts: Vec<usize> = topology.hosts().collect();
        let stations: Arc<[Station]> = (1..).take(hosts.len()).map(Station::numbered).collect();
        let endpoints = (0..).take(hosts.len()).map(|number| {
            let mut endpoint = EndpointSpec::new(number, stations.clone(), spec.kind);
            change_endpoint(&mut endpoint);
            endpoint
        });
        let endpoints: Vec<EndpointSpec> = endpoints.collect();
        let mut cables = Cables::new();
        let host = Latency { receive: spec.endpoint_delay, send: spec.endpoint_delay };
        for node in topology.nodes() {
            match node.kind {
                NodeKind::Host => cables.add(1, host),
                NodeKind::Switch => cables.add(node.ports.len(), spec.around.of_switch()),
            };
        }
        for link in topology.links() {
            let [a, b] = link.ends.map(|(component, port)| Place { component, port });
            cables.lay(a, b, &spec.around.cable(spec.setup.rate))?;
        }
        let (schedule, ends) = Schedule::new(cables);
        let (mut endpoint, mut switch) = (endpoints.iter(), 0);
        let mut nodes = Vec::with_capacity(topology.nodes().len());
        for (node, ends) in topology.nodes().iter().zip(ends) {
            let name = || node.name.clone();
            nodes.push(match node.kind {
                NodeKind::Host => {
                    let Some(endpoint) = endpoint.next() else { continue };
                    let endpoint = Endpoint::new(endpoint.clone())
                        .map_err(|source| NetworkError::Host { name: name(), source })?;
                    Node::edge(at_port(spec, endpoint, ends)?)
                }
                NodeKind::Switch => {
                    let mut config = Setup { ports: ends.len(), ..spec.setup.clone() }.config();
                    let to = routes.get(switch).map(Vec::as_slice).unwrap_or_default();
                    for (endpoint, &ports) in endpoints.iter().zip(to) {
                        config.forward.static_entries.extend(entry(&endpoint.frame, ports));
                    }
                    switch += 1;
                    change_switch(&mut config);
                    let ends = ends.into_iter().map(|end| end.unwrap_or_else(|| cable(1).0));
                    let built = Switch::on(config, &spec.around, ends.collect())
                        .map_err(|source| NetworkError::Switch { name: name(), source })?;
                    Node::from(built)
                }
            });
        }
        Ok(Self { nodes: Nodes::new(nodes, schedule), hosts })
    }

    /// Gives host `from` a message.
    ///
    /// # Errors
    /// As [`Endpoint::send`]; no such host.
    pub fn send(&mut self, from: usize, message: Message) -> Result<(), Message> {
        let component = self.hosts.get(from).copied().unwrap_or(usize::MAX);
        match self.nodes.change(component) {
            Some(host) => host.endpoint.send(message),
            None => Err(message),
        }
    }

    /// Hosts, by number.
    pub fn hosts(&self) -> impl Iterator<Item = &Host> {
        self.nodes.edges()
    }

    /// Switches, in the order of the topology.
    pub fn switches(&self) -> impl Iterator<Item = &Switch> {
        self.nodes.switches()
    }

    /// The books of each switch.
    #[must_use]
    pub fn ledgers(&self) -> Vec<Ledger> {
        self.nodes.ledgers()
    }

    /// Where the run has come to.
    #[must_use]
    pub const fn now(&self) -> Instant {
        self.nodes.now()
    }

    /// Whether all messages are done.
    #[must_use]
    pub fn is_idle(&self) -> bool {
        self.hosts().all(|host| host.endpoint.is_idle())
    }

    /// Runs until `end` on so many threads.
    ///
    /// # Errors
    /// Never: a wire does not fail.
    pub fn run(&mut self, end: Instant, threads: usize) -> Result<(), &PortError> {
        self.nodes.run(end, threads)
    }
}

/// Where frames to an endpoint go whose own are like `frame`.
fn entry(frame: &FrameSpec, ports: PortSet) -> Option<StaticEntry> {
    let (addr, _) = frame.source_key()?;
    // A frame without a tag, or with a priority only, is in the VLAN of the port.
    let vid = frame.vlan.map_or(0, |tci| tci.vid().get());
    let vid = if vid == 0 { PVID } else { Vid::from_low_bits(vid) };
    StaticEntry::over(FdbKey::new(vid, addr), ports)
}

/// An endpoint at the end of its cable.
fn at_port(
    spec: &NetworkSpec,
    endpoint: Endpoint,
    ends: Vec<Option<WireEnd>>,
) -> Result<Host, NetworkError> {
    let wire = WireConfig {
        name: String::new(),
        rate: spec.setup.rate,
        propagation: spec.around.propagation + spec.endpoint_delay,
        latency: spec.endpoint_delay,
        overhead: spec.around.overhead,
        drop_runts: spec.around.drop_runts,
    };
    let end = ends.into_iter().flatten().next().unwrap_or_else(|| cable(1).0);
    let frame_len_max = spec.setup.frame_len_max;
    Ok(Host {
        endpoint,
        port: Wire::new(wire, frame_len_max, end),
        bufs: Bufs::new(Pool::in_memory(CHUNKS, frame_len_max)?, 1, 0),
        events: Vec::new(),
    })
}
