//! `weft sim run`: runs one scenario, prints its summary and writes its results.
//!
//! Also has the functions that `weft sim check` shares: running a scenario, and judging its results.
//!
//! Source: docs/spec/model.md §6; docs/simulation.md.

use std::fs::File;
use std::io::Write;
use std::path::{Path, PathBuf};
use std::sync::Arc;

use clap::Args;
use signal_hook::consts::{SIGINT, SIGTERM};
use signal_hook::flag;
use weft_base::files::{self, Existing};
use weft_base::sync::{AtomicBool, Ordering};
use weft_config::scenario::{Loaded, Source, export};
use weft_config::value::Kind;
use weft_sim::network::NetworkError;
use weft_sim::results::{Ending, ExpectResult, Results};
use weft_sim::run::{Progress, RunError, RunOptions, run as run_scenario};
use weft_sim::scenario::Scenario;
use weft_views::results::WriteError;
use weft_views::results::csv::FlowStream;

use super::outputs::{self, OutputArgs};
use super::{estimate, summary};
use crate::commands::{progress, write_json};
use crate::error::CliError;

/// Arguments of `weft sim run`.
#[derive(Args, Debug)]
pub struct RunArgs {
    /// Scenario file, TOML (docs/scenarios.md); "-" is standard input
    #[arg(value_name = "FILE")]
    pub file: PathBuf,
    /// Seed for all random numbers, instead of the file's
    #[arg(long, value_name = "N")]
    pub seed: Option<u64>,
    /// Virtual time at which the run ends at the latest, such as 10ms, instead of the file's
    #[arg(long, value_name = "TIME")]
    pub until: Option<String>,
    /// Set one key; overrides the file. `weft sim keys` lists the keys
    #[arg(long, value_name = "SECTION.KEY=VALUE")]
    pub set: Vec<String>,
    /// Run even if PFC can deadlock: a cycle of links whose pauses wait for each other
    #[arg(long)]
    pub allow_pfc_circles: bool,
    #[command(flatten)]
    pub threads: ThreadsArg,
    /// Write all results as JSON; "-" is standard output, instead of the summary
    #[arg(long, value_name = "FILE")]
    pub json: Option<PathBuf>,
    #[command(flatten)]
    pub outputs: OutputArgs,
    /// Write each flow as a CSV row as soon as it is delivered; a killed run still leaves the flows finished so far
    #[arg(long, value_name = "FILE")]
    pub flows: Option<PathBuf>,
    /// Write flow completion times in the columns of HPCC's fct.txt
    #[arg(long, value_name = "FILE")]
    pub hpcc_fct: Option<PathBuf>,
}

/// Threads of a run.
#[derive(Args, Clone, Copy, Debug)]
pub struct ThreadsArg {
    /// Number of threads that share the switches and hosts; results are the same with any number
    #[arg(long, value_name = "N", default_value_t = 1, value_parser = clap::value_parser!(u64).range(1..=64))]
    pub threads: u64,
}

impl ThreadsArg {
    fn count(self) -> usize {
        usize::try_from(self.threads).unwrap_or(1)
    }
}

impl RunArgs {
    /// Files that the run writes, by flag.
    fn files(&self) -> Vec<(&'static str, &Path)> {
        let json = self.json.as_deref().filter(|path| *path != Path::new("-"));
        let all = [
            ("--json", json),
            ("--html", self.outputs.html.as_deref()),
            ("--page", self.outputs.page.as_deref()),
            ("--perfetto", self.outputs.perfetto.as_deref()),
            ("--flows", self.flows.as_deref()),
            ("--hpcc-fct", self.hpcc_fct.as_deref()),
        ];
        all.into_iter().filter_map(|(flag, path)| Some((flag, path?))).collect()
    }

    /// The scenario's source, with the flags applied over it.
    fn source(&self) -> Result<Source, CliError> {
        let mut source = Source::read(&self.file)?;
        source.set.extend(self.set.iter().cloned());
        source.set.extend(self.seed.map(|seed| format!("seed={seed}")));
        if let Some(until) = &self.until {
            if weft_config::quantity::parse_time(until).is_none() {
                let kind = Kind::Time;
                return Err(CliError::Usage(format!("--until: expected {kind}, found {until:?}")));
            }
            source.set.push(format!("until={until}"));
        }
        if self.allow_pfc_circles {
            source.set.push("net.allow_pfc_circles=true".to_owned());
        }
        Ok(source)
    }
}

