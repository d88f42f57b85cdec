//! Address maps of requesters: checks that a new range of memory fits beside the present ones.
//!
//! [`fits`] takes a new [`Range`], the ranges of its requester and the requester's own addresses, and returns the
//! [`Conflict`].
//!
//! The edge port knows segments, not memory: all requests for a segment go by its one FAST entry. So all memory in a
//! segment must have the same targets in the same granules, or the edge would send requests to GFDs that have other
//! addresses for them. A GFD accepts an address by one decoder: if two match, neither does. All within the window of
//! the edge port, from the first segment to the last, goes by FAST and nowhere else, so memory devices that a device
//! accesses directly (P2P), which LDST finds, must lie outside it.
//!
//! Source: docs/spec/wire-formats.md §5.1, §5.2; docs/spec/cxl-fabric.md "Ingress at an edge"; CXL 3.1 sections
//! 7.7.2.2, 7.7.2.4, 7.7.3.1.

use std::fmt;

use weft_parsers::fabric::Pid;

/// Bytes of a segment: 64 GiB, the smallest size there is (code 0).
pub const SEGMENT: u64 = 64 << 30;
/// Segments of a window at most, from the first to the last: the recommended minimum of FAST entries.
pub const SEGMENTS_MAX: u64 = 4_096;
/// Bytes of the smallest interleave granule.
const GRANULARITY_MIN: u32 = 256;
/// Bytes of the largest interleave granule.
const GRANULARITY_MAX: u32 = 16_384;

/// Addresses that a host uses itself: its memory, and the windows of its bridges.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct LocalRange {
    pub base: u64,
    /// Number of bytes; 0 for none.
    pub len: u64,
}

impl LocalRange {
    /// A weft host's own addresses (docs/endpoint.md): all below 4 GiB, and the window of 64-bit BARs.
    pub const WEFT_HOST: [Self; 2] =
        [Self { base: 0, len: 4 << 30 }, Self { base: 0x40_0000_0000, len: 0x40_0000_0000 }];
}

/// Mechanism by which requests of a range find their target.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Kind {
    /// G-FAM, by FAST.
    Memory,
    /// Memory of a host or device, by FAST.
    Gim,
    /// Memory of a host or device whose PID the requester names itself, in a prefix.
    GimByPrefix,
    /// A memory device, by LDST.
    P2p,
}

/// A range of a requester's addresses, and the components behind it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Range<T> {
    pub name: String,
    pub hpa: u64,
    /// Bytes; at least 1, and the range ends within 64 bits.
    pub len: u64,
    /// GFDs by way, or the one owner of the memory.
    pub targets: Vec<T>,
    /// Bytes of an interleave granule; meaningless with one target.
    pub granularity: u32,
    pub kind: Kind,
}

/// A rule that the address ranges of one requester must keep.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum Rule {
    /// An address leads to one memory.
    OwnAddresses,
    /// A segment has one FAST entry.
    OneEntry,
    /// The window has none of the host's own addresses in it.
    OwnWindow,
    /// The window is no longer than FAST.
    WindowDepth,
    /// Memory found by LDST is outside the window, where FAST comes first.
    OutsideWindow,
}

impl fmt::Display for Rule {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::OwnAddresses => "memory-own-addresses: an address of a requester leads to one memory",
            Self::OneEntry => {
                "segment-one-entry: all memory of a segment of 64 GiB has one FAST entry: the same \
                 GFDs in the same order, the same granularity, and no GIM beside it; and one LDST entry: \
                 the same memory device"
            }
            Self::OwnWindow => {
                "window-no-own-addresses: from the first segment of fabric memory to the last, all \
                 addresses are the fabric's: none are the host's own memory or its bridges'"
            }
            Self::WindowDepth => {
                "window-depth: from the first segment of fabric memory to the last are at most 4,096"
            }
            Self::OutsideWindow => {
                "p2p-outside-window: FAST comes before LDST: a memory device that is accessed directly lies outside of \
                 the window from the first segment of fabric memory to the byte behind the last"
            }
        })
    }
}

