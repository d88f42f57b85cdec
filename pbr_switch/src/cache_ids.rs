//! `CacheID`s at a host's edge: ports behind virtual links that have one, as downstream edges reported them, and the
//! dataplane's tables made from that and from the edge's own registers.
//!
//! An `RTUpdate` from an edge that a vPPB is bound to is accepted whole or refused, and forgotten when the link goes.
//!
//! Source: CXL 3.1 section 7.7.12.5; docs/spec/wire-formats.md §3.8; docs/spec/cxl-fabric.md "CacheID".

use weft_cxl::vdm::Vdm;
use weft_dataplane::pbr::{CacheDecoding, CacheRoutes};
use weft_parsers::fabric::Pid;
use weft_parsers::tlp::vdm::RtPair;

use crate::switch::Switch;
use crate::vcs::{Bound, VcsState};

impl VcsState {
    /// Committed routes of its own table at a host's edge: `CacheID`, PID of the port, number of the vPPB.
    pub fn own_cache_ids(&self) -> impl Iterator<Item = (u8, Pid, u8)> {
        let routes = self.cache_routes.in_force.iter().filter(|_| self.usp.is_some());
        routes.map(|route| (route.pair.cache_id, route.pair.pid, route.vppb))
    }

    /// `CacheID` to port, for the caches of its host. Empty below a virtual link, where the host's edge has the table.
    pub(super) fn cache_ports(&self) -> CacheRoutes {
        let mut routes = CacheRoutes::default();
        let told = self.cache_ids.iter().map(|(cache_id, port, _)| (cache_id, port));
        for (cache_id, port) in told.chain(self.own_cache_ids().map(|(id, port, _)| (id, port))) {
            routes.set(cache_id, port);
        }
        routes
    }

    /// The `CacheID`s that the device below a downstream vPPB may use.
    pub(super) fn cache_decoding(&self, vppb: u8) -> CacheDecoding {
        let component = self.vppbs.get(usize::from(vppb)).and_then(|it| it.component.as_ref());
        let Some(decoder) = component.and_then(|it| it.cache_id_decoder()) else {
            return CacheDecoding::default();
        };
        let in_force = decoder.in_force();
        let routes = self.cache_routes.in_force.iter();
        // Assign alone gives the device one CacheID; Forward lets it use those of the table that lead to this vPPB.
        let here = routes.filter(|route| in_force.forwards && route.vppb == vppb);
        CacheDecoding::new(in_force.assigns, here.map(|route| route.pair.cache_id))
    }
}

impl Switch {
    //= docs/spec/cxl-fabric.md "CacheID": whose update is taken
    /// Accepts an `RTUpdate` of a downstream edge, or none of it; returns the answer for that edge.
    pub(super) fn receive_cache_ids(&mut self, vcs: u8, vdm: &Vdm) -> Option<Vdm> {
        let bound = self.is_virtual_link(vcs, vdm.pth.dpid, vdm.pth.spid);
        let state = self.vcses.get_mut(usize::from(vcs))?;
        let is_own = |cache_id: u8| {
            state.cache_routes.in_force.iter().any(|route| route.pair.cache_id == cache_id)
        };
        // A CacheID of this edge's own table cannot also be behind a virtual link: the whole update is refused.
        let is_free = !RtPair::all(&vdm.payload).any(|pair| is_own(pair.cache_id));
        let before = state.cache_ids.clone();
        let answer = state.cache_ids.receive(vdm, bound && is_free);
        // A repeated update changes nothing, and must not make the driver publish the tables again.
        if !before.iter().eq(state.cache_ids.iter()) {
            self.publish_cache_ids(vcs);
        }
        answer
    }

