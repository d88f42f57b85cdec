//! What a coherent device keeps: its snoop filter, the requests that wait for hosts, and the snoops that have no answer.
//!
//! [`Coherence`]; `coherent` fills it and carries out what it lets go.
//!
//! Units: lines of 64 bytes; `BITag`s of 12 bits.
//! Source: docs/spec/cxl-fabric.md "Back-invalidate", "A host that does not answer"; CXL 3.1 sections 3.3.8, 3.3.10.

use core::fmt;
use std::collections::VecDeque;

use weft_dataplane::time::Instant;
use weft_parsers::cxl_mem::{LINE, Lease, MemHead};
use weft_parsers::fabric::{Dpa, Hpa, Pid};
use weft_parsers::tlp::Pth;

use super::config::CoherentConfig;
use super::due::{DueQueue, Owed};
use crate::coherence::filter::{Filter, FilterCounts, Wrong};
use crate::coherence::news::News;
use crate::coherence::snoops::{NotAsked, Snoops};
use crate::coherence::waited::Waited;
use crate::coherence::{Hold, Snoop};
use crate::gfd::qos;

/// Tags of snoops.
const TAGS: u16 = 1 << 12;

/// Counts of a coherent device.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, serde::Serialize)]
pub struct CoherenceCounts {
    /// Those of the filter.
    #[serde(flatten)]
    pub filter: FilterCounts,
    /// Write-backs by hosts that do not own the line (any more): nothing is written, and the host is told.
    pub stale_writes: u64,
    /// Answers to snoops of hosts that had been given up on.
    pub late: u64,
    /// Conflicts of snoops and requests that were acknowledged.
    pub conflicts: u64,
    /// Lines that are held or waited for.
    pub lines: usize,
    /// Of how many.
    pub lines_max: usize,
    /// Requests that wait for hosts.
    pub waiting: usize,
}

/// What people should know of hosts and their caches.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum CoherenceNews {
    /// A host has not answered a snoop in time; told once until it answers again.
    Silent {
        /// Whose copy that is.
        who: Pid,
        /// The line.
        dpa: Dpa,
    },
    /// A host that was silent answers again.
    Answers {
        /// The host.
        who: Pid,
    },
}

impl fmt::Display for CoherenceNews {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Silent { who, dpa } => {
                write!(f, "host {who} has not answered a snoop of the line at {dpa} in time")
            }
            Self::Answers { who } => write!(f, "host {who} answers snoops again"),
        }
    }
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

/// Who holds which lines of a device, and what waits for whom.
#[derive(Debug)]
pub(super) struct Coherence {
    pub filter: Filter<Parked>,
    pub arrivals: DueQueue<MemAsk>,
    snoops: Snoops,
    /// For want of a tag.
    pub later: VecDeque<(Pid, u64, Snoop)>,
    pub counts: CoherenceCounts,
    news: News<CoherenceNews>,
}

impl Coherence {
    pub(super) fn new(config: CoherentConfig) -> Self {
        Self {
            filter: Filter::new(config.lines),
            arrivals: DueQueue::new(0),
            snoops: Snoops::new(config.answer_max, TAGS, config.secret),
            later: VecDeque::new(),
            counts: CoherenceCounts::default(),
            news: News::default(),
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

    pub(super) fn next_news(&mut self) -> Option<CoherenceNews> {
        self.news.next_news()
    }

    /// When a host has had its time, or half of it.
    pub(super) fn next_due(&self) -> Option<Instant> {
        self.snoops.next_due()
    }

    /// The next snoop that is to be sent, once there is a tag for it.
    pub(super) fn next_snoop(&mut self) -> Option<(Pid, u64, Snoop)> {
        if self.snoops.has_tag() { self.later.pop_front() } else { None }
    }

    /// Gives a snoop a tag, and a time to be answered in.
    pub(super) fn track(&mut self, now: Instant, who: Pid, line: u64, addr: Hpa) -> Option<u16> {
        self.snoops.ask(now, who, line, addr)
    }

    /// The same of a host that has no address for the line: it cannot be asked, and may use its copy until its lease ends.
    pub(super) fn cannot_ask(&mut self, now: Instant, who: Pid, line: u64) {
        self.snoops.cannot_ask(now, who, line);
    }

    /// What a response tells a host of its lease.
    pub(super) fn lease(&mut self, who: Pid) -> Lease {
        self.snoops.lease(who)
    }

    /// A host has lost its right to a line: it holds it no more, whatever it thinks.
    pub(super) fn revoke(&mut self, who: Pid, line: u64) {
        self.filter.leave(who, line, None);
        self.snoops.revoke(who);
    }

    /// Takes a host's answer; false if it is none to anything, or keeps too much.
    pub(super) fn answer(&mut self, who: Pid, head: &MemHead, left: Option<Hold>) -> bool {
        let tag = head.tag;
        let line = match self.snoops.asked(who, tag, head.addr) {
            Ok(line) => line,
            Err(NotAsked::Unexpected) => return false,
            Err(NotAsked::Late) => {
                // What the host keeps it cannot use: its lease is over.
                self.counts.late += 1;
                self.heard_of(who);
                return true;
            }
        };
        if self.filter.answered(who, line, left) == Err(Wrong::KeepsTooMuch) {
            return false;
        }
        self.snoops.answered(tag);
        self.heard_of(who);
        true
    }

    fn heard_of(&mut self, who: Pid) {
        self.news.heard_of(who, CoherenceNews::Answers { who });
    }

    /// The device is reset: nothing of what was under way goes on. Hosts keep what they hold, so the filter does.
    pub(super) fn reset(&mut self) {
        self.filter.drop_requests();
        self.snoops.abandon();
        self.arrivals = DueQueue::new(0);
        self.later.clear();
    }

    /// Looks at the time before anything is taken in.
    pub(super) fn mark_overdue(&mut self, now: Instant) {
        self.snoops.mark_overdue(now);
    }

    /// Gives up on hosts that have had their time.
    pub(super) fn expire(&mut self, now: Instant) {
        while let Some((who, line)) = self.snoops.give_up(now) {
            self.filter.silent(who, line);
            self.news.silent(who, CoherenceNews::Silent { who, dpa: Dpa(line * LINE as u64) });
        }
    }
}
