//! Requests: whether they are for the device, what it does, and what is answered.
//!
//! [`Core::take`]: PTH and TLP in; memory changed, a [`Job`] for the answer, a notification of what is wrong.
//!
//! Units: bytes.
//! Source: docs/spec/wire-formats.md §3.5 to §3.7, §4.6 (types 03 to 07), §5.2; PCIe 6.0 sections 2.3.1, 2.7.2.1
//! (poison).
//!
//! | request | answer |
//! |---|---|
//! | for another PID, or while the device has none | UR if it can be said, unexpected packet |
//! | from nobody (SPID FFF) | none, unexpected packet |
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

/// The device, and what it owes.
#[derive(Debug)]
pub(super) struct Core {
    pub device: Device,
    pub config: GfdEndConfig,
    pub jobs: Jobs,
    pub lines: LineJobs,
    pub coherence: Option<Coherence>,
    pub counts: GfdCounts,
    pub partner: Option<PartnerInfo>,
    pub announced: Option<Instant>,
    pub in_band: Option<Box<dyn InBand>>,
    /// Of which the fabric manager has been told, for people.
    pub notices: VecDeque<Notice>,
}

/// How a request went: when its answer is due, the load, and what goes into it.
type Outcome = Result<(crate::gfd::device::Done, Content), Refusal>;

impl Core {
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

    /// Answers that are due: what a requester's limit holds up is no load of the device, and nothing to the others.
    pub(super) fn ready_len(&self) -> usize {
        self.jobs.ready_len() + self.lines.ready_len()
    }

    /// Conventional reset: nothing of what was under way goes on, and all that commands have set is as in `initial`. Memory keeps
    /// its bytes, and the snoop filter which lines hosts hold; which bytes are whose, and who owns the device, is gone.
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

    /// Takes in a TLP.
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
            _ if tlp.wants_completion() && !self.jobs.has_room(pth.spid) => {
                self.counts.overrun += 1;
            }
            TlpKind::Nop => {}
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

    /// As [`Self::take`], of a request that waited for hosts.
    pub(super) fn memory_again(&mut self, now: Instant, pth: Pth, tlp: &Tlp<'_>, waited: Waited) {
        if !self.must_wait(now, pth, tlp, waited) {
            let hpa = tlp.addr().unwrap_or_default();
            self.memory(now, pth, tlp, Request { rpid: pth.spid, hpa, opcode: None });
        }
    }

    fn memory(&mut self, now: Instant, pth: Pth, tlp: &Tlp<'_>, request: Request) {
        let kind = tlp.kind();
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
        // one of no bytes is answered with a doubleword that says nothing
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

    /// Says that nothing came of a request, if anyone waits for it and can be told.
    pub(super) fn answer_refused(&mut self, now: Instant, pth: Pth, tlp: &Tlp<'_>, status: Status) {
        let Some(answer) = Completion::of(tlp, status, self.config.completer) else {
            self.counts.refused_posted += 1;
            return;
        };
        if pth.spid.is_none() || self.device.gfd.pid().is_none() {
            return; // nobody to tell, or nobody who tells
        }
        self.counts.refused += 1;
        let (pth, load, content) = (self.back(pth), self.device.gfd.load(), Content::Status);
        self.jobs.push(now, Job { due: now, pth, answer, load, content });
    }

    /// The way back: PIDs exchanged, no bit set.
    pub(super) const fn back(&self, pth: Pth) -> Pth {
        Pth::new(self.device.gfd.pid(), pth.spid)
    }
}

/// Place of a request for notifications that have none.
pub(super) const NOWHERE: Hpa = Hpa(0);
