//! A host: sends streams, checks those it receives, and speaks PFC both ways, over any `Port`.
//!
//! It is described by a [`HostSpec`]; [`Host::poll`] advances it to `now` and returns when to poll it next. Streams
//! that are due take turns, one frame each; those of a paused priority are skipped. Lengths are bytes without FCS.
//!
//! Source: docs/spec/pipeline.md §9 (PFC); IEEE 802.1Q-2022 clause 36.

use core::cmp::Reverse;
use std::collections::{BTreeMap, BTreeSet, BinaryHeap, VecDeque};

use weft_dataplane::batch::{BURST, Batch};
use weft_dataplane::desc::Desc;
use weft_dataplane::pool::Bufs;
use weft_dataplane::port::{Port, PortCounters, PortError};
use weft_dataplane::time::{Instant, LinkRate};
use weft_dataplane::types::{PRIS_MAX, Pri, PriSet};
use weft_parsers::{Format, HEAD_LEN, MacAddr, ParseConfig, parse_head};

use crate::classes::PriMap;
use crate::frames::FrameSpec;
use crate::pfc::{Pauses, SlowReceiver, SlowSpec};
use crate::report::{
    ControlReport, LatencyReport, OtherReport, Report, RxStreamReport, SlowReport, Table,
    TxStreamReport,
};
use crate::stamp::{ANNOUNCE, Stamp};
use crate::stream::rx::{Latency, StreamRx};
use crate::stream::tx::{Due, StreamError, StreamSpec, StreamTx};

mod rx;
mod tx;

/// Index of the lane of MAC Control, which no PAUSE stops.
const CONTROL: usize = PRIS_MAX;
const LANES: usize = PRIS_MAX + 1;

/// Description of a host: its address, streams and how it treats PFC.
#[derive(Clone, Debug)]
pub struct HostSpec {
    /// Name in reports.
    pub name: String,
    /// Source address of its own PFC frames.
    pub mac: MacAddr,
    /// How it classifies received frames. The AFH mode must be that of its switch port; with its own MAC in `port_mac`,
    /// PFC frames to that address also count.
    pub parse: ParseConfig,
    /// Priority by header field and PFC class; must equal the switch's.
    pub classes: PriMap,
    /// Rate by which pause quanta are converted; `None` for the port's.
    pub rate: Option<LinkRate>,
    /// Whether received PFC pauses its streams; it is counted in any case.
    pub honour_pfc: bool,
    /// Buffer of a slow receiver, which sends PFC; `None`: frames are taken at once.
    pub slow: Option<SlowSpec>,
    /// Streams that it sends; each needs a number of its own.
    pub streams: Vec<StreamSpec>,
    /// Further stations that [`Host::announce`] makes known, beside the sources of its streams.
    pub stations: Vec<FrameSpec>,
    /// Clock that is read again after frames were received, for their arrival times. Without it arrivals count as of
    /// the poll's `now`, which may be before they were sent.
    pub arrival_clock: Option<fn() -> Instant>,
    /// How many arrivals to keep of each stream, of frames too short to carry a send time.
    pub keep_arrivals: usize,
}

impl HostSpec {
    /// A host that honours PFC, with the switch's default classes of 4 priorities, and no streams.
    #[must_use]
    pub fn new(name: impl Into<String>, mac: MacAddr) -> Self {
        Self {
            name: name.into(),
            mac,
            parse: ParseConfig { port_mac: mac, ..ParseConfig::DEFAULT },
            classes: PriMap::four(),
            rate: None,
            honour_pfc: true,
            slow: None,
            streams: Vec::new(),
            stations: Vec::new(),
            arrival_clock: None,
            keep_arrivals: 0,
        }
    }
}

/// Result of one poll.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct HostProgress {
    /// Frames that the port took in this poll.
    pub sent: usize,
    /// Frames that the port delivered in this poll.
    pub received: usize,
    /// When the host itself has something to do next, arrivals aside; `None` for never.
    pub next: Option<Instant>,
    /// Whether a frame is due now for which the port or the pool has no room.
    pub blocked: bool,
}

/// A stream of this host, its lane and the format of its frames.
struct Sender {
    tx: StreamTx,
    lane: usize,
    format: Format,
}

impl Sender {
    fn pri(&self) -> Option<Pri> {
        Pri::ALL.get(self.lane).copied()
    }
}

