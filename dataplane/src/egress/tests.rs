//! Tests of egress scheduling: tables, shares, rates and timers, and a naive oracle over all of it.

use weft_base::rng::Rng;

use super::*;

const NEAR_WRAP: Instant = Instant::from_ps(u64::MAX - 1_000_000);
const PS: Span = Span::from_ps(1);

fn pri(number: u8) -> Pri {
    Pri::new(number).unwrap()
}

fn small(rng: &mut Rng, least: u32, most: u32) -> u32 {
    least + u32::try_from(rng.below(u64::from(most - least) + 1)).unwrap()
}

/// Four priorities with these shares, none strict, no rates.
fn shares(mode: Weighted, weights: [u32; 8]) -> EgressConfig {
    let strict = PriSet::EMPTY;
    EgressConfig { strict, mode, weights: PerPri(weights), ..EgressConfig::for_pris(4) }
}

/// Picks `n` times at time 0 among `ready`, all frames of 1,000 bytes.
fn order(sched: &mut EgressSched, ready: u8, n: usize) -> Vec<u8> {
    let mut pick = || sched.pick(Instant::ZERO, PriSet::from_bits(ready), |_| 1_000);
    (0..n).map_while(|_| pick()).map(Pri::get).collect()
}

#[test]
fn picks_follow_set_weights_and_ready() {
    use Weighted::{Dwrr, Wrr};
    #[rustfmt::skip] // columns: name, strict, mode, weights of 0 to 3, ready, want
    let cases: [(_, _, _, [u32; 4], _, &[u8]); 14] = [
        ("nothing ready",              0b1000, Wrr,  [10, 40, 50, 0],  0b0000, &[]),
        ("strict only",                0b1000, Wrr,  [10, 40, 50, 0],  0b1000, &[3, 3, 3]),
        ("strict before all",          0b1000, Wrr,  [10, 40, 50, 0],  0b1111, &[3, 3, 3]),
        ("highest strict first",       0b1110, Wrr,  [10, 40, 50, 0],  0b0111, &[2, 2, 2]),
        ("low strict before high wrr", 0b0001, Wrr,  [10, 40, 50, 10], 0b1111, &[0, 0]),
        ("50:40:10 interleaves",       0b1000, Wrr,  [10, 40, 50, 0],  0b0111, &[2, 1, 0, 2, 1, 2, 1, 2, 1, 2, 2, 1, 0]),
        ("two of three",               0b1000, Wrr,  [10, 40, 50, 0],  0b0101, &[2, 0, 2, 2, 2, 2, 2, 0]),
        ("one alone",                  0b1000, Wrr,  [10, 40, 50, 0],  0b0001, &[0, 0, 0]),
        ("equal is one each",          0b0000, Wrr,  [7, 7, 7, 7],     0b1111, &[3, 2, 1, 0, 3, 2, 1, 0]),
        ("0 counts as the least",      0b0000, Wrr,  [2, 4, 0, 0],     0b0111, &[2, 1, 0, 1, 2, 1, 0, 1]),
        ("no weight at all is equal",  0b0000, Wrr,  [0, 0, 0, 0],     0b0011, &[1, 0, 1, 0]),
        ("strict's weight is ignored", 0b1000, Wrr,  [10, 20, 0, 7],   0b0011, &[1, 0, 1, 1, 0, 1]),
        ("dwrr: strict first",         0b1000, Dwrr, [1, 1, 1, 0],     0b1001, &[3, 3]),
        ("dwrr: one alone",            0b1000, Dwrr, [1, 1, 1, 0],     0b0100, &[2, 2, 2]),
    ];
    for (name, strict, mode, weights, ready, want) in cases {
        let mut all = [0; 8];
        all[..4].copy_from_slice(&weights);
        let strict = PriSet::from_bits(strict);
        let mut sched = EgressSched::new(&EgressConfig { strict, ..shares(mode, all) });
        assert_eq!(order(&mut sched, ready, want.len().max(1)), want, "{name}");
    }
}

