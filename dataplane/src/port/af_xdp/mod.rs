//! Port on a Linux interface by `AF_XDP` sockets: frames come into the pool and leave from it, without
//! a copy of ours, and without the host's stack.
//!
//! Shape: an XDP program ([`Steering`]) hands every frame to the socket of its queue; chunks are lent to
//! the kernel by fill and transmit rings and come back by receive and completion rings.
//! Units: bytes, frames.
//! Source: Linux `Documentation/networking/af_xdp.rst`; ARCHITECTURE.md "The path of a frame"; docs/spec/pipeline.md §11.
//! Linux 5.10 or later, 6.8 for VLAN tags in metadata and for partial checksums that the kernel completes; `CAP_BPF`,
//! `CAP_NET_ADMIN`, `CAP_NET_RAW` and `CAP_IPC_LOCK`.

mod bpf;
mod btf;
mod device;
mod in_flight;
mod loss;
mod marks;
mod queue;
mod rings;
mod steering;
mod sys;
mod transmit;
mod umem;

use std::io;
use std::os::fd::AsFd;
use std::sync::Arc;
use std::thread::JoinHandle;

use weft_base::threads::{self, Ends, Role};
use weft_parsers::partial;

pub use self::bpf::{Link, Program};
use self::device::{Device, Hold, Sockets, Wish};
use self::in_flight::InFlightChunks;
use self::loss::Losses;
use self::marks::Marks;
pub use self::steering::{
    Attach, BUCKETS, Builtin, NUMBER_LEN, Number, Steering, TAG_NOTE_LEN, TagNote, Target,
};
use self::umem::CopyMode;
pub use self::umem::Umem;
use super::link::LinkWatch;
use super::tag::put_tag;
use super::{FastPath, Port, PortCaps, PortCounters, PortError, PortOpenError, netdev};
use crate::batch::{BURST, Batch};
use crate::desc::Desc;
use crate::pool::{Bufs, UMEM_LEAD};
use crate::stats::DropReason;
use crate::time::{Instant, LinkRate, Span};
use crate::types::PriSet;

/// How often link, program and losses are looked at.
const CHECK_EVERY: Span = Span::from_ms(10);
/// How often a vanished interface, or a program that cannot be attached, is tried again.
const RETRY_EVERY: Span = Span::from_ms(250);
/// Where in a chunk a frame can start at most.
const START_MAX: usize = 510;
/// An address in a ring: where the chunk starts, and above these bits how far behind it the frame does.
const ADDRESS_BITS: u32 = 48;

/// Where the program is to run.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum AttachTo {
    /// In the driver.
    Native,
    /// Before the host's stack.
    Generic,
    /// In the driver if it can, else before the host's stack.
    Any,
}

/// Settings of an `af_xdp` port.
#[derive(Clone, Debug)]
pub struct AfXdpConfig {
    /// Interface, in the network namespace of the thread that opens the port.
    pub device: String,
    /// Rate of the link, for quanta and wire time.
    pub rate: LinkRate,
    /// Longest frame without FCS, tags included.
    pub frame_len_max: usize,
    /// Most frames handed to the kernel and not yet sent, 1..=64.
    pub tx_ring_frames: usize,
    /// Frames that may wait in the kernel for each queue, 64..=65536.
    pub rx_ring_frames: usize,
    /// Queues that are received from; all that the interface has if not given.
    pub queues: Option<usize>,
    /// Where the program is to run.
    pub attach: AttachTo,
    /// Whether frames are not to be copied, where the driver can do that and the pool has huge pages.
    pub zero_copy: bool,
    /// Microseconds that a call drives the queue for, instead of interrupts; 0 for interrupts.
    pub busy_poll_us: u32,
    /// UDP ports whose checksum is a fixed value, never a partial one; 0 for none.
    pub fixed_udp_ports: [u16; 2],
}

impl AfXdpConfig {
    /// Chunks that a port of these settings lends to the kernel at most.
    #[must_use]
    pub fn chunks(&self) -> usize {
        let queues = self.queues.unwrap_or_else(|| netdev::rx_queues(&self.device));
        queues * self.rx_ring_frames + self.tx_ring_frames
    }
}

