//! Registered memory of devices below the host: the device of each range, and whether it is still there.
//!
//! [`Devices::add`] records a registration; [`Devices::gone`] compares all of them with an enumeration and returns
//! those to take back.
//!
//! Source: docs/fabric-memory.md "Memory of a device".

use std::collections::BTreeMap;
use std::fmt;

use weft_cxl::fabric_mem::{Handle, MemDesc};
use weft_cxl::pci::{Node, Tree};
use weft_parsers::fabric::Bdf;

/// Registrations taken back that are remembered for error messages.
const REMEMBERED_MAX: usize = 32;

/// Identity of a function, as a host compares it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Device {
    bdf: Bdf,
    ids: (u16, u16),
    serial: Option<u64>,
}

impl Device {
    /// The function that has the whole range of memory.
    pub fn at(tree: Option<&Tree>, mem: MemDesc) -> Option<Self> {
        tree?.memory_at(mem.addr, mem.len).map(Self::of)
    }

    const fn of(node: &Node) -> Self {
        Self { bdf: node.bdf, ids: (node.vendor, node.device), serial: node.serial }
    }
}

impl fmt::Display for Device {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "device {} ({:04x}:{:04x})", self.bdf, self.ids.0, self.ids.1)
    }
}

/// Registered memory of devices.
#[derive(Debug, Default)]
pub struct Devices {
    registered: BTreeMap<Handle, (MemDesc, Device)>,
    lost: Vec<(Handle, MemDesc, Device)>,
}

impl Devices {
    /// Records the registration of a range of `device`.
    pub fn add(&mut self, handle: Handle, mem: MemDesc, device: Device) {
        self.registered.insert(handle, (mem, device));
    }

    /// Forgets a registration that was taken back by a command.
    pub fn remove(&mut self, handle: Handle) {
        self.registered.remove(&handle);
    }

    /// Forgets all registrations.
    pub fn clear(&mut self) {
        self.registered.clear();
    }

    /// Takes out the registrations whose device is no longer at its place in `tree`.
    pub fn gone(&mut self, tree: Option<&Tree>) -> Vec<(Handle, Device)> {
        let all = core::mem::take(&mut self.registered).into_iter();
        // Bus number, ids and serial number must all agree: another device at the same address is not the same memory.
        let is_there = |it: &(Handle, (MemDesc, Device))| Device::at(tree, it.1.0) == Some(it.1.1);
        let (there, gone): (Vec<_>, Vec<_>) = all.partition(is_there);
        self.registered = there.into_iter().collect();
        self.lost.extend(gone.iter().map(|(handle, (mem, device))| (*handle, *mem, *device)));
        let surplus = self.lost.len().saturating_sub(REMEMBERED_MAX);
        self.lost.drain(..surplus);
        gone.into_iter().map(|(handle, (_, device))| (handle, device)).collect()
    }

    /// The last registration with this address that was taken back because its device was gone.
    pub fn lost_at(&self, addr: u64) -> Option<(Handle, Device)> {
        let had = |mem: &MemDesc| addr.wrapping_sub(mem.addr) < mem.len;
        let found = self.lost.iter().rev().find(|(_, mem, _)| had(mem));
        found.map(|(handle, _, device)| (*handle, *device))
    }

    /// First address and length of each registered range.
    pub fn ranges(&self) -> Vec<(u64, u64)> {
        self.registered.values().map(|(mem, _)| (mem.addr, mem.len)).collect()
    }
}
