//! Replay of captures: frames go through the switch in virtual time, and captures come out of it.
//!
//! A [`Job`] names configuration, inputs and outputs. [`run`] writes one capture for each port and returns the
//! [`Report`] that `result.json` holds; [`compare`] compares captures with expected ones. Captures have nanoseconds,
//! virtual time has picoseconds; lengths are without FCS.
//!
//! Source: docs/spec/pipeline.md §13.
//!
//! Virtual time begins at the whole second in which the earliest input begins, so that captures of
//! any date fit, as long as they lie within 106 days, or gaps between them are made shorter.

pub mod compare;
mod gaps;
mod input;
mod report;
pub mod sources;
pub mod trace;

use std::cell::RefCell;
use std::path::{Path, PathBuf};

use weft_config::Config;
use weft_dataplane::pipeline::Core;
use weft_dataplane::port::capture::{CaptureError, CaptureFormat, CaptureWriter};
use weft_dataplane::time::Instant;
use weft_dataplane::trace::{Event, Listen};
use weft_dataplane::types::PortId;
use weft_sim::replay::{ReplayError, replay_seen};
use weft_sim::switch::SwitchTiming;

use crate::paths::TraceError;

pub use input::{Base, Input, Inputs};
pub use report::{Buffer, Conservation, Named, PortReport, PriReport, Report, drops_of, ports_of};

use input::Shared;
use trace::Tracer;

/// Called with the switch after each step; the flag is set at the one more call at the end.
pub type Look<'a> = &'a dyn Fn(Instant, &Core, bool);

/// A replay to be run.
pub struct Job<'a> {
    pub config: &'a Config,
    /// Existing folder for the output captures.
    pub out: &'a Path,
    /// Whether frames under 60 bytes are dropped, as on a wire. By default they are taken as captured before padding.
    pub drop_runts: bool,
    /// Called with the switch after each step, and once at the end.
    pub look: Option<Look<'a>>,
}

#[derive(Debug, thiserror::Error)]
pub enum JobError {
    /// An input or output cannot be read or written.
    #[error(transparent)]
    Capture(#[from] CaptureError),
    /// The trace cannot be written.
    #[error(transparent)]
    Trace(#[from] TraceError),
    /// The switch cannot be built.
    #[error(transparent)]
    Replay(#[from] ReplayError),
    /// An input's timestamps span more than virtual time does.
    #[error("{}: expected stamps within {days} days, found one {ns} ns after the earliest; --max-gap shortens long gaps", path.display(), days = input::SPAN_DAYS)]
    Span {
        path: PathBuf,
        /// Time between the earliest timestamp and this one.
        ns: u64,
    },
}

#[must_use]
pub fn capture_name(name: &str) -> String {
    format!("{name}.pcap")
}

/// Runs a job on `inputs`. The number of frames read goes to `progress`, decisions go to `tracer`.
///
/// # Errors
/// See [`JobError`].
pub fn run(
    job: &Job<'_>,
    inputs: Inputs,
    mut tracer: Option<Tracer<'_>>,
    progress: &dyn Fn(u64),
) -> Result<Report, JobError> {
    let Inputs { base, by_port, shared } = inputs;
    let names: Vec<&str> = job.config.switch.ports.iter().map(|port| port.name.as_str()).collect();
    let mut outputs = Outputs { captures: Vec::new(), base, error: None };
    for name in &names {
        let path = job.out.join(capture_name(name));
        outputs.captures.push(CaptureWriter::create(path, CaptureFormat::Pcap, 0)?);
    }
    let in_virtual_time = job.config.run.in_virtual_time;
    let around = SwitchTiming {
        latency: in_virtual_time.fixed_latency,
        cut_through: in_virtual_time.cut_through,
        overhead: in_virtual_time.wire_overhead,
        drop_runts: job.drop_runts,
        ..SwitchTiming::default()
    };
    let listener = Hearer { tracer: tracer.as_mut(), events: 0, shared: &shared, progress };
    let result = replay_seen(
        job.config.switch.clone(),
        &around,
        by_port,
        &mut |port, at, frame| outputs.put(port, at, frame),
        listener,
        &mut |now, core, is_end| {
            if let Some(look) = job.look {
                look(now, core, is_end);
            }
        },
    )?;
    // An input error ends the input early, so the results so far are not a replay of it.
    if let Some(error) = shared.borrow_mut().error.take() {
        return Err(error);
    }
    let written = outputs.finish()?;
    if let Some(tracer) = tracer {
        tracer.finish()?;
    }
    let warnings = core::mem::take(&mut shared.borrow_mut().warnings);
    Ok(Report::new(&result, &names, &written, base, warnings))
}

/// Passes every decision on, and reports progress now and then.
struct Hearer<'r, 'a> {
    tracer: Option<&'r mut Tracer<'a>>,
    events: u64,
    shared: &'r RefCell<Shared>,
    progress: &'r dyn Fn(u64),
}

impl Listen for Hearer<'_, '_> {
    fn listen(&mut self, now: Instant, event: &Event) {
        const PROGRESS_EVERY: u64 = 4_096;
        self.events += 1;
        if self.events.is_multiple_of(PROGRESS_EVERY) {
            (self.progress)(self.shared.borrow().read);
        }
        if let Some(tracer) = &mut self.tracer {
            tracer.listen(now, event);
        }
    }

    fn bytes(&mut self, frame: u64, bytes: &[u8]) {
        if let Some(tracer) = &mut self.tracer {
            tracer.bytes(frame, bytes);
        }
    }
}

struct Outputs {
    captures: Vec<CaptureWriter>,
    base: Base,
    error: Option<CaptureError>,
}

impl Outputs {
    fn put(&mut self, port: PortId, at: Instant, frame: &[u8]) {
        let Some(capture) = self.captures.get_mut(port.index()) else { return };
        if self.error.is_none()
            && let Err(error) = capture.write(self.base.stamp_ns(at), frame, None)
        {
            self.error = Some(error);
        }
    }

    /// Ends all captures; returns the number of frames in each.
    fn finish(self) -> Result<Vec<u64>, CaptureError> {
        match self.error {
            Some(error) => Err(error),
            None => self.captures.into_iter().map(CaptureWriter::finish).collect(),
        }
    }
}
