//! Loops, on pipes whose two ends are both ports of one switch: found at any rate of the hosts, cut, and never laid to an
//! honest port.
//!
//! [`Bench`] has hosts at the first ports and a cable between the last two.
//!
//! Units: microseconds.
//! Source: docs/spec/pipeline.md §3 "Loops".
#![expect(clippy::unwrap_used, clippy::indexing_slicing, reason = "a test fails that way")]

use weft_dataplane::batch::Batch;
use weft_dataplane::config::SwitchConfig;
use weft_dataplane::fdb::{FdbKey, StaticEntry};
use weft_dataplane::lag::Lag;
use weft_dataplane::pipeline::{Ledger, LoopFound, Switch, SwitchBuilder};
use weft_dataplane::pool::{Bufs, Pool};
use weft_dataplane::port::Port;
use weft_dataplane::port::pipe::{Pipe, PipeConfig, pipe};
use weft_dataplane::time::{Instant, LinkRate, Span};
use weft_dataplane::types::{PortId, PortSet};
use weft_parsers::loop_probe::{self, LoopProbe};
use weft_parsers::mac_control::{self, Pfc};
use weft_parsers::{AddrKey, MacAddr, Vid};

use super::memory::{CHUNK, FRAME_LEN_MAX, config};

/// Between two steps.
const STEP: u64 = 50;

/// Hosts at ports 0 and up, and a cable whose ends are the last two ports, if there is one.
struct Bench {
    switch: Switch,
    hosts: Vec<Pipe>,
    bufs: Bufs,
    now: u64,
}

fn link() -> (Pipe, Pipe) {
    let names = ["near".to_owned(), "far".to_owned()];
    let rate = LinkRate::gbps(10);
    pipe(PipeConfig { names, depth: 256, rate, frame_len_max: FRAME_LEN_MAX, wakes_reader: false })
        .unwrap()
}

const fn mac(station: u8) -> MacAddr {
    MacAddr([2, 0, 0, 0, 0, station])
}

const fn port_mac(port: u8) -> MacAddr {
    MacAddr([2, 0, 0, 0, 1, port])
}

fn port(index: usize) -> PortId {
    PortId::new(index).unwrap()
}

/// A frame of 60 bytes with a number of its own.
fn frame(dst: MacAddr, src: u8, number: u32) -> Vec<u8> {
    let mut frame = [&dst.0[..], &mac(src).0, &[0x12, 0x34], &number.to_be_bytes()].concat();
    frame.resize(60, 0);
    frame
}

impl Bench {
    fn new(hosts: usize, cable: bool, change: impl FnOnce(&mut SwitchConfig)) -> Self {
        let pool = Pool::in_memory(8_192, FRAME_LEN_MAX).unwrap();
        let mut bufs = Bufs::new(pool.clone(), 64, 0);
        let (mut far, mut ports) = (Vec::new(), Vec::<Box<dyn Port>>::new());
        for _ in 0..hosts {
            let (mut host, port) = link();
            host.start(&mut bufs).unwrap();
            far.push(host);
            ports.push(Box::new(port));
        }
        if cable {
            let (one, other) = link();
            ports.extend([Box::new(one) as Box<dyn Port>, Box::new(other)]);
        }
        let mut config = config(ports.len(), 4, 2_048, CHUNK, 16);
        config.forward.loop_probes = true;
        config.forward.loop_block = Some(Span::from_ms(10_000));
        config.forward.sticky = Span::from_ms(10_000);
        for (number, port) in (0..).zip(&mut config.ports) {
            port.parse.port_mac = port_mac(number);
        }
        change(&mut config);
        let switch = SwitchBuilder::new(ports).pool(pool).config(config).build().unwrap();
        let mut bench = Self { switch, hosts: far, bufs, now: 0 };
        bench.run(1);
        bench
    }

    /// Lets `ms` milliseconds pass; returns how many frames were moved.
    fn run(&mut self, ms: u64) -> usize {
        let end = self.now + ms * 1_000;
        let mut moved = 0;
        while self.now < end {
            self.now += STEP;
            moved += self.switch.step(Instant::from_ps(self.now * 1_000_000));
        }
        moved
    }

