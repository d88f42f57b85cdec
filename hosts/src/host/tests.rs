//! Hosts over a wire in virtual time: every frame comes, every fault is noticed, PFC is exact both ways.

use weft_base::rng::Rng;
use weft_dataplane::time::Span;
use weft_parsers::{AfhMode, Pause, Pcp, Pfc, Vid, mac_control};

use super::testing::{End, Fault, bufs, run, wire};
use super::*;
use crate::frames::{Kind, Station};
use crate::pace::Rate;
use crate::report::{Balance, balance};
use crate::sizes::Sizes;

const FAR: Instant = Instant::from_ns(10_000_000_000);
const NO_CLASS: Pfc = Pfc { enable: 0, quanta: [0; 8] };

fn frame(kind: Kind) -> FrameSpec {
    FrameSpec::new(kind, Station::numbered(1), Station::numbered(2))
}

fn stream(id: u16, kind: Kind, pri: u8, count: u64) -> StreamSpec {
    let spec = match kind {
        Kind::Lite => frame(kind),
        _ => frame(kind).with_vlan(Pcp::default(), Vid::from_low_bits(5)),
    };
    let frame = spec.with_pri(Pri::new(pri).unwrap(), &PriMap::four()).unwrap();
    StreamSpec { count: Some(count), ..StreamSpec::new(id, frame) }
}

fn host(name: &str, number: u16, streams: Vec<StreamSpec>) -> HostSpec {
    HostSpec { streams, ..HostSpec::new(name, Station::numbered(number).mac) }
}

fn pair(sender: HostSpec, receiver: HostSpec) -> [Host; 2] {
    [Host::new(sender).unwrap(), Host::new(receiver).unwrap()]
}

fn reports(hosts: &[Host; 2], now: Instant) -> [Report; 2] {
    [0, 1].map(|i| hosts[i].report(now, &PortCounters::default()))
}

fn polled(host: &mut Host, ps: u64, end: &mut End, bufs: &mut Bufs) -> HostProgress {
    host.poll(Instant::from_ps(ps), end, bufs).unwrap()
}

/// Formats x priorities x sizes, both ways at once: equal counts on both sides, all clean.
#[test]
fn everything_comes_whole_and_in_order() {
    let ethernet = [Kind::Standard, Kind::Gen1, Kind::Gen2, Kind::Ethernet, Kind::Roce6];
    #[rustfmt::skip] // columns: name, AFH mode, kinds, priorities, frames that the transmitter takes
    let cases: [(_, _, &[Kind], &[u8], _); 4] = [
        ("all but Lite, frame by frame", AfhMode::Auto, &ethernet,     &[0, 1, 2, 3], 1),
        ("all but Lite, in bursts",      AfhMode::Auto, &ethernet,     &[0, 1, 2, 3], 64),
        ("Lite, frame by frame",         AfhMode::Lite, &[Kind::Lite], &[0, 2, 3],    1),
        ("Lite, in bursts",              AfhMode::Lite, &[Kind::Lite], &[0, 2, 3],    5),
    ];
    for (name, afh, kinds, pris, depth) in cases {
        let all = || kinds.iter().flat_map(|kind| pris.iter().map(move |pri| (*kind, *pri)));
        let streams = |first: u16| -> Vec<_> {
            let streams = (first..).zip(all()).map(|(id, (kind, pri))| {
                let mut spec = stream(id, kind, pri, 300);
                let (min, max) = (spec.frame.len_min(), spec.frame.len_max().min(1514));
                spec.frame.sizes = Sizes::List(vec![min, min.max(60), 256, max, 99.max(min)]);
                spec.rate = Rate::WireBps(5_000_000_000);
                spec
            });
            streams.collect()
        };
        let with = |spec: HostSpec| HostSpec { parse: ParseConfig { afh, ..spec.parse }, ..spec };
        let count = u16::try_from(all().count()).unwrap();
        let sender = with(host("a", 1, streams(0)));
        let mut hosts = pair(sender, with(host("b", 2, streams(count))));
        let (mut ends, mut bufs) = (wire(100, depth), bufs(300, 1600));
        let now = run(&mut hosts, &mut ends, &mut bufs, FAR);
        let [one, two] = reports(&hosts, now);
        let frames = u64::from(count) * 300;
        assert_eq!((one.tx.frames, two.tx.frames), (frames, frames), "{name}");
        assert_eq!((&one.tx_cells, &two.tx_cells), (&two.rx_cells, &one.rx_cells), "{name}");
        let formats: BTreeSet<_> = one.rx_cells.iter().map(|cell| cell.format).collect();
        assert_eq!(formats.len(), if kinds.len() == 1 { 1 } else { 4 }, "{name}");
        assert!(one.is_clean() && two.is_clean(), "{name}: {one:?}");
        assert_eq!(one.rx_streams.len(), usize::from(count), "{name}");
        assert!(hosts.iter().all(Host::is_done), "{name}");
        let both = balance(&[one, two]);
        assert!(both.iter().all(|b| (b.sent, b.received, b.lost) == (300, 300, 0)), "{name}");
    }
}

