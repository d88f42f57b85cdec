//! CXL.mem through an HBR switch: requests go down by the decoders of the upstream port, answers go up from the port
//! that the request went to.
//!
//! An answer has no address, so its tag decides: the port that the last request with this tag went to may answer it.
//!
//! Source: CXL 3.1 sections 8.2.4.20, 9.13; docs/spec/cxl-fabric.md "CXL.mem through HBR switches".

use weft_parsers::cxl_mem::{LINE, MemClass, MemHead, MemMessage};

use super::HbrSwitch;
use crate::mem::refusal;
use crate::pci::Uncorrectable;

/// Counts of CXL.mem messages at an HBR switch.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, serde::Serialize)]
pub struct HbrMemCounts {
    /// Requests that went down.
    pub requests: u64,
    /// Answers that went up.
    pub answers: u64,
    /// Requests for lines that no committed decoder has: refused.
    pub no_hdm_decoder: u64,
    /// Requests for a port that does not exist, or whose link is down: refused.
    pub no_link: u64,
    /// Answers from a port that no request by that tag went to: dropped.
    pub unexpected: u64,
    /// Requests from below, and answers from above: dropped.
    pub wrong_direction: u64,
    /// Snoops and answers to them, which do not go through HBR switches: dropped.
    pub no_back_invalidate: u64,
}

/// A received message, and the link that it came in by.
pub(super) struct MemTransit {
    pub from: usize,
    head: MemHead,
    data: Option<Box<[u8; LINE]>>,
    enables: Option<u64>,
}

impl MemTransit {
    pub(super) fn new(from: usize, message: &MemMessage<'_>) -> Self {
        let data = message.data.map(|line| Box::new(*line));
        Self { from, head: message.head, data, enables: message.enables }
    }

    fn message(&self) -> MemMessage<'_> {
        MemMessage { head: self.head, data: self.data.as_deref(), enables: self.enables }
    }
}

/// Link that the last request of each tag went to; 0: none may answer.
pub(super) struct Asked(Vec<u8>);

impl Default for Asked {
    fn default() -> Self {
        Self(vec![0; 1 << 16])
    }
}

impl Asked {
    fn set(&mut self, tag: u16, port: u8) {
        if let Some(place) = self.0.get_mut(usize::from(tag)) {
            *place = port;
        }
    }

    fn is(&self, tag: u16, port: usize) -> bool {
        port > 0 && self.0.get(usize::from(tag)).is_some_and(|asked| usize::from(*asked) == port)
    }

    /// Forgets all requests to `port`; 0: to all ports.
    pub(super) fn forget(&mut self, port: usize) {
        for asked in self.0.iter_mut().filter(|asked| port == 0 || usize::from(**asked) == port) {
            *asked = 0;
        }
    }
}

impl HbrSwitch {
    /// Sends a message on, refuses it, or drops it.
    pub(super) fn route_mem(&mut self, transit: &MemTransit) {
        let class = transit.head.op.class();
        let counts = &mut self.counts.mem;
        let reason = match class {
            MemClass::BiSnp | MemClass::BiRsp => &mut counts.no_back_invalidate,
            _ if class.is_request() == (transit.from == 0) => return self.route_sound(transit),
            _ => &mut counts.wrong_direction,
        };
        *reason += 1;
        self.counts.dropped += 1;
    }

    /// Routes a request from above, or an answer from below.
    fn route_sound(&mut self, transit: &MemTransit) {
        let head = &transit.head;
        if transit.from > 0 {
            if !self.asked.is(head.tag, transit.from) || !self.pass_mem(transit, 0) {
                self.counts.mem.unexpected += 1;
                self.counts.dropped += 1;
                return;
            }
            self.counts.mem.answers += 1;
            self.counts.passed += 1;
            return;
        }
        let len = LINE as u64;
        let hdm = self.component.hdm();
        let Some(port) = hdm.and_then(|hdm| hdm.target(head.addr, len, false)) else {
            self.counts.mem.no_hdm_decoder += 1;
            return self.refuse_mem(transit);
        };
        if port == 0 || !self.pass_mem(transit, port.into()) {
            self.counts.mem.no_link += 1;
            return self.refuse_mem(transit);
        }
        // A request without answer (MemSpecRd) must not take the tag from one that waits for its answer.
        if head.op.refusal().is_some() {
            self.asked.set(head.tag, port);
        }
        self.counts.mem.requests += 1;
        self.counts.passed += 1;
    }

    /// Sends it out by a link; false if that does not pass messages.
    fn pass_mem(&mut self, transit: &MemTransit, to: usize) -> bool {
        let end = self.open_end(to);
        end.is_some_and(|end| end.outbox().send_mem(None, &transit.message()).is_ok())
    }

    //= docs/spec/cxl-fabric.md CXL.mem: a load gets ones, all else Cmp
    fn refuse_mem(&mut self, transit: &MemTransit) {
        let answered = refusal(&transit.head).is_some_and(|(head, ones)| {
            let data = ones.then_some(&[0xFF; LINE]);
            let message = MemMessage { head, data, enables: None };
            let end = self.ends.first_mut();
            end.is_some_and(|end| end.outbox().send_mem(None, &message).is_ok())
        });
        if answered {
            // The switch has answered by this tag, so no port below may do so.
            self.asked.set(transit.head.tag, 0);
            self.counts.refused += 1;
        } else {
            self.counts.dropped += 1;
        }
        // Counts as an Unsupported Request like a refused TLP (docs/spec/cxl-fabric.md "CXL.mem").
        let error = Uncorrectable::UnsupportedRequest;
        let upstream = self.bridges.first_mut();
        if let Some(message) = upstream.and_then(|it| it.report(error, !answered, [0; 4])) {
            self.error(0, message);
        }
    }
}
