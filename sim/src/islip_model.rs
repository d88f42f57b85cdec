//! Throughput and delay of the crossbar on its own: iSLIP under uniform Bernoulli arrivals.
//!
//! An [`IslipModel`] runs the data plane's own `Islip` with one priority, speedup 1 and unbounded VOQs, and gives an
//! [`IslipResult`]. Time is in slots; load and throughput are cells per port and slot; a cell served on arrival has
//! delay 0.
//!
//! Source: the experiment of McKeown, IEEE/ACM Trans. Networking 7(2), 1999, §III, Fig. 5.

use std::collections::VecDeque;

use weft_base::rng::Rng;
use weft_dataplane::islip::{Discipline, ITERATIONS_MAX, Islip, Matches, Requests};
use weft_dataplane::types::{PORTS_MAX, PerPort, PortId, PortSet, Pri, QueueKey};

/// Slots between two calls of `progress`.
const PROGRESS_EVERY: u64 = 4_096;
/// The load is rounded to a multiple of 1 / this, which a `f64` from 0 to 1 can represent.
const LOAD_UNIT: u64 = 1 << 53;

/// Why a model cannot run.
#[derive(Clone, Copy, Debug, PartialEq, thiserror::Error)]
pub enum IslipModelError {
    /// A number of ports that a crossbar cannot have.
    #[error("{0} ports: expected 1 to {PORTS_MAX}")]
    Ports(usize),
    /// A number of iterations that a slot cannot have.
    #[error("{0} iterations: expected 1 to {ITERATIONS_MAX}")]
    Iterations(u32),
    /// A load that is no probability.
    #[error("load {0}: expected 0 to 1 cells per port and slot")]
    Load(f64),
    /// No slots, and so nothing to measure.
    #[error("{0} slots: expected at least 1")]
    Slots(u64),
}

/// An experiment; it has the same result on every machine.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct IslipModel {
    /// Number of inputs and of outputs, 1 to 64.
    pub ports: usize,
    /// Iterations in each slot, 1 to 4.
    pub iterations: u32,
    /// Probability of an arrival at an input in a slot, 0 to 1.
    pub load: f64,
    /// Slots to run; the first tenth (rounded down) is warm-up and not measured.
    pub slots: u64,
    /// Seed of all arrivals.
    pub seed: u64,
}

/// Figures measured after the warm-up.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct IslipResult {
    /// Cells that left, per port and slot.
    pub throughput: f64,
    /// Mean delay of the cells that left, in slots; `None` if no cell left.
    pub mean_delay_slots: Option<f64>,
    /// Cells that arrived while measuring.
    pub arrivals: u64,
    /// Cells that left while measuring, those that had arrived before included.
    pub departures: u64,
    /// Slots that were measured.
    pub measured_slots: u64,
}

/// Cells that wait, by input and output; each is the slot of its arrival.
type Voqs = PerPort<PerPort<VecDeque<u64>>>;

impl IslipModel {
    /// Runs all slots; in each, arrivals come first, then the matching, then departures.
    ///
    /// Calls `progress` with the number of slots done every few thousand slots, and at the end.
    ///
    /// # Errors
    /// The first parameter out of range.
    ///
    /// # Panics
    /// If the crossbar matches an empty VOQ, which would be a fault of `Islip`.
    pub fn run(&self, progress: &mut dyn FnMut(u64)) -> Result<IslipResult, IslipModelError> {
        let arrival_num = self.check()?;
        let ports = PortSet::first(self.ports);
        // VOQs start empty: without a warm-up the throughput would count the time while they fill.
        let warm_up = self.slots / 10;
        let mut rng = Rng::new(self.seed);
        let mut crossbar = Islip::new(self.ports, 1, self.iterations, Discipline::Strict);
        let (mut requests, mut matches) = (Requests::new(), Matches::new());
        let mut voqs = Voqs::default();
        let (mut arrivals, mut departures, mut delays) = (0_u64, 0_u64, 0_u64);
        for slot in 0..self.slots {
            // Arrivals first: a cell can leave in the slot in which it arrives, with delay 0.
            let measured = slot >= warm_up;
            for input in ports.iter() {
                if rng.chance(arrival_num, LOAD_UNIT) {
                    let output = draw_port(&mut rng, self.ports);
                    voqs[input][output].push_back(slot);
                    requests.add(QueueKey { input, output, pri: Pri::default() });
                    arrivals += u64::from(measured);
                }
            }
            crossbar.slot(&requests, &mut matches);
            for made in matches.iter() {
                let voq = &mut voqs[made.input][made.output];
                let arrived = voq.pop_front().expect("only cells that wait are matched");
                if voq.is_empty() {
                    requests.remove(QueueKey {
                        input: made.input,
                        output: made.output,
                        pri: made.pri,
                    });
                }
                if measured {
                    departures += 1;
                    delays += slot - arrived;
                }
            }
            if (slot + 1) % PROGRESS_EVERY == 0 {
                progress(slot + 1);
            }
        }
        progress(self.slots);
        let measured_slots = self.slots - warm_up;
        Ok(IslipResult {
            throughput: ratio(departures, measured_slots * self.ports as u64),
            mean_delay_slots: (departures > 0).then(|| ratio(delays, departures)),
            arrivals,
            departures,
            measured_slots,
        })
    }

