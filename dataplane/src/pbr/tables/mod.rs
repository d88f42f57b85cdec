//! All tables of one switch, as one immutable value.
//!
//! Control clones [`Tables`], changes the clone and publishes it; workers call its lookups.
//!
//! Source: docs/spec/cxl-fabric.md "Ingress", "Inside", "Egress"; ARCHITECTURE.md "Control".

use std::collections::BTreeMap;
use std::sync::Arc;

use weft_parsers::fabric::{Bdf, DrtEntry, Pid, RgtEntry};

use super::access::Access;
use super::drt::{Dispatch, Flow, Load, Owner, Routes};
use super::edge::{EdgePort, Role};
use super::egress::Bindings;
use super::error::TableError;
use super::ingress::{self, Kind, Request, Verdict};
use super::refusal::Refusal;
use super::vcs::{Binding, Side, Vcs};
use crate::types::{PerPort, PortId, PortSet};

/// Owner of an assigned PID.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Assigned {
    /// The switch itself.
    Switch,
    /// An edge or fabric port; a port can have several PIDs.
    Port(PortId),
}

/// Where a TLP with a PTH goes.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Arrival {
    /// It is for this switch.
    Here,
    /// Into a virtual switch: [`Tables::hierarchical`].
    Vcs(u8, Side),
    /// On to a port: [`Tables::pick`].
    Out(Dispatch),
}

/// Everything that routes TLPs in one switch. Cloning only counts references; a change copies the part that it changes.
#[derive(Clone, Debug)]
pub struct Tables {
    ports: PerPort<Option<Arc<EdgePort>>>,
    routes: Routes,
    bindings: Bindings,
    vcses: Arc<[Option<Arc<Vcs>>]>,
    assigned: Arc<BTreeMap<Pid, Assigned>>,
}

impl Tables {
    /// A switch of `ports` and `groups` routing groups without routes; all ports are fabric ports.
    ///
    /// # Errors
    /// More than 256 groups.
    pub fn new(ports: PortSet, groups: usize) -> Result<Self, TableError> {
        Ok(Self {
            ports: PerPort::default(),
            routes: Routes::new(ports, groups)?,
            bindings: Bindings::default(),
            vcses: Arc::new([]),
            assigned: Arc::default(),
        })
    }

    /// The edge port at `port`; `None` for a fabric port, or if there is no such port.
    #[inline]
    #[must_use]
    pub fn edge(&self, port: PortId) -> Option<&EdgePort> {
        self.ports[port].as_deref()
    }

    /// DRT and RGT of the switch.
    #[must_use]
    pub const fn routes(&self) -> &Routes {
        &self.routes
    }

    /// Virtual switch `index`, if it exists.
    #[inline]
    #[must_use]
    pub fn vcs(&self, index: u8) -> Option<&Vcs> {
        self.vcses.get(usize::from(index))?.as_deref()
    }

    /// PIDs that are assigned in this switch, lowest first.
    pub fn assigned(&self) -> impl Iterator<Item = (Pid, Assigned)> {
        self.assigned.iter().map(|(&pid, &to)| (pid, to))
    }

    /// Decides about a TLP that came in at edge `port` without PTH.
    #[inline]
    #[must_use]
    pub fn ingress(&self, port: PortId, request: &Request) -> Verdict {
        let Some(edge) = self.edge(port) else { return Verdict::Drop(Refusal::WrongRole) };
        let Some(part) = edge.part(request.ld) else { return Verdict::Drop(Refusal::Unbound) };
        // A memory device has no PID in its answers: they go to the host of its hierarchy, which these tables know.
        if let (Role::Dsp, Kind::CxlMemStatus | Kind::CxlMemResponse) = (part.role, request.kind) {
            return ingress::answer(part, request.kind, self.host_of(part));
        }
        let vcs = part.vcs.and_then(|(index, _)| self.vcs(index));
        if request.kind.is_cxl_cache() {
            return ingress::cxl_cache(part, vcs, self.host_of(part), request);
        }
        ingress::ingress(part, vcs, request)
    }

    /// PID of the host of an edge port's hierarchy: that of the host's port here, or at the other end of the virtual
    /// link.
    #[inline]
    #[must_use]
    pub fn host_of(&self, edge: &EdgePort) -> Option<Pid> {
        let (index, _) = edge.vcs?;
        let host = match self.vcs(index)?.upstream().binding {
            Binding::Port(port) => self.edge(port)?.pid,
            Binding::Fabric { dpid, .. } => dpid,
            Binding::Unbound | Binding::Ld { .. } => return None,
        };
        (!host.is_none()).then_some(host)
    }

