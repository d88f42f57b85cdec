//! Rows of an overview of a fabric: what there is, how it is called, who has what, and over which links it goes.
//!
//! [`Inventory`], tables, [`Bindings`] -> rows of an overview; `service/overview.rs` asks for the rest.
//!
//! Units: bytes; MB/s; DPIDs.
//! Source: docs/spec/cxl-fabric.md "The fabric manager"; docs/fm-socket.md "Answers".

use serde::{Deserialize, Serialize};
use weft_parsers::fabric::Pid;

use super::bind::{Bindings, Bridge};
use super::cdat::rate_mbps;
use super::change::way;
use super::graph::{Graph, Key, PortMask, PortRef, SwitchId};
use super::inventory::{Inventory, TargetKind};
use super::routes::{SwitchTables, Tables};
use super::segment_tables::SegmentTable;

/// What was asked of a component: its answer, or why there is none.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Asked<T> {
    /// What it says.
    Read(T),
    /// Why it was not read.
    NotRead(String),
}

/// The name of a switch, or of what is at one of its ports.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct NameRow {
    /// The switch.
    pub switch: SwitchId,
    /// The port; none for the switch itself.
    pub port: Option<u8>,
    /// The name.
    pub name: String,
}

/// A link between switches, and how many PIDs are routed over it.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct LinkRow {
    /// Its ends.
    pub ends: [PortRef; 2],
    /// It is down.
    pub down: bool,
    /// What its lanes carry each way, MB/s; 0: not known.
    pub bandwidth_mbps: u64,
    /// By end: DPIDs whose static messages leave the switch there, by this link.
    pub dpids: [u16; 2],
    /// By end: DPIDs of other static routes, of which UIO requests may take this link, as it is in their routing group.
    pub group_dpids: [u16; 2],
    /// By end: what goes over the link from there; none where it has not been counted twice.
    #[serde(default)]
    pub load: [Option<LinkLoad>; 2],
}

/// What goes over a link in one direction.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct LinkLoad {
    /// Bits a second.
    pub bps: u64,
    /// Average over so many ms, up to when it was asked for.
    pub over_ms: u64,
}

impl LinkLoad {
    /// `1.5 Mbit/s over 1000 ms`.
    #[must_use]
    pub fn text(self) -> String {
        let Self { bps, over_ms } = self;
        let (unit, of) = match bps {
            1_000_000_000.. => ("Gbit/s", 1_000_000_000),
            1_000_000.. => ("Mbit/s", 1_000_000),
            _ => ("kbit/s", 1_000),
        };
        let tenths = u128::from(bps) * 10 / of;
        format!("{}.{} {unit} over {over_ms} ms", tenths / 10, tenths % 10)
    }
}

/// How it is with a binding.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum BindingState {
    /// It is there.
    Bound,
    /// A virtual link that was unbound as no way is left; it is bound again when there is one.
    NoWay,
    /// Its switch has forgotten it, and could not be told again.
    Lost,
}

/// A binding, with what it leads to.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct BindingUse {
    /// The bridge that shows something: the vPPB of a host's hierarchy, or the vDSP of a virtual link.
    pub bridge: Bridge,
    /// How it is with it.
    pub state: BindingState,
    /// Port of the host whose hierarchy it is in, where it is in one.
    pub host: Option<PortRef>,
    /// Port of the device, of a binding within one switch.
    pub port: Option<PortRef>,
    /// LD of a device with several.
    pub ld: Option<u16>,
    /// The vUSP of a virtual link.
    pub below: Option<Bridge>,
    /// Of a virtual link: both ends of each link on the way of static messages from the host's switch.
    pub path: Vec<PortRef>,
}

/// Addresses, from the first on.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct AddressRange {
    /// The first.
    pub base: u64,
    /// How many.
    pub size: u64,
}

/// What a host, or a device that makes requests of its own, has of the fabric's addresses.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct AddressMap {
    /// Its PID.
    pub pid: u16,
    /// Its port.
    pub at: PortRef,
    /// It is a host.
    pub host: bool,
    /// Its virtual switch.
    pub vcs: u8,
    /// The bridge that its requests enter by.
    pub vppb: u8,
    /// What its host has for itself, as the wanted state says or as hosts of weft have it.
    pub own: Vec<AddressRange>,
    /// FAST, with the window from `FabricBase` to `FabricLimit`.
    pub fast: Asked<SegmentTable>,
    /// LDST.
    pub ldst: Asked<SegmentTable>,
    /// PIDs of ports of LD-FAM that its edge lets it reach (LAV).
    pub lav: Asked<Vec<u16>>,
}

/// How loaded a GFD says its port is.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct GfdLoad {
    /// The GFD.
    pub pid: u16,
    /// Average backpressure (4910h), percent.
    pub backpressure_percent: Asked<u8>,
}

/// All links, and how many DPIDs have a route by each, as the tables of the switches are.
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
            bandwidth_mbps: ends.map(rate).into_iter().min().unwrap_or(0),
            dpids: [one.0, other.0],
            group_dpids: [one.1, other.1],
            load: [None; 2],
        }
    };
    inventory.links.iter().map(row).collect()
}

/// By port of a switch: how many DPIDs leave by it with static messages, and how many else where their group chooses it.
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

/// The port of the host whose virtual switch a bridge is of.
fn host_port(inventory: &Inventory, bridge: Bridge) -> Option<PortRef> {
    let targets = &inventory.switch(bridge.switch)?.targets;
    let is_it = |t: &&super::inventory::Target| t.kind == TargetKind::Host && t.vcs == bridge.vcs;
    targets.iter().find(is_it).map(|target| PortRef::new(bridge.switch, target.port))
}
