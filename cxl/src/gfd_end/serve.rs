//! TLP requests: whether they are for the device, their effect, and their answer.
//!
//! [`GfdEndCore::take`] changes memory and queues a [`Job`] for the completion; a refused request raises a notification.
//!
//! Source: docs/spec/wire-formats.md §3.5 to §3.7, §4.6 (types 03 to 07), §5.2; PCIe 6.0 sections 2.3.1, 2.7.2.1
//! (poison).
//!
//! | request | answer |
//! |---|---|
//! | for another PID, or while the device has none | UR if there is a PID to answer by and to; unexpected packet |
//! | from SPID FFF | none, unexpected packet |
//! | poisoned write or atomic | UR, failure; nothing is written |
//! | refused by the tables | UR, as [`crate::gfd::Refusal::notice`] says |
//! | memory failed | CA, failure |
//! | locked, I/O, configuration, translation | UR, unrecognised |

use std::collections::VecDeque;

use weft_dataplane::time::Instant;
use weft_parsers::fabric::Hpa;
use weft_parsers::tlp::{At, Completion, Kind as TlpKind, Pth, Status, Tlp, vdm::PartnerInfo};

use super::component::Device;
use super::config::{GfdCounts, GfdEndConfig, JOBS_MAX};
use super::in_band::InBand;
use super::jobs::{Content, Job, Jobs};
use super::line_jobs::LineJobs;
use super::snoops::Coherence;
use crate::cci::Common;
use crate::coherence::waited::Waited;
use crate::gfd::device::Request;
use crate::gfd::device::Settings;
use crate::gfd::events::{Kind, Notice};
use crate::gfd::{Enables, Refusal};
use crate::tlp_end::Outbox;

/// The device and its pending answers.
#[derive(Debug)]
pub(super) struct GfdEndCore {
    pub device: Device,
    pub config: GfdEndConfig,
    pub jobs: Jobs,
    pub lines: LineJobs,
    pub coherence: Option<Coherence>,
    pub counts: GfdCounts,
    pub partner: Option<PartnerInfo>,
    pub announced: Option<Instant>,
    pub in_band: Option<Box<dyn InBand>>,
    /// Notifications that were sent to the fabric manager, kept for display.
    pub notices: VecDeque<Notice>,
}

/// Result of a request: time and load of its answer, and the content.
type Outcome = Result<(crate::gfd::device::Done, Content), Refusal>;

impl GfdEndCore {
    pub(super) fn new(device: Device, config: GfdEndConfig, jobs: Jobs) -> Self {
        Self {
            device,
            config,
            jobs,
            lines: LineJobs::new(JOBS_MAX),
            coherence: config.coherent.map(Coherence::new),
            counts: GfdCounts::default(),
            partner: None,
            announced: None,
            in_band: None,
            notices: VecDeque::new(),
        }
    }

    /// Number of answers that are due. Those held up by their requester's limit do not count: they are no load of the
    /// device and delay no other requester.
    pub(super) fn ready_len(&self) -> usize {
        self.jobs.ready_len() + self.lines.ready_len()
    }

    /// Conventional reset: drops all that is under way, and restores `initial` wherever commands have changed settings,
    /// allocations and owners among them. Memory keeps its bytes, and the snoop filter its record of copies.
    pub(super) fn reset(&mut self, initial: &(Settings, Common)) {
        self.device.reset(initial);
        self.jobs.clear();
        self.lines = LineJobs::new(JOBS_MAX);
        if let Some(coherence) = &mut self.coherence {
            coherence.reset();
        }
        (self.partner, self.announced) = (None, None);
        self.notices.clear();
        if let Some(in_band) = &mut self.in_band {
            in_band.reset();
        }
    }

    pub(super) fn take(&mut self, now: Instant, pth: Pth, tlp: &Tlp<'_>, out: &mut Outbox) {
        if let TlpKind::Message { .. } = tlp.kind() {
            return self.message(now, pth, tlp, out);
        }
        let hpa = tlp.addr().unwrap_or_default();
        let request = Request { rpid: pth.spid, hpa, opcode: None };
        if pth.spid.is_none() || pth.dpid != self.device.gfd.pid() || pth.dpid.is_none() {
            self.unexpected(now, request);
            if !tlp.is_completion() {
                self.answer_refused(now, pth, tlp, Status::UnsupportedRequest);
            }
            return;
        }
        match tlp.kind() {
            // Only requests with an answer: posted writes take no place in the queue, and endpoints sink them without
            // condition.
            _ if tlp.wants_completion() && !self.jobs.has_room(pth.spid) => {
                self.counts.overrun += 1;
            }
            TlpKind::Nop => {}
            // The device makes no requests, so no completion can be for it.
            _ if tlp.is_completion() => self.unexpected(now, request),
            kind if kind.is_memory()
                && kind != TlpKind::MemReadLocked
                && tlp.at() != At::TranslationRequest =>
            {
                if !self.must_wait(now, pth, tlp, Waited::NEVER) {
                    self.memory(now, pth, tlp, request);
                }
            }
            _ => {
                self.counts.unrecognised += 1;
                self.device.gfd.reject(now, request, Kind::UnrecognisedRequest);
                self.answer_refused(now, pth, tlp, Status::UnsupportedRequest);
            }
        }
    }

