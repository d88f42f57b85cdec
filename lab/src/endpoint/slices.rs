//! Commands that take long, in slices between frames.
//!
//! `Slices` has what is under way; the runner has `Slices::step` do one slice after each time that it has served
//! the ports. A slice is a bounded amount of work, not of time: an endpoint reads no clock.
//!
//! Units: bytes.
//! Source: docs/endpoint.md "Control socket".
//!
//! A slice of [`SLICE`] bytes takes well below a millisecond. Whatever else takes long belongs here, too: an endpoint that is
//! held up answers no snoop, and no request of others.

use std::collections::VecDeque;

use serde_json::Value;
use weft_cxl::cxl_host::{CpuAccess, CpuStep};
use weft_rpc::Refused;

use super::api::Endpoint;
use super::command::{Answer, Command, OwnRange, Status, TransferReport};
use super::number::Hex;
use super::own_memory::OwnMemory;
use super::transfer::{DATA_MAX, Source, compare, own};

/// Bytes of an endpoint's own memory that are stored or looked at in one slice.
pub const SLICE: u64 = 64 << 10;

/// What a slice has led to.
enum Done {
    More,
    All(Result<Answer, Refused>),
}

/// A command in slices.
enum Job {
    /// Of an endpoint's own memory.
    Own(Box<Own>),
    /// A status whose list is being made.
    Status { status: Box<Status>, name: &'static str, rows: Vec<Value>, next: usize },
}

/// Bytes that are stored, or looked at.
struct Own {
    command: Command,
    stores: bool,
    at: u64,
    len: u64,
    done: u64,
    source: Source,
    data: Vec<u8>,
    report: TransferReport,
    /// Bytes that wait for a cache of a device, and how many.
    waits: Option<(CpuAccess, usize)>,
}

/// Commands that are carried out in slices, in turn.
#[derive(Default)]
pub(super) struct Slices {
    jobs: VecDeque<(u64, Job)>,
}

impl Slices {
    /// Whether nothing is under way.
    pub(super) fn is_empty(&self) -> bool {
        self.jobs.is_empty()
    }

    /// Forgets all: another endpoint takes the place of this one.
    pub(super) fn clear(&mut self) {
        self.jobs.clear();
    }

    /// Takes a command that stores to an endpoint's own memory, or looks at it.
    ///
    /// # Errors
    /// It does not hold together, or there is no such memory; nothing was done then.
    pub(super) fn own(
        &mut self,
        number: u64,
        endpoint: &mut dyn Endpoint,
        command: &Command,
        place: &OwnRange,
    ) -> Result<(), Refused> {
        let stores = matches!(command, Command::Store(_));
        let (at, len, source) = own(place, stores)?;
        endpoint.own_memory(command)?.check(at, len)?;
        let job = Own {
            command: command.clone(),
            stores,
            at,
            len,
            done: 0,
            source,
            data: Vec::new(),
            report: TransferReport::default(),
            waits: None,
        };
        self.jobs.push_back((number, Job::Own(Box::new(job))));
        Ok(())
    }

    /// Takes a status, to which a list is to be added.
    pub(super) fn status(&mut self, number: u64, status: Status, name: &'static str) {
        let job = Job::Status { status: Box::new(status), name, rows: Vec::new(), next: 0 };
        self.jobs.push_back((number, job));
    }

    /// Does one slice of the command whose turn it is; the answer of a command that has ended.
    pub(super) fn step(
        &mut self,
        endpoint: &mut dyn Endpoint,
    ) -> Option<(u64, Result<Answer, Refused>)> {
        let (number, mut job) = self.jobs.pop_front()?;
        match job.slice(endpoint) {
            Done::All(answer) => Some((number, answer)),
            Done::More => {
                self.jobs.push_back((number, job));
                None
            }
        }
    }
}

impl Job {
    fn slice(&mut self, endpoint: &mut dyn Endpoint) -> Done {
        match self {
            Self::Own(own) => own.slice(endpoint).unwrap_or_else(|refused| Done::All(Err(refused))),
            Self::Status { status, name, rows, next } => {
                let (more, then) = endpoint.detail_rows(*next);
                rows.extend(more);
                if let Some(then) = then {
                    *next = then;
                    return Done::More;
                }
                status.add_list(name, core::mem::take(rows));
                Done::All(Ok(Answer::Status(core::mem::take(status))))
            }
        }
    }
}

impl Own {
    /// Stores or loads some bytes: those that were done, or `None` where they wait for a cache of a device.
    fn move_some(&mut self, memory: &mut dyn OwnMemory) -> Result<Option<Vec<u8>>, Refused> {
        if let Some((access, len)) = self.waits {
            let Some(ended) = memory.ended(access) else { return Ok(None) };
            self.waits = None;
            let loaded = ended?;
            return Ok(Some(if self.stores { vec![0; len] } else { loaded }));
        }
        let (at, len) = (self.at + self.done, SLICE.min(self.len - self.done));
        let mut bytes = vec![0; usize::try_from(len).unwrap_or(0)];
        let step = if self.stores {
            self.source.fill(self.done, &mut bytes);
            memory.store(at, &bytes)?
        } else {
            memory.load(at, &mut bytes)?
        };
        match step {
            CpuStep::Done(done) => bytes.truncate(done),
            CpuStep::Waits(access, len) => {
                self.waits = Some((access, len));
                return Ok(None);
            }
        }
        Ok(Some(bytes))
    }

    fn slice(&mut self, endpoint: &mut dyn Endpoint) -> Result<Done, Refused> {
        let memory = endpoint.own_memory(&self.command)?;
        let Some(bytes) = self.move_some(memory)? else { return Ok(Done::More) };
        let len = bytes.len() as u64;
        if self.stores {
            self.report.written += len;
        } else {
            self.report.read += len;
            if self.source == Source::Nothing {
                debug_assert!(self.len <= DATA_MAX, "`own` refuses more");
                self.data.extend(bytes);
            } else {
                compare(&mut self.report, self.at, self.done, &bytes, &self.source);
            }
        }
        self.done += len;
        if self.done < self.len {
            return Ok(Done::More);
        }
        let mut report = core::mem::take(&mut self.report);
        report.ok = report.mismatched == 0;
        if !self.stores && self.source == Source::Nothing {
            report.data = Some(Hex(core::mem::take(&mut self.data)));
        }
        Ok(Done::All(Ok(Answer::Transfer(Box::new(report)))))
    }
}