/// A running host.
pub struct Host {
    name: String,
    mac: MacAddr,
    parse: ParseConfig,
    classes: PriMap,
    rate: Option<LinkRate>,
    honour_pfc: bool,
    stations: Vec<FrameSpec>,
    senders: Vec<Sender>,
    /// Streams whose next frame is due later.
    waiting: BinaryHeap<Reverse<(Instant, usize)>>,
    /// Streams with a frame due, by lane; the first number is their place among all lanes.
    ready: [VecDeque<(u64, usize)>; LANES],
    turn: u64,
    /// Streams that have not ended.
    live: usize,
    /// Announcements still to be sent, with format and priority.
    own: VecDeque<(Format, Pri, Vec<u8>)>,
    /// Frames that the port did not take, with their lanes, oldest first.
    pending: VecDeque<(usize, Desc)>,
    streams_rx: BTreeMap<u16, StreamRx>,
    keep_arrivals: usize,
    arrival_clock: Option<fn() -> Instant>,
    pauses: Pauses,
    slow: Option<SlowReceiver>,
    tx_table: Table,
    rx_table: Table,
    control: ControlReport,
    other: OtherReport,
}

impl Host {
    /// A host before its first poll.
    ///
    /// # Errors
    /// A stream that cannot be sent, or two streams with one number.
    pub fn new(spec: HostSpec) -> Result<Self, StreamError> {
        let mut ids = BTreeSet::new();
        let mut senders = Vec::with_capacity(spec.streams.len());
        for stream in spec.streams {
            let id = stream.id;
            if !ids.insert(id) {
                return Err(StreamError::Id { id });
            }
            senders.push(Self::sender(stream, &spec.parse, &spec.classes)?);
        }
        let waiting =
            (0..).zip(&senders).map(|(index, sender)| Reverse((sender.tx.spec().start, index)));
        Ok(Self {
            waiting: waiting.collect(),
            live: senders.len(),
            name: spec.name,
            mac: spec.mac,
            parse: spec.parse,
            pauses: Pauses::new(&spec.classes),
            slow: spec.slow.map(|slow| SlowReceiver::new(slow, spec.classes)),
            classes: spec.classes,
            rate: spec.rate,
            honour_pfc: spec.honour_pfc,
            stations: spec.stations,
            senders,
            ready: Default::default(),
            turn: 0,
            own: VecDeque::new(),
            pending: VecDeque::new(),
            streams_rx: BTreeMap::new(),
            keep_arrivals: spec.keep_arrivals,
            arrival_clock: spec.arrival_clock,
            tx_table: Table::default(),
            rx_table: Table::default(),
            control: ControlReport::default(),
            other: OtherReport::default(),
        })
    }

    /// Builds the stream's first frame and classifies it as the switch will.
    fn sender(
        spec: StreamSpec,
        parse: &ParseConfig,
        classes: &PriMap,
    ) -> Result<Sender, StreamError> {
        let id = spec.id;
        let stamp = Stamp { stream: id, seq: 0, sent: Instant::ZERO };
        let built = spec.frame.to_vec(&stamp, spec.seed);
        let frame = built.map_err(|source| StreamError::Frame { id, source })?;
        let (format, pri) = classify(&frame, parse, classes);
        let pri = spec.pri.unwrap_or(pri);
        let lane = if spec.frame.kind.is_control() { CONTROL } else { pri.index() };
        Ok(Sender { lane, format, tx: StreamTx::new(spec)? })
    }

    /// Queues an announcement for each source address and VLAN of this host, so that switches know its port before
    /// traffic for it comes.
    pub fn announce(&mut self) {
        let of_streams = self.senders.iter().map(|sender| &sender.tx.spec().frame);
        let mut known = BTreeSet::new();
        for spec in self.stations.iter().chain(of_streams) {
            let Some(key) = spec.source_key().filter(|key| known.insert(*key)) else { continue };
            let stamp = Stamp { stream: ANNOUNCE, seq: 0, sent: Instant::ZERO };
            // A description without a valid announcement would make no valid stream either; no such one is known.
            if let Ok(frame) = spec.announcement().to_vec(&stamp, key.0.to_bits()) {
                let (format, pri) = classify(&frame, &self.parse, &self.classes);
                self.own.push_back((format, pri, frame));
            }
        }
    }