/// A port on a Linux interface.
pub struct AfXdp {
    caps: PortCaps,
    config: AfXdpConfig,
    steering: Box<dyn Steering>,
    device: Option<Device>,
    /// Closes the sockets of an interface that was taken down.
    closing: Option<JoinHandle<()>>,
    /// The interface while it has no sockets.
    hold: Option<Hold>,
    // After the device: the pool's memory outlives its sockets.
    umem: Arc<Umem>,
    watch: LinkWatch,
    /// Whether the program is where it belongs.
    steered: bool,
    /// Bytes before a frame at which its tag is noted.
    tag_note: Option<usize>,
    /// The program numbers frames.
    numbered: bool,
    /// What is known of them, if it may.
    marks: Option<Marks>,
    /// Frames of them that were lost on the way to us, and are counted here.
    missed: u64,
    /// The program drops frames so that the queues come to rest.
    draining: bool,
    /// Priorities that may pass the pipeline by.
    gate: PriSet,
    /// Chunks in fill and receive rings.
    posted: InFlightChunks,
    /// Chunks in the transmit ring or on their way, and those of them that other frames share.
    sent: InFlightChunks,
    shared: InFlightChunks,
    /// The queue that is received from first.
    turn: usize,
    /// Where a frame is put together that has to move to another chunk.
    spare: Box<[u8]>,
    counters: PortCounters,
    losses: Losses,
    system_calls: u64,
    check_at: Instant,
    retry_at: Instant,
    /// What the kernel refused, for `service` to report.
    fault: Option<(&'static str, i32)>,
}

impl AfXdp {
    /// Opens a port on an interface that is there; `umem` is that of the pool that all ports use.
    ///
    /// # Errors
    /// A setting is out of range; a frame can be longer than a chunk holds; the interface is missing,
    /// not Ethernet, already a port, or has a program of somebody else's; its driver has no XDP; or a
    /// call was refused.
    pub fn open(
        config: &AfXdpConfig,
        umem: &Arc<Umem>,
        steering: Box<dyn Steering>,
    ) -> Result<Self, PortOpenError> {
        check(config, umem)?;
        let device = config.device.clone();
        let refused = |call, hint, source| PortOpenError::Call {
            device: config.device.clone(),
            call,
            hint,
            source,
        };
        let code = io::Error::from_raw_os_error;
        let watch = LinkWatch::open(&device).map_err(|e| refused("follow the link", "", e))?;
        let state = watch.state();
        let index =
            state.index.ok_or_else(|| refused("find the interface", "", code(libc::ENODEV)))?;
        if !state.ethernet {
            let hint = " (it is not Ethernet)";
            return Err(refused("use the interface", hint, code(libc::EPROTOTYPE)));
        }
        let chunks = umem.pool().count();
        let marks = steering.has_fast_path().then(|| Marks::new(64));
        let mut port = Self {
            caps: PortCaps {
                kind: "af_xdp",
                device,
                frame_len_max: config.frame_len_max,
                rate: config.rate,
                tx_partial_csum: true,
                virtual_time: false,
            },
            config: config.clone(),
            umem: umem.clone(),
            steering,
            device: None,
            closing: None,
            hold: None,
            watch,
            steered: false,
            tag_note: None,
            numbered: false,
            marks,
            missed: 0,
            draining: false,
            gate: PriSet::EMPTY,
            posted: InFlightChunks::new(chunks),
            sent: InFlightChunks::new(chunks),
            shared: InFlightChunks::new(chunks),
            turn: 0,
            spare: vec![0; umem.pool().chunk_size()].into(),
            counters: PortCounters::default(),
            losses: Losses::new(&config.device),
            system_calls: 0,
            check_at: Instant::ZERO,
            retry_at: Instant::ZERO,
            fault: None,
        };
        port.attach(index).map_err(|(call, source)| {
            let hint = device::hint(call, &source);
            refused(call, hint, source)
        })?;
        Ok(port)
    }

    /// Whether VLAN tags that a device took out of the data are seen: the program notes them, or the
    /// device leaves them in.
    #[must_use]
    pub fn reads_tags(&self) -> bool {
        self.tag_note.is_some() || netdev::leaves_tags(&self.config.device)
    }

    /// How frames come and go, in a few words: native or generic, copied or not, queues.
    #[must_use]
    pub fn describe(&self) -> String {
        self.device.as_ref().map_or_else(|| "no interface".to_owned(), Device::describe)
    }

