//! Reasons of a stall: which queues and flows wait, and for what, when nothing moves.
//!
//! A [`Network`] that has stalled gives [`Waiting`] entries, a circle of PFC first if there is one.
//!
//! Source: docs/spec/model.md §6.

use weft_dataplane::time::Instant;
use weft_dataplane::types::{PortId, Pri};
use weft_hosts::rclink::endpoint::Hold;

use crate::network::{Host, Network, Sent};
use crate::results::Waiting;
use crate::scenario::Scenario;
use crate::scenario::circles::find;
use crate::switch::Switch;
use crate::topology::{NodeId, NodeKind, Topology};

/// Most flows that are listed one by one.
const FLOWS_MAX: usize = 64;

/// A priority of an input of a switch.
type Held = (NodeId, PortId, Pri);

/// A network that has stalled.
struct Still<'a> {
    topology: &'a Topology,
    /// Switches, by node; `None` for hosts.
    switches: Vec<Option<&'a Switch>>,
    since: Instant,
}

/// Everything that waits, in a network in which nothing has moved since `since`.
pub(super) fn waiting(scenario: &Scenario, network: &Network, since: Instant) -> Vec<Waiting> {
    let topology = &scenario.topology;
    let mut switches: Vec<Option<&Switch>> = vec![None; topology.nodes().len()];
    for (node, switch) in topology.switches().zip(network.switches()) {
        switches.get_mut(node).into_iter().for_each(|slot| *slot = Some(switch));
    }
    let still = Still { topology, switches, since };
    let mut all = still.circle();
    all.extend(still.queues());
    let hosts: Vec<(String, &Host)> =
        topology.hosts().map(|node| still.name(node)).zip(network.hosts()).collect();
    let flows = hosts
        .iter()
        .flat_map(|(name, host)| host.sent().iter().map(move |sent| (name, *host, sent)));
    let told = flows.filter_map(|(name, host, sent)| {
        let on = reason(network, &hosts, host, sent)?;
        let since_ps = sent.begun.unwrap_or(since).max(since).as_ps();
        Some(Waiting { who: format!("flow {} from {name}", sent.id), on, since_ps })
    });
    let mut told = told.peekable();
    all.extend(told.by_ref().take(FLOWS_MAX));
    // Counted and not listed: a large run may have millions of flows.
    let more = told.count();
    if more > 0 {
        let on = "likewise: not told one by one".to_owned();
        all.push(Waiting { who: format!("{more} other flows"), on, since_ps: since.as_ps() });
    }
    all
}

/// The reason for which a flow waits at its sender; `None` if it is done.
fn reason(
    network: &Network,
    hosts: &[(String, &Host)],
    host: &Host,
    sent: &Sent,
) -> Option<String> {
    let flow = network.flows().get(sent.id as usize)?;
    let (to, receiver) = hosts.get(usize::from(flow.to))?;
    if sent.failed.is_some() && flow.is_tcp() {
        return Some("nothing any more: the connection was reset".to_owned());
    }
    if sent.failed.is_some() {
        return Some(format!(
            "nothing any more: {to} did not acknowledge, however often it was sent"
        ));
    }
    if sent.begun.is_none() {
        let open = flow.after.iter().find(|&&id| !is_done(host, id));
        return Some(match open {
            Some(id) => format!("flow {id}, which is not done"),
            None => format!("its start at {} ps", flow.start.as_ps()),
        });
    }
    // Without acknowledgements a flow is done when it is sent, whatever arrives.
    if sent.done.is_some() {
        let is_there = receiver.delivered().iter().any(|delivered| delivered.id == sent.id);
        return (!is_there)
            .then(|| format!("frames that were lost on the way to {to}, and are not sent again"));
    }
    if flow.is_tcp() {
        return Some(format!("an acknowledgement from {to}"));
    }
    Some(match host.endpoint().holds(flow.to) {
        Some(Hold::Pause) => "its switch, which has it paused (PFC)".to_owned(),
        Some(Hold::Credit) => format!("credit of {to}"),
        Some(Hold::Rate) => "its rate".to_owned(),
        None => format!("an acknowledgement from {to}"),
    })
}

