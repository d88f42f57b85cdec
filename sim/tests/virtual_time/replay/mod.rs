//! Replay: timestamps, ties, frames that were cut off and overruns, from lists of input frames through [`replay`].
//!
//! Source: docs/spec/pipeline.md §13.
#![expect(clippy::unwrap_used, clippy::indexing_slicing, reason = "a test may fail")]

mod early_drops;
mod line_rate;
mod queues;
mod waiting;

use weft_dataplane::port::flaw::Flaw;
use weft_dataplane::time::{Instant, LinkRate, Span};
use weft_dataplane::trace::Event;
use weft_dataplane::types::{PortId, Pri};
use weft_parsers::{Format, Vid};
use weft_sim::frames::{FrameSpec, stations_known};
use weft_sim::replay::{InputFrame, ReplayResult, replay};
use weft_sim::setup::Setup;
use weft_sim::switch::SwitchTiming;

type Inputs = Vec<(usize, Vec<InputFrame>)>;
type Outputs = Vec<(u8, Instant, usize)>;

fn frame(at_ns: u64, ends: (usize, usize), len: usize, pri: u8) -> InputFrame {
    let (src, dst) = ends;
    let spec = FrameSpec::new(Format::Standard, src, dst, len, Pri::new(pri).unwrap(), 4);
    InputFrame::whole(Instant::from_ns(at_ns), spec.to_vec())
}

fn run(setup: &Setup, inputs: Inputs) -> (ReplayResult, Outputs) {
    let mut config = setup.config();
    stations_known(&mut config, Vid::new(1).unwrap());
    let around = SwitchTiming { latency: setup.latency, ..SwitchTiming::default() };
    let inputs =
        inputs.into_iter().map(|(port, frames)| (PortId::new(port).unwrap(), frames.into_iter()));
    let mut out = Vec::new();
    let mut take = |port: PortId, at, bytes: &[u8]| out.push((port.get(), at, bytes.len()));
    let listener = |_, _: &Event| ();
    let result = replay(config, &around, inputs.collect(), &mut take, listener).unwrap();
    assert_eq!((result.imbalance, result.stuck, result.violation_count), (0, 0, 0), "{result:?}");
    (result, out)
}

#[test]
fn stamps_are_last_bit_in_and_end_of_transmission() {
    let setup = Setup::new(4, 4);
    let wire = LinkRate::gbps(100).frame_time(1_000);
    // The second frame's timestamp is too early for the wire; the third comes by another port.
    let first = vec![frame(1_000, (0, 3), 1_000, 0), frame(1_001, (0, 3), 1_000, 0)];
    let (result, out) = run(&setup, vec![(0, first), (1, vec![frame(9_000, (1, 3), 1_000, 0)])]);
    let start = Instant::from_ns(1_000) + setup.latency;
    let end = start + wire;
    let third = Instant::from_ns(9_000) + setup.latency + wire;
    assert_eq!(out, [(3, end, 1_000), (3, end + wire, 1_000), (3, third, 1_000)]);
    assert_eq!((result.inputs, result.outputs, result.end_ps), (3, 3, third.as_ps()));
}

#[test]
fn ties_go_by_port_then_by_file() {
    let setup = Setup::new(4, 4);
    let both =
        |port| vec![frame(1_000, (port, 3), 100 + port, 0), frame(1_000, (port, 3), 200 + port, 0)];
    let (_, out) = run(&setup, vec![(2, both(2)), (0, both(0)), (1, both(1))]);
    let lens: Vec<_> = out.iter().map(|&(_, _, len)| len).collect();
    assert_eq!(lens.iter().filter(|&&len| len < 200).collect::<Vec<_>>(), [&100, &101, &102]);
    assert_eq!(lens.iter().filter(|&&len| len >= 200).collect::<Vec<_>>(), [&200, &201, &202]);
    assert!(lens[0] == 100);
}

#[test]
fn flaws_are_drops_by_reason() {
    let setup = Setup::new(2, 4);
    let cut = InputFrame { orig_len: 1_000, flaw: Flaw::Truncated, ..frame(1_000, (0, 1), 96, 0) };
    let bad = InputFrame { flaw: Flaw::Fcs, ..frame(2_000, (0, 1), 96, 0) };
    let runt = InputFrame::whole(Instant::from_ns(3_000), vec![0; 59]);
    let (result, out) = run(&setup, vec![(0, vec![cut, bad, runt, frame(4_000, (0, 1), 96, 0)])]);
    let drops: Vec<_> = result.drops.iter().map(|(&reason, &count)| (reason, count)).collect();
    assert_eq!(drops, [("fcs", 1), ("runt", 1), ("truncated", 1)]);
    assert_eq!((out.len(), result.ledger.rx), (1, 4));
}

#[test]
fn a_file_cannot_be_held_back_and_that_is_said() {
    let mut setup = Setup::new(4, 4);
    setup.rates = vec![(3, LinkRate::gbps(10))];
    setup.buffer_bytes = 2 << 20;
    let load = |port| (0..4_000).map(|_| frame(1_000, (port, 3), 1_000, 2)).collect();
    let inputs = || (0..3).map(|port| (port, load(port))).collect();
    let (result, out) = run(&setup, inputs());
    assert!(result.xoff_overruns > 0);
    assert_eq!(result.drops.keys().copied().collect::<Vec<_>>(), ["headroom"]);
    assert_eq!(out.iter().filter(|(port, ..)| *port == 3).count() as u64, result.ledger.tx);
    let pauses = out.iter().filter(|(port, ..)| *port < 3).count();
    assert!(pauses >= 6, "{pauses} PFC frames go out by the inputs");
    let (again, out_again) = run(&setup, inputs());
    assert_eq!(
        (again.trace_hash, again.ledger, out_again),
        (result.trace_hash, result.ledger, out)
    );
    let mut other = inputs();
    other[0].1[5].at += Span::from_us(500);
    assert_ne!(run(&setup, other).0.trace_hash, again.trace_hash);
}
