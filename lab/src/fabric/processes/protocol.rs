//! Messages between the coordinator of a fabric over several machines and the agent of each machine.
//!
//! [`Order`]s go to an agent and [`Reply`]s come back, one line of JSON each. A [`Reply::Event`] may come at any time.
//! Each end sends `Alive` every second.
//!
//! Source: docs/fabric.md "Over several machines".

use std::path::PathBuf;

use serde::{Deserialize, Serialize};
use weft_fm::service::{Request, Response};
use weft_rpc::Refused;

use super::hosts_file::Here;
use crate::endpoint::{Answer, Command};
use crate::fabric::host_bringup::MemoryGrants;

/// An order to a machine.
#[derive(Clone, Debug, Serialize, Deserialize)]
#[serde(tag = "do", rename_all = "snake_case", deny_unknown_fields)]
pub(super) enum Order {
    /// Join a fabric; the first order of all.
    Setup(Box<Setup>),
    /// Make its ends of links.
    Links,
    /// Start its PBR switches.
    Switches,
    /// Start its hosts, devices, HBR switches and GFDs.
    Endpoints,
    /// Start the manager, and wait until the fabric is up.
    Manager,
    /// Make its hosts enumerate.
    Enumerate,
    /// Make its hosts map their memory.
    Map { grants: MemoryGrants },
    /// Send a part a command.
    Ask { name: String, command: Command },
    /// Send the manager a request.
    AskManager { request: Request },
    /// Make an end of a wire show a carrier, or none.
    Carrier { wire: usize, is_on: bool },
    /// Sign of life of the coordinator; it has no answer.
    Alive,
}

/// A fabric, and this machine's role in it.
#[derive(Clone, Debug, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub(super) struct Setup {
    /// Version of the coordinator, which must be the same: another one may mean other things.
    pub version: String,
    /// Text of the topology file.
    pub topology: String,
    /// Directory for files and sockets.
    pub dir: PathBuf,
    /// Prefix of interface names.
    pub prefix: String,
    /// Time limit of answers in milliseconds.
    pub answer_ms: u32,
    /// Time between two polls of the manager, in milliseconds.
    pub pause_ms: u32,
    /// All machines, and the index of this one.
    pub here: Here,
}

/// A message of a machine.
#[derive(Clone, Debug, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub(super) enum Reply {
    /// The order was carried out.
    Done,
    /// A part's answer to a command.
    Answer(Box<Answer>),
    /// The manager's answer to a request.
    Manager(Box<Response>),
    /// A part refuses a command.
    Refused(Refused),
    /// The order failed, for this reason.
    Failed(String),
    /// An event; not an answer.
    Event(Event),
    /// Sign of life; not an answer.
    Alive,
}

/// An event at a machine.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub(super) enum Event {
    /// A part has ended: its name and status.
    Ended(String),
    /// Its end of a wire was set up or down.
    Link { wire: usize, is_up: bool },
}
