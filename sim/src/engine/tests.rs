//! The engine with components that send each other frames at random.
//!
//! The result is the same with any number of threads and any numbering of components.

use weft_base::rng::Rng;
use weft_dataplane::port::flaw::Flaw;
use weft_dataplane::port::wire::WireEnd;
use weft_dataplane::time::{Instant, LinkRate, Span};
use weft_dataplane::types::{PortId, PortSet};

use super::{CableError, CableSpec, Cables, Component, Engine, Latency, Place, Schedule};

const RATE: LinkRate = LinkRate::gbps(400);
const LATENCY: Span = Span::from_ns(7);
const TAKES: Latency = Latency { receive: LATENCY, send: Span::ZERO, early: false };

/// A component that answers frames by others, after a while and in any direction, and keeps a hash of all it received.
struct Toy {
    ends: Vec<Option<WireEnd>>,
    /// By port, when it can send again.
    idle_at: Vec<Instant>,
    specs: Vec<Option<CableSpec>>,
    rng: Rng,
    /// Frames that it has yet to send, and the instant of the first.
    owed: u64,
    due: Instant,
    hash: u64,
    steps: u64,
}

impl Toy {
    fn mix(&mut self, word: u64) {
        self.hash = (self.hash.rotate_left(5) ^ word).wrapping_mul(0x9E37_79B9_7F4A_7C15);
    }
}

impl Component for Toy {
    fn step(&mut self, now: Instant, _: PortSet) -> Option<Instant> {
        self.steps += 1;
        self.mix(now.as_ps());
        let mut next = None;
        for port in 0..self.ends.len() {
            let Some(end) = &mut self.ends[port] else { continue };
            let mut seen = Vec::new();
            while let Some(frame) = end.receive(now - LATENCY) {
                seen.push((frame.at, frame.bytes()[0]));
            }
            let arrival = end.next_arrival().map(|at| at + LATENCY);
            next = Instant::earlier(next, arrival);
            for (at, byte) in seen {
                assert_eq!(at + LATENCY, now, "stepped for each frame when it is in");
                self.mix(at.as_ps() ^ u64::from(byte) << 56 ^ port as u64);
                self.due =
                    if self.owed == 0 { now + Span::from_ns(self.rng.below(90)) } else { self.due };
                self.owed += 1;
            }
        }
        if self.owed > 0 && self.due <= now {
            let port = usize::try_from(self.rng.below(self.ends.len() as u64)).unwrap();
            if let (Some(end), Some(spec)) = (&mut self.ends[port], self.specs[port])
                && self.idle_at[port] <= now
            {
                let len = 60 + usize::try_from(self.rng.below(1_000)).unwrap();
                let byte = u8::try_from(self.rng.below(256)).unwrap();
                self.idle_at[port] = now + RATE.wire_time(len, spec.overhead);
                assert!(end.send(
                    self.idle_at[port] + spec.propagation,
                    Flaw::None,
                    &vec![byte; len]
                ));
                self.owed -= 1;
            }
            self.due = now + Span::from_ns(1 + self.rng.below(40));
        }
        let due = if self.owed > 0 { Some(self.due) } else { None };
        Instant::earlier(next, due)
    }
}

/// Name of a toy, and its port.
type Port = (usize, usize);

/// The neighbours of each of `count` toys: a random graph, by the toys' names.
fn graph(count: usize, ports: usize) -> Vec<(Port, Port, CableSpec)> {
    let mut rng = Rng::new(3);
    let mut free: Vec<Port> =
        (0..count).flat_map(|toy| (0..ports).map(move |port| (toy, port))).collect();
    let mut cables = Vec::new();
    while free.len() > 1 {
        let mut take = || free.swap_remove(usize::try_from(rng.below(free.len() as u64)).unwrap());
        let (a, b) = (take(), take());
        let propagation = Span::from_ns(rng.below(60));
        cables.push((a, b, CableSpec { rate: RATE, propagation, overhead: rng.chance(1, 2) }));
    }
    cables
}

/// Hashes of `count` toys at `end`, by name; `numbers` has the number of each.
fn run(numbers: &[usize], threads: usize, ends: &[Instant]) -> Vec<(u64, u64)> {
    run_with_stacks(numbers, threads, ends, |_| super::STACK)
}

