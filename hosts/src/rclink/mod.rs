//! RC Link endpoints and the parts they are made of.
//!
//! An [`endpoint`] sends and receives messages on any port. [`slots`] hold frames until they are acknowledged, and a
//! [`queue_pair`] at the receiver takes them in order. [`rate`] limits the bytes that a queue pair sends in a window,
//! [`credits`] those that a virtual channel has in flight; [`cnp`] merges congestion notifications and [`dcqcn`] turns
//! them into rates; [`rnr`] has the wait times of receivers that are not ready.
//!
//! Source: docs/spec/model.md §4.

pub mod cnp;
pub mod credits;
pub mod dcqcn;
pub mod endpoint;
pub mod queue_pair;
pub mod rate;
pub mod rnr;
pub mod slots;
