//! Paths: the decisions about one frame, from receipt to its last copy's end.
//!
//! Shape: [`Paths`] takes events as they come and gives a frame's [`Path`] once nothing more will be
//! decided about it; [`Filter`] says which paths are wanted; [`ShownPath`] is one as people and programs
//! see it, and [`Sink`] writes it.
//! Units: as the events say; times in picoseconds since the start.
//! Source: issue 2, "`weft trace`"; pipeline.md §13.

mod hex;
mod show;
mod sink;

use std::collections::BTreeMap;

use weft_dataplane::stats::DropReason;
use weft_dataplane::time::Instant;
use weft_dataplane::trace::Event;
use weft_parsers::Format;

pub use show::{ShownPath, Stage};
pub use sink::{Sink, TraceError};

/// Frames that are followed at once; the oldest is given up beyond that.
const FOLLOWED_MAX: usize = 16_384;

/// All decisions about one frame.
#[derive(Clone, Debug, Default)]
pub struct Path {
    /// Its number.
    pub frame: u64,
    /// What was decided, in order; its receipt first.
    pub events: Vec<(Instant, Event)>,
    /// The frame as it came in; nothing if nobody kept it.
    pub octets: Vec<u8>,
    /// Copies that have not ended.
    open: u32,
}

/// Frames whose paths are not complete.
#[derive(Debug, Default)]
pub struct Paths {
    open: BTreeMap<u64, Path>,
}

impl Paths {
    /// Takes an event; gives the path that it completes.
    pub fn feed(&mut self, now: Instant, event: &Event) -> Option<Path> {
        let frame = event.frame()?;
        if matches!(event, Event::Rx { .. }) {
            if self.open.len() >= FOLLOWED_MAX {
                self.open.pop_first();
            }
            self.open.insert(frame, Path { frame, open: 1, ..Path::default() });
        }
        let path = self.open.get_mut(&frame)?;
        path.events.push((now, *event));
        match event {
            Event::Forward { outputs, .. } => path.open = outputs.count_ones(),
            Event::Tx { .. } | Event::Drop { .. } | Event::Consume { .. } => {
                path.open = path.open.saturating_sub(1);
            }
            _ => {}
        }
        if path.open > 0 { None } else { self.open.remove(&frame) }
    }

    /// Keeps the octets of a frame that was received.
    pub fn keep(&mut self, frame: u64, octets: &[u8]) {
        if let Some(path) = self.open.get_mut(&frame) {
            path.octets = octets.to_vec();
        }
    }
}

/// Which drops are wanted.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Dropped {
    Any,
    For(&'static str),
}

/// Which paths are wanted: all conditions must hold.
#[derive(Clone, Debug, Default)]
pub struct Filter {
    input: Option<u8>,
    output: Option<u8>,
    pri: Option<u8>,
    format: Option<&'static str>,
    drop: Option<Dropped>,
}

/// What a filter may say.
pub const FILTER_HELP: &str =
    "in=PORT, out=PORT, pri=N, format=NAME, drop or drop=REASON, joined by commas";

impl Filter {
    /// Reads a filter; `port` gives the number of a port's name.
    ///
    /// # Errors
    /// What was expected.
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

    /// Whether `path` is wanted.
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
        assert_eq!((path.events.len(), &path.octets[..]), (5, &[1, 2, 3][..]));
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
}
