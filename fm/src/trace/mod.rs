//! What becomes of one address of one host, or of a device: every lookup, from its edge to the memory.
//!
//! [`TraceContext`], (host, HPA) -> [`Trace`]: a [`Step`] for each table, and how it [`End`]s.
//!
//! Units: bytes; PIDs of 12 bits.
//! Source: docs/spec/wire-formats.md §4.5 to §4.7, §5.1 to §5.3; CXL 3.1 sections 7.7.2.3 to 7.7.2.5;
//! docs/spec/cxl-fabric.md "The fabric manager".
//!
//! The tables themselves are asked, by the commands that read them; what the FM has planned is not looked at. One table
//! cannot be asked by an FM: FAST, with its IDT, is told to its host alone, through the host's GAE. Where the FM has no
//! session there, the way is taken from the share or the GIM that the FM gave, and the step says so.

mod device;
mod edge;
mod ldfam;
mod path;
mod target;

use std::collections::BTreeMap;
use std::fmt;

use serde::{Deserialize, Serialize};
use weft_parsers::fabric::{Hpa, Pid};

use super::cci::{CallError, Fabric};
use super::gim::Gim;
use super::inventory::Inventory;
use super::memory::{Host, Memory};
use super::p2p::P2p;
use super::service::names::Requester;

/// By which kind of requests an address is reached.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Via {
    /// UIO requests.
    #[default]
    Uio,
    /// Loads and stores of a host by CXL.mem.
    CxlMem,
}

/// What a trace of an address needs: the fabric and what is known of it.
pub struct TraceContext<'a> {
    /// The components.
    pub fabric: &'a mut Fabric,
    /// Hosts' GAEs, each in a session of its host, by the host's name.
    pub gaes: BTreeMap<String, &'a mut Fabric>,
    /// The name of the host whose GAE has the tables of the requester.
    pub gae: Option<String>,
    /// Who makes requests.
    pub edges: Vec<Edge>,
    /// Logical devices, and which of their device each is.
    pub lds: Vec<(Edge, u16)>,
    /// The bridge that the requests enter by: 0 of a host's own.
    pub vppb: u8,
    /// What there is.
    pub inventory: &'a Inventory,
    /// What was given.
    pub memory: &'a Memory,
    /// What hosts and devices show each other.
    pub gim: &'a Gim,
    /// Which memory devices are accessed directly.
    pub p2p: &'a P2p,
}

/// A host or bound device.
#[derive(Clone, Debug)]
pub struct Edge {
    /// Where it is.
    pub at: Requester,
    /// The host whose GAE has the tables of its bridge.
    pub gae: Option<String>,
    /// PID of the host in whose hierarchy it is.
    pub host: Option<Pid>,
}

/// One lookup on the way of a request, and what it found.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Step {
    /// Where.
    pub at: String,
    /// In which table.
    pub table: String,
    /// Whether the table itself was asked.
    pub asked: bool,
    /// What it says.
    pub found: String,
}

/// How the way of a request ends.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum End {
    /// At memory that the host may use.
    Memory,
    /// At memory of another host, or of its device (GIM).
    Host,
    /// Not in the fabric's part of the addresses: the host's own hierarchy routes it.
    Hierarchy,
    /// A table refuses it, and the host sees what the text says.
    Refused(String),
    /// A table that would have to be asked does not answer.
    Unknown(String),
}

/// The way of a request for one address: every lookup and hop.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Trace {
    /// PID of the host: what the request comes from.
    pub spid: u16,
    /// The address.
    pub hpa: u64,
    /// The lookups, in their order.
    pub steps: Vec<Step>,
    /// Where the edge sends it.
    pub dpid: Option<u16>,
    /// Links, each as its two ends, as far as static messages go.
    pub hops: Vec<String>,
    /// Other links that a routing group may choose, for UIO: each as its two ends.
    #[serde(default)]
    pub others: Vec<String>,
    /// Where it lies in the device.
    pub dpa: Option<u64>,
    /// How it ends.
    pub end: End,
}

/// Why the lookups go no further.
enum Stop {
    End(End),
    Silent(CallError),
}

impl From<CallError> for Stop {
    fn from(error: CallError) -> Self {
        Self::Silent(error)
    }
}

fn refused<T>(why: impl Into<String>) -> Result<T, Stop> {
    Err(Stop::End(End::Refused(why.into())))
}

/// Follows a request for an address through every table on its way.
#[must_use]
pub fn trace(asked: TraceContext<'_>, host: Host, hpa: Hpa, via: Via) -> Trace {
    let trace = Trace {
        spid: host.pid.bits(),
        hpa: hpa.0,
        steps: Vec::new(),
        dpid: None,
        hops: Vec::new(),
        others: Vec::new(),
        dpa: None,
        end: End::Memory,
    };
    let mut walk = Walk { asked, host, hpa, via, trace };
    let end = match walk.all() {
        //= CXL 3.1 section 7.7.2.5: a refused load gets ones, a refused store is dropped, and both are completed
        Err(Stop::End(End::Refused(why))) if via == Via::CxlMem => {
            End::Refused(format!("{why}; a load gets MemData-NXM, and a store Cmp, without effect"))
        }
        Ok(end) | Err(Stop::End(end)) => end,
        Err(Stop::Silent(error)) => End::Unknown(error.with_causes()),
    };
    walk.trace.end = end;
    walk.trace
}

/// A trace under way.
struct Walk<'a> {
    asked: TraceContext<'a>,
    host: Host,
    hpa: Hpa,
    via: Via,
    trace: Trace,
}

impl Walk<'_> {
    fn all(&mut self) -> Result<End, Stop> {
        let Some(target) = self.edge()? else { return Ok(End::Hierarchy) };
        self.trace.dpid = Some(target.dpid.bits());
        let gfd = self.asked.inventory.gfds.iter().find(|gfd| gfd.pid == target.dpid).copied();
        self.path(target.dpid)?;
        match (gfd, target.kind) {
            (Some(gfd), _) => self.device(gfd.pid),
            (None, Reached::Owner) => self.target(target.dpid),
            (None, Reached::MemoryDevice) => self.memory_device(target.dpid),
            (None, Reached::Gfd) if self.via == Via::CxlMem => refused("no GFD is there"),
            (None, Reached::Gfd) => {
                refused("no function there decodes the address: an error completion")
            }
        }
    }

    /// A switch refuses it.
    fn unsupported<T>(&self, at: impl fmt::Display, why: impl fmt::Display) -> Result<T, Stop> {
        match self.via {
            Via::Uio => refused(format!("UR at {at}: {why}")),
            Via::CxlMem => refused(format!("refused at {at}: {why}")),
        }
    }

    fn say(&mut self, at: impl fmt::Display, table: &str, found: impl Into<String>) {
        self.note(at, table, true, found);
    }

    fn note(&mut self, at: impl fmt::Display, table: &str, asked: bool, found: impl Into<String>) {
        let (at, table, found) = (format!("{at}"), table.to_owned(), found.into());
        self.trace.steps.push(Step { at, table, asked, found });
    }
}

/// Where the edge sends a request.
struct Target {
    dpid: Pid,
    kind: Reached,
}

/// Whose memory a request is to reach.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Reached {
    /// A GFD's.
    Gfd,
    /// Another host's or its device's (GIM).
    Owner,
    /// That of a memory device (LD-FAM).
    MemoryDevice,
}
