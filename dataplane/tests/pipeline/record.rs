//! A recorded run of the whole pipeline does the same again from its record alone.
//!
//! Ports whose every answer a seed draws, long times of nothing between; the record of the run;
//! a second switch that has only that.
//!
//! Units: frames, nanoseconds.
//! Source: docs/spec/pipeline.md §13.
#![expect(clippy::unwrap_used, reason = "a test may fail")]
#![expect(
    clippy::cast_possible_truncation,
    clippy::indexing_slicing,
    reason = "small drawn numbers"
)]

use std::io::{self, Write};
use std::sync::{Arc, Mutex};

use weft_base::rng::Rng;
use weft_dataplane::batch::Batch;
use weft_dataplane::config::{LiveSizes, PfcMode, StormAction, SwitchConfig};
use weft_dataplane::desc::Desc;
use weft_dataplane::pipeline::{Built, Core, Lane, Ledger, build};
use weft_dataplane::pool::{Bufs, PartialCsum, Pool};
use weft_dataplane::port::record::{Answer, Call, Entry, RecordReader, Recorded, Recorder, Script};
use weft_dataplane::port::{Port, PortCaps, PortCounters, PortError};
use weft_dataplane::stats::DropReason;
use weft_dataplane::time::{Instant, LinkRate, Span};
use weft_dataplane::trace::Event;
use weft_dataplane::types::{Alpha, PortId};
use weft_dataplane::worker::{Divergence, Recording, Replaying};
use weft_parsers::MacAddr;

const PORTS: usize = 5;
const STEPS: u64 = 6_000;

/// A port that answers anything, whatever the time: it holds chunks, loses frames, goes down.
struct Whim {
    caps: PortCaps,
    index: u8,
    rng: Rng,
    /// Asks for nothing while this is above 0.
    quiet: u32,
    up: bool,
    held: Vec<Desc>,
    counters: PortCounters,
}

impl Whim {
    fn frame(&mut self) -> Vec<u8> {
        let mut draw = |below: u64| self.rng.below(below) as u8;
        if draw(8) == 0 {
            let quanta = [0, 0, 1, 40, 255][usize::from(draw(5))];
            let mut frame = vec![1, 0x80, 0xC2, 0, 0, 1, 2, 0, 0, 0, self.index, 9];
            frame.extend([0x88, 0x08, 1, 1, 0, draw(255)]);
            frame.extend([quanta, 200].repeat(8));
            frame.resize(60, 0);
            return frame;
        }
        let to = draw(7); // two are nobody's
        let mut frame = if to == 6 { vec![0xFF; 6] } else { vec![2, 0, 0, 0, to, draw(3)] };
        let home = if draw(40) == 0 { draw(5) } else { self.index };
        frame.extend([2, 0, 0, 0, home, draw(3)]);
        frame.extend([0x81, 0, draw(8) << 5, 1, 8, 0, 0x45, draw(4), 0, 100, 0, 0, 0, 0, 64, 17]);
        frame.extend([0, 0, 10, 0, 0, 1, 10, 0, 0, 2, 0xC0, 0, 0x12, 0xB7, 0, 80, 0, 0, 0x40]);
        let len = 60 + usize::from(draw(255)) * usize::from(draw(6));
        frame.resize(len, draw(255));
        frame
    }
}

impl Port for Whim {
    fn caps(&self) -> &PortCaps {
        &self.caps
    }