/// 3,000-byte quanta at 2:1, frames of 1,000 and of 1,400 bytes: the rest of a deficit is kept for
/// the next round.
#[test]
fn deficits_are_kept_while_busy_and_forfeited_when_not() {
    let config =
        EgressConfig { frame_max: 1_500, ..shares(Weighted::Dwrr, [1, 2, 1, 1, 1, 1, 1, 1]) };
    let len = |pri: Pri| if pri.get() == 0 { 1_000 } else { 1_400 };
    #[rustfmt::skip] // columns: ready sets of each pick, then who is picked
    let cases: [(_, &[u8], &[u8]); 4] = [
        ("both busy: 1,500 and 3,000", &[3; 9], &[1, 1, 0, 1, 1, 0, 0, 1, 1]),
        ("1 stops after one frame",    &[3, 1, 3, 3, 3], &[1, 0, 1, 1, 0]),
        ("0 forfeits 500",             &[3, 3, 3, 2, 2, 2, 3, 3, 3], &[1, 1, 0, 1, 1, 1, 1, 0, 1]),
        ("alone keeps going",          &[1; 5], &[0, 0, 0, 0, 0]),
    ];
    for (name, ready, want) in cases {
        let mut sched = EgressSched::new(&config);
        let pick = |&ready: &u8| sched.pick(Instant::ZERO, PriSet::from_bits(ready), len);
        let got: Vec<u8> = ready.iter().filter_map(pick).map(Pri::get).collect();
        assert_eq!(got, want, "{name}");
    }
}

#[test]
fn wrr_keeps_its_shares_to_the_frame() {
    let mut sched = EgressSched::new(&EgressConfig::for_pris(4));
    let mut served = [0; 3];
    for pri in order(&mut sched, 0b0111, 100_000) {
        served[usize::from(pri)] += 1;
    }
    assert_eq!(served, [10_000, 40_000, 50_000]);
}

/// Interleaving is why: no queue sends more than two in a row, where plain rounds send five.
#[test]
fn rounds_are_interleaved() {
    let mut sched = EgressSched::new(&shares(Weighted::Wrr, [1, 49, 50, 0, 0, 0, 0, 0]));
    let picks = order(&mut sched, 0b0111, 10_000);
    let longest = picks.chunk_by(|a, b| a == b).map(<[u8]>::len).max();
    assert_eq!(longest, Some(2), "plain WRR: 50");
}

/// Queues fill and run empty at random. Whenever all three wait, their shares are 50:40:10 ± 1 %;
/// and each gets at least its share of the picks for which it waits, however short the spells.
#[test]
fn wrr_keeps_its_shares_when_queues_come_and_go() {
    let seed = 0xE6E5_0001;
    let mut rng = Rng::new(seed);
    for longest in [2, 10, 50, 1_000] {
        let mut sched = EgressSched::new(&EgressConfig::for_pris(4));
        let (mut ready, mut left) = (0b111_u8, [0_u32; 3]);
        let (mut together, mut served, mut waited) = ([0_u32; 3], [0_u32; 3], [0_u32; 3]);
        while together.iter().sum::<u32>() < 100_000 {
            for (queue, left) in left.iter_mut().enumerate() {
                if *left == 0 {
                    ready ^= 1 << queue;
                    let most = if ready >> queue & 1 == 0 { longest } else { longest * 4 };
                    *left = small(&mut rng, 1, most);
                }
                *left -= 1;
                waited[queue] += u32::from(ready >> queue & 1);
            }
            let picked = sched.pick(Instant::ZERO, PriSet::from_bits(ready), |_| 1_000);
            assert_eq!(picked.is_some(), ready != 0);
            if let Some(pri) = picked {
                served[pri.index()] += 1;
                together[pri.index()] += u32::from(ready == 0b111);
            }
        }
        let case = format!("{longest}: {together:?} {served:?} of {waited:?} seed {seed:#x}");
        for (queue, share) in [10, 40, 50].into_iter().enumerate() {
            let off = together[queue].abs_diff(share * 1_000);
            assert!(longest < 50 || off <= 1_000, "{case}");
            assert!(served[queue] * 100 >= waited[queue] * share, "{case}");
        }
    }
}

