//! Line rate and shares in virtual time.
//!
//! The crossbar delays no frame by a picosecond more than its output's wire does, and the size of a cell changes no
//! timestamp. Inputs at line rate go through [`replay`]; departures are compared with sums of wire times. Lengths are
//! without FCS.
//!
//! Source: docs/spec/pipeline.md §6, §7.

use weft_dataplane::config::SwitchConfig;
use weft_dataplane::time::{Instant, LinkRate, Span};
use weft_dataplane::trace::Event;
use weft_dataplane::types::{Alpha, PerPri, PortId, Pri};
use weft_parsers::{Format, Vid};
use weft_sim::frames::{FrameSpec, stations_known};
use weft_sim::replay::{InputFrame, replay};
use weft_sim::setup::Setup;
use weft_sim::switch::SwitchTiming;

/// Lengths that come in turn at an input.
const LENGTHS: [&[usize]; 11] = [
    &[60],
    &[64],
    &[100],
    &[120],
    &[128],
    &[200],
    &[256],
    &[257],
    &[512],
    &[1_398],
    &[60, 590, 60, 60, 590, 60, 1_514, 590, 60, 60, 590, 60], // IMIX, 7:4:1
];
const GBPS: [u64; 8] = [1, 10, 25, 40, 50, 100, 200, 400];
const CELLS: [u32; 9] = [64, 128, 256, 512, 1_024, 2_048, 4_096, 8_192, 16_384];
/// Last bit of the first frames.
const START: Instant = Instant::from_ns(1_000);
/// Most frames of a case, so that no queue is ever short of room.
const FRAMES_MAX: usize = 2_048;

/// A frame that left: its output, the end of its transmission, its length and its priority.
type Departure = (usize, Instant, usize, u8);

struct Case {
    gbps: u64,
    /// Rates of single ports.
    rates: Vec<(usize, u64)>,
    ports: usize,
    cell_bytes: u32,
    speedup: u32,
    iterations: u32,
    overhead: bool,
}

impl Case {
    const fn new(gbps: u64, ports: usize, cell_bytes: u32) -> Self {
        let (speedup, iterations, overhead) = (2, 2, true);
        Self { gbps, rates: Vec::new(), ports, cell_bytes, speedup, iterations, overhead }
    }

    fn rate(&self, port: usize) -> LinkRate {
        let own = self.rates.iter().find(|(of, _)| *of == port);
        LinkRate::gbps(own.map_or(self.gbps, |(_, gbps)| *gbps))
    }

    fn wire_time(&self, port: usize, len: usize) -> Span {
        self.rate(port).wire_time(len, self.overhead)
    }

    fn config(&self) -> SwitchConfig {
        let mut setup = Setup::new(self.ports, 4);
        setup.rates = (0..self.ports).map(|port| (port, self.rate(port))).collect();
        (setup.pfc, setup.ecn, setup.cell_bytes) = (false, false, self.cell_bytes);
        let mut config = setup.config();
        let cells = 1_514_usize.div_ceil(self.cell_bytes as usize) * FRAMES_MAX * 4;
        config.buffer.total_cells = u32::try_from(cells).unwrap();
        config.buffer.alpha = PerPri([Alpha::shift(3); 8]);
        config.crossbar.speedup = self.speedup;
        config.crossbar.iterations = self.iterations;
        stations_known(&mut config, Vid::new(1).unwrap());
        config
    }

    /// Sends `frames`, each (input, output, length, priority), those of an input back to back.
    fn run(&self, frames: &[(usize, usize, usize, u8)]) -> Vec<Departure> {
        assert!(frames.len() <= FRAMES_MAX);
        let mut inputs = vec![Vec::new(); self.ports];
        for &(input, output, len, pri) in frames {
            let pri = Pri::new(pri).unwrap();
            let spec = FrameSpec::new(Format::Standard, input, output, len, pri, 4);
            inputs[input].push(InputFrame::whole(START, spec.to_vec()));
        }
        let inputs = inputs.into_iter().enumerate();
        let inputs = inputs.map(|(port, frames)| (PortId::new(port).unwrap(), frames.into_iter()));
        let overhead = self.overhead;
        let around =
            SwitchTiming { chunks: Some(2 * FRAMES_MAX), overhead, ..SwitchTiming::default() };
        let mut out = Vec::new();
        let mut take = |port: PortId, at, bytes: &[u8]| {
            let pri = [0, 1, 9, 2, 9, 3][usize::from(bytes[15] >> 5)]; // as `frames::pcp_of`
            out.push((port.index(), at, bytes.len(), pri));
        };
        let listener = |_, _: &Event| ();
        let result = replay(self.config(), &around, inputs.collect(), &mut take, listener).unwrap();
        assert_eq!((result.violation_count, result.drops.len()), (0, 0), "{result:?}");
        assert_eq!(out.len(), frames.len());
        out
    }

