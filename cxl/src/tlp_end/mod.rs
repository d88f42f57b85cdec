//! One end of a link that carries TLPs: what hosts, devices, GFDs and the agent of a switch hang on a port by.
//!
//! Shape: [`TlpEnd::poll`] hands each TLP that comes to a handler, whose answers go into an [`Outbox`] and out
//! behind it; PFC stops priorities one by one; what the port has no room for waits in order.
//! Units: bytes without FCS, frames.
//! Source: docs/spec/wire-formats.md §3.7a; IEEE 802.1Q-2022 clause 36; docs/spec/cxl-fabric.md "Routes" (endpoints
//! sink what comes).

use std::collections::VecDeque;

use arrayvec::ArrayVec;
use weft_dataplane::batch::{BURST, Batch};
use weft_dataplane::config::TlpConfig;
use weft_dataplane::desc::Desc;
use weft_dataplane::pool::Bufs;
use weft_dataplane::port::{Port, PortError};
use weft_dataplane::time::Instant;
use weft_dataplane::types::{PerPri, Pri, PriSet};
use weft_parsers::mac_control::opcode;
use weft_parsers::tlp::{
    EmitError, Kind, Mode, PbrTlp, Protocol, Pth, Tlp, TlpLink, TlpRepr, link, pth,
};
use weft_parsers::{MacAddr, Pfc, ether_type};

use weft_hosts::classes::PriMap;
use weft_hosts::pfc::Pauses;

/// Bursts that one poll takes in.
const RX_BURSTS: usize = 8;
/// Addresses, link header, PTH.
const HEAD_MAX: usize = MACS_LEN + link::LEN + pth::LEN;
const MACS_LEN: usize = 12;
const TAG_LEN: usize = 4;
/// Frames that may wait for room or for the end of a pause, before a sender is told to hold back.
const WAITING_MAX: usize = 4_096;

/// What the link carries.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Carries {
    /// TLPs without PTH: between a switch and a host or device.
    Hbr(Mode),
    /// TLPs with PTH: between a switch and a GFD, or another switch.
    Pbr,
    /// Whatever stands in the frame: between a switch and its agent.
    Both,
}

/// What an end is like.
#[derive(Clone, Debug)]
pub struct EndConfig {
    /// Its address.
    pub mac: MacAddr,
    /// What the link carries.
    pub carries: Carries,
    /// Priorities and OUI, as in the switch at the other end.
    pub tlp: TlpConfig,
    /// Priority of each PFC class, as in the switch at the other end.
    pub classes: PriMap,
    /// `Max_Payload_Size`, bytes.
    pub payload_max: usize,
}

/// What a frame holds: a TLP, or what its sender says of the link.
#[derive(Clone, Copy, Debug)]
pub enum Received<'a> {
    /// A TLP, with the PTH that it came with.
    Tlp(Option<Pth>, Tlp<'a>),
    /// What the other end says of the link (protocol 4).
    Control(&'a [u8]),
}

/// A frame as it came, for those to whom its addresses mean something.
#[derive(Clone, Copy, Debug)]
pub struct Frame<'a> {
    /// Destination.
    pub to: MacAddr,
    /// Source.
    pub from: MacAddr,
    /// What it carries.
    pub content: Received<'a>,
}

/// Counts of an end.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, serde::Serialize)]
pub struct EndCounts {
    /// TLPs that came in.
    pub rx: u64,
    /// Frames that hold no TLP, or one of another kind than the link carries.
    pub foreign: u64,
    /// Malformed TLPs, and those longer than `Max_Payload_Size`.
    pub malformed: u64,
    /// TLPs that the port took.
    pub tx: u64,
    /// TLPs that are longer than a chunk of the pool: dropped.
    pub too_long: u64,
    /// PFC frames.
    pub pfc_rx: u64,
}

/// TLPs on their way out of a handler.
#[derive(Debug)]
pub struct Outbox {
    bytes: Vec<u8>,
    /// Where each frame ends, and its priority.
    ends: Vec<(usize, Pri)>,
    mac: MacAddr,
    partner: MacAddr,
    carries: Carries,
    tlp: TlpConfig,
}

