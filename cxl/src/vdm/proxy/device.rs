//! The GFD's side of proxied commands: pulls them, hands them to the GFD, sends the responses.
//!
//! There is one command for each pair of PIDs. [`GfdProxy::take`] returns a complete one, [`GfdProxy::respond`]
//! takes its response.
//!
//! Units: bytes, DWs of 4; picoseconds.
//! Source: docs/spec/wire-formats.md §3.8; CXL 3.1 section 7.7.11.5; how many are pulled at once is ours.

use std::collections::{BTreeMap, VecDeque};

use weft_dataplane::time::Instant;
use weft_parsers::cci;
use weft_parsers::fabric::Pid;
use weft_parsers::tlp::VdmOp;

use super::{Log, PARTNER_TIMEOUT, Stale, announced, seq_num};
use crate::vdm::{PAYLOAD_MAX, Vdm};

/// Commands pulled, executed or answered at the same time; others wait for their `UCPull`.
pub const ACTIVE_MAX: usize = 8;
/// Pairs of PIDs with a command, waiting ones included.
pub const PAIRS_MAX: usize = 4_096;
/// Messages queued to be sent, apart from responses.
const OUT_MAX: usize = 1_024;

/// Id of a proxied command until it is answered; a newer command of the same host invalidates it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Ticket {
    pair: Pair,
    number: u64,
}

impl Ticket {
    /// PID of the host edge that sent the command.
    #[must_use]
    pub const fn from(self) -> Pid {
        Pid::from_low_bits(self.pair.0)
    }
}

/// A proxied command that was received completely.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Command {
    /// Id for the response.
    pub ticket: Ticket,
    /// CCI message without padding.
    pub message: Vec<u8>,
    /// Room for the response at the host, bytes.
    pub response_max: usize,
}

/// Reason why a response was not accepted.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
pub enum RespondError {
    /// The command was aborted, has timed out, or is answered already.
    #[error("the command is no longer active")]
    Gone,
    /// The response is empty or too long for the host; the host gets `UCRsp-Fail`.
    #[error("a response of {had} bytes, the host takes 1 to {most}")]
    Size {
        /// Bytes of the response.
        had: usize,
        /// Most bytes that fit.
        most: usize,
    },
}

/// Counts of proxied commands at a GFD.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct DeviceCounts {
    /// Commands that were announced by `DPCmd`.
    pub announced: u64,
    /// Commands aborted by another one of the same pair, or by the host's edge.
    pub aborted: u64,
    /// Commands that were malformed or incomplete in time, or have no response.
    pub failed: u64,
    /// Commands answered in full.
    pub answered: u64,
    /// Messages without a sender to answer, of another kind, or beyond [`PAIRS_MAX`].
    pub refused: u64,
    /// Messages that found no room in the send queue.
    pub lost: u64,
}

/// SPID and DPID of the `DPCmd`.
type Pair = (u16, u16);

/// Progress of a command.
#[derive(Clone, Debug)]
enum State {
    Waiting,
    Pulling { bytes: Vec<u8>, until: Instant },
    Ready { message: Vec<u8>, response_max: usize },
    Executing { response_max: usize },
    Responding { bytes: Vec<u8>, sent: usize },
}

#[derive(Clone, Debug)]
struct Active {
    number: u64,
    cmd_seq: u8,
    seq_len: u8,
    state: State,
}

/// The GFD's end of proxied commands of all hosts.
#[derive(Clone, Debug, Default)]
pub struct GfdProxy {
    active: BTreeMap<Pair, Active>,
    /// Pairs in the order of their announcement.
    waiting: VecDeque<Pair>,
    ready: VecDeque<Pair>,
    responding: VecDeque<Pair>,
    out: VecDeque<Vdm>,
    numbers: u64,
    log: Log,
    counts: DeviceCounts,
}

impl GfdProxy {
    #[must_use]
    pub const fn counts(&self) -> DeviceCounts {
        self.counts
    }

    /// Number of messages that were dropped because they belong to no active command.
    #[must_use]
    pub const fn stale(&self) -> u64 {
        self.log.all
    }

    /// The last [`super::LOG_MAX`] of them, oldest first.
    pub fn stale_log(&self) -> impl Iterator<Item = &Stale> {
        self.log.last.iter()
    }

