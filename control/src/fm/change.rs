//! What happens when something of the fabric comes or goes while it runs.
//!
//! Shape: [`look`] asks the switches -> [`Event`]s; [`Running::on`] -> new graph, new routes, sent -> [`Report`].
//! Units: none.
//! Source: CXL 3.1 section 7.7.12.6; fabric.md, "FM module".
//!
//! New tables are made and proved whole before the first of them is sent; until then, and where none can be made, the old
//! ones stay. A notification says that something happened, not what: whoever gets one calls [`Running::watch`].

use std::collections::BTreeSet;
use std::fmt;

use weft_parsers::fabric::Pid;

use super::bind::{Bindings, Bridge, Remote};
use super::cci::{CallError, Fabric};
use super::discover::{Seen, ports_seen, ports_up};
use super::graph::{Graph, PortRef, SwitchId};
use super::inventory::{Inventory, OWN_PORT, Partner, Port, Role};
use super::plan::send::{SendError, Sent, send};
use super::plan::{Options, Plan, PlanError, make};
use super::routes::{Partition, Tables};

/// What a port says of a PBR component at its other end (5101h octet 4).
const PBR: u8 = 6;

/// Something that came or went.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum Event {
    /// A link between switches, at one of its ends, is down.
    LinkDown(PortRef),
    /// A link that was known is up again.
    LinkUp(PortRef),
    /// A port that led nowhere has a link: there may be new components, which a discovery finds.
    NewLink(PortRef),
    /// An edge port lost its host, device or GFD.
    EdgeDown(PortRef),
    /// A switch does not answer, though links to it are up.
    SwitchGone(SwitchId),
}

