//! Registers of `CacheID`s at bridges: rules of a commit, updates to the host's edge, withdrawals, and routes of the
//! dataplane.

use std::collections::BTreeMap;

use weft_base::rng::Rng;
use weft_cxl::pci::component::cache_id::regs as cache_regs;
use weft_cxl::pci::component::{LEN, PRIMARY};
use weft_cxl::pci::{ByteEnables, Link, Reg, regs};
use weft_cxl::vdm::Vdm;
use weft_cxl::vdm::rtupdate::CacheIds;
use weft_dataplane::config::TlpConfig;
use weft_dataplane::pbr::Function;
use weft_dataplane::types::PortId;
use weft_hosts::classes::PriMap;
use weft_parsers::cci::List;
use weft_parsers::cci::pbr::{AssignOp, AssignPids, PathCost, PidAssignment};
use weft_parsers::cci::tables::SetDrt;
use weft_parsers::cci::vcs::UnbindOption;
use weft_parsers::fabric::{DrtEntry, Hpa};
use weft_parsers::tlp::VdmOp;
use weft_parsers::tlp::vdm::RtPair;

use super::*;
use crate::agent::{Agent, AgentConfig};
use crate::config::{PortConfig, Role, SwitchConfig, VcsConfig};
use crate::work::Work;

const HOST: Pid = Pid::from_low_bits(0x30);
const EDGE: Pid = Pid::from_low_bits(0x40);
/// Address of the upstream bridge's component registers. Those of vPPB n follow n times 64 KiB behind.
const BASE: u64 = 0x8000_0000;
const STRUCTURE: u64 = PRIMARY + 0x10;
const DONE: u32 = cache_regs::COMMITTED;
const REFUSED: u32 = cache_regs::ERROR;

fn at(number: usize) -> PortId {
    PortId::new(number).unwrap()
}

const fn ms(ms: u64) -> Instant {
    Instant::from_ns(ms * 1_000_000)
}

const fn function(vppb: u8) -> Function {
    match vppb {
        0 => Function::Upstream,
        below => Function::Below(below - 1),
    }
}

/// A downstream switch: a fabric port 0 with PID 040, and devices at ports 1 to 3 with PIDs 051 to 053. Virtual switch
/// 0 is bound to 030, which the fabric port leads to.
fn without_devices() -> Switch {
    let mut config = SwitchConfig::new([0x51; 16], 7);
    let roles = [Role::Fabric, Role::Dsp, Role::Dsp, Role::Dsp].into_iter().enumerate();
    config.ports = roles.map(|(port, role)| PortConfig { port: at(port), role, pids: 1 }).collect();
    config.vcses = vec![VcsConfig { usp: None, vppbs: 3, gae: true }];
    let mut switch = Switch::new(config).unwrap();
    for (target, bits) in [(0, 0x40), (1, 0x51), (2, 0x52), (3, 0x53)] {
        give(&mut switch, target, bits);
    }
    let entries = List::of(&[DrtEntry::Port(0)]);
    assert!(
        switch.routing_mut().set_drt(&SetDrt { table: 0, start: HOST.bits(), entries }).is_ok()
    );
    let cost = PathCost { latency_base: 0, latency: 0, bandwidth_base: 0, bandwidth: 0 };
    switch.do_now(&Work::BindPid { vcs: 0, vppb: 0, far: HOST, own: None, cost }).unwrap();
    switch
}

/// The same with all links up. vPPBs 1 and 2 are bound to the first two devices, and all component registers have
/// addresses.
fn switch() -> Switch {
    let mut switch = without_devices();
    for port in 0..4 {
        switch.set_link(at(port), Some(Link::default()));
    }
    bind(&mut switch, 1, 1);
    bind(&mut switch, 2, 2);
    place(&mut switch);
    switch
}

fn give(switch: &mut Switch, target: u16, bits: u16) {
    let list = [PidAssignment { pid: Pid::from_low_bits(bits), target, instance: 0 }];
    let assign = AssignPids { op: AssignOp::Assign, assignments: List::of(&list) };
    assert!(switch.assign_pids(&assign).is_ok());
}

fn bind(switch: &mut Switch, vppb: u8, port: usize) {
    switch.do_now(&Work::Bind { vcs: 0, vppb, port: at(port), ld: None }).unwrap();
}

fn unbind(switch: &mut Switch, vppb: u8) {
    let option = UnbindOption::Managed;
    switch.do_now(&Work::Unbind { vcs: 0, vppb, option }).unwrap();
}

