//! `weft fm serve`: the fabric manager, until it is told to stop.
//!
//! Shape: arguments -> [`Fm`] -> [`Service`] and its management socket.
//! Units: milliseconds.
//! Source: docs/spec/cxl-fabric.md "The fabric manager".

use std::path::{Path, PathBuf};
use std::time::Duration;

use clap::Args;
use rustls::pki_types::ServerName;
use weft_base::causes::with_causes;
use weft_base::wait;
use weft_fm::cci::{Fabric, Identity, Peer, RetryPolicy, Socket};
use weft_fm::service::desired::DesiredState;
use weft_fm::service::run::Service;
use weft_fm::service::status::StartMode;
use weft_fm::service::{Fm, Setup};
use weft_fm::store::Store;
use weft_fm::text::parse_uuid;
use weft_parsers::cci::Uuid;
use weft_parsers::cci::mctp::MessageType;

use super::default_socket;
use crate::error::CliError;
use crate::live::confine::{self, CapabilitySet};
use crate::log::Log;
use crate::mgmt::Server;
use crate::supervise::{Supervisor, no_reload};
use crate::tls::{self, Files, SWITCH_NAME};

/// How long packets to a PID may be under way after its routes were withdrawn.
const DRAIN: Duration = Duration::from_millis(10);

/// Arguments of `weft fm serve`.
#[derive(Args, Debug)]
pub struct ServeArgs {
    /// Where the entry switch answers commands: tcp:HOST:PORT or unix:PATH
    #[arg(long, value_name = "PEER")]
    entry: Peer,
    /// Certificates (PEM) of the authorities that sign the certificates of switches, for connections over TCP
    #[arg(long, value_name = "FILE", requires = "tls_cert", requires = "tls_key")]
    tls_ca: Option<PathBuf>,
    /// Certificate (PEM) of this fabric manager; it says what role it has
    #[arg(long, value_name = "FILE", requires = "tls_ca")]
    tls_cert: Option<PathBuf>,
    /// Its private key (PEM); no other user may be able to read the file
    #[arg(long, value_name = "FILE", requires = "tls_ca")]
    tls_key: Option<PathBuf>,
    /// The name in the certificates of switches
    #[arg(long, value_name = "NAME", default_value = SWITCH_NAME, requires = "tls_ca", value_parser = server_name)]
    tls_name: ServerName<'static>,
    /// Use TCP without TLS: anyone on the network path can command the fabric
    #[arg(long, conflicts_with = "tls_ca")]
    insecure: bool,
    /// Management socket to serve
    #[arg(long, value_name = "FILE")]
    socket: Option<PathBuf>,
    /// Database that keeps the state of the fabric over restarts
    #[arg(long, value_name = "FILE")]
    store: Option<PathBuf>,
    /// Wanted state (TOML): names, bindings, memory
    #[arg(long, value_name = "FILE")]
    want: Option<PathBuf>,
    /// Start mode of the fabric
    #[arg(long, value_name = "MODE", default_value = "fm-first")]
    start: StartMode,
    /// UUID of this fabric manager; overrides the file
    #[arg(long, value_parser = parse_uuid)]
    uuid: Option<Uuid>,
    /// As the second fabric manager: take over from the primary one
    #[arg(long)]
    take_over: bool,
    /// Milliseconds between two polls of the fabric
    #[arg(long, value_name = "MS", default_value_t = 250, value_parser = clap::value_parser!(u64).range(10..=3_600_000))]
    pause: u64,
    /// Time limit for the answer of a component, in milliseconds
    #[arg(long, value_name = "MS", default_value_t = 2_000, value_parser = clap::value_parser!(u64).range(1..=600_000))]
    timeout: u64,
}

