//! Registers of the bridges: [`access`] carries out a configuration request to one of them, [`vcs`] makes the routing
//! [`Vcs`] of their present state, and [`Registers`] is the target of memory requests to component registers.
//!
//! Source: PCIe 6.0 section 2.2.4; PCI-to-PCI Bridge 1.2 chapter 3.

use weft_dataplane::pbr::vcs::Function;
use weft_dataplane::pbr::{self, Binding, Vcs, Vppb};
use weft_dataplane::types::PortId;
use weft_parsers::fabric::Bdf;
use weft_parsers::tlp::Tlp;

use super::{HbrSwitch, Transit};
use crate::completer::Target;
use crate::pci::bridge::{Window, Windows};
use crate::pci::component::{self, Component};
use crate::pci::{Bridge, BridgeEffects, ByteEnables, Reg, regs};
use crate::tlp_end::TlpEnd;
use crate::vdm::link_reset::ResetOrders;

/// Result of a configuration request.
pub(super) struct Accessed {
    /// Value of the register after the request.
    pub value: u32,
    /// Effects of a write; `None` for a read.
    pub write: Option<BridgeEffects>,
}

/// Carries out a configuration request at a bridge.
pub(super) fn access(bridge: &mut Bridge, tlp: &Tlp<'_>) -> Accessed {
    let reg = Reg::at(tlp.register().unwrap_or_default());
    let write = tlp.payload().first_chunk().map(|&value| {
        let enables = ByteEnables::from_low_bits(tlp.first_be());
        bridge.write(reg, u32::from_le_bytes(value), enables)
    });
    Accessed { value: bridge.read(reg), write }
}

/// Index of the bridge of a function of the switch.
pub(super) fn bridge_of(function: Function) -> usize {
    match function {
        Function::Below(vppb) => usize::from(vppb) + 1,
        _ => 0,
    }
}

/// Number of a link's port in [`Vcs`].
fn port_id(at: usize) -> Option<PortId> {
    PortId::new(at)
}

fn window(window: Option<Window>) -> pbr::Window {
    window.map_or(pbr::Window::OFF, |window| pbr::Window::new(window.base, window.limit))
}

/// Whether the link below a bridge passes TLPs, if it is `up`.
pub(super) fn is_usable(bridge: &Bridge, up: bool) -> bool {
    up && !bridge.is_resetting() && !bridge.is_link_disabled()
}

/// Component registers at the address of their BAR.
pub(super) struct Registers<'a> {
    pub component: &'a mut Component,
    pub base: u64,
}

impl Registers<'_> {
    fn at(&self, addr: u64, len: u64) -> Option<u64> {
        let at = addr.checked_sub(self.base)?;
        (at <= component::LEN && len <= component::LEN - at).then_some(at)
    }
}

impl Target for Registers<'_> {
    fn holds(&self, addr: u64, len: u64) -> bool {
        self.at(addr, len).is_some()
    }

    fn read(&self, addr: u64, into: &mut [u8]) -> bool {
        let at = self.at(addr, into.len() as u64);
        at.map(|at| self.component.read(at, into)).is_some()
    }

    fn write(&mut self, addr: u64, data: &[u8]) -> bool {
        let at = self.at(addr, data.len() as u64);
        at.map(|at| self.component.write(at, data)).is_some()
    }
}

impl HbrSwitch {
    /// Rebuilds the routing after a change of registers, links or resets.
    pub(super) fn renew(&mut self) {
        let open = self.up.iter().zip(&self.resets).map(|(up, resets)| *up && resets.is_open());
        let open: Vec<bool> = open.collect();
        self.vcs = vcs(&self.bridges, &open, self.bus);
    }

    /// ID of a bridge: the upstream one is device 0 on the bus above, downstream bridge n is device n - 1 on the bus
    /// within.
    pub(super) fn id(&self, at: usize) -> Bdf {
        let within = self.bridges.first().map_or(0, |bridge| bridge.buses().secondary);
        match u8::try_from(at) {
            Ok(at @ 1..) => Bdf::new(within, at - 1, 0),
            _ => Bdf::new(self.bus, 0, 0),
        }
    }

