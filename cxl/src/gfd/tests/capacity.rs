//! Dynamic capacity: each policy and refusal on its own, and random changes against a map of blocks.
//! Commands on a device of two regions; the model holds one set of groups and a tag a block.
//!
//! Units: bytes; blocks of 1 MiB.
//! Source: docs/spec/wire-formats.md §4.7; the decisions at the head of `capacity`.

use std::collections::{BTreeMap, BTreeSet};

use weft_base::rng::Rng;

use super::*;
use crate::gfd::ReturnCode;
use crate::gfd::capacity::{Extent, Part, Tag};
use crate::gfd::events::Kind;

const SHARABLE: Media = Media {
    sharable: true,
    non_volatile: false,
    coherent: false,
    read_only: false,
    sanitize: false,
};

const fn tag(number: u8) -> Tag {
    [number; 16]
}

fn range(start_mib: u64, mib: u64) -> Extent {
    Extent { start: Dpa(start_mib * MIB), len: mib * MIB, tag: NO_TAG, sequence: 0 }
}

fn free(region: u8, mib: u64) -> Choice<'static> {
    Choice::Free { region, len: mib * MIB }
}

/// Adds; returns start and length in MiB.
fn add(gfd: &mut Gfd, group: u16, tag: Tag, choice: Choice) -> Result<Vec<(u64, u64)>, ReturnCode> {
    let page = gfd.add_capacity(NOW, group, tag, choice, 9_999)?;
    Ok(page.list.iter().map(|extent| (extent.start.0 / MIB, extent.len / MIB)).collect())
}

fn release(gfd: &mut Gfd, group: u16, part: Part) -> Result<Vec<(u64, u64)>, ReturnCode> {
    let page = gfd.release_capacity(NOW, group, part, false, 9_999)?;
    Ok(page.list.iter().map(|extent| (extent.start.0 / MIB, extent.len / MIB)).collect())
}

fn listed(gfd: &Gfd, group: u16) -> Vec<(u64, u64, u16)> {
    let page = gfd.extents(group, 0, 9_999).unwrap();
    page.list.iter().map(|e| (e.start.0 / MIB, e.len / MIB, e.sequence)).collect()
}

#[test]
fn policies_choose_as_they_say() {
    let mut gfd = device(SHARABLE);
    let holes = [range(2, 3), range(8, 1)];
    let prescribed = Choice::Prescriptive { region: 0, extents: &holes };
    assert_eq!(add(&mut gfd, 0, NO_TAG, prescribed), Ok(vec![(2, 3), (8, 1)]));
    let contiguous = Choice::Contiguous { region: 0, len: 3 * MIB };
    assert_eq!(add(&mut gfd, 1, NO_TAG, contiguous), Ok(vec![(5, 3)]));
    assert_eq!(add(&mut gfd, 2, NO_TAG, free(0, 4)), Ok(vec![(0, 2), (9, 2)]));
    let all = Choice::Contiguous { region: 0, len: 1013 * MIB };
    assert_eq!(add(&mut gfd, 3, NO_TAG, all), Ok(vec![(11, 1013)]));
    assert_eq!(add(&mut gfd, 3, NO_TAG, free(0, 1)), Err(ReturnCode::ResourcesExhausted));
    assert_eq!(add(&mut gfd, 3, tag(1), free(1, 2)), Ok(vec![(1024, 2)]));
    assert_eq!(listed(&gfd, 3), [(11, 1013, 0), (1024, 2, 1)], "numbered in sharable memory only");
    assert_eq!(add(&mut gfd, 3, tag(1), free(1, 1)), Ok(vec![(1026, 1)]), "a tag can grow");
    assert_eq!(add(&mut gfd, 4, tag(1), Choice::EnableShared), Ok(vec![(1024, 2), (1026, 1)]));
    assert_eq!(listed(&gfd, 4), [(1024, 2, 1), (1026, 1, 2)]);
    assert_eq!(
        add(&mut gfd, 3, tag(1), free(1, 1)),
        Err(ReturnCode::InvalidInput),
        "not once shared"
    );
    assert_eq!(gfd.extents(3, 1, 1).unwrap().list.len(), 1);
    assert_eq!(gfd.extents(3, 4, 1), Err(ReturnCode::InvalidInput));
    let page = gfd.add_capacity(NOW, 5, NO_TAG, free(1, 1), 0).unwrap();
    assert_eq!((page.list.len(), page.total, page.generation), (0, 1, 1));
}

