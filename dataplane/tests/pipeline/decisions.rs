//! Decisions of the whole pipeline under a seeded mixture of traffic: every frame is accounted for,
//! and the same seed decides the same, whether somebody listens or not.
//!
//! Ports in memory whose frames, room and links a seed draws; the trace hash of two runs.
//!
//! Units: frames, nanoseconds.
//! Source: docs/spec/pipeline.md §10, §13.
#![expect(clippy::unwrap_used, reason = "a test may fail")]
#![expect(
    clippy::cast_possible_truncation,
    clippy::indexing_slicing,
    reason = "small drawn numbers"
)]
#![expect(clippy::struct_field_names, reason = "`drawn` says it best")]

use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

use super::memory;
use weft_base::rng::Rng;
use weft_dataplane::batch::Batch;
use weft_dataplane::config::{MirrorConfig, PfcMode, SwitchConfig, WredConfig};
use weft_dataplane::fdb::{FdbKey, StaticEntry};
use weft_dataplane::groups::Group;
use weft_dataplane::islip::Discipline;
use weft_dataplane::lag::Lag;
use weft_dataplane::pipeline::{
    Built, Core, Lane, Ledger, Switch, SwitchBuilder, Timing, VirtualTimeLane, build,
};
use weft_dataplane::pool::{Bufs, Pool};
use weft_dataplane::port::null::{Null, NullConfig};
use weft_dataplane::port::{Port, PortCaps, PortError, TimedPort};
use weft_dataplane::stats::DropReason;
use weft_dataplane::time::{Instant, LinkRate, Span};
use weft_dataplane::trace::{Event, NoTrace, Trace, Tracer};
use weft_dataplane::types::{PerPri, PortId, PortSet};
use weft_dataplane::vlan::{PortMode, VidSet};
use weft_parsers::{AddrKey, AddrSpace, AfhMode, Vid};

const PORTS: usize = 6;
const SEED: u64 = 0x5EED;

/// A port whose frames and room a generator draws; reads every byte that it is given.
struct Drawn {
    caps: PortCaps,
    index: usize,
    rng: Rng,
    /// Hash of all that was sent, in order, over all ports.
    sent: Arc<AtomicU64>,
    up: bool,
    /// What is drawn anew when time goes on, so that nothing depends on how often the port is asked.
    drawn_at: Option<Instant>,
    room: usize,
    /// A frame of a flow that fills whole bursts.
    flow: Vec<u8>,
}

impl Drawn {
    fn pick<const N: usize>(&mut self, of: [u8; N]) -> u8 {
        of[self.rng.below(N as u64) as usize]
    }

    /// Lets time go on to `now`.
    fn pass(&mut self, now: Instant) {
        if self.drawn_at != Some(now) {
            self.drawn_at = Some(now);
            self.room = self.rng.below(12) as usize;
            self.up = if self.up { !self.rng.chance(1, 3_000) } else { self.rng.chance(1, 20) };
        }
    }

    /// A station's address: mostly of another port, at times unknown, a group, or moved here.
    fn station(&mut self, port: usize) -> [u8; 6] {
        [2, 0, 0, 0, port as u8, self.rng.below(5) as u8]
    }

