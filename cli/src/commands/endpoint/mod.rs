//! `weft endpoint`: runs a CXL endpoint on its ports; `ctl` controls one.
//!
//! Flags and a file make a [`Runner`], which runs with a control socket beside it until SIGINT or SIGTERM.
//!
//! Source: docs/endpoint.md.

mod cdat;
mod ctl;
mod intx;
mod ln;
mod mem;
mod show;

use std::io::Write;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::sync::atomic::AtomicBool;

use clap::Subcommand;
use signal_hook::consts::{SIGINT, SIGTERM};
use weft_base::causes::with_causes;
use weft_base::files::{self, OpenedBy};
use weft_config::resolve::sockets_dir;
use weft_config::{ConfigError, Problem};
use weft_control::live::confine;
use weft_control::log::Log;
use weft_control::mgmt::Server;
use weft_control::supervise::Supervisor;
use weft_dataplane::pool::{Bufs, Pool};
use weft_parsers::MacAddr;

use crate::error::CliError;
use weft_lab::endpoint::spec::SpecError;
use weft_lab::endpoint::{EndpointSpec, Runner};
use weft_lab::fabric::processes::endpoint_socket;
use weft_lab::netdev;

/// Chunks of the pool, for each link.
const CHUNKS: usize = 16_384;
/// Largest configuration file in bytes.
const FILE_MAX: u64 = 1 << 20;

#[derive(Debug, Subcommand)]
pub enum EndpointCommand {
    #[command(flatten)]
    Play(Box<EndpointSpec>),
    /// Control a running endpoint
    Ctl(ctl::CtlArgs),
}

/// Runs an endpoint, or sends a command to a running one.
///
/// # Errors
/// Wrong arguments, an interface that cannot be opened, or an endpoint that refuses the command.
pub fn run(command: EndpointCommand, out: &mut dyn Write) -> Result<(), CliError> {
    match command {
        EndpointCommand::Play(flags) => {
            let file = flags.common().config.as_deref();
            let given = Given { text: text(file)?, file, flags: &flags };
            let spec = flags.over(&given.text).map_err(|error| given.refused(error))?;
            play(&spec, &given, out)
        }
        EndpointCommand::Ctl(args) => ctl::run(&args, out),
    }
}

/// What a specification is made of.
struct Given<'a> {
    file: Option<&'a Path>,
    /// The text of the file; empty without one.
    text: String,
    flags: &'a EndpointSpec,
}

impl Given<'_> {
    /// The error of a command whose specification is refused, with its place if that is in the file.
    fn refused(&self, error: SpecError) -> CliError {
        let file = self.file.unwrap_or(Path::new(""));
        match error {
            SpecError::File(mistakes) => CliError::refused(file, mistakes),
            SpecError::Field { field, text } => match self.flags.place(&self.text, field) {
                Some(place) => {
                    let problem = Problem { place, key: field.to_owned(), message: text };
                    CliError::refused(file, ConfigError(vec![problem]))
                }
                None => CliError::Usage(format!("{field}: {text}")),
            },
            other => CliError::Usage(with_causes(&other)),
        }
    }
}

/// The text of the configuration file; empty if none is named.
fn text(path: Option<&Path>) -> Result<String, CliError> {
    let Some(path) = path else { return Ok(String::new()) };
    files::read_text(path, OpenedBy::Command, FILE_MAX).map_err(|source| CliError::File {
        verb: "read",
        path: path.to_owned(),
        source,
    })
}

/// Default control socket of the endpoint `name`.
fn default_socket(name: &str) -> PathBuf {
    endpoint_socket(&sockets_dir(), name)
}

/// Runs the endpoint `spec` until a signal stops it; it listens at the socket of the flags, or at the default of its
/// name.
fn play(spec: &EndpointSpec, given: &Given<'_>, out: &mut dyn Write) -> Result<(), CliError> {
    let socket = given.flags.common().socket.as_deref();
    let (kind, common) = (spec.kind(), spec.common());
    let name = common.name(kind);
    if !weft_config::value::is_name(&name) {
        return Err(CliError::Usage(format!("expected a name, found {name:?}")));
    }
    let links = common.port.len();
    if spec.has_one_link() && links != 1 {
        return Err(CliError::Usage(format!("expected one --port, found {links}")));
    }
    let made: Vec<Option<MacAddr>> = common.port.iter().map(|port| netdev::mac(port)).collect();
    let macs: Vec<MacAddr> = made.into_iter().map_while(|mac| mac).collect();
    let endpoint = spec.endpoint(&macs).map_err(|error| given.refused(error))?;
    let give_up = "give up what the endpoint does not need";
    // Before any thread is made: rights are each thread's own, and threads inherit them.
    let entered = confine::enter_on(common.port.iter().map(String::as_str))
        .map_err(|source| CliError::system(give_up, source))?;
    let rate = common.rate().map_err(|error| given.refused(error))?;
    let frame_len_max = common.frame_len_max().map_err(|error| given.refused(error))?;
    // First of all threads, so that it notices the unexpected end of any other.
    let mut supervisor = Supervisor::begin(Log::default())?;
    let stop = Arc::new(AtomicBool::new(false));
    for signal in [SIGINT, SIGTERM] {
        signal_hook::flag::register(signal, stop.clone())
            .map_err(|source| CliError::system("wait for signals", source))?;
    }
    let mut ports = Vec::new();
    for port in &common.port {
        ports.push(netdev::open(port, rate, frame_len_max)?);
    }
    let pool = Pool::map(CHUNKS * links, frame_len_max)
        .map_err(|source| CliError::system("make room for frames", source))?;
    let mut runner = Runner::new(endpoint, ports, Bufs::new(pool, CHUNKS / 4, 4))
        .map_err(|source| CliError::system("start the endpoint", source))?;
    let path = socket.map_or_else(|| default_socket(&name), Path::to_owned);
    let server = Server::start(&path, Arc::new(runner.handle()))
        .map_err(|source| CliError::system("listen for commands", source))?;
    // All ports and sockets are open now, so their system calls can be refused.
    let _confined = entered.seal().map_err(|source| CliError::system(give_up, source))?;
    if let Some(note) = spec.note() {
        writeln!(out, "{kind} {name}: {note}").map_err(CliError::Output)?;
    }
    let said = writeln!(out, "{kind} {name} listens at {}", server.path().display());
    said.and_then(|()| out.flush()).map_err(CliError::Output)?;
    supervisor.is_up();
    runner.run(&stop);
    drop(runner); // first, so that nobody waits for its answers
    drop(server);
    Ok(())
}
