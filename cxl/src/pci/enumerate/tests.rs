use weft_base::rng::Rng;

use super::*;
use crate::pci::bridge::{Window, Windows};
use crate::pci::cxl::{BlockId, RegisterBlock};
use crate::pci::express::{Link, PortKind};
use crate::pci::function::BarKind;
use crate::pci::regs;
use crate::pci::space::{Space, low32};
use crate::pci::testing::{Fabric, Thing, at, device, memory, port};
use crate::pci::tree::{Bar, Below, Node, Problem, ProblemKind};

const MEM32: BarKind = BarKind::Mem32 { prefetch: false };
const MEM64: BarKind = BarKind::Mem64 { prefetch: false };
const PREF64: BarKind = BarKind::Mem64 { prefetch: true };
const MIB: u64 = 1 << 20;

/// No hot-plug reserve but bus numbers, so that the numbers in a test stay small.
fn host(buses: u8) -> HostSpec {
    HostSpec { reserve: Reserve { buses, ..Reserve::default() }, ..HostSpec::default() }
}

/// A root port, and behind it a switch with `ports` downstream ports.
fn switch(ports: Vec<Thing>) -> Thing {
    let ports = (0u8..).zip(ports).map(|(number, thing)| at(number, 0, thing)).collect();
    port(PortKind::Upstream, 0, ports)
}

fn below_root(thing: Thing) -> Fabric {
    Fabric { root: vec![at(0, 0, port(PortKind::Root, 1, vec![at(0, 0, thing)]))], waited_ns: 0 }
}

fn downstream(number: u8, thing: Option<Thing>) -> Thing {
    port(PortKind::Downstream, number, thing.into_iter().map(|thing| at(0, 0, thing)).collect())
}

/// Two devices with memory and one with everything, behind a switch.
fn three_devices() -> Fabric {
    let all = device(0xD3, &[(MEM32, 4096), (BarKind::Io, 64), (PREF64, 64 * MIB), (MEM64, MIB)]);
    below_root(switch(vec![
        downstream(1, Some(memory(0xD1, 256 * MIB))),
        downstream(2, None),
        downstream(3, Some(all)),
        downstream(4, Some(memory(0xD4, 1 << 30))),
    ]))
}

/// Routes the first and last byte of every BAR from the root by the registers that software wrote.
fn check(fabric: &Fabric, tree: &Tree) {
    let mut ranges = Vec::new();
    for node in tree.iter() {
        for bar in &node.bars {
            let Some(address) = bar.address else { continue };
            let io = bar.kind == BarKind::Io;
            assert_eq!(address % bar.size, 0, "{node}");
            for offset in [0, bar.size - 1] {
                let want = vec![(node.device, bar.index, offset)];
                assert_eq!(fabric.reach(io, address + offset), want, "{node}");
            }
            ranges.push((io, address, address + bar.size - 1));
        }
    }
    ranges.sort_unstable();
    for pair in ranges.windows(2) {
        assert!(pair[0].0 != pair[1].0 || pair[0].2 < pair[1].1, "{pair:x?} overlap");
    }
    // Bridges next to each other (of one primary bus) share neither addresses nor buses.
    let bridges = fabric.bridges();
    for (at, one) in bridges.iter().enumerate() {
        for other in bridges.iter().skip(at + 1) {
            if one.buses().primary != other.buses().primary || other.buses().secondary == 0 {
                continue;
            }
            assert!(one.buses().subordinate < other.buses().secondary, "in order of numbers");
            let (one, other) = (one.windows(), other.windows());
            let memory = |w: &Windows| [w.mem, w.pref].into_iter().flatten().collect::<Vec<_>>();
            for a in memory(&one) {
                for b in memory(&other) {
                    assert!(a.limit < b.base || b.limit < a.base, "{a} and {b} overlap");
                }
            }
        }
    }
}

