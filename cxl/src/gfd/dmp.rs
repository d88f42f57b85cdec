//! Media partitions, and the regions within them: up to 4 [`Dmp`]s divide the DPA space, up to 8 [`Region`]s lie in
//! them. Changes are checked against all others first.
//!
//! Source: docs/spec/wire-formats.md §4.7 (4902, 4903, 4905, 4906); CXL 3.1 section 7.7.2.3.

use weft_parsers::fabric::Dpa;

use super::code::ReturnCode;
use super::protect::{BLOCKS_MAX, DMPS};

/// Most regions of a device.
pub const REGIONS: usize = 8;
/// Unit of bases and decode lengths of partitions and regions: 256 MiB.
pub const UNIT: u64 = 256 << 20;
/// Block sizes that a partition may have, bit n for 2^n bytes: 4 KiB to 1 TiB.
pub const BLOCK_SIZES: u64 = ((1 << 29) - 1) << 12;

/// The kind of memory in a partition.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
#[expect(clippy::struct_excessive_bools, reason = "five bits of a field on the wire")]
pub struct Media {
    /// Keeps its contents without power (bit 2).
    pub non_volatile: bool,
    /// A second group may be given the same capacity (bit 3).
    pub sharable: bool,
    /// Hardware keeps it coherent (bit 4).
    pub coherent: bool,
    /// Cannot be written (bit 6).
    pub read_only: bool,
    /// Capacity is zeroed when it is released.
    pub sanitize: bool,
}

/// A media partition; bit 5, "capacity is dynamic", is always set.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Dmp {
    /// Number of the partition, 0..=3.
    pub index: u8,
    pub base: Dpa,
    /// Addresses set aside for it.
    pub decode_len: u64,
    /// Bytes of memory from `base` on; 0 removes the partition.
    pub len: u64,
    /// Unit of allocation in bytes.
    pub block: u64,
    /// Kind of its memory.
    pub media: Media,
}

/// A region of dynamic capacity; it takes media and block size from the partition it lies in.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Region {
    /// Number of the region, 0..=7.
    pub id: u8,
    /// Block size; that of its partition.
    pub block: u64,
    /// Capacity of the region is zeroed when it is released.
    pub sanitize: bool,
    pub base: Dpa,
    /// Addresses set aside for it.
    pub decode_len: u64,
    /// Bytes from `base` on that capacity is allocated from; 0 removes the region.
    pub len: u64,
}

/// Whether two ranges have an address in common.
pub(super) const fn overlap(a: u64, a_len: u64, b: u64, b_len: u64) -> bool {
    a_len > 0 && b_len > 0 && a < b.saturating_add(b_len) && b < a.saturating_add(a_len)
}

/// Whether `start..start + len` lies in `base..base + room`.
pub(super) const fn within(start: u64, len: u64, base: u64, room: u64) -> bool {
    start >= base && len <= room && start - base <= room - len
}

impl Dmp {
    /// Whether its fields are consistent, in a device of `size` bytes.
    fn is_sound(&self, size: u64) -> bool {
        usize::from(self.index) < DMPS
            && self.base.0.is_multiple_of(UNIT)
            && self.decode_len.is_multiple_of(UNIT)
            && self.len.is_multiple_of(UNIT)
            && self.len <= self.decode_len
            && self.block.is_power_of_two()
            && self.block & BLOCK_SIZES != 0
            && self.len.is_multiple_of(self.block)
            && self.len / self.block <= BLOCKS_MAX
            && within(self.base.0, self.decode_len, 0, size)
    }

    /// Base-2 logarithm of the block size.
    #[must_use]
    pub const fn shift(&self) -> u32 {
        self.block.trailing_zeros()
    }
}

/// The partitions after `changes` to `old`, in a device of `size` bytes.
///
/// # Errors
/// Invalid Input: an index of 4 or more or named twice; a base or length that is no multiple of
/// 256 MiB, leaves the device or overlaps; a block size that is not offered, does not divide the
/// length, or makes more than 65,536 blocks.
pub fn changed(
    old: &[Option<Dmp>; DMPS],
    changes: &[Dmp],
    size: u64,
) -> Result<[Option<Dmp>; DMPS], ReturnCode> {
    let mut new = *old;
    let mut named = 0_u32;
    for dmp in changes {
        if !dmp.is_sound(size) || named & (1 << dmp.index) != 0 {
            return Err(ReturnCode::InvalidInput);
        }
        // Named twice, the later entry would silently replace the earlier one.
        named |= 1 << dmp.index;
        let place = new.get_mut(usize::from(dmp.index)).ok_or(ReturnCode::InvalidInput)?;
        *place = (dmp.len > 0).then_some(*dmp);
    }
    for (k, a) in new.iter().flatten().enumerate() {
        // Decode lengths, not lengths: addresses set aside may be filled by a later change.
        for b in new.iter().flatten().skip(k + 1) {
            if overlap(a.base.0, a.decode_len, b.base.0, b.decode_len) {
                return Err(ReturnCode::InvalidInput);
            }
        }
    }
    Ok(new)
}

