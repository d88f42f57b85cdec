//! Port on a Linux interface by `AF_XDP` sockets: the kernel receives into the pool and sends from it, without a copy
//! by the port and without the host's stack.
//!
//! An XDP program ([`Steering`]) hands every frame to the socket of its queue. Chunks are lent to the kernel by fill
//! and transmit rings and come back by receive and completion rings.
//!
//! Source: Linux `Documentation/networking/af_xdp.rst`; ARCHITECTURE.md "The path of a frame"; docs/spec/pipeline.md
//! §11. Linux 5.10 or later, 6.8 for VLAN tags in metadata and for partial checksums that the kernel completes;
//! `CAP_BPF`, `CAP_NET_ADMIN`, `CAP_NET_RAW` and `CAP_IPC_LOCK`.

mod btf;
mod config;
mod device;
mod in_flight;
mod interface;
mod joined;
mod loss;
mod marks;
mod queue;
mod receive;
mod rings;
mod steering;
mod sys;
mod transmit;
mod umem;

use std::io;
use std::sync::Arc;
use std::thread::JoinHandle;

use weft_base::threads;

use self::config::check;
pub use self::config::{AfXdpConfig, AttachTo};
use self::device::{Device, Hold};
use self::joined::{Done, Joined};
use self::loss::Losses;
use self::marks::Marks;
use self::receive::Receive;
pub use self::steering::{
    Attach, BUCKETS, Builtin, LeftChecksum, NOTE_LEN, NUMBER_LEN, Note, Number, Sees, Steering,
    Target, note,
};
use self::transmit::Transmit;
pub use self::umem::Umem;
pub use super::bpf::{Link, Program};
use super::gauge::RxGauge;
use super::link::LinkWatch;
use super::{FastPath, Port, PortCaps, PortCounters, PortError, PortOpenError, netdev};
use crate::batch::Batch;
use crate::pool::Bufs;
use crate::time::{Instant, Span};
use crate::types::PriSet;

/// Interval between looks at link, program and losses.
const CHECK_EVERY: Span = Span::from_ms(10);
/// Interval between attempts to open an interface that was deleted, or to attach a program.
const RETRY_EVERY: Span = Span::from_ms(250);
/// In an address of a ring, the lower 48 bits are the start of the chunk, and those above the frame's offset from it
/// (unaligned chunk mode).
const ADDRESS_BITS: u32 = 48;

/// Counters of a port.
struct Counts {
    frames: PortCounters,
    losses: Losses,
    /// Numbered frames that were lost between program and port. `frames` counts them as drops, so they come off
    /// `kernel_rx`.
    missed: u64,
    /// Frames that the device threw away since the kernel last moved its index of the transmit ring. `frames` counts
    /// them already, although in the ring they still seem to wait.
    unpublished: u32,
    system_calls: u64,
}

