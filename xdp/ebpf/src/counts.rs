//! Counters of one processor: no lock, no shared cache line.
//!
//! Source: docs/spec/pipeline.md §10.

use weft_parsers::Format;

use crate::layout::{KINDS, Tally};
use crate::maps;

/// Where a frame came in, and its class.
pub struct Place {
    pub port: u32,
    pub queue: u32,
    pub pri: u8,
    pub format: Format,
    /// Group of flows that the frame belongs to.
    pub bucket: usize,
    /// Bank of counters in use.
    pub stats: u32,
}

impl Place {
    /// Index of the frame's cell, by priority and format.
    #[inline(always)]
    pub fn kind(&self) -> usize {
        // The compiler knows that the value is small and would leave the mask out, but the verifier needs to see it.
        core::hint::black_box((self.pri as usize) << 3 | self.format as usize) & (KINDS - 1)
    }
}

#[inline(always)]
fn count(cells: &mut [Tally; KINDS], kind: usize, len: usize) {
    let cell = &mut cells[kind & (KINDS - 1)];
    cell.frames += 1;
    cell.bytes += len as u64;
}

/// Counts an express frame: `came` bytes at its input, `went` bytes at `output`.
#[inline(always)]
pub fn express(at: &Place, output: u32, came: usize, went: usize) {
    let kind = at.kind();
    if let Some(stats) = maps::stats(at.stats, at.port) {
        count(&mut stats.express_in, kind, came);
        stats.sizes[size_bin(came)] += 1;
    }
    if let Some(stats) = maps::stats(at.stats, output) {
        count(&mut stats.express_out, kind, went);
    }
}

/// Counts a frame that goes to user space.
#[inline(always)]
pub fn passed(at: &Place, len: usize) {
    if let Some(stats) = maps::stats(at.stats, at.port) {
        count(&mut stats.passed, at.kind(), len);
    }
}

/// Size bin of a frame, FCS included: bounds double from 64 on, except for the last two, 1,023 and 1,518.
#[inline(always)]
const fn size_bin(len: usize) -> usize {
    match len + 4 {
        ..=64 => 0,
        65..=127 => 1,
        128..=255 => 2,
        256..=511 => 3,
        512..=1_023 => 4,
        1_024..=1_518 => 5,
        _ => 6,
    }
}
