//! An HBR switch: an upstream port, downstream ports, a bridge each, and TLPs routed between their links.
//!
//! [`HbrSwitch::poll`] drives its ports, the upstream one first. Bridges ([`Bridge`]) hold the registers, and [`Vcs`]
//! routes by them.
//!
//! A TLP goes out as it came in, except that type 1 becomes type 0 at the target bus, and that the header's layout
//! changes between links of two modes. A TLP that cannot be routed is answered with UR, or dropped and counted.
//!
//! Source: PCIe 6.0 section 2.2.4; docs/spec/wire-formats.md §3.4, §3.5; PCIe 6.0 sections 2.2.1.2, 6.7;
//! docs/spec/cxl-fabric.md.

mod cache;
mod mem;
mod registers;
mod resets;
mod uio;

use weft_dataplane::pbr::vcs::{Hop, Route, Side};
use weft_dataplane::pbr::{Gather, LnTlp, Vcs};
use weft_dataplane::pool::Bufs;
use weft_dataplane::port::{Port, PortError};
use weft_dataplane::time::Instant;
use weft_parsers::fabric::Hpa;
use weft_parsers::tlp::{
    Body, Completion, Kind, Mode, Routing, Status, Tlp, TlpRepr, fields, to_flit, to_non_flit,
    type1_to_type0,
};

use crate::cdat::{self, Figures};
use crate::completer::CompleterSpec;
use crate::cxl_host::code;
use crate::pci::bridge::BridgeError;
use crate::pci::component::ComponentError;
use crate::pci::component::{CacheIdDecoder, CacheIdTable};
use crate::pci::express::LnSystem;
use crate::pci::intx::{Message, Wires};
use crate::pci::{
    Bridge, BridgeEffects, BridgeSpec, Component, ErrorMessage, Hdm, HdmRole, Identity, Link,
    PortKind, SlotSpec, Structure, Uncorrectable,
};
use crate::tlp_end::{Carries, EndConfig, EndCounts, Progress, Received, TlpEnd};
use crate::vdm::link_reset::{Ordered, ResetOrders};
pub use cache::HbrCacheCounts;
use cache::{CacheRoutes, CacheTransit};
pub use mem::HbrMemCounts;
use mem::{Asked, MemTransit};
use registers::bridge_of;
use resets::Came;
use uio::NoWay;

/// Longest TLP with its prefixes: header, OHC, payload of 4 KiB.
const TLP_LEN_MAX: usize = 4_096 + 64;
/// Most downstream ports of a switch: each has a device number of the bus within.
pub const DOWN_MAX: usize = 32;

/// Configuration of an HBR switch.
#[derive(Clone, Debug)]
pub struct HbrConfig {
    /// Vendor and device identity of all its bridges.
    pub identity: Identity,
    /// Configuration of the upstream link's end, then of those downstream.
    pub ends: Vec<EndConfig>,
    /// Number of the first slot; downstream port n has number `slot_first` + n.
    pub slot_first: u16,
    /// Whether devices may be removed from its slots without notice (Hot-Plug Surprise).
    pub surprise: bool,
}