/// Why a range does not fit: the rule that it would break, and the reason.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("{rule}; {what}")]
pub struct Conflict {
    pub rule: Rule,
    /// The range or addresses that it conflicts with.
    pub what: String,
}

/// Other address ranges of a requester.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Beside {
    /// Ranges of memory of other kinds.
    pub others: Vec<Range<Pid>>,
    /// Addresses that its host uses itself.
    pub own: Vec<LocalRange>,
}

impl<T: PartialEq> Range<T> {
    const fn last(&self) -> u64 {
        self.hpa.saturating_add(self.len.saturating_sub(1))
    }

    const fn segments(&self) -> (u64, u64) {
        (self.hpa / SEGMENT, self.last() / SEGMENT)
    }

    const fn by_fast(&self) -> bool {
        matches!(self.kind, Kind::Memory | Kind::Gim)
    }

    /// Whether both are memory of one host or device, which may appear at one address under several names.
    fn same_owner(&self, other: &Self) -> bool {
        let p2p = |one: &Self| one.kind == Kind::P2p;
        let share = |one: &Self| one.kind == Kind::Memory;
        let alike = !share(self) && !share(other) && p2p(self) == p2p(other);
        alike && self.targets == other.targets
    }

    /// Whether the same FAST entry leads to both.
    fn same_entry(&self, other: &Self) -> bool {
        let granules = |one: &Self| if one.targets.len() > 1 { one.granularity } else { 0 };
        self.kind == other.kind
            && self.targets == other.targets
            && granules(self) == granules(other)
    }

    /// The entry in words.
    fn entry(&self) -> String {
        match (self.kind, self.targets.len()) {
            (Kind::Memory, 1) => "one GFD".to_owned(),
            (Kind::Memory, ways) => format!("{ways} ways of {} bytes", self.granularity),
            (Kind::Gim | Kind::GimByPrefix, _) => "memory of a host or device".to_owned(),
            (Kind::P2p, _) => "a memory device".to_owned(),
        }
    }
}

impl<T> fmt::Display for Range<T> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let last = self.hpa.saturating_add(self.len.saturating_sub(1));
        write!(f, "{} is at {:#x} to {last:#x}", self.name, self.hpa)
    }
}

/// Checks whether `new` fits beside the ranges `others` of a requester whose host uses `own` itself.
///
/// # Errors
/// The first rule that forbids it, with the reason.
pub fn fits<T: PartialEq>(
    new: &Range<T>,
    others: &[Range<T>],
    own: &[LocalRange],
) -> Result<(), Conflict> {
    let refuse = |rule, what: String| Err(Conflict { rule, what });
    let meets = |other: &&Range<T>| new.hpa <= other.last() && other.hpa <= new.last();
    if let Some(other) = others.iter().filter(meets).find(|other| !new.same_owner(other)) {
        return refuse(Rule::OwnAddresses, other.to_string());
    }
    let last = new.last();
    let has = |one: &&LocalRange| {
        one.len > 0 && new.hpa <= one.base.saturating_add(one.len - 1) && one.base <= last
    };
    let says = |one: &LocalRange| {
        let end = one.base.saturating_add(one.len.saturating_sub(1));
        format!("the host has {:#x} to {end:#x} for itself", one.base)
    };
    if let Some(one) = own.iter().find(has) {
        return refuse(Rule::OwnWindow, says(one));
    }
    if new.kind == Kind::GimByPrefix {
        // Requests with a prefix skip the address decode ("Ingress at an edge", step 1), so no table limits them.
        return Ok(());
    }
    let (first, last) = new.segments();
    let same_table = |other: &&Range<T>| match new.kind {
        Kind::P2p => other.kind == Kind::P2p,
        _ => other.by_fast(),
    };
    let shares = |other: &&Range<T>| {
        let (from, to) = other.segments();
        from <= last && first <= to && !other.same_entry(new)
    };
    if let Some(other) = others.iter().filter(same_table).find(shares) {
        let (had, has) = (other.entry(), new.entry());
        return refuse(Rule::OneEntry, format!("{other}, by {had}; this would be by {has}"));
    }
    let window = window(others.iter().filter(same_table)).unwrap_or((first, last));
    // The window would grow to take in the new range, and with it all segments between.
    let window = (window.0.min(first), window.1.max(last));
    beside_window(new, others)?;
    // FabricLimit is the first address behind the last segment, and goes by FAST, too.
    let limit = (window.1 + 1).saturating_mul(SEGMENT);
    let inside = |one: &&LocalRange| {
        let end = one.base.saturating_add(one.len.saturating_sub(1));
        one.len > 0 && one.base <= limit && window.0 * SEGMENT <= end
    };
    // P2P needs no room in the window: where LDST has no entry, the virtual switch routes as usual.
    if let Some(one) = own.iter().filter(|_| new.by_fast()).find(inside) {
        return refuse(Rule::OwnWindow, says(one));
    }
    let count = window.1 - window.0 + 1;
    if count > SEGMENTS_MAX {
        return refuse(Rule::WindowDepth, format!("with it there would be {count}"));
    }
    Ok(())
}

