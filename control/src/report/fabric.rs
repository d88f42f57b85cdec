//! The switch that routes TLPs, as its managers see it; and where an address or a PID leads in it.
//!
//! [`FabricReport`] is for `weft show fabric`; [`edge`] and [`route`] give the steps of a lookup as JSON. Addresses are
//! `0x` and hexadecimal digits, PIDs three such digits.
//!
//! Source: docs/spec/cxl-fabric.md "Ingress at an edge", "Inside: DRT".

use std::collections::BTreeMap;

use serde::{Deserialize, Serialize};
use serde_json::{Value, json};
use weft_cxl::cci::Component;
use weft_cxl::mctp::MctpCounts;
use weft_dataplane::pbr::explain::{EdgeSteps, RouteSteps, SegmentSteps};
use weft_dataplane::pbr::tables::Assigned;
use weft_dataplane::pbr::{Dispatch, Refusal, Tables, Verdict};
use weft_dataplane::types::PortId;
use weft_parsers::fabric::{DrtEntry, Pid, Target};
use weft_pbr_switch::{self as pbr_switch, Bound, Role};

/// Counters of the thread of a switch's agent.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct AgentCounts {
    pub turns: u64,
    /// Times that changed tables were put in force.
    pub published: u64,
    pub links: u64,
    /// Counters of the functions themselves.
    pub functions: pbr_switch::AgentCounts,
}

/// Counters of the listener that managers connect to.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct CciCounts {
    pub open: u64,
    pub accepted: u64,
    /// Connections that were refused: too many, or of another user.
    pub refused: u64,
    /// Connections that had to go for others.
    pub evicted: u64,
    /// Connections that were closed for a missed deadline: idle, a request that does not end, answers not taken.
    pub overdue: u64,
    /// Connections without a certificate that names a right.
    pub denied: u64,
    /// Connections that were closed because their stream was out of step.
    pub malformed: u64,
    /// Messages that were no requests.
    pub ignored: u64,
}

/// Counters of the listener for MCTP, and of packets and messages.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct MctpReport {
    pub open: u64,
    pub accepted: u64,
    /// Connections that were refused: too many.
    pub refused: u64,
    /// Connections that had to go for others.
    pub evicted: u64,
    /// Connections that were closed for a missed deadline: idle, half a message, answers not taken.
    pub overdue: u64,
    #[serde(flatten)]
    pub messages: MctpCounts,
}

/// Gives the name of a port.
pub type NameOf<'a> = &'a dyn Fn(PortId) -> String;

/// The CCI listener for managers.
#[derive(Clone, Debug)]
pub struct Served {
    pub at: String,
    /// How the switch tells who may command.
    pub guard: String,
    pub counts: CciCounts,
}

/// Report of the whole fabric as this switch knows it.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct FabricReport {
    /// UUID by which managers know the switch.
    pub uuid: String,
    pub serial: u64,
    /// PID of the switch; `None` before a manager owns it.
    pub pid: Option<String>,
    /// PID of the primary manager.
    pub primary: Option<String>,
    pub ports: Vec<FabricPort>,
    pub vcses: Vec<VcsReport>,
    /// PIDs that lead somewhere.
    pub drt: Vec<RouteRow>,
    /// Routing groups that a PID leads to.
    pub rgt: Vec<GroupRow>,
    /// Number of routing groups in the table.
    pub groups: u64,
    /// Refused TLPs, by port and reason.
    #[serde(default)]
    pub refused: BTreeMap<String, BTreeMap<String, u64>>,
    /// Counters of the switch's own functions.
    pub agent: AgentCounts,
    /// The last messages of GFDs that were dropped because they belong to no active command, oldest first.
    #[serde(default)]
    pub stale: Vec<String>,
    /// Address of the CCI listener.
    pub cci_at: Option<String>,
    /// How the switch tells who may command there.
    #[serde(default)]
    pub cci_guard: Option<String>,
    /// Counters of that listener.
    pub cci: CciCounts,
    /// Address of the listener for CCI over MCTP.
    #[serde(default)]
    pub mctp_at: Option<String>,
    /// Who may command there.
    #[serde(default)]
    pub mctp_guard: Option<String>,
    /// Counters of that listener.
    #[serde(default)]
    pub mctp: MctpReport,
}

