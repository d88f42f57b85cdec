//! The device's CDAT: a DSMAS for each media partition.
//!
//! A header of 16 bytes, then 24 bytes for each partition, whose number is the DSMAS handle. Addresses are the device's
//! own (DPA).
//!
//! Source: CDAT 1.03 (header, DSMAS type 0, flags bit 2 non-volatile to bit 6 read-only, as those of a partition);
//! docs/spec/wire-formats.md §4.7 (4905h).

use super::dmp_entry;
use crate::cdat::{Range, Table, dsmas};
use crate::gfd::dmp::Dmp;

/// Encodes the CDAT of a device with these partitions.
pub(super) fn of_partitions<'a>(dmps: impl Iterator<Item = &'a Dmp>) -> Vec<u8> {
    let one = |dmp: &Dmp| {
        let flags = dmp_entry(dmp).flags;
        dsmas(dmp.index, Range { base: dmp.base.0, len: dmp.len, flags })
    };
    Table::new(dmps.map(one).collect()).bytes()
}

#[cfg(test)]
mod tests {
    use weft_parsers::fabric::Dpa;

    use super::*;
    use crate::gfd::dmp::Media;

    /// Bytes by hand: a partition of DRAM, and one that is non-volatile.
    #[test]
    fn each_partition_has_a_dsmas_with_its_flags() {
        let part = |index, base, media| {
            let (len, block) = (1 << 28, 1 << 24);
            Dmp { index, base: Dpa(base), decode_len: len, len, block, media }
        };
        let pm = Media { non_volatile: true, ..Media::default() };
        let dmps = [part(0, 0, Media::default()), part(1, 1 << 28, pm)];
        #[rustfmt::skip] // header; DSMAS: type, length, handle, flags, base, length
        let want = [
            [64, 0, 0, 0, 1, 0x08, 0, 0,   0, 0, 0, 0, 0, 0, 0, 0,      0, 0, 24, 0, 0, 0x20, 0, 0],
            [0, 0, 0, 0, 0, 0, 0, 0,       0, 0, 0, 0x10, 0, 0, 0, 0,   0, 0, 24, 0, 1, 0x24, 0, 0],
        ];
        let want =
            [want.concat(), vec![0, 0, 0, 0x10, 0, 0, 0, 0, 0, 0, 0, 0x10, 0, 0, 0, 0]].concat();
        let made = of_partitions(dmps.iter());
        let sum = |all: &[u8]| all.iter().fold(0_u8, |sum, byte| sum.wrapping_add(*byte));
        assert_eq!(sum(&made), 0);
        let but_sum = |mut all: Vec<u8>| {
            all[5] = 0;
            all
        };
        assert_eq!(but_sum(made), but_sum(want));
        assert_eq!(of_partitions([].iter()), [16, 0, 0, 0, 1, 239, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0]);
    }
}
