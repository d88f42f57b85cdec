//! Host-managed device memory: an address for each device, and the decoders that lead there.
//!
//! Works on the complete tree: addresses first, then registers of devices and of switches' upstream ports.
//! Committed decoders are recorded in the nodes. Addresses are multiples of 256 MiB.
//!
//! Source: CXL 3.1 sections 8.1.3, 8.2.4.20; docs/spec/cxl-fabric.md "HDM decoders".

use weft_parsers::fabric::Bdf;

use super::{Job, Scanner};
use crate::pci::bridge::Window;
use crate::pci::component::hdm::{HPA_END, UNIT, regs};
use crate::pci::component::{PRIMARY, array_entry, array_len, id};
use crate::pci::cxl::{BlockId, device};
use crate::pci::enumerate::wire::Done;
use crate::pci::express::PortKind;
use crate::pci::space::{high32, low32};
use crate::pci::tree::{Decoded, DeviceMemory, LeadsTo, Node, Problem, ProblemKind};

/// Contents of a decoder, wanted or read.
#[derive(Clone, Copy, PartialEq, Eq)]
struct Wanted {
    base: u64,
    size: u64,
    /// DPA skip (device), or target list (switch).
    target: u64,
    /// Control register without Commit and its results.
    control: u32,
}

/// First address in `within` with `size` bytes free of all windows in `taken`.
fn first_free(within: Window, size: u64, taken: &[Window]) -> Option<u64> {
    let mut at = within.base.checked_next_multiple_of(UNIT)?;
    loop {
        let last = at.checked_add(size.checked_sub(1)?)?;
        if last > within.limit || last >= HPA_END {
            return None;
        }
        let Some(hit) = taken.iter().find(|it| it.base <= last && at <= it.limit) else {
            return Some(at);
        };
        // Each window is passed at most once, so this ends.
        at = hit.limit.checked_add(1)?.checked_next_multiple_of(UNIT)?;
    }
}

/// Address of a node's component registers; `None` if it has none, or their BAR has no address.
pub(super) fn block(node: &Node) -> Option<u64> {
    let block = node.blocks.iter().find(|block| block.id == BlockId::Component as u8)?;
    let bar = node.bars.iter().find(|bar| bar.index == block.bar)?;
    bar.address?.checked_add(block.offset)
}

/// Collects memory of all devices below that decode it: first address and size.
fn places(nodes: &[Node], into: &mut Vec<(u64, u64)>) {
    for node in nodes {
        if let Some(memory) = node.memory
            && let Some(base) = memory.base
            && node.is_decoded()
        {
            into.push((base, memory.size));
        }
        places(node.nodes(), into);
    }
}

fn for_each(nodes: &mut [Node], each: &mut dyn FnMut(&mut Node)) {
    for node in nodes {
        each(node);
        if let Some(below) = &mut node.below {
            for_each(&mut below.nodes, each);
        }
    }
}

impl Scanner {
    /// Reads size and wanted address of a device's host-managed memory, from its DVSEC at `at`.
    pub(super) fn read_memory(&mut self, node: &mut Node, at: u16) -> Done<()> {
        let mut halves = [0; 4];
        for (value, reg) in halves.iter_mut().zip((at + device::SIZE..).step_by(4)) {
            *value = self.wire.read(node.bdf, reg)?;
        }
        let [size_high, size_low, base_high, base_low] = halves;
        let join = |high: u32, low: u32| u64::from(high) << 32 | u64::from(low & 0xF000_0000);
        let (size, wanted) = (join(size_high, size_low), join(base_high, base_low));
        if size > 0 {
            let wanted = (wanted > 0).then_some(wanted);
            node.memory = Some(DeviceMemory { control: at, size, wanted, base: None });
        }
        Ok(())
    }

