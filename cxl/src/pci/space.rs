//! The 4 KiB configuration space of one function, bit by bit.
//!
//! Each bit has a value and may be writable, or cleared by writing a 1. Capabilities are linked into their list as
//! they are added.
//!
//! The function that owns the space uses byte offsets; software that accesses it uses double words ([`Reg`]).
//!
//! Source: PCIe 6.0 §7.2 (accesses), §7.5.1.1.11 (list), §7.6.3 (extended list).
//!
//! A bit is read-only unless made otherwise. Bytes beyond the space read 0 and ignore writes.

use std::fmt;

use super::regs;

/// Double words in a space of 4 KiB.
pub const REG_COUNT: usize = 1024;
/// First byte behind the header: capabilities begin here.
const LIST_FIRST: u16 = 0x40;
/// First byte of the extended capabilities.
pub const EXT_FIRST: u16 = 0x100;
const EXT_END: u16 = 0x1000;

/// Number of a double word in a configuration space, 0..=1023.
#[derive(Clone, Copy, Default, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Reg(u16);

impl Reg {
    /// Number `index`; its low 10 bits count, as on the wire.
    #[must_use]
    pub const fn new(index: u16) -> Self {
        Self(index & 0x3FF)
    }

    /// The double word that holds the byte at `offset`.
    #[must_use]
    pub const fn at(offset: u16) -> Self {
        Self::new(offset >> 2)
    }

    #[must_use]
    pub const fn index(self) -> u16 {
        self.0
    }

    /// Offset of its first byte in the space.
    #[must_use]
    pub const fn offset(self) -> u16 {
        self.0 << 2
    }
}

impl fmt::Debug for Reg {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "Reg({:#05x})", self.offset())
    }
}

/// Which bytes of a double word a write changes; bit 0 is the byte at the lowest offset.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct ByteEnables(u8);

impl ByteEnables {
    /// All four bytes.
    pub const ALL: Self = Self(0xF);

    /// From the wire's 4 bits.
    #[must_use]
    pub const fn from_low_bits(bits: u8) -> Self {
        Self(bits & 0xF)
    }

    /// Enables for the `len` bytes from `offset` on; bytes beyond the double word of `offset` are left out.
    #[must_use]
    pub const fn of(offset: u16, len: u16) -> Self {
        let from = offset & 3;
        let end = if from + len > 4 { 4 } else { from + len };
        // `1 << end` is at most 16, so the difference fits the low byte.
        Self::from_low_bits((((1u16 << end) - 1) & !((1u16 << from) - 1)).to_le_bytes()[0])
    }

    /// The wire's 4 bits.
    #[must_use]
    pub const fn bits(self) -> u8 {
        self.0
    }

    /// The same as a mask of 32 bits.
    #[must_use]
    pub const fn mask(self) -> u32 {
        let mut mask = 0;
        let mut at = 0;
        while at < 4 {
            if self.0 >> at & 1 != 0 {
                mask |= 0xFF << (8 * at);
            }
            at += 1;
        }
        mask
    }
}

/// The effect of a write on a double word.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Written {
    /// The double word that was written.
    pub reg: Reg,
    /// Its value before the write.
    pub old: u32,
    /// Its value after the write, which is `old` where all enabled bits are read-only.
    pub new: u32,
    /// The value written by software, with disabled bytes as 0.
    pub value: u32,
    /// Bits in enabled bytes.
    pub mask: u32,
}

impl Written {
    /// Whether software wrote to bytes `offset..offset + len`, even if that changed nothing.
    #[must_use]
    pub fn touches(&self, offset: u16, len: u16) -> bool {
        self.reg == Reg::at(offset) && self.mask & ByteEnables::of(offset, len).mask() != 0
    }

    /// Bits of the u16 at `offset` that the write changed.
    #[must_use]
    pub fn changed16(&self, offset: u16) -> u16 {
        half(self.new ^ self.old, self.reg, offset)
    }

    /// The value that software wrote to the u16 at `offset`, with disabled bytes as 0.
    #[must_use]
    pub fn value16(&self, offset: u16) -> u16 {
        half(self.value, self.reg, offset)
    }
}

/// The u16 at `offset`, if `value` is the double word `reg` that holds it, else 0.
fn half(value: u32, reg: Reg, offset: u16) -> u16 {
    if reg != Reg::at(offset) {
        return 0;
    }
    let [a, b, c, d] = value.to_le_bytes();
    u16::from_le_bytes(if offset & 2 == 0 { [a, b] } else { [c, d] })
}

/// Why a capability cannot be added.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
pub enum SpaceError {
    /// No room is left below the end of the list's part of the space.
    #[error("capability {id:#06x} of {len} bytes does not fit before {end:#05x}")]
    Full {
        id: u16,
        /// Bytes requested for the capability.
        len: u16,
        /// First byte behind the part of the space that the list may use.
        end: u16,
    },
}

