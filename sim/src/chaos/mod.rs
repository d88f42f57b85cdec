//! Chaos: random switches under random traffic and faults, with all checkers on.
//!
//! A seed and a number of frames give a [`plan`] of episodes, [`run`] runs them, and [`ChaosReport`] sums them up. An
//! episode has one switch; it ends with empty queues and a balanced ledger. The same seed and number give the same
//! hash.

mod draw;
mod events;

use std::fmt::Write as _;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::thread;

use serde::Serialize;
use weft_base::rng::Rng;
use weft_dataplane::pipeline::Ledger;
use weft_dataplane::port::flaw::Flaw;
use weft_dataplane::time::{Instant, Span};
use weft_dataplane::trace::Event;
use weft_dataplane::types::{PortId, Pri};

use self::events::Events;
use crate::checkers::{Violation, Watch, is_kept};
use crate::setup::Setup;
use crate::world::World;

/// How often each kind of fault was made.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize)]
pub struct Faults {
    /// Links that went down and came up again.
    pub link_flaps: u64,
    /// Reloads with a new configuration.
    pub reloads: u64,
    /// MAC Control frames sent to the switch: PFC, PAUSE, malformed ones.
    pub pauses: u64,
    /// Bursts: several stations begin to send streams at random receivers.
    pub bursts: u64,
    /// Times that the pool was left with only a few chunks for a while.
    pub starvations: u64,
    /// Frames damaged on the wire.
    pub corrupted: u64,
    /// Frames of random bytes sent to the switch.
    pub strays: u64,
}

/// Result of one episode, or of several together.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize)]
pub struct ChaosReport {
    /// Seed of the chaos, or of the single episode.
    pub seed: u64,
    /// Hash of every decision of the switches.
    pub trace_hash: u64,
    /// Frames that stations sent.
    pub frames: u64,
    /// Frames received by the switches.
    pub rx: u64,
    /// Frames sent by the switches.
    pub tx: u64,
    /// Frames dropped by the switches, for any reason.
    pub dropped: u64,
    /// Number of episodes, and so of switches.
    pub episodes: u64,
    /// Steps of the switches' pipelines.
    pub steps: u64,
    /// Events of the traces.
    pub events: u64,
    /// Faults that were made.
    pub faults: Faults,
    /// Violations with the seed of their episode: the first of each episode, and of each checker in it.
    pub violations: Vec<(u64, Violation)>,
    /// Number of all violations.
    pub violation_count: u64,
}

/// Violations kept of an episode, beside the first one of each checker.
const KEEP: usize = 4;
/// Frames that stations send in an episode.
const EPISODE: u64 = 500_000;
/// Steps between two full looks of the checkers.
const LOOK_EVERY: u64 = 512;
/// Time after an episode's last frame in which its queues must become empty.
const PATIENCE: Span = Span::from_ms(1_000);

/// The episodes of a chaos of `frames` frames: for each a seed and the number of frames to send.
#[must_use]
pub fn plan(seed: u64, frames: u64) -> Vec<(u64, u64)> {
    let mut rng = Rng::new(seed);
    let starts = (0..frames).step_by(usize::try_from(EPISODE).unwrap_or(usize::MAX));
    starts.map(|start| (rng.next_u64(), (frames - start).min(EPISODE))).collect()
}

/// Runs `episodes` on `threads` threads; `progress` is called with the number done. The reports are in the order of the
/// episodes and do not depend on the threads.
///
/// # Panics
/// If a drawn configuration cannot be built, which is a fault of the drawing.
#[must_use]
pub fn run(
    episodes: &[(u64, u64)],
    threads: usize,
    progress: impl Fn(usize) + Sync,
) -> Vec<ChaosReport> {
    let (next, done) = (AtomicUsize::new(0), AtomicUsize::new(0));
    let work = || {
        let mut own = Vec::new();
        loop {
            let index = next.fetch_add(1, Ordering::Relaxed); // a number on its own
            let Some(&(seed, frames)) = episodes.get(index) else { return own };
            own.push((index, Episode::new(seed).run(frames)));
            progress(done.fetch_add(1, Ordering::Relaxed) + 1); // a number on its own
        }
    };
    let mut all: Vec<(usize, ChaosReport)> = thread::scope(|scope| {
        let running: Vec<_> = (0..threads.max(1)).map(|_| scope.spawn(work)).collect();
        let ended = running.into_iter().flat_map(|thread| thread.join().expect("an episode ends"));
        ended.collect()
    });
    all.sort_by_key(|&(index, _)| index);
    all.into_iter().map(|(_, report)| report).collect()
}

/// Runs chaos on one thread until stations have sent `frames` frames.
#[must_use]
pub fn chaos(seed: u64, frames: u64) -> ChaosReport {
    ChaosReport::sum(seed, &run(&plan(seed, frames), 1, |_| ()))
}

