//! Commands of a host to a GFD, handed over by the host's edge (Proxy GFD Management, 5809 to 580B).
//! [`edge::ProxyThreads`] at the host's edge, [`device::GfdProxy`] at the GFD; `DPCmd` -> `UCPull` -> `DCReq`..
//! `DCReq-Last` -> `UCRsp`.. `UCRsp-Last`, or a Fail of either side.
//!
//! Units: bytes, DWs of 4; picoseconds.
//! Source: docs/spec/wire-formats.md §3.8, §4.6; CXL 3.1 sections 7.7.2.6, 7.7.11.5, 7.7.14.10.

pub mod device;
pub mod edge;
#[cfg(test)]
#[expect(clippy::cast_possible_truncation, reason = "small numbers that make tests short")]
mod tests;

use std::collections::VecDeque;

use weft_dataplane::time::Span;
use weft_parsers::fabric::Pid;
use weft_parsers::tlp::VdmOp;

use super::{PAYLOAD_MAX, Vdm};

/// Most bytes of a command or a response: 256 DWs, what `SeqLen` can say.
pub const COMMAND_MAX: usize = 1_024;
/// How long either side waits for the other's next message.
///
/// The pages give none: a host may cancel. This one, that of a CXL mailbox, keeps a side that died from holding a
/// thread of the other for ever.
pub const PARTNER_TIMEOUT: Span = Span::from_ms(2_000);
/// Messages out of turn that are kept to be read.
pub const LOG_MAX: usize = 64;

/// A message that was dropped because it belongs to no command, or to another state of it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Stale {
    /// Who sent it.
    pub from: Pid,
    /// What it said.
    pub op: VdmOp,
    /// Its `CmdSeq`.
    pub cmd_seq: u8,
    /// `CmdSeq` of the command that is active with the sender.
    pub active: Option<u8>,
}

/// The last messages that were dropped, and how many there were in all.
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

/// DWs of `bytes` as `SeqLen` has them: 0 for 256.
fn seq_len(bytes: usize) -> u8 {
    u8::try_from(bytes.div_ceil(4) % 256).unwrap_or_default()
}

/// Bytes that `SeqLen` announces.
fn announced(seq_len: u8) -> usize {
    match seq_len {
        0 => COMMAND_MAX,
        dws => usize::from(dws) * 4,
    }
}

/// `SeqNum` of the piece that starts at `byte`.
fn seq_num(byte: usize) -> u8 {
    u8::try_from(byte / PAYLOAD_MAX % 8).unwrap_or_default()
}
