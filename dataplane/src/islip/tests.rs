//! Tests of iSLIP: against a naive oracle, and the properties that the algorithm is known for.

use weft_base::rng::Rng;

use super::*;

fn port(index: usize) -> PortId {
    PortId::new(index).unwrap()
}

fn all_busy(ports: usize, pris: PriSet) -> Requests {
    let mut requests = Requests::new();
    for output in PortSet::first(ports).iter() {
        for pri in pris.iter() {
            requests.set(output, pri, PortSet::first(ports));
        }
    }
    requests
}

/// docs/spec/pipeline.md §6 again, word by word, over plain vectors: slow and plain.
struct Oracle {
    ports: usize,
    pris: usize,
    iterations: u32,
    weights: Option<Vec<u32>>,
    grant_ptr: Vec<Vec<usize>>,  // [pri][output]
    accept_ptr: Vec<Vec<usize>>, // [pri][input]
    used: Vec<Vec<u32>>,         // [output][pri]
}

/// `asks[input][output][pri]`.
type Asks = Vec<Vec<Vec<bool>>>;

impl Oracle {
    fn new(ports: usize, pris: usize, iterations: u32, weights: Option<Vec<u32>>) -> Self {
        Self {
            ports,
            pris,
            iterations,
            weights,
            grant_ptr: vec![vec![0; ports]; pris],
            accept_ptr: vec![vec![0; ports]; pris],
            used: vec![vec![0; pris]; ports],
        }
    }

    /// The first member at or after `from`, going round.
    fn first(&self, from: usize, member: impl Fn(usize) -> bool) -> Option<usize> {
        (0..self.ports).map(|step| (from + step) % self.ports).find(|&at| member(at))
    }

    /// The priority at which `output` grants, if any input in `free` asks it.
    fn grant_pri(&mut self, asks: &Asks, free: &[bool], output: usize) -> Option<usize> {
        let asked =
            |pri: usize| (0..self.ports).any(|input| free[input] && asks[input][output][pri]);
        let asking: Vec<usize> = (0..self.pris).rev().filter(|&pri| asked(pri)).collect();
        let Some(weights) = &self.weights else { return asking.first().copied() };
        let used = &mut self.used[output];
        if !asking.is_empty() && asking.iter().all(|&pri| used[pri] >= weights[pri]) {
            used.fill(0);
        }
        asking.into_iter().find(|&pri| used[pri] < weights[pri])
    }

    fn slot(&mut self, asks: &Asks) -> Vec<(usize, usize, usize, u32)> {
        let mut free = vec![true; self.ports];
        let mut idle = vec![true; self.ports];
        let mut made = Vec::new();
        for iteration in 0..self.iterations {
            let mut grants = vec![Vec::new(); self.ports]; // by input: (pri, output)
            for output in 0..self.ports {
                if idle[output]
                    && let Some(pri) = self.grant_pri(asks, &free, output)
                {
                    let from = self.grant_ptr[pri][output];
                    let asked = |input: usize| free[input] && asks[input][output][pri];
                    grants[self.first(from, asked).unwrap()].push((pri, output));
                }
            }
            for (input, grants) in grants.iter().enumerate() {
                let Some(pri) = grants.iter().map(|&(pri, _)| pri).max() else { continue };
                let from = self.accept_ptr[pri][input];
                let output = self.first(from, |output| grants.contains(&(pri, output))).unwrap();
                (free[input], idle[output]) = (false, false);
                self.used[output][pri] += 1;
                made.push((input, output, pri, iteration));
                if iteration == 0 {
                    self.grant_ptr[pri][output] = (input + 1) % self.ports;
                    self.accept_ptr[pri][input] = (output + 1) % self.ports;
                }
            }
        }
        made
    }
}

/// Random requests for `density` eighths of all VOQs; changes `requests` to the same ones.
fn random_asks(rng: &mut Rng, ports: usize, pris: usize, requests: &mut Requests) -> Asks {
    let density = rng.below(9);
    let mut asks = vec![vec![vec![false; pris]; ports]; ports];
    let whole = rng.chance(1, 2); // both ways of building a set of requests
    if whole {
        requests.clear();
    }
    for (output, pri) in PortSet::first(ports)
        .iter()
        .flat_map(|output| PriSet::first(pris).iter().map(move |pri| (output, pri)))
    {
        let mut inputs = PortSet::EMPTY;
        for input in PortSet::first(ports).iter() {
            let ask = rng.chance(density, 8);
            asks[input.index()][output.index()][pri.index()] = ask;
            match (whole, ask) {
                (true, true) => inputs.insert(input),
                (true, false) => {}
                (false, true) => requests.add(QueueKey { input, output, pri }),
                (false, false) => requests.remove(QueueKey { input, output, pri }),
            }
        }
        if whole {
            requests.set(output, pri, inputs);
        }
    }
    asks
}

