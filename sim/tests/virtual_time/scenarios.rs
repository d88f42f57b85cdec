//! Scenarios: promises to operators, end to end in virtual time.
//!
//! Each has a world of stations; figures come from counters, stations and the trace.
//!
//! Source: docs/spec/pipeline.md §2, §7, §8, §9.
#![expect(clippy::unwrap_used, clippy::indexing_slicing, reason = "a test may fail")]

use weft_dataplane::config::SwitchConfig;
use weft_dataplane::pipeline::Ledger;
use weft_dataplane::port::flaw::Flaw;
use weft_dataplane::stats::DropReason;
use weft_dataplane::time::{Instant, LinkRate, Span};
use weft_dataplane::trace::Event;
use weft_dataplane::types::{PortId, Pri};
use weft_parsers::{Format, MacAddr, Pause, Pfc, Vid, mac_control};
use weft_sim::checkers::Watch;
use weft_sim::frames::{FrameSpec, stations_known};
use weft_sim::setup::Setup;
use weft_sim::station::Stream;
use weft_sim::switch::SwitchTiming;
use weft_sim::world::World;

const SECOND: Instant = Instant::from_ns(1_000_000_000);

fn pri(pri: u8) -> Pri {
    Pri::new(pri).unwrap()
}

fn port(index: usize) -> PortId {
    PortId::new(index).unwrap()
}

fn world(setup: &Setup, change: impl FnOnce(&mut SwitchConfig)) -> World {
    let around = SwitchTiming { latency: setup.latency, ..SwitchTiming::default() };
    World::new(setup, &around, |config| {
        stations_known(config, Vid::new(1).unwrap());
        change(config);
    })
    .unwrap()
}

fn watch(world: &World) -> Watch<impl FnMut(Instant, &Event) + use<>> {
    Watch::new(&world.switch.core().snapshot.load(), |_, _: &Event| ())
}

/// A stream of Standard frames that saturates its sender.
fn stream(setup: &Setup, id: u16, ends: (usize, usize), of: u8, len: usize, count: u64) -> Stream {
    let (src, dst) = ends;
    let spec = FrameSpec::new(Format::Standard, src, dst, len, pri(of), setup.pris);
    Stream {
        id,
        pri: pri(of),
        template: spec.to_vec(),
        len_min: len,
        gap: Span::ZERO,
        start: Instant::ZERO,
        count,
    }
}

fn drops(ledger: &Ledger, reason: DropReason) -> u64 {
    ledger.port.iter().map(|port| port.drops[reason as usize]).sum()
}

/// Seven senders to one receiver at 40G, a million frames; returns the world when all have arrived.
fn incast(pfc: bool) -> (World, Setup, u64) {
    let mut setup = Setup::new(8, 4);
    setup.rates = vec![(7, LinkRate::gbps(40))];
    (setup.pfc, setup.ecn) = (pfc, false);
    let mut world = world(&setup, |_| ());
    world.look_every = 4_096;
    let mut watch = watch(&world);
    watch.checkers.lossless_absolute = true;
    let count = 145_000;
    for src in 0..7 {
        let id = u16::try_from(src).unwrap();
        world.stations[src].add(stream(&setup, id, (src, 7), 2, 250, count));
    }
    assert!(world.drain(SECOND, &mut watch), "all frames leave or are dropped");
    watch.checkers.finish(world.now(), world.switch.core());
    assert_eq!(watch.checkers.violations(), []);
    (world, setup, 7 * count)
}

