//! Frames of captures, for tests.
//!
//! Reads a capture's frames, sorted.

use std::path::Path;

use weft_dataplane::port::capture::{CaptureReader, Record};

/// The frames of a capture: a trace has them in the order in which their paths ended.
pub fn sorted(path: &Path) -> Vec<Vec<u8>> {
    let mut reader = CaptureReader::open(path).unwrap();
    let mut frames = Vec::new();
    let mut record = Record::default();
    while reader.read_into(&mut record).unwrap() {
        frames.push(record.data.clone());
    }
    frames.sort_unstable();
    frames
}