    fn send(&mut self, host: usize, frame: &[u8]) {
        let mut batch = Batch::new();
        batch.push(self.bufs.alloc_from(frame).unwrap());
        self.hosts[host].tx(Instant::from_ps(self.now * 1_000_000), &mut self.bufs, &mut batch);
        assert!(batch.is_empty());
    }

    /// What a host has received.
    fn take(&mut self, host: usize) -> Vec<Vec<u8>> {
        let mut frames = Vec::new();
        loop {
            let mut batch = Batch::new();
            self.hosts[host].rx(Instant::from_ps(self.now * 1_000_000), &mut self.bufs, &mut batch);
            if batch.is_empty() {
                return frames;
            }
            for desc in batch.drain(..) {
                frames.push(self.bufs.bytes(&desc).to_vec());
                self.bufs.free(desc);
            }
        }
    }

    fn blocked(&self) -> PortSet {
        self.switch.core.blocked()
    }

    fn probes(&self) -> u64 {
        Ledger::read(&self.switch.core).port.iter().map(|port| port.loop_probes).sum()
    }
}

/// Both ends of a cable are ports, and two hosts speak five times a second. The circle is cut within milliseconds, and
/// what the hosts say arrives, once.
#[test]
fn a_circle_of_slow_hosts_unicast_is_cut_and_they_are_heard_at_once() {
    let mut bench = Bench::new(2, true, |_| ());
    bench.send(0, &frame(mac(2), 1, 0));
    bench.run(100);
    let cut = bench.blocked().sole().expect("one end is enough").index();
    assert!(cut == 2 || cut == 3, "{cut}: not a host's port");
    let found = bench.switch.core.pop_loop().unwrap();
    assert_eq!((found.came.index(), found.sender.index()), (cut, 5 - cut));
    for end in [2, 3] {
        assert_eq!(bench.switch.core.fdb.learned(port(end)), 0, "{end}: nothing was learned there");
    }
    assert_eq!(bench.run(100), 0, "nothing goes round any more");
    let _ = (bench.take(0), bench.take(1));
    for number in 1..20 {
        bench.send(0, &frame(mac(2), 1, number));
        bench.run(5);
        assert_eq!(bench.take(1), [frame(mac(2), 1, number)], "there, once");
        bench.send(1, &frame(mac(1), 2, number));
        bench.run(195);
        assert_eq!(bench.take(0), [frame(mac(1), 2, number)], "and back");
    }
    let ledger = Ledger::read(&bench.switch.core);
    assert_eq!(ledger.imbalance(), 0);
    assert_eq!(ledger.port.iter().map(|port| port.loop_blocks).sum::<u64>(), 1);
}

/// Nobody moves and nothing is learned: that the same frame comes in again and again is enough to ask for probes.
#[test]
fn what_circles_without_a_move_is_found() {
    let statics = |config: &mut SwitchConfig| {
        let entry = |n: u8| {
            let key = FdbKey::new(Vid::from_low_bits(1), AddrKey::ethernet(mac(n + 1)));
            StaticEntry::new(key, port(usize::from(n)))
        };
        config.forward.static_entries = vec![entry(0), entry(1)];
    };
    let mut bench = Bench::new(2, true, statics);
    bench.send(0, &frame(MacAddr::BROADCAST, 1, 0));
    bench.run(1_000);
    let cut = bench.blocked().sole().expect("one end is enough").index();
    assert!(cut == 2 || cut == 3, "{cut}");
    bench.run(10);
    assert_eq!(bench.run(100), 0, "nothing goes round any more");
}

/// The ports are the two ends of one cable, and nothing else is there but what the machine itself sends by them.
#[test]
fn two_ports_that_are_ends_of_one_cable_are_found() {
    for own in [true, false] {
        let mut bench = Bench::new(1, true, |_| ());
        let src = if own { port_mac(1) } else { mac(9) };
        // As a host's stack that sends by the interface of port 1: it comes in by port 2.
        let mut frame = frame(MacAddr::BROADCAST, 0, 0);
        frame[6..12].copy_from_slice(&src.0);
        bench.send(0, &frame);
        bench.run(500);
        let cut = bench.blocked().sole().expect("one end is enough").index();
        assert!(cut == 1 || cut == 2, "{cut}, own address {own}");
    }
}

