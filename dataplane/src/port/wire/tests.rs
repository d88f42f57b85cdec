//! The wire: delays, flaws, room, outages, and the forecast of the next frame.
use weft_base::sync::{Arc, AtomicU64, Ordering};

use super::*;
use crate::pool::Pool;
use crate::port::disturbance::{Errors, Outages};
use crate::types::PortId;

const RATE: LinkRate = LinkRate::gbps(100);

fn bufs() -> Bufs {
    Bufs::new(Pool::in_memory(16, 1_518).unwrap(), 1, 0)
}

fn port(change: impl FnOnce(&mut WireConfig)) -> (Wire, WireEnd) {
    let (near, far) = cable(8);
    let mut config = WireConfig::new("w0", RATE);
    change(&mut config);
    (Wire::new(config, 1_518, near), far)
}

const fn ns(ns: u64) -> Instant {
    Instant::from_ns(ns)
}

/// A port in a box waits like the port itself: a pipeline holds its ports so.
#[test]
fn a_boxed_wire_tells_when_it_falls_idle() {
    let (mut wire, _end) = port(|_| {});
    let (mut bufs, mut batch) = (bufs(), Batch::new());
    batch.push(bufs.alloc_from(&[7; 60]).unwrap());
    assert_eq!(wire.tx(Instant::from_ns(3), &mut bufs, &mut batch), 1);
    let want = Some(Instant::from_ns(3) + RATE.frame_time(60));
    assert_eq!(wire.idle_at(), want);
    let boxed: Box<dyn Port> = Box::new(wire);
    assert_eq!(Port::idle_at(&boxed), want);
}

#[test]
fn a_frame_is_handed_over_when_its_last_bit_and_the_latency_have_passed() {
    let (mut wire, mut far) = port(|config| config.latency = Span::from_ns(300));
    let mut bufs = bufs();
    assert!(far.send(ns(10), Flaw::None, &[1; 60]));
    assert!(far.send(ns(20), Flaw::None, &[2; 61]));
    let mut batch = Batch::new();
    #[rustfmt::skip] // columns: now, frames handed over, next event
    let cases = [
        (0,   0, Some(310)),
        (309, 0, Some(310)),
        (310, 1, Some(320)),
        (400, 1, None),
        (401, 0, None),
    ];
    for (now, want, next) in cases {
        assert_eq!(wire.rx(ns(now), &mut bufs, &mut batch), want, "{now}");
        assert_eq!(wire.next_event(), next.map(ns), "{now}");
    }
    assert_eq!(batch.iter().map(crate::desc::Desc::len).collect::<Vec<_>>(), [60, 61]);
    batch.drain(..).for_each(|desc| assert!(bufs.free(desc)));
}

#[test]
fn flawed_frames_are_dropped_by_reason() {
    #[rustfmt::skip] // columns: name, length, flaw, runts are dropped, want
    let cases = [
        ("runt",             59, Flaw::None,      true,  Some(DropReason::Runt)),
        ("shortest",         60, Flaw::None,      true,  None),
        ("short, captured",  59, Flaw::None,      false, None),
        ("bad FCS",          60, Flaw::Fcs,       true,  Some(DropReason::Fcs)),
        ("bad FCS and runt", 20, Flaw::Fcs,       true,  Some(DropReason::Fcs)),
        ("cut off",          96, Flaw::Truncated, true,  Some(DropReason::Truncated)),
        ("over the chunk", 9000, Flaw::None,      true,  Some(DropReason::TooLong)),
    ];
    for (name, len, flaw, drop_runts, want) in cases {
        let (mut wire, mut far) = port(|config| config.drop_runts = drop_runts);
        let (mut bufs, mut batch) = (bufs(), Batch::new());
        assert!(far.send(ns(1), flaw, &vec![0; len]), "{name}");
        assert_eq!(wire.rx(ns(1), &mut bufs, &mut batch), usize::from(want.is_none()), "{name}");
        let [(reason, count), ..] = wire.counters().rx_dropped;
        assert_eq!((reason, count), (want, u64::from(want.is_some())), "{name}");
        batch.drain(..).for_each(|desc| assert!(bufs.free(desc)));
    }
}

#[test]
fn an_empty_pool_is_a_drop() {
    let (mut wire, mut far) = port(|_| ());
    let (mut bufs, mut batch) = (Bufs::new(Pool::in_memory(1, 64).unwrap(), 1, 0), Batch::new());
    for n in 0..2 {
        assert!(far.send(ns(n), Flaw::None, &[0; 60]));
    }
    assert_eq!(wire.rx(ns(9), &mut bufs, &mut batch), 1);
    assert_eq!(wire.rx(ns(9), &mut bufs, &mut batch), 0);
    assert_eq!(wire.counters().rx_dropped[0], (Some(DropReason::Pool), 1));
    batch.drain(..).for_each(|desc| assert!(bufs.free(desc)));
}

