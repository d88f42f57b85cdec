//! Port on a Linux interface by a packet socket: any driver, no setup, every offload undone.
//!
//! Shape: recvmmsg into chunks (what is longer goes on in scratch memory), tags put back from the
//! auxiliary data, super-frames split; sendmmsg of virtio-net header and frame, or of what the kernel
//! takes for several frames of one TCP stream.
//! Units: octets, frames.
//! Source: packet(7); pipeline.md §11. Linux 5.12 or later; `CAP_NET_RAW` and `CAP_NET_ADMIN`.

use std::io;
use std::os::fd::{AsFd, OwnedFd};
use std::sync::Arc;

use arrayvec::ArrayVec;

use super::gso::{GSO_NONE, Splitter};
use super::join::{Joint, Segment};
use super::link::{HostGuard, LinkWatch};
use super::sys::{self, Outgoing, RxRing, TxRing, VNET_LEN};
use super::tag::put_tag;
use super::vnet::{Lead, VnetHeader};
use super::{Port, PortCaps, PortCounters, PortError, PortOpenError, TX_LEN_MIN};
use crate::batch::{BURST, Batch};
use crate::desc::{Desc, Flag};
use crate::pool::{Bufs, FRAME_LEN_MAX, PartialCsum, Pool};
use crate::stats::DropReason;
use crate::time::{Instant, LinkRate, Span};

/// Longest super-frame that is taken: 64 KiB of IP and all headers before it.
const SUPER_LEN_MAX: usize = 66 << 10;
/// Room before a frame in scratch memory: virtio-net header and a tag, rounded.
const SCRATCH_LEAD: usize = 16;
/// One message's scratch memory; where its overflow of a chunk of any size can go.
const SCRATCH_LEN: usize = SCRATCH_LEAD + (16 << 10) + SUPER_LEN_MAX;
/// Receive and send buffers of the socket.
const RX_BUFFER: i32 = 16 << 20;
const TX_BUFFER: i32 = 8 << 20;
/// How often the link and the kernel's drop count are looked at.
const CHECK_EVERY: Span = Span::from_ms(10);
/// How often a vanished interface is tried again.
const RETRY_EVERY: Span = Span::from_ms(250);
/// How long the kernel may refuse the first frame for lack of room before the frame is to blame.
const STUCK_AFTER: Span = Span::from_ms(10);
/// How long frames go one by one after the kernel refused several in one.
const JOIN_AGAIN_AFTER: Span = Span::from_ms(10);

/// Settings of an `af_packet` port.
#[derive(Clone, Debug)]
pub struct AfPacketConfig {
    /// Interface, in the network namespace of the thread that opens the port.
    pub device: String,
    /// Rate of the link, for quanta and wire time.
    pub rate: LinkRate,
    /// Longest frame without FCS, tags included.
    pub frame_len_max: usize,
    /// Most frames handed to the kernel in one call, 1..=64.
    pub tx_ring_frames: usize,
}

/// What there is while the interface is there.
struct Open {
    socket: OwnedFd,
    index: i32,
    _guard: HostGuard,
}

/// A super-frame that is being split.
#[derive(Clone, Copy)]
struct Splitting {
    /// Message whose scratch memory holds it, and where in that it starts.
    slot: usize,
    start: usize,
    len: usize,
    splitter: Splitter,
}