/// Gives all component registers their addresses, as enumeration does.
fn place(switch: &mut Switch) {
    for vppb in 0..=3 {
        let base = u32::try_from(BASE + u64::from(vppb) * LEN).unwrap();
        let all = ByteEnables::ALL;
        assert!(switch.config_write(0, function(vppb), Reg::at(regs::BAR0), base, all));
        let command = u32::from(regs::command::MEM | regs::command::MASTER);
        assert!(switch.config_write(0, function(vppb), Reg::at(regs::COMMAND), command, all));
    }
}

fn poll(switch: &mut Switch, now: Instant) -> Vec<Vdm> {
    switch.change(|vcses, ports| vcses.poll_cache_ids(now, ports))
}

fn due(switch: &Switch) -> Option<Instant> {
    switch.virtual_switches().cache_ids_due()
}

fn reset(switch: &mut Switch) {
    switch.change(|vcses, _| vcses.reset(0));
}

fn set_path(switch: &mut Switch, vppb: u8, is_up: bool) {
    switch.change(|vcses, _| vcses.set_path(Vppb { vcs: 0, vppb }, is_up));
}

fn port_pid(switch: &Switch, vppb: u8) -> Option<Pid> {
    switch.vcs(0).unwrap().port_pid(switch.ports(), vppb)
}

fn write(switch: &mut Switch, vppb: u8, at: u16, bytes: &[u8]) {
    let at = Hpa(BASE + u64::from(vppb) * LEN + STRUCTURE + u64::from(at));
    assert!(switch.register_write(Instant::ZERO, 0, function(vppb), at, bytes), "{at}");
}

fn read(switch: &mut Switch, vppb: u8, at: u16) -> u32 {
    let mut bytes = [0; 4];
    let at = Hpa(BASE + u64::from(vppb) * LEN + STRUCTURE + u64::from(at));
    assert!(switch.vcs(0).unwrap().register_read(function(vppb), at, &mut bytes), "{at}");
    u32::from_le_bytes(bytes)
}

fn status(switch: &mut Switch, vppb: u8) -> u32 {
    read(switch, vppb, cache_regs::STATUS) & (DONE | REFUSED)
}

/// Commits this setting of a decoder, and returns the status.
fn decode(switch: &mut Switch, vppb: u8, control: u32) -> u32 {
    write(switch, vppb, cache_regs::CONTROL, &control.to_le_bytes());
    let control = control | cache_regs::DECODER_COMMIT;
    write(switch, vppb, cache_regs::CONTROL, &control.to_le_bytes());
    status(switch, vppb)
}

const fn assign(cache_id: u8) -> u32 {
    cache_regs::ASSIGN | (cache_id as u32) << cache_regs::LOCAL
}

/// Sets all targets, and requests a commit.
fn commit(switch: &mut Switch, targets: &[(u8, u8)]) {
    let mut all = [0; 32];
    for &(cache_id, port) in targets {
        all[usize::from(cache_id) * 2..][..2].copy_from_slice(&[1, port]);
    }
    write(switch, 0, cache_regs::TARGETS, &all);
    for bit in [0, 1] {
        write(switch, 0, cache_regs::CONTROL, &[bit, 0, 0, 0]);
    }
}

/// The updates that the switch sends at a time, each as its pairs.
fn says(switch: &mut Switch, now: Instant) -> Vec<Vec<(u16, u8)>> {
    let all = poll(switch, now);
    let one = |vdm: Vdm| {
        assert_eq!((vdm.op, vdm.pth.hie), (VdmOp::RtUpdate, true));
        assert_eq!((vdm.pth.spid, vdm.pth.dpid), (EDGE, HOST));
        RtPair::all(&vdm.payload).map(|pair| (pair.pid.bits(), pair.cache_id)).collect()
    };
    all.into_iter().map(one).collect()
}

fn answer(switch: &mut Switch, from: Pid, to: Pid, hie: bool, op: VdmOp) -> bool {
    let mut vdm = Vdm::new(from, to, op);
    vdm.pth.hie = hie;
    switch.change(|vcses, _| vcses.answered_cache_ids(&vdm))
}

fn ack(switch: &mut Switch) -> bool {
    answer(switch, HOST, EDGE, true, VdmOp::RtUpdateAck)
}

/// Both devices have `CacheID`s 4 and 5, and the host's edge has been told.
fn committed() -> Switch {
    let mut switch = switch();
    assert_eq!([decode(&mut switch, 1, assign(4)), decode(&mut switch, 2, assign(5))], [DONE; 2]);
    commit(&mut switch, &[(4, 1), (5, 2)]);
    assert_eq!(says(&mut switch, Instant::ZERO), [vec![(0x51, 4), (0x52, 5)]]);
    assert!(ack(&mut switch));
    assert_eq!(status(&mut switch, 0), DONE);
    switch
}

