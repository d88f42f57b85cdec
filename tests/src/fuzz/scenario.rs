//! Scenario files, topologies and flows of other simulators: any text.
//!
//! Bytes → a scenario or problems that each name a place; the first byte says what the rest is.
//!
//! Units: bytes.
//! Source: docs/spec/model.md §3.

use weft::config::{ConfigError, Problem};
use weft::scenario::{Source, import};
use weft_dataplane::port::capture::Choice;

/// Name that the text goes by in problems.
const FILE: &str = "fuzz.toml";

/// Reads `bytes` behind the first as what the first says.
///
/// # Panics
/// When a refusal names no place.
pub fn run(bytes: &[u8]) {
    let Some((&kind, bytes)) = bytes.split_first() else { return };
    let text = String::from_utf8_lossy(bytes);
    let host = |name: &str| name.get(1..)?.parse().ok().filter(|number: &u16| *number < 64);
    match kind {
        b't' => placed(&import::topology(FILE, &text).err().into_iter().collect::<Vec<_>>()),
        b'f' => placed(&import::flows(FILE, &text, &host, 1 << 40).err().unwrap_or_default()),
        b'c' => {
            let frames = import::capture(FILE, bytes.to_vec(), Choice::Ethernet, 0, None, 64);
            placed(&frames.err().into_iter().collect::<Vec<_>>());
        }
        _ => drop(problems(&text)),
    }
}

fn placed(problems: &[Problem]) {
    let mut said = problems.iter().map(ToString::to_string);
    let lost = said.find(|problem| !problem.starts_with(FILE));
    assert!(lost.is_none(), "a problem has no place in the file: {lost:?}");
}

/// What is wrong with `text` as a scenario; nothing when it is accepted.
///
/// # Panics
/// When a refusal names no place.
#[must_use]
pub fn problems(text: &str) -> Vec<String> {
    let source = Source { name: FILE.to_owned(), text: text.to_owned(), ..Source::default() };
    match source.load() {
        Ok(_) => Vec::new(),
        Err(ConfigError(problems)) => {
            assert!(!problems.is_empty(), "refused for no reason");
            placed(&problems);
            problems.iter().map(ToString::to_string).collect()
        }
    }
}

/// A scenario that says something of everything.
///
/// # Panics
/// Never: it is text.
#[must_use]
pub fn valid() -> String {
    include_str!("../../../scenarios/setting-c-standard-pfc-ecn.toml").to_owned()
        + "\n[[fault]]\nkind = \"bit-error\"\nlink = [\"left\", \"right\"]\nrate = 1e-9\n"
}