    /// Checks the parameters; returns the load in [`LOAD_UNIT`]s.
    #[expect(clippy::float_arithmetic, reason = "the load is asked for as a decimal; done once")]
    #[expect(clippy::cast_possible_truncation, reason = "rounded, and at most 2^53")]
    #[expect(clippy::cast_sign_loss, reason = "checked to be 0 or more")]
    #[expect(clippy::cast_precision_loss, reason = "2^53 is exact")]
    fn check(&self) -> Result<u64, IslipModelError> {
        if !(1..=PORTS_MAX).contains(&self.ports) {
            return Err(IslipModelError::Ports(self.ports));
        }
        if !(1..=ITERATIONS_MAX).contains(&self.iterations) {
            return Err(IslipModelError::Iterations(self.iterations));
        }
        if !(0.0..=1.0).contains(&self.load) {
            return Err(IslipModelError::Load(self.load));
        }
        if self.slots == 0 {
            return Err(IslipModelError::Slots(self.slots));
        }
        Ok((self.load * LOAD_UNIT as f64).round() as u64)
    }
}

fn draw_port(rng: &mut Rng, ports: usize) -> PortId {
    let drawn = usize::try_from(rng.below(ports as u64)).unwrap_or_default();
    PortId::new(drawn).expect("below the number of ports, which was checked")
}

#[expect(clippy::float_arithmetic, reason = "a figure for people, made once a run")]
#[expect(clippy::cast_precision_loss, reason = "counts stay far below 2^53")]
fn ratio(num: u64, den: u64) -> f64 {
    num as f64 / den as f64
}

#[cfg(test)]
mod tests {
    use super::*;

    fn run(ports: usize, iterations: u32, load: f64, slots: u64) -> IslipResult {
        let model = IslipModel { ports, iterations, load, slots, seed: 0x0151_1005 };
        model.run(&mut |_| {}).unwrap()
    }

    /// Against a model written apart in C (own arrivals, own loops), 200,000 slots at load 1.0. It
    /// also gives the figures of docs/spec/pipeline.md §6 (0.991 / 0.993 / 0.993, 0.988 / 0.991 / 0.992), which count the
    /// whole run; without the first tenth, while VOQs fill, both models are 0.002 above them.
    #[test]
    fn full_load_throughput_is_the_reference() {
        #[rustfmt::skip] // columns: ports, iterations, reference
        let cases = [
            (16, 1, 0.9935), (16, 2, 0.9946), (16, 4, 0.9946),
            (32, 1, 0.9903), (32, 2, 0.9929), (32, 4, 0.9930),
        ];
        for (ports, iterations, want) in cases {
            let got = run(ports, iterations, 1.0, 200_000).throughput;
            assert!((got - want).abs() <= 0.001, "{ports} {iterations}: {got}, not {want}");
        }
    }