/// Why an HBR switch cannot be built.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
pub enum HbrError {
    /// No upstream link, no downstream link, or too many.
    #[error("a switch has a link upstream and 1 to {DOWN_MAX} downstream")]
    Links,
    /// A link carries TLPs with PTH, or several kinds.
    #[error("a switch's links carry TLPs of one mode without PTH")]
    Link,
    /// A bridge cannot be made.
    #[error(transparent)]
    Bridge(#[from] BridgeError),
    /// Its component registers cannot be made.
    #[error(transparent)]
    Component(#[from] ComponentError),
}

/// An event at an HBR switch that its owner acts on.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Event {
    /// Software begins or ends a reset of the link below a downstream port.
    Reset {
        /// Downstream port, from 0.
        port: usize,
        /// Whether the reset begins.
        on: bool,
    },
    /// Software switched the slot's power.
    Power {
        /// Downstream port, from 0.
        port: usize,
        /// Whether the power is on.
        on: bool,
    },
}

/// Counts of TLPs, CXL.mem and CXL.cache messages at an HBR switch.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, serde::Serialize)]
pub struct HbrCounts {
    /// Frames received; each is in one of the next seven counts.
    pub came: u64,
    /// Sent on, to one port or several.
    pub passed: u64,
    /// Configuration requests for its own bridges, and requests to its component registers.
    pub own: u64,
    /// Gathered answers, and messages that end here.
    pub ended: u64,
    /// Refused with UR, or as CXL.mem refuses.
    pub refused: u64,
    /// Dropped: they have no answer to be refused by.
    pub dropped: u64,
    /// TLPs that the mode of the link they should go out by cannot express; answered with UR if they want a completion.
    pub no_form: u64,
    /// NOPs and control messages of links.
    pub other: u64,
    /// Resets ordered from below: dropped.
    pub foreign_resets: u64,
    /// Own messages sent: interrupts and errors.
    pub messages: u64,
    /// CXL.mem messages among those that were passed, refused or dropped.
    pub mem: HbrMemCounts,
    /// CXL.cache messages among those that were passed or dropped.
    pub cache: HbrCacheCounts,
}

/// A TLP on its way, with the link that it came in by.
struct Transit {
    from: usize,
    mode: Mode,
    bytes: Vec<u8>,
}

/// An HBR switch. Its driver owns the ports and a handle of the pool.
pub struct HbrSwitch {
    ends: Vec<TlpEnd>,
    modes: Vec<Mode>,
    /// The upstream bridge, then those downstream.
    bridges: Vec<Bridge>,
    up: Vec<bool>,
    /// Resets ordered on each link downstream; the entry of the upstream link is unused.
    resets: Vec<ResetOrders>,
    /// All ports below are held in reset, by a reset from above or because the upstream link is down.
    held: bool,
    now: Instant,
    /// Bus of the upstream link, from the last type 0 configuration write.
    bus: u8,
    /// PCIe segment, from the last configuration write that named one; 0 before.
    segment: u8,
    vcs: Vcs,
    /// Component registers of the upstream port, which route CXL.mem and CXL.cache to ports below.
    component: Component,
    /// Component registers of each downstream port, with its `CacheID` decoder.
    decoders: Vec<Component>,
    cache_routes: CacheRoutes,
    asked: Asked,
    /// Completer settings for requests to these registers.
    completer: CompleterSpec,
    gather: Gather,
    /// INTx levels asserted by ports below.
    wires: Wires,
    events: Vec<Event>,
    counts: HbrCounts,
}

impl HbrSwitch {
    /// A switch as it is after power-on, with all links down.
    ///
    /// # Errors
    /// See [`HbrError`].
    pub fn new(config: HbrConfig) -> Result<Self, HbrError> {
        if !(2..=DOWN_MAX + 1).contains(&config.ends.len()) {
            return Err(HbrError::Links);
        }
        let mut modes = Vec::new();
        for end in &config.ends {
            let Carries::Hbr(mode) = end.carries else { return Err(HbrError::Link) };
            modes.push(mode);
        }
        let bridges = Self::bridges_of(&config)?;
        let up = vec![false; bridges.len()];
        let vcs = registers::vcs(&bridges, &up, 0);
        let resets = vec![ResetOrders::default(); bridges.len()];
        let payload_max = config.ends.first().map_or(0, |end| end.payload_max);
        let ends = (0..).zip(config.ends).map(|(at, end)| match at {
            0 => TlpEnd::new(end).lower(),
            _ => TlpEnd::new(end),
        });
        let ends = ends.collect();
        let component = Component::new(vec![
            Structure::Hdm(Hdm::new(HdmRole::Switch)),
            Structure::CacheIdTable(CacheIdTable::default()),
        ])?;
        let decoder = Component::new(vec![Structure::CacheIdDecoder(CacheIdDecoder::default())])?;
        let decoders = vec![decoder; bridges.len() - 1];
        let (gather, counts) = (Gather::default(), HbrCounts::default());
        let (now, held, events) = (Instant::ZERO, false, Vec::new());
        Ok(Self {
            ends,
            modes,
            bridges,
            up,
            resets,
            held,
            now,
            bus: 0,
            segment: 0,
            vcs,
            component,
            decoders,
            cache_routes: CacheRoutes::default(),
            asked: Asked::default(),
            completer: CompleterSpec { payload_max, uio_last_first: false },
            gather,
            wires: Wires::default(),
            events,
            counts,
        })
    }