#[test]
fn every_match_and_pointer_is_the_oracles() {
    let seed = 0x0151_1001;
    let mut rng = Rng::new(seed);
    for ports in [1, 2, 3, 4, 5, 8, 13, 16, 31, 32, 33, 63, 64] {
        for pris in [1, 4, 8] {
            for iterations in 1..=4 {
                for weighted in [false, true] {
                    let drawn = weighted
                        .then(|| PerPri([0; 8].map(|_| 1 + u32::try_from(rng.below(5)).unwrap())));
                    let case = format!("{ports} {pris} {iterations} {drawn:?} seed {seed:#x}");
                    let discipline = drawn.map_or(Discipline::Strict, Discipline::Weighted);
                    let mut tested = Islip::new(ports, pris, iterations, discipline);
                    let weights = drawn.map(|w| w.0[..pris].to_vec());
                    let mut oracle = Oracle::new(ports, pris, iterations, weights);
                    let (mut requests, mut matches) = (Requests::new(), Matches::new());
                    for slot in 0..if ports > 16 { 12 } else { 60 } {
                        let asks = random_asks(&mut rng, ports, pris, &mut requests);
                        tested.slot(&requests, &mut matches);
                        let got: Vec<_> = matches.iter().map(plain).collect();
                        assert_eq!(got, oracle.slot(&asks), "slot {slot} of {case}");
                        assert_pointers(&tested, &oracle, &case);
                    }
                }
            }
        }
    }
}

fn plain(m: Match) -> (usize, usize, usize, u32) {
    (m.input.index(), m.output.index(), m.pri.index(), u32::from(m.iteration))
}

fn assert_pointers(tested: &Islip, oracle: &Oracle, case: &str) {
    for at in PortSet::first(oracle.ports).iter() {
        for pri in PriSet::first(oracle.pris).iter() {
            let want = oracle.grant_ptr[pri.index()][at.index()];
            assert_eq!(tested.grant_ptr[at][pri].index(), want, "grant {at:?} {pri:?} {case}");
            let want = oracle.accept_ptr[pri.index()][at.index()];
            assert_eq!(tested.accept_ptr[at][pri].index(), want, "accept {at:?} {pri:?} {case}");
        }
    }
}

/// Each input and output is matched at most once, and only where there was a request. With as many
/// iterations as ports the matching is maximal.
#[test]
fn matchings_are_valid_and_become_maximal() {
    let seed = 0x0151_1002;
    let mut rng = Rng::new(seed);
    for ports in 1..=64 {
        let mut crossbar = Islip::new(ports, 4, 4, Discipline::Strict);
        let (mut requests, mut matches) = (Requests::new(), Matches::new());
        for _ in 0..8 {
            random_asks(&mut rng, ports, 4, &mut requests);
            crossbar.slot(&requests, &mut matches);
            let inputs: PortSet = matches.iter().map(|m| m.input).collect();
            let outputs: PortSet = matches.iter().map(|m| m.output).collect();
            assert_eq!(inputs.len(), matches.len(), "{ports} seed {seed:#x}");
            assert_eq!(outputs.len(), matches.len(), "{ports} seed {seed:#x}");
            for m in matches.iter() {
                assert!(requests.voq(m.output, m.pri).contains(m.input), "{m:?} seed {seed:#x}");
            }
            if ports <= 4 {
                for output in PortSet::first(ports).without(outputs).iter() {
                    for pri in requests.pris(output).iter() {
                        let left = requests.voq(output, pri).without(inputs);
                        assert!(left.is_empty(), "{output:?} {pri:?} {left:?} seed {seed:#x}");
                    }
                }
            }
        }
    }
}

