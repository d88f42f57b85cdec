//! One virtual switch: its bridges, their bindings, its host's tables, and its GAE.
//!
//! vPPB 0 of a [`VcsState`] is upstream and 1.. are downstream, as commands number them. [`VcsState::compile`] builds
//! the dataplane's routing table from it.
//!
//! Source: CXL 3.1 sections 7.7.2.6, 7.7.6.1, 7.7.6.4; docs/spec/cxl-fabric.md "Tables of an edge";
//! docs/spec/wire-formats.md §4.5, §4.6.

mod access;
mod cache_ids;
pub(crate) mod host_tables;
mod registers;
mod threads;

use std::collections::BTreeMap;
use std::sync::Arc;

use weft_cxl::gfd::gam::Gam;
use weft_cxl::pci::bridge::Window;
use weft_cxl::pci::component::{CacheIdDecoder, CacheIdTable, Structure};
use weft_cxl::pci::cxl::BlockId;
use weft_cxl::pci::express::LnSystem;
use weft_cxl::pci::function::FunctionSpec;
use weft_cxl::pci::mailbox::BlockKind;
use weft_cxl::pci::{
    BarKind, BarSpec, Bridge, BridgeSpec, Component, Function, Identity, Link, Mailbox, PortKind,
    RegisterBlock, SlotSpec, regs,
};
use weft_dataplane::pbr;
use weft_dataplane::pbr::vcs::Gae as GaePlace;
use weft_dataplane::pbr::{Access, AccessVector, EdgePort, Fast, Ldst, Prefixes, TableError};
use weft_dataplane::types::PortId;
use weft_parsers::cci::pbr::PathCost;
use weft_parsers::cci::{Uuid, generic};
use weft_parsers::fabric::{Hpa, Pid};

use super::cache_ids::CacheIds;
use super::cdat;
use super::config::{ConfigError, SwitchConfig, VcsConfig};
use super::port::BRIDGE;

pub use threads::{Thread, Threads};

/// Size of a GAE's BAR0 in bytes: device registers with the mailbox.
pub const GAE_BAR: u64 = 1 << 17;
/// Size of the mailbox's payload, as a power of two.
const MAILBOX_SHIFT: u8 = 15;
/// Class code of a switch mailbox CCI: serial bus, CXL fabric management.
const GAE_CLASS: u32 = 0x0C_0B_00;

/// Binding of a vPPB.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Bound {
    #[default]
    No,
    /// A whole port of this switch.
    Port(PortId),
    /// One logical device (LD-ID) behind a port of this switch.
    Ld(PortId, u16),
    /// The other end of a virtual link.
    Pid(PidBound),
}

/// One end of a virtual link: the binding of a vPPB by PID.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct PidBound {
    /// PID of the other end.
    pub far: Pid,
    /// PID of this end; `None` until a port that can carry the link has one.
    pub own: Option<Pid>,
    /// Latency and bandwidth that the path adds, from the fabric manager.
    pub cost: PathCost,
    /// False while any part of the path is known to be down.
    pub up: bool,
}

/// The state of a vPPB: its registers, its binding, its tables.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct VppbState {
    /// Configuration space that the host's software reads and writes.
    pub bridge: Bridge,
    /// Component registers, in BAR 0; `None` for a bridge without `CacheID`s.
    pub component: Option<Component>,
    pub bound: Bound,
    /// FAST, LDST and re-router of the port or link it is bound to.
    pub tables: EdgePort,
    /// Directions in which the host enabled `VendPrefixL0`; `None`: all that the FM allows.
    pub prefixes: Option<Prefixes>,
}

/// The Global Access Endpoint (GAE) of a virtual switch.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct GaeState {
    /// Configuration space that the host's software reads and writes.
    pub function: Function,
    /// Registers behind its BAR0.
    pub mailbox: Mailbox,
}

