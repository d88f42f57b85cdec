//! Pacing through the whole schedule: exact instants, bursts, ends, lag.

use super::*;
use crate::frames::{Kind, Station};
use crate::sizes::Sizes;

fn frame(sizes: Sizes) -> FrameSpec {
    FrameSpec::new(Kind::Gen1, Station::numbered(1), Station::numbered(2)).with_sizes(sizes)
}

fn spec(rate: Rate) -> StreamSpec {
    StreamSpec { rate, ..StreamSpec::new(7, frame(Sizes::Fixed(60))) }
}

/// Takes the next frame as soon as it is due, after `now`; `None` when the stream has ended.
fn next(tx: &mut StreamTx, now: Instant, out: &mut [u8]) -> Option<(Instant, usize)> {
    let at = match tx.due(now) {
        Due::Now => now,
        Due::At(at) => at,
        Due::Over => return None,
    };
    let len = tx.next_len();
    tx.take(at, &mut out[..len]).unwrap();
    Some((at, len))
}

/// Frame n of a million starts at floor(bytes before it * 8 * 10^12 / rate), to the picosecond.
#[test]
fn a_million_frames_start_exactly_on_time() {
    #[rustfmt::skip] // columns: name, rate, bits a frame counts beside its own, burst
    let cases = [
        ("100G wire",        Rate::WireBps(100_000_000_000), 24 * 8, 1),
        ("odd wire",         Rate::WireBps(33_333_333_337),  24 * 8, 1),
        ("odd frame bits",   Rate::FrameBps(7_000_000_009),  0,      1),
        ("odd, burst of 32", Rate::FrameBps(7_000_000_009),  0,      32),
    ];
    let mut out = vec![0; 2000];
    for (name, rate, extra, burst) in cases {
        let (Rate::WireBps(bps) | Rate::FrameBps(bps)) = rate else { panic!("{name}") };
        let start = Instant::from_ps(123_456_789);
        let frame = frame(Sizes::Range(60, 90));
        let base = StreamSpec::new(7, frame);
        let mut tx = StreamTx::new(StreamSpec { rate, burst, start, ..base }).unwrap();
        let (mut bits, mut now) = (0u128, Instant::ZERO);
        for n in 0..1_000_000u32 {
            let due_ps = bits * 1_000_000_000_000 / u128::from(bps);
            let (at, len) = next(&mut tx, now, &mut out).unwrap();
            if n % burst == 0 {
                assert_eq!(u128::from(at.since(start).as_ps()), due_ps, "{name}: frame {n}");
            } else {
                assert_eq!(at, now, "{name}: frame {n} goes with its burst");
            }
            now = at;
            bits += len as u128 * 8 + extra;
        }
        assert_eq!((tx.sent(), tx.behind()), (1_000_000, Span::ZERO), "{name}");
    }
}

#[test]
fn streams_end_by_count_time_or_order() {
    let ms = Span::from_ms(1);
    let kilo = |count, duration| StreamSpec { count, duration, ..spec(Rate::Fps(10_000)) };
    #[rustfmt::skip] // columns: name, stream, frames
    let cases = [
        ("count",              kilo(Some(5), None),                          5),
        ("none at all",        kilo(Some(0), None),                          0),
        ("1 ms of 10 a ms",    kilo(None, Some(ms)),                         10),
        ("1 ps more",          kilo(None, Some(Span::from_ps(ms.as_ps() + 1))), 11),
        ("count before time",  kilo(Some(3), Some(ms)),                      3),
        ("time before count",  kilo(Some(99), Some(ms)),                     10),
        ("no time",            kilo(None, Some(Span::ZERO)),                 0),
    ];
    let mut out = [0; 60];
    for (name, spec, frames) in cases {
        let mut tx = StreamTx::new(spec).unwrap();
        let mut now = Instant::ZERO;
        while let Some((at, _)) = next(&mut tx, now, &mut out) {
            now = at;
        }
        assert_eq!(tx.sent(), frames, "{name}");
        assert_eq!(tx.bytes(), frames * 60, "{name}");
    }
    let fast = StreamSpec { duration: Some(ms), ..spec(Rate::Max) };
    let mut tx = StreamTx::new(fast).unwrap();
    let at = |ps| Instant::from_ps(ps);
    assert_eq!(tx.due(at(ms.as_ps() - 1)), Due::Now, "as fast as possible, last moment");
    assert_eq!(tx.due(at(ms.as_ps())), Due::Over, "as fast as possible, over");
    tx.stop();
    assert_eq!(tx.due(Instant::ZERO), Due::Over, "stopped");
}