#[test]
fn refused_changes_change_nothing() {
    use ReturnCode::{InvalidExtentList, InvalidInput, InvalidPhysicalAddress, ResourcesExhausted};
    let mut gfd = device(SHARABLE);
    add(&mut gfd, 1, tag(1), free(0, 4)).unwrap();
    add(&mut gfd, 1, tag(2), free(1, 4)).unwrap();
    gfd.add_reference(tag(2)).unwrap();
    let odd = [Extent { len: MIB / 2, ..range(100, 1) }];
    let shifted = [Extent { start: Dpa(100 * MIB + 4096), ..range(100, 1) }];
    let top = [Extent { start: Dpa(u64::MAX - MIB + 1), ..range(0, 1) }];
    let (twice, beyond, taken) =
        ([range(9, 2), range(10, 1)], [range(1023, 2)], [range(9, 1), range(3, 1)]);
    let prescribed = |extents| Choice::Prescriptive { region: 0, extents };
    let len = MIB + 1;
    #[rustfmt::skip] // columns: name, group, tag, choice, want
    let adds = [
        ("group 64",             64, NO_TAG, free(0, 1),           InvalidInput),
        ("region 2",              1, NO_TAG, free(2, 1),           InvalidInput),
        ("region 255",            1, NO_TAG, free(255, 1),         InvalidInput),
        ("length 0",              1, NO_TAG, free(0, 0),           InvalidInput),
        ("no whole block",        1, NO_TAG, Choice::Free { region: 0, len }, InvalidInput),
        ("too much",              1, NO_TAG, free(0, 1021),        ResourcesExhausted),
        ("too long a run",        1, NO_TAG, Choice::Contiguous { region: 0, len: 1021 * MIB }, ResourcesExhausted),
        ("far too much",          1, NO_TAG, Choice::Free { region: 0, len: !(MIB - 1) }, ResourcesExhausted),
        ("another's tag",         2, tag(1), free(0, 1),           InvalidInput),
        ("a tag with reference",  1, tag(2), free(0, 1),           InvalidInput),
        ("empty list",            1, NO_TAG, prescribed(&[]),      InvalidExtentList),
        ("half a block",          1, NO_TAG, prescribed(&odd),   InvalidExtentList),
        ("within a block",        1, NO_TAG, prescribed(&shifted), InvalidExtentList),
        ("over itself",           1, NO_TAG, prescribed(&twice),   InvalidExtentList),
        ("out of the region",     1, NO_TAG, prescribed(&beyond),  InvalidPhysicalAddress),
        ("at the top",            1, NO_TAG, prescribed(&top),   InvalidPhysicalAddress),
        ("in use",                2, NO_TAG, prescribed(&taken),   ResourcesExhausted),
        ("share no tag",          2, NO_TAG, Choice::EnableShared, InvalidInput),
        ("share unknown tag",     2, tag(9), Choice::EnableShared, InvalidInput),
        ("share with oneself",    1, tag(2), Choice::EnableShared, InvalidInput),
        ("share what may not be", 2, tag(1), Choice::EnableShared, InvalidInput),
    ];
    let before = gfd.capacity.image();
    let pages = [gfd.extents(1, 0, 9), gfd.extents(2, 0, 9)];
    for (name, group, tag, choice, want) in adds {
        assert_eq!(add(&mut gfd, group, tag, choice), Err(want), "{name}");
        assert_eq!(gfd.capacity.image(), before, "{name}");
    }
    let (pieces, foreign) = ([range(0, 1), range(0, 1)], [range(0, 1), range(8, 1)]);
    let across = [range(3, 2)];
    #[rustfmt::skip] // columns: name, group, part, want
    let releases = [
        ("group 64",        64, Part::Tag { tag: tag(1), len: 0 },       InvalidInput),
        ("another's",        2, Part::Tag { tag: tag(1), len: 0 },       InvalidInput),
        ("unknown tag",      1, Part::Tag { tag: tag(9), len: 0 },       InvalidInput),
        ("more than is",     1, Part::Tag { tag: tag(1), len: 5 * MIB }, InvalidInput),
        ("no whole block",   1, Part::Tag { tag: tag(1), len: 4096 },    InvalidInput),
        ("empty list",       1, Part::Prescriptive(&[]),                 InvalidExtentList),
        ("half a block",     1, Part::Prescriptive(&odd),              InvalidExtentList),
        ("twice",            1, Part::Prescriptive(&pieces),             InvalidExtentList),
        ("one is not there", 1, Part::Prescriptive(&foreign),            InvalidExtentList),
        ("over the end",     1, Part::Prescriptive(&across),             InvalidExtentList),
        ("not the group's",  2, Part::Prescriptive(&pieces[..1]),        InvalidExtentList),
        ("at the top",       1, Part::Prescriptive(&top),              InvalidExtentList),
    ];
    for (name, group, part, want) in releases {
        assert_eq!(release(&mut gfd, group, part), Err(want), "{name}");
        assert_eq!(gfd.capacity.image(), before, "{name}");
    }
    assert_eq!([gfd.extents(1, 0, 9), gfd.extents(2, 0, 9)], pages, "nor a generation");
    assert_eq!(gfd.add_reference(tag(9)), Err(InvalidInput));
    assert_eq!(gfd.add_reference(NO_TAG), Err(InvalidInput));
    assert_eq!(gfd.remove_reference(tag(1)), Err(InvalidInput));
    assert_eq!(gfd.set_dmps(&[dmp(3, 0, SHARABLE)]), Err(InvalidInput), "groups are active");
    assert_eq!(gfd.set_region(region(0, 0)), Err(InvalidInput), "capacity is in use");
    assert_eq!(gfd.capacity.image(), before);
}