    fn frame(&mut self) -> Vec<u8> {
        let to = self.rng.below(PORTS as u64 + 1) as usize; // the last one is nobody's
        let mut frame = match self.rng.below(20) {
            0 => vec![0xFF; 6],
            1 => vec![1, 0, 0x5E, 0, 0, self.rng.below(3) as u8],
            2 => vec![1, 0x80, 0xC2, 0, 0, self.rng.below(18) as u8],
            _ => self.station(to).to_vec(),
        };
        let home = if self.rng.chance(1, 50) { 0 } else { self.index };
        frame.extend(self.station(home));
        if self.rng.chance(1, 3) {
            let pcp = self.rng.below(8) as u8;
            let vid = self.pick([0, 1, 5, 7, 9]);
            frame.extend([0x81, 0, pcp << 5, vid]);
        }
        let tos = self.rng.next_u64() as u8;
        match self.rng.below(12) {
            0 => frame.extend([0x08, 0x06, 0, 1]),
            1 | 2 => frame.extend([0x88, 0xB5, 1, 2, 3, 4, 5, 6, 7, 8, 9, 10, 11, 12, 13, 14]),
            3 => frame.extend([0x88, 0xB6, 0x40, 2, 3, 4, 5, 6, 7, 8, 9, 10, 11, 12, 13, 14]),
            4 => frame.extend([0x86, 0xDD, 0x60 | tos >> 4, tos << 4, 0, 0, 0, 8, 17, 64]),
            5 => {
                let quanta = self.pick([0, 0, 1, 8]);
                frame.splice(0..6, [1, 0x80, 0xC2, 0, 0, 1]);
                frame.truncate(12);
                frame.extend([0x88, 0x08, 1, 1, 0, self.rng.next_u64() as u8]);
                frame.extend([quanta; 16]);
            }
            _ => {
                let kind = self.pick([17, 17, 17, 6]);
                frame.extend([0x08, 0, 0x45, tos, 1, 0, 0, 0, 0, 0, 64, kind, 0, 0]);
                frame.extend([10, 0, 0, 1, 10, 0, 0, 2, 0xC0, 0, 0x12, 0xB7, 0, 200, 0, 0, 0x40]);
            }
        }
        let len = match self.rng.below(10) {
            0 => self.rng.below(40) as usize + 14,
            1..=5 => 60 + self.rng.below(100) as usize,
            _ => 60 + self.rng.below(1_462) as usize,
        };
        frame.resize(len, 0);
        frame
    }
}

impl Port for Drawn {
    fn caps(&self) -> &PortCaps {
        &self.caps
    }

    fn rx(&mut self, now: Instant, bufs: &mut Bufs, batch: &mut Batch) -> usize {
        self.pass(now);
        let most = if self.rng.chance(1, 8) { 64 } else { 12 };
        let want = (self.rng.below(most) as usize).min(batch.remaining_capacity());
        if self.flow.is_empty() || self.rng.chance(1, 60) {
            self.flow = self.frame();
        }
        let of_flow = self.rng.chance(1, 3); // all of the burst, or nearly all
        let mut made = 0;
        while made < want {
            let frame = if of_flow && !self.rng.chance(1, 40) {
                let mut frame = self.flow.clone();
                frame.resize(60 + self.rng.below(1_459) as usize, 0);
                frame
            } else {
                self.frame()
            };
            let Some(desc) = bufs.alloc_from(&frame) else { break };
            batch.push(desc);
            made += 1;
        }
        made
    }

    fn tx_room(&mut self, now: Instant) -> usize {
        self.pass(now);
        self.room
    }

    fn tx(&mut self, now: Instant, bufs: &mut Bufs, batch: &mut Batch) -> usize {
        let take = batch.len().min(self.tx_room(now));
        self.room -= take;
        for desc in batch.drain(..take) {
            let bytes = bufs.bytes(&desc).iter().map(|&byte| u64::from(byte));
            let bytes = bytes.fold(self.index as u64, |sum, byte| sum.rotate_left(9) ^ byte);
            let sent = self.sent.load(Ordering::Relaxed).wrapping_mul(0x9E37_79B9_7F4A_7C15);
            self.sent.store(sent ^ bytes, Ordering::Relaxed);
            bufs.free(desc);
        }
        take
    }

    fn service(&mut self, _now: Instant, _bufs: &mut Bufs) -> Result<(), PortError> {
        Ok(())
    }

    fn link_up(&self) -> bool {
        self.up
    }

    fn release(&mut self, _bufs: &mut Bufs) {}
}

impl TimedPort for Drawn {}

fn ports(sent: &Arc<AtomicU64>) -> impl Iterator<Item = Drawn> {
    (0..PORTS).filter_map(PortId::new).map(|port| {
        let rng = Rng::new(SEED + port.index() as u64);
        Drawn {
            caps: memory::caps(),
            index: port.index(),
            rng,
            sent: Arc::clone(sent),
            up: true,
            drawn_at: None,
            room: 0,
            flow: Vec::new(),
        }
    })
}

fn config(pris: usize, cell_bytes: u32) -> SwitchConfig {
    let mut config = memory::config(PORTS, pris, 700, cell_bytes, 8);
    config.ports[4].frame_len_max = 1_400;
    config.ports[4].pfc = false;
    config.ports[5].egress.port_max_rate = LinkRate::bps(900_000_000);
    let group = AddrKey::new(AddrSpace::Ethernet, 0x0100_5E00_0001);
    let ports = PortSet::from_bits(0b10_0110);
    config.forward.groups.push(Group { vid: Vid::from_low_bits(1), addr: group, ports });
    config
}

