//! Tests of the FDB: tables on both sides of each bound, a model, and threads.
//!
//! The oracle is a `BTreeMap` that does one thing after the other.
//!
//! Units: ticks of 2^39 ps where a bound is exact.
//! Source: docs/spec/pipeline.md §3.

#![expect(clippy::cast_possible_truncation, reason = "small numbers become ports and VIDs")]

use weft_base::rng::Rng;

use super::*;
use std::collections::BTreeMap;
use weft_parsers::{AddrKey, AddrSpace, Vid};

const TICK_PS: u64 = 1 << 39;

fn port(index: usize) -> PortId {
    PortId::new(index).unwrap()
}

fn key(vid: u16, space: AddrSpace, address: u64) -> FdbKey {
    FdbKey::new(Vid::new(vid).unwrap(), AddrKey::new(space, address))
}

fn mac(address: u64) -> FdbKey {
    key(1, AddrSpace::Ethernet, address)
}

fn ticks(count: u64) -> Instant {
    Instant::from_ps(count.wrapping_mul(TICK_PS))
}

fn fdb(capacity: usize) -> Fdb {
    Fdb::new(FdbConfig { capacity, seed: 7, ..FdbConfig::default() })
}

fn at(fdb: &Fdb, key: FdbKey) -> Option<usize> {
    fdb.lookup(key).map(|hit| hit.port.index())
}

#[test]
fn spaces_and_vlans_never_mix() {
    let fdb = fdb(64);
    let spaces = [AddrSpace::Ethernet, AddrSpace::Gen1, AddrSpace::Id16];
    let mut want = Vec::new();
    for (s, space) in spaces.into_iter().enumerate() {
        for (v, vid) in [0, 1, 2, 4095].into_iter().enumerate() {
            want.push((key(vid, space, 0x2A), s * 4 + v));
        }
    }
    for (n, &(key, p)) in want.iter().enumerate() {
        assert_eq!(fdb.lookup(key), None, "{key} before it is learnt");
        assert_eq!(fdb.learn(key, port(p), Instant::ZERO), Learned::New, "{key}");
        assert_eq!(fdb.len(), n + 1);
    }
    for (key, p) in want {
        assert_eq!(at(&fdb, key), Some(p), "{key}");
        assert_eq!(FdbKey::new(key.vid(), key.addr()), key);
    }
}

#[test]
fn stations_with_the_same_low_bits_all_fit() {
    let fdb = fdb(128);
    for n in 0..64 {
        let learned = fdb.learn(mac(n << 40 | 0x11), port(n as usize), Instant::ZERO);
        assert_eq!(learned, Learned::New, "station {n}");
    }
    for n in 0..64 {
        assert_eq!(at(&fdb, mac(n << 40 | 0x11)), Some(n as usize));
    }
}

/// The table is filled to its capacity with awkward address sets, and no entry is lost.
#[test]
fn capacity_is_reached_and_not_exceeded() {
    type Make = fn(u64) -> u64;
    let sets: [(&str, Make); 4] = [
        ("sequential", |n| n),
        ("high bits only", |n| n << 35),
        ("stride 64", |n| n * 64),
        ("scattered", |n| n.wrapping_mul(0x9E37_79B9_7F4A_7C15) >> 16),
    ];
    for (name, make) in sets {
        for capacity in [1, 2, 3, 100, 4096] {
            let fdb = fdb(capacity);
            for n in 0..capacity as u64 {
                let learned = fdb.learn(mac(make(n)), port(n as usize % 64), Instant::ZERO);
                assert_eq!(learned, Learned::New, "{name} {capacity}: entry {n}");
            }
            let over = mac(make(capacity as u64));
            assert_eq!(fdb.learn(over, port(0), Instant::ZERO), Learned::Full, "{name}");
            assert_eq!((fdb.lookup(over), fdb.counters().full), (None, 1), "{name}");
            for n in 0..capacity as u64 {
                assert_eq!(at(&fdb, mac(make(n))), Some(n as usize % 64), "{name}: entry {n}");
            }
            assert_eq!(fdb.iter(Instant::ZERO).count(), capacity, "{name}");
        }
    }
}

