//! Tests of PFC: tables on both sides of each bound, and random frames against naive oracles.
//!
//! Oracles keep every frame and ask the last one that named a class.
//!
//! Units: picoseconds.
//! Source: IEEE 802.1Q clause 36; docs/spec/pipeline.md §2 and §9.

use weft_base::rng::Rng;

use super::*;
use crate::time::{Instant, LinkRate, Span};

/// PCP to priority: the defaults of docs/spec/pipeline.md §2.
const FOUR: [u8; 8] = [0, 1, 0, 2, 2, 3, 3, 3];
const EIGHT: [u8; 8] = [0, 1, 2, 3, 4, 5, 6, 7];
const PS: Span = Span::from_ps(1);

fn pri(pri: u8) -> Pri {
    Pri::new(pri).unwrap()
}

fn map(map: [u8; 8]) -> [Pri; 8] {
    map.map(pri)
}

fn set(bits: u8) -> PriSet {
    PriSet::from_bits(bits)
}

/// A frame that gives `quanta` to every class of `enable`, and 0xABCD to the others.
fn frame(enable: u8, quanta: u16) -> PfcFrame {
    let mut frame = PfcFrame { enable, quanta: [0xABCD; 8] };
    for class in classes(enable) {
        frame.quanta[class.index()] = quanta;
    }
    frame
}

fn byte(rng: &mut Rng) -> u8 {
    rng.next_u64().to_le_bytes()[0]
}

#[test]
fn default_maps_name_their_classes_both_ways() {
    #[rustfmt::skip] // columns: name, pcp_to_pri, classes of priorities 0 to 7, lossless
    let cases = [
        ("4 priorities", FOUR,  [0b101, 0b10, 0b1_1000, 0b1110_0000, 0, 0, 0, 0], 0b110),
        ("8 priorities", EIGHT, [1, 2, 4, 8, 16, 32, 64, 128],                    0b1_1110),
    ];
    for (name, pcp_to_pri, want, lossless) in cases {
        let have = default_classes(&map(pcp_to_pri));
        assert_eq!(have.0, want, "{name}");
        assert_eq!(check_classes(&have, set(lossless)), Ok(()), "{name}");
        // A peer with the same map that receives our PAUSE pauses this priority alone.
        for p in Pri::ALL.into_iter().filter(|&p| have[p] != 0) {
            let mut tx = PauseTx::new();
            tx.set(p, true);
            let rate = LinkRate::gbps(100);
            let sent = tx.poll(Instant::ZERO, rate, &have).unwrap();
            let mut rx = PauseRx::new();
            rx.on_pfc(&sent, Instant::ZERO, rate, &map(pcp_to_pri));
            assert_eq!(rx.paused(Instant::ZERO), PriSet::only(p), "{name}");
        }
    }
}

#[test]
fn wrong_class_sets_are_refused() {
    let shared =
        |class, low, high| Err(ClassError::Shared { class, low: pri(low), high: pri(high) });
    #[rustfmt::skip] // columns: name, classes, lossless, want
    let cases = [
        ("disjoint",            [1, 2, 4, 0xF8, 0, 0, 0, 0], 0b1111,   Ok(())),
        ("shared",              [1, 6, 4, 0xF8, 0, 0, 0, 0], 0b0110,   shared(2, 1, 2)),
        ("shared highest",      [0x80, 0, 0, 0, 0, 0, 0, 0x80], 1,     shared(7, 0, 7)),
        ("lossless without",    [1, 2, 0, 0, 0, 0, 0, 0],    0b0110,   Err(ClassError::NoClass(pri(2)))),
        ("lossy without",       [1, 2, 0, 0, 0, 0, 0, 0],    0b0010,   Ok(())),
    ];
    for (name, classes, lossless, want) in cases {
        assert_eq!(check_classes(&PerPri(classes), set(lossless)), want, "{name}");
    }
}

