//! Counters of one processor: no lock, no shared cache line.
//!
//! A frame's [`Place`] and length to the cells of `PortStats`.
//!
//! Units: frames, bytes.
//! Source: docs/spec/pipeline.md §10.

use weft_parsers::Format;

use crate::layout::{KINDS, Tally};
use crate::maps;

/// Where a frame came in, and as what.
pub struct Place {
    pub port: u32,
    pub queue: u32,
    pub pri: u8,
    pub format: Format,
    /// Its group of flows.
    pub bucket: usize,
    /// The bank that is counted in.
    pub stats: u32,
}

impl Place {
    /// Its cell by priority and format.
    #[inline(always)]
    pub fn kind(&self) -> usize {
        // The verifier wants to see the bound, which the compiler knows and leaves out.
        core::hint::black_box((self.pri as usize) << 3 | self.format as usize) & (KINDS - 1)
    }
}

#[inline(always)]
fn count(cells: &mut [Tally; KINDS], kind: usize, len: usize) {
    let cell = &mut cells[kind & (KINDS - 1)];
    cell.frames += 1;
    cell.bytes += len as u64;
}

/// A frame that came in with `came` bytes went from input to `output`, where it has `went`.
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

/// A frame goes to user space.
#[inline(always)]
pub fn passed(at: &Place, len: usize) {
    if let Some(stats) = maps::stats(at.stats, at.port) {
        count(&mut stats.passed, at.kind(), len);
    }
}

/// Bins double from 64 on, but for the last two bounds, 1,023 and 1,518; with FCS.
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
