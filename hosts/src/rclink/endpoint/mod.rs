//! An RC Link endpoint: messages out and in, over any `Port`.
//!
//! [`EndpointSpec`] is what it is; [`Endpoint::send`] gives it a message; [`Endpoint::poll`] moves it to `now` and says
//! when it wants to be polled next; [`Endpoint::events`] is what came of messages, [`Endpoint::latency`] of frames.
//!
//! Units: picoseconds, bytes of payload.
//! Source: docs/spec/model.md §4; docs/spec/wire-formats.md §1.5.
//!
//! Queue pairs are named by the endpoints at their ends: the frames of endpoint n are for queue pair n of whoever they go
//! to, who takes them from the address of endpoint n only.

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

/// After so long nothing is on its way, where no timer says so.
const QUIET: Span = Span::from_ns(4_096 << 8);

/// What one poll did, and when to poll next.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct EndpointProgress {
    /// Frames that the port took.
    pub sent: usize,
    /// Frames that the port delivered.
    pub received: usize,
    /// When there is next something to do, what is on its way over the port included; `None` for never.
    pub next: Option<Instant>,
    /// There is a frame to send now, but the port, or the pool, has no room for it.
    pub blocked: bool,
}

/// What keeps frames from being sent.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Hold {
    /// The link partner has their priority paused.
    Pause,
    /// Their virtual channel has no credit.
    Credit,
    /// Their rate is used up.
    Rate,
}

/// Whether a poll at a wire may be short: nothing is paused or waits.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Calm {
    Yes,
    /// Perhaps not.
    No,
    /// It has what has to be looked after at each poll: a buffer, credits, rates, delays.
    Never,
}

impl Calm {
    /// Something is paused or waits.
    fn disturb(&mut self) {
        if *self == Self::Yes {
            *self = Self::No;
        }
    }
}

/// An RC Link endpoint in operation. Peers are named by their places.
pub struct Endpoint {
    spec: EndpointSpec,
    peers: Peers,
    slots: Slots,
    /// Messages that are not done.
    backlog: Backlog,
    /// Whether messages that were there at the last poll are still to be put into slots.
    is_to_fill: bool,
    /// Peers with messages that are not all in slots, in turn.
    writing: VecDeque<u16>,
    /// Peers that wait for an ACK and when it is due, those that asked for one at once first.
    acks: VecDeque<(u16, Instant)>,
    /// CNPs to be sent: to whom and when.
    cnps: VecDeque<(u16, Instant)>,
    merge: CnpMerge,
    /// Peers whose rate is used up, and when they go on.
    masked: Vec<(Instant, u16)>,
    /// Peers whose rate was cut, and when it is raised.
    cut: Vec<(Instant, u16)>,
    /// Peers that were not ready, and when frames to them go on.
    waiting: Vec<(Instant, u16)>,
    pauses: Pauses,
    slow: Option<SlowReceiver>,
    credits: Option<Box<CreditState>>,
    /// By virtual channel of requests.
    request_pri: [Pri; 8],
    ack_pri: Pri,
    /// Of requests to this endpoint: that of its bank.
    own_pri: Pri,
    /// Whether its frames are Standard, and acknowledged.
    is_standard: bool,
    calm: Calm,
    events: Vec<Event>,
    stats: EndpointStats,
    latency: Latency,
    first_sent: Option<Instant>,
    last_taken: Option<Instant>,
    request: Template,
    answer: Template,
    /// Bytes of an answer.
    answer_len: usize,
    /// Bytes of a request around its payload, and its virtual channel as frames are written now.
    request_ends: usize,
    written_vc: u8,
    arrival_clock: Option<fn() -> Instant>,
    /// Memory of what goes over a port.
    outbox: Option<Box<Outbox>>,
}

