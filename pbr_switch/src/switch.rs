//! State of a switch, the inputs that change it, and the tables built from it.
//!
//! A change only marks the virtual switches and ports that it concerns; `refresh` rebuilds those, so [`Switch::tables`]
//! is consistent after each public call.
//!
//! Source: docs/spec/cxl-fabric.md "Port roles", "Binding", "Dynamic change"; CXL 3.1 section 7.7.6.

use std::collections::{BTreeSet, VecDeque};

use weft_cxl::cci::{Common, Ticket};
use weft_cxl::pci::{BridgeEffects, Link};
use weft_dataplane::pbr::{self, EdgePort, Fast, Flow, Ldst, Load, Side, Tables};
use weft_dataplane::time::Instant;
use weft_dataplane::types::{PortId, PortSet};
use weft_parsers::cci::Uuid;
use weft_parsers::cci::events::RefusalEvent;
use weft_parsers::cci::mld::MemAccess;
use weft_parsers::cci::pbr::{LinkPartner, Vppb};
use weft_parsers::cci::switch::{ConfigAccess, PortOp};
use weft_parsers::fabric::{Hpa, Pid};

use super::config::{ConfigError, Role, SwitchConfig};
use super::event_log::EventLogs;
use super::port::{Partner, Port};
use super::vcs::{Bound, VcsState};
use super::work::Work;

/// An event at the switch's bridges or edges on which the switch's driver must act.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Event {
    /// Effects of a register write or an event at a bridge: interrupt, error message, reset, power.
    Bridge { vcs: u8, vppb: u8, effects: BridgeEffects },
    /// A vPPB was bound to the other end of a virtual link, or unbound from it: link and reset VDMs follow.
    PidBinding {
        vcs: u8,
        vppb: u8,
        /// False for an unbind.
        bound: bool,
        /// PID of this end, `FFF` while there is none.
        own: Pid,
        /// PID of the other end.
        far: Pid,
    },
    /// The set of targets that a host may reach has changed: its GAE interrupts.
    AccessChanged { vcs: u8 },
    /// A logical device must be reset: its host has gone, or it is about to get another one.
    LdReset {
        port: PortId,
        /// LD-ID, below the number of LDs that the device reported.
        ld: u16,
    },
    /// A device at a port has lost its host or gets another one, so it must be reset.
    PortReset { port: PortId },
    /// The manager resets the device at a port (5102h).
    PortControl { port: PortId, op: PortOp },
    /// A command of a GAE's mailbox is done: its interrupt must be sent.
    GaeInterrupt { vcs: u8 },
    /// A host's command must be forwarded to a GFD.
    Proxy {
        vcs: u8,
        /// PID of the GFD.
        pid: Pid,
        /// Sequence number among the commands to that GFD, 3 bits.
        seq: u8,
        /// Address of the command in the host's memory.
        request: Hpa,
        /// Length of the command in bytes.
        len: u16,
        /// Address in the host's memory for the response.
        response: Hpa,
        /// Room for the response in bytes.
        response_max: u16,
    },
    /// Forwarding of a command must stop.
    CancelProxy {
        vcs: u8,
        /// PID of the GFD.
        pid: Pid,
        /// Sequence number among the commands to that GFD, 3 bits.
        seq: u8,
    },
}

/// The receiver and content of a request to a component further out.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum FarRequest {
    /// A CCI message to the PBR component at the other end of a port, which has no PID yet (DPID `FFF`).
    Port(PortId, Vec<u8>),
    /// A CCI message to a component with a PID.
    Pid(Pid, Vec<u8>),
    /// A CCI message to LD `FFFFh` of an MLD, or to the device itself, behind a port.
    Device(PortId, Vec<u8>),
    /// An access to configuration space of a logical device; the answer is the 4 bytes read, zero for a write.
    LdConfig {
        port: PortId,
        ld: u16,
        /// Register, direction and byte enables.
        access: ConfigAccess,
        /// Data to write; unused for a read.
        data: u32,
    },
    /// An access to memory of a logical device; the answer is a response of 5302h.
    LdMem {
        port: PortId,
        ld: u16,
        /// Direction of the access.
        access: MemAccess,
        /// Length in bytes.
        len: u16,
        /// First byte within the memory of the logical device.
        offset: u64,
        /// Data to write; empty for a read.
        data: Vec<u8>,
    },
}