/// The state of a virtual switch: its bridges, its host's rights, its GAE.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct VcsState {
    /// The host's port; `None` where the upstream vPPB is a vUSP.
    pub usp: Option<PortId>,
    /// Index 0 is upstream, the rest downstream.
    pub vppbs: Vec<VppbState>,
    pub gae: Option<GaeState>,
    /// Targets that the host may reach: GMV, VTV and LAV, set by the FM.
    pub access: Arc<Access>,
    /// PIDs whose access or cost changed since the host last asked (5801h).
    pub changed: AccessVector,
    /// Latency and bandwidth of the path to each target, from the FM.
    pub costs: BTreeMap<Pid, PathCost>,
    /// Directions in which the FM allows `VendPrefixL0`.
    pub prefixes: Prefixes,
    /// Buffer in the host's memory for notifications of GFDs.
    pub gam: Gam,
    /// The host's domain validation secret.
    pub secret: Option<Uuid>,
    /// PCIe segment of the host's hierarchy.
    pub segment: u8,
    pub cache_ids: CacheIds,
    pub threads: Threads,
}

impl VcsState {
    /// Makes a virtual switch as after power-on: the upstream vPPB of a host is bound to its port, all others are
    /// unbound.
    ///
    /// # Errors
    /// See [`ConfigError`].
    pub fn new(config: &VcsConfig, switch: &SwitchConfig) -> Result<Self, ConfigError> {
        let sizes = switch.sizes;
        let make = |index: u8| -> Result<VppbState, ConfigError> {
            let fast = Fast::new(sizes.fast, sizes.fast_idt)?;
            let ldst = Ldst::new(sizes.ldst, sizes.ldst_idt)?;
            let role = if index == 0 { pbr::Role::Usp } else { pbr::Role::Dsp };
            let bound = match config.usp {
                Some(port) if index == 0 => Bound::Port(port),
                _ => Bound::No,
            };
            let bridge = bridge(index, *config, &switch.identity)?;
            // Only an upstream bridge with ports below has a CDAT to read by DOE.
            let has_doe = index == 0 && config.vppbs > 0;
            let bridge = if has_doe { bridge.with_doe()? } else { bridge };
            let component = component(index, *config);
            Ok(VppbState {
                bridge: if component.is_some() { bridge.with_component()? } else { bridge },
                component,
                bound,
                tables: EdgePort::new(role, Pid::NONE, fast, ldst),
                prefixes: None,
            })
        };
        let is_alone = config.vppbs == 0;
        let gae = config.gae.then(|| gae(&switch.identity, is_alone)).transpose()?;
        // GAM notifications go to the GAE at the host's own edge; behind a vUSP they end.
        let gam = if config.usp.is_some() { Gam::host() } else { Gam::peer() };
        let mut made = Self {
            usp: config.usp,
            vppbs: (0..=config.vppbs).map(make).collect::<Result<_, _>>()?,
            gae,
            access: Arc::default(),
            changed: AccessVector::NONE,
            costs: BTreeMap::new(),
            prefixes: Prefixes::default(),
            gam,
            secret: None,
            segment: 0,
            cache_ids: CacheIds::default(),
            threads: Threads::new(switch.threads),
        };
        // Before the host's first read: the bridge's DOE must never answer with an empty table.
        made.renew_cdat();
        Ok(made)
    }

    /// Updates the CDAT of its upstream bridge after a change of the path or of the ports below.
    pub(crate) fn renew_cdat(&mut self) {
        let path = match self.vppbs.first().map(|upstream| upstream.bound) {
            Some(Bound::Pid(bound)) => Some(bound.cost),
            _ => None,
        };
        let below = u8::try_from(self.vppbs.len().saturating_sub(1)).unwrap_or(u8::MAX);
        let structures = cdat::of_vcs(below, path);
        if let Some(upstream) = self.vppbs.first_mut() {
            upstream.bridge.set_cdat(structures);
        }
    }

    /// Whether the host sees the GAE and no switch, because there are no downstream vPPBs (CXL 3.1, 7.7.2.6).
    #[must_use]
    pub fn gae_is_alone(&self) -> bool {
        self.gae.is_some() && self.vppbs.len() == 1
    }

