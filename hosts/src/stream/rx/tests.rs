//! Loss, order and duplicates: known cases, then random ones compared with a naive oracle.

use std::collections::BTreeSet;

use weft_base::rng::Rng;

use super::*;
use crate::stamp::{Extras, Seq};

fn arrival(now_ps: u64, flaw: Option<Flaw>) -> Arrival {
    Arrival {
        now: Instant::from_ps(now_ps),
        len: 100,
        format: Format::AfhGen1,
        pri: Pri::new(2).unwrap(),
        ecn: Some(Ecn::Ce),
        flaw,
    }
}

fn mark(seq: u64, sent_ps: u64) -> Mark {
    Mark {
        stream: 1,
        seq: Seq::Whole(seq),
        sent: Some(Instant::from_ps(sent_ps)),
        len: 78,
        extras: Extras::default(),
    }
}

#[test]
fn known_sequences_are_judged() {
    let w = WINDOW;
    #[rustfmt::skip] // columns: name, numbers, lost, reordered, duplicates, too old
    let cases: [(_, &[u64], _, _, _, _); 11] = [
        ("in order",              &[0, 1, 2, 3],               0,     0, 0, 0),
        ("one missing",           &[0, 1, 3],                  1,     0, 0, 0),
        ("first missing",         &[1, 2],                     1,     0, 0, 0),
        ("late",                  &[0, 2, 1],                  0,     1, 0, 0),
        ("twice",                 &[0, 1, 1],                  0,     0, 1, 0),
        ("late twice",            &[0, 2, 1, 1],               0,     1, 1, 0),
        ("edge of the window",    &[0, w, 1],                  w - 2, 1, 0, 0),
        ("zero just remembered",  &[1, w - 1, 0],              w - 3, 1, 0, 0),
        ("zero just forgotten",   &[1, w, 0],                  w - 1, 0, 0, 1),
        ("far jump",              &[0, 10 * w, 10 * w - 1],    10 * w - 2, 1, 0, 0),
        ("jump clears old bits",  &[5, w + 5, w + 4, w + 4],   w + 3, 1, 1, 0),
    ];
    for (name, seqs, lost, reordered, duplicates, too_old) in cases {
        let mut rx = StreamRx::default();
        for seq in seqs {
            rx.record(&mark(*seq, 0), &arrival(0, None));
        }
        let got = (rx.lost(None), rx.reordered, rx.duplicates, rx.too_old);
        assert_eq!(got, (lost, reordered, duplicates, too_old), "{name}");
        assert_eq!(rx.frames, seqs.len() as u64, "{name}");
    }
}

/// 200,000 random numbers around a moving front, compared with sets that forget nothing.
#[test]
fn window_agrees_with_a_set() {
    for seed in 0..4 {
        let mut rng = Rng::new(seed);
        let (mut window, mut seen, mut next) = (SeqWindow::default(), BTreeSet::new(), 0u64);
        let (mut tallies, mut unique) = ([0u64; 4], 0);
        for step in 0..50_000 {
            let seq = match rng.below(100) {
                0 => next + rng.below(3 * WINDOW),
                1..10 => next + rng.below(4),
                10..30 => next.saturating_sub(rng.below(WINDOW + 100)),
                _ => next,
            };
            let want = if seq >= next {
                Order::Ahead
            } else if next - seq > WINDOW {
                Order::TooOld
            } else if seen.contains(&seq) {
                Order::Twice
            } else {
                Order::Late
            };
            assert_eq!(window.record(seq), want, "seed {seed}, step {step}: {seq} of {next}");
            if want != Order::TooOld && seen.insert(seq) {
                unique += 1;
            }
            next = next.max(seq + 1);
            tallies[want as usize] += 1;
            assert_eq!((window.next(), window.unique()), (next, unique), "seed {seed}");
        }
        assert!(tallies.iter().all(|count| *count > 100), "every case came up: {tallies:?}");
    }
}

#[test]
fn the_end_of_the_numbers_is_survived() {
    let mut window = SeqWindow::default();
    assert_eq!(window.record(u64::MAX), Order::Ahead);
    assert_eq!(window.record(u64::MAX - 1), Order::Late);
    assert_eq!(window.record(0), Order::TooOld);
}

#[test]
fn senders_know_what_is_missing_at_the_end() {
    let mut rx = StreamRx::default();
    for seq in [0, 1, 2, 4] {
        rx.record(&mark(seq, 0), &arrival(0, None));
    }
    assert_eq!((rx.lost(None), rx.lost(Some(5)), rx.lost(Some(9))), (1, 1, 5));
}

#[test]
fn facts_of_frames_are_counted() {
    let mut rx = StreamRx::default();
    rx.record(&mark(0, 1_000), &arrival(51_000, None));
    rx.record(&mark(1, 2_000), &arrival(152_000, Some(Flaw::Icrc)));
    rx.record(&mark(2, 3_000), &arrival(203_000, Some(Flaw::Short)));
    assert_eq!((rx.bytes, rx.corrupt(), rx.flaws), (300, 2, [1, 0, 0, 1, 0, 0]));
    assert_eq!((rx.ecn, rx.pris[2], rx.formats[1]), ([0, 0, 0, 3], 3, 3));
    let latency = &rx.latency;
    assert_eq!(latency.count(), 3);
    let got = [latency.min(), latency.mean(), latency.max()].map(Span::as_ps);
    assert_eq!(got, [50_000, 400_000 / 3, 200_000]);
    let first_last = rx.first_last.map(|(first, last)| (first.as_ps(), last.as_ps()));
    assert_eq!(first_last, Some((51_000, 203_000)));
}

/// 100,000 latencies 1..=100,000 ns: percentiles within 1 %.
#[test]
fn percentiles_are_within_one_percent() {
    let (mut even, mut odd) = (Latency::default(), Latency::default());
    for ns in 1..=100_000 {
        let half = if ns % 2 == 0 { &mut even } else { &mut odd };
        half.record(Span::from_ns(ns));
    }
    even.merge(&odd);
    #[rustfmt::skip] // columns: quantile, want in ns
    let cases = [(0.5, 50_000), (0.99, 99_000), (0.999, 99_900), (1.0, 100_000)];
    for (quantile, want) in cases {
        let got = even.quantile(quantile).as_ns();
        assert!(got.abs_diff(want) * 100 <= want, "{quantile}: {got}");
    }
    assert_eq!((even.count(), even.min().as_ns(), even.max().as_ns()), (100_000, 1, 100_000));
    assert_eq!(even.mean().as_ps(), 50_000_500);
    let mut long = Latency::default();
    long.record(Span::from_ms(100_000));
    assert_eq!(long.max(), Span::from_ms(100_000), "beyond the histogram");
    assert_eq!(Latency::default().quantile(0.5), Span::ZERO);
}
