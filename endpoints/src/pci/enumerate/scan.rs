//! Reading what is there, bus by bus, and writing what it was given.
//!
//! Shape: one method a task, each awaiting its accesses; depth first, as bus numbers need.
//! Units: octets; bus numbers.
//! Source: PCI-to-PCI Bridge 1.2 §3.2.5; PCIe 6.0 §2.3.1, §7.5, §7.6.3; CXL 3.1 §8.1.

use std::future::Future;
use std::pin::Pin;

use weft_parsers::fabric::Bdf;

use super::assign::assign;
use super::wire::Wire;
use super::{EnumerateError, HostSpec};
use crate::pci::bridge::{Buses, Window, Windows};
use crate::pci::cxl::{self, CxlKind};
use crate::pci::express::PortKind;
use crate::pci::function::BarKind;
use crate::pci::regs::{self, cap, command, dvsec, express, ext, msi};
use crate::pci::space::{high32, low32};
use crate::pci::tree::{Bar, Below, Node, Problem, Tree, Trouble};

/// Vendor ID of a function that is not ready (PCIe 6.0 §2.3.1, CRS software visibility).
const NOT_READY: u16 = 0x0001;
/// Longest list of capabilities, with its end: double words between header and 100h.
const LIST_MAX: usize = 49;
/// Longest list of extended capabilities, with its end.
const EXT_MAX: usize = 961;

type Done<T> = Result<T, EnumerateError>;
type Later<'a, T> = Pin<Box<dyn Future<Output = Done<T>> + Send + 'a>>;

pub(super) struct Scanner {
    wire: Wire,
    host: HostSpec,
    /// Next bus number to give, and the last one.
    bus_next: u16,
    bus_last: u8,
    problems: Vec<Problem>,
}

impl Scanner {
    pub(super) fn new(wire: Wire, host: HostSpec) -> Self {
        let bus_next = u16::from(host.bus_first) + 1;
        Self { wire, host, bus_next, bus_last: host.bus_last, problems: Vec::new() }
    }

    fn trouble(&mut self, bdf: Bdf, trouble: Trouble) {
        self.problems.push(Problem { bdf, trouble });
    }

    pub(super) async fn all(&mut self) -> Done<Tree> {
        let bus = self.host.bus_first;
        let mut nodes = self.bus(bus, 32).await?;
        let (apertures, reserve) = (self.host.apertures, self.host.reserve);
        self.problems.extend(assign(&mut nodes, &apertures, &reserve));
        self.apply(&nodes).await?;
        let problems = std::mem::take(&mut self.problems);
        Ok(Tree { bus, nodes, problems })
    }

    pub(super) async fn rescan(&mut self, mut tree: Tree, bdf: Bdf) -> Done<Tree> {
        let kind = tree.get(bdf).and_then(Node::kind);
        let below = tree.below_mut(bdf).filter(|below| below.buses.secondary != 0);
        let below = below.ok_or(EnumerateError::NoBridge { bdf })?;
        let (buses, windows) = (below.buses, below.windows);
        tree.remove_below(bdf);
        self.bus_next = u16::from(buses.secondary) + 1;
        self.bus_last = buses.subordinate;
        let mut nodes = self.bus(buses.secondary, devices_below(kind)).await?;
        let reserve = self.host.reserve;
        self.problems.extend(assign(&mut nodes, &windows, &reserve));
        self.apply(&nodes).await?;
        if let Some(below) = tree.below_mut(bdf) {
            below.nodes = nodes;
        }
        tree.problems.append(&mut self.problems);
        Ok(tree)
    }