/// Faults of a seeded tenth of 20,000 frames: each kind is counted, exactly, and nothing else is.
#[test]
fn every_fault_is_seen_and_counted() {
    let chosen = |seed: u64| {
        let mut rng = Rng::new(seed);
        move || rng.chance(1, 10)
    };
    let drop = || -> Fault {
        let mut hit = chosen(1);
        Box::new(move |_, frame| if hit() { vec![] } else { vec![frame] })
    };
    let twice = || -> Fault {
        let mut hit = chosen(2);
        Box::new(move |_, frame| if hit() { vec![frame.clone(), frame] } else { vec![frame] })
    };
    let swap = || -> Fault {
        let (mut hit, mut held) = (chosen(3), None);
        Box::new(move |n, frame| match held.take() {
            Some(held) => vec![frame, held],
            None if n < 19_999 && hit() => {
                held = Some(frame);
                vec![]
            }
            None => vec![frame],
        })
    };
    let flip = || -> Fault {
        let (mut hit, mut rng) = (chosen(4), Rng::new(5));
        Box::new(move |_, mut frame| {
            if hit() {
                let at = 50 + usize::try_from(rng.below(frame.len() as u64 - 50)).unwrap();
                frame[at] ^= 1 << rng.below(8);
            }
            vec![frame]
        })
    };
    let count = |mut hit: Box<dyn FnMut() -> bool>| (0..20_000).filter(|_| hit()).count() as u64;
    let dropped = count(Box::new(chosen(1)));
    let doubled = count(Box::new(chosen(2)));
    let flipped = count(Box::new(chosen(4)));
    #[rustfmt::skip] // columns: name, fault, lost, reordered, duplicates, corrupt
    let cases: [(_, Fault, _, _, _, _); 5] = [
        ("none",      Box::new(|_, frame| vec![frame]), 0..=0,               0..=0,       0..=0,             0..=0),
        ("drop",      drop(),                           dropped..=dropped,   0..=0,       0..=0,             0..=0),
        ("twice",     twice(),                          0..=0,               0..=0,       doubled..=doubled, 0..=0),
        ("swap",      swap(),                           0..=0,               1500..=2000, 0..=0,             0..=0),
        ("flip",      flip(),                           0..=0,               0..=0,       0..=0,             flipped..=flipped),
    ];
    for (name, fault, lost, reordered, duplicates, corrupt) in cases {
        let mut spec = stream(1, Kind::Gen1, 2, 20_000);
        spec.frame.sizes = Sizes::Fixed(200); // behind byte 50 is payload only
        let mut hosts = pair(host("a", 1, vec![spec]), host("b", 2, vec![]));
        let (mut ends, mut bufs) = (wire(100, 1), bufs(64, 1600));
        ends[0].set_fault(fault);
        let now = run(&mut hosts, &mut ends, &mut bufs, FAR);
        let both = reports(&hosts, now);
        let got = balance(&both)[0];
        assert!(lost.contains(&got.lost), "{name}: {got:?}");
        assert!(reordered.contains(&got.reordered), "{name}: {got:?}");
        assert!(duplicates.contains(&got.duplicates), "{name}: {got:?}");
        assert!(corrupt.contains(&got.corrupt), "{name}: {got:?}");
        assert_eq!(both[1].is_clean(), name == "none", "{name}");
    }
}

