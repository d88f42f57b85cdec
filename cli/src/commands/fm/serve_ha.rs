//! `weft fm serve --ha`: the etcd that several fabric managers share.
//!
//! [`HaArgs`] gives the client of etcd, the manager's name, and the duration of its lease.
//!
//! Source: docs/fm.md "Several managers".

use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::Duration;

use clap::Args;
use weft_base::causes::with_causes;
use weft_base::files::{self, OpenedBy};
use weft_config::resolve::TlsFiles;
use weft_control::tls::{self, FILE_MAX};
use weft_fm::service::ha::address::Address;
use weft_fm::service::ha::etcd::Post;
use weft_fm::service::ha::http::{Credentials, Http};

use crate::error::CliError;

/// Arguments of `weft fm serve` for one of several managers.
#[derive(Args, Clone, Debug)]
pub struct HaArgs {
    /// Run as one of several fabric managers, which elect a leader and keep their state in etcd:
    /// etcd://HOST:PORT[,HOST:PORT...]/PREFIX
    #[arg(long = "ha", value_name = "URL")]
    pub address: Option<Address>,
    /// Seconds without a sign of life from the leader until another fabric manager takes the lead
    #[arg(long, value_name = "SECONDS", default_value_t = 3, requires = "address", value_parser = clap::value_parser!(u64).range(2..=600))]
    ha_ttl: u64,
    /// Name of this fabric manager among the others; by default the machine's name and the socket
    #[arg(long, value_name = "NAME", requires = "address")]
    ha_name: Option<String>,
    /// Replace the wanted state in etcd with the file of --want, once
    #[arg(long, requires = "address", requires = "want")]
    pub replace_want: bool,
    /// Certificates (PEM) of the authorities that sign etcd's certificates, for TLS to etcd
    #[arg(
        long,
        value_name = "FILE",
        requires = "address",
        requires = "ha_cert",
        requires = "ha_key"
    )]
    ha_ca: Option<PathBuf>,
    /// Certificate (PEM) of this fabric manager as a client of etcd
    #[arg(long, value_name = "FILE", requires = "ha_ca")]
    ha_cert: Option<PathBuf>,
    /// Private key (PEM) for --ha-cert; the file must not be readable by other users
    #[arg(long, value_name = "FILE", requires = "ha_ca")]
    ha_key: Option<PathBuf>,
    /// Use etcd on other machines without TLS: anyone on the network path can command the fabric
    #[arg(long, requires = "address", conflicts_with = "ha_ca")]
    ha_insecure: bool,
}

impl HaArgs {
    /// Duration of a lease.
    pub const fn ttl(&self) -> Duration {
        Duration::from_secs(self.ha_ttl)
    }

    /// The manager's name among the others; by default made from the machine and the management socket.
    pub fn name(&self, socket: &Path) -> String {
        let machine = rustix::system::uname();
        let machine = machine.nodename().to_string_lossy();
        let given = self.ha_name.clone();
        given.unwrap_or_else(|| format!("{machine}:{}", socket.display()))
    }

    /// The client of etcd.
    ///
    /// # Errors
    /// Files of TLS that are not valid, or an etcd on another machine without TLS.
    pub fn post(&self, address: &Address) -> Result<Arc<dyn Post>, CliError> {
        let credentials = self.credentials()?;
        if credentials.is_none()
            && !self.ha_insecure
            && let Some(member) = address.far().next()
        {
            return Err(CliError::Usage(format!(
                "{member}: expected an etcd at a loopback address, or --ha-ca, --ha-cert and --ha-key for TLS, or \
                 --ha-insecure, with which anyone on the network path can command the fabric"
            )));
        }
        // An answer of etcd must come well within the lease: three tries fit into it.
        let made = Http::new(address, self.ttl() / 3, credentials.as_ref());
        made.map(|http| Arc::new(http) as Arc<dyn Post>)
            .map_err(|error| CliError::Usage(with_causes(&error)))
    }

    fn credentials(&self) -> Result<Option<Credentials>, CliError> {
        let files = self.ha_ca.clone().zip(self.ha_cert.clone()).zip(self.ha_key.clone());
        let Some(((ca, cert), key)) = files else { return Ok(None) };
        let files = TlsFiles { ca, cert, key };
        let read = |path: &Path| {
            // `tls::client` reads the files again to check them, so they cannot be pipes.
            files::read(path, OpenedBy::Service, FILE_MAX)
                .map_err(|error| CliError::Usage(format!("{}: {error}", path.display())))
        };
        let (roots, chain, key) = (read(&files.ca)?, read(&files.cert)?, read(&files.key)?);
        tls::client(&files).map_err(|error| CliError::Usage(with_causes(&error)))?;
        Ok(Some(Credentials { roots, chain, key }))
    }
}
