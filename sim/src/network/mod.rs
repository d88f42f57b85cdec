//! A network in virtual time: switches, and an RC Link endpoint and TCP connections at each host.
//!
//! A [`Plan`] is built into a [`Network`], which runs; its hosts have the results of flows. A [`NetworkSpec`] is a
//! short form for a network in which all switches are alike.
//!
//! Source: docs/spec/model.md §1, §3, §4, §7.

mod agenda;
mod credits;
mod faulty;
mod host;
mod ideal;
mod memory;
mod parts;
mod placing;
mod storm;
mod tcp;

use std::sync::Arc;

use weft_base::memory::NoMemory;
use weft_base::sync::{AtomicU64, Ordering};
use weft_dataplane::config::SwitchConfig;
use weft_dataplane::pipeline::{BuildError, Ledger};
use weft_dataplane::port::PortError;
use weft_dataplane::port::wire::cable;
use weft_dataplane::time::{Instant, Span};
use weft_dataplane::types::PortId;
use weft_hosts::frames::Kind;
use weft_hosts::rclink::endpoint::{EndpointError, EndpointSpec};
use weft_hosts::tcp::{ConnectionSpec, TcpError};

use self::parts::{Part, Parts};
use self::placing::{HostLink, at_port};
use crate::checkers::Violation;
use crate::engine::{CableError, CableSpec, Cables, Latency, Place, Schedule};
use crate::journey::{self, SwitchLog};
use crate::nodes::{Node, Nodes};
use crate::rclink_heard::Reader;
use crate::results::network::LatencyParts;
use crate::scenario::fault::Fault;
use crate::scenario::flow::{Flow, FlowError};
use crate::scenario::{Checks, Site, SwitchPlan, TemplateError};
use crate::setup::Setup;
use crate::switch::{Switch, SwitchTiming};
use crate::switch_watch::SwitchWatch;
use crate::topology::{LinkSpec, NodeId, NodeKind, Topology, TopologyError};

pub use self::agenda::{Delivered, Sent};
pub use self::host::Host;
pub use self::parts::MESSAGE_FRAMES_MAX;
pub use self::tcp::TcpSide;

/// Description of a network.
pub struct Plan<'a> {
    /// Hosts, switches and links; each link must have its rate and propagation.
    pub topology: &'a Topology,
    /// Gives the configuration of the switch at a site.
    pub switches: &'a dyn Fn(&Site<'_>) -> Result<SwitchPlan, TemplateError>,
    /// Sets up the endpoint at a site; number, peers and kind of frames are set already.
    pub endpoints: &'a dyn Fn(&Site<'_>, &mut EndpointSpec) -> Result<(), TemplateError>,
    /// Kind of the frames that hosts send.
    pub kind: Kind,
    /// Latency of an endpoint for each frame.
    pub delay: Latency,
    /// Whether frames take their true wire time; must be the same at all switches.
    pub overhead: bool,
    /// Whether hosts and switches keep only the fronts of frames ([`weft_dataplane::pool::FRONT_LEN`]); the results are
    /// the same.
    pub fronts: bool,
    /// Longest frame that a host takes, without FCS.
    pub frame_len_max: usize,
    /// Flows of the run, by id.
    pub flows: Arc<[Flow]>,
    /// TCP connections of each workload; required of those with a TCP flow.
    pub connections: &'a [Option<ConnectionSpec>],
    /// Faults of links and hosts.
    pub faults: &'a [Fault],
    /// Seed of random faults, and of TCP's sequence numbers.
    pub seed: u64,
    /// Whether endpoints and switches are checked, frame by frame.
    pub checks: Checks,
    /// Whether latencies are recorded by their parts.
    pub latency_parts: bool,
}

/// Description of a network whose switches are all alike.
#[derive(Clone, Debug)]
pub struct NetworkSpec {
    /// Hosts, switches and links; links without a rate get that of `setup` and the propagation of `around`.
    pub topology: Topology,
    /// Every switch; it has a port for each of its links, and `buffer_bytes` in all.
    pub setup: Setup,
    /// Conditions around every switch.
    pub around: SwitchTiming,
    /// Kind of the frames that hosts send.
    pub kind: Kind,
    /// Latency of an endpoint for each frame, each way.
    pub endpoint_delay: Span,
}

