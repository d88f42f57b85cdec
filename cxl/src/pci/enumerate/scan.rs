//! Reading what is there, bus by bus, and writing what it was given.
//!
//! Shape: a stack of jobs, one function each; depth first, as bus numbers need.
//! Units: bytes; bus numbers.
//! Source: PCI-to-PCI Bridge 1.2 §3.2.5; PCIe 6.0 §2.3.1, §7.5, §7.6.3; CXL 3.1 §8.1.

use weft_parsers::fabric::Bdf;

use super::assign::assign;
use super::spec::{EnumerateError, HostSpec};
use super::wire::{Done, Stop, Wire};
use crate::pci::bridge::{Buses, Window, Windows};
use crate::pci::cxl::{self, CxlKind};
use crate::pci::express::PortKind;
use crate::pci::function::BarKind;
use crate::pci::regs::{self, cap, command, dvsec, express, ext, msi};
use crate::pci::space::{high32, low32};
use crate::pci::tree::{Bar, Below, Node, Problem, ProblemKind, Tree};

/// Vendor ID of a function that is not ready (PCIe 6.0 §2.3.1, CRS software visibility).
const NOT_READY: u16 = 0x0001;
/// Longest list of capabilities, with its end: double words between header and 100h.
const LIST_MAX: usize = 49;
/// Longest list of extended capabilities, with its end.
const EXT_MAX: usize = 961;

/// What is to be done next, with one function each, so that little is repeated (see [`super::wire`]).
#[derive(Clone, Debug)]
enum Job {
    /// Look at an interrupt of the slot behind a bridge.
    Service(Bdf),
    /// Enumerate anew what is below a bridge.
    Rescan(Bdf),
    /// See what is at a place.
    Function(Bdf),
    /// Give a bridge its bus numbers and go below.
    Open(Box<Node>),
    /// The bridge's last bus number is known.
    Close,
    /// Give away addresses.
    Assign,
    /// Write the addresses of a function, or the windows of a bridge, and switch it on.
    Apply(Box<Node>),
    /// Ask for the interrupts of a slot, once what is below is on.
    EnableSlot(Box<Node>),
    /// Put together the tree.
    Finish,
}

/// A bus that is being looked at.
#[derive(Clone, Debug, Default)]
struct Frame {
    /// The bridge above; `None` for the first bus.
    bridge: Option<Box<Node>>,
    nodes: Vec<Node>,
}

#[derive(Clone, Debug)]
pub(super) struct Scanner {
    pub(super) wire: Wire,
    host: HostSpec,
    /// What is left to do; the last comes first.
    jobs: Vec<Job>,
    /// Buses from the first one to where it is.
    frames: Vec<Frame>,
    /// What was known before, and the bridge whose inside is enumerated anew.
    tree: Tree,
    inside: Option<Bdf>,
    /// Next bus number to give, and the last one.
    bus_next: u16,
    bus_last: u8,
    problems: Vec<Problem>,
}

impl Scanner {
    fn new(host: HostSpec, tree: Tree, job: Job) -> Self {
        Self {
            wire: Wire::new(host.accesses_max),
            host,
            jobs: vec![job],
            frames: vec![Frame::default()],
            tree,
            inside: None,
            bus_next: u16::from(host.bus_first) + 1,
            bus_last: host.bus_last,
            problems: Vec::new(),
        }
    }

    pub(super) fn all(host: HostSpec) -> Self {
        let tree = Tree { bus: host.bus_first, ..Tree::default() };
        let mut this = Self::new(host, tree, Job::Finish);
        this.jobs.push(Job::Assign);
        this.scan_bus(host.bus_first, 32);
        this
    }

    pub(super) fn rescan(host: HostSpec, tree: Tree, bdf: Bdf) -> Self {
        Self::new(host, tree, Job::Rescan(bdf))
    }

    pub(super) fn service(host: HostSpec, tree: Tree, bdf: Bdf) -> Self {
        Self::new(host, tree, Job::Service(bdf))
    }

    /// Goes on as far as it can: `None` while a request stands, else the outcome.
    pub(super) fn advance(&mut self) -> Option<Result<Tree, EnumerateError>> {
        while let Some(job) = self.jobs.pop() {
            let problems = self.problems.len();
            self.wire.rewind();
            match self.run(job.clone()) {
                Ok(()) => self.wire.forget(),
                Err(Stop::Asked) => {
                    self.problems.truncate(problems);
                    self.jobs.push(job);
                    return None;
                }
                Err(Stop::Failed(why)) => return Some(Err(why)),
            }
        }
        Some(Ok(std::mem::take(&mut self.tree)))
    }

