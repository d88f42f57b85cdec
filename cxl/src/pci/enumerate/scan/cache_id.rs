//! Giving a device a `CacheID`: the decoder of its port, and the route table above that.
//!
//! Shape: the tree, a device and its `CacheID` -> registers by [`super::super::wire::Wire`] -> [`CacheIdFailure`], or the
//! table in the node of the upstream port.
//! Units: bytes, nanoseconds.
//! Source: CXL 3.1 sections 8.2.4.28, 8.2.4.29; docs/spec/wire-formats.md §3.11.

use weft_parsers::fabric::Bdf;

use super::Scanner;
use super::hdm::block;
use crate::pci::component::cache_id::regs;
use crate::pci::component::{PRIMARY, id};
use crate::pci::enumerate::wire::Done;
use crate::pci::regs::express;
use crate::pci::tree::{CacheIdTarget, Node};

/// Times that a status is read, each pause twice as long as the one before; together they are the time that it says.
const ASKS: u32 = 10;
/// Double words of targets.
const TARGET_WORDS: usize = regs::TARGET_COUNT as usize / 2;

/// Why a device does not get a `CacheID`, or keeps it.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
pub enum CacheIdFailure {
    /// There is no such device.
    #[error("no device at {0}: enumerate first")]
    NoDevice(Bdf),
    /// Only devices have one.
    #[error("{0} is a bridge: name a device below it")]
    Bridge(Bdf),
    /// It is not directly below a bridge with a decoder, which is below one with a route table.
    #[error(
        "{0} is not below a virtual link: only the switch at the other end of one has registers of \
         CacheIDs, so bind a device at another switch than the host's, and not below an HBR switch"
    )]
    NoRegisters(Bdf),
    /// Another device has it.
    #[error(
        "CacheID {cache_id} leads to port {port} already: clear that of the device there first"
    )]
    Taken {
        /// The `CacheID`.
        cache_id: u8,
        /// Number of the port.
        port: u8,
    },
    /// The decoder does not commit it.
    #[error(
        "the decoder of {0} does not commit it: another port of that switch has this CacheID; \
         what was committed before is so again"
    )]
    Decoder(Bdf),
    /// The table is not committed.
    #[error(
        "the switch does not commit its table: a device at another switch may have this CacheID \
         (clear that first), or {0} is a logical device, or its port has no PID (assign one); \
         what was committed before is so again"
    )]
    Table(Bdf),
    /// A register was not answered.
    #[error("a register on the way to {0} did not answer")]
    Lost(Bdf),
}

/// Where the registers are.
#[derive(Clone, Copy)]
struct Place {
    upstream: Bdf,
    downstream: Bdf,
    /// Offset of the downstream bridge's PCI Express capability.
    express: u16,
    /// Blocks of component registers: of the upstream bridge, and of the downstream one.
    blocks: (u64, u64),
}

/// What is written: control of the decoder, and the targets.
#[derive(Clone, Copy)]
struct Program {
    control: u32,
    targets: [u32; TARGET_WORDS],
}

/// Addresses of both structures.
#[derive(Clone, Copy)]
struct At {
    table: u64,
    decoder: u64,
}

impl Program {
    fn target(&self, cache_id: u8) -> [u8; 2] {
        let word = self.targets.get(usize::from(cache_id / 2)).copied().unwrap_or_default();
        let [a, b, c, d] = word.to_le_bytes();
        if cache_id.is_multiple_of(2) { [a, b] } else { [c, d] }
    }

