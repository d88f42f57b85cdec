//! Decisions of a replay, written as they are made or frame by frame.
//!
//! Shape: events in → a [`Sink`], all of them or the paths that are wanted.
//! Units: picoseconds.
//! Source: issue 2, "`weft trace`"; pipeline.md §13.

use weft_dataplane::time::Instant;
use weft_dataplane::trace::{Event, Listen};

use crate::paths::{Filter, Paths, ShownPath, Sink, TraceError};

/// Collects paths and writes them.
pub struct Tracer<'a> {
    sink: Sink<'a>,
    /// Names of the switch's ports.
    ports: Vec<String>,
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
    /// A tracer of at most `count` frames that `filter` wants, through a switch with these `ports`.
    #[must_use]
    pub fn new(
        sink: Sink<'a>,
        ports: Vec<String>,
        filter: Option<Filter>,
        count: Option<u64>,
    ) -> Self {
        let streams = sink.takes_events() && filter.is_none() && count.is_none();
        Self {
            sink,
            ports,
            filter: filter.unwrap_or_default(),
            left: count.unwrap_or(u64::MAX),
            streams,
            paths: Paths::default(),
            error: None,
        }
    }

    fn collect(&mut self, now: Instant, event: &Event) -> Result<(), TraceError> {
        let Some(path) = self.paths.feed(now, event) else { return Ok(()) };
        if !self.filter.wants(&path) {
            return Ok(());
        }
        self.left -= 1;
        self.sink.path(&ShownPath::new(path, &self.ports))
    }

    /// Ends the trace.
    ///
    /// # Errors
    /// What could not be written, now or before.
    pub fn finish(mut self) -> Result<(), TraceError> {
        match self.error {
            Some(error) => Err(error),
            None => self.sink.flush(),
        }
    }
}

impl Listen for Tracer<'_> {
    fn listen(&mut self, now: Instant, event: &Event) {
        if self.has_enough() {
            return;
        }
        let done =
            if self.streams { self.sink.event(now, event) } else { self.collect(now, event) };
        if let Err(error) = done {
            self.error = Some(error);
        }
    }

    fn octets(&mut self, frame: u64, octets: &[u8]) {
        if self.sink.wants_octets() && !self.has_enough() {
            self.paths.keep(frame, octets);
        }
    }

    fn has_enough(&self) -> bool {
        self.left == 0 || self.error.is_some()
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
        let mut tracer = Tracer::new(Sink::json(&mut out), Vec::new(), filter, count);
        for event in events {
            tracer.listen(Instant::from_ps(5), event);
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
}
