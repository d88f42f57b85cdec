//! Memory of a function that its host manages (HDM): its component registers, and what is behind their decoders.
//!
//! [`HdmConfig`] → [`Hdm`], which finds a free BAR for the registers; an address of the host → DPA.
//!
//! Units: bytes; memory in multiples of 256 MiB.
//! Source: CXL 3.1 sections 8.1.9, 8.2.4.20; docs/spec/cxl-fabric.md "HDM decoders".

use weft_parsers::fabric::{Dpa, Hpa};

use crate::cdat::{self, Figures, Range};
use crate::gfd::memory::Memory;
use crate::pci::component::{self, Component, HdmRole, Structure, hdm};
use crate::pci::cxl::{BlockId, CxlSpec};
use crate::pci::function::{BarKind, BarSpec};
use crate::pci::{CxlKind, FunctionSpec, RegisterBlock};

/// Which memory a host manages.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum HdmMemory {
    /// So many bytes of its own.
    Own(u64),
    /// What is behind this BAR, too.
    Bar(u8),
}

/// What the HDM of a function is built from.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct HdmConfig {
    /// Where its host is to place it, a multiple of 256 MiB; `None` for anywhere.
    pub base: Option<Hpa>,
    /// What it is.
    pub memory: HdmMemory,
    /// What its CDAT says of it.
    pub figures: Figures,
}

impl HdmConfig {
    /// So many bytes, to be placed at `base`.
    #[must_use]
    pub const fn at(base: Hpa, bytes: u64) -> Self {
        let memory = HdmMemory::Own(bytes);
        Self { base: Some(base), memory, figures: Figures::MEMORY }
    }
}

/// Why a function cannot have its HDM.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
pub enum HdmError {
    /// No whole number of units, or none.
    #[error("memory that a host manages is a multiple of 256 MiB, found {0:#x} bytes")]
    Size(u64),
    /// Where no decoder can begin, or the memory ends beyond 52 bits.
    #[error("memory that a host manages is at a multiple of 256 MiB below 2^52, found {0}")]
    Base(Hpa),
    /// All BARs are taken, or the one whose memory it is to be is not there.
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
    /// What its CDAT tells of.
    ranges: Vec<Range>,
}

enum Backing {
    Own(Memory),
    Bar(u8),
}

impl Hdm {
    /// Gives a function HDM: its registers stand in the first free BAR, and its DVSECs tell of them.
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

    /// Says which ranges of the memory are there; empty ones are not told of.
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

    /// Its own memory, or the BAR that the memory is behind.
    pub(super) const fn memory(&self) -> Result<&Memory, u8> {
        match &self.memory {
            Backing::Own(memory) => Ok(memory),
            Backing::Bar(bar) => Err(*bar),
        }
    }

    /// See [`Self::memory`].
    pub(super) const fn memory_mut(&mut self) -> Result<&mut Memory, u8> {
        match &mut self.memory {
            Backing::Own(memory) => Ok(memory),
            Backing::Bar(bar) => Err(*bar),
        }
    }

    /// Where `len` bytes from `hpa` on are in the memory, by the decoders.
    pub(super) fn dpa(&self, hpa: Hpa, len: u64, uio: bool) -> Option<u64> {
        self.registers.hdm()?.dpa(hpa, len, uio).map(|Dpa(at)| at)
    }
}

/// The first BAR that neither stands nor is the upper half of another.
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
