//! Gives a device a `CacheID`: decoders of all ports above it, and route tables of their switches.
//!
//! The result is recorded in the nodes of the upstream ports, or is a [`CacheIdFailure`].
//!
//! Source: CXL 3.1 sections 8.1.3, 8.2.4.28, 8.2.4.29; docs/spec/cxl-fabric.md "CXL.cache";
//! docs/spec/wire-formats.md §3.11.
//!
//! The port right above the device assigns the `CacheID`, ports above switches forward it, and each route table on
//! the way has a target for it. The way ends at a virtual switch, which has no HDM decoders: a host's edge is the
//! last switch, and below a virtual link the switch itself tells the host's edge.

use weft_parsers::fabric::Bdf;

use super::hdm::block;
use super::{Job, Scanner};
use crate::pci::component::cache_id::regs;
use crate::pci::component::{PRIMARY, id};
use crate::pci::cxl;
use crate::pci::enumerate::wire::Done;
use crate::pci::express::PortKind;
use crate::pci::tree::{CacheIdTarget, Node, ProblemKind, Tree};

/// Number of reads of a status. Each pause is twice as long as the one before; their sum is the time that the
/// status announces.
const ASKS: u32 = 10;
/// Double words of targets in the table.
const TARGET_WORDS: usize = regs::TARGET_COUNT as usize / 2;

/// Reason why a device does not get, or lose, a `CacheID`.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
pub enum CacheIdFailure {
    /// There is no device with that number in the tree.
    #[error("no device at {0}: enumerate first")]
    NoDevice(Bdf),
    /// The function is a bridge, and only devices have a `CacheID`.
    #[error("{0} is a bridge: name a device below it")]
    Bridge(Bdf),
    /// A bridge on the way has no decoder, or no route table.
    #[error(
        "not all switches above {0} have registers of CacheIDs, and a root port has none: put the device below a switch of weft"
    )]
    NoRegisters(Bdf),
    /// Another device below one of the switches on the way has it.
    #[error(
        "CacheID {cache_id} leads to port {port} already: clear that of the device there first"
    )]
    Taken {
        /// The `CacheID` that was asked for.
        cache_id: u8,
        /// Number of the port that leads to the other device.
        port: u8,
    },
    /// A device has it that is below none of the switches on the way.
    #[error("a device below the switch at {switch} has CacheID {cache_id}: clear that first")]
    Elsewhere {
        /// The `CacheID` that was asked for.
        cache_id: u8,
        /// Upstream port of the switch above the other device.
        switch: Bdf,
    },
    /// The decoder of the named port refused the commit.
    #[error(
        "the decoder of {0} does not commit it: another port of that switch has this CacheID; \
         what was committed before is so again"
    )]
    Decoder(Bdf),
    /// A route table on the way refused the commit.
    #[error(
        "the switch does not commit its table: a device at another switch may have this CacheID \
         (clear that first), or {0} is a logical device, or its port has no PID (assign one); \
         what was committed before is so again"
    )]
    Table(Bdf),
    /// A register on the way read as all ones.
    #[error("a register on the way to {0} did not answer")]
    Lost(Bdf),
}

/// A switch on the way to a device: its upstream port, and the downstream port that leads there.
#[derive(Clone, Copy)]
struct Level {
    upstream: Bdf,
    downstream: Bdf,
    /// Number of the downstream port.
    port: u8,
    /// Address of the upstream bridge's component registers.
    table_block: u64,
    /// Address of the downstream bridge's component registers.
    decoder_block: u64,
}

/// Settings of one switch on the way: control of the decoder, and the table's targets.
#[derive(Clone, Copy, PartialEq, Eq)]
struct Program {
    control: u32,
    targets: [u32; TARGET_WORDS],
}

/// Addresses of a switch's two structures.
#[derive(Clone, Copy)]
struct At {
    table: u64,
    decoder: u64,
}

/// Old and new settings of one switch on the way.
struct Change {
    level: Level,
    at: At,
    old: Program,
    new: Program,
    /// Both structures have their last commit in force.
    is_committed: bool,
    /// A virtual switch: the switches above it need no settings.
    is_last: bool,
}