#[test]
fn incast_of_a_lossless_priority_loses_nothing() {
    let (world, setup, sent) = incast(true);
    assert!(sent >= 1_000_000);
    let ledger = Ledger::read(world.switch.core());
    assert_eq!((ledger.rx, ledger.dropped, ledger.imbalance()), (sent, 0, 0));
    for src in 0..7 {
        let got = world.stations[7].arrivals(u16::try_from(src).unwrap());
        assert_eq!((got.frames, got.missing, got.disordered), (sent / 7, 0, 0), "from {src}");
        let queue = &ledger.port[src].pri[2];
        let size = u64::from(setup.headroom(src).cells(setup.cell_bytes));
        let high = queue.headroom_watermark;
        assert!(high > 0 && high < size, "{src}: {high} of {size} cells of headroom");
        assert_eq!(queue.xoff, queue.xon, "{src}: every XOFF has its XON");
        assert!(queue.pause_tx > 0 && queue.resume_tx > 0, "{src}");
        let heard = world.stations[src].heard();
        assert!(heard.pauses > 0 && heard.resumes > 0 && heard.bad == 0, "{src}: {heard:?}");
    }
}

#[test]
fn incast_without_pfc_drops_by_dynamic_threshold_only() {
    let (world, _, sent) = incast(false);
    let ledger = Ledger::read(world.switch.core());
    assert_eq!((ledger.rx, ledger.imbalance()), (sent, 0));
    assert!(ledger.dropped > 0);
    assert_eq!(ledger.dropped, drops(&ledger, DropReason::Dt), "all are dt");
    let arrived: u64 = (0..7).map(|id| world.stations[7].arrivals(id).frames).sum();
    assert_eq!(arrived + ledger.dropped, sent);
}

fn pfc_frame(classes: &[(u8, u16)], enable: Option<u8>) -> Vec<u8> {
    let mut pfc = Pfc::default();
    for &(class, quanta) in classes {
        pfc = pfc.with(class, quanta);
    }
    pfc.enable = enable.unwrap_or(pfc.enable);
    let mut out = [0; mac_control::FRAME_LEN];
    pfc.emit(MacAddr([2, 0, 0, 0, 0x10, 1]), &mut out);
    out.to_vec()
}

/// Runs two priorities into port 0 and sends `frame` from there at 50 µs; returns when it was taken in and, by
/// priority, when frames left.
fn paused(pris: usize, busy: &[u8], frame: &[u8]) -> (Instant, Vec<(Instant, u8)>) {
    let mut setup = Setup::new(4, pris);
    (setup.pfc, setup.ecn) = (true, false);
    setup.buffer_bytes = 16 << 20;
    let mut world = world(&setup, |config| config.pfc.watchdog_detect = Span::ZERO);
    let (mut at, mut left) = (None, Vec::new());
    let mut watch =
        Watch::new(&world.switch.core().snapshot.load(), |now, event: &Event| match *event {
            Event::PauseRx { port: 0, .. } => at = Some(now),
            Event::Consume { port: 0, .. } => at = at.or(Some(now)),
            Event::Deq { port: 0, pri, .. } => left.push((now, pri)),
            _ => {}
        });
    let mut id = 0;
    for src in 1..4 {
        for &of in busy {
            world.stations[src].add(stream(&setup, id, (src, 0), of, 500, 4_000));
            id += 1;
        }
    }
    world.run(Instant::from_ns(50_000), &mut watch);
    world.stations[0].inject(frame.to_vec(), Flaw::None);
    world.poke();
    world.run(Instant::from_ns(600_000), &mut watch);
    assert_eq!(watch.checkers.violations(), []);
    drop(watch);
    (at.expect("the frame was taken in"), left)
}

#[test]
fn a_pause_stops_its_priority_for_exactly_its_quanta() {
    for quanta in [1, 100, 5_000, 0xFFFF] {
        // Alone: the first frame after the pause leaves the very picosecond at which the pause ends, unless the
        // transmitter is still busy with the frame before it.
        let (at, left) = paused(4, &[2], &pfc_frame(&[(3, quanta)], None));
        let end = at + LinkRate::gbps(100).quanta(quanta);
        let frame = LinkRate::gbps(100).frame_time(500);
        let last = left.iter().rev().find(|(t, _)| *t < at).unwrap().0;
        let first = left.iter().find(|(t, _)| *t >= at).unwrap().0;
        assert_eq!(first, end.max(last + frame), "{quanta} quanta");
        // With another priority: that one goes on during the pause.
        let (at, left) = paused(4, &[1, 2], &pfc_frame(&[(3, quanta)], None));
        let end = at + LinkRate::gbps(100).quanta(quanta);
        let during: Vec<_> = left.iter().filter(|(t, _)| (at..end).contains(t)).collect();
        assert!(during.iter().all(|(_, pri)| *pri == 1), "{quanta} quanta");
        let want = end.since(at).as_ps() / frame.as_ps();
        assert!(during.len() as u64 >= want, "{quanta}: {} of {want}", during.len());
        assert!(left.iter().any(|(t, pri)| *t >= end && *pri == 2), "{quanta}: goes on");
    }
}

