//! `weft fm serve`: runs the fabric manager until a signal stops it.
//!
//! Makes an [`Fm`] of the arguments and runs it as a [`Service`] with a management socket; with `--ha` as one of
//! several managers, by an [`HaService`].
//!
//! Source: docs/spec/cxl-fabric.md "The fabric manager".

use std::io;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::Duration;

use clap::Args;
use rustls::pki_types::ServerName;
use weft_base::causes::with_causes;
use weft_base::wait;
use weft_config::resolve::TlsFiles;
use weft_control::live::confine::{self, CapabilitySet};
use weft_control::log::Log;
use weft_control::mgmt::Server;
use weft_control::supervise::{Supervisor, no_reload};
use weft_control::tls::{self, SWITCH_NAME};
use weft_fm::cci::{CciSession, Endpoint, GaePeer, Gate, Identity, Peer, RetryPolicy, Socket};
use weft_fm::model::text::parse_uuid;
use weft_fm::service::ha::address::Address;
use weft_fm::service::ha::service::{self, HaService, Term};
use weft_fm::service::run::Service;
use weft_fm::service::status::StartMode;
use weft_fm::service::{Fm, Setup};
use weft_fm::state::desired::DesiredState;
use weft_fm::state::store::Store;
use weft_parsers::cci::Uuid;
use weft_parsers::cci::mctp::MessageType;
use weft_rpc::LineHandler;

use super::default_socket;
use super::serve_ha::HaArgs;
use crate::error::CliError;

/// Time in which packets to a PID leave the fabric after its routes were withdrawn.
const DRAIN: Duration = Duration::from_millis(10);

/// Longest wait for an answer of a host's endpoint.
const HOST_TIMEOUT: Duration = Duration::from_secs(3);

/// Arguments of `weft fm serve`.
#[derive(Args, Clone, Debug)]
pub struct ServeArgs {
    /// CCI address of the entry switch: tcp:HOST:PORT or unix:PATH
    #[arg(long, value_name = "PEER")]
    entry: Peer,
    /// Certificates (PEM) of the authorities that sign switch certificates, for connections over TCP
    #[arg(long, value_name = "FILE", requires = "tls_cert", requires = "tls_key")]
    tls_ca: Option<PathBuf>,
    /// Certificate (PEM) of this fabric manager, which determines its role
    #[arg(long, value_name = "FILE", requires = "tls_ca")]
    tls_cert: Option<PathBuf>,
    /// Private key (PEM) of this fabric manager; the file must not be readable by other users
    #[arg(long, value_name = "FILE", requires = "tls_ca")]
    tls_key: Option<PathBuf>,
    /// Name to expect in the certificates of switches
    #[arg(long, value_name = "NAME", default_value = SWITCH_NAME, requires = "tls_ca", value_parser = server_name)]
    tls_name: ServerName<'static>,
    /// Use TCP without TLS: anyone on the network path can command the fabric
    #[arg(long, conflicts_with = "tls_ca")]
    insecure: bool,
    /// Management socket to serve
    #[arg(long, value_name = "FILE")]
    socket: Option<PathBuf>,
    /// Database that keeps the state of the fabric across restarts
    #[arg(long, value_name = "FILE")]
    store: Option<PathBuf>,
    /// Wanted state of the fabric (TOML): names, bindings, memory
    #[arg(long, value_name = "FILE")]
    want: Option<PathBuf>,
    /// Start mode of the fabric
    #[arg(long, value_name = "MODE", default_value = "fm-first")]
    start: StartMode,
    /// UUID of this fabric manager; overrides the one in the file of --want
    #[arg(long, value_parser = parse_uuid)]
    uuid: Option<Uuid>,
    /// As the second fabric manager, take over from the primary one at once
    #[arg(long)]
    take_over: bool,
    /// Longest time between two polls of the fabric, in milliseconds
    #[arg(long, value_name = "MS", default_value_t = 250, value_parser = clap::value_parser!(u64).range(10..=3_600_000))]
    pause: u64,
    /// Time limit for the answer of a component in milliseconds
    #[arg(long, value_name = "MS", default_value_t = 2_000, value_parser = clap::value_parser!(u64).range(1..=600_000))]
    timeout: u64,
    #[command(flatten)]
    ha: HaArgs,
}