/// A target that leads to a cache.
struct Kept {
    target: CacheIdTarget,
    /// The port whose decoder assigns it, if the device is directly below.
    assigned_by: Option<Bdf>,
}

/// The decoder of a downstream port; control is 0 if it is not committed.
struct PortDecoder {
    number: u8,
    at: u64,
    control: u32,
}

impl Program {
    fn target(&self, cache_id: u8) -> [u8; 2] {
        let word = self.targets.get(usize::from(cache_id / 2)).copied().unwrap_or_default();
        let [a, b, c, d] = word.to_le_bytes();
        if cache_id.is_multiple_of(2) { [a, b] } else { [c, d] }
    }

    /// Port of the target for `cache_id`; `None` if that is not valid.
    fn port(&self, cache_id: u8) -> Option<u8> {
        let [low, port] = self.target(cache_id);
        (u16::from(low) & regs::VALID != 0).then_some(port)
    }

    fn set(&mut self, cache_id: u8, port: Option<u8>) {
        let shift = 16 * u32::from(cache_id % 2);
        let target = port.map_or(0, |port| u32::from(port) << 8 | u32::from(regs::VALID));
        if let Some(word) = self.targets.get_mut(usize::from(cache_id / 2)) {
            *word = (*word & !(0xFFFF << shift)) | target << shift;
        }
    }

    fn entries(&self) -> impl Iterator<Item = (u8, u8)> {
        (0..regs::TARGET_COUNT).filter_map(|id| Some((id, self.port(id)?)))
    }
}

/// The bridges above a function, the nearest last; `None` if there is no such function.
fn bridges_above(tree: &Tree, function: Bdf) -> Option<Vec<&Node>> {
    let mut path = tree.path(function);
    path.pop().filter(|node| node.below.is_none())?;
    Some(path)
}

impl Level {
    /// The level of a switch; `None` if one of its bridges has no component registers or port number.
    fn of(upstream: &Node, downstream: &Node) -> Option<Self> {
        Some(Self {
            upstream: upstream.bdf,
            downstream: downstream.bdf,
            port: downstream.port?,
            table_block: block(upstream)?,
            decoder_block: block(downstream)?,
        })
    }
}

/// Computes the new settings of each switch, the nearest first: `cache_id` leads to the device, and no `CacheID` that
/// did before.
fn plan(changes: &mut [Change], cache_id: Option<u8>) {
    let Some(first) = changes.first() else { return };
    let port = first.level.port;
    // The nearest switch knows which CacheIDs the device had; the same ones lead to it from those above.
    let had: Vec<u8> = first.old.entries().filter(|one| one.1 == port).map(|one| one.0).collect();
    for (distance, change) in changes.iter_mut().enumerate() {
        let Change { level: Level { port, .. }, new, .. } = change;
        for had in &had {
            // By another port it leads to another device, which keeps it.
            if new.port(*had) == Some(*port) {
                new.set(*had, None);
            }
        }
        if let Some(cache_id) = cache_id {
            new.set(cache_id, Some(*port));
        }
        let is_used = new.entries().any(|one| one.1 == *port);
        new.control = match cache_id {
            Some(cache_id) if distance == 0 => regs::ASSIGN | u32::from(cache_id) << regs::LOCAL,
            // Also without a CacheID for this device, while the port leads to others below.
            _ if distance > 0 && is_used => regs::FORWARD,
            _ => 0,
        };
    }
}

impl Scanner {
    /// Gives a device a `CacheID` in place of the one that it had, or takes that away.
    pub(super) fn set_cache_id(&mut self, device: Bdf, cache_id: Option<u8>) -> Done<()> {
        let done = self.program_device(device, cache_id, true)?;
        self.cache_id = Some(done.map(|changes| self.note_cache_ids(device, &changes, cache_id)));
        Ok(())
    }

