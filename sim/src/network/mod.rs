//! A network in virtual time: switches joined to each other, and at each host an RC Link endpoint and TCP connections.
//!
//! [`Plan`] → [`Network`], which runs; what came of flows is at their hosts. [`NetworkSpec`] is a short way to a plan
//! in which all switches are alike.
//!
//! Units: picoseconds, bytes of payload.
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
use crate::rclink_checkers::heard::Reader;
use crate::results::network::LatencyParts;
use crate::scenario::fault::Fault;
use crate::scenario::flow::{Flow, FlowError};
use crate::scenario::{Checks, Site, SwitchPlan, TemplateError};
use crate::setup::Setup;
use crate::switch::{Around, Switch};
use crate::switch_watch::SwitchWatch;
use crate::topology::{LinkSpec, NodeId, NodeKind, Topology, TopologyError};

pub use self::agenda::{Delivered, Sent};
pub use self::host::Host;
pub use self::parts::MESSAGE_FRAMES_MAX;
pub use self::tcp::TcpSide;

/// A network to be built.
pub struct Plan<'a> {
    /// Hosts, switches and cables; each link says what it is like.
    pub topology: &'a Topology,
    /// What the switch at a site is like.
    pub switches: &'a dyn Fn(&Site<'_>) -> Result<SwitchPlan, TemplateError>,
    /// What the endpoint at a site is like, beside its number, its peers and its kind of frame.
    pub endpoints: &'a dyn Fn(&Site<'_>, &mut EndpointSpec) -> Result<(), TemplateError>,
    /// What frames hosts send.
    pub kind: Kind,
    /// What an endpoint takes for each frame.
    pub delay: Latency,
    /// Whether frames take their true wire time.
    pub overhead: bool,
    /// Whether only fronts of frames are kept ([`weft_dataplane::pool::FRONT_LEN`]), by hosts and switches; it decides nothing.
    pub fronts: bool,
    /// Longest frame without FCS that a host takes.
    pub frame_len_max: usize,
    /// What moves.
    pub flows: Arc<[Flow]>,
    /// By workload: what its TCP connections are like; those of a flow that TCP carries have to be there.
    pub connections: &'a [Option<ConnectionSpec>],
    /// What goes wrong.
    pub faults: &'a [Fault],
    /// Seed of what goes wrong at random.
    pub seed: u64,
    /// Whether endpoints are checked, frame by frame.
    pub checks: Checks,
    /// Whether latencies are taken apart.
    pub latency_parts: bool,
}

