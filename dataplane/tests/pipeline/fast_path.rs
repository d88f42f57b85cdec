//! The fast path's side of the pipeline: gates, and when an input has caught up, on ports in memory; and ports whose queues
//! are held.
//!
//! Ports that a test fills and drains, with a fast path that notes what it is told; one worker
//! and two that take turns.
//!
//! Units: frames, microseconds.
//! Source: docs/express.md "Order".
#![expect(clippy::unwrap_used, clippy::indexing_slicing, reason = "a test fails that way")]

use std::collections::VecDeque;
use std::sync::{Arc, Mutex};

use super::memory;
use weft_base::rng::Rng;
use weft_dataplane::batch::Batch;
use weft_dataplane::config::{EcnConfig, SwitchConfig, WredConfig};
use weft_dataplane::lag::Lag;
use weft_dataplane::pipeline::{Ledger, Switch, SwitchBuilder};
use weft_dataplane::pool::{Bufs, Pool};
use weft_dataplane::port::{FastPath, Port, PortCaps, PortError};
use weft_dataplane::stats::DropReason;
use weft_dataplane::time::{Instant, LinkRate, Span};
use weft_dataplane::trace::NoTrace;
use weft_dataplane::types::{PortId, PortSet, Pri, PriSet};
use weft_parsers::MacAddr;
use weft_parsers::mac_control::{FRAME_LEN, Pfc};

const PORTS: usize = 3;

/// What a test sees and sets of a port.
#[derive(Default)]
struct Wire {
    arriving: VecDeque<Vec<u8>>,
    room: usize,
    is_down: bool,
    /// Frames taken that have not left, and all that left.
    held: Vec<Vec<u8>>,
    sent: usize,
    gate: PriSet,
    received: u64,
    marked: u64,
    drained: u64,
}

type Wires = Arc<Mutex<[Wire; PORTS]>>;

struct Line {
    caps: PortCaps,
    at: usize,
    wires: Wires,
}

impl Line {
    fn with<R>(&self, act: impl FnOnce(&mut Wire) -> R) -> R {
        act(&mut self.wires.lock().unwrap()[self.at])
    }
}

impl Port for Line {
    fn caps(&self) -> &PortCaps {
        &self.caps
    }

    fn rx(&mut self, _now: Instant, bufs: &mut Bufs, batch: &mut Batch) -> usize {
        self.with(|wire| {
            let before = batch.len();
            while !batch.is_full()
                && let Some(frame) = wire.arriving.pop_front()
            {
                batch.push(bufs.alloc_from(&frame).unwrap());
                wire.received += 1;
            }
            batch.len() - before
        })
    }

    fn tx_room(&mut self, _now: Instant) -> usize {
        self.with(|wire| wire.room)
    }

    fn tx(&mut self, _now: Instant, bufs: &mut Bufs, batch: &mut Batch) -> usize {
        self.with(|wire| {
            let count = batch.len().min(wire.room);
            for desc in batch.drain(..count) {
                wire.held.push(bufs.bytes(&desc).to_vec());
                bufs.free(desc);
            }
            wire.room -= count;
            count
        })
    }

    fn sending(&mut self) -> usize {
        self.with(|wire| wire.held.len())
    }

    fn service(&mut self, _now: Instant, _bufs: &mut Bufs) -> Result<(), PortError> {
        Ok(())
    }

    fn link_up(&self) -> bool {
        !self.with(|wire| wire.is_down)
    }

    fn fast_path(&mut self) -> Option<&mut dyn FastPath> {
        Some(self)
    }

    fn release(&mut self, _bufs: &mut Bufs) {}
}

impl FastPath for Line {
    fn set_gate(&mut self, pris: PriSet) {
        self.with(|wire| wire.gate = pris);
    }

    fn mark(&mut self) {
        self.with(|wire| wire.marked = wire.received);
    }

    fn drained(&mut self) {
        self.with(|wire| wire.drained = wire.marked);
    }
}

struct Rig {
    switch: Switch,
    wires: Wires,
    now: Instant,
}

