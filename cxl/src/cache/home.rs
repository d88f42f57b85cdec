//! Home agent of a host: records which device cache holds which line of the host's memory.
//!
//! Requests of devices come as messages, those of the host itself and of TLPs through [`HomeAgent::admit`]; each waits
//! until no cache is in its way. [`HomeAgent::next_ready`] carries out the former and returns the latter one by one,
//! because no cache may be granted the line between the decision and the access. A cache is known by the `CacheID` that
//! the switch has set and by a generation that changes when the `CacheID` goes to another device: an earlier holder
//! cannot be snooped, and its leases are left to run out.
//!
//! Source: CXL 3.1 sections 3.2.2 to 3.2.5; docs/spec/cxl-fabric.md "CXL.cache", "A host that does not answer".

use std::collections::{BTreeMap, BTreeSet, VecDeque};

use weft_dataplane::time::{Instant, Span};
use weft_parsers::cxl_cache::{CacheClass, CacheHead, CacheMessage, CacheOp, GoState};
use weft_parsers::cxl_mem::{LINE, Lease};
use weft_parsers::fabric::{Hpa, Pid};

use super::{Free, Outgoing};
use crate::coherence::cache::Bytes;
use crate::coherence::filter::{Asker, Effect, Filter, FilterCounts, Want};
use crate::coherence::news::News;
use crate::coherence::snoops::{NotAsked, Snoops};
use crate::coherence::waited::Waited;
use crate::coherence::{Hold, Snoop};
use crate::completer::Target;

/// UQIDs of snoops; the upper half is for write pulls, so that D2H Data tells by its UQID which of the two it answers.
const SNOOP_UQIDS: u16 = 1 << 11;
const PULL_UQIDS: core::ops::Range<u16> = SNOOP_UQIDS..1 << 12;
/// Caches of one host: `CacheID` has 4 bits.
const CACHES: u8 = 16;
/// Requester of accesses of the host itself and of TLPs; no cache has that number.
const LOCAL: Pid = Pid::from_low_bits(0xFFE);

/// Parameters of a home agent.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct HomeSpec {
    /// Lines that caches of devices may hold together.
    pub lines: usize,
    /// Time limit for the answer to a snoop, and for the data of a write.
    pub answer_max: Span,
    /// Secret from which lease numbers are derived.
    pub secret: u64,
}

#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, serde::Serialize)]
pub struct HomeCounts {
    /// Counts of the snoop filter.
    #[serde(flatten)]
    pub filter: FilterCounts,
    /// Requests that devices made.
    pub requests: u64,
    /// Requests refused because the host has no memory there.
    pub refused: u64,
    /// Lines that devices wrote, or wrote back.
    pub writes: u64,
    /// Write-backs by caches that do not own the line (any more): nothing is written, and `GO_ERR_WritePull` informs
    /// the device.
    pub stale_writes: u64,
    /// Answers to snoops that had been given up.
    pub late: u64,
    /// Requests dropped because too many wait.
    pub overrun: u64,
    /// Lines that are poisoned.
    pub poisoned: usize,
    /// Lines that are held or waited for.
    pub lines: usize,
    /// Capacity in lines.
    pub lines_max: usize,
    /// Requests that wait for caches.
    pub waiting: usize,
}

impl core::hash::Hash for HomeCounts {
    /// Counts change no decision, so the exploration of all orders takes states that differ only in them as one.
    fn hash<H: core::hash::Hasher>(&self, _: &mut H) {}
}

/// Events about devices and their caches, for people.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum HomeNews {
    /// A device has not answered a snoop in time; reported once until it answers again.
    Silent {
        /// `CacheID` of the device.
        cache_id: u8,
        line: Hpa,
    },
    /// A device that was silent answers again.
    Answers {
        /// `CacheID` of the device.
        cache_id: u8,
    },
    /// A device that owned a line has not answered, so its stores there are lost; the line is poisoned.
    Lost {
        /// `CacheID` of the device.
        cache_id: u8,
        line: Hpa,
    },
}

