//! Scenarios: a network, what moves over it, what goes wrong, and what is expected of it.
//!
//! [`Scenario`] is all of it, typed; nothing here reads a file.
//!
//! Units: picoseconds, bytes of payload.
//! Source: docs/spec/model.md §3.

pub mod circles;
pub mod expect;
pub mod fault;
pub mod flow;
pub mod metrics;
pub mod run;
pub mod workload;

use std::error::Error;
use std::fmt;

use weft_dataplane::config::SwitchConfig;
use weft_dataplane::time::{Instant, Span};
use weft_hosts::frames::Kind;
use weft_hosts::rclink::endpoint::EndpointSpec;

use crate::engine::Latency;
use crate::switch::Around;
use crate::topology::{LinkSpec, NodeId, Topology};
use expect::Expect;
use fault::Fault;
use workload::Workload;

/// Why a template has nothing for a node.
pub type TemplateError = Box<dyn Error + Send + Sync>;

/// A switch or a host that a template is asked about.
#[derive(Clone, Copy, Debug)]
pub struct Site<'a> {
    /// Its node in the topology.
    pub node: NodeId,
    /// Its name.
    pub name: &'a str,
    /// By port: the link that ends there. A host has one.
    pub links: &'a [LinkSpec],
}

/// A switch of a scenario.
#[derive(Clone, Debug)]
pub struct SwitchPlan {
    /// Its configuration, with a port for each link. The network sets rates of ports after their links, and adds static
    /// entries for routes.
    pub config: SwitchConfig,
    /// What is around it. Its propagation is that of a port without a link.
    pub around: Around,
}

/// What the switch at a site is like.
pub type SwitchTemplate = dyn Fn(&Site<'_>) -> Result<SwitchPlan, TemplateError> + Send + Sync;
/// Changes an endpoint, whose number, peers and kind of frame are set, to what it is like at a site.
pub type EndpointTemplate =
    dyn Fn(&Site<'_>, &mut EndpointSpec) -> Result<(), TemplateError> + Send + Sync;

/// Endpoints of a scenario.
pub struct Endpoints {
    /// Kind of frame that they send.
    pub kind: Kind,
    /// What an endpoint takes for each frame.
    pub delay: Latency,
    /// Whether they are in LITE mode, which sends nothing again: frames that are lost fail a run.
    pub lite: bool,
    /// Whether frames take their true wire time, as switches have it.
    pub overhead: bool,
    /// Longest frame without FCS that a host takes.
    pub frame_len_max: usize,
    /// All else.
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

/// Whether endpoints ([`crate::rclink_checkers`]) and switches ([`crate::checkers`]) are checked; it decides nothing.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Checks {
    /// No.
    #[default]
    Off,
    /// Yes.
    On,
    /// Yes, and all that is heard of them is kept.
    Keep,
}

/// What is allowed, and how results are taken.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Options {
    /// Whether PFC may wait for itself in a circle over the routes.
    pub pfc_circles: bool,
    /// Time between two samples of queues' depths; doubled when there are too many.
    pub sampling: Span,
    /// Most samples of a series.
    pub samples_max: usize,
    /// Whether frames are kept whole, payload and ICRC included; else only what is read of them. It decides nothing.
    pub full_frames: bool,
    /// Whether endpoints and switches are checked.
    pub checks: Checks,
    /// Whether latencies are taken apart, which takes memory for each frame and hop. It decides nothing else.
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

/// A network, what moves over it, what goes wrong, and what is expected of it.
pub struct Scenario {
    /// For people.
    pub name: String,
    /// Seed of all that is random.
    pub seed: u64,
    /// When it ends at the latest.
    pub until: Instant,
    /// Hosts, switches, and links with their rates and lengths.
    pub topology: Topology,
    /// What each switch is like.
    pub switches: Box<SwitchTemplate>,
    /// What endpoints are like.
    pub endpoints: Endpoints,
    /// What moves.
    pub workloads: Vec<Workload>,
    /// What goes wrong.
    pub faults: Vec<Fault>,
    /// What is expected of the results.
    pub expects: Vec<Expect>,
    /// What is allowed, and how results are taken.
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