#[test]
fn reserved_bits_of_the_enable_vector_do_not_keep_a_pause_from_its_class() {
    let plain = pfc_frame(&[(3, 1_000)], None);
    let want = paused(4, &[2], &plain);
    for reserved in [0x01, 0x80, 0xFF] {
        let mut frame = plain.clone();
        frame[16] = reserved;
        assert!(paused(4, &[2], &frame) == want, "{reserved:#04x}");
    }
}

#[test]
fn what_is_not_a_pause_of_the_class_stops_nothing() {
    let mut pause = [0; mac_control::FRAME_LEN];
    Pause { quanta: 0xFFFF }.emit(MacAddr([2, 0, 0, 0, 0x10, 1]), &mut pause);
    let mut reserved = pfc_frame(&[(3, 0xFFFF)], Some(0));
    reserved[16] = 0x10;
    #[rustfmt::skip] // columns: name, frame
    let cases = [
        ("clear enable bit",      pfc_frame(&[(3, 0xFFFF)], Some(0))),
        ("another class",         pfc_frame(&[(5, 0xFFFF)], None)),
        ("0 quanta",              pfc_frame(&[(3, 0)], None)),
        ("802.3x PAUSE",          pause.to_vec()),
        ("reserved bits only",    reserved),
    ];
    for (name, frame) in cases {
        let (at, left) = paused(4, &[2], &frame);
        let wire = LinkRate::gbps(100).frame_time(500);
        let gaps = left.windows(2).filter(|pair| pair[1].0.since(pair[0].0) > wire);
        let after = left.iter().filter(|(t, _)| *t >= at).count();
        assert_eq!(gaps.filter(|pair| pair[1].0 >= at).count(), 0, "{name}");
        assert!(after > 1_000, "{name}: {after}");
    }
}

#[test]
fn classes_map_to_priorities_and_back() {
    for pris in [4, 8] {
        let mut setup = Setup::new(2, pris);
        setup.buffer_bytes = 8 << 20;
        let config = setup.config();
        for class in 0..8 {
            let mut world = world(&setup, |_| ());
            let mut watch = watch(&world);
            world.stations[0].inject(pfc_frame(&[(class, 1_000)], None), Flaw::None);
            world.poke();
            world.run(Instant::from_ns(1_000), &mut watch);
            let want = config.maps.pcp_to_pri[usize::from(class)];
            let got: Vec<_> = world.switch.core().paused(port(0)).iter().collect();
            assert_eq!(got, [want], "class {class} of {pris}");
            assert!(world.switch.core().paused(port(1)).is_empty(), "class {class} of {pris}");
        }
        for of in config.pfc.lossless.iter() {
            let mut setup = Setup::new(4, pris);
            setup.buffer_bytes = 4 << 20;
            setup.rates = vec![(0, LinkRate::gbps(25))];
            let mut world = world(&setup, |_| ());
            let mut named = Vec::new();
            let mut watch = Watch::new(&world.switch.core().snapshot.load(), |_, event: &Event| {
                if let Event::PauseTx { pausing, .. } = *event {
                    named.push(pausing);
                }
            });
            for src in 1..4 {
                let id = u16::try_from(src).unwrap();
                world.stations[src].add(stream(&setup, id, (src, 0), of.get(), 1_000, 4_000));
            }
            assert!(world.drain(SECOND, &mut watch), "{of:?} of {pris}");
            watch.checkers.finish(world.now(), world.switch.core());
            assert_eq!(watch.checkers.violations(), [], "{of:?} of {pris}");
            let want = config.pfc.classes[of];
            assert!(named.contains(&want), "{of:?} of {pris}: {named:?}");
            assert!(named.iter().all(|&set| set == want || set == 0), "{of:?} of {pris}");
        }
    }
}

