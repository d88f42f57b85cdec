//! Memory given, taken, and what is left when something fails.
//!
//! Shape: two edge switches with hosts, GFDs at both.
//! Units: octets.
//! Source: CXL 3.1 sections 7.7.2.3 to 7.7.2.5.

use weft_dataplane::rng::Rng;
use weft_parsers::fabric::{Hpa, Pid};

use super::discovery::{US, number};
use super::fake::{Fake, Faults, Kind, Shared};
use super::fake_gfd::{BLOCK, GfdState};
use super::plan::set_up;
use crate::fm::graph::{SwitchId, generate};
use crate::fm::inventory::{Inventory, TargetKind};
use crate::fm::memory::{Host, Memory, MemoryError, Request};

/// A line of two switches with a host each, and `gfds` GFDs of 16 blocks.
pub fn fabric(gfds: u16) -> (Shared, Inventory) {
    let mut fake = Fake::of(&generate::line(2, 1).unwrap());
    for at in 0..gfds {
        fake.add(SwitchId(at % 2), Some(GfdState::new(16)));
    }
    let shared = Shared::new(fake);
    let (inventory, ..) = set_up(&shared);
    (shared, inventory)
}

pub fn hosts(inventory: &Inventory) -> Vec<Host> {
    let of = |(switch, found): (SwitchId, &crate::fm::inventory::Switch)| {
        let target = found.targets.iter().find(|t| t.kind == TargetKind::Host && !t.pid.is_none());
        target.map(|target| Host { switch, vcs: target.vcs, pid: target.pid })
    };
    inventory.by_id().filter_map(of).collect()
}

pub fn wanted(inventory: &Inventory, tag: u8) -> Request {
    let gfds: Vec<Pid> = inventory.gfds.iter().map(|gfd| gfd.pid).collect();
    let len = 2 * BLOCK * u64::try_from(gfds.len()).unwrap();
    let hpa = Hpa(0x0100_0000_0000);
    Request { tag: [tag; 16], hosts: hosts(inventory), gfds, len, granularity: 4_096, hpa }
}

/// Everything of all GFDs and access vectors; to see that nothing has changed.
fn traces(shared: &Shared) -> Vec<String> {
    shared.with(|fake| {
        let one = |node: &super::fake::Node| match &node.kind {
            Kind::Gfd(gfd) => {
                let extents: Vec<_> = gfd.extents.values().flatten().collect();
                let rights: Vec<_> = gfd.sat.iter().filter(|(_, vector)| **vector != 0).collect();
                let decoders: Vec<_> = gfd.gdt.values().filter_map(|entry| entry.decoder).collect();
                format!("{extents:?} {rights:?} {decoders:?}")
            }
            Kind::Switch(state) => {
                format!("{:?}", state.vcss.iter().map(|vcs| &vcs.gmv).collect::<Vec<_>>())
            }
        };
        fake.nodes.iter().map(one).collect()
    })
}

#[test]
fn four_gfds_are_shared_by_two_hosts_and_given_back() {
    let (shared, inventory) = fabric(4);
    let mut fabric = shared.fabric(US);
    let empty = traces(&shared);
    let mut memory = Memory::default();
    let share = memory.share(&mut fabric, &inventory, &wanted(&inventory, 1)).unwrap().clone();
    let [first, second] = hosts(&inventory)[..] else { panic!("two hosts") };
    for (way, part) in share.parts.iter().enumerate() {
        shared.with(|fake| {
            let place = fake.nodes.iter().position(|node| node.base.pid == part.gfd).unwrap();
            let gfd = fake.gfd(place);
            for host in [first, second] {
                let decoder = gfd.gdt[&(host.pid, part.decoder)].decoder.unwrap();
                assert_eq!((usize::from(decoder.way), decoder.interleave.ways()), (way, 4));
                assert_eq!((decoder.dpa_len, decoder.interleave.granularity()), (2 * BLOCK, 4_096));
                assert_eq!(gfd.sat[&host.pid], 1 << part.group);
            }
            for host in [first, second] {
                let gmv =
                    &fake.switch(number(&inventory, host.switch)).vcss[usize::from(host.vcs)].gmv;
                assert!(gmv.contains(&part.gfd));
            }
        });
    }
    memory.revoke(&mut fabric, &inventory, &[1; 16], second).unwrap();
    shared.with(|fake| {
        let place = fake.nodes.iter().position(|node| node.base.pid == share.parts[0].gfd).unwrap();
        let gfd = fake.gfd(place);
        assert_eq!((gfd.sat[&first.pid], gfd.sat[&second.pid]), (1, 0), "the other host keeps it");
    });
    memory.release(&mut fabric, &inventory, &[1; 16]).unwrap();
    assert_eq!((memory, traces(&shared)), (Memory::default(), empty));
}

