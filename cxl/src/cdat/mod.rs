//! Coherent Device Attribute Tables (CDAT) of devices and switches: their structures, and the table made of them.
//!
//! [`memory`] and [`switch`] build structures, a [`Table`] puts a header in front; [`read`] is the reader's side.
//!
//! Units: bytes; latency in ps, bandwidth in MB/s, each an entry of 16 bits times a base unit.
//! Source: CDAT 1.03 (header; DSMAS type 0, DSLBIS type 1, SSLBIS type 5); docs/spec/wire-formats.md §3.13.

pub mod read;

/// Length of the header in bytes.
pub const HEAD: usize = 16;
const REVISION: u8 = 1;
const CHECKSUM_AT: usize = 5;

/// Type numbers of structures.
pub(crate) mod kind {
    pub const DSMAS: u8 = 0;
    pub const DSLBIS: u8 = 1;
    pub const SSLBIS: u8 = 5;
}

/// Port number in an SSLBIS for the upstream port.
pub const UPSTREAM: u16 = 0x0100;
/// Port number in an SSLBIS for any port.
pub const ANY_PORT: u16 = 0xFFFF;
/// Largest entry that is a figure; `FFFFh` marks an unknown one.
const ENTRY_MAX: u64 = 0xFFFE;

/// Flags of a DSMAS structure.
pub mod flags {
    /// The memory keeps its bytes without power.
    pub const NON_VOLATILE: u8 = 1 << 2;
    /// Dynamic capacity: not all of the range is backed by memory at any time.
    pub const DYNAMIC: u8 = 1 << 5;
}

/// Quantity and direction of a figure in DSLBIS or SSLBIS.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[repr(u8)]
pub enum DataType {
    /// Latency of loads and stores alike.
    AccessLatency = 0,
    /// Latency of loads alone.
    ReadLatency = 1,
    /// Latency of stores alone.
    WriteLatency = 2,
    /// Bandwidth of loads and stores alike.
    AccessBandwidth = 3,
    /// Bandwidth of loads alone.
    ReadBandwidth = 4,
    /// Bandwidth of stores alone.
    WriteBandwidth = 5,
}

/// Latency and bandwidth of memory, or of the path through a switch.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Figures {
    pub latency_ps: u64,
    pub bandwidth_mbps: u64,
}

impl Figures {
    /// Default of a memory device: DRAM behind a controller with two DDR5 channels.
    pub const MEMORY: Self = Self { latency_ps: 150_000, bandwidth_mbps: 64_000 };
    /// A switch without load: its egress and crossbar, and a port of 16 lanes at 64 GT/s.
    pub const SWITCH: Self = Self { latency_ps: 100_000, bandwidth_mbps: 128_000 };

    /// These figures behind a path: latencies add, the lower bandwidth counts; a path with bandwidth 0 bounds
    /// nothing.
    #[must_use]
    pub const fn and_path(self, path: Self) -> Self {
        let bound = path.bandwidth_mbps;
        let is_bound = bound != 0 && bound < self.bandwidth_mbps;
        Self {
            latency_ps: self.latency_ps.saturating_add(path.latency_ps),
            bandwidth_mbps: if is_bound { bound } else { self.bandwidth_mbps },
        }
    }
}

/// A range of a device's memory.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Range {
    /// First device physical address (DPA).
    pub base: u64,
    /// Length in bytes.
    pub len: u64,
    /// Flags of the DSMAS, from [`flags`].
    pub flags: u8,
}

impl Range {
    /// Volatile memory that is always backed.
    #[must_use]
    pub const fn plain(base: u64, len: u64) -> Self {
        Self { base, len, flags: 0 }
    }
}

/// The CDAT of a component: header and structures.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Table {
    structures: Vec<Vec<u8>>,
    /// Sequence number in the header: the number of changes.
    sequence: u32,
}

