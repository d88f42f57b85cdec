//! A fabric for people: topology and pictures of it, an overview, and the trace of one access.
//!
//! Nothing here changes the fabric.

pub mod display_names;
pub mod overview;
pub mod picture;
pub mod topology;
pub mod trace;