    /// Whether a downstream vPPB of a virtual switch is bound to `far` by its own PID `own`, and that link is up. A
    /// message that arrives by a link that is down was sent before the loss, and is stale.
    pub(super) fn is_virtual_link(&self, vcs: u8, own: Pid, far: Pid) -> bool {
        let below = self.vcs(vcs).into_iter().flat_map(|state| state.vppbs.iter().skip(1));
        let mut links = below.filter_map(|vppb| match vppb.bound {
            Bound::Pid(link) if link.up => Some((link.own, link.far)),
            _ => None,
        });
        links.any(|ends| ends == (Some(own), far))
    }

    /// Drops the routes that the edge below a virtual link reported: its registers were reset, or the link is gone.
    pub(super) fn forget_cache_ids(&mut self, vcs: u8, edge: Pid) {
        if let Some(state) = self.vcses.get_mut(usize::from(vcs)) {
            state.cache_ids.forget(edge);
            self.publish_cache_ids(vcs);
        }
    }
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeMap;

    use weft_cxl::pci::Link;
    use weft_cxl::vdm::Vdm;
    use weft_dataplane::config::TlpConfig;
    use weft_dataplane::time::Instant;
    use weft_dataplane::types::PortId;
    use weft_hosts::classes::PriMap;
    use weft_parsers::cci::List;
    use weft_parsers::cci::pbr::{AssignOp, AssignPids, PathCost, PidAssignment, Vppb};
    use weft_parsers::cci::tables::SetDrt;
    use weft_parsers::fabric::DrtEntry;
    use weft_parsers::tlp::VdmOp;
    use weft_parsers::tlp::vdm::RtPair;

    use super::*;
    use crate::agent::{Agent, AgentConfig};
    use crate::config::{PortConfig, Role, SwitchConfig, VcsConfig};
    use crate::work::Work;

    const HOST: Pid = Pid::from_low_bits(0x30);
    const EDGE: Pid = Pid::from_low_bits(0x40);
    const OTHER: Pid = Pid::from_low_bits(0x41);
    const COST: PathCost =
        PathCost { latency_base: 0, latency: 0, bandwidth_base: 0, bandwidth: 0 };

    fn at(number: usize) -> PortId {
        PortId::new(number).unwrap()
    }

    /// A host at port 0 with PID 030, and a fabric port 1 that leads to all other PIDs; vPPB 1 is bound to 040.
    fn agent() -> Agent {
        let mut config = SwitchConfig::new([0x51; 16], 7);
        let roles = [Role::Usp, Role::Fabric].into_iter().enumerate();
        config.ports =
            roles.map(|(port, role)| PortConfig { port: at(port), role, pids: 1 }).collect();
        config.vcses = vec![VcsConfig { usp: Some(at(0)), vppbs: 2, gae: true }];
        let (modes, tlp) = (BTreeMap::new(), TlpConfig::for_pris(8));
        let config_of_agent =
            AgentConfig { modes, tlp, classes: PriMap::eight(), payload_max: 512 };
        let mut agent = Agent::new(Switch::new(config).unwrap(), config_of_agent);
        for port in 0..2 {
            agent.set_link(Instant::ZERO, at(port), Some(Link::default()));
        }
        agent.command(Instant::ZERO, |switch| {
            let list = [PidAssignment { pid: HOST, target: 0, instance: 0 }];
            let assign = AssignPids { op: AssignOp::Assign, assignments: List::of(&list) };
            assert!(switch.assign_pids(&assign).is_ok());
            let entries = List::of(&[DrtEntry::Port(1), DrtEntry::Port(1)]);
            assert!(switch.set_drt(&SetDrt { table: 0, start: EDGE.bits(), entries }).is_ok());
            let bind = Work::BindPid { vcs: 0, vppb: 1, far: EDGE, own: None, cost: COST };
            switch.do_now(&bind).unwrap();
        });
        agent
    }

