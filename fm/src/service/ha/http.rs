//! HTTP to etcd: requests to whichever member answers.
//!
//! [`Http`] is a [`Post`]; after a member that does not answer comes the next one. An answer is read up to
//! [`ANSWER_MAX`] and within a time limit for the whole request, however slowly it comes. No proxy is used, and no
//! redirection followed.
//!
//! Source: RFC 9112; etcd 3.4 "gRPC gateway".

use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::Duration;

use ureq::Agent;
use ureq::tls::{Certificate, ClientCert, PemItem, PrivateKey, RootCerts, TlsConfig, parse_pem};

use super::address::Address;
use super::answer::ANSWER_MAX;
use super::etcd::{EtcdError, Post};

/// Longest head of an answer, bytes.
const HEAD_MAX: usize = 16 << 10;

/// Certificates and key for TLS to etcd, as PEM.
#[derive(Clone)]
pub struct Credentials {
    /// Authorities that may sign etcd's certificate.
    pub roots: Vec<u8>,
    /// The manager's own certificate, with those between it and the authority.
    pub chain: Vec<u8>,
    pub key: Vec<u8>,
}

/// A client of etcd's members.
#[derive(Debug)]
pub struct Http {
    agent: Agent,
    scheme: &'static str,
    members: Vec<String>,
    /// Index of the member that answered last.
    current: AtomicUsize,
}

impl Http {
    /// A client with a time limit for each answer.
    ///
    /// # Errors
    /// The credentials cannot be read.
    pub fn new(
        address: &Address,
        timeout: Duration,
        credentials: Option<&Credentials>,
    ) -> Result<Self, ureq::Error> {
        let scheme = if credentials.is_some() { "https" } else { "http" };
        let mut config = Agent::config_builder()
            .timeout_global(Some(timeout))
            // etcd's gateway refuses with an HTTP error whose body says why; `answer::read` reads that.
            .http_status_as_error(false)
            .max_redirects(0)
            .proxy(None)
            .max_response_header_size(HEAD_MAX)
            .max_idle_connections(2)
            .https_only(credentials.is_some());
        if let Some(credentials) = credentials {
            config = config.tls_config(tls(credentials)?);
        }
        let agent = config.build().new_agent();
        let members = address.members().to_vec();
        Ok(Self { agent, scheme, members, current: AtomicUsize::new(0) })
    }

    fn try_one(&self, member: &str, path: &str, body: &str) -> Result<Vec<u8>, EtcdError> {
        let silent = |source: ureq::Error| EtcdError::Silent {
            member: member.to_owned(),
            source: Box::new(source),
        };
        let url = format!("{}://{member}{path}", self.scheme);
        let request = self.agent.post(&url).content_type("application/json");
        let mut answer = request.send(body).map_err(silent)?;
        let limit = u64::try_from(ANSWER_MAX).unwrap_or(u64::MAX);
        answer.body_mut().with_config().limit(limit).read_to_vec().map_err(silent)
    }
}

fn tls(credentials: &Credentials) -> Result<TlsConfig, ureq::Error> {
    let roots = certificates(&credentials.roots)?;
    let chain = certificates(&credentials.chain)?;
    let key = PrivateKey::from_pem(&credentials.key)?;
    let provider = Arc::new(rustls::crypto::ring::default_provider());
    let config = TlsConfig::builder()
        .root_certs(RootCerts::new_with_certs(&roots))
        .client_cert(Some(ClientCert::new_with_certs(&chain, key)))
        .unversioned_rustls_crypto_provider(provider);
    Ok(config.build())
}

fn certificates(pem: &[u8]) -> Result<Vec<Certificate<'static>>, ureq::Error> {
    let items = parse_pem(pem).filter_map(|item| match item {
        Ok(PemItem::Certificate(certificate)) => Some(Ok(certificate)),
        Ok(_) => None,
        Err(error) => Some(Err(error)),
    });
    items.collect()
}

impl Post for Http {
    fn post(&self, path: &str, body: &str) -> Result<Vec<u8>, EtcdError> {
        // Relaxed: only a hint where to begin; nothing else depends on it.
        let first = self.current.load(Ordering::Relaxed);
        let mut last = Err(EtcdError::Ended);
        // Once around, and the first one again, whose kept connection may have been a dead one.
        for step in 0..=self.members.len() {
            let at = first.wrapping_add(step) % self.members.len().max(1);
            let Some(member) = self.members.get(at) else { continue };
            last = self.try_one(member, path, body);
            if last.is_ok() {
                self.current.store(at, Ordering::Relaxed);
                break;
            }
        }
        last
    }
}