/// A network whose switches are all alike.
#[derive(Clone, Debug)]
pub struct NetworkSpec {
    /// Hosts, switches and cables; those that do not say what they are like are as `setup` and `around` have it.
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
    /// There is no memory for it.
    #[error("a network of {switches} switches and {hosts} hosts")]
    Memory {
        /// Switches.
        switches: usize,
        /// Hosts.
        hosts: usize,
        /// How much it takes before anything moves.
        source: NoMemory,
    },
    /// A link that does not say what it is like.
    #[error("link {link} between {a:?} and {b:?} has no rate and no length")]
    Link {
        /// Its number.
        link: usize,
        /// One end.
        a: String,
        /// The other.
        b: String,
    },
    /// A node has no place in a template.
    #[error("node {name:?}")]
    Template {
        /// Which.
        name: String,
        /// Why.
        source: TemplateError,
    },
    /// A switch whose configuration has not a port for each link.
    #[error("switch {name:?} is configured with {had} ports: expected {links}, one for each link")]
    Ports {
        /// Which.
        name: String,
        /// Ports.
        had: usize,
        /// Links.
        links: usize,
    },
    /// Frames take their true wire time at one end of a link only.
    #[error(
        "switch {name:?} counts frames' true wire time and its neighbours do not, or the other way round"
    )]
    Overhead {
        /// Which switch.
        name: String,
    },
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
    /// A TCP host or a connection.
    #[error("host {name:?}")]
    Tcp {
        /// Which.
        name: String,
        /// Why.
        source: TcpError,
    },
    /// More connections from a host than it has ports.
    #[error("host {name:?} begins more TCP connections than it has ports: expected {most} at most")]
    Connections {
        /// Which.
        name: String,
        /// Most.
        most: usize,
    },
    /// A TCP flow of a workload without connections.
    #[error("flow {flow} is a TCP connection: expected a specification for workload {workload}")]
    NoConnection {
        /// Which.
        flow: usize,
        /// Its workload.
        workload: u16,
    },
    /// A cable.
    #[error(transparent)]
    Cable(CableError),
    /// A link that is so long, or whose ends are so slow, that there is no room for what it carries.
    #[error(
        "the link between {a:?} and {b:?} can hold {frames} frames: expected {most} at most of all links together; make it shorter or slower, or the latencies at its ends less"
    )]
    Room {
        /// One end.
        a: String,
        /// The other.
        b: String,
        /// Frames that it can hold.
        frames: u64,
        /// Most of all.
        most: u64,
    },
    /// What moves.
    #[error(transparent)]
    Flow(#[from] FlowError),
    /// A flow of more frames than a message has numbers for.
    #[error(
        "flow {flow} from host {from} has {bytes} bytes: expected at most {most}, which are 2^31 frames"
    )]
    Message {
        /// The flow.
        flow: usize,
        /// The sender.
        from: u16,
        /// Its bytes.
        bytes: u64,
        /// Most.
        most: u64,
    },
    /// A flow on another virtual channel than that of its sender's requests.
    #[error(
        "flow {flow} on virtual channel {vc}: expected {expected}, on which host {from} sends to host {to}; its endpoint's request_vc and banks say so"
    )]
    Vc {
        /// The flow.
        flow: usize,
        /// Its channel.
        vc: u8,
        /// The endpoint's.
        expected: u8,
        /// The sender.
        from: u16,
        /// The receiver.
        to: u16,
    },
    /// More partners than credits can be counted for.
    #[error(
        "host {name:?} has credits with {had} others: expected flows with at most {most}, or PFC"
    )]
    Partners {
        /// Which host.
        name: String,
        /// Partners.
        had: usize,
        /// Most.
        most: usize,
    },
    /// A fault at what is not there.
    #[error("fault {fault} is at {what} {had}: expected 0 to {most}")]
    Fault {
        /// Which fault, by place.
        fault: usize,
        /// A link or a host.
        what: &'static str,
        /// Its number.
        had: usize,
        /// The last one.
        most: usize,
    },
}

/// A network at work.
pub struct Network {
    nodes: Nodes<Host>,
    flows: Arc<[Flow]>,
    /// By link: frames that were lost as it was down.
    lost: Vec<Option<Arc<AtomicU64>>>,
    /// By flow: the least time that it can take.
    ideals: Vec<Span>,
    /// So long at most does an endpoint wait for an ACK.
    patience: Span,
    /// And a TCP connection.
    tcp_patience: Span,
    /// By node.
    is_host: Vec<bool>,
    /// Address space that it took before anything moved, about.
    memory: usize,
}

/// Why there is no cable between two places, of which nodes are the components.
fn no_cable(topology: &Topology, ends: [Place; 2], error: CableError) -> NetworkError {
    let CableError::Room { frames, most } = error else { return NetworkError::Cable(error) };
    let name = |place: Place| topology.nodes().get(place.component).map(|node| node.name.clone());
    let [a, b] = ends.map(|place| name(place).unwrap_or_default());
    NetworkError::Room { a, b, frames, most }
}

impl Network {
    /// Builds a network of `spec`; nothing has moved yet. Switches and endpoints are changed by `change`.
    ///
    /// # Errors
    /// See [`NetworkError`].
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

