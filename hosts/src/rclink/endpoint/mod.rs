//! An RC Link endpoint: messages out and in, over any `Port`.
//!
//! Shape: [`EndpointSpec`] is what it is; [`Endpoint::send`] gives it a message; [`Endpoint::poll`] moves it to `now` and says
//! when it wants to be polled next; [`Endpoint::events`] is what came of messages.
//! Units: picoseconds, bytes of payload.
//! Source: docs/spec/model.md §4; docs/spec/wire-formats.md §1.5.
//!
//! Queue pairs are named by the endpoints at their ends: the frames of endpoint n are for queue pair n of whoever they go
//! to, who takes them from the address of endpoint n only.

use std::collections::{BTreeMap, VecDeque};

use weft_dataplane::batch::Batch;
use weft_dataplane::desc::Desc;
use weft_dataplane::pool::Bufs;
use weft_dataplane::port::{Port, PortError};
use weft_dataplane::time::{Instant, Span};
use weft_dataplane::types::Pri;
use weft_parsers::frame::MAX_PAYLOAD_LEN;
use weft_parsers::{AddrKey, ParseConfig};

use super::cnp::CnpMerge;
use super::queue_pair::RxQp;
use super::rate::{RateError, RateWindow};
use super::slots::Slots;
use crate::classes::PriMap;
use crate::frames::{FrameError, FrameSpec, Kind, Station};
use crate::pfc::{Pauses, SlowReceiver, SlowSpec};
use crate::stamp;

mod rx;
mod tx;

/// Queue pairs: 10 of the 13 bits that name one are used.
pub const QPS: u16 = 1 << 10;

/// How frames get there.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Transport {
    /// TYPE1: acknowledged, and sent again after a NAK or so long without an ACK.
    Reliable {
        /// So long.
        timeout: Span,
    },
    /// LITE: sent once.
    Lite,
}

impl Transport {
    /// TYPE1 with a timer of 4.096 us x 2^8.
    pub const RELIABLE: Self = Self::Reliable { timeout: Span::from_ns(4_096 << 8) };
}

/// What an endpoint is built from.
#[derive(Clone, Debug)]
pub struct EndpointSpec {
    /// Its number.
    pub number: u16,
    /// Addresses of all endpoints by number, its own included.
    pub peers: Vec<Station>,
    /// What its frames are like; receiver, RC Link header, Traffic Class and length are filled in.
    pub frame: FrameSpec,
    /// How it reads frames.
    pub parse: ParseConfig,
    /// Priority by header field and PFC class.
    pub classes: PriMap,
    /// How frames get there.
    pub transport: Transport,
    /// Most bytes of payload a frame.
    pub payload_max: usize,
    /// Virtual channel of requests.
    pub request_vc: u8,
    /// Virtual channel of ACKs and CNPs.
    pub ack_vc: u8,
    /// From a frame that is taken to its ACK.
    pub ack_delay: Span,
    /// From a frame with CE to its CNP.
    pub cnp_delay: Span,
    /// CNPs of one queue pair that come within so long of one passed on are held back.
    pub cnp_merge: Span,
    /// Rate of each queue pair: windows of 4.096 us x 2^n, bytes a window; `None` for no limit.
    pub rate: Option<(u32, u32)>,
    /// Receives slowly, and sends PFC.
    pub slow: Option<SlowSpec>,
}

impl EndpointSpec {
    /// Endpoint `number` of `peers`, sending frames of `kind` with defaults for all else.
    #[must_use]
    pub fn new(number: u16, peers: Vec<Station>, kind: Kind) -> Self {
        let own = peers.get(usize::from(number)).copied().unwrap_or(Station::numbered(number));
        Self {
            number,
            peers,
            frame: FrameSpec::new(kind, own, own),
            parse: ParseConfig { port_mac: own.mac, ..ParseConfig::DEFAULT },
            classes: PriMap::four(),
            transport: if kind == Kind::Lite { Transport::Lite } else { Transport::RELIABLE },
            payload_max: MAX_PAYLOAD_LEN,
            request_vc: 3,
            ack_vc: 5,
            ack_delay: Span::ZERO,
            cnp_delay: Span::ZERO,
            cnp_merge: Span::from_us(50),
            rate: None,
            slow: None,
        }
    }