/// Queue depths for a lookup that ignores them: static messages take a fixed member of a routing group.
struct NoLoad;

impl Load for NoLoad {
    fn queued_bytes(&self, _: PortId) -> u64 {
        0
    }

    fn is_full(&self, _: PortId) -> bool {
        false
    }
}

/// A request to a component further out; the answer goes to `Common::complete` under the ticket.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Outgoing {
    /// Ticket under which the answer completes.
    pub ticket: Ticket,
    /// PID of the requester: the fabric manager.
    pub spid: Pid,
    pub to: FarRequest,
}

/// A PBR switch without its data path: its state, and the tables that follow from it.
#[derive(Clone, Debug)]
pub struct Switch {
    pub(super) common: Common,
    pub(super) config: SwitchConfig,
    pub(super) ports: Vec<Port>,
    pub(super) vcses: Vec<VcsState>,
    pub(super) work: Option<Work>,
    pub(super) secret: Option<Uuid>,
    pub(super) tables: Tables,
    epoch: u64,
    stale_vcses: BTreeSet<u8>,
    stale_ports: BTreeSet<PortId>,
    pub(super) events: VecDeque<Event>,
    pub(super) outgoing: VecDeque<Outgoing>,
    pub(super) logs: EventLogs,
    /// Time of the last count of port traffic.
    pub(super) traffic_at: Instant,
}

/// Two switches are equal when no command can tell them apart.
impl PartialEq for Switch {
    fn eq(&self, other: &Self) -> bool {
        self.common == other.common
            && self.config == other.config
            && self.ports == other.ports
            && self.vcses == other.vcses
            && self.work == other.work
            && self.secret == other.secret
            && self.tables.routes() == other.tables.routes()
            && self.tables.assigned().eq(other.tables.assigned())
            && self.epoch == other.epoch
            && self.events == other.events
            && self.outgoing == other.outgoing
            && self.logs == other.logs
    }
}

impl Switch {
    /// Makes a switch as after power-on: no owner, links down, no PID assigned, no routes, downstream vPPBs unbound.
    /// Then applies the static set-up of its configuration, if any.
    ///
    /// # Errors
    /// See [`ConfigError`].
    pub fn new(config: SwitchConfig) -> Result<Self, ConfigError> {
        let mut ports: Vec<Port> = Vec::new();
        for port in &config.ports {
            if ports.iter().any(|other| other.id == port.port) {
                return Err(ConfigError::Port(port.port.get()));
            }
            ports.push(Port::new(port)?);
        }
        // `IdentifySwitch` reads the highest number off the last port, and PID targets are indices into this order.
        ports.sort_by_key(|port| port.id);
        // Identify Switch (5100h) reports their number in one byte.
        if config.vcses.len() > 255 {
            return Err(ConfigError::Count(config.vcses.len()));
        }
        let mut vcses: Vec<VcsState> = Vec::new();
        for (vcs, spec) in config.vcses.iter().enumerate() {
            if spec.vppbs == u8::MAX {
                return Err(ConfigError::Count(spec.vppbs.into()));
            }
            if let Some(usp) = spec.usp {
                let fits = ports.iter().any(|port| port.id == usp && port.role == Role::Usp);
                if !fits || vcses.iter().any(|other| other.usp == Some(usp)) {
                    return Err(ConfigError::Usp { vcs, port: usp.get() });
                }
            }
            vcses.push(VcsState::new(spec, &config)?);
        }
        let set = ports.iter().map(|port| port.id).collect();
        let tables = Tables::new(set, config.groups.into())?;
        let mut switch = Self {
            common: Common::new(config.identity),
            stale_vcses: (0..=u8::MAX).take(vcses.len()).collect(),
            stale_ports: ports.iter().map(|port| port.id).collect(),
            config,
            ports,
            vcses,
            work: None,
            secret: None,
            tables,
            traffic_at: Instant::ZERO,
            epoch: 0,
            events: VecDeque::new(),
            outgoing: VecDeque::new(),
            logs: EventLogs::default(),
        };
        // The static set-up below checks itself against these tables, so they must exist first.
        switch.refresh();
        if let Some(static_init) = switch.config.static_init.clone() {
            switch.start_static(&static_init)?;
        }
        Ok(switch)
    }

