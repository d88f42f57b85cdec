//! Host-managed memory of a function (HDM): its component registers, and the memory that their decoders map.
//!
//! From an [`HdmConfig`], [`Hdm`] finds a free BAR for the registers, and translates host addresses to DPAs.
//!
//! Source: CXL 3.1 sections 8.1.9, 8.2.4.20; docs/spec/cxl-fabric.md "HDM decoders".

use weft_parsers::fabric::{Dpa, Hpa};

use crate::cdat::{self, Figures, Range};
use crate::gfd::memory::Memory;
use crate::pci::component::{self, Component, HdmRole, Structure, hdm};
use crate::pci::cxl::{BlockId, CxlSpec};
use crate::pci::function::{BarKind, BarSpec};
use crate::pci::{CxlKind, FunctionSpec, RegisterBlock};

/// Memory that a host manages.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum HdmMemory {
    /// Memory of its own, of this many bytes.
    Own(u64),
    /// The memory that is also behind this BAR.
    Bar(u8),
}

/// Configuration of a function's HDM.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct HdmConfig {
    /// Address at which its host should place it, a multiple of 256 MiB; `None`: anywhere.
    pub base: Option<Hpa>,
    pub memory: HdmMemory,
    /// Latency and bandwidth that its CDAT reports.
    pub figures: Figures,
}

impl HdmConfig {
    /// `bytes` of memory, to be placed at `base`.
    #[must_use]
    pub const fn at(base: Hpa, bytes: u64) -> Self {
        let memory = HdmMemory::Own(bytes);
        Self { base: Some(base), memory, figures: Figures::MEMORY }
    }
}

/// Why a function cannot have its HDM.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
pub enum HdmError {
    /// The size is 0 or no multiple of 256 MiB.
    #[error("memory that a host manages is a multiple of 256 MiB, found {0:#x} bytes")]
    Size(u64),
    /// No decoder can begin at this base, or the memory ends beyond 52 bits.
    #[error("memory that a host manages is at a multiple of 256 MiB below 2^52, found {0}")]
    Base(Hpa),
    /// No BAR is free, or the function has no BAR of the given number.
    #[error("memory that a host manages needs a BAR of 64 KiB for its registers: leave one free")]
    NoBar,
}

/// The HDM of a function.
pub(super) struct Hdm {
    /// The BAR of the registers.
    bar: u8,
    registers: Component,
    memory: Backing,
    figures: Figures,
    /// Ranges that its CDAT lists.
    ranges: Vec<Range>,
}

enum Backing {
    Own(Memory),
    Bar(u8),
}

impl Hdm {
    /// Gives a function HDM: its registers are in the first free BAR, and its DVSECs describe them.
    pub(super) fn new(config: HdmConfig, spec: &mut FunctionSpec) -> Result<Self, HdmError> {
        let size = match config.memory {
            HdmMemory::Own(bytes) => bytes,
            HdmMemory::Bar(bar) => {
                let found = spec.bars.get(usize::from(bar)).copied().flatten();
                found.ok_or(HdmError::NoBar)?.size
            }
        };
        if size == 0 || !size.is_multiple_of(hdm::UNIT) {
            return Err(HdmError::Size(size));
        }
        // Base 0 in the DVSEC means that the host may choose.
        let base = config.base.unwrap_or_default();
        let ends = base.0.checked_add(size).is_some_and(|end| end <= hdm::HPA_END);
        if !base.0.is_multiple_of(hdm::UNIT) || !ends {
            return Err(HdmError::Base(base));
        }
        let bar = free_bar(spec).ok_or(HdmError::NoBar)?;
        if let Some(place) = spec.bars.get_mut(usize::from(bar)) {
            *place =
                Some(BarSpec { kind: BarKind::Mem32 { prefetch: false }, size: component::LEN });
        }
        let id = BlockId::Component as u8;
        spec.blocks.push(RegisterBlock { bar, id, offset: 0 });
        spec.cxl = Some(CxlSpec { kind: CxlKind::Type3, memory: size, base: base.0 });
        // By DOE the host reads the CDAT of this memory.
        spec.doe = true;
        let decoders = Structure::Hdm(component::Hdm::new(HdmRole::Device { capacity: size }));
        let registers = Component::new(vec![decoders]).map_err(|_| HdmError::NoBar)?;
        let memory = match config.memory {
            HdmMemory::Own(bytes) => Backing::Own(Memory::anonymous(bytes)),
            HdmMemory::Bar(bar) => Backing::Bar(bar),
        };
        let (figures, ranges) = (config.figures, vec![Range::plain(0, size)]);
        Ok(Self { bar, registers, memory, figures, ranges })
    }

    /// Sets the ranges of the memory that exist; empty ones are left out.
    pub(super) fn set_ranges(&mut self, ranges: &[Range]) {
        self.ranges = ranges.iter().filter(|range| range.len > 0).copied().collect();
    }

    /// Structures of its CDAT.
    pub(super) fn cdat(&self) -> Vec<Vec<u8>> {
        cdat::memory(&self.ranges, self.figures)
    }

    /// The BAR of the registers.
    pub(super) const fn bar(&self) -> u8 {
        self.bar
    }

    pub(super) const fn registers(&self) -> &Component {
        &self.registers
    }

    pub(super) const fn registers_mut(&mut self) -> &mut Component {
        &mut self.registers
    }

    /// Its own memory, or the number of the BAR that the memory is behind.
    pub(super) const fn memory(&self) -> Result<&Memory, u8> {
        match &self.memory {
            Backing::Own(memory) => Ok(memory),
            Backing::Bar(bar) => Err(*bar),
        }
    }

    /// Like [`Self::memory`], to be written.
    pub(super) const fn memory_mut(&mut self) -> Result<&mut Memory, u8> {
        match &mut self.memory {
            Backing::Own(memory) => Ok(memory),
            Backing::Bar(bar) => Err(*bar),
        }
    }

    /// DPA of `len` bytes from `hpa` on, by the decoders.
    pub(super) fn dpa(&self, hpa: Hpa, len: u64, uio: bool) -> Option<u64> {
        self.registers.hdm()?.dpa(hpa, len, uio).map(|Dpa(at)| at)
    }
}

/// The first BAR that is neither used nor the upper half of a 64-bit one.
fn free_bar(spec: &FunctionSpec) -> Option<u8> {
    let mut upper = false;
    for (bar, slot) in (0_u8..).zip(&spec.bars) {
        if slot.is_none() && !upper {
            return Some(bar);
        }
        upper = slot.is_some_and(|slot| matches!(slot.kind, BarKind::Mem64 { .. }));
    }
    None
}