impl Rig {
    fn new(config: SwitchConfig, workers: usize) -> Self {
        let pool = Pool::in_memory(4_000, memory::FRAME_LEN_MAX).unwrap();
        let wires = Wires::default();
        let line = |at| {
            let caps = memory::caps();
            Box::new(Line { caps, at, wires: wires.clone() }) as Box<dyn Port>
        };
        let builder = SwitchBuilder::new((0..PORTS).map(line).collect()).config(config);
        let switch = builder.workers(workers).pool(pool).build().unwrap();
        let mut rig = Self { switch, wires, now: Instant::ZERO };
        rig.steps(2);
        rig
    }

    fn wire<R>(&self, at: usize, act: impl FnOnce(&mut Wire) -> R) -> R {
        act(&mut self.wires.lock().unwrap()[at])
    }

    fn arrive(&self, port: usize, frame: Vec<u8>) {
        self.wire(port, |wire| wire.arriving.push_back(frame));
    }

    /// One step of a lane.
    fn step(&mut self, lane: usize) {
        self.now += Span::from_us(10);
        let (lane, ports) = &mut self.switch.lanes[lane];
        lane.step(self.now, ports, &mut NoTrace);
        assert_eq!(Ledger::read(&self.switch.core).imbalance(), 0);
    }

    fn steps(&mut self, times: usize) {
        for _ in 0..times {
            (0..self.switch.lanes.len()).for_each(|lane| self.step(lane));
        }
    }

    /// What a port holds leaves.
    fn leave(&self, port: usize) {
        self.wire(port, |wire| wire.sent += wire.held.drain(..).count());
    }

    fn gate(&self, port: usize) -> u8 {
        self.wire(port, |wire| wire.gate.bits())
    }

    /// Frames received by a port, and those of them that it was told to be done with.
    fn state(&self, port: usize) -> (u64, u64) {
        self.wire(port, |wire| (wire.received, wire.drained))
    }
}

fn config() -> SwitchConfig {
    let mut config = memory::config(PORTS, 4, 2_000, memory::CHUNK, 8);
    config.pfc.enabled = true;
    config
}

fn frame(to: u8, from: u8) -> Vec<u8> {
    let mut frame = vec![0; 60];
    (frame[0], frame[5], frame[6], frame[11]) = (2, to, 2, from);
    (frame[12], frame[13]) = (0x90, 0);
    frame
}

/// All stations are known: station n is behind port n.
fn known(workers: usize) -> Rig {
    let mut rig = Rig::new(config(), workers);
    for port in 0..PORTS {
        rig.wire(port, |wire| wire.room = 64);
    }
    for port in 0..PORTS {
        rig.arrive(port, frame(0xFE, u8::try_from(port).unwrap()));
    }
    rig.steps(4);
    (0..PORTS).for_each(|port| rig.leave(port));
    rig.steps(4);
    for port in 0..PORTS {
        assert_eq!(rig.state(port), (1, 1), "port {port} has caught up");
        rig.wire(port, |wire| wire.room = 0);
    }
    rig
}

/// An input has caught up when its frame has left, and not while it is queued, or held by the port; by
/// then the gate of the output's priority is open again.
fn catches_up(workers: usize) {
    let mut rig = known(workers);
    rig.arrive(0, frame(1, 0));
    rig.steps(3);
    assert_eq!(rig.state(0), (2, 1), "queued");
    assert_eq!(rig.gate(1) & 1, 0, "one is queued: none may pass it");
    rig.wire(1, |wire| wire.room = 64);
    rig.steps(3);
    assert_eq!(rig.wire(1, |wire| wire.held.len()), 1);
    assert_eq!(rig.state(0), (2, 1), "held by the port");
    assert_eq!(rig.gate(1) & 1, 1, "nothing is queued");
    rig.leave(1);
    rig.steps(2);
    assert_eq!(rig.state(0), (2, 2), "it has left");
}

#[test]
fn an_input_has_caught_up_when_its_frames_have_left() {
    catches_up(1);
}

#[test]
fn so_it_has_when_another_worker_sends_them() {
    catches_up(2);
}