    /// Queues the jobs that give all devices with a cache their `CacheID`s, or keep them.
    pub(super) fn find_caches(&mut self) {
        let (mut jobs, mut without) = (Vec::new(), Vec::new());
        let caches = |nodes: &[Node]| {
            let caches = nodes.iter().filter(|node| node.cache_control.is_some());
            caches.map(|node| node.bdf).collect::<Vec<_>>()
        };
        without.extend(caches(&self.tree.nodes)); // no port is above them
        let mut is_zero_free = true;
        for port in self.tree.iter() {
            // A port has one CacheID, so one function below it.
            let mut here = caches(port.nodes()).into_iter();
            if port.kind() != Some(PortKind::Root) {
                jobs.extend(here.next().map(Job::GiveCacheId));
            } else if is_zero_free && let Some(only) = here.next() {
                // No switch above sets its CacheID, so that its messages carry 0; a second one would carry it, too.
                is_zero_free = false;
                jobs.push(Job::SwitchCache(only, true));
            }
            without.extend(here);
        }
        for device in without {
            self.problem(device, ProblemKind::NoCacheId);
            jobs.push(Job::SwitchCache(device, false));
        }
        self.jobs.extend(jobs.into_iter().rev());
    }

    /// Gives a device with a cache the lowest free `CacheID`, if it has none, and enables its cache.
    pub(super) fn give_cache_id(&mut self, device: Bdf) -> Done<()> {
        let above = bridges_above(&self.tree, device).unwrap_or_default();
        let had = above.last().and_then(|port| port.cache_id);
        let has_it = |node: &Node, id: u8| {
            let at_root = id == 0 && node.kind() == Some(PortKind::Root);
            at_root && node.nodes().iter().any(|it| it.cache_control.is_some())
                || node.cache_ids.iter().any(|it| it.cache_id == id)
        };
        let is_taken = |id: &u8| self.tree.iter().any(|node| has_it(node, *id));
        let free = (0..regs::TARGET_COUNT).find(|id| !is_taken(id));
        // A new CacheID would mean to disable the cache, which loses its lines.
        if let Some(cache_id) = had.or(free)
            && let Ok(changes) = self.program_device(device, Some(cache_id), false)?
        {
            self.note_cache_ids(device, &changes, Some(cache_id));
            return Ok(());
        }
        self.switch_cache(device, false)?;
        self.problem(device, ProblemKind::NoCacheId);
        Ok(())
    }

    /// Enables or disables the cache of a device, if it has one; returns whether it was enabled.
    pub(super) fn switch_cache(&mut self, device: Bdf, on: bool) -> Done<bool> {
        let node = self.tree.get(device);
        let Some(at) = node.and_then(|node| node.cache_control) else { return Ok(false) };
        let at = at + cxl::device::CONTROL;
        let control = self.wire.read16(device, at)?;
        let was_on = control & cxl::device::CONTROL_CACHE != 0;
        if control == u16::MAX {
            return Ok(false); // the device has left
        }
        if was_on != on {
            self.wire.write16(device, at, control ^ cxl::device::CONTROL_CACHE)?;
        }
        Ok(was_on)
    }

    /// Records the committed settings in the tree.
    fn note_cache_ids(&mut self, device: Bdf, changes: &[Change], cache_id: Option<u8>) {
        for change in changes {
            if let Some(node) = self.tree.get_mut(change.level.upstream) {
                let target = |(cache_id, port)| CacheIdTarget { cache_id, port };
                node.cache_ids = change.new.entries().map(target).collect();
            }
        }
        let port = changes.first().map(|change| change.level.downstream);
        if let Some(node) = port.and_then(|port| self.tree.get_mut(port)) {
            node.cache_id = cache_id;
        }
        let is_over = |it: &crate::pci::tree::Problem| {
            it.bdf == device && it.kind == ProblemKind::NoCacheId && cache_id.is_some()
        };
        self.tree.problems.retain(|it| !is_over(it));
    }

