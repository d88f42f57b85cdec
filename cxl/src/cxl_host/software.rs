//! A host's software: enumerates the buses below its root port, answers interrupts of slots, and sends commands to
//! mailboxes.
//!
//! [`Software::advance`] and [`Software::exchange`] do one step, by transactions of the host's [`Requester`] and by
//! registers of its root port; [`Software::take`] takes the ends of its transactions.
//!
//! Source: PCI-to-PCI Bridge 1.2 §3.2; PCIe 6.0 sections 2.3.1, 6.7; CXL 3.1 section 8.2.8.4.

use std::collections::VecDeque;

use weft_dataplane::time::{Instant, Span};
use weft_parsers::fabric::{Bdf, Hpa};

use super::bus_reset::{self, BusReset};
use super::events::{Event, Events};
use super::mailbox::{Exchange, Step};
use super::scan::{Scan, ScanStep};
use crate::pci::bridge::Window;
use crate::pci::enumerate::{CacheIdFailure, Request};
use crate::pci::express::PortKind;
use crate::pci::{Bridge, BridgeEffects, Enumerator, HostSpec, LnSettings, Tree};
use crate::requester::{Done, OpId, Operation, Requester};

/// Most bridges whose interrupts are kept during an enumeration: one for each bus.
const HEARD_MAX: usize = 256;

/// Most repetitions of a scan behind a slot in a row, if accesses were lost.
const AGAIN_MAX: u8 = 3;

/// Extent of an enumeration.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum LookedAt {
    /// Everything: all functions may get other numbers.
    All,
    /// The buses behind this bridge.
    Behind(Bdf),
}

/// Result of one step of the enumerator.
pub(super) enum Advance {
    /// It waits, or there is nothing to do.
    Idle,
    /// There may be another step at once.
    Again,
    /// It wrote a register of the root port; there may be another step at once.
    Wrote(BridgeEffects),
}

/// A bus reset under way.
#[derive(Debug)]
struct Resetting {
    steps: BusReset,
    /// Transaction that it waits for.
    op: Option<OpId>,
    until: Option<Instant>,
}

/// The software of a host.
#[derive(Debug)]
pub(super) struct Software {
    spec: HostSpec,
    /// Ranges of the host's own memory, where nothing else may be placed.
    memory: Vec<Window>,
    hot_plug: bool,
    scan: Option<Scan>,
    tree: Option<Tree>,
    /// Extent of the enumeration under way; `renewed` is that of the last one, until it was fetched.
    looked_at: Option<LookedAt>,
    renewed: Option<LookedAt>,
    /// Number of enumerations that have ended.
    renewals: u64,
    /// Repetitions of the current scan so far.
    again: u8,
    /// Slots that have interrupted, in order.
    slots: VecDeque<Bdf>,
    /// Bridges that interrupted during the enumeration under way.
    heard: Vec<Bdf>,
    /// A device whose `CacheID` is to be set or removed, and whether that is under way.
    cache_id: Option<(Bdf, Option<u8>, bool)>,
    moved_cache_ids: Vec<u8>,
    /// Functions whose CDATs are to be read, and whether this is under way.
    cdats: Option<(Vec<Bdf>, bool)>,
    /// A reset of a bus, until the bus has been enumerated again.
    reset: Option<Resetting>,
    /// Queue of commands for mailboxes; the first one is under way.
    commands: VecDeque<(u64, Exchange)>,
    command_next: u64,
    /// Transaction that this one waits for.
    command_op: Option<OpId>,
    command_until: Option<Instant>,
}

impl Software {
    pub(super) const fn new(spec: HostSpec, memory: Vec<Window>, hot_plug: bool) -> Self {
        Self {
            spec,
            memory,
            hot_plug,
            scan: None,
            tree: None,
            looked_at: None,
            renewed: None,
            renewals: 0,
            again: 0,
            slots: VecDeque::new(),
            heard: Vec::new(),
            cache_id: None,
            moved_cache_ids: Vec::new(),
            cdats: None,
            reset: None,
            commands: VecDeque::new(),
            command_next: 0,
            command_op: None,
            command_until: None,
        }
    }

    /// First address of interrupts.
    pub(super) const fn msi(&self) -> Option<u64> {
        self.spec.msi
    }

