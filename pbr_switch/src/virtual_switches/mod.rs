//! The virtual switches of a switch, and the consequences of their changes.
//!
//! A change of a virtual switch may have two consequences outside of it, which collect here: [`Event`]s for the
//! switch's driver, and a mark on each virtual switch and port whose tables must be rebuilt ([`Stale`]).
//!
//! Source: docs/spec/cxl-fabric.md "Binding", "Dynamic change"; CXL 3.1 section 7.7.6.

mod access;
mod bind;
mod cache_ids;
mod host_tables;

use std::collections::{BTreeSet, VecDeque};

use weft_cxl::cci::{Done, Reply};
use weft_cxl::pci::{BridgeEffects, ByteEnables, Link, Reg, Uncorrectable};
use weft_dataplane::pbr::Function;
use weft_dataplane::types::PortId;
use weft_parsers::cci::pbr::Vppb;
use weft_parsers::cci::vcs::{GenerateAer, GetVcsInfo, VcsInfo, VcsInfos, VppbState as Shown};
use weft_parsers::cci::{List, Response, ReturnCode};

use super::cci::{DONE, NONE_SUCH};
use super::config::{ConfigError, Role, Sizes, SwitchConfig};
use super::event::Event;
use super::ports::Ports;
use super::vcs::{Bound, VcsState, VppbState};

/// State of a VCS that is enabled (CXL 3.1 table 7-28).
const ENABLED: u8 = 1;
/// `FFh` in a port or LD field: there is no such port or LD.
const NOBODY: u8 = 255;

/// Virtual switches and ports whose tables must be rebuilt.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Stale {
    pub vcses: BTreeSet<u8>,
    pub ports: BTreeSet<PortId>,
}

impl Stale {
    pub fn is_empty(&self) -> bool {
        self.vcses.is_empty() && self.ports.is_empty()
    }
}

/// All virtual switches of a switch; commands name them by index.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct VirtualSwitches {
    list: Vec<VcsState>,
    /// Sizes of the tables of every vPPB.
    sizes: Sizes,
    /// Events that the driver has not taken yet.
    events: VecDeque<Event>,
    stale: Stale,
}

impl VirtualSwitches {
    /// Makes virtual switches as after power-on, with all tables to build.
    ///
    /// # Errors
    /// See [`ConfigError`].
    pub fn new(config: &SwitchConfig, ports: &Ports) -> Result<Self, ConfigError> {
        // Identify Switch (5100h) reports their number in one byte.
        if config.vcses.len() > 255 {
            return Err(ConfigError::Count(config.vcses.len()));
        }
        let mut list: Vec<VcsState> = Vec::new();
        for (vcs, spec) in config.vcses.iter().enumerate() {
            if spec.vppbs == u8::MAX {
                return Err(ConfigError::Count(spec.vppbs.into()));
            }
            if let Some(usp) = spec.usp {
                let fits = ports.get(usp).is_some_and(|port| port.role == Role::Usp);
                if !fits || list.iter().any(|other| other.usp == Some(usp)) {
                    return Err(ConfigError::Usp { vcs, port: usp.get() });
                }
            }
            list.push(VcsState::new(spec, config)?);
        }
        let stale = Stale {
            vcses: (0..=u8::MAX).take(list.len()).collect(),
            ports: ports.ids().iter().collect(),
        };
        Ok(Self { list, sizes: config.sizes, events: VecDeque::new(), stale })
    }

    /// Numbers of all virtual switches.
    pub fn numbers(&self) -> impl Iterator<Item = u8> + use<> {
        (0..=u8::MAX).take(self.list.len())
    }

    /// All virtual switches with their numbers.
    pub fn iter(&self) -> impl Iterator<Item = (u8, &VcsState)> {
        (0..=u8::MAX).zip(&self.list)
    }

    pub fn get(&self, vcs: u8) -> Option<&VcsState> {
        self.list.get(usize::from(vcs))
    }

    pub fn get_mut(&mut self, vcs: u8) -> Option<&mut VcsState> {
        self.list.get_mut(usize::from(vcs))
    }

