//! The LN Completer: the host's side, which tracks the watchers of each line and notifies each of them once.
//!
//! [`Lnc::on_read`] and [`Lnc::on_write`] take a [`MemRequest`] and the access to memory as a closure, and return a
//! [`ReadAnswer`] or [`WriteAnswer`]. Writes by any agent queue [`LnMessage`]s, which [`Lnc::next_message`]
//! returns. Lengths of requests are in double words.
//!
//! Units: bytes; double words in requests; picoseconds between broadcasts.
//! Source: PCIe 5.0 section 6.21.
//!
//! Up to `watchers_max` watchers of a line are tracked individually and notified by directed messages. Beyond that
//! only their root ports are tracked, and a broadcast goes to each of those ports and to no other. A function's own
//! LN Write renews its registration without a message, as its copy is what it wrote. Its plain write is an update
//! like any other.

use std::collections::{BTreeMap, BTreeSet, VecDeque};
use std::ops::RangeInclusive;

use weft_dataplane::time::{Instant, Span};
use weft_parsers::fabric::{Bdf, Hpa};

use super::limits::{Limits, LncCounts};
use super::{Line, LineSize, LnMessage, Reason, Regions, Route};

/// A root port: the top of a hierarchy domain, and the scope of a broadcast.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub struct RootPort(pub u8);

/// The requester of an LN request, and the root port by which the request came.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub struct Origin {
    /// Root port by which the request came.
    pub port: RootPort,
    /// Requester ID of the request.
    pub requester: Bdf,
}

/// Address type of a request (field AT).
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum AddressType {
    /// 00, an untranslated address: the default.
    Untranslated,
    /// 01, a translation request, which accesses no memory.
    TranslationRequest,
    /// 10, an address translated by the requester.
    Translated,
    /// 11, which no request may have.
    Reserved,
}

/// A memory read or write request.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct MemRequest {
    /// Requester and root port.
    pub from: Origin,
    /// The link is in flit mode, where the LN bit is reserved and ignored.
    pub flit: bool,
    /// LN bit of the request.
    pub ln: bool,
    /// Address of the first double word; bits 1:0 are ignored.
    pub addr: Hpa,
    /// Length in double words, 1..=1024.
    pub dwords: u16,
    /// Byte enables of the first double word, 4 bits.
    pub first_be: u8,
    /// Byte enables of the last double word, 4 bits; 0 if there is only one.
    pub last_be: u8,
    /// Address type, field AT.
    pub at: AddressType,
}

/// Result of the access to memory.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Access {
    /// The memory was read or written.
    Done,
    /// The data is poisoned: a read completes with it (status SC), a write has stored it so.
    Poisoned,
    /// Uncorrectable or non-fatal error: nothing was read or written.
    Failed,
}

/// The completer's answer to a read.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum ReadAnswer {
    /// Send a completion with status SC and this LN bit.
    Complete {
        /// Whether the completion has the LN bit.
        ln: bool,
    },
    /// Send a completion with status CA.
    CompleterAbort,
    /// The access failed: send the memory's own error status.
    Failed,
    /// The request is malformed: drop it.
    Malformed,
}

/// The result of a write, which gets no completion.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum WriteAnswer {
    /// The data was written.
    Done,
    /// Nothing was written: report a completer abort.
    CompleterAbort,
    /// The access to memory failed.
    Failed,
    /// The request is malformed: drop it.
    Malformed,
}

/// Settings of an LN completer.
#[derive(Clone, Debug)]
pub struct LncSpec {
    /// Line size of the system.
    pub line: LineSize,
    /// Limit of watched lines; a further one evicts the oldest. 0 declines all registrations.
    pub lines_max: usize,
    /// Limit of watchers of one line that get directed messages; 0 always broadcasts.
    pub watchers_max: usize,
    /// Whether address translation is in use, so that requests must carry translated addresses.
    pub translated: bool,
    /// Addresses whose registrations are accepted.
    pub regions: Regions,
    /// Shortest time between two broadcasts at one root port.
    pub broadcast_gap: Span,
    /// Limit of queued messages. At the limit, all messages for a root port become one broadcast that ends all
    /// registrations of its functions.
    pub pending_max: usize,
}

/// The functions to notify when a line changes.
enum Watchers {
    Known(Vec<Origin>),
    /// Too many to track individually: the root ports that they are below.
    Many(BTreeSet<RootPort>),
}

struct Entry {
    watchers: Watchers,
    /// Sequence number of the latest registration: the age of the line.
    seq: u64,
}

/// The operation that a well-formed request asks for.
enum Ask {
    Plain,
    /// Zero length: a read probes, a write deregisters.
    Zero(Line),
    Watch(Line),
}

