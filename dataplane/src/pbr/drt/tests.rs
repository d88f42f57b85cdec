//! Tests of [`Routes`]: the rules of the Set commands, how a group's port is picked, and a naive model.

use weft_base::rng::Rng;

use super::*;
use std::collections::BTreeMap;

fn pid(bits: u16) -> Pid {
    Pid::from_low_bits(bits)
}

fn port(index: usize) -> PortId {
    PortId::new(index).unwrap()
}

fn group(ports: &[u8], primary: u8, mode: RgtMode, mix: u8) -> RgtEntry {
    let mut entry = RgtEntry { primary, mode, mix, ..RgtEntry::default() };
    entry.highest = u8::try_from(ports.len() - 1).unwrap();
    entry.ports[..ports.len()].copy_from_slice(ports);
    entry
}

/// Depths by port, and where a queue is full.
#[derive(Default)]
struct Depths {
    queued: [u64; 8],
    full: PortSet,
}

impl Load for Depths {
    fn queued_bytes(&self, port: PortId) -> u64 {
        self.queued[port.index()]
    }
    fn is_full(&self, port: PortId) -> bool {
        self.full.contains(port)
    }
}

fn routes() -> Routes {
    Routes::new(PortSet::first(8), 4).unwrap()
}

/// How often each of eight ports is picked in `draws` dynamic messages.
fn spread(routes: &Routes, up: PortSet, load: &Depths, draws: u32) -> [u32; 8] {
    let (mut rng, mut hits) = (Rng::new(9), [0; 8]);
    for _ in 0..draws {
        let picked = routes.pick(Dispatch::Group(0), Flow::Dynamic, up, rng.next_u64(), load);
        hits[picked.unwrap().unwrap().index()] += 1;
    }
    hits
}

/// docs/spec/wire-formats.md §4.5: Set DRT 0, PID 123 → port 5.
#[test]
fn worked_set_drt_leads_to_port_5() {
    let mut routes = routes();
    routes.set_drt(0x123, &[DrtEntry::decode([1, 5]).unwrap()]).unwrap();
    assert_eq!(routes.lookup(pid(0x123)), Ok(Dispatch::Port(port(5))));
    assert_eq!(routes.drt(pid(0x123)), DrtEntry::Port(5));
    assert_eq!(routes.lookup(pid(0x122)), Err(Refusal::NoDrtEntry));
}

/// docs/spec/cxl-fabric.md "Inside": DPID `0xFFF`, and the switch's own, are processed here; assignment does not touch
/// the DRT.
#[test]
fn own_pids_and_fff_are_processed_here() {
    let mut routes = routes();
    assert_eq!(routes.lookup(Pid::NONE), Ok(Dispatch::Here));
    routes.set_drt(7, &[DrtEntry::Port(3)]).unwrap();
    routes.own(pid(7), Some(Owner::Switch)).unwrap();
    assert_eq!(
        (routes.lookup(pid(7)), routes.drt(pid(7))),
        (Ok(Dispatch::Here), DrtEntry::Port(3))
    );
    routes.own(pid(7), Some(Owner::Port)).unwrap();
    assert_eq!(
        (routes.lookup(pid(7)), routes.is_ours(pid(7))),
        (Ok(Dispatch::Port(port(3))), true)
    );
    routes.set_drt(7, &[DrtEntry::Invalid]).unwrap();
    assert!(routes.is_ours(pid(7)));
    routes.own(pid(7), None).unwrap();
    assert_eq!((routes.lookup(pid(7)), routes.is_ours(pid(7))), (Err(Refusal::NoDrtEntry), false));
    assert_eq!(routes.own(Pid::NONE, Some(Owner::Port)), Err(TableError::NoPid));
}

#[test]
fn sets_against_the_rules_change_nothing() {
    let mut routes = routes();
    routes.set_drt(1, &[DrtEntry::Port(1)]).unwrap();
    let before = routes.clone();
    #[rustfmt::skip] // columns: start, entry behind a good one, want
    let drt = [
        (1, DrtEntry::Port(8),     TableError::Port(8)),
        (1, DrtEntry::Port(200),   TableError::Port(200)),
        (1, DrtEntry::Group(4),    TableError::Group(4)),
        (4_094, DrtEntry::Port(1), TableError::NoPid),
        (4_095, DrtEntry::Port(1), TableError::Range { start: 4_095, count: 2, len: 4_096 }),
    ];
    for (start, entry, want) in drt {
        assert_eq!(routes.set_drt(start, &[DrtEntry::Port(2), entry]), Err(want), "{entry:?}");
        assert_eq!(routes, before, "{want}");
    }
    let good = group(&[1, 2], 0, RgtMode::Random, 0);
    #[rustfmt::skip] // columns: start, group behind a good one, want
    let rgt = [
        (0, group(&[1, 8], 0, RgtMode::Random, 0), TableError::Port(8)),
        (0, group(&[1, 2], 2, RgtMode::Random, 0), TableError::Primary { primary: 2, highest: 1 }),
        (3, good,                                  TableError::Range { start: 3, count: 2, len: 4 }),
    ];
    for (start, entry, want) in rgt {
        assert_eq!(routes.set_rgt(start, &[good, entry]), Err(want), "{entry:?}");
        assert_eq!(routes, before, "{want}");
    }
    assert_eq!(routes.set_drt(4_094, &[DrtEntry::Group(3), DrtEntry::Invalid]), Ok(()));
    assert!(Routes::new(PortSet::first(8), 257).is_err());
}

