//! Discovery: finds all components of a fabric from the entry switch, and claims them.
//!
//! [`discover`] returns an [`Inventory`] and [`Finding`]s.
//!
//! The search is breadth first. A neighbour without a PID is crawled to by port number, claimed, and given a PID and a
//! route back to the entry switch. Then every switch on the way gets a route to it, from the far one to the entry
//! switch, and from there on it is addressed by its PID. A switch whose UUID is known is only another link. A link
//! counts if both its ends report it.
//!
//! Source: docs/spec/cxl-fabric.md "The fabric manager"; CXL 3.1 section 7.7.12.2; docs/spec/wire-formats.md §3.8,
//! §4.4, §4.5, §4.8.

pub mod change;
mod claim;
mod read;

use std::collections::{BTreeMap, BTreeSet, VecDeque};

use weft_parsers::cci::generic::Identity;
use weft_parsers::cci::pbr::{LinkPartner, PidAndKind};
use weft_parsers::cci::{List, Request, Uuid, gfd, tables};
use weft_parsers::fabric::{DrtEntry, Pid};

use self::claim::Claimed;
pub use self::claim::{claim_as, identify};
use crate::cci::{CallError, CciSession, Way};
use crate::model::graph::{Key, PortRef, SwitchId};
use crate::model::inventory::{
    DiscoveredSwitch, Gfd, Inventory, Manager, Partner, ReachedFrom, Role,
};
use crate::model::lineage::Lineage;
use crate::model::rules::{End, Forbidden, check};
use crate::model::text::UuidText;

/// Component type of a GFD in Identify (0001h).
const COMPONENT_GFD: u8 = 4;

/// Parameters of a discovery: the manager, and its knowledge of the fabric.
#[derive(Clone, Debug)]
pub struct Options {
    /// The manager that claims.
    pub manager: Manager,
    /// Take over components whose secondary manager this one is.
    pub promote: bool,
    /// With several managers, the terms of earlier leaders.
    pub lineage: Option<Lineage>,
    /// PIDs that components had before, by UUID; they get the same again.
    pub known: BTreeMap<Uuid, Pid>,
    /// Serial number and PID that the entry switch had before: its UUID is unknown until a neighbour tells it.
    pub entry: Option<(u64, Pid)>,
    /// PIDs that must not be given to components.
    pub reserved: BTreeSet<Pid>,
}

impl Options {
    /// Options for a manager without any earlier knowledge.
    #[must_use]
    pub const fn new(manager: Manager) -> Self {
        Self {
            manager,
            promote: false,
            lineage: None,
            known: BTreeMap::new(),
            entry: None,
            reserved: BTreeSet::new(),
        }
    }
}

/// An oddity found during discovery, which goes on.
#[derive(Debug, thiserror::Error)]
pub enum Finding {
    /// A component did not answer, or answered nonsense.
    #[error("{at}: {}", .error.with_causes())]
    Silent { at: PortRef, error: CallError },
    /// A component has another primary fabric manager.
    #[error("the component at {at} is owned by the fabric manager {}", UuidText(*.owner))]
    Owned {
        at: PortRef,
        /// `None` for the entry switch, which has not told it.
        uuid: Option<Uuid>,
        owner: Uuid,
    },
    /// Only one end reports the link.
    #[error("{at} reports a link to {} port {far_port}, but that end does not report it", UuidText(*.far))]
    OneSided { at: PortRef, far: Uuid, far_port: u8 },
    /// A connection that the rules of connection forbid.
    #[error("{at}: {what}")]
    Forbidden { at: PortRef, what: Forbidden },
    /// No PID, or no number for another switch, is left.
    #[error("no room for the component at {at}: {what} are used up")]
    Full { at: PortRef, what: &'static str },
    /// The component at a downstream port announces a PID that is not the port's.
    #[error(
        "{at}: the component there announces PID {pid}, which was not assigned to that port, and is refused"
    )]
    Stranger { at: PortRef, pid: Pid },
    /// The component that answers at the new PID is not the one that was claimed.
    #[error("{at}: another component answers at PID {pid}")]
    Astray {
        /// Port behind which it was claimed.
        at: PortRef,
        pid: Pid,
    },
}

/// Result of a discovery: the inventory, oddities, and the components claimed anew.
#[derive(Debug)]
pub struct Discovered {
    pub inventory: Inventory,
    pub findings: Vec<Finding>,
    /// Components that had no owner and were claimed: they have lost, or never had, the manager's settings.
    pub fresh: BTreeSet<Pid>,
}

