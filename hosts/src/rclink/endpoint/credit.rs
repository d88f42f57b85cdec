//! CBFC of an endpoint: credits of each virtual channel to and from each peer, and the buffer that they stand for.
//!
//! [`CreditState::may_send`] is asked before a frame, [`CreditState::send`] is told of it; [`CreditState::receive`]
//! counts it at the other end, whose buffer drains. [`CreditState::out`] gives counts to send back beside the data,
//! [`CreditState::take`] takes those that come. Lengths count the FCS.
//!
//! Source: docs/spec/model.md §4 "CBFC".

use std::collections::{BTreeMap, VecDeque};

use weft_dataplane::time::{Instant, LinkRate, Span};

use crate::pace::{Pacer, Rate};
use crate::rclink::credits::{CreditError, CreditReturn, CreditSpec, Credits};

/// Bytes of the FCS, which takes credit and is not part of a frame here.
const FCS_LEN: usize = 4;

/// A credit count on its way beside the data.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct CreditUpdate {
    /// Virtual channel whose credits are counted.
    pub vc: u8,
    /// Which end counts, and with that the meaning of the count.
    pub kind: CreditKind,
    /// Credits since the start of the run.
    pub count: u64,
}

impl CreditUpdate {
    /// The update as bytes: virtual channel, kind (0: returned, 1: used), count (big-endian).
    #[must_use]
    pub fn to_bytes(self) -> [u8; 10] {
        let mut bytes = [0; 10];
        let kind = u8::from(self.kind == CreditKind::Used);
        let count = self.count.to_be_bytes();
        for (to, from) in bytes.iter_mut().zip([self.vc, kind].into_iter().chain(count)) {
            *to = from;
        }
        bytes
    }

    /// The update in `bytes` as [`Self::to_bytes`] writes it; `None` if they are not one.
    #[must_use]
    pub fn of_bytes(bytes: &[u8]) -> Option<Self> {
        let (&[vc, kind], count) = bytes.split_first_chunk()?;
        let kind = match kind {
            0 => CreditKind::Returned,
            1 => CreditKind::Used,
            _ => return None,
        };
        Some(Self { vc, kind, count: u64::from_be_bytes(count.try_into().ok()?) })
    }
}

/// Meaning of a credit count.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum CreditKind {
    /// Counted by the receiver: credits it has returned.
    Returned,
    /// Counted by the sender: credits it has used. Sent only when no frame can be in flight any more, so that credits
    /// of frames that did not come are lost ones.
    Used,
}

/// Credits of a virtual channel to and from one peer.
#[derive(Clone, Copy, Debug)]
struct Channel {
    tx: Credits,
    rx: CreditReturn,
    /// When the last frame was sent on it.
    sent_at: Instant,
}

/// A frame in the receive buffer.
#[derive(Clone, Copy, Debug)]
struct Held {
    from: u16,
    vc: u8,
    credits: u32,
    len: usize,
}

/// All credits of an endpoint, by peer and virtual channel.
#[derive(Debug)]
pub(super) struct CreditState {
    spec: CreditSpec,
    /// By VC: bytes of the longest frame, FCS included; only the FCS where the VC is not used.
    frame_len_max: [u32; 8],
    channels: BTreeMap<(u16, u8), Channel>,
    /// Rate at which the buffer drains; `None`: at once.
    pacer: Option<Pacer>,
    buffer: VecDeque<Held>,
    front_out: Instant,
    /// Counts to send, each at most once: peer, VC, kind.
    out: VecDeque<(u16, u8, CreditKind)>,
    /// Channels that wait for credits, and when they say how many they have used.
    starved: Vec<(Instant, u16, u8)>,
    /// Time after the last frame in which everything sent has arrived or is lost.
    quiet: Span,
}

impl CreditState {
    /// A state in which all credits are available. Frames on virtual channel n have at most `len_max[n]` bytes without
    /// FCS, 0 if it is not used; requests drain from the buffer at `drain`, or at once.
    ///
    /// # Errors
    /// Settings that the registers cannot hold or that let no frame go.
    pub fn new(
        spec: CreditSpec,
        len_max: [usize; 8],
        drain: Option<LinkRate>,
        quiet: Span,
    ) -> Result<Self, CreditError> {
        let frame_len_max = len_max.map(with_fcs);
        for frame_len_max in frame_len_max {
            CreditSpec { frame_len_max, ..spec }.check()?;
        }
        Ok(Self {
            spec,
            frame_len_max,
            channels: BTreeMap::new(),
            pacer: drain.map(|rate| Pacer::new(Rate::WireBps(rate.as_bps()))),
            buffer: VecDeque::new(),
            front_out: Instant::ZERO,
            out: VecDeque::new(),
            starved: Vec::new(),
            quiet,
        })
    }

    fn channel(&mut self, peer: u16, vc: u8) -> Option<&mut Channel> {
        let frame_len_max = *self.frame_len_max.get(usize::from(vc))?;
        let spec = CreditSpec { frame_len_max, ..self.spec };
        let tx = Credits::new(spec).ok()?; // checked when it was made
        let (rx, sent_at) = (CreditReturn::default(), Instant::ZERO);
        Some(self.channels.entry((peer, vc)).or_insert(Channel { tx, rx, sent_at }))
    }

