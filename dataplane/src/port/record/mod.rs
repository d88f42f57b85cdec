//! Recording and replaying a run: a port that writes down what another one answers, and one that
//! answers from what was written.
//!
//! [`Recorder`] and [`Recorded`] ports → record → [`RecordReader`] → [`Script`] and [`Scripted`]
//! ports. All that decides a step is in it: the time, and what ports answer.
//!
//! Units: picoseconds, bytes, chunks.
//! Source: docs/spec/pipeline.md §13.

mod format;
mod recorder;
mod script;
#[cfg(test)]
mod tests;

pub use format::{Answer, Call, Entry, Frame, PoolMove, RecordError, RecordReader};
pub use recorder::{Recorded, Recorder, Summary};
pub use script::{Script, Scripted, SentFrames};