/// Quanta × 512 bit times, exact to the picosecond, at any rate and across the wrap.
#[test]
fn pause_lasts_its_quanta_exactly() {
    #[rustfmt::skip] // columns: name, bit/s, quanta, ps
    let cases = [
        ("1 at 100G",      100_000_000_000, 1,      5_120),
        ("0xFFFF at 400G", 400_000_000_000, 0xFFFF, 83_884_800),
        ("0xFFFF at 1G",   1_000_000_000,   0xFFFF, 33_553_920_000),
        ("rounds up",      3_000_000_000,   1,      170_667),
    ];
    for (name, bps, quanta, ps) in cases {
        for start in [Instant::ZERO, Instant::ZERO - Span::from_ps(ps / 2), Instant::ZERO - PS] {
            let mut rx = PauseRx::new();
            rx.on_pfc(&frame(0b1000, quanta), start, LinkRate::bps(bps).unwrap(), &map(EIGHT));
            let end = start + Span::from_ps(ps);
            assert_eq!(rx.paused(start), set(0b1000), "{name}");
            assert_eq!(rx.tick(end - PS), Some(end), "{name}");
            assert_eq!(rx.paused(end - PS), set(0b1000), "{name}: last ps");
            assert_eq!(rx.paused(end), PriSet::EMPTY, "{name}: first ps, no tick needed");
            assert_eq!(rx.tick(end), None, "{name}");
            assert_eq!(rx.time_paused(pri(3), end + end.since(start)).as_ps(), ps, "{name}");
        }
    }
}

/// With 4 priorities: PCP 3 and 4 stand for priority 2, PCP 5, 6 and 7 for 3.
#[test]
fn a_priority_goes_on_when_none_of_its_classes_is_paused() {
    let rate = LinkRate::gbps(100);
    #[rustfmt::skip] // columns: name, at quanta, frame, paused then
    let steps = [
        ("first class of 2",        0, frame(0b0000_1000, 10), 0b0100),
        ("second class of 2",       2, frame(0b0001_0000, 20), 0b0100),
        ("class without enable",    3, PfcFrame { enable: 0, quanta: [0; 8] }, 0b0100),
        ("resume the first",        4, frame(0b0000_1000, 0),  0b0100),
        ("other priority too",      5, frame(0b1000_0000, 2),  0b1100),
        ("that one is over",        7, frame(0, 0),            0b0100),
        ("shorter value replaces",  8, frame(0b0001_0000, 1),  0b0100),
        ("and is over",             9, frame(0, 0),            0b0000),
        ("resume of an open class", 9, frame(0b1111_1111, 0),  0b0000),
        ("all",                    10, frame(0b1111_1111, 1),  0b1111),
        ("resume of some",         10, frame(0b1110_0001, 0),  0b0111),
    ];
    let mut rx = PauseRx::new();
    for (name, at, frame, paused) in steps {
        let now = Instant::ZERO + rate.quanta(at);
        rx.on_pfc(&frame, now, rate, &map(FOUR));
        assert_eq!(rx.paused(now), set(paused), "{name}");
    }
    let end = Instant::ZERO + rate.quanta(30);
    let times = [0, 1, 2, 3].map(|p| rx.time_paused(pri(p), end).as_ps() / 5_120);
    assert_eq!(times, [1, 1, 10, 2], "quanta of pause, seen late");
    rx.tick(end);
    let later = [0, 1, 2, 3].map(|p| rx.time_paused(pri(p), end).as_ps() / 5_120);
    assert_eq!(later, times, "the tick changes nothing");
}

#[test]
fn link_down_ends_every_pause() {
    let rate = LinkRate::gbps(100);
    let mut rx = PauseRx::new();
    rx.on_pfc(&frame(0xFF, 100), Instant::ZERO, rate, &map(EIGHT));
    let now = Instant::ZERO + rate.quanta(40);
    rx.clear(now);
    assert_eq!((rx.paused(now), rx.tick(now)), (PriSet::EMPTY, None));
    assert_eq!(rx.time_paused(pri(7), now), rate.quanta(40));
    assert_eq!(rx.time_paused(pri(7), now + rate.quanta(99)), rate.quanta(40));
}

