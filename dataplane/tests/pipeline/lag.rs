//! LAGs and stations behind several ports in the whole pipeline: one link a flow, in order, and no frame
//! back or twice.
//!
//! Ports in memory that a test fills, opens and takes down; all that left, in order.
//!
//! Units: frames, nanoseconds.
//! Source: IEEE 802.1AX-2020 6.1.1 (order, no duplication); docs/spec/pipeline.md §3.
#![expect(
    clippy::unwrap_used,
    clippy::indexing_slicing,
    clippy::cast_possible_truncation,
    reason = "a test may fail, and its numbers are small"
)]

use std::collections::{BTreeMap, BTreeSet, VecDeque};
use std::sync::{Arc, Mutex};

use super::memory;
use weft_base::rng::Rng;
use weft_dataplane::batch::Batch;
use weft_dataplane::config::SwitchConfig;
use weft_dataplane::fdb::{FdbKey, StaticEntry};
use weft_dataplane::lag::{Lag, LagError};
use weft_dataplane::pipeline::{Core, Lane, Ledger, SwitchBuilder};
use weft_dataplane::pool::{Bufs, Pool};
use weft_dataplane::port::{Port, PortCaps, PortError};
use weft_dataplane::snapshot::{Snapshot, SnapshotError};
use weft_dataplane::time::{Instant, LinkRate, Span};
use weft_dataplane::trace::NoTrace;
use weft_dataplane::types::{PortId, PortSet};
use weft_dataplane::vlan::PortMode;
use weft_parsers::{AddrKey, AddrSpace, AfhMode, Vid};

const PORTS: usize = 5;

#[derive(Default)]
struct Wires {
    arriving: [VecDeque<Vec<u8>>; PORTS],
    room: [usize; PORTS],
    down: PortSet,
    sent: Vec<(usize, Vec<u8>)>,
}

struct Line {
    caps: PortCaps,
    port: PortId,
    wires: Arc<Mutex<Wires>>,
}

impl Port for Line {
    fn caps(&self) -> &PortCaps {
        &self.caps
    }

    fn rx(&mut self, _now: Instant, bufs: &mut Bufs, batch: &mut Batch) -> usize {
        let mut wires = self.wires.lock().unwrap();
        let before = batch.len();
        while !batch.is_full()
            && let Some(frame) = wires.arriving[self.port.index()].pop_front()
        {
            batch.push(bufs.alloc_from(&frame).unwrap());
        }
        batch.len() - before
    }

    fn tx_room(&mut self, _now: Instant) -> usize {
        self.wires.lock().unwrap().room[self.port.index()]
    }

    fn tx(&mut self, _now: Instant, bufs: &mut Bufs, batch: &mut Batch) -> usize {
        let mut wires = self.wires.lock().unwrap();
        let at = self.port.index();
        let count = batch.len().min(wires.room[at]);
        for desc in batch.drain(..count) {
            wires.sent.push((at, bufs.bytes(&desc).to_vec()));
            bufs.free(desc);
        }
        wires.room[at] -= count;
        count
    }

    fn service(&mut self, _now: Instant, _bufs: &mut Bufs) -> Result<(), PortError> {
        Ok(())
    }

    fn link_up(&self) -> bool {
        !self.wires.lock().unwrap().down.contains(self.port)
    }

    fn release(&mut self, _bufs: &mut Bufs) {}
}

struct Rig {
    core: Arc<Core>,
    lane: Lane,
    ports: Vec<Box<dyn Port>>,
    wires: Arc<Mutex<Wires>>,
    now: Instant,
}

impl Rig {
    fn new(config: SwitchConfig) -> Self {
        let pool = Pool::in_memory(4_000, memory::FRAME_LEN_MAX).unwrap();
        let ids: Vec<_> = (0..PORTS).filter_map(PortId::new).collect();
        let wires = Arc::new(Mutex::new(Wires::default()));
        let line = |&port: &PortId| {
            let caps = memory::caps();
            Box::new(Line { caps, port, wires: wires.clone() }) as Box<dyn Port>
        };
        let ports = ids.iter().map(line).collect();
        let mut built = SwitchBuilder::new(ports).config(config).pool(pool).build().unwrap();
        let (core, (lane, ports)) = (built.core, built.lanes.remove(0));
        Self { core, lane, ports, wires, now: Instant::ZERO }
    }

