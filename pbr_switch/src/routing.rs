//! The routing tables of a switch: DRT and RGT (5707h to 570Bh), the PIDs that its ports have, and the dataplane's
//! tables of virtual switches and edges that are built from its state.
//!
//! A switch has one DRT and one RGT, which the DRT refers to. [`Routing::rebuild`] builds what a change has made stale.
//!
//! Source: docs/spec/wire-formats.md §4.5, §5.3; docs/spec/cxl-fabric.md "Inside: DRT", "Dynamic change".

use weft_cxl::cci::{Done, Reply};
use weft_dataplane::pbr::tables::Assigned;
use weft_dataplane::pbr::{self, EdgePort, Fast, Flow, Ldst, Load, Side, Tables};
use weft_dataplane::types::{PortId, PortSet};
use weft_parsers::cci::pbr::{
    AssignOp, GetTables, PidAssignment, TableDescriptor, TableDescriptors, TableKind, Vppb,
};
use weft_parsers::cci::tables::{Drt, Rgt, RoutingRange, SetDrt};
use weft_parsers::cci::{List, Response, ReturnCode};
use weft_parsers::fabric::{DrtEntry, Pid, RgtEntry};

use super::cci::{DONE, NONE_SUCH, invalid, listed, whole};
use super::config::{ConfigError, Role};
use super::ports::Ports;
use super::vcs::Bound;
use super::virtual_switches::{Stale, VirtualSwitches};

/// Queue depths for a lookup that ignores them: static messages take a fixed member of a routing group.
struct NoLoad;

impl Load for NoLoad {
    fn queued_bytes(&self, _: PortId) -> u64 {
        0
    }

    fn is_full(&self, _: PortId) -> bool {
        false
    }
}

/// The tables that the dataplane routes by.
#[derive(Clone, Debug)]
pub struct Routing {
    tables: Tables,
    /// Changes whenever `tables` does.
    epoch: u64,
}

/// Equal when no command can tell them apart: the other tables are built from the state of the switch.
impl PartialEq for Routing {
    fn eq(&self, other: &Self) -> bool {
        self.tables.routes() == other.tables.routes()
            && self.tables.assigned().eq(other.tables.assigned())
            && self.epoch == other.epoch
    }
}

impl Routing {
    /// Tables without routes and PIDs, and with `groups` routing groups.
    ///
    /// # Errors
    /// The dataplane rejects the number of groups.
    pub fn new(ports: &Ports, groups: u16) -> Result<Self, ConfigError> {
        Ok(Self { tables: Tables::new(ports.ids(), groups.into())?, epoch: 0 })
    }

    pub const fn tables(&self) -> &Tables {
        &self.tables
    }

    pub const fn epoch(&self) -> u64 {
        self.epoch
    }

    /// Whether a part of this switch has this PID.
    pub fn is_here(&self, pid: Pid) -> bool {
        self.tables.assigned().any(|(own, _)| own == pid)
    }

    /// Whether a port of this switch has this PID.
    pub fn is_of_port(&self, pid: Pid) -> bool {
        self.tables.assigned().any(|(own, to)| own == pid && to != Assigned::Switch)
    }

    /// Port by which static messages to a PID leave, of those in `up`; `None` if the PID has no route, or no port of its
    /// route is up.
    pub fn static_port(&self, to: Pid, up: PortSet) -> Option<PortId> {
        let to = self.tables.routes().lookup(to).ok()?;
        self.tables.pick(to, Flow::Static, up, 0, &NoLoad).ok()?
    }

    /// Makes `own` the only PID of the switch itself, `FFF` for none, beside that of a fabric manager with a connection
    /// to this switch, which is reached here.
    pub fn set_own(&mut self, own: Pid, fm: Option<Pid>) {
        // The PIDs that the switch and its manager had before. Collected first, as the loop changes the table.
        let before: Vec<Pid> = self
            .tables
            .assigned()
            .filter(|&(taken, to)| to == Assigned::Switch && taken != own && Some(taken) != fm)
            .map(|(taken, _)| taken)
            .collect();
        for other in before {
            let cleared = self.tables.clear(other);
            debug_assert!(cleared.is_ok(), "it was assigned");
        }
        if !own.is_none() {
            let assigned = self.tables.assign(own, Assigned::Switch);
            debug_assert!(assigned.is_ok(), "`can_be` has said so");
        }
        if let Some(fm) = fm {
            // If a port already has the manager's PID, its answers from further out are lost until it claims with
            // another one.
            let _ = self.tables.assign(fm, Assigned::Switch);
        }
        self.epoch += 1;
    }

