//! A whole switch in memory: ports are queues that a test fills and empties.
//!
//! [`Rig`] drives one lane at times that the caller chooses; [`Rig::finish`] closes the books.
//!
//! Source: docs/spec/pipeline.md §10.

use std::collections::VecDeque;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use weft_dataplane::batch::Batch;
use weft_dataplane::config::{LiveSizes, SwitchConfig};
use weft_dataplane::pipeline::{Core, Lane, Ledger, PortLedger, build};
use weft_dataplane::pool::{Bufs, Pool};
use weft_dataplane::port::{Port, PortCaps, PortCounters, PortError};
use weft_dataplane::stats::DropReason;
use weft_dataplane::time::{Instant, LinkRate, Span};
use weft_dataplane::trace::NoTrace;
use weft_dataplane::types::PortId;
use weft_parsers::MacAddr;

/// State that a port shares with its test.
#[derive(Debug)]
struct Wire {
    arriving: VecDeque<Vec<u8>>,
    up: bool,
    /// Frames that the port still takes.
    room: usize,
    counters: PortCounters,
    /// Frames handed to the switch, including those that it had no room for.
    received: u64,
    /// Frames taken from the switch, except its own PFC frames, and their bytes.
    sent: u64,
    sent_bytes: u64,
    /// PFC frames taken from the switch.
    sent_pfc: u64,
}

struct MemoryPort {
    caps: PortCaps,
    wire: Arc<Mutex<Wire>>,
}

fn lock(wire: &Mutex<Wire>) -> MutexGuard<'_, Wire> {
    wire.lock().unwrap_or_else(PoisonError::into_inner)
}

/// Whether `frame` is PFC, which only the switch itself sends: it never forwards one.
fn is_pfc(frame: &[u8]) -> bool {
    frame.starts_with(&MacAddr::PAUSE.0) && frame.get(12..14) == Some(&[0x88, 0x08])
}

impl Port for MemoryPort {
    fn caps(&self) -> &PortCaps {
        &self.caps
    }

    fn rx(&mut self, _now: Instant, bufs: &mut Bufs, batch: &mut Batch) -> usize {
        let mut wire = lock(&self.wire);
        let before = batch.len();
        while wire.up && !batch.is_full() {
            let Some(frame) = wire.arriving.pop_front() else { break };
            wire.received += 1;
            match bufs.alloc_from(&frame) {
                Some(desc) => batch.push(desc),
                // counted by the port, as the frame never reaches the switch
                None if frame.len() > bufs.room() => wire.counters.rx_drop(DropReason::TooLong),
                None => wire.counters.rx_drop(DropReason::Pool),
            }
        }
        batch.len() - before
    }

    fn tx_room(&mut self, _now: Instant) -> usize {
        lock(&self.wire).room
    }

    fn tx(&mut self, _now: Instant, bufs: &mut Bufs, batch: &mut Batch) -> usize {
        let mut wire = lock(&self.wire);
        let count = batch.len().min(wire.room);
        for desc in batch.drain(..count) {
            let frame = bufs.bytes(&desc);
            if is_pfc(frame) {
                wire.sent_pfc += 1;
            } else {
                wire.sent += 1;
                wire.sent_bytes += frame.len() as u64;
            }
            bufs.free(desc);
        }
        wire.room -= count;
        count
    }

    fn service(&mut self, _now: Instant, _bufs: &mut Bufs) -> Result<(), PortError> {
        Ok(())
    }

    fn link_up(&self) -> bool {
        lock(&self.wire).up
    }

    fn counters(&self) -> PortCounters {
        lock(&self.wire).counters
    }

    fn release(&mut self, _bufs: &mut Bufs) {}
}

/// Longest frame of the rig's ports.
pub const FRAME_LEN_MAX: usize = 1_518;

/// A switch with its ports in memory.
pub struct Rig {
    core: Arc<Core>,
    lane: Lane,
    ports: Vec<Box<dyn Port>>,
    wires: Vec<Arc<Mutex<Wire>>>,
    now: Instant,
    chunks_at_start: u64,
}

impl Rig {
    /// The defaults of a live switch with `ports` ports, `pris` priorities and a small buffer, so
    /// that thresholds, PFC, a full FDB and an empty pool are all reached.
    #[must_use]
    pub fn config(ports: usize, pris: usize) -> SwitchConfig {
        let mut config = SwitchConfig::live(&LiveSizes {
            names: (0..ports).map(|port| format!("p{port}")).collect(),
            rate: LinkRate::gbps(100),
            pris,
            cells: 512,
            cell_bytes: 1_916,
            headroom_cells: 8,
            frame_len_max: FRAME_LEN_MAX,
        });
        config.forward.fdb_capacity = 256;
        // Any station sends from any port: blocked ports would keep frames from the rest of the pipeline.
        config.forward.loop_block = None;
        config.forward.sticky = Span::ZERO;
        config
    }