/// Why a network cannot be built.
#[derive(Debug, thiserror::Error)]
pub enum NetworkError {
    /// The topology is not valid.
    #[error(transparent)]
    Topology(#[from] TopologyError),
    /// The system has too little memory for it.
    #[error("a network of {switches} switches and {hosts} hosts")]
    Memory {
        /// Number of its switches.
        switches: usize,
        /// Number of its hosts.
        hosts: usize,
        /// Bytes that it takes before anything moves.
        source: NoMemory,
    },
    /// A link has no rate and propagation.
    #[error("link {link} between {a:?} and {b:?} has no rate and no length")]
    Link {
        /// Number of the link.
        link: usize,
        /// Node at one end.
        a: String,
        /// Node at the other end.
        b: String,
    },
    /// A template refuses a node.
    #[error("node {name:?}")]
    Template {
        /// Name of the node.
        name: String,
        /// Reason of the template.
        source: TemplateError,
    },
    /// The configuration of a switch does not have one port for each link.
    #[error("switch {name:?} is configured with {had} ports: expected {links}, one for each link")]
    Ports {
        /// Name of the switch.
        name: String,
        /// Ports in its configuration.
        had: usize,
        /// Links that it has.
        links: usize,
    },
    /// Frames take their true wire time at one end of a link and not at the other.
    #[error(
        "switch {name:?} counts frames' true wire time and its neighbours do not, or the other way round"
    )]
    Overhead {
        /// Name of the switch.
        name: String,
    },
    /// A switch refuses its configuration.
    #[error("switch {name:?}")]
    Switch {
        /// Name of the switch.
        name: String,
        /// Reason of the switch.
        source: BuildError,
    },
    /// An endpoint refuses its description.
    #[error("host {name:?}")]
    Host {
        /// Name of the host.
        name: String,
        /// Reason of the endpoint.
        source: EndpointError,
    },
    /// A TCP host refuses its description or a connection.
    #[error("host {name:?}")]
    Tcp {
        /// Name of the host.
        name: String,
        /// Reason of the TCP host.
        source: TcpError,
    },
    /// A host begins more connections than it has ports.
    #[error("host {name:?} begins more TCP connections than it has ports: expected {most} at most")]
    Connections {
        /// Name of the host.
        name: String,
        /// Most connections that a host can begin.
        most: usize,
    },
    /// A TCP flow belongs to a workload without connections.
    #[error("flow {flow} is a TCP connection: expected a specification for workload {workload}")]
    NoConnection {
        /// Number of the flow.
        flow: usize,
        /// Number of its workload.
        workload: u16,
    },
    /// A cable cannot be laid.
    #[error(transparent)]
    Cable(CableError),
    /// A link would have to hold too many frames, as it is too long or its ends are too slow.
    #[error(
        "the link between {a:?} and {b:?} can hold {frames} frames: expected {most} at most of all links together; make it shorter or slower, or the latencies at its ends less"
    )]
    Room {
        /// Node at one end.
        a: String,
        /// Node at the other end.
        b: String,
        /// Frames that it would hold.
        frames: u64,
        /// Most that all links together may hold.
        most: u64,
    },
    /// A flow is not valid.
    #[error(transparent)]
    Flow(#[from] FlowError),
    /// A flow has more frames than a message has numbers for.
    #[error(
        "flow {flow} from host {from} has {bytes} bytes: expected at most {most}, which are 2^31 frames"
    )]
    Message {
        /// Number of the flow.
        flow: usize,
        /// Number of its sender.
        from: u16,
        /// Bytes of the flow.
        bytes: u64,
        /// Most bytes that its frames can carry.
        most: u64,
    },
    /// A flow names another virtual channel than its sender's endpoint uses.
    #[error(
        "flow {flow} on virtual channel {vc}: expected {expected}, on which host {from} sends to host {to}; its endpoint's request_vc and banks say so"
    )]
    Vc {
        /// Number of the flow.
        flow: usize,
        /// Virtual channel that it names.
        vc: u8,
        /// Virtual channel of the endpoint's requests.
        expected: u8,
        /// Number of the sender.
        from: u16,
        /// Number of the receiver.
        to: u16,
    },
    /// A host has credits with more partners than it has ports for.
    #[error(
        "host {name:?} has credits with {had} others: expected flows with at most {most}, or PFC"
    )]
    Partners {
        /// Name of the host.
        name: String,
        /// Number of its partners.
        had: usize,
        /// Most partners that a host can have.
        most: usize,
    },
    /// A fault names a link or host that does not exist.
    #[error("fault {fault} is at {what} {had}: expected 0 to {most}")]
    Fault {
        /// Index of the fault.
        fault: usize,
        /// The word "link" or "host".
        what: &'static str,
        /// Number that it names.
        had: usize,
        /// Highest number there is.
        most: usize,
    },
}

