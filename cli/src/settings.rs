//! Flags of commands that read a configuration: a file, and parameters that override it.
//!
//! Source: docs/configuration.md.

use std::path::PathBuf;

use clap::Args;
use clap::builder::{PossibleValue, PossibleValuesParser};
use weft_base::files::OpenedBy;
use weft_config::profiles::PROFILES;
use weft_config::{Settings, SettingsFlags, Sources};

use crate::error::CliError;

/// Sources of settings: a file, then flags that override it.
#[derive(Args, Clone, Debug, Default)]
pub struct SettingsArgs {
    /// Configuration file, TOML; "-" is standard input
    #[arg(short, long, value_name = "FILE")]
    pub config: Option<PathBuf>,
    /// Add a port, or give a port of the file another device
    ///
    /// KIND is one of the values of `port.kind` in `weft config defaults`; a network interface by default.
    #[arg(long, value_name = "NAME=[KIND:]DEVICE")]
    pub port: Vec<String>,
    /// Settings that make the buffer behave like a known chip's; file and flags override them (docs/conform.md)
    #[arg(long, value_name = "NAME", value_parser = PossibleValuesParser::new(names()))]
    pub profile: Option<String>,
    /// Set one parameter; overrides the file. `weft config defaults` lists the parameters
    #[arg(long, value_name = "SECTION.KEY=VALUE")]
    pub set: Vec<String>,
}

/// Profiles as values of `--profile`, for its help and completion.
fn names() -> impl Iterator<Item = PossibleValue> {
    PROFILES.iter().map(|profile| PossibleValue::new(profile.name).help(profile.about))
}

impl From<SettingsArgs> for SettingsFlags {
    fn from(args: SettingsArgs) -> Self {
        let SettingsArgs { config, port, profile, set } = args;
        Self { config, port, profile, set }
    }
}

impl SettingsArgs {
    /// Reads the file and applies the flags over it.
    ///
    /// # Errors
    /// A file that cannot be read, or a setting that is refused.
    pub fn load(&self) -> Result<Settings, CliError> {
        Ok(self.sources()?.settings()?)
    }

    /// Reads the file without parsing it.
    ///
    /// # Errors
    /// A file that cannot be read.
    pub fn sources(&self) -> Result<Sources, CliError> {
        Ok(SettingsFlags::from(self.clone()).sources(OpenedBy::Command)?)
    }
}
