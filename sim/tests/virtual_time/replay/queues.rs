//! Queues of lossless priorities: watermarks, and the thresholds of `egress-queue` mode to the frame.
//!
//! Few frames go to an output that a PAUSE or its rate holds back; events are compared with counts of the test's own.
//! Each frame takes one cell of 256 bytes.
//!
//! Source: docs/spec/pipeline.md §4, §9.

use std::collections::BTreeMap;

use weft_dataplane::config::{MirrorConfig, PfcMode, SwitchConfig};
use weft_dataplane::types::{Alpha, PerPri, PortSet};
use weft_dataplane::vlan::{PortMode, VidSet};
use weft_parsers::MacAddr;
use weft_parsers::mac_control::{FRAME_LEN, Pfc};

use super::*;

/// Bytes of a frame and of a cell.
const CELL: usize = 256;
/// The lossless priority of all frames, of four, and its class.
const PRI: u8 = 2;
const CLASSES: u8 = 1 << 3 | 1 << 4;

/// Events seen, in order.
fn events(config: &SwitchConfig, inputs: Inputs) -> (ReplayResult, Vec<(Instant, Event)>) {
    let mut config = config.clone();
    stations_known(&mut config, Vid::new(1).unwrap());
    let around = SwitchTiming { latency: Span::ZERO, ..SwitchTiming::default() };
    let inputs =
        inputs.into_iter().map(|(p, frames)| (PortId::new(p).unwrap(), frames.into_iter()));
    let mut seen = Vec::new();
    let listener = |now, event: &Event| seen.push((now, *event));
    let mut take = |_, _, _: &[u8]| ();
    let result = replay(config, &around, inputs.collect(), &mut take, listener).unwrap();
    assert_eq!((result.imbalance, result.stuck, result.violation_count), (0, 0, 0), "{result:?}");
    (result, seen)
}

/// A PAUSE of the frames' class for `quanta` quanta of 512 bit times.
fn pause(at_ns: u64, quanta: u16) -> InputFrame {
    let mut out = [0; FRAME_LEN];
    Pfc { enable: CLASSES, quanta: [quanta; 8] }.emit(MacAddr::from_bits(0x02), &mut out);
    InputFrame::whole(Instant::from_ns(at_ns), out.to_vec())
}

/// Three classes stand for the last of four priorities. A frame that pauses them is counted once, and the pause counts
/// until the run ends, though nothing more happens at that output.
#[test]
fn a_pause_is_counted_by_frame_and_until_the_end() {
    const LAST: usize = 3;
    let pfc = |at_ns: u64, quanta: [u16; 3]| {
        let (mut out, [five, six, seven]) = ([0; FRAME_LEN], quanta);
        let quanta = [0, 0, 0, 0, 0, five, six, seven];
        Pfc { enable: 0b1110_0000, quanta }.emit(MacAddr::from_bits(0x02), &mut out);
        InputFrame::whole(Instant::from_ns(at_ns), out.to_vec())
    };
    let data: Vec<InputFrame> =
        (0..10).map(|at| frame(5_000 + at * 100, (0, 1), CELL, 0)).collect();
    let setup = Setup::new(2, 4);
    #[rustfmt::skip] // columns: name, PFC frames, paused, resumed, paused for ns, or until the end from ns on
    let cases = [
        ("paused at the end", vec![pfc(1_000, [60_000; 3])],                           1, 0, Err(1_000)),
        ("and resumed",       vec![pfc(1_000, [60_000; 3]), pfc(3_000, [0; 3])],         1, 1, Ok(2_000)),
        ("one class stays",   vec![pfc(1_000, [60_000; 3]), pfc(3_000, [0, 60_000, 0])], 2, 0, Err(1_000)),
        ("over unseen",       vec![pfc(1_000, [625; 3])],                              1, 0, Ok(3_200)),
    ];
    for (name, frames, paused, resumed, want) in cases {
        let (result, _) = run(&setup, vec![(0, data.clone()), (1, frames)]);
        let queue = &result.ledger.port[1].pri[LAST];
        assert_eq!((queue.pause_rx, queue.resume_rx), (paused, resumed), "{name}");
        let want_ps = match want {
            Ok(ns) => ns * 1_000,
            Err(from_ns) => result.end_ps - (Instant::from_ns(from_ns) + setup.latency).as_ps(),
        };
        assert_eq!(queue.paused_ps, want_ps, "{name}: the run ends at {} ps", result.end_ps);
    }
}

