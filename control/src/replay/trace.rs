//! Decisions of a replay, written as they are made or frame by frame.
//!
//! Shape: events in → JSON lines (each event with `t_ps`), text (a path a paragraph) or pcapng (the
//! frame as it came in, with its path as comment).
//! Units: picoseconds; stamps of pcapng in nanoseconds.
//! Source: issue 2, "`weft trace`"; pipeline.md §13; draft-ietf-opsawg-pcapng-05, 3.5 (comments).

use std::collections::{BTreeMap, VecDeque};
use std::io::{self, Write};

use serde::Serialize;
use weft_dataplane::port::capture::{CaptureError, CaptureWriter, Meta};
use weft_dataplane::time::Instant;
use weft_dataplane::trace::Event;

use crate::paths::{self, Filter, Path, Paths};

/// Why a trace could not be written.
#[derive(Debug, thiserror::Error)]
pub enum TraceError {
    /// Text or JSON.
    #[error("write trace")]
    Write(#[from] io::Error),
    /// pcapng.
    #[error("write trace")]
    Capture(#[from] CaptureError),
}

/// Octets of frames on their way in, so that a path can be shown with its frame.
#[derive(Debug, Default)]
pub struct Arrivals {
    waiting: BTreeMap<u8, VecDeque<Vec<u8>>>,
    /// Of frames that were received, by their number.
    received: BTreeMap<u64, Vec<u8>>,
}

impl Arrivals {
    /// A frame is about to come in at `port`.
    pub fn push(&mut self, port: u8, frame: &[u8]) {
        self.waiting.entry(port).or_default().push_back(frame.to_vec());
    }

    /// Frame `number` came in at `port` with this length and these first octets. Frames before it
    /// never reached the parser.
    fn receive(&mut self, number: u64, port: u8, len: u16, digest: u64) {
        let Some(waiting) = self.waiting.get_mut(&port) else { return };
        while let Some(frame) = waiting.pop_front() {
            // shorter frames are read as if zeros followed
            let mut front = [0; 8];
            for (to, from) in front.iter_mut().zip(&frame) {
                *to = *from;
            }
            if frame.len() == usize::from(len) && u64::from_be_bytes(front) == digest {
                self.received.insert(number, frame);
                return;
            }
        }
    }
}

/// Where a trace goes, and in what form.
pub struct Sink<'a> {
    form: Form<'a>,
    ports: Vec<String>,
}

enum Form<'a> {
    Json(Box<dyn Write + 'a>),
    Text(Box<dyn Write + 'a>),
    Capture { capture: Box<CaptureWriter>, base_ns: u64 },
}

#[derive(Serialize)]
struct Line<'a> {
    t_ps: u64,
    #[serde(flatten)]
    event: &'a Event,
}

/// Most octets of a comment.
const COMMENT_LEN_MAX: usize = u16::MAX as usize;

impl<'a> Sink<'a> {
    /// JSON lines.
    pub fn json(out: impl Write + 'a) -> Self {
        Self { form: Form::Json(Box::new(out)), ports: Vec::new() }
    }

    /// Text; `ports` are the names of the switch's ports.
    pub fn text(out: impl Write + 'a, ports: Vec<String>) -> Self {
        Self { form: Form::Text(Box::new(out)), ports }
    }

    /// pcapng with an interface for each port; stamps are `base_ns` and the time of receipt.
    ///
    /// # Errors
    /// The capture cannot be written.
    pub fn capture(
        mut capture: CaptureWriter,
        ports: Vec<String>,
        base_ns: u64,
    ) -> Result<Self, TraceError> {
        for port in &ports {
            capture.add_interface(port)?;
        }
        Ok(Self { form: Form::Capture { capture: Box::new(capture), base_ns }, ports })
    }

    fn line(&mut self, now: Instant, event: &Event) -> Result<(), TraceError> {
        let Form::Json(out) = &mut self.form else { return Ok(()) };
        serde_json::to_writer(&mut *out, &Line { t_ps: now.as_ps(), event })
            .map_err(io::Error::from)?;
        Ok(out.write_all(b"\n")?)
    }

    fn path(&mut self, path: &Path, bytes: &[u8]) -> Result<(), TraceError> {
        let ports = &self.ports;
        let name = |port: u8| ports.get(usize::from(port)).cloned().unwrap_or_default();
        match &mut self.form {
            Form::Json(_) => path.events.iter().try_for_each(|(at, event)| self.line(*at, event)),
            Form::Text(out) => {
                Ok(paths::lines(path, &name).try_for_each(|line| writeln!(out, "{line}"))?)
            }
            Form::Capture { capture, base_ns } => {
                let Some((at, Event::Rx { port, len, .. })) = path.events.first() else {
                    return Ok(());
                };
                let lines: Vec<String> = paths::lines(path, &name).collect();
                let text = lines.join("\n");
                let comment = text.get(..text.len().min(COMMENT_LEN_MAX)).unwrap_or_default();
                let meta = Meta {
                    ts_ns: base_ns.saturating_add(at.as_ns()),
                    interface: u32::from(*port),
                    orig_len: u32::from(*len),
                    comment: Some(comment),
                    ..Meta::default()
                };
                Ok(capture.write_with(meta, bytes)?)
            }
        }
    }
}

/// Collects paths and writes them.
pub struct Tracer<'a> {
    sink: Sink<'a>,
    filter: Filter,
    /// Paths that may still be written.
    left: u64,
    /// Every event is written as it comes: nothing to collect.
    streams: bool,
    paths: Paths,
    /// What went wrong first.
    error: Option<TraceError>,
}