/// A port on a Linux interface.
pub struct AfPacket {
    caps: PortCaps,
    tx_ring_frames: usize,
    open: Option<Open>,
    watch: LinkWatch,
    rx: RxRing,
    tx: TxRing,
    /// What goes before the octets of each message.
    leads: Vec<Lead>,
    /// From when on frames of one TCP stream are handed over as one.
    join_at: Instant,
    joined_frames: u64,
    /// Where the posted chunks are: kept alive for as long as the kernel may write to them.
    pool: Option<Arc<Pool>>,
    /// Chunks that the next messages are received into.
    posted: [Option<Desc>; BURST],
    scratch: Vec<u8>,
    /// Messages of the last call that are still to be handed on: `next..had`.
    next: usize,
    had: usize,
    splitting: Option<Splitting>,
    counters: PortCounters,
    super_frames: u64,
    /// The kernel took no more; until the next `service`.
    blocked: bool,
    stuck: Stuck,
    check_at: Instant,
    retry_at: Instant,
    /// What rx or tx was refused, for `service` to report.
    fault: Option<(&'static str, i32)>,
}

/// Tells a frame that cannot be sent from a device that has no room: the kernel says ENOBUFS to both,
/// for example when the far end of a veth has a smaller MTU.
#[derive(Clone, Copy, Debug)]
struct Stuck {
    /// Since when the first frame has been refused.
    since: Option<Instant>,
    /// Frames of this length or more were refused for [`STUCK_AFTER`]; one that is sent clears it.
    len: usize,
}

impl Default for Stuck {
    fn default() -> Self {
        Self { since: None, len: usize::MAX }
    }
}

impl Stuck {
    /// The first frame was refused; true when it is to be given up.
    fn refused(&mut self, now: Instant, len: usize) -> bool {
        let since = *self.since.get_or_insert(now);
        if len < self.len && now.since(since) < STUCK_AFTER {
            return false;
        }
        *self = Self { since: None, len: len.min(self.len) };
        true
    }

    fn sent(&mut self, len: usize) {
        self.since = None;
        if len >= self.len {
            self.len = usize::MAX;
        }
    }
}

/// Joins the first of `frames`, at least two of one TCP stream, whose packets have at most `mtu` octets
/// and which are shorter than `len_max`; their payloads are put to `parts`.
fn join<'a>(
    bufs: &'a Bufs,
    frames: &'a [Desc],
    mtu: usize,
    len_max: usize,
    parts: &mut ArrayVec<&'a [u8], BURST>,
) -> Option<Joint<'a>> {
    let segment = |desc: &'a Desc| Segment::parse(bufs.bytes(desc), bufs.partial_csum(desc)?);
    let (first, rest) = frames.split_first()?;
    let next = rest.first().filter(|next| next.has(Flag::PartialCsum))?;
    let first = segment(first).filter(|s| s.packet_len() <= mtu && s.len() < len_max)?;
    let mut joint = Joint::new(first);
    let next = segment(next).filter(|next| joint.take(next))?;
    parts.extend([first.payload(), next.payload()]);
    for desc in rest.get(1..)? {
        let Some(next) = segment(desc).filter(|next| joint.take(next)) else { break };
        parts.push(next.payload());
    }
    Some(joint)
}

