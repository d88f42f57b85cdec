//! The state of a switch, what happens to it from outside, and the tables that are made of it.
//!
//! [`Switch`]; whatever changes marks what has to be made anew, and [`Switch::tables`] is whole after each call.
//!
//! Units: PIDs of 12 bits; time as `Instant`.
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
use weft_parsers::cci::pbr::LinkPartner;
use weft_parsers::cci::switch::{ConfigAccess, PortOp};
use weft_parsers::fabric::{Hpa, Pid};

use super::config::{ConfigError, Role, SwitchConfig};
use super::event_log::EventLogs;
use super::port::{Partner, Port};
use super::vcs::{Bound, VcsState};
use super::work::Work;

/// An event at the switch's bridges or edges that whoever drives it has to act on.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Event {
    /// What a register write or an event did at a bridge: interrupt, error message, reset, power.
    Bridge {
        /// The virtual switch.
        vcs: u8,
        /// The bridge.
        vppb: u8,
        /// What it did.
        effects: BridgeEffects,
    },
    /// A vPPB has been bound to the other end of a virtual link, or is no more: link and reset VDMs follow.
    PidBinding {
        /// The virtual switch.
        vcs: u8,
        /// The bridge.
        vppb: u8,
        /// It is bound.
        bound: bool,
        /// Own PID, `FFF` while there is none.
        own: Pid,
        /// PID of the other end.
        far: Pid,
    },
    /// Which targets a host may reach has changed: its GAE interrupts.
    AccessChanged {
        /// The virtual switch.
        vcs: u8,
    },
    /// A logical device is to be reset: its host has gone, or another one may get it.
    LdReset {
        /// The port.
        port: PortId,
        /// LD-ID.
        ld: u16,
    },
    /// A device at a port has another host, or none: it is to be reset.
    PortReset {
        /// The port.
        port: PortId,
    },
    /// The manager resets what is at a port.
    PortControl {
        /// The port.
        port: PortId,
        /// How.
        op: PortOp,
    },
    /// A command of a GAE's mailbox is done: its interrupt is to be sent.
    GaeInterrupt {
        /// The virtual switch.
        vcs: u8,
    },
    /// A host's command is to be forwarded to a GFD.
    Proxy {
        /// The virtual switch.
        vcs: u8,
        /// The GFD.
        pid: Pid,
        /// Which of the commands to that GFD.
        seq: u8,
        /// Where in the host's memory the command is.
        request: Hpa,
        /// Bytes of the command.
        len: u16,
        /// Where the response is to be put.
        response: Hpa,
        /// Bytes there are for it.
        response_max: u16,
    },
    /// A command that is being forwarded is to be given up.
    CancelProxy {
        /// The virtual switch.
        vcs: u8,
        /// The GFD.
        pid: Pid,
        /// Which of the commands to that GFD.
        seq: u8,
    },
}

/// The receiver and content of a request to a component further out.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum FarRequest {
    /// The PBR component at the other end of a port, without a PID (DPID `FFF`): a CCI message.
    Port(PortId, Vec<u8>),
    /// A component with a PID: a CCI message.
    Pid(Pid, Vec<u8>),
    /// The fabric manager's logical device, or the device, behind a port: a CCI message.
    Device(PortId, Vec<u8>),
    /// Configuration space of a logical device; the answer is the 4 bytes read, zero for a write.
    LdConfig {
        /// The port.
        port: PortId,
        /// LD-ID.
        ld: u16,
        /// Where.
        access: ConfigAccess,
        /// What is written.
        data: u32,
    },
    /// Memory of a logical device; the answer is a response of 5302h.
    LdMem {
        /// The port.
        port: PortId,
        /// LD-ID.
        ld: u16,
        /// How.
        access: MemAccess,
        /// Bytes.
        len: u16,
        /// Where.
        offset: u64,
        /// What is written.
        data: Vec<u8>,
    },
}

