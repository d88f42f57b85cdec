//! State machines that exchange vendor-defined messages (VDMs) of a PBR fabric.
//!
//! Each takes received [`Vdm`]s and `now`; it returns messages to send, accesses to a host's memory and events, and
//! tells by `next_due` when to poll it again. [`partner`] discovers the far end of a link, [`reset`]
//! keeps a virtual link, [`link_reset`] resets the lower end of a link, [`mctp`] carries CCI messages, [`proxy`] hands a
//! host's commands to a GFD, [`gam`] puts notifications into a host's ring, [`rtupdate`] distributes `CacheID`s.
//!
//! Source: docs/spec/wire-formats.md §3.8; CXL 3.1 section 7.7.11.
//!
//! No machine reads a clock, allocates without bound, or panics on any input.

pub mod gam;
pub mod link_reset;
pub mod mctp;
pub mod partner;
pub mod proxy;
pub mod reset;
pub mod rtupdate;
#[cfg(test)]
mod testing;

use arrayvec::ArrayVec;
use weft_dataplane::time::{Instant, Span};
use weft_parsers::ParseError;
use weft_parsers::fabric::Pid;
use weft_parsers::tlp::{PbrVdm, Pth, Tlp, VdmOp};

/// Longest payload in bytes: 32 DWs.
pub const PAYLOAD_MAX: usize = 128;
/// Interval between two tries of a message that waits for an answer.
/// The page (docs/spec/wire-formats.md §3.8) sets it for reset and Link Up; messages without an interval of their
/// own use it as well: an answer takes microseconds on these links, so ten milliseconds without one mean a loss.
pub const RETRY_INTERVAL: Span = Span::from_ms(10);
/// Number of tries, including the first one; see [`RETRY_INTERVAL`].
pub const TRIES_MAX: u8 = 10;

/// A vendor-defined message of CXL (PBR VDM), with the PTH that routes it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Vdm {
    /// PBR header with source and destination PID.
    pub pth: Pth,
    /// Opcode of the message.
    pub op: VdmOp,
    /// `SeqLen`: announced number of DWs, 0 for 256.
    pub seq_len: u8,
    /// `CmdSeq`, 3 bits: number of the command, or of Link Up.
    pub cmd_seq: u8,
    /// `SeqNum`, 3 bits: position of the payload in a sequence.
    pub seq_num: u8,
    /// Payload in whole DWs.
    pub payload: ArrayVec<u8, PAYLOAD_MAX>,
}

impl Vdm {
    /// A message without sequence numbers and payload, not hierarchical (Hie = 0).
    #[must_use]
    pub fn new(from: Pid, to: Pid, op: VdmOp) -> Self {
        let pth = Pth { dsar: op.dsar(), ..Pth::new(from, to) };
        Self { pth, op, seq_len: 0, cmd_seq: 0, seq_num: 0, payload: ArrayVec::new() }
    }

    /// Adds `payload`, cut at [`PAYLOAD_MAX`] and padded with zeros to whole DWs.
    #[must_use]
    pub fn with_payload(mut self, payload: &[u8]) -> Self {
        let padded = payload.len().next_multiple_of(4);
        let bytes = payload.iter().copied().chain(core::iter::repeat(0));
        self.payload = bytes.take(padded.min(PAYLOAD_MAX)).collect();
        self
    }

    /// Parses a message that was received with `pth`.
    ///
    /// # Errors
    /// As [`PbrVdm::parse`].
    pub fn parse(pth: Pth, tlp: &Tlp<'_>) -> Result<Self, ParseError> {
        let PbrVdm { op, seq_len, cmd_seq, seq_num, payload } = PbrVdm::parse(tlp)?;
        let payload = payload.iter().copied().take(PAYLOAD_MAX).collect();
        Ok(Self { pth, op, seq_len, cmd_seq, seq_num, payload })
    }

    /// The message without its PTH, to emit.
    #[must_use]
    pub fn message(&self) -> PbrVdm<'_> {
        let Self { op, seq_len, cmd_seq, seq_num, ref payload, .. } = *self;
        PbrVdm { op, seq_len, cmd_seq, seq_num, payload }
    }
}

/// The result of a [`Retry`] at one moment.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Due {
    Nothing,
    Send,
    GaveUp,
}

/// Retries of a message: sent at once, then every [`RETRY_INTERVAL`], [`TRIES_MAX`] times in all.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
struct Retry {
    at: Option<Instant>,
    left: u8,
}

impl Retry {
    const fn start(&mut self, now: Instant) {
        *self = Self { at: Some(now), left: TRIES_MAX };
    }

    const fn stop(&mut self) {
        self.at = None;
    }

    const fn is_running(&self) -> bool {
        self.at.is_some()
    }

    fn tick(&mut self, now: Instant) -> Due {
        if self.at.is_none_or(|at| now < at) {
            Due::Nothing
        } else if let Some(left) = self.left.checked_sub(1) {
            // From `now`, not from the due time: after a pause of the caller, tries must not follow in a burst.
            *self = Self { at: Some(now + RETRY_INTERVAL), left };
            Due::Send
        } else {
            // An interval after the last try, so that its answer has as long as the others.
            self.stop();
            Due::GaveUp
        }
    }
}
