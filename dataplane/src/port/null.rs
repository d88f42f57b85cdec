//! Null port: discards every frame; as a generator, makes frames from templates.
//!
//! Templates take turns and are copied into chunks as fast as the worker calls; there is no clock.
//!
//! Source: ARCHITECTURE.md "Layout of the tree"; docs/spec/pipeline.md §11.

use std::os::fd::{AsFd, BorrowedFd};

use weft_base::eventfd::EventFd;
use weft_parsers::HEAD_LEN;

use super::{Port, PortCaps, PortCounters, PortError, PortOpenError};
use crate::batch::{BURST, Batch};
use crate::pool::{Bufs, FRAME_LEN_MAX};
use crate::stats::DropReason;
use crate::time::{Instant, LinkRate};

/// Settings of a null port that makes frames.
#[derive(Clone, Debug)]
pub struct NullConfig {
    /// Name of the port in reports.
    pub name: String,
    /// Rate that the port reports; it limits nothing.
    pub rate: LinkRate,
    /// Longest frame in bytes, without FCS.
    pub frame_len_max: usize,
    /// Frames to make, in turn; empty for a port that only discards.
    pub templates: Vec<Vec<u8>>,
    /// Frames made per call at most, 1..=64.
    pub per_burst: usize,
    /// Frames made in all; `None` for no limit.
    pub limit: Option<u64>,
}

/// A port without a wire: it makes the frames that it receives, and discards what it sends.
pub struct Null {
    caps: PortCaps,
    /// The templates' first bytes and their lengths, contiguous so that the processor prefetches them.
    heads: Box<[([u8; HEAD_LEN], u16)]>,
    /// The whole templates.
    templates: Vec<Vec<u8>>,
    /// Index of the next template.
    next: usize,
    per_burst: usize,
    left: u64,
    counters: PortCounters,
    taken: u64,
    /// A descriptor that is never readable, so that a worker may sleep; `None` if the port makes frames.
    silent: Option<EventFd>,
}

impl Null {
    /// A port that takes every frame and receives none.
    #[must_use]
    pub fn sink(name: &str, rate: LinkRate) -> Self {
        let caps = PortCaps {
            kind: "null",
            device: name.to_owned(),
            frame_len_max: FRAME_LEN_MAX,
            rate,
            tx_partial_csum: true,
            virtual_time: false,
        };
        Self {
            caps,
            heads: Box::default(),
            templates: Vec::new(),
            next: 0,
            per_burst: 0,
            left: 0,
            counters: PortCounters::default(),
            taken: 0,
            silent: EventFd::new().ok(), // without one, a worker polls and does not sleep
        }
    }

    /// A port that also makes frames.
    ///
    /// # Errors
    /// A template is shorter than 14 bytes or longer than `frame_len_max`, or `per_burst` is out of range.
    pub fn generator(config: NullConfig) -> Result<Self, PortOpenError> {
        let refuse = |what, had| PortOpenError::Config {
            device: config.name.clone(),
            what,
            had,
            want: "14 bytes to frame_len_max a template, 1..=64 frames per_burst",
        };
        if let Some(bad) =
            config.templates.iter().find(|t| !(14..=config.frame_len_max).contains(&t.len()))
        {
            return Err(refuse("template length", bad.len() as u64));
        }
        if !(1..=BURST).contains(&config.per_burst) {
            return Err(refuse("per_burst", config.per_burst as u64));
        }
        let mut port = Self::sink(&config.name, config.rate);
        port.caps.frame_len_max = config.frame_len_max;
        let head = |bytes: &Vec<u8>| {
            let mut head = [0; HEAD_LEN];
            head.iter_mut().zip(bytes).for_each(|(to, from)| *to = *from);
            (head, u16::try_from(bytes.len()).unwrap_or(u16::MAX)) // within frame_len_max
        };
        port.heads = config.templates.iter().map(head).collect();
        port.templates = config.templates;
        port.per_burst = config.per_burst;
        port.left = config.limit.unwrap_or(u64::MAX);
        if !port.templates.is_empty() {
            port.silent = None;
        }
        Ok(port)
    }

    /// Frames taken for sending, and discarded.
    #[must_use]
    pub const fn taken(&self) -> u64 {
        self.taken
    }
}

impl Port for Null {
    fn caps(&self) -> &PortCaps {
        &self.caps
    }

    fn rx(&mut self, _now: Instant, bufs: &mut Bufs, batch: &mut Batch) -> usize {
        let room = batch.remaining_capacity().min(self.per_burst);
        let want = usize::try_from(self.left).unwrap_or(usize::MAX).min(room);
        let mut made = 0;
        while made < want {
            if self.next == self.heads.len() {
                self.next = 0;
            }
            let heads = self.heads.get(self.next..).unwrap_or_default().iter();
            // Runs of short templates are made in one go, as the bench measures the switch and not its generator.
            let short = bufs.alloc_heads(want - made, heads.map(|(h, len)| (h, *len)), batch);
            made += short;
            self.next += short;
            if short > 0 {
                continue;
            }
            let Some(template) = self.templates.get(self.next) else { break };
            let Some(desc) = bufs.alloc_from(template) else {
                // A frame waits for a chunk: backpressure, not a loss. One longer than a chunk would wait forever, so
                // it is dropped.
                if template.len() > bufs.room() {
                    self.counters.rx_drop(DropReason::TooLong);
                    self.next += 1;
                    self.left = self.left.saturating_sub(1);
                }
                break;
            };
            batch.push(desc);
            self.next += 1;
            made += 1;
        }
        if self.left != u64::MAX {
            self.left -= made as u64;
        }
        made
    }

