//! `weft bench pipeline`: the whole forwarding path in memory, by real workers, without a wire.
//!
//! Runs a switch of null ports and samples its counters round by round: frames, nanoseconds, TSC cycles. Sizes count
//! the FCS.
//!
//! Source: docs/bench.md.

use std::io::Write;
use std::sync::Arc;
use std::sync::atomic::Ordering;
use std::time::Duration;

use clap::Args;
use serde::Serialize;
use weft_base::{processors, wait};
use weft_control::live::placement::{self, core_for};
use weft_dataplane::pipeline::{Core, Ledger};
use weft_dataplane::worker::{Clock, Poll, Worker, WorkerGroup, tsc};
use weft_hosts::frames::Kind;
use weft_hosts::null_path::{NullLoad, NullPath, frames_sent};
use weft_views::figures::grouped;

use super::machine::Machine;
use super::plan::FCS_LEN;
use super::stop_flag;
use crate::commands::frames::data_kind;
use crate::commands::{progress, write_json};
use crate::error::CliError;

/// How much longer than planned a round lasts at most while no frame passes.
const STARVED_NS: u64 = 5_000_000_000;
/// Interval at which such a round is checked.
const LOOK: Duration = Duration::from_millis(5);

/// Arguments of `weft bench pipeline`.
#[derive(Args, Clone, Debug)]
pub struct PipelineArgs {
    /// Frame format: standard, roce6, gen1, gen2, lite, ethernet
    #[arg(long, default_value = "ethernet", value_parser = data_kind)]
    format: Kind,
    /// Frame size in bytes, with FCS
    #[arg(long, default_value_t = 64, value_name = "BYTES", value_parser = clap::value_parser!(u16).range(64..=1_522))]
    size: u16,
    /// Number of stations (MAC addresses), spread over the ports
    #[arg(long, default_value_t = 1_000, value_parser = clap::value_parser!(u16).range(2..=32_767))]
    macs: u16,
    /// Number of ports, all of which send and receive
    #[arg(long, default_value_t = 16, value_parser = clap::value_parser!(u16).range(2..=64))]
    ports: u16,
    /// Number of worker threads; ports are assigned to them in turn
    #[arg(long, default_value_t = 1, value_parser = clap::value_parser!(u16).range(1..=64))]
    workers: u16,
    /// Cores to pin workers to; the last ones by default
    #[arg(long, value_name = "CPU,...", value_delimiter = ',')]
    cores: Vec<usize>,
    /// Number of measured rounds, after one round of warm-up; the result is the median
    #[arg(long, default_value_t = 15, value_parser = clap::value_parser!(u16).range(1..=10_000))]
    rounds: u16,
    /// Length of a round in milliseconds
    #[arg(long, default_value_t = 200, value_name = "MS", value_parser = clap::value_parser!(u64).range(1..=600_000))]
    round_ms: u64,
    /// Print the result as JSON
    #[arg(long)]
    json: bool,
}

/// Difference of the counters over one round.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize)]
struct Round {
    frames: u64,
    ns: u64,
    /// Summed over all workers; `None` where the processor has no counter.
    tsc_cycles: Option<u64>,
}

/// The result, as JSON.
#[derive(Clone, Debug, Serialize)]
struct PipelineResult {
    bench: &'static str,
    machine: Machine,
    format: &'static str,
    frame_bytes_with_fcs: u16,
    macs: u16,
    ports: u16,
    workers: u16,
    /// Rate of all ports.
    frames_per_s: Spread,
    /// Worker time for a frame, in thousandths of a nanosecond.
    ns_per_frame_x1000: Spread,
    /// Cycles for a frame, summed over all workers, in thousandths.
    tsc_cycles_per_frame_x1000: Option<Spread>,
    /// Frames received and dropped from start to end, warm-up included.
    received: u64,
    dropped: u64,
    rounds: Vec<Round>,
}

/// A figure of the median round, with its minimum and maximum over all rounds.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize)]
struct Spread {
    median: u64,
    least: u64,
    most: u64,
}

impl Spread {
    /// `figures` of all rounds; `median` is the index of the median round.
    fn of(figures: &[u64], median: usize) -> Option<Self> {
        let (least, most) = (*figures.iter().min()?, *figures.iter().max()?);
        Some(Self { median: *figures.get(median)?, least, most })
    }
}

/// Index of the round with the median rate. Of an even number of rounds it is the slower of the two in the middle, so
/// that rate, time and cycles come from one round.
fn median_of(rates: &[u64]) -> Option<usize> {
    let mut order: Vec<usize> = (0..rates.len()).collect();
    order.sort_by_key(|&round| rates.get(round));
    order.get(rates.len().checked_sub(1)? / 2).copied()
}

