//! One queue of an interface: a socket with its rings.
//!
//! Fill and receive ring; on the queue that also sends, transmit and completion ring.
//!
//! Units: entries.
//! Source: Linux `Documentation/networking/af_xdp.rst`.

use std::os::fd::{AsFd, OwnedFd};
use std::sync::Arc;

use super::rings::{Consumer, Producer};
use super::sys;
use super::umem::{CopyMode, Member, Umem};
use crate::batch::BURST;
use crate::port::error::{Refused, at};

/// Entries of the transmit ring: more than are ever handed over and not completed.
const TX_ENTRIES: u32 = 128;
const _: () = assert!(TX_ENTRIES as usize >= 2 * BURST);
/// Send buffer of the socket, from which the kernel takes what it copies to.
const TX_BUFFER: i32 = 8 << 20;
/// Most frames that a call of a busily polled socket handles.
const BUSY_BUDGET: i32 = 64;

/// What one socket is made for.
#[derive(Clone, Copy, Debug)]
pub(super) struct Plan {
    pub ifindex: u32,
    pub queue: u32,
    /// Chunks to receive into; fill and receive ring have as many entries, or more.
    pub posted_max: u32,
    /// Whether frames are sent here.
    pub sends: bool,
    pub mode: CopyMode,
    /// `SO_BUSY_POLL`, if frames are not to come by interrupts.
    pub busy_poll_us: Option<i32>,
}

/// A socket with its rings.
pub(super) struct Queue {
    // In this order: mappings keep a socket open, and nobody may share through a closed one.
    pub fill: Producer<u64>,
    pub completed: Consumer<u64>,
    pub rx: Consumer<libc::xdp_desc>,
    pub tx: Option<Producer<libc::xdp_desc>>,
    pub member: Member,
    pub socket: OwnedFd,
    /// Chunks in fill and receive ring.
    pub posted: u32,
    pub posted_max: u32,
}

impl Queue {
    /// Opens a socket and binds it.
    pub(super) fn open(umem: &Arc<Umem>, plan: &Plan) -> Result<Self, Refused> {
        let socket = sys::socket().map_err(at("open an AF_XDP socket"))?;
        let fd = socket.as_fd();
        let rx_entries = plan.posted_max.next_power_of_two();
        let tx_entries = if plan.sends { TX_ENTRIES } else { 2 };
        let rings = [
            (libc::XDP_UMEM_FILL_RING, rx_entries),
            (libc::XDP_UMEM_COMPLETION_RING, tx_entries),
            (libc::XDP_RX_RING, rx_entries),
            (libc::XDP_TX_RING, if plan.sends { tx_entries } else { 0 }),
        ];
        for (name, entries) in rings.into_iter().filter(|(_, entries)| *entries > 0) {
            sys::make_ring(fd, name, entries).map_err(at("make the rings"))?;
        }
        let offsets = sys::offsets(fd).map_err(at("find the rings"))?;
        let page = |at: libc::off_t| u64::try_from(at).unwrap_or(0);
        let map = at("map the rings");
        let fill = Producer::map(fd, libc::XDP_UMEM_PGOFF_FILL_RING, &offsets.fr, rx_entries)
            .map_err(&map)?;
        let done = libc::XDP_UMEM_PGOFF_COMPLETION_RING;
        let completed = Consumer::map(fd, done, &offsets.cr, tx_entries).map_err(&map)?;
        let rx = Consumer::map(fd, page(libc::XDP_PGOFF_RX_RING), &offsets.rx, rx_entries)
            .map_err(&map)?;
        let mut tx = None;
        if plan.sends {
            let ring = Producer::map(fd, page(libc::XDP_PGOFF_TX_RING), &offsets.tx, tx_entries);
            tx = Some(ring.map_err(&map)?);
            super::super::sys::set_option(fd, libc::SOL_SOCKET, libc::SO_SNDBUFFORCE, TX_BUFFER)
                .map_err(at("set the send buffer"))?;
            sys::set_tx_budget(fd, TX_ENTRIES);
        }
        let member = umem
            .bind(fd, plan.ifindex, plan.queue, plan.mode)
            .map_err(at("bind to the interface"))?;
        if let Some(us) = plan.busy_poll_us {
            sys::set_busy_poll(fd, us, BUSY_BUDGET).map_err(at("set busy polling"))?;
        }
        Ok(Self { fill, completed, rx, tx, member, socket, posted: 0, posted_max: plan.posted_max })
    }

    /// Frames that the kernel had for us and dropped: for lack of a chunk, of room in the receive ring,
    /// or because they do not fit a chunk.
    pub(super) fn lost(&self) -> u64 {
        let counted = sys::statistics(self.socket.as_fd());
        counted.map_or(0, |counted| counted.rx_dropped + counted.rx_ring_full)
    }
}
