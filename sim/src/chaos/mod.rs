//! Chaos: random switches under random traffic and faults, with all checkers on.
//!
//! (seed, frames) → [`plan`] → [`run`] → [`ChaosReport`]; episodes of one configuration each,
//! every one of which ends with empty queues and a balanced account. The same pair gives the same hash.
//!
//! Units: frames.

mod draw;
mod events;

use std::fmt::Write as _;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::thread;

use serde::Serialize;
use weft_base::rng::Rng;
use weft_dataplane::pipeline::Ledger;
use weft_dataplane::port::wire::Flaw;
use weft_dataplane::time::{Instant, Span};
use weft_dataplane::trace::Event;
use weft_dataplane::types::{PortId, Pri};

use self::events::Events;
use crate::checkers::{Violation, Watch, is_kept};
use crate::setup::Setup;
use crate::world::World;

/// How often each fault was done.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize)]
pub struct Faults {
    /// A link went down and came up again.
    pub link_flaps: u64,
    /// A new configuration was taken over.
    pub reloads: u64,
    /// MAC control frames were sent to the switch: PFC, PAUSE, malformed ones.
    pub pauses: u64,
    /// Several stations sent a burst to wherever.
    pub bursts: u64,
    /// The pool was taken away but for a few chunks, for a while.
    pub starvations: u64,
    /// Frames were damaged on the wire.
    pub corrupted: u64,
    /// Frames of random bytes were sent.
    pub strays: u64,
}

/// What came of it.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize)]
pub struct ChaosReport {
    /// The seed.
    pub seed: u64,
    /// Hash of every decision.
    pub trace_hash: u64,
    /// Frames that stations sent.
    pub frames: u64,
    /// Frames received by the switches.
    pub rx: u64,
    /// Frames sent by the switches.
    pub tx: u64,
    /// Frames dropped, for whatever reason.
    pub dropped: u64,
    /// Episodes: configurations tried.
    pub episodes: u64,
    /// Steps of the pipeline.
    pub steps: u64,
    /// Decisions.
    pub events: u64,
    /// Faults.
    pub faults: Faults,
    /// What the checkers object to, the first of each episode and of each checker in it, with the episode's seed.
    pub violations: Vec<(u64, Violation)>,
    /// How much they object to.
    pub violation_count: u64,
}

/// Violations of an episode that are kept, beside the first one of each checker.
const KEEP: usize = 4;
/// Frames of an episode.
const EPISODE: u64 = 500_000;
/// Steps between full looks of the checkers.
const LOOK_EVERY: u64 = 512;
/// An episode that has not run empty so long after its last frame never will.
const PATIENCE: Span = Span::from_ms(1_000);

/// The episodes of a chaos of `frames` frames: a seed each, and the frames that stations are to send.
#[must_use]
pub fn plan(seed: u64, frames: u64) -> Vec<(u64, u64)> {
    let mut rng = Rng::new(seed);
    let starts = (0..frames).step_by(usize::try_from(EPISODE).unwrap_or(usize::MAX));
    starts.map(|start| (rng.next_u64(), (frames - start).min(EPISODE))).collect()
}

/// Runs `episodes` on `threads` threads; `progress` hears how many are done. The reports stand in the
/// order of the episodes and do not depend on the threads.
///
/// # Panics
/// When a drawn configuration cannot be built: the drawing is wrong then.
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

/// Runs chaos until stations have sent `frames` frames, on one thread.
#[must_use]
pub fn chaos(seed: u64, frames: u64) -> ChaosReport {
    ChaosReport::sum(seed, &run(&plan(seed, frames), 1, |_| ()))
}

/// Runs one episode again, by the seed that a report names.
#[must_use]
pub fn episode(seed: u64) -> ChaosReport {
    Episode::new(seed).run(EPISODE)
}

impl ChaosReport {
    /// All `episodes` of `seed` together.
    #[must_use]
    pub fn sum(seed: u64, episodes: &[Self]) -> Self {
        let mut sum = Self { seed, ..Self::default() };
        for one in episodes {
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

/// What is to happen.
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
            // One that does not obey PAUSE fills the headroom.
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
        // How much is sent is asked only now and then: it is a sum.
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

    /// An instant up to `us` microseconds from now.
    fn later(&mut self, us: u64) -> Instant {
        self.world.now() + Span::from_ns(draw::between(&mut self.rng, 100, us * 1_000))
    }

    fn befall<L: FnMut(Instant, &Event)>(&mut self, fault: Fault, watch: &mut Watch<L>) {
        let now = self.world.now();
        let station = usize::try_from(self.rng.below(self.setup.ports as u64)).unwrap_or(0);
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

    /// New streams at some stations.
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

    /// Where frames stand, and what holds them back.
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

/// An odd number, so that mixing loses nothing (2^64 over the golden ratio).
const MIX: u64 = 0x9E37_79B9_7F4A_7C15;
