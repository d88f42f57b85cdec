//! Two TCP hosts at the ends of a wire that may lose or change frames. [`Pair`] runs until no host has anything to do.
//!
//! Source: docs/spec/model.md §7.

use smoltcp::wire::{IpProtocol, Ipv4Packet};
use weft_base::rng::Rng;
use weft_dataplane::time::LinkRate;
use weft_parsers::{HEAD_LEN, MacAddr, ParseConfig, Pfc, parse_head};

use super::*;
use crate::classes::PriMap;
use crate::frames::Station;
use crate::host::testing::{End, bufs, wire, wire_over};

const PORT: u16 = 5_001;

struct Pair {
    hosts: [TcpHost; 2],
    ends: [End; 2],
    bufs: Bufs,
    now: Instant,
    events: [Vec<TcpEvent>; 2],
}

fn spec(number: u16) -> TcpHostSpec {
    let Station { mac, ip4, .. } = Station::numbered(number);
    TcpHostSpec {
        mac,
        ip: ip4,
        prefix_len: 16,
        gateway: None,
        directory: None,
        origin: Instant::ZERO,
        whole: true,
        classes: PriMap::eight(),
        seed: number.into(),
    }
}

fn sends(bytes: u64) -> Transfer {
    Transfer { send: Some(Amount::Bytes(bytes)), expect: Some(0), seed: Some(7) }
}

const TAKES: Transfer = Transfer { send: None, expect: None, seed: Some(7) };

fn key(port: u16, peer: u16, peer_port: u16) -> ConnectionKey {
    ConnectionKey { port, peer: Station::numbered(peer).ip4, peer_port }
}

impl Pair {
    fn new(gbps: u64) -> Self {
        let hosts = [1, 2].map(|number| TcpHost::new(spec(number)).unwrap());
        let (now, events) = (Instant::ZERO, [Vec::new(), Vec::new()]);
        Self { hosts, ends: wire(gbps, 4), bufs: bufs(512, 9_216), now, events }
    }

    /// Host 1 connects to host 2, which accepts any data.
    fn connect(&mut self, id: u32, conn: &ConnectionSpec, there: Transfer, here: Transfer) {
        if !self.hosts[1].listeners.contains_key(&PORT) {
            self.hosts[1].listen(PORT, 100, 0, conn, there).unwrap();
        }
        let port = 40_000 + u16::try_from(id).unwrap();
        self.hosts[0].connect(self.now, id, key(port, 2, PORT), conn, here).unwrap();
    }

    fn run(&mut self, until: Instant) {
        let mut at_once = 0;
        loop {
            let mut next = None;
            let both = self.hosts.iter_mut().zip(&mut self.ends).zip(&mut self.events);
            for ((host, end), events) in both {
                let progress = host.poll(self.now, end, &mut self.bufs).unwrap();
                next = Instant::earlier(next, progress.next);
                events.extend(host.drain_events());
            }
            for end in &self.ends {
                next = Instant::earlier(next, end.next_event());
            }
            match next {
                Some(at) if at < until => {
                    at_once = if at > self.now { 0 } else { at_once + 1 };
                    assert!(at_once < 1_000, "time stands still at {} ps", self.now.as_ps());
                    self.now = at.max(self.now);
                }
                _ => return,
            }
        }
    }

    fn run_all(&mut self) {
        self.run(Instant::from_ns(20_000_000_000));
    }

    /// How connection `id` of a host ended: whether it failed, and where data differed.
    fn end(&self, side: usize, id: u32) -> (bool, Option<u64>) {
        let failed =
            |event: &TcpEvent| matches!(event, TcpEvent::Failed { id: of, .. } if *of == id);
        let closed = self.events[side].iter().find_map(|event| match event {
            TcpEvent::Closed { id: of, differs, .. } if *of == id => Some(*differs),
            _ => None,
        });
        (self.events[side].iter().any(failed), closed.expect("it is closed"))
    }
}

/// Replaces a frame by the frames that arrive instead.
type Fate = fn(Vec<u8>) -> Vec<Vec<u8>>;

