//! `weft model`: experiments on the switch's own code.
//!
//! Time is in slots; load and throughput are in cells per port and slot.
//!
//! Source: McKeown 1999.

use std::io::Write;

use clap::{Args, Subcommand};
use serde::Serialize;
use weft_sim::islip_model::IslipModel;

use super::{progress, write_json};
use crate::error::CliError;

#[derive(Debug, Subcommand)]
pub enum ModelCommand {
    /// Measure throughput and delay of the iSLIP crossbar under uniform Bernoulli arrivals
    Islip(IslipArgs),
}

/// Arguments of `weft model islip`.
#[derive(Args, Debug)]
pub struct IslipArgs {
    /// Number of inputs, and of outputs, 1 to 64
    #[arg(long, value_name = "N", default_value_t = 16)]
    pub ports: usize,
    /// iSLIP iterations per slot, 1 to 4
    #[arg(long, value_name = "I", default_value_t = 1)]
    pub iterations: u32,
    /// Probability of an arrival per input and slot, 0 to 1
    #[arg(long, value_name = "L", default_value_t = 1.0)]
    pub load: f64,
    /// Number of slots to run; the first tenth is warm-up and not measured
    #[arg(long, value_name = "S", default_value_t = 100_000)]
    pub slots: u64,
    /// Seed for random arrivals
    #[arg(long, value_name = "X", default_value_t = 1)]
    pub seed: u64,
    /// Print JSON
    #[arg(long)]
    pub json: bool,
}

/// The report: first its parameters, then the figures.
#[derive(Debug, Serialize)]
struct IslipReport {
    model: &'static str,
    ports: usize,
    iterations: u32,
    load: f64,
    slots: u64,
    seed: u64,
    throughput: f64,
    mean_delay_slots: Option<f64>,
    arrivals: u64,
    departures: u64,
    measured_slots: u64,
}

/// Runs a model and reports its figures.
///
/// # Errors
/// A parameter out of its range.
pub fn run(command: &ModelCommand, out: &mut dyn Write) -> Result<(), CliError> {
    let ModelCommand::Islip(args) = command;
    let IslipArgs { ports, iterations, load, slots, seed, json } = *args;
    let bar = progress::bar(slots, "slots");
    let result = IslipModel { ports, iterations, load, slots, seed }
        .run(&mut |done| bar.set_position(done))
        .map_err(|error| CliError::Usage(error.to_string()))?;
    bar.finish_and_clear();
    let report = IslipReport {
        model: "islip",
        ports,
        iterations,
        load,
        slots,
        seed,
        throughput: result.throughput,
        mean_delay_slots: result.mean_delay_slots,
        arrivals: result.arrivals,
        departures: result.departures,
        measured_slots: result.measured_slots,
    };
    if json { write_json(out, &report) } else { print(out, &report) }
}

fn print(out: &mut dyn Write, report: &IslipReport) -> Result<(), CliError> {
    let delay = match report.mean_delay_slots {
        Some(slots) => format!("{slots:.4} slots"),
        None => "none: no cell left".to_owned(),
    };
    let IslipReport { ports, iterations, load, measured_slots, seed, .. } = report;
    let text = format!(
        "iSLIP, {ports} ports, {iterations} iterations, load {load}, {measured_slots} slots measured, seed {seed}\n\
         accepted throughput  {:.5} cells per port and slot\n\
         mean delay           {delay}\n",
        report.throughput
    );
    out.write_all(text.as_bytes()).map_err(CliError::Output)
}