impl AfPacket {
    /// Opens a port on an interface that is there.
    ///
    /// # Errors
    /// A setting is out of range; the interface is missing, not Ethernet, already a port of another
    /// process; or a call was refused.
    pub fn open(config: &AfPacketConfig) -> Result<Self, PortOpenError> {
        let device = config.device.clone();
        let range = |what, had: usize, want, fits: bool| {
            let had = had as u64;
            let device = config.device.clone();
            if fits { Ok(()) } else { Err(PortOpenError::Config { device, what, had, want }) }
        };
        let (len, ring) = (config.frame_len_max, config.tx_ring_frames);
        range("frame_len_max", len, "64..=9216 octets", (64..=FRAME_LEN_MAX).contains(&len))?;
        range("tx_ring_frames", ring, "1..=64 frames", (1..=BURST).contains(&ring))?;
        let refused = |call, hint, source| PortOpenError::Call {
            device: config.device.clone(),
            call,
            hint,
            source,
        };
        let watch = LinkWatch::open(&device).map_err(|e| refused("follow the link", "", e))?;
        let state = watch.state();
        let index = state.index.ok_or_else(|| {
            refused("find the interface", "", io::Error::from_raw_os_error(libc::ENODEV))
        })?;
        if !state.ethernet {
            let source = io::Error::from_raw_os_error(libc::EPROTOTYPE);
            return Err(refused("use the interface", " (it is not Ethernet)", source));
        }
        let open = Self::open_device(&device, index).map_err(|(call, source)| {
            let hint = match source.raw_os_error() {
                Some(libc::EPERM) => " (it takes CAP_NET_RAW and CAP_NET_ADMIN)",
                Some(libc::EEXIST) => " (it is already a port of a running switch)",
                _ => "",
            };
            refused(call, hint, source)
        })?;
        Ok(Self {
            caps: PortCaps {
                kind: "af_packet",
                device,
                frame_len_max: config.frame_len_max,
                rate: config.rate,
                tx_partial_csum: true,
                virtual_time: false,
            },
            tx_ring_frames: config.tx_ring_frames,
            open: Some(open),
            watch,
            rx: RxRing::new(),
            tx: TxRing::new(),
            leads: vec![Lead::default(); BURST],
            join_at: Instant::ZERO,
            joined_frames: 0,
            pool: None,
            posted: [const { None }; BURST],
            scratch: vec![0; BURST * SCRATCH_LEN], // pages come as they are touched
            next: 0,
            had: 0,
            splitting: None,
            counters: PortCounters::default(),
            super_frames: 0,
            blocked: false,
            stuck: Stuck::default(),
            check_at: Instant::ZERO,
            retry_at: Instant::ZERO,
            fault: None,
        })
    }

    /// Keeps the host out and takes a socket that sees the interface's frames.
    fn open_device(device: &str, index: i32) -> Result<Open, (&'static str, io::Error)> {
        let at = |call| move |e: io::Error| (call, e);
        let guard = HostGuard::open(device).map_err(at("keep the host out (nftables netdev)"))?;
        // Protocol 0 until all is set: nothing is received before.
        let socket = sys::socket(libc::AF_PACKET, libc::SOCK_RAW, 0).map_err(at("open socket"))?;
        let fd = socket.as_fd();
        let options = [
            (libc::PACKET_VNET_HDR, 1, "set PACKET_VNET_HDR"),
            (libc::PACKET_AUXDATA, 1, "set PACKET_AUXDATA"),
            (libc::PACKET_IGNORE_OUTGOING, 1, "set PACKET_IGNORE_OUTGOING"),
            (libc::PACKET_QDISC_BYPASS, 1, "set PACKET_QDISC_BYPASS"),
        ];
        for (name, value, call) in options {
            sys::set_option(fd, libc::SOL_PACKET, name, value).map_err(at(call))?;
        }
        let buffers = [
            (libc::SO_RCVBUFFORCE, libc::SO_RCVBUF, RX_BUFFER),
            (libc::SO_SNDBUFFORCE, libc::SO_SNDBUF, TX_BUFFER),
        ];
        for (force, plain, len) in buffers {
            sys::set_option(fd, libc::SOL_SOCKET, force, len)
                .or_else(|_| sys::set_option(fd, libc::SOL_SOCKET, plain, len))
                .map_err(at("set socket buffers"))?;
        }
        sys::set_promiscuous(fd, index).map_err(at("set promiscuous"))?;
        sys::bind_packet(fd, index).map_err(at("bind to the interface"))?;
        Ok(Open { socket, index, _guard: guard })
    }

    /// Frames that went as part of the one before them so far.
    #[must_use]
    pub const fn joined_frames(&self) -> u64 {
        self.joined_frames
    }

    /// Super-frames that were split so far.
    #[must_use]
    pub const fn super_frames(&self) -> u64 {
        self.super_frames
    }

    fn error(&self, call: &'static str, source: io::Error) -> PortError {
        PortError { device: self.caps.device.clone(), call, source }
    }

