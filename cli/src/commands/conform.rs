//! `weft conform`: thresholds of a running switch for conformance tests, and weft's own tests of buffer and PFC.
//!
//! `params` asks the switch for its [`Params`]; `run` checks the switch against them.
//!
//! Source: docs/conform.md.

use std::io::Write;
use std::net::SocketAddr;
use std::path::PathBuf;
use std::time::Duration;

use clap::{Args, Subcommand};
use serde::Serialize;
use weft_base::causes::with_causes;
use weft_base::files::OpenedBy;
use weft_config::read::read_text;
use weft_control::conform::Params;
use weft_control::live::confine;
use weft_control::report::tables;
use weft_control::requests::Request;
use weft_control::sai_client::SaiClient;

use super::running::{SwitchArgs, read_answer};
use super::write_json;
use crate::conform::{self, Bench, CaseError, End, Outcome, Ran, Verdict};
use crate::error::CliError;

#[derive(Subcommand, Debug)]
pub enum ConformCommand {
    /// Print, for each (port, priority) of a running switch, the frame at which it pauses, drops and resumes
    Params(ParamsArgs),
    /// Test a switch against its thresholds and maps, with frames into and out of its ports
    Run(RunArgs),
}

/// Arguments of `weft conform run`.
#[derive(Args, Debug)]
pub struct RunArgs {
    /// Switch port NAME and the local interface connected to it; at least two links, four for all cases
    #[arg(long, value_name = "NAME=[KIND:]DEVICE", value_parser = end, required_unless_present = "list")]
    link: Vec<End>,
    /// Test case to run, one of --list; by default all
    #[arg(long, value_name = "NAME", value_parser = case)]
    case: Vec<String>,
    /// List the test cases without running them
    #[arg(long)]
    list: bool,
    /// Frame size in bytes, without FCS
    #[arg(long, value_name = "BYTES", default_value_t = 64, conflicts_with = "params")]
    packet_size: u64,
    /// Test the switch whose SAI RPC server listens here, instead of a running weft through its management socket
    #[arg(long, value_name = "ADDRESS:PORT", requires = "params", conflicts_with_all = ["socket", "switch"])]
    server: Option<SocketAddr>,
    /// Thresholds and maps of the switch, as `weft conform params --json` prints them; by default those of the running
    /// weft
    #[arg(long, value_name = "FILE")]
    params: Option<PathBuf>,
    /// Time limit in seconds for each expected reaction of the switch
    #[arg(long, value_name = "S", default_value_t = 20, value_parser = clap::value_parser!(u64).range(1..=3_600))]
    limit: u64,
    /// Print JSON
    #[arg(long)]
    json: bool,
    #[command(flatten)]
    switch: SwitchArgs,
}

/// Result of a run, as JSON.
#[derive(Serialize)]
struct Report<'a> {
    cases: &'a [Outcome],
    passed: usize,
    failed: usize,
    skipped: usize,
}

fn end(text: &str) -> Result<End, String> {
    let (port, interface) = text
        .split_once('=')
        .filter(|(port, interface)| !port.is_empty() && !interface.is_empty())
        .ok_or_else(|| "expected NAME=[KIND:]DEVICE, such as p0=eth1".to_owned())?;
    Ok(End { port: port.to_owned(), interface: interface.to_owned() })
}

fn case(text: &str) -> Result<String, String> {
    if conform::all().any(|(name, _)| name == text) {
        return Ok(text.to_owned());
    }
    let names: Vec<_> = conform::all().map(|(name, _)| name).collect();
    Err(format!("expected one of {}", names.join(", ")))
}

/// Arguments of `weft conform params`.
#[derive(Args, Debug)]
pub struct ParamsArgs {
    /// Frame size in bytes, without FCS
    #[arg(long, value_name = "BYTES", default_value_t = 64)]
    packet_size: u64,
    /// Print JSON
    #[arg(long)]
    json: bool,
    #[command(flatten)]
    switch: SwitchArgs,
}

/// Runs `weft conform`.
///
/// # Errors
/// No switch answers, or it refuses.
pub fn run(command: &ConformCommand, out: &mut dyn Write) -> Result<(), CliError> {
    match command {
        ConformCommand::Params(args) => params(args, out),
        ConformCommand::Run(args) => run_cases(args, out),
    }
}