/// Repeats one episode, by the seed that a report names.
#[must_use]
pub fn episode(seed: u64) -> ChaosReport {
    Episode::new(seed).run(EPISODE)
}

impl ChaosReport {
    /// The sum of all `episodes` of `seed`.
    #[must_use]
    pub fn sum(seed: u64, episodes: &[Self]) -> Self {
        let mut sum = Self { seed, ..Self::default() };
        for one in episodes {
            // The hash depends on the order of episodes, which `run` restores.
            sum.trace_hash = (sum.trace_hash.rotate_left(9) ^ one.trace_hash).wrapping_mul(MIX);
            sum.frames += one.frames;
            sum.rx += one.rx;
            sum.tx += one.tx;
            sum.dropped += one.dropped;
            sum.episodes += one.episodes;
            sum.steps += one.steps;
            sum.events += one.events;
            sum.faults.add(&one.faults);
            sum.violations.extend(one.violations.iter().cloned());
            sum.violation_count += one.violation_count;
        }
        sum
    }
}

impl Faults {
    fn add(&mut self, other: &Self) {
        self.link_flaps += other.link_flaps;
        self.reloads += other.reloads;
        self.pauses += other.pauses;
        self.bursts += other.bursts;
        self.starvations += other.starvations;
        self.corrupted += other.corrupted;
        self.strays += other.strays;
    }
}

/// A fault that is planned.
#[derive(Clone, Copy, Debug)]
enum Fault {
    LinkDown,
    LinkUp(usize),
    Reload,
    Pause,
    Burst,
    Starve,
    Feed,
    Stray,
}

struct Episode {
    seed: u64,
    rng: Rng,
    setup: Setup,
    world: World,
    plan: Events<Fault>,
    faults: Faults,
}

impl Episode {
    fn new(seed: u64) -> Self {
        let mut rng = Rng::new(seed);
        let (setup, around) = draw::setup(&mut rng);
        let mut world = World::new(&setup, &around, |config| {
            draw::fixed(&mut rng, config);
            draw::hot(&mut rng, config);
        })
        .unwrap_or_else(|error| panic!("chaos episode {seed:#x}: {error}"));
        world.look_every = LOOK_EVERY;
        for station in &mut world.stations {
            station.corrupt_one_in = draw::pick(&mut rng, &[0, 100, 1_000]);
            // A station that does not obey PAUSE fills the headroom.
            station.obeys = rng.chance(7, 8);
        }
        Self { seed, rng, setup, world, plan: Events::new(), faults: Faults::default() }
    }

    fn run(mut self, frames: u64) -> ChaosReport {
        let snapshot = self.world.switch.core().snapshot.load_full();
        let mut watch = Watch::new(&snapshot, |_, _: &Event| ());
        self.plan.push(Instant::ZERO, Fault::Burst);
        for fault in [Fault::LinkDown, Fault::Reload, Fault::Pause, Fault::Starve, Fault::Stray] {
            let at = self.later(100);
            self.plan.push(at, fault);
        }
        // The sum of frames sent is computed only when a fault is due.
        while self.sent() < frames {
            let until = self.plan.next().unwrap_or(Instant::ZERO);
            self.world.run(until, &mut watch);
            while let Some(fault) = self.plan.pop(self.world.now()) {
                self.befall(fault, &mut watch);
            }
        }
        self.calm();
        let limit = self.world.now() + PATIENCE;
        let drained = self.world.drain(limit, &mut watch);
        let now = self.world.now();
        let stuck = if drained { String::new() } else { self.queues() };
        // Queues that did not become empty are reported as such, and not once more by the checkers of the end.
        if drained {
            watch.checkers.finish(now, self.world.switch.core());
        }
        self.world.switch.stop(now, &mut watch);
        watch.checkers.look(now, self.world.switch.core());
        self.report(&stuck, &watch)
    }

    fn sent(&self) -> u64 {
        self.world.stations.iter().map(crate::station::Station::sent).sum()
    }

    /// A random instant up to `us` microseconds from now.
    fn later(&mut self, us: u64) -> Instant {
        self.world.now() + Span::from_ns(draw::between(&mut self.rng, 100, us * 1_000))
    }

