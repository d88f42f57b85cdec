//! Events of a running switch: a bounded log that standard error and `weft show events` read.
//!
//! [`EventLog::post`] takes a [`Kind`], a subject and a message, and puts a numbered [`Event`] into a ring. A kind that
//! posts too fast is held back, and its next event says how many were. The data plane never posts: it counts and sets
//! levels, which control reads and turns into events. Times are wall clock, as RFC 3339 text in UTC.
//!
//! Source: docs/spec/pipeline.md §9 and §10 (level-triggered words that control re-reads); docs/running.md "Events".

use std::collections::{BTreeMap, VecDeque};
use std::fmt;
use std::sync::{Condvar, Mutex, MutexGuard, PoisonError};
use std::time::{Duration, SystemTime};

use rustix::time::{ClockId, clock_gettime};
use serde::{Deserialize, Serialize};
use weft_dataplane::time::{Instant, Span};
use weft_lab::clock;

/// Events that are kept; the oldest go first.
pub const EVENTS_MAX: usize = 1_024;
/// Events of one kind that may be posted at once.
pub const BURST: u32 = 64;
/// Time after which one more of a kind may be posted, once the burst is used up.
pub const REFILL: Span = Span::from_ms(1_000);
/// Longest subject or message, in bytes; the rest is cut off.
pub const MESSAGE_LEN_MAX: usize = 400;

/// Importance of an event.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Level {
    Error,
    /// Something is wrong, but the switch goes on.
    Warn,
    /// A normal change of state.
    Info,
}

impl Level {
    #[must_use]
    pub const fn name(self) -> &'static str {
        match self {
            Self::Error => "error",
            Self::Warn => "warn",
            Self::Info => "info",
        }
    }
}

