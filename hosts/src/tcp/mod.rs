//! A TCP host: connections over a link by the stack of `smoltcp`, without the kernel's.
//!
//! A [`TcpHostSpec`] describes the host; [`TcpHost::connect`] and [`TcpHost::listen`] give it connections.
//! [`TcpHost::poll`] advances it to `now` on any port, [`TcpHost::offer`] and [`TcpHost::send_wire`] on a wire in
//! virtual time; `TcpHost::drain_events` returns what its connections achieved.
//!
//! The stack builds and reads IP packets; Ethernet headers, ARP and DSCP are added here. Each connection has a socket
//! set of its own, and the stack is asked for one packet at a time: so connections take turns frame by frame, and data
//! stays in its socket until the link has room. Lengths are bytes without FCS.
//!
//! Source: RFC 9293; docs/spec/model.md §7; docs/tcp.md.

use core::net::Ipv4Addr;
use std::collections::{BTreeMap, BTreeSet, VecDeque};

use smoltcp::iface::{Config, Interface};
use smoltcp::wire::{HardwareAddress, IpAddress, IpCidr, Ipv4Cidr};
use weft_dataplane::pool::Bufs;
use weft_dataplane::port::wire::Wire;
use weft_dataplane::port::{Port, PortError};
use weft_dataplane::time::{Instant, Span};
use weft_dataplane::types::{PerPri, Pri};
use weft_parsers::Dscp;

use self::clock::StackClock;
use self::connection::{Connection, Next, Opening};
use self::device::Slot;
use self::neighbours::{ETHERNET_LEN, Neighbours};
use crate::link::{Link, Outbox, PortLink, WireLink};
use crate::pfc::Pauses;

mod clock;
mod connection;
mod device;
mod neighbours;
pub mod pattern;
mod rx;
mod spec;
mod tx;

pub use spec::{
    Amount, BUFFER_MAX, BUFFER_MIN, Congestion, ConnectionKey, ConnectionSpec, Directory,
    HEADERS_LEN, MSS_MAX, MSS_MIN, RTO_MIN, TcpError, TcpEvent, TcpHostSpec, TcpStats, Transfer,
};

/// Bytes of IPv4 and TCP headers without options.
const IP_HEADERS_LEN: usize = HEADERS_LEN - ETHERNET_LEN;
/// Most answers that are kept while their priority is paused.
const ANSWERS_MAX: usize = 4_096;
/// Time after which a connection is asked again that announced a packet and then had none.
const RETRY: Span = Span::from_ms(1);

/// Result of one poll.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct TcpProgress {
    /// Frames that the port took in this poll.
    pub sent: usize,
    /// Frames that the port delivered in this poll.
    pub received: usize,
    /// When the host has something to do next; `None` for never.
    pub next: Option<Instant>,
    /// Whether a frame is due now for which the port or the pool has no room.
    pub blocked: bool,
}

/// Whether the host has taken a frame that was offered to it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Offered {
    /// The frame was for this host, which has taken it.
    Taken,
    /// The frame is for another user of the link: it is not TCP, or it is PFC, which both hear.
    Left,
}

/// A port that accepts connections from any peer.
struct Listener {
    spec: ConnectionSpec,
    transfer: Transfer,
    /// How many more connections it accepts.
    left: u32,
    next_id: u32,
}

/// A running TCP host.
pub struct TcpHost {
    spec: TcpHostSpec,
    slot: Slot,
    /// The stack's interfaces by MTU, which one cannot change.
    faces: Vec<(usize, Interface)>,
    neighbours: Neighbours,
    connections: Vec<Option<Box<Connection>>>,
    free: Vec<usize>,
    by_key: BTreeMap<ConnectionKey, usize>,
    /// Connections that a known peer is going to begin.
    awaited: BTreeMap<ConnectionKey, (u32, ConnectionSpec, Transfer)>,
    listeners: BTreeMap<u16, Listener>,
    /// By priority, the connections with a packet to send, in turn.
    ready: PerPri<VecDeque<usize>>,
    answers: PerPri<VecDeque<Vec<u8>>>,
    /// Index of the priority that is asked first.
    turn: usize,
    /// When connections are due, in picoseconds since the origin.
    timers: BTreeSet<(u64, usize)>,
    /// Connections whose next hop is being asked for.
    unresolved: Vec<usize>,
    pauses: Pauses,
    events: Vec<TcpEvent>,
    stats: TcpStats,
    outbox: Outbox,
}