/// A port on a Linux interface by `AF_XDP` sockets.
pub struct AfXdp {
    caps: PortCaps,
    config: AfXdpConfig,
    steering: Box<dyn Steering>,
    device: Option<Device>,
    /// The thread that closes the sockets of an interface that was taken down.
    closing: Option<JoinHandle<()>>,
    /// The interface while it has no sockets; `device` has it otherwise.
    hold: Option<Hold>,
    // Dropped after the device: the kernel uses the pool's memory as long as a socket is open.
    umem: Arc<Umem>,
    gauge: RxGauge,
    watch: LinkWatch,
    /// The program is attached and has the sockets.
    steered: bool,
    /// Priorities of frames that the program may send by itself.
    gate: PriSet,
    receive: Receive,
    transmit: Transmit,
    /// Ways to send super-frames; `None` unless the interface is a veth and the settings allow it.
    joined: Option<Joined>,
    counts: Counts,
    check_at: Instant,
    retry_at: Instant,
    /// Call and errno of a refused rx or tx, for `service` to report.
    fault: Option<(&'static str, i32)>,
}

impl AfXdp {
    /// Opens a port on an interface that is there; `umem` is the memory of the pool that all ports use.
    ///
    /// # Errors
    /// A setting is out of range; a frame can be longer than a chunk holds; the interface is missing, not Ethernet,
    /// already a port, or has another XDP program; its driver has no XDP; or a call was refused.
    pub fn open(
        config: &AfXdpConfig,
        umem: &Arc<Umem>,
        steering: Box<dyn Steering>,
    ) -> Result<Self, PortOpenError> {
        check(config, umem)?;
        let (watch, index) = LinkWatch::of_ethernet(&config.device)?;
        let chunks = umem.pool().count();
        let marks = steering.has_fast_path().then(|| Marks::new(64));
        let mut port = Self {
            caps: PortCaps {
                kind: "af_xdp",
                device: config.device.clone(),
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
            gauge: RxGauge::default(),
            watch,
            steered: false,
            gate: PriSet::EMPTY,
            receive: Receive::new(chunks, marks),
            transmit: Transmit::new(chunks, umem.pool().chunk_size()),
            joined: config.joins.then(|| Joined::new(&config.device)).flatten(),
            counts: Counts {
                frames: PortCounters::default(),
                losses: Losses::new(&config.device),
                missed: 0,
                unpublished: 0,
                system_calls: 0,
            },
            check_at: Instant::ZERO,
            retry_at: Instant::ZERO,
            fault: None,
        };
        port.attach(index).map_err(|refused| {
            let hint = device::hint(refused.call, &refused.source);
            PortOpenError::refused(&config.device, refused, hint)
        })?;
        Ok(port)
    }

    /// Whether the port sees VLAN tags that a device took out of the data: the program notes them, or the device leaves
    /// them in.
    #[must_use]
    pub fn reads_tags(&self) -> bool {
        self.receive.sees.is_some_and(|sees| sees.tags) || netdev::leaves_tags(&self.config.device)
    }

    /// Whether the port sees every partial checksum: the program reads it from the kernel, or the frames come from a
    /// wire, where all are complete. Otherwise the port searches for one, and misses those in tunnels of an unknown
    /// kind.
    #[must_use]
    pub fn knows_checksums(&self) -> bool {
        self.receive.sees.is_some_and(|sees| sees.checksums)
            || netdev::is_hardware(&self.config.device)
    }

    /// A short description for reports: native or generic, copied or not, number of queues.
    #[must_use]
    pub fn describe(&self) -> String {
        self.device.as_ref().map_or_else(|| "no interface".to_owned(), Device::describe)
    }

    /// System calls since the port was opened.
    #[must_use]
    pub const fn system_calls(&self) -> u64 {
        self.counts.system_calls
    }

    fn error(&self, call: &'static str, source: io::Error) -> PortError {
        PortError { device: self.caps.device.clone(), call, source }
    }

    fn count_losses(&mut self) {
        if let Some(device) = &self.device {
            self.counts.system_calls += device.queues.len() as u64;
            let lost = device.queues.iter().map(queue::Queue::lost).sum();
            // A ring that overflows never lets the pipeline catch up, so the fast path would stay closed under load.
            // Draining it ends that.
            let is_losing = self.counts.losses.of_sockets(lost) > 0 && self.receive.marks.is_some();
            if is_losing != self.receive.draining {
                self.drain(is_losing);
            }
        }
        self.counts.frames.kernel_rx =
            self.counts.losses.total().saturating_sub(self.counts.missed);
    }

    /// Has the program drop frames until the queues are empty, or take all frames again.
    fn drain(&mut self, on: bool) {
        let queues = self.device.as_ref().map_or(0, |device| device.queues.len());
        self.steering.set_drain(u32::try_from(queues).unwrap_or(0), on);
        self.receive.draining = on;
    }

    /// Keeps a refusal for `service`, which then looks at the link at once.
    fn fail(&mut self, call: &'static str, error: &io::Error) {
        let code = error.raw_os_error().unwrap_or(libc::EIO);
        if matches!(code, libc::ENETDOWN | libc::ENXIO | libc::ENODEV) {
            self.watch.suspect();
        }
        self.fault = Some((call, code));
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
            // The first queue changes with each call: else a busy one would fill every batch and starve the others.
            let at = (self.receive.turn + n) % queues;
            let mut count = 0;
            // Borrowed anew for each entry: `received` needs the rest of the port.
            while !batch.is_full() {
                let Some(queue) = self.device.as_mut().and_then(|d| d.queues.get_mut(at)) else {
                    break;
                };
                // `ready` reads the kernel's index, a cache line that the kernel's core writes: once per burst, not
                // once per frame.
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
                // Once per burst: the kernel's core reads this line, too.
                queue.rx.release();
                queue.posted -= count;
            }
        }
        self.receive.turn = if self.receive.turn + 1 < queues { self.receive.turn + 1 } else { 0 };
        batch.len() - before
    }

