//! PFC to the picosecond: both sides of every end, bits that are clear, classes that share a priority.
//!
//! A quantum at 100G is 5,120 ps.
//!
//! Source: IEEE 802.1Q-2022 clause 36; docs/spec/pipeline.md §2, §9.

use super::*;

const QUANTUM_PS: u64 = 5_120;
const NO_CLASS: Pfc = Pfc { enable: 0, quanta: [0; 8] };

fn rate() -> LinkRate {
    LinkRate::gbps(100)
}

fn paused_at(pauses: &Pauses, ps: u64) -> u8 {
    let mut pauses = pauses.clone();
    pauses.tick(Instant::from_ps(ps));
    pauses.paused().bits()
}

/// A PAUSE holds for quanta x 512 bit times: still 1 ps before the end, no more at the end.
#[test]
fn pause_ends_exactly() {
    let start = 1_000_000_007;
    for quanta in [1, 2, 100, 0x7FFF, 0xFFFF] {
        let mut pauses = Pauses::new(&PriMap::eight());
        let pfc = NO_CLASS.with(3, quanta);
        pauses.receive(Instant::from_ps(start), &pfc, rate());
        let end = start + u64::from(quanta) * QUANTUM_PS;
        assert_eq!(pauses.tick(Instant::from_ps(start)), Some(Instant::from_ps(end)));
        assert_eq!(paused_at(&pauses, start), 0b1000, "{quanta} at once");
        assert_eq!(paused_at(&pauses, end - 1), 0b1000, "{quanta} 1 ps before the end");
        assert_eq!(paused_at(&pauses, end), 0, "{quanta} at the end");
    }
}

#[test]
fn frames_act_on_the_classes_they_name() {
    let four = PriMap::four();
    #[rustfmt::skip] // columns: name, first frame, second frame 10 quanta later, at quanta, paused
    let cases = [
        ("other class stays open",      NO_CLASS.with(3, 100),            NO_CLASS,                50,  0b0100),
        ("class of a shared priority",  NO_CLASS.with(5, 100),            NO_CLASS,                50,  0b1000),
        ("two classes, two priorities", NO_CLASS.with(1, 100).with(7, 9), NO_CLASS,                5,   0b1010),
        ("the shorter one ends first",  NO_CLASS.with(1, 100).with(7, 9), NO_CLASS,                9,   0b0010),
        ("0 resumes",                   NO_CLASS.with(3, 100),            NO_CLASS.with(3, 0),     10,  0),
        ("0 of another class",          NO_CLASS.with(3, 100),            NO_CLASS.with(4, 0),     10,  0b0100),
        ("replaced by a longer one",    NO_CLASS.with(3, 100),            NO_CLASS.with(3, 100),   109, 0b0100),
        ("and over then",               NO_CLASS.with(3, 100),            NO_CLASS.with(3, 100),   110, 0),
        ("replaced by a shorter one",   NO_CLASS.with(3, 100),            NO_CLASS.with(3, 5),     15,  0),
        ("bit clear: quanta ignored",   Pfc { enable: 0, quanta: [100; 8] },  NO_CLASS,            5,   0),
        ("bit clear: goes on running",  NO_CLASS.with(3, 100),
                                        Pfc { enable: 1, quanta: [0; 8] },                         50,  0b0100),
        ("until no class of it is",     NO_CLASS.with(3, 100).with(4, 50), NO_CLASS,               60,  0b0100),
    ];
    for (name, first, second, at, want) in cases {
        let mut pauses = Pauses::new(&four);
        pauses.receive(Instant::ZERO, &first, rate());
        if at >= 10 {
            pauses.receive(Instant::from_ps(10 * QUANTUM_PS), &second, rate());
        }
        assert_eq!(paused_at(&pauses, at * QUANTUM_PS), want, "{name}");
    }
}

/// A late look does not count the time after a pause as paused.
#[test]
fn time_paused_is_exact() {
    let at = |quanta: u64| Instant::from_ps(quanta * QUANTUM_PS);
    let mut pauses = Pauses::new(&PriMap::four());
    pauses.receive(at(0), &NO_CLASS.with(3, 10).with(4, 30), rate());
    pauses.receive(at(100), &NO_CLASS.with(3, 10), rate());
    let pri = Pri::new(2).unwrap();
    assert_eq!(pauses.spent(pri, at(105)).as_ps(), 35 * QUANTUM_PS, "30, and 5 running");
    pauses.tick(at(1000));
    assert_eq!(pauses.spent(pri, at(1000)).as_ps(), 40 * QUANTUM_PS);
    assert_eq!(pauses.spent(Pri::new(1).unwrap(), at(1000)), Span::ZERO);
}