    /// The port of a valid target.
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

/// The two bridges above a function, the nearest last; `None` where there is no such function.
fn bridges_above<'a>(
    nodes: &'a [Node],
    function: Bdf,
    above: [Option<&'a Node>; 2],
) -> Option<[Option<&'a Node>; 2]> {
    for node in nodes {
        if node.bdf == function {
            return node.below.is_none().then_some(above);
        }
        let [_, last] = above;
        if let Some(found) = bridges_above(node.nodes(), function, [last, Some(node)]) {
            return Some(found);
        }
    }
    None
}

impl Place {
    /// Of a device below these bridges; `None` where they have no registers.
    fn of([upstream, downstream]: [Option<&Node>; 2]) -> Option<Self> {
        let (upstream, downstream) = (upstream?, downstream?);
        let blocks = (block(upstream)?, block(downstream)?);
        let (_, express) = downstream.express?;
        Some(Self { upstream: upstream.bdf, downstream: downstream.bdf, express, blocks })
    }
}

impl Scanner {
    /// Gives a device a `CacheID`, in place of the one that it had, or none any more.
    pub(super) fn set_cache_id(&mut self, device: Bdf, cache_id: Option<u8>) -> Done<()> {
        let above = bridges_above(&self.tree.nodes, device, [None, None]);
        // Functions of bus 0 are root ports.
        let is_bridge = device.bus() == 0 || self.tree.get(device).is_some();
        let none = if is_bridge { CacheIdFailure::Bridge } else { CacheIdFailure::NoDevice };
        let place = above
            .ok_or_else(|| none(device))
            .and_then(|above| Place::of(above).ok_or(CacheIdFailure::NoRegisters(device)));
        let done = match place {
            Ok(place) => self.program_at(device, place, cache_id)?.map(|program| (place, program)),
            Err(why) => Err(why),
        };
        self.cache_id = Some(done.map(|(place, program)| {
            let target = |(cache_id, port)| CacheIdTarget { cache_id, port };
            if let Some(node) = self.tree.get_mut(place.upstream) {
                node.cache_ids = program.entries().map(target).collect();
            }
        }));
        Ok(())
    }

    /// Looks at the route table of the upstream port at `bdf`, with its registers at `block`: takes out what leads to nobody who
    /// has that `CacheID` any more.
    pub(super) fn keep_cache_ids(&mut self, bdf: Bdf, block: u64, below: &[Node]) -> Done<()> {
        let kept = match self.find_structure(block, id::CACHE_ID_TABLE)? {
            Some(table) => self.kept_at(table, below)?,
            None => Vec::new(),
        };
        if let Some(node) = self.tree.get_mut(bdf) {
            node.cache_ids = kept;
        }
        Ok(())
    }

    fn kept_at(&mut self, table: u64, below: &[Node]) -> Done<Vec<CacheIdTarget>> {
        let status = self.wire.load(table + u64::from(regs::STATUS))?;
        let mut new = Program { control: 0, targets: [0; TARGET_WORDS] };
        if status == u32::MAX || status & regs::COMMITTED == 0 {
            return Ok(Vec::new());
        }
        self.read_targets(table, &mut new)?;
        let old = new.targets;
        let mut assigned = Vec::new();
        for port in
            below.iter().filter(|port| new.entries().next().is_some() && !port.nodes().is_empty())
        {
            assigned.extend(self.assigned_at(port)?);
        }
        let lost: Vec<u8> =
            new.entries().filter(|one| !assigned.contains(one)).map(|one| one.0).collect();
        for cache_id in lost {
            new.set(cache_id, None);
        }
        if new.targets != old && !self.program_table(table, new.targets)? {
            return Ok(Vec::new());
        }
        Ok(new.entries().map(|(cache_id, port)| CacheIdTarget { cache_id, port }).collect())
    }

    /// The `CacheID` that a port assigns, and the port's number.
    fn assigned_at(&mut self, port: &Node) -> Done<Option<(u8, u8)>> {
        let (Some(at), Some((_, express))) = (block(port), port.express) else { return Ok(None) };
        let Some(decoder) = self.find_structure(at, id::CACHE_ID_DECODER)? else { return Ok(None) };
        let [.., number] = self.wire.read(port.bdf, express + express::LINK_CAP)?.to_le_bytes();
        let control = self.wire.load(decoder + u64::from(regs::CONTROL))?;
        let status = self.wire.load(decoder + u64::from(regs::STATUS))?;
        let is_set =
            status != u32::MAX && status & regs::COMMITTED != 0 && control & regs::ASSIGN != 0;
        let [.., local, _] = control.to_le_bytes();
        Ok(is_set.then_some((local & 0xF, number)))
    }