#[test]
fn transmission_takes_the_wire_time_and_is_one_frame_at_a_time() {
    #[rustfmt::skip] // columns: name, overhead, bytes, idle at ps, bytes at the far end
    let cases = [
        ("ACK on a true wire", true,    22,   6_720,    60),
        ("ACK and FCS alone", false,    22,   2_080,    22),
        ("1,402 bytes",       true,  1_402, 114_080, 1_402),
    ];
    for (name, overhead, len, idle_ps, far_len) in cases {
        let (mut wire, mut far) = port(|config| {
            config.overhead = overhead;
            config.propagation = Span::from_ps(5_000);
        });
        let (mut bufs, mut batch) = (bufs(), Batch::new());
        for _ in 0..2 {
            batch.push(bufs.alloc_from(&vec![7; len]).unwrap());
        }
        assert_eq!(wire.tx_room(Instant::ZERO), 1, "{name}");
        assert_eq!(wire.tx(Instant::ZERO, &mut bufs, &mut batch), 1, "{name}");
        let idle = Instant::from_ps(idle_ps);
        assert_eq!(wire.idle_at(), Some(idle), "{name}");
        let before = Instant::from_ps(idle_ps - 1);
        assert_eq!(wire.tx_room(before), 0, "{name}");
        assert_eq!(wire.tx(before, &mut bufs, &mut batch), 0, "{name}");
        assert_eq!(wire.tx_room(idle), 1, "{name}");
        assert_eq!(wire.idle_at(), None, "{name}");
        assert_eq!(wire.tx(idle, &mut bufs, &mut batch), 1, "{name}");
        assert_eq!(far.next_arrival(), Some(Instant::from_ps(idle_ps + 5_000)), "{name}");
        let frame = far.receive(Instant::from_ps(idle_ps + 5_000)).unwrap();
        assert_eq!(frame.bytes().len(), far_len, "{name}");
        assert!(frame.bytes()[..len].iter().all(|&b| b == 7), "{name}");
        assert!(frame.bytes()[len..].iter().all(|&b| b == 0), "{name}");
        assert_eq!(bufs.used().get(), 0, "{name}");
    }
}

#[test]
fn departures_are_the_first_of_each_port_since_they_were_taken() {
    let departures = Arc::new(Departures::new(3));
    let port = |index| PortId::new(index).unwrap();
    let (mut ends, _far): (Vec<_>, Vec<_>) = (0..3).map(|_| cable(8)).unzip();
    for (index, end) in ends.iter_mut().enumerate() {
        end.note_departures(departures.clone(), port(index));
    }
    let taken = || departures.take().collect::<Vec<_>>();
    assert_eq!(taken(), []);
    for (index, at) in [(2, 5), (0, 7), (2, 9)] {
        assert!(ends[index].send(ns(at), Flaw::None, &[0; 60]));
    }
    assert_eq!(taken(), [(port(0), ns(7)), (port(2), ns(5))]);
    assert_eq!(taken(), []);
    assert!(ends[2].send(ns(11), Flaw::None, &[0; 60]));
    assert_eq!(taken(), [(port(2), ns(11))]);
}

#[test]
fn a_pulled_cable_loses_what_is_in_flight() {
    let (mut wire, mut far) = port(|_| ());
    let (mut bufs, mut batch) = (bufs(), Batch::new());
    assert!(far.send(ns(5), Flaw::None, &[0; 60]));
    far.set_link(false);
    assert!(!wire.link_up());
    assert_eq!(wire.rx(ns(5), &mut bufs, &mut batch), 0);
    far.set_link(true);
    assert_eq!(wire.rx(ns(9), &mut bufs, &mut batch), 0);
    assert_eq!(wire.counters(), PortCounters::default());
    assert!((0..8).all(|n| far.send(ns(10 + n), Flaw::None, &[0; 60])));
    assert!(!far.send(ns(20), Flaw::None, &[0; 60]), "eight in flight fill it");
}

/// A link is down in [100, 200): frames on it then are lost, and `link_up` and `next_event` show both changes.
#[test]
fn an_outage_loses_what_is_on_the_link_and_is_told() {
    let (near, mut far) = cable(8);
    let mut near = near;
    let lost = Arc::new(AtomicU64::new(0));
    let spans = vec![(ns(100), ns(200))];
    near.set_outages(Outages::new(spans, Span::ZERO, lost.clone()));
    let mut wire = Wire::new(WireConfig::new("w0", RATE), 1_518, near);
    let (mut bufs, mut batch) = (bufs(), Batch::new());
    for at in [99, 150, 190, 230] {
        assert!(far.send(ns(at), Flaw::None, &[0; 60])); // 6.72 ns each
    }
    assert_eq!(wire.next_event(), Some(Instant::ZERO), "it is to look at its outages");
    #[rustfmt::skip] // columns: now, frames, next event before and after it was asked
    let cases = [
        (0,   0, 99,  99),
        (99,  1, 100, 100),
        (100, 0, 100, 150),
        (150, 0, 190, 190),
        (200, 0, 200, 230),
        (230, 1, 0,   0),
    ];
    for (now, frames, before, after) in cases {
        assert_eq!(wire.rx(ns(now), &mut bufs, &mut batch), frames, "{now}");
        assert_eq!(wire.next_event().map_or(0, Instant::as_ns), before, "{now}");
        assert_eq!(wire.link_up(), !(100..200).contains(&now), "{now}");
        assert_eq!(wire.next_event().map_or(0, Instant::as_ns), after, "{now}");
    }
    assert_eq!(lost.load(Ordering::Relaxed), 2);
}

#[test]
fn a_damaged_frame_is_a_drop() {
    let (mut wire, mut far) = port(|_| ());
    far.set_errors(Errors::new(crate::port::disturbance::ErrorRate::Frames(1), 1));
    assert!(far.send(ns(5), Flaw::None, &[0; 60]));
    let (mut bufs, mut batch) = (bufs(), Batch::new());
    assert_eq!(wire.rx(ns(5), &mut bufs, &mut batch), 0);
    assert_eq!(wire.counters().rx_dropped[0], (Some(DropReason::Fcs), 1));
}