#[test]
fn a_pause_storm_trips_the_watchdog_and_is_restored() {
    let setup = Setup::new(4, 4);
    let mut world = world(&setup, |config| {
        config.pfc.watchdog_detect = Span::from_ms(2);
        config.pfc.watchdog_restore = Span::from_ms(1);
    });
    let mut storms = Vec::new();
    let mut watch = Watch::new(&world.switch.core().snapshot.load(), |now, event: &Event| {
        if let Event::Storm { port, pri, active } = *event {
            storms.push((now, port, pri, active));
        }
    });
    for src in 1..4 {
        let id = u16::try_from(src).unwrap();
        let mut stream = stream(&setup, id, (src, 0), 2, 1_000, 4_000);
        stream.gap = Span::from_us(2); // 8 ms of light traffic
        world.stations[src].add(stream);
    }
    for n in 0..13 {
        world.run(Instant::from_ns(n * 300_000), &mut watch);
        world.stations[0].inject(pfc_frame(&[(3, 0xFFFF)], None), Flaw::None);
        world.poke();
    }
    assert!(world.drain(SECOND, &mut watch));
    watch.checkers.finish(world.now(), world.switch.core());
    assert_eq!(watch.checkers.violations(), []);
    drop(watch);
    let begin = 2_000_000..2_002_000;
    let end =
        Instant::from_ns(12 * 300_000) + LinkRate::gbps(100).quanta(0xFFFF) + Span::from_ms(1);
    let [(began, 0, 2, true), (ended, 0, 2, false)] = storms[..] else { panic!("{storms:?}") };
    assert!(begin.contains(&began.as_ns()), "{began:?}");
    assert!(ended.since(end) < Span::from_us(2) && end <= ended, "{ended:?} {end:?}");
    let ledger = Ledger::read(world.switch.core());
    assert_eq!(ledger.port[0].pri[2].storms, 1);
    assert!(drops(&ledger, DropReason::Watchdog) > 100);
    assert_eq!(ledger.dropped, drops(&ledger, DropReason::Watchdog));
    let arrived: u64 = (1..4).map(|id| world.stations[0].arrivals(id).frames).sum();
    assert!(arrived > 3_000, "traffic goes on afterwards: {arrived}");
}

#[test]
fn weights_are_kept_end_to_end_and_strict_never_waits() {
    for inputs in [1, 3] {
        let mut setup = Setup::new(4, 4);
        (setup.pfc, setup.ecn) = (false, false);
        setup.rates = vec![(0, LinkRate::gbps(25))];
        let mut world = world(&setup, |_| ());
        let mut served = [0u64; 4];
        let from = Instant::from_ns(200_000);
        let mut watch = Watch::new(&world.switch.core().snapshot.load(), |now, event: &Event| {
            if let Event::Deq { port: 0, pri, .. } = *event
                && now >= from
            {
                served[usize::from(pri)] += 1;
            }
        });
        for src in 1..=inputs {
            for of in 0..3 {
                let id = u16::try_from(src * 8).unwrap() + u16::from(of);
                world.stations[src].add(stream(&setup, id, (src, 0), of, 500, u64::MAX));
            }
            let mut strict =
                stream(&setup, u16::try_from(src * 8 + 3).unwrap(), (src, 0), 3, 500, u64::MAX);
            strict.gap = Span::from_us(3);
            world.stations[src].add(strict);
        }
        world.run(Instant::from_ns(20_000_000), &mut watch);
        assert_eq!(watch.checkers.violations(), [], "{inputs} inputs: strict waits, or worse");
        drop(watch);
        let shared: u64 = served[..3].iter().sum();
        for (of, share) in [(2, 50), (1, 40), (0, 10)] {
            let off = (served[of] * 100).abs_diff(share * shared);
            assert!(off <= shared, "{inputs} inputs: {served:?}");
        }
        // Strict frames: as many as were sent, since none was ever dropped or delayed.
        let sent: u64 = (1..=inputs).map(|src| world.stations[src].sent_of(pri(3))).sum();
        let early = inputs as u64 * 70; // before the count began, and in flight
        assert!(served[3] + early >= sent && served[3] > 6_000, "{inputs}: {served:?} {sent}");
    }
}