/// In bytes, whatever the sizes: one queue of small frames, one of large, one mixed.
#[test]
fn dwrr_shares_bytes() {
    let seed = 0xE6E5_0002;
    let mut rng = Rng::new(seed);
    for weights in [[1, 1, 1], [10, 40, 50], [3, 2, 1]] {
        let [w0, w1, w2] = weights;
        let mut sched = EgressSched::new(&shares(Weighted::Dwrr, [w0, w1, w2, 0, 0, 0, 0, 0]));
        let (mut heads, mut bytes) = ([64, 9_216, 700], [0_u64; 3]);
        for _ in 0..100_000 {
            let ready = PriSet::first(3);
            let pri = sched.pick(Instant::ZERO, ready, |pri| heads[pri.index()]).unwrap().index();
            bytes[pri] += u64::from(heads[pri]);
            heads[pri] = [small(&mut rng, 60, 128), 9_216, small(&mut rng, 60, 9_216)][pri];
        }
        let (sum, parts) = (bytes.iter().sum::<u64>(), u64::from(w0 + w1 + w2));
        for (bytes, weight) in bytes.iter().zip(weights) {
            let (got, want) = (bytes * parts, sum * u64::from(weight));
            assert!(got.abs_diff(want) * 100 <= sum * parts, "{weights:?} {bytes} seed {seed:#x}");
        }
    }
}

/// A frame beyond `frame_max` costs `frame_max`, and never stalls the round.
#[test]
fn frames_beyond_the_maximum_go_all_the_same() {
    let mut sched = EgressSched::new(&shares(Weighted::Dwrr, [1, 1, 0, 0, 0, 0, 0, 0]));
    for _ in 0..10 {
        assert!(sched.pick(Instant::ZERO, PriSet::first(2), |_| u32::MAX).is_some());
    }
}

/// 1,000-byte frames at 1 Gbit/s are 8,192 ns apart, to the picosecond, across the clock's wrap.
#[test]
fn rates_hold_across_the_wrap() {
    let rate = LinkRate::gbps(1);
    let mut of_queue = EgressConfig { burst: Span::ZERO, ..EgressConfig::for_pris(4) };
    let mut of_port = of_queue.clone();
    of_queue.pri_max_rate[pri(1)] = Some(rate);
    of_port.port_max_rate = Some(rate);
    for (name, config, ready) in [("queue", of_queue, 0b0010), ("port", of_port, 0b1111)] {
        let mut sched = EgressSched::new(&config);
        let ready = PriSet::from_bits(ready);
        let mut now = NEAR_WRAP;
        for frame in 0..1_000 {
            assert_eq!(now, NEAR_WRAP + Span::from_ns(8_192 * frame), "{name}");
            assert_eq!(sched.next_open(now, ready), Some(now), "{name}");
            assert!(sched.pick(now, ready, |_| 1_000).is_some(), "{name}");
            now = sched.next_open(now, ready).unwrap();
            assert_eq!(sched.pick(now - PS, ready, |_| 1_000), None, "{name}: 1 ps early");
        }
        assert_eq!(sched.next_open(now, PriSet::EMPTY), None, "{name}");
    }
}

#[test]
fn a_queue_over_its_rate_lets_the_others_pass() {
    let mut config = EgressConfig { burst: Span::ZERO, ..EgressConfig::for_pris(4) };
    config.pri_max_rate[pri(3)] = Some(LinkRate::gbps(1));
    let mut sched = EgressSched::new(&config);
    let both = PriSet::from_bits(0b1010);
    #[rustfmt::skip] // columns: at ns, want
    let cases = [(0, 3), (0, 1), (8_191, 1), (8_192, 3), (8_193, 1), (20_000, 3), (28_191, 1), (28_192, 3)];
    for (at_ns, want) in cases {
        let at = Instant::from_ns(at_ns);
        assert_eq!(sched.next_open(at, both), Some(at), "{at_ns}");
        assert_eq!(sched.pick(at, both, |_| 1_000), Some(pri(want)), "{at_ns}");
    }
}

#[test]
fn a_new_configuration_keeps_what_it_can() {
    let mut config = EgressConfig { burst: Span::ZERO, ..EgressConfig::for_pris(4) };
    let mut sched = EgressSched::new(&config);
    assert_eq!(order(&mut sched, 0b0111, 4), [2, 1, 0, 2]);
    config.weights = PerPri([1, 4, 5, 9, 0, 0, 0, 0]); // the same ratio
    sched.reconfigure(&config);
    assert_eq!(order(&mut sched, 0b0111, 3), [1, 2, 1], "goes on in the round");
    config.weights[pri(0)] = 2;
    sched.reconfigure(&config);
    assert_eq!(order(&mut sched, 0b0111, 5), [2, 1, 0, 2, 1], "a new round");

    config.port_max_rate = Some(LinkRate::gbps(1));
    sched.reconfigure(&config);
    assert_eq!(order(&mut sched, 0b1000, 2), [3], "one frame, then debt");
    config.strict = PriSet::EMPTY;
    sched.reconfigure(&config);
    assert_eq!(order(&mut sched, 0b1000, 1), [], "the debt stays");
    config.port_max_rate = None;
    sched.reconfigure(&config);
    assert_eq!(order(&mut sched, 0b1000, 1), [3], "no rate, no debt");
}