    /// A switch of `config` with a pool of `chunks` chunks.
    ///
    /// # Panics
    /// `config` contradicts itself: it is the test's own.
    #[must_use]
    pub fn new(config: SwitchConfig, chunks: usize) -> Self {
        let ids: Vec<PortId> = (0..config.ports.len()).filter_map(PortId::new).collect();
        let rates: Vec<LinkRate> = config.ports.iter().map(|port| port.rate).collect();
        let pool = Pool::in_memory(chunks, FRAME_LEN_MAX).expect("a pool of the test's size");
        let built = build(config, &pool, &[ids]);
        let mut built = built.expect("a configuration of the test's own");
        let wire = || Wire {
            arriving: VecDeque::new(),
            up: true,
            room: 0,
            counters: PortCounters::default(),
            received: 0,
            sent: 0,
            sent_bytes: 0,
            sent_pfc: 0,
        };
        let wires: Vec<_> = rates.iter().map(|_| Arc::new(Mutex::new(wire()))).collect();
        let port = |(wire, rate): (&Arc<Mutex<Wire>>, &LinkRate)| {
            let caps = PortCaps {
                kind: "memory",
                device: "memory".to_owned(),
                frame_len_max: FRAME_LEN_MAX,
                rate: *rate,
                tx_partial_csum: false,
                virtual_time: false,
            };
            Box::new(MemoryPort { caps, wire: Arc::clone(wire) }) as Box<dyn Port>
        };
        let ports = wires.iter().zip(&rates).map(port).collect();
        // chunks that the switch holds from its start on are not its frames'
        let chunks_at_start = built.core.chunks_used();
        let lane = built.lanes.remove(0);
        Self { core: built.core, lane, ports, wires, now: Instant::ZERO, chunks_at_start }
    }

    #[must_use]
    pub const fn core(&self) -> &Arc<Core> {
        &self.core
    }

    #[must_use]
    pub const fn now(&self) -> Instant {
        self.now
    }

    #[must_use]
    pub const fn ports(&self) -> usize {
        self.wires.len()
    }

    fn wire(&self, port: usize) -> MutexGuard<'_, Wire> {
        lock(&self.wires[port % self.wires.len()])
    }

    /// Lets `frame` arrive at `port` with the next step.
    pub fn arrive(&self, port: usize, frame: &[u8]) {
        self.wire(port).arriving.push_back(frame.to_vec());
    }

    /// Lets `port` take `count` more frames.
    pub fn open(&self, port: usize, count: usize) {
        let mut wire = self.wire(port);
        wire.room = wire.room.saturating_add(count).min(1 << 20);
    }

    /// Takes the link of `port` down or up.
    pub fn set_link(&self, port: usize, up: bool) {
        self.wire(port).up = up;
    }

    /// Whether the link of `port` is up.
    #[must_use]
    pub fn link(&self, port: usize) -> bool {
        self.wire(port).up
    }

    /// Lets `span` pass and drives the switch once; returns the work that it did.
    pub fn step(&mut self, span: Span) -> usize {
        self.now += span;
        self.lane.step(self.now, &mut self.ports, &mut NoTrace).work
    }

    /// Compares the books with the counts of the ports.
    ///
    /// # Panics
    /// A frame is not accounted for.
    #[expect(clippy::must_use_candidate, reason = "most callers only want it to hold")]
    pub fn check(&self) -> Ledger {
        let ledger = Ledger::read(&self.core);
        assert_eq!(ledger.output_imbalance(), 0, "drops that are missing at outputs");
        assert_eq!(ledger.imbalance(), 0, "frames that nobody accounts for: {}", sums(&ledger));
        let wires =
            |of: &dyn Fn(&Wire) -> u64| self.wires.iter().map(|w| of(&lock(w))).sum::<u64>();
        let ports = |of: &dyn Fn(&PortLedger) -> u64| ledger.port.iter().map(of).sum::<u64>();
        assert_eq!(ledger.rx, wires(&|w| w.received), "every frame that arrived was counted");
        let sent = (wires(&|w| w.sent), wires(&|w| w.sent_bytes));
        let counted = (ledger.tx, ports(&|p| p.tx_bytes));
        assert_eq!(counted, sent, "every frame that left was counted: {}", sums(&ledger));
        // counted when the switch makes them; some may not have left
        assert!(wires(&|w| w.sent_pfc) <= ports(&|p| p.pfc_tx), "every PFC frame was counted");
        assert!(ledger.shared_used <= ledger.shared_total, "the shared buffer is not overdrawn");
        assert!(ledger.chunks_used <= ledger.chunks, "the pool is not overdrawn");
        ledger
    }

    /// Stops the switch and closes the books: no frame queued, no cell and no chunk in use.
    ///
    /// # Panics
    /// Something is left.
    pub fn finish(mut self) -> Ledger {
        self.lane.stop(self.now, &mut self.ports, &mut NoTrace);
        let ledger = self.check();
        assert_eq!(ledger.queued, 0, "queues of a stopped switch are empty");
        assert_eq!(ledger.shared_used, 0, "cells of a stopped switch are free");
        for (port, counts) in ledger.port.iter().enumerate() {
            for (pri, queue) in counts.pri.iter().enumerate() {
                let left = (queue.depth, queue.pg_used, queue.headroom_used);
                assert_eq!(left, (0, 0, 0), "port {port} priority {pri}");
            }
        }
        assert_eq!(ledger.chunks_used, self.chunks_at_start, "chunks of a stopped switch are free");
        ledger
    }
}

fn sums(ledger: &Ledger) -> String {
    let Ledger { rx, copies, tx, dropped, consumed, queued, .. } = ledger;
    format!("rx {rx} copies {copies} tx {tx} dropped {dropped} consumed {consumed} queued {queued}")
}
