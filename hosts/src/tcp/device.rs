//! The network device of smoltcp: room for one received packet and one to send. Lengths are those of IP packets.

use smoltcp::phy::{Checksum, Device, DeviceCapabilities, Medium, RxToken, TxToken};
use smoltcp::time::Instant;

/// One packet in each direction, each with room for an Ethernet header in front.
#[derive(Debug)]
pub(super) struct Slot {
    /// Longest IP packet.
    mtu: usize,
    /// Whether TCP checksums are made and checked; the IP header's always is.
    checks: bool,
    received: Vec<u8>,
    /// Length of the packet in `received` that waits for the stack.
    waiting: Option<usize>,
    sent: Vec<u8>,
    /// Length of the packet that the stack has written to `sent`.
    written: Option<usize>,
    /// Bytes kept free in front of a packet.
    reserve: usize,
}

impl Slot {
    /// Room for packets of `mtu` bytes, each after `reserve` free ones.
    pub fn new(mtu: usize, reserve: usize, checks: bool) -> Self {
        let room = || vec![0; mtu + reserve];
        Self { mtu, checks, received: room(), waiting: None, sent: room(), written: None, reserve }
    }

    /// Sets the MTU for the next interface, at most the room there is.
    pub fn set_mtu(&mut self, mtu: usize) {
        self.mtu = mtu.min(self.sent.len().saturating_sub(self.reserve));
    }

    /// Places a packet of `len` bytes, of which `kept` are known; false if it is too long.
    pub fn receive_next(&mut self, kept: &[u8], len: usize) -> bool {
        if len > self.received.len() {
            return false;
        }
        // The unknown rest of a packet keeps the bytes of an earlier one; with checksums off the stack does not look at
        // them.
        self.received.iter_mut().zip(kept).for_each(|(to, from)| *to = *from);
        self.waiting = Some(len);
        true
    }

    /// Takes the packet that the stack has written, with the reserved bytes in front.
    pub fn take_sent(&mut self) -> Option<&mut [u8]> {
        let len = self.written.take()?;
        self.sent.get_mut(..self.reserve + len)
    }

    /// The first `len` bytes of the packet that was taken last.
    pub fn sent_before(&self, len: usize) -> &[u8] {
        self.sent.get(..len).unwrap_or_default()
    }
}

/// Hands the received packet to the stack.
pub(super) struct Received<'a>(&'a [u8]);

impl RxToken for Received<'_> {
    fn consume<R, F: FnOnce(&[u8]) -> R>(self, f: F) -> R {
        f(self.0)
    }
}

/// Lets the stack write a packet.
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
