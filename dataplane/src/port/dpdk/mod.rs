//! DPDK port: any device that DPDK has a driver for, virtual or bound to vfio.
//!
//! The driver's mbufs are the pool's chunks (`memory::Mbufs`), so receiving and sending neither copies a frame nor
//! allocates for it. A shared frame is sent by a carrier that points at the chunk. A driver that wants its mempool's
//! own memory gets that, and frames are copied once.
//!
//! Source: DPDK 22.11 or later; docs/spec/pipeline.md §11. Root or vfio's rights; huge pages unless `--no-huge`.

#[expect(unsafe_code, reason = "mbufs that a driver gives or takes")]
mod burst;
#[expect(unsafe_code, reason = "calls of DPDK")]
mod calls;
#[expect(unsafe_code, reason = "calls of DPDK")]
mod device;
#[expect(unsafe_code, reason = "calls of DPDK")]
mod eal;
#[expect(unsafe_code, reason = "an alarm of DPDK")]
mod interrupts;
mod iommu;
#[expect(unsafe_code, reason = "mbufs in memory that DPDK and the pool share")]
mod memory;
#[expect(unsafe_code, reason = "calls of DPDK")]
mod plain;

use std::io;

use weft_parsers::{MacAddr, partial};

use self::burst::{Burst, Frames, Queue};
use self::device::{Device, Setup};
use self::memory::Mbufs;
use self::plain::Plain;
use super::error::{Refused, at};
use super::{Port, PortCaps, PortCounters, PortError, PortOpenError, TX_LEN_MIN, csum};
use crate::batch::{BURST, Batch};
use crate::pool::Bufs;
use crate::time::{Instant, LinkRate, Span};

pub use self::eal::{EalError, start as start_eal};

/// Interval between looks at the link.
const LINK_EVERY: Span = Span::from_ms(10);
/// Interval between reads of the device's counters.
const COUNT_EVERY: Span = Span::from_ms(100);
/// Bound on the frames taken out of a ring whose port closes.
const RING_MAX: usize = 1 << 16;

/// Settings of a DPDK port.
#[derive(Clone, Debug)]
pub struct DpdkConfig {
    /// Virtual device with its arguments, or PCI address.
    pub device: String,
    /// Rate that the port reports; the device is not asked.
    pub rate: LinkRate,
    /// Longest frame in bytes, without FCS, tags included.
    pub frame_len_max: usize,
    /// Receive queues, 1..=64, over which the device spreads flows.
    pub queues: u16,
    /// Descriptors of each receive queue; the device may adjust the number.
    pub rx_descriptors: u16,
    /// Descriptors of the transmit queue; the device may adjust the number.
    pub tx_descriptors: u16,
    /// UDP ports whose checksum is a fixed value, never a partial one; 0 for none.
    pub fixed_udp_ports: [u16; 2],
}

/// A port on a device that DPDK drives.
pub struct Dpdk {
    caps: PortCaps,
    config: DpdkConfig,
    /// Dropped before `frames`, whose memory the device uses.
    device: Option<Device>,
    frames: Option<Frames>,
    mapped: bool,
    burst: Burst,
    /// Index of the queue that the next call receives from first.
    queue: u16,
    counters: PortCounters,
    up: bool,
    blocked: bool,
    link_at: Instant,
    count_at: Instant,
}

impl Dpdk {
    /// Finds or creates the device; DPDK must have been started with [`start_eal`].
    ///
    /// # Errors
    /// A setting is out of range, or there is no such device or driver.
    pub fn open(config: &DpdkConfig) -> Result<Self, PortOpenError> {
        PortOpenError::check_frame_len_max(&config.device, config.frame_len_max)?;
        let (queues, fits) = (config.queues.into(), (1..=64).contains(&config.queues));
        PortOpenError::check(&config.device, "queues", queues, "1..=64", fits)?;
        let device = Device::attach(&config.device)
            .map_err(|refused| PortOpenError::refused(&config.device, refused, ""))?;
        let caps = PortCaps {
            kind: "dpdk",
            device: config.device.clone(),
            frame_len_max: config.frame_len_max,
            rate: config.rate,
            tx_partial_csum: false,
            virtual_time: false,
        };
        Ok(Self {
            caps,
            config: config.clone(),
            device: Some(device),
            frames: None,
            mapped: false,
            burst: Burst::new(),
            queue: 0,
            counters: PortCounters::default(),
            up: false,
            blocked: false,
            link_at: Instant::ZERO,
            count_at: Instant::ZERO,
        })
    }