    /// Receives a message of a host's edge.
    pub fn receive(&mut self, now: Instant, vdm: &Vdm) {
        let pair = (vdm.pth.spid.bits(), vdm.pth.dpid.bits());
        match vdm.op {
            _ if vdm.pth.spid.is_none() || vdm.pth.dpid.is_none() => self.counts.refused += 1,
            VdmOp::DpCmd => self.announce(pair, vdm),
            VdmOp::DcReq | VdmOp::DcReqLast => self.piece(now, pair, vdm),
            VdmOp::DcReqFail => self.no_command(pair, vdm),
            _ => self.counts.refused += 1,
        }
        // The message may have freed a place for a waiting command.
        self.pull(now);
    }

    /// The next complete command, first come, first served.
    pub fn take(&mut self) -> Option<Command> {
        let pair = self.ready.pop_front()?;
        let active = self.active.get_mut(&pair)?;
        let State::Ready { message, response_max } = &mut active.state else { return None };
        let (message, response_max) = (core::mem::take(message), *response_max);
        active.state = State::Executing { response_max };
        Some(Command { ticket: Ticket { pair, number: active.number }, message, response_max })
    }

    /// Sends the response to a command.
    ///
    /// # Errors
    /// See [`RespondError`].
    pub fn respond(
        &mut self,
        now: Instant,
        ticket: Ticket,
        response: &[u8],
    ) -> Result<(), RespondError> {
        let Some(active) = self.executing(ticket) else { return Err(RespondError::Gone) };
        let State::Executing { response_max: most } = active.state else {
            return Err(RespondError::Gone);
        };
        if response.is_empty() || response.len() > most {
            self.fail(ticket.pair);
            self.pull(now);
            return Err(RespondError::Size { had: response.len(), most });
        }
        active.state = State::Responding { bytes: response.to_vec(), sent: 0 };
        self.responding.push_back(ticket.pair);
        Ok(())
    }

    /// Ends a command without a response.
    ///
    /// # Errors
    /// [`RespondError::Gone`].
    pub fn refuse(&mut self, now: Instant, ticket: Ticket) -> Result<(), RespondError> {
        if self.executing(ticket).is_none() {
            return Err(RespondError::Gone);
        }
        self.fail(ticket.pair);
        self.pull(now);
        Ok(())
    }

    /// The next message to send; call it until it returns `None`.
    pub fn poll(&mut self, now: Instant) -> Option<Vdm> {
        self.expire(now);
        // Short messages first: a long response must not delay another host's `UCPull`.
        if let Some(vdm) = self.out.pop_front() {
            return Some(vdm);
        }
        let pair = self.responding.pop_front()?;
        let active = self.active.get_mut(&pair)?;
        let State::Responding { bytes, sent } = &mut active.state else { return None };
        let left = bytes.get(*sent..).unwrap_or_default();
        let piece = left.get(..PAYLOAD_MAX).unwrap_or(left);
        let is_last = piece.len() == left.len();
        let op = if is_last { VdmOp::UcRspLast } else { VdmOp::UcRsp };
        let mut vdm = message(pair, active.cmd_seq, op).with_payload(piece);
        vdm.seq_num = seq_num(*sent);
        *sent += piece.len();
        if is_last {
            self.active.remove(&pair);
            self.counts.answered += 1;
            self.pull(now);
        } else {
            // Responses take turns, piece by piece.
            self.responding.push_back(pair);
        }
        Some(vdm)
    }

    /// Time of the next poll, not counting messages that are ready.
    #[must_use]
    pub fn next_due(&self) -> Option<Instant> {
        let untils = self.active.values().filter_map(|active| match active.state {
            State::Pulling { until, .. } => Some(until),
            _ => None,
        });
        untils.min()
    }

    fn executing(&mut self, ticket: Ticket) -> Option<&mut Active> {
        let active = self.active.get_mut(&ticket.pair)?;
        let executing = matches!(active.state, State::Executing { .. });
        // The number, not the pair alone: a newer command of the same pair may execute by now.
        (executing && active.number == ticket.number).then_some(active)
    }

    /// Processes `DPCmd`: one command is active for each pair, and a second one aborts the first.
    fn announce(&mut self, pair: Pair, vdm: &Vdm) {
        let had = self.active.remove(&pair);
        if had.is_none() && self.active.len() >= PAIRS_MAX {
            self.counts.refused += 1;
            return;
        }
        if had.is_some() {
            self.counts.aborted += 1;
            self.forget(pair);
        }
        self.counts.announced += 1;
        self.numbers += 1;
        let (cmd_seq, seq_len) = (vdm.cmd_seq, vdm.seq_len);
        let active = Active { number: self.numbers, cmd_seq, seq_len, state: State::Waiting };
        self.active.insert(pair, active);
        self.waiting.push_back(pair);
    }

