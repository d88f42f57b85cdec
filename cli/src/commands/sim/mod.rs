//! `weft sim`: runs networks of the switch in virtual time.
//!
//! One file for each subcommand.
//!
//! Source: docs/spec/model.md; docs/simulation.md.

pub mod check;
mod estimate;
pub mod new;
mod outputs;
pub mod run;
mod summary;
pub mod sweep;
pub mod transfer;

use std::io::Write;

use clap::Subcommand;
use weft_config::scenario::document;

use crate::error::CliError;

#[derive(Debug, Subcommand)]
pub enum SimCommand {
    /// Run a scenario file, and report whether its results meet its expectations
    Run(run::RunArgs),
    /// Run scenario files and check their expectations, one line per expectation
    Check(check::CheckArgs),
    /// Run a scenario file with many values and seeds, and collect the results in one table and one page
    Sweep(sweep::SweepArgs),
    /// Write a commented scenario file to start from
    New(new::NewArgs),
    /// Run transfers of fabric memory over links of given rates, and compare them with the limits of the links
    Transfer(transfer::TransferArgs),
    /// Print the documentation of all keys of a scenario file as Markdown
    Keys,
}

/// Runs `weft sim`.
///
/// # Errors
/// A scenario that is refused or not as expected, or a file that cannot be read or written.
pub fn run(command: &SimCommand, out: &mut dyn Write) -> Result<(), CliError> {
    match command {
        SimCommand::Run(args) => run::run(args, out),
        SimCommand::Check(args) => check::run(args, out),
        SimCommand::Sweep(args) => sweep::run(args, out),
        SimCommand::New(args) => new::run(args, out),
        SimCommand::Transfer(args) => transfer::run(args, out),
        SimCommand::Keys => {
            out.write_all(document::markdown().as_bytes()).map_err(CliError::Output)
        }
    }
}