/// With far more entries than buckets have places free, displaced entries stay where readers look.
#[test]
fn crowded_buckets_make_room_by_moving_entries() {
    let table = Table::new(512, 3); // 1,024 places
    let fits = (0..1_024_u32).filter(|&n| {
        let value = Value::new(n, port(n as usize % 64), Tick::at(Instant::ZERO), false);
        table.place(mac(n.into()), value)
    });
    let fits: Vec<u32> = fits.collect();
    assert_eq!(fits.len(), 1_016, "1,001 without a search, 1,012 with one step");
    for &n in &fits {
        let found = table.find(mac(n.into())).map(|(_, value)| value.port().index());
        assert_eq!(found, Some(n as usize % 64), "entry {n}");
    }
    let held = table.buckets().iter().flat_map(table::Bucket::entries);
    assert_eq!(held.filter(|entry| entry.both().is_some()).count(), fits.len(), "no duplicates");
}

#[test]
fn touch_tells_what_is_to_be_learnt() {
    let fdb = fdb(16);
    fdb.set_static(&[StaticEntry::new(mac(9), port(3))]).unwrap();
    fdb.learn(mac(1), port(1), Instant::ZERO);
    #[rustfmt::skip] // columns: name, address, port, touch, learn
    let cases = [
        ("unknown",               5, 1, SourceState::Unknown,              Learned::New),
        ("known",                 1, 1, SourceState::Known,                Learned::Known),
        ("on another port",       1, 2, SourceState::OnOtherPort(port(1)), Learned::Moved { from: port(1) }),
        ("known there then",      1, 2, SourceState::Known,                Learned::Known),
        ("static on its port",    9, 3, SourceState::Static,               Learned::Static),
        ("static on another",     9, 4, SourceState::Static,               Learned::Static),
    ];
    for (name, address, p, touched, learned) in cases {
        assert_eq!(fdb.touch(mac(address), port(p), Instant::ZERO), touched, "{name}");
        assert_eq!(fdb.learn(mac(address), port(p), Instant::ZERO), learned, "{name}");
    }
    assert_eq!(at(&fdb, mac(9)), Some(3));
    let kinds: Vec<_> = core::iter::from_fn(|| fdb.pop_event()).map(|e| e.kind).collect();
    assert_eq!(kinds, [LearnKind::New, LearnKind::New, LearnKind::Moved { from: port(1) }]);
}

#[test]
fn a_port_learns_no_more_than_its_limit() {
    let fdb = fdb(64);
    fdb.set_learned_max(port(1), 2);
    #[rustfmt::skip] // columns: name, address, port, want
    let cases = [
        ("first",                1, 1, Learned::New),
        ("last that fits",       2, 1, Learned::New),
        ("one too many",         3, 1, Learned::PortLimit),
        ("other port is free",   3, 2, Learned::New),
        ("no move to it either", 3, 1, Learned::PortLimit),
        ("known ones refresh",   2, 1, Learned::Known),
        ("one leaves",           2, 2, Learned::Moved { from: port(1) }),
        ("its place is free",    3, 1, Learned::Moved { from: port(2) }),
    ];
    for (name, address, p, want) in cases {
        assert_eq!(fdb.learn(mac(address), port(p), Instant::ZERO), want, "{name}");
    }
    assert_eq!((fdb.learned(port(1)), fdb.learned(port(2))), (2, 1));
    assert_eq!(fdb.counters().port_limit, 2);
    fdb.set_learned_max(port(3), 0);
    assert_eq!(fdb.learn(mac(7), port(3), Instant::ZERO), Learned::PortLimit, "0 learns nothing");
    assert!(fdb.del(mac(1)) && !fdb.del(mac(1)));
    assert_eq!(fdb.learn(mac(4), port(1), Instant::ZERO), Learned::New, "del frees a place");
}

