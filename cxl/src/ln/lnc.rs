//! The LN Completer: the host's side, which remembers who watches which line and tells them once.
//!
//! [`MemRequest`] + the memory access as a closure → [`ReadAnswer`] / [`WriteAnswer`]; writes by
//! anybody → [`LnMessage`]s, taken with [`Lnc::next_message`].
//!
//! Units: bytes; double words in requests; picoseconds between broadcasts.
//! Source: PCIe 5.0 section 6.21.
//!
//! A line's watchers are known one by one up to `watchers_max`, and told by directed messages. Beyond that only
//! their root ports are remembered, and a broadcast goes to each of these and to no other. A function's own LN
//! Write renews its registration without a message: its copy is what it wrote. Its plain write is an update
//! like any other.

use std::collections::{BTreeMap, BTreeSet, VecDeque};
use std::ops::RangeInclusive;

use weft_dataplane::time::{Instant, Span};
use weft_parsers::fabric::{Bdf, Hpa};

use super::limits::{Limits, LncCounts};
use super::{Line, LineSize, LnMessage, Reason, Regions, Route};

/// A root port: the top of one hierarchy domain, and as far as a broadcast goes.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub struct RootPort(pub u8);

/// The requester of an LN request, and the root port that it came by.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub struct Origin {
    /// Port that the request came in by.
    pub port: RootPort,
    /// Requester ID.
    pub requester: Bdf,
}

/// Address type of a request (field AT).
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum AddressType {
    /// 00, the default.
    Untranslated,
    /// 01.
    TranslationRequest,
    /// 10.
    Translated,
    /// 11.
    Reserved,
}

/// A memory read or write request.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct MemRequest {
    /// Who asks.
    pub from: Origin,
    /// The link is in flit mode, where the LN bit is reserved: it is ignored.
    pub flit: bool,
    /// The LN bit.
    pub ln: bool,
    /// Address of the first double word; bits 1:0 do not count.
    pub addr: Hpa,
    /// Double words, 1..=1024.
    pub dwords: u16,
    /// Bytes of the first double word that count, 4 bits.
    pub first_be: u8,
    /// Bytes of the last double word that count, 4 bits; 0 when there is one only.
    pub last_be: u8,
    /// Address type.
    pub at: AddressType,
}

/// How the access to memory itself went.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Access {
    /// Read or written.
    Done,
    /// The data is marked as bad: a read completes so (with status SC); a write has stored it so.
    Poisoned,
    /// An uncorrectable or non-fatal error: nothing was read or written.
    Failed,
}

/// How the completer answers a read.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum ReadAnswer {
    /// A completion with status SC and this LN bit.
    Complete {
        /// The LN bit.
        ln: bool,
    },
    /// A completion with status CA.
    CompleterAbort,
    /// The access failed: the memory's own error status.
    Failed,
    /// No such request can be: to be dropped as malformed.
    Malformed,
}

/// What becomes of a write, which gets no completion.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum WriteAnswer {
    /// Written.
    Done,
    /// Not written; to be reported as a completer abort.
    CompleterAbort,
    /// The access failed.
    Failed,
    /// No such request can be: to be dropped as malformed.
    Malformed,
}

/// What an LN completer is built from.
#[derive(Clone, Debug)]
pub struct LncSpec {
    /// Size of a line in this system.
    pub line: LineSize,
    /// Lines that can be watched at once; a further one evicts the oldest. 0 declines all.
    pub lines_max: usize,
    /// Watchers of one line that are told by directed messages; 0 always broadcasts.
    pub watchers_max: usize,
    /// Address translation is in use: requests must carry translated addresses.
    pub translated: bool,
    /// Where registrations are taken.
    pub regions: Regions,
    /// Least time between two broadcasts at one root port.
    pub broadcast_gap: Span,
    /// Messages that may wait; beyond, all that waits for a root port becomes one broadcast that its
    /// functions are watched no more.
    pub pending_max: usize,
}

/// Who is told when a line changes.
enum Watchers {
    Known(Vec<Origin>),
    /// More than are known one by one: the ports that they are at.
    Many(BTreeSet<RootPort>),
}

struct Entry {
    watchers: Watchers,
    /// Age: order of the latest registration.
    seq: u64,
}

/// What a well-formed request asks of a completer.
enum Ask {
    Plain,
    /// Zero length: read probes, write deregisters.
    Zero(Line),
    Watch(Line),
}

enum Refusal {
    Malformed,
    Abort,
}

/// The completer's state.
pub struct Lnc {
    spec: LncSpec,
    lines: BTreeMap<Line, Entry>,
    /// The same lines, oldest first.
    ages: BTreeMap<u64, Line>,
    seq: u64,
    pending: VecDeque<(RootPort, LnMessage)>,
    /// Until when a port may see no broadcast.
    quiet: BTreeMap<RootPort, Instant>,
    limits: Limits,
    counts: LncCounts,
}