/// A run in which no frame passed.
#[derive(Debug, thiserror::Error)]
#[error("{0}")]
struct Nothing(&'static str);

/// Measures the path in memory.
///
/// # Errors
/// Impossible parameters, a thread that cannot be started, or a run in which no frame passed.
pub fn run(args: &PipelineArgs, out: &mut dyn Write) -> Result<(), CliError> {
    let load = NullLoad {
        kind: args.format,
        ports: usize::from(args.ports),
        stations: usize::from(args.macs),
        frame_len: usize::from(args.size) - FCS_LEN,
    };
    placement::refuse_unusable("--cores", &args.cores).map_err(CliError::Usage)?;
    let path = NullPath::new(&load, usize::from(args.workers))
        .map_err(|error| CliError::Usage(error.to_string()))?;
    let core = path.core.clone();
    let group = WorkerGroup::new(&path.spread)
        .map_err(|source| CliError::system("make workers", source))?;
    let (rounds, ledger) = drive(args, path, &core, &group)?;
    let result = result(args, rounds, &ledger).ok_or_else(|| {
        CliError::system("measure", Nothing("no frame went through in any round"))
    })?;
    if args.json {
        return write_json(out, &result);
    }
    print(&result, out).map_err(CliError::Output)
}

/// Runs the workers and samples their counters round by round.
fn drive(
    args: &PipelineArgs,
    path: NullPath,
    core: &Arc<Core>,
    group: &Arc<WorkerGroup>,
) -> Result<(Vec<Round>, Ledger), CliError> {
    let stop = stop_flag()?;
    let clock = Clock::start();
    let bar = progress::bar(u64::from(args.rounds), "rounds");
    let mut rounds = Vec::with_capacity(usize::from(args.rounds));
    let mut ledger = Ledger::default();
    let mut started = Ok(());
    std::thread::scope(|scope| {
        for (index, (lane, ports)) in path.lanes.into_iter().enumerate() {
            let worker = Worker::new(index, lane, ports, clock, group.clone(), Poll::Busy);
            let pin = core_for(&args.cores, index);
            let thread = std::thread::Builder::new().name(format!("weft-worker{index}"));
            let spawned = thread.spawn_scoped(scope, move || {
                if let Some(pin) = pin {
                    drop(processors::bind(None, pin)); // without, it is measured all the same
                }
                worker.run()
            });
            if let Err(source) = spawned {
                started = Err(CliError::system("start a worker", source));
                group.stop();
                return;
            }
        }
        let pause = Duration::from_millis(args.round_ms);
        let look = || (frames_sent(core, usize::from(args.ports)), clock.now(), tsc());
        // A busy machine may not run a worker for a whole round. Without a frame the round's rate would be 0 and its
        // time for a frame undefined, so extend it up to `STARVED_NS`.
        let round = |since: u64| {
            wait::pause(pause);
            let begun = clock.now();
            let mut now = look();
            while now.0 == since
                && now.1.since(begun).as_ns() < STARVED_NS
                && !stop.load(Ordering::Relaxed)
            {
                wait::pause(LOOK);
                now = look();
            }
            now
        };
        let mut before = round(0); // all stations learnt, all caches warm
        while rounds.len() < usize::from(args.rounds) && !stop.load(Ordering::Relaxed) {
            let after = round(before.0);
            rounds.push(Round {
                frames: after.0 - before.0,
                ns: after.1.since(before.1).as_ns(),
                tsc_cycles: after
                    .2
                    .zip(before.2)
                    .map(|(after, before)| (after - before) * u64::from(args.workers)),
            });
            before = after;
            bar.inc(1);
        }
        // With the workers held, frames received equal frames sent, queued and dropped. If one doesn't answer, an
        // approximate ledger is better than none.
        ledger = group.with_quiesced(|| Ledger::read(core)).unwrap_or_else(|_| Ledger::read(core));
        group.stop();
    });
    bar.finish_and_clear();
    started.map(|()| (rounds, ledger))
}

/// `part` × `times` / `whole`, rounded down; `None` if `whole` is 0.
fn scaled(part: u64, times: u64, whole: u64) -> Option<u64> {
    let quotient = (u128::from(part) * u128::from(times)).checked_div(u128::from(whole))?;
    u64::try_from(quotient).ok()
}

/// Computes the result; `None` if a round is without a frame or time.
fn result(args: &PipelineArgs, rounds: Vec<Round>, ledger: &Ledger) -> Option<PipelineResult> {
    let workers = u64::from(args.workers);
    let all = |of: &dyn Fn(&Round) -> Option<u64>| -> Option<Vec<u64>> {
        rounds.iter().map(of).collect()
    };
    let rates = all(&|r| scaled(r.frames, 1_000_000_000, r.ns))?;
    let median = median_of(&rates)?;
    // All workers run for the whole round, each on a share of the frames.
    let ns = Spread::of(&all(&|r| scaled(r.ns, 1_000 * workers, r.frames))?, median)?;
    let cycles = all(&|r| scaled(r.tsc_cycles?, 1_000, r.frames));
    Some(PipelineResult {
        bench: "pipeline",
        machine: Machine::here(),
        format: args.format.name(),
        frame_bytes_with_fcs: args.size,
        macs: args.macs,
        ports: args.ports,
        workers: args.workers,
        frames_per_s: Spread::of(&rates, median)?,
        ns_per_frame_x1000: ns,
        tsc_cycles_per_frame_x1000: cycles.and_then(|cycles| Spread::of(&cycles, median)),
        received: ledger.rx,
        dropped: ledger.dropped,
        rounds,
    })
}

/// Formats thousandths with one decimal.
fn tenths(thousandths: u64) -> String {
    format!("{}.{}", thousandths / 1_000, thousandths % 1_000 / 100)
}

fn print(result: &PipelineResult, out: &mut dyn Write) -> std::io::Result<()> {
    let PipelineResult { format, frame_bytes_with_fcs, macs, ports, workers, .. } = result;
    writeln!(
        out,
        "{format}, {frame_bytes_with_fcs} bytes with FCS, {macs} stations, {ports} null ports, \
         {workers} workers"
    )?;
    if !result.machine.optimised {
        writeln!(out, "note: weft was built without optimisation: the results are not meaningful")?;
    }
    let spread = |figures: Spread, show: fn(u64) -> String| {
        let Spread { median, least, most } = figures;
        format!("{} ({} to {})", show(median), show(least), show(most))
    };
    let mpps = |fps: u64| tenths(fps / 1_000);
    writeln!(out, "  rate    {} Mpps", spread(result.frames_per_s, mpps))?;
    writeln!(out, "  time    {} ns a frame and worker", spread(result.ns_per_frame_x1000, tenths))?;
    if let Some(cycles) = result.tsc_cycles_per_frame_x1000 {
        writeln!(out, "  cycles  {} TSC cycles a frame, all workers", spread(cycles, tenths))?;
    }
    let (received, dropped) = (grouped(result.received), grouped(result.dropped));
    writeln!(out, "  frames  {received} received, {dropped} dropped on the way")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn figures_are_of_the_median_round() {
        let rounds = [(10, 1_000, 3_000), (20, 1_000, 3_000), (40, 1_000, 3_000)];
        let rounds: Vec<_> = rounds
            .map(|(frames, ns, cycles)| Round { frames, ns, tsc_cycles: Some(cycles) })
            .to_vec();
        let args = PipelineArgs {
            format: Kind::Gen1,
            size: 64,
            macs: 2,
            ports: 2,
            workers: 2,
            cores: vec![],
            rounds: 3,
            round_ms: 1,
            json: false,
        };
        let told = result(&args, rounds.clone(), &Ledger::default()).unwrap();
        let spread = |median, least, most| Spread { median, least, most };
        assert_eq!(told.frames_per_s, spread(20_000_000, 10_000_000, 40_000_000));
        assert_eq!(told.ns_per_frame_x1000, spread(100_000, 50_000, 200_000), "two workers");
        assert_eq!(told.tsc_cycles_per_frame_x1000, Some(spread(150_000, 75_000, 300_000)));
        let idle = Round { frames: 0, ns: 1_000, tsc_cycles: None };
        assert!(result(&args, vec![idle], &Ledger::default()).is_none(), "no frame, no figure");
        assert!(result(&args, vec![], &Ledger::default()).is_none());
        // Of an even number of rounds: rate, time and cycles are of the same one.
        let four =
            [rounds, vec![Round { frames: 25, ns: 1_000, tsc_cycles: Some(1_000) }]].concat();
        let told = result(&args, four, &Ledger::default()).unwrap();
        assert_eq!(told.frames_per_s, spread(20_000_000, 10_000_000, 40_000_000));
        assert_eq!(told.ns_per_frame_x1000, spread(100_000, 50_000, 200_000));
        assert_eq!(told.tsc_cycles_per_frame_x1000, Some(spread(150_000, 40_000, 300_000)));
        assert_eq!(tenths(12_345), "12.3");
    }
}
