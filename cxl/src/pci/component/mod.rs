//! Component registers: the CXL.cache and CXL.mem registers of a device or of a switch's port, in a BAR.
//!
//! A [`Component`] of capability [`Structure`]s; reads and writes of its block drive it, and each structure says
//! what it decides. To add one: a file beside `hdm`, a variant of [`Structure`], and an id.
//!
//! Units: bytes; registers of 32 bits.
//! Source: CXL 3.1 sections 8.2.3, 8.2.4; docs/spec/wire-formats.md §3.10.

pub mod cache_id;
pub mod hdm;

pub use cache_id::{CacheIdDecoder, CacheIdTable};
pub use hdm::{Hdm, HdmRole};

/// Bytes of the block that the register locator names.
pub const LEN: u64 = 0x1_0000;
/// Where the primary range of CXL.cache and CXL.mem registers begins in it, with the array of capabilities.
pub const PRIMARY: u64 = 0x1000;
/// Bytes of that range.
pub const PRIMARY_LEN: u16 = 0x1000;

/// Ids of capability structures (CXL 3.1, 8.2.4: table of ids and versions).
pub mod id {
    /// The head of the array itself.
    pub const ARRAY: u16 = 0x0001;
    /// HDM decoders.
    pub const HDM: u16 = 0x0005;
    /// Route table of `CacheID`s.
    pub const CACHE_ID_TABLE: u16 = 0x000D;
    /// Decoder of `CacheID`s.
    pub const CACHE_ID_DECODER: u16 = 0x000E;
}

/// A capability structure.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Structure {
    /// HDM decoders.
    Hdm(Hdm),
    /// Route table of `CacheID`s (upstream ports).
    CacheIdTable(CacheIdTable),
    /// Decoder of `CacheID`s (downstream ports).
    CacheIdDecoder(CacheIdDecoder),
}

impl Structure {
    /// Id and version.
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
    /// Where each stands in the primary range, in order.
    structures: Vec<(u16, Structure)>,
}

impl Component {
    /// With these structures, as they are after power-on.
    ///
    /// # Errors
    /// There is no room for all of them.
    pub fn new(structures: Vec<Structure>) -> Result<Self, ComponentError> {
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

    /// Its HDM decoders.
    #[must_use]
    pub fn hdm(&self) -> Option<&Hdm> {
        self.structures.iter().find_map(|(_, structure)| match structure {
            Structure::Hdm(hdm) => Some(hdm),
            _ => None,
        })
    }

    /// The same, for what the component itself changes.
    pub fn hdm_mut(&mut self) -> Option<&mut Hdm> {
        self.structures.iter_mut().find_map(|(_, structure)| match structure {
            Structure::Hdm(hdm) => Some(hdm),
            _ => None,
        })
    }

    /// Its route table of `CacheID`s, for who judges its commits.
    pub fn cache_id_table_mut(&mut self) -> Option<&mut CacheIdTable> {
        self.structures.iter_mut().find_map(|(_, structure)| match structure {
            Structure::CacheIdTable(table) => Some(table),
            _ => None,
        })
    }

    /// Its decoder of `CacheID`s.
    #[must_use]
    pub fn cache_id_decoder(&self) -> Option<&CacheIdDecoder> {
        self.structures.iter().find_map(|(_, structure)| match structure {
            Structure::CacheIdDecoder(decoder) => Some(decoder),
            _ => None,
        })
    }

    /// The same, for who judges its commits.
    pub fn cache_id_decoder_mut(&mut self) -> Option<&mut CacheIdDecoder> {
        self.structures.iter_mut().find_map(|(_, structure)| match structure {
            Structure::CacheIdDecoder(decoder) => Some(decoder),
            _ => None,
        })
    }

    /// Conventional reset: all registers are as after power-on.
    pub fn reset(&mut self) {
        for (_, structure) in &mut self.structures {
            structure.reset();
        }
    }

    /// What software reads from `offset` of the block on; 0 where no register is.
    pub fn read(&self, offset: u64, bytes: &mut [u8]) {
        for (n, byte) in (0..).zip(bytes) {
            let at = offset.saturating_add(n);
            let word = primary(at).map_or(0, |at| self.word(at & !3));
            *byte = word.to_le_bytes().get((at & 3) as usize).copied().unwrap_or_default();
        }
    }

    /// A write by software from `offset` of the block on: register by register, lowest first, each with its bytes alone.
    pub fn write(&mut self, offset: u64, bytes: &[u8]) {
        let mut left = bytes;
        let mut at = offset;
        while !left.is_empty() {
            let from = (at & 3) as usize;
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

    /// The structure that has the register at `at` of the primary range, and where in it.
    fn find(&self, at: u16) -> Option<(usize, u16)> {
        let number = self.structures.partition_point(|(start, _)| *start <= at).checked_sub(1)?;
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
                u32::from(id::ARRAY) | 1 << 16 | 1 << 20 | u32::from(count) << 24
            }
            Some(entry) => self.structures.get(usize::from(entry)).map_or(0, |(at, structure)| {
                let (id, version) = structure.header();
                u32::from(id) | u32::from(version) << 16 | u32::from(*at) << 20
            }),
        }
    }

    fn set(&mut self, at: u16, value: u32, mask: u32) {
        if let Some((number, inside)) = self.find(at)
            && let Some((_, structure)) = self.structures.get_mut(number)
        {
            structure.write(inside, value, mask);
        }
    }
}

/// The place in the primary range of an offset in the block.
fn primary(offset: u64) -> Option<u16> {
    let at = u16::try_from(offset.checked_sub(PRIMARY)?).ok()?;
    (at < PRIMARY_LEN).then_some(at)
}

/// How many structures an array has, from its first register; `None` where that is no array.
#[must_use]
pub fn array_len(head: u32) -> Option<u8> {
    let [low, high, _, count] = head.to_le_bytes();
    (u16::from_le_bytes([low, high]) == id::ARRAY).then_some(count)
}

/// Id of a structure, and where in the primary range it stands, from its entry in the array.
#[must_use]
pub const fn array_entry(entry: u32) -> (u16, u16) {
    let [a, b, c, d] = entry.to_le_bytes();
    (u16::from_le_bytes([a, b]), u16::from_le_bytes([c, d]) >> 4)
}

#[cfg(test)]
mod tests;