fn slow() -> SlowReceiver {
    let spec = SlowSpec {
        drain: LinkRate::gbps(8), // a byte a nanosecond
        xoff_bytes: 1000,
        xon_bytes: 500,
        capacity_bytes: 2000,
        lossless: PriSet::from_bits(0b0110),
        quanta: 0xFFFF,
    };
    SlowReceiver::new(spec, PriMap::four())
}

#[test]
fn marks_are_sent_above_xoff_and_at_xon() {
    let at = Instant::from_ns;
    let pri = Pri::new(2).unwrap();
    let mut slow = slow();
    for _ in 0..10 {
        assert!(slow.push(at(0), pri, 100));
    }
    assert_eq!(slow.to_send(at(0)), None, "1,000 bytes are not above the mark");
    assert!(slow.push(at(0), pri, 100));
    let stop = NO_CLASS.with(3, 0xFFFF).with(4, 0xFFFF);
    assert_eq!(slow.to_send(at(0)), Some(stop), "both classes of the priority");
    slow.sent(at(0), rate());
    assert_eq!(slow.to_send(at(0)), None, "said");
    let half = rate().quanta(0xFFFF).as_ps() / 2;
    assert_eq!(slow.tick(at(0)), Some(at(100)), "the first frame is drained");
    slow.tick(at(599));
    assert_eq!((slow.used(), slow.to_send(at(599))), (600, None), "600 left");
    slow.tick(at(600));
    let go = NO_CLASS.with(3, 0).with(4, 0);
    assert_eq!((slow.used(), slow.to_send(at(600))), (500, Some(go)), "500 left");
    slow.sent(at(600), rate());
    assert_eq!(slow.to_send(Instant::from_ps(half)), None, "no refresh after the release");
    assert_eq!(slow.tick(at(1099)), Some(at(1100)));
    assert_eq!((slow.tick(at(1100)), slow.used()), (None, 0));
    assert_eq!(slow.watermark(pri), 1100);
}

#[test]
fn a_held_pause_is_refreshed_at_half_time() {
    let pri = Pri::new(1).unwrap();
    let spec = SlowSpec { drain: LinkRate::bps(1).unwrap(), ..slow().spec };
    let mut slow = SlowReceiver::new(spec, PriMap::four());
    slow.push(Instant::ZERO, pri, 1500);
    slow.sent(Instant::ZERO, rate());
    let half = rate().quanta(0xFFFF).as_ps() / 2;
    assert_eq!(slow.tick(Instant::ZERO), Some(Instant::from_ps(half)));
    assert_eq!(slow.to_send(Instant::from_ps(half - 1)), None);
    assert_eq!(slow.to_send(Instant::from_ps(half)), Some(NO_CLASS.with(1, 0xFFFF)));
}

#[test]
fn lossy_priorities_overrun_without_a_pause() {
    let mut slow = slow();
    let lossy = Pri::new(0).unwrap();
    assert!(slow.push(Instant::ZERO, lossy, 1500));
    assert!(slow.push(Instant::ZERO, lossy, 500), "exactly full");
    assert!(!slow.push(Instant::ZERO, lossy, 1), "one byte more");
    assert_eq!((slow.overruns(lossy), slow.to_send(Instant::ZERO)), (1, None));
    assert!(slow.push(Instant::ZERO, Pri::new(3).unwrap(), 100), "others have their own room");
}

#[test]
fn watermarks_follow_the_round_trip() {
    #[rustfmt::skip] // columns: multicast, XOFF, XON, capacity
    let cases = [(false, 32 * 1_402 + 20_000, 20_000, 32 * 1_402 + 40_000), (true, 8 * 1_402 + 20_000, 20_000, 8 * 1_402 + 40_000)];
    for (is_multicast, xoff, xon, capacity) in cases {
        let spec = SlowSpec::by_round_trip(LinkRate::gbps(200), 20_000, 1_402, is_multicast);
        assert_eq!((spec.xoff_bytes, spec.xon_bytes, spec.capacity_bytes), (xoff, xon, capacity));
    }
}