impl core::fmt::Display for HomeNews {
    fn fmt(&self, f: &mut core::fmt::Formatter<'_>) -> core::fmt::Result {
        match self {
            Self::Silent { cache_id, line } => {
                write!(f, "cache {cache_id} has not answered a snoop of the line at {line} in time")
            }
            Self::Answers { cache_id } => write!(f, "cache {cache_id} answers snoops again"),
            Self::Lost { cache_id, line } => {
                write!(f, "what cache {cache_id} had of the line at {line} is lost: poisoned")
            }
        }
    }
}

/// Result of [`HomeAgent::admit`].
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Admitted<T> {
    /// To be carried out now, before the agent is called again.
    Now(T),
    /// Waits; [`HomeAgent::next_ready`] returns it later.
    Waits,
    /// It meets a poisoned line, has waited too often, or too many others wait.
    Refused(T, Refused),
}

/// Why a local access is refused.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Refused {
    Poisoned,
    /// Caches of devices took its lines away again and again, or too many accesses wait.
    Busy,
}

/// An access of the host itself or of a TLP.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub struct Local<T> {
    pub addr: u64,
    pub len: u64,
    /// Whether it changes memory.
    pub writes: bool,
    /// The owner's name for it.
    pub what: T,
    waited: Waited,
}

impl<T> Local<T> {
    /// An access that has not waited yet.
    #[must_use]
    pub const fn new(addr: u64, len: u64, writes: bool, what: T) -> Self {
        Self { addr, len, writes, what, waited: Waited::NEVER }
    }
}

/// A request that waits for caches.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
enum Parked<T> {
    Asked {
        who: Pid,
        head: CacheHead,
    },
    /// A write of a device whose data has come.
    Write {
        who: Pid,
        head: CacheHead,
        data: Box<Bytes>,
        mask: u64,
        poison: bool,
    },
    Local(Box<Local<T>>),
}

/// Reason for a pull of data.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
enum PullOf {
    /// The cache owns the line and gives it up: its data goes to memory.
    Owned,
    /// The bytes are written once no cache has the line.
    Write,
    /// The request was refused; the data is dropped.
    Nothing,
}

/// A pull whose data has not come.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
struct Pull {
    who: Pid,
    head: CacheHead,
    of: PullOf,
    /// End of the wait for the data; `None` until the clock was read again after the pull was sent. With the time of an
    /// old reading, a host that looks at its clock late would give up a pull it has just sent.
    due: Option<Instant>,
}

/// Which device caches hold which lines of a host's memory. `T` is the owner's name for an access of the host.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub struct HomeAgent<T> {
    answer_max: Span,
    filter: Filter<Parked<T>>,
    snoops: Snoops,
    /// Snoops that wait for a UQID.
    later: VecDeque<(Pid, u64, Snoop)>,
    /// Snoop answers whose data has not come, by UQID: the cache, and the hold that it keeps.
    forwards: BTreeMap<u16, (Pid, Option<Hold>)>,
    pulls: BTreeMap<u16, Pull>,
    free: Free,
    /// Open requests, by `CacheID` and CQID.
    open: BTreeSet<(u8, u16)>,
    /// Generation of each `CacheID`, counted up by [`Self::reassign`].
    given: [u8; CACHES as usize],
    poisoned: BTreeSet<u64>,
    out: VecDeque<Outgoing>,
    news: News<HomeNews>,
    counts: HomeCounts,
}

/// Number of a cache in the filter: its generation and its `CacheID`.
const fn pid_of(cache_id: u8, given: u8) -> Pid {
    Pid::from_low_bits(((given & 0x7F) as u16) << 4 | (cache_id & 0xF) as u16)
}

const fn cache_id_of(who: Pid) -> u8 {
    who.bits().to_be_bytes()[1] & 0xF
}