/// CXL 3.1 section 7.7.6.2: static routing keeps one way.
#[test]
fn static_messages_take_the_first_port_whatever_waits_there() {
    let mut routes = routes();
    routes.set_rgt(0, &[group(&[6, 1, 2], 1, RgtMode::CongestionAvoiding, 6)]).unwrap();
    let load = Depths { queued: [0, 0, 0, 0, 0, 0, 9_999, 0], ..Depths::default() };
    for draw in 0..64 {
        let picked = routes.pick(Dispatch::Group(0), Flow::Static, PortSet::first(8), draw, &load);
        assert_eq!(picked, Ok(Some(port(6))));
    }
    let without = PortSet::first(6);
    let down = routes.pick(Dispatch::Group(0), Flow::Static, without, 0, &load);
    assert_eq!(down, Err(Refusal::RouteDown), "no other one: it would overtake");
}

#[test]
fn shares_of_primary_ports_are_those_of_the_mix() {
    for mix in 0..7 {
        let mut routes = routes();
        routes.set_rgt(0, &[group(&[0, 1, 2, 3], 1, RgtMode::Random, mix)]).unwrap();
        let hits = spread(&routes, PortSet::first(8), &Depths::default(), 80_000);
        let want = 10_000 * (7 - u32::from(mix));
        let primary = hits[0] + hits[1];
        assert!(primary.abs_diff(want) < 1_000, "mix {mix}: {primary} of 80000, want {want}");
        for (a, b) in [(0, 1), (2, 3)] {
            assert!(hits[a].abs_diff(hits[b]) < 1_200, "mix {mix}: {hits:?}");
        }
    }
}

#[test]
fn mix_7_overflows_to_secondary_when_all_primaries_are_full() {
    let mut routes = routes();
    routes.set_rgt(0, &[group(&[0, 1, 2], 1, RgtMode::Random, 7)]).unwrap();
    let full = |bits| Depths { full: PortSet::from_bits(bits), ..Depths::default() };
    let hits = |bits| spread(&routes, PortSet::first(8), &full(bits), 1_000);
    assert_eq!(hits(0)[2], 0);
    assert_eq!((hits(0b01)[1], hits(0b10)[0]), (1_000, 1_000));
    assert_eq!(hits(0b11)[2], 1_000);
}

#[test]
fn ports_that_are_down_are_passed_over() {
    let mut routes = routes();
    routes.set_rgt(0, &[group(&[0, 1, 2, 3], 1, RgtMode::Random, 0)]).unwrap();
    let up = PortSet::from_bits(0b1110);
    assert_eq!(spread(&routes, up, &Depths::default(), 8_000)[0], 0);
    let secondary = spread(&routes, PortSet::from_bits(0b1100), &Depths::default(), 8_000);
    assert_eq!(secondary[2] + secondary[3], 8_000, "no primary is up");
    let primary = spread(&routes, PortSet::from_bits(0b0011), &Depths::default(), 8_000);
    assert_eq!(primary[0] + primary[1], 8_000, "no secondary is up");
    let none =
        routes.pick(Dispatch::Group(0), Flow::Dynamic, PortSet::EMPTY, 0, &Depths::default());
    assert_eq!(none, Err(Refusal::RouteDown));
    let single = routes.pick(Dispatch::Port(port(5)), Flow::Static, up, 0, &Depths::default());
    assert_eq!(single, Err(Refusal::RouteDown));
}

#[test]
fn congestion_avoidance_takes_the_shortest_queue() {
    let mut routes = routes();
    let load = Depths { queued: [500, 100, 200, 0, 0, 0, 0, 0], ..Depths::default() };
    routes.set_rgt(0, &[group(&[0, 1, 2], 2, RgtMode::CongestionAvoiding, 0)]).unwrap();
    assert_eq!(spread(&routes, PortSet::first(8), &load, 1_000)[1], 1_000);
    let even = spread(&routes, PortSet::first(8), &Depths::default(), 3_000);
    assert!(even[..3].iter().all(|&hits| hits > 800), "equals take turns: {even:?}");
}

