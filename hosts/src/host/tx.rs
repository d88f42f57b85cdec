//! The sending half of a host.
//!
//! Own PFC first, then announcements, then frames that the port had refused, then streams in
//! turn; no more than the port has room for, and what it refuses all the same is kept in order.
//!
//! Units: frames.

use std::collections::VecDeque;

use arrayvec::ArrayVec;
use weft_dataplane::desc::Desc;
use weft_parsers::mac_control;

use super::rx::note_classes;
use super::{BURST, Batch, Bufs, CONTROL, Due, Host, Instant, LANES, LinkRate, Port, Pri, Reverse};

/// Most bursts that one poll sends, so that receiving is not starved.
const TX_BURSTS: usize = 4;

/// How sending ended.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Sending {
    /// Nothing is left to send now.
    Idle,
    /// There is more to send and the port may have room for it.
    More,
    /// There is more to send, and no room for it.
    Blocked,
}

/// Frames to hand over, and the lane of each.
#[derive(Default)]
struct Load {
    batch: Batch,
    lanes: ArrayVec<usize, BURST>,
}

impl Load {
    /// Appends a frame; the caller has seen that there is room.
    fn push(&mut self, lane: usize, desc: Desc) {
        self.lanes.push(lane);
        self.batch.push(desc);
    }
}

impl Host {
    /// Moves the streams that are due by `now` into their lanes.
    pub(super) fn wake(&mut self, now: Instant) {
        while let Some(Reverse((at, index))) = self.waiting.peek().copied() {
            if at > now {
                break;
            }
            self.waiting.pop();
            self.queue(now, index);
        }
    }

    /// Puts a stream where it belongs: behind its lane, among the waiting, or nowhere any more.
    fn queue(&mut self, now: Instant, index: usize) {
        let Some(sender) = self.senders.get(index) else { return };
        match sender.tx.due(now) {
            Due::Now => {
                if let Some(lane) = self.ready.get_mut(sender.lane) {
                    lane.push_back((self.turn, index));
                    self.turn += 1;
                }
            }
            Due::At(at) => self.waiting.push(Reverse((at, index))),
            Due::Over => self.live -= 1,
        }
    }

    /// Sends what is due; returns how many frames the port took, and how it ended.
    pub(super) fn send_out(
        &mut self,
        now: Instant,
        rate: LinkRate,
        port: &mut dyn Port,
        bufs: &mut Bufs,
    ) -> (usize, Sending) {
        let mut sent = 0;
        for _ in 0..TX_BURSTS {
            let room = port.tx_room(now).min(BURST);
            if room == 0 {
                return (sent, if self.has_work(now) { Sending::Blocked } else { Sending::Idle });
            }
            let mut load = Load::default();
            let fed = self.load(now, rate, room, bufs, &mut load);
            let built = load.batch.len();
            if built > 0 {
                port.tx(now, bufs, &mut load.batch);
            }
            let left = load.batch.len();
            sent += built - left;
            let lanes = load.lanes.drain(built - left..).rev();
            for (lane, desc) in lanes.zip(load.batch.drain(..).rev()) {
                self.pending.push_front((lane, desc));
            }
            if left > 0 || !fed {
                return (sent, Sending::Blocked);
            }
            if built < room {
                return (sent, Sending::Idle);
            }
        }
        (sent, if self.has_work(now) { Sending::More } else { Sending::Idle })
    }

    /// Lanes that no PAUSE stops.
    fn open_lanes(&self) -> [bool; LANES] {
        let paused = self.pauses.paused();
        core::array::from_fn(|lane| Pri::ALL.get(lane).is_none_or(|pri| !paused.contains(*pri)))
    }

    /// Whether there is a frame to send now.
    fn has_work(&self, now: Instant) -> bool {
        let open = self.open_lanes();
        let is_open = |lane: usize| open.get(lane).is_some_and(|open| *open);
        self.own.iter().any(|(_, pri, _)| is_open(pri.index()))
            || self.slow.as_ref().is_some_and(|slow| slow.to_send(now).is_some())
            || self.pending.iter().any(|(lane, _)| is_open(*lane))
            || self.ready.iter().zip(open).any(|(lane, open)| open && !lane.is_empty())
    }