/// 300 s are 545.7 ticks: an entry ends at the 547th tick border after its last frame, at whichever time it was learnt.
#[test]
fn ageing_is_exact_to_the_tick_and_crosses_the_wrap() {
    const LIFE: u64 = 547;
    let step = Span::from_ps(1);
    #[rustfmt::skip] // columns: name, learnt at
    let cases = [
        ("from the start",         ticks(0)),
        ("within a tick",          ticks(1_000) + Span::from_ps(TICK_PS - 1)),
        ("the wrap in between",    ticks(0) - Span::from_ms(100_000)),
        ("last ps before the wrap", Instant::from_ps(u64::MAX)),
        ("half way round",         Instant::from_ps(1 << 63)),
    ];
    for (name, learnt) in cases {
        let fdb = fdb(64);
        fdb.learn(mac(1), port(1), learnt);
        let gone = Tick::at(learnt).plus(LIFE as u32).start();
        assert_eq!(fdb.next_age_due(learnt), Some(gone), "{name}");
        assert!(gone.since(learnt) >= AGEING, "{name}: never early");
        assert!(gone.since(learnt) < AGEING + Span::from_ms(800), "{name}: hardly late");
        assert_eq!(fdb.age(gone - step, usize::MAX), 0, "{name}");
        assert_eq!(at(&fdb, mac(1)), Some(1), "{name}: last ps");
        assert_eq!(fdb.age(gone, usize::MAX), 1, "{name}");
        assert_eq!((fdb.lookup(mac(1)), fdb.learned(port(1))), (None, 0), "{name}: first ps");
        assert_eq!(fdb.next_age_due(gone), None, "{name}: nothing left");
        assert_eq!(fdb.pop_event().map(|e| e.kind), Some(LearnKind::New), "{name}");
        assert_eq!(fdb.pop_event().map(|e| e.kind), Some(LearnKind::Aged), "{name}");
    }
}

#[test]
fn a_frame_gives_its_source_a_new_life() {
    let fdb = fdb(64);
    fdb.learn(mac(1), port(1), ticks(0));
    fdb.learn(mac(2), port(1), ticks(0));
    assert_eq!(fdb.touch(mac(1), port(1), ticks(500)), SourceState::Known);
    assert_eq!(fdb.age(ticks(547), usize::MAX), 1);
    assert_eq!((at(&fdb, mac(1)), at(&fdb, mac(2))), (Some(1), None));
    let due = fdb.next_age_due(ticks(547));
    assert_eq!(due, Some(ticks(1_047)));
    assert_eq!(fdb.iter(ticks(600)).next().unwrap().age, Tick::span(100));
    // Frames from the wrong port do not count.
    assert!(matches!(fdb.touch(mac(1), port(2), ticks(900)), SourceState::OnOtherPort(_)));
    assert_eq!(fdb.age(ticks(1_046), usize::MAX), 0);
    assert_eq!(fdb.age(ticks(1_047), usize::MAX), 1);
}

#[test]
fn ageing_can_be_off_and_be_changed() {
    let fdb = Fdb::new(FdbConfig { ageing: Span::ZERO, capacity: 64, ..FdbConfig::default() });
    fdb.learn(mac(1), port(1), ticks(0));
    let late = ticks(1 << 24);
    assert_eq!((fdb.next_age_due(late), fdb.age(late, usize::MAX)), (None, 0));
    fdb.set_ageing(Span::from_ms(10_000)); // 18.2 ticks, so 20
    assert_eq!(fdb.next_age_due(ticks(19)), Some(ticks(19)));
    assert_eq!(fdb.age(ticks(19), usize::MAX), 0);
    assert_eq!(fdb.next_age_due(ticks(19)), Some(ticks(20)));
    fdb.set_ageing(Span::ZERO);
    assert_eq!((fdb.next_age_due(late), fdb.age(late, usize::MAX)), (None, 0));
    fdb.set_ageing(Span::from_ms(10_000));
    assert_eq!(fdb.age(ticks(20), usize::MAX), 1);
    assert_eq!(Tick::cover(Span::from_ps(u64::MAX)), (1 << 25) - 1 - (1 << 10), "clamped");
}

/// A sweep in small pieces removes the same entries as one big sweep. Entries learnt in buckets that it has passed
/// count for the time of the next sweep.
#[test]
fn a_sweep_in_pieces_finds_everything() {
    let fdb = fdb(512);
    for n in 0..256 {
        fdb.learn(mac(n), port(1), ticks(n % 2 * 100));
    }
    let now = ticks(547);
    let mut removed = fdb.age(now, 3);
    assert_eq!(fdb.next_age_due(now), Some(now), "a sweep is under way");
    for n in 1_000..1_064 {
        fdb.learn(mac(n), port(2), ticks(50));
    }
    let mut calls = 1;
    while fdb.next_age_due(now) == Some(now) {
        removed += fdb.age(now, 3);
        calls += 1;
        assert!(calls < 200, "ends");
    }
    assert_eq!(calls, 256_usize.div_ceil(3), "3 of 256 buckets a call");
    assert_eq!((removed, fdb.len()), (128, 192));
    assert_eq!(fdb.next_age_due(now), Some(ticks(597)), "those learnt meanwhile are next");
    assert_eq!((fdb.age(ticks(597), usize::MAX), fdb.age(ticks(647), usize::MAX)), (64, 128));

    // The only entry left is one that was learnt in a bucket which the sweep had passed.
    fdb.learn(mac(1), port(1), ticks(1_000));
    fdb.age(ticks(1_547), 250);
    fdb.learn(mac(2), port(1), ticks(1_547));
    fdb.age(ticks(1_547), usize::MAX);
    let left: Vec<_> = fdb.iter(ticks(1_547)).map(|e| e.key).collect();
    assert_eq!(left, [mac(2)]);
    assert_eq!(fdb.next_age_due(ticks(1_547)), Some(ticks(2_094)));
}