    /// Makes the bridge of each link, the upstream one first.
    fn bridges_of(config: &HbrConfig) -> Result<Vec<Bridge>, HbrError> {
        let mut bridges = Vec::new();
        for (port, at) in (0u8..).zip(0..config.ends.len()) {
            // Downstream ports alone have slots.
            let slot = (config.slot_first..).nth(at.saturating_sub(1)).map(|number| SlotSpec {
                number,
                surprise: config.surprise,
                ..SlotSpec::default()
            });
            let bridge = Bridge::new(&BridgeSpec {
                identity: config.identity,
                kind: if at == 0 { PortKind::Upstream } else { PortKind::Downstream },
                port,
                link: Link::default(),
                slot: slot.filter(|_| at > 0),
                serial: None,
                multi_function: false,
                ln: LnSystem::None,
            })?;
            let bridge = bridge.with_component()?;
            bridges.push(if at == 0 { bridge.with_doe()? } else { bridge });
        }
        let ways: Vec<_> =
            (0..=u8::MAX).take(bridges.len()).skip(1).map(|port| (port, Figures::SWITCH)).collect();
        if let Some(upstream) = bridges.first_mut() {
            upstream.set_cdat(cdat::switch(&ways));
        }
        Ok(bridges)
    }

    /// The bridges, the upstream one first.
    #[must_use]
    pub fn bridges(&self) -> &[Bridge] {
        &self.bridges
    }

    #[must_use]
    pub const fn component(&self) -> &Component {
        &self.component
    }

    #[must_use]
    pub const fn counts(&self) -> HbrCounts {
        self.counts
    }

    #[must_use]
    pub fn end_counts(&self) -> Vec<EndCounts> {
        self.ends.iter().map(TlpEnd::counts).collect()
    }

    /// Returns the events since the last call.
    pub fn take_events(&mut self) -> Vec<Event> {
        core::mem::take(&mut self.events)
    }

    /// Receives frames from the ports, routes them, and sends. Ports are in the order of the links.
    ///
    /// # Errors
    /// A port's own.
    pub fn poll(
        &mut self,
        now: Instant,
        ports: &mut [&mut dyn Port],
        bufs: &mut Bufs,
    ) -> Result<Progress, PortError> {
        let mut all = Progress::default();
        self.now = now;
        self.say_resets();
        for (at, port) in ports.iter_mut().enumerate() {
            // Links before frames: a TLP received in this poll is routed by the links as they are now.
            self.watch(at, port.link_up());
        }
        self.say_wires();
        // Collected, as routing a frame needs the other links' ends; a reset keeps its place among TLPs.
        let (mut came, mut mem, mut cache) = (Vec::new(), Vec::new(), Vec::new());
        for (from, port) in ports.iter_mut().enumerate() {
            let (Some(end), Some(&mode)) = (self.ends.get_mut(from), self.modes.get(from)) else {
                continue;
            };
            let counts = &mut self.counts;
            let progress = end.poll(now, &mut **port, bufs, &mut |frame, _| {
                match frame.content {
                    Received::Reset(ordered) => return came.push(Came::Reset(ordered)),
                    Received::Tlp(None, tlp) if tlp.kind() != Kind::Nop => {
                        let bytes = tlp.bytes().get(..tlp.len()).unwrap_or_default().to_vec();
                        came.push(Came::Tlp(Transit { from, mode, bytes }));
                    }
                    Received::Control(message) => {
                        counts.other += 1;
                        came.push(Came::Control(from, message));
                    }
                    Received::Mem(None, message) => mem.push(MemTransit::new(from, &message)),
                    Received::Cache(message) => cache.push(CacheTransit::new(from, &message)),
                    _ => counts.other += 1,
                }
                counts.came += 1;
            })?;
            all.frames += progress.frames;
            all.next = Instant::earlier(all.next, progress.next);
        }
        for came in came {
            match came {
                Came::Tlp(transit) => self.route(transit),
                Came::Reset(ordered) => self.reset_from_above(ordered == Ordered::Begins),
                Came::Control(at, message) => self.answered(at, message),
            }
        }
        for transit in mem {
            self.route_mem(&transit);
        }
        for transit in cache {
            self.route_cache(transit);
        }
        self.say_resets();
        let due = self.resets.iter().filter_map(ResetOrders::next_due).min();
        all.next = Instant::earlier(all.next, due);
        all.blocked = self.ends.iter().any(|end| end.waiting() > 0);
        Ok(all)
    }