//= CXL 3.1 section 7.7.12.5: a commit of the host's is told to its edge
#[test]
fn a_commit_is_told_and_its_answer_shown() {
    let mut switch = committed();
    commit(&mut switch, &[(5, 2)]);
    assert_eq!(status(&mut switch, 0), 0, "not yet");
    assert_eq!(
        says(&mut switch, Instant::ZERO),
        [vec![(0x52, 5)]],
        "it takes the place of the first"
    );
    assert!(answer(&mut switch, HOST, EDGE, true, VdmOp::RtUpdateNak));
    assert_eq!(status(&mut switch, 0), REFUSED);
    commit(&mut switch, &[]);
    assert_eq!(status(&mut switch, 0), 0, "tried again");
    for n in 0..10 {
        assert_eq!(says(&mut switch, ms(10 * n)), [Vec::new()], "try {n}");
        assert_eq!(says(&mut switch, ms(10 * n)), Vec::<Vec<_>>::new());
    }
    assert_eq!((status(&mut switch, 0), due(&switch)), (0, Some(ms(100))));
    assert_eq!(says(&mut switch, ms(100)), Vec::<Vec<_>>::new());
    assert_eq!((status(&mut switch, 0), due(&switch)), (REFUSED, None), "no answer came");
    assert!(!ack(&mut switch), "too late");
    assert_eq!(status(&mut switch, 0), REFUSED);
}

//= docs/spec/cxl-fabric.md "CacheID": which targets may be committed
#[test]
fn a_table_that_leads_nowhere_is_refused_and_told_to_nobody() {
    type Before = fn(&mut Switch);
    type Case<'a> = (&'a str, Before, &'a [(u8, u8)], u32);
    let as_it_is: Before = |_| ();
    #[rustfmt::skip] // columns: name, event before, targets, status
    let cases: [Case<'_>; 12] = [
        ("both",                     as_it_is, &[(4, 1), (5, 2)], 0),
        ("one",                      as_it_is, &[(5, 2)], 0),
        ("none",                     as_it_is, &[], 0),
        ("another's",                as_it_is, &[(4, 2)], REFUSED),
        ("one of two",               as_it_is, &[(4, 1), (6, 2)], REFUSED),
        ("upstream",                 as_it_is, &[(4, 0)], REFUSED),
        ("bound to nothing",         as_it_is, &[(4, 3)], REFUSED),
        ("no such port",             as_it_is, &[(4, 200)], REFUSED),
        ("no decoder committed",     |it| { unbind(it, 1); bind(it, 1, 1); }, &[(4, 1)], REFUSED),
        ("a switch below",           |it| { decode(it, 1, cache_regs::FORWARD); }, &[(0, 1), (15, 1)], 0),
        ("unbound again",            |it| unbind(it, 1), &[(4, 1)], REFUSED),
        ("virtual link down",        |it| set_path(it, 0, false), &[], REFUSED),
    ];
    for (name, before, targets, want) in cases {
        let mut switch = committed();
        before(&mut switch);
        says(&mut switch, Instant::ZERO);
        ack(&mut switch);
        commit(&mut switch, targets);
        assert_eq!(status(&mut switch, 0), want, "{name}");
        let told: Vec<(u16, u8)> =
            targets.iter().map(|(id, port)| (0x50 + u16::from(*port), *id)).collect();
        let want = if want == 0 { vec![told] } else { Vec::new() };
        assert_eq!(says(&mut switch, Instant::ZERO), want, "{name}");
    }
}

//= docs/spec/cxl-fabric.md "CacheID": which decoders may be committed
#[test]
fn no_cache_id_is_assigned_twice() {
    let mut switch = committed();
    assert_eq!(decode(&mut switch, 2, assign(4)), REFUSED, "the other's");
    assert_eq!(decode(&mut switch, 2, assign(6)), DONE);
    assert_eq!(decode(&mut switch, 2, assign(5) | cache_regs::HDM_D), REFUSED);
    assert_eq!(decode(&mut switch, 3, assign(5)), DONE, "6 is still in force there");
    assert_eq!(decode(&mut switch, 3, assign(6)), REFUSED);
    assert_eq!(decode(&mut switch, 2, 0), DONE, "given back");
    assert_eq!(decode(&mut switch, 3, assign(6)), DONE);
    // A value that is written but not committed changes nothing.
    write(&mut switch, 1, cache_regs::CONTROL, &assign(9).to_le_bytes());
    assert_eq!(decode(&mut switch, 2, assign(4)), REFUSED);
    assert_eq!(says(&mut switch, Instant::ZERO), Vec::<Vec<_>>::new(), "the table is as it was");
}