    /// The device's MAC address, if it has one.
    #[must_use]
    pub fn mac(&self) -> Option<MacAddr> {
        self.device.as_ref()?.mac()
    }

    /// Name of the device's driver; empty once the port is released.
    #[must_use]
    pub fn driver(&self) -> &str {
        self.device.as_ref().map_or("", Device::driver)
    }

    /// Whether frames are copied between the pool and DPDK's memory; known once the port is started.
    #[must_use]
    pub const fn copies(&self) -> bool {
        matches!(self.frames, Some(Frames::Copied { .. }))
    }

    /// Gives the device its memory and starts it.
    fn set_going(&mut self, bufs: &mut Bufs) -> Result<(), Refused> {
        let Some(device) = &mut self.device else {
            return Err(at("start the device")(io::ErrorKind::NotConnected.into()));
        };
        let config = &self.config;
        let descriptors = usize::from(config.queues) * usize::from(config.rx_descriptors)
            + usize::from(config.tx_descriptors);
        let memory = |source| Refused { call: "make mempools", source };
        let frames = if device.takes_foreign_memory() {
            let mbufs = Mbufs::of(bufs.pool()).map_err(memory)?;
            if device.is_pci() {
                let mapped = mbufs.map_for(device.handle());
                mapped.map_err(|error| {
                    let bits = iommu::address_bits(&config.device);
                    let error = iommu::explain(error, &mbufs.addresses(), bits);
                    Refused { call: "map the pool for the device", source: error }
                })?;
                self.mapped = true;
            }
            let carriers = Plain::carriers(usize::from(config.tx_descriptors) + BURST);
            Frames::Own { mbufs, carriers: carriers.map_err(memory)? }
        } else {
            let buffers = Plain::buffers(descriptors + 4 * BURST, bufs.room());
            let spare = vec![0; bufs.pool().chunk_size()].into();
            Frames::Copied { buffers: buffers.map_err(memory)?, spare }
        };
        let setup = |mempool| Setup {
            queues: config.queues,
            rx_descriptors: config.rx_descriptors,
            tx_descriptors: config.tx_descriptors,
            frame_len_max: config.frame_len_max,
            room: bufs.room(),
            mempool,
        };
        match self.frames.insert(frames) {
            Frames::Own { mbufs, .. } => {
                let setup = setup(mbufs.mempool());
                // Starting fills the receive queues: the driver allocates from the mempool, so from `bufs`.
                mbufs.lend(bufs, || device.start(&setup))?;
            }
            Frames::Copied { buffers, .. } => device.start(&setup(buffers.mempool()))?,
        }
        self.up = device.link_up();
        Ok(())
    }

    /// Reads the device's counters.
    fn count(&mut self) -> Result<(), PortError> {
        let Some(device) = &self.device else { return Ok(()) };
        let counts = device.counts().map_err(|source| PortError {
            device: self.caps.device.clone(),
            call: "read the device's counters",
            source,
        })?;
        // Never down: reports take these for totals.
        self.counters.kernel_rx = self.counters.kernel_rx.max(counts.rx_lost);
        self.counters.tx_failed = self.counters.tx_failed.max(counts.tx_failed);
        Ok(())
    }

