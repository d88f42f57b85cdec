//! Virtual time: the switching core driven by events, with wires, stations, checkers and chaos.
//!
//! [`setup`] makes a configuration and [`switch`] puts the core between wires. [`world`] adds stations, and [`network`]
//! joins the switches of a [`topology`]; both run on the [`engine`]. [`replay`] feeds captures, and [`checkers`] watch
//! every run. Times are picoseconds, lengths are bytes without FCS.
//!
//! Source: docs/spec/model.md; docs/spec/pipeline.md §13.
//!
//! The time that a frame takes from one station to another in virtual time is the same at each run, on any machine:
//!
//! ```
//! use weft_dataplane::time::{Instant, Span};
//! use weft_dataplane::trace::Event;
//! use weft_dataplane::types::Pri;
//! use weft_parsers::Format;
//! use weft_sim::checkers::Watch;
//! use weft_sim::frames::FrameSpec;
//! use weft_sim::setup::Setup;
//! use weft_sim::station::Stream;
//! use weft_sim::switch::SwitchTiming;
//! use weft_sim::world::World;
//!
//! let (setup, around) = (Setup::new(2, 4), SwitchTiming::default()); // ports, priorities
//! let mut world = World::new(&setup, &around, |_| ())?;
//! let mut watch = Watch::new(&world.switch.core().snapshot.load(), |_, _: &Event| ());
//! let pri = Pri::default();
//! let template = FrameSpec::new(Format::Standard, 0, 1, 256, pri, 4).to_vec();
//! let (gap, start) = (Span::from_ns(500), Instant::ZERO);
//! world.stations[0].add(Stream { id: 0, pri, template, len_min: 256, gap, start, count: 1 });
//! assert!(world.drain(Instant::from_ns(1_000_000), &mut watch), "the frame arrives");
//! assert_eq!(world.stations[1].arrivals(0).frames, 1);
//! assert!(world.now() > Instant::ZERO, "sending, switching and sending again take time");
//! # Ok::<(), Box<dyn std::error::Error>>(())
//! ```
//!
//! [`setup::Setup`] describes the switch; [`world::World`] has switch, wires and stations; [`checkers::Watch`] objects
//! to a lost frame or a PAUSE without a reason; [`chaos`] draws whole runs from a seed.

#![warn(missing_docs)]

pub mod chaos;
pub mod checkers;
pub mod engine;
pub mod fabric;
pub mod fabric_transfer;
pub mod frames;
pub mod islip_model;
pub mod journey;
pub mod network;
mod nodes;
pub mod rclink_checkers;
pub mod rclink_heard;
pub mod replay;
pub mod results;
pub mod run;
pub mod scenario;
pub mod setup;
pub mod station;
pub mod switch;
pub mod switch_watch;
pub mod topology;
pub mod world;