/// What others send by the same output all the time does not keep an input waiting.
#[test]
fn others_at_the_same_output_do_not_keep_it_waiting() {
    let mut rig = known(1);
    rig.wire(1, |wire| wire.room = 640);
    rig.arrive(0, frame(1, 0));
    rig.step(0);
    for _ in 0..6 {
        let left = rig.wire(1, |wire| wire.held.drain(..wire.held.len().min(1)).count());
        assert!(left <= 1);
        rig.arrive(2, frame(1, 2));
        rig.step(0);
        assert!(rig.wire(1, |wire| !wire.held.is_empty()), "there is always one on its way");
    }
    assert_eq!(rig.state(0), (2, 2));
}

/// A lane never says that it is done with a frame that has not left, whatever the order of things.
#[test]
fn nothing_is_said_to_have_left_that_has_not() {
    let mut rng = Rng::new(7);
    for workers in [1, 2] {
        let mut rig = known(workers);
        let (mut in_order, mut sent_before) = (VecDeque::new(), 0);
        let lanes = rig.switch.lanes.len() as u64;
        for round in 0..4_000_u64 {
            match rng.below(6) {
                0 | 1 => {
                    rig.arrive(0, frame(1, 0));
                    in_order.push_back(round);
                }
                2 => rig.wire(1, |wire| wire.room = 2),
                3 => {
                    let sent = rig.wire(1, |wire| {
                        let sent = wire.held.len().min(1);
                        wire.held.drain(..sent);
                        sent
                    });
                    sent_before += sent as u64;
                }
                _ => rig.step(usize::try_from(rng.below(lanes)).unwrap()),
            }
            let (received, done) = rig.state(0);
            assert!(done <= received && done <= sent_before + 1, "round {round}: {done} done");
        }
        rig.wire(1, |wire| wire.room = 1_000_000);
        rig.steps(50);
        rig.leave(1);
        rig.steps(50);
        let (received, done) = rig.state(0);
        assert_eq!((received, received), (in_order.len() as u64 + 1, done), "all are done with");
    }
}

/// Gates follow what the configuration, a PAUSE and the link say.
#[test]
fn gates_are_open_where_nothing_holds_frames_back() {
    let mut rig = known(1);
    assert_eq!((0..PORTS).map(|port| rig.gate(port)).collect::<Vec<_>>(), [0b1111; PORTS]);
    let mut pause = vec![0; FRAME_LEN];
    let mut quanta = [0; 8];
    quanta[3] = 0xFFFF;
    let wire = Pfc { enable: 1 << 3, quanta };
    wire.emit(MacAddr([2, 0, 0, 0, 0, 9]), pause.first_chunk_mut().unwrap());
    rig.arrive(1, pause);
    rig.steps(2);
    assert_ne!(rig.gate(1), 0b1111, "a class is paused");
    assert_eq!(rig.gate(2), 0b1111);
    rig.wire(2, |wire| wire.is_down = true);
    rig.steps(2);
    assert_eq!(rig.gate(2), 0, "its link is down");
    rig.wire(2, |wire| wire.is_down = false);
    rig.steps(2);
    assert_eq!(rig.gate(2), 0b1111);

    let mut shaped = config();
    shaped.ports[0].egress.port_max_rate = Some(LinkRate::gbps(1));
    shaped.lags = vec![Lag { name: "l0".into(), ports: PortSet::from_bits(0b110) }];
    let rig = Rig::new(shaped, 1);
    let gates: Vec<u8> = (0..PORTS).map(|port| rig.gate(port)).collect();
    assert_eq!(gates, [0; PORTS], "a rate, and the links of a LAG");
}

/// Ports 1 and 2 are joined: what leaves by one comes in by the other.
fn turn(rig: &mut Rig, times: usize) -> usize {
    let mut turned = 0;
    for _ in 0..times {
        rig.steps(1);
        for (from, to) in [(1, 2), (2, 1)] {
            let left: Vec<Vec<u8>> = rig.wire(from, |wire| {
                wire.room = 64;
                wire.held.drain(..).collect()
            });
            turned += left.len();
            for frame in left {
                rig.arrive(to, frame);
            }
        }
        rig.leave(0);
    }
    turned
}

