//! Pause guard: keeps peers paused while a worker is away.
//!
//! A PAUSE lasts at most 65,535 quanta: 33.6 ms at 1 Gbit/s, 336 us at 100. A worker that the
//! scheduler leaves aside for longer cannot refresh it, so its peers go on sending into receive
//! rings that no worker empties; and below XOFF they have not been told to stop at all. The guard
//! runs on a thread of its own, which sleeps nearly always and so is scheduled at once. It
//!
//! - refreshes the PAUSE of a port that is above XOFF, when half of it is over;
//! - pauses all lossless priorities of a port that received such frames lately, once half of its
//!   receive ring is full.
//!
//! It stops after [`GIVE_UP`]: a worker that is away for longer is stuck, and a switch that
//! forwards nothing must not hold up its neighbours. Below XOFF it only pauses ports that received
//! lossless frames within a second before their worker's last turn, so a peer that sends none is
//! never paused, and one that sends some can only have itself paused.
//!
//! Its frames bypass the port, by a way that the caller of [`PauseGuard::look`] provides: rings of
//! AF_XDP and of packet sockets have one writer, the worker. The worker that comes back learns of
//! them ([`Core::note_guarded`]) and then sends PFC frames of its own. While the whole process or
//! the machine is stopped, no guard runs either.
//!
//! It decides from what workers publish (last turn, planned sleep, frames, XOFF) and from gauges of
//! the rings.
//!
//! Units: picoseconds, frames, 1/1,000 of a ring.
//! Source: IEEE 802.1Q clause 36.1.3; docs/spec/pipeline.md §9.

use std::sync::Arc;

use weft_parsers::mac_control::{self, FRAME_LEN};

use crate::pfc::CLASSES;
use crate::pipeline::Core;
use crate::port::RxGauge;
use crate::snapshot::Snapshot;
use crate::stats::WorkerStats;
use crate::time::{Instant, Span};
use crate::types::{PortId, PriSet};

/// Longest absence that counts as an ordinary turn of the loop.
const TURN: Span = Span::from_ms(1);
/// Fill level at which a peer is paused, in 1/1,000 of the ring: the rest is for frames that are
/// under way until it stops.
const URGENT: u16 = 500;
/// Refresh time of a port whose rate is not known.
const PAUSE_MAX: Span = Span::from_ms(20);
/// Lossless frames that came within this time are expected to be followed by more.
const LATELY: Span = Span::from_ms(1_000);
/// A worker that is away for longer is stuck, as the event `worker_stalled` says: its peers may send again.
const GIVE_UP: Span = Span::from_ms(2_000);
/// Time between two looks while lossless frames come.
const LOOK: Span = Span::from_ms(2);
/// Time between two looks while no lossless frames come.
const IDLE: Span = Span::from_ms(50);
/// Least time between two looks while a worker is away.
const ACT: Span = Span::from_us(100);
/// Time over which the rate of frames is measured.
const MEASURE: Span = Span::from_ms(10);

/// A port for the guard to look after.
pub struct GuardedPort {
    /// Number of the port in the switch.
    pub port: PortId,
    /// How full its receive rings are.
    pub gauge: RxGauge,
    /// Capacity of the smallest of them, in frames.
    pub ring_frames: usize,
}

/// A guarded port, with measurements of its traffic.
struct Guarded {
    own: GuardedPort,
    /// Frames received until the last measurement, and the time of that.
    frames: u64,
    measured: Instant,
    /// Maximum rate of late, in frames a second.
    rate: u64,
    /// Lossless frames queued until the last measurement, and when this number last grew.
    lossless: u64,
    lossless_at: Option<Instant>,
    /// Classes that are paused at the peer, by the worker or in this absence by the guard, and the time of the
    /// last PAUSE.
    told: u8,
    sent: Instant,
}

/// A worker, with its guarded ports.
struct Watched {
    /// Its last turn, as of the last look.
    turn: Instant,
    ports: Vec<Guarded>,
}

/// Pauses peers for workers that are away.
pub struct PauseGuard {
    core: Arc<Core>,
    workers: Vec<Watched>,
}

