//! What is said between who brings a fabric over several machines up and each of these.
//!
//! [`Order`] in, [`Reply`] out, JSON, a line each; a [`Reply::Event`] may come at any time. Each end says `Alive` every second.
//!
//! Source: docs/fabric.md "Over several machines".

use std::path::PathBuf;

use serde::{Deserialize, Serialize};
use weft_fm::service::{Request, Response};
use weft_rpc::Refused;

use super::hosts_file::Here;
use crate::endpoint::{Answer, Command};
use crate::fabric::host_bringup::MemoryGrants;

/// What a machine is to do.
#[derive(Clone, Debug, Serialize, Deserialize)]
#[serde(tag = "do", rename_all = "snake_case", deny_unknown_fields)]
pub(super) enum Order {
    /// Take part in a fabric; first of all.
    Setup(Box<Setup>),
    /// Make its ends of links.
    Links,
    /// Start its switches.
    Switches,
    /// Start its hosts, devices, HBR switches and GFDs.
    Endpoints,
    /// Start the manager, and wait until the fabric is up.
    Manager,
    /// Have its hosts find what is below them.
    Enumerate,
    /// Have its hosts map what the manager has given.
    Map {
        /// What that is.
        grants: MemoryGrants,
    },
    /// Give a part a command.
    Ask {
        /// Which.
        name: String,
        /// What.
        command: Command,
    },
    /// Give the manager a request.
    AskManager {
        /// What.
        request: Request,
    },
    /// Have an end of a wire show a carrier, or none.
    Carrier {
        /// Which wire.
        wire: usize,
        /// Whether.
        is_on: bool,
    },
    /// Nothing: who orders is there. It has no answer.
    Alive,
}

/// A fabric, and what this machine is in it.
#[derive(Clone, Debug, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub(super) struct Setup {
    /// Version of who orders: another one may mean other things.
    pub version: String,
    /// The topology file.
    pub topology: String,
    /// Files and sockets are below it.
    pub dir: PathBuf,
    /// Names of interfaces begin with it.
    pub prefix: String,
    /// Time limit of answers.
    pub answer_ms: u32,
    /// Time between two polls of the manager.
    pub pause_ms: u32,
    /// All machines, and which this is.
    pub here: Here,
}

/// What a machine says.
#[derive(Clone, Debug, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub(super) enum Reply {
    /// It is done.
    Done,
    /// A part's answer.
    Answer(Box<Answer>),
    /// The manager's answer.
    Manager(Box<Response>),
    /// A part refuses.
    Refused(Refused),
    /// It cannot be done.
    Failed(String),
    /// Something has happened; no answer.
    Event(Event),
    /// Nothing: it is there; no answer.
    Alive,
}

/// What happens at a machine by itself.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub(super) enum Event {
    /// A part has ended: who, and how.
    Ended(String),
    /// Somebody has set its end of a wire up or down.
    Link {
        /// Which wire.
        wire: usize,
        /// Which.
        is_up: bool,
    },
}