impl<T> HomeAgent<T> {
    /// A home agent of whose memory no cache holds a line.
    #[must_use]
    pub fn new(spec: HomeSpec) -> Self {
        Self {
            answer_max: spec.answer_max,
            filter: Filter::new(spec.lines),
            snoops: Snoops::new(spec.answer_max, SNOOP_UQIDS, spec.secret),
            later: VecDeque::new(),
            forwards: BTreeMap::new(),
            pulls: BTreeMap::new(),
            free: Free(PULL_UQIDS.collect()),
            open: BTreeSet::new(),
            given: [0; CACHES as usize],
            poisoned: BTreeSet::new(),
            out: VecDeque::new(),
            news: News::default(),
            counts: HomeCounts::default(),
        }
    }

    #[must_use]
    pub fn counts(&self) -> HomeCounts {
        let (lines, lines_max) = self.filter.used();
        let (own, waiting) = (self.counts.filter, self.filter.waiting());
        let filter = self.filter.counts();
        let wrong = filter.wrong + own.wrong;
        let filter = FilterCounts { unexpected: own.unexpected, wrong, ..filter };
        let poisoned = self.poisoned.len();
        HomeCounts { filter, poisoned, lines, lines_max, waiting, ..self.counts }
    }

    /// How the cache with a `CacheID` holds a line.
    #[must_use]
    pub fn hold_of(&self, cache_id: u8, line: Hpa) -> Option<Hold> {
        self.filter.hold_of(self.who(cache_id), line.0)
    }

    pub fn next_news(&mut self) -> Option<HomeNews> {
        self.news.next_news()
    }

    /// The next message to a device.
    pub fn next_message(&mut self) -> Option<Outgoing> {
        self.out.pop_front()
    }

    /// Whether a pull was sent since the clock was read last: its time limit begins with the next reading.
    #[must_use]
    pub fn waits_for_a_look(&self) -> bool {
        self.pulls.values().any(|pull| pull.due.is_none())
    }

    /// When a snoop or pull is to be marked or given up next.
    #[must_use]
    pub fn next_due(&self) -> Option<Instant> {
        Instant::earlier(
            self.snoops.next_due(),
            self.pulls.values().filter_map(|pull| pull.due).min(),
        )
    }

    /// Whether a line is poisoned in memory. Its owner, if any, may have good data.
    #[must_use]
    pub fn is_poisoned(&self, line: Hpa) -> bool {
        self.poisoned.contains(&line.0)
    }

    fn who(&self, cache_id: u8) -> Pid {
        pid_of(cache_id, self.given.get(usize::from(cache_id & 0xF)).copied().unwrap_or(0))
    }

    /// A `CacheID` was given to a device, or taken from one: its earlier holder cannot be snooped any more.
    pub fn reassign(&mut self, cache_id: u8) {
        if let Some(given) = self.given.get_mut(usize::from(cache_id & 0xF)) {
            // Lines of the earlier holder stay in the filter under its old number. A snoop of one cannot be sent; after
            // the time limit the line is free, and poisoned if it was owned.
            *given = given.wrapping_add(1);
        }
        // The new device may use any CQID: open requests of the earlier one must not block it.
        self.open.retain(|(of, _)| *of != cache_id);
    }

    /// Marks overdue snoops, and begins the time limit of new pulls. Must run before messages are taken in.
    pub fn mark_overdue(&mut self, now: Instant) {
        self.snoops.mark_overdue(now);
        for pull in self.pulls.values_mut() {
            pull.due = pull.due.or(Some(now + self.answer_max));
        }
    }

    /// Gives up on caches that have not answered in time. [`Self::next_ready`] carries out the requests that waited for
    /// them.
    pub fn expire(&mut self, now: Instant) {
        while let Some((who, line)) = self.snoops.give_up(now) {
            self.filter.silent(who, line);
            self.is_silent(who, line);
        }
        let is_late = |it: &(&u16, &Pull)| it.1.due.is_some_and(|due| due <= now);
        let late: Vec<u16> = self.pulls.iter().filter(is_late).map(|(uqid, _)| *uqid).collect();
        for uqid in late {
            let Some(pull) = self.pulls.remove(&uqid) else { continue };
            self.free.0.push_back(uqid);
            self.close(&pull.head);
            self.is_silent(pull.who, pull.head.addr.0);
            // The device has given the line up, and its changes do not come: neither copy is good.
            if pull.of == PullOf::Owned && self.filter.leave(pull.who, pull.head.addr.0, None) {
                self.lose(pull.who, pull.head.addr.0);
            }
        }
    }