impl PauseGuard {
    /// A guard of the workers of `core`; `ports[worker]` are the ports to guard.
    #[must_use]
    pub fn new(core: Arc<Core>, ports: Vec<Vec<GuardedPort>>) -> Self {
        let guarded = |own| Guarded {
            own,
            frames: 0,
            measured: Instant::ZERO,
            rate: 0,
            lossless: 0,
            lossless_at: None,
            told: 0,
            sent: Instant::ZERO,
        };
        let watched = |own: Vec<GuardedPort>| Watched {
            turn: Instant::ZERO,
            ports: own.into_iter().map(guarded).collect(),
        };
        Self { core, workers: ports.into_iter().map(watched).collect() }
    }

    /// Looks after all workers. For ports whose worker is away it calls `send`, which returns true
    /// if it sent the frame. Returns how long to wait until the next look.
    pub fn look(&mut self, now: Instant, mut send: impl FnMut(PortId, &[u8]) -> bool) -> Span {
        let Self { core, workers } = self;
        let snapshot = core.snapshot.load();
        if !snapshot.config.pfc.enabled || snapshot.lossless.is_empty() {
            return IDLE;
        }
        let (up, mut wait) = (core.up().and(snapshot.pfc_ports), IDLE);
        for (worker, stats) in workers.iter_mut().zip(&core.stats) {
            let [turn, wake] =
                [&stats.beat_ns, &stats.wake_ns].map(|at| Instant::from_ns(at.get()));
            // A worker that sleeps as planned is not away.
            let due = turn.max(wake);
            let away = now.since(due);
            let is_back = worker.turn != turn;
            worker.turn = turn;
            for port in &mut worker.ports {
                port.follow(now, stats, &snapshot);
                let is_lossless = port.is_lossless(due);
                let xoff = core.xoff(port.own.port);
                if is_back {
                    // It has made a turn since, so its own PFC frames say which classes are paused.
                    (port.told, port.sent) =
                        (classes_of(xoff, &snapshot), core.pause_sent(port.own.port));
                }
                if !is_lossless && xoff.is_empty() {
                    continue;
                }
                wait = wait.min(LOOK);
                // From `GIVE_UP` on no PAUSE is refreshed: the peers' timers run out.
                if !(TURN..GIVE_UP).contains(&away) || !up.contains(port.own.port) {
                    continue;
                }
                // Refreshed like the worker's own PAUSE: at half of its time.
                let half = port.half(&snapshot);
                let soon = Span::from_ps(half.as_ps() / 2).min(port.eighth());
                // An eighth of a ring from look to look: half of it is then noticed with three
                // eighths to spare.
                wait = wait.min(soon.max(ACT));
                let is_urgent = is_lossless && port.own.gauge.permille() >= URGENT;
                let classes =
                    classes_of(if is_urgent { snapshot.lossless } else { xoff }, &snapshot);
                let is_due = classes & !port.told != 0 || now.since(port.sent) >= half;
                if classes != 0
                    && is_due
                    && send(port.own.port, &frame(classes, &snapshot, port.own.port))
                {
                    // Only after the frame has left, see there.
                    core.note_guarded(port.own.port, classes);
                    (port.told, port.sent) = (classes, now);
                }
            }
        }
        wait
    }
}

impl Guarded {
    /// Measures the traffic that the port has received.
    fn follow(&mut self, now: Instant, stats: &WorkerStats, snapshot: &Snapshot) {
        let span = now.since(self.measured);
        if span < MEASURE {
            return;
        }
        let stats = &stats.port[self.own.port];
        let frames = stats.rx_frames.get();
        let lossless = snapshot.lossless.iter().map(|pri| stats.pri[pri].enqueued.get()).sum();
        let more = frames.saturating_sub(self.frames);
        let rate = more.saturating_mul(1_000_000_000) / span.as_ns().max(1);
        if lossless != self.lossless {
            self.lossless_at = Some(now);
        }
        // The maximum decays slowly: a sender that was paused or idle for a while resumes at its old rate.
        if more > 0 {
            self.rate = rate.max(self.rate - self.rate / 16);
        }
        (self.frames, self.lossless, self.measured) = (frames, lossless, now);
    }

    /// Whether lossless frames came in the time before its worker was last `due`. While it is away
    /// none are counted.
    fn is_lossless(&self, due: Instant) -> bool {
        self.lossless_at.is_some_and(|at| due.since(at) < LATELY)
    }