    /// The switches above a device, the nearest first; `None` for a switch whose bridges have no registers.
    fn levels(&self, device: Bdf) -> Result<Vec<Option<Level>>, CacheIdFailure> {
        let Some(above) = bridges_above(&self.tree, device) else {
            // Functions of bus 0 are root ports, even before an enumeration has found them.
            let is_bridge = device.bus() == 0 || self.tree.get(device).is_some();
            let none = if is_bridge { CacheIdFailure::Bridge } else { CacheIdFailure::NoDevice };
            return Err(none(device));
        };
        // From the device up: downstream and upstream port of each switch; the root port is left over.
        let pairs = above.rchunks_exact(2);
        Ok(pairs.map(|pair| Level::of(pair.first()?, pair.last()?)).collect())
    }

    /// Programs all switches on the way so that a `CacheID` (or none) leads to a device. A switch with the right
    /// settings is skipped unless `anew`. If one refuses, those before it get their old settings back.
    fn program_device(
        &mut self,
        device: Bdf,
        cache_id: Option<u8>,
        anew: bool,
    ) -> Done<Result<Vec<Change>, CacheIdFailure>> {
        let mut changes = match self.read_levels(device)? {
            Ok(changes) => changes,
            Err(why) => return Ok(Err(why)),
        };
        if let Some(why) = cache_id.and_then(|cache_id| self.taken(&changes, cache_id)) {
            return Ok(Err(why));
        }
        plan(&mut changes, cache_id);
        // The device must not use its cache while its CacheID changes: answers to it would go astray.
        let is_same = changes.iter().all(|change| change.new == change.old && change.is_committed);
        let was_on = !is_same && self.switch_cache(device, false)?;
        if let Some(first) = changes.first().filter(|_| !is_same) {
            let had = first.old.entries().filter(|one| one.1 == first.level.port);
            self.moved_cache_ids.extend(had.map(|one| one.0).chain(cache_id));
        }
        for (number, change) in changes.iter().enumerate() {
            if !anew && change.is_committed && change.new == change.old {
                continue;
            }
            let failure = match self.program(change.at, change.new)? {
                [true, true] => continue,
                [true, false] => CacheIdFailure::Table(device),
                [false, _] => CacheIdFailure::Decoder(change.level.downstream),
            };
            // The farthest first, the failed one included: its decoder may have been committed already.
            for change in changes.iter().take(number + 1).rev() {
                self.program(change.at, change.old)?;
            }
            self.switch_cache(device, was_on)?;
            return Ok(Err(failure));
        }
        // A cache that was disabled is empty, so lines that the host knows under its CacheID are another cache's.
        if let Some(cache_id) = cache_id
            && !self.switch_cache(device, true)?
        {
            self.moved_cache_ids.insert(cache_id);
        }
        Ok(Ok(changes))
    }

    /// The failure if another device has the `CacheID`.
    fn taken(&self, changes: &[Change], cache_id: u8) -> Option<CacheIdFailure> {
        for change in changes {
            if let Some(port) = change.old.port(cache_id).filter(|port| *port != change.level.port)
            {
                return Some(CacheIdFailure::Taken { cache_id, port });
            }
        }
        let others = self.tree.iter().filter(|node| {
            changes.iter().all(|change| change.level.upstream != node.bdf)
                && node.cache_ids.iter().any(|it| it.cache_id == cache_id)
        });
        // The last one is nearest to the device: switches above it have the CacheID in their tables, too.
        let switch = others.last()?.bdf;
        Some(CacheIdFailure::Elsewhere { cache_id, switch })
    }

    /// Reads the settings of the switches above a device.
    fn read_levels(&mut self, device: Bdf) -> Done<Result<Vec<Change>, CacheIdFailure>> {
        let levels = match self.levels(device) {
            Ok(levels) => levels,
            Err(why) => return Ok(Err(why)),
        };
        let mut changes: Vec<Change> = Vec::new();
        for level in levels {
            let Some(level) = level else { return Ok(Err(CacheIdFailure::NoRegisters(device))) };
            let change = match self.read_level(device, level)? {
                Ok(change) => change,
                Err(why) => return Ok(Err(why)),
            };
            let is_last = change.is_last;
            changes.push(change);
            if is_last {
                break;
            }
        }
        Ok(if changes.is_empty() { Err(CacheIdFailure::NoRegisters(device)) } else { Ok(changes) })
    }