    /// Calls of the kernel so far.
    #[must_use]
    pub const fn system_calls(&self) -> u64 {
        self.system_calls
    }

    fn error(&self, call: &'static str, source: io::Error) -> PortError {
        PortError { device: self.caps.device.clone(), call, source }
    }

    /// Takes the interface, if it is not ours already, and opens its sockets.
    fn attach(&mut self, index: i32) -> Result<(), device::Refused> {
        let wish = Wish { config: &self.config, umem: &self.umem, index };
        let steering = self.steering.as_mut();
        let (hold, was_held) = match self.hold.take() {
            Some(hold) => (hold, true),
            None => (Hold::take(&wish, steering)?, false),
        };
        let opened = Device::open(&wish, hold).and_then(|device| {
            // A program that numbers frames counts itself what no socket took; a veth counts among its own
            // drops what could not be sent on, too, which that program's owner counts.
            let numbers = steering.numbers();
            let by_interface = !(numbers && netdev::is_veth(&self.config.device));
            self.losses.begin(was_held && !numbers, by_interface); // sockets count for themselves what they lose from now on
            match device.set_sockets(steering) {
                Ok(()) => Ok(device),
                Err(refused) => Err((refused, device.part().1)),
            }
        });
        match opened {
            Ok(device) => self.device = Some(device),
            Err((refused, hold)) => {
                self.hold = Some(hold).filter(|_| was_held);
                if !was_held {
                    self.steering.detach();
                }
                return Err(refused);
            }
        }
        self.steered();
        Ok(())
    }

    /// The program is where it belongs.
    fn steered(&mut self) {
        self.steered = true;
        (self.tag_note, self.numbered) = (self.steering.tag_note(), self.steering.numbers());
        self.steering.set_gate(self.gate);
    }

    /// Lets go of the interface, and takes back what the kernel had of the pool.
    fn let_go(&mut self, bufs: &mut Bufs) {
        self.steering.set_gate(PriSet::EMPTY);
        drop(self.close());
        self.reclaim(bufs);
        self.steering.detach();
        self.hold = None;
    }

    /// Parts with the sockets, which are still to be dropped: what comes in is lost from now on.
    fn close(&mut self) -> Option<Sockets> {
        self.count_losses();
        self.steered = false;
        let mut device = self.device.take()?;
        // What the kernel has not looked at is not sent any more.
        self.counters.tx_failed += u64::from(device.unsent());
        let unread: u32 = device.queues.iter_mut().map(|queue| queue.rx.ready()).sum();
        self.losses.end(unread.into());
        self.counters.kernel_rx = self.losses.total().saturating_sub(self.missed);
        let (sockets, hold) = device.part();
        self.hold = Some(hold);
        Some(sockets)
    }

    /// Takes back what the kernel had of the pool, once the sockets are closed.
    fn reclaim(&mut self, bufs: &mut Bufs) {
        if let Some(closing) = self.closing.take() {
            drop(closing.join()); // it has no result
        }
        while let Some(chunk) = self.posted.take_any() {
            bufs.free(Desc::new(chunk, UMEM_LEAD));
        }
        while let Some(chunk) = self.sent.take_any() {
            self.end_sent(bufs, chunk);
        }
    }

    /// Forgets what the kernel has not sent of an interface that was taken down: it would leave when
    /// that is up again, behind frames of the same flows that have gone another way meanwhile.
    fn forget(&mut self) {
        let sockets = self.close();
        // The kernel takes 10 ms to close one, in which other ports are to be served.
        let close = move || drop(sockets);
        let closing = threads::spawn(Role::Device, "weft-close", Ends::Freely, close);
        self.closing = closing.ok(); // else they are closed by now
    }

    fn count_losses(&mut self) {
        if let Some(device) = &self.device {
            self.system_calls += device.queues.len() as u64;
            let lost = device.queues.iter().map(queue::Queue::lost).sum();
            let is_losing = self.losses.of_sockets(lost) > 0 && self.marks.is_some();
            if is_losing != self.draining {
                self.drain(is_losing);
            }
        }
        self.counters.kernel_rx = self.losses.total().saturating_sub(self.missed);
    }

