//! An RC Link endpoint: sends and receives messages over any `Port`.
//!
//! An [`EndpointSpec`] describes it; [`Endpoint::send`] gives it a message; [`Endpoint::poll`] advances it to `now` and
//! returns when to poll it next. [`Endpoint::events`] reports messages and failures, [`Endpoint::latency`] the
//! latencies of frames.
//!
//! Queue pairs are named by the endpoints at their ends: frames of endpoint n are for queue pair n of whichever
//! endpoint they go to, and that endpoint accepts them from the address of endpoint n only.
//!
//! Source: docs/spec/model.md §4; docs/spec/wire-formats.md §1.5.

use std::collections::VecDeque;

use weft_dataplane::pool::Bufs;
use weft_dataplane::port::{Port, PortError};
use weft_dataplane::time::{Instant, Span};
use weft_dataplane::types::Pri;

use self::backlog::{Backlog, NONE};
use self::credit::CreditState;

use self::peers::{PeerRate, Peers};
use self::place::FramePlace;
use super::cnp::CnpMerge;
use super::dcqcn::Dcqcn;
use super::rate::RateWindow;
use super::slots::{Local, Mask, Slots};
use crate::frames::{FrameSpec, Kind, Template};
use crate::link::{Link, Outbox, PortLink};
use crate::pfc::{Pauses, SlowReceiver};
use crate::stream::rx::Latency;

mod backlog;
mod credit;
mod event;
mod peers;
mod place;
mod rx;
mod spec;
mod tx;
mod wire;

pub use credit::{CreditKind, CreditUpdate};
pub use event::{EndpointStats, Event, Message};
pub use spec::{
    DELAY, EndpointError, EndpointSpec, LOCAL_CREDIT, LOCAL_CREDITS, OUTSTANDING, QPS, SLOTS_MAX,
    Transport,
};

/// Time after which no frame can still be in flight, where no timer of the transport says so.
const QUIET: Span = Span::from_ns(4_096 << 8);

/// Result of one poll.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct EndpointProgress {
    /// Frames that the port took in this poll.
    pub sent: usize,
    /// Frames that the port delivered in this poll.
    pub received: usize,
    /// When to poll next, arrivals that the port knows of included; `None` for never.
    pub next: Option<Instant>,
    /// Whether a frame is due now for which the port or the pool has no room.
    pub blocked: bool,
}

/// A reason for which frames are not sent.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Hold {
    /// The link partner has paused their priority.
    Pause,
    /// Their virtual channel has no credits left.
    Credit,
    /// Their rate is used up until the next window.
    Rate,
}

/// Whether a poll at a wire may take the short way, which looks after no pause or wait.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Calm {
    Yes,
    /// Something may be paused or waiting.
    No,
    /// The endpoint has a slow receiver, credits, rates or delays, which need every poll.
    Never,
}

impl Calm {
    /// Notes that something is paused or waits.
    fn disturb(&mut self) {
        if *self == Self::Yes {
            *self = Self::No;
        }
    }
}

/// A running RC Link endpoint. Inside, peers are named by their places.
pub struct Endpoint {
    spec: EndpointSpec,
    peers: Peers,
    slots: Slots,
    /// Messages that are not completely sent and acknowledged.
    backlog: Backlog,
    /// Whether the last poll left filling the slots to the next call.
    is_to_fill: bool,
    /// Peers with messages that are not completely in slots, in turn.
    writing: VecDeque<u16>,
    /// Peers that wait for an ACK, with its due time; those that want one at once come first.
    acks: VecDeque<(u16, Instant)>,
    /// Peers that are to get a CNP, with its due time.
    cnps: VecDeque<(u16, Instant)>,
    merge: CnpMerge,
    /// Peers whose rate is used up, with the time at which they go on.
    masked: Vec<(Instant, u16)>,
    /// Peers whose rate was cut, with the time at which it is raised.
    cut: Vec<(Instant, u16)>,
    /// Peers that were not ready, with the time at which frames to them go on.
    waiting: Vec<(Instant, u16)>,
    pauses: Pauses,
    slow: Option<SlowReceiver>,
    credits: Option<Box<CreditState>>,
    /// Priority of requests by virtual channel.
    request_pri: [Pri; 8],
    ack_pri: Pri,
    /// Priority of requests to this endpoint, those of its bank.
    own_pri: Pri,
    /// Whether its frames are Standard and acknowledged, so that most of them can be read the short way.
    is_standard: bool,
    calm: Calm,
    events: Vec<Event>,
    stats: EndpointStats,
    latency: Latency,
    first_sent: Option<Instant>,
    last_taken: Option<Instant>,
    request: Template,
    answer: Template,
    /// Length of an answer, padded.
    answer_len: usize,
    /// Bytes of a request around its payload.
    request_ends: usize,
    /// Virtual channel that the request template has now.
    written_vc: u8,
    arrival_clock: Option<fn() -> Instant>,
    /// Frames that a port did not take; not used at a wire.
    outbox: Option<Box<Outbox>>,
}