/// Random frames against an oracle that looks back to the last frame that named each class.
#[test]
fn receive_side_agrees_with_the_oracle() {
    let rate = LinkRate::gbps(100);
    for seed in 0..200 {
        let mut rng = Rng::new(seed);
        let to_pri = map(if seed % 2 == 0 { FOUR } else { EIGHT });
        let mut rx = PauseRx::new();
        let mut heard: Vec<(Instant, PfcFrame)> = Vec::new();
        let mut now = Instant::ZERO - Span::from_ps(300_000); // crosses the wrap
        let mut want_time = [0_u64; 8];
        let paused_at = |heard: &[(Instant, PfcFrame)], now: Instant| -> PriSet {
            let class_is = |class: &Pri| {
                let named = |(_, f): &&(Instant, PfcFrame)| f.enable >> class.get() & 1 != 0;
                heard.iter().rev().find(named).is_some_and(|(at, f)| {
                    now.since(*at).as_ps() < u64::from(f.quanta[class.index()]) * 5_120
                })
            };
            Pri::ALL.into_iter().filter(class_is).map(|c| to_pri[c.index()]).collect()
        };
        for _ in 0..200 {
            // All times are multiples of a quantum here, so that the oracle can count by steps.
            for _ in 0..rng.next_u64() % 6 {
                for p in paused_at(&heard, now).iter() {
                    want_time[p.index()] += 5_120;
                }
                now += Span::from_ps(5_120);
            }
            if rng.next_u64().is_multiple_of(3) {
                let next = rx.tick(now);
                assert!(next.is_none_or(|next| next > now), "seed {seed}");
                assert_eq!(next.is_some(), !rx.paused(now).is_empty(), "seed {seed}");
            }
            if rng.next_u64().is_multiple_of(2) {
                let mut f = frame(byte(&mut rng) & byte(&mut rng), 0);
                f.quanta = core::array::from_fn(|_| u16::from(byte(&mut rng) % 12));
                heard.push((now, f));
                rx.on_pfc(&f, now, rate, &to_pri);
            }
            assert_eq!(rx.paused(now), paused_at(&heard, now), "seed {seed}");
            let have_time = Pri::ALL.map(|p| rx.time_paused(p, now).as_ps());
            assert_eq!(have_time, want_time, "seed {seed}");
        }
    }
}

/// Half of 0xFFFF quanta at 100 Gbit/s.
const HALF: Span = Span::from_ps(0xFFFF * 5_120 / 2);

#[test]
fn pauses_are_sent_refreshed_and_resumed() {
    let classes = default_classes(&map(FOUR));
    let paused = |enable| Some(frame_with(enable, enable));
    let mut tx = PauseTx::new();
    let start = Instant::ZERO - Span::from_ps(HALF.as_ps() * 3 / 2); // wraps on the way
    let at = |halves: u64, ps: i64| {
        let t = start + Span::from_ps(HALF.as_ps() * halves);
        if ps < 0 { t - PS } else { t + Span::from_ps(ps.unsigned_abs()) }
    };
    #[rustfmt::skip] // columns: name, at, (priority, asserted), frame, next
    let steps = [
        ("nothing to say",         at(0, 0),  None,             None,                         None),
        ("assert",                 at(0, 0),  Some((2, true)),  paused(0b0001_1000),          Some(at(1, 0))),
        ("said once",              at(0, 0),  None,             None,                         Some(at(1, 0))),
        ("last ps",                at(1, -1), None,             None,                         Some(at(1, 0))),
        ("refresh",                at(1, 0),  None,             paused(0b0001_1000),          Some(at(2, 0))),
        ("second joins",           at(1, 9),  Some((1, true)),  paused(0b0000_0010),          Some(at(2, 0))),
        ("first's refresh",        at(2, 0),  None,             paused(0b0001_1000),          Some(at(2, 9))),
        ("second's refresh, late", at(3, 0),  None,             paused(0b0001_1010),          Some(at(4, 0))),
        ("release",                at(3, 1),  Some((2, false)), Some(frame_with(0b0001_1000, 0)), Some(at(4, 0))),
        ("once more is nothing",   at(3, 1),  Some((2, false)), None,                         Some(at(4, 0))),
        ("swap with a refresh",    at(4, 0),  Some((3, true)),  paused(0b1110_0010),          Some(at(5, 0))),
        ("release one",            at(4, 1),  Some((3, false)), Some(frame_with(0b1110_0000, 0)), Some(at(5, 0))),
        ("release at a refresh",   at(5, 0),  Some((1, false)), Some(frame_with(0b0000_0010, 0)), None),
        ("silence",                at(9, 0),  None,             None,                         None),
    ];
    for (name, now, change, want, next) in steps {
        if let Some((p, asserted)) = change {
            tx.set(pri(p), asserted);
        }
        assert_eq!(tx.poll(now, LinkRate::gbps(100), &classes), want, "{name}");
        assert_eq!(tx.next(now), next, "{name}");
    }
}

/// `enable` with 0xFFFF for the classes of `pause` and 0 for all others.
fn frame_with(enable: u8, pause: u8) -> PfcFrame {
    let quanta = core::array::from_fn(|c| if pause >> c & 1 != 0 { 0xFFFF } else { 0 });
    PfcFrame { enable, quanta }
}

