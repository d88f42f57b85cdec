//! Transfers of any size: requests of at most 4 KiB, several in flight, with comparison of the data.
//!
//! [`Transfers::begin`] starts a [`Plan`], [`Transfers::pump`] submits requests, and [`Transfers::take`] handles their
//! ends. A memory write is posted, so a read of zero bytes follows each 4 KiB of it and returns behind it. So reported
//! bytes have arrived, and a sender cannot outrun its receiver. CXL.mem completes a refused store like any other, so a
//! load of one line follows there.
//!
//! Source: PCIe 6.0 section 2.4.1 (a read, even of zero bytes, pushes posted writes ahead of it).

mod load;
mod plan;

use std::collections::BTreeMap;

use weft_cxl::requester::{Done, Failure, OpId};
use weft_dataplane::time::{Instant, Span};
use weft_parsers::fabric::Hpa;
use weft_parsers::tlp::Status;
use weft_rpc::Refused;

use load::Load;
pub use plan::{Ask, DATA_MAX, How, Plan, Source, compare, own, pattern};

use super::command::{Access, Answer, Command, LoadReport, TransferReport};
use super::number::Hex;

/// Bytes of one request; requests do not cross multiples of it.
const CHUNK: u64 = 4_096;
/// Requests in flight at most.
const WINDOW: usize = 16;
/// Submits a transaction, or a load or store, to an endpoint; returns its id.
pub type Submit<'a> = dyn FnMut(Ask) -> Result<OpId, Refused> + 'a;

/// Name of a failure in reports.
#[must_use]
pub const fn name(failure: Failure) -> &'static str {
    match failure {
        Failure::Status(Status::UnsupportedRequest) => "UR",
        Failure::Status(Status::CompleterAbort) => "CA",
        Failure::Status(Status::RequestRetry) => "RRS",
        Failure::Status(Status::Success) | Failure::Mismatch => "mismatch",
        Failure::Timeout => "timeout",
        Failure::Poisoned => "poisoned",
        Failure::NoForm => "no_form",
        Failure::NoMemory => "no_memory",
        Failure::Address => "address",
        Failure::GivenUp => "given_up",
    }
}

struct Chunk {
    at: u64,
    len: u64,
    writes: bool,
}

/// A transfer in progress.
struct Transfer {
    plan: Plan,
    next: u64,
    under_way: BTreeMap<OpId, Chunk>,
    data: Vec<u8>,
    report: TransferReport,
    began: Instant,
    until: Instant,
}

impl Transfer {
    fn new(plan: Plan, now: Instant) -> Self {
        // With a seed or data the bytes are compared on arrival, and need no copy.
        let keeps = plan.read && plan.source == Source::Nothing;
        let data = if keeps { vec![0; usize::try_from(plan.len).unwrap_or(0)] } else { Vec::new() };
        let until = now + plan.timeout;
        let (under_way, report) = (BTreeMap::new(), TransferReport::default());
        Self { plan, next: 0, under_way, data, report, began: now, until }
    }

    fn fail(&mut self, at: u64, how: &str) {
        self.report.failed += 1;
        *self.report.failures.entry(how.to_owned()).or_default() += 1;
        let addr = self.plan.addr + at;
        // Requests end in any order, so the first failure in time need not be the lowest address.
        let first = self.report.first_failed.get_or_insert(addr);
        *first = addr.min(*first);
    }

    fn ask(&self, chunk: &Chunk) -> Ask {
        let plan = &self.plan;
        let addr = Hpa(plan.addr + chunk.at);
        let len = usize::try_from(chunk.len).unwrap_or(0);
        if chunk.writes {
            let mut data = vec![0; len];
            plan.source.fill(chunk.at, &mut data);
            return plan.ask(addr, len, Some(data));
        }
        plan.ask(addr, if plan.read { len } else { plan.how.probe_len() }, None)
    }

    /// Submits one request; returns the number of requests submitted.
    fn send(&mut self, chunk: Chunk, submit: &mut Submit<'_>) -> Result<usize, Refused> {
        let op = submit(self.ask(&chunk))?;
        self.report.requests += 1;
        self.under_way.insert(op, chunk);
        Ok(1)
    }

    fn pump(&mut self, submit: &mut Submit<'_>) -> Result<usize, Refused> {
        let mut sent = 0;
        while self.under_way.len() < WINDOW && self.next < self.plan.len {
            let at = self.next;
            let addr = self.plan.addr + at;
            // Aligned pieces: no request of a later stage crosses a page boundary of 4 KiB (PCIe 6.0, 2.2.7).
            let len = (CHUNK - addr % CHUNK).min(self.plan.len - at);
            sent += self.send(Chunk { at, len, writes: self.plan.write }, submit)?;
            self.next += len;
        }
        Ok(sent)
    }

