//! Where settings come from, as texts: what a record of a run keeps of them.
//!
//! A profile, a file's name and text, and flags → [`Settings`], as often as wanted.
//!
//! Source: docs/spec/pipeline.md §12, §13.

use serde::{Deserialize, Serialize};

use super::profiles::{self, PROFILES};
use super::{ConfigError, Place, Problem, Settings};

/// A file and the flags over it.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Sources {
    /// Name of a profile, whose settings lie below all others.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub profile: Option<String>,
    /// Name and text of the file.
    pub file: Option<(String, String)>,
    /// `--port` flags.
    pub port: Vec<String>,
    /// `--set` flags.
    pub set: Vec<String>,
}

impl Sources {
    /// Reads the text and lays the flags over it.
    ///
    /// # Errors
    /// Everything that is refused.
    pub fn settings(&self) -> Result<Settings, ConfigError> {
        let mut problems = Vec::new();
        let mut settings = Settings::default();
        let mut note = |result: Result<(), ConfigError>| {
            if let Err(ConfigError(more)) = result {
                problems.extend(more);
            }
        };
        if let Some((name, text)) = &self.file {
            note(Settings::read(name, text).map(|read| settings = read));
        }
        for text in &self.port {
            note(settings.set_port(text, "--port"));
        }
        for text in &self.set {
            note(settings.set(text, "--set"));
        }
        if let Some(name) = &self.profile {
            note(profile(name).map(|below| settings.lay_over(below)));
        }
        if problems.is_empty() { Ok(settings) } else { Err(ConfigError(problems)) }
    }
}

/// Settings of the profile of a name.
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