/// Why a TLP was not taken.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
pub enum SendError {
    /// It cannot be written.
    #[error(transparent)]
    Emit(#[from] EmitError),
    /// The link wants a PTH, or none.
    #[error("the link carries TLPs {0}")]
    Pth(&'static str),
}

/// Why a TLP was not placed.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
pub enum PlaceError {
    /// It cannot be written, or does not belong on the link.
    #[error(transparent)]
    Send(#[from] SendError),
    /// The pool has no chunk now.
    #[error("the pool is empty")]
    NoChunk,
    /// Whoever was to fill it did not.
    #[error("there is no payload")]
    Unfilled,
}

impl From<EmitError> for PlaceError {
    fn from(error: EmitError) -> Self {
        Self::Send(error.into())
    }
}

impl Outbox {
    /// Appends a TLP. On a link of several kinds, its PTH says which one it is.
    ///
    /// # Errors
    /// See [`SendError`]; nothing is appended then.
    pub fn send(&mut self, pth: Option<Pth>, tlp: &TlpRepr<'_>) -> Result<(), SendError> {
        self.send_to(self.partner, pth, tlp)
    }

    /// As [`Self::send`], to an address of the link's own.
    ///
    /// # Errors
    /// See [`SendError`]; nothing is appended then.
    pub fn send_to(
        &mut self,
        to: MacAddr,
        pth: Option<Pth>,
        tlp: &TlpRepr<'_>,
    ) -> Result<(), SendError> {
        let protocol = self.protocol(pth, tlp)?;
        let pri = pri_of(tlp.kind, tlp.tc, &self.tlp);
        let start = self.bytes.len();
        self.bytes.extend_from_slice(self.head(to, protocol, pth).bytes());
        let at = self.bytes.len();
        let written = tlp.emit_len().and_then(|len| {
            self.bytes.resize(at + len, 0);
            tlp.emit(self.bytes.get_mut(at..).unwrap_or_default())
        });
        match written {
            Ok(len) => {
                self.bytes.truncate(at + len);
                self.ends.push((self.bytes.len(), pri));
                Ok(())
            }
            Err(error) => {
                self.bytes.truncate(start);
                Err(error.into())
            }
        }
    }

    /// Appends a TLP without PTH as it came, with what [`TlpRepr`] leaves behind.
    ///
    /// # Errors
    /// The link wants a PTH; nothing is appended then.
    pub fn pass(&mut self, tlp: &Tlp<'_>) -> Result<(), SendError> {
        if self.carries == Carries::Pbr {
            return Err(SendError::Pth("with PTH"));
        }
        let protocol = match tlp.mode() {
            Mode::Flit => Protocol::HbrFlit,
            Mode::NonFlit => Protocol::HbrNonFlit,
        };
        let head = self.head(self.partner, protocol, None);
        self.bytes.extend_from_slice(head.bytes());
        self.bytes.extend_from_slice(tlp.bytes().get(..tlp.len()).unwrap_or_default());
        self.ends.push((self.bytes.len(), pri_of(tlp.kind(), tlp.tc(), &self.tlp)));
        Ok(())
    }

    /// Appends what is said of the link itself (protocol 4).
    pub fn control(&mut self, bytes: &[u8]) {
        let head = self.head(self.partner, Protocol::Control, None);
        self.bytes.extend_from_slice(head.bytes());
        self.bytes.extend_from_slice(bytes);
        self.ends.push((self.bytes.len(), self.tlp.tc_to_pri[0]));
    }

    /// How the link names a TLP.
    fn protocol(&self, pth: Option<Pth>, tlp: &TlpRepr<'_>) -> Result<Protocol, SendError> {
        match (self.carries, pth) {
            (Carries::Hbr(_), Some(_)) => return Err(SendError::Pth("without PTH")),
            (Carries::Pbr, None) => return Err(SendError::Pth("with PTH")),
            _ => {}
        }
        Ok(match (pth, tlp.mode) {
            (Some(_), _) => Protocol::Pbr,
            (None, Mode::Flit) => Protocol::HbrFlit,
            (None, Mode::NonFlit) => Protocol::HbrNonFlit,
        })
    }

    fn head(&self, to: MacAddr, protocol: Protocol, pth: Option<Pth>) -> Head {
        let mut head = Head { bytes: ArrayVec::new() };
        head.push(&to.0);
        head.push(&self.mac.0);
        let mut link = [0; link::LEN];
        let written = TlpLink { oui: self.tlp.oui, protocol }.emit(&mut link);
        debug_assert!(written.is_ok(), "the array is of its length");
        head.push(&link);
        if let Some(pth) = pth {
            head.push(&pth.emit());
        }
        head
    }

    /// TLPs that wait in it.
    #[must_use]
    pub const fn len(&self) -> usize {
        self.ends.len()
    }

    /// Whether nothing waits in it.
    #[must_use]
    pub const fn is_empty(&self) -> bool {
        self.ends.is_empty()
    }
}

/// What stands in front of a TLP.
struct Head {
    bytes: ArrayVec<u8, HEAD_MAX>,
}

impl Head {
    fn push(&mut self, bytes: &[u8]) {
        let pushed = self.bytes.try_extend_from_slice(bytes);
        debug_assert!(pushed.is_ok(), "it has room for all parts");
    }

    fn bytes(&self) -> &[u8] {
        &self.bytes
    }

    /// Writes itself and the TLP into `space`; returns the length of all.
    fn write(
        &self,
        tlp: &TlpRepr<'_>,
        payload_len: usize,
        fill: impl FnOnce(&mut [u8]) -> bool,
        space: &mut [u8],
    ) -> Result<usize, PlaceError> {
        let had = space.len();
        let short = || EmitError::Room { need: HEAD_MAX, had };
        let (head, rest) = space.split_at_mut_checked(self.bytes.len()).ok_or_else(short)?;
        head.copy_from_slice(&self.bytes);
        let at = tlp.emit_head(payload_len, rest)?;
        let need = self.bytes.len() + at + payload_len;
        let payload = rest.get_mut(at..at + payload_len);
        let payload = payload.ok_or(EmitError::Room { need, had })?;
        if fill(payload) { Ok(need) } else { Err(PlaceError::Unfilled) }
    }
}

/// Priority of a TLP, as the switch gives it.
#[must_use]
pub fn pri_of(kind: Kind, tc: u8, config: &TlpConfig) -> Pri {
    if kind.is_uio_request() {
        config.uio_req_pri
    } else if kind.is_uio_completion() {
        config.uio_cpl_pri
    } else {
        config.tc_to_pri.get(usize::from(tc & 7)).copied().unwrap_or_default()
    }
}

/// How far a poll came.
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
    counts: EndCounts,
}

impl TlpEnd {
    /// An end that has not spoken yet.
    #[must_use]
    pub fn new(config: EndConfig) -> Self {
        let outbox = Outbox {
            bytes: Vec::new(),
            ends: Vec::new(),
            mac: config.mac,
            partner: MacAddr::BROADCAST,
            carries: config.carries,
            tlp: config.tlp.clone(),
        };
        let pauses = Pauses::new(&config.classes);
        let counts = EndCounts::default();
        Self { config, outbox, waiting: PerPri::default(), pauses, counts }
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

    /// Whether so much waits that who makes requests should hold back; answers are taken all the same.
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
        (tlp, payload_len): (&TlpRepr<'_>, usize),
        fill: impl FnOnce(&mut [u8]) -> bool,
    ) -> Result<(), PlaceError> {
        let protocol = self.outbox.protocol(pth, tlp)?;
        let mut desc = bufs.alloc().ok_or(PlaceError::NoChunk)?;
        let space = bufs.space_mut(&mut desc).unwrap_or_default();
        let head = self.outbox.head(self.outbox.partner, protocol, pth);
        let written = head.write(tlp, payload_len, fill, space);
        match written {
            Ok(len) => {
                bufs.set_len(&mut desc, len);
                self.waiting[pri_of(tlp.kind, tlp.tc, &self.config.tlp)].push_back(desc);
                Ok(())
            }
            Err(error) => {
                bufs.free(desc);
                Err(error)
            }
        }
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
        let content = match (head.protocol, self.config.carries) {
            (Protocol::Control, _) => Received::Control(rest),
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

const _: () = assert!(HEAD_MAX <= 64, "a head fits the first cache line");

#[cfg(test)]
mod tests;
