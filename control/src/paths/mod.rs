//! Paths: all decisions about one frame, from receipt to the end of its last copy.
//!
//! [`Paths`] takes events as they come and returns a frame's [`Path`] when it is complete. A [`Filter`] selects paths;
//! a [`ShownPath`] is one for people and programs, [`Lines`] puts those of many in order of time, and a [`Sink`] writes
//! them. Times are picoseconds since the start.
//!
//! Source: docs/spec/pipeline.md §13.

mod hex;
mod order;
mod show;
mod sink;

use std::collections::BTreeMap;

use weft_dataplane::stats::DropReason;
use weft_dataplane::time::Instant;
use weft_dataplane::trace::Event;
use weft_parsers::Format;

pub use order::Lines;
pub use show::{ShownPath, Stage, event_json};
pub use sink::{Sink, TraceError};

/// Frames that are followed at a time; beyond that the oldest is given up.
const FOLLOWED_MAX: usize = 16_384;

/// All decisions about one frame.
#[derive(Clone, Debug, Default)]
pub struct Path {
    pub frame: u64,
    /// Decisions in order, its receipt first. Times never fall.
    pub events: Vec<(Instant, Event)>,
    /// The frame as it was received; empty unless it was kept.
    pub bytes: Vec<u8>,
    /// Copies that have neither left nor been dropped.
    open: u32,
}

impl Path {
    /// Bytes of memory that it takes.
    #[must_use]
    pub fn size(&self) -> usize {
        let events = self.events.capacity() * size_of::<(Instant, Event)>();
        size_of::<Self>() + events + self.bytes.capacity()
    }
}

/// Frames whose paths are not complete yet.
#[derive(Debug)]
pub struct Paths {
    open: BTreeMap<u64, Path>,
    /// Bytes of memory that they take, and their limit.
    size: usize,
    size_max: usize,
}

impl Default for Paths {
    fn default() -> Self {
        Self::within(usize::MAX)
    }
}

impl Paths {
    /// An empty set whose paths may take `size_max` bytes of memory; beyond that the oldest is given up.
    #[must_use]
    pub const fn within(size_max: usize) -> Self {
        Self { open: BTreeMap::new(), size: 0, size_max }
    }

    fn give_up(&mut self) {
        if let Some((_, path)) = self.open.pop_first() {
            self.size -= path.size();
        }
    }

    /// Takes an event; returns the path that it completes.
    pub fn feed(&mut self, now: Instant, event: &Event) -> Option<Path> {
        let frame = event.frame()?;
        if matches!(event, Event::Rx { .. }) {
            if self.open.len() >= FOLLOWED_MAX || self.size > self.size_max {
                self.give_up();
            }
            let path = Path { frame, open: 1, ..Path::default() };
            self.size += path.size();
            // A number that comes again is of another frame: the old path was never completed.
            if let Some(old) = self.open.insert(frame, path) {
                self.size -= old.size();
            }
        }
        let path = self.open.get_mut(&frame)?;
        let before = path.size();
        // A worker's events have the time at which its pass began. Another worker that takes the frame over may have
        // begun its pass earlier.
        let at = path.events.last().map_or(now, |&(before, _)| now.max(before));
        path.events.push((at, *event));
        self.size += path.size() - before;
        match event {
            // From here on each copy ends on its own.
            Event::Forward { outputs, .. } => path.open = outputs.count_ones(),
            Event::Tx { .. } | Event::Drop { .. } | Event::Consume { .. } => {
                path.open = path.open.saturating_sub(1);
            }
            _ => {}
        }
        if path.open > 0 {
            return None;
        }
        let done = self.open.remove(&frame)?;
        self.size -= done.size();
        Some(done)
    }

    /// When the oldest frame whose path is not complete was received.
    #[must_use]
    pub fn oldest(&self) -> Option<Instant> {
        self.open.first_key_value()?.1.events.first().map(|&(at, _)| at)
    }

    /// Keeps the bytes of a received frame, if there is room for them.
    pub fn keep(&mut self, frame: u64, bytes: &[u8]) {
        let is_full = self.size.saturating_add(bytes.len()) > self.size_max;
        if let Some(path) = self.open.get_mut(&frame)
            && !is_full
        {
            let before = path.size();
            path.bytes = bytes.to_vec();
            self.size = self.size - before + path.size();
        }
    }
}

/// Which drops a filter selects.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Dropped {
    Any,
    For(&'static str),
}

/// Selects paths: all conditions must hold.
#[derive(Clone, Debug, Default)]
pub struct Filter {
    input: Option<u8>,
    output: Option<u8>,
    pri: Option<u8>,
    format: Option<&'static str>,
    drop: Option<Dropped>,
}

/// Syntax of a filter, for help and errors.
pub const FILTER_HELP: &str =
    "in=PORT, out=PORT, pri=N, format=NAME, drop or drop=REASON, joined by commas";

impl Filter {
    /// Parses a filter; `port` gives the number for a port's name.
    ///
    /// # Errors
    /// Text that says what was expected.
    pub fn parse(text: &str, port: impl Fn(&str) -> Option<u8>) -> Result<Self, String> {
        let mut filter = Self::default();
        for part in text.split(',').map(str::trim).filter(|part| !part.is_empty()) {
            let (key, value) = part.split_once('=').unwrap_or((part, ""));
            let no_port = || format!("no port {value:?}");
            match key {
                "in" => filter.input = Some(port(value).ok_or_else(no_port)?),
                "out" => filter.output = Some(port(value).ok_or_else(no_port)?),
                "pri" => {
                    let pri = value.parse().ok().filter(|&pri: &u8| pri < 8);
                    filter.pri =
                        Some(pri.ok_or_else(|| format!("pri {value:?}: expected 0 to 7"))?);
                }
                "format" => {
                    let found = Format::ALL.into_iter().map(Format::name).find(|&n| n == value);
                    filter.format = Some(found.ok_or_else(|| format!("no format {value:?}"))?);
                }
                "drop" if value.is_empty() => filter.drop = Some(Dropped::Any),
                "drop" => {
                    let found = DropReason::ALL.iter().map(|r| r.name()).find(|&n| n == value);
                    let reason = found.ok_or_else(|| format!("no drop reason {value:?}"))?;
                    filter.drop = Some(Dropped::For(reason));
                }
                _ => return Err(format!("{part:?}: expected {FILTER_HELP}")),
            }
        }
        Ok(filter)
    }