impl Endpoint {
    /// An endpoint before its first poll.
    ///
    /// # Errors
    /// See [`EndpointError`].
    pub fn new(spec: EndpointSpec) -> Result<Self, EndpointError> {
        spec.check()?;
        let rate = match spec.rate {
            Some((length, threshold)) => {
                let dcqcn = spec.dcqcn.map(|dcqcn| Dcqcn::new(dcqcn, threshold)).transpose()?;
                Some(PeerRate { window: RateWindow::new(length, threshold)?, dcqcn })
            }
            None => None,
        };
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

    /// Gives it a message to send. One to nobody, to itself, to who has failed, of no bytes or of more than 2^31 frames is
    /// given back, as one with the id of another that is on its way.
    ///
    /// # Errors
    /// The message.
    pub fn send(&mut self, message: Message) -> Result<(), Message> {
        if core::mem::take(&mut self.is_to_fill) {
            self.fill_slots(); // before this one is there
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

    /// What goes beside the data: counts of credits, each to whom. To be asked for after each poll until there is none.
    pub fn credits_out(&mut self) -> Option<(u16, CreditUpdate)> {
        self.credits.as_mut()?.out()
    }

    /// A count of credits has come from endpoint `from`, over a way that only that one has. Poll the endpoint then.
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

    /// Has frames taken at the time of `clock`, where time goes on during a poll; else at the time of the poll.
    pub const fn set_arrival_clock(&mut self, clock: fn() -> Instant) {
        self.arrival_clock = Some(clock);
    }

    /// What came of messages since this was asked last, in order.
    pub fn events(&mut self) -> Vec<Event> {
        core::mem::take(&mut self.events)
    }

    /// Whether anything came of messages since it was asked what.
    #[inline]
    #[must_use]
    pub const fn has_events(&self) -> bool {
        !self.events.is_empty()
    }

    /// As [`Self::events`], whose memory stays.
    pub fn drain_events(&mut self) -> impl ExactSizeIterator<Item = Event> + '_ {
        self.events.drain(..)
    }

    /// What it has counted.
    #[must_use]
    pub fn stats(&self) -> EndpointStats {
        EndpointStats { cnps_merged: self.merge.merged(), ..self.stats }
    }

    /// Latencies of frames: from when each was first sent to when it was taken.
    #[must_use]
    pub const fn latency(&self) -> &Latency {
        &self.latency
    }

    /// When its first data frame was made.
    #[must_use]
    pub const fn first_sent(&self) -> Option<Instant> {
        self.first_sent
    }

    /// When its last data frame was taken.
    #[must_use]
    pub const fn last_taken(&self) -> Option<Instant> {
        self.last_taken
    }

    /// By peer and virtual channel, where there are credits: the channel, credits used, and those of them given back.
    pub fn credits(&self) -> impl Iterator<Item = (u8, u64, u64)> + '_ {
        self.credits.iter().flat_map(|credits| credits.counts())
    }

    /// Peers that it keeps a state of: those that messages were given for, or that frames came from.
    #[must_use]
    pub const fn peers_met(&self) -> usize {
        self.peers.met()
    }

    /// Whether all messages are done.
    #[must_use]
    pub fn is_idle(&self) -> bool {
        self.backlog.is_empty()
            && self.acks.is_empty()
            && self.cnps.is_empty()
            && self.outbox.as_ref().is_none_or(|outbox| outbox.is_empty())
    }

    /// The priority of requests of the first bank.
    fn first_pri(&self) -> Pri {
        self.request_pri.get(usize::from(self.spec.request_vc)).copied().unwrap_or_default()
    }

    /// What keeps requests to `to` from being sent, if anything does.
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

    /// Time for which requests of the first bank were stopped by PFC until `now`.
    #[must_use]
    pub fn paused(&self, now: Instant) -> Span {
        self.pauses.spent(self.first_pri(), now)
    }

    /// Most bytes of the first bank's priority that were in the receive buffer at once.
    #[must_use]
    pub fn watermark(&self) -> usize {
        self.slow.as_ref().map_or(0, |slow| slow.watermark(self.first_pri()))
    }

    /// Moves the endpoint to `now`: receives, answers, sends.
    ///
    /// # Errors
    /// The port's device is gone; the endpoint is in order and may be polled again.
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

    /// What follows when so many frames are in, and `more` may be.
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

    /// What time has brought about.
    fn tick(&mut self, now: Instant) {
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

    /// Frames of TYPE2 that were not acknowledged in time are no longer outstanding.
    fn give_back(&mut self, now: Instant) {
        while let Some((to, psn)) = self.slots.overdue(now) {
            self.stats.timeouts += 1;
            let Self { slots, backlog, events, .. } = self;
            slots.ack(now, to, psn, |request| {
                events.extend(rx::sent(backlog.complete(FramePlace::message_of(request.tag)), now));
            });
        }
    }

    /// Ends waits that are over.
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

    /// Raises rates whose queue pairs had no CNP for a period.
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

    /// A CNP of `to` was passed on.
    fn cut_rate(&mut self, now: Instant, to: u16) {
        let Some(dcqcn) = self.peers.rate(to).and_then(|rate| rate.dcqcn.as_mut()) else { return };
        dcqcn.congested(now);
        let next = dcqcn.next();
        self.cut.retain(|&(_, other)| other != to);
        self.cut.extend(next.map(|at| (at, to)));
        self.follow_rate(now, to);
    }

    /// Has the rate of `to` be what its controller says; who waits for a window waits for the one of the new rate.
    fn follow_rate(&mut self, now: Instant, to: u16) {
        let Some(rate) = self.peers.rate(to) else { return };
        if rate.follow()
            && let Some(masked) = self.masked.iter_mut().find(|&&mut (_, other)| other == to)
        {
            masked.0 = rate.window.free_at(now);
        }
    }

    /// Whether there is credit for an ACK or CNP to `to`.
    #[inline]
    fn may_answer(&self, to: u16) -> bool {
        let Some(credits) = &self.credits else { return true };
        credits.may_send(self.peers.number(to), self.spec.ack_vc, false)
    }

    /// When the first ACK or CNP is due that there is credit for; `None` also where that one has no room.
    fn next_answer(&self, now: Instant, blocked: bool) -> Option<Instant> {
        // While their priority is stopped, answers wait for the end of that.
        if self.pauses.paused().contains(self.ack_pri) {
            return None;
        }
        if blocked && self.acks.front().is_some_and(|&(to, at)| at <= now && self.may_answer(to)) {
            return None;
        }
        let all = self.cnps.iter().chain(&self.acks);
        all.filter(|&&(to, _)| self.may_answer(to)).map(|&(_, at)| at).min()
    }

    /// When there is next something to do.
    #[inline]
    fn next(&mut self, now: Instant, link: &mut impl Link, blocked: bool) -> Option<Instant> {
        let mut soonest = Soonest { now, wait: u64::MAX };
        if let Some(at) = link.next_event() {
            soonest.add(at);
        }
        if blocked && let Some(at) = link.idle_at() {
            soonest.add(at);
        }
        // What is due and finds no room is not due again before the port has some.
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

    /// When time next brings something about, beside what is not acknowledged.
    fn next_timer(&mut self, now: Instant) -> Option<Instant> {
        let slow = self.slow.as_mut().and_then(|slow| slow.tick(now));
        let credits = self.credits.as_ref().and_then(|credits| credits.next());
        let all = self.masked.iter().chain(&self.cut).chain(&self.waiting);
        let rates = all.map(|&(at, _)| at).min();
        [self.pauses.tick(now), slow, credits, rates].into_iter().fold(None, Instant::earlier)
    }

    /// Gives back the chunks of frames that the port has not taken.
    pub fn release(&mut self, bufs: &mut Bufs) {
        if let Some(outbox) = &mut self.outbox {
            outbox.release(bufs);
        }
    }
}

/// The least of some instants, none of them before `now`.
#[derive(Clone, Copy)]
struct Soonest {
    now: Instant,
    /// Picoseconds from now; the most there are for never.
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

/// The credits of an endpoint with such frames, if it has any.
fn credits_of(
    spec: &EndpointSpec,
    request: &FrameSpec,
    answer: &FrameSpec,
) -> Result<Option<CreditState>, EndpointError> {
    let Some(credits) = spec.credits else { return Ok(None) };
    let quiet = spec.transport.timeout().unwrap_or(QUIET);
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
