//! Designated vendor-specific capabilities (DVSEC) that tell a host that a function speaks CXL.
//!
//! [`add_device`] describes protocols and memory, [`add_locator`] says where in the BARs the register blocks are;
//! [`register_blocks`] is the host's side of the latter. Memory is in multiples of 256 MiB.
//!
//! Source: CXL 3.1 §8.1.3 (device, revision 1: without the fields of later ones), §8.1.9 (locator).

use super::regs::{dvsec, ext};
use super::space::{Space, SpaceError, high32, low32};

const DEVICE_LEN: u16 = 0x38;
const LOCATOR_HEAD: u16 = 0x0C;

/// Type of a CXL device: its protocols besides CXL.io.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum CxlKind {
    /// CXL.cache: accelerator without memory.
    Type1,
    /// CXL.cache and CXL.mem: accelerator with memory.
    Type2,
    /// CXL.mem alone: memory device.
    Type3,
}

impl CxlKind {
    /// Whether the device caches its host's memory (`Cache_Capable`).
    #[must_use]
    pub const fn has_cache(self) -> bool {
        self.bits() & 1 != 0
    }

    /// Capability bits: cache, io, mem.
    const fn bits(self) -> u16 {
        match self {
            Self::Type1 => 0b011,
            Self::Type2 => 0b111,
            Self::Type3 => 0b110,
        }
    }

    /// From the capability's bits; `None` for a device of CXL.io alone.
    #[must_use]
    pub const fn from_bits(bits: u16) -> Option<Self> {
        match (bits & 1 != 0, bits & 4 != 0) {
            (true, false) => Some(Self::Type1),
            (true, true) => Some(Self::Type2),
            (false, true) => Some(Self::Type3),
            (false, false) => None,
        }
    }
}

/// Contents of the DVSEC for CXL devices.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct CxlSpec {
    /// Type, which decides the protocols.
    pub kind: CxlKind,
    /// Bytes of host-managed memory; rounded down to 256 MiB.
    pub memory: u64,
    /// Where the host should place that memory, a multiple of 256 MiB; 0 for anywhere.
    pub base: u64,
}

/// Offsets in the PCIe DVSEC for CXL devices.
pub mod device {
    /// CXL Control, u16, writable by the host.
    pub const CONTROL: u16 = 0x0C;
    /// CXL Control, bit 0: `Cache_Enable`.
    pub const CONTROL_CACHE: u16 = 1;
    /// CXL Control, bit 2: `Mem_Enable`.
    pub const CONTROL_MEM: u16 = 1 << 2;
    /// Size of range 1, upper half, u32; the lower half follows.
    pub const SIZE: u16 = 0x18;
    /// Base of range 1, upper half, u32; the lower half follows.
    pub const BASE: u16 = 0x20;
    /// Registers that only a conventional reset changes: control and status, lock, and base of range 1.
    pub const STICKY: [u16; 4] = [CONTROL, 0x14, BASE, BASE + 4];
}

/// Kind of registers in a block.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
#[repr(u8)]
pub enum BlockId {
    /// Component registers (HDM decoders, RAS).
    Component = 1,
    /// Device registers: status and mailboxes.
    Device = 3,
}

/// Location of a register block.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct RegisterBlock {
    /// Number of the BAR, 0..=5.
    pub bar: u8,
    /// Kind of registers: a [`BlockId`], or a value that weft does not use.
    pub id: u8,
    /// Offset in the BAR, a multiple of 64 KiB.
    pub offset: u64,
}

/// Adds a DVSEC of the CXL consortium; returns its offset.
fn add(space: &mut Space, id: u16, revision: u8, len: u16) -> Result<u16, SpaceError> {
    let at = space.add_ext(ext::DVSEC, 1, len)?;
    let head = u32::from(dvsec::CXL) | u32::from(revision) << 16 | u32::from(len) << 20;
    space.set32(at + dvsec::HEADER1, head);
    space.set16(at + dvsec::HEADER2, id);
    Ok(at)
}

/// Adds the PCIe DVSEC for CXL devices.
///
/// # Errors
/// No room is left.
pub fn add_device(space: &mut Space, spec: &CxlSpec) -> Result<u16, SpaceError> {
    let at = add(space, dvsec::CXL_DEVICE, 1, DEVICE_LEN)?;
    // Memory that a Type 1 device is given has no protocol to reach it. Memory_Size has no bits below 256 MiB.
    let memory = if spec.kind == CxlKind::Type1 { 0 } else { spec.memory & !0x0FFF_FFFF };
    let ranges = u16::from(memory > 0);
    // Memory is there without the host's doing (Mem_HwInit_Mode).
    space.set16(at + 0x0A, spec.kind.bits() | ranges << 3 | ranges << 4);
    // IO is always on; cache and mem are the host's to switch.
    space.set16(at + device::CONTROL, 0b010);
    space.allow16(at + device::CONTROL, spec.kind.bits() & 0b101);
    space.clear_by_one16(at + 0x0E, 1 << 14); // viral
    space.allow16(at + 0x14, 1); // configuration lock
    if memory > 0 {
        space.set32(at + device::SIZE, high32(memory));
        // Valid, active, media and class as CDAT says.
        space.set32(at + device::SIZE + 4, low32(memory) | 0b0100_1011);
        space.set32(at + device::BASE, high32(spec.base));
        space.set32(at + device::BASE + 4, low32(spec.base) & 0xF000_0000);
        space.allow32(at + device::BASE, u32::MAX);
        // The lower bits of the base are reserved (8.1.3.8).
        space.allow32(at + device::BASE + 4, 0xF000_0000);
    }
    Ok(at)
}