/// A network that is built, and runs.
pub struct Network {
    nodes: Nodes<Host>,
    flows: Arc<[Flow]>,
    /// By link: counter of frames that were lost because it was down; `None` if it never is.
    lost: Vec<Option<Arc<AtomicU64>>>,
    /// By flow: least time that it can take, alone in the network.
    ideals: Vec<Span>,
    /// Longest time that an endpoint waits for an ACK.
    patience: Span,
    /// Longest time that a TCP connection waits for an acknowledgement.
    tcp_patience: Span,
    /// Whether each node is a host.
    is_host: Vec<bool>,
    /// Estimate of the address space that it took before anything moved.
    memory: usize,
}

/// The error for a cable that cannot be laid between two places; components are nodes.
fn no_cable(topology: &Topology, ends: [Place; 2], error: CableError) -> NetworkError {
    let CableError::Room { frames, most } = error else { return NetworkError::Cable(error) };
    let name = |place: Place| topology.nodes().get(place.component).map(|node| node.name.clone());
    let [a, b] = ends.map(|place| name(place).unwrap_or_default());
    NetworkError::Room { a, b, frames, most }
}

impl Network {
    /// Builds a network of `spec`, in which nothing has moved yet; `change_switch` and `change_endpoint` may alter each
    /// part.
    ///
    /// # Errors
    /// The first part that cannot be built.
    pub fn new(
        spec: &NetworkSpec,
        flows: Vec<Flow>,
        change_switch: impl Fn(&mut SwitchConfig),
        change_endpoint: impl Fn(&mut EndpointSpec),
    ) -> Result<Self, NetworkError> {
        let mut topology = spec.topology.clone();
        let (rate, propagation) = (spec.setup.rate, spec.around.propagation);
        topology.specify_others(LinkSpec { rate, propagation });
        let switches = |site: &Site<'_>| {
            let rates = site.links.iter().map(|link| link.rate).enumerate().collect();
            let setup = Setup { ports: site.links.len(), rates, ..spec.setup.clone() };
            let mut config = setup.config();
            change_switch(&mut config);
            Ok(SwitchPlan { config, around: spec.around.clone() })
        };
        let endpoints = |_: &Site<'_>, endpoint: &mut EndpointSpec| {
            change_endpoint(endpoint);
            Ok(())
        };
        Self::build(&Plan {
            topology: &topology,
            switches: &switches,
            endpoints: &endpoints,
            kind: spec.kind,
            delay: Latency::both_ways(spec.endpoint_delay),
            overhead: spec.around.overhead,
            fronts: spec.around.fronts,
            frame_len_max: spec.setup.frame_len_max,
            flows: flows.into(),
            connections: &[],
            faults: &[],
            seed: 0,
            checks: Checks::Off,
            latency_parts: false,
        })
    }

    /// Builds a network, in which nothing has moved yet.
    ///
    /// # Errors
    /// The first part that cannot be built.
    pub fn build(plan: &Plan<'_>) -> Result<Self, NetworkError> {
        // Tried before anything is built: a network for which there is no memory is refused whole.
        let memory = memory::try_address_space(plan)?;
        let routes = plan.topology.routes()?;
        let mut parts = Parts::new(plan, &routes)?;
        let ideals = ideal::ideals(plan, &parts, &routes);
        let patience = parts.patience();
        let partners = credits::partners(plan, &parts)?;
        let mut cables = Cables::new();
        let mut of_host = partners.iter();
        // Nodes are added in order, so that a node's number is its component's.
        for part in &parts.nodes {
            let ports = match part {
                // Credits to each partner have a port of their own, after the host's.
                Part::Host { .. } => 1 + of_host.next().map_or(0, Vec::len),
                Part::Switch { plan, .. } => plan.config.ports.len(),
            };
            cables.add(ports, part.latency(plan.delay));
        }
        for (link, spec) in plan.topology.links().iter().zip(&parts.links) {
            let [a, b] = link.ends.map(|(component, port)| Place { component, port });
            let LinkSpec { rate, propagation } = *spec;
            let spec = CableSpec { rate, propagation, overhead: plan.overhead };
            cables.lay(a, b, &spec).map_err(|error| no_cable(plan.topology, [a, b], error))?;
        }
        let delays = credits::lay_ways(&parts, plan, &routes, &partners, &mut cables)?;
        let (schedule, mut ends) = Schedule::new(cables);
        let lost = faulty::disturb(plan, &mut ends)?;
        let mut sides = tcp::sides(plan, &parts.endpoints().collect::<Vec<_>>())?.into_iter();
        let checks = plan.checks;
        let reader = parts.endpoints().next().filter(|_| plan.latency_parts).map(Reader::new);
        let mut nodes = Vec::with_capacity(ends.len());
        let agendas = agenda::by_sender(&plan.flows, partners.len());
        let mut agendas = agendas.iter();
        let mut ways = partners.into_iter().zip(delays);
        for ((part, ends), node) in parts.nodes.drain(..).zip(ends).zip(plan.topology.nodes()) {
            let name = || node.name.clone();
            nodes.push(match part {
                Part::Host { endpoint, link, response } => {
                    let link = HostLink { link, response };
                    let (partners, delays) = ways.next().unwrap_or_default();
                    let own = agendas.next().map(Vec::as_slice).unwrap_or_default();
                    let host = at_port(plan, endpoint, link, ends, partners, delays, own)
                        .map_err(|source| NetworkError::Host { name: name(), source })?;
                    Node::edge(host.with_tcp(sides.next().flatten()))
                }
                Part::Switch { plan, .. } => {
                    let log = reader.clone().map(|reader| {
                        let ports = 0..plan.config.ports.len();
                        let cables = ports.map(|port| plan.around.propagation_of(port));
                        SwitchLog::new(reader, plan.around.latency, cables.collect())
                    });
                    // A port without a link gets the end of a cable that leads nowhere.
                    let ends = ends.into_iter().map(|end| end.unwrap_or_else(|| cable(1).0));
                    let built = Switch::on(plan.config, &plan.around, ends.collect())
                        .map_err(|source| NetworkError::Switch { name: name(), source })?;
                    let is_checked = checks != Checks::Off;
                    let watch = (is_checked || log.is_some())
                        .then(|| Box::new(SwitchWatch::new(built.core(), is_checked, log)));
                    Node::Switch(Box::new(built), watch)
                }
            });
        }
        let nodes = Nodes::new(nodes, schedule);
        let is_host =
            plan.topology.nodes().iter().map(|node| node.kind == NodeKind::Host).collect();
        let (flows, tcp_patience) = (plan.flows.clone(), tcp::patience(plan));
        Ok(Self { nodes, flows, lost, ideals, patience, tcp_patience, is_host, memory })
    }

    /// Memory that must stay free while frames move: pools and queues double when they grow, and results are large.
    pub(crate) const fn spare(&self) -> usize {
        self.memory / 8
    }

    /// All flows, by id.
    #[must_use]
    pub fn flows(&self) -> &[Flow] {
        &self.flows
    }

    /// Hosts, in the order of their numbers.
    pub fn hosts(&self) -> impl Iterator<Item = &Host> {
        self.nodes.edges()
    }

    /// Switches, in the order of the topology.
    pub fn switches(&self) -> impl Iterator<Item = &Switch> {
        self.nodes.switches()
    }

    /// The ledger of each switch.
    #[must_use]
    pub fn ledgers(&self) -> Vec<Ledger> {
        self.nodes.ledgers()
    }

    /// By link: frames that were lost because it was down.
    pub fn lost(&self) -> impl Iterator<Item = u64> {
        let count = |lost: &Arc<AtomicU64>| lost.load(Ordering::Relaxed);
        self.lost.iter().map(move |lost| lost.as_ref().map_or(0, count))
    }

    /// By flow: least time from its start to its delivery, alone in the network.
    #[must_use]
    pub fn ideals(&self) -> &[Span] {
        &self.ideals
    }

    /// Longest time that an endpoint waits for an ACK before it sends again.
    #[must_use]
    pub const fn patience(&self) -> Span {
        self.patience
    }

    /// Longest time that a TCP connection waits for an acknowledgement before it sends again.
    #[must_use]
    pub const fn tcp_patience(&self) -> Span {
        self.tcp_patience
    }

    /// Virtual time of the run.
    #[must_use]
    pub const fn now(&self) -> Instant {
        self.nodes.now()
    }

    /// Number of flows that are done or given up at their senders.
    #[must_use]
    pub fn closed(&self) -> usize {
        self.hosts().map(Host::closed).sum()
    }

    /// Number of flows that have been delivered.
    #[must_use]
    pub fn delivered(&self) -> usize {
        self.hosts().map(|host| host.delivered().len()).sum()
    }

    /// Whether all flows are done and no endpoint has anything to do.
    #[must_use]
    pub fn is_idle(&self) -> bool {
        self.closed() == self.flows.len() && self.hosts().all(Host::is_idle)
    }

    /// Steps switches with paused outputs once more, so that the time of those pauses is counted up to now.
    pub fn settle(&mut self) {
        self.nodes.settle(|switch| {
            let core = switch.core();
            let ports = core.snapshot.load().config.ports.len();
            (0..ports).filter_map(PortId::new).any(|port| !core.paused(port).is_empty())
        });
    }

    /// Sums of the parts of latency, by number of the receiving host; empty if they were not recorded.
    #[must_use]
    pub fn parts(&self) -> Vec<LatencyParts> {
        let hosts = self.hosts().filter_map(|host| host.watch()?.log.as_ref());
        let switches = self.nodes.watches().filter_map(|of| of?.1.log.as_ref());
        let switches: Vec<&SwitchLog> = switches.collect();
        journey::parts(&hosts.collect::<Vec<_>>(), &switches)
    }

    /// Whether a frame was lost anywhere in the network.
    fn has_lost(&self) -> bool {
        let on_links = self.lost.iter().flatten().any(|lost| lost.load(Ordering::Relaxed) > 0);
        let at_hosts = self.hosts().any(|host| {
            let dropped = host.port_counters().rx_dropped;
            host.endpoint().stats().overruns > 0 || dropped.iter().any(|(_, count)| *count > 0)
        });
        on_links || at_hosts || self.ledgers().iter().any(|ledger| ledger.dropped > 0)
    }

    /// Violations that the checkers found, with their nodes; to be called when no frame is in flight.
    #[must_use]
    pub fn violations(&self) -> Vec<(NodeId, Violation)> {
        let now = self.now();
        // Only then must all credits be back: a lost frame takes credit that is reported later, or never.
        let is_delivered = self.is_idle() && self.delivered() == self.flows.len();
        let is_all_there = is_delivered && !self.has_lost();
        let mut hosts = self.hosts();
        let mut all = Vec::new();
        for (node, is_host) in self.is_host.iter().enumerate() {
            let found = if *is_host {
                hosts.next().map(|host| host.violations(now, is_all_there))
            } else {
                let watch = self.nodes.watches().nth(node).flatten();
                watch.map(|(switch, watch)| watch.violations(now, switch.core()))
            };
            all.extend(found.unwrap_or_default().into_iter().map(|it| (node, it)));
        }
        all
    }

    /// Runs until `end` on `threads` threads.
    ///
    /// # Errors
    /// Never: a wire in virtual time does not fail.
    pub fn run(&mut self, end: Instant, threads: usize) -> Result<(), &PortError> {
        self.nodes.run(end, threads)
    }
}
