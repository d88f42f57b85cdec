//! Queries: requests that change nothing.
//!
//! Source: docs/spec/cxl-fabric.md "The fabric manager"; docs/spec/wire-formats.md §4.1, §4.4 to §4.6.

use std::collections::BTreeMap;

use data_encoding::HEXLOWER;
use weft_parsers::cci::component::{Cdat, ReadCdat};
use weft_parsers::cci::tables::{VcsVectorRange, Vector, VectorRange};
use weft_parsers::cci::{Header, Request as Command};
use weft_parsers::fabric::{DrtEntry, Hpa, Pid};
use weft_rpc::Refused;

use super::board::StatusBoard;
use super::lds::LdRequests;
use super::partitions::Partitions;
use super::request::{
    Access, BindingRow, CciAnswer, CostRow, PartRow, PidRow, Request, Response, RouteRow, Routes,
    ShareRow, TopologyFormat,
};
use super::traffic::Traffic;
use super::{gim, p2p, refuse, with_causes};
use crate::cci::{CallError, CciSession, TransportError, Way};
use crate::components::cdat;
use crate::components::grants::Grants;
use crate::components::memory::Host;
use crate::discover::change::Running;
use crate::model::inventory::{DiscoveredSwitch, OWN_PORT, TargetKind};
use crate::model::text::{name_of, parse_pid};
use crate::show::display_names::DisplayNames;
use crate::show::overview::links;
use crate::show::trace::{Edge, TraceContext, Via, trace};
use crate::show::{picture, topology};
use crate::state::desired::DesiredState;
use crate::state::names::{self, Names, Requester};

/// Bytes of a vector with a bit for each PID.
pub(super) const VECTOR: u32 = 512;
/// Bytes of a CDAT read at once; [`CDAT_MAX`] bounds the whole.
const CDAT_PIECE: u64 = 512;
const CDAT_MAX: usize = 1 << 20;

/// Queries of a fabric that is up: they read components, and change nothing.
pub(super) struct Query<'a> {
    pub cci: &'a mut CciSession,
    /// Sessions with hosts' GAEs, by the host's name.
    pub gaes: &'a mut BTreeMap<String, CciSession>,
    pub desired: &'a DesiredState,
    pub running: &'a mut Running,
    pub grants: &'a Grants,
    pub partitions: &'a Partitions,
    pub traffic: &'a Traffic,
    pub board: &'a StatusBoard,
    /// Whether the fabric is static: its components are not asked.
    pub is_static: bool,
}

