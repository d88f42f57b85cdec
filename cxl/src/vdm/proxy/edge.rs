//! The host edge's side of proxied commands: threads that read commands from the host's memory and write responses.
//!
//! Commands 5809, 580A and 580B drive [`ProxyThreads`]; it returns [`EdgeOut`]s: messages, accesses to memory, and
//! ends of commands.
//!
//! Units: bytes, DWs of 4; picoseconds.
//! Source: docs/spec/wire-formats.md §3.8, §4.6; CXL 3.1 sections 7.7.11.5, 7.7.14.10 to 12.
//!
//! A second 5809 for a GFD whose thread is running is refused as Busy, so an edge never aborts its own command by
//! `DPCmd`; a host cancels first. Each command ends exactly once, by [`EdgeOut::Ended`] behind all writes of the
//! response; a cancelled one ends without that.

use std::collections::{BTreeMap, VecDeque};

use arrayvec::ArrayVec;
use weft_dataplane::time::{Instant, Span};
use weft_parsers::cci::gae::{ProxyCommand, ProxyStarted, ProxyStatus};
use weft_parsers::cci::header;
use weft_parsers::cci::{Bits, ReturnCode};
use weft_parsers::fabric::{Bdf, Hpa, Pid};
use weft_parsers::tlp::{At, Body, Kind, Mode, TlpRepr, VdmOp};

use super::{COMMAND_MAX, Log, PARTNER_TIMEOUT, Stale, seq_len, seq_num};
use crate::vdm::{PAYLOAD_MAX, Vdm};

/// Most threads: a read's tag has 4 bits for the thread and 6 for its use count.
pub const THREADS_MAX: u8 = 16;
/// Longest wait for a read of the host's memory: `Completion Timeout`, default range of PCIe.
pub const READ_TIMEOUT: Span = Span::from_ms(50);
/// Page size in bytes: PCIe requests must not cross a multiple of it.
const PAGE: u64 = 4_096;
/// Actions queued for [`ProxyThreads::poll`]; with more queued no new command is accepted.
const OUT_MAX: usize = 1_024;

/// Result of a proxied command.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Outcome {
    /// The response is in the host's memory: this many bytes, padded to whole DWs where there is room.
    Done(u16),
    /// The GFD answered that it has no response.
    Failed,
    /// The GFD is not in the GMV, or was removed from it.
    NotAllowed,
    /// Reading the command from the host's memory failed.
    HostMemory,
    /// Messages of the GFD were lost, out of order, or of the wrong length.
    Sequence,
    /// The response was longer than the host's buffer; the part that fits was written.
    Overrun,
    /// The GFD was silent for [`PARTNER_TIMEOUT`].
    TimedOut,
}

/// A read (`MRd`) by the edge from the host's memory.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct HostRead {
    /// Tag of the request, 10 bits.
    pub tag: u16,
    /// Address of the first byte, aligned to a DW.
    pub addr: Hpa,
    /// Length in bytes: whole DWs, at most 128.
    pub len: usize,
}

/// A write (`MWr`) by the edge to the host's memory.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct HostWrite {
    /// Address of the first byte, aligned to a DW.
    pub addr: Hpa,
    /// Length in bytes, without padding.
    pub len: usize,
    /// Data, padded to whole DWs.
    pub data: ArrayVec<u8, PAYLOAD_MAX>,
}

fn memory(mode: Mode, kind: Kind, id: Bdf, tag: u16, addr: Hpa, len: usize) -> TlpRepr<'static> {
    let dws = u16::try_from(len.div_ceil(4)).unwrap_or(u16::MAX);
    // Byte enables of the last DW: the padding must not overwrite the host's bytes behind the response.
    let last = match len % 4 {
        0 => 0xF,
        bytes => (1 << bytes) - 1,
    };
    // A request of one DW has its enables in First BE, and Last BE is 0 (PCIe 6.0, 2.2.5).
    let (first_be, last_be) = if dws <= 1 { (last, 0) } else { (0xF, last) };
    let wide = addr.0 >> 32 != 0;
    let (at, no_write) = (At::Untranslated, false);
    let body = Body::Address { addr, wide, at, no_write, length_dw: dws, first_be, last_be };
    TlpRepr::new(mode, kind, id, tag, body)
}

impl HostRead {
    /// The TLP of this read, from the requester `id`.
    #[must_use]
    pub fn repr(&self, mode: Mode, id: Bdf) -> TlpRepr<'static> {
        memory(mode, Kind::MemRead, id, self.tag, self.addr, self.len)
    }
}

