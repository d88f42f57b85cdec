//! Segment tables of an edge port, FAST and LDST, as the host's GAE reports them.
//!
//! A session at a GAE and a bridge -> window, segments, DPIDs; all of a table -> [`SegmentTable`].
//!
//! Units: bytes; segments of 64 GiB << n.
//! Source: docs/spec/wire-formats.md §4.5 (570Ch to 5711h), §4.6 (5803h, 5805h, 5807h), §5.1.

use std::collections::BTreeMap;

use serde::{Deserialize, Serialize};
use weft_parsers::cci::Request;
use weft_parsers::cci::gae::{FastCaps, GetFastCaps};
use weft_parsers::cci::tables::{EdgeRange, Entries, LdstCaps};
use weft_parsers::fabric::{FastEntry, Hpa, Interleave, LdstEntry, Pid, Target};

use super::cci::{CallError, Fabric, Way};

/// Entries that are read by one command: their answer fits in a small mailbox.
const ENTRIES_AT_ONCE: u16 = 120;

/// What a segment table is set up as.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Window {
    /// Its first address.
    pub base: u64,
    /// Its last address.
    pub limit: u64,
    /// Bits of an address within a segment.
    pub shift: u32,
    /// Entries of the table.
    pub entries: u64,
    /// Entries of its interleave DPID table.
    idt: u16,
}

impl Window {
    fn new(base: Hpa, limit: Hpa, size: u8, entries: u16, idt: u16) -> Self {
        let shift = 36 + u32::from(size.min(7));
        Self { base: base.0, limit: limit.0, shift, entries: entries.into(), idt }
    }

    pub(crate) const fn is_off(&self) -> bool {
        self.base == 0 || self.limit == 0
    }

    pub(crate) const fn takes(&self, hpa: Hpa) -> bool {
        !self.is_off() && self.base <= hpa.0 && hpa.0 <= self.limit
    }

    /// The segment as commands count it, from the base on, and as the hardware does; none behind the last.
    pub(crate) fn place(&self, hpa: Hpa) -> Option<(u16, u64)> {
        let index = (hpa.0 >> self.shift).checked_sub(self.base >> self.shift)?;
        let hardware = (hpa.0 >> self.shift).checked_rem(self.entries)?;
        Some((u16::try_from(index).ok().filter(|_| index < self.entries)?, hardware))
    }

    /// Segments from the first to that of the last address, as far as the table has entries.
    fn segments(&self) -> u16 {
        let last = (self.limit >> self.shift).saturating_sub(self.base >> self.shift);
        u16::try_from(last.saturating_add(1).min(self.entries)).unwrap_or(u16::MAX)
    }
}

/// What an entry says.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Segment {
    /// It is memory of a host or device.
    pub gim: bool,
    /// How it is dealt out.
    pub interleave: Interleave,
    /// Where it goes.
    pub to: Target,
}

/// Which of the two tables.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Kind {
    /// Memory of the fabric.
    Fast,
    /// LD-FAM.
    Ldst,
}

/// A run of segments, side by side, whose entries are the same.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct SegmentRun {
    /// Where the first begins.
    pub hpa: u64,
    /// How many there are.
    pub segments: u32,
    /// It is memory of a host or device (GIM).
    pub gim: bool,
    /// Ways.
    pub ways: u16,
    /// Bytes of an interleave granule.
    pub granularity: u32,
    /// DPIDs by way; fewer than ways where the interleave DPID table ends before.
    pub targets: Vec<u16>,
}

/// A segment table as it was read.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct SegmentTable {
    /// `FabricBase`, or the first address of the LDST's window; 0 where the table is off.
    pub base: u64,
    /// `FabricLimit`, or the last address of the LDST's window; 0 where the table is off.
    pub limit: u64,
    /// Bytes of a segment.
    pub segment_bytes: u64,
    /// Entries that the table has.
    pub entries: u64,
    /// Its valid entries.
    pub runs: Vec<SegmentRun>,
}