/// Discovers a fabric.
///
/// # Errors
/// The entry switch cannot be claimed; nothing is reachable without it.
pub fn discover(fabric: &mut CciSession, options: &Options) -> Result<Discovered, Finding> {
    fabric.manage(options.manager);
    let mut search = Search::new(fabric, options);
    search.entry()?;
    while let Some(id) = search.open.pop_front() {
        if let Err(error) = search.read_switch(id) {
            // Only this switch stays unread: its neighbours may be reached by others.
            search.findings.push(Finding::Silent { at: search.seen_at(id), error });
            continue;
        }
        for (port, partner) in search.partners_of(id) {
            if let Err(finding) = search.partner(PortRef::new(id, port), &partner) {
                search.findings.push(finding);
            }
        }
    }
    search.join();
    let Search { found: inventory, findings, fresh, .. } = search;
    Ok(Discovered { inventory, findings, fresh })
}

struct Search<'a> {
    fabric: &'a mut CciSession,
    options: &'a Options,
    found: Inventory,
    findings: Vec<Finding>,
    fresh: BTreeSet<Pid>,
    /// PID that the entry switch had in an earlier run; `None` if it is another switch.
    entry_had: Option<Pid>,
    open: VecDeque<SwitchId>,
    /// PIDs in use or reserved.
    taken: BTreeSet<Pid>,
    next: u16,
    /// Partner that each port reports.
    told: BTreeMap<PortRef, LinkPartner>,
    by_uuid: BTreeMap<Uuid, SwitchId>,
}

impl<'a> Search<'a> {
    fn new(fabric: &'a mut CciSession, options: &'a Options) -> Self {
        let manager = options.manager;
        let (switches, gfds) = (Vec::new(), Vec::new());
        let (links, down) = (BTreeSet::new(), BTreeSet::new());
        let found = Inventory { manager, switches, gfds, links, down };
        // Known components that are silent keep their PIDs, and get them again when they are back.
        let mut taken = options.reserved.clone();
        taken.extend(options.known.values());
        taken.insert(manager.pid);
        Self {
            fabric,
            options,
            found,
            findings: Vec::new(),
            fresh: BTreeSet::new(),
            entry_had: None,
            open: VecDeque::new(),
            taken,
            next: 0,
            told: BTreeMap::new(),
            by_uuid: BTreeMap::new(),
        }
    }

    /// Port at which a switch was found; [`OWN_PORT`](crate::model::inventory::OWN_PORT) for the entry switch.
    fn seen_at(&self, id: SwitchId) -> PortRef {
        let came = self.found.switch(id).and_then(|switch| switch.came);
        came.map_or(PortRef::new(id, crate::model::inventory::OWN_PORT), |came| came.from)
    }

    fn entry(&mut self) -> Result<(), Finding> {
        let at = PortRef::new(SwitchId(0), crate::model::inventory::OWN_PORT);
        if let Some((serial, pid)) = self.options.entry {
            let asked = self.fabric.call(Way::Entry, &Request::Identify);
            let told = asked.and_then(|answer| answer.read::<Identity>());
            let told = told.map_err(|error| Finding::Silent { at, error })?;
            // Another switch may be connected as the entry: the serial number tells, as it has no UUID yet.
            self.entry_had = (told.serial == serial).then_some(pid);
        }
        let claimed = self.claim(Way::Entry, at, None, false)?;
        self.add_switch(claimed.pid, None, None);
        Ok(())
    }

    fn add_switch(&mut self, pid: Pid, uuid: Option<Uuid>, came: Option<ReachedFrom>) {
        let id = SwitchId::at(self.found.switches.len());
        self.taken.insert(pid);
        if let Some(uuid) = uuid {
            self.by_uuid.insert(uuid, id);
        }
        let (ports, targets, vcss) = (Vec::new(), Vec::new(), Vec::new());
        let (serial, modes, rgts, whole) = (0, 0, 0, false);
        self.found.switches.push(DiscoveredSwitch {
            uuid,
            serial,
            pid,
            came,
            modes,
            rgts,
            ports,
            targets,
            vcss,
            whole,
        });
        self.open.push_back(id);
    }

    /// Ports of a switch whose partner is a PBR component, and that partner.
    fn partners_of(&self, id: SwitchId) -> Vec<(u8, LinkPartner)> {
        let here = PortRef::new(id, 0)..=PortRef::new(id, u8::MAX);
        self.told.range(here).map(|(at, partner)| (at.port, *partner)).collect()
    }