/// First and last segment of these ranges; `None` without ranges.
fn window<'a, T: PartialEq + 'a>(all: impl Iterator<Item = &'a Range<T>>) -> Option<(u64, u64)> {
    let both = |(low, high): (u64, u64), (from, to): (u64, u64)| (low.min(from), high.max(to));
    all.map(Range::segments).reduce(both)
}

/// Checks whether all memory found by LDST lies outside the window of FAST.
fn beside_window<T: PartialEq>(new: &Range<T>, others: &[Range<T>]) -> Result<(), Conflict> {
    let all = || others.iter().chain([new]);
    let Some((first, last)) = window(all().filter(|one| one.by_fast())) else { return Ok(()) };
    let limit = (last + 1).saturating_mul(SEGMENT);
    let inside = |one: &&Range<T>| one.hpa <= limit && first * SEGMENT <= one.last();
    let Some(one) = all().filter(|one| one.kind == Kind::P2p).find(inside) else { return Ok(()) };
    let what = format!("{one}; the window is {:#x} to {limit:#x}", first * SEGMENT);
    Err(Conflict { rule: Rule::OutsideWindow, what })
}

/// Why `len` bytes at `hpa` cannot be interleaved over `ways` in granules of `granule`; `None` if they can.
#[must_use]
pub fn misfit(ways: usize, granule: u32, hpa: u64, len: u64) -> Option<String> {
    if !ways.is_power_of_two() || ways > 256 {
        return Some(format!("{ways} GFDs: an interleave set has 1, 2, 4, 8, ... or 256"));
    }
    let is_granularity =
        granule.is_power_of_two() && (GRANULARITY_MIN..=GRANULARITY_MAX).contains(&granule);
    if !is_granularity {
        return Some(format!(
            "an interleave granule is a power of two from 256 bytes to 16 KiB, not {granule}"
        ));
    }
    // A single GFD is not interleaved, but sizes and addresses have the smallest granule all the same.
    let granule = if ways == 1 { GRANULARITY_MIN } else { granule };
    let set = u64::try_from(ways).unwrap_or(u64::MAX).saturating_mul(granule.into());
    let off = |what: &str, number: u64| {
        let sum = format!("{ways} ways of {granule} bytes");
        Some(format!("{what} is no multiple of {set:#x}, the bytes of {sum}: {number:#x}"))
    };
    if len == 0 || !len.is_multiple_of(set) {
        return off("the size", len);
    }
    if !hpa.is_multiple_of(set) {
        return off("the address", hpa);
    }
    let is_all = hpa.checked_add(len).is_some();
    (!is_all).then(|| "the memory ends beyond 64 bits of address".to_owned())
}