    /// Takes the frames out of a ring, which outlives the port: their chunks must not stay in it.
    fn empty(&mut self, bufs: &mut Bufs) {
        let mut left = RING_MAX;
        while left > 0 {
            let mut batch = Batch::new();
            let got = self.rx(Instant::ZERO, bufs, &mut batch);
            for desc in batch {
                bufs.free(desc);
            }
            if got == 0 {
                break;
            }
            left = left.saturating_sub(got);
        }
    }
}

impl Port for Dpdk {
    fn caps(&self) -> &PortCaps {
        &self.caps
    }

    fn start(&mut self, bufs: &mut Bufs) -> Result<(), PortOpenError> {
        self.set_going(bufs)
            .map_err(|refused| PortOpenError::refused(&self.config.device, refused, ""))
    }

    fn rx(&mut self, _now: Instant, bufs: &mut Bufs, batch: &mut Batch) -> usize {
        let (Some(device), Some(frames)) = (&self.device, &mut self.frames) else { return 0 };
        let before = batch.len();
        let port = device.id();
        let partial = device.hides_partial_checksums();
        for _ in 0..self.config.queues {
            let queue = Queue { port, index: self.queue };
            frames.rx(queue, &mut self.burst, bufs, batch, &mut self.counters);
            // Also when this one has filled the batch: the next call begins with another queue, so that a busy one
            // cannot starve the rest.
            self.queue = if self.queue + 1 < self.config.queues { self.queue + 1 } else { 0 };
            if batch.is_full() {
                break;
            }
        }
        // net_af_packet does not read the kernel's metadata, so partial checksums are recognised by their value.
        if partial {
            for desc in batch.iter_mut().skip(before) {
                let found = partial::find(bufs.bytes(desc), &self.config.fixed_udp_ports);
                csum::received(bufs, desc, found);
            }
        }
        batch.len() - before
    }

    fn tx_room(&mut self, _now: Instant) -> usize {
        if self.blocked || !self.up { 0 } else { BURST }
    }

    fn tx(&mut self, _now: Instant, bufs: &mut Bufs, batch: &mut Batch) -> usize {
        let (Some(device), Some(frames)) = (&self.device, &mut self.frames) else { return 0 };
        if self.blocked || !self.up {
            return 0;
        }
        let sent = frames.tx(Queue { port: device.id(), index: 0 }, &mut self.burst, bufs, batch);
        // The ring is full; trying again before the next `service` would only burn time.
        self.blocked = !batch.is_empty();
        sent
    }

    fn service(&mut self, now: Instant, bufs: &mut Bufs) -> Result<(), PortError> {
        self.blocked = false;
        if now < self.link_at {
            return Ok(());
        }
        self.link_at = now + LINK_EVERY;
        self.up = self.device.as_ref().is_some_and(Device::link_up);
        if let Some(Frames::Own { mbufs, .. }) = &self.frames {
            mbufs.collect(bufs);
        }
        if now < self.count_at {
            return Ok(());
        }
        self.count_at = now + COUNT_EVERY;
        self.count()
    }

    fn link_up(&self) -> bool {
        self.up
    }

    fn counters(&self) -> PortCounters {
        self.counters
    }

    fn release(&mut self, bufs: &mut Bufs) {
        if self.device.as_ref().is_some_and(|device| device.is_ring() && device.is_started()) {
            self.empty(bufs);
        }
        drop(self.count()); // a device that is gone counts no more
        self.up = false;
        let Some(mut device) = self.device.take() else { return };
        match &self.frames {
            Some(Frames::Own { mbufs, .. }) => {
                let handle = device.handle();
                // Stopping and closing free the mbufs that the driver holds, to `bufs`. The pool is unmapped in
                // between: the device no longer reads chunks, and DPDK still knows it.
                mbufs.lend(bufs, || {
                    device.stop();
                    if core::mem::take(&mut self.mapped) {
                        mbufs.unmap_for(handle);
                    }
                    drop(device);
                });
                // Chunks that DPDK's interrupt thread freed meanwhile.
                mbufs.collect(bufs);
            }
            Some(Frames::Copied { .. }) | None => drop(device),
        }
        self.frames = None;
    }
}