    /// Builds a network; nothing has moved yet.
    ///
    /// # Errors
    /// See [`NetworkError`].
    pub fn build(plan: &Plan<'_>) -> Result<Self, NetworkError> {
        let memory = memory::try_address_space(plan)?;
        let routes = plan.topology.routes()?;
        let mut parts = Parts::new(plan, &routes)?;
        let ideals = ideal::ideals(plan, &parts, &routes);
        let patience = parts.patience();
        let partners = credits::partners(plan, &parts)?;
        let mut cables = Cables::new();
        let mut of_host = partners.iter();
        for part in &parts.nodes {
            let ports = match part {
                // The ways of credits are ports after its own.
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

    /// Memory that is to be there while frames move: pools and queues double when they grow, and results are large.
    pub(crate) const fn spare(&self) -> usize {
        self.memory / 8
    }

    /// What moves, by id.
    #[must_use]
    pub fn flows(&self) -> &[Flow] {
        &self.flows
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

    /// By link: frames that were lost as it was down.
    pub fn lost(&self) -> impl Iterator<Item = u64> {
        let count = |lost: &Arc<AtomicU64>| lost.load(Ordering::Relaxed);
        self.lost.iter().map(move |lost| lost.as_ref().map_or(0, count))
    }

    /// By flow: the least time from its start to its delivery, alone in the network.
    #[must_use]
    pub fn ideals(&self) -> &[Span] {
        &self.ideals
    }

    /// So long at most does an endpoint wait for an ACK before it sends again.
    #[must_use]
    pub const fn patience(&self) -> Span {
        self.patience
    }

    /// So long at most does a TCP connection wait for an acknowledgement.
    #[must_use]
    pub const fn tcp_patience(&self) -> Span {
        self.tcp_patience
    }

    /// Where the run has come to.
    #[must_use]
    pub const fn now(&self) -> Instant {
        self.nodes.now()
    }

    /// Flows that are done or given up at their senders.
    #[must_use]
    pub fn closed(&self) -> usize {
        self.hosts().map(Host::closed).sum()
    }

    /// Flows that are all there.
    #[must_use]
    pub fn delivered(&self) -> usize {
        self.hosts().map(|host| host.delivered().len()).sum()
    }

    /// Whether all flows are done, and no endpoint has anything to do.
    #[must_use]
    pub fn is_idle(&self) -> bool {
        self.closed() == self.flows.len() && self.hosts().all(Host::is_idle)
    }

    /// Has switches count the time of pauses up to this instant: else they have when they next look.
    pub fn settle(&mut self) {
        self.nodes.settle(|switch| {
            let core = switch.core();
            let ports = core.snapshot.load().config.ports.len();
            (0..ports).filter_map(PortId::new).any(|port| !core.paused(port).is_empty())
        });
    }

    /// What latencies are made of, by number of host that took the frames, if that was noted.
    #[must_use]
    pub fn parts(&self) -> Vec<LatencyParts> {
        let hosts = self.hosts().filter_map(|host| host.watch()?.log.as_ref());
        let switches = self.nodes.watches().filter_map(|of| of?.1.log.as_ref());
        let switches: Vec<&SwitchLog> = switches.collect();
        journey::parts(&hosts.collect::<Vec<_>>(), &switches)
    }

    /// Whether a frame was lost anywhere.
    fn has_lost(&self) -> bool {
        let on_links = self.lost.iter().flatten().any(|lost| lost.load(Ordering::Relaxed) > 0);
        let at_hosts = self.hosts().any(|host| {
            let dropped = host.port_counters().rx_dropped;
            host.endpoint().stats().overruns > 0 || dropped.iter().any(|(_, count)| *count > 0)
        });
        on_links || at_hosts || self.ledgers().iter().any(|ledger| ledger.dropped > 0)
    }

    /// What checkers object to, by node, once nothing is on its way any more.
    #[must_use]
    pub fn violations(&self) -> Vec<(NodeId, Violation)> {
        let now = self.now();
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

    /// Runs until `end` on so many threads.
    ///
    /// # Errors
    /// Never: a wire does not fail.
    pub fn run(&mut self, end: Instant, threads: usize) -> Result<(), &PortError> {
        self.nodes.run(end, threads)
    }
}