    /// Within 3 % of the delays of the same C model over 2,000,000 slots; within 5 % at load 0.95,
    /// where runs of this length differ that much among themselves.
    #[test]
    fn delays_are_the_reference() {
        #[rustfmt::skip] // columns: ports, iterations, load, mean delay in slots
        let cases = [
            (8, 1, 0.50, 1.0758),
            (8, 1, 0.80, 22.0676),
            (8, 1, 0.90, 57.5840),
            (8, 1, 0.95, 130.8941),
            (8, 2, 0.50, 0.6657),
            (8, 2, 0.80, 3.8844),
            (8, 2, 0.90, 12.7752),
            (8, 2, 0.95, 39.1608),
            (8, 4, 0.50, 0.6654),
            (8, 4, 0.80, 3.5847),
            (8, 4, 0.90, 9.8883),
            (8, 4, 0.95, 33.6512),
            (32, 1, 0.50, 1.4624),
            (32, 1, 0.80, 87.8274),
            (32, 1, 0.90, 216.1047),
            (32, 1, 0.95, 506.3739),
            (32, 2, 0.50, 0.7447),
            (32, 2, 0.80, 5.2185),
            (32, 2, 0.90, 52.5116),
            (32, 2, 0.95, 102.6679),
            (32, 4, 0.50, 0.7433),
            (32, 4, 0.80, 3.8332),
            (32, 4, 0.90, 9.6607),
            (32, 4, 0.95, 23.4682),
        ];
        for (ports, iterations, load, want) in cases {
            let got = run(ports, iterations, load, 400_000).mean_delay_slots.unwrap();
            let most = if load > 0.9 { 0.05 } else { 0.03 };
            assert!(
                (got / want - 1.0).abs() <= most,
                "{ports} {iterations} {load}: {got}, not {want}"
            );
        }
    }

    /// One port is a queue of rate 1 that never holds a cell over a slot: delay 0, all served.
    #[test]
    fn one_port_serves_on_arrival() {
        let result = run(1, 1, 0.5, 10_000);
        assert_eq!(result.mean_delay_slots, Some(0.0));
        assert_eq!(result.arrivals, result.departures);
        assert!((result.throughput - 0.5).abs() < 0.02, "{}", result.throughput);
        assert_eq!(result.measured_slots, 9_000);
    }

    /// Accepted is what is offered, and delay grows with load and shrinks with iterations.
    #[test]
    fn delay_grows_with_load_and_shrinks_with_iterations() {
        let delay = |iterations, load| {
            let result = run(8, iterations, load, 50_000);
            assert!((result.throughput - load).abs() < 0.01, "{load}: {}", result.throughput);
            result.mean_delay_slots.unwrap()
        };
        for load in [0.5, 0.8, 0.9] {
            assert!(delay(1, load) > delay(2, load), "{load}");
            assert!(delay(2, load) > delay(4, load) * 0.99, "{load}");
        }
        assert!(delay(1, 0.5) < delay(1, 0.8) && delay(1, 0.8) < delay(1, 0.9));
    }

    #[test]
    fn the_same_seed_gives_the_same_result_and_reports_its_way() {
        let model = IslipModel { ports: 4, iterations: 2, load: 0.7, slots: 10_000, seed: 9 };
        let mut seen = Vec::new();
        let first = model.run(&mut |done| seen.push(done)).unwrap();
        assert_eq!(seen, [4_096, 8_192, 10_000]);
        assert_eq!(model.run(&mut |_| {}).unwrap(), first);
        let other = IslipModel { seed: 10, ..model }.run(&mut |_| {}).unwrap();
        assert_ne!(other, first);
    }

    #[test]
    fn parameters_out_of_range_are_refused() {
        let good = IslipModel { ports: 4, iterations: 1, load: 0.0, slots: 1, seed: 0 };
        assert_eq!(good.run(&mut |_| {}).unwrap().mean_delay_slots, None);
        #[rustfmt::skip] // columns: model, what it says
        let cases = [
            (IslipModel { ports: 0, ..good },        "0 ports: expected 1 to 64"),
            (IslipModel { ports: 65, ..good },       "65 ports: expected 1 to 64"),
            (IslipModel { iterations: 0, ..good },   "0 iterations: expected 1 to 4"),
            (IslipModel { iterations: 5, ..good },   "5 iterations: expected 1 to 4"),
            (IslipModel { load: -0.1, ..good },      "load -0.1: expected 0 to 1 cells per port and slot"),
            (IslipModel { load: 1.01, ..good },      "load 1.01: expected 0 to 1 cells per port and slot"),
            (IslipModel { load: f64::NAN, ..good },  "load NaN: expected 0 to 1 cells per port and slot"),
            (IslipModel { slots: 0, ..good },        "0 slots: expected at least 1"),
        ];
        for (model, want) in cases {
            assert_eq!(model.run(&mut |_| {}).unwrap_err().to_string(), want);
        }
    }
}
