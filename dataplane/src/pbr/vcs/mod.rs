//! One virtual switch: an upstream vPPB and the vPPBs below it, and how they route a TLP.
//!
//! [`Vcs::route`] takes the [`Side`] that a TLP enters from and its [`Route`], and gives a [`Hop`] or a [`Refusal`]. A
//! plain HBR switch is one, too.
//!
//! Source: PCIe 6.0 sections 2.2.4, 2.2.8; docs/spec/wire-formats.md §3.4; CXL 3.1 section 7.7.6.4.

use std::sync::Arc;

use weft_parsers::fabric::{Bdf, Hpa, Pid};

use super::bridge::{Bridge, Window};
use super::cache_ids::CacheRoutes;
use super::error::TableError;
use super::ln::LnTlp;
use super::refusal::Refusal;
use crate::types::PortId;

/// Maximum number of vPPBs below the upstream one.
pub const VPPBS_MAX: usize = 255;

/// Marks a bus that is below no vPPB.
const NOBODY: u8 = u8::MAX;

/// Binding of a virtual PCI-to-PCI bridge (vPPB).
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Binding {
    /// Not bound: the host sees a slot without a device.
    #[default]
    Unbound,
    /// To a port of this switch.
    Port(PortId),
    /// To one logical device behind a port of this switch.
    Ld {
        /// The port of this switch.
        port: PortId,
        /// LD-ID of the logical device.
        ld: u16,
    },
    /// To the other end of a virtual link: TLPs leave with these PIDs, and come in with them exchanged.
    Fabric {
        /// PID of this end.
        spid: Pid,
        /// PID of the other end.
        dpid: Pid,
    },
}

/// One virtual PCI-to-PCI bridge (vPPB).
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Vppb {
    /// Device and function number on its primary bus, 5 and 3 bits.
    pub function: u8,
    /// Its bridge registers, as the host has set them.
    pub bridge: Bridge,
    /// Addresses of its own memory-mapped registers, by its BAR.
    pub bar: Window,
    /// The port, logical device or virtual link below it.
    pub binding: Binding,
}

/// The GAE beside the upstream vPPB, or in its place if both have the same function number.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Gae {
    /// Device and function number on the primary bus.
    pub function: u8,
    /// Addresses of its memory-mapped registers.
    pub bar: Window,
}

/// Side from which a TLP enters the virtual switch.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Side {
    /// From the root.
    Above,
    /// From below this vPPB.
    Below(u8),
}

/// Destination that a TLP names.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Route {
    /// Memory requests, and messages routed by address.
    Memory(Hpa),
    /// I/O requests.
    Io(u64),
    /// Completions, and messages routed by id.
    Id(Bdf),
    /// Type 0 configuration: for the function at the end of this link.
    Config0(Bdf),
    /// Type 1 configuration: for a bus further down.
    Config1(Bdf),
    /// Messages without an address or id.
    Implicit(Implicit),
    /// CXL.cache: by a cache of the hierarchy. No bridge routes these.
    CacheId(u8),
}

/// Destination of a message that is routed implicitly (PCIe 6.0, 2.2.8).
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Implicit {
    /// 000: to the root.
    ToRoot,
    /// 011: from the root to all below.
    Broadcast,
    /// 100: ends at the receiver.
    Local,
    /// 101: to the root, one message for all.
    Gather,
}

impl Implicit {
    /// Reads the three routing bits of a message's type; `None` for routing by address, by id, and reserved values.
    #[must_use]
    pub const fn from_bits(routing: u8) -> Option<Self> {
        match routing {
            0 => Some(Self::ToRoot),
            3 => Some(Self::Broadcast),
            4 => Some(Self::Local),
            5 => Some(Self::Gather),
            _ => None,
        }
    }
}

/// A function of the virtual switch itself.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Function {
    /// The upstream vPPB.
    Upstream,
    /// The vPPB with this index below it.
    Below(u8),
    /// The GAE beside the upstream vPPB.
    Gae,
}

