//! HDM decoders: which addresses of the host are a device's memory, or lead to which port of a switch.
//!
//! Registers in, [`Hdm::dpa`] (device) and [`Hdm::target`] (switch) out, by the committed decoders alone, which
//! are always the first ones, in the order of their addresses.
//!
//! Units: bytes; sizes and addresses in multiples of 256 MiB.
//! Source: CXL 3.1 section 8.2.4.20; docs/spec/wire-formats.md §3.10; docs/spec/cxl-fabric.md "HDM decoders".

use core::ops::Range;

use weft_parsers::fabric::{Dpa, Hpa};

use crate::pci::space::{high32, low32};

/// Unit of bases, sizes and skips.
pub const UNIT: u64 = 1 << 28;
/// First address that no decoder can have: addresses of CXL.mem have 52 bits.
pub const HPA_END: u64 = 1 << 52;

/// Offsets in the structure; of a decoder from [`regs::decoder`] on.
pub mod regs {
    /// Capability.
    pub const CAP: u16 = 0x00;
    /// Global control.
    pub const CONTROL: u16 = 0x04;
    /// Global control: HDM Decoder Enable (devices).
    pub const CONTROL_ENABLE: u32 = 1 << 1;
    /// First decoder, and bytes of each.
    pub const DECODERS: u16 = 0x10;
    /// See [`DECODERS`].
    pub const DECODER_LEN: u16 = 0x20;
    /// Base, low and (4 bytes on) high.
    pub const BASE: u16 = 0x00;
    /// Size, low and high.
    pub const SIZE: u16 = 0x08;
    /// Control of a decoder.
    pub const DECODER: u16 = 0x10;
    /// DPA skip (devices) or target list (switches), low and high.
    pub const TARGET: u16 = 0x14;
    /// Control: granularity, 256 bytes times 2 to the power of it.
    pub const GRANULARITY: u32 = 0xF;
    /// Control: ways.
    pub const WAYS: u32 = 0xF0;
    /// Control: a commit locks the decoder until reset.
    pub const LOCK: u32 = 1 << 8;
    /// Control: commit.
    pub const COMMIT: u32 = 1 << 9;
    /// Control, read-only: committed.
    pub const COMMITTED: u32 = 1 << 10;
    /// Control, read-only: the last commit was refused.
    pub const ERROR: u32 = 1 << 11;
    /// Control: the target keeps no coherence with others itself (HDM-H).
    pub const HOST_ONLY: u32 = 1 << 12;
    /// Capability: decoders have [`UIO`].
    pub const CAP_UIO: u32 = 1 << 13;
    /// Control: UIO requests go there, too.
    pub const UIO: u32 = 1 << 14;

    /// Where decoder `number` stands.
    #[must_use]
    pub const fn decoder(number: u8) -> u16 {
        DECODERS + DECODER_LEN * number as u16
    }

    /// Number of decoders by the code in the capability's bits 3:0; `None` of a reserved one.
    #[must_use]
    pub const fn count(cap: u32) -> Option<u8> {
        Some(match cap & 0xF {
            0 => 1,
            code @ 1..=8 => (code * 2).to_le_bytes()[0],
            code @ 9..=12 => ((code - 4) * 4).to_le_bytes()[0],
            _ => return None,
        })
    }
}

/// Most ways, as a code: 8.
const WAYS_MAX: u32 = 3;
/// Largest granularity, as a code: 16 KiB.
const GRANULARITY_MAX: u32 = 6;

/// Whose decoders they are.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum HdmRole {
    /// A device with so many bytes of memory.
    Device {
        /// Bytes.
        capacity: u64,
    },
    /// The upstream port of a switch.
    Switch,
}

impl HdmRole {
    /// Decoders that there are, as the code of the capability: 4 of a device, 32 of a switch.
    const fn count_code(self) -> u32 {
        match self {
            Self::Device { .. } => 2,
            Self::Switch => 12,
        }
    }

    const fn cap(self) -> u32 {
        // Interleaving by all granularities.
        let common = self.count_code() | 0b11 << 8;
        // UIO by all decoders.
        let common = common | regs::CAP_UIO | self.count_code() << 16;
        match self {
            // MemData-NXM; host-only coherence.
            Self::Device { .. } => common | 1 << 20 | 0b10 << 21,
            Self::Switch => common | 8 << 4,
        }
    }

    /// Bits of a decoder's control that software may write.
    const fn writable(self) -> u32 {
        let common = regs::GRANULARITY | regs::WAYS | regs::LOCK | regs::COMMIT | regs::UIO;
        common | if matches!(self, Self::Switch) { regs::HOST_ONLY } else { 0 }
    }

