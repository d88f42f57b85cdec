//! The result of an enumeration: bridges and functions with their numbers and addresses, as plain data.
//!
//! A [`Tree`] of [`Node`]s can be compared, and printed: an outline like that of `lspci -t`, then one line for each
//! node, then the problems. Addresses are those of the bus, sizes are in bytes.
//!
//! Source: PCI-to-PCI Bridge 1.2 chapter 3; CXL 3.1 section 7.7.6.1 (what hosts must see).

use std::fmt;

use weft_parsers::fabric::Bdf;

use super::bridge::{Buses, Window, Windows};
use super::cxl::{CxlKind, RegisterBlock};
use super::express::PortKind;
use super::function::BarKind;
use crate::ln::LineSize;

/// A BAR of an enumerated function.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Bar {
    /// BAR number, 0..=5.
    pub index: u8,
    /// Address space and prefetchability.
    pub kind: BarKind,
    /// Size in bytes, as the BAR reported it.
    pub size: u64,
    /// Assigned address; `None` if there was no room.
    pub address: Option<u64>,
}

/// The part of a bridge's node that concerns its secondary side.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Below {
    /// Bus numbers that enumeration assigned.
    pub buses: Buses,
    /// Windows that enumeration assigned.
    pub windows: Windows,
    /// Whether its prefetchable window takes 64-bit addresses.
    pub pref64: bool,
    /// Number of its hot-plug slot, if it has one.
    pub slot: Option<u16>,
    /// Nodes on the secondary bus, in order of device and function number.
    pub nodes: Vec<Node>,
}

/// Host-managed memory of a device.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct DeviceMemory {
    /// Offset of its DVSEC for CXL devices.
    pub control: u16,
    /// Size in bytes, a multiple of 256 MiB.
    pub size: u64,
    /// Address that the device asks for; `None` for anywhere.
    pub wanted: Option<u64>,
    /// Address that it was given; `None` if there was no room.
    pub base: Option<u64>,
}

/// Target of an HDM decoder.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum LeadsTo {
    /// Memory of the device that has the decoder.
    Memory {
        /// Device physical address of its first byte.
        dpa: u64,
    },
    /// A downstream port of the switch.
    Port {
        /// Port number, as in its Link Capabilities.
        number: u8,
    },
}

/// An HDM decoder, as enumeration has programmed it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Decoded {
    /// Host physical addresses that it decodes.
    pub hpa: Window,
    /// Target of those addresses.
    pub to: LeadsTo,
    /// Whether the decoder reads as committed.
    pub committed: bool,
    /// Whether a load gets to that memory, which needs every decoder above as well. `None` before the host has
    /// tried.
    pub reached: Option<bool>,
}

/// A `CacheID` in the route table of an upstream port, as committed.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct CacheIdTarget {
    /// The `CacheID`, 0..=15.
    pub cache_id: u8,
    /// Number of the downstream port that leads to the cache.
    pub port: u8,
}

/// A function or bridge found by enumeration.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Node {
    /// Bus, device and function number.
    pub bdf: Bdf,
    pub vendor: u16,
    pub device: u16,
    /// Class code, 24 bits.
    pub class: u32,
    /// Device/Port Type (`None` for kinds that are not modelled) and offset of the PCI Express capability.
    pub express: Option<(Option<PortKind>, u16)>,
    /// Port number of a bridge, from Link Capabilities.
    pub port: Option<u8>,
    /// Offset of the MSI capability.
    pub msi: Option<u16>,
    /// Device serial number, if it has one.
    pub serial: Option<u64>,
    /// Offset of the LNR capability.
    pub lnr: Option<u16>,
    /// LNR Capability register: line sizes and maximum of registrations.
    pub lnr_capability: u16,
    /// Type of CXL device; `None` for other functions.
    pub cxl: Option<CxlKind>,
    /// Offsets of its DOE mailboxes.
    pub doe: Vec<u16>,
    /// Register blocks listed by its register locator.
    pub blocks: Vec<RegisterBlock>,
    /// BARs that it has, in order of number.
    pub bars: Vec<Bar>,
    /// Its host-managed memory.
    pub memory: Option<DeviceMemory>,
    /// HDM decoders that enumeration has programmed.
    pub decoders: Vec<Decoded>,
    /// Offset of its DVSEC for CXL devices, if it has a cache of its host's memory.
    pub cache_control: Option<u16>,
    /// `CacheID` of the device right below a downstream port, by the port's decoder and the route table above.
    pub cache_id: Option<u8>,
    /// For an upstream port: `CacheID`s of the devices below.
    pub cache_ids: Vec<CacheIdTarget>,
    /// Bus below a bridge; `None` for a function.
    pub below: Option<Below>,
}