impl Kind {
    pub(crate) const fn name(self) -> &'static str {
        match self {
            Self::Fast => "FAST",
            Self::Ldst => "LDST",
        }
    }

    /// What the table is set up as.
    pub(crate) fn window(self, gae: &mut Fabric, vppb: u8) -> Result<Window, CallError> {
        Ok(match self {
            Self::Fast => {
                let request = Request::GetFastCaps(GetFastCaps { vppb });
                let answer = gae.call(Way::Entry, &request)?;
                let caps = answer.read::<FastCaps<'_>>()?;
                Window::new(caps.base, caps.limit, caps.segment_size, caps.segments, caps.idt)
            }
            Self::Ldst => {
                let answer = gae.call(Way::Entry, &Request::GetLdstCaps(vppb))?;
                let caps = answer.read::<LdstCaps>()?;
                Window::new(caps.base, caps.limit, caps.segment_size, caps.segments, caps.idt)
            }
        })
    }

    /// Entries of the table; none where one is not valid.
    pub(crate) fn segments(
        self,
        gae: &mut Fabric,
        range: EdgeRange,
    ) -> Result<Vec<Option<Segment>>, CallError> {
        Ok(match self {
            Self::Fast => {
                let answer = gae.call(Way::Entry, &Request::GetFastSegments(range))?;
                let entries = answer.read::<Entries<'_, Option<FastEntry>>>()?.entries;
                let of =
                    |e: FastEntry| Segment { gim: e.gim, interleave: e.interleave, to: e.target };
                entries.iter().map(|entry| entry.map(of)).collect()
            }
            Self::Ldst => {
                let answer = gae.call(Way::Entry, &Request::GetLdstSegments(range))?;
                let entries = answer.read::<Entries<'_, Option<LdstEntry>>>()?.entries;
                let of =
                    |e: LdstEntry| Segment { gim: false, interleave: e.interleave, to: e.target };
                entries.iter().map(|entry| entry.map(of)).collect()
            }
        })
    }

    /// Entries of the interleave DPID table.
    pub(crate) fn dpids(self, gae: &mut Fabric, range: EdgeRange) -> Result<Vec<Pid>, CallError> {
        let request = match self {
            Self::Fast => Request::GetIdt(range),
            Self::Ldst => Request::GetLdstIdt(range),
        };
        let answer = gae.call(Way::Entry, &request)?;
        Ok(answer.read::<Entries<'_, Pid>>()?.entries.iter().collect())
    }

    /// All that the table has within its window.
    ///
    /// # Errors
    /// The GAE does not answer, or refuses.
    pub(crate) fn read(self, gae: &mut Fabric, vppb: u8) -> Result<SegmentTable, CallError> {
        let window = self.window(gae, vppb)?;
        let (segment_bytes, entries) = (1 << window.shift, window.entries);
        let mut table = SegmentTable { segment_bytes, entries, ..SegmentTable::default() };
        if window.is_off() {
            return Ok(table);
        }
        (table.base, table.limit) = (window.base, window.limit);
        let (mut lists, mut last) = (BTreeMap::new(), None);
        for start in (0..window.segments()).step_by(ENTRIES_AT_ONCE.into()) {
            let count = ENTRIES_AT_ONCE.min(window.segments() - start);
            let read = self.segments(gae, EdgeRange { vppb, count, start })?;
            for (index, segment) in (start..).zip(read.into_iter().take(count.into())) {
                if let (Some(_), true, Some(run)) =
                    (segment, segment == last, table.runs.last_mut())
                {
                    run.segments += 1;
                } else if let Some(segment) = segment {
                    let at = (window.base >> window.shift).saturating_add(index.into());
                    let targets = self.targets(gae, vppb, window.idt, segment, &mut lists)?;
                    table.runs.push(SegmentRun {
                        hpa: at << window.shift,
                        segments: 1,
                        gim: segment.gim,
                        ways: segment.interleave.ways(),
                        granularity: segment.interleave.granularity(),
                        targets,
                    });
                }
                last = segment;
            }
        }
        Ok(table)
    }

    /// DPIDs of a segment by way; those of one list are read once.
    fn targets(
        self,
        gae: &mut Fabric,
        vppb: u8,
        idt: u16,
        segment: Segment,
        lists: &mut BTreeMap<(u16, u16), Vec<u16>>,
    ) -> Result<Vec<u16>, CallError> {
        let first = match segment.to {
            Target::Direct(pid) => return Ok(vec![pid.bits()]),
            Target::Interleaved(first) => first,
        };
        let ways = segment.interleave.ways();
        if let Some(list) = lists.get(&(first, ways)) {
            return Ok(list.clone());
        }
        let end = first.saturating_add(ways).min(idt);
        let mut list: Vec<u16> = Vec::new();
        for start in (first..end).step_by(ENTRIES_AT_ONCE.into()) {
            let count = ENTRIES_AT_ONCE.min(end - start);
            let read = self.dpids(gae, EdgeRange { vppb, count, start })?;
            list.extend(read.into_iter().take(count.into()).map(Pid::bits));
        }
        lists.insert((first, ways), list.clone());
        Ok(list)
    }
}
