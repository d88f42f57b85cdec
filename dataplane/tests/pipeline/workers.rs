//! Several workers, each a thread of its own: order, losses and books of numbered frames that cross from one to
//! the other.
//!
//! Ports in memory that make frames for each other at several priorities, take them in at a drawn
//! pace, obey PAUSE and check what they are given.
//!
//! Units: frames.
//! Source: ARCHITECTURE.md "The path of a frame"; docs/spec/pipeline.md §4, §5, §9, §10.
#![expect(clippy::unwrap_used, clippy::indexing_slicing, reason = "a test fails that way")]
#![expect(clippy::cast_possible_truncation, reason = "small drawn numbers")]

use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::{Arc, Mutex};

use super::memory;
use weft_base::rng::Rng;
use weft_base::wait::pause;
use weft_dataplane::batch::Batch;
use weft_dataplane::config::{PfcMode, Sharing, SwitchConfig};
use weft_dataplane::fdb::{FdbKey, StaticEntry};
use weft_dataplane::pipeline::{Core, Ledger, Switch, SwitchBuilder};
use weft_dataplane::pool::{Bufs, Pool};
use weft_dataplane::port::{Port, PortCaps, PortError};
use weft_dataplane::stats::DropReason;
use weft_dataplane::time::Instant;
use weft_dataplane::trace::NoTrace;
use weft_dataplane::types::{Alpha, PerPri, PortId, Pri};
use weft_dataplane::worker::{Clock, Poll, Worker, WorkerGroup};
use weft_parsers::mac_control::Pfc;
use weft_parsers::{AddrKey, AddrSpace, Vid};

const PORTS: usize = 5;
const PRIS: usize = 4;
/// Of the default map with 4 priorities, one for each.
const PCP: [u8; PRIS] = [0, 1, 3, 5];

/// What the ports of a switch saw.
#[derive(Default)]
struct Seen {
    /// Set when all links are up: until then no frame is made.
    begun: AtomicBool,
    frames: AtomicU64,
    copies: AtomicU64,
    lost: AtomicU64,
    pauses: AtomicU64,
    faults: Mutex<Vec<String>>,
}

/// Makes numbered frames for the other ports and checks those that it is given.
struct Numbered {
    caps: PortCaps,
    index: usize,
    rng: Rng,
    /// By destination and priority: the next number.
    next: [[u64; PRIS]; PORTS],
    /// By source and priority: the next number that may come.
    due: [[u64; PRIS]; PORTS],
    /// Priorities that a PAUSE stops.
    paused: [bool; PRIS],
    lossless: bool,
    /// At most so many a burst: below what comes, so that queues fill.
    pace: u64,
    seen: Arc<Seen>,
}

fn station(port: usize) -> [u8; 6] {
    [2, 0, 0, 0, 0, port as u8]
}

impl Numbered {
    fn check(&mut self, bytes: &[u8]) -> Result<(), String> {
        if bytes[12..14] == [0x88, 0x08] {
            let pfc = Pfc::parse(bytes).map_err(|error| format!("{error:?}"))?;
            for (pri, &pcp) in PCP.iter().enumerate() {
                if pfc.enable >> pcp & 1 != 0 {
                    self.paused[pri] = pfc.quanta[usize::from(pcp)] > 0;
                }
            }
            self.seen.pauses.fetch_add(1, Ordering::Relaxed);
            return Ok(());
        }
        self.seen.frames.fetch_add(1, Ordering::Relaxed);
        if bytes[0] & 1 != 0 {
            self.seen.copies.fetch_add(1, Ordering::Relaxed);
            return Ok(());
        }
        if bytes[..6] != station(self.index) {
            return Err(format!("port {} got a frame for {:?}", self.index, &bytes[..6]));
        }
        let (from, pcp) = (usize::from(bytes[11]), bytes[14] >> 5);
        let pri = PCP.iter().position(|&known| known == pcp).ok_or("a tag that nobody sent")?;
        let number = u64::from_be_bytes(bytes[18..26].try_into().unwrap());
        let due = &mut self.due[from][pri];
        let gap = number.checked_sub(*due).ok_or_else(|| {
            format!("from {from} to {} at {pri}: {number} after {due}", self.index)
        })?;
        *due = number + 1;
        self.seen.lost.fetch_add(gap, Ordering::Relaxed);
        if gap > 0 && self.lossless && (pri == 1 || pri == 2) {
            return Err(format!("{gap} lossless frames from {from} to {}", self.index));
        }
        Ok(())
    }

