//! Virtual time: the switching core driven by events, with wires, stations, checkers and chaos.
//!
//! Shape: [`setup`] makes a configuration, [`switch`] puts the core between wires, [`world`] adds
//! stations; [`replay`] feeds captures; [`checkers`] watch every run.
//! Units: picoseconds, bytes without FCS.
//! Source: docs/spec/model.md; docs/spec/pipeline.md §13; docs/spec/model.md §1.

pub mod chaos;
pub mod checkers;
pub mod events;
pub mod fabric;
pub mod frames;
pub mod islip_model;
pub mod replay;
pub mod setup;
pub mod station;
pub mod switch;
pub mod world;