    /// The virtual switch that a command names.
    pub fn named(&self, vcs: u8) -> Result<&VcsState, ReturnCode> {
        self.get(vcs).ok_or(NONE_SUCH)
    }

    pub fn named_mut(&mut self, vcs: u8) -> Result<&mut VcsState, ReturnCode> {
        self.get_mut(vcs).ok_or(NONE_SUCH)
    }

    /// The virtual switch that a command for a GAE names.
    pub fn with_gae(&self, vcs: u8) -> Result<&VcsState, ReturnCode> {
        let state = self.named(vcs)?;
        if state.gae.is_none() {
            return Err(ReturnCode::InvalidInput);
        }
        Ok(state)
    }

    /// The vPPB that a command names.
    pub fn vppb(&self, at: Vppb) -> Result<&VppbState, ReturnCode> {
        self.named(at.vcs)?.vppbs.get(usize::from(at.vppb)).ok_or(NONE_SUCH)
    }

    fn vppb_mut(&mut self, at: Vppb) -> Option<&mut VppbState> {
        self.get_mut(at.vcs)?.vppbs.get_mut(usize::from(at.vppb))
    }

    /// All vPPBs bound to a port: several for an MLD, else at most one.
    pub fn bound_to(&self, port: PortId) -> Vec<Vppb> {
        let all = self.iter().flat_map(|(vcs, state)| {
            let vppbs = (0..=u8::MAX).zip(&state.vppbs);
            vppbs.map(move |(vppb, state)| (Vppb { vcs, vppb }, state.bound))
        });
        all.filter(|(_, bound)| bound.port() == Some(port)).map(|(at, _)| at).collect()
    }

    /// Binding of a vPPB; `Bound::No` if there is no such vPPB.
    pub fn bound_at(&self, at: Vppb) -> Bound {
        self.vppb(at).map_or(Bound::No, |vppb| vppb.bound)
    }

    /// Drains the events that the driver must act on.
    pub fn events(&mut self) -> impl Iterator<Item = Event> {
        self.events.drain(..)
    }

    /// Queues an event.
    pub fn push(&mut self, event: Event) {
        self.events.push_back(event);
    }

    /// Takes the marks of what must be rebuilt.
    pub fn take_stale(&mut self) -> Stale {
        core::mem::take(&mut self.stale)
    }

    /// Marks a virtual switch and all ports bound to it for a rebuild.
    pub fn touch(&mut self, vcs: u8) {
        self.touch_only(vcs);
        let Some(state) = self.list.get(usize::from(vcs)) else { return };
        self.stale.ports.extend(state.vppbs.iter().filter_map(|vppb| vppb.bound.port()));
    }

    /// Marks a virtual switch for a rebuild, but not its ports.
    pub fn touch_only(&mut self, vcs: u8) {
        self.stale.vcses.insert(vcs);
    }

    /// Marks a port for a rebuild.
    pub fn touch_port(&mut self, port: PortId) {
        self.stale.ports.insert(port);
    }

    /// Changes the link state that a bridge shows, and queues the effects.
    pub fn show_link(&mut self, at: Vppb, link: Option<Link>, is_surprise: bool) {
        let Some(state) = self.vppb_mut(at) else { return };
        let effects = match link {
            None if is_surprise => state.bridge.lose_link(),
            link => state.bridge.set_link(link),
        };
        self.note(at, effects);
    }

    /// Queues the effects of a change at a bridge, if any.
    fn note(&mut self, at: Vppb, effects: BridgeEffects) {
        let Vppb { vcs, vppb } = at;
        if effects != BridgeEffects::default() {
            self.events.push_back(Event::Bridge { vcs, vppb, effects });
        }
    }

    /// Writes a register of a function; false if there is no such function.
    pub fn config_write(
        &mut self,
        vcs: u8,
        function: Function,
        reg: Reg,
        value: u32,
        enables: ByteEnables,
    ) -> bool {
        let state = self.get_mut(vcs);
        let written = state.and_then(|state| state.config_write(function, reg, value, enables));
        let Some(written) = written else { return false };
        if written.reroutes {
            self.touch(vcs);
        }
        if let Some((vppb, effects)) = written.bridge {
            self.note(Vppb { vcs, vppb }, effects);
            // `reset` reports the change of Secondary Bus Reset, so a bit that stays set resets once.
            if vppb == 0
                && effects.reset == Some(true)
                && let Some(state) = self.get_mut(vcs)
            {
                state.reset_below();
                self.touch(vcs);
            }
        }
        true
    }

