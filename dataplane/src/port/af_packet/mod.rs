//! Port on a Linux interface by packet sockets: works with any driver, without setup, and undoes every offload.
//!
//! The kernel fills a ring of slots, and each frame is copied from its slot into a chunk (`receiver`). A second ring
//! has slots that the kernel sends, one system call per burst (`sender`). Frames longer than a slot come as messages.
//!
//! Source: packet(7), Linux `Documentation/networking/packet_mmap.rst`; docs/spec/pipeline.md §11. Linux 5.12 or later;
//! `CAP_NET_RAW` and `CAP_NET_ADMIN`.

mod beside;
mod messages;
mod receiver;
mod sender;
mod slots;
mod tunnel_tap;

use std::io;
use std::os::fd::{AsFd, OwnedFd};

use weft_base::threads;

pub use self::beside::Beside;
use self::receiver::Receiver;
pub(super) use self::sender::{Joins, Next, Sender, Turn};
use self::slots::RxSlots;
pub(super) use self::tunnel_tap::TunnelTap;
use super::error::{Refused, at};
use super::gauge::{RxGauge, Shown};
use super::link::{HostGuard, LinkWatch};
use super::{Port, PortCaps, PortCounters, PortError, PortOpenError, netdev, sys};
use crate::batch::Batch;
use crate::pool::Bufs;
use crate::time::{Instant, LinkRate, Span};

/// Socket buffers in bytes. The kernel queues frames that are longer than a slot in the receive buffer.
const RX_BUFFER: i32 = 16 << 20;
const TX_BUFFER: i32 = 8 << 20;
/// Interval between looks at the link and at the kernel's drop count.
const CHECK_EVERY: Span = Span::from_ms(10);
/// Interval between attempts to open an interface that was deleted and came back.
const RETRY_EVERY: Span = Span::from_ms(250);
/// Settings of an `af_packet` port.
#[derive(Clone, Debug)]
pub struct AfPacketConfig {
    /// Interface, in the network namespace of the thread that opens the port.
    pub device: String,
    /// Rate of the link, for quanta and wire time.
    pub rate: LinkRate,
    /// Longest frame in bytes, without FCS, tags included.
    pub frame_len_max: usize,
    /// Frames handed to the kernel and not yet sent at most, 1..=64.
    pub tx_ring_frames: usize,
    /// Frames that may wait in the kernel, 64..=65536, rounded up to whole blocks of the ring.
    pub rx_ring_frames: usize,
    /// Whether segments of TCP in a tunnel may leave as one super-frame, by a tap of our own beside the interface, where
    /// the kernel takes that (Linux 6.17, `CAP_BPF`) and the interface is a veth.
    pub tunnel_tap: bool,
}

/// Resources that exist only while the interface does.
struct Open {
    // Before the ring that it shows.
    _shown: Shown,
    /// Its socket also sends super-frames, and reports errors of the interface.
    rx: receiver::Ring,
    tx: sender::Ring,
    index: i32,
    _guard: HostGuard,
}

/// A port on a Linux interface by packet sockets.
pub struct AfPacket {
    caps: PortCaps,
    config: AfPacketConfig,
    open: Option<Open>,
    gauge: RxGauge,
    watch: LinkWatch,
    receiver: Receiver,
    sender: Sender,
    /// Made once and kept for the port's life: when an interface comes back, the process may have dropped the
    /// capabilities that making a tap takes.
    tap: Option<TunnelTap>,
    counters: PortCounters,
    /// System calls made outside receiver and sender.
    other_calls: u64,
    /// The kernel took no more frames; reset by the next `service`.
    blocked: bool,
    check_at: Instant,
    retry_at: Instant,
    /// Call and errno of a refused rx or tx, for `service` to report.
    fault: Option<(&'static str, i32)>,
}

impl AfPacket {
    /// Opens a port on an interface that is there.
    ///
    /// # Errors
    /// A setting is out of range; the interface is missing, not Ethernet, already a port of another
    /// process; or a call was refused.
    pub fn open(config: &AfPacketConfig) -> Result<Self, PortOpenError> {
        let device = &config.device;
        PortOpenError::check_frame_len_max(device, config.frame_len_max)?;
        PortOpenError::check_ring_frames(device, config.tx_ring_frames, config.rx_ring_frames)?;
        let (watch, index) = LinkWatch::of_ethernet(device)?;
        let gauge = RxGauge::default();
        let open = Self::open_device(config, index, &gauge).map_err(|refused| {
            let hint = match refused.source.raw_os_error() {
                Some(libc::EPERM) => " (needs CAP_NET_RAW and CAP_NET_ADMIN)",
                Some(libc::EEXIST) => " (it is already a port of a running switch)",
                _ => "",
            };
            PortOpenError::refused(device, refused, hint)
        })?;
        // A missing tap is no reason to refuse the port: without one, segments in tunnels leave one by one.
        let tap = if config.tunnel_tap && netdev::is_veth(device) {
            TunnelTap::open().ok()
        } else {
            None
        };
        if let Some(tap) = &tap {
            tap.aim(index);
        }
        Ok(Self {
            caps: PortCaps {
                kind: "af_packet",
                device: device.clone(),
                frame_len_max: config.frame_len_max,
                rate: config.rate,
                tx_partial_csum: true,
                virtual_time: false,
            },
            config: config.clone(),
            open: Some(open),
            gauge,
            watch,
            receiver: Receiver::new(config.frame_len_max),
            sender: Sender::new(),
            tap,
            counters: PortCounters::default(),
            other_calls: 0,
            blocked: false,
            check_at: Instant::ZERO,
            retry_at: Instant::ZERO,
            fault: None,
        })
    }