/// Makes [`Kind`], its names and its levels from one table.
macro_rules! kinds {
    ($($(#[$doc:meta])* $kind:ident, $name:literal, $level:ident;)*) => {
        /// Kind of an event. Each has a rate limit of its own, so that no kind hides another.
        #[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
        pub enum Kind { $($(#[$doc])* $kind,)* }

        impl Kind {
            pub const ALL: &[Self] = &[$(Self::$kind,)*];

            /// Its name in logs, answers and metrics.
            #[must_use]
            pub const fn name(self) -> &'static str {
                match self { $(Self::$kind => $name,)* }
            }

            #[must_use]
            pub const fn level(self) -> Level {
                match self { $(Self::$kind => Level::$level,)* }
            }
        }
    };
}

kinds! {
    LinkUp, "link_up", Info;
    LinkDown, "link_down", Warn;
    /// Housekeeping of a port failed: its device is gone, or refuses.
    PortFailed, "port_trouble", Warn;
    /// The device of the port works again.
    PortRecovered, "port_well", Info;
    /// The peer of an output pauses a priority without a break.
    PfcStorm, "pfc_storm", Warn;
    /// The peer has stopped pausing it.
    PfcStormOver, "pfc_storm_over", Info;
    /// An address moves between ports too often.
    Loop, "loop", Warn;
    /// Addresses have stopped moving too often.
    LoopOver, "loop_over", Info;
    /// A port takes no frames for a while, as it is part of a loop.
    LoopBlocked, "loop_blocked", Warn;
    /// The port takes frames again.
    LoopOpened, "loop_opened", Info;
    /// A port's queues are held by command.
    TxOff, "tx_off", Info;
    /// They are sent again.
    TxOn, "tx_on", Info;
    /// A station was not learned: no room in the FDB, or the port has its `max_learned`.
    FdbFull, "fdb_full", Warn;
    /// A station moved to another port.
    StationMoved, "station_moved", Info;
    /// A station that moves again and again is held at its port.
    StationHeld, "station_held", Warn;
    /// Copies for a mirror's file were lost: its writer did not keep up.
    MirrorLost, "mirror_lost", Warn;
    /// A mirror's file cannot be written.
    MirrorFailed, "mirror_failed", Error;
    /// The record cannot be written.
    RecordFailed, "record_failed", Error;
    /// A client was refused at the management socket, the metrics server, SAI or CCI.
    ClientRefused, "client_refused", Warn;
    /// The kernel lost frames before a port with lossless priorities.
    KernelLost, "kernel_lost", Warn;
    /// A worker has not finished a pass of its loop for a while.
    WorkerStalled, "worker_stalled", Error;
    /// The worker's loop runs again.
    WorkerRecovered, "worker_well", Info;
    /// Another configuration is in force.
    Reloaded, "reloaded", Info;
    /// A configuration was refused; the one before is in force.
    ReloadRefused, "reload_refused", Warn;
}

#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Event {
    /// Its number, from 1 without gaps.
    pub seq: u64,
    /// Wall clock time of posting: RFC 3339, UTC.
    pub time: String,
    pub level: Level,
    /// Name of its [`Kind`].
    pub kind: String,
    /// Port, file or address that it is about; may be empty.
    #[serde(default, skip_serializing_if = "String::is_empty")]
    pub subject: String,
    pub message: String,
    /// Events of this kind that were held back before it.
    #[serde(default, skip_serializing_if = "is_zero")]
    pub suppressed: u64,
}

#[expect(clippy::trivially_copy_pass_by_ref, reason = "serde passes a reference")]
const fn is_zero(count: &u64) -> bool {
    *count == 0
}

impl fmt::Display for Event {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{} {} {}", self.time, self.level.name(), self.kind)?;
        if !self.subject.is_empty() {
            write!(f, " {}", self.subject)?;
        }
        write!(f, ": {}", self.message)?;
        match self.suppressed {
            0 => Ok(()),
            count => write!(f, " ({count} more of this kind were suppressed before)"),
        }
    }
}

/// Events after a number.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Page {
    /// The events, the oldest first.
    pub events: Vec<Event>,
    /// Events after the requested number that the ring has dropped.
    pub lost: u64,
    /// Number of the last event of all; 0 before the first.
    pub last: u64,
}

/// Rate limit of a kind: a bucket of [`BURST`] tokens, one of which comes back every [`REFILL`].
#[derive(Clone, Copy, Debug)]
struct RateLimit {
    tokens: u32,
    refilled: Instant,
    suppressed: u64,
    /// Events of this kind since the start, posted or held back.
    total: u64,
}

impl RateLimit {
    const fn new(now: Instant) -> Self {
        Self { tokens: BURST, refilled: now, suppressed: 0, total: 0 }
    }

    fn refill(&mut self, now: Instant) {
        let span = now.since(self.refilled).as_ns();
        let more = span / REFILL.as_ns();
        if more > 0 {
            self.tokens =
                BURST.min(self.tokens.saturating_add(u32::try_from(more).unwrap_or(BURST)));
            // Only whole periods, so that the rest of one is not lost.
            self.refilled += Span::from_ns(more * REFILL.as_ns());
        }
    }

    /// Takes a token; returns how many events were held back before, or `None` if this one is.
    fn take(&mut self, now: Instant) -> Option<u64> {
        self.refill(now);
        self.total += 1;
        if self.tokens == 0 {
            self.suppressed += 1;
            return None;
        }
        self.tokens -= 1;
        Some(std::mem::take(&mut self.suppressed))
    }
}

struct State {
    ring: VecDeque<Event>,
    limits: Vec<RateLimit>,
    last: u64,
}

/// The latest events of a process. Posting never waits: a reader that is too slow loses the oldest.
pub struct EventLog {
    state: Mutex<State>,
    posted: Condvar,
}

impl EventLog {
    /// An empty log.
    #[must_use]
    pub const fn new() -> Self {
        let state = State { ring: VecDeque::new(), limits: Vec::new(), last: 0 };
        Self { state: Mutex::new(state), posted: Condvar::new() }
    }

    fn lock(&self) -> MutexGuard<'_, State> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Records that `kind` happened to `subject` (a port, a file, an address; may be empty). Characters that cannot be
    /// printed are escaped in both texts.
    pub fn post(&self, kind: Kind, subject: &str, message: &str) {
        self.post_at(clock::now(), kind, subject, message);
    }

    fn post_at(&self, now: Instant, kind: Kind, subject: &str, message: &str) {
        let mut state = self.lock();
        let Some(suppressed) = state.limit(kind, now).take(now) else { return };
        state.put(kind, subject, message, suppressed);
        // Readers that wake up need the lock.
        drop(state);
        self.posted.notify_all();
    }

    /// Posts, for each kind that was held back and may post again, how many were. Called now and then, so that the end
    /// of a flood is reported, too.
    pub fn post_suppressed(&self) {
        self.post_suppressed_at(clock::now());
    }

    fn post_suppressed_at(&self, now: Instant) {
        let mut state = self.lock();
        // Nothing has been posted yet: the limits are made by the first event.
        if state.limits.is_empty() {
            return;
        }
        for &kind in Kind::ALL {
            let limit = state.limit(kind, now);
            limit.refill(now);
            if limit.suppressed == 0 || limit.tokens == 0 {
                continue;
            }
            limit.tokens -= 1;
            let suppressed = std::mem::take(&mut limit.suppressed);
            state.put(kind, "", "that was all for now", suppressed);
            self.posted.notify_all();
        }
    }

    /// Events after number `seq`; 0 for all that are kept.
    #[must_use]
    pub fn after(&self, seq: u64) -> Page {
        self.lock().after(seq)
    }

    /// As [`after`](Self::after), but waits until there is one, or `longest` is over.
    #[must_use]
    pub fn wait_after(&self, seq: u64, longest: Duration) -> Page {
        let state = self.lock();
        let waited = self.posted.wait_timeout_while(state, longest, |state| state.last <= seq);
        let (state, _) = waited.unwrap_or_else(PoisonError::into_inner);
        state.after(seq)
    }

    /// By kind, the events since the start, including those that were held back.
    #[must_use]
    pub fn counts(&self) -> BTreeMap<String, u64> {
        let state = self.lock();
        let total = |kind: &Kind| state.limits.get(*kind as usize).map_or(0, |limit| limit.total);
        Kind::ALL.iter().map(|kind| (kind.name().to_owned(), total(kind))).collect()
    }
}

impl Default for EventLog {
    fn default() -> Self {
        Self::new()
    }
}

impl State {
    fn limit(&mut self, kind: Kind, now: Instant) -> &mut RateLimit {
        if self.limits.is_empty() {
            self.limits = vec![RateLimit::new(now); Kind::ALL.len()];
        }
        self.limits.get_mut(kind as usize).expect("one for each kind")
    }

    fn put(&mut self, kind: Kind, subject: &str, message: &str, suppressed: u64) {
        self.last += 1;
        if self.ring.len() >= EVENTS_MAX {
            self.ring.pop_front();
        }
        self.ring.push_back(Event {
            seq: self.last,
            time: wall_clock(),
            level: kind.level(),
            kind: kind.name().to_owned(),
            subject: printable(subject),
            message: printable(message),
            suppressed,
        });
    }

    fn after(&self, seq: u64) -> Page {
        let first = self.ring.front().map_or(self.last + 1, |event| event.seq);
        let lost = first.saturating_sub(seq.saturating_add(1));
        let events = self.ring.iter().filter(|event| event.seq > seq).cloned().collect();
        Page { events, lost, last: self.last }
    }
}

/// `text` as one line of bounded length that is harmless on a terminal.
fn printable(text: &str) -> String {
    let mut shown = String::new();
    for c in text.chars() {
        if shown.len() >= MESSAGE_LEN_MAX {
            shown.push_str("...");
            break;
        }
        // Direction marks and line separators are no control characters, but as harmful.
        if c.is_control() || matches!(c, '\u{2028}'..='\u{202e}' | '\u{2066}'..='\u{2069}') {
            shown.extend(c.escape_default());
        } else {
            shown.push(c);
        }
    }
    shown
}

/// The wall clock time as text.
pub(crate) fn wall_clock() -> String {
    let time = clock_gettime(ClockId::Realtime);
    let (s, ns) =
        (u64::try_from(time.tv_sec).unwrap_or(0), u32::try_from(time.tv_nsec).unwrap_or(0));
    humantime::format_rfc3339_millis(SystemTime::UNIX_EPOCH + Duration::new(s, ns)).to_string()
}

/// The log of this process, which is one switch.
static LOG: EventLog = EventLog::new();

#[must_use]
pub fn log() -> &'static EventLog {
    &LOG
}