    /// The logical device that a host's CXL.mem request is for, at the port of a memory device: the one that belongs to
    /// the host with PID `spid`. `None` if the device has no logical devices.
    ///
    /// # Errors
    /// As [`ingress::may_ask`]; [`Refusal::SeveralLds`] if the host has several.
    #[inline]
    pub fn asked(&self, edge: &EdgePort, spid: Pid) -> Result<Option<u16>, Refusal> {
        if !edge.has_lds() {
            return ingress::may_ask(edge, spid, self.host_of(edge)).map(|()| None);
        }
        let mut own = edge.lds().filter(|(_, part)| self.host_of(part) == Some(spid));
        let (ld, part) = own.next().ok_or(Refusal::ForeignHost)?;
        if own.next().is_some() {
            return Err(Refusal::SeveralLds);
        }
        ingress::may_ask(part, spid, Some(spid)).map(|()| Some(ld))
    }

    /// The logical device that a UIO request from `spid` is for, at the port of a memory device: the one whose
    /// re-router sends the completion straight back. The request names none, as only the port has a PID.
    ///
    /// # Errors
    /// [`Refusal::LavClear`] if no completion would come back; [`Refusal::SeveralLds`] if several would answer.
    #[inline]
    pub fn uio_ld(
        &self,
        edge: &EdgePort,
        spid: Pid,
        requester: Option<Bdf>,
    ) -> Result<Option<u16>, Refusal> {
        if !edge.has_lds() {
            return Ok(None);
        }
        let answers = |part: &EdgePort| {
            let back = part.rerouter().zip(requester);
            part.access().lav.contains(spid) && back.is_some_and(|(it, id)| it.leads_to(id, spid))
        };
        let mut all = edge.lds().filter(|(_, part)| answers(part));
        match (all.next(), all.next()) {
            (Some((ld, _)), None) => Ok(Some(ld)),
            (None, _) => Err(Refusal::LavClear),
            (Some(_), Some(_)) => Err(Refusal::SeveralLds),
        }
    }

    /// Whether a CXL.cache message from `spid` with `cache_id` may leave the fabric at an edge: to a host only from the
    /// port that has this cache, to a device only from its own host and with a `CacheID` that it may use.
    ///
    /// # Errors
    /// [`Refusal::NoCacheId`], [`Refusal::ForeignHost`], [`Refusal::WrongRole`], or [`Refusal::Unbound`] during a
    /// reset.
    #[inline]
    pub fn may_leave_by_cache_id(
        &self,
        edge: &EdgePort,
        kind: Kind,
        spid: Pid,
        cache_id: u8,
    ) -> Result<(), Refusal> {
        let knows = match (edge.role, kind) {
            _ if edge.resetting => return Err(Refusal::Unbound),
            (Role::Usp, Kind::CacheToHost) => {
                let vcs = edge.vcs.and_then(|(index, _)| self.vcs(index));
                vcs.is_some_and(|vcs| vcs.cache_routes().port(cache_id) == Some(spid))
            }
            // Only the port has a PID, so logical devices cannot be told apart, and they have no CacheID.
            (Role::Dsp, Kind::CacheToDevice) if edge.has_lds() => false,
            (Role::Dsp, Kind::CacheToDevice) if self.host_of(edge) != Some(spid) => {
                return Err(Refusal::ForeignHost);
            }
            (Role::Dsp, Kind::CacheToDevice) => edge.cache_ids.has(cache_id),
            _ => return Err(Refusal::WrongRole),
        };
        if knows { Ok(()) } else { Err(Refusal::NoCacheId) }
    }

    /// Where a TLP with a PTH goes: one that came in with it, or that [`Tables::ingress`] sends into the fabric.
    ///
    /// # Errors
    /// [`Refusal::NoBinding`] and [`Refusal::NoDrtEntry`].
    #[inline]
    pub fn forward(&self, spid: Pid, dpid: Pid, hie: bool) -> Result<Arrival, Refusal> {
        // Before the DRT, whose entry leads to the port itself: with Hie set the TLP first passes the vPPB that ends
        // its virtual link.
        if hie && self.routes.is_ours(dpid) {
            let end = self.bindings.find(spid, dpid).ok_or(Refusal::NoBinding)?;
            return Ok(Arrival::Vcs(end.0, end.1));
        }
        Ok(match self.routes.lookup(dpid)? {
            Dispatch::Here => Arrival::Here,
            out => Arrival::Out(out),
        })
    }

    /// Routes a TLP through a virtual switch, which it enters at `side` out of the fabric.
    #[must_use]
    pub fn hierarchical(&self, vcs: u8, side: Side, request: &Request) -> Verdict {
        match self.vcs(vcs) {
            Some(vcs) => ingress::hierarchical(vcs, side, request),
            None => Verdict::Drop(Refusal::NoVcs),
        }
    }

