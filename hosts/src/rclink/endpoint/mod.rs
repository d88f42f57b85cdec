//! An RC Link endpoint: messages out and in, over any `Port`.
//!
//! Shape: [`EndpointSpec`] is what it is; [`Endpoint::send`] gives it a message; [`Endpoint::poll`] moves it to `now` and says
//! when it wants to be polled next; [`Endpoint::events`] is what came of messages, [`Endpoint::latency`] of frames.
//! Units: picoseconds, bytes of payload.
//! Source: docs/spec/model.md §4; docs/spec/wire-formats.md §1.5.
//!
//! Queue pairs are named by the endpoints at their ends: the frames of endpoint n are for queue pair n of whoever they go
//! to, who takes them from the address of endpoint n only.

use std::collections::{BTreeMap, VecDeque};

use weft_dataplane::batch::Batch;
use weft_dataplane::desc::Desc;
use weft_dataplane::pool::Bufs;
use weft_dataplane::port::{Port, PortError};
use weft_dataplane::time::{Instant, Span};
use weft_dataplane::types::Pri;
use weft_parsers::ethernet;

use self::credit::CreditState;
use self::peers::{PeerRate, Peers};
use super::cnp::CnpMerge;
use super::dcqcn::Dcqcn;
use super::rate::RateWindow;
use super::slots::{Mask, Slots};
use crate::frames::FrameSpec;
use crate::pfc::{Pauses, SlowReceiver};
use crate::stream::rx::Latency;

mod credit;
mod event;
mod peers;
mod place;
mod rx;
mod spec;
mod tx;

pub use credit::{CreditKind, CreditUpdate};
pub use event::{EndpointStats, Event, Message};
pub use spec::{DELAY, EndpointError, EndpointSpec, QPS, SLOTS_MAX, Transport};

/// After so long nothing is on its way, where no timer says so.
const QUIET: Span = Span::from_ns(4_096 << 8);

/// Messages to one endpoint, in order.
#[derive(Debug, Default)]
struct Backlog {
    messages: VecDeque<Message>,
    /// Bytes and frames of the first one that are in slots.
    written: (u64, u32),
}

/// A message that is not done.
#[derive(Clone, Copy, Debug)]
struct Open {
    to: u16,
    /// Frames in slots.
    frames: u64,
    /// Whether no more will be.
    is_whole: bool,
    /// Frames that were sent again.
    resent: u64,
}

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

/// An RC Link endpoint in operation.
pub struct Endpoint {
    spec: EndpointSpec,
    peers: Peers,
    /// Messages that are not all in slots, by who they are for.
    backlog: BTreeMap<u16, Backlog>,
    slots: Slots,
    /// Peers with messages that are not all in slots, in turn.
    writing: VecDeque<u16>,
    /// Messages that are not done, by id.
    open: BTreeMap<u32, Open>,
    /// Peers that wait for an ACK, those that asked for one at once first.
    acks: VecDeque<u16>,
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
    credits: Option<CreditState>,
    /// By virtual channel of requests.
    request_pri: [Pri; 8],
    ack_pri: Pri,
    /// Frames that the port did not take.
    pending: VecDeque<Desc>,
    events: Vec<Event>,
    stats: EndpointStats,
    latency: Latency,
    first_sent: Option<Instant>,
    last_taken: Option<Instant>,
    /// Frames as they are sent, of which each one's own parts are filled in.
    request: FrameSpec,
    answer: FrameSpec,
    /// Tags of frames that are done: memory that is used again.
    done: Vec<u64>,
    arrival_clock: Option<fn() -> Instant>,
    /// Memory of a burst.
    batch: Option<Box<Batch>>,
}

