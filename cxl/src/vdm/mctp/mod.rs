//! A tunnel for CCI messages between components of a fabric: MCTP over vendor-defined messages.
//!
//! [`Tunnel::request`] queues a message, which [`Tunnel::poll`] cuts into [`Sent`] packets; [`Tunnel::receive`]
//! reassembles received ones ([`assembly`]). [`Event`]s are requests to answer, notifications, responses, and
//! requests that got no response.
//!
//! Units: bytes; picoseconds.
//! Source: DMTF DSP0236 section 8, DSP0238; docs/spec/wire-formats.md §4.1, §4.5 (5701); CXL 3.1 section 7.7.12.
//!
//! All packets of a message come by one port, and rights depend on that port: packets that come by another one
//! belong to another message, whatever sender they name.
//!
//! EIDs are null, as the PTH addresses. DPID FFF is the partner at a port, which has no PID yet; it is answered the
//! same way, as there may be no route back either. A requester owns the tag of its message (TO); its eight tags for
//! each peer bound the number of requests under way.

pub mod assembly;
#[cfg(test)]
#[expect(clippy::cast_possible_truncation, reason = "small numbers that make tests short")]
mod tests;

use std::collections::VecDeque;

use arrayvec::ArrayVec;
use weft_dataplane::time::{Instant, Span};
use weft_parsers::cci::mctp::MessageType;
use weft_parsers::cci::{Category, Header, header};
use weft_parsers::fabric::{Bdf, Pid};
use weft_parsers::tlp::mctp::{EID_NULL, UNIT};
use weft_parsers::tlp::{MctpPacket, Mode, Pth, TlpRepr};

use assembly::{Assembler, AssemblyCounts};
pub use assembly::{MESSAGE_MAX, Peer};

/// Requests that wait for their response, over all peers.
pub const PENDING_MAX: usize = 64;
/// Requests of other components that wait for [`Tunnel::respond`].
pub const SERVING_MAX: usize = 32;
/// Time after which the requester has certainly stopped waiting for the response.
pub const SERVING_TIME: Span = Span::from_ms(10_000);
/// Messages queued to be cut into packets.
const OUT_MAX: usize = PENDING_MAX + SERVING_MAX;
/// Events queued for [`Tunnel::pop_event`].
const EVENTS_MAX: usize = 128;
const TAGS: u8 = 8;

/// An MCTP packet to send.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Sent {
    /// Destination: the partner at a port, or a component that routes lead to.
    pub peer: Peer,
    /// Header that routes the packet.
    pub pth: Pth,
    first: bool,
    last: bool,
    seq: u8,
    owner: bool,
    tag: u8,
    payload: ArrayVec<u8, UNIT>,
}

impl Sent {
    /// The packet as an MCTP view.
    #[must_use]
    pub fn packet(&self) -> MctpPacket<'_> {
        let Self { first, last, seq, owner, tag, ref payload, .. } = *self;
        let (dest, source) = (EID_NULL, EID_NULL);
        MctpPacket { dest, source, first, last, seq, owner, tag, pad: 0, payload }
    }

    /// The TLP behind the PTH.
    #[must_use]
    pub fn repr(&self) -> TlpRepr<'_> {
        self.packet().repr(Mode::Flit, Bdf::from_bits(0), Bdf::from_bits(0))
    }
}

/// Id of a request by this component; the event that ends it carries it.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub struct RequestId(u64);

/// Id of a request by another component, valid until it is answered.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Ticket(u64);

/// Reason why a request has no response.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
pub enum Failure {
    /// No response came in time.
    #[error("no response in time")]
    TimedOut,
    /// The link to the peer went down.
    #[error("the link to the peer went down")]
    Gone,
}

/// An event of a tunnel: a response, a failure, a request to answer, or a notification.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Event {
    /// The response to a request; CCI header and payload.
    Response(RequestId, Vec<u8>),
    /// A request has ended without a response.
    Failed(RequestId, Failure),
    /// A request, to be answered by [`Tunnel::respond`].
    Request {
        /// The requester, to which the response goes.
        from: Peer,
        /// Id for the response.
        ticket: Ticket,
        /// Command set of the message: FM-API or CCI.
        kind: MessageType,
        /// CCI header and payload.
        message: Vec<u8>,
    },
    /// A notification, which has no answer.
    Notice {
        /// Sender of the notification.
        from: Peer,
        /// Port by which it was received.
        port: u8,
        /// CCI header and payload.
        message: Vec<u8>,
    },
}

/// Reason why a tunnel did not accept a message.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
pub enum TunnelError {
    /// Longer than [`MESSAGE_MAX`].
    #[error("a message of {0} bytes, at most {MESSAGE_MAX} fit")]
    TooLong(usize),
    /// It is no CCI message, or has another category than this call sends.
    #[error("not a CCI message of this category")]
    Form,
    /// All tags of the peer, or all queue places, are in use.
    #[error("too many messages under way")]
    Busy,
    /// The request has ended already.
    #[error("the request was answered or dropped already")]
    Gone,
}

