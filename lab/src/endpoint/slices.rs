//! Long commands, carried out in slices between frames.
//!
//! `Slices` holds the commands in progress. The runner calls `Slices::step` for one slice after each look at the ports.
//! A slice is a bounded amount of work, not of time, because an endpoint reads no clock: [`SLICE`] bytes take well
//! below a millisecond. Anything that takes long belongs here. An endpoint that is held up answers no snoops, and
//! delays the requests of others.
//!
//! Source: docs/endpoint.md "Control socket".

use std::collections::VecDeque;

use serde_json::Value;
use weft_cxl::cxl_host::{CpuAccess, CpuStep};
use weft_rpc::Refused;

use super::api::Endpoint;
use super::command::{Answer, Command, OwnRange, Status, TransferReport};
use super::number::Hex;
use super::own_memory::OwnMemory;
use super::transfer::{DATA_MAX, Source, compare, own};

/// Bytes of the endpoint's own memory that are stored or read in one slice.
pub const SLICE: u64 = 64 << 10;

/// Result of a slice.
enum Done {
    More,
    All(Result<Answer, Refused>),
}

/// A command in slices.
enum Job {
    /// A store or peek.
    Own(Box<Own>),
    /// A status whose list is incomplete.
    Status { status: Box<Status>, name: &'static str, rows: Vec<Value>, next: usize },
}

/// A store or peek in progress.
struct Own {
    command: Command,
    stores: bool,
    at: u64,
    len: u64,
    done: u64,
    source: Source,
    data: Vec<u8>,
    report: TransferReport,
    /// Access that waits for a device's cache, and its length in bytes.
    waits: Option<(CpuAccess, usize)>,
}

/// Long commands, each of which gets a slice in turn.
#[derive(Default)]
pub(super) struct Slices {
    jobs: VecDeque<(u64, Job)>,
}

impl Slices {
    /// Whether no command is in progress.
    pub(super) fn is_empty(&self) -> bool {
        self.jobs.is_empty()
    }

    /// Drops all commands, because another endpoint takes the place of this one.
    pub(super) fn clear(&mut self) {
        self.jobs.clear();
    }

    /// Accepts a command that stores to, or reads, the endpoint's own memory.
    ///
    /// # Errors
    /// The command contradicts itself, or the memory does not exist; nothing was done then.
    pub(super) fn own(
        &mut self,
        number: u64,
        endpoint: &mut dyn Endpoint,
        command: &Command,
        place: &OwnRange,
    ) -> Result<(), Refused> {
        let stores = matches!(command, Command::Store(_));
        let (at, len, source) = own(place, stores)?;
        // The whole range is checked before the first slice, so that a refused store has stored nothing.
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

    /// Accepts a status command that still needs its list.
    pub(super) fn status(&mut self, number: u64, status: Status, name: &'static str) {
        let job = Job::Status { status: Box::new(status), name, rows: Vec::new(), next: 0 };
        self.jobs.push_back((number, job));
    }

    /// Does one slice of the next command in turn; returns the answer of a command that has ended.
    pub(super) fn step(
        &mut self,
        endpoint: &mut dyn Endpoint,
    ) -> Option<(u64, Result<Answer, Refused>)> {
        let (number, mut job) = self.jobs.pop_front()?;
        match job.slice(endpoint) {
            Done::All(answer) => Some((number, answer)),
            Done::More => {
                // To the back: long commands of several clients progress together.
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
    /// Stores or loads some bytes. Returns those that are done, or `None` while they wait for a device's cache.
    fn move_some(&mut self, memory: &mut dyn OwnMemory) -> Result<Option<Vec<u8>>, Refused> {
        if let Some((access, len)) = self.waits {
            let Some(ended) = memory.ended(access) else { return Ok(None) };
            self.waits = None;
            let loaded = ended?;
            // The bytes of a store are not kept; only their number counts here.
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
        // Looked up again for each slice: the endpoint may have changed since the last one.
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