    /// The tables that the dataplane routes by.
    #[must_use]
    pub const fn tables(&self) -> &Tables {
        &self.tables
    }

    /// Counter that changes whenever [`Switch::tables`] changes.
    #[must_use]
    pub const fn epoch(&self) -> u64 {
        self.epoch
    }

    /// Drains the events that the driver must act on.
    pub fn events(&mut self) -> impl Iterator<Item = Event> {
        self.events.drain(..)
    }

    /// Drains the requests to components further out.
    pub fn outgoing(&mut self) -> impl Iterator<Item = Outgoing> {
        self.outgoing.drain(..)
    }

    /// Looks a port up by number.
    #[must_use]
    pub fn port(&self, port: PortId) -> Option<&Port> {
        self.ports.iter().find(|other| other.id == port)
    }

    /// Looks a virtual switch up by index.
    #[must_use]
    pub fn vcs(&self, vcs: u8) -> Option<&VcsState> {
        self.vcses.get(usize::from(vcs))
    }

    /// The configuration it was built from.
    #[must_use]
    pub const fn config(&self) -> &SwitchConfig {
        &self.config
    }

    /// Reports a link that came up or went down. Bridges bound to the port follow, with a surprise link down if it went
    /// down.
    pub fn set_link(&mut self, port: PortId, link: Option<Link>) {
        let Some(state) = self.ports.iter_mut().find(|other| other.id == port) else { return };
        state.link = link;
        if link.is_none() {
            // The next partner may be another component: it must announce itself before it counts as anything.
            (state.partner, state.refused) = (Partner::Unknown, None);
            state.ppb.lose_link();
        } else {
            state.ppb.set_link(link);
        }
        self.stale_ports.insert(port);
        for at in self.bound_to(port) {
            // An LD's link comes up only when the device has reported its LDs: [`Self::set_partner`].
            let is_whole = self.bound_at(at) == Bound::Port(port);
            let shown = link.filter(|_| is_whole && !self.is_resetting(port));
            self.show_link(at, shown, true);
        }
        self.refresh();
    }

    /// Records whether the manager holds PERST# of a port asserted.
    pub fn set_perst(&mut self, port: PortId, on: bool) {
        if let Some(state) = self.ports.iter_mut().find(|other| other.id == port) {
            state.perst = on;
        }
    }

    /// Reports that the device at a port is being reset (`on`) or has come out of reset. While it is in reset no TLP
    /// passes, and bridges bound to the port see a link down without error, as their software asked for it or was told
    /// otherwise.
    pub fn set_resetting(&mut self, port: PortId, on: bool) {
        let Some(state) = self.ports.iter_mut().find(|other| other.id == port) else { return };
        // Callers repeat the current state (`sync_resets` for each port): that must not rebuild tables.
        if core::mem::replace(&mut state.resetting, on) == on {
            return;
        }
        let link = state.link.filter(|_| !on);
        self.stale_ports.insert(port);
        for at in self.bound_to(port) {
            // The manager alone resets a whole MLD, and that takes down its link, which the LDs' bridges see instead.
            if self.bound_at(at) == Bound::Port(port) {
                self.show_link(at, link, false);
            }
            self.stale_vcses.insert(at.vcs);
        }
        self.refresh();
    }

    /// Whether the device at a port is being reset.
    pub(super) fn is_resetting(&self, port: PortId) -> bool {
        self.port(port).is_some_and(|port| port.resetting)
    }

