//! Bring-up of hosts once the fabric is up: they enumerate, and map the memory that they were given.
//!
//! It sends commands to a host by a function of the caller, from the lists of the fabric manager.
//!
//! Source: docs/spec/cxl-fabric.md "Start-up", "Memory"; docs/spec/wire-formats.md §4.6.

use std::collections::BTreeMap;

use serde::{Deserialize, Serialize};
use weft_fm::service::request::{GimRow, P2pRow, P2pState, ShareRow};
use weft_fm::service::{Request, Response};
use weft_parsers::cci::gae::{FastCaps, PrefixFlags};
use weft_parsers::cci::{Opcode, Payload};
use weft_parsers::fabric::{Hpa, Pid};
use weft_rpc::Refused;

use super::fast_tables::{self, MapError, Region};
use super::granted::{Granted, GrantedGim, Plan};
use super::host_tree::mailbox;
use super::layout::{Edge, Part};
use super::topology::Topology;
use crate::endpoint::command::Export;
use crate::endpoint::fabric_mem::MemCommand;
use crate::endpoint::host::spec::MEMORY_BASE;
use crate::endpoint::number::{Hex, Id, Num};
use crate::endpoint::{Answer, Command};

/// Tries for a host that is enumerating already.
const LOOKS: u32 = 100;
/// Polls of the manager while a grant waits.
const SETTLE_LOOKS: u32 = 1_000;
/// Time limits of an enumeration and of a mailbox command, in milliseconds.
const SEARCH_MS: u64 = 20_000;
const COMMAND_MS: u64 = 5_000;

/// Reasons why a host cannot use its devices and memory.
#[derive(Debug, thiserror::Error)]
pub enum BringupError {
    /// Its enumeration fails, or its GAE refuses a command.
    #[error("host {name}: {refused}")]
    Host { name: String, refused: Refused },
    /// No host can map some of the grants; all others are mapped.
    #[error("given, but not to be mapped: {}", .0.join("; "))]
    Left(Vec<String>),
    /// A grant does not fit in the host's tables.
    #[error("host {name}")]
    Map { name: String, source: MapError },
}

/// A host, and the means to talk to it.
pub struct Host<'a> {
    /// Index in the topology.
    pub at: usize,
    /// Sends it a command.
    pub ask: &'a dyn Fn(&Command) -> Result<Answer, Refused>,
    /// Lets a little time pass.
    pub pause: &'a dyn Fn(),
}