    /// Gives every device memory without address one, and queues the jobs that program the decoders.
    pub(super) fn place_memory(&mut self) {
        let Self { tree, host, memory, .. } = self;
        // Those problems may be over now; the jobs below report them again.
        tree.problems.retain(|problem| {
            !problem.kind.is_of_memory() && problem.kind != ProblemKind::NoCacheId
        });
        let apertures = [host.apertures.mem, host.apertures.pref].into_iter().flatten();
        let mut taken: Vec<Window> = memory.iter().copied().chain(apertures).collect();
        // Interrupt messages are memory writes: from their address to the end of that MiB is kept free.
        taken.extend(host.msi.map(|at| Window { base: at, limit: at | 0xF_FFFF }));
        let window = |base: u64, size: u64| Window { base, limit: base.saturating_add(size - 1) };
        for_each(&mut tree.nodes, &mut |node| {
            // Committed memory keeps its address: the host may be using it.
            if let Some(memory) = node.memory.filter(|_| node.is_decoded()) {
                taken.extend(memory.base.map(|base| window(base, memory.size)));
            }
        });
        let mut new: Vec<(bool, u64, Bdf)> = Vec::new();
        for_each(&mut tree.nodes, &mut |node| {
            if let (Some(memory), Some(_), false) = (node.memory, block(node), node.is_decoded()) {
                new.push((memory.wanted.is_none(), memory.size, node.bdf));
            }
        });
        // Memory that asks for an address first, so that memory without one is not in its way; small before large,
        // so that one large device does not displace many small ones.
        new.sort_unstable();
        let mut problems = Vec::new();
        for (_, _, bdf) in &new {
            let memory = tree.get_mut(*bdf).and_then(|node| node.memory.as_mut());
            let Some(DeviceMemory { size, wanted, base, .. }) = memory else { continue };
            *base = match (*wanted, host.hdm) {
                (Some(wanted), _) => first_free(window(wanted, *size), *size, &taken),
                (None, None) => None,
                (None, Some(within)) => {
                    // The fabric window is reached through FAST, so local memory without a wish must stay out of
                    // it.
                    let all: Vec<Window> = taken.iter().copied().chain(host.fabric).collect();
                    first_free(within, *size, &all)
                }
            };
            if let Some(base) = *base {
                taken.push(window(base, *size));
            } else {
                let kind = ProblemKind::NoPlace { wanted: *wanted, size: *size };
                problems.push(Problem { bdf: *bdf, kind });
            }
        }
        let mut jobs: Vec<Job> = new.into_iter().map(|(.., bdf)| Job::Memory(bdf)).collect();
        let switches = tree.iter().filter(|node| node.kind() == Some(PortKind::Upstream));
        let switches: Vec<Bdf> =
            switches.filter(|it| block(it).is_some()).map(|it| it.bdf).collect();
        jobs.extend(switches.iter().map(|bdf| Job::Switch(*bdf)));
        // Which CacheIDs a switch forwards depends on the switches below it: the lowest ones first.
        jobs.extend(switches.iter().rev().map(|bdf| Job::KeepCacheIds(*bdf)));
        jobs.push(Job::Caches);
        self.problems.extend(problems);
        self.jobs.extend(jobs.into_iter().rev());
    }

    /// Programs a device to decode its memory at the address it was given, or to decode nothing.
    pub(super) fn decode_memory(&mut self, bdf: Bdf) -> Done<()> {
        let node = self.tree.get(bdf);
        let Some((at, memory)) = node.and_then(|node| Some((block(node)?, node.memory?))) else {
            return Ok(());
        };
        let flags = regs::HOST_ONLY | regs::UIO;
        let wanted =
            memory.base.map(|base| Wanted { base, size: memory.size, target: 0, control: flags });
        let decoded = match self.find_structure(at, id::HDM)? {
            Some(hdm) => {
                // Decoders before HDM Decoder Enable, and both before Mem_Enable: the device must not decode old
                // settings.
                let done = self.set_decoders(hdm, wanted.as_slice(), flags)?;
                let control = u64::from(regs::CONTROL);
                let enable = if done.is_empty() { 0 } else { regs::CONTROL_ENABLE };
                self.wire.store(hdm + control, enable)?;
                done
            }
            None => Vec::new(),
        };
        let control = memory.control + device::CONTROL;
        let now = self.wire.read16(bdf, control)? & !device::CONTROL_MEM;
        let on = if decoded.is_empty() { 0 } else { device::CONTROL_MEM };
        self.wire.write16(bdf, control, now | on)?;
        if decoded.is_empty() && memory.base.is_some() {
            self.problem(bdf, ProblemKind::Decoders);
        }
        self.note(bdf, wanted.as_slice(), decoded.len(), |_| LeadsTo::Memory { dpa: 0 });
        Ok(())
    }

    /// Programs the upstream port of a switch to lead to all memory below it.
    pub(super) fn route_memory(&mut self, bdf: Bdf) -> Done<()> {
        let Some((at, below)) =
            self.tree.get(bdf).and_then(|node| Some((block(node)?, node.nodes().to_vec())))
        else {
            return Ok(());
        };
        let mut wanted = Vec::new();
        for port in &below {
            let mut found = Vec::new();
            places(port.nodes(), &mut found);
            let (Some(number), false) = (port.port, found.is_empty()) else { continue };
            wanted.extend(found.into_iter().map(|(base, size)| Wanted {
                base,
                size,
                target: number.into(),
                control: regs::HOST_ONLY,
            }));
        }
        // Decoders must be committed in ascending order of addresses (8.2.4.20.12).
        wanted.sort_by_key(|one| one.base);
        // An upstream port without decoders is that of a virtual switch, where LDST leads to the memory.
        let Some(hdm) = self.find_structure(at, id::HDM)? else { return Ok(()) };
        // UIO takes the same path, if the switch's capability offers it.
        let cap = self.wire.load(hdm + u64::from(regs::CAP))?;
        let uio = if cap & regs::CAP_UIO == 0 { 0 } else { regs::UIO };
        for one in &mut wanted {
            one.control |= uio;
        }
        let done = self.set_decoders(hdm, &wanted, regs::HOST_ONLY | uio)?;
        if done.len() < wanted.len() {
            self.problem(bdf, ProblemKind::Decoders);
        }
        let port = |one: &Wanted| LeadsTo::Port { number: one.target.to_le_bytes()[0] };
        self.note(bdf, &wanted, done.len(), port);
        Ok(())
    }