    /// Half of the longest PAUSE of the port: the time after which it is refreshed.
    fn half(&self, snapshot: &Snapshot) -> Span {
        let port = snapshot.config.ports.get(self.own.port.index());
        port.map_or(PAUSE_MAX, |port| Span::from_ps(port.rate.quanta(u16::MAX).as_ps() / 2))
    }

    /// How long an eighth of its receive ring lasts at the measured rate.
    fn eighth(&self) -> Span {
        Span::from_ns(self.own.ring_frames as u64 * (1_000_000_000 / 8) / self.rate.max(1))
    }
}

/// Classes that a PAUSE for `pris` names.
fn classes_of(pris: PriSet, snapshot: &Snapshot) -> u8 {
    pris.iter().fold(0, |classes, pri| classes | snapshot.config.pfc.classes[pri])
}

/// A PFC frame that pauses `classes` for the longest time.
fn frame(classes: u8, snapshot: &Snapshot, port: PortId) -> [u8; FRAME_LEN] {
    let quanta: [u16; CLASSES] =
        core::array::from_fn(|class| if classes >> class & 1 != 0 { u16::MAX } else { 0 });
    let mac = snapshot.config.ports.get(port.index()).map(|port| port.parse.port_mac);
    let mut frame = [0; FRAME_LEN];
    mac_control::Pfc { enable: classes, quanta }.emit(mac.unwrap_or_default(), &mut frame);
    frame
}

#[cfg(test)]
mod tests {
    use core::sync::atomic::{AtomicU16, Ordering};

    use super::*;
    use crate::pipeline::{Switch, SwitchBuilder};
    use crate::port::Port;
    use crate::port::null::{Null, NullConfig};
    use crate::time::LinkRate;
    use crate::types::{PortSet, Pri};

    /// Half of the longest PAUSE of a port of 1 Gbit/s, in us.
    const HALF_US: u64 = 16_776;
    const RING: usize = 2_048;

    /// Two ports, of which worker 0 has the first; the guard looks every millisecond.
    struct Rig {
        switch: Switch,
        guard: PauseGuard,
        /// Port, classes, and when they were paused in us.
        sent: Vec<(usize, u8, u64)>,
        /// Whether frames can leave.
        is_open: bool,
        /// Looks at which they could not.
        refused: usize,
        /// How full the ring of p0 is, in 1/1,000.
        level: Arc<AtomicU16>,
    }

    impl Rig {
        fn new() -> Self {
            let port = |name: &str| -> Box<dyn Port> {
                let (name, rate, frame_len_max) = (name.to_owned(), LinkRate::gbps(1), 1_518);
                let config = NullConfig {
                    name,
                    rate,
                    frame_len_max,
                    templates: vec![],
                    per_burst: 64,
                    limit: None,
                };
                Box::new(Null::generator(config).unwrap())
            };
            let mut switch =
                SwitchBuilder::new(vec![port("p0"), port("p1")]).workers(2).build().unwrap();
            switch.step(Instant::ZERO);
            let level = Arc::new(AtomicU16::new(0));
            let guarded = |port: &PortId| {
                let level = if port.index() == 0 { level.clone() } else { Arc::default() };
                GuardedPort { port: *port, gauge: RxGauge::of_level(level), ring_frames: RING }
            };
            let ports: Vec<Vec<_>> =
                switch.spread.iter().map(|own| own.iter().map(guarded).collect()).collect();
            let guard = PauseGuard::new(switch.core.clone(), ports);
            Self { switch, guard, sent: Vec::new(), is_open: true, refused: 0, level }
        }

        fn stats(&self, worker: usize) -> &WorkerStats {
            &self.switch.core.stats[worker]
        }

        /// Both workers make turns; p0 receives `frames` frames of priority `pri`. The guard sees
        /// it.
        fn turns(&mut self, ms: u64, pri: u8, frames: u64) {
            for worker in [0, 1] {
                self.stats(worker).beat_ns.set(ms * 1_000_000);
            }
            let port = &self.stats(0).port[PortId::new(0).unwrap()];
            port.rx_frames.add(frames);
            port.pri[Pri::new(pri).unwrap()].enqueued.add(frames);
            self.look(ms * 1_000);
        }

