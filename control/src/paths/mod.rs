//! Paths: the decisions about one frame, from receipt to its last copy's end.
//!
//! Shape: [`Paths`] takes events as they come and gives a frame's [`Path`] once nothing more will be
//! decided about it; [`Filter`] says which paths are wanted; [`lines`] shows one, stage by stage.
//! Units: as the events say; times in picoseconds since the start.
//! Source: issue 2, "`weft trace`"; pipeline.md §13.

use std::collections::BTreeMap;

use serde_json::{Value, json};
use weft_dataplane::stats::DropReason;
use weft_dataplane::time::Instant;
use weft_dataplane::trace::Event;
use weft_parsers::Format;

/// Frames that are followed at once; the oldest is given up beyond that.
const FOLLOWED_MAX: usize = 16_384;

/// All decisions about one frame.
#[derive(Clone, Debug, Default)]
pub struct Path {
    /// Its number.
    pub frame: u64,
    /// What was decided, in order.
    pub events: Vec<(Instant, Event)>,
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
            self.open.insert(frame, Path { frame, events: Vec::new(), open: 1 });
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

/// An event as JSON: its fields, and when.
#[must_use]
pub fn json(now: Instant, event: &Event) -> Value {
    let mut value = serde_json::to_value(event).unwrap_or_else(|_| json!({}));
    if let Some(fields) = value.as_object_mut() {
        fields.insert("t_ps".to_owned(), now.as_ps().into());
    }
    value
}

/// A path as text, a line a stage; `name` gives a port's name.
pub fn lines<'a>(
    path: &'a Path,
    name: &'a dyn Fn(u8) -> String,
) -> impl Iterator<Item = String> + 'a {
    let start = path.events.first().map_or(Instant::ZERO, |&(at, _)| at);
    path.events.iter().map(move |(at, event)| {
        let ns = at.since(start).as_ns();
        format!("frame {:<6} +{ns:>9} ns  {}", path.frame, stage(event, name))
    })
}

fn ports_of(outputs: u64, name: &dyn Fn(u8) -> String) -> String {
    let all: Vec<String> = (0..64).filter(|p| outputs >> p & 1 != 0).map(name).collect();
    all.join(" ")
}

/// One stage with the numbers that decided.
fn stage(event: &Event, name: &dyn Fn(u8) -> String) -> String {
    match *event {
        Event::Rx { port, len, .. } => format!("rx        {} {len} octets", name(port)),
        Event::Classify { format, pri, by, vid, .. } => {
            let vlan = if vid > 0 { format!(", tagged VLAN {vid}") } else { String::new() };
            format!("classify  {format}, priority {pri} by {by}{vlan}")
        }
        Event::Forward { by, outputs, .. } => {
            format!("forward   by {by} to {}", ports_of(outputs, name))
        }
        Event::Admit { output, pri, verdict, cells, used, limit, shared_used, .. } => format!(
            "admit     {verdict}: priority {pri} to {}, {cells} cells on {used} used of limit \
             {limit}; shared used {shared_used}",
            name(output)
        ),
        Event::Drop { port, reason, .. } => {
            format!("drop      {reason}, counted at {}", name(port))
        }
        Event::Consume { port, opcode, .. } => {
            format!("consume   MAC control opcode {opcode:#06x} at {}", name(port))
        }
        Event::Deq { port, pri, depth, low, high, ect, marked, .. } => {
            let mark = match (ect, marked) {
                (_, true) => "ECN marked",
                (true, false) => "ECN capable, not marked",
                (false, false) => "not ECN capable",
            };
            let name = name(port);
            format!(
                "dequeue   {name} priority {pri}: depth {depth} octets (marks {low} to {high}), {mark}"
            )
        }
        Event::Tx { port, len, .. } => format!("tx        {} {len} octets", name(port)),
        ref other => format!("{other:?}"),
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
        assert!(paths.feed(Instant::ZERO, &Event::Tx { frame: 1, port: 0, len: 60 }).is_none());
        let last = Event::Drop { frame: 1, port: 1, reason: "dt" };
        let path = paths.feed(Instant::ZERO, &last).unwrap();
        assert_eq!(path.events.len(), 5);
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
        let shown: Vec<_> = lines(&path, &|port| format!("p{port}")).collect();
        let shown = shown.join("\n");
        assert!(shown.contains("forward   by flood to p0 p3"), "{shown}");
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
