//! One end of a link that carries TLPs: what hosts, devices, GFDs and the agent of a switch hang on a port by.
//!
//! [`TlpEnd::poll`] hands each TLP that comes to a handler, whose answers go into an [`Outbox`] and out
//! behind it; PFC stops priorities one by one; what the port has no room for waits in order.
//!
//! Units: bytes without FCS, frames.
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

/// Bursts that one poll takes in.
const RX_BURSTS: usize = 8;
const TAG_LEN: usize = 4;
/// Frames that may wait for room or for the end of a pause, before a sender is told to hold back.
const WAITING_MAX: usize = 4_096;

/// What one poll did, and when to poll next.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Progress {
    /// Frames received and sent.
    pub frames: usize,
    /// Frames wait for room at the port, or for a pause to end.
    pub blocked: bool,
    /// When a pause ends that stops a frame.
    pub next: Option<Instant>,
}

/// One end of a link for TLPs. Whoever drives it has the port and a handle of the pool.
#[derive(Debug)]
pub struct TlpEnd {
    config: EndConfig,
    outbox: Outbox,
    waiting: PerPri<VecDeque<Desc>>,
    pauses: Pauses,
    /// The upper end of the link resets what is here.
    reset: Option<ResetReceiver>,
    /// What waits is of before a reset.
    stale: bool,
    counts: EndCounts,
}

impl TlpEnd {
    /// An end that has not spoken yet.
    #[must_use]
    pub fn new(config: EndConfig) -> Self {
        let outbox = Outbox::new(&config);
        let pauses = Pauses::new(&config.classes);
        let counts = EndCounts::default();
        let (waiting, reset, stale) = (PerPri::default(), None, false);
        Self { config, outbox, waiting, pauses, reset, stale, counts }
    }

    /// The lower end of a link: it obeys resets of the upper one.
    #[must_use]
    pub fn lower(self) -> Self {
        Self { reset: Some(ResetReceiver::default()), ..self }
    }

    /// Whether the upper end of the link holds what is here in reset.
    #[must_use]
    pub fn is_in_reset(&self) -> bool {
        self.reset.as_ref().is_some_and(ResetReceiver::is_held)
    }

    /// Counts so far.
    #[must_use]
    pub const fn counts(&self) -> EndCounts {
        self.counts
    }

    /// Where TLPs are put that are no answer; they leave at the next poll.
    pub const fn outbox(&mut self) -> &mut Outbox {
        &mut self.outbox
    }

    /// Whether so much waits to be sent that no new requests should be made; completions are taken all the same.
    #[must_use]
    pub fn is_full(&self) -> bool {
        self.waiting() >= WAITING_MAX
    }

    /// Whether a pause was asked for that has not been seen to end.
    #[must_use]
    pub fn is_paused(&self) -> bool {
        self.counts.pfc_rx > 0 && !self.pauses.paused().is_empty()
    }

    /// TLPs that wait to be sent.
    #[must_use]
    pub fn waiting(&self) -> usize {
        self.outbox.len() + self.waiting.0.iter().map(VecDeque::len).sum::<usize>()
    }

    /// Takes in what the port has, hands it to `handler`, and sends what is to be sent.
    ///
    /// # Errors
    /// The port's own.
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

    /// The first half of [`Self::poll`]: takes in `bursts` at most; returns how many frames came.
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
        if core::mem::take(&mut self.stale) {
            self.release(bufs);
        }
        self.load(bufs);
        frames
    }

    /// Appends a TLP that is written straight into its chunk: `fill` gets the place of the payload, of
    /// `payload_len` bytes with anything in them, and says whether the TLP is to go.
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

    /// Has a frame written into a chunk, and appends it.
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
                bufs.free(desc);
                Err(error)
            }
        }
    }

    /// Appends a CXL.mem message that is written straight into its chunk.
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

    /// The second half of [`Self::poll`]: sends what waits.
    ///
    /// # Errors
    /// The port's own.
    pub fn flush(
        &mut self,
        now: Instant,
        port: &mut dyn Port,
        bufs: &mut Bufs,
    ) -> Result<Progress, PortError> {
        self.load(bufs);
        let frames = self.send(now, port, bufs);
        port.service(now, bufs)?;
        let blocked = self.waiting() > 0;
        let next = self.pauses.tick(now).filter(|_| blocked);
        let next = Instant::earlier(next, self.reset.as_ref().and_then(ResetReceiver::next_due));
        Ok(Progress { frames, blocked, next })
    }

    /// Gives back all chunks that wait.
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
        let tagged = rest.starts_with(&ether_type::CTAG.to_be_bytes());
        let rest = rest.get(if tagged { TAG_LEN } else { 0 }..).unwrap_or_default();
        let Ok((head, rest)) = TlpLink::parse(rest, self.config.tlp.oui) else {
            self.counts.foreign += 1;
            return;
        };
        self.outbox.partner = from;
        if head.protocol == Protocol::Control {
            return self.take_link_control(now, to, from, rest, handler);
        }
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
        if let Received::Tlp(_, tlp) = content
            && tlp.payload().len() > self.config.payload_max
        {
            self.counts.malformed += 1;
            return;
        }
        self.counts.rx += 1;
        handler(Frame { to, from, content }, &mut self.outbox);
    }

    /// What the other end says of the link: an order here, or for whoever stands behind this end.
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
        self.outbox.control_partner(answer);
    }

    /// Tells whoever stands behind this end of a reset; what waits to be sent is of before it.
    fn hand_reset(&mut self, ordered: Ordered, handler: &mut dyn FnMut(Frame<'_>, &mut Outbox)) {
        if ordered == Ordered::Begins {
            self.counts.resets += 1;
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

    /// Moves frames out of the outbox into chunks; what finds none stays for the next time.
    fn load(&mut self, bufs: &mut Bufs) {
        let Outbox { bytes, ends, .. } = &mut self.outbox;
        let (mut from, mut moved) = (0, 0);
        for &(end, pri) in &*ends {
            let frame = bytes.get(from..end).unwrap_or_default();
            if frame.len() > bufs.room() {
                self.counts.too_long += 1;
            } else if let Some(desc) = bufs.alloc_from(frame) {
                self.waiting[pri].push_back(desc);
            } else {
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

    /// Sends what waits and is not paused, higher priorities first; returns how many frames the port took.
    fn send(&mut self, now: Instant, port: &mut dyn Port, bufs: &mut Bufs) -> usize {
        self.pauses.tick(now);
        let paused = if self.counts.pfc_rx == 0 { PriSet::EMPTY } else { self.pauses.paused() };
        let mut sent = 0;
        for pri in Pri::ALL.into_iter().rev().filter(|&pri| !paused.contains(pri)) {
            loop {
                let room = port.tx_room(now).min(BURST);
                let queue = &mut self.waiting[pri];
                let count = room.min(queue.len());
                if count == 0 {
                    break;
                }
                let mut batch: Batch = queue.drain(..count).collect();
                port.tx(now, bufs, &mut batch);
                let left = batch.len();
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

/// A CXL.mem message, behind its PTH if the link has them.
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