/// Why GFDs that give whole blocks of `block` bytes cannot give `len` in equal parts, with the nearest sizes that they
/// can give; `None` if they can.
#[must_use]
pub fn off_blocks(ways: u64, block: u64, len: u64) -> Option<String> {
    let unit = ways.checked_mul(block).filter(|unit| *unit > 0)?;
    if len.is_multiple_of(unit) {
        return None;
    }
    let (below, above) = (len / unit * unit, len.checked_next_multiple_of(unit));
    let sizes = [Some(below).filter(|size| *size > 0), above].into_iter().flatten();
    let sizes: Vec<String> = sizes.map(|size| format!("{size:#x}")).collect();
    Some(format!(
        "the size is no multiple of {unit:#x}, as {ways} GFDs give blocks of {block:#x} bytes: {len:#x}; {} would do",
        sizes.join(" or ")
    ))
}

#[cfg(test)]
mod tests {
    use super::*;

    const BASE: u64 = 1 << 40;

    fn range(name: &str, hpa: u64, len: u64, targets: &[u8], granularity: u32) -> Range<u8> {
        let (name, targets) = (name.to_owned(), targets.to_vec());
        Range { name, hpa, len, targets, granularity, kind: Kind::Memory }
    }

    fn gim(name: &str, hpa: u64, len: u64, of: u8, kind: Kind) -> Range<u8> {
        Range { kind, ..range(name, hpa, len, &[of], 0) }
    }