    fn rx(&mut self, _now: Instant, bufs: &mut Bufs, batch: &mut Batch) -> usize {
        if self.quiet > 0 {
            self.quiet -= 1;
            if self.rng.chance(1, 10) {
                self.held.extend(bufs.alloc()); // nobody sees that
            }
            return 0;
        }
        if self.rng.chance(1, 6) {
            self.quiet = self.rng.below(80) as u32;
        }
        for _ in 0..self.rng.below(4) {
            self.held.extend(bufs.alloc());
        }
        let before = batch.len();
        for _ in 0..self.rng.below(30).min(batch.remaining_capacity() as u64) {
            let frame = self.frame();
            let Some(mut desc) = bufs.alloc_from(&frame) else {
                self.counters.rx_drop(DropReason::Pool);
                continue;
            };
            if self.rng.chance(1, 4)
                && let Some((chunk, start)) = bufs.chunk_mut(&mut desc)
            {
                chunk.copy_within(start..start + frame.len(), start - 4);
                bufs.set_bounds(&mut desc, start - 4, frame.len());
            }
            let partial = PartialCsum { start: 38, offset: 6 };
            bufs.set_partial_csum(&mut desc, self.rng.chance(1, 5).then_some(partial));
            batch.push(desc);
        }
        if self.held.len() > 20 {
            for desc in self.held.drain(..15) {
                bufs.free(desc);
            }
        }
        batch.len() - before
    }

    fn tx_room(&mut self, _now: Instant) -> usize {
        self.rng.below(20) as usize
    }

    fn tx(&mut self, _now: Instant, bufs: &mut Bufs, batch: &mut Batch) -> usize {
        let take = self.rng.below(batch.len() as u64 + 1) as usize;
        for desc in batch.drain(..take) {
            bufs.free(desc);
        }
        self.counters.tx_failed += u64::from(take > 0 && self.rng.chance(1, 50));
        take
    }

    fn service(&mut self, now: Instant, bufs: &mut Bufs) -> Result<(), PortError> {
        let change = if self.up { (1, 400) } else { (1, 10) };
        self.up ^= self.rng.chance(change.0, change.1);
        self.counters.kernel_rx += u64::from(self.rng.chance(1, 100));
        if now > Instant::ZERO
            && self.rng.chance(1, 20)
            && let Some(desc) = self.held.pop()
        {
            bufs.free(desc);
        }
        Ok(())
    }

    fn link_up(&self) -> bool {
        self.up
    }

    fn counters(&self) -> PortCounters {
        self.counters
    }

    fn release(&mut self, bufs: &mut Bufs) {
        for desc in self.held.drain(..) {
            bufs.free(desc);
        }
    }
}

/// What was written, for a look at it later.
#[derive(Clone, Default)]
struct Memory(Arc<Mutex<Vec<u8>>>);

impl Write for Memory {
    fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
        self.0.lock().unwrap().extend_from_slice(bytes);
        Ok(bytes.len())
    }

    fn flush(&mut self) -> io::Result<()> {
        Ok(())
    }
}

fn caps() -> PortCaps {
    PortCaps {
        kind: "test",
        device: String::new(),
        frame_len_max: 1_518,
        rate: LinkRate::gbps(1),
        tx_partial_csum: true,
        virtual_time: false,
    }
}

fn config(seed: u64) -> SwitchConfig {
    let names = (0..PORTS).map(|port| format!("p{port}")).collect();
    let sizes = LiveSizes {
        names,
        rate: LinkRate::gbps(1),
        pris: if seed.is_multiple_of(2) { 4 } else { 8 },
        cells: 400,
        cell_bytes: 1_728,
        headroom_cells: 6,
        frame_len_max: 1_518,
    };
    let mut config = SwitchConfig::live(&sizes);
    config.seed = seed;
    config.ports[3].egress.port_max_rate = LinkRate::bps(40_000_000);
    config.ports[4].egress.pri_max_rate.0[2] = LinkRate::bps(5_000_000);
    config.forward.ageing = Span::from_ms(1_000);
    config.forward.fdb_capacity = 256;
    config.forward.loop_probes = true;
    config.forward.probe_key = [seed, 41];
    for (number, port) in (0..).zip(&mut config.ports) {
        port.parse.port_mac = MacAddr([2, 0, 0, 0, 9, number]);
    }
    config.pfc.watchdog_detect = Span::from_ms(20);
    config.pfc.watchdog_restore = Span::from_ms(30);
    if seed % 3 == 1 {
        config.pfc.mode = PfcMode::EgressQueue { xoff_bytes: 20_000, xon_bytes: 10_000 };
        config.pfc.watchdog_action = StormAction::Forward;
    }
    config
}