/// Frames from `from` to port 3, one after the other from `at_ns` on.
fn burst(at_ns: u64, from: usize, count: usize) -> Vec<InputFrame> {
    (0..count).map(|_| frame(at_ns, (from, 3), CELL, PRI)).collect()
}

/// 20 frames fill a group, 2 its headroom, 18 are lost: neither watermark counts the other's frames.
#[test]
fn watermarks_of_a_group_leave_its_headroom_out() {
    const CELL_BYTES: u32 = 16_384;
    let mut setup = Setup::new(4, 4);
    setup.cell_bytes = CELL_BYTES;
    let mut config = setup.config();
    let buffer = &mut config.buffer;
    buffer.alpha = PerPri([Alpha::shift(3); 8]); // 8 times what is free: 2 + 8 x 2 are left at 20 frames
    (buffer.pg_reserve_cells, buffer.headroom_cells) = (2, vec![2; 4]);
    // 4 ports x 2 lossless priorities x (2 + 2), and 20 that are shared.
    buffer.total_cells = 4 * 2 * 4 + 20;
    let inputs = vec![(3, vec![pause(1_000, 0xFFFF)]), (0, burst(2_000, 0, 40))];
    let (result, seen) = events(&config, inputs);
    let held = |verdict: &str| {
        let is = |event: &Event| matches!(event, Event::Admit { verdict: v, .. } if *v == verdict);
        seen.iter().filter(|(_, event)| is(event)).count() as u64
    };
    let group = &result.ledger.port[0].pri[usize::from(PRI)];
    assert_eq!((held("queue"), held("in_headroom"), held("headroom")), (20, 2, 18));
    assert_eq!((group.pg_watermark, group.headroom_watermark), (20, 2));
    assert_eq!(result.drops.get("headroom"), Some(&18));
}

/// A switch whose port 3 sends at a tenth of the input rate; thresholds are parts of a capacity of 100 cells.
fn by_queue(percent: (u64, u64)) -> SwitchConfig {
    let mut setup = Setup::new(4, 4);
    setup.rates = vec![(3, LinkRate::gbps(10))];
    let mut config = setup.config();
    let of = |percent| percent * CELL as u64; // of 100 cells
    config.pfc.mode = PfcMode::EgressQueue { xoff_bytes: of(percent.0), xon_bytes: of(percent.1) };
    config.ecn.enabled = false;
    config
}

/// For each input, the times of the first PAUSE and of the release after it.
fn pauses(seen: &[(Instant, Event)]) -> BTreeMap<u8, Vec<(Instant, bool)>> {
    let mut told = BTreeMap::<u8, Vec<(Instant, bool)>>::new();
    for &(at, event) in seen {
        if let Event::PauseTx { port, pausing, .. } = event {
            let of_port = told.entry(port).or_default();
            if of_port.last().is_none_or(|&(_, was)| was != (pausing != 0)) {
                of_port.push((at, pausing != 0)); // not what only refreshes
            }
        }
    }
    told
}

/// Depth of the queue before each frame that entered or left, with its time.
fn depths(seen: &[(Instant, Event)]) -> Vec<(Instant, u32)> {
    let mut depth = 0;
    let mut all = Vec::new();
    for &(at, event) in seen {
        match event {
            Event::Admit { output: 3, .. } => depth += 1,
            Event::Deq { port: 3, .. } => depth -= 1,
            _ => continue,
        }
        all.push((at, depth));
    }
    all
}

/// PAUSE goes out at the frame that takes the depth above 85 cells, the release at the one that takes it below 65.
#[test]
fn marks_of_a_queue_hold_to_the_frame() {
    for (xoff, xon) in [(85, 65), (50, 50), (20, 2), (85, 84)] {
        let (result, seen) = events(&by_queue((xoff, xon)), vec![(0, burst(1_000, 0, 120))]);
        assert_eq!(result.drops.values().sum::<u64>(), 0);
        let depths = depths(&seen);
        let above = depths.iter().position(|&(_, depth)| u64::from(depth) > xoff).unwrap();
        let below =
            above + depths[above..].iter().position(|&(_, depth)| u64::from(depth) < xon).unwrap();
        let want = vec![(depths[above].0, true), (depths[below].0, false)];
        let told = pauses(&seen);
        assert_eq!(told.keys().collect::<Vec<_>>(), [&0], "only the input that has frames there");
        assert_eq!(told[&0], want, "marks {xoff} and {xon}");
    }
}