/// A block is over after its time; a loop that is still there is found again.
#[test]
fn a_port_opens_again_and_the_loop_is_found_again() {
    let mut bench =
        Bench::new(2, true, |config| config.forward.loop_block = Some(Span::from_ms(3_000)));
    for round in 1..=3 {
        bench.send(0, &frame(MacAddr::BROADCAST, 1, round));
        bench.run(2_500);
        assert!(bench.blocked().sole().is_some(), "round {round}");
        bench.run(1_000);
        assert!(bench.blocked().is_empty(), "round {round}");
    }
}

/// With `loop_action = "alarm"` it is only told.
#[test]
fn an_alarm_blocks_nothing() {
    let mut bench = Bench::new(2, true, |config| config.forward.loop_block = None);
    bench.send(0, &frame(MacAddr::BROADCAST, 1, 0));
    bench.run(100);
    assert!(bench.blocked().is_empty() && bench.switch.core.pop_loop().is_some());
}

/// A neighbour speaks with the address of an honest station, faster than that one and before it, repeats its frames, and
/// sends what it will say: no port is blocked.
#[test]
fn no_port_is_blocked_by_what_a_neighbour_says_in_the_name_of_others() {
    let mut bench = Bench::new(3, false, |_| ());
    for number in 0..400 {
        let said = frame(MacAddr::BROADCAST, 1, number / 4); // the same again, as hosts do
        bench.send(1, &said);
        bench.run(2);
        bench.send(0, &said);
        bench.run(3);
        bench.send(1, &said);
        bench.run(5);
    }
    assert!(bench.blocked().is_empty() && bench.switch.core.pop_loop().is_none());
    assert!(!bench.switch.core.fdb.loop_ports().is_empty(), "that the station moves is told");
    // Probes are few all the while: in 4 s three series of three at each of three ports.
    assert!((6..=27).contains(&bench.probes()), "{}", bench.probes());
}

/// Probes of the switch that a host has received.
fn probes(frames: &[Vec<u8>]) -> Vec<Vec<u8>> {
    let is_probe = |frame: &&Vec<u8>| LoopProbe::parse(frame, false).is_ok();
    frames.iter().filter(is_probe).cloned().collect()
}

/// A neighbour that sends a probe back has its own port blocked; one that hands it to an accomplice, that one's.
#[test]
fn whoever_returns_a_probe_blocks_the_port_that_it_is_behind() {
    for by in [1, 2] {
        let mut bench = Bench::new(3, false, |_| ());
        for number in 0..2 {
            bench.send(0, &frame(MacAddr::BROADCAST, 7, 0));
            bench.send(1, &frame(MacAddr::BROADCAST, 7, 0));
            bench.run(2 + number);
        }
        let heard = bench.take(1);
        let probe = probes(&heard).pop().expect("the same frame by two ports is suspicious");
        bench.send(by, &probe);
        bench.run(1);
        assert_eq!(bench.blocked(), PortSet::only(port(by)), "by {by}");
        let want = LoopFound { sender: port(1), came: port(by) };
        assert_eq!(bench.switch.core.pop_loop(), Some(want));
        assert!(probes(&bench.take(0)).len() <= 3, "the probe itself was not forwarded");
    }
}

/// A probe that a neighbour has recorded proves nothing once a second has passed, nor does one that it guesses: they end at
/// the switch, and are counted.
#[test]
fn recorded_and_forged_probes_block_no_port() {
    let mut bench = Bench::new(3, false, |_| ());
    for host in [0, 1] {
        bench.send(host, &frame(MacAddr::BROADCAST, 7, 0));
        bench.run(2);
    }
    bench.run(100);
    let recorded = probes(&bench.take(1)).pop().expect("the same frame by two ports is suspicious");
    bench.run(1_100);
    let known = LoopProbe::parse(&recorded, false).unwrap();
    let (mut bad, mut made) = (0, [0; loop_probe::FRAME_LEN]);
    for nonce in [known.nonce, known.nonce ^ 1, known.nonce.wrapping_add(1), 0, 1] {
        for of in [0, 1, 2] {
            LoopProbe { src: port_mac(of), port: of, nonce }.emit(None, &mut made);
            bench.send(2, &made);
            bench.run(1);
            bad += 1;
        }
    }
    assert!(bench.blocked().is_empty() && bench.switch.core.pop_loop().is_none());
    assert!(!bench.take(0).contains(&made.to_vec()), "they go no further");
    let ledger = Ledger::read(&bench.switch.core);
    assert_eq!((ledger.port[2].loop_probes_bad, ledger.port[2].consumed), (bad, bad));
    assert_eq!(ledger.imbalance(), 0);
}

