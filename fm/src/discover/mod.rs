//! Finds all components of a fabric from one switch, and makes them the FM's.
//!
//! [`Fabric`], [`Options`] -> [`Discovered`]: an [`Inventory`] and what was odd.
//!
//! Source: docs/spec/cxl-fabric.md "The fabric manager"; CXL 3.1 section 7.7.12.2; docs/spec/wire-formats.md §3.8,
//! §4.4, §4.5, §4.8.
//!
//! Breadth first: a neighbour that has no PID yet is crawled to by port number, claimed, given a PID and a way back to the
//! entry switch; then every switch on the way gets its route, from the far one to the entry switch, and from there on the
//! component is spoken to by its PID. A switch that is known by its UUID already is only another link.
//! A link is one that both its ends tell of.

mod claim;
mod read;

use std::collections::{BTreeMap, BTreeSet, VecDeque};

use weft_parsers::cci::generic::Identity;
use weft_parsers::cci::pbr::{LinkPartner, PidAndKind};
use weft_parsers::cci::{List, Request, Uuid, gfd, tables};
use weft_parsers::fabric::{DrtEntry, Pid};

use self::claim::Claimed;
pub use self::claim::{claim_as, identify};
pub(crate) use self::read::PORTS_AT_ONCE;
pub use self::read::{Seen, partners, ports_seen, ports_up, targets, virtual_switches};
use super::cci::{CallError, Fabric, Way};
use super::graph::{Key, PortRef, SwitchId};
use super::ha::identity::Lineage;
use super::inventory::{Gfd, Inventory, Manager, Partner, ReachedFrom, Role, Switch};
use super::rules::{End, Forbidden, check};
use super::text::UuidText;

/// Component type of a GFD in Identify (0001h).
const COMPONENT_GFD: u8 = 4;

/// How to discover a fabric: for which manager, and what is known already.
#[derive(Clone, Debug)]
pub struct Options {
    /// Who claims.
    pub manager: Manager,
    /// Where the manager is the secondary one: take over.
    pub promote: bool,
    /// Where there are several managers: those that led before.
    pub lineage: Option<Lineage>,
    /// PIDs that components had before, by UUID.
    pub known: BTreeMap<Uuid, Pid>,
    /// Serial number and PID that the entry switch had before: it has no UUID before a neighbour tells it.
    pub entry: Option<(u64, Pid)>,
    /// PIDs that are not to be given to components.
    pub reserved: BTreeSet<Pid>,
}

impl Options {
    /// Options for a manager that has seen nothing before.
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

/// Something odd that was found on the way; the rest went on.
#[derive(Debug, thiserror::Error)]
pub enum Finding {
    /// A component did not answer, or not with sense.
    #[error("{at}: {}", .error.with_causes())]
    Silent {
        /// Where.
        at: PortRef,
        /// What happened.
        error: CallError,
    },
    /// A component has another primary fabric manager.
    #[error("the component at {at} is owned by the fabric manager {}", UuidText(*.owner))]
    Owned {
        /// Where.
        at: PortRef,
        /// What is there; the entry switch has not told.
        uuid: Option<Uuid>,
        /// Whose it is.
        owner: Uuid,
    },
    /// Only one end of a link tells of it.
    #[error("{at} reports a link to {} port {far_port}, but that end does not report it", UuidText(*.far))]
    OneSided {
        /// Which end.
        at: PortRef,
        /// UUID of the other.
        far: Uuid,
        /// Its port.
        far_port: u8,
    },
    /// A connection against the rules.
    #[error("{at}: {what}")]
    Forbidden {
        /// Where.
        at: PortRef,
        /// What is connected, and which rule is against it.
        what: Forbidden,
    },
    /// No PID, or no room for another switch, is left.
    #[error("no room for the component at {at}: {what} are used up")]
    Full {
        /// Where.
        at: PortRef,
        /// What is used up.
        what: &'static str,
    },
    /// Somebody at a downstream port calls itself by a PID that is not that port's.
    #[error(
        "{at}: the component there announces PID {pid}, which was not assigned to that port, and is refused"
    )]
    Stranger {
        /// Where.
        at: PortRef,
        /// What it calls itself.
        pid: Pid,
    },
    /// What answers by the new PID is not what was claimed.
    #[error("{at}: another component answers at PID {pid}")]
    Astray {
        /// Where it was claimed.
        at: PortRef,
        /// The PID.
        pid: Pid,
    },
}

/// What discovery found: the inventory, oddities, and which components were claimed anew.
#[derive(Debug)]
pub struct Discovered {
    /// The fabric.
    pub inventory: Inventory,
    /// What was odd.
    pub findings: Vec<Finding>,
    /// Components that belonged to nobody and were claimed: they have nothing of what they may have been told before.
    pub fresh: BTreeSet<Pid>,
}