/// One broadcast between two joined ports goes round for ever, unless one of them is blocked: for as long as it
/// is told, with its gate shut, its stations forgotten and all that comes in by it dropped and counted.
#[test]
fn a_loop_is_cut_and_opened_again() {
    let rig = |block: bool| {
        let mut looped = config();
        looped.forward.loop_block = block.then_some(Span::from_ms(10));
        looped.forward.sticky = Span::from_ms(10_000);
        let mut rig = Rig::new(looped, 1);
        rig.wire(0, |wire| wire.room = 640);
        rig.steps(2);
        rig
    };
    let mut broadcast = frame(0, 9);
    broadcast[..6].fill(0xFF);

    let mut open = rig(false);
    open.arrive(0, broadcast.clone());
    turn(&mut open, 100);
    assert!(turn(&mut open, 100) > 100, "it goes round for ever");
    assert!(open.switch.core.blocked().is_empty() && !open.switch.core.fdb.loop_ports().is_empty());

    let run = || {
        let mut rig = rig(true);
        rig.arrive(0, broadcast.clone());
        turn(&mut rig, 100);
        assert_eq!(turn(&mut rig, 100), 0, "nothing goes round any more");
        let blocked = rig.switch.core.blocked();
        let cut = blocked.sole().expect("one end is enough").index();
        assert!(cut == 1 || cut == 2, "not the port of the station");
        assert_eq!((rig.gate(cut), rig.gate(0)), (0, 0b1111), "only its gate is shut");
        assert_eq!(rig.switch.core.fdb.learned(PortId::new(cut).unwrap()), 0);
        let ledger = Ledger::read(&rig.switch.core);
        let dropped = ledger.port[cut].drops[DropReason::LoopBlocked as usize];
        assert!(dropped > 0 && ledger.port[cut].loop_blocks == 1, "{dropped}");
        // Others talk on, by the other end too, and are not sent to the blocked port.
        rig.arrive(3 - cut, frame(9, 8));
        rig.arrive(cut, frame(9, 7));
        rig.steps(3);
        assert_eq!(rig.wire(0, |wire| wire.held.len()), 1);
        assert_eq!(rig.wire(cut, |wire| wire.held.len()), 0);
        (cut, dropped, ledger.port[0].tx_frames, rig)
    };
    let (cut, dropped, sent, mut rig) = run();
    let (again, dropped_again, sent_again, _) = run();
    assert_eq!((cut, dropped, sent), (again, dropped_again, sent_again), "the same each time");
    rig.steps(1_100); // 11 ms
    assert!(rig.switch.core.blocked().is_empty());
    assert_eq!(rig.gate(cut), 0b1111);
    rig.leave(0);
    rig.arrive(cut, frame(9, 7));
    rig.steps(3);
    assert_eq!(rig.wire(0, |wire| wire.held.len()), 1, "the port forwards again");
}

/// A frame that ECN could mark although it finds its queue empty does not pass by: marks are the pipeline's.
#[test]
fn gates_are_shut_where_a_lone_frame_may_be_marked() {
    let longest = u64::try_from(config().ports[0].frame_len_max).unwrap();
    let cell = u64::from(config().buffer.cell_bytes);
    let lone = longest.div_ceil(cell) * cell;
    #[rustfmt::skip] // columns: name, enabled, low, high, max_percent, whether gates are open
    let cases = [
        ("off",                       false, 0,        0,        100, true),
        ("all are marked",            true,  0,        0,        100, false),
        ("some are",                  true,  lone - 1, lone * 4, 100, false),
        ("the line begins there",     true,  lone,     lone * 4, 100, true),
        ("none below the high mark",  true,  0,        lone + 1, 0,   true),
        ("all from the high mark on", true,  0,        lone,     0,   false),
    ];
    for (name, enabled, low_bytes, high_bytes, max_percent, open) in cases {
        let mut marking = config();
        marking.ecn = EcnConfig { enabled, low_bytes, high_bytes, max_percent, ..marking.ecn };
        let rig = Rig::new(marking, 1);
        let want = if open { 0b1111 } else { 0 };
        let gates: Vec<u8> = (0..PORTS).map(|port| rig.gate(port)).collect();
        assert_eq!(gates, [want; PORTS], "{name}");
    }
    for (name, low_bytes, want) in [("dropped early", lone - 1, 0), ("not yet", lone, 0b1111)] {
        let mut early = config();
        early.ecn.enabled = false;
        let profile = WredConfig { low_bytes, high_bytes: lone * 4, max_percent: 100 };
        early.wred[Pri::default()] = Some(profile);
        let rig = Rig::new(early, 1);
        assert_eq!(rig.gate(1), want, "{name}");
    }
}