/// Counts of a tunnel.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct TunnelCounts {
    /// Packets for another PID or EID, or without a PID to answer.
    pub misdirected: u64,
    /// Complete messages that are no CCI messages.
    pub malformed: u64,
    /// Responses without a request that waits for them.
    pub unexpected: u64,
    /// Requests that were received twice.
    pub twice: u64,
    /// Requests and notifications that found no room.
    pub no_room: u64,
}

#[derive(Clone, Debug)]
struct Outgoing {
    peer: Peer,
    /// SPID of its packets.
    from: Pid,
    owner: bool,
    tag: u8,
    body: Vec<u8>,
    at: usize,
}

#[derive(Clone, Debug)]
struct Pending {
    id: RequestId,
    peer: Peer,
    tag: u8,
    header: Header,
    until: Instant,
}

#[derive(Clone, Debug)]
struct Serving {
    ticket: Ticket,
    peer: Peer,
    /// Port and SPID by which the request was received.
    port: u8,
    spid: Pid,
    tag: u8,
    kind: MessageType,
    header: Header,
    until: Instant,
}

/// Origin of a received message.
#[derive(Clone, Copy, Debug)]
struct Origin {
    /// Port by which it was received.
    port: u8,
    peer: Peer,
    spid: Pid,
}

/// Carries CCI messages between this component and others, as MCTP packets in vendor-defined messages.
#[derive(Clone, Debug)]
pub struct Tunnel {
    own: Pid,
    /// PIDs of others whose messages end here, such as a fabric manager with a connection to this component.
    guests: Vec<Pid>,
    out: VecDeque<Outgoing>,
    pending: Vec<Pending>,
    serving: Vec<Serving>,
    assembler: Assembler,
    events: VecDeque<Event>,
    numbers: u64,
    tag: u8,
    counts: TunnelCounts,
}

impl Tunnel {
    /// The tunnel of a component with PID `own`, or `Pid::NONE` if it has none yet.
    #[must_use]
    pub fn new(own: Pid) -> Self {
        Self {
            own,
            guests: Vec::new(),
            out: VecDeque::new(),
            pending: Vec::new(),
            serving: Vec::new(),
            assembler: Assembler::default(),
            events: VecDeque::new(),
            numbers: 0,
            tag: 0,
            counts: TunnelCounts::default(),
        }
    }

    /// Changes the component's PID.
    pub const fn set_own(&mut self, own: Pid) {
        self.own = own;
    }

    /// Sets the PIDs whose messages end here besides its own.
    pub fn set_guests(&mut self, guests: Vec<Pid>) {
        self.guests = guests;
    }

    /// Sender of a request that is not answered yet: the port by which it was received, and its SPID, `FFF` while
    /// the sender has no PID.
    #[must_use]
    pub fn asker(&self, ticket: Ticket) -> Option<(u8, Pid)> {
        self.serving.iter().find(|it| it.ticket == ticket).map(|it| (it.port, it.spid))
    }

    #[must_use]
    pub const fn counts(&self) -> (TunnelCounts, AssemblyCounts) {
        (self.counts, self.assembler.counts())
    }

    /// Sends a request; it ends by an event within `timeout`.
    ///
    /// # Errors
    /// See [`TunnelError`].
    pub fn request(
        &mut self,
        now: Instant,
        peer: Peer,
        kind: MessageType,
        message: &[u8],
        timeout: Span,
    ) -> Result<RequestId, TunnelError> {
        self.request_as(now, self.own, peer, kind, message, timeout)
    }

    /// As [`Self::request`], on behalf of a guest: the response goes to `from`.
    ///
    /// # Errors
    /// See [`TunnelError`].
    pub fn request_as(
        &mut self,
        now: Instant,
        from: Pid,
        peer: Peer,
        kind: MessageType,
        message: &[u8],
        timeout: Span,
    ) -> Result<RequestId, TunnelError> {
        let header = checked(message, Category::Request)?;
        let tag = self.free_tag(peer).ok_or(TunnelError::Busy)?;
        // The event of its end is queued without a check (`whole`, `fail`), so a full queue takes no new request.
        if self.pending.len() >= PENDING_MAX
            || self.out.len() >= OUT_MAX
            || self.events.len() >= EVENTS_MAX
        {
            return Err(TunnelError::Busy);
        }
        self.tag = tag;
        self.numbers += 1;
        let id = RequestId(self.numbers);
        self.pending.push(Pending { id, peer, tag, header, until: now + timeout });
        self.push(from, peer, true, tag, kind, message);
        Ok(id)
    }

