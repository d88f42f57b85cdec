//! Buffers: headroom, thresholds in balance and the first PAUSE, against their closed forms.
//!
//! Stations send more than an output takes, and the cells of its queues are compared with the forms. Every frame is one
//! cell.
//!
//! Source: docs/spec/model-reference.md §8 (Choudhury and Hahne 1998; IEEE 802.1Q-2022 Annex O).
#![expect(clippy::unwrap_used, clippy::indexing_slicing, reason = "a test may fail")]

use weft_dataplane::buffer::Headroom;
use weft_dataplane::config::SwitchConfig;
use weft_dataplane::pipeline::Ledger;
use weft_dataplane::stats::DropReason;
use weft_dataplane::time::{Instant, LinkRate, Span};
use weft_dataplane::trace::Event;
use weft_dataplane::types::{Alpha, PerPri, PortId, Pri, PriSet, QueueKey};
use weft_parsers::{Format, Vid};
use weft_sim::checkers::Watch;
use weft_sim::frames::{FrameSpec, stations_known};
use weft_sim::setup::Setup;
use weft_sim::station::Stream;
use weft_sim::switch::SwitchTiming;
use weft_sim::world::World;

/// A frame of 250 bytes takes 21.92 ns at 100 Gb/s.
const LEN: usize = 250;
const FRAME_NS: u64 = 22;

/// Stations 0 to `senders` - 1 send frames of priority `of` as fast as they can to the last one; with a single sender
/// that one's output is ten times slower.
fn congested(
    setup: &Setup,
    around: &SwitchTiming,
    senders: usize,
    of: u8,
    change: impl FnOnce(&mut SwitchConfig),
) -> World {
    let mut setup = setup.clone();
    let last = setup.ports - 1;
    if senders == 1 {
        setup.rates = vec![(last, LinkRate::gbps(10))];
    }
    let mut world = World::new(&setup, around, |config| {
        stations_known(config, Vid::new(1).unwrap());
        change(config);
    })
    .unwrap();
    world.look_every = 65_536;
    let pri = Pri::new(of).unwrap();
    for from in 0..senders {
        let spec = FrameSpec::new(Format::Standard, from, last, LEN, pri, setup.pris);
        world.stations[from].add(Stream {
            id: u16::try_from(from).unwrap(),
            pri,
            template: spec.to_vec(),
            len_min: LEN,
            gap: Span::ZERO,
            start: Instant::ZERO,
            count: u64::MAX,
        });
    }
    world
}

/// Annex O, to the byte, for frames of 1,398 bytes and a response of 800 ns.
#[test]
fn headroom_is_what_can_come_after_a_pause() {
    #[rustfmt::skip] // columns: Gb/s, bytes at 3, 10, 100 and 300 m, and at 10 m without a response
    let table = [
        (100, [13_303, 14_178,  25_428,  50_428],  4_178),
        (200, [23_678, 25_428,  47_928,  97_928],  5_428),
        (400, [44_428, 47_928,  92_928, 192_928],  7_928),
        (800, [85_928, 92_928, 182_928, 382_928], 12_928),
    ];
    for (gbps, want, alone) in table {
        let of = |cable_m, response| {
            let rate = LinkRate::gbps(gbps);
            let headroom = Headroom {
                rate,
                frame_len_max: 1_398,
                overhead: true,
                latency: Span::ZERO,
                propagation: Headroom::propagation(cable_m),
                response,
            };
            headroom.bytes()
        };
        let response = Span::from_ns(800);
        assert_eq!([3, 10, 100, 300].map(|cable_m| of(cable_m, response)), want, "{gbps}G");
        assert_eq!(of(10, Span::ZERO), alone, "{gbps}G");
    }
}

/// Result of a run: lossless frames that found no headroom, and the most cells of it that were used.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
struct Overrun {
    lost: u64,
    most: u64,
}