    /// Whether CXL.mem and CXL.cache messages pass a link: it is up, and neither disabled nor held in reset.
    pub(super) fn is_open(&self, at: usize) -> bool {
        let open = self.resets.get(at).is_none_or(ResetOrders::is_open);
        let is_up = open && self.up.get(at).copied().unwrap_or_default();
        let usable = self.bridges.get(at).is_some_and(|it| is_usable(it, is_up));
        // Reset and disable bits of the upstream bridge are about the bus below it, not about its own link.
        usable || (at == 0 && is_up)
    }

    /// The end of a link, if it passes messages.
    pub(super) fn open_end(&mut self, at: usize) -> Option<&mut TlpEnd> {
        let is_open = self.is_open(at);
        self.ends.get_mut(at).filter(|_| is_open)
    }

    /// Carries out a request of the host to the component registers of a bridge.
    pub(super) fn serve(&mut self, transit: &Transit, at: usize) {
        let Ok(tlp) = Tlp::parse(transit.mode, &transit.bytes) else { return };
        let Some(window) = self.bridges.get(at).and_then(Bridge::component_window) else {
            return self.refuse(transit);
        };
        self.counts.own += 1;
        let me = self.id(at);
        let Self { component, decoders, completer, ends, .. } = self;
        let component = match at.checked_sub(1) {
            None => component,
            Some(below) => match decoders.get_mut(below) {
                Some(component) => component,
                None => return, // cannot happen: each downstream bridge has them
            },
        };
        let mut target = Registers { component, base: window.base };
        let Some(end) = ends.first_mut() else { return };
        completer.serve(&tlp, me, &mut target, &mut |answer| {
            let sent = end.outbox().send(None, answer);
            debug_assert!(sent.is_ok(), "the request came on this link");
        });
        // A write may have set Commit; a commit at an HBR switch ends at once.
        self.commit_cache_ids();
    }
}

/// Routing entry of a bridge, bound to the link `at` if that is up.
fn vppb(bridge: &Bridge, at: usize, up: bool, function: u8) -> Vppb {
    let buses = bridge.buses();
    let Windows { io, mem, pref } = bridge.windows();
    let usable = is_usable(bridge, up);
    Vppb {
        function,
        bridge: pbr::Bridge {
            command: bridge.space().get16(regs::COMMAND),
            primary: buses.primary,
            secondary: buses.secondary,
            subordinate: buses.subordinate,
            ari: false,
            io: window(io),
            memory: window(mem),
            prefetchable: window(pref),
        },
        bar: window(bridge.component_window()),
        binding: match port_id(at) {
            Some(port) if usable => Binding::Port(port),
            _ => Binding::Unbound,
        },
    }
}

/// Routing of these bridges, the upstream one first; `bus` is the bus above it.
pub(super) fn vcs(bridges: &[Bridge], up: &[bool], bus: u8) -> Vcs {
    let mut all = (0u8..).zip(bridges.iter().zip(up)).map(|(at, (bridge, up))| {
        let function = at.saturating_sub(1) << 3;
        vppb(bridge, usize::from(at), *up, function)
    });
    let mut upstream = all.next().unwrap_or_default();
    // The register may lag: a function learns its bus from requests, whatever software has written.
    upstream.bridge.primary = bus;
    let below: Vec<Vppb> = all.collect();
    match Vcs::new(upstream, None, &below) {
        Ok(vcs) => vcs,
        Err(_) => nothing(upstream), // cannot happen: `HbrSwitch::new` bounds the ports by device numbers
    }
}

fn nothing(upstream: Vppb) -> Vcs {
    Vcs::new(upstream, None, &[]).expect("a switch without vPPBs is one")
}