/// Holds the queues of `ports`, or lets them go.
fn set_tx_off(rig: &Rig, ports: PortSet) {
    let old = rig.switch.core.snapshot.load();
    let next = old.succeed(SwitchConfig { tx_off: ports, ..old.config.clone() }).unwrap();
    rig.switch.core.snapshot.store(Arc::new(next));
}

/// A frame of priority 2, which is lossless.
fn lossless(to: u8, from: u8, number: u8) -> Vec<u8> {
    let mut frame = frame(to, from);
    frame.splice(12..12, [0x81, 0x00, 3 << 5, 1]);
    frame[30] = number;
    frame
}

/// What an output has is held, and nothing else; PAUSE for what piles up is sent still, by a held port, too; all leaves in
/// order when the port sends again.
fn holds(workers: usize) {
    let mut rig = known(workers);
    let one = PortId::new(1).unwrap();
    rig.wire(1, |wire| wire.room = 64);
    rig.arrive(0, frame(1, 0));
    rig.steps(3);
    set_tx_off(&rig, PortSet::from_bits(0b011));
    rig.steps(2);
    assert_eq!(rig.switch.core.tx_off(), PortSet::from_bits(0b011));
    assert_eq!(rig.switch.core.sending(one), 1, "the port still has what it took before");
    rig.leave(1);
    rig.steps(1);
    assert_eq!(rig.switch.core.sending(one), 0);
    assert_eq!((rig.gate(0), rig.gate(1), rig.gate(2)), (0, 0, 0b1111));

    for port in 0..PORTS {
        rig.wire(port, |wire| wire.room = 100_000);
    }
    let mut sent = 0_u64;
    while Ledger::read(&rig.switch.core).port[0].pfc_tx == 0 {
        let number = u8::try_from(sent % 251).unwrap();
        rig.arrive(0, lossless(1, 0, number));
        sent += 1;
        assert!(sent < 10_000, "a group crosses XOFF");
        rig.steps(1);
    }
    rig.arrive(0, frame(2, 0));
    rig.steps(300); // 3 ms: PAUSE is sent again
    let ledger = Ledger::read(&rig.switch.core);
    assert_eq!(rig.wire(1, |wire| wire.held.len()), 0, "nothing leaves");
    assert_eq!(rig.wire(2, |wire| wire.held.len()), 1, "others do");
    let paused = rig.wire(0, |wire| wire.held.len());
    assert!(paused > 1 && ledger.port[0].pfc_tx == paused as u64, "{paused} of PFC, nothing else");
    assert_eq!((ledger.dropped, ledger.queued), (0, sent));
    let (of_two, of_zero) = (&ledger.port[1].pri[2], &ledger.port[0].pri[2]);
    assert_eq!((of_two.depth, of_two.depth_watermark, of_two.paused_ps), (sent, sent, 0));
    assert_eq!(of_zero.pg_used + of_zero.headroom_used, sent);
    assert_eq!((ledger.headroom_used, ledger.headroom_watermark), (1, 1), "the one above XOFF");
    let reserve = rig.switch.core.snapshot.load().plan.reserves;
    assert!(ledger.shared_watermark <= sent && ledger.shared_watermark + reserve >= sent - 1);

    set_tx_off(&rig, PortSet::EMPTY);
    rig.steps(usize::try_from(sent).unwrap());
    assert!(rig.switch.core.tx_off().is_empty());
    let numbers: Vec<u8> = rig.wire(1, |wire| wire.held.iter().map(|frame| frame[30]).collect());
    let want: Vec<u8> = (0..sent).map(|n| u8::try_from(n % 251).unwrap()).collect();
    assert_eq!(numbers, want, "all, in order");
    assert_eq!((rig.gate(0), Ledger::read(&rig.switch.core).dropped), (0b1111, 0));
}

#[test]
fn queues_that_are_held_lose_nothing_and_leak_nothing() {
    holds(1);
}

#[test]
fn so_they_do_with_another_worker() {
    holds(2);
}