    /// Control after power-on.
    const fn control(self) -> u32 {
        if matches!(self, Self::Switch) { 0 } else { regs::HOST_ONLY }
    }
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
struct Decoder {
    base: u64,
    size: u64,
    control: u32,
    /// Skip, or targets: one byte a way.
    target: u64,
}

impl Decoder {
    const fn is_committed(&self) -> bool {
        self.control & regs::COMMITTED != 0
    }

    /// Ways as a power of two, and bits of an address below the granule.
    const fn interleave(&self) -> (u32, u32) {
        (self.control >> 4 & 0xF, 8 + (self.control & 0xF))
    }

    /// The decoder has `len` bytes from `hpa` on.
    const fn holds(&self, hpa: u64, len: u64) -> bool {
        match hpa.checked_sub(self.base) {
            Some(at) => at < self.size && len <= self.size - at,
            None => false,
        }
    }

    /// Bytes of the device's own memory.
    const fn dpa_len(&self) -> u64 {
        self.size >> self.interleave().0
    }
}

/// A committed decoder, for those who show it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Committed {
    /// Addresses of the host.
    pub hpa: Range<u64>,
    /// Addresses of the device (of a switch: 0).
    pub dpa: Range<u64>,
    /// Until a reset.
    pub locked: bool,
}

/// The HDM decoders of a component.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Hdm {
    role: HdmRole,
    /// HDM Decoder Enable.
    enabled: bool,
    decoders: Vec<Decoder>,
}

impl Hdm {
    /// None is committed.
    #[must_use]
    pub fn new(role: HdmRole) -> Self {
        let count = regs::count(role.count_code()).unwrap_or(1);
        let empty = Decoder { base: 0, size: 0, control: role.control(), target: 0 };
        Self { role, enabled: false, decoders: vec![empty; count.into()] }
    }

    /// Back to power-on.
    pub fn reset(&mut self) {
        *self = Self::new(self.role);
    }

    /// The device has so much memory from now on; what is committed stays.
    pub const fn set_capacity(&mut self, bytes: u64) {
        if let HdmRole::Device { capacity } = &mut self.role {
            *capacity = bytes;
        }
    }

    /// Bytes of the structure.
    pub(super) fn len(&self) -> u16 {
        let [count, ..] = self.decoders.len().to_le_bytes();
        regs::decoder(count)
    }

    fn committed(&self) -> impl Iterator<Item = &Decoder> {
        self.decoders.iter().take_while(|decoder| decoder.is_committed())
    }

    /// Whether committed decoders decode: those of a device do when software has switched them on.
    const fn is_on(&self) -> bool {
        self.enabled || matches!(self.role, HdmRole::Switch)
    }

    /// Where in a device's memory `len` bytes from `hpa` on are, all of them side by side; `uio` for a UIO request.
    #[must_use]
    pub fn dpa(&self, hpa: Hpa, len: u64, uio: bool) -> Option<Dpa> {
        let mut start = 0_u64;
        for decoder in self.committed().filter(|_| self.is_on()) {
            start = start.saturating_add(decoder.target);
            if decoder.holds(hpa.0, len) {
                let allowed = !uio || decoder.control & regs::UIO != 0;
                let (ways, low) = decoder.interleave();
                let (at, granule) = (hpa.0 - decoder.base, 1_u64 << low);
                let whole = ways == 0 || at % granule + len <= granule;
                let inside = (at >> (low + ways) << low) | (at & (granule - 1));
                let at = if ways == 0 { at } else { inside };
                return (allowed && whole).then_some(Dpa(start.saturating_add(at)));
            }
            start = start.saturating_add(decoder.dpa_len());
        }
        None
    }

    /// The port of a switch that all of `len` bytes from `hpa` on are behind, by its number; `uio` for a UIO request.
    #[must_use]
    pub fn target(&self, hpa: Hpa, len: u64, uio: bool) -> Option<u8> {
        let decoder = self.committed().find(|decoder| decoder.holds(hpa.0, len))?;
        let (ways, low) = decoder.interleave();
        let (at, granule) = (hpa.0 - decoder.base, 1_u64 << low);
        if (uio && decoder.control & regs::UIO == 0) || (ways > 0 && at % granule + len > granule) {
            return None;
        }
        let way = hpa.0 >> low & ((1 << ways) - 1);
        decoder.target.to_le_bytes().get(usize::try_from(way).ok()?).copied()
    }

    /// All that are committed, in order; empty ones, too.
    #[must_use]
    pub fn list(&self) -> Vec<Committed> {
        let mut start = 0_u64;
        let mut all = Vec::new();
        for decoder in self.committed() {
            let mut dpa = 0..0;
            if matches!(self.role, HdmRole::Device { .. }) {
                start = start.saturating_add(decoder.target);
                dpa = start..start.saturating_add(decoder.dpa_len());
                start = dpa.end;
            }
            let hpa = decoder.base..decoder.base.saturating_add(decoder.size);
            all.push(Committed { hpa, dpa, locked: decoder.control & regs::LOCK != 0 });
        }
        all
    }