#[test]
fn lag_is_caught_up_or_forgotten() {
    let us = |us| Instant::ZERO + Span::from_us(us);
    #[rustfmt::skip] // columns: name, lag allowed, frames due at once at 1 ms, time forgotten in us
    let cases = [
        ("catches up",        None,                    11, 0),
        ("two gaps kept",     Some(Span::from_us(200)), 4, 700),
        ("nothing kept",      Some(Span::ZERO),         2, 900),
    ];
    let mut out = [0; 60];
    for (name, lag_max, frames, behind_us) in cases {
        let mut tx = StreamTx::new(StreamSpec { lag_max, ..spec(Rate::Fps(10_000)) }).unwrap();
        let mut count = 0;
        while tx.due(us(1000)) == Due::Now {
            tx.take(us(1000), &mut out).unwrap();
            count += 1;
        }
        assert_eq!((count, tx.behind()), (frames, Span::from_us(behind_us)), "{name}");
        assert!(matches!(tx.due(us(1000)), Due::At(at) if at > us(1000)), "{name}");
    }
}

/// 100,000 gaps of mean 1 us: the mean within 5 of its standard errors (0.97 us / sqrt(n)).
#[test]
fn random_gaps_keep_the_rate_and_follow_the_seed() {
    let run = |seed| {
        let base = spec(Rate::Fps(1_000_000));
        let mut tx = StreamTx::new(StreamSpec { gaps: Gaps::Random, seed, ..base }).unwrap();
        let (mut now, mut out, mut seen) = (Instant::ZERO, [0; 60], Vec::new());
        for _ in 0..100_001 {
            now = next(&mut tx, now, &mut out).unwrap().0;
            seen.push(now.as_ps());
        }
        seen
    };
    let (one, again, other) = (run(1), run(1), run(2));
    assert_eq!(one, again);
    assert_ne!(one, other);
    let mean_ps = one.last().unwrap() / 100_000;
    assert!((984_600..=1_015_400).contains(&mean_ps), "{mean_ps}");
    assert!(one.windows(2).any(|pair| pair[1] - pair[0] > 3_000_000), "gaps spread");
}

#[test]
fn impossible_streams_are_refused() {
    let id = 7;
    let short = StreamSpec::new(id, frame(Sizes::Fixed(10)));
    let source = FrameError::Len { kind: "gen1", had: 10, min: 46, max: 1366 };
    #[rustfmt::skip] // columns: name, stream, error
    let cases = [
        ("length", short,                                          StreamError::Frame { id, source }),
        ("rate",   spec(Rate::Fps(0)),                             StreamError::Rate { id, rate: Rate::Fps(0) }),
        ("burst",  StreamSpec { burst: 0, ..spec(Rate::Max) },     StreamError::Burst { id }),
        ("number", StreamSpec { id: ANNOUNCE, ..spec(Rate::Max) }, StreamError::Id { id: ANNOUNCE }),
    ];
    for (name, spec, error) in cases {
        assert_eq!(StreamTx::new(spec).err(), Some(error), "{name}");
    }
}

#[test]
fn a_slice_of_another_length_changes_nothing() {
    let mut tx = StreamTx::new(spec(Rate::Max)).unwrap();
    assert!(tx.take(Instant::ZERO, &mut [0; 10]).is_err());
    assert_eq!((tx.sent(), tx.bytes()), (0, 0));
}