    /// Reports that the host resets the far end of a virtual link: the path is down until the far end reports Link Up.
    pub fn reset_path(&mut self, at: Vppb) {
        let Some(state) = self.vppb_mut(at) else { return };
        let Bound::Pid(bound) = &mut state.bound else { return };
        bound.up = false;
        let far = bound.far;
        // The reset clears the CacheID registers of the edge below, which sends no update for that.
        self.forget_cache_ids(at.vcs, far);
        self.show_link(at, None, false);
        self.stale_vcses.insert(at.vcs);
        self.refresh();
    }

    /// Logs the state of a port after a change of its link or partner.
    pub fn log_port(&mut self, now: Instant, port: PortId) {
        if let Some(state) = self.ports.iter().find(|other| other.id == port) {
            self.logs.port(now, &state.state(None));
        }
    }

    /// Records the bytes received and sent by a port since the switch started.
    pub fn count_traffic(&mut self, now: Instant, port: PortId, rx: u64, tx: u64) {
        self.traffic_at = now;
        if let Some(port) = self.ports.iter_mut().find(|other| other.id == port) {
            (port.traffic.rx, port.traffic.tx) = (rx, tx);
        }
    }

    /// Logs that `count` accesses at a port were refused by one rule so far.
    pub fn log_refusals(&mut self, now: Instant, port: PortId, rule: &str, count: u64) {
        let pid = self.port(port).map_or(Pid::NONE, Port::pid);
        self.logs.refused(now, &RefusalEvent::new(port.get(), pid.bits(), rule, count));
    }

    /// Port by which static messages to a PID leave; `None` if the PID has no route, or all links of its route are
    /// down.
    #[must_use]
    pub fn static_port(&self, to: Pid) -> Option<PortId> {
        // The pick sees only ports whose link is up: a route with all links down gives no port.
        let up: PortSet =
            self.ports.iter().filter(|port| port.link.is_some()).map(|port| port.id).collect();
        let to = self.tables.routes().lookup(to).ok()?;
        self.tables.pick(to, Flow::Static, up, 0, &NoLoad).ok()?
    }

    /// Records the component at the other end of a port. The partner may announce different values with each message,
    /// so tables are rebuilt only if a value that they contain has changed.
    pub fn set_partner(&mut self, port: PortId, partner: Partner) {
        if let Some(state) = self.ports.iter_mut().find(|other| other.id == port) {
            // Exactly the parts of a partner that `edge` reads.
            let held = (state.is_gfd(), state.announced(), state.lds());
            state.partner = partner;
            let (lds, link) = (state.lds(), state.link);
            if held == (state.is_gfd(), state.announced(), lds) {
                return;
            }
            self.stale_ports.insert(port);
            let (_, _, had) = held;
            for at in self.bound_to(port).into_iter().filter(|_| lds != had) {
                if let Bound::Ld(_, ld) = self.bound_at(at) {
                    // The device reports its LDs after link up: only now is there a device behind the LD's vPPB.
                    self.show_link(at, link.filter(|_| ld < lds.into()), true);
                }
            }
            self.refresh();
        }
    }

    /// Records the last rejected announcement at a port; `None` once an announcement is accepted.
    pub fn set_refused(&mut self, port: PortId, told: Option<LinkPartner>) {
        if let Some(state) = self.ports.iter_mut().find(|other| other.id == port) {
            state.refused = told;
        }
    }

    /// Reports that the path of a virtual link is down or whole again. A loss is shown to the host as a surprise link
    /// down at the vPPB of its edge.
    pub fn set_path(&mut self, at: Vppb, is_up: bool) {
        let Some(state) = self.vppb_mut(at) else { return };
        let Bound::Pid(bound) = &mut state.bound else { return };
        if bound.up == is_up {
            return;
        }
        bound.up = is_up;
        // An end without a PID cannot send, so its link stays down even with a path.
        let (link, far) = ((is_up && bound.own.is_some()).then(Link::default), bound.far);
        if !is_up {
            self.forget_cache_ids(at.vcs, far);
        }
        self.show_link(at, link, true);
        self.stale_vcses.insert(at.vcs);
        self.refresh();
    }

