//! Changes of a running fabric: links, devices and components that come or go.
//!
//! [`scan`] asks the switches and returns [`Event`]s. [`Running::on`] turns an event into a new graph and new routes,
//! sends these, and returns a [`Report`].
//!
//! New tables are made and proved whole before the first of them is sent; until then, and where none can be made, the
//! old ones stay. A notification only says that something happened: its receiver calls [`Running::watch`].
//!
//! Switches are asked nearest first, starting at the entry switch. A switch is left out if its path uses a link that
//! another switch has just reported down, so that lost links are known before any switch behind them costs a time
//! limit. All links found lost in one scan are handled together, because routes for one loss may lead over another.
//!
//! Source: CXL 3.1 section 7.7.12.6; docs/spec/cxl-fabric.md "The fabric manager".

use std::collections::BTreeSet;
use std::fmt;

use weft_parsers::cci::pbr::LinkPartner;
use weft_parsers::fabric::Pid;

use crate::cci::send::{SendError, Sent, send};
use crate::cci::switch_state::{Seen, partners, ports_seen, ports_up};
use crate::cci::{CallError, CciSession};
use crate::components::bind::{Bindings, Bridge, Remote};
use crate::discover::identify;
use crate::model::graph::{Graph, Key, PortRef, SwitchId};
use crate::model::inventory::{DiscoveredSwitch, Inventory, OWN_PORT, Partner, Port, Role};
use crate::plan::routes::Partition;
use crate::plan::tables::Tables;
use crate::plan::{Options, Plan, PlanError, make, way};

/// Partner type of a PBR component, as a port reports it (5101h byte 4).
const PBR: u8 = 6;

/// A change in a running fabric: a link, device or component that came or went.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum Event {
    /// A link between switches is down, named by one of its ends.
    LinkDown(PortRef),
    /// A link that was known is up again.
    LinkUp(PortRef),
    /// A port that led nowhere has a link. Only a discovery can find the components behind it.
    NewLink(PortRef),
    /// An edge port lost its host, device or GFD.
    EdgeDown(PortRef),
    /// A switch is silent although links to it are up, or no path leads to it any more.
    SwitchGone(SwitchId),
    /// The component at the other end of the port has lost its PID: it was restarted.
    Restarted(PortRef),
}

