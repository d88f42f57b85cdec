//! `weft endpoint`: a CXL endpoint as a process on its ports, and `ctl`, which steers one.
//!
//! Shape: flags and a file → [`Runner`] → its loop, with a control socket beside it; SIGINT and SIGTERM end it.
//! Units: as each option says.
//! Source: docs/endpoint.md.

mod ctl;
mod show;

use std::io::Write;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::sync::atomic::AtomicBool;

use clap::{Args, Subcommand};
use signal_hook::consts::{SIGINT, SIGTERM};
use weft_dataplane::pool::{Bufs, Pool};
use weft_parsers::MacAddr;

use crate::config::resolve::sockets_dir;
use crate::error::CliError;
use crate::live::confine;
use crate::log::Log;
use crate::mgmt::Server;
use crate::supervise::Supervisor;
use weft_lab::endpoint::spec::{Common, DeviceSpec, GfdSpec, HbrSpec, HostSpec, SpecError, over};
use weft_lab::endpoint::{Endpoint, Runner};
use weft_lab::netdev;

/// Chunks of the pool, for each link.
const CHUNKS: usize = 16_384;
/// Longest file.
const FILE_MAX: u64 = 1 << 20;

/// What to play, or to ask.
#[derive(Debug, Subcommand)]
pub enum EndpointCommand {
    /// Play a host: a root port, memory, and the software that uses both
    Host {
        /// Where it listens, and its file
        #[command(flatten)]
        run: RunArgs,
        /// What it is
        #[command(flatten)]
        spec: HostSpec,
    },
    /// Play a device with BARs and DMA
    Device {
        /// Where it listens, and its file
        #[command(flatten)]
        run: RunArgs,
        /// What it is
        #[command(flatten)]
        spec: DeviceSpec,
    },
    /// Play a G-FAM device
    Gfd {
        /// Where it listens, and its file
        #[command(flatten)]
        run: RunArgs,
        /// What it is
        #[command(flatten)]
        spec: GfdSpec,
    },
    /// Play an HBR switch: the first port is the upstream one
    Hbr {
        /// Where it listens, and its file
        #[command(flatten)]
        run: RunArgs,
        /// What it is
        #[command(flatten)]
        spec: HbrSpec,
    },
    /// Steer an endpoint that runs
    Ctl(ctl::CtlArgs),
}

/// What all kinds are started with.
#[derive(Args, Debug)]
pub struct RunArgs {
    /// TOML with the same fields, with underscores; flags go before it
    #[arg(short, long, value_name = "FILE")]
    config: Option<PathBuf>,
    /// Control socket; in the user's directory of sockets by default, by name
    #[arg(long)]
    socket: Option<PathBuf>,
}

/// Plays it or asks it.
///
/// # Errors
/// Whatever keeps it from being done.
pub fn run(command: EndpointCommand, out: &mut dyn Write) -> Result<(), CliError> {
    match command {
        EndpointCommand::Host { run, spec } => {
            let spec = over(&text(&run)?, &spec).map_err(|e| usage(&e))?;
            play(&run, "host", &spec.common, &|macs| Ok(Box::new(spec.build(macs)?)), out)
        }
        EndpointCommand::Device { run, spec } => {
            let spec = over(&text(&run)?, &spec).map_err(|e| usage(&e))?;
            play(&run, "device", &spec.common, &|macs| Ok(Box::new(spec.build(macs)?)), out)
        }
        EndpointCommand::Gfd { run, spec } => {
            let spec = over(&text(&run)?, &spec).map_err(|e| usage(&e))?;
            play(&run, "gfd", &spec.common, &|macs| Ok(Box::new(spec.build(macs)?)), out)
        }
        EndpointCommand::Hbr { run, spec } => {
            let spec = over(&text(&run)?, &spec).map_err(|e| usage(&e))?;
            let links = spec.common.port.len();
            play(&run, "hbr", &spec.common, &|macs| Ok(Box::new(spec.build(links, macs)?)), out)
        }
        EndpointCommand::Ctl(args) => ctl::run(&args, out),
    }
}