    fn frame(&mut self) -> Option<[u8; 64]> {
        let pri = self.rng.below(PRIS as u64) as usize;
        let to = (self.index + 1 + self.rng.below(PORTS as u64 - 1) as usize) % PORTS;
        if self.paused[pri] {
            return None;
        }
        let mut frame = [0; 64];
        frame[..6].copy_from_slice(&station(to));
        frame[6..12].copy_from_slice(&station(self.index));
        frame[12..16].copy_from_slice(&[0x81, 0, PCP[pri] << 5, 0]);
        frame[16..18].copy_from_slice(&[0x88, 0xB7]);
        if self.rng.chance(1, 50) {
            frame[..6].copy_from_slice(&[0xFF; 6]);
        } else {
            let number = &mut self.next[to][pri];
            frame[18..26].copy_from_slice(&number.to_be_bytes());
            *number += 1;
        }
        Some(frame)
    }
}

impl Port for Numbered {
    fn caps(&self) -> &PortCaps {
        &self.caps
    }

    fn rx(&mut self, _now: Instant, bufs: &mut Bufs, batch: &mut Batch) -> usize {
        if !self.seen.begun.load(Ordering::Relaxed) {
            return 0;
        }
        let want = self.rng.below(65) as usize;
        for _ in 0..want.min(batch.remaining_capacity()) {
            let Some(mut desc) = bufs.alloc() else { break };
            match self.frame() {
                Some(frame) => {
                    bufs.space_mut(&mut desc).unwrap()[..64].copy_from_slice(&frame);
                    bufs.set_len(&mut desc, 64);
                    batch.push(desc);
                }
                None => {
                    bufs.free(desc);
                }
            }
        }
        batch.len()
    }

    fn tx_room(&mut self, _now: Instant) -> usize {
        self.rng.below(self.pace) as usize
    }

    fn tx(&mut self, _now: Instant, bufs: &mut Bufs, batch: &mut Batch) -> usize {
        let count = batch.len();
        for desc in batch.drain(..) {
            if let Err(fault) = self.check(bufs.bytes(&desc)) {
                let mut faults = self.seen.faults.lock().unwrap();
                if faults.len() < 10 {
                    faults.push(fault);
                }
            }
            bufs.free(desc);
        }
        count
    }

    fn service(&mut self, _now: Instant, _bufs: &mut Bufs) -> Result<(), PortError> {
        Ok(())
    }

    fn release(&mut self, _bufs: &mut Bufs) {}
}

fn config(lossless: bool) -> SwitchConfig {
    let mut config = memory::config(PORTS, PRIS, 3_000, memory::CHUNK, 150);
    config.pfc.enabled = lossless;
    for port in 0..PORTS {
        let bytes = station(port);
        let bits = bytes.iter().fold(0, |bits, &byte| bits << 8 | u64::from(byte));
        let key = FdbKey::new(Vid::from_low_bits(1), AddrKey::new(AddrSpace::Ethernet, bits));
        let entry = StaticEntry::new(key, PortId::new(port).unwrap());
        config.forward.static_entries.push(entry);
    }
    config
}

fn port(index: usize, lossless: bool, seen: &Arc<Seen>) -> Box<dyn Port> {
    Box::new(Numbered {
        caps: memory::caps(),
        index,
        rng: Rng::new(index as u64),
        next: [[0; PRIS]; PORTS],
        due: [[0; PRIS]; PORTS],
        paused: [false; PRIS],
        lossless,
        pace: 50,
        seen: seen.clone(),
    })
}

/// Whether lossy frames find no room: where marks at the outputs stop what is lossless, the rest may pass.
fn loses(config: &SwitchConfig) -> bool {
    !config.pfc.enabled || config.pfc.mode == PfcMode::IngressPg
}

/// Runs a switch until its ports have been given `frames` frames, and have seen what they are there for;
/// looks at the books in between.
fn run(config: SwitchConfig, workers: usize, frames: u64) -> (Arc<Core>, Arc<Seen>) {
    let (lossless, loses) = (config.pfc.enabled, loses(&config));
    let seen = Arc::new(Seen::default());
    let ports = (0..PORTS).map(|index| port(index, lossless, &seen)).collect();
    let pool = Pool::in_memory(8_000, memory::FRAME_LEN_MAX).unwrap();
    let builder = SwitchBuilder::new(ports).config(config).workers(workers).pool(pool);
    let Switch { core, lanes, spread } = builder.build().unwrap();
    let (group, clock) = (WorkerGroup::new(&spread).unwrap(), Clock::start());
    std::thread::scope(|scope| {
        for (index, (lane, ports)) in lanes.into_iter().enumerate() {
            let worker = Worker::new(index, lane, ports, clock, group.clone(), Poll::Adaptive);
            scope.spawn(move || worker.run());
        }
        let mut looked = 0;
        let have = |count: &AtomicU64| count.load(Ordering::Relaxed);
        let enough = || {
            have(&seen.frames) >= frames
                && (!loses || have(&seen.lost) > 0)
                && (!lossless || have(&seen.pauses) > 10)
        };
        while !enough() && looked < 30_000 {
            let (imbalance, up) =
                group.with_quiesced(|| (Ledger::read(&core).imbalance(), core.up())).unwrap();
            seen.begun.store(up.len() == PORTS, Ordering::Relaxed);
            if imbalance != 0 {
                seen.faults.lock().unwrap().push(format!("books are off by {imbalance}"));
                break;
            }
            looked += 1;
            pause(std::time::Duration::from_millis(1)); // often: looks are part of the test
        }
        group.stop();
    });
    (core, seen)
}