    /// Advances the host to `now`: receives, sends PFC, sends frames that are due.
    ///
    /// # Errors
    /// The port's device is gone; the host's state is intact and it may be polled again.
    pub fn poll(
        &mut self,
        now: Instant,
        port: &mut dyn Port,
        bufs: &mut Bufs,
    ) -> Result<HostProgress, PortError> {
        let rate = self.rate.unwrap_or(port.caps().rate);
        // Received PFC first: it may stop frames that are sent below.
        let (received, more) = self.take_in(now, rate, port, bufs);
        self.pauses.tick(now);
        if let Some(slow) = &mut self.slow {
            slow.tick(now);
        }

        self.wake(now);
        let (sent, state) = self.send_out(now, rate, port, bufs);
        port.service(now, bufs)?;
        let waiting = self.waiting.peek().map(|Reverse((at, _))| *at);
        // Again: sending PFC has set when the slow receiver's pause is to be refreshed.
        let slow = self.slow.as_mut().and_then(|slow| slow.tick(now));
        let timers = Instant::earlier(waiting, Instant::earlier(self.pauses.tick(now), slow));
        let next = if more || state == tx::Sending::More {
            Some(now)
        } else {
            // a PAUSE frame that finds no room is not due again before the port has some
            let timers = timers.filter(|at| *at > now || state != tx::Sending::Blocked);
            let idle = if state == tx::Sending::Blocked { port.idle_at() } else { None };
            Instant::earlier(timers, Instant::earlier(port.next_event(), idle))
        };
        Ok(HostProgress { sent, received, next, blocked: state == tx::Sending::Blocked })
    }

    /// Whether all streams have ended and no frame waits for the port.
    #[must_use]
    pub fn is_done(&self) -> bool {
        self.live == 0 && self.pending.is_empty() && self.own.is_empty()
    }

    /// Ends all streams; frames that the port did not take are still sent.
    pub fn stop(&mut self) {
        for sender in &mut self.senders {
            sender.tx.stop();
        }
        self.live = 0;
        self.waiting.clear();
        self.ready = Default::default();
    }

    /// Gives back the chunks of frames that the port has not taken; they count as unsent.
    pub fn release(&mut self, bufs: &mut Bufs) {
        for (_, desc) in self.pending.drain(..) {
            bufs.free(desc);
        }
    }

    /// Priorities that the link partner has paused, as of the last poll.
    #[must_use]
    pub fn paused(&self) -> PriSet {
        self.pauses.paused()
    }

    /// Receiving end of `stream`, once one of its frames has come.
    #[must_use]
    pub fn received(&self, stream: u16) -> Option<&StreamRx> {
        self.streams_rx.get(&stream)
    }

    /// Number of frames of `stream` built so far; `None` if the host does not send it.
    #[must_use]
    pub fn sent(&self, stream: u16) -> Option<u64> {
        self.sending(stream).map(StreamTx::sent)
    }

    /// Sending end of `stream`, if the host sends it.
    #[must_use]
    pub fn sending(&self, stream: u16) -> Option<&StreamTx> {
        self.senders.iter().map(|sender| &sender.tx).find(|tx| tx.spec().id == stream)
    }

    /// Counts and latencies until `now`, with the counters of its port.
    #[must_use]
    pub fn report(&self, now: Instant, port: &PortCounters) -> Report {
        let mut latency = Latency::default();
        for rx in self.streams_rx.values() {
            latency.merge(&rx.latency);
        }
        let per_pri = |of: &dyn Fn(Pri) -> u64| Pri::ALL.map(of);
        let other = OtherReport { pending: self.pending.len() as u64, ..self.other };
        let tx_streams = self.senders.iter().map(|s| TxStreamReport::new(&s.tx, s.pri()));
        let rx_streams = self.streams_rx.iter().map(|(id, rx)| RxStreamReport::new(*id, rx));
        Report {
            name: self.name.clone(),
            at_ps: now.as_ps(),
            tx: self.tx_table.total(),
            tx_cells: self.tx_table.cells(),
            rx: self.rx_table.total(),
            rx_cells: self.rx_table.cells(),
            tx_streams: tx_streams.collect(),
            rx_streams: rx_streams.collect(),
            latency: LatencyReport::from(&latency),
            control: ControlReport {
                paused_ps: per_pri(&|pri| self.pauses.spent(pri, now).as_ps()),
                ..self.control
            },
            slow: self.slow.as_ref().map(|slow| SlowReport {
                used_bytes: slow.used(),
                watermark_bytes: Pri::ALL.map(|pri| slow.watermark(pri)),
                overruns: per_pri(&|pri| slow.overruns(pri)),
            }),
            other: other.with_port(port),
        }
    }
}

/// Format and priority that the link partner will see in `frame`, which was just built and so is whole.
fn classify(frame: &[u8], parse: &ParseConfig, classes: &PriMap) -> (Format, Pri) {
    let mut head = [0; HEAD_LEN];
    for (to, from) in head.iter_mut().zip(frame) {
        *to = *from;
    }
    let head = parse_head(&head, frame.len(), parse).unwrap_or_default();
    (head.format(), classes.pri(&head))
}

#[cfg(test)]
pub(crate) mod testing;
#[cfg(test)]
mod tests;