    /// Handles the PBR component at the other end of a port.
    fn partner(&mut self, at: PortRef, partner: &LinkPartner) -> Result<(), Finding> {
        let is_gfd = partner.far.kind == PidAndKind::GFD;
        let role = self.port_mut(at).map_or(Role::Off, |port| port.role);
        let (own, far) = match (role, is_gfd) {
            (Role::Usp, true) => (End::PbrUsp, End::Gfd),
            (Role::Usp, false) => (End::PbrUsp, End::Fport),
            (Role::Dsp, true) => (End::PbrDsp, End::Gfd),
            (Role::Dsp, false) => (End::PbrDsp, End::Fport),
            (Role::Fabric, true) => (End::Fport, End::Gfd),
            (Role::Fabric, false) => (End::Fport, End::Fport),
            (Role::Off, _) => return Ok(()),
        };
        if let Err(what) = check(own, far) {
            // Not joined as a link later on, either.
            self.note_refused(at);
            self.told.remove(&at);
            return Err(Finding::Forbidden { at, what });
        }
        if is_gfd { self.gfd(at, partner) } else { self.switch(at, partner) }
    }

    fn port_mut(&mut self, at: PortRef) -> Option<&mut crate::model::inventory::Port> {
        let switch = self.found.switches.get_mut(at.switch.index())?;
        switch.ports.iter_mut().find(|port| port.number == at.port)
    }

    fn note(&mut self, at: PortRef, partner: Partner) {
        if let Some(port) = self.port_mut(at) {
            port.partner = partner;
        }
    }

    /// Refuses the announcement at a port. If the switch itself reports a device there, that stays: a device must not
    /// be able to remove itself from the inventory by what it announces.
    fn note_refused(&mut self, at: PortRef) {
        let has_device = |port: &mut crate::model::inventory::Port| matches!(port.partner, Partner::Device(kind) if kind != 0);
        if !self.port_mut(at).is_some_and(has_device) {
            self.note(at, Partner::Foreign);
        }
    }

    fn switch(&mut self, at: PortRef, partner: &LinkPartner) -> Result<(), Finding> {
        if self.by_uuid.contains_key(&partner.uuid) {
            return Ok(());
        }
        // The neighbour's neighbour by the link that led to it is where it came from.
        let came = self.found.switch(at.switch).and_then(|switch| switch.came);
        if let Some(came) = came
            && came.at == at.port
            && came.from.port == partner.far_port
            // This neighbour is the entry switch, seen from its first neighbour: the only place that tells its UUID.
            && self.found.switch(came.from.switch).is_some_and(|from| from.uuid.is_none())
        {
            self.names(came.from.switch, partner.uuid);
            return Ok(());
        }
        // Until the claim succeeds the port counts as not managed; `join` or `gfd` corrects it.
        self.note(at, Partner::Foreign);
        let way = self.behind(at)?;
        let claimed = self.claim(way, at, Some(partner.uuid), false)?;
        if let Some(id) = claimed.known {
            self.names(id, partner.uuid);
            return Ok(());
        }
        if self.found.switches.len() >= crate::model::graph::SWITCHES_MAX {
            return Err(Finding::Full { at, what: "switch numbers" });
        }
        let came = ReachedFrom { from: at, at: partner.far_port };
        // A switch that was ours and answers by its PID has its routes: discovery changes none, as traffic may be using
        // them.
        if !(claimed.ours_before && self.answers(claimed.pid)) {
            self.lead_back(way, at, partner.far_port)?;
            self.lead_to(claimed, at)?;
        }
        self.add_switch(claimed.pid, Some(partner.uuid), Some(came));
        Ok(())
    }

    fn names(&mut self, id: SwitchId, uuid: Uuid) {
        if let Some(switch) = self.found.switches.get_mut(id.index())
            && switch.uuid.is_none()
        {
            switch.uuid = Some(uuid);
            self.by_uuid.insert(uuid, id);
        }
    }

