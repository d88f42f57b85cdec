//! The tree of commands that clap parses.
//!
//! Each command's arguments and `run` function are a file of `commands`. Documentation on these types is the help that
//! users read.

use std::io::Write;

use clap::{CommandFactory, Parser, Subcommand};
use weft_base::memory;

use crate::commands::{
    bench, config, conform, decode, drops, endpoint, extcap, fabric, fm, generate, model, replay,
    run, running, shell, sim, tls, trace, traffic,
};
use crate::error::{CliError, EXIT_CODES, THREAD_EXIT_CODES};

/// A software switch for AI scale-up Ethernet.
#[derive(Debug, Parser)]
#[command(name = "weft", version, after_help = EXIT_CODES, max_term_width = 100)]
pub struct Cli {
    #[command(subcommand)]
    pub command: Command,
}

#[derive(Debug, Subcommand)]
pub enum Command {
    /// Check, list or show configuration parameters
    #[command(subcommand)]
    Config(config::ConfigCommand),
    /// Run the switch until SIGINT or SIGTERM
    #[command(after_help = THREAD_EXIT_CODES)]
    Run(run::RunArgs),
    /// Follow frames through a running switch, stage by stage, with the values behind each decision
    Trace(trace::TraceArgs),
    /// Act as a host on an interface: send streams and check those that arrive
    Traffic(traffic::TrafficArgs),
    /// Act as a CXL host, device, G-FAM device or HBR switch on network interfaces, or control a running one
    #[command(subcommand)]
    Endpoint(Box<endpoint::EndpointCommand>),
    /// Show state and counters of a running switch
    Show(running::ShowArgs),
    /// Explain a drop counter and its remedy; without NAME, print all of them as Markdown
    Drops(drops::DropsArgs),
    /// Add or remove entries of a running switch's forwarding database
    #[command(subcommand)]
    Fdb(running::FdbCommand),
    /// Make a running switch read its configuration again; either all changes apply, or the reload is refused
    Reload(running::ReloadArgs),
    /// Mirror a port of a running switch: copy the frames that it receives and sends to a file or another port
    Mirror(running::MirrorArgs),
    /// Start or stop transmission at a port of a running switch
    Port(running::PortArgs),
    /// Test whether a switch's buffer and PFC behave as its thresholds say
    #[command(subcommand)]
    Conform(conform::ConformCommand),
    /// Offer the ports of running switches to Wireshark as capture interfaces; run by Wireshark
    Extcap(extcap::ExtcapArgs),
    /// Print the frames of a capture, one per line
    Decode(decode::DecodeArgs),
    /// Make certificates for switches and fabric managers that connect over TCP
    #[command(subcommand)]
    Tls(tls::TlsCommand),
    /// Generate a capture file of frames of any format, with chosen header fields
    Gen(Box<generate::GenArgs>),
    /// Replay captures through the switch in virtual time
    Replay(replay::ReplayArgs),
    /// Simulate networks of switches and hosts in virtual time, from scenario files
    #[command(subcommand)]
    Sim(sim::SimCommand),
    /// Run a performance model on the switch's own code
    #[command(subcommand)]
    Model(model::ModelCommand),
    /// Measure the forwarding path in memory, or the device or link between two ports
    #[command(subcommand)]
    Bench(bench::BenchCommand),
    /// Manage a CXL fabric: run as its fabric manager, or send commands to a running one
    Fm(Box<fm::FmArgs>),
    /// Bring up a whole CXL fabric from a topology file, with its hosts and its fabric manager
    #[command(subcommand)]
    Fabric(fabric::FabricCommand),
    /// Print a completion script for a shell
    Completions {
        /// Shell to complete for
        shell: clap_complete::Shell,
    },
    /// Print the manual page in roff format
    Man,
}

