//! Calls of the engine: registration, connections, transfers and their status.
//!
//! Each call checks everything, then changes all or nothing; [`Engine::poll`] (in `run`) does the work.
//!
//! A registration in use is not removed: [`Engine::deregister`] returns the number of transfers that use it. A transfer
//! that ends early (failure, timeout, disconnection) returns its streams at once; tags of its outstanding requests stay
//! in use until their completions have come or can come no more, and data that still comes is dropped. Requests of a
//! failed WRITE that were sent may still reach the peer's memory.
//!
//! Source: docs/spec/cxl-fabric.md "Fabric memory transfers".

use std::collections::{BTreeMap, BTreeSet, VecDeque};

use weft_dataplane::time::{Instant, Span};
use weft_parsers::fabric::{Hpa, Pid};

use super::error::{Error, Reason};
use super::options::{Options, TIMEOUT_MAX};
use super::peers::{Imports, Message, Peer, Segment};
use super::pools::{Streams, Tags};
use super::port::{MemKind, Memory, StreamId, Tag};
use super::registry::{MemDesc, Registry, Share, Window};
use super::train::{self, Piece, Train};
use super::{Handle, PeerId, TransferReq};
use crate::by_key::ByKey;
use crate::cover::Cover;

/// Direction of a transfer.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Op {
    /// From the peer's memory to ours.
    Read,
    /// From our memory to the peer's.
    Write,
}

/// One operation of a transfer.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct TransferOpDesc {
    pub local: u64,
    /// The address that the peer registered.
    pub remote: u64,
    pub len: u64,
}

/// The state of a transfer.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Status {
    /// Waiting for streams, or under way.
    Waiting,
    /// All bytes are copied.
    Completed,
    /// It ended early; a WRITE may have written a part.
    Failed(Reason),
    /// It ended because its timeout was over.
    Timeout,
}

/// Configuration of a fabric memory engine.
#[derive(Clone, Debug)]
pub struct EngineSpec {
    pub options: Options,
    /// Window in which own host memory is shown to peers; its PID is the engine's own.
    pub window: Window,
    /// Own addresses that lead to each PID.
    pub segments: BTreeMap<Pid, Segment>,
}

/// Resources of an engine that are in use.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Usage {
    pub registrations: usize,
    /// Peers that are connected or connecting.
    pub peers: usize,
    /// Mapped ranges of peers.
    pub imports: usize,
    /// Transfers under way, and ended ones whose status was not read yet.
    pub transfers: usize,
    /// Streams in use by transfers.
    pub streams: usize,
    /// Tags of requests whose completions can still come.
    pub tags: usize,
}

pub(super) struct Flight {
    /// `None` once the transfer has ended: its completions are awaited to free the tag.
    pub transfer: Option<TransferReq>,
    pub lane: usize,
    /// Operation and address of the request; a staged piece is first read, then written.
    pub op: Op,
    pub at: Hpa,
    pub piece: Piece,
    /// Bytes read of a staged piece, to be written next.
    pub staged: Option<Vec<u8>>,
    pub cover: Cover,
    pub deadline: Instant,
    pub seq: u64,
}

impl Flight {
    /// A request for a piece; the caller sets its operation and address.
    pub(super) fn of(transfer: TransferReq, lane: usize, piece: Piece) -> Self {
        let (transfer, cover) = (Some(transfer), Cover::default());
        let (op, at, staged) = (Op::Read, piece.fabric, None);
        let (deadline, seq) = (Instant::ZERO, 0);
        Self { transfer, lane, op, at, piece, staged, cover, deadline, seq }
    }
}

/// A staged piece that was read and waits to be written. Its lane counts it as outstanding.
pub(super) struct Ready {
    pub transfer: TransferReq,
    pub lane: usize,
    pub piece: Piece,
    pub data: Vec<u8>,
}

pub(super) struct Live {
    pub peer: PeerId,
    pub op: Op,
    pub train: Train,
    /// Streams with their outstanding requests; empty until the transfer gets streams.
    pub lanes: Vec<(StreamId, usize)>,
    pub deadline: Instant,
    pub handles: BTreeSet<Handle>,
}

pub(super) enum Transfer {
    Live(Box<Live>),
    Done(Status),
}

