//! The jobs of a sweep: every combination of values, with every seed.
//!
//! A [`Job`] is named by a hash of everything that its results depend on, so results of that name are results of that
//! job.
//!
//! Source: FIPS 180-4 (SHA-256); docs/sweep.md.

use std::collections::BTreeSet;
use std::path::Path;

use data_encoding::HEXLOWER;
use ring::digest::{Context, SHA256};
use weft_base::files::{self, OpenedBy};
use weft_config::scenario::Source;

use crate::error::CliError;

/// Most jobs of a sweep.
pub const JOBS_MAX: usize = 100_000;
/// Bytes of the hash in a job's name, which has twice as many hexadecimal digits.
const NAME_LEN: usize = 16;

/// A key, with the values that it takes in turn.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Vary {
    /// SECTION.KEY, as in `--set`.
    pub key: String,
    /// Values, as in `--set`; at least one.
    pub values: Vec<String>,
}

impl Vary {
    /// Reads `KEY=A,B,C`. A comma inside brackets, braces or quotes is part of a value.
    ///
    /// # Errors
    /// The key or a value is missing, or a value is given twice.
    pub fn read(text: &str) -> Result<Self, String> {
        let expected = "expected KEY=VALUE,VALUE such as buffer.dt_alpha=0.125,1,8";
        let (key, list) = text.split_once('=').ok_or(expected)?;
        let values: Vec<String> = split(list).into_iter().map(|v| v.trim().to_owned()).collect();
        if key.trim().is_empty() || values.iter().any(String::is_empty) {
            return Err(expected.to_owned());
        }
        for (at, value) in values.iter().enumerate() {
            if values.iter().take(at).any(|other| other == value) {
                return Err(format!("{value:?} is there twice"));
            }
        }
        Ok(Self { key: key.trim().to_owned(), values })
    }
}

/// Splits at commas outside brackets and quotes.
fn split(list: &str) -> Vec<&str> {
    let (mut parts, mut from, mut depth, mut quoted) = (Vec::new(), 0, 0u32, false);
    for (at, c) in list.char_indices() {
        match c {
            '"' => quoted = !quoted,
            '[' | '{' if !quoted => depth += 1,
            ']' | '}' if !quoted => depth = depth.saturating_sub(1),
            ',' if !quoted && depth == 0 => {
                parts.push(list.get(from..at).unwrap_or_default());
                from = at + 1;
            }
            _ => {}
        }
    }
    parts.push(list.get(from..).unwrap_or_default());
    parts
}

/// Seeds of a sweep.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Seeds(pub Vec<u64>);

impl Seeds {
    /// Reads `7`, `1..20` (both included) and lists of them: `1..3,8`.
    ///
    /// # Errors
    /// Any other form, no seed, too many, or one twice.
    pub fn read(text: &str) -> Result<Self, String> {
        let expected = || format!("expected seeds such as 7, 1..20 or 1..3,8, found {text:?}");
        let mut seeds: Vec<u64> = Vec::new();
        for part in text.split(',') {
            let (from, to) = part.split_once("..").unwrap_or((part, part));
            let read = |text: &str| text.trim().parse::<u64>().map_err(|_| expected());
            let (from, to) = (read(from)?, read(to)?);
            // Before `extend`: a range such as 0..18446744073709551615 must not be expanded.
            if from > to || to - from >= JOBS_MAX as u64 || seeds.len() > JOBS_MAX {
                return Err(format!("{}: at most {JOBS_MAX}, the first one first", expected()));
            }
            seeds.extend(from..=to);
        }
        let mut sorted = seeds.clone();
        sorted.sort_unstable();
        sorted.dedup();
        if sorted.len() != seeds.len() {
            return Err(format!("{}, each once", expected()));
        }
        Ok(Self(seeds))
    }
}

/// One run of a sweep.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Job {
    /// Hash of the job's inputs, in hexadecimal digits.
    pub name: String,
    /// Values of the varied keys, in the order of the command line.
    pub values: Vec<String>,
    /// Seed; `None` for that of the scenario.
    pub seed: Option<u64>,
    /// Arguments of `--set`: the common ones, the varied ones, the seed.
    pub set: Vec<String>,
}

/// All jobs of a sweep.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Plan {
    pub keys: Vec<String>,
    /// Jobs, combination by combination; all seeds of one combination stand together.
    pub jobs: Vec<Job>,
}

impl Plan {
    /// Makes the plan. Every combination is loaded as a scenario, so that none is refused after others have run.
    ///
    /// # Errors
    /// A scenario that is refused with some combination; a key that is varied twice; too many jobs.
    pub fn new(source: &Source, vary: &[Vary], seeds: Option<&Seeds>) -> Result<Self, CliError> {
        for (at, one) in vary.iter().enumerate() {
            let is_seed = one.key == "seed" && seeds.is_some();
            if is_seed || vary.iter().take(at).any(|other| other.key == one.key) {
                return Err(CliError::Usage(format!("{} is varied twice", one.key)));
            }
        }
        let each = seeds.map_or(1, |seeds| seeds.0.len());
        // Before the combinations are made, which grow as the product of all values.
        let count = vary.iter().try_fold(each, |n, one| n.checked_mul(one.values.len()));
        if count.is_none_or(|count| count > JOBS_MAX) {
            return Err(CliError::Usage(format!("more than {JOBS_MAX} jobs: vary less")));
        }
        let mut combinations: Vec<Vec<String>> = vec![Vec::new()];
        for one in vary {
            combinations = combinations
                .iter()
                .flat_map(|left| {
                    one.values.iter().map(|value| left.iter().chain([value]).cloned().collect())
                })
                .collect();
        }
        let files = named_files(source, vary)?;
        let mut plan =
            Self { keys: vary.iter().map(|one| one.key.clone()).collect(), jobs: vec![] };
        for values in combinations {
            let sets = vary.iter().zip(&values).map(|(one, value)| format!("{}={value}", one.key));
            let set: Vec<String> = source.set.iter().cloned().chain(sets).collect();
            Source { set: set.clone(), ..source.clone() }.load()?;
            let seeds =
                seeds.map_or_else(|| vec![None], |all| all.0.iter().copied().map(Some).collect());
            for seed in seeds {
                let seed_set = seed.map(|seed| format!("seed={seed}"));
                let set: Vec<String> = set.iter().cloned().chain(seed_set).collect();
                let name = name(&source.text, &files, &set);
                plan.jobs.push(Job { name, values: values.clone(), seed, set });
            }
        }
        Ok(plan)
    }
}

