//! The whole path in memory: null port → parse → … → null port, on one core.
//!
//! Shape: a switch whose ports all make frames for stations behind each other's; [`measure`] drives
//! its one lane and returns a [`PathFigure`].
//! Units: frames/s, TSC-free nanoseconds, allocations.
//! Source: issue 2, "Speed"; style.md C13.

use std::sync::atomic::{AtomicU64, Ordering};

use weft_dataplane::config::{LiveSizes, SwitchConfig};
use weft_dataplane::pipeline::{Ledger, Timing, build};
use weft_dataplane::pool::Pool;
use weft_dataplane::port::Port;
use weft_dataplane::port::null::{Null, NullConfig};
use weft_dataplane::time::{Instant, LinkRate};
use weft_dataplane::trace::NoTrace;
use weft_dataplane::types::PortId;

/// Allocations since the start, counted by the binary's global allocator.
pub static ALLOCATIONS: AtomicU64 = AtomicU64::new(0);

/// What is run.
#[derive(Clone, Copy, Debug)]
pub struct PathLoad {
    /// Ports, all of them sending and receiving.
    pub ports: usize,
    /// Stations, spread over the ports.
    pub macs: usize,
    /// Octets of a frame, without FCS.
    pub frame_len: usize,
}

/// What came out.
#[derive(Clone, Copy, Debug)]
pub struct PathFigure {
    /// Time of a frame in the least disturbed round: what else a shared machine does only adds.
    pub ns_per_frame: f64,
    /// Time of a frame in the median round.
    pub median_ns_per_frame: f64,
    /// Allocations during the measured frames.
    pub allocations: u64,
    /// Frames dropped during the whole run.
    pub dropped: u64,
}

/// A frame from station `src` to station `dst`.
fn frame(dst: usize, src: usize, len: usize) -> Vec<u8> {
    let mut frame = vec![0; len.max(14)];
    let mut put = |at: usize, station: usize| {
        let id = u32::try_from(station + 1).unwrap_or(u32::MAX).to_be_bytes();
        if let Some(octets) = frame.get_mut(at..at + 6) {
            octets.copy_from_slice(&[2, 0, id[0], id[1], id[2], id[3]]);
        }
    };
    put(0, dst);
    put(6, src);
    if let Some(kind) = frame.get_mut(12..14) {
        kind.copy_from_slice(&[0x88, 0xB7]); // neither IP nor AFH: plain Ethernet
    }
    frame
}

/// Frames that `port` sends, one from each of its stations, to stations behind all other ports. Over
/// all ports every station is named once as destination, so that the octets to copy stay few and
/// what is measured is the switch.
fn templates(load: PathLoad, port: usize) -> Vec<Vec<u8>> {
    let own: Vec<usize> = (port..load.macs).step_by(load.ports).collect();
    let to = |row: usize| {
        let column = (port + 1 + row % (load.ports - 1)) % load.ports;
        let wanted = row * load.ports + column;
        if wanted < load.macs { wanted } else { column }
    };
    own.iter().enumerate().map(|(row, &src)| frame(to(row), src, load.frame_len)).collect()
}

/// Rounds that are timed: short ones over some ten seconds, so that not all are disturbed.
const ROUNDS: u64 = 45;

/// Drives a switch of `load` for about `frames` frames, in 45 rounds after one that warms up.
///
/// # Panics
/// When the load cannot be built: the figures are constants of the caller.
#[must_use]
#[inline(never)] // a profiler finds it by name
#[expect(clippy::float_arithmetic, reason = "a figure for people")]
#[expect(clippy::disallowed_methods, reason = "a benchmark reads the clock")]
#[expect(clippy::cast_precision_loss, reason = "counts stay far below 2^53")]
pub fn measure(load: PathLoad, frames: u64) -> PathFigure {
    let rate = LinkRate::gbps(100);
    let ids: Vec<PortId> = (0..load.ports).filter_map(PortId::new).collect();
    let sizes = LiveSizes {
        names: ids.iter().map(|id| format!("p{}", id.get())).collect(),
        rate,
        pris: 4,
        cells: 8_192,
        cell_bytes: 1_916,
        headroom_cells: 64,
        frame_len_max: 1_518,
    };
    let pool = Pool::map(16_384, 1_518).expect("a pool of constant size");
    let built = build(SwitchConfig::live(&sizes), &pool, core::slice::from_ref(&ids), Timing::Live);
    let mut built = built.expect("a configuration of constants");
    let mut lane = built.lanes.remove(0);
    let mut ports: Vec<Box<dyn Port>> = ids
        .iter()
        .map(|id| {
            let config = NullConfig {
                name: format!("p{}", id.get()),
                rate,
                frame_len_max: 1_518,
                templates: templates(load, id.index()),
                per_burst: 64,
                limit: None,
            };
            Box::new(Null::generator(config).expect("templates of valid length")) as Box<dyn Port>
        })
        .collect();
    let mut now = 0;
    let mut run = |frames: u64| {
        let mut done = 0;
        while done < frames {
            now += 10_000;
            lane.step(Instant::from_ns(now), &mut ports, &mut NoTrace);
            let sent = |port: &PortId| lane.stats().port[*port].tx_frames.get();
            done = ids.iter().map(sent).sum();
        }
        done
    };
    let mut rounds = Vec::with_capacity(usize::try_from(ROUNDS).unwrap_or(0)); // before the count of allocations begins
    let mut total = run(frames / ROUNDS); // all stations learnt, all caches warm
    let before = ALLOCATIONS.load(Ordering::Relaxed);
    for _ in 0..ROUNDS {
        let start = std::time::Instant::now();
        let reached = run(total + frames / ROUNDS);
        rounds.push(start.elapsed().as_nanos() as f64 / (reached - total) as f64);
        total = reached;
    }
    let allocations = ALLOCATIONS.load(Ordering::Relaxed) - before;
    rounds.sort_by(f64::total_cmp);
    let round = |index| rounds.get(index).copied().unwrap_or(f64::INFINITY);
    let (ns_per_frame, median_ns_per_frame) = (round(0), round(rounds.len() / 2));
    let dropped = Ledger::read(&built.core).dropped;
    PathFigure { ns_per_frame, median_ns_per_frame, allocations, dropped }
}
