//! CXL.mem responses that are to be given.
//!
//! [`LineJob::step`] writes one of [`LineJobs`] into a chunk; its line is read then.
//!
//! Units: lines of 64 bytes.
//! Source: docs/spec/cxl-fabric.md "CXL.mem".

use weft_dataplane::pool::Bufs;
use weft_dataplane::time::Instant;
use weft_parsers::cxl_mem::{LINE, MemHead, MemMessage, MemOp};
use weft_parsers::fabric::{Hpa, Pid};
use weft_parsers::tlp::Pth;

use super::due::{DueQueue, JobStep, Owed};
use crate::gfd::Gfd;
use crate::gfd::device::Request;
use crate::tlp_end::{PlaceError, TlpEnd};

/// A response that is to be given.
#[derive(Clone, Copy, Debug)]
pub(super) struct LineJob {
    /// Its way.
    pub pth: Pth,
    /// Its fields.
    pub head: MemHead,
    /// The line that it brings.
    pub line: Option<Hpa>,
}

impl Owed for LineJob {
    fn requester(&self) -> Pid {
        self.pth.dpid
    }
}

/// Responses that are to be given.
pub(super) type LineJobs = DueQueue<LineJob>;

impl LineJob {
    /// Writes it into a chunk, if there is one.
    pub(super) fn step(
        &mut self,
        now: Instant,
        gfd: &mut Gfd,
        end: &mut TlpEnd,
        bufs: &mut Bufs,
    ) -> JobStep {
        let mut line = [0xFF; LINE];
        if let Some(hpa) = self.line {
            let request = Request { rpid: self.pth.dpid, hpa, opcode: None };
            match gfd.fetch_line(now, request, &mut line) {
                Ok(poison) => self.head.poison = poison,
                Err(_) => self.head.op = MemOp::MemDataNxm, // rights have gone since
            }
        }
        let message = MemMessage { head: self.head, data: Some(&line), enables: None };
        match end.place_mem(bufs, Some(self.pth), &message) {
            Err(PlaceError::NoChunk) => JobStep::Wait,
            _ => JobStep::Done,
        }
    }
}
