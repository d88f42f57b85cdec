//! Component registers: CXL.cache and CXL.mem registers of a device or switch port, in a BAR.
//!
//! A [`Component`] consists of capability [`Structure`]s, each with its own rules; the component dispatches reads
//! and writes of the block to them. To add one, write a file beside `hdm`, a variant of [`Structure`], and an id.
//! Registers have 32 bits.
//!
//! Source: CXL 3.1 sections 8.2.3, 8.2.4; docs/spec/wire-formats.md §3.10.

pub mod cache_id;
pub mod hdm;

pub use cache_id::{CacheIdDecoder, CacheIdTable};
pub use hdm::{Hdm, HdmRole};

/// Length of the block that the register locator names, bytes.
pub const LEN: u64 = 0x1_0000;
/// Offset of the primary range, with CXL.cache and CXL.mem registers; the array of capabilities stands first in it.
pub const PRIMARY: u64 = 0x1000;
/// Length of the primary range, bytes.
pub const PRIMARY_LEN: u16 = 0x1000;

/// Ids of capability structures (CXL 3.1, 8.2.4: table of ids and versions).
pub mod id {
    /// The header of the array itself.
    pub const ARRAY: u16 = 0x0001;
    /// HDM decoder capability.
    pub const HDM: u16 = 0x0005;
    /// Cache ID Route Table capability.
    pub const CACHE_ID_TABLE: u16 = 0x000D;
    /// Cache ID Decoder capability.
    pub const CACHE_ID_DECODER: u16 = 0x000E;
}

/// A capability structure of the block.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Structure {
    /// HDM decoders, of a device or an upstream port.
    Hdm(Hdm),
    /// Route table of `CacheID`s, of an upstream port.
    CacheIdTable(CacheIdTable),
    /// Decoder of `CacheID`s, of a downstream port.
    CacheIdDecoder(CacheIdDecoder),
}

impl Structure {
    /// Id and version, as they stand in the array.
    const fn header(&self) -> (u16, u8) {
        match self {
            Self::Hdm(_) => (id::HDM, 3),
            Self::CacheIdTable(_) => (id::CACHE_ID_TABLE, 1),
            Self::CacheIdDecoder(_) => (id::CACHE_ID_DECODER, 1),
        }
    }

    fn len(&self) -> u16 {
        match self {
            Self::Hdm(hdm) => hdm.len(),
            Self::CacheIdTable(table) => table.len(),
            Self::CacheIdDecoder(decoder) => decoder.len(),
        }
    }

    fn read(&self, at: u16) -> u32 {
        match self {
            Self::Hdm(hdm) => hdm.read(at),
            Self::CacheIdTable(table) => table.read(at),
            Self::CacheIdDecoder(decoder) => decoder.read(at),
        }
    }

    fn write(&mut self, at: u16, value: u32, mask: u32) {
        match self {
            Self::Hdm(hdm) => hdm.write(at, value, mask),
            Self::CacheIdTable(table) => table.write(at, value, mask),
            Self::CacheIdDecoder(decoder) => decoder.write(at, value, mask),
        }
    }

    fn reset(&mut self) {
        match self {
            Self::Hdm(hdm) => hdm.reset(),
            Self::CacheIdTable(table) => *table = CacheIdTable::default(),
            Self::CacheIdDecoder(decoder) => *decoder = CacheIdDecoder::default(),
        }
    }
}

/// Why a block cannot be made: its structures take more than the primary range.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
#[error("component registers have {PRIMARY_LEN:#x} bytes for all structures, found {0:#x}")]
pub struct ComponentError(pub usize);

/// A block of component registers.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Component {
    /// Offset of each structure in the primary range, ascending.
    structures: Vec<(u16, Structure)>,
}

impl Component {
    /// A block with these structures, as after power-on.
    ///
    /// # Errors
    /// There is no room for all of them.
    pub fn new(structures: Vec<Structure>) -> Result<Self, ComponentError> {
        // The array has a header and one entry for each structure, 4 bytes each; structures start at multiples of
        // 16.
        let mut next = (4 * (structures.len() + 1)).next_multiple_of(16);
        let mut placed = Vec::new();
        for structure in structures {
            let end = next + usize::from(structure.len());
            match u16::try_from(next) {
                Ok(at) if end <= usize::from(PRIMARY_LEN) => placed.push((at, structure)),
                _ => return Err(ComponentError(end)),
            }
            next = end.next_multiple_of(16);
        }
        Ok(Self { structures: placed })
    }

    /// HDM decoders, if the block has them.
    #[must_use]
    pub fn hdm(&self) -> Option<&Hdm> {
        self.structures.iter().find_map(|(_, structure)| match structure {
            Structure::Hdm(hdm) => Some(hdm),
            _ => None,
        })
    }