impl HostWrite {
    /// A write of `data` to `addr`.
    #[must_use]
    pub fn new(addr: Hpa, data: &[u8]) -> Self {
        let data = data.get(..PAYLOAD_MAX).unwrap_or(data);
        let padded = data.iter().copied().chain(core::iter::repeat(0));
        let filled = padded.take(data.len().next_multiple_of(4)).collect();
        Self { addr, len: data.len(), data: filled }
    }

    /// The TLP of this write, from the requester `id`.
    #[must_use]
    pub fn repr(&self, mode: Mode, id: Bdf) -> TlpRepr<'_> {
        let repr = memory(mode, Kind::MemWrite, id, 0, self.addr, self.len);
        TlpRepr { payload: &self.data, ..repr }
    }
}

/// An action for the edge, to be carried out in the order of [`ProxyThreads::poll`].
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum EdgeOut {
    /// Send this message to the GFD.
    Vdm(Vdm),
    /// Read the host's memory, and call [`ProxyThreads::read_data`] or [`ProxyThreads::read_failed`].
    Read(HostRead),
    /// Write to the host's memory.
    Write(HostWrite),
    /// A command ended: set the bit of its PID in the interrupt vector.
    Ended {
        /// PID of the GFD.
        pid: Pid,
        /// Number of the command.
        cmd_seq: u8,
        /// Result of the command.
        outcome: Outcome,
    },
}

/// Counts of proxied commands at a host's edge.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct EdgeCounts {
    /// Commands accepted by 5809.
    pub started: u64,
    /// Commands cancelled by 580B.
    pub cancelled: u64,
    /// Messages of GFDs that are not in the GMV.
    pub not_allowed: u64,
    /// Messages for another PID or of another kind.
    pub refused: u64,
    /// Completions without a read under way.
    pub unexpected: u64,
    /// Refusals to GFDs outside the GMV that found no room in the queue.
    pub lost: u64,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Phase {
    /// `DPCmd` was sent.
    Announced,
    /// The command is read from memory and sent in pieces.
    Handing,
    /// The response is being received.
    Answering,
}

#[derive(Clone, Debug)]
struct Thread {
    pid: Pid,
    cmd_seq: u8,
    phase: Phase,
    until: Instant,
    command: ProxyCommand,
    tag: u16,
    /// Bytes of the command read so far.
    bytes: ArrayVec<u8, COMMAND_MAX>,
    /// Index behind the last byte of the read under way.
    reading_to: usize,
    /// Bytes of the command sent to the GFD.
    handed: usize,
    /// Bytes of the response received.
    answered: usize,
}

/// The proxy threads of one host's GAE: each carries one command to a GFD, and the response back.
#[derive(Clone, Debug)]
pub struct ProxyThreads {
    own: Pid,
    slots: Vec<Option<Thread>>,
    /// Number of times that each thread was used, modulo 64.
    uses: Vec<u8>,
    /// Last `CmdSeq` used with each GFD.
    seqs: BTreeMap<u16, u8>,
    out: VecDeque<EdgeOut>,
    log: Log,
    counts: EdgeCounts,
}

impl ProxyThreads {
    /// `threads` threads (at most [`THREADS_MAX`]) of the port with PID `own`.
    #[must_use]
    pub fn new(own: Pid, threads: u8) -> Self {
        let threads = usize::from(threads.min(THREADS_MAX));
        Self {
            own,
            slots: vec![None; threads],
            uses: vec![0; threads],
            seqs: BTreeMap::new(),
            out: VecDeque::new(),
            log: Log::default(),
            counts: EdgeCounts::default(),
        }
    }

    /// Number of threads.
    #[must_use]
    pub fn threads(&self) -> u16 {
        u16::try_from(self.slots.len()).unwrap_or(u16::MAX)
    }

    /// Number of free threads.
    #[must_use]
    pub fn free(&self) -> u16 {
        let free = self.slots.iter().filter(|slot| slot.is_none()).count();
        u16::try_from(free).unwrap_or(u16::MAX)
    }

