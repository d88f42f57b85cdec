//! Transfers of fabric memory, and the commands that wait for them.
//!
//! [`Transfers::begin`] returns a report at once, or [`Transfers::ended`] does later for a waiting command;
//! [`Transfers::tell`] reports progress.
//!
//! Source: docs/fabric-memory.md "Commands".

use std::collections::BTreeMap;

use weft_cxl::fabric_mem::{
    Engine, Error, Op, PeerId, Reason, Status, TransferOpDesc, TransferReq,
};
use weft_dataplane::time::{Instant, Span};
use weft_rpc::Refused;

use super::refused;
use crate::endpoint::fabric_mem::{MemStatus, MemTransfer, MemTransferReport};

/// Transfers in progress, and ended ones that were not reported yet, at most.
const TRANSFERS_MAX: usize = 1_024;

struct Transfer {
    bytes: u64,
    began: Instant,
    /// Number of the waiting command, if any.
    caller: Option<u64>,
    end: Option<(Status, Instant)>,
}

/// All transfers by number.
#[derive(Default)]
pub struct Transfers {
    all: BTreeMap<u64, Transfer>,
}

impl Transfer {
    fn report(&self, transfer: u64, now: Instant) -> MemTransferReport {
        let (status, at) = self.end.unwrap_or((Status::Waiting, now));
        let reason = match status {
            Status::Failed(reason) => Some(reason.to_string()),
            Status::Waiting | Status::Completed | Status::Timeout => None,
        };
        let status = match status {
            Status::Waiting => MemStatus::Waiting,
            Status::Completed => MemStatus::Completed,
            Status::Failed(_) => MemStatus::Failed,
            Status::Timeout => MemStatus::Timeout,
        };
        let ns = at.since(self.began).as_ns();
        MemTransferReport { transfer, status, reason, bytes: self.bytes, ns }
    }
}

impl Transfers {
    /// Starts a transfer for command `number`; returns a report at once if the command does not wait.
    ///
    /// # Errors
    /// Errors of the engine.
    pub fn begin(
        &mut self,
        now: Instant,
        number: u64,
        op: Op,
        asked: &MemTransfer,
        engine: &mut Engine,
    ) -> Result<Option<MemTransferReport>, Error> {
        if self.all.len() >= TRANSFERS_MAX {
            return Err(Error::TooMany(self.all.len()));
        }
        let ops = asked.ops.iter().map(|it| TransferOpDesc {
            local: it.local.0,
            remote: it.remote.0,
            len: it.len.0,
        });
        let ops: Vec<TransferOpDesc> = ops.collect();
        let timeout = Some(Span::from_ms(asked.timeout_ms.min(1 << 32)));
        let begun = engine.transfer_async(now, PeerId(asked.peer), op, &ops, timeout);
        let req = begun?.number();
        let bytes = ops.iter().fold(0_u64, |sum, op| sum.saturating_add(op.len));
        let transfer =
            Transfer { bytes, began: now, caller: asked.wait.then_some(number), end: None };
        let report = (!asked.wait).then(|| transfer.report(req, now));
        self.all.insert(req, transfer);
        Ok(report)
    }

    /// Updates the state of all transfers.
    pub fn refresh(&mut self, now: Instant, engine: &mut Engine) {
        for (&req, transfer) in self.all.iter_mut().filter(|(_, it)| it.end.is_none()) {
            let status = engine.status(TransferReq::from_number(req));
            // A finalized engine has ended them all.
            let status = status.unwrap_or(Status::Failed(Reason::Disconnected));
            transfer.end = (status != Status::Waiting).then_some((status, now));
        }
    }

    /// Takes the ended transfers with waiting commands, as reports by command number.
    pub fn ended(&mut self, now: Instant, engine: &mut Engine) -> Vec<(u64, MemTransferReport)> {
        self.refresh(now, engine);
        let mut answers = Vec::new();
        self.all.retain(|&req, transfer| {
            let caller = transfer.caller.filter(|_| transfer.end.is_some());
            answers.extend(caller.map(|caller| (caller, transfer.report(req, now))));
            caller.is_none()
        });
        answers
    }

    /// Progress of a transfer started without `wait`; its end is reported once.
    ///
    /// # Errors
    /// The number is unknown, or the end was reported already.
    pub fn tell(&mut self, now: Instant, req: u64) -> Result<MemTransferReport, Refused> {
        let unknown = || refused(&Error::UnknownRequest(TransferReq::from_number(req)));
        let report = self.all.get(&req).ok_or_else(unknown)?.report(req, now);
        if report.status != MemStatus::Waiting {
            self.all.remove(&req);
        }
        Ok(report)
    }

    /// Reports on all transfers.
    pub fn list(&self, now: Instant) -> Vec<MemTransferReport> {
        self.all.iter().map(|(req, transfer)| transfer.report(*req, now)).collect()
    }
}