/// Discovers a fabric.
///
/// # Errors
/// The entry switch cannot be claimed: nothing goes without it.
pub fn discover(fabric: &mut Fabric, options: &Options) -> Result<Discovered, Finding> {
    fabric.manage(options.manager);
    let mut search = Search::new(fabric, options);
    search.entry()?;
    while let Some(id) = search.open.pop_front() {
        if let Err(error) = search.read_switch(id) {
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

/// A discovery in progress.
struct Search<'a> {
    fabric: &'a mut Fabric,
    options: &'a Options,
    found: Inventory,
    findings: Vec<Finding>,
    fresh: BTreeSet<Pid>,
    /// The PID that the entry switch had.
    entry_had: Option<Pid>,
    open: VecDeque<SwitchId>,
    /// PIDs that are taken, or reserved.
    taken: BTreeSet<Pid>,
    next: u16,
    /// What each port tells of its other end.
    told: BTreeMap<PortRef, LinkPartner>,
    by_uuid: BTreeMap<Uuid, SwitchId>,
}

impl<'a> Search<'a> {
    fn new(fabric: &'a mut Fabric, options: &'a Options) -> Self {
        let manager = options.manager;
        let (switches, gfds) = (Vec::new(), Vec::new());
        let (links, down) = (BTreeSet::new(), BTreeSet::new());
        let found = Inventory { manager, switches, gfds, links, down };
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

    /// Where a switch was found.
    fn seen_at(&self, id: SwitchId) -> PortRef {
        let came = self.found.switch(id).and_then(|switch| switch.came);
        came.map_or(PortRef::new(id, super::inventory::OWN_PORT), |came| came.from)
    }

    fn entry(&mut self) -> Result<(), Finding> {
        let at = PortRef::new(SwitchId(0), super::inventory::OWN_PORT);
        if let Some((serial, pid)) = self.options.entry {
            let asked = self.fabric.call(Way::Entry, &Request::Identify);
            let told = asked.and_then(|answer| answer.read::<Identity>());
            let told = told.map_err(|error| Finding::Silent { at, error })?;
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
        self.found.switches.push(Switch {
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

    /// Ports of a switch at whose other end a PBR component is.
    fn partners_of(&self, id: SwitchId) -> Vec<(u8, LinkPartner)> {
        let here = PortRef::new(id, 0)..=PortRef::new(id, u8::MAX);
        self.told.range(here).map(|(at, partner)| (at.port, *partner)).collect()
    }

    /// Sees to the PBR component at the other end of a port.
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
            self.note_refused(at);
            self.told.remove(&at);
            return Err(Finding::Forbidden { at, what });
        }
        if is_gfd { self.gfd(at, partner) } else { self.switch(at, partner) }
    }

    fn port_mut(&mut self, at: PortRef) -> Option<&mut super::inventory::Port> {
        let switch = self.found.switches.get_mut(at.switch.index())?;
        switch.ports.iter_mut().find(|port| port.number == at.port)
    }

    fn note(&mut self, at: PortRef, partner: Partner) {
        if let Some(port) = self.port_mut(at) {
            port.partner = partner;
        }
    }

    /// What somebody at a port announces is not taken. Where the switch itself tells that a device is there, that stays: a
    /// device cannot talk itself out of its place.
    fn note_refused(&mut self, at: PortRef) {
        let has_device = |port: &mut super::inventory::Port| matches!(port.partner, Partner::Device(kind) if kind != 0);
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
            && self.found.switch(came.from.switch).is_some_and(|from| from.uuid.is_none())
        {
            self.names(came.from.switch, partner.uuid);
            return Ok(());
        }
        self.note(at, Partner::Foreign);
        let way = self.behind(at)?;
        let claimed = self.claim(way, at, Some(partner.uuid), false)?;
        if let Some(id) = claimed.known {
            self.names(id, partner.uuid);
            return Ok(());
        }
        if self.found.switches.len() >= super::graph::SWITCHES_MAX {
            return Err(Finding::Full { at, what: "switch numbers" });
        }
        let came = ReachedFrom { from: at, at: partner.far_port };
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
        if let Some(pid) = switch.and_then(|switch| switch.pid_mismatch(partner)) {
            self.note_refused(at);
            return Err(Finding::Stranger { at, pid });
        }
        self.note(at, Partner::Foreign);
        let way = self.behind(at)?;
        let claimed = self.claim(way, at, Some(partner.uuid), true)?;
        let silent = |error| Finding::Silent { at, error };
        let identify = |fabric: &mut Fabric| {
            let kind = fabric.call(way, &Request::Identify)?.read::<Identity>()?.component;
            if kind != COMPONENT_GFD {
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

    /// Lets a new switch find the entry switch and the manager, by the port it was found at.
    fn lead_back(&mut self, way: Way, at: PortRef, port: u8) -> Result<(), Finding> {
        let entry = self.found.switches.first().map(|switch| switch.pid);
        for pid in entry.into_iter().chain([self.found.manager.pid]) {
            self.set_route(way, pid, port).map_err(|error| Finding::Silent { at, error })?;
        }
        Ok(())
    }

    /// Lets all switches from `at` to the entry switch find a new component, and sees that its PID leads to it.
    fn lead_to(&mut self, claimed: Claimed, at: PortRef) -> Result<(), Finding> {
        let pid = claimed.pid;
        let mut from = Some(at);
        for _ in 0..=self.found.switches.len() {
            let Some(here) = from else { break };
            let Some(switch) = self.found.switch(here.switch) else { break };
            let (way, came) = (switch.way(), switch.came);
            self.set_route(way, pid, here.port).map_err(|error| Finding::Silent { at, error })?;
            from = came.map(|came| came.from);
        }
        if self.answers(pid) { Ok(()) } else { Err(Finding::Astray { at, pid }) }
    }

    /// Links are those that both ends tell of.
    fn join(&mut self) {
        let told = std::mem::take(&mut self.told);
        for (&at, partner) in &told {
            if partner.far.kind == PidAndKind::GFD {
                continue;
            }
            let far = self.by_uuid.get(&partner.uuid).map(|&id| PortRef::new(id, partner.far_port));
            let own = self.found.switch(at.switch).and_then(|switch| switch.uuid);
            if far.is_some_and(|far| far.switch == at.switch) {
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
            } else if far.is_some_and(|far| self.found.switch(far.switch).is_some_and(|s| s.whole))
            {
                let (far, far_port) = (partner.uuid, partner.far_port);
                self.note(at, Partner::Foreign);
                self.findings.push(Finding::OneSided { at, far, far_port });
            }
        }
    }
}