    fn befall<L: FnMut(Instant, &Event)>(&mut self, fault: Fault, watch: &mut Watch<L>) {
        let now = self.world.now();
        let station = usize::try_from(self.rng.below(self.setup.ports as u64)).unwrap_or(0);
        // Each fault plans the next of its kind, so that all kinds go on until the episode ends.
        match fault {
            Fault::LinkDown => {
                self.world.set_link(station, false);
                let at = self.later(20);
                self.plan.push(at, Fault::LinkUp(station));
            }
            Fault::LinkUp(station) => {
                self.faults.link_flaps += 1;
                self.world.set_link(station, true);
                let at = self.later(200);
                self.plan.push(at, Fault::LinkDown);
            }
            Fault::Reload => {
                let core = self.world.switch.core().clone();
                let old = core.snapshot.load_full();
                let mut config = old.config.clone();
                draw::hot(&mut self.rng, &mut config);
                if let Ok(new) = old.succeed(config) {
                    // The checkers must know the new rules before the switch decides by them.
                    watch.checkers.configure(&new);
                    core.snapshot.store(std::sync::Arc::new(new));
                    self.world.poke();
                    self.faults.reloads += 1;
                }
                let at = self.later(200);
                self.plan.push(at, Fault::Reload);
            }
            Fault::Pause => {
                let frame = draw::pause(&mut self.rng);
                self.inject(station, frame);
                self.faults.pauses += 1;
                let at = self.later(50);
                self.plan.push(at, Fault::Pause);
            }
            Fault::Stray => {
                let frame = draw::stray(&mut self.rng, &self.setup);
                self.inject(station, frame);
                self.faults.strays += 1;
                let at = self.later(10);
                self.plan.push(at, Fault::Stray);
            }
            Fault::Burst => {
                self.burst(now);
                let at = self.later(50);
                self.plan.push(at, Fault::Burst);
            }
            Fault::Starve => {
                let leave = usize::try_from(self.rng.below(32)).unwrap_or(0);
                self.world.switch.starve(leave);
                let at = self.later(10);
                self.plan.push(at, Fault::Feed);
            }
            Fault::Feed => {
                self.faults.starvations += 1;
                self.world.switch.feed();
                let at = self.later(200);
                self.plan.push(at, Fault::Starve);
            }
        }
    }

    fn inject(&mut self, station: usize, frame: Vec<u8>) {
        if let Some(station) = self.world.stations.get_mut(station) {
            station.inject(frame, Flaw::None);
        }
        self.world.poke();
    }

    /// Adds new streams at some stations.
    fn burst(&mut self, now: Instant) {
        self.faults.bursts += 1;
        for (index, station) in self.world.stations.iter_mut().enumerate() {
            station.prune();
            if station.streams() < 6 && self.rng.chance(2, 3) {
                let count = draw::between(&mut self.rng, 10, 3_000);
                station.add(draw::stream(&mut self.rng, &self.setup, index, now, count));
            }
        }
        self.world.poke();
    }

    /// Ends all faults and all traffic.
    fn calm(&mut self) {
        self.world.switch.feed();
        for index in 0..self.world.stations.len() {
            self.world.set_link(index, true);
        }
        for station in &mut self.world.stations {
            self.faults.corrupted += station.corrupted();
            station.hush();
        }
        self.world.poke();
    }

    /// State of the queues as text: depths, pauses, next step.
    fn queues(&self) -> String {
        let core = self.world.switch.core();
        let mut text = String::new();
        for port in (0..self.setup.ports).filter_map(PortId::new) {
            let depths: Vec<_> = Pri::ALL.map(|pri| core.buffer.depth(port, pri)).into();
            let (paused, held) = (core.paused(port), core.xoff(port));
            let _ = write!(text, " {port:?} queues {depths:?} paused {paused:?} holds {held:?};");
        }
        let next = self.world.next().map(Instant::as_ps);
        let _ = write!(text, " at {} ps, next {next:?}", self.world.now().as_ps());
        text
    }

    fn report<L: FnMut(Instant, &Event)>(&self, stuck: &str, watch: &Watch<L>) -> ChaosReport {
        let core = self.world.switch.core();
        let ledger = Ledger::read(core);
        let mut violation_count = watch.checkers.count();
        let mut violations = Vec::new();
        let at_ps = self.world.now().as_ps();
        let mut say = |checker, saw| {
            violation_count += 1;
            violations.push((self.seed, Violation { at_ps, checker, saw }));
        };
        if !stuck.is_empty() {
            say("progress", format!("frames never left:{stuck}"));
        }
        // The switch was stopped before, so every chunk must be back.
        if core.chunks_used() != 0 {
            say("pool", format!("{} chunks are lost", core.chunks_used()));
        }
        let mut kept = Vec::new();
        for found in watch.checkers.violations() {
            if is_kept(&kept, found.checker, KEEP) {
                kept.push(found.clone());
            }
        }
        violations.extend(kept.into_iter().map(|found| (self.seed, found)));
        ChaosReport {
            seed: self.seed,
            trace_hash: watch.hash(),
            frames: self.sent(),
            rx: ledger.rx,
            tx: ledger.tx,
            dropped: ledger.dropped,
            episodes: 1,
            steps: self.world.switch.steps(),
            events: watch.events(),
            faults: self.faults,
            violations,
            violation_count,
        }
    }
}

/// An odd multiplier, which keeps all 64 bits of the hash (2^64 over the golden ratio).
const MIX: u64 = 0x9E37_79B9_7F4A_7C15;