#[test]
fn all_bytes_arrive_both_ways_whatever_the_wire_does() {
    let both = |bytes| Transfer { send: Some(Amount::Bytes(bytes)), expect: None, seed: Some(7) };
    #[rustfmt::skip] // columns: name, one frame in so many of host 1 suffers, congestion, MSS, what becomes of it
    let cases: [(&str, u64, Congestion, usize, Fate); 6] = [
        ("nothing",     u64::MAX, Congestion::Reno,  1_460, |frame| vec![frame]),
        ("long frames", u64::MAX, Congestion::Cubic, 8_960, |frame| vec![frame]),
        ("lost",        50,       Congestion::Reno,  1_460, |_| vec![]),
        ("lost too",    50,       Congestion::Cubic,   536, |_| vec![]),
        ("twice",       20,       Congestion::Cubic, 1_460, |frame| vec![frame.clone(), frame]),
        ("damaged",     30,       Congestion::Reno,  1_460, |mut frame| {
            let last = frame.len() - 1;
            frame[last] ^= 1;
            vec![frame]
        }),
    ];
    for (name, one_in, congestion, mss, fate) in cases {
        let mut pair = Pair::new(10);
        for (seed, end) in (1..).zip(&pair.ends) {
            let mut rng = Rng::new(seed);
            end.set_fault(Box::new(
                move |_, frame| {
                    if rng.chance(1, one_in) { fate(frame) } else { vec![frame] }
                },
            ));
        }
        let conn = ConnectionSpec { congestion, mss, ..ConnectionSpec::DEFAULT };
        pair.connect(1, &conn, both(1_000_003), both(3_000_001));
        pair.run_all();
        assert_eq!((pair.end(0, 1), pair.end(1, 0)), ((false, None), (false, None)), "{name}");
        let [a, b] = [0, 1].map(|side: usize| pair.hosts[side].stats());
        assert_eq!((a.rx_bytes, b.rx_bytes), (1_000_003, 3_000_001), "{name}");
        assert_eq!(
            a.resent + b.resent > 0,
            matches!(name, "lost" | "lost too" | "damaged"),
            "{name}"
        );
        assert!(pair.hosts.iter().all(TcpHost::is_idle), "{name}");
        let acknowledged = pair.events[0].iter().any(|event| {
            // The last segments of the connection may be sent again after that.
            matches!(event, TcpEvent::Acknowledged { bytes: 3_000_001, resent, .. } if a.resent - resent < 5)
        });
        assert!(acknowledged, "{name}: {:?}", pair.events[0]);
    }
}

#[test]
fn data_that_is_not_the_expected_one_is_found() {
    let mut pair = Pair::new(10);
    let other = Transfer { seed: Some(8), ..TAKES };
    pair.connect(1, &ConnectionSpec::DEFAULT, other, sends(10_000));
    pair.run_all();
    assert_eq!((pair.end(1, 0), pair.hosts[1].stats().data_errors), ((false, Some(0)), 1));
}

/// Connections of a host take turns, frame by frame, whichever began first.
#[test]
fn connections_of_a_host_share_its_link() {
    let mut pair = Pair::new(1);
    let small = ConnectionSpec { receive_buffer: 64 << 10, ..ConnectionSpec::DEFAULT };
    for id in 0..4 {
        pair.connect(id, &small, TAKES, sends(10_000_000));
    }
    pair.run(Instant::from_ns(50_000_000));
    let sent: Vec<u64> = pair.hosts[0].counts().map(|(_, sent, _)| sent).collect();
    let (least, most) = (sent.iter().min().unwrap(), sent.iter().max().unwrap());
    assert!(*least > 1_000_000 && most - least <= 64 << 10, "{sent:?}");
}

/// A lost SYN is sent again after `rto_min`, and once more after twice that.
#[test]
fn the_least_timeout_is_that_of_the_first_segment() {
    for rto_min in [Span::from_ms(1), Span::from_us(250)] {
        let mut pair = Pair::new(10);
        pair.ends[0].set_fault(Box::new(|number, frame| {
            // Frames 0 and 3 are ARP and the SYN that gets through.
            if (1..3).contains(&number) { vec![] } else { vec![frame] }
        }));
        let conn = ConnectionSpec { rto_min, ..ConnectionSpec::DEFAULT };
        pair.connect(1, &conn, TAKES, sends(1));
        pair.run_all();
        let at = |wanted: fn(&TcpEvent) -> Option<Instant>| {
            pair.events[0].iter().find_map(wanted).unwrap()
        };
        let begun = at(|event| match event {
            TcpEvent::Begun { at, .. } => Some(*at),
            _ => None,
        });
        let open = at(|event| match event {
            TcpEvent::Established { at, .. } => Some(*at),
            _ => None,
        });
        let (waited, three) = (open.since(begun).as_ps(), 3 * rto_min.as_ps());
        assert!((three..three + 3_000_000).contains(&waited), "{waited} of {three}");
        assert_eq!(pair.hosts[0].stats().resent, 2);
    }
}

