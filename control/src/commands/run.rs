//! `weft run`: the switch, live, until it is told to stop.
//!
//! Shape: settings → [`Switchboard`], management socket, metrics; at the end the final counters, and
//! what became of the record.
//! Units: frames.
//! Source: issue 2, "`weft` binary"; pipeline.md §10 and §11.

use std::fs::File;
use std::io::Write;
use std::net::SocketAddr;
use std::path::{Path, PathBuf};
use std::sync::Arc;

use clap::Args;
use serde::Serialize;
use signal_hook::consts::{SIGINT, SIGTERM, SIGXFSZ};
use signal_hook::iterator::Signals;
use weft_dataplane::pipeline::Ledger;
use weft_dataplane::port::record::Summary;
use weft_dataplane::stats::DropReason;

use crate::cli::SettingsArgs;
use crate::config::Sources;
use crate::config::resolve::{Config, LogLevel, Timing};
use crate::config::value::listen_addr;
use crate::error::CliError;
use crate::live::NewRecord;
use crate::live::backend::Switchboard;
use crate::metrics::MetricsServer;
use crate::mgmt::Server;
use crate::record::hex;

/// Arguments of `weft run`.
#[derive(Args, Debug)]
pub struct RunArgs {
    #[command(flatten)]
    settings: SettingsArgs,
    /// Serve Prometheus metrics there, such as 127.0.0.1:9464, or 9464 on loopback
    #[arg(long, value_name = "ADDR", value_parser = listen)]
    metrics: Option<SocketAddr>,
    /// Record the run, with one worker, for `weft replay --record`: all frames that come in are in it
    #[arg(long, value_name = "FILE")]
    record: Option<PathBuf>,
    /// Print the final counters as JSON
    #[arg(long)]
    json: bool,
}

/// What is said at the end, as JSON.
#[derive(Serialize)]
struct Final<'a> {
    #[serde(flatten)]
    counters: &'a Ledger,
    #[serde(skip_serializing_if = "Option::is_none")]
    record: Option<Recorded>,
}

/// What became of the record.
#[derive(Serialize)]
struct Recorded {
    file: PathBuf,
    steps: u64,
    octets: u64,
    /// Decisions.
    events: u64,
    /// Hash of every decision and its time.
    trace_hash: Option<String>,
    /// Hash of every frame that a port took.
    sent_hash: String,
    /// Why the record ends before the run.
    error: Option<String>,
}

impl Recorded {
    fn new(file: &Path, summary: &Summary) -> Self {
        Self {
            file: file.to_owned(),
            steps: summary.steps,
            octets: summary.octets,
            events: summary.events,
            trace_hash: summary.trace_hash.map(hex),
            sent_hash: hex(summary.sent_hash),
            error: summary.failed.as_ref().map(ToString::to_string),
        }
    }

    fn print(&self, out: &mut dyn Write) -> std::io::Result<()> {
        let (file, steps, octets) = (self.file.display(), self.steps, self.octets);
        writeln!(out, "record {file}: {steps} steps, {octets} octets")?;
        if let Some(error) = &self.error {
            writeln!(out, "record {file} ends before the run: {error}")?;
        }
        match &self.trace_hash {
            Some(hash) => writeln!(out, "trace hash {hash} over {} decisions", self.events),
            None => Ok(()),
        }
    }
}

fn listen(text: &str) -> Result<SocketAddr, String> {
    listen_addr(text).ok_or_else(|| "expected ADDRESS:PORT, or a port of loopback".to_owned())
}