    #[test]
    fn what_may_be_beside_what() {
        let old = range("old", BASE, 0x1000_0000, &[1, 2], 4_096);
        let win = gim("win", BASE + SEGMENT, 0x1000, 9, Kind::Gim);
        let pre = gim("pre", BASE + 2 * SEGMENT, 0x1000, 9, Kind::GimByPrefix);
        let others = [old, win, pre];
        let end = BASE + 0x1000_0000;
        let (one, entry) = (Some(Rule::OwnAddresses), Some(Rule::OneEntry));
        let (window, depth) = (Some(Rule::OwnWindow), Some(Rule::WindowDepth));
        let own = LocalRange::WEFT_HOST;
        #[rustfmt::skip] // columns: name, new range, the rule against it
        let cases = [
            ("behind it, alike",        range("n", end, 0x2000, &[1, 2], 4_096), None),
            ("before it, alike",        range("n", BASE + 0x2000_0000, 0x2000, &[1, 2], 4_096), None),
            ("the same",                range("n", BASE, 0x1000_0000, &[1, 2], 4_096), one),
            ("its last bytes",         range("n", end - 0x2000, 0x4000, &[1, 2], 4_096), one),
            ("within it",               range("n", BASE + 0x2000, 0x2000, &[1, 2], 4_096), one),
            ("around it",               range("n", BASE - 0x2000, 0x2000_0000, &[1, 2], 4_096), one),
            ("another granularity",     range("n", end, 0x2000, &[1, 2], 256), entry),
            ("another order",           range("n", end, 0x2000, &[2, 1], 4_096), entry),
            ("other GFDs",              range("n", end, 0x2000, &[1, 3], 4_096), entry),
            ("other ways",              range("n", end, 0x2000, &[1], 4_096), entry),
            ("more ways",               range("n", end, 0x4000, &[1, 2, 3, 4], 4_096), entry),
            ("from the segment before", range("n", BASE - 0x2000, 0x2000, &[3], 0), None),
            ("into the next segment",   range("n", BASE + SEGMENT - 0x2000, 0x3000, &[1, 2], 4_096), one),
            ("GIM in its segment",      gim("n", end, 0x1000, 9, Kind::Gim), entry),
            ("memory beside GIM",       range("n", BASE + SEGMENT + 0x1000, 0x1000, &[9], 0), entry),
            ("GIM of the same",         gim("n", BASE + SEGMENT, 0x2000, 9, Kind::Gim), None),
            ("GIM of another",          gim("n", BASE + SEGMENT, 0x2000, 8, Kind::Gim), one),
            ("behind it, of another",   gim("n", BASE + SEGMENT + 0x1000, 0x1000, 8, Kind::Gim), entry),
            ("by prefix, of the same",  gim("n", BASE + SEGMENT, 0x1000, 9, Kind::GimByPrefix), None),
            ("by prefix, no entry",     gim("n", end, 0x1000, 8, Kind::GimByPrefix), None),
            ("by prefix, over memory",  gim("n", BASE, 0x1000, 9, Kind::GimByPrefix), one),
            ("where only a prefix is",  range("n", BASE + 2 * SEGMENT + 0x1000, 0x1000, &[4], 0), None),
            ("64-bit BARs",             range("n", 0x40_0000_0000, 0x1000, &[4], 0), window),
            ("up to the BARs",          range("n", 0x3F_FFFF_F000, 0x2000, &[4], 0), window),
            ("32-bit BARs",             range("n", 0x8000_0000, 0x1000, &[4], 0), window),
            ("BARs between",            range("n", 0x20_0000_0000, 0x1000, &[4], 0), window),
            ("right behind the BARs",   range("n", 0x80_0000_0000, 0x1000, &[4], 0), None),
            ("last of the table",       range("n", BASE + 4_095 * SEGMENT, 0x1000, &[4], 0), None),
            ("beyond the table",        range("n", BASE + 4_096 * SEGMENT, 0x1000, &[4], 0), depth),
        ];
        for (name, new, want) in cases {
            let got = fits(&new, &others, &own);
            assert_eq!(got.as_ref().err().map(|conflict| conflict.rule), want, "{name}: {got:?}");
        }
        let text = fits(&range("n", BASE, 64, &[1], 0), &others, &own).unwrap_err().to_string();
        assert!(text.contains("memory-own-addresses") && text.contains("old is at 0x10000000000"));
        let alone = range("n", 0x4000_0000_0000, 1 << 40, &[4], 0);
        assert_eq!(fits(&alone, &[], &[]), Ok(()), "several segments");
        let below = range("n", 0x30_0000_0000, 0x1000, &[4], 0);
        let bars = LocalRange { base: 0x40_0000_0000, len: 1 };
        assert_eq!(fits(&below, &[], &[bars]).unwrap_err().rule, Rule::OwnWindow, "FabricLimit");
        let behind = LocalRange { base: 0x40_0000_0001, ..bars };
        assert_eq!(fits(&below, &[], &[behind]), Ok(()));
        let huge = range("n", 0, u64::MAX, &[4], 0);
        assert_eq!(fits(&huge, &[], &[]).unwrap_err().rule, Rule::WindowDepth);
    }

