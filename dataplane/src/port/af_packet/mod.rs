//! Port on a Linux interface by packet sockets: works with any driver, without setup, and undoes every offload.
//!
//! The kernel fills a ring of slots, and each frame is copied from its slot into a chunk; super-frames come in a ring of
//! larger slots (`receiver`). A third ring has slots that the kernel sends, one system call per burst (`sender`).
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
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};

use weft_base::threads;

pub use self::beside::Beside;
use self::receiver::{Receiver, Rings};
pub(super) use self::sender::{Joins, Next, Sender, Turn};
use self::slots::RxSlots;
pub(super) use self::tunnel_tap::TunnelTap;
use super::error::{Refused, at};
use super::gauge::{RxGauge, Shown};
use super::link::{HostGuard, LinkWatch};
use super::{
    Port, PortCaps, PortCounters, PortError, PortOpenError, SuperFrame, SuperFrames, netdev, sys,
};
use crate::batch::Batch;
use crate::pool::Bufs;
use crate::time::{Instant, LinkRate, Span};

/// Bytes that the kernel may have of frames on their way out.
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
    /// Frames that may wait in the kernel, 64..=65536, rounded up to whole blocks of the ring. For each 512 of them 15
    /// super-frames may wait beside them, 240 at most, in 1 MiB.
    pub rx_ring_frames: usize,
    /// Whether segments of TCP in a tunnel may leave as one super-frame, by a tap of our own beside the interface, where
    /// the kernel takes that (Linux 6.17, `CAP_BPF`) and the interface is a veth.
    pub tunnel_tap: bool,
}

/// Resources that exist only while the interface does.
struct Open {
    // Before the ring that it shows.
    _shown: Shown,
    /// The socket of its frames also sends super-frames.
    rx: Rings,
    /// Readable when one of the receiving sockets is.
    readable: OwnedFd,
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
    /// System calls made outside of the sender.
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

    /// Keeps the host's stack off the interface, then opens a socket that only sends and two that receive.
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