impl Endpoint {
    /// An endpoint before its first poll.
    ///
    /// # Errors
    /// The first part of `spec` that is out of range or does not fit the others.
    pub fn new(spec: EndpointSpec) -> Result<Self, EndpointError> {
        spec.check()?;
        let rate = match spec.rate {
            Some((length, threshold)) => {
                let dcqcn = spec.dcqcn.map(|dcqcn| Dcqcn::new(dcqcn, threshold)).transpose()?;
                Some(PeerRate { window: RateWindow::new(length, threshold)?, dcqcn })
            }
            None => None,
        };
        // `None` for TYPE3 and LITE, which are not acknowledged.
        let timeout = spec.transport.timeout();
        let (mut request, answer) = (tx::request_frame(&spec), tx::answer_frame(&spec));
        let slow = spec.slow.filter(|_| spec.credits.is_none());
        let credits = credits_of(&spec, &request, &answer)?;
        let mut request_pri = [Pri::default(); 8];
        for vc in spec.request_vcs() {
            tx::put_on(&mut request, vc);
            if let Some(slot) = request_pri.get_mut(usize::from(vc)) {
                *slot = tx::pri_of(&spec, &request)?;
            }
        }
        let own_vc = spec.vc_to(spec.number);
        let is_acked = timeout.is_some();
        let ack_pri = if spec.has_answers() { tx::pri_of(&spec, &answer)? } else { Pri::default() };
        let mut slots = Slots::with_limit(usize::from(spec.slots), timeout, spec.bank_turns);
        if let Transport::Unreliable { outstanding, credits, .. } = spec.transport {
            let longest = request.header_len() + request.trailer_len() + spec.payload_max;
            // Local credits count the FCS, which lengths here leave out.
            let (each, overhead) = (spec::LOCAL_CREDIT, longest - spec.payload_max + 4);
            slots
                .limit_flying(outstanding, Local { credits, each, overhead, longest: longest + 4 });
        }
        let is_special =
            slow.is_some() || credits.is_some() || rate.is_some() || spec.ack_delay > Span::ZERO;
        Ok(Self {
            peers: Peers::new(spec.peers.clone(), spec.frame.kind, spec.number, rate),
            slots,
            backlog: Backlog::new(),
            is_to_fill: false,
            writing: VecDeque::new(),
            acks: VecDeque::new(),
            cnps: VecDeque::new(),
            merge: CnpMerge::new(spec.cnp_merge),
            masked: Vec::new(),
            cut: Vec::new(),
            waiting: Vec::new(),
            pauses: Pauses::new(&spec.classes),
            slow: slow.map(|slow| SlowReceiver::of_wire(slow, spec.classes)),
            credits: credits.map(Box::new),
            own_pri: request_pri.get(usize::from(own_vc)).copied().unwrap_or_default(),
            calm: if is_special { Calm::Never } else { Calm::Yes },
            is_standard: spec.frame.kind == Kind::Standard && is_acked,
            request_pri,
            ack_pri,
            events: Vec::new(),
            stats: EndpointStats::default(),
            latency: Latency::default(),
            first_sent: None,
            last_taken: None,
            request_ends: request.header_len() + request.trailer_len(),
            written_vc: request.tc.vc(),
            answer_len: spec.padded_len(answer.header_len()),
            request: Template::new(request),
            answer: Template::new(answer),
            arrival_clock: None,
            outbox: None,
            spec,
        })
    }

    /// Takes a message to send. It is refused if it is for an unknown or failed endpoint or for this one itself, if it
    /// has no bytes or more than 2^31 frames, or if a message with its id is not done yet.
    ///
    /// # Errors
    /// The message.
    pub fn send(&mut self, message: Message) -> Result<(), Message> {
        if core::mem::take(&mut self.is_to_fill) {
            // The last poll left this undone. It must happen without the new message, as if it had been done then.
            self.fill_slots();
        }
        let bytes_max = (self.spec.payload_max as u64).saturating_mul(place::FRAMES_MAX);
        if !(1..=bytes_max).contains(&message.bytes) || self.backlog.has(message.id) {
            return Err(message);
        }
        let Some(place) = self.peers.meet(message.to) else { return Err(message) };
        if self.slots.is_fatal(place) {
            return Err(message);
        }
        let Some(peer) = self.peers.at_mut(place) else { return Err(message) };
        let open = self.backlog.add(&message, place);
        if peer.first == NONE {
            peer.first = open;
            self.writing.push_back(place);
        } else {
            self.backlog.link(peer.last, open);
        }
        peer.last = open;
        Ok(())
    }