    /// Does a job. It changes nothing but `problems` before its last access.
    fn run(&mut self, job: Job) -> Done<()> {
        match job {
            Job::Service(bdf) => self.service_slot(bdf),
            Job::Rescan(bdf) => self.rescan_below(bdf),
            Job::Function(bdf) => self.function(bdf),
            Job::Open(node) => self.open(node),
            Job::Close => self.close(),
            Job::Assign => {
                self.give_addresses();
                Ok(())
            }
            Job::Apply(node) => self.apply(&node),
            Job::EnableSlot(node) => self.enable_slot_interrupts(&node),
            Job::Finish => {
                self.finish();
                Ok(())
            }
        }
    }

    fn problem(&mut self, bdf: Bdf, kind: ProblemKind) {
        self.problems.push(Problem { bdf, kind });
    }

    /// Looks at `bus` next, which has `devices` devices at most.
    fn scan_bus(&mut self, bus: u8, devices: u8) {
        let places = (0..devices).rev().map(|device| Job::Function(Bdf::new(bus, device, 0)));
        self.jobs.extend(places);
    }

    fn add_node(&mut self, node: Node) {
        if let Some(frame) = self.frames.last_mut() {
            frame.nodes.push(node);
        }
    }

    fn rescan_below(&mut self, bdf: Bdf) -> Done<()> {
        let kind = self.tree.get(bdf).and_then(Node::kind);
        let below = self.tree.below_mut(bdf).filter(|below| below.buses.secondary != 0);
        let buses = below.ok_or(EnumerateError::NoBridge { bdf })?.buses;
        self.tree.remove_below(bdf);
        self.inside = Some(bdf);
        self.bus_next = u16::from(buses.secondary) + 1;
        self.bus_last = buses.subordinate;
        self.jobs.extend([Job::Finish, Job::Assign]);
        self.scan_bus(buses.secondary, devices_below(kind));
        Ok(())
    }

    fn service_slot(&mut self, bdf: Bdf) -> Done<()> {
        let node = self.tree.get(bdf);
        let slot = node.filter(|node| node.below.as_ref().is_some_and(|b| b.slot.is_some()));
        let (_, at) = slot.and_then(|node| node.express).ok_or(EnumerateError::NoBridge { bdf })?;
        let status = self.wire.read16(bdf, at + express::SLOT_STA)?;
        if status == u16::MAX {
            return Ok(()); // the bridge itself is gone; who is above it will hear of that
        }
        // Cleared before the state is read: what changes afterwards interrupts again.
        self.wire.write16(bdf, at + express::SLOT_STA, status)?;
        let events = express::SLOT_STA_PRESENCE | express::SLOT_STA_LINK;
        if status & events == 0 {
            return Ok(());
        }
        let state = self.wire.read16(bdf, at + express::SLOT_STA)?;
        let link = self.wire.read16(bdf, at + express::LINK_STA)?;
        self.tree.remove_below(bdf);
        if state & express::SLOT_STA_PRESENT != 0 && link & express::LINK_STA_ACTIVE != 0 {
            self.jobs.push(Job::Rescan(bdf));
        }
        Ok(())
    }

    /// Sees what is at `bdf`.
    fn function(&mut self, bdf: Bdf) -> Done<()> {
        let Some(id) = self.probe(bdf)? else { return Ok(()) };
        let [.., header, _] = self.wire.read(bdf, regs::HEADER_TYPE)?.to_le_bytes();
        let node = self.node(bdf, id, header & 0x7F)?;
        if header & 0x80 != 0 && bdf.function() == 0 {
            let others = (1..8).rev().map(|f| Job::Function(Bdf::new(bdf.bus(), bdf.device(), f)));
            self.jobs.extend(others);
        }
        match node {
            Some(node) if node.below.is_some() => self.jobs.push(Job::Open(Box::new(node))),
            Some(node) => self.add_node(node),
            None => {}
        }
        Ok(())
    }