#[test]
fn a_switch_with_three_devices_is_found_and_mapped() {
    let mut fabric = three_devices();
    let tree = enumerate(host(1), &mut fabric).unwrap();
    let want = "\
-[00]
 \\-00.0-[01-0a]
   \\-00.0-[02-0a]
     +-00.0-[03-04]
     | \\-00.0
     +-01.0-[05-06]
     +-02.0-[07-08]
     | \\-00.0
     \\-03.0-[09-0a]
       \\-00.0
00:00.0 060400 1e98:5004 root port, slot 1, bus 01-0a, io 1000-1fff, mem 80000000-801fffff, pref 4000000000-4053ffffff
01:00.0 060400 1e98:5005 upstream port, bus 02-0a, io 1000-1fff, mem 80000000-801fffff, pref 4000000000-4053ffffff
02:00.0 060400 1e98:5006 downstream port, slot 1, bus 03-04, pref 4040000000-404fffffff
03:00.0 050210 1e98:00d1 endpoint, CXL Type3, serial 000000d100000000, BAR0 pref64 4040000000+10000000
02:01.0 060400 1e98:5006 downstream port, slot 2, bus 05-06
02:02.0 060400 1e98:5006 downstream port, slot 3, bus 07-08, io 1000-1fff, mem 80000000-801fffff, pref 4050000000-4053ffffff
07:00.0 050210 1e98:00d3 endpoint, BAR0 mem32 80100000+1000, BAR1 io 1000+40, BAR2 pref64 4050000000+4000000, BAR4 mem64 80000000+100000
02:03.0 060400 1e98:5006 downstream port, slot 4, bus 09-0a, pref 4000000000-403fffffff
09:00.0 050210 1e98:00d4 endpoint, CXL Type3, serial 000000d400000000, BAR0 pref64 4000000000+40000000
";
    assert_eq!(tree.to_string(), want);
    check(&fabric, &tree);
    assert_eq!(fabric.reach(false, 0x8000_0000 + 2 * MIB), vec![], "past the window");
    assert_eq!(enumerate(host(1), &mut fabric).unwrap(), tree, "a second time, from what is there");
}

#[test]
fn switches_behind_switches_are_found() {
    let inner = switch(vec![downstream(8, Some(memory(2, MIB))), downstream(9, None)]);
    let mut fabric = below_root(switch(vec![
        downstream(1, Some(inner)),
        downstream(2, Some(device(3, &[(MEM32, 16)]))),
    ]));
    let more = port(PortKind::Root, 7, vec![at(0, 0, memory(4, 2 * MIB))]);
    fabric.root.push(at(1, 0, more));
    fabric.root.push(at(2, 0, device(5, &[(BarKind::Io, 8), (PREF64, 4096)])));
    let tree = enumerate(host(0), &mut fabric).unwrap();
    let outline: Vec<_> = tree.iter().map(|node| (node.bdf.bits(), node.device)).collect();
    #[rustfmt::skip]
    let want = [
        (0x0000, 0x5004), (0x0100, 0x5005),
        (0x0200, 0x5006), (0x0300, 0x5005), (0x0400, 0x5006), (0x0500, 2), (0x0408, 0x5006),
        (0x0208, 0x5006), (0x0700, 3),
        (0x0008, 0x5004), (0x0800, 4),
        (0x0010, 5),
    ];
    assert_eq!(outline, want);
    assert_eq!(tree.problems, []);
    check(&fabric, &tree);
}

/// Services an interrupt of the slot at `bdf`; returns the tree after that.
fn service(fabric: &mut Fabric, tree: Tree, bdf: Bdf, spec: HostSpec) -> Tree {
    Enumerator::service(spec, tree, bdf).run(fabric).unwrap()
}

#[test]
fn what_comes_and_goes_is_followed() {
    let spec = HostSpec::default();
    let mut fabric = three_devices();
    let first = enumerate(spec, &mut fabric).unwrap();
    let slot = first.iter().find(|node| node.nodes().is_empty() && node.below.is_some()).unwrap();
    let (bdf, bus) = (slot.bdf, slot.below.as_ref().unwrap().buses.secondary);
    let windows = fabric.bridge(bdf).windows();
    assert_eq!(windows.pref.map(|w| w.limit - w.base), Some(2 * MIB - 1), "kept for what comes");

    assert!(fabric.plug(bdf, Some(memory(0xD2, MIB))), "an interrupt");
    let msi = fabric.bridge(bdf).msi().unwrap();
    assert_eq!((msi.address, msi.data), (0xFEE0_0000, bdf.bits()));
    let second = service(&mut fabric, first.clone(), bdf, spec);
    assert_eq!(second.get(Bdf::new(bus, 0, 0)).unwrap().device, 0xD2);
    assert_eq!(fabric.bridge(bdf).windows(), windows, "windows of others stay as they are");
    check(&fabric, &second);
    let again = service(&mut fabric, second.clone(), bdf, spec);
    assert_eq!(again, second, "no event, nothing to do");

    assert!(fabric.plug(bdf, None));
    assert_eq!(service(&mut fabric, second, bdf, spec), first);

    assert!(fabric.plug(bdf, Some(switch(vec![downstream(1, Some(memory(0xE1, MIB)))]))));
    let fourth = service(&mut fabric, first.clone(), bdf, spec);
    let found: Vec<_> = fourth.get(bdf).unwrap().nodes().iter().map(|n| n.device).collect();
    assert_eq!((found, fourth.iter().count()), (vec![0x5005], first.iter().count() + 3));
    assert_eq!(fourth.problems, []);
    check(&fabric, &fourth);

    // The device is there, but its link was lost.
    assert!(fabric.bridge(bdf).lose_link().message.is_some());
    assert_eq!(service(&mut fabric, fourth, bdf, spec), first);
    assert!(fabric.bridge(bdf).set_link(Some(Link::default())).interrupt, "events were cleared");
}