    /// Route table of `CacheID`s, for the owner, who decides about its commits.
    pub fn cache_id_table_mut(&mut self) -> Option<&mut CacheIdTable> {
        self.structures.iter_mut().find_map(|(_, structure)| match structure {
            Structure::CacheIdTable(table) => Some(table),
            _ => None,
        })
    }

    /// Decoder of `CacheID`s, if the block has one.
    #[must_use]
    pub fn cache_id_decoder(&self) -> Option<&CacheIdDecoder> {
        self.structures.iter().find_map(|(_, structure)| match structure {
            Structure::CacheIdDecoder(decoder) => Some(decoder),
            _ => None,
        })
    }

    /// Decoder of `CacheID`s, for the owner, who decides about its commits.
    pub fn cache_id_decoder_mut(&mut self) -> Option<&mut CacheIdDecoder> {
        self.structures.iter_mut().find_map(|(_, structure)| match structure {
            Structure::CacheIdDecoder(decoder) => Some(decoder),
            _ => None,
        })
    }

    /// Conventional reset: restores all registers to their state after power-on.
    pub fn reset(&mut self) {
        for (_, structure) in &mut self.structures {
            structure.reset();
        }
    }

    /// Reads the block from `offset` on, as software does; 0 where there is no register.
    pub fn read(&self, offset: u64, bytes: &mut [u8]) {
        for (n, byte) in (0..).zip(bytes) {
            let at = offset.saturating_add(n);
            let word = primary(at).map_or(0, |at| self.word(at & !3));
            *byte = word.to_le_bytes().get((at & 3) as usize).copied().unwrap_or_default();
        }
    }

    /// Applies a write by software from `offset` on, as one masked write for each register, lowest first.
    pub fn write(&mut self, offset: u64, bytes: &[u8]) {
        let mut left = bytes;
        let mut at = offset;
        while !left.is_empty() {
            let from = (at & 3) as usize;
            // At most up to the end of the register, so that a write of 8 bytes to base or target changes both
            // halves in order.
            let (now, later) = left.split_at(left.len().min(4 - from));
            let (mut value, mut mask) = ([0; 4], [0; 4]);
            for ((value, mask), byte) in value.iter_mut().zip(&mut mask).skip(from).zip(now) {
                (*value, *mask) = (*byte, 0xFF);
            }
            if let Some(reg) = primary(at) {
                self.set(reg & !3, u32::from_le_bytes(value), u32::from_le_bytes(mask));
            }
            at = at.saturating_add(now.len() as u64);
            left = later;
        }
    }

    /// Index of the structure that contains `at` of the primary range, and the offset in it.
    fn find(&self, at: u16) -> Option<(usize, u16)> {
        let number = self.structures.partition_point(|(start, _)| *start <= at).checked_sub(1)?;
        // Between two structures there may be padding.
        let (start, structure) = self.structures.get(number)?;
        (at - start < structure.len()).then_some((number, at - start))
    }

    fn word(&self, at: u16) -> u32 {
        if let Some((number, inside)) = self.find(at) {
            return self.structures.get(number).map_or(0, |(_, structure)| structure.read(inside));
        }
        match (at / 4).checked_sub(1) {
            None => {
                let [count, ..] = self.structures.len().to_le_bytes();
                // Bits 19:16 are the version of the array, 23:20 that of CXL.cache and CXL.mem.
                u32::from(id::ARRAY) | 1 << 16 | 1 << 20 | u32::from(count) << 24
            }
            Some(entry) => self.structures.get(usize::from(entry)).map_or(0, |(at, structure)| {
                let (id, version) = structure.header();
                u32::from(id) | u32::from(version) << 16 | u32::from(*at) << 20
            }),
        }
    }

    fn set(&mut self, at: u16, value: u32, mask: u32) {
        // Everything else, the array included, is read-only.
        if let Some((number, inside)) = self.find(at)
            && let Some((_, structure)) = self.structures.get_mut(number)
        {
            structure.write(inside, value, mask);
        }
    }
}

/// Offset in the primary range of an offset in the block.
fn primary(offset: u64) -> Option<u16> {
    let at = u16::try_from(offset.checked_sub(PRIMARY)?).ok()?;
    (at < PRIMARY_LEN).then_some(at)
}

/// Number of structures by the first register of an array; `None` if it is no array.
#[must_use]
pub fn array_len(head: u32) -> Option<u8> {
    let [low, high, _, count] = head.to_le_bytes();
    (u16::from_le_bytes([low, high]) == id::ARRAY).then_some(count)
}

/// Id of a structure and its offset in the primary range, from an entry of the array.
#[must_use]
pub const fn array_entry(entry: u32) -> (u16, u16) {
    let [a, b, c, d] = entry.to_le_bytes();
    (u16::from_le_bytes([a, b]), u16::from_le_bytes([c, d]) >> 4)
}

#[cfg(test)]
mod tests;
