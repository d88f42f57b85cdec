//! Overview of a fabric: the manager's knowledge, and data read from hosts' GAEs, edges and GFDs.
//!
//! A component that does not answer is not asked again, and its row says why.
//!
//! Source: docs/fm-socket.md "Answers"; docs/spec/wire-formats.md §4.5 (5715h), §4.6, §4.7 (490Eh, 4910h).

use std::collections::{BTreeMap, BTreeSet};

use weft_parsers::cci::Request as Command;
use weft_parsers::cci::gfd_access::QosControl;
use weft_parsers::cci::tables::{VcsVectorRange, Vector, VectorRange};

use super::query::{Query, VECTOR, bits};
use super::request::Overview;
use super::{gim, p2p};
use crate::cci::segment_tables::{Kind, SegmentTable};
use crate::cci::{CallError, CciSession, Way};
use crate::model::graph::{PortRef, SwitchId};
use crate::model::inventory::{Inventory, TargetKind};
use crate::show::display_names::DisplayNames;
use crate::show::overview::{AddressMap, AddressRange, Asked, GfdLoad, bindings, links};
use crate::state::names::{Names, Requester, requesters};

const STATIC: &str = "the fabric is static: its components are not asked";

/// Session with a host's GAE; closed after the first request without an answer.
enum Gae<'a> {
    Open(&'a mut CciSession),
    Closed(String),
}

impl Gae<'_> {
    fn table(&mut self, kind: Kind, vppb: u8) -> Asked<SegmentTable> {
        let failed = match self {
            Self::Closed(why) => return Asked::NotRead(why.clone()),
            Self::Open(gae) => match kind.read(gae, vppb) {
                Ok(table) => return Asked::Read(table),
                Err(error) => error,
            },
        };
        let why = format!("the host's GAE: {}", failed.with_causes());
        if failed.is_silence() {
            // A refusal is an answer; only silence costs a time limit for each further table.
            *self = Self::Closed(why.clone());
        }
        Asked::NotRead(why)
    }
}

/// LAV of virtual switches, each read once.
#[derive(Default)]
struct Lavs {
    is_static: bool,
    read: BTreeMap<(SwitchId, u8), Asked<Vec<u16>>>,
    /// Switches that did not answer.
    silent: BTreeSet<SwitchId>,
}

impl Lavs {
    fn of(
        &mut self,
        fabric: &mut CciSession,
        inventory: &Inventory,
        at: SwitchId,
        vcs: u8,
    ) -> Asked<Vec<u16>> {
        if let Some(known) = self.read.get(&(at, vcs)) {
            return known.clone();
        }
        let switch = inventory.switch(at).filter(|switch| switch.whole);
        let lav = match switch {
            _ if self.is_static => Asked::NotRead(STATIC.to_owned()),
            Some(switch) if !self.silent.contains(&at) => lav(fabric, switch.way(), vcs)
                .unwrap_or_else(|error| {
                    if error.is_silence() {
                        self.silent.insert(at);
                    }
                    Asked::NotRead(error.with_causes())
                }),
            _ => Asked::NotRead(format!("{at} does not answer")),
        };
        self.read.insert((at, vcs), lav.clone());
        lav
    }
}