/// Like [`run`], on threads with `stack` bytes of stack.
fn run_with_stacks(
    numbers: &[usize],
    threads: usize,
    ends: &[Instant],
    stack: fn(usize) -> usize,
) -> Vec<(u64, u64)> {
    const PORTS: usize = 3;
    let count = numbers.len();
    let mut cables = Cables::new();
    for _ in 0..count {
        cables.add(PORTS, TAKES);
    }
    let mut specs = vec![vec![None; PORTS]; count];
    for ((a, port_a), (b, port_b), spec) in graph(count, PORTS) {
        let place =
            |toy: usize, port| Place { component: numbers[toy], port: PortId::new(port).unwrap() };
        cables.lay(place(a, port_a), place(b, port_b), &spec).unwrap();
        specs[a][port_a] = Some(spec);
        specs[b][port_b] = Some(spec);
    }
    let (schedule, mut ends_of) = Schedule::new(cables);
    let mut toys: Vec<Option<Toy>> = (0..count).map(|_| None).collect();
    for (name, specs) in specs.into_iter().enumerate() {
        toys[numbers[name]] = Some(Toy {
            ends: core::mem::take(&mut ends_of[numbers[name]]),
            idle_at: vec![Instant::ZERO; PORTS],
            specs,
            rng: Rng::new(name as u64),
            owed: 2,
            due: Instant::ZERO,
            hash: 0,
            steps: 0,
        });
    }
    let mut engine = Engine::new(toys.into_iter().flatten().collect(), schedule);
    engine.stack = stack;
    for &end in ends {
        engine.run(end, threads);
        assert_eq!(engine.now(), end);
    }
    numbers.iter().map(|&at| &engine.components()[at]).map(|toy| (toy.hash, toy.steps)).collect()
}

#[test]
fn neither_threads_nor_numbers_nor_pauses_decide_anything() {
    let count = 40;
    let in_order: Vec<usize> = (0..count).collect();
    let mut shuffled = in_order.clone();
    let mut rng = Rng::new(11);
    for place in (1..count).rev() {
        shuffled.swap(place, usize::try_from(rng.below(place as u64 + 1)).unwrap());
    }
    let end = Instant::from_ns(20_000);
    let want = run(&in_order, 1, &[end]);
    assert!(want.iter().all(|&(_, steps)| steps > 50), "{want:?}");
    for (numbers, name) in [(&in_order, "in order"), (&shuffled, "shuffled")] {
        for threads in [1, 2, 3, 4] {
            assert_eq!(run(numbers, threads, &[end]), want, "{name}, {threads} threads");
        }
    }
    let halts: Vec<Instant> = (1..=20).map(|n| Instant::from_ns(1_000 * n)).collect();
    for threads in [1, 2] {
        assert_eq!(run(&in_order, threads, &halts), want, "with halts, {threads} threads");
    }
}

/// If the system refuses threads the run does without them: the result is the same, and no thread waits for a missing
/// one.
#[test]
fn without_threads_the_same_happens() {
    const REFUSED: usize = 1 << 60; // no address space has that
    let numbers: Vec<usize> = (0..40).collect();
    let end = [Instant::from_ns(5_000)];
    let want = run(&numbers, 3, &end);
    let all: fn(usize) -> usize = |_| REFUSED;
    for stack in [all, |thread| if thread == 2 { REFUSED } else { super::STACK }] {
        assert_eq!(run_with_stacks(&numbers, 3, &end, stack), want);
    }
}

#[test]
fn a_cable_is_laid_between_two_free_ports_and_takes_time() {
    let spec = CableSpec { rate: RATE, propagation: Span::ZERO, overhead: true };
    let place = |component, port| Place { component, port: PortId::new(port).unwrap() };
    let mut cables = Cables::new();
    for _ in 0..2 {
        cables.add(2, TAKES);
    }
    cables.lay(place(0, 0), place(1, 0), &spec).unwrap();
    #[rustfmt::skip] // columns: name, ends, error
    let cases = [
        ("taken",             place(0, 0), place(1, 1), CableError::Port(place(0, 0))),
        ("far end taken",     place(0, 1), place(1, 0), CableError::Port(place(1, 0))),
        ("no such port",      place(0, 1), place(1, 2), CableError::Port(place(1, 2))),
        ("no such component", place(2, 0), place(1, 1), CableError::Port(place(2, 0))),
        ("to itself",         place(0, 1), place(0, 1), CableError::Port(place(0, 1))),
    ];
    for (name, a, b, want) in cases {
        assert_eq!(cables.lay(a, b, &spec), Err(want), "{name}");
    }
    cables.lay(place(0, 1), place(1, 1), &spec).unwrap();
    let fastest = CableSpec { rate: LinkRate::gbps(10_000), overhead: false, ..spec };
    assert!(fastest.delay() > Span::ZERO);
}

/// A component that panics ends the run; no other thread waits for it.
#[test]
fn a_panic_in_one_thread_ends_all() {
    struct Bomb(Option<Instant>);
    impl Component for Bomb {
        fn step(&mut self, now: Instant, _: PortSet) -> Option<Instant> {
            assert!(self.0.is_none_or(|at| now < at), "the bomb went off");
            Some(now + Span::from_ns(1))
        }
    }
    let mut cables = Cables::new();
    for _ in 0..3 {
        cables.add(1, TAKES);
    }
    let place = |component| Place { component, port: PortId::default() };
    let spec = CableSpec { rate: RATE, propagation: Span::ZERO, overhead: true };
    cables.lay(place(0), place(2), &spec).unwrap();
    let (schedule, _ends) = Schedule::new(cables);
    let bombs = vec![Bomb(None), Bomb(None), Bomb(Some(Instant::from_ns(100)))];
    let mut engine = Engine::new(bombs, schedule);
    let run = std::panic::AssertUnwindSafe(|| engine.run(Instant::from_ns(1_000_000), 3));
    assert!(std::panic::catch_unwind(run).is_err());
}