/// A switch whose bridges have component registers, above a device that has some: all fit into the reserve behind a
/// slot.
#[test]
fn component_registers_of_what_comes_fit_into_a_slot() {
    let with_registers = |thing| match thing {
        Thing::Port(bridge, below) => {
            Thing::Port(Box::new(bridge.with_component().unwrap()), below)
        }
        other => other,
    };
    let spec = HostSpec::default();
    let mut fabric = three_devices();
    let first = enumerate(spec, &mut fabric).unwrap();
    let slot = first.iter().find(|node| node.nodes().is_empty() && node.below.is_some()).unwrap();
    let (bdf, device) = (slot.bdf, device(0xD3, &[(MEM32, 1 << 16)]));
    let below = with_registers(downstream(1, Some(device)));
    fabric.plug(bdf, Some(with_registers(switch(vec![below]))));
    let tree = service(&mut fabric, first, bdf, spec);
    assert_eq!(tree.problems, []);
    let bars = tree.get(bdf).unwrap().nodes()[0]
        .bars
        .iter()
        .chain(&tree.get(Bdf::new(8, 0, 0)).unwrap().bars);
    assert!(bars.clone().count() == 2 && bars.clone().all(|bar| bar.address.is_some()), "{tree}");
}

#[test]
fn what_does_not_fit_into_a_slot_is_said() {
    let spec = host(0);
    let mut fabric = three_devices();
    let tree = enumerate(spec, &mut fabric).unwrap();
    let bdf = Bdf::new(2, 1, 0);
    fabric.plug(bdf, Some(switch(vec![downstream(1, None)])));
    let tree = service(&mut fabric, tree, bdf, spec);
    let upstream = Bdf::new(4, 0, 0);
    assert_eq!(tree.problems, [Problem { bdf: upstream, kind: ProblemKind::NoBus }]);
    fabric.plug(bdf, Some(memory(9, MIB)));
    let tree = service(&mut fabric, tree, bdf, spec);
    let kind = ProblemKind::NoRoom { index: 0, size: MIB };
    assert_eq!(tree.problems, [Problem { bdf: upstream, kind }], "the old one went with it");
    check(&fabric, &tree);
    fabric.plug(bdf, None);
    assert_eq!(service(&mut fabric, tree, bdf, spec).problems, []);
    for wrong in [Bdf::new(0, 9, 0), Bdf::new(3, 0, 0), Bdf::new(1, 0, 0)] {
        let tree = enumerate(spec, &mut three_devices()).unwrap();
        let outcome = Enumerator::service(spec, tree, wrong).run(&mut fabric);
        assert_eq!(outcome, Err(EnumerateError::NoBridge { bdf: wrong }));
    }
}

#[test]
fn the_largest_gives_way_where_room_is_short() {
    let mut fabric = three_devices();
    let mut spec = HostSpec::default();
    spec.apertures.pref = Some(Window { base: 1 << 40, limit: (1 << 40) + 512 * MIB - 1 });
    spec.apertures.io = None;
    let tree = enumerate(spec, &mut fabric).unwrap();
    let problem = |device: u16, index, size| {
        let node = tree.iter().find(|node| node.device == device).unwrap();
        Problem { bdf: node.bdf, kind: ProblemKind::NoRoom { index, size } }
    };
    assert_eq!(tree.problems, [problem(0xD3, 1, 64), problem(0xD4, 0, 1 << 30)]);
    check(&fabric, &tree);
    // Without prefetchable memory all goes below 4 GiB.
    spec.apertures.pref = None;
    let tree = enumerate(spec, &mut fabric).unwrap();
    assert!(tree.iter().flat_map(|node| &node.bars).all(|bar| bar.address < Some(1 << 32)));
    check(&fabric, &tree);
}