/// Where the virtual switch sends a TLP.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Hop {
    /// To the root, by the upstream vPPB's binding, which is never [`Binding::Unbound`].
    Up(Binding),
    /// Out below a vPPB.
    Down {
        /// Index of the vPPB.
        vppb: u8,
        /// Its binding, never [`Binding::Unbound`].
        binding: Binding,
        /// Type 1 configuration becomes Type 0, as this is its target bus.
        type1_to_0: bool,
    },
    /// To a function of the virtual switch.
    Internal(Function),
    /// Below all vPPBs that are bound: [`Vcs::bound`].
    Broadcast,
    /// One answer of many: [`super::Gather`] says when to send one up.
    Gather,
    /// It ends in the virtual switch.
    Here,
}

/// A range of addresses that a vPPB claims from above.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
struct Claim {
    window: Window,
    vppb: u8,
    /// The range is the vPPB's own registers, not something below it.
    own: bool,
}

/// A virtual switch, or a whole HBR switch.
///
/// Routing by id reads this header, one line of the map of buses and one of the vPPB; routing by address reads the list
/// of claims up to the first match.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Vcs {
    upstream: Vppb,
    gae: Option<Gae>,
    below: Arc<[Vppb]>,
    /// vPPB below which each bus lies.
    buses: Arc<[u8; 256]>,
    memory: Arc<[Claim]>,
    io: Arc<[Claim]>,
    cache_routes: CacheRoutes,
}

impl Vcs {
    /// The virtual switch of these bridges. If two claim the same range, the first one gets it.
    ///
    /// # Errors
    /// More than [`VPPBS_MAX`] below.
    pub fn new(upstream: Vppb, gae: Option<Gae>, below: &[Vppb]) -> Result<Self, TableError> {
        if below.len() > VPPBS_MAX {
            return Err(TableError::Vppb(below.len()));
        }
        let mut buses = [NOBODY; 256];
        let (mut memory, mut io) = (Vec::new(), Vec::new());
        for (vppb, Vppb { bridge, bar, .. }) in (0..NOBODY).zip(below) {
            for (bus, by) in (0..=u8::MAX).zip(&mut buses) {
                // Hosts can set overlapping ranges; the first bridge then wins, for buses as for addresses.
                if *by == NOBODY && bridge.has_bus(bus) {
                    *by = vppb;
                }
            }
            // Memory Space Enable covers the bridge's own registers as well as its windows.
            if bridge.memory_on() {
                memory.push(Claim { window: *bar, vppb, own: true });
                memory.extend([bridge.memory, bridge.prefetchable].map(|window| Claim {
                    window,
                    vppb,
                    own: false,
                }));
            }
            if bridge.io_on() {
                io.push(Claim { window: bridge.io, vppb, own: false });
            }
        }
        for claims in [&mut memory, &mut io] {
            claims.retain(|claim| claim.window != Window::OFF);
        }
        let (below, buses) = (below.into(), buses.into());
        let (memory, io) = (memory.into(), io.into());
        let cache_routes = CacheRoutes::default();
        Ok(Self { upstream, gae, below, buses, memory, io, cache_routes })
    }

    /// Sets the caches of its host.
    #[must_use]
    pub const fn with_cache_routes(mut self, routes: CacheRoutes) -> Self {
        self.cache_routes = routes;
        self
    }

    /// Ports of the caches of its host.
    #[inline]
    #[must_use]
    pub const fn cache_routes(&self) -> &CacheRoutes {
        &self.cache_routes
    }

    /// The vPPB towards the host.
    #[must_use]
    pub const fn upstream(&self) -> &Vppb {
        &self.upstream
    }

    /// The GAE beside the upstream vPPB, if there is one.
    #[must_use]
    pub const fn gae(&self) -> Option<&Gae> {
        self.gae.as_ref()
    }

    /// The vPPBs below the upstream one.
    #[must_use]
    pub fn below(&self) -> &[Vppb] {
        &self.below
    }

    /// vPPBs below that are bound: the targets of a broadcast.
    pub fn bound(&self) -> impl Iterator<Item = (u8, Binding)> {
        let bound = |(_, vppb): &(u8, &Vppb)| vppb.binding != Binding::Unbound;
        (0..NOBODY).zip(self.below.iter()).filter(bound).map(|(at, vppb)| (at, vppb.binding))
    }

    /// Checks whether a TLP of Lightweight Notification may come in from `side`.
    ///
    /// # Errors
    /// See [`LnTlp::may_come_up`].
    pub fn admit_ln(&self, side: Side, ln: LnTlp) -> Result<(), Refusal> {
        match side {
            Side::Above => Ok(()),
            Side::Below(from) => ln.may_come_up(&self.vppb(from)?.bridge),
        }
    }

