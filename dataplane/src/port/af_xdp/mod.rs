//! Port on a Linux interface by `AF_XDP` sockets: frames come into the pool and leave from it, without
//! a copy of ours, and without the host's stack.
//!
//! An XDP program ([`Steering`]) hands every frame to the socket of its queue; chunks are lent to
//! the kernel by fill and transmit rings and come back by receive and completion rings.
//!
//! Units: bytes, frames.
//! Source: Linux `Documentation/networking/af_xdp.rst`; ARCHITECTURE.md "The path of a frame"; docs/spec/pipeline.md §11.
//! Linux 5.10 or later, 6.8 for VLAN tags in metadata and for partial checksums that the kernel completes; `CAP_BPF`,
//! `CAP_NET_ADMIN`, `CAP_NET_RAW` and `CAP_IPC_LOCK`.

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

/// How often link, program and losses are looked at.
const CHECK_EVERY: Span = Span::from_ms(10);
/// How often a vanished interface, or a program that cannot be attached, is tried again.
const RETRY_EVERY: Span = Span::from_ms(250);
/// An address in a ring: where the chunk starts, and above these bits how far behind it the frame does.
const ADDRESS_BITS: u32 = 48;

/// What a port counts.
struct Counts {
    frames: PortCounters,
    losses: Losses,
    /// Frames of those that the program numbers that were lost on the way to us; they are counted in `frames`.
    missed: u64,
    /// Frames that the device threw away since the kernel's index of the transmit ring last went on: they are counted in
    /// `frames`, and in the ring they look as if they still waited.
    unpublished: u32,
    system_calls: u64,
}

/// A port on a Linux interface by `AF_XDP` sockets.
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
    gauge: RxGauge,
    watch: LinkWatch,
    /// Whether the program is where it belongs.
    steered: bool,
    /// Priorities that may pass the pipeline by.
    gate: PriSet,
    receive: Receive,
    transmit: Transmit,
    /// Where segments may leave as super-frames.
    joined: Option<Joined>,
    counts: Counts,
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

    /// Whether VLAN tags that a device took out of the data are seen: the program notes them, or the
    /// device leaves them in.
    #[must_use]
    pub fn reads_tags(&self) -> bool {
        self.receive.sees.is_some_and(|sees| sees.tags) || netdev::leaves_tags(&self.config.device)
    }

    /// Whether a checksum that a host left partial is seen wherever it is: the program is told of it, or
    /// the device has frames from a wire, where all are complete. Elsewhere it is looked for, and missed in
    /// tunnels of an unknown kind.
    #[must_use]
    pub fn knows_checksums(&self) -> bool {
        self.receive.sees.is_some_and(|sees| sees.checksums)
            || netdev::is_hardware(&self.config.device)
    }

    /// How frames come and go, in a few words: native or generic, copied or not, queues.
    #[must_use]
    pub fn describe(&self) -> String {
        self.device.as_ref().map_or_else(|| "no interface".to_owned(), Device::describe)
    }

    /// Calls of the kernel so far.
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
            let is_losing = self.counts.losses.of_sockets(lost) > 0 && self.receive.marks.is_some();
            if is_losing != self.receive.draining {
                self.drain(is_losing);
            }
        }
        self.counts.frames.kernel_rx =
            self.counts.losses.total().saturating_sub(self.counts.missed);
    }

    /// Has the program bring the queues to rest, or take all frames again.
    fn drain(&mut self, on: bool) {
        let queues = self.device.as_ref().map_or(0, |device| device.queues.len());
        self.steering.set_drain(u32::try_from(queues).unwrap_or(0), on);
        self.receive.draining = on;
    }

    /// Remembers a refusal for `service`, which then looks at the link at once.
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
            let at = (self.receive.turn + n) % queues;
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
        self.receive.turn = if self.receive.turn + 1 < queues { self.receive.turn + 1 } else { 0 };
        batch.len() - before
    }

    fn tx_room(&mut self, _now: Instant) -> usize {
        if !self.link_up() {
            return 0;
        }
        let Some(device) = &mut self.device else { return 0 };
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

    /// Another one after the interface was gone: ask again before each wait.
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
            if waiting == 0 {
                self.drain(false);
            }
        }
    }
}

#[cfg(test)]
mod tests;
