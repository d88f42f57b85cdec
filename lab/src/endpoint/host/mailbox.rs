//! Mailbox commands of a host, and the notification ring, which is placed and read by them.
//!
//! Responses of the host's mailbox answer commands by number.
//!
//! Source: docs/endpoint.md; docs/spec/wire-formats.md §4.6, §5.4.

use weft_cxl::completer::Target;
use weft_cxl::cxl_host::mailbox::{MailboxFailure, Response, Ring, blocks};
use weft_dataplane::time::Instant;
use weft_parsers::cci::ReturnCode;
use weft_parsers::fabric::{Bdf, Hpa};
use weft_rpc::Refused;

use super::{HostEndpoint, Waiting, Waits};
use crate::endpoint::command::Answer;
use crate::endpoint::event_log::EventLog;
use crate::endpoint::number::{Hex, Num};

/// Progress of reading the ring.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum RingStep {
    Place,
    Get,
    Clear,
}

impl HostEndpoint {
    /// Register block of the mailbox to use: the given one, or the one on the lowest bus, which is the GAE of the
    /// host's own edge.
    pub(super) fn block(&self, asked: Option<Num>) -> Result<Hpa, Refused> {
        if let Some(Num(addr)) = asked {
            return Ok(Hpa(addr));
        }
        let mut found = self.inner.tree().map(blocks).unwrap_or_default();
        let nearest = found.iter().map(|(bdf, _)| bdf.bus()).min();
        // Two on the lowest bus, such as two functions of a device: no rule picks one of them.
        found.retain(|(bdf, _)| Some(bdf.bus()) == nearest);
        match found.as_slice() {
            [(_, block)] => Ok(*block),
            [] => Err(Refused::because("no function with a mailbox is known: enumerate first")),
            several => {
                let show = |(bdf, Hpa(at)): &(Bdf, Hpa)| format!("{at:#x} of {bdf}");
                let list: Vec<String> = several.iter().map(show).collect();
                let text = format!("several mailboxes, name one by block: {}", list.join(", "));
                Err(Refused::because(text))
            }
        }
    }

    pub(super) fn read_ring(
        &mut self,
        now: Instant,
        number: u64,
        base: Option<Num>,
        block: Option<Num>,
        timeout_ms: u64,
    ) -> Result<Option<Answer>, Refused> {
        let block = self.block(block)?;
        if let Some(Num(at)) = base {
            // 32 bytes is an entry; bits 4:0 of the address are flags in Set GAM Buffer (010Ah).
            if at % 32 != 0 || !self.inner.memory().holds(at, 8_192) {
                let text = format!("expected 8 KiB of memory at a multiple of 32, found {at:#x}");
                return Err(Refused::bad_request(text));
            }
            self.ring = Some(Ring::new(Hpa(at)));
        }
        let Some(ring) = &self.ring else {
            return Err(Refused::because("the host has no ring: place one with a base"));
        };
        let step = if base.is_some() { RingStep::Place } else { RingStep::Get };
        let command = match step {
            // Placing also clears the overflow flag of an earlier ring.
            RingStep::Place => self.inner.command(block, Ring::SET, &ring.set(true)),
            _ => self.inner.command(block, Ring::GET, &[]),
        };
        let what = Waits::Ring { command, step, block, taken: None };
        self.wait(now, number, what, timeout_ms.saturating_mul(3));
        Ok(None)
    }

    /// Handles the response to a mailbox command: answers it, or takes the next step with the ring.
    pub(super) fn responded(
        &mut self,
        command: u64,
        result: Result<Response, MailboxFailure>,
        log: &mut EventLog,
    ) {
        let ours = |waiting: &Waiting| match waiting.what {
            Waits::Mailbox { command: own } | Waits::Ring { command: own, .. } => own == command,
            _ => false,
        };
        let Some(number) = self.waiting.iter().find(|(_, it)| ours(it)).map(|(n, _)| *n) else {
            return;
        };
        let Some(waiting) = self.waiting.remove(&number) else { return };
        let response = match result {
            Ok(response) => response,
            Err(error) => return log.answer(number, Err(Refused::because(error.to_string()))),
        };
        let code = ReturnCode::from_bits(response.code);
        let Waits::Ring { step, block, taken, .. } = waiting.what else {
            return log.answer(number, Ok(answered(response)));
        };
        if code != ReturnCode::Success {
            let text = format!("the ring was refused: {}", code.name());
            return log.answer(number, Err(Refused::because(text)));
        }
        // Success of one step leads to the next mailbox command, under the same command number and time limit.
        let Some(ring) = &mut self.ring else { return };
        let (step, taken, input) = match step {
            RingStep::Place => (RingStep::Get, None, None),
            RingStep::Get => {
                let Some(got) = ring.take(&response.payload, self.inner.memory()) else {
                    let text = "the GAE names another ring than the host's";
                    return log.answer(number, Err(Refused::because(text)));
                };
                let entries = got.entries.iter().map(|entry| Hex(entry.to_vec())).collect();
                let set = ring.set(got.overflow);
                (RingStep::Clear, Some((entries, got.overflow)), Some(set))
            }
            RingStep::Clear => {
                let (entries, overflow) = taken.unwrap_or_default();
                return log.answer(number, Ok(Answer::Ring { entries, overflow }));
            }
        };
        let command = match input {
            None => self.inner.command(block, Ring::GET, &[]),
            Some(input) => self.inner.command(block, Ring::SET, &input),
        };
        let what = Waits::Ring { command, step, block, taken };
        self.waiting.insert(number, Waiting { what, until: waiting.until });
    }
}

/// Converts a response of a mailbox or component.
pub fn answered(response: Response) -> Answer {
    let Response { code, vendor, payload } = response;
    let name = ReturnCode::from_bits(code).name().to_owned();
    Answer::Response { code, name, vendor, output: Hex(payload) }
}