impl Query<'_> {
    fn names<T>(&self, of: impl FnOnce(Names<'_>) -> Result<T, String>) -> Result<T, Refused> {
        of(Names::new(self.desired, self.running)).map_err(Refused::bad_request)
    }

    fn lds(&mut self) -> LdRequests<'_> {
        let (cci, desired, board) = (&mut *self.cci, self.desired, self.board);
        LdRequests { cci, desired, running: self.running, board }
    }

    pub fn answer(&mut self, request: &Request) -> Result<Response, Refused> {
        match request {
            Request::Topology { drawn } => {
                let inventory = &self.running.inventory;
                let mut text = String::new();
                let called = &DisplayNames::new(self.desired, inventory);
                let drawn = match drawn {
                    TopologyFormat::Data => {
                        return Ok(Response::Inventory(Box::new(inventory.clone())));
                    }
                    TopologyFormat::Text => topology::tree(inventory, called, &mut text),
                    TopologyFormat::Dot => topology::dot(inventory, called, &mut text),
                    TopologyFormat::Svg => {
                        let mut links = links(inventory, &self.running.standing);
                        self.traffic.load_links(&mut links);
                        picture::svg(inventory, called, &links, &mut text)
                    }
                };
                drawn.map_err(refuse)?;
                Ok(Response::Topology(text))
            }
            Request::Overview => Ok(Response::Overview(Box::new(self.overview()))),
            Request::Bindings => Ok(Response::Bindings(bindings(self.running))),
            Request::Routes { prove, switch } => self.routes(*prove, switch.as_deref()),
            Request::Memory => Ok(Response::Memory(self.shares())),
            Request::Partitions => {
                Ok(Response::Partitions(self.partitions.rows(&self.grants.memory)))
            }
            Request::Lds => self.lds().rows().map(Response::Lds),
            Request::LdCapacity => self.lds().capacity().map(Response::LdCapacity),
            Request::Gim => Ok(Response::Gim(gim::rows(
                &Names::new(self.desired, self.running),
                &self.grants.gim,
            ))),
            Request::P2p => Ok(Response::P2p(p2p::rows(
                &Names::new(self.desired, self.running),
                &self.grants.p2p,
            ))),
            Request::Access { host } => {
                let host = self.names(|names| names.host(host))?;
                self.access(host).map(Response::Access).map_err(refuse)
            }
            Request::Pids => Ok(Response::Pids(pids(self.running))),
            Request::Cdat { read: None } => Ok(Response::Costs(self.costs())),
            Request::Cdat { read: Some(pid) } => {
                let pid = parse_pid(pid).map_err(Refused::bad_request)?;
                self.cdat(pid).map(Response::Bytes).map_err(refuse)
            }
            Request::Trace { host, hpa, via } => self.trace_of(host, *hpa, *via),
            _ => Err(Refused::bad_request("the request changes something: it is no query")),
        }
    }

    fn routes(&self, prove: bool, only: Option<&str>) -> Result<Response, Refused> {
        let only = only.map(|switch| self.names(|names| names.switch(switch))).transpose()?;
        let running = &*self.running;
        let (plan, mut rows, mut proof) = (&running.plan, Vec::new(), None);
        if prove {
            // The proof is of the planned tables; foreign changes at switches are found at each look instead.
            let facts = plan.proof.check(&plan.graph, &plan.routed.tables).map_err(refuse)?;
            let head = format!(
                "checked: {} channels, {} waits, none of them backwards\n",
                facts.channels, facts.waits
            );
            proof = Some(head + &plan.proof.to_string());
        } else {
            for (id, _) in running.inventory.by_id().filter(|(id, _)| only.is_none_or(|o| o == *id))
            {
                let Some(tables) = plan.routed.tables.get(id) else { continue };
                for to in (0..).map_while(Pid::assignable) {
                    let (ports, group) = match tables.drt(to) {
                        DrtEntry::Invalid | DrtEntry::Port(OWN_PORT) => continue,
                        DrtEntry::Port(port) => (vec![port], None),
                        DrtEntry::Group(group) => {
                            let ports = tables.rgt(group).map(|entry| entry.ports().to_vec());
                            (ports.unwrap_or_default(), Some(group))
                        }
                    };
                    rows.push(RouteRow { switch: id.to_string(), pid: to.bits(), ports, group });
                }
            }
        }
        let partition = plan.routed.partition.as_ref().map(ToString::to_string);
        let hops_max = plan.proof.hops_max;
        Ok(Response::Routes(Routes { rows, hops_max, proof, partition }))
    }

    pub fn shares(&self) -> Vec<ShareRow> {
        let part = |part: &crate::components::memory::Part| PartRow {
            gfd: part.gfd.bits(),
            group: part.group,
            decoder: part.decoder,
            dpa: part.dpa,
            media: self.partitions.media_of(part),
        };
        let row = |share: &crate::components::memory::Share| ShareRow {
            name: name_of(&share.tag),
            hpa: share.hpa,
            size: share.len,
            granularity: share.granularity,
            hosts: share.hosts.iter().map(|host| host.pid.bits()).collect(),
            notify: share.notify,
            parts: share.parts.iter().map(part).collect(),
        };
        self.grants.memory.shares.iter().map(row).collect()
    }

    fn access(&mut self, host: Host) -> Result<Access, CallError> {
        let switch = self.running.inventory.switch(host.switch);
        let way = switch.map_or(Way::Entry, DiscoveredSwitch::way);
        let mut vector = |start, command: fn(VcsVectorRange) -> Command<'static>| {
            let range = VectorRange { start, len: VECTOR };
            let answer = self.cci.call(way, &command(VcsVectorRange { vcs: host.vcs, range }))?;
            let bytes: Vec<u8> = answer.read::<Vector<'_>>()?.data.iter().collect();
            Ok::<_, CallError>(bits(&bytes))
        };
        Ok(Access {
            host: host.pid.bits(),
            gmv: vector(0, Command::GetVcsAccess)?,
            // One command (5901h) has both vectors, VTV behind GMV.
            vtv: vector(VECTOR, Command::GetVcsAccess)?,
            lav: vector(0, Command::GetVcsLav)?,
        })
    }

    /// Costs of paths from hosts to GFDs, of GIM and P2P from requester to owner, and of virtual links.
    fn costs(&self) -> Vec<CostRow> {
        let running = &*self.running;
        let figures = self.desired.figures();
        let (inventory, plan) = (&running.inventory, &running.plan);
        let mut rows = Vec::new();
        let mut row = |from: Host, to: Pid, what: String| {
            let cost = cdat::cost(inventory, plan, from.switch, to, figures);
            let Some(cost) = cost else { return };
            rows.push(CostRow {
                from: from.pid.bits(),
                to: to.bits(),
                what,
                // The base of a latency is in ps.
                latency_ns: cost.latency_base.saturating_mul(cost.latency.into()) / 1_000,
                bandwidth_mbps: cost.bandwidth_base.saturating_mul(cost.bandwidth.into()),
            });
        };
        for host in names::hosts(inventory) {
            inventory.gfds.iter().for_each(|gfd| row(host, gfd.pid, "GFD".to_owned()));
        }
        for grant in &self.grants.gim.grants {
            grant.members.iter().for_each(|&from| {
                row(from, grant.owner.pid, format!("GIM {:?}", grant.name));
            });
        }
        for grant in &self.grants.p2p.grants {
            grant.members.iter().for_each(|&from| {
                row(from, grant.owner.pid, format!("P2P {:?}", grant.name));
            });
        }
        for link in &running.bindings.remote {
            let host = Host {
                switch: link.host.bridge.switch,
                vcs: link.host.bridge.vcs,
                pid: link.host.pid,
            };
            row(host, link.below.pid, format!("link at {}", link.host.bridge));
        }
        rows
    }

    fn trace_of(&mut self, host: &str, hpa: u64, via: Via) -> Result<Response, Refused> {
        let (from, gae, edges, lds) = self.names(|names| {
            let from = names.requester(host)?;
            let gae = |one: Requester| names.gae(one.edge).map(str::to_owned);
            let host = |one: Requester| {
                let at = names.virtual_hierarchy(one.edge)?;
                let host = names.hosts().into_iter().find(|it| (it.switch, it.vcs) == at)?;
                Some(host.pid)
            };
            let all = names::requesters(names.inventory, names.bindings).into_iter();
            let edge = |at| Edge { at, gae: gae(at), host: host(at) };
            let lds = names::logical_devices(names.inventory, names.bindings).into_iter();
            let lds = lds.map(|(at, ld)| (edge(at), ld)).collect();
            Ok((from, gae(from), all.map(edge).collect(), lds))
        })?;
        let (fabric, inventory) = (&mut *self.cci, &self.running.inventory);
        let Grants { memory, gim, p2p, .. } = self.grants;
        let (edge, vppb) = (from.edge, from.vppb);
        if via == Via::CxlMem && vppb > 0 {
            let text = format!("{host} is a device: only hosts load and store by CXL.mem");
            return Err(Refused::bad_request(text));
        }
        let gaes = self.gaes.iter_mut().map(|(name, gae)| (name.clone(), gae)).collect();
        let asked =
            TraceContext { fabric, gaes, gae, edges, lds, vppb, inventory, memory, gim, p2p };
        Ok(Response::Trace(trace(asked, edge, Hpa(hpa), via)))
    }

    /// Reads the CDAT of a component, as hexadecimal digits.
    fn cdat(&mut self, pid: Pid) -> Result<String, CallError> {
        let own = self.running.inventory.switches.first();
        // The entry switch takes commands directly: a switch refuses a Fabric Crawl Out to its own PID.
        let is_entry = own.is_some_and(|entry| entry.pid == pid);
        let way = if is_entry { Way::Entry } else { Way::Pid(pid) };
        let mut bytes: Vec<u8> = Vec::new();
        loop {
            let start = u64::try_from(bytes.len()).unwrap_or(u64::MAX);
            let read = ReadCdat { target: pid, start, len: CDAT_PIECE };
            let answer = self.cci.call(way, &Command::ReadCdat(read))?;
            let part = answer.read::<Cdat<'_>>()?;
            bytes.extend(part.data.iter());
            let is_all = u64::try_from(bytes.len()).is_ok_and(|len| len >= part.total);
            // An empty part ends it, too: `total` is the component's claim.
            if part.data.is_empty() || is_all || bytes.len() >= CDAT_MAX {
                return Ok(HEXLOWER.encode(&bytes));
            }
        }
    }
}