    /// Records the decoders of a node: `wanted`, of which the first `committed` are in force.
    fn note(&mut self, bdf: Bdf, wanted: &[Wanted], committed: usize, to: fn(&Wanted) -> LeadsTo) {
        let Some(node) = self.tree.get_mut(bdf) else { return };
        let one = |(number, one): (usize, &Wanted)| Decoded {
            hpa: Window { base: one.base, limit: one.base + (one.size - 1) },
            to: to(one),
            committed: number < committed,
            reached: None,
        };
        node.decoders = wanted.iter().enumerate().map(one).collect();
    }

    /// Address of a structure in a block of component registers, by its id; `None` if the block has none.
    pub(super) fn find_structure(&mut self, block: u64, id: u16) -> Done<Option<u64>> {
        let array = block.saturating_add(PRIMARY);
        let count = array_len(self.wire.load(array)?).unwrap_or(0);
        for entry in 1..=u64::from(count) {
            let (found, at) = array_entry(self.wire.load(array + 4 * entry)?);
            if found == id {
                return Ok(Some(array + u64::from(at)));
            }
        }
        Ok(None)
    }

    /// Programs the decoders at `hdm` to be exactly `wanted`. Decoders that match already are left alone; `flags`
    /// are the bits of control that count for this. Returns the committed ones.
    fn set_decoders(&mut self, hdm: u64, wanted: &[Wanted], flags: u32) -> Done<Vec<Wanted>> {
        let Some(count) = regs::count(self.wire.load(hdm + u64::from(regs::CAP))?) else {
            return Ok(Vec::new());
        };
        let at = |number: u8, reg: u16| hdm + u64::from(regs::decoder(number) + reg);
        let mut controls = Vec::new();
        let mut same = 0;
        for number in 0..count {
            // Committed decoders are the first ones, so the first uncommitted one ends the list.
            let control = self.wire.load(at(number, regs::DECODER))?;
            if control & regs::COMMITTED == 0 {
                break;
            }
            // Only an unbroken run of equal decoders from the first one on can stay, as only the last one can be
            // released.
            let kept = wanted.get(usize::from(number)).filter(|_| same == number);
            if let Some(one) = kept
                && self.decoder(&at, number, control & (flags | regs::GRANULARITY | regs::WAYS))?
                    == *one
            {
                same = number + 1;
            }
            controls.push((number, control));
        }
        for (number, control) in controls.into_iter().rev().filter(|(number, _)| *number >= same) {
            if control & regs::LOCK != 0 {
                let kept = wanted.get(..usize::from(same)).unwrap_or_default();
                return Ok(kept.to_vec()); // a locked decoder stays until a reset
            }
            self.wire.store(at(number, regs::DECODER), 0)?;
        }
        let mut done = wanted.get(..usize::from(same)).unwrap_or_default().to_vec();
        for (number, one) in (0..count).zip(wanted).skip(same.into()) {
            for (reg, value) in
                [(regs::BASE, one.base), (regs::SIZE, one.size), (regs::TARGET, one.target)]
            {
                self.wire.store(at(number, reg), low32(value))?;
                self.wire.store(at(number, reg + 4), high32(value))?;
            }
            self.wire.store(at(number, regs::DECODER), one.control | regs::COMMIT)?;
            // Without this one the next cannot be committed either.
            if self.wire.load(at(number, regs::DECODER))? & regs::COMMITTED == 0 {
                break;
            }
            done.push(*one);
        }
        Ok(done)
    }

    /// Contents of a committed decoder.
    fn decoder(&mut self, at: &dyn Fn(u8, u16) -> u64, number: u8, control: u32) -> Done<Wanted> {
        let mut values = [0; 3];
        for (value, reg) in values.iter_mut().zip([regs::BASE, regs::SIZE, regs::TARGET]) {
            let low = self.wire.load(at(number, reg))?;
            *value = u64::from(self.wire.load(at(number, reg + 4))?) << 32 | u64::from(low);
        }
        let [base, size, target] = values;
        Ok(Wanted { base, size, target, control })
    }
}