    /// What software reads at `at`.
    pub(super) fn read(&self, at: u16) -> u32 {
        match at {
            regs::CAP => self.role.cap(),
            regs::CONTROL if self.enabled => regs::CONTROL_ENABLE,
            regs::DECODERS.. => {
                let at = at - regs::DECODERS;
                let number = usize::from(at / regs::DECODER_LEN);
                self.decoders.get(number).map_or(0, |one| match at % regs::DECODER_LEN {
                    regs::DECODER => one.control,
                    at => half(one, at).map_or(
                        0,
                        |(value, high)| {
                            if high { high32(value) } else { low32(value) }
                        },
                    ),
                })
            }
            _ => 0,
        }
    }

    /// A write by software of the bits of `mask`.
    pub(super) fn write(&mut self, at: u16, value: u32, mask: u32) {
        if at == regs::CONTROL && matches!(self.role, HdmRole::Device { .. }) {
            if mask & regs::CONTROL_ENABLE != 0 {
                self.enabled = value & regs::CONTROL_ENABLE != 0;
            }
            return;
        }
        let Some(at) = at.checked_sub(regs::DECODERS) else { return };
        let number = usize::from(at / regs::DECODER_LEN);
        let at = at % regs::DECODER_LEN;
        if at == regs::DECODER {
            return self.control(number, value, mask);
        }
        let bytes = match self.role {
            HdmRole::Switch if at >= regs::TARGET => u64::MAX,
            _ => !(UNIT - 1),
        };
        let Some(decoder) = self.decoders.get_mut(number) else { return };
        //= docs/spec/cxl-fabric.md HDM decoders: a committed decoder does not change
        if decoder.is_committed() {
            return;
        }
        let Some((old, high)) = half(decoder, at) else { return };
        let shift = if high { 32 } else { 0 };
        let mask = (u64::from(mask) << shift) & bytes;
        let new = (old & !mask) | ((u64::from(value) << shift) & mask);
        match at & !4 {
            regs::BASE => decoder.base = new,
            regs::SIZE => decoder.size = new,
            _ => decoder.target = new,
        }
    }

    /// A write to the control register of a decoder.
    fn control(&mut self, number: usize, value: u32, mask: u32) {
        let mask = mask & self.role.writable();
        let last = self.committed().count().checked_sub(1);
        let Some(decoder) = self.decoders.get_mut(number) else { return };
        let new = (decoder.control & !mask) | (value & mask);
        if decoder.is_committed() {
            //= docs/spec/cxl-fabric.md HDM decoders: only the last one can be released, and none that is locked
            let releases = mask & !new & regs::COMMIT != 0;
            if releases && decoder.control & regs::LOCK == 0 && last == Some(number) {
                decoder.control = new & !regs::COMMITTED;
            }
            return;
        }
        decoder.control = new & !regs::ERROR;
        if new & regs::COMMIT == 0 {
            return;
        }
        if mask & regs::COMMIT == 0 {
            decoder.control = new; // nothing was tried
            return;
        }
        let outcome = if self.may_commit(number) { regs::COMMITTED } else { regs::ERROR };
        if let Some(decoder) = self.decoders.get_mut(number) {
            decoder.control |= outcome;
        }
    }

    //= CXL 3.1 section 8.2.4.20.12: what is checked at a commit
    /// Whether decoder `number` may be committed as it is.
    fn may_commit(&self, number: usize) -> bool {
        let Some(one) = self.decoders.get(number) else { return false };
        let before: Vec<&Decoder> = self.committed().collect();
        let (ways, _) = one.interleave();
        if before.len() != number
            || ways > WAYS_MAX
            || one.control & regs::GRANULARITY > GRANULARITY_MAX
            || one.size % (UNIT << ways) != 0
        {
            return false;
        }
        let Some(end) = one.base.checked_add(one.size).filter(|end| *end <= HPA_END) else {
            return false;
        };
        // All before end by then, as each begins behind the one before it.
        let free = before.iter().map(|one| one.base + one.size).max().unwrap_or(0);
        if one.base < free || end < free {
            return false;
        }
        let HdmRole::Device { capacity } = self.role else { return true };
        let parts = before.iter().copied().chain([one]);
        let used = parts
            .fold(0_u64, |sum, one| sum.saturating_add(one.target).saturating_add(one.dpa_len()));
        used <= capacity
    }
}

/// The field of 64 bits that has the register at `at`, and whether it is the upper half.
const fn half(decoder: &Decoder, at: u16) -> Option<(u64, bool)> {
    let value = match (at & !4, at) {
        (regs::BASE, _) => decoder.base,
        (regs::SIZE, _) => decoder.size,
        (_, 0x14 | 0x18) => decoder.target,
        _ => return None,
    };
    Some((value, if at >= regs::TARGET { at == 0x18 } else { at & 4 != 0 }))
}