/// A fault of one function; the rest of the tree is usable all the same.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum ProblemKind {
    /// The function answered with retry status until the retries ran out.
    NotReady,
    /// The function stopped answering.
    Lost,
    /// Its header type is neither 0 nor 1.
    Header(u8),
    /// The list of capabilities has a loop, or leaves the space, at this offset.
    Capabilities(u16),
    /// A BAR gave an impossible answer to being sized.
    Bar {
        /// BAR number, 0..=5.
        index: u8,
        /// Value read back, of one or two registers.
        answer: u64,
    },
    /// There is no room for a BAR.
    NoRoom {
        /// BAR number, 0..=5.
        index: u8,
        /// Size in bytes.
        size: u64,
    },
    /// There is no bus number left for a bridge.
    NoBus,
    /// A bridge does not keep the windows written to it.
    Windows,
    /// There is no room for host-managed memory, or the address that it asks for is in use.
    NoPlace {
        /// Address that it asks for; `None` for anywhere.
        wanted: Option<u64>,
        /// Size in bytes.
        size: u64,
    },
    /// HDM decoders are missing, too few, or refused a commit.
    Decoders,
    /// A device that caches its host's memory gets no `CacheID`, so its cache stays disabled.
    NoCacheId,
    /// An LN requester does not support the line size of the system, so it stays disabled.
    LineSize(LineSize),
}

impl ProblemKind {
    /// Whether it concerns host-managed memory, which may find room at a later enumeration.
    #[must_use]
    pub const fn is_of_memory(self) -> bool {
        matches!(self, Self::NoPlace { .. } | Self::Decoders)
    }
}

/// A fault, and the function that has it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Problem {
    /// Function or bridge with the fault.
    pub bdf: Bdf,
    /// Kind of fault.
    pub kind: ProblemKind,
}

/// The result of an enumeration.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Tree {
    /// Number of the first bus.
    pub bus: u8,
    /// Nodes on the first bus, in order of device and function number.
    pub nodes: Vec<Node>,
    /// Faults, in the order in which they were found.
    pub problems: Vec<Problem>,
}

impl Node {
    /// Kind of port; `None` without PCI Express capability, or for other kinds.
    #[must_use]
    pub fn kind(&self) -> Option<PortKind> {
        self.express.and_then(|(kind, _)| kind)
    }

    /// Whether its memory is reachable at the device itself: a decoder is committed.
    #[must_use]
    pub fn is_decoded(&self) -> bool {
        self.decoders.iter().any(|decoder| decoder.committed)
    }

    /// Nodes directly below; empty for a function.
    #[must_use]
    pub fn nodes(&self) -> &[Node] {
        self.below.as_ref().map_or(&[], |below| &below.nodes)
    }
}

impl Tree {
    /// All nodes, each bridge before the nodes below it.
    pub fn iter(&self) -> impl Iterator<Item = &Node> {
        let mut left: Vec<&Node> = self.nodes.iter().rev().collect();
        std::iter::from_fn(move || {
            let node = left.pop()?;
            // Pushed in reverse, so that the first child is the next to be popped.
            left.extend(node.nodes().iter().rev());
            Some(node)
        })
    }