/// A double word: its value, writable bits (`rw`), and bits cleared by writing a 1.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
struct Word {
    value: u32,
    rw: u32,
    w1c: u32,
}

/// The configuration space of one function, as values and write permissions.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Space {
    words: Vec<Word>,
    /// Capability list: next free byte, and offset of the last capability.
    list: (u16, Option<u16>),
    /// The same of the extended capability list.
    ext: (u16, Option<u16>),
}

impl Default for Space {
    fn default() -> Self {
        Self::new()
    }
}

impl Space {
    /// All zeros, all read-only.
    #[must_use]
    pub fn new() -> Self {
        Self {
            words: vec![Word::default(); REG_COUNT],
            list: (LIST_FIRST, None),
            ext: (EXT_FIRST, None),
        }
    }

    /// Value of a register as software reads it.
    #[must_use]
    pub fn read(&self, reg: Reg) -> u32 {
        self.word(reg).value
    }

    /// Applies a write by software: writable bits take its value, and bits cleared by a 1 are cleared.
    pub fn write(&mut self, reg: Reg, value: u32, enables: ByteEnables) -> Written {
        let Word { value: old, rw, w1c } = self.word(reg);
        let mask = enables.mask();
        let value = value & mask;
        // A 1 written to a write-1-to-clear bit clears it; a 0 leaves it, so software never clears an event that it
        // has not read.
        let new = ((old & !(rw & mask)) | (value & rw)) & !(value & w1c);
        self.put(reg, new);
        Written { reg, old, new, value, mask }
    }

    fn word(&self, reg: Reg) -> Word {
        self.words.get(usize::from(reg.index())).copied().unwrap_or_default()
    }

    fn put(&mut self, reg: Reg, value: u32) {
        if let Some(word) = self.words.get_mut(usize::from(reg.index())) {
            word.value = value;
        }
    }

    /// Writes `value` to the bits of `mask` at `offset`, past all write permissions. Bit 0 of both is bit 0 of the
    /// byte at `offset`.
    fn set(&mut self, offset: u16, mask: u32, value: u32) {
        let (reg, shift) = place(offset);
        let old = self.read(reg);
        self.put(reg, (old & !(mask << shift)) | ((value & mask) << shift));
    }

    /// The byte at `offset`.
    #[must_use]
    pub fn get8(&self, offset: u16) -> u8 {
        let [byte, ..] = self.get32(offset).to_le_bytes();
        byte
    }

    /// The u16 at `offset`, which is even.
    #[must_use]
    pub fn get16(&self, offset: u16) -> u16 {
        let [a, b, ..] = self.get32(offset).to_le_bytes();
        u16::from_le_bytes([a, b])
    }

    /// The u32 at `offset`, which must be a multiple of 4: bytes of the next double word are not read.
    #[must_use]
    pub fn get32(&self, offset: u16) -> u32 {
        let (reg, shift) = place(offset);
        self.read(reg) >> shift
    }

    /// Sets the byte at `offset`, also if software cannot write it.
    pub fn set8(&mut self, offset: u16, value: u8) {
        self.set(offset, 0xFF, value.into());
    }

    /// Sets the u16 at `offset`, which is even.
    pub fn set16(&mut self, offset: u16, value: u16) {
        self.set(offset, 0xFFFF, value.into());
    }

    /// Sets the u32 at `offset`, which is a multiple of 4.
    pub fn set32(&mut self, offset: u16, value: u32) {
        self.set(offset, u32::MAX, value);
    }

    /// The u64 at `offset`, a multiple of 4.
    #[must_use]
    pub fn get64(&self, offset: u16) -> u64 {
        u64::from(self.get32(offset.saturating_add(4))) << 32 | u64::from(self.get32(offset))
    }

    /// Sets the u64 at `offset`.
    pub fn set64(&mut self, offset: u16, value: u64) {
        for (at, byte) in (offset..).zip(value.to_le_bytes()) {
            self.set8(at, byte);
        }
    }

    /// Sets or clears `bits` of the u16 at `offset`.
    pub fn set_bits16(&mut self, offset: u16, bits: u16, on: bool) {
        self.set(offset, bits.into(), if on { u32::MAX } else { 0 });
    }

    /// Makes exactly `bits` of the u16 at `offset` writable.
    pub fn allow16(&mut self, offset: u16, bits: u16) {
        self.masks(offset, 0xFFFF, bits.into(), None);
    }

    /// Makes exactly `bits` of the u32 at `offset` writable.
    pub fn allow32(&mut self, offset: u16, bits: u32) {
        self.masks(offset, u32::MAX, bits, None);
    }