/// The same rules over plain vectors: levels of buckets in bit x ps x bps, rounds spelt out.
struct Oracle {
    config: EgressConfig,
    weights: Vec<u64>, // as configured, without 0
    left: Vec<u64>,
    served: Vec<bool>, // in this cycle
    deficit: Vec<u64>,
    at: usize,
    levels: Vec<(i128, Instant)>, // by priority, then the port
}

impl Oracle {
    fn new(config: &EgressConfig, start: Instant) -> Self {
        let shared =
            |pri: usize| !config.strict.contains(Pri::ALL[pri]) && config.weights.0[pri] > 0;
        let given = |pri| u64::from(config.weights.0[pri]);
        let least = (0..8).filter(|&pri| shared(pri)).map(given).min().unwrap_or(1);
        let weights: Vec<u64> =
            (0..8).map(|pri| if shared(pri) { given(pri) } else { least }).collect();
        let divisor = (1..=least).rev().find(|d| weights.iter().all(|w| w % d == 0)).unwrap();
        let weights: Vec<u64> = weights.iter().map(|w| w / divisor).collect();
        let mut oracle = Self {
            config: config.clone(),
            left: weights.clone(),
            weights,
            served: vec![false; 8],
            deficit: vec![0; 8],
            at: 0,
            levels: vec![(0, start); 9],
        };
        for bucket in 0..9 {
            oracle.levels[bucket].0 = oracle.depth(bucket);
        }
        oracle
    }

    fn rate(&self, bucket: usize) -> i128 {
        let rate = self.config.pri_max_rate.0.get(bucket).unwrap_or(&self.config.port_max_rate);
        rate.map_or(0, |rate| i128::from(rate.as_bps()))
    }

    fn depth(&self, bucket: usize) -> i128 {
        self.rate(bucket) * i128::from(self.config.burst.as_ps())
    }

    /// Credit in a bucket. Credit above its depth is lost, if it is at least a picosecond's worth.
    fn level(&self, bucket: usize, now: Instant) -> i128 {
        let (level, since) = self.levels[bucket];
        let level = level + self.rate(bucket) * i128::from(now.since(since).as_ps());
        let over = level - self.depth(bucket);
        if over >= self.rate(bucket) { self.depth(bucket) } else { level }
    }

    fn pick(&mut self, now: Instant, ready: PriSet, lens: &[u32]) -> Option<usize> {
        let free = |bucket: usize| self.level(bucket, now) >= 0;
        let open: Vec<bool> =
            (0..8).map(|pri| ready.contains(Pri::ALL[pri]) && free(pri) && free(8)).collect();
        let strict = |pri: &usize| self.config.strict.contains(Pri::ALL[*pri]);
        let picked = if let Some(pri) = (0..8).rev().filter(strict).find(|&pri| open[pri]) {
            pri
        } else if !open.contains(&true) {
            return None;
        } else if self.config.mode == Weighted::Wrr {
            self.wrr(&open)
        } else {
            self.dwrr(&open, lens)
        };
        let cost = i128::from((lens[picked] + 4).max(64) + 20) * 8 * 1_000_000_000_000;
        for bucket in [picked, 8] {
            if self.rate(bucket) > 0 {
                self.levels[bucket] = (self.level(bucket, now) - cost, now);
            }
        }
        Some(picked)
    }

    fn wrr(&mut self, open: &[bool]) -> usize {
        loop {
            let may = |&pri: &usize| open[pri] && self.left[pri] > 0 && !self.served[pri];
            if let Some(pri) = (0..8).rev().find(may) {
                self.left[pri] -= 1;
                self.served[pri] = true;
                return pri;
            }
            if !(0..8).any(|pri| open[pri] && self.left[pri] > 0) {
                self.left = self.weights.clone();
            }
            self.served.fill(false);
        }
    }