#[test]
fn a_lane_sees_frames_that_others_have_handed_over() {
    let seen = Arc::new(Seen::default());
    seen.begun.store(true, Ordering::Relaxed);
    let ports = (0..PORTS).map(|index| port(index, true, &seen)).collect();
    let pool = Pool::in_memory(8_000, memory::FRAME_LEN_MAX).unwrap();
    let builder = SwitchBuilder::new(ports).config(config(true)).workers(2).pool(pool);
    let mut lanes = builder.build().unwrap().lanes.into_iter();
    let (mut owner, mut near) = lanes.next().unwrap();
    let (mut other, mut far) = lanes.next().unwrap();
    assert!(!owner.has_arrivals() && !other.has_arrivals());
    let (mut up, mut down) = (0, 0);
    for now in (0..100).map(|us| Instant::from_ns(us * 1_000)) {
        other.step(now, &mut far, &mut NoTrace);
        up += u32::from(owner.has_arrivals());
        owner.step(now, &mut near, &mut NoTrace);
        assert!(!owner.has_arrivals(), "a step takes all that is there");
        down += u32::from(other.has_arrivals());
    }
    assert!(up > 0 && down > 0, "{up} times to the crossbar's owner, {down} times from it");
}

#[test]
fn frames_that_cross_between_workers_stay_in_order_and_in_the_books() {
    let reserved = |mut config: SwitchConfig| {
        config.buffer.voq_reserve_cells = 2;
        config
    };
    let fixed = |mut config: SwitchConfig| {
        config.buffer.sharing = Sharing::Static;
        config
    };
    let by_egress = |mut config: SwitchConfig| {
        config.pfc.mode = PfcMode::EgressQueue { xoff_bytes: 35_000, xon_bytes: 17_000 };
        // In this mode room for what comes up to the marks is a matter of configuration.
        config.buffer.alpha = PerPri([-3, 3, 3, -3, 0, 0, 0, 0].map(Alpha::shift));
        config
    };
    #[rustfmt::skip] // columns: name, configuration, workers
    let cases = [
        ("lossy",             config(false),           2),
        ("lossless",          config(true),            2),
        ("lossless",          config(true),            3),
        ("one port a worker", config(true),            5),
        ("reserves",          reserved(config(true)),  2),
        ("static shares",     fixed(config(false)),    2),
        ("egress queues",     by_egress(config(true)), 2),
    ];
    for (name, config, workers) in cases {
        let name = format!("{name}, {workers} workers");
        let (lossless, mode, loses) = (config.pfc.enabled, config.pfc.mode, loses(&config));
        let (core, seen) = run(config, workers, 300_000);
        let ledger = Ledger::read(&core);
        let drops = DropReason::ALL.iter().map(|reason| {
            let count: u64 = ledger.port.iter().map(|port| port.drops[*reason as usize]).sum();
            (reason.name(), count)
        });
        let drops: Vec<_> = drops.filter(|(_, count)| *count > 0).collect();
        println!("{name}: {} sent, dropped {drops:?}", ledger.tx);
        assert_eq!(*seen.faults.lock().unwrap(), Vec::<String>::new(), "{name}");
        assert_eq!((ledger.imbalance(), ledger.queued), (0, 0), "{name}");
        assert_eq!((core.buffer.charged(), ledger.chunks_used), (0, 0), "{name}");
        assert_eq!(ledger.tx, seen.frames.load(Ordering::Relaxed), "{name}");
        let snapshot = core.snapshot.load();
        assert_eq!(core.buffer.shared_used(&snapshot.thresholds), 0, "{name}");
        let queues = || ledger.port.iter().flat_map(|port| Pri::ALL[..PRIS].iter().zip(&port.pri));
        assert!(queues().all(|(_, queue)| queue.depth_watermark > 0), "{name}");
        // The mixture reaches what it is there for.
        assert!(!loses || seen.lost.load(Ordering::Relaxed) > 0, "{name}: lossy frames are lost");
        assert!(seen.copies.load(Ordering::Relaxed) > 1_000, "{name}");
        if lossless {
            assert!(seen.pauses.load(Ordering::Relaxed) > 10, "{name}");
        }
        if lossless && mode == PfcMode::IngressPg {
            assert!(queues().any(|(_, queue)| queue.xoff > 0 && queue.xon > 0), "{name}");
        }
    }
}