#[test]
fn released_capacity_is_wiped_when_asked() {
    let sanitize = Media { sanitize: true, ..SHARABLE };
    for (name, region_asks, command_asks, want) in
        [("nobody", false, false, 1), ("region", true, false, 0), ("command", false, true, 0)]
    {
        let mut gfd = device(sanitize);
        gfd.set_region(Region { sanitize: region_asks, ..region(0, 0) }).unwrap();
        add(&mut gfd, 1, tag(1), free(0, 4)).unwrap();
        gfd.memory.write(0, &vec![1; 5 << 20]).unwrap();
        let part = Part::Tag { tag: tag(1), len: 2 * MIB };
        gfd.release_capacity(NOW, 1, part, command_asks, 1).unwrap();
        let mut out = vec![0; 5 << 20];
        gfd.memory.read(0, &mut out).unwrap();
        let blocks: Vec<u8> = out.chunks(1 << 20).map(|block| block[77]).collect();
        assert_eq!(blocks, [1, 1, want, want, 1], "{name}");
    }
    let mut gfd = device(sanitize);
    add(&mut gfd, 1, NO_TAG, free(1, 1)).unwrap();
    gfd.memory.write(GIB, &[1; 64]).unwrap();
    release(&mut gfd, 1, Part::Tag { tag: NO_TAG, len: 0 }).unwrap();
    let mut out = [1; 64];
    gfd.memory.read(GIB, &mut out).unwrap();
    assert_eq!(out, [0; 64], "the partition asks");
}

