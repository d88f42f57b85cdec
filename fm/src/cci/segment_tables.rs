//! Segment tables of an edge port, FAST and LDST, as read through the host's GAE.
//!
//! `Kind` reads windows, segments and interleave lists, and whole tables as [`SegmentTable`]. Segments have 64 GiB <<
//! n.
//!
//! Source: docs/spec/wire-formats.md §4.5 (570Ch to 5711h), §4.6 (5803h, 5805h, 5807h), §5.1.

use std::collections::BTreeMap;

use serde::{Deserialize, Serialize};
use weft_parsers::cci::Request;
use weft_parsers::cci::gae::{FastCaps, GetFastCaps};
use weft_parsers::cci::tables::{EdgeRange, Entries, LdstCaps};
use weft_parsers::fabric::{FastEntry, Hpa, Interleave, LdstEntry, Pid, Target};

use crate::cci::{CallError, CciSession, Way};

/// Entries read by one command: the answer fits a small mailbox.
const ENTRIES_AT_ONCE: u16 = 120;

/// Configuration of a segment table.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Window {
    pub base: u64,
    pub limit: u64,
    /// Width of an address within a segment, bits.
    pub shift: u32,
    /// Number of entries of the table.
    pub entries: u64,
    /// Number of entries of its interleave DPID table.
    idt: u16,
}

impl Window {
    fn new(base: Hpa, limit: Hpa, size: u8, entries: u16, idt: u16) -> Self {
        // Code 0 is 64 GiB, 36 bits of address; each further code doubles it.
        let shift = 36 + u32::from(size.min(7));
        Self { base: base.0, limit: limit.0, shift, entries: entries.into(), idt }
    }

    pub(crate) const fn is_off(&self) -> bool {
        self.base == 0 || self.limit == 0
    }

    pub(crate) const fn takes(&self, hpa: Hpa) -> bool {
        !self.is_off() && self.base <= hpa.0 && hpa.0 <= self.limit
    }

    /// Number of the segment as commands count it, from the base, and as hardware does; `None` behind the last one.
    pub(crate) fn place(&self, hpa: Hpa) -> Option<(u16, u64)> {
        let index = (hpa.0 >> self.shift).checked_sub(self.base >> self.shift)?;
        // The hardware takes the address bits modulo the table's size (docs/spec/wire-formats.md §5.1).
        let hardware = (hpa.0 >> self.shift).checked_rem(self.entries)?;
        Some((u16::try_from(index).ok().filter(|_| index < self.entries)?, hardware))
    }

    /// Number of segments in the window, as far as the table has entries.
    fn segments(&self) -> u16 {
        let last = (self.limit >> self.shift).saturating_sub(self.base >> self.shift);
        u16::try_from(last.saturating_add(1).min(self.entries)).unwrap_or(u16::MAX)
    }
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Segment {
    /// Whether it is memory of a host or device.
    pub gim: bool,
    pub interleave: Interleave,
    pub to: Target,
}

/// Which of the two tables is meant.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Kind {
    /// Memory of the fabric: G-FAM and GIM.
    Fast,
    /// Memory devices: LD-FAM.
    Ldst,
}

/// A run of adjacent segments with equal entries.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct SegmentRun {
    /// Address of its first byte.
    pub hpa: u64,
    pub segments: u32,
    /// Whether it is memory of a host or device (GIM).
    pub gim: bool,
    /// Number of interleave ways.
    pub ways: u16,
    /// Bytes of an interleave granule.
    pub granularity: u32,
    /// DPIDs by way; fewer than `ways` where the interleave DPID table ends early.
    pub targets: Vec<u16>,
}

/// A segment table as read from the GAE.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct SegmentTable {
    /// `FabricBase`, or the first address of the LDST's window; 0 where the table is off.
    pub base: u64,
    /// `FabricLimit`, or the last address of the LDST's window; 0 where the table is off.
    pub limit: u64,
    pub segment_bytes: u64,
    /// Number of entries of the table.
    pub entries: u64,
    /// Its valid entries, in order of address.
    pub runs: Vec<SegmentRun>,
}

impl Kind {
    pub(crate) const fn name(self) -> &'static str {
        match self {
            Self::Fast => "FAST",
            Self::Ldst => "LDST",
        }
    }

    /// Reads the configuration of the table.
    pub(crate) fn window(self, gae: &mut CciSession, vppb: u8) -> Result<Window, CallError> {
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

    /// Reads entries of the table; `None` for an invalid one.
    pub(crate) fn segments(
        self,
        gae: &mut CciSession,
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

    /// Reads entries of the interleave DPID table.
    pub(crate) fn dpids(
        self,
        gae: &mut CciSession,
        range: EdgeRange,
    ) -> Result<Vec<Pid>, CallError> {
        let request = match self {
            Self::Fast => Request::GetIdt(range),
            Self::Ldst => Request::GetLdstIdt(range),
        };
        let answer = gae.call(Way::Entry, &request)?;
        Ok(answer.read::<Entries<'_, Pid>>()?.entries.iter().collect())
    }

    /// Reads all entries in the table's window.
    ///
    /// # Errors
    /// The GAE refuses, or does not answer.
    pub(crate) fn read(self, gae: &mut CciSession, vppb: u8) -> Result<SegmentTable, CallError> {
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
            // At most as many as asked for, whatever the answer has.
            for (index, segment) in (start..).zip(read.into_iter().take(count.into())) {
                // Equal neighbours form a run; so a table of 4,096 equal segments is one row.
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

    /// DPIDs of a segment by way; each interleave list is read once.
    fn targets(
        self,
        gae: &mut CciSession,
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
        // A list must end within the interleave DPID table, whatever the entry says.
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
