//! A test authority with certificates for switches and managers.
//!
//! A directory and names -> files of mode 0600.
//! Source: RFC 5280 sections 4.2.1.6 (names), 4.2.1.9 (authorities), 4.2.1.12 (uses).

use std::fs::{DirBuilder, OpenOptions};
use std::io::{self, Write};
use std::os::unix::fs::{DirBuilderExt, OpenOptionsExt};
use std::path::{Path, PathBuf};

use rcgen::{
    BasicConstraints, CertificateParams, CertifiedIssuer, DnType, ExtendedKeyUsagePurpose, IsCa,
    KeyPair, KeyUsagePurpose, SanType,
};
use time::{Duration, OffsetDateTime};

use super::{ROLE_PREFIX, ROLES, SWITCH_NAME};

/// Why the authority cannot be made.
#[derive(Debug, thiserror::Error)]
pub enum AuthorityError {
    /// A call on a file or directory failed.
    #[error("{call} {}", path.display())]
    Io { call: &'static str, path: PathBuf, source: io::Error },
    #[error("make a certificate")]
    Make(#[from] rcgen::Error),
}

/// A file that was made, with its purpose.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Made {
    pub path: PathBuf,
    pub what: String,
}

fn write(path: &Path, text: &str) -> Result<(), AuthorityError> {
    let io = |source| AuthorityError::Io { call: "make", path: path.to_owned(), source };
    let mut options = OpenOptions::new();
    // `create_new`: an authority that exists is never overwritten.
    let file = options.write(true).create_new(true).mode(0o600).open(path);
    file.and_then(|mut file| file.write_all(text.as_bytes())).map_err(io)
}

fn params(name: &str, days: u16) -> CertificateParams {
    let mut params = CertificateParams::default();
    params.distinguished_name.push(DnType::CommonName, format!("weft test {name}"));
    let now = OffsetDateTime::now_utc();
    // The clock of another machine may be an hour behind.
    params.not_before = now - Duration::hours(1);
    params.not_after = now + Duration::days(days.into());
    params
}

/// Makes an authority in the new or empty directory `dir`, a certificate for switches that also has `names`, and one
/// for each role of managers. All are valid for `days`.
///
/// # Errors
/// The directory has such files already, or cannot be written.
pub fn make(dir: &Path, names: &[String], days: u16) -> Result<Vec<Made>, AuthorityError> {
    let io = |source| AuthorityError::Io { call: "make", path: dir.to_owned(), source };
    match DirBuilder::new().mode(0o700).create(dir) {
        Err(error) if error.kind() != io::ErrorKind::AlreadyExists => return Err(io(error)),
        _ => {}
    }
    let mut made = Vec::new();
    let mut keep = |name: String, text: &str, what: &str| -> Result<(), AuthorityError> {
        let path = dir.join(name);
        write(&path, text)?;
        made.push(Made { path, what: what.to_owned() });
        Ok(())
    };
    let mut ca = params("authority", days);
    // It signs certificates of ends, not of other authorities (path length 0).
    ca.is_ca = IsCa::Ca(BasicConstraints::Constrained(0));
    ca.key_usages = vec![KeyUsagePurpose::KeyCertSign, KeyUsagePurpose::CrlSign];
    let ca = CertifiedIssuer::self_signed(ca, KeyPair::generate()?)?;
    keep("ca.pem".to_owned(), &ca.pem(), "certificate of the authority, for both ends")?;
    keep("ca.key".to_owned(), &ca.key().serialize_pem(), "key of the authority: keep it away")?;
    let mut switch = params("switch", days);
    let all = [SWITCH_NAME.to_owned()].into_iter().chain(names.iter().cloned());
    switch.subject_alt_names = CertificateParams::new(all.collect::<Vec<_>>())?.subject_alt_names;
    // A switch's certificate cannot be used by a manager, nor a manager's by a switch.
    switch.extended_key_usages = vec![ExtendedKeyUsagePurpose::ServerAuth];
    let roles = ROLES.iter().map(|(_, role)| -> Result<_, AuthorityError> {
        let mut manager = params(role, days);
        let uri = format!("{ROLE_PREFIX}{role}");
        manager.subject_alt_names = vec![SanType::URI(uri.as_str().try_into()?)];
        manager.extended_key_usages = vec![ExtendedKeyUsagePurpose::ClientAuth];
        Ok((*role, manager))
    });
    let roles: Vec<_> = roles.collect::<Result<_, _>>()?;
    for (name, mut end) in [("switch", switch)].into_iter().chain(roles) {
        end.key_usages = vec![KeyUsagePurpose::DigitalSignature];
        let pair = KeyPair::generate()?;
        let cert = end.signed_by(&pair, &ca)?;
        let what = if name == "switch" { "a switch".to_owned() } else { format!("{name} manager") };
        keep(format!("{name}.pem"), &cert.pem(), &format!("certificate: {what}"))?;
        keep(format!("{name}.key"), &pair.serialize_pem(), &format!("its key: {what}"))?;
    }
    Ok(made)
}