/// Posts to the log of this process; see [`EventLog::post`].
pub fn post(kind: Kind, subject: &str, message: &str) {
    LOG.post(kind, subject, message);
}

#[cfg(test)]
mod tests {
    use super::*;

    fn at(ms: u64) -> Instant {
        Instant::from_ns(ms * 1_000_000)
    }

    #[test]
    fn a_kind_that_posts_too_fast_is_held_back_alone_and_told_how_much() {
        let log = EventLog::new();
        for _ in 0..BURST + 5 {
            log.post_at(at(0), Kind::ClientRefused, "mgmt", "no");
        }
        log.post_at(at(0), Kind::LinkDown, "p0", "no carrier");
        let page = log.after(0);
        assert_eq!(page.events.len(), BURST as usize + 1, "the flood stops, another kind goes on");
        assert_eq!(page.events.last().unwrap().kind, "link_down");
        log.post_at(at(999), Kind::ClientRefused, "mgmt", "no");
        assert_eq!(log.after(page.last).events, [], "less than a second later");
        log.post_at(at(1_000), Kind::ClientRefused, "mgmt", "no");
        let [event] = &log.after(page.last).events[..] else { panic!("one") };
        assert_eq!(event.suppressed, 6);
        assert!(
            event
                .to_string()
                .ends_with("client_refused mgmt: no (6 more of this kind were suppressed before)"),
            "{event}"
        );
        assert_eq!(log.counts()["client_refused"], u64::from(BURST) + 7);
        assert_eq!(log.counts()["loop"], 0);
    }

