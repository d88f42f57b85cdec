//! Transfers of any size: requests of at most 4 KiB, several at a time, and what they bring compared.
//!
//! Shape: [`Plan`] → [`Transfers::begin`]; [`Transfers::pump`] submits, [`Transfers::take`] is told the ends.
//! Units: bytes; time as a parameter.
//! Source: PCIe 6.0 section 2.4.1 (a read, be it of no bytes, pushes posted writes before it).
//!
//! A write by memory requests is posted, so each 4 KiB of it are followed by a read of no bytes, which comes back
//! behind them: what is reported as written has arrived, and a sender cannot run away from its receiver.

use std::collections::BTreeMap;

use weft_cxl::requester::{Done, Failure, OpId, Operation, Transaction};
use weft_dataplane::time::{Instant, Span};
use weft_parsers::fabric::{Hpa, Pid};
use weft_parsers::tlp::Status;
use weft_rpc::Refused;

use super::command::{Access, LoadReport, Own, TransferReport};
use super::number::Hex;

/// Bytes that are asked for at once.
const CHUNK: u64 = 4_096;
/// Such requests under way.
const WINDOW: usize = 16;
/// Most bytes that are read and handed back.
pub const DATA_MAX: u64 = 1 << 20;
/// How long a load that is refused waits before it tries again.
const LOAD_PAUSE: Span = Span::from_ms(10);

/// Submits a transaction to an endpoint; gives its name.
pub type Submit<'a> = dyn FnMut(Transaction) -> Result<OpId, Refused> + 'a;

/// What is written or expected.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Source {
    /// These bytes.
    Data(Vec<u8>),
    /// Bytes made of this.
    Seed(u64),
    /// Nothing is expected.
    Nothing,
}

/// Byte `at` and those behind it of the pattern of `seed`.
pub fn pattern(seed: u64, at: u64, into: &mut [u8]) {
    let mut from = at;
    let mut left = into;
    while !left.is_empty() {
        // The finalizer of splitmix64 over the number of each eight bytes.
        let mut word = (seed ^ (from / 8)).wrapping_add(0x9E37_79B9_7F4A_7C15);
        word = (word ^ word >> 30).wrapping_mul(0xBF58_476D_1CE4_E5B9);
        word = (word ^ word >> 27).wrapping_mul(0x94D0_49BB_1331_11EB);
        word ^= word >> 31;
        let bytes = word.to_le_bytes();
        let skip = usize::try_from(from % 8).unwrap_or(0);
        let bytes = bytes.get(skip..).unwrap_or_default();
        let len = bytes.len().min(left.len());
        let (now, later) = left.split_at_mut(len);
        now.copy_from_slice(bytes.get(..len).unwrap_or_default());
        (from, left) = (from + len as u64, later);
    }
}

impl Source {
    fn of(data: Option<&Hex>, seed: Option<u64>) -> Result<Self, Refused> {
        match (data, seed) {
            (Some(_), Some(_)) => Err(Refused::bad_request("expected data or a seed, found both")),
            (Some(data), None) => Ok(Self::Data(data.0.clone())),
            (None, Some(seed)) => Ok(Self::Seed(seed)),
            (None, None) => Ok(Self::Nothing),
        }
    }

    /// Bytes `at..` of it; false if there is none.
    pub fn fill(&self, at: u64, into: &mut [u8]) -> bool {
        match self {
            Self::Seed(seed) => pattern(*seed, at, into),
            Self::Data(data) => {
                let from = usize::try_from(at).unwrap_or(usize::MAX);
                let Some(bytes) = data.get(from..).and_then(|it| it.get(..into.len())) else {
                    return false;
                };
                into.copy_from_slice(bytes);
            }
            Self::Nothing => return false,
        }
        true
    }
}

/// Length of a range, given by itself or by its data.
fn range(addr: u64, len: Option<u64>, source: &Source) -> Result<u64, Refused> {
    let had = match source {
        Source::Data(data) => Some(data.len() as u64),
        _ => None,
    };
    let len = match (len, had) {
        (Some(len), Some(had)) if len != had => {
            let text = format!("expected {len} bytes of data, found {had}");
            return Err(Refused::bad_request(text));
        }
        (Some(len), _) | (None, Some(len)) => len,
        (None, None) => return Err(Refused::bad_request("expected a length or data")),
    };
    if len == 0 || addr.checked_add(len).is_none() {
        let text = format!("expected a range of addresses, found {len} bytes at {addr:#x}");
        return Err(Refused::bad_request(text));
    }
    Ok(len)
}

/// A transfer as it is carried out.
#[derive(Clone, Debug)]
pub struct Plan {
    addr: u64,
    len: u64,
    source: Source,
    uio: bool,
    to: Option<Pid>,
    write: bool,
    read: bool,
    timeout: Span,
}