/// Stations 0 and 1 send the shortest frames of a lossless priority to 2, whose output is a hundred times slower, as
/// fast as they can; 2 and 3 send the longest ones back to them, behind which each PAUSE waits. Ingress groups have
/// `cells` of headroom of 256 bytes each.
fn overrun(headroom: &Headroom, cut_through: bool, cells: u32) -> Overrun {
    let &Headroom { rate, frame_len_max, overhead, latency, propagation, response } = headroom;
    assert_eq!(response, Span::ZERO, "stations obey at once");
    let slow = LinkRate::bps(rate.as_bps() / 100).unwrap();
    let mut setup = Setup { rate, frame_len_max, ecn: false, ..Setup::new(5, 4) };
    setup.rates = vec![(2, slow)];
    let around =
        SwitchTiming { latency, propagation, overhead, cut_through, ..SwitchTiming::default() };
    let mut world = World::new(&setup, &around, |config| {
        stations_known(config, Vid::new(1).unwrap());
        config.pfc.lossless = PriSet::from_bits(0b100);
        config.buffer.headroom_cells = vec![cells; 5];
        config.buffer.total_cells = 5 * (cells + config.buffer.pg_reserve_cells) + 2_048;
    })
    .unwrap();
    world.look_every = 65_536;
    let rows = [(0, 2, 2, 60), (1, 2, 2, 60), (3, 0, 0, frame_len_max), (4, 1, 0, frame_len_max)];
    for (from, to, of, len) in rows {
        let pri = Pri::new(of).unwrap();
        let template = FrameSpec::new(Format::Standard, from, to, len, pri, 4).to_vec();
        let (id, gap, start) = (u16::try_from(from).unwrap(), Span::ZERO, Instant::ZERO);
        world.stations[from].add(Stream {
            id,
            pri,
            template,
            len_min: len,
            gap,
            start,
            count: u64::MAX,
        });
    }
    let mut watch = Watch::new(&world.switch.core().snapshot.load(), |_, _: &Event| ());
    // Until groups have filled the shared part, and the frames after XOFF have arrived.
    let fill = rate.bit_time(4_096 * 84 * 8);
    let after = [latency, propagation, propagation, latency, propagation, propagation];
    let end = after.into_iter().fold(Instant::ZERO + fill, |end, span| end + span);
    world.run(end, &mut watch);
    let ledger = Ledger::read(world.switch.core());
    let queues = || ledger.port.iter().map(|port| &port.pri[2]);
    assert!(queues().map(|queue| queue.xoff).sum::<u64>() >= 2, "both groups cross XOFF");
    Overrun {
        lost: queues().map(|queue| queue.drops[DropReason::Headroom as usize]).sum(),
        most: queues().map(|queue| queue.headroom_watermark).max().unwrap(),
    }
}

/// The default headroom holds every frame that can arrive, with slow or long links. It is no larger than necessary:
/// where latency and cable make up most of it, a twentieth less is too little.
#[test]
fn headroom_covers_what_is_under_way_when_xoff_is_decided() {
    let mut tight = 0;
    #[rustfmt::skip] // columns: latency in ns, cable in m
    let delays = [(0, 0), (0, 10), (500, 10), (5_000, 10), (500, 1_000), (5_000, 2_000), (50_000, 10)];
    for gbps in [10, 100, 400, 800] {
        for (latency_ns, cable_m) in delays {
            for (frame_len_max, overhead) in [(1_398, true), (9_216, true), (1_398, false)] {
                let headroom = Headroom {
                    rate: LinkRate::gbps(gbps),
                    frame_len_max,
                    overhead,
                    latency: Span::from_ns(latency_ns),
                    propagation: Headroom::propagation(cable_m),
                    response: Span::ZERO,
                };
                let cells = headroom.cells(256);
                let stored = overrun(&headroom, false, cells);
                let cut = overrun(&headroom, true, cells);
                assert_eq!((stored.lost, cut.lost), (0, 0), "{headroom:?}");
                if overhead && headroom.bytes() > 40 * frame_len_max as u64 {
                    tight += 1;
                    let less = overrun(&headroom, false, cells / 20 * 19);
                    assert!(less.lost > 0, "{headroom:?}: {cells} cells are too many");
                }
            }
        }
    }
    assert!(tight >= 20, "{tight} rows are judged for being tight");
}