/// Whether flow `id` is done, as far as `host` knows.
fn is_done(host: &Host, id: u32) -> bool {
    let sent = host.sent().binary_search_by_key(&id, |sent| sent.id).ok();
    let sent = sent.and_then(|place| host.sent().get(place));
    sent.is_some_and(|sent| sent.done.is_some())
        || host.delivered().iter().any(|delivered| delivered.id == id)
}

impl Still<'_> {
    fn name(&self, node: NodeId) -> String {
        self.topology.nodes().get(node).map(|node| node.name.clone()).unwrap_or_default()
    }

    fn far(&self, node: NodeId, port: PortId) -> Option<(NodeId, PortId)> {
        let link = *self.topology.nodes().get(node)?.ports.get(port.index())?;
        Some(self.topology.links().get(link)?.far(node))
    }

    /// Outputs of a switch with frames of `pri` that wait.
    fn waiting_outputs(&self, node: NodeId, pri: Pri) -> Vec<PortId> {
        let Some(Some(switch)) = self.switches.get(node) else { return Vec::new() };
        let core = switch.core();
        let ports = core.snapshot.load().config.ports.len();
        let ports = (0..ports).filter_map(PortId::new);
        ports.filter(|&port| core.buffer.depth(port, pri) > 0).collect()
    }

    /// Inputs that hold their peers back: above XOFF.
    fn held(&self) -> Vec<Held> {
        let mut held = Vec::new();
        for (node, switch) in self.switches.iter().enumerate() {
            let Some(switch) = switch else { continue };
            let core = switch.core();
            let ports = core.snapshot.load().config.ports.len();
            for port in (0..ports).filter_map(PortId::new) {
                held.extend(core.xoff(port).iter_down().map(|pri| (node, port, pri)));
            }
        }
        // For the binary search in `circle`.
        held.sort_unstable();
        held
    }

    /// Inputs that wait for each other in a circle, as far as PFC shows now.
    fn circle(&self) -> Vec<Waiting> {
        let held = self.held();
        // An input above XOFF waits for every output that has frames of its priority, and such an output for the input
        // at the far end of its cable, if that has paused it.
        let next = |(node, _, pri): Held| {
            let outputs = self.waiting_outputs(node, pri).into_iter();
            let inputs = outputs.filter_map(|output| self.far(node, output));
            let inputs = inputs.map(|(far, input)| (far, input, pri));
            inputs.filter(|input| held.binary_search(input).is_ok()).collect()
        };
        let Some(circle) = find(held.iter().copied(), next) else { return Vec::new() };
        let all = circle.iter().zip(circle.iter().cycle().skip(1));
        let told = all.map(|(&(node, port, pri), &(other, input, _))| Waiting {
            who: format!("{} port {} priority {}", self.name(node), port.index(), pri.index()),
            on: format!(
                "{} port {}, which has it paused (PFC), in a circle of {}",
                self.name(other),
                input.index(),
                circle.len()
            ),
            since_ps: self.since.as_ps(),
        });
        told.collect()
    }

    /// Queues that wait for the end of a pause, for their turn, or for their link.
    fn queues(&self) -> Vec<Waiting> {
        let mut all = Vec::new();
        for (node, switch) in self.switches.iter().enumerate() {
            let Some(switch) = switch else { continue };
            let core = switch.core();
            for pri in Pri::ALL {
                for port in self.waiting_outputs(node, pri) {
                    let Some((far, _)) = self.far(node, port) else { continue };
                    let far_name = self.name(far);
                    let on = if core.paused(port).contains(pri) {
                        let is_host = self
                            .topology
                            .nodes()
                            .get(far)
                            .is_some_and(|it| it.kind == NodeKind::Host);
                        let what = if is_host { "host" } else { "switch" };
                        format!("{what} {far_name}, which has it paused (PFC)")
                    } else if core.up().contains(port) {
                        format!("its turn on the link to {far_name}")
                    } else {
                        format!("the link to {far_name}, which is down")
                    };
                    let name = self.name(node);
                    let who = format!("{name} port {} priority {}", port.index(), pri.index());
                    all.push(Waiting { who, on, since_ps: self.since.as_ps() });
                }
            }
        }
        all
    }
}
