//! HDM decoders: which host addresses are memory of a device, or lead to which port of a switch.
//!
//! Software programs and commits them by registers; [`Hdm::dpa`] (device) and [`Hdm::target`] (switch) then decode.
//! Only committed decoders decode; those are always the first ones, in ascending order of their addresses. Sizes
//! and addresses are multiples of 256 MiB.
//!
//! Source: CXL 3.1 section 8.2.4.20; docs/spec/wire-formats.md §3.10; docs/spec/cxl-fabric.md "HDM decoders".

use core::ops::Range;

use weft_parsers::fabric::{Dpa, Hpa};

use crate::pci::space::{high32, low32};

/// Granularity of bases, sizes and skips, bytes.
pub const UNIT: u64 = 1 << 28;
/// First address that no decoder can have: addresses of CXL.mem have 52 bits.
pub const HPA_END: u64 = 1 << 52;

/// Register offsets in the structure; those of a decoder are from [`regs::decoder`] on.
pub mod regs {
    /// HDM Decoder Capability register.
    pub const CAP: u16 = 0x00;
    /// Global control register.
    pub const CONTROL: u16 = 0x04;
    /// Global control: HDM Decoder Enable (devices).
    pub const CONTROL_ENABLE: u32 = 1 << 1;
    /// Offset of the first decoder; each has [`DECODER_LEN`] bytes.
    pub const DECODERS: u16 = 0x10;
    /// Bytes of each decoder.
    pub const DECODER_LEN: u16 = 0x20;
    /// Base low; base high is 4 bytes on.
    pub const BASE: u16 = 0x00;
    /// Size low; size high is 4 bytes on.
    pub const SIZE: u16 = 0x08;
    /// Control of a decoder.
    pub const DECODER: u16 = 0x10;
    /// DPA skip (devices) or target list (switches), low and high.
    pub const TARGET: u16 = 0x14;
    /// Control: granularity code g, for 256 × 2^g bytes.
    pub const GRANULARITY: u32 = 0xF;
    /// Control: ways code w, for 2^w ways.
    pub const WAYS: u32 = 0xF0;
    /// Control: a commit locks the decoder until reset.
    pub const LOCK: u32 = 1 << 8;
    /// Control: request to commit.
    pub const COMMIT: u32 = 1 << 9;
    /// Control, read-only: committed.
    pub const COMMITTED: u32 = 1 << 10;
    /// Control, read-only: the last commit was refused.
    pub const ERROR: u32 = 1 << 11;
    /// Control: the target leaves coherence to the host (HDM-H).
    pub const HOST_ONLY: u32 = 1 << 12;
    /// Capability: decoders have [`UIO`].
    pub const CAP_UIO: u32 = 1 << 13;
    /// Control: the decoder takes UIO requests, too.
    pub const UIO: u32 = 1 << 14;

    /// Offset of decoder `number`.
    #[must_use]
    pub const fn decoder(number: u8) -> u16 {
        DECODERS + DECODER_LEN * number as u16
    }

    /// Number of decoders for the code in bits 3:0 of the capability; `None` for a reserved code.
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

/// Largest code of ways: 8 ways.
const WAYS_MAX: u32 = 3;
/// Largest code of granularity: 16 KiB.
const GRANULARITY_MAX: u32 = 6;

/// Kind of component that has the decoders.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum HdmRole {
    /// A device with host-managed memory.
    Device {
        /// Bytes of memory that the decoders may map.
        capacity: u64,
    },
    /// The upstream port of a switch.
    Switch,
}

impl HdmRole {
    /// Number of decoders as the capability's code: 4 in a device, 32 in a switch.
    const fn count_code(self) -> u32 {
        match self {
            Self::Device { .. } => 2,
            Self::Switch => 12,
        }
    }

    const fn cap(self) -> u32 {
        // Interleaving by address bits 11:8 and 14:12: all granularities.
        let common = self.count_code() | 0b11 << 8;
        // All decoders take UIO.
        let common = common | regs::CAP_UIO | self.count_code() << 16;
        match self {
            // MemData-NXM is supported (bit 20); coherence is host-only (10b in bits 22:21).
            Self::Device { .. } => common | 1 << 20 | 0b10 << 21,
            Self::Switch => common | 8 << 4,
        }
    }

    /// Bits of a decoder's control that software may write.
    const fn writable(self) -> u32 {
        let common = regs::GRANULARITY | regs::WAYS | regs::LOCK | regs::COMMIT | regs::UIO;
        // A device's memory is HDM-H always, so the bit is read-only there.
        common | if matches!(self, Self::Switch) { regs::HOST_ONLY } else { 0 }
    }

    /// Control of a decoder after power-on.
    const fn control(self) -> u32 {
        if matches!(self, Self::Switch) { 0 } else { regs::HOST_ONLY }
    }
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
struct Decoder {
    base: u64,
    size: u64,
    control: u32,
    /// DPA skip (device), or target ports, one byte for each way (switch).
    target: u64,
}

impl Decoder {
    const fn is_committed(&self) -> bool {
        self.control & regs::COMMITTED != 0
    }

    /// Ways and granularity as numbers of address bits: log2 of ways, log2 of the granule.
    const fn interleave(&self) -> (u32, u32) {
        (self.control >> 4 & 0xF, 8 + (self.control & 0xF))
    }

    /// Whether all `len` bytes from `hpa` on are in the decoder.
    const fn holds(&self, hpa: u64, len: u64) -> bool {
        match hpa.checked_sub(self.base) {
            Some(at) => at < self.size && len <= self.size - at,
            None => false,
        }
    }

