//! Virtual time: event queue, clock, wires, replay.