    /// Remembers a refusal for `service`, which then looks at the link at once.
    fn fail(&mut self, call: &'static str, error: &io::Error) {
        let code = error.raw_os_error().unwrap_or(libc::EIO);
        if matches!(code, libc::ENETDOWN | libc::ENXIO | libc::ENODEV) {
            self.watch.suspect();
        }
        self.fault = Some((call, code));
    }

    // Receive -------------------------------------------------------------------------------

    /// Names the buffers of the first `count` messages; a message without a chunk goes to scratch.
    fn post(&mut self, bufs: &mut Bufs, count: usize) {
        let slots = self.posted.iter_mut().zip(self.scratch.chunks_exact_mut(SCRATCH_LEN));
        for (index, (posted, scratch)) in slots.enumerate().take(count) {
            if posted.is_some() {
                continue;
            }
            let room = bufs.room();
            let (first, overflow) = scratch.split_at_mut(SCRATCH_LEAD + room);
            let overflow = (overflow.as_mut_ptr(), overflow.len());
            *posted = bufs.alloc();
            let first = if let Some(desc) = posted
                && let Some((chunk, start)) = bufs.chunk_mut(desc)
            {
                chunk.get_mut(start - VNET_LEN..)
            } else {
                first.get_mut(SCRATCH_LEAD - VNET_LEN..)
            };
            let first = first.unwrap_or_default();
            self.rx.set(index, [(first.as_mut_ptr(), first.len()), overflow]);
        }
    }

    fn receive(&mut self, bufs: &mut Bufs, count: usize) {
        if self.open.is_none() {
            return;
        }
        let pool = self.pool.get_or_insert_with(|| bufs.pool().clone());
        assert!(Arc::ptr_eq(pool, bufs.pool()), "a port keeps to one pool");
        self.post(bufs, count);
        let Some(open) = &self.open else { return };
        // SAFETY: `post` named the buffers: chunks that only `posted` holds, in a pool that `pool`
        // keeps alive, and parts of `scratch`, which never moves.
        let got = unsafe { self.rx.receive(open.socket.as_fd(), count) };
        match got {
            Ok(had) => (self.next, self.had) = (0, had),
            Err(e) if matches!(e.raw_os_error(), Some(libc::EAGAIN | libc::EINTR)) => {}
            Err(e) => self.fail("receive", &e),
        }
    }

    /// Hands the received messages on, while there is room.
    fn deliver(&mut self, bufs: &mut Bufs, batch: &mut Batch) {
        while !batch.is_full() {
            if let Some(splitting) = self.splitting {
                self.deliver_parts(splitting, bufs, batch);
            } else if self.next < self.had {
                let slot = self.next;
                self.next += 1;
                self.deliver_message(slot, bufs, batch);
            } else {
                return;
            }
        }
    }

