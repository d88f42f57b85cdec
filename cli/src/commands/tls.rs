//! `weft tls`: makes certificates for switches and fabric managers that connect over TCP.

use std::io::Write;
use std::path::PathBuf;

use clap::{Args, Subcommand};
use serde_json::{Value, json};
use weft_control::tls;

use super::write_json;
use crate::error::CliError;

#[derive(Debug, Subcommand)]
pub enum TlsCommand {
    /// Create a test authority, and certificates for a switch and for a fabric manager of each role
    Init(InitArgs),
}

/// Arguments of `weft tls init`.
#[derive(Args, Debug)]
pub struct InitArgs {
    /// Directory for the certificates and keys; created with mode 0700 if missing
    #[arg(value_name = "DIR")]
    dir: PathBuf,
    /// Another name or address for the switch certificate, which clients may check; may be given several times
    #[arg(long = "name", value_name = "NAME")]
    names: Vec<String>,
    /// Validity of the certificates, in days
    #[arg(long, value_name = "N", default_value_t = 365, value_parser = clap::value_parser!(u16).range(1..=3_650))]
    days: u16,
    /// Print JSON
    #[arg(long)]
    json: bool,
}

/// Makes the certificates and lists their files.
///
/// # Errors
/// Files that exist already, or cannot be written.
pub fn run(command: &TlsCommand, out: &mut dyn Write) -> Result<(), CliError> {
    let TlsCommand::Init(args) = command;
    let made = tls::make(&args.dir, &args.names, args.days).map_err(|error| CliError::System {
        what: "make certificates".to_owned(),
        source: Box::new(error),
    })?;
    if args.json {
        let file = |file: &tls::Made| json!({ "path": file.path, "what": file.what });
        return write_json(out, &made.iter().map(file).collect::<Value>());
    }
    for file in made {
        writeln!(out, "{}: {}", file.path.display(), file.what).map_err(CliError::Output)?;
    }
    Ok(())
}
