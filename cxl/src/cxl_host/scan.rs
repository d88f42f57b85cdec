//! The enumerator's accesses as TLPs: which of them cross the link, and of which type.
//! [`Scan::step`] → [`ScanStep`]; its answer comes with the transaction's end.
//!
//! Units: nanoseconds.
//! Source: PCIe 6.0 section 2.2.4.2 (types 0 and 1); PCIe 6.0 section 2.3.1 (retry status).

use weft_dataplane::time::{Instant, Span};

use crate::pci::bridge::BusRoute;
use crate::pci::enumerate::{Request, Step};
use crate::pci::{Bridge, Enumerator, Reg};
use crate::requester::{Failure, OpId, Operation, Transaction};
use weft_parsers::tlp::Status;

/// What a read of the Vendor ID answers for a function that is not ready (PCIe 6.0 section 2.3.1).
const NOT_READY: u32 = 0xFFFF_0001;

/// Where the enumerator stands.
#[derive(Debug)]
pub(super) struct Scan {
    enumerator: Enumerator,
    under_way: Option<(OpId, Request)>,
    until: Option<Instant>,
    retries: u16,
    unanswered: bool,
}

/// What the host has to do for it.
pub(super) enum ScanStep {
    /// Nothing until an answer comes, or until then.
    Nothing,
    /// Access the root port's own registers.
    Own(Request),
    /// Send this, and tell [`Scan::sent`].
    Send(Request, Transaction),
    /// It is finished.
    Finished,
}

impl Scan {
    pub(super) const fn new(enumerator: Enumerator) -> Self {
        Self { enumerator, under_way: None, until: None, retries: 0, unanswered: false }
    }

    pub(super) const fn enumerator(&self) -> &Enumerator {
        &self.enumerator
    }

    /// Whether an access was lost: what was found is not all that is there, perhaps.
    pub(super) const fn is_unanswered(&self) -> bool {
        self.unanswered
    }

    pub(super) const fn until(&self) -> Option<Instant> {
        self.until
    }

    pub(super) fn step(&mut self, now: Instant, bus: u8, root: &Bridge) -> ScanStep {
        if self.under_way.is_some() || self.until.is_some_and(|until| now < until) {
            return ScanStep::Nothing;
        }
        if self.until.take().is_some() {
            self.enumerator.answer(None);
        }
        loop {
            let request = match self.enumerator.step() {
                Step::Done => return ScanStep::Finished,
                Step::Do(request) => request,
            };
            if let Request::Load { addr } | Request::Store { addr, .. } = request {
                if root.link().is_none() {
                    self.enumerator.answer(None); // nobody is there
                    continue;
                }
                let what = match request {
                    Request::Store { value, .. } => {
                        Operation::Write { addr, data: value.to_le_bytes().to_vec() }
                    }
                    _ => Operation::Read { addr, len: 4 },
                };
                return ScanStep::Send(request, what.into());
            }
            let (dest, what) = match request {
                Request::Wait { ns } => {
                    self.until = Some(now + Span::from_ns(ns));
                    return ScanStep::Nothing;
                }
                Request::Read { bdf, reg } => (bdf, (reg, None)),
                Request::Write { bdf, reg, value, enables } => (bdf, (reg, Some((value, enables)))),
                Request::Load { .. } | Request::Store { .. } => continue, // sent before
            };
            if dest.bus() == bus {
                if (dest.device(), dest.function()) == (0, 0) {
                    return ScanStep::Own(request);
                }
                self.enumerator.answer(None);
                continue;
            }
            let type1 = match root.bus_route(dest.bus()) {
                _ if root.link().is_none() => None,
                BusRoute::Elsewhere => None,
                BusRoute::Secondary => (dest.device() == 0).then_some(false),
                BusRoute::Below => Some(true),
            };
            let Some(type1) = type1 else {
                self.enumerator.answer(None); // nobody is there
                continue;
            };
            let what = match what {
                (reg, None) => Operation::ConfigRead { dest, reg, type1 },
                (reg, Some((value, enables))) => {
                    Operation::ConfigWrite { dest, reg, type1, value, enables }
                }
            };
            return ScanStep::Send(request, what.into());
        }
    }

    pub(super) const fn sent(&mut self, op: OpId, request: Request) {
        self.under_way = Some((op, request));
    }

    pub(super) fn own(&mut self, value: Option<u32>) {
        self.enumerator.answer(value);
    }

    /// Takes a transaction's end if it is the enumerator's; otherwise gives it back.
    pub(super) fn take(&mut self, op: OpId, result: &Result<Vec<u8>, Failure>, max: u16) -> bool {
        let Some((_, request)) = self.under_way.take_if(|(other, _)| *other == op) else {
            return false;
        };
        let retry = *result == Err(Failure::Status(Status::RequestRetry));
        let vendor = matches!(request, Request::Read { reg, .. } if reg == Reg::at(0));
        if retry && !vendor && self.retries < max {
            self.retries += 1;
            return true; // the enumerator asks the same again
        }
        self.retries = 0;
        self.unanswered |= *result == Err(Failure::Timeout);
        let value = match result {
            Ok(bytes) => bytes.first_chunk().copied().map(u32::from_le_bytes),
            Err(_) if retry && vendor => Some(NOT_READY),
            Err(_) => None,
        };
        self.enumerator.answer(value);
        true
    }
}