    pub(super) fn unexpected(&mut self, now: Instant, request: Request) {
        self.counts.unexpected += 1;
        self.device.gfd.reject(now, request, Kind::UnexpectedPacket);
    }

    /// Like [`Self::take`], for a request that has waited for hosts.
    pub(super) fn memory_again(&mut self, now: Instant, pth: Pth, tlp: &Tlp<'_>, waited: Waited) {
        if !self.must_wait(now, pth, tlp, waited) {
            let hpa = tlp.addr().unwrap_or_default();
            self.memory(now, pth, tlp, Request { rpid: pth.spid, hpa, opcode: None });
        }
    }

    fn memory(&mut self, now: Instant, pth: Pth, tlp: &Tlp<'_>, request: Request) {
        let kind = tlp.kind();
        // Not written and reported: no byte of a poisoned request may become good data in memory (PCIe 6.0, 2.7.2.1).
        if tlp.ep() && kind.has_data() {
            self.device.gfd.reject(now, request, Kind::Failure);
            return self.answer_refused(now, pth, tlp, Status::UnsupportedRequest);
        }
        let outcome = match kind {
            TlpKind::UioRead | TlpKind::MemRead => self.read(now, tlp, request),
            TlpKind::FetchAdd | TlpKind::Swap | TlpKind::Cas => self.atomic(now, tlp, request),
            _ => self.write(now, tlp, request),
        };
        match outcome {
            Ok((done, content)) => {
                let answer = Completion::of(tlp, Status::Success, self.config.completer);
                if let Some(answer) = answer {
                    let pth = self.back(pth);
                    let job = Job { due: done.due, pth, answer, load: done.load, content };
                    self.jobs.push(now, job);
                }
            }
            Err(Refusal::Memory) => self.answer_refused(now, pth, tlp, Status::CompleterAbort),
            Err(_) => self.answer_refused(now, pth, tlp, Status::UnsupportedRequest),
        }
    }

    fn read(&mut self, now: Instant, tlp: &Tlp<'_>, request: Request) -> Outcome {
        let none = tlp.length_dw() == 1 && tlp.first_be() == 0;
        let len = if none { 0 } else { usize::from(tlp.length_dw()) * 4 };
        let done = self.device.gfd.admit(now, request, len)?;
        self.counts.reads += 1;
        self.counts.bytes_read += len as u64;
        // A read of zero bytes (one doubleword, no enables) is answered with one doubleword of undefined data (PCIe
        // 6.0, 2.2.5).
        let content = if none {
            Content::Kept([0; _], 4)
        } else {
            Content::Memory { hpa: request.hpa, from: 0, to: len }
        };
        Ok((done, content))
    }

    fn write(&mut self, now: Instant, tlp: &Tlp<'_>, request: Request) -> Outcome {
        let enables = Enables::Ends { first: tlp.first_be(), last: tlp.last_be() };
        let done = self.device.gfd.write(now, request, tlp.payload(), enables)?;
        self.counts.writes += 1;
        self.counts.bytes_written += tlp.payload().len() as u64;
        Ok((done, Content::Status))
    }

    /// Answers a refused request, if it has an answer and both ends have a PID.
    pub(super) fn answer_refused(&mut self, now: Instant, pth: Pth, tlp: &Tlp<'_>, status: Status) {
        let Some(answer) = Completion::of(tlp, status, self.config.completer) else {
            self.counts.refused_posted += 1;
            return;
        };
        if pth.spid.is_none() || self.device.gfd.pid().is_none() {
            return; // no requester to send an answer to, or no PID to send it by
        }
        self.counts.refused += 1;
        let (pth, load, content) = (self.back(pth), self.device.gfd.load(), Content::Status);
        self.jobs.push(now, Job { due: now, pth, answer, load, content });
    }

    /// PTH of the answer: PIDs exchanged, no flag set.
    pub(super) const fn back(&self, pth: Pth) -> Pth {
        Pth::new(self.device.gfd.pid(), pth.spid)
    }
}

/// Address in notifications about messages, which have none.
pub(super) const NOWHERE: Hpa = Hpa(0);
