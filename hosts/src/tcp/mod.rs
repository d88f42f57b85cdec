//! A TCP host: connections over a link, by the stack of `smoltcp`, without a kernel's.
//!
//! [`TcpHostSpec`] is what it is; [`TcpHost::connect`] and [`TcpHost::listen`] give it connections; [`TcpHost::poll`] moves
//! it to `now` at any port, [`TcpHost::offer`] and [`TcpHost::send_wire`] at a wire in virtual time; `TcpHost::drain_events` is what
//! came of them.
//!
//! Units: picoseconds, bytes without FCS.
//! Source: RFC 9293; docs/spec/model.md §7; docs/tcp.md.
//!
//! The stack makes and reads IP packets; Ethernet headers, ARP and DSCP are added here. Each connection has a set of sockets
//! of its own, so that connections with something to send take turns, frame by frame, and the stack is asked for one packet
//! at a time: what a connection may send waits in its socket until the link has room.

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
/// Most answers that wait while their priority is paused.
const ANSWERS_MAX: usize = 4_096;
/// A connection that says that it can send and does not is asked again after this.
const RETRY: Span = Span::from_ms(1);

/// What one poll did, and when to poll next.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct TcpProgress {
    /// Frames that the port took.
    pub sent: usize,
    /// Frames that the port delivered.
    pub received: usize,
    /// When there is next something to do; `None` for never.
    pub next: Option<Instant>,
    /// There is a frame to send now, but the port, or the pool, has no room for it.
    pub blocked: bool,
}

/// What becomes of a frame that is offered.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Offered {
    /// It was for this host, and is taken.
    Taken,
    /// It is for another user of the link, too (PFC), or for none.
    Left,
}

/// Who may connect to a port.
struct Listener {
    spec: ConnectionSpec,
    transfer: Transfer,
    /// How many more.
    left: u32,
    next_id: u32,
}

/// A TCP host in operation.
pub struct TcpHost {
    spec: TcpHostSpec,
    slot: Slot,
    /// The stack, by MTU, which it cannot change.
    faces: Vec<(usize, Interface)>,
    neighbours: Neighbours,
    connections: Vec<Option<Box<Connection>>>,
    free: Vec<usize>,
    by_key: BTreeMap<ConnectionKey, usize>,
    /// Connections that others are going to begin.
    awaited: BTreeMap<ConnectionKey, (u32, ConnectionSpec, Transfer)>,
    listeners: BTreeMap<u16, Listener>,
    /// By priority: connections with something to send, in turn.
    ready: PerPri<VecDeque<usize>>,
    answers: PerPri<VecDeque<Vec<u8>>>,
    /// Which priority is asked first.
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
    /// An address or a prefix that no host has.
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

    /// Has whoever asks know where it is, before anybody does.
    pub fn announce(&mut self) {
        self.neighbours.announce();
    }

    /// Begins a connection.
    ///
    /// # Errors
    /// One that cannot be.
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

    /// Expects a connection that the peer of `key` begins.
    ///
    /// # Errors
    /// One that cannot be.
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

    /// Lets `most` connections to `port` be begun by anybody; they are numbered from `first_id` on as they come.
    ///
    /// # Errors
    /// A port or a specification that cannot be.
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