    fn read_targets(&mut self, table: u64, into: &mut Program) -> Done<()> {
        for (word, at) in
            into.targets.iter_mut().zip((table + u64::from(regs::TARGETS)..).step_by(4))
        {
            *word = self.wire.load(at)?;
        }
        Ok(())
    }

    fn program_at(
        &mut self,
        device: Bdf,
        place: Place,
        cache_id: Option<u8>,
    ) -> Done<Result<Program, CacheIdFailure>> {
        let (upstream, downstream) = place.blocks;
        if self.wire.load(upstream + PRIMARY)? == u32::MAX {
            return Ok(Err(CacheIdFailure::Lost(device)));
        }
        let table = self.find_structure(upstream, id::CACHE_ID_TABLE)?;
        let decoder = self.find_structure(downstream, id::CACHE_ID_DECODER)?;
        let (Some(table), Some(decoder)) = (table, decoder) else {
            return Ok(Err(CacheIdFailure::NoRegisters(device)));
        };
        let at = At { table, decoder };
        let link = self.wire.read(place.downstream, place.express + express::LINK_CAP)?;
        let control = self.wire.load(at.decoder + u64::from(regs::CONTROL))?;
        let mut old =
            Program { control: control & !regs::DECODER_COMMIT, targets: [0; TARGET_WORDS] };
        self.read_targets(table, &mut old)?;
        if [link, control].contains(&u32::MAX) || old.targets.contains(&u32::MAX) {
            return Ok(Err(CacheIdFailure::Lost(device)));
        }
        let [.., port] = link.to_le_bytes();
        if let Some(cache_id) = cache_id
            && let Some(port) = old.port(cache_id).filter(|other| *other != port)
        {
            return Ok(Err(CacheIdFailure::Taken { cache_id, port }));
        }
        let local = cache_id.map(|id| regs::ASSIGN | u32::from(id) << regs::LOCAL);
        let mut new = Program { control: local.unwrap_or(0), ..old };
        for (had, _) in old.entries().filter(|one| one.1 == port) {
            new.set(had, None);
        }
        if let Some(cache_id) = cache_id {
            new.set(cache_id, Some(port));
        }
        let failure = match self.program(at, new)? {
            [true, true] => return Ok(Ok(new)),
            [true, false] => CacheIdFailure::Table(device),
            [false, _] => CacheIdFailure::Decoder(place.downstream),
        };
        self.program(at, old)?;
        Ok(Err(failure))
    }

    /// Commits the decoder, and the table if that is committed; whether each is.
    fn program(&mut self, at: At, program: Program) -> Done<[bool; 2]> {
        let control = at.decoder + u64::from(regs::CONTROL);
        self.wire.store(control, program.control)?;
        self.wire.store(control, program.control | regs::DECODER_COMMIT)?;
        if !self.is_committed(at.decoder)? {
            return Ok([false, false]);
        }
        Ok([true, self.program_table(at.table, program.targets)?])
    }

    fn program_table(&mut self, table: u64, targets: [u32; TARGET_WORDS]) -> Done<bool> {
        for (at, word) in (table + u64::from(regs::TARGETS)..).step_by(4).zip(targets) {
            self.wire.store(at, word)?;
        }
        let control = table + u64::from(regs::CONTROL);
        self.wire.store(control, 0)?;
        self.wire.store(control, regs::TABLE_COMMIT)?;
        self.is_committed(table)
    }

    /// Waits for the end of a commit, as long as the structure says that it may take.
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
            let time_ns = base * 1_000 * 10_u64.pow(scale.min(7));
            self.wire.wait((time_ns << ask >> ASKS).max(1))?;
        }
        Ok(false)
    }
}