/// Report of a port that carries TLPs.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct FabricPort {
    pub port: u8,
    pub name: String,
    /// `usp`, `dsp` or `fport`.
    pub role: String,
    pub link_up: bool,
    /// PIDs that it has.
    pub pids: Vec<String>,
    /// PIDs that it has room for.
    pub pids_max: u64,
    /// The last PID that its partner announced and the switch refused, as it is not the port's.
    #[serde(default)]
    pub refused_pid: Option<String>,
}

/// Report of a virtual switch.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct VcsReport {
    pub vcs: u8,
    /// Port of the host; `None` where the upstream vPPB is a vUSP.
    pub usp: Option<String>,
    /// Whether it has a GAE.
    pub gae: bool,
    /// Number of targets in the GMV: PIDs that its host may reach by G-FAM.
    pub gmv: u64,
    /// Number of targets in the VTV, for GIM.
    pub vtv: u64,
    /// Number of targets in the LAV, for LD-FAM.
    pub lav: u64,
    /// Its bridges; number 0 is the upstream one.
    pub vppbs: Vec<VppbReport>,
    /// `CacheID`s and the ports that have them, by the switch's own table and as downstream edges announced them.
    #[serde(default)]
    pub cache_ids: Vec<CacheIdReport>,
}

/// A `CacheID` of a device.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct CacheIdReport {
    /// 0 to 15.
    pub cache_id: u8,
    /// PID of the port that has it, hexadecimal.
    pub port: String,
    /// PID of the downstream edge that announced it; empty for the switch's own table.
    pub edge: String,
}

#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct VppbReport {
    pub vppb: u8,
    /// Binding: `-`, `port p1`, `port p1 ld 2`, `pid 00a (own 00b)`.
    pub bound: String,
    /// FAST entries: valid ones, and all.
    pub fast: [u64; 2],
    /// IDT places of the FAST: those that hold a PID, and all.
    pub fast_idt: [u64; 2],
    /// LDST entries: valid ones, and all.
    pub ldst: [u64; 2],
    /// IDT places of the LDST: those that hold a PID, and all.
    pub ldst_idt: [u64; 2],
}

/// Where a PID leads.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct RouteRow {
    pub dpid: String,
    /// `port p1`, `group 3`, or `here`.
    pub to: String,
}

#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct GroupRow {
    pub group: u8,
    /// Its ports, the primary ones first.
    pub ports: Vec<String>,
    /// How many of its ports are primary.
    pub primary: u8,
}

impl FabricReport {
    /// Report of the switch of `functions`; `served` is its CCI listener.
    #[must_use]
    pub fn new(
        functions: &pbr_switch::Agent,
        name: NameOf<'_>,
        agent: AgentCounts,
        served: Option<Served>,
    ) -> Self {
        let switch = functions.switch();
        let config = switch.config();
        let ownership = &switch.common().ownership;
        let stale = functions.stale_log().map(|(vcs, one)| format!("virtual switch {vcs}: {one}"));
        let ports = config.ports.iter().filter_map(|port| switch.port(port.port));
        let vcses = (0..=u8::MAX).take(config.vcses.len());
        let (cci_at, cci_guard, cci) = match served {
            Some(Served { at, guard, counts }) => (Some(at), Some(guard), counts),
            None => (None, None, CciCounts::default()),
        };
        let drt = routes(switch.tables(), name);
        Self {
            uuid: uuid(config.uuid),
            serial: config.identity.serial,
            pid: shown(ownership.pid()),
            primary: ownership.primary().and_then(|fm| shown(fm.pid)),
            ports: ports.map(|port| of_port(port, name)).collect(),
            vcses: vcses.filter_map(|vcs| of_vcs(switch, vcs, name)).collect(),
            rgt: groups(switch.tables(), name),
            drt,
            groups: switch.tables().routes().groups() as u64,
            refused: BTreeMap::new(),
            agent,
            stale: stale.collect(),
            cci_at,
            cci_guard,
            cci,
            mctp_at: None,
            mctp_guard: None,
            mctp: MctpReport::default(),
        }
    }
}

/// Refusals at one port by reason; `counts` are in the order of [`Refusal::ALL`].
#[must_use]
pub fn refusals(counts: &[u64]) -> BTreeMap<String, u64> {
    let named = Refusal::ALL.iter().zip(counts).filter(|(_, count)| **count > 0);
    named.map(|(refusal, &count)| (refusal.name().to_owned(), count)).collect()
}

