//! One end of a TCP connection: its socket, the data it sends, and the data received.
//!
//! [`Connection::settle`] moves data between the socket and its user; [`Connection::sent`] reads each segment that the
//! stack sends, for counts and a correction. Amounts are bytes of payload.
//!
//! Source: docs/spec/model.md §7.

use core::net::Ipv4Addr;

use smoltcp::iface::{Interface, SocketHandle, SocketSet};
use smoltcp::socket::tcp::{Socket, SocketBuffer, State};
use smoltcp::wire::TcpPacket;
use weft_dataplane::time::Instant;
use weft_dataplane::types::Pri;

use super::clock::StackClock;
use super::pattern;
use super::spec::{Amount, ConnectionKey, ConnectionSpec, TcpEvent, TcpStats, Transfer};

/// Size of a buffer that is not used, of an end that sends nothing or receives nothing.
const NO_BUFFER: usize = 1_024;

/// State of a connection after its data was moved.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Next {
    /// It has a packet to send.
    Ready,
    /// It has nothing to do before this time.
    At(Instant),
    /// It waits for the peer.
    Waits,
    /// It is over and can be removed.
    Gone,
}

/// One end of a connection.
pub(super) struct Connection {
    pub id: u32,
    pub key: ConnectionKey,
    pub clock: StackClock,
    /// Index of its interface in the host's `faces`.
    pub face: usize,
    pub pri: Pri,
    pub spec: ConnectionSpec,
    /// Next hop towards the peer: the peer itself, or the gateway.
    pub hop: Ipv4Addr,
    pub sockets: SocketSet<'static>,
    /// Whether it is in its priority's queue of connections with a packet to send.
    pub is_ready: bool,
    /// Its entry in the host's list of timers, in picoseconds since the origin.
    pub timer: Option<u64>,
    handle: SocketHandle,
    transfer: Transfer,
    /// Bytes written to the socket so far.
    written: u64,
    is_closed: bool,
    taken: u64,
    differs: Option<u64>,
    /// Initial sequence number, once the SYN was sent.
    first_seq: Option<u32>,
    /// Offset after the last byte sent so far.
    sent_end: u64,
    has_sent_fin: bool,
    resent: u64,
    /// When the peer's first segment came.
    first_heard: Option<Instant>,
    last_ack: Option<u32>,
    told: Told,
}

/// Events that have been reported, or that do not apply.
#[derive(Clone, Copy, Debug)]
struct Told {
    is_established: bool,
    is_acknowledged: bool,
    is_received: bool,
}

/// Parameters of a new connection.
#[derive(Clone, Copy, Debug)]
pub(super) struct Opening {
    pub id: u32,
    pub key: ConnectionKey,
    pub face: usize,
    pub pri: Pri,
    pub spec: ConnectionSpec,
    pub hop: Ipv4Addr,
    pub transfer: Transfer,
}

impl Connection {
    pub fn new(opening: Opening, clock: StackClock) -> Self {
        let Opening { id, key, face, pri, spec, hop, transfer } = opening;
        let buffer = |len: usize, is_used: bool| {
            SocketBuffer::new(vec![0; if is_used { len } else { NO_BUFFER }])
        };
        let receives = transfer.expect != Some(0);
        // The stack does not make a segment of both ends of its ring: only a ring of whole segments never cuts one.
        let ring = spec.send_buffer - spec.send_buffer % spec.mss;
        let mut socket = Socket::new(
            buffer(spec.receive_buffer, receives),
            buffer(ring, transfer.send.is_some()),
        );
        socket.set_congestion_control(spec.congestion.of_stack());
        let is_delayed = spec.ack_delay.as_ps() > 0;
        socket.set_ack_delay(is_delayed.then(|| clock.span(spec.ack_delay)));
        if let Some(give_up) = spec.give_up {
            let third = weft_dataplane::time::Span::from_ps(give_up.as_ps() / 3);
            socket.set_timeout(Some(clock.span(give_up)));
            socket.set_keep_alive(Some(clock.span(third)));
        }
        let mut sockets = SocketSet::new(Vec::with_capacity(1));
        let handle = sockets.add(socket);
        Self {
            id,
            key,
            clock,
            face,
            pri,
            spec,
            hop,
            sockets,
            is_ready: false,
            timer: None,
            handle,
            transfer,
            written: 0,
            is_closed: false,
            taken: 0,
            differs: None,
            first_seq: None,
            sent_end: 0,
            has_sent_fin: false,
            resent: 0,
            first_heard: None,
            last_ack: None,
            told: Told {
                is_established: false,
                is_acknowledged: transfer.send.is_none(),
                is_received: transfer.expect == Some(0),
            },
        }
    }