    /// The node at `bdf` and all bridges above it, the topmost first; empty if there is no such node.
    #[must_use]
    pub fn path(&self, bdf: Bdf) -> Vec<&Node> {
        fn find<'a>(nodes: &'a [Node], bdf: Bdf, path: &mut Vec<&'a Node>) -> bool {
            for node in nodes {
                path.push(node);
                if node.bdf == bdf || find(node.nodes(), bdf, path) {
                    return true;
                }
                path.pop();
            }
            false
        }
        let mut path = Vec::new();
        find(&self.nodes, bdf, &mut path);
        path
    }

    /// The node at `bdf`.
    #[must_use]
    pub fn get(&self, bdf: Bdf) -> Option<&Node> {
        self.iter().find(|node| node.bdf == bdf)
    }

    /// The function whose memory contains all `len` bytes from `addr` on: memory behind a BAR without register
    /// blocks, or HDM that one of the function's own committed decoders leads to.
    #[must_use]
    pub fn memory_at(&self, addr: u64, len: u64) -> Option<&Node> {
        let last = addr.checked_add(len.checked_sub(1)?)?;
        let is_within = |base: u64, limit: u64| base <= addr && last <= limit;
        let in_bar = |node: &Node, bar: &Bar| {
            let is_memory = !matches!(bar.kind, BarKind::Io);
            // A BAR with register blocks is no memory: a transfer into it would change settings of the device.
            let plain = node.blocks.iter().all(|block| block.bar != bar.index);
            let base = bar.address.filter(|_| is_memory && plain && bar.size > 0);
            base.is_some_and(|base| is_within(base, base.saturating_add(bar.size - 1)))
        };
        let in_hdm = |it: &Decoded| {
            let own = matches!(it.to, LeadsTo::Memory { .. });
            own && it.committed && is_within(it.hpa.base, it.hpa.limit)
        };
        self.iter().filter(|node| node.below.is_none()).find(|node| {
            node.bars.iter().any(|bar| in_bar(node, bar)) || node.decoders.iter().any(in_hdm)
        })
    }

    /// The node at `bdf`, mutable.
    pub fn get_mut(&mut self, bdf: Bdf) -> Option<&mut Node> {
        fn find(nodes: &mut [Node], bdf: Bdf) -> Option<&mut Node> {
            for node in nodes {
                if node.bdf == bdf {
                    return Some(node);
                }
                let below = node.below.as_mut().map(|below| below.nodes.as_mut_slice());
                if let Some(found) = below.and_then(|nodes| find(nodes, bdf)) {
                    return Some(found);
                }
            }
            None
        }
        find(&mut self.nodes, bdf)
    }

    /// The secondary side of the bridge at `bdf`.
    pub fn below_mut(&mut self, bdf: Bdf) -> Option<&mut Below> {
        self.get_mut(bdf)?.below.as_mut()
    }

    /// Removes all nodes below the bridge at `bdf`, with their problems.
    pub fn remove_below(&mut self, bdf: Bdf) -> Vec<Node> {
        let Some(below) = self.below_mut(bdf) else { return Vec::new() };
        let (buses, gone) = (below.buses, std::mem::take(&mut below.nodes));
        let inside = |bdf: Bdf| buses.secondary <= bdf.bus() && bdf.bus() <= buses.subordinate;
        // A bridge without bus numbers has 0 in all of them, and bus 0 is above it.
        self.problems.retain(|problem| buses.secondary == 0 || !inside(problem.bdf));
        gone
    }
}

impl fmt::Display for ProblemKind {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::NotReady => f.write_str("does not become ready"),
            Self::Lost => f.write_str("stopped answering"),
            Self::Header(kind) => write!(f, "has a header of type {kind}"),
            Self::Capabilities(at) => write!(f, "has a broken list of capabilities at {at:#05x}"),
            Self::Bar { index, answer } => {
                write!(f, "has a BAR {index} that answers {answer:#x} to being sized")
            }
            Self::NoRoom { index, size } => write!(f, "finds no {size:#x} bytes for BAR {index}"),
            Self::NoBus => f.write_str("finds no bus number"),
            Self::Windows => f.write_str("does not keep its windows"),
            Self::NoPlace { wanted: None, size } => {
                write!(f, "finds no room for {size:#x} bytes of its memory")
            }
            Self::NoPlace { wanted: Some(at), size } => {
                write!(
                    f,
                    "finds other things where {size:#x} bytes of its memory are to be, at {at:#x}"
                )
            }
            Self::Decoders => f.write_str("does not commit all HDM decoders that it needs"),
            Self::NoCacheId => f.write_str(
                "gets no CacheID, so its cache stays off: all 16 are taken, or a switch above has no \
                 registers for it or does not commit them",
            ),
            Self::LineSize(line) => {
                write!(
                    f,
                    "has no lines of {} bytes: its Lightweight Notification is off",
                    line.bytes()
                )
            }
        }
    }
}