    fn arrive(&self, port: usize, frame: &[u8]) {
        self.wires.lock().unwrap().arriving[port].push_back(frame.to_vec());
    }

    fn set_down(&self, ports: u64) {
        self.wires.lock().unwrap().down = PortSet::from_bits(ports);
    }

    fn step(&mut self, room: [usize; PORTS]) {
        self.wires.lock().unwrap().room = room;
        self.now += Span::from_us(10);
        self.lane.step(self.now, &mut self.ports, &mut NoTrace);
        assert_eq!(Ledger::read(&self.core).imbalance(), 0);
    }

    /// Lets `frame` arrive at `port`; the ports that it leaves by.
    fn pass(&mut self, port: usize, frame: &[u8]) -> Vec<usize> {
        self.arrive(port, frame);
        self.step([64; PORTS]);
        let sent = std::mem::take(&mut self.wires.lock().unwrap().sent);
        assert!(sent.iter().all(|(_, bytes)| bytes == frame));
        let mut left: Vec<_> = sent.into_iter().map(|(at, _)| at).collect();
        left.sort_unstable();
        left
    }

    fn port_of(&self, station: u8) -> Option<usize> {
        let key = FdbKey::new(Vid::from_low_bits(1), addr(station));
        self.core.fdb.iter(self.now).find(|e| e.key == key).map(|e| e.port.index())
    }
}

/// Without PFC, so that all that is lost was lost by a link; ports 1 and 2 are a LAG.
fn config() -> SwitchConfig {
    let mut config = memory::config(PORTS, 4, 2_000, memory::CHUNK, 8);
    config.pfc.enabled = false;
    config.lags = vec![Lag { name: "l0".into(), ports: PortSet::from_bits(0b110) }];
    config
}

fn addr(station: u8) -> AddrKey {
    AddrKey::new(AddrSpace::Ethernet, 0x0200_0000_0000 | u64::from(station))
}

fn station(number: u8) -> [u8; 6] {
    [2, 0, 0, 0, 0, number]
}

/// A UDP frame of `flow` (its source port) with a number behind.
fn udp(to: [u8; 6], from: [u8; 6], flow: u16, number: u32) -> Vec<u8> {
    let mut frame = [&to[..], &from, &[8, 0]].concat();
    frame.extend([0x45, 0, 0, 46, 0, 0, 0x40, 0, 64, 17, 0, 0, 10, 0, 0, 1, 10, 0, 0, 2]);
    frame.extend(flow.to_be_bytes());
    frame.extend([0x40, 0, 0, 26, 0, 0]);
    frame.extend(number.to_be_bytes());
    frame.resize(60, 0);
    frame
}

fn flow_and_number(frame: &[u8]) -> (u16, u32) {
    let number = frame[42..46].try_into().unwrap();
    (u16::from_be_bytes([frame[34], frame[35]]), u32::from_be_bytes(number))
}

