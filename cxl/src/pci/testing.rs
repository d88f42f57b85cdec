//! A tree of functions and bridges in memory, which routes configuration and addresses by the bridges' registers.
//!
//! [`Fabric`] is a `ConfigAccess`; [`Fabric::reach`] follows an address from the root.
//!
//! Units: bytes.
//! Source: docs/spec/wire-formats.md §3.4.

use weft_parsers::fabric::{Bdf, Hpa};

use super::bridge::{Bridge, BridgeSpec, BusRoute, SlotSpec, Windows};
use super::cxl::{CxlKind, CxlSpec};
use super::enumerate::ConfigAccess;
use super::express::{Identity, Link, LnSystem, PortKind};
use super::function::{BarKind, BarSpec, Function, FunctionSpec};
use super::space::{ByteEnables, Reg, Space};

#[derive(Clone, Debug)]
pub(super) enum Thing {
    Function(Box<Function>),
    Port(Box<Bridge>, Vec<Place>),
    /// Registers without rules, for functions that misbehave.
    Raw(Space),
}

#[derive(Clone, Debug)]
pub(super) struct Place {
    device: u8,
    function: u8,
    pub thing: Thing,
    /// Number of reads still to be answered by retry status.
    pub busy: u32,
    /// Number of accesses after which it stops answering.
    pub life: Option<u32>,
}

pub(super) fn at(device: u8, function: u8, thing: Thing) -> Place {
    Place { device, function, thing, busy: 0, life: None }
}

const fn id(device: u16) -> Identity {
    Identity { vendor: 0x1E98, device, revision: 1, class: 0x05_02_10, subsystem: (0x1E98, 0) }
}

/// A port with `below` present behind it; root and downstream ports have a slot with the port's number.
pub(super) fn port(kind: PortKind, port: u8, below: Vec<Place>) -> Thing {
    let slot = SlotSpec { number: port.into(), ..SlotSpec::default() };
    let mut bridge = Bridge::new(&BridgeSpec {
        identity: id(0x5000 + u16::from(kind.bits())),
        kind,
        port,
        link: Link::default(),
        slot: kind.is_above_link().then_some(slot),
        serial: None,
        multi_function: false,
        ln: LnSystem::None,
    })
    .unwrap();
    if !below.is_empty() {
        bridge.set_present(true);
        bridge.set_link(Some(Link::default()));
    }
    Thing::Port(Box::new(bridge), below)
}

/// A device with BARs of these kinds and sizes, one after the other.
pub(super) fn device(device: u16, bars: &[(BarKind, u64)]) -> Thing {
    let mut spec = FunctionSpec { identity: id(device), ..FunctionSpec::default() };
    let mut index = 0;
    for &(kind, size) in bars {
        spec.bars[index] = Some(BarSpec { kind, size });
        index += if matches!(kind, BarKind::Mem64 { .. }) { 2 } else { 1 };
    }
    Thing::Function(Box::new(Function::new(&spec).unwrap()))
}

/// A CXL memory device: a prefetchable BAR of `size`, and a serial number.
pub(super) fn memory(device: u16, size: u64) -> Thing {
    let mut spec = FunctionSpec { identity: id(device), ..FunctionSpec::default() };
    spec.bars[0] = Some(BarSpec { kind: BarKind::Mem64 { prefetch: true }, size });
    spec.serial = Some(u64::from(device) << 32);
    spec.cxl = Some(CxlSpec { kind: CxlKind::Type3, memory: 1 << 30, base: 0 });
    Thing::Function(Box::new(Function::new(&spec).unwrap()))
}

#[derive(Clone, Debug, Default)]
pub(super) struct Fabric {
    pub root: Vec<Place>,
    pub waited_ns: u64,
}

impl Fabric {
    pub fn place(&mut self, bdf: Bdf) -> Option<&mut Place> {
        find(&mut self.root, 0, bdf, 32)
    }

    pub fn bridge(&mut self, bdf: Bdf) -> &mut Bridge {
        match self.place(bdf).map(|place| &mut place.thing) {
            Some(Thing::Port(bridge, _)) => bridge,
            other => panic!("{bdf} is no bridge: {other:?}"),
        }
    }