    fn deliver_message(&mut self, slot: usize, bufs: &mut Bufs, batch: &mut Batch) {
        let received = self.rx.received(slot);
        let Some(posted) = self.posted.get_mut(slot) else { return };
        let Some(scratch) = self.scratch.chunks_exact_mut(SCRATCH_LEN).nth(slot) else { return };
        let reason = match received.len.checked_sub(VNET_LEN) {
            None | Some(..14) => Some(DropReason::Malformed),
            Some(_) if received.cut => Some(DropReason::TooLong),
            Some(_) => None,
        };
        if let Some(reason) = reason {
            self.counters.rx_drop(reason); // its chunk stays posted
            return;
        }
        let (len, room) = (received.len - VNET_LEN, bufs.room());
        let mut octets = [0; VNET_LEN];
        let lead = SCRATCH_LEAD - VNET_LEN..SCRATCH_LEAD;
        let header = match posted {
            None => scratch.get(lead),
            Some(desc) => bufs.chunk_mut(desc).and_then(|(c, at)| c.get(at - VNET_LEN..at)),
        };
        octets.copy_from_slice(header.unwrap_or(&[0; VNET_LEN]));
        let header = VnetHeader::parse(octets, if received.tag.is_some() { 4 } else { 0 });
        let whole = len + if received.tag.is_some() { 4 } else { 0 };

        if header.gso_type == GSO_NONE {
            if whole > self.caps.frame_len_max || len > room {
                self.counters.rx_drop(DropReason::TooLong);
                return;
            }
            let frame = scratch.get(SCRATCH_LEAD..SCRATCH_LEAD + len).unwrap_or_default();
            let desc = posted.take().or_else(|| bufs.alloc_from(frame)); // one may be free by now
            let Some(mut desc) = desc else {
                self.counters.rx_drop(DropReason::Pool);
                return;
            };
            bufs.set_len(&mut desc, len);
            if let Some(tag) = received.tag
                && let Some((chunk, start)) = bufs.chunk_mut(&mut desc)
            {
                let start = put_tag(chunk, start, tag);
                bufs.set_bounds(&mut desc, start, whole);
            }
            bufs.set_partial_csum(&mut desc, header.partial);
            batch.push(desc);
            return;
        }
        // The part in the chunk goes before the rest; the chunk stays posted.
        if let Some(desc) = posted
            && let Some((chunk, start)) = bufs.chunk_mut(desc)
        {
            let head = len.min(room);
            let from = chunk.get(start..start + head).unwrap_or_default();
            if let Some(to) = scratch.get_mut(SCRATCH_LEAD..SCRATCH_LEAD + head) {
                to.copy_from_slice(from);
            }
        }
        let start = received.tag.map_or(SCRATCH_LEAD, |tag| put_tag(scratch, SCRATCH_LEAD, tag));
        let frame = scratch.get(start..start + whole).unwrap_or_default();
        let sum = header.partial.map(|p| p.start);
        match Splitter::new(frame, header.gso_type, header.gso_size, sum) {
            Ok(splitter) => {
                self.super_frames += 1;
                self.splitting = Some(Splitting { slot, start, len: whole, splitter });
            }
            Err(_) => self.counters.rx_drop(DropReason::BadGso),
        }
    }

    /// Hands the frames of a super-frame on; what finds no room waits for the next call.
    fn deliver_parts(&mut self, splitting: Splitting, bufs: &mut Bufs, batch: &mut Batch) {
        let Splitting { slot, start, len, mut splitter } = splitting;
        let scratch = self.scratch.chunks_exact(SCRATCH_LEN).nth(slot).unwrap_or_default();
        let frame = scratch.get(start..start + len).unwrap_or_default();
        while splitter.left() > 0 && !batch.is_full() {
            if splitter.next_len() > self.caps.frame_len_max.min(bufs.room()) {
                self.counters.rx_drop(DropReason::TooLong);
                splitter.skip();
                continue;
            }
            let Some(mut desc) = bufs.alloc() else {
                self.counters.rx_drop(DropReason::Pool);
                splitter.skip();
                continue;
            };
            let made = bufs.space_mut(&mut desc).and_then(|into| splitter.emit(frame, into));
            let Some((len, partial)) = made else {
                bufs.free(desc);
                self.counters.rx_drop(DropReason::BadGso);
                splitter.skip();
                continue;
            };
            bufs.set_len(&mut desc, len);
            bufs.set_partial_csum(&mut desc, Some(partial));
            batch.push(desc);
        }
        self.splitting = (splitter.left() > 0).then_some(Splitting { splitter, ..splitting });
    }

    // Transmit ------------------------------------------------------------------------------