#[test]
fn a_change_that_is_taken_back_sends_nothing() {
    let (rate, classes) = (LinkRate::gbps(100), default_classes(&map(EIGHT)));
    let mut tx = PauseTx::new();
    let now = Instant::ZERO;
    tx.set(pri(1), true);
    assert_eq!(tx.next(now), Some(now), "at once");
    tx.set(pri(1), false);
    assert_eq!((tx.poll(now, rate, &classes), tx.next(now)), (None, None));
    tx.set(pri(1), true);
    assert!(tx.poll(now, rate, &classes).is_some());
    tx.set(pri(1), false);
    tx.set(pri(1), true);
    assert_eq!(tx.poll(now, rate, &classes), None, "still paused, and not due");
    assert_eq!((tx.asserted(), tx.classes_paused()), (set(0b10), 0b10));
}

/// Classes that the guard paused while the worker was away stay paused if the worker wants them
/// paused, and are resumed once otherwise.
#[test]
fn what_was_paused_for_a_worker_is_resumed_unless_it_is_asked_for() {
    let (rate, classes) = (LinkRate::gbps(100), default_classes(&map(EIGHT)));
    #[rustfmt::skip] // columns: name, asked for before, and when it is back; classes of its next frame, and of those paused
    let cases = [
        ("nothing",            0b000, 0b000, 0b110, 0b000),
        ("one as before",      0b010, 0b010, 0b110, 0b010),
        ("one is released",    0b010, 0b000, 0b110, 0b000),
        ("another is asked for", 0b000, 0b100, 0b110, 0b100),
        ("not of the guard's", 0b000, 0b1000, 0b1110, 0b1000),
    ];
    for (name, before, after, named, paused) in cases {
        let mut tx = PauseTx::new();
        let asked = |tx: &mut PauseTx, pris: u8| {
            for pri in Pri::ALL {
                tx.set(pri, set(pris).contains(pri));
            }
        };
        asked(&mut tx, before);
        tx.poll(Instant::ZERO, rate, &classes);
        let back = Instant::ZERO + Span::from_ms(300);
        tx.note_paused(0b110);
        asked(&mut tx, after);
        assert_eq!(tx.next(back), Some(back), "{name}: at once");
        assert_eq!(tx.poll(back, rate, &classes), Some(frame_with(named, paused)), "{name}");
        assert_eq!(tx.poll(back, rate, &classes), None, "{name}: once");
    }
}

#[test]
fn remap_and_link_down_keep_both_sides_together() {
    let (rate, now) = (LinkRate::gbps(100), Instant::ZERO);
    let (four, eight) = (default_classes(&map(FOUR)), default_classes(&map(EIGHT)));
    let mut tx = PauseTx::new();
    tx.remap();
    assert_eq!(tx.next(now), None, "nothing to move");
    tx.set(pri(2), true);
    assert_eq!(tx.poll(now, rate, &four), Some(frame_with(0b1_1000, 0b1_1000)));
    tx.remap();
    assert_eq!(tx.poll(now, rate, &eight), Some(frame_with(0b1_1100, 0b100)), "moved over");
    tx.link_down();
    assert_eq!(tx.classes_paused(), 0);
    assert_eq!(tx.poll(now, rate, &eight), Some(frame_with(0b100, 0b100)), "told anew");
    tx.link_down();
    tx.set(pri(2), false);
    assert_eq!(tx.poll(now, rate, &eight), None, "the peer has forgotten by itself");
}

/// Whatever is asserted when, the peer is paused in all the time between a poll with the priority
/// asserted and the poll that releases it, and each PAUSE of a class has its XON.
#[test]
fn the_peer_follows_what_is_asserted() {
    let rate = LinkRate::gbps(100);
    for seed in 0..100 {
        let mut rng = Rng::new(seed);
        let to_pri = map(if seed % 2 == 0 { FOUR } else { EIGHT });
        let pris = set(if seed % 2 == 0 { 0b1111 } else { 0xFF });
        let classes_of = default_classes(&to_pri);
        let (mut tx, mut rx) = (PauseTx::new(), PauseRx::new());
        let mut now = Instant::ZERO - Span::from_ps(HALF.as_ps() * 20);
        let (mut paused, mut resumed) = ([0; 8], [0; 8]);
        let mut held = 0_u8;
        for step in 0..500 {
            let wish = now + Span::from_ps(rng.next_u64() % (HALF.as_ps() * 3));
            let change = loop {
                let due = tx.next(now).filter(|&due| due <= wish);
                now = due.unwrap_or(wish);
                assert_eq!(rx.paused(now).and(tx.asserted()), tx.asserted(), "seed {seed}");
                if due.is_none() {
                    break pri(byte(&mut rng) & 7);
                }
                let f = tx.poll(now, rate, &classes_of).expect("due");
                rx.on_pfc(&f, now, rate, &to_pri);
            };
            if pris.contains(change) {
                tx.set(change, step < 490 && rng.next_u64().is_multiple_of(2));
            }
            if step >= 490 {
                pris.iter().for_each(|p| tx.set(p, false));
            }
            if let Some(f) = tx.poll(now, rate, &classes_of) {
                rx.on_pfc(&f, now, rate, &to_pri);
                for c in classes(f.enable) {
                    let (bit, c) = (1 << c.get(), c.index());
                    match (f.quanta[c], held & bit) {
                        (0, 0) => panic!("seed {seed}: XON without a PAUSE"),
                        (0, _) => resumed[c] += 1,
                        (_, 0) => paused[c] += 1,
                        _ => {}
                    }
                    held = if f.quanta[c] == 0 { held & !bit } else { held | bit };
                }
            }
            assert_eq!(rx.paused(now), tx.asserted(), "seed {seed} step {step}");
        }
        assert_eq!((paused, held, tx.next(now)), (resumed, 0, None), "seed {seed}");
        assert!(paused.iter().sum::<u32>() > 20, "seed {seed}: something happened");
    }
}

