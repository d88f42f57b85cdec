//! The reader's side of a CDAT: ranges of memory and paths through switches, with latency and bandwidth.
//!
//! [`Contents`] interprets structures given as bytes; [`Access::through`] adds the figures of a device and of the
//! switches above it.
//!
//! Units: bytes, ps, MB/s.
//! Source: CDAT 1.03; CXL 3.1 section 7.7.12.4. The bytes may be anything: the device wrote them.

use std::collections::BTreeMap;

use super::{ANY_PORT, DataType, HEAD, UPSTREAM, kind};

/// Latency and bandwidth; `None` for figures that the table does not have.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Access {
    /// Latency of loads, ps.
    pub read_latency_ps: Option<u64>,
    /// Latency of stores, ps.
    pub write_latency_ps: Option<u64>,
    /// Bandwidth of loads, MB/s.
    pub read_bandwidth_mbps: Option<u64>,
    /// Bandwidth of stores, MB/s.
    pub write_bandwidth_mbps: Option<u64>,
}

impl Access {
    /// Records a figure; an entry of 0 or `FFFFh` means unknown.
    fn set(&mut self, what: u8, unit: u64, entry: u16) {
        if entry == 0 || entry == u16::MAX {
            return;
        }
        let value = Some(unit.saturating_mul(entry.into()));
        let is = |one: DataType, all: DataType| what == one as u8 || what == all as u8;
        if is(DataType::ReadLatency, DataType::AccessLatency) {
            self.read_latency_ps = value;
        }
        if is(DataType::WriteLatency, DataType::AccessLatency) {
            self.write_latency_ps = value;
        }
        if is(DataType::ReadBandwidth, DataType::AccessBandwidth) {
            self.read_bandwidth_mbps = value;
        }
        if is(DataType::WriteBandwidth, DataType::AccessBandwidth) {
            self.write_bandwidth_mbps = value;
        }
    }

    /// These figures behind a switch: latencies add, the lower bandwidth counts. A figure that only one side has is
    /// taken as it is.
    #[must_use]
    pub fn through(self, switch: Self) -> Self {
        let sum = |a: Option<u64>, b: Option<u64>| match (a, b) {
            (Some(a), Some(b)) => Some(a.saturating_add(b)),
            (a, b) => a.or(b),
        };
        let least = |a: Option<u64>, b: Option<u64>| a.into_iter().chain(b).min();
        Self {
            read_latency_ps: sum(self.read_latency_ps, switch.read_latency_ps),
            write_latency_ps: sum(self.write_latency_ps, switch.write_latency_ps),
            read_bandwidth_mbps: least(self.read_bandwidth_mbps, switch.read_bandwidth_mbps),
            write_bandwidth_mbps: least(self.write_bandwidth_mbps, switch.write_bandwidth_mbps),
        }
    }
}

/// A range of memory (DSMAS), with its figures (DSLBIS).
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct MemoryRange {
    /// First address of the range.
    pub base: u64,
    /// Length in bytes.
    pub len: u64,
    /// Flags of the DSMAS, from [`super::flags`].
    pub flags: u8,
    /// Figures of its DSLBIS structures.
    pub access: Access,
}

/// The structures of a table that this reader knows.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Contents {
    /// Ranges of memory by handle.
    pub ranges: BTreeMap<u8, MemoryRange>,
    /// Figures of a switch, by pair of ports.
    pub ways: BTreeMap<(u16, u16), Access>,
}

/// Fields of a structure; bytes beyond its end read 0.
struct Fields<'a>(&'a [u8]);

impl Fields<'_> {
    fn byte(&self, at: usize) -> u8 {
        self.0.get(at).copied().unwrap_or_default()
    }

    fn half(&self, at: usize) -> u16 {
        u16::from_le_bytes([self.byte(at), self.byte(at + 1)])
    }

    fn double(&self, at: usize) -> u64 {
        let bytes = self.0.get(at..).and_then(|bytes| bytes.first_chunk());
        bytes.map_or(0, |bytes| u64::from_le_bytes(*bytes))
    }
}