/// Probes of other switches are frames as any other.
#[test]
fn a_probe_of_another_switch_is_forwarded() {
    let mut bench = Bench::new(2, false, |_| ());
    let mut made = [0; loop_probe::FRAME_LEN];
    for (src, port, nonce) in [(mac(9), 1, 77), (port_mac(1), 63, 5), (port_mac(1), 0, 5)] {
        LoopProbe { src, port, nonce }.emit(None, &mut made);
        bench.send(0, &made);
        bench.run(1);
        assert!(bench.take(1).contains(&made.to_vec()), "{src} {port} {nonce}");
    }
    assert!(bench.blocked().is_empty() && bench.switch.core.pop_loop().is_none());
    let ledger = Ledger::read(&bench.switch.core);
    assert_eq!(ledger.port.iter().map(|port| port.loop_probes_bad).sum::<u64>(), 0);
}

/// A cable between two links, of which one or both are groups of ports: all members of the link by which the probe comes in
/// are blocked, as frames would go on by another one.
#[test]
fn a_circle_through_a_group_of_ports_is_cut() {
    for members in [0b0110, 0b1100] {
        let lag = Lag { name: "l0".into(), ports: PortSet::from_bits(members) };
        let mut bench = Bench::new(2, true, |config| config.lags = vec![lag.clone()]);
        bench.send(0, &frame(MacAddr::BROADCAST, 1, 0));
        bench.run(200);
        let cut = bench.blocked();
        assert!(cut == lag.ports || cut == PortSet::only(port(3)), "{members:b}: {cut:?}");
        bench.run(10);
        assert_eq!(bench.run(100), 0, "nothing goes round any more");
    }
}

/// Classes that are paused do not hold a probe up.
#[test]
fn a_circle_of_paused_classes_is_found() {
    let mut bench = Bench::new(2, true, |_| ());
    let mut pause = [0; mac_control::FRAME_LEN];
    Pfc { enable: 0xF, quanta: [u16::MAX; 8] }.emit(mac(9), &mut pause);
    for host in [0, 1] {
        bench.send(host, &pause);
    }
    bench.run(1);
    // Both say the same thing: a suspicion, of which the hosts are told although nothing else may be sent to them.
    for host in [0, 1] {
        bench.send(host, &frame(MacAddr::BROADCAST, 7, 0));
    }
    bench.run(1);
    for host in [0, 1] {
        let heard = bench.take(host);
        assert!(!probes(&heard).is_empty() && probes(&heard).len() == heard.len(), "{host}");
    }
}

/// A generator sends one frame for ever: it gets probes now and then, and is not blocked.
#[test]
fn a_generator_of_one_frame_is_left_alone() {
    let mut bench = Bench::new(2, false, |_| ());
    bench.send(1, &frame(mac(1), 2, 0));
    bench.run(1);
    let (mut sent, mut heard) = (0, 0);
    for _ in 0..20_000 {
        bench.send(0, &frame(mac(2), 1, 0));
        bench.run(1);
        sent += 1;
        heard += bench.take(1).iter().filter(|of| **of == frame(mac(2), 1, 0)).count();
    }
    assert_eq!((heard, bench.blocked()), (sent, PortSet::EMPTY), "not one is lost");
    // 20 s: series at 0, 1, 3, 7 and 15 s, at two ports.
    assert!((6..=36).contains(&bench.probes()), "{}", bench.probes());
}

/// Honest stations that speak, once and again, get no probe.
#[test]
fn ordinary_traffic_asks_for_no_probe() {
    let mut bench = Bench::new(3, false, |_| ());
    for number in 0..2_000 {
        let from = number as usize % 3;
        let to = [mac(2), mac(3), MacAddr::BROADCAST, mac(1)][number as usize % 4];
        bench.send(from, &frame(to, u8::try_from(from + 1).unwrap(), number));
        bench.run(1);
    }
    assert_eq!(bench.probes(), 0);
}
