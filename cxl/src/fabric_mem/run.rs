//! The engine's work: requests out, completions in, timeouts.
//!
//! [`Engine::poll`] takes completions, ends late requests and transfers, assigns streams, and sends requests while
//! there is room: first writes of staged pieces that were read, then one request of each transfer in turn. A request is
//! never sent twice.
//!
//! Source: docs/spec/cxl-fabric.md "Fabric memory transfers"; docs/spec/wire-formats.md §3.6, §5.5.

use weft_dataplane::time::Instant;
use weft_parsers::fabric::Hpa;

use super::TransferReq;
use super::engine::{Engine, Flight, Op, Ready, Status, Transfer};
use super::error::{Error, Reason};
use super::port::{Answer, Body, Completion, Memory, NotTaken, Request, Tag, UioPort};
use super::train::Piece;
use crate::by_key::ByKey;

enum Sent {
    One,
    /// Nothing to send, or no lane, tag or data for it now.
    None,
    Full,
}

impl Engine {
    /// Does all work that is due at `now`; returns the next deadline.
    ///
    /// # Errors
    /// The engine is off.
    pub fn poll(
        &mut self,
        now: Instant,
        port: &mut dyn UioPort,
        memory: &mut dyn Memory,
    ) -> Result<Option<Instant>, Error> {
        self.on()?;
        // Completions before deadlines: a completion that has come by `now` is in time, however late this poll is.
        port.poll(now, &mut |completion| self.complete(&completion, memory));
        self.expire(now);
        self.start();
        self.send(now, port, memory);
        Ok(self.next_deadline())
    }

    fn complete(&mut self, completion: &Completion<'_>, memory: &mut dyn Memory) {
        let Some(flight) = self.flights.get_mut(&completion.tag) else {
            self.unexpected += 1;
            return;
        };
        let (req, lane, piece) = (flight.transfer, flight.lane, flight.piece);
        let (done, result) = judge(flight, completion.answer, memory);
        // Before `release`, which drops the flight.
        let staged = flight.staged.take_if(|_| done);
        if done {
            self.release(completion.tag);
        }
        let Some(req) = req else { return };
        if let Err(reason) = result {
            return self.end(req, Status::Failed(reason));
        }
        if let Some(data) = staged {
            // The lane's count stays: the piece is half done, and its write follows on the same lane.
            self.ready.push_back(Ready { transfer: req, lane, piece, data });
            return;
        }
        let Some(Transfer::Live(live)) = self.transfers.get_mut(&req) else { return };
        if done {
            if let Some((_, outstanding)) = live.lanes.get_mut(lane) {
                *outstanding = outstanding.saturating_sub(1);
            }
            // Both are needed: requests may be outstanding when the train is cut to its end, and none may be while
            // pieces wait for room.
            let none_out = live.lanes.iter().all(|(_, outstanding)| *outstanding == 0);
            if none_out && live.train.peek().is_none() {
                self.end(req, Status::Completed);
            }
        }
    }

    fn release(&mut self, tag: Tag) {
        if self.flights.swap_remove(&tag).is_some() {
            self.tags.give(tag);
        }
    }

    fn expire(&mut self, now: Instant) {
        while let Some(&(seq, tag)) = self.issued.front() {
            let flight = under_way(&self.flights, seq, tag);
            // All requests have the same time limit, so the first that is not late ends the search.
            if flight.is_some_and(|flight| flight.deadline > now) {
                break;
            }
            self.issued.pop_front();
            let Some(flight) = flight else { continue };
            let (req, at) = (flight.transfer, flight.at);
            // Completions can come no more after this time, so the tag is safe to use again.
            self.release(tag);
            if let Some(req) = req {
                self.end(req, Status::Failed(Reason::Lost(at)));
            }
        }
        let all = self.waiting.iter().chain(&self.running);
        let late = all.filter(|req| {
            matches!(self.transfers.get(req), Some(Transfer::Live(live)) if live.deadline <= now)
        });
        for req in late.copied().collect::<Vec<_>>() {
            self.end(req, Status::Timeout);
        }
    }

    /// Assigns streams to waiting transfers, in their order.
    fn start(&mut self) {
        while let Some(&req) = self.waiting.front() {
            let Some(streams) = self.streams.take(self.options.streams_per_transfer) else { break };
            self.waiting.pop_front();
            match self.transfers.get_mut(&req) {
                Some(Transfer::Live(live)) => {
                    live.lanes = streams.into_iter().map(|stream| (stream, 0)).collect();
                    self.running.push_back(req);
                }
                _ => self.streams.give(streams),
            }
        }
    }

    fn send(&mut self, now: Instant, port: &mut dyn UioPort, memory: &mut dyn Memory) {
        // First: a staged piece holds a buffer and a place on its lane until it is written.
        if !self.send_ready(now, port) {
            return;
        }
        let mut idle = 0; // turns in a row without a request: ends the loop once every transfer had one
        while idle < self.running.len() {
            let Some(req) = self.running.pop_front() else { break };
            self.running.push_back(req);
            match self.send_one(now, req, port, memory) {
                Sent::One => idle = 0,
                Sent::None => idle += 1,
                Sent::Full => break,
            }
        }
    }

