//! Checkers of RC Link endpoints: rules for the frames that an endpoint sends and takes, and for the events it reports.
//!
//! [`EndpointCheckers::hear`] takes one [`Heard`] after the other, and [`EndpointCheckers::finish`] compares with the
//! endpoint's own counters; a broken rule is a [`Violation`]. A [`Watch`] listens to an endpoint while it runs. The
//! checkers look only at frames and events, never into an endpoint.
//!
//! Source: docs/spec/model.md §4.

mod receiver;
mod sender;
mod stops;
mod tap;

use std::collections::{BTreeMap, BTreeSet};

use weft_dataplane::pool::{Bufs, FRAME_LEN_MAX, Pool};
use weft_dataplane::port::{Port, PortError};
use weft_dataplane::time::{Instant, LinkRate, Span};
use weft_hosts::rclink::credits::CreditSpec;
use weft_hosts::rclink::endpoint::{
    CreditKind, CreditUpdate, Endpoint, EndpointSpec, EndpointStats, Event, Transport,
};
use weft_parsers::Pfc;

use self::receiver::Receiver;
use self::sender::Sender;
use self::stops::Stops;
use self::tap::Tap;
use crate::checkers::{Violation, is_kept};
use crate::journey::HostLog;
use crate::rclink_heard::{Frame, FrameKind, Heard, Reader};

/// Violations kept, beside the first one of each checker; all are counted.
const KEEP: usize = 16;
/// Bytes of the FCS, which takes credit and is not part of a frame here.
const FCS_LEN: usize = 4;

/// Who still has work to do when a run is over, which decides how much may be left open.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum Rest {
    /// The endpoint itself: its messages are not done.
    Own,
    /// Only others: frames that they took are not drained yet, or were lost on the way to them.
    Others,
    /// No endpoint: everything sent has arrived.
    None,
}

/// Rules that follow from the description of an endpoint.
#[derive(Clone, Debug)]
struct Rules {
    /// Time without an ACK, pauses not counted, after which frames are sent again; `None`: frames are not acknowledged.
    timeout: Option<Span>,
    /// Whether lost frames are only counted, so that an ACK stands for no frame in particular.
    may_lose: bool,
    credits: Option<CreditSpec>,
    /// Virtual channel of ACKs.
    ack_vc: u8,
}

/// All checkers of one endpoint.
#[derive(Clone, Debug)]
pub struct EndpointCheckers {
    spec: EndpointSpec,
    rules: Rules,
    senders: BTreeMap<u16, Sender>,
    receivers: BTreeMap<u16, Receiver>,
    /// Credits used and returned, by (peer, virtual channel).
    credits: BTreeMap<(u16, u8), (u64, u64)>,
    stops: Stops,
    rate: LinkRate,
    /// Peers with frames that came with CE since the last CNP to them.
    marked: BTreeSet<u16>,
    counts: EndpointStats,
    /// Frames that certainly found no room; `counts` has all that may have found none.
    overruns_least: u64,
    violations: Vec<Violation>,
    count: u64,
}

impl EndpointCheckers {
    /// Checkers of the endpoint with this `spec`, on a link of `rate`.
    #[must_use]
    pub fn new(spec: &EndpointSpec, rate: LinkRate) -> Self {
        let timeout = spec.transport.timeout();
        let may_lose = matches!(spec.transport, Transport::Unreliable { .. } | Transport::Raw);
        let rules = Rules { timeout, may_lose, credits: spec.credits, ack_vc: spec.ack_vc };
        Self {
            spec: spec.clone(),
            rules,
            senders: BTreeMap::new(),
            receivers: BTreeMap::new(),
            credits: BTreeMap::new(),
            stops: Stops::new(spec.classes.pcp, rate),
            rate,
            marked: BTreeSet::new(),
            counts: EndpointStats::default(),
            overruns_least: 0,
            violations: Vec::new(),
            count: 0,
        }
    }

    /// Violations found: the first few, and the first of each checker.
    #[must_use]
    pub fn violations(&self) -> &[Violation] {
        &self.violations
    }

    /// Number of all violations found.
    #[must_use]
    pub const fn count(&self) -> u64 {
        self.count
    }

    #[cold]
    fn object(&mut self, now: Instant, checker: &'static str, saw: String) {
        self.count += 1;
        if is_kept(&self.violations, checker, KEEP) {
            self.violations.push(Violation { at_ps: now.as_ps(), checker, saw });
        }
    }