enum Refusal {
    Malformed,
    Abort,
}

/// State of an LN completer.
pub struct Lnc {
    spec: LncSpec,
    lines: BTreeMap<Line, Entry>,
    /// The same lines by age, oldest first.
    ages: BTreeMap<u64, Line>,
    seq: u64,
    pending: VecDeque<(RootPort, LnMessage)>,
    /// Time before which a port may see no further broadcast.
    quiet: BTreeMap<RootPort, Instant>,
    limits: Limits,
    counts: LncCounts,
}

/// The watchers of a line, for display.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Watched {
    /// Functions that are tracked individually.
    By(Vec<Bdf>),
    /// Root ports below which functions watch it: a broadcast goes to each.
    Below(Vec<RootPort>),
}

impl MemRequest {
    /// Whether the request has zero length: it enables no byte.
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
    /// A completer without registrations.
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

    /// Number of watched lines.
    #[must_use]
    pub fn lines(&self) -> usize {
        self.lines.len()
    }

    #[must_use]
    pub const fn spec(&self) -> &LncSpec {
        &self.spec
    }

    #[must_use]
    pub const fn counts(&self) -> LncCounts {
        self.counts
    }

    /// Number of lines for which a function is tracked individually.
    #[must_use]
    pub fn held(&self, function: Bdf) -> usize {
        self.limits.held(function)
    }

    /// The watched lines and their watchers, in order of address.
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

    /// Sets the functions that may register, and the number of lines of each; registrations of all others end
    /// without a message.
    pub fn admit(&mut self, lines_max: BTreeMap<Bdf, usize>) {
        self.limits.set(lines_max);
        let known: BTreeSet<Bdf> = self.origins().map(|it| it.requester).collect();
        let gone: BTreeSet<Bdf> = known.into_iter().filter(|it| !self.limits.knows(*it)).collect();
        self.forget(|origin| gone.contains(&origin.requester), |_| false);
    }

    /// Ends all registrations of functions on these buses, with a message each, as the numbers may belong to other
    /// functions now.
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

    /// Whether `origin` would be notified of a change of the line at `addr`.
    #[must_use]
    pub fn watches(&self, origin: Origin, addr: Hpa) -> bool {
        self.lines.get(&self.spec.line.line(addr)).is_some_and(|entry| match &entry.watchers {
            Watchers::Known(known) => known.contains(&origin),
            Watchers::Many(ports) => ports.contains(&origin.port),
        })
    }

    /// Answers a memory read. `access` reads memory; it is not called for refused or zero-length requests.
    pub fn on_read(&mut self, request: &MemRequest, access: impl FnOnce() -> Access) -> ReadAnswer {
        let line = match self.judge(request) {
            Err(Refusal::Malformed) => return ReadAnswer::Malformed,
            Err(Refusal::Abort) => return ReadAnswer::CompleterAbort,
            Ok(Ask::Zero(line)) => return ReadAnswer::Complete { ln: self.takes(line) },
            Ok(Ask::Plain) if request.is_zero() => return ReadAnswer::Complete { ln: false },
            Ok(Ask::Plain) => None,
            Ok(Ask::Watch(line)) => Some(line),
        };
        // Before the registration: a read in error registers nothing.
        if access() == Access::Failed {
            return ReadAnswer::Failed;
        }
        let ln = line.is_some_and(|line| self.register(line, request.from));
        ReadAnswer::Complete { ln }
    }