/// Capacity that the device chooses reads as zeros; only a request that names the address finds old contents.
#[test]
fn what_is_left_is_read_by_nobody_who_did_not_name_it() {
    let read = |gfd: &Gfd, at: u64| {
        let mut out = [9; 64];
        gfd.memory.read(at, &mut out).unwrap();
        out[0]
    };
    let file = || {
        let mut file = tempfile::tempfile().unwrap();
        std::io::Write::write_all(&mut file, &vec![1; 3 << 20]).unwrap();
        Memory::in_file(file, 2 * GIB).unwrap()
    };
    let anonymous = || Memory::anonymous(2 * GIB);
    let kinds: [(&str, &dyn Fn() -> Memory, u8); 2] =
        [("kept by a file", &file, 1), ("released as it stands", &anonymous, 0)];
    for (name, memory, before) in kinds {
        let mut gfd = Gfd::new(Config::full(pid(0x0F0), LinkRate::gbps(400)), memory());
        gfd.set_dmps(&[dmp(0, 0, Media::default())]).unwrap();
        gfd.set_region(region(0, 0)).unwrap();
        assert_eq!(read(&gfd, 0), before, "{name}");
        if before == 0 {
            add(&mut gfd, 1, tag(1), free(0, 3)).unwrap();
            gfd.memory.write(0, &vec![1; 3 << 20]).unwrap();
            release(&mut gfd, 1, Part::Tag { tag: tag(1), len: 0 }).unwrap();
        }
        let named = Choice::Prescriptive { region: 0, extents: &[range(1, 1)] };
        assert_eq!(add(&mut gfd, 2, NO_TAG, named), Ok(vec![(1, 1)]));
        assert_eq!(read(&gfd, MIB), 1, "{name}: named");
        assert_eq!(add(&mut gfd, 3, NO_TAG, free(0, 1)), Ok(vec![(0, 1)]));
        assert_eq!(read(&gfd, 0), 0, "{name}: chosen");
        let choice = Choice::Contiguous { region: 0, len: MIB };
        gfd.grant_capacity(4, NO_TAG, choice).unwrap();
        assert_eq!(read(&gfd, 2 * MIB), 1, "{name}: granted by whoever starts it");
        assert_eq!(read(&gfd, MIB), 1, "{name}: others keep theirs");
    }
}

#[test]
fn references_and_second_groups_hold_capacity() {
    let mut gfd = device(SHARABLE);
    add(&mut gfd, 1, tag(1), free(1, 2)).unwrap();
    add(&mut gfd, 2, tag(1), Choice::EnableShared).unwrap();
    gfd.add_reference(tag(1)).unwrap();
    gfd.add_reference(tag(1)).unwrap();
    gfd.memory.write(GIB, &[7; 64]).unwrap();
    let all = Part::Tag { tag: tag(1), len: 0 };
    gfd.release_capacity(NOW, 1, all, true, 9).unwrap();
    assert_eq!((listed(&gfd, 1), gfd.capacity.mgt().groups(Dpa(GIB))), (vec![], 1 << 2));
    release(&mut gfd, 2, all).unwrap();
    assert_eq!(gfd.tags(0, 9).unwrap().list, [(tag(1), true)]);
    assert_eq!(gfd.capacity.mgt().groups(Dpa(GIB)), 0, "held, but nobody's");
    assert_eq!(add(&mut gfd, 5, NO_TAG, free(1, 1)), Ok(vec![(1026, 1)]), "and not free");
    assert_eq!(add(&mut gfd, 3, tag(1), Choice::EnableShared), Ok(vec![(1024, 2)]), "brought back");
    release(&mut gfd, 3, all).unwrap();
    let mut out = [0; 64];
    gfd.memory.read(GIB, &mut out).unwrap();
    assert_eq!(out, [7; 64], "not wiped while it is held");
    gfd.remove_reference(tag(1)).unwrap();
    gfd.memory.read(GIB, &mut out).unwrap();
    assert_eq!(out, [0; 64], "group 1 had asked");
    assert_eq!(gfd.tags(0, 9).unwrap().list, []);
    assert_eq!(add(&mut gfd, 5, NO_TAG, free(1, 1)), Ok(vec![(1024, 1)]));
}