/// An input whose only frame stands in the egress queue, while its VOQ is empty, is paused as long as that frame is
/// there.
#[test]
fn an_input_is_held_while_its_frames_stand_anywhere() {
    // That frame crosses at once, and then stands behind frames that take 2 us to leave.
    let inputs = vec![(2, burst(1_000, 2, 20)), (1, burst(2_800, 1, 1)), (0, burst(1_600, 0, 120))];
    let (result, seen) = events(&by_queue((85, 65)), inputs);
    assert_eq!(result.drops.values().sum::<u64>(), 0);
    let moved = seen.iter().find(|(_, event)| matches!(event, Event::Match { input: 1, .. }));
    let told = pauses(&seen);
    let (from, until) = (told[&1][0], told[&1][1]);
    assert!(moved.unwrap().0 < from.0, "it had left its VOQ");
    let came = |port: u8| {
        let came = seen.iter().filter_map(move |(_, event)| match *event {
            Event::Rx { frame, port: by, .. } if by == port => Some(frame),
            _ => None,
        });
        came.collect::<Vec<_>>()
    };
    for (port, last) in [(1, came(1)[0]), (2, came(2)[19])] {
        let is_last = |event: &Event| matches!(event, Event::Deq { frame, .. } if *frame == last);
        let left = seen.iter().find(|(_, event)| is_last(event)).unwrap().0;
        assert_eq!(told[&port], [(told[&0][0].0, true), (left, false)], "{port}");
    }
    assert!(until.0 < told[&0][1].0, "the other one is held on");
}

/// A tag that is added counts for the longest frame of an output, one that is removed does not; a mirror's port is an
/// output like any other.
#[test]
fn the_longest_frame_is_what_leaves() {
    let mut setup = Setup::new(4, 4);
    setup.frame_len_max = 1_526;
    let mut config = setup.config();
    let vid = Vid::new(1).unwrap();
    for port in [1, 2, 3] {
        config.ports[port].frame_len_max = 1_522;
    }
    config.ports[1].vlan = PortMode::Trunk { allowed: VidSet::from_iter([1..=1]), native: None };
    config.ports[2].vlan = PortMode::Access { pvid: vid };
    stations_known(&mut config, vid);
    let tagged = |len: usize| {
        let mut tagged = frame(1_000, (0, 2), len - 4, 0).bytes;
        tagged.splice(12..12, [0x81, 0, 0, 1]);
        InputFrame::whole(Instant::from_ns(1_000), tagged)
    };
    #[rustfmt::skip] // columns: name, frame in, leaves by, with
    let cases = [
        ("just with a tag",        frame(1_000, (0, 1), 1_518, 0), Some((1, 1_522))),
        ("too long with a tag",    frame(1_000, (0, 1), 1_519, 0), None),
        ("untagged at the limit",  frame(1_000, (0, 3), 1_522, 0), Some((3, 1_522))),
        ("untagged and too long",  frame(1_000, (0, 3), 1_523, 0), None),
        ("just without its tag",   tagged(1_526),                  Some((2, 1_522))),
        ("long as it came",        tagged(1_527),                  None),
    ];
    for (name, input, want) in cases {
        let (around, mut out) = (SwitchTiming::default(), Vec::new());
        let mut take = |port: PortId, _, bytes: &[u8]| out.push((port.get(), bytes.len()));
        let inputs = vec![(PortId::new(0).unwrap(), vec![input].into_iter())];
        let result = replay(config.clone(), &around, inputs, &mut take, |_, _: &Event| ()).unwrap();
        assert_eq!(out, Vec::from_iter(want), "{name}");
        assert_eq!(result.drops.get("too_long"), want.is_none().then_some(&1), "{name}");
    }
    config.mirror =
        Some(MirrorConfig { from: PortSet::from_bits(1 << 3), to: PortId::new(1).unwrap() });
    for (len, copies) in [(1_518, 1), (1_519, 0)] {
        let (around, mut out) = (SwitchTiming::default(), Vec::new());
        let mut take = |port: PortId, _, bytes: &[u8]| out.push((port.get(), bytes.len()));
        let inputs =
            vec![(PortId::new(0).unwrap(), vec![frame(1_000, (0, 3), len, 0)].into_iter())];
        replay(config.clone(), &around, inputs, &mut take, |_, _: &Event| ()).unwrap();
        let mirrored = out.iter().filter(|&&sent| sent == (1, len + 4)).count();
        assert_eq!((mirrored, out.len()), (copies, 1 + copies), "{len}");
    }
}
