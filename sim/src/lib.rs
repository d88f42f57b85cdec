//! Virtual time: event queue, clock, wires, replay.

pub mod islip_model;