    #[test]
    fn the_last_of_a_flood_are_told_when_it_is_over() {
        let log = EventLog::new();
        log.post_suppressed_at(at(0));
        for _ in 0..=BURST {
            log.post_at(at(0), Kind::StationMoved, "x", "y");
        }
        log.post_suppressed_at(at(999));
        let before = log.after(0).last;
        log.post_suppressed_at(at(1_000));
        log.post_suppressed_at(at(5_000));
        let page = log.after(before);
        assert_eq!(page.events.iter().map(|event| event.suppressed).collect::<Vec<_>>(), [1]);
    }

    #[test]
    fn who_reads_too_slowly_is_told_what_is_lost() {
        let log = EventLog::new();
        let count = EVENTS_MAX as u64 + 10;
        for index in 0..count {
            log.post_at(at(index * 1_000), Kind::LinkUp, "p0", "carrier");
        }
        let page = log.after(4);
        assert_eq!((page.lost, page.last, page.events.len()), (6, count, EVENTS_MAX));
        assert_eq!(page.events.first().unwrap().seq, 11);
        assert_eq!(log.after(count), Page { events: vec![], lost: 0, last: count });
        assert_eq!(log.after(u64::MAX).events, []);
    }

    #[test]
    fn what_others_say_is_one_line_of_bounded_length() {
        let log = EventLog::new();
        let nasty = format!("a\nb\u{1b}[2J\u{202e}{}", "x".repeat(10_000));
        log.post_at(at(0), Kind::ClientRefused, &nasty, &nasty);
        let event = log.after(0).events.remove(0);
        let line = event.to_string();
        assert!(line.contains("a\\nb\\u{1b}[2J\\u{202e}xxx") && line.ends_with("..."), "{line}");
        assert!(!line.chars().any(char::is_control) && line.len() < 3 * MESSAGE_LEN_MAX, "{line}");
        assert_eq!(
            serde_json::from_str::<Event>(&serde_json::to_string(&event).unwrap()).unwrap(),
            event
        );
    }

    #[test]
    fn names_are_told_apart() {
        let names: std::collections::BTreeSet<_> =
            Kind::ALL.iter().map(|kind| kind.name()).collect();
        assert_eq!(names.len(), Kind::ALL.len());
        for (index, kind) in Kind::ALL.iter().enumerate() {
            assert_eq!(*kind as usize, index);
        }
    }
}