    fn is_silent(&mut self, who: Pid, line: u64) {
        self.news.silent(who, HomeNews::Silent { cache_id: cache_id_of(who), line: Hpa(line) });
    }

    fn heard_of(&mut self, who: Pid) {
        self.news.heard_of(who, HomeNews::Answers { cache_id: cache_id_of(who) });
    }

    /// The owner's changes to a line are lost: memory is poisoned.
    fn lose(&mut self, who: Pid, line: u64) {
        self.poisoned.insert(line);
        self.news.tell(HomeNews::Lost { cache_id: cache_id_of(who), line: Hpa(line) });
    }

    /// Takes a message from a device; false if it is no request and answers nothing. `memory` is the host's memory. The
    /// caller then calls [`Self::next_ready`].
    pub fn take(&mut self, message: &CacheMessage<'_>, memory: &mut dyn Target) -> bool {
        let who = self.who(message.head.cache_id);
        let taken = match message.head.op.class() {
            CacheClass::D2hReq => self.request(message.head, memory),
            CacheClass::D2hRsp => self.answer(who, &message.head),
            CacheClass::D2hData => self.data(who, message, memory),
            CacheClass::H2dReq | CacheClass::H2dRsp | CacheClass::H2dData => false,
        };
        self.counts.filter.unexpected += u64::from(!taken);
        taken
    }

    fn request(&mut self, head: CacheHead, memory: &mut dyn Target) -> bool {
        // A CQID in use: two requests under one number could not be told apart in the answers.
        if !self.open.insert((head.cache_id, head.id)) {
            return false;
        }
        self.counts.requests += 1;
        let (who, line) = (self.who(head.cache_id), head.addr.0);
        let is_flushed = head.op == CacheOp::CacheFlushed;
        // CacheFlushed names no line.
        if !is_flushed && !memory.holds(line, LINE as u64) {
            self.counts.refused += 1;
            self.refuse(head);
            return true;
        }
        let what = Parked::Asked { who, head };
        // `plain` counts the requester's own copy as in the way: CLFlush takes it, too.
        let (cache, plain) = (Asker::Cache(who), Asker::Plain(who));
        match head.op {
            CacheOp::RdCurr => self.ask(&head, cache, Want::Current, what),
            CacheOp::RdShared | CacheOp::RdAny => self.ask(&head, cache, Want::Shared, what),
            CacheOp::RdOwn | CacheOp::RdOwnNoData => self.ask(&head, cache, Want::Exclusive, what),
            // The device owns the line until its data has come, so that no access reads the old value after GO.
            CacheOp::ItoMWr | CacheOp::WrCur => self.ask(&head, cache, Want::Exclusive, what),
            CacheOp::ClFlush => self.ask(&head, plain, Want::NoCopy, what),
            // At once, even while requests wait: the cache's answer to an open snoop comes behind this message.
            CacheOp::CleanEvict | CacheOp::CleanEvictNoData => {
                self.filter.leave(who, line, None);
                if head.op == CacheOp::CleanEvict {
                    self.reply(head, CacheOp::GoWritePullDrop, 0);
                } else {
                    self.reply(head, CacheOp::Go, GoState::Invalid as u16);
                }
            }
            CacheOp::DirtyEvict => {
                if self.filter.hold_of(who, line) == Some(Hold::Owned) {
                    self.pull(head, CacheOp::GoWritePull, PullOf::Owned);
                } else {
                    // The host has given up on this cache, or the cache never owned the line. The data is pulled all
                    // the same, as the device is waiting to send it, and dropped.
                    self.counts.stale_writes += 1;
                    self.pull(head, CacheOp::GoErrWritePull, PullOf::Nothing);
                }
            }
            CacheOp::WrInv => self.pull(head, CacheOp::WritePull, PullOf::Write),
            CacheOp::WoWrInv | CacheOp::WoWrInvF => {
                self.pull(head, CacheOp::FastGoWritePull, PullOf::Write);
            }
            _ => {
                // CacheFlushed: the cache has no line at all any more.
                for line in self.filter.held_by(who) {
                    self.filter.leave(who, line, None);
                }
                self.reply(head, CacheOp::Go, GoState::Invalid as u16);
            }
        }
        true
    }

