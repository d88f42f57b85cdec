//! Cost of a slot of the crossbar.
//!
//! [`measure`] runs [`Load`]s on the data plane's `Islip` and returns the median repetition, in ns
//! a slot of wall clock on one core.
//!
//! Source: 64 ports x 4 priorities, all VOQs busy, 2 iterations in 1 us.

use std::hint::black_box;

use weft_base::rng::Rng;
use weft_dataplane::islip::{Discipline, Islip, Matches, Requests};
use weft_dataplane::types::{PerPri, PortSet, Pri, PriSet, QueueKey};

/// The most that a slot of [`Load::goal`] may take.
pub const GOAL_NS: f64 = 1_000.0;

/// Repetitions, of which the median counts.
const REPETITIONS: usize = 5;
/// Sets of requests that a random load goes round.
const SETS: usize = 64;

/// Share of VOQs that hold frames.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Busy {
    /// All of them, always: pointers settle, and the first iteration matches everything.
    All,
    /// A random half, another one each slot: pointers never settle, later iterations have work.
    Half,
    /// One VOQ of each input, as in light traffic.
    OneEach,
}

/// Size, discipline and requests of a crossbar.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Load {
    /// Inputs, and as many outputs.
    pub ports: usize,
    pub pris: usize,
    /// Iterations of a slot.
    pub iterations: u32,
    /// Weighted 8:4:2:1 instead of strict.
    pub weighted: bool,
    /// VOQs that request.
    pub busy: Busy,
}

impl Load {
    /// The load that [`GOAL_NS`] is set for.
    #[must_use]
    pub const fn goal() -> Self {
        Self { ports: 64, pris: 4, iterations: 2, weighted: false, busy: Busy::All }
    }

    /// Ports x priorities, iterations, who asks: `64x4/2it/all`.
    #[must_use]
    pub fn name(self) -> String {
        let busy = match self.busy {
            Busy::All => "all",
            Busy::Half => "half",
            Busy::OneEach => "one_each",
        };
        let weighted = if self.weighted { "/weighted" } else { "" };
        format!("{}x{}/{}it/{busy}{weighted}", self.ports, self.pris, self.iterations)
    }
}

/// A crossbar under a load, warm.
#[derive(Debug)]
pub struct Bench {
    crossbar: Islip,
    requests: Vec<Requests>,
    matches: Matches,
    next: usize,
}

impl Bench {
    /// Sets `load` up and runs it until pointers have settled.
    #[must_use]
    pub fn new(load: Load) -> Self {
        let weights = PerPri([1, 2, 4, 8, 8, 8, 8, 8]);
        let discipline =
            if load.weighted { Discipline::Weighted(weights) } else { Discipline::Strict };
        let mut rng = Rng::new(0x0151_1006);
        // all VOQs request in every slot: one set is enough
        let sets = if load.busy == Busy::All { 1 } else { SETS };
        let mut bench = Self {
            crossbar: Islip::new(load.ports, load.pris, load.iterations, discipline),
            requests: (0..sets).map(|_| requests(load, &mut rng)).collect(),
            matches: Matches::new(),
            next: 0,
        };
        // until the pointers have settled, a slot costs more
        for _ in 0..10_000 {
            bench.slot();
        }
        bench
    }

    /// Runs one slot; returns its number of matches.
    #[inline]
    pub fn slot(&mut self) -> usize {
        self.next = if self.next == 0 { self.requests.len() } else { self.next } - 1;
        if let Some(requests) = self.requests.get(self.next) {
            self.crossbar.slot(black_box(requests), &mut self.matches);
        }
        black_box(&self.matches).len()
    }
}

fn requests(load: Load, rng: &mut Rng) -> Requests {
    let ports = PortSet::first(load.ports);
    let mut requests = Requests::new();
    if load.busy == Busy::OneEach {
        for input in ports.iter() {
            // a random output each, so that inputs compete
            let turned = PortSet::from_bits(rng.next_u64()).and(ports);
            let output = turned.iter().next().unwrap_or(input);
            requests.add(QueueKey { input, output, pri: Pri::default() });
        }
        return requests;
    }
    for output in ports.iter() {
        for pri in PriSet::first(load.pris).iter() {
            let inputs = match load.busy {
                Busy::All => ports,
                Busy::Half | Busy::OneEach => PortSet::from_bits(rng.next_u64()).and(ports),
            };
            requests.set(output, pri, inputs);
        }
    }
    requests
}

/// Measures `load` in five repetitions of `slots` slots each: ns a slot, of the least disturbed one
/// and of the median one.
///
/// For [`Load::goal`], the caller compares with [`GOAL_NS`].
#[must_use]
#[expect(clippy::float_arithmetic, reason = "a figure for people")]
#[expect(clippy::disallowed_methods, reason = "a benchmark reads the clock")]
#[expect(clippy::cast_precision_loss, reason = "counts stay far below 2^53")]
pub fn measure(load: Load, slots: u64) -> (f64, f64) {
    let slots = slots.max(1);
    let mut bench = Bench::new(load);
    let mut repetitions = [0.0; REPETITIONS];
    for ns_per_slot in &mut repetitions {
        let start = std::time::Instant::now();
        for _ in 0..slots {
            bench.slot();
        }
        *ns_per_slot = start.elapsed().as_nanos() as f64 / slots as f64;
    }
    repetitions.sort_by(f64::total_cmp);
    let [least, _, median, _, _] = repetitions;
    (least, median)
}