    /// Function number of the GAE: beside the upstream bridge, or in its place.
    #[must_use]
    pub fn gae_function(&self) -> u8 {
        u8::from(!self.gae_is_alone())
    }

    /// Sets the targets that the host may reach, at all of its vPPBs.
    pub fn set_access(&mut self, access: Access) {
        self.access = access.into();
        for vppb in &mut self.vppbs {
            vppb.tables.set_access(Arc::clone(&self.access));
        }
    }

    /// Directions in which `VendPrefixL0` is on at a vPPB: those that the host enabled and the FM allows.
    #[must_use]
    pub fn prefixes_at(&self, vppb: &VppbState) -> Prefixes {
        let host = vppb.prefixes.unwrap_or(self.prefixes);
        Prefixes::from_bits(host.bits() & self.prefixes.bits())
    }

    /// Builds the dataplane's table that routes TLPs of this virtual switch. Ports for which `is_resetting` holds count
    /// as unbound.
    ///
    /// # Errors
    /// More bridges than a table can hold, which [`VcsState::new`] has ruled out.
    pub fn compile(&self, is_resetting: &dyn Fn(PortId) -> bool) -> Result<pbr::Vcs, TableError> {
        let mut vppbs = (0..=u8::MAX).zip(&self.vppbs).map(|(index, vppb)| pbr::Vppb {
            function: function_of(index),
            bridge: registers(&vppb.bridge),
            bar: vppb
                .registers()
                .map_or(pbr::Window::OFF, |at| pbr::Window::new(at.base, at.limit)),
            binding: match vppb.bound.port() {
                Some(port) if is_resetting(port) => pbr::Binding::Unbound,
                _ => vppb.bound.binding(),
            },
        });
        let upstream = vppbs.next().unwrap_or_default();
        let below: Vec<pbr::Vppb> = vppbs.collect();
        let gae = self.gae.as_ref();
        let gae = gae.map(|gae| GaePlace { function: self.gae_function(), bar: gae.window() });
        Ok(pbr::Vcs::new(upstream, gae, &below)?.with_cache_routes(self.cache_ports()))
    }
}

impl VppbState {
    /// Addresses of its component registers; `None` while BAR 0 is off.
    #[must_use]
    pub fn registers(&self) -> Option<Window> {
        self.component.as_ref().and(self.bridge.component_window())
    }

    /// Resets its registers to their power-on values, as a reset from above does.
    pub fn reset(&mut self) {
        self.bridge.reset();
        if let Some(component) = &mut self.component {
            component.reset();
        }
    }
}

impl Bound {
    /// The binding as the dataplane sees it: a virtual link that is down, or has no own PID, leads nowhere.
    #[must_use]
    pub const fn binding(self) -> pbr::Binding {
        match self {
            Self::No => pbr::Binding::Unbound,
            Self::Port(port) => pbr::Binding::Port(port),
            Self::Ld(port, ld) => pbr::Binding::Ld { port, ld },
            Self::Pid(PidBound { far, own: Some(own), up: true, .. }) => {
                pbr::Binding::Fabric { spid: own, dpid: far }
            }
            Self::Pid(_) => pbr::Binding::Unbound,
        }
    }

    /// The local port that it is bound to, whole or in part.
    #[must_use]
    pub const fn port(self) -> Option<PortId> {
        match self {
            Self::Port(port) | Self::Ld(port, _) => Some(port),
            Self::No | Self::Pid(_) => None,
        }
    }
}

impl GaeState {
    /// Addresses of its BAR0; off while memory decoding is off.
    #[must_use]
    pub fn window(&self) -> pbr::Window {
        let space = self.function.space();
        let base = space.get64(regs::BAR0) & !0xF;
        // A base of 0 is the power-on value, not an address that software has assigned.
        if space.get16(regs::COMMAND) & regs::command::MEM == 0 || base == 0 {
            return pbr::Window::OFF;
        }
        match self.function.bar_of(Hpa(base)) {
            Some(_) => pbr::Window::new(base, base.saturating_add(GAE_BAR - 1)),
            None => pbr::Window::OFF,
        }
    }
}