pub(super) fn bits(bytes: &[u8]) -> Vec<u16> {
    let is_set = |bit: &u16| {
        bytes.get(usize::from(bit / 8)).is_some_and(|byte| byte & (1 << (bit % 8)) != 0)
    };
    // Bit FFFh stands for no PID.
    (0..0xFFF).filter(is_set).collect()
}

fn bindings(running: &Running) -> Vec<BindingRow> {
    let local = running.bindings.local.iter().map(|local| {
        let ld = local.ld.map_or(String::new(), |ld| format!(".{ld}"));
        BindingRow {
            bridge: place(local.bridge),
            to: format!("port:{}{ld}", local.port),
            kind: "local".to_owned(),
        }
    });
    let remote = running.bindings.remote.iter().map(|link| BindingRow {
        bridge: place(link.host.bridge),
        to: place(link.below.bridge),
        kind: "link".to_owned(),
    });
    local.chain(remote).collect()
}

fn place(bridge: crate::components::bind::Bridge) -> String {
    format!("{}/{}/{}", bridge.switch, bridge.vcs, bridge.vppb)
}

fn pids(running: &Running) -> Vec<PidRow> {
    let inventory = &running.inventory;
    let manager = inventory.manager.pid;
    let row = |pid: Pid, at: String, what: &str, target| {
        let pid = (!pid.is_none()).then_some(pid.bits());
        PidRow { pid, at, what: what.to_owned(), target }
    };
    let mut rows = vec![row(manager, "s0".to_owned(), "fabric manager", None)];
    for (id, switch) in inventory.by_id() {
        rows.push(row(switch.pid, id.to_string(), "switch", None));
        for target in &switch.targets {
            let what = match target.kind {
                TargetKind::Fabric => "fabric port",
                TargetKind::Host => "host edge",
                TargetKind::Downstream => "downstream edge",
            };
            let at = format!("{id}.{}", target.port);
            rows.push(row(target.pid, at, what, Some((target.id, target.instance))));
        }
    }
    rows.extend(inventory.gfds.iter().map(|gfd| row(gfd.pid, gfd.at.to_string(), "GFD", None)));
    rows
}

/// The response of a component to raw bytes.
pub(super) fn cci_answer(answer: Result<Vec<u8>, TransportError>) -> Result<CciAnswer, Refused> {
    let answer = match answer {
        Ok(answer) => answer,
        Err(error @ (TransportError::Malformed(_) | TransportError::TooLong)) => {
            return Err(Refused::bad_request(with_causes(&error)));
        }
        Err(error) => return Err(refuse(error)),
    };
    let (header, payload) = Header::parse(&answer)
        .map_err(|error| Refused::because(format!("the response is malformed: {error}")))?;
    Ok(CciAnswer {
        opcode: header.opcode.to_string(),
        code: header.return_code.bits(),
        name: header.return_code.name().to_owned(),
        payload: HEXLOWER.encode(payload),
    })
}
