//! Waiting at an output, compared with the closed forms of queueing theory.
//!
//! Frames arrive at random at many inputs for one output, or for all. The wait is the mean time between the last bit in
//! and the first bit out, less the fixed latency.
//!
//! Source: docs/spec/model-reference.md §3 (M/D/1, M/G/1: Pollaczek and Khinchine; cells: Karol, Hluchyj and Morgan 1987).

use weft_base::rng::Rng;
use weft_dataplane::types::{Alpha, PerPri};

use super::*;

/// Inputs that send to one output. Few inputs of the output's own rate would space arrivals out (1 % less waiting with
/// 63).
const INPUTS: usize = 63;
/// Bytes at the end of a frame that hold its time of arrival.
const MARK: usize = 8;

/// A switch with so large a buffer that no frame is dropped, paused or marked.
fn switch(ports: usize, rate: LinkRate) -> Setup {
    Setup { rate, pfc: false, ecn: false, buffer_bytes: 64 << 20, ..Setup::new(ports, 4) }
}

/// Waits of frames, summed.
#[derive(Default)]
struct Waits {
    frames: u128,
    /// Between last bit in and first bit out, beside the fixed latency; of all frames, in picoseconds.
    sum: u128,
    /// Time that the output took for all frames, in picoseconds.
    service: u128,
    /// Sum of the squares of these times.
    squares: u128,
}

impl Waits {
    fn mean(&self) -> u128 {
        self.sum / self.frames
    }

    /// Pollaczek and Khinchine, for the load that came in `time` picoseconds: W = λ·E\[S²\] / (2(1 − ρ)).
    fn by_theory(&self, time: u64) -> u128 {
        self.squares / (2 * (u128::from(time) - self.service))
    }
}

/// Waits of frames of `inputs`: (time of arrival, output, bytes).
fn waits(
    setup: &Setup,
    speedup: u32,
    inputs: Vec<impl Iterator<Item = (u64, usize, usize)>>,
) -> Waits {
    let mut config = setup.config();
    config.buffer.alpha = PerPri([Alpha::shift(7); 8]);
    config.crossbar.speedup = speedup;
    stations_known(&mut config, Vid::new(1).unwrap());
    let around = SwitchTiming { latency: setup.latency, ..SwitchTiming::default() };
    let pri = Pri::default();
    let inputs = inputs.into_iter().enumerate().map(|(from, frames)| {
        let frames = frames.map(move |(at, to, len)| {
            let spec = FrameSpec::new(Format::Standard, from, to, len, pri, 4);
            let mut bytes = spec.to_vec();
            let mark = bytes.len() - MARK;
            bytes[mark..].copy_from_slice(&at.to_be_bytes());
            InputFrame::whole(Instant::from_ps(at), bytes)
        });
        (PortId::new(from).unwrap(), frames)
    });
    let mut waits = Waits::default();
    let mut take = |_, end: Instant, bytes: &[u8]| {
        let mark: [u8; MARK] = *bytes.last_chunk().unwrap();
        let came = Instant::from_ps(u64::from_be_bytes(mark)) + setup.latency;
        let took = setup.rate.frame_time(bytes.len()).as_ps();
        waits.sum += u128::from(end.since(came).as_ps() - took);
        waits.service += u128::from(took);
        waits.squares += u128::from(took).pow(2);
        waits.frames += 1;
    };
    let result = replay(config, &around, inputs.collect(), &mut take, |_, _: &Event| ()).unwrap();
    assert_eq!((result.imbalance, result.stuck, result.violation_count), (0, 0, 0), "{result:?}");
    assert_eq!((result.outputs, result.drops.len()), (result.inputs, 0));
    waits
}

/// Frames at random times (Poisson) until `time` from each of `inputs` inputs to the port behind them, with lengths
/// that `len` draws; each input sends one frame in `gap` picoseconds on average.
fn poisson(
    rate: LinkRate,
    inputs: usize,
    gap: u64,
    time: u64,
    len: impl Fn(&mut Rng) -> usize + Copy,
) -> Vec<impl Iterator<Item = (u64, usize, usize)>> {
    let of_input = |input: usize| {
        let mut rng = Rng::new(gap << 8 | input as u64);
        let (mut came, mut at) = (0, 0);
        let frames = core::iter::repeat_with(move || {
            let len = len(&mut rng);
            came += rng.exponential(gap);
            // A link carries one frame after the other.
            at = came.max(at + rate.frame_time(len).as_ps());
            (at, inputs, len)
        });
        frames.take_while(move |&(at, ..)| at <= time)
    };
    (0..inputs).map(of_input).collect()
}

/// Asserts that `had` is `want` to within `per_mille` in 1,000.
fn assert_near(what: &str, had: u128, want: u128, per_mille: u128) {
    println!("{what}: {had} ps, by the formula {want}");
    assert!(had.abs_diff(want) * 1_000 <= want * per_mille, "{what}: {had} ps, not {want}");
}

/// Mean wait of about `frames` frames of one length, and that of M/D/1 with their load.
fn one_length(inputs: usize, percent: u64, frames: u64) -> (u128, u128) {
    let setup = switch(inputs + 1, LinkRate::gbps(400));
    let each = setup.rate.frame_time(1_398).as_ps() * 100 / percent;
    let time = each * frames;
    let gap = each * inputs as u64;
    let had = waits(&setup, 2, poisson(setup.rate, inputs, gap, time, |_| 1_398));
    (had.mean(), had.by_theory(time))
}

/// M/D/1: W = S·ρ / (2(1 − ρ)), within 2 %.
fn many_inputs(percent: u64, frames: u64) {
    let (had, want) = one_length(INPUTS, percent, frames);
    assert_near(&format!("load of {percent} %"), had, want, 20);
}