    /// Enumerates everything below the root port.
    pub(super) fn enumerate(&mut self) {
        // The enumeration of everything covers them.
        self.slots.clear();
        self.looked_at = Some(LookedAt::All);
        if let Some((.., is_under_way)) = &mut self.cache_id {
            *is_under_way = false; // begins again behind this enumeration
        }
        if let Some((_, is_under_way)) = &mut self.cdats {
            *is_under_way = false;
        }
        self.scan = Some(Scan::new(Enumerator::all(self.spec).beside(self.memory.clone())));
    }

    /// Enumerates again behind the slot at `bdf`, once no other enumeration is under way.
    pub(super) fn rescan(&mut self, bdf: Bdf) {
        self.slots.push_back(bdf);
    }

    /// Resets the bus below the bridge at `bdf`, once no enumeration is under way. False while another reset is, or if
    /// there is no such bridge.
    pub(super) fn reset_bus(&mut self, bdf: Bdf) -> bool {
        let node = self.tree.as_ref().and_then(|tree| tree.get(bdf));
        let Some((node, below)) = node.and_then(|node| Some((node, node.below.as_ref()?))) else {
            return false;
        };
        if self.reset.is_some() {
            return false;
        }
        // Only a port above a link can report whether the link is up again.
        let express = node.express.filter(|(kind, _)| kind.is_some_and(PortKind::is_above_link));
        let steps = BusReset::new(bdf, express.map(|(_, at)| at), below.slot.is_some());
        self.reset = Some(Resetting { steps, op: None, until: None });
        true
    }

    /// Sets or removes the `CacheID` of the device at `bdf`, once no enumeration is under way. False while it does so
    /// for another device.
    pub(super) const fn set_cache_id(&mut self, bdf: Bdf, cache_id: Option<u8>) -> bool {
        let is_free = self.cache_id.is_none();
        if is_free {
            self.cache_id = Some((bdf, cache_id, false));
        }
        is_free
    }

    /// Reads the CDATs of functions, once no enumeration is under way. False while it does so already.
    pub(super) fn read_cdats(&mut self, functions: Vec<Bdf>) -> bool {
        let is_free = self.cdats.is_none();
        if is_free {
            self.cdats = Some((functions, false));
        }
        is_free
    }

    /// The next enumeration to begin, if any.
    fn next_scan(&mut self) -> Option<Scan> {
        // Slots first: devices that came or went change the tree that the others work on.
        if let Some(tree) = &self.tree
            && let Some(bdf) = self.slots.pop_front()
        {
            self.looked_at = Some(LookedAt::Behind(bdf));
            let enumerator = Enumerator::service(self.spec, tree.clone(), bdf);
            return Some(Scan::new(enumerator.beside(self.memory.clone())));
        }
        let tree = || self.tree.clone().unwrap_or_default();
        if let Some((bdf, cache_id, is_under_way)) = &mut self.cache_id {
            *is_under_way = true;
            return Some(Scan::new(Enumerator::cache_id(self.spec, tree(), *bdf, *cache_id)));
        }
        let (functions, is_under_way) = self.cdats.as_mut()?;
        *is_under_way = true;
        Some(Scan::new(Enumerator::cdat(self.spec, tree(), functions)))
    }

    /// Settings for LN requesters.
    pub(super) const fn ln(&self) -> Option<LnSettings> {
        self.spec.ln
    }

    /// Extent of the enumeration that has ended since the last call.
    pub(super) const fn take_renewed(&mut self) -> Option<LookedAt> {
        self.renewed.take()
    }

    /// Number of enumerations that have ended.
    pub(super) const fn renewals(&self) -> u64 {
        self.renewals
    }

    pub(super) const fn is_enumerating(&self) -> bool {
        self.scan.is_some()
    }

    pub(super) const fn tree(&self) -> Option<&Tree> {
        self.tree.as_ref()
    }

    /// Queues a command for a mailbox; returns its number.
    pub(super) fn command(&mut self, block: Hpa, opcode: u16, input: &[u8]) -> u64 {
        let number = self.command_next;
        self.command_next += 1;
        self.commands.push_back((number, Exchange::new(block, opcode, input)));
        number
    }

    /// When it continues without an answer.
    pub(super) fn next_due(&self) -> Option<Instant> {
        let reset = self.reset.as_ref().filter(|_| self.scan.is_none());
        let own = Instant::earlier(self.command_until, reset.and_then(|reset| reset.until));
        Instant::earlier(own, self.scan.as_ref().and_then(Scan::until))
    }

