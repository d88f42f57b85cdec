//! Requests to the processes of a fabric, through their sockets below the fabric's directory.
//!
//! Source: docs/fabric.md; docs/endpoint.md; docs/fm-socket.md.

use std::path::{Path, PathBuf};
use std::time::Duration;

use serde::Serialize;
use serde::de::DeserializeOwned;
use weft_base::wait;
use weft_fm::service::{Request, Response};
use weft_rpc::{Client, ClientError, Refused};

use super::{LOOK, ProcessError};
use crate::endpoint::{Answer, Command};
use crate::fabric::direct_access::requester_ids;
use crate::fabric::granted::Plan;
use crate::fabric::host_bringup::{BringupError, Host, MemoryGrants};
use crate::fabric::layout::Layout;
use crate::fabric::topology::Topology;

/// Longest time for one answer.
const ANSWER: Duration = Duration::from_mins(1);

/// Socket of the fabric manager, below the directory `dir`.
#[must_use]
pub fn manager_socket(dir: &Path) -> PathBuf {
    dir.join("fm").join("fm.sock")
}

/// Socket of an endpoint, below the directory `dir`.
#[must_use]
pub fn endpoint_socket(dir: &Path, name: &str) -> PathBuf {
    dir.join(name).join("endpoint.sock")
}

/// Sends the fabric manager a request.
pub(super) fn manager(dir: &Path, request: &Request) -> Result<Response, ProcessError> {
    ask(&manager_socket(dir), request).map_err(|error| ProcessError::Manager(error.to_string()))
}

/// Sends an endpoint a command, by name.
pub(super) fn part(dir: &Path, name: &str, command: &Command) -> Result<Answer, Refused> {
    ask(&endpoint_socket(dir, name), command).map_err(|error| match error {
        ClientError::Refused(refused) => refused,
        other => Refused::unavailable(other.to_string()),
    })
}

/// Calls `f` for each host, one after the other.
pub(super) fn hosts(
    dir: &Path,
    topology: &Topology,
    f: impl Fn(&Host<'_>) -> Result<(), BringupError>,
) -> Result<(), ProcessError> {
    for (at, host) in topology.hosts.iter().enumerate() {
        let ask = |command: &Command| part(dir, &host.name, command);
        f(&Host { at, ask: &ask, pause: &|| wait::pause(LOOK) })?;
    }
    Ok(())
}

/// Makes the hosts of a running fabric at `dir`, in one process or several, map the memory that its manager has given.
///
/// # Errors
/// A process does not answer, or refuses.
pub fn map(dir: &Path, topology: &Topology, layout: &Layout) -> Result<(), ProcessError> {
    let plan = Plan { topology, layout };
    // Domains first: the manager holds P2P grants back until both hosts have set theirs.
    hosts(dir, topology, |host| host.come_back(plan))?;
    let pause = || wait::pause(LOOK);
    let mut given = MemoryGrants::settled(|request| manager(dir, request), pause)?;
    given.ids = requester_ids(plan, &given, |at, command| {
        let host = topology.hosts.get(at).map(|host| host.name.as_str());
        part(dir, host.unwrap_or_default(), command)
    });
    hosts(dir, topology, |host| host.map(plan, &given))?;
    Ok(given.all_mapped(plan)?)
}

/// Sends one request to the listener at `socket`.
fn ask<T: DeserializeOwned>(socket: &Path, request: &impl Serialize) -> Result<T, ClientError> {
    let value = Client::connect_for(socket, ANSWER)?.request(request)?;
    Ok(serde_json::from_value(value).map_err(std::io::Error::other)?)
}