    /// Has the program bring the queues to rest, or take all frames again.
    fn drain(&mut self, on: bool) {
        let queues = self.device.as_ref().map_or(0, |device| device.queues.len());
        self.steering.set_drain(u32::try_from(queues).unwrap_or(0), on);
        self.draining = on;
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

    /// The frame of a receive ring's entry; `None` when it was dropped.
    #[inline]
    fn received(&mut self, bufs: &mut Bufs, queue: usize, entry: libc::xdp_desc) -> Option<Desc> {
        let chunk_size = self.umem.pool().chunk_size() as u64;
        let base = entry.addr & ((1 << ADDRESS_BITS) - 1);
        let chunk = u32::try_from(base / chunk_size).unwrap_or(u32::MAX);
        if !self.posted.take(chunk) {
            debug_assert!(false, "the kernel gave chunk {chunk}, which it did not have");
            return None;
        }
        let start = usize::try_from(base % chunk_size + (entry.addr >> ADDRESS_BITS));
        let (start, len) = (start.unwrap_or(usize::MAX), entry.len as usize);
        let mut desc = Desc::new(chunk, UMEM_LEAD);
        let fits = start <= START_MAX
            && start.is_multiple_of(2)
            && start >= UMEM_LEAD
            && start + len <= self.umem.pool().chunk_size();
        if !fits || len < 14 {
            return self.dropped(bufs, desc, DropReason::Malformed);
        }
        desc.set_start(start);
        bufs.set_len(&mut desc, len);
        if self.numbered
            && let Some(marks) = &mut self.marks
            && let Some((chunk, start)) = bufs.chunk_mut(&mut desc)
            && let Some(number) = start.checked_sub(NUMBER_LEN + TAG_NOTE_LEN)
            && let Some(bytes) = chunk.get(number..).and_then(<[u8]>::first_chunk)
            && let Some(number) = Number::parse(*bytes)
        {
            let missed = marks.note(queue, number);
            if missed > 0 {
                self.missed += missed;
                self.counters.rx_drops(DropReason::XskRing, missed);
            }
        }
        let tag = self.tag_note.and_then(|lead| {
            let (chunk, start) = bufs.chunk_mut(&mut desc)?;
            TagNote::parse(*chunk.get(start.checked_sub(lead)?..)?.first_chunk()?)
        });
        let whole = len + if tag.is_some() { 4 } else { 0 };
        if whole > self.caps.frame_len_max {
            return self.dropped(bufs, desc, DropReason::TooLong);
        }
        if let Some(tag) = tag
            && let Some((chunk, start)) = bufs.chunk_mut(&mut desc)
        {
            let start = put_tag(chunk, start, (tag.tpid, tag.tci));
            bufs.set_bounds(&mut desc, start, whole);
        }
        let partial = partial::find(bufs.bytes(&desc), &self.config.fixed_udp_ports);
        bufs.set_partial_csum(&mut desc, partial);
        Some(desc)
    }

    #[cold]
    fn dropped(&mut self, bufs: &mut Bufs, desc: Desc, reason: DropReason) -> Option<Desc> {
        self.counters.rx_drop(reason);
        bufs.free(desc);
        None
    }

    /// Lends the kernel as many chunks to receive into as it may have and the pool gives.
    fn refill(&mut self, bufs: &mut Bufs) {
        let Some(device) = &mut self.device else { return };
        let chunk_size = self.umem.pool().chunk_size() as u64;
        let mut torn = arrayvec::ArrayVec::<Desc, BURST>::new();
        for queue in &mut device.queues {
            let room = (queue.posted_max - queue.posted).min(queue.fill.free());
            let mut count = 0;
            while count < room {
                let Some(desc) = bufs.alloc() else { break };
                if queue.member.mode == CopyMode::Zero && self.umem.is_torn(desc.chunk()) {
                    if let Err(full) = torn.try_push(desc) {
                        bufs.free(full.element());
                        break;
                    }
                    continue;
                }
                let chunk = desc.chunk();
                let new = self.posted.insert(chunk);
                debug_assert!(new, "a free chunk is not lent");
                queue.fill.push(u64::from(chunk) * chunk_size);
                count += 1;
            }
            if count > 0 {
                queue.posted += count;
                queue.fill.publish();
                if queue.fill.needs_wakeup() {
                    self.system_calls += 1;
                    drop(sys::kick_rx(queue.socket.as_fd())); // the driver looks again by itself
                }
            }
        }
        for desc in torn {
            bufs.free(desc);
        }
    }

    /// Has the kernel drive the queues, where it does so only when it is called.
    fn poll_busily(&mut self) {
        if self.config.busy_poll_us == 0 {
            return;
        }
        let Some(device) = &self.device else { return };
        for queue in &device.queues {
            self.system_calls += 1;
            drop(sys::kick_rx(queue.socket.as_fd())); // what is wrong shows at the next check
        }
    }

    // Link ----------------------------------------------------------------------------------

    /// Follows interface and program: takes them again when they are back, lets go when they are gone.
    fn follow(&mut self, now: Instant, bufs: &mut Bufs) -> Result<(), PortError> {
        self.system_calls += 2;
        let state = self.watch.poll().map_err(|e| self.error("follow the link", e))?;
        let code = io::Error::from_raw_os_error;
        let held = self.device.as_ref().map(|device| &device.hold).or(self.hold.as_ref());
        let index = held.map(|hold| hold.index);
        if index.is_some() && state.index != index {
            self.let_go(bufs);
            self.retry_at = now;
            return Err(self.error("interface is gone", code(libc::ENODEV)));
        }
        if !state.up && self.device.as_ref().is_some_and(|device| device.unsent() > 0) {
            self.forget();
        }
        if self.device.is_none() && self.hold.is_some() {
            if self.closing.as_ref().is_some_and(|closing| !closing.is_finished()) {
                return Ok(());
            }
            self.reclaim(bufs);
        }
        if self.device.is_none()
            && let Some(index) = state.index
            && state.ethernet
            && self.retry_at <= now
        {
            self.retry_at = now + RETRY_EVERY;
            match self.attach(index) {
                Err((_, e)) if self.hold.is_some() && e.raw_os_error() == Some(libc::EBUSY) => {
                    self.retry_at = now + CHECK_EVERY; // not yet
                }
                attached => attached.map_err(|(call, e)| self.error(call, e))?,
            }
            self.refill(bufs);
        }
        if let Some(device) = &self.device
            && !(self.steered && self.steering.is_attached())
            && (self.steered || self.retry_at <= now)
        {
            let was_steered = core::mem::replace(&mut self.steered, false);
            self.retry_at = now + RETRY_EVERY;
            let steered = device.steer(self.steering.as_mut());
            steered.map_err(|(call, e)| self.error(call, e))?;
            self.steered();
            if was_steered {
                return Err(
                    self.error("the XDP program was removed; it is back", code(libc::EIDRM))
                );
            }
        }
        Ok(())
    }
}

impl Port for AfXdp {
    fn caps(&self) -> &PortCaps {
        &self.caps
    }

