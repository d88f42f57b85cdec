//! Arguments that say where settings come from: a file, and flags over it.
//!
//! [`SettingsArgs`] of a command line → [`Sources`] → [`Settings`].
//!
//! Units: bytes of text.
//! Source: docs/configuration.md.

use std::io::Read;
use std::path::{Path, PathBuf};

use clap::Args;
use clap::builder::{PossibleValue, PossibleValuesParser};
use weft_base::files::{self, OpenedBy};

use super::profiles::PROFILES;
use super::settings::{Settings, TEXT_LEN_MAX};
use super::sources::Sources;
use crate::error::CliError;

/// Where settings come from: a file, then flags over it.
#[derive(Args, Clone, Debug, Default)]
pub struct SettingsArgs {
    /// Configuration file, TOML; "-" is standard input
    #[arg(short, long, value_name = "FILE")]
    pub config: Option<PathBuf>,
    /// A port, or another device for a port of the file
    ///
    /// KIND is one of those of `port.kind` in `weft config defaults`; a network interface by default.
    #[arg(long, value_name = "NAME=[KIND:]DEVICE")]
    pub port: Vec<String>,
    /// Settings that make the buffer behave as a known chip's, below those of file and flags: see docs/conform.md
    #[arg(long, value_name = "NAME", value_parser = PossibleValuesParser::new(names()))]
    pub profile: Option<String>,
    /// Set one parameter; overrides the file: see `weft config defaults`
    #[arg(long, value_name = "SECTION.KEY=VALUE")]
    pub set: Vec<String>,
}

/// Profiles, as values of a flag.
fn names() -> impl Iterator<Item = PossibleValue> {
    PROFILES.iter().map(|profile| PossibleValue::new(profile.name).help(profile.about))
}

impl SettingsArgs {
    /// Reads the file and lays the flags over it.
    ///
    /// # Errors
    /// A file that cannot be read, and everything that is refused.
    pub fn load(&self) -> Result<Settings, CliError> {
        Ok(self.sources(OpenedBy::Command)?.settings()?)
    }

    /// Reads the file, without a look at what it says.
    ///
    /// # Errors
    /// A file that cannot be read.
    pub fn sources(&self, by: OpenedBy) -> Result<Sources, CliError> {
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

/// Reads a text of bounded length; "-" is standard input.
///
/// # Errors
/// It cannot be read.
pub(crate) fn read_text(path: &Path, by: OpenedBy) -> Result<String, CliError> {
    let error = |source| CliError::File { verb: "read", path: path.to_owned(), source };
    let mut text = String::new();
    let most = TEXT_LEN_MAX as u64 + 1; // one more is refused by `read`
    let read = if path == Path::new("-") {
        std::io::stdin().take(most).read_to_string(&mut text)
    } else {
        files::open(path, by).map_err(error)?.take(most).read_to_string(&mut text)
    };
    read.map_err(error)?;
    Ok(text)
}