#[test]
fn static_entries_apply_whole_and_stay() {
    let fdb = fdb(4);
    let entry = |address, p| StaticEntry::new(mac(address), port(p));
    fdb.learn(mac(1), port(1), ticks(0));
    fdb.set_static(&[entry(1, 5), entry(2, 6), entry(2, 6)]).unwrap();
    assert_eq!((at(&fdb, mac(1)), fdb.learned(port(1)), fdb.len()), (Some(5), 0, 2));
    assert!(fdb.lookup(mac(1)).unwrap().is_static);
    assert_eq!((fdb.age(ticks(9_999), usize::MAX), fdb.flush_all()), (0, 0));

    #[rustfmt::skip] // columns: name, entries, error
    let refused = [
        ("twice", vec![entry(3, 1), entry(3, 2)], StaticError::Twice(mac(3))),
        ("too many", (10..15).map(|a| entry(a, 1)).collect(), StaticError::TooMany { given: 5, capacity: 4 }),
    ];
    for (name, entries, error) in refused {
        assert_eq!(fdb.set_static(&entries), Err(error), "{name}");
        assert_eq!((at(&fdb, mac(1)), at(&fdb, mac(2)), fdb.len()), (Some(5), Some(6), 2));
    }
    fdb.set_static(&[entry(2, 7), entry(3, 8)]).unwrap();
    let now = (at(&fdb, mac(1)), at(&fdb, mac(2)), at(&fdb, mac(3)));
    assert_eq!((now, fdb.len()), ((None, Some(7), Some(8)), 2), "removed, replaced, added");
    assert!(fdb.del(mac(2)));
    fdb.set_static(&[]).unwrap();
    assert!(fdb.is_empty());
    assert_eq!(fdb.learn(mac(2), port(1), ticks(0)), Learned::New);
}

/// Static entries push learned ones out where the table has no other room. If one of a set finds no place, all of the
/// set is undone.
#[test]
fn static_entries_take_the_place_of_learned_ones() {
    let fdb = Fdb { capacity: 8, ..fdb(1) }; // two buckets, eight places, all of which may be used
    for n in 0..8 {
        assert_eq!(fdb.learn(mac(n), port(1), ticks(0)), Learned::New);
    }
    let statics: Vec<_> =
        (100..108).map(|a| StaticEntry::new(mac(a), port(a as usize - 100))).collect();
    fdb.set_static(&statics[..3]).unwrap();
    assert_eq!((fdb.len(), fdb.learned(port(1))), (8, 5));
    fdb.set_static(&statics).unwrap();
    assert_eq!((fdb.len(), fdb.learned(port(1))), (8, 0));
    let crowded = Fdb { capacity: 9, ..self::fdb(1) };
    crowded.set_static(&statics[..2]).unwrap();
    let mut nine = statics.clone();
    nine.push(StaticEntry::new(mac(200), port(0)));
    assert!(matches!(crowded.set_static(&nine), Err(StaticError::NoPlace(_))));
    let left: Vec<_> = crowded.iter(ticks(0)).map(|e| e.key).collect();
    assert_eq!((left.len(), crowded.len()), (2, 2), "as before: {left:?}");
    assert_eq!((at(&crowded, mac(100)), at(&crowded, mac(101))), (Some(0), Some(1)));
}