    /// Whether the filter selects `path`.
    #[must_use]
    pub fn wants(&self, path: &Path) -> bool {
        let any = |test: &dyn Fn(&Event) -> bool| path.events.iter().any(|(_, e)| test(e));
        let input =
            self.input.is_none_or(|p| any(&|e| matches!(e, Event::Rx { port, .. } if *port == p)));
        let output = self.output.is_none_or(|p| {
            any(&|e| matches!(e, Event::Forward { outputs, .. } if outputs >> p & 1 != 0))
        });
        let pri = self
            .pri
            .is_none_or(|p| any(&|e| matches!(e, Event::Classify { pri, .. } if *pri == p)));
        let format = self
            .format
            .is_none_or(|f| any(&|e| matches!(e, Event::Classify { format, .. } if *format == f)));
        let drop = self.drop.is_none_or(|wanted| {
            any(&|e| match e {
                Event::Drop { reason, .. } => {
                    wanted == Dropped::Any || wanted == Dropped::For(reason)
                }
                _ => false,
            })
        });
        input && output && pri && format && drop
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn events(frame: u64, outputs: u64) -> Vec<Event> {
        vec![
            Event::Rx { frame, port: 1, len: 60, digest: 0 },
            Event::Classify { frame, format: "gen1", pri: 2, by: "tc", vid: 0 },
            Event::Forward { frame, by: "flood", outputs },
        ]
    }

    #[test]
    fn a_path_is_complete_when_its_last_copy_has_ended() {
        let mut paths = Paths::default();
        for event in events(1, 0b1001) {
            assert!(paths.feed(Instant::ZERO, &event).is_none());
        }
        paths.keep(1, &[1, 2, 3]);
        paths.keep(2, &[4]); // of which nobody heard
        assert!(paths.feed(Instant::ZERO, &Event::Tx { frame: 1, port: 0, len: 60 }).is_none());
        let last = Event::Drop { frame: 1, port: 1, reason: "dt" };
        let path = paths.feed(Instant::ZERO, &last).unwrap();
        assert_eq!((path.events.len(), &path.bytes[..]), (5, &[1, 2, 3][..]));
        let wants = |text: &str| {
            Filter::parse(text, |p| p.strip_prefix('p')?.parse().ok()).unwrap().wants(&path)
        };
        #[rustfmt::skip] // columns: filter, whether it wants the path
        let cases = [
            ("", true), ("in=p1", true), ("in=p0", false), ("out=p3", true), ("out=p1", false),
            ("pri=2,format=gen1", true), ("pri=3", false), ("format=lite", false),
            ("drop", true), ("drop=dt", true), ("drop=pool", false), ("in=p1,drop=pool", false),
        ];
        for (filter, want) in cases {
            assert_eq!(wants(filter), want, "{filter}");
        }
    }

    #[test]
    fn times_of_a_path_never_fall_though_workers_differ() {
        let mut paths = Paths::default();
        for (event, ns) in events(1, 0b1).into_iter().zip([7, 7, 7]) {
            assert!(paths.feed(Instant::from_ns(ns), &event).is_none());
        }
        // The worker that sends it began its pass before the one that received it.
        let tx = Event::Tx { frame: 1, port: 0, len: 60 };
        let path = paths.feed(Instant::from_ns(5), &tx).unwrap();
        let times: Vec<u64> = path.events.iter().map(|(at, _)| at.as_ns()).collect();
        assert_eq!(times, [7, 7, 7, 7]);
    }

    #[test]
    fn filters_that_mean_nothing_are_refused() {
        for text in ["in=px", "pri=9", "format=x", "drop=x", "size=1"] {
            assert!(Filter::parse(text, |_| None).is_err(), "{text}");
        }
    }

    #[test]
    fn frames_that_never_end_are_given_up() {
        let mut paths = Paths::default();
        for frame in 0..FOLLOWED_MAX as u64 + 10 {
            paths.feed(Instant::ZERO, &Event::Rx { frame, port: 0, len: 60, digest: 0 });
        }
        assert_eq!(paths.open.len(), FOLLOWED_MAX);
    }

    #[test]
    fn paths_take_no_more_memory_than_they_may() {
        const SIZE_MAX: usize = 100_000;
        let mut paths = Paths::within(SIZE_MAX);
        let sum = |paths: &Paths| paths.open.values().map(Path::size).sum::<usize>();
        for frame in 0..1_000 {
            for event in events(frame, 0b1001) {
                paths.feed(Instant::ZERO, &event);
            }
            paths.keep(frame, &[0; 9_000]);
            if frame % 3 == 0 {
                let drop = |port| Event::Drop { frame, port, reason: "dt" };
                paths.feed(Instant::ZERO, &drop(0));
                assert!(paths.feed(Instant::ZERO, &drop(3)).is_some(), "the newest is kept");
            }
            assert_eq!(paths.size, sum(&paths), "{frame}");
            assert!(paths.size < SIZE_MAX + 1_000, "{frame}: {} bytes", paths.size);
        }
        assert!(paths.size > SIZE_MAX / 2, "{} bytes", paths.size);
    }
}
