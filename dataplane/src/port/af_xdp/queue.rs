//! One queue of an interface: a socket and its rings.
//!
//! Every queue has a fill and a receive ring; the queue that also sends has a transmit and a completion ring.
//!
//! Source: Linux `Documentation/networking/af_xdp.rst`.

use std::os::fd::{AsFd, OwnedFd};
use std::sync::Arc;

use super::rings::{Consumer, Producer};
use super::sys;
use super::umem::{CopyMode, Member, Umem};
use crate::batch::BURST;
use crate::port::error::{Refused, at};

/// Entries of the transmit ring; fewer frames are ever handed over and not completed.
const TX_ENTRIES: u32 = 128;
const _: () = assert!(TX_ENTRIES as usize >= 2 * BURST);
/// Send buffer of the socket in bytes; in copy mode it bounds the packets that the kernel makes.
const TX_BUFFER: i32 = 8 << 20;
/// Frames that one call of a busy-polled socket handles at most.
const BUSY_BUDGET: i32 = 64;

/// Parameters of one socket.
#[derive(Clone, Copy, Debug)]
pub(super) struct Plan {
    pub ifindex: u32,
    pub queue: u32,
    /// Chunks to receive into; fill and receive ring have at least as many entries.
    pub posted_max: u32,
    /// Whether this queue also sends.
    pub sends: bool,
    pub mode: CopyMode,
    /// Value of `SO_BUSY_POLL` in microseconds; `None` to receive by interrupts.
    pub busy_poll_us: Option<i32>,
}

pub(super) struct Queue {
    // Dropped in this order: a mapping keeps the socket alive in the kernel, and `member` must leave the UMEM before
    // the descriptor through which others would share it is closed.
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
        // bind(2) demands a completion ring on every socket that has a UMEM, even if it never sends.
        let tx_entries = if plan.sends { TX_ENTRIES } else { 2 };
        let rings = [
            (libc::XDP_UMEM_FILL_RING, rx_entries),
            (libc::XDP_UMEM_COMPLETION_RING, tx_entries),
            (libc::XDP_RX_RING, rx_entries),
            (libc::XDP_TX_RING, if plan.sends { tx_entries } else { 0 }),
        ];
        // Rings come before bind(2): their sizes are fixed by then.
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

    /// Frames that the kernel dropped at this socket: no chunk in the fill ring, no room in the receive ring, or longer
    /// than a chunk.
    pub(super) fn lost(&self) -> u64 {
        let counted = sys::statistics(self.socket.as_fd());
        counted.map_or(0, |counted| counted.rx_dropped + counted.rx_ring_full)
    }
}