    /// Makes `bits` of the u16 at `offset` write-1-to-clear, and all others of it read-only.
    pub fn clear_by_one16(&mut self, offset: u16, bits: u16) {
        self.masks(offset, 0xFFFF, 0, Some(bits.into()));
    }

    /// Makes `bits` of the u32 at `offset` write-1-to-clear, and all others of it read-only.
    pub fn clear_by_one32(&mut self, offset: u16, bits: u32) {
        self.masks(offset, u32::MAX, 0, Some(bits));
    }

    fn masks(&mut self, offset: u16, mask: u32, rw: u32, w1c: Option<u32>) {
        let (reg, shift) = place(offset);
        let mask = mask << shift;
        if let Some(word) = self.words.get_mut(usize::from(reg.index())) {
            word.rw = (word.rw & !mask) | ((rw << shift) & mask);
            word.w1c = (word.w1c & !mask) | ((w1c.unwrap_or(0) << shift) & mask);
        }
    }

    /// Bits of `reg` that software cannot change.
    #[must_use]
    pub fn read_only(&self, reg: Reg) -> u32 {
        let word = self.word(reg);
        !(word.rw | word.w1c)
    }

    /// Appends a capability of `len` bytes to the list and returns its offset.
    ///
    /// # Errors
    /// No room is left below 100h.
    pub fn add(&mut self, id: u8, len: u16) -> Result<u16, SpaceError> {
        let (at, last) = self.list;
        let next = after(at, len, EXT_FIRST).ok_or(SpaceError::Full {
            id: id.into(),
            len,
            end: EXT_FIRST,
        })?;
        // The pointer of the one before, or of the header, and the status bit without which software does not
        // follow it (PCIe 6.0, 7.5.1.1.4).
        let [byte, _] = at.to_le_bytes();
        self.set8(last.map_or(regs::CAPABILITIES, |last| last + 1), byte);
        self.set_bits16(regs::STATUS, regs::status::CAPABILITIES, true);
        self.set8(at, id);
        self.list = (next, Some(at));
        Ok(at)
    }

    /// Appends an extended capability of `len` bytes, including its header; returns its offset.
    ///
    /// # Errors
    /// No room is left in the space.
    pub fn add_ext(&mut self, id: u16, version: u8, len: u16) -> Result<u16, SpaceError> {
        let (at, last) = self.ext;
        let next = after(at, len, EXT_END).ok_or(SpaceError::Full { id, len, end: EXT_END })?;
        // No header pointer here: the list starts at 100h by definition (7.6.3), and the next pointer of the last
        // capability stays 0.
        if let Some(last) = last {
            self.set16(last + 2, (self.get16(last + 2) & 0xF) | (at << 4));
        }
        self.set16(at, id);
        self.set16(at + 2, u16::from(version & 0xF));
        self.ext = (next, Some(at));
        Ok(at)
    }

    /// The space as bytes, as `lspci -xxxx` dumps it.
    #[must_use]
    pub fn bytes(&self) -> Vec<u8> {
        self.words.iter().flat_map(|word| word.value.to_le_bytes()).collect()
    }
}

/// Lower half of a u64.
pub(in crate::pci) const fn low32(value: u64) -> u32 {
    let [a, b, c, d, ..] = value.to_le_bytes();
    u32::from_le_bytes([a, b, c, d])
}

/// Upper half of a u64.
pub(in crate::pci) const fn high32(value: u64) -> u32 {
    low32(value >> 32)
}

/// Double word that holds `offset`, and the number of bits below `offset` in it. An offset beyond the space gives a
/// [`Reg`] that no table has.
const fn place(offset: u16) -> (Reg, u32) {
    // `Reg::at` would wrap to 10 bits, as on the wire, and hit the header.
    if offset >= EXT_END {
        return (Reg(u16::MAX), 0);
    }
    (Reg::at(offset), (offset & 3) as u32 * 8)
}

/// Offset for the next capability behind one of `len` bytes at `at`; `None` past `end`.
fn after(at: u16, len: u16, end: u16) -> Option<u16> {
    // Capabilities are aligned to 4 bytes: the low two bits of a next pointer are reserved.
    let next = at.checked_add(len)?.checked_next_multiple_of(4)?;
    (next <= end && len >= 2).then_some(next)
}

#[cfg(test)]
mod tests {
    use weft_base::rng::Rng;

    use super::*;

    #[test]
    fn byte_enables_let_their_bytes_through() {
        #[rustfmt::skip] // columns: offset, len, bits, mask
        let cases = [
            (0x04, 2, 0b0011, 0x0000_FFFF),
            (0x06, 2, 0b1100, 0xFFFF_0000),
            (0x05, 1, 0b0010, 0x0000_FF00),
            (0x00, 4, 0b1111, 0xFFFF_FFFF),
            (0x03, 4, 0b1000, 0xFF00_0000),
            (0x03, 0, 0b0000, 0x0000_0000),
        ];
        for (offset, len, bits, mask) in cases {
            let enables = ByteEnables::of(offset, len);
            assert_eq!((enables.bits(), enables.mask()), (bits, mask), "{len} at {offset:#x}");
        }
    }