impl Contents {
    /// Contents of these structures, in any order.
    pub fn of<'a>(structures: impl Iterator<Item = &'a [u8]> + Clone) -> Self {
        let mut found = Self::default();
        // All ranges first: a DSLBIS may stand before its DSMAS.
        for it in structures.clone().map(Fields).filter(|it| it.byte(0) == kind::DSMAS) {
            let range = found.ranges.entry(it.byte(4)).or_default();
            (range.base, range.len, range.flags) = (it.double(8), it.double(16), it.byte(5));
        }
        for it in structures.map(Fields) {
            match it.byte(0) {
                kind::DSLBIS => {
                    // A DSLBIS without a DSMAS belongs to no memory.
                    if let Some(range) = found.ranges.get_mut(&it.byte(4)) {
                        range.access.set(it.byte(6), it.double(8), it.half(16));
                    }
                }
                kind::SSLBIS => {
                    let (what, unit) = (it.byte(4), it.double(8));
                    for way in it.0.get(16..).unwrap_or_default().as_chunks::<8>().0 {
                        let way = Fields(way);
                        let ports = (way.half(0), way.half(2));
                        found.ways.entry(ports).or_default().set(what, unit, way.half(4));
                    }
                }
                _ => {}
            }
        }
        found
    }

    /// Contents of a whole table with its header; a truncated table gives those of the structures that are
    /// complete.
    #[must_use]
    pub fn of_table(bytes: &[u8]) -> Self {
        Self::of(structures(bytes.get(HEAD..).unwrap_or_default()))
    }

    /// Figures of the way from a switch's upstream port to the port `port`, which may be listed as "any port".
    #[must_use]
    pub fn way_to(&self, port: u8) -> Option<Access> {
        let port = u16::from(port);
        // The exact pair before wildcards, and either order of the two ports.
        let ways = [(UPSTREAM, port), (port, UPSTREAM), (UPSTREAM, ANY_PORT), (ANY_PORT, UPSTREAM)];
        let ways =
            ways.into_iter().chain([(port, ANY_PORT), (ANY_PORT, port), (ANY_PORT, ANY_PORT)]);
        ways.into_iter().find_map(|ports| self.ways.get(&ports).copied())
    }
}

/// Splits bytes into structures; ends at one whose length is below its header or beyond the end.
pub fn structures(bytes: &[u8]) -> impl Iterator<Item = &[u8]> + Clone {
    let mut rest = bytes;
    std::iter::from_fn(move || {
        let [_, _, low, high] = *rest.first_chunk::<4>()?;
        let len = usize::from(u16::from_le_bytes([low, high]));
        let (one, behind) = rest.split_at_checked(len).filter(|_| len >= 4)?;
        rest = behind;
        Some(one)
    })
}

#[cfg(test)]
mod tests {
    use super::super::{Figures, Range, Table, dslbis, dsmas, flags, memory, switch};
    use super::*;

    const fn all(latency_ps: u64, bandwidth_mbps: u64) -> Access {
        Access {
            read_latency_ps: Some(latency_ps),
            write_latency_ps: Some(latency_ps),
            read_bandwidth_mbps: Some(bandwidth_mbps),
            write_bandwidth_mbps: Some(bandwidth_mbps),
        }
    }

    #[test]
    fn what_was_written_is_read() {
        let ranges = [
            Range::plain(0, 1 << 28),
            Range { base: 1 << 28, len: 2 << 28, flags: flags::DYNAMIC },
        ];
        let figures = Figures { latency_ps: 170_000, bandwidth_mbps: 30_000 };
        let found = Contents::of_table(&Table::new(memory(&ranges, figures)).bytes());
        for (handle, Range { base, len, flags }) in (0..).zip(ranges) {
            let want = MemoryRange { base, len, flags, access: all(170_000, 30_000) };
            assert_eq!(found.ranges.get(&handle), Some(&want));
        }
        let found = Contents::of_table(&Table::new(switch(&[(3, Figures::SWITCH)])).bytes());
        assert_eq!(found.way_to(3), Some(all(100_000, 128_000)));
        assert_eq!(found.way_to(4), None);
    }

    /// A device of 150 ns and 64 GB/s, behind a switch of 100 ns and one of 205 ns and 32 GB/s.
    #[test]
    fn latencies_add_and_the_least_bandwidth_counts() {
        let path =
            all(150_000, 64_000).through(all(100_000, 128_000)).through(all(205_000, 32_000));
        assert_eq!(path, all(455_000, 32_000));
        let none = Access::default();
        assert_eq!(none.through(all(1, 2)), all(1, 2));
        assert_eq!(all(1, 2).through(none), all(1, 2));
        assert_eq!(all(u64::MAX, 2).through(all(1, 2)), all(u64::MAX, 2));
    }

    /// Random bytes: nothing is read behind the end, and no structure twice.
    #[test]
    fn broken_tables_are_read_as_far_as_they_go() {
        let good =
            [dsmas(7, Range::plain(5, 6)), dslbis(7, DataType::AccessLatency, 10, 3)].concat();
        for len in 0..good.len() {
            let found = Contents::of(structures(&good[..len]));
            assert_eq!(found.ranges.len(), usize::from(len >= 24), "{len}");
        }
        let mut endless = good.clone();
        endless[26] = 0;
        assert_eq!(Contents::of(structures(&endless)).ranges[&7].access, Access::default());
        // Without a range; an entry that means unknown; a unit that is too large; an unknown type.
        let cases: [(Vec<u8>, Option<u64>); 4] = [
            (dslbis(8, DataType::AccessLatency, 10, 3), None),
            (dslbis(7, DataType::AccessLatency, 10, 0xFFFF), None),
            (dslbis(7, DataType::AccessLatency, u64::MAX, 3), Some(u64::MAX)),
            (vec![0x77, 0, 5, 0, 0], None),
        ];
        for (more, want) in cases {
            let bytes = [dsmas(7, Range::plain(5, 6)), more].concat();
            let found = Contents::of(structures(&bytes));
            assert_eq!(found.ranges[&7].access.read_latency_ps, want, "{bytes:?}");
        }
    }
}