impl ServeArgs {
    fn fabric(
        &self,
        peer: &Peer,
        kind: MessageType,
        identity: Option<&Identity>,
        gate: Option<&Gate>,
    ) -> CciSession {
        let timeout = Duration::from_millis(self.timeout);
        let socket = Socket::new(peer.clone(), kind, timeout).with_identity(identity.cloned());
        let socket = socket.with_gate(gate.cloned());
        CciSession::new(Box::new(socket), RetryPolicy::live())
    }

    fn gae(&self, peer: GaePeer, identity: Option<&Identity>, gate: Option<&Gate>) -> CciSession {
        match peer {
            GaePeer::Cci(peer) => self.fabric(&peer, MessageType::Cci, identity, gate),
            GaePeer::Endpoint(path) => {
                // Only the display depends on it, and the whole fabric waits meanwhile: one short try.
                let timeout = Duration::from_millis(self.timeout).min(HOST_TIMEOUT);
                let endpoint = Endpoint::new(path, timeout).with_gate(gate.cloned());
                CciSession::new(Box::new(endpoint), RetryPolicy { tries: 1, ..RetryPolicy::live() })
            }
        }
    }

    /// The manager's TLS identity; `None` without `--tls-ca`.
    fn identity(&self) -> Result<Option<Identity>, CliError> {
        let files = self.tls_ca.clone().zip(self.tls_cert.clone()).zip(self.tls_key.clone());
        let Some(((ca, cert), key)) = files else { return Ok(None) };
        let config = tls::client(&TlsFiles { ca, cert, key });
        let config = config.map_err(|error| CliError::Usage(with_causes(&error)))?;
        Ok(Some(Identity { config, name: self.tls_name.clone() }))
    }

    /// Refuses a TCP peer without TLS, unless `--insecure` is given.
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
        let mut want = match &self.want {
            Some(path) => {
                DesiredState::load(path).map_err(|error| CliError::Usage(with_causes(&error)))?
            }
            None => DesiredState::default(),
        };
        want.fm.uuid = self.uuid.or(want.fm.uuid);
        let store = self.store.as_deref().map(open).transpose()?;
        self.make(want, store, identity.as_ref(), None)
    }

    /// Makes a manager for a desired state. All its connections to components ask `gate` before they send.
    fn make(
        &self,
        desired: DesiredState,
        store: Option<Store>,
        identity: Option<&Identity>,
        gate: Option<&Gate>,
    ) -> Result<Fm, CliError> {
        let gaes: Vec<_> = desired
            .hosts
            .iter()
            .filter_map(|host| Some((host.name.clone(), host.gae.clone()?)))
            .collect();
        let by_cci = gaes.iter().filter_map(|(_, peer)| match peer {
            GaePeer::Cci(peer) => Some(peer),
            GaePeer::Endpoint(_) => None,
        });
        // All before the first connection: a file with one unprotected address must not start half a fabric.
        for peer in [&self.entry].into_iter().chain(by_cci) {
            self.may_speak(peer, identity)?;
        }
        let mut fm = Fm::new(Setup {
            fabric: self.fabric(&self.entry, MessageType::FmApi, identity, gate),
            desired,
            mode: self.start,
            take_over: self.take_over,
            store,
            drain: || wait::pause(DRAIN),
        });
        for (name, peer) in gaes {
            fm.set_gae(&name, self.gae(peer, identity, gate));
        }
        Ok(fm)
    }

    /// Refuses options that make sense for a single manager only.
    fn refuse_with_ha(&self) -> Result<(), CliError> {
        let instead = [
            (self.store.is_some(), "--store", "etcd keeps the state: leave --store out"),
            (
                self.uuid.is_some(),
                "--uuid",
                "give fm.uuid in the file of --want, which all managers share",
            ),
            (self.take_over, "--take-over", "the managers elect who leads: leave it out"),
            (
                self.start == StartMode::Static,
                "--start static",
                "nothing manages a static fabric: one manager without --ha shows it",
            ),
        ];
        match instead.into_iter().find(|(given, ..)| *given) {
            Some((_, option, what)) => {
                Err(CliError::Usage(format!("{option} cannot be used with --ha: {what}")))
            }
            None => Ok(()),
        }
    }

    /// The setup of one of several managers; its [`Fm`] is made when it is elected leader.
    fn several(&self, address: Address, socket: &Path) -> Result<service::Setup, CliError> {
        self.refuse_with_ha()?;
        let identity = self.identity()?;
        self.may_speak(&self.entry, identity.as_ref())?;
        let read = self.want.as_deref().map(DesiredState::load_with_text).transpose();
        let read = read.map_err(|error| CliError::Usage(with_causes(&error)))?;
        if read.as_ref().is_some_and(|(desired, _)| desired.fm.secondary.is_some()) {
            let text = "fm.secondary cannot be used with --ha: the next leader is registered instead, take it out";
            return Err(CliError::Usage(text.to_owned()));
        }
        let wanted = read.map(|(_, text)| text);
        let post = self.ha.post(&address)?;
        let name = self.ha.name(socket);
        let (ttl, replace) = (self.ha.ttl(), self.ha.replace_want);
        let of_term = self.clone();
        // For each term anew, with the desired state from etcd. The gate closes when the term ends, so that a former
        // leader sends nothing more.
        let make = move |Term { desired, store, gate }: Term| {
            let fm = of_term.make(desired, Some(store), identity.as_ref(), Some(&gate));
            fm.map_err(|error| with_causes(&error))
        };
        let make = Box::new(make);
        Ok(service::Setup { post, address, name, ttl, wanted, replace, make })
    }
}