/// Why an event was not dealt with to the end.
#[derive(Debug, thiserror::Error)]
pub enum ChangeError {
    /// There are no new tables; the old ones stay.
    #[error("no new tables: the old ones stay")]
    Plan(#[from] PlanError),
    /// The new tables are not everywhere.
    #[error("the new tables are not everywhere")]
    Send(#[from] SendError),
    /// A discovery is needed first.
    #[error("{0} has a link that is not known: discover")]
    Unknown(PortRef),
    /// What happened, and why it was not dealt with to the end.
    #[error("{0}")]
    Event(Event, #[source] Box<ChangeError>),
}

impl fmt::Display for Event {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::LinkDown(at) => write!(f, "link at {at} is down"),
            Self::LinkUp(at) => write!(f, "link at {at} is up again"),
            Self::NewLink(at) => write!(f, "{at} has a new link"),
            Self::EdgeDown(at) => write!(f, "{at} has lost what was there"),
            Self::SwitchGone(id) => write!(f, "{id} does not answer"),
        }
    }
}

/// What was done.
#[derive(Debug)]
pub struct Report {
    /// What happened.
    pub event: Event,
    /// What was sent.
    pub sent: Sent,
    /// PIDs that do not reach all others now.
    pub partition: Option<Partition>,
    /// Virtual links whose way was hit: their hosts saw a surprise link down; they have a new way.
    pub hit: Vec<Remote>,
    /// Virtual links without a way: they were unbound.
    pub severed: Vec<Remote>,
    /// Ends of those that did not answer.
    pub left: Vec<Bridge>,
}

/// A fabric that runs.
#[derive(Debug)]
pub struct Running {
    /// What there is.
    pub inventory: Inventory,
    /// What the switches are to hold.
    pub plan: Plan,
    /// What they hold, as far as they answered.
    pub standing: Tables,
    /// Who sees what.
    pub bindings: Bindings,
    /// How routes are made.
    pub options: Options,
    /// Waits until packets to withdrawn PIDs have left the fabric.
    pub drain: fn(),
}

/// What the switches say has come or gone, and switches that do not answer.
pub fn look(
    fabric: &mut Fabric,
    inventory: &Inventory,
) -> (BTreeSet<Event>, Vec<(SwitchId, CallError)>) {
    let (mut events, mut silent) = (BTreeSet::new(), Vec::new());
    for (id, switch) in inventory.by_id().filter(|(_, switch)| switch.whole) {
        let asked: Vec<u8> = switch.ports.iter().map(|port| port.number).collect();
        let seen = match ports_seen(fabric, switch.way(), &asked) {
            Ok(seen) => seen,
            Err(error) => {
                silent.push((id, error));
                continue;
            }
        };
        for port in &switch.ports {
            let at = PortRef::new(id, port.number);
            let now = seen.iter().find(|seen| seen.port == port.number);
            let is_up = now.is_some_and(|now| now.up);
            let link = inventory.link_at(at);
            let was_up = link.map_or(port.up, |link| !inventory.down.contains(&link));
            match (is_up, was_up, link, port.role) {
                (false, true, Some(link), _) => drop(events.insert(Event::LinkDown(first(link)))),
                (true, false, Some(link), _) => {
                    // Both ends have to say so; the other one is asked too.
                    let far = if first(link) == at { last(link) } else { first(link) };
                    let far_way = inventory.switch(far.switch).map(super::inventory::Switch::way);
                    let far_up = far_way.map(|way| ports_up(fabric, way, &[far.port]));
                    if matches!(far_up, Some(Ok(list)) if list == [far.port]) {
                        events.insert(Event::LinkUp(first(link)));
                    }
                }
                (false, true, None, Role::Usp | Role::Dsp) => {
                    events.insert(Event::EdgeDown(at));
                }
                (true, _, None, _) if now.is_some_and(|now| is_new(port, *now)) => {
                    events.insert(Event::NewLink(at));
                }
                _ => {}
            }
        }
    }
    (events, silent)
}

/// Whether somebody is at a port that is up who was not there before, or is somebody else.
///
/// A link is up before its ends have told each other who they are; what has not told yet is looked at later.
const fn is_new(port: &Port, now: Seen) -> bool {
    match (port.role, port.up, port.partner) {
        (Role::Usp | Role::Off, up, _) => !up,
        (_, _, Partner::Foreign | Partner::Switch(_) | Partner::Host) => !port.up,
        (_, false, _) | (Role::Fabric, true, Partner::Nobody) => now.partner != 0,
        (Role::Fabric, true, _) => false,
        (Role::Dsp, true, Partner::Device(was)) => now.partner != was && now.partner != 0,
        (Role::Dsp, true, Partner::Gfd(_)) => now.partner != PBR && now.partner != 0,
        (Role::Dsp, true, Partner::Nobody) => now.partner != 0,
    }
}

const fn first(link: [PortRef; 2]) -> PortRef {
    let [first, _] = link;
    first
}

const fn last(link: [PortRef; 2]) -> PortRef {
    let [_, last] = link;
    last
}

/// The links by which static messages from a switch go to a PID; none when they do not get there.
pub(super) fn way(graph: &Graph, tables: &Tables, from: SwitchId, to: Pid) -> Option<Vec<PortRef>> {
    let (mut at, mut way) = (from, Vec::new());
    for _ in 0..=graph.switch_count() {
        let port = tables.get(at)?.static_port(to)?;
        let here = PortRef::new(at, port);
        match graph.far(here) {
            Some(far) => {
                way.extend([here, far]);
                at = far.switch;
            }
            // An edge port of the PID's own switch, or a link that is lost.
            None => return graph.endpoint(to).filter(|end| end.at == here).map(|_| way),
        }
    }
    None
}

/// Both directions of a virtual link.
fn both_ways(graph: &Graph, tables: &Tables, link: &Remote) -> Option<Vec<PortRef>> {
    let mut there = way(graph, tables, link.host.bridge.switch, link.below.pid)?;
    there.extend(way(graph, tables, link.below.bridge.switch, link.host.pid)?);
    Some(there)
}

impl Running {
    /// Deals with one event.
    ///
    /// # Errors
    /// See [`ChangeError`]; calling it again goes on.
    pub fn on(&mut self, fabric: &mut Fabric, event: Event) -> Result<Report, ChangeError> {
        let mut inventory = self.inventory.clone();
        match event {
            Event::LinkDown(at) => {
                let link = inventory.link_at(at).ok_or(ChangeError::Unknown(at))?;
                inventory.down.insert(link);
            }
            Event::LinkUp(at) => {
                let link = inventory.link_at(at).ok_or(ChangeError::Unknown(at))?;
                inventory.down.remove(&link);
            }
            Event::NewLink(at) => return Err(ChangeError::Unknown(at)),
            Event::EdgeDown(at) => edge_down(&mut inventory, at),
            Event::SwitchGone(id) => {
                let of = inventory.links.iter().filter(|ends| ends.iter().any(|e| e.switch == id));
                let lost: Vec<_> = of.copied().collect();
                inventory.down.extend(lost);
            }
        }
        let before = self.plan.graph.clone();
        let plan = make(&inventory, &self.options, Some(&self.plan))?;
        // From here on the fabric is as the event says, even where a switch does not take its tables.
        let old = std::mem::replace(&mut self.plan, plan);
        self.inventory = inventory;
        let plan = &self.plan;
        let sent = send(fabric, &self.inventory, &[], plan, &mut self.standing, self.drain)?;
        let is_cut = |at: PortRef| before.far(at).is_some() && plan.graph.far(at).is_none();
        let ways = |link: &Remote| both_ways(&plan.graph, &plan.routed.tables, link);
        let was_hit = |link: &&Remote| {
            let old = both_ways(&before, &old.routed.tables, link);
            old.is_some_and(|way| way.into_iter().any(is_cut)) && ways(link).is_some()
        };
        let hit = self.bindings.remote.iter().filter(was_hit).copied().collect();
        let (severed, left) =
            self.bindings.sever(fabric, &self.inventory, |link| ways(link).is_none());
        let partition = plan.routed.partition.clone();
        Ok(Report { event, sent, partition, hit, severed, left })
    }

    /// Looks what has happened and deals with it, until there is nothing more; switches that do not answer although nothing
    /// else is wrong are gone.
    ///
    /// # Errors
    /// The first event that was not dealt with to the end, as [`ChangeError::Event`].
    pub fn watch(&mut self, fabric: &mut Fabric) -> Result<Vec<Report>, ChangeError> {
        let mut reports = Vec::new();
        // Each round takes a link or a switch away, or brings a link back once.
        for _ in 0..=2 * self.inventory.links.len() + self.inventory.switches.len() {
            let (events, silent) = look(fabric, &self.inventory);
            let gone = |id: SwitchId| {
                let mut links = self.inventory.links.iter();
                links.any(|l| l.iter().any(|e| e.switch == id) && !self.inventory.down.contains(l))
            };
            let unheard =
                silent.iter().find(|(id, _)| gone(*id)).map(|(id, _)| Event::SwitchGone(*id));
            let Some(event) = events.first().copied().or(unheard) else { break };
            let done = self.on(fabric, event);
            reports.push(done.map_err(|error| ChangeError::Event(event, Box::new(error)))?);
        }
        Ok(reports)
    }
}

fn edge_down(inventory: &mut Inventory, at: PortRef) {
    use super::graph::Key;
    let switch = inventory.switches.get_mut(at.switch.index());
    let ports = switch.map(|switch| switch.ports.as_mut_slice()).unwrap_or_default();
    if at.port != OWN_PORT
        && let Some(port) = ports.iter_mut().find(|port| port.number == at.port)
    {
        (port.up, port.partner) = (false, Partner::Nobody);
    }
}
