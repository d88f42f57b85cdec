//! The parts that a network is built from: templates applied to each node of the plan, and the checks among them.
//!
//! Source: docs/spec/model.md §3, §4.

use weft_dataplane::fdb::{FdbKey, StaticEntry};
use weft_dataplane::time::Span;
use weft_dataplane::types::PortSet;
use weft_hosts::frames::{FrameSpec, Station};
use weft_hosts::rclink::endpoint::EndpointSpec;
use weft_parsers::{AddrKey, Vid};

use super::tcp::has_tcp;
use super::{NetworkError, Plan};
use crate::engine::Latency;
use crate::scenario::flow::check;
use crate::scenario::{Site, SwitchPlan};
use crate::topology::{LinkSpec, NodeKind, Routes, Topology};

/// Default VLAN of a port.
const PVID: Vid = Vid::from_low_bits(1);
/// Most frames of a message, whose numbers have 31 bits.
pub const MESSAGE_FRAMES_MAX: u64 = 1 << 31;

/// A node before it is built.
pub(super) enum Part {
    Host {
        endpoint: Box<EndpointSpec>,
        link: LinkSpec,
        /// Time that the other end of its link takes to obey a PAUSE.
        response: Span,
    },
    Switch {
        plan: Box<SwitchPlan>,
    },
}

impl Part {
    /// Latency of the node for each frame; `delay` is that of hosts.
    pub const fn latency(&self, delay: Latency) -> Latency {
        match self {
            Self::Host { .. } => delay,
            Self::Switch { plan } => plan.around.of_switch(),
        }
    }
}

/// All parts of a network before they are built.
pub(super) struct Parts {
    pub nodes: Vec<Part>,
    pub links: Vec<LinkSpec>,
}

impl Parts {
    /// Applies the templates to each node, and adds static entries for routes.
    pub fn new(plan: &Plan<'_>, routes: &Routes) -> Result<Self, NetworkError> {
        let topology = plan.topology;
        let hosts = topology.hosts().count();
        check(&plan.flows, hosts)?;
        let links = links(topology)?;
        let stations: std::sync::Arc<[Station]> =
            (1..).take(hosts).map(Station::numbered).collect();
        let mut nodes = Vec::with_capacity(topology.nodes().len());
        let mut number = 0;
        let has_tcp = has_tcp(plan);
        let mut frames: Vec<FrameSpec> = Vec::with_capacity(hosts);
        for (node, of) in topology.nodes().iter().enumerate() {
            let at: Vec<LinkSpec> =
                of.ports.iter().filter_map(|&link| links.get(link).copied()).collect();
            let site = Site { node, name: &of.name, links: &at };
            let refused = |source| NetworkError::Template { name: of.name.clone(), source };
            nodes.push(match of.kind {
                NodeKind::Host => {
                    let mut endpoint =
                        Box::new(EndpointSpec::new(number, stations.clone(), plan.kind));
                    endpoint.padded = plan.overhead; // the least size is part of it
                    (plan.endpoints)(&site, &mut endpoint).map_err(refused)?;
                    number += 1;
                    frames.push(endpoint.frame.clone());
                    let link = at.first().copied();
                    let link = link.unwrap_or(LinkSpec::UNUSED);
                    Part::Host { endpoint, link, response: Span::ZERO }
                }
                NodeKind::Switch => {
                    let mut switch = Box::new((plan.switches)(&site).map_err(refused)?);
                    switch.around.fronts = plan.fronts;
                    switch.around.drop_runts &= plan.overhead; // without, short frames are no fault
                    fit(&mut switch, &of.name, &at, plan.overhead)?;
                    Part::Switch { plan: switch }
                }
            });
        }
        let switches = nodes.iter_mut().filter_map(|part| match part {
            Part::Switch { plan } => Some(plan),
            Part::Host { .. } => None,
        });
        // A host with TCP also has an untagged address, unless its own frames have the same entry.
        for (switch, to) in switches.zip(routes) {
            for ((frame, &ports), has_tcp) in frames.iter().zip(to).zip(&has_tcp) {
                let of_frames = entry(frame, ports);
                let of_tcp =
                    tcp_entry(frame, ports).filter(|it| *has_tcp && of_frames != Some(*it));
                let both = of_frames.into_iter().chain(of_tcp);
                switch.config.forward.static_entries.extend(both);
            }
        }
        let mut parts = Self { nodes, links };
        parts.responses(plan);
        parts.channels(plan)?;
        parts.messages(plan)?;
        Ok(parts)
    }