    /// Hands the first of `frames` to the kernel; returns how many it took.
    fn hand_over(&mut self, now: Instant, bufs: &Bufs, frames: &[Desc]) -> io::Result<usize> {
        let Some(open) = &self.open else { return Ok(0) };
        let len_max = if self.join_at <= now { self.watch.state().mtu } else { 0 };
        let mut parts = ArrayVec::<&[u8], BURST>::new();
        let mut leads = self.leads.iter_mut();
        let mut rest = frames;
        while let (Some(desc), Some(lead)) = (rest.first(), leads.next()) {
            let from = parts.len();
            if let Some(joint) = join(bufs, rest, len_max, self.stuck.len, &mut parts)
                && lead.set_many(&joint, parts.len() - from)
            {
                rest = rest.get(lead.frames..).unwrap_or_default();
                continue;
            }
            parts.truncate(from);
            let fits =
                |p: &PartialCsum| usize::from(p.start) + usize::from(p.offset) + 2 <= desc.len();
            lead.set_one(bufs.partial_csum(desc).filter(fits));
            // What follows a short frame is zero up to 64 octets, so this is its padding.
            parts.push(match bufs.head(desc).get(..TX_LEN_MIN) {
                Some(padded) if desc.len() < TX_LEN_MIN => padded,
                _ => bufs.bytes(desc),
            });
            rest = rest.get(1..).unwrap_or_default();
        }
        let mut outgoing = ArrayVec::<_, BURST>::new();
        let mut at = 0;
        for lead in &self.leads {
            let own = parts.get(at..at + lead.frames).unwrap_or_default();
            if own.is_empty() || at >= parts.len() {
                break;
            }
            outgoing.push(Outgoing { lead: lead.octets(), parts: own });
            at += lead.frames;
        }
        let sent = self.tx.transmit(open.socket.as_fd(), &outgoing)?;
        let taken = self.leads.iter().take(sent).map(|lead| lead.frames).sum::<usize>();
        self.joined_frames += (taken - sent) as u64;
        Ok(taken)
    }

    // Link ----------------------------------------------------------------------------------

    /// Follows the interface: takes a socket for it when it is back, lets go when it is gone.
    fn follow(&mut self, now: Instant) -> Result<(), PortError> {
        let state = self.watch.poll().map_err(|e| self.error("follow the link", e))?;
        if let Some(open) = &self.open
            && state.index != Some(open.index)
        {
            self.open = None; // and with it the guard
            self.retry_at = now;
            let gone = io::Error::from_raw_os_error(libc::ENODEV);
            return Err(self.error("interface is gone", gone));
        }
        if let (None, Some(index)) = (&self.open, state.index)
            && state.ethernet
            && self.retry_at <= now
        {
            self.retry_at = now + RETRY_EVERY;
            let open = Self::open_device(&self.caps.device, index);
            self.open = Some(open.map_err(|(call, e)| self.error(call, e))?);
            self.blocked = false;
        }
        Ok(())
    }

    fn count_kernel_drops(&mut self) {
        if let Some(open) = &self.open
            && let Ok(drops) = sys::packet_drops(open.socket.as_fd())
        {
            self.counters.kernel_rx += u64::from(drops);
        }
    }
}

impl Port for AfPacket {
    fn caps(&self) -> &PortCaps {
        &self.caps
    }

    fn rx(&mut self, _now: Instant, bufs: &mut Bufs, batch: &mut Batch) -> usize {
        let before = batch.len();
        self.deliver(bufs, batch);
        if !batch.is_full() {
            self.receive(bufs, batch.remaining_capacity());
            self.deliver(bufs, batch);
        }
        batch.len() - before
    }

    fn tx_room(&mut self, _now: Instant) -> usize {
        if self.blocked || !self.link_up() { 0 } else { self.tx_ring_frames }
    }