/// A lane over a pool that is at times empty.
fn switch(seed: u64) -> Lane {
    let pool = Pool::in_memory(300 + (seed % 4) as usize * 100, 1_518).unwrap();
    let spread = [(0..PORTS).filter_map(PortId::new).collect()];
    let Built { lanes, .. } = build(config(seed), &pool, &spread).unwrap();
    lanes.into_iter().next().unwrap()
}

/// What control does, both times: a new configuration, or an entry less.
fn change(core: &Core, text: &[u8]) {
    let old = core.snapshot.load_full();
    let mut config = old.config.clone();
    config.ecn.enabled = text[0].is_multiple_of(2);
    config.buffer.alpha.0[1] = Alpha::shift((text[0] % 3).cast_signed());
    config.forward.flood_unknown = !text[0].is_multiple_of(4);
    core.snapshot.store(Arc::new(old.succeed(config).unwrap()));
    core.fdb.flush_port(PortId::new(usize::from(text[0] % 5)).unwrap());
}

struct Run {
    bytes: Vec<u8>,
    trace_hash: u64,
    events: u64,
    ledger: Ledger,
    did: u64,
}

fn record(seed: u64, steps: u64) -> Run {
    let memory = Memory::default();
    let recorder = Recorder::start(Box::new(memory.clone()), b"", PORTS, Box::new(|_| {})).unwrap();
    let mut lane = switch(seed);
    let mut ports: Vec<Box<dyn Port>> = (0..PORTS)
        .map(|index| -> Box<dyn Port> {
            let whim = Whim {
                caps: caps(),
                index: index as u8,
                rng: Rng::new(seed << 8 | index as u64),
                quiet: 0,
                up: false,
                held: Vec::new(),
                counters: PortCounters::default(),
            };
            Box::new(Recorded::new(whim, index, recorder.clone()))
        })
        .collect();
    let mut rng = Rng::new(seed);
    let mut recording = Recording::new(recorder.clone());
    let (mut now, mut did) = (Instant::ZERO, 0);
    for n in 0..steps {
        let step = recording.step(&mut lane, now, &mut ports);
        did += u64::from(step.work > 0);
        let long = [1, 1_000, 40_000, 3_000_000][rng.below(4) as usize];
        now = match step.next {
            // As a worker that sleeps no longer than to the next timer, and one that spins.
            Some(next) if rng.chance(1, 2) && next > now => next,
            _ => now + Span::from_ns(1 + rng.below(long)),
        };
        if n % 701 == 700 {
            let text = [rng.below(200) as u8];
            recorder.change(&text);
            change(lane.core(), &text);
        }
        assert_eq!(Ledger::read(lane.core()).imbalance(), 0, "seed {seed} step {n}");
    }
    recording.stop(&mut lane, now, &mut ports);
    let ledger = Ledger::read(lane.core());
    let summary = recorder.finish(b"");
    let bytes = memory.0.lock().unwrap().clone();
    assert_eq!(summary.bytes, bytes.len() as u64);
    let (trace_hash, events) = (summary.trace_hash.unwrap(), summary.events);
    Run { bytes, trace_hash, events, ledger, did }
}

/// What a replay comes to.
#[derive(Debug)]
struct Again {
    trace_hash: u64,
    events: u64,
    ledger: Ledger,
    steps: u64,
    /// Calls after which the reserve for control frames was not whole.
    short: u64,
}

fn is_short(call: &Call) -> bool {
    match &call.answer {
        Answer::Rx(_, pool) | Answer::Tx(_, pool) | Answer::Service(pool) => pool.short > 0,
        _ => false,
    }
}