    pub(super) async fn service(&mut self, mut tree: Tree, bdf: Bdf) -> Done<Tree> {
        let slot =
            tree.get(bdf).filter(|node| node.below.as_ref().is_some_and(|b| b.slot.is_some()));
        let (_, at) = slot.and_then(|node| node.express).ok_or(EnumerateError::NoBridge { bdf })?;
        let status = self.wire.read16(bdf, at + express::SLOT_STA).await?;
        if status == u16::MAX {
            return Ok(tree); // the bridge itself is gone; who is above it will hear of that
        }
        // Cleared before the state is read: what changes afterwards interrupts again.
        self.wire.write16(bdf, at + express::SLOT_STA, status).await?;
        let events = express::SLOT_STA_PRESENCE | express::SLOT_STA_LINK;
        if status & events == 0 {
            return Ok(tree);
        }
        let state = self.wire.read16(bdf, at + express::SLOT_STA).await?;
        let link = self.wire.read16(bdf, at + express::LINK_STA).await?;
        tree.remove_below(bdf);
        let up = state & express::SLOT_STA_PRESENT != 0 && link & express::LINK_STA_ACTIVE != 0;
        if up { self.rescan(tree, bdf).await } else { Ok(tree) }
    }

    /// Finds what is on `bus`, which has `devices` devices at most, and below.
    fn bus(&mut self, bus: u8, devices: u8) -> Later<'_, Vec<Node>> {
        Box::pin(async move {
            let mut nodes = Vec::new();
            for device in 0..devices {
                let mut functions = 1;
                for function in 0..8 {
                    if function >= functions {
                        break;
                    }
                    let bdf = Bdf::new(bus, device, function);
                    let Some(id) = self.probe(bdf).await? else {
                        if function == 0 {
                            break;
                        }
                        continue;
                    };
                    let [.., header, _] =
                        self.wire.read(bdf, regs::HEADER_TYPE).await?.to_le_bytes();
                    if header & 0x80 != 0 && function == 0 {
                        functions = 8;
                    }
                    if let Some(node) = self.node(bdf, id, header & 0x7F).await? {
                        nodes.push(node);
                    }
                }
            }
            Ok(nodes)
        })
    }

    /// Asks whether a function is there, until it is ready to say so.
    async fn probe(&mut self, bdf: Bdf) -> Done<Option<u32>> {
        for retry in 0..=self.host.retries {
            let id = self.wire.read(bdf, regs::VENDOR).await?;
            let [a, b, ..] = id.to_le_bytes();
            match u16::from_le_bytes([a, b]) {
                0 | u16::MAX => return Ok(None),
                NOT_READY if retry < self.host.retries => {
                    self.wire.wait(self.host.retry_ns).await?;
                }
                NOT_READY => {}
                _ => return Ok(Some(id)),
            }
        }
        self.trouble(bdf, Trouble::NotReady);
        Ok(None)
    }

    async fn node(&mut self, bdf: Bdf, id: u32, header: u8) -> Done<Option<Node>> {
        let bars = match header {
            0 => 6,
            1 => 2,
            // All ones: it was there a moment ago.
            0x7F => {
                self.trouble(bdf, Trouble::Lost);
                return Ok(None);
            }
            _ => {
                self.trouble(bdf, Trouble::Header(header));
                return Ok(None);
            }
        };
        let [a, b, c, d] = id.to_le_bytes();
        let mut node = Node {
            bdf,
            vendor: u16::from_le_bytes([a, b]),
            device: u16::from_le_bytes([c, d]),
            class: self.wire.read(bdf, regs::REVISION).await? >> 8,
            ..Node::default()
        };
        // Nothing is decoded while addresses change.
        self.wire.write16(bdf, regs::COMMAND, 0).await?;
        self.capabilities(&mut node).await?;
        if node.express.is_some() {
            self.extended(&mut node).await?;
        }
        node.bars = self.bars(bdf, bars).await?;
        if header == 1 {
            node.below = Some(self.bridge(&node).await?);
        }
        if self.wire.read(bdf, regs::VENDOR).await? != id {
            self.trouble(bdf, Trouble::Lost);
            return Ok(None);
        }
        Ok(Some(node))
    }

    async fn capabilities(&mut self, node: &mut Node) -> Done<()> {
        let bdf = node.bdf;
        if self.wire.read16(bdf, regs::STATUS).await? & regs::status::CAPABILITIES == 0 {
            return Ok(());
        }
        let [first, ..] = self.wire.read(bdf, regs::CAPABILITIES).await?.to_le_bytes();
        let mut at = u16::from(first & !3);
        for _ in 0..LIST_MAX {
            if at == 0 {
                return Ok(());
            }
            if at < 0x40 {
                break;
            }
            let [id, next, low, high] = self.wire.read(bdf, at).await?.to_le_bytes();
            match id {
                cap::EXPRESS if node.express.is_none() => {
                    let kind =
                        PortKind::from_bits(u16::from_le_bytes([low, high]).to_le_bytes()[0] >> 4);
                    node.express = Some((kind, at));
                }
                cap::MSI if node.msi.is_none() => node.msi = Some(at),
                _ => {}
            }
            at = u16::from(next & !3);
        }
        self.trouble(bdf, Trouble::Capabilities(at));
        Ok(())
    }

    async fn extended(&mut self, node: &mut Node) -> Done<()> {
        let bdf = node.bdf;
        let mut at = 0x100;
        for _ in 0..EXT_MAX {
            let header = self.wire.read(bdf, at).await?;
            let [a, b, c, d] = header.to_le_bytes();
            if header == 0 || header == u32::MAX {
                return Ok(());
            }
            match u16::from_le_bytes([a, b]) {
                ext::SERIAL if at <= 0xFF4 => {
                    let low = self.wire.read(bdf, at + 4).await?;
                    let high = self.wire.read(bdf, at + 8).await?;
                    node.serial = Some(u64::from(high) << 32 | u64::from(low));
                }
                ext::LNR => node.lnr = Some(at),
                ext::DVSEC if at <= 0xFF4 => self.dvsec(node, at).await?,
                _ => {}
            }
            at = u16::from_le_bytes([c, d]) >> 4 & !3;
            if at == 0 {
                return Ok(());
            }
            if at < 0x100 {
                break;
            }
        }
        self.trouble(bdf, Trouble::Capabilities(at));
        Ok(())
    }

    async fn dvsec(&mut self, node: &mut Node, at: u16) -> Done<()> {
        let bdf = node.bdf;
        let header1 = self.wire.read(bdf, at + dvsec::HEADER1).await?;
        let header2 = self.wire.read(bdf, at + dvsec::HEADER2).await?;
        if header1 & 0xFFFF != u32::from(dvsec::CXL) {
            return Ok(());
        }
        let [id_low, id_high, low, high] = header2.to_le_bytes();
        match u16::from_le_bytes([id_low, id_high]) {
            dvsec::CXL_DEVICE => node.cxl = CxlKind::from_bits(u16::from_le_bytes([low, high])),
            dvsec::LOCATOR => {
                let len = u16::try_from(header1 >> 20).unwrap_or(0);
                let end = at.saturating_add(len).min(0x1000);
                let mut words = Vec::new();
                for offset in (at..end).step_by(4) {
                    words.push(self.wire.read(bdf, offset).await?);
                }
                node.blocks = cxl::register_blocks(&words);
            }
            _ => {}
        }
        Ok(())
    }

    /// Sizes the BARs by writing ones.
    async fn bars(&mut self, bdf: Bdf, count: u8) -> Done<Vec<Bar>> {
        let mut bars = Vec::new();
        let mut index = 0;
        while index < count {
            let this = index;
            index += 1;
            let low = self.size_register(bdf, this).await?;
            if low == 0 {
                continue;
            }
            let wide = low & 7 == 4;
            let high = if wide && index < count {
                index += 1;
                self.size_register(bdf, this + 1).await?
            } else {
                u32::MAX
            };
            if let Some(bar) = parse_bar(this, low, high, !wide || this + 1 < count) {
                bars.push(bar);
            } else {
                let high = if wide { high } else { 0 };
                let answer = u64::from(high) << 32 | u64::from(low);
                self.trouble(bdf, Trouble::Bar { index: this, answer });
            }
        }
        Ok(bars)
    }

    async fn size_register(&mut self, bdf: Bdf, index: u8) -> Done<u32> {
        let at = regs::BAR0 + 4 * u16::from(index);
        self.wire.write(bdf, at, u32::MAX).await?;
        let answer = self.wire.read(bdf, at).await?;
        self.wire.write(bdf, at, 0).await?;
        Ok(answer)
    }

    /// Gives a bridge its bus numbers, and finds what is below.
    async fn bridge(&mut self, node: &Node) -> Done<Below> {
        let bdf = node.bdf;
        let slot = self.slot(node).await?;
        let pref64 = self.wire.read(bdf, regs::PREF_WINDOW).await? & 0xF == 1;
        let mut below = Below { pref64, slot, ..Below::default() };
        let secondary = u8::try_from(self.bus_next).ok().filter(|bus| *bus <= self.bus_last);
        let Some(secondary) = secondary else {
            self.wire.write(bdf, regs::BUSES, 0).await?;
            self.trouble(bdf, Trouble::NoBus);
            return Ok(below);
        };
        below.buses = Buses { primary: bdf.bus(), secondary, subordinate: self.bus_last };
        self.write_buses(bdf, below.buses).await?;
        self.bus_next += 1;
        below.nodes = self.bus(secondary, devices_below(node.kind())).await?;
        if slot.is_some() {
            // Room to grow, counted from the slot's own bus.
            let room = u16::from(secondary) + u16::from(self.host.reserve.buses) + 1;
            self.bus_next = self.bus_next.max(room).min(u16::from(self.bus_last) + 1);
        }
        below.buses.subordinate = u8::try_from(self.bus_next - 1).unwrap_or(self.bus_last);
        self.write_buses(bdf, below.buses).await?;
        Ok(below)
    }

    async fn write_buses(&mut self, bdf: Bdf, buses: Buses) -> Done<()> {
        let Buses { primary, secondary, subordinate } = buses;
        let value = u32::from_le_bytes([primary, secondary, subordinate, 0]);
        self.wire.write(bdf, regs::BUSES, value).await
    }

    /// The number of a hot-plug slot, whose old events are cleared.
    async fn slot(&mut self, node: &Node) -> Done<Option<u16>> {
        let Some((Some(kind), at)) = node.express else { return Ok(None) };
        let caps = self.wire.read16(node.bdf, at + express::CAP).await?;
        if !kind.is_above_link() || caps & express::CAP_SLOT == 0 {
            return Ok(None);
        }
        let slot = self.wire.read(node.bdf, at + express::SLOT_CAP).await?;
        if slot & express::SLOT_CAP_HOT_PLUG == 0 {
            return Ok(None);
        }
        let status = self.wire.read16(node.bdf, at + express::SLOT_STA).await?;
        self.wire.write16(node.bdf, at + express::SLOT_STA, status).await?;
        Ok(u16::try_from(slot >> 19).ok())
    }

    /// Writes addresses and windows, and switches on; those above first.
    fn apply<'a>(&'a mut self, nodes: &'a [Node]) -> Later<'a, ()> {
        Box::pin(async move {
            for node in nodes {
                let mut enable = command::MASTER;
                for bar in &node.bars {
                    let at = regs::BAR0 + 4 * u16::from(bar.index);
                    let address = bar.address.unwrap_or(0);
                    self.wire.write(node.bdf, at, low32(address)).await?;
                    if matches!(bar.kind, BarKind::Mem64 { .. }) {
                        self.wire.write(node.bdf, at + 4, high32(address)).await?;
                    }
                    enable |= match (bar.address, bar.kind) {
                        (None, _) => 0,
                        (_, BarKind::Io) => command::IO,
                        _ => command::MEM,
                    };
                }
                if let Some(below) = &node.below {
                    self.windows(node.bdf, below).await?;
                    enable |= command::IO | command::MEM | command::SERR;
                }
                self.wire.write16(node.bdf, regs::COMMAND, enable).await?;
                self.report_errors(node).await?;
                if let Some(below) = &node.below {
                    self.apply(&below.nodes).await?;
                    self.hear_of_slot(node, below).await?;
                }
            }
            Ok(())
        })
    }

    async fn windows(&mut self, bdf: Bdf, below: &Below) -> Done<()> {
        let Windows { io, mem, pref } = below.windows;
        // Closed: the base is above the limit.
        let closed = |step: u64| Window { base: 0xFFF0_0000 & !(step - 1), limit: 0 };
        let io = io.unwrap_or(Window { base: 0xF000, limit: 0 });
        let mem = mem.unwrap_or_else(|| closed(0x10_0000));
        let pref = pref.unwrap_or_else(|| closed(0x10_0000));
        let halves =
            |window: Window| low32(window.base) >> 16 & 0xFFF0 | low32(window.limit) & 0xFFF0_0000;
        let io_low = low32(io.base) >> 8 & 0xF0 | low32(io.limit) & 0xF000;
        let io_high = low32(io.base) >> 16 | low32(io.limit) & 0xFFFF_0000;
        let [a, b, ..] = io_low.to_le_bytes();
        self.wire.write16(bdf, regs::IO_WINDOW, u16::from_le_bytes([a, b])).await?;
        let mut kept = (self.wire.read(bdf, regs::IO_WINDOW).await? ^ io_low) & 0xF0F0 == 0;
        let mut writes = vec![
            (regs::IO_UPPER, io_high, u32::MAX),
            (regs::MEM_WINDOW, halves(mem), 0xFFF0_FFF0),
            (regs::PREF_WINDOW, halves(pref), 0xFFF0_FFF0),
        ];
        if below.pref64 {
            writes.push((regs::PREF_UPPER, high32(pref.base), u32::MAX));
            writes.push((regs::PREF_UPPER + 4, high32(pref.limit), u32::MAX));
        }
        for (at, value, mask) in writes {
            self.wire.write(bdf, at, value).await?;
            kept &= (self.wire.read(bdf, at).await? ^ value) & mask == 0;
        }
        if !kept {
            self.trouble(bdf, Trouble::Windows);
        }
        Ok(())
    }

    /// Lets a function report its errors.
    async fn report_errors(&mut self, node: &Node) -> Done<()> {
        let Some((_, at)) = node.express else { return Ok(()) };
        let at = at + express::DEV_CTL;
        let all = express::DEV_CTL_CORRECTABLE
            | express::DEV_CTL_NON_FATAL
            | express::DEV_CTL_FATAL
            | express::DEV_CTL_UNSUPPORTED;
        let control = self.wire.read16(node.bdf, at).await?;
        self.wire.write16(node.bdf, at, control | all).await
    }

    /// Asks for interrupts of a slot, its message first.
    async fn hear_of_slot(&mut self, node: &Node, below: &Below) -> Done<()> {
        let (Some(_), Some((_, at)), Some(msi), Some(address)) =
            (below.slot, node.express, node.msi, self.host.msi)
        else {
            return Ok(());
        };
        self.wire.write(node.bdf, msi + msi::ADDRESS, low32(address)).await?;
        self.wire.write(node.bdf, msi + msi::ADDRESS + 4, high32(address)).await?;
        self.wire.write16(node.bdf, msi + msi::DATA, node.bdf.bits()).await?;
        self.wire.write16(node.bdf, msi + msi::CONTROL, msi::CONTROL_ENABLE).await?;
        let events =
            express::SLOT_CTL_PRESENCE | express::SLOT_CTL_LINK | express::SLOT_CTL_INTERRUPT;
        self.wire.write16(node.bdf, at + express::SLOT_CTL, events).await
    }
}

/// How many devices can be on the bus below a port: a link has one at its end.
fn devices_below(kind: Option<PortKind>) -> u8 {
    if kind.is_some_and(PortKind::is_above_link) { 1 } else { 32 }
}

/// A BAR, from what its registers answer to ones; `None` if no BAR answers so.
fn parse_bar(index: u8, low: u32, high: u32, whole: bool) -> Option<Bar> {
    let (kind, mask) = match low & 7 {
        1 | 5 => {
            // The upper half of an I/O BAR may be hardwired to 0.
            let mask = low & !3;
            (BarKind::Io, if mask >> 16 == 0 { mask | 0xFFFF_0000 } else { mask })
        }
        0 => (BarKind::Mem32 { prefetch: low & 8 != 0 }, low & !15),
        4 if whole => (BarKind::Mem64 { prefetch: low & 8 != 0 }, low & !15),
        _ => return None,
    };
    let mask = u64::from(mask) | u64::from(high) << 32;
    let size = (!mask).checked_add(1)?;
    let fits = matches!(kind, BarKind::Mem64 { .. }) || size <= 1 << 31;
    (size.is_power_of_two() && fits).then_some(Bar { index, kind, size, address: None })
}
