//! Facts about each frame of a burst, shared by its stages, and counters of runs of like frames.
//!
//! [`Verdict`] and [`FrameMeta`] by frame; [`BurstMask`], a bit for each frame; [`CountRun`].
//!
//! Units: bytes, frames.
//! Source: docs/spec/pipeline.md §1 to §4.

use weft_parsers::{Head, Vid};

use crate::batch::{BURST, Batch};
use crate::desc::Desc;
use crate::fdb::Probe;
use crate::pool::Bufs;
use crate::stats::{DropReason, PortStats};
use crate::time::Instant;
use crate::trace::{Event, Tracer};
use crate::types::{PortId, PortSet};

/// Value in place of a queue for a frame whose flow is not in the cache; no queue has this number.
pub(super) const CACHE_MISS: u16 = u16::MAX;

/// A set of frames of a burst: bit n is the frame at place n.
#[derive(Clone, Copy)]
pub(super) struct BurstMask(pub u64);

impl BurstMask {
    /// The first `count` frames.
    pub fn first(count: usize) -> Self {
        // A set of ports serves as the set of frames: both have 64 members at most.
        Self(PortSet::first(count).bits())
    }

    /// Places of the frames, lowest first.
    #[inline]
    pub fn iter(self) -> impl Iterator<Item = usize> {
        PortSet::from_bits(self.0).iter().map(PortId::index)
    }
}

/// Decision about a frame.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Verdict {
    /// It goes to these outputs.
    Forward(PortSet),
    /// It is dropped.
    Drop(DropReason),
    /// It is for the switch itself: MAC control, or a loop probe of its own.
    Consume,
    /// It is a TLP without a route at the moment.
    Hold,
}

/// Facts about one frame of a burst.
#[derive(Clone, Copy)]
pub(super) struct FrameMeta {
    pub head: Head,
    pub vid: Vid,
    /// Keys of the FDB; set only while the verdict is `Forward`.
    pub dst: Probe,
    pub src: Probe,
    pub verdict: Verdict,
}

impl FrameMeta {
    /// State of a frame before it is parsed.
    pub const NEW: Self = Self {
        head: Head::EMPTY,
        vid: Vid::from_low_bits(0),
        dst: Probe::EMPTY,
        src: Probe::EMPTY,
        verdict: Verdict::Consume,
    };
}

/// A burst, and the frames of it that a stage works on.
pub(super) struct BurstView<'a> {
    pub batch: &'a mut Batch,
    pub which: BurstMask,
}

/// The destination of a frame.
#[derive(Clone, Copy)]
pub(super) struct FrameRoute<'a> {
    /// Its queue, if its flow is known; else [`CACHE_MISS`], and `meta` has the verdict.
    pub route: u16,
    pub meta: &'a FrameMeta,
}

/// [`FrameRoute`] of all frames of a burst, by place.
#[derive(Clone, Copy)]
pub(super) struct BurstRoutes<'a> {
    pub routes: &'a [u16; BURST],
    pub metas: &'a [FrameMeta; BURST],
}

/// Consecutive frames of one length and format, counted together: a burst mostly has one such run,
/// and a counter is then written once instead of once a frame.
#[derive(Default)]
pub(super) struct CountRun {
    len: usize,
    format: usize,
    frames: u64,
}

impl CountRun {
    /// Counts one frame.
    #[inline]
    pub fn count(&mut self, stats: &PortStats, len: usize, format: usize) {
        if (len, format) != (self.len, self.format) {
            self.flush(stats);
            (self.len, self.format) = (len, format);
        }
        self.frames += 1;
    }

    /// Counts `frames` frames of `len` bytes each.
    pub fn count_alike(&mut self, stats: &PortStats, len: usize, format: usize, frames: usize) {
        self.flush(stats);
        *self = Self { len, format, frames: frames as u64 };
    }

    /// Adds the run to the port's counters, and begins a new one.
    #[inline]
    pub fn flush(&mut self, stats: &PortStats) {
        let frames = core::mem::take(&mut self.frames);
        if let Some(bin) = stats.rx_size.get(size_bin(self.len)) {
            bin.add(frames);
        }
        if let Some(counter) = stats.rx_format.get(self.format) {
            counter.add(frames);
        }
        stats.rx_bytes.add(frames * self.len as u64);
    }
}

/// The bin of `rx_size` for a frame of `len` bytes without FCS.
#[inline]
fn size_bin(len: usize) -> usize {
    // Bins double from 64 on, but for the last two bounds: 1,023 and 1,518.
    let with_fcs = len + 4;
    match with_fcs {
        ..=64 => 0,
        65..=1_023 => with_fcs.ilog2() as usize - 5,
        1_024..=1_518 => 5,
        _ => 6,
    }
}

/// Numbers a received frame, and traces it.
pub(super) fn trace_rx<T: Tracer>(
    bufs: &mut Bufs,
    now: Instant,
    input: PortId,
    desc: &mut Desc,
    tracer: &mut T,
) {
    let digest = bufs.head(desc).first_chunk().map_or(0, |d| u64::from_be_bytes(*d));
    let frame = tracer.number();
    let len = u16::try_from(desc.len()).unwrap_or(u16::MAX);
    tracer.event(now, Event::Rx { frame, port: input.get(), len, digest });
    tracer.bytes(frame, bufs.bytes(desc));
    bufs.set_trace_id(desc, frame);
}

#[cfg(test)]
mod tests {
    use super::size_bin;
    use crate::stats::SIZE_BINS;

    #[test]
    fn a_frame_is_in_the_first_bin_that_holds_it() {
        for len in 14..=9_300 {
            let want = SIZE_BINS.iter().position(|&bound| len + 4 <= bound);
            assert_eq!(Some(size_bin(len)), want, "{len}");
        }
    }
}