fn shown(pid: Pid) -> Option<String> {
    (!pid.is_none()).then(|| hex(pid))
}

fn hex(pid: Pid) -> String {
    format!("{:03x}", pid.bits())
}

/// A UUID in its usual form, 8-4-4-4-12 digits.
fn uuid(bytes: [u8; 16]) -> String {
    let digits = format!("{:032x}", u128::from_be_bytes(bytes));
    let mut text = String::new();
    for (at, digit) in digits.chars().enumerate() {
        if matches!(at, 8 | 12 | 16 | 20) {
            text.push('-');
        }
        text.push(digit);
    }
    text
}

fn of_port(port: &pbr_switch::Port, name: NameOf<'_>) -> FabricPort {
    let role = match port.role {
        Role::Usp => "usp",
        Role::Dsp => "dsp",
        Role::Fabric => "fport",
    };
    FabricPort {
        port: port.id.get(),
        name: name(port.id),
        role: role.to_owned(),
        link_up: port.link.is_some(),
        pids: port.pids.iter().copied().filter_map(shown).collect(),
        pids_max: port.pids.len() as u64,
        refused_pid: port.refused.and_then(|told| shown(told.far.pid)),
    }
}

fn of_vcs(switch: &pbr_switch::Switch, vcs: u8, name: NameOf<'_>) -> Option<VcsReport> {
    let state = switch.vcs(vcs)?;
    let count = |vector: &weft_dataplane::pbr::AccessVector| vector.iter().count() as u64;
    let vppbs = (0..=u8::MAX).zip(&state.vppbs).map(|(at, vppb)| {
        let used = |table: &weft_dataplane::pbr::segments::Segments| {
            let entries = (0..table.len()).filter(|&at| table.get(at).is_some()).count();
            let places = (0..table.idt_len()).filter_map(|at| table.idt(at));
            let places = places.filter(|pid| !pid.is_none()).count();
            let [len, idt] = [table.len(), table.idt_len()];
            ([entries as u64, len as u64], [places as u64, idt as u64])
        };
        let (fast, fast_idt) = used(vppb.tables.fast().segments());
        let (ldst, ldst_idt) = used(vppb.tables.ldst().segments());
        let bound = bound(vppb.bound, name);
        VppbReport { vppb: at, bound, fast, fast_idt, ldst, ldst_idt }
    });
    let cache_ids = state.cache_ids.iter().map(|(cache_id, port, edge)| CacheIdReport {
        cache_id,
        port: hex(port),
        edge: hex(edge),
    });
    let own = state.own_cache_ids().map(|(cache_id, port, _)| CacheIdReport {
        cache_id,
        port: hex(port),
        edge: String::new(),
    });
    let mut cache_ids: Vec<CacheIdReport> = cache_ids.chain(own).collect();
    cache_ids.sort_by_key(|it| it.cache_id);
    Some(VcsReport {
        vcs,
        usp: state.usp.map(name),
        gae: state.gae.is_some(),
        gmv: count(&state.access.gmv),
        vtv: count(&state.access.vtv),
        lav: count(&state.access.lav),
        vppbs: vppbs.collect(),
        cache_ids,
    })
}

fn bound(bound: Bound, name: NameOf<'_>) -> String {
    match bound {
        Bound::No => "-".to_owned(),
        Bound::Port(port) => format!("port {}", name(port)),
        Bound::Ld(port, ld) => format!("port {} ld {ld}", name(port)),
        Bound::Pid(pid) => {
            let own = pid.own.map_or_else(|| "none".to_owned(), hex);
            let down = if pid.up { "" } else { ", path down" };
            format!("pid {} (own {own}{down})", hex(pid.far))
        }
    }
}

fn routes(tables: &Tables, name: NameOf<'_>) -> Vec<RouteRow> {
    // FFFh means "no PID", so it leads nowhere.
    let pids = (0..0xFFF).map(Pid::from_low_bits);
    let row = |dpid: Pid| {
        let to = match tables.routes().lookup(dpid).ok()? {
            Dispatch::Here => "here".to_owned(),
            Dispatch::Port(port) => format!("port {}", name(port)),
            Dispatch::Group(group) => format!("group {group}"),
        };
        Some(RouteRow { dpid: hex(dpid), to })
    };
    pids.filter_map(row).collect()
}