#[test]
fn a_function_may_ask_for_more_time() {
    let spec = HostSpec { retries: 3, retry_ns: 1_000, ..host(0) };
    for (busy, waited_ns, found) in [(0, 0, true), (3, 3_000, true), (4, 3_000, false)] {
        let mut fabric = below_root(memory(1, MIB));
        enumerate(spec, &mut fabric).unwrap();
        fabric.place(Bdf::new(1, 0, 0)).unwrap().busy = busy;
        let tree = enumerate(spec, &mut fabric).unwrap();
        assert_eq!((fabric.waited_ns, tree.iter().count() == 2), (waited_ns, found), "{busy}");
        let trouble = Problem { bdf: Bdf::new(1, 0, 0), kind: ProblemKind::NotReady };
        assert_eq!(tree.problems, if found { vec![] } else { vec![trouble] }, "{busy}");
    }
}

/// The smallest valid function, then changed by the test.
fn raw(change: impl Fn(&mut Space)) -> Thing {
    let mut space = Space::new();
    space.set32(regs::VENDOR, 0xBAD0_1E98);
    space.allow16(regs::COMMAND, 7);
    change(&mut space);
    Thing::Raw(space)
}

#[test]
fn broken_functions_are_told_and_harm_no_other() {
    let list = |space: &mut Space| space.set16(regs::STATUS, regs::status::CAPABILITIES);
    let bar = |index, answer| ProblemKind::Bar { index, answer };
    #[rustfmt::skip] // columns: name, function, is it in the tree, trouble
    let cases: Vec<(&str, Thing, bool, ProblemKind)> = vec![
        ("list leads to itself", raw(|s| { list(s); s.set8(0x34, 0x50); s.set16(0x50, 0x5009); }), true, ProblemKind::Capabilities(0x50)),
        ("list leads to the header", raw(|s| { list(s); s.set8(0x34, 0x50); s.set16(0x50, 0x2009); }), true, ProblemKind::Capabilities(0x20)),
        ("extended list is a loop", raw(|s| {
            s.add(0x10, 0x3C).unwrap();
            s.add_ext(3, 1, 12).unwrap();
            s.set16(0x102, 0x1001);
        }), true, ProblemKind::Capabilities(0x100)),
        ("header of type 2", raw(|s| s.set8(regs::HEADER_TYPE, 2)), false, ProblemKind::Header(2)),
        ("BAR with holes", raw(|s| s.allow32(regs::BAR0, 0xF0F0_0000)), true, bar(0, 0xF0F0_0000)),
        ("BAR of no size", raw(|s| s.set32(regs::BAR0 + 4, 8)), true, bar(1, 8)),
        ("BAR all ones", raw(|s| s.set32(regs::BAR0 + 4, u32::MAX)), true, bar(1, 0xFFFF_FFFF)),
        ("BAR of a reserved type", raw(|s| { s.set32(regs::BAR0, 6); s.allow32(regs::BAR0, 0xFFFF_0000); }), true, bar(0, 0xFFFF_0006)),
        ("64 bits in the last", raw(|s| { s.set32(0x24, 4); s.allow32(0x24, 0xFFFF_0000); }), true, bar(5, u64::MAX << 16 | 4)),
        ("upper half is stuck", raw(|s| { s.set32(0x10, 4); s.allow32(0x10, 0xFFFF_0000); s.set32(0x14, 1); }), true, bar(0, 0x1_FFFF_0004)),
        ("BAR larger than all", raw(|s| { s.set32(0x10, 12); s.allow32(0x14, 0x8000_0000); }), true, ProblemKind::NoRoom { index: 0, size: 1 << 63 }),
    ];
    for (name, thing, found, kind) in cases {
        let mut fabric = below_root(switch(vec![
            downstream(1, Some(thing)),
            downstream(2, Some(memory(0xD1, MIB))),
        ]));
        let tree = enumerate(host(0), &mut fabric).unwrap();
        let bdf = Bdf::new(3, 0, 0);
        assert_eq!(tree.problems, [Problem { bdf, kind }], "{name}");
        assert_eq!(tree.get(bdf).is_some(), found, "{name}");
        let good = tree.iter().find(|node| node.device == 0xD1).unwrap();
        assert!(good.bars[0].address.is_some(), "{name}");
        check(&fabric, &tree);
    }
}

