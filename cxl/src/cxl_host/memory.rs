//! A host's memory: the target of devices' reads and writes, and of peers' UIO requests. [`HostMemory`] has ranges of
//! addresses, each a [`Memory`]; it is a [`Target`], and the memory of a fabric memory engine.
//!
//! Source: docs/spec/cxl-fabric.md "Fabric memory transfers"; CXL 3.1 section 7.7.3.1.

use std::collections::BTreeMap;

use weft_parsers::fabric::{Hpa, Pid};

use crate::completer::Target;
use crate::fabric_mem;
use crate::gfd::memory::Memory;
use crate::pci::bridge::Window;

/// A host's memory: disjoint ranges of addresses.
#[derive(Debug, Default)]
pub struct HostMemory {
    ranges: BTreeMap<u64, Memory>,
}

/// Why a range of memory cannot be added: it overlaps another, or ends beyond 64 bits.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
#[error("{len:#x} bytes at {base} overlap other memory, or end beyond 64 bits")]
pub struct NoPlace {
    pub base: Hpa,
    pub len: u64,
}

impl HostMemory {
    /// Its ranges of addresses.
    #[must_use]
    pub(super) fn windows(&self) -> Vec<Window> {
        let window = |(base, memory): (&u64, &Memory)| Window {
            base: *base,
            limit: base.saturating_add(memory.size().saturating_sub(1)),
        };
        self.ranges.iter().map(window).collect()
    }

    /// Adds `memory` from `base` on.
    ///
    /// # Errors
    /// [`NoPlace`]; nothing is added then.
    pub fn add(&mut self, base: Hpa, memory: Memory) -> Result<(), NoPlace> {
        let len = memory.size();
        let refused = NoPlace { base, len };
        let end = base.0.checked_add(len).ok_or(refused)?;
        // Ranges are disjoint, so only the last one that begins in front of the end can overlap.
        let before = self.ranges.range(..end).next_back();
        if before.is_some_and(|(at, other)| at + other.size() > base.0) {
            return Err(refused);
        }
        self.ranges.insert(base.0, memory);
        Ok(())
    }

    /// First address of the range that contains all of `len` bytes at `addr`, and the offset in it.
    fn range(&self, addr: u64, len: u64) -> Option<(u64, u64)> {
        let (&base, memory) = self.ranges.range(..=addr).next_back()?;
        let offset = addr - base;
        (offset.checked_add(len)? <= memory.size()).then_some((base, offset))
    }
}

impl Target for HostMemory {
    fn holds(&self, addr: u64, len: u64) -> bool {
        self.range(addr, len).is_some()
    }

    fn read(&self, addr: u64, into: &mut [u8]) -> bool {
        let place = self.range(addr, into.len() as u64);
        let memory = place.and_then(|(base, offset)| Some((self.ranges.get(&base)?, offset)));
        memory.is_some_and(|(memory, offset)| memory.read(offset, into).is_ok())
    }

    fn write(&mut self, addr: u64, data: &[u8]) -> bool {
        let Some((base, offset)) = self.range(addr, data.len() as u64) else { return false };
        self.ranges.get_mut(&base).is_some_and(|memory| memory.write(offset, data).is_ok())
    }
}

impl fabric_mem::Memory for HostMemory {
    fn kind(&self, addr: u64, len: u64) -> Option<fabric_mem::MemKind> {
        self.holds(addr, len).then_some(fabric_mem::MemKind::Host)
    }

    fn place(&self, _: u64, _: u64) -> Option<fabric_mem::Place> {
        None // host memory is shown in the engine's window instead
    }
}

/// Decides which of a host's own addresses a request of another host reaches.
pub trait Exports {
    /// Own address of `len` bytes that `from` addresses by `addr`; `None` if it may not reach them.
    fn local(&self, from: Pid, addr: Hpa, len: u64) -> Option<u64>;
}

/// Exports one range to every host: addresses from `base` on are own addresses from `local` on.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Export {
    /// First address, as other hosts use it.
    pub base: Hpa,
    pub len: u64,
    /// Own address that `base` leads to.
    pub local: u64,
}

impl Exports for Export {
    fn local(&self, _: Pid, addr: Hpa, len: u64) -> Option<u64> {
        let offset = addr.0.checked_sub(self.base.0)?;
        (offset.checked_add(len)? <= self.len).then_some(self.local.checked_add(offset)?)
    }
}

impl Exports for () {
    fn local(&self, _: Pid, _: Hpa, _: u64) -> Option<u64> {
        None
    }
}