    /// Bytes of the device's memory that it maps, which is its share of all ways.
    const fn dpa_len(&self) -> u64 {
        self.size >> self.interleave().0
    }
}

/// A committed decoder, for display.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Committed {
    /// Host physical addresses that it decodes.
    pub hpa: Range<u64>,
    /// Device physical addresses that they map to (0..0 at a switch).
    pub dpa: Range<u64>,
    /// Whether it is locked until a reset.
    pub locked: bool,
}

/// All HDM decoders of a component.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Hdm {
    role: HdmRole,
    /// HDM Decoder Enable, which gates those of a device.
    enabled: bool,
    decoders: Vec<Decoder>,
}

impl Hdm {
    /// Decoders after power-on, with nothing committed.
    #[must_use]
    pub fn new(role: HdmRole) -> Self {
        let count = regs::count(role.count_code()).unwrap_or(1);
        let empty = Decoder { base: 0, size: 0, control: role.control(), target: 0 };
        Self { role, enabled: false, decoders: vec![empty; count.into()] }
    }

    /// Restores the state after power-on.
    pub fn reset(&mut self) {
        *self = Self::new(self.role);
    }

    /// Length of the structure in bytes.
    pub(super) fn len(&self) -> u16 {
        let [count, ..] = self.decoders.len().to_le_bytes();
        regs::decoder(count)
    }

    fn committed(&self) -> impl Iterator<Item = &Decoder> {
        self.decoders.iter().take_while(|decoder| decoder.is_committed())
    }

    /// Whether committed decoders decode: a switch's always do, a device's while software has enabled them.
    const fn is_on(&self) -> bool {
        // HDM Decoder Enable is reserved for switches (8.2.4.20.2).
        self.enabled || matches!(self.role, HdmRole::Switch)
    }

    /// Device physical address of `len` contiguous bytes from `hpa` on; `uio` for a UIO request.
    #[must_use]
    pub fn dpa(&self, hpa: Hpa, len: u64, uio: bool) -> Option<Dpa> {
        let mut start = 0_u64;
        for decoder in self.committed().filter(|_| self.is_on()) {
            // DPAs are not in registers: each decoder begins where the one before ends, behind its own skip.
            start = start.saturating_add(decoder.target);
            if decoder.holds(hpa.0, len) {
                let allowed = !uio || decoder.control & regs::UIO != 0;
                let (ways, low) = decoder.interleave();
                let (at, granule) = (hpa.0 - decoder.base, 1_u64 << low);
                // An access across a granule would continue in another device of the interleave set.
                let whole = ways == 0 || at % granule + len <= granule;
                // The way's bits are cut out of the offset above the granule (docs/spec/wire-formats.md §3.10).
                let inside = (at >> (low + ways) << low) | (at & (granule - 1));
                let at = if ways == 0 { at } else { inside };
                return (allowed && whole).then_some(Dpa(start.saturating_add(at)));
            }
            start = start.saturating_add(decoder.dpa_len());
        }
        None
    }

    /// Number of the switch port that all `len` bytes from `hpa` on are behind; `uio` for a UIO request.
    #[must_use]
    pub fn target(&self, hpa: Hpa, len: u64, uio: bool) -> Option<u8> {
        let decoder = self.committed().find(|decoder| decoder.holds(hpa.0, len))?;
        let (ways, low) = decoder.interleave();
        let (at, granule) = (hpa.0 - decoder.base, 1_u64 << low);
        if (uio && decoder.control & regs::UIO == 0) || (ways > 0 && at % granule + len > granule) {
            return None;
        }
        // Bits of the address are bits of the offset here, as bases are multiples of 256 MiB.
        let way = hpa.0 >> low & ((1 << ways) - 1);
        decoder.target.to_le_bytes().get(usize::try_from(way).ok()?).copied()
    }

    /// All committed decoders in order, empty ones included.
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

    /// Value of the register at `at`, as software reads it.
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

    /// Applies a write by software to the bits of `mask` at `at`.
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
            // A target list has a byte for each way; base, size and skip have no bits below 256 MiB.
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

    /// Applies a write to a decoder's control register, which may commit or release it.
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
        // A new write clears the result of the last commit.
        decoder.control = new & !regs::ERROR;
        if new & regs::COMMIT == 0 {
            return;
        }
        // Commit was set by an earlier write that was refused; only a write of Commit itself tries again.
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
    /// Whether decoder `number` may be committed as it is programmed.
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
        // The one before has the highest end, as each begins at or behind the end of the last; `max` is 0 for the
        // first.
        let free = before.iter().map(|one| one.base + one.size).max().unwrap_or(0);
        if one.base < free || end < free {
            return false;
        }
        // Targets of a switch are not checked: a port that does not exist fails when it is used.
        let HdmRole::Device { capacity } = self.role else { return true };
        let parts = before.iter().copied().chain([one]);
        let used = parts
            .fold(0_u64, |sum, one| sum.saturating_add(one.target).saturating_add(one.dpa_len()));
        used <= capacity
    }
}

/// The 64-bit field that contains the register at `at`, and whether that is the upper half.
const fn half(decoder: &Decoder, at: u16) -> Option<(u64, bool)> {
    let value = match (at & !4, at) {
        (regs::BASE, _) => decoder.base,
        (regs::SIZE, _) => decoder.size,
        (_, 0x14 | 0x18) => decoder.target,
        _ => return None,
    };
    // The field at 14h is not aligned to 8 bytes, so bit 2 of the offset does not tell its halves apart.
    Some((value, if at >= regs::TARGET { at == 0x18 } else { at & 4 != 0 }))
}
