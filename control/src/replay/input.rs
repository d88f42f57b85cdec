//! Captures as inputs of a replay.
//!
//! [`Source`]s → [`Inputs`], frames with timestamps in virtual time. An error on the way is kept until the replay has
//! ended. Captures count nanoseconds since the epoch, virtual time picoseconds since [`Base`].
//!
//! Source: docs/spec/pipeline.md §13.

use std::cell::RefCell;
use std::path::PathBuf;
use std::rc::Rc;

use weft_dataplane::port::capture::{CaptureError, CaptureReader, RECORD_LEN_MAX, Record};
use weft_dataplane::time::Instant;
use weft_dataplane::types::PortId;
use weft_sim::replay::InputFrame;

use super::JobError;
use super::gaps::Gaps;
use super::sources::Source;

const NS_PER_S: u64 = 1_000_000_000;

/// Start of virtual time, in nanoseconds since the epoch.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Base {
    ns: u64,
}

impl Base {
    /// For timestamps that count from the start of a run.
    pub const ZERO: Self = Self { ns: 0 };

    #[must_use]
    pub const fn ns(self) -> u64 {
        self.ns
    }

    /// Timestamp for a capture.
    #[must_use]
    pub const fn stamp_ns(self, at: Instant) -> u64 {
        self.ns.saturating_add(at.as_ns())
    }

    /// Timestamp of a capture in virtual time; the error is the time since the base, if that is too long.
    fn instant(self, ts_ns: u64) -> Result<Instant, u64> {
        let since = ts_ns.saturating_sub(self.ns);
        let fits = since <= SPAN_DAYS * 86_400 * NS_PER_S;
        if fits { Ok(Instant::from_ns(since)) } else { Err(since) }
    }
}

/// Longest span of timestamps. Instants are compared the shorter way round, so half of the 213 days that picoseconds in
/// 64 bits count is the limit, and queued frames need time after the last timestamp.
pub(super) const SPAN_DAYS: u64 = 106;

/// State that the inputs of a replay share with the code that waits for its end.
#[derive(Default)]
pub(super) struct Shared {
    pub(super) error: Option<JobError>,
    /// Warnings for the user about captures that have been read to their ends.
    pub(super) warnings: Vec<String>,
    pub(super) read: u64,
}

/// The captures of a replay. Each is opened once, as one may be a pipe.
pub struct Inputs {
    pub(super) base: Base,
    pub(super) by_port: Vec<(PortId, Input)>,
    pub(super) shared: Rc<RefCell<Shared>>,
}

impl Inputs {
    /// Opens the captures of some ports. Virtual time begins at the whole second in which the earliest first frame was
    /// captured. Gaps of more than `gap_ns_max` are shortened to that length; for this, the sources are read once here
    /// and again by the replay.
    ///
    /// # Errors
    /// A file is no capture, or its first record is damaged.
    pub fn open(
        sources: &[(PortId, Source)],
        gap_ns_max: Option<u64>,
    ) -> Result<Self, CaptureError> {
        let gaps = match gap_ns_max {
            None => Gaps::default(),
            Some(most) => {
                let all: Vec<Source> = sources.iter().map(|(_, source)| source.clone()).collect();
                Gaps::find(&all, most)?
            }
        };
        let (gaps, shared) = (Rc::new(gaps), Rc::new(RefCell::new(Shared::default())));
        // The first record of each is read here and kept: the earliest one is the base of all.
        let mut opened = Vec::new();
        for (port, source) in sources {
            let mut reader = source.reader()?;
            let mut first = Record::default();
            let first = reader.read_into(&mut first)?.then_some(first);
            opened.push((*port, source.name().path.clone(), reader, first));
        }
        let earliest = opened.iter().filter_map(|(.., first)| Some(first.as_ref()?.ts_ns)).min();
        let ns = earliest.unwrap_or(0);
        let base = Base { ns: ns - ns % NS_PER_S };
        let by_port = opened.into_iter().map(|(port, path, reader, first)| {
            let (gaps, shared) = (gaps.clone(), shared.clone());
            (port, Input { path, reader, first, base, gaps, shared })
        });
        Ok(Self { base, by_port: by_port.collect(), shared: shared.clone() })
    }

    /// Adds warnings to those of the report.
    pub fn warn(&self, warnings: Vec<String>) {
        self.shared.borrow_mut().warnings.extend(warnings);
    }

    /// Start of virtual time.
    #[must_use]
    pub const fn base(&self) -> Base {
        self.base
    }
}

/// Frames of one capture, up to the first record that cannot be read.
pub struct Input {
    path: PathBuf,
    reader: CaptureReader,
    /// The first record, until it is returned.
    first: Option<Record>,
    base: Base,
    gaps: Rc<Gaps>,
    shared: Rc<RefCell<Shared>>,
}

impl Input {
    /// The next record; `None` at the end.
    fn read(&mut self) -> Result<Option<Record>, CaptureError> {
        if let Some(first) = self.first.take() {
            return Ok(Some(first));
        }
        let mut record = Record::default();
        Ok(self.reader.read_into(&mut record)?.then_some(record))
    }
}

impl Iterator for Input {
    type Item = InputFrame;

    fn next(&mut self) -> Option<InputFrame> {
        let read = self.read();
        let mut shared = self.shared.borrow_mut();
        let record = match read {
            Ok(Some(record)) => record,
            Ok(None) => {
                // Only at the end are a reader's warnings complete.
                for warning in self.reader.warnings() {
                    // One file can be the input of several ports.
                    if !shared.warnings.contains(&warning) {
                        shared.warnings.push(warning);
                    }
                }
                return None;
            }
            Err(error) => {
                // The first error is the one that is reported; an iterator has no other way to return it.
                shared.error.get_or_insert(error.into());
                return None;
            }
        };
        let at =
            match self.base.instant(record.ts_ns.saturating_sub(self.gaps.before(record.ts_ns))) {
                Ok(at) => at,
                Err(ns) => {
                    shared.error.get_or_insert(JobError::Span { path: self.path.clone(), ns });
                    return None;
                }
            };
        shared.read += 1;
        let flaw = record.flaw();
        // The length would keep the wire busy for minutes if a damaged record could give any.
        let orig_len = record.orig_len.min(RECORD_LEN_MAX) as usize;
        Some(InputFrame { at, bytes: record.data, orig_len, flaw })
    }
}
