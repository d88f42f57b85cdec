//! One end of a link that carries TLPs, on a port: of hosts, devices, GFDs and the agent of a switch.
//!
//! [`TlpEnd::poll`] passes each received TLP to a handler; the handler's answers go into an [`Outbox`] and leave
//! right after it. PFC pauses priorities one by one; frames for which the port has no room wait in order.
//!
//! Source: docs/spec/wire-formats.md §3.7a; IEEE 802.1Q-2022 clause 36; docs/spec/cxl-fabric.md "Routes" (endpoints
//! sink what comes).

mod config;
mod outbox;

use std::collections::VecDeque;

use weft_dataplane::batch::{BURST, Batch};
use weft_dataplane::desc::Desc;
use weft_dataplane::pool::Bufs;
use weft_dataplane::port::{Port, PortError};
use weft_dataplane::time::Instant;
use weft_dataplane::types::{PerPri, Pri, PriSet};
use weft_parsers::cxl_cache::CacheMessage;
use weft_parsers::cxl_mem::MemMessage;
use weft_parsers::mac_control::opcode;
use weft_parsers::tlp::{LinkReset, Mode, PbrTlp, Protocol, Pth, Tlp, TlpLink, TlpRepr};
use weft_parsers::{MacAddr, ParseError, Pfc, ether_type};

use weft_hosts::pfc::Pauses;

use crate::vdm::link_reset::{Ordered, ResetReceiver};

pub use config::{Carries, EndConfig, EndCounts, Frame, Received};
use outbox::MACS_LEN;
pub use outbox::{Outbox, PlaceError, SendError, cache_pri_of, mem_pri_of, pri_of};

/// Bursts received in one poll.
const RX_BURSTS: usize = 8;
const TAG_LEN: usize = 4;
/// Frames that may wait for room or the end of a pause before senders are told to hold back.
const WAITING_MAX: usize = 4_096;

/// Result of a poll, and when to poll next.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Progress {
    /// Number of frames received and sent.
    pub frames: usize,
    /// Frames are waiting for room at the port, or for the end of a pause.
    pub blocked: bool,
    /// Time of the next poll: a pause that stops a frame ends, or the reset of this end.
    pub next: Option<Instant>,
}

/// One end of a link for TLPs. Its driver owns the port and a handle of the pool.
#[derive(Debug)]
pub struct TlpEnd {
    config: EndConfig,
    outbox: Outbox,
    waiting: PerPri<VecDeque<Desc>>,
    pauses: Pauses,
    /// Set at a lower end, which the upper end of the link may reset.
    reset: Option<ResetReceiver>,
    /// Frames in `waiting` are from before a reset, and must not be sent.
    stale: bool,
    counts: EndCounts,
}

impl TlpEnd {
    /// An end without a known partner.
    #[must_use]
    pub fn new(config: EndConfig) -> Self {
        let outbox = Outbox::new(&config);
        let pauses = Pauses::new(&config.classes);
        let counts = EndCounts::default();
        let (waiting, reset, stale) = (PerPri::default(), None, false);
        Self { config, outbox, waiting, pauses, reset, stale, counts }
    }

    /// Makes it the lower end of a link, which obeys resets by the upper one.
    #[must_use]
    pub fn lower(self) -> Self {
        Self { reset: Some(ResetReceiver::default()), ..self }
    }

    /// Whether the upper end of the link holds this one in reset.
    #[must_use]
    pub fn is_in_reset(&self) -> bool {
        self.reset.as_ref().is_some_and(ResetReceiver::is_held)
    }

    #[must_use]
    pub const fn counts(&self) -> EndCounts {
        self.counts
    }

    /// Outbox for TLPs that are no answers; they leave at the next poll.
    pub const fn outbox(&mut self) -> &mut Outbox {
        &mut self.outbox
    }

    /// Whether so many frames wait that no new requests should be made; completions are accepted all the same.
    #[must_use]
    pub fn is_full(&self) -> bool {
        self.waiting() >= WAITING_MAX
    }

    /// Whether a priority is paused, as of the last look at the time.
    #[must_use]
    pub fn is_paused(&self) -> bool {
        self.counts.pfc_rx > 0 && !self.pauses.paused().is_empty()
    }

    /// Number of frames that wait to be sent.
    #[must_use]
    pub fn waiting(&self) -> usize {
        self.outbox.len() + self.waiting.0.iter().map(VecDeque::len).sum::<usize>()
    }

