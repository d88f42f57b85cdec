//! What a host finds: bridges and functions, with their numbers and addresses, as plain data.
//!
//! [`Tree`] of [`Node`]s, comparable, and as text: an outline like that of `lspci -t`, then one
//! line for each node, then what is wrong.
//!
//! Units: bytes, addresses of the bus.
//! Source: PCI-to-PCI Bridge 1.2 chapter 3; CXL 3.1 section 7.7.6.1 (what hosts must see).

use std::fmt;

use weft_parsers::fabric::Bdf;

use super::bridge::{Buses, Window, Windows};
use super::cxl::{CxlKind, RegisterBlock};
use super::express::PortKind;
use super::function::BarKind;
use crate::ln::LineSize;

/// A BAR that was found.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Bar {
    /// Number.
    pub index: u8,
    /// What it decodes.
    pub kind: BarKind,
    /// Bytes.
    pub size: u64,
    /// Where it was put; `None` if it found no room.
    pub address: Option<u64>,
}

/// What enumeration found below a bridge.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Below {
    /// Bus numbers.
    pub buses: Buses,
    /// Windows that were given to it.
    pub windows: Windows,
    /// Its prefetchable window takes 64-bit addresses.
    pub pref64: bool,
    /// Number of its hot-plug slot.
    pub slot: Option<u16>,
    /// What is there, in the order of numbers.
    pub nodes: Vec<Node>,
}

/// Memory that a device has for its host.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct DeviceMemory {
    /// Offset of its DVSEC for CXL devices.
    pub control: u16,
    /// Bytes, a multiple of 256 MiB.
    pub size: u64,
    /// Where it is to be; `None` for anywhere.
    pub wanted: Option<u64>,
    /// Where it was placed; `None` if it found no room.
    pub base: Option<u64>,
}

/// What a committed HDM decoder leads to.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum LeadsTo {
    /// Memory of the device itself.
    Memory {
        /// Its address there.
        dpa: u64,
    },
    /// A port of the switch.
    Port {
        /// Its number.
        number: u8,
    },
}

/// An HDM decoder, as software has set it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Decoded {
    /// Addresses of the host.
    pub hpa: Window,
    /// What is there.
    pub to: LeadsTo,
    /// Whether it says that it is committed.
    pub committed: bool,
    /// Whether a load gets to that memory: all that is above has to lead there, too. `None` where nobody has tried.
    pub reached: Option<bool>,
}

/// A `CacheID` in the route table of an upstream port, as software has had it committed.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct CacheIdTarget {
    /// The `CacheID`, 0..=15.
    pub cache_id: u8,
    /// Number of the port that it is behind.
    pub port: u8,
}

/// A function or bridge that enumeration found.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Node {
    /// Where it is.
    pub bdf: Bdf,
    /// Vendor ID.
    pub vendor: u16,
    /// Device ID.
    pub device: u16,
    /// Class code, 24 bits.
    pub class: u32,
    /// Port type and offset of the PCI Express capability.
    pub express: Option<(Option<PortKind>, u16)>,
    /// Number of the port, of a bridge.
    pub port: Option<u8>,
    /// Offset of the MSI capability.
    pub msi: Option<u16>,
    /// Device serial number.
    pub serial: Option<u64>,
    /// Offset of the LNR capability.
    pub lnr: Option<u16>,
    /// Its capability register.
    pub lnr_capability: u16,
    /// CXL device type.
    pub cxl: Option<CxlKind>,
    /// Offsets of its DOE mailboxes.
    pub doe: Vec<u16>,
    /// Register blocks that it names.
    pub blocks: Vec<RegisterBlock>,
    /// BARs.
    pub bars: Vec<Bar>,
    /// Memory for the host.
    pub memory: Option<DeviceMemory>,
    /// HDM decoders that were set.
    pub decoders: Vec<Decoded>,
    /// Offset of its DVSEC for CXL devices, if it has a cache of its host's memory.
    pub cache_control: Option<u16>,
    /// Of a downstream port: the `CacheID` of what is below it, by its decoder and the route table.
    pub cache_id: Option<u8>,
    /// Of an upstream port: `CacheID`s that were given to devices below.
    pub cache_ids: Vec<CacheIdTarget>,
    /// What is below; `None` for a function.
    pub below: Option<Below>,
}

