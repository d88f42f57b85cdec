//! A world of four stations: frames of every format cross a switch in virtual time, and none is lost.
//!
//! Source: docs/spec/pipeline.md §10.

use weft_dataplane::time::{Instant, Span};
use weft_dataplane::trace::Event;
use weft_dataplane::types::Pri;
use weft_parsers::{Format, Vid};
use weft_sim::checkers::Watch;
use weft_sim::frames::{FrameSpec, stations_known};
use weft_sim::setup::Setup;
use weft_sim::station::Stream;
use weft_sim::switch::SwitchTiming;
use weft_sim::world::World;

#[test]
fn every_format_and_priority_crosses() {
    for pris in [4, 8] {
        let setup = Setup::new(4, pris);
        let mut world = World::new(&setup, &SwitchTiming::default(), |config| {
            stations_known(config, Vid::new(1).unwrap());
            stations_known(config, Vid::new(0).unwrap());
        })
        .unwrap();
        let mut watch = Watch::new(&world.switch.core().snapshot.load(), |_, _: &Event| ());
        let mut id = 0;
        for format in [Format::Standard, Format::AfhGen1, Format::AfhGen2, Format::Other] {
            for pri in Pri::ALL.into_iter().take(pris) {
                for src in 0..4 {
                    let spec = FrameSpec::new(format, src, (src + 1) % 4, 200, pri, pris);
                    world.stations[src].add(Stream {
                        id,
                        pri,
                        template: spec.to_vec(),
                        len_min: 64,
                        gap: Span::from_ns(500),
                        start: Instant::ZERO,
                        count: 50,
                    });
                    id += 1;
                }
            }
        }
        assert!(world.drain(Instant::from_ns(1_000_000_000), &mut watch), "{pris}: drains");
        let now = world.now();
        watch.checkers.finish(now, world.switch.core());
        assert_eq!(watch.checkers.violations(), [], "{pris}");
        for n in 0..id {
            let at = (usize::from(n) + 1) % 4;
            let got = world.stations[at].arrivals(n);
            assert_eq!((got.frames, got.missing, got.disordered), (50, 0, 0), "{pris}: stream {n}");
        }
    }
}