/// A stream of `pri` at full speed that is paused once: when its frames go on, to the picosecond.
#[test]
fn pause_stops_its_priority_for_exactly_its_quanta() {
    let start = 1_000_000;
    let q = |quanta: u64| start + quanta * 5_120;
    let control = |spec: FrameSpec| {
        spec.to_vec(&Stamp { stream: 0, seq: 0, sent: Instant::ZERO }, 0).unwrap()
    };
    let pfc = |pfc| control(FrameSpec { pfc, ..frame(Kind::Pfc) });
    let pause = control(FrameSpec { pause: Pause { quanta: 100 }, ..frame(Kind::Pause) });
    let all_quanta = Pfc { enable: 0, quanta: [100; 8] };
    let mut reserved = pfc(NO_CLASS.with(3, 100));
    reserved[16] = 0xFF; // bits of the vector that name no class
    let bad = pfc(NO_CLASS.with(3, 100))[..mac_control::PFC_LEN - 1].to_vec();
    #[rustfmt::skip] // columns: name, frame received, priority, first time to send again, honours
    let cases = [
        ("class 3 of priority 2",     pfc(NO_CLASS.with(3, 100)),    2, q(100),    true),
        ("class 4 of priority 2",     pfc(NO_CLASS.with(4, 100)),    2, q(100),    true),
        ("the longest",               pfc(NO_CLASS.with(1, 0xFFFF)), 1, q(0xFFFF), true),
        ("one quantum",               pfc(NO_CLASS.with(7, 1)),      3, q(1),      true),
        ("another priority's class",  pfc(NO_CLASS.with(5, 100)),    2, start,     true),
        ("bits clear",                pfc(all_quanta),               2, start,     true),
        ("802.3x PAUSE",              pause,                         2, start,     true),
        ("reserved bits set",         reserved,                      2, q(100),    true),
        ("malformed",                 bad,                           2, start,     true),
        ("told to ignore PFC",        pfc(NO_CLASS.with(3, 100)),    2, start,     false),
    ];
    for (name, control, pri, again, honour_pfc) in cases {
        let spec = host("a", 1, vec![stream(1, Kind::Standard, pri, 1 << 40)]);
        let mut host = Host::new(HostSpec { honour_pfc, ..spec }).unwrap();
        let ([mut end, _other], mut bufs) = (wire(100, 1), bufs(16, 1600));
        assert_eq!(polled(&mut host, 0, &mut end, &mut bufs).sent, 1, "{name}: before");
        end.inject(Instant::from_ps(start), &control);
        let progress = polled(&mut host, start, &mut end, &mut bufs);
        assert_eq!(progress.sent, usize::from(again == start), "{name}: at once");
        if again > start {
            assert_eq!(progress.next, Some(Instant::from_ps(again)), "{name}");
            assert!(!progress.blocked, "{name}: stopped is not blocked");
            let late = polled(&mut host, again - 1, &mut end, &mut bufs);
            assert_eq!(late.sent, 0, "{name}: 1 ps before the end");
            assert_eq!(polled(&mut host, again, &mut end, &mut bufs).sent, 1, "{name}: the end");
        }
        let report = host.report(Instant::from_ps(again), &PortCounters::default());
        let paused = report.control.paused_ps[usize::from(pri)];
        assert_eq!(paused, again - start, "{name}: time paused");
        host.release(&mut bufs);
    }
}

