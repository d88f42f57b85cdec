//! What the FM tells of itself: how far it is, what there is, what happened.
//!
//! [`Status`] with [`StartMode`], [`Phase`] and [`Counts`]; [`EventRecord`]. Plain values, the same in JSON.
//!
//! Units: counts of components; PIDs as numbers of 12 bits.
//! Source: docs/spec/cxl-fabric.md "Start-up".

use std::fmt;

use serde::{Deserialize, Serialize};

/// In which order hosts and fabric come up (CXL 3.1 section 7.7.12.1).
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "clap", derive(clap::ValueEnum))]
#[serde(rename_all = "kebab-case")]
pub enum StartMode {
    /// Switches have PIDs, tables and bindings from files of their own, and nothing manages them; the FM only looks.
    Static,
    /// Hosts are held until all is brought about.
    #[default]
    FmFirst,
    /// Hosts come up on empty hierarchies; what is bound later is a hot-add.
    Simultaneous,
}

/// The word of the mode in JSON, in files and on the command line.
impl fmt::Display for StartMode {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.serialize(f)
    }
}

/// How far the FM is with its fabric.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Phase {
    /// Start-up runs.
    #[default]
    Starting,
    /// The fabric is managed.
    Up,
    /// Another FM manages it, and this one may take over.
    Standby,
    /// The fabric could not be brought up; it is tried again.
    Failed,
}

/// Counts of the components, links, bindings and shares of a fabric.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Counts {
    /// Switches.
    pub switches: usize,
    /// Those of them that do not answer.
    pub silent: usize,
    /// GFDs.
    pub gfds: usize,
    /// Host edges with a PID.
    pub hosts: usize,
    /// Links between switches.
    pub links: usize,
    /// Those of them that are down.
    pub down: usize,
    /// Bindings, local ones and virtual links.
    pub bindings: usize,
    /// Shares of memory.
    pub shares: usize,
}

/// Where there are several managers: who leads.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct HaStatus {
    /// What this one is called.
    pub name: String,
    /// What the one that leads is called, as far as this one knows.
    pub leader: Option<String>,
    /// The term of this one, where it leads; else the last one in which it did, or 0.
    pub term: u64,
    /// Why etcd was not reached, where the last try failed.
    pub store_error: Option<String>,
    /// What is to be known besides.
    pub note: Option<String>,
}

/// The state of the FM and of its fabric, for people and programs.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Status {
    /// How far it is.
    pub phase: Phase,
    /// What it does or did last.
    pub step: String,
    /// How the fabric is started.
    pub mode: StartMode,
    /// Whether hosts have to wait.
    pub hosts_held: bool,
    /// UUID of this FM.
    pub manager: String,
    /// Its PID.
    pub pid: u16,
    /// What is wrong now; the rest of the fabric works.
    pub errors: Vec<String>,
    /// Why it failed.
    pub failed: Option<String>,
    /// What there is.
    pub counts: Counts,
    /// Commands that were sent.
    pub calls: u64,
    /// Number of the last event.
    pub events: u64,
    /// Where there are several managers.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub ha: Option<HaStatus>,
}

/// An event of the fabric or of the FM, with its number.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct EventRecord {
    /// Its number, from 1.
    pub number: u64,
    /// What.
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
