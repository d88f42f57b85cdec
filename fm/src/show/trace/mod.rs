//! Trace: every lookup for one address of a host or device, from its edge to the memory.
//!
//! [`trace`] takes a [`TraceContext`], the requester and an HPA, and returns a [`Trace`]: a [`Step`] for each table,
//! and its [`End`].
//!
//! The tables themselves are read, not the manager's plans. Only FAST and its IDT cannot be read by a manager: they are
//! reported to their host alone, through its GAE. Where the manager has no session there, the step uses the share or
//! the GIM that the manager gave, and says so.
//!
//! Source: docs/spec/wire-formats.md §4.5 to §4.7, §5.1 to §5.3; CXL 3.1 sections 7.7.2.3 to 7.7.2.5;
//! docs/spec/cxl-fabric.md "The fabric manager".

mod device;
mod edge;
mod ldfam;
mod path;
mod target;

use std::collections::BTreeMap;
use std::fmt;

use serde::{Deserialize, Serialize};
use weft_parsers::fabric::{Hpa, Pid};

use crate::cci::{CallError, CciSession};
use crate::components::gim::Gim;
use crate::components::memory::{Host, Memory};
use crate::components::p2p::P2p;
use crate::model::inventory::Inventory;
use crate::state::names::Requester;

/// Kind of the requests that are traced.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Via {
    #[default]
    Uio,
    /// Loads and stores of a host by CXL.mem.
    CxlMem,
}

/// The fabric, its inventory and the manager's records, for a trace.
pub struct TraceContext<'a> {
    pub fabric: &'a mut CciSession,
    /// Sessions with hosts' GAEs, by the host's name.
    pub gaes: BTreeMap<String, &'a mut CciSession>,
    /// Name of the host whose GAE has the tables of the requester.
    pub gae: Option<String>,
    /// Hosts and bound devices.
    pub edges: Vec<Edge>,
    /// Logical devices, and the number of each in its device.
    pub lds: Vec<(Edge, u16)>,
    /// Bridge that the requests enter by; 0 is a host's own.
    pub vppb: u8,
    pub inventory: &'a Inventory,
    pub memory: &'a Memory,
    pub gim: &'a Gim,
    pub p2p: &'a P2p,
}

/// A host or bound device.
#[derive(Clone, Debug)]
pub struct Edge {
    pub at: Requester,
    /// Name of the host whose GAE has the tables of its bridge.
    pub gae: Option<String>,
    /// PID of the host in whose hierarchy it is.
    pub host: Option<Pid>,
}

/// One lookup on the path of a request, and its result.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Step {
    pub at: String,
    pub table: String,
    /// Whether the table itself was read.
    pub asked: bool,
    /// The result, in words.
    pub found: String,
}

/// End of a request's path.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum End {
    /// At memory that the requester may use.
    Memory,
    /// At memory of another host or its device (GIM).
    Host,
    /// Outside the fabric's addresses: the host's own hierarchy routes it.
    Hierarchy,
    /// Refused by a table; the text says how the host sees that.
    Refused(String),
    /// A table on the path cannot be read.
    Unknown(String),
}

/// The path of a request for one address: every lookup and hop.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Trace {
    /// Source PID of the request: its host's or device's.
    pub spid: u16,
    pub hpa: u64,
    /// The lookups, in order.
    pub steps: Vec<Step>,
    /// Destination that the edge chose.
    pub dpid: Option<u16>,
    /// Links taken by static messages, each as its two ends.
    pub hops: Vec<String>,
    /// Other links that a routing group may choose for UIO, each as its two ends.
    #[serde(default)]
    pub others: Vec<String>,
    /// Address in the device.
    pub dpa: Option<u64>,
    pub end: End,
}

/// Why a trace ends before all lookups.
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

/// Traces a request for an address through every table on its path.
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
    let mut walk = TraceWalk { asked, host, hpa, via, trace };
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

struct TraceWalk<'a> {
    asked: TraceContext<'a>,
    host: Host,
    hpa: Hpa,
    via: Via,
    trace: Trace,
}

impl TraceWalk<'_> {
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

    /// Ends the trace: a switch refuses the request.
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

/// Destination that the edge sends a request to.
struct Target {
    dpid: Pid,
    kind: Reached,
}

/// Owner of the memory that a request is to reach.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Reached {
    /// A GFD.
    Gfd,
    /// Another host, or a device of it (GIM).
    Owner,
    /// A memory device (LD-FAM).
    MemoryDevice,
}