    fn read_level(&mut self, device: Bdf, level: Level) -> Done<Result<Change, CacheIdFailure>> {
        // All ones would otherwise read as an array without structures, and be reported as missing registers.
        if self.wire.load(level.table_block + PRIMARY)? == u32::MAX {
            return Ok(Err(CacheIdFailure::Lost(device)));
        }
        let table = self.find_structure(level.table_block, id::CACHE_ID_TABLE)?;
        let decoder = self.find_structure(level.decoder_block, id::CACHE_ID_DECODER)?;
        let (Some(table), Some(decoder)) = (table, decoder) else {
            return Ok(Err(CacheIdFailure::NoRegisters(device)));
        };
        let is_last = self.find_structure(level.table_block, id::HDM)?.is_none();
        let control = self.wire.load(decoder + u64::from(regs::CONTROL))?;
        let mut old =
            Program { control: control & !regs::DECODER_COMMIT, targets: [0; TARGET_WORDS] };
        self.read_targets(table, &mut old)?;
        let mut is_committed = true;
        for structure in [table, decoder] {
            let status = self.wire.load(structure + u64::from(regs::STATUS))?;
            is_committed &= status != u32::MAX && status & regs::COMMITTED != 0;
        }
        if control == u32::MAX || old.targets.contains(&u32::MAX) {
            return Ok(Err(CacheIdFailure::Lost(device)));
        }
        let at = At { table, decoder };
        Ok(Ok(Change { level, at, old, new: old, is_committed, is_last }))
    }

    /// Removes targets from the route table of the upstream port at `bdf` that lead to no cache with that `CacheID`.
    /// Switches below have been handled before.
    pub(super) fn keep_cache_ids(&mut self, bdf: Bdf) -> Done<()> {
        let node = self.tree.get(bdf);
        let found = node.and_then(|node| Some((block(node)?, node.nodes().to_vec())));
        let Some((block, below)) = found else { return Ok(()) };
        let kept = match self.find_structure(block, id::CACHE_ID_TABLE)? {
            Some(table) => self.kept_at(table, &below)?,
            None => Vec::new(),
        };
        for port in &below {
            if let Some(node) = self.tree.get_mut(port.bdf) {
                let own = kept.iter().find(|it| it.assigned_by == Some(port.bdf));
                node.cache_id = own.map(|it| it.target.cache_id);
            }
        }
        if let Some(node) = self.tree.get_mut(bdf) {
            node.cache_ids = kept.into_iter().map(|it| it.target).collect();
        }
        Ok(())
    }

    fn kept_at(&mut self, table: u64, below: &[Node]) -> Done<Vec<Kept>> {
        let status = self.wire.load(table + u64::from(regs::STATUS))?;
        let mut new = Program { control: 0, targets: [0; TARGET_WORDS] };
        if status == u32::MAX || status & regs::COMMITTED == 0 {
            return Ok(Vec::new());
        }
        self.read_targets(table, &mut new)?;
        let old = new.targets;
        let (mut kept, mut idle) = (Vec::new(), Vec::new());
        // Decoders cost accesses; with an empty table there is nothing that they could confirm.
        let with_any = below.iter().filter(|_| new.entries().next().is_some());
        for port in with_any {
            let Some(decoder) = self.decoder_of(port)? else { continue };
            let [.., local, _] = decoder.control.to_le_bytes();
            let is_set = |bit: u32| decoder.control & bit != 0;
            let assigned =
                (is_set(regs::ASSIGN) && !port.nodes().is_empty()).then_some(local & 0xF);
            let is_below = |id: u8| {
                port.nodes().iter().any(|node| node.cache_ids.iter().any(|it| it.cache_id == id))
            };
            let here = new.entries().filter(|one| one.1 == decoder.number);
            let had = kept.len();
            kept.extend(here.filter_map(|(cache_id, port_number)| {
                let is_own = assigned == Some(cache_id);
                let leads = is_own || is_set(regs::FORWARD) && is_below(cache_id);
                let target = CacheIdTarget { cache_id, port: port_number };
                leads.then_some(Kept { target, assigned_by: is_own.then_some(port.bdf) })
            }));
            // An idle decoder would keep its CacheID from all other ports of the switch.
            idle.extend((kept.len() == had && is_set(regs::ASSIGN)).then_some(decoder.at));
        }
        kept.sort_by_key(|it| it.target.cache_id);
        let listed: Vec<u8> = new.entries().map(|one| one.0).collect();
        for cache_id in listed {
            if !kept.iter().any(|it| it.target.cache_id == cache_id) {
                new.set(cache_id, None);
                self.moved_cache_ids.insert(cache_id);
            }
        }
        // The table before the decoders: a table in force must not have targets that a decoder does not let through.
        if new.targets != old && !self.program_table(table, new.targets)? {
            return Ok(Vec::new());
        }
        for decoder in idle {
            self.program_decoder(decoder, 0)?;
        }
        Ok(kept)
    }

