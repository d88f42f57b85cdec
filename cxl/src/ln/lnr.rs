//! The LN Requester: a device function's copies of the host's cache lines.
//!
//! Calls of the device → [`LnrRequest`]s to be sent; completions by [`Ticket`] and [`LnMessage`]s in;
//! [`Lnr::copy`] is what the device may use.
//!
//! Units: bytes; lines.
//! Source: PCIe 5.0 section 6.21.
//!
//! A requester cannot know which of its requests a message belongs to, nor whether a broadcast found it
//! registered. So a message takes the copy, and that of every read under way, but the line goes on counting
//! against the limit, as a shell without a copy: when room is needed it is deregistered like any other, and
//! before any other.

use std::collections::{BTreeMap, BTreeSet, VecDeque};

use weft_parsers::fabric::{Bdf, Hpa};

use super::registers::ControlChange;
use super::{Line, LnMessage, LnrRegisters, Reason, Route, regions::GRANULE};

/// Names a read under way; the layer below keeps it with the read's tag.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub struct Ticket(u64);

/// A request that the device sends, in this order.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum LnrRequest {
    /// LN Read of a whole line.
    Read {
        /// Given back with the completion.
        ticket: Ticket,
        /// The line.
        line: Line,
    },
    /// LN Read of zero length.
    Probe {
        /// Given back with the completion.
        ticket: Ticket,
        /// A line of the page that is asked about.
        line: Line,
    },
    /// LN Write, within one line.
    Write {
        /// First byte.
        addr: Hpa,
        /// What is written.
        data: Vec<u8>,
    },
    /// LN Write of zero length.
    Deregister {
        /// The line.
        line: Line,
    },
}

/// The data of a completion for an LN read, as far as they are good.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum CplData<'a> {
    /// Status SC; nothing for a probe.
    Good(&'a [u8]),
    /// Status SC, but the data is marked as bad.
    Poisoned,
    /// Another status: nothing was registered.
    Failed,
    /// No completion came: the line may be registered.
    Lost,
}

/// How an LN read ended.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Outcome {
    /// A copy is kept.
    Cached,
    /// The data is good to use once, but no copy is kept.
    Once,
    /// There is no data.
    Failed,
    /// A probe's answer: whether the page takes registrations.
    Probed(bool),
    /// Nothing is known of the ticket: LN went off, or it was used before.
    Unknown,
}

/// Why the LN requester does not send a request.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
pub enum Refused {
    /// LN is off, or the link is in flit mode.
    #[error("LN is off")]
    Off,
    /// So many lines are registered, and all of them have reads under way.
    #[error("all {limit} lines that may be registered have reads under way")]
    Limit {
        /// Lines.
        limit: usize,
    },
    /// A write has no byte, or crosses a line.
    #[error("write of {len} bytes at {addr} is empty or crosses a line")]
    Extent {
        /// First address.
        addr: Hpa,
        /// Bytes.
        len: usize,
    },
    /// The line has a read under way that would register it again.
    #[error("line {addr} has a read under way")]
    UnderWay {
        /// Address of the line.
        addr: Hpa,
    },
}

/// What an LN Message did to the copies of the requester.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Effect {
    /// So many copies were dropped.
    Dropped(usize),
    /// Reserved reason: counted as malformed.
    Malformed,
    /// Meant for another function: counted.
    Misrouted,
    /// LN is off: ignored.
    Off,
}

struct Entry {
    /// `None` in a shell.
    copy: Option<Box<[u8]>>,
    /// Order of the latest use.
    seq: u64,
}

struct Flight {
    line: Line,
    probe: bool,
    /// No message or write came since it was sent.
    keep: bool,
}

/// Counts of messages and completions that an LN requester did not expect.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Counters {
    /// Messages with the reserved reason.
    pub malformed: u64,
    /// Directed messages for another function.
    pub misrouted: u64,
    /// Completions whose ticket is not known, or whose length is not a line's.
    pub unexpected: u64,
}

/// Pages that are remembered as taking registrations.
const PAGES_MAX: usize = 1_024;

/// The requester's state.
pub struct Lnr {
    me: Bdf,
    flit: bool,
    registers: LnrRegisters,
    lines: BTreeMap<Line, Entry>,
    flights: BTreeMap<Ticket, Flight>,
    pages: BTreeSet<u64>,
    page_ages: VecDeque<u64>,
    seq: u64,
    counters: Counters,
}

impl Lnr {
    /// A requester as function `me`; `flit`: its link is in flit mode, where LN does not exist.
    #[must_use]
    pub const fn new(me: Bdf, registers: LnrRegisters, flit: bool) -> Self {
        Self {
            me,
            flit,
            registers,
            lines: BTreeMap::new(),
            flights: BTreeMap::new(),
            pages: BTreeSet::new(),
            page_ages: VecDeque::new(),
            seq: 0,
            counters: Counters { malformed: 0, misrouted: 0, unexpected: 0 },
        }
    }

    /// The capability.
    #[must_use]
    pub const fn registers(&self) -> &LnrRegisters {
        &self.registers
    }

