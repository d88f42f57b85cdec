//! Records of live runs: what control puts into them, and replaying them.
//!
//! [`Header`] and [`Change`]s are what control writes; [`replay()`] takes a [`Record`].
//!
//! Source: docs/spec/pipeline.md §13.

mod change;
pub mod replay;
mod report;

pub use change::{Change, Entry, Header};
pub use replay::{Job, Record, ReplayError, replay};
pub use report::{RecordReport, Recorded, hex};