impl Cli {
    /// Runs the command; results go to `out`.
    ///
    /// # Errors
    /// The command's failure: any exit code but 0.
    pub fn run(self, out: &mut dyn Write) -> Result<(), CliError> {
        // A server must refuse one client's huge request and serve the others; any other command can only end, with a
        // message.
        if !self.command.serves() {
            memory::end_where_none_is_left();
        }
        match self.command {
            Command::Bench(command) => bench::run(&command, out),
            Command::Config(command) => config::run(&command, out),
            Command::Sim(command) => sim::run(&command, out),
            Command::Model(command) => model::run(&command, out),
            Command::Replay(args) => replay::run(&args, out),
            Command::Run(args) => run::run(args, out),
            Command::Trace(args) => trace::run(&args, out),
            Command::Traffic(args) => traffic::run(&args, out),
            Command::Endpoint(command) => endpoint::run(*command, out),
            Command::Show(args) => running::show(&args, out),
            Command::Drops(args) => drops::run(&args, out),
            Command::Fdb(command) => running::fdb(&command, out),
            Command::Reload(args) => running::reload(&args, out),
            Command::Mirror(args) => running::mirror(&args, out),
            Command::Port(args) => running::port(&args, out),
            Command::Conform(command) => conform::run(&command, out),
            Command::Extcap(args) => extcap::run(&args, out),
            Command::Decode(args) => decode::run(&args, out),
            Command::Fm(args) => fm::run(&args, out),
            Command::Fabric(command) => fabric::run(&command, out),
            Command::Tls(command) => tls::run(&command, out),
            Command::Gen(args) => generate::run(&args, out),
            Command::Completions { shell } => shell::completions(Self::command(), shell, out),
            Command::Man => shell::man(Self::command(), out),
        }
    }
}

impl Command {
    /// Whether the command may serve clients. Such a process refuses a request that needs too much memory and keeps
    /// serving the others; any other command ends.
    #[must_use]
    pub const fn serves(&self) -> bool {
        matches!(self, Self::Run(_) | Self::Endpoint(_) | Self::Fm(_) | Self::Fabric(_))
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use clap::CommandFactory;

    #[test]
    fn the_tree_holds_together() {
        Cli::command().debug_assert();
    }

    /// Commands without `--json`, and why.
    #[rustfmt::skip] // columns: command, reason
    const WITHOUT_JSON: &[(&str, &str)] = &[
        ("weft completions",      "a script for a shell"),
        ("weft config docs",      "a page of the documentation"),
        ("weft endpoint device",  "it serves until it is stopped; weft endpoint ctl asks it"),
        ("weft endpoint gfd",     "the same"),
        ("weft endpoint hbr",     "the same"),
        ("weft endpoint host",    "the same"),
        ("weft extcap",           "what Wireshark reads"),
        ("weft fabric agent",     "speaks with weft fabric up"),
        ("weft fabric up",        "it serves until it is stopped; weft fm and weft endpoint ctl ask it"),
        ("weft man",              "a page of the manual"),
        ("weft sim keys",         "a page of the documentation"),
    ];

    /// Leaves of the tree below `command`, each with whether it, or one above it for all below, has `--json`.
    fn leaves(command: &clap::Command, path: &str, above: bool, found: &mut Vec<(String, bool)>) {
        let path = format!("{path} {}", command.get_name()).trim().to_owned();
        let json = command.get_arguments().find(|arg| arg.get_long() == Some("json"));
        let is_global = json.is_some_and(clap::Arg::is_global_set);
        let mut is_leaf = true;
        for below in command.get_subcommands().filter(|below| below.get_name() != "help") {
            is_leaf = false;
            leaves(below, &path, above || is_global, found);
        }
        if is_leaf {
            found.push((path, above || json.is_some()));
        }
    }

    /// Each command that prints a result prints it as JSON, too.
    #[test]
    fn every_command_that_prints_a_result_has_json() {
        let mut found = Vec::new();
        leaves(&Cli::command(), "", false, &mut found);
        assert!(found.len() > 60, "{found:?}");
        let without: Vec<&str> =
            found.iter().filter(|(_, has)| !has).map(|(path, _)| path.as_str()).collect();
        let want: Vec<&str> = WITHOUT_JSON.iter().map(|(path, _)| *path).collect();
        let sorted = |mut list: Vec<&str>| {
            list.sort_unstable();
            list.join("\n")
        };
        assert_eq!(sorted(without), sorted(want));
    }
}
