//! Commands for the LN requesters of a device.
//!
//! A command becomes a request by [`CxlDevice::ask_ln`]; the device's events answer it, by number. A write, or a line
//! given back, has no completion, so a read of zero bytes follows it and shows that it has arrived.
//!
//! Source: docs/endpoint.md "Lightweight Notification"; PCIe 5.0 section 6.21.

use std::collections::BTreeMap;

use weft_cxl::cxl_device::{CxlDevice, Refusal};
use weft_cxl::ln::lnr::Lnr;
use weft_cxl::ln::{LnMessage, Outcome, Reason, Ticket};
use weft_cxl::pci::function::LnrSpec;
use weft_cxl::requester::{Done, Failure, OpId, Operation};
use weft_dataplane::time::{Instant, Span};
use weft_parsers::fabric::Hpa;
use weft_rpc::Refused;

use crate::endpoint::command::{Answer, Command};
use crate::endpoint::event_log::EventLog;
use crate::endpoint::ln_report::{LISTED_MAX, LnAccess, LnOutcome, LnReport, LnrFunction, LnrLine};
use crate::endpoint::number::Hex;
use crate::endpoint::transfer::name;

/// A command that waits for the end of its request.
struct Waiting {
    number: u64,
    addr: Hpa,
    until: Instant,
}

/// Commands in progress at the LN requesters of a device.
pub struct LnCommands {
    spec: Option<LnrSpec>,
    flit: bool,
    reads: BTreeMap<(u8, Ticket), Waiting>,
    /// Reads of zero bytes behind writes, with the outcome to report when they end.
    flushes: BTreeMap<(u8, OpId), (Waiting, LnOutcome)>,
}

impl LnCommands {
    /// For functions with `spec`, or without LN requesters; `flit` tells the mode of the link.
    #[must_use]
    pub const fn new(spec: Option<LnrSpec>, flit: bool) -> Self {
        Self { spec, flit, reads: BTreeMap::new(), flushes: BTreeMap::new() }
    }

    /// The refusal for people: why a requester cannot be used, and how to change that.
    fn refused(&self, refusal: Refusal) -> Refused {
        use weft_cxl::ln::lnr::Refused as Ln;
        Refused::because(match refusal {
            // Flit mode first: no setting of the requester helps there.
            Refusal::NoLn(_) | Refusal::Ln(Ln::Off) if self.flit => {
                "flit mode has no Lightweight Notification: start the device with --mode non-flit \
                 --lnr N, and its host with --mode non-flit --ln-lines N"
                    .to_owned()
            }
            Refusal::NoLn(_) if self.spec.is_none() => {
                "the device has no LN requester: start it with --lnr N".to_owned()
            }
            Refusal::NoLn(_) | Refusal::NotMaster(_) | Refusal::Ln(Ln::Off) => {
                "LN is off: a host with --ln-lines switches it on when it enumerates, if both have \
                 lines of one size"
                    .to_owned()
            }
            other => other.to_string(),
        })
    }