impl Host<'_> {
    pub(super) fn fail(&self, topology: &Topology, refused: Refused) -> BringupError {
        let name = topology.hosts.get(self.at).map(|host| host.name.clone());
        BringupError::Host { name: name.unwrap_or_default(), refused }
    }

    pub(super) fn no_map(&self, topology: &Topology, source: MapError) -> BringupError {
        let name = topology.hosts.get(self.at).map(|host| host.name.clone()).unwrap_or_default();
        BringupError::Map { name, source }
    }

    /// Makes the host enumerate, and set its domain at its switch.
    ///
    /// # Errors
    /// The host fails to.
    pub fn enumerate(&self, plan: Plan<'_>) -> Result<(), BringupError> {
        let command = Command::Enumerate { timeout_ms: SEARCH_MS };
        let mut asked = (self.ask)(&command);
        // A hot-add has started an enumeration already, which may not find everything.
        for _ in 0..LOOKS {
            if asked.is_ok() {
                break;
            }
            (self.pause)();
            asked = (self.ask)(&command);
        }
        asked.map_err(|refused| self.fail(plan.topology, refused))?;
        self.join_domain(plan)
    }

    /// Sets the domain at its switch again, which a restarted switch has lost; a restarted host enumerates first.
    ///
    /// # Errors
    /// The host fails to.
    pub fn come_back(&self, plan: Plan<'_>) -> Result<(), BringupError> {
        let status =
            (self.ask)(&Command::Status {}).map_err(|refused| self.fail(plan.topology, refused))?;
        match status {
            Answer::Status(status) if status.detail.get("enumerated") == Some(&false.into()) => {
                self.enumerate(plan)
            }
            _ => self.join_domain(plan),
        }
    }

    /// Maps the memory that the host and its devices were given, and exports its own memory to others. Anything else in
    /// its GAE's tables is unmapped.
    ///
    /// # Errors
    /// A grant does not fit, or the host's GAE refuses.
    pub fn map(&self, plan: Plan<'_>, given: &MemoryGrants) -> Result<(), BringupError> {
        let Plan { topology, layout } = plan;
        if !layout.has_edge(self.at) {
            return Ok(());
        }
        let granted = Granted::new(plan, &given.gim, &given.p2p);
        let ranges = exports(self.at, &granted);
        // With transfers the engine decides which registered memory is shown, so its window takes the place of exports.
        let transfers = topology.hosts.get(self.at).is_some_and(|it| it.enable_use_fabric_mem);
        let shown = if transfers { self.window(ranges) } else { self.export(ranges) };
        shown.map_err(|refused| self.fail(topology, refused))?;
        let edges = layout.edges(self.at);
        let is_far = edges.iter().any(|edge| edge.below.is_some());
        let tree = if is_far { Some(self.tree(topology)?) } else { None };
        for &edge in &edges {
            let block = match (edge.below, &tree) {
                (Some(_), Some(tree)) => match mailbox(tree, edge.below) {
                    Some(block) => Some(block),
                    None => continue, // no link leads there
                },
                _ => None,
            };
            self.map_edge(topology, &given.shares, &granted, edge, block)?;
        }
        self.map_direct(plan, &granted, &given.ids)
    }

    /// Sets the FAST of one bridge; `block` is the mailbox of its virtual switch.
    fn map_edge(
        &self,
        topology: &Topology,
        shares: &[ShareRow],
        granted: &Granted,
        Edge { vppb, part, .. }: Edge,
        block: Option<Num>,
    ) -> Result<(), BringupError> {
        let output = self.gae(topology, Opcode::GET_FAST_CAPS, vec![vppb, 0, 0, 0], block)?;
        let caps = FastCaps::parse(&output);
        let caps = caps.map_err(|error| self.unread(topology, vppb, &error))?;
        let pids: Vec<u16> = caps.pids.iter().map(Pid::bits).collect();
        let mut regions = part.map_or_else(Vec::new, |part| gim_regions(part, granted));
        regions.extend(self::regions(&pids, shares));
        // An allowed prefix is on at all ports of a virtual switch until the host sets a port otherwise.
        let prefix = part.map(|part| prefixes(part, granted)).unwrap_or_default();
        // Nothing to map and nothing mapped: leave the table alone.
        if regions.is_empty() && caps.limit == Hpa(0) && caps.prefix == prefix {
            return Ok(());
        }
        let commands = fast_tables::commands(vppb, &regions, prefix)
            .map_err(|source| self.no_map(topology, source))?;
        for (opcode, input) in commands {
            self.gae(topology, opcode, input, block)?;
        }
        Ok(())
    }

    /// The error for a response that cannot be parsed.
    pub(super) fn unread(
        &self,
        topology: &Topology,
        vppb: u8,
        error: &dyn std::fmt::Display,
    ) -> BringupError {
        let text = format!("its GAE does not report vPPB {vppb}: {error}");
        self.fail(topology, Refused::because(text))
    }

    fn export(&self, ranges: Vec<Export>) -> Result<(), Refused> {
        (self.ask)(&Command::Export { ranges }).map(drop)
    }

    /// Sets the window in which the host shows the memory that it registers for transfers.
    fn window(&self, ranges: Vec<Export>) -> Result<(), Refused> {
        let mut from = Vec::new();
        let mut place: Option<(Num, Num)> = None;
        for range in ranges {
            if place.is_some_and(|place| place != (range.base, range.len)) {
                let text = "with enable_use_fabric_mem all GIM of a host is one range: release what has another one";
                return Err(Refused::because(text));
            }
            place = Some((range.base, range.len));
            from.extend(range.from);
        }
        let (base, len) = place.unwrap_or_default(); // an empty window ends all access
        let window = MemCommand::Window { base, len, from };
        (self.ask)(&Command::Mem(window)).map(drop)
    }

    /// Sends a command to a mailbox, that of its GAE by default, and returns the output.
    pub(super) fn gae(
        &self,
        topology: &Topology,
        opcode: Opcode,
        input: Vec<u8>,
        block: Option<Num>,
    ) -> Result<Vec<u8>, BringupError> {
        let (number, input) = (Num(opcode.0.into()), Hex(input));
        let command = Command::Gae { opcode: number, input, block, timeout_ms: COMMAND_MS };
        match (self.ask)(&command).map_err(|refused| self.fail(topology, refused))? {
            Answer::Response { code: 0, output, .. } => Ok(output.0),
            other => {
                let how = match other {
                    Answer::Response { code, name, .. } => format!("{name} ({code:#06x})"),
                    _ => "no response of a mailbox".to_owned(),
                };
                let text = format!(
                    "its GAE refuses {:04x}h: {how}; is this the topology file of the fabric that runs?",
                    opcode.0
                );
                Err(self.fail(topology, Refused::because(text)))
            }
        }
    }
}

/// The fabric manager's grants of memory, GIM and P2P.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct MemoryGrants {
    /// Shares of GFD memory.
    pub shares: Vec<ShareRow>,
    /// Memory of hosts and devices (GIM).
    pub gim: Vec<GimRow>,
    /// Memory devices that others access directly (P2P).
    #[serde(default)]
    pub p2p: Vec<P2pRow>,
    /// Ids of P2P requesters, by name.
    #[serde(default)]
    pub ids: BTreeMap<String, Id>,
}