    /// An edge announces the `CacheID`s of its ports. Returns the number of messages that the switch sends in answer.
    fn tells(agent: &mut Agent, edge: Pid, host: Pid, pairs: &[(u16, u8)]) -> u64 {
        let pairs = pairs
            .iter()
            .map(|&(port, cache_id)| RtPair { pid: Pid::from_low_bits(port), cache_id }.emit());
        let payload: Vec<u8> = pairs.flatten().collect();
        let mut vdm = Vdm::new(edge, host, VdmOp::RtUpdate).with_payload(&payload);
        vdm.pth.hie = true;
        agent.tells(Instant::ZERO, at(1), &vdm)
    }

    fn held(agent: &Agent) -> Vec<(u8, u16, u16)> {
        let ids = &agent.switch().vcs(0).unwrap().cache_ids;
        ids.iter().map(|(id, port, edge)| (id, port.bits(), edge.bits())).collect()
    }

    //= docs/spec/cxl-fabric.md "CacheID": whose update is taken, whole or not at all
    #[test]
    fn an_edge_tells_of_its_own_ports_by_its_own_binding() {
        let mut agent = agent();
        let known = [(0x123, 4), (0x124, 5)];
        assert_eq!(tells(&mut agent, EDGE, HOST, &known), 1, "it is answered");
        let want = vec![(4, 0x123, 0x40), (5, 0x124, 0x40)];
        assert_eq!(held(&agent), want);
        // Another edge has no binding here, and a PID that is not a host's gets no answer.
        assert_eq!(
            (tells(&mut agent, OTHER, HOST, &[(0x99, 6), (0x98, 7)]), held(&agent)),
            (1, want.clone())
        );
        assert_eq!((tells(&mut agent, EDGE, OTHER, &known), held(&agent)), (0, want.clone()));
        // One `CacheID` for two ports refuses the whole update.
        assert_eq!((tells(&mut agent, EDGE, HOST, &[(1, 4), (2, 4)]), held(&agent)), (1, want));
        assert_eq!(
            (tells(&mut agent, EDGE, HOST, &[(0x125, 6), (0xFFF, 0)]), held(&agent)),
            (1, vec![(6, 0x125, 0x40)])
        );
    }

    #[test]
    fn what_was_sent_before_a_reset_is_not_taken_after_it() {
        let mut agent = agent();
        agent.command(Instant::ZERO, |switch| switch.reset_path(Vppb { vcs: 0, vppb: 1 }));
        assert_eq!((tells(&mut agent, EDGE, HOST, &[(0x123, 4)]), held(&agent)), (1, vec![]));
        let mut by_route = Vdm::new(EDGE, HOST, VdmOp::RtUpdate);
        by_route.payload = [0; 4].into_iter().collect();
        assert_eq!(agent.tells(Instant::ZERO, at(1), &by_route), 0, "no virtual link carried it");
    }

    //= docs/spec/cxl-fabric.md "CacheID": gone with the link, its path, and the host
    #[test]
    fn what_an_edge_has_told_goes_with_the_link() {
        let ends: [fn(&mut Agent); 4] = [
            |agent| {
                let work = Work::UnbindPid { vcs: 0, vppb: 1 };
                agent.command(Instant::ZERO, |switch| switch.do_now(&work).unwrap());
            },
            |agent| agent.set_link(Instant::ZERO, at(1), None),
            |agent| agent.set_link(Instant::ZERO, at(0), None),
            |agent| {
                agent.command(Instant::ZERO, |switch| switch.reset_path(Vppb { vcs: 0, vppb: 1 }))
            },
        ];
        for (name, end) in ["unbind", "path", "host", "reset"].into_iter().zip(ends) {
            let mut agent = agent();
            let up = Vdm::new(EDGE, HOST, VdmOp::LinkUp);
            agent.tells(
                Instant::ZERO,
                at(1),
                &Vdm { pth: weft_parsers::tlp::Pth { hie: true, ..up.pth }, ..up },
            );
            tells(&mut agent, EDGE, HOST, &[(0x123, 4), (0x124, 5)]);
            assert_eq!(held(&agent).len(), 2, "{name}");
            end(&mut agent);
            assert_eq!(held(&agent), [], "{name}");
        }
    }
}