//= docs/spec/cxl-fabric.md "CacheID": what the switch takes back, and what it forgets
#[test]
fn what_holds_no_more_is_taken_back() {
    type Event = fn(&mut Switch);
    type Told = Option<Vec<(u16, u8)>>;
    #[rustfmt::skip] // columns: name, event, update to the host's edge, whether decoder 2 is unchanged
    let cases: [(&str, Event, Told, bool); 6] = [
        ("unbind",      |it| unbind(it, 1), Some(vec![(0x52, 5)]), true),
        ("another PID", |it| give(it, 1, 0x61), Some(vec![(0x52, 5)]), true),
        ("bus reset",   |it| { it.config_write(0, Function::Upstream, Reg::at(regs::BRIDGE_CONTROL), u32::MAX, ByteEnables::from_low_bits(0b1100)); }, Some(vec![]), false),
        ("reset",       |it| reset(it), None, false),
        ("link gone",   |it| it.do_now(&Work::UnbindPid { vcs: 0, vppb: 0 }).unwrap(), None, false),
        ("nothing",     |_| (), None, true),
    ];
    for (name, event, want, stays) in cases {
        for under_way in [false, true] {
            let mut switch = committed();
            if under_way {
                commit(&mut switch, &[(4, 1), (5, 2)]);
                assert_eq!(says(&mut switch, ms(1)).len(), 1);
            }
            event(&mut switch);
            let ours = ack(&mut switch);
            let mut told = says(&mut switch, ms(2));
            assert_eq!((told.pop(), told.len()), (want.clone(), 0), "{name} {under_way}");
            assert_eq!(ours, under_way && (want.is_some() || name == "nothing"), "{name}");
            assert_eq!(ack(&mut switch), want.is_some(), "{name}");
            assert_eq!(says(&mut switch, ms(3)).len(), 0, "{name}: once");
            place(&mut switch);
            let control = read(&mut switch, 2, cache_regs::CONTROL);
            assert_eq!(control != 0, stays, "{name}");
            let is_reset = matches!(name, "reset" | "link gone");
            assert_eq!(read(&mut switch, 0, cache_regs::CONTROL), u32::from(!is_reset), "{name}");
        }
    }
    let mut switch = committed();
    unbind(&mut switch, 1);
    assert_eq!(read(&mut switch, 1, cache_regs::CONTROL), 0, "as after power-on");
}

//= docs/spec/cxl-fabric.md "CacheID": an edge that alone has lost the link is told again
#[test]
fn an_edge_that_asks_again_is_told_again() {
    let config = AgentConfig {
        modes: BTreeMap::new(),
        tlp: TlpConfig::for_pris(8),
        classes: PriMap::eight(),
        payload_max: 512,
    };
    let mut agent = Agent::new(without_devices(), config);
    for port in 0..4 {
        agent.set_link(Instant::ZERO, at(port), Some(Link::default()));
    }
    let says = |agent: &mut Agent, op| {
        let mut vdm = Vdm::new(HOST, EDGE, op);
        vdm.pth.hie = true;
        agent.tells(Instant::ZERO, at(0), &vdm);
    };
    let routes = |agent: &Agent| {
        let sent = agent.switch().vcs(0).unwrap().cache_ids.sent();
        sent.map(|update| (update.routes.len(), update.commit.is_some()))
    };
    says(&mut agent, VdmOp::DeassertReset);
    assert_eq!(routes(&agent), None, "there is nothing to tell");
    agent.command(Instant::ZERO, |switch| {
        bind(switch, 1, 1);
        place(switch);
        assert_eq!(decode(switch, 1, assign(4)), DONE);
        commit(switch, &[(4, 1)]);
    });
    assert_eq!(routes(&agent), Some((1, true)));
    says(&mut agent, VdmOp::RtUpdateAck);
    assert_eq!(routes(&agent), None);
    says(&mut agent, VdmOp::DeassertReset);
    assert_eq!(routes(&agent), Some((1, false)), "again");
    says(&mut agent, VdmOp::RtUpdateAck);
    assert_eq!(routes(&agent), None);
    assert_eq!(agent.command(Instant::ZERO, |switch| status(switch, 0)), DONE);
    says(&mut agent, VdmOp::AssertReset);
    says(&mut agent, VdmOp::DeassertReset);
    assert_eq!(routes(&agent), None, "reset: nothing is left");
}

