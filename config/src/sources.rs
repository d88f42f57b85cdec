//! Sources of settings, as texts: a record of a run keeps them.
//!
//! [`Sources`] hold a profile's name, a file's name and text, and the flags; [`Sources::settings`] reads them again
//! as often as a reload or a replay needs.
//!
//! Source: docs/spec/pipeline.md §12, §13.

use serde::{Deserialize, Serialize};

use super::profiles::{self, PROFILES};
use super::{ConfigError, Place, Problem, Settings};

/// A file, the profile below it and the flags above it.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Sources {
    /// Name of a profile; file and flags override its settings.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub profile: Option<String>,
    /// Name of the file for messages, and its text.
    pub file: Option<(String, String)>,
    /// Values of `--port` flags, in order.
    pub port: Vec<String>,
    /// Values of `--set` flags, in order; a later one overrides an earlier one.
    pub set: Vec<String>,
}

impl Sources {
    /// Reads the text and applies the flags.
    ///
    /// # Errors
    /// Everything that is refused, in file, flags and profile together.
    pub fn settings(&self) -> Result<Settings, ConfigError> {
        let mut problems = Vec::new();
        let mut settings = Settings::default();
        let mut note = |result: Result<(), ConfigError>| {
            if let Err(ConfigError(more)) = result {
                problems.extend(more);
            }
        };
        if let Some((name, text)) = &self.file {
            // A file with errors counts as empty from here on, so that wrong flags are reported in the same run.
            note(Settings::read(name, text).map(|read| settings = read));
        }
        for text in &self.port {
            note(settings.set_port(text, "--port"));
        }
        for text in &self.set {
            note(settings.set(text, "--set"));
        }
        // Last, as `lay_over` fills in only keys that neither file nor flags have set.
        if let Some(name) = &self.profile {
            note(profile(name).map(|below| settings.lay_over(below)));
        }
        if problems.is_empty() { Ok(settings) } else { Err(ConfigError(problems)) }
    }
}

/// The settings of the profile called `name`.
fn profile(name: &str) -> Result<Settings, ConfigError> {
    let flag = format!("--profile {name}");
    let Some(profile) = profiles::find(name) else {
        let names: Vec<_> = PROFILES.iter().map(|profile| profile.name).collect();
        let message = format!("expected one of {}, found {name:?}", names.join(", "));
        return Err(ConfigError(vec![Problem {
            place: Place::Flag(flag),
            key: String::new(),
            message,
        }]));
    };
    let mut settings = Settings::default();
    for text in profile.settings {
        settings.set(text, &flag)?;
    }
    Ok(settings)
}
