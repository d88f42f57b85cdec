//! Transfers of any size: requests of at most 4 KiB, several at a time, and what they bring compared.
//!
//! [`Plan`] → [`Transfers::begin`]; [`Transfers::pump`] submits, [`Transfers::take`] is told the ends.
//!
//! Units: bytes; time as a parameter.
//! Source: PCIe 6.0 section 2.4.1 (a read, be it of no bytes, pushes posted writes before it).
//!
//! A write by memory requests is posted, so each 4 KiB of it are followed by a read of no bytes, which comes back
//! behind them: what is reported as written has arrived, and a sender cannot run away from its receiver. CXL.mem completes a
//! refused store like any other, so there a load of one line follows.

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

/// Bytes that are asked for at once.
const CHUNK: u64 = 4_096;
/// Such requests under way.
const WINDOW: usize = 16;
/// Submits a transaction, or a load or store, to an endpoint; gives its name.
pub type Submit<'a> = dyn FnMut(Ask) -> Result<OpId, Refused> + 'a;

/// What a failure is called in reports.
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

/// A transfer under way.
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

    /// Sends a part; the number of requests that went.
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
            let len = (CHUNK - addr % CHUNK).min(self.plan.len - at);
            sent += self.send(Chunk { at, len, writes: self.plan.write }, submit)?;
            self.next += len;
        }
        Ok(sent)
    }

    /// Whether `done` is one of its requests' ends.
    fn take(&mut self, done: &Done, submit: &mut Submit<'_>) -> bool {
        let Some(chunk) = self.under_way.remove(&done.op) else { return false };
        // The load behind a store asks only whether there is such memory: a line that was lost since is no refused store.
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

    /// How it went, if it is over.
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
        // What did not come would look like zeros that did.
        if !self.data.is_empty() && report.ok {
            report.data = Some(Hex(core::mem::take(&mut self.data)));
        }
        Some(report)
    }
}

/// All transfers of an endpoint, by the number of who asked.
#[derive(Default)]
pub struct Transfers {
    active: BTreeMap<u64, Transfer>,
    load: Option<Load>,
}

impl Transfers {
    /// Begins a transfer.
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

    /// Begins a load.
    ///
    /// # Errors
    /// There is one, or it does not hold together.
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

    /// Has the load end behind its round.
    ///
    /// # Errors
    /// There never was one.
    pub fn stop_load(&mut self) -> Result<(), Refused> {
        let load = self.load.as_mut().ok_or_else(|| Refused::because("no load was started"))?;
        load.stopping = true;
        Ok(())
    }

    /// Forgets the load, as if there never had been one.
    pub fn forget_load(&mut self) {
        self.load = None;
    }

    /// How the load goes, if there is one.
    #[must_use]
    pub fn load(&self) -> Option<LoadReport> {
        self.load.as_ref().map(Load::report)
    }

    /// Submits what can be; returns how much that was, and appends those that are over to `ended`.
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

    /// Takes a request's end; false if it is none of its requests.
    pub fn take(&mut self, done: &Done, submit: &mut Submit<'_>) -> bool {
        let load = self.load.as_mut().and_then(|load| load.transfer.as_mut());
        self.active.values_mut().chain(load).any(|transfer| transfer.take(done, submit))
    }
}

/// How the load goes, and its end.
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
