//! Settings of an `AF_XDP` port, and the check that refuses those out of range.
//!
//! Source: docs/spec/pipeline.md §11.

use super::umem::Umem;
use crate::port::{PortOpenError, netdev};
use crate::time::LinkRate;

/// Where the XDP program is attached.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum AttachTo {
    /// In the driver; refused if it cannot.
    Native,
    /// Before the host's stack (generic XDP): works with every driver, and copies frames.
    Generic,
    /// In the driver if it can, else before the host's stack.
    Any,
}

/// Settings of an `af_xdp` port.
#[derive(Clone, Debug)]
pub struct AfXdpConfig {
    /// Interface, in the network namespace of the thread that opens the port.
    pub device: String,
    /// Rate of the link, for quanta and wire time.
    pub rate: LinkRate,
    /// Longest frame in bytes, without FCS, tags included.
    pub frame_len_max: usize,
    /// Frames handed to the kernel and not yet sent at most, 1..=64.
    pub tx_ring_frames: usize,
    /// Frames that may wait in the kernel for each queue, 64..=65536.
    pub rx_ring_frames: usize,
    /// Queues that are received from; `None` for all of the interface.
    pub queues: Option<usize>,
    /// Where the XDP program is attached.
    pub attach: AttachTo,
    /// Whether to receive and send without copies, if the driver can and the pool has huge pages.
    pub zero_copy: bool,
    /// Microseconds for which a system call polls the NIC queue in place of interrupts; 0 for interrupts.
    pub busy_poll_us: u32,
    /// Whether segments of one TCP stream may leave as one super-frame, past the transmit ring. That takes a veth whose
    /// frames are copied anyway; segments in a tunnel leave by a tap of our own beside the interface, if the kernel can
    /// do it (Linux 6.17, `CAP_BPF`).
    pub joins: bool,
    /// UDP ports whose checksum is a fixed value, never a partial one; 0 for none.
    pub fixed_udp_ports: [u16; 2],
}

impl AfXdpConfig {
    /// Chunks that a port of these settings lends to the kernel at most.
    #[must_use]
    pub fn chunks(&self) -> usize {
        let queues = self.queues.unwrap_or_else(|| netdev::rx_queues(&self.device));
        queues * self.rx_ring_frames + self.tx_ring_frames
    }
}

/// Refuses settings that are out of range, and frames that no chunk holds.
pub(super) fn check(config: &AfXdpConfig, umem: &Umem) -> Result<(), PortOpenError> {
    let device = &config.device;
    PortOpenError::check_ring_frames(device, config.tx_ring_frames, config.rx_ring_frames)?;
    let queues = config.queues.unwrap_or(1);
    PortOpenError::check(device, "queues", queues, "1..=64", (1..=64).contains(&queues))?;
    let (chunk, room) = (umem.pool().chunk_size(), umem.frame_len_max());
    let want = "2048..=4096 bytes for AF_XDP: switch.max_frame is 3772 at most then";
    PortOpenError::check(device, "pool chunk", chunk, want, room.is_some())?;
    let len = config.frame_len_max;
    let want = "at least 64 bytes, and no more than a chunk of the pool holds: 3772 at most";
    let fits = len >= 64 && room.is_some_and(|room| len <= room);
    PortOpenError::check(device, "max_frame", len, want, fits)
}