    /// Assigns a PID to a port, or clears it. `is_used`: a binding uses a PID as its own end, which then stays.
    pub fn assign(
        &mut self,
        ports: &mut Ports,
        op: AssignOp,
        assignment: PidAssignment,
        is_used: impl Fn(Pid) -> bool,
    ) -> Result<(), ReturnCode> {
        let PidAssignment { pid, target, instance } = assignment;
        let port = ports.target_mut(target).ok_or(NONE_SUCH)?;
        let id = port.id;
        let place = port.pids.get_mut(usize::from(instance)).ok_or(NONE_SUCH)?;
        // A manager that clears a PID must name the current one, or it works from an old picture.
        if pid.is_none() || (op == AssignOp::Clear && *place != pid) {
            return Err(ReturnCode::InvalidInput);
        }
        let old = core::mem::replace(place, Pid::NONE);
        // Assigning the same PID again changes nothing, even while a binding uses it.
        let keeps = op == AssignOp::Assign && old == pid;
        if !old.is_none() && !keeps {
            if is_used(old) {
                return Err(ReturnCode::InvalidInput);
            }
            invalid(self.tables.clear(old))?;
        }
        if op == AssignOp::Assign {
            // The assignments of this command so far are in the tables, so its duplicates are found, too.
            if !keeps && self.is_here(pid) {
                return Err(ReturnCode::InvalidInput);
            }
            invalid(self.tables.assign(pid, Assigned::Port(id)))?;
            *place = pid;
        }
        Ok(())
    }

    /// Rebuilds what is stale, and advances the epoch if there is anything.
    pub fn rebuild(&mut self, stale: Stale, ports: &Ports, vcses: &VirtualSwitches) {
        // The epoch must stand still then: each new epoch makes the driver clone and publish the tables.
        if stale.is_empty() {
            return;
        }
        self.epoch += 1;
        for vcs in stale.vcses {
            let made = vcses.get(vcs).map(|it| it.compile(&|port| ports.is_resetting(port)));
            let Some(Ok(made)) = made else { continue };
            // A double binding was refused by its command, so the dataplane has no conflict to report.
            let set = self.tables.set_vcs(vcs, Some(made));
            debug_assert!(set.is_ok(), "{set:?}");
        }
        for port in stale.ports {
            let set = self.tables.set_edge(port, edge(port, ports, vcses));
            debug_assert!(set.is_ok(), "{set:?}");
        }
    }

    /// Number of RGTs.
    pub fn rgts(&self) -> u8 {
        u8::from(self.tables.routes().groups() > 0)
    }

    pub fn descriptors(&self, range: GetTables, ports: &Ports, reply: &mut Reply) -> Done {
        let ports = ports.mask();
        let mut all = vec![TableDescriptor { kind: TableKind::Drt, index: 0, ports }];
        if self.rgts() > 0 {
            all.push(TableDescriptor { kind: TableKind::Rgt, index: 0, ports });
        }
        let span = listed(range.start.into(), range.count.into(), all.len())?;
        let tables = TableDescriptors {
            start: range.start,
            tables: List::of(all.get(span).unwrap_or_default()),
        };
        reply.send(&Response::GetTables(tables))
    }

    pub fn get_drt(&self, range: RoutingRange, reply: &mut Reply) -> Done {
        if range.table != 0 {
            return Err(NONE_SUCH);
        }
        let span = whole(range.start.into(), range.count.into(), Pid::COUNT)?;
        let pids = (0..=0xFFF).map(Pid::from_low_bits).skip(span.start).take(span.len());
        let entries: Vec<DrtEntry> = pids.map(|pid| self.tables.routes().drt(pid)).collect();
        let (table, start) = (range.table, range.start);
        reply.send(&Response::GetDrt(Drt { table, start, rgt: 0, entries: List::of(&entries) }))
    }