    /// Keeps the host's stack off the interface, then opens one socket that only sends and one that receives.
    fn open_device(config: &AfPacketConfig, index: i32, gauge: &RxGauge) -> Result<Open, Refused> {
        // First, because it also is the lock on the interface: a second switch gets EEXIST here, before it changes
        // anything.
        let guard =
            HostGuard::open(&config.device).map_err(at("keep the host out (nftables netdev)"))?;
        // These options come before the rings: af_packet.c refuses PACKET_VERSION and PACKET_VNET_HDR with EBUSY
        // afterwards.
        let version = i32::try_from(libc::tpacket_versions::TPACKET_V2 as u32).unwrap_or(1);
        let len = config.frame_len_max;
        let both = [
            (libc::PACKET_VERSION, version, "set PACKET_VERSION"),
            (libc::PACKET_VNET_HDR, 1, "set PACKET_VNET_HDR"),
            (libc::PACKET_QDISC_BYPASS, 1, "set PACKET_QDISC_BYPASS"),
        ];

        let sends = packet_socket(&both)?;
        let tx = sender::Ring::new(sends, config.tx_ring_frames, len)
            .map_err(at("make the transmit ring"))?;
        sys::bind_packet(tx.fd(), index, false).map_err(at("bind to the interface"))?;

        let socket = packet_socket(&both)?;
        let fd = socket.as_fd();
        // IGNORE_OUTGOING: the host's stack and the tunnel tap send on this interface, and the port would take their
        // frames for received ones. COPY_THRESH: a frame longer than a slot is queued in whole as a message.
        let receives = [
            (libc::PACKET_IGNORE_OUTGOING, 1, "set PACKET_IGNORE_OUTGOING"),
            (libc::PACKET_COPY_THRESH, 1, "set PACKET_COPY_THRESH"),
        ];
        for (name, value, call) in receives {
            sys::set_option(fd, libc::SOL_PACKET, name, value).map_err(at(call))?;
        }
        let slots =
            RxSlots::map(fd, config.rx_ring_frames, len).map_err(at("make the receive ring"))?;
        sys::set_promiscuous(fd, index).map_err(at("set promiscuous"))?;
        // Last: an unbound socket receives nothing, so no frame arrives before ring and options are in place.
        sys::bind_packet(fd, index, true).map_err(at("bind to the interface"))?;
        // SAFETY: `Open` drops it before the slots.
        let shown = unsafe { gauge.show(vec![slots.gauged()]) };
        Ok(Open { _shown: shown, rx: receiver::Ring { slots, socket }, tx, index, _guard: guard })
    }

    /// Frames that left as part of the super-frame of an earlier one, since the port was opened.
    #[must_use]
    pub const fn joined_frames(&self) -> u64 {
        self.sender.joined_frames
    }

    /// Received super-frames that were split, since the port was opened.
    #[must_use]
    pub const fn super_frames(&self) -> u64 {
        self.receiver.super_frames
    }

    /// System calls since the port was opened.
    #[must_use]
    pub const fn system_calls(&self) -> u64 {
        self.receiver.system_calls + self.sender.system_calls + self.other_calls
    }

    fn error(&self, call: &'static str, source: io::Error) -> PortError {
        PortError { device: self.caps.device.clone(), call, source }
    }

    /// Keeps a refusal for `service`, which then looks at the link at once.
    fn fail(&mut self, call: &'static str, error: &io::Error) {
        let code = error.raw_os_error().unwrap_or(libc::EIO);
        if matches!(code, libc::ENETDOWN | libc::ENXIO | libc::ENODEV) {
            self.watch.suspect();
        }
        self.fault = Some((call, code));
    }

    // Link ----------------------------------------------------------------------------------