    /// What came of connections since this was asked last, in order.
    pub fn drain_events(&mut self) -> impl ExactSizeIterator<Item = TcpEvent> + '_ {
        self.events.drain(..)
    }

    /// What it has counted.
    #[must_use]
    pub const fn stats(&self) -> TcpStats {
        TcpStats { arp_requests: self.neighbours.requests, ..self.stats }
    }

    /// Whether it has no connection, and nothing to send.
    #[must_use]
    pub fn is_idle(&self) -> bool {
        self.by_key.is_empty()
            && !self.neighbours.has_frames()
            && self.answers.0.iter().all(VecDeque::is_empty)
            && self.outbox.is_empty()
    }

    /// Time for which `dscp` was stopped by PFC until `now`.
    #[must_use]
    pub fn paused(&self, dscp: Dscp, now: Instant) -> Span {
        self.pauses.spent(self.pri_of(dscp), now)
    }

    /// Bytes that a connection has sent at least once, and taken, while there is one.
    pub fn counts(&self) -> impl Iterator<Item = (u32, u64, u64)> + '_ {
        let all = self.connections.iter().flatten();
        all.map(|connection| (connection.id, connection.sent_end(), connection.taken()))
    }

    /// Whether something can be sent now, if the link has room.
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

    /// Moves the host to `now` at a port: receives, answers, sends.
    ///
    /// # Errors
    /// The port's device is gone; the host is in order and may be polled again.
    pub fn poll(
        &mut self,
        now: Instant,
        port: &mut dyn Port,
        bufs: &mut Bufs,
    ) -> Result<TcpProgress, PortError> {
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
        let next = if more { Some(now) } else { Instant::earlier(self.next(now), idle) };
        let next = Instant::earlier(next, link.next_event());
        self.outbox = outbox;
        port.service(now, bufs)?;
        Ok(TcpProgress { sent, received, next, blocked })
    }

    /// Sends what is to be sent at `now` and there is room for, at a wire in virtual time; with `fronts` only the first
    /// [`FRONT_LEN`](weft_dataplane::pool::FRONT_LEN) bytes of each frame are written. Returns when it is due next.
    pub fn send_wire(&mut self, now: Instant, wire: &mut Wire, fronts: bool) -> Option<Instant> {
        let mut link = WireLink { wire, fronts, sent: 0 };
        self.tick(now);
        self.send(now, &mut link);
        let idle = if self.has_ready() { link.idle_at() } else { None };
        Instant::earlier(self.next(now), idle)
    }

    /// Gives chunks back to the pool; the host is not polled any more.
    pub fn release(&mut self, bufs: &mut Bufs) {
        self.outbox.release(bufs);
    }

    /// Checks a connection before there is one.
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

    /// A connection whose socket has no state yet.
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
        let index = self.free.pop().unwrap_or(self.connections.len());
        match self.connections.get_mut(index) {
            Some(slot) => *slot = connection,
            None => self.connections.push(connection),
        }
        self.by_key.insert(key, index);
        Ok(index)
    }

    /// The stack for packets of `mtu` bytes.
    fn face(&mut self, mtu: usize) -> usize {
        if let Some(place) = self.faces.iter().position(|&(had, _)| had == mtu) {
            return place;
        }
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

    /// The priority of packets with `dscp`, which have no other field that a switch may trust.
    fn pri_of(&self, dscp: Dscp) -> Pri {
        let classes = &self.spec.classes;
        let trusts = classes.trust.contains(&Some(crate::classes::PriSource::Dscp));
        let by_dscp = classes.dscp.get(usize::from(dscp.get())).copied();
        by_dscp.filter(|_| trusts).unwrap_or(classes.default_pri)
    }

    /// What time has brought about.
    fn tick(&mut self, now: Instant) {
        self.pauses.tick(now);
        let passed = now.since(self.spec.origin).as_ps();
        while let Some(&(at, index)) = self.timers.first()
            && at <= passed
        {
            self.timers.remove(&(at, index));
            if let Some(connection) = self.connections.get_mut(index).and_then(Option::as_mut) {
                connection.timer = None;
            }
            self.settle(now, index);
        }
        if self.neighbours.next().is_some_and(|at| at <= now) {
            self.resolved(); // who waits asks again
        }
    }

    /// When it is due next, beside what the link says.
    fn next(&mut self, now: Instant) -> Option<Instant> {
        let timer = self.timers.first().map(|&(at, _)| self.spec.origin + Span::from_ps(at));
        let is_waiting = Pri::ALL.into_iter().any(|pri| self.has_frames_of(pri));
        let pause = if is_waiting { self.pauses.tick(now) } else { None };
        Instant::earlier(Instant::earlier(timer, pause), self.neighbours.next())
    }

    /// Connections that waited for an address try again.
    fn resolved(&mut self) {
        for index in core::mem::take(&mut self.unresolved) {
            self.make_ready(index);
        }
    }

    fn make_ready(&mut self, index: usize) {
        if let Some(connection) = self.connections.get_mut(index).and_then(Option::as_mut)
            && !core::mem::replace(&mut connection.is_ready, true)
        {
            self.ready[connection.pri].push_back(index);
        }
    }

    /// Moves a connection's data, and notes when it is due.
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
