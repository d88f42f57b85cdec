//! Frames of a test's with what a device is asked to do with them.
//!
//! A packet socket takes a virtio-net header before each frame.
//!
//! Units: bytes.
//! Source: packet(7), `PACKET_VNET_HDR`.
#![expect(unsafe_code, reason = "a socket option")]

use std::os::fd::{AsFd, AsRawFd};

use crate::kernel::PacketSender;

/// A sender out of `device` whose frames begin with a virtio-net header of 10 bytes.
pub fn sender(device: &str) -> PacketSender {
    let sender = PacketSender::new(device);
    let (on, len) = (1_i32, 4);
    let (fd, name) = (sender.as_fd().as_raw_fd(), libc::PACKET_VNET_HDR);
    // SAFETY: a live number of four bytes.
    let set = unsafe { libc::setsockopt(fd, libc::SOL_PACKET, name, (&raw const on).cast(), len) };
    assert_eq!(set, 0);
    sender
}