    /// Counts of what should not be.
    #[must_use]
    pub const fn counters(&self) -> Counters {
        self.counters
    }

    /// Writes the control register. Switched off, a requester has no copy and knows nothing of its reads.
    pub fn write_control(&mut self, value: u16) {
        if self.registers.write_control(value) == ControlChange::Disabled {
            self.lines.clear();
            self.flights.clear();
            self.pages.clear();
            self.page_ages.clear();
        }
    }

    /// The copy of the line at `addr`, if there is one.
    #[must_use]
    pub fn copy(&self, addr: Hpa) -> Option<&[u8]> {
        self.lines.get(&self.registers.line().line(addr))?.copy.as_deref()
    }

    /// Lines that have a copy, with it.
    pub fn copies(&self) -> impl Iterator<Item = (Line, &[u8])> {
        self.lines.iter().filter_map(|(line, entry)| Some((*line, entry.copy.as_deref()?)))
    }

    /// Lines that count against the limit, and whether each has a copy.
    pub fn lines(&self) -> impl Iterator<Item = (Line, bool)> {
        self.lines.iter().map(|(line, entry)| (*line, entry.copy.is_some()))
    }

    /// Reads and probes under way.
    #[must_use]
    pub fn under_way(&self) -> usize {
        self.flights.len()
    }

    /// Whether the host may have the line at `addr` registered for this function.
    #[must_use]
    pub fn may_be_registered(&self, addr: Hpa) -> bool {
        let line = self.registers.line().line(addr);
        self.lines.contains_key(&line) || self.is_under_way(line)
    }

    /// Whether the page of `addr` is known to take registrations.
    #[must_use]
    pub fn takes_registrations(&self, addr: Hpa) -> bool {
        self.pages.contains(&(addr.0 / GRANULE))
    }

    /// Reads and registers the line at `addr`.
    ///
    /// # Errors
    /// LN is off, or nothing can make way.
    pub fn ln_read(&mut self, addr: Hpa, out: &mut Vec<LnrRequest>) -> Result<Ticket, Refused> {
        let line = self.line(addr)?;
        self.make_room(line, out)?;
        let ticket = self.fly(line, false);
        out.push(LnrRequest::Read { ticket, line });
        Ok(ticket)
    }

    /// Asks whether the page of `addr` takes registrations; registers nothing.
    ///
    /// # Errors
    /// LN is off.
    pub fn probe(&mut self, addr: Hpa, out: &mut Vec<LnrRequest>) -> Result<Ticket, Refused> {
        let line = self.line(addr)?;
        let ticket = self.fly(line, true);
        out.push(LnrRequest::Probe { ticket, line });
        Ok(ticket)
    }

    /// Writes `data` and registers the line. A copy is kept only where the page is known to take registrations,
    /// as a write has no completion that would say so, and the whole line is known.
    ///
    /// # Errors
    /// LN is off, the write crosses a line, or nothing can make way.
    pub fn ln_write(
        &mut self,
        addr: Hpa,
        data: &[u8],
        out: &mut Vec<LnrRequest>,
    ) -> Result<(), Refused> {
        let line = self.line(addr)?;
        let start = usize::try_from(addr.0 - line.addr().0).unwrap_or(usize::MAX);
        let len = self.registers.line().bytes();
        if data.is_empty() || data.len() > len - start {
            return Err(Refused::Extent { addr, len: data.len() });
        }
        self.make_room(line, out)?;
        self.doom(|other| other == line);
        let registers = self.takes_registrations(addr);
        let seq = self.next_seq();
        let entry = self.lines.entry(line).or_insert(Entry { copy: None, seq });
        entry.seq = seq;
        if !registers {
            entry.copy = None;
        } else if data.len() == len {
            entry.copy = Some(data.into());
        } else if let Some(place) =
            entry.copy.as_deref_mut().and_then(|copy| copy.get_mut(start..start + data.len()))
        {
            place.copy_from_slice(data);
        }
        out.push(LnrRequest::Write { addr, data: data.to_vec() });
        Ok(())
    }

    /// The device writes `len` bytes at `addr` by a request without LN: copies of them are dropped.
    pub fn on_own_write(&mut self, addr: Hpa, len: u64) {
        let Some(last) = len.checked_sub(1).map(|span| addr.0.saturating_add(span)) else { return };
        let size = self.registers.line();
        let range = size.line(addr)..=size.line(Hpa(last));
        for (_, entry) in self.lines.range_mut(range.clone()) {
            entry.copy = None;
        }
        self.doom(|line| range.contains(&line));
    }

    /// Gives the line at `addr` back: no copy, and a request to the host to forget it.
    ///
    /// # Errors
    /// LN is off, or a read is under way, which might overtake and register the line again.
    pub fn deregister(&mut self, addr: Hpa, out: &mut Vec<LnrRequest>) -> Result<(), Refused> {
        let line = self.line(addr)?;
        if self.is_under_way(line) {
            return Err(Refused::UnderWay { addr: line.addr() });
        }
        self.lines.remove(&line);
        out.push(LnrRequest::Deregister { line });
        Ok(())
    }

