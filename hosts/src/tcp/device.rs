//! What smoltcp receives from and sends by: one packet in, one packet out.
//!
//! [`Slot`] is a [`Device`] with room for the packet that is received and for the one that is sent.
//!
//! Units: bytes of an IP packet.

use smoltcp::phy::{Checksum, Device, DeviceCapabilities, Medium, RxToken, TxToken};
use smoltcp::time::Instant;

/// A packet in and a packet out, each behind as many bytes as its Ethernet header takes.
#[derive(Debug)]
pub(super) struct Slot {
    /// Longest IP packet.
    mtu: usize,
    /// Whether checksums of TCP are made and checked; that of the IP header always is.
    checks: bool,
    received: Vec<u8>,
    /// Bytes of `received` that wait for the stack.
    waiting: Option<usize>,
    sent: Vec<u8>,
    /// Bytes of `sent` that the stack has written.
    written: Option<usize>,
    /// Bytes in front of a packet.
    reserve: usize,
}

impl Slot {
    /// With room for packets of `mtu` bytes behind `reserve` others.
    pub fn new(mtu: usize, reserve: usize, checks: bool) -> Self {
        let room = || vec![0; mtu + reserve];
        Self { mtu, checks, received: room(), waiting: None, sent: room(), written: None, reserve }
    }

    /// The longest IP packet from now on, which is no longer than the room.
    pub fn set_mtu(&mut self, mtu: usize) {
        self.mtu = mtu.min(self.sent.len().saturating_sub(self.reserve));
    }

    /// Puts a packet of `len` bytes there, of which `kept` are known; false if it is too long.
    pub fn receive_next(&mut self, kept: &[u8], len: usize) -> bool {
        if len > self.received.len() {
            return false;
        }
        // What is not known of a packet is whatever was there before: nobody reads it.
        self.received.iter_mut().zip(kept).for_each(|(to, from)| *to = *from);
        self.waiting = Some(len);
        true
    }

    /// The packet that the stack has sent, with the bytes in front of it.
    pub fn take_sent(&mut self) -> Option<&mut [u8]> {
        let len = self.written.take()?;
        self.sent.get_mut(..self.reserve + len)
    }

    /// The first `len` bytes of what was taken last.
    pub fn sent_before(&self, len: usize) -> &[u8] {
        self.sent.get(..len).unwrap_or_default()
    }
}

/// A packet for the stack.
pub(super) struct Received<'a>(&'a [u8]);

impl RxToken for Received<'_> {
    fn consume<R, F: FnOnce(&[u8]) -> R>(self, f: F) -> R {
        f(self.0)
    }
}

/// Room for a packet of the stack.
pub(super) struct Room<'a> {
    sent: &'a mut [u8],
    written: &'a mut Option<usize>,
}

impl TxToken for Room<'_> {
    fn consume<R, F: FnOnce(&mut [u8]) -> R>(self, len: usize, f: F) -> R {
        let len = len.min(self.sent.len());
        *self.written = Some(len);
        f(self.sent.get_mut(..len).unwrap_or_default())
    }
}

impl Device for Slot {
    type RxToken<'a> = Received<'a>;
    type TxToken<'a> = Room<'a>;

    fn receive(&mut self, _timestamp: Instant) -> Option<(Received<'_>, Room<'_>)> {
        let len = self.waiting.take()?;
        let sent = self.sent.get_mut(self.reserve..)?;
        Some((Received(self.received.get(..len)?), Room { sent, written: &mut self.written }))
    }

    fn transmit(&mut self, _timestamp: Instant) -> Option<Room<'_>> {
        if self.written.is_some() {
            return None;
        }
        let sent = self.sent.get_mut(self.reserve..)?;
        Some(Room { sent, written: &mut self.written })
    }

    fn capabilities(&self) -> DeviceCapabilities {
        let mut all = DeviceCapabilities::default();
        all.medium = Medium::Ip;
        all.max_transmission_unit = self.mtu;
        all.max_burst_size = None; // it would be taken for a limit of the receive window
        if !self.checks {
            all.checksum.tcp = Checksum::None;
        }
        all
    }
}