fn replay(seed: u64, bytes: &[u8]) -> Result<Again, Divergence> {
    let script = Script::new(PORTS, None);
    let mut again =
        Replaying::new(switch(seed), vec![caps(); PORTS], script.clone(), |_, _: &Event| {});
    let (mut reader, _) = RecordReader::new(bytes).unwrap();
    let mut short = 0;
    while let Some(entry) = reader.next_entry().unwrap() {
        match entry {
            Entry::Step { now, calls, digest } => {
                short += calls.iter().filter(|call| is_short(call)).count() as u64;
                again.step(now, calls, digest)?;
            }
            Entry::Change(text) => change(again.core(), &text),
            Entry::Stop { now, calls, trace_hash, sent_hash, .. } => {
                again.stop(now, calls)?;
                assert_eq!((again.trace_hash(), script.sent_hash()), (trace_hash, sent_hash));
            }
            Entry::Counts(_) => {}
        }
    }
    Ok(Again {
        trace_hash: again.trace_hash(),
        events: again.events(),
        ledger: Ledger::read(again.core()),
        steps: again.steps(),
        short,
    })
}

#[test]
fn a_record_decides_the_same_again() {
    let seeds = std::env::var("WEFT_SEED").ok().and_then(|seed| seed.parse::<u64>().ok());
    let seeds = seeds.map_or(1..13, |seed| seed..seed + 1);
    let (mut all, mut short) = (Vec::new(), 0);
    for seed in seeds.clone() {
        let run = record(seed, STEPS);
        let again = replay(seed, &run.bytes).unwrap_or_else(|e| panic!("seed {seed}: {e}"));
        println!("seed {seed}: {} steps did something, {} are in the record", run.did, again.steps);
        assert_eq!((again.trace_hash, again.events), (run.trace_hash, run.events), "seed {seed}");
        assert_eq!(again.ledger, run.ledger, "seed {seed}");
        assert!(again.steps < STEPS, "seed {seed}: steps of nothing have no entry");
        all.extend(run.ledger.port);
        short += again.short;
    }
    // The mixture reaches what it is there for.
    let ports =
        |of: &dyn Fn(&weft_dataplane::pipeline::PortLedger) -> u64| all.iter().map(of).sum::<u64>();
    let pris = |of: &dyn Fn(&weft_dataplane::pipeline::QueueLedger) -> u64| {
        ports(&|port| port.pri.iter().map(of).sum())
    };
    let drops = |reason: DropReason| ports(&|port| port.drops[reason as usize]);
    let reached = [
        ("sent", ports(&|p| p.tx_frames)),
        ("PAUSE received", pris(&|q| q.pause_rx)),
        ("PAUSE sent", pris(&|q| q.pause_tx)),
        ("storms", pris(&|q| q.storms)),
        ("marks", pris(&|q| q.ecn_marked)),
        ("moves", ports(&|p| p.fdb_moves)),
        ("loop probes", ports(&|p| p.loop_probes)),
        ("reserve drawn upon", short),
        ("failed", drops(DropReason::TxError)),
        ("no chunk", drops(DropReason::Pool)),
        ("link down", drops(DropReason::PortDown)),
    ];
    println!("{reached:?}");
    for (name, count) in reached {
        assert!(count > 0 || seeds.end == seeds.start + 1, "{name} was not reached");
    }
}

/// An address of a received frame, changed in the record, shows; and so does another switch.
#[test]
fn a_changed_record_is_told_from_the_run() {
    let run = record(5, 400);
    assert!(replay(5, &run.bytes).is_ok());
    let from_to = |w: &[u8]| w.starts_with(&[2, 0, 0, 0]) && w[6..].starts_with(&[2, 0, 0, 0]);
    let at = run.bytes.windows(12).rposition(from_to).unwrap();
    let mut flipped = run.bytes.clone();
    flipped[at + 5] ^= 1;
    let error = replay(5, &flipped).unwrap_err();
    println!("{error}");
    assert!(error.step > 0, "{error}");
    assert!(replay(6, &run.bytes).is_err(), "another switch");
}
