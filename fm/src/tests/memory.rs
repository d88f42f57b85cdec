//! Memory given, revoked and released, and the state after failures.
//!
//! Two edge switches with hosts, GFDs at both.
//!
//! Units: bytes.
//! Source: CXL 3.1 sections 7.7.2.3 to 7.7.2.5.

use std::collections::BTreeMap;

use weft_base::rng::Rng;
use weft_parsers::cci::Uuid;
use weft_parsers::fabric::{Hpa, Pid};

use super::discovery::{US, number};
use super::fake::{Fake, Faults, Kind, Shared};
use super::fake_gfd::{BLOCK, GfdState};
use super::plan::set_up;
use crate::components::memory::map::{LocalRange, SEGMENT};
use crate::components::memory::{Host, Memory, MemoryError, OtherRanges, Request};
use crate::model::graph::{SwitchId, generate};
use crate::model::inventory::{Inventory, TargetKind};

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
    let of = |(switch, found): (SwitchId, &crate::model::inventory::DiscoveredSwitch)| {
        let target = found.targets.iter().find(|t| t.kind == TargetKind::Host && !t.pid.is_none());
        target.map(|target| Host { switch, vcs: target.vcs, pid: target.pid })
    };
    inventory.by_id().filter_map(of).collect()
}

pub fn wanted(inventory: &Inventory, tag: u8) -> Request {
    let gfds: Vec<Pid> = inventory.gfds.iter().map(|gfd| gfd.pid).collect();
    let len = 2 * BLOCK * u64::try_from(gfds.len()).unwrap();
    let hpa = Hpa(0x0100_0000_0000);
    let (hosts, granularity, media) = (hosts(inventory), 4_096, None);
    Request { tag: [tag; 16], hosts, gfds, len, granularity, hpa, media, notify: false }
}

/// Hosts have no ranges beside the shares but their own addresses.
fn beside() -> OtherRanges<'static> {
    OtherRanges { more: &|_| Vec::new(), own: &|_| LocalRange::WEFT_HOST.to_vec() }
}

/// Extents, rights and decoders of all GFDs and GMVs of all switches, as text to compare.
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
    let share =
        memory.share(&mut fabric, &inventory, beside(), &wanted(&inventory, 1)).unwrap().clone();
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

/// A requester's bit for notifications of a GFD: the first share that asks for them sets it, the last one clears it.
#[test]
fn the_last_share_that_asks_for_notifications_ends_them() {
    let (shared, inventory) = fabric(1);
    let mut fabric = shared.fabric(US);
    let empty = traces(&shared);
    let mut memory = Memory::default();
    let host = hosts(&inventory)[0];
    let is_told = |shared: &Shared| {
        shared.with(|fake| {
            let place = fake.nodes.iter().position(|node| node.base.pid == inventory.gfds[0].pid);
            fake.gfd(place.unwrap()).sat.get(&host.pid).is_some_and(|vector| vector >> 31 == 1)
        })
    };
    for (tag, notify, told) in [(1, false, false), (2, true, true), (3, true, true)] {
        let hpa = Hpa(0x0100_0000_0000 + u64::from(tag) * SEGMENT);
        let one = Request { hpa, notify, hosts: vec![host], ..wanted(&inventory, tag) };
        memory.share(&mut fabric, &inventory, beside(), &one).unwrap();
        assert_eq!(is_told(&shared), told, "{tag} is given");
    }
    for (tag, told) in [(2, true), (3, false), (1, false)] {
        memory.release(&mut fabric, &inventory, &[tag; 16]).unwrap();
        assert_eq!(is_told(&shared), told, "{tag} is released");
    }
    assert_eq!(traces(&shared), empty);
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
    let granule = Request { granularity: 3_000, ..good.clone() };
    let wide = Request { granularity: 32_768, ..good.clone() };
    let pid_mismatch = Request { gfds: vec![Pid::from_low_bits(0x777)], ..good.clone() };
    let no_host = Request { hosts: vec![Host { vcs: 9, ..good.hosts[0] }], ..good.clone() };
    let before = shared.with(|fake| fake.sets);
    let twice_host = Request { hosts: vec![good.hosts[0]; 2], ..good.clone() };
    let much = Request { len: 4 * 17 * BLOCK, ..good.clone() };
    let bars = Request { hpa: Hpa(0x40_0000_0000), ..good.clone() };
    let requests = [
        ("a host twice", twice_host),
        ("more than there is", much),
        ("BARs", bars),
        ("3", three),
        ("twice", twice),
        ("odd", odd),
        ("granule", granule),
        ("wide", wide),
        ("gfd", pid_mismatch),
        ("host", no_host),
    ];
    for (name, request) in requests {
        let refused = memory.share(&mut fabric, &inventory, beside(), &request);
        assert!(!matches!(refused, Ok(_) | Err(MemoryError::Undone { .. })), "{name}: {refused:?}");
    }
    assert_eq!(shared.with(|fake| fake.sets), before);
}

