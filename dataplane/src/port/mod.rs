//! Ports: ways in and out of the switch, behind [`Port`]; those of virtual time are [`TimedPort`]s, too.
//!
//! Frames lie in pool chunks, without FCS. [`PortCaps`] are facts for the port's life; [`PortCounters`] count frames
//! that were lost or dropped before the switch got them, or after it gave them away.
//!
//! Source: docs/spec/pipeline.md §11.

#[expect(unsafe_code, reason = "rings that the kernel shares, arrays of sendmmsg")]
pub mod af_packet;
#[expect(unsafe_code, reason = "rings that the kernel shares, system calls")]
pub mod af_xdp;
#[expect(unsafe_code, reason = "bpf(2), memory that programs read")]
mod bpf;
pub mod capture;
pub mod csum;
mod delegate;
pub mod disturbance;
#[cfg(feature = "dpdk")]
pub mod dpdk;
mod error;
mod field;
pub mod flaw;
#[expect(unsafe_code, reason = "words of rings that the kernel shares")]
mod gauge;
pub mod gso;
mod join;
mod link;
#[cfg(any(test, feature = "dpdk"))]
#[expect(unsafe_code, reason = "what a driver's callbacks of a call reach of its caller")]
mod loan;
pub mod lossy;
pub mod netdev;
pub mod null;
pub mod pcap;
pub mod pipe;
pub mod record;
mod segment_headers;
pub(crate) mod super_frames;
#[expect(unsafe_code, reason = "system calls")]
mod sys;
mod tag;
pub mod tap;
pub mod tee;
mod vnet;
pub mod wire;

pub use self::error::{PortError, PortOpenError};
pub use self::gauge::RxGauge;
pub use self::super_frames::{Segments, SuperFrame, SuperFrames};
pub use self::tag::Tag;
use crate::batch::Batch;
use crate::desc::Desc;
use crate::pool::Bufs;
use crate::stats::DropReason;
use crate::time::{Instant, LinkRate};
use crate::types::PriSet;

/// Shortest frame that is sent, in bytes without FCS; shorter ones are padded with zeros (IEEE 802.3, 3.2.8).
const TX_LEN_MIN: usize = 60;

/// Facts that hold for a port's life.
#[derive(Clone, Debug)]
pub struct PortCaps {
    /// Kind of port, as in the configuration: `af_xdp`, `af_packet`, `tap`, `null`, `pcap`, `dpdk`; or
    /// `wire`, `pipe`.
    pub kind: &'static str,
    /// Interface, file or peer, as reports name it.
    pub device: String,
    /// Longest frame in bytes, without FCS.
    pub frame_len_max: usize,
    /// Rate of the link, for pause quanta and time on the wire.
    pub rate: LinkRate,
    /// Whether the port takes frames with a partial checksum; else the pipeline completes them first.
    pub tx_partial_csum: bool,
    /// Whether time at this port is virtual: exact, and driven by events.
    pub virtual_time: bool,
}

/// Frames lost or dropped at a port, beside those that it delivered and sent; totals since it was opened.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct PortCounters {
    /// Frames that kernel or device lost before the port had them; not part of the switch's own sum.
    pub kernel_rx: u64,
    /// Frames received and dropped by the port, by reason; counted as received and as drops.
    pub rx_dropped: [(Option<DropReason>, u64); 6],
    /// Frames taken for sending that kernel or device refused; counted as drop `tx_error`, not as sent.
    pub tx_failed: u64,
}

impl PortCounters {
    /// Counts a frame that was received and dropped for `reason`.
    ///
    /// # Panics
    /// When a port kind uses more than six reasons.
    pub fn rx_drop(&mut self, reason: DropReason) {
        self.rx_drops(reason, 1);
    }

    /// Counts `count` frames that were received, or should have been, and dropped for `reason`.
    ///
    /// # Panics
    /// As [`Self::rx_drop`].
    pub fn rx_drops(&mut self, reason: DropReason, count: u64) {
        // A list instead of an array over all reasons: this struct is copied out of each port, and a port kind has few.
        let slot = self
            .rx_dropped
            .iter_mut()
            .find(|(r, _)| r.is_none() || *r == Some(reason))
            .expect("a port kind has at most six reasons");
        slot.0 = Some(reason);
        slot.1 += count;
    }
}

/// A way past the pipeline, in hardware or in the kernel. The pipeline decides when frames may take it, and reports
/// when those that did not take it have left, so that frames stay in order.
pub trait FastPath {
    /// Lets frames of `pris`, and no others, be sent by this port past the pipeline.
    fn set_gate(&mut self, pris: PriSet);

    /// Marks all frames received so far.
    fn mark(&mut self);

