//! What a coherent device keeps: its snoop filter, the requests that wait for hosts, and the tags and time limits of snoops.
//!
//! Shape: [`Coherence`]; `coherent` fills it and carries out what it lets go.
//! Units: lines of 64 bytes; `BITag`s of 12 bits.
//! Source: docs/spec/cxl-fabric.md "Back-invalidate"; CXL 3.1 sections 3.3.8, 3.3.10.

use std::collections::VecDeque;

use weft_dataplane::time::{Instant, Span};
use weft_parsers::cxl_mem::{LINE, MemHead};
use weft_parsers::fabric::{Dpa, Pid};
use weft_parsers::tlp::Pth;

use super::config::CoherentConfig;
use super::due::{DueQueue, Owed};
use crate::coherence::filter::{Filter, FilterCounts, Wrong};
use crate::coherence::{Hold, Snoop};
use crate::gfd::qos;

/// Tags of snoops.
const TAGS: usize = 1 << 12;

/// Counts of a coherent device.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, serde::Serialize)]
pub struct CoherenceCounts {
    /// Those of the filter.
    #[serde(flatten)]
    pub filter: FilterCounts,
    /// Write-backs by hosts that do not own the line (any more): nothing is written.
    pub stale_writes: u64,
    /// Conflicts of snoops and requests that were acknowledged.
    pub conflicts: u64,
    /// Lines that are held or waited for.
    pub lines: usize,
    /// Of how many.
    pub lines_max: usize,
    /// Requests that wait for hosts.
    pub waiting: usize,
}

/// A request of CXL.mem that waits.
#[derive(Clone, Copy, Debug)]
pub(super) struct MemAsk {
    pub pth: Pth,
    pub head: MemHead,
    pub data: [u8; LINE],
    pub enables: Option<u64>,
    pub line: u64,
    pub load: qos::DevLoad,
}

impl Owed for MemAsk {
    fn requester(&self) -> Pid {
        self.pth.spid
    }
}

/// What waits for hosts.
#[derive(Debug)]
pub(super) enum Parked {
    /// A message.
    Mem(Box<MemAsk>),
    /// A TLP.
    Tlp { pth: Pth, bytes: Box<[u8]>, waited: Waited },
}

/// How often a TLP has waited, and the end of the line that it has waited for last.
#[derive(Clone, Copy, Debug, Default)]
pub(super) struct Waited {
    pub turns: u8,
    pub end: u64,
}

impl Waited {
    /// Whether the line at `at` is clear: memory had its value once. For a write that has to be so now.
    pub(super) const fn is_clear(self, at: u64, writes: bool) -> bool {
        at + LINE as u64 == self.end || (!writes && at < self.end)
    }
}

/// A snoop under way.
#[derive(Clone, Copy, Debug)]
struct Snooped {
    who: Pid,
    line: u64,
    serial: u64,
}

/// Who holds which lines of a device, and what waits for whom.
#[derive(Debug)]
pub(super) struct Coherence {
    pub filter: Filter<Parked>,
    answer_max: Span,
    pub arrivals: DueQueue<MemAsk>,
    snoops: Vec<Option<Snooped>>,
    pub free: VecDeque<u16>,
    /// For want of a tag.
    pub later: VecDeque<(Pid, u64, Snoop)>,
    deadlines: VecDeque<(Instant, u16, u64)>,
    serial: u64,
    pub counts: CoherenceCounts,
}

impl Coherence {
    pub(super) fn new(config: CoherentConfig) -> Self {
        Self {
            filter: Filter::new(config.lines),
            answer_max: config.answer_max,
            arrivals: DueQueue::new(0),
            snoops: vec![None; TAGS],
            free: (0..4_096).collect(),
            later: VecDeque::new(),
            deadlines: VecDeque::new(),
            serial: 0,
            counts: CoherenceCounts::default(),
        }
    }

    pub(super) fn counts(&self) -> CoherenceCounts {
        let (lines, lines_max) = self.filter.used();
        let (filter, waiting) = (self.filter.counts(), self.filter.waiting());
        CoherenceCounts { filter, lines, lines_max, waiting, ..self.counts }
    }

    /// Who holds the line at an address of the device.
    pub(super) fn holders(&self, dpa: Dpa) -> &[(Pid, Hold)] {
        self.filter.holders(dpa.0 / LINE as u64)
    }

    /// When a host has had its time.
    pub(super) fn next_due(&self) -> Option<Instant> {
        self.deadlines.front().map(|&(at, ..)| at)
    }

    /// Gives a snoop a tag, and a time to be answered in.
    pub(super) fn track(&mut self, now: Instant, who: Pid, line: u64) -> Option<u16> {
        let tag = self.free.pop_front()?;
        self.serial += 1;
        let serial = self.serial;
        *self.snoops.get_mut(usize::from(tag))? = Some(Snooped { who, line, serial });
        self.deadlines.push_back((now + self.answer_max, tag, serial));
        Some(tag)
    }

    /// Takes a host's answer; false if it is none to anything, or keeps too much.
    pub(super) fn answer(&mut self, who: Pid, tag: u16, left: Option<Hold>) -> bool {
        let place = self.snoops.get_mut(usize::from(tag));
        let Some(place) = place.filter(|it| it.is_some_and(|it| it.who == who)) else {
            return false;
        };
        let Some(snooped) = place.take() else { return false };
        self.free.push_back(tag);
        self.filter.answered(who, snooped.line, left) != Err(Wrong::KeepsTooMuch)
    }

    /// Gives up hosts that have had their time.
    pub(super) fn expire(&mut self, now: Instant) {
        while let Some(&(at, tag, serial)) = self.deadlines.front() {
            let place = self.snoops.get_mut(usize::from(tag));
            let place = place.filter(|it| it.is_some_and(|it| it.serial == serial));
            if place.is_some() && at > now {
                break;
            }
            self.deadlines.pop_front();
            let Some(snooped) = place.and_then(Option::take) else { continue };
            self.free.push_back(tag);
            self.filter.silent(snooped.who, snooped.line);
        }
    }
}