impl Table {
    /// A table with these structures.
    #[must_use]
    pub const fn new(structures: Vec<Vec<u8>>) -> Self {
        Self { structures, sequence: 0 }
    }

    /// Replaces the structures; if they differ, the sequence number goes up.
    pub fn replace(&mut self, structures: Vec<Vec<u8>>) {
        // Readers compare the sequence number to notice a change, so an equal table must keep it.
        if self.structures != structures {
            self.structures = structures;
            self.sequence = self.sequence.wrapping_add(1);
        }
    }

    fn head(&self) -> [u8; HEAD] {
        let len = HEAD + self.structures.iter().map(Vec::len).sum::<usize>();
        let [l0, l1, l2, l3] = u32::try_from(len).unwrap_or(u32::MAX).to_le_bytes();
        let [s0, s1, s2, s3] = self.sequence.to_le_bytes();
        let mut head = [l0, l1, l2, l3, REVISION, 0, 0, 0, 0, 0, 0, 0, s0, s1, s2, s3];
        let all = head.iter().chain(self.structures.iter().flatten());
        let sum = all.fold(0_u8, |sum, byte| sum.wrapping_add(*byte));
        // All bytes of the table add up to 0.
        if let Some(place) = head.get_mut(CHECKSUM_AT) {
            *place = sum.wrapping_neg();
        }
        head
    }

    /// The whole table as bytes.
    #[must_use]
    pub fn bytes(&self) -> Vec<u8> {
        let mut all = self.head().to_vec();
        self.structures.iter().for_each(|structure| all.extend(structure));
        all
    }

    /// Entry of a handle (0 is the header), and the handle of the next entry, `FFFFh` behind the last.
    #[must_use]
    pub fn entry(&self, handle: u16) -> Option<(Vec<u8>, u16)> {
        let at = usize::from(handle);
        let entry = match at.checked_sub(1) {
            None => self.head().to_vec(),
            Some(at) => self.structures.get(at)?.clone(),
        };
        // Handle n is structure n - 1, so the last structure has the handle `len`.
        let next = handle.checked_add(1).filter(|_| at < self.structures.len());
        Some((entry, next.unwrap_or(u16::MAX)))
    }
}

/// DSMAS structure: a range of memory and its handle.
#[must_use]
pub fn dsmas(handle: u8, range: Range) -> Vec<u8> {
    let mut all = vec![kind::DSMAS, 0, 24, 0, handle, range.flags, 0, 0];
    all.extend(range.base.to_le_bytes());
    all.extend(range.len.to_le_bytes());
    all
}

/// DSLBIS structure: one figure of the range with that handle, `value` times `unit`.
#[must_use]
pub fn dslbis(handle: u8, what: DataType, unit: u64, value: u16) -> Vec<u8> {
    let mut all = vec![kind::DSLBIS, 0, 24, 0, handle, 0, what as u8, 0];
    all.extend(unit.to_le_bytes());
    // Only the first of three entries is used; the last word is reserved.
    for word in [value, 0, 0, 0] {
        all.extend(word.to_le_bytes());
    }
    all
}

/// SSLBIS structure: one figure for each way from the upstream port to another one, (port, value) in `unit`.
fn sslbis(what: DataType, unit: u64, ways: &[(u16, u16)]) -> Vec<u8> {
    let len = u16::try_from(16 + 8 * ways.len()).unwrap_or(u16::MAX);
    let mut all = vec![kind::SSLBIS, 0];
    all.extend(len.to_le_bytes());
    all.extend([what as u8, 0, 0, 0]);
    all.extend(unit.to_le_bytes());
    for (port, value) in ways {
        for word in [UPSTREAM, *port, *value, 0] {
            all.extend(word.to_le_bytes());
        }
    }
    all
}

/// The smallest base unit, `least` times a power of ten, in which `most` fits an entry.
fn unit(most: u64, least: u64) -> u64 {
    let mut unit = least;
    while most / unit > ENTRY_MAX {
        unit = unit.saturating_mul(10);
    }
    unit
}