/// Worked by hand: three inputs ask one output, then the pointers have moved past the match.
#[test]
fn pointers_move_past_first_iteration_matches_only() {
    let pri = Pri::default();
    let mut crossbar = Islip::new(4, 4, 2, Discipline::Strict);
    let (mut requests, mut matches) = (Requests::new(), Matches::new());
    requests.set(port(0), pri, PortSet::from_bits(0b0111));
    requests.set(port(1), pri, PortSet::from_bits(0b0111));
    #[rustfmt::skip] // both outputs grant to the same input at first; the second goes on in iteration 2
    let want = [
        [(0, 0, 0, 0), (1, 1, 0, 1)], // now grant 0: 1, grant 1: 0; accept 0: 1
        [(0, 1, 0, 0), (1, 0, 0, 0)], // now grant 0: 2, grant 1: 1
        [(1, 1, 0, 0), (2, 0, 0, 0)],
    ];
    for (slot, want) in want.into_iter().enumerate() {
        crossbar.slot(&requests, &mut matches);
        assert_eq!(matches.iter().map(plain).collect::<Vec<_>>(), want, "slot {slot}");
    }
}

#[test]
fn strict_never_passes_over_a_higher_priority_of_a_pair() {
    let seed = 0x0151_1003;
    let mut rng = Rng::new(seed);
    let mut crossbar = Islip::new(16, 8, 3, Discipline::Strict);
    let (mut requests, mut matches) = (Requests::new(), Matches::new());
    for _ in 0..500 {
        random_asks(&mut rng, 16, 8, &mut requests);
        crossbar.slot(&requests, &mut matches);
        for m in matches.iter() {
            for pri in requests.pris(m.output).iter().filter(|&pri| pri > m.pri) {
                let passed_over = requests.voq(m.output, pri).contains(m.input);
                assert!(!passed_over, "{m:?} but {pri:?} asked, seed {seed:#x}");
            }
        }
    }
}

/// With all VOQs busy the pointers fall out of step: each slot is full, each pair is served alike.
#[test]
fn all_busy_serves_every_pair_alike() {
    for ports in [1, 2, 7, 16, 64] {
        for iterations in [1, 2] {
            let mut crossbar = Islip::new(ports, 4, iterations, Discipline::Strict);
            let requests = all_busy(ports, PriSet::first(4));
            let mut matches = Matches::new();
            for _ in 0..ports * ports {
                crossbar.slot(&requests, &mut matches);
            }
            let mut served = vec![vec![0; ports]; ports];
            for _ in 0..ports * 10 {
                crossbar.slot(&requests, &mut matches);
                assert_eq!(matches.len(), ports, "{ports} {iterations}");
                for m in matches.iter() {
                    assert_eq!(m.pri, Pri::ALL[3]);
                    served[m.input.index()][m.output.index()] += 1;
                }
            }
            assert!(served.iter().flatten().all(|&n| n == 10), "{ports} {iterations} {served:?}");
        }
    }
}

/// Each output's matches keep the weights' ratio, frame for frame, when all priorities ask.
#[test]
fn weights_are_kept_by_every_output() {
    let weights = [1, 2, 2, 4, 0, 0, 0, 3];
    for (ports, iterations) in [(1, 1), (4, 1), (4, 2), (16, 2), (64, 4)] {
        let mut crossbar = Islip::new(ports, 4, 1, Discipline::Strict);
        crossbar.set_iterations(iterations);
        crossbar.set_discipline(Discipline::Weighted(PerPri(weights)));
        let requests = all_busy(ports, PriSet::first(4));
        let mut matches = Matches::new();
        let mut served = vec![[0_u32; 4]; ports];
        for _ in 0..5_000 {
            crossbar.slot(&requests, &mut matches);
            for m in matches.iter() {
                served[m.output.index()][m.pri.index()] += 1;
            }
        }
        for (output, of_output) in served.iter().enumerate() {
            let rounds: Vec<u32> = of_output.iter().zip(weights).map(|(n, w)| n / w).collect();
            let (least, most) = (rounds.iter().min().unwrap(), rounds.iter().max().unwrap());
            assert!(
                most - least <= 1 && *least > 200,
                "{ports} {iterations} {output}: {of_output:?}"
            );
        }
    }
}

#[test]
fn a_weight_of_zero_counts_as_one() {
    let mut crossbar = Islip::new(1, 8, 1, Discipline::Weighted(PerPri([0, 3, 0, 0, 0, 0, 0, 0])));
    let requests = all_busy(1, PriSet::first(2));
    let mut matches = Matches::new();
    let mut order = Vec::new();
    for _ in 0..8 {
        crossbar.slot(&requests, &mut matches);
        order.push(matches.as_slice()[0].pri.get());
    }
    assert_eq!(order, [1, 1, 1, 0, 1, 1, 1, 0]);
}