    fn decoder_of(&mut self, port: &Node) -> Done<Option<PortDecoder>> {
        let (Some(at), Some(number)) = (block(port), port.port) else { return Ok(None) };
        let Some(at) = self.find_structure(at, id::CACHE_ID_DECODER)? else { return Ok(None) };
        let control = self.wire.load(at + u64::from(regs::CONTROL))?;
        let status = self.wire.load(at + u64::from(regs::STATUS))?;
        let is_committed = status != u32::MAX && status & regs::COMMITTED != 0;
        Ok(Some(PortDecoder { number, at, control: if is_committed { control } else { 0 } }))
    }

    fn read_targets(&mut self, table: u64, into: &mut Program) -> Done<()> {
        for (word, at) in
            into.targets.iter_mut().zip((table + u64::from(regs::TARGETS)..).step_by(4))
        {
            *word = self.wire.load(at)?;
        }
        Ok(())
    }

    /// Commits the decoder and then, if that succeeded, the table; returns the success of each.
    fn program(&mut self, at: At, program: Program) -> Done<[bool; 2]> {
        if !self.program_decoder(at.decoder, program.control)? {
            return Ok([false, false]);
        }
        Ok([true, self.program_table(at.table, program.targets)?])
    }

    fn program_decoder(&mut self, decoder: u64, control: u32) -> Done<bool> {
        let at = decoder + u64::from(regs::CONTROL);
        // Commit has to go from 0 to 1: a decoder that was committed before has it set.
        self.wire.store(at, control)?;
        self.wire.store(at, control | regs::DECODER_COMMIT)?;
        self.is_committed(decoder)
    }

    fn program_table(&mut self, table: u64, targets: [u32; TARGET_WORDS]) -> Done<bool> {
        for (at, word) in (table + u64::from(regs::TARGETS)..).step_by(4).zip(targets) {
            self.wire.store(at, word)?;
        }
        let control = table + u64::from(regs::CONTROL);
        // From 0 to 1, as in a decoder.
        self.wire.store(control, 0)?;
        self.wire.store(control, regs::TABLE_COMMIT)?;
        self.is_committed(table)
    }

    /// Waits for the end of a commit, for as long as the structure's status announces; returns whether it succeeded.
    fn is_committed(&mut self, structure: u64) -> Done<bool> {
        for ask in 0..=ASKS {
            let status = self.wire.load(structure + u64::from(regs::STATUS))?;
            if status == u32::MAX || status & regs::ERROR != 0 {
                return Ok(false);
            }
            if status & regs::COMMITTED != 0 {
                return Ok(true);
            }
            let (base, scale) = (u64::from(status >> 12 & 0xF), status >> 8 & 0xF);
            // Scale 0 is 1 µs and each step ten times as much; codes above 7 (10 s) are reserved.
            let time_ns = base * 1_000 * 10_u64.pow(scale.min(7));
            self.wire.wait((time_ns << ask >> ASKS).max(1))?;
        }
        Ok(false)
    }
}
