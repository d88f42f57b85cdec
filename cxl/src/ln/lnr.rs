//! The LN Requester: a device function's copies of the host's cache lines.
//!
//! The device calls it to read, write and deregister lines, which yields [`LnrRequest`]s to send; completions (by
//! [`Ticket`]) and [`LnMessage`]s are passed in. [`Lnr::copy`] is the copy that the device may use.
//!
//! Units: bytes; lines.
//! Source: PCIe 5.0 section 6.21.
//!
//! A requester cannot know which of its requests a message belongs to, nor whether a broadcast found it registered.
//! So a message drops the copy, and that of every read under way, but the line still counts against the limit, as a
//! shell without a copy. When room is needed, shells are deregistered before other lines.

use std::collections::{BTreeMap, BTreeSet, VecDeque};

use weft_parsers::fabric::{Bdf, Hpa};

use super::registers::ControlChange;
use super::{Line, LnMessage, LnrRegisters, Reason, Route, regions::GRANULE};

/// Id of a read under way; the layer below stores it with the read's tag.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub struct Ticket(u64);

/// A request for the device to send, in the order of the list.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum LnrRequest {
    /// LN Read of a whole line, which registers it.
    Read {
        /// Id to pass back with the completion.
        ticket: Ticket,
        line: Line,
    },
    /// LN Read of zero length, which asks whether a page takes registrations.
    Probe {
        /// Id to pass back with the completion.
        ticket: Ticket,
        /// Any line of the page.
        line: Line,
    },
    /// LN Write within one line, which registers it.
    Write {
        /// Address of the first byte.
        addr: Hpa,
        /// Bytes to write.
        data: Vec<u8>,
    },
    /// LN Write of zero length, which ends a registration.
    Deregister {
        /// The line to give up.
        line: Line,
    },
}

/// The data of a completion for an LN read.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum CplData<'a> {
    /// Status SC; empty for a probe.
    Good(&'a [u8]),
    /// Status SC, with poisoned data.
    Poisoned,
    /// Another status: the host registered nothing.
    Failed,
    /// No completion came in time: the host may have registered the line.
    Lost,
}

/// Result of an LN read.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Outcome {
    /// A copy of the line is kept.
    Cached,
    /// The data may be used once; no copy is kept.
    Once,
    /// The read returned no data.
    Failed,
    /// Result of a probe: whether the page takes registrations.
    Probed(bool),
    /// The ticket is unknown: LN was disabled meanwhile, or the ticket was used before.
    Unknown,
}

/// Reason why the LN requester does not send a request.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
pub enum Refused {
    /// LN is disabled, or the link is in flit mode.
    #[error("LN is off")]
    Off,
    /// The limit of registered lines is reached, and all of them have reads under way.
    #[error("all {limit} lines that may be registered have reads under way")]
    Limit {
        /// The limit, in lines.
        limit: usize,
    },
    /// A write is empty, or crosses a line.
    #[error("write of {len} bytes at {addr} is empty or crosses a line")]
    Extent {
        /// Address of the first byte.
        addr: Hpa,
        /// Length in bytes.
        len: usize,
    },
    /// A read under way would register the line again.
    #[error("line {addr} has a read under way")]
    UnderWay {
        /// Address of the line.
        addr: Hpa,
    },
}

/// Effect of an LN Message on the requester's copies.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Effect {
    /// Number of copies that were dropped.
    Dropped(usize),
    /// Reserved reason: counted as malformed.
    Malformed,
    /// For another function: counted as misrouted.
    Misrouted,
    /// LN is disabled: ignored.
    Off,
}

struct Entry {
    /// Copy of the line; `None` in a shell.
    copy: Option<Box<[u8]>>,
    /// Sequence number of the latest use.
    seq: u64,
}

struct Flight {
    line: Line,
    probe: bool,
    /// No message or write for the line has come since the read was sent.
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

/// Limit of pages remembered as taking registrations; the oldest one is forgotten.
const PAGES_MAX: usize = 1_024;

/// State of an LN requester.
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

    #[must_use]
    pub const fn registers(&self) -> &LnrRegisters {
        &self.registers
    }

    /// Counts of unexpected messages and completions.
    #[must_use]
    pub const fn counters(&self) -> Counters {
        self.counters
    }

    /// Writes the control register. Disabling LN drops all copies and forgets all reads.
    pub fn write_control(&mut self, value: u16) {
        if self.registers.write_control(value) == ControlChange::Disabled {
            self.lines.clear();
            self.flights.clear();
            self.pages.clear();
            self.page_ages.clear();
        }
    }

    /// The copy of the line at `addr`, if the requester has one.
    #[must_use]
    pub fn copy(&self, addr: Hpa) -> Option<&[u8]> {
        self.lines.get(&self.registers.line().line(addr))?.copy.as_deref()
    }

