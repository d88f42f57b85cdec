//! CXL.mem responses that are to be given.
//!
//! Shape: [`LineJobs`] writes those that are due into chunks; a line is read when it is written.
//! Units: lines of 64 bytes.
//! Source: docs/spec/cxl-fabric.md "CXL.mem".

use weft_dataplane::pool::Bufs;
use weft_dataplane::time::Instant;
use weft_parsers::cxl_mem::{LINE, MemHead, MemMessage, MemOp};
use weft_parsers::fabric::Hpa;
use weft_parsers::tlp::Pth;

use super::config::PLACED_MAX;
use super::due::DueQueue;
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

/// Responses that are to be given.
pub(super) type LineJobs = DueQueue<LineJob>;

impl LineJobs {
    /// Writes what is due into chunks, while there are any; returns when the next one is due.
    pub(super) fn run(
        &mut self,
        now: Instant,
        gfd: &mut Gfd,
        end: &mut TlpEnd,
        bufs: &mut Bufs,
    ) -> Option<Instant> {
        let next = self.ripen(now);
        while end.waiting() < PLACED_MAX
            && let Some(job) = self.front_mut()
        {
            if job.place(now, gfd, end, bufs) == Err(PlaceError::NoChunk) {
                break;
            }
            self.pop();
        }
        next
    }
}

impl LineJob {
    fn place(
        &mut self,
        now: Instant,
        gfd: &mut Gfd,
        end: &mut TlpEnd,
        bufs: &mut Bufs,
    ) -> Result<(), PlaceError> {
        let mut line = [0xFF; LINE];
        if let Some(hpa) = self.line {
            let request = Request { rpid: self.pth.dpid, hpa, opcode: None };
            match gfd.fetch_line(now, request, &mut line) {
                Ok(poison) => self.head.poison = poison,
                Err(_) => self.head.op = MemOp::MemDataNxm, // rights have gone since
            }
        }
        let message = MemMessage { head: self.head, data: Some(&line), enables: None };
        end.place_mem(bufs, Some(self.pth), &message)
    }
}