/// Device and function number of a vPPB on its bus. The upstream one is alone on its bus; the others take function 0
/// of each device, then function 1 of each, and so on.
#[must_use]
pub const fn function_of(vppb: u8) -> u8 {
    match vppb.checked_sub(1) {
        // Function 0 of all 32 devices first: up to 32 bridges need no multi-function device (`bridge`).
        Some(below) => (below & 31) << 3 | below >> 5,
        None => 0,
    }
}

/// The registers of a bridge that route TLPs, in the dataplane's form.
fn registers(bridge: &Bridge) -> pbr::Bridge {
    let space = bridge.space();
    let buses = bridge.buses();
    pbr::Bridge {
        command: space.get16(regs::COMMAND),
        primary: buses.primary,
        secondary: buses.secondary,
        subordinate: buses.subordinate,
        ari: false,
        io: pbr::Window::io(
            space.get8(regs::IO_WINDOW),
            space.get8(regs::IO_WINDOW + 1),
            space.get16(regs::IO_UPPER),
            space.get16(regs::IO_UPPER + 2),
        ),
        memory: pbr::Window::memory(
            space.get16(regs::MEM_WINDOW),
            space.get16(regs::MEM_WINDOW + 2),
        ),
        prefetchable: pbr::Window::prefetchable(
            space.get16(regs::PREF_WINDOW),
            space.get16(regs::PREF_WINDOW + 2),
            space.get32(regs::PREF_UPPER),
            space.get32(regs::PREF_UPPER + 4),
        ),
    }
}

fn bridge(
    index: u8,
    config: VcsConfig,
    identity: &generic::Identity,
) -> Result<Bridge, ConfigError> {
    let upstream = index == 0;
    let slot = (!upstream).then_some(SlotSpec {
        number: index.into(),
        completes: false,
        power: false,
        surprise: false,
    });
    Ok(Bridge::new(&BridgeSpec {
        identity: BRIDGE,
        kind: if upstream { PortKind::Upstream } else { PortKind::Downstream },
        port: index,
        link: Link::default(),
        slot,
        serial: upstream.then_some(identity.serial),
        // More than 32 downstream vPPBs do not fit one function in each device of the bus: `function_of`.
        multi_function: if upstream { config.gae } else { config.vppbs > 32 },
        ln: LnSystem::None,
    })?)
}

/// Component registers of a bridge, which hold `CacheID`s. A GAE without a switch has no bridge beside it.
fn component(index: u8, config: VcsConfig) -> Option<Component> {
    let structure = match index {
        _ if config.vppbs == 0 => return None,
        0 => Structure::CacheIdTable(CacheIdTable::default()),
        _ => Structure::CacheIdDecoder(CacheIdDecoder::default()),
    };
    Component::new(vec![structure]).ok() // one finds room
}

fn gae(identity: &generic::Identity, is_alone: bool) -> Result<GaeState, ConfigError> {
    let mut bars = [None; weft_cxl::pci::function::BAR_COUNT];
    if let Some(first) = bars.first_mut() {
        *first = Some(BarSpec { kind: BarKind::Mem64 { prefetch: false }, size: GAE_BAR });
    }
    let function = Function::new(&FunctionSpec {
        identity: Identity {
            vendor: identity.vendor,
            device: identity.device,
            revision: 1,
            class: GAE_CLASS,
            subsystem: (identity.subsystem_vendor, identity.subsystem),
        },
        bars,
        multi_function: !is_alone,
        blocks: vec![RegisterBlock { bar: 0, id: BlockId::Device as u8, offset: 0 }],
        ..FunctionSpec::default()
    })?;
    Ok(GaeState { function, mailbox: Mailbox::new(BlockKind::Switch, MAILBOX_SHIFT)? })
}
