//! `RTUpdate`s of downstream edges at a host's edge: whose are taken, and when they are forgotten.

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
const COST: PathCost = PathCost { latency_base: 0, latency: 0, bandwidth_base: 0, bandwidth: 0 };

fn at(number: usize) -> PortId {
    PortId::new(number).unwrap()
}

/// A host at port 0 with PID 030, and a fabric port 1 that leads to all other PIDs; vPPB 1 is bound to 040.
fn agent() -> Agent {
    let mut config = SwitchConfig::new([0x51; 16], 7);
    let roles = [Role::Usp, Role::Fabric].into_iter().enumerate();
    config.ports = roles.map(|(port, role)| PortConfig { port: at(port), role, pids: 1 }).collect();
    config.vcses = vec![VcsConfig { usp: Some(at(0)), vppbs: 2, gae: true }];
    let (modes, tlp) = (BTreeMap::new(), TlpConfig::for_pris(8));
    let config_of_agent = AgentConfig { modes, tlp, classes: PriMap::eight(), payload_max: 512 };
    let mut agent = Agent::new(Switch::new(config).unwrap(), config_of_agent);
    for port in 0..2 {
        agent.set_link(Instant::ZERO, at(port), Some(Link::default()));
    }
    agent.command(Instant::ZERO, |switch| {
        let list = [PidAssignment { pid: HOST, target: 0, instance: 0 }];
        let assign = AssignPids { op: AssignOp::Assign, assignments: List::of(&list) };
        assert!(switch.assign_pids(&assign).is_ok());
        let entries = List::of(&[DrtEntry::Port(1), DrtEntry::Port(1)]);
        assert!(
            switch.routing_mut().set_drt(&SetDrt { table: 0, start: EDGE.bits(), entries }).is_ok()
        );
        let bind = Work::BindPid { vcs: 0, vppb: 1, far: EDGE, own: None, cost: COST };
        switch.do_now(&bind).unwrap();
    });
    agent
}

fn reset_path(switch: &mut Switch) {
    switch.change(|vcses, _| vcses.reset_path(Vppb { vcs: 0, vppb: 1 }));
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
    agent.command(Instant::ZERO, reset_path);
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
        |agent| agent.command(Instant::ZERO, reset_path),
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