/// After a release in the middle the rest is numbered from 1, each number once, in the old order; and each group whose
/// list has changed gets another generation.
#[test]
fn what_is_left_of_shared_capacity_is_numbered_anew() {
    let mut gfd = device(SHARABLE);
    let generation = |gfd: &Gfd, group| gfd.extents(group, 0, 9).unwrap().generation;
    let two = [range(1_030, 2), range(1_024, 3)];
    add(&mut gfd, 1, tag(1), Choice::Prescriptive { region: 1, extents: &two }).unwrap();
    add(&mut gfd, 2, tag(1), Choice::EnableShared).unwrap();
    add(&mut gfd, 3, tag(2), free(1, 1)).unwrap();
    assert_eq!(listed(&gfd, 2), [(1_024, 3, 2), (1_030, 2, 1)]);
    let before = [1, 2, 3].map(|group| generation(&gfd, group));
    release(&mut gfd, 1, Part::Prescriptive(&[range(1_025, 1)])).unwrap();
    assert_eq!(listed(&gfd, 1), [(1_024, 1, 2), (1_026, 1, 4), (1_030, 2, 1)]);
    assert_eq!(listed(&gfd, 2), [(1_024, 1, 2), (1_025, 1, 3), (1_026, 1, 4), (1_030, 2, 1)]);
    let after = [1, 2, 3].map(|group| generation(&gfd, group));
    assert_eq!([0, 1, 2].map(|k| after[k] - before[k]), [1, 1, 0]);
    release(&mut gfd, 2, Part::Prescriptive(&[range(1_025, 1)])).unwrap();
    assert_eq!(listed(&gfd, 1), [(1_024, 1, 2), (1_026, 1, 3), (1_030, 2, 1)]);
    assert_eq!(generation(&gfd, 1), after[0] + 1);
    assert_eq!(generation(&gfd, 3), before[2]);
    gfd.add_reference(tag(1)).unwrap();
    for group in [1, 2] {
        release(&mut gfd, group, Part::Prescriptive(&[range(1_026, 1)])).unwrap();
    }
    assert_eq!(gfd.capacity.numbers(tag(1)), [2, 3, 1], "kept");
    gfd.remove_reference(tag(1)).unwrap();
    assert_eq!(gfd.capacity.numbers(tag(1)), [2, 1]);
}

#[test]
fn hosts_of_a_group_are_told_of_its_changes() {
    let mut gfd = device(SHARABLE);
    gfd.set_sat(&[(pid(5), 1 << 31 | 0b10), (pid(6), 0b10), (pid(7), 1 << 31 | 0b100)]).unwrap();
    add(&mut gfd, 1, NO_TAG, free(0, 1)).unwrap();
    let notice = gfd.events().pop_host().unwrap();
    assert_eq!((notice.event.kind, notice.event.rpid), (Kind::ExtentsChanged, pid(5)));
    assert!(gfd.events().pop_host().is_none());
    assert!(gfd.events().pop_fm().is_some());
}

/// Groups and tag of a block.
#[derive(Clone, Debug, PartialEq, Eq)]
struct Block {
    groups: BTreeSet<u16>,
    tag: Tag,
}

/// Blocks by their number, from the device's lists.
fn blocks(gfd: &Gfd) -> BTreeMap<u64, Block> {
    let mut map: BTreeMap<u64, Block> = BTreeMap::new();
    for group in 0..64 {
        for extent in gfd.extents(group, 0, 9_999).unwrap().list {
            for mib in extent.start.0 / MIB..(extent.start.0 + extent.len) / MIB {
                let new = Block { groups: BTreeSet::new(), tag: extent.tag };
                let block = map.entry(mib).or_insert(new);
                assert!(block.groups.insert(group), "{mib} twice in group {group}");
                assert_eq!(block.tag, extent.tag, "{mib}");
            }
        }
    }
    map
}

