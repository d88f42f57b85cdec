//! The scan of a hierarchy: reads bus by bus, and writes the assigned numbers and addresses.
//!
//! A stack of jobs, for one function each, processed depth first, as bus numbers require.
//!
//! Source: PCI-to-PCI Bridge 1.2 §3.2.5; PCIe 6.0 §2.3.1, §7.5, §7.6.3; CXL 3.1 §8.1.

pub(super) mod cache_id;
pub(super) mod cdat;
mod hdm;
mod ln;
mod probe;
mod write;

use std::collections::BTreeSet;

use cache_id::CacheIdFailure;
use cdat::CdatRead;
use weft_parsers::fabric::Bdf;

use super::assign::assign;
use super::spec::{EnumerateError, HostSpec};
use super::wire::{Done, Stop, Wire};
use crate::pci::bridge::{Buses, Window};
use crate::pci::express::PortKind;
use crate::pci::regs::{self, express};
use crate::pci::tree::{Node, Problem, ProblemKind, Tree};

/// A job, for one function each, so that a rerun repeats little (see [`super::wire`]).
#[derive(Clone, Debug)]
enum Job {
    /// Handle an interrupt of the slot behind a bridge.
    Service(Bdf),
    /// Enumerate again below a bridge.
    Rescan(Bdf),
    /// Probe one function number.
    Function(Bdf),
    /// Assign bus numbers to a bridge and scan below it.
    Open(Box<Node>),
    /// Set the last bus number of the bridge whose bus was scanned.
    Close,
    /// Assign addresses to all nodes found.
    Assign,
    /// Write addresses of a function, or windows of a bridge, and enable it.
    Apply(Box<Node>),
    /// Enable the interrupts of a slot, once all below it is enabled.
    EnableSlot(Box<Node>),
    /// Move the nodes into the tree.
    Finish,
    /// Place host-managed memory, once the tree is complete.
    Place,
    /// Program the HDM decoders of a device with such memory.
    Memory(Bdf),
    /// Program the HDM decoders of a switch's upstream port.
    Switch(Bdf),
    /// Give a device a `CacheID`, or take it away.
    CacheId(Bdf, Option<u8>),
    /// Remove targets from a switch's route table that lead to no cache.
    KeepCacheIds(Bdf),
    /// Start giving `CacheID`s to devices that cache the host's memory, once it is known which are in use.
    Caches,
    /// Give one device the lowest free `CacheID`.
    GiveCacheId(Bdf),
    /// Enable the cache of a device (true), or disable it.
    SwitchCache(Bdf, bool),
    /// Find the DOE mailbox with the CDAT of a function.
    FindCdat(Bdf),
    /// Read an entry of a function's CDAT by that mailbox, then those behind it.
    CdatEntry { bdf: Bdf, mailbox: u16, handle: u16 },
}

/// A bus that is being scanned.
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
    /// Stack of pending jobs: the last one runs next.
    jobs: Vec<Job>,
    /// Buses from the first one to the one being scanned.
    frames: Vec<Frame>,
    /// Result of the last enumeration, and the bridge below which this one runs (`None`: everywhere).
    tree: Tree,
    inside: Option<Bdf>,
    /// Next bus number to assign, and the highest one allowed.
    bus_next: u16,
    bus_last: u8,
    problems: Vec<Problem>,
    /// Addresses of the host's own memory.
    pub(super) memory: Vec<Window>,
    /// `CacheID`s that were given to a device or taken from one. A set, as a job that runs again inserts them again.
    pub(super) moved_cache_ids: BTreeSet<u8>,
    /// Result of [`Job::CacheId`].
    pub(super) cache_id: Option<Result<(), CacheIdFailure>>,
    /// CDATs that were read, or the failure of each.
    pub(super) cdats: Vec<CdatRead>,
    /// Entries of the CDAT that is being read.
    entries: Vec<Vec<u8>>,
}