#[test]
fn a_bridge_that_keeps_no_window_is_told() {
    let mut fabric = below_root(raw(|space| {
        space.set8(regs::HEADER_TYPE, 1);
        space.allow32(regs::BUSES, 0x00FF_FFFF);
    }));
    let tree = enumerate(host(0), &mut fabric).unwrap();
    let bdf = Bdf::new(1, 0, 0);
    assert_eq!(tree.problems, [Problem { bdf, kind: ProblemKind::Windows }]);
}

/// A function that vanishes at any access leaves the rest found and mapped.
#[test]
fn a_function_may_vanish_at_any_access() {
    let mut whole = 0;
    for life in 0.. {
        let mut fabric = three_devices();
        let mut bridges = fabric.bridges().len();
        enumerate(host(1), &mut fabric).unwrap();
        fabric.place(Bdf::new(7, 0, 0)).unwrap().life = Some(life);
        let tree = enumerate(host(1), &mut fabric).unwrap();
        bridges += 2;
        assert!(tree.iter().count() >= bridges, "after {life} reads");
        for device in [0xD1, 0xD4] {
            let node = tree.iter().find(|node| node.device == device).unwrap();
            assert!(node.bars[0].address.is_some());
        }
        whole += u32::from(tree.iter().count() > bridges && tree.problems.is_empty());
        if whole > 3 {
            return;
        }
        assert!(life < 1_000, "it lives long enough at last");
    }
}

/// Answers every read with random bits.
struct Noise(Rng);
impl ConfigAccess for Noise {
    fn read(&mut self, _: Bdf, _: Reg) -> Option<u32> {
        let value = self.0.below(1 << 32);
        (value & 7 != 0).then(|| u32::try_from(value).unwrap())
    }
    fn write(&mut self, _: Bdf, _: Reg, _: u32, _: ByteEnables) {}
}

/// `CacheID` registers that answer with random bits, and the number of reads in memory.
struct Any(Rng, u64);
impl ConfigAccess for Any {
    fn read(&mut self, _: Bdf, _: Reg) -> Option<u32> {
        Some(low32(self.0.next_u64()))
    }
    fn write(&mut self, _: Bdf, _: Reg, _: u32, _: ByteEnables) {}
    fn load(&mut self, addr: Hpa) -> Option<u32> {
        self.1 += 1;
        let draw = self.0.next_u64();
        match (draw >> 32 & 3, addr.0 & 0xFFFF) {
            (0, _) if (draw >> 40).is_multiple_of(64) => None,
            (_, 0x1000) => Some(0x0211_0001),
            (_, 0x1004) => Some(0x0101_000D),
            (_, 0x1008) => Some(0x0401_000E),
            (0, _) => Some(low32(draw)),
            (1, _) => Some(1),
            _ => Some(low32(draw) & 3),
        }
    }
}

/// With random answers, giving a `CacheID` ends, and reports a refusal or the committed tables.
#[test]
fn a_cache_id_ends_whatever_registers_answer() {
    let blocks = vec![RegisterBlock { bar: 0, id: BlockId::Component as u8, offset: 0 }];
    let bar = |at| Bar {
        index: 0,
        kind: BarKind::Mem32 { prefetch: false },
        size: 1 << 16,
        address: Some(at),
    };
    let port = |bus: u8, at: u64, nodes| Node {
        bdf: Bdf::new(bus, 0, 0),
        express: Some((Some(PortKind::Downstream), 0x40)),
        port: Some(bus),
        blocks: blocks.clone(),
        bars: vec![bar(at)],
        below: Some(Below { nodes, ..Below::default() }),
        ..Node::default()
    };
    let device = Node { bdf: Bdf::new(3, 0, 0), ..Node::default() };
    let tree = Tree {
        nodes: vec![port(1, 0x1_0000, vec![port(2, 0x2_0000, vec![device])])],
        ..Tree::default()
    };
    let mut ends = [0; 2];
    for seed in 0..2_000 {
        let mut any = Any(Rng::new(seed), 0);
        let id = (seed % 3 > 0).then_some(seed.to_le_bytes()[0] % 16);
        let mut one =
            Enumerator::cache_id(HostSpec::default(), tree.clone(), Bdf::new(3, 0, 0), id);
        while let Step::Do(request) = one.step() {
            one.answer(match request {
                Request::Read { bdf, reg } => any.read(bdf, reg),
                Request::Load { addr } => any.load(addr),
                _ => None,
            });
        }
        assert!(any.1 < 200, "seed {seed}: {} loads", any.1);
        ends[usize::from(one.cache_id_result().unwrap().is_ok())] += 1;
    }
    assert!(ends[0] > 100 && ends[1] > 100, "{ends:?}");
}