    fn give_addresses(&mut self) {
        let within = self.inside.and_then(|bdf| self.tree.below_mut(bdf)).map(|b| b.windows);
        let windows = within.unwrap_or(self.host.apertures);
        if let Some(frame) = self.frames.first_mut() {
            self.problems.extend(assign(&mut frame.nodes, &windows, &self.host.reserve));
            let mut jobs = Vec::new();
            list_writes(&frame.nodes, &mut jobs);
            self.jobs.extend(jobs.into_iter().rev());
        }
    }

    fn finish(&mut self) {
        let nodes = self.frames.pop().unwrap_or_default().nodes;
        match self.inside.and_then(|bdf| self.tree.below_mut(bdf)) {
            Some(below) => below.nodes = nodes,
            None => self.tree.nodes = nodes,
        }
        self.tree.problems.append(&mut self.problems);
    }

    /// Asks whether a function is there, until it is ready to say so.
    fn probe(&mut self, bdf: Bdf) -> Done<Option<u32>> {
        for retry in 0..=self.host.retries {
            let id = self.wire.read(bdf, regs::VENDOR)?;
            let [a, b, ..] = id.to_le_bytes();
            match u16::from_le_bytes([a, b]) {
                0 | u16::MAX => return Ok(None),
                NOT_READY if retry < self.host.retries => {
                    self.wire.wait(self.host.retry_ns)?;
                }
                NOT_READY => {}
                _ => return Ok(Some(id)),
            }
        }
        self.problem(bdf, ProblemKind::NotReady);
        Ok(None)
    }

    fn node(&mut self, bdf: Bdf, id: u32, header: u8) -> Done<Option<Node>> {
        let bars = match header {
            0 => 6,
            1 => 2,
            // All ones: it was there a moment ago.
            0x7F => {
                self.problem(bdf, ProblemKind::Lost);
                return Ok(None);
            }
            _ => {
                self.problem(bdf, ProblemKind::Header(header));
                return Ok(None);
            }
        };
        let [a, b, c, d] = id.to_le_bytes();
        let mut node = Node {
            bdf,
            vendor: u16::from_le_bytes([a, b]),
            device: u16::from_le_bytes([c, d]),
            class: self.wire.read(bdf, regs::REVISION)? >> 8,
            ..Node::default()
        };
        // Nothing is decoded while addresses change.
        self.wire.write16(bdf, regs::COMMAND, 0)?;
        self.capabilities(&mut node)?;
        if node.express.is_some() {
            self.extended(&mut node)?;
        }
        node.bars = self.bars(bdf, bars)?;
        if header == 1 {
            let slot = self.slot(&node)?;
            let pref64 = self.wire.read(bdf, regs::PREF_WINDOW)? & 0xF == 1;
            node.below = Some(Below { pref64, slot, ..Below::default() });
        }
        if self.wire.read(bdf, regs::VENDOR)? != id {
            self.problem(bdf, ProblemKind::Lost);
            return Ok(None);
        }
        Ok(Some(node))
    }

    fn capabilities(&mut self, node: &mut Node) -> Done<()> {
        let bdf = node.bdf;
        if self.wire.read16(bdf, regs::STATUS)? & regs::status::CAPABILITIES == 0 {
            return Ok(());
        }
        let [first, ..] = self.wire.read(bdf, regs::CAPABILITIES)?.to_le_bytes();
        let mut at = u16::from(first & !3);
        for _ in 0..LIST_MAX {
            if at == 0 {
                return Ok(());
            }
            if at < 0x40 {
                break;
            }
            let [id, next, low, high] = self.wire.read(bdf, at)?.to_le_bytes();
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
        self.problem(bdf, ProblemKind::Capabilities(at));
        Ok(())
    }

    fn extended(&mut self, node: &mut Node) -> Done<()> {
        let bdf = node.bdf;
        let mut at = 0x100;
        for _ in 0..EXT_MAX {
            let header = self.wire.read(bdf, at)?;
            let [a, b, c, d] = header.to_le_bytes();
            if header == 0 || header == u32::MAX {
                return Ok(());
            }
            match u16::from_le_bytes([a, b]) {
                ext::SERIAL if at <= 0xFF4 => {
                    let low = self.wire.read(bdf, at + 4)?;
                    let high = self.wire.read(bdf, at + 8)?;
                    node.serial = Some(u64::from(high) << 32 | u64::from(low));
                }
                ext::LNR => node.lnr = Some(at),
                ext::DVSEC if at <= 0xFF4 => self.dvsec(node, at)?,
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
        self.problem(bdf, ProblemKind::Capabilities(at));
        Ok(())
    }

    fn dvsec(&mut self, node: &mut Node, at: u16) -> Done<()> {
        let bdf = node.bdf;
        let header1 = self.wire.read(bdf, at + dvsec::HEADER1)?;
        let header2 = self.wire.read(bdf, at + dvsec::HEADER2)?;
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
                    words.push(self.wire.read(bdf, offset)?);
                }
                node.blocks = cxl::register_blocks(&words);
            }
            _ => {}
        }
        Ok(())
    }