/// Order holds while links of the LAG go up and down under load, and all of its links are used.
#[test]
fn a_flow_stays_in_order_while_links_flap() {
    const FLOWS: u16 = 200;
    let mut config = config();
    config.lags[0].ports = PortSet::from_bits(0b1_0110); // ports 1, 2 and 4
    let mut rig = Rig::new(config);
    rig.pass(1, &udp([0xFF; 6], station(9), 0, 0));
    let mut rng = Rng::new(7);
    let mut numbers = [0_u32; FLOWS as usize];
    let mut down = 0_u64;
    let mut flaps = 0;
    for step in 0..30_000 {
        // Queues grow for a while, then run empty.
        let busy = step % 100 < 60;
        for _ in 0..if busy { rng.below(24) } else { rng.below(2) } {
            let flow = rng.below(u64::from(FLOWS)) as u16;
            numbers[usize::from(flow)] += 1;
            rig.arrive(0, &udp(station(9), station(1), flow, numbers[usize::from(flow)]));
        }
        if rng.chance(1, 30) {
            let flip = down ^ 1 << [1, 2, 4][rng.below(3) as usize];
            // One of them stays up.
            down = if flip == 0b1_0110 { down } else { flip };
            rig.set_down(down);
            flaps += 1;
        }
        rig.step([0, rng.below(9) as usize, rng.below(9) as usize, 64, rng.below(9) as usize]);
    }
    let mut last = BTreeMap::new();
    let mut by_link = [0_u32; PORTS];
    for (at, frame) in &rig.wires.lock().unwrap().sent {
        let (flow, number) = flow_and_number(frame);
        let before = last.insert(flow, number).unwrap_or(0);
        assert!(before < number, "flow {flow}: {number} after {before} at port {at}");
        by_link[*at] += 1;
    }
    let total: u32 = by_link.iter().sum();
    assert_eq!((by_link[0], by_link[3], last.len()), (0, 0, usize::from(FLOWS)));
    assert!(flaps > 500 && total > 100_000, "{flaps} {by_link:?}");
    assert!([1, 2, 4].iter().all(|&at| by_link[at] > total / 5), "{by_link:?}");
}

#[test]
fn many_flows_are_spread_and_each_takes_one_link() {
    let mut rig = Rig::new(config());
    rig.pass(2, &udp([0xFF; 6], station(9), 0, 0));
    let mut by_link = [0_u32; PORTS];
    for flow in 0..1_000 {
        let frame = udp(station(9), station(1), flow, 0);
        let left = rig.pass(0, &frame);
        let [at] = left[..] else { panic!("{left:?}") };
        assert_eq!(rig.pass(0, &frame), left, "flow {flow}");
        by_link[at] += 1;
    }
    // 500 expected of each; five standard deviations are 79.
    assert_eq!(by_link[1] + by_link[2], 1_000);
    assert!(by_link[1].abs_diff(500) < 80, "{by_link:?}");
}

#[test]
fn a_lag_gets_one_copy_and_nothing_comes_back_to_it() {
    let mut rig = Rig::new(config());
    let (all, group) = ([0xFF; 6], [1, 0, 0x5E, 0, 0, 1]);
    let mut used = BTreeSet::new();
    for flow in 0..64 {
        for to in [all, group, station(77)] {
            let left = rig.pass(0, &udp(to, station(1), flow, 0));
            assert!(matches!(left[..], [1 | 2, 3, 4]), "{to:?}: {left:?}");
            used.insert(left[0]);
            for member in [1, 2] {
                let left = rig.pass(member, &udp(to, station(9), flow, 0));
                assert_eq!(left, [0, 3, 4], "{to:?} from {member}");
            }
        }
    }
    assert_eq!(used.len(), 2, "copies take the link of their flow, too");
    // A station behind the LAG is not reached from there, by either link.
    for member in [1, 2] {
        assert_eq!(rig.pass(member, &udp(station(9), station(8), 0, 0)), []);
    }
}

#[test]
fn stations_are_behind_the_lag_not_behind_a_link() {
    let mut rig = Rig::new(config());
    for member in [2, 1, 2] {
        rig.pass(member, &udp([0xFF; 6], station(9), 0, 0));
        assert_eq!(rig.port_of(9), Some(1), "known by the first port");
    }
    assert_eq!(rig.core.fdb.counters().moved, 0);
    rig.set_down(0b10);
    rig.step([64; PORTS]);
    assert_eq!(rig.port_of(9), Some(1), "one link is left");
    assert_eq!(rig.pass(0, &udp(station(9), station(1), 5, 0)), [2]);
    rig.set_down(0b110);
    rig.step([64; PORTS]);
    assert_eq!(rig.port_of(9), None);
    rig.set_down(0);
    rig.pass(1, &udp([0xFF; 6], station(9), 0, 0));
    rig.pass(3, &udp([0xFF; 6], station(9), 0, 0));
    assert_eq!((rig.port_of(9), rig.core.fdb.counters().moved), (Some(3), 1));
}

fn spread(station: u8, ports: u64) -> StaticEntry {
    let key = FdbKey::new(Vid::from_low_bits(1), addr(station));
    StaticEntry::over(key, PortSet::from_bits(ports)).unwrap()
}