/// Who watches a line.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Watched {
    /// These functions.
    By(Vec<Bdf>),
    /// So many that only their root ports are known: a broadcast goes to each.
    Below(Vec<RootPort>),
}

impl MemRequest {
    /// Whether no byte is asked for.
    #[must_use]
    pub const fn is_zero(&self) -> bool {
        self.dwords == 1 && matches!(self.first_be & 0xF, 0)
    }

    const fn well_formed(&self) -> bool {
        match self.dwords {
            0 => false,
            1 => matches!(self.last_be & 0xF, 0),
            2..=1_024 => self.first_be & 0xF != 0 && self.last_be & 0xF != 0,
            _ => false,
        }
    }
}

impl Lnc {
    /// Nothing is watched.
    #[must_use]
    pub fn new(spec: LncSpec) -> Self {
        Self {
            spec,
            lines: BTreeMap::new(),
            ages: BTreeMap::new(),
            seq: 0,
            pending: VecDeque::new(),
            quiet: BTreeMap::new(),
            limits: Limits::default(),
            counts: LncCounts::default(),
        }
    }

    /// Lines that are watched.
    #[must_use]
    pub fn lines(&self) -> usize {
        self.lines.len()
    }

    /// What it is built from.
    #[must_use]
    pub const fn spec(&self) -> &LncSpec {
        &self.spec
    }

    /// Counts so far.
    #[must_use]
    pub const fn counts(&self) -> LncCounts {
        self.counts
    }

    /// Lines that a function is known one by one to watch.
    #[must_use]
    pub fn held(&self, function: Bdf) -> usize {
        self.limits.held(function)
    }

    /// The lines that are watched, and by whom, in the order of addresses.
    pub fn watched(&self) -> impl Iterator<Item = (Line, Watched)> {
        self.lines.iter().map(|(line, entry)| {
            let by = match &entry.watchers {
                Watchers::Known(known) => {
                    Watched::By(known.iter().map(|origin| origin.requester).collect())
                }
                Watchers::Many(ports) => Watched::Below(ports.iter().copied().collect()),
            };
            (*line, by)
        })
    }

    /// Only these functions may register from now on, so many lines each; others are forgotten without a message.
    pub fn admit(&mut self, lines_max: BTreeMap<Bdf, usize>) {
        self.limits.set(lines_max);
        let known: BTreeSet<Bdf> = self.origins().map(|it| it.requester).collect();
        let gone: BTreeSet<Bdf> = known.into_iter().filter(|it| !self.limits.knows(*it)).collect();
        self.forget(|origin| gone.contains(&origin.requester), |_| false);
    }

    /// The functions of these buses may be others now: each registration ends, with its message.
    pub fn renew(&mut self, buses: RangeInclusive<u8>) {
        let inside = |origin: &Origin| buses.contains(&origin.requester.bus());
        let found: BTreeSet<Origin> = self.origins().filter(inside).collect();
        for origin in found {
            self.deregister_function(origin);
        }
    }

    fn origins(&self) -> impl Iterator<Item = Origin> {
        let known = self.lines.values().map(|entry| match &entry.watchers {
            Watchers::Known(known) => known.as_slice(),
            Watchers::Many(_) => &[],
        });
        known.flatten().copied()
    }

    /// Whether `origin` would be told of a change of the line at `addr`.
    #[must_use]
    pub fn watches(&self, origin: Origin, addr: Hpa) -> bool {
        self.lines.get(&self.spec.line.line(addr)).is_some_and(|entry| match &entry.watchers {
            Watchers::Known(known) => known.contains(&origin),
            Watchers::Many(ports) => ports.contains(&origin.port),
        })
    }

    /// Answers a memory read. `access` reads memory; it is not called for what is refused or of zero length.
    pub fn on_read(&mut self, request: &MemRequest, access: impl FnOnce() -> Access) -> ReadAnswer {
        let line = match self.judge(request) {
            Err(Refusal::Malformed) => return ReadAnswer::Malformed,
            Err(Refusal::Abort) => return ReadAnswer::CompleterAbort,
            Ok(Ask::Zero(line)) => return ReadAnswer::Complete { ln: self.takes(line) },
            Ok(Ask::Plain) if request.is_zero() => return ReadAnswer::Complete { ln: false },
            Ok(Ask::Plain) => None,
            Ok(Ask::Watch(line)) => Some(line),
        };
        if access() == Access::Failed {
            return ReadAnswer::Failed;
        }
        let ln = line.is_some_and(|line| self.register(line, request.from));
        ReadAnswer::Complete { ln }
    }

