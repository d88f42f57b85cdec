//! Rights of the switch's process, as the kernel reports them of its threads.
//!
//! Source: `proc_pid_status(5)`; docs/privileges.md.

use serde::{Deserialize, Serialize};

/// Rights of the process, and of its threads.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct ProcessReport {
    pub pid: u32,
    /// Effective user.
    pub uid: u32,
    /// Effective group.
    pub gid: u32,
    pub threads: usize,
    /// `on`, `weak` or `off`.
    pub sandbox: String,
    /// Why the sandbox is not `on`.
    pub note: Option<String>,
    /// Capabilities in force.
    pub effective: Vec<String>,
    /// Capabilities that the process may put in force.
    pub permitted: Vec<String>,
    /// Capabilities that an executed program could have.
    pub bounding: Vec<String>,
    /// Whether an executed program gains no rights.
    pub no_new_privs: bool,
    /// `filter` where system calls are filtered, else `none`.
    pub seccomp: String,
    /// Restrictions by Landlock, as text.
    pub landlock: String,
    /// Names of threads whose rights differ from the first one's; there should be none.
    pub unlike: Vec<String>,
}