    /// Checks that its parts go together.
    fn check(&self) -> Result<(), EndpointError> {
        let (number, peers) = (self.number, self.peers.len());
        if usize::from(number) >= peers || peers > usize::from(QPS) {
            return Err(EndpointError::Number { number, peers });
        }
        let kind = self.frame.kind;
        let is_lite = self.transport == Transport::Lite;
        let expected = match kind {
            Kind::Lite if !is_lite => Some("the LITE transport: they have no sequence number"),
            Kind::Lite => None,
            Kind::Standard | Kind::Gen1 | Kind::Gen2 if is_lite => {
                Some("acknowledgements: the LITE transport has frames of its own")
            }
            Kind::Standard | Kind::Gen1 | Kind::Gen2 => None,
            Kind::Ethernet | Kind::Roce6 | Kind::Pfc | Kind::Pause => {
                Some("standard, gen1, gen2 or lite")
            }
        };
        if let Some(expected) = expected {
            return Err(EndpointError::Format { kind: kind.name(), expected });
        }
        if !(stamp::LEN..=MAX_PAYLOAD_LEN).contains(&self.payload_max) {
            return Err(EndpointError::Payload(self.payload_max));
        }
        for vc in [self.request_vc, self.ack_vc] {
            if vc > 7 {
                return Err(EndpointError::Vc(vc));
            }
        }
        Ok(())
    }
}

/// An endpoint cannot be built.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum EndpointError {
    /// Its number, or that of its peers.
    #[error(
        "endpoint {number} of {peers}: expected a number below that of the endpoints, of which there are at most {QPS}"
    )]
    Number {
        /// Its own.
        number: u16,
        /// All endpoints.
        peers: usize,
    },
    /// A format or a transport that do not go together.
    #[error("{kind} frames: expected {expected}")]
    Format {
        /// Kind of frame.
        kind: &'static str,
        /// What would do.
        expected: &'static str,
    },
    /// Bytes of payload a frame.
    #[error("payload of {0} bytes a frame: expected {least} to {MAX_PAYLOAD_LEN}", least = stamp::LEN)]
    Payload(usize),
    /// A virtual channel.
    #[error("virtual channel {0}: expected 0 to 7")]
    Vc(u8),
    /// Its frames.
    #[error(transparent)]
    Frame(#[from] FrameError),
    /// Its rate.
    #[error(transparent)]
    Rate(#[from] RateError),
}

/// A message to another endpoint.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Message {
    /// The caller's number for it, which the receiver sees.
    pub id: u32,
    /// Who it is for.
    pub to: u16,
    /// Bytes; at least 1.
    pub bytes: u64,
}

/// What came of messages and queue pairs.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Event {
    /// All of a message is acknowledged; where nothing is, sent.
    Sent {
        /// The message.
        id: u32,
        /// When.
        at: Instant,
    },
    /// A frame of a message has come, whole and in order.
    Received {
        /// Who sent it.
        from: u16,
        /// The message.
        id: u32,
        /// Which of its frames.
        index: u32,
        /// Bytes of payload.
        bytes: usize,
        /// When it was made.
        sent: Option<Instant>,
        /// When it came.
        at: Instant,
    },
    /// A CNP for frames to `to` was not held back.
    Congested {
        /// Where congestion is.
        to: u16,
        /// When the CNP came.
        at: Instant,
    },
    /// Frames to `to` were not acknowledged however often they were sent: no more are.
    Failed {
        /// The other end.
        to: u16,
        /// Frames that were given up.
        frames: usize,
        /// When.
        at: Instant,
    },
}

/// What an endpoint counts.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct EndpointStats {
    /// Data frames sent, those sent again included.
    pub tx_frames: u64,
    /// Bytes of payload in them.
    pub tx_payload: u64,
    /// Data frames sent again.
    pub resent: u64,
    /// ACKs and NAKs sent.
    pub acks_tx: u64,
    /// Of these, NAKs.
    pub naks_tx: u64,
    /// CNPs sent.
    pub cnps_tx: u64,
    /// Data frames taken.
    pub rx_frames: u64,
    /// Bytes of payload in them.
    pub rx_payload: u64,
    /// Data frames that were taken before.
    pub duplicates: u64,
    /// Data frames dropped, as one before them was missing.
    pub out_of_order: u64,
    /// Frames that are missing: of what is not sent again.
    pub lost: u64,
    /// Frames dropped, as the receive buffer was full.
    pub overruns: u64,
    /// Frames that came with CE.
    pub marked: u64,
    /// ACKs taken.
    pub acks_rx: u64,
    /// NAKs taken.
    pub naks_rx: u64,
    /// CNPs taken.
    pub cnps_rx: u64,
    /// Of these, held back.
    pub cnps_merged: u64,
    /// Times that frames were sent again as no ACK came.
    pub timeouts: u64,
    /// Frames that are not RC Link's, not for this endpoint, damaged, or not from whose queue pair they name.
    pub foreign: u64,
    /// PFC frames sent.
    pub pfc_tx: u64,
    /// PFC frames taken.
    pub pfc_rx: u64,
}