fn server_name(text: &str) -> Result<ServerName<'static>, String> {
    ServerName::try_from(text.to_owned())
        .map_err(|_| "expected a DNS name or an address".to_owned())
}

fn open(path: &Path) -> Result<Store, CliError> {
    Store::open(path).map_err(|error| CliError::system("open the store", error))
}

/// Runs the fabric manager.
///
/// # Errors
/// A desired state or store that cannot be read, or a socket that cannot be made. A fabric that fails to come up is not
/// an error: the manager retries, and `weft fm status` gives the reason.
pub fn run(args: &ServeArgs) -> Result<(), CliError> {
    let path = args.socket.clone().unwrap_or_else(default_socket);
    let pause = Duration::from_millis(args.pause);
    if let Some(address) = args.ha.address.clone() {
        let setup = args.several(address, &path)?;
        return serve(&path, || HaService::start(setup, pause), HaService::handler);
    }
    let manager = args.manager()?;
    serve(&path, || Service::start(manager, pause), Service::handler)
}

/// Gives up privileges, starts the service, and serves its management socket until a signal arrives.
fn serve<T>(
    path: &Path,
    start: impl FnOnce() -> io::Result<T>,
    handler: impl FnOnce(&T) -> Arc<dyn LineHandler>,
) -> Result<(), CliError> {
    confine::keep_only(CapabilitySet::empty())
        .map_err(|source| CliError::system("give up capabilities", source))?;
    let mut supervisor = Supervisor::begin(Log::default())?;
    let service = start().map_err(|source| CliError::system("start a thread", source))?;
    let server = Server::start(path, handler(&service))
        .map_err(|source| CliError::system("serve the management socket", source))?;
    anstream::eprintln!("fabric manager is up at {}", path.display());
    // SIGHUP reloads nothing: commands change the desired state.
    let signal = supervisor.wait(no_reload);
    anstream::eprintln!("stopping on {signal}");
    // First the server: no client may wait for a manager that has ended.
    drop(server);
    drop(service);
    Ok(())
}

#[cfg(test)]
mod tests {
    use std::path::Path;

    use super::super::FmCommand;
    use super::super::tests::args;

    /// `serve` has its own `--socket`, which takes the value of the one of all commands.
    #[test]
    fn the_socket_may_stand_before_or_behind_serve() {
        for words in ["serve --entry unix:/x --socket /s", "--socket /s serve --entry unix:/x"] {
            let args = args(words).unwrap();
            let Some(FmCommand::Serve(serve)) = &args.command else { panic!("{words}") };
            assert_eq!(serve.socket.as_deref(), Some(Path::new("/s")), "{words}");
        }
    }
}
