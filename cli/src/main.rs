//! The `weft` binary: parses the command line, runs the command, and turns errors into exit codes.

use std::io::Write;
use std::process::ExitCode;

use anstyle::{AnsiColor, Style};
use clap::Parser;

use weft::cli::Cli;

#[global_allocator]
static ALLOCATOR: weft_base::memory::Ending = weft_base::memory::Ending;

fn main() -> ExitCode {
    let cli = Cli::parse();
    // Before anything is opened: a process that a fabric started must not outlive it.
    if let Err(error) = weft_lab::fabric::leftovers::end_with_parent() {
        anstream::eprintln!("error: {error}");
        return ExitCode::from(weft_control::exit::ExitCode::System as u8);
    }
    let mut out = anstream::AutoStream::auto(std::io::stdout());
    // A command's last lines may still be buffered, and failing to write them is the command's failure.
    let ended = cli.run(&mut out).and_then(|()| out.flush().map_err(weft::error::CliError::Output));
    match ended {
        Ok(()) => ExitCode::SUCCESS,
        // Rust ignores SIGPIPE, so `weft show ports | head` gets EPIPE here.
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