/// No queue is looked at: static messages do not choose.
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
    /// Which request it belongs to.
    pub ticket: Ticket,
    /// PID of who asks: the fabric manager.
    pub spid: Pid,
    /// For whom, and what.
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
    /// When the traffic of the ports was counted last.
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
    /// A switch as after power-on: nobody's, links down; but for what its configuration sets up, no PID assigned, nothing
    /// routed, downstream vPPBs unbound.
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
        ports.sort_by_key(|port| port.id);
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

    /// A number that changes whenever [`Switch::tables`] does.
    #[must_use]
    pub const fn epoch(&self) -> u64 {
        self.epoch
    }

    /// Takes the events that are to be acted on; each once.
    pub fn events(&mut self) -> impl Iterator<Item = Event> {
        self.events.drain(..)
    }

    /// Takes the requests that go further out; each once.
    pub fn outgoing(&mut self) -> impl Iterator<Item = Outgoing> {
        self.outgoing.drain(..)
    }

    /// The port of a number.
    #[must_use]
    pub fn port(&self, port: PortId) -> Option<&Port> {
        self.ports.iter().find(|other| other.id == port)
    }

    /// The virtual switch of a number.
    #[must_use]
    pub fn vcs(&self, vcs: u8) -> Option<&VcsState> {
        self.vcses.get(usize::from(vcs))
    }

    /// The configuration that it was made of.
    #[must_use]
    pub const fn config(&self) -> &SwitchConfig {
        &self.config
    }

    /// Tells it that a link came up or went down: the vPPBs that are bound to the port see it, as a surprise when it
    /// went down.
    pub fn set_link(&mut self, port: PortId, link: Option<Link>) {
        let Some(state) = self.ports.iter_mut().find(|other| other.id == port) else { return };
        state.link = link;
        if link.is_none() {
            (state.partner, state.refused) = (Partner::Unknown, None);
            state.ppb.lose_link();
        } else {
            state.ppb.set_link(link);
        }
        self.stale_ports.insert(port);
        for (vcs, vppb) in self.bound_to(port) {
            // A logical device is there once the device has said so: [`Self::set_partner`].
            let is_whole = self.bound_at(vcs, vppb) == Bound::Port(port);
            let shown = link.filter(|_| is_whole && !self.is_resetting(port));
            self.show_link(vcs, vppb, shown, true);
        }
        self.refresh();
    }

    /// Says whether the manager holds PERST# of a port asserted.
    pub fn set_perst(&mut self, port: PortId, on: bool) {
        if let Some(state) = self.ports.iter_mut().find(|other| other.id == port) {
            state.perst = on;
        }
    }

    /// Tells it that what is at a port is being reset, or is not any more: until then its link is down for the vPPBs that are
    /// bound to it, which have wanted that or have been told otherwise, and no TLP passes.
    pub fn set_resetting(&mut self, port: PortId, on: bool) {
        let Some(state) = self.ports.iter_mut().find(|other| other.id == port) else { return };
        if core::mem::replace(&mut state.resetting, on) == on {
            return;
        }
        let link = state.link.filter(|_| !on);
        self.stale_ports.insert(port);
        for (vcs, vppb) in self.bound_to(port) {
            if self.bound_at(vcs, vppb) == Bound::Port(port) {
                self.show_link(vcs, vppb, link, false);
            }
            self.stale_vcses.insert(vcs);
        }
        self.refresh();
    }

    /// Whether what is at a port is being reset.
    pub(super) fn is_resetting(&self, port: PortId) -> bool {
        self.port(port).is_some_and(|port| port.resetting)
    }

    /// Tells it that its host resets what is at the other end of a virtual link: that is down until it is up again.
    pub fn reset_path(&mut self, vcs: u8, vppb: u8) {
        let Some(state) = self.vppb_mut(vcs, vppb) else { return };
        let Bound::Pid(bound) = &mut state.bound else { return };
        bound.up = false;
        let far = bound.far;
        self.forget_cache_ids(vcs, far);
        self.show_link(vcs, vppb, None, false);
        self.stale_vcses.insert(vcs);
        self.refresh();
    }

    /// Notes in its event log what a port is like, as its link or its partner has changed.
    pub fn log_port(&mut self, now: Instant, port: PortId) {
        if let Some(state) = self.ports.iter().find(|other| other.id == port) {
            self.logs.port(now, &state.state(None));
        }
    }

    /// Notes how many bytes have come in and gone out by a port by now.
    pub fn count_traffic(&mut self, now: Instant, port: PortId, rx: u64, tx: u64) {
        self.traffic_at = now;
        if let Some(port) = self.ports.iter_mut().find(|other| other.id == port) {
            (port.traffic.rx, port.traffic.tx) = (rx, tx);
        }
    }

    /// Notes in its event log that `count` accesses have been refused at a port by now by one rule.
    pub fn log_refusals(&mut self, now: Instant, port: PortId, rule: &str, count: u64) {
        let pid = self.port(port).map_or(Pid::NONE, Port::pid);
        self.logs.refused(now, &RefusalEvent::new(port.get(), pid.bits(), rule, count));
    }

    /// The port by which static messages to a PID leave; none where they find no way out.
    #[must_use]
    pub fn static_port(&self, to: Pid) -> Option<PortId> {
        let up: PortSet =
            self.ports.iter().filter(|port| port.link.is_some()).map(|port| port.id).collect();
        let to = self.tables.routes().lookup(to).ok()?;
        self.tables.pick(to, Flow::Static, up, 0, &NoLoad).ok()?
    }

    /// Tells it what is at the other end of a port. Tables change only with what they hold of that: whoever is there
    /// may say something else with each message.
    pub fn set_partner(&mut self, port: PortId, partner: Partner) {
        if let Some(state) = self.ports.iter_mut().find(|other| other.id == port) {
            let held = (state.is_gfd(), state.announced(), state.lds());
            state.partner = partner;
            let (lds, link) = (state.lds(), state.link);
            if held == (state.is_gfd(), state.announced(), lds) {
                return;
            }
            self.stale_ports.insert(port);
            let (_, _, had) = held;
            for (vcs, vppb) in self.bound_to(port).into_iter().filter(|_| lds != had) {
                if let Bound::Ld(_, ld) = self.bound_at(vcs, vppb) {
                    self.show_link(vcs, vppb, link.filter(|_| ld < lds.into()), true);
                }
            }
            self.refresh();
        }
    }

    /// What has been announced at a port in a name that is not the port's; none once somebody speaks in the right one.
    pub fn set_refused(&mut self, port: PortId, told: Option<LinkPartner>) {
        if let Some(state) = self.ports.iter_mut().find(|other| other.id == port) {
            state.refused = told;
        }
    }

    /// Tells it that the path to the other end of a virtual link is down, or whole again: the Host ES tells its host by
    /// a surprise link down.
    pub fn set_path(&mut self, vcs: u8, vppb: u8, is_up: bool) {
        let Some(state) = self.vppb_mut(vcs, vppb) else { return };
        let Bound::Pid(bound) = &mut state.bound else { return };
        if bound.up == is_up {
            return;
        }
        bound.up = is_up;
        let (link, far) = ((is_up && bound.own.is_some()).then(Link::default), bound.far);
        if !is_up {
            self.forget_cache_ids(vcs, far);
        }
        self.show_link(vcs, vppb, link, true);
        self.stale_vcses.insert(vcs);
        self.refresh();
    }

    /// Sets the PID that manages the host edge of a virtual switch whose upstream vPPB is a vUSP.
    pub fn set_host_edge(&mut self, vcs: u8, pid: Pid) {
        if let Some(state) = self.vcses.get_mut(usize::from(vcs)) {
            state.host_edge = pid;
        }
    }

    /// Tells it that a command that was forwarded to a GFD is done, answered or given up.
    pub fn proxy_done(&mut self, vcs: u8, pid: Pid, seq: u8) {
        let threads = self.vcses.get_mut(usize::from(vcs)).map(|vcs| &mut vcs.threads);
        for thread in threads.into_iter().flatten() {
            if thread.pid == pid && thread.seq == seq {
                thread.running = false;
            }
        }
    }

    /// Tells it that a command that was forwarded to a GFD came to its end: its host is told.
    pub fn proxy_ended(&mut self, vcs: u8, pid: Pid, seq: u8) {
        self.proxy_done(vcs, pid, seq);
        if let Some(state) = self.vcses.get_mut(usize::from(vcs))
            && state.changed.allow(pid).is_ok()
        {
            self.events.push_back(Event::AccessChanged { vcs });
        }
    }

    /// The latency and bandwidth that a virtual link of a virtual switch to `far` adds; `None` where there is none.
    #[must_use]
    pub fn cost_of(&self, vcs: u8, far: Pid) -> Option<weft_parsers::cci::pbr::PathCost> {
        self.vcs(vcs)?.cost_to(far)
    }

    /// Which vPPBs are bound to a port.
    pub(super) fn bound_to(&self, port: PortId) -> Vec<(u8, u8)> {
        let vcses = (0..=u8::MAX).zip(&self.vcses);
        let all = vcses.flat_map(|(vcs, state)| {
            (0..=u8::MAX).zip(&state.vppbs).map(move |(at, vppb)| (vcs, at, vppb.bound))
        });
        all.filter(|(_, _, bound)| bound.port() == Some(port)).map(|(v, at, _)| (v, at)).collect()
    }

    /// What a vPPB is bound to.
    pub(super) fn bound_at(&self, vcs: u8, vppb: u8) -> Bound {
        let vppb = self.vcs(vcs).and_then(|state| state.vppbs.get(usize::from(vppb)));
        vppb.map_or(Bound::No, |vppb| vppb.bound)
    }

    pub(super) fn vppb_mut(&mut self, vcs: u8, vppb: u8) -> Option<&mut super::vcs::VppbState> {
        self.vcses.get_mut(usize::from(vcs))?.vppbs.get_mut(usize::from(vppb))
    }

    /// Shows a bridge its link, and notes what comes of it.
    pub(super) fn show_link(&mut self, vcs: u8, vppb: u8, link: Option<Link>, is_surprise: bool) {
        let Some(state) = self.vppb_mut(vcs, vppb) else { return };
        let effects = match link {
            None if is_surprise => state.bridge.lose_link(),
            link => state.bridge.set_link(link),
        };
        self.note(vcs, vppb, effects);
    }

    /// Notes what came of something at a bridge.
    pub(super) fn note(&mut self, vcs: u8, vppb: u8, effects: BridgeEffects) {
        if effects != BridgeEffects::default() {
            self.events.push_back(Event::Bridge { vcs, vppb, effects });
        }
    }

    /// A virtual switch has to be made anew, and the ports that it has.
    pub(super) fn touch(&mut self, vcs: u8) {
        self.stale_vcses.insert(vcs);
        let Some(state) = self.vcses.get(usize::from(vcs)) else { return };
        self.stale_ports.extend(state.vppbs.iter().filter_map(|vppb| vppb.bound.port()));
    }

    /// A port has to be made anew.
    pub(super) fn touch_port(&mut self, port: PortId) {
        self.stale_ports.insert(port);
    }

    /// The tables were changed otherwise.
    pub(super) const fn changed(&mut self) {
        self.epoch += 1;
    }

    /// Makes anew what has to be.
    pub(super) fn refresh(&mut self) {
        if self.stale_vcses.is_empty() && self.stale_ports.is_empty() {
            return;
        }
        self.epoch += 1;
        for vcs in core::mem::take(&mut self.stale_vcses) {
            let made = self.vcs(vcs).map(|state| state.compile(&|port| self.is_resetting(port)));
            let Some(Ok(made)) = made else { continue };
            // What would be bound twice was refused by the command.
            let set = self.tables.set_vcs(vcs, Some(made));
            debug_assert!(set.is_ok(), "{set:?}");
        }
        for port in core::mem::take(&mut self.stale_ports) {
            let edge = self.edge(port);
            let set = self.tables.set_edge(port, edge);
            debug_assert!(set.is_ok(), "{set:?}");
        }
    }

    /// The edge at a port; `None` at a fabric port.
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
            // Whatever comes from there is nobody's, and nothing goes there.
            let mut edge = empty()?;
            edge.resetting = true;
            return Some(edge);
        }
        let mut edge = None;
        let mut lds = Vec::new();
        for (vcs, at) in self.bound_to(port) {
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
        // Whoever is there calls itself as it likes: only what the fabric manager gave to the port counts.
        let all = state.pids.iter().copied();
        edge.more_pids = all.filter(|&other| !other.is_none() && other != pid).collect();
        edge.announced = state.announced();
        // From here on TLPs name a logical device, also while none is bound, or the device has not said yet how many it
        // has; one that it has not leads nowhere.
        let count = u16::from(state.lds()).min(EdgePort::LDS_MAX);
        let bound_last = lds.iter().map(|(ld, _)| *ld).max();
        let last = count.checked_sub(1).max(bound_last.filter(|ld| *ld < EdgePort::LDS_MAX));
        let room = last.map(|last| (last, None));
        let bound = lds.into_iter().filter(|(ld, _)| *ld < count).map(|(ld, it)| (ld, Some(it)));
        for (ld, part) in room.into_iter().chain(bound) {
            let set = edge.set_ld(ld, part);
            debug_assert!(set.is_ok(), "{set:?}");
        }
        Some(edge)
    }
}