#[test]
fn a_commit_beside_another_waits_and_one_taken_back_is_not_shown() {
    let mut switch = committed();
    commit(&mut switch, &[(4, 1)]);
    assert_eq!(says(&mut switch, ms(1)), [vec![(0x51, 4)]]);
    commit(&mut switch, &[(5, 2)]);
    assert_eq!(
        says(&mut switch, ms(2)),
        Vec::<Vec<_>>::new(),
        "its answer is not that of the first"
    );
    assert!(ack(&mut switch));
    assert_eq!(status(&mut switch, 0), 0, "of the one that was taken back");
    assert_eq!(says(&mut switch, ms(3)), [vec![(0x52, 5)]]);
    unbind(&mut switch, 2);
    assert!(ack(&mut switch));
    assert_eq!(status(&mut switch, 0), DONE);
    assert_eq!(says(&mut switch, ms(4)), [Vec::new()]);
    // A waiting commit fails if one of its devices goes away meanwhile.
    commit(&mut switch, &[(4, 1)]);
    assert!(says(&mut switch, ms(5)).is_empty(), "behind what was taken back");
    unbind(&mut switch, 1);
    assert_eq!(status(&mut switch, 0), REFUSED);
    assert!(ack(&mut switch));
    assert!(says(&mut switch, ms(6)).is_empty());
}

/// docs/security.md: an answer counts only on the virtual link that the update was sent on.
#[test]
fn nobody_else_answers() {
    let mut switch = committed();
    commit(&mut switch, &[]);
    assert_eq!(says(&mut switch, Instant::ZERO).len(), 1);
    let other = Pid::from_low_bits(0x31);
    for op in [VdmOp::RtUpdateAck, VdmOp::RtUpdateNak] {
        assert!(!answer(&mut switch, other, EDGE, true, op), "another host's edge");
        assert!(!answer(&mut switch, HOST, other, true, op), "not by that link");
        assert!(!answer(&mut switch, HOST, EDGE, false, op), "by its route alone");
    }
    assert_eq!(status(&mut switch, 0), 0);
    assert!(ack(&mut switch));
}

#[test]
fn registers_are_where_their_bar_is_and_beside_no_gae_that_is_alone() {
    let mut switch = switch();
    let mut bytes = [0; 8];
    for (at, there) in
        [(BASE, true), (BASE - 4, false), (BASE + LEN - 4, false), (BASE + LEN - 8, true)]
    {
        assert_eq!(
            switch.vcs(0).unwrap().register_read(Function::Upstream, Hpa(at), &mut bytes),
            there,
            "{at:#x}"
        );
        assert_eq!(switch.register_write(ms(0), 0, Function::Upstream, Hpa(at), &bytes), there);
    }
    assert!(
        !switch.vcs(0).unwrap().register_read(Function::Below(0), Hpa(BASE), &mut bytes),
        "another's"
    );
    let bar = switch.tables().vcs(0).unwrap().below()[1].bar;
    assert_eq!(bar, weft_dataplane::pbr::Window::new(BASE + 2 * LEN, BASE + 3 * LEN - 1));
    let off = ByteEnables::ALL;
    switch.config_write(0, Function::Upstream, Reg::at(regs::COMMAND), 0, off);
    assert!(
        !switch.vcs(0).unwrap().register_read(Function::Upstream, Hpa(BASE), &mut bytes),
        "memory is off"
    );
    let mut config = SwitchConfig::new([0x51; 16], 7);
    config.ports = vec![PortConfig { port: at(0), role: Role::Usp, pids: 1 }];
    for (vppbs, there) in [(0, false), (1, true)] {
        config.vcses = vec![VcsConfig { usp: Some(at(0)), vppbs, gae: true }];
        let switch = Switch::new(config.clone()).unwrap();
        let all = &switch.vcs(0).unwrap().vppbs;
        assert!(all.iter().all(|vppb| vppb.component.is_some() == there), "{vppbs}");
    }
}