    /// The port that a TLP takes; `None` for this switch. [`Routes::pick`].
    ///
    /// # Errors
    /// [`Refusal::RouteDown`], and [`Refusal::NoDrtEntry`] for a group that does not exist.
    #[inline]
    pub fn pick(
        &self,
        to: Dispatch,
        flow: Flow,
        up: PortSet,
        draw: u64,
        load: &impl Load,
    ) -> Result<Option<PortId>, Refusal> {
        self.routes.pick(to, flow, up, draw, load)
    }

    /// Makes `port` an edge port, or with `None` a fabric port again.
    ///
    /// # Errors
    /// The switch has no such port.
    pub fn set_edge(&mut self, port: PortId, edge: Option<EdgePort>) -> Result<(), TableError> {
        if !self.routes.ports().contains(port) {
            return Err(TableError::Port(port.get()));
        }
        self.ports[port] = edge.map(Arc::new);
        Ok(())
    }

    /// Changes an edge port; if `change` fails, nothing has changed.
    ///
    /// # Errors
    /// There is no such edge port, or `change` failed.
    #[cfg(test)]
    pub fn change_edge(
        &mut self,
        port: PortId,
        change: impl FnOnce(&mut EdgePort) -> Result<(), TableError>,
    ) -> Result<(), TableError> {
        let mut edge = self.edge(port).ok_or(TableError::Port(port.get()))?.clone();
        change(&mut edge)?;
        self.ports[port] = Some(Arc::new(edge));
        Ok(())
    }

    /// Sets the targets that the host of virtual switch `vcs` may reach, at all its ports and logical devices.
    pub fn set_access(&mut self, vcs: u8, access: &Arc<Access>) {
        for port in self.routes.ports().iter() {
            if let Some(edge) = &mut self.ports[port] {
                Arc::make_mut(edge).each_of(vcs, &|edge| edge.set_access(Arc::clone(access)));
            }
        }
    }

    /// Sets virtual switch `index`, with its vDSPs and vUSPs; nothing has changed if that fails.
    ///
    /// # Errors
    /// [`TableError::BoundTwice`].
    pub fn set_vcs(&mut self, index: u8, vcs: Option<Vcs>) -> Result<(), TableError> {
        let mut all = self.vcses.to_vec();
        all.resize(all.len().max(usize::from(index) + 1), None);
        if let Some(place) = all.get_mut(usize::from(index)) {
            *place = vcs.map(Arc::new);
        }
        let named = (0..=u8::MAX).zip(&all);
        // Built before `vcses` is replaced: if a pair of PIDs is bound twice, both stay as they were.
        self.bindings = Bindings::of(named.filter_map(|(at, vcs)| Some((at, vcs.as_deref()?))))?;
        self.vcses = all.into();
        Ok(())
    }

    /// Assigns `pid` to an owner; DRT entries do not change.
    ///
    /// # Errors
    /// PID `0xFFF`, a port that does not exist, or [`TableError::Assigned`] to another target.
    pub fn assign(&mut self, pid: Pid, to: Assigned) -> Result<(), TableError> {
        if let Assigned::Port(port) = to
            && !self.routes.ports().contains(port)
        {
            return Err(TableError::Port(port.get()));
        }
        if self.assigned.get(&pid).is_some_and(|&other| other != to) {
            return Err(TableError::Assigned(pid));
        }
        let owner = match to {
            Assigned::Switch => Owner::Switch,
            Assigned::Port(_) => Owner::Port,
        };
        self.routes.own(pid, Some(owner))?;
        Arc::make_mut(&mut self.assigned).insert(pid, to);
        Ok(())
    }

    /// Removes the assignment of `pid`; DRT entries do not change.
    ///
    /// # Errors
    /// PID `0xFFF`.
    pub fn clear(&mut self, pid: Pid) -> Result<(), TableError> {
        self.routes.own(pid, None)?;
        Arc::make_mut(&mut self.assigned).remove(&pid);
        Ok(())
    }

    /// Set DRT: [`Routes::set_drt`].
    ///
    /// # Errors
    /// See [`Routes::set_drt`].
    pub fn set_drt(&mut self, start: usize, entries: &[DrtEntry]) -> Result<(), TableError> {
        self.routes.set_drt(start, entries)
    }

    /// Set RGT: [`Routes::set_rgt`].
    ///
    /// # Errors
    /// See [`Routes::set_rgt`].
    pub fn set_rgt(&mut self, start: usize, entries: &[RgtEntry]) -> Result<(), TableError> {
        self.routes.set_rgt(start, entries)
    }
}

#[cfg(test)]
mod tests;