    /// Sizes the BARs by writing ones.
    fn bars(&mut self, bdf: Bdf, count: u8) -> Done<Vec<Bar>> {
        let mut bars = Vec::new();
        let mut index = 0;
        while index < count {
            let this = index;
            index += 1;
            let low = self.size_register(bdf, this)?;
            if low == 0 {
                continue;
            }
            let wide = low & 7 == 4;
            let high = if wide && index < count {
                index += 1;
                self.size_register(bdf, this + 1)?
            } else {
                u32::MAX
            };
            if let Some(bar) = parse_bar(this, low, high, !wide || this + 1 < count) {
                bars.push(bar);
            } else {
                let high = if wide { high } else { 0 };
                let answer = u64::from(high) << 32 | u64::from(low);
                self.problem(bdf, ProblemKind::Bar { index: this, answer });
            }
        }
        Ok(bars)
    }

    fn size_register(&mut self, bdf: Bdf, index: u8) -> Done<u32> {
        let at = regs::BAR0 + 4 * u16::from(index);
        self.wire.write(bdf, at, u32::MAX)?;
        let answer = self.wire.read(bdf, at)?;
        self.wire.write(bdf, at, 0)?;
        Ok(answer)
    }

    /// Gives a bridge its bus numbers, and goes below.
    fn open(&mut self, mut node: Box<Node>) -> Done<()> {
        let bdf = node.bdf;
        let secondary = u8::try_from(self.bus_next).ok().filter(|bus| *bus <= self.bus_last);
        let Some(secondary) = secondary else {
            self.wire.write(bdf, regs::BUSES, 0)?;
            self.problem(bdf, ProblemKind::NoBus);
            self.add_node(*node);
            return Ok(());
        };
        let buses = Buses { primary: bdf.bus(), secondary, subordinate: self.bus_last };
        self.write_buses(bdf, buses)?;
        self.bus_next += 1;
        let devices = devices_below(node.kind());
        if let Some(below) = &mut node.below {
            below.buses = buses;
        }
        self.frames.push(Frame { bridge: Some(node), nodes: Vec::new() });
        self.jobs.push(Job::Close);
        self.scan_bus(secondary, devices);
        Ok(())
    }

    /// Tells the bridge above the last frame its last bus.
    fn close(&mut self) -> Done<()> {
        let bridge = self.frames.last().and_then(|frame| frame.bridge.as_ref());
        let Some((bdf, below)) = bridge.and_then(|node| Some((node.bdf, node.below.as_ref()?)))
        else {
            return Ok(());
        };
        let mut next = self.bus_next;
        if below.slot.is_some() {
            // Room to grow, counted from the slot's own bus.
            let room = u16::from(below.buses.secondary) + u16::from(self.host.reserve.buses) + 1;
            next = next.max(room).min(u16::from(self.bus_last) + 1);
        }
        let subordinate = u8::try_from(next - 1).unwrap_or(self.bus_last);
        let buses = Buses { subordinate, ..below.buses };
        self.write_buses(bdf, buses)?;
        self.bus_next = next;
        let Frame { bridge, nodes } = self.frames.pop().unwrap_or_default();
        if let Some(mut node) = bridge {
            if let Some(below) = &mut node.below {
                below.buses = buses;
                below.nodes = nodes;
            }
            self.add_node(*node);
        }
        Ok(())
    }

    fn write_buses(&mut self, bdf: Bdf, buses: Buses) -> Done<()> {
        let Buses { primary, secondary, subordinate } = buses;
        let value = u32::from_le_bytes([primary, secondary, subordinate, 0]);
        self.wire.write(bdf, regs::BUSES, value)
    }