/// The GFDs before it have room, and are sent nothing all the same.
#[test]
fn a_last_gfd_without_a_free_group_leaves_no_share_half_made() {
    let (shared, mut inventory) = fabric(4);
    inventory.gfds[3].groups = 0;
    let (mut fabric, mut memory) = (shared.fabric(US), Memory::default());
    let before = (shared.with(|fake| fake.sets), traces(&shared));
    let refused = memory.share(&mut fabric, &inventory, beside(), &wanted(&inventory, 1));
    assert!(matches!(refused, Err(MemoryError::Exhausted { what: "group", .. })), "{refused:?}");
    assert_eq!((shared.with(|fake| fake.sets), traces(&shared)), before);
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
    match memory.share(&mut fabric, &inventory, beside(), &wanted(&inventory, 1)) {
        Err(MemoryError::Undone { undone, .. }) => assert_eq!(undone.len(), 10, "{undone:?}"),
        other => panic!("{other:?}"),
    }
    assert_eq!((memory, traces(&shared)), (Memory::default(), empty));
}

/// Whichever messages get lost, the share is whole, or nothing is left of it, or the error lists the rest.
#[test]
fn lost_answers_leave_no_memory_half_given_silently() {
    let (mut given, mut undone, mut left) = (0, 0, 0);
    for seed in 0..150 {
        let (shared, inventory) = fabric(2);
        let mut fabric = shared.fabric(US);
        let empty = traces(&shared);
        let mut memory = Memory::default();
        shared.with(|fake| fake.faults = Some(Faults { rng: Rng::new(seed), per_mille: 220 }));
        let outcome =
            memory.share(&mut fabric, &inventory, beside(), &wanted(&inventory, 1)).map(drop);
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

#[test]
fn addresses_that_a_host_uses_are_refused_and_nothing_is_sent() {
    let (shared, inventory) = fabric(4);
    let mut fabric = shared.fabric(US);
    let mut memory = Memory::default();
    let old = wanted(&inventory, 1);
    memory.share(&mut fabric, &inventory, beside(), &old).unwrap();
    let one = Request { gfds: old.gfds[..1].to_vec(), len: BLOCK, ..wanted(&inventory, 2) };
    let only = Request { hosts: vec![old.hosts[0]], hpa: Hpa(old.hpa.0 + 8 * SEGMENT), ..one };
    memory.share(&mut fabric, &inventory, beside(), &only).unwrap();
    let behind = Hpa(old.hpa.0 + old.len);
    let new = Request { tag: [3; 16], ..old.clone() };
    let granule = Request { granularity: 256, hpa: behind, ..new.clone() };
    let mut order = Request { hpa: behind, ..new.clone() };
    order.gfds.swap(0, 1);
    let less = Request { gfds: old.gfds[..2].to_vec(), hpa: behind, ..new.clone() };
    let alike = Request { hpa: behind, ..new.clone() };
    let (before, sets) = (traces(&shared), shared.with(|fake| fake.sets));
    let refused = [
        ("the same", new, "memory-own-addresses"),
        ("granule", granule, "segment-one-entry"),
        ("order", order, "segment-one-entry"),
        ("ways", less, "segment-one-entry"),
    ];
    for (name, request, rule) in refused {
        match memory.share(&mut fabric, &inventory, beside(), &request) {
            Err(error @ MemoryError::Taken { .. }) => {
                let text = error.to_string();
                assert!(text.contains(rule) && text.contains("0x10000000000"), "{name}: {text}");
            }
            other => panic!("{name}: {other:?}"),
        }
    }
    // Each host has another share at the same addresses, so neither share can be granted to the other host.
    let there = Request { tag: [4; 16], hosts: vec![old.hosts[1]], ..only.clone() };
    assert_eq!((traces(&shared), shared.with(|fake| fake.sets)), (before, sets));
    memory.share(&mut fabric, &inventory, beside(), &there).unwrap();
    for (tag, host) in [([2; 16], old.hosts[1]), ([4; 16], old.hosts[0])] {
        let sets = shared.with(|fake| fake.sets);
        let granted = memory.grant(&mut fabric, &inventory, beside(), &tag, host);
        assert!(matches!(granted, Err(MemoryError::Taken { .. })), "{granted:?}");
        assert_eq!(shared.with(|fake| fake.sets), sets);
    }
    memory.share(&mut fabric, &inventory, beside(), &alike).unwrap();
}

/// A second, simple map of addresses, and the data that hosts wrote.
#[derive(Default)]
struct Oracle {
    /// The share of each block of addresses of each host.
    pages: BTreeMap<(Pid, u64), Uuid>,
    /// Bytes written, by GFD and DPA: their share, and the offset in it.
    bytes: BTreeMap<(Pid, u64), (Uuid, u64)>,
}

type Entry = (Vec<Pid>, u32);

/// The FAST of a host's edge: the entry of each segment, docs/spec/wire-formats.md §5.1.
type Fast = BTreeMap<u64, Entry>;

impl Oracle {
    fn pages(hpa: u64, len: u64) -> std::ops::Range<u64> {
        hpa / BLOCK..(hpa + len).div_ceil(BLOCK)
    }

    /// Whether the addresses are free, and no share in their segments needs another entry.
    fn has_room(&self, memory: &Memory, host: Pid, at: (u64, u64), entry: &Entry) -> bool {
        let mut pages = Self::pages(at.0, at.1);
        let segment = |page: u64| page * BLOCK / SEGMENT;
        pages.clone().all(|page| !self.pages.contains_key(&(host, page)))
            && pages.all(|page| {
                let mut all = self.pages.iter().filter(|((pid, _), _)| *pid == host);
                all.all(|((_, other), tag)| {
                    segment(*other) != segment(page) || entry_of(memory, tag) == *entry
                })
            })
    }

    fn give(&mut self, memory: &Memory, tag: Uuid, host: Pid) {
        let share = memory.find(&tag).unwrap();
        for page in Self::pages(share.hpa, share.len) {
            assert_eq!(self.pages.insert((host, page), tag), None);
        }
    }
}

fn entry_of(memory: &Memory, tag: &Uuid) -> Entry {
    let share = memory.find(tag).unwrap();
    let targets: Vec<Pid> = share.parts.iter().map(|part| part.gfd).collect();
    let granule = if targets.len() > 1 { share.granularity } else { 0 };
    (targets, granule)
}

/// GFD and DPA of a host's address, by the FAST and by the one decoder of the GFD that matches.
fn reach(shared: &Shared, fast: &Fast, host: Pid, hpa: u64) -> (Pid, u64) {
    let (targets, granule) = &fast[&(hpa / SEGMENT)];
    let way = hpa.checked_div(u64::from(*granule)).unwrap_or(0) % targets.len() as u64;
    let dpid = targets[usize::try_from(way).unwrap()];
    shared.with(|fake| {
        let place = fake.nodes.iter().position(|node| node.base.pid == dpid).unwrap();
        let decoders = fake.gfd(place).gdt.iter().filter(|((pid, _), _)| *pid == host);
        let hits = decoders.filter_map(|(_, entry)| {
            let decoder = entry.decoder?;
            let off = decoder.interleave.compact(hpa.checked_sub(decoder.hpa.0)?);
            (off < decoder.dpa_len).then_some(decoder.dpa.0 + off)
        });
        let hits: Vec<u64> = hits.collect();
        assert_eq!(hits.len(), 1, "{hpa:#x} of {host} at {dpid}");
        (dpid, hits[0])
    })
}

/// The FAST of a host's edge for all its shares; asserts that shares in one segment need the same entry.
fn fast(memory: &Memory, host: Host) -> Fast {
    let mut fast = Fast::new();
    for share in memory.shares.iter().filter(|share| share.hosts.contains(&host)) {
        let entry = entry_of(memory, &share.tag);
        for segment in share.hpa / SEGMENT..=(share.hpa + share.len - 1) / SEGMENT {
            let there = fast.entry(segment).or_insert_with(|| entry.clone());
            assert_eq!(*there, entry, "segment {segment:#x} of {}", host.pid);
        }
    }
    fast
}

/// Offsets in a share at which data is checked: in each block, in granules of every size.
fn samples(len: u64) -> impl Iterator<Item = u64> {
    let near = [0, 255, 256, 4_095, 4_096, 20_480, 70_001, BLOCK / 2 + 77, BLOCK - 1];
    (0..len / BLOCK).flat_map(move |page| near.map(|at| page * BLOCK + at))
}

fn random_request(rng: &mut Rng, inventory: &Inventory, tag: Uuid) -> Request {
    let all = hosts(inventory);
    let mut gfds: Vec<Pid> = inventory.gfds.iter().map(|gfd| gfd.pid).collect();
    if rng.chance(1, 4) {
        gfds.swap(0, 1);
    }
    gfds.truncate(1 << rng.below(3));
    let ways = u64::try_from(gfds.len()).unwrap();
    let hosts = match rng.below(3) {
        0 => vec![all[0]],
        1 => vec![all[1]],
        _ => all,
    };
    let granularity = [256, 4_096, 16_384][usize::try_from(rng.below(3)).unwrap()];
    let hpa = (1 << 40) + rng.below(3) * SEGMENT + rng.below(12) * BLOCK - rng.below(2) * 4 * BLOCK;
    let len = ways * (1 + rng.below(2)) * BLOCK;
    Request { tag, hosts, gfds, len, granularity, hpa: Hpa(hpa), media: None, notify: false }
}

/// Random shares, grants, revocations and releases: those that the map allows succeed, all others are refused as taken,
/// and hosts read the data of their shares unchanged throughout.
#[test]
fn random_shares_keep_to_a_map_of_addresses_and_their_data() {
    let (mut given, mut refused, mut granted) = (0, 0, 0);
    for seed in 0..40 {
        let mut rng = Rng::new(seed);
        let (shared, inventory) = fabric(4);
        let mut fabric = shared.fabric(US);
        let (mut memory, mut oracle) = (Memory::default(), Oracle::default());
        let all = hosts(&inventory);
        for step in 0..30 {
            let tag = [1 + u8::try_from(rng.below(8)).unwrap(); 16];
            let there = memory.find(&tag).cloned();
            let host = all[usize::from(rng.chance(1, 2))];
            match (there, rng.below(3)) {
                (None, _) => {
                    let new = random_request(&mut rng, &inventory, tag);
                    let granule = if new.gfds.len() > 1 { new.granularity } else { 0 };
                    let entry = (new.gfds.clone(), granule);
                    let at = (new.hpa.0, new.len);
                    let room =
                        new.hosts.iter().all(|h| oracle.has_room(&memory, h.pid, at, &entry));
                    let got = memory.share(&mut fabric, &inventory, beside(), &new).map(drop);
                    let taken = matches!(got, Err(MemoryError::Taken { .. }));
                    assert_eq!(taken, !room, "seed {seed} step {step}: {new:?}: {got:?}");
                    refused += u32::from(taken);
                    if got.is_ok() {
                        given += 1;
                        new.hosts.iter().for_each(|host| oracle.give(&memory, tag, host.pid));
                        let table = fast(&memory, new.hosts[0]);
                        for off in samples(new.len) {
                            let to = reach(&shared, &table, new.hosts[0].pid, new.hpa.0 + off);
                            oracle.bytes.insert(to, (tag, off));
                        }
                    }
                }
                (Some(share), 0) if !share.hosts.contains(&host) => {
                    let entry = entry_of(&memory, &tag);
                    let room = oracle.has_room(&memory, host.pid, (share.hpa, share.len), &entry);
                    let got = memory.grant(&mut fabric, &inventory, beside(), &tag, host);
                    let taken = matches!(got, Err(MemoryError::Taken { .. }));
                    assert_eq!(taken, !room, "seed {seed} step {step}: {got:?}");
                    if got.is_ok() {
                        granted += 1;
                        oracle.give(&memory, tag, host.pid);
                    }
                }
                (Some(share), 1) if share.hosts.contains(&host) => {
                    memory.revoke(&mut fabric, &inventory, &tag, host).unwrap();
                    oracle.pages.retain(|(pid, _), of| (*pid, *of) != (host.pid, tag));
                }
                (Some(_), _) => {
                    memory.release(&mut fabric, &inventory, &tag).unwrap();
                    oracle.pages.retain(|_, of| *of != tag);
                    oracle.bytes.retain(|_, (of, _)| *of != tag);
                }
            }
            for host in &all {
                let table = fast(&memory, *host);
                for share in memory.shares.iter().filter(|share| share.hosts.contains(host)) {
                    for off in samples(share.len) {
                        let to = reach(&shared, &table, host.pid, share.hpa + off);
                        let read = oracle.bytes.get(&to).copied();
                        assert_eq!(read, Some((share.tag, off)), "seed {seed} step {step}");
                    }
                }
            }
        }
    }
    assert!(given > 200 && refused > 100 && granted > 10, "{given} {refused} {granted}");
}