/// PFC stops the connections of its class; those of another class go on.
#[test]
fn a_pause_stops_its_priority_only() {
    let mut pair = Pair::new(10);
    for (id, dscp) in [(1, 8), (2, 40)] {
        let dscp = Dscp::new(dscp).unwrap();
        let conn = ConnectionSpec { dscp, ..ConnectionSpec::DEFAULT };
        pair.connect(id, &conn, TAKES, sends(20_000_000));
    }
    pair.run(Instant::from_ns(1_000_000));
    let pfc = Pfc { enable: 0, quanta: [0; 8] }.with(1, 0xFFFF);
    let mut frame = [0; 60];
    pfc.emit(MacAddr([2, 0, 0, 0, 0, 9]), &mut frame);
    pair.ends[0].inject(pair.now, &frame);
    let sent = |pair: &Pair| {
        let mut all: Vec<_> = pair.hosts[0].counts().map(|(id, sent, _)| (id, sent)).collect();
        all.sort_unstable();
        [all[0].1, all[1].1]
    };
    let before = sent(&pair);
    pair.run(Instant::from_ns(3_000_000));
    let after = sent(&pair);
    assert!(after[0] - before[0] < 10_000, "{before:?} {after:?}");
    assert!(after[1] - before[1] > 1_000_000, "{before:?} {after:?}");
    pair.run_all();
    assert_eq!((pair.end(0, 1), pair.end(0, 2)), ((false, None), (false, None)));
    let paused = pair.hosts[0].paused(Dscp::new(8).unwrap(), pair.now).as_ps();
    assert_eq!(paused, 65_535 * 512 * 100, "quanta of 512 bits at 10 Gbit/s");
}

/// Frames carry the DSCP of their connection, and a switch classifies them as they are.
#[test]
fn frames_are_what_a_switch_reads() {
    let dscp = Dscp::new(46).unwrap();
    let mut host = TcpHost::new(spec(1)).unwrap();
    let [mut end, far] = wire(10, 4);
    let mut bufs = bufs(64, 9_216);
    host.await_peer(5, key(PORT, 2, 7), &ConnectionSpec { dscp, ..ConnectionSpec::DEFAULT }, TAKES)
        .unwrap();
    host.neighbours.take(&{
        let mut other = Neighbours::new(Station::numbered(2).mac, Station::numbered(2).ip4, None);
        other.find(Instant::ZERO, Station::numbered(1).ip4);
        other.pop().unwrap()
    });
    let conn = ConnectionSpec { dscp, ..ConnectionSpec::DEFAULT };
    host.connect(Instant::ZERO, 1, key(9, 2, PORT), &conn, sends(1)).unwrap();
    host.poll(Instant::ZERO, &mut end, &mut bufs).unwrap();
    let frames = end.take_sent();
    let syn = &frames.iter().find(|(_, frame)| frame[12..14] == [8, 0]).unwrap().1;
    let parse = ParseConfig { port_mac: Station::numbered(2).mac, ..ParseConfig::DEFAULT };
    let mut front = [0; HEAD_LEN];
    front[..syn.len().min(HEAD_LEN)].copy_from_slice(&syn[..syn.len().min(HEAD_LEN)]);
    let head = parse_head(&front, syn.len(), &parse).unwrap();
    assert_eq!((head.dscp(), syn[23]), (Some(dscp), 6));
    let packet = Ipv4Packet::new_checked(&syn[14..]).unwrap();
    assert!(packet.verify_checksum() && packet.dont_frag());
    drop(far);
}

/// A stranger finds a closed port, garbage is left alone, and a listener accepts no more connections than its limit.
#[test]
fn strangers_get_no_further() {
    let mut pair = Pair::new(10);
    pair.hosts[1].listen(PORT, 3, 0, &ConnectionSpec::DEFAULT, TAKES).unwrap();
    for id in 0..5 {
        let key = key(100 + id, 2, PORT);
        pair.hosts[0]
            .connect(pair.now, id.into(), key, &ConnectionSpec::DEFAULT, sends(10))
            .unwrap();
    }
    let closed = key(99, 2, 23);
    pair.hosts[0].connect(pair.now, 9, closed, &ConnectionSpec::DEFAULT, sends(10)).unwrap();
    pair.run_all();
    let failed = (0..10).filter(|&id| {
        pair.events[0].iter().any(|it| matches!(it, TcpEvent::Failed { id: of, .. } if *of == id))
    });
    assert_eq!(failed.collect::<Vec<_>>(), [3, 4, 9], "three connections and no more");
    assert_eq!((pair.hosts[0].stats().failed, pair.hosts[1].stats().established), (3, 3));

    let mut rng = Rng::new(1);
    let mut frame = vec![0; 200];
    for round in 0..20_000 {
        for byte in &mut frame {
            *byte = rng.next_u64().to_be_bytes()[0];
        }
        frame[..6].copy_from_slice(&Station::numbered(2).mac.0);
        frame[12..15].copy_from_slice(&[8, 0, 0x45]);
        frame[23] = [6, 1, 17][round % 3];
        frame[30..34].copy_from_slice(&Station::numbered(2).ip4.octets());
        frame[46] = 0x50;
        let len = round % 200;
        pair.hosts[1].offer(pair.now, LinkRate::gbps(10), &frame[..len], 1_500);
    }
    assert!(pair.hosts[1].by_key.is_empty());
}