#[test]
fn a_paused_priority_does_not_stop_the_others() {
    let streams = [(0, 1), (1, 3), (2, 2)].map(|(pri, id)| stream(id, Kind::Gen1, pri, 1 << 40));
    let mut host = Host::new(host("a", 1, streams.to_vec())).unwrap();
    let ([mut end, _other], mut bufs) = (wire(100, 1), bufs(16, 1600));
    let mut frame = [0; mac_control::FRAME_LEN];
    NO_CLASS.with(3, 0xFFFF).emit(MacAddr::ZERO, &mut frame);
    end.inject(Instant::ZERO, &frame);
    let mut now = Instant::ZERO;
    for _ in 0..100 {
        let progress = host.poll(now, &mut end, &mut bufs).unwrap();
        assert_eq!(progress.sent, 1);
        now = progress.next.unwrap();
    }
    assert_eq!([1, 2, 3].map(|id| host.sent(id)), [Some(50), Some(0), Some(50)]);
    assert_eq!(host.paused(), PriSet::from_bits(0b0100));
}

#[test]
fn streams_take_turns() {
    let streams = (0..7).map(|id| stream(id, Kind::Gen2, [0, 2, 3][usize::from(id % 3)], 1 << 40));
    let mut host = Host::new(host("a", 1, streams.collect())).unwrap();
    let ([mut end, _other], mut bufs) = (wire(100, 4), bufs(16, 1600));
    let mut now = Instant::ZERO;
    let mut sent = 0;
    for _ in 0..500 {
        let progress = host.poll(now, &mut end, &mut bufs).unwrap();
        sent += progress.sent as u64;
        now = progress.next.unwrap();
        let counts: Vec<_> = (0..7).map(|id| host.sent(id).unwrap()).collect();
        let (min, max) = (counts.iter().min().unwrap(), counts.iter().max().unwrap());
        assert!(max - min <= 1, "{counts:?}");
        assert_eq!(counts.iter().sum::<u64>(), sent);
    }
}

/// Frames that the port promised to take and then refused are sent later, in order and without loss, also while pauses
/// come and go.
#[test]
fn refused_frames_are_kept_in_order() {
    for (name, pauses) in [("no pause", false), ("with pauses", true)] {
        let streams: Vec<_> =
            (0..4).map(|id| stream(id, Kind::Standard, u8::try_from(id).unwrap(), 2_000)).collect();
        let mut hosts = pair(host("a", 1, streams), host("b", 2, vec![]));
        let (mut ends, mut bufs) = (wire(100, 10), bufs(200, 1600));
        ends[0].set_refuses(7);
        if pauses {
            for n in 0..400u16 {
                let mut frame = [0; mac_control::FRAME_LEN];
                NO_CLASS
                    .with([1, 3, 5][usize::from(n % 3)], 40 + n % 7 * 60)
                    .emit(MacAddr::ZERO, &mut frame);
                ends[0].inject(Instant::from_ns(u64::from(n) * 400), &frame);
            }
        }
        let now = run(&mut hosts, &mut ends, &mut bufs, FAR);
        let [one, two] = reports(&hosts, now);
        assert_eq!((one.control.pfc_rx, one.other.pending), (if pauses { 400 } else { 0 }, 0));
        assert!(two.is_clean(), "{name}: {two:?}");
        let both = balance(&[one, two]);
        assert!(both.len() == 4 && both.iter().all(|b| b.received == 2_000), "{name}: {both:?}");
        assert_eq!(bufs.used().get(), 0, "{name}: every chunk is back");
    }
}

#[test]
fn an_empty_pool_delays_and_loses_nothing() {
    let mut hosts = pair(host("a", 1, vec![stream(1, Kind::Gen1, 2, 500)]), host("b", 2, vec![]));
    let (mut ends, mut bufs) = (wire(100, 8), bufs(6, 1600));
    let hoard: Vec<_> = (0..3).filter_map(|_| bufs.alloc()).collect();
    let now = run(&mut hosts, &mut ends, &mut bufs, FAR);
    let [one, two] = reports(&hosts, now);
    assert!(one.other.no_buffer > 0);
    assert!(two.is_clean());
    assert_eq!(balance(&[one, two])[0].received, 500);
    for desc in hoard {
        bufs.free(desc);
    }
}

