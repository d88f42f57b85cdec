//! `weft fm serve`: the fabric manager, until it is told to stop.
//!
//! Shape: arguments -> [`Fm`] -> [`Service`] and its management socket.
//! Units: milliseconds.
//! Source: fabric.md, "FM module".

use std::path::{Path, PathBuf};
use std::time::Duration;

use clap::Args;
use signal_hook::consts::{SIGINT, SIGTERM};
use signal_hook::iterator::Signals;
use weft_parsers::cci::Uuid;
use weft_parsers::cci::mctp::MessageType;

use super::default_socket;
use crate::error::CliError;
use crate::fm::cci::{Fabric, Pace, Peer, Socket};
use crate::fm::service::board::Mode;
use crate::fm::service::run::Service;
use crate::fm::service::want::{Want, parse_uuid};
use crate::fm::service::{Fm, Setup};
use crate::fm::store::Store;
use crate::mgmt::Server;

/// How long packets to a PID may be under way after its routes were withdrawn.
const DRAIN: Duration = Duration::from_millis(10);

/// Arguments of `weft fm serve`.
#[derive(Args, Debug)]
pub struct ServeArgs {
    /// Where the entry switch answers commands: tcp:HOST:PORT or unix:PATH
    #[arg(long, value_name = "PEER")]
    entry: Peer,
    /// Management socket to serve
    #[arg(long, value_name = "FILE")]
    socket: Option<PathBuf>,
    /// Where what is known is kept over restarts
    #[arg(long, value_name = "FILE")]
    store: Option<PathBuf>,
    /// What is wanted: names, bindings, memory; TOML
    #[arg(long, value_name = "FILE")]
    want: Option<PathBuf>,
    /// How the fabric is started
    #[arg(long, value_name = "MODE", default_value = "fm-first")]
    start: Mode,
    /// UUID of this fabric manager, over the file
    #[arg(long, value_parser = parse_uuid)]
    uuid: Option<Uuid>,
    /// As the second fabric manager: take over from the primary one
    #[arg(long)]
    take_over: bool,
    /// Milliseconds between two looks at the fabric
    #[arg(long, value_name = "MS", default_value_t = 1_000, value_parser = clap::value_parser!(u64).range(10..=3_600_000))]
    pause: u64,
    /// Milliseconds that a component has for an answer
    #[arg(long, value_name = "MS", default_value_t = 2_000, value_parser = clap::value_parser!(u64).range(1..=600_000))]
    timeout: u64,
}

impl ServeArgs {
    fn fabric(&self, peer: &Peer, kind: MessageType) -> Fabric {
        let timeout = Duration::from_millis(self.timeout);
        Fabric::new(Box::new(Socket::new(peer.clone(), kind, timeout)), Pace::live())
    }

    fn manager(&self) -> Result<Fm, CliError> {
        let mut want = match &self.want {
            Some(path) => Want::load(path).map_err(|error| CliError::Usage(causes(&error)))?,
            None => Want::default(),
        };
        want.fm.uuid = self.uuid.or(want.fm.uuid);
        let store = self.store.as_deref().map(open).transpose()?;
        let gaes: Vec<_> = want
            .hosts
            .iter()
            .filter_map(|host| Some((host.name.clone(), host.gae.clone()?)))
            .collect();
        let mut fm = Fm::new(Setup {
            fabric: self.fabric(&self.entry, MessageType::FmApi),
            want,
            mode: self.start,
            take_over: self.take_over,
            store,
            drain: || std::thread::park_timeout(DRAIN),
        });
        for (name, peer) in gaes {
            fm.set_gae(&name, self.fabric(&peer, MessageType::Cci));
        }
        Ok(fm)
    }
}

fn open(path: &Path) -> Result<Store, CliError> {
    Store::open(path).map_err(|error| system("open the store", error))
}

fn causes(error: &dyn std::error::Error) -> String {
    let cause = error.source().map_or(String::new(), |cause| format!(": {cause}"));
    format!("{error}{cause}")
}

fn system(what: &str, source: impl std::error::Error + Send + Sync + 'static) -> CliError {
    CliError::System { what: what.to_owned(), source: Box::new(source) }
}

/// Serves.
///
/// # Errors
/// A wanted state or store that cannot be read, or a socket that cannot be had. That the fabric does not come up is none:
/// it is tried again, and `weft fm status` says why.
pub fn run(args: &ServeArgs) -> Result<(), CliError> {
    let fm = args.manager()?;
    // Before any thread is made, so that none of them misses its mask.
    let mut signals =
        Signals::new([SIGINT, SIGTERM]).map_err(|source| system("wait for signals", source))?;
    let service = Service::start(fm, Duration::from_millis(args.pause))
        .map_err(|source| system("start a thread", source))?;
    let path = args.socket.clone().unwrap_or_else(default_socket);
    let server = Server::serve(&path, service.lines())
        .map_err(|source| system("serve the management socket", source))?;
    anstream::eprintln!("fabric manager is up at {}", path.display());
    if let Some(signal) = signals.forever().next() {
        let name = signal_hook::low_level::signal_name(signal).unwrap_or("a signal");
        anstream::eprintln!("stopping on {name}");
    }
    drop(server);
    drop(service);
    Ok(())
}