    /// Collects up to `room` frames; false when a frame was due and there was no chunk for it.
    fn load(
        &mut self,
        now: Instant,
        rate: LinkRate,
        room: usize,
        bufs: &mut Bufs,
        load: &mut Load,
    ) -> bool {
        if !self.load_pfc(now, rate, bufs, load) {
            return false;
        }
        let open = self.open_lanes();
        let is_open = |lane: usize| open.get(lane).is_some_and(|open| *open);
        if !self.load_own(room, is_open, bufs, load) {
            return false;
        }
        let mut at = 0;
        while load.batch.len() < room
            && let Some((lane, _)) = self.pending.get(at)
        {
            if is_open(*lane)
                && let Some((lane, desc)) = self.pending.remove(at)
            {
                load.push(lane, desc);
            } else {
                at += 1;
            }
        }
        while load.batch.len() < room
            && let Some(index) = self.pick(&open)
        {
            if !self.load_frame(now, index, bufs, load) {
                return false;
            }
        }
        true
    }

    /// Collects announcements; false when there was no chunk for one.
    fn load_own(
        &mut self,
        room: usize,
        is_open: impl Fn(usize) -> bool,
        bufs: &mut Bufs,
        load: &mut Load,
    ) -> bool {
        let mut at = 0;
        while load.batch.len() < room
            && let Some((format, pri, frame)) = self.own.get(at)
        {
            if !is_open(pri.index()) {
                at += 1;
            } else if frame.len() > bufs.room() {
                self.other.unsendable += 1;
                self.own.remove(at);
            } else if let Some(mut desc) = bufs.alloc_from(frame) {
                desc.set_format(*format);
                desc.set_pri(*pri);
                self.tx_table.add(*format, *pri, frame.len());
                load.push(pri.index(), desc);
                self.own.remove(at);
            } else {
                self.other.no_buffer += 1;
                return false;
            }
        }
        true
    }

    /// Takes the stream out of the lanes that has waited longest among those that may go on.
    fn pick(&mut self, open: &[bool; LANES]) -> Option<usize> {
        let lanes = self.ready.iter().zip(open).filter(|(_, open)| **open).map(|(lane, _)| lane);
        let (_, index) = lanes.filter_map(VecDeque::front).min().copied()?;
        let lane = self.senders.get(index)?.lane;
        self.ready.get_mut(lane)?.pop_front();
        Some(index)
    }

    /// Builds the next frame of a stream and queues the stream again; false when there is no chunk.
    fn load_frame(&mut self, now: Instant, index: usize, bufs: &mut Bufs, load: &mut Load) -> bool {
        let Some(sender) = self.senders.get_mut(index) else { return true };
        if sender.tx.due(now) != Due::Now {
            self.queue(now, index); // its time ran out while it was stopped
            return true;
        }
        let len = sender.tx.next_len();
        if len > bufs.room() {
            self.other.unsendable += 1;
            sender.tx.stop();
            self.queue(now, index);
            return true;
        }
        let Some(mut desc) = bufs.alloc() else {
            self.other.no_buffer += 1;
            if let Some(lane) = self.ready.get_mut(sender.lane) {
                lane.push_front((0, index)); // still its turn
            }
            return false;
        };
        bufs.set_len(&mut desc, len);
        let built = bufs.bytes_mut(&mut desc).map(|out| sender.tx.take(now, out));
        debug_assert!(matches!(built, Some(Ok(()))), "the stream was checked when it was made");
        if !matches!(built, Some(Ok(()))) {
            bufs.free(desc);
            self.other.unsendable += 1;
            sender.tx.stop();
            self.queue(now, index);
            return true;
        }
        let pri = sender.pri();
        desc.set_format(sender.format);
        desc.set_pri(pri.unwrap_or_default());
        if let Some(pri) = pri {
            self.tx_table.add(sender.format, pri, len);
        }
        load.push(sender.lane, desc);
        self.queue(now, index);
        true
    }

    /// Builds the PFC frame of a slow receiver, if one is due; false when there is no chunk.
    fn load_pfc(&mut self, now: Instant, rate: LinkRate, bufs: &mut Bufs, load: &mut Load) -> bool {
        let Some(slow) = &mut self.slow else { return true };
        let Some(pfc) = slow.to_send(now) else { return true };
        let Some(mut desc) = bufs.alloc_control() else {
            self.other.no_buffer += 1;
            return false;
        };
        let mut frame = [0; mac_control::FRAME_LEN];
        pfc.emit(self.mac, &mut frame);
        bufs.set_len(&mut desc, frame.len());
        if let Some(out) = bufs.bytes_mut(&mut desc) {
            out.copy_from_slice(&frame);
        }
        slow.sent(now, rate);
        self.control.pfc_tx += 1;
        note_classes(&pfc, &mut self.control.stop_tx, &mut self.control.go_tx);
        load.push(CONTROL, desc);
        true
    }
}
