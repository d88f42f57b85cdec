//! Finds running switches by their sockets, and reads the paths of a trace.
//!
//! A switch's name → its socket; the lines of a trace → [`ShownPath`]s.
//!
//! Source: ARCHITECTURE.md "Control".

use std::path::{Path, PathBuf};

use rustix::io::Errno;
use rustix::net::{self, AddressFamily, SocketAddrUnix, SocketFlags, SocketType};
use serde::Deserialize;
use serde_json::Value;
use weft_config::resolve::sockets_dir;
use weft_rpc::{Client, ClientError, Refused};

use crate::paths::ShownPath;

/// One line of a trace's answer.
#[derive(Debug, Deserialize)]
#[serde(rename_all = "snake_case")]
enum Line {
    Path(ShownPath),
    End(Value),
    Error(Refused),
}

/// Reads the next path of a trace; `Err` holds the reason for its end.
///
/// # Errors
/// The connection broke, or the switch answered with an error.
pub fn next_path(client: &mut Client) -> Result<Result<ShownPath, Value>, ClientError> {
    match client.follow()? {
        Line::Path(path) => Ok(Ok(path)),
        Line::End(end) => Ok(Err(end)),
        Line::Error(refused) => Err(refused.into()),
    }
}

fn socket_of(dir: &Path, name: &str) -> PathBuf {
    dir.join(name).join("mgmt.sock")
}

/// Names and sockets of all switches below the default directory, by name. A switch that was killed may be among them.
#[must_use]
pub fn sockets() -> Vec<(String, PathBuf)> {
    sockets_in(&sockets_dir())
}

fn sockets_in(dir: &Path) -> Vec<(String, PathBuf)> {
    let entries = std::fs::read_dir(dir).into_iter().flatten().flatten();
    let names = entries.filter_map(|entry| entry.file_name().into_string().ok());
    let mut found: Vec<_> = names
        .map(|name| (socket_of(dir, &name), name))
        .filter(|(path, _)| path.exists())
        .map(|(path, name)| (name, path))
        .collect();
    found.sort_unstable();
    found
}

/// Whether a switch may listen at `socket`. A killed one leaves its file behind, and the kernel refuses a connection to
/// it.
fn has_listener(socket: &Path) -> bool {
    // Without waiting: a switch whose queue of connections is full counts as running.
    let flags = SocketFlags::NONBLOCK | SocketFlags::CLOEXEC;
    let client = net::socket_with(AddressFamily::UNIX, SocketType::STREAM, flags, None);
    let connected = client.and_then(|client| {
        let at = SocketAddrUnix::new(socket)?;
        net::connect(&client, &at)
    });
    connected != Err(Errno::CONNREFUSED)
}

/// Socket of the switch called `name`; without a name, of the only one that runs.
///
/// # Errors
/// No switch of that name runs; or, without a name, no switch or several.
pub fn find_socket(name: Option<&str>) -> Result<PathBuf, ClientError> {
    find_in(&sockets_dir(), name)
}

fn find_in(dir: &Path, name: Option<&str>) -> Result<PathBuf, ClientError> {
    let mut found = sockets_in(dir);
    // A name is not tried first: the command itself connects, and reports a switch that does not answer.
    if let Some(named) = name
        && let Some((_, socket)) = found.iter().find(|(name, _)| name == named)
    {
        return Ok(socket.clone());
    }
    // For the messages, and for the choice without a name, killed switches do not count.
    found.retain(|(_, socket)| has_listener(socket));
    let names: Vec<&str> = found.iter().map(|(name, _)| name.as_str()).collect();
    let at = dir.display();
    Err(ClientError::Ambiguous(match (name, names.as_slice(), found.first()) {
        (None, [_], Some((_, socket))) => return Ok(socket.clone()),
        (None, [], _) => {
            format!("no switch runs: no socket below {at}; name one with --socket")
        }
        (None, names, _) => {
            format!("several switches run ({}): choose one with --switch", names.join(", "))
        }
        (Some(name), [], _) => {
            format!("no switch called {name:?} runs, and no other: no socket below {at}")
        }
        (Some(name), names, _) => {
            format!("no switch called {name:?} runs; these do: {}", names.join(", "))
        }
    }))
}

#[cfg(test)]
mod tests {
    use std::os::unix::net::UnixListener;

    use super::*;

    /// Of switches that run, and of one that was killed, which left its socket.
    #[test]
    fn a_switch_that_does_not_run_is_refused_with_those_that_do() {
        let dir = tempfile::tempdir().unwrap();
        let dir = dir.path();
        let said = |name| find_in(dir, name).unwrap_err().to_string();
        let below = format!("no socket below {}", dir.display());
        assert_eq!(said(None), format!("no switch runs: {below}; name one with --socket"));
        let none = format!("no switch called \"nosuch\" runs, and no other: {below}");
        assert_eq!(said(Some("nosuch")), none);
        let listen = |name: &str| {
            std::fs::create_dir(dir.join(name)).unwrap();
            UnixListener::bind(socket_of(dir, name)).unwrap()
        };
        let (_spine, killed) = (listen("spine"), listen("killed"));
        drop(killed);
        assert_eq!(find_in(dir, None).unwrap(), socket_of(dir, "spine"), "the other has gone");
        assert_eq!(said(Some("nosuch")), "no switch called \"nosuch\" runs; these do: spine");
        let _leaf = listen("leaf");
        let both = "no switch called \"nosuch\" runs; these do: leaf, spine";
        assert_eq!(said(Some("nosuch")), both);
        let several = "several switches run (leaf, spine): choose one with --switch";
        assert_eq!(said(None), several);
        for name in ["leaf", "spine", "killed"] {
            let found = find_in(dir, Some(name)).unwrap();
            assert_eq!(found, socket_of(dir, name), "what is there is told by the connection");
        }
    }
}