impl Endpoint {
    /// An endpoint before its first poll.
    ///
    /// # Errors
    /// See [`EndpointError`].
    pub fn new(spec: EndpointSpec) -> Result<Self, EndpointError> {
        spec.check()?;
        let rate = match spec.rate {
            Some((shift, threshold)) => {
                let dcqcn = spec.dcqcn.map(|dcqcn| Dcqcn::new(dcqcn, threshold)).transpose()?;
                Some(PeerRate { window: RateWindow::new(shift, threshold)?, dcqcn })
            }
            None => None,
        };
        let timeout = match spec.transport {
            Transport::Reliable { timeout } => Some(timeout),
            Transport::Lite => None,
        };
        let is_lite = spec.transport == Transport::Lite;
        let (request, answer) = (tx::request_frame(&spec), tx::answer_frame(&spec));
        let slow = spec.slow.filter(|_| spec.credits.is_none());
        let credits = credits_of(&spec, &request, &answer)?;
        let mut endpoint = Self {
            peers: Peers::new(spec.peers.clone(), spec.frame.clone(), spec.number, rate),
            backlog: BTreeMap::new(),
            slots: Slots::with_limit(usize::from(spec.slots), timeout, spec.bank_turns),
            writing: VecDeque::new(),
            open: BTreeMap::new(),
            acks: VecDeque::new(),
            cnps: VecDeque::new(),
            merge: CnpMerge::new(spec.cnp_merge),
            masked: Vec::new(),
            cut: Vec::new(),
            waiting: Vec::new(),
            pauses: Pauses::new(&spec.classes),
            slow: slow.map(|slow| SlowReceiver::of_wire(slow, spec.classes)),
            credits,
            request_pri: [Pri::default(); 8],
            ack_pri: Pri::default(),
            pending: VecDeque::new(),
            events: Vec::new(),
            stats: EndpointStats::default(),
            latency: Latency::default(),
            first_sent: None,
            last_taken: None,
            request,
            answer,
            done: Vec::new(),
            arrival_clock: None,
            batch: None,
            spec,
        };
        for vc in endpoint.spec.request_vcs() {
            tx::put_on(&mut endpoint.request, vc);
            let pri = endpoint.pri_of(&endpoint.request)?;
            if let Some(slot) = endpoint.request_pri.get_mut(usize::from(vc)) {
                *slot = pri;
            }
        }
        if !is_lite {
            endpoint.ack_pri = endpoint.pri_of(&endpoint.answer)?;
        }
        Ok(endpoint)
    }