    /// Routes a TLP that comes in from `side`.
    ///
    /// # Errors
    /// No bridge claims it, or a bridge may not pass it on.
    pub fn route(&self, side: Side, route: Route) -> Result<Hop, Refusal> {
        match (side, route) {
            (_, Route::Implicit(kind)) => self.message(side, kind),
            (_, Route::CacheId(_)) => Err(Refusal::WrongRole),
            (Side::Above, Route::Memory(Hpa(address))) => self.memory_down(address),
            (Side::Above, Route::Io(address)) => {
                if !self.upstream.bridge.has_io(address) {
                    return Err(Refusal::UpstreamClaimsNot);
                }
                claim(&self.io, address).map_or(Err(Refusal::NobodyClaims), |it| self.claimed(it))
            }
            (Side::Above, Route::Id(id)) => self.id_down(id),
            (Side::Above, Route::Config0(id)) => self.own_function(id),
            (Side::Above, Route::Config1(id)) => self.config_down(id),
            (Side::Below(_), Route::Config0(_) | Route::Config1(_)) => {
                Err(Refusal::ConfigFromBelow)
            }
            (Side::Below(from), Route::Memory(Hpa(address))) => {
                let own = |bridge: &Bridge| bridge.has_memory(address);
                self.address_up(from, &self.memory, address, own)
            }
            (Side::Below(from), Route::Io(address)) => {
                let own = |bridge: &Bridge| bridge.has_io(address);
                self.address_up(from, &self.io, address, own)
            }
            (Side::Below(from), Route::Id(id)) => self.id_up(from, id),
        }
    }

    /// A memory request from above: claimed by the upstream bridge's windows, then by those below (PCIe 6.0, 2.2.4.1).
    fn memory_down(&self, address: u64) -> Result<Hop, Refusal> {
        if let Some(function) = self.registers(address) {
            return Ok(Hop::Internal(function));
        }
        if !self.upstream.bridge.has_memory(address) {
            return Err(Refusal::UpstreamClaimsNot);
        }
        claim(&self.memory, address).map_or(Err(Refusal::NobodyClaims), |it| self.claimed(it))
    }

    /// A request from below: not into the windows that it came out of, but to a peer that claims it, or up.
    fn address_up(
        &self,
        from: u8,
        claims: &[Claim],
        address: u64,
        inside: impl Fn(&Bridge) -> bool,
    ) -> Result<Hop, Refusal> {
        let bridge = &self.vppb(from)?.bridge;
        // Without Bus Master Enable a bridge passes no request upwards, not even to a peer.
        if !bridge.master_on() {
            return Err(Refusal::BusMasterOff);
        }
        if let Some(claim) = claim(claims, address) {
            // A bridge does not claim its own windows for requests from below: they would go back down the link they
            // came up.
            if claim.vppb == from && !claim.own {
                return Err(Refusal::OwnRange);
            }
            return self.claimed(claim);
        }
        if inside(&self.upstream.bridge) {
            return Err(Refusal::NobodyClaims); // an address below the upstream bridge is not sent up
        }
        if !self.upstream.bridge.master_on() {
            return Err(Refusal::BusMasterOff);
        }
        self.up()
    }

    /// Routing by id from above (PCIe 6.0, 2.2.4.2).
    fn id_down(&self, id: Bdf) -> Result<Hop, Refusal> {
        if id.bus() == self.upstream.bridge.primary
            && let Ok(hop) = self.own_function(id)
        {
            return Ok(hop);
        }
        if !self.upstream.bridge.has_bus(id.bus()) {
            return Err(Refusal::UpstreamClaimsNot);
        }
        if id.bus() == self.upstream.bridge.secondary {
            return self.vppb_function(id);
        }
        self.by_bus(id.bus(), false)
    }

    /// Routing by id from below: to a peer, a function of the switch, or the root.
    fn id_up(&self, from: u8, id: Bdf) -> Result<Hop, Refusal> {
        if self.vppb(from)?.bridge.has_bus(id.bus()) {
            return Err(Refusal::OwnRange);
        }
        if self.upstream.bridge.has_bus(id.bus()) {
            return self.id_down(id);
        }
        if id.bus() == self.upstream.bridge.primary
            && let Ok(hop) = self.own_function(id)
        {
            return Ok(hop);
        }
        self.up()
    }