/// Runs a scenario.
///
/// # Errors
/// A file that is refused or cannot be read; results that cannot be written or are not as expected.
pub fn run(args: &RunArgs, out: &mut dyn Write) -> Result<(), CliError> {
    let loaded = args.source()?.load()?;
    // A run may take hours: results that cannot be written are an error before it.
    outputs::check(&args.files(), args.outputs.csv.as_deref(), loaded.places.inputs())?;
    let results = execute(&loaded, args.threads, args.flows.as_deref(), true)?;
    args.outputs.write(&results)?;
    if let Some(path) = &args.hpcc_fct {
        write_file(path, &export::hpcc_fct(&results))?;
    }
    match args.json.as_deref() {
        Some(path) if path == Path::new("-") => write_json(out, &results)?,
        Some(path) => {
            let mut json = Vec::new();
            write_json(&mut json, &results)?;
            write_file(path, &json)?;
            summary::write(&results, out).map_err(CliError::Output)?;
        }
        None => summary::write(&results, out).map_err(CliError::Output)?,
    }
    // Last: results that fail an expectation are written all the same.
    judge(loaded.scenario.endpoints.lite, &results)
}

fn write_file(path: &Path, bytes: &[u8]) -> Result<(), CliError> {
    weft_views::results::write_file(path, |out| out.write_all(bytes)).map_err(CliError::from)
}

/// Runs a scenario. SIGINT or SIGTERM ends it early, with its results so far; a second signal ends the process at once.
///
/// # Errors
/// The network cannot be built.
pub(super) fn execute(
    loaded: &Loaded,
    threads: ThreadsArg,
    flows: Option<&Path>,
    tells: bool,
) -> Result<Results, CliError> {
    for warning in &loaded.warnings {
        anstream::eprintln!("warning: {warning}");
    }
    let scenario = &loaded.scenario;
    let work = estimate::of(scenario);
    if tells {
        anstream::eprintln!("{}: {}", scenario.name, work);
    }
    let stop = stop_flag()?;
    let mut flows = flows.map(|path| stream(scenario, path)).transpose()?;
    let mut failed = None;
    let bar = progress::virtual_time(work.hops.max(1));
    let mut show = |at: &Progress| {
        if let Some((path, stream)) = &mut flows
            && let Err(source) = stream.push(&at.ended)
        {
            // End the run: a long one would go on without the file that was requested.
            failed = Some(WriteError { path: path.clone(), source });
            stop.store(true, Ordering::Relaxed);
        }
        bar.set_position(at.frames.min(work.hops));
        bar.set_message(format!("{} of {} us", at.now.as_ns() / 1_000, at.until.as_ns() / 1_000));
    };
    let options = RunOptions { threads: threads.count(), stop: &stop, progress: &mut show };
    let ran = run_scenario(scenario, options);
    bar.finish_and_clear();
    if let Some(error) = failed {
        return Err(error.into());
    }
    let mut results = ran.map_err(|error| match error {
        RunError::Memory { .. } | RunError::Network(NetworkError::Memory { .. }) => {
            CliError::system(format!("run {}", scenario.name), error)
        }
        other => CliError::from(loaded.refused(&other)),
    })?;
    results.settings.clone_from(&loaded.settings);
    Ok(results)
}

/// Creates the file to which flows are written as they end.
fn stream(scenario: &Scenario, path: &Path) -> Result<(PathBuf, FlowStream<File>), CliError> {
    let failed = |source| CliError::from(WriteError { path: path.to_owned(), source });
    let nodes = scenario.topology.nodes();
    let hosts = scenario.topology.hosts().filter_map(|node| nodes.get(node));
    let names = hosts.map(|node| node.name.clone()).collect();
    let file = files::create(path, Existing::Result).map_err(failed)?;
    Ok((path.to_owned(), FlowStream::new(file, names).map_err(failed)?))
}

/// A flag that SIGINT and SIGTERM set; a second signal ends the process.
fn stop_flag() -> Result<Arc<AtomicBool>, CliError> {
    const INTERRUPTED: i32 = 130;
    let stop = Arc::new(AtomicBool::new(false));
    for signal in [SIGINT, SIGTERM] {
        // The order matters: handlers run in the order of registration, and the first signal must find the flag unset.
        flag::register_conditional_shutdown(signal, INTERRUPTED, Arc::clone(&stop))
            .and_then(|_| flag::register(signal, Arc::clone(&stop)))
            .map_err(|error| CliError::system("wait for signals", error))?;
    }
    Ok(stop)
}

