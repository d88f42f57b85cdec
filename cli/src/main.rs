//! The `weft` binary: reads the command line, runs the command, turns errors into exit codes.
//!
//! Arguments in, exit code out.
//!
//! Source: `weft --help`.

use std::io::Write;
use std::process::ExitCode;

use anstyle::{AnsiColor, Style};
use clap::Parser;

use weft::cli::Cli;
use weft::commands;

#[global_allocator]
static ALLOCATOR: weft_base::memory::Ending = weft_base::memory::Ending;

fn main() -> ExitCode {
    let cli = Cli::parse();
    if let Err(error) = weft_lab::fabric::leftovers::end_with_parent() {
        anstream::eprintln!("error: {error}");
        return ExitCode::from(weft_control::exit::ExitCode::System as u8);
    }
    let mut out = anstream::AutoStream::auto(std::io::stdout());
    let ended = commands::run(cli, &mut out)
        .and_then(|()| out.flush().map_err(weft::error::CliError::Output));
    match ended {
        Ok(()) => ExitCode::SUCCESS,
        Err(error) if error.is_broken_pipe() => ExitCode::SUCCESS,
        Err(error) => {
            let red: Style = AnsiColor::Red.on_default().bold();
            for line in error.with_causes().lines() {
                anstream::eprintln!("{red}error:{red:#} {line}");
            }
            ExitCode::from(error.exit_code() as u8)
        }
    }
}
