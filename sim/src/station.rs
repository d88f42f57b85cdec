//! A station: a small, fast host in virtual time that sends streams, obeys PFC and checks arrivals.
//!
//! [`Stream`]s of numbered frames go out, and [`Arrivals`] are counted by stream. The full host with reports is in
//! `weft-hosts`; this one costs so little that hundreds of millions of frames can be run. The last 12 bytes of a frame
//! are mark, stream and number.
//!
//! Source: docs/spec/pipeline.md §9; IEEE 802.1Q clause 36 (a paused class stops between frames).

use std::collections::VecDeque;

use weft_base::rng::Rng;
use weft_dataplane::pfc::{PauseRx, PfcFrame};
use weft_dataplane::port::flaw::Flaw;
use weft_dataplane::port::wire::{WireConfig, WireEnd};
use weft_dataplane::time::{Instant, Span};
use weft_dataplane::types::{PerPri, Pri};
use weft_parsers::{MacAddr, Pfc};

/// Bytes at the end of each frame: mark (2), stream (2), number (8).
const TRAILER: usize = 12;
const MARK: [u8; 2] = [0x57, 0xF7];

/// A stream of numbered frames of one priority.
#[derive(Clone, Debug)]
pub struct Stream {
    /// Number of the stream, unique in a world; index for [`Station::arrivals`].
    pub id: u16,
    /// Priority whose PAUSE stops the stream; the template's header must lead to it.
    pub pri: Pri,
    /// A frame of the largest length, 60 bytes or more; its last 12 bytes are overwritten.
    pub template: Vec<u8>,
    /// Least length of a frame; each length is drawn between this and the template's.
    pub len_min: usize,
    /// Time from the start of a frame to the start of the next; zero: as fast as the wire takes them.
    pub gap: Span,
    /// When the first frame may start.
    pub start: Instant,
    /// Number of frames to send.
    pub count: u64,
}

struct Sender {
    stream: Stream,
    due: Instant,
    sent: u64,
}

/// Frames of one stream that arrived at a station.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Arrivals {
    /// Frames that arrived, duplicates included.
    pub frames: u64,
    /// Their bytes, without FCS.
    pub bytes: u64,
    /// Numbers that were skipped, and so frames that are lost or late.
    pub missing: u64,
    /// Frames whose number was not above that of the frame before.
    pub disordered: u64,
    next: u64,
}

/// PFC that arrived at a station.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Heard {
    /// PFC frames, valid or not.
    pub frames: u64,
    /// Classes that they pause.
    pub pauses: u64,
    /// Classes that they release.
    pub resumes: u64,
    /// Frames, or classes in them, with a field that is not valid: address, EtherType, opcode, vector, padding.
    pub bad: u64,
}

/// A station at the end of a cable.
pub struct Station {
    wire: WireConfig,
    end: WireEnd,
    senders: Vec<Sender>,
    /// Index of the stream that may send first.
    turn: usize,
    idle_at: Instant,
    pause: PauseRx,
    pcp_to_pri: [Pri; 8],
    /// Whether the station obeys PAUSE.
    pub obeys: bool,
    /// Frames to send before all streams, with the flaw that they are sent with.
    inject: VecDeque<(Vec<u8>, Flaw)>,
    arrivals: Vec<Arrivals>,
    heard: Heard,
    others: u64,
    rng: Rng,
    frame: Vec<u8>,
    /// One frame in this many is damaged; 0: none.
    pub corrupt_one_in: u64,
    corrupted: u64,
    sent_by_pri: PerPri<u64>,
}

impl Station {
    /// A station at `end` of a cable; `wire` describes its transmitter, whose latency is not used.
    #[must_use]
    pub fn new(wire: WireConfig, end: WireEnd, pcp_to_pri: [Pri; 8], seed: u64) -> Self {
        Self {
            wire,
            end,
            senders: Vec::new(),
            turn: 0,
            idle_at: Instant::ZERO,
            pause: PauseRx::new(),
            pcp_to_pri,
            obeys: true,
            inject: VecDeque::new(),
            arrivals: Vec::new(),
            heard: Heard::default(),
            others: 0,
            rng: Rng::new(seed),
            frame: Vec::new(),
            corrupt_one_in: 0,
            corrupted: 0,
            sent_by_pri: PerPri::default(),
        }
    }

