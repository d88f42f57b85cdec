//! Configurations that are almost right are read, or refused with their place; reading never panics.
//!
//! Seeded mutations of `full.toml`, by byte, by line and by value.
//!
//! Source: docs/spec/pipeline.md §12.

#[path = "config_keys/mod.rs"]
pub mod config_keys;

use weft_base::rng::Rng;
use weft_config::{Config, ConfigError, Place, Settings, Timing};

const FULL: &str = include_str!("full.toml");
const FILE: &str = "full.toml";

/// Values that some parameter may not like.
const VALUES: &[&str] = &[
    "-1",
    "0",
    "1",
    "3",
    "9",
    "64",
    "101",
    "4096",
    "65536",
    "1e9",
    "0.3",
    "nan",
    "inf",
    "true",
    "\"\"",
    "\"x\"",
    "\"../..\"",
    "[]",
    "[1]",
    "[[1], [1]]",
    "[\"a\", 1]",
    "{ a = 1 }",
    "1979-05-27",
    "9223372036854775807",
    "-9223372036854775808",
    "99999999999999999999",
    "\"\\u0000\"",
    "\"left\"",
    "'ff:ff:ff:ff:ff:ff'",
    "[0, 1, 2, 3, 4, 5, 6, 99]",
];

fn below(rng: &mut Rng, n: usize) -> usize {
    usize::try_from(rng.below(n.max(1) as u64)).unwrap()
}

fn mutate(rng: &mut Rng) -> String {
    let mut lines: Vec<String> = FULL.lines().map(str::to_owned).collect();
    for _ in 0..=below(rng, 3) {
        let at = below(rng, lines.len());
        match below(rng, 7) {
            0 => drop(lines.remove(at)),
            1 => lines.insert(at, lines[at].clone()),
            2 => {
                let other = below(rng, lines.len());
                lines.swap(at, other);
            }
            3 | 4 => {
                let value = VALUES[below(rng, VALUES.len())];
                if let Some((key, _)) = lines[at].clone().split_once('=') {
                    lines[at] = format!("{key}= {value}");
                }
            }
            5 => {
                let mut line: Vec<char> = lines[at].chars().collect();
                let place = below(rng, line.len() + 1);
                let odd =
                    ['[', ']', '"', '=', '\u{e9}', '\\', '{', ',', '#', 'x', '\u{0}', '-', '9'];
                line.insert(place, odd[below(rng, odd.len())]);
                lines[at] = line.into_iter().collect();
            }
            _ => {
                let mut line: Vec<char> = lines[at].chars().collect();
                if !line.is_empty() {
                    line.remove(below(rng, line.len()));
                }
                lines[at] = line.into_iter().collect();
            }
        }
    }
    lines.join("\n")
}

fn resolve(text: &str) -> Result<Config, ConfigError> {
    Config::resolve(&Settings::read(FILE, text)?, Timing::Live)
}

#[test]
fn the_full_configuration_holds() {
    for timing in [Timing::Live, Timing::Virtual] {
        let settings = Settings::read(FILE, FULL).unwrap();
        let config = Config::resolve(&settings, timing).unwrap();
        assert_eq!(config.switch.ports.len(), 6, "five, and the agent's");
    }
}

/// Each refusal names the line of the text that it is about.
#[test]
fn a_thousand_mutations_are_read_or_refused_with_their_place() {
    let seed = 0x00C0_4F16;
    let mut rng = Rng::new(seed);
    let (mut read, mut refused) = (0, 0);
    for round in 0..1_000 {
        let text = mutate(&mut rng);
        let Err(ConfigError(problems)) = resolve(&text) else {
            read += 1;
            continue;
        };
        refused += 1;
        assert!(!problems.is_empty(), "seed {seed:#x} round {round}");
        for problem in &problems {
            let message = problem.to_string();
            let Place::File { file, line, column } = &problem.place else {
                panic!("seed {seed:#x} round {round}: no line: {message}\n{text}");
            };
            assert_eq!(file, FILE, "seed {seed:#x} round {round}: {message}");
            let of_text = text.lines().nth(line - 1).unwrap_or("");
            assert!(
                *line <= text.lines().count() + 1 && *column <= of_text.chars().count() + 1,
                "seed {seed:#x} round {round}: {message}\n{text}"
            );
            assert!(!message.contains('\n'), "seed {seed:#x} round {round}: {message}");
        }
    }
    assert!(read > 100 && refused > 500, "{read} read, {refused} refused");
}

/// Random bytes, and texts that are nested too deep.
#[test]
fn nonsense_is_refused() {
    let mut rng = Rng::new(5);
    for _ in 0..200 {
        let bytes: Vec<u8> = (0..below(&mut rng, 300))
            .map(|_| u8::try_from(below(&mut rng, 128)).unwrap())
            .collect();
        let text = String::from_utf8(bytes).unwrap();
        assert!(
            text.trim().is_empty() || text.trim_start().starts_with('#') || resolve(&text).is_err()
        );
    }
    for deep in ["[".repeat(100_000), "a=".to_owned() + &"[".repeat(100_000), "a.".repeat(100_000)]
    {
        assert!(resolve(&deep).is_err());
    }
    let many = "[port_defaults]\n".to_owned() + &"x = 1\n".repeat(50_000);
    let ConfigError(problems) = resolve(&many).unwrap_err();
    assert!(problems.len() <= 100, "{} problems are told", problems.len());
}

/// Every key of the file is known to the table, and most of the table is in the file.
#[test]
fn the_full_configuration_is_nearly_full() {
    use weft_config::table::SECTIONS;
    let config = resolve(FULL).unwrap();
    let is_set = |section: &str, key: &str| {
        let of = |e: &&weft_config::Effective| e.section == section && e.param.name == key;
        config.effective.iter().filter(of).any(|e| matches!(e.place, Place::File { .. }))
    };
    let all = SECTIONS.iter().flat_map(|s| s.params().map(move |p| (s.name, p.name)));
    let (set, unset): (Vec<_>, Vec<_>) = all
        .filter(|(section, _)| *section != "port_defaults")
        .partition(|(section, key)| is_set(section, key));
    assert!(set.len() >= 5 * unset.len(), "{} set; unset: {unset:?}", set.len());
}