    fn lnr<'a>(&self, device: &'a CxlDevice, function: u8) -> Result<&'a Lnr, Refused> {
        device.lnr(function).map_err(|refusal| self.refused(refusal))
    }

    /// Carries a command out, or starts it.
    ///
    /// # Errors
    /// The reason for a refusal; nothing was done then.
    pub fn begin(
        &mut self,
        device: &mut CxlDevice,
        now: Instant,
        number: u64,
        command: &Command,
    ) -> Result<Option<Answer>, Refused> {
        let until = now + Span::from_ms(command.timeout_ms());
        let wait = |addr| Waiting { number, addr, until };
        match command {
            Command::LnRead(access) | Command::LnProbe(access) => {
                no_data(access)?;
                let (function, addr) = (access.function, Hpa(access.addr.0));
                let probe = matches!(command, Command::LnProbe(_));
                let asked = device.ask_ln(function, |lnr, out| {
                    if probe { lnr.probe(addr, out) } else { lnr.ln_read(addr, out) }
                });
                let ticket = asked.map_err(|refusal| self.refused(refusal))?;
                self.reads.insert((function, ticket), wait(addr));
                Ok(None)
            }
            Command::LnWrite(access) => self.write(device, access, wait(Hpa(access.addr.0))),
            Command::LnDrop(access) => {
                no_data(access)?;
                let (function, addr) = (access.function, Hpa(access.addr.0));
                let asked = device.ask_ln(function, |lnr, out| lnr.deregister(addr, out));
                asked.map_err(|refusal| self.refused(refusal))?;
                self.flush(device, function, (wait(addr), LnOutcome::Dropped))
            }
            Command::LnCopy(access) => {
                no_data(access)?;
                let lnr = self.lnr(device, access.function)?;
                let addr = Hpa(access.addr.0);
                let copy = lnr.copy(addr).map(|bytes| Hex(bytes.to_vec()));
                let outcome = if copy.is_some() { LnOutcome::Copy } else { LnOutcome::NoCopy };
                let report = LnReport { data: copy, ..report(Some(lnr), addr, outcome) };
                Ok(Some(Answer::Ln(Box::new(report))))
            }
            // `LnStatus`, the only command that is left: `device::begin` sends no other one here.
            _ => self.status(device).map(Some),
        }
    }

    fn write(
        &mut self,
        device: &mut CxlDevice,
        access: &LnAccess,
        waiting: Waiting,
    ) -> Result<Option<Answer>, Refused> {
        let data = access.data.as_ref().map(|it| it.0.as_slice()).unwrap_or_default();
        let asked =
            device.ask_ln(access.function, |lnr, out| lnr.ln_write(waiting.addr, data, out));
        asked.map_err(|refusal| self.refused(refusal))?;
        self.flush(device, access.function, (waiting, LnOutcome::Written))
    }

    /// Sends a read of zero bytes behind posted writes, which it pushes ahead (PCIe 6.0, 2.4.1).
    fn flush(
        &mut self,
        device: &mut CxlDevice,
        function: u8,
        waits: (Waiting, LnOutcome),
    ) -> Result<Option<Answer>, Refused> {
        let read = Operation::Read { addr: waits.0.addr, len: 0 };
        let op = device.submit(function, read).map_err(|refusal| self.refused(refusal))?;
        self.flushes.insert((function, op), waits);
        Ok(None)
    }

    /// Handles the end of a read of zero bytes; false if no command waits for it.
    pub fn take(
        &mut self,
        device: &CxlDevice,
        function: u8,
        done: &Done,
        log: &mut EventLog,
    ) -> bool {
        let Some((waiting, outcome)) = self.flushes.remove(&(function, done.op)) else {
            return false;
        };
        let failure = done.result.as_ref().err().copied();
        let outcome = if failure.is_some() { LnOutcome::Failed } else { outcome };
        let report = report(device.lnr(function).ok(), waiting.addr, outcome);
        answer(&waiting, report, failure, log);
        true
    }

    /// Handles the end of an LN read or probe.
    pub fn ended(
        &mut self,
        device: &CxlDevice,
        function: u8,
        ticket: Ticket,
        outcome: Outcome,
        result: Result<Vec<u8>, Failure>,
        log: &mut EventLog,
    ) {
        let Some(waiting) = self.reads.remove(&(function, ticket)) else { return };
        let outcome = match outcome {
            Outcome::Cached => LnOutcome::Cached,
            Outcome::Once => LnOutcome::Once,
            Outcome::Probed(true) => LnOutcome::Takes,
            Outcome::Probed(false) => LnOutcome::Declines,
            Outcome::Failed | Outcome::Unknown => LnOutcome::Failed,
        };
        let failure = result.as_ref().err().copied();
        // A probe is a read as well, but its data is not the line.
        let wanted = matches!(outcome, LnOutcome::Cached | LnOutcome::Once);
        let data = result.ok().filter(|_| wanted).map(Hex);
        let report = report(device.lnr(function).ok(), waiting.addr, outcome);
        answer(&waiting, LnReport { data, ..report }, failure, log);
    }

    /// Ends the commands whose time limit is over.
    pub fn expire(&mut self, now: Instant, log: &mut EventLog) {
        self.end(|_, waiting| waiting.until <= now, "not finished in time", log);
    }

    /// Ends the commands of a function that was reset, or of all.
    pub fn reset(&mut self, function: Option<u8>, log: &mut EventLog) {
        let hit = |other: u8, _: &Waiting| function.is_none_or(|function| function == other);
        self.end(hit, "the function was reset", log);
    }

    fn end(&mut self, over: impl Fn(u8, &Waiting) -> bool, why: &str, log: &mut EventLog) {
        let mut goes_on = |function: u8, waiting: &Waiting| {
            let ends = over(function, waiting);
            if ends {
                log.answer(waiting.number, Err(Refused::unavailable(why)));
            }
            !ends
        };
        self.reads.retain(|(function, _), waiting| goes_on(*function, waiting));
        self.flushes.retain(|(function, _), (waiting, _)| goes_on(*function, waiting));
    }

    fn status(&self, device: &CxlDevice) -> Result<Answer, Refused> {
        let Some(spec) = self.spec else { return Err(self.refused(Refusal::NoLn(0))) };
        // `map_while` ends at the first number without a function.
        let functions = (0..).map_while(|number| {
            let control = device.function(number).ok()?.lnr_control()?;
            let id = device.id(number).ok()?.to_string();
            let sizes = [(spec.cls64, 64), (spec.cls128, 128)];
            let known = LnrFunction {
                function: number,
                id,
                sizes: sizes.iter().filter(|(has, _)| *has).map(|(_, bytes)| *bytes).collect(),
                lines_max: 1 << spec.registrations,
                on: control.enabled,
                line: usize::from(control.line),
                limit: u64::from(control.limit),
                ..LnrFunction::default()
            };
            Some(device.lnr(number).map_or(known.clone(), |lnr| with_lines(known, lnr)))
        });
        Ok(Answer::LnRequesters { functions: functions.collect() })
    }
}