#[test]
fn marking_follows_the_formula_through_the_whole_pipeline() {
    let mut setup = Setup::new(4, 4);
    setup.pfc = false;
    let mut world = world(&setup, |_| ());
    let mut bins = [(0u64, 0u64, 0u64); 3]; // frames, marked, expected in 1/1000
    let mut outside = 0;
    let mut watch = Watch::new(&world.switch.core().snapshot.load(), |_, event: &Event| {
        let Event::Deq { port: 0, depth, low, high, ect, marked, .. } = *event else { return };
        if !ect {
            assert!(!marked, "Not-ECT is never marked");
            return;
        }
        if depth < low || depth >= high {
            outside += u64::from(marked != (depth >= high));
            return;
        }
        let bin = &mut bins[usize::try_from((depth - low) * 3 / (high - low)).unwrap()];
        bin.0 += 1;
        bin.1 += u64::from(marked);
        bin.2 += (depth - low) * 1_000 / (high - low);
    });
    // Bursts of two senders fill the queue beyond the upper mark, and let it run empty.
    let mut sent = 0;
    for cycle in 0..120 {
        for src in 1..3 {
            let id = u16::try_from(cycle * 4 + src).unwrap();
            let mut stream = stream(&setup, id, (src, 0), 0, 1_000, 600);
            if cycle % 10 == 9 {
                let mut spec = FrameSpec::new(Format::Standard, src, 0, 1_000, pri(0), 4);
                spec.ecn = 0;
                stream.template = spec.to_vec();
            }
            sent += stream.count;
            world.stations[src].add(stream);
        }
        world.poke();
        assert!(world.drain(SECOND, &mut watch));
    }
    assert_eq!(watch.checkers.violations(), []);
    drop(watch);
    assert_eq!(outside, 0, "below never, above always");
    for (n, (frames, marked, expected)) in bins.into_iter().enumerate() {
        assert!(frames >= 10_000, "bin {n}: {frames} of {sent}");
        let off = (marked * 1_000).abs_diff(expected) / frames; // in 1/1000
        assert!(off <= 20, "bin {n}: {marked} of {frames}, not {expected} / 1000");
    }
    let ledger = Ledger::read(world.switch.core());
    assert_eq!((ledger.rx, ledger.tx), (sent, sent));
}

#[test]
fn one_afh_station_is_one_entry() {
    let setup = Setup::new(2, 8);
    for format in [Format::AfhGen1, Format::AfhGen2] {
        let mut world = World::new(&setup, &SwitchTiming::default(), |_| ()).unwrap();
        let mut watch = watch(&world);
        for index in 0..64u8 {
            let mut spec = FrameSpec::new(format, 0, 1, 100, pri(0), 8);
            (spec.pcp, spec.tc) = (None, index << 2);
            spec.payload_bits = u32::from(index) * 0x01_0203;
            world.stations[0].inject(spec.to_vec(), Flaw::None);
        }
        world.poke();
        assert!(world.drain(SECOND, &mut watch), "{format:?}");
        let core = world.switch.core();
        assert_eq!((core.fdb.len(), core.fdb.learned(port(0))), (1, 1), "{format:?}");
        let ledger = Ledger::read(core);
        assert_eq!(ledger.port[1].tx_frames, 64, "{format:?}");
        for queue in &ledger.port[1].pri {
            assert_eq!(queue.dequeued, 8, "{format:?}: eight classes to each priority");
        }
    }
}