#[test]
fn a_tree_without_end_is_given_up() {
    let spec = HostSpec { accesses_max: 200, ..host(0) };
    let outcome = enumerate(spec, &mut three_devices());
    assert_eq!(outcome, Err(EnumerateError::TooManyAccesses { max: 200 }));

    for seed in 0..20 {
        let spec = HostSpec { accesses_max: 100_000, ..host(1) };
        let outcome = enumerate(spec, &mut Noise(Rng::new(seed)));
        assert!(
            matches!(outcome, Ok(_) | Err(EnumerateError::TooManyAccesses { .. })),
            "seed {seed}"
        );
    }
}

/// Step by step, with answers later: the same tree as in a loop, by the same accesses.
#[test]
fn steps_wait_for_their_answers() {
    let want = enumerate(host(1), &mut three_devices()).unwrap();
    let mut fabric = three_devices();
    let mut enumerator = Enumerator::all(host(1));
    let mut steps = 0;
    while let Step::Do(request) = enumerator.step() {
        assert_eq!(enumerator.step(), Step::Do(request), "it does not go on by itself");
        assert!(enumerator.result().is_none());
        let value = match request {
            Request::Read { bdf, reg } => fabric.read(bdf, reg),
            Request::Write { bdf, reg, value, enables } => {
                fabric.write(bdf, reg, value, enables);
                None
            }
            Request::Load { .. } | Request::Store { .. } | Request::Wait { .. } => None,
        };
        enumerator.answer(value);
        enumerator.answer(Some(0)); // a second answer is nobody's
        steps += 1;
    }
    assert_eq!(enumerator.result(), Some(&Ok(want)));
    assert_eq!(enumerator.accesses(), steps);
    assert_eq!(enumerator.step(), Step::Done);
}

/// Random trees: every function is found, and every BAR reached or reported as a problem.
#[test]
fn random_trees_are_mapped_without_overlap() {
    fn thing(rng: &mut Rng, number: &mut u16, depth: u32) -> Thing {
        *number += 1;
        if depth > 0 && rng.chance(1, 3) {
            let count = rng.below(4);
            let ports = (0..count).map(|_| {
                let inside = rng.chance(3, 4).then(|| thing(rng, number, depth - 1));
                downstream(1, inside)
            });
            return switch(ports.collect());
        }
        let kinds = [MEM32, MEM64, PREF64, BarKind::Io];
        let bars = (0..rng.below(3)).map(|_| {
            let kind = kinds[usize::try_from(rng.below(4)).unwrap()];
            let io = kind == BarKind::Io;
            (kind, 1 << if io { 2 + rng.below(7) } else { 4 + rng.below(24) })
        });
        let bars: Vec<_> = bars.collect();
        device(*number, &bars)
    }
    for seed in 0..200 {
        let mut rng = Rng::new(seed);
        let mut number = 0;
        let roots = (0..3).map(|_| {
            let inside = thing(&mut rng, &mut number, 3);
            port(PortKind::Root, 1, vec![at(0, 0, inside)])
        });
        let root = (0u8..).zip(roots).map(|(device, thing)| at(device, 0, thing)).collect();
        let mut fabric = Fabric { root, waited_ns: 0 };
        let tree = enumerate(host(0), &mut fabric).unwrap();
        assert_eq!(tree.problems, [], "seed {seed}");
        assert_eq!(
            tree.iter().filter(|node| node.below.is_some()).count(),
            fabric.bridges().len(),
            "seed {seed}"
        );
        check(&fabric, &tree);
    }
}