    pub fn socket(&mut self) -> &mut Socket<'static> {
        self.sockets.get_mut(self.handle)
    }

    /// Bytes of payload that have come, in order.
    pub const fn taken(&self) -> u64 {
        self.taken
    }

    /// Bytes of payload that were sent at least once.
    pub const fn sent_end(&self) -> u64 {
        self.sent_end
    }

    /// Reads a segment of the other end, before the stack does.
    pub fn heard(&mut self, now: Instant, segment: &TcpPacket<&[u8]>, stats: &mut TcpStats) {
        stats.rx_segments += 1;
        self.first_heard.get_or_insert(now);
        if segment.ack() {
            let number = segment.ack_number().0.cast_unsigned();
            let is_bare = segment.segment_len() == 0 && !segment.rst();
            if is_bare && self.last_ack == Some(number) && !self.told.is_acknowledged {
                stats.duplicate_acks += 1;
            }
            self.last_ack = Some(number);
        }
    }

    /// Reads a segment that the stack has made; returns the correct sequence number if the segment has another one.
    ///
    /// After a timeout the stack goes back to the first unacknowledged byte, and numbers its bare acknowledgements by
    /// that. They must carry the number after the last byte sent (RFC 9293, 3.10.7.4): otherwise, when both ends have
    /// gone back, each finds the other's acknowledgements outside its window and drops them, and neither gets on.
    pub fn sent(
        &mut self,
        now: Instant,
        segment: &TcpPacket<&[u8]>,
        events: &mut Vec<TcpEvent>,
        stats: &mut TcpStats,
    ) -> Option<u32> {
        stats.tx_segments += 1;
        let number = segment.seq_number().0.cast_unsigned();
        let len = segment.payload().len() as u64;
        stats.tx_bytes += len;
        if segment.syn() {
            if self.first_seq.is_some() {
                self.again(0, stats);
            } else {
                events.push(TcpEvent::Begun { id: self.id, at: now });
            }
            self.first_seq = Some(number);
            return None;
        }
        let first = self.first_seq?;
        // The place of a number is the one nearest to what was sent furthest.
        let [.., a, b, c, d] = self.sent_end.to_be_bytes();
        let place = number.wrapping_sub(first).wrapping_sub(1);
        let behind = u32::from_be_bytes([a, b, c, d]).wrapping_sub(place).cast_signed();
        let is_again = (len > 0 && behind > 0) || (segment.fin() && self.has_sent_fin);
        if is_again {
            self.again(len, stats);
        }
        let begins = self.sent_end.wrapping_add_signed(-i64::from(behind));
        self.sent_end = self.sent_end.max(begins.saturating_add(len));
        self.has_sent_fin |= segment.fin();
        let furthest = number.wrapping_add_signed(behind).wrapping_add(self.has_sent_fin.into());
        let is_bare = segment.segment_len() == 0 && !segment.rst();
        (is_bare && behind > 0).then_some(furthest)
    }

    fn again(&mut self, len: u64, stats: &mut TcpStats) {
        self.resent += 1;
        stats.resent += 1;
        stats.resent_bytes += len;
    }

    /// Reads received data, writes as much as the socket has room for, and returns the connection's state.
    pub fn settle(
        &mut self,
        now: Instant,
        whole: bool,
        face: &mut Interface,
        events: &mut Vec<TcpEvent>,
        stats: &mut TcpStats,
    ) -> Next {
        self.read(whole, stats);
        self.write(now, whole);
        self.tell(now, events, stats);
        let state = self.socket().state();
        let due = face.poll_at(self.clock.at(now), &self.sockets);
        // At the end of its duration the connection has to be woken, so that it closes.
        let deadline = match self.transfer.send {
            Some(Amount::Until(end)) if !self.is_closed && end > now => Some(end),
            _ => None,
        };
        let next = match due.map(|at| self.clock.when(at)) {
            Some(at) if at <= now => return Next::Ready,
            // After `Ready`, so that the last acknowledgement goes out. TIME-WAIT is not kept (docs/tcp.md): if that
            // acknowledgement is lost, the peer's FIN comes again and is answered by a reset.
            _ if matches!(state, State::Closed | State::TimeWait) => {
                self.end(now, events, stats);
                return Next::Gone;
            }
            other => Instant::earlier(other, deadline),
        };
        next.map_or(Next::Waits, Next::At)
    }

    fn read(&mut self, whole: bool, stats: &mut TcpStats) {
        let (seed, mut taken, mut differs) = (self.transfer.seed, self.taken, self.differs);
        let socket = self.socket();
        while socket.can_recv() {
            let read = socket.recv(|bytes| {
                if let Some(seed) = seed.filter(|_| whole && differs.is_none()) {
                    differs = pattern::differs(seed, taken, bytes);
                }
                (bytes.len(), bytes.len())
            });
            let Ok(count) = read else { break };
            taken += count as u64;
            stats.rx_bytes += count as u64;
        }
        (self.taken, self.differs) = (taken, differs);
    }

    fn write(&mut self, now: Instant, whole: bool) {
        let Some(amount) = self.transfer.send else {
            // An end that sends nothing closes when the other one has.
            if self.socket().state() == State::CloseWait {
                self.socket().close();
            }
            return;
        };
        let (seed, mut written) = (self.transfer.seed, self.written);
        let left = |written: u64| match amount {
            Amount::Bytes(bytes) => bytes - written,
            Amount::Until(end) if now < end => u64::MAX,
            Amount::Until(_) => 0,
        };
        let socket = self.socket();
        while left(written) > 0 && socket.can_send() {
            let count = socket.send(|room| {
                let count = usize::try_from(left(written)).unwrap_or(usize::MAX).min(room.len());
                if let Some(seed) = seed.filter(|_| whole)
                    && let Some(room) = room.get_mut(..count)
                {
                    pattern::fill(seed, written, room);
                }
                (count, count)
            });
            let Ok(count) = count else { break };
            written += count as u64;
        }
        self.written = written;
        // While more data may come, the stack waits for whole segments (Nagle). It must learn of the end while the last
        // segment is unsent, or that would wait for an acknowledgement.
        let is_last = written - self.sent_end.min(written) <= self.spec.mss as u64;
        if left(written) == 0 && is_last && !self.is_closed && self.socket().may_send() {
            self.is_closed = true;
            self.socket().close();
        }
    }

    /// Reports events that have happened since the last call.
    fn tell(&mut self, now: Instant, events: &mut Vec<TcpEvent>, stats: &mut TcpStats) {
        let (id, at) = (self.id, now);
        let socket = self.sockets.get::<Socket<'_>>(self.handle);
        let state = socket.state();
        let is_open =
            !matches!(state, State::Closed | State::Listen | State::SynSent | State::SynReceived);
        if is_open && !self.told.is_established {
            self.told.is_established = true;
            stats.established += 1;
            events.push(TcpEvent::Established { id, at });
        }
        if self.is_closed && !self.told.is_acknowledged && socket.send_queue() == 0 {
            // A connection that was reset or given up keeps what was not acknowledged.
            self.told.is_acknowledged = true;
            let (bytes, resent) = (self.written, self.resent);
            events.push(TcpEvent::Acknowledged { id, bytes, resent, at });
        }
        let is_all = match self.transfer.expect {
            Some(expected) => self.taken >= expected,
            None => is_open && !socket.may_recv(),
        };
        if is_all && !self.told.is_received {
            self.told.is_received = true;
            let (bytes, first) = (self.taken, self.first_heard.unwrap_or(now));
            events.push(TcpEvent::Received { id, bytes, first, at });
        }
    }

    /// Reports the end of the connection, and its failure if data is missing.
    fn end(&mut self, at: Instant, events: &mut Vec<TcpEvent>, stats: &mut TcpStats) {
        let (id, differs) = (self.id, self.differs);
        if !self.told.is_acknowledged || !self.told.is_received {
            stats.failed += 1;
            events.push(TcpEvent::Failed { id, at });
        }
        stats.data_errors += u64::from(differs.is_some());
        events.push(TcpEvent::Closed { id, differs, at });
    }
}