    fn rx(&mut self, _now: Instant, bufs: &mut Bufs, batch: &mut Batch) -> usize {
        let before = batch.len();
        let queues = self.device.as_ref().map_or(0, |device| device.queues.len());
        for n in 0..queues {
            let at = (self.turn + n) % queues;
            let mut count = 0;
            // Taken out and put back by parts: `received` needs the rest of the port.
            while !batch.is_full() {
                let Some(queue) = self.device.as_mut().and_then(|d| d.queues.get_mut(at)) else {
                    break;
                };
                if count == 0 && queue.rx.ready() == 0 {
                    break;
                }
                let Some(entry) = queue.rx.pop() else { break };
                count += 1;
                if let Some(desc) = self.received(bufs, at, entry) {
                    batch.push(desc);
                }
            }
            if count > 0
                && let Some(queue) = self.device.as_mut().and_then(|d| d.queues.get_mut(at))
            {
                queue.rx.release();
                queue.posted -= count;
            }
        }
        self.turn = if self.turn + 1 < queues { self.turn + 1 } else { 0 };
        batch.len() - before
    }

    fn tx_room(&mut self, _now: Instant) -> usize {
        if !self.link_up() {
            return 0;
        }
        let Some(device) = &mut self.device else { return 0 };
        let completed = device.sender().completed.ready() as usize;
        let under_way = self.sent.count().saturating_sub(completed);
        self.config.tx_ring_frames.saturating_sub(under_way)
    }