    /// Plugs `thing` in behind the port at `bdf`, or unplugs the device there; returns whether the slot interrupted.
    pub fn plug(&mut self, bdf: Bdf, thing: Option<Thing>) -> bool {
        let Some(Thing::Port(bridge, below)) = self.place(bdf).map(|place| &mut place.thing) else {
            panic!("{bdf} is no bridge");
        };
        let comes = thing.is_some();
        let gone = bridge.set_present(false).interrupt || bridge.set_link(None).interrupt;
        *below = thing.into_iter().map(|thing| at(0, 0, thing)).collect();
        let first = bridge.set_present(comes).interrupt;
        bridge.set_link(comes.then(Link::default)).interrupt || first || gone
    }

    /// All functions that claim a memory (or I/O) request of the host, with BAR and offset; more than one is a
    /// conflict.
    pub fn reach(&self, io: bool, address: u64) -> Vec<(u16, u8, u64)> {
        let mut hits = Vec::new();
        reach(&self.root, io, address, &mut hits);
        hits
    }

    /// All bridges of the tree, each before those below it.
    pub fn bridges(&self) -> Vec<&Bridge> {
        fn collect<'a>(places: &'a [Place], found: &mut Vec<&'a Bridge>) {
            for place in places {
                if let Thing::Port(bridge, below) = &place.thing {
                    found.push(bridge);
                    collect(below, found);
                }
            }
        }
        let mut found = Vec::new();
        collect(&self.root, &mut found);
        found
    }
}

fn find(places: &mut [Place], bus: u8, bdf: Bdf, devices: u8) -> Option<&mut Place> {
    for place in places {
        if bdf.bus() == bus {
            if (place.device, place.function) == (bdf.device(), bdf.function())
                && bdf.device() < devices
            {
                return Some(place);
            }
        } else if let Thing::Port(bridge, below) = &mut place.thing {
            let open = !bridge.kind().is_above_link() || bridge.link().is_some();
            if open && bridge.bus_route(bdf.bus()) != BusRoute::Elsewhere {
                let devices = if bridge.kind().is_above_link() { 1 } else { 32 };
                let secondary = bridge.buses().secondary;
                return find(below, secondary, bdf, devices);
            }
        }
    }
    None
}

fn reach(places: &[Place], io: bool, address: u64, hits: &mut Vec<(u16, u8, u64)>) {
    for place in places {
        match &place.thing {
            Thing::Function(function) => {
                let port = u32::try_from(address).unwrap_or(u32::MAX);
                let hit = if io { function.io_bar_of(port) } else { function.bar_of(Hpa(address)) };
                hits.extend(hit.map(|(bar, offset)| (function.space().get16(2), bar, offset)));
            }
            Thing::Port(bridge, below) => {
                let windows = bridge.windows();
                let port = u32::try_from(address).unwrap_or(u32::MAX);
                if if io { windows.claim_io(port) } else { windows.claim_memory(Hpa(address)) } {
                    reach(below, io, address, hits);
                }
            }
            Thing::Raw(_) => {}
        }
    }
}

impl ConfigAccess for Fabric {
    fn read(&mut self, bdf: Bdf, reg: Reg) -> Option<u32> {
        let place = self.place(bdf)?;
        if let Some(life) = &mut place.life {
            *life = life.checked_sub(1)?;
        }
        if place.busy > 0 && reg == Reg::at(0) {
            place.busy -= 1;
            return Some(0xFFFF_0001);
        }
        Some(match &place.thing {
            Thing::Function(function) => function.read(reg),
            Thing::Port(bridge, _) => bridge.read(reg),
            Thing::Raw(space) => space.read(reg),
        })
    }

    fn write(&mut self, bdf: Bdf, reg: Reg, value: u32, enables: ByteEnables) {
        match self.place(bdf).map(|place| &mut place.thing) {
            Some(Thing::Function(function)) => {
                function.write(reg, value, enables);
            }
            Some(Thing::Port(bridge, _)) => {
                bridge.write(reg, value, enables);
            }
            Some(Thing::Raw(space)) => {
                space.write(reg, value, enables);
            }
            None => {}
        }
    }

    fn wait(&mut self, ns: u64) {
        self.waited_ns += ns;
    }
}

impl Windows {
    /// Whether a memory request to `address` is forwarded downstream.
    #[must_use]
    pub fn claim_memory(&self, address: Hpa) -> bool {
        [self.mem, self.pref].into_iter().flatten().any(|window| window.contains(address.0))
    }

    /// Whether an I/O request to `port` is forwarded downstream.
    #[must_use]
    pub fn claim_io(&self, port: u32) -> bool {
        self.io.is_some_and(|window| window.contains(port.into()))
    }
}