fn groups(tables: &Tables, name: NameOf<'_>) -> Vec<GroupRow> {
    let pids = (0..0xFFF).map(Pid::from_low_bits);
    let mut used: Vec<u8> = pids
        .filter_map(|pid| match tables.routes().drt(pid) {
            DrtEntry::Group(group) => Some(group),
            _ => None,
        })
        .collect();
    used.sort_unstable();
    used.dedup();
    let row = |group: u8| {
        let entry = tables.routes().rgt(group.into())?;
        let ports = entry.ports().iter().map(|&port| name(PortId::from_low_bits(port)));
        // The RGT stores the number less one.
        Some(GroupRow { group, ports: ports.collect(), primary: entry.primary + 1 })
    };
    used.into_iter().filter_map(row).collect()
}

/// Steps of an address at an edge port, as JSON.
#[must_use]
pub fn edge(steps: &EdgeSteps, name: NameOf<'_>) -> Value {
    json!({
        "role": format!("{:?}", steps.role).to_lowercase(),
        "spid": hex(steps.pid),
        "vcs": steps.vcs.map(|(vcs, _)| vcs),
        "fast": of_segment(&steps.fast),
        "gmv": steps.gmv,
        "vtv": steps.vtv,
        "ldst": of_segment(&steps.ldst),
        "lav": steps.lav,
        "memory": of_verdict(&steps.memory, name),
        "uio": of_verdict(&steps.uio, name),
    })
}

fn of_segment(steps: &SegmentSteps) -> Value {
    let address = |address: u64| format!("{address:#x}");
    json!({
        "base": address(steps.base.0),
        "limit": address(steps.limit.0),
        // The size field of a segment counts powers of two from 64 GiB.
        "segment_bytes": 1_u64 << (36 + u32::from(steps.size)),
        "index": steps.index,
        "entry": steps.entry.map(|entry| json!({
            "flag": entry.flag,
            "ways": entry.interleave.ways(),
            "granularity": entry.interleave.granularity(),
            "dpid": match entry.target { Target::Direct(pid) => Some(hex(pid)), Target::Interleaved(_) => None },
            "idt": match entry.target { Target::Interleaved(first) => Some(first), Target::Direct(_) => None },
        })),
        "way": steps.way.map(|way| json!({
            "way": way.way, "place": way.place, "dpid": way.dpid.map(hex),
        })),
    })
}

fn of_verdict(verdict: &Verdict, name: NameOf<'_>) -> Value {
    match *verdict {
        Verdict::Fabric { header, segment, .. } => json!({
            "fabric": {
                "spid": hex(header.spid), "dpid": hex(header.dpid), "pif": header.pif,
                "hie": header.hie, "dsar": header.dsar, "segment": segment,
            }
        }),
        Verdict::Port { port, ld, .. } => json!({ "port": name(port), "ld": ld }),
        Verdict::UnsupportedRequest(refusal) => json!({ "unsupported": refusal.name() }),
        Verdict::UnexpectedCompletion(refusal) => json!({ "unexpected": refusal.name() }),
        Verdict::Drop(refusal) => json!({ "drop": refusal.name() }),
        Verdict::Internal(_) => json!("internal"),
        Verdict::Broadcast => json!("broadcast"),
        Verdict::Gather => json!("gather"),
        Verdict::Here => json!("here"),
    }
}

/// Steps of a PID, as JSON.
#[must_use]
pub fn route(dpid: Pid, steps: &RouteSteps, name: NameOf<'_>) -> Value {
    let (port, group) = match steps.entry {
        DrtEntry::Port(port) => (Some(name(PortId::from_low_bits(port))), None),
        DrtEntry::Group(group) => (None, Some(group)),
        DrtEntry::Invalid => (None, None),
    };
    let of_group = steps.group.map(|group| {
        let ports = group.ports().iter().map(|&port| name(PortId::from_low_bits(port)));
        ports.collect::<Vec<_>>()
    });
    json!({
        "dpid": hex(dpid),
        "assigned": steps.assigned.map(|to| match to {
            Assigned::Switch => "switch".to_owned(),
            Assigned::Port(port) => format!("port {}", name(port)),
        }),
        "port": port,
        "group": group,
        "group_ports": of_group,
        "here": steps.found == Ok(Dispatch::Here),
        "refusal": steps.found.err().map(weft_dataplane::pbr::Refusal::name),
    })
}