/// 100G into a receiver that drains 20G: PFC keeps every frame; without it frames are lost.
#[test]
fn a_slow_receiver_loses_nothing_while_its_pfc_is_honoured() {
    for honour_pfc in [true, false] {
        let mut spec = stream(1, Kind::Standard, 2, 20_000);
        spec.frame.sizes = Sizes::Imix;
        let other = stream(2, Kind::Standard, 0, 20_000);
        let slow = SlowSpec {
            drain: LinkRate::gbps(20),
            xoff_bytes: 100_000,
            xon_bytes: 50_000,
            capacity_bytes: 100_000 + 60_000, // 1 us each way at 100G, and what is under way
            lossless: PriSet::from_bits(0b0110),
            quanta: 0xFFFF,
        };
        let sender = HostSpec { honour_pfc, ..host("a", 1, vec![spec, other]) };
        let mut hosts = pair(sender, HostSpec { slow: Some(slow), ..host("b", 2, vec![]) });
        let (mut ends, mut bufs) = (wire(100, 1), bufs(64, 1600));
        let now = run(&mut hosts, &mut ends, &mut bufs, FAR);
        let [one, two] = reports(&hosts, now);
        let buffer = two.slow.unwrap();
        assert_eq!(buffer.overruns[2] == 0, honour_pfc, "{buffer:?}");
        assert!(buffer.overruns[0] > 0, "the lossy priority overruns");
        assert!(buffer.watermark_bytes[2] > 100_000 && buffer.used_bytes == 0);
        let (sent, seen) = (two.control, one.control);
        assert!(sent.stop_tx[3] > if honour_pfc { 10 } else { 2 } && sent.pfc_tx == seen.pfc_rx);
        assert_eq!((sent.stop_tx, sent.go_tx), (seen.stop_rx, seen.go_rx));
        assert_eq!(sent.stop_tx[3], sent.stop_tx[4], "both classes of priority 2");
        assert!(sent.go_tx[3] > 0 && [0, 1, 2, 5, 6, 7].iter().all(|c| sent.stop_tx[*c] == 0));
        assert_eq!(seen.paused_ps[2] > 0, honour_pfc);
        assert_eq!(seen.paused_ps[0], 0);
        assert!(hosts[0].paused().is_empty(), "the last word was to go on");
    }
}

#[test]
fn stations_are_made_known_once() {
    let mut streams: Vec<_> = (0..3).map(|id| stream(id, Kind::Standard, 2, 0)).collect();
    streams.push(stream(3, Kind::Gen1, 2, 0));
    streams.push(StreamSpec { count: Some(0), ..StreamSpec::new(4, frame(Kind::Gen2)) });
    streams.push(StreamSpec { count: Some(0), ..StreamSpec::new(5, frame(Kind::Pfc)) });
    let mut other_source = frame(Kind::Ethernet);
    other_source.src = Station::numbered(9);
    let stations = vec![frame(Kind::Ethernet), other_source.clone(), other_source];
    let mut hosts = pair(HostSpec { stations, ..host("a", 1, streams) }, host("b", 2, vec![]));
    hosts[0].announce();
    assert!(!hosts[0].is_done());
    let (mut ends, mut bufs) = (wire(100, 3), bufs(64, 1600));
    let now = run(&mut hosts, &mut ends, &mut bufs, FAR);
    let [one, two] = reports(&hosts, now);
    // untagged Ethernet 1 and 9, tagged Standard 1, tagged GEN1 1, untagged GEN2 1
    assert_eq!((one.tx.frames, two.other.announcements), (5, 5));
    assert!(hosts[0].is_done() && two.rx_streams.is_empty() && two.other.foreign == 0);
}