    /// The number of a hot-plug slot, whose old events are cleared.
    fn slot(&mut self, node: &Node) -> Done<Option<u16>> {
        let Some((Some(kind), at)) = node.express else { return Ok(None) };
        let caps = self.wire.read16(node.bdf, at + express::CAP)?;
        if !kind.is_above_link() || caps & express::CAP_SLOT == 0 {
            return Ok(None);
        }
        let slot = self.wire.read(node.bdf, at + express::SLOT_CAP)?;
        if slot & express::SLOT_CAP_HOT_PLUG == 0 {
            return Ok(None);
        }
        let status = self.wire.read16(node.bdf, at + express::SLOT_STA)?;
        self.wire.write16(node.bdf, at + express::SLOT_STA, status)?;
        Ok(u16::try_from(slot >> 19).ok())
    }

    /// Writes addresses and windows, and switches on.
    fn apply(&mut self, node: &Node) -> Done<()> {
        let mut enable = command::MASTER;
        for bar in &node.bars {
            let at = regs::BAR0 + 4 * u16::from(bar.index);
            let address = bar.address.unwrap_or(0);
            self.wire.write(node.bdf, at, low32(address))?;
            if matches!(bar.kind, BarKind::Mem64 { .. }) {
                self.wire.write(node.bdf, at + 4, high32(address))?;
            }
            enable |= match (bar.address, bar.kind) {
                (None, _) => 0,
                (_, BarKind::Io) => command::IO,
                _ => command::MEM,
            };
        }
        if let Some(below) = &node.below {
            self.windows(node.bdf, below)?;
            enable |= command::IO | command::MEM | command::SERR;
        }
        self.wire.write16(node.bdf, regs::COMMAND, enable)?;
        self.report_errors(node)
    }

    fn windows(&mut self, bdf: Bdf, below: &Below) -> Done<()> {
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
        self.wire.write16(bdf, regs::IO_WINDOW, u16::from_le_bytes([a, b]))?;
        let mut kept = (self.wire.read(bdf, regs::IO_WINDOW)? ^ io_low) & 0xF0F0 == 0;
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
            self.wire.write(bdf, at, value)?;
            kept &= (self.wire.read(bdf, at)? ^ value) & mask == 0;
        }
        if !kept {
            self.problem(bdf, ProblemKind::Windows);
        }
        Ok(())
    }

    /// Lets a function report its errors.
    fn report_errors(&mut self, node: &Node) -> Done<()> {
        let Some((_, at)) = node.express else { return Ok(()) };
        let at = at + express::DEV_CTL;
        let all = express::DEV_CTL_CORRECTABLE
            | express::DEV_CTL_NON_FATAL
            | express::DEV_CTL_FATAL
            | express::DEV_CTL_UNSUPPORTED;
        let control = self.wire.read16(node.bdf, at)?;
        self.wire.write16(node.bdf, at, control | all)
    }

    /// Asks for interrupts of a slot, its message first.
    fn enable_slot_interrupts(&mut self, node: &Node) -> Done<()> {
        let slot = node.below.as_ref().and_then(|below| below.slot);
        let (Some(_), Some((_, at)), Some(msi), Some(address)) =
            (slot, node.express, node.msi, self.host.msi)
        else {
            return Ok(());
        };
        self.wire.write(node.bdf, msi + msi::ADDRESS, low32(address))?;
        self.wire.write(node.bdf, msi + msi::ADDRESS + 4, high32(address))?;
        self.wire.write16(node.bdf, msi + msi::DATA, node.bdf.bits())?;
        self.wire.write16(node.bdf, msi + msi::CONTROL, msi::CONTROL_ENABLE)?;
        let events =
            express::SLOT_CTL_PRESENCE | express::SLOT_CTL_LINK | express::SLOT_CTL_INTERRUPT;
        self.wire.write16(node.bdf, at + express::SLOT_CTL, events)
    }
}

/// What is to be written for `nodes`: those above first, and slots once what is below is on.
fn list_writes(nodes: &[Node], jobs: &mut Vec<Job>) {
    for node in nodes {
        let mut alone = Box::new(node.clone());
        if let Some(below) = &mut alone.below {
            below.nodes.clear();
        }
        jobs.push(Job::Apply(alone.clone()));
        list_writes(node.nodes(), jobs);
        if node.below.is_some() {
            jobs.push(Job::EnableSlot(alone));
        }
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
