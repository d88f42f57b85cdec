//! A wire between two hosts in virtual time, with faults: the port of the tests of this crate.
//!
//! Two [`End`]s share a [`Wire`]; a frame arrives its wire time and the delay after it was taken. [`run`] jumps from
//! event to event.

use std::collections::VecDeque;
use std::sync::{Arc, Mutex};

use weft_dataplane::pool::Pool;
use weft_dataplane::port::PortCaps;
use weft_dataplane::time::Span;

use super::*;

/// Replaces the nth data frame that one side sends by the frames that arrive instead.
pub type Fault = Box<dyn FnMut(u64, Vec<u8>) -> Vec<Vec<u8>> + Send>;

#[derive(Default)]
struct Side {
    /// Frames on their way to this side.
    inbound: VecDeque<(Instant, Vec<u8>)>,
    /// Until when this side's transmitter is busy.
    busy: Option<Instant>,
    /// Data frames that this side has sent.
    count: u64,
    fault: Option<Fault>,
    /// How many frames fewer `tx` takes than `tx_room` promised.
    refuses: usize,
}

/// State of both directions.
struct Wire {
    sides: [Side; 2],
    rate: LinkRate,
    delay: Span,
    /// Frames that the transmitter takes at once.
    depth: usize,
}

/// One end of a wire.
pub struct End {
    wire: Arc<Mutex<Wire>>,
    side: usize,
    caps: PortCaps,
}

/// A wire of `gbps` with 1 us of delay; its transmitters take `depth` frames at once.
pub fn wire(gbps: u64, depth: usize) -> [End; 2] {
    wire_over(gbps, depth, Span::from_us(1))
}

/// The same with another delay.
pub fn wire_over(gbps: u64, depth: usize, delay: Span) -> [End; 2] {
    let rate = LinkRate::gbps(gbps);
    let sides = [Side::default(), Side::default()];
    let wire = Arc::new(Mutex::new(Wire { sides, rate, delay, depth }));
    [0, 1].map(|side| End {
        wire: wire.clone(),
        side,
        caps: PortCaps {
            kind: "test",
            device: format!("end{side}"),
            frame_len_max: 9216,
            rate,
            tx_partial_csum: false,
            virtual_time: true,
        },
    })
}

impl End {
    /// Passes this end's data frames through `fault`.
    pub fn set_fault(&self, fault: Fault) {
        self.wire.lock().unwrap().sides[self.side].fault = Some(fault);
    }

    /// Makes this end's transmitter take `frames` fewer than it has promised.
    pub fn set_refuses(&self, frames: usize) {
        self.wire.lock().unwrap().sides[self.side].refuses = frames;
    }

    /// Puts a frame at this end, to be received at `at`.
    pub fn inject(&self, at: Instant, frame: &[u8]) {
        self.wire.lock().unwrap().sides[self.side].inbound.push_back((at, frame.to_vec()));
    }

    /// Takes the frames that the other end has not received yet.
    pub fn take_sent(&self) -> Vec<(Instant, Vec<u8>)> {
        self.wire.lock().unwrap().sides[1 - self.side].inbound.drain(..).collect()
    }
}

impl Port for End {
    fn caps(&self) -> &PortCaps {
        &self.caps
    }

    fn rx(&mut self, now: Instant, bufs: &mut Bufs, batch: &mut Batch) -> usize {
        let mut wire = self.wire.lock().unwrap();
        let inbound = &mut wire.sides[self.side].inbound;
        let before = batch.len();
        while batch.len() < BURST && inbound.front().is_some_and(|(at, _)| *at <= now) {
            let Some(desc) = bufs.alloc_from(&inbound[0].1) else { break };
            inbound.pop_front();
            batch.push(desc);
        }
        batch.len() - before
    }

    fn tx_room(&mut self, now: Instant) -> usize {
        let mut wire = self.wire.lock().unwrap();
        let depth = wire.depth;
        let side = &mut wire.sides[self.side];
        side.busy = side.busy.filter(|until| *until > now);
        if side.busy.is_some() { 0 } else { depth }
    }

    fn tx(&mut self, now: Instant, bufs: &mut Bufs, batch: &mut Batch) -> usize {
        let mut wire = self.wire.lock().unwrap();
        let (rate, delay, depth) = (wire.rate, wire.delay, wire.depth);
        // At least one, so that a run with refusals makes progress.
        let count = depth.saturating_sub(wire.sides[self.side].refuses).max(1).min(batch.len());
        let mut at = now;
        for desc in batch.drain(..count) {
            let frame = bufs.bytes(&desc).to_vec();
            bufs.free(desc);
            at += rate.frame_time(frame.len());
            let side = &mut wire.sides[self.side];
            // PFC passes whatever the fault is: these tests are about data.
            let is_data = frame[12..14] != [0x88, 0x08];
            let frames = match &mut side.fault {
                Some(fault) if is_data => {
                    side.count += 1;
                    fault(side.count - 1, frame)
                }
                _ => vec![frame],
            };
            let inbound = &mut wire.sides[1 - self.side].inbound;
            inbound.extend(frames.into_iter().map(|frame| (at + delay, frame)));
        }
        wire.sides[self.side].busy = Some(at);
        count
    }

    fn service(&mut self, _: Instant, _: &mut Bufs) -> Result<(), PortError> {
        Ok(())
    }

    fn next_event(&self) -> Option<Instant> {
        let wire = self.wire.lock().unwrap();
        let side = &wire.sides[self.side];
        side.inbound.front().map(|(at, _)| *at)
    }

    fn idle_at(&self) -> Option<Instant> {
        self.wire.lock().unwrap().sides[self.side].busy
    }

    fn release(&mut self, _: &mut Bufs) {}
}

/// Chunks for a test, of frames up to `frame_len_max`.
pub fn bufs(count: usize, frame_len_max: usize) -> Bufs {
    Bufs::new(Pool::in_memory(count, frame_len_max).unwrap(), 8, 2)
}

/// Runs both hosts until neither has an event left, or `until`; returns the time reached.
pub fn run(hosts: &mut [Host; 2], ends: &mut [End; 2], bufs: &mut Bufs, until: Instant) -> Instant {
    let (mut now, mut at_once) = (Instant::ZERO, 0);
    loop {
        // A host that wants to be polled now for ever would hang the test.
        assert!(at_once < 1_000, "time stands still at {} ps", now.as_ps());
        let mut next = None;
        for (host, end) in hosts.iter_mut().zip(ends.iter_mut()) {
            let progress = host.poll(now, end, bufs).unwrap();
            next = Instant::earlier(next, progress.next);
        }
        for end in ends.iter() {
            next = Instant::earlier(next, end.next_event()); // what the other host has just sent
        }
        match next {
            Some(at) if at < until => {
                at_once = if at > now { 0 } else { at_once + 1 };
                now = at.max(now);
            }
            _ => return now,
        }
    }
}
