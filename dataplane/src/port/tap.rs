//! Tap port: an interface of the host, with the switch at its other end.
//!
//! One read or write of `/dev/net/tun` per frame. Offloads are off, so frames come whole; a partial checksum is
//! completed before the frame is written.
//!
//! Source: `Documentation/networking/tuntap.rst`; docs/spec/pipeline.md §11. Any kernel; `CAP_NET_ADMIN`.

use std::fs::File;
use std::io::{self, ErrorKind, Read, Write};
use std::os::fd::AsFd;

use super::error::{Refused, at};
use super::{Port, PortCaps, PortCounters, PortError, PortOpenError, csum, sys};
use crate::batch::{BURST, Batch};
use crate::desc::Desc;
use crate::pool::Bufs;
use crate::stats::DropReason;
use crate::time::{Instant, LinkRate, Span};

/// Interval between looks at the device's state.
const CHECK_EVERY: Span = Span::from_ms(10);
/// Interval between attempts to create a device that was deleted.
const RETRY_EVERY: Span = Span::from_ms(250);

/// Settings of a tap port.
#[derive(Clone, Debug)]
pub struct TapConfig {
    /// Interface; created if there is none, and then removed when the port is closed.
    pub device: String,
    /// Rate that the port reports; a tap has none.
    pub rate: LinkRate,
    /// Longest frame in bytes, without FCS, tags included; the interface's MTU is 18 less.
    pub frame_len_max: usize,
}

/// A port on a tap interface of the host.
pub struct Tap {
    caps: PortCaps,
    file: Option<File>,
    /// The port created the device, which disappears with it.
    made: bool,
    up: bool,
    /// Chunk for the next frame; kept between calls, as most reads find no frame.
    posted: Option<Desc>,
    /// Scratch memory: frames are read into it while the pool is empty, and checksums completed in it.
    spare: Box<[u8]>,
    counters: PortCounters,
    blocked: bool,
    check_at: Instant,
    retry_at: Instant,
    fault: Option<(&'static str, i32)>,
}

impl Tap {
    /// Creates or attaches the device, sets its MTU and sets it up.
    ///
    /// # Errors
    /// A setting is out of range, the device is in use, or a call was refused.
    pub fn open(config: &TapConfig) -> Result<Self, PortOpenError> {
        let device = &config.device;
        PortOpenError::check_frame_len_max(device, config.frame_len_max)?;
        let attached = Self::attach(device, config.frame_len_max, true);
        let (file, made) = attached.map_err(|refused| {
            let hint = match refused.source.raw_os_error() {
                Some(libc::EPERM) => " (needs CAP_NET_ADMIN)",
                Some(libc::EBUSY) => " (another process has it)",
                Some(libc::EINVAL) => " (an interface of this name is no tap)",
                Some(libc::ENOENT) => " (no /dev/net/tun here)",
                _ => "",
            };
            PortOpenError::refused(device, refused, hint)
        })?;
        Ok(Self {
            caps: PortCaps {
                kind: "tap",
                device: device.clone(),
                frame_len_max: config.frame_len_max,
                rate: config.rate,
                tx_partial_csum: false,
                virtual_time: false,
            },
            file: Some(file),
            made,
            up: true,
            posted: None,
            spare: vec![0; 16 << 10].into(),
            counters: PortCounters::default(),
            blocked: false,
            check_at: Instant::ZERO,
            retry_at: Instant::ZERO,
            fault: None,
        })
    }

    /// Attaches the device, creating it if `make` allows; returns whether it was created.
    fn attach(device: &str, frame_len_max: usize, make: bool) -> Result<(File, bool), Refused> {
        let control = sys::socket(libc::AF_INET, libc::SOCK_DGRAM, 0).map_err(at("socket"))?;
        let there = sys::exists(control.as_fd(), device).map_err(at("find the interface"))?;
        // A tap of the host's own is not ours to create: its owner may give it other settings. Wait until it is back.
        if !there && !make {
            let source = io::Error::from_raw_os_error(libc::ENODEV);
            return Err(Refused { call: "wait for the interface", source });
        }
        let file = sys::open_tun().map_err(at("open /dev/net/tun"))?;
        sys::attach_tap(file.as_fd(), device).map_err(at("attach tap (TUNSETIFF)"))?;
        // Room for the Ethernet header and a tag. 68 is the least MTU of IPv4 (RFC 791).
        let mtu = i32::try_from(frame_len_max - 18).unwrap_or(i32::MAX).max(68);
        sys::set_mtu(control.as_fd(), device, mtu).map_err(at("set MTU"))?;
        sys::set_up(control.as_fd(), device).map_err(at("set up"))?;
        Ok((file, !there))
    }

    fn error(&self, call: &'static str, code: i32) -> PortError {
        let source = io::Error::from_raw_os_error(code);
        PortError { device: self.caps.device.clone(), call, source }
    }

