//! Commands of a host to a GFD, handed over by the host's edge (Proxy GFD Management, 5809 to 580B).
//!
//! [`edge::ProxyThreads`] is the side of the host's edge, [`device::GfdProxy`] that of the GFD. The exchange is
//! `DPCmd`, `UCPull`, `DCReq` (several), `DCReq-Last`, `UCRsp` (several), `UCRsp-Last`; either side ends it early
//! by a Fail.
//!
//! Units: bytes, DWs of 4; picoseconds.
//! Source: docs/spec/wire-formats.md §3.8, §4.6; CXL 3.1 sections 7.7.2.6, 7.7.11.5, 7.7.14.10.

pub mod device;
pub mod edge;
#[cfg(test)]
#[expect(clippy::cast_possible_truncation, reason = "small numbers that make tests short")]
mod tests;

use core::fmt;
use std::collections::VecDeque;

use weft_dataplane::time::Span;
use weft_parsers::fabric::Pid;
use weft_parsers::tlp::VdmOp;

use super::{PAYLOAD_MAX, Vdm};

/// Longest command or response in bytes: 256 DWs, the most that `SeqLen` can announce.
pub const COMMAND_MAX: usize = 1_024;
/// Longest wait of either side for the other's next message.
///
/// The standard sets none, as a host may cancel. This is the time limit of a CXL mailbox; it keeps a dead partner
/// from holding a thread for ever.
pub const PARTNER_TIMEOUT: Span = Span::from_ms(2_000);
/// Number of logged messages out of turn.
pub const LOG_MAX: usize = 64;

/// A message that was dropped because it belongs to no command, or to another state of its command.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Stale {
    /// PID of the sender.
    pub from: Pid,
    /// Opcode of the message.
    pub op: VdmOp,
    /// `CmdSeq` of the message.
    pub cmd_seq: u8,
    /// `CmdSeq` of the command that is active with the sender; `None` without one.
    pub active: Option<u8>,
}

impl fmt::Display for Stale {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self { from, op, cmd_seq, active } = self;
        write!(f, "{op:?} with CmdSeq {cmd_seq} from PID {from}: ")?;
        match active {
            Some(active) if active == cmd_seq => {
                write!(f, "the command is in another state")
            }
            Some(active) => write!(f, "CmdSeq {active} is active"),
            None => write!(f, "no command is active"),
        }
    }
}

/// The last dropped messages, and the number of all.
#[derive(Clone, Debug, Default)]
struct Log {
    last: VecDeque<Stale>,
    all: u64,
}

impl Log {
    fn push(&mut self, vdm: &Vdm, active: Option<u8>) {
        if self.last.len() >= LOG_MAX {
            self.last.pop_front();
        }
        let (from, op, cmd_seq) = (vdm.pth.spid, vdm.op, vdm.cmd_seq);
        self.last.push_back(Stale { from, op, cmd_seq, active });
        self.all += 1;
    }
}

/// Number of DWs in `bytes` as a `SeqLen`, where 0 is 256.
fn seq_len(bytes: usize) -> u8 {
    u8::try_from(bytes.div_ceil(4) % 256).unwrap_or_default()
}

/// Number of bytes that a `SeqLen` announces.
fn announced(seq_len: u8) -> usize {
    match seq_len {
        0 => COMMAND_MAX,
        dws => usize::from(dws) * 4,
    }
}

/// `SeqNum` of the piece that starts at `byte`: pieces are counted modulo 8.
fn seq_num(byte: usize) -> u8 {
    u8::try_from(byte / PAYLOAD_MAX % 8).unwrap_or_default()
}