    /// Tells each host the time that the other end of its link takes to obey a PAUSE: a switch takes its latency, a
    /// host also that of the frame it is sending.
    fn responses(&mut self, plan: &Plan<'_>) {
        let takes: Vec<Span> = self
            .nodes
            .iter()
            .map(|part| {
                let Latency { receive, send, .. } = part.latency(plan.delay);
                receive + send
            })
            .collect();
        for link in plan.topology.links() {
            let [(a, _), (b, _)] = link.ends;
            for (node, far) in [(a, b), (b, a)] {
                if let Some(Part::Host { response, .. }) = self.nodes.get_mut(node) {
                    *response = takes.get(far).copied().unwrap_or_default();
                }
            }
        }
    }

    /// Checks that a message has numbers for all frames of each flow.
    fn messages(&self, plan: &Plan<'_>) -> Result<(), NetworkError> {
        let payloads: Vec<usize> = self.endpoints().map(|spec| spec.payload_max).collect();
        let messages = plan.flows.iter().enumerate().filter(|(_, flow)| !flow.is_tcp());
        for (flow, it) in messages {
            let payload = payloads.get(usize::from(it.from)).copied().unwrap_or(1);
            let most = (payload as u64).saturating_mul(MESSAGE_FRAMES_MAX);
            if it.bytes > most {
                return Err(NetworkError::Message { flow, from: it.from, bytes: it.bytes, most });
            }
        }
        Ok(())
    }

    /// Checks that flows are on the virtual channels that their senders use.
    fn channels(&self, plan: &Plan<'_>) -> Result<(), NetworkError> {
        let specs: Vec<&EndpointSpec> = self.endpoints().collect();
        for (flow, it) in plan.flows.iter().enumerate() {
            let (Some(vc), Some(spec)) = (it.vc, specs.get(usize::from(it.from))) else { continue };
            let expected = spec.vc_to(it.to);
            if vc != expected {
                let (from, to) = (it.from, it.to);
                return Err(NetworkError::Vc { flow, vc, expected, from, to });
            }
        }
        Ok(())
    }

    /// Descriptions of the endpoints, by number of the host.
    pub fn endpoints(&self) -> impl Iterator<Item = &EndpointSpec> {
        self.nodes.iter().filter_map(|part| match part {
            Part::Host { endpoint, .. } => Some(&**endpoint),
            Part::Switch { .. } => None,
        })
    }

    /// Longest time that an endpoint waits for an ACK.
    pub fn patience(&self) -> Span {
        let timeouts = self.endpoints().filter_map(|endpoint| endpoint.transport.timeout());
        timeouts.max().unwrap_or_default()
    }
}

/// Rate and propagation of each link.
fn links(topology: &Topology) -> Result<Vec<LinkSpec>, NetworkError> {
    let links = topology.links().iter().enumerate();
    let specs = links.map(|(link, it)| {
        it.spec.ok_or_else(|| {
            let name = |(node, _): (usize, _)| {
                topology.nodes().get(node).map(|node| node.name.clone()).unwrap_or_default()
            };
            let [a, b] = it.ends.map(name);
            NetworkError::Link { link, a, b }
        })
    });
    specs.collect()
}

/// Sets the rates and propagation delays of a switch's ports to those of its links.
fn fit(
    switch: &mut SwitchPlan,
    name: &str,
    links: &[LinkSpec],
    overhead: bool,
) -> Result<(), NetworkError> {
    let (had, name) = (switch.config.ports.len(), name.to_owned());
    if had != links.len() {
        return Err(NetworkError::Ports { name, had, links: links.len() });
    }
    if switch.around.overhead != overhead {
        return Err(NetworkError::Overhead { name });
    }
    for (port, link) in switch.config.ports.iter_mut().zip(links) {
        port.rate = link.rate;
    }
    switch.around.propagations = links.iter().map(|link| link.propagation).enumerate().collect();
    Ok(())
}

/// Static entry for frames to an endpoint whose own frames are like `frame`.
fn entry(frame: &FrameSpec, ports: PortSet) -> Option<StaticEntry> {
    let (addr, _) = frame.source_key()?;
    // A frame without a tag, or with a priority tag (VID 0), is in the port's VLAN.
    let vid = frame.vlan.map_or(0, |tci| tci.vid().get());
    let vid = if vid == 0 { PVID } else { Vid::from_low_bits(vid) };
    StaticEntry::over(FdbKey::new(vid, addr), ports)
}

/// Static entry for TCP packets to a host whose own frames are like `frame`; they have no tag.
fn tcp_entry(frame: &FrameSpec, ports: PortSet) -> Option<StaticEntry> {
    StaticEntry::over(FdbKey::new(PVID, AddrKey::ethernet(frame.src.mac)), ports)
}