    /// Reads one frame into the posted chunk, or into `spare` if there is none; returns its length.
    fn read(&mut self, bufs: &mut Bufs) -> io::Result<usize> {
        if self.posted.is_none() {
            self.posted = bufs.alloc();
        }
        let space = self.posted.as_mut().and_then(|desc| bufs.space_mut(desc));
        let into = match space {
            Some(space) => space,
            // The frame is read although it is lost: it would block the device's queue, and is counted as `pool`.
            None => &mut self.spare[..],
        };
        match &mut self.file {
            Some(file) => file.read(into),
            None => Err(ErrorKind::WouldBlock.into()),
        }
    }

    fn fail(&mut self, call: &'static str, error: &io::Error) {
        self.up = false;
        self.fault = Some((call, error.raw_os_error().unwrap_or(libc::EIO)));
    }

    /// Looks at the device's state; creates it again after it was deleted.
    ///
    /// Asks the descriptor and not the interface's name: a tap may be moved to the namespace of its host and works on
    /// there.
    fn follow(&mut self, now: Instant) -> Result<(), PortError> {
        if let Some(file) = &self.file {
            let ready = sys::ready(file.as_fd(), libc::POLLOUT);
            let ready =
                ready.map_err(|e| self.error("poll", e.raw_os_error().unwrap_or(libc::EIO)))?;
            if ready & libc::POLLERR == 0 {
                self.up = ready & libc::POLLOUT != 0; // a tap that is down takes nothing
                return Ok(());
            }
            // POLLERR: the device was deleted, and this descriptor will never work again.
            (self.file, self.up, self.retry_at) = (None, false, now);
            return Err(self.error("tap is gone", libc::ENODEV));
        }
        if now < self.retry_at {
            return Ok(());
        }
        self.retry_at = now + RETRY_EVERY;
        let (file, _) = Self::attach(&self.caps.device, self.caps.frame_len_max, self.made)
            .map_err(|Refused { call, source }| {
                self.error(call, source.raw_os_error().unwrap_or(libc::EIO))
            })?;
        (self.file, self.up) = (Some(file), true);
        Ok(())
    }
}

impl Port for Tap {
    fn caps(&self) -> &PortCaps {
        &self.caps
    }

    fn rx(&mut self, _now: Instant, bufs: &mut Bufs, batch: &mut Batch) -> usize {
        let before = batch.len();
        for _ in 0..batch.remaining_capacity() {
            let len = match self.read(bufs) {
                Ok(len) => len,
                Err(e) if e.kind() == ErrorKind::WouldBlock => break,
                Err(e) => {
                    self.fail("read", &e);
                    break;
                }
            };
            if len < 14 || len > self.caps.frame_len_max {
                let short = len < 14;
                let reason = if short { DropReason::Malformed } else { DropReason::TooLong };
                self.counters.rx_drop(reason); // its chunk stays posted
                continue;
            }
            let Some(mut desc) = self.posted.take() else {
                self.counters.rx_drop(DropReason::Pool);
                continue;
            };
            bufs.set_len(&mut desc, len);
            bufs.set_partial_csum(&mut desc, None);
            batch.push(desc);
        }
        batch.len() - before
    }

    fn tx_room(&mut self, _now: Instant) -> usize {
        if self.blocked || !self.up { 0 } else { BURST }
    }

    fn tx(&mut self, _now: Instant, bufs: &mut Bufs, batch: &mut Batch) -> usize {
        let mut taken = 0;
        while self.up
            && !self.blocked
            && let Some(desc) = batch.get(taken)
            && let Some(file) = &mut self.file
        {
            let frame = csum::outgoing(bufs, desc, &mut self.spare);
            match file.write(frame) {
                Ok(_) => taken += 1,
                Err(e) if e.kind() == ErrorKind::Interrupted => {}
                Err(e) if e.kind() == ErrorKind::WouldBlock => self.blocked = true,
                // The host's queue is full; the frame waits for the next `service`.
                Err(e) if e.raw_os_error() == Some(libc::ENOBUFS) => self.blocked = true,
                // The device is down (EIO) or deleted (EBADFD): the frame stays the caller's.
                Err(e) if matches!(e.raw_os_error(), Some(libc::EIO | libc::EBADFD)) => {
                    self.fail("write", &e);
                }
                Err(_) => {
                    self.counters.tx_failed += 1;
                    taken += 1;
                }
            }
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
        self.follow(now)?;
        fault.map_or(Ok(()), |(call, code)| Err(self.error(call, code)))
    }

    fn link_up(&self) -> bool {
        self.file.is_some() && self.up
    }

    fn counters(&self) -> PortCounters {
        self.counters
    }

    /// The descriptor is replaced when the device was gone, so callers ask for it again before each wait.
    fn wait_fd(&self) -> Option<std::os::fd::BorrowedFd<'_>> {
        self.file.as_ref().map(std::os::fd::AsFd::as_fd)
    }

    fn release(&mut self, bufs: &mut Bufs) {
        self.file = None;
        if let Some(desc) = self.posted.take() {
            bufs.free(desc);
        }
    }
}