/// Files that the scenario may read, with their contents: every text in it, or set over it, that is the name of a file.
/// A text that only happens to be one costs no more than a needless run.
fn named_files(source: &Source, vary: &[Vary]) -> Result<Vec<(String, Vec<u8>)>, CliError> {
    let Some(dir) = &source.dir else { return Ok(Vec::new()) };
    let mut names = BTreeSet::new();
    let mut todo: Vec<toml::Value> = Vec::new();
    // Text that is no TOML is refused when it is loaded as a scenario.
    todo.extend(toml::from_str::<toml::Table>(&source.text).ok().map(toml::Value::Table));
    while let Some(value) = todo.pop() {
        match value {
            toml::Value::String(text) => drop(names.insert(text)),
            toml::Value::Array(values) => todo.extend(values),
            toml::Value::Table(table) => todo.extend(table.into_iter().map(|(_, value)| value)),
            _ => {}
        }
    }
    let set = source.set.iter().filter_map(|set| set.split_once('=')).map(|(_, value)| value);
    let varied = vary.iter().flat_map(|one| one.values.iter().map(String::as_str));
    names.extend(set.chain(varied).map(|value| value.trim_matches('"').to_owned()));
    let mut files = Vec::new();
    for name in names {
        let path = dir.join(&name);
        if name.is_empty() || !path.is_file() {
            continue;
        }
        let bytes = files::read(&path, OpenedBy::Command, u64::MAX)
            .map_err(|source| CliError::File { verb: "read", path, source })?;
        files.push((name, bytes));
    }
    Ok(files)
}

/// Hash of the version of weft, the scenario's text, the files that it names, and the settings over it.
fn name(text: &str, files: &[(String, Vec<u8>)], set: &[String]) -> String {
    let mut hash = Context::new(&SHA256);
    let mut add = |bytes: &[u8]| {
        // The length first, so that no two lists of inputs are the same bytes.
        hash.update(&(bytes.len() as u64).to_be_bytes());
        hash.update(bytes);
    };
    add(env!("CARGO_PKG_VERSION").as_bytes());
    add(text.as_bytes());
    for (name, bytes) in files {
        add(name.as_bytes());
        add(bytes);
    }
    for one in set {
        add(one.as_bytes());
    }
    let digest = hash.finish();
    HEXLOWER.encode(digest.as_ref().get(..NAME_LEN).unwrap_or_default())
}

/// The job's values as text: `buffer.dt_alpha=1/8 seed=3`.
#[must_use]
pub fn words(keys: &[String], job: &Job) -> String {
    let values = keys.iter().zip(&job.values).map(|(key, value)| format!("{key}={value}"));
    let seed = job.seed.map(|seed| format!("seed={seed}"));
    let words: Vec<_> = values.chain(seed).collect();
    if words.is_empty() { "as it is".to_owned() } else { words.join(" ") }
}

/// File of a job's results.
#[must_use]
pub fn result_path(out: &Path, job: &Job) -> std::path::PathBuf {
    out.join("jobs").join(format!("{}.json", job.name))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn values_are_cut_at_commas_outside_of_brackets() {
        let had = Vary::read("a.b=[1,2],\"x,y\", 1/8").unwrap();
        assert_eq!(
            (had.key.as_str(), had.values),
            ("a.b", vec!["[1,2]".into(), "\"x,y\"".into(), "1/8".into()])
        );
        for text in ["", "a", "=1", "a=", "a=1,", "a=1,1"] {
            assert!(Vary::read(text).is_err(), "{text:?}");
        }
    }

    #[test]
    fn seeds_are_numbers_and_ranges() {
        assert_eq!(Seeds::read("1..3,8").unwrap().0, [1, 2, 3, 8]);
        assert_eq!(Seeds::read("7").unwrap().0, [7]);
        for text in ["", "x", "3..1", "1..3,2", "-1", "0..18446744073709551615", "1...3"] {
            assert!(Seeds::read(text).is_err(), "{text:?}");
        }
    }

    #[test]
    fn a_name_depends_on_all_that_results_depend_on() {
        let (set, files) = (["a=1".to_owned()], [("f.csv".to_owned(), b"1".to_vec())]);
        let names = [
            name("x", &files, &set),
            name("y", &files, &set),
            name("x", &[], &set),
            name("x", &[("f.csv".to_owned(), b"2".to_vec())], &set),
            name("x", &files, &["a=2".to_owned()]),
            name("x", &files, &["a".to_owned(), "=1".to_owned()]),
        ];
        let unique: std::collections::BTreeSet<_> = names.iter().collect();
        assert_eq!(unique.len(), names.len(), "{names:?}");
        assert_eq!(names[0], name("x", &files, &set));
        assert!(names[0].len() == 2 * NAME_LEN && names[0].bytes().all(|b| b.is_ascii_hexdigit()));
    }
}