        // Each frame is for one of the two by its length.
        let longest = u32::try_from(len).unwrap_or(u32::MAX);
        let ring = |lens, map: &dyn Fn(BorrowedFd<'_>) -> io::Result<RxSlots>| {
            let socket = packet_socket(&both)?;
            let fd = socket.as_fd();
            // The host's stack and the tunnel tap send on this interface, and the port would take their frames for
            // received ones.
            sys::set_option(fd, libc::SOL_PACKET, libc::PACKET_IGNORE_OUTGOING, 1)
                .map_err(at("set PACKET_IGNORE_OUTGOING"))?;
            sys::receive_lens(fd, lens).map_err(at("set a filter"))?;
            let slots = map(fd).map_err(at("make a receive ring"))?;
            // Last: an unbound socket receives nothing, so no frame arrives before ring and options are in place.
            sys::bind_packet(fd, index, true).map_err(at("bind to the interface"))?;
            Ok(receiver::Ring { slots, socket })
        };
        let frames = ring(0..=longest, &|fd| RxSlots::map(fd, config.rx_ring_frames, len))?;
        let supers = ring(longest.saturating_add(1)..=u32::MAX, &|fd| {
            RxSlots::map_supers(fd, config.rx_ring_frames)
        })?;
        let sockets = [frames.socket.as_fd(), supers.socket.as_fd()];
        let readable = sys::readable_with(&sockets).map_err(at("watch both sockets"))?;
        sys::set_promiscuous(frames.socket.as_fd(), index).map_err(at("set promiscuous"))?;
        // SAFETY: `Open` drops it before the slots.
        let shown = unsafe { gauge.show(vec![frames.slots.gauged(), supers.slots.gauged()]) };
        let rx = Rings { frames, supers };
        Ok(Open { _shown: shown, rx, readable, tx, index, _guard: guard })
    }

    /// Frames that left as part of the super-frame of an earlier one, since the port was opened.
    #[must_use]
    pub const fn joined_frames(&self) -> u64 {
        self.sender.joined_frames
    }

    /// Received super-frames that were split or passed on whole, since the port was opened.
    #[must_use]
    pub const fn received_super_frames(&self) -> u64 {
        self.receiver.super_frames
    }

    /// Super-frames that were sent as another port had received them, since the port was opened.
    #[must_use]
    pub const fn passed_super_frames(&self) -> u64 {
        self.sender.passed_super_frames
    }

    /// System calls since the port was opened.
    #[must_use]
    pub const fn system_calls(&self) -> u64 {
        self.sender.system_calls + self.other_calls
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
            let waiting = open.rx.frames.slots.waiting() + open.rx.supers.slots.waiting();
            self.counters.kernel_rx += waiting as u64;
        }
        if let Some(tap) = &self.tap {
            tap.aim(0);
        }
        self.receiver.clear();
    }

    /// The receiving sockets.
    fn sockets(&self) -> impl Iterator<Item = BorrowedFd<'_>> {
        let rings = self.open.iter().flat_map(|open| [&open.rx.frames, &open.rx.supers]);
        rings.map(|ring| ring.socket.as_fd())
    }

    fn count_kernel_drops(&mut self) {
        let drops = self.sockets().map(sys::packet_drops);
        let (calls, drops) =
            drops.fold((0, 0), |(calls, sum), drops| (calls + 1, sum + drops.map_or(0, u64::from)));
        self.other_calls += calls;
        self.counters.kernel_rx += drops;
    }

    /// Fetches the sockets' pending errors (`SO_ERROR`): as long as one is pending, poll says that its socket is readable.
    fn take_error(&mut self) {
        let (mut calls, mut found) = (0, None);
        for socket in self.sockets() {
            calls += 1;
            found = sys::take_error(socket).err().or(found);
        }
        self.other_calls += calls;
        if let Some(e) = found {
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
        let rings = self.open.as_mut().map(|open| &mut open.rx);
        self.receiver.receive(rings, bufs, batch, &mut self.counters);
        // An idle worker that waits for these sockets would otherwise be woken at once, again and again.
        if batch.len() == before && !self.watch.state().up {
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
        let socket = open.rx.frames.socket.as_fd();
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

    fn super_frames(&mut self) -> Option<&mut dyn SuperFrames> {
        Some(self)
    }

    fn sending(&mut self) -> usize {
        self.open.as_mut().map_or(0, |open| open.tx.under_way())
    }

    /// The descriptor is replaced when the interface was gone, so callers ask for it again before each wait.
    fn link_fd(&self) -> Option<BorrowedFd<'_>> {
        Some(self.watch.as_fd())
    }

    fn wait_fd(&self) -> Option<BorrowedFd<'_>> {
        self.open.as_ref().map(|open| open.readable.as_fd())
    }

    fn release(&mut self, _bufs: &mut Bufs) {
        self.count_kernel_drops();
        // Closing a socket waits in the kernel. On a busy machine all of them together can take longer than the 2 s for
        // which a stop waits for a sign of life. The gauge goes first: other threads read the ring's words through it.
        if let Some(Open { _shown: shown, rx, readable, tx, _guard: guard, .. }) = self.open.take()
        {
            drop((shown, readable));
            let Rings { frames, supers } = rx;
            threads::close(frames);
            threads::close(supers);
            threads::close(tx);
            threads::close(guard);
        }
        threads::close(self.tap.take());
        self.receiver.clear();
    }
}

impl SuperFrames for AfPacket {
    fn front(&mut self) -> Option<SuperFrame<'_>> {
        let rings = &mut self.open.as_mut()?.rx;
        self.receiver.whole(rings, &mut self.counters)
    }

    fn pop(&mut self) {
        if let Some(open) = &mut self.open {
            self.receiver.end_whole(&mut open.rx);
        }
    }

    fn send(&mut self, now: Instant, frame: &SuperFrame<'_>) -> bool {
        if self.tx_room(now) == 0 {
            return false;
        }
        let Some(open) = &self.open else { return false };
        let socket = open.rx.frames.socket.as_fd();
        let joins = Joins { socket, tap: self.tap.as_ref(), mtu: self.watch.state().mtu };
        self.sender.send_whole(now, joins, frame)
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
    sys::set_option(fd, libc::SOL_SOCKET, libc::SO_SNDBUFFORCE, TX_BUFFER)
        // FORCE needs CAP_NET_ADMIN and may exceed net.core.wmem_max; without it the kernel caps the size.
        .or_else(|_| sys::set_option(fd, libc::SOL_SOCKET, libc::SO_SNDBUF, TX_BUFFER))
        .map_err(at("set the send buffer"))?;
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
