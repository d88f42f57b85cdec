//! CXL.mem responses in preparation. [`LineJob::step`] reads the line, if the response carries one, as it writes the
//! response into a chunk.
//!
//! Source: docs/spec/cxl-fabric.md "CXL.mem".

use weft_dataplane::pool::Bufs;
use weft_dataplane::time::Instant;
use weft_parsers::cxl_mem::{LINE, MemHead, MemMessage, MemOp};
use weft_parsers::fabric::{Hpa, Pid};
use weft_parsers::tlp::Pth;

use super::due::{DueJob, DueQueue, JobStep};
use crate::gfd::Gfd;
use crate::gfd::device::Request;
use crate::tlp_end::{PlaceError, TlpEnd};

/// A response to be sent.
#[derive(Clone, Copy, Debug)]
pub(super) struct LineJob {
    /// PTH of the response: the requester is its DPID.
    pub pth: Pth,
    /// Fields of the response; load and lease are those of its request.
    pub head: MemHead,
    /// Address, for the requester, of the line that it carries.
    pub line: Option<Hpa>,
}

impl DueJob for LineJob {
    fn requester(&self) -> Pid {
        self.pth.dpid
    }
}

/// Responses to be sent.
pub(super) type LineJobs = DueQueue<LineJob>;

impl LineJob {
    /// Writes the response into a chunk, if one is free.
    pub(super) fn step(
        &mut self,
        now: Instant,
        gfd: &mut Gfd,
        end: &mut TlpEnd,
        bufs: &mut Bufs,
    ) -> JobStep {
        // Ones: the data of MemData-NXM (docs/spec/cxl-fabric.md "CXL.mem").
        let mut line = [0xFF; LINE];
        if let Some(hpa) = self.line {
            let request = Request { rpid: self.pth.dpid, hpa, opcode: None };
            match gfd.fetch_line(now, request, &mut line) {
                Ok(poison) => self.head.poison = poison,
                Err(_) => self.head.op = MemOp::MemDataNxm, // it has lost its right to the line since
            }
        }
        let message = MemMessage { head: self.head, data: Some(&line), enables: None };
        match end.place_mem(bufs, Some(self.pth), &message) {
            // Any other error means that the message cannot be written at all, now or later.
            Err(PlaceError::NoChunk) => JobStep::Wait,
            _ => JobStep::Done,
        }
    }
}