/// An address that moves too often is held at the port that it had before, for the time set with `set_sticky`; then it
/// may move again.
#[test]
fn an_address_that_moves_too_often_is_held_where_it_was() {
    let fdb = fdb(64);
    let sticky = Span::from_ms(10_000);
    fdb.set_sticky(sticky);
    let (home, thief) = (port(3), port(5));
    let ms = |at| Instant::ZERO + Span::from_ms(at);
    assert_eq!(fdb.learn(mac(1), home, ms(0)), Learned::New);
    for turn in 0..10 {
        let to = if turn % 2 == 0 { thief } else { home };
        assert!(matches!(fdb.learn(mac(1), to, ms(turn)), Learned::Moved { .. }), "{turn}");
    }
    assert_eq!(at(&fdb, mac(1)), Some(3));
    let looping = Learned::Looping { home, other: thief };
    assert_eq!(fdb.learn(mac(1), thief, ms(20)), looping, "the eleventh");
    assert_eq!(at(&fdb, mac(1)), Some(3), "it is where it was before");
    for after in [21, 5_000, 10_019] {
        assert_eq!(fdb.learn(mac(1), thief, ms(after)), Learned::Held, "{after}");
        assert_eq!(fdb.touch(mac(1), home, ms(after)), SourceState::Known, "its own port is right");
    }
    assert_eq!(fdb.learn(mac(2), thief, ms(10_019)), Learned::New, "others are not held");
    assert_eq!(fdb.learn(mac(1), thief, ms(10_020)), Learned::Moved { from: home }, "a real move");
    assert_eq!(fdb.counters().held, 3);
    assert_eq!((fdb.learned(home), fdb.learned(thief)), (0, 2));
    assert_eq!(fdb.last_loop().map(|alarm| (alarm.key, alarm.to)), Some((mac(1), thief)));
}

/// Where the eleventh move would be the one back home, it is made.
#[test]
fn an_address_that_is_away_goes_home_to_be_held() {
    let fdb = fdb(64);
    fdb.set_sticky(Span::from_ms(1_000));
    let (home, one, two) = (port(0), port(1), port(2));
    fdb.learn(mac(1), home, Instant::ZERO);
    let others = [one, two];
    let outcomes: Vec<Learned> = (0..11)
        .map(|turn| fdb.learn(mac(1), others[turn % 2], Instant::ZERO + Span::from_ms(turn as u64)))
        .collect();
    assert_eq!(outcomes[10], Learned::Looping { home, other: one });
    assert_eq!(at(&fdb, mac(1)), Some(0));
    assert_eq!((fdb.learned(home), fdb.learned(one), fdb.learned(two)), (1, 0, 0));
}

/// The eleventh move within a second raises the alarm; ten do not, nor eleven in a second and more.
#[test]
fn loop_alarm_needs_more_than_ten_moves_within_a_second() {
    #[rustfmt::skip] // columns: name, moves, ps from the first to the last, alarms
    let cases = [
        ("ten at once",          10, 0,                 0),
        ("eleven at once",       11, 0,                 1),
        ("eleven within",        11, 999_999_999_990,   1),
        ("eleven in a second",   11, 1_000_000_000_000, 0),
        ("many, one crossing",   50, 1_000_000_000_000, 1),
    ];
    for (name, moves, span, alarms) in cases {
        for start in [Instant::ZERO, Instant::ZERO - Span::from_ms(500)] {
            let fdb = fdb(64);
            fdb.learn(mac(1), port(0), start);
            let mut last = start;
            for n in 1..=moves {
                last = start + Span::from_ps(span / (moves - 1) * (n - 1));
                let learned = fdb.learn(mac(1), port(n as usize % 2), last);
                let moved = matches!(learned, Learned::Moved { .. } | Learned::Looping { .. });
                assert!(moved, "{name}: {learned:?}");
            }
            let counters = fdb.counters();
            assert_eq!((counters.moved, counters.loop_alarms), (moves, alarms), "{name}");
            let ports = PortSet::from_bits(if alarms > 0 { 0b11 } else { 0 });
            assert_eq!(fdb.loop_ports(), ports, "{name}");
            assert_eq!(fdb.loop_alarm(last).is_some(), alarms > 0, "{name}");
            let hold = Span::from_ms(10_000);
            let held = fdb.loop_alarm(last + hold - Span::from_ps(1));
            assert_eq!(held.is_some(), alarms > 0, "{name}: last ps");
            if let Some(alarm) = held {
                assert_eq!((alarm.key, alarm.at, alarm.ports), (mac(1), last, ports), "{name}");
                assert_ne!(alarm.from, alarm.to, "{name}");
            }
            assert_eq!(fdb.loop_alarm(last + hold), None, "{name}: over");
            assert!(fdb.loop_ports().is_empty(), "{name}: over");
        }
    }
}

