//! Super-frames: on a veth, segments of one TCP stream leave joined, past the transmit ring.
//!
//! The kernel copies each frame of the ring into a packet of its own and, on a veth, runs the receiving host's stack
//! for it before it takes the next: a segment costs as much as a packet of 64 KiB does. A packet socket, or for tunnels
//! a tap, takes the same frames as one packet. `AF_XDP` has no form for this (`XDP_PKT_CONTD` is for one long frame).
//!
//! Source: packet(7), `PACKET_VNET_HDR`; docs/spec/pipeline.md §11.

use std::os::fd::{AsFd, OwnedFd};

use super::AfXdp;
use super::device::Device;
use crate::batch::Batch;
use crate::pool::Bufs;
use crate::port::af_packet::{Joins, Next, Sender, TunnelTap, Turn, sending_socket};
use crate::port::netdev;
use crate::time::Instant;

/// Ways past the transmit ring.
pub(super) struct Joined {
    pub sender: Sender,
    /// Sends on the interface; `None` while that is gone, or where frames are not copied.
    socket: Option<OwnedFd>,
    /// Made once and kept for the port's life: when an interface comes back, the process may have dropped the
    /// capabilities that making a tap takes.
    tap: Option<TunnelTap>,
}

impl Joined {
    /// Ways past the ring for a port on `device`; `None` unless it is a veth.
    pub(super) fn new(device: &str) -> Option<Self> {
        // A missing tap is no reason to refuse the port: without one, segments in tunnels leave one by one.
        let open = || Self { sender: Sender::new(), socket: None, tap: TunnelTap::open().ok() };
        netdev::is_veth(device).then(open)
    }

    /// Sends on the interface of `device` from now on, if frames may be joined there.
    pub(super) fn aim(&mut self, device: &Device) {
        let index = device.hold.index;
        // Only segments with partial checksums can be joined. If the kernel completes none, the port has completed them
        // all before frames get here.
        let may_join = device.completes_checksums() && !device.is_zero_copy();
        let headers = (libc::PACKET_VNET_HDR, 1, "set PACKET_VNET_HDR");
        self.socket = if may_join { sending_socket(index, &[headers]).ok() } else { None };
        if let Some(tap) = &self.tap {
            tap.aim(index);
        }
    }

    /// Stops sending on an interface that is gone.
    pub(super) fn let_go(&mut self) {
        self.socket = None;
        if let Some(tap) = &self.tap {
            tap.aim(0);
        }
    }
}

/// Outcome of handing frames over.
pub(super) enum Done {
    /// This many frames are gone; more can be handed over.
    GoOn(usize),
    /// This many frames are gone; the next must wait.
    Wait(usize),
}

impl AfXdp {
    /// Frames that left as part of the super-frame of an earlier one, since the port was opened.
    #[must_use]
    pub fn joined_frames(&self) -> u64 {
        self.joined.as_ref().map_or(0, |joined| joined.sender.joined_frames)
    }

    /// Hands over some of the first `count` frames of `batch` and removes them from it.
    pub(super) fn hand_over(
        &mut self,
        now: Instant,
        bufs: &mut Bufs,
        batch: &mut Batch,
        count: usize,
    ) -> Done {
        let may_join = self.joined.as_ref().is_some_and(|joined| {
            joined.socket.is_some()
                && batch.get(..count).is_some_and(|frames| joined.sender.may_join(now, frames))
        });
        // Frames in the ring must leave first, to keep the order within flows. While the kernel takes no more of the
        // ring, the new ones wait in it, too.
        if !may_join || !self.has_sent_ring() {
            return self.put(bufs, batch, count);
        }
        let mtu = self.watch.state().mtu;
        let Some(Joined { sender, socket: Some(socket), tap }) = &mut self.joined else {
            return Done::Wait(0);
        };
        let frames = batch.get(..count).unwrap_or_default();
        let joins = Joins { socket: socket.as_fd(), tap: tap.as_ref(), mtu };
        let handed = match sender.turn(now, joins, bufs, frames) {
            Turn::OneByOne(count) => return self.put(bufs, batch, count),
            Turn::Joined(handed) => handed,
        };
        self.counts.system_calls += 1;
        let mut taken = handed.taken;
        let goes_on = match sender.next(now, handed, frames) {
            Next::GoOn => true,
            Next::Wait => false,
            Next::GiveUp => {
                self.counts.frames.tx_failed += 1;
                taken += 1;
                true
            }
            Next::Fault(e) => {
                self.fail("send", &e);
                false
            }
        };
        for desc in batch.drain(..taken) {
            bufs.free(desc); // the kernel has a copy
        }
        if goes_on { Done::GoOn(taken) } else { Done::Wait(taken) }
    }

    /// Has the kernel send the transmit ring; returns whether the ring is empty now.
    fn has_sent_ring(&mut self) -> bool {
        self.publish();
        self.kick();
        self.device.as_ref().is_some_and(|device| device.unsent() == 0)
    }

    /// Puts the first `count` frames of `batch` into the transmit ring; their chunks are lent to the kernel.
    fn put(&mut self, bufs: &mut Bufs, batch: &mut Batch, count: usize) -> Done {
        let mut taken = 0;
        while taken < count && self.prepare(bufs, batch, taken) {
            let Some(desc) = batch.get_mut(taken) else { break };
            if !self.push(bufs, desc) {
                break;
            }
            taken += 1;
        }
        if taken > 0 {
            self.publish();
        }
        drop(batch.drain(..taken)); // they are lent: `sent` has them
        if taken == count { Done::GoOn(taken) } else { Done::Wait(taken) }
    }

    /// Shows the kernel the entries that were added to the transmit ring.
    fn publish(&mut self) {
        if let Some(device) = &mut self.device
            && let Some(ring) = &device.sender().tx
        {
            ring.publish();
        }
    }
}
