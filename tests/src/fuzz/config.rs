//! The configuration: any text as a TOML file, read and resolved; and mutated valid ones.
//!
//! Bytes are read to settings and effective values, or to problems that each name a place in the
//! file.
//!
//! Source: docs/spec/pipeline.md §12.

use weft::commands::config::{self, ConfigCommand, ShowArgs};
use weft::settings::SettingsArgs;
use weft_base::rng::Rng;
use weft_config::{Config, ConfigError, Settings, Timing};

/// File name that problems show for the text.
const FILE: &str = "fuzz.toml";

/// Reads and resolves `bytes` as a configuration.
///
/// # Panics
/// When a refusal names no place.
pub fn run(bytes: &[u8]) {
    drop(problems(&String::from_utf8_lossy(bytes)));
}

/// Problems of `text` as the configuration of a live switch; none when it is accepted.
///
/// # Panics
/// When a refusal names no place.
#[must_use]
pub fn problems(text: &str) -> Vec<String> {
    // the live problems are returned; the virtual ones only have to have places
    [Timing::Virtual, Timing::Live]
        .map(|timing| {
            let read = Settings::read(FILE, text);
            match read.and_then(|settings| Config::resolve(&settings, timing)) {
                Ok(_) => Vec::new(),
                Err(ConfigError(problems)) => {
                    let said: Vec<_> = problems.iter().map(ToString::to_string).collect();
                    assert!(!said.is_empty(), "refused for no reason");
                    let placed = said.iter().all(|problem| problem.starts_with(FILE));
                    assert!(placed, "a problem has no place in the file: {said:?}");
                    said
                }
            }
        })
        .into_iter()
        .last()
        .unwrap_or_default()
}

/// All parameters of a switch of two ports, as `weft config show` prints them.
///
/// # Panics
/// When they cannot be written.
#[must_use]
pub fn valid() -> String {
    let ports = ["p0=veth0", "p1=veth1"].map(str::to_owned).to_vec();
    let settings = SettingsArgs { port: ports, ..SettingsArgs::default() };
    let show = ShowArgs { settings, json: false, is_virtual: false };
    let mut text = Vec::new();
    config::run(&ConfigCommand::Show(show), &mut text).expect("it is written into memory");
    String::from_utf8(text).expect("a configuration is text")
}

/// `text` with one to three changes, which `rng` decides.
#[must_use]
pub fn mutated(text: &str, rng: &mut Rng) -> String {
    let mut lines: Vec<String> = text.lines().map(str::to_owned).collect();
    for _ in 0..=rng.below(3) {
        let at = usize::try_from(rng.below(lines.len().max(1) as u64)).unwrap_or(0);
        let other = usize::try_from(rng.below(lines.len().max(1) as u64)).unwrap_or(0);
        let Some(line) = lines.get(at).cloned() else { continue };
        let set = |value: &str| match line.trim_start_matches("# ").split_once(" = ") {
            Some((key, _)) => format!("{key} = {value}"),
            None => value.to_owned(),
        };
        let changed = match rng.below(9) {
            0 => set("-1"),
            1 => set("18446744073709551616"),
            2 => set("[[], {}]"),
            3 => set("\"\u{0}\u{fffd}\""),
            4 => set("99.5"),
            5 => lines.get(other).cloned().unwrap_or_default(),
            6 => line.chars().skip(1).collect(),
            7 => line.replace('_', ""),
            _ => format!("{line}{}", char::from(b' ' + rng.next_u64().to_le_bytes()[0] % 95)),
        };
        lines[at] = changed;
    }
    lines.join("\n")
}
