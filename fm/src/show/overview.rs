//! Rows of an overview of a fabric: components, names, bindings, links and their use.
//!
//! Rows are made from an [`Inventory`], tables and [`Bindings`]; `service/overview.rs` reads the rest from components.
//!
//! Source: docs/spec/cxl-fabric.md "The fabric manager"; docs/fm-socket.md "Answers".

use serde::{Deserialize, Serialize};
use weft_parsers::fabric::Pid;

use crate::cci::segment_tables::SegmentTable;
use crate::components::bind::{Bindings, Bridge};
use crate::components::cdat::rate_mbps;
use crate::model::graph::{Graph, Key, PortMask, PortRef, SwitchId};
use crate::model::inventory::{Inventory, TargetKind};
use crate::plan::tables::{SwitchTables, Tables};
use crate::plan::way;

/// Data read from a component, or the reason why it was not.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Asked<T> {
    Read(T),
    /// Why it could not be read, in words.
    NotRead(String),
}

/// Name of a switch, or of the component at one of its ports.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct NameRow {
    pub switch: SwitchId,
    /// `None` for the switch itself.
    pub port: Option<u8>,
    pub name: String,
}

/// A link between switches, and the number of PIDs routed over it.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct LinkRow {
    pub ends: [PortRef; 2],
    pub down: bool,
    /// Capacity of its lanes in each direction, MB/s; 0 if unknown.
    pub bandwidth_mbps: u64,
    /// By end: number of DPIDs whose static messages leave that switch by this link.
    pub dpids: [u16; 2],
    /// By end: number of other DPIDs whose routing group has this link, so that UIO requests may take it.
    pub group_dpids: [u16; 2],
    /// By end: load of the link from there; `None` until it has been counted twice.
    #[serde(default)]
    pub load: [Option<LinkLoad>; 2],
}

/// Load of a link in one direction.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct LinkLoad {
    pub bps: u64,
    /// Length of the averaging interval, which ends at the last look.
    pub over_ms: u64,
}

impl LinkLoad {
    /// Text such as `1.5 Mbit/s over 1000 ms`.
    #[must_use]
    pub fn text(self) -> String {
        let Self { bps, over_ms } = self;
        let (unit, of) = match bps {
            1_000_000_000.. => ("Gbit/s", 1_000_000_000),
            1_000_000.. => ("Mbit/s", 1_000_000),
            _ => ("kbit/s", 1_000),
        };
        // In 128 bits: ten times a rate may not fit 64.
        let tenths = u128::from(bps) * 10 / of;
        format!("{}.{} {unit} over {over_ms} ms", tenths / 10, tenths % 10)
    }
}

/// State of a binding.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum BindingState {
    Bound,
    /// A virtual link that was unbound for lack of a path, and is bound again when there is one.
    NoWay,
    /// A binding that its switch has lost, and that could not be made again yet.
    Lost,
}

/// A binding, and its use.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct BindingUse {
    /// Bridge of the binding: the vPPB of a host's hierarchy, or the vDSP of a virtual link.
    pub bridge: Bridge,
    pub state: BindingState,
    /// Port of the host in whose hierarchy it is, if it is in one.
    pub host: Option<PortRef>,
    /// Port of the device, for a binding within one switch.
    pub port: Option<PortRef>,
    /// Logical device; `None` for a whole device.
    pub ld: Option<u16>,
    /// vUSP, for a virtual link.
    pub below: Option<Bridge>,
    /// For a virtual link: both ends of each link on the path of static messages from the host's switch.
    pub path: Vec<PortRef>,
}

/// A range of addresses.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct AddressRange {
    pub base: u64,
    pub size: u64,
}

/// Addresses of the fabric that a host, or a device that makes requests of its own, can reach.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct AddressMap {
    pub pid: u16,
    pub at: PortRef,
    /// Whether it is a host.
    pub host: bool,
    pub vcs: u8,
    /// Bridge that its requests enter by.
    pub vppb: u8,
    /// Addresses that its host uses itself, by the wanted state or as weft's hosts have them.
    pub own: Vec<AddressRange>,
    /// FAST, with the window from `FabricBase` to `FabricLimit`.
    pub fast: Asked<SegmentTable>,
    pub ldst: Asked<SegmentTable>,
    /// PIDs of LD-FAM ports that its edge lets it reach (LAV).
    pub lav: Asked<Vec<u16>>,
}