/// Faults of the run that no scenario may expect, a line each.
pub(super) fn broken(is_lite: bool, results: &Results) -> Vec<String> {
    let mut failures = Vec::new();
    if is_lite {
        failures.extend(lite_loss(results));
    }
    for switch in &results.switches {
        let imbalance = switch.ledger.imbalance_frames;
        if imbalance != 0 {
            failures.push(format!(
                "the books of switch {} do not balance: {imbalance} frames",
                switch.name
            ));
        }
    }
    for host in &results.hosts {
        let wrong = host.counters.get("tcp_data_errors").copied().unwrap_or_default();
        if wrong > 0 {
            let name = &host.name;
            failures
                .push(format!("TCP: {wrong} connections brought {name} other data than was sent"));
        }
    }
    for it in &results.objections {
        failures.push(format!("{} of {} at {} ps: {}", it.checker, it.node, it.at_ps, it.saw));
    }
    if let Ending::Stalled { .. } = results.ending {
        failures.push(results.ending.words().to_owned());
    }
    failures
}

/// Lost frames of LITE: a fault, as LITE has no retransmission.
fn lite_loss(results: &Results) -> Option<String> {
    let hosts = || results.hosts.iter().flat_map(|host| &host.counters);
    let of = |is_one: fn(&str) -> bool| -> u64 {
        hosts().filter(|(name, _)| is_one(name.as_str())).map(|(_, count)| *count).sum()
    };
    let dropped = of(|name| name.starts_with("drops_") || name == "overruns");
    let (by_switches, missing) = (results.summary.dropped_frames, of(|name| name == "lost"));
    (by_switches + dropped + missing > 0).then(|| {
        format!(
            "LITE has lost frames, and sends nothing again: {by_switches} dropped by switches, {dropped} by hosts; hosts miss {missing}"
        )
    })
}

/// Expectations that the results do not meet; none for an interrupted run, whose figures are incomplete.
pub(super) fn unmet(results: &Results) -> impl Iterator<Item = &ExpectResult> {
    let is_whole = results.ending != Ending::Interrupted;
    results.expectations.iter().filter(move |expectation| is_whole && !expectation.passed)
}

/// Fails on faults and unmet expectations.
fn judge(is_lite: bool, results: &Results) -> Result<(), CliError> {
    let mut failures = broken(is_lite, results);
    let unmet = unmet(results).map(|it| format!("not as expected: {}", summary::expectation(it)));
    failures.extend(unmet);
    if failures.is_empty() { Ok(()) } else { Err(CliError::Difference(failures.join("\n"))) }
}

#[cfg(test)]
mod tests {
    use weft_sim::results::Objection;
    use weft_sim::results::network::{HostResult, SwitchResult};

    use super::*;

    #[test]
    fn what_is_broken_is_told_whatever_was_expected() {
        let mut switch = SwitchResult { name: "s0".to_owned(), ..SwitchResult::default() };
        switch.ledger.imbalance_frames = 2;
        let (node, checker, saw) = ("h1".to_owned(), "order".to_owned(), "two of them".to_owned());
        let objections = vec![Objection { at_ps: 5, node, checker, saw }];
        let results = Results { switches: vec![switch], objections, ..Results::default() };
        assert_eq!(
            broken(false, &results),
            ["the books of switch s0 do not balance: 2 frames", "order of h1 at 5 ps: two of them"]
        );
        assert_eq!(broken(true, &Results::default()), [""; 0]);
        let judged = |results| judge(false, results);
        assert!(judged(&results).is_err() && judged(&Results::default()).is_ok());
    }

    #[test]
    fn lite_loses_nothing_unsaid() {
        for (counter, fails) in
            [("drops_fcs", true), ("overruns", true), ("lost", true), ("rx_frames", false)]
        {
            let mut host = HostResult::default();
            host.counters.insert(counter.to_owned(), 1);
            let results = Results { hosts: vec![host], ..Results::default() };
            assert_eq!(broken(true, &results).len(), usize::from(fails), "{counter}");
            assert_eq!(broken(false, &results), [""; 0], "{counter}");
        }
        let mut results = Results::default();
        results.summary.dropped_frames = 3;
        let want = "LITE has lost frames, and sends nothing again: 3 dropped by switches, 0 by hosts; hosts miss 0";
        assert_eq!(broken(true, &results), [want]);
    }
}