    /// Takes a memory write. `access` writes memory; it is not called for what is refused or of zero length.
    pub fn on_write(
        &mut self,
        request: &MemRequest,
        access: impl FnOnce() -> Access,
    ) -> WriteAnswer {
        let line = match self.judge(request) {
            Err(Refusal::Malformed) => return WriteAnswer::Malformed,
            Err(Refusal::Abort) => return WriteAnswer::CompleterAbort,
            Ok(Ask::Zero(line)) => {
                self.deregister(line, request.from);
                return WriteAnswer::Done;
            }
            Ok(Ask::Plain) if request.is_zero() => return WriteAnswer::Done,
            Ok(Ask::Plain) => None,
            Ok(Ask::Watch(line)) => Some(line),
        };
        match (access(), line) {
            (Access::Failed, _) => return WriteAnswer::Failed,
            (Access::Done, Some(line)) => {
                self.deregister(line, request.from); // renewed below: no message for one's own write
                self.on_update(line.addr(), 1);
                if !self.register(line, request.from) && self.takes(line) {
                    // No completion tells a writer that it does not watch what it may have kept.
                    let to = Route::Directed(request.from.requester);
                    self.push(request.from.port, to, Reason::Evicted, line.addr());
                }
            }
            _ => self.on_update(Hpa(request.addr.0 & !3), u64::from(request.dwords) * 4),
        }
        WriteAnswer::Done
    }

    /// `len` bytes from `addr` on were written: by a CPU, or by a device other than through
    /// [`Self::on_write`].
    pub fn on_update(&mut self, addr: Hpa, len: u64) {
        let Some(last) = len.checked_sub(1).map(|span| addr.0.saturating_add(span)) else { return };
        let range = self.spec.line.line(addr)..=self.spec.line.line(Hpa(last));
        while let Some((&line, _)) = self.lines.range(range.clone()).next() {
            self.end(line, Reason::Updated);
        }
    }

    /// Ends all registrations of one function, and tells it by one message.
    pub fn deregister_function(&mut self, origin: Origin) {
        self.forget(|other| other == origin, |_| false);
        self.push(origin.port, Route::Directed(origin.requester), Reason::AllEvicted, Hpa(0));
    }

    /// Ends all registrations at one root port, and tells all of its functions by one message.
    pub fn deregister_port(&mut self, port: RootPort) {
        self.forget(|other| other.port == port, |other| other == port);
        self.pending.retain(|(other, _)| *other != port);
        self.push(port, Route::Broadcast, Reason::AllEvicted, Hpa(0));
    }

    /// The link of `port` went down: nobody is left there to be told.
    pub fn port_down(&mut self, port: RootPort) {
        self.forget(|other| other.port == port, |other| other == port);
        self.pending.retain(|(other, _)| *other != port);
        self.quiet.remove(&port);
    }

    /// Takes the next message that may be sent at `now`, and the root port that it leaves by.
    pub fn next_message(&mut self, now: Instant) -> Option<(RootPort, LnMessage)> {
        self.quiet.retain(|_, until| *until > now);
        let ready = |(port, message): &(RootPort, LnMessage)| {
            message.to != Route::Broadcast || !self.quiet.contains_key(port)
        };
        let at = self.pending.iter().position(ready)?;
        let (port, message) = self.pending.remove(at)?;
        match message.to {
            Route::Directed(_) => self.counts.directed += 1,
            Route::Broadcast => self.counts.broadcast += 1,
        }
        if message.to == Route::Broadcast && self.spec.broadcast_gap > Span::ZERO {
            self.quiet.insert(port, now + self.spec.broadcast_gap);
        }
        Some((port, message))
    }

    /// When the next message may be sent; `None` when none waits, or one may be sent at once.
    #[must_use]
    pub fn next_due(&self) -> Option<Instant> {
        let mut next = None;
        for (port, message) in &self.pending {
            let until = self.quiet.get(port).filter(|_| message.to == Route::Broadcast);
            next = Instant::earlier(next, Some(*until?));
        }
        next
    }

    /// Messages that wait.
    #[must_use]
    pub fn pending(&self) -> usize {
        self.pending.len()
    }

    fn judge(&mut self, request: &MemRequest) -> Result<Ask, Refusal> {
        if !request.well_formed() {
            return Err(Refusal::Malformed);
        }
        if !request.ln || request.flit {
            return Ok(Ask::Plain);
        }
        let at =
            if self.spec.translated { AddressType::Translated } else { AddressType::Untranslated };
        let first = Hpa(request.addr.0 & !3);
        let line = self.spec.line.line(first);
        let last = first.0.checked_add(u64::from(request.dwords) * 4 - 1).map(Hpa);
        let one_line = last.is_some_and(|last| self.spec.line.line(last) == line);
        if request.at != at || !one_line {
            self.counts.aborted += 1;
            return Err(Refusal::Abort);
        }
        Ok(if request.is_zero() { Ask::Zero(line) } else { Ask::Watch(line) })
    }