/// Other queues drain, so that the limit of a group rises while its headroom is in use: the next time it is paused, its
/// headroom must hold all further frames again.
#[test]
fn a_group_goes_on_with_its_headroom_empty() {
    let mut setup = Setup { ecn: false, ..Setup::new(4, 4) };
    let rate = setup.rate;
    let rates =
        [2, 3].map(|port| (port, LinkRate::bps(rate.as_bps() / [100, 4][port - 2]).unwrap()));
    setup.rates = rates.into();
    setup.latency = Span::from_us(1);
    setup.peer_response = Span::ZERO;
    let propagation = Headroom::propagation(setup.cable_m);
    let around = SwitchTiming { latency: setup.latency, propagation, ..SwitchTiming::default() };
    let cells = setup.headroom(0).cells(256);
    let mut world = World::new(&setup, &around, |config| {
        stations_known(config, Vid::new(1).unwrap());
        config.pfc.lossless = PriSet::from_bits(0b100);
        config.buffer.total_cells = 4 * (cells + config.buffer.pg_reserve_cells) + 4_096;
    })
    .unwrap();
    world.look_every = 65_536;
    for (from, to, of, count) in [(0, 2, 2, u64::MAX), (1, 3, 0, 4_000)] {
        let pri = Pri::new(of).unwrap();
        let template = FrameSpec::new(Format::Standard, from, to, 60, pri, 4).to_vec();
        let (id, gap, len_min) = (u16::try_from(from).unwrap(), Span::ZERO, 60);
        let start = Instant::ZERO;
        world.stations[from].add(Stream { id, pri, template, len_min, gap, start, count });
    }
    let mut watch = Watch::new(&world.switch.core().snapshot.load(), |_, _: &Event| ());
    watch.checkers.lossless_absolute = true;
    world.run(Instant::from_ns(150_000), &mut watch);
    let ledger = Ledger::read(world.switch.core());
    let queue = &ledger.port[0].pri[2];
    assert!(queue.xoff > 1, "it was paused, went on and was paused again");
    assert_eq!(queue.drops[DropReason::Headroom as usize], 0, "{cells} cells");
    assert_eq!(watch.checkers.violations(), []);
}

/// N senders of rate R into one output: after a time T the queues hold (N − 1)·R·T, to a frame of each sender.
#[test]
fn an_incast_fills_buffers_with_what_comes_in_beyond_what_goes_out() {
    const TIME: Span = Span::from_us(10);
    for (gbps, senders, bytes) in
        [(200, 8, 1_750_000), (400, 8, 3_500_000), (400, 16, 7_500_000), (400, 32, 15_500_000)]
    {
        let (rate, around) = (LinkRate::gbps(gbps), SwitchTiming::default());
        let (pfc, ecn, buffer_bytes) = (false, false, 64 << 20);
        let setup = Setup { rate, pfc, ecn, buffer_bytes, ..Setup::new(senders + 1, 4) };
        let mut world = congested(&setup, &around, senders, 0, |config| {
            config.buffer.alpha = PerPri([Alpha::shift(7); 8]);
        });
        let mut watch = Watch::new(&world.switch.core().snapshot.load(), |_, _: &Event| ());
        // Counted from the arrival of the first frames.
        let first = rate.frame_time(LEN) + around.propagation + around.latency;
        world.run(Instant::ZERO + first + TIME, &mut watch);
        assert_eq!(watch.checkers.violations(), [], "{senders} at {gbps}G");
        let (core, output) = (world.switch.core(), PortId::new(senders).unwrap());
        let used = |input| {
            u64::from(core.buffer.voq_used(QueueKey { input, output, pri: Pri::default() }))
        };
        let frames: u64 = (0..senders).filter_map(PortId::new).map(used).sum();
        let had = frames * (LEN as u64 + 24);
        let each = senders as u64 * (LEN as u64 + 24);
        assert!(had.abs_diff(bytes) <= each, "{senders} at {gbps}G: {had} bytes, not {bytes}");
    }
}

