//! The process of a switch: what it may do.
//!
//! [`ProcessReport`], as the kernel tells it of the threads.
//!
//! Source: `proc_pid_status(5)`; docs/privileges.md.

use serde::{Deserialize, Serialize};

/// What the process of a switch may do.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct ProcessReport {
    /// Its number.
    pub pid: u32,
    /// Its effective user.
    pub uid: u32,
    /// Its effective group.
    pub gid: u32,
    /// How many threads it has.
    pub threads: usize,
    /// `on`, `weak` or `off`.
    pub sandbox: String,
    /// Why it is not `on`.
    pub note: Option<String>,
    /// Capabilities in force.
    pub effective: Vec<String>,
    /// Capabilities that it may put in force.
    pub permitted: Vec<String>,
    /// Capabilities that a program could have that it executes.
    pub bounding: Vec<String>,
    /// Whether what it executes gains nothing.
    pub no_new_privs: bool,
    /// `filter` where system calls are filtered, `none` where not.
    pub seccomp: String,
    /// What Landlock forbids.
    pub landlock: String,
    /// Threads that may do something else than the first; none.
    pub unlike: Vec<String>,
}