    fn judge(&mut self, now: Instant, found: Result<(), (&'static str, String)>) {
        if let Err((checker, saw)) = found {
            self.object(now, checker, saw);
        }
    }

    /// Checks the next frame or event.
    pub fn hear(&mut self, now: Instant, heard: &Heard) {
        match heard {
            Heard::Sent(frame) => self.on_sent(now, frame),
            Heard::Came(frame) => self.on_came(now, frame),
            Heard::Counted(peer, update) => self.on_counted(now, *peer, *update),
            Heard::Said(event) => self.on_said(now, event),
            Heard::Polled => {
                let mut found = Vec::new();
                for receiver in self.receivers.values_mut() {
                    found.extend(receiver.answers().err());
                    match receiver.polled() {
                        Ok((least, most)) => {
                            self.overruns_least += least;
                            self.counts.overruns += most;
                        }
                        Err(wrong) => found.push(wrong),
                    }
                }
                for (checker, saw) in found {
                    self.object(now, checker, saw);
                }
            }
        }
    }

    fn on_sent(&mut self, now: Instant, frame: &Frame) {
        let is_pfc = matches!(frame.kind, FrameKind::Pfc(_) | FrameKind::Other);
        // MAC Control is never paused and takes no credit.
        if !is_pfc {
            if self.stops.is_stopped(now, frame.pri) {
                let saw = format!("a frame to {} of {:?}, which is paused", frame.peer, frame.pri);
                self.object(now, "pause", saw);
            }
            self.use_credits(now, frame);
        }
        match frame.kind {
            FrameKind::Data { .. } => {
                self.counts.tx_frames += 1;
                // The timer's clock stands still while the priority is paused.
                let clock = self.stops.running(now, frame.pri);
                let sender = self.senders.entry(frame.peer).or_default();
                sender.pri = frame.pri;
                let sent = sender.send(clock, &frame.kind, self.rules.timeout);
                let found = sent.map(|is_again| self.counts.resent += u64::from(is_again));
                self.judge(now, found);
            }
            FrameKind::Ack(psn) | FrameKind::Nak(psn) | FrameKind::NotReady(psn) => {
                self.counts.acks_tx += 1;
                self.counts.naks_tx += u64::from(matches!(frame.kind, FrameKind::Nak(_)));
                self.counts.rnrs_tx += u64::from(matches!(frame.kind, FrameKind::NotReady(_)));
                // With TYPE2 an ACK names any frame that came last, so there is no PSN to check.
                if !self.rules.may_lose {
                    self.receivers.entry(frame.peer).or_default().answer(&frame.kind, psn);
                }
            }
            FrameKind::Cnp => {
                self.counts.cnps_tx += 1;
                if !self.marked.remove(&frame.peer) {
                    let saw = format!("a CNP to {}, whose frames had no CE", frame.peer);
                    self.object(now, "ecn", saw);
                }
            }
            FrameKind::Pfc(_) => self.counts.pfc_tx += 1,
            FrameKind::Other => {}
        }
    }

    /// Takes the credits of a frame, which there must be.
    fn use_credits(&mut self, now: Instant, frame: &Frame) {
        let Some(spec) = self.rules.credits else { return };
        let is_data = matches!(frame.kind, FrameKind::Data { .. });
        let vc = if is_data { self.spec.vc_to(frame.peer) } else { self.rules.ack_vc };
        let (used, returned) = self.credits.entry((frame.peer, vc)).or_default();
        *used += u64::from(spec.of(u32::try_from(frame.len + FCS_LEN).unwrap_or(u32::MAX)));
        let out = *used - *returned;
        if out > u64::from(spec.limit) {
            let saw = format!("{out} of {} credits to {} on VC {vc}", spec.limit, frame.peer);
            self.object(now, "credit", saw);
        }
    }

    fn on_counted(&mut self, now: Instant, peer: u16, update: CreditUpdate) {
        if update.kind != CreditKind::Returned {
            return;
        }
        let (used, returned) = self.credits.entry((peer, update.vc)).or_default();
        if update.count > *used {
            let saw = format!("{peer} returned {} credits of {used}", update.count);
            self.object(now, "credit", saw);
            return;
        }
        // An older count takes nothing back.
        *returned = (*returned).max(update.count);
    }

    fn on_came(&mut self, now: Instant, frame: &Frame) {
        match frame.kind {
            FrameKind::Data { .. } => {
                if frame.ce {
                    self.counts.marked += 1;
                    // Raw frames and those of AFH_Lite have no CNPs.
                    if self.spec.has_answers() {
                        self.marked.insert(frame.peer);
                    }
                }
                self.receivers.entry(frame.peer).or_default().come(&frame.kind);
            }
            FrameKind::Ack(psn) | FrameKind::Nak(psn) | FrameKind::NotReady(psn) => {
                self.counts.acks_rx += u64::from(matches!(frame.kind, FrameKind::Ack(_)));
                self.counts.naks_rx += u64::from(matches!(frame.kind, FrameKind::Nak(_)));
                self.counts.rnrs_rx += u64::from(matches!(frame.kind, FrameKind::NotReady(_)));
                let is_ack = matches!(frame.kind, FrameKind::Ack(_));
                if !self.rules.may_lose {
                    let sender = self.senders.entry(frame.peer).or_default();
                    let clock = self.stops.running(now, sender.pri);
                    let found = sender.answered(clock, psn, is_ack, self.rules.timeout);
                    self.judge(now, found);
                }
            }
            FrameKind::Cnp => self.counts.cnps_rx += 1,
            FrameKind::Pfc(pfc) => self.on_pfc(now, &pfc),
            FrameKind::Other => {}
        }
    }

    fn on_pfc(&mut self, now: Instant, pfc: &Pfc) {
        if self.rules.credits.is_some() {
            return; // credits go without PFC
        }
        self.counts.pfc_rx += 1;
        self.stops.receive(now, pfc);
    }

    fn on_said(&mut self, now: Instant, event: &Event) {
        let found = match *event {
            Event::Sent { id, resent, .. } => {
                let mut all = self.senders.values_mut();
                let of = all.find_map(|sender| sender.done(id, resent));
                of.unwrap_or_else(|| {
                    Err(("acknowledge", format!("message {id} is done, and was not sent")))
                })
            }
            Event::Received { from, id, index, bytes, .. } => {
                self.counts.rx_frames += 1;
                self.counts.rx_payload += bytes as u64;
                let may_lose = self.rules.may_lose;
                self.receivers.entry(from).or_default().take(id, index, bytes, may_lose)
            }
            Event::Delivered { from, id, bytes, .. } => {
                self.receivers.entry(from).or_default().delivered(id, bytes);
                Ok(())
            }
            Event::Failed { to, .. } => {
                self.senders.entry(to).or_default().give_up();
                Ok(())
            }
            Event::Congested { .. } => Ok(()),
        };
        self.judge(now, found);
    }

    /// Checks the end of a run: the endpoint's counters must equal those by frames, and if it has nothing left to do,
    /// nothing may be open.
    pub fn finish(&mut self, now: Instant, stats: &EndpointStats, rest: Rest) {
        let counts = &self.counts;
        let rows = [
            ("tx_frames", counts.tx_frames, stats.tx_frames),
            ("resent", counts.resent, stats.resent),
            ("rx_frames", counts.rx_frames, stats.rx_frames),
            ("rx_payload", counts.rx_payload, stats.rx_payload),
            ("marked", counts.marked, stats.marked),
            ("acks_tx", counts.acks_tx, stats.acks_tx),
            ("naks_tx", counts.naks_tx, stats.naks_tx),
            ("rnrs_tx", counts.rnrs_tx, stats.rnrs_tx),
            ("cnps_tx", counts.cnps_tx, stats.cnps_tx),
            ("acks_rx", counts.acks_rx, stats.acks_rx),
            ("naks_rx", counts.naks_rx, stats.naks_rx),
            ("rnrs_rx", counts.rnrs_rx, stats.rnrs_rx),
            ("cnps_rx", counts.cnps_rx, stats.cnps_rx),
            ("pfc_tx", counts.pfc_tx, stats.pfc_tx),
            ("pfc_rx", counts.pfc_rx, stats.pfc_rx),
        ];
        let (least, most) = (self.overruns_least, counts.overruns);
        for (name, heard, had) in rows {
            if heard != had {
                self.object(now, "ledger", format!("{name}: {had}, {heard} by frames"));
            }
        }
        if !(least..=most).contains(&stats.overruns) {
            let saw = format!("overruns: {}, {least} to {most} by frames", stats.overruns);
            self.object(now, "ledger", saw);
        }
        if rest > Rest::Own {
            self.finish_idle(now);
        }
        if rest == Rest::None {
            self.finish_credits(now);
        }
    }

    /// Checks that no frame and no CNP is owed.
    fn finish_idle(&mut self, now: Instant) {
        if let Some(peer) = self.marked.first().copied() {
            self.object(now, "ecn", format!("CE of {peer}, and no CNP"));
        }
        for (peer, sender) in core::mem::take(&mut self.senders) {
            self.judge(now, sender.finish(peer));
        }
    }

    /// Checks that all credits have come back.
    fn finish_credits(&mut self, now: Instant) {
        let left = self.credits.iter().find(|(_, (used, back))| used != back);
        if let Some(((peer, vc), (used, back))) = left {
            let saw = format!("{back} of {used} credits came back from {peer} on VC {vc}");
            self.object(now, "credit", saw);
        }
    }
}

/// Listens to an endpoint while it runs, and checks it.
pub struct Watch {
    reader: Reader,
    checkers: EndpointCheckers,
    heard: Vec<(Instant, Heard)>,
    /// Whether everything heard is kept for later.
    keeps: bool,
    /// Chunks for frames between the wire and the endpoint, one at a time.
    bufs: Bufs,
    /// Log for the parts of latency, if the run wants them.
    pub log: Option<HostLog>,
}

/// Chunks for frames between a wire and an endpoint.
const CHUNKS: usize = 8;

impl Watch {
    /// A watch on the endpoint of `spec`, on a link of `rate`; has the endpoint report each frame that it takes
    /// ([`EndpointSpec::frame_events`]). With `fronts`, only the fronts of frames are read and written.
    ///
    /// # Panics
    /// Never: a pool of this few chunks can always be made.
    #[must_use]
    pub fn new(spec: &mut EndpointSpec, rate: LinkRate, keeps: bool, fronts: bool) -> Self {
        spec.frame_events = true;
        let (reader, checkers) = (Reader::new(spec), EndpointCheckers::new(spec, rate));
        let make = if fronts { Pool::fronts } else { Pool::in_memory };
        let pool = make(CHUNKS, FRAME_LEN_MAX).expect("a few chunks of the longest frames");
        let bufs = Bufs::new(pool, 1, 0);
        Self { reader, checkers, heard: Vec::new(), keeps, bufs, log: None }
    }