/// N queues that are never empty settle at αB / (1 + αN) cells each, to within a free cell, which is worth α cells to
/// each.
#[test]
fn dynamic_thresholds_balance() {
    const CELLS: u64 = 16_384;
    for (times, parts) in [(1, 1), (1, 8), (8, 1), (3, 4), (5, 3)] {
        for senders in [1, 2, 7, 15] {
            // B = 16 MiB in cells of 1 KiB.
            let (pfc, ecn) = (false, false);
            let buffer_bytes = CELLS << 10;
            let setup = Setup { buffer_bytes, cell_bytes: 1_024, pfc, ecn, ..Setup::new(16, 4) };
            let mut world = congested(&setup, &SwitchTiming::default(), senders, 0, |config| {
                config.buffer.alpha = PerPri([Alpha::ratio(times, parts).unwrap(); 8]);
                config.buffer.voq_reserve_cells = 0;
            });
            // αB / (1 + αN), with α = times / parts.
            let want = times * CELLS / (parts + times * senders as u64);
            // Twice as long as it takes to fill them at the difference of input and output rates.
            let beyond = if senders == 1 { 90 } else { 100 - 100 / senders as u64 };
            let end = Instant::from_ns(2 * want * FRAME_NS * 100 / beyond);
            let mut watch = Watch::new(&world.switch.core().snapshot.load(), |_, _: &Event| ());
            world.run(end, &mut watch);
            assert_eq!(watch.checkers.violations(), [], "{times}/{parts} {senders}");
            let core = world.switch.core();
            let output = PortId::new(15).unwrap();
            let mut sum = 0;
            for input in (0..senders).filter_map(PortId::new) {
                let had = u64::from(core.buffer.voq_used(QueueKey {
                    input,
                    output,
                    pri: Pri::default(),
                }));
                sum += had;
                assert!(
                    had.abs_diff(want) <= times,
                    "alpha {times}/{parts}, {senders}: {had}, not {want}"
                );
            }
            let mean = sum / senders as u64;
            assert!(
                mean.abs_diff(want) <= 1,
                "alpha {times}/{parts}, {senders}: {mean} on average"
            );
        }
    }
}

/// 64 ports of 100G with cables of 1 us, α = 1/8, a reserve of 4,096 bytes and headroom for each input; the rest of 32
/// MiB (30,892,288 bytes) is shared. The first of N inputs into one output is paused at 4,096 + 30,892,288 / (8 + N)
/// bytes.
#[test]
fn the_first_pause_comes_at_its_share() {
    const SHARED: u32 = 30_892_288 / 256;
    const HEADROOM: u32 = 37_500 / 256 + 1;
    for (senders, bytes) in [(1, 3_436_572), (16, 1_291_275)] {
        let setup = Setup { ecn: false, ..Setup::new(64, 4) };
        let around = SwitchTiming { propagation: Span::from_us(1), ..SwitchTiming::default() };
        let world = congested(&setup, &around, senders, 2, |config| {
            config.pfc.lossless = PriSet::from_bits(0b100);
            config.buffer.alpha = PerPri([Alpha::shift(-3); 8]);
            config.buffer.pg_reserve_cells = 4_096 / 256;
            config.buffer.headroom_cells = vec![HEADROOM; 64];
            config.buffer.total_cells = SHARED + 64 * (HEADROOM + 4_096 / 256);
        });
        let mut world = world;
        let mut first = None;
        let mut watch = Watch::new(&world.switch.core().snapshot.load(), |_, event: &Event| {
            if let Event::Group { xoff: true, used, .. } = *event {
                first.get_or_insert(used);
            }
        });
        watch.checkers.lossless_absolute = true;
        let end = Instant::from_ns(bytes / 256 * FRAME_NS * 3 / 2);
        world.run(end, &mut watch);
        assert_eq!(watch.checkers.violations(), [], "{senders}");
        drop(watch);
        let (had, want) = (u64::from(first.unwrap()), bytes / 256);
        assert!(had.abs_diff(want) <= 1, "{senders} inputs: {had} cells, not {want}");
    }
}