/// Random writes, binds and resets. Once all updates are answered, the host's edge has only ports that exist.
/// `Committed` never appears before an Ack.
#[test]
fn random_writes_leave_the_hosts_edge_with_what_holds() {
    let (mut most, mut done, mut refused) = (0, 0, 0);
    for seed in 0..60 {
        let (mut rng, mut switch) = (Rng::new(seed), switch());
        let mut edge = CacheIds::default();
        for step in 0..600 {
            if random_step(&mut rng, &mut switch) {
                edge.forget(EDGE); // the edge sees a reset itself
            }
            let was = status(&mut switch, 0);
            let mut answers = 0;
            while let [vdm] = poll(&mut switch, ms(step)).as_slice() {
                let one = edge.receive(vdm, true).unwrap();
                assert!(
                    switch.change(|vcses, _| vcses.answered_cache_ids(&one)),
                    "seed {seed} step {step}"
                );
                answers += 1;
            }
            let now = status(&mut switch, 0);
            assert!(now == was || answers > 0, "seed {seed} step {step}: {was} {now}");
            done += u32::from(now == DONE);
            refused += u32::from(now == REFUSED);
            most = most.max(edge.iter().count());
            for (cache_id, port, from) in edge.iter() {
                let owner = (1..=3).find(|&vppb| port_pid(&switch, vppb) == Some(port));
                assert!(owner.is_some() && from == EDGE, "seed {seed}: {cache_id} at {port}");
            }
        }
    }
    assert!(most >= 2 && done > 1_000 && refused > 1_000, "{most} {done} {refused}");
}

/// Does one random thing; true if it is a reset.
fn random_step(rng: &mut Rng, switch: &mut Switch) -> bool {
    let draw = |rng: &mut Rng, bound: u64| u8::try_from(rng.below(bound)).unwrap();
    let vppb = draw(rng, 4);
    match rng.below(12) {
        0 => {
            let len = usize::try_from(rng.below(64)).unwrap();
            let bytes: Vec<u8> = (0..len).map(|_| rng.next_u64().to_le_bytes()[0]).collect();
            let at = u16::try_from(rng.below(0x40)).unwrap();
            write(switch, vppb, at, &bytes);
        }
        1 if vppb > 0 && port_pid(switch, vppb).is_some() => unbind(switch, vppb),
        1 | 2 if vppb > 0 && port_pid(switch, vppb).is_none() => bind(switch, vppb, vppb.into()),
        3 if rng.below(8) == 0 => {
            reset(switch);
            place(switch);
            return true;
        }
        4..=7 if vppb > 0 => {
            decode(switch, vppb, assign(draw(rng, 5)));
        }
        _ => {
            let targets: Vec<(u8, u8)> = (1..=3).map(|port| (draw(rng, 5), port)).collect();
            let true_ones: Vec<(u8, u8)> = (0..5)
                .flat_map(|id| (1..=3).map(move |port| (id, port)))
                .filter(|&(id, port)| {
                    let state = switch.vcs(0).unwrap();
                    state.route(switch.ports(), id, port).is_some()
                })
                .collect();
            commit(switch, if rng.below(4) == 0 { &targets } else { &true_ones });
        }
    }
    false
}

/// A host's edge: the host at port 0 with PID 030, devices at ports 1 and 2 with PIDs 051 and 052, and a fabric port 3.
/// vPPBs 1 and 2 are bound to the devices, and vPPB 3 to 040, whose edge has announced `CacheID` 9 for its port 123.
fn hosts_edge() -> Switch {
    let mut config = SwitchConfig::new([0x51; 16], 7);
    let roles = [Role::Usp, Role::Dsp, Role::Dsp, Role::Fabric].into_iter().enumerate();
    config.ports = roles.map(|(port, role)| PortConfig { port: at(port), role, pids: 1 }).collect();
    config.vcses = vec![VcsConfig { usp: Some(at(0)), vppbs: 3, gae: true }];
    let mut switch = Switch::new(config).unwrap();
    for (target, bits) in [(0, 0x30), (1, 0x51), (2, 0x52)] {
        give(&mut switch, target, bits);
    }
    let entries = List::of(&[DrtEntry::Port(3)]);
    assert!(
        switch.routing_mut().set_drt(&SetDrt { table: 0, start: EDGE.bits(), entries }).is_ok()
    );
    for port in 0..4 {
        switch.set_link(at(port), Some(Link::default()));
    }
    bind(&mut switch, 1, 1);
    bind(&mut switch, 2, 2);
    let cost = PathCost { latency_base: 0, latency: 0, bandwidth_base: 0, bandwidth: 0 };
    switch.do_now(&Work::BindPid { vcs: 0, vppb: 3, far: EDGE, own: None, cost }).unwrap();
    set_path(&mut switch, 3, true);
    place(&mut switch);
    assert_eq!(tells(&mut switch, &[(0x123, 9)]), Some(VdmOp::RtUpdateAck));
    switch
}