    /// Handles the end of a request; false if it is another transfer's.
    fn take(&mut self, done: &Done, submit: &mut Submit<'_>) -> bool {
        let Some(chunk) = self.under_way.remove(&done.op) else { return false };
        // The load behind a store only shows whether the memory exists. A line lost since then is no refused store.
        let is_probe = self.plan.how == How::Mem && !chunk.writes && !self.plan.read;
        let bytes = match &done.result {
            Ok(bytes) => bytes.as_slice(),
            Err(failure) if is_probe && *failure != Failure::NoMemory => &[],
            Err(failure) => {
                self.fail(chunk.at, name(*failure));
                return true;
            }
        };
        let Plan { how, read, write, .. } = self.plan;
        let is_answered = how.answers_writes();
        // The write has ended, or was posted; now its read: the one that checks, or the one that pushes.
        if chunk.writes && (read || !is_answered) {
            let (at, len) = (chunk.at, chunk.len);
            if is_answered {
                self.report.written += len;
            }
            self.report.answered += u64::from(is_answered);
            self.report.posted += u64::from(!is_answered);
            if self.send(Chunk { at, len, writes: false }, submit).is_err() {
                self.fail(at, "refused");
            }
            return true;
        }
        let mismatched = self.report.mismatched;
        // A posted write counts only now, when the read behind it has come back.
        if write && (chunk.writes || !is_answered) {
            self.report.written += chunk.len;
        }
        if read {
            self.report.read += chunk.len;
            if self.plan.source == Source::Nothing {
                let from = usize::try_from(chunk.at).unwrap_or(usize::MAX);
                for (to, byte) in self.data.iter_mut().skip(from).zip(bytes) {
                    *to = *byte;
                }
            } else {
                let (addr, source) = (self.plan.addr, &self.plan.source);
                compare(&mut self.report, addr, chunk.at, bytes, source);
            }
        }
        let is_right = self.report.mismatched == mismatched;
        self.report.answered += u64::from(is_right);
        self.report.wrong += u64::from(!is_right);
        true
    }

    /// The report, if the transfer is over.
    fn end(&mut self, now: Instant) -> Option<TransferReport> {
        let whole = self.next >= self.plan.len && self.under_way.is_empty();
        let late = now >= self.until;
        if !whole && !late {
            return None;
        }
        let mut report = core::mem::take(&mut self.report);
        report.timed_out = !whole;
        report.ns = now.since(self.began).as_ns();
        report.ok = whole && report.failed == 0 && report.mismatched == 0;
        // Missing bytes would look like zeros that were read.
        if !self.data.is_empty() && report.ok {
            report.data = Some(Hex(core::mem::take(&mut self.data)));
        }
        Some(report)
    }
}

/// All transfers of an endpoint, by the number of their command.
#[derive(Default)]
pub struct Transfers {
    active: BTreeMap<u64, Transfer>,
    load: Option<Load>,
}

impl Transfers {
    /// Starts a transfer.
    ///
    /// # Errors
    /// Its first requests are refused.
    pub fn begin(
        &mut self,
        now: Instant,
        number: u64,
        plan: Plan,
        submit: &mut Submit<'_>,
    ) -> Result<(), Refused> {
        let mut transfer = Transfer::new(plan, now);
        transfer.pump(submit)?;
        self.active.insert(number, transfer);
        Ok(())
    }

    /// Starts a load.
    ///
    /// # Errors
    /// A load runs already, or the command contradicts itself.
    pub fn start_load(
        &mut self,
        access: &Access,
        how: How,
        rounds: u64,
        pause_ms: u64,
    ) -> Result<(), Refused> {
        if self.load.as_ref().is_some_and(|load| load.report.running) {
            return Err(Refused::because("a load runs already: stop it first"));
        }
        if access.data.is_some() {
            return Err(Refused::bad_request("a load is of a pattern, not of data"));
        }
        let access = Access { seed: access.seed.or(Some(0)), check: true, ..access.clone() };
        let plan = Plan::new(&access, true, how)?;
        let report = LoadReport { running: true, ..LoadReport::default() };
        let pause = Span::from_ms(pause_ms);
        let (round, stopping, pause_until, transfer) = (0, false, None, None);
        let last_answer = None;
        self.load = Some(Load {
            plan,
            round,
            rounds,
            pause,
            stopping,
            pause_until,
            transfer,
            report,
            last_answer,
        });
        Ok(())
    }

    /// Lets the load end after its current round.
    ///
    /// # Errors
    /// No load was started.
    pub fn stop_load(&mut self) -> Result<(), Refused> {
        let load = self.load.as_mut().ok_or_else(|| Refused::because("no load was started"))?;
        load.stopping = true;
        Ok(())
    }

    /// Drops the load and its counts.
    pub fn forget_load(&mut self) {
        self.load = None;
    }

    /// Report on the load, if one was started.
    #[must_use]
    pub fn load(&self) -> Option<LoadReport> {
        self.load.as_ref().map(Load::report)
    }

    /// Submits as many requests as possible and returns their number; appends the reports of ended transfers to
    /// `ended`.
    pub fn pump(
        &mut self,
        now: Instant,
        submit: &mut Submit<'_>,
        ended: &mut Vec<(u64, TransferReport)>,
    ) -> usize {
        let mut sent = 0;
        self.active.retain(|number, transfer| {
            if let Ok(more) = transfer.pump(submit) {
                sent += more;
            } else {
                transfer.fail(transfer.next, "refused");
                transfer.next = transfer.plan.len; // the rest would be refused as well
            }
            let end = transfer.end(now);
            let goes_on = end.is_none();
            ended.extend(end.map(|report| (*number, report)));
            goes_on
        });
        if let Some(load) = &mut self.load {
            sent += load.pump(now, submit);
        }
        sent
    }

    /// Handles the end of a request; false if no transfer submitted it.
    pub fn take(&mut self, done: &Done, submit: &mut Submit<'_>) -> bool {
        let load = self.load.as_mut().and_then(|load| load.transfer.as_mut());
        self.active.values_mut().chain(load).any(|transfer| transfer.take(done, submit))
    }
}

/// Answers `load status` and `load stop`.
pub(in crate::endpoint) fn load_answer(
    transfers: &mut Transfers,
    command: &Command,
) -> Result<Answer, Refused> {
    if matches!(command, Command::LoadStop {}) {
        transfers.stop_load()?;
    }
    let report = transfers.load().ok_or_else(|| Refused::because("no load was started"))?;
    Ok(Answer::Load(Box::new(report)))
}