    /// Queues a request or write of a device behind the caches in its way, or drops it if too many wait.
    fn ask(&mut self, head: &CacheHead, asker: Asker, want: Want, what: Parked<T>) {
        if self.filter.ask(head.addr.0, asker, want, what).is_err() {
            self.overrun(head);
        }
    }

    /// Drops a request, as too many wait: CXL.cache has no answer for that, so the device times out.
    fn overrun(&mut self, head: &CacheHead) {
        self.counts.overrun += 1;
        self.close(head);
    }

    /// Ends a request; its CQID may be used again.
    fn close(&mut self, request: &CacheHead) {
        self.open.remove(&(request.cache_id, request.id));
    }

    /// Refuses a request for an address without memory.
    fn refuse(&mut self, head: CacheHead) {
        match head.op {
            CacheOp::RdCurr => self.refuse_data(head),
            CacheOp::RdShared | CacheOp::RdAny | CacheOp::RdOwn => {
                // Both answers, as after success: the device waits for GO and for data.
                self.respond(head, CacheOp::Go, GoState::Error as u16);
                self.refuse_data(head);
            }
            CacheOp::RdOwnNoData
            | CacheOp::ClFlush
            | CacheOp::CleanEvict
            | CacheOp::CleanEvictNoData => {
                self.reply(head, CacheOp::Go, GoState::Error as u16);
            }
            _ => self.pull(head, CacheOp::GoErrWritePull, PullOf::Nothing),
        }
    }

    fn refuse_data(&mut self, head: CacheHead) {
        let ones = CacheHead { go_err: true, ..CacheHead::new(CacheOp::DataToDevice, head.id) };
        let ones = CacheHead { cache_id: head.cache_id, ..ones };
        self.out.push_back(Outgoing::with_data(ones, &[0xFF; LINE]));
        self.close(&head);
    }

    /// Sends an answer to a request; more may follow.
    fn respond(&mut self, request: CacheHead, op: CacheOp, rsp_data: u16) {
        // Every answer renews the lease that covers all lines of that cache.
        let lease = self.snoops.lease(self.who(request.cache_id));
        let head = CacheHead::new(op, request.id);
        let head = CacheHead { cache_id: request.cache_id, rsp_data, lease, ..head };
        self.out.push_back(Outgoing::of(head));
    }

    /// Sends the last answer to a request.
    fn reply(&mut self, request: CacheHead, op: CacheOp, rsp_data: u16) {
        self.respond(request, op, rsp_data);
        self.close(&request);
    }

    /// Asks a device for the data of its write.
    fn pull(&mut self, head: CacheHead, op: CacheOp, of: PullOf) {
        let Some(uqid) = self.free.0.pop_front() else {
            return self.overrun(&head);
        };
        let who = self.who(head.cache_id);
        self.pulls.insert(uqid, Pull { who, head, of, due: None });
        self.respond(head, op, uqid);
    }