    pub fn set_drt(&mut self, set: &SetDrt<'_>) -> Done {
        if set.table != 0 {
            return Err(NONE_SUCH);
        }
        let entries: Vec<DrtEntry> = set.entries.iter().collect();
        invalid(self.tables.set_drt(set.start.into(), &entries))?;
        // Routes belong to no virtual switch or port, so `rebuild` would not notice them.
        self.epoch += 1;
        DONE
    }

    pub fn get_rgt(&self, range: RoutingRange, reply: &mut Reply) -> Done {
        let routes = self.tables.routes();
        if range.table >= self.rgts() {
            return Err(NONE_SUCH);
        }
        let span = whole(range.start.into(), range.count.into(), routes.groups())?;
        let entries: Vec<RgtEntry> = span.filter_map(|at| routes.rgt(at)).collect();
        let (table, start) = (range.table, range.start);
        reply.send(&Response::GetRgt(Rgt { table, start, entries: List::of(&entries) }))
    }

    pub fn set_rgt(&mut self, set: &Rgt<'_>) -> Done {
        if set.table >= self.rgts() {
            return Err(NONE_SUCH);
        }
        let entries: Vec<RgtEntry> = set.entries.iter().collect();
        invalid(self.tables.set_rgt(set.start.into(), &entries))?;
        self.epoch += 1;
        DONE
    }
}

/// Builds the edge at a port; `None` at a fabric port.
fn edge(port: PortId, ports: &Ports, vcses: &VirtualSwitches) -> Option<EdgePort> {
    let state = ports.get(port)?;
    let role = match state.role {
        Role::Fabric => return None,
        Role::Usp => pbr::Role::Usp,
        Role::Dsp if state.is_gfd() => pbr::Role::Gfd,
        Role::Dsp => pbr::Role::Dsp,
    };
    let pid = state.pid();
    let empty = || Some(EdgePort::new(role, pid, Fast::new(1, 0).ok()?, Ldst::new(1, 0).ok()?));
    if state.resetting {
        // TLPs from a device in reset belong to no virtual switch, and none are sent to it.
        let mut edge = empty()?;
        edge.resetting = true;
        return Some(edge);
    }
    let mut edge = None;
    let mut lds = Vec::new();
    for Vppb { vcs, vppb: at } in vcses.bound_to(port) {
        let Some(owner) = vcses.get(vcs) else { continue };
        let Some(vppb) = owner.vppbs.get(usize::from(at)) else { continue };
        let mut part = vppb.tables.clone();
        let side = at.checked_sub(1).map_or(Side::Above, Side::Below);
        (part.role, part.pid, part.vcs) = (role, pid, Some((vcs, side)));
        (part.prefixes, part.segment) = (owner.prefixes_at(vppb), owner.segment);
        if let Bound::Ld(_, ld) = vppb.bound {
            lds.push((ld, part)); // its vPPB has no CacheID
        } else {
            part.cache_ids = owner.cache_decoding(at);
            edge = Some(part);
        }
    }
    let mut edge = edge.or_else(empty)?;
    // The partner may announce any PID: only those that the fabric manager assigned to the port count.
    let all = state.pids.iter().copied();
    edge.more_pids = all.filter(|&other| !other.is_none() && other != pid).collect();
    edge.announced = state.announced();
    // From here on TLPs name a logical device, even while no LD is bound or the device has not reported its LDs
    // yet. An LD that the device does not have leads nowhere.
    let count = u16::from(state.lds()).min(EdgePort::LDS_MAX);
    let bound_last = lds.iter().map(|(ld, _)| *ld).max();
    let last = count.checked_sub(1).max(bound_last.filter(|ld| *ld < EdgePort::LDS_MAX));
    // `room` comes first: it makes the list long enough for the last LD, and must not erase a bound one.
    let room = last.map(|last| (last, None));
    let bound = lds.into_iter().filter(|(ld, _)| *ld < count).map(|(ld, it)| (ld, Some(it)));
    for (ld, part) in room.into_iter().chain(bound) {
        let set = edge.set_ld(ld, part);
        debug_assert!(set.is_ok(), "{set:?}");
    }
    Some(edge)
}