    pub fn release(&mut self, bufs: &mut Bufs) {
        for end in &mut self.ends {
            end.release(bufs);
        }
    }

    /// A link came up or went down.
    fn watch(&mut self, at: usize, up: bool) {
        let Some(was) = self.up.get_mut(at) else { return };
        if core::mem::replace(was, up) == up {
            return;
        }
        if at == 0 {
            // The host is gone, or back: nothing of its configuration may outlive it.
            if let Some(bridge) = self.bridges.first_mut() {
                bridge.set_link(up.then(Link::default));
            }
            self.reset_from_above(!up);
        } else if let Some(bridge) = self.bridges.get_mut(at) {
            let resets = self.resets.get_mut(at);
            let effects = if up {
                let open = resets.is_none_or(|resets| {
                    // Before `is_open`: a link that comes up while a reset is ordered gets the order first.
                    resets.link_up(self.now);
                    resets.is_open()
                });
                [bridge.set_present(true), bridge.set_link(open.then(Link::default))]
            } else {
                resets.into_iter().for_each(ResetOrders::link_down);
                // The loss first, so that Surprise Down is reported before the slot is empty.
                [bridge.lose_link(), bridge.set_present(false)]
            };
            for effects in effects {
                self.react(at, &effects);
            }
            // A device that comes back must not answer requests that went to the one before it.
            self.asked.forget(at);
            let vppb = u8::try_from(at - 1).unwrap_or(u8::MAX);
            // A port that is gone answers no PME_Turn_Off: it counts as answered, or the root would wait for ever.
            if !up && self.gather.answer(vppb) {
                self.gathered();
            }
        }
        self.renew();
    }

    fn react(&mut self, at: usize, effects: &BridgeEffects) {
        if let Some(message) = effects.message {
            self.error(at, message);
        }
        let msi = self.bridges.get(at).and_then(Bridge::msi).filter(|_| effects.interrupt);
        if let (Some(msi), Some(&mode)) = (msi, self.modes.first()) {
            let body = Body::Address {
                addr: Hpa(msi.address),
                wide: msi.address >> 32 != 0,
                at: fields::At::Untranslated,
                no_write: false,
                length_dw: 1,
                first_be: 0xF,
                last_be: 0,
            };
            let payload = u32::from(msi.data).to_le_bytes();
            let tlp = TlpRepr::new(mode, Kind::MemWrite, self.id(at), 0, body);
            self.say(&TlpRepr { payload: &payload, ..tlp });
        }
        if let Some(on) = effects.reset {
            self.reset_by_bridge(at, on);
        }
        if let Some(port) = at.checked_sub(1) {
            self.events.extend(effects.power.map(|on| Event::Power { port, on }));
        }
    }

    /// Sends a TLP of the switch's own to the root.
    fn say(&mut self, tlp: &TlpRepr<'_>) {
        if let Some(end) = self.ends.first_mut()
            && end.outbox().send(None, tlp).is_ok()
        {
            self.counts.messages += 1;
        }
    }

    /// Sends the changes of the combined INTx levels of all ports below; a port without link asserts nothing.
    fn say_wires(&mut self) {
        let bridges = &self.bridges;
        self.wires.retain(|port| bridges.get(port).is_some_and(|it| it.link().is_some()));
        let Some(&mode) = self.modes.first() else { return };
        for message in self.wires.changes() {
            self.say(&TlpRepr::new(mode, Message::KIND, self.id(0), 0, message.body()));
        }
    }