    fn takes(&self, line: Line) -> bool {
        self.spec.lines_max > 0 && self.spec.regions.contains(line)
    }

    /// Returns whether the registration was taken.
    fn register(&mut self, line: Line, origin: Origin) -> bool {
        if !self.takes(line) {
            return false;
        }
        let renews = matches!(
            self.lines.get(&line).map(|entry| &entry.watchers),
            Some(Watchers::Known(known)) if known.contains(&origin)
        );
        if !renews && !self.limits.may(origin.requester) {
            self.counts.declined += 1;
            return false;
        }
        self.counts.registered += 1;
        let mut watchers = match self.remove(line) {
            Some(entry) => entry.watchers,
            None => Watchers::Known(Vec::new()),
        };
        while self.lines.len() >= self.spec.lines_max {
            let Some((_, &oldest)) = self.ages.first_key_value() else { break };
            self.end(oldest, Reason::Evicted);
            self.counts.evicted += 1;
        }
        match &mut watchers {
            Watchers::Known(known) if known.contains(&origin) => {}
            Watchers::Known(known) if known.len() < self.spec.watchers_max => {
                known.push(origin);
                self.limits.count(origin.requester);
            }
            Watchers::Known(known) => {
                for other in &*known {
                    self.limits.uncount(other.requester);
                }
                let ports = known.iter().map(|other| other.port).chain([origin.port]);
                watchers = Watchers::Many(ports.collect());
            }
            Watchers::Many(ports) => {
                ports.insert(origin.port);
            }
        }
        self.insert(line, watchers);
        true
    }

    /// Ends the registration of one function. Where watchers are not known one by one it stays: the broadcast
    /// would reach the function in any case.
    fn deregister(&mut self, line: Line, origin: Origin) {
        let Some(entry) = self.lines.get_mut(&line) else { return };
        if let Watchers::Known(known) = &mut entry.watchers {
            let before = known.len();
            known.retain(|other| *other != origin);
            if known.len() < before {
                self.limits.uncount(origin.requester);
            }
            if known.is_empty() {
                self.remove(line);
            }
        }
    }

    fn insert(&mut self, line: Line, watchers: Watchers) {
        self.seq += 1;
        self.ages.insert(self.seq, line);
        self.lines.insert(line, Entry { watchers, seq: self.seq });
    }

    fn remove(&mut self, line: Line) -> Option<Entry> {
        let entry = self.lines.remove(&line)?;
        self.ages.remove(&entry.seq);
        Some(entry)
    }

    /// Ends all registrations of a line, each with its one message.
    fn end(&mut self, line: Line, reason: Reason) {
        match self.remove(line).map(|entry| entry.watchers) {
            Some(Watchers::Known(known)) => {
                for origin in known {
                    self.limits.uncount(origin.requester);
                    self.push(origin.port, Route::Directed(origin.requester), reason, line.addr());
                }
            }
            Some(Watchers::Many(ports)) => {
                for port in ports {
                    self.push(port, Route::Broadcast, reason, line.addr());
                }
            }
            None => {}
        }
    }

    fn push(&mut self, port: RootPort, to: Route, reason: Reason, addr: Hpa) {
        let message = (port, LnMessage { to, nr: reason as u8, addr });
        let repeatable = to == Route::Broadcast || reason == Reason::AllEvicted;
        if repeatable && self.pending.contains(&message) {
            return; // not sent yet, so it tells of this change too
        }
        if self.pending.len() >= self.spec.pending_max && reason != Reason::AllEvicted {
            self.counts.collapsed += 1;
            self.deregister_port(port);
            return;
        }
        self.pending.push_back(message);
    }

    /// Removes without a message those that `origins` and `ports` name.
    fn forget(&mut self, origins: impl Fn(Origin) -> bool, ports: impl Fn(RootPort) -> bool) {
        let Self { lines, ages, limits, .. } = self;
        lines.retain(|_, entry| {
            let keep = match &mut entry.watchers {
                Watchers::Known(known) => {
                    known.retain(|origin| {
                        let gone = origins(*origin);
                        if gone {
                            limits.uncount(origin.requester);
                        }
                        !gone
                    });
                    !known.is_empty()
                }
                Watchers::Many(many) => {
                    many.retain(|port| !ports(*port));
                    !many.is_empty()
                }
            };
            if !keep {
                ages.remove(&entry.seq);
            }
            keep
        });
    }
}