    /// Takes the completion of a read or probe, with its LN bit.
    pub fn on_completion(&mut self, ticket: Ticket, ln: bool, data: CplData<'_>) -> Outcome {
        let Some(flight) = self.flights.remove(&ticket) else {
            self.counters.unexpected += 1;
            return Outcome::Unknown;
        };
        if data == CplData::Failed {
            return Outcome::Failed; // a read in error registers nothing
        }
        if data == CplData::Lost {
            let seq = self.next_seq();
            if !flight.probe {
                self.lines.entry(flight.line).or_insert(Entry { copy: None, seq });
            }
            return Outcome::Failed;
        }
        self.learn_page(flight.line, ln);
        if flight.probe {
            return Outcome::Probed(ln);
        }
        let whole = match data {
            CplData::Good(bytes) if bytes.len() == self.registers.line().bytes() => Some(bytes),
            CplData::Good(_) => {
                self.counters.unexpected += 1;
                None
            }
            _ => None,
        };
        if ln {
            let seq = self.next_seq();
            let entry = self.lines.entry(flight.line).or_insert(Entry { copy: None, seq });
            entry.seq = seq;
            if flight.keep {
                entry.copy = whole.map(Into::into);
            }
        } else if let Some(entry) = self.lines.get_mut(&flight.line) {
            entry.copy = None;
        }
        match whole {
            Some(_) if ln && flight.keep => Outcome::Cached,
            Some(_) => Outcome::Once,
            None => Outcome::Failed,
        }
    }

    /// Takes an LN Message, directed or broadcast.
    pub fn on_message(&mut self, message: &LnMessage) -> Effect {
        if self.flit || !self.registers.enabled() {
            return Effect::Off;
        }
        if matches!(message.to, Route::Directed(to) if to != self.me) {
            self.counters.misrouted += 1;
            return Effect::Misrouted;
        }
        let Some(reason) = Reason::from_bits(message.nr) else {
            self.counters.malformed += 1;
            return Effect::Malformed;
        };
        if reason == Reason::AllEvicted {
            self.doom(|_| true);
            let copies = self.lines.values_mut().filter_map(|entry| entry.copy.take());
            return Effect::Dropped(copies.count());
        }
        let line = self.registers.line().line(message.addr);
        self.doom(|other| other == line);
        let dropped = self.lines.get_mut(&line).and_then(|entry| entry.copy.take());
        Effect::Dropped(usize::from(dropped.is_some()))
    }

    fn line(&self, addr: Hpa) -> Result<Line, Refused> {
        if self.flit || !self.registers.enabled() {
            return Err(Refused::Off);
        }
        Ok(self.registers.line().line(addr))
    }

    fn next_seq(&mut self) -> u64 {
        self.seq += 1;
        self.seq
    }

    fn fly(&mut self, line: Line, probe: bool) -> Ticket {
        let ticket = Ticket(self.next_seq());
        self.flights.insert(ticket, Flight { line, probe, keep: true });
        ticket
    }

    fn is_under_way(&self, line: Line) -> bool {
        self.flights.values().any(|flight| flight.line == line && !flight.probe)
    }

    /// Keeps what reads of such lines bring from being kept.
    fn doom(&mut self, is: impl Fn(Line) -> bool) {
        for flight in self.flights.values_mut().filter(|flight| is(flight.line)) {
            flight.keep = false;
        }
    }

    /// Lets go of lines until `line` can be registered within the limit: shells first, then the oldest copy.
    fn make_room(&mut self, line: Line, out: &mut Vec<LnrRequest>) -> Result<(), Refused> {
        let under_way: BTreeSet<Line> = self
            .flights
            .values()
            .filter(|flight| !flight.probe)
            .map(|flight| flight.line)
            .collect();
        if self.lines.contains_key(&line) || under_way.contains(&line) {
            return Ok(());
        }
        let limit = self.registers.limit_lines();
        let extra = under_way.iter().filter(|line| !self.lines.contains_key(line)).count();
        while self.lines.len() + extra >= limit {
            let free = self.lines.iter().filter(|(line, _)| !under_way.contains(line));
            let victim = free.min_by_key(|(_, entry)| (entry.copy.is_some(), entry.seq));
            let Some((&victim, _)) = victim else { return Err(Refused::Limit { limit }) };
            self.lines.remove(&victim);
            out.push(LnrRequest::Deregister { line: victim });
        }
        Ok(())
    }

    fn learn_page(&mut self, line: Line, takes: bool) {
        let page = line.addr().0 / GRANULE;
        if !takes {
            self.pages.remove(&page);
            self.page_ages.retain(|other| *other != page);
        } else if self.pages.insert(page) {
            self.page_ages.push_back(page);
            if self.page_ages.len() > PAGES_MAX {
                self.page_ages.pop_front().map(|oldest| self.pages.remove(&oldest));
            }
        }
    }
}