/// Fabric memory engine of one host or device.
pub struct Engine {
    pub(super) options: Options,
    pub(super) off: Option<Error>,
    pid: Pid,
    segments: BTreeMap<Pid, Segment>,
    registry: Registry,
    peers: BTreeMap<PeerId, Peer>,
    pub(super) transfers: BTreeMap<TransferReq, Transfer>,
    /// Transfers without streams, oldest first.
    pub(super) waiting: VecDeque<TransferReq>,
    /// Transfers with streams, in the order of their turns.
    pub(super) running: VecDeque<TransferReq>,
    pub(super) flights: ByKey<Tag, Flight>,
    pub(super) ready: VecDeque<Ready>,
    /// Requests in order of issue, and so of their deadlines; answered ones are skipped.
    pub(super) issued: VecDeque<(u64, Tag)>,
    pub(super) streams: Streams,
    pub(super) tags: Tags,
    pub(super) seq: u64,
    pub(super) unexpected: u64,
}

impl Engine {
    /// An engine; if the options leave the mode off, all its calls return [`Error::Disabled`].
    ///
    /// # Errors
    /// An option is out of range, or two exclude each other.
    pub fn new(spec: EngineSpec) -> Result<Self, Error> {
        let options = spec.options.checked()?;
        Ok(Self {
            off: (!options.enabled).then_some(Error::Disabled),
            pid: spec.window.place.pid,
            segments: spec.segments,
            registry: Registry::new(spec.window),
            peers: BTreeMap::new(),
            transfers: BTreeMap::new(),
            waiting: VecDeque::new(),
            running: VecDeque::new(),
            flights: ByKey::default(),
            ready: VecDeque::new(),
            issued: VecDeque::new(),
            streams: Streams::new(options.streams_max),
            tags: Tags::new(),
            seq: 0,
            unexpected: 0,
            options,
        })
    }

    /// Resources in use now; all are 0 after [`Self::reset`].
    #[must_use]
    pub fn usage(&self) -> Usage {
        let imports = self.peers.values().map(|peer| match peer {
            Peer::Connecting => 0,
            Peer::Connected { imports, .. } => imports.len(),
        });
        Usage {
            registrations: self.registry.len(),
            peers: self.peers.len(),
            imports: imports.sum(),
            transfers: self.transfers.len(),
            streams: self.streams.used(),
            tags: self.flights.len(),
        }
    }

    /// Completions that matched no request.
    #[must_use]
    pub const fn unexpected(&self) -> u64 {
        self.unexpected
    }

    /// Registers memory for transfers, and for peers that connect from now on.
    ///
    /// # Errors
    /// See [`Registry::add`].
    pub fn register(
        &mut self,
        mem: MemDesc,
        kind: MemKind,
        memory: &dyn Memory,
    ) -> Result<Handle, Error> {
        self.on()?;
        self.registry.add(mem, kind, memory)
    }

    /// Changes the window in which host memory is shown.
    ///
    /// # Errors
    /// Host memory is registered, and the window is another one.
    pub fn set_window(&mut self, window: Window) -> Result<(), Error> {
        self.on()?;
        self.registry.set_window(window)
    }

    /// Registrations, with the shares that peers are sent.
    pub fn registrations(&self) -> impl Iterator<Item = (Handle, Share)> {
        self.registry.handles()
    }

    /// Mapped ranges of a peer by the peer's addresses, with their fabric addresses.
    pub fn imports(&self, peer: PeerId) -> impl Iterator<Item = (MemDesc, Hpa)> {
        let imports = match self.peers.get(&peer) {
            Some(Peer::Connected { imports, .. }) => Some(imports),
            _ => None,
        };
        imports.into_iter().flat_map(Imports::ranges)
    }

    /// Removes a registration. Peers' requests to it are refused from now on.
    ///
    /// # Errors
    /// It is unknown, or transfers use it.
    pub fn deregister(&mut self, handle: Handle) -> Result<(), Error> {
        self.on()?;
        self.registry.remove(handle, self.peers.keys().copied().collect())
    }

    /// The memory of a registration is gone: removes it even if it is in use, and fails the transfers that use it.
    ///
    /// # Errors
    /// It is unknown.
    pub fn revoke(&mut self, handle: Handle) -> Result<(), Error> {
        self.on()?;
        let uses = |transfer: &Transfer| matches!(transfer, Transfer::Live(live) if live.handles.contains(&handle));
        // Transfers first: `deregister` refuses a registration in use.
        let users = self.transfers.iter().filter(|(_, transfer)| uses(transfer));
        for req in users.map(|(req, _)| *req).collect::<Vec<_>>() {
            self.end(req, Status::Failed(Reason::Revoked(handle)));
        }
        self.deregister(handle)
    }