/// Switches do not tell each other of their queues: the mode that would need it is not taken for the plain one.
#[test]
fn the_advanced_mode_is_refused_with_what_to_use_instead() {
    let mut routes = routes();
    let plain = group(&[0, 1], 1, RgtMode::CongestionAvoiding, 0);
    let before = routes.clone();
    let advanced = RgtEntry { mode: RgtMode::AdvancedCongestionAvoiding, ..plain };
    let error = routes.set_rgt(0, &[plain, advanced]).unwrap_err();
    assert_eq!(error, TableError::Mode);
    assert!(error.to_string().contains("use mode 1"), "{error}");
    assert_eq!(routes, before);
}

/// Entries set and read at random, against a map.
#[test]
fn random_changes_match_a_map() {
    let (mut rng, mut routes) = (Rng::new(2), routes());
    let (mut model, mut owners) = (BTreeMap::new(), BTreeMap::new());
    for _ in 0..5_000 {
        let at = u16::try_from(rng.below(0x1000)).unwrap();
        let index = u8::try_from(rng.below(10)).unwrap();
        let entry = match rng.below(3) {
            0 => DrtEntry::Invalid,
            1 => DrtEntry::Port(index),
            _ => DrtEntry::Group(index),
        };
        let bad = match entry {
            DrtEntry::Invalid => false,
            DrtEntry::Port(port) => port >= 8 || at == 0xFFF,
            DrtEntry::Group(group) => group >= 4 || at == 0xFFF,
        };
        assert_eq!(routes.set_drt(at.into(), &[entry]).is_err(), bad, "{at:x} {entry:?}");
        if !bad {
            model.insert(at, entry);
        }
        let owned = u16::try_from(rng.below(0xFFF)).unwrap();
        let owner =
            [None, Some(Owner::Switch), Some(Owner::Port)][usize::try_from(rng.below(3)).unwrap()];
        routes.own(pid(owned), owner).unwrap();
        owners.insert(owned, owner);
        let probe = u16::try_from(rng.below(0x1000)).unwrap();
        let entry = model.get(&probe).copied().unwrap_or_default();
        assert_eq!(routes.drt(pid(probe)), entry);
        let owner = owners.get(&probe).copied().flatten();
        let want = match (owner, entry) {
            _ if probe == 0xFFF => Ok(Dispatch::Here),
            (Some(Owner::Switch), _) => Ok(Dispatch::Here),
            (_, DrtEntry::Port(index)) => Ok(Dispatch::Port(port(index.into()))),
            (_, DrtEntry::Group(index)) => Ok(Dispatch::Group(index)),
            (_, DrtEntry::Invalid) => Err(Refusal::NoDrtEntry),
        };
        assert_eq!(routes.lookup(pid(probe)), want, "{probe:x}");
        assert_eq!(routes.is_ours(pid(probe)), owner == Some(Owner::Port), "{probe:x}");
    }
}

/// The picked port against the list: up, of the group, and of the kind that the mix allows.
#[test]
fn random_picks_are_members_that_are_up() {
    let (mut rng, mut routes) = (Rng::new(3), routes());
    for _ in 0..3_000 {
        let count = 1 + rng.below(8);
        let ports: Vec<u8> = (0..count).map(|_| u8::try_from(rng.below(8)).unwrap()).collect();
        let modes = [RgtMode::Random, RgtMode::CongestionAvoiding];
        let mode = modes[usize::try_from(rng.below(2)).unwrap()];
        let primary = u8::try_from(rng.below(count)).unwrap();
        routes
            .set_rgt(0, &[group(&ports, primary, mode, u8::try_from(rng.below(8)).unwrap())])
            .unwrap();
        let up = PortSet::from_bits(rng.below(256));
        let load = Depths {
            queued: [0; 8].map(|_| rng.below(4)),
            full: PortSet::from_bits(rng.below(256)),
        };
        let picked = routes.pick(Dispatch::Group(0), Flow::Dynamic, up, rng.next_u64(), &load);
        let open: Vec<u8> =
            ports.iter().copied().filter(|&at| up.contains(port(at.into()))).collect();
        match picked {
            Ok(Some(picked)) => {
                assert!(open.contains(&picked.get()), "{ports:?} {up:?} {picked:?}");
            }
            other => assert!(open.is_empty() && other == Err(Refusal::RouteDown), "{other:?}"),
        }
    }
}
