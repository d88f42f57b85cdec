//! WRED: lossy frames that ECN does not mark are dropped as their queue gets deep.
//!
//! Frames of one cell follow each other to an output that a PAUSE holds, so that its depth is the number of frames that
//! found room. A cell has 256 bytes.
//!
//! Source: docs/spec/pipeline.md §4; RFC 3168 section 5.

use weft_dataplane::config::{SwitchConfig, WredConfig};
use weft_dataplane::types::PerPri;
use weft_parsers::MacAddr;
use weft_parsers::mac_control::{FRAME_LEN, Pfc};

use super::*;

const CELL: usize = 256;
const LOW: u64 = 100;
const HIGH: u64 = 300;
const FRAMES: u64 = 1_000;

/// Replays frames of one priority, each as `change` leaves it.
fn flood(
    pri: u8,
    configure: impl Fn(&mut SwitchConfig),
    change: impl Fn(&mut FrameSpec),
) -> ReplayResult {
    let mut config = Setup { buffer_bytes: 8 << 20, ..Setup::new(3, 4) }.config();
    stations_known(&mut config, Vid::new(1).unwrap());
    let cell = CELL as u64;
    // Marks at the depth at which others are dropped: neither limits the other.
    (config.ecn.low_bytes, config.ecn.high_bytes) = (LOW * cell, HIGH * cell);
    config.wred[Pri::new(pri).unwrap()] =
        Some(WredConfig { low_bytes: LOW * cell, high_bytes: HIGH * cell, max_percent: 50 });
    configure(&mut config);
    let mut hold = [0; FRAME_LEN];
    Pfc { enable: 0xFF, quanta: [0xFFFF; 8] }.emit(MacAddr::from_bits(0x02), &mut hold);
    let hold = InputFrame::whole(Instant::from_ns(100), hold.to_vec());
    let frames = (0..FRAMES).map(|number| {
        let mut spec = FrameSpec::new(Format::Standard, 0, 1, CELL, Pri::new(pri).unwrap(), 4);
        change(&mut spec);
        InputFrame::whole(Instant::from_ns(2_000 + number * 30), spec.to_vec())
    });
    let inputs = vec![
        (PortId::new(0).unwrap(), frames.collect::<Vec<_>>().into_iter()),
        (PortId::new(1).unwrap(), vec![hold].into_iter()),
    ];
    let around = SwitchTiming { latency: Span::ZERO, ..SwitchTiming::default() };
    let mut take = |_, _, _: &[u8]| ();
    let result = replay(config, &around, inputs, &mut take, |_, _: &Event| ()).unwrap();
    assert_eq!((result.imbalance, result.stuck, result.violation_count), (0, 0, 0), "{result:?}");
    assert_eq!(result.drops.keys().filter(|&&reason| reason != "wred").count(), 0, "{result:?}");
    result
}

fn early(result: &ReplayResult) -> u64 {
    result.drops.get("wred").copied().unwrap_or(0)
}

/// Lossy frames that are not marked are dropped instead.
#[test]
fn frames_that_ecn_does_not_mark_are_dropped() {
    type Change = fn(&mut FrameSpec);
    type Setting = fn(&mut SwitchConfig);
    let off: Setting = |config| config.ecn.enabled = false;
    let on: Setting = |_| ();
    let without: Setting = |config| config.wred = PerPri::default();
    #[rustfmt::skip] // columns: name, priority, configuration, frame, whether any are dropped
    let cases: [(&str, u8, Setting, Change, bool); 9] = [
        ("Not-ECT",          0, on,      |spec| spec.ecn = 0b00, true),
        ("ECT(0)",           0, on,      |spec| spec.ecn = 0b10, false),
        ("ECT(1)",           0, on,      |spec| spec.ecn = 0b01, false),
        ("CE",               0, on,      |spec| spec.ecn = 0b11, false),
        ("ECT(0), ECN off",  0, off,     |spec| spec.ecn = 0b10, true),
        ("CE, ECN off",      0, off,     |spec| spec.ecn = 0b11, true),
        ("not IP",           0, on,      |spec| (spec.format, spec.pcp) = (Format::AfhGen1, Some(0)), true),
        ("lossless",         2, on,      |spec| spec.ecn = 0b00, false),
        ("no profile",       0, without, |spec| spec.ecn = 0b00, false),
    ];
    for (name, pri, configure, change, want) in cases {
        let result = flood(pri, configure, change);
        assert_eq!(early(&result) > 0, want, "{name}: {result:?}");
        let counted = result.ledger.port[1].pri[usize::from(pri)].output_drops;
        assert_eq!(counted.iter().sum::<u64>(), early(&result), "{name}: counted at its output");
    }
}

/// No frame is dropped up to the low mark, and every one from the high mark on, so that HIGH - 1 frames find room. In
/// between p = 1/2 x (Q - low) / (high - low), with Q counting the frame itself, so that p / (1 - p) are dropped for
/// each that finds room.
#[test]
fn drops_follow_the_line_between_the_marks() {
    let mut sums = (0, 0);
    for seed in 1..=20 {
        let result = flood(0, |config| config.seed = seed, |spec| spec.ecn = 0);
        let queue = &result.ledger.port[1].pri[0];
        assert_eq!(queue.depth_watermark, HIGH - 1, "seed {seed}");
        assert_eq!(early(&result), FRAMES - (HIGH - 1), "seed {seed}");
        // All frames after the queue was full are dropped for sure; those before by the line.
        sums.0 += 1;
        sums.1 += result.ledger.port[0].pri[0].enqueued; // counted at the input
    }
    assert_eq!(sums.1, sums.0 * (HIGH - 1));
    // With fewer frames than fill the queue, the share that found room is that of the line.
    let count = |seed| early(&part(seed, 240));
    let dropped: u64 = (1..=40).map(count).sum();
    let want = 40 * expected(240);
    assert!(dropped.abs_diff(want) * 10 <= want, "{dropped} dropped, {want} by the line");
    assert_ne!(count(1), count(2), "by the seed");
    assert_eq!(count(3), count(3));
}

/// Drops of `frames` according to the line: each is dropped with the probability of the depth that is expected by then.
fn expected(frames: u64) -> u64 {
    // In units of 2^-20 frames: depth grows by the part that is not dropped.
    const ONE: u64 = 1 << 20;
    let (mut depth, mut dropped) = (0, 0);
    for _ in 0..frames {
        let above = (depth + ONE).saturating_sub(LOW * ONE);
        let p = above / (2 * (HIGH - LOW));
        dropped += p;
        depth += ONE - p;
    }
    dropped / ONE
}

/// Like [`flood`], of the first `frames` frames of Not-ECT.
fn part(seed: u64, frames: u64) -> ReplayResult {
    let number = std::cell::Cell::new(0);
    flood(
        0,
        |config| config.seed = seed,
        |spec| {
            spec.ecn = 0;
            number.set(number.get() + 1);
            if number.get() > frames {
                (spec.dst, spec.dscp) = (2, 0); // another output, which sends
            }
        },
    )
}