    fn tx_room(&mut self, _now: Instant) -> usize {
        if !self.link_up() {
            return 0;
        }
        let Some(device) = &mut self.device else { return 0 };
        // Completions that are not reaped yet count as room; `tx` reaps before it sends.
        let completed = device.sender().completed.ready() as usize;
        let under_way = self.transmit.sent.count().saturating_sub(completed);
        self.config.tx_ring_frames.saturating_sub(under_way)
    }

    fn tx(&mut self, now: Instant, bufs: &mut Bufs, batch: &mut Batch) -> usize {
        self.reap(bufs);
        let count = batch.len().min(self.tx_room(now));
        let mut taken = 0;
        while taken < count {
            match self.hand_over(now, bufs, batch, count - taken) {
                Done::GoOn(some) => taken += some,
                Done::Wait(some) => {
                    taken += some;
                    break;
                }
            }
        }
        taken
    }

    fn service(&mut self, now: Instant, bufs: &mut Bufs) -> Result<(), PortError> {
        self.kick();
        // Before `refill`, so that chunks of sent frames can be posted at once.
        self.reap(bufs);
        self.refill(bufs);
        self.poll_busily();
        let fault = self.fault.take();
        if fault.is_none() && now < self.check_at {
            return Ok(());
        }
        self.check_at = now + CHECK_EVERY;
        self.counts.losses.ask(now);
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
        self.counts.frames
    }

    fn fast_path(&mut self) -> Option<&mut dyn FastPath> {
        if self.receive.marks.is_some() { Some(self) } else { None }
    }

    fn rx_gauge(&self) -> Option<RxGauge> {
        Some(self.gauge.clone())
    }

    fn sending(&mut self) -> usize {
        self.transmit.sent.count()
    }

    /// The descriptor is replaced when the interface was gone, so callers ask for it again before each wait.
    fn link_fd(&self) -> Option<std::os::fd::BorrowedFd<'_>> {
        Some(self.watch.as_fd())
    }

    fn wait_fd(&self) -> Option<std::os::fd::BorrowedFd<'_>> {
        self.device.as_ref().map(Device::wait_fd)
    }

    fn release(&mut self, bufs: &mut Bufs) {
        self.kick();
        self.reap(bufs);
        self.let_go(bufs);
        threads::close(self.joined.take());
    }
}

impl FastPath for AfXdp {
    fn set_gate(&mut self, pris: PriSet) {
        self.gate = pris;
        self.steering.set_gate(pris);
    }

    fn mark(&mut self) {
        if let Some(marks) = &mut self.receive.marks {
            marks.mark();
        }
    }

    fn drained(&mut self) {
        let Some(marks) = &mut self.receive.marks else { return };
        let mut at_rest = true;
        marks.settle(|queue, number| at_rest &= self.steering.set_done(queue, number));
        if self.receive.draining && at_rest {
            let queues = self.device.iter_mut().flat_map(|device| &mut device.queues);
            let waiting: u32 = queues.map(|queue| queue.rx.ready()).sum();
            // The program has handed over no frame since the marks, and none waits in a ring: the queues are empty.
            if waiting == 0 {
                self.drain(false);
            }
        }
    }
}

#[cfg(test)]
mod tests;