    /// Share handles of all registrations.
    ///
    /// # Errors
    /// The engine is off.
    pub fn shares(&self) -> Result<Vec<Share>, Error> {
        self.on()?;
        Ok(self.registry.shares().collect())
    }

    /// Begins a connection; the caller sends the message to the peer.
    ///
    /// # Errors
    /// The peer is connected or connecting already.
    pub fn connect(&mut self, peer: PeerId) -> Result<Message, Error> {
        let shares = self.shares()?;
        if self.peers.contains_key(&peer) {
            return Err(Error::Connected(peer));
        }
        self.peers.insert(peer, Peer::Connecting);
        Ok(Message::Hello { pid: self.pid, shares })
    }

    /// Takes a peer's message; the caller sends the returned message back.
    ///
    /// # Errors
    /// The peer is connected already, or its shares cannot be mapped; it is not connected then, and the caller should
    /// send it a goodbye.
    pub fn receive(&mut self, peer: PeerId, message: &Message) -> Result<Option<Message>, Error> {
        let own = self.shares()?;
        let connected = matches!(self.peers.get(&peer), Some(Peer::Connected { .. }));
        match message {
            Message::Hello { .. } if connected => Err(Error::Connected(peer)),
            Message::Hello { pid, shares } => {
                self.import(peer, *pid, shares)?;
                Ok(Some(Message::Welcome { pid: self.pid, shares: own }))
            }
            Message::Welcome { .. } if connected => Ok(None), // both ends sent a hello, and the peer's hello has connected them
            Message::Welcome { .. } if !self.peers.contains_key(&peer) => {
                Err(Error::NotConnected(peer))
            }
            Message::Welcome { pid, shares } => self.import(peer, *pid, shares).map(|()| None),
            Message::Goodbye => {
                self.drop_peer(peer, Reason::Disconnected);
                Ok(None)
            }
        }
    }

    /// Whether shares were exchanged with the peer.
    #[must_use]
    pub fn is_connected(&self, peer: PeerId) -> bool {
        matches!(self.peers.get(&peer), Some(Peer::Connected { .. }))
    }

    /// Ends a connection: imports are freed and transfers fail. The caller sends the message to the peer.
    ///
    /// # Errors
    /// There is no connection.
    pub fn disconnect(&mut self, peer: PeerId) -> Result<Message, Error> {
        self.on()?;
        if !self.drop_peer(peer, Reason::Disconnected) {
            return Err(Error::NotConnected(peer));
        }
        Ok(Message::Goodbye)
    }

    /// The transport found that the peer is gone: imports are freed and transfers fail.
    ///
    /// # Errors
    /// There was no connection.
    pub fn peer_lost(&mut self, peer: PeerId) -> Result<(), Error> {
        self.on()?;
        let dropped = self.drop_peer(peer, Reason::PeerLost);
        if dropped { Ok(()) } else { Err(Error::NotConnected(peer)) }
    }

    /// Frees everything; all later calls are refused. Returns the peers to send a goodbye to.
    ///
    /// # Errors
    /// The engine is off.
    pub fn finalize(&mut self) -> Result<Vec<PeerId>, Error> {
        let peers = self.reset()?;
        self.off = Some(Error::Finalized);
        Ok(peers)
    }

    /// Frees everything, as after power-on. Returns the former peers.
    ///
    /// # Errors
    /// The engine is off.
    pub fn reset(&mut self) -> Result<Vec<PeerId>, Error> {
        self.on()?;
        let peers: Vec<PeerId> = self.peers.keys().copied().collect();
        for peer in &peers {
            self.drop_peer(*peer, Reason::Disconnected);
        }
        // Drops ended transfers as well, whose status was not read.
        self.transfers.clear();
        self.registry.clear();
        for tag in std::mem::take(&mut self.flights).into_keys() {
            self.tags.give(tag);
        }
        self.issued.clear();
        self.ready.clear();
        Ok(peers)
    }