impl MemoryGrants {
    /// Fetches the grants from the fabric manager by `ask`.
    ///
    /// # Errors
    /// Errors of `ask`.
    pub fn by<E>(mut ask: impl FnMut(&Request) -> Result<Response, E>) -> Result<Self, E> {
        let mut given = Self::default();
        if let Response::Memory(shares) = ask(&Request::Memory)? {
            given.shares = shares;
        }
        if let Response::Gim(rows) = ask(&Request::Gim)? {
            given.gim = rows;
        }
        if let Response::P2p(rows) = ask(&Request::P2p)? {
            given.p2p = rows;
        }
        Ok(given)
    }

    /// Checks that hosts can map everything.
    ///
    /// # Errors
    /// The grants that they cannot map, with advice.
    pub fn all_mapped(&self, plan: Plan<'_>) -> Result<(), BringupError> {
        let left = Granted::new(plan, &self.gim, &self.p2p).left;
        if left.is_empty() { Ok(()) } else { Err(BringupError::Left(left)) }
    }

    /// Like [`Self::by`], but waits while grants wait for domains that hosts have just set.
    ///
    /// # Errors
    /// Errors of `ask`.
    pub fn settled<E>(
        mut ask: impl FnMut(&Request) -> Result<Response, E>,
        pause: impl Fn(),
    ) -> Result<Self, E> {
        let mut given = Self::by(&mut ask)?;
        for _ in 0..SETTLE_LOOKS {
            if given.p2p.iter().all(|row| row.state != P2pState::Waits) {
                break;
            }
            pause();
            given = Self::by(&mut ask)?;
        }
        Ok(given)
    }
}

/// GIM that a host or device accesses through the FAST of its edge port.
fn gim_regions(part: Part, granted: &Granted) -> Vec<Region> {
    let own = granted.gim.iter().filter(|gim| !gim.prefix && gim.from.contains(&part));
    let region = |gim: &GrantedGim| Region {
        hpa: gim.hpa,
        len: gim.len,
        granularity: 0,
        targets: vec![gim.pid],
        gim: true,
    };
    let mut regions: Vec<Region> = Vec::new();
    for region in own.map(region) {
        // Memory of one target under several names is in one segment.
        if !regions.iter().any(|other| other.hpa == region.hpa) {
            regions.push(region);
        }
    }
    regions
}

/// Directions of `VendPrefixL0` at the edge port of a host or device: `out` if it shows memory, `into` if it names
/// targets.
fn prefixes(part: Part, granted: &Granted) -> PrefixFlags {
    PrefixFlags {
        out: granted.gim.iter().any(|gim| gim.of == part && !gim.pids.is_empty()),
        into: granted.gim.iter().any(|gim| gim.prefix && gim.from.contains(&part)),
    }
}

/// Memory that a host exports to others.
fn exports(host: usize, granted: &Granted) -> Vec<Export> {
    let own = granted.gim.iter().filter(|gim| gim.of == Part::Host(host) && !gim.pids.is_empty());
    let range = |gim: &GrantedGim| Export {
        base: Num(gim.hpa),
        len: Num(gim.len),
        local: Num(MEMORY_BASE),
        from: gim.pids.clone(),
    };
    own.map(range).collect()
}

/// Shares of the requester with these PIDs.
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

#[cfg(test)]
mod tests {
    use std::cell::RefCell;

    use serde_json::{Value, json};

    use super::*;
    use crate::endpoint::command::Status;
    use crate::fabric::topology_file;

    /// docs/fabric.md: a host whose process was restarted knows no devices and mailboxes until it has enumerated.
    #[test]
    fn a_host_that_was_started_again_looks_for_its_devices_first() {
        let text =
            "switch = [{ name = \"sw\" }]\nhost = [{ name = \"h\", at = \"sw\", domain = \"d\" }]";
        let (topology, layout) = topology_file::read(text).unwrap();
        let asked = |detail: Value| {
            let commands = RefCell::new(Vec::new());
            let ask = |command: &Command| {
                commands.borrow_mut().push(command.clone());
                Ok(match command {
                    Command::Status {} => {
                        let (kind, name) = ("host".to_owned(), "h".to_owned());
                        let detail = detail.clone();
                        Answer::Status(Box::new(Status { kind, name, detail, ..Status::default() }))
                    }
                    Command::Gae { .. } => Answer::Response {
                        code: 0,
                        name: String::new(),
                        vendor: 0,
                        output: Hex(vec![1]),
                    },
                    _ => Answer::Done,
                })
            };
            let host = Host { at: 0, ask: &ask, pause: &|| () };
            host.come_back(Plan { topology: &topology, layout: &layout }).unwrap();
            let looked = |it: &Command| matches!(it, Command::Enumerate { .. });
            let told = |it: &Command| matches!(it, Command::Gae { .. });
            let commands = commands.into_inner();
            (commands.iter().position(looked), commands.iter().position(told))
        };
        assert_eq!(asked(json!({ "enumerated": false })), (Some(1), Some(2)));
        assert_eq!(asked(json!({ "enumerated": true })), (None, Some(1)), "not for nothing");
    }
}
