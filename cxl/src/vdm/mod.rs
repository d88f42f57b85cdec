//! State machines that speak in vendor-defined messages of a PBR fabric.
//!
//! [`Vdm`]s and `now` in; [`Vdm`]s, accesses to a host's memory and events out; each machine says by
//! `next_due` when it wants to be polled again. [`partner`] asks who is at the far end of a link, [`reset`] keeps a
//! virtual link, [`mctp`] carries CCI messages, [`in_band`] serves them at a GFD, [`proxy`] hands a host's commands over to a GFD, [`gam`] brings
//! notifications into a host's ring, [`rtupdate`] tells `CacheID`s.
//!
//! Units: bytes and DWs of 4; picoseconds.
//! Source: docs/spec/wire-formats.md §3.8; CXL 3.1 section 7.7.11.
//!
//! No machine reads a clock or allocates without bound, and none panics, whatever comes in.

pub mod gam;
pub mod in_band;
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

/// Most bytes of a payload: 32 DWs.
pub const PAYLOAD_MAX: usize = 128;
/// Time between two tries of a message that waits for an answer.
///
/// Section 3.8 gives it for reset and Link Up; messages for which it gives none keep to it as well: an answer
/// takes microseconds on these links, so that ten milliseconds without one mean a loss.
pub const RETRY_INTERVAL: Span = Span::from_ms(10);
/// Tries in all, the first one with them; see [`RETRY_INTERVAL`].
pub const TRIES_MAX: u8 = 10;

/// A vendor-defined message of CXL (PBR VDM), with the PTH that routes it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Vdm {
    /// Where it comes from and goes to.
    pub pth: Pth,
    /// What it says.
    pub op: VdmOp,
    /// `SeqLen`: DWs that are announced, 0 for 256.
    pub seq_len: u8,
    /// `CmdSeq`, 3 bits.
    pub cmd_seq: u8,
    /// `SeqNum`, 3 bits.
    pub seq_num: u8,
    /// Payload, whole DWs.
    pub payload: ArrayVec<u8, PAYLOAD_MAX>,
}

impl Vdm {
    /// A message without sequence and payload, of no hierarchy.
    #[must_use]
    pub fn new(from: Pid, to: Pid, op: VdmOp) -> Self {
        let pth = Pth { dsar: op.dsar(), ..Pth::new(from, to) };
        Self { pth, op, seq_len: 0, cmd_seq: 0, seq_num: 0, payload: ArrayVec::new() }
    }

    /// With `payload`, cut at [`PAYLOAD_MAX`] and filled up with zeros to whole DWs.
    #[must_use]
    pub fn with_payload(mut self, payload: &[u8]) -> Self {
        let padded = payload.len().next_multiple_of(4);
        let bytes = payload.iter().copied().chain(core::iter::repeat(0));
        self.payload = bytes.take(padded.min(PAYLOAD_MAX)).collect();
        self
    }

    /// Reads a message that came with `pth`.
    ///
    /// # Errors
    /// As [`PbrVdm::parse`].
    pub fn parse(pth: Pth, tlp: &Tlp<'_>) -> Result<Self, ParseError> {
        let PbrVdm { op, seq_len, cmd_seq, seq_num, payload } = PbrVdm::parse(tlp)?;
        let payload = payload.iter().copied().take(PAYLOAD_MAX).collect();
        Ok(Self { pth, op, seq_len, cmd_seq, seq_num, payload })
    }

    /// The message behind the PTH, to emit.
    #[must_use]
    pub fn message(&self) -> PbrVdm<'_> {
        let Self { op, seq_len, cmd_seq, seq_num, ref payload, .. } = *self;
        PbrVdm { op, seq_len, cmd_seq, seq_num, payload }
    }
}

/// What is due.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Due {
    Nothing,
    Send,
    GaveUp,
}

/// When a message is sent again: at once, then every [`RETRY_INTERVAL`], [`TRIES_MAX`] times in all.
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
            *self = Self { at: Some(now + RETRY_INTERVAL), left };
            Due::Send
        } else {
            self.stop();
            Due::GaveUp
        }
    }
}