    fn tx(&mut self, now: Instant, bufs: &mut Bufs, batch: &mut Batch) -> usize {
        let count = batch.len().min(self.tx_room(now));
        if count == 0 {
            return 0;
        }
        let mut taken = 0;
        let mut fault = None;
        while let Some(frames) = batch.get(taken..count)
            && let Some(first) = frames.first()
        {
            match self.hand_over(now, bufs, frames) {
                Ok(0) => break, // the interface is gone
                Ok(sent) => {
                    let longest =
                        frames.iter().take(sent).map(|desc| desc.len().max(TX_LEN_MIN)).max();
                    self.stuck.sent(longest.unwrap_or(0));
                    taken += sent;
                }
                Err(e) => match e.raw_os_error() {
                    Some(libc::EINTR) => {}
                    Some(libc::ENETDOWN | libc::ENXIO | libc::ENODEV) => {
                        fault = Some(e);
                        break;
                    }
                    Some(libc::EAGAIN) => {
                        self.blocked = true;
                        break;
                    }
                    // A device that does not segment, or has no room for so much: one by one then.
                    _ if self.leads.first().is_some_and(|lead| lead.frames > 1) => {
                        self.join_at = now + JOIN_AGAIN_AFTER;
                    }
                    Some(libc::ENOBUFS) if self.stuck.refused(now, first.len().max(TX_LEN_MIN)) => {
                        self.counters.tx_failed += 1;
                        taken += 1;
                    }
                    Some(libc::ENOBUFS) => {
                        self.blocked = true;
                        break;
                    }
                    _ => {
                        // Of this frame only: longer than the device's MTU, say.
                        self.counters.tx_failed += 1;
                        taken += 1;
                    }
                },
            }
        }
        if let Some(e) = fault {
            self.fail("send", &e);
        }
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
            self.watch.ask().map_err(|e| self.error("follow the link", e))?;
        }
        self.follow(now)?;
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

    /// Another one after the interface was gone: ask again before each wait.
    fn wait_fd(&self) -> Option<std::os::fd::BorrowedFd<'_>> {
        self.open.as_ref().map(|open| std::os::fd::AsFd::as_fd(&open.socket))
    }

    fn release(&mut self, bufs: &mut Bufs) {
        self.count_kernel_drops();
        self.open = None;
        (self.next, self.had, self.splitting) = (0, 0, None);
        for desc in self.posted.iter_mut().filter_map(Option::take) {
            bufs.free(desc);
        }
        self.pool = None;
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_frame_that_is_never_taken_is_given_up_and_its_like_at_once() {
        #[rustfmt::skip] // columns: name, at ms, length, refused (else sent), given up
        let steps = [
            ("no room yet",           0, 1_000, true,  false),
            ("still none",            9, 1_000, true,  false),
            ("room",                  9, 1_000, false, false),
            ("none again",           12, 1_000, true,  false),
            ("just before",          21, 1_000, true,  false),
            ("too long",             22, 1_000, true,  true),
            ("as long",              22, 1_000, true,  true),
            ("shorter may wait",     22,   999, true,  false),
            ("shorter is sent",      23,   999, false, false),
            ("longer",               23, 1_500, true,  true),
            ("a longer one is sent", 24, 1_500, false, false),
            ("so all may wait",      24, 1_500, true,  false),
        ];
        let mut stuck = Stuck::default();
        for (name, ms, len, refused, want) in steps {
            let now = Instant::ZERO + Span::from_ms(ms);
            if refused {
                assert_eq!(stuck.refused(now, len), want, "{name}");
            } else {
                stuck.sent(len);
            }
        }
    }

    #[test]
    fn settings_out_of_range_are_refused_before_anything_is_tried() {
        #[rustfmt::skip] // columns: frame_len_max, tx_ring_frames, part of the message
        let cases = [
            (63,    32, "frame_len_max is 63"),
            (9_217, 32, "frame_len_max is 9217"),
            (1_518, 0,  "tx_ring_frames is 0"),
            (1_518, 65, "tx_ring_frames is 65"),
            (1_518, 32, "find the interface"),
        ];
        for (frame_len_max, tx_ring_frames, want) in cases {
            let config = AfPacketConfig {
                device: "no-such-if0".to_owned(),
                rate: LinkRate::gbps(1),
                frame_len_max,
                tx_ring_frames,
            };
            let error = AfPacket::open(&config).err().map(|e| e.to_string()).unwrap_or_default();
            assert!(error.contains(want), "{error}");
        }
    }
}