    #[must_use]
    pub const fn counts(&self) -> EdgeCounts {
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

    /// Proxy GFD Management Command (5809); `allowed` says whether the GFD is in the GMV.
    ///
    /// # Errors
    /// Invalid Input: the PID is none or not in the GMV, an address is not at a DW or wraps, the command is shorter
    /// than a CCI header or longer than [`COMMAND_MAX`], or there is no room for a header in the response. Busy: a
    /// thread runs for this GFD. Resources Exhausted: no thread is free.
    pub fn start(
        &mut self,
        now: Instant,
        command: &ProxyCommand,
        allowed: bool,
    ) -> Result<ProxyStarted, ReturnCode> {
        let (len, room) = (usize::from(command.len), usize::from(command.response_max));
        // The check covers the longest command, so that no later address computation can wrap.
        let fits = |Hpa(addr): Hpa| addr % 4 == 0 && addr.checked_add(COMMAND_MAX as u64).is_some();
        let sizes = (header::LEN..=COMMAND_MAX).contains(&len) && room >= header::LEN;
        if !allowed
            || command.pid.is_none()
            || !sizes
            || !fits(command.request)
            || !fits(command.response)
        {
            return Err(ReturnCode::InvalidInput);
        }
        // One command for each pair of PIDs: a second `DPCmd` would abort the first (7.7.11.5).
        if self.slot_of(command.pid).is_some() {
            return Err(ReturnCode::Busy);
        }
        let free = self.slots.iter().position(Option::is_none);
        let (Some(slot), true) = (free, self.out.len() < OUT_MAX) else {
            return Err(ReturnCode::ResourcesExhausted);
        };
        let last = self.seqs.entry(command.pid.bits()).or_insert(0);
        *last = (*last + 1) & 7;
        let cmd_seq = *last;
        // The use count makes a late completion for the thread's last command miss this one.
        let tag = self.uses.get_mut(slot).map_or(0, |uses| {
            *uses = uses.wrapping_add(1) & 0x3F;
            u16::from(*uses) << 4 | u16::try_from(slot).unwrap_or_default()
        });
        let thread = Thread {
            pid: command.pid,
            cmd_seq,
            phase: Phase::Announced,
            until: now + PARTNER_TIMEOUT,
            command: *command,
            tag,
            bytes: ArrayVec::new(),
            reading_to: 0,
            handed: 0,
            answered: 0,
        };
        let mut vdm = thread.message(self.own, VdmOp::DpCmd);
        vdm.seq_len = seq_len(len);
        self.out.push_back(EdgeOut::Vdm(vdm));
        if let Some(place) = self.slots.get_mut(slot) {
            *place = Some(thread);
        }
        self.counts.started += 1;
        Ok(ProxyStarted { seq: Bits::from_low_bits(cmd_seq), free: self.free() })
    }

    /// Get Proxy Thread Status (580A).
    #[must_use]
    pub fn status(&self, pid: Pid, cmd_seq: u8) -> ProxyStatus {
        ProxyStatus { running: self.find(pid, cmd_seq).is_some(), free: self.free() }
    }

    /// `CmdSeq` of the command that runs for a GFD.
    #[must_use]
    pub fn running(&self, pid: Pid) -> Option<u8> {
        self.slot_of(pid).and_then(|slot| self.thread(slot)).map(|thread| thread.cmd_seq)
    }

    /// Cancel Proxy Thread (580B); returns the number of free threads.
    ///
    /// A GFD that does not have the complete command is told by `DCReq-Fail`; its other messages are stale from now
    /// on.
    ///
    /// # Errors
    /// Invalid Input: no such thread runs.
    pub fn cancel(&mut self, pid: Pid, cmd_seq: u8) -> Result<u16, ReturnCode> {
        let slot = self.find(pid, cmd_seq).ok_or(ReturnCode::InvalidInput)?;
        if let Some(thread) = self.slots.get_mut(slot).and_then(Option::take) {
            self.counts.cancelled += 1;
            if thread.phase != Phase::Answering {
                let fail = thread.message(self.own, VdmOp::DcReqFail);
                self.out.push_back(EdgeOut::Vdm(fail));
            }
        }
        Ok(self.free())
    }

    /// Receives a message of a GFD; `allowed` says whether the GFD is in the GMV.
    pub fn receive(&mut self, now: Instant, vdm: &Vdm, allowed: bool) {
        let known =
            [VdmOp::UcPull, VdmOp::UcRsp, VdmOp::UcRspLast, VdmOp::UcRspFail].contains(&vdm.op);
        if !known || vdm.pth.dpid != self.own || vdm.pth.spid.is_none() {
            self.counts.refused += 1;
            return;
        }
        let pid = vdm.pth.spid;
        let found = self.find(pid, vdm.cmd_seq);
        if !allowed {
            self.counts.not_allowed += 1;
            // `UCPull` is answered even then (docs/spec/wire-formats.md §3.8), so that the GFD drops its side of
            // the command.
            if vdm.op == VdmOp::UcPull {
                self.refuse(pid, vdm.cmd_seq);
            }
            if let Some(slot) = found {
                self.end(slot, Outcome::NotAllowed);
            }
            return;
        }
        let active = self.slot_of(pid).and_then(|slot| self.thread(slot));
        let active = active.map(|thread| thread.cmd_seq);
        let Some(thread) = found.and_then(|slot| self.slots.get_mut(slot)?.as_mut()) else {
            self.log.push(vdm, active);
            return;
        };
        let slot = found.unwrap_or_default();
        match (vdm.op, thread.phase) {
            (VdmOp::UcPull, Phase::Announced) => {
                // `UCPull` repeats the announced length; another one belongs to a command that this edge has not
                // announced.
                if vdm.seq_len == seq_len(usize::from(thread.command.len)) {
                    thread.phase = Phase::Handing;
                    self.read(now, slot);
                } else {
                    self.refuse(pid, vdm.cmd_seq);
                    self.end(slot, Outcome::Sequence);
                }
            }
            (VdmOp::UcPull, _) => self.log.push(vdm, active),
            (VdmOp::UcRspFail, _) => self.end(slot, Outcome::Failed),
            (_, Phase::Answering) => self.response(now, slot, vdm),
            // A response before the command was handed over completely.
            _ => self.end(slot, Outcome::Sequence),
        }
    }

    /// Data of a read, in order; a read may be completed in several parts.
    pub fn read_data(&mut self, now: Instant, tag: u16, data: &[u8]) {
        let Some(slot) = self.reader(tag) else {
            self.counts.unexpected += 1;
            return;
        };
        let Some(thread) = self.slots.get_mut(slot).and_then(Option::as_mut) else { return };
        // More data than requested: the command cannot be trusted.
        if thread.bytes.len() + data.len() > thread.reading_to {
            self.counts.unexpected += 1;
            self.no_command(slot, Outcome::HostMemory);
            return;
        }
        thread.bytes.extend(data.iter().copied());
        if thread.bytes.len() == thread.reading_to {
            self.hand(now, slot);
        }
    }

    /// A read was completed with an error status.
    pub fn read_failed(&mut self, tag: u16) {
        match self.reader(tag) {
            Some(slot) => self.no_command(slot, Outcome::HostMemory),
            None => self.counts.unexpected += 1,
        }
    }

    /// The next action; call it until it returns `None`.
    pub fn poll(&mut self, now: Instant) -> Option<EdgeOut> {
        for slot in 0..self.slots.len() {
            if let Some(thread) = self.thread(slot)
                && thread.until <= now
            {
                match thread.phase {
                    // The GFD waits for the rest of the command, so it gets a `DCReq-Fail` in this phase.
                    Phase::Handing => self.no_command(slot, Outcome::HostMemory),
                    Phase::Announced | Phase::Answering => self.end(slot, Outcome::TimedOut),
                }
            }
        }
        self.out.pop_front()
    }

    /// Time of the next poll, not counting actions that are ready.
    #[must_use]
    pub fn next_due(&self) -> Option<Instant> {
        self.slots.iter().flatten().map(|thread| thread.until).min()
    }

    fn thread(&self, slot: usize) -> Option<&Thread> {
        self.slots.get(slot)?.as_ref()
    }

    fn slot_of(&self, pid: Pid) -> Option<usize> {
        self.slots.iter().position(|slot| slot.as_ref().is_some_and(|thread| thread.pid == pid))
    }

    fn find(&self, pid: Pid, cmd_seq: u8) -> Option<usize> {
        let slot = self.slot_of(pid)?;
        self.thread(slot).is_some_and(|thread| thread.cmd_seq == cmd_seq).then_some(slot)
    }

    /// The thread whose read is under way with this tag.
    fn reader(&self, tag: u16) -> Option<usize> {
        self.slots.iter().position(|slot| {
            slot.as_ref().is_some_and(|thread| {
                thread.tag == tag
                    && thread.phase == Phase::Handing
                    && thread.bytes.len() < thread.reading_to
            })
        })
    }

    /// Reads the next part of the command: at most 128 bytes, within a page.
    fn read(&mut self, now: Instant, slot: usize) {
        let Some(thread) = self.slots.get_mut(slot).and_then(Option::as_mut) else { return };
        let from = thread.bytes.len();
        let addr = Hpa(thread.command.request.0 + from as u64);
        let left = thread.whole() - from;
        let len = in_page(addr, left.min(PAYLOAD_MAX));
        thread.reading_to = from + len;
        thread.until = now + READ_TIMEOUT;
        self.out.push_back(EdgeOut::Read(HostRead { tag: thread.tag, addr, len }));
    }

    /// Sends the bytes read so far in pieces of 32 DWs; only the last piece may be shorter.
    fn hand(&mut self, now: Instant, slot: usize) {
        let Some(thread) = self.slots.get_mut(slot).and_then(Option::as_mut) else { return };
        let whole = thread.whole();
        loop {
            let had = thread.bytes.get(thread.handed..).unwrap_or_default();
            let piece = had.get(..PAYLOAD_MAX).unwrap_or(had);
            let is_last = thread.handed + piece.len() == whole;
            // A page boundary has cut the read short: the piece is completed by the next read.
            if piece.len() < PAYLOAD_MAX && !is_last {
                break;
            }
            let op = if is_last { VdmOp::DcReqLast } else { VdmOp::DcReq };
            let mut vdm = thread.message(self.own, op).with_payload(piece);
            vdm.seq_num = seq_num(thread.handed);
            // `SeqLen` of the last piece announces the room for the response.
            if is_last {
                vdm.seq_len = seq_len(usize::from(thread.command.response_max).min(COMMAND_MAX));
            }
            thread.handed += piece.len();
            self.out.push_back(EdgeOut::Vdm(vdm));
            if is_last {
                thread.phase = Phase::Answering;
                thread.until = now + PARTNER_TIMEOUT;
                return;
            }
        }
        self.read(now, slot);
    }

    /// Processes `UCRsp` and `UCRsp-Last`.
    fn response(&mut self, now: Instant, slot: usize, vdm: &Vdm) {
        let Some(thread) = self.slots.get_mut(slot).and_then(Option::as_mut) else { return };
        if vdm.seq_num != seq_num(thread.answered) {
            self.end(slot, Outcome::Sequence);
            return;
        }
        let room = usize::from(thread.command.response_max).min(COMMAND_MAX);
        let mut at = thread.answered;
        thread.answered += vdm.payload.len();
        thread.until = now + PARTNER_TIMEOUT;
        let mut data = vdm.payload.as_slice();
        // Bytes beyond the host's buffer are not written, but still counted below.
        data = data.get(..room.saturating_sub(at)).unwrap_or(data);
        while !data.is_empty() {
            let addr = Hpa(thread.command.response.0 + at as u64);
            let Some((now, rest)) = data.split_at_checked(in_page(addr, data.len())) else { break };
            self.out.push_back(EdgeOut::Write(HostWrite::new(addr, now)));
            at += now.len();
            data = rest;
        }
        // The response is padded to whole DWs, and padding beyond the room is no overrun.
        if thread.answered > room.next_multiple_of(4) {
            self.end(slot, Outcome::Overrun);
        } else if vdm.op == VdmOp::UcRspLast {
            let bytes = u16::try_from(thread.answered.min(room)).unwrap_or(u16::MAX);
            self.end(slot, Outcome::Done(bytes));
        }
    }

    /// Ends a thread whose command is not handed over completely, and tells the GFD.
    fn no_command(&mut self, slot: usize, outcome: Outcome) {
        if let Some(thread) = self.thread(slot) {
            let fail = thread.message(self.own, VdmOp::DcReqFail);
            self.out.push_back(EdgeOut::Vdm(fail));
            self.end(slot, outcome);
        }
    }

    fn refuse(&mut self, pid: Pid, cmd_seq: u8) {
        // A GFD outside the GMV can cause refusals at any rate; all else in the queue is bounded by the threads.
        if self.out.len() < OUT_MAX {
            let fail = Vdm { cmd_seq, ..Vdm::new(self.own, pid, VdmOp::DcReqFail) };
            self.out.push_back(EdgeOut::Vdm(fail));
        } else {
            self.counts.lost += 1;
        }
    }

    fn end(&mut self, slot: usize, outcome: Outcome) {
        if let Some(Thread { pid, cmd_seq, .. }) = self.slots.get_mut(slot).and_then(Option::take) {
            self.out.push_back(EdgeOut::Ended { pid, cmd_seq, outcome });
        }
    }
}

impl Thread {
    fn message(&self, own: Pid, op: VdmOp) -> Vdm {
        Vdm { cmd_seq: self.cmd_seq, ..Vdm::new(own, self.pid, op) }
    }

    /// Length of the command in bytes, padded to whole DWs.
    fn whole(&self) -> usize {
        usize::from(self.command.len).next_multiple_of(4)
    }
}

/// Number of the `len` bytes from `addr` on that lie within its page.
fn in_page(Hpa(addr): Hpa, len: usize) -> usize {
    usize::try_from(PAGE - addr % PAGE).unwrap_or(usize::MAX).min(len)
}
