//! Event log commands of the fabric manager: 0100h, 0101h, 0104h, 0105h.
//!
//! The logs themselves are [`EventLogs`](crate::event_log::EventLogs).
//!
//! Source: docs/spec/wire-formats.md §4.2 ("Events"); CXL 3.1 section 8.2.9.2.

use weft_cxl::cci::{Done, Reply};
use weft_parsers::cci::Response;
use weft_parsers::cci::generic::ClearEvents;

use super::DONE;
use crate::switch::Switch;

impl Switch {
    pub(super) fn event_records(&self, log: u8, reply: &mut Reply) -> Done {
        self.logs.get(log, |records| reply.send(&Response::GetEvents(records)))?
    }

    pub(super) fn clear_events(&mut self, request: &ClearEvents<'_>) -> Done {
        self.logs.clear(request)?;
        DONE
    }

    pub(super) fn event_policy(&self, reply: &mut Reply) -> Done {
        reply.send(&Response::GetMctpEvents(self.logs.policy()))
    }

    pub(super) fn set_event_policy(&mut self, policy: u16, reply: &mut Reply) -> Done {
        let policy = self.logs.set_policy(policy);
        reply.send(&Response::SetMctpEvents(policy))
    }
}