#[test]
fn a_ping_is_answered() {
    let mut host = TcpHost::new(spec(1)).unwrap();
    let [mut end, _far] = wire(10, 4);
    let mut bufs = bufs(64, 9_216);
    let mut ping = vec![0; 60];
    ping[..6].copy_from_slice(&Station::numbered(1).mac.0);
    ping[6..12].copy_from_slice(&Station::numbered(2).mac.0);
    ping[12..14].copy_from_slice(&[8, 0]);
    {
        let mut packet = Ipv4Packet::new_unchecked(&mut ping[14..]);
        packet.set_version(4);
        packet.set_header_len(20);
        packet.set_total_len(28);
        packet.set_hop_limit(9);
        packet.set_next_header(IpProtocol::Icmp);
        packet.set_src_addr(Station::numbered(2).ip4);
        packet.set_dst_addr(Station::numbered(1).ip4);
        packet.fill_checksum();
        packet.payload_mut()[..4].copy_from_slice(&[8, 0, 0xF7, 0xFF]);
    }
    end.inject(Instant::ZERO, &ping);
    host.poll(Instant::ZERO, &mut end, &mut bufs).unwrap();
    let sent = end.take_sent();
    assert_eq!(sent.len(), 1);
    assert_eq!((sent[0].1[..6].to_vec(), sent[0].1[34]), (Station::numbered(2).mac.0.to_vec(), 0));
}

#[test]
fn what_cannot_be_is_refused() {
    let with = |change: fn(&mut ConnectionSpec)| {
        let mut conn = ConnectionSpec::DEFAULT;
        change(&mut conn);
        conn
    };
    let far = ConnectionKey { peer: Ipv4Addr::new(192, 168, 0, 1), ..key(1, 2, PORT) };
    #[rustfmt::skip] // columns: key, specification, part of the refusal
    let cases = [
        (key(1, 2, PORT), with(|it| it.mss = 500),             "expected 536 to 8960"),
        (key(1, 2, PORT), with(|it| it.send_buffer = 1_000),   "expected 17920"),
        (key(1, 2, PORT), with(|it| it.rto_min = Span::ZERO),  "expected 1 us to 60 s"),
        (key(0, 2, PORT), with(|_| {}),                        "port 0"),
        (key(1, 1, PORT), with(|_| {}),                        "10.0.0.1: expected one of a single host"),
        (far,             with(|_| {}),                        "expected a gateway"),
    ];
    let mut host = TcpHost::new(spec(1)).unwrap();
    for (key, conn, part) in cases {
        let told = host.connect(Instant::ZERO, 1, key, &conn, sends(1)).unwrap_err().to_string();
        assert!(told.contains(part), "{told}");
    }
    host.connect(Instant::ZERO, 1, key(1, 2, PORT), &ConnectionSpec::DEFAULT, sends(1)).unwrap();
    let twice = host.connect(Instant::ZERO, 2, key(1, 2, PORT), &ConnectionSpec::DEFAULT, sends(1));
    assert_eq!(twice, Err(TcpError::Twice(key(1, 2, PORT))));
    let nobody = TcpHostSpec { ip: Ipv4Addr::BROADCAST, ..spec(1) };
    assert!(matches!(TcpHost::new(nobody), Err(TcpError::Address(_))));
}

/// A connection keeps a whole window in flight if the round trip is longer than the window takes to send.
#[test]
fn a_window_fills_a_round_trip() {
    for receive_buffer in [64 << 10, 1 << 20, 3 << 20] {
        let mut pair = Pair::new(100);
        pair.ends = wire_over(100, 4, Span::from_us(500));
        let conn =
            ConnectionSpec { receive_buffer, send_buffer: 8 << 20, ..ConnectionSpec::DEFAULT };
        pair.connect(1, &conn, TAKES, sends(1_000_000_000));
        let taken = |pair: &Pair| pair.hosts[1].counts().next().unwrap().2;
        pair.run(Instant::from_ns(20_000_000));
        let before = taken(&pair);
        pair.run(Instant::from_ns(40_000_000));
        // In 20 ms there are 19 or 20 round trips of 1 ms, each with the time of sending and of the window's scale.
        let windows = (taken(&pair) - before) / receive_buffer as u64;
        assert!((15..=20).contains(&windows), "{windows} of {receive_buffer}");
    }
}