#[test]
fn watchdog_holds_its_times_on_both_sides() {
    let ms = |ms: u64| Instant::ZERO - Span::from_ms(300) + Span::from_ms(ms); // wraps on the way
    #[rustfmt::skip] // columns: name, at, paused, stormed, restored, storming, next
    let steps = [
        ("open",                 ms(0),            0b00, 0b00, 0b00, 0b00, None),
        ("paused",               ms(100),          0b10, 0b00, 0b00, 0b00, Some(ms(300))),
        ("second",               ms(200),          0b11, 0b00, 0b00, 0b00, Some(ms(300))),
        ("last ps",              ms(300) - PS,     0b11, 0b00, 0b00, 0b00, Some(ms(300))),
        ("storm",                ms(300),          0b11, 0b10, 0b00, 0b10, Some(ms(400))),
        ("break of the second",  ms(400) - PS,     0b10, 0b00, 0b00, 0b10, None),
        ("second begins anew",   ms(400),          0b11, 0b00, 0b00, 0b10, Some(ms(600))),
        ("both open",            ms(500),          0b00, 0b00, 0b00, 0b10, Some(ms(900))),
        ("paused again",         ms(900) - PS,     0b10, 0b00, 0b00, 0b10, None),
        ("open again",           ms(950),          0b00, 0b00, 0b00, 0b10, Some(ms(1350))),
        ("last ps of the storm", ms(1350) - PS,    0b00, 0b00, 0b00, 0b10, Some(ms(1350))),
        ("over",                 ms(1350),         0b00, 0b00, 0b10, 0b00, None),
        ("paused once more",     ms(1400),         0b11, 0b00, 0b00, 0b00, Some(ms(1600))),
        ("seen late, both",      ms(1700),         0b11, 0b11, 0b00, 0b11, None),
    ];
    let mut dog = Watchdog::new(Watchdog::DETECT, Watchdog::RESTORE);
    for (name, now, paused, stormed, restored, storming, next) in steps {
        let events = dog.observe(set(paused), now);
        let want = WatchdogEvents { stormed: set(stormed), restored: set(restored) };
        assert_eq!(events, want, "{name}");
        assert_eq!((dog.storming(), dog.tick(now)), (set(storming), next), "{name}");
    }
    assert_eq!(dog.storms().0, [1, 2, 0, 0, 0, 0, 0, 0]);
}

#[test]
fn watchdog_can_be_turned_off() {
    let mut dog = Watchdog::new(Span::ZERO, Watchdog::RESTORE);
    let late = Instant::ZERO + Span::from_ms(86_400_000);
    dog.observe(set(0xFF), Instant::ZERO);
    assert_eq!(dog.tick(late), None);
    assert_eq!(dog.observe(set(0xFF), late), WatchdogEvents::default());
    dog.set(Watchdog::DETECT, Watchdog::RESTORE);
    assert_eq!(dog.tick(late), Some(late), "overdue at once");
    assert_eq!(dog.observe(set(0xFF), late).stormed, set(0xFF));
    dog.set(Span::ZERO, Watchdog::RESTORE);
    assert_eq!(dog.tick(late), Some(late));
    assert_eq!(dog.observe(set(0xFF), late).restored, set(0xFF));
    assert_eq!((dog.storming(), dog.tick(late)), (PriSet::EMPTY, None));
}