#[test]
fn control_streams_are_never_stopped() {
    let pfc = NO_CLASS.with(3, 0xFFFF);
    let storm = FrameSpec { pfc, ..frame(Kind::Pfc) };
    let rate = Rate::Fps(1_000_000);
    let storm = StreamSpec { rate, count: Some(50), ..StreamSpec::new(9, storm) };
    let paused = stream(1, Kind::Gen1, 2, 100);
    let mut hosts = pair(host("a", 1, vec![storm.clone()]), host("b", 2, vec![paused, storm]));
    let (mut ends, mut bufs) = (wire(100, 1), bufs(64, 1600));
    let now = run(&mut hosts, &mut ends, &mut bufs, Instant::from_ns(60_000));
    let [one, two] = reports(&hosts, now);
    assert_eq!((two.control.pfc_rx, two.control.stop_rx[3]), (50, 50));
    assert_eq!(one.control.pfc_rx, 50);
    assert!(two.tx.frames < 100 && !hosts[1].is_done(), "the stream is stopped");
    assert_eq!((one.tx.frames, two.tx_streams[1].pri), (0, None), "control frames count apart");
    assert!(balance(&[one, two]).iter().all(|b| b.stream == 1));
}

#[test]
fn foreign_and_broken_frames_are_counted_apart() {
    let mut hosts = pair(host("a", 1, vec![]), host("b", 2, vec![]));
    let (mut ends, mut bufs) = (wire(100, 1), bufs(64, 1600));
    let stamp = Stamp { stream: 3, seq: 0, sent: Instant::ZERO };
    let good = frame(Kind::Gen1).to_vec(&stamp, 0).unwrap();
    let mut broken = good.clone();
    broken[30] ^= 1;
    let mut truncated = good.clone();
    truncated.truncate(20);
    let mut control = [0; mac_control::FRAME_LEN];
    NO_CLASS.emit(MacAddr::ZERO, &mut control);
    control[14] = 0x77;
    for frame in [&good[..], &broken[..], &truncated[..], &[0xFF; 60], &control] {
        ends[1].inject(Instant::ZERO, frame);
    }
    let now = run(&mut hosts, &mut ends, &mut bufs, FAR);
    let [_, two] = reports(&hosts, now);
    let other = two.other;
    assert_eq!((other.broken, other.malformed, other.foreign), (1, 1, 1));
    assert_eq!((two.control.other_rx, two.rx.frames, two.rx_streams.len()), (1, 3, 1));
    assert!(!two.is_clean());
}

#[test]
fn stopped_hosts_are_done() {
    let mut a = Host::new(host("a", 1, vec![stream(1, Kind::Gen1, 2, 1 << 40)])).unwrap();
    let ([mut end, _other], mut bufs) = (wire(100, 4), bufs(64, 1600));
    end.set_refuses(2);
    polled(&mut a, 0, &mut end, &mut bufs);
    a.stop();
    assert!(!a.is_done(), "refused frames are still to be sent");
    assert_eq!(a.report(Instant::ZERO, &PortCounters::default()).other.pending, 2);
    polled(&mut a, 1_000_000, &mut end, &mut bufs);
    assert!(a.is_done());
    assert_eq!((end.take_sent().len() as u64, a.sent(1)), (4, Some(4)));
    let mut long = stream(1, Kind::Gen1, 2, 1 << 40);
    long.frame.sizes = Sizes::Fixed(500);
    let mut b = Host::new(host("b", 1, vec![long])).unwrap();
    let mut small = testing::bufs(8, 64);
    let progress = b.poll(Instant::from_ps(2_000_000), &mut end, &mut small).unwrap();
    assert_eq!((progress.sent, b.is_done()), (0, true), "frames that fit no chunk end a stream");
    assert_eq!(b.report(Instant::ZERO, &PortCounters::default()).other.unsendable, 1);
}

