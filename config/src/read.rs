//! Reads the configuration file, and keeps the flags that override it.
//!
//! [`SettingsFlags`] become [`Sources`], from which [`Settings`](crate::Settings) are made. A switch keeps its flags,
//! so that a reload reads the same file again and applies the same flags.
//!
//! Source: docs/configuration.md.

use std::io::{self, Read};
use std::path::{Path, PathBuf};

use weft_base::files::{self, OpenedBy};

use super::settings::TEXT_LEN_MAX;
use super::sources::Sources;

/// A file that could not be read.
#[derive(Debug, thiserror::Error)]
#[error("read {}", path.display())]
pub struct ReadError {
    pub path: PathBuf,
    pub source: io::Error,
}

/// Where settings come from: a profile, then a file over it, then flags over both.
#[derive(Clone, Debug, Default)]
pub struct SettingsFlags {
    /// Configuration file, TOML; "-" is standard input.
    pub config: Option<PathBuf>,
    /// Each `NAME=[KIND:]DEVICE` adds a port, or gives a port of the file another device.
    pub port: Vec<String>,
    /// Name of a profile of [`profiles`](crate::profiles).
    pub profile: Option<String>,
    /// Each `SECTION.KEY=VALUE` sets one parameter.
    pub set: Vec<String>,
}

impl SettingsFlags {
    /// Reads the file without parsing it.
    ///
    /// # Errors
    /// A file that cannot be read.
    pub fn sources(&self, by: OpenedBy) -> Result<Sources, ReadError> {
        let file = match &self.config {
            Some(path) => Some((path.display().to_string(), read_text(path, by)?)),
            None => None,
        };
        Ok(Sources {
            profile: self.profile.clone(),
            file,
            port: self.port.clone(),
            set: self.set.clone(),
        })
    }
}

/// Reads a text, at most one byte more than a configuration may have; "-" is standard input.
///
/// # Errors
/// It cannot be read.
pub fn read_text(path: &Path, by: OpenedBy) -> Result<String, ReadError> {
    let error = |source| ReadError { path: path.to_owned(), source };
    let mut text = String::new();
    let most = TEXT_LEN_MAX as u64 + 1; // one more is refused by `Settings::read`
    let read = if path == Path::new("-") {
        io::stdin().take(most).read_to_string(&mut text)
    } else {
        files::open(path, by).map_err(error)?.take(most).read_to_string(&mut text)
    };
    read.map_err(error)?;
    Ok(text)
}
