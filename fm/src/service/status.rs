//! Status of the manager: phase, counts and events, as plain values that are the same in JSON.
//!
//! Source: docs/spec/cxl-fabric.md "Start-up".

use std::fmt;

use serde::{Deserialize, Serialize};

/// Order in which hosts and fabric come up (CXL 3.1 section 7.7.12.1).
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "clap", derive(clap::ValueEnum))]
#[serde(rename_all = "kebab-case")]
pub enum StartMode {
    /// Switches take PIDs, tables and bindings from their own configuration files; the fabric manager only shows them.
    Static,
    /// Hosts must be held until the fabric is set up.
    #[default]
    FmFirst,
    /// Hosts come up on empty hierarchies; devices bound later are hot-added.
    Simultaneous,
}

/// The word of the mode in JSON, in files and on the command line.
impl fmt::Display for StartMode {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.serialize(f)
    }
}

/// Progress of the manager with its fabric.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Phase {
    #[default]
    Starting,
    /// The fabric runs and is managed.
    Up,
    /// Another manager leads; this one may take over.
    Standby,
    /// The fabric could not be brought up; it is tried again.
    Failed,
}

/// Numbers of components, links, bindings and shares of a fabric.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Counts {
    pub switches: usize,
    /// Switches that do not answer.
    pub silent: usize,
    pub gfds: usize,
    /// Host edges with a PID.
    pub hosts: usize,
    /// Links between switches, those that are down included.
    pub links: usize,
    /// Links between switches that are down.
    pub down: usize,
    /// Local bindings and virtual links.
    pub bindings: usize,
    pub shares: usize,
}

/// State of one of several managers.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct HaStatus {
    /// Name of this manager.
    pub name: String,
    /// Name of the leader, as far as this manager knows.
    pub leader: Option<String>,
    /// Term of this manager if it leads, else the last term in which it did, or 0.
    pub term: u64,
    /// Why the last attempt to reach etcd failed.
    pub store_error: Option<String>,
    /// A note for people.
    pub note: Option<String>,
}

/// State of the manager and its fabric, for people and programs.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Status {
    pub phase: Phase,
    /// The step in progress, or the last one.
    pub step: String,
    pub mode: StartMode,
    /// Whether hosts have to wait.
    pub hosts_held: bool,
    /// UUID of this manager.
    pub manager: String,
    /// PID of this manager.
    pub pid: u16,
    /// Present problems; the rest of the fabric works.
    pub errors: Vec<String>,
    /// Why the phase is `failed`.
    pub failed: Option<String>,
    pub counts: Counts,
    /// Number of commands sent.
    pub calls: u64,
    /// Number of the latest event.
    pub events: u64,
    /// Set with several managers.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub ha: Option<HaStatus>,
}

/// An event of the fabric or the manager.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct EventRecord {
    /// Number of the event, from 1.
    pub number: u64,
    /// The event in words.
    pub what: String,
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_start_mode_has_one_word() {
        for (mode, word) in [
            (StartMode::Static, "static"),
            (StartMode::FmFirst, "fm-first"),
            (StartMode::Simultaneous, "simultaneous"),
        ] {
            assert_eq!(mode.to_string(), word);
            assert_eq!(serde_json::to_value(mode).unwrap(), word);
            #[cfg(feature = "clap")]
            assert_eq!(<StartMode as clap::ValueEnum>::from_str(word, false), Ok(mode));
        }
    }
}
