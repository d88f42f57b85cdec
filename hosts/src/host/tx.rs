//! The sending half of a host.
//!
//! Order: its own PFC, then announcements, then frames that the port did not take before, then streams in turn. No more
//! is sent than the port has room for; frames that it refuses all the same are kept in order.

use std::collections::VecDeque;

use arrayvec::ArrayVec;
use weft_dataplane::desc::Desc;
use weft_parsers::mac_control;

use super::rx::note_classes;
use super::{BURST, Batch, Bufs, CONTROL, Due, Host, Instant, LANES, LinkRate, Port, Pri, Reverse};

/// Most bursts that one poll sends, so that receiving is not starved.
const TX_BURSTS: usize = 4;

/// State at the end of sending.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Sending {
    /// No frame is due.
    Idle,
    /// More frames are due, and the port may have room for them.
    More,
    /// More frames are due, and the port or the pool has no room.
    Blocked,
}

/// A batch of frames for the port, with the lane of each.
#[derive(Default)]
struct Load {
    batch: Batch,
    lanes: ArrayVec<usize, BURST>,
}

impl Load {
    /// Appends a frame; the caller has checked that there is room.
    fn push(&mut self, lane: usize, desc: Desc) {
        self.lanes.push(lane);
        self.batch.push(desc);
    }
}

impl Host {
    /// Moves streams that are due by `now` from `waiting` to their lanes.
    pub(super) fn wake(&mut self, now: Instant) {
        while let Some(Reverse((at, index))) = self.waiting.peek().copied() {
            if at > now {
                break;
            }
            self.waiting.pop();
            self.queue(now, index);
        }
    }

    /// Queues a stream again: in its lane if it is due, among those waiting if it is not, nowhere if it has ended.
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

    /// Sends frames that are due; returns how many the port took, and the state at the end.
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
            // From the last to the first, each to the front: the order stays as it was built.
            let lanes = load.lanes.drain(built - left..).rev();
            for (lane, desc) in lanes.zip(load.batch.drain(..).rev()) {
                self.pending.push_front((lane, desc));
            }
            // Asking again within this poll would change nothing: the caller waits for the port.
            if left > 0 || !fed {
                return (sent, Sending::Blocked);
            }
            // The burst had room left, so all that was due is sent.
            if built < room {
                return (sent, Sending::Idle);
            }
        }
        (sent, if self.has_work(now) { Sending::More } else { Sending::Idle })
    }

    /// For each lane, whether it may send.
    fn open_lanes(&self) -> [bool; LANES] {
        let paused = self.pauses.paused();
        core::array::from_fn(|lane| Pri::ALL.get(lane).is_none_or(|pri| !paused.contains(*pri)))
    }

    /// Whether a frame is due that no pause holds back.
    fn has_work(&self, now: Instant) -> bool {
        let open = self.open_lanes();
        let is_open = |lane: usize| open.get(lane).is_some_and(|open| *open);
        self.own.iter().any(|(_, pri, _)| is_open(pri.index()))
            || self.slow.as_ref().is_some_and(|slow| slow.to_send(now).is_some())
            || self.pending.iter().any(|(lane, _)| is_open(*lane))
            || self.ready.iter().zip(open).any(|(lane, open)| open && !lane.is_empty())
    }

    /// Fills `load` with up to `room` frames; false if one was due for which the pool had no chunk.
    fn load(
        &mut self,
        now: Instant,
        rate: LinkRate,
        room: usize,
        bufs: &mut Bufs,
        load: &mut Load,
    ) -> bool {
        // First: a late pause lets frames arrive for which there is no room.
        if !self.load_pfc(now, rate, bufs, load) {
            return false;
        }
        let open = self.open_lanes();
        let is_open = |lane: usize| open.get(lane).is_some_and(|open| *open);
        if !self.load_own(room, is_open, bufs, load) {
            return false;
        }
        // Frames of a paused lane stay where they are; those of other lanes may pass them.
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

    /// Adds announcements to `load`; false if the pool had no chunk for one.
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

    /// Takes from its lane the stream that has waited longest among those not paused.
    fn pick(&mut self, open: &[bool; LANES]) -> Option<usize> {
        // Each lane is in order of turns, so the oldest of all is at the front of one.
        let lanes = self.ready.iter().zip(open).filter(|(_, open)| **open).map(|(lane, _)| lane);
        let (_, index) = lanes.filter_map(VecDeque::front).min().copied()?;
        let lane = self.senders.get(index)?.lane;
        self.ready.get_mut(lane)?.pop_front();
        Some(index)
    }

    /// Adds the next frame of a stream to `load` and queues the stream again; false if the pool had no chunk.
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
        // Asked before the stream is: once taken, a frame cannot be given back to it.
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

    /// Adds the PFC frame of a slow receiver, if one is due; false if the pool had no chunk.
    fn load_pfc(&mut self, now: Instant, rate: LinkRate, bufs: &mut Bufs, load: &mut Load) -> bool {
        let Some(slow) = &mut self.slow else { return true };
        let Some(pfc) = slow.to_send(now) else { return true };
        // From the pool's reserve for control frames, which data cannot use up.
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