    fn dwrr(&mut self, open: &[bool], lens: &[u32]) -> usize {
        let frame_max = u64::from(self.config.frame_max);
        let least = *self.weights.iter().min().unwrap();
        loop {
            let len = u64::from(lens[self.at]).min(frame_max);
            if open[self.at] && self.deficit[self.at] >= len {
                self.deficit[self.at] -= len;
                return self.at;
            }
            (0..8).filter(|&pri| !open[pri]).for_each(|pri| self.deficit[pri] = 0);
            self.at = (1..=8).map(|step| (self.at + step) % 8).find(|&pri| open[pri]).unwrap();
            self.deficit[self.at] += self.weights[self.at] * frame_max / least;
        }
    }
}

fn random_config(rng: &mut Rng) -> EgressConfig {
    let rate = |rng: &mut Rng| {
        rng.chance(1, 3).then(|| LinkRate::bps(rng.below(20_000_000_000) + 1_000_000).unwrap())
    };
    EgressConfig {
        strict: PriSet::from_bits(
            rng.below(256).to_le_bytes()[0] & rng.below(256).to_le_bytes()[0],
        ),
        mode: if rng.chance(1, 2) { Weighted::Wrr } else { Weighted::Dwrr },
        weights: PerPri([0; 8].map(|_| small(rng, 0, 6) * 5)),
        pri_max_rate: PerPri([None; 8].map(|_: Option<LinkRate>| rate(rng))),
        port_max_rate: rate(rng),
        burst: Span::from_ns(rng.below(20_000)),
        frame_max: small(rng, 64, 9_216),
    }
}

/// Every pick equals the oracle's, and every timer is right: a pick at it succeeds, 1 ps before not.
#[test]
fn every_pick_and_timer_is_the_oracles() {
    let seed = 0xE6E5_0003;
    let mut rng = Rng::new(seed);
    let (mut picks, mut timers) = (0, 0);
    for case in 0..400 {
        let config = random_config(&mut rng);
        let mut sched = EgressSched::new(&config);
        let mut now = NEAR_WRAP;
        let mut oracle = Oracle::new(&config, now);
        for step in 0..500 {
            let place = format!("step {step} of case {case}, seed {seed:#x}, {config:?}");
            let ready = PriSet::from_bits(rng.below(256).to_le_bytes()[0]);
            let lens = [0; 8].map(|_| small(&mut rng, 14, 9_300));
            let len = |pri: Pri| lens[pri.index()];
            let got = sched.pick(now, ready, len).map(Pri::index);
            assert_eq!(got, oracle.pick(now, ready, &lens), "{place}");
            picks += u32::from(got.is_some());
            let due = sched.next_open(now, ready);
            assert_eq!(due.is_none(), ready.is_empty(), "{place}");
            if let Some(due) = due.filter(|&due| due > now) {
                assert_eq!(sched.pick(due - PS, ready, len), None, "early: {place}");
                assert!(sched.clone().pick(due, ready, len).is_some(), "late: {place}");
                timers += 1;
                if rng.chance(1, 2) {
                    now = due;
                }
            }
            now += Span::from_ns(rng.below(5) * rng.below(400));
        }
    }
    assert!(picks > 50_000 && timers > 20_000, "{picks} picks and {timers} timers prove little");
}

#[test]
fn picks_of_a_lone_queue_are_counted_as_if_one_by_one() {
    let mut rng = Rng::new(5);
    let weights = PerPri([1, 4, 5, 2, 1, 1, 9, 1]);
    let (mut whole, mut single) = (Wrr::new(weights), Wrr::new(weights));
    for _ in 0..20_000 {
        let open = PriSet::from_bits(u8::try_from(rng.below(255) + 1).unwrap());
        let pri = whole.pick(open).unwrap();
        assert_eq!(single.pick(open), Some(pri));
        let most = usize::try_from(rng.below(24)).unwrap();
        whole.pick_alone(pri, most);
        for _ in 0..most {
            assert_eq!(single.pick(PriSet::only(pri)), Some(pri));
        }
        let state = |wrr: &Wrr| (wrr.left, wrr.some_left, wrr.turn);
        assert_eq!(state(&whole), state(&single), "{open:?} {pri:?} {most}");
    }
}