    /// Adds a stream to send.
    ///
    /// # Panics
    /// When its template is shorter than 60 bytes, or its least length longer than the template.
    pub fn add(&mut self, stream: Stream) {
        assert!((60..=stream.template.len()).contains(&stream.len_min), "60..=template");
        self.senders.push(Sender { due: stream.start, stream, sent: 0 });
    }

    /// Ends all streams at once.
    pub fn hush(&mut self) {
        self.senders.clear();
    }

    /// Forgets streams that have sent all of their frames, so that a long run does not search them.
    pub fn prune(&mut self) {
        self.senders.retain(|sender| sender.sent < sender.stream.count);
    }

    /// Number of streams that are not forgotten.
    #[must_use]
    pub const fn streams(&self) -> usize {
        self.senders.len()
    }

    /// Plugs the cable in or pulls it: frames in flight to the station are lost, and pauses end.
    pub fn set_link(&mut self, up: bool, now: Instant) {
        self.end.set_link(up);
        self.end.lose();
        self.pause.clear(now);
    }

    /// Queues a frame that is sent before all streams, whatever is paused.
    pub fn inject(&mut self, frame: Vec<u8>, flaw: Flaw) {
        self.inject.push_back((frame, flaw));
    }

    /// End of the cable at this station.
    pub const fn end(&mut self) -> &mut WireEnd {
        &mut self.end
    }

    /// Arrivals of `stream` at this station.
    #[must_use]
    pub fn arrivals(&self, stream: u16) -> Arrivals {
        self.arrivals.get(usize::from(stream)).copied().unwrap_or_default()
    }

    /// PFC frames that arrived at this station.
    #[must_use]
    pub const fn heard(&self) -> Heard {
        self.heard
    }

    /// Frames that arrived without the mark of a stream.
    #[must_use]
    pub const fn others(&self) -> u64 {
        self.others
    }

    /// Frames that were damaged when they were sent.
    #[must_use]
    pub const fn corrupted(&self) -> u64 {
        self.corrupted
    }

    /// Frames sent, of all streams.
    #[must_use]
    pub fn sent(&self) -> u64 {
        self.sent_by_pri.0.iter().sum()
    }

    /// Frames sent of the streams of one priority.
    #[must_use]
    pub fn sent_of(&self, pri: Pri) -> u64 {
        self.sent_by_pri[pri]
    }

    /// Whether all frames of all streams, and those injected, are sent.
    #[must_use]
    pub fn is_done(&self) -> bool {
        self.inject.is_empty() && self.senders.iter().all(|s| s.sent >= s.stream.count)
    }

    /// When the station has something to do next.
    pub fn next(&mut self, now: Instant) -> Option<Instant> {
        let arrival = self.end.next_arrival();
        let paused = self.pause.paused(now);
        let mut due = if self.inject.is_empty() { None } else { Some(now) };
        let mut stopped = false;
        for sender in &self.senders {
            if sender.sent >= sender.stream.count {
                continue;
            }
            if paused.contains(sender.stream.pri) {
                stopped = true;
                continue;
            }
            due = Instant::earlier(due, Some(sender.due));
        }
        // Whatever is due waits for the frame being sent.
        let due = due.map(|due| due.max(self.idle_at));
        // The end of a pause matters only if a stream waits for it.
        let resume = if stopped { self.pause.tick(now) } else { None };
        Instant::earlier(Instant::earlier(arrival, due), resume)
    }

    /// Takes frames that have arrived and sends one that is due; returns when its last bit arrives.
    pub fn poll(&mut self, now: Instant) -> Option<Instant> {
        while let Some(frame) = self.end.receive(now) {
            self.take(frame.at, frame.bytes());
        }
        self.pause.tick(now);
        if now < self.idle_at || !self.end.has_room() {
            return None;
        }
        let (len, flaw) = match self.inject.pop_front() {
            Some((frame, flaw)) => {
                self.frame.clear();
                self.frame.extend_from_slice(&frame);
                (frame.len(), flaw)
            }
            None => self.make(now)?,
        };
        let idle = now + self.wire.frame_time(len);
        let at = idle + self.wire.propagation;
        self.idle_at = idle;
        if !self.end.link_up() {
            return None; // sent into nothing
        }
        self.end.send(at, flaw, &self.frame);
        Some(at)
    }