    /// Sets the PID of the switch at a host's edge, for a virtual switch whose upstream vPPB is a vUSP.
    pub fn set_host_edge(&mut self, vcs: u8, pid: Pid) {
        if let Some(state) = self.vcses.get_mut(usize::from(vcs)) {
            state.host_edge = pid;
        }
    }

    /// Marks a command forwarded to a GFD as done, whether answered or given up, and frees its thread.
    pub fn proxy_done(&mut self, vcs: u8, pid: Pid, seq: u8) {
        let threads = self.vcses.get_mut(usize::from(vcs)).map(|vcs| &mut vcs.threads);
        for thread in threads.into_iter().flatten() {
            if thread.pid == pid && thread.seq == seq {
                thread.running = false;
            }
        }
    }

    /// Like [`Self::proxy_done`], and interrupts the host, which polls for results when it sees its bit change.
    pub fn proxy_ended(&mut self, vcs: u8, pid: Pid, seq: u8) {
        self.proxy_done(vcs, pid, seq);
        if let Some(state) = self.vcses.get_mut(usize::from(vcs))
            && state.changed.allow(pid).is_ok()
        {
            self.events.push_back(Event::AccessChanged { vcs });
        }
    }

    /// Latency and bandwidth that the virtual link of a virtual switch to `far` adds; `None` if it has no such link.
    #[must_use]
    pub fn cost_of(&self, vcs: u8, far: Pid) -> Option<weft_parsers::cci::pbr::PathCost> {
        self.vcs(vcs)?.cost_to(far)
    }

    /// All vPPBs bound to a port: several for an MLD, else at most one.
    pub(super) fn bound_to(&self, port: PortId) -> Vec<Vppb> {
        let vcses = (0..=u8::MAX).zip(&self.vcses);
        let all = vcses.flat_map(|(vcs, state)| {
            let vppbs = (0..=u8::MAX).zip(&state.vppbs);
            vppbs.map(move |(vppb, state)| (Vppb { vcs, vppb }, state.bound))
        });
        all.filter(|(_, bound)| bound.port() == Some(port)).map(|(at, _)| at).collect()
    }

    /// Binding of a vPPB; `Bound::No` if there is no such vPPB.
    pub(super) fn bound_at(&self, at: Vppb) -> Bound {
        let vppb = self.vcs(at.vcs).and_then(|state| state.vppbs.get(usize::from(at.vppb)));
        vppb.map_or(Bound::No, |vppb| vppb.bound)
    }

    pub(super) fn vppb_mut(&mut self, at: Vppb) -> Option<&mut super::vcs::VppbState> {
        self.vcses.get_mut(usize::from(at.vcs))?.vppbs.get_mut(usize::from(at.vppb))
    }

    /// Changes the link state that a bridge shows, and queues the effects.
    pub(super) fn show_link(&mut self, at: Vppb, link: Option<Link>, is_surprise: bool) {
        let Some(state) = self.vppb_mut(at) else { return };
        let effects = match link {
            None if is_surprise => state.bridge.lose_link(),
            link => state.bridge.set_link(link),
        };
        self.note(at, effects);
    }

    /// Queues the effects of a change at a bridge, if any.
    pub(super) fn note(&mut self, at: Vppb, effects: BridgeEffects) {
        let Vppb { vcs, vppb } = at;
        if effects != BridgeEffects::default() {
            self.events.push_back(Event::Bridge { vcs, vppb, effects });
        }
    }

    /// Marks a virtual switch and all ports bound to it for a rebuild.
    pub(super) fn touch(&mut self, vcs: u8) {
        self.stale_vcses.insert(vcs);
        let Some(state) = self.vcses.get(usize::from(vcs)) else { return };
        self.stale_ports.extend(state.vppbs.iter().filter_map(|vppb| vppb.bound.port()));
    }

