//! RC Link endpoints.
//!
//! An [`endpoint`] on any port. [`slots`] hold frames until they are acknowledged, [`queue_pair`] takes them in order at the other end; [`rate`]
//! limits what a queue pair sends in a window, [`credits`] what a virtual channel has on the way, and [`cnp`] merges
//! congestion notifications.
//!
//! Units: bytes of frames, picoseconds.
//! Source: docs/spec/model.md §4.

pub mod cnp;
pub mod credits;
pub mod dcqcn;
pub mod endpoint;
pub mod queue_pair;
pub mod rate;
pub mod rnr;
pub mod slots;