    /// Gives it a message to send. One to nobody, to itself, to who has failed, of no bytes or of more than 2^31 frames is
    /// given back, as one with the id of another that is on its way.
    ///
    /// # Errors
    /// The message.
    pub fn send(&mut self, message: Message) -> Result<(), Message> {
        let bytes_max = (self.spec.payload_max as u64).saturating_mul(place::FRAMES_MAX);
        let is_refused = !(1..=bytes_max).contains(&message.bytes)
            || self.slots.is_fatal(message.to)
            || self.open.contains_key(&message.id);
        if is_refused || self.peers.meet(message.to).is_none() {
            return Err(message);
        }
        let backlog = self.backlog.entry(message.to).or_default();
        if backlog.messages.is_empty() {
            self.writing.push_back(message.to);
        }
        backlog.messages.push_back(message);
        let open = Open { to: message.to, frames: 0, is_whole: false, resent: 0 };
        self.open.insert(message.id, open);
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
        {
            self.slots.mask(from, Mask::Credit, false);
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

    /// Peers that it keeps a state of: those that messages were given for, or that frames came from.
    #[must_use]
    pub const fn peers_met(&self) -> usize {
        self.peers.met()
    }

    /// Whether all messages are done.
    #[must_use]
    pub fn is_idle(&self) -> bool {
        self.open.is_empty()
            && self.acks.is_empty()
            && self.cnps.is_empty()
            && self.pending.is_empty()
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
        } else if !self.credits.as_ref().is_none_or(has_credit) {
            Some(Hold::Credit)
        } else {
            self.masked.iter().any(|&(_, masked)| masked == to).then_some(Hold::Rate)
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
        let (received, more) = self.take_in(now, port, bufs);
        self.tick(now);
        let (sent, blocked) = self.send_out(now, port, bufs);
        port.service(now, bufs)?;
        let next = if more { Some(now) } else { self.next(now, port, blocked) };
        Ok(EndpointProgress { sent, received, next, blocked })
    }

    /// What time has brought about.
    fn tick(&mut self, now: Instant) {
        self.pauses.tick(now);
        if let Some(slow) = &mut self.slow {
            slow.tick(now);
        }
        if let Some(credits) = &mut self.credits {
            credits.tick(now);
        }
        while let Some((to, went)) = self.slots.expire(now) {
            self.stats.timeouts += 1;
            self.went_back(now, to, went);
        }
        self.raise_rates(now);
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
            let rate = self.peers.get_mut(*to).and_then(|peer| peer.rate.as_mut());
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
        let rate = self.peers.get_mut(to).and_then(|peer| peer.rate.as_mut());
        let Some(dcqcn) = rate.and_then(|rate| rate.dcqcn.as_mut()) else { return };
        dcqcn.congested(now);
        let next = dcqcn.next();
        self.cut.retain(|&(_, other)| other != to);
        self.cut.extend(next.map(|at| (at, to)));
        self.follow_rate(now, to);
    }

    /// Has the rate of `to` be what its controller says; who waits for a window waits for the one of the new rate.
    fn follow_rate(&mut self, now: Instant, to: u16) {
        let Some(rate) = self.peers.get_mut(to).and_then(|peer| peer.rate.as_mut()) else { return };
        if rate.follow()
            && let Some(masked) = self.masked.iter_mut().find(|&&mut (_, other)| other == to)
        {
            masked.0 = rate.window.free_at(now);
        }
    }

    /// Whether there is credit for an ACK or CNP to `to`.
    fn may_answer(&self, to: u16) -> bool {
        let credits = self.credits.as_ref();
        credits.is_none_or(|credits| credits.may_send(to, self.spec.ack_vc, false))
    }

    /// When there is next something to do.
    fn next(&mut self, now: Instant, port: &mut dyn Port, blocked: bool) -> Option<Instant> {
        let mut next = port.next_event();
        let idle = if blocked { port.idle_at() } else { None };
        let paused = self.pauses.tick(now);
        let slow = self.slow.as_mut().and_then(|slow| slow.tick(now));
        let rates =
            self.masked.iter().chain(&self.cut).chain(&self.waiting).map(|&(at, _)| at).min();
        // While their priority is stopped, answers wait for the end of that.
        let answers = if self.pauses.paused().contains(self.ack_pri) {
            None
        } else {
            let cnps = self.cnps.iter().filter(|&&(to, _)| self.may_answer(to)).map(|&(_, at)| at);
            let due = |&to: &u16| self.peers.get(to)?.ack_due.filter(|_| self.may_answer(to));
            cnps.chain(self.acks.iter().filter_map(due)).min()
        };
        let credit = self.credits.as_ref().and_then(CreditState::next);
        let timers = [paused, slow, credit, rates, answers, self.slots.next_timeout()];
        // What is due and finds no room is not due again before the port has some.
        for timer in timers.into_iter().flatten().filter(|&at| at > now || !blocked) {
            next = Instant::earlier(next, Some(timer));
        }
        Instant::earlier(next, idle)
    }

    /// Gives back the chunks of frames that the port has not taken.
    pub fn release(&mut self, bufs: &mut Bufs) {
        for desc in self.pending.drain(..) {
            bufs.free(desc);
        }
    }
}

/// The credits of an endpoint with such frames, if it has any.
fn credits_of(
    spec: &EndpointSpec,
    request: &FrameSpec,
    answer: &FrameSpec,
) -> Result<Option<CreditState>, EndpointError> {
    let Some(credits) = spec.credits else { return Ok(None) };
    let quiet = match spec.transport {
        Transport::Reliable { timeout } => timeout,
        Transport::Lite => QUIET,
    };
    let mut len_max = [0; 8];
    let requests = spec.request_vcs().map(|vc| (vc, request, spec.payload_max));
    for (vc, frame, payload) in requests.chain([(spec.ack_vc, answer, 0)]) {
        if let Some(len) = len_max.get_mut(usize::from(vc)) {
            let whole = frame.header_len() + payload + frame.trailer_len();
            *len = whole.max(ethernet::MIN_FRAME_LEN);
        }
    }
    let drain = spec.slow.map(|slow| slow.drain);
    Ok(Some(CreditState::new(credits, len_max, drain, quiet)?))
}

#[cfg(test)]
mod tests;