/// A figure as an entry. Latencies are rounded up, bandwidths down, and neither becomes 0, which would mean
/// unknown.
fn entry(value: u64, unit: u64, up: bool) -> u16 {
    let entry = if up { value.div_ceil(unit) } else { value / unit };
    u16::try_from(entry.clamp(1, ENTRY_MAX)).unwrap_or(u16::MAX)
}

/// Base unit of latencies in ps: 1 ns, while 16 bits suffice.
const NS: u64 = 1_000;

/// Structures of a device's memory: for each range a DSMAS, and latency and bandwidth of loads and stores. A
/// range's handle is its index.
#[must_use]
pub fn memory(ranges: &[Range], figures: Figures) -> Vec<Vec<u8>> {
    let Figures { latency_ps, bandwidth_mbps } = figures;
    let (latency_unit, bandwidth_unit) = (unit(latency_ps, NS), unit(bandwidth_mbps, 1));
    let latency = entry(latency_ps, latency_unit, true);
    let bandwidth = entry(bandwidth_mbps, bandwidth_unit, false);
    let mut all = Vec::new();
    // A handle has 8 bits; ranges beyond 256 are left out.
    for (handle, range) in (0..=u8::MAX).zip(ranges) {
        all.push(dsmas(handle, *range));
        for (what, unit, value) in [
            (DataType::ReadLatency, latency_unit, latency),
            (DataType::WriteLatency, latency_unit, latency),
            (DataType::ReadBandwidth, bandwidth_unit, bandwidth),
            (DataType::WriteBandwidth, bandwidth_unit, bandwidth),
        ] {
            all.push(dslbis(handle, what, unit, value));
        }
    }
    all
}

/// Structures of a switch: latency and bandwidth from its upstream port to each port in `ways`.
#[must_use]
pub fn switch(ways: &[(u8, Figures)]) -> Vec<Vec<u8>> {
    // One base unit for all ways of a structure, so the largest figure decides.
    let latency = unit(ways.iter().map(|(_, it)| it.latency_ps).max().unwrap_or(0), NS);
    let bandwidth = unit(ways.iter().map(|(_, it)| it.bandwidth_mbps).max().unwrap_or(0), 1);
    let latencies =
        ways.iter().map(|(port, it)| ((*port).into(), entry(it.latency_ps, latency, true)));
    let bandwidths =
        ways.iter().map(|(port, it)| ((*port).into(), entry(it.bandwidth_mbps, bandwidth, false)));
    vec![
        sslbis(DataType::AccessLatency, latency, &latencies.collect::<Vec<_>>()),
        sslbis(DataType::AccessBandwidth, bandwidth, &bandwidths.collect::<Vec<_>>()),
    ]
}

#[cfg(test)]
mod tests {
    use super::*;

    fn sum(bytes: &[u8]) -> u8 {
        bytes.iter().fold(0, |sum, byte| sum.wrapping_add(*byte))
    }

