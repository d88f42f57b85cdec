//! `weft sim sweep`: runs one scenario with many values and seeds.
//!
//! Each combination is a job, a `weft sim run` of its own. Finished jobs are not run again.
//!
//! Source: docs/sweep.md.

mod jobs;
mod plan;
mod table;

use std::io::Write;
use std::path::PathBuf;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};

use clap::Args;
use signal_hook::consts::{SIGINT, SIGTERM};
use weft_config::scenario::Source;
use weft_views::results::write_file;

use self::jobs::{Runner, finished};
use self::plan::{Job, Plan, Seeds, Vary, words};
use self::table::Row;
use crate::commands::{progress, write_json};
use crate::error::CliError;

/// Arguments of `weft sim sweep`.
#[derive(Args, Debug)]
pub struct SweepArgs {
    /// Scenario file
    #[arg(value_name = "FILE")]
    pub file: PathBuf,
    /// Values for a key to take in turn; may be given several times, then every combination is run
    #[arg(long, value_name = "SECTION.KEY=A,B,C", value_parser = Vary::read)]
    pub vary: Vec<Vary>,
    /// Seeds to run each combination with: 7, 1..20, 1..3,8; by default the file's seed
    #[arg(long, value_name = "SEEDS", value_parser = Seeds::read)]
    pub seeds: Option<Seeds>,
    /// Set one key for all runs
    #[arg(long, value_name = "SECTION.KEY=VALUE")]
    pub set: Vec<String>,
    /// Folder for the results; jobs that are finished there are not run again
    #[arg(long, value_name = "DIR")]
    pub out: PathBuf,
    /// Number of jobs to run at once; by default one per core
    #[arg(long, value_name = "N", value_parser = clap::value_parser!(u16).range(1..=1_024))]
    pub jobs: Option<u16>,
    /// Print the jobs, one JSON object per line, without running them, to run them elsewhere
    #[arg(long, conflicts_with = "collect")]
    pub list: bool,
    /// Run no job; make the table and the page of the finished ones
    #[arg(long)]
    pub collect: bool,
    /// Print the table as JSON, one object per row
    #[arg(long, conflicts_with = "list")]
    pub json: bool,
}

/// Runs the sweep, and writes its table and its page.
///
/// # Errors
/// A scenario that is refused with some combination; a job that failed, once all have ended.
pub fn run(args: &SweepArgs, out: &mut dyn Write) -> Result<(), CliError> {
    let mut source = Source::read(&args.file)?;
    if source.dir.is_none() {
        return Err(CliError::Usage("a sweep needs a file: each job reads it again".to_owned()));
    }
    source.set.clone_from(&args.set);
    let plan = Plan::new(&source, &args.vary, args.seeds.as_ref())?;
    let stop = Arc::new(AtomicBool::new(false));
    let end = Arc::new(AtomicBool::new(false));
    // SIGTERM lets running jobs finish; SIGINT ends them.
    for (signal, flag) in [(SIGINT, &stop), (SIGTERM, &stop), (SIGINT, &end)] {
        signal_hook::flag::register(signal, flag.clone())
            .map_err(|source| CliError::system("wait for signals", source))?;
    }
    let cores = std::thread::available_parallelism().map_or(1, std::num::NonZero::get);
    let weft = std::env::current_exe()
        .map_err(|source| CliError::system("find the program itself", source))?;
    let runner = Runner {
        weft,
        file: &args.file,
        out: &args.out,
        at_once: args.jobs.map_or(cores, usize::from),
        stop: &stop,
        end: &end,
    };
    if args.list {
        return list(&runner, &plan, out);
    }
    let failures = if args.collect { Vec::new() } else { run_all(&runner, &plan)? };
    tell(args, &plan, &failures, stop.load(Ordering::Relaxed), out)
}

/// Prints the jobs as JSON lines, for a program that runs them elsewhere.
fn list(runner: &Runner<'_>, plan: &Plan, out: &mut dyn Write) -> Result<(), CliError> {
    for job in &plan.jobs {
        let line = serde_json::json!({
            "job": job.name,
            "words": words(&plan.keys, job),
            "args": runner.args(job),
            "finished": finished(runner.out, job).is_ok(),
        });
        writeln!(out, "{line}").map_err(CliError::Output)?;
    }
    Ok(())
}

/// Runs the unfinished jobs; returns the failed ones, by name, with the reason.
fn run_all(runner: &Runner<'_>, plan: &Plan) -> Result<Vec<(String, String)>, CliError> {
    let todo: Vec<&Job> =
        plan.jobs.iter().filter(|job| finished(runner.out, job).is_err()).collect();
    let bar = progress::bar(plan.jobs.len() as u64, "runs");
    bar.set_position((plan.jobs.len() - todo.len()) as u64);
    // Finished jobs took no time, and would make the estimate too short.
    bar.reset_eta();
    let mut failures = Vec::new();
    runner.run(todo, |job, outcome| {
        bar.inc(1);
        if let Err(why) = outcome {
            bar.suspend(|| anstream::eprintln!("failed: {}: {why}", words(&plan.keys, job)));
            failures.push((job.name.clone(), why));
        }
    })?;
    bar.finish_and_clear();
    Ok(failures)
}

/// Writes table and page, and fails if a job has no results.
fn tell(
    args: &SweepArgs,
    plan: &Plan,
    failures: &[(String, String)],
    stopped: bool,
    out: &mut dyn Write,
) -> Result<(), CliError> {
    let mut name = args.file.display().to_string();
    let rows: Vec<Row<'_>> = plan
        .jobs
        .iter()
        .map(|job| {
            let failed = failures.iter().find(|(name, _)| *name == job.name);
            let results = finished(&args.out, job);
            if let Ok(results) = &results {
                // The scenario's title is known from results only.
                name.clone_from(&results.scenario);
            }
            let outcome = match (&results, failed) {
                (Ok(results), _) => Ok(results),
                (Err(_), Some((_, why))) => Err(why.clone()),
                (Err(_), None) => Err("it was not run".to_owned()),
            };
            Row::new(job, outcome)
        })
        .collect();
    let file = |name: &str| args.out.join(name);
    let written =
        write_file(&file("sweep.csv"), |out| table::csv(plan, &rows, out)).and_then(|()| {
            let page = table::page(&name, plan, &rows);
            write_file(&file("sweep.html"), |out| out.write_all(page.as_bytes()))
        });
    written?;
    if args.json {
        write_json(out, &table::json(plan, &rows))?;
    } else {
        table::text(plan, &rows, out).map_err(CliError::Output)?;
    }
    let missing = rows.iter().filter(|row| row.failure().is_some()).count();
    match (missing, stopped) {
        (0, _) => Ok(()),
        (n, true) => {
            Err(CliError::Difference(format!("stopped: {n} of {} jobs are not done", rows.len())))
        }
        (n, false) => Err(CliError::Difference(format!("{n} of {} jobs failed", rows.len()))),
    }
}