        /// The guard looks; worker 1 is always there.
        fn look(&mut self, us: u64) -> Span {
            let Self { switch, guard, sent, is_open, refused, .. } = self;
            switch.core.stats[1].beat_ns.set(us * 1_000);
            guard.look(Instant::from_ns(us * 1_000), |port, frame| {
                if *is_open {
                    sent.push((port.index(), paused_by(frame), us));
                } else {
                    *refused += 1;
                }
                *is_open
            })
        }

        /// Classes of `pris`, as a PFC frame names them.
        fn classes(&self, pris: &[u8]) -> u8 {
            let classes = &self.switch.core.snapshot.load().config.pfc.classes;
            pris.iter().fold(0, |all, pri| all | classes[Pri::new(*pri).unwrap()])
        }

        /// The ring of p0 is so full.
        fn fill(&self, permille: u64) {
            self.level.store(u16::try_from(permille.min(1_000)).unwrap(), Ordering::Relaxed);
        }

        /// Looks every 100 us; when it paused the peer of p0, in us.
        fn looks(&mut self, ms: std::ops::Range<u64>) -> Vec<u64> {
            let before = self.sent.len();
            for us in (ms.start * 1_000..ms.end * 1_000).step_by(100) {
                self.look(us);
            }
            let sent = &self.sent[before..];
            assert!(sent.iter().all(|(port, ..)| *port == 0), "worker 1 is there: {sent:?}");
            sent.iter().map(|(.., at)| *at).collect()
        }
    }

    /// Classes that a frame pauses for as long as can be.
    fn paused_by(frame: &[u8]) -> u8 {
        let enable = u16::from_be_bytes([frame[16], frame[17]]);
        assert_eq!(&frame[12..16], &[0x88, 0x08, 0x01, 0x01], "{frame:?}");
        for class in 0..8 {
            let quanta = u16::from_be_bytes([frame[18 + 2 * class], frame[19 + 2 * class]]);
            assert_eq!(quanta, if enable >> class & 1 == 1 { u16::MAX } else { 0 }, "{frame:?}");
        }
        u8::try_from(enable).unwrap()
    }

    /// `at`, and then a time for each half of a PAUSE, rounded up to the next look, before `end`;
    /// in us.
    fn refreshed(at: u64, end: u64) -> Vec<u64> {
        let mut all = vec![at];
        while let Some(next) = all.last().map(|at| (at + HALF_US).next_multiple_of(100))
            && next < end
        {
            all.push(next);
        }
        all
    }

    /// The lossless priorities of a port that received some lately are paused before its ring is full, and kept so until the
    /// worker is back, or is taken to be stuck.
    #[test]
    fn a_peer_of_lossless_frames_is_paused_while_the_worker_is_away() {
        #[rustfmt::skip] // columns: name, priority, frames in the 10 ms before 100 ms, sleeps until, first PAUSE in us
        let cases = [
            ("few frames",               2,     10, 0,   None),
            ("a ring in 10 ms",          1,  2_048, 0,   Some(105_000)),
            ("a ring in 100 us",         1, 204_800, 0,  Some(101_000)),
            ("asleep",                   2,  2_048, 140, Some(141_000)),
            ("no frame",                 2,      0, 0,   None),
            ("frames that may be lost",  3,  2_048, 0,   None),
        ];
        for (name, pri, frames, wake, want) in cases {
            let mut rig = Rig::new();
            rig.turns(90, pri, 0);
            rig.turns(100, pri, frames);
            rig.stats(0).wake_ns.set(wake * 1_000_000);
            let mut found = Vec::new();
            for ms in 100..400 {
                // They go on coming, and nothing takes them out of the ring.
                let step = frames * 100 / RING as u64;
                rig.fill((ms - 100) * step);
                found.extend(rig.looks(ms..ms + 1));
            }
            assert_eq!(found, want.map_or(vec![], |at| refreshed(at, 400_000)), "{name}");
            let both = rig.classes(&[1, 2]);
            assert!(rig.sent.iter().all(|(_, classes, _)| *classes == both), "{name}");
        }
    }

    #[test]
    fn lossless_frames_of_more_than_a_second_ago_pause_nothing() {
        for (last, pauses) in [(1_050, true), (1_150, false)] {
            let mut rig = Rig::new();
            rig.turns(90, 2, 0);
            rig.turns(100, 2, 100);
            rig.turns(last, 2, 0);
            rig.fill(500);
            assert_eq!(!rig.looks(last..last + 100).is_empty(), pauses, "{last}");
        }
    }

