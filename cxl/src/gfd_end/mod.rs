//! A G-FAM device on a port: TLPs and CXL.mem requests in; completions, responses and notifications out.
//!
//! [`GfdEnd::poll`] takes in frames; `serve` and `lines` (CXL.mem) turn requests into jobs, and jobs that are due write
//! their answers straight into chunks. `messages` handles GAM, partner information and proxied commands.
//!
//! Writes are carried out as they come in, reads when their completion is written, so that of an answer only its head
//! is stored. Answers to a requester with a bandwidth limit wait until they are due, and hold up no other requester's.
//!
//! Source: docs/spec/cxl-fabric.md "GFD (endpoint)"; docs/spec/wire-formats.md §3.6 to §3.8, §5.2.

mod atomics;
mod coherent;
mod component;
mod config;
mod due;
mod in_band;
mod jobs;
mod line_jobs;
mod lines;
mod messages;
mod serve;
mod snoops;
#[cfg(test)]
mod tests;

use weft_dataplane::pool::Bufs;
use weft_dataplane::port::{Port, PortError};
use weft_dataplane::time::Instant;
use weft_parsers::fabric::{Dpa, Pid};
use weft_parsers::tlp::vdm::PartnerInfo;

pub use component::Device;
pub use config::{CoherentConfig, GfdCounts, GfdEndConfig, Order};
pub use in_band::InBand;

use crate::cci::{Common, Served, Session, serve as serve_cci};
use crate::coherence::Hold;
use crate::gfd::Gfd;
use crate::gfd::device::Settings;
use crate::gfd::events::{FM_LEN, Notice};
use crate::tlp_end::{Carries, EndConfig, EndCounts, Progress, Received, TlpEnd};
use crate::vdm::link_reset::Ordered;
use crate::vdm::proxy::Stale;
use config::JOBS_MAX;
use jobs::Jobs;
use serve::GfdEndCore;
pub use snoops::{CoherenceCounts, CoherenceNews};

/// Most bursts that one poll takes in.
const BURSTS: usize = 4;

/// A G-FAM device at the end of a link. Its driver owns the port and a handle of the pool.
#[derive(Debug)]
pub struct GfdEnd {
    end: TlpEnd,
    core: GfdEndCore,
    up: bool,
    /// Settings that a reset restores: those of the first poll.
    initial: Option<Box<(Settings, Common)>>,
}

impl GfdEnd {
    /// `device` at the lower end of a link configured by `end`; the link carries TLPs with PTH, whatever `end` says.
    #[must_use]
    pub fn new(device: Device, config: GfdEndConfig, end: EndConfig) -> Self {
        let jobs = Jobs::new(end.payload_max, config.order);
        let end = TlpEnd::new(EndConfig { carries: Carries::Pbr, ..end }).lower();
        Self { end, core: GfdEndCore::new(device, config, jobs), up: false, initial: None }
    }

    /// Hands messages for the device, proxied commands among them, to `in_band`.
    pub fn set_in_band(&mut self, in_band: Box<dyn InBand>) {
        self.core.in_band = Some(in_band);
    }

    /// How many messages of hosts' edges were dropped because they belong to no active command, and the last of them,
    /// oldest first.
    #[must_use]
    pub fn stale(&self) -> (u64, Vec<Stale>) {
        self.core.in_band.as_ref().map_or((0, Vec::new()), |in_band| in_band.stale())
    }

    #[must_use]
    pub const fn gfd(&self) -> &Gfd {
        &self.core.device.gfd
    }

    /// The device, for commands past its FM.
    pub const fn gfd_mut(&mut self) -> &mut Gfd {
        &mut self.core.device.gfd
    }

    /// The device as a component, for a [`crate::cci::StreamServer`].
    pub const fn device(&mut self) -> &mut Device {
        &mut self.core.device
    }

    /// Carries out a CCI message for `session`, and appends the response to `out`.
    pub fn cci(
        &mut self,
        now: Instant,
        session: Session,
        message: &[u8],
        out: &mut Vec<u8>,
    ) -> Served {
        serve_cci(&mut self.core.device, now, session, message, out)
    }

    #[must_use]
    pub const fn counts(&self) -> (GfdCounts, EndCounts) {
        (self.core.counts, self.end.counts())
    }

    /// Counts of coherence; `None` if the device is not coherent.
    #[must_use]
    pub fn coherence(&self) -> Option<CoherenceCounts> {
        self.core.coherence.as_ref().map(snoops::Coherence::counts)
    }

    /// Next event about hosts that do not answer snoops.
    pub fn next_coherence_news(&mut self) -> Option<CoherenceNews> {
        self.core.coherence.as_mut()?.next_news()
    }