/// Load of a GFD's port, as the GFD reports it.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct GfdLoad {
    pub pid: u16,
    /// Average backpressure in percent (4910h).
    pub backpressure_percent: Asked<u8>,
}

/// All links, with the number of DPIDs routed over each by the tables of the switches.
#[must_use]
pub fn links(inventory: &Inventory, tables: &Tables) -> Vec<LinkRow> {
    let counts: Vec<_> = inventory
        .by_id()
        .map(|(id, _)| tables.get(id).map(dpids_by_port).unwrap_or_default())
        .collect();
    let row = |&ends: &[PortRef; 2]| {
        let rate = |at: PortRef| {
            let port = inventory.switch(at.switch).and_then(|switch| switch.port(at.port));
            port.map_or(0, rate_mbps)
        };
        let count = |at: PortRef| {
            let of = counts.get(at.switch.index()).and_then(|of| of.get(usize::from(at.port)));
            of.copied().unwrap_or((0, 0))
        };
        let [one, other] = ends.map(count);
        LinkRow {
            ends,
            down: inventory.down.contains(&ends),
            // The slower end limits both directions.
            bandwidth_mbps: ends.map(rate).into_iter().min().unwrap_or(0),
            dpids: [one.0, other.0],
            group_dpids: [one.1, other.1],
            load: [None; 2],
        }
    };
    inventory.links.iter().map(row).collect()
}

/// For each port of a switch: DPIDs whose static messages leave by it, and others whose group has it.
fn dpids_by_port(switch: &SwitchTables) -> Vec<(u16, u16)> {
    let mut counts = vec![(0, 0); 256];
    for to in (0..).map_while(Pid::assignable) {
        let fixed = switch.static_port(to);
        for port in switch.ports(to).unwrap_or(PortMask::EMPTY).iter() {
            let Some(count) = counts.get_mut(usize::from(port)) else { continue };
            let one = if fixed == Some(port) { &mut count.0 } else { &mut count.1 };
            *one += 1;
        }
    }
    counts
}

/// All bindings: those within a switch, then virtual links.
#[must_use]
pub fn bindings(
    inventory: &Inventory,
    bindings: &Bindings,
    graph: &Graph,
    tables: &Tables,
) -> Vec<BindingUse> {
    let host = |bridge: Bridge| {
        // A switch below a virtual link is part of the hierarchy of the host at its other end.
        let above = bindings.links().find(|link| same_vcs(link.below.bridge, bridge));
        host_port(inventory, above.map_or(bridge, |link| link.host.bridge))
    };
    let mut all = Vec::new();
    for (state, list) in
        [(BindingState::Bound, &bindings.local), (BindingState::Lost, &bindings.lost)]
    {
        all.extend(list.iter().map(|local| BindingUse {
            bridge: local.bridge,
            state,
            host: host(local.bridge),
            port: Some(PortRef::new(local.bridge.switch, local.port)),
            ld: local.ld,
            below: None,
            path: Vec::new(),
        }));
    }
    for (state, list) in
        [(BindingState::Bound, &bindings.remote), (BindingState::NoWay, &bindings.cut)]
    {
        all.extend(list.iter().map(|link| BindingUse {
            bridge: link.host.bridge,
            state,
            host: host(link.host.bridge),
            port: None,
            ld: None,
            below: Some(link.below.bridge),
            path: way(graph, tables, link.host.bridge.switch, link.below.pid).unwrap_or_default(),
        }));
    }
    all
}

fn same_vcs(one: Bridge, other: Bridge) -> bool {
    (one.switch, one.vcs) == (other.switch, other.vcs)
}

/// Port of the host that the virtual switch of a bridge belongs to.
fn host_port(inventory: &Inventory, bridge: Bridge) -> Option<PortRef> {
    let targets = &inventory.switch(bridge.switch)?.targets;
    let is_it =
        |t: &&crate::model::inventory::Target| t.kind == TargetKind::Host && t.vcs == bridge.vcs;
    targets.iter().find(is_it).map(|target| PortRef::new(bridge.switch, target.port))
}