    /// Own address of `len` bytes at `offset` of the own segment, for a request of port id `requester`: `None`, and so
    /// status UR, if it is not registered or the requester is not connected.
    #[must_use]
    pub fn serve(&self, requester: Pid, offset: u64, len: u64) -> Option<u64> {
        // `pid` is that of the mailbox slot by which the peer connected, which no other port can write
        // (docs/spec/wire-formats.md §5.5).
        let is = |peer: &Peer| matches!(peer, Peer::Connected { pid, .. } if *pid == requester);
        self.peers.values().any(is).then(|| self.registry.shown_at(offset, len)).flatten()
    }

    /// Begins a transfer; without `timeout` that of the options applies.
    ///
    /// # Errors
    /// A range is empty or too long, not registered or not shared; destinations overlap, or a source and a destination
    /// do; too many transfers run; the peer is not connected.
    pub fn transfer_async(
        &mut self,
        now: Instant,
        peer: PeerId,
        op: Op,
        ops: &[TransferOpDesc],
        timeout: Option<Span>,
    ) -> Result<TransferReq, Error> {
        self.on()?;
        let Some(Peer::Connected { imports, .. }) = self.peers.get(&peer) else {
            return Err(Error::NotConnected(peer));
        };
        if ops.is_empty() {
            return Err(Error::Empty);
        }
        if self.transfers.len() >= self.options.transfers_max {
            return Err(Error::TooMany(self.transfers.len()));
        }
        let (mut spans, mut handles) = (Vec::with_capacity(ops.len()), BTreeSet::new());
        for (index, &TransferOpDesc { local, remote, len }) in ops.iter().enumerate() {
            let here = MemDesc { addr: local, len }.checked()?;
            let there = MemDesc { addr: remote, len }.checked()?;
            let found = self.registry.find(here);
            let (handle, staged) = found.ok_or(Error::Local { index, addr: local })?;
            handles.insert(handle);
            let fabric = imports.find(there).ok_or(Error::Remote { index, addr: remote })?;
            spans.push(train::Span { local, fabric, len, staged });
        }
        // Everything is checked before the first count, so that a refused transfer leaves no trace.
        destinations_apart(op, &spans)?;
        sources_apart(op, &spans)?;
        for handle in &handles {
            self.registry.count_user(*handle, 1);
        }
        self.seq += 1;
        let req = TransferReq(self.seq);
        // Bounded, as deadlines far ahead would wrap the clock.
        let timeout = timeout.unwrap_or(self.options.transfer_timeout).min(TIMEOUT_MAX);
        let live = Live {
            peer,
            op,
            train: Train::new(spans, self.options.request_len_max),
            lanes: Vec::new(),
            deadline: now + timeout,
            handles,
        };
        self.transfers.insert(req, Transfer::Live(Box::new(live)));
        self.waiting.push_back(req);
        Ok(req)
    }

    /// Status of a transfer. The status of an ended transfer is returned once, and the transfer is forgotten.
    ///
    /// # Errors
    /// The transfer is unknown, or its end was returned already.
    pub fn status(&mut self, req: TransferReq) -> Result<Status, Error> {
        self.on()?;
        match self.transfers.get(&req) {
            None => Err(Error::UnknownRequest(req)),
            Some(Transfer::Live(_)) => Ok(Status::Waiting),
            Some(&Transfer::Done(status)) => {
                self.transfers.remove(&req);
                Ok(status)
            }
        }
    }

    /// Makes a transfer and waits for its end. `drive` lets time pass, polls the engine, and returns the new time.
    ///
    /// # Errors
    /// As [`Self::transfer_async`]; or the transfer failed, or took too long.
    pub fn transfer_sync(
        &mut self,
        now: Instant,
        peer: PeerId,
        op: Op,
        ops: &[TransferOpDesc],
        timeout: Option<Span>,
        drive: &mut dyn FnMut(&mut Self) -> Result<Instant, Error>,
    ) -> Result<(), Error> {
        let req = self.transfer_async(now, peer, op, ops, timeout)?;
        let (mut last, mut at_once) = (now, 0);
        loop {
            match self.status(req)? {
                Status::Completed => return Ok(()),
                Status::Failed(reason) => return Err(Error::Failed(reason)),
                Status::Timeout => return Err(Error::Timeout),
                Status::Waiting => {}
            }
            let driven = drive(self);
            let Ok(now) = driven else {
                // The caller gets the error of `drive`, so the result of the transfer is not kept for it.
                self.end(req, Status::Failed(Reason::Disconnected));
                self.transfers.remove(&req);
                return driven.map(|_| ());
            };
            at_once = if now == last { at_once + 1 } else { 0 };
            last = now;
            let late = matches!(self.transfers.get(&req), Some(Transfer::Live(live)) if live.deadline <= now);
            // A `drive` that polls another engine, or whose clock stands still, must not make this loop endless.
            if late || at_once > DRIVES_AT_ONCE_MAX {
                self.end(req, Status::Timeout);
            }
        }
    }