/// In a loop every station moves; more of them than can be watched do not hide it.
#[test]
fn loop_alarm_is_not_hidden_by_many_movers() {
    let fdb = fdb(2_048);
    for round in 0..12_u64 {
        for n in 0..1_000 {
            let now = Instant::from_ns((round * 1_000 + n) * 10_000);
            fdb.learn(mac(n), port(round as usize % 2), now);
        }
    }
    assert_eq!(fdb.counters().loop_alarms, moves::MOVERS as u64);
}

#[test]
fn lost_events_are_counted() {
    let fdb = Fdb::new(FdbConfig { capacity: 64, events: 4, ..FdbConfig::default() });
    for n in 0..7 {
        fdb.learn(mac(n), port(1), Instant::ZERO);
    }
    let addresses: Vec<_> = core::iter::from_fn(|| fdb.pop_event()).map(|e| e.key).collect();
    assert_eq!(addresses, (0..4).map(mac).collect::<Vec<_>>());
    assert_eq!(fdb.counters().events_lost, 3);
}

#[derive(Clone, Copy, Debug)]
struct Model {
    port: usize,
    fixed: bool,
    tick: u64,
}

/// Random operations against a map.
#[test]
#[expect(clippy::too_many_lines, reason = "one arm per operation")]
fn behaves_as_a_map_does() {
    const CAPACITY: usize = 96;
    const LIFE: u64 = 547;
    let spaces = [AddrSpace::Ethernet, AddrSpace::Gen1, AddrSpace::Id16];
    for seed in 0..24 {
        let mut rng = Rng::new(seed);
        let fdb = Fdb::new(FdbConfig { capacity: CAPACITY, seed, ..FdbConfig::default() });
        let mut model: BTreeMap<FdbKey, Model> = BTreeMap::new();
        let mut limits = [u32::MAX; 8];
        let mut tick = 0_u64.wrapping_sub(300); // crosses the wrap
        for step in 0..20_000 {
            let k = key(1 + rng.below(2) as u16, spaces[rng.below(3) as usize], rng.below(24));
            let p = rng.below(8) as usize;
            let now = ticks(tick) + Span::from_ps(rng.below(TICK_PS));
            let on = |model: &BTreeMap<_, Model>, p| {
                model.values().filter(|m| !m.fixed && m.port == p).count() as u32
            };
            let context = format!("seed {seed} step {step} {k} port {p}");
            match rng.below(200) {
                0..100 => {
                    let limit = on(&model, p) >= limits[p];
                    let room = model.len() < CAPACITY;
                    let want = match model.get_mut(&k) {
                        Some(m) if m.fixed => Learned::Static,
                        Some(m) if m.port == p => {
                            m.tick = tick;
                            Learned::Known
                        }
                        _ if limit => Learned::PortLimit,
                        Some(m) => {
                            let from = port(core::mem::replace(&mut m.port, p));
                            m.tick = tick;
                            Learned::Moved { from }
                        }
                        None if !room => Learned::Full,
                        None => Learned::New,
                    };
                    if want == Learned::New {
                        model.insert(k, Model { port: p, fixed: false, tick });
                    }
                    assert_eq!(fdb.learn(k, port(p), now), want, "{context}");
                }
                100..170 => {
                    let want = match model.get_mut(&k) {
                        None => SourceState::Unknown,
                        Some(m) if m.fixed => SourceState::Static,
                        Some(m) if m.port == p => {
                            m.tick = tick;
                            SourceState::Known
                        }
                        Some(m) => SourceState::OnOtherPort(port(m.port)),
                    };
                    assert_eq!(fdb.touch(k, port(p), now), want, "{context}");
                }
                170..180 => {
                    tick = tick.wrapping_add(rng.below(200));
                    let before = model.len();
                    model.retain(|_, m| m.fixed || tick.wrapping_sub(m.tick) < LIFE);
                    let want = before - model.len();
                    assert_eq!(fdb.age(ticks(tick), usize::MAX), want, "{context}");
                }
                180..188 => {
                    let del = model.remove(&k).is_some();
                    assert_eq!(fdb.del(k), del, "{context}");
                }
                188..192 => {
                    let before = model.len();
                    model.retain(|_, m| m.fixed || m.port != p);
                    assert_eq!(fdb.flush_port(port(p)), before - model.len(), "{context}");
                }
                192 => {
                    model.retain(|_, m| m.fixed);
                    fdb.flush_all();
                }
                193..196 => {
                    let count = rng.below(12);
                    let mut new = BTreeMap::new();
                    for _ in 0..count {
                        let k = key(1, spaces[rng.below(3) as usize], rng.below(24));
                        new.insert(k, rng.below(8) as usize);
                    }
                    let list: Vec<_> =
                        new.iter().map(|(&key, &p)| StaticEntry::new(key, port(p))).collect();
                    fdb.set_static(&list).unwrap();
                    model.retain(|_, m| !m.fixed);
                    for (k, p) in new {
                        model.insert(k, Model { port: p, fixed: true, tick });
                    }
                }
                _ => {
                    limits[p] = if rng.below(2) == 0 { u32::MAX } else { rng.below(10) as u32 };
                    fdb.set_learned_max(port(p), limits[p]);
                }
            }
            assert_eq!(at(&fdb, k), model.get(&k).map(|m| m.port), "{context}");
            assert_eq!(fdb.learned(port(p)), on(&model, p), "{context}");
            if step % 64 == 0 {
                let mut have: Vec<_> =
                    fdb.iter(now).map(|e| (e.key, e.port.index(), e.is_static)).collect();
                have.sort_unstable();
                let want: Vec<_> = model.iter().map(|(&k, m)| (k, m.port, m.fixed)).collect();
                assert_eq!(have, want, "{context}");
                assert_eq!(fdb.len(), want.len(), "{context}");
            }
        }
    }
}

