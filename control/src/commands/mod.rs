//! What each command does.
//!
//! Shape: one module a command, arguments and a function that takes them and a writer.
//! Units: as each command says.
//! Source: issue 2, "`weft` binary".

pub mod bench;
pub mod config;
pub mod decode;
pub mod endpoint;
pub mod fabric;
pub mod fm;
pub mod generate;
pub mod model;
pub mod progress;
pub mod replay;
mod replay_record;
pub mod run;
pub mod running;
pub mod shell;
pub mod trace;
pub mod traffic;

use std::io::Write;

use crate::cli::{Cli, Command};
use crate::error::CliError;

/// Does what `cli` asks for; results go to `out`.
///
/// # Errors
/// Whatever keeps the command from ending with exit code 0.
pub fn run(cli: Cli, out: &mut dyn Write) -> Result<(), CliError> {
    match cli.command {
        Command::Bench(command) => bench::run(&command, out),
        Command::Config(command) => config::run(&command, out),
        Command::Model(command) => model::run(&command, out),
        Command::Replay(args) => replay::run(&args, out),
        Command::Run(args) => run::run(&args, out),
        Command::Trace(args) => trace::run(&args, out),
        Command::Traffic(args) => traffic::run(&args, out),
        Command::Endpoint(command) => endpoint::run(*command, out),
        Command::Show(args) => running::show(&args, out),
        Command::Fdb(command) => running::fdb(&command),
        Command::Reload(args) => running::reload(&args, out),
        Command::Mirror(args) => running::mirror(&args),
        Command::Decode(args) => decode::run(&args, out),
        Command::Fm(command) => fm::run(&command, out),
        Command::Fabric(command) => fabric::run(&command, out),
        Command::Gen(args) => generate::run(&args, out),
        Command::Completions { shell } => shell::completions(shell, out),
        Command::Man => shell::man(out),
    }
}

/// Writes `value` as one JSON document.
pub(crate) fn write_json(
    out: &mut dyn Write,
    value: &impl serde::Serialize,
) -> Result<(), CliError> {
    let write = |out: &mut dyn Write| -> std::io::Result<()> {
        serde_json::to_writer_pretty(&mut *out, value)?;
        writeln!(out)
    };
    write(out).map_err(CliError::Output)
}