    fn error(&mut self, at: usize, message: ErrorMessage) {
        let Some(&mode) = self.modes.first() else { return };
        let kind = Kind::Message { routing: Routing::ToRoot, data: false };
        let body = Body::Message { code: message.code(), dw2: 0, dw3: 0 };
        self.say(&TlpRepr::new(mode, kind, self.id(at), 0, body));
    }

    /// All ports below have answered: sends one answer up.
    fn gathered(&mut self) {
        let Some(&mode) = self.modes.first() else { return };
        let kind = Kind::Message { routing: Routing::Gather, data: false };
        let body = Body::Message { code: code::PME_TO_ACK, dw2: 0, dw3: 0 };
        self.say(&TlpRepr::new(mode, kind, self.id(0), 0, body));
    }

    fn route(&mut self, mut transit: Transit) {
        let Ok(tlp) = Tlp::parse(transit.mode, &transit.bytes) else {
            self.counts.dropped += 1; // cannot happen: it was parsed when it came
            return;
        };
        let side = match u8::try_from(transit.from) {
            Ok(at @ 1..) => Side::Below(at - 1),
            _ => Side::Above,
        };
        let config0 =
            matches!(tlp.kind(), Kind::CfgRead { type1: false } | Kind::CfgWrite { type1: false });
        let Some(route) = Route::of(&tlp) else { return }; // NOPs, counted when they came
        if let Some(ln) = LnTlp::of(&tlp, tlp.ln())
            && self.vcs.admit_ln(side, ln).is_err()
        {
            return self.refuse(&transit);
        }
        //= PCIe 5.0 section 2.2.10.1: a local prefix is of one link
        if tlp.vend_prefix().is_some() {
            return self.refuse(&transit);
        }
        // Before the windows of bridges: neither these nor bus numbers lead to an HDM decoder's address or to another
        // segment.
        match self.uio_way(transit.from, &tlp, route) {
            Some(Ok(to)) => return self.pass(&transit, &[to]),
            Some(Err(NoWay)) => return self.refuse(&transit),
            None => {}
        }
        match self.vcs.route(side, route) {
            Ok(Hop::Up(_)) => self.pass(&transit, &[0]),
            Ok(Hop::Down { vppb, type1_to_0, .. }) => {
                if type1_to_0 {
                    let changed = type1_to_type0(transit.mode, &mut transit.bytes);
                    debug_assert!(changed.is_ok(), "it was routed as one of type 1");
                }
                self.pass(&transit, &[usize::from(vppb) + 1]);
            }
            Ok(Hop::Broadcast) => {
                let is_turn_off = tlp.message_code() == Some(code::PME_TURN_OFF);
                let below: Vec<usize> =
                    self.vcs.bound().map(|(vppb, _)| usize::from(vppb) + 1).collect();
                // True at once where no port below could answer.
                if is_turn_off && self.gather.start(&self.vcs) {
                    self.gathered();
                }
                self.pass(&transit, &below);
            }
            Ok(Hop::Gather) => {
                self.counts.ended += 1;
                if let Side::Below(vppb) = side
                    && self.gather.answer(vppb)
                {
                    self.gathered();
                }
            }
            Ok(Hop::Here) => {
                self.counts.ended += 1;
                if let (Side::Below(vppb), Some(message)) = (side, Message::of(&tlp)) {
                    // Downstream port n is device n on the bus within, by which INTx pins are swizzled.
                    self.wires.receive(usize::from(vppb) + 1, vppb, message);
                    self.say_wires();
                }
            }
            Ok(Hop::Internal(function)) if tlp.kind().is_config() => {
                // A function learns its bus number from each type 0 write (PCIe 6.0, 2.2.6.2).
                if let (true, fields::Route::Id(dest)) = (config0, tlp.route()) {
                    self.bus = dest.bus();
                }
                self.learn_segment(&tlp);
                self.configure(&transit, bridge_of(function));
            }
            // Component registers route the host's CXL.mem and CXL.cache, so requests from below do not reach them.
            Ok(Hop::Internal(function)) if side == Side::Above => {
                self.serve(&transit, bridge_of(function));
            }
            Ok(Hop::Internal(_)) | Err(_) => self.refuse(&transit),
        }
    }