    /// Answers a request.
    ///
    /// # Errors
    /// See [`TunnelError`]; with [`TunnelError::Gone`] the requester no longer waits.
    pub fn respond(&mut self, ticket: Ticket, message: &[u8]) -> Result<(), TunnelError> {
        checked(message, Category::Response)?;
        let at = self.serving.iter().position(|serving| serving.ticket == ticket);
        let at = at.ok_or(TunnelError::Gone)?;
        if self.out.len() >= OUT_MAX {
            return Err(TunnelError::Busy);
        }
        let Serving { peer, tag, kind, .. } = self.serving.swap_remove(at);
        self.push(self.own, peer, false, tag, kind, message);
        Ok(())
    }

    /// Notifies `peer` of an event, in the name of this component; there is no sign of its arrival.
    ///
    /// # Errors
    /// See [`TunnelError`].
    pub fn notify(
        &mut self,
        peer: Peer,
        kind: MessageType,
        message: &[u8],
    ) -> Result<(), TunnelError> {
        checked(message, Category::Event)?;
        if self.out.len() >= OUT_MAX {
            return Err(TunnelError::Busy);
        }
        let tag = self.free_tag(peer).ok_or(TunnelError::Busy)?;
        self.tag = tag;
        self.push(self.own, peer, true, tag, kind, message);
        Ok(())
    }

    /// Receives a packet that came with `pth` by `port`.
    pub fn receive(&mut self, now: Instant, port: u8, pth: Pth, packet: &MctpPacket<'_>) {
        let peer = if pth.dpid.is_none() {
            Peer::Port(port)
        } else if (pth.dpid == self.own || self.guests.contains(&pth.dpid)) && !pth.spid.is_none() {
            Peer::Pid(pth.spid)
        } else {
            self.counts.misdirected += 1;
            return;
        };
        if packet.dest != EID_NULL {
            self.counts.misdirected += 1;
            return;
        }
        // Unrequested packets must not take assembly places from those of requested responses.
        let asked = |it: &Pending| it.peer == peer && it.tag == packet.tag;
        if !packet.owner && !self.pending.iter().any(asked) {
            // Counted once for each message, with its last packet.
            self.counts.unexpected += u64::from(packet.last);
            return;
        }
        if let Some(body) = self.assembler.push(now, port, peer, packet) {
            self.whole(now, Origin { port, peer, spid: pth.spid }, packet, &body);
        }
    }

    /// The link at `port` went down, or `peer` is unreachable: ends everything under way with it.
    pub fn forget(&mut self, peer: Peer) {
        self.assembler.forget(peer);
        self.out.retain(|out| out.peer != peer);
        self.serving.retain(|serving| serving.peer != peer);
        self.fail(Failure::Gone, |pending| pending.peer == peer);
    }

    /// Peers of all requests under way.
    #[must_use]
    pub fn asked(&self) -> Vec<Peer> {
        self.pending.iter().map(|pending| pending.peer).collect()
    }

    /// The next packet to send; call it until it returns `None`. Messages take turns, packet by packet.
    pub fn poll(&mut self, now: Instant) -> Option<Sent> {
        self.expire(now);
        let mut out = self.out.pop_front()?;
        let left = out.body.get(out.at..).unwrap_or_default();
        let piece = left.get(..UNIT).unwrap_or(left);
        let padded = piece.iter().copied().chain(core::iter::repeat(0));
        let dpid = match out.peer {
            Peer::Port(_) => Pid::NONE,
            Peer::Pid(pid) => pid,
        };
        let sent = Sent {
            peer: out.peer,
            pth: Pth { dsar: true, ..Pth::new(out.from, dpid) },
            first: out.at == 0,
            last: piece.len() == left.len(),
            // `Pkt_Seq` counts modulo 4 from 0 (DSP0236, 8.1).
            seq: u8::try_from(out.at / UNIT % 4).unwrap_or_default(),
            owner: out.owner,
            tag: out.tag,
            payload: padded.take(piece.len().next_multiple_of(4)).collect(),
        };
        out.at += piece.len();
        if !sent.last {
            self.out.push_back(out);
        }
        Some(sent)
    }

    /// The next event, oldest first.
    pub fn pop_event(&mut self) -> Option<Event> {
        self.events.pop_front()
    }

    /// Time of the next poll, not counting messages that are ready to be sent.
    #[must_use]
    pub fn next_due(&self) -> Option<Instant> {
        let pending = self.pending.iter().map(|pending| pending.until).min();
        let serving = self.serving.iter().map(|serving| serving.until).min();
        Instant::earlier(Instant::earlier(pending, serving), self.assembler.next_due())
    }

