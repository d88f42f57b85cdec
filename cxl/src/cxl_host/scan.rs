//! Accesses of the enumerator as TLPs: which of them cross the link, and of which type. [`Scan::step`] returns the next
//! [`ScanStep`]; its answer comes with the end of the transaction.
//!
//! Source: PCIe 6.0 section 2.2.4.2 (types 0 and 1); PCIe 6.0 section 2.3.1 (retry status).

use weft_dataplane::time::{Instant, Span};

use crate::pci::bridge::BusRoute;
use crate::pci::enumerate::{Request, Step};
use crate::pci::{Bridge, Enumerator, Reg};
use crate::requester::{Failure, OpId, Operation, Transaction};
use weft_parsers::tlp::Status;

/// Vendor ID that software reads from a function that is not ready (PCIe 6.0 section 2.3.1).
const NOT_READY: u32 = 0xFFFF_0001;

/// Progress of an enumerator.
#[derive(Debug)]
pub(super) struct Scan {
    enumerator: Enumerator,
    under_way: Option<(OpId, Request)>,
    until: Option<Instant>,
    retries: u16,
    unanswered: bool,
}

/// Next step for the host.
pub(super) enum ScanStep {
    /// Nothing, until an answer comes or the time of [`Scan::until`].
    Nothing,
    /// Access a register of the root port.
    Own(Request),
    /// Send this transaction, and call [`Scan::sent`].
    Send(Request, Transaction),
    /// The enumeration has ended.
    Finished,
}

impl Scan {
    pub(super) const fn new(enumerator: Enumerator) -> Self {
        Self { enumerator, under_way: None, until: None, retries: 0, unanswered: false }
    }

    pub(super) const fn enumerator(&self) -> &Enumerator {
        &self.enumerator
    }

    /// Whether an access got no answer, so the result may be incomplete.
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
                Request::Load { .. } | Request::Store { .. } => continue, // cannot happen: sent above
            };
            if dest.bus() == bus {
                // The root port is the only function on the host's first bus.
                if (dest.device(), dest.function()) == (0, 0) {
                    return ScanStep::Own(request);
                }
                self.enumerator.answer(None);
                continue;
            }
            // As the root port's own registers route: the enumerator may just have changed them.
            let type1 = match root.bus_route(dest.bus()) {
                _ if root.link().is_none() => None,
                BusRoute::Elsewhere => None,
                // A link has one device, number 0.
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

    /// Takes the end of a transaction; false if it is not the enumerator's.
    pub(super) fn take(&mut self, op: OpId, result: &Result<Vec<u8>, Failure>, max: u16) -> bool {
        let Some((_, request)) = self.under_way.take_if(|(other, _)| *other == op) else {
            return false;
        };
        let retry = *result == Err(Failure::Status(Status::RequestRetry));
        // A read of the Vendor ID shows retry status to software (CRS Software Visibility); any other request is
        // repeated.
        let vendor = matches!(request, Request::Read { reg, .. } if reg == Reg::at(0));
        if retry && !vendor && self.retries < max {
            self.retries += 1;
            return true; // the enumerator repeats the request
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
