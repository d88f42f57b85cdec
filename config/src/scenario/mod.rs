//! Scenario files: a network, its workloads, its faults, and the results expected of it.
//!
//! A [`Source`] (TOML text, flags that override it, files beside it) becomes a [`Scenario`] of `weft_sim`. One table
//! of keys ([`table::SCENARIO`]) drives reading and the documentation.
//!
//! Source: docs/spec/model.md §3.

pub mod document;
pub mod export;
pub mod import;
mod keys;
mod places;
mod resolve;
pub mod table;
#[cfg(test)]
mod tests;

use std::path::{Path, PathBuf};

use weft_base::files::{self, OpenedBy};
use weft_dataplane::port::capture::{CaptureName, Choice};
use weft_sim::results::Setting;
use weft_sim::run::RunError;
use weft_sim::scenario::Scenario;

pub use self::places::Places;
use crate::read::{ReadError, read_text};
use crate::{ConfigError, Place, Problem, Settings};

/// Longest file that a scenario names, in bytes.
pub const FILE_LEN_MAX: u64 = 256 << 20;

/// The texts that a scenario is read from.
#[derive(Clone, Debug, Default)]
pub struct Source {
    /// Name of the file in messages.
    pub name: String,
    /// Text of the file, TOML.
    pub text: String,
    /// Folder of the files that the scenario names; without one it may name none.
    pub dir: Option<PathBuf>,
    /// Assignments `SECTION.KEY=VALUE` that override the file.
    pub set: Vec<String>,
}

/// A scenario without contradictions.
#[derive(Debug)]
pub struct Loaded {
    pub scenario: Scenario,
    /// All settings of file and flags, for the results to repeat.
    pub settings: Vec<Setting>,
    /// Settings that are allowed but doubtful.
    pub warnings: Vec<Problem>,
    /// Places of its parts, for errors that show only when the scenario is about to run.
    pub places: Places,
}

impl Loaded {
    /// The error of a scenario that cannot run, with its place.
    #[must_use]
    pub fn refused(&self, error: &RunError) -> ConfigError {
        ConfigError(vec![self.places.problem(&self.scenario, error)])
    }
}

impl Source {
    /// Reads the file at `path`; "-" is standard input.
    ///
    /// # Errors
    /// It cannot be read.
    pub fn read(path: &Path) -> Result<Self, ReadError> {
        let text = read_text(path, OpenedBy::Command)?;
        let dir = path.parent().map(|dir| {
            if dir.as_os_str().is_empty() { PathBuf::from(".") } else { dir.to_owned() }
        });
        // A scenario from standard input has no folder that its file names could be relative to.
        let dir = dir.filter(|_| path != Path::new("-"));
        Ok(Self { name: path.display().to_string(), text, dir, set: Vec::new() })
    }

    /// Reads the text and applies the flags.
    ///
    /// # Errors
    /// All that the table of keys refuses.
    pub fn settings(&self) -> Result<Settings, ConfigError> {
        let mut settings = Settings::read_as(&table::SCENARIO, &self.name, &self.text)?;
        // All flags, so that one run reports all that are wrong.
        let refused = self.set.iter().filter_map(|text| settings.set(text, "--set").err());
        let problems: Vec<Problem> = refused.flat_map(|error| error.0).collect();
        if problems.is_empty() { Ok(settings) } else { Err(ConfigError(problems)) }
    }

    /// Resolves the scenario.
    ///
    /// # Errors
    /// All problems of the scenario, each with its place.
    pub fn load(&self) -> Result<Loaded, ConfigError> {
        resolve::scenario(self, &self.settings()?)
    }

    /// The text of a file that the scenario names.
    fn file(&self, name: &str) -> Result<String, String> {
        let bytes = self.bytes(name)?;
        String::from_utf8(bytes).map_err(|_| format!("expected text in {name}, found other bytes"))
    }

    /// The bytes of a file that the scenario names.
    fn bytes(&self, name: &str) -> Result<Vec<u8>, String> {
        read(&self.path(name)?)
    }

    /// The bytes of a capture that the scenario names, and which interfaces of it are meant.
    fn capture(&self, name: &str) -> Result<(Vec<u8>, Choice), String> {
        let CaptureName { path, choice } = CaptureName::from_path(&self.path(name)?);
        Ok((read(&path)?, choice))
    }

    fn path(&self, name: &str) -> Result<PathBuf, String> {
        match &self.dir {
            Some(dir) => Ok(dir.join(name)),
            None => Err(format!("expected no file, found {name:?}: the scenario has no folder")),
        }
    }
}

fn read(path: &Path) -> Result<Vec<u8>, String> {
    files::read(path, OpenedBy::Command, FILE_LEN_MAX)
        .map_err(|error| format!("cannot read {}: {error}", path.display()))
}

fn problem(place: Place, key: impl Into<String>, message: impl Into<String>) -> Problem {
    Problem { place, key: key.into(), message: message.into() }
}