    /// FAST comes before LDST, so P2P lies outside of the FAST window, whichever of the two was given first.
    #[test]
    fn memory_devices_lie_outside_of_the_window() {
        let old = range("old", BASE, 0x1000_0000, &[1, 2], 4_096);
        let win = gim("win", BASE + SEGMENT, 0x1000, 9, Kind::Gim);
        let pre = gim("pre", BASE + 2 * SEGMENT, 0x1000, 9, Kind::GimByPrefix);
        let others = [old, win, pre];
        let (one, entry) = (Some(Rule::OwnAddresses), Some(Rule::OneEntry));
        let (window, depth) = (Some(Rule::OwnWindow), Some(Rule::WindowDepth));
        let own = LocalRange::WEFT_HOST;
        let p2p = |hpa, of| gim("n", hpa, 0x1000, of, Kind::P2p);
        let (end, outside) = (BASE + 2 * SEGMENT, Some(Rule::OutsideWindow));
        let has = [p2p(end + 3 * SEGMENT, 7)];
        #[rustfmt::skip] // columns: name, new range, present ranges, the rule against it
        let cases = [
            ("P2P behind the window",       p2p(end + 0x10_0000, 7), &others[..], None),
            ("P2P at FabricLimit",          p2p(end, 7), &others[..2], outside),
            ("P2P right behind that",       p2p(end + 1, 7), &others[..2], None),
            ("P2P in the window",           p2p(BASE + 0x3000_0000, 7), &others[..], outside),
            ("P2P over memory",             p2p(BASE, 7), &others[..], one),
            ("P2P over GIM of the same",    p2p(BASE + SEGMENT, 9), &others[..], one),
            ("P2P with nothing else",       p2p(BASE, 7), &[], None),
            ("P2P where BARs are",          p2p(0x40_0000_0000, 7), &[], window),
            ("BARs in its segment",         p2p(0x3F_0000_0000, 7), &[], None),
            ("the same device twice",       p2p(end + 3 * SEGMENT, 7), &has[..], None),
            ("another one there",           p2p(end + 3 * SEGMENT, 8), &has[..], one),
            ("another one in its segment",  p2p(end + 3 * SEGMENT + 0x1000, 8), &has[..], entry),
            ("another one far off",         p2p(end + 4_100 * SEGMENT, 8), &has[..], depth),
            ("memory over a P2P",           range("n", end + 3 * SEGMENT, 0x1000, &[4], 0), &has[..], one),
            ("memory before it",            range("n", end + 2 * SEGMENT, 0x1000, &[4], 0), &has[..], outside),
            ("memory two before it",        range("n", end + SEGMENT, 0x1000, &[4], 0), &has[..], None),
            ("memory in its segment",       range("n", end + 3 * SEGMENT + 0x1000, 0x1000, &[4], 0), &has[..], outside),
            ("GIM right behind it",         gim("n", end + 4 * SEGMENT, 0x1000, 9, Kind::Gim), &has[..], None),
        ];
        for (name, new, others, want) in cases {
            let got = fits(&new, others, &own);
            assert_eq!(got.as_ref().err().map(|conflict| conflict.rule), want, "{name}: {got:?}");
        }
    }

    #[test]
    fn a_misfit_says_which_number_and_why() {
        #[rustfmt::skip] // columns: ways, granule, address, bytes, part of why
        let cases = [
            (1,   256,    0,          256,      None),
            (1,   300,    0,          256,      Some("power of two from 256 bytes to 16 KiB, not 300")),
            (4,   4_096,  BASE,       0x4000,   None),
            (256, 16_384, 0x40_0000,  0x40_0000, None),
            (3,   4_096,  0,          0x3000,   Some("3 GFDs")),
            (0,   4_096,  0,          0x3000,   Some("0 GFDs")),
            (512, 256,    0,          0x20000,  Some("512 GFDs")),
            (2,   3_000,  0,          6_000,    Some("power of two from 256 bytes to 16 KiB, not 3000")),
            (2,   32_768, 0,          65_536,   Some("not 32768")),
            (2,   128,    0,          256,      Some("not 128")),
            (4,   4_096,  0,          0x5000,   Some("size is no multiple of 0x4000, the bytes of 4 ways of 4096 bytes: 0x5000")),
            (1,   4_096,  0,          0,        Some("size is no multiple of 0x100")),
            (4,   4_096,  0x1000,     0x4000,   Some("address is no multiple of 0x4000")),
            (1,   4_096,  u64::MAX - 255, 256,  Some("beyond 64 bits")),
        ];
        for (ways, granule, hpa, len, part) in cases {
            let got = misfit(ways, granule, hpa, len);
            match part {
                None => assert_eq!(got, None),
                Some(part) => assert!(got.as_ref().is_some_and(|t| t.contains(part)), "{got:?}"),
            }
        }
    }
}
