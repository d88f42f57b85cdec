//! What hosts do once a fabric is up: find what is below them, and map the memory that they were given.
//!
//! Shape: a way to ask a host, and what the fabric manager says of memory -> commands for the host.
//! Units: octets.
//! Source: fabric.md "Start-up", "Memory"; wire-formats.md 4.6.

use weft_parsers::cci::gae::FastCaps;
use weft_parsers::cci::{Opcode, Payload};
use weft_parsers::fabric::{Hpa, Pid};

use super::layout::Layout;
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

/// The bridge that a host's own requests enter by.
const UPSTREAM: u8 = 0;

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

    /// Has it map the memory that it has been given, and for its devices what they have been given: what its GAE has of
    /// others is unmapped.
    ///
    /// # Errors
    /// It cannot be mapped, or the host's GAE refuses.
    pub fn map(
        &self,
        topology: &Topology,
        layout: &Layout,
        shares: &[ShareRow],
    ) -> Result<(), SettleError> {
        if !layout.has_edge(self.at) {
            return Ok(());
        }
        let devices = layout.devices_of(self.at).map(|(vppb, ..)| vppb);
        for vppb in core::iter::once(UPSTREAM).chain(devices) {
            let output = self.gae(topology, Opcode::GET_FAST_CAPS, vec![vppb, 0, 0, 0])?;
            let caps = FastCaps::parse(&output).map_err(|error| {
                let text = format!("its GAE does not tell of vPPB {vppb}: {error}");
                self.fail(topology, Refused::because(text))
            })?;
            let pids: Vec<u16> = caps.pids.iter().map(Pid::bits).collect();
            let regions = regions(&pids, shares);
            if regions.is_empty() && caps.limit == Hpa(0) {
                continue;
            }
            let name = topology.hosts.get(self.at).map(|host| host.name.clone());
            let commands = software::commands(vppb, &regions)
                .map_err(|source| SettleError::Map { name: name.unwrap_or_default(), source })?;
            for (opcode, input) in commands {
                self.gae(topology, opcode, input)?;
            }
        }
        Ok(())
    }

    /// What its GAE answers.
    fn gae(
        &self,
        topology: &Topology,
        opcode: Opcode,
        input: Vec<u8>,
    ) -> Result<Vec<u8>, SettleError> {
        let (number, input) = (Num(opcode.0.into()), Hex(input));
        let command = Command::Gae { opcode: number, input, block: None, timeout_ms: COMMAND_MS };
        match (self.ask)(&command).map_err(|refused| self.fail(topology, refused))? {
            Answer::Response { code: 0, output, .. } => Ok(output.0),
            other => {
                let text = format!("its GAE refuses {:04x}h: {other:?}", opcode.0);
                Err(self.fail(topology, Refused::because(text)))
            }
        }
    }
}

/// What somebody with these PIDs was given.
fn regions(pids: &[u16], shares: &[ShareRow]) -> Vec<Region> {
    let own = shares.iter().filter(|share| share.hosts.iter().any(|pid| pids.contains(pid)));
    let region = |share: &ShareRow| Region {
        hpa: share.hpa,
        len: share.size,
        granularity: share.granularity,
        targets: share.parts.iter().map(|part| Pid::from_low_bits(part.gfd)).collect(),
        gim: false,
    };
    own.map(region).collect()
}
