//! CXL.mem requests: whether they are for the device, their effect, and their answer.
//!
//! [`GfdEndCore::take_mem`] changes memory and queues a [`LineJob`] for the response; a refused request raises a
//! notification.
//!
//! Source: docs/spec/cxl-fabric.md "CXL.mem"; docs/spec/wire-formats.md §3.9, §4.6 (types 03 to 07).

use weft_dataplane::time::Instant;
use weft_parsers::cxl_mem::{LINE, MemHead, MemMessage, MemOp};
use weft_parsers::tlp::Pth;

use super::coherent::is_write_back;
use super::line_jobs::LineJob;
use super::serve::GfdEndCore;
use crate::gfd::device::{Done, Request};
use crate::gfd::events::Kind;
use crate::gfd::{Enables, Refusal};

/// Whether an opcode accesses a line here: forwards are not offered, and `take_back_invalidate` takes `BIConflict`.
const fn is_of_line(op: MemOp) -> bool {
    !matches!(op, MemOp::MemRdFwd | MemOp::MemWrFwd | MemOp::BiConflict)
}

impl GfdEndCore {
    pub(super) fn take_mem(&mut self, now: Instant, pth: Pth, message: &MemMessage<'_>) {
        let head = &message.head;
        let opcode = Some(head.op as u8 & 0xF);
        let request = Request { rpid: pth.spid, hpa: head.addr, opcode };
        let own = self.device.gfd.pid();
        let is_ours = !pth.spid.is_none() && pth.dpid == own && !own.is_none();
        // Before any bound: a host's answer lets others' requests go on, and must not be dropped because requests fill
        // the queue.
        if is_ours && self.take_back_invalidate(now, pth, head) {
            return;
        }
        if !is_ours || !head.op.class().is_request() {
            self.unexpected(now, request);
            return self.answer_mem_refused(now, pth, head);
        }
        if !self.lines.has_room(pth.spid) {
            self.counts.overrun += 1;
            return;
        }
        let outcome = match head.op {
            MemOp::MemSpecRd => return, // a hint that has no answer
            _ if self.coherence.is_some() && is_of_line(head.op) => {
                if self.take_coherent(now, pth, message).is_err() {
                    self.answer_mem_refused(now, pth, head);
                }
                return;
            }
            // The line is read when its response is written (`LineJob::step`), at the time that the limit allows.
            MemOp::MemRd | MemOp::MemRdData => self.device.gfd.admit(now, request, LINE),
            MemOp::MemWr | MemOp::MemWrPtl => self.store(now, request, message),
            MemOp::MemInv | MemOp::MemInvNT | MemOp::MemClnEvct => {
                self.device.gfd.admit(now, request, 0)
            }
            _ => {
                self.counts.unrecognised += 1;
                self.device.gfd.reject(now, request, Kind::UnrecognisedRequest);
                return self.answer_mem_refused(now, pth, head);
            }
        };
        let Ok(done) = outcome else { return self.answer_mem_refused(now, pth, head) };
        let reads = matches!(head.op, MemOp::MemRd | MemOp::MemRdData);
        if reads {
            self.counts.reads += 1;
            self.counts.bytes_read += LINE as u64;
        }
        let op = if reads { MemOp::MemData } else { MemOp::Cmp };
        let head = MemHead { load: done.load.wire(), ..MemHead::new(op, head.tag) };
        let job = LineJob { pth: self.back(pth), head, line: reads.then_some(request.hpa) };
        self.lines.push(now, done.due, job);
    }

    pub(super) fn store(
        &mut self,
        now: Instant,
        request: Request,
        message: &MemMessage<'_>,
    ) -> Result<Done, Refusal> {
        let gfd = &mut self.device.gfd;
        let done = match (message.head.poison, message.data) {
            // Poison = 1 marks the line and keeps its old bytes.
            (true, _) | (false, None) => gfd.poison_line(now, request)?,
            (false, Some(line)) => match message.enables {
                Some(mask) => gfd.write_in_part(now, request, line, mask)?,
                None => gfd.write(now, request, line, Enables::All)?,
            },
        };
        self.counts.writes += 1;
        self.counts.bytes_written += LINE as u64;
        Ok(done)
    }

    /// Answers a refused request, if it has an answer and both ends have a PID.
    pub(super) fn answer_mem_refused(&mut self, now: Instant, pth: Pth, request: &MemHead) {
        let own = self.device.gfd.pid();
        let Some(op) = request.op.refusal().filter(|_| !pth.spid.is_none() && !own.is_none())
        else {
            return; // no requester to send an answer to, or no PID to send it by
        };
        self.counts.refused += 1;
        let load = self.device.gfd.load().wire();
        // The host drops a line that it writes back, so it must learn that these bytes are lost.
        let poison = self.coherence.is_some() && is_write_back(request);
        let head = MemHead { load, poison, ..MemHead::new(op, request.tag) };
        self.lines.push(now, now, LineJob { pth: self.back(pth), head, line: None });
    }
}