/// Few inputs of the output's own rate space arrivals out: the wait is a known part, in 1/1,000, of M/D/1's, to 2 %.
fn few_inputs(inputs: usize, percent: u64, frames: u64, part: u128) {
    let (had, want) = one_length(inputs, percent, frames);
    assert_near(&format!("{inputs} inputs, load of {percent} %"), had, want * part / 1_000, 20);
}

#[test]
fn frames_of_one_length_wait_as_long_as_theory_says() {
    for (percent, frames) in [(50, 200_000), (70, 300_000)] {
        many_inputs(percent, frames);
    }
    few_inputs(8, 50, 200_000, 932); // W / S is 0.466, that of M/D/1 0.5
}

#[test]
#[ignore = "soak: run by `make soak`"]
fn soak_frames_of_one_length_wait_as_long_as_theory_says() {
    for (percent, frames) in [(60, 1_000_000), (80, 4_000_000), (90, 12_000_000), (95, 40_000_000)]
    {
        many_inputs(percent, frames);
    }
}

#[test]
#[ignore = "soak: run by `make soak`"]
fn soak_frames_of_few_inputs_wait_as_long_as_theory_says() {
    // W / S is 1.66, 1.86, 1.93, 1.96 and 1.98, that of M/D/1 2.
    for (inputs, part) in [(2, 830), (4, 930), (8, 965), (16, 980), (32, 990)] {
        few_inputs(inputs, 80, 4_000_000, part);
    }
    few_inputs(32, 50, 1_000_000, 982);
}

/// M/G/1: 7 of 64 bytes to 4 of 570 to 1 of 1518 on a link of 100G; W = ρ·E\[S²\] / (2·E\[S\]·(1 − ρ)), within 3 %.
fn three_lengths(percent: u64, frames: u64) {
    let setup = switch(INPUTS + 1, LinkRate::gbps(100));
    let time = |len| setup.rate.frame_time(len).as_ps();
    let mean = (7 * time(60) + 4 * time(566) + time(1_514)) / 12;
    let each = mean * 100 / percent;
    let (gap, end) = (each * INPUTS as u64, each * frames);
    let frames = poisson(setup.rate, INPUTS, gap, end, |rng| match rng.below(12) {
        0..7 => 60,
        7..11 => 566,
        _ => 1_514,
    });
    let had = waits(&setup, 2, frames);
    assert_near(&format!("three lengths, load of {percent} %"), had.mean(), had.by_theory(end), 30);
}

#[test]
fn frames_of_three_lengths_wait_as_long_as_theory_says() {
    three_lengths(50, 300_000);
}

#[test]
#[ignore = "soak: run by `make soak`"]
fn soak_frames_of_three_lengths_wait_as_long_as_theory_says() {
    for (percent, frames) in [(80, 4_000_000), (90, 12_000_000)] {
        three_lengths(percent, frames);
    }
}

/// Cells that arrive with a probability in each slot, for any of `inputs` other ports: their wait, and that of the
/// formula for queues at outputs alone, (N − 1)/N · p / (2(1 − p)) slots for N inputs each.
fn cells(inputs: usize, percent: u64, slots: u64, speedup: u32) -> (u128, u128) {
    let ports = inputs + 1; // none sends to itself
    let setup = switch(ports, LinkRate::gbps(100));
    let slot = setup.rate.frame_time(60).as_ps();
    let of_input = |from: usize| {
        let mut rng = Rng::new(percent << 8 | from as u64);
        (1..=slots).filter_map(move |at| {
            let comes = rng.chance(percent, 100);
            let ahead = 1 + usize::try_from(rng.below(inputs as u64)).unwrap();
            comes.then_some((at * slot, (from + ahead) % ports, 60))
        })
    };
    let had = waits(&setup, speedup, (0..ports).map(of_input).collect());
    let (of, all) = (inputs as u128, u128::from(slots) * ports as u128);
    (had.mean(), u128::from(slot) * (of - 1) * had.frames / (of * 2 * (all - had.frames)))
}

/// With a crossbar so fast that it delays nothing, cells wait as in queues at outputs alone, to 2 %.
fn at_outputs(inputs: usize, percent: u64, slots: u64) {
    let (had, want) = cells(inputs, percent, slots, 8);
    assert_near(&format!("{inputs} inputs, {percent} % of slots"), had, want, 20);
}

/// VOQs and a crossbar of speedup 2 add at most 5 % to that wait.
fn at_voqs(inputs: usize, percent: u64, slots: u64) {
    let (had, want) = cells(inputs, percent, slots, 2);
    println!("{inputs} inputs, {percent} % of slots, speedup 2: {had} ps, at outputs {want}");
    let range = want - want / 50..=want + want / 20;
    assert!(range.contains(&had), "{inputs} inputs, {percent} %: {had} ps, not {want}");
}

#[test]
fn cells_wait_as_at_outputs_and_little_longer_at_voqs() {
    for (percent, slots) in [(50, 30_000), (80, 60_000)] {
        at_outputs(8, percent, slots);
        at_voqs(8, percent, slots);
    }
}

#[test]
#[ignore = "soak: run by `make soak`"]
fn soak_cells_wait_as_at_outputs_and_little_longer_at_voqs() {
    for (inputs, more) in [(8, 4), (32, 1)] {
        for (percent, slots) in [(50, 40_000), (80, 120_000), (90, 400_000)] {
            at_outputs(inputs, percent, more * slots);
            if percent < 90 {
                at_voqs(inputs, percent, more * slots);
            }
        }
    }
}