    /// Next credit count to send beside the data, and its receiver. To be called after each poll until `None`.
    pub fn credits_out(&mut self) -> Option<(u16, CreditUpdate)> {
        self.credits.as_mut()?.out()
    }

    /// Takes a credit count from endpoint `from`, over a way that only that endpoint uses. The caller polls the
    /// endpoint after it.
    pub fn credits_in(&mut self, from: u16, update: CreditUpdate) {
        let is_request = update.vc == self.spec.vc_to(from);
        if let Some(credits) = &mut self.credits
            && credits.take(from, update, is_request)
            && is_request
            && let Some(place) = self.peers.find(from)
        {
            self.slots.mask(place, Mask::Credit, false);
        }
    }

    /// Sets a clock for arrival times, for ports where time goes on during a poll; otherwise frames arrive at the time
    /// of the poll.
    pub const fn set_arrival_clock(&mut self, clock: fn() -> Instant) {
        self.arrival_clock = Some(clock);
    }

    /// Takes the events since the last call, oldest first.
    pub fn events(&mut self) -> Vec<Event> {
        core::mem::take(&mut self.events)
    }

    /// Whether there are events to take.
    #[inline]
    #[must_use]
    pub const fn has_events(&self) -> bool {
        !self.events.is_empty()
    }

    /// Like [`Self::events`], and keeps the list's memory.
    pub fn drain_events(&mut self) -> impl ExactSizeIterator<Item = Event> + '_ {
        self.events.drain(..)
    }

    /// Counters since the endpoint was made.
    #[must_use]
    pub fn stats(&self) -> EndpointStats {
        EndpointStats { cnps_merged: self.merge.merged(), ..self.stats }
    }

    /// Latencies of frames, from when each was first sent until it was taken.
    #[must_use]
    pub const fn latency(&self) -> &Latency {
        &self.latency
    }

    /// When its first data frame was built.
    #[must_use]
    pub const fn first_sent(&self) -> Option<Instant> {
        self.first_sent
    }

    /// When its last data frame was taken.
    #[must_use]
    pub const fn last_taken(&self) -> Option<Instant> {
        self.last_taken
    }

    /// For each peer and virtual channel with credits: the channel, credits used, and credits returned of those.
    pub fn credits(&self) -> impl Iterator<Item = (u8, u64, u64)> + '_ {
        self.credits.iter().flat_map(|credits| credits.counts())
    }

    /// Number of peers that have a state: those that messages were for or frames came from.
    #[must_use]
    pub const fn peers_met(&self) -> usize {
        self.peers.met()
    }

    /// Whether all messages are done and no frame waits to be sent.
    #[must_use]
    pub fn is_idle(&self) -> bool {
        self.backlog.is_empty()
            && self.acks.is_empty()
            && self.cnps.is_empty()
            && self.outbox.as_ref().is_none_or(|outbox| outbox.is_empty())
    }

    /// Priority of requests of the first bank.
    fn first_pri(&self) -> Pri {
        self.request_pri.get(usize::from(self.spec.request_vc)).copied().unwrap_or_default()
    }

    /// The reason for which requests to `to` are held back, if there is one.
    #[must_use]
    pub fn holds(&self, to: u16) -> Option<Hold> {
        let has_credit = |credits: &CreditState| credits.may_send(to, self.spec.request_vc, true);
        if self.pauses.paused().contains(self.first_pri()) {
            Some(Hold::Pause)
        } else if !self.credits.as_deref().is_none_or(has_credit) {
            Some(Hold::Credit)
        } else {
            let place = self.peers.find(to)?;
            self.masked.iter().any(|&(_, masked)| masked == place).then_some(Hold::Rate)
        }
    }

    /// Time for which PFC has paused requests of the first bank, until `now`.
    #[must_use]
    pub fn paused(&self, now: Instant) -> Span {
        self.pauses.spent(self.first_pri(), now)
    }

    /// Most bytes of the first bank's priority that were in the receive buffer at the same time.
    #[must_use]
    pub fn watermark(&self) -> usize {
        self.slow.as_ref().map_or(0, |slow| slow.watermark(self.first_pri()))
    }

    /// Advances the endpoint to `now`: receives, answers, sends.
    ///
    /// # Errors
    /// The port's device is gone; the endpoint's state is intact and it may be polled again.
    pub fn poll(
        &mut self,
        now: Instant,
        port: &mut dyn Port,
        bufs: &mut Bufs,
    ) -> Result<EndpointProgress, PortError> {
        let mut outbox = self.outbox.take().unwrap_or_default();
        let mut link =
            PortLink { port: &mut *port, bufs: &mut *bufs, outbox: &mut outbox, reserved: None };
        let progress = self.step(now, &mut link);
        self.outbox = Some(outbox);
        port.service(now, bufs)?;
        Ok(progress)
    }

    #[inline]
    fn step(&mut self, now: Instant, link: &mut impl Link) -> EndpointProgress {
        let rate = link.rate();
        let (received, more) =
            link.take_in(now, |frame, len| self.take_frame(now, rate, frame, len));
        self.rest(now, link, received, more)
    }

    /// The rest of a poll that has received `received` frames; with `more` there may be others.
    fn rest(
        &mut self,
        now: Instant,
        link: &mut impl Link,
        received: usize,
        more: bool,
    ) -> EndpointProgress {
        self.tick(now);
        let (sent, blocked) = self.send_out(now, link);
        let next = if more { Some(now) } else { self.next(now, link, blocked) };
        EndpointProgress { sent, received, next, blocked }
    }

    /// Advances everything that depends on time alone.
    fn tick(&mut self, now: Instant) {
        // Before timers are looked at: those of paused channels stand still.
        self.end_pauses(now);
        if matches!(self.spec.transport, Transport::Unreliable { .. }) {
            self.give_back(now);
        }
        while let Some((to, went)) = self.slots.expire(now) {
            self.stats.timeouts += 1;
            self.went_back(now, to, went);
        }
        if let Some(slow) = &mut self.slow {
            slow.tick(now);
        }
        if let Some(credits) = &mut self.credits {
            credits.tick(now);
        }
        if !self.cut.is_empty() {
            self.raise_rates(now);
        }
        if !self.masked.is_empty() || !self.waiting.is_empty() {
            self.unmask(now);
        }
        if self.calm != Calm::Never {
            let is_calm = self.pauses.paused().is_empty() && self.waiting.is_empty();
            self.calm = if is_calm { Calm::Yes } else { Calm::No };
        }
    }

    /// Ends the wait of TYPE2 frames whose timer has ended: they are lost, and no longer outstanding.
    fn give_back(&mut self, now: Instant) {
        while let Some((to, psn)) = self.slots.overdue(now) {
            self.stats.timeouts += 1;
            let Self { slots, backlog, events, .. } = self;
            slots.ack(now, to, psn, |request| {
                events.extend(rx::sent(backlog.complete(FramePlace::message_of(request.tag)), now));
            });
        }
    }

    /// Lets peers go on whose waits are over.
    fn unmask(&mut self, now: Instant) {
        let Self { masked, waiting, slots, .. } = self;
        for (list, mask) in [(masked, Mask::Rate), (waiting, Mask::NotReady)] {
            list.retain(|&(at, to)| {
                if at <= now {
                    slots.mask(to, mask, false);
                }
                at > now
            });
        }
    }

    /// Raises rates of queue pairs that had no CNP for a period.
    fn raise_rates(&mut self, now: Instant) {
        let mut cut = core::mem::take(&mut self.cut);
        cut.retain_mut(|(due, to)| {
            if *due > now {
                return true;
            }
            let rate = self.peers.rate(*to);
            let Some(dcqcn) = rate.and_then(|rate| rate.dcqcn.as_mut()) else { return false };
            dcqcn.tick(now);
            let next = dcqcn.next();
            self.follow_rate(now, *to);
            *due = next.unwrap_or(now);
            next.is_some()
        });
        self.cut = cut;
    }

    /// Cuts the rate of `to` after a CNP that was passed on.
    fn cut_rate(&mut self, now: Instant, to: u16) {
        let Some(dcqcn) = self.peers.rate(to).and_then(|rate| rate.dcqcn.as_mut()) else { return };
        dcqcn.congested(now);
        let next = dcqcn.next();
        // The CNP has restarted the period, so its old end no longer holds.
        self.cut.retain(|&(_, other)| other != to);
        self.cut.extend(next.map(|at| (at, to)));
        self.follow_rate(now, to);
    }

    /// Sets the rate of `to` to that of its controller. If the queue pair waits for a window, it waits for one of the
    /// new rate.
    fn follow_rate(&mut self, now: Instant, to: u16) {
        let Some(rate) = self.peers.rate(to) else { return };
        if rate.follow()
            && let Some(masked) = self.masked.iter_mut().find(|&&mut (_, other)| other == to)
        {
            masked.0 = rate.window.free_at(now);
        }
    }

    /// Whether an ACK or CNP to `to` has credit.
    #[inline]
    fn may_answer(&self, to: u16) -> bool {
        let Some(credits) = &self.credits else { return true };
        credits.may_send(self.peers.number(to), self.spec.ack_vc, false)
    }

    /// When the first ACK or CNP with credit is due; `None` also if it is due now and has no room.
    fn next_answer(&self, now: Instant, blocked: bool) -> Option<Instant> {
        // While their priority is paused, answers wait for the end of the pause.
        if self.pauses.paused().contains(self.ack_pri) {
            return None;
        }
        if blocked && self.acks.front().is_some_and(|&(to, at)| at <= now && self.may_answer(to)) {
            return None;
        }
        let all = self.cnps.iter().chain(&self.acks);
        all.filter(|&&(to, _)| self.may_answer(to)).map(|&(_, at)| at).min()
    }

    /// When to poll next.
    #[inline]
    fn next(&mut self, now: Instant, link: &mut impl Link, blocked: bool) -> Option<Instant> {
        let mut soonest = Soonest { now, wait: u64::MAX };
        if let Some(at) = link.next_event() {
            soonest.add(at);
        }
        if blocked && let Some(at) = link.idle_at() {
            soonest.add(at);
        }
        // A frame that is due and has no room need not wake the endpoint before the port has some.
        let is_open = |at: &Instant| *at > now || !blocked;
        if let Some(at) = self.slots.timer().filter(is_open) {
            soonest.add(at);
        }
        if !(self.acks.is_empty() && self.cnps.is_empty())
            && let Some(at) = self.next_answer(now, blocked).filter(is_open)
        {
            soonest.add(at);
        }
        if self.calm != Calm::Yes
            && let Some(at) = self.next_timer(now).filter(is_open)
        {
            soonest.add(at);
        }
        soonest.at()
    }

    /// When something happens next by time alone, apart from retransmission timers.
    fn next_timer(&mut self, now: Instant) -> Option<Instant> {
        let slow = self.slow.as_mut().and_then(|slow| slow.tick(now));
        let credits = self.credits.as_ref().and_then(|credits| credits.next());
        let all = self.masked.iter().chain(&self.cut).chain(&self.waiting);
        let rates = all.map(|&(at, _)| at).min();
        [self.pauses.tick(now), slow, credits, rates].into_iter().fold(None, Instant::earlier)
    }

    /// Gives the chunks of frames that the port has not taken back to the pool.
    pub fn release(&mut self, bufs: &mut Bufs) {
        if let Some(outbox) = &mut self.outbox {
            outbox.release(bufs);
        }
    }
}

