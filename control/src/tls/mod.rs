//! Mutual TLS 1.3 between switches and their fabric managers.
//!
//! [`TlsFiles`] -> a configuration of rustls for either end; certificates -> [`Right`].
//!
//! Source: RFC 8446; RFC 5280 section 4.2.1.6 (names of a certificate).
//!
//! A manager's certificate tells by one URI among its names which right its holder may get: `urn:weft:role:observer`,
//! `urn:weft:role:secondary` or `urn:weft:role:primary`. A certificate with none or several of them is refused.

mod authority;

use std::io::{self, Read};
use std::os::unix::fs::PermissionsExt;
use std::path::{Path, PathBuf};
use std::sync::Arc;

use rustls::pki_types::pem::PemObject;
use rustls::pki_types::{CertificateDer, PrivateKeyDer};
use rustls::server::WebPkiClientVerifier;
use rustls::{ClientConfig, RootCertStore, ServerConfig};
use weft_base::files::{self, OpenedBy};
use weft_config::resolve::TlsFiles;
use weft_cxl::cci::Right;

pub use authority::{AuthorityError, Made, make};

/// The name in certificates of switches.
pub const SWITCH_NAME: &str = "switch.weft.internal";
/// Name of each right in a certificate, after [`ROLE_PREFIX`].
pub const ROLES: [(Right, &str); 3] =
    [(Right::Observer, "observer"), (Right::Secondary, "secondary"), (Right::Primary, "primary")];
/// Prefix of the URI that names a right.
pub const ROLE_PREFIX: &str = "urn:weft:role:";

/// Longest file of certificates or of a key: the roots of a Linux distribution take a quarter of a MiB.
pub const FILE_MAX: u64 = 4 << 20;

/// Why TLS cannot be set up.
#[derive(Debug, thiserror::Error)]
pub enum TlsError {
    /// A file has no usable certificate or key.
    #[error("read {}: {why}", path.display())]
    File { path: PathBuf, why: String },
    /// Other users may read the private key.
    #[error("{}: expected a key that only its owner may read (mode 0600), found mode {mode:04o}", path.display())]
    Open { path: PathBuf, mode: u32 },
    /// Certificate, key and authority do not fit together.
    #[error("certificate {}", path.display())]
    Unfit { path: PathBuf, source: rustls::Error },
}

fn unreadable(path: &Path) -> impl Fn(String) -> TlsError + '_ {
    |why| TlsError::File { path: path.to_owned(), why }
}

fn certs(path: &Path, by: OpenedBy) -> Result<Vec<CertificateDer<'static>>, TlsError> {
    let no = unreadable(path);
    let text = files::read(path, by, FILE_MAX).map_err(|error| no(error.to_string()))?;
    let all: Result<Vec<_>, _> = CertificateDer::pem_slice_iter(&text).collect();
    let all = all.map_err(|error| no(error.to_string()))?;
    if all.is_empty() { Err(no("expected a certificate, found none".to_owned())) } else { Ok(all) }
}

fn key(path: &Path, by: OpenedBy) -> Result<PrivateKeyDer<'static>, TlsError> {
    let no = unreadable(path);
    let io = |error: io::Error| no(error.to_string());
    let file = files::open(path, by).map_err(io)?;
    // Of the open file, not of the path: another file cannot be put in its place in between.
    let mode = file.metadata().map_err(io)?.permissions().mode() & 0o7777;
    if mode & 0o077 != 0 {
        return Err(TlsError::Open { path: path.to_owned(), mode });
    }
    let mut text = Vec::new();
    file.take(FILE_MAX).read_to_end(&mut text).map_err(io)?;
    PrivateKeyDer::from_pem_slice(&text).map_err(|error| no(error.to_string()))
}

fn roots(path: &Path, by: OpenedBy) -> Result<Arc<RootCertStore>, TlsError> {
    let mut roots = RootCertStore::empty();
    for cert in certs(path, by)? {
        let added = roots.add(cert);
        added.map_err(|source| TlsError::Unfit { path: path.to_owned(), source })?;
    }
    Ok(Arc::new(roots))
}

/// Configuration for the switch's end, which asks for a certificate. The switch is serving already when it reads the
/// files, so they must be regular files.
///
/// # Errors
/// See [`TlsError`].
pub fn server(files: &TlsFiles) -> Result<Arc<ServerConfig>, TlsError> {
    let unfit = |source| TlsError::Unfit { path: files.cert.clone(), source };
    let provider = Arc::new(rustls::crypto::ring::default_provider());
    let by = OpenedBy::Service;
    let roots = roots(&files.ca, by)?;
    let verifier = WebPkiClientVerifier::builder_with_provider(roots, provider.clone()).build();
    let verifier = verifier.map_err(|error| unreadable(&files.ca)(error.to_string()))?;
    let mut config = ServerConfig::builder_with_provider(provider)
        .with_protocol_versions(&[&rustls::version::TLS13])
        .map_err(unfit)?
        .with_client_cert_verifier(verifier)
        .with_single_cert(certs(&files.cert, by)?, key(&files.key, by)?)
        .map_err(unfit)?;
    // No tickets: a resumed session would show no certificate.
    config.send_tls13_tickets = 0;
    Ok(Arc::new(config))
}

/// Configuration for a manager's end, which shows a certificate.
///
/// # Errors
/// See [`TlsError`].
pub fn client(files: &TlsFiles) -> Result<Arc<ClientConfig>, TlsError> {
    let unfit = |source| TlsError::Unfit { path: files.cert.clone(), source };
    let provider = Arc::new(rustls::crypto::ring::default_provider());
    let by = OpenedBy::Command;
    let config = ClientConfig::builder_with_provider(provider)
        .with_protocol_versions(&[&rustls::version::TLS13])
        .map_err(unfit)?
        .with_root_certificates(roots(&files.ca, by)?)
        .with_client_auth_cert(certs(&files.cert, by)?, key(&files.key, by)?)
        .map_err(unfit)?;
    Ok(Arc::new(config))
}

/// The right that the first certificate of `chain` gives its holder; `None` where it names none, or several.
#[must_use]
pub fn right(chain: &[CertificateDer<'_>]) -> Option<Right> {
    let cert = webpki::EndEntityCert::try_from(chain.first()?).ok()?;
    let mut roles = cert.valid_uri_names().filter_map(|name| name.strip_prefix(ROLE_PREFIX));
    // Exactly one: with two names the order would decide.
    let (role, None) = (roles.next()?, roles.next()) else { return None };
    ROLES.iter().find(|(_, name)| *name == role).map(|(right, _)| *right)
}