    /// Follows the interface: closes the sockets when it is gone, opens new ones when it is back.
    fn follow(&mut self, now: Instant) -> Result<(), PortError> {
        self.other_calls += 1;
        let state = self.watch.poll().map_err(|e| self.error("follow the link", e))?;
        if let Some(open) = &self.open
            && state.index != Some(open.index)
        {
            // The ifindex decides, not the name: an interface that was deleted and made again has the name and another
            // index.
            self.let_go();
            self.retry_at = now;
            let gone = io::Error::from_raw_os_error(libc::ENODEV);
            return Err(self.error("interface is gone", gone));
        }
        if let (None, Some(index)) = (&self.open, state.index)
            && state.ethernet
            && self.retry_at <= now
        {
            // Set before the attempt, so that an interface that keeps refusing costs one try per interval, not one per
            // `service`.
            self.retry_at = now + RETRY_EVERY;
            let open = Self::open_device(&self.config, index, &self.gauge);
            self.open = Some(open.map_err(|refused| self.error(refused.call, refused.source))?);
            if let Some(tap) = &self.tap {
                tap.aim(index);
            }
            self.blocked = false;
        }
        Ok(())
    }

    /// Closes the sockets of an interface that is gone. Frames that still wait in its ring are lost, and counted.
    fn let_go(&mut self) {
        self.count_kernel_drops();
        if let Some(open) = self.open.take() {
            self.counters.kernel_rx += open.rx.slots.waiting() as u64;
        }
        if let Some(tap) = &self.tap {
            tap.aim(0);
        }
        self.receiver.forget_messages();
    }

    fn count_kernel_drops(&mut self) {
        if let Some(open) = &self.open {
            self.other_calls += 1;
            let drops = sys::packet_drops(open.rx.socket.as_fd());
            self.counters.kernel_rx += drops.map_or(0, u64::from);
        }
    }

    /// Fetches the socket's pending error (`SO_ERROR`): as long as it is pending, poll says that the socket is readable.
    fn take_error(&mut self) {
        let Some(open) = &self.open else { return };
        self.other_calls += 1;
        if let Err(e) = sys::take_error(open.rx.socket.as_fd()) {
            self.fail("receive", &e);
        }
    }
}

impl Port for AfPacket {
    fn caps(&self) -> &PortCaps {
        &self.caps
    }

    fn rx(&mut self, _now: Instant, bufs: &mut Bufs, batch: &mut Batch) -> usize {
        let before = batch.len();
        let ring = self.open.as_mut().map(|open| &mut open.rx);
        if let Err(e) = self.receiver.receive(ring, bufs, batch, &mut self.counters) {
            self.fail("receive", &e);
        // An idle worker that waits for this descriptor would otherwise be woken at once, again and again.
        } else if batch.len() == before && !self.watch.state().up {
            self.take_error();
        }
        batch.len() - before
    }

    fn tx_room(&mut self, _now: Instant) -> usize {
        if self.blocked || !self.link_up() {
            return 0;
        }
        let under_way = self.sending();
        self.config.tx_ring_frames.saturating_sub(under_way)
    }

    fn tx(&mut self, now: Instant, bufs: &mut Bufs, batch: &mut Batch) -> usize {
        let count = batch.len().min(self.tx_room(now));
        let Some(open) = &mut self.open else { return 0 };
        let socket = open.rx.socket.as_fd();
        let joins = Joins { socket, tap: self.tap.as_ref(), mtu: self.watch.state().mtu };
        let mut taken = 0;
        let mut fault = None;
        // Each turn hands over one run of frames that leave the same way: by the ring, in messages, or by the tap.
        while let Some(frames) = batch.get(taken..count)
            && !frames.is_empty()
        {
            let handed = self.sender.hand_over(now, joins, &mut open.tx, bufs, frames);
            taken += handed.taken;
            match self.sender.next(now, handed, frames) {
                Next::GoOn => {}
                Next::Wait => {
                    self.blocked = true;
                    break;
                }
                // Counted and dropped like a sent frame, as it would block all frames behind it.
                Next::GiveUp => {
                    self.counters.tx_failed += 1;
                    taken += 1;
                }
                Next::Fault(e) => {
                    fault = Some(e);
                    break;
                }
            }
        }
        if let Some(e) = fault {
            self.fail("send", &e);
        }
        // The kernel has copied the bytes (ring slot, message or tap), so chunks are free before the frames have left.
        for desc in batch.drain(..taken) {
            bufs.free(desc);
        }
        taken
    }