    /// Processes `DCReq` and `DCReq-Last`.
    fn piece(&mut self, now: Instant, pair: Pair, vdm: &Vdm) {
        let active_seq = self.active.get(&pair).map(|active| active.cmd_seq);
        let Some(active) = self.active.get_mut(&pair).filter(|a| a.cmd_seq == vdm.cmd_seq) else {
            self.log.push(vdm, active_seq);
            return;
        };
        let State::Pulling { bytes, until } = &mut active.state else {
            self.log.push(vdm, active_seq);
            return;
        };
        let whole = announced(active.seq_len);
        let in_order = vdm.seq_num == seq_num(bytes.len());
        bytes.extend_from_slice(&vdm.payload);
        // Each piece restarts the time limit, which is one for silence.
        *until = now + PARTNER_TIMEOUT;
        let is_last = vdm.op == VdmOp::DcReqLast;
        // Only the last piece may complete the announced length, so a lost piece is noticed even if `SeqNum` wraps.
        let fits = if is_last { bytes.len() == whole } else { bytes.len() < whole };
        if !in_order || !fits {
            self.fail(pair);
        } else if is_last {
            // `SeqLen` of the last piece is the host's room for the response.
            let response_max = announced(vdm.seq_len);
            match message_in(bytes) {
                Some(len) => {
                    let mut message = core::mem::take(bytes);
                    message.truncate(len);
                    active.state = State::Ready { message, response_max };
                    self.ready.push_back(pair);
                }
                None => self.fail(pair),
            }
        }
    }

    /// Processes `DCReq-Fail`: the host's edge has no command, or has withdrawn it.
    fn no_command(&mut self, pair: Pair, vdm: &Vdm) {
        match self.active.get(&pair) {
            // Later the command is complete, and its execution cannot be undone.
            Some(Active { cmd_seq, state: State::Waiting | State::Pulling { .. }, .. })
                if *cmd_seq == vdm.cmd_seq =>
            {
                self.active.remove(&pair);
                self.forget(pair);
                self.counts.aborted += 1;
            }
            other => {
                let active = other.map(|active| active.cmd_seq);
                self.log.push(vdm, active);
            }
        }
    }

    /// Pulls waiting commands while there are places for active ones.
    fn pull(&mut self, now: Instant) {
        while self.active.len().saturating_sub(self.waiting.len()) < ACTIVE_MAX
            && let Some(pair) = self.waiting.pop_front()
        {
            let Some(active) = self.active.get_mut(&pair) else { continue };
            active.state = State::Pulling { bytes: Vec::new(), until: now + PARTNER_TIMEOUT };
            let mut vdm = message(pair, active.cmd_seq, VdmOp::UcPull);
            vdm.seq_len = active.seq_len;
            self.send(vdm);
        }
    }

    /// Ends a command without a response, and tells the host's edge.
    fn fail(&mut self, pair: Pair) {
        if let Some(active) = self.active.remove(&pair) {
            self.forget(pair);
            self.counts.failed += 1;
            self.send(message(pair, active.cmd_seq, VdmOp::UcRspFail));
        }
    }

    fn forget(&mut self, pair: Pair) {
        for queue in [&mut self.waiting, &mut self.ready, &mut self.responding] {
            queue.retain(|&other| other != pair);
        }
    }

    fn expire(&mut self, now: Instant) {
        // Each failure frees a place, and `pull` may fill it with a command whose time starts now, so this ends.
        while self.next_due().is_some_and(|due| due <= now) {
            let over = self.active.iter().find(
                |(_, active)| matches!(active.state, State::Pulling { until, .. } if until <= now),
            );
            let Some((&pair, _)) = over else { break };
            self.fail(pair);
            self.pull(now);
        }
    }

    fn send(&mut self, vdm: Vdm) {
        if self.out.len() < OUT_MAX {
            self.out.push_back(vdm);
        } else {
            self.counts.lost += 1;
        }
    }
}

fn message(pair: Pair, cmd_seq: u8, op: VdmOp) -> Vdm {
    let (host, own) = (Pid::from_low_bits(pair.0), Pid::from_low_bits(pair.1));
    Vdm { cmd_seq, ..Vdm::new(own, host, op) }
}

/// Length of the CCI message in `bytes`, which may be padded to whole DWs.
fn message_in(bytes: &[u8]) -> Option<usize> {
    let (_, len, _) = cci::Header::cut(bytes).ok()?;
    let len = cci::header::LEN.checked_add(len)?;
    (len.next_multiple_of(4) == bytes.len()).then_some(len)
}