fn vlans(mut config: SwitchConfig) -> SwitchConfig {
    let vid = Vid::from_low_bits;
    config.ports[1].vlan = PortMode::Access { pvid: vid(7) };
    config.ports[2].vlan =
        PortMode::Trunk { allowed: VidSet::from_iter([1..=9]), native: Some(vid(5)) };
    config.ports[3].parse.afh = AfhMode::Lite;
    config.mirror =
        Some(MirrorConfig { from: PortSet::from_bits(0b10), to: PortId::new(5).unwrap() });
    config.crossbar.discipline = Discipline::Weighted(PerPri([1, 2, 3, 4, 1, 1, 1, 1]));
    config.pfc.mode = PfcMode::EgressQueue { xoff_bytes: 20_000, xon_bytes: 10_000 };
    config
}

/// Ports 1 and 2 are a LAG; a station is behind that and port 3.
fn lag(mut config: SwitchConfig) -> SwitchConfig {
    config.lags = vec![Lag { name: "l0".into(), ports: PortSet::from_bits(0b110) }];
    let station = AddrKey::new(AddrSpace::Ethernet, 0x0200_0000_0301);
    let key = FdbKey::new(Vid::from_low_bits(1), station);
    config.forward.static_entries.extend(StaticEntry::over(key, PortSet::from_bits(0b1010)));
    config
}

/// Without PFC: every frame is lossy.
fn lossy(mut config: SwitchConfig) -> SwitchConfig {
    config.pfc.enabled = false;
    config
}

/// With early drops of priority 0, of senders without ECN, of which the mixture has some.
fn early(mut config: SwitchConfig) -> SwitchConfig {
    let cell = u64::from(config.buffer.cell_bytes);
    let profile = WredConfig { low_bytes: 4 * cell, high_bytes: 40 * cell, max_percent: 60 };
    config.wred = PerPri([Some(profile), None, None, Some(profile), None, None, None, None]);
    config
}

/// A switch and how it is driven.
enum Driven {
    Live(Vec<(Lane, Vec<Box<dyn Port>>)>),
    Virtual(Box<VirtualTimeLane>, Vec<Box<dyn TimedPort>>),
}

impl Driven {
    fn new(
        config: SwitchConfig,
        workers: usize,
        timing: Timing,
        pool: Arc<Pool>,
        sent: &Arc<AtomicU64>,
    ) -> (Arc<Core>, Self) {
        let ports = ports(sent);
        if timing == Timing::Virtual {
            let lane = Box::new(VirtualTimeLane::new(config, &pool).unwrap());
            let ports = ports.map(|port| Box::new(port) as Box<dyn TimedPort>).collect();
            return (lane.core().clone(), Self::Virtual(lane, ports));
        }
        let ports = ports.map(|port| Box::new(port) as Box<dyn Port>).collect();
        let builder = SwitchBuilder::new(ports).config(config).workers(workers);
        let Switch { core, lanes, .. } = builder.pool(pool).build().unwrap();
        (core, Self::Live(lanes))
    }

    fn step<T: Tracer>(&mut self, now: Instant, trace: &mut T) {
        match self {
            Self::Live(lanes) => {
                for (lane, ports) in lanes {
                    lane.step(now, ports, trace);
                }
            }
            Self::Virtual(lane, ports) => {
                lane.step_at(now, VirtualTimeLane::ANY, ports, trace);
            }
        }
    }

    fn stop<T: Tracer>(&mut self, now: Instant, trace: &mut T) {
        match self {
            Self::Live(lanes) => {
                for (lane, ports) in lanes.iter_mut().rev() {
                    lane.stop(now, ports, trace);
                }
            }
            Self::Virtual(lane, ports) => lane.stop(now, ports, trace),
        }
    }
}

/// Runs a switch for `steps` and returns the trace hash, the events and the final ledger.
fn run(config: SwitchConfig, workers: usize, timing: Timing, steps: u64) -> (u64, u64, Ledger) {
    let mut trace = Trace::new(|_, _: &Event| {});
    let (_, ledger) = run_with(config, workers, timing, steps, 4_000, &mut trace);
    (trace.hash(), trace.events(), ledger)
}