/// Receives an update from the edge below the virtual link, padded to whole DWs, and returns the answer.
fn tells(switch: &mut Switch, pairs: &[(u16, u8)]) -> Option<VdmOp> {
    let nothing = (!pairs.len().is_multiple_of(2)).then_some((0xFFF, 0));
    let pairs = pairs.iter().copied().chain(nothing);
    let pairs =
        pairs.map(|(port, cache_id)| RtPair { pid: Pid::from_low_bits(port), cache_id }.emit());
    let payload: Vec<u8> = pairs.flatten().collect();
    let mut vdm = Vdm::new(EDGE, HOST, VdmOp::RtUpdate).with_payload(&payload);
    vdm.pth.hie = true;
    let answer = switch.change(|vcses, _| vcses.receive_cache_ids(0, &vdm));
    answer.map(|answer| answer.op)
}

/// Routes of a host's edge: port of each `CacheID`, and the `CacheID`s from 0 to 15 that each device's port lets pass.
fn routed(switch: &Switch) -> (Vec<(u8, u16)>, [Vec<u8>; 2]) {
    let routes = switch.tables().vcs(0).map(|vcs| *vcs.cache_routes()).unwrap();
    let ports = (0..16).filter_map(|id| Some((id, routes.port(id)?.bits()))).collect();
    let decoders = [1, 2].map(|port| {
        let edge = switch.tables().edge(at(port)).unwrap();
        (0..16).filter(|id| edge.cache_ids.has(*id)).collect()
    });
    (ports, decoders)
}

//= docs/spec/cxl-fabric.md "CacheID": a host's own edge has registers, too, and what is committed there is in force at once
#[test]
fn at_a_hosts_own_edge_a_commit_is_in_force_at_once() {
    let mut switch = hosts_edge();
    assert_eq!(routed(&switch), (vec![(9, 0x123)], [vec![], vec![]]));
    assert_eq!([decode(&mut switch, 1, assign(4)), decode(&mut switch, 2, assign(5))], [DONE; 2]);
    assert_eq!(routed(&switch), (vec![(9, 0x123)], [vec![4], vec![5]]), "the decoders");
    let epoch = switch.epoch();
    commit(&mut switch, &[(4, 1), (5, 2)]);
    assert_eq!(status(&mut switch, 0), DONE);
    assert!(switch.epoch() > epoch, "the dataplane gets new tables");
    let all = (vec![(4, 0x51), (5, 0x52), (9, 0x123)], [vec![4], vec![5]]);
    assert_eq!(routed(&switch), all);
    let own: Vec<(u8, u16, u8)> = switch
        .vcs(0)
        .unwrap()
        .own_cache_ids()
        .map(|(id, port, vppb)| (id, port.bits(), vppb))
        .collect();
    assert_eq!(own, [(4, 0x51, 1), (5, 0x52, 2)]);
    assert!(poll(&mut switch, ms(1)).is_empty(), "no device is notified");
    #[rustfmt::skip] // columns: name, targets
    let refused: [(&str, &[(u8, u8)]); 6] = [
        ("another's",              &[(4, 2)]),
        ("one of two",             &[(4, 1), (6, 2)]),
        ("upstream",               &[(4, 0)]),
        ("no such port",           &[(4, 200)]),
        ("a virtual link",         &[(9, 3)]),
        ("no decoder lets it",     &[(9, 1)]),
    ];
    for (name, targets) in refused {
        commit(&mut switch, targets);
        assert_eq!((status(&mut switch, 0), routed(&switch)), (REFUSED, all.clone()), "{name}");
    }
    // A `CacheID` of a downstream edge is taken for the host's own commits, and the other way round.
    assert_eq!(decode(&mut switch, 2, assign(9)), DONE);
    commit(&mut switch, &[(4, 1), (9, 2)]);
    assert_eq!(status(&mut switch, 0), REFUSED);
    for (pairs, answer) in [
        (&[(0x123, 4)][..], VdmOp::RtUpdateNak),
        (&[(0x123, 6), (0x124, 5)], VdmOp::RtUpdateNak),
        (&[(0x123, 6), (0xFFF, 5)], VdmOp::RtUpdateAck),
    ] {
        assert_eq!(tells(&mut switch, pairs), Some(answer), "{pairs:?}");
    }
    let (ports, _) = routed(&switch);
    assert_eq!(ports, [(4, 0x51), (5, 0x52), (6, 0x123)]);
    commit(&mut switch, &[(4, 1), (9, 2)]);
    assert_eq!((status(&mut switch, 0), routed(&switch).0[2]), (DONE, (9, 0x52)), "free now");
    // With Forward, exactly the `CacheID`s that the table leads there.
    assert_eq!(decode(&mut switch, 1, cache_regs::FORWARD), DONE);
    assert_eq!(routed(&switch).1[0], [4]);
    commit(&mut switch, &[(0, 1), (15, 1)]);
    assert_eq!(routed(&switch), (vec![(0, 0x51), (6, 0x123), (15, 0x51)], [vec![0, 15], vec![9]]));
}