impl<'a> Tracer<'a> {
    /// A tracer of at most `count` frames that `filter` wants.
    #[must_use]
    pub fn new(sink: Sink<'a>, filter: Option<Filter>, count: Option<u64>) -> Self {
        let streams = matches!(sink.form, Form::Json(_)) && filter.is_none() && count.is_none();
        Self {
            sink,
            filter: filter.unwrap_or_default(),
            left: count.unwrap_or(u64::MAX),
            streams,
            paths: Paths::default(),
            error: None,
        }
    }

    /// Whether frames' octets are shown.
    #[must_use]
    pub const fn wants_bytes(&self) -> bool {
        matches!(self.sink.form, Form::Capture { .. })
    }

    /// Takes an event; `arrivals` has the octets of received frames.
    pub fn event(&mut self, now: Instant, event: &Event, arrivals: &mut Arrivals) {
        let result = if self.streams {
            self.sink.line(now, event)
        } else {
            self.collect(now, event, arrivals)
        };
        if let Err(error) = result {
            self.error.get_or_insert(error);
            self.left = 0;
            self.streams = false;
        }
    }

    fn collect(
        &mut self,
        now: Instant,
        event: &Event,
        arrivals: &mut Arrivals,
    ) -> Result<(), TraceError> {
        if self.left == 0 {
            return Ok(());
        }
        if let Event::Rx { frame, port, len, digest } = *event {
            arrivals.receive(frame, port, len, digest);
        }
        let Some(path) = self.paths.feed(now, event) else { return Ok(()) };
        let bytes = arrivals.received.remove(&path.frame).unwrap_or_default();
        if !self.filter.wants(&path) {
            return Ok(());
        }
        self.left -= 1;
        self.sink.path(&path, &bytes)
    }

    /// Ends the trace.
    ///
    /// # Errors
    /// What could not be written, now or before.
    pub fn finish(self) -> Result<(), TraceError> {
        if let Some(error) = self.error {
            return Err(error);
        }
        match self.sink.form {
            Form::Json(mut out) | Form::Text(mut out) => Ok(out.flush()?),
            Form::Capture { capture, .. } => {
                capture.finish()?;
                Ok(())
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const RX: Event = Event::Rx { frame: 1, port: 0, len: 60, digest: 0 };
    const DROP: Event = Event::Drop { frame: 1, port: 0, reason: "dt" };

    fn run(filter: Option<&str>, count: Option<u64>, events: &[Event]) -> String {
        let mut out = Vec::new();
        let filter = filter.map(|text| Filter::parse(text, |_| Some(0)).unwrap());
        let mut tracer = Tracer::new(Sink::json(&mut out), filter, count);
        for event in events {
            tracer.event(Instant::from_ps(5), event, &mut Arrivals::default());
        }
        tracer.finish().unwrap();
        String::from_utf8(out).unwrap()
    }

    #[test]
    fn json_streams_all_or_the_frames_that_are_wanted() {
        let link = Event::Link { port: 0, up: true };
        let all = run(None, None, &[link, RX, DROP]);
        assert_eq!(all.lines().count(), 3);
        assert!(all.starts_with("{\"t_ps\":5,\"ev\":\"link\",\"port\":0,\"up\":true}\n"), "{all}");
        #[rustfmt::skip] // columns: name, filter, count, lines
        let cases = [
            ("only frames",  None,             Some(1), 2),
            ("no more",      None,             Some(0), 0),
            ("wanted",       Some("drop=dt"),  None,    2),
            ("not wanted",   Some("drop=pool"), None,   0),
        ];
        for (name, filter, count, lines) in cases {
            assert_eq!(run(filter, count, &[link, RX, DROP]).lines().count(), lines, "{name}");
        }
    }

    #[test]
    fn octets_are_found_by_length_and_front() {
        let mut arrivals = Arrivals::default();
        for frame in [&[1, 2, 3][..], &[1, 2, 3, 4], &[9, 9]] {
            arrivals.push(3, frame);
        }
        arrivals.receive(7, 3, 4, 0x0102_0304 << 32);
        assert_eq!(arrivals.received.get(&7).map(Vec::as_slice), Some(&[1, 2, 3, 4][..]));
        arrivals.receive(8, 3, 4, 0x0102_0304 << 32);
        arrivals.receive(9, 4, 4, 0);
        assert_eq!(arrivals.received.len(), 1, "no other is like that");
    }
}