    /// Handles an interrupt: scans behind the slot of the bridge that wrote it, once no other enumeration is under way.
    pub(super) fn interrupt(&mut self, addr: Hpa, from: Bdf) {
        if !self.hot_plug || self.spec.msi != Some(addr.0) {
            return;
        }
        if self.scan.is_some() {
            // Slots are known when this enumeration has ended, and it may have passed this one already.
            if !self.heard.contains(&from) && self.heard.len() < HEARD_MAX {
                self.heard.push(from);
            }
        } else if self.has_slot(from) {
            self.slots.push_back(from);
        }
    }

    /// Whether a bridge of the last enumeration has a slot.
    fn has_slot(&self, bdf: Bdf) -> bool {
        let node = self.tree.as_ref().and_then(|tree| tree.get(bdf));
        node.and_then(|node| node.below.as_ref()).is_some_and(|below| below.slot.is_some())
    }

    /// Takes the end of a transaction of its own; returns any other.
    pub(super) fn take(&mut self, done: Done) -> Option<Done> {
        let retries = self.spec.retries;
        let own = |scan: &mut Scan| scan.take(done.op, &done.result, retries);
        if self.scan.as_mut().is_some_and(own) {
            return None;
        }
        if let Some(reset) = self.reset.as_mut().filter(|reset| reset.op == Some(done.op)) {
            reset.op = None;
            let bytes = done.result.as_ref().ok();
            let value =
                bytes.map(|bytes| bytes.first_chunk().copied().map_or(0, u32::from_le_bytes));
            reset.steps.answer(value);
            return None;
        }
        if self.command_op != Some(done.op) {
            return Some(done);
        }
        self.command_op = None;
        if let Some((_, exchange)) = self.commands.front_mut() {
            exchange.answer(done.result);
        }
        None
    }

    /// One step of the first command; true if another may follow at once.
    pub(super) fn exchange(
        &mut self,
        now: Instant,
        requester: &mut Requester,
        events: &mut Events,
    ) -> bool {
        // One command at a time: a mailbox holds one.
        if self.command_op.is_some() || self.command_until.is_some_and(|until| now < until) {
            return false;
        }
        let Some((number, exchange)) = self.commands.front_mut() else { return false };
        // The pause is over, which is the answer to `Step::Wait`.
        if self.command_until.take().is_some() {
            exchange.answer(Ok(Vec::new()));
        }
        let what = match exchange.step() {
            Step::Read(addr, len) => Operation::Read { addr, len },
            Step::Write(addr, data) => Operation::Write { addr, data },
            Step::Wait { ns } => {
                self.command_until = Some(now + Span::from_ns(ns));
                return false;
            }
            Step::Done(result) => {
                let number = *number;
                self.commands.pop_front();
                events.push(Event::Response { number, result });
                return true;
            }
        };
        self.command_op = Some(requester.submit(what.into()));
        false
    }

    /// One step of the bus reset; `None` if there is none to do.
    fn advance_reset(
        &mut self,
        now: Instant,
        requester: &mut Requester,
        root: &mut Bridge,
    ) -> Option<Advance> {
        let Resetting { steps, op, until } = self.reset.as_mut()?;
        if op.is_some() || until.is_some_and(|until| now < until) {
            return Some(Advance::Idle);
        }
        if until.take().is_some() {
            steps.answer(None);
        }
        let dest = steps.bdf;
        // The root port is in the host: no TLP reaches its registers.
        let own = dest.bus() == self.spec.bus_first;
        let type1 = dest.bus() != root.buses().secondary;
        let what = match steps.step() {
            bus_reset::Step::Wait { ns } => {
                *until = Some(now + Span::from_ns(ns));
                return Some(Advance::Again);
            }
            bus_reset::Step::Over => {
                self.slots.retain(|slot| *slot != dest); // the slot has interrupted because of the reset
                let tree = self.tree.clone().unwrap_or_default();
                self.looked_at = Some(LookedAt::Behind(dest));
                self.scan = Some(Scan::new(Enumerator::rescan(self.spec, tree, dest)));
                return Some(Advance::Again);
            }
            bus_reset::Step::Read(reg) if own => {
                steps.answer(Some(root.read(reg)));
                return Some(Advance::Again);
            }
            bus_reset::Step::Write(reg, value, enables) if own => {
                steps.answer(None);
                return Some(Advance::Wrote(root.write(reg, value, enables)));
            }
            bus_reset::Step::Read(reg) => Operation::ConfigRead { dest, reg, type1 },
            bus_reset::Step::Write(reg, value, enables) => {
                Operation::ConfigWrite { dest, reg, type1, value, enables }
            }
        };
        *op = Some(requester.submit(what.into()));
        Some(Advance::Idle)
    }

