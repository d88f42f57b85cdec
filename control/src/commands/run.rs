//! `weft run`: the switch, live, until it is told to stop.
//!
//! Shape: settings → [`Switchboard`], management socket, metrics; at the end the final counters.
//! Units: frames.
//! Source: issue 2, "`weft` binary"; pipeline.md §10 and §11.

use std::io::Write;
use std::net::SocketAddr;
use std::sync::Arc;

use clap::Args;
use signal_hook::consts::{SIGINT, SIGTERM};
use signal_hook::iterator::Signals;
use weft_dataplane::pipeline::Ledger;
use weft_dataplane::stats::DropReason;

use crate::cli::SettingsArgs;
use crate::config::resolve::{Config, LogLevel, Timing};
use crate::config::value::listen_addr;
use crate::error::CliError;
use crate::live::backend::Switchboard;
use crate::metrics::MetricsServer;
use crate::mgmt::Server;

/// Arguments of `weft run`.
#[derive(Args, Debug)]
pub struct RunArgs {
    #[command(flatten)]
    settings: SettingsArgs,
    /// Serve Prometheus metrics there, such as 127.0.0.1:9464, or 9464 on loopback
    #[arg(long, value_name = "ADDR", value_parser = listen)]
    metrics: Option<SocketAddr>,
    /// Print the final counters as JSON
    #[arg(long)]
    json: bool,
}

fn listen(text: &str) -> Result<SocketAddr, String> {
    listen_addr(text).ok_or_else(|| "expected ADDRESS:PORT, or a port of loopback".to_owned())
}

/// Runs the switch.
///
/// # Errors
/// A configuration that is refused, a device that cannot be opened.
pub fn run(args: &RunArgs, out: &mut dyn Write) -> Result<(), CliError> {
    let settings = args.settings.load()?;
    let config = Config::resolve(&settings, Timing::Live)?;
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
    let board = Switchboard::start(args.settings.clone(), config.clone())
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
    for (port, run) in config.switch.ports.iter().zip(&config.run.ports) {
        let (name, kind, device) = (&port.name, run.kind.name(), &run.device);
        log(LogLevel::Info, format_args!("port {name}: {kind} {device}"));
    }
    log(LogLevel::Info, format_args!("switch {:?} is up", config.run.name));
    if let Some(signal) = signals.forever().next() {
        let name = signal_hook::low_level::signal_name(signal).unwrap_or("a signal");
        log(LogLevel::Info, format_args!("stopping on {name}"));
    }
    drop(metrics);
    drop(server);
    let ledger = board.stop();
    if args.json {
        return super::write_json(out, &ledger);
    }
    print(&config, &ledger, out).map_err(CliError::Output)
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