/// Frames of messages to one endpoint, and of those from it.
#[derive(Debug)]
struct Peer {
    /// Where its frames come from.
    source: AddrKey,
    /// Messages that are not all in slots, with the bytes and frames of each that are.
    backlog: VecDeque<(Message, u64, u32)>,
    rate: Option<RateWindow>,
    rx: RxQp,
    /// Of frames that are not sent again: the next one of which message.
    rx_next: (u32, u32),
    /// When an ACK is to be sent, and whether as a NAK.
    ack_due: Option<Instant>,
    nak: bool,
}

/// A message that is not done.
#[derive(Clone, Copy, Debug)]
struct Open {
    to: u16,
    /// Frames in slots.
    frames: u64,
    /// Whether no more will be.
    is_whole: bool,
}

/// What one poll did, and when to poll next.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct EndpointProgress {
    /// Frames that the port took.
    pub sent: usize,
    /// Frames that the port delivered.
    pub received: usize,
    /// When there is next something to do, what is on its way over the port included; `None` for never.
    pub next: Option<Instant>,
    /// There is a frame to send now, but the port, or the pool, has no room for it.
    pub blocked: bool,
}

/// An RC Link endpoint in operation.
pub struct Endpoint {
    spec: EndpointSpec,
    peers: Vec<Peer>,
    slots: Slots,
    /// Peers with messages that are not all in slots, in turn.
    writing: VecDeque<u16>,
    /// Messages that are not done, by id.
    open: BTreeMap<u32, Open>,
    /// Peers that wait for an ACK, those that asked for one at once first.
    acks: VecDeque<u16>,
    /// CNPs to be sent: to whom and when.
    cnps: VecDeque<(u16, Instant)>,
    merge: CnpMerge,
    /// Peers whose rate is used up, and when they go on.
    masked: Vec<(Instant, u16)>,
    pauses: Pauses,
    slow: Option<SlowReceiver>,
    request_pri: Pri,
    ack_pri: Pri,
    /// Frames that the port did not take.
    pending: VecDeque<Desc>,
    events: Vec<Event>,
    stats: EndpointStats,
    batch: Batch,
}

impl Endpoint {
    /// An endpoint before its first poll.
    ///
    /// # Errors
    /// See [`EndpointError`].
    pub fn new(spec: EndpointSpec) -> Result<Self, EndpointError> {
        spec.check()?;
        let rate = match spec.rate {
            Some((shift, threshold)) => Some(RateWindow::new(shift, threshold)?),
            None => None,
        };
        let timeout = match spec.transport {
            Transport::Reliable { timeout } => Some(timeout),
            Transport::Lite => None,
        };
        let peers = spec.peers.iter().map(|&station| {
            let from = FrameSpec { src: station, ..spec.frame.clone() };
            Peer {
                source: from.source_key().map_or(AddrKey::ethernet(station.mac), |(key, _)| key),
                backlog: VecDeque::new(),
                rate,
                rx: RxQp::default(),
                rx_next: (0, 0),
                ack_due: None,
                nak: false,
            }
        });
        let is_lite = spec.transport == Transport::Lite;
        let number = spec.number;
        let mut endpoint = Self {
            peers: peers.collect(),
            slots: Slots::new(timeout, false),
            writing: VecDeque::new(),
            open: BTreeMap::new(),
            acks: VecDeque::new(),
            cnps: VecDeque::new(),
            merge: CnpMerge::new(spec.cnp_merge),
            masked: Vec::new(),
            pauses: Pauses::new(&spec.classes),
            slow: spec.slow.map(|slow| SlowReceiver::new(slow, spec.classes)),
            request_pri: Pri::default(),
            ack_pri: Pri::default(),
            pending: VecDeque::new(),
            events: Vec::new(),
            stats: EndpointStats::default(),
            batch: Batch::new(),
            spec,
        };
        endpoint.request_pri = endpoint.pri_of(&endpoint.request_frame(number))?;
        if !is_lite {
            endpoint.ack_pri = endpoint.pri_of(&endpoint.ack_frame(number))?;
        }
        Ok(endpoint)
    }