impl Region {
    /// The partition that contains the region and has its block size.
    #[must_use]
    pub fn home<'a>(&self, dmps: &'a [Option<Dmp>; DMPS]) -> Option<&'a Dmp> {
        dmps.iter().flatten().find(|dmp| {
            within(self.base.0, self.decode_len, dmp.base.0, dmp.decode_len)
                && within(self.base.0, self.len, dmp.base.0, dmp.len)
                && self.block == dmp.block
                && (self.base.0 - dmp.base.0).is_multiple_of(dmp.block)
        })
    }

    /// Checks the region against the partitions and the other regions.
    ///
    /// # Errors
    /// Invalid Input: id of 8 or more; base or decode length no multiple of 256 MiB; length no
    /// multiple of the block; not within one partition of the same block size; or it overlaps.
    pub fn check(
        &self,
        dmps: &[Option<Dmp>; DMPS],
        regions: &[Option<Self>; REGIONS],
    ) -> Result<(), ReturnCode> {
        let aligned = self.base.0.is_multiple_of(UNIT)
            && self.decode_len.is_multiple_of(UNIT)
            && self.block > 0
            && self.len.is_multiple_of(self.block)
            && self.len <= self.decode_len;
        let mut others = regions.iter().flatten().filter(|other| other.id != self.id);
        let alone = others
            .all(|other| !overlap(self.base.0, self.decode_len, other.base.0, other.decode_len));
        let known = usize::from(self.id) < REGIONS;
        // Length 0 removes the region, whatever the other fields say.
        let fits = self.len == 0 || (aligned && alone && self.home(dmps).is_some());
        if known && fits { Ok(()) } else { Err(ReturnCode::InvalidInput) }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const GIB: u64 = 1 << 30;

    fn dmp(index: u8, base: u64, len: u64, block: u64) -> Dmp {
        Dmp { index, base: Dpa(base), decode_len: len, len, block, media: Media::default() }
    }

    #[test]
    fn partitions_keep_their_rules() {
        let good = dmp(0, 0, GIB, 1 << 20);
        #[rustfmt::skip] // columns: name, list, taken
        let cases: [(&str, &[Dmp], bool); 16] = [
            ("one",                  &[good], true),
            ("all of the device",    &[dmp(3, 0, 4 * GIB, 1 << 20)], true),
            ("none",                 &[], true),
            ("beside each other",    &[good, dmp(1, GIB, GIB, 4096)], false), // 262,144 blocks
            ("65,536 blocks",        &[good, dmp(1, GIB, UNIT, 4096)], true),
            ("block of 256 MiB",     &[dmp(0, 0, GIB, UNIT)], true),
            ("index 4",              &[dmp(4, 0, GIB, 1 << 20)], false),
            ("named twice",          &[good, good], false),
            ("overlap",              &[good, dmp(1, GIB - UNIT, GIB, 1 << 20)], false),
            ("base unaligned",       &[dmp(0, UNIT / 2, GIB, 1 << 20)], false),
            ("length unaligned",     &[dmp(0, 0, UNIT + 4096, 4096)], false),
            ("block no power of 2",  &[dmp(0, 0, 3 * UNIT, 3 << 20)], false),
            ("block too small",      &[dmp(0, 0, UNIT, 2048)], false),
            ("block does not divide", &[dmp(0, 0, 3 * UNIT, 2 * UNIT)], false),
            ("beyond the device",    &[dmp(0, 4 * GIB, UNIT, 1 << 20)], false),
            ("length above decode",  &[Dmp { decode_len: UNIT, ..good }], false),
        ];
        for (name, list, taken) in cases {
            assert_eq!(changed(&[None; DMPS], list, 4 * GIB).is_ok(), taken, "{name}");
        }
        let old = changed(&[None; DMPS], &[good], 4 * GIB).unwrap();
        assert_eq!(changed(&old, &[Dmp { len: 0, ..good }], 4 * GIB), Ok([None; DMPS]));
        assert!(changed(&old, &[dmp(1, UNIT, UNIT, 1 << 20)], 4 * GIB).is_err(), "over an old one");
    }

    #[test]
    fn regions_keep_their_rules() {
        let dmps = [Some(dmp(0, 0, GIB, 1 << 20)), None, Some(dmp(2, 2 * GIB, GIB, 1 << 21)), None];
        let (base, block) = (Dpa(0), 1 << 20);
        let good = Region { id: 0, block, sanitize: false, base, decode_len: GIB, len: UNIT };
        let mut regions = [None; REGIONS];
        regions[1] = Some(Region { id: 1, base: Dpa(2 * GIB), block: 1 << 21, ..good });
        #[rustfmt::skip] // columns: name, region, taken
        let cases = [
            ("part of a partition",  good, true),
            ("itself again",         Region { id: 1, base: Dpa(2 * GIB), block: 1 << 21, ..good }, true),
            ("taken away",           Region { len: 0, block: 0, ..good }, true),
            ("id 8",                 Region { id: 8, ..good }, false),
            ("id 8 taken away",      Region { id: 8, len: 0, ..good }, false),
            ("another block size",   Region { block: 1 << 21, ..good }, false),
            ("block 0",              Region { block: 0, ..good }, false),
            ("out of a partition",   Region { base: Dpa(UNIT), ..good }, false),
            ("in no partition",      Region { base: Dpa(GIB), ..good }, false),
            ("over another",         Region { id: 3, base: Dpa(2 * GIB), block: 1 << 21, ..good }, false),
            ("base unaligned",       Region { base: Dpa(1 << 20), decode_len: UNIT, ..good }, false),
            ("length no block",      Region { len: UNIT + 4096, ..good }, false),
            ("length above decode",  Region { decode_len: UNIT, len: 2 * UNIT, ..good }, false),
            ("at the very end",      Region { base: Dpa(!(UNIT - 1)), ..good }, false),
        ];
        for (name, region, taken) in cases {
            assert_eq!(region.check(&dmps, &regions).is_ok(), taken, "{name}");
        }
    }
}
