//! `weft sim check`: runs scenarios and compares the results with their expectations.
//!
//! Prints a line for each expectation.
//!
//! Source: docs/simulation.md.

use std::io::Write;
use std::path::{Path, PathBuf};

use clap::Args;
use serde_json::json;
use weft_config::scenario::Source;
use weft_sim::results::Ending;
use weft_sim::scenario::Checks;

use super::run::{ThreadsArg, broken, execute, unmet};
use super::summary;
use crate::error::CliError;

/// Arguments of `weft sim check`.
#[derive(Args, Debug)]
pub struct CheckArgs {
    /// Scenario files, or folders of them
    #[arg(value_name = "FILE|DIR", default_value = "scenarios")]
    pub files: Vec<PathBuf>,
    #[command(flatten)]
    pub threads: ThreadsArg,
    /// Print JSON, one object per file, each on its own line
    #[arg(long)]
    pub json: bool,
}

/// The named files; of a folder its scenario files, sorted by name.
fn files(named: &[PathBuf]) -> Result<Vec<PathBuf>, CliError> {
    let mut all = Vec::new();
    for path in named {
        let error = |source| CliError::File { verb: "read", path: path.clone(), source };
        if !path.is_dir() {
            all.push(path.clone());
            continue;
        }
        let mut inside = Vec::new();
        for entry in std::fs::read_dir(path).map_err(error)? {
            let file = entry.map_err(error)?.path();
            if file.extension().is_some_and(|end| end == "toml") {
                inside.push(file);
            }
        }
        if inside.is_empty() {
            let text =
                format!("expected scenario files (*.toml) in {}, found none", path.display());
            return Err(CliError::Usage(text));
        }
        inside.sort();
        all.extend(inside);
    }
    Ok(all)
}

/// Checks scenarios.
///
/// # Errors
/// A scenario that is refused, or whose results are not as expected.
pub fn run(args: &CheckArgs, out: &mut dyn Write) -> Result<(), CliError> {
    let files = files(&args.files)?;
    let mut failed = Vec::new();
    for (checked, path) in files.iter().enumerate() {
        match check(path, args, out)? {
            Verdict::AsExpected => {}
            Verdict::NotAsExpected => failed.push(path.display().to_string()),
            Verdict::Interrupted => {
                let text =
                    format!("interrupted: {checked} of {} scenarios were checked", files.len());
                return Err(CliError::Difference(text));
            }
        }
    }
    if failed.is_empty() && args.json {
        return Ok(());
    }
    if failed.is_empty() {
        return writeln!(out, "{} scenarios are as expected", files.len())
            .map_err(CliError::Output);
    }
    Err(CliError::Difference(format!(
        "{} of {} scenarios are not as expected: {}",
        failed.len(),
        files.len(),
        failed.join(", ")
    )))
}

/// Result of a scenario.
enum Verdict {
    AsExpected,
    NotAsExpected,
    /// A signal ended the run, so nothing is known.
    Interrupted,
}

/// Runs a scenario and prints its expectations.
fn check(path: &Path, args: &CheckArgs, out: &mut dyn Write) -> Result<Verdict, CliError> {
    let mut loaded = Source::read(path)?.load()?;
    // Overrides the file: a check is for finding faults, not for speed.
    loaded.scenario.options.checks = Checks::On;
    let results = execute(&loaded, args.threads, None, false)?;
    if results.ending == Ending::Interrupted {
        return Ok(Verdict::Interrupted);
    }
    let broken = broken(loaded.scenario.endpoints.lite, &results);
    let name = path.file_name().unwrap_or_default().to_string_lossy();
    let is_as_expected = broken.is_empty() && unmet(&results).next().is_none();
    let mut write = || -> std::io::Result<()> {
        if args.json {
            let line = json!({
                "file": name,
                "as_expected": is_as_expected,
                "expectations": results.expectations,
                "failures": broken,
            });
            writeln!(out, "{line}")?;
            return out.flush();
        }
        for it in &results.expectations {
            let word = if it.passed { "ok  " } else { "FAIL" };
            writeln!(out, "{word} {name}: {}", summary::expectation(it))?;
        }
        if results.expectations.is_empty() {
            writeln!(out, "ok   {name}: expects nothing")?;
        }
        for failure in &broken {
            writeln!(out, "FAIL {name}: {failure}")?;
        }
        out.flush()
    };
    write().map_err(CliError::Output)?;
    Ok(if is_as_expected { Verdict::AsExpected } else { Verdict::NotAsExpected })
}
