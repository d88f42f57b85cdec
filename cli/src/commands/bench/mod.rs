//! `weft bench`: how fast weft, or whatever lies between two ports, is.
//!
//! A subcommand each for the switch in memory and for ports; trials, searches and reports in
//! files of their own.
//!
//! Units: as each says.
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

/// What to measure.
#[derive(Debug, Subcommand)]
pub enum BenchCommand {
    /// Measure the whole path in memory, between null ports that make and take frames
    Pipeline(pipeline::PipelineArgs),
    /// Measure what connects two ports by the method of RFC 2544: throughput, latency, loss, bursts
    ///
    /// Frames go out of one port and are checked where they come in at the other: through a running
    /// switch, another switch, or a cable. Rates are those that were really offered; where the generator
    /// is the limit, the result says so. Latencies are from when a frame is made to when its burst is
    /// taken from the port.
    Ports(Box<plan::PortsArgs>),
}

/// Measures.
///
/// # Errors
/// A load that cannot be, a port that cannot be opened, a trial that could not be run.
pub fn run(command: &BenchCommand, out: &mut dyn Write) -> Result<(), CliError> {
    match command {
        BenchCommand::Pipeline(args) => pipeline::run(args, out),
        BenchCommand::Ports(args) => ports::run(args, out),
    }
}

/// A flag that SIGINT and SIGTERM set.
fn stop_flag() -> Result<Arc<AtomicBool>, CliError> {
    let stop = Arc::new(AtomicBool::new(false));
    for signal in [SIGINT, SIGTERM] {
        signal_hook::flag::register(signal, stop.clone())
            .map_err(|source| CliError::system("wait for signals", source))?;
    }
    Ok(stop)
}