    /// Takes a device's answer to a snoop.
    fn answer(&mut self, who: Pid, head: &CacheHead) -> bool {
        let line = match self.snoops.asked(who, head.id, head.addr) {
            Ok(line) => line,
            Err(NotAsked::Unexpected) => return false,
            Err(NotAsked::Late) => {
                // The device cannot use any copy it claims to keep: its lease is over.
                self.counts.late += 1;
                self.heard_of(who);
                return true;
            }
        };
        let had = self.filter.hold_of(who, line);
        let (left, brings) = match head.op {
            CacheOp::RspVHitV => (had, false),
            CacheOp::RspVFwdV => (had, true),
            CacheOp::RspSHitSE => (Some(Hold::Shared), false),
            CacheOp::RspSFwdM => (Some(Hold::Shared), true),
            CacheOp::RspIFwdM => (None, true),
            _ => (None, false),
        };
        if brings {
            // Only an owner can have changed the line.
            if had != Some(Hold::Owned) {
                self.counts.filter.wrong += 1;
                return false;
            }
            // The snoop stays open until the data is in memory: a request let go before would read the old value.
            self.forwards.insert(head.id, (who, left));
            return true;
        }
        self.settle(who, head.id, line, left)
    }

    /// Completes a snoop, once memory has the data that came with its answer.
    fn settle(&mut self, who: Pid, uqid: u16, line: u64, left: Option<Hold>) -> bool {
        // An answer that keeps too much does not count, and the snoop runs into its time limit.
        if self.filter.answered(who, line, left).is_err() {
            return false;
        }
        self.snoops.answered(uqid);
        self.heard_of(who);
        true
    }

    /// Takes a line from a device: data of a pull, or a changed line that a snoop takes.
    fn data(&mut self, who: Pid, message: &CacheMessage<'_>, memory: &mut dyn Target) -> bool {
        let uqid = message.head.id;
        let Some(data) = message.data else { return false };
        if let Some((asked, left)) = self.forwards.get(&uqid).copied().filter(|it| it.0 == who) {
            self.forwards.remove(&uqid);
            // D2H Data has no address; the UQID alone says which snoop it belongs to.
            let Ok(line) = self.snoops.asked(asked, uqid, Hpa(0)) else {
                self.counts.late += 1;
                return true;
            };
            if self.filter.hold_of(who, line) != Some(Hold::Owned) {
                return false;
            }
            self.write(memory, line, data, u64::MAX, message.head.poison);
            return self.settle(who, uqid, line, left);
        }
        let Some(pull) = self.pulls.get(&uqid).copied().filter(|pull| pull.who == who) else {
            return false;
        };
        self.pulls.remove(&uqid);
        // To the back of the queue, so that a device which sends the data twice is unlikely to meet another pull.
        self.free.0.push_back(uqid);
        self.heard_of(who);
        let (line, mask) = (pull.head.addr.0, message.enables.unwrap_or(u64::MAX));
        match pull.of {
            PullOf::Nothing => self.close(&pull.head),
            PullOf::Owned => {
                self.close(&pull.head);
                if self.filter.hold_of(who, line) == Some(Hold::Owned) {
                    // Bogus data carries no value: a snoop has taken the line since the device requested the
                    // write-back.
                    if !message.head.bogus {
                        self.write(memory, line, data, mask, message.head.poison);
                    }
                    self.filter.leave(who, line, None);
                } else if !message.head.bogus {
                    self.counts.stale_writes += 1; // given up since it was pulled
                }
            }
            PullOf::Write => {
                let (data, poison) = (Box::new(*data), message.head.poison);
                // The write waits for caches only now that its data is here, so that it takes up no UQID meanwhile.
                let what = Parked::Write { who, head: pull.head, data, mask, poison };
                self.ask(&pull.head, Asker::Plain(who), Want::NoCopy, what);
            }
        }
        true
    }

    /// Writes the enabled bytes of a line.
    fn write(&mut self, memory: &mut dyn Target, line: u64, data: &Bytes, mask: u64, poison: bool) {
        self.counts.writes += 1;
        if poison {
            self.poisoned.insert(line);
            return; // the old bytes stay, as for CXL.mem: only a write of the whole line ends poison
        }
        if mask == u64::MAX {
            self.poisoned.remove(&line);
            memory.write(line, data);
            return;
        }
        // Read, merge, write: `Target` writes contiguous bytes, and enables may have gaps.
        let mut all = [0; LINE];
        if memory.read(line, &mut all) {
            for (at, (place, byte)) in all.iter_mut().zip(data).enumerate() {
                if mask >> at & 1 == 1 {
                    *place = *byte;
                }
            }
            memory.write(line, &all);
        }
    }