impl ServeArgs {
    fn fabric(&self, peer: &Peer, kind: MessageType, identity: Option<&Identity>) -> Fabric {
        let timeout = Duration::from_millis(self.timeout);
        let socket = Socket::new(peer.clone(), kind, timeout).with_identity(identity.cloned());
        Fabric::new(Box::new(socket), RetryPolicy::live())
    }

    /// Who the manager is over TCP.
    fn identity(&self) -> Result<Option<Identity>, CliError> {
        let files = self.tls_ca.clone().zip(self.tls_cert.clone()).zip(self.tls_key.clone());
        let Some(((ca, cert), key)) = files else { return Ok(None) };
        let config = tls::client(&Files { ca, cert, key });
        let config = config.map_err(|error| CliError::Usage(with_causes(&error)))?;
        Ok(Some(Identity { config, name: self.tls_name.clone() }))
    }

    /// Whether `peer` may be spoken with as it is.
    fn may_speak(&self, peer: &Peer, identity: Option<&Identity>) -> Result<(), CliError> {
        match peer {
            Peer::Tcp(at) if identity.is_none() && !self.insecure => Err(CliError::Usage(format!(
                "{at}: expected a Unix socket, or --tls-ca, --tls-cert and --tls-key for TCP (`weft tls init DIR` \
                 makes them), or --insecure, with which anyone on the network path can command the fabric"
            ))),
            _ => Ok(()),
        }
    }

    fn manager(&self) -> Result<Fm, CliError> {
        let identity = self.identity()?;
        let identity = identity.as_ref();
        let mut want = match &self.want {
            Some(path) => {
                DesiredState::load(path).map_err(|error| CliError::Usage(with_causes(&error)))?
            }
            None => DesiredState::default(),
        };
        want.fm.uuid = self.uuid.or(want.fm.uuid);
        let store = self.store.as_deref().map(open).transpose()?;
        let gaes: Vec<_> = want
            .hosts
            .iter()
            .filter_map(|host| Some((host.name.clone(), host.gae.clone()?)))
            .collect();
        for peer in [&self.entry].into_iter().chain(gaes.iter().map(|(_, peer)| peer)) {
            self.may_speak(peer, identity)?;
        }
        let mut fm = Fm::new(Setup {
            fabric: self.fabric(&self.entry, MessageType::FmApi, identity),
            desired: want,
            mode: self.start,
            take_over: self.take_over,
            store,
            drain: || wait::pause(DRAIN),
        });
        for (name, peer) in gaes {
            fm.set_gae(&name, self.fabric(&peer, MessageType::Cci, identity));
        }
        Ok(fm)
    }
}

fn server_name(text: &str) -> Result<ServerName<'static>, String> {
    ServerName::try_from(text.to_owned())
        .map_err(|_| "expected a DNS name or an address".to_owned())
}

fn open(path: &Path) -> Result<Store, CliError> {
    Store::open(path).map_err(|error| CliError::system("open the store", error))
}

/// Serves.
///
/// # Errors
/// A wanted state or store that cannot be read, or a socket that cannot be had. That the fabric does not come up is none:
/// it is tried again, and `weft fm status` says why.
pub fn run(args: &ServeArgs) -> Result<(), CliError> {
    let fm = args.manager()?;
    confine::keep_only(CapabilitySet::empty())
        .map_err(|source| CliError::system("give up capabilities", source))?;
    let mut supervisor = Supervisor::begin(Log::default())?;
    let service = Service::start(fm, Duration::from_millis(args.pause))
        .map_err(|source| CliError::system("start a thread", source))?;
    let path = args.socket.clone().unwrap_or_else(default_socket);
    let server = Server::start(&path, service.handler())
        .map_err(|source| CliError::system("serve the management socket", source))?;
    anstream::eprintln!("fabric manager is up at {}", path.display());
    // SIGHUP has nothing to read again: what is wanted is changed by commands.
    let signal = supervisor.wait(no_reload);
    anstream::eprintln!("stopping on {signal}");
    drop(server);
    drop(service);
    Ok(())
}