    /// Which hosts hold the line at an address of the device.
    #[must_use]
    pub fn holders(&self, dpa: Dpa) -> &[(Pid, Hold)] {
        self.core.coherence.as_ref().map_or(&[], |it| it.holders(dpa))
    }

    /// Partner information received since the link came up.
    #[must_use]
    pub const fn partner(&self) -> Option<PartnerInfo> {
        self.core.partner
    }

    /// The next notification (0107) that was sent to the FM, for display.
    pub fn next_notice(&mut self) -> Option<Notice> {
        self.core.notices.pop_front()
    }

    /// Like [`Self::next_notice`], but returns the payload.
    pub fn pop_fm(&mut self) -> Option<[u8; FM_LEN]> {
        let pid = self.core.device.gfd.pid();
        self.next_notice().map(|notice| notice.for_fm(pid))
    }

    /// Sets the device's PID, and sends partner information.
    pub fn set_pid(&mut self, now: Instant, pid: Pid) {
        self.core.device.set_pid(pid);
        self.announce(now);
    }

    /// Sends partner information to the other end of the link.
    pub fn announce(&mut self, now: Instant) {
        self.core.announce(now, self.end.outbox());
    }

    /// Takes in frames from the port, and sends the answers that are due.
    ///
    /// # Errors
    /// The port's own.
    pub fn poll(
        &mut self,
        now: Instant,
        port: &mut dyn Port,
        bufs: &mut Bufs,
    ) -> Result<Progress, PortError> {
        let Self { end, core, up, initial } = self;
        // Taken at the first poll: the device's owner has configured it by then, and no command has come by the link.
        let initial = initial.get_or_insert_with(|| Box::new(core.device.settings()));
        let was_up = core::mem::replace(up, port.link_up());
        let changed = core.device.take_change();
        if *up && !was_up {
            core.partner = None;
        }
        if *up && (!was_up || changed) && !end.is_in_reset() {
            core.announce(now, end.outbox());
        }
        if let Some(coherence) = &mut core.coherence {
            // Before anything is received: a request that is taken in after this gets no lease if a snoop to its host
            // is overdue (`coherence::snoops`).
            coherence.mark_overdue(now);
        }
        let bursts = match (core.ready_len() < JOBS_MAX, end.is_full()) {
            (true, false) => BURSTS,
            _ => usize::from(end.is_paused()), // else the frame that ends a pause is never read
        };
        let frames = end.receive(now, port, bufs, bursts, &mut |frame, out| {
            match frame.content {
                Received::Tlp(Some(pth), tlp) => core.take(now, pth, &tlp, out),
                Received::Mem(Some(pth), message) => core.take_mem(now, pth, &message),
                Received::Reset(Ordered::Begins) => core.reset(initial),
                Received::Reset(Ordered::Ends) => core.announce(now, out),
                _ => {}
            }
            // After each frame, not each burst: the snoop that this request causes must leave before the answer to a
            // later message in which its host gives up the line.
            core.settle_coherence(now);
        });
        // Due answers only: requests held up by their own requester's limit are no load of the device.
        let waiting = u32::try_from(core.ready_len()).unwrap_or(u32::MAX);
        core.device.gfd.sample_backlog(waiting, ROOM);
        // After receiving, so that refusals in these bursts are reported by the same poll.
        core.notify(end);
        core.tell_fm();
        let in_band = match &mut core.in_band {
            Some(in_band) => in_band.poll(now, &mut core.device, end.outbox()),
            None => None,
        };
        // Before lines and jobs run: it queues the answers to requests that no host holds up any more.
        let hosts = core.coherent_work(now, end);
        let gfd = &mut core.device.gfd;
        let lines = core.lines.run(now, end, |job, end| job.step(now, gfd, end, bufs));
        let next = Instant::earlier(in_band, core.jobs.run(now, &mut core.device.gfd, end, bufs));
        let next = Instant::earlier(Instant::earlier(lines, hosts), next);
        let sent = end.flush(now, port, bufs)?;
        Ok(Progress {
            frames: frames + sent.frames,
            blocked: sent.blocked || core.jobs.has_ready() || core.lines.has_ready(),
            next: match (sent.next, next) {
                (Some(a), Some(b)) => Some(a.min(b)),
                (a, b) => a.or(b),
            },
        })
    }

    pub fn release(&mut self, bufs: &mut Bufs) {
        self.end.release(bufs);
    }
}

/// [`JOBS_MAX`] as a `u32`: the capacity of which the backlog is a percentage.
#[expect(clippy::cast_possible_truncation, reason = "a small constant")]
const ROOM: u32 = JOBS_MAX as u32;