    /// Marks a port for a rebuild.
    pub(super) fn touch_port(&mut self, port: PortId) {
        self.stale_ports.insert(port);
    }

    /// Announces a change of the tables made outside of `refresh`, such as a route.
    pub(super) const fn changed(&mut self) {
        self.epoch += 1;
    }

    /// Rebuilds everything marked, and advances the epoch if there was anything.
    pub(super) fn refresh(&mut self) {
        // The epoch must stand still then: each new epoch makes the driver clone and publish the tables.
        if self.stale_vcses.is_empty() && self.stale_ports.is_empty() {
            return;
        }
        self.epoch += 1;
        for vcs in core::mem::take(&mut self.stale_vcses) {
            let made = self.vcs(vcs).map(|state| state.compile(&|port| self.is_resetting(port)));
            let Some(Ok(made)) = made else { continue };
            // A double binding was refused by its command, so the dataplane has no conflict to report.
            let set = self.tables.set_vcs(vcs, Some(made));
            debug_assert!(set.is_ok(), "{set:?}");
        }
        for port in core::mem::take(&mut self.stale_ports) {
            let edge = self.edge(port);
            let set = self.tables.set_edge(port, edge);
            debug_assert!(set.is_ok(), "{set:?}");
        }
    }

    /// Builds the edge at a port; `None` at a fabric port.
    fn edge(&self, port: PortId) -> Option<EdgePort> {
        let state = self.port(port)?;
        let role = match state.role {
            Role::Fabric => return None,
            Role::Usp => pbr::Role::Usp,
            Role::Dsp if state.is_gfd() => pbr::Role::Gfd,
            Role::Dsp => pbr::Role::Dsp,
        };
        let pid = state.pid();
        let empty = || Some(EdgePort::new(role, pid, Fast::new(1, 0).ok()?, Ldst::new(1, 0).ok()?));
        if state.resetting {
            // TLPs from a device in reset belong to no virtual switch, and none are sent to it.
            let mut edge = empty()?;
            edge.resetting = true;
            return Some(edge);
        }
        let mut edge = None;
        let mut lds = Vec::new();
        for Vppb { vcs, vppb: at } in self.bound_to(port) {
            let Some(owner) = self.vcs(vcs) else { continue };
            let Some(vppb) = owner.vppbs.get(usize::from(at)) else { continue };
            let mut part = vppb.tables.clone();
            let side = at.checked_sub(1).map_or(Side::Above, Side::Below);
            (part.role, part.pid, part.vcs) = (role, pid, Some((vcs, side)));
            (part.prefixes, part.segment) = (owner.prefixes_at(vppb), owner.segment);
            if let Bound::Ld(_, ld) = vppb.bound {
                lds.push((ld, part)); // its vPPB has no CacheID
            } else {
                part.cache_ids = owner.cache_decoding(at);
                edge = Some(part);
            }
        }
        let mut edge = edge.or_else(empty)?;
        // The partner may announce any PID: only those that the fabric manager assigned to the port count.
        let all = state.pids.iter().copied();
        edge.more_pids = all.filter(|&other| !other.is_none() && other != pid).collect();
        edge.announced = state.announced();
        // From here on TLPs name a logical device, even while no LD is bound or the device has not reported its LDs
        // yet. An LD that the device does not have leads nowhere.
        let count = u16::from(state.lds()).min(EdgePort::LDS_MAX);
        let bound_last = lds.iter().map(|(ld, _)| *ld).max();
        let last = count.checked_sub(1).max(bound_last.filter(|ld| *ld < EdgePort::LDS_MAX));
        // `room` comes first: it makes the list long enough for the last LD, and must not erase a bound one.
        let room = last.map(|last| (last, None));
        let bound = lds.into_iter().filter(|(ld, _)| *ld < count).map(|(ld, it)| (ld, Some(it)));
        for (ld, part) in room.into_iter().chain(bound) {
            let set = edge.set_ld(ld, part);
            debug_assert!(set.is_ok(), "{set:?}");
        }
        Some(edge)
    }
}