    /// Type 1 configuration from above: becomes Type 0 on its target bus, and is passed on before that.
    fn config_down(&self, id: Bdf) -> Result<Hop, Refusal> {
        if !self.upstream.bridge.has_bus(id.bus()) {
            return Err(Refusal::UpstreamClaimsNot);
        }
        if id.bus() == self.upstream.bridge.secondary {
            return self.vppb_function(id);
        }
        let bridge = match self.by_bus(id.bus(), false)? {
            Hop::Down { vppb, .. } => &self.vppb(vppb)?.bridge,
            _ => return Err(Refusal::NobodyClaims),
        };
        let last = id.bus() == bridge.secondary;
        if last && id.device() != 0 && !bridge.ari {
            return Err(Refusal::NoFunction); // one device at the end of a link
        }
        self.by_bus(id.bus(), last)
    }

    /// Implicit routing of messages (PCIe 6.0, 2.2.8).
    fn message(&self, side: Side, kind: Implicit) -> Result<Hop, Refusal> {
        match (side, kind) {
            (_, Implicit::Local) => Ok(Hop::Here),
            (Side::Above, Implicit::Broadcast) => Ok(Hop::Broadcast),
            (Side::Below(_), Implicit::ToRoot) => self.up(),
            (Side::Below(_), Implicit::Gather) => Ok(Hop::Gather),
            _ => Err(Refusal::MessageDirection),
        }
    }

    /// The upstream vPPB or the GAE, by function number alone: Type 0 crosses no bridge, so the bus is this one.
    fn own_function(&self, id: Bdf) -> Result<Hop, Refusal> {
        let [_, function] = id.bits().to_be_bytes();
        // The GAE first: where it takes the upstream vPPB's place, both have the same number.
        if self.gae.is_some_and(|gae| gae.function == function) {
            return Ok(Hop::Internal(Function::Gae));
        }
        if self.upstream.function == function {
            return Ok(Hop::Internal(Function::Upstream));
        }
        Err(Refusal::NoFunction)
    }

    /// A vPPB on the internal bus, by its device and function number.
    fn vppb_function(&self, id: Bdf) -> Result<Hop, Refusal> {
        let [_, function] = id.bits().to_be_bytes();
        let found = (0..NOBODY).zip(self.below.iter()).find(|(_, vppb)| vppb.function == function);
        found.map(|(at, _)| Hop::Internal(Function::Below(at))).ok_or(Refusal::NoFunction)
    }

    /// The upstream function whose registers are at `address`.
    fn registers(&self, address: u64) -> Option<Function> {
        if self.gae.is_some_and(|gae| gae.bar.contains(address)) {
            return Some(Function::Gae);
        }
        let own = self.upstream.bridge.memory_on() && self.upstream.bar.contains(address);
        own.then_some(Function::Upstream)
    }

    fn claimed(&self, claim: Claim) -> Result<Hop, Refusal> {
        if claim.own {
            return Ok(Hop::Internal(Function::Below(claim.vppb)));
        }
        self.down(claim.vppb, false)
    }

    fn by_bus(&self, bus: u8, type1_to_0: bool) -> Result<Hop, Refusal> {
        match self.buses.get(usize::from(bus)) {
            Some(&vppb) if vppb != NOBODY => self.down(vppb, type1_to_0),
            _ => Err(Refusal::NobodyClaims),
        }
    }

    fn down(&self, vppb: u8, type1_to_0: bool) -> Result<Hop, Refusal> {
        match self.vppb(vppb)?.binding {
            Binding::Unbound => Err(Refusal::Unbound),
            binding => Ok(Hop::Down { vppb, binding, type1_to_0 }),
        }
    }

    fn up(&self) -> Result<Hop, Refusal> {
        match self.upstream.binding {
            Binding::Unbound => Err(Refusal::Unbound),
            binding => Ok(Hop::Up(binding)),
        }
    }

    fn vppb(&self, index: u8) -> Result<&Vppb, Refusal> {
        self.below.get(usize::from(index)).ok_or(Refusal::NoVcs)
    }
}

/// The first of `claims` that contains `address`.
#[inline]
fn claim(claims: &[Claim], address: u64) -> Option<Claim> {
    claims.iter().find(|claim| claim.window.contains(address)).copied()
}

#[cfg(test)]
mod tests;
