//! A frame that is dropped as it leaves its queue makes room, like one that is sent.
//!
//! The pool is starved, and two frames are to be marked at two outputs; the test holds when each is dropped.
//!
//! Source: docs/spec/pipeline.md §6, §8.

use weft_dataplane::pipeline::Ledger;
use weft_dataplane::time::{Instant, LinkRate, Span};
use weft_dataplane::trace::Event;
use weft_dataplane::types::Pri;
use weft_parsers::{Format, Vid};
use weft_sim::checkers::Watch;
use weft_sim::frames::{FrameSpec, stations_known};
use weft_sim::setup::Setup;
use weft_sim::station::Stream;
use weft_sim::switch::SwitchTiming;
use weft_sim::world::World;

/// Outputs 1 and 2 are busy with a long frame each, for 1.2 us and 12 us, when two broadcasts come. At output 1 one of
/// them waits in the egress queue, which holds one, and one at the crossbar. Each is to be marked, which takes a copy,
/// as output 2 has them, too. There is no memory for copies, so that both are dropped, the second as soon as the first.
#[test]
fn what_waits_for_a_queue_goes_on_when_a_frame_is_dropped_off_it() {
    let mut setup = Setup::new(3, 4);
    (setup.pfc, setup.ecn) = (false, true);
    setup.rates = vec![(1, LinkRate::gbps(10)), (2, LinkRate::gbps(1))];
    let mut world = World::new(&setup, &SwitchTiming::default(), |config| {
        stations_known(config, Vid::new(1).unwrap());
        (config.ecn.low_bytes, config.ecn.high_bytes) = (0, 1);
        config.crossbar.egress_queue_frames = 1;
    })
    .unwrap();
    let mut add = |id, dst, len, start| {
        let pri = Pri::default();
        let mut spec = FrameSpec::new(Format::Standard, 0, dst, len, pri, 4);
        spec.ecn = 2;
        let mut template = spec.to_vec();
        if dst == 0 {
            template.iter_mut().take(6).for_each(|octet| *octet = 0xFF);
        }
        let (gap, start, count) =
            (Span::ZERO, Instant::from_ns(start), if dst == 0 { 2 } else { 1 });
        world.stations.first_mut().unwrap().add(Stream {
            id,
            pri,
            template,
            len_min: len,
            gap,
            start,
            count,
        });
    };
    add(0, 1, 1_500, 0);
    add(1, 2, 1_500, 0);
    add(2, 0, 100, 300);
    let mut drops = Vec::new();
    let mut watch =
        Watch::new(&world.switch.core().snapshot.load(), |now: Instant, event: &Event| {
            if let Event::Drop { reason, .. } = event {
                drops.push((*reason, now));
            }
        });
    world.run(Instant::from_ns(1_000), &mut watch);
    let ledger = Ledger::read(world.switch.core());
    assert_eq!((ledger.rx, ledger.copies, ledger.queued), (4, 2, 4), "two at each output");
    world.switch.starve(0);
    assert!(world.drain(Instant::from_ns(100_000), &mut watch));
    world.switch.feed();
    watch.checkers.finish(world.now(), world.switch.core());
    assert_eq!(watch.checkers.violations(), []);
    drop(watch);
    let [(first, at), (second, then)] = drops[..] else { panic!("{drops:?}") };
    assert_eq!((first, second, at), ("pool", "pool", then));
    assert_eq!(Ledger::read(world.switch.core()).tx, 4, "the others are sent");
}
