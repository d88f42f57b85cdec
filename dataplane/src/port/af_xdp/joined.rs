//! Super-frames: where the far end is a host on this machine, what it takes for several segments of one TCP stream leaves as one,
//! past the transmit ring.
//!
//! The kernel copies each frame of the ring into a packet of its own and, on a veth, runs the receiving host's stack for it
//! before it takes the next: a segment costs as much as a packet of 64 KiB does. A packet socket, or for tunnels a tap, takes
//! the same frames as one packet. The sockets of AF_XDP have no such form (`XDP_PKT_CONTD` is for one long frame).
//!
//! Units: frames.
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
    /// Sends by the interface, while that is there and frames are copied anyway.
    socket: Option<OwnedFd>,
    /// For as long as the port: an interface that comes back finds it with fewer rights than it took.
    tap: Option<TunnelTap>,
}

impl Joined {
    /// What a port on `device` has for this.
    pub(super) fn new(device: &str) -> Option<Self> {
        // Without a tap, segments in tunnels leave one by one.
        let open = || Self { sender: Sender::new(), socket: None, tap: TunnelTap::open().ok() };
        netdev::is_veth(device).then(open)
    }

    /// Sends by the interface of `device` from now on, if frames may be joined there.
    pub(super) fn aim(&mut self, device: &Device) {
        let index = device.hold.index;
        // Checksums that the kernel does not complete are complete by the time that a frame could be joined.
        let may_join = device.completes_checksums() && !device.is_zero_copy();
        let headers = (libc::PACKET_VNET_HDR, 1, "set PACKET_VNET_HDR");
        self.socket = if may_join { sending_socket(index, &[headers]).ok() } else { None };
        if let Some(tap) = &self.tap {
            tap.aim(index);
        }
    }

    /// The interface is gone.
    pub(super) fn let_go(&mut self) {
        self.socket = None;
        if let Some(tap) = &self.tap {
            tap.aim(0);
        }
    }
}

/// What became of frames that were to be handed over.
pub(super) enum Done {
    /// So many are gone, and there may be more to hand over.
    GoOn(usize),
    /// So many are gone; the next must wait.
    Wait(usize),
}

impl AfXdp {
    /// Frames that went as part of the one before them so far.
    #[must_use]
    pub fn joined_frames(&self) -> u64 {
        self.joined.as_ref().map_or(0, |joined| joined.sender.joined_frames)
    }

    /// Hands over some of the first `count` frames of `batch`, and takes them out of it.
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
        // What is in the ring goes first; while the kernel takes no more of that, all of them wait there.
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

    /// Has the kernel send what is in the transmit ring; whether it has.
    fn has_sent_ring(&mut self) -> bool {
        self.publish();
        self.kick();
        self.device.as_ref().is_some_and(|device| device.unsent() == 0)
    }

    /// Puts the first `count` frames of `batch` into the transmit ring, which lends them to the kernel.
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

    /// Shows the kernel what was put into the transmit ring.
    fn publish(&mut self) {
        if let Some(device) = &mut self.device
            && let Some(ring) = &device.sender().tx
        {
            ring.publish();
        }
    }
}