/// Runs a switch for `steps` of so many nanoseconds and returns the hash of what was sent and the final
/// ledger.
fn run_with<T: Tracer>(
    config: SwitchConfig,
    workers: usize,
    timing: Timing,
    steps: u64,
    step_ns: u64,
    trace: &mut T,
) -> (u64, Ledger) {
    let pool = Pool::in_memory(2_600, 1_518).unwrap();
    let sent = Arc::new(AtomicU64::new(0));
    let (core, mut driven) = Driven::new(config, workers, timing, pool, &sent);
    let mut now = Instant::ZERO;
    for step in 0..steps {
        now = Instant::from_ns(step * step_ns);
        driven.step(now, trace);
        if step % 64 == 0 {
            assert_eq!(Ledger::read(&core).imbalance(), 0, "step {step}");
        }
    }
    driven.stop(now, trace);
    let ledger = Ledger::read(&core);
    assert_eq!((core.buffer.charged(), ledger.chunks_used), (0, 0), "all is given back");
    assert_eq!(Arc::strong_count(&core), 1 + workers);
    (sent.load(Ordering::Relaxed), ledger)
}

/// A trace sees each frame decided in full; without one, flows that are known and whole bursts go the
/// short way. Both must come to the same.
#[test]
fn an_untraced_switch_decides_as_a_traced_one() {
    #[rustfmt::skip] // columns: name, configuration, workers, timing, ns a step
    let cases = [
        ("live",                config(4, memory::CHUNK),        1, Timing::Live,    4_000),
        ("lossy",               lossy(config(4, memory::CHUNK)), 1, Timing::Live,    4_000),
        ("lossy, small cells",  lossy(config(8, 256)),   1, Timing::Live,    4_000),
        ("early drops",         early(lossy(config(4, memory::CHUNK))), 1, Timing::Live, 4_000),
        ("early, two workers",  early(lossy(config(8, 256))), 2, Timing::Live, 4_000),
        ("old entries go",      lossy(config(4, memory::CHUNK)), 1, Timing::Live,    900_000),
        ("VLANs and a mirror",  vlans(config(4, memory::CHUNK)), 1, Timing::Live,    4_000),
        ("two workers",         lossy(config(4, memory::CHUNK)), 2, Timing::Live,    4_000),
        ("LAG",                 lag(config(4, memory::CHUNK)),   1, Timing::Live,    4_000),
        ("LAG, two workers",    lag(config(8, 256)),     2, Timing::Live,    4_000),
        ("LAG, virtual time",   lag(config(4, 256)),     1, Timing::Virtual, 4_000),
        ("virtual time",        vlans(config(4, 256)),   1, Timing::Virtual, 4_000),
    ];
    for (name, mut config, workers, timing, step_ns) in cases {
        config.forward.ageing = Span::from_ms(900); // stamps are 0.55 s apart
        let traced = &mut Trace::new(|_, _: &Event| {});
        let traced = run_with(config.clone(), workers, timing, 4_000, step_ns, traced);
        let untraced = run_with(config, workers, timing, 4_000, step_ns, &mut NoTrace);
        assert_eq!(untraced.1, traced.1, "{name}");
        assert_eq!(untraced.0, traced.0, "{name}: what was sent");
        let early = traced.1.port.iter().flat_map(|port| &port.pri);
        let early: u64 = early.map(|queue| queue.drops[DropReason::Wred as usize]).sum();
        assert_eq!(early > 0, name.starts_with("early"), "{name}: {early} dropped early");
    }
}