    /// Polls the endpoint and listens at its port; returns when it wants to be polled next.
    ///
    /// # Errors
    /// Those of [`Endpoint::poll`].
    pub fn poll<P: Port>(
        &mut self,
        now: Instant,
        endpoint: &mut Endpoint,
        port: &mut P,
    ) -> Result<Option<Instant>, PortError> {
        let Self { reader, heard, log, bufs, .. } = self;
        let before = heard.len();
        let next = endpoint.poll(now, &mut Tap { port, reader, heard }, bufs)?.next;
        if let Some(log) = log {
            for (at, heard) in heard.iter().skip(before) {
                if let Heard::Sent(Frame { peer, kind, .. }) = *heard
                    && let FrameKind::Data { message, index, .. } = kind
                {
                    log.sent_frame(*at, peer, (message, index));
                }
            }
            // After the frames of this poll: the hold is that of the next frame.
            log.held(now, |to| endpoint.holds(to));
        }
        Ok(next)
    }

    /// Notes a count of credits that came from `peer`.
    pub fn counted(&mut self, now: Instant, peer: u16, update: CreditUpdate) {
        self.heard.push((now, Heard::Counted(peer, update)));
    }

    /// Notes the events of the last poll, and checks everything since the poll before.
    pub fn said(&mut self, now: Instant, events: &[Event]) {
        for event in events {
            if let Event::Received { id, index, sent: Some(sent), at, .. } = *event
                && let Some(log) = &mut self.log
            {
                log.took((id, index), at.since(sent));
            }
        }
        self.heard.extend(events.iter().map(|&event| (now, Heard::Said(event))));
        self.heard.push((now, Heard::Polled));
        // Checked only now: an answer of the poll is judged by the frames that its events say were taken.
        let from = if self.keeps { self.heard.len() - self.fresh() } else { 0 };
        for (at, heard) in self.heard.iter().skip(from) {
            self.checkers.hear(*at, heard);
        }
        if !self.keeps {
            self.heard.clear();
        }
    }

    /// Number of things heard since the last poll but one.
    fn fresh(&self) -> usize {
        let before = self.heard.iter().rev().skip(1);
        1 + before.take_while(|(_, heard)| *heard != Heard::Polled).count()
    }

    /// Everything heard, if it is kept.
    #[must_use]
    pub fn heard(&self) -> &[(Instant, Heard)] {
        &self.heard
    }

    /// New checkers with the same rules, which have heard nothing yet.
    #[must_use]
    pub fn checkers(&self) -> EndpointCheckers {
        EndpointCheckers::new(&self.checkers.spec, self.checkers.rate)
    }

    /// Violations at the end of a run; `is_all_there` if no frame is in flight or waits to be drained.
    #[must_use]
    pub fn violations(
        &self,
        now: Instant,
        endpoint: &Endpoint,
        is_all_there: bool,
    ) -> Vec<Violation> {
        let rest = match (endpoint.is_idle(), is_all_there) {
            (false, _) => Rest::Own,
            (true, false) => Rest::Others,
            (true, true) => Rest::None,
        };
        // A copy, so that the run may go on after it.
        let mut last = self.checkers.clone();
        last.finish(now, &endpoint.stats(), rest);
        last.violations
    }
}