impl Plan {
    /// What `access` asks for; `uio` says what the endpoint makes of its `via`.
    ///
    /// # Errors
    /// It does not hold together.
    pub fn new(access: &Access, write: bool, uio: bool) -> Result<Self, Refused> {
        let source = Source::of(access.data.as_ref(), access.seed)?;
        let len = range(access.addr.0, access.len.map(|it| it.0), &source)?;
        if write && source == Source::Nothing {
            return Err(Refused::bad_request("expected data or a seed to write"));
        }
        if !write && source == Source::Nothing && len > DATA_MAX {
            let text = format!("expected at most {DATA_MAX} bytes without a seed, found {len}");
            return Err(Refused::bad_request(text));
        }
        let to = match access.to {
            None => None,
            Some(_) if !uio => return Err(Refused::bad_request("only UIO requests name a port")),
            Some(pid) => Some(Pid::assignable(pid).ok_or_else(|| {
                Refused::bad_request(format!("expected a port id 0..=4094, found {pid}"))
            })?),
        };
        Ok(Self {
            addr: access.addr.0,
            len,
            source,
            uio,
            to,
            write,
            read: !write || access.check,
            timeout: Span::from_us(access.timeout_ms.min(1 << 40).saturating_mul(1_000)),
        })
    }

    fn ask(&self, what: Operation) -> Transaction {
        Transaction { to: self.to, ..what.into() }
    }
}

/// Bytes of the endpoint itself that are stored or looked at: the place, and what goes there.
///
/// # Errors
/// It does not hold together, or is too long for one line.
pub fn own(own: &Own, store: bool) -> Result<(u64, Vec<u8>, Source), Refused> {
    let source = Source::of(own.data.as_ref(), own.seed)?;
    let len = range(own.addr.0, own.len.map(|it| it.0), &source)?;
    if store && source == Source::Nothing {
        return Err(Refused::bad_request("expected data or a seed to store"));
    }
    let most = if source == Source::Nothing { DATA_MAX } else { DATA_MAX << 10 };
    if len > most {
        let text = format!("expected at most {most} bytes at once, found {len}");
        return Err(Refused::bad_request(text));
    }
    let mut bytes = vec![0; usize::try_from(len).unwrap_or(0)];
    if store {
        source.fill(0, &mut bytes);
    }
    Ok((own.addr.0, bytes, source))
}

/// What `bytes`, read at `addr`, are against what was expected.
#[must_use]
pub fn compared(addr: u64, bytes: Vec<u8>, source: &Source) -> TransferReport {
    let mut report = TransferReport { read: bytes.len() as u64, ok: true, ..Default::default() };
    if *source == Source::Nothing {
        report.data = Some(Hex(bytes));
    } else {
        compare(&mut report, addr, 0, &bytes, source);
        report.ok = report.mismatched == 0;
    }
    report
}

fn compare(report: &mut TransferReport, addr: u64, at: u64, bytes: &[u8], source: &Source) {
    let mut want = vec![0; bytes.len()];
    source.fill(at, &mut want);
    for (place, _) in (at..).zip(bytes.iter().zip(&want)).filter(|(_, (a, b))| a != b) {
        report.mismatched += 1;
        report.first_mismatch.get_or_insert(addr + place);
    }
}

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

    fn what(&self, chunk: &Chunk) -> Operation {
        let plan = &self.plan;
        let addr = Hpa(plan.addr + chunk.at);
        let len = usize::try_from(chunk.len).unwrap_or(0);
        match (chunk.writes, plan.uio) {
            (true, uio) => {
                let mut data = vec![0; len];
                plan.source.fill(chunk.at, &mut data);
                if uio {
                    Operation::UioWrite { addr, data }
                } else {
                    Operation::Write { addr, data }
                }
            }
            (false, true) => Operation::UioRead { addr, len },
            (false, false) if plan.read => Operation::Read { addr, len },
            (false, false) => Operation::Read { addr, len: 0 },
        }
    }

    /// Sends a part; the number of requests that went.
    fn send(&mut self, chunk: Chunk, submit: &mut Submit<'_>) -> Result<usize, Refused> {
        let ask = self.plan.ask(self.what(&chunk));
        let op = submit(ask)?;
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
        let bytes = match &done.result {
            Ok(bytes) => bytes,
            Err(failure) => {
                self.fail(chunk.at, name(*failure));
                return true;
            }
        };
        let Plan { uio, read, write, .. } = self.plan;
        if chunk.writes && (read || !uio) {
            let (at, len) = (chunk.at, chunk.len);
            if uio {
                self.report.written += len;
            }
            self.report.answered += u64::from(uio);
            self.report.posted += u64::from(!uio);
            if self.send(Chunk { at, len, writes: false }, submit).is_err() {
                self.fail(at, "refused");
            }
            return true;
        }
        let mismatched = self.report.mismatched;
        if write && (chunk.writes || !uio) {
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
        if !self.data.is_empty() {
            report.data = Some(Hex(core::mem::take(&mut self.data)));
        }
        Some(report)
    }
}