#[test]
fn impossible_hosts_are_refused() {
    let twice = vec![stream(4, Kind::Gen1, 2, 1), stream(4, Kind::Gen2, 2, 1)];
    assert_eq!(Host::new(host("a", 1, twice)).err(), Some(StreamError::Id { id: 4 }));
}

#[test]
fn reports_are_json_with_names_and_units() {
    let mut hosts = pair(host("a", 1, vec![stream(1, Kind::Gen1, 2, 10)]), host("b", 2, vec![]));
    let (mut ends, mut bufs) = (wire(100, 1), bufs(64, 1600));
    let now = run(&mut hosts, &mut ends, &mut bufs, FAR);
    let port = PortCounters { kernel_rx: 3, ..PortCounters::default() };
    let report = hosts[1].report(now, &port);
    assert!(!report.is_clean(), "what the kernel lost is a loss");
    let json: serde_json::Value = serde_json::from_str(&report.to_json()).unwrap();
    #[rustfmt::skip] // columns: place, value
    let cases = [
        ("/name",                          "\"b\""),
        ("/rx/frames",                     "10"),
        ("/rx_cells/0/format",             "\"gen1\""),
        ("/rx_cells/0/pri",                "2"),
        ("/rx_streams/0/unique",           "10"),
        ("/rx_streams/0/formats/gen1",     "10"),
        ("/rx_streams/0/latency/frames",   "10"),
        // 256 bytes at 100G with preamble and gap, and 1 us of delay
        ("/rx_streams/0/latency/min_ps",   "1022400"),
        ("/rx_streams/0/latency/max_ps",   "1022400"),
        ("/latency/p99_ps",                "1022400"),
        ("/other/kernel_rx",               "3"),
        ("/slow",                          "null"),
    ];
    for (place, value) in cases {
        assert_eq!(json.pointer(place).map(ToString::to_string).as_deref(), Some(value), "{place}");
    }
    let want = Balance { stream: 1, sent: 10, received: 10, ..Balance::default() };
    assert_eq!(balance(&reports(&hosts, now)), [want]);
}

/// Frames too short for a send time have no latency, instead of one of 0.
#[test]
fn latencies_that_were_not_measured_are_null() {
    for (len, is_measured) in [(64, false), (78, true)] {
        let mut spec = stream(1, Kind::Standard, 2, 10);
        spec.frame.sizes = Sizes::Fixed(len);
        let mut hosts = pair(host("a", 1, vec![spec]), host("b", 2, vec![]));
        let (mut ends, mut bufs) = (wire(100, 1), bufs(64, 1600));
        let now = run(&mut hosts, &mut ends, &mut bufs, FAR);
        let [sender, receiver] = [0, 1].map(|at| hosts[at].report(now, &PortCounters::default()));
        assert_eq!(receiver.rx_streams[0].unique, 10, "{len} bytes");
        let json: serde_json::Value = serde_json::from_str(&receiver.to_json()).unwrap();
        for figure in ["min_ps", "mean_ps", "p50_ps", "p99_ps", "p999_ps", "max_ps"] {
            for place in ["/latency", "/rx_streams/0/latency"] {
                let value = json.pointer(&format!("{place}/{figure}")).unwrap();
                assert_eq!(
                    value.is_u64(),
                    is_measured,
                    "{len} bytes, {place}: {figure} is {value}"
                );
                assert_eq!(
                    value.is_null(),
                    !is_measured,
                    "{len} bytes, {place}: {figure} is {value}"
                );
            }
        }
        let words = receiver.latency.in_words("too short");
        let want = if is_measured { "min 1008 p50 " } else { "not measured: too short" };
        assert!(words.starts_with(want), "{len} bytes: {words}");
        assert_eq!(sender.latency.min_ps, None, "it received nothing");
    }
}

