//! Scenario files, topologies and flows of other simulators: any text.
//!
//! The first byte tells the kind of the rest, which is read to a scenario, or to problems that each
//! name a place.
//!
//! Source: docs/spec/model.md §3.

use weft_config::scenario::{Source, import};
use weft_config::{ConfigError, Problem};
use weft_dataplane::port::capture::Choice;

/// File name that problems show for the text.
const FILE: &str = "fuzz.toml";

/// Reads `bytes` behind the first, which tells their kind.
///
/// # Panics
/// A refusal names no place.
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

/// Problems of `text` as a scenario; none when it is accepted.
///
/// # Panics
/// A refusal names no place.
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

/// A scenario with something of every kind in it.
///
/// # Panics
/// Never: it is text.
#[must_use]
pub fn valid() -> String {
    include_str!("../../../scenarios/setting-c-standard-pfc-ecn.toml").to_owned()
        + "\n[[fault]]\nkind = \"bit-error\"\nlink = [\"left\", \"right\"]\nrate = 1e-9\n"
}