    //= PCIe 6.0 section 2.2.6.2: in flit mode a function learns its segment from configuration writes of type 0
    /// Records the PCIe segment in a host's configuration writes. Edge ports insert it into requests that leave its
    /// hierarchy.
    pub fn capture_segment(&mut self, vcs: u8, segment: u8) {
        let Some(state) = self.get_mut(vcs) else { return };
        if state.segment != segment {
            state.segment = segment;
            self.touch(vcs);
        }
    }

    /// See [`VcsState::capture_bus`].
    pub fn capture_bus(&mut self, vcs: u8, bus: u8) {
        if self.get_mut(vcs).is_some_and(|state| state.capture_bus(bus)) {
            self.touch(vcs);
        }
    }

    /// See [`VcsState::reset`].
    pub fn reset(&mut self, vcs: u8) {
        if let Some(state) = self.get_mut(vcs) {
            state.reset();
            self.touch(vcs);
        }
    }

    /// Get Virtual CXL Switch Info (5200h). `busy`: the vPPB with a bind or unbind in progress.
    pub fn info(&self, request: &GetVcsInfo<'_>, busy: Option<Vppb>, reply: &mut Reply) -> Done {
        let mut all: Vec<(u8, u8, Vec<Shown>)> = Vec::new();
        for vcs in request.vcss.iter() {
            let state = self.named(vcs)?;
            let vppbs = (0..=u8::MAX).zip(&state.vppbs);
            let wanted = vppbs.skip(request.start.into()).take(request.limit.into());
            let vppbs = wanted
                .map(|(vppb, state)| shown(state.bound, busy == Some(Vppb { vcs, vppb })))
                .collect();
            all.push((vcs, state.usp.map_or(NOBODY, PortId::get), vppbs));
        }
        let infos = all.iter().map(|(vcs, usp, vppbs)| VcsInfo {
            vcs: *vcs,
            state: ENABLED,
            usp: *usp,
            vppbs: List::of(vppbs),
        });
        let infos: Vec<VcsInfo<'_>> = infos.collect();
        reply.send(&Response::GetVcsInfo(VcsInfos::of(&infos)))
    }

    pub fn generate_aer(&mut self, request: &GenerateAer) -> Done {
        // Request and AER register number uncorrectable errors alike; an unknown bit is refused.
        let error = Uncorrectable::ALL.into_iter().find(|it| it.bit() == request.error);
        let error = error.ok_or(ReturnCode::InvalidInput)?;
        let mut header = [0; 4];
        // The AER header log holds the TLP in its order on the wire.
        for (word, bytes) in header.iter_mut().zip(request.tlp.as_chunks::<4>().0) {
            *word = u32::from_be_bytes(*bytes);
        }
        if request.vppb == 0 && self.named(request.vcs)?.gae_is_alone() {
            return Err(ReturnCode::InvalidInput); // there is no bridge to tell it
        }
        let at = Vppb { vcs: request.vcs, vppb: request.vppb };
        let message = self.vppb_mut(at).ok_or(NONE_SUCH)?.bridge.report(error, true, header);
        self.note(at, BridgeEffects { message, ..BridgeEffects::default() });
        DONE
    }
}

/// State of a vPPB as Get Virtual CXL Switch Info reports it, with the binding states of CXL 3.1 table 7-28.
fn shown(bound: Bound, is_busy: bool) -> Shown {
    // 0 unbound, 1 in progress, 2 port, 3 LD, 4 PID.
    let (status, port, ld) = match bound {
        Bound::No => (0, NOBODY, NOBODY),
        Bound::Port(port) => (2, port.get(), NOBODY),
        Bound::Ld(port, ld) => (3, port.get(), u8::try_from(ld).unwrap_or(NOBODY)),
        Bound::Pid(_) => (4, NOBODY, NOBODY),
    };
    Shown { status: if is_busy { 1 } else { status }, port, ld }
}