/// The seed decides a run: two runs with random gaps and sizes end in equal reports.
#[test]
fn equal_seeds_make_equal_runs() {
    let once = |seed| {
        let mut spec = stream(1, Kind::Gen2, 2, 5_000);
        spec.frame.sizes = Sizes::Range(60, 1300);
        spec.gaps = crate::stream::Gaps::Random;
        spec.rate = Rate::WireBps(60_000_000_000);
        spec.seed = seed;
        let mut hosts = pair(host("a", 1, vec![spec]), host("b", 2, vec![]));
        let (mut ends, mut bufs) = (wire(100, 1), bufs(64, 1600));
        let now = run(&mut hosts, &mut ends, &mut bufs, FAR);
        reports(&hosts, now)
    };
    assert_eq!(once(1), once(1));
    assert_ne!(once(1), once(2));
}

/// Time wraps in the middle of a run: nothing is lost, pauses still end.
#[test]
fn the_wrap_of_time_is_crossed() {
    let before = Instant::from_ps(u64::MAX - 2_000_000);
    let mut spec = stream(1, Kind::Gen1, 2, 200);
    spec.start = before;
    spec.rate = Rate::WireBps(50_000_000_000);
    let mut host = Host::new(host("a", 1, vec![spec])).unwrap();
    let ([mut end, _other], mut bufs) = (wire(100, 1), bufs(64, 1600));
    let mut frame = [0; mac_control::FRAME_LEN];
    NO_CLASS.with(3, 1000).emit(MacAddr::ZERO, &mut frame);
    end.inject(before, &frame);
    let mut now = before;
    let mut first = None;
    while !host.is_done() {
        let progress = host.poll(now, &mut end, &mut bufs).unwrap();
        first = first.or((progress.sent > 0).then_some(now));
        now = progress.next.unwrap_or(now + Span::from_us(1));
        assert!(now.since(before) < Span::from_ms(1), "it ends");
    }
    assert_eq!(first, Some(before + LinkRate::gbps(100).quanta(1000)));
    assert_eq!(host.sent(1), Some(200));
}

/// For frames too short for a send time, the times kept by sender and receiver give the latency.
#[test]
fn latency_is_known_of_frames_without_room_for_a_send_time() {
    let short = frame(Kind::Standard).with_sizes(Sizes::Fixed(60));
    let rate = Rate::Fps(1_000_000);
    let sent = StreamSpec { count: Some(5), keep_times: 4, rate, ..StreamSpec::new(3, short) };
    let receiver = HostSpec { keep_arrivals: 10, ..host("b", 2, vec![]) };
    let mut hosts = pair(host("a", 1, vec![sent]), receiver);
    run(&mut hosts, &mut wire(100, 1), &mut bufs(64, 1600), FAR);
    let rx = hosts[1].received(3).unwrap();
    assert_eq!((rx.frames, rx.latency.count()), (5, 0));
    let latency = rx.latency_with(hosts[0].sending(3).unwrap().times());
    let exact = Span::from_ps(6_720 + 1_000_000); // 60 bytes at 100G, and the wire
    assert_eq!((latency.count(), latency.min(), latency.max()), (4, exact, exact));
}

/// With a clock of its own, a host dates an arrival by when the frame was taken.
#[test]
fn arrivals_are_timed_after_frames_were_taken() {
    let later = || Instant::from_ps(9_000_000);
    for (clock, want_ps) in [(None, 2_000_000), (Some(later as fn() -> Instant), 9_000_000)] {
        let spec = HostSpec { arrival_clock: clock, ..host("b", 2, vec![]) };
        let mut receiver = Host::new(spec).unwrap();
        let [mut end, _other] = wire(100, 1);
        let stamp = Stamp { stream: 4, seq: 0, sent: Instant::ZERO };
        end.inject(Instant::ZERO, &frame(Kind::Gen1).to_vec(&stamp, 0).unwrap());
        polled(&mut receiver, 2_000_000, &mut end, &mut bufs(16, 1600));
        assert_eq!(receiver.received(4).unwrap().latency.max().as_ps(), want_ps);
    }
}
