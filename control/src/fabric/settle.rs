//! What hosts do once a fabric is up: find what is below them, and map the memory that they were given.
//!
//! Shape: a way to ask a host, and what the fabric manager says of memory -> commands for the host.
//! Units: octets.
//! Source: fabric.md "Start-up", "Memory"; wire-formats.md 4.6.

use weft_parsers::fabric::Pid;

use super::software::{self, MapError, Region};
use super::topology::Topology;
use crate::endpoint::number::{Hex, Num};
use crate::endpoint::{Answer, Command};
use crate::fm::service::request::ShareRow;
use crate::mgmt::Refused;

/// How often a host that is looking already is asked again.
const LOOKS: u32 = 100;
/// How long a search may take, and a command of a mailbox, in milliseconds.
const SEARCH_MS: u64 = 20_000;
const COMMAND_MS: u64 = 5_000;

/// Why a host is not ready.
#[derive(Debug, thiserror::Error)]
pub enum SettleError {
    /// It does not find what is below it, or its GAE refuses.
    #[error("host {name}: {refused}")]
    Host {
        /// Which.
        name: String,
        /// Why.
        refused: Refused,
    },
    /// What it was given cannot be mapped.
    #[error("host {name}")]
    Map {
        /// Which.
        name: String,
        /// Why.
        source: MapError,
    },
}

/// A host that can be asked.
pub struct Host<'a> {
    /// Its number in the topology.
    pub at: usize,
    /// Asks it.
    pub ask: &'a dyn Fn(&Command) -> Result<Answer, Refused>,
    /// Lets a little time pass.
    pub pause: &'a dyn Fn(),
}

impl Host<'_> {
    fn fail(&self, topology: &Topology, refused: Refused) -> SettleError {
        let name = topology.hosts.get(self.at).map(|host| host.name.clone());
        SettleError::Host { name: name.unwrap_or_default(), refused }
    }

    /// Has it find what is below it.
    ///
    /// # Errors
    /// It does not.
    pub fn enumerate(&self, topology: &Topology) -> Result<(), SettleError> {
        let command = Command::Enumerate { timeout_ms: SEARCH_MS };
        let mut asked = (self.ask)(&command);
        // A hot-add has it look already; what it finds then may not be all.
        for _ in 0..LOOKS {
            if asked.is_ok() {
                break;
            }
            (self.pause)();
            asked = (self.ask)(&command);
        }
        asked.map(drop).map_err(|refused| self.fail(topology, refused))
    }

    /// Has it map the memory that it has been given.
    ///
    /// # Errors
    /// It cannot be mapped, or the host's GAE refuses.
    pub fn map(&self, topology: &Topology, shares: &[ShareRow]) -> Result<(), SettleError> {
        let regions = regions(topology, self.at, shares);
        if regions.is_empty() {
            return Ok(());
        }
        let name = topology.hosts.get(self.at).map(|host| host.name.clone()).unwrap_or_default();
        let commands =
            software::commands(&regions).map_err(|source| SettleError::Map { name, source })?;
        for (opcode, input) in commands {
            let opcode = Num(opcode.0.into());
            let command =
                Command::Gae { opcode, input: Hex(input), block: None, timeout_ms: COMMAND_MS };
            match (self.ask)(&command).map_err(|refused| self.fail(topology, refused))? {
                Answer::Response { code: 0, .. } => {}
                other => {
                    let text = format!("its GAE refuses {:04x}h: {other:?}", opcode.0);
                    return Err(self.fail(topology, Refused::because(text)));
                }
            }
        }
        Ok(())
    }
}

/// What a host of the topology was given.
fn regions(topology: &Topology, host: usize, shares: &[ShareRow]) -> Vec<Region> {
    let Some(host) = topology.hosts.get(host) else { return Vec::new() };
    let own = topology.memory.iter().filter(|memory| memory.hosts.contains(&host.name));
    let region = |memory: &super::topology::Memory| {
        let share = shares.iter().find(|share| share.name == memory.name)?;
        Some(Region {
            hpa: share.hpa,
            len: share.size,
            granularity: memory.granularity,
            targets: share.parts.iter().map(|part| Pid::from_low_bits(part.gfd)).collect(),
            gim: false,
        })
    };
    own.filter_map(region).collect()
}