    fn tx_room(&mut self, _now: Instant) -> usize {
        BURST
    }

    fn tx(&mut self, _now: Instant, bufs: &mut Bufs, batch: &mut Batch) -> usize {
        let count = batch.len();
        bufs.free_all(batch.drain(..));
        self.taken += count as u64;
        count
    }

    fn service(&mut self, _now: Instant, _bufs: &mut Bufs) -> Result<(), PortError> {
        Ok(())
    }

    fn counters(&self) -> PortCounters {
        self.counters
    }

    fn wait_fd(&self) -> Option<BorrowedFd<'_>> {
        self.silent.as_ref().map(EventFd::as_fd)
    }

    fn release(&mut self, _bufs: &mut Bufs) {}
}

#[cfg(test)]
mod tests {
    use std::os::fd::AsRawFd;

    use super::*;
    use crate::pool::Pool;

    fn config(lens: &[usize]) -> NullConfig {
        NullConfig {
            name: "gen0".to_owned(),
            rate: LinkRate::gbps(100),
            frame_len_max: 1_518,
            templates: lens
                .iter()
                .map(|&len| vec![u8::try_from(len & 0xFF).unwrap(); len])
                .collect(),
            per_burst: 32,
            limit: Some(70),
        }
    }

    #[test]
    fn frames_are_made_in_turn_up_to_the_limit_and_sunk() {
        let mut bufs = Bufs::new(Pool::in_memory(128, 1_518).unwrap(), 16, 0);
        let mut port = Null::generator(config(&[14, 60, 100])).unwrap();
        let mut batch = Batch::new();
        let mut seen = Vec::new();
        for want in [32, 32, 6, 0] {
            assert_eq!(port.rx(Instant::ZERO, &mut bufs, &mut batch), want);
            seen.extend(batch.iter().map(|d| (bufs.bytes(d).len(), bufs.bytes(d)[0])));
            assert_eq!(port.tx(Instant::ZERO, &mut bufs, &mut batch), want);
            assert!(batch.is_empty());
        }
        let want: Vec<_> = (0..70).map(|i| [(14, 14), (60, 60), (100, 100)][i % 3]).collect();
        assert_eq!(seen, want);
        assert_eq!((port.taken(), bufs.used().get()), (70, 0));
    }

    #[test]
    fn a_worker_may_sleep_on_a_port_that_makes_no_frame() {
        let sink = Null::sink("s", LinkRate::gbps(1));
        let mut fds = [libc::pollfd {
            fd: sink.wait_fd().unwrap().as_raw_fd(),
            events: libc::POLLIN,
            revents: 0,
        }];
        // SAFETY: one entry, which lives; a timeout of 0 only looks.
        #[expect(unsafe_code, reason = "poll(2), as workers do")]
        let ready = unsafe { libc::poll(fds.as_mut_ptr(), 1, 0) };
        assert_eq!(ready, 0, "never readable");
        assert!(Null::generator(config(&[])).unwrap().wait_fd().is_some());
        assert!(Null::generator(config(&[60])).unwrap().wait_fd().is_none(), "it must be asked");
    }

    #[test]
    fn an_empty_pool_makes_frames_wait() {
        let mut bufs = Bufs::new(Pool::in_memory(10, 1_518).unwrap(), 1, 0);
        let mut port = Null::generator(config(&[60])).unwrap();
        let mut batch = Batch::new();
        assert_eq!(port.rx(Instant::ZERO, &mut bufs, &mut batch), 10);
        assert_eq!(port.rx(Instant::ZERO, &mut bufs, &mut batch), 0);
        assert_eq!(port.counters(), PortCounters::default());
        port.tx(Instant::ZERO, &mut bufs, &mut batch);
        assert_eq!(port.rx(Instant::ZERO, &mut bufs, &mut batch), 10);
        port.tx(Instant::ZERO, &mut bufs, &mut batch);
    }

    #[test]
    fn a_template_or_burst_out_of_range_is_refused_by_name() {
        let refused = |config| Null::generator(config).err().map(|e| e.to_string());
        let long = refused(config(&[60, 1_519])).unwrap();
        assert!(long.starts_with("gen0: template length is 1519"), "{long}");
        assert!(refused(config(&[13])).is_some());
        assert!(refused(NullConfig { per_burst: 65, ..config(&[60]) }).is_some());
        assert!(refused(NullConfig { per_burst: 0, ..config(&[60]) }).is_some());
        assert!(refused(config(&[14, 1_518])).is_none());
    }
}