#[test]
fn a_static_station_behind_several_ports_gets_each_flow_by_one() {
    let mut config = config();
    config.forward.static_entries.push(spread(9, 0b1010)); // the LAG and port 3
    let mut rig = Rig::new(config);
    let mut by_port = [0_u32; PORTS];
    let mut at = BTreeMap::new();
    for flow in 0..400 {
        let frame = udp(station(9), station(1), flow, 0);
        let left = rig.pass(0, &frame);
        let [port] = left[..] else { panic!("{left:?}") };
        assert_eq!(rig.pass(0, &frame), left, "flow {flow}");
        by_port[port] += 1;
        at.insert(flow, port);
        // Not back by where it came from.
        assert!(matches!(rig.pass(3, &frame)[..], [1 | 2]), "flow {flow}");
        assert_eq!(rig.pass(2, &frame), [3], "flow {flow}");
    }
    // 200 expected of port 3 and of the LAG; five standard deviations are 50.
    assert!(by_port[3].abs_diff(200) < 50 && by_port[1] > 50 && by_port[2] > 50, "{by_port:?}");
    // A port that goes down moves its own flows only.
    rig.set_down(0b1000);
    for (flow, port) in at {
        let left = rig.pass(0, &udp(station(9), station(1), flow, 0));
        assert!(if port == 3 { matches!(left[..], [1 | 2]) } else { left == [port] });
    }
}

#[test]
fn entries_may_change_while_it_runs_and_lags_may_not() {
    let mut rig = Rig::new(config());
    let publish = |rig: &mut Rig, change: &dyn Fn(&mut SwitchConfig)| {
        let old = rig.core.snapshot.load_full();
        let mut new = old.config.clone();
        change(&mut new);
        let new = old.succeed(new)?;
        rig.core.fdb.set_static(&new.config.forward.static_entries).unwrap();
        rig.core.snapshot.store(Arc::new(new));
        rig.step([64; PORTS]);
        Ok::<_, SnapshotError>(())
    };
    publish(&mut rig, &|config| config.forward.static_entries.push(spread(9, 0b1_1000))).unwrap();
    let used: BTreeSet<_> =
        (0..32).flat_map(|flow| rig.pass(0, &udp(station(9), station(1), flow, 0))).collect();
    assert_eq!(used, BTreeSet::from([3, 4]));
    publish(&mut rig, &|config| config.forward.static_entries[0] = spread(9, 0b1000)).unwrap();
    for flow in 0..32 {
        assert_eq!(rig.pass(0, &udp(station(9), station(1), flow, 0)), [3]);
    }
    let refused = publish(&mut rig, &|config| config.lags.clear());
    assert_eq!(refused, Err(SnapshotError::Restart("a LAG")));
}

#[test]
fn ports_that_differ_are_no_lag() {
    type Change = fn(&mut SwitchConfig);
    #[rustfmt::skip] // columns: what, change
    let cases: [(&str, Change); 5] = [
        ("port_bandwidth_gbps", |config| config.ports[2].rate = LinkRate::gbps(1)),
        ("max_frame",           |config| config.ports[2].frame_len_max = 1_500),
        ("afh",                 |config| config.ports[2].parse.afh = AfhMode::Lite),
        ("vlan",                |config| config.ports[2].vlan = PortMode::Access { pvid: Vid::from_low_bits(2) }),
        ("flow_control",        |config| config.ports[2].pfc = false),
    ];
    for (what, change) in cases {
        let mut config = config();
        assert!(Snapshot::compile(config.clone(), 0).is_ok());
        change(&mut config);
        let refused = Snapshot::compile(config, 0).err();
        let want = LagError::Unlike { lag: "l0".into(), what };
        assert_eq!(refused, Some(SnapshotError::Lag(want)), "{what}");
    }
    let mut config = config();
    config.forward.static_entries.push(spread(9, 0b1100));
    let member = LagError::Member { lag: "l0".into(), port: PortId::new(2).unwrap() };
    assert_eq!(Snapshot::compile(config, 0).err(), Some(SnapshotError::Lag(member)));
}