#[test]
fn what_does_not_fit_is_refused_before_anything_is_sent() {
    let (shared, inventory) = fabric(4);
    let mut fabric = shared.fabric(US);
    let mut memory = Memory::default();
    let good = wanted(&inventory, 1);
    let three = Request { gfds: good.gfds[..3].to_vec(), ..good.clone() };
    let twice = Request { gfds: vec![good.gfds[0]; 2], ..good.clone() };
    let odd = Request { len: good.len + 1, ..good.clone() };
    let turn = Request { granularity: 3_000, ..good.clone() };
    let wide = Request { granularity: 32_768, ..good.clone() };
    let stranger = Request { gfds: vec![Pid::from_low_bits(0x777)], ..good.clone() };
    let no_host = Request { hosts: vec![Host { vcs: 9, ..good.hosts[0] }], ..good.clone() };
    let before = shared.with(|fake| fake.sets);
    let requests = [
        ("3", three),
        ("twice", twice),
        ("odd", odd),
        ("turn", turn),
        ("wide", wide),
        ("gfd", stranger),
        ("host", no_host),
    ];
    for (name, request) in requests {
        let refused = memory.share(&mut fabric, &inventory, &request);
        assert!(!matches!(refused, Ok(_) | Err(MemoryError::Undone { .. })), "{name}: {refused:?}");
    }
    assert_eq!(shared.with(|fake| fake.sets), before);
}

#[test]
fn when_the_last_gfd_refuses_all_is_undone() {
    let (shared, inventory) = fabric(4);
    let mut fabric = shared.fabric(US);
    let empty = traces(&shared);
    let last = shared
        .with(|fake| fake.nodes.iter().position(|n| n.base.pid == inventory.gfds[3].pid).unwrap());
    shared.with(|fake| fake.gfd(last).stubborn = true);
    let mut memory = Memory::default();
    match memory.share(&mut fabric, &inventory, &wanted(&inventory, 1)) {
        Err(MemoryError::Undone { undone, .. }) => assert_eq!(undone.len(), 10, "{undone:?}"),
        other => panic!("{other:?}"),
    }
    assert_eq!((memory, traces(&shared)), (Memory::default(), empty));
}

/// Whatever gets lost: all is there, or nothing, or the error lists what is left.
#[test]
fn lost_answers_leave_no_memory_half_given_silently() {
    let (mut given, mut undone, mut left) = (0, 0, 0);
    for seed in 0..150 {
        let (shared, inventory) = fabric(2);
        let mut fabric = shared.fabric(US);
        let empty = traces(&shared);
        let mut memory = Memory::default();
        shared.with(|fake| fake.faults = Some(Faults { rng: Rng::new(seed), per_mille: 220 }));
        let outcome = memory.share(&mut fabric, &inventory, &wanted(&inventory, 1)).map(drop);
        shared.with(|fake| fake.faults = None);
        match outcome {
            Ok(()) => given += 1,
            Err(MemoryError::Undone { .. }) => {
                assert_eq!(traces(&shared), empty, "seed {seed}");
                undone += 1;
            }
            Err(MemoryError::Left { left: list, .. }) => {
                assert!(!list.is_empty());
                left += 1;
            }
            Err(other) => panic!("seed {seed}: {other}"),
        }
        if memory != Memory::default() {
            memory.release(&mut fabric, &inventory, &[1; 16]).unwrap();
            assert_eq!(traces(&shared), empty, "seed {seed}");
        }
    }
    assert!(given > 5 && undone > 5, "{given} given, {undone} undone, {left} left");
}
