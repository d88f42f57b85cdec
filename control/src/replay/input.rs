//! Captures as inputs of a replay.
//!
//! Shape: [`CaptureReader`] → frames with stamps in virtual time; what goes wrong on the way is kept
//! until the replay has ended.
//! Units: nanoseconds since the epoch in captures, picoseconds since [`Base`] in virtual time.
//! Source: docs/spec/pipeline.md §13.

use std::cell::RefCell;
use std::path::{Path, PathBuf};
use std::rc::Rc;

use weft_dataplane::port::capture::{CaptureError, CaptureReader, RECORD_LEN_MAX, Record};
use weft_dataplane::time::Instant;
use weft_sim::replay::InputFrame;

use super::JobError;

const NS_PER_S: u64 = 1_000_000_000;

/// When virtual time begins, in nanoseconds since the epoch.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Base {
    ns: u64,
}

impl Base {
    /// Stamps that count from the start of a run.
    pub const ZERO: Self = Self { ns: 0 };

    /// The whole second in which the earliest first frame of `paths` was captured.
    ///
    /// # Errors
    /// A file that is no capture or whose first record is damaged.
    pub fn of<'p>(paths: impl Iterator<Item = &'p PathBuf>) -> Result<Self, CaptureError> {
        let mut earliest: Option<u64> = None;
        for path in paths {
            let mut record = Record::default();
            if CaptureReader::open(path)?.read_into(&mut record)? {
                earliest = Some(earliest.map_or(record.ts_ns, |ns| ns.min(record.ts_ns)));
            }
        }
        let ns = earliest.unwrap_or(0);
        Ok(Self { ns: ns - ns % NS_PER_S })
    }

    /// Nanoseconds since the epoch.
    #[must_use]
    pub const fn ns(self) -> u64 {
        self.ns
    }

    /// A stamp for a capture.
    #[must_use]
    pub const fn stamp_ns(self, at: Instant) -> u64 {
        self.ns.saturating_add(at.as_ns())
    }

    /// A stamp of a capture in virtual time; the time from here to it when that is too long.
    fn instant(self, ts_ns: u64) -> Result<Instant, u64> {
        let since = ts_ns.saturating_sub(self.ns);
        let fits = since <= SPAN_DAYS * 86_400 * NS_PER_S;
        if fits { Ok(Instant::from_ns(since)) } else { Err(since) }
    }
}

/// How far apart stamps may lie: instants are compared the shorter way round, which is half of the 213 days that
/// picoseconds in 64 bits count, and what is queued needs time after the last stamp.
pub(super) const SPAN_DAYS: u64 = 106;

/// What the inputs of a replay share with whoever waits for its end.
#[derive(Default)]
pub(super) struct Shared {
    pub(super) error: Option<JobError>,
    /// Frames read.
    pub(super) read: u64,
}

/// The frames of one capture; it ends at the first record that cannot be read.
pub struct Input {
    path: PathBuf,
    reader: CaptureReader,
    base: Base,
    shared: Rc<RefCell<Shared>>,
}

impl Input {
    pub(super) fn open(
        path: &Path,
        base: Base,
        shared: Rc<RefCell<Shared>>,
    ) -> Result<Self, CaptureError> {
        let reader = CaptureReader::open(path)?;
        Ok(Self { path: path.to_owned(), reader, base, shared })
    }
}

impl Iterator for Input {
    type Item = InputFrame;

    fn next(&mut self) -> Option<InputFrame> {
        let mut shared = self.shared.borrow_mut();
        let mut record = Record::default();
        match self.reader.read_into(&mut record) {
            Ok(true) => {}
            Ok(false) => return None,
            Err(error) => {
                shared.error.get_or_insert(error.into());
                return None;
            }
        }
        let at = match self.base.instant(record.ts_ns) {
            Ok(at) => at,
            Err(ns) => {
                shared.error.get_or_insert(JobError::Span { path: self.path.clone(), ns });
                return None;
            }
        };
        shared.read += 1;
        let flaw = record.flaw();
        // A length that no record can hold would keep the wire busy for minutes.
        let orig_len = record.orig_len.min(RECORD_LEN_MAX) as usize;
        Some(InputFrame { at, bytes: record.data, orig_len, flaw })
    }
}