/// Two readers, one of which refreshes, beside a thread that keeps giving the same places to other
/// keys: a key is missing or at its own port, never at another key's.
#[test]
fn readers_never_see_a_torn_entry() {
    const KEYS: u64 = 64;
    let fdb = Fdb { capacity: usize::MAX, ..fdb(4) }; // two buckets: every key fights for 8 places
    let own = |n: u64| port(n as usize % 63);
    let stop = AtomicU32::new(0);
    std::thread::scope(|scope| {
        for reader in 0..2_u64 {
            let (fdb, stop) = (&fdb, &stop);
            scope.spawn(move || {
                let mut rng = Rng::new(reader);
                let mut hits = 0_u64;
                while stop.load(Ordering::Relaxed) == 0 || hits == 0 {
                    let n = rng.below(KEYS);
                    if let Some(hit) = fdb.lookup(mac(n)) {
                        assert_eq!(hit.port, own(n), "key {n}");
                        hits += 1;
                    }
                    let state = fdb.touch(mac(n), own(n), ticks(rng.below(1 << 20)));
                    assert!(!matches!(state, SourceState::OnOtherPort(_)), "key {n}: {state:?}");
                    for entry in fdb.iter(Instant::ZERO) {
                        assert_eq!(entry.port, own(entry.key.addr().address()));
                    }
                }
            });
        }
        let mut rng = Rng::new(99);
        for _ in 0..400_000 {
            let n = rng.below(KEYS);
            if fdb.learn(mac(n), own(n), Instant::ZERO) == Learned::Full {
                fdb.del(mac(rng.below(KEYS)));
            }
        }
        fdb.learn(mac(0), own(0), Instant::ZERO);
        while fdb.is_empty() {
            fdb.learn(mac(0), own(0), Instant::ZERO);
        }
        stop.store(1, Ordering::Relaxed);
    });
    let held = fdb.iter(Instant::ZERO).count();
    assert_eq!(held, fdb.len());
    assert!(held > 0 && held <= 8);
}

#[test]
fn a_second_writer_is_told_to_come_back() {
    let fdb = fdb(16);
    fdb.learn(mac(1), port(1), ticks(0));
    let guard = fdb.writer();
    assert_eq!(fdb.learn(mac(2), port(1), ticks(0)), Learned::Busy);
    assert_eq!(fdb.age(ticks(9_999), usize::MAX), 0);
    assert_eq!(at(&fdb, mac(1)), Some(1), "readers do not care");
    assert_eq!(fdb.touch(mac(1), port(1), ticks(3)), SourceState::Known);
    drop(guard);
    assert_eq!(fdb.learn(mac(2), port(1), ticks(0)), Learned::New);
    assert_eq!(fdb.counters().busy, 1);
}