impl TcpHost {
    /// A host before its first poll.
    ///
    /// # Errors
    /// An address that is not one of a single host, or a prefix above 32 bits.
    pub fn new(spec: TcpHostSpec) -> Result<Self, TcpError> {
        for ip in [Some(spec.ip), spec.gateway].into_iter().flatten() {
            if ip.is_unspecified() || ip.is_broadcast() || ip.is_multicast() || ip.is_loopback() {
                return Err(TcpError::Address(ip));
            }
        }
        if spec.prefix_len > 32 {
            return Err(TcpError::Prefix(spec.prefix_len));
        }
        let mut host = Self {
            slot: Slot::new(MSS_MAX + IP_HEADERS_LEN, ETHERNET_LEN, spec.whole),
            faces: Vec::new(),
            neighbours: Neighbours::new(spec.mac, spec.ip, spec.directory),
            connections: Vec::new(),
            free: Vec::new(),
            by_key: BTreeMap::new(),
            awaited: BTreeMap::new(),
            listeners: BTreeMap::new(),
            ready: PerPri(core::array::from_fn(|_| VecDeque::new())),
            answers: PerPri(core::array::from_fn(|_| VecDeque::new())),
            turn: 0,
            timers: BTreeSet::new(),
            unresolved: Vec::new(),
            pauses: Pauses::new(&spec.classes),
            events: Vec::new(),
            stats: TcpStats::default(),
            outbox: Outbox::default(),
            spec,
        };
        host.face(MSS_MAX + IP_HEADERS_LEN); // the one that answers what is for no connection
        Ok(host)
    }

    /// Announces the host's address by ARP.
    pub fn announce(&mut self) {
        self.neighbours.announce();
    }

    /// Opens a connection to the peer of `key`; events name it `id`.
    ///
    /// # Errors
    /// A specification, port or address that no connection can have, or a key in use.
    pub fn connect(
        &mut self,
        now: Instant,
        id: u32,
        key: ConnectionKey,
        spec: &ConnectionSpec,
        transfer: Transfer,
    ) -> Result<(), TcpError> {
        let index = self.open(id, key, spec, transfer)?;
        let Some(connection) = self.connections.get_mut(index).and_then(Option::as_deref_mut)
        else {
            return Ok(());
        };
        let Some((_, face)) = self.faces.get_mut(connection.face) else { return Ok(()) };
        let (remote, local) = ((IpAddress::Ipv4(key.peer), key.peer_port), self.spec.ip);
        let local = (IpAddress::Ipv4(local), key.port);
        // What could be wrong with these was checked when it was opened.
        let is_begun = connection.socket().connect(face.context(), remote, local).is_ok();
        debug_assert!(is_begun, "a socket that is new, with two addresses");
        self.settle(now, index);
        Ok(())
    }

    /// Accepts one connection from the peer of `key`; events name it `id`.
    ///
    /// # Errors
    /// A specification, port or address that no connection can have, or a key in use.
    pub fn await_peer(
        &mut self,
        id: u32,
        key: ConnectionKey,
        spec: &ConnectionSpec,
        transfer: Transfer,
    ) -> Result<(), TcpError> {
        self.check(key, spec)?;
        if self.awaited.contains_key(&key) {
            return Err(TcpError::Twice(key));
        }
        self.awaited.insert(key, (id, *spec, transfer));
        Ok(())
    }

    /// Accepts up to `most` connections to `port` from any peer; they are numbered from `first_id` on as they come.
    ///
    /// # Errors
    /// A port or a specification that no connection can have.
    pub fn listen(
        &mut self,
        port: u16,
        most: u32,
        first_id: u32,
        spec: &ConnectionSpec,
        transfer: Transfer,
    ) -> Result<(), TcpError> {
        spec.check()?;
        if port == 0 {
            return Err(TcpError::Port);
        }
        let listener = Listener { spec: *spec, transfer, left: most, next_id: first_id };
        self.listeners.insert(port, listener);
        Ok(())
    }