/// Why an event could not be handled completely.
#[derive(Debug, thiserror::Error)]
pub enum ChangeError {
    /// No new tables could be made; the old ones stay in force.
    #[error("no new tables could be computed: the old ones stay in force")]
    Plan(#[from] PlanError),
    /// Some switches do not have the new tables.
    #[error("the new tables could not be written to all switches")]
    Send(#[from] SendError),
    /// The port has an unknown link; a discovery is needed.
    #[error("{0} has an unknown link: a discovery is needed")]
    Unknown(PortRef),
    /// The component was restarted; a discovery has to claim it again.
    #[error("the component at {0} must be discovered again")]
    Forgotten(PortRef),
    /// The event, and the reason.
    #[error("{0}")]
    Event(Event, #[source] Box<ChangeError>),
}

impl Event {
    /// The event as text, with both ends of a link.
    #[must_use]
    pub fn told(self, inventory: &Inventory) -> String {
        let ends = |at: PortRef| {
            let link = inventory.link_at(at);
            link.map_or_else(|| at.to_string(), |[one, other]| format!("{one} to {other}"))
        };
        match self {
            Self::LinkDown(at) => format!("link at {} is down", ends(at)),
            Self::LinkUp(at) => format!("link at {} is up again", ends(at)),
            Self::NewLink(_) | Self::EdgeDown(_) | Self::SwitchGone(_) | Self::Restarted(_) => {
                self.to_string()
            }
        }
    }
}

impl fmt::Display for Event {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::LinkDown(at) => write!(f, "link at {at} is down"),
            Self::LinkUp(at) => write!(f, "link at {at} is up again"),
            Self::NewLink(at) => write!(f, "{at} has a new link"),
            Self::EdgeDown(at) => write!(f, "{at} has lost its component"),
            Self::SwitchGone(id) => write!(f, "{id} does not answer"),
            Self::Restarted(at) => write!(f, "the component at {at} was restarted"),
        }
    }
}

/// The manager's response to a change.
#[derive(Debug)]
pub struct Report {
    pub event: Event,
    /// Other events handled along with it, or caused by it.
    pub more: Vec<Event>,
    pub sent: Sent,
    /// Set if not every PID reaches every other now.
    pub partition: Option<Partition>,
    /// Virtual links whose path was hit: their hosts saw a surprise link down. They have a new path.
    pub hit: Vec<Remote>,
    /// Virtual links without a path, which were unbound.
    pub severed: Vec<Remote>,
    /// Ends of `severed` whose switch did not answer.
    pub left: Vec<Bridge>,
}

/// A running fabric: inventory, plan, the tables that switches hold, and bindings.
#[derive(Debug)]
pub struct Running {
    pub inventory: Inventory,
    pub plan: Plan,
    /// Tables that the switches hold, as far as they answered.
    pub standing: Tables,
    pub bindings: Bindings,
    /// Options of the plan.
    pub options: Options,
    /// Waits until packets on old routes or to withdrawn PIDs have left the fabric.
    pub drain: fn(),
    /// Downstream ports whose partner announced a PID other than the port's in the last scan, and that PID.
    pub pid_mismatches: BTreeSet<(PortRef, Pid)>,
}

/// Result of a scan of all switches.
#[derive(Debug, Default)]
pub struct ScanResult {
    pub events: BTreeSet<Event>,
    /// Switches that did not answer; a refusal counts as an answer.
    pub silent: Vec<(SwitchId, CallError)>,
    /// Downstream ports whose partner announces a PID other than the port's, and that PID.
    pub pid_mismatches: BTreeSet<(PortRef, Pid)>,
    /// Ports whose lanes or PERST# differ from the inventory, and their present state.
    pub changed: Vec<(PortRef, Seen)>,
}

/// Asks all switches for changes, nearest first by the routes of `plan`.
pub fn scan(fabric: &mut CciSession, inventory: &Inventory, plan: &Plan) -> ScanResult {
    let mut found = ScanResult::default();
    let mut all: Vec<(usize, Vec<PortRef>, SwitchId, &DiscoveredSwitch)> = Vec::new();
    let (graph, tables) = (&plan.graph, &plan.routed.tables);
    let entry = inventory.switches.first().map(|switch| switch.pid);
    for (id, switch) in inventory.by_id().filter(|(_, switch)| switch.whole) {
        let Some(mut ways) = way(graph, tables, SwitchId(0), switch.pid) else { continue };
        let hops = ways.len();
        // Its answers may take another path than the requests.
        let back = way(graph, tables, id, inventory.manager.pid);
        let back = back.or_else(|| way(graph, tables, id, entry?));
        ways.extend(back.unwrap_or_default());
        all.push((hops, ways, id, switch));
    }
    all.sort_by_key(|(hops, _, id, _)| (*hops, *id));
    for (_, way, id, switch) in all {
        let is_lost = |at: &PortRef| {
            let link = inventory.link_at(*at);
            link.is_some_and(|link| found.events.contains(&Event::LinkDown(first(link))))
        };
        if way.iter().any(is_lost) {
            continue; // it is behind a link that is lost
        }
        match scan_switch(fabric, inventory, id, switch, &mut found) {
            // A switch that refuses is there, maybe with another owner: the check of owners tells.
            Err(error) if !error.is_refusal() => found.silent.push((id, error)),
            Ok(()) | Err(_) => {}
        }
    }
    found
}

/// Asks one switch for the state of its ports and for its link partners.
fn scan_switch(
    fabric: &mut CciSession,
    inventory: &Inventory,
    id: SwitchId,
    switch: &DiscoveredSwitch,
    ScanResult { events, pid_mismatches, changed, .. }: &mut ScanResult,
) -> Result<(), CallError> {
    let asked: Vec<u8> = switch.ports.iter().map(|port| port.number).collect();
    let seen = ports_seen(fabric, switch.way(), &asked)?;
    let told = told(fabric, inventory, switch, &seen)?;
    let forgotten = forgotten(inventory, switch, &told);
    let pid_mismatch = |told: &LinkPartner| {
        let pid = switch.pid_mismatch(told).filter(|_| is_role(switch, told.port, Role::Dsp))?;
        Some((PortRef::new(id, told.port), pid))
    };
    pid_mismatches.extend(told.iter().filter_map(pid_mismatch));
    for port in &switch.ports {
        let at = PortRef::new(id, port.number);
        let now = seen.iter().find(|seen| seen.port == port.number);
        let is_up = now.is_some_and(|now| now.up);
        let has_other_lanes = |now: &Seen| now.up && now.lanes != (port.width, port.speed);
        let other = |now: &&Seen| has_other_lanes(now) || now.perst != port.perst;
        changed.extend(now.filter(other).map(|now| (at, *now)));
        let link = inventory.link_at(at);
        let was_up = link.map_or(port.up, |link| !inventory.down.contains(&link));
        match (is_up, was_up, link, port.role) {
            (false, true, Some(link), _) => drop(events.insert(Event::LinkDown(first(link)))),
            (true, ..) if forgotten.contains(&port.number) => {
                events.insert(Event::Restarted(at));
            }
            (true, false, Some(link), _) => {
                // Both ends must be up before routes use the link, so the other switch is asked too.
                let far = if first(link) == at { last(link) } else { first(link) };
                let far_way = inventory.switch(far.switch).filter(|far| far.whole);
                let far_up = far_way.map(|far_way| ports_up(fabric, far_way.way(), &[far.port]));
                if matches!(far_up, Some(Ok(list)) if list == [far.port]) {
                    events.insert(Event::LinkUp(first(link)));
                }
            }
            (false, true, None, Role::Usp | Role::Dsp) => {
                events.insert(Event::EdgeDown(at));
            }
            // A partner that has not announced itself yet is found by a later scan; see `is_new`.
            (true, _, None, _) if now.is_some_and(|now| is_new(port, *now)) => {
                events.insert(Event::NewLink(at));
            }
            _ => {}
        }
    }
    Ok(())
}

fn is_role(switch: &DiscoveredSwitch, number: u8, role: Role) -> bool {
    switch.port(number).is_some_and(|port| port.role == role)
}

/// Whether a component that the manager owns is at a port.
fn is_ours(inventory: &Inventory, port: &Port) -> bool {
    match port.partner {
        Partner::Switch(far) => inventory.switch(far.switch).is_some_and(|far| far.whole),
        Partner::Gfd(_) => true,
        Partner::Nobody | Partner::Host | Partner::Device(_) | Partner::Foreign => false,
    }
}

/// Announcements of partners at ports whose link is up: of the manager's own components, and of all at downstream
/// ports.
fn told(
    fabric: &mut CciSession,
    inventory: &Inventory,
    switch: &DiscoveredSwitch,
    seen: &[Seen],
) -> Result<Vec<LinkPartner>, CallError> {
    let is_up = |number: u8| seen.iter().any(|seen| seen.port == number && seen.up);
    let is_asked =
        |port: &&Port| is_up(port.number) && (port.role == Role::Dsp || is_ours(inventory, port));
    let asked: Vec<u8> = switch.ports.iter().filter(is_asked).map(|port| port.number).collect();
    partners(fabric, switch.way(), &asked)
}

/// Ports whose partner had a PID and now announces none: it was restarted, faster than its link was seen to go down.
fn forgotten(inventory: &Inventory, switch: &DiscoveredSwitch, told: &[LinkPartner]) -> Vec<u8> {
    let of_ours = |told: &&LinkPartner| {
        told.far.pid.is_none()
            && switch.port(told.port).is_some_and(|port| is_ours(inventory, port))
    };
    told.iter().filter(of_ours).map(|told| told.port).collect()
}

/// Whether a port that is up has a partner that was not there before, or another one.
///
/// A link is up before its ends have announced themselves; a port without an announcement is left for a later scan.
const fn is_new(port: &Port, now: Seen) -> bool {
    match (port.role, port.up, port.partner) {
        (Role::Usp | Role::Off, up, _) => !up,
        (_, _, Partner::Foreign | Partner::Switch(_) | Partner::Host) => !port.up,
        (_, false, _) | (Role::Fabric, true, Partner::Nobody) => now.partner != 0,
        (Role::Fabric, true, _) => false,
        // A device that was restarted between two scans may be seen before it has told of its logical devices.
        (Role::Dsp, true, Partner::Device(was)) => {
            now.partner != was && now.partner != 0 || now.lds != port.lds
        }
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

/// The links of both directions of a virtual link.
fn both_ways(graph: &Graph, tables: &Tables, link: &Remote) -> Option<Vec<PortRef>> {
    let mut there = way(graph, tables, link.host.bridge.switch, link.below.pid)?;
    there.extend(way(graph, tables, link.below.bridge.switch, link.host.pid)?);
    Some(there)
}

/// Scans of silent switches in one [`Running::watch`] before they count as gone; each waits as long as an impatient
/// request.
const MISSES: u32 = 12;

impl Running {
    /// Handles one event: makes, proves and sends new routes.
    ///
    /// # Errors
    /// See [`ChangeError`]; calling it again continues.
    pub fn on(&mut self, fabric: &mut CciSession, event: Event) -> Result<Report, ChangeError> {
        self.on_all(fabric, event, Vec::new())
    }

    /// Handles events that came together.
    fn on_all(
        &mut self,
        fabric: &mut CciSession,
        event: Event,
        mut more: Vec<Event>,
    ) -> Result<Report, ChangeError> {
        let mut inventory = self.inventory.clone();
        for event in std::iter::once(event).chain(more.iter().copied()) {
            apply(&mut inventory, event)?;
        }
        let before = self.plan.graph.clone();
        let plan = make(&inventory, &self.options, Some(&self.plan))?;
        more.extend(cut_off(&mut inventory, &plan).into_iter().filter(|gone| *gone != event));
        // From here on the fabric is as the event says, even where a switch does not take its tables.
        let old = std::mem::replace(&mut self.plan, plan);
        self.inventory = inventory;
        let plan = &self.plan;
        let sent = send(fabric, &self.inventory, &[], plan, &mut self.standing, self.drain)?;
        // A link counts as cut only if it worked before: `far` is also `None` for edge ports.
        let is_cut = |at: PortRef| before.far(at).is_some() && plan.graph.far(at).is_none();
        let ways = |link: &Remote| both_ways(&plan.graph, &plan.routed.tables, link);
        let was_hit = |link: &&Remote| {
            let old = both_ways(&before, &old.routed.tables, link);
            old.is_some_and(|way| way.into_iter().any(is_cut)) && ways(link).is_some()
        };
        let hit = self.bindings.remote.iter().filter(was_hit).copied().collect();
        // After the new tables are sent, so that ends that can be reached again are reached.
        let (severed, left) = self.sever(fabric);
        let partition = self.plan.routed.partition.clone();
        Ok(Report { event, more, sent, partition, hit, severed, left })
    }

    /// Unbinds virtual links without a path, at the ends that can be reached; returns them, and the ends that were not.
    pub fn sever(&mut self, fabric: &mut CciSession) -> (Vec<Remote>, Vec<Bridge>) {
        let (graph, tables) = (&self.plan.graph, &self.plan.routed.tables);
        let lost = |link: &Remote| both_ways(graph, tables, link).is_none();
        self.bindings.sever(fabric, &self.inventory, lost)
    }

    /// Scans for changes and handles them until there are none. Switches that stay silent although nothing else is
    /// wrong count as gone.
    ///
    /// # Errors
    /// The first event that was not handled completely, as [`ChangeError::Event`].
    pub fn watch(&mut self, fabric: &mut CciSession) -> Result<Vec<Report>, ChangeError> {
        let mut reports = Vec::new();
        let mut misses = 0;
        // Bounded: each round takes away a link or a switch, brings back a link once, or waits for a silent switch.
        let rounds = 2 * self.inventory.links.len() + self.inventory.switches.len();
        for _ in 0..=rounds + rounds * usize::try_from(MISSES).unwrap_or(0) {
            // A scan should find all losses quickly; patience comes before a switch is given up, below.
            fabric.set_impatient(true);
            let ScanResult { events, silent, pid_mismatches, changed } =
                scan(fabric, &self.inventory, &self.plan);
            fabric.set_impatient(false);
            self.pid_mismatches = pid_mismatches;
            for (at, seen) in changed {
                note_port(&mut self.inventory, at, seen);
            }
            // Events that need a discovery wait until losses have been dealt with.
            let at_once =
                |event: &&Event| !matches!(event, Event::NewLink(_) | Event::Restarted(_));
            let mut now = events.iter().copied().filter(|event| at_once(&event));
            let done = if let Some(event) = now.next() {
                misses = 0;
                let more = now.collect();
                (event, self.on_in_haste(fabric, event, more))
            } else if let Some(&event) = events.first() {
                (event, self.on(fabric, event))
            } else if let Some((id, _)) = silent.first() {
                misses += 1;
                if misses < MISSES {
                    continue;
                }
                // Asked once more with full patience before it is given up.
                let way = self.inventory.switch(*id).map(DiscoveredSwitch::way);
                if way.is_some_and(|way| identify(fabric, way).is_ok()) {
                    break;
                }
                misses = 0;
                (Event::SwitchGone(*id), self.on(fabric, Event::SwitchGone(*id)))
            } else {
                break;
            };
            let (event, done) = done;
            reports.push(done.map_err(|error| ChangeError::Event(event, Box::new(error)))?);
        }
        Ok(reports)
    }

    /// Handles events without waiting long for switches that do not take the new tables: another link may be lost,
    /// which the next scan finds. If none is, the tables are sent once more with full patience.
    fn on_in_haste(
        &mut self,
        fabric: &mut CciSession,
        event: Event,
        mut more: Vec<Event>,
    ) -> Result<Report, ChangeError> {
        for _ in 0..=self.inventory.links.len() {
            fabric.set_impatient(true);
            let done = self.on_all(fabric, event, more.clone());
            let Err(ChangeError::Send(_)) = &done else {
                fabric.set_impatient(false);
                return done;
            };
            let found = scan(fabric, &self.inventory, &self.plan);
            fabric.set_impatient(false);
            let lost = |event: &&Event| matches!(event, Event::LinkDown(_));
            let new: Vec<Event> = found.events.iter().filter(lost).copied().collect();
            if new.is_empty() {
                break;
            }
            more.extend(new);
        }
        self.on_all(fabric, event, more)
    }
}

/// Changes the inventory as an event says.
fn apply(inventory: &mut Inventory, event: Event) -> Result<(), ChangeError> {
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
        Event::Restarted(at) => return Err(ChangeError::Forgotten(at)),
        Event::EdgeDown(at) => edge_down(inventory, at),
        Event::SwitchGone(id) => {
            let of = inventory.links.iter().filter(|ends| ends.iter().any(|e| e.switch == id));
            // The switch itself stays in the inventory, with its PID, for when it is back.
            let lost: Vec<_> = of.copied().collect();
            inventory.down.extend(lost);
        }
    }
    Ok(())
}

/// Marks switches that no path leads to as unread, until they are discovered again.
fn cut_off(inventory: &mut Inventory, plan: &Plan) -> Vec<Event> {
    let mut gone = Vec::new();
    for (at, switch) in inventory.switches.iter_mut().enumerate() {
        let id = SwitchId::at(at);
        if switch.whole && way(&plan.graph, &plan.routed.tables, SwitchId(0), switch.pid).is_none()
        {
            switch.whole = false;
            gone.push(Event::SwitchGone(id));
        }
    }
    gone
}

fn port_mut(inventory: &mut Inventory, at: PortRef) -> Option<&mut Port> {
    let ports = &mut inventory.switches.get_mut(at.switch.index())?.ports;
    ports.iter_mut().find(|port| port.number == at.port)
}

fn note_port(inventory: &mut Inventory, at: PortRef, seen: Seen) {
    if let Some(port) = port_mut(inventory, at) {
        // The lanes of a link that is down are those of no link: the last known ones are kept.
        if seen.up {
            (port.width, port.speed) = seen.lanes;
        }
        port.perst = seen.perst;
    }
}

fn edge_down(inventory: &mut Inventory, at: PortRef) {
    if at.port != OWN_PORT
        && let Some(port) = port_mut(inventory, at)
    {
        (port.up, port.partner) = (false, Partner::Nobody);
    }
}