    /// Executes a memory write. `access` writes memory; it is not called for refused or zero-length requests.
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
                // One byte is enough, as an update ends the registrations of whole lines.
                self.on_update(line.addr(), 1);
                if !self.register(line, request.from) && self.takes(line) {
                    // A write has no completion, so only a message can tell that its copy is not registered.
                    let to = Route::Directed(request.from.requester);
                    self.push(request.from.port, to, Reason::Evicted, line.addr());
                }
            }
            _ => self.on_update(Hpa(request.addr.0 & !3), u64::from(request.dwords) * 4),
        }
        WriteAnswer::Done
    }

    /// `len` bytes from `addr` on were written by a CPU, or by a device without [`Self::on_write`].
    pub fn on_update(&mut self, addr: Hpa, len: u64) {
        let Some(last) = len.checked_sub(1).map(|span| addr.0.saturating_add(span)) else { return };
        let range = self.spec.line.line(addr)..=self.spec.line.line(Hpa(last));
        while let Some((&line, _)) = self.lines.range(range.clone()).next() {
            // `end` removes the line, so the loop ends.
            self.end(line, Reason::Updated);
        }
    }

    /// Ends all registrations of one function, and notifies it by one message.
    pub fn deregister_function(&mut self, origin: Origin) {
        self.forget(|other| other == origin, |_| false);
        self.push(origin.port, Route::Directed(origin.requester), Reason::AllEvicted, Hpa(0));
    }

    /// Ends all registrations at one root port, and notifies its functions by one message.
    pub fn deregister_port(&mut self, port: RootPort) {
        self.forget(|other| other.port == port, |other| other == port);
        // The broadcast says all that they would.
        self.pending.retain(|(other, _)| *other != port);
        self.push(port, Route::Broadcast, Reason::AllEvicted, Hpa(0));
    }

    /// The link of `port` went down: ends its registrations without a message, as there is no receiver.
    pub fn port_down(&mut self, port: RootPort) {
        self.forget(|other| other.port == port, |other| other == port);
        self.pending.retain(|(other, _)| *other != port);
        // The gap between broadcasts belongs to the link that is gone.
        self.quiet.remove(&port);
    }

    /// Takes the next message that may be sent at `now`, and the root port by which it leaves.
    pub fn next_message(&mut self, now: Instant) -> Option<(RootPort, LnMessage)> {
        self.quiet.retain(|_, until| *until > now);
        let ready = |(port, message): &(RootPort, LnMessage)| {
            message.to != Route::Broadcast || !self.quiet.contains_key(port)
        };
        // A broadcast that has to wait does not hold up directed messages behind it.
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

    /// Time at which the next message may be sent; `None` if the queue is empty, or one may be sent at once.
    #[must_use]
    pub fn next_due(&self) -> Option<Instant> {
        let mut next = None;
        for (port, message) in &self.pending {
            let until = self.quiet.get(port).filter(|_| message.to == Route::Broadcast);
            // `?` returns `None`: a message without a time to wait for may be sent now.
            next = Instant::earlier(next, Some(*until?));
        }
        next
    }

    /// Number of queued messages.
    #[must_use]
    pub fn pending(&self) -> usize {
        self.pending.len()
    }

    fn judge(&mut self, request: &MemRequest) -> Result<Ask, Refusal> {
        if !request.well_formed() {
            return Err(Refusal::Malformed);
        }
        // In flit mode the bit is reserved, whatever its value.
        if !request.ln || request.flit {
            return Ok(Ask::Plain);
        }
        let at =
            if self.spec.translated { AddressType::Translated } else { AddressType::Untranslated };
        let first = Hpa(request.addr.0 & !3);
        let line = self.spec.line.line(first);
        let last = first.0.checked_add(u64::from(request.dwords) * 4 - 1).map(Hpa);
        let one_line = last.is_some_and(|last| self.spec.line.line(last) == line);
        // 6.21 asks for CA in both cases: a wrong address type, and a request that crosses a line.
        if request.at != at || !one_line {
            self.counts.aborted += 1;
            return Err(Refusal::Abort);
        }
        Ok(if request.is_zero() { Ask::Zero(line) } else { Ask::Watch(line) })
    }

    fn takes(&self, line: Line) -> bool {
        self.spec.lines_max > 0 && self.spec.regions.contains(line)
    }

    /// Registers a line; returns whether that was accepted.
    fn register(&mut self, line: Line, origin: Origin) -> bool {
        if !self.takes(line) {
            return false;
        }
        let renews = matches!(
            self.lines.get(&line).map(|entry| &entry.watchers),
            Some(Watchers::Known(known)) if known.contains(&origin)
        );
        // A renewal needs no further line, so the limit does not apply.
        if !renews && !self.limits.may(origin.requester) {
            self.counts.declined += 1;
            return false;
        }
        self.counts.registered += 1;
        // Taken out while others are evicted, so that the line itself is never the oldest.
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
                // They are no longer tracked individually, so the line no longer counts against their limits.
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

    /// Ends one function's registration of a line. If the watchers are not tracked individually nothing changes:
    /// the broadcast would reach the function anyway.
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

    /// Ends all registrations of a line, with a message for each watcher or port.
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
        // A directed message about a line belongs to one registration, so each of those is sent.
        let repeatable = to == Route::Broadcast || reason == Reason::AllEvicted;
        if repeatable && self.pending.contains(&message) {
            return; // not sent yet, so it tells of this change too
        }
        // An AllEvicted is exempt, since `deregister_port` queues one itself; there is one at most for each
        // function and port.
        if self.pending.len() >= self.spec.pending_max && reason != Reason::AllEvicted {
            self.counts.collapsed += 1;
            self.deregister_port(port);
            return;
        }
        self.pending.push_back(message);
    }

    /// Ends registrations without a message: functions that match `origins`, and ports that match `ports`.
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