    /// Carries out a configuration request for one of the bridges.
    fn configure(&mut self, transit: &Transit, at: usize) {
        self.counts.own += 1;
        let Ok(tlp) = Tlp::parse(transit.mode, &transit.bytes) else { return };
        let Some(bridge) = self.bridges.get_mut(at) else { return };
        let fields::Route::Id(me) = tlp.route() else { return };
        let effects = registers::access(bridge, &tlp);
        let value = effects.value.to_le_bytes();
        let answer = if effects.write.is_some() {
            Completion::of(&tlp, Status::Success, me)
        } else {
            Completion::with_data(&tlp, me, 0, &value)
        };
        if let (Some(answer), Some(end)) = (answer, self.ends.get_mut(transit.from)) {
            let sent = end.outbox().send(None, &answer);
            debug_assert!(sent.is_ok(), "the request came on this link");
        }
        if let Some(effects) = effects.write {
            self.react(at, &effects);
        }
        self.renew();
    }

    /// Sends a TLP out by one or more links, in the layout of each.
    fn pass(&mut self, transit: &Transit, to: &[usize]) {
        let Ok(tlp) = Tlp::parse(transit.mode, &transit.bytes) else { return };
        let (mut passed, mut no_form) = (false, false);
        for &at in to {
            let (Some(end), Some(&mode)) = (self.ends.get_mut(at), self.modes.get(at)) else {
                continue;
            };
            let open = self.resets.get(at).is_some_and(ResetOrders::is_open);
            // A port whose link is down or in reset gets nothing, and a single target counts as unreachable below.
            if !self.up.get(at).copied().unwrap_or_default() || !open {
                continue;
            }
            // The common case: no conversion, no copy of the header.
            if mode == transit.mode {
                passed |= end.outbox().pass(&tlp).is_ok();
                continue;
            }
            let mut bytes = vec![0; TLP_LEN_MAX];
            let converted = match mode {
                Mode::Flit => to_flit(&tlp, &mut bytes),
                Mode::NonFlit => to_non_flit(&tlp, &mut bytes),
            };
            let len = converted.unwrap_or_default();
            match Tlp::parse(mode, bytes.get(..len).unwrap_or_default()) {
                Ok(tlp) if len > 0 => passed |= end.outbox().pass(&tlp).is_ok(),
                _ => no_form = true,
            }
        }
        if passed {
            self.counts.passed += 1;
        } else if no_form {
            self.counts.no_form += 1;
            self.answer(transit, &tlp);
        } else if tlp.wants_completion() || to.len() == 1 {
            self.refuse(transit);
        } else {
            self.counts.ended += 1; // a broadcast that no port could take
        }
    }

    fn answer(&mut self, transit: &Transit, tlp: &Tlp<'_>) -> bool {
        let answer = Completion::of(tlp, Status::UnsupportedRequest, self.id(transit.from));
        let (Some(answer), Some(end)) = (answer, self.ends.get_mut(transit.from)) else {
            return false;
        };
        end.outbox().send(None, &answer).is_ok()
    }

    //= PCIe 6.0 section 2.2.4.1: what nobody claims is an unsupported request
    /// Refuses a TLP that no bridge claims, or drops it if it has no answer.
    fn refuse(&mut self, transit: &Transit) {
        let Ok(tlp) = Tlp::parse(transit.mode, &transit.bytes) else { return };
        if self.answer(transit, &tlp) {
            self.counts.refused += 1;
        } else {
            self.counts.dropped += 1;
        }
        // A request that was answered is an advisory error only (PCIe 6.0, 6.2.3.2.4); a posted one is lost silently.
        let (error, posted) = if tlp.is_completion() {
            (Uncorrectable::UnexpectedCompletion, false)
        } else {
            (Uncorrectable::UnsupportedRequest, !tlp.wants_completion())
        };
        if tlp.kind().is_config() {
            return; // by this software finds out that nothing is there; it is no error
        }
        let bridge = self.bridges.get_mut(transit.from);
        if let Some(message) = bridge.and_then(|bridge| bridge.report(error, posted, [0; 4])) {
            self.error(transit.from, message);
        }
    }
}