    fn service(&mut self, now: Instant, _bufs: &mut Bufs) -> Result<(), PortError> {
        self.blocked = false;
        let fault = self.fault.take();
        if fault.is_none() && now < self.check_at {
            return Ok(());
        }
        self.check_at = now + CHECK_EVERY;
        self.count_kernel_drops();
        if fault.is_some() {
            self.other_calls += 1;
            // The fault may mean that the interface is gone; ask the kernel now instead of waiting for its
            // notification.
            self.watch.ask().map_err(|e| self.error("follow the link", e))?;
        }
        self.follow(now)?;
        if self.link_up() {
            self.take_error(); // one that was down for a moment only
        }
        match fault {
            Some((call, code)) => Err(self.error(call, io::Error::from_raw_os_error(code))),
            None => Ok(()),
        }
    }

    fn link_up(&self) -> bool {
        self.open.is_some() && self.watch.state().up
    }

    fn counters(&self) -> PortCounters {
        self.counters
    }

    fn rx_gauge(&self) -> Option<RxGauge> {
        Some(self.gauge.clone())
    }

    fn sending(&mut self) -> usize {
        self.open.as_mut().map_or(0, |open| open.tx.under_way())
    }

    /// The descriptor is replaced when the interface was gone, so callers ask for it again before each wait.
    fn link_fd(&self) -> Option<std::os::fd::BorrowedFd<'_>> {
        Some(self.watch.as_fd())
    }

    fn wait_fd(&self) -> Option<std::os::fd::BorrowedFd<'_>> {
        self.open.as_ref().map(|open| open.rx.socket.as_fd())
    }

    fn release(&mut self, _bufs: &mut Bufs) {
        self.count_kernel_drops();
        // Closing a socket waits in the kernel. On a busy machine all of them together can take longer than the 2 s for
        // which a stop waits for a sign of life. The gauge goes first: other threads read the ring's words through it.
        if let Some(Open { _shown: shown, rx, tx, _guard: guard, .. }) = self.open.take() {
            drop(shown);
            threads::close(rx);
            threads::close(tx);
            threads::close(guard);
        }
        threads::close(self.tap.take());
        self.receiver.clear();
    }
}

/// A packet socket that only sends, by the interface `index` and past its queues.
pub(super) fn sending_socket(
    index: i32,
    more: &[(i32, i32, &'static str)],
) -> Result<OwnedFd, Refused> {
    let bypass = (libc::PACKET_QDISC_BYPASS, 1, "set PACKET_QDISC_BYPASS");
    let socket = packet_socket(&[more, &[bypass]].concat())?;
    sys::bind_packet(socket.as_fd(), index, false).map_err(at("bind to the interface"))?;
    Ok(socket)
}

/// A packet socket that receives nothing until it is bound.
fn packet_socket(options: &[(i32, i32, &'static str)]) -> Result<OwnedFd, Refused> {
    let socket = sys::socket(libc::AF_PACKET, libc::SOCK_RAW, 0).map_err(at("open socket"))?;
    let fd = socket.as_fd();
    for &(name, value, call) in options {
        sys::set_option(fd, libc::SOL_PACKET, name, value).map_err(at(call))?;
    }
    let buffers = [
        (libc::SO_RCVBUFFORCE, libc::SO_RCVBUF, RX_BUFFER),
        (libc::SO_SNDBUFFORCE, libc::SO_SNDBUF, TX_BUFFER),
    ];
    for (force, plain, len) in buffers {
        sys::set_option(fd, libc::SOL_SOCKET, force, len)
            // FORCE needs CAP_NET_ADMIN and may exceed net.core.rmem_max and wmem_max; without it the kernel caps the
            // size.
            .or_else(|_| sys::set_option(fd, libc::SOL_SOCKET, plain, len))
            .map_err(at("set socket buffers"))?;
    }
    Ok(socket)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn settings_out_of_range_are_refused_before_anything_is_tried() {
        #[rustfmt::skip] // columns: frame_len_max, tx_ring_frames, rx_ring_frames, part of the message
        let cases = [
            (63,    32, 512,    "frame_len_max is 63"),
            (9_729, 32, 512,    "frame_len_max is 9729"),
            (1_518, 0,  512,    "tx_ring_frames is 0"),
            (1_518, 65, 512,    "tx_ring_frames is 65"),
            (1_518, 32, 63,     "rx_ring_frames is 63"),
            (1_518, 32, 65_537, "rx_ring_frames is 65537"),
            (1_518, 32, 512,    "find the interface"),
        ];
        for (frame_len_max, tx_ring_frames, rx_ring_frames, want) in cases {
            let config = AfPacketConfig {
                device: "no-such-if0".to_owned(),
                rate: LinkRate::gbps(1),
                frame_len_max,
                tx_ring_frames,
                rx_ring_frames,
                tunnel_tap: false,
            };
            let error = AfPacket::open(&config).err().map(|e| e.to_string()).unwrap_or_default();
            assert!(error.contains(want), "{error}");
        }
    }
}