    /// When frames of `lens`, back to back at `input`, have left by `output` if only its wire takes time.
    fn wire_only(&self, ends: (usize, usize), lens: &[usize]) -> Vec<Instant> {
        let (input, output) = ends;
        let (mut last, mut idle) = (None, Instant::ZERO);
        let mut leave = |&len: &usize| {
            let at = last.map_or(START, |last| last + self.wire_time(input, len));
            last = Some(at);
            idle = idle.max(at + SwitchTiming::default().latency) + self.wire_time(output, len);
            idle
        };
        lens.iter().map(&mut leave).collect()
    }
}

/// `count` lengths of one input.
fn lengths(of: &[usize], count: usize) -> Vec<usize> {
    of.iter().copied().cycle().take(count).collect()
}

/// Every input sends at line rate to the next port: each frame leaves when the wire lets it.
fn permutation(case: &Case, lens: &[usize]) {
    let each =
        |&len: &usize| (0..case.ports).map(move |input| (input, (input + 1) % case.ports, len, 0));
    let frames: Vec<_> = lens.iter().flat_map(each).collect();
    let out = case.run(&frames);
    for input in 0..case.ports {
        let output = (input + 1) % case.ports;
        let at: Vec<_> = out.iter().filter(|d| d.0 == output).map(|d| d.1).collect();
        let want = case.wire_only((input, output), lens);
        let Case { gbps, ports, cell_bytes, speedup, overhead, .. } = case;
        let what = (lens[0], gbps, ports, cell_bytes, speedup, overhead);
        assert!(at == want, "bytes, Gbit/s, ports, cell, speedup, overhead: {what:?}");
    }
}

/// All inputs send all priorities at line rate to one output; returns the frames that left.
fn fan_in(gbps: u64, inputs: usize, cell_bytes: u32, lens: &[usize]) -> Vec<Departure> {
    const COUNT: usize = 1_860;
    let case = Case::new(gbps, inputs + 1, cell_bytes);
    // Input by input, so that all have the same number of frames of each priority to send.
    let frame = |n: usize| {
        let (turn, input) = (n / inputs, n % inputs);
        (input, inputs, lens[turn % lens.len()], u8::try_from((turn + input) % 3).unwrap())
    };
    let frames: Vec<_> = (0..COUNT).map(frame).collect();
    case.run(&frames)
}

/// In ten rounds of 50:40:10, while frames of all priorities wait, each has its share within 0.5 %.
fn shares(out: &[Departure], what: &str) {
    let mut left = [0; 4];
    for &(_, _, _, pri) in &out[150..1_150] {
        left[usize::from(pri)] += 1;
    }
    for (pri, want) in [(0, 100_i32), (1, 400), (2, 500)] {
        let had: i32 = left[pri];
        assert!((had - want).abs() <= 5, "{what}: {left:?} of 1,000 by priority");
    }
}

/// Each length, with a rate, a number of inputs and cells that change from one to the next.
#[test]
fn every_length_leaves_at_line_rate_whatever_the_cell() {
    for (n, of) in LENGTHS.into_iter().enumerate() {
        let (gbps, ports) = (GBPS[n % GBPS.len()], 2 + n * 7 % 15);
        for cell in [64, 256, CELLS[n % CELLS.len()], 16_384] {
            permutation(&Case::new(gbps, ports, cell), &lengths(of, 480 / ports));
        }
    }
}

