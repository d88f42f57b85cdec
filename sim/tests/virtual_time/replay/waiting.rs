//! Waiting at an output, against the closed forms of queueing theory.
//!
//! Shape: random arrivals at many inputs for one output, or for all → mean time between the last bit in and the first bit out,
//! less the fixed latency.
//! Units: picoseconds.
//! Source: docs/spec/model-reference.md §3 (M/D/1, M/G/1: Pollaczek and Khinchine; cells: Karol, Hluchyj and Morgan 1987).

use weft_base::rng::Rng;

use super::*;

/// Inputs that send to one output: few of the output's own rate would space arrivals out (1 % less waiting with 63).
const INPUTS: usize = 63;
/// Bytes at the end of a frame that hold its time of arrival.
const MARK: usize = 8;

/// A switch with so much buffer that nothing is dropped, paused or marked.
fn switch(ports: usize, rate: LinkRate) -> Setup {
    Setup { rate, pfc: false, ecn: false, buffer_bytes: 64 << 20, ..Setup::new(ports, 4) }
}

/// The mean wait of a frame, in picoseconds, over frames of `inputs`: (time of arrival, output, bytes).
fn mean_wait(setup: &Setup, inputs: Vec<Vec<(u64, usize, usize)>>) -> u64 {
    let mut config = setup.config();
    config.buffer.alpha = weft_dataplane::types::PerPri([7; 8]);
    stations_known(&mut config, Vid::new(1).unwrap());
    let around = Around { latency: setup.latency, ..Around::default() };
    let pri = Pri::default();
    let inputs = inputs.into_iter().enumerate().map(|(from, frames)| {
        let frames = frames.into_iter().map(move |(at, to, len)| {
            let spec = FrameSpec::new(Format::Standard, (from, to), len, pri, 4);
            let mut bytes = spec.to_vec();
            let mark = bytes.len() - MARK;
            bytes[mark..].copy_from_slice(&at.to_be_bytes());
            InputFrame::whole(Instant::from_ps(at), bytes)
        });
        (PortId::new(from).unwrap(), frames)
    });
    let (mut sum, mut count) = (0_u128, 0_u64);
    let mut take = |_, end: Instant, bytes: &[u8]| {
        let mark: [u8; MARK] = *bytes.last_chunk().unwrap();
        let came = Instant::from_ps(u64::from_be_bytes(mark)) + setup.latency;
        let took = setup.rate.frame_time(bytes.len());
        sum += u128::from(end.since(came).as_ps() - took.as_ps());
        count += 1;
    };
    let result = replay(config, &around, inputs.collect(), &mut take, |_, _: &Event| ()).unwrap();
    assert_eq!((result.imbalance, result.stuck, result.violation_count), (0, 0, 0), "{result:?}");
    assert_eq!((result.outputs, result.drops.len()), (result.inputs, 0));
    u64::try_from(sum / u128::from(count)).unwrap()
}

/// Frames at random times (Poisson) from each input to the last port, which is so loaded in percent, of lengths that `len`
/// draws; `mean` is the wire time of one on average.
fn poisson(
    setup: &Setup,
    percent: u64,
    frames: usize,
    mean: u64,
    mut len: impl FnMut(&mut Rng) -> usize,
) -> Vec<Vec<(u64, usize, usize)>> {
    let gap = mean * 100 / percent * INPUTS as u64;
    let mut rng = Rng::new(percent);
    let mut all = Vec::new();
    for _ in 0..INPUTS {
        let (mut came, mut at) = (0, 0);
        let of_input = (0..frames / INPUTS).map(|_| {
            let len = len(&mut rng);
            came += rng.exponential(gap);
            // A link carries one frame after the other.
            at = came.max(at + setup.rate.frame_time(len).as_ps());
            (at, INPUTS, len)
        });
        all.push(of_input.collect());
    }
    all
}

/// M/D/1: W = S·ρ / (2(1 − ρ)), within 2 %.
fn one_length(percent: u64, frames: usize) {
    let setup = switch(INPUTS + 1, LinkRate::gbps(400));
    let service = setup.rate.frame_time(1_398).as_ps();
    let had = mean_wait(&setup, poisson(&setup, percent, frames, service, |_| 1_398));
    let want = service * percent / (2 * (100 - percent));
    assert!(had.abs_diff(want) * 50 <= want, "load of {percent} %: {had} ps, not {want}");
}

#[test]
fn frames_of_one_length_wait_as_long_as_theory_says() {
    for (percent, frames) in [(50, 200_000), (70, 300_000)] {
        one_length(percent, frames);
    }
}

#[test]
#[ignore = "soak: run by `make soak`"]
fn soak_frames_of_one_length_wait_as_long_as_theory_says() {
    for (percent, frames) in [(60, 1_000_000), (80, 4_000_000), (90, 12_000_000), (95, 40_000_000)]
    {
        one_length(percent, frames);
    }
}

/// M/G/1: 7 of 64 bytes to 4 of 570 to 1 of 1518 on a link of 100G; W = ρ·E\[S²\] / (2·E\[S\]·(1 − ρ)), within 3 %.
fn three_lengths(percent: u64, frames: usize) {
    let setup = switch(INPUTS + 1, LinkRate::gbps(100));
    let lens = [(7, 60), (4, 566), (1, 1_514)];
    let time = |len| setup.rate.frame_time(len).as_ps();
    let sum: u64 = lens.iter().map(|&(count, len)| count * time(len)).sum();
    let squares: u64 = lens.iter().map(|&(count, len)| count * time(len) * time(len)).sum();
    let inputs = poisson(&setup, percent, frames, sum / 12, |rng| match rng.below(12) {
        0..7 => 60,
        7..11 => 566,
        _ => 1_514,
    });
    let had = mean_wait(&setup, inputs);
    let want = squares * percent / (2 * sum * (100 - percent));
    assert!(had.abs_diff(want) * 100 <= 3 * want, "load of {percent} %: {had} ps, not {want}");
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

/// Cells that come with a chance in each slot, for any other port, wait no less than at queues of outputs alone, which is
/// (N − 1)/N · p / (2(1 − p)) slots for N inputs each; VOQs and a crossbar of speedup 2 add at most 5 %.
#[test]
fn cells_wait_little_longer_than_at_outputs() {
    const PORTS: usize = 9; // none sends to itself: 8 inputs for each output
    let setup = switch(PORTS, LinkRate::gbps(100));
    let slot = setup.rate.frame_time(60).as_ps();
    for (percent, slots) in [(50, 30_000_u64), (80, 60_000)] {
        let mut rng = Rng::new(percent);
        let mut inputs = vec![Vec::new(); PORTS];
        for at in 1..=slots {
            for (from, cells) in inputs.iter_mut().enumerate() {
                if rng.chance(percent, 100) {
                    let ahead = 1 + usize::try_from(rng.below(PORTS as u64 - 1)).unwrap();
                    cells.push((at * slot, (from + ahead) % PORTS, 60));
                }
            }
        }
        let had = mean_wait(&setup, inputs);
        let want = slot * 7 * percent / (8 * 2 * (100 - percent));
        let range = want - want / 50..=want + want / 20;
        assert!(range.contains(&had), "load of {percent} %: {had} ps, not {want}");
    }
}