/// The earliest of several instants, none of which is before `now`.
#[derive(Clone, Copy)]
struct Soonest {
    now: Instant,
    /// Picoseconds from `now`; `u64::MAX` for never.
    wait: u64,
}

impl Soonest {
    #[inline]
    fn add(&mut self, at: Instant) {
        self.wait = self.wait.min(at.since(self.now).as_ps());
    }

    #[inline]
    fn at(self) -> Option<Instant> {
        (self.wait < u64::MAX).then(|| self.now + Span::from_ps(self.wait))
    }
}

/// Credits of an endpoint with these frames, if `spec` has any.
fn credits_of(
    spec: &EndpointSpec,
    request: &FrameSpec,
    answer: &FrameSpec,
) -> Result<Option<CreditState>, EndpointError> {
    let Some(credits) = spec.credits else { return Ok(None) };
    let quiet = spec.transport.timeout().unwrap_or(QUIET);
    // Each channel needs credits for its own longest frame.
    let mut len_max = [0; 8];
    let requests = spec.request_vcs().map(|vc| (vc, request, spec.payload_max));
    for (vc, frame, payload) in requests.chain([(spec.ack_vc, answer, 0)]) {
        if let Some(len) = len_max.get_mut(usize::from(vc)) {
            let whole = frame.header_len() + payload + frame.trailer_len();
            *len = spec.padded_len(whole);
        }
    }
    let drain = spec.slow.map(|slow| slow.drain);
    Ok(Some(CreditState::new(credits, len_max, drain, quiet)?))
}

#[cfg(test)]
mod tests;