/// Adds the lines and counters of the requester.
fn with_lines(known: LnrFunction, lnr: &Lnr) -> LnrFunction {
    let counters = lnr.counters();
    let lines = lnr.lines().map(|(line, copy)| LnrLine { addr: line.addr().0, copy });
    LnrFunction {
        registered: lnr.lines().count(),
        copies: lnr.copies().count(),
        under_way: lnr.under_way(),
        lines: lines.take(LISTED_MAX).collect(),
        malformed: counters.malformed,
        misrouted: counters.misrouted,
        unexpected: counters.unexpected,
        ..known
    }
}

fn no_data(access: &LnAccess) -> Result<(), Refused> {
    match access.data {
        None => Ok(()),
        Some(_) => Err(Refused::bad_request("only a write has data")),
    }
}

fn report(lnr: Option<&Lnr>, addr: Hpa, outcome: LnOutcome) -> LnReport {
    // The outcome names the line's first address; without an LN requester its size is unknown.
    let line = lnr.map_or(addr, |lnr| lnr.registers().line().line(addr).addr());
    let copy = lnr.is_some_and(|lnr| lnr.copy(addr).is_some());
    LnReport { line: line.0, outcome, failure: None, copy, data: None }
}

fn answer(waiting: &Waiting, report: LnReport, failure: Option<Failure>, log: &mut EventLog) {
    let failure = failure.map(|it| name(it).to_owned());
    log.answer(waiting.number, Ok(Answer::Ln(Box::new(LnReport { failure, ..report }))));
}

/// Records an LN Message that invalidated copies.
pub fn notified(function: u8, message: &LnMessage, copies: usize, log: &mut EventLog) {
    let text = match Reason::from_bits(message.nr) {
        Some(Reason::AllEvicted) => format!("all lines evicted, {copies} copies dropped"),
        Some(Reason::Evicted) => format!("line {:#x} evicted, copy dropped", message.addr.0),
        _ => format!("line {:#x} updated, copy dropped", message.addr.0),
    };
    log.event("ln", format!("function {function}: {text}"));
}