    fn tx(&mut self, now: Instant, bufs: &mut Bufs, batch: &mut Batch) -> usize {
        self.reap(bufs);
        let count = batch.len().min(self.tx_room(now));
        let mut taken = 0;
        while taken < count && self.prepare(bufs, batch, taken) {
            let Some(desc) = batch.get_mut(taken) else { break };
            if !self.push(bufs, desc) {
                break;
            }
            taken += 1;
        }
        if taken > 0
            && let Some(device) = &mut self.device
            && let Some(ring) = &device.sender().tx
        {
            ring.publish();
        }
        drop(batch.drain(..taken)); // they are lent: `sent` has them
        taken
    }

    fn service(&mut self, now: Instant, bufs: &mut Bufs) -> Result<(), PortError> {
        self.kick();
        self.reap(bufs);
        self.refill(bufs);
        self.poll_busily();
        let fault = self.fault.take();
        if fault.is_none() && now < self.check_at {
            return Ok(());
        }
        self.check_at = now + CHECK_EVERY;
        self.losses.ask(now);
        self.count_losses();
        if fault.is_some() {
            self.watch.ask().map_err(|e| self.error("follow the link", e))?;
        }
        self.follow(now, bufs)?;
        match fault {
            Some((call, code)) => Err(self.error(call, io::Error::from_raw_os_error(code))),
            None => Ok(()),
        }
    }

    fn link_up(&self) -> bool {
        self.device.is_some() && self.steered && self.watch.state().up
    }

    fn counters(&self) -> PortCounters {
        self.counters
    }

    fn fast_path(&mut self) -> Option<&mut dyn FastPath> {
        if self.marks.is_some() { Some(self) } else { None }
    }

    /// Another one after the interface was gone: ask again before each wait.
    fn wait_fd(&self) -> Option<std::os::fd::BorrowedFd<'_>> {
        self.device.as_ref().map(Device::wait_fd)
    }

    fn release(&mut self, bufs: &mut Bufs) {
        self.kick();
        self.reap(bufs);
        self.let_go(bufs);
    }
}

impl FastPath for AfXdp {
    fn set_gate(&mut self, pris: PriSet) {
        self.gate = pris;
        self.steering.set_gate(pris);
    }

    fn sending(&self) -> usize {
        self.sent.count()
    }

    fn mark(&mut self) {
        if let Some(marks) = &mut self.marks {
            marks.mark();
        }
    }

    fn drained(&mut self) {
        let Some(marks) = &mut self.marks else { return };
        let mut at_rest = true;
        marks.settle(|queue, number| at_rest &= self.steering.set_done(queue, number));
        if self.draining && at_rest {
            let queues = self.device.iter_mut().flat_map(|device| &mut device.queues);
            let waiting: u32 = queues.map(|queue| queue.rx.ready()).sum();
            if waiting == 0 {
                self.drain(false);
            }
        }
    }
}

/// Refuses settings that are out of range, and frames that no chunk holds.
fn check(config: &AfXdpConfig, umem: &Umem) -> Result<(), PortOpenError> {
    let range = |what, had: usize, want, fits: bool| {
        let had = had as u64;
        let device = config.device.clone();
        if fits { Ok(()) } else { Err(PortOpenError::Config { device, what, had, want }) }
    };
    let (len, tx, rx) = (config.frame_len_max, config.tx_ring_frames, config.rx_ring_frames);
    range("tx_ring_frames", tx, "1..=64 frames", (1..=BURST).contains(&tx))?;
    range("rx_ring_frames", rx, "64..=65536 frames", (64..=65_536).contains(&rx))?;
    let queues = config.queues.unwrap_or(1);
    range("queues", queues, "1..=64", (1..=64).contains(&queues))?;
    let chunk = umem.pool().chunk_size();
    let room = umem.frame_len_max();
    range(
        "pool chunk",
        chunk,
        "2048..=4096 bytes for AF_XDP: switch.max_frame is 3772 at most then",
        room.is_some(),
    )?;
    let want = "at least 64 bytes, and no more than a chunk of the pool holds: 3772 at most";
    range("max_frame", len, want, len >= 64 && room.is_some_and(|room| len <= room))
}

#[cfg(test)]
mod tests;
