//! A host: streams out, checks in, PFC both ways, over any `Port`.
//!
//! [`HostSpec`] is what it does; [`Host::poll`] moves it to `now` and says when it wants to
//! be polled next. Streams that are due take turns, one frame each; a stopped priority is left out.
//!
//! Units: picoseconds, bytes without FCS.
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

/// Lane of frames that no PAUSE stops.
const CONTROL: usize = PRIS_MAX;
const LANES: usize = PRIS_MAX + 1;

/// What a host is built from: its address, streams and how it treats PFC.
#[derive(Clone, Debug)]
pub struct HostSpec {
    /// Name in reports.
    pub name: String,
    /// Source of its own PFC frames.
    pub mac: MacAddr,
    /// How it reads frames; the AFH mode must be that of its switch port, its own MAC in `port_mac`
    /// lets PFC come to that too.
    pub parse: ParseConfig,
    /// Priority by header field and PFC class; what the switch has.
    pub classes: PriMap,
    /// Rate for pause quanta; `None` for the port's.
    pub rate: Option<LinkRate>,
    /// Whether received PFC stops it.
    pub honour_pfc: bool,
    /// Receives slowly, and sends PFC.
    pub slow: Option<SlowSpec>,
    /// What it sends.
    pub streams: Vec<StreamSpec>,
    /// Stations that it makes known beside the sources of its streams.
    pub stations: Vec<FrameSpec>,
    /// Tells the time once more after frames were taken from the port, for arrivals; without it they
    /// count as of the poll's `now`, before which they may have been sent.
    pub arrival_clock: Option<fn() -> Instant>,
    /// Arrivals that are kept of each stream: of frames too short to carry a send time.
    pub keep_arrivals: usize,
}

impl HostSpec {
    /// A host that honours PFC, with the switch's defaults for 4 priorities and nothing to send.
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

/// What one poll of a host did, and when to poll it next.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct HostProgress {
    /// Frames that the port took.
    pub sent: usize,
    /// Frames that the port delivered.
    pub received: usize,
    /// When the host has something to do next, not counting what arrives; `None` for never.
    pub next: Option<Instant>,
    /// There is a frame to send now, but the port (or the pool) has no room for it.
    pub blocked: bool,
}

/// A stream of this host and where it belongs.
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

/// A host in operation.
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
    /// Streams that have a frame now, by lane, each with its place in the common order.
    ready: [VecDeque<(u64, usize)>; LANES],
    turn: u64,
    /// Streams that are not over.
    live: usize,
    /// Announcements that are still to be sent, with their formats and priorities.
    own: VecDeque<(Format, Pri, Vec<u8>)>,
    /// Frames that the port refused, with their lanes, oldest first.
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
    /// A stream that cannot be sent, or whose number another one has.
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

    /// Finds out what the switch will make of a stream's frames, from the first one.
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

    /// Queues a frame for every station of this host, so that the switch knows where it is before
    /// traffic comes: to everybody, one for each source address and VLAN.
    pub fn announce(&mut self) {
        let of_streams = self.senders.iter().map(|sender| &sender.tx.spec().frame);
        let mut known = BTreeSet::new();
        for spec in self.stations.iter().chain(of_streams) {
            let Some(key) = spec.source_key().filter(|key| known.insert(*key)) else { continue };
            let stamp = Stamp { stream: ANNOUNCE, seq: 0, sent: Instant::ZERO };
            // a description that makes no announcement (none is known) would make no stream either
            if let Ok(frame) = spec.announcement().to_vec(&stamp, key.0.to_bits()) {
                let (format, pri) = classify(&frame, &self.parse, &self.classes);
                self.own.push_back((format, pri, frame));
            }
        }
    }

    /// Moves the host to `now`: receives, answers, sends what is due.
    ///
    /// # Errors
    /// The port's device is gone; the host is in order and may be polled again.
    pub fn poll(
        &mut self,
        now: Instant,
        port: &mut dyn Port,
        bufs: &mut Bufs,
    ) -> Result<HostProgress, PortError> {
        let rate = self.rate.unwrap_or(port.caps().rate);
        let (received, more) = self.take_in(now, rate, port, bufs);
        self.pauses.tick(now);
        if let Some(slow) = &mut self.slow {
            slow.tick(now);
        }
        self.wake(now);
        let (sent, state) = self.send_out(now, rate, port, bufs);
        port.service(now, bufs)?;
        let waiting = self.waiting.peek().map(|Reverse((at, _))| *at);
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

    /// Whether everything is sent: no stream has a frame left, and nothing waits for the port.
    #[must_use]
    pub fn is_done(&self) -> bool {
        self.live == 0 && self.pending.is_empty() && self.own.is_empty()
    }

    /// Ends all streams; what the port refused is still to be sent.
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

    /// Priorities that the other side has stopped, as of the last poll.
    #[must_use]
    pub fn paused(&self) -> PriSet {
        self.pauses.paused()
    }

    /// What came of `stream`.
    #[must_use]
    pub fn received(&self, stream: u16) -> Option<&StreamRx> {
        self.streams_rx.get(&stream)
    }

    /// Frames of `stream` that were sent.
    #[must_use]
    pub fn sent(&self, stream: u16) -> Option<u64> {
        self.sending(stream).map(StreamTx::sent)
    }

    /// The sending end of `stream`.
    #[must_use]
    pub fn sending(&self, stream: u16) -> Option<&StreamTx> {
        self.senders.iter().map(|sender| &sender.tx).find(|tx| tx.spec().id == stream)
    }

    /// What the host did and saw until `now`, with what its port counted.
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

/// What the other side will make of `frame`, which was just built and so is whole.
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