    /// Reports the end of a reset once the bus has been enumerated again.
    fn end_reset(&mut self, events: &mut Events) {
        let over = |reset: &mut Resetting| reset.steps.step() == bus_reset::Step::Over;
        if let Some(reset) = self.reset.take_if(over) {
            events.push(Event::BusReset(reset.steps.bdf));
        }
    }

    /// Takes a `CacheID` that was given to a device or taken from one.
    pub(super) fn take_moved_cache_id(&mut self) -> Option<u8> {
        self.moved_cache_ids.pop()
    }

    /// Ends the change of a `CacheID`, successful or not.
    fn end_cache_id(&mut self, events: &mut Events) {
        let (Some(scan), Some((device, ..))) = (self.scan.take(), self.cache_id.take()) else {
            return;
        };
        self.moved_cache_ids.extend(scan.enumerator().moved_cache_ids());
        let result = scan.enumerator().cache_id_result();
        let result = result.unwrap_or(Err(CacheIdFailure::Lost(device)));
        if let Some(Ok(tree)) = scan.enumerator().result() {
            self.tree = Some(tree.clone());
        }
        events.push(Event::CacheId { device, result });
        self.look_at_heard();
    }

    /// Ends the reading of CDATs, successful or not.
    fn end_cdats(&mut self, events: &mut Events) {
        let (Some(scan), Some(_)) = (self.scan.take(), self.cdats.take()) else { return };
        events.push(Event::Cdats(scan.enumerator().cdats().to_vec()));
        self.look_at_heard();
    }

    /// Queues scans behind slots that interrupted meanwhile.
    fn look_at_heard(&mut self) {
        for from in core::mem::take(&mut self.heard) {
            if self.has_slot(from) {
                self.slots.push_back(from);
            }
        }
    }

    /// One step of the enumerator.
    pub(super) fn advance(
        &mut self,
        now: Instant,
        requester: &mut Requester,
        root: &mut Bridge,
        events: &mut Events,
    ) -> Advance {
        // A reset waits for the scan under way, whose accesses it would lose.
        if self.scan.is_none()
            && let Some(advance) = self.advance_reset(now, requester, root)
        {
            return advance;
        }
        if self.scan.is_none() {
            self.scan = self.next_scan();
        }
        let Some(scan) = &mut self.scan else { return Advance::Idle };
        match scan.step(now, self.spec.bus_first, root) {
            ScanStep::Nothing => Advance::Idle,
            ScanStep::Send(request, transaction) => {
                let op = requester.submit(transaction);
                scan.sent(op, request);
                Advance::Idle
            }
            ScanStep::Own(Request::Read { reg, .. }) => {
                scan.own(Some(root.read(reg)));
                Advance::Again
            }
            ScanStep::Own(Request::Write { reg, value, enables, .. }) => {
                scan.own(None);
                Advance::Wrote(root.write(reg, value, enables))
            }
            ScanStep::Own(_) => Advance::Idle,
            ScanStep::Finished
                if self.cache_id.is_some_and(|(_, _, is_under_way)| is_under_way) =>
            {
                self.end_cache_id(events);
                Advance::Again
            }
            ScanStep::Finished if matches!(self.cdats, Some((_, true))) => {
                self.end_cdats(events);
                Advance::Again
            }
            ScanStep::Finished => {
                self.moved_cache_ids.extend(scan.enumerator().moved_cache_ids());
                match scan.enumerator().result().cloned() {
                    Some(Ok(tree)) => {
                        self.tree = Some(tree);
                        // Fetched by `work`, which then admits LN requesters of the new tree.
                        self.renewed = self.looked_at;
                        self.renewals += 1;
                        events.push(Event::Enumerated(Ok(())));
                    }
                    Some(Err(why)) => events.push(Event::Enumerated(Err(why))),
                    None => {}
                }
                self.again = match self.looked_at {
                    Some(LookedAt::Behind(bdf))
                        if scan.is_unanswered() && self.again < AGAIN_MAX =>
                    {
                        self.slots.push_back(bdf); // a link on the way was lost meanwhile
                        self.again + 1
                    }
                    _ => 0,
                };
                self.scan = None;
                self.end_reset(events);
                self.look_at_heard();
                Advance::Again
            }
        }
    }
}