/// The lists and the group tables match the model.
fn compare(gfd: &Gfd, model: &BTreeMap<u64, Block>, when: &str) {
    assert_eq!(blocks(gfd), *model, "{when}");
    for number in 1..12 {
        let mut numbers = gfd.capacity.numbers(tag(number));
        numbers.retain(|number| *number > 0); // 0: not sharable
        numbers.sort_unstable();
        assert!((1..).zip(&numbers).all(|(k, number)| k == *number), "{when}: {numbers:?}");
    }
    for mib in 0..2_048 {
        let groups = model.get(&mib).map_or(0, |block| block.groups.iter().map(|g| 1 << g).sum());
        assert_eq!(gfd.capacity.mgt().groups(Dpa(mib * MIB + 5)), groups, "{when}: {mib}");
    }
}

#[test]
fn random_changes_never_overlap_and_undo() {
    let seed = 0x00CA_9AC1;
    let mut rng = Rng::new(seed);
    let mut gfd = device(SHARABLE);
    let mut model: BTreeMap<u64, Block> = BTreeMap::new();
    let (mut added, mut undone, mut released) = (0, 0, 0);
    for step in 0..4_000 {
        let group = u16::try_from(rng.below(4)).unwrap();
        let name = tag(u8::try_from(rng.below(12)).unwrap());
        let (first, count) = (rng.below(2_100), 1 + rng.below(30));
        let list = [range(first, count), range(rng.below(2_100), 1 + rng.below(3))];
        let region = u8::from(first >= 1_024);
        let len = count * MIB;
        if rng.chance(3, 5) {
            let choice = match rng.below(4) {
                0 => Choice::Free { region, len },
                1 => Choice::Contiguous { region, len },
                2 => Choice::Prescriptive {
                    region,
                    extents: &list[..=usize::from(rng.chance(1, 2))],
                },
                _ => Choice::EnableShared,
            };
            let before = gfd.capacity.image();
            let Ok(got) = add(&mut gfd, group, name, choice) else {
                assert_eq!(gfd.capacity.image(), before, "seed {seed:#x} step {step}");
                continue;
            };
            added += 1;
            let ranges: Vec<Extent> = got.iter().map(|(start, len)| range(*start, *len)).collect();
            if rng.chance(1, 3) {
                release(&mut gfd, group, Part::Prescriptive(&ranges)).unwrap();
                assert_eq!(gfd.capacity.image(), before, "seed {seed:#x} step {step}: undone");
                undone += 1;
                continue;
            }
            for mib in got.iter().flat_map(|(start, len)| *start..start + len) {
                let new = Block { groups: BTreeSet::new(), tag: name };
                let fresh = !model.contains_key(&mib);
                assert_eq!(
                    fresh,
                    choice != Choice::EnableShared,
                    "seed {seed:#x} step {step} {mib}"
                );
                model.entry(mib).or_insert(new).groups.insert(group);
            }
        } else {
            let part = if rng.chance(1, 2) {
                Part::Tag { tag: name, len: if rng.chance(1, 3) { 0 } else { len } }
            } else {
                Part::Prescriptive(&list)
            };
            let Ok(lost) = release(&mut gfd, group, part) else { continue };
            released += 1;
            for mib in lost.iter().flat_map(|(start, len)| *start..start + len) {
                let block = model.get_mut(&mib).unwrap();
                assert!(block.groups.remove(&group), "seed {seed:#x} step {step} {mib}");
                if block.groups.is_empty() {
                    model.remove(&mib);
                }
            }
        }
        if step % 20 == 0 {
            compare(&gfd, &model, &format!("seed {seed:#x} step {step}"));
        }
    }
    assert!(added > 300 && undone > 100 && released > 100, "{added} {undone} {released}");
}
