//! Traces of a replay: decisions written as they are made, or frame by frame.
//!
//! Events go to a [`Sink`], all of them or the paths that are wanted. Text is in order of time, pcapng by frame.
//!
//! Source: docs/spec/pipeline.md §13.

use weft_dataplane::time::Instant;
use weft_dataplane::trace::{Event, Listen};

use crate::paths::{Filter, Lines, Paths, ShownPath, Sink, TraceError, event_json};

/// Collects the events of frames to paths, and writes them.
pub struct Tracer<'a> {
    sink: Sink<'a>,
    ports: Vec<String>,
    filter: Filter,
    left: u64,
    /// Whether every event is written as it comes, without collecting paths.
    streams: bool,
    paths: Paths,
    /// Lines of wanted frames, held back while an older frame may still be wanted.
    lines: Lines,
    /// The first error.
    error: Option<TraceError>,
}

impl<'a> Tracer<'a> {
    /// Traces at most `count` frames that `filter` wants, through a switch with these `ports`.
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
            lines: Lines::default(),
            error: None,
        }
    }

    fn collect(&mut self, now: Instant, event: &Event) -> Result<(), TraceError> {
        let Some(path) = self.paths.feed(now, event) else { return Ok(()) };
        if self.filter.wants(&path) {
            self.left -= 1;
            let shown = ShownPath::new(path, &self.ports);
            if !self.sink.takes_stages() {
                return self.sink.path(&shown);
            }
            self.lines.add(shown);
        }
        // Lines are in order of time: none later than the oldest open frame may be written yet.
        self.lines.write_before(self.paths.oldest().map(Instant::as_ps), &mut self.sink)
    }

    /// Ends the trace. A reader that went away, such as `head`, ended it before; the replay goes on without it.
    ///
    /// # Errors
    /// An error of writing, now or before.
    pub fn finish(mut self) -> Result<(), TraceError> {
        let ended = match self.error.take() {
            Some(error) => Err(error),
            None => self.lines.write_before(None, &mut self.sink).and_then(|()| self.sink.flush()),
        };
        ended.or_else(|error| if error.is_broken_pipe() { Ok(()) } else { Err(error) })
    }
}

impl Listen for Tracer<'_> {
    fn listen(&mut self, now: Instant, event: &Event) {
        if self.has_enough() {
            return;
        }
        let done = if self.streams {
            self.sink.event(&event_json(now, event, &self.ports))
        } else {
            self.collect(now, event)
        };
        if let Err(error) = done {
            self.error = Some(error);
        }
    }

    fn bytes(&mut self, frame: u64, bytes: &[u8]) {
        if self.sink.wants_bytes() && !self.has_enough() {
            self.paths.keep(frame, bytes);
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
        let first: serde_json::Value = serde_json::from_str(all.lines().next().unwrap()).unwrap();
        assert_eq!(first, serde_json::json!({"t_ps": 5, "ev": "link", "port": 0, "up": true}));
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

    /// Frame 1 comes first and leaves last; its lines stand between those of frame 2 all the same.
    #[test]
    fn lines_are_in_order_of_time() {
        let rx = |frame| Event::Rx { frame, port: 0, len: 60, digest: 0 };
        let tx = |frame| Event::Tx { frame, port: 0, len: 60 };
        let events = [(1, rx(1)), (2, rx(2)), (3, tx(2)), (4, tx(1))];
        let mut out = Vec::new();
        let mut tracer = Tracer::new(Sink::text(&mut out), vec!["left".to_owned()], None, None);
        for (ns, event) in events {
            tracer.listen(Instant::from_ns(ns), &event);
        }
        tracer.finish().unwrap();
        let text = String::from_utf8(out).unwrap();
        let starts: Vec<&str> = text.lines().filter_map(|line| line.get(..19)).collect();
        let want = [
            "0.000000001 frame 1",
            "0.000000002 frame 2",
            "0.000000003 frame 2",
            "0.000000004 frame 1",
        ];
        assert_eq!(starts, want, "{text}");
        assert!(text.lines().all(|line| line.contains(" left ")), "{text}");
    }
}