impl LoadReport {
    /// Counts what requests of a round have brought.
    fn add(&mut self, round: &TransferReport) {
        self.mismatched += round.mismatched;
        self.bytes += round.written + round.read;
        self.requests += round.requests;
        self.answered += round.answered;
        self.wrong += round.wrong;
        self.posted += round.posted;
        for (how, count) in &round.failures {
            *self.failures.entry(how.clone()).or_default() += count;
        }
    }
}

/// A range that is written and read back, again and again.
struct Load {
    plan: Plan,
    round: u64,
    rounds: u64,
    pause: Span,
    stopping: bool,
    pause_until: Option<Instant>,
    transfer: Option<Transfer>,
    report: LoadReport,
}

impl Load {
    /// What is counted so far, with what the round under way has brought.
    fn report(&self) -> LoadReport {
        let mut report = self.report.clone();
        if let Some(round) = &self.transfer {
            report.add(&round.report);
            report.under_way = round.under_way.len() as u64;
        }
        report
    }

    fn pump(&mut self, now: Instant, submit: &mut Submit<'_>) -> usize {
        if let Some(round) = self.transfer.as_mut().and_then(|it| it.end(now)) {
            let open = self.transfer.take().map_or(0, |it| it.under_way.len() as u64);
            self.report.unanswered += open;
            self.report.done += u64::from(round.ok);
            self.report.failed += u64::from(round.failed > 0 || round.timed_out);
            self.report.add(&round);
            self.round += 1;
            // What fails at once does not fail as often as there is time for.
            let pause = if round.ok { self.pause } else { self.pause.max(LOAD_PAUSE) };
            self.pause_until = Some(now + pause);
        }
        if self.transfer.is_none() {
            self.report.running = !self.stopping && (self.rounds == 0 || self.round < self.rounds);
            if !self.report.running || self.pause_until.is_some_and(|until| now < until) {
                return 0;
            }
            let seed = match self.plan.source {
                Source::Seed(seed) => seed.wrapping_add(self.round),
                _ => self.round,
            };
            let plan = Plan { source: Source::Seed(seed), ..self.plan.clone() };
            self.transfer = Some(Transfer::new(plan, now));
        }
        let pumped = self.transfer.as_mut().map_or(Ok(0), |it| it.pump(submit));
        pumped.unwrap_or_else(|_| {
            if let Some(round) = self.transfer.take() {
                self.report.unanswered += round.under_way.len() as u64;
                self.report.add(&round.report);
            }
            self.round += 1;
            self.report.failed += 1;
            *self.report.failures.entry("refused".to_owned()).or_default() += 1;
            self.pause_until = Some(now + LOAD_PAUSE);
            0
        })
    }
}

/// All transfers of an endpoint, by the number of who asked.
#[derive(Default)]
pub struct Transfers {
    active: BTreeMap<u64, Transfer>,
    load: Option<Load>,
}

impl Transfers {
    /// Begins one.
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
        uio: bool,
        (rounds, pause_ms): (u64, u64),
    ) -> Result<(), Refused> {
        if self.load.as_ref().is_some_and(|load| load.report.running) {
            return Err(Refused::because("a load runs already: stop it first"));
        }
        if access.data.is_some() {
            return Err(Refused::bad_request("a load is of a pattern, not of data"));
        }
        let access = Access { seed: access.seed.or(Some(0)), check: true, ..access.clone() };
        let plan = Plan::new(&access, true, uio)?;
        let report = LoadReport { running: true, ..LoadReport::default() };
        let pause = Span::from_us(pause_ms.min(1 << 40).saturating_mul(1_000));
        let (round, stopping, pause_until, transfer) = (0, false, None, None);
        let load = Load { plan, round, rounds, pause, stopping, pause_until, transfer, report };
        self.load = Some(load);
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

    /// As if there never had been a load.
    pub fn forget_load(&mut self) {
        self.load = None;
    }

    /// How the load goes.
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

#[cfg(test)]
mod tests {
    /// docs/endpoint.md, "Transfers": the first bytes of `--seed=1`, and any part of them.
    #[test]
    fn the_pattern_is_that_of_the_page() {
        let page = include_str!("../../../docs/endpoint.md");
        let mut bytes = [0; 16];
        super::pattern(1, 0, &mut bytes);
        let text = bytes.iter().fold(String::new(), |text, byte| text + &format!("{byte:02x}"));
        assert_eq!(text, "c15c0289ec2d0a91afcd1d7b39a820e2");
        assert!(page.contains(&text));
        let mut part = [0; 7];
        super::pattern(1, 5, &mut part);
        assert_eq!(part, bytes[5..12]);
    }
}