    /// For each peer and virtual channel: the channel, credits used, and credits returned of those.
    pub fn counts(&self) -> impl Iterator<Item = (u8, u64, u64)> + '_ {
        let count = |(&(_, vc), channel): (&(u16, u8), &Channel)| {
            (vc, channel.tx.used(), channel.tx.returned())
        };
        self.channels.iter().map(count)
    }

    /// Whether a frame to `to` may go on `vc`.
    pub fn may_send(&self, to: u16, vc: u8, is_request: bool) -> bool {
        // A channel that was never used has all its credits.
        self.channels.get(&(to, vc)).is_none_or(|channel| channel.tx.may_send(is_request))
    }

    /// Uses credits for a frame of `len` bytes to `to`; returns the low bits of the count that it carries.
    pub fn send(&mut self, now: Instant, to: u16, vc: u8, len: usize) -> u16 {
        let Some(channel) = self.channel(to, vc) else { return 0 };
        channel.sent_at = now;
        let [.., high, low] = channel.tx.send(with_fcs(len)).to_be_bytes();
        u16::from_be_bytes([high, low])
    }

    /// Notes that frames to `to` wait for credits on `vc`.
    pub fn starve(&mut self, now: Instant, to: u16, vc: u8) {
        if !self.starved.iter().any(|&(_, peer, other)| (peer, other) == (to, vc)) {
            self.starved.push((now + self.quiet, to, vc));
        }
    }

    /// Counts a frame of `len` bytes received on `vc`; `count` has the low bits of its sender's count, if it carries
    /// them. If `is_kept` it occupies the buffer until it is drained. False if there was no room: the sender used
    /// credits that it did not have.
    pub fn receive(
        &mut self,
        now: Instant,
        from: u16,
        vc: u8,
        count: Option<u16>,
        len: usize,
        is_kept: bool,
    ) -> bool {
        let (limit, credits) = (self.spec.limit, self.spec.of(with_fcs(len)));
        let is_slow = self.pacer.is_some();
        let Some(channel) = self.channel(from, vc) else { return false };
        channel.rx.receive(channel.rx.count_after(count, credits), credits);
        let fits = channel.rx.held() <= u64::from(limit);
        // A frame that is dropped, or drained at once, gives its credits back at once.
        if !is_kept || !fits || !is_slow {
            channel.rx.drain(credits);
            self.say(from, vc, CreditKind::Returned);
        } else {
            self.tick(now);
            if self.buffer.is_empty() {
                self.front_out = now + self.pacer.as_mut().map_or(Span::ZERO, |p| p.gap(len));
            }
            self.buffer.push_back(Held { from, vc, credits, len });
        }
        fits
    }

    fn say(&mut self, peer: u16, vc: u8, kind: CreditKind) {
        // The queue is short, as it is emptied after each poll.
        if !self.out.contains(&(peer, vc, kind)) {
            self.out.push_back((peer, vc, kind));
        }
    }

    /// Drains the buffer up to `now`, and has channels that starve say how many credits they have used.
    pub fn tick(&mut self, now: Instant) {
        while self.front_out <= now
            && let Some(held) = self.buffer.pop_front()
        {
            if let Some(channel) = self.channel(held.from, held.vc) {
                channel.rx.drain(held.credits);
            }
            self.say(held.from, held.vc, CreditKind::Returned);
            if let (Some(next), Some(pacer)) = (self.buffer.front(), &mut self.pacer) {
                self.front_out += pacer.gap(next.len);
            }
        }
        for at in 0..self.starved.len() {
            let Some(&(due, peer, vc)) = self.starved.get(at) else { break };
            if due > now {
                continue;
            }
            // Only if nothing was sent for that long: a frame in flight must not count as lost.
            let sent_at = self.channels.get(&(peer, vc)).map_or(now, |channel| channel.sent_at);
            let free = sent_at + self.quiet;
            if free <= now {
                self.say(peer, vc, CreditKind::Used);
            }

            if let Some((due, ..)) = self.starved.get_mut(at) {
                *due = if free <= now { now + self.quiet } else { free };
            }
        }
    }

    /// When [`Self::tick`] has something to do next.
    pub fn next(&self) -> Option<Instant> {
        let drained = (!self.buffer.is_empty()).then_some(self.front_out);
        Instant::earlier(drained, self.starved.iter().map(|&(at, ..)| at).min())
    }

    /// The next count to send, and its receiver.
    pub fn out(&mut self) -> Option<(u16, CreditUpdate)> {
        let (peer, vc, kind) = self.out.pop_front()?;
        let channel = self.channels.get(&(peer, vc))?;
        // Read now, not when it was queued: a later count makes an earlier one superfluous.
        let count = match kind {
            CreditKind::Returned => channel.rx.count(),
            CreditKind::Used => channel.tx.used(),
        };
        Some((peer, CreditUpdate { vc, kind, count }))
    }

    /// Takes a count from `from`; true if frames to it may go on.
    pub fn take(&mut self, from: u16, update: CreditUpdate, is_request: bool) -> bool {
        let CreditUpdate { vc, kind, count } = update;
        let Some(channel) = self.channels.get_mut(&(from, vc)) else { return false };
        match kind {
            CreditKind::Used => {
                // The sender asks for its losses back: it gets the count that results.
                channel.rx.lose(count);
                self.say(from, vc, CreditKind::Returned);
                false
            }
            CreditKind::Returned => {
                channel.tx.update(count);
                let is_open = channel.tx.may_send(is_request);
                if is_open {
                    self.starved.retain(|&(_, peer, other)| (peer, other) != (from, vc));
                }
                is_open
            }
        }
    }

    /// Forgets that frames to `to` wait, as none is sent any more.
    pub fn forget(&mut self, to: u16) {
        self.starved.retain(|&(_, peer, _)| peer != to);
    }
}

fn with_fcs(len: usize) -> u32 {
    u32::try_from(len + FCS_LEN).unwrap_or(u32::MAX)
}
