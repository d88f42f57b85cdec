//! State of a coherent device: its snoop filter, the requests that wait for hosts, and the open snoops. [`Coherence`]
//! is filled and driven by `coherent`.
//!
//! Source: docs/spec/cxl-fabric.md "Back-invalidate", "A host that does not answer"; CXL 3.1 sections 3.3.8, 3.3.10.

use core::fmt;
use std::collections::VecDeque;

use weft_dataplane::time::Instant;
use weft_parsers::cxl_mem::{LINE, Lease, MemHead};
use weft_parsers::fabric::{Dpa, Hpa, Pid};
use weft_parsers::tlp::Pth;

use super::config::CoherentConfig;
use super::due::{DueJob, DueQueue};
use crate::coherence::filter::{Filter, FilterCounts, Wrong};
use crate::coherence::news::News;
use crate::coherence::snoops::{NotAsked, Snoops};
use crate::coherence::waited::Waited;
use crate::coherence::{Hold, Snoop};
use crate::gfd::qos;

/// Number of snoop tags: a `BITag` has 12 bits.
const TAGS: u16 = 1 << 12;

#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, serde::Serialize)]
pub struct CoherenceCounts {
    /// Counts of the snoop filter.
    #[serde(flatten)]
    pub filter: FilterCounts,
    /// Write-backs by hosts that do not own the line (any more): nothing is written, and Cmp has Poison = 1.
    pub stale_writes: u64,
    /// Answers by hosts that had been given up on.
    pub late: u64,
    /// Conflicts of snoops and requests that were acknowledged.
    pub conflicts: u64,
    /// Lines that are held or waited for.
    pub lines: usize,
    /// Capacity of the filter in lines.
    pub lines_max: usize,
    /// Requests that wait for hosts.
    pub waiting: usize,
}

/// Events about hosts and their caches, for people.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum CoherenceNews {
    /// A host has not answered a snoop in time; reported once until it answers again.
    Silent {
        /// Host that holds the line.
        who: Pid,
        dpa: Dpa,
    },
    /// A host that was silent answers again.
    Answers { who: Pid },
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

/// A CXL.mem request that waits for its turn or for hosts.
#[derive(Clone, Copy, Debug)]
pub(super) struct MemAsk {
    pub pth: Pth,
    pub head: MemHead,
    pub data: [u8; LINE],
    pub enables: Option<u64>,
    pub line: u64,
    pub load: qos::DevLoad,
}

impl DueJob for MemAsk {
    fn requester(&self) -> Pid {
        self.pth.spid
    }
}

/// A request that waits for hosts.
#[derive(Debug)]
pub(super) enum Parked {
    Mem(Box<MemAsk>),
    Tlp { pth: Pth, bytes: Box<[u8]>, waited: Waited },
}

/// Coherence of a device: holders of lines, waiting requests and open snoops.
#[derive(Debug)]
pub(super) struct Coherence {
    pub filter: Filter<Parked>,
    pub arrivals: DueQueue<MemAsk>,
    snoops: Snoops,
    /// Snoops that wait for a free tag, in order.
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

    /// Holders of the line at an address of the device.
    pub(super) fn holders(&self, dpa: Dpa) -> &[(Pid, Hold)] {
        self.filter.holders(dpa.0 / LINE as u64)
    }

    pub(super) fn next_news(&mut self) -> Option<CoherenceNews> {
        self.news.next_news()
    }

    /// When a snoop is to be marked overdue or given up next.
    pub(super) fn next_due(&self) -> Option<Instant> {
        self.snoops.next_due()
    }

    /// The next snoop to send, if a tag is free.
    pub(super) fn next_snoop(&mut self) -> Option<(Pid, u64, Snoop)> {
        if self.snoops.has_tag() { self.later.pop_front() } else { None }
    }

    /// Gives a snoop a tag, and a time to be answered in.
    pub(super) fn track(&mut self, now: Instant, who: Pid, line: u64, addr: Hpa) -> Option<u16> {
        self.snoops.ask(now, who, line, addr)
    }

    /// Tracks a host that has no address for the line: it cannot be snooped, and may use its copy until its lease ends.
    pub(super) fn cannot_ask(&mut self, now: Instant, who: Pid, line: u64) {
        self.snoops.cannot_ask(now, who, line);
    }

    /// The lease that a response to a host names.
    pub(super) fn lease(&mut self, who: Pid) -> Lease {
        self.snoops.lease(who)
    }

    /// A host has lost its right to a line, so its copy counts for nothing.
    pub(super) fn revoke(&mut self, who: Pid, line: u64) {
        // Filter and lease together: the host keeps no copy here, and by the new lease number learns that it has none.
        self.filter.leave(who, line, None);
        self.snoops.revoke(who);
    }

    /// Takes a host's answer; false if it matches no snoop, or keeps too much.
    pub(super) fn answer(&mut self, who: Pid, head: &MemHead, left: Option<Hold>) -> bool {
        let tag = head.tag;
        let line = match self.snoops.asked(who, tag, head.addr) {
            Ok(line) => line,
            Err(NotAsked::Unexpected) => return false,
            Err(NotAsked::Late) => {
                // The host cannot use any copy it claims to keep: its lease is over.
                self.counts.late += 1;
                self.heard_of(who);
                return true;
            }
        };
        // An answer that keeps too much leaves the snoop open and its tag in use, until the time limit.
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

    /// Reset of the device: requests and snoops under way end. Hosts keep their copies, so the filter keeps its record
    /// of them.
    pub(super) fn reset(&mut self) {
        self.filter.drop_requests();
        self.snoops.abandon();
        self.arrivals = DueQueue::new(0);
        self.later.clear();
    }

    /// Marks overdue snoops; called before messages are taken in.
    pub(super) fn mark_overdue(&mut self, now: Instant) {
        self.snoops.mark_overdue(now);
    }

    /// Gives up on hosts that have not answered in time.
    pub(super) fn expire(&mut self, now: Instant) {
        while let Some((who, line)) = self.snoops.give_up(now) {
            self.filter.silent(who, line);
            self.news.silent(who, CoherenceNews::Silent { who, dpa: Dpa(line * LINE as u64) });
        }
    }
}