#[test]
fn the_same_seed_decides_the_same_and_accounts_for_every_frame() {
    #[rustfmt::skip] // columns: name, configuration, workers, timing
    let cases = [
        ("live, 4 priorities",  config(4, memory::CHUNK),        1, Timing::Live),
        ("live, small cells",   config(4, 256),          1, Timing::Live),
        ("live, 8 priorities",  config(8, memory::CHUNK),        1, Timing::Live),
        ("VLANs and a mirror",  vlans(config(4, memory::CHUNK)), 1, Timing::Live),
        ("two workers",         config(4, memory::CHUNK),        2, Timing::Live),
        ("LAG",                 lag(config(4, 256)),     1, Timing::Live),
        ("virtual time",        vlans(config(4, 256)),   1, Timing::Virtual),
    ];
    for (name, config, workers, timing) in cases {
        let (hash, events, ledger) = run(config.clone(), workers, timing, 4_000);
        println!("{name}: {hash:016x} of {events} events");
        assert_eq!((ledger.imbalance(), ledger.queued), (0, 0), "{name}");
        assert_eq!((ledger.shared_used, ledger.chunks_used), (0, 0), "{name}");
        let again = run(config, workers, timing, 4_000);
        assert_eq!((hash, events, &ledger), (again.0, again.1, &again.2), "{name}");
        // The mixture reaches what it is there for.
        let sum = |of: &dyn Fn(&weft_dataplane::pipeline::QueueLedger) -> u64| -> u64 {
            ledger.port.iter().flat_map(|port| &port.pri).map(of).sum()
        };
        assert!(ledger.tx > 10_000 && ledger.copies > 1_000, "{name}: {ledger:?}");
        assert!(sum(&|q| q.xoff + q.pause_tx) > 0 && sum(&|q| q.pause_rx) > 0, "{name}");
        assert!(sum(&|q| q.ecn_marked) > 0, "{name}: marks");
        assert!(sum(&|q| q.drops.iter().sum()) > 0, "{name}: drops of a known priority");
    }
}

/// Flows that are known go the short way, and still keep their source from growing old.
#[test]
fn a_station_that_sends_does_not_grow_old() {
    let mut config = lossy(config(4, memory::CHUNK));
    config.forward.ageing = Span::from_ms(2_000);
    config.forward.fdb_capacity = 64; // so that a step looks at all of it
    let pool = Pool::in_memory(2_600, 1_518).unwrap();
    let station = |port: usize| [2, 0, 0, 0, 0, u8::try_from(port).unwrap()];
    let make = |port: PortId| {
        let (to, from) = (station((port.index() + 1) % PORTS), station(port.index()));
        let frame = [&to[..], &from, &[0x88, 0xB7], &[0; 46]].concat();
        let config = NullConfig {
            name: String::new(),
            rate: LinkRate::gbps(10),
            frame_len_max: 1_400,
            templates: vec![frame],
            per_burst: 1,
            limit: None,
        };
        Box::new(Null::generator(config).unwrap()) as Box<dyn Port>
    };
    let ports = (0..PORTS).filter_map(PortId::new).map(make).collect();
    let mut switch = SwitchBuilder::new(ports).config(config).pool(pool).build().unwrap();
    for step in 0..1_000 {
        switch.step(Instant::from_ns(step * 10_000_000));
    }
    let core = &switch.core;
    assert_eq!(core.fdb.counters().aged, 0);
    assert_eq!(core.fdb.counters().learned, PORTS as u64);
    let ledger = Ledger::read(core);
    assert!(ledger.tx >= 1_000 * PORTS as u64, "{ledger:?}");
}

/// Chunks that the switch's own functions hold are counted wherever they are taken and given back.
#[test]
fn chunks_in_use_are_never_more_than_there_are() {
    let pool = Pool::in_memory(2_600, 1_518).unwrap();
    let own: Vec<PortId> = (0..PORTS).filter_map(PortId::new).collect();
    let config = config(4, memory::CHUNK);
    let Built { core, mut lanes } = build(config, &pool, core::slice::from_ref(&own)).unwrap();
    let mut agent = Bufs::new(pool.clone(), 8, 0);
    core.count_chunks(&agent);
    let used = || Ledger::read(&core).chunks_used;
    assert_eq!(used(), 0);
    // What the agent makes, a worker gives back, and the other way round.
    let mut made: Vec<_> = (0..10).map(|_| agent.alloc().unwrap()).collect();
    agent.settle();
    assert_eq!(used(), 10);
    let worker = lanes[0].bufs();
    made.drain(..4).for_each(|desc| assert!(worker.free(desc)));
    worker.settle();
    assert_eq!(used(), 6);
    let came: Vec<_> = (0..20).map(|_| worker.alloc().unwrap()).collect();
    worker.settle();
    assert_eq!(used(), 26);
    made.into_iter().chain(came).for_each(|desc| assert!(agent.free(desc)));
    // Until the agent tells, what it gave back counts as used; never as more than there is.
    assert_eq!(used(), 26);
    agent.settle();
    assert_eq!(used(), 0);
}
