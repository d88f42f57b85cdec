//! Records of live runs: the parts that control writes, and their replay.
//!
//! Control writes a [`Header`] and [`Change`]s; [`replay()`] takes a [`Record`].
//!
//! Source: docs/spec/pipeline.md §13.

mod change;
pub mod replay;
mod report;

pub use change::{Change, Entry, Header};
pub use replay::{Job, Record, ReplayError, replay};
pub use report::{RecordReport, Recorded, hex};