    /// Takes an access of the host itself or of a TLP, which waits for the caches in its way.
    pub fn admit(&mut self, mut local: Local<T>) -> Admitted<Local<T>> {
        let want = if local.writes { Want::NoCopy } else { Want::Current };
        let end = local.addr.saturating_add(local.len);
        let mut at = local.addr & !(LINE as u64 - 1);
        while at < end {
            if !local.waited.is_clear(at, local.writes) && self.filter.is_in_the_way(at, want) {
                let Some(waited) = local.waited.for_line(at) else {
                    return Admitted::Refused(local, Refused::Busy);
                };
                local.waited = waited;
                // One line at a time: the access comes back through `next_ready` and looks at the rest again.
                let what = Parked::Local(Box::new(local));
                return match self.filter.ask(at, Asker::Plain(LOCAL), want, what) {
                    Ok(()) => Admitted::Waits,
                    Err(Parked::Local(local)) => {
                        self.counts.overrun += 1;
                        Admitted::Refused(*local, Refused::Busy)
                    }
                    Err(_) => Admitted::Waits, // cannot happen: `ask` hands back its own argument
                };
            }
            // Poison ends only by a write of the whole line.
            let heals = local.writes && local.addr <= at && end >= at.saturating_add(LINE as u64);
            if self.poisoned.contains(&at) {
                if !heals {
                    return Admitted::Refused(local, Refused::Poisoned);
                }
                self.poisoned.remove(&at);
            }
            let Some(next) = at.checked_add(LINE as u64) else { break };
            at = next;
        }
        Admitted::Now(local)
    }

    /// Whether no line is in a cache or poisoned.
    #[must_use]
    pub fn is_idle(&self) -> bool {
        self.filter.used().0 == 0 && self.poisoned.is_empty()
    }

    /// Whether an access can skip [`Self::admit`]: no cache is in its way, and none of its lines is poisoned.
    #[must_use]
    pub fn is_clear(&self, addr: u64, len: u64, writes: bool) -> bool {
        // The common case, a host whose devices cache nothing: no look at ranges.
        if self.is_idle() {
            return true;
        }
        let (want, end) =
            (if writes { Want::NoCopy } else { Want::Current }, addr.saturating_add(len));
        let first = addr & !(LINE as u64 - 1);
        let poisoned = self.poisoned.range(first..end).next().is_some();
        !poisoned && !self.filter.is_any_in_the_way(first..end, want)
    }

    /// Carries out requests of devices that no cache is in the way of. Returns the next local access whose line is
    /// free; the caller passes it to [`Self::admit`] again, as another of its lines may not be, before it calls this
    /// again.
    pub fn next_ready(&mut self, now: Instant, memory: &mut dyn Target) -> Option<Local<T>> {
        loop {
            self.send_snoops(now);
            match self.filter.next_effect()? {
                Effect::Snoop { to, line, how } => self.later.push_back((to, line, how)),
                Effect::Go { what: Parked::Asked { who, head }, grant } => {
                    self.carry_out(who, head, grant, memory);
                }
                Effect::Go { what: Parked::Write { who, head, data, mask, poison }, .. } => {
                    // Written even if the device has lost its CacheID since: it sent the data while it had it.
                    self.write(memory, head.addr.0, &data, mask, poison);
                    if who != self.who(head.cache_id) {
                        // Its CacheID was given to another device meanwhile, which waits for no answer.
                    } else if head.op == CacheOp::WrInv {
                        self.reply(head, CacheOp::Go, GoState::Invalid as u16);
                    } else {
                        self.reply(head, CacheOp::ExtCmp, 0);
                    }
                }
                Effect::Go { what: Parked::Local(local), .. } => return Some(*local),
                Effect::Lost { line, who } => self.lose(who, line),
            }
        }
    }