//= docs/spec/cxl-fabric.md "CacheID": what is taken back, and what is forgotten, at a host's own edge
#[test]
fn at_a_hosts_own_edge_nothing_is_left_of_what_has_gone() {
    type Event = fn(&mut Switch);
    type Left = (Vec<(u16, u8)>, [Vec<u8>; 2]);
    #[rustfmt::skip] // columns: name, event, routes after it
    let cases: [(&str, Event, Left); 7] = [
        ("nothing",     |_| (), (vec![(0x51, 4), (0x52, 5), (0x123, 9)], [vec![4], vec![5]])),
        ("unbind",      |it| unbind(it, 1), (vec![(0x52, 5), (0x123, 9)], [vec![], vec![5]])),
        ("another PID", |it| give(it, 1, 0x61), (vec![(0x52, 5), (0x123, 9)], [vec![4], vec![5]])),
        ("bus reset",   |it| { it.config_write(0, Function::Upstream, Reg::at(regs::BRIDGE_CONTROL), u32::MAX, ByteEnables::from_low_bits(0b1100)); }, (vec![(0x123, 9)], [vec![], vec![]])),
        ("reset",       |it| reset(it), (vec![], [vec![], vec![]])),
        ("path lost",   |it| set_path(it, 3, false), (vec![(0x51, 4), (0x52, 5)], [vec![4], vec![5]])),
        ("device in reset", |it| it.set_resetting(at(1), true), (vec![(0x51, 4), (0x52, 5), (0x123, 9)], [vec![], vec![5]])),
    ];
    for (name, event, (ports, decoders)) in cases {
        let mut switch = hosts_edge();
        decode(&mut switch, 1, assign(4));
        decode(&mut switch, 2, assign(5));
        commit(&mut switch, &[(4, 1), (5, 2)]);
        event(&mut switch);
        switch.refresh(); // as at the end of each command
        let ports: Vec<(u8, u16)> = ports.into_iter().map(|(port, id)| (id, port)).collect();
        assert_eq!(routed(&switch), (ports, decoders), "{name}");
        assert!(poll(&mut switch, ms(1)).is_empty(), "{name}: no device is notified");
    }
    // A device that is bound anew has no `CacheID`.
    let mut switch = hosts_edge();
    decode(&mut switch, 1, assign(4));
    commit(&mut switch, &[(4, 1)]);
    unbind(&mut switch, 1);
    bind(&mut switch, 1, 1);
    switch.refresh();
    assert_eq!(routed(&switch), (vec![(9, 0x123)], [vec![], vec![]]));
    commit(&mut switch, &[(4, 1)]);
    assert_eq!(status(&mut switch, 0), REFUSED);
}

/// Below a virtual link, decoders are in force at once, and the table once the host's edge has acknowledged it.
#[test]
fn below_a_virtual_link_the_dataplane_knows_what_the_hosts_edge_has() {
    let mut switch = switch();
    let has = |switch: &Switch, port: usize| -> Vec<u8> {
        let edge = switch.tables().edge(at(port)).unwrap();
        (0..16).filter(|id| edge.cache_ids.has(*id)).collect()
    };
    decode(&mut switch, 1, assign(4));
    decode(&mut switch, 2, cache_regs::FORWARD);
    commit(&mut switch, &[(4, 1), (6, 2), (7, 2)]);
    assert_eq!((has(&switch, 1), has(&switch, 2)), (vec![4], vec![]), "not yet");
    assert_eq!(says(&mut switch, Instant::ZERO).len(), 1);
    assert!(ack(&mut switch));
    assert_eq!((has(&switch, 1), has(&switch, 2)), (vec![4], vec![6, 7]));
    let routes = switch.tables().vcs(0).unwrap().cache_routes();
    assert!((0..16).all(|id| routes.port(id).is_none()), "its host is at another switch");
    commit(&mut switch, &[(4, 1), (7, 2)]);
    says(&mut switch, ms(1));
    assert!(answer(&mut switch, HOST, EDGE, true, VdmOp::RtUpdateNak));
    assert_eq!(has(&switch, 2), [6, 7], "what was told before holds");
    unbind(&mut switch, 2);
    switch.refresh();
    assert_eq!((has(&switch, 1), has(&switch, 2)), (vec![4], vec![]));
    reset(&mut switch);
    assert_eq!(has(&switch, 1), Vec::<u8>::new());
}