impl Scanner {
    fn new(host: HostSpec, tree: Tree, job: Job) -> Self {
        Self {
            wire: Wire::new(host.accesses_max),
            host,
            // Memory is placed at the end of every enumeration: what left may have made room for others.
            jobs: vec![Job::Place, job],
            frames: vec![Frame::default()],
            tree,
            inside: None,
            bus_next: u16::from(host.bus_first) + 1,
            bus_last: host.bus_last,
            problems: Vec::new(),
            memory: Vec::new(),
            moved_cache_ids: BTreeSet::new(),
            cache_id: None,
            cdats: Vec::new(),
            entries: Vec::new(),
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

    pub(super) fn cache_id(host: HostSpec, tree: Tree, device: Bdf, cache_id: Option<u8>) -> Self {
        let mut this = Self::new(host, tree, Job::CacheId(device, cache_id));
        this.jobs.remove(0); // no memory is placed
        this
    }

    pub(super) fn cdat(host: HostSpec, tree: Tree, functions: &[Bdf]) -> Self {
        let mut this = Self::new(host, tree, Job::Finish);
        this.jobs = functions.iter().rev().map(|bdf| Job::FindCdat(*bdf)).collect();
        this
    }

    /// Runs jobs until one needs an answer (`None`), or all are finished.
    pub(super) fn advance(&mut self) -> Option<Result<Tree, EnumerateError>> {
        while let Some(job) = self.jobs.pop() {
            let problems = self.problems.len();
            self.wire.rewind();
            match self.run(job.clone()) {
                Ok(()) => self.wire.forget(),
                Err(Stop::Asked) => {
                    // The job will run again from its start, and find its problems again.
                    self.problems.truncate(problems);
                    self.jobs.push(job);
                    return None;
                }
                Err(Stop::Failed(why)) => return Some(Err(why)),
            }
        }
        self.tree.problems.append(&mut self.problems);
        Some(Ok(std::mem::take(&mut self.tree)))
    }

    /// Runs a job from its start. Before its last access a job may change nothing but `problems`, as it is run again.
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
            Job::Place => {
                self.place_memory();
                Ok(())
            }
            Job::Memory(bdf) => self.decode_memory(bdf),
            Job::Switch(bdf) => self.route_memory(bdf),
            Job::CacheId(device, cache_id) => self.set_cache_id(device, cache_id),
            Job::KeepCacheIds(bdf) => self.keep_cache_ids(bdf),
            Job::Caches => {
                self.find_caches();
                Ok(())
            }
            Job::GiveCacheId(device) => self.give_cache_id(device),
            Job::SwitchCache(device, on) => self.switch_cache(device, on).map(|_| ()),
            Job::FindCdat(bdf) => self.find_cdat(bdf),
            Job::CdatEntry { bdf, mailbox, handle } => self.read_entry(bdf, mailbox, handle),
        }
    }

    fn problem(&mut self, bdf: Bdf, kind: ProblemKind) {
        self.problems.push(Problem { bdf, kind });
    }

    /// Scans `bus` next, which has at most `devices` devices.
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
        // Numbers and windows of the bridge itself stay, as everything beside it keeps its own.
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
            return Ok(()); // the bridge itself is gone; the slot above it interrupts for that
        }
        // Cleared before the state is read: what changes afterwards interrupts again.
        self.wire.write16(bdf, at + express::SLOT_STA, status)?;
        let events = express::SLOT_STA_PRESENCE | express::SLOT_STA_LINK;
        if status & events == 0 {
            return Ok(());
        }
        let state = self.wire.read16(bdf, at + express::SLOT_STA)?;
        let link = self.wire.read16(bdf, at + express::LINK_STA)?;
        // Removed in any case: a device that left and came back between two looks has lost its registers.
        self.tree.remove_below(bdf);
        if state & express::SLOT_STA_PRESENT != 0 && link & express::LINK_STA_ACTIVE != 0 {
            self.jobs.push(Job::Rescan(bdf));
        }
        Ok(())
    }

    /// Probes the function at `bdf`.
    fn function(&mut self, bdf: Bdf) -> Done<()> {
        let Some(id) = self.probe(bdf)? else { return Ok(()) };
        let [.., header, _] = self.wire.read(bdf, regs::HEADER_TYPE)?.to_le_bytes();
        let node = self.node(bdf, id, header & 0x7F)?;
        // Functions 1 to 7 are probed only if function 0 is multi-function: others may alias it.
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
        // By then all bridges are closed, and the one frame left is that of the first bus.
        if let Some(frame) = self.frames.first_mut() {
            self.problems.extend(assign(&mut frame.nodes, &windows, &self.host.reserve));
            // Writes are jobs, not part of this one: assignment makes no access, so it is never run twice.
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

    /// Assigns bus numbers to a bridge, and scans below it.
    fn open(&mut self, mut node: Box<Node>) -> Done<()> {
        let bdf = node.bdf;
        let secondary = u8::try_from(self.bus_next).ok().filter(|bus| *bus <= self.bus_last);
        let Some(secondary) = secondary else {
            // Numbers of an earlier enumeration would claim a bus that now belongs to another bridge.
            self.wire.write(bdf, regs::BUSES, 0)?;
            self.problem(bdf, ProblemKind::NoBus);
            self.add_node(*node);
            return Ok(());
        };
        // Everything up to the last bus is claimed while the scan below is under way; `close` sets the true end.
        let buses = Buses { primary: bdf.bus(), secondary, subordinate: self.bus_last };
        self.write_buses(bdf, buses)?;
        self.bus_next += 1;
        let devices = devices_below(node.kind());
        if let Some(below) = &mut node.below {
            below.buses = buses;
        }
        self.frames.push(Frame { bridge: Some(node), nodes: Vec::new() });
        // Below the jobs of the bus on the stack, so it runs after all of them.
        self.jobs.push(Job::Close);
        self.scan_bus(secondary, devices);
        Ok(())
    }

    /// Sets the subordinate bus of the bridge above the last frame, and ends that frame.
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
}

/// Lists the writes for `nodes`: a bridge before the nodes below it, and its slot after them.
fn list_writes(nodes: &[Node], jobs: &mut Vec<Job>) {
    for node in nodes {
        // A job is cloned for each run, so it carries the node without the tree below.
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

/// Number of devices that can be on the bus below a port: a link has only device 0 at its end.
fn devices_below(kind: Option<PortKind>) -> u8 {
    if kind.is_some_and(PortKind::is_above_link) { 1 } else { 32 }
}