#[test]
fn shares_are_the_weights_whatever_the_cell() {
    for (n, of) in LENGTHS.into_iter().enumerate() {
        let (gbps, inputs) = (GBPS[(n + 3) % GBPS.len()], 2 + n * 4 % 15);
        let want = fan_in(gbps, inputs, 256, of);
        shares(&want, &format!("{} bytes at {gbps}G, {inputs} inputs", of[0]));
        let cells: &[u32] = if n % 2 == 0 { &[64, 16_384] } else { &[128, 4_096] };
        for &cell in cells {
            assert!(fan_in(gbps, inputs, cell, of) == want, "{} bytes: cell of {cell}", of[0]);
        }
    }
}

#[test]
#[ignore = "soak: run by `make soak`"]
fn soak_every_length_rate_cell_and_number_of_inputs() {
    for of in LENGTHS {
        for gbps in GBPS {
            for inputs in 2..=16 {
                let want = fan_in(gbps, inputs, 256, of);
                shares(&want, &format!("{} bytes at {gbps}G, {inputs} inputs", of[0]));
                for cell in CELLS {
                    permutation(&Case::new(gbps, inputs, cell), &lengths(of, 480 / inputs));
                    let same = fan_in(gbps, inputs, cell, of) == want;
                    assert!(same, "{} bytes, {gbps}G, {inputs} inputs: cell of {cell}", of[0]);
                }
            }
        }
    }
}

/// A wire takes the time of its model, also with speedup 1, and where only bytes take time.
#[test]
fn every_speedup_and_both_wires_carry_line_rate() {
    for of in [LENGTHS[0], LENGTHS[10]] {
        for (speedup, overhead) in [(1, true), (1, false), (3, true), (8, false)] {
            let case = Case { speedup, overhead, ..Case::new(100, 4, 256) };
            permutation(&case, &lengths(of, 120));
        }
    }
}

/// Where rates differ, a match occupies each of its ports at that port's own rate: a slow port never delays a fast one.
#[test]
fn a_slow_port_holds_no_fast_one_up() {
    for of in [60, 257, 1_398] {
        // Four inputs fill an output of four times their rate.
        let case = Case { rates: vec![(4, 400)], ..Case::new(100, 5, 256) };
        let frames: Vec<_> = (0..480).map(|n| (n % 4, 4, of, 0)).collect();
        let out = case.run(&frames);
        let first = START + SwitchTiming::default().latency;
        for (n, &(_, at, ..)) in (1..).zip(&out) {
            let want = first.as_ps() + n * case.wire_time(4, of).as_ps();
            assert!(at.as_ps().abs_diff(want) <= n, "{of} bytes, frame {n}: a picosecond each");
        }
        // One input fills four outputs of a fourth of its rate.
        let case = Case { rates: vec![(4, 400)], ..Case::new(100, 5, 256) };
        let frames: Vec<_> = (0..480).map(|n| (4, n % 4, of, 0)).collect();
        let out = case.run(&frames);
        for output in 0..4 {
            let last = out.iter().rfind(|d| d.0 == output).unwrap().1;
            let busy = 120 * case.wire_time(output, of).as_ps();
            let begun = first.as_ps() + output as u64 * case.wire_time(4, of).as_ps();
            assert!(last.as_ps() <= begun + busy + 480, "{of} bytes: output {output}");
        }
    }
}

/// All inputs send at line rate to one output after the other, all to the same at the same time: every output is kept
/// busy, and no input is served less than another.
#[test]
fn all_to_all_at_line_rate_is_carried_fairly() {
    const PORTS: usize = 8;
    const ROUNDS: usize = 30;
    for (of, iterations) in [(60, 1), (60, 2), (257, 4), (1_398, 2)] {
        let case = Case { iterations, ..Case::new(100, PORTS, 256) };
        let round = |n: usize| {
            let others = move |input: &usize| *input != n % PORTS;
            (0..PORTS).filter(others).map(move |input| (input, n % PORTS, of, 0))
        };
        let frames: Vec<_> = (0..ROUNDS * PORTS).flat_map(round).collect();
        let out = case.run(&frames);
        let wire = case.wire_time(0, of).as_ps();
        let first = (START + SwitchTiming::default().latency).as_ps();
        let last = out.iter().map(|d| d.1.as_ps()).max().unwrap();
        // Each input sends 7 frames in 8 turns: without a wait, all would be gone after these turns.
        let turns = (last - first) / wire;
        let sent = (ROUNDS * (PORTS - 1)) as u64;
        assert!(turns <= sent + 2 * PORTS as u64, "{of} bytes: {turns} turns for {sent} frames");
    }
}