    /// Reports that all frames received before the mark have left the switch, or were dropped.
    fn drained(&mut self);
}

/// One way in and out of the switch.
///
/// One worker owns a port. No method blocks, allocates or reads a clock.
pub trait Port: Send {
    /// Facts that hold for the port's life.
    fn caps(&self) -> &PortCaps;

    /// Gives the port its memory, once, before all other calls. A port that needs none has nothing to do.
    ///
    /// # Errors
    /// The device refuses the memory, or cannot be started with it.
    fn start(&mut self, bufs: &mut Bufs) -> Result<(), PortOpenError> {
        let _ = bufs;
        Ok(())
    }

    /// Appends received frames to `batch` while it has room; returns how many.
    fn rx(&mut self, now: Instant, bufs: &mut Bufs, batch: &mut Batch) -> usize;

    /// Number of frames that [`Self::tx`] would take now.
    fn tx_room(&mut self, now: Instant) -> usize;

    /// Takes frames off the front of `batch`; what is left was not sent and stays the caller's.
    fn tx(&mut self, now: Instant, bufs: &mut Bufs, batch: &mut Batch) -> usize;

    /// Frees sent frames and wakes the driver; once per loop, and the only call that can fail.
    ///
    /// # Errors
    /// The device is gone or refused the wake-up; the worker reports it and keeps running.
    fn service(&mut self, now: Instant, bufs: &mut Bufs) -> Result<(), PortError>;

    /// Frames that the port took and that may not have left yet, as far as it knows.
    fn sending(&mut self) -> usize {
        0
    }

    /// Whether the link is up: the device exists and has a carrier.
    fn link_up(&self) -> bool {
        true
    }

    /// The way past the pipeline at this port. A port has one for its whole life, or never.
    fn fast_path(&mut self) -> Option<&mut dyn FastPath> {
        None
    }

    /// Super-frames that the port hands on or sends whole, if it does so now.
    fn super_frames(&mut self) -> Option<&mut dyn SuperFrames> {
        None
    }

    /// Frames lost or dropped at the port.
    fn counters(&self) -> PortCounters {
        PortCounters::default()
    }

    /// Fill level of the port's receive rings, for other threads; `None` if the port cannot tell.
    fn rx_gauge(&self) -> Option<RxGauge> {
        None
    }

    /// A descriptor that becomes readable when frames can be received, for idle workers.
    fn wait_fd(&self) -> Option<std::os::fd::BorrowedFd<'_>> {
        None
    }

    /// A descriptor that becomes readable when the link may have gone up or down, for idle workers. [`Self::service`]
    /// reads it within some milliseconds.
    fn link_fd(&self) -> Option<std::os::fd::BorrowedFd<'_>> {
        None
    }

    /// When the next frame will be received, as far as is known; `None` where frames come unannounced.
    fn next_event(&self) -> Option<Instant> {
        None
    }

    /// When the transmitter falls idle, for outputs that wait for it; `None` if it is idle or cannot tell.
    fn idle_at(&self) -> Option<Instant> {
        None
    }

    /// Frees all chunks that the port still holds, before it is dropped.
    fn release(&mut self, bufs: &mut Bufs);
}

/// A port in virtual time, where frames come and go at exact instants, one at a time.
///
/// Only [`VirtualTimeLane`](crate::pipeline::VirtualTimeLane) calls these methods. The defaults suit a port that is none of
/// virtual time itself but stands in for one, as those of tests.
pub trait TimedPort: Port {
    /// Takes one received frame.
    fn rx_one(&mut self, now: Instant, bufs: &mut Bufs) -> Option<Desc> {
        let mut batch = Batch::new();
        self.rx(now, bufs, &mut batch);
        debug_assert!(batch.len() <= 1, "a burst is one frame");
        batch.pop()
    }

    /// Sends a frame, for which there must be room ([`Port::tx_room`]).
    fn tx_one(&mut self, now: Instant, bufs: &mut Bufs, desc: Desc) {
        let mut batch = Batch::new();
        batch.push(desc);
        self.tx(now, bufs, &mut batch);
        debug_assert!(batch.is_empty(), "room was asked for");
    }

    /// Like [`Port::next_event`], but also looks at frames that the far end has sent meanwhile.
    fn look_ahead(&mut self) -> Option<Instant> {
        self.next_event()
    }

    /// When the last bit of the frame received last arrives, if it was handed over before that (cut-through).
    fn whole_at(&self) -> Option<Instant> {
        None
    }

    /// Whether [`Port::service`] has work to do, or [`Port::counters`] may have changed since the last call of this.
    fn has_news(&mut self) -> bool {
        true
    }

    /// Whether [`Port::link_up`] only changes when a cable is pulled or plugged in.
    fn is_steady(&self) -> bool {
        false
    }
}