/// McKeown's result: 100 % throughput under uniform Bernoulli arrivals with one iteration.
#[test]
fn one_iteration_carries_full_uniform_load() {
    let seed = 0x0151_1004;
    for (ports, slots) in [(16, 200_000_u64), (32, 200_000)] {
        let mut rng = Rng::new(seed);
        let mut crossbar = Islip::new(ports, 1, 1, Discipline::Strict);
        let (mut requests, mut matches) = (Requests::new(), Matches::new());
        let mut queued = vec![vec![0_u32; ports]; ports];
        let mut moved = 0;
        for slot in 0..slots {
            for (input, queued) in queued.iter_mut().enumerate() {
                let output = usize::try_from(rng.below(ports as u64)).unwrap();
                queued[output] += 1;
                requests.add(QueueKey {
                    input: port(input),
                    output: port(output),
                    pri: Pri::default(),
                });
            }
            crossbar.slot(&requests, &mut matches);
            moved += if slot >= slots / 10 { matches.len() as u64 } else { 0 };
            for m in matches.iter() {
                let queued = &mut queued[m.input.index()][m.output.index()];
                *queued -= 1;
                if *queued == 0 {
                    requests.remove(QueueKey { input: m.input, output: m.output, pri: m.pri });
                }
            }
        }
        let offered = (slots - slots / 10) * ports as u64;
        assert!(moved * 1_000 >= offered * 985, "{ports}: {moved} of {offered}, seed {seed:#x}");
    }
}

#[test]
fn requests_know_what_is_active() {
    let mut requests = Requests::new();
    let (low, high) = (Pri::ALL[0], Pri::ALL[7]);
    requests.set(port(63), high, PortSet::EMPTY);
    assert!(requests.is_empty());
    requests.add(QueueKey { input: port(1), output: port(63), pri: high });
    requests.add(QueueKey { input: port(2), output: port(63), pri: low });
    requests.set(port(5), low, PortSet::first(64));
    assert_eq!(requests.active(), PortSet::from_bits(1 << 63 | 1 << 5));
    assert_eq!(requests.pris(port(63)).bits(), 0b1000_0001);
    assert_eq!(requests.voq(port(63), high), PortSet::only(port(1)));
    requests.remove(QueueKey { input: port(1), output: port(63), pri: high });
    assert_eq!(requests.pris(port(63)).bits(), 1);
    requests.remove(QueueKey { input: port(9), output: port(63), pri: high }); // was not there
    requests.remove(QueueKey { input: port(2), output: port(63), pri: low });
    assert_eq!(requests.active(), PortSet::only(port(5)));
    assert!(requests.voq(port(63), low).is_empty());
    requests.clear();
    assert!(requests.is_empty() && requests.voq(port(5), low).is_empty());
}

#[test]
fn ports_and_priorities_it_does_not_have_are_passed_over() {
    let mut crossbar = Islip::new(4, 4, 2, Discipline::Strict);
    let (mut requests, mut matches) = (Requests::new(), Matches::new());
    requests.set(port(4), Pri::ALL[0], PortSet::first(64));
    requests.set(port(0), Pri::ALL[0], PortSet::from_bits(1 << 4 | 1 << 63));
    requests.set(port(1), Pri::ALL[4], PortSet::first(64));
    crossbar.slot(&requests, &mut matches);
    assert!(matches.is_empty(), "{matches:?}");
    requests.set(port(0), Pri::ALL[0], PortSet::first(64));
    crossbar.slot(&requests, &mut matches);
    assert_eq!(matches.iter().map(plain).collect::<Vec<_>>(), [(0, 0, 0, 0)]);
    crossbar.slot(&Requests::new(), &mut matches);
    assert_eq!(matches.iter().len(), 0, "an empty slot drops the matches of the last");
}

#[test]
#[should_panic(expected = "1..=4 iterations, not 5")]
fn five_iterations_are_refused() {
    let _ = Islip::new(4, 4, 5, Discipline::Strict);
}

#[test]
#[should_panic(expected = "ports is 1..=64, not 65")]
fn too_many_ports_are_refused() {
    let _ = Islip::new(65, 4, 1, Discipline::Strict);
}