impl fmt::Display for Problem {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{} {}", self.bdf, self.kind)
    }
}

impl fmt::Display for Window {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{:x}-{:x}", self.base, self.limit)
    }
}

impl fmt::Display for Bar {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let kind = match self.kind {
            BarKind::Io => "io",
            BarKind::Mem32 { prefetch: false } => "mem32",
            BarKind::Mem32 { prefetch: true } => "pref32",
            BarKind::Mem64 { prefetch: false } => "mem64",
            BarKind::Mem64 { prefetch: true } => "pref64",
        };
        match self.address {
            Some(address) => write!(f, "BAR{} {kind} {address:x}+{:x}", self.index, self.size),
            None => write!(f, "BAR{} {kind} nowhere+{:x}", self.index, self.size),
        }
    }
}

impl fmt::Display for Decoded {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let committed = match (self.committed, self.reached) {
            (false, _) => "not committed",
            (true, Some(false)) => "committed, not reached by CXL.mem",
            (true, _) => "committed",
        };
        match self.to {
            LeadsTo::Memory { dpa } => write!(f, "HDM {} dpa {dpa:x} {committed}", self.hpa),
            LeadsTo::Port { number } => write!(f, "HDM {} port {number} {committed}", self.hpa),
        }
    }
}

impl fmt::Display for Node {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let kind = match (self.kind(), &self.below) {
            (Some(PortKind::Endpoint), _) => "endpoint",
            (Some(PortKind::Root), _) => "root port",
            (Some(PortKind::Upstream), _) => "upstream port",
            (Some(PortKind::Downstream), _) => "downstream port",
            (None, Some(_)) => "bridge",
            (None, None) => "function",
        };
        let Self { bdf, vendor, device, class, .. } = self;
        write!(f, "{bdf} {class:06x} {vendor:04x}:{device:04x} {kind}")?;
        if let Some(below) = &self.below {
            let Buses { secondary, subordinate, .. } = below.buses;
            if let Some(slot) = below.slot {
                write!(f, ", slot {slot}")?;
            }
            write!(f, ", bus {secondary:02x}-{subordinate:02x}")?;
            let Windows { io, mem, pref } = below.windows;
            for (name, window) in [("io", io), ("mem", mem), ("pref", pref)] {
                if let Some(window) = window {
                    write!(f, ", {name} {window}")?;
                }
            }
        }
        if let Some(cxl) = self.cxl {
            write!(f, ", CXL {cxl:?}")?;
        }
        if self.lnr.is_some() {
            f.write_str(", LNR")?;
        }
        if let Some(serial) = self.serial {
            write!(f, ", serial {serial:016x}")?;
        }
        self.bars.iter().try_for_each(|bar| write!(f, ", {bar}"))?;
        self.decoders.iter().try_for_each(|decoder| write!(f, ", {decoder}"))?;
        self.cache_ids
            .iter()
            .try_for_each(|it| write!(f, ", CacheID {} port {}", it.cache_id, it.port))
    }
}

/// Writes the outline of `nodes`, each line behind `indent`.
fn outline(f: &mut fmt::Formatter<'_>, nodes: &[Node], indent: &str) -> fmt::Result {
    for (at, node) in nodes.iter().enumerate() {
        let (joint, down) = if at + 1 == nodes.len() { ("\\-", "  ") } else { ("+-", "| ") };
        write!(f, "{indent}{joint}{:02x}.{}", node.bdf.device(), node.bdf.function())?;
        match node.below.as_ref().map(|below| below.buses) {
            Some(Buses { secondary, subordinate, .. }) if secondary == subordinate => {
                writeln!(f, "-[{secondary:02x}]")?;
            }
            Some(Buses { secondary, subordinate, .. }) => {
                writeln!(f, "-[{secondary:02x}-{subordinate:02x}]")?;
            }
            None => writeln!(f)?,
        }
        outline(f, node.nodes(), &format!("{indent}{down}"))?;
    }
    Ok(())
}

impl fmt::Display for Tree {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        writeln!(f, "-[{:02x}]", self.bus)?;
        outline(f, &self.nodes, " ")?;
        self.iter().try_for_each(|node| writeln!(f, "{node}"))?;
        self.problems.iter().try_for_each(|problem| writeln!(f, "{problem}"))
    }
}
