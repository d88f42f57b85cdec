//! `weft bench`: measures weft in memory, or the device or link between two ports.
//!
//! One subcommand for each. Trials, searches and reports are in files of their own.
//!
//! Source: RFC 2544; docs/bench.md.

mod burst;
mod html;
mod machine;
mod measure;
mod percent;
mod pipeline;
mod plan;
mod ports;
mod result;
mod search;
mod text;
mod trial;

use std::io::Write;
use std::sync::Arc;
use std::sync::atomic::AtomicBool;

use clap::Subcommand;
use signal_hook::consts::{SIGINT, SIGTERM};

use crate::error::CliError;

#[derive(Debug, Subcommand)]
pub enum BenchCommand {
    /// Measure the whole forwarding path in memory, between null ports that generate and consume frames
    Pipeline(pipeline::PipelineArgs),
    /// Measure the device or link between two ports by RFC 2544: throughput, latency, loss, back-to-back bursts
    ///
    /// Frames leave by one port and are checked as they arrive at the other: through a running switch,
    /// another switch, or a cable. Reported rates are the rates really offered; where the generator is the
    /// bottleneck, the result says so. A frame's latency is the time from its generation until its burst is
    /// read from the receiving port.
    Ports(Box<plan::PortsArgs>),
}

/// Runs the measurement that `command` names.
///
/// # Errors
/// Impossible parameters, a port that cannot be opened, or a trial that cannot be run.
pub fn run(command: &BenchCommand, out: &mut dyn Write) -> Result<(), CliError> {
    match command {
        BenchCommand::Pipeline(args) => pipeline::run(args, out),
        BenchCommand::Ports(args) => ports::run(args, out),
    }
}

/// Returns a flag that SIGINT and SIGTERM set, so that a measurement ends between two trials or rounds.
fn stop_flag() -> Result<Arc<AtomicBool>, CliError> {
    let stop = Arc::new(AtomicBool::new(false));
    for signal in [SIGINT, SIGTERM] {
        signal_hook::flag::register(signal, stop.clone())
            .map_err(|source| CliError::system("wait for signals", source))?;
    }
    Ok(stop)
}