    #[test]
    fn a_write_changes_what_it_may() {
        let mut space = Space::new();
        space.set32(0x10, 0xA5A5_00FF);
        space.allow16(0x10, 0xFFF0);
        space.clear_by_one16(0x12, 0x00FF);
        #[rustfmt::skip] // columns: name, value, enables, want
        let cases = [
            ("read-only nibble stays",   0x0000_0000, 0b0001, 0xA5A5_000F),
            ("other byte is untouched", 0xFFFF_FFFF, 0b0000, 0xA5A5_00FF),
            ("second byte only",        0xFFFF_12FF, 0b0010, 0xA5A5_12FF),
            ("a 1 clears",               0xFF01_0000, 0b1100, 0xA5A4_00FF),
            ("a 0 does not clear",       0x0000_0000, 0b1100, 0xA5A5_00FF),
            ("all",                      0xFFFF_FFFF, 0b1111, 0xA500_FFFF),
        ];
        for (name, value, enables, want) in cases {
            let mut space = space.clone();
            let written = space.write(Reg::at(0x10), value, ByteEnables::from_low_bits(enables));
            assert_eq!(space.read(Reg::at(0x10)), want, "{name}");
            assert_eq!((written.old, written.new), (0xA5A5_00FF, want), "{name}");
        }
    }

    #[test]
    fn capabilities_are_linked_in_order_and_end() {
        let mut space = Space::new();
        assert_eq!(space.get16(regs::STATUS), 0);
        assert_eq!(space.add(0x10, 0x3C), Ok(0x40));
        assert_eq!(space.add(0x05, 0x0E), Ok(0x7C));
        assert_eq!(space.add(0x11, 0x0C), Ok(0x8C));
        assert_eq!(
            (space.get8(0x34), space.get16(0x40), space.get16(0x7C)),
            (0x40, 0x7C10, 0x8C05)
        );
        assert_eq!((space.get16(0x8C), space.get16(regs::STATUS)), (0x0011, 0x10));
        assert_eq!(space.add(0x09, 0x69), Err(SpaceError::Full { id: 9, len: 0x69, end: 0x100 }));
        assert_eq!(space.add(0x09, 0x68), Ok(0x98), "to the last byte");

        assert_eq!(space.get32(0x100), 0, "no extended capability");
        assert_eq!(space.add_ext(0x0001, 2, 0x2C), Ok(0x100));
        assert_eq!(space.add_ext(0x001C, 1, 8), Ok(0x12C));
        assert_eq!((space.get32(0x100), space.get32(0x12C)), (0x12C2_0001, 0x0001_001C));
        assert!(space.add_ext(3, 1, 0xECD).is_err());
        assert_eq!(space.add_ext(3, 1, 0xECC), Ok(0x134));
    }

    #[test]
    fn bytes_beyond_the_space_are_not_there() {
        let mut space = Space::new();
        for offset in [0x1000, 0x1002, 0xFFFC, 0xFFFF] {
            space.set32(offset, u32::MAX);
            space.allow32(offset, u32::MAX);
            assert_eq!(space.get32(offset), 0);
        }
        assert_eq!(space, Space::new());
        assert_eq!(Reg::new(1024), Reg::new(0), "10 bits, as on the wire");
    }

    /// Against a model of single bits: bits that are disabled or not writable never change.
    #[test]
    fn random_writes_keep_to_the_masks() {
        let mut rng = Rng::new(0x5BACE);
        for _ in 0..20_000 {
            let mut draw = || u32::try_from(rng.below(1 << 32)).unwrap();
            let word = Word { value: draw(), rw: draw(), w1c: draw() };
            let rw = word.rw & !word.w1c;
            let mut space = Space::new();
            space.set32(0x80, word.value);
            space.masks(0x80, u32::MAX, rw, Some(word.w1c));
            let (value, enables) = (draw(), ByteEnables::from_low_bits(draw().to_le_bytes()[0]));
            space.write(Reg::at(0x80), value, enables);
            for bit in 0..32 {
                let of = |word: u32| word >> bit & 1;
                let want = match (enables.bits() >> (bit / 8) & 1, of(rw), of(word.w1c)) {
                    (1, 1, _) => of(value),
                    (1, _, 1) if of(value) == 1 => 0,
                    _ => of(word.value),
                };
                assert_eq!(of(space.get32(0x80)), want, "bit {bit} of {word:x?}, {value:x}");
            }
        }
    }
}
