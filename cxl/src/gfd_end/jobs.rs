//! Completions in preparation: when they are due, for whom, and their content.
//!
//! [`Jobs`] keeps due completions in order of arrival, and the others until they are due. [`Jobs::run`] writes them
//! into chunks, the data of a read in pieces of `Max_Payload_Size`.
//!
//! Source: docs/spec/wire-formats.md §3.6; PCIe 6.0 section 2.3.1.1 (how completions of a read are cut).

use weft_dataplane::pool::Bufs;
use weft_dataplane::time::Instant;
use weft_parsers::fabric::{Hpa, Pid};
use weft_parsers::tlp::{Body, Kind, Pth, Status, TlpRepr};

use super::config::{JOBS_MAX, Order};
use super::due::{DueJob, DueQueue, JobStep};
use crate::gfd::device::Request;
use crate::gfd::{Gfd, Refusal, qos};
use crate::tlp_end::{PlaceError, TlpEnd};

/// Most bytes stored in a job: the old value that an atomic returns.
pub(super) const KEPT_MAX: usize = 16;

/// Content of a completion.
#[derive(Clone, Copy, Debug)]
pub(super) enum Content {
    /// No data: a status alone.
    Status,
    /// This many of these bytes.
    Kept([u8; KEPT_MAX], usize),
    /// Memory from `hpa` on, of which bytes `from..to` are still to be sent.
    Memory { hpa: Hpa, from: usize, to: usize },
}

/// A completion to be sent.
#[derive(Clone, Copy, Debug)]
pub(super) struct Job {
    /// Earliest time to send it.
    pub due: Instant,
    /// PTH of the completion: the requester is its DPID.
    pub pth: Pth,
    /// Completion of the request, as if it had no data.
    pub answer: TlpRepr<'static>,
    /// Load of the device to report (UIO).
    pub load: qos::DevLoad,
    pub content: Content,
}

impl DueJob for Job {
    fn requester(&self) -> Pid {
        self.pth.dpid
    }
}

/// Completions to be sent.
#[derive(Debug)]
pub(super) struct Jobs {
    queue: DueQueue<Job>,
    payload_max: usize,
    order: Order,
}

impl Jobs {
    pub(super) fn new(payload_max: usize, order: Order) -> Self {
        // The range of Max_Payload_Size (PCIe 6.0, 7.5.3.4), in whole doublewords.
        let payload_max = payload_max.clamp(128, 4_096) & !3;
        Self { queue: DueQueue::new(JOBS_MAX), payload_max, order }
    }

    pub(super) fn has_room(&self, requester: Pid) -> bool {
        self.queue.has_room(requester)
    }

    pub(super) fn ready_len(&self) -> usize {
        self.queue.ready_len()
    }

    /// Drops all jobs: their requests get no answer.
    pub(super) fn clear(&mut self) {
        self.queue = DueQueue::new(JOBS_MAX);
    }

    pub(super) fn has_ready(&self) -> bool {
        self.queue.has_ready()
    }

    pub(super) fn push(&mut self, now: Instant, job: Job) {
        self.queue.push(now, job.due, job);
    }

    /// Writes due completions into chunks, while chunks are free; returns when the next one is due.
    pub(super) fn run(
        &mut self,
        now: Instant,
        gfd: &mut Gfd,
        end: &mut TlpEnd,
        bufs: &mut Bufs,
    ) -> Option<Instant> {
        let (payload_max, order) = (self.payload_max, self.order);
        self.queue.run(now, end, |job, end| job.step(now, payload_max, order, gfd, end, bufs))
    }
}