    /// Takes the events since the last call, oldest first.
    pub fn drain_events(&mut self) -> impl ExactSizeIterator<Item = TcpEvent> + '_ {
        self.events.drain(..)
    }

    /// Counts since the host was made.
    #[must_use]
    pub const fn stats(&self) -> TcpStats {
        TcpStats { arp_requests: self.neighbours.requests, ..self.stats }
    }

    /// Whether the host has no connection and no frame to send.
    #[must_use]
    pub fn is_idle(&self) -> bool {
        self.by_key.is_empty()
            && !self.neighbours.has_frames()
            && self.answers.0.iter().all(VecDeque::is_empty)
            && self.outbox.is_empty()
    }

    /// Time for which PFC has paused the priority of `dscp`, until `now`.
    #[must_use]
    pub fn paused(&self, dscp: Dscp, now: Instant) -> Span {
        self.pauses.spent(self.pri_of(dscp), now)
    }

    /// For each open connection its id, the bytes that it has sent at least once, and those it has received.
    pub fn counts(&self) -> impl Iterator<Item = (u32, u64, u64)> + '_ {
        let all = self.connections.iter().flatten();
        all.map(|connection| (connection.id, connection.sent_end(), connection.taken()))
    }

    /// Whether a frame could be sent now if the link had room.
    #[must_use]
    pub fn has_ready(&self) -> bool {
        let paused = self.pauses.paused();
        let is_open = |pri: Pri| !paused.contains(pri) && self.has_frames_of(pri);
        self.neighbours.has_frames() || Pri::ALL.into_iter().any(is_open)
    }

    /// Whether packets of `pri` wait, paused or not.
    fn has_frames_of(&self, pri: Pri) -> bool {
        !self.ready[pri].is_empty() || !self.answers[pri].is_empty()
    }

    /// Advances the host to `now` on a port: receives, answers, sends.
    ///
    /// # Errors
    /// The port's device is gone; the host's state is intact and it may be polled again.
    pub fn poll(
        &mut self,
        now: Instant,
        port: &mut dyn Port,
        bufs: &mut Bufs,
    ) -> Result<TcpProgress, PortError> {
        // Taken out for the call: the link needs it while frames are offered to `self`.
        let mut outbox = core::mem::take(&mut self.outbox);
        let mut link =
            PortLink { port: &mut *port, bufs: &mut *bufs, outbox: &mut outbox, reserved: None };
        let rate = link.rate();
        let (received, more) = link.take_in(now, |frame, len| {
            self.offer(now, rate, frame, len);
        });
        self.tick(now);
        let (sent, blocked) = self.send(now, &mut link);
        let idle = if blocked { link.idle_at() } else { None };
        // Only a host that is blocked waits for the transmission under way to end.
        let next = if more { Some(now) } else { Instant::earlier(self.next(now), idle) };
        let next = Instant::earlier(next, link.next_event());
        self.outbox = outbox;
        port.service(now, bufs)?;
        Ok(TcpProgress { sent, received, next, blocked })
    }

    /// Sends frames that are due at `now` and for which a wire in virtual time has room; with `fronts` only the first
    /// [`FRONT_LEN`](weft_dataplane::pool::FRONT_LEN) bytes of each are written. Returns when the host is due next.
    pub fn send_wire(&mut self, now: Instant, wire: &mut Wire, fronts: bool) -> Option<Instant> {
        let mut link = WireLink { wire, fronts, sent: 0 };
        self.tick(now);
        self.send(now, &mut link);
        let idle = if self.has_ready() { link.idle_at() } else { None };
        Instant::earlier(self.next(now), idle)
    }

    /// Gives chunks back to the pool; the host must not be polled after that.
    pub fn release(&mut self, bufs: &mut Bufs) {
        self.outbox.release(bufs);
    }

    /// Checks that a connection can be opened; returns its next hop.
    fn check(&self, key: ConnectionKey, spec: &ConnectionSpec) -> Result<Ipv4Addr, TcpError> {
        spec.check()?;
        let peer = key.peer;
        if key.port == 0 || key.peer_port == 0 {
            return Err(TcpError::Port);
        }
        let own = Ipv4Cidr::new(self.spec.ip, self.spec.prefix_len);
        let is_one = !peer.is_unspecified() && !peer.is_broadcast() && !peer.is_multicast();
        if !is_one || peer == self.spec.ip {
            return Err(TcpError::Address(peer));
        }
        if self.by_key.contains_key(&key) {
            return Err(TcpError::Twice(key));
        }
        if own.contains_addr(&peer) {
            return Ok(peer);
        }
        let TcpHostSpec { ip, prefix_len, gateway, .. } = self.spec;
        gateway.ok_or(TcpError::Gateway { peer, ip, prefix_len })
    }

    /// Makes a connection whose socket is still closed; returns its index.
    fn open(
        &mut self,
        id: u32,
        key: ConnectionKey,
        spec: &ConnectionSpec,
        transfer: Transfer,
    ) -> Result<usize, TcpError> {
        let hop = self.check(key, spec)?;
        let face = self.face(spec.mss + IP_HEADERS_LEN);
        let pri = self.pri_of(spec.dscp);
        let clock = StackClock::new(self.spec.origin, spec.rto_min);
        let opening = Opening { id, key, face, pri, spec: *spec, hop, transfer };
        let connection = Some(Box::new(Connection::new(opening, clock)));
        // Indices are reused, so that a host of many short connections does not grow.
        let index = self.free.pop().unwrap_or(self.connections.len());
        match self.connections.get_mut(index) {
            Some(slot) => *slot = connection,
            None => self.connections.push(connection),
        }
        self.by_key.insert(key, index);
        Ok(index)
    }

    /// Index of the interface for packets of `mtu` bytes, which is made if it is new.
    fn face(&mut self, mtu: usize) -> usize {
        if let Some(place) = self.faces.iter().position(|&(had, _)| had == mtu) {
            return place;
        }
        // An interface reads the MTU once, when it is made.
        self.slot.set_mtu(mtu);
        let mut config = Config::new(HardwareAddress::Ip);
        config.random_seed = self.spec.seed.wrapping_add(self.faces.len() as u64);
        let mut face =
            Interface::new(config, &mut self.slot, smoltcp::time::Instant::from_micros(0));
        self.slot.set_mtu(usize::MAX);
        let cidr = IpCidr::new(IpAddress::Ipv4(self.spec.ip), self.spec.prefix_len);
        face.update_ip_addrs(|all| {
            let is_added = all.push(cidr).is_ok();
            debug_assert!(is_added, "it has no other address");
        });
        self.faces.push((mtu, face));
        self.faces.len() - 1
    }

    /// Priority of packets with `dscp`: they are untagged IPv4, and have no other field that a switch may trust.
    fn pri_of(&self, dscp: Dscp) -> Pri {
        let classes = &self.spec.classes;
        let trusts = classes.trust.contains(&Some(crate::classes::PriSource::Dscp));
        let by_dscp = classes.dscp.get(usize::from(dscp.get())).copied();
        by_dscp.filter(|_| trusts).unwrap_or(classes.default_pri)
    }

    /// Advances timers to `now`: pauses, connections, ARP.
    fn tick(&mut self, now: Instant) {
        self.pauses.tick(now);
        let passed = now.since(self.spec.origin).as_ps();
        while let Some(&(at, index)) = self.timers.first()
            && at <= passed
        {
            self.timers.remove(&(at, index));
            if let Some(connection) = self.connections.get_mut(index).and_then(Option::as_mut) {
                // `settle` would otherwise look for a timer that has been taken off the list.
                connection.timer = None;
            }
            self.settle(now, index);
        }
        if self.neighbours.next().is_some_and(|at| at <= now) {
            self.resolved(); // who waits asks again
        }
    }

    /// When the host is due next, apart from events of the link.
    fn next(&mut self, now: Instant) -> Option<Instant> {
        let timer = self.timers.first().map(|&(at, _)| self.spec.origin + Span::from_ps(at));
        // The end of a pause matters only if packets wait for it.
        let is_waiting = Pri::ALL.into_iter().any(|pri| self.has_frames_of(pri));
        let pause = if is_waiting { self.pauses.tick(now) } else { None };
        Instant::earlier(Instant::earlier(timer, pause), self.neighbours.next())
    }

    /// Has connections ask again for the address of their next hop.
    fn resolved(&mut self) {
        for index in core::mem::take(&mut self.unresolved) {
            self.make_ready(index);
        }
    }

    fn make_ready(&mut self, index: usize) {
        // In the queue at most once: a connection has one turn in a round.
        if let Some(connection) = self.connections.get_mut(index).and_then(Option::as_mut)
            && !core::mem::replace(&mut connection.is_ready, true)
        {
            self.ready[connection.pri].push_back(index);
        }
    }

    /// Moves data between a connection and its socket, and notes when the connection is due next.
    fn settle(&mut self, now: Instant, index: usize) {
        let Self { connections, faces, events, stats, spec, timers, .. } = self;
        let Some(connection) = connections.get_mut(index).and_then(Option::as_deref_mut) else {
            return;
        };
        let Some((_, face)) = faces.get_mut(connection.face) else { return };
        let next = connection.settle(now, spec.whole, face, events, stats);
        let due = match next {
            Next::At(at) => Some(at.since(spec.origin).as_ps()),
            Next::Ready | Next::Waits | Next::Gone => None,
        };
        if connection.timer != due {
            if let Some(had) = connection.timer {
                timers.remove(&(had, index));
            }
            timers.extend(due.map(|at| (at, index)));
            connection.timer = due;
        }
        match next {
            Next::Ready => self.make_ready(index),
            Next::Gone => self.remove(index),
            Next::At(_) | Next::Waits => {}
        }
    }

    fn remove(&mut self, index: usize) {
        if let Some(connection) = self.connections.get_mut(index).and_then(Option::take) {
            self.by_key.remove(&connection.key);
            // The index may be given to another connection, so nothing may refer to it any more.
            if connection.is_ready {
                self.ready[connection.pri].retain(|&other| other != index);
            }
            self.unresolved.retain(|&other| other != index);
            self.free.push(index);
        }
    }
}

#[cfg(test)]
mod tests;
