//! Scenarios: a network, the traffic over it, its faults, and the results expected of it.
//!
//! [`Scenario`] holds all of this as typed values; nothing here reads a file.
//!
//! Source: docs/spec/model.md §3.

pub mod circles;
pub mod expect;
pub mod fault;
pub mod flow;
pub mod metrics;
pub mod workload;

use std::error::Error;
use std::fmt;

use weft_dataplane::config::SwitchConfig;
use weft_dataplane::time::{Instant, Span};
use weft_hosts::frames::Kind;
use weft_hosts::rclink::endpoint::EndpointSpec;

use crate::engine::Latency;
use crate::switch::SwitchTiming;
use crate::topology::{LinkSpec, NodeId, Topology};
use expect::Expect;
use fault::Fault;
use workload::Workload;

/// Why a template refuses a node.
pub type TemplateError = Box<dyn Error + Send + Sync>;

/// A switch or a host for which a template is asked.
#[derive(Clone, Copy, Debug)]
pub struct Site<'a> {
    /// Number of its node in the topology.
    pub node: NodeId,
    /// Name of the node.
    pub name: &'a str,
    /// The links at its ports, in order. A host has one.
    pub links: &'a [LinkSpec],
}

/// Description of a switch of a scenario.
#[derive(Clone, Debug)]
pub struct SwitchPlan {
    /// Configuration with a port for each link. The network sets the rates of ports to those of their links, and adds
    /// static entries for routes.
    pub config: SwitchConfig,
    /// Conditions around it; the propagation here is that of ports without a link.
    pub around: SwitchTiming,
}

/// Gives the description of the switch at a site.
pub type SwitchTemplate = dyn Fn(&Site<'_>) -> Result<SwitchPlan, TemplateError> + Send + Sync;
/// Sets up the endpoint at a site; its number, peers and kind of frames are set already.
pub type EndpointTemplate =
    dyn Fn(&Site<'_>, &mut EndpointSpec) -> Result<(), TemplateError> + Send + Sync;

/// Description of the endpoints of a scenario.
pub struct Endpoints {
    /// Kind of the frames that they send.
    pub kind: Kind,
    /// Latency of an endpoint for each frame.
    pub delay: Latency,
    /// Whether they are in LITE mode, which sends nothing again: a lost frame fails the run.
    pub lite: bool,
    /// Whether frames take their true wire time, as at the switches.
    pub overhead: bool,
    /// Longest frame that a host takes, without FCS.
    pub frame_len_max: usize,
    /// Sets all other properties of each endpoint.
    pub template: Box<EndpointTemplate>,
}

impl fmt::Debug for Endpoints {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self { kind, delay, lite, overhead, frame_len_max, template: _ } = self;
        let mut all = f.debug_struct("Endpoints");
        all.field("kind", kind)
            .field("delay", delay)
            .field("lite", lite)
            .field("overhead", overhead);
        all.field("frame_len_max", frame_len_max).finish_non_exhaustive()
    }
}

/// Whether endpoints ([`crate::rclink_checkers`]) and switches ([`crate::checkers`]) are checked; the results are the
/// same.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Checks {
    /// Neither kind is checked.
    #[default]
    Off,
    /// Both kinds are checked.
    On,
    /// Both are checked, and everything heard of endpoints is kept.
    Keep,
}

/// Permissions of a run, and how its results are recorded.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Options {
    /// Whether routes may have circles in which PFC waits for itself.
    pub pfc_circles: bool,
    /// Time between two samples of queue depths; doubled when there are more than `samples_max`.
    pub sampling: Span,
    /// Most samples of a series before the time between them doubles.
    pub samples_max: usize,
    /// Whether frames are kept whole, payload and ICRC included, and not only their fronts; the results are the same.
    pub full_frames: bool,
    /// Whether endpoints and switches are checked.
    pub checks: Checks,
    /// Whether latencies are recorded by their parts, which takes memory for each frame and hop; other results are the
    /// same.
    pub latency_parts: bool,
}

impl Default for Options {
    fn default() -> Self {
        Self {
            pfc_circles: false,
            sampling: Span::from_us(1),
            samples_max: 1_024,
            full_frames: false,
            checks: Checks::Off,
            latency_parts: false,
        }
    }
}

/// A network with its traffic, its faults, and the results expected of it.
pub struct Scenario {
    /// Name for reports.
    pub name: String,
    /// Seed of everything that is random.
    pub seed: u64,
    /// When the run ends at the latest.
    pub until: Instant,
    /// Hosts, switches, and links with rates and lengths.
    pub topology: Topology,
    /// Template of the switches.
    pub switches: Box<SwitchTemplate>,
    /// Description of the endpoints.
    pub endpoints: Endpoints,
    /// Traffic of the run.
    pub workloads: Vec<Workload>,
    /// Faults of links and hosts.
    pub faults: Vec<Fault>,
    /// Results that are expected.
    pub expects: Vec<Expect>,
    /// Permissions of the run, and how its results are recorded.
    pub options: Options,
}

impl fmt::Debug for Scenario {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let mut all = f.debug_struct("Scenario");
        all.field("name", &self.name).field("seed", &self.seed).field("until", &self.until);
        all.field("endpoints", &self.endpoints).field("workloads", &self.workloads);
        all.field("faults", &self.faults).field("expects", &self.expects);
        all.field("options", &self.options).finish_non_exhaustive()
    }
}