impl Job {
    /// Writes the next piece into a chunk.
    fn step(
        &mut self,
        now: Instant,
        payload_max: usize,
        order: Order,
        gfd: &mut Gfd,
        end: &mut TlpEnd,
        bufs: &mut Bufs,
    ) -> JobStep {
        let pth = Some(self.pth);
        let mut status = Status::UnsupportedRequest;
        let placed = match self.content {
            Content::Status => {
                let answer = self.piece(0, 0);
                end.place(bufs, pth, &answer, 0, |_| true)
            }
            Content::Kept(bytes, len) => {
                let answer = self.piece(0, len);
                end.place(bufs, pth, &answer, len, |place| {
                    let data = bytes.get(..place.len());
                    data.is_some_and(|data| {
                        place.copy_from_slice(data);
                        true
                    })
                })
            }
            Content::Memory { hpa, from, to } => {
                let backward = order == Order::Backward && self.answer.kind.is_uio_completion();
                let (at, upto) = cut(hpa, from, to, payload_max, backward);
                let answer = self.piece(at, upto - at);
                let request =
                    Request { rpid: self.pth.dpid, hpa: Hpa(hpa.0 + at as u64), opcode: None };
                // Checked again, piece by piece: the requester may have lost its rights since the request was admitted.
                let placed = end.place(bufs, pth, &answer, upto - at, |place| {
                    let fetched = gfd.fetch(now, request, place);
                    if fetched == Err(Refusal::Memory) {
                        status = Status::CompleterAbort;
                    }
                    fetched.is_ok()
                });
                let left = if backward { (from, at) } else { (upto, to) };
                if placed.is_ok() && left.0 < left.1 {
                    self.content = Content::Memory { hpa, from: left.0, to: left.1 };
                    return JobStep::More;
                }
                placed
            }
        };
        match placed {
            Err(PlaceError::NoChunk) => JobStep::Wait,
            // `fetch` refused: the rest of the read ends with one completion that has a status and no data.
            Err(PlaceError::Unfilled) => {
                self.content = Content::Status;
                self.refuse(status);
                JobStep::More
            }
            // Any other error: this completion cannot be written at all, as its request has no such answer.
            Ok(()) | Err(PlaceError::Send(_)) => JobStep::Done,
        }
    }

    /// Makes it report a failed request.
    pub(super) const fn refuse(&mut self, with: Status) {
        if let Body::Completion { status, .. } | Body::UioCompletion { status, .. } =
            &mut self.answer.body
        {
            *status = with;
        }
    }

    /// Header of the completion with bytes `at..at + len` of the read.
    fn piece(&self, at: usize, len: usize) -> TlpRepr<'static> {
        let mut answer = self.answer;
        if len > 0 {
            answer.kind = match answer.kind {
                Kind::Completion { locked, .. } => Kind::Completion { locked, data: true },
                Kind::UioReadCompletion { .. } => Kind::UioReadCompletion { data: true },
                other => other,
            };
        }
        match &mut answer.body {
            Body::UioCompletion { dev_load, offset_dw, .. } => {
                *dev_load = self.load.wire();
                *offset_dw = u16::try_from(at / 4).unwrap_or_default();
            }
            Body::Completion { byte_count, lower_address, .. } if at > 0 => {
                // Byte Count and Lower Address begin at the first enabled byte, while `at` counts from its doubleword
                // (PCIe 6.0, 2.3.1.1).
                let done = at - usize::from(*lower_address % 4);
                *byte_count = byte_count.saturating_sub(u16::try_from(done).unwrap_or_default());
                let [.., low] = (usize::from(*lower_address) + done).to_be_bytes();
                *lower_address = low & 0x7F;
            }
            _ => {}
        }
        answer
    }
}

/// The next piece of bytes `from..to` behind `hpa`, the last one if `last`. Inner ends of pieces lie at multiples of
/// `payload_max`, as completions may be cut only at such addresses.
fn cut(hpa: Hpa, from: usize, to: usize, payload_max: usize, last: bool) -> (usize, usize) {
    let most = payload_max as u64;
    if last {
        let begin = (hpa.0 + to as u64 - 1) / most * most;
        let at = usize::try_from(begin.saturating_sub(hpa.0)).unwrap_or(from);
        (at.max(from), to)
    } else {
        let begin = hpa.0 + from as u64;
        let room = usize::try_from(most - begin % most).unwrap_or(payload_max);
        (from, to.min(from + room))
    }
}