    /// The next tag in turn that no request to `peer` uses.
    fn free_tag(&self, peer: Peer) -> Option<u8> {
        // In turn rather than the lowest one, so that a late response does not meet a new request with its tag.
        let tags = (1..=TAGS).map(|step| (self.tag + step) % TAGS);
        let mut tags = tags.filter(|&tag| {
            !self.pending.iter().any(|pending| pending.peer == peer && pending.tag == tag)
        });
        tags.next()
    }

    fn push(
        &mut self,
        from: Pid,
        peer: Peer,
        owner: bool,
        tag: u8,
        kind: MessageType,
        message: &[u8],
    ) {
        let body = core::iter::once(kind as u8).chain(message.iter().copied()).collect();
        self.out.push_back(Outgoing { peer, from, owner, tag, body, at: 0 });
    }

    /// Processes a complete message.
    fn whole(&mut self, now: Instant, origin: Origin, packet: &MctpPacket<'_>, body: &[u8]) {
        let Origin { port, peer, .. } = origin;
        let Some((kind, header, message)) = opened(body) else {
            self.counts.malformed += 1;
            return;
        };
        match (packet.owner, header.category) {
            (true, Category::Request) => {
                self.serve(now, origin, packet.tag, kind, header, message);
            }
            (true, Category::Event) if self.events.len() < EVENTS_MAX => {
                self.events.push_back(Event::Notice {
                    from: peer,
                    port,
                    message: message.to_vec(),
                });
            }
            (true, Category::Event) => self.counts.no_room += 1,
            (false, Category::Response) => {
                // Tag and opcode of the CCI header as well: the MCTP tag may have been used again since.
                let found = self.pending.iter().position(|pending| {
                    pending.peer == peer
                        && pending.tag == packet.tag
                        && pending.header.tag == header.tag
                        && pending.header.opcode == header.opcode
                });
                let Some(at) = found else {
                    self.counts.unexpected += 1;
                    return;
                };
                let Pending { id, .. } = self.pending.swap_remove(at);
                self.events.push_back(Event::Response(id, message.to_vec()));
            }
            _ => self.counts.malformed += 1,
        }
    }

    fn serve(
        &mut self,
        now: Instant,
        Origin { port, peer, spid }: Origin,
        tag: u8,
        kind: MessageType,
        header: Header,
        message: &[u8],
    ) {
        let same = |old: &Serving| (old.port, old.peer, old.tag) == (port, peer, tag);
        if let Some(at) = self.serving.iter().position(same) {
            // A repeated request must not be executed twice; its response is still to come.
            if self.serving.get(at).is_some_and(|old| old.header == header) {
                self.counts.twice += 1;
                return;
            }
            // The requester has given it up, as it uses the tag again.
            self.serving.swap_remove(at);
        }
        if self.serving.len() >= SERVING_MAX || self.events.len() >= EVENTS_MAX {
            self.counts.no_room += 1;
            return;
        }
        self.numbers += 1;
        let ticket = Ticket(self.numbers);
        let until = now + SERVING_TIME;
        self.serving.push(Serving { ticket, peer, port, spid, tag, kind, header, until });
        let message = message.to_vec();
        self.events.push_back(Event::Request { from: peer, ticket, kind, message });
    }

    fn expire(&mut self, now: Instant) {
        self.assembler.expire(now);
        self.serving.retain(|serving| serving.until > now);
        self.fail(Failure::TimedOut, |pending| pending.until <= now);
    }

    /// Ends requests without a response; their unsent packets are dropped.
    fn fail(&mut self, why: Failure, which: impl Fn(&Pending) -> bool) {
        let (events, out) = (&mut self.events, &mut self.out);
        self.pending.retain(|pending| {
            let over = which(pending);
            if over {
                events.push_back(Event::Failed(pending.id, why));
                // The rest of a request that has failed already would be executed for no one.
                out.retain(|o| !(o.owner && o.peer == pending.peer && o.tag == pending.tag));
            }
            !over
        });
    }
}

/// Header of a message to send, if it has the wanted category.
fn checked(message: &[u8], category: Category) -> Result<Header, TunnelError> {
    if message.len() > MESSAGE_MAX {
        return Err(TunnelError::TooLong(message.len()));
    }
    match Header::parse(message) {
        Ok((header, _)) if header.category == category => Ok(header),
        _ => Err(TunnelError::Form),
    }
}

/// Type, header and all bytes of the CCI message in a body, which may be padded to whole DWs.
fn opened(body: &[u8]) -> Option<(MessageType, Header, &[u8])> {
    let (kind, padded) = match body.split_first()? {
        (7, message) => (MessageType::FmApi, message),
        (8, message) => (MessageType::Cci, message),
        _ => return None,
    };
    let (header, len, _) = Header::cut(padded).ok()?;
    let message = padded.get(..header::LEN.checked_add(len)?)?;
    // More than padding behind the message means that its length is wrong.
    (padded.len() - message.len() < 4).then_some((kind, header, message))
}