    /// Receives frames from the port, passes them to `handler`, and sends waiting frames.
    ///
    /// # Errors
    /// The port's error, from its `service`.
    pub fn poll(
        &mut self,
        now: Instant,
        port: &mut dyn Port,
        bufs: &mut Bufs,
        handler: &mut dyn FnMut(Frame<'_>, &mut Outbox),
    ) -> Result<Progress, PortError> {
        let received = self.receive(now, port, bufs, RX_BURSTS, handler);
        let progress = self.flush(now, port, bufs)?;
        Ok(Progress { frames: progress.frames + received, ..progress })
    }

    /// The first half of [`Self::poll`]: receives at most `bursts` bursts; returns the number of frames.
    pub fn receive(
        &mut self,
        now: Instant,
        port: &mut dyn Port,
        bufs: &mut Bufs,
        bursts: usize,
        handler: &mut dyn FnMut(Frame<'_>, &mut Outbox),
    ) -> usize {
        let mut frames = 0;
        let mut batch = Batch::new();
        // Before any frame: a reset that has run out must not make this poll drop frames.
        let over = self.reset.as_mut().and_then(|reset| reset.tick(now, port.link_up()));
        if let Some(ordered) = over {
            self.hand_reset(ordered, handler);
        }
        for _ in 0..bursts.min(RX_BURSTS) {
            let had = port.rx(now, bufs, &mut batch);
            for desc in batch.drain(..) {
                self.take(now, port, bufs.bytes(&desc), handler);
                bufs.free(desc);
            }
            frames += had;
            if had == 0 {
                break;
            }
        }
        // `hand_reset` has no handle of the pool. Answers since then are in the outbox, and stay.
        if core::mem::take(&mut self.stale) {
            self.release(bufs);
        }
        self.load(bufs);
        frames
    }

    /// Appends a TLP that is written directly into its chunk: `fill` gets the place of the payload, `payload_len`
    /// bytes with any contents, and returns whether to send it.
    ///
    /// # Errors
    /// See [`PlaceError`]; nothing is appended then.
    pub fn place(
        &mut self,
        bufs: &mut Bufs,
        pth: Option<Pth>,
        tlp: &TlpRepr<'_>,
        payload_len: usize,
        fill: impl FnOnce(&mut [u8]) -> bool,
    ) -> Result<(), PlaceError> {
        let protocol = self.outbox.protocol(pth, tlp)?;
        let head = self.outbox.head(self.outbox.partner, protocol, pth);
        let pri = pri_of(tlp.kind, tlp.tc, &self.config.tlp);
        self.place_with(bufs, pri, |space| head.write(tlp, payload_len, fill, space))
    }

    /// Has `write` write a frame into a chunk, and appends the chunk.
    fn place_with(
        &mut self,
        bufs: &mut Bufs,
        pri: Pri,
        write: impl FnOnce(&mut [u8]) -> Result<usize, PlaceError>,
    ) -> Result<(), PlaceError> {
        let mut desc = bufs.alloc().ok_or(PlaceError::NoChunk)?;
        match write(bufs.space_mut(&mut desc).unwrap_or_default()) {
            Ok(len) => {
                bufs.set_len(&mut desc, len);
                self.waiting[pri].push_back(desc);
                Ok(())
            }
            Err(error) => {
                // Nothing frees a chunk by itself: without this, each refusal would leak one.
                bufs.free(desc);
                Err(error)
            }
        }
    }

    /// Appends a CXL.mem message, written directly into its chunk.
    ///
    /// # Errors
    /// See [`PlaceError`]; nothing is appended then.
    pub fn place_mem(
        &mut self,
        bufs: &mut Bufs,
        pth: Option<Pth>,
        message: &MemMessage<'_>,
    ) -> Result<(), PlaceError> {
        let head = self.outbox.head_of_mem(pth)?;
        let pri = mem_pri_of(message.head.op, &self.config.tlp);
        self.place_with(bufs, pri, |space| head.write_mem(message, space))
    }

    /// The second half of [`Self::poll`]: sends waiting frames.
    ///
    /// # Errors
    /// The port's error, from its `service`.
    pub fn flush(
        &mut self,
        now: Instant,
        port: &mut dyn Port,
        bufs: &mut Bufs,
    ) -> Result<Progress, PortError> {
        // Again: for frames of the owner since `receive`, and those that found no chunk there.
        self.load(bufs);
        let frames = self.send(now, port, bufs);
        port.service(now, bufs)?;
        let blocked = self.waiting() > 0;
        // A pause that stops no frame needs no timer.
        let next = self.pauses.tick(now).filter(|_| blocked);
        let next = Instant::earlier(next, self.reset.as_ref().and_then(ResetReceiver::next_due));
        Ok(Progress { frames, blocked, next })
    }

    /// Frees all chunks that wait.
    pub fn release(&mut self, bufs: &mut Bufs) {
        for desc in self.waiting.0.iter_mut().flat_map(|waiting| waiting.drain(..)) {
            bufs.free(desc);
        }
    }

    fn take(
        &mut self,
        now: Instant,
        port: &dyn Port,
        bytes: &[u8],
        handler: &mut dyn FnMut(Frame<'_>, &mut Outbox),
    ) {
        let Some((macs, rest)) = bytes.split_first_chunk::<MACS_LEN>() else {
            self.counts.malformed += 1;
            return;
        };
        let [d0, d1, d2, d3, d4, d5, s0, s1, s2, s3, s4, s5] = *macs;
        let (to, from) = (MacAddr([d0, d1, d2, d3, d4, d5]), MacAddr([s0, s1, s2, s3, s4, s5]));
        if rest.starts_with(&ether_type::MAC_CONTROL.to_be_bytes()) {
            self.take_control(now, port, bytes);
            return;
        }
        // A tag is allowed and ignored: the priority follows from the TLP's Traffic Class
        // (docs/spec/wire-formats.md §3.7a).
        let tagged = rest.starts_with(&ether_type::CTAG.to_be_bytes());
        let rest = rest.get(if tagged { TAG_LEN } else { 0 }..).unwrap_or_default();
        let Ok((head, rest)) = TlpLink::parse(rest, self.config.tlp.oui) else {
            self.counts.foreign += 1;
            return;
        };
        // The partner's address is learnt from its frames: links have no address resolution.
        self.outbox.partner = from;
        if head.protocol == Protocol::Control {
            return self.take_link_control(now, to, from, rest, handler);
        }
        // Below link control, as orders are the only frames that count during a reset (docs/spec/wire-formats.md
        // §3.7b).
        if self.is_in_reset() {
            self.counts.in_reset += 1;
            return;
        }
        let content = match (head.protocol, self.config.carries) {
            (Protocol::PbrMem, Carries::Pbr) | (Protocol::HbrMem, Carries::Hbr(_)) => {
                let Ok((pth, message)) = read_mem(head.protocol, rest) else {
                    self.counts.malformed += 1;
                    return;
                };
                Received::Mem(pth, message)
            }
            (Protocol::HbrCache, Carries::Hbr(_)) => {
                let Ok(message) = CacheMessage::parse(rest) else {
                    self.counts.malformed += 1;
                    return;
                };
                Received::Cache(message)
            }
            (Protocol::Pbr, Carries::Pbr | Carries::Both) => match PbrTlp::parse(rest) {
                Ok(Some(pbr)) => Received::Tlp(Some(pbr.pth()), *pbr.tlp()),
                Ok(None) => return, // nothing but NOPs
                Err(_) => {
                    self.counts.malformed += 1;
                    return;
                }
            },
            (protocol, carries) if mode_of(protocol).is_some_and(|mode| fits(carries, mode)) => {
                let mode = mode_of(protocol).unwrap_or(Mode::Flit);
                let Ok(tlp) = Tlp::parse(mode, rest) else {
                    self.counts.malformed += 1;
                    return;
                };
                Received::Tlp(None, tlp)
            }
            _ => {
                self.counts.foreign += 1;
                return;
            }
        };
        // Max_Payload_Size is a limit for receivers as well: a longer TLP is malformed (PCIe 6.0, 2.2.2).
        if let Received::Tlp(_, tlp) = content
            && tlp.payload().len() > self.config.payload_max
        {
            self.counts.malformed += 1;
            return;
        }
        self.counts.rx += 1;
        handler(Frame { to, from, content }, &mut self.outbox);
    }

    /// Processes link control: an order for this end, or a message for its owner.
    fn take_link_control(
        &mut self,
        now: Instant,
        to: MacAddr,
        from: MacAddr,
        bytes: &[u8],
        handler: &mut dyn FnMut(Frame<'_>, &mut Outbox),
    ) {
        let Ok(message) = LinkReset::parse(bytes) else {
            self.counts.malformed += 1;
            return;
        };
        // An upper end: its owner runs `ResetOrders` and gets the answers.
        let Some(reset) = &mut self.reset else {
            self.counts.rx += 1;
            let content = Received::Control(message);
            return handler(Frame { to, from, content }, &mut self.outbox);
        };
        let Some((ordered, answer)) = reset.receive(now, message) else {
            self.counts.foreign += 1;
            return;
        };
        if let Some(ordered) = ordered {
            self.hand_reset(ordered, handler);
        }
        // After `hand_reset`, which clears the outbox.
        self.outbox.control_partner(answer);
    }

    /// Passes the begin or end of a reset to the handler; frames that wait are from before it.
    fn hand_reset(&mut self, ordered: Ordered, handler: &mut dyn FnMut(Frame<'_>, &mut Outbox)) {
        if ordered == Ordered::Begins {
            self.counts.resets += 1;
            // Before the handler runs, whose frames belong to the time after the begin.
            self.outbox.clear();
            self.stale = true;
        }
        let content = Received::Reset(ordered);
        let (to, from) = (self.config.mac, self.outbox.partner);
        handler(Frame { to, from, content }, &mut self.outbox);
    }

    fn take_control(&mut self, now: Instant, port: &dyn Port, frame: &[u8]) {
        let code = frame.get(14..16).and_then(|code| code.first_chunk());
        if code.is_some_and(|&code| u16::from_be_bytes(code) == opcode::PFC)
            && let Ok(pfc) = Pfc::parse(frame)
        {
            self.counts.pfc_rx += 1;
            self.pauses.receive(now, &pfc, port.caps().rate);
        }
    }

    /// Moves frames from the outbox into chunks; frames without a chunk stay for the next call.
    fn load(&mut self, bufs: &mut Bufs) {
        let Outbox { bytes, ends, .. } = &mut self.outbox;
        let (mut from, mut moved) = (0, 0);
        for &(end, pri) in &*ends {
            let frame = bytes.get(from..end).unwrap_or_default();
            // It would never find a chunk, and all frames behind it would wait for ever.
            if frame.len() > bufs.room() {
                self.counts.too_long += 1;
            } else if let Some(desc) = bufs.alloc_from(frame) {
                self.waiting[pri].push_back(desc);
            } else {
                // No chunk is free, and later frames must not overtake this one.
                break;
            }
            from = end;
            moved += 1;
        }
        if moved == ends.len() {
            bytes.clear();
            ends.clear();
            return;
        }
        bytes.drain(..from);
        ends.drain(..moved);
        for (end, _) in ends {
            *end -= from;
        }
    }

    /// Sends waiting frames of priorities that are not paused, the highest first; returns how many the port took.
    fn send(&mut self, now: Instant, port: &mut dyn Port, bufs: &mut Bufs) -> usize {
        self.pauses.tick(now);
        // Without a PFC frame so far no priority can be paused.
        let paused = if self.counts.pfc_rx == 0 { PriSet::EMPTY } else { self.pauses.paused() };
        let mut sent = 0;
        for pri in Pri::ALL.into_iter().rev().filter(|&pri| !paused.contains(pri)) {
            loop {
                // Asked first, so that `tx` rarely has to give back frames, which must go to the front again.
                let room = port.tx_room(now).min(BURST);
                let queue = &mut self.waiting[pri];
                let count = room.min(queue.len());
                if count == 0 {
                    break;
                }
                let mut batch: Batch = queue.drain(..count).collect();
                port.tx(now, bufs, &mut batch);
                let left = batch.len();
                // In reverse, so that their order is as before.
                for desc in batch.drain(..).rev() {
                    queue.push_front(desc);
                }
                sent += count - left;
                if left > 0 {
                    break;
                }
            }
        }
        self.counts.tx += sent as u64;
        sent
    }
}

/// A CXL.mem message, with its PTH if the protocol has one.
fn read_mem(protocol: Protocol, bytes: &[u8]) -> Result<(Option<Pth>, MemMessage<'_>), ParseError> {
    if protocol == Protocol::HbrMem {
        return Ok((None, MemMessage::parse(bytes)?));
    }
    let (pth, bytes) = Pth::parse(bytes)?;
    Ok((Some(pth), MemMessage::parse(bytes)?))
}

const fn mode_of(protocol: Protocol) -> Option<Mode> {
    match protocol {
        Protocol::HbrFlit => Some(Mode::Flit),
        Protocol::HbrNonFlit => Some(Mode::NonFlit),
        _ => None,
    }
}

fn fits(carries: Carries, mode: Mode) -> bool {
    match carries {
        Carries::Hbr(own) => own == mode,
        Carries::Pbr => false,
        Carries::Both => true,
    }
}

#[cfg(test)]
mod tests;