    fn send_one(
        &mut self,
        now: Instant,
        req: TransferReq,
        port: &mut dyn UioPort,
        memory: &mut dyn Memory,
    ) -> Sent {
        let Some(Transfer::Live(live)) = self.transfers.get_mut(&req) else { return Sent::None };
        let depth = self.options.stream_depth;
        let lanes = live.lanes.iter_mut().enumerate();
        let Some((lane, (stream, outstanding))) =
            // The least busy stream, so that all share the load.
            lanes.min_by_key(|(_, (_, out))| *out).filter(|(_, (_, out))| *out < depth)
        else {
            return Sent::None;
        };
        let Some(piece) = live.train.peek() else { return Sent::None };
        // A device of this host may have newer bytes in its cache: `ready` has the home agent fetch them, and the piece
        // waits meanwhile.
        let reads_memory = live.op == Op::Write && !piece.staged;
        if reads_memory && !memory.ready(piece.local, piece.len) {
            return Sent::None;
        }
        let Some(tag) = self.tags.take() else { return Sent::None };
        let len = usize::try_from(piece.len).unwrap_or_default(); // at most 4 KiB
        let (op, at) = match live.op {
            Op::Read => (Op::Read, piece.fabric),
            Op::Write if piece.staged => (Op::Read, Hpa(piece.local)),
            Op::Write => (Op::Write, piece.fabric),
        };
        let body = match op {
            Op::Read => Body::Read(len),
            Op::Write => Body::Write(len),
        };
        let request = Request { tag, stream: *stream, addr: at, body };
        let fill = &mut |place: &mut [u8]| memory.read(piece.local, place);
        if let Err(error) = port.submit(now, request, fill) {
            self.tags.put_back(tag);
            return match error {
                NotTaken::Full => Sent::Full,
                NotTaken::Unfilled => {
                    self.end(req, Status::Failed(Reason::Memory(piece.local)));
                    Sent::None
                }
            };
        }
        *outstanding += 1;
        live.train.advance();
        let staged = piece.staged.then(|| vec![0; len]);
        let flight = Flight { staged, ..Flight::of(req, lane, piece) };
        self.fly(now, tag, Flight { op, at, ..flight });
        Sent::One
    }

    /// Records a request that was sent.
    fn fly(&mut self, now: Instant, tag: Tag, flight: Flight) {
        self.seq += 1;
        let (seq, deadline) = (self.seq, now + self.options.completion_timeout);
        self.issued.push_back((seq, tag));
        self.flights.insert(tag, Flight { deadline, seq, ..flight });
    }

    /// Writes staged pieces that were read; false while the port has no room, or no tag is free.
    fn send_ready(&mut self, now: Instant, port: &mut dyn UioPort) -> bool {
        while let Some(Ready { transfer: req, lane, piece, data }) = self.ready.front() {
            let (req, lane, piece) = (*req, *lane, *piece);
            let Some(Transfer::Live(live)) = self.transfers.get(&req) else {
                self.ready.pop_front();
                continue;
            };
            let at = match live.op {
                Op::Read => Hpa(piece.local),
                Op::Write => piece.fabric,
            };
            let Some((stream, _)) = live.lanes.get(lane) else { return true };
            let stream = *stream;
            let Some(tag) = self.tags.take() else { return false };
            let request = Request { tag, stream, addr: at, body: Body::Write(data.len()) };
            let fill = &mut |place: &mut [u8]| {
                place.copy_from_slice(data);
                true
            };
            if port.submit(now, request, fill).is_err() {
                self.tags.put_back(tag);
                return false;
            }
            self.ready.pop_front();
            self.fly(now, tag, Flight { op: Op::Write, at, ..Flight::of(req, lane, piece) });
        }
        true
    }

    fn next_deadline(&self) -> Option<Instant> {
        let mut issued = self.issued.iter();
        let first = issued.find_map(|&(seq, tag)| under_way(&self.flights, seq, tag));
        let all = self.waiting.iter().chain(&self.running);
        all.filter_map(|req| match self.transfers.get(req) {
            Some(Transfer::Live(live)) => Some(live.deadline),
            _ => None,
        })
        .fold(first.map(|flight| flight.deadline), |next, at| Instant::earlier(next, Some(at)))
    }
}

/// The request with number `seq`, if it has not ended.
fn under_way(flights: &ByKey<Tag, Flight>, seq: u64, tag: Tag) -> Option<&Flight> {
    flights.get(&tag).filter(|flight| flight.seq == seq)
}

/// Judges a completion: whether the request can have no further one, and why its transfer fails, if it does. Data is
/// stored only while the request has a transfer.
fn judge(
    flight: &mut Flight,
    answer: Answer<'_>,
    memory: &mut dyn Memory,
) -> (bool, Result<(), Reason>) {
    let Piece { local, len, .. } = flight.piece;
    let at = flight.at;
    match (flight.op, answer) {
        (_, Answer::Unsupported) => (true, Err(Reason::Unsupported(at))),
        (_, Answer::Aborted) => (true, Err(Reason::Aborted(at))),
        (Op::Write, Answer::Written) => (true, Ok(())),
        (Op::Read, Answer::Data { offset, data, poisoned }) => {
            if !flight.cover.add(offset, data.len() as u64, len) {
                // The tag stays in use: more completions of this request may come.
                return (false, Err(Reason::Malformed(at)));
            }
            let done = flight.cover.is_whole(len);
            let result = match &mut flight.staged {
                _ if poisoned => Err(Reason::Poisoned(Hpa(at.0 + offset))),
                Some(place) => {
                    let place = usize::try_from(offset).ok().and_then(|from| place.get_mut(from..));
                    let place = place.and_then(|place| place.get_mut(..data.len()));
                    place.map(|place| place.copy_from_slice(data)).ok_or(Reason::Malformed(at))
                }
                None if flight.transfer.is_some() && !memory.write(local + offset, data) => {
                    Err(Reason::Memory(local + offset))
                }
                None => Ok(()),
            };
            (done, result)
        }
        _ => (false, Err(Reason::Malformed(at))),
    }
}
