//! Recording and replaying a run: one port writes down the answers of another, and one gives these answers again.
//!
//! A [`Recorder`] with [`Recorded`] ports writes a record; a [`RecordReader`], a [`Script`] and [`Scripted`] ports
//! replay it. The record has all inputs of a step: the time, and the ports' answers.
//!
//! Source: docs/spec/pipeline.md §13.

mod format;
mod recorder;
mod script;
#[cfg(test)]
mod tests;

pub use format::{Answer, Call, Entry, Frame, PoolMove, RecordError, RecordReader};
pub use recorder::{Recorded, Recorder, Summary};
pub use script::{Script, Scripted, SentFrames};