    /// Bytes by hand: 512 MiB, 150 ns, 64,000 MB/s.
    #[test]
    fn a_device_tells_of_each_range() {
        let table = Table::new(memory(&[Range::plain(0, 0x2000_0000)], Figures::MEMORY));
        #[rustfmt::skip]
        let want: [(u16, &[u8], u16); 6] = [
            (0, &[136, 0, 0, 0, 1, 0xD7, 0, 0,  0, 0, 0, 0, 0, 0, 0, 0], 1),
            (1, &[0, 0, 24, 0, 0, 0, 0, 0,  0, 0, 0, 0, 0, 0, 0, 0,  0, 0, 0, 0x20, 0, 0, 0, 0], 2),
            (2, &[1, 0, 24, 0, 0, 0, 1, 0,  0xE8, 3, 0, 0, 0, 0, 0, 0,  150, 0, 0, 0, 0, 0, 0, 0], 3),
            (3, &[1, 0, 24, 0, 0, 0, 2, 0,  0xE8, 3, 0, 0, 0, 0, 0, 0,  150, 0, 0, 0, 0, 0, 0, 0], 4),
            (4, &[1, 0, 24, 0, 0, 0, 4, 0,  1, 0, 0, 0, 0, 0, 0, 0,  0x00, 0xFA, 0, 0, 0, 0, 0, 0], 5),
            (5, &[1, 0, 24, 0, 0, 0, 5, 0,  1, 0, 0, 0, 0, 0, 0, 0,  0x00, 0xFA, 0, 0, 0, 0, 0, 0], 0xFFFF),
        ];
        let mut all = Vec::new();
        for (handle, bytes, next) in want {
            assert_eq!(table.entry(handle), Some((bytes.to_vec(), next)), "{handle}");
            all.extend(bytes);
        }
        assert_eq!(table.entry(6), None);
        assert_eq!(table.entry(u16::MAX), None);
        assert_eq!((table.bytes(), sum(&table.bytes())), (all, 0));
    }

    /// Bytes by hand: two ports, one of them behind a path of 205 ns and 32 GB/s.
    #[test]
    fn a_switch_tells_of_each_port_below() {
        let path = Figures { latency_ps: 205_000, bandwidth_mbps: 32_000 };
        let ways = [(1, Figures::SWITCH), (2, Figures::SWITCH.and_path(path))];
        #[rustfmt::skip]
        let want: [&[u8]; 2] = [
            &[5, 0, 32, 0, 0, 0, 0, 0,  0xE8, 3, 0, 0, 0, 0, 0, 0,
              0, 1, 1, 0, 100, 0, 0, 0,  0, 1, 2, 0, 0x31, 1, 0, 0],
            &[5, 0, 32, 0, 3, 0, 0, 0,  10, 0, 0, 0, 0, 0, 0, 0,
              0, 1, 1, 0, 0x00, 0x32, 0, 0,  0, 1, 2, 0, 0x80, 0x0C, 0, 0],
        ];
        assert_eq!(switch(&ways), want);
        assert_eq!(switch(&[]).iter().map(Vec::len).sum::<usize>(), 32);
    }

    #[test]
    fn an_unbound_path_adds_latency_alone() {
        let path = Figures { latency_ps: 7, bandwidth_mbps: 0 };
        let want = Figures { latency_ps: 100_007, bandwidth_mbps: 128_000 };
        assert_eq!(Figures::SWITCH.and_path(path), want);
    }

    #[test]
    fn entries_stay_in_16_bits_and_are_never_0() {
        #[rustfmt::skip] // columns: value, least unit, unit, latency, bandwidth
        let cases = [
            (0,           1_000, 1_000,       1,      1),
            (1,           1_000, 1_000,       1,      1),
            (65_534_000,  1_000, 1_000,       65_534, 65_534),
            (65_535_001,  1_000, 10_000,      6_554,  6_553),
            (u64::MAX,    1,     1_000_000_000_000_000, 18_447, 18_446),
        ];
        for (value, least, want, latency, bandwidth) in cases {
            let unit = unit(value, least);
            let got = (unit, entry(value, unit, true), entry(value, unit, false));
            assert_eq!(got, (want, latency, bandwidth), "{value}");
        }
    }

    #[test]
    fn another_table_counts() {
        let one = || memory(&[Range::plain(0, 1 << 28)], Figures::MEMORY);
        let mut table = Table::new(one());
        table.replace(one());
        assert_eq!(table.bytes()[12..16], [0; 4], "the same");
        table.replace(Vec::new());
        assert_eq!(table.bytes(), [16, 0, 0, 0, 1, 0xEE, 0, 0, 0, 0, 0, 0, 1, 0, 0, 0]);
        assert_eq!(table.entry(0).map(|(_, next)| next), Some(u16::MAX));
    }
}