fn usage(error: &SpecError) -> CliError {
    let mut text = error.to_string();
    if let Some(source) = std::error::Error::source(error) {
        text = format!("{text}: {source}");
    }
    CliError::Usage(text)
}

fn system(what: &str, source: impl std::error::Error + Send + Sync + 'static) -> CliError {
    CliError::System { what: what.to_owned(), source: Box::new(source) }
}

/// The file that is named, or nothing.
fn text(args: &RunArgs) -> Result<String, CliError> {
    use std::io::Read;
    let Some(path) = &args.config else { return Ok(String::new()) };
    let error = |source| CliError::File { verb: "read", path: path.clone(), source };
    let mut text = String::new();
    let file = std::fs::File::open(path).map_err(error)?;
    file.take(FILE_MAX + 1).read_to_string(&mut text).map_err(error)?;
    if text.len() as u64 > FILE_MAX {
        return Err(CliError::Usage(format!("expected at most {FILE_MAX} bytes of TOML")));
    }
    Ok(text)
}

/// Where the endpoint called `name` listens unless it is told otherwise.
fn default_socket(name: &str) -> PathBuf {
    sockets_dir().join(name).join("endpoint.sock")
}

type Build<'a> = dyn Fn(&[MacAddr]) -> Result<Box<dyn Endpoint>, SpecError> + 'a;

/// Plays what `build` makes on the ports of `common` until a signal says stop.
fn play(
    run: &RunArgs,
    kind: &str,
    common: &Common,
    build: &Build<'_>,
    out: &mut dyn Write,
) -> Result<(), CliError> {
    let name = common.name(kind);
    if !crate::config::value::is_name(&name) {
        return Err(CliError::Usage(format!("expected a name, found {name:?}")));
    }
    let links = common.port.len();
    if kind != "hbr" && links != 1 {
        return Err(CliError::Usage(format!("expected one --port, found {links}")));
    }
    let made: Vec<Option<MacAddr>> = common.port.iter().map(|port| netdev::mac(port)).collect();
    let macs: Vec<MacAddr> = made.into_iter().map_while(|mac| mac).collect();
    let endpoint = build(&macs).map_err(|error| usage(&error))?;
    confine::keep_only(confine::ENDPOINT)
        .map_err(|source| system("give up capabilities", source))?;
    let rate = common.rate().map_err(|error| usage(&error))?;
    let frame_len_max = common.frame_len_max().map_err(|error| usage(&error))?;
    // Before any other thread is made, so that it looks after all of them.
    let mut supervisor = Supervisor::begin(Log::default())?;
    let stop = Arc::new(AtomicBool::new(false));
    for signal in [SIGINT, SIGTERM] {
        signal_hook::flag::register(signal, stop.clone())
            .map_err(|source| system("wait for signals", source))?;
    }
    let mut ports = Vec::new();
    for port in &common.port {
        ports.push(netdev::open(port, rate, frame_len_max)?);
    }
    let pool = Pool::map(CHUNKS * links, frame_len_max)
        .map_err(|source| system("make room for frames", source))?;
    let mut runner = Runner::new(endpoint, ports, Bufs::new(pool, CHUNKS / 4, 4))
        .map_err(|source| system("start the endpoint", source))?;
    let path = run.socket.clone().unwrap_or_else(|| default_socket(&name));
    let server = Server::serve(Path::new(&path), Arc::new(runner.handle()))
        .map_err(|source| system("listen for commands", source))?;
    let said = writeln!(out, "{kind} {name} listens at {}", server.path().display());
    said.and_then(|()| out.flush()).map_err(CliError::Output)?;
    supervisor.is_up();
    runner.run(&stop);
    drop(runner); // first, so that nobody waits for its answers
    drop(server);
    Ok(())
}
