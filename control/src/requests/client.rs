//! Asking a running switch: where it listens, and the paths of a trace.
//!
//! Shape: a switch's name → its socket; the lines of a trace → [`ShownPath`]s.
//! Units: none.
//! Source: ARCHITECTURE.md "Control".

use std::path::PathBuf;

use serde::Deserialize;
use serde_json::Value;
use weft_rpc::{Client, ClientError, Refused};

use crate::config::resolve::sockets_dir;
use crate::paths::ShownPath;

/// A line of a trace.
#[derive(Debug, Deserialize)]
#[serde(rename_all = "snake_case")]
enum Line {
    Path(ShownPath),
    End(Value),
    Error(Refused),
}

/// The next path of a trace; `Err` is how it ended.
///
/// # Errors
/// A connection that broke.
pub fn next_path(client: &mut Client) -> Result<Result<ShownPath, Value>, ClientError> {
    match client.follow()? {
        Line::Path(path) => Ok(Ok(path)),
        Line::End(end) => Ok(Err(end)),
        Line::Error(refused) => Err(refused.into()),
    }
}

/// The socket of the switch called `name`, or of the only one that has one.
///
/// # Errors
/// None, or more than one.
pub fn find_socket(name: Option<&str>) -> Result<PathBuf, ClientError> {
    let dir = sockets_dir();
    let socket_of = |name: &str| dir.join(name).join("mgmt.sock");
    if let Some(name) = name {
        return Ok(socket_of(name));
    }
    let entries = std::fs::read_dir(&dir).into_iter().flatten().flatten();
    let mut names: Vec<String> =
        entries.filter_map(|entry| entry.file_name().into_string().ok()).collect();
    names.retain(|name| socket_of(name).exists());
    names.sort_unstable();
    match names.as_slice() {
        [name] => Ok(socket_of(name)),
        [] => Err(ClientError::Ambiguous(format!(
            "no switch runs: no socket below {}; name one with --socket",
            dir.display()
        ))),
        names => Err(ClientError::Ambiguous(format!(
            "several switches run ({}): choose one with --switch",
            names.join(", ")
        ))),
    }
}