    /// All lines with a copy, and the copy.
    pub fn copies(&self) -> impl Iterator<Item = (Line, &[u8])> {
        self.lines.iter().filter_map(|(line, entry)| Some((*line, entry.copy.as_deref()?)))
    }

    /// All lines that count against the limit, and whether each has a copy.
    pub fn lines(&self) -> impl Iterator<Item = (Line, bool)> {
        self.lines.iter().map(|(line, entry)| (*line, entry.copy.is_some()))
    }

    /// Number of reads and probes under way.
    #[must_use]
    pub fn under_way(&self) -> usize {
        self.flights.len()
    }

    /// Whether the host may have registered the line at `addr` for this function.
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
    /// LN is disabled, or no line can be given up for this one.
    pub fn ln_read(&mut self, addr: Hpa, out: &mut Vec<LnrRequest>) -> Result<Ticket, Refused> {
        let line = self.line(addr)?;
        self.make_room(line, out)?;
        let ticket = self.fly(line, false);
        out.push(LnrRequest::Read { ticket, line });
        Ok(ticket)
    }

    /// Asks the host whether the page of `addr` takes registrations; registers nothing.
    ///
    /// # Errors
    /// LN is disabled.
    pub fn probe(&mut self, addr: Hpa, out: &mut Vec<LnrRequest>) -> Result<Ticket, Refused> {
        let line = self.line(addr)?;
        // A probe registers nothing, so it needs no place within the limit.
        let ticket = self.fly(line, true);
        out.push(LnrRequest::Probe { ticket, line });
        Ok(ticket)
    }

    /// Writes `data` and registers the line. A copy is kept only if the page is known to take registrations (a
    /// write has no completion that would tell), and only if the whole line is known.
    ///
    /// # Errors
    /// LN is disabled, the write is empty or crosses a line, or no line can be given up for this one.
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
        // A read under way may return the data from before this write.
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
            // A partial write updates an existing copy; without one the rest of the line is unknown.
            place.copy_from_slice(data);
        }
        out.push(LnrRequest::Write { addr, data: data.to_vec() });
        Ok(())
    }

    /// Drops the copies of all lines in `len` bytes from `addr` on, which the device writes without LN.
    pub fn on_own_write(&mut self, addr: Hpa, len: u64) {
        let Some(last) = len.checked_sub(1).map(|span| addr.0.saturating_add(span)) else { return };
        let size = self.registers.line();
        let range = size.line(addr)..=size.line(Hpa(last));
        // The host may still have them registered, so they stay as shells.
        for (_, entry) in self.lines.range_mut(range.clone()) {
            entry.copy = None;
        }
        self.doom(|line| range.contains(&line));
    }

    /// Gives up the line at `addr`: drops the copy, and has the host deregister it.
    ///
    /// # Errors
    /// LN is disabled, or a read is under way, which might overtake the request and register the line again.
    pub fn deregister(&mut self, addr: Hpa, out: &mut Vec<LnrRequest>) -> Result<(), Refused> {
        let line = self.line(addr)?;
        if self.is_under_way(line) {
            return Err(Refused::UnderWay { addr: line.addr() });
        }
        self.lines.remove(&line);
        out.push(LnrRequest::Deregister { line });
        Ok(())
    }

    /// Processes the completion of a read or probe; `ln` is its LN bit.
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
            // The host may have got the request and registered the line, so a shell counts it.
            if !flight.probe {
                self.lines.entry(flight.line).or_insert(Entry { copy: None, seq });
            }
            return Outcome::Failed;
        }
        // The LN bit of any good completion tells whether the page takes registrations.
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
            // A message has come since: the data may be older than the change that it announced.
            if flight.keep {
                entry.copy = whole.map(Into::into);
            }
        } else if let Some(entry) = self.lines.get_mut(&flight.line) {
            // The host has declined, so it will send no message about this line.
            entry.copy = None;
        }
        match whole {
            Some(_) if ln && flight.keep => Outcome::Cached,
            Some(_) => Outcome::Once,
            None => Outcome::Failed,
        }
    }

    /// Processes an LN Message, directed or broadcast.
    pub fn on_message(&mut self, message: &LnMessage) -> Effect {
        // In flit mode LN does not exist, so this is no LN Message (PCIe 6.0).
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
        // Entries stay as shells: a broadcast may have been meant for others, and the host still count this
        // function.
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

    /// Marks reads of matching lines under way, so that their data is not kept as a copy.
    fn doom(&mut self, is: impl Fn(Line) -> bool) {
        for flight in self.flights.values_mut().filter(|flight| is(flight.line)) {
            flight.keep = false;
        }
    }

    /// Deregisters lines until `line` fits the limit: shells first, then the copy used longest ago.
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
        // Reads under way of other lines will be registered, too, and count already.
        let extra = under_way.iter().filter(|line| !self.lines.contains_key(line)).count();
        while self.lines.len() + extra >= limit {
            // A line with a read under way cannot be given up: the read would register it again.
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