    fn send_snoops(&mut self, now: Instant) {
        while self.snoops.has_tag()
            && let Some((to, line, how)) = self.later.pop_front()
        {
            let cache_id = cache_id_of(to);
            if self.who(cache_id) != to {
                // Its CacheID is another device's now, and a snoop by it would reach the wrong cache.
                self.snoops.cannot_ask(now, to, line);
                continue;
            }
            let Some(uqid) = self.snoops.ask(now, to, line, Hpa(line)) else { return };
            self.forwards.remove(&uqid); // announced for a snoop given up earlier that had this UQID
            let op = match how {
                Snoop::Current => CacheOp::SnpCur,
                Snoop::Data => CacheOp::SnpData,
                Snoop::Invalidate => CacheOp::SnpInv,
            };
            let head = CacheHead { cache_id, addr: Hpa(line), ..CacheHead::new(op, uqid) };
            self.out.push_back(Outgoing::of(head));
        }
    }

    /// Carries out a request of a device, once no cache is in its way.
    fn carry_out(
        &mut self,
        who: Pid,
        head: CacheHead,
        grant: Option<Hold>,
        memory: &mut dyn Target,
    ) {
        let line = head.addr.0;
        if who != self.who(head.cache_id) {
            // Its CacheID was given to another device meanwhile: take back the copy that the filter has just granted.
            self.filter.leave(who, line, None);
            return;
        }
        match head.op {
            CacheOp::RdOwnNoData => {
                return self.reply(head, CacheOp::Go, GoState::Exclusive as u16);
            }
            CacheOp::ClFlush => return self.reply(head, CacheOp::Go, GoState::Invalid as u16),
            CacheOp::ItoMWr | CacheOp::WrCur => {
                return self.pull(head, CacheOp::GoWritePull, PullOf::Owned);
            }
            CacheOp::RdCurr => {}
            _ => {
                let grant = grant.map(|grant| match head.op {
                    CacheOp::RdShared => {
                        // A sole reader is granted E by the filter; RdShared is never answered by an exclusive state.
                        self.filter.leave(who, line, Some(Hold::Shared));
                        Hold::Shared
                    }
                    _ => grant,
                });
                let state = match grant {
                    None => GoState::Invalid,
                    Some(Hold::Shared) => GoState::Shared,
                    Some(Hold::Owned) => GoState::Exclusive,
                };
                self.respond(head, CacheOp::Go, state as u16);
            }
        }
        // After GO, by the same call: nothing changes memory between the two.
        let mut data = [0; LINE];
        let is_there = memory.read(line, &mut data);
        let lease = match head.op {
            CacheOp::RdCurr => Lease::NONE,
            _ => self.snoops.lease(who),
        };
        let answer = CacheHead {
            cache_id: head.cache_id,
            poison: self.poisoned.contains(&line),
            go_err: !is_there,
            lease,
            ..CacheHead::new(CacheOp::DataToDevice, head.id)
        };
        self.out.push_back(Outgoing::with_data(answer, &data));
        self.close(&head);
    }

    /// The link went down: requests and snoops under way end. Caches keep their lines, and the filter its record of
    /// them.
    pub fn link_down(&mut self) {
        self.filter.drop_requests();
        self.snoops.abandon();
        self.later.clear();
        self.forwards.clear();
        self.open.clear();
        self.out.clear();
        // A device that was to send the line it owned may have dropped it already, and the data is lost with the link.
        let pulls = core::mem::take(&mut self.pulls);
        for (uqid, pull) in pulls {
            self.free.0.push_back(uqid);
            if pull.of == PullOf::Owned && self.filter.leave(pull.who, pull.head.addr.0, None) {
                self.lose(pull.who, pull.head.addr.0);
            }
        }
    }
}