    /// Gives it a message to send. One to nobody, to itself, to who has failed or of no bytes is given back, as one with the
    /// id of another that is on its way.
    ///
    /// # Errors
    /// The message.
    pub fn send(&mut self, message: Message) -> Result<(), Message> {
        let is_known = usize::from(message.to) < self.peers.len() && message.to != self.spec.number;
        let is_refused = message.bytes == 0 || self.slots.is_fatal(message.to);
        if !is_known || is_refused || self.open.contains_key(&message.id) {
            return Err(message);
        }
        let Some(peer) = self.peers.get_mut(usize::from(message.to)) else { return Err(message) };
        if peer.backlog.is_empty() {
            self.writing.push_back(message.to);
        }
        peer.backlog.push_back((message, 0, 0));
        self.open.insert(message.id, Open { to: message.to, frames: 0, is_whole: false });
        Ok(())
    }

    /// What came of messages since this was asked last, in order.
    pub fn events(&mut self) -> Vec<Event> {
        core::mem::take(&mut self.events)
    }

    /// What it has counted.
    #[must_use]
    pub fn stats(&self) -> EndpointStats {
        EndpointStats { cnps_merged: self.merge.merged(), ..self.stats }
    }

    /// Whether all messages are done.
    #[must_use]
    pub fn is_idle(&self) -> bool {
        self.open.is_empty()
            && self.acks.is_empty()
            && self.cnps.is_empty()
            && self.pending.is_empty()
    }

    /// Time for which requests were stopped by PFC until `now`.
    #[must_use]
    pub fn paused(&self, now: Instant) -> Span {
        self.pauses.spent(self.request_pri, now)
    }

    /// Most bytes that were in the receive buffer at once.
    #[must_use]
    pub fn watermark(&self) -> usize {
        self.slow.as_ref().map_or(0, |slow| slow.watermark(self.request_pri))
    }

    /// Moves the endpoint to `now`: receives, answers, sends.
    ///
    /// # Errors
    /// The port's device is gone; the endpoint is in order and may be polled again.
    pub fn poll(
        &mut self,
        now: Instant,
        port: &mut dyn Port,
        bufs: &mut Bufs,
    ) -> Result<EndpointProgress, PortError> {
        let (received, more) = self.take_in(now, port, bufs);
        self.tick(now);
        let (sent, blocked) = self.send_out(now, port, bufs);
        port.service(now, bufs)?;
        let next = if more { Some(now) } else { self.next(now, port, blocked) };
        Ok(EndpointProgress { sent, received, next, blocked })
    }

    /// What time has brought about.
    fn tick(&mut self, now: Instant) {
        self.pauses.tick(now);
        if let Some(slow) = &mut self.slow {
            slow.tick(now);
        }
        while let Some((to, went)) = self.slots.expire(now) {
            self.stats.timeouts += 1;
            self.went_back(now, to, went);
        }
        let Self { masked, slots, .. } = self;
        masked.retain(|&(at, to)| {
            if at <= now {
                slots.mask(to, false);
            }
            at > now
        });
    }

    /// When there is next something to do.
    fn next(&mut self, now: Instant, port: &mut dyn Port, blocked: bool) -> Option<Instant> {
        let mut next = port.next_event();
        let idle = if blocked { port.idle_at() } else { None };
        let paused = self.pauses.tick(now);
        let slow = self.slow.as_mut().and_then(|slow| slow.tick(now));
        let masked = self.masked.iter().map(|&(at, _)| at).min();
        // While their priority is stopped, answers wait for the end of that.
        let answers = if self.pauses.paused().contains(self.ack_pri) {
            None
        } else {
            let cnps = self.cnps.iter().map(|&(_, at)| at);
            let due = |&to: &u16| self.peers.get(usize::from(to))?.ack_due;
            cnps.chain(self.acks.iter().filter_map(due)).min()
        };
        let timers = [paused, slow, masked, answers, self.slots.next_timeout()];
        // What is due and finds no room is not due again before the port has some.
        for timer in timers.into_iter().flatten().filter(|&at| at > now || !blocked) {
            next = Instant::earlier(next, Some(timer));
        }
        Instant::earlier(next, idle)
    }

    /// Gives back the chunks of frames that the port has not taken.
    pub fn release(&mut self, bufs: &mut Bufs) {
        for desc in self.pending.drain(..) {
            bufs.free(desc);
        }
    }
}

#[cfg(test)]
mod tests;