/// What is wrong with a function, which the rest of the tree does not suffer from.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum ProblemKind {
    /// It asked for more time, again and again.
    NotReady,
    /// It stopped answering.
    Lost,
    /// A header that is neither of type 0 nor 1.
    Header(u8),
    /// A list of capabilities leads back into itself, or out of the space, at this offset.
    Capabilities(u16),
    /// A BAR answers with this to being sized.
    Bar {
        /// Number.
        index: u8,
        /// Answer, of one or two registers.
        answer: u64,
    },
    /// A BAR for which there is no room.
    NoRoom {
        /// Number.
        index: u8,
        /// Bytes.
        size: u64,
    },
    /// A bridge for which there is no bus number.
    NoBus,
    /// A bridge that does not keep the windows written to it.
    Windows,
    /// Memory for the host for which there is no room, or which something else is in the place of that it names.
    NoPlace {
        /// Where it is to be.
        wanted: Option<u64>,
        /// Bytes.
        size: u64,
    },
    /// HDM decoders that are not there, too few, or not committed.
    Decoders,
    /// A device with a cache of its host's memory that gets no `CacheID`: its cache stays off.
    NoCacheId,
    /// A requester of Lightweight Notification that does not have the lines of the system: it stays off.
    LineSize(LineSize),
}

impl ProblemKind {
    /// Whether it is one of memory for the host, which may get a place later.
    #[must_use]
    pub const fn is_of_memory(self) -> bool {
        matches!(self, Self::NoPlace { .. } | Self::Decoders)
    }
}

/// What is wrong, and with which function.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Problem {
    /// Who.
    pub bdf: Bdf,
    /// What.
    pub kind: ProblemKind,
}

/// Everything that an enumeration found.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Tree {
    /// First bus.
    pub bus: u8,
    /// What is on it.
    pub nodes: Vec<Node>,
    /// What is wrong, in the order in which it was found.
    pub problems: Vec<Problem>,
}

impl Node {
    /// Which port it is.
    #[must_use]
    pub fn kind(&self) -> Option<PortKind> {
        self.express.and_then(|(kind, _)| kind)
    }

    /// Whether its memory can be reached: a decoder is committed.
    #[must_use]
    pub fn is_decoded(&self) -> bool {
        self.decoders.iter().any(|decoder| decoder.committed)
    }

    /// What is below it.
    #[must_use]
    pub fn nodes(&self) -> &[Node] {
        self.below.as_ref().map_or(&[], |below| &below.nodes)
    }
}

impl Tree {
    /// All nodes, those above first.
    pub fn iter(&self) -> impl Iterator<Item = &Node> {
        let mut left: Vec<&Node> = self.nodes.iter().rev().collect();
        std::iter::from_fn(move || {
            let node = left.pop()?;
            left.extend(node.nodes().iter().rev());
            Some(node)
        })
    }

    /// The node at `bdf` and all above it, those above first; nothing where there is none.
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

    /// The function whose memory all `len` bytes from `addr` on are: behind a BAR that has no register blocks, or HDM that a
    /// committed decoder of its own leads to.
    #[must_use]
    pub fn memory_at(&self, addr: u64, len: u64) -> Option<&Node> {
        let last = addr.checked_add(len.checked_sub(1)?)?;
        let is_within = |base: u64, limit: u64| base <= addr && last <= limit;
        let in_bar = |node: &Node, bar: &Bar| {
            let is_memory = !matches!(bar.kind, BarKind::Io);
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

    /// The same, to be changed.
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

    /// What is below the bridge at `bdf`.
    pub fn below_mut(&mut self, bdf: Bdf) -> Option<&mut Below> {
        self.get_mut(bdf)?.below.as_mut()
    }

    /// Takes out what is below the bridge at `bdf`, and what was wrong with it.
    pub fn remove_below(&mut self, bdf: Bdf) -> Vec<Node> {
        let Some(below) = self.below_mut(bdf) else { return Vec::new() };
        let (buses, gone) = (below.buses, std::mem::take(&mut below.nodes));
        let inside = |bdf: Bdf| buses.secondary <= bdf.bus() && bdf.bus() <= buses.subordinate;
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