/// Adds the register locator.
///
/// # Errors
/// No room is left.
pub fn add_locator(space: &mut Space, blocks: &[RegisterBlock]) -> Result<u16, SpaceError> {
    let len = u16::try_from(blocks.len()).ok().and_then(|count| count.checked_mul(8));
    // More entries than fit give a length that `add` refuses.
    let len = len.map_or(u16::MAX, |entries| entries.saturating_add(LOCATOR_HEAD));
    let at = add(space, dvsec::LOCATOR, 0, len)?;
    for (entry, block) in (at + LOCATOR_HEAD..).step_by(8).zip(blocks) {
        // Offsets are multiples of 64 KiB, so that BAR and id fit into the 16 bits below.
        let low = u64::from(block.bar & 7) | u64::from(block.id) << 8;
        space.set64(entry, low | (block.offset & !0xFFFF));
    }
    Ok(at)
}

/// The blocks listed by a register locator; `words` is its DVSEC as double words, header included.
#[must_use]
pub fn register_blocks(words: &[u32]) -> Vec<RegisterBlock> {
    // Three double words of header: extended capability, DVSEC header 1 and 2 with a reserved half.
    let (entries, _) = words.get(3..).unwrap_or_default().as_chunks::<2>();
    let blocks = entries.iter().map(|&[entry, upper]| {
        let [low, id, ..] = entry.to_le_bytes();
        let offset = u64::from(upper) << 32 | u64::from(entry & !0xFFFF);
        RegisterBlock { bar: low & 7, id, offset }
    });
    // Id 0 marks an unused entry (8.1.9.1).
    blocks.filter(|block| block.id != 0).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_device_says_its_type_and_memory() {
        #[rustfmt::skip] // columns: kind, memory, capability, size high, size low
        let cases = [
            (CxlKind::Type1, 1 << 30,       0x0003, 0, 0),
            (CxlKind::Type2, 0,             0x0007, 0, 0),
            (CxlKind::Type3, 0x5_8FFF_FFFF, 0x001E, 5, 0x8000_004B),
        ];
        for (kind, memory, want, size_high, size_low) in cases {
            let mut space = Space::new();
            let at =
                add_device(&mut space, &CxlSpec { kind, memory, base: 0x3_9000_0001 }).unwrap();
            assert_eq!(space.get32(at + 4), 0x0381_1E98, "{kind:?}");
            assert_eq!(space.get16(at + 0x0A), want, "{kind:?}");
            assert_eq!(space.get32(at + 0x18), size_high, "{kind:?}");
            assert_eq!(space.get32(at + 0x1C), size_low, "{kind:?}");
            let base = if size_high == 0 { 0 } else { 0x3_9000_0000 };
            let at = at + device::BASE;
            assert_eq!((space.get32(at), space.get32(at + 4)), (high32(base), low32(base)));
            assert_eq!(CxlKind::from_bits(want), Some(kind));
        }
    }

    #[test]
    fn the_locator_leads_to_the_blocks() {
        let blocks = [
            RegisterBlock { bar: 0, id: BlockId::Component as u8, offset: 0 },
            RegisterBlock { bar: 2, id: BlockId::Device as u8, offset: 0x1_2345_0000 },
        ];
        let mut space = Space::new();
        add_device(&mut space, &CxlSpec { kind: CxlKind::Type3, memory: 0, base: 0 }).unwrap();
        let at = add_locator(&mut space, &blocks).unwrap();
        assert_eq!((space.get32(at + 4), space.get32(at + 0x14)), (0x01C0_1E98, 0x2345_0302));
        let words: Vec<u32> = (at..at + 0x1C).step_by(4).map(|at| space.get32(at)).collect();
        assert_eq!(register_blocks(&words), blocks);
        for len in 0..words.len() {
            let whole = len.saturating_sub(3) / 2;
            assert_eq!(register_blocks(&words[..len]), blocks[..whole], "{len} double words");
        }
        assert!(add_locator(&mut space, &vec![blocks[0]; 9000]).is_err());
    }
}
