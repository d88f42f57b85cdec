//! The whole path in memory: null port → parse → … → null port, on one core.
//!
//! A switch whose ports all make frames for stations behind each other's; [`measure`] drives its
//! one lane and returns a [`PathFigure`].

use std::sync::atomic::{AtomicU64, Ordering};

use weft_dataplane::pipeline::Ledger;
use weft_dataplane::time::Instant;
use weft_dataplane::trace::{NoTrace, Part};
use weft_dataplane::worker::tsc;
use weft_hosts::frames::Kind;
use weft_hosts::null_path::{NullLoad, NullPath, frames_sent};

use crate::stages::Stages;

/// Allocations since the start, counted by the binary's global allocator.
pub static ALLOCATIONS: AtomicU64 = AtomicU64::new(0);

/// Size of the switch and of its frames.
#[derive(Clone, Copy, Debug)]
pub struct PathLoad {
    /// Ports, all of them sending and receiving.
    pub ports: usize,
    /// Stations, spread over the ports.
    pub macs: usize,
    /// Bytes of a frame, without FCS.
    pub frame_len: usize,
}

/// Figures of a run: ns and TSC cycles a frame, allocations, drops.
#[derive(Clone, Debug)]
pub struct PathFigure {
    /// Time of a frame in the least disturbed round: other work on the machine only adds to it.
    pub ns_per_frame: f64,
    /// Time of a frame in the median round.
    pub median_ns_per_frame: f64,
    /// Ticks of the processor's time-stamp counter a frame, in the least and in the median round; `None`
    /// where there is no such counter.
    pub tsc_per_frame: Option<(f64, f64)>,
    /// The same of each part of a step, in a round of its own that reads the counter between them;
    /// by name.
    pub tsc_of_parts: Vec<(&'static str, f64)>,
    /// Allocations during the measured frames.
    pub allocations: u64,
    /// Frames dropped during the whole run.
    pub dropped: u64,
}

/// Rounds that are timed: short ones over some ten seconds, so that not all are disturbed.
const ROUNDS: u64 = 45;

/// Drives a switch of `load` for about `frames` frames, in 45 rounds after one that warms up.
///
/// # Panics
/// When the load cannot be built: the figures are constants of the caller.
#[must_use]
#[inline(never)] // a profiler finds it by name
pub fn measure(load: PathLoad, frames: u64) -> PathFigure {
    let PathLoad { ports, macs, frame_len } = load;
    let load = NullLoad { kind: Kind::Ethernet, ports, stations: macs, frame_len };
    drive(NullPath::new(&load, 1).expect("a load of constants"), frames)
}

/// As [`measure`], of TLPs of 64 bytes between `ports` fabric ports, to `pids` PIDs.
///
/// # Panics
/// As [`measure`].
#[must_use]
#[inline(never)] // as above
pub fn measure_tlps(ports: usize, pids: u16, frames: u64) -> PathFigure {
    drive(NullPath::of_tlps(ports, pids, 1).expect("a load of constants"), frames)
}

#[expect(clippy::float_arithmetic, reason = "a figure for people")]
#[expect(clippy::disallowed_methods, reason = "a benchmark reads the clock")]
#[expect(clippy::cast_precision_loss, reason = "counts stay far below 2^53")]
fn drive(mut path: NullPath, frames: u64) -> PathFigure {
    let core = path.core;
    let (mut lane, mut ports) = path.lanes.remove(0);
    let count_ports = ports.len();
    let mut now = 0;
    let mut run = |frames: u64, stages: Option<&mut Stages>| {
        let mut done = 0;
        let mut stages = stages;
        while done < frames {
            now += 10_000;
            match &mut stages {
                Some(stages) => lane.step(Instant::from_ns(now), &mut ports, &mut **stages),
                None => lane.step(Instant::from_ns(now), &mut ports, &mut NoTrace),
            };
            done = frames_sent(&core, count_ports);
        }
        done
    };
    let mut rounds = Vec::with_capacity(usize::try_from(ROUNDS).unwrap_or(0)); // before the count of allocations begins
    let mut cycles = Vec::with_capacity(usize::try_from(ROUNDS).unwrap_or(0));
    let mut total = run(frames / ROUNDS, None); // all stations learnt, all caches warm
    let before = ALLOCATIONS.load(Ordering::Relaxed);
    for _ in 0..ROUNDS {
        let (start, ticks) = (std::time::Instant::now(), tsc());
        let reached = run(total + frames / ROUNDS, None);
        let count = (reached - total) as f64;
        rounds.push(start.elapsed().as_nanos() as f64 / count);
        if let (Some(before), Some(after)) = (ticks, tsc()) {
            cycles.push(after.wrapping_sub(before) as f64 / count);
        }
        total = reached;
    }
    let allocations = ALLOCATIONS.load(Ordering::Relaxed) - before;
    let mut stages = Stages::start();
    let count = (run(total + frames / ROUNDS, Some(&mut stages)) - total) as f64;
    let parts = Part::ALL.iter().zip(stages.sums());
    let tsc_of_parts = parts.map(|(part, &sum)| (part.name(), sum as f64 / count)).collect();
    rounds.sort_by(f64::total_cmp);
    let round = |index| rounds.get(index).copied().unwrap_or(f64::INFINITY);
    let (ns_per_frame, median_ns_per_frame) = (round(0), round(rounds.len() / 2));
    cycles.sort_by(f64::total_cmp);
    let tsc_per_frame = cycles.first().copied().zip(cycles.get(cycles.len() / 2).copied());
    let dropped = Ledger::read(&core).dropped;
    PathFigure {
        ns_per_frame,
        median_ns_per_frame,
        tsc_per_frame,
        tsc_of_parts,
        allocations,
        dropped,
    }
}
