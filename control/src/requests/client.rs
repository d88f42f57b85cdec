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

fn socket_of(name: &str) -> PathBuf {
    sockets_dir().join(name).join("mgmt.sock")
}

/// Names of all switches that have a socket, in order, each with its socket. One whose switch has gone may be there.
#[must_use]
pub fn sockets() -> Vec<(String, PathBuf)> {
    let entries = std::fs::read_dir(sockets_dir()).into_iter().flatten().flatten();
    let names = entries.filter_map(|entry| entry.file_name().into_string().ok());
    let mut found: Vec<_> = names
        .map(|name| (socket_of(&name), name))
        .filter(|(path, _)| path.exists())
        .map(|(path, name)| (name, path))
        .collect();
    found.sort_unstable();
    found
}

/// The socket of the switch called `name`, or of the only one that has one.
///
/// # Errors
/// None, or more than one.
pub fn find_socket(name: Option<&str>) -> Result<PathBuf, ClientError> {
    if let Some(name) = name {
        return Ok(socket_of(name));
    }
    let found = sockets();
    let names: Vec<&str> = found.iter().map(|(name, _)| name.as_str()).collect();
    match names.as_slice() {
        [name] => Ok(socket_of(name)),
        [] => Err(ClientError::Ambiguous(format!(
            "no switch runs: no socket below {}; name one with --socket",
            sockets_dir().display()
        ))),
        names => Err(ClientError::Ambiguous(format!(
            "several switches run ({}): choose one with --switch",
            names.join(", ")
        ))),
    }
}
