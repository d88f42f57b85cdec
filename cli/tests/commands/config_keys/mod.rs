//! Every key of the configuration acts: one change of each, alone, and the outcome that it has.
//!
//! [`rows`] has a [`Row`] for each key of the table; a key without one fails the test. To add a row: name
//! the key, the value, and the observed outcome (a number of a replay, frames that leave, a refusal).
//!
//! Source: docs/spec/pipeline.md §12.

mod forwarding;
mod rows;
mod run;

use std::collections::BTreeSet;
use std::path::Path;

use run::{Flow, Run, replay};
use weft_config::table::SECTIONS;
use weft_config::{Config, Settings, Timing};

/// A key, a change of it, and the effect.
pub struct Row {
    /// `section.key`; of `port.key`, `port_defaults.key` is tried as well where it is one.
    pub key: &'static str,
    /// The new value, as TOML.
    pub value: &'static str,
    /// Settings of both runs, `section.key=value`.
    pub beside: &'static [&'static str],
    /// The observed outcome.
    pub seen: Seen,
    /// Its value after the change, which it must not have before.
    pub want: &'static str,
}

/// The place of an outcome; outcomes are compared as text.
pub enum Seen {
    /// A number of `result.json` of a replay, by its JSON pointer.
    Count(Flow, &'static str),
    /// Anything else of a replay: frames that leave, and when.
    Sent(Flow, fn(&Run) -> String),
    /// The configuration is refused, and the wanted text is part of the message.
    Refused(&'static str),
    /// A value that is handed to a live device, thread or manager; the test `file::name` checks its effect there.
    Live(&'static str, fn(&Config) -> String, &'static str),
}

/// Any outcome will do, if only it differs: where it is a time or a hash that means nothing alone.
pub const OTHER: &str = "(other)";

/// The lines of `[section]`, or of each `[[section]]`: from the one behind the header up to the next header.
fn bodies(lines: &[String], header: &str) -> Vec<(usize, usize)> {
    let heads = (0..lines.len()).filter(|&at| lines[at].trim() == header);
    heads
        .map(|at| {
            let next = (at + 1..lines.len()).find(|&at| lines[at].starts_with('['));
            (at + 1, next.unwrap_or(lines.len()))
        })
        .collect()
}

/// `text` with a key set: of a table, in all ports, or in the first item of any other repeated section.
pub fn with(text: &str, path: &str, value: &str) -> String {
    let (section, key) = path.split_once('.').unwrap();
    let mut lines: Vec<String> = text.lines().map(str::to_owned).collect();
    let mut found = bodies(&lines, &format!("[{section}]"));
    if found.is_empty() {
        found = bodies(&lines, &format!("[[{section}]]"));
        let own = weft_config::table::PORT_KEYS.contains(&key);
        if section != "port" || own {
            found.truncate(1);
        }
    }
    if found.is_empty() {
        lines.extend([format!("[{section}]"), format!("{key} = {value}")]);
    }
    for (from, to) in found.into_iter().rev() {
        let is_key = |line: &String| line.split('=').next().is_some_and(|name| name.trim() == key);
        if let Some(at) = (from..to).find(|&at| is_key(&lines[at])) {
            lines.remove(at);
        }
        lines.insert(from, format!("{key} = {value}"));
    }
    lines.join("\n") + "\n"
}

fn resolve(text: &str, timing: Timing) -> Result<Config, String> {
    let settings = Settings::read("f", text).map_err(|error| error.to_string())?;
    Config::resolve(&settings, timing).map_err(|error| error.to_string())
}

/// The outcome with configuration `text`.
fn outcome(seen: &Seen, text: &str) -> String {
    match seen {
        Seen::Count(flow, at) => replay(*flow, text).number(at),
        Seen::Sent(flow, of) => of(&replay(*flow, text)),
        Seen::Refused(_) => match (resolve(text, Timing::Live), resolve(text, Timing::Virtual)) {
            (Ok(_), Ok(_)) => "taken".to_owned(),
            (live, virt) => format!("{:?} {:?}", live.err(), virt.err()),
        },
        Seen::Live(_, of, _) => of(&resolve(text, Timing::Live).unwrap()),
    }
}

/// The fault of a row for `key`, if it has one.
fn fault(row: &Row, key: &str) -> Option<String> {
    let base = match row.seen {
        Seen::Live(base, ..) | Seen::Refused(base) => base.to_owned(),
        Seen::Count(..) | Seen::Sent(..) => run::THREE.to_owned(),
    };
    let base = row.beside.iter().fold(base, |text, assignment| {
        let (path, value) = assignment.split_once('=').unwrap();
        with(&text, path, value)
    });
    let look = |text: &str| {
        let look = std::panic::AssertUnwindSafe(|| outcome(&row.seen, text));
        std::panic::catch_unwind(look).unwrap_or_else(|_| "(panic)".to_owned())
    };
    let (before, after) = (look(&base), look(&with(&base, key, row.value)));
    let name = format!("{key} = {}: {before} before, {after} after", row.value);
    println!("{name}");
    let good = match row.seen {
        // The message gives a way out, or the reason.
        Seen::Refused(_) => {
            let says = after.contains("expected") || after.contains("cannot");
            before == "taken" && after.contains(row.want) && says
        }
        _ => before != after && (row.want == OTHER || after == row.want),
    };
    let bad = !good || before == "(panic)" || after == "(panic)";
    bad.then(|| format!("{name}; wanted: {}", row.want))
}

/// Each key changes what its row names; a key without a row, or a row without a key, is a fault.
#[test]
fn every_key_acts_or_is_refused() {
    let mut missing: BTreeSet<String> = BTreeSet::new();
    for section in SECTIONS {
        missing.extend(section.params().map(|param| format!("{}.{}", section.name, param.name)));
    }
    let known = missing.clone();
    let mut faults = Vec::new();
    for row in rows::rows() {
        assert!(known.contains(row.key), "{} is no key", row.key);
        let shared = row.key.strip_prefix("port.").map(|key| format!("port_defaults.{key}"));
        let shared = shared.filter(|key| known.contains(key));
        for key in [Some(row.key), shared.as_deref()].into_iter().flatten() {
            faults.extend(fault(&row, key));
            missing.remove(key);
        }
    }
    assert!(faults.is_empty(), "{} rows: {faults:#?}", faults.len());
    assert!(missing.is_empty(), "keys of which nobody knows what they do: {missing:?}");
}

/// Every test that a row refers to exists.
#[test]
fn tests_that_rows_name_are_there() {
    let root = Path::new(env!("CARGO_MANIFEST_DIR")).join("..");
    let mut named = 0;
    for row in rows::rows() {
        let Seen::Live(_, _, by) = row.seen else { continue };
        let (file, test) = by.split_once("::").unwrap();
        let text = std::fs::read_to_string(root.join(file)).unwrap_or_default();
        let head = format!("fn {test}(");
        let at = text.find(&head).unwrap_or_else(|| panic!("{}: no test {by}", row.key));
        let before: String = text[..at].lines().rev().take(6).collect();
        assert!(before.contains("#[test]"), "{}: {by} is no test", row.key);
        named += 1;
    }
    assert!(named > 20, "{named}");
}
