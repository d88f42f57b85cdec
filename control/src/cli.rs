//! The command line.
//!
//! Shape: a tree of clap's derives; `commands` does what they ask for.
//! Units: as each option says.
//! Source: none of its own.

use std::path::{Path, PathBuf};

use clap::{Args, Parser, Subcommand};

use crate::commands::{
    bench, config, decode, drops, endpoint, fabric, fm, generate, model, replay, run, running, tls,
    trace, traffic,
};
use crate::config::{Settings, Sources};
use crate::error::{CliError, EXIT_CODES, THREAD_EXIT_CODES};

/// A software switch for AI scale-up Ethernet.
#[derive(Debug, Parser)]
#[command(name = "weft", version, after_help = EXIT_CODES, max_term_width = 100)]
pub struct Cli {
    /// What to do.
    #[command(subcommand)]
    pub command: Command,
}

/// What to do.
#[derive(Debug, Subcommand)]
pub enum Command {
    /// Check, list or show configuration parameters
    #[command(subcommand)]
    Config(config::ConfigCommand),
    /// Run the switch until SIGINT or SIGTERM
    #[command(after_help = THREAD_EXIT_CODES)]
    Run(run::RunArgs),
    /// Follow frames through a running switch, stage by stage, with the numbers that decided
    Trace(trace::TraceArgs),
    /// Play a host on an interface: send streams and check those that arrive
    Traffic(traffic::TrafficArgs),
    /// Play a CXL host, device, G-FAM device or HBR switch on interfaces, or steer one that runs
    #[command(subcommand)]
    Endpoint(Box<endpoint::EndpointCommand>),
    /// Show the state and counters of a running switch
    Show(running::ShowArgs),
    /// Tell what a drop counter means and what to do, or all of them, as Markdown
    Drops(drops::DropsArgs),
    /// Add or remove entries of a running switch's forwarding database
    #[command(subcommand)]
    Fdb(running::FdbCommand),
    /// Have a running switch read its configuration again: all of it or nothing
    Reload(running::ReloadArgs),
    /// Copy what enters and leaves by a port of a running switch to a file or port
    Mirror(running::MirrorArgs),
    /// Print the frames of a capture, one a line
    Decode(decode::DecodeArgs),
    /// Make certificates for switches and fabric managers that speak over TCP
    #[command(subcommand)]
    Tls(tls::TlsCommand),
    /// Write a capture of frames of any format, with chosen fields
    Gen(Box<generate::GenArgs>),
    /// Run captures through the switch in virtual time
    Replay(replay::ReplayArgs),
    /// Run a model on the switch's own code
    #[command(subcommand)]
    Model(model::ModelCommand),
    /// Measure the switch in memory, or what lies between two ports
    #[command(subcommand)]
    Bench(bench::BenchCommand),
    /// Manage a CXL fabric: serve as its fabric manager, or ask one that runs
    #[command(subcommand)]
    Fm(fm::FmCommand),
    /// Bring up a whole CXL fabric of a topology file, with its hosts and its manager
    #[command(subcommand)]
    Fabric(fabric::FabricCommand),
    /// Print a completion script for a shell
    Completions {
        /// The shell
        shell: clap_complete::Shell,
    },
    /// Print the manual page, as roff
    Man,
}

/// Where settings come from: a file, then flags over it.
#[derive(Args, Clone, Debug, Default)]
pub struct SettingsArgs {
    /// Configuration file, TOML; "-" is standard input
    #[arg(short, long, value_name = "FILE")]
    pub config: Option<PathBuf>,
    /// A port, or another device for a port of the file
    ///
    /// KIND is one of those of `port.kind` in `weft config defaults`; a network interface by default.
    #[arg(long, value_name = "NAME=[KIND:]DEVICE")]
    pub port: Vec<String>,
    /// One parameter, over the file: see `weft config defaults`
    #[arg(long, value_name = "SECTION.KEY=VALUE")]
    pub set: Vec<String>,
}

impl SettingsArgs {
    /// Reads the file and lays the flags over it.
    ///
    /// # Errors
    /// A file that cannot be read, and everything that is refused.
    pub fn load(&self) -> Result<Settings, CliError> {
        Ok(self.sources()?.settings()?)
    }

    /// Reads the file, without a look at what it says.
    ///
    /// # Errors
    /// A file that cannot be read.
    pub fn sources(&self) -> Result<Sources, CliError> {
        let file = match &self.config {
            Some(path) => Some((path.display().to_string(), read_text(path)?)),
            None => None,
        };
        Ok(Sources { file, port: self.port.clone(), set: self.set.clone() })
    }
}

/// Reads a text of bounded length; "-" is standard input.
fn read_text(path: &Path) -> Result<String, CliError> {
    use std::io::Read;
    let error = |source| CliError::File { verb: "read", path: path.to_owned(), source };
    let mut text = String::new();
    let most = crate::config::settings::TEXT_LEN_MAX as u64 + 1; // one more is refused by `read`
    let read = if path == Path::new("-") {
        std::io::stdin().take(most).read_to_string(&mut text)
    } else {
        std::fs::File::open(path).map_err(error)?.take(most).read_to_string(&mut text)
    };
    read.map_err(error)?;
    Ok(text)
}

#[cfg(test)]
mod tests {
    use super::*;
    use clap::CommandFactory;

    #[test]
    fn the_tree_holds_together() {
        Cli::command().debug_assert();
    }
}