    fn gfd(&mut self, at: PortRef, partner: &LinkPartner) -> Result<(), Finding> {
        let switch = self.found.switch(at.switch);
        // A PID that is not its port's: the edge would refuse all that it sends.
        if let Some(pid) = switch.and_then(|switch| switch.pid_mismatch(partner)) {
            self.note_refused(at);
            return Err(Finding::Stranger { at, pid });
        }
        self.note(at, Partner::Foreign);
        let way = self.behind(at)?;
        let claimed = self.claim(way, at, Some(partner.uuid), true)?;
        let silent = |error| Finding::Silent { at, error };
        let identify = |fabric: &mut CciSession| {
            let kind = fabric.call(way, &Request::Identify)?.read::<Identity>()?.component;
            if kind != COMPONENT_GFD {
                // The partner type at the link is what the far end announced; Identify is its component's own answer.
                let (opcode, what) =
                    (Request::Identify.opcode(), "it does not identify itself as a GFD");
                return Err(CallError::Unexpected { way, opcode, what });
            }
            fabric.call(way, &Request::IdentifyGfd)?.read::<gfd::GfdIdentity>()
        };
        let identity = identify(self.fabric).map_err(silent)?;
        if !(claimed.ours_before && self.answers(claimed.pid)) {
            self.lead_to(claimed, at)?;
        }
        self.taken.insert(claimed.pid);
        let (uuid, pid) = (partner.uuid, claimed.pid);
        let (capacity, groups) = (identity.capacity, identity.groups);
        let place = self.found.gfds.len();
        self.found.gfds.push(Gfd { uuid, pid, at, capacity, groups });
        self.note(at, Partner::Gfd(place));
        Ok(())
    }

    fn behind(&self, at: PortRef) -> Result<Way, Finding> {
        let way = self.found.switch(at.switch).and_then(|switch| switch.way().behind(at.port));
        way.ok_or(Finding::Full { at, what: "tunnels" })
    }

    fn set_route(&mut self, way: Way, to: Pid, port: u8) -> Result<(), CallError> {
        let entries = [DrtEntry::Port(port)];
        let set = tables::SetDrt { table: 0, start: to.bits(), entries: List::of(&entries) };
        self.fabric.call(way, &Request::SetDrt(set)).map(drop)
    }

    /// Routes the PIDs of the entry switch and the manager back through the port at which a new switch was found.
    fn lead_back(&mut self, way: Way, at: PortRef, port: u8) -> Result<(), Finding> {
        let entry = self.found.switches.first().map(|switch| switch.pid);
        // Before `lead_to`: its answer to a request by PID needs the way back.
        for pid in entry.into_iter().chain([self.found.manager.pid]) {
            self.set_route(way, pid, port).map_err(|error| Finding::Silent { at, error })?;
        }
        Ok(())
    }

    /// Routes a new component's PID in all switches from `at` to the entry switch, and checks that it answers there.
    fn lead_to(&mut self, claimed: Claimed, at: PortRef) -> Result<(), Finding> {
        let pid = claimed.pid;
        // The far switch first: no switch points to one that has no entry yet.
        let mut from = Some(at);
        // Bounded by the number of switches, whatever `came` says.
        for _ in 0..=self.found.switches.len() {
            let Some(here) = from else { break };
            let Some(switch) = self.found.switch(here.switch) else { break };
            let (way, came) = (switch.way(), switch.came);
            self.set_route(way, pid, here.port).map_err(|error| Finding::Silent { at, error })?;
            from = came.map(|came| came.from);
        }
        if self.answers(pid) { Ok(()) } else { Err(Finding::Astray { at, pid }) }
    }

    /// Makes links of the ports whose ends both report each other.
    fn join(&mut self) {
        let told = std::mem::take(&mut self.told);
        for (&at, partner) in &told {
            if partner.far.kind == PidAndKind::GFD {
                continue;
            }
            let far = self.by_uuid.get(&partner.uuid).map(|&id| PortRef::new(id, partner.far_port));
            let own = self.found.switch(at.switch).and_then(|switch| switch.uuid);
            if far.is_some_and(|far| far.switch == at.switch) {
                // Both ends are at this switch: two ports cabled together, which the rule for fabric ports forbids.
                self.note(at, Partner::Foreign);
                self.findings.push(Finding::Forbidden { at, what: Forbidden::ITSELF });
                continue;
            }
            let back = far.and_then(|far| told.get(&far));
            let agrees = |back: &&LinkPartner| {
                back.far_port == at.port && Some(back.uuid) == own && far != Some(at)
            };
            if let Some(far) = far
                && back.as_ref().is_some_and(agrees)
            {
                self.note(at, Partner::Switch(far));
                let mut ends = [at, far];
                ends.sort_unstable();
                self.found.links.insert(ends);
            // A far switch that was not read may be silent; only one that was read contradicts the report.
            } else if far.is_some_and(|far| self.found.switch(far.switch).is_some_and(|s| s.whole))
            {
                let (far, far_port) = (partner.uuid, partner.far_port);
                self.note(at, Partner::Foreign);
                self.findings.push(Finding::OneSided { at, far, far_port });
            }
        }
    }
}
