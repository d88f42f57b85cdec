//! A switch in virtual time: how long a frame takes from one station to the next.
//!
//! `cargo run -p weft-sim --example latency`.
//!
//! Units: bytes without FCS; ns.
//! Source: docs/spec/model.md §1.

#![expect(clippy::indexing_slicing, reason = "there are two of them")]

use std::error::Error;

use weft_dataplane::time::{Instant, Span};
use weft_dataplane::trace::Event;
use weft_dataplane::types::Pri;
use weft_parsers::Format;
use weft_sim::checkers::Watch;
use weft_sim::frames::FrameSpec;
use weft_sim::setup::Setup;
use weft_sim::station::Stream;
use weft_sim::switch::SwitchTiming;
use weft_sim::world::World;

fn main() -> Result<(), Box<dyn Error>> {
    let setup = Setup::new(2, 4);
    let around = SwitchTiming::default();
    let mut world = World::new(&setup, &around, |_| ())?;
    let mut watch = Watch::new(&world.switch.core().snapshot.load(), |_, _: &Event| ());
    let pri = Pri::default();
    let template = FrameSpec::new(Format::Standard, 0, 1, 256, pri, 4).to_vec();
    let (gap, start) = (Span::from_ns(500), Instant::ZERO);
    world.stations[0].add(Stream { id: 0, pri, template, len_min: 256, gap, start, count: 1 });
    assert!(world.drain(Instant::from_ns(1_000_000), &mut watch), "the frame arrives");
    assert_eq!(world.stations[1].arrivals(0).frames, 1);
    let (rate, ns) = (setup.rate_of(0).as_bps() / 1_000_000_000, world.now().as_ps() / 1_000);
    println!("256 bytes at {rate} Gbit/s from one station to the other: {ns} ns");
    Ok(())
}