impl Query<'_> {
    /// All data for a picture of the fabric.
    pub fn overview(&mut self) -> Overview {
        let maps = self.address_maps();
        let gfds = self.gfd_loads();
        let running = &*self.running;
        let names = Names::new(self.desired, running);
        let (gim, p2p) = (gim::rows(&names, &self.grants.gim), p2p::rows(&names, &self.grants.p2p));
        let (memory, names) = (self.shares(), DisplayNames::new(self.desired, &running.inventory));
        let inventory = running.inventory.clone();
        // Loads and routes are shown by the tables that switches hold, not by the plan.
        let (graph, tables) = (&running.plan.graph, &running.standing);
        let mut links = links(&inventory, tables);
        self.traffic.load_links(&mut links);
        Overview {
            names: names.rows(&inventory),
            links,
            bindings: bindings(&inventory, &running.bindings, graph, tables),
            memory,
            gim,
            p2p,
            maps,
            gfds,
            inventory,
        }
    }

    /// Address maps of hosts, then of devices that make requests of their own.
    fn address_maps(&mut self) -> Vec<AddressMap> {
        let (is_static, running) = (self.is_static, &*self.running);
        let names = Names::new(self.desired, running);
        let inventory = &running.inventory;
        let mut all: Vec<(bool, Requester)> = Vec::new();
        for one in requesters(inventory, &running.bindings) {
            all.extend(is_host(inventory, one).map(|host| (host, one)));
        }
        all.sort_by_key(|(host, _)| !host);
        let mut gaes: BTreeMap<String, Gae<'_>> =
            self.gaes.iter_mut().map(|(name, gae)| (name.clone(), Gae::Open(gae))).collect();
        let mut lavs = Lavs { is_static, ..Lavs::default() };
        let mut maps = Vec::new();
        for (host, one) in all {
            let name = names.gae(one.edge);
            let mut none = Gae::Closed(if is_static { STATIC } else { NO_GAE }.to_owned());
            let open = name.filter(|_| !is_static).and_then(|name| gaes.get_mut(name));
            let gae = open.unwrap_or(&mut none);
            let (fast, ldst) = (gae.table(Kind::Fast, one.vppb), gae.table(Kind::Ldst, one.vppb));
            let lav = lavs.of(self.cci, inventory, one.edge.switch, one.edge.vcs);
            let own = names.own(one.edge).into_iter();
            maps.push(AddressMap {
                pid: one.edge.pid.bits(),
                at: PortRef::new(one.edge.switch, one.port),
                host,
                vcs: one.edge.vcs,
                vppb: one.vppb,
                own: own.map(|own| AddressRange { base: own.base, size: own.len }).collect(),
                fast,
                ldst,
                lav,
            });
        }
        maps
    }

    /// Loads of GFDs; after one that does not answer, no other is asked.
    fn gfd_loads(&mut self) -> Vec<GfdLoad> {
        let gfds = self.running.inventory.gfds.clone();
        let mut silent = self.is_static.then(|| STATIC.to_owned());
        let mut loads = Vec::new();
        for gfd in gfds {
            let backpressure_percent = match &silent {
                Some(why) => Asked::NotRead(why.clone()),
                None => match backpressure(self.cci, Way::Pid(gfd.pid)) {
                    Ok(percent) => percent,
                    Err(error) => {
                        // Each further silent GFD would cost the reader of the page another time limit.
                        let unasked = format!("not asked, as GFD {} did not answer", gfd.pid);
                        silent = error.is_silence().then_some(unasked);
                        Asked::NotRead(error.with_causes())
                    }
                },
            };
            loads.push(GfdLoad { pid: gfd.pid.bits(), backpressure_percent });
        }
        loads
    }
}

const NO_GAE: &str =
    "only the host's GAE reports it, and the wanted state does not say where that answers";

/// Whether a requester is a host; false for a device of one at the same switch. `None` where the virtual switch has no
/// host, as no memory can be granted there.
fn is_host(inventory: &Inventory, one: Requester) -> Option<bool> {
    let targets = &inventory.switch(one.edge.switch)?.targets;
    let mut hosts = targets.iter().filter(|target| target.kind == TargetKind::Host);
    let has_host = hosts.clone().any(|host| host.vcs == one.edge.vcs && !host.pid.is_none());
    has_host.then(|| hosts.any(|host| host.pid == one.edge.pid))
}

/// Reads LAV of a virtual switch.
fn lav(fabric: &mut CciSession, way: Way, vcs: u8) -> Result<Asked<Vec<u16>>, CallError> {
    let range = VcsVectorRange { vcs, range: VectorRange { start: 0, len: VECTOR } };
    let answer = fabric.call(way, &Command::GetVcsLav(range))?;
    let bytes: Vec<u8> = answer.read::<Vector<'_>>()?.data.iter().collect();
    Ok(Asked::Read(bits(&bytes)))
}

/// Reads the average backpressure of a GFD, if it samples that.
fn backpressure(fabric: &mut CciSession, way: Way) -> Result<Asked<u8>, CallError> {
    let control = fabric.call(way, &Command::GetQosControl)?.read::<QosControl>()?;
    if control.interval == 0 {
        return Ok(Asked::NotRead("the GFD samples none: its interval is 0".to_owned()));
    }
    fabric.call(way, &Command::GetQosStatus)?.read::<u8>().map(Asked::Read)
}
