//! Ways in and out of the switch, behind one trait.
//!
//! Frames without FCS in pool chunks; [`PortCaps`] are facts for the port's life,
//! [`PortCounters`] what it saw beside the frames that it delivered.
//!
//! Units: bytes, frames, bit/s.
//! Source: docs/spec/pipeline.md §11.

#[expect(unsafe_code, reason = "rings that the kernel shares, arrays of recvmmsg and sendmmsg")]
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
#[expect(unsafe_code, reason = "system calls")]
mod sys;
mod tag;
pub mod tap;
pub mod tee;
mod vnet;
pub mod wire;

pub use self::error::{PortError, PortOpenError};
pub use self::gauge::RxGauge;
pub use self::tag::Tag;
use crate::batch::Batch;
use crate::desc::Desc;
use crate::pool::Bufs;
use crate::stats::DropReason;
use crate::time::{Instant, LinkRate};
use crate::types::PriSet;

/// Shortest frame that is sent, without FCS; shorter ones are padded with zeros.
const TX_LEN_MIN: usize = 60;

/// Facts that hold for a port's life.
#[derive(Clone, Debug)]
pub struct PortCaps {
    /// Kind of port, as in the configuration: `af_xdp`, `af_packet`, `tap`, `null`, `pcap`, `dpdk`; or
    /// `wire`, `pipe`.
    pub kind: &'static str,
    /// Device, file or peer behind it.
    pub device: String,
    /// Longest frame, without FCS.
    pub frame_len_max: usize,
    /// Rate of the link, for quanta and wire time.
    pub rate: LinkRate,
    /// Whether a frame with a partial checksum may be sent as it is.
    pub tx_partial_csum: bool,
    /// Whether time at this port is virtual: exact, and driven by events.
    pub virtual_time: bool,
}

/// What a port counted beside the frames that it delivered and took; totals since it was opened.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct PortCounters {
    /// Lost before us by kernel or device; not part of our own sum.
    pub kernel_rx: u64,
    /// Received but dropped by the port, by reason: counted in rx and in drops.
    pub rx_dropped: [(Option<DropReason>, u64); 6],
    /// Taken for transmit but refused by kernel or device: counted as drop `tx_error`, not as tx.
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
        let slot = self
            .rx_dropped
            .iter_mut()
            .find(|(r, _)| r.is_none() || *r == Some(reason))
            .expect("a port kind has at most six reasons");
        slot.0 = Some(reason);
        slot.1 += count;
    }
}

/// A way past the pipeline, in hardware or in the kernel: the pipeline says when frames may take it, and
/// when it is done with those that did not.
pub trait FastPath {
    /// Lets frames of `pris` be sent by this port past the pipeline, and no others.
    fn set_gate(&mut self, pris: PriSet);

    /// Marks what was received so far.
    fn mark(&mut self);

    /// All frames that were received before the mark have left the switch, or were dropped.
    fn drained(&mut self);
}

/// One way in and out of the switch.
///
/// One worker owns a port. No method blocks, allocates or reads a clock.
pub trait Port: Send {
    /// Facts that hold for the port's life.
    fn caps(&self) -> &PortCaps;

    /// Gives the port its memory, once, before all else; a port that needs none is ready as it is.
    ///
    /// # Errors
    /// The device refuses the memory, or cannot be set going with it.
    fn start(&mut self, bufs: &mut Bufs) -> Result<(), PortOpenError> {
        let _ = bufs;
        Ok(())
    }

    /// Appends received frames to `batch` while it has room; returns how many.
    fn rx(&mut self, now: Instant, bufs: &mut Bufs, batch: &mut Batch) -> usize;

    /// How many frames [`Self::tx`] would take now.
    fn tx_room(&mut self, now: Instant) -> usize;

    /// Takes frames off the front of `batch`; what is left was not sent and stays the caller's.
    fn tx(&mut self, now: Instant, bufs: &mut Bufs, batch: &mut Batch) -> usize;

    /// In virtual time: a received frame.
    fn rx_one(&mut self, now: Instant, bufs: &mut Bufs) -> Option<Desc> {
        let mut batch = Batch::new();
        self.rx(now, bufs, &mut batch);
        debug_assert!(batch.len() <= 1, "a burst is one frame");
        batch.pop()
    }

    /// In virtual time: takes a frame, for which there is room ([`Self::tx_room`]).
    fn tx_one(&mut self, now: Instant, bufs: &mut Bufs, desc: Desc) {
        let mut batch = Batch::new();
        batch.push(desc);
        self.tx(now, bufs, &mut batch);
        debug_assert!(batch.is_empty(), "room was asked for");
    }

    /// Frees sent frames and wakes the driver; once per loop, and the only call that can fail.
    ///
    /// # Errors
    /// The device is gone or refused the wake-up; the worker reports it and keeps running.
    fn service(&mut self, now: Instant, bufs: &mut Bufs) -> Result<(), PortError>;

    /// Frames that the port took, and that may not have left yet, as far as it knows.
    fn sending(&mut self) -> usize {
        0
    }

    /// Whether the link is up: the device exists and has a carrier.
    fn link_up(&self) -> bool {
        true
    }

    /// The way past the pipeline that frames may take at this port, if there is one; there is for the
    /// port's whole life, or never.
    fn fast_path(&mut self) -> Option<&mut dyn FastPath> {
        None
    }

    /// What was counted beside delivered frames.
    fn counters(&self) -> PortCounters {
        PortCounters::default()
    }

    /// How full the rings are that the port receives from, for other threads; none where nothing of the kind is known.
    fn rx_gauge(&self) -> Option<RxGauge> {
        None
    }

    /// A descriptor that becomes readable when there is something to receive, for idle workers.
    fn wait_fd(&self) -> Option<std::os::fd::BorrowedFd<'_>> {
        None
    }

    /// A descriptor that becomes readable when the link may have gone up or down, for idle workers. [`Self::service`] reads
    /// from it, at most some milliseconds later.
    fn link_fd(&self) -> Option<std::os::fd::BorrowedFd<'_>> {
        None
    }

    /// In virtual time: whether [`Self::service`] has something to do, or [`Self::counters`] may tell something new since this
    /// was last asked.
    fn has_news(&mut self) -> bool {
        true
    }

    /// In virtual time: whether [`Self::link_up`] stays as it is, unless somebody pulls the cable or plugs it in.
    fn is_steady(&self) -> bool {
        false
    }

    /// In virtual time: when a frame will be received next, as far as is known.
    fn next_event(&self) -> Option<Instant> {
        None
    }

    /// As [`Self::next_event`], of frames that were sent to the port meanwhile, too.
    fn look_ahead(&mut self) -> Option<Instant> {
        self.next_event()
    }

    /// In virtual time: when the transmitter falls idle, for whoever waits for it.
    fn idle_at(&self) -> Option<Instant> {
        None
    }

    /// In virtual time: when the frame that was received last is whole, if it was handed over before that.
    fn whole_at(&self) -> Option<Instant> {
        None
    }

    /// Gives back all chunks that the port still holds, before it is dropped.
    fn release(&mut self, bufs: &mut Bufs);
}