    /// Builds the next frame of a stream that may send.
    fn make(&mut self, now: Instant) -> Option<(usize, Flaw)> {
        let paused = self.pause.paused(now);
        let count = self.senders.len();
        let ready = |sender: &Sender| {
            sender.sent < sender.stream.count
                && sender.due <= now
                && !paused.contains(sender.stream.pri)
        };
        let index = (0..count)
            .map(|n| (self.turn + n) % count)
            .find(|&index| self.senders.get(index).is_some_and(ready))?;
        // Round robin, so that a fast stream does not starve the others.
        self.turn = (index + 1) % count;
        let sender = self.senders.get_mut(index)?;
        let stream = &sender.stream;
        let spread = (stream.template.len() - stream.len_min) as u64;
        let extra = if spread == 0 { 0 } else { self.rng.below(spread + 1) };
        let len = stream.len_min + usize::try_from(extra).unwrap_or(0);
        self.frame.clear();
        self.frame.extend_from_slice(stream.template.get(..len - TRAILER)?);
        self.frame.extend_from_slice(&MARK);
        self.frame.extend_from_slice(&stream.id.to_be_bytes());
        self.frame.extend_from_slice(&sender.sent.to_be_bytes());
        sender.sent += 1;
        // From when it was due: a stream that was paused catches up, and its rate holds in the long run.
        sender.due += stream.gap;
        self.sent_by_pri[stream.pri] += 1;
        let bad = self.corrupt_one_in > 0 && self.rng.chance(1, self.corrupt_one_in);
        self.corrupted += u64::from(bad);
        Some((len, if bad { Flaw::Fcs } else { Flaw::None }))
    }

    /// Handles a frame that has arrived.
    fn take(&mut self, at: Instant, frame: &[u8]) {
        if frame.get(12..14) == Some(&[0x88, 0x08]) {
            self.obey(at, frame);
            return;
        }
        let Some((&[m0, m1, s0, s1, n @ ..], len)) =
            frame.last_chunk::<TRAILER>().map(|trailer| (trailer, frame.len()))
        else {
            self.others += 1;
            return;
        };
        if [m0, m1] != MARK {
            self.others += 1;
            return;
        }
        let (stream, number) = (u16::from_be_bytes([s0, s1]), u64::from_be_bytes(n));
        let index = usize::from(stream);
        if index >= self.arrivals.len() {
            self.arrivals.resize(index + 1, Arrivals::default());
        }
        let Some(seen) = self.arrivals.get_mut(index) else { return };
        seen.frames += 1;
        seen.bytes += len as u64;
        // A late frame was counted as missing before; `missing` is not corrected, so that it counts gaps.
        if number < seen.next {
            seen.disordered += 1;
        } else {
            seen.missing += number - seen.next;
            seen.next = number + 1;
        }
    }

    fn obey(&mut self, at: Instant, frame: &[u8]) {
        self.heard.frames += 1;
        // The switch has to pad PFC with zeros (docs/spec/wire-formats.md §2.3).
        let padding = frame.get(34..).unwrap_or_default();
        let valid = frame.len() == 60
            && frame.starts_with(&MacAddr::PAUSE.0)
            && padding.iter().all(|&byte| byte == 0);
        let Some(pfc) = Pfc::parse(frame).ok().filter(|_| valid) else {
            self.heard.bad += 1;
            return;
        };
        for class in 0..8 {
            match pfc.class(class) {
                Some(0) => self.heard.resumes += 1,
                Some(_) => self.heard.pauses += 1,
                // A class that is not enabled has quanta of 0.
                None => self.heard.bad += u64::from(pfc.quanta.get(usize::from(class)) != Some(&0)),
            }
        }
        if self.obeys {
            let heard = PfcFrame { enable: pfc.enable, quanta: pfc.quanta };
            self.pause.on_pfc(&heard, at, self.wire.rate, &self.pcp_to_pri);
        }
    }
}