    /// A dead worker's peers may send again: the last PAUSE is over soon after 2 s.
    #[test]
    fn a_worker_that_stays_away_holds_up_its_peers_for_two_seconds() {
        for xoff in [false, true] {
            let mut rig = Rig::new();
            rig.turns(90, 2, 0);
            rig.turns(100, 2, 100);
            rig.fill(900);
            let pris = if xoff { PriSet::only(Pri::new(1).unwrap()) } else { PriSet::EMPTY };
            rig.switch.core.assert_xoff(PortId::new(0).unwrap(), pris);
            let found = rig.looks(100..10_000);
            let last = *found.last().unwrap();
            assert!((2_100_000 - HALF_US..2_100_000).contains(&last), "{xoff}: {last}");
            // When it is back after all, it is looked after as before.
            rig.turns(10_000, 2, 100);
            assert_eq!(rig.looks(10_000..10_030).len(), 2, "{xoff}");
        }
    }

    /// A PAUSE of the worker's own stays in force: the guard first refreshes it when half of it is
    /// over.
    #[test]
    fn a_pause_of_the_worker_is_refreshed() {
        let mut rig = Rig::new();
        let (port, pri) = (PortId::new(0).unwrap(), Pri::new(1).unwrap());
        rig.turns(90, 0, 0);
        rig.switch.core.assert_xoff(port, PriSet::only(pri));
        rig.switch.core.note_pause_sent(port, Instant::from_ns(95_000_000));
        rig.turns(100, 0, 50); // frames that may be lost
        let first = (95_000 + HALF_US).next_multiple_of(100);
        assert_eq!(rig.looks(100..300), refreshed(first, 300_000));
        let one = rig.classes(&[1]);
        assert!(rig.sent.iter().all(|(_, classes, _)| *classes == one), "{:?}", rig.sent);
    }

    /// The worker learns once which classes the guard has paused, and the guard sends nothing more
    /// once it is back.
    #[test]
    fn a_worker_that_is_back_learns_what_was_paused() {
        let mut rig = Rig::new();
        let port = PortId::new(0).unwrap();
        rig.turns(90, 2, 0);
        rig.turns(100, 2, 100);
        rig.fill(500);
        let sent = rig.looks(100..125).len();
        assert_eq!(sent, 2);
        let core = rig.switch.core.clone();
        assert!(core.has_guarded());
        assert_eq!(core.take_guarded(port), Some((rig.classes(&[1, 2]), 2)));
        assert_eq!((core.take_guarded(port), core.has_guarded()), (None, false));
        rig.turns(150, 2, 0);
        assert_eq!(rig.looks(150..151), []);
    }

    /// Nothing is sent to a port that is down or without PFC, and a frame that could not be sent is
    /// not reported to the worker.
    #[test]
    fn a_port_that_sends_nothing_is_not_taken_to_be_paused() {
        let away = |change: &dyn Fn(&mut Rig)| {
            let mut rig = Rig::new();
            rig.turns(90, 2, 0);
            rig.turns(100, 2, 2_048);
            rig.fill(1_000);
            change(&mut rig);
            let found = rig.looks(100..150);
            (found.is_empty(), rig.refused > 0, rig.switch.core.has_guarded())
        };
        assert_eq!(away(&|_| {}), (false, false, true));
        assert_eq!(away(&|rig| rig.is_open = false), (true, true, false), "the device refuses");
        let down = |rig: &mut Rig| rig.switch.core.set_up(PortSet::EMPTY);
        assert_eq!(away(&down), (true, false, false), "the link is down");
        let without = |rig: &mut Rig| {
            let mut config = rig.switch.core.snapshot.load().config.clone();
            config.ports[0].pfc = false;
            let next = Snapshot::compile(config, 9).unwrap();
            rig.switch.core.snapshot.store(Arc::new(next));
        };
        assert_eq!(away(&without), (true, false, false), "the port opts out");
    }

    /// The thread hardly ever wakes where there is nothing to guard.
    #[test]
    fn looks_are_rare_where_nothing_lossless_comes() {
        let mut rig = Rig::new();
        rig.turns(90, 3, 100);
        assert_eq!(rig.look(91_000), IDLE);
        rig.turns(110, 2, 100);
        assert_eq!(rig.look(110_500), LOOK);
        assert!(rig.look(112_000) <= LOOK);
    }
}