    pub(super) fn on(&self) -> Result<(), Error> {
        self.off.clone().map_or(Ok(()), Err)
    }

    /// Ends a transfer: frees its streams and registrations, and detaches its outstanding requests.
    pub(super) fn end(&mut self, req: TransferReq, status: Status) {
        let Some(transfer) = self.transfers.get_mut(&req) else { return };
        let Transfer::Live(live) = std::mem::replace(transfer, Transfer::Done(status)) else {
            return *transfer = Transfer::Done(status);
        };
        self.streams.give(live.lanes.iter().map(|(stream, _)| *stream));
        for handle in live.handles {
            self.registry.count_user(handle, -1);
        }
        // Tags stay in use: a completion that comes later must not be taken for that of a new request.
        for flight in self.flights.values_mut().filter(|flight| flight.transfer == Some(req)) {
            flight.transfer = None;
        }
        self.ready.retain(|ready| ready.transfer != req);
        self.waiting.retain(|other| *other != req);
        self.running.retain(|other| *other != req);
    }

    fn import(&mut self, peer: PeerId, pid: Pid, shares: &[Share]) -> Result<(), Error> {
        // First: a peer whose shares cannot be mapped is not connected any more.
        self.peers.remove(&peer);
        let imports = Imports::map(peer, shares, self.options.shares_max, &self.segments)?;
        self.peers.insert(peer, Peer::Connected { pid, imports });
        Ok(())
    }

    fn drop_peer(&mut self, peer: PeerId, reason: Reason) -> bool {
        let is =
            |transfer: &Transfer| matches!(transfer, Transfer::Live(live) if live.peer == peer);
        let of_peer = self.transfers.iter().filter(|(_, transfer)| is(transfer));
        for req in of_peer.map(|(req, _)| *req).collect::<Vec<_>>() {
            self.end(req, Status::Failed(reason));
        }
        self.registry.forget(peer);
        self.peers.remove(&peer).is_some()
    }
}

/// Most calls of `drive` in a row without time passing, before a synchronous transfer gives up.
const DRIVES_AT_ONCE_MAX: u32 = 1 << 20;

fn destinations_apart(op: Op, spans: &[train::Span]) -> Result<(), Error> {
    let start = |span: &train::Span| match op {
        Op::Read => span.local,
        Op::Write => span.fabric.0,
    };
    let mut sorted: Vec<(u64, u64, usize)> =
        spans.iter().enumerate().map(|(i, span)| (start(span), span.len, i)).collect();
    sorted.sort_unstable();
    for pair in sorted.windows(2) {
        // Requests complete in any order, so the result of overlapping writes would be random.
        if let [(at, len, first), (next, _, second)] = *pair
            && at + len > next
        {
            return Err(Error::Destinations { first, second });
        }
    }
    Ok(())
}

/// Refuses operations that read bytes which the same transfer writes. Only staged ones can: both their ends are reached
/// by requests, and may be the same memory.
fn sources_apart(op: Op, spans: &[train::Span]) -> Result<(), Error> {
    let staged = || (0..).zip(spans).filter(|(_, span)| span.staged);
    let ends = |span: &train::Span| match op {
        Op::Read => (span.fabric.0, span.local),
        Op::Write => (span.local, span.fabric.0),
    };
    let mut written: Vec<(u64, u64, usize)> =
        staged().map(|(index, span)| (ends(span).1, span.len, index)).collect();
    written.sort_unstable();
    for (reads, span) in staged() {
        let (source, _) = ends(span);
        // `destinations_apart` has made sure that these ranges are disjoint: only the last one that begins before the
        // source ends can overlap it.
        let before = written.partition_point(|(at, ..)| *at < source + span.len);
        let last = before.checked_sub(1).and_then(|at| written.get(at));
        if let Some(&(_, _, writes)) = last.filter(|(at, len, _)| at + len > source) {
            return Err(Error::Overwritten { reads, writes });
        }
    }
    Ok(())
}