/// Runs the switch.
///
/// # Errors
/// A configuration that is refused, a device that cannot be opened.
pub fn run(args: &RunArgs, out: &mut dyn Write) -> Result<(), CliError> {
    let sources = args.settings.sources()?;
    let config = Config::resolve(&sources.settings()?, Timing::Live)?;
    let log = |level: LogLevel, text: std::fmt::Arguments<'_>| {
        if level <= config.run.log {
            anstream::eprintln!("{text}");
        }
    };
    for warning in &config.warnings {
        log(LogLevel::Warn, format_args!("warning: {warning}"));
    }
    // Before any thread is made, so that none of them misses its mask.
    let mut signals = Signals::new([SIGINT, SIGTERM])
        .map_err(|source| system("wait for signals".to_owned(), source))?;
    // A file that may not grow on is an error where it is written, not the end.
    signal_hook::flag::register(SIGXFSZ, Arc::default())
        .map_err(|source| system("catch SIGXFSZ".to_owned(), source))?;
    let record =
        args.record.as_deref().map(|path| new_record(path, &config, sources)).transpose()?;
    let board = Switchboard::start(args.settings.clone(), config.clone(), record)
        .map_err(|source| system(format!("start switch {:?}", config.run.name), source))?;
    let board = Arc::new(board);
    let server = Server::start(&config.run.socket, board.clone())
        .map_err(|source| system("serve the management socket".to_owned(), source))?;
    let metrics = match args.metrics.or(config.run.metrics) {
        Some(addr) => Some(
            MetricsServer::start(addr, board.clone())
                .map_err(|source| system("serve metrics".to_owned(), source))?,
        ),
        None => None,
    };
    for (port, opened) in config.switch.ports.iter().zip(board.devices()) {
        let (name, kind, device) = (&port.name, &opened.kind, &opened.device);
        let note = opened.note.as_ref().map(|note| format!("; {note}")).unwrap_or_default();
        log(LogLevel::Info, format_args!("port {name}: {kind} {device}{note}"));
    }
    if let Some(at) = board.cci() {
        log(LogLevel::Info, format_args!("CCI at {at}"));
    }
    log(LogLevel::Info, format_args!("switch {:?} is up", config.run.name));
    if let Some(signal) = signals.forever().next() {
        let name = signal_hook::low_level::signal_name(signal).unwrap_or("a signal");
        log(LogLevel::Info, format_args!("stopping on {name}"));
    }
    drop(metrics);
    drop(server);
    let (counters, summary) = board.stop();
    let path = args.record.as_deref().unwrap_or(Path::new(""));
    let record = summary.as_ref().map(|summary| Recorded::new(path, summary));
    if args.json {
        super::write_json(out, &Final { counters: &counters, record })?;
    } else {
        print(&config, &counters, out).map_err(CliError::Output)?;
        record.map_or(Ok(()), |record| record.print(out)).map_err(CliError::Output)?;
    }
    match summary.and_then(|summary| summary.failed) {
        Some(source) => Err(CliError::File { verb: "write", path: path.to_owned(), source }),
        None => Ok(()),
    }
}

/// Makes the file of a record.
fn new_record(path: &Path, config: &Config, sources: Sources) -> Result<NewRecord, CliError> {
    if config.run.workers > 1 {
        let workers = config.run.workers;
        let text = format!("--record: expected one worker, found run.workers = {workers}");
        return Err(CliError::Usage(text));
    }
    let error = |source| CliError::File { verb: "write", path: path.to_owned(), source };
    let file = File::create(path).map_err(error)?;
    let name = path.display().to_string();
    let on_failure = Box::new(move |error: &std::io::Error| {
        anstream::eprintln!(
            "error: write {name}: {error}; the switch goes on, the record does not"
        );
    });
    Ok(NewRecord { file, sources, on_failure })
}

fn system(what: String, source: impl std::error::Error + Send + Sync + 'static) -> CliError {
    CliError::System { what, source: Box::new(source) }
}

/// The final counters, as text.
fn print(config: &Config, ledger: &Ledger, out: &mut dyn Write) -> std::io::Result<()> {
    for (port, counts) in config.switch.ports.iter().zip(&ledger.port) {
        let name = &port.name;
        writeln!(
            out,
            "{name}: rx {} tx {} frames, kernel_rx {}",
            counts.rx_frames, counts.tx_frames, counts.kernel_rx
        )?;
        for (reason, &count) in DropReason::ALL.iter().zip(&counts.drops) {
            if count > 0 {
                writeln!(out, "{name}: dropped {count} {}", reason.name())?;
            }
        }
    }
    writeln!(
        out,
        "rx {} + copies {} = tx {} + dropped {} + consumed {} + queued {}, unaccounted {}",
        ledger.rx,
        ledger.copies,
        ledger.tx,
        ledger.dropped,
        ledger.consumed,
        ledger.queued,
        ledger.imbalance()
    )
}