fn run_cases(args: &RunArgs, out: &mut dyn Write) -> Result<(), CliError> {
    if args.list {
        let cases = conform::all().map(|(name, what)| [name.to_owned(), what.to_owned()]);
        let text = tables::table(["case", "what it looks at"], 2, cases);
        return out.write_all(text.as_bytes()).map_err(CliError::Output);
    }
    if args.link.len() < 2 {
        return Err(CliError::Usage("--link: expected two ports at least".to_owned()));
    }
    let params = params_of(args)?;
    let client = match args.server {
        Some(addr) => {
            SaiClient::connect(addr).map_err(|error| CliError::Switch(with_causes(&error)))?
        }
        None => SaiClient::over(args.switch.connect()?),
    };
    let limit = Duration::from_secs(args.limit);
    let give_up = "give up what the cases do not need";
    // Unneeded rights go before the interfaces are opened; system calls are filtered when all is open
    // (docs/privileges.md).
    let entered = confine::enter_on(args.link.iter().map(|link| link.interface.as_str()))
        .map_err(|source| CliError::system(give_up, source))?;
    let mut bench = Bench::new(client, args.link.clone(), params, limit).map_err(not_run)?;
    let _confined = entered.seal().map_err(|source| CliError::system(give_up, source))?;
    let mut told = Ok(());
    let ran = conform::run(&mut bench, &args.case, |outcome| {
        // If output fails, the cases still end in order; the error is returned below.
        if !args.json && told.is_ok() {
            told = writeln!(out, "{}", line(outcome)).and_then(|()| out.flush());
        }
    });
    told.map_err(CliError::Output)?;
    let Ran { outcomes, restored } = ran.map_err(not_run)?;
    let count = |verdict| outcomes.iter().filter(|outcome| outcome.verdict == verdict).count();
    let (passed, failed, skipped) =
        (count(Verdict::Passed), count(Verdict::Failed), count(Verdict::Skipped));
    if args.json {
        write_json(out, &Report { cases: &outcomes, passed, failed, skipped })?;
    } else {
        let cases = outcomes.len();
        writeln!(out, "{cases} cases: {passed} passed, {failed} failed, {skipped} skipped")
            .map_err(CliError::Output)?;
    }
    if failed > 0 {
        return Err(CliError::Difference(format!("{failed} of {} cases failed", outcomes.len())));
    }
    restored.map_err(|error| CliError::Switch(format!("after the cases: {}", with_causes(&error))))
}

/// Why the cases cannot be run at all.
fn not_run(error: CaseError) -> CliError {
    match error {
        CaseError::NoPort(_) | CaseError::NoPool(_) => CliError::Usage(error.to_string()),
        CaseError::Open { .. } | CaseError::Device(_) => CliError::system("run the cases", error),
        _ => CliError::Switch(with_causes(&error)),
    }
}

/// Thresholds and maps from `--params`, or from the running switch.
fn params_of(args: &RunArgs) -> Result<Params, CliError> {
    let Some(path) = &args.params else {
        let request = Request::ConformParams { packet_size: args.packet_size };
        return read_answer(args.switch.ask(&request)?);
    };
    let text = read_text(path, OpenedBy::Command)?;
    serde_json::from_str(&text)
        .map_err(|error| CliError::Usage(format!("--params {}: {error}", path.display())))
}

fn line(outcome: &Outcome) -> String {
    let Outcome { case, verdict, detail, ms } = outcome;
    let verdict = match verdict {
        Verdict::Passed => "passed",
        Verdict::Failed => "FAILED",
        Verdict::Skipped => "SKIPPED",
    };
    format!("{verdict:<8} {case:<11} {ms:6} ms  {detail}")
}

fn params(args: &ParamsArgs, out: &mut dyn Write) -> Result<(), CliError> {
    let request = Request::ConformParams { packet_size: args.packet_size };
    let answer = args.switch.ask(&request)?;
    if args.json {
        return write_json(out, &answer);
    }
    let params: Params = read_answer(answer)?;
    out.write_all(text(&params).as_bytes()).map_err(CliError::Output)
}

fn text(params: &Params) -> String {
    let Params { cell_size, packet_size, packet_cells, buf_pool_roid, rows, .. } = params;
    let head = format!(
        "frames of {packet_size} bytes, {packet_cells} cells of {cell_size} bytes each; buffer pool {buf_pool_roid}\n"
    );
    let or =
        |number: Option<u64>| number.map_or_else(|| "-".to_owned(), |number| number.to_string());
    let cells = rows.iter().map(|row| {
        [
            row.port.clone(),
            row.pri.to_string(),
            row.pg.to_string(),
            if row.lossless { "yes" } else { "no" }.to_owned(),
            row.fill_min.to_string(),
            or(row.trig_pfc),
            or(row.dismiss_pfc),
            or(row.headroom),
            or(row.trig_ingr_drp),
            or(row.trig_egr_drp),
            row.margin.to_string(),
        ]
    });
    let heads = [
        "port",
        "pri",
        "pg",
        "lossless",
        "fill min",
        "trig pfc",
        "dismiss pfc",
        "headroom",
        "trig ingr drp",
        "trig egr drp",
        "margin",
    ];
    head + &tables::table(heads, 4, cells)
}
